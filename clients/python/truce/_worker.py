"""Workers: threads that claim jobs, run a function, and report its outcome."""
from __future__ import annotations

import datetime
import inspect
import logging
import os
import signal
import socket
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from . import _telemetry, errors
from ._database import Database
from ._job import Job
from ._public import public
from ._values import Duration, duration_milliseconds

_logger = logging.getLogger("truce")
_RETRY_SECONDS = 1.0
_IS_COROUTINE = "the handler is a coroutine function, which only truce.aio.Worker can run"


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def check_worker(
    database: Any, queue: Any, handler: Any, concurrency: Any, lease_ms: Any, *, is_async: bool
) -> int:
    """Returns the lease in milliseconds. Raises an exception for a wrong argument."""
    if not hasattr(database, "claim_jobs"):
        raise TypeError(f"the first argument of Worker must be a database of truce, not {database!r}")
    if hasattr(database, "__aenter__") != is_async:
        other, own = ("truce.", "truce.aio.") if is_async else ("truce.aio.", "truce.")
        raise TypeError(
            f"{own}Worker needs a database of {own}open or {own}connect, and not of {other}open or "
            f"{other}connect, whose worker is {other}Worker"
        )
    if not isinstance(queue, str):
        raise TypeError(f"the queue must be a string, not {queue!r}")
    if not callable(handler):
        raise TypeError(f"the handler must be a function, not {handler!r}")
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency must be an integer from 1, not {concurrency!r}")
    is_duration = isinstance(lease_ms, (int, datetime.timedelta))
    lease = duration_milliseconds("lease_ms", lease_ms) if is_duration else None
    if lease is None or lease < 1:
        raise ValueError(
            f"lease_ms must be a timedelta or an integer of milliseconds from 1, not {lease_ms!r}"
        )
    return lease


class WorkerLog:
    """Logs the messages of a worker, blocking or for asyncio."""

    queue: str
    _name: str

    def _log(self, level: int, text: str, *values: object) -> None:
        more = {"queue": self.queue, "worker": self._name}
        text = f"worker %s of queue %s {text}"
        _logger.log(level, text, self._name, self.queue, *values, extra=more)

    def _log_stop(self, jobs: int) -> None:
        self._log(logging.INFO, "stopping; waiting for %d %s", jobs, "job" if jobs == 1 else "jobs")


