"""The Python package as it is installed: each part of it as its README says, and with wrong input.

    module.py             in process, in a file; then through a server, if TRUCE_TEST_CLIENT_URI names one
    module.py DATABASE    a worker on that server until SIGTERM
"""
import asyncio
import base64
import contextlib
import datetime
import decimal
import enum
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings

import pymongo
import truce
from bson.errors import InvalidDocument
from bson import Decimal128, Int64, ObjectId, json_util
from pymongo.errors import ConfigurationError
from truce import aio, testing
from truce.testing import assert_enqueued, enqueued, inline, open_temporary, run_jobs, start_server

uri = os.environ.get("TRUCE_TEST_CLIENT_URI")
logging.getLogger("truce").setLevel(logging.CRITICAL)

if len(sys.argv) > 1:

    def slow(job):
        print("at work", flush=True)
        sys.stdin.readline()
        return {"by": "the worker"}

    truce.Worker(truce.connect(uri, sys.argv[1]), "slow", slow, concurrency=2).run()
    print("ended", flush=True)
    sys.exit(0)

checks = failed = 0
where = ""


def check(what, condition, more=""):
    global checks, failed
    checks += 1
    if not condition:
        failed += 1
        print(f"FAILED: {where}: {what} {more}")


def raises(what, kind, call):
    try:
        call()
    except kind as error:
        check(what, True)
        return error
    except Exception as error:
        check(what, False, repr(error))
        return error
    check(what, False, "nothing was raised")


def check_commits(db):
    db["accounts"].insert_many([{"_id": "a", "n": 9}, {"_id": "b", "n": 0}])
    with db.commit() as c:
        c.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})
        c.update("accounts", "b", {"$inc": {"n": 5}})
    check("commit", db["accounts"].find_one("b")["n"] == 5 and not c.earlier)

    def overdraw():
        with db.commit() as c:
            c.update("accounts", "b", {"$inc": {"n": 5}})
            c.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})

    def overdraw_nobody():
        with db.commit() as c:
            c.update("accounts", "z", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})

    error = raises("a condition does not match", truce.Refused, overdraw)
    check("the error is one of pymongo's", isinstance(error, pymongo.errors.OperationFailure) and error.code == 20)
    error = raises("a document with a condition does not exist", truce.NotFound, overdraw_nobody)
    check("its code", error.code == 125, error)
    check("nothing was changed", db["accounts"].find_one("b")["n"] == 5)

    def raising():
        with db.commit() as c:
            c.remove("accounts", "a")
            raise KeyError("no")

    raises("the block raises", KeyError, raising)
    check("a block that raises changes nothing", db["accounts"].find_one("a") is not None)
    check_late_changes(db)
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    for earlier in (False, True):
        with db.commit(key="k", key_time=when, leave={"receipt": 1}) as c:
            c.insert("receipts", {"_id": 1})
        check("a key", c.earlier == earlier)
    check("the result of a key", c.result == {"receipt": 1} == db.commit_result("k")["result"])
    check("an unknown key", db.commit_result("none")["status"] == "not found")
    with db.commit() as c:
        number = c.enqueue("from commits", payload={"n": 1}, delay_ms=datetime.timedelta(hours=1))
        c.insert("accounts", {"n": 1})
        c.missing("accounts", "z")
    check("an operation within a commit", c.results[number]["added"] == "new" and len(c.inserted) == 1, c.results)
    job = next(db.iterate_jobs("from commits"))
    check("its options", job["state"] == "delayed", job)

    def again():
        with db.commit(key="k", key_time=when) as c:
            c.insert("receipts", {"_id": 2})

    raises("a key with other changes", truce.Duplicate, again)
    error = raises("a key without its time", TypeError, lambda: db.commit(key="k"))
    check("it names the option", "key_time" in str(error), error)
    raises("a time without a key", TypeError, lambda: db.commit(key_time=when))
    error = raises("a time without a zone", TypeError, lambda: db.commit(key="k", key_time=when.replace(tzinfo=None)))
    check("it names the remedy", "timezone.utc" in str(error), error)
    late = [{"change": "accounts", "id": "a", "with": {"n": [9, 1]}}]
    raises("a late change", truce.Conflict, lambda: db.commit_changes(late))
    raises("an unknown change", truce.Invalid, lambda: db.commit_changes([{"dance": 1}]))
    raises("an unknown option of a commit", TypeError, lambda: db.commit(kye="k"))
    raises("an unknown option", TypeError, lambda: db.sequence("s", steps=1))
    error = raises("options by place", TypeError, lambda: db.signal("q", ObjectId(), "paid", {}))
    check("it shows the call", str(error) == "signal() takes its options by name: signal(queue, id=..., name=...)", error)
    raises("an error within a call", truce.Invalid, lambda: db.signal("q", id=ObjectId(), name="paid", event=5))
    raises("an unknown field", truce.Invalid, lambda: db.command({"truceSequence": "s", "steps": 1}))
    error = raises("a misspelled field", truce.Invalid, lambda: db.command({"truceSequence": "s", "tkae": 1}))
    check("it names the field", str(error).endswith('did you mean "take"?'), error)
    error = raises("a misspelled field in a list", truce.Invalid, lambda: db.ledger_post("b", id="x", entries=[{"acount": "a", "value": 1}]))
    check("it names that field", 'did you mean "account"?' in str(error), error)
    entries = [{"account": "a", "value": -12}, {"account": "b", "value": 12.0}]
    error = raises("an amount that is a float", TypeError, lambda: db.ledger_post("b", id="x", entries=entries))
    check("it shows the amount", str(error).endswith("such as 1250 for 12.50, not 12.0"), error)
    raises("such an amount of many", TypeError, lambda: db.ledger_post_many("b", transactions=[{"id": "x", "entries": entries}]))
    error = raises("a misspelled operation", truce.TruceError, lambda: db.help("enque"))
    check("it names the method", str(error).endswith('did you mean "enqueue"?'), error)
    error = raises("a rate without its period", truce.Invalid, lambda: db.enqueue("q", payload={}, lane="a", lane_rate=3))
    check("it names both options", str(error) == "'lane_rate' and 'lane_per_ms' must be given together", error)
    raises("an unknown command", truce.Invalid, lambda: db.command({"truceNothing": 1}))


def check_late_changes(db):
    with db.commit() as c:
        c.insert("late", {"_id": 1})
    with db.edit("late tree", collection="late items") as edit:
        edit.put({"itemId": 1})
    sent = db.commit()
    sent.update("late", 1, {"$inc": {"n": 1}})
    sent.run()
    db.enqueue("late", payload={})
    (job,) = db.claim_jobs("late")
    with job.step("one") as step:
        pass
    with contextlib.suppress(KeyError), job.commit() as raised:
        raise KeyError("no")
    for what, late in [
        ("commit", lambda: c.remove("late", 1)),
        ("commit", lambda: c.enqueue("q", payload={})),
        ("commit", lambda: sent.remove("late", 1)),
        ("step", lambda: step.remove("late", 1)),
        ("commit", lambda: raised.remove("late", 1)),
        ("edit", lambda: edit.remove(1)),
    ]:
        error = raises("a change after the end", truce.Invalid, late)
        check("it says so", f"after the end of the {what}" in str(error), error)
    with db.commit() as c:
        c.update("late", 1, {"$inc": {"n": 1}})
        c.run()
    check("a commit that ran within `with` runs once", db["late"].find_one(1)["n"] == 2)
    with job.commit() as c:
        c.run()
    check("the same with a job", job.ended)


def check_unused_commits(db):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        db.commit().insert("accounts", {"_id": "unused"})
        gc.collect()
    messages = [str(one.message) for one in caught if one.category is RuntimeWarning]
    check("a commit that is not used", len(messages) == 1 and "never applied" in messages[0], messages)

    def fail():
        with db.commit() as c:
            c.insert("accounts", {"_id": "unused"})
            raise KeyError("x")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raises("the block raises", KeyError, fail)
        gc.collect()
    check("a block that raises", [one for one in caught if one.category is RuntimeWarning] == [])


