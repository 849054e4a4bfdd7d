"""The tests that others wrote for what they built on pymongo, as they come, against `truce serve`: TRUCE_TEST_CLIENT_URI.

    run.py SUITE FOLDER     FOLDER: the unpacked source distribution, with its tests

What does not hold stands below with the reason. It fails whatever else fails, and an exception that nothing needs any more.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

GEO = "indexes of places (2d) are not supported"
TXMONGO = "looks for its server at 27017 only"

SUITES = {
    "umongo": {"tests": ["tests"], "ignore": {"tests/frameworks/test_txmongo.py": TXMONGO}, "exceptions": {}},
    "eve": {
        "tests": ["eve/tests"],
        "ignore": {},
        "exceptions": {
            "TestConfig.test_create_indexes": GEO,
            "TestMethodsAcrossMultiMongo.test_create_index_with_mongo_uri_and_prefix": GEO,
        },
    },
}

# where a suite says nothing of its server, or 27017
PLUGIN = """
import os, pymongo

for client in (pymongo.MongoClient, getattr(pymongo, "AsyncMongoClient", None)):
    if client:
        client.PORT = int(os.environ["TRUCE_SUITE_PORT"])
"""


def prepare(folder, port):
    """Who names the port in words gets the other one; the names of Eve's files are not those that pytest looks for."""
    for path in folder.rglob("*.py"):
        text = path.read_text()
        other = re.sub(r"\b27017\b", port, text)
        if other != text:
            path.write_text(other)


def run(suite, folder, port, scratch):
    (scratch / "suite_port.py").write_text(PLUGIN)
    results = scratch / "results.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "suite_port", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
        + ["-o", "addopts=", "-o", "python_files=*.py", "--timeout=120", f"--junitxml={results}"]
        + [f"--ignore={name}" for name in suite["ignore"]]
        + suite["tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "TRUCE_SUITE_PORT": port},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in (0, 1) or not results.exists():
        print(done.stdout[-3000:])
        sys.exit(f"pytest ended with {done.returncode}")
    return xml.etree.ElementTree.parse(results)


def judge(results, exceptions):
    """How many passed, and what is wrong, as sentences."""
    passed, wrong, needed = 0, [], set()
    for case in results.iter("testcase"):
        name = f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is None:
            passed += case.find("skipped") is None
        elif name in exceptions:
            needed.add(name)
        else:
            wrong.append(f"{name}: {(broken.get('message') or '')[:500]}")
    wrong += [f"{name} holds by now: it is no exception" for name in exceptions if name not in needed]
    return passed, wrong


def main():
    name, source = sys.argv[1], pathlib.Path(sys.argv[2])
    suite = SUITES[name]
    port = re.match(r"mongodb://[^:/]+:(\d+)", os.environ["TRUCE_TEST_CLIENT_URI"]).group(1)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder = scratch / "source"
        subprocess.run(["cp", "-r", str(source), str(folder)], check=True)
        prepare(folder, port)
        passed, wrong = judge(run(suite, folder, port, scratch), suite["exceptions"])
    for sentence in wrong:
        print(f"    {name}: {sentence}")
    for what, reason in {**suite["ignore"], **suite["exceptions"]}.items():
        print(f"skipped: {name}: {what}: {reason}")
    print(f"{source.name}: {passed} passed, {len(wrong)} failed")
    sys.exit(1 if wrong or not passed else 0)


main()
