"""
The statuses of truce as exceptions: one class for each cause, whichever command failed. Each class
is pymongo's OperationFailure, too, with `code`, `details`, and labels.
"""
from __future__ import annotations

import datetime
import decimal
import enum
import re
import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Type

import bson
from bson.errors import InvalidDocument
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    InvalidOperation,
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
        self.args = (error,)  # Omits pymongo's copy of the details.

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
    6: OutcomeUnknown,
    7: OutcomeUnknown,
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
    64: OutcomeUnknown,
    89: OutcomeUnknown,
    91: OutcomeUnknown,
    112: Conflict,
    125: TruceError,
    134: StoreFailed,
    146: Limit,
    189: OutcomeUnknown,
    237: Expired,
    239: Expired,
    246: Expired,
    251: Conflict,
    262: Timeout,
    267: Conflict,
    292: Limit,
    9001: OutcomeUnknown,
    10107: StoreFailed,
    10334: Limit,
    11000: Duplicate,
    11600: OutcomeUnknown,
    11601: Timeout,
    11602: OutcomeUnknown,
    13435: StoreFailed,
    13436: StoreFailed,
    14031: StoreFailed,
    51003: Duplicate,
}


class InvalidValue(Invalid, InvalidDocument):
    """A document has a value or a name of a field that BSON does not have, for example a set. It is
    pymongo's InvalidDocument, too."""


# The errors of pymongo's encoder.
ENCODER_ERRORS = (InvalidDocument, ValueError, OverflowError)
_REMEDIES: Tuple[Tuple[Any, str], ...] = (
    ((set, frozenset), "use a list"),
    (decimal.Decimal, "use bson.Decimal128"),
    (datetime.date, "use a datetime with a time zone"),
    (datetime.timedelta, "use a number"),
    (enum.Enum, "use its value"),
    (uuid.UUID, "use bson.Binary.from_uuid, or the option codec_options"),
)


def _encoder_error(value: Any) -> Optional[str]:
    try:
        bson.encode(value)
    except ENCODER_ERRORS as error:
        return str(error)
    return None


def _find_unencodable(value: Any, error: str, path: str) -> Optional[Tuple[str, Any, bool]]:
    """Returns the path of the value or key that causes the error of the encoder, the value or key,
    and whether it is a key."""
    children: Iterable[Tuple[Any, Any]]
    if isinstance(value, Mapping):
        children = value.items()
        for key in value:
            if _encoder_error({key: None}) == error:
                return path, key, True
    elif isinstance(value, (list, tuple)):
        children = enumerate(value)
    else:
        return (path, value, False) if _encoder_error({"": value}) == error else None
    for name, child in children:
        found = _find_unencodable(child, error, f"{path}.{name}" if path else str(name))
        if found is not None:
            return found
    return None


def of_encoder(error: Exception, document: Mapping[str, Any]) -> Exception:
    """Returns the exception for a document that pymongo cannot encode. It names the field. The error
    itself is returned if the field is not found."""
    found = _find_unencodable(document, str(error), "")
    if found is None:
        return error
    path, value, is_key = found
    if path.startswith("truceCommit"):
        path = path.replace("truceCommit", "changes", 1)
    kind = type(value).__name__
    if is_key:
        return InvalidValue(f"the field {value!r} of '{path}' must be a string without null characters", 2)
    remedy = next((text for types, text in _REMEDIES if isinstance(value, types)), None)
    if isinstance(value, int):
        text = f"the field '{path}' is an integer of more than 8 bytes: {value}"
    elif remedy is None:
        text = f"the field '{path}' is a {kind} that BSON cannot contain: {error}"
    else:
        text = f"the field '{path}' is a {kind}, which BSON does not have: {remedy}"
    return InvalidValue(text, 2)


# A field in quotes; the error of an unknown field; an operation.
_FIELD = re.compile(r"(?<=')[a-z]+(?:[A-Z]+[a-z]*)+(?=')")
_UNKNOWN = re.compile(r'unknown field "(\w+)" of "[^"]*"(?:: did you mean "(\w+)"\?)?')
_OPERATION = re.compile(r"\btruce(?=[A-Z])\w+")


def _method(found: "re.Match[str]") -> str:
    name = snake_case(found[0][len("truce") :])
    return {"commit": "commit_changes", "queue": "queue_action"}.get(name, name)


def _unknown_field(found: "re.Match[str]") -> str:
    """Returns the error with the names of options, unless the document has a field in Python's form
    where only the form of commands is valid."""
    text, names = found[0], [name for name in found.groups() if name]
    if len({snake_case(name) for name in names}) < len(names):
        return text
    for name in names:
        text = text.replace(f'"{name}"', f'"{snake_case(name)}"')
    return text


def use_python_names(error: Invalid) -> None:
    """Replaces names of operations, fields, and C's functions in an error by those of Python."""
    text = _OPERATION.sub(_method, str(error).replace("truce_commit_", ""))
    text = _FIELD.sub(lambda found: snake_case(found[0]), text)
    error.args = (_UNKNOWN.sub(_unknown_field, text),)


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


def _question(cause: str) -> str:
    """Returns the question that a user should ask after this failure to connect."""
    if "CERTIFICATE" in cause.upper():
        return "does this client know the CA of the certificate (tlsCAFile)?"
    if "SSL" in cause:
        return "does this server use TLS (truce serve --tls-certificate)?"
    if "reset by peer" in cause or "connection closed" in cause:
        return "is truce serve running there, and does it require TLS (tls=True)?"
    return "is truce serve running there?"


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
        cause = str(error).partition(", Timeout: ")[0]  # Omits the topology.
        made = Unreachable(f"no server is available ({cause}): {_question(cause)}")
    elif isinstance(error, ConnectionFailure):
        made = Unreachable(str(error))
    elif isinstance(error, ConfigurationError) and "wire version" in str(error):
        made = WrongServer(f"the server is not truce: {error}")
    elif isinstance(error, InvalidOperation) and "after close" in str(error):
        made = Invalid("the database is closed", 2)
    else:
        return error
    for label in error._error_labels:
        made._add_error_label(label)
    return made
