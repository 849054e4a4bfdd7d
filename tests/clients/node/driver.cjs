// Node's driver, of any version since 4: what programs do with it, against the servers of tests/clients/run.
const mongodb = require("mongodb");
const { MongoClient, GridFSBucket, ObjectId, Long } = mongodb;
const version = require("mongodb/package.json").version;

let passed = 0, failed = 0;

function equal(what, found, wanted) {
    const [a, b] = [found, wanted].map((value) => JSON.stringify(value));
    if (a === b) passed++;
    else {
        failed++;
        console.log(`FAILED: ${what}: ${a}, not ${b}`);
    }
}

async function fails(what, code, call) {
    try {
        await call();
        equal(what, "no error", code);
    } catch (error) {
        equal(what, error.code, code);
        return error;
    }
}

async function crud(db) {
    const c = db.collection("crud");
    await c.drop().catch(() => {});
    equal("insertOne", (await c.insertOne({ _id: 1, n: 1, tags: ["a", "b"] })).insertedId, 1);
    equal("insertMany", (await c.insertMany([{ _id: 2, n: 2 }, { _id: 3, n: 3 }, { _id: 4, n: 4 }])).insertedCount, 3);
    equal("findOne", await c.findOne({ tags: "b" }, { projection: { n: 1, _id: 0 } }), { n: 1 });
    equal("find", await c.find({ n: { $gt: 1 } }).sort({ n: -1 }).skip(1).limit(2).map((d) => d._id).toArray(), [3, 2]);
    let result = await c.updateOne({ _id: 1 }, { $inc: { n: 10 }, $push: { tags: "c" } });
    equal("updateOne", [result.matchedCount, result.modifiedCount], [1, 1]);
    equal("updateMany", (await c.updateMany({ n: { $lt: 10 } }, { $set: { small: true } })).modifiedCount, 3);
    result = await c.updateOne({ _id: 9 }, { $set: { n: 9 } }, { upsert: true });
    equal("upsert", [result.upsertedCount, result.upsertedId], [1, 9]);
    equal("replaceOne", (await c.replaceOne({ _id: 9 }, { n: 90 })).modifiedCount, 1);
    equal("update by a pipeline", (await c.updateOne({ _id: 9 }, [{ $set: { m: { $add: ["$n", 1] } } }])).modifiedCount, 1);
    equal("arrayFilters", (await c.updateOne({ _id: 1 }, { $set: { "tags.$[t]": "z" } }, { arrayFilters: [{ t: "a" }] })).modifiedCount, 1);
    equal("what stands", await c.findOne({ _id: 1 }), { _id: 1, n: 11, tags: ["z", "b", "c"] });
    const value = (found) => (found && "lastErrorObject" in found ? found.value : found); // until version 6
    equal("findOneAndUpdate", value(await c.findOneAndUpdate({ _id: 9 }, { $inc: { n: 1 } }, { returnDocument: "after" })), { _id: 9, n: 91, m: 91 });
    equal("findOneAndReplace", value(await c.findOneAndReplace({ _id: 9 }, { n: 0 })), { _id: 9, n: 91, m: 91 });
    equal("findOneAndDelete", value(await c.findOneAndDelete({ _id: 9 })), { _id: 9, n: 0 });
    equal("countDocuments", await c.countDocuments({ small: true }), 3);
    equal("estimatedDocumentCount", await c.estimatedDocumentCount(), 4);
    equal("distinct", (await c.distinct("tags")).sort(), ["b", "c", "z"]);
    result = await c.bulkWrite([
        { insertOne: { document: { _id: 20 } } },
        { updateMany: { filter: { small: true }, update: { $unset: { small: 1 } } } },
        { updateOne: { filter: { _id: 21 }, update: { $set: { n: 1 } }, upsert: true } },
        { replaceOne: { filter: { _id: 20 }, replacement: { n: 20 } } },
        { deleteOne: { filter: { _id: 2 } } },
        { deleteMany: { filter: { _id: { $in: [3, 4] } } } },
    ]);
    equal("bulkWrite", [result.insertedCount, result.modifiedCount, result.upsertedCount, result.deletedCount], [1, 4, 1, 3]);
    const error = await fails("unordered bulkWrite", 11000, () =>
        c.bulkWrite([{ insertOne: { document: { _id: 20 } } }, { insertOne: { document: { _id: 30 } } }], { ordered: false }));
    equal("its other statement", [error && error.result.insertedCount, await c.countDocuments({ _id: 30 })], [1, 1]);
    equal("deleteMany", (await c.deleteMany({})).deletedCount, 4);
    const kinds = { _id: new ObjectId(), long: Long.fromString("9007199254740993"), date: new Date(5), bytes: new mongodb.Binary(Buffer.from("ab")), decimal: mongodb.Decimal128.fromString("1.50"), re: /a/i, nothing: null };
    await c.insertOne(kinds);
    equal("kinds of values", await c.findOne({ _id: kinds._id }, { promoteLongs: false }), kinds);
    await c.insertOne({ _id: "silent" }, { writeConcern: { w: 0 } });
    equal("after w: 0", await c.findOne({ _id: "silent" }), { _id: "silent" });
}

