// The Node package as it is installed: each part of it as its README says, and with wrong input.
//
//     module.mjs             in process, in a file; then through a server, if TRUCE_TEST_CLIENT_URI names one
//     module.mjs DATABASE    a worker on that server until SIGTERM
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once as one } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { MongoClient } from "mongodb";
import * as truce from "truce-db";
import { assertEnqueued, enqueued, inline, openTemporary, runJobs, startServer } from "truce-db/testing";
import { all, check, end, raises, until, within } from "./check.mjs";

const { Decimal128, ObjectId, Worker } = truce;
const uri = process.env.TRUCE_TEST_CLIENT_URI;
const silent = { warn() {}, error() {} };

if (process.argv[2]) {
  const db = await truce.connect(uri, { database: process.argv[2] });
  const lines = createInterface({ input: process.stdin });
  await new Worker(db, "slow", async () => {
    console.log("at work");
    await new Promise((heard) => lines.once("line", heard));
    return { by: "the worker" };
  }).run();
  console.log("ended");
  process.exit(0);
}

async function checkCommits(db) {
  const accounts = db.collection("accounts");
  await accounts.insertMany([{ _id: "a", n: 9 }, { _id: "b", n: 0 }]);
  const pay = () => db.commit((c) => {
    c.update("accounts", "b", { $inc: { n: 5 } });
    c.update("accounts", "a", { $inc: { n: -5 } }, { where: { n: { $gte: 5 } } });
  });
  await check("a commit", async () => {
    assert.equal((await pay()).earlier, false);
    assert.equal((await accounts.findOne({ _id: "b" })).n, 5);
  });
  await check("a condition that does not match", async () => {
    const error = await raises(truce.Refused, pay);
    assert.deepEqual([error.code, error.status, error.name], [20, "refused", "Refused"]);
    const missing = await raises(truce.NotFound, () => db.commit((c) => {
      c.update("accounts", "z", { $inc: { n: -5 } }, { where: { n: { $gte: 5 } } });
    }));
    assert.deepEqual([missing.code, missing.status], [125, "not found"]);
    assert.equal((await accounts.findOne({ _id: "b" })).n, 5);
  });
  await check("a function that throws changes nothing", async () => {
    await raises(RangeError, () => db.commit((c) => {
      c.remove("accounts", "a");
      throw new RangeError("no");
    }));
    assert.ok(await accounts.findOne({ _id: "a" }));
  });
  await check("a key", async () => {
    const options = { key: "k", keyTime: new Date("2026-01-01"), leave: { receipt: 1 } };
    const once = () => db.commit((c) => void c.insert("receipts", { _id: 1 }), options);
    assert.equal((await once()).earlier, false);
    const again = await once();
    assert.deepEqual([again.earlier, again.result], [true, { receipt: 1 }]);
    assert.deepEqual((await db.commitResult("k")).result, { receipt: 1 });
    assert.equal((await db.commitResult("none")).status, "not found");
    await raises(truce.Duplicate, () => db.commit((c) => void c.insert("receipts", { _id: 2 }), options));
  });
  await check("operations within a commit", async () => {
    let number;
    const { inserted, results } = await db.commit(async (c) => {
      c.insert("accounts", { n: 1 });
      number = c.enqueue("from commits", { payload: { n: 1 }, delayMS: 3600000 });
      c.missing("accounts", "z");
    });
    assert.deepEqual([inserted.length, results.get(number).added], [1, "new"]);
    assert.deepEqual((await all(db.iterateJobs("from commits"))).map((job) => job.state), ["delayed"]);
  });
  await check("wrong commits", async () => {
    await raises(TypeError, () => db.commit(() => {}, { key: "k" }));
    await raises(TypeError, () => db.commit(() => {}, { kye: "k" }));
    await raises(TypeError, () => db.commit([{ remove: "accounts", id: 1 }]));
    await raises(TypeError, () => db.commit((c) => c.update("accounts", "a", { $inc: { n: 1 } }, { when: {} })));
    await raises(TypeError, () => db.commit((c) => c.insert(undefined, {})));
    await raises(truce.Conflict, () => db.commitChanges([{ change: "accounts", id: "a", with: { n: [9, 1] } }]));
    await raises(truce.Invalid, () => db.commitChanges([{ dance: 1 }]));
    for (const [text, wrong] of [
      ["change 1: jobStep cannot", () => db.commitChanges([{ truceJobStep: "q" }])],
      ["the commit has no changes", () => db.commitChanges([])],
      ["the commit has no changes", () => db.commit(() => {})],
      ['change 1: update of "x" needs update operators', () => db.commitChanges([{ update: "x", id: 1 }])],
      ['has one after "a"', () => db.collection("a\0b").insertOne({})],
    ]) assert.ok((await raises(truce.Invalid, wrong)).message.includes(text));
    for (const [text, wrong] of [["needs keyTime", { key: "k" }], ["keyTime of commit needs key", { keyTime: 5 }]])
      assert.ok((await raises(TypeError, () => db.commit(() => {}, wrong))).message.includes(text));
    await raises(TypeError, () => db.commitChanges({ dance: 1 }));
  });
  await check("changes after the end of the function", async () => {
    const pages = db.collection("late pages");
    await pages.insertMany([{ _id: 1 }, { _id: 2 }]);
    let list;
    const late = [];
    const added = (c) => {
      list = c;
      c.insert("late others", { _id: 1 });
      late.push((async () => {
        await pages.find({ _id: 1 }).toArray();
        c.update("late pages", 1, { $set: { n: 1 } });
      })());
      late[0].catch(() => {}); // it may reject before the commit ends
    };
    assert.deepEqual((await db.commit(added)).inserted, []);
    for (const call of [() => late[0], () => list.enqueue("q", {}), () => list.insert("late pages", {})]) {
      const { message } = await raises(truce.Invalid, call);
      assert.match(message, /after the end of the function of commit: await each call in it \(forEach/);
    }
    assert.deepEqual(await pages.find().toArray(), [{ _id: 1 }, { _id: 2 }]);
    await db.enqueue("late", { payload: {} });
    const [job] = await db.claimJobs("late");
    await job.step("one", (c) => void (list = c));
    assert.match((await raises(truce.Invalid, () => list.remove("late pages", 1))).message, /of step: await/);
    await raises(RangeError, () => job.commit((c) => {
      list = c;
      throw new RangeError("no");
    }));
    assert.match((await raises(truce.Invalid, () => list.remove("late pages", 1))).message, /of commit: await/);
    await job.done();
    let edit;
    await db.edit("late tree", async (one) => (edit = one).put({ itemId: 1 }), { collection: "late items", parent: "up" });
    assert.match((await raises(truce.Invalid, () => edit.remove(1))).message, /of edit: await/);
    await pages.drop();
  });
  await check("arguments that have no value, or no meaning", async () => {
    const kept = db.collection("kept");
    await kept.insertMany([{ _id: 1 }, { _id: 2 }]);
    for (const filter of [[], [undefined], [null]])
      for (const method of ["deleteOne", "deleteMany", "findOneAndDelete"]) {
        const { message } = await raises(TypeError, () => kept[method](...filter));
        assert.equal(message, `the filter of ${method} is ${filter[0]}: give it a value, or {} for all documents`);
      }
    for (const method of ["updateOne", "updateMany", "findOneAndUpdate"])
      await raises(TypeError, () => kept[method](undefined, { $set: { n: 1 } }));
    for (const method of ["replaceOne", "findOneAndReplace"]) await raises(TypeError, () => kept[method](undefined, {}));
    for (const method of ["find", "findOne", "countDocuments"])
      await raises(TypeError, async () => kept[method](undefined));
    await raises(TypeError, () => kept.distinct("_id", undefined));
    assert.deepEqual(await kept.distinct("_id"), [1, 2]);
    assert.deepEqual([await kept.findOne(), await kept.countDocuments()], [{ _id: 1 }, 2]);
    for (const [text, fill] of [
      ["the option where of remove in kept is undefined", (c) => c.remove("kept", 1, { where: undefined })],
      ["insert has at most 2 arguments, not 3", (c) => c.insert("kept", { _id: 3 }, { where: { n: 1 } })],
      ["missing has at most 2 arguments, not 3", (c) => c.missing("kept", 3, {})],
      ["update has at most 4 arguments, not 5", (c) => c.update("kept", 1, { $set: { n: 1 } }, {}, {})],
    ]) assert.ok((await raises(TypeError, () => db.commit(fill))).message.startsWith(text));
    assert.deepEqual(await kept.find().toArray(), [{ _id: 1 }, { _id: 2 }]);
    await kept.drop();
  });
  await check("times and durations", async () => {
    for (const [text, call] of [
      ['keyTime must be a Date or milliseconds since 1970, not "2026-01-01": use new Date("2026-01-01")',
        () => db.commit((c) => c.missing("x", 1), { key: "k", keyTime: "2026-01-01" })],
      ["runAtMS is an invalid Date", () => db.enqueue("q", { payload: {}, runAtMS: new Date("never") })],
      ["runAtMS must be a Date or milliseconds since 1970, not { n: 1 }", () => db.enqueue("q", { runAtMS: { n: 1 } })],
      ['delayMS must be a duration in milliseconds, not "5 s"', () => db.enqueue("q", { payload: {}, delayMS: "5 s" })],
      ["runAtMS of jobs[1] must be a Date or milliseconds since 1970, not {",
        () => db.flow("q", { jobs: [{ name: "a" }, { name: "b", runAtMS: { n: 1 } }] })],
      ["delayMS of jobs[0] must be a duration in milliseconds, not a Date",
        () => db.commit((c) => c.flow("q", { jobs: [{ name: "a", delayMS: new Date() }] }))],
      ["expiresMS of transactions[0] must be a Date or milliseconds since 1970, not \"soon\"",
        () => db.ledgerPostMany("book", { transactions: [{ id: 1, expiresMS: "soon" }] })],
    ]) assert.ok((await raises(TypeError, call)).message.startsWith(text));
    const later = new Date(Date.now() + 1e8);
    const jobs = [{ name: "a", runAtMS: later, payload: { at: later } }, { name: "b", delayMS: undefined, after: ["a"] }];
    await db.flow("timed flows", { jobs });
    await db.commit((c) => c.flow("timed flows", { jobs }));
    const stored = await all(db.iterateJobs("timed flows"));
    assert.deepEqual(stored.map((job) => job.state), ["delayed", "blocked", "delayed", "blocked"]);
    assert.deepEqual(stored[0].payload, { at: later });
  });
  await check("unknown options, fields, and commands", async () => {
    const error = await raises(TypeError, () => db.sequence("s", { taek: 1 }));
    assert.match(error.message, /unknown option "taek" of sequence: did you mean "take"/);
    for (const [name, call] of [
      ["mustExist", () => truce.open("memory:", { mustExsit: true })],
      ["keyTime", () => db.commit(() => {}, { key_time: 5 })],
      ["concurrency", async () => new truce.Worker(db, "q", () => {}, { concurency: 5 })],
      ["projection", async () => db.collection("x").find({}, { projektion: {} })],
    ]) {
      const wrong = await raises(TypeError, call);
      assert.match(wrong.message, new RegExp(`did you mean "${name}"`));
    }
    await raises(TypeError, () => db.enqueue("q", { to: "ada" }));
    await raises(TypeError, () => db.enqueue("q", "ada"));
    await raises(TypeError, () => db.enqueue({ payload: {} }));
    await raises(TypeError, () => db.enqueue("q", { payload: {} }, { delayMS: 1 }));
    await raises(TypeError, () => db.queues("mail"));
    await raises(TypeError, () => db.enqueue("q", { payload: {}, runAtMS: new Date("never") }));
    for (const runAtMS of [1767225600, new Date(1767225600)])
      assert.match((await raises(truce.Invalid, () => db.enqueue("q", { payload: {}, runAtMS }))).message,
        /runAtMS'? is 1767225600, a time before 10000000000/);
    await raises(TypeError, () => db.enqueue("q", { payload: {}, delayMS: new Date() }));
    await raises(truce.Invalid, () => db.command({ truceSequence: "s", steps: 1 }));
    const unknown = await raises(truce.Invalid, () => db.command({ truceEnqueu: 1 }));
    assert.match(unknown.message, /unknown command "truceEnqueu": did you mean "truceEnqueue"/);
    assert.match((await raises(truce.Invalid, () => db.help("enqueu"))).message, /"enqueu" .*did you mean "enqueue"/);
    await raises(truce.Invalid, () => db.command({ truceNothing: 1 }));
    const numbers = db.collection("wide");
    for (const n of [2n ** 63n, -(2n ** 63n) - 1n]) {
      const error = await raises(TypeError, () => numbers.insertOne({ list: [{ n }] }));
      assert.match(error.message, new RegExp(`the BigInt ${n} of "n" has more than 64 bits`));
      await raises(TypeError, () => numbers.findOne({ _id: n }));
    }
    await numbers.insertMany([{ _id: 2n ** 63n - 1n }, { _id: -(2n ** 63n) }]);
    assert.equal(await numbers.countDocuments({ _id: -(2n ** 63n) }), 1);
    const scalar = await raises(truce.Invalid, () => db.set("students", { field: "classes", name: "name", key: 1, add: { name: "x" }, seq: 1 }));
    assert.match(scalar.message, /'key' of an operation must be a document/);
    const whole = await raises(truce.Invalid, () => db.commit((c) => void c.update("accounts", "a", { n: 1 })));
    assert.match(whole.message, /use replace for a whole document/);
    await raises(TypeError, () => db.command([1]));
    const directory = await raises(truce.Invalid, () => truce.open(tmpdir()));
    assert.match(directory.message, /is a directory/);
  });
}

async function checkTransactions(db) {
  const accounts = db.collection("accounts");
  const numberOf = async (id) => (await accounts.findOne({ _id: id })).n;
  await check("transact", async () => {
    const given = await db.transact(async (tx) => {
      await tx.collection("accounts").updateOne({ _id: "a" }, { $inc: { n: 100 } });
      await tx.commit((c) => void c.update("accounts", "b", { $inc: { n: 100 } }));
      await raises(TypeError, () => tx.transact(async () => {}));
      return "given";
    });
    assert.deepEqual([given, await numberOf("a"), await numberOf("b")], ["given", 104, 105]);
  });
  await check("a transaction that throws", async () => {
    await raises(RangeError, () => db.transact(async (tx) => {
      await tx.collection("accounts").updateOne({ _id: "b" }, { $inc: { n: 100 } });
      throw new RangeError("no");
    }));
    assert.equal(await numberOf("b"), 105);
  });
  await check("calls of a transaction at once", async () => {
    const numbers = db.collection("numbers");
    await db.transact(async (tx) => {
      await Promise.all([1, 2, 3, 4].map((n) => tx.collection("numbers").insertOne({ n })));
      assert.equal(await tx.collection("numbers").countDocuments(), 4);
      assert.equal(await numbers.countDocuments(), 0);
    });
    assert.equal(await numbers.countDocuments(), 4);
  });
  await check("calls that a transaction does not wait for", async () => {
    const late = /the transaction has ended: await each call/;
    const insert = (tx, _id) => tx.collection("late").insertOne({ _id });
    let kept, running;
    const keep = (call) => async (tx) => void (await call((kept = tx)));
    await db.transact(keep(() => {}));
    assert.match((await raises(truce.Invalid, () => insert(kept, 1))).message, late);
    await db.transact(keep((tx) => insert(tx, 2)));
    assert.match((await raises(truce.Invalid, () => insert(kept, 3))).message, late);
    await raises(truce.Invalid, () => kept.withSignal(new AbortController().signal).collection("late").find().toArray());
    await raises(RangeError, () => db.transact(keep(() => {
      throw new RangeError("no");
    })));
    assert.match((await raises(truce.Invalid, () => kept.enqueue("late", { payload: {} }))).message, late);
    const error = await raises(truce.Invalid, () => db.transact(async (tx) => {
      await insert(tx, 4);
      running = [insert(tx, 5), insert(tx, 6)].map((call) => call.catch(() => {}));
    }));
    assert.match(error.message, /^2 calls were still running .*: await each call/);
    await Promise.all(running);
    assert.deepEqual((await db.collection("late").find().toArray()).map((one) => one._id), [2]);
  });
  await check("a conflict is repeated", async () => {
    let tried = 0;
    await db.transact(async (tx) => {
      await tx.collection("accounts").findOne({ _id: "a" });
      if (tried++ === 0) await accounts.updateOne({ _id: "a" }, { $inc: { n: 1000 } });
      await tx.collection("accounts").updateOne({ _id: "a" }, { $inc: { n: 2 } });
    });
    assert.deepEqual([tried, await numberOf("a")], [2, 1106]);
  });
}

async function checkDocuments(db) {
  const people = db.collection("people");
  await check("inserts", async () => {
    const documents = Array.from({ length: 250 }, (_, i) => ({ _id: i, n: i % 3 }));
    const { insertedCount, insertedIds } = await people.insertMany(documents);
    assert.deepEqual([insertedCount, insertedIds[249]], [250, 249]);
    const added = { n: 0 };
    assert.ok((await people.insertOne(added)).insertedId.equals(added._id));
    assert.deepEqual(await people.deleteOne({ _id: added._id }), { acknowledged: true, deletedCount: 1 });
  });
  await check("find", async () => {
    assert.deepEqual((await all(people.find({}, { sort: "_id", batchSize: 60 }))).map((one) => one._id),
      Array.from({ length: 250 }, (_, i) => i));
    assert.deepEqual(await people.find({ n: 0 }).project({ n: 1 }).sort({ _id: -1 }).limit(2).toArray(),
      [{ _id: 249, n: 0 }, { _id: 246, n: 0 }]);
    assert.deepEqual(await people.find({}, { sort: [["n", "desc"], "_id"], skip: 1, limit: 1 }).toArray(), [{ _id: 5, n: 2 }]);
    assert.equal((await people.findOne({}, { sort: { _id: -1 } }))._id, 249);
    assert.equal(await people.findOne({ _id: "none" }), null);
    for (const [path, wrong] of [
      ["_id", () => people.findOne({ _id: undefined })], ["_id", async () => people.find({ _id: undefined })],
      ["$or.1.name", () => people.findOne({ _id: 1, $or: [{ n: 1 }, { name: undefined }] })],
      ["_id.a.b", () => people.findOne({ _id: { a: { b: undefined } } })],
      ["owner", () => people.deleteMany({ owner: undefined })],
      ["_id", () => people.updateOne({ _id: undefined }, { $set: { n: 1 } })],
      ["n", () => people.countDocuments(new Map([["n", undefined]]))],
      ["n", async () => people.aggregate([{ $match: { n: undefined } }])],
      ["n", () => db.commit((c) => c.update("people", 1, { $set: { n: 1 } }, { where: { n: undefined } }))],
      ["student_id", () => db.set("students", { field: "classes", name: "name", key: { student_id: undefined } })],
    ]) {
      const error = await raises(TypeError, wrong);
      assert.ok(error.message.startsWith(`"${path}" of `), error.message);
    }
    await raises(TypeError, () => db.commit((c) => c.remove("people", undefined)));
    for (const [what, fill] of [
      ["the option where of remove in people", (c) => c.remove("people", 1, { where: "n>1" })],
      ["the document of insert in people", (c) => c.insert("people", undefined)],
      ["the operators of update in people", (c) => c.update("people", 1, [{ $set: { n: 1 } }])],
      ["the old and new values of change in people", (c) => c.change("people", 1, null)],
    ]) {
      const { message } = await raises(TypeError, () => db.commit(fill));
      assert.ok(message.startsWith(`${what} must be a document, such as {`), message);
    }
    const at = new Date("2026-13-45");
    for (const [path, wrong] of [
      ['"at" of the argument of insertOne', () => people.insertOne({ at })],
      ['"a.1.at" of document 1 of insertMany', () => people.insertMany([{ at: new Date() }, { a: [1, { at }] }])],
      ['"at.$gt" of the filter of find', async () => people.find({ at: { $gt: at } })],
      ['"_id" of the filter of findOne', () => people.findOne({ _id: at })],
      ['"$set.at" of the update of updateOne', () => people.updateOne({ _id: 1 }, { $set: { at } })],
      ['"at" of the replacement of replaceOne', () => people.replaceOne({ _id: 1 }, new Map([["at", at]]))],
      ['"1.$set.at" of the pipeline', async () => people.aggregate([{ $match: { n: 1 } }, { $set: { at } }])],
      ['"at" of the first argument of merge', () => people.merge({ _id: 1, at })],
      ['"$set.at" of the operators of update in people', () => db.commit((c) => c.update("people", 1, { $set: { at } }))],
      ["the _id of remove in people", () => db.commit((c) => c.remove("people", at))],
      ['"at" of the option payload of enqueue', () => db.enqueue("dates", { payload: { at } })],
    ]) {
      const { message } = await raises(TypeError, wrong);
      assert.ok(message.startsWith(`${path} `) && message.includes(" is an invalid Date: "), message);
    }
    assert.equal(await people.findOne({ _id: null }), null);
    const cursor = people.find().sort("_id", -1).batchSize(2);
    assert.deepEqual([await cursor.hasNext(), (await cursor.next())._id, cursor.closed], [true, 249, false]);
    await raises(TypeError, () => cursor.limit(1));
    await cursor.close();
    assert.deepEqual([await cursor.next(), await cursor.toArray(), cursor.closed], [null, [], true]);
    for await (const one of people.find({}, { batchSize: 2 })) if (one) break; // closes the cursor
    let seen = 0;
    await people.find().forEach(() => ++seen < 7);
    assert.equal(seen, 7);
  });
  await check("counts and groups", async () => {
    assert.deepEqual([await people.countDocuments({ n: 1 }), await people.estimatedDocumentCount()], [83, 250]);
    assert.deepEqual((await people.distinct("n")).sort(), [0, 1, 2]);
    const groups = [{ $group: { _id: "$n", all: { $sum: 1 } } }, { $sort: { _id: 1 } }];
    assert.deepEqual((await people.aggregate(groups, { batchSize: 2 }).toArray()).map((one) => one.all), [84, 83, 83]);
  });
  await check("updates", async () => {
    assert.deepEqual(await people.updateOne({ _id: 1 }, { $set: { name: "Ada" } }),
      { acknowledged: true, matchedCount: 1, modifiedCount: 1, upsertedCount: 0, upsertedId: null });
    assert.deepEqual(await people.updateOne({ _id: "new" }, { $set: { name: "Bob" } }, { upsert: true }),
      { acknowledged: true, matchedCount: 0, modifiedCount: 0, upsertedCount: 1, upsertedId: "new" });
    assert.equal((await people.updateMany({ n: 0 }, [{ $set: { n: 3 } }])).modifiedCount, 84);
    assert.equal((await people.replaceOne({ _id: 1 }, { name: "Eve" })).modifiedCount, 1);
    assert.deepEqual(await people.findOneAndUpdate({ _id: 1 }, { $set: { age: 3 } }, { returnDocument: "after" }),
      { _id: 1, name: "Eve", age: 3 });
    assert.equal((await people.findOneAndReplace({ _id: 1 }, { name: "Ina" })).name, "Eve");
    assert.equal((await people.findOneAndDelete({ _id: 1 }, { projection: { name: 1 } })).name, "Ina");
    assert.equal(await people.findOneAndDelete({ _id: 1 }), null);
    assert.equal((await people.deleteMany({ n: 3 })).deletedCount, 84);
  });
  await check("indexes", async () => {
    assert.equal(await people.createIndex({ name: 1 }, { unique: true, sparse: true }), "name_1");
    assert.equal(await people.createIndex([["n", -1], ["name", 1]]), "n_-1_name_1");
    assert.deepEqual((await people.indexes()).map((one) => one.name), ["_id_", "name_1", "n_-1_name_1"]);
    const error = await raises(truce.Duplicate, () => people.insertOne({ name: "Bob" }));
    assert.equal(error.code, 11000);
    await raises(truce.Duplicate, () => people.insertMany([{ name: "Bob" }, { _id: "after" }], { ordered: false }));
    assert.ok(await people.findOne({ _id: "after" }));
    await people.dropIndex("name_1");
  });
  await check("wrong documents", async () => {
    for (const call of [
      () => people.findOne(new ObjectId()), () => people.findOne("a"), () => people.find([]), () => people.updateOne({}, { n: 1 }),
      () => people.updateOne({}), () => people.replaceOne({}, { $set: {} }), () => people.insertOne(), () => people.insertMany([]),
      () => people.insertMany({}), () => people.findOne({}, { projetion: {} }), () => people.find({}, { limits: 1 }),
      () => people.findOneAndUpdate({}, { $set: {} }, { returnDocument: true }), () => people.createIndex({}),
      () => people.createIndex({ n: 1 }, { uniqe: true }), () => people.aggregate({}), () => people.watch({}), () => people.watch([{ $match: { "documentKey._id": undefined } }]),
      () => db.collection(), () => db.collection(""), () => people.find().sort(5), () => people.find({}, { sort: true }),
      () => people.find().limit(NaN), () => people.find().limit(undefined), () => people.find().limit("3"),
      () => people.find({}, { skip: NaN }), () => people.findOne({}, { skip: null }), () => people.countDocuments({}, { limit: NaN }),
    ]) await raises(TypeError, call);
    await raises(truce.Invalid, () => people.findOne({ $nothing: 1 }));
    const { insertedId } = await people.insertOne(new Map([["of", "a map"]]));
    assert.ok((await people.findOne({ of: "a map" }))._id.equals(insertedId));
    assert.deepEqual((await people.insertMany([new Map([["_id", "own"]])])).insertedIds, { 0: "own" });
    await people.deleteMany({ _id: { $in: [insertedId, "own"] } });
    // Values that BSON would store as {}, or as another date.
    for (const [value, why] of [[Promise.resolve(1), /await it/], [new Set([1]), /array/], [new Error("no"), /message/],
      [new ArrayBuffer(1), /Buffer/], [new Date(NaN), /valid one/]])
      for (const call of [() => people.insertOne({ a: { b: [value] } }), () => people.updateOne({}, { $set: { a: value } }),
        () => db.commit((c) => void c.insert("people", { a: value })), () => db.enqueue("lost", { payload: { a: value } })])
        assert.match((await raises(TypeError, call)).message, why);
  });
  await check("values of BSON", async () => {
    const value = { _id: new ObjectId(), at: new Date(0), big: 2 ** 40, half: 0.5, price: Decimal128.fromString("1.10"),
      bytes: Buffer.from("ab"), none: null, list: [{}], text: "ä\0" };
    await db.collection("values").insertOne(value);
    const found = await db.collection("values").findOne();
    assert.deepEqual([found._id, found.at, found.big, found.half, found.price, found.none, found.list, found.text],
      [value._id, value.at, value.big, value.half, value.price, null, [{}], "ä\0"]);
    assert.equal(Buffer.from(found.bytes.buffer).toString(), "ab");
  });
  await check("a document by its _id, of each type", async () => {
    const ids = [0, -7, 2 ** 31, 1.5, "", "ada", "\u00e4\u{1f600}\0", "x".repeat(300), new ObjectId(), new Date(5), truce.Long.fromNumber(9),
      { a: 1 }, true, new Decimal128("2.5")];
    await db.collection("by id").insertMany(ids.map((_id, n) => ({ _id, n })));
    await db.collection("\u00e4").insertOne({ _id: 0, n: "other" });
    for (const [n, _id] of ids.entries()) {
      assert.equal((await db.collection("by id").findOne({ _id })).n, n, String(_id));
      assert.equal((await db.collection("\u00e4").findOne({ _id: 0 })).n, "other");
      assert.deepEqual(await db.collection("by id").findOne({ _id }, { projection: { _id: 0 } }), { n });
      assert.equal(await db.collection("by id").findOne({ _id, n: -1 }), null);
    }
    assert.equal(await db.collection("by id").findOne({ _id: "none" }), null);
    assert.equal((await db.collection("by id").findOne({ _id: { $gt: 3, $lt: 10 } })).n, 10);
    assert.equal((await db.collection("by id").findOne({ _id: 0, toBSON: () => ({ _id: 1.5 }) })).n, 3);
    await raises(truce.TruceError, () => db.collection("a\0b").findOne({ _id: 1 }));
    // The JSON of a client that imitates an ObjectId does not find what the last call found.
    const last = ids.find((_id) => _id instanceof ObjectId);
    assert.ok(await db.collection("by id").findOne({ _id: last }));
    await raises(Error, () => db.collection("by id").findOne({ _id: { _bsontype: "ObjectId", id: [] } }));
  });
  await check("more than one command can hold", async () => {
    const large = db.collection("large"), text = "x".repeat(1 << 20);
    await large.insertMany(Array.from({ length: 24 }, (_, i) => ({ _id: i, text: i < 20 ? text : "" })));
    await large.insertMany(Array.from({ length: 150 }, (_, i) => ({ _id: 100 + i, text: text.slice(0, 200000) })));
    assert.equal(await large.countDocuments(), 174);
    assert.equal((await large.find().toArray()).length, 174);
    const number = (count) => db.commit((c) => {
      for (let i = 0; i < count; i++) c.insert("large", { _id: `c${i}`, text });
    });
    await number(20);
    assert.equal((await raises(truce.Limit, () => number(60))).status, "limit reached");
    await large.drop();
    // The BSON library cuts off what does not fit into its buffer of 17 MB.
    for (const value of ["x".repeat(7e6), Buffer.alloc(7e6)]) {
      await db.commit((c) => {
        for (let i = 0; i < 3; i++) c.insert("large", { _id: i, value });
      });
      const stored = await large.find().toArray();
      for (const document of stored) assert.ok((document.value.buffer ?? document.value).length === 7e6);
      assert.equal(stored.length, 3);
      await large.drop();
    }
    // One batch of more documents than a call can have arguments.
    for (let i = 0; i < 15; i++) await large.insertMany(Array.from({ length: 10000 }, (_, n) => ({ _id: i * 10000 + n })));
    assert.equal((await large.find().batchSize(200000).toArray()).length, 150000);
    await large.drop();
  });
  await check("collections", async () => {
    assert.ok((await db.listCollections().toArray()).some((one) => one.name === "people"));
    await people.drop();
    assert.equal(await people.findOne(), null);
  });
}

async function checkSmallPatterns(db) {
  await check("sequences, requests, help", async () => {
    const { first, last } = await db.sequence("orders", { take: 3 });
    assert.deepEqual([first, last, (await db.sequence("orders", { take: 1 })).first, (await db.sequence("orders")).last], [1, 3, 4, 4]);
    await db.sequence("orders", { raise: 10 });
    assert.equal((await db.sequence("orders", { take: 1 })).first, 11);
    await db.request("mail 1", { name: "mail", input: { to: "ada" } });
    assert.equal((await db.requestState("mail 1")).request.state, "waiting");
    assert.equal((await db.requestState("x")).status, "not found");
    assert.ok((await db.help()).commands.some((one) => one.name === "truceTree"));
    const help = await db.help("truceClaim");
    assert.ok(help.fields.length > 0 && !("ok" in help) && !("operationTime" in help));
  });
  await check("sets", async () => {
    const how = { field: "classes", name: "name" }, key = { student_id: 1 };
    assert.equal((await db.set("students", { key, add: { name: "CS" }, seq: 2, ...how })).outcome, "applied");
    assert.equal((await db.set("students", { key, remove: { name: "CS" }, seq: 1, ...how })).outcome, "stale");
    assert.deepEqual((await db.set("students", { key, ...how })).members.map((one) => one.name), ["CS"]);
    assert.equal((await db.set("students", { key: { student_id: 9 }, ...how })).status, "not found");
    assert.equal((await db.setSource("students", { key: "student_id", idle: 3, ...how })).status, "ok");
  });
  await check("items", async () => {
    const badges = { field: "badges", identity: "type", filter: { _id: 1 } };
    assert.equal((await db.item("employees", { upsert: { type: "A" }, ...badges })).status, "not found");
    await db.collection("employees").insertOne({ _id: 1 });
    assert.equal((await db.item("employees", { upsert: { type: "A", n: 1 }, ...badges })).added, true);
    assert.equal((await db.item("employees", { query: { type: "A" }, update: { $inc: { n: 1 } }, ...badges })).modified, 1);
  });
  await check("copies", async () => {
    await db.syncDeclare("author", { source: "users", dependent: "comments", reference: "user", copies: { author: "name" }, settleMS: 1 });
    await db.collection("users").insertOne({ _id: 17, name: "John" });
    await db.syncInsert("comments", { document: { _id: 1, user: 17 } });
    assert.equal((await db.syncUpdate("users", { id: 17, update: { $set: { name: "J" } } })).copies, 1);
    assert.equal((await db.syncRead("comments", { id: 1 })).document.author, "J");
    await raises(truce.Invalid, () => db.syncUpdate("comments", { id: 1, update: { $set: { author: "x" } } }));
    assert.deepEqual([(await db.syncDrop("author")).status, (await db.syncDrop("author")).status], ["ok", "not found"]);
  });
}

async function checkRevisions(db) {
  await check("revisions", async () => {
    assert.equal((await db.revision("posts", { save: { _id: 1, title: "a", n: 0 } })).version, 1);
    const mine = (await db.revision("posts", { get: 1 })).document;
    assert.equal((await db.revision("posts", { save: { ...mine, title: "b" }, version: 1, base: mine })).version, 2);
    const error = await raises(truce.Conflict, () => db.revision("posts", { save: { ...mine, n: 5 }, version: 1, base: mine }));
    assert.deepEqual([error.reply.version, error.reply.status], [2, "conflict"]);
    assert.equal(error.message, 'document 1 of "posts" has version 2, and this change is based on version 1');
    const merged = await db.revision("posts", { merge: { ...mine, n: 5 }, version: 1, base: mine });
    assert.deepEqual([merged.outcome, merged.document.title, merged.document.n], ["merged", "b", 5]);
    const part = await raises(truce.Conflict, () => db.commit((c) => c.revision("posts", { merge: { ...mine, title: "c" }, version: 1, base: mine })));
    assert.deepEqual([part.conflicts.map((one) => one.path), part.reply.version, part.reply.document.title], [["title"], 3, "b"]);
    await raises(TypeError, () => db.revisionPatch("posts", { id: 1, patch: { $set: { title: "c" } }, inbox: true }));
    await db.revision("posts", { remove: 1, version: merged.version });
    assert.equal((await db.revision("posts", { get: 1 })).status, "not found");
  });
  await check("the JSON that a browser sent back", async () => {
    const pages = db.collection("pages of posts"), name = "pages of posts", keep = 5;
    const _id = new ObjectId(), author = new ObjectId();
    const saved = await db.revision(name, { keep, save: { _id, author, title: "a", price: Decimal128.fromString("1.10"),
      at: new Date(0), tags: ["x"], comments: [{ at: new Date(1), text: "one" }] } });
    const form = JSON.parse(JSON.stringify(saved.document));
    await pages.merge({ ...form, tags: ["x", "y"] }, { version: 1, keep }); // another editor
    form.title = "b";
    form.comments.push({ at: "2026-03-01T09:00:00.000Z", text: "2026-03-01T09:00:00.000Z" });
    const merged = await pages.merge(form, { version: 1, keep });
    assert.deepEqual([merged.outcome, merged.version], ["merged", 3]);
    const { document } = merged;
    assert.ok(document._id.equals(_id) && document.author.equals(author) && document.at instanceof Date);
    assert.deepEqual([document.title, document.tags, document.price.toString()], ["b", ["x", "y"], "1.10"]);
    assert.ok(document.comments[1].at instanceof Date && typeof document.comments[1].text === "string");
    const conflict = await raises(truce.Conflict, () => pages.merge({ ...form, title: "c" }, { version: 1, keep }));
    assert.deepEqual(conflict.conflicts.map((one) => one.path), ["title"]);
    await raises(TypeError, () => pages.merge(form));
    await raises(TypeError, () => pages.merge({ title: "b" }, { version: 1 }));
    await raises(TypeError, () => pages.merge(form, { version: 1, merge: form }));
  });
}

async function checkSignals(db) {
  await check("a signal ends calls", async () => {
    const abort = new AbortController(), limited = db.withSignal(abort.signal);
    await limited.collection("signals").insertOne({ _id: 1 });
    await limited.enqueue("late", { payload: {}, delayMS: 300 });
    const began = Date.now();
    setTimeout(() => abort.abort(new RangeError("enough")), 50);
    await raises(RangeError, () => limited.claimJobs("late", { waitMS: 5000 })); // it reads, until it has claimed
    assert.ok(Date.now() - began < 4000);
    await raises(RangeError, () => limited.collection("signals").findOne()); // nothing begins
    await raises(RangeError, () => limited.collection("signals").insertOne({ _id: 2 }));
    assert.equal(await db.collection("signals").countDocuments(), 1);
    let jobs = []; // the job that came too late returned to the queue
    await until(async () => (jobs = await db.claimJobs("late")).length === 1);
    assert.equal(jobs[0].attempt, 1);
    await jobs[0].done();
  });
  await check("a write whose signal ends has an unknown outcome", async () => {
    const both = (database, n) => database.commit((c) => {
      c.insert("left", { _id: n });
      c.insert("right", { _id: n });
    });
    const outcomes = [];
    for (let round = 0; round < 8; round++) {
      const abort = new AbortController(), limited = db.withSignal(abort.signal);
      const calls = Array.from({ length: 20 }, (_, n) => both(limited, 100 * round + n));
      if (round % 2) await sleep(round);
      abort.abort();
      outcomes.push(...(await Promise.allSettled(calls)));
    }
    for (const reason of [Symbol("a"), Object.create(null), undefined]) { // anything can be a reason
      const abort = new AbortController(), call = db.withSignal(abort.signal).collection("middle").insertOne({});
      abort.abort(reason);
      await raises(truce.OutcomeUnknown, () => call);
    }
    for (const { status, reason } of outcomes)
      if (status === "rejected") // AbortError: it has not begun
        assert.ok(reason.name === "AbortError" || (reason instanceof truce.OutcomeUnknown && reason.cause.name === "AbortError"), reason);
    assert.ok(outcomes.some((one) => one.reason instanceof truce.OutcomeUnknown));
    const idsOf = async (side) => (await db.collection(side).find({}, { sort: "_id" }).toArray()).map((one) => one._id);
    await until(async () => (await idsOf("left")).join() === (await idsOf("right")).join());
    const done = outcomes.filter((one) => one.status === "fulfilled").length;
    assert.ok((await idsOf("left")).length >= done);
  });
  await check("a signal of a transaction", async () => {
    const abort = new AbortController();
    await raises(RangeError, () => db.withSignal(abort.signal).transact(async (tx) => {
      await tx.collection("signals").insertOne({ _id: 3 });
      abort.abort(new RangeError("enough"));
    }));
    assert.equal(await db.collection("signals").findOne({ _id: 3 }), null);
    const inner = new AbortController();
    await raises(RangeError, () => db.transact((tx) => { // a call that is aborted in a transaction has no effect
      const call = tx.withSignal(inner.signal).collection("middle").insertOne({});
      inner.abort(new RangeError("enough"));
      return call;
    }));
    await raises(TypeError, () => db.withSignal({}));
  });
}

async function checkMoney(db) {
  await check("ledgers", async () => {
    await db.ledgerOpen("bank", { currency: "EUR", digits: 2 });
    await db.ledgerOpen("bank", { currency: "EUR", account: "cash", min: 0 });
    await db.ledgerOpen("bank", { currency: "EUR", account: "world" });
    const post = (id, value) => db.ledgerPost("bank", { id, entries: [{ account: "world", value: -value }, { account: "cash", value }] });
    assert.deepEqual([(await post(1, 1000)).exists, (await post(1, 1000)).exists], [false, true]);
    await raises(truce.Limit, () => post(2, -1001));
    await raises(truce.Limit, () => db.commit((c) => void c.ledgerPost("bank", { id: 2,
      entries: [{ account: "world", value: 1001 }, { account: "cash", value: -1001 }] })));
    for (let i = 0; i < 5; i++) await post(`x${i}`, -1);
    assert.equal((await db.ledgerBalance("bank", { account: "cash" })).balance, 995);
    assert.deepEqual((await all(db.iterateStatement("bank", "cash", { page: 2 }))).map((one) => one.value), [0, 1000, -1, -1, -1, -1, -1]);
  });
  await check("transfers", async () => {
    await db.collection("purses").insertMany([{ _id: "a", balance: 5 }, { _id: "b", balance: 0 }]);
    const move = { accounts: "purses", source: "a", destination: "b", amount: 5 };
    assert.deepEqual([(await db.transfer("moves", { id: 1, ...move })).exists, (await db.transfer("moves", { id: 1, ...move })).exists], [false, true]);
    await sleep(2); // they are sorted by the time of their change
    await raises(truce.Refused, () => db.transfer("moves", { id: 2, ...move }));
    assert.deepEqual((await all(db.iterateTransfers("moves", { page: 1 }))).map((one) => one._id), [2, 1]);
    assert.equal((await db.transferShow("moves", { id: 2 })).transfer.state, "canceled");
  });
}

async function checkTrees(db) {
  await check("trees", async () => {
    assert.equal((await db.treeRead("site")).status, "not found");
    for (const lines of [db.iterateTreeLog("site"), db.iterateTree("site"), db.iterateTreeDiff("site", { from: 0, to: 1 }),
      db.iterateStatement("bank", "csah"), db.iterateTransfers("mvoes")])
      await raises(truce.NotFound, () => all(lines)); // a misspelled name is not an empty list
    const first = await db.edit("site", (edit) => {
      edit.put({ itemId: "home" });
      for (let i = 0; i < 7; i++) edit.put({ itemId: i, up: "home", n: i % 2 });
    }, { message: "the first pages", collection: "pages", parent: "up" });
    assert.deepEqual([first.version, first.outcome], [1, "published"]);
    const { token } = await db.treeRead("site", { limit: 1 });
    await db.edit("site", (edit) => edit.put({ itemId: "jobs", up: "home" }).remove(3));
    const ids = async (options) => (await all(db.iterateTree("site", options))).map((one) => one.itemId);
    assert.deepEqual(await ids({ token, page: 3 }), [0, 1, 2, 3, 4, 5, 6, "home"]);
    assert.deepEqual(await ids({ token, filter: { n: { $gte: 0 } }, sort: { n: -1 }, page: 2 }), [1, 3, 5, 0, 2, 4, 6]);
    assert.equal((await ids()).length, 8);
    const late = (options) => db.edit("site", async (edit) => {
      edit.put({ itemId: 0, up: "home", n: 9 });
      await db.edit("site", (theirs) => theirs.put({ itemId: 1, up: "home", n: Math.random() }));
    }, options);
    assert.equal((await raises(truce.Conflict, () => late())).reply.version, 3);
    assert.equal((await late({ merge: true })).version, 5);
    await raises(truce.Invalid, () => db.treePublish("site", { changes: [{ put: { itemId: "x", up: "nothing" } }] }));
    await raises(TypeError, () => db.edit("site", () => {}, { base: "x" }));
    await db.tree("site", { tag: "launch", version: 1 });
    assert.equal((await db.treeRead("site", { tag: "launch", limit: 1 })).version, 1);
    assert.equal((await db.treeRead("site", { timeMS: new Date(), limit: 1 })).version, 5);
    assert.deepEqual((await all(db.iterateTreeLog("site", { page: 2 }))).map((one) => one.version), [5, 4, 3, 2, 1]);
    const changes = await all(db.iterateTreeDiff("site", { from: 1, to: 2, page: 1 }));
    assert.deepEqual(changes.map((one) => [one.itemId, one.change]), [[3, "removed"], ["jobs", "added"]]);
  });
}

async function checkJobs(db) {
  const states = async (queue) => (await all(db.iterateJobs(queue))).map((job) => job.state).sort();
  await check("a worker", async () => {
    const id = new ObjectId(), seen = [];
    assert.ok((await db.enqueue("mail", { payload: { n: 0 }, id })).id.equals(id));
    await db.enqueue("mail", { payloads: [1, 2, 3, 4, 5].map((n) => ({ n })) });
    assert.equal((await all(db.iterateJobs("mail", { page: 4 }))).length, 6);
    const work = async (job) => {
      const { n } = job.payload;
      seen.push(n);
      if (n === 1) await job.commit((c) => void c.insert("letters", { _id: 1 }), { result: { sent: true } });
      if (n === 2) await job.fail("no", { delayMS: 3600000 });
      if (n === 3) throw new Error("a bad payload");
      if (n === 4) assert.equal(await job.heartbeat({ percent: 50 }), 30000);
      return { n };
    };
    await new Worker(db, "mail", work, { untilEmpty: true, concurrency: 2, logger: silent }).run();
    const jobs = (await all(db.iterateJobs("mail"))).sort((a, b) => a.payload.n - b.payload.n);
    assert.deepEqual(seen.sort(), [0, 1, 2, 3, 4, 5]);
    assert.deepEqual(jobs.map((one) => one.state), ["done", "done", "delayed", "delayed", "done", "done"]);
    assert.deepEqual([jobs[0].result, jobs[1].result, jobs[4].progress], [{ n: 0 }, { sent: true }, { percent: 50 }]);
    assert.ok(await db.collection("letters").findOne({ _id: 1 }));
    assert.match(jobs[3].errors[0].text, /a bad payload/);
  });
  await check("results of a handler", async () => {
    const results = ["sent", 0, false, [1, 2], new Date(5), { n: 1 }, null, undefined, /a/i, new String("s")];
    await db.enqueue("results", { payloads: results.map((_, n) => ({ n })) });
    await new Worker(db, "results", (job) => results[job.payload.n], { untilEmpty: true, logger: silent }).run();
    const jobs = (await all(db.iterateJobs("results"))).sort((a, b) => a.payload.n - b.payload.n);
    assert.deepEqual(jobs.map((job) => job.result), [{ value: "sent" }, { value: 0 }, { value: false },
      { value: [1, 2] }, { value: new Date(5) }, { n: 1 }, undefined, undefined, { value: /a/i }, { value: "s" }]);
  });
  await check("a handler that throws anything", async () => {
    const hostile = new Proxy({}, new Proxy({}, { get: () => () => assert.fail("a trap") }));
    const silence = { toString: () => assert.fail("a call") };
    const thrown = [undefined, null, 5n, "text", Symbol("a"), Object.create(null), { code: 7 }, silence, hostile,
      Object.assign(new Error(), { message: { a: 1 } }), Object.assign(new Error(), { message: Symbol("b") }),
      Object.defineProperty(new Error("stack"), "stack", { get: () => assert.fail("a getter") }), new Error("zero\0byte"),
      new Error("x".repeat(49e6)), new truce.Suspended("mine"), new truce.Expired("another call")];
    await db.enqueue("thrown", { payloads: thrown.map((_, n) => ({ n })) });
    await new Worker(db, "thrown", (job) => {
      throw thrown[job.payload.n];
    }, { untilEmpty: true, logger: silent }).run();
    const jobs = (await all(db.iterateJobs("thrown"))).sort((a, b) => a.payload.n - b.payload.n);
    assert.deepEqual(jobs.map((job) => job.state), thrown.map(() => "delayed"));
    assert.deepEqual(jobs.map((job) => job.errors[0].text.slice(0, 12)), ["undefined", "null", "5", "text", "Symbol(a)",
      "[Object: nul", "{ code: 7 }", "{ toString: ", "a value that", "{ a: 1 }", "Symbol(b)", "stack", "zero\\0byte",
      "xxxxxxxxxxxx", "mine", "another call"]);
  });
  await check("calls that a handler does not await", async () => {
    const payloads = ["commit", "step", "wrong", "late"].map((kind) => ({ kind }));
    await db.enqueue("unawaited", { payloads });
    let late;
    const add = (_id) => (c) => void c.insert("unawaited", { _id });
    const work = async (job) => {
      const { kind } = job.payload;
      if (kind === "commit") void job.commit(add(1), { result: { sent: true } });
      if (kind === "step") void job.step("one", add(2));
      if (kind === "wrong") void job.commit((c) => (add(3)(c), c.remove("unawaited", "none")));
      if (kind === "late") late = job;
    };
    await new Worker(db, "unawaited", work, { untilEmpty: true, logger: silent }).run();
    const jobs = (await all(db.iterateJobs("unawaited"))).map((job) => [job.payload.kind, job.state, job.result]);
    assert.deepEqual(jobs.sort(), [["commit", "done", { sent: true }], ["late", "done", undefined],
      ["step", "done", undefined], ["wrong", "delayed", undefined]]);
    for (const call of [() => late.commit(add(4)), () => late.step("two", add(5)), () => late.sleep("three", 1)])
      assert.match((await raises(truce.Expired, call)).message, /already ended: await each call/);
    assert.deepEqual((await db.collection("unawaited").find().toArray()).map((one) => one._id), [1, 2]);
  });
  await check("jobs without a worker", async () => {
    await db.enqueue("by hand", { payloads: [{ n: 1 }, { n: 2 }, { n: 3 }] });
    const [done, failed, later] = await db.claimJobs("by hand", { most: 3 });
    await done.run(() => ({ ok: 1 }));
    await failed.run(() => {
      throw new TypeError("no answer");
    }, silent);
    await later.snooze();
    assert.deepEqual(await states("by hand"), ["delayed", "done", "ready"]);
    await raises(truce.Expired, () => done.done());
    const [job] = await db.claimJobs("by hand", { waitMS: 1000 });
    await db.transact(async (tx) => {
      await tx.collection("letters").insertOne({ _id: 9 });
      await job.done(undefined, { database: tx });
    });
    assert.deepEqual(await states("by hand"), ["delayed", "done", "done"]);
    assert.deepEqual(await db.claimJobs("by hand"), []);
  });
  await check("jobs of all queues", async () => {
    const { id } = await db.enqueue("tagged", { payload: {}, tags: ["of all queues"] });
    for (const queue of [1, undefined])
      assert.deepEqual((await db.jobs(queue, { tag: "of all queues" })).jobs.map((job) => job.queue), ["tagged"]);
    await db.queue(1, { action: "cancel", id });
    assert.deepEqual(await states("tagged"), ["cancelled"]);
    assert.ok((await all(db.iterateJobs(1, { state: "cancelled" }))).some((job) => job.queue === "tagged"));
    await db.commit((c) => void c.flow(1, { jobs: [{ name: "a", queue: "flows", payload: {} }] }));
    assert.deepEqual(await states("flows"), ["ready"]);
    await raises(TypeError, () => db.jobs(2));
    await raises(TypeError, () => db.jobs(""));
    await raises(TypeError, () => db.claim(1));
  });
  await check("four jobs at a time", async () => {
    let running = 0, go;
    const four = new Promise((resolve) => (go = resolve));
    await db.enqueue("many", { payloads: [{}, {}, {}, {}] });
    const worker = new Worker(db, "many", () => (++running === 4 && go(), four), { concurrency: 4, waitMS: 100 }).start();
    await four;
    await worker.stop();
    assert.deepEqual(await states("many"), ["done", "done", "done", "done"]);
  });
  await check("a graceful stop", async () => {
    let began, finish, stopped = false;
    const begun = new Promise((resolve) => (began = resolve));
    const finished = new Promise((resolve) => (finish = resolve));
    await db.enqueue("stopped", { payloads: [{}, {}] });
    const worker = new Worker(db, "stopped", () => (began(), finished), { waitMS: 100 }).start();
    await begun;
    const end = worker.stop().then(() => (stopped = true));
    await sleep(50);
    assert.equal(stopped, false);
    finish();
    await end;
    assert.deepEqual(await states("stopped"), ["done", "ready"]);
    assert.throws(() => worker.start());
    const abort = new AbortController();
    await new Worker(db, "stopped", () => abort.abort(), { signal: abort.signal, waitMS: 100 }).run();
    assert.deepEqual(await states("stopped"), ["done", "done"]);
  });
  await check("a signal says that the worker waits", async () => {
    let began, finish;
    const begun = new Promise((resolve) => (began = resolve)), finished = new Promise((resolve) => (finish = resolve));
    await db.enqueue("interrupted", { payload: {} });
    const warned = [], logger = { ...silent, warn: (text) => warned.push(text) };
    const ended = new Worker(db, "interrupted", () => (began(), finished), { waitMS: 100, name: "w", logger }).run();
    await begun;
    process.emit("SIGINT", "SIGINT");
    assert.deepEqual(warned, ["worker w of queue interrupted: waits for 1 job; Ctrl-C again ends"]);
    assert.equal(process.listenerCount("SIGINT"), 0);
    finish();
    await ended;
  });
  await check("a result that cannot be stored", async () => {
    const { id } = await db.enqueue("large", { payload: {} });
    const { id: endless } = await db.enqueue("large", { payload: {} });
    const results = new Map([[String(id), { text: "x".repeat(17000000) }], [String(endless), { n: 2n ** 70n }]]);
    await new Worker(db, "large", (job) => results.get(String(job.id)), { untilEmpty: true, logger: silent }).run();
    const jobs = await all(db.iterateJobs("large"));
    assert.deepEqual(jobs.map((job) => job.state), ["delayed", "delayed"]);
    assert.match(jobs.find((job) => job._id.equals(id)).errors[0].text, /16|large/);
    assert.match(jobs.find((job) => job._id.equals(endless)).errors[0].text, /more than 64 bits/);
  });
  await check("wrong workers", async () => {
    const work = () => {};
    const quoted = await raises(TypeError, () => new Worker(db, "q", work, { concurrency: "3" }));
    assert.match(quoted.message, /from 1, not "3"/);
    for (const make of [() => new Worker(db, "q", work, { concurrency: 0 }), () => new Worker(db, "q", work, { untilempty: true }),
      () => new Worker(db, "q", { work }), () => new Worker(db, work), () => new Worker(undefined, "q", work),
      () => new Worker(db, "q", work, { leaseMS: "1m" }), () => new Worker(db, "q", work, { waitMS: -1 }), () => new Worker(db, "q", work, { name: 5 }),
      () => new Worker(db, "q", work, { signal: 5 }), () => new Worker(db, "q", work, { logger: {} })]) await raises(TypeError, make);
    for (const signals of ["SIGTERM", null, ["TERM"]]) await raises(TypeError, () => new Worker(db, "q", work).run({ signals }));
    await raises(truce.Invalid, () => new Worker(db, "q", work, { leaseMS: 1, logger: silent }).run());
    const logged = []; // a worker that ends in the background says why
    const worker = new Worker(db, "q", work, { leaseMS: 1, logger: { ...silent, error: (...words) => logged.push(words) } });
    await raises(truce.Invalid, () => worker.start().stop());
    assert.match(logged[0][0], /worker .* of queue q: ended: Invalid/);
  });
  await check("logs", async () => {
    const ids = [];
    for (let n = 0; n < 4; n++) ids.push((await db.enqueue("logged", { payload: { n } })).id);
    const lines = [];
    const logger = Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, (text, ...more) => {
      assert.equal(more.length, 0);
      lines.push(`${level} ${text.split("\n")[0].replace(/ \(attempt 1, \d+ ms\)$/, "")}`);
      if (level === "error" && /bad payload/.test(text)) assert.match(text, /module\.mjs/);
    }]));
    const work = async (job) => {
      if (job.payload.n === 1) throw new Error("a bad payload");
      if (job.payload.n === 2) await job.fail("no paper", { delayMS: 60000 });
      if (job.payload.n === 3) await job.snooze(60000);
    };
    await new Worker(db, "logged", work, { untilEmpty: true, name: "w1", logger }).run();
    const ends = ["info {} is done", "error {} failed: Error: a bad payload", "error {} failed: no paper", "info {} returned to the queue"];
    assert.deepEqual(lines, [
      "info worker w1 of queue logged: started, concurrency 1",
      ...ids.flatMap((id, n) => [`debug job ${id} of queue logged was claimed`, ends[n].replace("{}", `job ${id} of queue logged`)]),
      "info worker w1 of queue logged: ended",
    ]);
    lines.length = 0;
    await new Worker(db, "loged", work, { untilEmpty: true, name: "w3", logger }).run();
    const warned = lines.filter((line) => line.startsWith("warn"));
    assert.equal(warned.length, 1, lines);
    assert.match(warned[0], /^warn worker w3 of queue loged: got no job: the queue "loged" has no jobs; these queues have: .*"logged"/);
    const noted = one(process, "warning");
    assert.equal((await db.queue("loged", { action: "redrive" })).known, false);
    const [warning] = await noted;
    assert.match(`${warning.name}: ${warning.message}`, /^TruceWarning: the queue "loged" has no jobs/);
    const listed = one(process, "warning");
    assert.deepEqual((await db.jobs("loged")).jobs, []);
    assert.match((await listed)[0].message, /^the queue "loged" has no jobs; these queues have: .*"logged"/);
    assert.equal((await db.jobs("logged", { state: "dead" })).note, undefined);
    lines.length = 0;
    await new Worker(db, "nothing", work, { waitMS: 50, name: "w2", logger }).start().stop();
    assert.ok(lines.includes("info worker w2 of queue nothing: stopping; waiting for 0 jobs"), lines);
  });
  await check("the lease is extended, and a cancellation is seen", async () => {
    await db.enqueue("held", { payload: {} });
    const seen = [];
    await new Worker(db, "held", async (job) => {
      await sleep(1500);
      seen.push(job.lost, (await db.claimJobs("held")).length);
      await db.queue("held", { action: "cancel", id: job.id });
      await new Promise((aborted) => job.signal.addEventListener("abort", aborted));
      seen.push(job.lost);
    }, { leaseMS: 1000, untilEmpty: true, logger: silent }).run();
    assert.deepEqual(seen, [false, 0, true]);
    assert.deepEqual(await states("held"), ["cancelled"]);
  });
  await check("a job reads the results of earlier jobs", async () => {
    await db.flow("flows", { jobs: [{ name: "get" }, { name: "mail", after: ["get"] }] });
    const found = [];
    await new Worker(db, "flows", async (job) => {
      for (const id of [job.id, job.id.toHexString()]) found.push(...(await db.jobResults(id)).jobs.map((one) => one.result.n));
      return { n: 7 };
    }, { untilEmpty: true, logger: silent }).run();
    assert.deepEqual(found, [7, 7]);
    assert.equal((await db.jobGraph(new ObjectId())).status, "not found");
    assert.match((await raises(TypeError, () => db.jobGraph(7))).message, /: an ObjectId$/);
  });
  await check("names of steps", async () => {
    const work = async (job) => {
      for (const [index, to] of ["ada", "bob"].entries())
        await job.step(job.payload.same ? "mail" : `mail ${index}`, (c) => void c.insert("mailed", { to }));
    };
    await db.enqueue("loops", { payloads: [{ same: true }, { same: false }] });
    await new Worker(db, "loops", work, { untilEmpty: true, logger: silent }).run();
    const [own, same] = (await all(db.iterateJobs("loops"))).sort((a, b) => a.payload.same - b.payload.same);
    assert.equal(same.state, "delayed");
    assert.match(same.errors[0].text, /the step "mail": give each step its own name/);
    assert.equal(own.state, "done");
    assert.equal(await db.collection("mailed").countDocuments(), 3);
    await db.enqueue("again", { payload: {} });
    let failures = 0;
    await new Worker(db, "again", async (job) => {
      const charge = () => job.step("charge", (c) => void c.require("accounts of steps", 1));
      await raises(truce.NotFound, charge);
      failures++;
      await db.collection("accounts of steps").insertOne({ _id: 1 });
      const first = charge();
      assert.match((await raises(truce.Invalid, charge)).message, /own name/);
      await first;
    }, { untilEmpty: true, logger: silent }).run();
    assert.deepEqual([failures, await states("again")], [1, ["done"]]);
  });
  await check("names of sleeps and waits", async () => {
    await db.enqueue("moments", { payload: {} });
    await new Worker(db, "moments", async (job) => {
      await raises(truce.Invalid, () => job.sleep("moment", -5)); // A call that failed may be repeated.
      await job.sleep("moment", 0);
      await raises(truce.Invalid, () => job.sleep("moment", 0), 'the sleep "moment": give each sleep its own name');
      await raises(truce.Invalid, () => job.step("moment", () => {}), 'the sleep "moment": give each step its own name');
      assert.equal(await job.wait("moment", { timeoutMS: 0 }), null);
      await raises(truce.Invalid, () => job.wait("moment", { timeoutMS: 0 }), 'the wait "moment": give each wait its own name');
    }, { untilEmpty: true, logger: silent }).run();
    assert.deepEqual(await states("moments"), ["done"]);
  });
  await check("steps", async () => {
    const attempts = [];
    const { id } = await db.enqueue("steps", { payload: {} });
    const worker = new Worker(db, "steps", async (job) => {
      const step = await job.step("charge", (c) => void c.insert("charges", { n: 1 }), { result: { n: attempts.length } });
      attempts.push(step);
      await job.sleep("a moment", 1);
      return job.wait("paid", { timeoutMS: 86400000 });
    }, { waitMS: 100, logger: silent }).start();
    const state = async () => (await db.jobs("steps", { id })).jobs[0];
    await until(async () => attempts.length >= 2 && (await state()).state !== "running");
    await db.signal("steps", { id, name: "paid", event: { by: "ada" } });
    await until(async () => (await state()).state === "done");
    await worker.stop();
    assert.deepEqual((await state()).result, { by: "ada" });
    assert.equal(await db.collection("charges").countDocuments(), 1);
    assert.deepEqual([attempts[0], attempts.at(-1)], [{ earlier: false, result: { n: 0 } }, { earlier: true, result: { n: 0 } }]);
    const missing = new ObjectId();
    await raises(truce.NotFound, () => db.signal("steps", { id: missing, name: "paid" }));
    await raises(truce.NotFound, () => db.queue("steps", { action: "cancel", id: missing }));
    await raises(truce.NotFound, () => db.cron("nope", { action: "pause" }));
    await db.enqueue("discarded", { payload: {} });
    await new Worker(db, "discarded", (job) => job.discard("no"), { untilEmpty: true }).run();
    assert.deepEqual(await states("discarded"), ["discarded"]);
  });
}

