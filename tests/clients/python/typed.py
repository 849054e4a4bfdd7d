"""Uses of the package that mypy --strict accepts, and misuses: each `ignore` must be needed."""
import datetime
from typing import Any, Dict, List, Optional

import truce
from truce import aio
from truce.testing import open_temporary, run_jobs, start_server


def check(db: truce.Database) -> None:
    reply: Dict[str, Any] = db.enqueue("mail", payload={"n": 1}, delay_ms=datetime.timedelta(hours=1))
    found: Optional[Dict[str, Any]] = db["people"].find_one({"_id": 1})
    with db.commit() as c:
        number: int = c.enqueue("mail", payload=reply)
        c.update("people", 1, {"$set": {"n": number}}, where=found)
    names: List[str] = [job["name"] for job in db.iterate_jobs("mail")]
    truce.Worker(db, "mail", lambda job: job.done({"names": names}), concurrency=4).run()
    run_jobs(db, "mail", lambda job: job.commit({"names": names}).run())
    queue = db.queue("mail")
    reply = queue.add({"n": 1}, delay_ms=5)
    for job in queue.work(until_empty=True):
        with job:
            print(job.payload)
    truce.Worker(db, "mail", print, lease_ms=datetime.timedelta(minutes=1), wait_ms=datetime.timedelta(seconds=1))
    results: List[Dict[str, Any]] = db.job_results(reply["id"])["jobs"]
    db.enqueue("mail", after=[one["_id"] for one in results])
    db.job_results("6b0c")  # type: ignore[arg-type]
    db.job_graph("6b0c")  # type: ignore[arg-type]
    db["people"].find(max_time_ms=datetime.timedelta(seconds=5))
    db.flow("mail", jobs=[{"name": "a"}, {"name": "b", "delay_ms": datetime.timedelta(hours=1)}])
    balance: int = db.ledger("bank").balance(account="cash")["balance"]
    post = db.revisions("posts", keep=5).get(balance)
    if post is not None:
        post["title"] = "On truce"
        version: int = db.revisions("posts").merge(post).version
        print(version)
    queue.add({}, delay=5)  # type: ignore[call-arg]
    queue.claim("mail")  # type: ignore[call-arg, arg-type]
    db.revisions("posts", keeps=5)  # type: ignore[call-arg]
    merged: Dict[str, Any] = db["people"].merge(reply, version=7, keep=5)
    with open_temporary() as other, start_server() as uri:
        other.enqueue(uri, payload=merged)
    db["people"].merge(reply)  # type: ignore[call-arg]
    db["people"].merge(reply, version=7, keeep=5)  # type: ignore[call-arg]
    db.enqueue("mail", payload={}, delay=5)  # type: ignore[call-arg]
    db.enqueue("mail", payload={}, on_conflict="nothing")  # type: ignore[arg-type]
    db.ledger_balance("bank")  # type: ignore[call-arg]
    truce.open("school.truce", must_exits=True)  # type: ignore[call-arg]


async def check_async(db: aio.Database) -> None:
    reply: Dict[str, Any] = await db.enqueue("mail", payload={"n": 1})
    async with db.commit() as c:
        c.enqueue("mail", payload=reply)
    async for job in db.iterate_jobs("mail"):
        print(job["state"])
    reply = await db.queue("mail").add({"n": 1})
    async for claimed in db.queue("mail").work():
        async with claimed:
            print(claimed.payload)
    post = await db.revisions("posts").get(1)
    if post is not None:
        print((await db.revisions("posts").save(post)).outcome)
    value: int = await db.transact(count)
    print(value)
    await db.enqueue("mail", payload={}, delay=5)  # type: ignore[call-arg]


async def count(inner: aio.Database) -> int:
    return await inner["people"].count_documents()
