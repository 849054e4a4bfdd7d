"""The package of clients/python, as it is installed, against `truce serve`: each part of it as its README says, and with wrong input."""
import datetime
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pymongo
import truce
from bson import ObjectId

uri = os.environ["TRUCE_TEST_CLIENT_URI"]
database = sys.argv[1] if len(sys.argv) > 1 else "module_" + uuid.uuid4().hex[:8]

if len(sys.argv) > 1:  # a worker in a process of its own, until SIGTERM
    queue = truce.connect(uri, database).queue("slow")

    @queue.worker
    def slow(job):
        print("at work", flush=True)
        sys.stdin.readline()
        return {"by": "the worker"}

    slow.run()
    print("ended", flush=True)
    sys.exit(0)

checks = failed = 0


def check(what, condition, more=""):
    global checks, failed
    checks += 1
    if not condition:
        failed += 1
        print(f"FAILED: {what} {more}")


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


school = truce.connect(uri, database)
db = school.database

# ---- commits ----
db.accounts.insert_many([{"_id": "a", "n": 9}, {"_id": "b", "n": 0}])
with school.commit() as change:
    change.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})
    change.update("accounts", "b", {"$inc": {"n": 5}})
check("commit", db.accounts.find_one("b")["n"] == 5 and not change.earlier)


def overdraw():
    with school.commit() as change:
        change.update("accounts", "b", {"$inc": {"n": 5}})
        change.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})


error = raises("a guard", truce.NotFound, overdraw)
check("it is pymongo's, too", isinstance(error, pymongo.errors.OperationFailure) and error.code == 125)
check("nothing was done", db.accounts.find_one("b")["n"] == 5)
when = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
for earlier in (False, True):
    with school.commit(key="k", key_time=when, leave={"receipt": 1}) as change:
        change.insert("receipts", {"_id": 1})
    check("a key", change.earlier == earlier)
check("what it left", change.result == {"receipt": 1} == school.commit_result("k"))
check("no such key", school.commit_result("none") is None)
raises("a key for something else", truce.Duplicate,
       lambda: school.commit([{"insert": "receipts", "with": {"_id": 2}}], key="k", key_time=when))
raises("a key without its time", TypeError, lambda: school.commit(key="k"))
raises("a late diff", truce.Conflict, lambda: school.commit([{"change": "accounts", "id": "a", "with": {"n": [9, 1]}}]))
raises("nonsense", truce.Invalid, lambda: school.commit([{"dance": 1}]))
raises("a field that nobody knows", truce.Invalid, lambda: school.command("truceSequence", "s", steps=1))
raises("a command that nobody knows", pymongo.errors.OperationFailure, lambda: school.command("truceNothing", 1))


def within(inner):
    inner.database.accounts.update_one({"_id": "a"}, {"$inc": {"n": 100}}, session=inner.session)
    inner.commit([{"update": "accounts", "id": "b", "with": {"$inc": {"n": 100}}}])
    return "given"


check("transact", school.transact(within) == "given" and db.accounts.find_one("b")["n"] == 105)
try:
    with school.transaction() as inner:
        inner.commit([{"update": "accounts", "id": "b", "with": {"$inc": {"n": 100}}}])
        raise KeyError("no")
except KeyError:
    pass
check("a transaction that raised", db.accounts.find_one("b")["n"] == 105)
tried = []


def met(inner):
    tried.append(1)
    inner.commit([{"update": "accounts", "id": "a", "with": {"$inc": {"n": 1}}}])
    if len(tried) == 1:
        db.accounts.update_one({"_id": "a"}, {"$inc": {"n": 1000}})
    inner.commit([{"update": "accounts", "id": "a", "with": {"$inc": {"n": 1}}}])


school.transact(met)
check("run again, for others were faster", len(tried) == 2 and db.accounts.find_one("a")["n"] == 1106,
      (tried, db.accounts.find_one("a")))

# ---- sequences, requests, help ----
orders = school.sequence("orders")
check("sequence", list(orders.take(3)) == [1, 2, 3] and next(orders) == 4 and orders.last == 4)
orders.raise_to(10)
check("raised", next(orders) == 11)
school.request("mail 1", "mail", {"to": "ada"})
check("request", school.request_state("mail 1")["state"] == "waiting" and school.request_state("x") is None)
check("help", "truceTree" in school.help() and school.help("truceClaim")["fields"])

