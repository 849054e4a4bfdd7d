"""
Helpers for the tests of programs that use truce.

    from truce.testing import assert_enqueued, run_jobs

    def test_welcome(truce_db):                    # a fixture of pytest: an empty database in memory
        register(truce_db, "ada@example.org")
        assert_enqueued(truce_db, "mail", payload={"to": "ada@example.org"})
        run_jobs(truce_db, "mail", send)           # in this thread; an exception of send fails the test

pytest finds the fixture `truce_db` when the package is installed.
"""
from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional

from . import Database, Job, Suspended
from ._values import Document, Reply

_MISSING = object()


def _matches(value: Any, wanted: Any) -> bool:
    """Returns whether a document has the wanted fields with these values, at any depth."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return all(_matches(value.get(name, _MISSING), one) for name, one in wanted.items())
    return bool(value == wanted)


def enqueued(db: Database, queue: str, *, payload: Optional[Document] = None) -> List[Reply]:
    """Returns the jobs of a queue that have not begun, whose payload has these fields."""
    jobs = [
        job
        for job in db.iterate_jobs(queue)
        if job["state"] in ("ready", "delayed", "waiting", "blocked")
    ]
    return [job for job in jobs if _matches(job.get("payload", {}), payload or {})]


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


def run_jobs(db: Database, queue: str, handler: Callable[[Job], Any]) -> int:
    """
    Runs the jobs that are ready, one after the other, in this thread, and returns their number. If
    the handler raises, the job fails and the exception propagates.
    """
    count = 0
    while True:
        jobs = db.claim_jobs(queue)
        if not jobs:
            return count
        job = jobs[0]
        try:
            result = handler(job)
        except Suspended:
            continue
        except BaseException as error:
            if not job.ended:
                job.fail(error)
            raise
        if not job.ended:
            job.done(result if isinstance(result, dict) else None)
        count += 1
