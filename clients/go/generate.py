#!/usr/bin/env python3
"""
Writes operations.go: a method and a struct of options for each row of the table of operations, from
{truceHelp: ...}. The table is read as for Python (clients/python/generate.py).

    clients/go/generate.py build/dev/libtruce.so            # writes it
    clients/go/generate.py --check build/dev/libtruce.so    # fails if it is not current
"""
import difflib
import importlib.util
import re
import sys
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OUTPUT = FOLDER / "operations.go"
WIDTH = 100

loader = importlib.util.spec_from_file_location("table", FOLDER.parent / "python" / "generate.py")
table = importlib.util.module_from_spec(loader)
sys.dont_write_bytecode = True
loader.loader.exec_module(table)

TYPES = {
    "string": "string",
    "document": "any",
    "array": "any",
    "document or array": "any",
    "true or false": "bool",
    "any": "any",
    "ObjectId": "bson.ObjectID",
}
# Targets that are not strings.
TARGETS = {"changes": "any", "job": "bson.ObjectID", "commit": "bson.ObjectID"}
# For these fields, zero has the same effect as an absent field. For all other fields that can be
# zero, an absent one differs, so they are pointers.
ZERO_IS_ABSENT = {"priority", "waitMS", "skip", "after", "truceEnqueue.delayMS"}
NOTES = {"array": "a slice", "document or array": "a document or a slice"}


def go_name(wire):
    """runAtMS becomes RunAt, onConflict becomes OnConflict."""
    words = re.sub(r"MS$", "", wire).split("_")
    words = ({"id": "ID", "ids": "IDs"}.get(word, word[:1].upper() + word[1:]) for word in words)
    return "".join(words)


def field_names(row):
    """Two fields may differ in their unit only: keep and keepMS become Keep and KeepTime."""
    names = {}
    for field in row["fields"]:
        name = go_name(field["name"])
        names[field["name"]] = name + "Time" if name in names.values() else name
    return names


def number_type(row, field):
    if "since 1970" in field["help"]:
        return "time.Time"
    kind = "time.Duration" if field["name"].endswith("MS") else "int64"
    can_be_zero = field.get("least") is None or field["least"] <= 0
    absent = field["name"] in ZERO_IS_ABSENT or f"{row['name']}.{field['name']}" in ZERO_IS_ABSENT
    return "*" + kind if can_be_zero and not absent and not field["needed"] else kind


def field_type(row, field):
    return number_type(row, field) if field["type"] == "number" else TYPES[field["type"]]


def comment(text, indent=""):
    return textwrap.wrap(
        text,
        WIDTH - 4 * len(indent),
        initial_indent=indent + "// ",
        subsequent_indent=indent + "// ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def help_of(field, kind):
    """A Go type has the unit of a duration or time."""
    text = field["help"]
    if kind.endswith("time.Duration"):
        text = re.sub(r",? in milliseconds\b", "", text).replace("-1: forever", "Forever: no end")
    if kind == "time.Time":
        text = re.sub(r",? ?\bms since 1970", "", text)
    return text


def field_lines(row, field, name):
    kind = field_type(row, field)
    # A needed number or flag is sent even if it is zero.
    always = field["needed"] and kind in ("int64", "time.Duration", "bool")
    is_list = table.ARRAYS.get(f"{row['name']}.{field['name']}") == "Sequence[Options]"
    tag = field["name"] + (",always" if always else ",options" if is_list else "")
    text = help_of(field, kind) + (table.bounds(field) if kind.endswith("int64") else "")
    if "words" in field:
        text += ": " + ", ".join(f'"{word}"' for word in field["words"])
    if field["type"] in NOTES:
        text += f" ({NOTES[field['type']]})"
    if field["needed"]:
        text += "; required"
    return [*comment(text, "\t"), f'\t{name} {kind} `truce:"{tag}"`']


def operation_name(row):
    wire = row["name"]
    return go_name(table.METHODS.get(wire, wire[len("truce") :]))


def options(row):
    operation, names = operation_name(row), field_names(row)
    lines = [f"// {operation}Options are the options of {operation}."]
    lines.append(f"type {operation}Options struct {{")
    for field in row["fields"]:
        lines += field_lines(row, field, names[field["name"]])
    return [*lines, "}", ""]


def target_of(row):
    """Returns the parameter of the target, and the value that is sent."""
    target = row.get("target")
    if not target:
        return "", "1"
    if row.get("optional"):
        return f"{target} string", f"orOne({target})"
    return f"{target} {TARGETS.get(target, 'string')}", target


def documentation(row, method):
    lines = comment(f"{method} {row['help']}.")
    if row.get("target") and row["value"] != f"the {row['target']}":
        value = re.sub(r"\b1(?=, or |: | is )", '""', row["value"])
        lines += ["//", *comment(f"{row['target']}: {value}.")]
    return [*lines, "//", *comment(f"Reply: {row['answer']}.")]


def signature(receiver, name, parameters, result):
    parameters = ", ".join(filter(None, parameters))
    line = f"func ({receiver}) {name}({parameters}) {result} {{"
    if len(line) <= WIDTH:
        return [line]
    return [f"func ({receiver}) {name}(", f"\t{parameters},", f") {result} {{"]


def again_of(row):
    given = table.REPEATABLE_WITH.get(row["name"])
    if given:
        return '!o.ID.IsZero()' if given == "id" else f'o.{go_name(given)} != ""'
    return "true" if row["again"] else ""


def method(row):
    name, fields = operation_name(row), row["fields"]
    parameter, target = target_of(row)
    parameters = ["ctx context.Context", parameter, f"o {name}Options" if fields else ""]
    properties = [f'name: "{row["name"]}"']
    properties += ["writes: true"] if row["writes"] else []
    properties += [f"again: {again_of(row)}"] if again_of(row) else []
    return [
        *documentation(row, name),
        *signature("db *Database", name, parameters, "(Reply, error)"),
        f"\trow := operation{{{', '.join(properties)}}}",
        f"\treturn db.operate(ctx, row, {target}, {'&o' if fields else 'nil'})",
        "}",
        "",
    ]


def commit_method(row):
    name, fields = operation_name(row), row["fields"]
    parameter, target = target_of(row)
    return [
        f"// {name} adds the operation to the commit. See the method of Database.",
        *signature("c *Changes", name, [parameter, f"o {name}Options" if fields else ""], "*Change"),
        f'\treturn c.operate("{row["name"]}", {target}, {"&o" if fields else "nil"})',
        "}",
        "",
    ]


HEADER = """// Code generated by clients/go/generate.py from the table of operations. DO NOT EDIT.

package truce

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)
"""


def operations(rows):
    lines = [HEADER]
    for row in rows:
        if row["fields"]:
            lines += options(row)
        lines += method(row)
        if row["commit"]:
            lines += commit_method(row)
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    arguments = [one for one in sys.argv[1:] if one != "--check"]
    if len(arguments) != 1:
        sys.exit("usage: generate.py [--check] LIBTRUCE")
    text = operations(table.read_table(Path(arguments[0]).resolve()))
    before = OUTPUT.read_text() if OUTPUT.exists() else ""
    if "--check" not in sys.argv:
        OUTPUT.write_text(text)
    elif text != before:
        old, new = before.splitlines(), text.splitlines()
        difference = difflib.unified_diff(old, new, str(OUTPUT), "generated", lineterm="", n=1)
        print("\n".join(list(difference)[:40]))
        sys.exit(f"operations.go is not current: run clients/go/generate.py {arguments[0]}")


main()