def check_classes(db):
    """The class of an error is the same in process and through a server."""
    deep = {}
    for _ in range(120):
        deep = {"a": deep}
    classes = db["classes"]
    classes.insert_one({"_id": 1, "a": 1})
    for what, kind, code, call in (
        ("a filter", truce.Invalid, 2, lambda: classes.find_one({"a": {"$nope": 1}})),
        ("an operator", truce.Invalid, 9, lambda: classes.update_one({}, {"$nope": {"a": 1}})),
        ("two operators", truce.Invalid, 40, lambda: classes.update_one({"_id": 1}, {"$set": {"a": 1}, "$inc": {"a": 1}})),
        ("a path", truce.Invalid, 28, lambda: classes.update_one({"_id": 1}, {"$set": {"a.b": 1}})),
        ("a stage", truce.Invalid, 40324, lambda: list(classes.aggregate([{"$nope": 1}]))),
        ("a name", truce.Invalid, 73, lambda: db["a$b"].insert_one({})),
        ("an index", truce.NotFound, 27, lambda: classes.drop_index("nope")),
        ("depth", truce.Limit, 15, lambda: classes.insert_one(deep)),
        ("size", truce.Limit, 10334, lambda: classes.insert_one({"a": "x" * (17 << 20)})),
    ):
        error = raises(f"the class of {what}", kind, call)
        check(f"the code of {what}", error.code == code, error)
    error = raises("a wrong option", truce.Invalid, lambda: db.enqueue("q", payload={}, delay_ms=-5))
    check("it has Python's name", "'delay_ms'" in str(error), error)
    for text, call in (
        ("'per_ms'", lambda: db.queue_limit("q", rate=5)),
        ("change 1: job_step cannot", lambda: db.commit_changes([{"truceJobStep": "q"}])),
        ("the commit has no changes", lambda: db.commit_changes([])),
        ('change 1: update of "x" needs update operators', lambda: db.commit_changes([{"update": "x", "id": 1}])),
        ('has one after "a"', lambda: db["a\0b"].insert_one({})),
    ):
        error = raises("an error with names", truce.Invalid, call)
        check("of methods and collections", text in str(error), error)
    error = raises("no queue", TypeError, lambda: db.enqueue(None, payload={}))
    check("the method and the argument", "enqueue() needs its queue" in str(error), error)
    now, hour = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(hours=1)
    for option, value in (("run_at_ms", hour), ("delay_ms", now + hour)):
        error = raises("a wrong kind of time", TypeError, lambda: db.enqueue("q", payload={}, **{option: value}))
        check("the error names the option", str(error).startswith(f"{option} must be a "), error)
    error = raises("seconds", truce.Invalid, lambda: db.enqueue("q", payload={}, run_at_ms=1767225600))
    check("the error expects milliseconds", "'run_at_ms' is 1767225600, a time before 10000000000" in str(error), error)
    db.enqueue("q", payload={}, unique="x", on_conflict="refuse", run_at_ms=now + hour)
    for option in ("delayMS", "delayms", "dely_ms"):
        error = raises("an unknown option", TypeError, lambda: db.enqueue("q", payload={}, **{option: 5}))
        check("it has the closest option", "did you mean 'delay_ms'?" in str(error), error)


def check_names(db):
    """Misspelled names get the closest one, and messages and reprs have no internal names."""
    queue, commit = db.queue("named"), db.commit()
    db.enqueue("named", payload={})
    (job,) = db.claim_jobs("named", most=1)
    for what, owner, name, hints in (
        ("a collection", db, "people", ("'Database'", 'a collection is db["people"]')),
        ("a method of a database", db, "enque", ("did you mean 'enqueue'?", 'db["enque"]')),
        ("a method of another language", db, "jobResults", ("did you mean 'job_results'?",)),
        ("a method of a collection", db["people"], "inser_one", ("'Collection'", "did you mean 'insert_one'?")),
        ("an attribute of a job", job, "paylod", ("'Job'", "did you mean 'payload'?")),
        ("a method of a queue", queue, "ad", ("'Queue'", "did you mean 'add'?")),
        ("a method of a commit", commit, "udpate", ("'Commit'", "did you mean 'update'?")),
        ("a method of a cursor", db["people"].find(), "tolist", ("'FindCursor'", "did you mean 'to_list'?")),
        ("a method of asyncio", aio.connect(pymongo.AsyncMongoClient(), "school"), "enque", ("'aio.Database'",)),
    ):
        error = raises(what, AttributeError, lambda: getattr(owner, name))
        check(f"{what}: the hint", all(hint in str(error) for hint in hints), error)
    check("no hint", not hasattr(db, "_nothing") and not hasattr(db["people"], "archive"))
    if isinstance(db._transport, truce.NativeTransport):
        error = raises("a property", AttributeError, lambda: db.database)
        check("it keeps its own error", "has no pymongo database" in str(error), error)
    for what, call, text in (
        ("an operation", lambda: db.cron_set("x", queue="q", line="0 3 * * *"), "cron_set() missing"),
        ("a change", lambda: commit.ledger_post("b"), "ledger_post() missing"),
        ("a method", lambda: truce.Worker(db), "Worker() missing"),
    ):
        error = raises(f"{what} without an argument", TypeError, call)
        # Before 3.10, Python's own errors have the name of __init__.
        check(f"{what}: its name", str(error).startswith(text) or sys.version_info < (3, 10), error)
    error = raises("the beginning of an option", TypeError, lambda: db.item("c", id=1))
    check("the whole option", "did you mean 'identity'?" in str(error), error)
    for owner, text in (
        (db["people"], "<truce.Collection name='people'>"),
        (queue, "<truce.Queue name='named'>"),
        (job, f"<truce.Job id={job.id!r} queue='named'>"),
        (commit, f"<truce.Commit at {id(commit):#x}>"),
    ):
        check("a repr", repr(owner) == text, repr(owner))
    job.done()


def check_transactions(db):
    accounts = db["accounts"]

    def within(inner):
        inner["accounts"].update_one({"_id": "a"}, {"$inc": {"n": 100}})
        with inner.commit() as c:
            c.update("accounts", "b", {"$inc": {"n": 100}})
        return "result"

    check("transact", db.transact(within) == "result" and accounts.find_one("b")["n"] == 105)
    try:
        with db.transaction() as inner:
            inner["accounts"].update_one({"_id": "b"}, {"$inc": {"n": 100}})
            raise KeyError("no")
    except KeyError:
        pass
    check("a transaction that raised", accounts.find_one("b")["n"] == 105)
    with db.transaction() as ended:
        pass
    raises("a call after the end", pymongo.errors.PyMongoError, lambda: ended["accounts"].update_one({"_id": "b"}, {"$inc": {"n": 100}}))
    raises("a read after the end", pymongo.errors.PyMongoError, lambda: ended["accounts"].find_one("b"))
    tried = []

    def met(inner):
        tried.append(1)
        inner["accounts"].find_one("a")
        if len(tried) == 1:
            accounts.update_one({"_id": "a"}, {"$inc": {"n": 1000}})
        inner["accounts"].update_one({"_id": "a"}, {"$inc": {"n": 2}})

    db.transact(met)
    found = accounts.find_one("a")
    check("a conflict is repeated", len(tried) == 2 and found["n"] == 1106, (tried, found))


