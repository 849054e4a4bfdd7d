"""Handles: the operations of one queue or ledger, and the revisions of a collection."""
from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any, AsyncIterator, Dict, Literal, Optional

from . import errors
from ._async_bound import AsyncBoundLedger, AsyncBoundQueue
from ._async_database import AsyncDatabase
from ._async_job import AsyncJob
from ._bind import Handle, bound
from ._lease import AsyncLease
from ._public import public
from ._values import Document, Duration, Reply, duration_milliseconds

_log = logging.getLogger("truce")
_RETRY_SECONDS = 1.0


@public
class AsyncQueue(AsyncBoundQueue):
    """The operations of one queue: `db.queue("mail").add({"to": "ada@example.org"})`."""

    add = bound(AsyncDatabase.enqueue)
    claim_jobs = bound(AsyncDatabase.claim_jobs)
    iterate_jobs = bound(AsyncDatabase.iterate_jobs)

    async def work(
        self,
        *,
        lease_ms: Duration = 30000,
        wait_ms: Duration = 1000,
        until_empty: bool = False,
        worker: Optional[str] = None,
    ) -> AsyncIterator[AsyncJob]:
        """
        Claims jobs one after the other, and extends the lease of the current one.

            for job in queue.work():
                with job:               # done at the end; if the block raises, the job fails
                    deliver(job.payload)

        lease_ms: how long a claim lasts if the process dies
        wait_ms: how long one call waits for a job
        until_empty: ends the loop when the queue has no ready job
        worker: the worker's name in the jobs

        End each job: by `with job`, or by its methods. If the loop ends before that, the job is
        requeued. `Worker` runs several jobs at a time, and ends at a signal.
        """
        check: Optional[bool] = True
        while True:
            try:
                jobs, note = await self._database._claim_jobs(
                    self.name,
                    wait_ms=0 if until_empty else wait_ms,
                    lease_ms=lease_ms,
                    worker=worker,
                    check=check,
                )
            except errors.TruceError as error:
                if not errors.is_temporary(error):
                    raise
                _log.warning("queue %s: could not claim a job: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            check = None  # only the first claim checks the name of the queue
            if note:
                _log.warning("queue %s: got no job: %s", self.name, note)
            if not jobs and until_empty:
                return
            for job in jobs:
                async with AsyncLease(job, duration_milliseconds("lease_ms", lease_ms) or 0):
                    try:
                        yield job
                    finally:
                        ended = job.ended or job.lost
                        if not ended:
                            await job._requeue()
                if not ended:
                    raise RuntimeError(f"job {job.id} was not ended: use `with job:`")


@public
class AsyncLedger(AsyncBoundLedger):
    """The operations of one ledger: `db.ledger("bank").balance(account="cash")`."""

    iterate_statement = bound(AsyncDatabase.iterate_statement)


@public
class AsyncRevision(Dict[str, Any]):
    """
    A document with a version: a dict that you may change, also in place, and save.

    version: the number that was read or written
    base: a copy of the document as it was read or written; a save compares it with the stored one
    outcome: after a save or a merge: "saved", "merged", or "unchanged"
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply["document"])
        self.version: int = reply["version"]
        self.base: Dict[str, Any] = copy.deepcopy(dict(self))
        self.outcome: Optional[str] = reply.get("outcome")


@public
class AsyncRevisions(Handle[AsyncDatabase]):
    """
    The documents of a collection with version numbers; `db.revisions` has the options.

        posts = db.revisions("posts", keep=5)
        post = posts.get(1)
        post["tags"].append("new")
        post = posts.merge(post)        # Conflict: another save changed the same fields
    """

    def __init__(self, database: AsyncDatabase, name: str, options: Dict[str, Any]) -> None:
        super().__init__(database, name)
        self._options = options
        # Only a merge has the options `rules`, `strict`, and `inbox`.
        self._saving = {name: options[name] for name in ("version_field", "keep", "keep_ms")}

    async def get(self, id: Any) -> Optional[AsyncRevision]:
        """Returns the document with this _id, or None."""
        reply = await self._database.revision(
            self.name, get=id, version_field=self._options["version_field"]
        )
        return AsyncRevision(reply) if "document" in reply else None

    async def save(
        self, document: Document, *, version: Optional[int] = None, base: Optional[Document] = None
    ) -> AsyncRevision:
        """
        Saves the whole document if no other save happened since it was read.

        version, base: of the document as it was read, if it is not one that `get` or `save`
            returned; without both, the version is that in the document, or the document is new
        """
        return await self._put("save", document, version, base)

    async def merge(
        self, document: Document, *, version: Optional[int] = None, base: Optional[Document] = None
    ) -> AsyncRevision:
        """Saves the document, merged with other saves since it was read, as `save` does."""
        return await self._put("merge", document, version, base)

    async def remove(
        self, id: Any, *, version: int, base: Optional[Document] = None
    ) -> None:
        """Removes the document with this _id if no other save happened since it was read."""
        await self._database.revision(
            self.name, remove=id, version=version, base=base, **self._saving
        )

    async def patch(
        self,
        id: Any,
        patch: Any,
        *,
        kind: Optional[Literal["operators", "json", "merge"]] = None,
        version: Optional[int] = None,
    ) -> AsyncRevision:
        """
        Changes the document by operators, a JSON patch (RFC 6902), or a merge patch.

        If the document no longer has `version`, this is a Conflict: a patch is not merged, so the
        options `rules`, `strict`, and `inbox` do not apply.
        """
        reply = await self._database.revision_patch(
            self.name, id=id, patch=patch, kind=kind, version=version, **self._saving
        )
        if "document" not in reply:
            raise errors.NotFound(f"no document {id!r} in {self.name}", 125, reply)
        return AsyncRevision(reply)

    async def _put(
        self, how: str, document: Document, version: Optional[int], base: Optional[Document]
    ) -> AsyncRevision:
        if version is None and isinstance(document, AsyncRevision):
            version = document.version
            base = document.base if base is None else base
        elif version is None:
            version = document.get(self._options["version_field"] or "version")
        fields: Dict[str, Any] = {how: dict(document), "version": version, "base": base}
        options = self._options if how == "merge" else self._saving
        reply = await self._database.revision(self.name, **fields, **options)
        return AsyncRevision(reply)