@public
class Worker(WorkerLog):
    """
    Runs `handler(job)` for the jobs of a queue, `concurrency` of them at a time.

    The job stores the result of the handler: a dict, or {"value": result}. If the handler raises,
    the job fails and is tried again later. The worker extends the leases of running jobs;
    `job.lost` says that a job was canceled or is lost. If the server is away, the worker waits for
    it.

        Worker(db, "mail", send, concurrency=8).run()      # until SIGTERM or SIGINT

    `stop()` ends the worker: no further job is claimed, and the running ones end. In `with`, the
    worker runs concurrently with the block and stops at its end.

    The logger "truce" gets the start, the stop, and the end of each job as INFO, and claims as
    DEBUG. Failed jobs are ERROR, and what the worker cannot report is WARNING.
    """

    def __init__(
        self,
        database: Database,
        queue: str,
        handler: Callable[[Job], Any],
        *,
        concurrency: int = 1,
        lease_ms: Duration = 30000,
        wait_ms: Duration = 1000,
        until_empty: bool = False,
        name: Optional[str] = None,
    ) -> None:
        """
        concurrency: the number of jobs, each in its own thread
        lease_ms: how long a claim lasts if the worker dies
        wait_ms: how long one call waits for a job; `stop` may take this long
        until_empty: ends the worker when the queue has no ready job
        name: the worker's name in the jobs
        """
        self._lease_ms = check_worker(
            database, queue, handler, concurrency, lease_ms, is_async=False
        )
        if inspect.iscoroutinefunction(handler):
            raise TypeError(_IS_COROUTINE)
        self.queue = queue
        self._database = database
        self._handler = handler
        self._concurrency = concurrency
        self._wait_ms = 0 if until_empty else wait_ms
        self._until_empty = until_empty
        self._name = name or worker_name()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._threads: List[threading.Thread] = []
        self._lock = threading.Lock()
        self._jobs: Set[Job] = set()
        self._working = 0
        self._checks = True  # whether the next claim checks the name of the queue
        self._error: Optional[BaseException] = None

    # ---- start and end ----

    def start(self) -> None:
        """Starts the threads and returns."""
        if self._threads:
            raise RuntimeError("the worker was already started: create a new Worker")
        self._working = self._concurrency
        targets = [self._work] * self._concurrency + [self._keep_leases]
        self._threads = [
            threading.Thread(target=target, name=f"truce worker {self.queue}", daemon=True)
            for target in targets
        ]
        self._log(logging.INFO, "started, concurrency %d", self._concurrency)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks the worker to end after its running jobs. Any thread may call it."""
        if self._threads and not self._stop.is_set() and not self._ended.is_set():
            self._log_stop(len(self._jobs))
        self._stop.set()

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits until the worker has ended. Returns False after `timeout` seconds. Raises the error
        that ended the worker."""
        if not self._ended.wait(timeout):
            return False
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return True

    def run(self, *, signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)) -> None:
        """
        Runs until `stop`, or until one of the signals if this is the main thread. The next signal
        has its usual effect, so it ends a program whose jobs do not end.
        """
        before: Dict[int, Any] = {}

        def stop(number: int, _: object) -> None:
            signal.signal(number, before[number])
            self.stop()

        if threading.current_thread() is threading.main_thread():
            before = {one: signal.getsignal(one) or signal.SIG_DFL for one in signals}
            for one in signals:
                signal.signal(one, stop)
        try:
            self.start()
            self.join()
        finally:
            self.stop()
            for one, handler in before.items():
                signal.signal(one, handler)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    # ---- the threads ----

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                job = self._claim()
                if job is not None:
                    self._run_job(job)
                elif self._until_empty:
                    break
        except BaseException as error:
            self._error = error
            self._stop.set()
        finally:
            with self._lock:
                self._working -= 1
                ended = self._working == 0
            if ended:
                if self._error is None:
                    self._log(logging.INFO, "ended")
                else:
                    self._log(logging.ERROR, "ended: %s", self._error)
                self._ended.set()

    def _claim(self) -> Optional[Job]:
        check, self._checks = self._checks or None, False
        try:
            jobs, note = self._database._claim_jobs(
                self.queue,
                wait_ms=self._wait_ms,
                lease_ms=self._lease_ms,
                worker=self._name,
                check=check,
            )
        except errors.TruceError as error:
            if not errors.is_temporary(error):
                raise
            self._log(logging.WARNING, "could not claim a job: %s", error)
            self._stop.wait(_RETRY_SECONDS)
            return None
        if note:
            self._log(logging.WARNING, "got no job: %s", note)
        return jobs[0] if jobs else None

    def _run_job(self, job: Job) -> None:
        with self._lock:
            self._jobs.add(job)
        try:
            with _telemetry.work(job):
                self._handle(job)
        finally:
            with self._lock:
                self._jobs.discard(job)

    def _handle(self, job: Job) -> None:
        try:
            result = self._handler(job)
            if inspect.iscoroutine(result):
                result.close()  # Suppresses the warning that it was never awaited.
                raise TypeError(_IS_COROUTINE)
            job._finish(result)
        except Exception as error:
            job._failed(error)
        except BaseException:
            job._requeue()
            raise

    def _keep_leases(self) -> None:
        while not self._ended.wait(self._lease_ms / 3000):
            with self._lock:
                jobs = [job for job in self._jobs if not job.ended and not job.lost]
            for job in jobs:
                try:
                    job.heartbeat()
                except errors.Expired:
                    pass  # heartbeat() has set job.lost.
                except errors.TruceError as error:
                    text = "job %s of queue %s: no heartbeat: %s"
                    job.log.warning(text, job.id, self.queue, error)
