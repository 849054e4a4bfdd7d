"""
Helpers for the tests of programs that use truce.

    from truce.testing import assert_enqueued, run_jobs

    def test_welcome(truce_db):                    # a fixture of pytest: an empty database in memory
        register(truce_db, "ada@example.org")
        assert_enqueued(truce_db, "mail", payload={"to": "ada@example.org"})
        run_jobs(truce_db, "mail", send)           # in this thread; an exception of send fails the test

When the package is installed, pytest finds these fixtures:

    truce_db        an empty database in memory
    truce_file_db   the same in a temporary file
    truce_server    the URI of an empty private server, which needs the program truce
"""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Set
from urllib.parse import quote

from . import Database, Job, Suspended, _telemetry
from . import open as open_store
from ._values import Document, Reply, named_options, result_document

_MISSING = object()


# ---- stores and servers --------------------------------------------------------------------------


@contextmanager
def open_temporary(database: Optional[str] = None) -> Iterator[Database]:
    """An empty database in a temporary file, which is removed at the end of `with`."""
    with tempfile.TemporaryDirectory(prefix="truce-test-") as folder:
        with open_store(os.path.join(folder, "test.truce"), database) as db:
            yield db


@named_options
@contextmanager
def start_server(
    file: str = "memory:", *, program: Optional[str] = None, args: Sequence[str] = ()
) -> Iterator[str]:
    """
    Starts `truce serve` on a Unix socket for the time of `with`, and yields its URI with the database.

    file: the store; without one, it is empty and in memory
    program: the path of the program; absent: that of TRUCE_PROGRAM, or "truce"
    args: further options of `truce serve`
    """
    program = program or os.environ.get("TRUCE_PROGRAM") or "truce"
    with tempfile.TemporaryDirectory(prefix="truce-test-") as folder:
        socket, log = os.path.join(folder, "truce.sock"), os.path.join(folder, "log")
        command = [program, "serve", file, "--socket", socket, "--parent", str(os.getpid())]
        with open(log, "wb") as errors:
            try:
                server = subprocess.Popen(
                    [*command, "--json", "--quiet", *args],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except FileNotFoundError:
                raise FileNotFoundError(
                    f'no program "{program}": install truce, or set TRUCE_PROGRAM to its path'
                ) from None
        with server:
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                if not line:
                    with open(log, errors="replace") as text:
                        said = text.read()[-4000:].strip()
                    raise RuntimeError(f'"{program} serve {file}" ended: {said}')
                yield _with_database(json.loads(line)["listening"], args)
            finally:
                server.terminate()


def _with_database(uri: str, args: Sequence[str]) -> str:
    """Adds the database to the URI of a server: that of --database, or test."""
    name = "test"
    for index, arg in enumerate(args):
        if arg.startswith("--database="):
            name = arg.split("=", 1)[1]
        elif arg == "--database" and index + 1 < len(args):
            name = args[index + 1]
    return f"{uri.rstrip('/')}/{quote(name)}"


# ---- queues --------------------------------------------------------------------------------------


def _matches(value: Any, wanted: Any) -> bool:
    """Returns whether a document has the wanted fields with these values, at any depth."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return all(_matches(value.get(name, _MISSING), one) for name, one in wanted.items())
    return bool(value == wanted)


@named_options
def enqueued(db: Database, queue: str, *, payload: Optional[Document] = None) -> List[Reply]:
    """Returns the jobs of a queue that have not begun, whose payload has these fields."""
    jobs = [
        job
        for job in db.iterate_jobs(queue)
        if job["state"] in ("ready", "delayed", "waiting", "blocked")
    ]
    return [job for job in jobs if _matches(job.get("payload", {}), payload or {})]


@named_options
def assert_enqueued(
    db: Database, queue: str, *, payload: Optional[Document] = None, count: Optional[int] = None
) -> List[Reply]:
    """
    Fails unless the queue has a job whose payload has these fields, or exactly `count` of them.
    Returns the jobs.
    """
    found = enqueued(db, queue, payload=payload)
    if count is None and not found or count is not None and len(found) != count:
        wanted = "a job" if count is None else f"{count} jobs"
        others = [job.get("payload", {}) for job in enqueued(db, queue)]
        raise AssertionError(
            f"expected {wanted} of queue {queue!r} with the payload {payload or {}!r}, found "
            f"{len(found)}; the payloads of its jobs: {others!r}"
        )
    return found


@named_options
def run_jobs(
    db: Database, queue: str, handler: Callable[[Job], Any], *, delayed: bool = False
) -> int:
    """
    Runs the jobs that are ready, one after the other, in this thread, and returns their number. If
    the handler raises, the job fails and the exception propagates; the next call of `run_jobs`
    tries the job again, without the delay of a retry.

    delayed: run delayed jobs, too, each once, as if their time had come
    """
    return _run_jobs(db, queue, handler, delayed, retry_ms=0)


def _run_jobs(
    db: Database,
    queue: str,
    handler: Callable[[Job], Any],
    delayed: bool = False,
    retry_ms: Optional[int] = None,
) -> int:
    count = 0
    due: Set[Any] = set()
    while True:
        jobs = db.claim_jobs(queue)
        if jobs:
            with _telemetry.work(jobs[0]):
                count += _run_job(jobs[0], handler, retry_ms)
        elif not delayed or not _make_due(db, queue, due):
            return count


def _make_due(db: Database, queue: str, due: Set[Any]) -> bool:
    """Makes the delayed jobs ready that are not in `due`, and adds them to `due`. Returns whether
    there are any."""
    jobs = db.iterate_jobs(queue, state="delayed")
    new = [job["_id"] for job in jobs if job["_id"] not in due]
    for id in new:
        due.add(id)
        db.queue_action(queue, action="retry", id=id)
    return bool(new)


@contextmanager
def inline(db: Database, handlers: Mapping[str, Callable[[Job], Any]]) -> Iterator[None]:
    """
    In `with`, the jobs that `db` enqueues run at once, in the thread of the call that enqueues
    them. Delayed jobs stay in the queue. If a handler raises, the job fails, and the exception
    propagates to that call.

        with inline(truce_db, {"mail": send}):
            register(truce_db, "ada@example.org")      # the mail is sent when this returns
    """
    command, transaction = db.command, db.transaction
    running = False

    def run() -> None:
        nonlocal running
        if running:  # A handler has enqueued a job.
            return
        running = True
        try:
            while sum([_run_jobs(db, queue, handler) for queue, handler in handlers.items()]):
                pass
        finally:
            running = False

    def command_and_jobs(document: Document, **options: Any) -> Reply:
        reply = command(document, **options)
        if next(iter(document)).startswith("truce"):
            run()
        return reply

    @contextmanager
    def transaction_and_jobs() -> Iterator[Database]:
        with transaction() as inner:
            yield inner
        run()

    setattr(db, "command", command_and_jobs)
    setattr(db, "transaction", transaction_and_jobs)
    try:
        yield
    finally:
        delattr(db, "command")
        delattr(db, "transaction")


def _run_job(job: Job, handler: Callable[[Job], Any], retry_ms: Optional[int]) -> bool:
    """Returns whether the job has ended; otherwise it is suspended."""
    try:
        result = handler(job)
    except Suspended:
        return False
    except BaseException as error:
        _telemetry.failed(error)
        if not job.ended:
            job.fail(error, delay_ms=retry_ms)
        raise
    if not job.ended:
        job.done(result_document(result))
    return True
