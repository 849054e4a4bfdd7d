"""
The client core: every method makes one command document and runs it through a transport.

Replies are the documents of the server without `ok`, `$clusterTime`, and `operationTime`. If the
`outcome` of a reply is "conflict", Conflict is raised.
"""
from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
    cast,
)

from bson import ObjectId

from . import _telemetry, errors
from ._async_collection import AsyncChangeStream, AsyncCollection
from ._async_job import AsyncJob
from ._commit_list import CommitList, late
from ._operations import Operations
from ._transport import AsyncServerTransport, AsyncTransport
from ._public import public
from ._values import (
    Document,
    Duration,
    NotFoundReply,
    Reply,
    Time,
    time_milliseconds,
    without_none,
)

if TYPE_CHECKING:
    from ._async_handles import AsyncLedger, AsyncQueue, AsyncRevisions
    from ._transport import AsyncServerDatabase

T = TypeVar("T")

_logger = logging.getLogger("truce")
_TRIES = 4
_TRANSACTION_SECONDS = 120


@public
class AsyncDatabase(Operations[Coroutine[Any, Any, Reply]]):
    """
    A database of a store or server: the operations of truce, collections, commits, transactions.

    Make it by `aio.open()` or `aio.connect()`. Any number of callers may use it at the same time;
    a transaction is for one caller. At the end of `with`, it is closed.
    A collection is `db["students"]`.
    """

    _attribute_hint = 'a collection is db["{}"]'

    def __init__(
        self, transport: AsyncTransport, name: Optional[str] = None, session: Any = None
    ) -> None:
        self.name = name
        self._transport = transport
        self._session = session
        self._abandoned: List[Tuple[str, int, Any]] = []

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the store, or the connections that `connect` made."""
        await self._transport.close()

    # ---- commands ----

    async def command(self, document: Document, *, again: bool = False, session: Any = None) -> Reply:
        """
        Runs a command document and returns its reply. With `again`, the command is sent again if
        its reply is lost or the server says that it may be repeated.
        """
        session = session or self._session
        document = _telemetry.traced(document)
        for left in range(_TRIES - 1, -1, -1):
            try:
                reply = await self._transport.command(self.name, document, session)
                break
            except errors.TruceError as error:
                lost = isinstance(error, errors.Unreachable)
                repeats = lost or error.has_error_label("RetryableWriteError")
                if not (again and repeats and left) or self._session is not None:
                    raise
            await asyncio.sleep(0.05 if lost else 0.1 * (_TRIES - left))
        reply.pop("ok", None)
        reply.pop("$clusterTime", None)
        reply.pop("operationTime", None)
        if "outcome" in reply and reply["outcome"] == "conflict":
            text = reply.get("reason", "another write conflicts with this one")
            # The operation itself has completed: its status is "ok".
            details = {"errmsg": text, "code": 112, **reply, "status": "conflict"}
            raise errors.of_reply(details, "")
        if "note" in reply and "truceClaim" not in document:  # a worker logs that of its claim
            _logger.warning("%s", reply["note"])
        return NotFoundReply(reply) if reply.get("status") == "not found" else reply

    async def _run(self, document: Document, again: bool) -> Reply:
        try:
            return await self.command(document, again=again)
        except errors.Invalid as error:
            errors.use_python_names(error)
            raise

    # ---- collections ----

    def collection(self, name: str) -> AsyncCollection:
        return AsyncCollection(self, name)

    def __getitem__(self, name: str) -> AsyncCollection:
        return AsyncCollection(self, name)

    @property
    def database(self) -> AsyncServerDatabase:
        """pymongo's database on the server, for the methods that this class does not have."""
        if not isinstance(self._transport, AsyncServerTransport):
            raise AttributeError('a store in this process has no pymongo database: use db["name"]')
        return self._transport.client[cast(str, self.name)]

    async def list_collection_names(self) -> List[str]:
        reply = await self.command({"listCollections": 1, "nameOnly": True, "cursor": {}})
        return [one["name"] for one in reply["cursor"]["firstBatch"]]

    async def drop(self) -> None:
        """Drops the database with all its collections, queues, and other objects."""
        await self.command({"dropDatabase": 1})

    async def watch(
        self,
        pipeline: Sequence[Document] = (),
        *,
        full_document: Optional[str] = None,
        resume_after: Optional[Document] = None,
        max_await_time_ms: Duration = 1000,
    ) -> AsyncChangeStream:
        """Returns the changes of all collections that follow, or those after a resume token."""
        return await self._watch(1, pipeline, full_document, resume_after, max_await_time_ms)

    async def _watch(
        self,
        of: Union[str, int],
        pipeline: Sequence[Document],
        full_document: Optional[str],
        resume_after: Optional[Document],
        max_await_time_ms: Duration,
    ) -> AsyncChangeStream:
        stage = without_none({"fullDocument": full_document, "resumeAfter": resume_after})
        command: Dict[str, Any] = {
            "aggregate": of,
            "pipeline": [{"$changeStream": stage}, *pipeline],
            "cursor": {},
        }
        stream = AsyncChangeStream(self, command, max_await_time_ms)
        await stream._start()
        return stream

    async def _begin_cursor(self) -> Any:
        return self._session or await self._transport.begin(transaction=False)

    async def _end_cursor(self, session: Any) -> None:
        if session is not None and session is not self._session:
            await self._transport.end(session)

    async def _kill_abandoned(self) -> None:
        """Closes the cursors that were freed before their end."""
        while self._abandoned:
            name, number, session = self._abandoned.pop()
            try:
                await self.command({"killCursors": name, "cursors": [number]}, session=session)
            except errors.TruceError:
                pass  # The store closes an unused cursor after some minutes.
            await self._end_cursor(session)

    # ---- handles ----

    def queue(self, name: str) -> AsyncQueue:
        """Returns the operations of one queue."""
        from ._async_handles import AsyncQueue

        return AsyncQueue(self, name)

    def ledger(self, name: str) -> AsyncLedger:
        """Returns the operations of one ledger."""
        from ._async_handles import AsyncLedger

        return AsyncLedger(self, name)

    def revisions(
        self,
        collection: str,
        *,
        version_field: Optional[str] = None,
        rules: Optional[Document] = None,
        strict: Optional[bool] = None,
        inbox: Optional[bool] = None,
        keep: Optional[int] = None,
        keep_ms: Optional[Duration] = None,
    ) -> AsyncRevisions:
        """Returns the documents of a collection with version numbers; the options are those of
        `revision`. Only a merge uses `rules`, `strict`, and `inbox`."""
        from ._async_handles import AsyncRevisions

        options = {
            "version_field": version_field,
            "rules": rules,
            "strict": strict,
            "inbox": inbox,
            "keep": keep,
            "keep_ms": keep_ms,
        }
        return AsyncRevisions(self, collection, options)

    # ---- commits and transactions ----

    def commit(
        self,
        *,
        key: Optional[str] = None,
        key_time: Optional[Time] = None,
        leave: Optional[Document] = None,
        input: Optional[Document] = None,
        journal: Optional[bool] = None,
    ) -> AsyncCommit:
        """
        Returns a commit for `with`: several changes, all or none.

        key: an idempotency key; the commit takes effect at most once under it; it needs key_time
        key_time: required with key, and only then: the time when the request was made, the same in
            every retry: a datetime with a time zone, or milliseconds since 1970
        leave: with a key: what a later call with the same key gets as `result`
        input: what identifies the request, instead of the changes
        journal: use the journal, even if the store has transactions
        """
        if key is not None and key_time is None:
            text = "the time when the request was made, the same in every retry"
            raise TypeError(f"key needs key_time: {text}")
        if key is None and key_time is not None:
            raise TypeError("key_time needs key: it is the time of that idempotency key")
        options = {
            "key": key,
            "keyTime": time_milliseconds("key_time", key_time),
            "leave": leave,
            "input": input,
            "journal": journal,
        }
        return AsyncCommit(self, options)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncDatabase]:
        """
        Runs the calls of the database that it yields in one transaction: all take effect at the end
        of `with`, or none if it raises. A conflict raises an error; `transact` repeats the calls.
        """
        session = await self._transport.begin(transaction=True)
        try:
            yield AsyncDatabase(self._transport, self.name, session)
            await self._transport.commit(session)
        finally:
            await self._transport.end(session)

    async def transact(self, function: Callable[[AsyncDatabase], Awaitable[T]]) -> T:
        """
        Runs `function(database)` in a transaction, and again after a conflict with other writes.
        Returns the function's result.
        """
        for seconds in range(_TRANSACTION_SECONDS):
            try:
                async with self.transaction() as inner:
                    return await function(inner)
            except errors.TruceError as error:
                if not error.has_error_label("TransientTransactionError"):
                    raise
                last = error
            await asyncio.sleep(min(0.01 * 2**seconds, 1.0))
        raise last

    # ---- jobs ----

    async def claim_jobs(
        self,
        queue: str,
        *,
        most: Optional[int] = None,
        wait_ms: Optional[Duration] = None,
        lease_ms: Optional[Duration] = None,
        worker: Optional[str] = None,
    ) -> List[AsyncJob]:
        """Claims the next jobs as objects, with the options of `claim`."""
        jobs, _ = await self._claim_jobs(
            queue, most=most, wait_ms=wait_ms, lease_ms=lease_ms, worker=worker
        )
        return jobs

    async def _claim_jobs(self, queue: str, **options: Any) -> Tuple[List[AsyncJob], Optional[str]]:
        """Returns also the note of the reply."""
        began = _telemetry.now()
        reply = await self.claim(queue, **options)
        jobs = [AsyncJob(self, queue, document) for document in reply.get("jobs", [])]
        for job in jobs:
            job.log.debug("job %s of queue %s was claimed", job.id, queue)
        _telemetry.claimed(queue, jobs, began)
        return jobs, reply.get("note")

    # ---- all pages of a reply ----

    async def iterate_jobs(
        self, queue: str, *, state: Any = None, page: int = 100
    ) -> AsyncIterator[Reply]:
        """Returns all jobs of a queue, the oldest first."""
        after = None
        while True:
            reply = await self.jobs(queue, state=state, after=after, limit=page)
            for job in reply["jobs"]:
                yield job
            if not reply["more"]:
                return
            after = reply["jobs"][-1]["_id"]

    async def iterate_statement(
        self, ledger: str, account: str, *, after: Optional[int] = None, page: int = 100
    ) -> AsyncIterator[Reply]:
        """Returns all lines of an account, in order."""
        while True:
            reply = await self.ledger_statement(ledger, account=account, after=after, limit=page)
            lines = reply["lines"]
            for line in lines:
                yield line
            if not reply["more"]:
                return
            after = lines[-1]["number"]

    async def iterate_transfers(
        self, collection: str, *, state: Any = None, page: int = 100
    ) -> AsyncIterator[Reply]:
        """Returns all transfers, the last changed first."""
        skip = 0
        while True:
            reply = await self.transfers(collection, state=state, limit=page, skip=skip)
            for transfer in reply["transfers"]:
                yield transfer
            if not reply["more"]:
                return
            skip += len(reply["transfers"])

    async def iterate_tree(
        self,
        tree: str,
        *,
        filter: Optional[Document] = None,
        sort: Optional[Document] = None,
        version: Optional[int] = None,
        tag: Optional[str] = None,
        token: Optional[str] = None,
        time_ms: Optional[Time] = None,
        page: int = 100,
    ) -> AsyncIterator[Reply]:
        """Returns all items that match, of one version: by itemId if there is no `sort`."""
        reply = await self.tree_read(
            tree,
            filter=filter,
            sort=sort,
            version=version,
            tag=tag,
            token=token,
            time_ms=time_ms,
            limit=page,
        )
        skip = 0
        while True:
            items = reply["items"]
            for item in items:
                yield item
            if not reply["more"]:
                return
            skip += len(items)
            reply = await self.tree_read(
                tree,
                filter=filter,
                sort=sort,
                token=reply["token"],
                limit=page,
                skip=skip if sort else None,
                after=None if sort else items[-1]["itemId"],
            )

    async def iterate_tree_log(self, tree: str, *, page: int = 100) -> AsyncIterator[Reply]:
        """Returns the versions of a tree, the newest first."""
        before = None
        while before != 1:
            reply = await self.tree_log(tree, before=before, limit=page)
            for version in reply["versions"]:
                yield version
            if not reply["more"]:
                return
            before = reply["versions"][-1]["version"]

    async def iterate_tree_diff(
        self, tree: str, *, from_: int, to: int, contents: Optional[bool] = None, page: int = 100
    ) -> AsyncIterator[Reply]:
        """Returns all changes from one version of a tree to another, by itemId."""
        after = None
        while True:
            reply = await self.tree_diff(
                tree, from_=from_, to=to, contents=contents, after=after, limit=page
            )
            for change in reply["changes"]:
                yield change
            if not reply["more"]:
                return
            after = reply["changes"][-1]["itemId"]

    # ---- trees ----

    def edit(
        self,
        tree: str,
        *,
        message: Optional[str] = None,
        author: Optional[str] = None,
        collection: Optional[str] = None,
        parent: Optional[str] = None,
        merge: Optional[bool] = None,
        prefer: Optional[str] = None,
        rules: Optional[Document] = None,
    ) -> AsyncEdit:
        """Returns an edit of a tree for `with`; the options are those of `tree_publish`."""
        options = {
            "message": message,
            "author": author,
            "collection": collection,
            "parent": parent,
            "merge": merge,
            "prefer": prefer,
            "rules": rules,
        }
        return AsyncEdit(self, tree, options)


