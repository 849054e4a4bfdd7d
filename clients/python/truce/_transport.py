"""
The two ways of a command: to libtruce in this process, or to a server through pymongo. Each has a
blocking and an asynchronous form with the same methods. The client core uses nothing else.
"""
from __future__ import annotations

import asyncio
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Dict,
    Mapping,
    Optional,
    Protocol,
    Set,
    TypeVar,
    Union,
    cast,
)
from urllib.parse import unquote

import bson
import pymongo
from bson import Binary, Int64
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import ConfigurationError, DocumentTooLarge, PyMongoError

from . import errors
from ._native import NativeStore
from ._values import Document, Reply, find_one_command, first_found

T = TypeVar("T")

# The maximum time that a call in process waits for jobs, in milliseconds.
_WAIT_MS = 500
_LONGEST_WAIT_MS = 600_000  # A longer wait is refused.

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    AsyncServerDatabase = AsyncDatabase[Dict[str, Any]]
    ServerDatabase = Database[Dict[str, Any]]


class Transport(Protocol):
    """Runs commands. A session is opaque: one of cursors, or a transaction."""

    def command(self, database: Optional[str], document: Document, session: Any = None) -> Reply: ...
    def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]: ...
    def begin(self, *, transaction: bool) -> Any: ...
    def commit(self, session: Any) -> None: ...
    def end(self, session: Any) -> None: ...
    def close(self) -> None: ...


class AsyncTransport(Protocol):
    async def command(
        self, database: Optional[str], document: Document, session: Any = None
    ) -> Reply: ...
    async def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]: ...
    async def begin(self, *, transaction: bool) -> Any: ...
    async def commit(self, session: Any) -> None: ...
    async def end(self, session: Any) -> None: ...
    async def close(self) -> None: ...


class _Claims:
    """
    Claims of coroutines. If the caller of a claim is canceled, the claim runs to its end, and its
    jobs return to the queue. Without this, they would wait for the end of their lease.
    """

    def __init__(self, command: Callable[[Optional[str], Document], Awaitable[Reply]]) -> None:
        self._command = command
        self._late: "Set[asyncio.Task[None]]" = set()

    async def run(self, database: Optional[str], document: Document) -> Reply:
        call = asyncio.ensure_future(self._command(database, document))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            late = asyncio.ensure_future(self._requeue(database, document["truceClaim"], call))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise

    async def _requeue(
        self, database: Optional[str], queue: str, call: "asyncio.Future[Reply]"
    ) -> None:
        try:
            for job in (await call).get("jobs", []):
                claim = {"id": job["_id"], "token": job["token"]}
                await self._command(database, {"truceSnooze": queue, **claim, "delayMS": 0})
        except errors.TruceError:
            pass  # The leases of the jobs expire.

    async def end(self) -> None:
        await asyncio.gather(*self._late, return_exceptions=True)


# ---- in process ----------------------------------------------------------------------------------


def _check_encodable(document: Document, session: Any, client: Any) -> None:
    """In a transaction, encodes the command before pymongo does: after an error in its encoder, pymongo
    considers the transaction begun, and the server does not know it."""
    if session is None or not session.in_transaction:
        return
    try:
        bson.encode(document, False, client.codec_options)
    except errors.ENCODER_ERRORS as error:
        raise errors.of_encoder(error, document) from error


class _Transaction:
    """A transaction in process: the fields that its commands carry."""

    def __init__(self) -> None:
        self.fields: Dict[str, Any] = {
            "lsid": {"id": Binary.from_uuid(uuid.uuid4())},
            "txnNumber": Int64(1),
            "autocommit": False,
        }
        self.open = True
        self.used = False

    def run(self, call: Callable[[Document], T]) -> T:
        """Runs a command with the fields of the transaction."""
        if not self.open:  # The command would begin another transaction.
            raise errors.Invalid("the transaction has ended: make its calls before its end")
        used, self.used = self.used, True
        try:
            return call(self.fields if used else {**self.fields, "startTransaction": True})
        except errors.InvalidValue:
            self.used = used  # it was not sent
            raise


