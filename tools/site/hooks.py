"""Hooks of MkDocs for the site: what the pages in docs/ lack in a browser.

    1. A link to a file outside of docs/ (../examples/sets.c) leads to a page that shows this file. The name of a
       header (`include/truce/set.h`) becomes a link to its part of the reference of the C library.
    2. A session of the shell, which is indented in docs/, is coloured. Adjacent blocks of code in several languages
       become tabs. The tables of recipes get a column with the languages of each recipe.
    3. The page of the command line's commands is made from `truce help`, if TRUCE_PROGRAM names the program. The pages
       of the packages are made from their sources (api.py).
    4. A page that the navigation does not name is added to its section "Reference".
    5. In a site of several versions (TRUCE_SITE_VERSION), each page loads their list, for the menu of site.js.
    6. A script of this folder takes the place of one that the theme would load from another host, and what axe-core
       finds without a name gets one.
"""

import os
import posixpath
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import api  # noqa: E402
import blocks  # noqa: E402
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".js": "js", ".go": "go"}
TABS = {"python": "Python", "js": "Node", "go": "Go", "c": "C"}
COMMANDS = "reference/command-line.md"
C_REFERENCE = "reference/c.md"
RECIPES = "how-to/README.md"
WORKER = "assets/worker.js"
SHIM = re.compile(r"https://[^\"\s]*/iframe-worker/shim")  # the address that the theme has
ASSETS = [WORKER, "assets/site.css", "assets/site.js"]  # from this folder

sources = {}  # the path of a page in the site -> the path of the file that it shows, below ROOT


def outside_file(directory, target):
    """Returns the path below ROOT of a link's file, or None if it is a page of docs/ or another site."""
    if re.match(r"[a-z]+:", target) or target.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(directory, target))
    if path.startswith(("docs/", "../")):
        return None
    if os.path.isdir(os.path.join(ROOT, path)):
        path = posixpath.join(path, "README.md")
    return path if os.path.isfile(os.path.join(ROOT, path)) else None


def site_path(path):
    """Returns the page that shows a file outside of docs/."""
    stem, end = os.path.splitext(path)
    if end == ".md":
        return f"source/{stem}.md"
    return f"source/{path}.md"


def rewrite_links(markdown, directory, page):
    """Replaces links to files outside of docs/ by links to the pages that show them."""

    def replaced(match):
        path = outside_file(directory, match[2])
        here = posixpath.normpath(posixpath.join(directory, match[2]))
        if path:
            target = site_path(path)
        elif here.startswith("docs/") and not directory.startswith("docs"):
            target = here[len("docs/") :]
        else:
            return match[0]
        return match[1] + posixpath.relpath(target, posixpath.dirname(page)) + (match[3] or "") + match[4]

    return outside_code(markdown, lambda text: LINK.sub(replaced, text))


def link_headers(markdown, page):
    """Makes links of the names of the public headers, which are code: `include/truce/set.h`, `include/truce/`."""
    reference = posixpath.relpath(C_REFERENCE, posixpath.dirname(page))
    headers = api.c_headers(ROOT)

    def replaced(match):
        if not match[1]:
            return f"[`include/truce/`]({reference})"
        return f"[`truce/{match[1]}`]({reference}#{api.c_anchor(match[1])})" if match[1] in headers else match[0]

    return outside_code(markdown, lambda text: re.sub(r"(?<!\[)`include/truce/(\w+\.h)?`", replaced, text))


def outside_code(markdown, change):
    """Applies a function to the parts of a page that are not fenced code."""
    parts = re.split(r"(^(`{3,}).*?^\2`*\s*$)", markdown, flags=re.M | re.S)
    for i in range(0, len(parts), 3):
        parts[i] = change(parts[i])
    return "".join(part for i, part in enumerate(parts) if i % 3 != 2)


def colour_sessions(markdown):
    """Makes fenced code of the indented blocks that begin with a prompt."""

    def fenced(match):
        lines = [line[4:] for line in match[0].rstrip("\n").split("\n")]
        return "````console\n" + "\n".join(lines) + "\n````\n"

    return outside_code(markdown, lambda text: re.sub(r"^    \$ .*\n(?:    .*\n|\n(?=    ))*", fenced, text, flags=re.M))


def tab_languages(markdown):
    """Makes tabs of adjacent fenced blocks in several languages."""
    for group in reversed(blocks.adjacent_blocks(markdown)):
        tabs = (f'=== "{TABS[block[1]]}"\n\n' + re.sub(r"^(?=.)", "    ", block[0], flags=re.M) for block in group)
        markdown = markdown[: group[0].start()] + "\n".join(tabs) + markdown[group[-1].end() :]
    return markdown


