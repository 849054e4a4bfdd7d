#!/usr/bin/env python3
"""
Writes the generated modules of the package:

    truce/_operations.py    one method for each row of the table of operations, from {truceHelp: ...}
    truce/_async_bound.py   the operations of queues and ledgers, bound to a name

    clients/python/generate.py build/dev/libtruce.so            # writes them
    clients/python/generate.py --check build/dev/libtruce.so    # fails if they are not current

The script needs only the standard library: it calls libtruce, and libbson for JSON, through ctypes.
"""
import ctypes
import difflib
import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "truce"
WIDTH = 100
TYPES = {
    "string": "str",
    "document": "Document",
    "array": "Sequence[Any]",
    "document or array": "Union[Document, Sequence[Any]]",
    "number": "int",
    "true or false": "bool",
    "any": "Any",
    "ObjectId": "ObjectId",
}
# Targets that are not strings.
TARGETS = {"changes": "Sequence[Document]", "cursor": "int", "job": "ObjectId", "commit": "ObjectId"}
# Arrays whose elements have one type. A document of options may have Python's names.
ARRAYS = {
    "truceEnqueue.after": "Sequence[ObjectId]",
    "truceQueue.ids": "Sequence[ObjectId]",
    "truceFlow.jobs": "Sequence[Options]",
    "truceLedgerPostMany.transactions": "Sequence[Options]",
}
# These operations can be repeated if the caller gives an id or a key.
REPEATABLE_WITH = {"truceCommit": "key", "truceEnqueue": "id", "truceTreePublish": "id"}
# Other names of methods, because `commit` and `queue` return a commit builder and a handle.
METHODS = {"truceCommit": "commit_changes", "truceQueue": "queue_action"}
# These fields can be positional.
POSITIONAL = {"truceEnqueue": "payload"}
# The targets whose operations have a handle.
HANDLES = ("queue", "ledger")


# ---- the table -----------------------------------------------------------------------------------


class Library:
    """Runs commands on an empty store in memory."""

    def __init__(self, path):
        self.truce = truce = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for function, result in (
            (truce.bson_new, ctypes.c_void_p),
            (truce.bson_new_from_json, ctypes.c_void_p),
            (truce.bson_as_relaxed_extended_json, ctypes.c_void_p),
        ):
            function.restype = result
        self.error = ctypes.create_string_buffer(512)
        self.store = ctypes.c_void_p()
        if truce.truce_store_open(b"memory:", None, ctypes.byref(self.store), self.error):
            sys.exit("cannot open a store in memory: " + self.message())

    def message(self):
        return self.error.raw[8:].split(b"\0")[0].decode()

    def command(self, document):
        truce = self.truce
        request = truce.bson_new_from_json(json.dumps(document).encode(), ctypes.c_ssize_t(-1), None)
        reply = truce.bson_new()
        arguments = (self.store, None, ctypes.c_void_p(request), ctypes.c_void_p(reply), self.error)
        if truce.truce_command(*arguments):
            sys.exit(f"{document} failed: {self.message()}")
        text = truce.bson_as_relaxed_extended_json(ctypes.c_void_p(reply), None)
        return json.loads(ctypes.string_at(text))


def read_table(path):
    library = Library(path)
    listed = library.command({"truceHelp": 1})["commands"]
    return [dict(library.command({"truceHelp": row["name"]}), group=row["group"]) for row in listed]


# ---- _operations.py ------------------------------------------------------------------------------


def not_keyword(name):
    return name + "_" if keyword.iskeyword(name) else name


def python_name(wire):
    """leaseMS becomes lease_ms, `from` becomes from_."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", wire).lower()
    return not_keyword(name)


def is_time(name):
    return name.endswith("MS") or name == "keyTime"


def field_type(row, field):
    array = ARRAYS.get(f"{row['name']}.{field['name']}")
    if array:
        return array
    if "words" in field:
        return "Literal[" + ", ".join(json.dumps(word) for word in field["words"]) + "]"
    if is_time(field["name"]):
        return "Time" if "since 1970" in field["help"] else "Duration"
    return TYPES[field["type"]]


def bounds(field):
    if "least" not in field or "since 1970" in field["help"]:
        return ""
    if field["most"] == 2**63 - 1:
        return f" (from {field['least']})"
    return f" ({field['least']} to {field['most']})"


def wrapped(text, indent, more="    "):
    return textwrap.fill(
        text.replace("\\", "\\\\"),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def docstring(row, target):
    summary = row["help"][0].upper() + row["help"][1:]
    lines = [wrapped(f'"""{summary}.', " " * 8, "")]
    described = [(target, row["value"])] if target and row["value"] != f"the {target}" else []
    described += [(python_name(field["name"]), field["help"] + bounds(field)) for field in row["fields"]]
    if described:
        lines += ["", *(wrapped(f"{name}: {text}", " " * 8) for name, text in described)]
    lines += ["", wrapped(f"Reply: {row['answer']}", " " * 8, ""), " " * 8 + '"""']
    return lines


