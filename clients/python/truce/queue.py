"""Queues, and the loop of a worker."""
import logging
import os
import signal
import socket
import threading

from pymongo.errors import ConnectionFailure

from .errors import Expired, TruceError

_log = logging.getLogger("truce")


class Job:
    """
    A claimed job: `id`, `payload`, `attempt`, and `document`, all of it. Used in `with`, the job is done at the end of the
    block. If the block raises an Exception, the job is failed, the exception is logged, and the program continues
    after the block; KeyboardInterrupt and SystemExit return the job to the queue and are raised. Expired: another worker has
    the job, and its changes are not written.
    """

    def __init__(self, queue, document):
        self._queue = queue
        self.document = document
        self.id, self.token = document["_id"], document["token"]
        self.payload, self.attempt = document.get("payload", {}), document.get("attempt")
        self.ended = False
        self._lost = threading.Event()

    @property
    def lost(self):
        """A heartbeat was told that it is not this worker's any more."""
        return self._lost.is_set()

    def _send(self, command, truce=None, **fields):
        return (truce or self._queue._truce).command(
            command, self._queue.name, id=self.id, token=self.token, **fields
        )

    def _end(self, command, **fields):
        if self.ended:
            raise Expired(f"job {self.id} was ended", 125, {"status": "expired"})
        self._send(command, **fields)
        self.ended = True

    def done(self, result=None, truce=None):
        """`truce`: bound to a transaction, the job is done with all else that it changes."""
        self._end("truceDone", truce=truce, result=result)

    def commit(self, changes, result=None):
        """What the job changes, and that it is done: both or neither. `changes` as truceCommit has them, or a Commit."""
        self._end("truceJobCommit", changes=list(getattr(changes, "changes", changes)), result=result)

    def fail(self, error, delay_ms=None):
        """It is tried again later, or is dead after its last attempt."""
        self._end("truceFail", error=str(error) or type(error).__name__, delay_ms=delay_ms)

    def snooze(self, delay_ms=0):
        """Gives it back for later; the attempt does not count."""
        self._end("truceSnooze", delay_ms=delay_ms)

    def heartbeat(self, progress=None):
        return self._send("truceHeartbeat", progress=progress)["leaseMS"]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if kind is None:
            self._queue._finish(self)
            return False
        if not issubclass(kind, Exception):  # KeyboardInterrupt, SystemExit, GeneratorExit
            self._queue._give_back(self)
            return False
        self._queue._failed(self, error)
        return True


class _Heart:
    """Keeps the leases of the jobs that are at work, from a thread of its own."""

    def __init__(self, lease_ms):
        self._every = lease_ms / 3000
        self._jobs, self._lock, self._stop = [], threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="truce heartbeats", daemon=True)
        self._thread.start()

    def _beat(self):
        while not self._stop.wait(self._every):
            with self._lock:
                jobs = [job for job in self._jobs if not job.ended and not job.lost]
            for job in jobs:
                try:
                    job.heartbeat()
                except Expired:
                    if not job.ended:
                        job._lost.set()
                except (TruceError, ConnectionFailure) as error:
                    _log.warning("no heartbeat of job %s: %s", job.id, error)

    def keep(self, jobs):
        with self._lock:
            self._jobs = list(jobs)

    def end(self):
        self._stop.set()
        self._thread.join()


