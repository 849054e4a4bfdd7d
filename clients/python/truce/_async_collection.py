"""Documents: the common methods of MongoDB's driver, in process and through a server alike."""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from bson import ObjectId
from pymongo.errors import InvalidOperation
from pymongo.results import DeleteResult, InsertManyResult, InsertOneResult, UpdateResult

from . import _merge, errors
from ._public import public
from ._values import (
    Document,
    Duration,
    Reply,
    checked_document,
    checked_replacement,
    checked_update,
    duration_milliseconds,
    without_none,
)

if TYPE_CHECKING:
    from ._async_database import AsyncDatabase

Sort = Union[str, Sequence[Tuple[str, Any]], Document]


def _ordered(keys: Optional[Sort]) -> Optional[Dict[str, Any]]:
    if keys is None:
        return None
    if isinstance(keys, str):
        return {keys: 1}
    return dict(keys)


def _filter(filter: Optional[Document]) -> Document:
    return {} if filter is None else checked_document(filter, "filter")


def _check_writes(reply: Reply) -> Reply:
    """Raises the first error of the writes that failed one by one."""
    failed = reply.get("writeErrors")
    if failed:
        first = failed[0]
        raise errors.of_reply({**reply, "errmsg": first["errmsg"], "code": first["code"]}, "write")
    return reply


@public
class AsyncCursor:
    """The documents of a reply, batch by batch. A cursor that is not read to its end is closed by
    `close()` or at the end of `with`."""

    def __init__(
        self, database: AsyncDatabase, command: Document, *, batch_size: Optional[int] = None
    ) -> None:
        self._database = database
        self._command = command
        self._batch: Deque[Reply] = deque()
        self._session: Any = None
        self._started = False
        self._id = 0
        self._name = ""
        self._more: Dict[str, Any] = without_none({"batchSize": batch_size})

    async def _start(self) -> None:
        self._started = True
        await self._database._kill_abandoned()
        # A server finds a cursor only in the session that created it.
        self._session = await self._database._begin_cursor()
        reply = await self._database.command(self._command, session=self._session)
        self._name = reply["cursor"]["ns"].split(".", 1)[1]
        self._take(reply["cursor"], "firstBatch")
        if not self._id:
            await self._end()

    def _take(self, cursor: Reply, field: str) -> None:
        self._id = cursor["id"]
        self._batch.extend(cursor[field])

    async def _get_more(self) -> None:
        request = {"getMore": self._id, "collection": self._name, **self._more}
        try:
            reply = await self._database.command(request, session=self._session)
        except errors.TruceError:
            self._id = 0
            await self._end()
            raise
        self._take(reply["cursor"], "nextBatch")
        if not self._id:
            await self._end()

    async def _end(self) -> None:
        session, self._session = self._session, None
        await self._database._end_cursor(session)

    @property
    def alive(self) -> bool:
        """Returns whether more documents may come."""
        return bool(self._batch or self._id or not self._started)

    def __aiter__(self) -> AsyncCursor:
        return self

    async def __anext__(self) -> Reply:
        if not self._started:
            await self._start()
        while not self._batch:
            if not self._id:
                raise StopAsyncIteration
            await self._get_more()
        return self._batch.popleft()

    async def to_list(self, length: Optional[int] = None) -> List[Reply]:
        """Returns all further documents, or at most `length`."""
        found: List[Reply] = []
        while length is None or len(found) < length:
            try:
                found.append(await self.__anext__())
            except StopAsyncIteration:
                break
        return found

    async def close(self) -> None:
        number, self._id, self._started = self._id, 0, True
        self._batch.clear()
        if number:
            kill = {"killCursors": self._name, "cursors": [number]}
            await self._database.command(kill, session=self._session)
            await self._end()

    async def __aenter__(self) -> AsyncCursor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # A finalizer may run during any call, so the next cursor closes this one.
        if getattr(self, "_id", 0):
            self._database._abandoned.append((self._name, self._id, self._session))