async function cursors(db) {
    const c = db.collection("cursors");
    await c.drop().catch(() => {});
    await c.insertMany(Array.from({ length: 1000 }, (_, i) => ({ _id: i })));
    let n = 0;
    for await (const document of c.find({}, { batchSize: 7, sort: { _id: 1 } })) n += document._id === n ? 1 : 0;
    equal("getMore", n, 1000);
    const cursor = c.find({}, { batchSize: 2 });
    await cursor.next();
    const id = cursor.id;
    await cursor.close();
    const ended = await db.command({ getMore: id, collection: "cursors" }).catch((error) => error.code);
    equal("a cursor that is closed", ended, 43);
    equal("aggregate in batches", (await c.aggregate([{ $match: { _id: { $gte: 500 } } }], { batchSize: 11 }).toArray()).length, 500);
    const big = "x".repeat(1 << 20);
    await c.insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: `big${i}`, big })));
    equal("more than 16 MB", (await c.find({ big: { $exists: true } }).toArray()).length, 20);
}

async function indexes(db) {
    const c = db.collection("indexes");
    await c.drop().catch(() => {});
    equal("createIndex", await c.createIndex({ email: 1 }, { unique: true, sparse: true }), "email_1");
    equal("createIndexes", await c.createIndexes([{ key: { a: 1, b: -1 } }, { key: { when: 1 }, name: "ttl", expireAfterSeconds: 3600 }]).catch((e) => e.message), ["a_1_b_-1", "ttl"]);
    equal("indexes", (await c.indexes()).map((index) => index.name), ["_id_", "email_1", "a_1_b_-1", "ttl"]);
    await c.insertOne({ email: "a@b" });
    const error = await fails("a key that is taken", 11000, () => c.insertOne({ email: "a@b" }));
    equal("its key", [error && error.keyPattern, error && error.keyValue], [{ email: 1 }, { email: "a@b" }]);
    await c.dropIndex("a_1_b_-1");
    equal("indexExists", await c.indexExists("a_1_b_-1"), false);
    equal("explain", typeof (await c.find({ email: "a@b" }).explain()).queryPlanner, "object");
}

async function transactions(client, db) {
    const c = db.collection("accounts");
    await c.drop().catch(() => {});
    await c.insertMany([{ _id: "a", n: 10 }, { _id: "b", n: 0 }]);
    const session = client.startSession();
    await session.withTransaction(async () => {
        await c.updateOne({ _id: "a" }, { $inc: { n: -1 } }, { session });
        await c.updateOne({ _id: "b" }, { $inc: { n: 1 } }, { session });
        equal("its own writes", (await c.findOne({ _id: "b" }, { session })).n, 1);
        equal("another client's view", (await c.findOne({ _id: "b" })).n, 0);
    });
    equal("committed", (await c.find().sort({ _id: 1 }).toArray()).map((d) => d.n), [9, 1]);
    session.startTransaction();
    await c.deleteMany({}, { session });
    await session.abortTransaction();
    equal("aborted", await c.countDocuments(), 2);
    // transactions that change the same document: withTransaction repeats those that conflict
    await Promise.all([1, 2, 3, 4].map(() => client.withSession((s) => s.withTransaction(async () => {
        const { n } = await c.findOne({ _id: "a" }, { session: s });
        await c.updateOne({ _id: "a" }, { $set: { n: n + 1 } }, { session: s });
    }))));
    equal("four at a time", (await c.findOne({ _id: "a" })).n, 13);
    session.startTransaction();
    const error = await fails("an error within", 11000, () => c.insertOne({ _id: "a" }, { session }));
    equal("has no label", error && error.hasErrorLabel("TransientTransactionError"), false);
    await session.abortTransaction().catch(() => {});
    await session.endSession();
}

async function retryable(uri) {
    const client = new MongoClient(uri, { monitorCommands: true });
    const sent = {};
    client.on("commandStarted", (event) => { sent[event.commandName] = event.command; });
    const c = client.db("test").collection("retryable");
    await c.deleteMany({});
    await c.insertOne({ _id: 1 });
    await c.findOneAndUpdate({ _id: 1 }, { $set: { n: 1 } });
    await c.updateMany({}, { $set: { n: 2 } });
    equal("numbered", [sent.insert, sent.findAndModify].map((command) => command.txnNumber > 0), [true, true]);
    equal("not numbered", [sent.update, sent.delete].map((command) => command.txnNumber), [undefined, undefined]);
    equal("a session", Boolean(sent.insert.lsid && sent.insert.lsid.id), true);
    // the same statement again, as a driver sends it whose answer was lost
    const again = { insert: "retryable", documents: [{ _id: 2 }], lsid: sent.insert.lsid, txnNumber: Long.fromNumber(1000) };
    const answers = [];
    for (let i = 0; i < 2; i++) answers.push((await client.db("test").command(again)).n);
    equal("sent twice, done once", [answers, await c.countDocuments()], [[1, 1], 2]);
    await client.close();
}