def method_name(row):
    return METHODS.get(row["name"], python_name(row["name"][len("truce"):]))


def method(row):
    wire, fields = row["name"], row["fields"]
    target = python_name(row["target"]) if row.get("target") else None
    optional_target = row.get("optional", False)
    name = method_name(row)
    again = REPEATABLE_WITH.get(wire, bool(row["again"]))
    lines = [f"    @operation({json.dumps(wire)}, again={again!r})".replace("'", '"')]
    lines += [f"    def {name}(", "        self,"]
    if optional_target:
        lines.append(f"        {target}: Optional[str] = None,")
    elif target:
        lines.append(f"        {target}: {TARGETS.get(target, 'str')},")
    ordered = sorted(fields, key=lambda one: (one["name"] != POSITIONAL.get(wire), not one["needed"]))
    for index, field in enumerate(ordered):
        kind = field_type(row, field)
        if index == (wire in POSITIONAL):
            lines.append("        *,")
        if field["needed"]:
            lines.append(f"        {python_name(field['name'])}: {kind},")
        else:
            lines.append(f"        {python_name(field['name'])}: Optional[{kind}] = None,")
    return [*lines, "    ) -> R:", *docstring(row, target), ""]


HEADER = '''# Generated by clients/python/generate.py from the table of operations. Do not edit.
"""The operations of truce, one method each."""
# mypy: disable-error-code="empty-body"
from __future__ import annotations

from typing import Any, Literal, Optional, Sequence, Union

from bson import ObjectId

from ._operation import R, Runs, operation
from ._values import Document, Duration, Options, Time


'''


def operations_module(table):
    lines = ["class CommitOperations(Runs[R]):", '    """The operations that can be part of a commit."""', ""]
    for row in (row for row in table if row["commit"]):
        lines += method(row)
    lines += ["", "class Operations(CommitOperations[R]):", '    """All operations."""', ""]
    for row in (row for row in table if not row["commit"]):
        lines += method(row)
    return HEADER + "\n".join(lines)


# ---- _async_bound.py ------------------------------------------------------------------------------

BOUND_HEADER = '''# Generated by clients/python/generate.py from the table of operations. Do not edit.
"""The operations of queues and ledgers, bound to a name."""
from __future__ import annotations

from ._async_database import AsyncDatabase
from ._bind import Handle, bound

'''


def bound_module(table):
    lines = []
    for target in HANDLES:
        lines += ["", f"class AsyncBound{target.title()}(Handle[AsyncDatabase]):"]
        for row in (row for row in table if row.get("target") == target):
            name = method_name(row)
            lines.append(f"    {not_keyword(name.removeprefix(target + '_'))} = bound(AsyncDatabase.{name})")
        lines.append("")
    return BOUND_HEADER + "\n".join(lines)


# ---- main ----------------------------------------------------------------------------------------


def main():
    arguments = [one for one in sys.argv[1:] if one != "--check"]
    if len(arguments) != 1:
        sys.exit("usage: generate.py [--check] LIBTRUCE")
    table = read_table(Path(arguments[0]).resolve())
    modules = {
        PACKAGE / "_operations.py": operations_module(table),
        PACKAGE / "_async_bound.py": bound_module(table),
    }
    stale = 0
    for path, text in modules.items():
        text = text.rstrip("\n") + "\n"
        before = path.read_text() if path.exists() else ""
        if text == before:
            continue
        if "--check" in sys.argv:
            stale += 1
            difference = difflib.unified_diff(before.splitlines(), text.splitlines(), str(path), "generated", lineterm="", n=1)
            print("\n".join(list(difference)[:40]))
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"{stale} generated modules are not current: run clients/python/generate.py {arguments[0]}")


if __name__ == "__main__":
    main()
