"""
Revisions from the JSON that a browser sent back.

JSON has no ObjectId, date, Decimal128, or bytes: an application sends them as strings, or in
MongoDB's Extended JSON ({"$date": ...}). A value that comes back in such a form gets the type that
the stored document has in the same place. All other values are taken as they are.
"""
from __future__ import annotations

import base64
import binascii
import datetime
import uuid
from typing import Any, Dict, Mapping, Optional

from bson import Binary, Decimal128, Int64, ObjectId, json_util
from bson.binary import UUID_SUBTYPE

from ._values import Document

_MISSING = object()


def _time(sent: str) -> datetime.datetime:
    # Before Python 3.11, fromisoformat refuses the suffix Z.
    found = datetime.datetime.fromisoformat(sent[:-1] + "+00:00" if sent.endswith("Z") else sent)
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


def _of_text(sent: str, stored: Any) -> Any:
    """Returns the value of the stored type that a string means. Raises ValueError without one."""
    if isinstance(stored, ObjectId) and len(sent) == 24:
        return ObjectId(binascii.unhexlify(sent))
    if isinstance(stored, datetime.datetime):
        return _time(sent)
    if isinstance(stored, Decimal128):
        return Decimal128(sent)
    if isinstance(stored, Binary) and stored.subtype == UUID_SUBTYPE:
        return Binary(uuid.UUID(sent).bytes, UUID_SUBTYPE)
    if isinstance(stored, uuid.UUID):
        return uuid.UUID(sent)
    if isinstance(stored, bytes):
        data = base64.b64decode(sent, validate=True)
        return Binary(data, stored.subtype) if isinstance(stored, Binary) else data
    raise ValueError


def _of_extended(sent: Mapping[str, Any], stored: Any) -> Any:
    if len(sent) > 2 or not str(next(iter(sent), "")).startswith("$"):
        return sent
    value = json_util.object_hook(dict(sent))
    return value if isinstance(value, type(stored)) else sent


def _revived(sent: Any, stored: Any) -> Any:
    """Returns the sent value in the type of the stored one, if it has a form of it."""
    if isinstance(sent, str):
        try:
            return _of_text(sent, stored)
        except (ValueError, ArithmeticError):
            return sent
    if isinstance(sent, int) and not isinstance(sent, (bool, Int64)):
        if isinstance(stored, float):  # JavaScript writes 2.0 as 2.
            return float(sent)
        return Int64(sent) if isinstance(stored, Int64) else sent
    return sent


def typed(sent: Any, stored: Any) -> Any:
    """Returns the sent value with the types of the stored one."""
    if isinstance(sent, (list, tuple)):
        known = stored if isinstance(stored, (list, tuple)) and stored else [_MISSING]
        # Without a stored element at its index, an element gets the types of the first one.
        return [typed(one, known[i] if i < len(known) else known[0]) for i, one in enumerate(sent)]
    if not isinstance(sent, Mapping):
        return _revived(sent, stored)
    if not isinstance(stored, Mapping):
        return _of_extended(sent, stored)
    return {name: typed(one, stored.get(name, _MISSING)) for name, one in sent.items()}


def id_forms(id: Any) -> "list[Any]":
    """Returns what the _id of a form can be: as it is, or an ObjectId as a string."""
    other: Optional[ObjectId] = None
    text = id.get("$oid") if isinstance(id, Mapping) else id
    if isinstance(text, str) and ObjectId.is_valid(text):
        other = ObjectId(text)
    return [id] if other is None else [id, other]


def check(document: Document) -> Dict[str, Any]:
    if "_id" not in document:
        raise TypeError(
            "the document of merge has no _id: expected the whole document with its _id"
        )
    return dict(document)
