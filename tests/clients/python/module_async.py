"""truce.aio as it is installed: in process, and through a server if TRUCE_TEST_CLIENT_URI names one."""
import asyncio
import inspect
import logging
import os
import sys
import tempfile
import uuid

import truce
from truce import aio

uri = os.environ.get("TRUCE_TEST_CLIENT_URI")
logging.getLogger("truce").setLevel(logging.CRITICAL)
checks = failed = 0
where = ""


def check(what, condition, more=""):
    global checks, failed
    checks += 1
    if not condition:
        failed += 1
        print(f"FAILED: {where}: {what} {more}")


async def raises(what, kind, call):
    try:
        await call()
    except kind as error:
        check(what, True)
        return error
    except Exception as error:
        check(what, False, repr(error))
        return error
    check(what, False, "nothing was raised")


def check_same_methods():
    """The blocking classes and those for asyncio have the same methods with the same parameters."""
    for name in ("Database", "Collection", "Cursor", "FindCursor", "Commit", "Edit", "Job", "JobCommit", "Ledger", "Queue",
                 "Revisions"):
        blocking, asynchronous = getattr(truce, name), getattr(aio, name)
        for method in (one for one in dir(blocking) if not one.startswith("_")):
            mine, theirs = getattr(blocking, method), getattr(asynchronous, method, None)
            same = theirs and (not inspect.isfunction(mine) or
                               list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters))
            check(f"{name}.{method}", same)


async def check_database(db):
    await db["accounts"].insert_many([{"_id": "a", "n": 9}, {"_id": "b", "n": 0}])
    async with db.commit() as c:
        c.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})
        c.update("accounts", "b", {"$inc": {"n": 5}})
        number = c.enqueue("mail", payload={"n": 0})
    check("commit", (await db["accounts"].find_one("b"))["n"] == 5 and c.results[number]["added"] == "new")
    check("find", [x["_id"] async for x in db["accounts"].find(sort="_id", batch_size=1)] == ["a", "b"])
    check("aggregate", await (await db["accounts"].aggregate([{"$count": "n"}])).to_list() == [{"n": 2}])

    async def overdraw():
        async with db.commit() as c:
            c.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})

    await raises("a condition does not match", truce.Refused, overdraw)

    async def within(inner):
        await inner["accounts"].update_one({"_id": "a"}, {"$inc": {"n": 100}})
        await inner.enqueue("mail", payload={"n": 1})
        return "result"

    check("transact", await db.transact(within) == "result" and (await db["accounts"].find_one("a"))["n"] == 104)

    async def raising():
        async with db.transaction() as inner:
            await inner["accounts"].delete_many({})
            raise KeyError("no")

    await raises("a transaction that raises", KeyError, raising)
    check("nothing was deleted", await db["accounts"].count_documents() == 2)
    await raises("an unknown option", TypeError, lambda: db.claim("mail", wait=1))
    replies = await asyncio.gather(*(db.sequence("orders", take=1) for _ in range(100)))
    check("many at a time", sorted(one["first"] for one in replies) == list(range(1, 101)))
    async with db.commit() as c:
        c.insert("late", {"_id": 1})

        async def add(n):
            await db["late"].count_documents()
            await asyncio.sleep(0.01)
            c.insert("late", {"_id": n})

        late = asyncio.create_task(add(2))
    await raises("a change of a task that the block does not await", truce.Invalid, lambda: late)
    check("it changed nothing", await db["late"].count_documents() == 1)
    async with db.edit("site", collection="pages") as edit:
        edit.put({"itemId": "home"})
    check("edit", edit.version == 1 and [x["itemId"] async for x in db.iterate_tree("site")] == ["home"])


async def check_handles(db):
    pages = db.revisions("pages")
    page = await pages.save({"_id": 1, "tags": ["a"]})
    page["tags"].append("b")
    check("a change in place", (await pages.merge(page)).version == 2 and (await pages.get(1))["tags"] == ["a", "b"])
    queue = db.queue("handled")
    for n in range(3):
        await queue.add({"n": n})
    done = []
    async for job in queue.work(until_empty=True, lease_ms=1000):
        async with job:
            if job.payload["n"] == 1:
                raise ValueError("a bad payload")
            if job.payload["n"] == 2:
                await asyncio.sleep(1.5)
                others = [x.payload["n"] for x in await queue.claim_jobs(most=10)]
                check("the lease is extended", 2 not in others, others)
            done.append(job.payload["n"])
    check("the loop continues after a job that raises", done == [0, 2], done)
    await queue.add({})
    async for job in queue.work(until_empty=True):
        break
    deadline = asyncio.get_running_loop().time() + 20  # the generator is closed in a task of its own
    while not (await queue.jobs(state="ready"))["jobs"] and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
    check("a loop that ends requeues its job", len((await queue.jobs(state="ready"))["jobs"]) == 1)