def recipe_languages(directory, page):
    """Returns the languages of a recipe: those of its tabs and of its programs."""
    with open(os.path.join(directory, page), encoding="utf-8") as opened:
        text = opened.read()
    found = set(re.findall(r"^```(\w+)", text, re.M))
    names = ["shell"] if re.search(r"^    \$ ", text, re.M) else []
    return ", ".join(names + [TABS[name] for name in TABS if name in found])


def mark_recipes(markdown, directory):
    """Adds a column to the tables of recipes: the languages of each recipe."""
    row = re.compile(r"^(\| .* \| \[[^\]]+\]\(([^)#]+\.md)\) \|)$", re.M)

    def marked(table):
        rows = row.sub(lambda match: f"{match[1]} {recipe_languages(directory, match[2])} |", table[2])
        return f"{table[1]} code |\n| --- | --- | --- |\n{rows}"

    return re.sub(r"^(\| .* \| recipe \|)\n\| --- \| --- \|\n((?:\|.*\n)+)", marked, markdown, flags=re.M)


def command_page(program):
    """Returns the page of all commands of the command line, from the program's own help."""

    def helped(*words):
        return subprocess.run([program, "help", *words], capture_output=True, text=True, check=True).stdout.strip()

    common = re.compile(r"^options of every command:\n(?:  .*\n?)+\n*", re.M)
    lines = ["# Commands", "", "This page is made from `truce help`. [The command line](../cli.md) introduces it.", ""]
    lines += ["````text", common.search(helped("help"))[0].strip(), "````", ""]
    noun = None
    for name, summary in re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)  +(\S.*)$", helped(), re.M):
        if name.split()[0] != noun:
            noun = name.split()[0]
            lines += [f"## {noun}", ""]
        text = common.sub("", helped(*name.split())).strip()
        lines += [f"### truce {name}", "", "````text", text, "````", ""]
    return "\n".join(lines)


def add_page(files, config, page, content):
    files.append(File.generated(config, page, content=content))


def on_config(config):
    named = set(re.findall(r"[\w./-]+\.md", repr(config.nav)))
    docs = config.docs_dir
    for name in sorted(os.listdir(docs)):
        if name.endswith(".md") and name not in named:
            section = next(part for part in config.nav if "Reference" in part)
            section["Reference"].append(name)
    return config


def on_files(files, config):
    for asset in ASSETS:
        source = os.path.join(ROOT, "tools/site", posixpath.basename(asset))
        files.append(File.generated(config, asset, abs_src_path=source))
    program = os.environ.get("TRUCE_PROGRAM")
    if program:
        add_page(files, config, COMMANDS, command_page(program))
    for page, made in api.PAGES.items():
        add_page(files, config, page, made(ROOT))
    waiting = []
    for file in files.documentation_pages():
        if file.abs_src_path:
            with open(file.abs_src_path, encoding="utf-8") as opened:
                waiting.append((posixpath.dirname(posixpath.join("docs", file.src_uri)), opened.read()))
    while waiting:
        directory, text = waiting.pop()
        for match in LINK.finditer(text):
            path = outside_file(directory, match[2])
            if not path or site_path(path) in sources:
                continue
            page = site_path(path)
            sources[page] = path
            with open(os.path.join(ROOT, path), encoding="utf-8") as opened:
                shown = opened.read()
            if path.endswith(".md"):
                waiting.append((posixpath.dirname(path), shown))
                content = shown
            else:
                language = LANGUAGES.get(os.path.splitext(path)[1], "text")
                content = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n````{language}\n{shown}````\n"
            add_page(files, config, page, content)
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    directory = posixpath.dirname(sources.get(uri) or posixpath.join("docs", uri))
    if uri == RECIPES:
        markdown = mark_recipes(markdown, os.path.join(ROOT, directory))
    if uri != C_REFERENCE:
        markdown = link_headers(markdown, uri)
    return tab_languages(colour_sessions(rewrite_links(markdown, directory, uri)))


def name_landmarks(output):
    """Names what axe-core finds without a name: the dialog of the search, and the parts of the navigation."""
    output = output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
    output = output.replace("<th></th>", "<td></td>")  # the head of a table
    return re.sub(
        r'aria-labelledby="__nav_[\d_]+_label"([^>]*>\s*<label class="md-nav__title"[^>]*>\s*<span[^>]*></span>\s*)([^<]*?)(\s*</label>)',
        r'aria-label="\2"\1\2\3',
        output,
    )


def on_post_page(output, page, config):
    directory = posixpath.dirname(page.file.dest_uri) or "."
    version = os.environ.get("TRUCE_SITE_VERSION")
    if version:
        root = posixpath.relpath("..", directory)
        output = output.replace("</head>", f'<script src="{root}/versions.js" data-version="{version}" data-root="{root}" id="truce-versions"></script></head>')
    return name_landmarks(SHIM.sub(posixpath.relpath(WORKER, directory), output))
