"""
truce: documents that stay consistent, in process or through a server.

    import truce

    with truce.open("school.truce") as db:                 # a file, in this process
        with db.commit() as c:                             # all changes, or none
            c.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})
            c.update("accounts", "b", {"$inc": {"n": 5}})
            c.enqueue("mail", payload={"to": "ada@example.org"})

    db = truce.connect("mongodb://127.0.0.1:27017/school")  # the same methods, through truce serve

The module `truce.aio` has the same classes for asyncio.
"""
from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

import pymongo
from bson.codec_options import CodecOptions

from ._collection import ChangeStream, Collection, Cursor, FindCursor
from ._database import Commit, Database, Edit
from ._handles import Ledger, Queue, Revision, Revisions
from ._job import Job, JobCommit, JobStep
from ._native import NativeStore
from ._native import version as library_version
from ._transport import NativeTransport, ServerTransport, client_options, name_in_client, name_in_uri
from ._values import Duration, duration_milliseconds, named_options
from ._worker import Worker
from .errors import (
    Conflict,
    Corrupt,
    Duplicate,
    Expired,
    Invalid,
    InvalidValue,
    LibraryError,
    Limit,
    Locked,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreFailed,
    Suspended,
    Timeout,
    TruceError,
    Unauthorized,
    Unreachable,
    WrongServer,
)

__version__ = "0.1.0"
__all__ = [
    "ChangeStream",
    "Collection",
    "Commit",
    "Conflict",
    "Corrupt",
    "Cursor",
    "Database",
    "Duplicate",
    "Edit",
    "Expired",
    "FindCursor",
    "Invalid",
    "InvalidValue",
    "Job",
    "JobCommit",
    "JobStep",
    "Ledger",
    "LibraryError",
    "Limit",
    "Locked",
    "NotFound",
    "OutcomeUnknown",
    "Queue",
    "Refused",
    "Revision",
    "Revisions",
    "StoreFailed",
    "Suspended",
    "Timeout",
    "TruceError",
    "Unauthorized",
    "Unreachable",
    "Worker",
    "WrongServer",
    "connect",
    "library_version",
    "open",
]


@named_options
def open(
    path: Union[str, "os.PathLike[str]"],
    database: Optional[str] = None,
    *,
    read_only: bool = False,
    must_exist: bool = False,
    relaxed: bool = False,
    deadline_ms: Duration = 0,
    snapshot_age_ms: Duration = 0,
    cache_mb: int = 0,
    codec_options: Optional[CodecOptions[Dict[str, Any]]] = None,
) -> Database:
    """
    Opens a store in this process, and creates it if it does not exist.

    path: a file, or "memory:"
    database: the database of the store; None: the store's own
    read_only: every write fails; the file must exist
    must_exist: do not create the file
    relaxed: writes do not wait for the disk
    deadline_ms: the maximum time that a call waits for locks; 0: 30 seconds
    snapshot_age_ms: the maximum age of an open cursor while others write; 0: 10 minutes
    cache_mb: megabytes for documents and pages; 0: a part of the machine's memory
    codec_options: how BSON becomes Python, as in pymongo

    Several processes may open a file at the same time. A child of a fork cannot open a file that its
    parent had open: open it after the fork, or start processes by "spawn" or "forkserver".
    """
    options = {
        "read_only": read_only,
        "must_exist": must_exist,
        "relaxed": relaxed,
        "deadline_ms": duration_milliseconds("deadline_ms", deadline_ms),
        "snapshot_age_ms": duration_milliseconds("snapshot_age_ms", snapshot_age_ms),
        "cache_mb": cache_mb,
    }
    store = NativeStore(path, codec_options, options)
    return Database(NativeTransport(store), database)


def connect(
    uri: "Union[str, pymongo.MongoClient[Dict[str, Any]]]",
    database: Optional[str] = None,
    **options: Any,
) -> Database:
    """
    Returns a database of `truce serve`.

    uri: mongodb://HOST/DATABASE, or a MongoClient, which stays open when the database is closed
    database: the database; None: the one that the URI names
    options: those of pymongo.MongoClient. Without `serverSelectionTimeoutMS`, a call waits for a
    server to connect to for 10 seconds
    """
    if isinstance(uri, str):
        options = client_options(uri, options)
        client: pymongo.MongoClient[Dict[str, Any]] = pymongo.MongoClient(uri, **options)
        return Database(ServerTransport(client, True), database or name_in_uri(uri))
    if options:
        raise TypeError(f"options are for a URI, not for a client: {', '.join(options)}")
    return Database(ServerTransport(uri, False), database or name_in_client(uri))
