"""pymongo, since 3.11: what programs do with it, against the servers of tests/clients/run."""
import os
import platform
import sys
from datetime import datetime, timezone

import bson
import gridfs
import pymongo
from pymongo import DeleteOne, InsertOne, ReturnDocument, UpdateMany, UpdateOne, monitoring
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

URI = os.environ["TRUCE_TEST_CLIENT_URI"]
AUTH_URI = os.environ["TRUCE_TEST_CLIENT_AUTH_URI"]
passed = failed = 0


def equal(what, found, wanted):
    global passed, failed
    if found == wanted:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}: {found!r}, not {wanted!r}")


def fails(what, code, call):
    """The error, if it has the code."""
    try:
        call()
    except OperationFailure as error:
        equal(what, error.code, code)
        return error
    equal(what, "no error", code)
    return None


def crud(db):
    c = db.crud
    c.drop()
    equal("insert_one", c.insert_one({"_id": 1, "n": 1, "tags": ["a", "b"]}).inserted_id, 1)
    equal("insert_many", c.insert_many([{"_id": i, "n": i} for i in (2, 3, 4)]).inserted_ids, [2, 3, 4])
    equal("find_one", c.find_one({"tags": "b"}, {"n": 1, "_id": 0}), {"n": 1})
    equal("find", [d["_id"] for d in c.find({"n": {"$gt": 1}}).sort("n", -1).skip(1).limit(2)], [3, 2])
    result = c.update_one({"_id": 1}, {"$inc": {"n": 10}})
    equal("update_one", (result.matched_count, result.modified_count), (1, 1))
    equal("update_many", c.update_many({"n": {"$lt": 10}}, {"$set": {"small": True}}).modified_count, 3)
    equal("upsert", c.update_one({"_id": 9}, {"$set": {"n": 9}}, upsert=True).upserted_id, 9)
    equal("replace_one", c.replace_one({"_id": 9}, {"n": 90}).modified_count, 1)
    equal("find_one_and_update", c.find_one_and_update({"_id": 9}, {"$inc": {"n": 1}}, return_document=ReturnDocument.AFTER), {"_id": 9, "n": 91})
    equal("find_one_and_delete", c.find_one_and_delete({"_id": 9}), {"_id": 9, "n": 91})
    equal("count_documents", c.count_documents({"small": True}), 3)
    equal("estimated_document_count", c.estimated_document_count(), 4)
    equal("distinct", sorted(c.distinct("tags")), ["a", "b"])
    result = c.bulk_write([InsertOne({"_id": 20}), UpdateMany({"small": True}, {"$unset": {"small": 1}}), UpdateOne({"_id": 21}, {"$set": {"n": 1}}, upsert=True), DeleteOne({"_id": 2})])
    equal("bulk_write", (result.inserted_count, result.modified_count, result.upserted_count, result.deleted_count), (1, 3, 1, 1))
    try:
        c.bulk_write([InsertOne({"_id": 20}), InsertOne({"_id": 30})], ordered=False)
    except BulkWriteError as error:
        equal("unordered bulk_write", ([e["code"] for e in error.details["writeErrors"]], error.details["nInserted"]), ([11000], 1))
    kinds = {"_id": bson.ObjectId(), "long": bson.Int64(2**60), "date": datetime(2001, 2, 3, tzinfo=timezone.utc).replace(tzinfo=None), "bytes": b"ab", "decimal": bson.Decimal128("1.50"), "nothing": None, "u": "\u00fc\u4e2d"}
    c.insert_one(kinds)
    equal("kinds of values", c.find_one({"_id": kinds["_id"]}), kinds)
    c.with_options(write_concern=pymongo.WriteConcern(w=0)).insert_one({"_id": "silent"})
    equal("after w: 0", c.database.client.admin.command("ping")["ok"], 1.0)
    equal("delete_many", c.delete_many({"_id": {"$type": "int"}}).deleted_count, 6)


