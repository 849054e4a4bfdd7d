"""The pages of the site with all classes and functions of the library and the packages, made from their sources."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = [  # (heading, module, classes; None: its functions)
    ("Open and connect", "__init__", None),
    ("The database", "_database", ["Database", "Commit", "Edit"]),
    ("The operations", "_operations", ["CommitOperations", "Operations"]),
    ("Documents", "_collection", ["Collection", "Cursor", "FindCursor", "ChangeStream"]),
    ("Changes of a commit", "_commit_list", ["CommitList"]),
    ("Queues, ledgers, and revisions", "_handles", ["Queue", "Ledger", "Revisions", "Revision"]),
    ("Jobs", "_job", ["Job", "JobCommit", "JobStep"]),
    ("Workers", "_worker", ["Worker"]),
    ("Errors", "errors", ["*"]),
    ("Tests", "testing", None),
]
GO = [("truce", "."), ("trucetest", "trucetest"), ("truceotel", "truceotel")]


def fenced(language, code):
    return [f"````{language}", code.rstrip("\n"), "````", ""]


# ---- C -------------------------------------------------------------------------------------------


def page_title(root, name):
    with open(os.path.join(root, "docs", f"{name}.md"), encoding="utf-8") as opened:
        return opened.readline().lstrip("# ").strip()


def c_headers(root):
    """Returns the names of the headers that truce.h includes, in its order."""
    return re.findall(r'#include "truce/(\w+\.h)"', Path(root, "include/truce/truce.h").read_text(encoding="utf-8"))


def c_anchor(header):
    """Returns the anchor of the heading of a header."""
    return "truce" + header.replace(".", "")


def c_links(root, text):
    """Makes links of docs/NAME.md and truce/NAME.h in the text of a comment."""
    text = re.sub(r"\bdocs/([\w-]+)\.md\b", lambda found: f"[{page_title(root, found[1])}](../{found[1]}.md)", text)
    headers = "|".join(re.escape(name) for name in c_headers(root))
    return re.sub(rf"(?<![\w/])truce/({headers})\b", lambda found: f"[truce/{found[1]}](#{c_anchor(found[1])})", text)


def c_text(root, comment):
    """Returns the text of a comment as Markdown. Lines that are indented by four columns or more are code."""
    lines = [re.sub(r"^/\*+ ?| ?\*+/$", "", line.strip()) for line in comment.split("\n")]
    lines = [re.sub(r"^\* ?", "", line) if i else line for i, line in enumerate(lines)]
    plain = []
    for line in lines:
        is_code = line.startswith("    ")
        if is_code and plain and plain[-1] and not plain[-1].startswith("    "):
            plain.append("")
        plain.append(line if is_code else re.sub(r"`[^`]*`|[*_<>\[\]]", lambda found: found[0] if found[0][0] == "`" else "\\" + found[0], line.strip()))
    return "\n".join(line if line.startswith("    ") else c_links(root, line) for line in plain).strip("\n")


def c_parts(text):
    """Yields (comment, declaration) for each declaration of a header. A comment of its own has no declaration."""
    lines, at, comment = text.split("\n"), 0, ""
    while at < len(lines):
        end = at + 1
        if lines[at].startswith("/*"):
            while "*/" not in lines[end - 1]:
                end += 1
            if comment:
                yield comment, ""
            comment = "\n".join(lines[at:end])
        elif not lines[at] or lines[at].startswith(("TRUCE_BEGIN", "TRUCE_END")):
            if comment:
                yield comment, ""
            comment = ""
        elif lines[at].startswith("#"):
            while lines[end - 1].endswith("\\"):
                end += 1
            if re.match(r"#define TRUCE_\w+(?<!_H) ", lines[at]):
                yield comment, "\n".join(lines[at:end])
                comment = ""
        else:
            while "\n".join(lines[at:end]).count("{") > "\n".join(lines[at:end]).count("}") or not lines[end - 1].endswith((";", "}")):
                end += 1
            yield comment, "\n".join(lines[at:end])
            comment = ""
        at = end


def c_declaration(code):
    """Returns (name, declaration) without what only compilers need. A function is on one line, or has one parameter on each."""
    code = re.sub(r"\bTRUCE_(?:EXPORT|MUST_USE|PRINTF\([^)]*\)) *", "", code)
    code = re.sub(r"^static inline (.*?)\n\{.*", r"\1;", code, flags=re.S)
    named = re.match(r"typedef (?:struct|enum|union) (\w+)|typedef .*?\b(truce_\w+)\(|#define (\w+)", code)
    if named:
        return named[1] or named[2] or named[3], code
    function = re.match(r"([^(]*?\**)\b(\w+)\((.*)\);", re.sub(r"\s+", " ", code))
    if not function:
        return code.split("\n")[0].strip(" ;"), code
    line = f"{function[1]}{function[2]}({function[3]});"
    if len(line) > 90 and "(" not in function[3]:
        line = f"{function[1]}{function[2]}(\n    " + function[3].replace(", ", ",\n    ") + ");"
    return function[2], line


def c_page(root):
    page = ["# The C library", "", "This page is made from the headers of `include/truce`. [Its guide](../library.md) introduces it.", ""]
    folder = Path(root, "include/truce")
    for name in c_headers(root):
        page += [f"## truce/{name}", ""]
        level = "###"
        for comment, code in c_parts((folder / name).read_text(encoding="utf-8")):
            section = re.fullmatch(r"/\* -{2,} (.*?) -+ \*/", comment)
            if section and not code:
                title = f"{section[1][0].upper()}{section[1][1:]}"
                page += [f"### {title} (truce/{name})" if f"### {title}" in page else f"### {title}", ""]
                level = "####"
                continue
            if code:
                heading, code = c_declaration(code)
                page += [f"{level} {heading}", "", *fenced("c", code)]
            page += [c_text(root, comment), ""] if comment else []
    return "\n".join(page)


# ---- Python --------------------------------------------------------------------------------------


def python_head(lines, node):
    """Returns the source of a class or a function up to the end of its docstring."""
    first = node.body[0]
    is_documented = ast.get_docstring(node) is not None
    end = first.end_lineno if is_documented else max(first.lineno - 1, node.lineno)
    code = "\n".join(lines[node.lineno - 1 : end])
    return re.sub(rf"^ {{{node.col_offset}}}", "", code, flags=re.M)


def is_public(node):
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return False
    return not node.name.startswith("_") or (node.name == "__init__" and ast.get_docstring(node) is not None)


def python_sources(root):
    """Returns the texts of the modules by their names, with the blocking forms."""
    with tempfile.TemporaryDirectory() as made:
        package = shutil.copytree(os.path.join(root, "clients/python/truce"), os.path.join(made, "truce"))
        subprocess.run([sys.executable, os.path.join(root, "clients/python/blocking.py"), package], check=True)
        return {path.stem: path.read_text(encoding="utf-8") for path in Path(package).glob("*.py")}


def python_page(root):
    page = ["# The Python package", "", "This page is made from the source of the package. [Its guide](../../clients/python/README.md) introduces it.", ""]
    page += ["`truce.aio` has the same classes for asyncio: their methods are coroutines.", ""]
    sources = python_sources(root)
    for heading, module, names in PYTHON:
        source = sources[module]
        lines = source.split("\n")
        nodes = [node for node in ast.parse(source).body if is_public(node)]
        page += [f"## {heading}", ""]
        for node in nodes:
            if names is None and isinstance(node, ast.FunctionDef):
                page += [f"### {node.name}", "", *fenced("python", python_head(lines, node))]
            elif isinstance(node, ast.ClassDef) and names and (node.name in names or "*" in names):
                page += [f"### {node.name}", "", *fenced("python", python_head(lines, node))]
                for method in filter(is_public, node.body):
                    page += [f"#### {node.name}.{method.name}", "", *fenced("python", python_head(lines, method))]
    return "\n".join(page)


# ---- Node ----------------------------------------------------------------------------------------


def node_page(root):
    page = ["# The Node package", "", "This page shows the package's types. [Its guide](../../clients/node/README.md) introduces it.", ""]
    for name, heading in (("index.d.ts", "Imports"), ("lib/operations.d.ts", "Options of the operations"), ("testing.d.ts", "Tests")):
        with open(os.path.join(root, "clients/node", name), encoding="utf-8") as opened:
            code = opened.read()
        parts = re.split(r"^// -+ (.*?) -+$\n|^(?=/\*\* The operations that)", code, flags=re.M)
        for i, text in enumerate(parts):
            if i % 2 == 1:
                heading = text or "Operations"
            elif text and text.strip():
                page += [f"## {heading[0].upper()}{heading[1:]}", "", *fenced("ts", text.strip("\n"))]
    return "\n".join(page)


# ---- Go ------------------------------------------------------------------------------------------


def go_text(lines):
    """Makes Markdown of the text of `go doc`, without its indentation. Indented lines are code."""
    plain = [re.sub(r"([*_<\[\]])", r"\\\1", line) if not line.startswith("    ") else line for line in lines]
    return [*plain, ""]


def go_declarations(lines):
    """Yields (heading, declaration, text) for each declaration of `go doc -all`."""
    at = 0
    while at < len(lines):
        found = re.match(r"(?:func \(\w+ \*?(\w+)[^)]*\) (\w+)|(?:func|type|const|var) (\w+)|const \()", lines[at])
        if not found:
            at += 1
            continue
        end = at + 1
        while end < len(lines) and lines[end] and not lines[end].startswith("    "):
            end += 1
        if lines[at].endswith(("{", "(")):  # its body may have empty lines
            while not re.match(r"[)}]", lines[end - 1]):
                end += 1
        text = end
        while text < len(lines) and (not lines[text] or lines[text].startswith("    ")):
            text += 1
        name = f"{found[1]}.{found[2]}" if found[1] else found[3] or "Constants"
        yield name, "\n".join(lines[at:end]), [line[4:] for line in lines[end:text]]
        at = text


def go_page(root):
    page = ["# The Go module", "", "This page is made by `go doc`. [The module's guide](../../clients/go/README.md) introduces it.", ""]
    if not shutil.which("go"):
        return "\n".join([*page, "It is empty, because no `go` was found when this site was built.", ""])
    for package, folder in GO:
        command = ["go", "doc", "-all", "."]
        where = os.path.join(root, "clients/go", folder)
        more = {"GOFLAGS": "-mod=readonly", "GOPROXY": "off"}
        shown = subprocess.run(command, cwd=where, env={**os.environ, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True).stdout
        about, _, rest = re.sub(r"^package .*\n\n", "", shown).partition("\nFUNCTIONS\n" if package != "truce" else "\nCONSTANTS\n")
        page += [f"## Package {package}", "", *go_text(about.split("\n"))]
        for name, declaration, text in go_declarations(rest.split("\n")):
            level = "####" if "." in name else "###"
            page += [f"{level} {name}", "", *fenced("go", declaration), *go_text(text)]
    return "\n".join(page)


PAGES = {"reference/c.md": c_page, "reference/python.md": python_page, "reference/node.md": node_page, "reference/go.md": go_page}
