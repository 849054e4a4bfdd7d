"""
pymongo and the patterns as commands, with a server that is killed (SIGKILL) amid them. If an answer
is lost, the command is sent again with its own key. The key is that of a commit, the id of a posting
or of a job, the number of a set's operation, or the token of a claim. In the end nothing is lost, and
nothing was done twice.
"""
import os
import random
import subprocess
import sys
import threading
import time

import bson
import pymongo
from pymongo.errors import AutoReconnect, OperationFailure

KILLS = int(os.environ.get("TRUCE_PATTERN_KILLS", "3"))
LEASE_MS = 1000  # the shortest lease; a claim whose answer was lost is over then
AGAIN = (8, 24)  # the outcome is unknown, or another one is under way

client = pymongo.MongoClient(os.environ["TRUCE_TEST_MONGODB"], serverSelectionTimeoutMS=120000, connectTimeoutMS=60000)
db = client.get_database("kills")
stop = threading.Event()
failures = []
resent = found = 0  # sent again; of these, that had been done the first time
lock = threading.Lock()


def send(command, value, /, **fields):
    """Until there is an answer: that, and how often it was sent before."""
    global resent
    times = 0
    while True:
        try:
            return db.command({command: value, **fields}), times
        except AutoReconnect:
            pass
        except OperationFailure as error:
            if error.code not in AGAIN:
                error.times = times
                raise
            time.sleep(0.01)
        times += 1
        with lock:
            resent += 1


def had_been(done):
    """The answer to what was sent again says whether it had been done."""
    global found
    with lock:
        found += bool(done)


class Worker(threading.Thread):
    """Does one thing again and again, and counts how often it was done."""

    def __init__(self, work):
        super().__init__()
        self.work = work
        self.done = 0

    def run(self):
        try:
            while not stop.is_set():
                self.work(self.done)
                self.done += 1
        except Exception as error:
            failures.append(f"{self.work.__name__}: {error!r}")

    def wait(self, more):
        until = self.done + more
        while self.is_alive() and self.done < until:
            self.join(0.01)


# ---- the clients -------------------------------------------------------------------------------


def pay(i, key=None):
    answer, times = send(
        "truceCommit",
        [
            {"update": "accounts", "id": "a", "with": {"$inc": {"n": -1}}},
            {"update": "accounts", "id": "b", "with": {"$inc": {"n": 1}}},
            {"insert": "receipts", "with": {"_id": bson.ObjectId(), "i": i}} if key else
            {"insert": "receipts", "with": {"_id": i, "i": i}},
        ],
        key=key or f"payment {i}",
        keyTime=int(began * 1000),
        leave={"i": i},
    )
    if answer.get("earlier") and not times:
        failures.append(f"payment {i} was there before it was sent")
    had_been(answer.get("earlier"))
    if answer.get("earlier") and answer["result"] != {"i": i}:
        failures.append(f"payment {i} left {answer['result']}")


def post(i):
    entries = [{"account": "cash", "value": -3}, {"account": "sales", "value": 3}]
    answer, times = send("truceLedgerPost", "bank", id=f"sale {i}", entries=entries)
    had_been(answer.get("exists"))
    if answer.get("exists") and not times:
        failures.append(f"sale {i} was there before it was sent")


def change_set(i):
    name = {"name": f"class {random.Random(i).randrange(5)}"}
    verb = {"remove": name} if i % 3 == 2 else {"add": {**name, "i": i}}
    answer, times = send("truceSet", "students", key={"student_id": 1}, field="classes", name="name", seq=i + 1, **verb)
    had_been(answer.get("outcome") == "duplicate")
    if answer.get("outcome") not in (("applied", "duplicate") if times else ("applied",)):
        failures.append(f"operation {i + 1} of the set, sent again {times} times: {answer}")


def enqueue(i):
    try:
        send("truceEnqueue", "work", payload={"n": i}, id=job_id(i))
    except OperationFailure as error:
        if error.code != 11000 or not error.times:  # it is there: it was added the first time
            raise
        had_been(True)


def job_id(i):
    return bson.ObjectId(b"job " + i.to_bytes(8, "big"))


def do_job(i):
    """Does a job, if there is one. Each worker of the same job makes an effect of another id."""
    answer, _ = send("truceClaim", "work", waitMS=50, leaseMS=LEASE_MS)
    for job in answer["jobs"]:
        effect = {"_id": bson.ObjectId(), "job": job["payload"]["n"]}
        try:
            send("truceJobCommit", "work", id=job["_id"], token=job["token"], changes=[{"insert": "effects", "with": effect}])
        except OperationFailure as error:
            if error.code != 125:  # the lease was over: the worker that has it now does the job
                raise


def take_number(i):
    """Numbers whose answer was lost are left out, and none is given twice."""
    answer, _ = send("truceSequence", "numbers", take=1)
    numbers.append(answer["first"])


# ---- the final state -----------------------------------------------------------------------------


def members(count):
    """The members after the operations, applied once and in order."""
    found = {}
    for i in range(count):
        name = f"class {random.Random(i).randrange(5)}"
        found.pop(name, None)
        if i % 3 != 2:
            found[name] = i
    return found


def wrong(done):
    """Sentences of what is lost or doubled."""
    reported = []

    def expect(what, found, wanted):
        if found != wanted:
            reported.append(f"{what}: {found}, not {wanted}")

    expect("accounts", [x["n"] for x in db.accounts.find(sort=[("_id", 1)])], [-done["pay"], done["pay"]])
    expect("receipts", sorted(x["i"] for x in db.receipts.find()), list(range(done["pay"])))
    for account, by in (("cash", -3), ("sales", 3)):
        balance = db.command("truceLedgerBalance", "bank", account=account)
        expect(account, balance["balance"], by * done["post"])
    answer = db.command({"truceSet": "students", "key": {"student_id": 1}, "field": "classes", "name": "name"})
    expect("set", {x["name"]: x["i"] for x in answer.get("members", [])}, members(done["change_set"]))
    expect("effects", sorted(x["job"] for x in db.effects.find()), list(range(done["enqueue"])))
    expect("numbers", len(set(numbers)), len(numbers))
    findings = db.client.admin.command("truceCheck", 1)["findings"]
    expect("check", findings, [])
    return reported


def main():
    db.accounts.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 0}])
    for account in "cash", "sales":
        send("truceLedgerOpen", "bank", currency="EUR", digits=2, account=account)

    workers = [Worker(work) for work in (pay, post, change_set, enqueue, do_job, take_number)]
    for worker in workers:
        worker.start()
    for _ in range(KILLS):
        for worker in workers:
            worker.wait(3)
        subprocess.run(os.environ["TRUCE_TEST_SERVER_KILL"], check=True)
    for worker in workers:
        worker.wait(3)
    stop.set()
    for worker in workers:
        worker.join()

    done = {worker.work.__name__: worker.done for worker in workers}
    until = time.monotonic() + 120  # for jobs that were claimed and not done
    while not failures and db.effects.count_documents({}) < done["enqueue"] and time.monotonic() < until:
        do_job(0)
    failures.extend(wrong(done))
    if KILLS and not resent:
        failures.append("nothing was sent again: the server was killed amid nothing")
    if not failures:  # would it be seen?
        pay(0, key="another key")
        db.effects.insert_one({"job": 0})
        if len(wrong(done)) != 3:
            failures.append(f"what was done twice is not seen: {wrong(done)}")
    print(f"pymongo {pymongo.version}: {KILLS} kills, {resent} sent again, {found} of them had been done; {done}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


began = time.time()
numbers = []
sys.exit(main())
