"""The test suites of other projects, unchanged, against `truce serve` (TRUCE_TEST_CLIENT_URI).

    run.py SUITE FOLDER     FOLDER: the unpacked distribution of the registry, with its tests; a Node package next to its node_modules

exceptions.txt lists the tests that are expected to fail, each with the reason. The run fails if another test fails, and if an expected failure passes.
The last line counts the tests. A test of `tape` is one of its assertions.
"""

import collections
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
TIMEOUT = 300  # seconds for one process of a Node suite


@dataclasses.dataclass
class Suite:
    tests: list  # folders and files for pytest, patterns of files for Node
    runner: str = "pytest"  # or a module's program: "mocha", "tape", "ava"
    options: list = ()  # of the runner
    replace: list = ()  # (regular expression, replacement) for all files; {port} and {uri} are the server's
    environment: dict = dataclasses.field(default_factory=dict)
    together: bool = False  # all files in one process, as only the last one ends it
    files: dict = dataclasses.field(default_factory=dict)  # files that the distribution lacks


ANY_FILE = ["-o", "python_files=*.py"]
AUTO = ["-o", "asyncio_mode=auto"]
NO_PORT = [(r"mongodb://(localhost|127\.0\.0\.1)(?=[/'\"])", r"mongodb://\1:{port}")]
# one index of texts, which truce refuses, would keep most of the tests from their start
NO_TEXT = [(r"\bpymongo\.TEXT\b", "pymongo.ASCENDING")]
# the base class of mongoengine's tests; its source distribution has only the files that are named test_*.py
MONGOENGINE_UTILS = """
import unittest

import mongoengine


class MongoDBTestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mongoengine.disconnect_all()
        cls._connection = mongoengine.connect("mongoenginetest")
        cls._connection.drop_database("mongoenginetest")
        cls.db = mongoengine.connection.get_db()

    @classmethod
    def tearDownClass(cls):
        mongoengine.disconnect_all()
"""

SUITES = {
    "umongo": Suite(["tests"], options=ANY_FILE),
    "eve": Suite(["eve/tests"], options=ANY_FILE),
    "beanie": Suite(["tests"], options=AUTO, replace=NO_TEXT),
    "mongoengine": Suite(["tests"], files={"tests/__init__.py": "", "tests/utils.py": MONGOENGINE_UTILS}),
    "mongomock": Suite(["tests"], options=["-o", "python_files=test__*.py"]),
    "ming": Suite(["ming/tests"], replace=NO_PORT),
    "motor": Suite(["test/asyncio_tests", "test/tornado_tests"], environment={"DB_IP": "127.0.0.1", "DB_PORT": "{port}"}),
    "mongodb-queue": Suite(["test/*.js"], runner="tape"),
    "connect-mongo": Suite(["src/*/*.spec.ts"], runner="ava", replace=[("root:example@", "")]),
    "mongojs": Suite(["test/test-*.js"], runner="tape", together=True, replace=[*NO_PORT, (r"mongojs\('(?!mongodb)(localhost/)?(?=\w)", r"mongojs('127.0.0.1:{port}/")]),
    "sharedb-mongo": Suite(["test/test_*.js"], runner="mocha", options=["--file", "test/setup.js", "--exit"]),
    "winston-mongodb": Suite(["test/*-test.js"], runner="mocha", options=["--exit"], environment={"WINSTON_MONGODB_URL": "{uri}"}),
    "mongoose-delete": Suite(["test/*.js"], runner="mocha", options=["--exit"], environment={"MONGOOSE_TEST_URI": "{uri}"}),
    "mongoose-paginate": Suite(["tests/*.js"], runner="mocha", options=["--exit"], replace=NO_PORT),
}

# for clients that are made without a port
PLUGIN = """
import os, pymongo

for client in (pymongo.MongoClient, getattr(pymongo, "AsyncMongoClient", None)):
    if client:
        client.PORT = int(os.environ["TRUCE_SUITE_PORT"])
"""


def read_exceptions(suite):
    """Returns the patterns of the tests that are expected to fail, and the files that are not run, each with its reason."""
    failing, not_run, current, reason = {}, {}, None, None
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            current, reason = line.strip("[]"), None
            if current not in SUITES:
                sys.exit(f"exceptions.txt: there is no suite {current}")
        elif not line.startswith(" "):
            reason = line
        elif not reason:
            sys.exit(f"exceptions.txt: no reason precedes {line.strip()}")
        elif current == suite:
            pattern = line.strip()
            (not_run if pattern.startswith("not-run ") else failing)[pattern.removeprefix("not-run ")] = reason
    return failing, not_run


def matches(pattern, name):
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.DOTALL)


