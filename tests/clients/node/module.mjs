// The package of clients/node, as it is installed, against `truce serve`: each part of it as its README says, and with wrong input.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { MongoClient, ObjectId } from "mongodb";
import * as truce from "truce";

const uri = process.env.TRUCE_TEST_CLIENT_URI;
const database = process.argv[2] ?? "module_" + randomUUID().slice(0, 8);
const school = await truce.connect(uri, database);

if (process.argv[2]) { // a worker in a process of its own, until SIGTERM
  const lines = createInterface({ input: process.stdin });
  await school.queue("slow").run(async () => {
    console.log("at work");
    await new Promise((heard) => lines.once("line", heard));
    return { by: "the worker" };
  });
  console.log("ended");
  process.exit(0);
}

const db = school.database;
let checks = 0, failed = 0;

async function check(what, call) {
  checks++;
  try {
    await call();
  } catch (error) {
    failed++;
    console.log(`FAILED: ${what}: ${error.message}`);
  }
}
const all = async (iterable) => {
  const list = [];
  for await (const one of iterable) list.push(one);
  return list;
};
const raises = async (kind, call) => {
  const error = await call().then(() => undefined, (thrown) => thrown);
  assert.ok(error instanceof kind, `raised ${error}, not ${kind.name}`);
  return error;
};

await check("commits", async () => {
  await db.collection("accounts").insertMany([{ _id: "a", n: 9 }, { _id: "b", n: 0 }]);
  const pay = () => school.commit((change) => change
    .update("accounts", "a", { $inc: { n: -5 } }, { n: { $gte: 5 } })
    .update("accounts", "b", { $inc: { n: 5 } }));
  assert.equal((await pay()).earlier, false);
  const error = await raises(truce.NotFound, pay);
  assert.equal(error.code, 125);
  assert.ok(error.cause);
  assert.equal((await db.collection("accounts").findOne({ _id: "b" })).n, 5);
  const once = { key: "k", keyTime: new Date("2026-01-01"), leave: { receipt: 1 } };
  const changes = [{ insert: "receipts", with: { _id: 1 } }];
  assert.equal((await school.commit(changes, once)).earlier, false);
  assert.deepEqual((await school.commit(changes, once)).result, { receipt: 1 });
  assert.deepEqual(await school.commitResult("k"), { receipt: 1 });
  assert.equal(await school.commitResult("none"), undefined);
  await raises(truce.Duplicate, () => school.commit([{ insert: "receipts", with: { _id: 2 } }], once));
  await raises(truce.Conflict, () => school.commit([{ change: "accounts", id: "b", with: { n: [4, 6] } }]));
  await raises(truce.Invalid, () => school.commit([{ dance: 1 }]));
  await raises(truce.Invalid, () => school.commit(changes, { nothing: 1 }));
});

await check("transactions", async () => {
  let tried = 0;
  const given = await school.transact(async (inner) => {
    await inner.commit([{ update: "accounts", id: "a", with: { $inc: { n: 1 } } }]);
    if (!tried++) await db.collection("accounts").updateOne({ _id: "a" }, { $inc: { n: 1000 } });
    await db.collection("accounts").updateOne({ _id: "a" }, { $inc: { n: 1 } }, { session: inner.session });
    return "given";
  });
  assert.deepEqual([given, tried, (await db.collection("accounts").findOne({ _id: "a" })).n], ["given", 2, 1006]);
  await assert.rejects(school.transact(async (inner) => {
    await inner.commit([{ update: "accounts", id: "a", with: { $inc: { n: 1 } } }]);
    throw new RangeError("no");
  }), RangeError);
  assert.equal((await db.collection("accounts").findOne({ _id: "a" })).n, 1006);
});

await check("sequences, requests, help", async () => {
  const orders = school.sequence("orders");
  assert.deepEqual(await orders.take(3), [1, 2, 3]);
  await orders.raise(10);
  assert.deepEqual([await orders.next(), await orders.last()], [11, 11]);
  await school.request("mail 1", "mail", { to: "ada" });
  assert.equal((await school.requestState("mail 1")).state, "waiting");
  assert.ok((await school.help()).includes("truceTree") && (await school.help("truceClaim")).fields.length);
});

