"""Types and values that all modules share."""
from __future__ import annotations

import datetime
import difflib
import functools
import inspect
import re
from typing import Any, Callable, Dict, Mapping, Optional, TypeVar, Union, cast

Document = Mapping[str, Any]
Reply = Dict[str, Any]
C = TypeVar("C", bound=Callable[..., Any])
# The options of one of several jobs or transactions, with Python's names or those of commands.
Options = Mapping[str, Any]
Duration = Union[int, datetime.timedelta]
Time = Union[int, datetime.datetime]

# The fields of a find that returns one document.
FIND_ONE = {"limit": 1, "singleBatch": True}


class NotFoundReply(Dict[str, Any]):
    """
    The reply of an operation that found nothing: `status` is "not found". Reading a field that the
    reply lacks raises NotFound instead of KeyError; `get` returns None.
    """

    def __missing__(self, name: str) -> Any:
        raise self.error()

    def error(self) -> Exception:
        from . import errors

        return errors.NotFound(self.get("reason") or "not found", 125, dict(self))


def find_one_command(collection: str, filter: Document, options: Document) -> Reply:
    return {"find": collection, "filter": filter, **FIND_ONE, **options}


def first_found(reply: Reply) -> Optional[Reply]:
    """Returns the document of the reply of a find, or None."""
    batch = reply["cursor"]["firstBatch"]
    return batch[0] if batch else None


def duration_milliseconds(name: str, value: Optional[Duration]) -> Optional[int]:
    """Converts the duration of an option to the milliseconds that commands take."""
    if isinstance(value, datetime.datetime):
        raise TypeError(f"{name} must be a duration: a timedelta or milliseconds, not {value!r}")
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    _check_whole(name, value, "a timedelta")
    return value


def _check_whole(name: str, value: Any, other: str) -> None:
    if isinstance(value, str):
        raise TypeError(f"{name} must be {other} or a number of milliseconds, not {value!r}")
    if isinstance(value, float) and not value.is_integer():
        raise TypeError(f"{name} must be {other} or a whole number of milliseconds, not {value!r}")


def check_amounts(name: str, transactions: Any) -> None:
    """Refuses floats as amounts of a ledger, which are integers: 12.0 probably means 12.00 euros."""
    for transaction in transactions or ():
        entries = transaction.get("entries") if isinstance(transaction, Mapping) else None
        for entry in entries if isinstance(entries, (list, tuple)) else ():
            value = entry.get("value") if isinstance(entry, Mapping) else None
            if isinstance(value, float):
                raise TypeError(
                    f"the value of an entry of {name}() must be an int of the currency's smallest "
                    f"unit, such as 1250 for 12.50, not {value!r}"
                )


def time_milliseconds(name: str, value: Optional[Time]) -> Optional[int]:
    """Converts the time of an option, with a time zone, to the number that commands take."""
    if isinstance(value, datetime.timedelta):
        raise TypeError(
            f"{name} must be a point in time, not {value!r}: use datetime.now(timezone.utc) + timedelta"
        )
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            # Python interprets such a time as local time, and pymongo as UTC.
            raise TypeError(
                f"{name}: the time {value} has no time zone: use datetime.now(timezone.utc), or, for "
                "a time of a document, value.replace(tzinfo=timezone.utc)"
            )
        value = round(value.timestamp() * 1000)
    _check_whole(name, value, "a datetime")
    return value


def checked_document(value: Any, what: str) -> Document:
    if not isinstance(value, Mapping):
        raise TypeError(f"the {what} must be a mapping, such as a dict, not {value!r}")
    return value


def checked_update(update: Any) -> Any:
    """Returns operators or a pipeline. A replacement would delete the other fields."""
    stages = update if isinstance(update, (list, tuple)) else [checked_document(update, "update")]
    if not stages or not all(str(next(iter(stage), "")).startswith("$") for stage in stages):
        raise ValueError(
            f'the update must have operators, such as {{"$set": {{"n": 1}}}}, and is {update!r}; '
            "replace_one replaces a document"
        )
    return update


def checked_replacement(replacement: Any) -> Document:
    document = checked_document(replacement, "replacement")
    name = next(iter(document), "")
    if str(name).startswith("$"):
        raise ValueError(f"the replacement must not have operators such as {name}: use update_one")
    return document


def result_document(result: Any) -> Optional[Document]:
    """Returns the result that is stored of a handler's result: a document, or {"value": result}."""
    return result if result is None or isinstance(result, Mapping) else {"value": result}


_ERROR_MAX = 65536  # the store keeps less


def error_text(error: object) -> str:
    """
    Returns the text that is stored of an error: as in the last line of a traceback. It has no
    null characters and no surrogates, which BSON cannot contain.
    """
    try:
        text = str(error)[:_ERROR_MAX]
    except Exception as why:
        text = f"an error without a text: {type(why).__name__}"
    if isinstance(error, BaseException):
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def snake_case(wire: str) -> str:
    """leaseMS becomes lease_ms."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", wire).lower()


def _named(function: Any, shown: str) -> Any:
    function.__qualname__ = shown  # Python's errors show it, and the class is an internal one.
    parameters = inspect.signature(function).parameters.values()
    known = [one.name for one in parameters if one.name != "self"]
    is_open = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    by_place = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    by_name = [one for one in parameters if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        try:
            return function(*values, **options)
        except TypeError:
            unknown = next((name for name in options if name not in known), None)
            if unknown is None and len(values) > len(by_place) and not is_open:
                needed = [f"{one.name}=..." for one in by_name if one.default is one.empty]
                names = needed or [f"{one.name}=..." for one in by_name[:3]]
                names[:0] = [name for name in by_place if name != "self"]
                text = f"{shown}() takes its options by name: {shown}({', '.join(names)})"
                raise TypeError(text) from None
            if unknown is None:
                raise
        plain = {snake_case(name): name for name in known if name not in options}
        word = snake_case(unknown)
        close = difflib.get_close_matches(word, plain, 1)
        close = close or [one for one in plain if one.startswith(word)]
        hint = f"did you mean {plain[close[0]]!r}?" if close else f"it has {', '.join(known)}"
        raise TypeError(f"{shown}() has no option {unknown!r}: {hint}")

    return call


def _has_options(function: Any) -> bool:
    kinds = {one.kind for one in inspect.signature(function).parameters.values()}
    return inspect.Parameter.KEYWORD_ONLY in kinds


def named_options(target: C) -> C:
    """
    Lets a function, or the methods of a class, name the closest option if they get an unknown one.
    """
    if not inspect.isclass(target):
        return cast(C, _named(target, target.__name__))
    for name, method in list(vars(target).items()):
        is_public = not name.startswith("_") or name == "__init__"
        if inspect.isfunction(method) and is_public and _has_options(method):
            setattr(target, name, _named(method, target.__name__ if name == "__init__" else name))
    return target


def without_none(document: Document) -> Dict[str, Any]:
    """Copies the document without its None fields, which commands treat as absent."""
    return {name: value for name, value in document.items() if value is not None}
