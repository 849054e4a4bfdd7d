"""Types and values that all modules share."""
from __future__ import annotations

import datetime
from typing import Any, Dict, Mapping, Optional, Union

Document = Mapping[str, Any]
Reply = Dict[str, Any]
Milliseconds = Union[int, datetime.timedelta, datetime.datetime]


def milliseconds(value: Optional[Milliseconds]) -> Optional[int]:
    """Converts a duration, or a time (a naive one is local), to the number that commands take."""
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


def without_none(document: Document) -> Dict[str, Any]:
    """Copies the document without its None fields, which commands treat as absent."""
    return {name: value for name, value in document.items() if value is not None}
