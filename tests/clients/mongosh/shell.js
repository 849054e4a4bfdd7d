// mongosh: what people type into it, against the server of tests/clients/run.
let passed = 0, failed = 0;

function equal(what, found, wanted) {
    const [a, b] = [found, wanted].map((value) => EJSON.stringify(value));
    if (a === b) passed++;
    else {
        failed++;
        print(`FAILED: ${what}: ${a}, not ${b}`);
    }
}

function code(call) {
    try {
        call();
        return 0;
    } catch (error) {
        return error.code;
    }
}

db = db.getSiblingDB("shell");
db.dropDatabase();
equal("insertMany", Object.keys(db.people.insertMany([{ _id: 1, name: "Ada", n: 1 }, { _id: 2, name: "Bob", n: 2 }]).insertedIds).length, 2);
equal("find", db.people.find({ n: { $gt: 1 } }).toArray(), [{ _id: 2, name: "Bob", n: 2 }]);
equal("findOne", db.people.findOne({ name: /^a/i }, { name: 1, _id: 0 }), { name: "Ada" });
equal("updateOne", db.people.updateOne({ _id: 1 }, { $inc: { n: 5 } }).modifiedCount, 1);
equal("createIndex", db.people.createIndex({ name: 1 }, { unique: true }), "name_1");
equal("getIndexes", db.people.getIndexes().map((index) => index.name), ["_id_", "name_1"]);
equal("a key that is taken", code(() => db.people.insertOne({ name: "Ada" })), 11000);
equal("aggregate", db.people.aggregate([{ $group: { _id: null, n: { $sum: "$n" } } }]).toArray(), [{ _id: null, n: 8 }]);
db.createView("named", "people", [{ $project: { name: 1 } }]);
equal("a view", db.named.find({ _id: 1 }).toArray(), [{ _id: 1, name: "Ada" }]);
equal("a view's index", db.named.find({ _id: 1 }).explain("executionStats").stages[0].$cursor.executionStats.totalDocsExamined, 1);
equal("a view's definition", db.getCollectionInfos({ name: "named" })[0].options, { viewOn: "people", pipeline: [{ $project: { name: 1 } }] });
equal("a write to a view", code(() => db.named.insertOne({ name: "Eve" })), 166);
equal("a view's drop", [db.named.drop(), db.named.countDocuments()], [true, 0]);
db.system.views.drop();
for (let i = 0; i < 50; i++) db.many.insertOne({ _id: i });
equal("cursors", db.many.find().batchSize(7).toArray().length, 50);
equal("show collections", db.getCollectionNames().sort(), ["many", "people"]);
equal("show dbs", db.adminCommand({ listDatabases: 1, nameOnly: true }).databases.some((d) => d.name === "shell"), true);
equal("explain", db.people.find({ name: "Ada" }).explain().queryPlanner.winningPlan.stage !== undefined, true);
equal("stats", db.people.stats().count, 2);
equal("db.stats", db.stats().collections, 2);
equal("validate", db.people.validate().valid, true);
equal("serverStatus", db.serverStatus().connections.current > 0, true);
equal("currentOp", db.currentOp().ok, 1);
equal("rs.status", rs.status().myState, 1);
equal("version", /^\d+\.\d+\.\d+$/.test(db.version()), true);
db.people.renameCollection("persons");
equal("renameCollection", db.persons.countDocuments(), 2);
const session = db.getMongo().startSession();
session.startTransaction();
session.getDatabase("shell").persons.updateOne({ _id: 1 }, { $set: { n: 0 } });
session.abortTransaction();
equal("a transaction that is undone", db.persons.findOne({ _id: 1 }).n, 6);
session.withTransaction(() => session.getDatabase("shell").persons.updateOne({ _id: 1 }, { $set: { n: 7 } }));
equal("a transaction", db.persons.findOne({ _id: 1 }).n, 7);
equal("an unknown command", code(() => db.runCommand({ frobnicate: 1 })), 59);
equal("drop", db.persons.drop(), true);
print(`mongosh ${process.env.TRUCE_TEST_CLIENT_VERSION} (node ${process.version}): ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
