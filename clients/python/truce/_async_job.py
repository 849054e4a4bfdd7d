"""A claimed job."""
from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple, TypeVar

from . import _telemetry, errors
from ._commit_list import CommitList
from ._public import public
from ._values import (
    Document,
    Duration,
    Reply,
    duration_milliseconds,
    error_text,
    result_document,
    without_none,
)

if TYPE_CHECKING:
    from ._async_database import AsyncDatabase

L = TypeVar("L", bound=CommitList)
_log = logging.getLogger("truce")
_OUTCOMES = {
    "truceDone": "is done",
    "truceJobCommit": "is done",
    "truceSnooze": "returned to the queue",
    "truceDiscard": "was discarded",
}


@public
class AsyncJob:
    """
    A claimed job: `id`, `payload`, `attempt`, and `document`, all of it.

    At the end of `with`, the job is done. If the block raises an Exception, the job fails, the
    exception is logged, and the program continues after the block. Other exceptions, such as
    KeyboardInterrupt, requeue the job and propagate. If another worker has the job, its changes
    are refused (Expired).
    """

    def __init__(self, database: AsyncDatabase, queue: str, document: Reply) -> None:
        self.queue = queue
        self.document = document
        self.id = document["_id"]
        self.token = document["token"]
        self.payload: Reply = document.get("payload", {})
        self.metadata: Reply = document.get("metadata", {})
        self.attempt: int = document.get("attempt", 1)
        self.log = logging.LoggerAdapter(_log, {"queue": queue, "job": str(self.id)})
        # This worker has reported the end of the job.
        self.ended = False
        # A heartbeat was refused: the job was canceled, or another worker has it.
        self.lost = False
        self._database = database
        self._claimed = time.monotonic()
        # OpenTelemetry's context of the call that claimed the job.
        self._claim_context: Any = None
        self._work: Any = None
        # The commits and steps that the handler began.
        self._lists: List[CommitList] = []
        # The steps, sleeps, and waits that this attempt completes, has completed, or found complete:
        # the kind and the name of each.
        self._called: List[Tuple[str, str]] = []

    def _begun(self, changes: L) -> L:
        self._lists.append(changes)
        return changes

    def _forgotten(self) -> Optional[RuntimeError]:
        """Returns an error if the handler added changes and did not apply them."""
        lists, self._lists = self._lists, []
        for one in lists:
            if one.changes and not one._used:
                one._used = True  # Suppresses the warning of __del__.
                text = f"the changes of a {type(one).__name__} were never applied"
                return RuntimeError(f"{text}: use `with`, or call run()")
        return None

    async def _end(
        self, command: str, database: Optional[AsyncDatabase] = None, **fields: Any
    ) -> None:
        if self.ended:
            raise errors.Expired(f"job {self.id} has already ended", 125, {"status": "expired"})
        document = {command: self.queue, "id": self.id, "token": self.token, **fields}
        again = command in ("truceDone", "truceJobCommit")
        with _telemetry.end(self, command):
            await (database or self._database).command(without_none(document), again=again)
        self.ended = True
        if command in _OUTCOMES:
            self._log_end(logging.INFO, _OUTCOMES[command])

    def _log_end(self, level: int, outcome: str, error: Optional[Exception] = None) -> None:
        took = round(1000 * (time.monotonic() - self._claimed))
        values = (self.id, self.queue, outcome, self.attempt, took)
        self.log.log(level, "job %s of queue %s %s (attempt %d, %d ms)", *values, exc_info=error)

    async def done(
        self, result: Optional[Document] = None, *, database: Optional[AsyncDatabase] = None
    ) -> None:
        """Reports the end. With the database of a transaction, the job is done if it commits."""
        await self._end("truceDone", database, result=result)

    def commit(self, result: Optional[Document] = None) -> AsyncJobCommit:
        """Returns a commit for `with`: its changes and the end of the job are one."""
        return self._begun(AsyncJobCommit(self, result))

    async def fail(
        self,
        error: object,
        *,
        delay_ms: Optional[Duration] = None,
        database: Optional[AsyncDatabase] = None,
    ) -> None:
        """Reports a failure. The job is tried again later, or is dead after its last attempt."""
        text = error_text(error)
        await self._end("truceFail", database, error=text, delayMS=duration_milliseconds("delay_ms", delay_ms))
        self._log_end(logging.ERROR, f"failed: {text}")

    async def snooze(
        self, delay_ms: Duration = 0, *, database: Optional[AsyncDatabase] = None
    ) -> None:
        """Requeues the job for later. The attempt does not count."""
        await self._end("truceSnooze", database, delayMS=duration_milliseconds("delay_ms", delay_ms))

    async def discard(self, error: object, *, database: Optional[AsyncDatabase] = None) -> None:
        """Ends the job as discarded: it is not tried again."""
        text = error_text(error)
        await self._end("truceDiscard", database, error=text)

    # ---- steps: what happens once in all attempts ----

    def step(self, name: str, result: Optional[Document] = None) -> AsyncJobStep:
        """Returns a step for `with`: its changes take effect once in all attempts of the job.

        The name is unique in the job, and has no "." and "$". A second step of the same name in one
        attempt raises Invalid.
        """
        self._check_new("step", name)
        return self._begun(AsyncJobStep(self, name, result))

    def _check_new(self, kind: str, name: str) -> None:
        """Refuses the second call of a name: it would be skipped as if it were the first. Steps and
        sleeps share their names."""
        for earlier, other in self._called:
            if other == name and (earlier == "wait") == (kind == "wait"):
                raise errors.Invalid(
                    f"this attempt of the job has already begun the {earlier} {name!r}: give each "
                    f"{kind} its own name, for example with an index",
                    2,
                )

    @contextmanager
    def _call(self, kind: str, name: str) -> Iterator[None]:
        """Records the name of a call. A call that failed may be repeated."""
        self._check_new(kind, name)
        self._called.append((kind, name))
        try:
            yield
        except BaseException:
            self._called.remove((kind, name))
            raise

    async def sleep(self, name: str, delay_ms: Duration) -> None:
        """Suspends the job for a time, once for each name in all attempts. Raises Suspended until
        the time is over. A second sleep of the same name in one attempt raises Invalid."""
        with self._call("sleep", name):
            reply = await self._database.job_sleep(
                self.queue, id=self.id, token=self.token, name=name, delay_ms=delay_ms
            )
            self._check_suspended(reply)

    async def wait(self, name: str, timeout_ms: Optional[Duration] = None) -> Optional[Reply]:
        """Suspends the job until an event arrives (`signal`). Raises Suspended until then. Returns
        the event, or None if the time is over. A second wait of the same name in one attempt raises
        Invalid."""
        with self._call("wait", name):
            reply = await self._database.job_wait(
                self.queue, id=self.id, token=self.token, name=name, timeout_ms=timeout_ms
            )
            self._check_suspended(reply)
        return reply.get("event", {}) if reply["came"] else None

    def _check_suspended(self, reply: Reply) -> None:
        if reply["status"] == "not found":
            self.ended = True
            self._log_end(logging.INFO, "is suspended")
            raise errors.Suspended(
                f"job {self.id} of queue {self.queue} is suspended: let this error leave the handler"
            )

    async def heartbeat(self, progress: Optional[Document] = None) -> int:
        """Extends the lease, and returns its length in milliseconds. `progress` is kept in the job.

        If the job was canceled or another worker has it, Expired is raised, and `lost` is set.
        """
        document = {
            "truceHeartbeat": self.queue,
            "id": self.id,
            "token": self.token,
            "progress": progress,
        }
        try:
            reply = await self._database.command(without_none(document), again=True)
        except errors.Expired:
            self.lost = not self.ended
            raise
        return int(reply["leaseMS"])

    async def __aenter__(self) -> AsyncJob:
        self._work = _telemetry.work(self)
        self._work.__enter__()
        return self

    async def __aexit__(
        self, kind: Optional[type], error: Optional[BaseException], _: object
    ) -> bool:
        try:
            if error is None:
                await self._finish(None)
            elif isinstance(error, Exception):
                await self._failed(error)
            else:
                await self._requeue()
        finally:
            self._work.__exit__(None, None, None)
        return isinstance(error, Exception)

    # ---- for workers: these log what they cannot report ----

    async def _finish(self, result: Any) -> None:
        if self.ended:
            return
        forgotten = self._forgotten()
        if forgotten is not None:
            await self._failed(forgotten)
            return
        try:
            await self.done(result_document(result))
        except errors.Expired:
            self.log.warning("job %s of queue %s: another worker has it", self.id, self.queue)
        except errors.Unreachable as error:  # If the job is not done, its lease expires.
            self.log.warning("job %s of queue %s: %s", self.id, self.queue, error)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, errors.Suspended) and self.ended:
            return
        _telemetry.failed(error)
        text = error_text(error)
        # The error may be that of the job, or of another call of the handler: the report shows it.
        may_be_lost = isinstance(error, errors.Expired) and (self.lost or not self.ended)
        if not may_be_lost:
            self._log_end(logging.ERROR, f"failed: {text}", error)
        if self.ended:
            return
        try:
            await self._end("truceFail", error=text)
        except errors.TruceError as why:  # The lease expires.
            if may_be_lost and isinstance(why, errors.Expired):
                self.log.warning("job %s of queue %s: another worker has it", self.id, self.queue)
                self.ended = True
            else:
                self.log.warning("job %s of queue %s: %s", self.id, self.queue, why)
        else:
            if may_be_lost:
                self._log_end(logging.ERROR, f"failed: {text}", error)

    async def _requeue(self) -> None:
        if self.ended or self.lost:
            return
        try:
            await self.snooze(0)
        except errors.TruceError as why:  # The lease expires.
            self.log.warning("job %s of queue %s: %s", self.id, self.queue, why)