def cursors(db):
    c = db.cursors
    c.drop()
    c.insert_many([{"_id": i} for i in range(1000)])
    equal("getMore", [d["_id"] for d in c.find().sort("_id", 1).batch_size(7)], list(range(1000)))
    cursor = c.find(batch_size=2)
    next(cursor)
    number = cursor.cursor_id
    cursor.close()
    fails("a cursor that is closed", 43, lambda: db.command({"getMore": bson.Int64(number), "collection": "cursors"}))
    equal("aggregate in batches", len(list(c.aggregate([{"$match": {"_id": {"$gte": 500}}}], batchSize=11))), 500)


def indexes(db):
    c = db.indexes
    c.drop()
    equal("create_index", c.create_index("email", unique=True, sparse=True), "email_1")
    c.create_index([("a", 1), ("b", -1)])
    equal("index_information", sorted(c.index_information()), ["_id_", "a_1_b_-1", "email_1"])
    c.insert_one({"email": "a@b"})
    try:
        c.insert_one({"email": "a@b"})
        equal("a key that is taken", "no error", 11000)
    except DuplicateKeyError as error:
        equal("a key that is taken", (error.code, error.details["keyPattern"], error.details["keyValue"]), (11000, {"email": 1}, {"email": "a@b"}))
    c.insert_one({"email": "c@d"})
    try:
        c.find_one_and_update({"email": "c@d"}, {"$set": {"email": "a@b"}})
    except DuplicateKeyError as error:
        equal("in find_one_and_update", (error.details["keyValue"], "E11000 duplicate key error collection: test.indexes index: email_1" in str(error)), ({"email": "a@b"}, True))
    c.insert_many([{"a": a, "b": b} for a in (2, 1) for b in (1, 2)])
    part = c.find({}, {"_id": 0, "a": 1, "b": 1}).hint("a_1_b_-1").min([("a", 1), ("b", 1)]).max([("a", 2), ("b", 1)])
    equal("min and max", list(part), [{"a": 1, "b": 1}, {"a": 2, "b": 2}])
    equal("keys", list(c.find(return_key=True).hint([("a", 1), ("b", -1)]).min([("a", 2), ("b", 1)])), [{"a": 2, "b": 1}])
    equal("records", [list(d)[-1] for d in c.find({"a": 2, "b": 1}, show_record_id=True)], ["$recordId"])
    fails("min without a hint", 51173, lambda: db.command("find", "indexes", min={"a": 1, "b": 1}))
    c.drop_index("a_1_b_-1")
    fails("an index that is not there", 27, lambda: c.drop_index("a_1_b_-1"))
    equal("explain", "queryPlanner" in c.find({"email": "a@b"}).explain(), True)


def transactions(client, db):
    c = db.accounts
    c.drop()
    c.insert_many([{"_id": "a", "n": 10}, {"_id": "b", "n": 0}])

    def move(session):
        c.update_one({"_id": "a"}, {"$inc": {"n": -1}}, session=session)
        c.update_one({"_id": "b"}, {"$inc": {"n": 1}}, session=session)
        equal("its own writes", c.find_one({"_id": "b"}, session=session)["n"], 1)
        equal("another client's view", c.find_one({"_id": "b"})["n"], 0)
        return "done"

    with client.start_session() as session:
        equal("with_transaction", session.with_transaction(move), "done")
        equal("committed", [d["n"] for d in c.find().sort("_id", 1)], [9, 1])
        made = db.made_within
        made.drop()
        session.start_transaction()
        db.command("create", "made_within", session=session)
        db.command("createIndexes", "made_within", indexes=[{"key": {"v": 1}, "name": "v", "unique": True}], session=session)
        made.insert_one({"v": 1}, session=session)
        equal("made, for itself alone", (made.count_documents({}, session=session), "made_within" in db.list_collection_names()), (1, False))
        session.commit_transaction()
        equal("made by the commit", sorted(made.index_information()), ["_id_", "v"])
        fails("a key that is taken", 11000, lambda: made.insert_one({"v": 1}))
        session.start_transaction()
        c.delete_many({}, session=session)
        session.abort_transaction()
        equal("aborted", c.count_documents({}), 2)
        with client.start_session() as other:
            session.start_transaction()
            other.start_transaction()
            for s in session, other:
                n = c.find_one({"_id": "a"}, session=s)["n"]
                c.update_one({"_id": "a"}, {"$set": {"n": n + 1}}, session=s)
            session.commit_transaction()
            error = fails("a conflict", 112, other.commit_transaction)
            equal("its label", error and error.has_error_label("TransientTransactionError"), True)