# ---- sets, revisions, items, copies ----
classes = school.set("students", "classes", "name")
check("set", classes.add({"student_id": 1}, {"name": "CS"}, 2) == "applied")
check("stale", classes.remove({"student_id": 1}, {"name": "CS"}, 1) == "stale")
check("members", [x["name"] for x in classes.members({"student_id": 1})] == ["CS"])
check("no members", classes.members({"student_id": 9}) == [] and classes.show({"student_id": 9}) is None)
check("source", classes.source("student_id", idle=3)["status"] == "ok")
check("many", len(classes.apply([{"add": {"name": "x"}, "key": {"student_id": 2}, "seq": 5}])["results"]) == 1)
posts = school.revisions("posts", keep=5)
check("a new one", posts.save({"_id": 1, "title": "a", "n": 0}).version == 1)
mine, theirs = posts.get(1), posts.get(1)
theirs["title"] = "b"
check("saved", posts.save(theirs).version == 2)
mine["n"] = 5
check("who was late", raises("late", truce.Conflict, lambda: posts.save(mine)).answer["version"] == 2)
merged = posts.merge(mine)
check("merged", merged.outcome == "merged" and merged["title"] == "b" and merged["n"] == 5)
posts.remove(merged)
check("removed", posts.get(1) is None)
for id, how in ((2, posts.save), (3, posts.merge)):  # an edit within a list or a document
    posts.save({"_id": id, "tags": ["a"], "by": {"names": [{"n": 1}]}})
    edited = posts.get(id)
    edited["tags"].append("b")
    edited["by"]["names"][0]["n"] = 2
    again = how(edited)
    again["tags"].append("c")
    how(again)
    stored = db.posts.find_one(id)
    check("edits in place", stored["tags"] == ["a", "b", "c"] and stored["by"] == {"names": [{"n": 2}]}, stored)
raises("an unknown option", truce.Invalid, lambda: school.revisions("posts", kep=5).get(1))
inbox = school.revisions("notes", keep=5, inbox=True)
note = inbox.save({"_id": 1, "text": "one"})
other = inbox.get(1)
other["text"] = "two"
inbox.save(other)
note["text"] = "three"
told = raises("told", truce.Conflict, lambda: inbox.merge(note))
check("its paths", [x["path"] for x in told.conflicts] == ["text"], told.answer)
check("decided", inbox.resolve(inbox.conflicts()[0], "mine") == "saved" and inbox.get(1)["text"] == "three")
badges = school.items("employees", "badges", "type")
check("no document", badges.upsert({"_id": 1}, {"type": "A"}) is None)
db.employees.insert_one({"_id": 1})
check("items", badges.upsert({"_id": 1}, {"type": "A", "n": 1})["added"] and
      badges.update({"_id": 1}, {"type": "A"}, {"$inc": {"n": 1}})["modified"] == 1 and
      badges.remove({"_id": 1}, {})["modified"] == 1)
school.sync.declare("author", "users", "comments", "user", {"author": "name"}, settle_ms=1)
db.users.insert_one({"_id": 17, "name": "John"})
school.sync.insert("comments", {"_id": 1, "user": 17})
check("copies", school.sync.update("users", 17, {"$set": {"name": "J"}})["copies"] == 1)
check("a copy", school.sync.read("comments", 1)["author"] == "J" and school.sync.update("users", 9, {"$set": {"x": 1}}) is None)
raises("a copy itself", truce.Invalid, lambda: school.sync.update("comments", 1, {"$set": {"author": "x"}}))
check("rules", [x["rule"] for x in school.sync.status()] == ["author"] and school.sync.repair("author", dry_run=True)["differ"] == 0)
check("dropped", school.sync.drop("author") and not school.sync.drop("author"))

# ---- money ----
bank = school.ledger("bank")
bank.open("EUR", digits=2)
bank.open("EUR", "cash", min=0)
bank.open("EUR", "world")
check("post", bank.post(1, {"world": -1000, "cash": 1000}) and not bank.post(1, {"world": -1000, "cash": 1000}))
raises("overdrawn", truce.Limit, lambda: bank.post(2, {"cash": -1001, "world": 1001}))
raises("overdrawn by a commit", truce.Limit,
       lambda: school.commit([{"post": "bank", "id": 2, "with": {"cash": -1001, "world": 1001}}]))