class AsyncFindCursor(AsyncCursor):
    """The documents of `find`. Its options may change until the first document is read."""

    def _change(self, **fields: Any) -> AsyncFindCursor:
        if self._started:
            raise InvalidOperation(
                "the cursor was already used: set its options before you read it"
            )
        self._command = {**self._command, **fields}
        return self

    def sort(self, key_or_list: Sort, direction: Optional[Any] = None) -> AsyncFindCursor:
        """Sets the order: `sort("name")`, `sort("year", -1)`, or `sort([("year", -1), ...])`."""
        if isinstance(key_or_list, str) and direction is not None:
            return self._change(sort={key_or_list: direction})
        return self._change(sort=_ordered(key_or_list))

    def skip(self, skip: int) -> AsyncFindCursor:
        return self._change(skip=skip)

    def limit(self, limit: int) -> AsyncFindCursor:
        """Sets the maximum number of documents; 0: all."""
        return self._change(limit=limit)

    def batch_size(self, batch_size: int) -> AsyncFindCursor:
        self._more["batchSize"] = batch_size
        return self._change(batchSize=batch_size)


class AsyncChangeStream(AsyncCursor):
    """The changes of a collection or database. The iteration waits for the next change."""

    @property
    def resume_token(self) -> Optional[Mapping[str, Any]]:
        """The token of the last change that was returned, for `resume_after` of a new stream."""
        return self._token

    def __init__(self, database: AsyncDatabase, command: Document, wait_ms: Duration) -> None:
        super().__init__(database, command)
        self._token: Optional[Mapping[str, Any]] = None
        self._more["maxTimeMS"] = duration_milliseconds("max_await_time_ms", wait_ms)

    async def try_next(self) -> Optional[Reply]:
        """Returns the next change, or None if none comes within the stream's waiting time."""
        if not self._started:
            await self._start()
        if not self._batch and self._id:
            await self._get_more()
        return await self.__anext__() if self._batch else None

    async def __anext__(self) -> Reply:
        change = await super().__anext__()
        self._token = change["_id"]
        return change


