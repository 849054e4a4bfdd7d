#!/usr/bin/env python3
"""
Writes docs/parity.md: how each operation is called from C, the command line, the wire protocol, HTTP, Python, Node, and Go.

    tests/clients/parity.py build/dev            # writes it
    tests/clients/parity.py --check build/dev    # fails if it is not current, or if a name on it does not exist

The rows are those of the table of operations. Methods are found in the packages themselves, and the path of HTTP in the
description of a running server. Commands that use a row are found in the sources of the command line. Functions of C and
other commands are listed here. Each must exist in the headers and in the program.
"""
import ast
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "parity.md"

sys.dont_write_bytecode = True
loader = importlib.util.spec_from_file_location("table", ROOT / "clients/python/generate.py")
table = importlib.util.module_from_spec(loader)
loader.loader.exec_module(table)

# Functions without truce_; operations that are not listed are called by truce_command().
C = {
    "Help": "", "Access": "", "Commit": "transact, commit_apply", "CommitResult": "commit_result", "CommitShow": "commit_record",
    "Commits": "commit_list", "CommitResolve": "commit_resolve", "Unique": "unique_declare", "ReadMany": "read_many", "Request": "request_add",
    "RequestState": "request_state", "Requests": "", "Sequence": "sequence_take, sequence_raise", "Sequences": "",
    "Set": "set_add, set_remove, set_apply", "SetSource": "set_source_start, set_void", "SetCollect": "set_collect",
    "SetRecord": "set_record", "SetQuarantine": "set_quarantine", "SetReplay": "set_replay", "SetProtect": "set_protect",
    "SetConvert": "set_convert", "SetForget": "set_forget", "SetDefine": "", "Trees": "", "Revision": "revision_save, revision_merge",
    "RevisionPatch": "revision_patch", "RevisionDiff": "revision_diff", "RevisionLog": "revision_log",
    "Conflicts": "revision_conflicts", "Resolve": "revision_resolve", "Item": "item_upsert, item_update, item_remove",
    "ItemIndex": "item_index", "ItemConvert": "item_convert", "Enqueue": "queue_add, queue_add_many", "Jobs": "queue_get",
    "Queues": "queue_stats", "Queue": "queue_pause, queue_redrive", "QueueLimit": "queue_limit",
    "Claim": "queue_claim, queue_claim_many", "Heartbeat": "job_extend, job_progress", "Done": "job_done, queue_done_many",
    "JobCommit": "job_commit", "Fail": "job_fail", "Snooze": "job_snooze", "Discard": "job_discard", "JobStep": "job_step",
    "JobSleep": "job_sleep", "JobWait": "job_wait", "Flow": "queue_add_flow", "JobGraph": "queue_graph",
    "JobResults": "queue_results", "Signal": "queue_signal", "CronSet": "cron_set", "Crons": "", "Cron": "cron_pause, cron_remove",
    "CronNext": "cron_next", "LedgerOpen": "ledger_open", "LedgerRules": "ledger_rules", "LedgerPost": "ledger_post",
    "LedgerPostMany": "ledger_post_many", "LedgerBalance": "ledger_balance_of", "LedgerStatement": "ledger_statement",
    "LedgerAccounts": "ledger_balances", "LedgerSearch": "ledger_find", "LedgerPending": "ledger_pending",
    "LedgerCurrency": "ledger_currency", "LedgerVerify": "ledger_verify", "LedgerSeal": "ledger_seal",
    "LedgerReport": "", "LedgerImport": "", "LedgerExport": "ledger_walk", "TreeExport": "tree_export", "TreeImport": "tree_import_line",
    "Transfer": "transfer_start",
    "TransferShow": "transfer_get", "Transfers": "", "TransferResume": "transfer_resume", "TransferCancel": "transfer_cancel",
    "SyncDeclare": "sync_declare", "SyncUpdate": "sync_update", "SyncInsert": "sync_insert", "SyncRead": "sync_read",
    "SyncReconcile": "sync_reconcile", "SyncStatus": "sync_status", "SyncRepair": "sync_walk", "SyncDrop": "sync_drop",
    "TreePublish": "tree_begin, tree_publish", "TreeRead": "tree_open, tree_find", "TreeLog": "tree_log", "TreeDiff": "tree_diff",
    "Tree": "tree_branch, tree_merge, tree_tag", "Sweep": "sweep", "Check": "check", "Doctor": "doctor", "Consumers": "consumers",
}  # fmt: skip