for i in range(5):
    bank.post(f"x{i}", {"cash": -1, "world": 1})
check("balance", bank.balance("cash")["balance"] == 995 and bank.balance("nobody") is None)
check("statement", [x["value"] for x in bank.statement("cash", page=2)] == [0, 1000] + [-1] * 5)
moves = school.transfers("moves", accounts="purses")
db.purses.insert_many([{"_id": "a", "balance": 5}, {"_id": "b", "balance": 0}])
check("transfer", moves.start(1, "a", "b", 5) and not moves.start(1, "a", "b", 5))
raises("refused", truce.Refused, lambda: moves.start(2, "a", "b", 5))
check("transfers", [x["_id"] for x in moves.list(page=1)] == [2, 1] and moves.show(2)["state"] == "canceled")
check("cancel", moves.cancel(2) == "canceled" and moves.cancel(9) is None and moves.resume(1) == "done")

# ---- trees ----
site = school.tree("site", collection="pages", parent="up")
raises("no tree", truce.NotFound, site.read)
check("no status", site.status() is None and list(site.log()) == [])
with site.edit("the first pages", author="ada") as edit:
    edit.put({"itemId": "home"})
    for i in range(7):
        edit.put({"itemId": i, "up": "home", "n": i % 2})
check("published", edit.version == 1 and edit.outcome == "published")
first = site.read()
with site.edit() as edit:
    edit.put({"itemId": "jobs", "up": "home"})
    edit.remove(3)
check("pages", [x["itemId"] for x in first.find(page=3)] == [0, 1, 2, 3, 4, 5, 6, "home"])
check("sorted", [x["itemId"] for x in first.find({"n": {"$gte": 0}}, sort={"n": -1}, page=2)] == [1, 3, 5, 0, 2, 4, 6])
check("whole", len(list(site.read())) == 8 and site.read().get("jobs")["up"] == "home" and first.get("jobs") is None)


def late():
    with site.edit() as edit:
        edit.put({"itemId": "home", "title": "mine"})
        with site.edit() as theirs:
            theirs.put({"itemId": "home", "title": "theirs"})


check("late", raises("an edit that was late", truce.Conflict, late).answer["version"] == 3)
with site.edit(merge=True) as edit:
    edit.put({"itemId": 0, "up": "home", "n": 9})
    with site.edit() as theirs:
        theirs.put({"itemId": 1, "up": "home", "n": 9})
check("merged", edit.version == 5 and site.read().get(1)["n"] == 9 == site.read().get(0)["n"])
raises("an orphan", truce.Invalid, lambda: site.publish([{"put": {"itemId": "x", "up": "nobody"}}]))
id = ObjectId()
base = site.read().token
check("once", [site.publish([{"put": {"itemId": 1, "up": "home"}}], id=id, base=base)["outcome"] for _ in (1, 2)] == ["published", "exists"])
check("tag", site.tag("launch", 1) and site.read(tag="launch").version == 1 and site.untag("launch") and not site.untag("launch"))
check("by time", site.read(time=datetime.datetime.now(datetime.timezone.utc)).version == 6)
check("log", [x["version"] for x in site.log(page=2)] == [6, 5, 4, 3, 2, 1])
check("diff", [(x["itemId"], x["change"]) for x in site.diff(1, 2, page=1)] == [(3, "removed"), ("jobs", "added")])
check("revert", site.revert(1)["version"] == 7 and site.read().get(3) is not None)
draft = site.branch("draft")
with draft.edit() as edit:
    edit.put({"itemId": "team", "up": "home"})
check("merge", site.merge(draft)["outcome"] == "published" and site.read().get("team") is not None)
site.keep(versions=1)
site.collect()
raises("collected", truce.Expired, lambda: first.get("home"))
check("erase", site.erase("team") > 0 and draft.drop())
check("status", site.status()["current"] == 8)