async function aggregation(db) {
    const c = db.collection("sales"), shops = db.collection("shops");
    await c.drop().catch(() => {});
    await shops.drop().catch(() => {});
    await c.insertMany([1, 2, 3, 4, 5, 6].map((i) => ({ _id: i, shop: i % 2, n: i })));
    await shops.insertMany([{ _id: 0, name: "zero" }, { _id: 1, name: "one" }]);
    equal("$group", await c.aggregate([{ $group: { _id: "$shop", n: { $sum: "$n" } } }, { $sort: { _id: 1 } }]).toArray(), [{ _id: 0, n: 12 }, { _id: 1, n: 9 }]);
    equal("$lookup", await c.aggregate([{ $match: { _id: 1 } }, { $lookup: { from: "shops", localField: "shop", foreignField: "_id", as: "s" } }, { $unwind: "$s" }, { $project: { name: "$s.name" } }]).toArray(), [{ _id: 1, name: "one" }]);
    equal("$facet", await c.aggregate([{ $facet: { all: [{ $count: "n" }], top: [{ $sort: { n: -1 } }, { $limit: 1 }] } }]).toArray(), [{ all: [{ n: 6 }], top: [{ _id: 6, shop: 0, n: 6 }] }]);
    await c.aggregate([{ $match: { shop: 1 } }, { $out: "odd" }]).toArray();
    equal("$out", await db.collection("odd").countDocuments(), 3);
}

async function views(client, db) {
    const people = db.collection("people"), adults = db.collection("adults"), names = db.collection("names");
    for (const c of [names, adults, people]) await c.drop().catch(() => {});
    await people.insertMany([1, 2, 3, 4, 5].map((i) => ({ _id: i, name: `n${i}`, age: 10 * i })));
    await db.createCollection("adults", { viewOn: "people", pipeline: [{ $match: { age: { $gte: 20 } } }] });
    await db.createCollection("names", { viewOn: "adults", pipeline: [{ $project: { name: 1 } }] });
    equal("a view", await names.findOne({ _id: 3 }), { _id: 3, name: "n3" });
    equal("in batches", await names.find({}, { batchSize: 2 }).sort({ name: -1 }).map((d) => d._id).toArray(), [5, 4, 3, 2]);
    equal("counted", [await adults.countDocuments({ age: { $lt: 40 } }), await adults.estimatedDocumentCount()], [2, 4]);
    equal("distinct", await names.distinct("name", { _id: { $gt: 3 } }), ["n4", "n5"]);
    equal("aggregated", await adults.aggregate([{ $group: { _id: null, n: { $sum: "$age" } } }]).toArray(), [{ _id: null, n: 140 }]);
    equal("joined", (await people.aggregate([{ $unionWith: "names" }, { $match: { age: null } }]).toArray()).length, 4);
    equal("listed", (await db.listCollections({ name: "names" }).toArray()).map((v) => [v.type, v.options.viewOn]), [["view", "adults"]]);
    await fails("a write", 166, () => adults.insertOne({ _id: 9 }));
    if (client.bulkWrite) {
        const models = ["adults", "people"].map((name) => ({ name: "insertOne", namespace: `${db.databaseName}.${name}`, document: { _id: 9 } }));
        const error = await client.bulkWrite(models, { ordered: false }).catch((error) => error);
        equal("a bulk over both", [[...error.writeErrors].map(([number, { code }]) => [number, code]), error.partialResult.insertedCount], [[[0, 166]], 1]);
    }
    await fails("a change of a view", 166, () => adults.findOneAndUpdate({ _id: 2 }, { $set: { age: 1 } }));
    await names.drop();
    equal("dropped", await names.find().toArray(), []);
}

async function files(db) {
    const bucket = new GridFSBucket(db, { bucketName: "files", chunkSizeBytes: 100000 });
    await bucket.drop().catch(() => {});
    const bytes = Buffer.alloc(654321, "truce ");
    const id = await new Promise((resolve, reject) => {
        const upload = bucket.openUploadStream("a.bin", { metadata: { kind: "test" } });
        upload.on("error", reject);
        upload.on("finish", () => resolve(upload.id));
        upload.end(bytes);
    });
    const parts = [];
    for await (const part of bucket.openDownloadStream(id)) parts.push(part);
    equal("GridFS", Buffer.concat(parts).equals(bytes), true);
    equal("its list", (await bucket.find({ "metadata.kind": "test" }).toArray()).map((f) => f.length), [654321]);
    await bucket.delete(id);
    equal("its chunks", await db.collection("files.chunks").countDocuments(), 0);
}

