"""The drivers' published specifications, as pymongo's own tests run them, against `truce serve`.

    run.py SDIST [TEST...]      SDIST: the folder of pymongo's source distribution; its `test` has specifications and runners

exceptions.txt lists the tests that do not pass, with the reasons. The run fails if another test fails, or if an exception is not needed any more.
Tests under "not-run" wait for a long time and are left out. TRUCE_TEST_CLIENT_URI names a server like a replica set, with --test-commands and a
change feed. Tests of logins use a second server with TLS and a user: TRUCE_TEST_CLIENT_AUTH_URI.
"""

import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
TESTS = """
    auth_spec causal_consistency change_stream collection_management command_logging command_monitoring
    crud_unified crud_v1 gridfs_spec index_management read_write_concern_spec
    retryable_reads retryable_reads_unified retryable_writes retryable_writes_unified run_command session
    sessions_unified transactions transactions_unified unified_format uri_parser uri_spec versioned_api_integration
""".split()
LOGINS = """
    auth client.py::TestClient::test_auth_from_uri client.py::TestClient::test_username_and_password
    client.py::TestClient::test_lazy_auth_raises_operation_failure client.py::TestClient::test_auth_network_error
""".split()
MARKERS = "auth auth_aws auth_oidc atlas_connect default default_async encryption kms load_balancer mockupdb ocsp perf search_index sfp"


def read_exceptions():
    exceptions, not_run = {}, []
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            if pattern == "not-run":
                pattern, _, reason = reason.partition(" ")
                not_run.append(pattern)
            else:
                exceptions[pattern] = reason
            if not reason:
                sys.exit(f"exceptions.txt: {pattern} has no reason")
    return exceptions, not_run


def server(uri):
    """The settings by which pymongo's tests find the server of the URI, and log in."""
    user, password, host, port = re.match(r"mongodb://(?:([^:]+):([^@]+)@)?([^:/]+):(\d+)", uri).groups()
    found = {"DB_IP": host, "DB_PORT": port}
    if user:
        found |= {"DB_USER": user, "DB_PASSWORD": password, "CA_PEM": uri.partition("tlsCAFile=")[2], "CLIENT_PEM": ""}
    return found


def run(tests, at, not_run, folder):
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\nmarkers =\n" + "".join(f"    {m}: {m}\n" for m in MARKERS.split()))
    results = folder / "results.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", settings, "--rootdir", ".", "-p", "no:cacheprovider", "-q"]
        + ["--assert=plain", "--tb=native", "--timeout=120", "-W", "ignore", "-m", "default or auth"]
        + ["-o", "junit_logging=no", f"--junitxml={results}"]
        + [f"--deselect=test/test_{test}" for test in not_run]
        + [f"test/test_{test}" if ".py" in test else f"test/test_{test}.py" for test in tests],
        cwd=sys.argv[1],
        env={**os.environ, **at, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in (0, 1) or not results.exists():
        print(done.stdout[-3000:])
        sys.exit(f"pytest ended with {done.returncode}")
    return xml.etree.ElementTree.parse(results)


def main():
    exceptions, not_run = read_exceptions()
    chosen, cases = sys.argv[2:], []
    for tests, uri in (TESTS, "TRUCE_TEST_CLIENT_URI"), (LOGINS, "TRUCE_TEST_CLIENT_AUTH_URI"):
        with tempfile.TemporaryDirectory() as folder:
            tests = [test for test in tests if not chosen or test in chosen]
            if tests:
                cases += run(tests, server(os.environ[uri]), not_run, pathlib.Path(folder)).iter("testcase")
    passed = skipped = known = 0
    new, needed = [], set()
    for case in cases:
        name = re.sub(r"^(test\.)?test_", "", case.get("classname")) + "." + case.get("name")
        wrong = [x for x in case if x.tag in ("failure", "error")]
        if wrong:
            found = [p for p in exceptions if fnmatch.fnmatchcase(name, p)]
            needed.update(found)
            known += bool(found)
            if not found:
                new.append(f"{name}: {' '.join((wrong[0].get('message') or '').split())[:300]}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    print(f"pymongo's specification tests: {passed} passed, {known} known exceptions, {skipped} skipped, {len(new)} failed")
    for line in new:
        print("   ", line)
    unneeded = [] if chosen else sorted(set(exceptions) - needed)
    for pattern in unneeded:
        print(f"    exceptions.txt: nothing needs {pattern} any more")
    if not passed:
        sys.exit("nothing was tested")
    sys.exit(1 if new or unneeded else 0)


main()