await check("sets, items, copies", async () => {
  const classes = school.set("students", { field: "classes", name: "name" });
  assert.equal(await classes.add({ student_id: 1 }, { name: "CS" }, 2), "applied");
  assert.equal(await classes.remove({ student_id: 1 }, { name: "CS" }, 1), "stale");
  assert.deepEqual((await classes.members({ student_id: 1 })).map((one) => one.name), ["CS"]);
  assert.deepEqual(await classes.members({ student_id: 9 }), []);
  await classes.source("student_id", { idle: 3 });
  const badges = school.items("employees", { field: "badges", identity: "type" });
  assert.equal(await badges.upsert({ _id: 1 }, { type: "A" }), undefined);
  await db.collection("employees").insertOne({ _id: 1 });
  assert.equal((await badges.upsert({ _id: 1 }, { type: "A", n: 1 })).added, true);
  assert.equal((await badges.update({ _id: 1 }, { type: "A" }, { $inc: { n: 1 } })).modified, 1);
  await school.sync.declare("author", { source: "users", dependent: "comments", reference: "user",
    copies: { author: "name" }, settleMS: 1 });
  await db.collection("users").insertOne({ _id: 17, name: "John" });
  await school.sync.insert("comments", { _id: 1, user: 17 });
  assert.equal((await school.sync.update("users", 17, { $set: { name: "J" } })).copies, 1);
  assert.equal((await school.sync.read("comments", 1)).author, "J");
  assert.equal(await school.sync.update("users", 9, { $set: { a: 1 } }), undefined);
  await raises(truce.Invalid, () => school.sync.update("comments", 1, { $set: { author: "x" } }));
  assert.equal((await school.sync.repair("author", { dryRun: true })).differ, 0);
  assert.deepEqual([await school.sync.drop("author"), await school.sync.drop("author")], [true, false]);
});

await check("revisions", async () => {
  const posts = school.revisions("posts", { keep: 5 });
  assert.equal((await posts.save({ _id: 1, title: "a", n: 0 })).version, 1);
  const mine = await posts.get(1), theirs = await posts.get(1);
  theirs.document.title = "b";
  assert.equal((await posts.save(theirs)).version, 2);
  mine.document.n = 5;
  assert.equal((await raises(truce.Conflict, () => posts.save(mine))).answer.version, 2);
  const merged = await posts.merge(mine);
  assert.deepEqual([merged.outcome, merged.document.title, merged.document.n], ["merged", "b", 5]);
  await posts.remove(merged);
  assert.equal(await posts.get(1), undefined);
  for (const [id, how] of [[2, "save"], [3, "merge"]]) { // an edit within a list or a document
    await posts.save({ _id: id, tags: ["a"], by: { names: [{ n: 1 }] } });
    const edited = await posts.get(id);
    edited.document.tags.push("b");
    edited.document.by.names[0].n = 2;
    await posts[how](edited);
    const stored = (await posts.get(id)).document;
    assert.deepEqual([stored.tags, stored.by], [["a", "b"], { names: [{ n: 2 }] }]);
  }
  await raises(truce.Invalid, () => school.revisions("posts", { kep: 5 }).get(1));
  await assert.rejects(school.queue("mail").work({ untilEmty: true }).next(), TypeError);
  await assert.rejects(school.ledger("bank").statement("cash", { pages: 1 }).next(), TypeError);
  const away = new truce.Truce(new MongoClient("mongodb://127.0.0.1:9/?directConnection=true&serverSelectionTimeoutMS=100").db("x"));
  await raises(truce.Unreachable, () => away.queue("q").add({}));
  await raises(truce.Unreachable, () => away.help());
});

await check("money", async () => {
  const bank = school.ledger("bank");
  await bank.open("EUR", { digits: 2 });
  await bank.open("EUR", { account: "cash", min: 0 });
  await bank.open("EUR", { account: "world" });
  assert.deepEqual([await bank.post(1, { world: -10, cash: 10 }), await bank.post(1, { world: -10, cash: 10 })], [true, false]);
  await raises(truce.Limit, () => bank.post(2, { cash: -11, world: 11 }));
  for (let i = 0; i < 3; i++) await bank.post(`x${i}`, { cash: -1, world: 1 });
  assert.equal((await bank.balance("cash")).balance, 7);
  assert.equal(await bank.balance("nobody"), undefined);
  assert.deepEqual((await all(bank.statement("cash", { page: 2 }))).map((one) => one.value), [0, 10, -1, -1, -1]);
  await db.collection("purses").insertMany([{ _id: "a", balance: 5 }, { _id: "b", balance: 0 }]);
  const moves = school.transfers("moves", { accounts: "purses" });
  const move = { source: "a", destination: "b", amount: 5 };
  assert.deepEqual([await moves.start(1, move), await moves.start(1, move)], [true, false]);
  await raises(truce.Refused, () => moves.start(2, move));
  assert.deepEqual((await all(moves.list({ page: 1 }))).map((one) => one._id), [2, 1]);
  assert.deepEqual([await moves.cancel(2), await moves.cancel(9), await moves.resume(1)], ["canceled", undefined, "done"]);
  assert.equal((await moves.show(2)).state, "canceled");
});