def check_documents(db):
    people = db["people"]
    documents = [{"_id": i, "n": i % 3} for i in range(250)]
    check("insert_many", people.insert_many(documents).inserted_ids == list(range(250)))
    added = {"n": 0}
    check("insert_one", people.insert_one(added).inserted_id == added["_id"])
    people.delete_one({"_id": added["_id"]})
    check("find in batches", [x["_id"] for x in people.find(sort="_id", batch_size=60)] == list(range(250)))
    check("find", people.find({"n": 0}, ["n"], sort=[("_id", -1)], limit=2).to_list() == [{"_id": 249, "n": 0}, {"_id": 246, "n": 0}])
    chained = people.find({"n": 0}).sort("_id", -1).skip(1).limit(2)
    check("a chain", [x["_id"] for x in chained] == [246, 243])
    raises("a chain after the first use", pymongo.errors.InvalidOperation, lambda: chained.sort("n"))
    check("sorted by two fields", next(people.find().sort([("n", -1), ("_id", 1)]).batch_size(7))["_id"] == 2)
    for what, kind, call in (
        ("an update without operators", ValueError, lambda: people.update_one({"_id": 1}, {"n": 5})),
        ("an update_many without operators", ValueError, lambda: people.update_many({}, {"n": 5})),
        ("an empty update", ValueError, lambda: people.find_one_and_update({"_id": 1}, {})),
        ("a replacement with operators", ValueError, lambda: people.replace_one({"_id": 1}, {"$set": {"n": 5}})),
        ("no filter of an update", TypeError, lambda: people.update_one(None, {"$set": {"n": 5}})),
        ("no filter of a deletion", TypeError, lambda: people.find_one_and_delete(None)),
        ("None as the filter of a deletion", TypeError, lambda: people.delete_many(None)),
        ("None as the filter of an update", TypeError, lambda: people.update_many(None, {"$set": {"n": 1}})),
        ("None as the filter of a replacement", TypeError, lambda: people.replace_one(None, {"n": 1})),
        ("a list as a filter", TypeError, lambda: people.find([])),
        ("a text as a filter", TypeError, lambda: people.count_documents("")),
        ("a number as a filter", TypeError, lambda: people.distinct("n", 0)),
        ("a text as a time", TypeError, lambda: db.commit(key="k", key_time="2026-01-01")),
        ("a text as a duration", TypeError, lambda: db.enqueue("q", payload={}, delay_ms="5 s")),
        ("no document", TypeError, lambda: people.insert_one(None)),
        ("a document in place of a list", TypeError, lambda: people.insert_many({"n": 5})),
        ("no queue", TypeError, lambda: db.claim(None)),
        ("an attribute", AttributeError, lambda: db.people),
        ("no handler", TypeError, lambda: truce.Worker(db, "q", None)),
        ("swapped arguments", TypeError, lambda: truce.Worker("q", db, print)),
        ("seconds with a fraction", TypeError, lambda: db.enqueue("q", payload={}, delay_ms=5.5)),
        ("a time in seconds with a fraction", TypeError, lambda: db.commit(key="k", key_time=1767225600.5)),
        ("a coroutine function", TypeError, lambda: truce.Worker(db, "q", asyncio.sleep)),
        ("a database for asyncio", TypeError, lambda: truce.Worker(aio.connect(pymongo.AsyncMongoClient(), "school"), "q", print)),
        ("a database that blocks", TypeError, lambda: aio.Worker(db, "q", print)),
        ("a lease that is a string", ValueError, lambda: truce.Worker(db, "q", print, lease_ms="5s")),
        ("a null character", truce.Invalid, lambda: truce.open("a\0b")),
        ("a null character in a database", (truce.Invalid, pymongo.errors.InvalidName), lambda: type(db)(db._transport, "a\0b").queues()),
    ):
        raises(what, kind, call)
    check("nothing was changed", people.count_documents() == 250 and people.find_one(1) == {"_id": 1, "n": 1})
    check("count, distinct", people.count_documents({"n": 1}) == 83 and people.distinct("n") == [0, 1, 2])
    grouped = people.aggregate([{"$group": {"_id": "$n", "all": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    check("aggregate", [x["all"] for x in grouped] == [84, 83, 83])
    result = people.update_one({"_id": 1}, {"$set": {"name": "Ada"}})
    check("update_one", (result.matched_count, result.modified_count, result.upserted_id) == (1, 1, None))
    result = people.update_one({"_id": "new"}, {"$set": {"name": "Bob"}}, upsert=True)
    check("upsert", result.upserted_id == "new" and result.matched_count == 0)
    check("update_many", people.update_many({"n": 0}, {"$inc": {"n": 3}}).modified_count == 84)
    check("replace_one", people.replace_one({"_id": 1}, {"name": "Eve"}).modified_count == 1)
    raises("a replacement with operators", ValueError, lambda: people.replace_one({"_id": 1}, {"$set": {}}))
    after = people.find_one_and_update({"_id": 1}, {"$set": {"age": 3}}, return_document=pymongo.ReturnDocument.AFTER)
    check("find_one_and_update", after == {"_id": 1, "name": "Eve", "age": 3}, after)
    check("find_one_and_delete", people.find_one_and_delete({"_id": 1})["age"] == 3 and people.find_one(1) is None)
    check("delete_many", people.delete_many({"n": 3}).deleted_count == 84)
    check("create_index", people.create_index([("name", 1)], unique=True, sparse=True) == "name_1")
    check("list_indexes", [x["name"] for x in people.list_indexes()] == ["_id_", "name_1"])
    error = raises("a duplicate", truce.Duplicate, lambda: people.insert_one({"name": "Bob"}))
    check("it is pymongo's DuplicateKeyError", isinstance(error, pymongo.errors.DuplicateKeyError))
    people.drop_index("name_1")
    raises("an unknown operator", truce.TruceError, lambda: people.find_one({"$nothing": 1}))
    cursor = people.find(batch_size=2)
    next(cursor)
    del cursor  # the next cursor closes it
    with people.find(batch_size=2) as cursor:
        next(cursor)
    check("a closed cursor", not cursor.alive and cursor.to_list() == [] and not db._abandoned)
    check("names of collections", "people" in db.list_collection_names())
    people.drop()
    check("drop", people.find_one() is None)


def check_small_patterns(db):
    def take():
        return db.sequence("orders", take=1)["first"]

    reply = db.sequence("orders", take=3)
    check("sequence", (reply["first"], reply["last"], take(), db.sequence("orders")["last"]) == (1, 3, 4, 4))
    db.sequence("orders", raise_=10)
    check("raised", take() == 11)
    db.request("mail 1", name="mail", input={"to": "ada"})
    check("request", db.request_state("mail 1")["request"]["state"] == "waiting")
    check("no request", db.request_state("x")["status"] == "not found")
    names = [one["name"] for one in db.help()["commands"]]
    check("help", "truceTree" in names and db.help("truceClaim")["fields"])
    check("help of a method", db.help("ledger_post")["name"] == "truceLedgerPost" and db.help("LedgerPost") == db.help("ledgerPost"))
    error = raises("no such operation", truce.Invalid, lambda: db.help("enqeue"))
    check("it names no operation of the wire", '"enqeue"' in str(error) and "{" not in str(error), error)
    check("replies are clean", set(db.help("truceClaim")).isdisjoint({"ok", "$clusterTime", "operationTime"}))


def check_sets_and_items(db):
    how = {"field": "classes", "name": "name"}
    one = {"student_id": 1}
    check("set", db.set("students", key=one, add={"name": "CS"}, seq=2, **how)["outcome"] == "applied")
    check("stale", db.set("students", key=one, remove={"name": "CS"}, seq=1, **how)["outcome"] == "stale")
    check("members", [x["name"] for x in db.set("students", key=one, **how)["members"]] == ["CS"])
    check("no members", db.set("students", key={"student_id": 9}, **how)["status"] == "not found")
    check("source", db.set_source("students", key="student_id", idle=3, **how)["status"] == "ok")
    many = [{"add": {"name": "x"}, "key": {"student_id": 2}, "seq": 5}]
    check("many", len(db.set("students", apply=many, **how)["results"]) == 1)
    badges = {"field": "badges", "identity": "type", "filter": {"_id": 1}}
    check("no document", db.item("employees", upsert={"type": "A"}, **badges)["status"] == "not found")
    db["employees"].insert_one({"_id": 1})
    check("items", db.item("employees", upsert={"type": "A", "n": 1}, **badges)["added"])
    check("update of items", db.item("employees", query={"type": "A"}, update={"$inc": {"n": 1}}, **badges)["modified"] == 1)
    check("removal of items", db.item("employees", query={}, remove=True, **badges)["modified"] == 1)


def check_revisions(db):
    check("a new document", db.revision("posts", save={"_id": 1, "title": "a", "n": 0})["version"] == 1)
    mine, theirs = db.revision("posts", get=1)["document"], db.revision("posts", get=1)["document"]
    theirs["title"] = "b"
    check("saved", db.revision("posts", save=theirs, version=1, base=mine)["version"] == 2)
    edited = dict(mine, n=5)
    error = raises("a late save", truce.Conflict, lambda: db.revision("posts", save=edited, version=1, base=mine))
    check("its status", (error.status, error.details["status"]) == ("conflict", "conflict"), error.details)
    check("the current version", error.details["version"] == 2)
    check("both versions in the message",
          str(error) == 'document 1 of "posts" has version 2, and this change is based on version 1', error)
    merged = db.revision("posts", merge=edited, version=1, base=mine)
    document = merged["document"]
    check("merged", merged["outcome"] == "merged" and document["title"] == "b" and document["n"] == 5, merged)

    def merge_in_a_commit():
        with db.commit() as c:
            c.revision("posts", merge=dict(mine, title="c"), version=1, base=mine)

    part = raises("a conflict in a commit", truce.Conflict, merge_in_a_commit)
    check("what both sides changed", [x["path"] for x in part.conflicts] == ["title"], part.details)
    check("the stored document", (part.details["version"], part.details["document"]["title"]) == (3, "b"), part.details)
    db.revision("posts", remove=1, version=merged["version"])
    check("removed", db.revision("posts", get=1)["status"] == "not found")
    note = db.revision("notes", save={"_id": 1, "text": "one"}, keep=5)["document"]
    db.revision("notes", save=dict(note, text="two"), version=1, base=note, keep=5)
    conflict = raises("a conflict", truce.Conflict,
                      lambda: db.revision("notes", merge=dict(note, text="three"), version=1, base=note, keep=5,
                                          inbox=True))
    check("its paths", [x["path"] for x in conflict.conflicts] == ["text"], conflict.details)
    open_one = db.conflicts("notes")["conflicts"][0]
    seen = {"version": open_one["version"]}
    resolved = db.resolve("notes", conflict=open_one["_id"], take="mine", seen=seen, keep=5)
    check("resolved", resolved["outcome"] == "saved" and db.revision("notes", get=1)["document"]["text"] == "three")


def check_forms(db):
    """Revisions from the JSON that a browser sent back."""
    pages, _id, author = db["pages of posts"], ObjectId(), ObjectId()
    stored = {"_id": _id, "author": author, "title": "a", "price": Decimal128("1.10"), "at": datetime.datetime(1970, 1, 1),
              "ratio": 2.0, "big": Int64(2**40), "data": b"ab", "tags": ["x"], "comments": [{"at": datetime.datetime(1970, 1, 2), "text": "one"}]}
    document = db.revision("pages of posts", save=stored, keep=5)["document"]

    def plain(value):
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return value.isoformat() + "Z" if isinstance(value, datetime.datetime) else str(value)

    form = json.loads(json.dumps(document, default=plain))
    form["ratio"] = 2  # as JavaScript writes 2.0
    pages.merge({**form, "tags": ["x", "y"]}, version=1, keep=5)  # another editor
    form["title"] = "b"
    form["comments"].append({"at": "2026-03-01T09:00:00.000Z", "text": "2026-03-01T09:00:00.000Z"})
    merged = pages.merge(form, version=1, keep=5)
    found = merged["document"]
    check("a form is merged", (merged["outcome"], merged["version"], found["title"], found["tags"]) == ("merged", 3, "b", ["x", "y"]), merged)
    check("its types", all(found[name] == stored[name] and type(found[name]) is type(stored[name])
                           for name in ("_id", "author", "price", "at", "ratio", "big", "data")), found)
    comment = found["comments"][1]
    check("types of new elements", type(comment["at"]) is datetime.datetime and type(comment["text"]) is str, comment)
    extended = json.loads(json_util.dumps(found))
    extended["title"] = "c"
    again = pages.merge(extended, version=3, keep=5)
    check("Extended JSON", again["document"]["title"] == "c" and {**again["document"], "title": "b", "version": 3} == found, again)
    error = raises("both changed a field", truce.Conflict, lambda: pages.merge({**form, "title": "d"}, version=1, keep=5))
    check("the paths", [one["path"] for one in error.conflicts] == ["title"])
    raises("no version", TypeError, lambda: pages.merge(form))
    raises("no _id", TypeError, lambda: pages.merge({"title": "b"}, version=1))
    raises("an unknown option", TypeError, lambda: pages.merge(form, version=1, keeep=5))


def check_revision_handles(db):
    pages = db.revisions("pages", keep=5)
    check("no document", pages.get(1) is None)
    check("a new one", pages.save({"_id": 1, "tags": ["a"], "meta": {"n": 1}}).version == 1)
    for how in (pages.save, pages.merge):
        page = pages.get(1)
        page["tags"].append("b")
        page["meta"]["n"] += 1
        saved = how(page)
        check("changes in place are stored", saved.outcome == "saved" and saved["tags"] == page["tags"], saved)
        check("once more", how(saved).outcome == "unchanged")
    check("all of them", db["pages"].find_one(1)["meta"] == {"n": 3} and db["pages"].find_one(1)["version"] == 3)
    page = pages.get(1)
    db["pages"].update_one({"_id": 1}, {"$set": {"meta": {"n": 9}}})     # leaves the number unchanged
    page["meta"]["n"] = 4
    raises("a plain change is not overwritten", truce.Conflict, lambda: pages.save(page))
    check("what a form sent back", pages.merge({"_id": 1, "tags": ["a"], "meta": {"n": 1}, "by": "ada"}, version=1).version == 4)
    raises("an old version", truce.Conflict, lambda: pages.save({"_id": 1, "tags": ["x"]}, version=2))
    raises("a new document that exists", truce.Conflict, lambda: pages.save({"_id": 1, "tags": ["x"]}))
    patched = pages.patch(1, {"title": "t"}, kind="merge")
    check("a patch", patched["title"] == "t" and patched.version == 5, patched)
    raises("a patch of nothing", truce.NotFound, lambda: pages.patch(9, {"title": "t"}, kind="merge"))
    raises("an unknown option", TypeError, lambda: db.revisions("pages", keeps=5))
    raises("no name", TypeError, lambda: db.revisions(None))
    raises("an old removal", truce.Conflict, lambda: pages.remove(1, version=4))
    pages.remove(1, version=5)
    check("removed", pages.get(1) is None)
    db["pages"].insert_one({"_id": 2, "tags": []})
    plain = pages.get(2)
    plain["tags"].append("a")
    check("a document without a number", pages.save(plain).version == 1)
    # only a merge uses the rules, and a save and a removal do not fail
    merging = db.revisions("merged pages", keep=5, rules={"n": "sum"}, strict=False, inbox=True)
    one = merging.save({"_id": 1, "n": 1})
    two = merging.save(dict(one, n=2), version=1)
    check("merged by the rules", merging.merge(dict(one, n=4), version=1)["n"] == 5, two)
    merging.remove(1, version=3)
    other = db.revisions("others", version_field="rev")
    one = other.save({"_id": 1, "n": 1})
    one["n"] = 2
    check("another field", other.save(one)["rev"] == 2 and other.save({"_id": 1, "n": 3, "rev": 2}).version == 3)


def check_queue_handles(db):
    queue = db.queue("handled")
    for n in range(3):
        queue.add({"n": n})
    done = []
    for job in queue.work(until_empty=True):
        with job:
            if job.payload["n"] == 1:
                raise ValueError("a bad payload")
            done.append(job.payload["n"])
    check("the loop continues after a job that raises", done == [0, 2], done)
    check("its attempt failed", [x["state"] for x in queue.iterate_jobs()] == ["done", "delayed", "done"])
    slow = db.queue("looped")
    slow.enqueue(payload={}, priority=3)
    for job in slow.work(until_empty=True, lease_ms=1000):
        with job:
            time.sleep(1.5)
            check("the lease is extended", slow.claim_jobs() == [])
    check("done", slow.jobs()["jobs"][0]["state"] == "done")
    slow.add({})
    for job in slow.work(until_empty=True):
        break
    check("a loop that ends requeues its job", len(slow.jobs(state="ready")["jobs"]) == 1)

    def forgets():
        for job in slow.work(until_empty=True):
            pass

    raises("a job that is not ended", RuntimeError, forgets)
    check("is ready again", len(slow.jobs(state="ready")["jobs"]) == 1)
    raises("an unknown option", TypeError, lambda: queue.add({}, delay=5))
    check("its description", "payload:" in queue.enqueue.__doc__ and callable(truce.Queue.enqueue))


def check_ledger_handles(db):
    book = db.ledger("handles")
    book.open(currency="EUR", digits=2)
    for account in ("cash", "sales"):
        book.open(currency="EUR", account=account)
    book.post(id="1", entries=[{"account": "cash", "value": -5}, {"account": "sales", "value": 5}])
    check("a ledger", book.balance(account="sales")["balance"] == 5, book.balance(account="sales"))
    check("its lines", [x["value"] for x in book.iterate_statement("sales")] == [0, 5])


def check_sync(db):
    db.sync_declare("author", source="users", dependent="comments", reference="user",
                    copies={"author": "name"}, settle_ms=1)
    db["users"].insert_one({"_id": 17, "name": "John"})
    db.sync_insert("comments", document={"_id": 1, "user": 17})
    check("copies", db.sync_update("users", id=17, update={"$set": {"name": "J"}})["copies"] == 1)
    check("a copy", db.sync_read("comments", id=1)["document"]["author"] == "J")
    check("no source", db.sync_update("users", id=9, update={"$set": {"x": 1}})["status"] == "not found")
    raises("a copy itself", truce.Invalid, lambda: db.sync_update("comments", id=1, update={"$set": {"author": "x"}}))
    check("rules", [x["rule"] for x in db.sync_status()["rules"]] == ["author"])
    check("repair", db.sync_repair("author", dry_run=True)["differ"] == 0)
    check("dropped", [db.sync_drop("author")["status"] for _ in (1, 2)] == ["ok", "not found"])


def check_money(db):
    db.ledger_open("bank", currency="EUR", digits=2)
    db.ledger_open("bank", currency="EUR", account="cash", min=0)
    db.ledger_open("bank", currency="EUR", account="world")

    def post(id, value):
        return db.ledger_post("bank", id=id, entries=[{"account": "world", "value": -value}, {"account": "cash", "value": value}])

    check("post", [post(1, 1000)["exists"], post(1, 1000)["exists"]] == [False, True])
    raises("overdrawn", truce.Limit, lambda: post(2, -1001))

    def commit():
        with db.commit() as c:
            c.ledger_post("bank", id=2, entries=[{"account": "world", "value": 1001}, {"account": "cash", "value": -1001}])

    raises("overdrawn by a commit", truce.Limit, commit)
    for i in range(5):
        post(f"x{i}", -1)
    check("balance", db.ledger_balance("bank", account="cash")["balance"] == 995)
    absent = db.ledger_balance("bank", account="nothing")
    check("no account", absent["status"] == "not found" and absent.get("balance") is None)
    error = raises("no balance", truce.NotFound, lambda: absent["balance"])
    check("it names the account", str(error) == 'account "nothing" is not open in "bank"', error)
    error = raises("no ledger", truce.NotFound, lambda: db.ledger_balance("bnak", account="nothing")["balance"])
    check("it names the ledgers", str(error) == 'the ledger "bnak" does not exist: expected "bank"', error)
    lines = db.iterate_statement("bank", "cash", page=2)
    check("statement", [x["value"] for x in lines] == [0, 1000] + [-1] * 5)
    db["purses"].insert_many([{"_id": "a", "balance": 5}, {"_id": "b", "balance": 0}])
    move = {"accounts": "purses", "source": "a", "destination": "b", "amount": 5}
    check("transfer", [db.transfer("moves", id=1, **move)["exists"] for _ in (1, 2)] == [False, True])
    time.sleep(0.002)  # they are sorted by the time of their change
    raises("refused", truce.Refused, lambda: db.transfer("moves", id=2, **move))
    check("transfers", [x["_id"] for x in db.iterate_transfers("moves", page=1)] == [2, 1])
    check("its state", db.transfer_show("moves", id=2)["transfer"]["state"] == "canceled")
    check("cancel", db.transfer_cancel("moves", id=2)["state"] == "canceled")
    check("resume", db.transfer_resume("moves", id=1)["state"] == "done")


def check_trees(db):
    check("no tree", db.tree_read("site")["status"] == "not found")
    for name, lines in (("log", db.iterate_tree_log("site")), ("items", db.iterate_tree("site")),
                        ("changes", db.iterate_tree_diff("site", from_=0, to=1)),
                        ("an account", db.iterate_statement("bank", "csah")),
                        ("transfers", db.iterate_transfers("mvoes"))):
        raises("a list of a misspelled name: " + name, truce.NotFound, lambda: next(iter(lines)))
    late = raises("a time without a zone", TypeError, lambda: db.cron_next("@daily", after_ms=datetime.datetime(2026, 1, 1)))
    check("names the option", str(late).startswith("after_ms: the time 2026-01-01 00:00:00 has no time zone"), late)
    with db.edit("site", message="the first pages", author="ada", collection="pages", parent="up") as edit:
        edit.put({"itemId": "home"})
        for i in range(7):
            edit.put({"itemId": i, "up": "home", "n": i % 2})
    check("published", edit.version == 1 and edit.outcome == "published")
    token = db.tree_read("site", limit=1)["token"]
    with db.edit("site") as edit:
        edit.put({"itemId": "jobs", "up": "home"})
        edit.remove(3)
    items = [x["itemId"] for x in db.iterate_tree("site", token=token, page=3)]
    check("pages of one version", items == [0, 1, 2, 3, 4, 5, 6, "home"], items)
    by_n = db.iterate_tree("site", filter={"n": {"$gte": 0}}, sort={"n": -1}, token=token, page=2)
    check("sorted", [x["itemId"] for x in by_n] == [1, 3, 5, 0, 2, 4, 6])
    check("the current version", len(list(db.iterate_tree("site"))) == 8)

    def late():
        with db.edit("site") as edit:
            edit.put({"itemId": "home", "title": "mine"})
            with db.edit("site") as theirs:
                theirs.put({"itemId": "home", "title": "theirs"})

    check("a late edit", raises("late", truce.Conflict, late).details["version"] == 3)
    with db.edit("site", merge=True) as edit:
        edit.put({"itemId": 0, "up": "home", "n": 9})
        with db.edit("site") as theirs:
            theirs.put({"itemId": 1, "up": "home", "n": 9})
    check("merged", edit.version == 5 and [db.tree_read("site", id=i)["item"]["n"] for i in (0, 1)] == [9, 9])
    orphan = [{"put": {"itemId": "x", "up": "nothing"}}]
    raises("an orphan", truce.Invalid, lambda: db.tree_publish("site", changes=orphan))
    id, base = ObjectId(), db.tree_read("site", limit=1)["token"]
    put = [{"put": {"itemId": 1, "up": "home"}}]
    outcomes = [db.tree_publish("site", changes=put, id=id, base=base)["outcome"] for _ in (1, 2)]
    check("published once", outcomes == ["published", "exists"])
    db.tree("site", tag="launch", version=1)
    check("tag", db.tree_read("site", tag="launch", limit=1)["version"] == 1)
    check("untag", [db.tree("site", untag="launch")["status"] for _ in (1, 2)] == ["ok", "not found"])
    now = datetime.datetime.now(datetime.timezone.utc)
    check("by time", db.tree_read("site", time_ms=now, limit=1)["version"] == 6)
    check("log", [x["version"] for x in db.iterate_tree_log("site", page=2)] == [6, 5, 4, 3, 2, 1])
    difference = db.iterate_tree_diff("site", from_=1, to=2, page=1)
    check("diff", [(x["itemId"], x["change"]) for x in difference] == [(3, "removed"), ("jobs", "added")])
    check("revert", db.tree_publish("site", revert=1)["version"] == 7 and "item" in db.tree_read("site", id=3))
    db.tree("site", branch="draft")
    with db.edit("draft") as edit:
        edit.put({"itemId": "team", "up": "home"})
    check("merge", db.tree("site", merge="draft")["outcome"] == "published" and "item" in db.tree_read("site", id="team"))
    db.tree("site", keep={"versions": 1})
    db.tree("site", collect=True)
    raises("collected", truce.Expired, lambda: db.tree_read("site", id="home", token=token))
    check("erase", db.tree("site", erase="team")["versions"] > 0 and db.tree("draft", drop=True)["status"] == "ok")
    check("status", db.tree("site")["current"] == 8)


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def check_raised(db):
    """A job fails whatever its handler raises, and the worker continues."""
    raised = [Silent(), ValueError("zero\0byte"), OSError("file \udcff"), ValueError("x" * 49000000),
              truce.Expired("another call", 125, {"status": "expired"}), truce.Suspended("mine")]

    def work(job):
        raise raised[job.payload["n"]]

    db.enqueue("raised", payloads=[{"n": n} for n in range(len(raised))])
    truce.Worker(db, "raised", work, until_empty=True).run()
    jobs = {x["payload"]["n"]: x for x in db.iterate_jobs("raised")}
    check("each of them fails", [jobs[n]["state"] for n in range(len(raised))] == ["delayed"] * len(raised), jobs)
    texts = [jobs[n]["errors"][0]["text"][:30] for n in range(len(raised))]
    check("their texts", texts == ["Silent: an error without a tex", "ValueError: zero\\0byte", "OSError: file \\udcff",
                                   "ValueError: " + "x" * 18, "Expired: another call", "Suspended: mine"], texts)


def check_jobs(db):
    id = ObjectId()
    check("enqueue", db.enqueue("mail", payload={"n": 0}, id=id)["id"] == id)
    db.enqueue("mail", payloads=[{"n": i} for i in range(1, 6)])
    check("jobs", len(list(db.iterate_jobs("mail", page=4))) == 6)
    seen = []

    def work(job):
        seen.append(job.payload["n"])
        if job.payload["n"] == 1:
            with job.commit(result={"sent": True}) as c:
                c.insert("letters", {"_id": 1})
        if job.payload["n"] == 2:
            job.fail("no", delay_ms=datetime.timedelta(hours=1))
        if job.payload["n"] == 3:
            raise ValueError("a bad payload")
        if job.payload["n"] == 4:
            check("a heartbeat", job.heartbeat({"percent": 50}) == 30000)
        return {"n": job.payload["n"]}

    truce.Worker(db, "mail", work, until_empty=True).run()
    jobs = {x["payload"]["n"]: x for x in db.iterate_jobs("mail")}
    check("worked", sorted(seen) == sorted(jobs) == [0, 1, 2, 3, 4, 5], seen)
    check("their states", [n for n in jobs if jobs[n]["state"] != "done"] == [2, 3], jobs)
    check("a result", jobs[0]["result"] == {"n": 0} and jobs[4]["progress"] == {"percent": 50}, jobs[4])
    check("a commit and its job", db["letters"].find_one(1) and jobs[1]["result"] == {"sent": True})
    check("an error", "ValueError: a bad payload" == jobs[3]["errors"][0]["text"])
    check_raised(db)
    db.enqueue("forgetful", payloads=[{"step": False}, {"step": True}, {"step": True}])
    with db.claim_jobs("forgetful")[0] as job:
        job.commit().insert("letters", {"_id": "forgotten"})

    def forget(job):
        changes = job.step("one") if job.payload["step"] else job.commit()
        changes.insert("letters", {"_id": "forgotten"})

    truce.Worker(db, "forgetful", forget, until_empty=True).run()
    jobs = list(db.iterate_jobs("forgetful"))
    check("jobs whose changes were not applied fail", [one["state"] for one in jobs] == ["delayed"] * 3, jobs)
    check("the error says so", all("never applied: use `with`" in one["errors"][0]["text"] for one in jobs), jobs)
    db.enqueue("awaited", payload={})
    truce.Worker(db, "awaited", lambda job: asyncio.sleep(0), until_empty=True).run()
    (awaited,) = db.iterate_jobs("awaited")
    check("a coroutine is not done", awaited["state"] == "delayed" and "truce.aio.Worker" in awaited["errors"][0]["text"], awaited)
    db.enqueue("by hand", payload={})
    with db.claim_jobs("by hand")[0] as job:
        pass
    check("done at the end of with", db.jobs("by hand", id=job.id)["jobs"][0]["state"] == "done")
    raises("a job that has ended", truce.Expired, lambda: job.done())
    db.enqueue("by hand", payload={})
    with db.claim_jobs("by hand")[0] as job:
        raise RuntimeError("no answer")
    check("failed", job.ended and db.jobs("by hand", id=job.id)["jobs"][0]["state"] == "delayed")
    db.enqueue("by hand", payload={})
    try:
        with db.claim_jobs("by hand", wait_ms=1000)[0] as job:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    check("requeued", db.jobs("by hand", id=job.id)["jobs"][0]["state"] == "ready")
    job = db.claim_jobs("by hand", wait_ms=1000)[0]
    with db.transaction() as inner:
        inner["letters"].insert_one({"_id": 9})
        job.done(database=inner)
    check("done in a transaction", db.jobs("by hand", id=job.id)["jobs"][0]["state"] == "done")
    check("no job", db.claim_jobs("by hand") == [])


def check_workers(db):
    barrier = threading.Barrier(4)
    db.enqueue("many", payloads=[{"n": n} for n in range(4)])
    with truce.Worker(db, "many", lambda job: barrier.wait(20) and None, concurrency=4):
        deadline = time.time() + 20
        while time.time() < deadline and any(x["state"] != "done" for x in db.iterate_jobs("many")):
            time.sleep(0.02)
    check("four jobs at a time", [x["state"] for x in db.iterate_jobs("many")] == ["done"] * 4)
    began, go_on = threading.Event(), threading.Event()

    def hold(job):
        began.set()
        go_on.wait(20)

    db.enqueue("stopped", payloads=[{}, {}])
    worker = truce.Worker(db, "stopped", hold)
    worker.start()
    began.wait(20)
    worker.stop()
    check("a running job delays the end", not worker.join(0.1))
    go_on.set()
    check("the running job ends", worker.join(20))
    check("no other job began", sorted(x["state"] for x in db.iterate_jobs("stopped")) == ["done", "ready"])
    raises("a second start", RuntimeError, worker.start)
    raises("no concurrency", ValueError, lambda: truce.Worker(db, "q", hold, concurrency=0))
    raises("an unknown option", TypeError, lambda: truce.Worker(db, "q", hold, untilempty=True))
    raises("an error of a claim ends the worker", truce.Invalid, lambda: truce.Worker(db, "q", hold, lease_ms=1).run())
    db.enqueue("large", payload={})
    truce.Worker(db, "large", lambda job: {"text": "x" * 17_000_000}, until_empty=True).run()
    (large,) = db.iterate_jobs("large")
    check("a result that is too large fails the job", large["state"] == "delayed" and large["errors"], large)
    lost = []

    def canceled(job):
        time.sleep(1.5)
        lost.append(job.lost or db.claim_jobs("held"))
        db.queue("held").action(action="cancel", id=job.id)
        deadline = time.time() + 20
        while time.time() < deadline and not job.lost:
            time.sleep(0.02)
        lost.append(job.lost)
        job.done()

    db.enqueue("held", payload={})
    truce.Worker(db, "held", canceled, lease_ms=1000, until_empty=True).run()
    check("the lease is extended, and a cancellation is seen", lost == [[], True], lost)
    check("a canceled job", [x["state"] for x in db.iterate_jobs("held")] == ["cancelled"], list(db.iterate_jobs("held")))


def check_flow(db):
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    jobs = [
        {"name": "a", "delay_ms": datetime.timedelta(days=1), "payload": {"not_changed": 1}},
        {"name": "b", "after": ["a"], "lane": "x", "lane_rate": 2, "lanePerMS": 1000},
        {"name": "c", "run_at_ms": later},
    ]
    db.flow("flows", jobs=jobs)
    with db.commit() as c:
        c.flow("flows", jobs=jobs)
    stored = {job["name"]: job for job in db.iterate_jobs("flows")}
    check("jobs with options of Python's names", stored["a"]["state"] == stored["c"]["state"] == "delayed"
          and stored["b"]["lane"]["rate"] == 2 and stored["a"]["payload"] == {"not_changed": 1}, stored)
    for what, job, text in (
        ("a misspelled option of a job", {"name": "a", "delay": 5}, '"delay" of "flow": did you mean "delay_ms"?'),
        ("the time of a job", {"name": "a", "run_at": later}, '"run_at" of "flow": did you mean "run_at_ms"?'),
        ("the name of a command", {"name": "a", "delayMs": 5}, '"delayMs" of "flow": did you mean "delayMS"?'),
    ):
        error = raises(what, truce.Invalid, lambda: db.flow("flows", jobs=[job]))
        check(f"{what}: the message", text in str(error), error)
    error = raises("names of Python in a plain command", truce.Invalid,
                   lambda: db.commit_changes([{"truceFlow": "flows", "jobs": [{"name": "a", "delay_ms": 5}]}]))
    check("its suggestion", '"delay_ms" of "flow": did you mean "delayMS"?' in str(error), error)
    for what, job, text in (
        ("a duration for a time", {"run_at_ms": datetime.timedelta(hours=1)}, "run_at_ms of jobs[1] must be a point in time"),
        ("a time for a duration", {"delayMS": later}, "delayMS of jobs[1] must be a duration"),
        ("a text for a duration", {"delay_ms": "5m"}, "delay_ms of jobs[1] must be a timedelta"),
    ):
        error = raises(what, TypeError, lambda: db.flow("flows", jobs=[{"name": "x"}, {"name": "y", **job}]))
        check(f"{what}: the message", text in str(error), error)
    found = db.flow("flows", jobs=[{"name": "d", "delay_ms": None, "lane": None}])
    check("None is an absent option", found["jobs"][0]["name"] == "d", found)
    raises("an option twice", TypeError, lambda: db.flow("flows", jobs=[{"name": "a", "delay_ms": 5, "delayMS": 5}]))
    error = raises("entries without a value", truce.Invalid,
                   lambda: db.ledger_post("flows", id="t", entries=[{"account": "x", "amount": 1}, {"account": "y", "value": -1}]))
    check("the fields, and no suggestion of a given one", str(error) == "unknown field \"amount\" of \"ledger_post\": its fields are 'account', 'type', 'value'", error)
    first, second = (db.enqueue("results", payload={})["id"] for _ in range(2))
    last = db.enqueue("results", payload={}, after=[str(first), second])["id"]
    truce.Worker(db, "results", lambda job: job.id, until_empty=True, lease_ms=datetime.timedelta(seconds=30),
                 wait_ms=datetime.timedelta(seconds=1)).run()
    for job in (last, str(last)):
        results = db.job_results(job)["jobs"]
        check("results of earlier jobs", [one["result"]["value"] for one in results] == [first, second], results)
    error = raises("the job of job_results", truce.Invalid, lambda: db.job_results("one"))
    check("its message", str(error) == "the job of job_results must be an ObjectId or its 24 hexadecimal digits, not string", error)
    raises("a lease of zero", ValueError, lambda: truce.Worker(db, "results", print, lease_ms=datetime.timedelta(0)))
    error = raises("an option of a file", TypeError, lambda: truce.connect("mongodb://127.0.0.1/x", must_exist=True))
    check("its message", "connect() has no option 'must_exist': truce.open has it" in str(error), error)


def check_durations(db):
    second = datetime.timedelta(seconds=1)
    with truce.open("memory:", deadline_ms=second, snapshot_age_ms=second) as other:
        check("durations of open", other["durations"].count_documents() == 0)
    for what, run in (
        ("open", lambda: truce.open("memory:", deadline_ms="5s")),
        ("find", lambda: db["durations"].find(max_time_ms="5s")),
        ("watch", lambda: db.watch(max_await_time_ms="5s")),
    ):
        error = raises(f"a text as a duration of {what}", TypeError, run)
        check(f"{what}: the message", "must be a timedelta or a number of milliseconds, not '5s'" in str(error), error)
    check("a duration of find", list(db["durations"].find({}, max_time_ms=datetime.timedelta(minutes=1))) == [])


def check_names_of_steps(db):
    failed = []

    def loop(job):
        for index, to in enumerate(["ada", "bob"]):
            with job.step("mail" if job.payload["same"] else f"mail {index}") as step:
                step.insert("mailed", {"to": to})

    db.enqueue("loops", payloads=[{"same": True}, {"same": False}])
    truce.Worker(db, "loops", loop, until_empty=True).run()
    same, own = sorted(db.iterate_jobs("loops"), key=lambda job: not job["payload"]["same"])
    check("two steps of one name fail the job", same["state"] == "delayed"
          and "the step 'mail': give each step its own name" in same["errors"][0]["text"], same)
    check("steps of their own names", own["state"] == "done" and db["mailed"].count_documents() == 3, own)

    def again(job):
        try:
            with job.step("charge") as step:
                step.require("accounts of steps", 1)
        except truce.NotFound as error:
            failed.append(error)
            db["accounts of steps"].insert_one({"_id": 1})
        first, second = job.step("charge"), job.step("charge")
        first.run()
        error = raises("the second of two begun steps", truce.Invalid, second.run)
        check("its message", "own name" in str(error), error)

    db.enqueue("again", payload={})
    truce.Worker(db, "again", again, until_empty=True).run()
    check("a step that failed may be repeated", len(failed) == 1 and [x["state"] for x in db.iterate_jobs("again")] == ["done"])
    check_names_of_waits(db)


def check_names_of_waits(db):
    def work(job):
        raises("a sleep without a time", TypeError, lambda: job.sleep("moment", "soon"))
        job.sleep("moment", 0)
        error = raises("a second sleep", truce.Invalid, lambda: job.sleep("moment", 0))
        check("its message", "the sleep 'moment': give each sleep its own name" in str(error), error)
        error = raises("a step with the name of a sleep", truce.Invalid, lambda: job.step("moment"))
        check("its message", "the sleep 'moment': give each step its own name" in str(error), error)
        check("a wait", job.wait("moment", 0) is None)
        error = raises("a second wait", truce.Invalid, lambda: job.wait("moment", 0))
        check("its message", "the wait 'moment': give each wait its own name" in str(error), error)

    db.enqueue("moments", payload={})
    truce.Worker(db, "moments", work, until_empty=True).run()
    check("names of sleeps and waits", [x["state"] for x in db.iterate_jobs("moments")] == ["done"], list(db.iterate_jobs("moments")))


def check_steps(db):
    check_flow(db)
    check_durations(db)
    check_names_of_steps(db)
    attempts = []

    def work(job):
        with job.step("charge", result={"n": len(attempts)}) as step:
            step.insert("charges", {"n": 1})
        attempts.append((step.earlier, step.result))
        job.sleep("a moment", 1)
        event = job.wait("paid", datetime.timedelta(days=1))
        if event["by"] == "eve":
            job.discard("eve")
        return event

    job = db.enqueue("steps", payload={})["id"]
    worker = truce.Worker(db, "steps", work, wait_ms=100)
    with worker:
        deadline = time.time() + 20
        while time.time() < deadline and len(attempts) < 2:
            time.sleep(0.02)
        while time.time() < deadline and db.jobs("steps", id=job)["jobs"][0]["state"] == "running":
            time.sleep(0.02)
        db.signal("steps", id=job, name="paid", event={"by": "ada"})
        while time.time() < deadline and db.jobs("steps", id=job)["jobs"][0]["state"] != "done":
            time.sleep(0.02)
    found = db.jobs("steps", id=job)["jobs"][0]
    check("a job with steps is done", found["state"] == "done" and found["result"] == {"by": "ada"}, found)
    check("a step takes effect once", db["charges"].count_documents() == 1, attempts)
    check("its stored result", attempts[0] == (False, {"n": 0}) and set(x[0] for x in attempts[1:]) == {True}
          and attempts[-1][1] == {"n": 0}, attempts)
    missing = ObjectId()
    for what, call in [
        ("an event", lambda: db.signal("steps", id=missing, name="paid")),
        ("an event for any queue", lambda: db.signal(1, id=missing, name="paid")),
        ("a cancellation", lambda: db.queue_action("steps", action="cancel", id=missing)),
        ("a retry", lambda: db.queue("steps").action(action="retry", id=missing)),
        ("the close of a batch", lambda: db.queue_action(1, action="close", id=missing)),
        ("a pause of a cron line", lambda: db.cron("nope", action="pause")),
        ("a cancellation of a transfer", lambda: db.transfer_cancel("moves", id=9)),
    ]:
        error = raises(f"{what} for nothing", truce.NotFound, call)
        check(f"{what}: it says so", "does not exist" in str(error) or "has no job" in str(error), error)
    db.enqueue("discarded", payload={})
    truce.Worker(db, "discarded", lambda job: job.discard("no"), until_empty=True).run()
    check("discarded", [x["state"] for x in db.iterate_jobs("discarded")] == ["discarded"])


class Records(logging.Handler):
    """In `with`, collects the log of the package."""

    def __init__(self):
        super().__init__()
        self.records = []
        self.logger = logging.getLogger("truce")

    def emit(self, record):
        self.records.append((record.levelname, self.format(record), getattr(record, "job", None)))

    def __enter__(self):
        self.before = self.logger.level
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        self.logger.addHandler(self)
        return self.records

    def __exit__(self, *_):
        self.logger.removeHandler(self)
        self.logger.propagate = True
        self.logger.setLevel(self.before)


def check_logs(db):
    ids = [str(db.enqueue("logged", payload={"n": n})["id"]) for n in range(4)]

    def work(job):
        if job.payload["n"] == 1:
            raise ValueError("a bad payload")
        if job.payload["n"] == 2:
            job.fail("no paper", delay_ms=60000)
        if job.payload["n"] == 3:
            job.snooze(60000)

    with Records() as records:
        truce.Worker(db, "logged", work, until_empty=True, name="w1").run()
    first = [f"{level} {text.splitlines()[0]}".rsplit(" (", 1)[0] for level, text, _ in records]
    expected = ["INFO worker w1 of queue logged started, concurrency 1"]
    ends = ["INFO {} is done", "ERROR {} failed: ValueError: a bad payload", "ERROR {} failed: no paper", "INFO {} returned to the queue"]
    for id, end in zip(ids, ends):
        expected += [f"DEBUG job {id} of queue logged was claimed", end.format(f"job {id} of queue logged")]
    check("the log of a worker", first == [*expected, "INFO worker w1 of queue logged ended"], first)
    check("the traceback of a failed job", "in work" in records[4][1], records[4])
    check("the job in a record", [x[2] for x in records] == [None, *(one for id in ids for one in (id, id)), None], records)
    with Records() as records:
        with truce.Worker(db, "nothing", work, wait_ms=50, name="w2"):
            pass
    lines = [text for _, text, _ in records]
    check("a stop", "worker w2 of queue nothing stopping; waiting for 0 jobs" in lines, lines)
    with Records() as records:
        truce.Worker(db, "loged", work, until_empty=True, name="w3").run()
    text = 'worker w3 of queue loged got no job: the queue "loged" has no jobs; these queues have: '
    with Records() as others:
        check("no job of it", list(db.queue("loged").work(until_empty=True)) == [])
    check("a loop over it", [level for level, text, _ in others if "these queues have: " in text] == ["WARNING"], others)
    warned = [text for level, text, _ in records if level == "WARNING"]
    check("a misspelled queue", len(warned) == 1 and warned[0].startswith(text) and '"logged"' in warned[0], records)
    with Records() as records:
        replies = [db.queue_action("loged", action="redrive"), db.queue_action("logged", action="redrive")]
    check("an action on it", [reply["known"] for reply in replies] == [False, True] and len(records) == 1, replies)
    check("its note is logged", records[0][0] == "WARNING" and records[0][1] == replies[0]["note"], records)
    with Records() as records:
        listed = [db.jobs("loged"), db.jobs("logged", state="dead")]
    check("a list of its jobs", [reply["jobs"] for reply in listed] == [[], []] and "note" not in listed[1], listed)
    check("is logged, too", [text for _, text, _ in records] == [listed[0]["note"]], records)
    with Records() as records:
        raises("a wrong lease", truce.Invalid, truce.Worker(db, "logged", work, lease_ms=1, until_empty=True).run)
    check("a worker that ends by an error", records[-1][0] == "ERROR" and " ended: " in records[-1][1], records)


def check_testing(db):
    db.enqueue("inline", payload={"to": {"name": "ada"}, "n": 1})
    db.enqueue("inline", payload={"to": {"name": "bob"}}, delay_ms=60000)
    jobs = assert_enqueued(db, "inline", payload={"to": {"name": "ada"}})
    check("a job with these fields", [x["payload"]["n"] for x in jobs] == [1])
    assert_enqueued(db, "inline", count=2)
    error = raises("another payload", AssertionError, lambda: assert_enqueued(db, "inline", payload={"to": "eve"}))
    check("it lists the payloads", "bob" in str(error))
    raises("another count", AssertionError, lambda: assert_enqueued(db, "inline", count=1))
    check("inline", run_jobs(db, "inline", lambda job: {"n": job.payload["n"]}) == 1)
    check("its result", [x["result"] for x in db.jobs("inline", state="done")["jobs"]] == [{"n": 1}])
    db.enqueue("inline", payload={})
    raises("the handler raises", ZeroDivisionError, lambda: run_jobs(db, "inline", lambda job: 1 / 0))
    check("a failed job", len(enqueued(db, "inline")) == 2)
    check("its retry", run_jobs(db, "inline", lambda job: {"attempt": job.attempt}) == 1)
    check("the attempt", db.jobs("inline", state="done")["jobs"][-1]["result"] == {"attempt": 2})
    check("a delayed job", run_jobs(db, "inline", lambda job: 7, delayed=True) == 1 and not enqueued(db, "inline"))
    check("a result that is not a dict", {"value": 7} in [x["result"] for x in db.jobs("inline", state="done")["jobs"]])
    db.enqueue("sleeps", payload={})
    check("a job that sleeps", run_jobs(db, "sleeps", lambda job: job.sleep("a day", 86400000), delayed=True) == 0)
    sent = []

    def now(job):
        sent.append(job.payload["n"])
        if job.payload["n"] == 1:
            db.enqueue("later", payload={"n": 2})
        if job.payload["n"] == 9:
            raise KeyError("no")

    with inline(db, {"now": now, "later": lambda job: sent.append(job.payload["n"])}):
        db.enqueue("now", payload={"n": 1})
        check("jobs run at once", sent == [1, 2], sent)
        with db.commit() as c:
            c.enqueue("now", payload={"n": 3})
        db.transact(lambda inner: inner.enqueue("now", payload={"n": 4}))
        db.queue("now").enqueue(payload={"n": 5}, delay_ms=60000)
        check("those of commits and transactions, too", sent == [1, 2, 3, 4], sent)
        raises("a handler raises", KeyError, lambda: db.enqueue("now", payload={"n": 9}))
    db.enqueue("now", payload={"n": 6})
    check("then they wait again", sorted(x["state"] for x in db.iterate_jobs("now")) == ["delayed"] * 2 + ["done"] * 3 + ["ready"])


def check_all(db):
    for part in (check_commits, check_unused_commits, check_classes, check_names, check_transactions, check_documents, check_small_patterns, check_sets_and_items,
                 check_revisions, check_forms, check_sync, check_money, check_trees, check_jobs, check_workers,
                 check_steps, check_logs, check_values, check_testing, check_revision_handles, check_queue_handles, check_ledger_handles):
        part(db)


def check_in_process(folder):
    path = os.path.join(folder, "school.truce")
    with truce.open(path, "school") as db:
        check_all(db)
        raises("a wrong name of a database", truce.Invalid, lambda: truce.open("memory:", "a b").queues())
    raises("a closed store", truce.Invalid, db.queues)
    with truce.open(path, "school", read_only=True) as db:
        check("opened again", db["accounts"].find_one("b")["n"] == 105)
        raises("read only", truce.TruceError, lambda: db["accounts"].insert_one({}))
    with truce.open(path, must_exist=True) as db:
        check("another database", db["accounts"].find_one() is None)
    with truce.open("memory:") as db:
        db["x"].insert_one({"when": datetime.datetime(2026, 1, 1)})
        check("in memory", db["x"].find_one()["when"] == datetime.datetime(2026, 1, 1))
        db["x"].insert_one({"_id": float("nan"), "n": 1})
        check("NaN as an _id", db["x"].find_one({"_id": float("nan")})["n"] == 1)
    for path in ("memory", ":memory:"):
        error = raises("a path like memory:", truce.Invalid, lambda: truce.open(path))
        check("the hint of open", '"memory:"' in str(error), error)
    for path in ("x.truce", "memory:", folder):
        error = raises("a path for connect", truce.Invalid, lambda: truce.connect(path))
        check("the hint of connect", "truce.open" in str(error), error)
    with truce.open("memory:") as db:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        began = time.monotonic()

        def interrupted():
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            db.claim("none", wait_ms=300_000)

        raises("a signal ends a claim that waits", KeyboardInterrupt, interrupted)
        check("it ends early", time.monotonic() - began < 200)
        signal.signal(signal.SIGALRM, before)
        check("a claim waits", db.claim("none", wait_ms=600)["jobs"] == [])
        for wait, kind in ((-1, truce.Invalid), (600_001, truce.Invalid), ("5", TypeError)):
            raises("a wrong time to wait", kind, lambda: db.claim("none", wait_ms=wait))
    raises("no such file", truce.NotFound, lambda: truce.open(os.path.join(folder, "none"), must_exist=True))
    for name, value, kind in (("deadline_ms", -1, ValueError), ("cache_mb", 1.5, TypeError), ("relaxed", "no", TypeError)):
        error = raises("an option of open", kind, lambda: truce.open("memory:", **{name: value}))
        check("its name", str(error).startswith(name + " must be ") and str(error).endswith(f", not {value!r}"), error)
    error = raises("a server for open", truce.Invalid, lambda: truce.open("mongodb://ada:secret@127.0.0.1/x"))
    check("it names connect, and not the password", "connect" in str(error) and "secret" not in str(error), error)
    with truce.open("memory:") as db:
        for name, call in (
            ("must_exist", lambda: truce.open("memory:", must_exits=True)),
            ("must_exist", lambda: aio.open("memory:", mustExist=True)),
            ("key_time", lambda: db.commit(keyTime=5)),
            ("until_empty", lambda: truce.Worker(db, "q", print, untilempty=True)),
            ("signals", lambda: truce.Worker(db, "q", print).run(signal=[])),
            ("projection", lambda: db["x"].find({}, projektion={})),
            ("hint", lambda: db["x"].find_one({}, hnit="_id_")),
            ("expireAfterSeconds", lambda: db["x"].create_index("n", expireAfterSecond=5)),
            ("payload", lambda: testing.assert_enqueued(db, "q", paylod={})),
        ):
            error = raises("an unknown option", TypeError, call)
            check("it has the closest option", f"did you mean {name!r}?" in str(error), error)
    raises("an unknown option of connect", ConfigurationError, lambda: truce.connect("mongodb://127.0.0.1:9/x", databse="x"))
    for wrong in ("127.0.0.1:9/office", "http://127.0.0.1:9/office", "office.truce"):
        error = raises("no URI of a server", truce.Invalid, lambda: truce.connect(wrong))
        check("it names the form", "mongodb://HOST/DATABASE" in str(error), error)
    other = os.path.join(folder, "text")
    with open(other, "w") as file:
        file.write("no store" * 100)
    raises("not a store", truce.Corrupt, lambda: truce.open(other))


def check_private(program):
    for args, name in (([], "test"), (["--database", "school"], "school"), (["--database=school"], "school")):
        with start_server(program=program, args=args) as server, truce.connect(server) as db:
            check(f"the database of a private server with {args}", db.name == name and server.endswith("/" + name), server)
    with start_server(program=program) as server, truce.connect(server) as db:
        db["x"].insert_one({"_id": 1})
        check("a private server", db["x"].find_one() == {"_id": 1} and "truce.sock" in server)
        with truce.connect(server) as closed:
            closed.queues()
        raises("a closed database", truce.Invalid, closed.queues)
    check("it ends", raises("unreachable", truce.Unreachable, lambda: truce.connect(server, serverSelectionTimeoutMS=100).help()))
    with open_temporary() as db:
        db["x"].insert_one({"_id": 1})
        check("a temporary file", db["x"].find_one() == {"_id": 1})
    with open_temporary() as db:
        check("it is empty", db["x"].find_one() is None)

    def start(**options):
        with start_server(**options):
            pass

    error = raises("no program", FileNotFoundError, lambda: start(program="no-such-truce"))
    check("it names the program", "no-such-truce" in str(error) and "TRUCE_PROGRAM" in str(error))
    error = raises("a server that does not start", RuntimeError, lambda: start(program=program, args=["--no-such-option"]))
    check("it has the reason", "no-such-option" in str(error), error)


def check_unreachable():
    for cause, question in (
        ("SSL handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING]", "does this server use TLS"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "the CA of the certificate"),
        ("[Errno 104] Connection reset by peer", "does it require TLS"),
        ("[Errno 111] Connection refused", "is truce serve running there?"),
    ):
        error = truce.errors.of_pymongo(pymongo.errors.ServerSelectionTimeoutError(f"h:1: {cause}, Timeout: 1s"), "x")
        check(f"the question after {cause}", isinstance(error, truce.Unreachable) and question in str(error), error)


def check_values(db):
    class Color(enum.Enum):
        RED = 1

    for value, what in (
        ({1, 2}, "a set"), (decimal.Decimal("1.5"), "a Decimal"), (datetime.date(2026, 1, 1), "a date"),
        (datetime.timedelta(1), "a timedelta"), (uuid.uuid4(), "a UUID"), (Color.RED, "a Color"), (2**70, "an integer of more than"),
        ("\ud800", "a str that BSON cannot contain"), ({1: 2}, None),
    ):
        for path, call in (
            ("payload.order.v", lambda: db.enqueue("q", payload={"n": 1, "order": {"v": value}})),
            ("document.v", lambda: db["values"].insert_one({"v": value})),
            ("documents.1.v", lambda: db["values"].insert_many([{}, {"v": value}])),
            ("filter.v", lambda: db["values"].find_one({"v": value})),
        ):
            error = raises(f"{value!r} in {path}", truce.InvalidValue, call)
            text = f"the field '{path}' is {what}" if what else f"the field 1 of '{path}'"
            check("it is named", str(error).startswith(text) and isinstance(error, InvalidDocument), error)
    with db.transaction() as tx:
        raises("a value in a transaction", truce.Invalid, lambda: tx["values"].insert_one({"v": {1}}))
        tx["values"].insert_one({"_id": 1, "v": [1]})
    check("the transaction continues", db["values"].find_one(1) == {"_id": 1, "v": [1]})


def check_server():
    database = "module_" + uuid.uuid4().hex[:8]
    with truce.connect(uri, database) as db:
        check_all(db)
        stream = db["watched"].watch(max_await_time_ms=200)
        db["watched"].insert_one({"_id": 1})
        check("watch", next(stream)["documentKey"] == {"_id": 1} and stream.try_next() is None)
        db["watched"].insert_one({"_id": 2})
        with db["watched"].watch(resume_after=stream.resume_token) as resumed:
            check("resumed", next(resumed)["documentKey"] == {"_id": 2})
        stream.close()
        # SIGTERM: the running jobs end
        db.enqueue("slow", payload={})
        worker = subprocess.Popen([sys.executable, __file__, database], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        check("a worker", worker.stdout.readline() == "at work\n")
        worker.send_signal(signal.SIGTERM)
        worker.stdin.write("\n")
        worker.stdin.flush()
        check("it ends by itself", worker.stdout.readline() == "ended\n" and worker.wait() == 0)
        check("its job is done", [x["state"] for x in db.iterate_jobs("slow")] == ["done"])
        # the next SIGTERM ends a worker whose job does not end
        db.enqueue("slow", payload={})
        worker = subprocess.Popen([sys.executable, __file__, database], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        check("a second worker", worker.stdout.readline() == "at work\n")
        deadline = time.time() + 60
        while worker.poll() is None and time.time() < deadline:
            worker.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        check("a second signal ends it", worker.poll() == -signal.SIGTERM, worker.poll())
        worker.kill()
        with pymongo.MongoClient(uri) as client:
            check("a client", truce.connect(client, database)["accounts"].find_one("b")["n"] == 105)
        db.drop()
    for address in ("mongodb://127.0.0.1:9/school", "mongodb://127.0.0.1:9,b:8/sch%6Fol?directConnection=false", pymongo.MongoClient("mongodb://127.0.0.1:9/school")):
        check(f"the database of {address}", truce.connect(address).name == "school")
    for address in ("mongodb://127.0.0.1:9", "mongodb://ada:secret@127.0.0.1:9/", "mongodb://127.0.0.1:9/?directConnection=true", pymongo.MongoClient("mongodb://127.0.0.1:9")):
        error = raises("no database", truce.Invalid, lambda: truce.connect(address))
        check("no database: the message", "names no database: " in str(error) and "secret" not in str(error), error)
    raises("no database for asyncio", truce.Invalid, lambda: aio.connect("mongodb://127.0.0.1:9"))
    raises("a client for asyncio without a database", truce.Invalid, lambda: aio.connect(pymongo.AsyncMongoClient("mongodb://127.0.0.1:9")))
    away = truce.connect("mongodb://127.0.0.1:9/?directConnection=true&serverSelectionTimeoutMS=50", database)
    for call in (lambda: away.enqueue("q", payload={}), lambda: away.claim("q"), away.help, lambda: away["a"].find_one()):
        error = raises("unreachable", truce.Unreachable, call)
        check("no server", isinstance(error, truce.TruceError))
        check("it has the address and no topology", "127.0.0.1:9" in str(error) and "Topology" not in str(error) and "truce serve" in str(error), error)
    options = lambda db: db.database.client.options.server_selection_timeout
    check("a server is awaited for 10 seconds", options(truce.connect("mongodb://127.0.0.1:9/x")) == 10)
    check("or as the URI says", options(away) == 0.05)
    check("or as an option says", options(truce.connect("mongodb://127.0.0.1:9/x", serverSelectionTimeoutMS=70)) == 0.07)


check("versions", truce.library_version() == truce.__version__, truce.library_version())
where = "an error"
check_unreachable()
where = "in process"
with tempfile.TemporaryDirectory() as folder:
    check_in_process(folder)
if os.environ.get("TRUCE_TEST_PROGRAM"):
    where = "a private server"
    check_private(os.environ["TRUCE_TEST_PROGRAM"])
if uri:
    where = "through a server"
    check_server()
print(f"module-python: truce {truce.__version__}, pymongo {pymongo.version}: {checks - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