def snapshots(client, db):
    if not hasattr(pymongo.client_session.SessionOptions, "snapshot"):
        return  # of 3.12
    c = db.moments
    c.drop()
    c.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    with client.start_session(snapshot=True) as session:
        cursor = c.find({}, session=session, batch_size=1)
        equal("one moment", next(cursor)["n"], 1)
        c.update_many({}, {"$set": {"n": 2}})
        equal("a second batch of it", [one["n"] for one in cursor], [1])
        equal("the same in an aggregation", c.count_documents({"n": 1}, session=session), 2)
        equal("in a distinct", c.distinct("n", session=session), [1])
        fails("a write", 72, lambda: c.insert_one({}, session=session))
    with client.start_session(snapshot=True) as session:
        equal("another moment", c.distinct("n", session=session), [2])


class Sent(monitoring.CommandListener):
    def __init__(self):
        self.commands = {}

    def started(self, event):
        self.commands[event.command_name] = event.command

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


def retryable():
    sent = Sent()
    client = pymongo.MongoClient(URI, event_listeners=[sent])
    c = client.test.retryable
    c.delete_many({})
    c.insert_one({"_id": 1})
    c.update_one({"_id": 1}, {"$inc": {"n": 1}})
    commands = sent.commands
    equal("numbered", ["txnNumber" in commands[name] for name in ("insert", "update", "delete")], [True, True, False])
    again = {"update": "retryable", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], "lsid": commands["update"]["lsid"], "txnNumber": bson.Int64(1000)}
    try:
        equal("sent twice", [client.test.command(again)["n"] for _ in range(2)], [1, 1])
    except TypeError:  # some versions want to set the session themselves
        return
    equal("done once", c.find_one({"_id": 1})["n"], 2)