async def check_worker(db):
    together = asyncio.Event()
    seen = []

    async def work(job):
        seen.append(job.payload["n"])
        if len(seen) >= 20:
            together.set()
        if job.payload["n"] == 7:
            raise ValueError("seven")
        await asyncio.wait_for(together.wait(), 20)
        return {"n": job.payload["n"]}

    await db.enqueue("mail", payloads=[{"n": n} for n in range(2, 30)])
    await aio.Worker(db, "mail", work, concurrency=20, until_empty=True).run()
    jobs = {x["payload"]["n"]: x async for x in db.iterate_jobs("mail")}
    check("worked", sorted(seen) == list(range(30)))
    check("their states", [n for n in jobs if jobs[n]["state"] != "done"] == [7] and jobs[3]["result"] == {"n": 3}, jobs)
    await db.enqueue("plain", payload={"n": 1})
    await aio.Worker(db, "plain", lambda job: {"n": job.payload["n"]}, until_empty=True).run()
    check("a plain function runs once", [(x["state"], x["result"]) async for x in db.iterate_jobs("plain")] == [("done", {"n": 1})])
    warned = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())
    logger, level = logging.getLogger("truce"), logging.getLogger("truce").level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    await aio.Worker(db, "mial", work, until_empty=True).run()
    logger.removeHandler(handler)
    logger.setLevel(level)
    check("a misspelled queue", len(warned) == 1 and 'the queue "mial" has no jobs; these queues have: ' in warned[0], warned)
    began = asyncio.Event()

    async def hold(job):
        began.set()
        await asyncio.sleep(60)

    await db.enqueue("held", payload={})
    running = asyncio.create_task(aio.Worker(db, "held", hold, wait_ms=100, concurrency=2).run())
    await asyncio.wait_for(began.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    check("a canceled worker requeues its job", [x["state"] async for x in db.iterate_jobs("held")] == ["ready"])
    worker = aio.Worker(db, "held", lambda job: asyncio.sleep(0.01), wait_ms=100)
    asyncio.get_running_loop().call_later(0.1, worker.stop)
    await worker.run()
    check("stopped", [x["state"] async for x in db.iterate_jobs("held")] == ["done"])


async def check_cancellation(db):
    """A canceled call takes effect or not, as a whole. A canceled claim leaves no job behind."""

    async def both(n):
        async with db.commit() as c:
            c.insert("left", {"_id": n})
            c.insert("right", {"_id": n})

    for pause in range(8):
        calls = [asyncio.create_task(both(100 * pause + n)) for n in range(40)]
        await asyncio.sleep(pause * 0.002)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        check("canceled or done", all(one is None or isinstance(one, asyncio.CancelledError) for one in ended), ended)
    await db.sequence("later", take=1)  # the calls that were running have begun before it
    for _ in range(200):
        found = [sorted([x["_id"] async for x in db[side].find()]) for side in ("left", "right")]
        if found[0] == found[1]:
            break
        await asyncio.sleep(0.02)
    check("commits are whole", found[0] == found[1], found)
    await db.enqueue("late", payload={}, delay_ms=300)
    try:
        await asyncio.wait_for(db.claim_jobs("late", wait_ms=5000), 0.05)
        check("the claim was canceled", False)
    except asyncio.TimeoutError:
        pass
    await asyncio.sleep(0.5)
    jobs = []
    for _ in range(500):
        jobs = jobs or await db.claim_jobs("late")
        await asyncio.sleep(0 if jobs else 0.02)
    check("a canceled claim returns its job", len(jobs) == 1 and jobs[0].attempt == 1, [x async for x in db.iterate_jobs("late")])


async def main():
    global where
    check_same_methods()
    where = "in process"
    with tempfile.TemporaryDirectory() as folder:
        async with aio.open(os.path.join(folder, "school.truce"), "school") as db:
            await check_database(db)
            await check_worker(db)
            await check_cancellation(db)
            await check_handles(db)
    if uri:
        where = "through a server"
        async with aio.connect(uri, "module_" + uuid.uuid4().hex[:8]) as db:
            await check_database(db)
            await check_worker(db)
            await check_cancellation(db)
            await check_handles(db)
            async with await db["watched"].watch(max_await_time_ms=200) as stream:
                await db["watched"].insert_one({"_id": 1})
                check("watch", (await stream.__anext__())["documentKey"] == {"_id": 1})
            await db.drop()


asyncio.run(main())
print(f"module-python: aio: {checks - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