class AsyncJobCommit(CommitList):
    """Changes that take effect together with the end of a job, or not at all."""

    def __init__(self, job: AsyncJob, result: Optional[Document]) -> None:
        super().__init__()
        self.result = result
        self._job = job

    async def __aenter__(self) -> AsyncJobCommit:
        self._used = True
        return self

    async def __aexit__(self, kind: Optional[type], *_: object) -> None:
        if self._end(kind):
            await self.run()

    async def run(self) -> None:
        """Applies the changes now, and ends the job."""
        self._send()
        if not self.changes:
            await self._job.done(self.result)
            return
        await self._job._end("truceJobCommit", changes=self.changes, result=self.result)


class AsyncJobStep(CommitList):
    """
    Changes that take effect once in all attempts of a job. After the end, `earlier` says whether an
    earlier attempt has completed the step, and `result` is the stored result.
    """

    _what = "step"

    def __init__(self, job: AsyncJob, name: str, result: Optional[Document]) -> None:
        super().__init__()
        self.earlier = False
        self.result = result
        self._job = job
        self._name = name

    async def __aenter__(self) -> AsyncJobStep:
        self._used = True
        return self

    async def __aexit__(self, kind: Optional[type], *_: object) -> None:
        if self._end(kind):
            await self.run()

    async def run(self) -> None:
        """Completes the step now."""
        self._send()
        with self._job._call("step", self._name):
            reply = await self._job._database.job_step(
                self._job.queue,
                id=self._job.id,
                token=self._job.token,
                name=self._name,
                changes=self.changes or None,
                result=self.result,
            )
        self.earlier = reply["earlier"]
        self.result = reply.get("result")
