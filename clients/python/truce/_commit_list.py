"""The changes of a commit."""
from __future__ import annotations

import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import errors
from ._operations import CommitOperations
from ._public import public
from ._values import Document, without_none


def late(what: str) -> errors.Invalid:
    """Returns the error of a change that comes after the changes were sent: it would be lost."""
    return errors.Invalid(f"a change was added after the end of the {what}: add it within `with`", 2)


@public
class CommitList(CommitOperations[int]):
    """
    A list of changes: of documents, by the methods here, and operations, by their own names.

    `where` is a condition (a filter) on the document. If the document does not match, the commit
    raises Refused and changes nothing. If the document does not exist, it raises NotFound. A change
    that is added after the end of `with`, or after run(), raises Invalid.
    """

    _what = "commit"

    def __init__(self) -> None:
        self.changes: List[Document] = []
        # The list was sent, or `with` began.
        self._used = False
        # Whether the list was sent, or `with` ended.
        self._ended = False

    def __del__(self) -> None:
        if self.changes and not self._used:
            text = f"the changes of a {type(self).__name__} were never applied: use `with`, or call run()"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _run(self, document: Dict[str, Any], again: bool) -> int:
        if self._ended:
            raise late(self._what)
        self.changes.append(document)
        return len(self.changes)

    def _end(self, kind: Optional[type]) -> bool:
        """Ends `with`. Returns whether the changes must be applied: the block raised nothing, and did
        not call run()."""
        applies = kind is None and not self._ended
        self._ended = True
        return applies

    def _send(self) -> None:
        self._used = self._ended = True

    def _add(self, **change: Any) -> int:
        return self._run(without_none(change), again=False)

    def insert(self, collection: str, document: Document) -> int:
        return self._add(insert=collection, **{"with": document})

    def update(
        self, collection: str, id: Any, operators: Document, *, where: Optional[Document] = None
    ) -> int:
        """Changes a document by update operators."""
        return self._add(update=collection, id=id, **{"with": operators, "if": where})

    def replace(
        self, collection: str, id: Any, document: Document, *, where: Optional[Document] = None
    ) -> int:
        return self._add(replace=collection, id=id, **{"with": document, "if": where})

    def remove(self, collection: str, id: Any, *, where: Optional[Document] = None) -> int:
        return self._add(remove=collection, id=id, **{"if": where})

    def require(self, collection: str, id: Any, *, where: Optional[Document] = None) -> int:
        """Checks that the document exists and matches."""
        return self._add(require=collection, id=id, **{"if": where})

    def hold(self, collection: str, id: Any, *, where: Optional[Document] = None) -> int:
        """Checks the document as `require` does, and that no other commit changes it."""
        return self._add(hold=collection, id=id, **{"if": where})

    def missing(self, collection: str, id: Any) -> int:
        """Checks that no document has this _id."""
        return self._add(missing=collection, id=id)

    def change(
        self, collection: str, id: Any, old_and_new: Mapping[str, Sequence[Any]]
    ) -> int:
        """Changes fields from an old value to a new one: {"n": [9, 4]}."""
        return self._add(change=collection, id=id, **{"with": old_and_new})