class AsyncCommit(CommitList):
    """
    Changes of several documents, all or none, at the end of `with`; if the block raises, none.

    Each method adds a change and returns its number. These attributes are set at the end:

    earlier: whether the commit took effect before, under the same key
    result: what that commit left
    inserted: the _ids that were made
    results: the replies of operations, by the numbers of their changes
    """

    def __init__(self, database: AsyncDatabase, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.earlier = False
        self.result: Optional[Reply] = None
        self.inserted: List[Any] = []
        self.results: Dict[int, Reply] = {}
        self._database = database
        self._options = options

    async def __aenter__(self) -> AsyncCommit:
        self._used = True
        return self

    async def __aexit__(self, kind: Optional[type], *_: object) -> None:
        if self._end(kind) and self.changes:
            await self.run()

    async def run(self) -> None:
        """Applies the changes now."""
        self._send()
        command = {"truceCommit": self.changes, **without_none(self._options)}
        again = self._options["key"] is not None
        reply = await self._database._run(command, again)
        self.earlier = reply["earlier"]
        self.result = reply.get("result")
        self.inserted = reply.get("inserted", [])
        self.results = {one.pop("change"): one for one in reply.get("results", [])}


@public
class AsyncEdit:
    """
    Changes of a tree, published together at the end of `with`. After the end, `version` and
    `outcome` say what was published. If another edit was published in the meantime, Conflict is
    raised, unless the edit merges.
    """

    def __init__(self, database: AsyncDatabase, tree: str, options: Mapping[str, Any]) -> None:
        self.changes: List[Document] = []
        self.version: Optional[int] = None
        self.outcome: Optional[str] = None
        self._database = database
        self._tree = tree
        self._options = options
        self._base = "new"
        self._ended = False

    async def __aenter__(self) -> AsyncEdit:
        current = await self._database.tree_read(self._tree, limit=1)
        self._base = current.get("token", "new")
        return self

    def put(self, item: Document) -> None:
        """Adds or replaces an item: a whole one, with its itemId."""
        self._add({"put": item})

    def remove(self, id: Any) -> None:
        self._add({"remove": id})

    def _add(self, change: Document) -> None:
        if self._ended:
            raise late("edit")
        self.changes.append(change)

    async def __aexit__(self, kind: Optional[type], *_: object) -> None:
        self._ended = True
        if kind is not None:
            return
        command = {
            "truceTreePublish": self._tree,
            "changes": self.changes,
            "base": self._base,
            "id": ObjectId(),
            **without_none(self._options),
        }
        reply = await self._database.command(command, again=True)
        self.version = reply["version"]
        self.outcome = reply["outcome"]