class NativeTransport:
    def __init__(self, store: NativeStore) -> None:
        self._store = store

    def command(self, database: Optional[str], document: Document, session: Any = None) -> Reply:
        if session is not None:
            reply: Reply = session.run(lambda fields: self._store.command(database, {**document, **fields}))
            return reply
        if "waitMS" in document:
            wait = document["waitMS"]
            if isinstance(wait, int) and _WAIT_MS < wait <= _LONGEST_WAIT_MS:
                return self._wait(database, document)
        return self._store.command(database, document)

    def _wait(self, database: Optional[str], document: Document) -> Reply:
        """Waits for jobs by several calls: Python runs the handlers of signals only between calls."""
        for left in range(document["waitMS"], 0, -_WAIT_MS):
            reply = self._store.command(database, {**document, "waitMS": min(left, _WAIT_MS)})
            if reply.get("jobs"):
                break
        return reply

    def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]:
        find_one = self._store.find_one
        if session is None:
            return find_one(database, collection, filter, options)
        found: Optional[Reply] = session.run(
            lambda fields: find_one(database, collection, filter, {**options, **fields})
        )
        return found

    def begin(self, *, transaction: bool) -> Any:
        return _Transaction() if transaction else None

    def _finish(self, session: _Transaction, command: str) -> None:
        session.open = False
        if session.used:
            self._store.command("admin", {command: 1, **session.fields})

    def commit(self, session: Any) -> None:
        self._finish(session, "commitTransaction")

    def end(self, session: Any) -> None:
        if session is not None and session.open:
            try:
                self._finish(session, "abortTransaction")
            except errors.TruceError:
                pass  # The error has ended the transaction.

    def close(self) -> None:
        self._store.close()


class AsyncNativeTransport:
    """
    Runs each command in a thread of a pool. If the caller is canceled, a command that waits for a
    thread does not begin, and one that runs in a thread runs to its end.
    """

    def __init__(self, store: NativeStore, threads: int) -> None:
        self._blocking = NativeTransport(store)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="truce")
        self._claims = _Claims(partial(self._run, self._blocking.command))

    async def _run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *arguments, **named))

    async def command(
        self, database: Optional[str], document: Document, session: Any = None
    ) -> Reply:
        if session is None and "truceClaim" in document:
            return await self._claims.run(database, document)
        return await self._run(self._blocking.command, database, document, session)

    async def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]:
        find_one = self._blocking.find_one
        return await self._run(find_one, database, collection, filter, options, session)

    async def begin(self, *, transaction: bool) -> Any:
        return self._blocking.begin(transaction=transaction)

    async def commit(self, session: Any) -> None:
        await self._run(self._blocking.commit, session)

    async def end(self, session: Any) -> None:
        if session is not None:
            await self._run(self._blocking.end, session)

    async def close(self) -> None:
        await self._claims.end()
        await self._run(self._blocking.close)
        self._pool.shutdown()


# ---- a server ------------------------------------------------------------------------------------


# The time in ms for which a call waits for a server, if neither the URI nor an option sets it.
_SELECTION_MS = 10000
_FILE_OPTIONS = ("read_only", "must_exist", "relaxed", "deadline_ms", "snapshot_age_ms", "cache_mb")


