"""
pymongo with a sidecar: `truce serve mongodb://...` in front of a replica set, which is another truce server here. Transactions and
change streams pass through, while the sidecar, its upstream server, and a client are killed.
"""
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pymongo
from checks import equal, report
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

PROGRAM = os.environ["TRUCE_TEST_PROGRAM"]


class Served:
    """A `truce serve`, which can be killed and started again on its port."""

    def __init__(self, store, *options):
        self.store, self.options, self.port = store, options, 0
        self.start()

    def start(self):
        command = [PROGRAM, "serve", self.store, "--port", str(self.port), "--parent", str(os.getpid()), "--json", "--quiet", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = json.loads(self.process.stdout.readline())["port"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def client(self, **options):
        return pymongo.MongoClient("127.0.0.1", self.port, **{"directConnection": True, "serverSelectionTimeoutMS": 20000, **options})


@contextlib.contextmanager
def servers(*options):
    with tempfile.TemporaryDirectory() as folder:
        upstream = Served(f"{folder}/upstream.truce", "--replica-set", "rs", "--feed-keep", "1h")
        front = Served(f"mongodb://127.0.0.1:{upstream.port}/shop", "--deadline", "3s", *options)
        try:
            yield upstream, front
        finally:
            front.kill()
            upstream.kill()


def labels(call):
    try:
        call()
    except PyMongoError as error:
        return [label for label in ("TransientTransactionError", "UnknownTransactionCommitResult") if error.has_error_label(label)]
    return "no error"


def transactions(upstream, front):
    client = front.client()
    db, direct = client.shop, upstream.client().shop
    c = db.accounts
    c.insert_many([{"_id": "a", "n": 10}, {"_id": "b", "n": 0}])

    def move(session):
        c.update_one({"_id": "a"}, {"$inc": {"n": -1}}, session=session)
        c.update_one({"_id": "b"}, {"$inc": {"n": 1}}, session=session)
        equal("its own writes", c.find_one({"_id": "b"}, session=session)["n"], 1)
        equal("another reader", direct.accounts.find_one({"_id": "b"})["n"], 0)
        return "done"

    with client.start_session() as session:
        equal("with_transaction", session.with_transaction(move), "done")
        equal("committed", [d["n"] for d in direct.accounts.find().sort("_id", 1)], [9, 1])
        session.start_transaction()
        c.delete_many({}, session=session)
        session.abort_transaction()
        equal("aborted", direct.accounts.count_documents({}), 2)
        with client.start_session() as other:
            session.start_transaction()
            other.start_transaction()
            for s in session, other:
                c.update_one({"_id": "a"}, {"$inc": {"n": 1}}, session=s)
            session.commit_transaction()
            equal("a conflict", labels(other.commit_transaction), ["TransientTransactionError"])
        session.start_transaction()
        c.insert_many([{"_id": i} for i in range(2500)], session=session)
        equal("a cursor of several batches", len(list(c.find({}, session=session, batch_size=100))), 2502)
        session.commit_transaction()
        equal("all of them", direct.accounts.count_documents({}), 2502)


def contention(upstream, front):
    """Many threads in with_transaction: each increment counts once."""
    client = front.client()
    c = client.shop.counters
    c.insert_many([{"_id": i, "n": 0} for i in range(3)])

    def work(number):
        with client.start_session() as session:
            for i in range(5):
                def both(s):
                    c.update_one({"_id": number % 3}, {"$inc": {"n": 1}}, session=s)
                    c.update_one({"_id": (number + 1) % 3}, {"$inc": {"n": 1}}, session=s)
                session.with_transaction(both)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal("increments", sum(d["n"] for d in upstream.client().shop.counters.find()), 80)


def operations(upstream, front):
    client = front.client()
    db = client.shop
    db.letters.insert_one({"_id": 0})
    with client.start_session() as session:
        def make(s):
            db.letters.insert_one({"_id": 1}, session=s)
            db.command("truceEnqueue", "mail", payload={"letter": 1}, session=s)
            db.command("truceCommit", [{"insert": "letters", "with": {"_id": 2}}], session=s)
        session.with_transaction(make)
        equal("with a job", (db.letters.count_documents({}), upstream.client().shop.truce_queue.count_documents({})), (3, 1))
        session.start_transaction()
        make_again = lambda: db.command("truceCommit", [{"insert": "letters", "with": {"_id": 2}}], session=session)
        try:
            make_again()
            equal("a duplicate", "no error", 11000)
        except OperationFailure as error:
            equal("a duplicate", error.code, 11000)
        equal("after it", labels(lambda: db.letters.find_one({}, session=session)), ["TransientTransactionError"])
        session.abort_transaction()


def streams(upstream, front):
    db, direct = front.client().shop, upstream.client().shop
    with db.letters.watch(max_await_time_ms=2000) as stream, direct.letters.watch() as other:
        direct.letters.insert_one({"_id": "x"})
        event, same = next(stream), next(other)
        equal("the same event", event, same)
        equal("the same token", stream.resume_token, other.resume_token)
    direct.letters.update_one({"_id": "x"}, {"$set": {"n": 1}})
    with db.letters.watch(resume_after=event["_id"], full_document="updateLookup") as stream:
        equal("resumed", next(stream)["fullDocument"], {"_id": "x", "n": 1})
        equal("nothing else", stream.try_next(), None)
    with db.watch([{"$match": {"operationType": "insert"}}], start_after=event["_id"]) as stream:
        db.others.insert_one({"_id": "y"})
        equal("of the database", next(stream)["ns"], {"db": "shop", "coll": "others"})


def followed(upstream, front):
    """A stream while both servers are killed in turn: every change comes once and in order."""
    numbers, broken = [], []
    stream = front.client().shop.followed.watch(max_await_time_ms=500)

    def follow():
        try:
            for event in stream:
                numbers.append(event["documentKey"]["_id"])
                if numbers[-1] == 59:
                    return
        except PyMongoError as error:
            broken.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(60):
        upstream.client().shop.followed.insert_one({"_id": number})
        if number in (20, 40):
            killed = upstream if number == 20 else front
            killed.kill()
            killed.start()
    thread.join(60)
    equal("followed", (numbers, broken), (list(range(60)), []))


def killed_upstream(upstream, front):
    """The upstream server is killed before the commit, and again during many commits."""
    client = front.client()
    c = client.shop.killed
    c.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        upstream.kill()
        equal("no upstream server", labels(session.commit_transaction), ["TransientTransactionError"])
        upstream.start()
        equal("the commit again", labels(session.commit_transaction), ["TransientTransactionError"])
        equal("it was undone", upstream.client().shop.killed.find_one()["n"], 0)
    done, stop = [0], []

    def work():
        with client.start_session() as session:
            while not stop:
                session.with_transaction(lambda s: c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s))
                done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(3):
        time.sleep(0.5)
        upstream.kill()
        upstream.start()
    time.sleep(0.5)
    stop.append(True)
    thread.join(120)
    equal("each of the commits counts once", upstream.client().shop.killed.find_one()["n"], done[0])
    equal("some commits", done[0] > 0, True)


def killed_front(upstream, front):
    """The sidecar is killed during many commits; its client continues."""
    client = front.client()
    c = client.shop.front
    c.insert_one({"_id": 1, "n": 0})
    done, stop = [0], []

    def work():
        with client.start_session() as session:
            while not stop:
                try:
                    session.with_transaction(lambda s: c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s))
                except ConnectionFailure as error:
                    if error.has_error_label("UnknownTransactionCommitResult"):
                        raise
                    continue
                done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(3):
        time.sleep(0.5)
        front.kill()
        front.start()
    time.sleep(0.5)
    stop.append(True)
    thread.join(120)
    equal("each commit counts once", upstream.client().shop.front.find_one()["n"], done[0])


