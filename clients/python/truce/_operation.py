"""Makes the methods of operations: a method's arguments become the fields of a command."""
from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Callable, Dict, Generic, Mapping, Optional, Set, TypeVar, Union, cast

from ._values import check_amounts, duration_milliseconds, named_options, time_milliseconds

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R")


class Runs(Generic[R]):
    """Runs the commands of the methods: R is a reply, a coroutine of one, or a part of a commit."""

    def _run(self, document: Dict[str, Any], again: bool) -> R:
        raise NotImplementedError


def _wire_name(name: str) -> str:
    """lease_ms becomes leaseMS, from_ becomes from."""
    name = re.sub("_ms$", "MS", name).rstrip("_")
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


# The fields of commands that are points in time; other fields in milliseconds are durations.
_times: Set[str] = set()


def _wire_options(name: str, options: Any) -> Any:
    """Converts the options of one job or transaction, as those of a call: {"delay_ms": timedelta(...)}
    becomes {"delayMS": ...}, and None is an absent field. The values of other fields, such as a
    payload, are not changed."""
    if not isinstance(options, Mapping):
        return options
    document: Dict[Any, Any] = {}
    for key, value in options.items():
        wire = _wire_name(key) if isinstance(key, str) else key
        if wire in document:
            raise TypeError(f"{name} has both {wire!r} and {key!r}")
        if value is None:
            continue
        if wire in _times:
            value = time_milliseconds(f"{key} of {name}", value)
        elif isinstance(wire, str) and wire.endswith("MS"):
            value = duration_milliseconds(f"{key} of {name}", value)
        document[wire] = value
    return document


def _wire_lists(name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    return [_wire_options(f"{name}[{index}]", one) for index, one in enumerate(value)]


def _converter(annotation: str) -> Optional[Callable[[str, Any], Any]]:
    if "Duration" in annotation:
        return duration_milliseconds
    if "Options" in annotation:
        return _wire_lists
    return time_milliseconds if "Time" in annotation else None


def operation(command: str, *, again: Union[bool, str]) -> Callable[[C], C]:
    """
    Gives a method its body, which runs a command. The value of the command is the argument before
    the options; 1: it has none. None is sent as an absent field.

    again: whether the command may be repeated, or the argument with which it may
    """

    def decorate(method: C) -> C:
        parameters = list(inspect.signature(method).parameters.values())[1:]
        positional = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
        target = next(iter(positional), None)
        is_optional = target is None or parameters[0].default is None
        fields = [
            (one.name, _wire_name(one.name), _converter(one.annotation))
            for one in parameters
            if one.name != target
        ]
        _times.update(wire for _, wire, convert in fields if convert is time_milliseconds)
        check_arguments = named_options(method)

        @functools.wraps(method)
        def run(self: Runs[R], *values: Any, **options: Any) -> R:
            check_arguments(self, *values, **options)
            options.update(zip(positional, values))
            value = options.get(target) if target else 1
            if value is None and not is_optional:
                raise TypeError(f"{method.__name__}() needs its {target}, and it is None")
            document = {command: 1 if value is None else value}
            for name, wire, convert in fields:
                value = options.get(name)
                if value is not None:
                    document[wire] = convert(name, value) if convert else value
            if command == "truceLedgerPost":
                check_amounts(method.__name__, [document])
            elif command == "truceLedgerPostMany":
                check_amounts(method.__name__, document.get("transactions"))
            repeats = again if isinstance(again, bool) else options.get(again) is not None
            return self._run(document, repeats)

        return cast(C, run)

    return decorate