# ---- queues ----
mail = school.queue("mail")
id = ObjectId()
check("add", mail.add({"n": 0}, id=id) == id)
mail.add_many([{"n": i} for i in range(1, 6)])
check("jobs", len(mail.jobs()) == 6 and school.queues()[0]["ready"] == 6)
seen = []
for job in mail.work(until_empty=True, most=4):
    seen.append(job.payload["n"])
    if job.payload["n"] == 1:
        job.commit([{"insert": "letters", "with": {"_id": 1}}], result={"sent": True})
    if job.payload["n"] == 2:
        job.fail("no", delay_ms=datetime.timedelta(hours=1))
jobs = {x["payload"]["n"]: x for x in mail.jobs()}
check("worked", sorted(seen) == sorted(jobs) == [0, 1, 2, 3, 4, 5], seen)
check("their states", [n for n in jobs if jobs[n]["state"] != "done"] == [2] and jobs[2]["state"] == "delayed")
check("its effect", db.letters.find_one(1) and jobs[1]["result"] == {"sent": True})
logging.getLogger("truce").setLevel(logging.CRITICAL)
mail.add_many([{"n": i} for i in range(10, 13)])
for job in mail.work(most=3):
    break  # all three go back
del job
check("given back", len(mail.jobs(state="ready")) + len(mail.jobs(state="delayed")) == 4, mail.jobs())
for job in mail.work():
    with job:
        raise RuntimeError("no answer")
    break
check("failed", "no answer" in [x["errors"][0]["text"] for x in mail.jobs() if x.get("errors")])
with mail.claim()[0] as job:
    done = job.id
check("done at the end of with", mail.jobs(id=done)[0]["state"] == "done")
raises("it is done", truce.Expired, lambda: job.commit([{"insert": "letters", "with": {"_id": 2}}]))
stop = threading.Event()
ran = []


def handler(job):
    ran.append(job.payload["n"])
    stop.set()
    raise ValueError("again")


mail.add({"n": 50}, priority=5)
mail.run(handler, stop=stop)
check("run", ran == [50] and [x["errors"][0]["text"] for x in mail.jobs() if x["payload"]["n"] == 50] == ["again"], ran)
job = mail.claim(wait_ms=1000)[0]
with school.transaction() as inner:
    inner.database.letters.insert_one({"_id": 9}, session=inner.session)
    job.done(truce=inner)
check("in a transaction", mail.jobs(id=job.id)[0]["state"] == "done")
# the lease is kept while the job is at work; and told when it is lost
held = school.queue("held")
held.add({})
bad = school.queue("bad")
bad.add_many([{"n": n} for n in range(4)])
worked = []
for job in bad.work(until_empty=True, most=2):
    with job:
        if job.payload["n"] % 2:
            raise ValueError("a bad payload")
        worked.append(job.payload["n"])
check("a job that raises ends no loop", worked == [0, 2])
check("it has failed", sorted(one["state"] for one in bad.jobs()) == ["delayed", "delayed", "done", "done"])
raises("another name of an option", TypeError, lambda: list(bad.work(untilempty=True)))
away = truce.connect("mongodb://127.0.0.1:9/?directConnection=true&serverSelectionTimeoutMS=100", database)
for call in (lambda: away.queue("q").add({}), lambda: away.queue("q").claim(), lambda: away.help(), lambda: away.commit([{"insert": "x", "with": {"_id": 1}}])):
    check("nothing is there", isinstance(raises("unreachable", truce.Unreachable, call), truce.TruceError))
for job in held.work(lease_ms=1000, until_empty=True):
    time.sleep(2.5)
    check("its lease is kept", not job.lost and held.claim() == [])
    held.cancel(job.id)
    while not job.lost:
        time.sleep(0.05)
    check("what is lost is refused", isinstance(raises("lost", truce.Expired, job.done), truce.Expired))
    job.ended = True
# SIGTERM: the job that is at work is brought to its end
slow = school.queue("slow")
slow.add({}), slow.add({})
worker = subprocess.Popen([sys.executable, __file__, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
check("a worker", worker.stdout.readline() == "at work\n")
worker.send_signal(signal.SIGTERM)
worker.stdin.write("\n")
worker.stdin.flush()
check("it ends by itself", worker.stdout.readline() == "ended\n" and worker.wait() == 0)
check("its job is done", sorted(x["state"] for x in slow.jobs()) == ["done", "ready"], [x["state"] for x in slow.jobs()])

db.client.drop_database(database)
school.close()
print(f"module-python: truce {truce.__version__}, pymongo {pymongo.version}: {checks - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
