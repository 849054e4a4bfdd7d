"""Methods of a database that are bound to a name, for handles such as `db.queue("mail")`."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

D = TypeVar("D")

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    T = TypeVar("T")

    class Bound(Generic[P, T]):
        def __get__(self, handle: Handle[Any], owner: type) -> Callable[P, T]: ...

    def bound(method: Callable[Concatenate[Any, str, P], T]) -> Bound[P, T]:
        """Makes a method of a handle from a method of the database: without the name."""

else:

    class bound:
        def __init__(self, method):
            self.method = method

        def __get__(self, handle, owner):
            if handle is None:
                return self.method
            call = functools.partial(self.method, handle._database, handle.name)
            call.__doc__ = self.method.__doc__
            return call


class Handle(Generic[D]):
    """A named object of a database. It holds no state but the name: make it as often as you like."""

    def __init__(self, database: D, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name must be a string, not {name!r}")
        self.name = name
        self._database = database