def copy(name, source, folder, suite, server):
    """Copies the distribution, and replaces the server's address in the copy."""
    shutil.copytree(source, folder, symlinks=True)
    for path, content in suite.files.items():
        (folder / path).write_text(content)
    replacements = [(r"\b27017\b", "{port}"), *suite.replace]
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".js") and path.is_file() and "node_modules" not in path.parts:
            text = other = path.read_text()
            for pattern, replacement in replacements:
                other = re.sub(pattern, fill(replacement, server), other)
            if other != text:
                path.write_text(other)
    if suite.runner != "pytest":  # the modules, and the copy itself under the package's name
        (folder.parent / "node_modules").symlink_to(source.parent / "node_modules")
        (folder / "node_modules").mkdir(exist_ok=True)
        (folder / "node_modules" / name).symlink_to(folder)


def fill(text, server):
    for name, value in server.items():
        text = text.replace("{" + name + "}", value)
    return text


def run_pytest(suite, folder, environment, not_run, scratch):
    """Yields each test: its name, what is wrong with it (or None), and whether it was skipped."""
    (scratch / "suite_port.py").write_text(PLUGIN)
    results = scratch / "results.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "suite_port", "-p", "no:cacheprovider", "--tb=short", "-o", "addopts="]
        + ["-o", "filterwarnings=ignore", "--timeout=120", f"--junitxml={results}", *suite.options]
        + [f"--ignore={name}" for name in not_run]
        + suite.tests,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in (0, 1) or not results.exists():
        print(done.stdout[-3000:])
        sys.exit(f"pytest ended with {done.returncode}")
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        name = f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        yield name, None if broken is None else broken.get("message") or "failed", case.find("skipped") is not None


COMMANDS = {"tape": ["tape"], "mocha": ["mocha", "--reporter", "tap"], "ava": ["ava", "--tap"]}


def run_node(suite, folder, environment, not_run, scratch):
    """Yields the same for a suite of Node, whose runners print the Test Anything Protocol."""
    files = sorted(str(path.relative_to(folder)) for pattern in suite.tests for path in folder.glob(pattern))
    files = [file for file in files if file not in not_run]
    for group in [files] if suite.together else [[file] for file in files]:
        yield from run_process(suite, group, folder, environment)


def run_process(suite, files, folder, environment):
    program, *options = COMMANDS[suite.runner]
    command = ["node", f"../node_modules/.bin/{program}", *options, *suite.options, *files]
    file = files[0] if len(files) == 1 else "all"
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
        output, end = done.stdout, f"exit code {done.returncode}: {done.stderr[-300:]}" if done.returncode else None
    except subprocess.TimeoutExpired as expired:
        output, end = (expired.stdout or b"").decode(), f"no end within {TIMEOUT} s"
    title, lines, failed, left = "", output.splitlines(), False, 0
    for at, line in enumerate(lines):
        if suite.runner == "tape" and line.startswith("# "):
            title = line[2:] + ": "
        plan = re.match(r"1\.\.(\d+)$", line)
        if plan:  # the number of tests, which some runners print first and others last
            left += int(plan[1])
        found = re.match(r"(not )?ok \d+ (?:- )?(.*?)( # (?:SKIP|TODO).*)?$", line)
        if found:
            failed, left = failed or bool(found[1]), left - 1
            wrong = " ".join(text.strip() for text in lines[at + 1 : at + 12]) if found[1] else None
            yield f"{file}: {title}{found[2]}", wrong, bool(found[3])
    if end and (not failed or left != 0):
        yield f"{file}: process", end, False


def judge(results, failing):
    """Returns how many tests passed, how many failed as expected for each reason, and what is wrong."""
    passed, expected, wrong, needed = 0, collections.Counter(), [], set()
    for name, broken, skipped in results:
        pattern = next((pattern for pattern in failing if matches(pattern, name)), None)
        if broken is None:
            passed += not skipped
        elif pattern:
            needed.add(pattern)
            expected[failing[pattern]] += 1
        else:
            wrong.append(f"{name}: {broken[:500]}")
    wrong += [f"{pattern} passes: remove it from exceptions.txt" for pattern in failing if pattern not in needed]
    return passed, expected, wrong


def main():
    name, source = sys.argv[1], pathlib.Path(sys.argv[2])
    suite, uri = SUITES[name], os.environ["TRUCE_TEST_CLIENT_URI"]
    server = {"uri": uri, "port": re.match(r"mongodb://[^:/]+:(\d+)", uri).group(1)}
    failing, not_run = read_exceptions(name)
    environment = {**os.environ, "TRUCE_SUITE_PORT": server["port"]}
    environment |= {key: fill(value, server) for key, value in suite.environment.items()}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder = scratch / "source"
        copy(name, source, folder, suite, server)
        run = run_pytest if suite.runner == "pytest" else run_node
        passed, expected, wrong = judge(run(suite, folder, environment, not_run, scratch), failing)
    for sentence in wrong:
        print(f"    {name}: {sentence}")
    for what, reason in not_run.items():
        print(f"skipped: {name}: {what}: {reason}")
    for reason, count in expected.items():
        print(f"expected to fail: {name}: {count}: {reason}")
    print(f"{source.name}: {passed} passed, {len(wrong)} failed, {expected.total()} expected to fail")
    sys.exit(1 if wrong or not passed else 0)


main()