await check("trees", async () => {
  const site = school.tree("site", { collection: "pages", parent: "up" });
  await raises(truce.NotFound, () => site.read());
  assert.equal(await site.status(), undefined);
  assert.equal((await site.edit((edit) => {
    edit.put({ itemId: "home" });
    for (let i = 0; i < 7; i++) edit.put({ itemId: i, up: "home", n: i % 2 });
  }, { message: "the first pages" })).version, 1);
  const first = await site.read();
  await site.edit((edit) => edit.put({ itemId: "jobs", up: "home" }).remove(3));
  assert.deepEqual((await all(first.find(undefined, { page: 3 }))).map((one) => one.itemId), [0, 1, 2, 3, 4, 5, 6, "home"]);
  assert.deepEqual((await all(first.find({ n: { $gte: 0 } }, { sort: { n: -1 }, page: 2 }))).map((one) => one.itemId),
    [1, 3, 5, 0, 2, 4, 6]);
  assert.equal((await all(await site.read())).length, 8);
  assert.equal(await first.get("jobs"), undefined);
  const late = (options) => site.edit(async (edit) => {
    edit.put({ itemId: 0, up: "home", n: 9 });
    await site.edit((theirs) => theirs.put({ itemId: 1, up: "home", n: Math.random() }));
  }, options);
  assert.equal((await raises(truce.Conflict, () => late())).answer.version, 3);
  assert.equal((await late({ merge: true })).version, 5);
  await raises(truce.Invalid, () => site.publish([{ put: { itemId: "x", up: "nobody" } }]));
  const again = { id: new ObjectId(), base: (await site.read()).token };
  const outcomes = [];
  for (let i = 0; i < 2; i++) outcomes.push((await site.publish([{ put: { itemId: 1, up: "home" } }], again)).outcome);
  assert.deepEqual(outcomes, ["published", "exists"]);
  assert.ok(await site.tag("launch", 1));
  assert.equal((await site.read({ tag: "launch" })).version, 1);
  assert.equal((await site.read({ timeMS: new Date() })).version, 6);
  assert.deepEqual([await site.untag("launch"), await site.untag("launch")], [true, false]);
  assert.deepEqual((await all(site.log({ page: 2 }))).map((one) => one.version), [6, 5, 4, 3, 2, 1]);
  assert.deepEqual((await all(site.diff(1, 2, { page: 1 }))).map((one) => one.change), ["removed", "added"]);
  assert.equal((await site.revert(1)).version, 7);
  const draft = await site.branch("draft");
  await draft.edit((edit) => edit.put({ itemId: "team", up: "home" }));
  assert.equal((await site.merge(draft)).outcome, "published");
  await site.keep({ versions: 1 });
  await site.collect();
  await raises(truce.Expired, () => first.get("home"));
  assert.ok(await draft.drop());
});

await check("queues", async () => {
  const mail = school.queue("mail"), id = new ObjectId();
  assert.ok((await mail.add({ n: 0 }, { id })).equals(id));
  await mail.addMany([1, 2, 3, 4, 5].map((n) => ({ n })));
  const seen = [];
  for await (const job of mail.work({ untilEmpty: true, most: 4 })) {
    seen.push(job.payload.n);
    if (job.payload.n === 1) await job.commit([{ insert: "letters", with: { _id: 1 } }], { sent: true });
    if (job.payload.n === 2) await job.fail(new Error("no"), 3600000);
  }
  assert.deepEqual(seen.sort(), [0, 1, 2, 3, 4, 5]);
  const jobs = (await mail.jobs()).sort((a, b) => a.payload.n - b.payload.n);
  assert.deepEqual(jobs.map((one) => one.state), ["done", "done", "delayed", "done", "done", "done"]);
  assert.deepEqual(jobs[1].result, { sent: true });
  await mail.addMany([10, 11, 12].map((n) => ({ n })));
  for await (const job of mail.work({ most: 3 })) if (job) break; // all three go back
  assert.equal((await mail.jobs()).filter((one) => one.state === "running").length, 0);
  const [job] = await mail.claim({ waitMS: 1000 });
  await school.transact(async (inner) => {
    await inner.commit([{ insert: "letters", with: { _id: 9 } }]);
    await job.done(undefined, inner);
  });
  assert.equal((await mail.jobs({ id: job.id }))[0].state, "done");
  await raises(truce.Expired, () => job.commit([{ insert: "letters", with: { _id: 2 } }]));
  const stop = new AbortController(), errors = [];
  await mail.add({ n: 50 }, { priority: 5 });
  await mail.run(() => {
    stop.abort();
    throw new Error("again");
  }, { signal: stop.signal, onError: (error) => errors.push(error.message) });
  assert.deepEqual(errors, ["again"]);
});

await check("a lease is kept, and told when it is lost", async () => {
  const held = school.queue("held");
  await held.add({});
  for await (const job of held.work({ leaseMS: 1000, untilEmpty: true })) {
    await sleep(2500);
    assert.equal(job.lost, false);
    assert.deepEqual(await held.claim(), []);
    await held.cancel(job.id);
    while (!job.lost) await sleep(20);
    await raises(truce.Expired, () => job.done());
    job.ended = true;
  }
});

await check("SIGTERM", async () => {
  const slow = school.queue("slow");
  await slow.addMany([{}, {}]);
  const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), database], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: worker.stdout })[Symbol.asyncIterator]();
  assert.equal((await lines.next()).value, "at work");
  worker.kill("SIGTERM");
  worker.stdin.write("\n");
  assert.equal((await lines.next()).value, "ended");
  assert.deepEqual((await slow.jobs()).map((one) => one.state).sort(), ["done", "ready"]);
});

await db.dropDatabase();
await school.close();
console.log(`module-node: node ${process.version}: ${checks - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
