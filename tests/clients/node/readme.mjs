// Runs each example of the installed package's README, one after the other.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import * as truce from "truce-db";
import * as testing from "truce-db/testing";
import { all, check, end } from "./check.mjs";

const require = createRequire(import.meta.url);
const readme = readFileSync(path.join(path.dirname(require.resolve("truce-db")), "README.md"), "utf8");
const examples = [...readme.matchAll(/```js\n(.*?)```/gs)].map((match) => match[1]);
const AsyncFunction = (async () => {}).constructor;
const uri = process.env.TRUCE_TEST_CLIENT_URI;
const delivered = [];

// The examples run until a signal; here they end when the queue is empty.
class Worker extends truce.Worker {
  constructor(db, queue, handler, options) {
    super(db, queue, handler, { ...options, untilEmpty: true });
  }
}

// The names that an example declares are known to the next ones.
const names = {
  truce: { ...truce, Worker, connect: (server) => (uri ? truce.connect(uri, { database: "readme" }) : assert.match(server, /^mongodb:/)) },
  console: { log() {} },
  order: { created: new Date() },
  deliver: (to) => delivered.push(to),
  register: (db, to) => db.enqueue("mail", { payload: { to } }),
  ...testing,
};

async function run(example) {
  const declared = [...example.matchAll(/^const (\w+|\{[^}]*\}) =/gm)].flatMap((match) => match[1].match(/\w+/g));
  const body = example.replace(/^import .*$/gm, "").replace(/^const (\w+|\{[^}]*\}) =/gm, (all, name) => `var ${name} =`);
  const given = Object.keys(names).filter((name) => !declared.includes(name));
  const returned = `return { ${declared.join(", ")} };`;
  Object.assign(names, await new AsyncFunction(...given, `${body}\n${returned}`)(...given.map((name) => names[name])));
}

async function prepare(db) {
  await db.collection("flights").insertOne({ _id: "LH 17", seats: 9 });
  await db.collection("totals").insertOne({ _id: 1, mails: 0 });
  await db.ledgerOpen("bank", { currency: "EUR", digits: 2 });
  for (const account of ["cash", "sales"]) await db.ledgerOpen("bank", { currency: "EUR", account });
  await db.edit("site", (edit) => edit.put({ itemId: "home", title: "Home" }), { collection: "pages" });
  await db.tree("site", { tag: "launch" });
}

const folder = mkdtempSync(path.join(tmpdir(), "truce-readme-"));
process.chdir(folder);
await run(examples[0]); // opens and closes the store
for (const [i, example] of examples.entries()) {
  if (i === 0) continue;
  await check(`example ${i + 1}`, async () => {
    await run(example);
    if (!example.includes("truce.connect")) return;
    await names.db?.close();
    names.db = await truce.open("school.truce");
    await prepare(names.db);
  });
}
await check("what the examples did", async () => {
  const { db } = names;
  assert.equal((await db.collection("accounts").findOne({ _id: "b" })).n, 5);
  assert.equal((await db.collection("flights").findOne({ _id: "LH 17" })).seats, 8);
  assert.equal((await db.collection("posts").findOne({ _id: 1 })).title, "On truces");
  assert.ok((await db.collection("posts").findOne({ _id: 1 })).at instanceof Date);
  assert.ok(delivered.includes("ada@example.org") && names.paid.earlier === false);
  await db.enqueue("more", { payload: {} });
  await new Worker(db, "more", names.count).run();
  assert.equal((await db.collection("totals").findOne({ _id: 1 })).mails, 1);
  await db.enqueue("orders", { payload: {} });
  await new Worker(db, "orders", names.deliverOrder).run();
  assert.equal((await db.collection("totals").findOne({ _id: 1 })).charged, 1);
  assert.deepEqual((await all(db.iterateJobs("orders"))).map((job) => job.state), ["delayed"]);
  await db.close();
});
process.chdir("/");
rmSync(folder, { recursive: true });
await check("examples were found", () => assert.ok(examples.length >= 12));
end(`README: ${examples.length} examples`);