# Commands that are not found in the sources by the row of the operation, or not all of them.
CLI = {
    "Help": "help", "Set": "set add, set remove, set apply", "SetSource": "set start, set void, set idle", "SetCollect": "set collect",
    "SetReplay": "set quarantine", "Revision": "doc save, doc merge", "RevisionPatch": "doc patch", "Resolve": "doc resolve",
    "Item": "item upsert, item update, item remove", "ItemConvert": "item to-map, item to-array", "Claim": "work",
    "Heartbeat": "work", "Done": "work", "Fail": "work", "LedgerPost": "ledger post", "LedgerCurrency": "ledger currency",
    "Cron": "cron pause, cron resume, cron remove",
}  # fmt: skip


# Methods of Node with another name than in Python: there, `queue` returns the handle of a queue.
NODE = {"Queue": "queue"}


def words(text):
    return [word.strip() for word in text.split(",") if word.strip()]


class Parity:
    def __init__(self, build):
        self.build = build.resolve()
        self.program = str(self.build / "truce")
        self.faults = []
        self.rows = table.read_table(self.build / "libtruce.so")
        self.headers = "\n".join(one.read_text() for one in (ROOT / "include/truce").rglob("*.h"))

    # ---- what exists ----

    def http(self):
        """Returns the paths of the operations in the description of a running server."""
        with tempfile.TemporaryDirectory() as folder:
            command = [self.program, "serve", "memory:", "--socket", f"{folder}/socket", "--http", "0", "--json", "--quiet"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
                try:
                    url = json.loads(server.stdout.readline())["http"]
                    with urllib.request.urlopen(f"{url}/v1/openapi.json", timeout=30) as reply:
                        paths = json.load(reply)["paths"]
                finally:
                    server.terminate()
        return {one["post"]["operationId"]: path for path, one in paths.items() if "post" in one}

    def commands(self):
        """Returns the commands of the rows, from the sources of the command line."""
        found = {}
        for source in (ROOT / "src/cli").rglob("*.c"):
            for body in re.findall(r"struct cli_command \w+ = \{(.*?)^\};", source.read_text(), re.S | re.M):
                noun, verb = (re.search(rf'\.{field} = "([^"]+)"', body) for field in ("noun", "verb"))
                row = re.search(r'\.name = "truce(\w+)"', body)
                if noun and row:
                    found.setdefault(row[1], []).append(f"{noun[1]} {verb[1]}" if verb else noun[1])
        return found

    def python(self):
        classes = ast.parse((ROOT / "clients/python/truce/_operations.py").read_text()).body
        return {one.name for kind in classes if isinstance(kind, ast.ClassDef) for one in kind.body if isinstance(one, ast.FunctionDef)}

    def node(self):
        return set(re.findall(r"^  (\w+): \{", (ROOT / "clients/node/lib/operations.js").read_text(), re.M))

    def go(self):
        return set(re.findall(r"^func \(db \*Database\) (\w+)\(", (ROOT / "clients/go/operations.go").read_text(), re.M))

    def require(self, condition, what):
        if not condition:
            self.faults.append(what)
        return condition

    # ---- the page ----

    def in_c(self, name):
        if not self.require(name in C, f"{name}: name its functions of C in tests/clients/parity.py"):
            return ""
        functions = [f"truce_{one}" for one in words(C[name])] or ["truce_command"]
        for one in functions:
            self.require(re.search(rf"\b{one}\(", self.headers), f"{name}: no header has {one}()")
        return ", ".join(f"`{one}`" for one in functions)

    def in_cli(self, name, of_rows):
        commands = words(CLI.get(name, "")) or of_rows.get(name, [])[:2]
        for one in commands:
            ended = subprocess.run([self.program, "help", *one.split()], capture_output=True)
            self.require(ended.returncode == 0, f"{name}: there is no command truce {one}")
        return ", ".join(f"`truce {one}`" for one in commands) or "`truce command`"

    def classes(self):
        """The table of docs/errors.md and those of the packages give each code the same class."""
        statuses = {"TRUCE_UNKNOWN": "OutcomeUnknown", "TRUCE_IO": "StoreFailed"}
        wanted = {}
        section = (ROOT / "docs/errors.md").read_text().split("## Numbers")[0]
        for name, codes in re.findall(r"^\| [^|`]*`(\w+)`[^|]* \| ([\d, ]+) \|$", section, re.M):
            if name.startswith("TRUCE_"):
                name = statuses.get(name, name[len("TRUCE_"):].title().replace("_", ""))
            wanted.update({int(code): name for code in codes.split(",")})
        row = r"^\s*\[?(\d+)[:,] (\w+)\]?,$"
        for file in ("clients/python/truce/errors.py", "clients/node/lib/failure.js"):
            found = {int(code): name for code, name in re.findall(row, (ROOT / file).read_text(), re.M)}
            self.require(found == wanted, f"{file}: the classes of codes are not those of docs/errors.md")
        text = (ROOT / "clients/go/errors.go").read_text()
        found = {int(code): name for code, name in re.findall(r"\b(\d+): Err(\w+)", text)}
        wanted = {code: name for code, name in wanted.items() if name != "TruceError"}
        self.require(found == wanted, "clients/go/errors.go: the classes of codes are not those of docs/errors.md")

    def page(self):
        paths, of_rows, python, node, go = self.http(), self.commands(), self.python(), self.node(), self.go()
        lines = [
            "# One operation in each language",
            "",
            "Every operation exists in each language, in process and through a server, with the same fields and",
            "replies. The test `tests/clients/parity.py` generates this page from the packages, the headers, the",
            "program, and a running server. It fails if one of them lacks an operation.",
            "",
            "- C: a function of [the library](library.md). `truce_command` runs every operation as a document.",
            "- CLI: a command of [the command line](cli.md). `truce command '{...}'` runs every operation.",
            "- Wire: a command that each driver of MongoDB can send ([reference](commands.md)).",
            "- HTTP: `POST /v1/DATABASE/` and the name of the wire ([HTTP](http.md)).",
            "- [Python](../clients/python/README.md), [Node](../clients/node/README.md), and",
            "  [Go](../clients/go/README.md): a method of the database. Python has it for asyncio, too.",
        ]
        group = None
        for row in self.rows:
            wire, name = row["name"], row["name"][len("truce"):]
            if row["group"] != group:
                group = row["group"]
                lines += ["", f"## {group}", "", "| wire, HTTP | C | CLI | Python | Node | Go |", "| --- | --- | --- | --- | --- | --- |"]
            method = table.METHODS.get(wire, table.python_name(name))
            camel = re.sub(r"_(\w)", lambda found: found[1].upper(), method)
            own = NODE.get(name, camel)
            names = {"Python": (method, python), "Node": (own, node), "Go": (camel[0].upper() + camel[1:], go)}
            for language, (one, known) in names.items():
                self.require(one in known, f"{wire}: {language} has no method {one}")
            self.require(paths.get(wire) == f"/v1/{{database}}/{wire}", f"{wire}: HTTP has no path for it")
            methods = " | ".join(f"`{one}`" for one, _ in names.values())
            lines.append(f"| `{wire}` | {self.in_c(name)} | {self.in_cli(name, of_rows)} | {methods} |")
        for name in {*C, *CLI} - {row["name"][len("truce"):] for row in self.rows}:
            self.faults.append(f"tests/clients/parity.py names {name}, which is not an operation")
        return "\n".join(lines) + "\n"


def main():
    arguments = [one for one in sys.argv[1:] if one != "--check"]
    if len(arguments) != 1:
        sys.exit("usage: parity.py [--check] BUILD-FOLDER")
    parity = Parity(Path(arguments[0]))
    page = parity.page()
    parity.classes()
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        parity.faults.append(f"docs/parity.md is not current: run tests/clients/parity.py {arguments[0]}")
    print("\n".join(parity.faults) or f"parity: {len(parity.rows)} operations in each language")
    sys.exit(1 if parity.faults else 0)


if __name__ == "__main__":
    main()