def killed_client(upstream, front):
    """A client is killed within its transaction, which ends after its time."""
    code = f"""if True:
        import pymongo, time
        client = pymongo.MongoClient("127.0.0.1", {front.port}, directConnection=True)
        session = client.start_session()
        session.start_transaction()
        client.shop.left.insert_one({{"_id": 1}}, session=session)
        print("begun", flush=True)
        time.sleep(100)"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    time.sleep(2.5)
    equal("it left nothing", upstream.client().shop.left.count_documents({}), 0)
    front.client().shop.left.insert_one({"_id": 1})
    equal("its _id is free", upstream.client().shop.left.count_documents({}), 1)


def other_drivers(upstream, front):
    here = os.path.join(os.path.dirname(__file__), "..")
    uri = f"mongodb://127.0.0.1:{front.port}/shop?directConnection=true"
    for name, command in ("TRUCE_SIDECAR_NODE", ["node", f"{here}/node/driver.cjs"]), ("TRUCE_SIDECAR_GO", [os.environ.get("TRUCE_SIDECAR_GO")]):
        if name in os.environ:
            run = {**os.environ, "TRUCE_TEST_SIDECAR_URI": uri, "NODE_PATH": os.environ[name]}
            equal(name, subprocess.run(command, env=run).returncode, 0)


def main():
    for test in other_drivers, transactions, contention, operations, streams, followed, killed_upstream, killed_front:
        with servers() as (upstream, front):
            test(upstream, front)
    with servers("--transaction-timeout", "1s") as (upstream, front):
        killed_client(upstream, front)
    report(f"with pymongo {pymongo.version}, Python {platform.python_version()}", "sidecar")


if __name__ == "__main__":
    main()
