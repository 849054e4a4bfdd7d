"""The statuses of the library as exceptions. Each is pymongo's OperationFailure, too, with `code`, `details` and labels."""
from pymongo.errors import OperationFailure


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


_classes = {one.status: one for one in TruceError.__subclasses__()}


def of(error):
    """The exception for what pymongo raised; an error without a status stays what it is."""
    details = getattr(error, "details", None) or {}
    status = details.get("status")
    if not isinstance(error, OperationFailure) or status is None:
        return error
    made = _classes.get(status, TruceError)(details.get("errmsg", str(error)), error.code, details)
    made.status = status
    return made