async function checkTesting(db) {
  const states = async (queue) => (await all(db.iterateJobs(queue))).map((job) => job.state).sort();
  await check("helpers for tests", async () => {
    await db.enqueue("inline", { payload: { to: { name: "ada" }, n: 1 } });
    await db.enqueue("inline", { payload: { to: { name: "bob" } }, delayMS: 60000 });
    const jobs = await assertEnqueued(db, "inline", { payload: { to: { name: "ada" } } });
    assert.deepEqual(jobs.map((job) => job.payload.n), [1]);
    await assertEnqueued(db, "inline", { count: 2 });
    const error = await raises(assert.AssertionError, () => assertEnqueued(db, "inline", { payload: { to: "eve" } }));
    assert.match(error.message, /bob/);
    await raises(assert.AssertionError, () => assertEnqueued(db, "inline", { count: 1 }));
    await raises(TypeError, () => assertEnqueued(db, "inline", { count: "2" }));
    assert.equal(await runJobs(db, "inline", (job) => ({ n: job.payload.n })), 1);
    assert.deepEqual((await db.jobs("inline", { state: "done" })).jobs.map((job) => job.result), [{ n: 1 }]);
    await db.enqueue("inline", { payload: {} });
    await raises(RangeError, () => runJobs(db, "inline", () => {
      throw new RangeError("no");
    }));
    assert.equal((await enqueued(db, "inline")).length, 2);
    assert.equal(await runJobs(db, "inline", (job) => assert.equal(job.attempt, 2)), 1);
    assert.equal(await runJobs(db, "inline", () => {}, { delayed: true }), 1);
    assert.equal((await enqueued(db, "inline")).length, 0);
  });
  await check("an inline mode", async () => {
    const own = db.withSignal(new AbortController().signal), sent = []; // the same database, as another object
    assert.equal(inline(own, {
      now: async (job) => {
        sent.push(job.payload.n);
        if (job.payload.n === 1) await own.enqueue("later", { payload: { n: 2 } });
        if (job.payload.n === 9) throw new RangeError("no");
      },
      later: (job) => void sent.push(job.payload.n),
    }), own);
    await own.enqueue("now", { payload: { n: 1 } });
    assert.deepEqual(sent, [1, 2]);
    await own.commit((c) => void c.enqueue("now", { payload: { n: 3 } }));
    await own.transact((tx) => tx.enqueue("now", { payload: { n: 4 } }));
    await own.enqueue("now", { payload: { n: 5 }, delayMS: 60000 });
    assert.deepEqual(sent, [1, 2, 3, 4]);
    await raises(RangeError, () => own.enqueue("now", { payload: { n: 9 } }));
    assert.deepEqual(await states("now"), ["delayed", "delayed", "done", "done", "done"]);
    assert.throws(() => inline(db, { now: 1 }), TypeError);
  });
}

