"""
The statuses of the library as exceptions: one class for each cause, whichever command met it. Each is pymongo's
OperationFailure, too, with `code`, `details` and labels.
"""
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError


class TruceError(OperationFailure):
    """A command was refused, or failed; `status` is the library's name of it ("conflict", "locked" ...)."""

    status = None


class Conflict(TruceError):
    """Somebody else changed what it depends on. `conflicts` and `answer` tell more, where the command does."""

    status = "conflict"
    conflicts = ()
    answer = None


class Locked(TruceError):
    """Somebody else holds it, and did not let go in time."""

    status = "locked"


class OutcomeUnknown(TruceError):
    """It may have happened or not."""

    status = "outcome unknown"


class Duplicate(TruceError):
    """A unique key is taken, or a key was used for something else."""

    status = "duplicate"


class Expired(TruceError):
    """It is too old: a key, a version; or the job is somebody else's by now."""

    status = "expired"


class NotFound(TruceError):
    """It is not there, or a guard does not match."""

    status = "not found"


class Refused(TruceError):
    """A transfer is canceled, or decided: it stays so."""

    status = "refused"


class Invalid(TruceError):
    """It is wrong; to send it again will not help."""

    status = "invalid"


class Limit(TruceError):
    """A maximum was reached, or too little is available."""

    status = "limit reached"


class Timeout(TruceError):
    """The time was over."""

    status = "timed out"


class StoreFailed(TruceError):
    """Input or output failed."""

    status = "input or output failed"


class Corrupt(TruceError):
    """The store is damaged."""

    status = "corrupt"


class Unauthorized(TruceError):
    """The user may not do this, or is not logged in."""

    status = "unauthorized"


class Unreachable(TruceError, ConnectionFailure):
    """No server answered, or the connection was lost: what was sent may have happened or not."""

    status = "unreachable"


_classes = {one.status: one for one in TruceError.__subclasses__()}
_by_code = {13: Unauthorized, 18: Unauthorized, 50: Timeout, 112: Conflict, 11000: Duplicate}


def of(error: PyMongoError) -> PyMongoError:
    """The exception for what pymongo raised; what is no failure of a command or a connection stays what it is."""
    if isinstance(error, TruceError):
        return error
    if isinstance(error, OperationFailure):
        details = dict(error.details or {})
        one = _by_code.get(error.code) if error.code in (13, 18) else _classes.get(details.get("status"))
        made = (one or _by_code.get(error.code, TruceError))(
            details.get("errmsg", str(error)), error.code, details
        )
        made.status = details.get("status") if one not in (None, Unauthorized) else made.status
    elif isinstance(error, ConnectionFailure):
        made = Unreachable(str(error))
    else:
        return error
    for label in getattr(error, "_error_labels", ()):
        made._add_error_label(label)
    return made