async function errors(client, db) {
    await fails("an unknown command", 59, () => db.command({ frobnicate: 1 }));
    await db.collection("valid").drop().catch(() => {});
    const valid = await db.createCollection("valid", { validator: { $jsonSchema: { required: ["name"] } } });
    await fails("a validator", 121, () => valid.insertOne({ n: 1 }));
    await fails("an unknown operator", 2, () => valid.find({ a: { $frob: 1 } }).toArray());
    await fails("maxTimeMS below zero", 2, () => db.command({ ping: 1, maxTimeMS: -1 }));
    equal("listCollections", (await db.listCollections({ name: "valid" }).toArray()).map((c) => c.type), ["collection"]);
    await valid.rename("valid2", { dropTarget: true });
    equal("rename", (await db.listCollections({ name: /^valid/ }, { nameOnly: true }).toArray()).map((c) => c.name), ["valid2"]);
    equal("listDatabases", (await client.db().admin().listDatabases()).databases.some((d) => d.name === "test"), true);
    equal("stats", typeof (await db.stats()).collections, "number");
}

async function access(uri) {
    const client = new MongoClient(uri);
    const who = await client.db("admin").command({ connectionStatus: 1 });
    equal("logged in by TLS", who.authInfo.authenticatedUsers, [{ user: "truce", db: "admin" }]);
    equal("a write", (await client.db("test").collection("secret").insertOne({ a: 1 })).acknowledged, true);
    await client.close();
    const wrong = new MongoClient(uri.replace(":secret@", ":wrong@"));
    await fails("a wrong password", 18, () => wrong.db("test").command({ ping: 1 }));
    await wrong.close();
}

async function compressed(uri) {
    const document = { _id: 1, text: "truce ".repeat(50000) };
    for (const name of ["zlib", "snappy"]) {
        try {
            if (name === "snappy") require("snappy");
        } catch {
            continue;
        }
        const client = new MongoClient(uri, { compressors: [name] });
        const c = client.db("test").collection("compressed");
        await c.drop().catch(() => {});
        await c.insertMany([document, ...Array.from({ length: 500 }, (_, i) => ({ _id: i + 2 }))]);
        equal(name, await c.findOne({ _id: 1 }), document);
        equal(`${name}, many`, (await c.find({ _id: { $gt: 1 } }).toArray()).length, 500);
        await client.close();
    }
}

async function watching(db) {
    const c = db.collection("watched");
    await c.insertOne({ _id: 0 });
    const stream = c.watch([], { fullDocument: "updateLookup", maxAwaitTimeMS: 200 });
    equal("nothing yet", await stream.tryNext(), null);
    const token = stream.resumeToken;
    await c.insertOne({ _id: 1 });
    await c.updateOne({ _id: 1 }, { $set: { n: 2 } });
    const first = await stream.next(), second = await stream.next();
    equal("events", [first.operationType, second.operationType], ["insert", "update"]);
    equal("looked up", second.fullDocument, { _id: 1, n: 2 });
    await stream.close();
    const again = c.watch([], { resumeAfter: token });
    equal("again", (await again.next())._id, first._id);
    await again.next();
    const waits = again.next().catch(() => null); /* a waiting call ends when the stream is closed */
    await again.close();
    await waits;
    await c.drop();
}

/* What a sidecar passes on (python/sidecar.py). */
async function sidecar(uri) {
    const client = new MongoClient(uri);
    await client.connect();
    await transactions(client, client.db());
    await watching(client.db());
    await client.close();
    console.log(`sidecar with the Node driver ${version} (node ${process.version}): ${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
}

async function main() {
    if (process.env.TRUCE_TEST_SIDECAR_URI) return sidecar(process.env.TRUCE_TEST_SIDECAR_URI);
    const client = new MongoClient(process.env.TRUCE_TEST_CLIENT_URI);
    await client.connect();
    const db = client.db("test");
    const hello = await db.command({ hello: 1 });
    await crud(db);
    await cursors(db);
    await indexes(db);
    await transactions(client, db);
    await retryable(process.env.TRUCE_TEST_CLIENT_URI);
    await watching(db);
    await aggregation(db);
    await views(client, db);
    await files(db);
    await errors(client, db);
    await compressed(process.env.TRUCE_TEST_CLIENT_URI);
    await client.close();
    await access(process.env.TRUCE_TEST_CLIENT_AUTH_URI);
    console.log(`Node driver ${version} (node ${process.version}, wire version ${hello.maxWireVersion}): ${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
}

main().catch((error) => {
    console.log(`FAILED: Node driver ${version}:`, error);
    process.exit(1);
});
