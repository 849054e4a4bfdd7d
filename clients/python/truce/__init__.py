"""
truce's patterns, through `truce serve`, on top of pymongo.

    import truce

    school = truce.connect("mongodb://127.0.0.1:27217", "school")
    with school.commit() as change:
        change.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})
        change.update("accounts", "b", {"$inc": {"n": 5}})

Each call is one command of the server's table (docs/commands.md), whose fields are given by their names in Python's
spelling: `leaseMS` is `lease_ms`. What the table says of a field is not said here again: the server checks it, and
`help("truceClaim")` tells it.
"""
from .core import Commit, Truce, connect
from .errors import (
    Conflict,
    Corrupt,
    Duplicate,
    Expired,
    Invalid,
    Limit,
    Locked,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreFailed,
    Timeout,
    TruceError,
    Unauthorized,
    Unreachable,
)
from .queue import Job, Queue
from .tree import Edit, Snapshot, Tree

__version__ = "0.1.0"
__all__ = [
    "Commit",
    "Conflict",
    "Corrupt",
    "Duplicate",
    "Edit",
    "Expired",
    "Invalid",
    "Job",
    "Limit",
    "Locked",
    "NotFound",
    "OutcomeUnknown",
    "Queue",
    "Refused",
    "Snapshot",
    "StoreFailed",
    "Timeout",
    "Tree",
    "Truce",
    "TruceError",
    "Unauthorized",
    "Unreachable",
    "connect",
]