async function checkAll(db) {
  for (const part of [checkCommits, checkTransactions, checkDocuments, checkSmallPatterns, checkRevisions, checkSignals, checkMoney, checkTrees,
    checkJobs, checkTesting]) await part(db);
}

async function checkInProcess(folder) {
  const file = path.join(folder, "school.truce");
  const db = await truce.open(file, { database: "school" });
  await checkAll(db);
  await checkClose(db, () => truce.open(file, { database: "school" }));
  await db.close();
  await check("a closed store", async () => {
    await raises(truce.Invalid, () => db.queues());
    await db.close();
  });
  await check("options of open", async () => {
    const again = await truce.open(file, { database: "school", readOnly: true });
    assert.equal((await again.collection("accounts").findOne({ _id: "b" })).n, 105);
    await raises(truce.TruceError, () => again.collection("accounts").insertOne({}));
    await again.close();
    const other = await truce.open(file, { mustExist: true });
    assert.equal(await other.collection("accounts").findOne(), null);
    await other.close();
    for (const options of [{ mustExits: true }, { readOnly: 1 }, { cacheMB: -1 }, { cacheMB: "64" }, { database: 1 },
      { database: "a\0b" }])
      await raises(TypeError, () => truce.open("memory:", options));
    for (const name of [undefined, "", 1, "a\0b", "mongodb://127.0.0.1"]) await raises(TypeError, () => truce.open(name));
    const memory = await truce.open("memory:");
    const none = await raises(truce.Invalid, () => memory.watch().next());
    assert.match(none.message, /by a store in a file that has a feed of changes: start truce serve with --feed-keep/);
    await memory.close();
    const wrong = await truce.open("memory:", { database: "a b" });
    const error = await raises(truce.Invalid, () => wrong.queues());
    assert.match(error.message, /a b/);
    await wrong.close();
  });
  await check("files that cannot be opened", async () => {
    await raises(truce.NotFound, () => truce.open(path.join(folder, "none"), { mustExist: true }));
    const text = path.join(folder, "text");
    writeFileSync(text, "no store".repeat(100));
    await raises(truce.Corrupt, () => truce.open(text));
  });
  await check("a temporary store", async () => {
    const temporary = await openTemporary();
    await temporary.collection("x").insertOne({ _id: 1 });
    await temporary.close();
  });
}

