"""One measurement of the Python package or of pymongo: measure.py WHAT STORE SECONDS prints nanoseconds for each call:
of the clock, and of the processor.
"""
import sys
import threading
import time

import pymongo
import truce

THREADS = 8


def collection_of(what, store):
    """Returns the collection "x", by the package or by the driver, and what must be closed."""
    if what.startswith("driver"):
        client = pymongo.MongoClient(store)
        return client.get_default_database()["x"], client
    db = truce.open(store)
    return db["x"], db


def find(collection, seconds):
    for i in range(1000):
        assert collection.find_one({"_id": i})["n"] == i
    calls, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for i in range(200):
            collection.find_one({"_id": i})
        calls += 200
    return (time.perf_counter() - began) / calls, (time.process_time() - used) / calls


def insert(collection, seconds):
    """Durable inserts by threads."""
    counts = [0] * THREADS
    end = time.perf_counter() + seconds

    def work(number):
        while time.perf_counter() < end:
            collection.insert_one({"n": number})
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    began, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) / sum(counts), (time.process_time() - used) / sum(counts)


def main(what, store, seconds):
    collection, owner = collection_of(what, store)
    measure = insert if what.endswith("insert") else find
    took = measure(collection.database["inserted"] if measure is insert else collection, float(seconds))
    print(*(round(one * 1e9) for one in took))
    owner.close()


main(*sys.argv[1:])