@public
class AsyncCollection:
    """The documents of a collection. Methods and results are those of pymongo."""

    def __init__(self, database: AsyncDatabase, name: str) -> None:
        self.database = database
        self.name = name
        # Copies of the database's fields, which find_one uses.
        self._transport = database._transport
        self._database_name = database.name
        self._session = database._session

    async def _command(self, document: Document) -> Reply:
        return _check_writes(await self.database.command(without_none(document)))

    # ---- reading ----

    def find(
        self,
        filter: Optional[Document] = None,
        projection: Optional[Union[Document, Sequence[str]]] = None,
        *,
        sort: Optional[Sort] = None,
        skip: Optional[int] = None,
        limit: Optional[int] = None,
        batch_size: Optional[int] = None,
        hint: Optional[Union[str, Document]] = None,
        max_time_ms: Optional[Duration] = None,
    ) -> AsyncFindCursor:
        """Returns the documents that match, as a cursor that runs with its first use."""
        if projection is not None and not isinstance(projection, Mapping):
            projection = {name: 1 for name in projection}
        command = {
            "find": self.name,
            "filter": _filter(filter),
            "projection": projection,
            "sort": _ordered(sort),
            "skip": skip,
            "limit": limit,
            "batchSize": batch_size,
            "hint": hint,
            "maxTimeMS": duration_milliseconds("max_time_ms", max_time_ms),
        }
        return AsyncFindCursor(self.database, without_none(command), batch_size=batch_size)

    async def find_one(
        self,
        filter: Optional[Union[Document, Any]] = None,
        projection: Optional[Union[Document, Sequence[str]]] = None,
        *,
        sort: Optional[Sort] = None,
        skip: Optional[int] = None,
        hint: Optional[Union[str, Document]] = None,
    ) -> Optional[Reply]:
        """Returns the first document that matches, or None. `filter` may be an _id."""
        if type(filter) is not dict and filter is not None and not isinstance(filter, Mapping):
            filter = {"_id": filter}
        options: Dict[str, Any] = {}
        if projection is not None:
            is_mapping = isinstance(projection, Mapping)
            options["projection"] = projection if is_mapping else dict.fromkeys(projection, 1)
        if sort is not None:
            options["sort"] = _ordered(sort)
        if skip is not None:
            options["skip"] = skip
        if hint is not None:
            options["hint"] = hint
        return await self._transport.find_one(
            self._database_name, self.name, filter or {}, options, self._session
        )

    async def count_documents(self, filter: Optional[Document] = None) -> int:
        return int((await self._command({"count": self.name, "query": _filter(filter)}))["n"])

    async def distinct(self, key: str, filter: Optional[Document] = None) -> List[Any]:
        command = {"distinct": self.name, "key": key, "query": _filter(filter)}
        return list((await self._command(command))["values"])

    async def aggregate(
        self, pipeline: Sequence[Document], *, batch_size: Optional[int] = None
    ) -> AsyncCursor:
        """Runs a pipeline of stages."""
        command = {
            "aggregate": self.name,
            "pipeline": list(pipeline),
            "cursor": without_none({"batchSize": batch_size}),
        }
        cursor = AsyncCursor(self.database, command, batch_size=batch_size)
        await cursor._start()
        return cursor

    async def watch(
        self,
        pipeline: Sequence[Document] = (),
        *,
        full_document: Optional[str] = None,
        resume_after: Optional[Document] = None,
        max_await_time_ms: Duration = 1000,
    ) -> AsyncChangeStream:
        """Returns the changes of the collection that follow, or those after a resume token."""
        return await self.database._watch(
            self.name, pipeline, full_document, resume_after, max_await_time_ms
        )

    # ---- writing ----

    async def insert_one(self, document: Document) -> InsertOneResult:
        """Inserts a document. If it has no _id, a dict gets one."""
        try:
            return InsertOneResult((await self.insert_many([document])).inserted_ids[0], True)
        except errors.InvalidValue as error:
            error.args = (str(error).replace("'documents.0", "'document", 1),)
            raise

    async def insert_many(
        self, documents: Sequence[Document], *, ordered: bool = True
    ) -> InsertManyResult:
        """Inserts documents. If one has no _id, a dict gets one."""
        complete: List[Document] = []
        if isinstance(documents, Mapping) or not documents:
            raise TypeError("insert_many needs a list of at least one document")
        for document in documents:
            if "_id" not in checked_document(document, "document"):
                if isinstance(document, dict):
                    document["_id"] = ObjectId()
                else:
                    document = {"_id": ObjectId(), **document}
            complete.append(document)
        command = {"insert": self.name, "documents": complete, "ordered": ordered}
        await self._command(command)
        return InsertManyResult([one["_id"] for one in complete], True)

    async def _update(self, update: Document) -> UpdateResult:
        checked_document(update["q"], "filter")
        reply = await self._command({"update": self.name, "updates": [without_none(update)]})
        upserted = reply.get("upserted") or []
        raw = {**reply, "updatedExisting": bool(reply["n"]) and not upserted}
        if upserted:
            raw["upserted"] = upserted[0]["_id"]
        return UpdateResult(raw, True)

    async def update_one(
        self,
        filter: Document,
        update: Union[Document, Sequence[Document]],
        *,
        upsert: bool = False,
        array_filters: Optional[Sequence[Document]] = None,
    ) -> UpdateResult:
        """Changes the first document that matches, by operators or a pipeline."""
        return await self._update(
            {
                "q": filter,
                "u": checked_update(update),
                "upsert": upsert,
                "arrayFilters": array_filters,
            }
        )

    async def update_many(
        self,
        filter: Document,
        update: Union[Document, Sequence[Document]],
        *,
        upsert: bool = False,
        array_filters: Optional[Sequence[Document]] = None,
    ) -> UpdateResult:
        """Changes all documents that match."""
        return await self._update(
            {
                "q": filter,
                "u": checked_update(update),
                "multi": True,
                "upsert": upsert,
                "arrayFilters": array_filters,
            }
        )

    async def replace_one(
        self, filter: Document, replacement: Document, *, upsert: bool = False
    ) -> UpdateResult:
        """Replaces the first document that matches."""
        document = checked_replacement(replacement)
        return await self._update({"q": filter, "u": document, "upsert": upsert})

    async def _delete(self, filter: Document, limit: int) -> DeleteResult:
        statement = {"q": checked_document(filter, "filter"), "limit": limit}
        command = {"delete": self.name, "deletes": [statement]}
        return DeleteResult(await self._command(command), True)

    async def delete_one(self, filter: Document) -> DeleteResult:
        return await self._delete(filter, 1)

    async def delete_many(self, filter: Document) -> DeleteResult:
        return await self._delete(filter, 0)

    async def _find_and_modify(self, filter: Document, **fields: Any) -> Optional[Reply]:
        query = checked_document(filter, "filter")
        reply = await self._command({"findAndModify": self.name, "query": query, **fields})
        value: Optional[Reply] = reply.get("value")
        return value

    async def find_one_and_update(
        self,
        filter: Document,
        update: Union[Document, Sequence[Document]],
        projection: Optional[Document] = None,
        *,
        sort: Optional[Sort] = None,
        upsert: bool = False,
        return_document: bool = False,
    ) -> Optional[Reply]:
        """Changes a document, and returns it as it was (or is, with ReturnDocument.AFTER)."""
        return await self._find_and_modify(
            filter,
            update=checked_update(update),
            fields=projection,
            sort=_ordered(sort),
            upsert=upsert,
            new=return_document,
        )

    async def find_one_and_replace(
        self,
        filter: Document,
        replacement: Document,
        projection: Optional[Document] = None,
        *,
        sort: Optional[Sort] = None,
        upsert: bool = False,
        return_document: bool = False,
    ) -> Optional[Reply]:
        """Replaces a document, and returns it as it was (or is, with ReturnDocument.AFTER)."""
        return await self._find_and_modify(
            filter,
            update=checked_replacement(replacement),
            fields=projection,
            sort=_ordered(sort),
            upsert=upsert,
            new=return_document,
        )

    async def find_one_and_delete(
        self,
        filter: Document,
        projection: Optional[Document] = None,
        *,
        sort: Optional[Sort] = None,
    ) -> Optional[Reply]:
        """Deletes a document, and returns it."""
        return await self._find_and_modify(
            filter, remove=True, fields=projection, sort=_ordered(sort)
        )

    # ---- revisions ----

    async def merge(
        self,
        document: Document,
        *,
        version: int,
        version_field: Optional[str] = None,
        rules: Optional[Document] = None,
        strict: Optional[bool] = None,
        inbox: Optional[bool] = None,
        keep: Optional[int] = None,
        keep_ms: Optional[Duration] = None,
        base: Optional[Document] = None,
    ) -> Reply:
        """
        Saves the document that a web form sent back, merged with other saves since.

        The JSON of the form is enough: where the stored document has an ObjectId, a datetime, or
        another type that JSON lacks, the field gets this type again. If both sides changed a field,
        Conflict is raised.

        document: the edited document, with its _id
        version: the number that the form showed

        The other options and the reply are those of `Database.revision`.
        """
        sent = _merge.check(document)
        for id in _merge.id_forms(sent["_id"]):
            found = await self.database.revision(self.name, get=id, version_field=version_field)
            if found["status"] == "ok":
                break
        return await self.database.revision(
            self.name,
            merge=_merge.typed(sent, found.get("document", {})),
            version=version,
            base=base,
            version_field=version_field,
            rules=rules,
            strict=strict,
            inbox=inbox,
            keep=keep,
            keep_ms=keep_ms,
        )

    # ---- indexes ----

    async def create_index(
        self,
        keys: Sort,
        *,
        name: Optional[str] = None,
        unique: Optional[bool] = None,
        sparse: Optional[bool] = None,
        expireAfterSeconds: Optional[int] = None,
        partialFilterExpression: Optional[Document] = None,
        hidden: Optional[bool] = None,
        weights: Optional[Document] = None,
        wildcardProjection: Optional[Document] = None,
        collation: Optional[Document] = None,
    ) -> str:
        """Creates an index, and returns its name. The options are those of pymongo."""
        ordered = _ordered(keys) or {}
        index = {
            "key": ordered,
            "name": name or "_".join(f"{key}_{way}" for key, way in ordered.items()),
            "unique": unique,
            "sparse": sparse,
            "expireAfterSeconds": expireAfterSeconds,
            "partialFilterExpression": partialFilterExpression,
            "hidden": hidden,
            "weights": weights,
            "wildcardProjection": wildcardProjection,
            "collation": collation,
        }
        await self._command({"createIndexes": self.name, "indexes": [without_none(index)]})
        return str(index["name"])

    async def list_indexes(self) -> AsyncCursor:
        cursor = AsyncCursor(self.database, {"listIndexes": self.name})
        await cursor._start()
        return cursor

    async def drop_index(self, name: str) -> None:
        await self._command({"dropIndexes": self.name, "index": name})

    async def drop(self) -> None:
        await self._command({"drop": self.name})
