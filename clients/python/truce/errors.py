"""
The statuses of truce as exceptions: one class for each cause, whichever command failed. Each class
is pymongo's OperationFailure, too, with `code`, `details`, and labels.
"""
from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Type

from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from ._values import snake_case


class LibraryError(ImportError):
    """libtruce is missing, too old, or cannot be loaded."""


class Suspended(Exception):
    """A job sleeps or waits for an event; a worker claims it again later.

    Let this exception leave the function of the worker.
    """


class TruceError(OperationFailure):
    """A command failed. `status` is truce's name of the cause: "conflict", "locked", ..."""

    status: Optional[str] = None

    def __init__(
        self,
        error: str,
        code: Optional[int] = None,
        details: Optional[Mapping[str, Any]] = None,
        max_wire_version: Optional[int] = None,
    ) -> None:
        super().__init__(error, code, details, max_wire_version)
        self.args = (error,)  # without pymongo's copy of the details

    def __str__(self) -> str:
        return str(self.args[0])


class Conflict(TruceError):
    """Another write changed a document that the call depends on.

    If a merge failed, `conflicts` lists what both sides changed.
    """

    status = "conflict"

    @property
    def conflicts(self) -> List[Dict[str, Any]]:
        reply: Mapping[str, Any] = self.details or {}
        found = reply.get("conflicts") or (reply.get("conflict") or {}).get("conflicts")
        return list(found or [])


class Locked(TruceError):
    """Another process, thread, or commit holds the resource. Try later."""

    status = "locked"


class OutcomeUnknown(TruceError):
    """The call may have taken effect or not. Query the result before you send it again."""

    status = "outcome unknown"


class Duplicate(TruceError, DuplicateKeyError):
    """A unique key exists, or a key or an id was used before with different content."""

    status = "duplicate"


class Expired(TruceError):
    """A key, cursor, or version is too old, or the worker no longer holds the job."""

    status = "expired"


class NotFound(TruceError):
    """A document, a job, or an account does not exist."""

    status = "not found"


class Refused(TruceError):
    """A condition does not hold.

    A document does not match the condition of a commit, a transfer was canceled or decided, or an
    edit of a tree cannot be published.
    """

    status = "refused"


class Invalid(TruceError):
    """The call or its input is wrong. Sending it again fails again."""

    status = "invalid"


class Limit(TruceError):
    """A maximum was reached, or an account has too little available."""

    status = "limit reached"


class Timeout(TruceError):
    """The deadline of the call passed. Nothing was changed."""

    status = "timed out"


class StoreFailed(TruceError):
    """The disk or the network of the store failed."""

    status = "input or output failed"


class Corrupt(TruceError):
    """The file is damaged, is not a truce store, or is newer than this library."""

    status = "corrupt"


class Unauthorized(TruceError):
    """The user is not logged in, or lacks the role for this command."""

    status = "not authorized"


class WrongServer(TruceError):
    """The server (or libtruce) does not know the operation: it is not truce, or an older version."""

    status = "wrong server"


class Unreachable(TruceError, ConnectionFailure):
    """No server answered, or the connection was lost. The command may have taken effect or not."""

    status = "unreachable"


def is_temporary(error: TruceError) -> bool:
    """Returns whether a worker claims again after an error."""
    return isinstance(error, (Unreachable, Locked, Timeout)) or error.has_error_label(
        "RetryableWriteError"
    )


_CLASSES: Dict[Optional[str], Type[TruceError]] = {
    one.status: one for one in TruceError.__subclasses__()
}
# The classes of codes, for replies without a status. docs/errors.md has this table.
_BY_CODE: Dict[Optional[int], Type[TruceError]] = {
    None: TruceError,
    1: TruceError,
    8: OutcomeUnknown,
    11: NotFound,
    13: Unauthorized,
    15: Limit,
    18: Unauthorized,
    24: Locked,
    26: NotFound,
    27: NotFound,
    43: NotFound,
    48: Duplicate,
    50: Timeout,
    112: Conflict,
    125: TruceError,
    146: Limit,
    262: Timeout,
    292: Limit,
    10334: Limit,
    11000: Duplicate,
    11601: Timeout,
    14031: StoreFailed,
    51003: Duplicate,
}


# A field in quotes, or an operation.
_FIELD = re.compile(r"(?<=')[a-z]+(?:[A-Z]+[a-z]*)+(?=')")
_OPERATION = re.compile(r"\btruce(?=[A-Z])\w+")


def _method(found: "re.Match[str]") -> str:
    name = snake_case(found[0][len("truce") :])
    return {"commit": "commit_changes", "queue": "queue_action"}.get(name, name)


def use_python_names(error: Invalid) -> None:
    """Replaces names of operations, fields, and C's functions in an error by those of Python."""
    text = _OPERATION.sub(_method, str(error).replace("truce_commit_", ""))
    error.args = (_FIELD.sub(lambda found: snake_case(found[0]), text),)


def of_reply(reply: Mapping[str, Any], command: str, *, status: Optional[str] = None) -> TruceError:
    """Returns the exception for a reply with an error (`errmsg`, `code`)."""
    code: Optional[int] = reply.get("code")
    message = reply.get("errmsg", "the command failed")
    status = reply.get("status", status)
    kind = _BY_CODE.get(code) if code in (13, 18) else _CLASSES.get(status)
    if code == 59 and command.startswith("truce") and status is None:
        kind = WrongServer
        message += f": this is not truce, or a version without {command}"
    kind = kind or _BY_CODE.get(code, Invalid)
    error = kind(message, code, dict(reply))
    if kind is TruceError:
        error.status = status
    for label in reply.get("errorLabels", ()):
        error._add_error_label(label)
    return error


def of_pymongo(error: Exception, command: str) -> Exception:
    """Returns the exception for an error of pymongo. Other errors than those of commands and
    connections are returned as they are."""
    if isinstance(error, TruceError):
        return error
    if isinstance(error, DocumentTooLarge):
        return Limit(str(error), 10334)
    if not isinstance(error, PyMongoError):
        return error
    if isinstance(error, OperationFailure):
        details = {"errmsg": str(error), "code": error.code, **(error.details or {})}
        made: TruceError = of_reply(details, command)
    elif isinstance(error, ServerSelectionTimeoutError):
        cause = str(error).partition(", Timeout: ")[0]  # without the topology
        made = Unreachable(f"no server is available ({cause}): is truce serve running there?")
    elif isinstance(error, ConnectionFailure):
        made = Unreachable(str(error))
    elif isinstance(error, ConfigurationError) and "wire version" in str(error):
        made = WrongServer(f"the server is not truce: {error}")
    else:
        return error
    for label in error._error_labels:
        made._add_error_label(label)
    return made