class Queue:
    """
    mail = school.queue("mail")
    mail.add({"to": "ada@example.org"})

    for job in mail.work():
        with job:
            send(job.payload)
    """

    def __init__(self, truce, name):
        self._truce, self.name = truce, name

    def add(self, payload, **options):
        """Its id; `options` are the fields of truceEnqueue: delay_ms, priority, unique, lane ... With `id` it is added once."""
        answer = self._truce.command(
            "truceEnqueue", self.name, _once=options.get("id") is not None, payload=payload, **options
        )
        return answer["id"]

    def add_many(self, payloads, **options):
        return self._truce.command("truceEnqueue", self.name, payloads=list(payloads), **options)["ids"]

    def jobs(self, limit=None, after=None, **which):
        """The jobs of the queue, the oldest first, a page at a time: all of them, or at most `limit`."""
        jobs = []
        while True:
            page = min(limit - len(jobs), 1000) if limit else None
            answer = self._truce.command("truceJobs", self.name, limit=page, after=after, **which)
            jobs += answer["jobs"]
            if not answer["more"] or (limit and len(jobs) >= limit):
                return jobs
            after = jobs[-1]["_id"]

    def _act(self, action, id=None, **fields):
        return self._truce.command("truceQueue", self.name, action=action, id=id, **fields)

    def cancel(self, id):
        return self._act("cancel", id)["status"] == "ok"

    def retry(self, id):
        return self._act("retry", id)["status"] == "ok"

    def discard(self, id):
        return self._act("discard", id)["status"] == "ok"

    def pause(self):
        self._act("pause")

    def resume(self):
        self._act("resume")

    def redrive(self, limit=None):
        return self._act("redrive", limit=limit)["count"]

    def claim(self, most=None, wait_ms=None, lease_ms=None, worker=None):
        """The next jobs; [], if none came."""
        answer = self._truce.command(
            "truceClaim", self.name, most=most, wait_ms=wait_ms, lease_ms=lease_ms, worker=worker
        )
        return [Job(self, document) for document in answer.get("jobs", [])]

    # ---- the loop of a worker ----

    def work(self, stop=None, most=1, lease_ms=30000, wait_ms=2000, worker=None, until_empty=False):
        """
        Claims jobs, one after the other, and gives each to the loop; their leases are kept while the loop has them. A
        job that the loop has not ended is done when the loop comes back. One that the loop breaks out of, or raises out of, is
        given back at once, with those that were claimed with it. In `with job` an exception fails that job, and the loop
        continues with the next one.

        Ends when `stop` (a threading.Event) is set, after the job that is at work, or, `until_empty`, when there is none.
        """
        stop = stop or threading.Event()
        worker = worker or f"{socket.gethostname()}:{os.getpid()}"
        heart, held = _Heart(lease_ms), []
        try:
            while not stop.is_set():
                held = self._claim_or_wait(stop, most, 0 if until_empty else wait_ms, lease_ms, worker)
                if not held and until_empty:
                    return
                heart.keep(held)
                while held and not stop.is_set():
                    if not held[0].lost:
                        yield held[0]
                        self._finish(held[0])
                    held.pop(0)
        finally:
            heart.end()
            for job in held:
                self._give_back(job)

    def _claim_or_wait(self, stop, most, wait_ms, lease_ms, worker):
        """A server that is away is waited for."""
        try:
            return self.claim(most, wait_ms, lease_ms, worker)
        except ConnectionFailure as error:
            _log.warning("queue %s: %s", self.name, error)
            stop.wait(1)
            return []

    def _finish(self, job):
        if job.ended:
            return
        try:
            job.done()
        except Expired:
            _log.warning("job %s of queue %s was somebody else's before it was done", job.id, self.name)
        except ConnectionFailure as error:  # done or not: else its lease ends, and it is done again
            _log.warning("job %s of queue %s: %s", job.id, self.name, error)

    def _give_back(self, job):
        if job.ended or job.lost:
            return
        try:
            job.snooze(0)
        except (TruceError, ConnectionFailure):
            pass  # its lease ends

    def run(self, handler, signals=(signal.SIGTERM, signal.SIGINT), stop=None, **how):
        """
        handler(job) for each job, until a signal comes (in the main thread) or `stop` is set; the job that is at work is
        brought to its end. What the handler gives is the result (a dict or None); what it raises fails the job, which is
        tried again. May be a decorator: @mail.worker.
        """
        stop = stop or threading.Event()
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
        try:
            for job in self.work(stop=stop, **how):
                try:
                    result = handler(job)
                    if not job.ended:
                        job.done(result if isinstance(result, dict) else None)
                except Exception as error:
                    self._failed(job, error)
        finally:
            for number, handled in before.items():
                signal.signal(number, handled)

    def _failed(self, job, error):
        """The job's code raised."""
        if isinstance(error, Expired):
            if not job.lost:
                _log.warning("job %s of queue %s: another worker has it", job.id, self.name)
            job.ended = True
            return
        _log.error("job %s of queue %s failed", job.id, self.name, exc_info=error)
        if job.ended:
            return
        try:
            job.fail(error)
        except (Expired, ConnectionFailure) as why:
            _log.warning("job %s of queue %s: %s", job.id, self.name, why)
            job.ended = True

    def worker(self, handler):
        """
        @mail.worker
        def send(job): ...

        send.run() works until SIGTERM; send(job) is the function itself.
        """
        handler.run = lambda **how: self.run(handler, **how)
        return handler
