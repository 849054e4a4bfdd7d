"""
pymongo as it comes, with a server that is killed under it: its writes and transactions are sent again by the driver, and
each is done once. No call may fail: the server is killed only after every client was answered since it came back.
"""
import os
import subprocess
import sys
import threading

import pymongo

KILLS = int(os.environ.get("TRUCE_SERVE_KILLS", "3"))
PATIENCE = dict(serverSelectionTimeoutMS=120000, connectTimeoutMS=60000)

address = os.environ["TRUCE_TEST_MONGODB"].split("?")[0]
client = pymongo.MongoClient(address, replicaSet="truce", **PATIENCE)
db = client.get_database("test")
stop = threading.Event()
failures = []


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
        """Until so many more are done."""
        until = self.done + more
        while self.is_alive() and self.done < until:
            self.join(0.01)


def update(i):
    assert db.counters.update_one({"_id": "update"}, {"$inc": {"n": 1}}).modified_count == 1


def find_and_modify(i):
    before = db.counters.find_one_and_update({"_id": "modify"}, {"$inc": {"n": 1}})
    assert before["n"] == i, f"{before} is not {i}"


def insert(i):
    assert len(db.inserted.insert_many([{"n": i}, {"n": i}]).inserted_ids) == 2


def remove(i):
    assert db.queue.delete_one({}).deleted_count == 1
    db.queue.insert_one({"n": i})


def transfer(i):
    def move(session):
        db.accounts.update_one({"_id": "a"}, {"$inc": {"n": -1}}, session=session)
        db.accounts.update_one({"_id": "b"}, {"$inc": {"n": 1}}, session=session)

    with client.start_session() as session:
        session.with_transaction(move)


def expect(what, found, wanted):
    if found != wanted:
        failures.append(f"{what}: {found}, not {wanted}")


def main():
    for name in "counters", "inserted", "queue", "accounts":
        db[name].drop()
    db.counters.insert_many([{"_id": "update", "n": 0}, {"_id": "modify", "n": 0}])
    db.queue.insert_many([{"n": -i} for i in range(10)])
    db.accounts.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 0}])

    workers = [Worker(work) for work in (update, find_and_modify, insert, remove, transfer)]
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
    expect("updates", db.counters.find_one({"_id": "update"})["n"], done["update"])
    expect("find-and-modify", db.counters.find_one({"_id": "modify"})["n"], done["find_and_modify"])
    expect("inserted", db.inserted.count_documents({}), 2 * done["insert"])
    expect("queue", db.queue.count_documents({}), 10)
    expect("a", db.accounts.find_one({"_id": "a"})["n"], -done["transfer"])
    expect("b", db.accounts.find_one({"_id": "b"})["n"], done["transfer"])
    print(f"pymongo {pymongo.version}: {KILLS} kills, {done}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


sys.exit(main())