def aggregation(db):
    db.sales.drop()
    db.shops.drop()
    db.sales.insert_many([{"_id": i, "shop": i % 2, "n": i} for i in range(1, 7)])
    db.shops.insert_many([{"_id": 0, "name": "zero"}, {"_id": 1, "name": "one"}])
    equal("$group", list(db.sales.aggregate([{"$group": {"_id": "$shop", "n": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}])), [{"_id": 0, "n": 12}, {"_id": 1, "n": 9}])
    lookup = [{"$match": {"_id": 1}}, {"$lookup": {"from": "shops", "localField": "shop", "foreignField": "_id", "as": "s"}}, {"$project": {"s.name": 1}}]
    equal("$lookup", list(db.sales.aggregate(lookup)), [{"_id": 1, "s": [{"name": "one"}]}])
    list(db.sales.aggregate([{"$match": {"shop": 1}}, {"$merge": {"into": "odd"}}]))
    equal("$merge", db.odd.count_documents({}), 3)


def views(client, db):
    for name in "names", "adults", "people":
        db[name].drop()
    db.people.insert_many([{"_id": i, "name": f"n{i}", "age": 10 * i, "of": i % 2} for i in range(1, 8)])
    db.create_collection("adults", viewOn="people", pipeline=[{"$match": {"age": {"$gte": 20}}}])
    db.create_collection("names", viewOn="adults", pipeline=[{"$project": {"name": 1, "of": 1}}])
    equal("a view", db.names.find_one({"_id": 3}), {"_id": 3, "name": "n3", "of": 1})
    equal("sorted", [d["_id"] for d in db.names.find({"of": 0}, {"_id": 1}).sort("name", -1).skip(1).limit(2)], [4, 2])
    equal("in batches", [d["_id"] for d in db.names.find(batch_size=2)], [2, 3, 4, 5, 6, 7])
    equal("count_documents", db.adults.count_documents({"of": 1}), 3)
    if not (4, 0) <= pymongo.version_tuple[:2] < (4, 2):  # these ask $collStats, which views have not
        equal("estimated_document_count", db.adults.estimated_document_count(), 6)
    equal("distinct", sorted(db.names.distinct("of")), [0, 1])
    equal("aggregated", list(db.adults.aggregate([{"$group": {"_id": "$of", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])), [{"_id": 0, "n": 3}, {"_id": 1, "n": 3}])
    joined = [{"$match": {"_id": 1}}, {"$lookup": {"from": "names", "localField": "of", "foreignField": "of", "as": "all"}}]
    equal("joined", [d["_id"] for d in list(db.people.aggregate(joined))[0]["all"]], [3, 5, 7])
    listed = list(db.list_collections(filter={"type": "view", "name": "names"}))
    equal("listed", [(v["name"], v["options"]["viewOn"], v["info"]["readOnly"]) for v in listed], [("names", "adults", True)])
    fails("a write", 166, lambda: db.adults.insert_one({"_id": 9}))
    fails("an index", 166, lambda: db.adults.create_index("age"))
    fails("a name that is taken", 48, lambda: db.command("create", "adults"))
    if hasattr(pymongo.MongoClient, "bulk_write"):
        writes = [InsertOne({"_id": 9}, namespace=f"{db.name}.{name}") for name in ("adults", "people")]
        found = None
        try:
            client.bulk_write(writes, ordered=False)
        except pymongo.errors.ClientBulkWriteException as error:
            found = [(e["idx"], e["code"]) for e in error.write_errors], error.partial_result.inserted_count
        equal("a bulk over both", found, ([(0, 166)], 1))
    with client.start_session() as session, session.start_transaction():
        db.people.insert_one({"_id": 10, "age": 99}, session=session)
        equal("in a transaction", db.adults.find_one({"age": 99}, session=session), {"_id": 10, "age": 99})
        session.abort_transaction()
    db.command("collMod", "adults", viewOn="people", pipeline=[{"$match": {"age": {"$gte": 60}}}])
    equal("changed", [d["_id"] for d in db.names.find()], [6, 7])
    db.names.drop()
    equal("dropped", (list(db.names.find()), db.people.find_one({"_id": 1})["age"]), ([], 10))
    fails("a circle", 5, lambda: db.command("collMod", "adults", viewOn="adults", pipeline=[]))


def files(db):
    bucket = gridfs.GridFSBucket(db, bucket_name="pyfiles", chunk_size_bytes=100000)
    contents = b"truce " * 100000
    number = bucket.upload_from_stream("a.bin", contents, metadata={"kind": "test"})
    stream = bucket.open_download_stream(number)
    equal("GridFS", stream.read() == contents, True)
    bucket.rename(number, "b.bin")
    equal("its list", [f.filename for f in bucket.find({"metadata.kind": "test"})], ["b.bin"])
    bucket.delete(number)
    equal("its chunks", db["pyfiles.chunks"].count_documents({}), 0)


def errors(client, db):
    fails("an unknown command", 59, lambda: db.command("frobnicate"))
    db.valid.drop()
    db.create_collection("valid", validator={"$jsonSchema": {"required": ["name"]}})
    try:
        db.valid.insert_one({"n": 1})
    except WriteError as error:
        equal("a validator", error.code, 121)
    fails("an unknown operator", 2, lambda: list(db.valid.find({"a": {"$frob": 1}})))
    equal("list_collection_names", "valid" in db.list_collection_names(), True)
    equal("list_database_names", "test" in client.list_database_names(), True)
    equal("dbstats", db.command("dbstats")["ok"], 1.0)
    equal("serverStatus", client.admin.command("serverStatus")["connections"]["current"] > 0, True)


def watching(client, db):
    c = db.watched
    c.drop()
    with c.watch([{"$match": {"operationType": {"$ne": "delete"}}}], full_document="updateLookup", max_await_time_ms=200) as stream:
        equal("nothing yet", stream.try_next(), None)
        token = stream.resume_token
        c.insert_one({"_id": 1, "list": [1]})
        c.update_one({"_id": 1}, {"$push": {"list": 2}})
        c.delete_one({"_id": 1})
        c.insert_one({"_id": 2})
        events = [next(stream) for _ in range(3)]
        equal("events", [e["operationType"] for e in events], ["insert", "update", "insert"])
        equal("what was changed", events[1]["updateDescription"]["updatedFields"], {"list.1": 2})
        equal("looked up", events[1]["fullDocument"], None)
        equal("place", events[0]["ns"], {"db": "test", "coll": "watched"})
    with c.watch(resume_after=token) as stream:
        equal("again", [next(stream)["documentKey"]["_id"] for _ in range(4)], [1, 1, 1, 2])
    with c.watch(start_at_operation_time=events[2]["clusterTime"]) as stream:
        equal("from a moment", next(stream)["_id"], events[2]["_id"])
    with client.watch() as everything, db.watch() as database:
        c.insert_one({"_id": 3})
        c.drop()
        equal("of the server", [next(everything)["operationType"] for _ in range(2)], ["insert", "drop"])
        equal("of the database", [next(database)["operationType"] for _ in range(2)], ["insert", "drop"])
    fails("no such stage", 20, lambda: c.watch([{"$group": {"_id": 1}}]).__enter__())


def access():
    client = pymongo.MongoClient(AUTH_URI)
    equal("logged in by TLS", client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"], [{"user": "truce", "db": "admin"}])
    fails("a wrong password", 18, lambda: pymongo.MongoClient(AUTH_URI.replace(":secret@", ":wrong@")).test.command("ping"))
    # as the drivers' specification of logins has it: names are as they are, passwords are prepared
    users = {"IX": ["IX", "I\u00adX", "\u2168"], "\u2168": ["\u2163", "IV", "I\u00adV"], "\u0627\u0644\U00020000": ["\u0641\u062a\u062d"]}
    for name, passwords in users.items():
        client.admin.command("createUser", name, pwd=passwords[0], roles=["read"], mechanisms=["SCRAM-SHA-256"])
        for password in passwords:
            other = pymongo.MongoClient(AUTH_URI, username=name, password=password, authSource="admin", authMechanism="SCRAM-SHA-256")
            equal("logged in", other.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"], [{"user": name, "db": "admin"}])
        client.admin.command("dropUser", name)
    fails("no emoji yet", 2, lambda: client.admin.command("createUser", "x", pwd="\U0001f600", roles=[], mechanisms=["SCRAM-SHA-256"]))


def compressed():
    """Each compressor that can be had here: what is long goes and comes compressed."""
    document = {"_id": 1, "text": "truce " * 50000, "bytes": os.urandom(10000)}
    for name, module in ("zlib", "zlib"), ("snappy", "snappy"), ("zstd", "zstandard"):
        try:
            __import__(module)
        except ImportError:
            continue
        client = pymongo.MongoClient(URI, compressors=name)
        client.test.compressed.drop()
        client.test.compressed.insert_many([document] + [{"_id": i, "n": i} for i in range(2, 500)])
        equal(name, client.test.compressed.find_one({"_id": 1}), document)
        equal(f"{name}, many", len(list(client.test.compressed.find({"n": {"$gt": 1}}))), 498)
        equal(f"{name}, offered", client.admin.command("hello", compression=["none", name, "frob"]).get("compression"), [name])


def main():
    client = pymongo.MongoClient(URI)
    db = client.get_database("test")
    for part in crud, cursors, indexes, aggregation, files:
        part(db)
    views(client, db)
    transactions(client, db)
    snapshots(client, db)
    retryable()
    watching(client, db)
    errors(client, db)
    compressed()
    access()
    hello = client.admin.command("ismaster")
    print(f"pymongo {pymongo.version} (Python {platform.python_version()}, wire version {hello['maxWireVersion']}): {passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
