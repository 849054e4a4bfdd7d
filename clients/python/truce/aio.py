"""
truce for asyncio: the same classes and methods as in `truce`, as coroutines.

    from truce import aio

    async with aio.open("school.truce") as db:
        await db.enqueue("mail", payload={"to": "ada@example.org"})

In process, each call runs in a thread of a pool.
"""
from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
from typing import Any, Awaitable, Callable, Dict, List, Optional, Sequence, Set, Union

import pymongo
from bson.codec_options import CodecOptions

from . import _telemetry, errors
from ._async_collection import AsyncChangeStream as ChangeStream
from ._async_collection import AsyncCollection as Collection
from ._async_collection import AsyncCursor as Cursor
from ._async_collection import AsyncFindCursor as FindCursor
from ._async_database import AsyncCommit as Commit
from ._async_database import AsyncDatabase as Database
from ._async_database import AsyncEdit as Edit
from ._async_handles import AsyncLedger as Ledger
from ._async_handles import AsyncQueue as Queue
from ._async_handles import AsyncRevision as Revision
from ._async_handles import AsyncRevisions as Revisions
from ._async_job import AsyncJob as Job
from ._async_job import AsyncJobCommit as JobCommit
from ._async_job import AsyncJobStep as JobStep
from ._native import NativeStore
from ._transport import AsyncNativeTransport, AsyncServerTransport, client_options, name_in_client, name_in_uri
from ._public import public
from ._values import Duration, duration_milliseconds, named_options
from ._worker import WorkerLog, check_worker, worker_name

__all__ = [
    "ChangeStream",
    "Collection",
    "Commit",
    "Cursor",
    "Database",
    "Edit",
    "FindCursor",
    "Job",
    "JobCommit",
    "JobStep",
    "Ledger",
    "Queue",
    "Revision",
    "Revisions",
    "Worker",
    "connect",
    "open",
]

_RETRY_SECONDS = 1.0


@named_options
def open(
    path: Union[str, "os.PathLike[str]"],
    database: Optional[str] = None,
    *,
    read_only: bool = False,
    must_exist: bool = False,
    relaxed: bool = False,
    deadline_ms: Duration = 0,
    snapshot_age_ms: Duration = 0,
    cache_mb: int = 0,
    codec_options: Optional[CodecOptions[Dict[str, Any]]] = None,
    threads: int = 32,
) -> Database:
    """Opens a store in this process, as `truce.open` does. At most `threads` calls run at a time."""
    options = {
        "read_only": read_only,
        "must_exist": must_exist,
        "relaxed": relaxed,
        "deadline_ms": duration_milliseconds("deadline_ms", deadline_ms),
        "snapshot_age_ms": duration_milliseconds("snapshot_age_ms", snapshot_age_ms),
        "cache_mb": cache_mb,
    }
    store = NativeStore(path, codec_options, options)
    return Database(AsyncNativeTransport(store, threads), database)


def connect(
    uri: "Union[str, pymongo.AsyncMongoClient[Dict[str, Any]]]",
    database: Optional[str] = None,
    **options: Any,
) -> Database:
    """Returns a database of a server, as `truce.connect` does. `uri` may be an AsyncMongoClient."""
    if isinstance(uri, str):
        options = client_options(uri, options)
        client: pymongo.AsyncMongoClient[Dict[str, Any]] = pymongo.AsyncMongoClient(uri, **options)
        return Database(AsyncServerTransport(client, True), database or name_in_uri(uri))
    if options:
        raise TypeError(f"options are for a URI, not for a client: {', '.join(options)}")
    return Database(AsyncServerTransport(uri, False), database or name_in_client(uri))


