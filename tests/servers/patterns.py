"""
pymongo and the patterns as commands: what a program in Python sees of them. Workers claim jobs and do them while others
add them; payments are commits with guards, some of which do not hold.
"""
import os
import sys
import threading
import uuid

import bson
import pymongo
from pymongo.errors import DuplicateKeyError, OperationFailure

client = pymongo.MongoClient(os.environ["TRUCE_TEST_MONGODB"])
name = "patterns_" + uuid.uuid4().hex[:8]
db = client[name]
failed = 0
JOBS = 40
WORKERS = 3


def check(what, condition, more=""):
    global failed
    if not condition:
        failed += 1
        print(f"FAILED: {what} {more}")


def failure(call):
    """(code, status) of what it is refused with."""
    try:
        call()
        return 0, "ok"
    except OperationFailure as error:
        return error.code, error.details.get("status")


# ---- the help ----
listed = db.command("truceHelp")["commands"]
for one in listed:
    reported = db.command("truceHelp", one["name"])
    check("help of " + one["name"], reported["help"] and reported["example"] and "fields" in reported)
check("help", len(listed) > 10)

# ---- payments: none is lost, none is done twice, none overdraws ----
db.accounts.insert_many([{"_id": "a", "n": 20}, {"_id": "b", "n": 0}])


def pay(key):
    return db.command(
        "truceCommit",
        [
            {"update": "accounts", "id": "a", "if": {"n": {"$gte": 5}}, "with": {"$inc": {"n": -5}}},
            {"update": "accounts", "id": "b", "with": {"$inc": {"n": 5}}},
        ],
        key=key,
        keyTime=1767225600000,
        leave={"receipt": key},
    )


outcomes = []


def payer(number):
    for i in range(3):
        outcomes.append(failure(lambda: pay(f"{number}-{i}")))


payers = [threading.Thread(target=payer, args=(i,)) for i in range(3)]
for thread in payers:
    thread.start()
for thread in payers:
    thread.join()
check("payments", outcomes.count((0, "ok")) == 4, outcomes)
check("refusals", outcomes.count((20, "refused")) == 5, outcomes)
check("accounts", [x["n"] for x in db.accounts.find(sort=[("_id", 1)])] == [0, 20])
pay_again = [pay(f"{i}-{j}") for i in range(3) for j in range(3) if not failure(lambda: db.command(
    "truceCommitResult", f"{i}-{j}"))[0] and db.command("truceCommitResult", f"{i}-{j}")["status"] == "ok"]
check("sent again", len(pay_again) == 4 and all(x["earlier"] and x["result"] for x in pay_again))
check("accounts after", [x["n"] for x in db.accounts.find(sort=[("_id", 1)])] == [0, 20])
check(
    "a diff that is too late",
    failure(lambda: db.command("truceCommit", [{"change": "accounts", "id": "a", "with": {"n": [3, 4]}}]))
    == (112, "conflict"),
)
try:
    db.command("truceCommit", [{"insert": "accounts", "with": {"_id": "a"}}])
    check("a document that is there", False)
except DuplicateKeyError:
    pass

# ---- workers ----
done = []


def worker(number):
    """Until it has met its end among the jobs."""
    while True:
        answer = db.command("truceClaim", "work", waitMS=5000, leaseMS=600000, worker=f"w{number}", most=2)
        stop = False
        for job in answer["jobs"]:
            about = {"id": job["_id"], "token": job["token"]}
            if job["payload"].get("stop"):
                stop = True
                db.command("truceDone", "work", **about)
            elif job["payload"]["n"] % 4 == 0 and job["attempt"] == 1:
                db.command("truceFail", "work", error="the first time", delayMS=0, **about)
            elif job["payload"]["n"] % 2:
                db.command(
                    "truceJobCommit",
                    "work",
                    changes=[{"update": "totals", "id": 1, "with": {"$inc": {"n": 1}}}],
                    result={"by": number},
                    **about,
                )
                done.append(job["payload"]["n"])
            else:
                db.command("truceHeartbeat", "work", progress={"at": 1}, **about)
                db.command("truceDone", "work", result={"by": number}, **about)
                done.append(job["payload"]["n"])
        if stop:
            return


db.totals.insert_one({"_id": 1, "n": 0})
workers = [threading.Thread(target=worker, args=(i,)) for i in range(WORKERS)]
for thread in workers:
    thread.start()