/* `open` returns another connection to the store of `db`. */
async function checkClose(db, open) {
  await check("a commit that the program does not await before the end", async () => {
    const own = await open();
    const one = own.commit((c) => void c.insert("unawaited commits", { _id: 1 }));
    const other = own.commit(async (c) => {
      await own.collection("accounts").findOne({ _id: "none" }, {});
      c.insert("unawaited commits", { _id: 2 });
    });
    const failed = raises(RangeError, () => own.commit(async () => {
      throw new RangeError("no");
    }));
    await own.close();
    await Promise.all([one, other, failed]);
    assert.equal(await db.collection("unawaited commits").countDocuments(), 2);
    await raises(truce.Invalid, () => own.commit((c) => void c.insert("unawaited commits", { _id: 3 })));
  });
}

async function checkServer() {
  const database = "module_" + randomUUID().slice(0, 8);
  const db = await truce.connect(uri, { database });
  await checkAll(db);
  await checkClose(db, () => truce.connect(uri, { database }));
  await check("watch", async () => {
    const watched = db.collection("watched"), stream = watched.watch([], { maxAwaitTimeMS: 100 });
    assert.equal(await stream.tryNext(), null);
    await watched.insertOne({ _id: 1 });
    assert.deepEqual([(await stream.next()).documentKey, await stream.tryNext()], [{ _id: 1 }, null]);
    await watched.insertOne({ _id: 2 });
    for await (const change of db.watch([], { resumeAfter: stream.resumeToken })) {
      assert.deepEqual(change.documentKey, { _id: 2 });
      break;
    }
    await stream.next(); // the second document
    const patient = watched.watch([], { maxAwaitTimeMS: 60000 });
    const began = Date.now();
    assert.equal(await patient.tryNext(), null); // starts the stream, and does not wait
    await watched.insertOne({ _id: 3 });
    assert.deepEqual((await patient.tryNext()).documentKey, { _id: 3 });
    assert.ok(Date.now() - began < 60000);
    await patient.close();
    await stream.next(); // the third document
    const next = stream.next();
    await stream.close();
    assert.deepEqual([await next, stream.closed], [null, true]);
  });
  await check("a connection that is closed under a worker", async () => {
    const own = await truce.connect(uri, { database });
    await own.enqueue("closed", { payload: {} });
    const worker = new Worker(own, "closed", () => own.close(), { logger: silent });
    assert.match((await raises(truce.Invalid, () => worker.run())).message, /claim: the database is closed/);
    await raises(truce.Invalid, () => own.queues());
    const [job] = await db.jobs("closed").then((reply) => reply.jobs);
    assert.equal(job.state, "running");
  });
  await check("SIGTERM", async () => {
    await db.enqueue("slow", { payloads: [{}, {}] });
    const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), database], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: worker.stdout })[Symbol.asyncIterator]();
    assert.equal((await lines.next()).value, "at work");
    worker.kill("SIGTERM");
    worker.stdin.write("\n");
    assert.equal((await lines.next()).value, "ended");
    assert.deepEqual((await all(db.iterateJobs("slow"))).map((one) => one.state).sort(), ["done", "ready"]);
  });
  await check("a client", async () => {
    const client = new MongoClient(uri);
    const same = await truce.connect(client, { database });
    assert.equal((await same.collection("accounts").findOne({ _id: "b" })).n, 105);
    await same.close();
    assert.equal(await client.db(database).collection("accounts").countDocuments({ _id: "b" }), 1);
    await client.close();
  });
  await db.dropDatabase();
  await db.close();
  await check("no server", async () => {
    const away = "mongodb://127.0.0.1:9/x?directConnection=true&serverSelectionTimeoutMS=50";
    const lost = await raises(truce.Unreachable, () => truce.connect(away));
    assert.match(lost.message, /127\.0\.0\.1:9.*is truce serve running there/);
    const secure = new URL(uri);
    secure.pathname = "/x";
    secure.searchParams.set("tls", "true");
    secure.searchParams.set("serverSelectionTimeoutMS", "3000");
    const plain = await raises(truce.Unreachable, () => truce.connect(secure.href));
    assert.match(plain.message, /does this server use TLS \(truce serve --tls-certificate\)\?$/);
    const misspelled = await raises(TypeError, () => truce.connect(away, { serverSelectonTimeoutMS: 5 }));
    assert.match(misspelled.message, /^connect: option serverselectontimeoutms is not supported/);
    for (const [what, hint] of [["127.0.0.1", /mongodb:/], ["x.truce", /truce\.open/], ["memory:", /truce\.open/]]) {
      const wrong = await raises(TypeError, () => truce.connect(what));
      assert.match(wrong.message, hint);
    }
    for (const [what, hint] of [["memory", /"memory:"/], [":memory:", /"memory:"/], ["mongodb://ada:secret@h/x", /truce\.connect/]]) {
      const wrong = await raises(TypeError, () => truce.open(what));
      assert.match(wrong.message, hint);
      assert.doesNotMatch(wrong.message, /secret/);
    }
    await raises(TypeError, () => truce.connect());
    for (const none of ["mongodb://127.0.0.1:9", "mongodb://ada:secret@127.0.0.1:9/", "mongodb://127.0.0.1:9/?directConnection=true"])
      assert.match((await raises(TypeError, () => truce.connect(none))).message, /^the URI names no database: expected mongodb:\/\/HOST\/DATABASE/);
    // The driver has searched for its whole timeout, so the search is not repeated.
    let sent = 0;
    const client = { connect() {}, db: () => ({ databaseName: "x", async command({ truceHelp }) {
      if (truceHelp) return { ok: 1 };
      sent++;
      throw Object.assign(new Error("no server"), { name: "MongoServerSelectionError" });
    } }) };
    const alone = await truce.connect(client);
    await raises(truce.Unreachable, () => alone.queues());
    assert.equal(sent, 1);
  });
}