@public
class Worker(WorkerLog):
    """
    Runs `await handler(job)` for the jobs of a queue, `concurrency` of them at a time, as
    `truce.Worker` does by threads.

        await aio.Worker(db, "mail", send, concurrency=100).run()
    """

    def __init__(
        self,
        database: Database,
        queue: str,
        handler: Callable[[Job], Awaitable[Any]],
        *,
        concurrency: int = 1,
        lease_ms: Duration = 30000,
        wait_ms: Duration = 1000,
        until_empty: bool = False,
        name: Optional[str] = None,
    ) -> None:
        """The options are those of `truce.Worker`."""
        self._lease_ms = check_worker(
            database, queue, handler, concurrency, lease_ms, is_async=True
        )
        self.queue = queue
        self._database = database
        self._handler = handler
        self._concurrency = concurrency
        self._wait_ms = 0 if until_empty else wait_ms
        self._until_empty = until_empty
        self._name = name or worker_name()
        self._stop = False
        self._checks = True  # whether the next claim checks the name of the queue
        self._jobs: Set[Job] = set()
        self._tasks: Set["asyncio.Task[None]"] = set()

    def stop(self) -> None:
        """Asks the worker to end after its running jobs. Call it in the thread of the event loop."""
        if not self._stop:
            self._log_stop(len(self._jobs))
        self._stop = True

    async def run(self, *, signals: Sequence[signal.Signals] = ()) -> None:
        """
        Runs until `stop`, or until one of the signals: [signal.SIGTERM, signal.SIGINT] if the
        worker is the whole program. The next signal has its usual effect. If the task is canceled,
        running handlers are canceled, and their jobs are requeued.
        """
        loop = asyncio.get_running_loop()

        def stop(one: signal.Signals) -> None:
            loop.remove_signal_handler(one)
            self.stop()

        for one in signals:
            loop.add_signal_handler(one, stop, one)
        heart = asyncio.create_task(self._keep_leases())
        self._log(logging.INFO, "started, concurrency %d", self._concurrency)
        try:
            await self._claim_all()
        except errors.TruceError as error:
            self._log(logging.ERROR, "ended: %s", error)
            raise
        finally:
            heart.cancel()
            for one in signals:
                loop.remove_signal_handler(one)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(heart, *self._tasks, return_exceptions=True)
        self._log(logging.INFO, "ended")

    async def _claim_all(self) -> None:
        """Claims as many jobs as there is room for, with one call that waits."""
        while not self._stop:
            jobs = await self._claim(self._concurrency - len(self._tasks))
            for job in jobs:
                task = asyncio.create_task(self._run_job(job))
                self._tasks.add(task)
            if not jobs and self._until_empty and not self._tasks:
                return
            full = len(self._tasks) >= self._concurrency
            if self._tasks and (full or (self._until_empty and not jobs)):
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._collect()
        while self._tasks:
            await asyncio.wait(self._tasks)
            self._collect()

    def _collect(self) -> None:
        """Removes the tasks that have ended, and raises what ended the worker."""
        ended = {task for task in self._tasks if task.done()}
        self._tasks -= ended
        for task in ended:
            task.result()

    async def _claim(self, most: int) -> List[Job]:
        check, self._checks = self._checks or None, False
        claim = asyncio.ensure_future(
            self._database._claim_jobs(
                self.queue,
                most=min(most, 1000),
                wait_ms=self._wait_ms,
                lease_ms=self._lease_ms,
                worker=self._name,
                check=check,
            )
        )
        try:
            jobs, note = await asyncio.shield(claim)
        except errors.TruceError as error:
            if not errors.is_temporary(error):
                raise
            self._log(logging.WARNING, "could not claim a job: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            return []
        except asyncio.CancelledError:
            claimed, _ = await claim  # The claim may have succeeded.
            for job in claimed:
                await job._requeue()
            raise
        if note:
            self._log(logging.WARNING, "got no job: %s", note)
        return jobs

    async def _run_job(self, job: Job) -> None:
        self._jobs.add(job)
        try:
            with _telemetry.work(job):
                await self._handle(job)
        finally:
            self._jobs.discard(job)

    async def _handle(self, job: Job) -> None:
        try:
            result = self._handler(job)
            # The result of a plain function is not awaited: an error would make the job run again.
            await job._finish(await result if inspect.isawaitable(result) else result)
        except Exception as error:
            await job._failed(error)
        except asyncio.CancelledError:
            await asyncio.shield(job._requeue())
            raise

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            for job in [job for job in self._jobs if not job.ended and not job.lost]:
                try:
                    await job.heartbeat()
                except errors.Expired:
                    pass  # heartbeat() has set job.lost.
                except errors.TruceError as error:
                    text = "job %s of queue %s: no heartbeat: %s"
                    job.log.warning(text, job.id, self.queue, error)
