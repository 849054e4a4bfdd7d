"""
pymongo as it comes, following a collection, a database, and the whole server while the server is
killed. The driver resumes by itself, and every change comes once and in order.
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
db = client.get_database("watched")
failures = []


class Follower(threading.Thread):
    """Takes the numbers of what was inserted into one collection, until the last."""

    def __init__(self, name, of):
        super().__init__()
        self.name = name
        self.stream = of.watch([{"$match": {"ns.coll": "numbers"}}], max_await_time_ms=500)
        self.numbers = []

    def run(self):
        try:
            for event in self.stream:
                if event["operationType"] == "insert":
                    self.numbers.append(event["fullDocument"]["n"])
                if event["operationType"] == "delete":
                    return
        except Exception as error:
            failures.append(f"{self.name}: {error!r}")

    def expect(self, count):
        if self.numbers != list(range(count)):
            failures.append(f"{self.name}: {len(self.numbers)} numbers of {count}, or not in order")


def main():
    followers = [Follower("collection", db.numbers), Follower("database", db), Follower("server", client)]
    for follower in followers:
        follower.start()
    count = 0
    for _ in range(KILLS):
        for _ in range(100):
            db.numbers.insert_one({"_id": count, "n": count})
            db.others.insert_one({"n": count})
            count += 1
        subprocess.run(os.environ["TRUCE_TEST_SERVER_KILL"], shell=True, check=True)
    db.numbers.insert_one({"_id": count, "n": count})
    db.numbers.delete_one({"_id": 0})
    for follower in followers:
        follower.join(120)
        if follower.is_alive():
            failures.append(f"{follower.name}: does not end")
        follower.expect(count + 1)
    print(f"pymongo {pymongo.version}: {KILLS} kills, {count + 1} changes")
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.stdout.flush()
    os._exit(1 if failures else 0)


main()