async function checkPrivateServer() {
  await check("watch in process", async () => {
    const folder = mkdtempSync(path.join(tmpdir(), "truce-watch-")), file = path.join(folder, "feed.truce");
    const server = await startServer({ program: process.env.TRUCE_TEST_PROGRAM, file, args: ["--feed-keep", "1h"] });
    const db = await truce.open(file), watched = db.collection("watched");
    const stream = watched.watch([], { maxAwaitTimeMS: 100 });
    assert.equal(await stream.tryNext(), null);
    await watched.insertOne({ _id: 1 });
    assert.deepEqual((await stream.next()).documentKey, { _id: 1 });
    const next = stream.next();
    await watched.insertOne({ _id: 2 });
    assert.deepEqual((await next).documentKey, { _id: 2 });
    await stream.close();
    await db.close();
    await server.close();
    rmSync(folder, { recursive: true });
  });
  await check("a private server", async () => {
    const server = await startServer({ program: process.env.TRUCE_TEST_PROGRAM });
    const db = await truce.connect(server.uri);
    await db.enqueue("q", { payload: {} });
    await assertEnqueued(db, "q");
    await db.close();
    await server.close();
    for (const [args, name] of [[[], "test"], [["--database", "school"], "school"], [["--database=school"], "school"]]) {
      const other = await startServer({ program: process.env.TRUCE_TEST_PROGRAM, args });
      assert.ok(other.uri.endsWith(`/${name}`));
      const client = new MongoClient(other.uri);
      const same = await truce.connect(client);
      await same.enqueue("q", { payload: {} });
      assert.equal(await client.db(name).collection("truce_queue").countDocuments(), 1);
      await same.close();
      await client.close();
      await other.close();
    }
    await assert.rejects(startServer({ program: "/none/truce" }), /no program/);
    await assert.rejects(startServer({ program: process.env.TRUCE_TEST_PROGRAM, args: ["--nothing"] }), /--nothing/);
  });
}

within("in process");
const folder = mkdtempSync(path.join(tmpdir(), "truce-module-"));
await check("versions", () => assert.equal(truce.libraryVersion(), truce.version));
await checkInProcess(folder);
rmSync(folder, { recursive: true });
if (uri) {
  within("through a server");
  await checkServer();
  await checkPrivateServer();
}
end(`truce ${truce.version}, node ${process.version}`);
