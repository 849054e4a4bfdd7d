"""Names of public classes in messages, and hints for misspelled names."""
from __future__ import annotations

import difflib
from typing import Any, TypeVar

from ._values import named_options, snake_case

T = TypeVar("T", bound=type)


def _public_name(kind: type) -> str:
    """AsyncDatabase becomes aio.Database."""
    name = kind.__name__
    if name.startswith("Async"):
        return f"aio.{name[len('Async'):]}"
    return f"aio.{name}" if kind.__module__ == "truce.aio" else name


def _missing(owner: Any, name: str) -> Any:
    """Raises AttributeError with the closest attribute."""
    kind = type(owner)
    if hasattr(kind, name):  # A property has raised AttributeError.
        return object.__getattribute__(owner, name)
    text = f"{_public_name(kind)!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        known = [one for one in dir(owner) if not one.startswith("_")]
        close = difflib.get_close_matches(snake_case(name), known, 1, 0.7)
        hint = getattr(kind, "_attribute_hint", "").format(name)
        if close:
            text += f": did you mean {close[0]!r}?" + (f" ({hint})" if hint else "")
        elif hint:
            text += f": {hint}"
    error: Any = AttributeError(text)
    error.name, error.obj = name, None  # Python does not add its own suggestion.
    raise error


def _show(owner: Any) -> str:
    """Returns the name of the class and what the object is about, or its address."""
    about = {one: vars(owner).get(one) for one in ("id", "name", "queue")}
    shown = [f"{one}={value!r}" for one, value in about.items() if value is not None]
    return f"<truce.{_public_name(type(owner))} {' '.join(shown) or f'at {id(owner):#x}'}>"


def public(target: T) -> T:
    """
    Makes a class public: errors and reprs show no internal names, and an unknown option or attribute
    gets the closest one.
    """
    named_options(target)
    setattr(target, "__getattr__", _missing)
    if getattr(target, "__repr__") is object.__repr__:
        setattr(target, "__repr__", _show)
    return target