def client_options(uri: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """
    Returns the options for a client of the URI.

    Refuses a URI of another kind, and the path of a file, which pymongo would take as the name of a
    host.
    """
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        text = f'invalid URI "{uri}": expected mongodb://HOST/DATABASE'
        raise errors.Invalid(f"{text}; truce.open opens a file", 2)
    of_file = next((name for name in options if name in _FILE_OPTIONS), None)
    if of_file is not None:
        raise TypeError(
            f"connect() has no option {of_file!r}: truce.open has it, for a file; the server has its own "
            "options (truce serve --help)"
        )
    given = [uri.lower(), *(name.lower() for name in options)]
    if any("serverselectiontimeoutms" in one for one in given):
        return options
    return {"serverSelectionTimeoutMS": _SELECTION_MS, **options}


_IN_URI = re.compile(r"mongodb(?:\+srv)?://[^/?]*/([^?]+)")


def name_in_uri(uri: str) -> str:
    """Returns the database that the URI names. A default would hide a forgotten name: it is an empty
    database."""
    found = _IN_URI.match(uri)
    if not found:
        raise errors.Invalid(
            "the URI names no database: expected mongodb://HOST/DATABASE (test, if truce serve has no "
            "--database)",
            73,
        )
    return unquote(found[1])


def name_in_client(
    client: Union[pymongo.MongoClient[Dict[str, Any]], pymongo.AsyncMongoClient[Dict[str, Any]]],
) -> str:
    """Returns the database that the URI of a client names."""
    try:
        return client.get_default_database().name
    except ConfigurationError:
        raise errors.Invalid(
            "the URI of the client names no database: give connect its name as `database`", 73
        ) from None


class ServerTransport:
    def __init__(self, client: "pymongo.MongoClient[Dict[str, Any]]", owned: bool) -> None:
        self.client = client
        self._owned = owned

    def command(self, database: Optional[str], document: Document, session: Any = None) -> Reply:
        _check_encodable(document, session, self.client)
        try:
            return dict(self.client[cast(str, database)].command(dict(document), session=session))
        except (PyMongoError, DocumentTooLarge) as error:
            raise errors.of_pymongo(error, next(iter(document))) from error
        except errors.ENCODER_ERRORS as error:
            raise errors.of_encoder(error, document) from error

    def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]:
        document = find_one_command(collection, filter, options)
        return first_found(self.command(database, document, session))

    def begin(self, *, transaction: bool) -> ClientSession:
        try:
            session = self.client.start_session()
            if transaction:
                session.start_transaction()
            return session
        except PyMongoError as error:
            raise errors.of_pymongo(error, "startSession") from error

    def commit(self, session: ClientSession) -> None:
        try:
            session.commit_transaction()
        except PyMongoError as error:
            raise errors.of_pymongo(error, "commitTransaction") from error

    def end(self, session: ClientSession) -> None:
        session.end_session()

    def close(self) -> None:
        if self._owned:
            self.client.close()


class AsyncServerTransport:
    def __init__(self, client: "pymongo.AsyncMongoClient[Dict[str, Any]]", owned: bool) -> None:
        self.client = client
        self._owned = owned
        self._claims = _Claims(self._send)

    async def command(
        self, database: Optional[str], document: Document, session: Any = None
    ) -> Reply:
        if session is None and "truceClaim" in document:
            return await self._claims.run(database, document)
        return await self._send(database, document, session)

    async def _send(
        self, database: Optional[str], document: Document, session: Any = None
    ) -> Reply:
        _check_encodable(document, session, self.client)
        try:
            found = self.client[cast(str, database)]
            return dict(await found.command(dict(document), session=session))
        except (PyMongoError, DocumentTooLarge) as error:
            raise errors.of_pymongo(error, next(iter(document))) from error
        except errors.ENCODER_ERRORS as error:
            raise errors.of_encoder(error, document) from error

    async def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Document,
        options: Document,
        session: Any,
    ) -> Optional[Reply]:
        document = find_one_command(collection, filter, options)
        return first_found(await self.command(database, document, session))

    async def begin(self, *, transaction: bool) -> AsyncClientSession:
        try:
            session = self.client.start_session()
            if transaction:
                await session.start_transaction()
            return session
        except PyMongoError as error:
            raise errors.of_pymongo(error, "startSession") from error

    async def commit(self, session: AsyncClientSession) -> None:
        try:
            await session.commit_transaction()
        except PyMongoError as error:
            raise errors.of_pymongo(error, "commitTransaction") from error

    async def end(self, session: AsyncClientSession) -> None:
        await session.end_session()

    async def close(self) -> None:
        await self._claims.end()
        if self._owned:
            await self.client.close()
