"""pymongo's asyncio client: what programs do with it, many at a time, against the servers of tests/clients/run."""
import asyncio
import os
import platform
import sys

import pymongo
from gridfs.asynchronous import AsyncGridFSBucket
from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

URI = os.environ["TRUCE_TEST_CLIENT_URI"]
AUTH_URI = os.environ["TRUCE_TEST_CLIENT_AUTH_URI"]
TASKS = 20
passed = failed = 0


def equal(what, found, wanted):
    global passed, failed
    if found == wanted:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}: {found!r}, not {wanted!r}")


async def fails(what, code, call):
    try:
        await call
    except OperationFailure as error:
        equal(what, error.code, code)
    else:
        equal(what, "no error", code)


async def crud(db):
    c = db.crud
    await c.drop()
    equal("insert_many", (await c.insert_many([{"_id": i, "n": i} for i in (1, 2, 3)])).inserted_ids, [1, 2, 3])
    equal("update_many", (await c.update_many({"n": {"$gt": 1}}, {"$inc": {"n": 10}})).modified_count, 2)
    equal("upsert", (await c.update_one({"_id": 9}, {"$set": {"n": 9}}, upsert=True)).upserted_id, 9)
    found = await c.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=ReturnDocument.AFTER)
    equal("find_one_and_update", found, {"_id": 1, "n": 2})
    equal("distinct", await c.distinct("_id"), [1, 2, 3, 9])
    try:
        await c.insert_many([{"_id": 1}, {"_id": 30}], ordered=False)
    except BulkWriteError as error:
        equal("unordered", ([e["code"] for e in error.details["writeErrors"]], error.details["nInserted"]), ([11000], 1))
    equal("count_documents", await c.count_documents({}), 5)


async def cursors(db):
    c = db.cursors
    await c.drop()
    await c.insert_many([{"_id": i} for i in range(1000)])
    equal("getMore", [d["_id"] async for d in c.find().sort("_id", 1).batch_size(7)], list(range(1000)))
    cursor = await c.aggregate([{"$group": {"_id": None, "n": {"$sum": "$_id"}}}])
    equal("aggregate", (await cursor.to_list())[0]["n"], 499500)


async def indexes(db):
    c = db.indexes
    await c.drop()
    equal("create_index", await c.create_index("email", unique=True), "email_1")
    equal("list_indexes", [i["name"] async for i in await c.list_indexes()], ["_id_", "email_1"])
    await c.insert_one({"email": "a"})
    try:
        await c.insert_one({"email": "a"})
    except DuplicateKeyError as error:
        equal("a unique index", error.details["keyValue"], {"email": "a"})


async def together(db):
    """Transactions that meet: the driver runs them again, and each is done once."""
    c = db.accounts
    await c.drop()
    await c.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 0}])

    async def move(session):
        await c.update_one({"_id": "a"}, {"$inc": {"n": -1}}, session=session)
        await c.update_one({"_id": "b"}, {"$inc": {"n": 1}}, session=session)

    async def one():
        async with db.client.start_session() as session:
            await session.with_transaction(move)

    await asyncio.gather(*(one() for _ in range(TASKS)))
    equal("transactions", [d["n"] async for d in c.find().sort("_id", 1)], [-TASKS, TASKS])
    async with db.client.start_session() as session:
        await session.start_transaction()
        await c.delete_many({}, session=session)
        await session.abort_transaction()
    equal("undone", await c.count_documents({}), 2)
    numbers = await asyncio.gather(*(db.command("truceSequence", "async", take=1) for _ in range(TASKS)))
    equal("a pattern", sorted(x["first"] for x in numbers), list(range(1, TASKS + 1)))


async def cancelled(db):
    """A task that is cancelled while it waits: its connection goes, the others do not."""
    task = asyncio.create_task(db.command("truceClaim", "nothing", waitMS=60000))
    await asyncio.sleep(0.05)
    task.cancel()
    try:
        await task
        equal("cancelled", "an answer", "none")
    except asyncio.CancelledError:
        equal("after a task that was cancelled", (await db.command("ping"))["ok"], 1.0)


async def files(db):
    bucket = AsyncGridFSBucket(db, "asyncfiles", chunk_size_bytes=100000)
    content = b"truce " * 100000
    number = await bucket.upload_from_stream("a.bin", content)
    stream = await bucket.open_download_stream(number)
    equal("GridFS", await stream.read() == content, True)
    await bucket.delete(number)


async def access():
    async with AsyncMongoClient(AUTH_URI) as client:
        who = await client.admin.command("connectionStatus")
        equal("logged in by TLS", who["authInfo"]["authenticatedUsers"], [{"user": "truce", "db": "admin"}])
    async with AsyncMongoClient(AUTH_URI.replace(":secret@", ":wrong@")) as client:
        await fails("a wrong password", 18, client.admin.command("ping"))


async def main():
    async with AsyncMongoClient(URI) as client:
        db = client.asynchronous
        await client.drop_database(db)
        for part in crud, cursors, indexes, together, cancelled, files:
            await part(db)
        await fails("an unknown command", 59, db.command("frobnicate"))
        await client.drop_database(db)
    await access()
    print(f"pymongo {pymongo.version}, asyncio (Python {platform.python_version()}): {passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
