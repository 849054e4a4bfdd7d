"""Extends the lease of one job, in the form of each kind of loop."""
from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Optional

from . import errors

if TYPE_CHECKING:
    from ._async_job import AsyncJob
    from ._job import Job


class Lease:
    """In `with`, a thread extends the lease of the job until the job has ended or is lost."""

    def __init__(self, job: Job, lease_ms: int) -> None:
        self._job = job
        self._seconds = lease_ms / 3000
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._extend, name="truce lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _extend(self) -> None:
        while not self._end.wait(self._seconds) and not self._job.ended and not self._job.lost:
            try:
                self._job.heartbeat()
            except errors.Expired:
                pass  # heartbeat() has set job.lost.
            except errors.TruceError as error:
                self._job.log.warning("job %s: no heartbeat: %s", self._job.id, error)


class AsyncLease:
    """In `async with`, a task extends the lease of the job until the job has ended or is lost."""

    def __init__(self, job: AsyncJob, lease_ms: int) -> None:
        self._job = job
        self._seconds = lease_ms / 3000
        self._task: Optional["asyncio.Task[None]"] = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._extend())

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            if self._job.ended or self._job.lost:
                return
            try:
                await self._job.heartbeat()
            except errors.Expired:
                pass  # heartbeat() has set job.lost.
            except errors.TruceError as error:
                self._job.log.warning("job %s: no heartbeat: %s", self._job.id, error)