db.command("truceEnqueue", "work", payloads=[{"n": i} for i in range(JOBS // 2)])
for i in range(JOBS // 2, JOBS):
    first = db.command("truceEnqueue", "work", payload={"n": i}, unique=f"job {i}", uniqueScope="kept")
    again = db.command("truceEnqueue", "work", payload={"n": i}, unique=f"job {i}", uniqueScope="kept")
    check("unique", first["added"] == "new" and again["added"] == "existing" and again["id"] == first["id"])
while all(thread.is_alive() for thread in workers) and (len(done) < JOBS or db.totals.find_one()["n"] < JOBS // 2):
    threading.Event().wait(0.02)
for i in range(2 * WORKERS):
    db.command("truceEnqueue", "work", payload={"stop": True}, priority=-1)
for thread in workers:
    thread.join()
check("jobs done", sorted(done) == list(range(JOBS)), sorted(done))
check("their effects", db.totals.find_one()["n"] == JOBS // 2)
check("queues", [x["queue"] for x in db.command("truceQueues")["queues"]] == ["work"])
check("elsewhere", client[name + "x"].command("truceQueues")["queues"] == [])

# ---- a set and a sequence ----
numbers = [db.command("truceSequence", "enrolments", take=1)["first"] for _ in range(4)]
check("sequence", numbers == [1, 2, 3, 4])
for verb, seq in (("remove", 4), ("add", 3), ("add", 3)):
    outcome = db.command(
        "truceSet", "students", key={"student_id": 1}, field="classes", name="name", seq=seq, **{verb: {"name": "CS"}}
    )["outcome"]
check("set", outcome == "stale", outcome)
check(
    "an element",
    db.command("truceSet", "students", key={"student_id": 1}, field="classes", name="name")["members"] == [],
)

# ---- trees: every reader sees one version, whole; a lost answer is requested again ----
PAGES = 30
EDITORS = 3


def put(text):
    return [{"put": {"itemId": i, "text": text}} for i in range(PAGES)]


first = db.command("truceTreePublish", "site", collection="pages", changes=put("first"), base="new")
check("the first version", first["version"] == 1 and first["outcome"] == "published")
versions, mixtures = [], []


def editor(number):
    for i in range(4):
        change = bson.ObjectId()
        while True:  # on the current version, until no other editor was first
            base = db.command("truceTreeRead", "site", limit=1)["token"]
            send = lambda: db.command(
                "truceTreePublish", "site", changes=put(f"{number}-{i}"), base=base, id=change, author=str(number)
            )
            answer, again = send(), send()
            if answer["outcome"] == "published":
                check("sent again", again["outcome"] == "exists" and again["version"] == answer["version"], again)
                versions.append(answer["version"])
                break


def reader():
    while editors_alive():
        seen, after, token = [], None, None
        while True:
            answer = db.command("truceTreeRead", "site", limit=7, after=after, token=token)
            token = answer["token"]
            seen += answer["items"]
            if not answer["more"]:
                break
            after = answer["items"][-1]["itemId"]
        if [x["itemId"] for x in seen] != list(range(PAGES)) or len({x["text"] for x in seen}) != 1:
            mixtures.append(seen)


editors = [threading.Thread(target=editor, args=(i,)) for i in range(EDITORS)]
editors_alive = lambda: any(thread.is_alive() for thread in editors)
for thread in editors:
    thread.start()
reading = threading.Thread(target=reader)
reading.start()
for thread in editors + [reading]:
    thread.join()
check("mixtures", mixtures == [], mixtures[:1])
check("versions", sorted(versions) == list(range(2, 2 + 4 * EDITORS)), versions)
log = db.command("truceTreeLog", "site", limit=1000)
check("log", len(log["versions"]) == 1 + 4 * EDITORS and not log["more"])
check("diff", len(db.command("truceTreeDiff", "site", **{"from": 1, "to": 2})["changes"]) == PAGES)
check("a base that no tree has", failure(lambda: db.command("truceTreePublish", "site", changes=[], base="x"))
      == (125, "not found"))

# ---- transfers and copies ----
db.purses.insert_many([{"_id": "a", "balance": 20}, {"_id": "b", "balance": 0}])
moves = []


def mover(number):
    for i in range(3):
        moves.append(failure(lambda: db.command(
            "truceTransfer", "moves", id=f"{number}-{i}", source="a", destination="b", amount=5, accounts="purses")))


movers = [threading.Thread(target=mover, args=(i,)) for i in range(3)]
for thread in movers:
    thread.start()
for thread in movers:
    thread.join()
check("transfers", moves.count((0, "ok")) == 4 and moves.count((20, "refused")) == 5, moves)
check("purses", [x["balance"] for x in db.purses.find(sort=[("_id", 1)])] == [0, 20])
check("canceled", len(db.command("truceTransfers", "moves", state="canceled")["transfers"]) == 5)

db.users.insert_one({"_id": 17, "name": "John"})
db.command("truceSyncDeclare", "author", source="users", dependent="comments", reference="user",
           copies={"author": "name"}, settleMS=1)
for i in range(5):
    db.command("truceSyncInsert", "comments", document={"_id": i, "user": 17})
renamers = [
    threading.Thread(target=db.command, args=("truceSyncUpdate", "users"),
                     kwargs={"id": 17, "update": {"$set": {"name": f"John {i}"}}})
    for i in range(4)
]
for thread in renamers:
    thread.start()
for thread in renamers:
    thread.join()
db.command("truceSyncReconcile", "users", id=17)
name_now = db.users.find_one()["name"]
check("copies", {x["author"] for x in db.comments.find()} == {name_now})
check("divergence", db.command("truceSyncRepair", "author", dryRun=True)["differ"] == 0)
db.command("truceSyncDrop", "author")

client.drop_database(name)
sys.exit(1 if failed else 0)
