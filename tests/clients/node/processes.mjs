// A store in process, with worker threads, processes, the end of the process, garbage collection, signals, and a
// libtruce that is missing or too old.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, symlinkSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Worker as Thread, isMainThread, parentPort, workerData } from "node:worker_threads";
import * as truce from "truce-db";
import { check, end, raises, until } from "./check.mjs";

const me = fileURLToPath(import.meta.url);
const require = createRequire(import.meta.url);

/* ---- the parts that run in threads and processes of their own ---- */

const parts = {
  async add(file, start) {
    const db = await truce.open(file);
    for (let i = start; i < start + 25; i++) await db.collection("numbers").insertOne({ _id: i });
    await db.close();
  },
  // ends while calls run and a store is open
  async leave(file) {
    const db = await truce.open(file);
    await db.collection("x").insertOne({});
    for (let i = 0; i < 20; i++) db.collection("x").insertOne({ n: i });
    db.claim("q", { waitMS: 600000 });
    await db.collection("x").findOne();
    process.exit(0);
  },
  // ends by itself, with an open store and an open cursor
  async forget(file) {
    const db = await truce.open(file);
    await db.collection("x").insertMany([{}, {}, {}]);
    await db.collection("x").find({}, { batchSize: 1 }).next();
  },
  async wait(file) {
    const db = await truce.open(file);
    console.log("waits");
    await db.claim("q", { waitMS: 600000 });
  },
  async work(file) {
    const db = await truce.open(file);
    await new truce.Worker(db, "slow", async () => {
      console.log("at work");
      await sleep(300);
      return { by: "the worker" };
    }, { waitMS: 200 }).run();
    await db.close();
    console.log("ended");
  },
  async library() {
    await truce.open("memory:").catch((error) => console.log(`${error.name}: ${error.message}`));
  },
  // collects a store and a cursor that nothing uses any longer
  async garbage(file) {
    const begin = async () => {
      const db = await truce.open(file);
      await db.collection("x").insertMany([{}, {}, {}, {}]);
      return db.collection("x").find({}, { batchSize: 2 });
    };
    let cursor = await begin();
    await cursor.next();
    await sleep(1);
    globalThis.gc();
    assert.equal((await cursor.toArray()).length, 3); // a cursor keeps its store
    cursor = undefined;
    await until(() => {
      globalThis.gc();
      return !readdirSync("/proc/self/fd").some((fd) => isOf(fd, file));
    });
    console.log("collected");
  },
};

function addonFile() {
  const root = path.join(path.dirname(require.resolve("truce-db")), "prebuilds", `${process.platform}-${process.arch}`);
  return path.join(root, "truce.node");
}

function isOf(fd, file) {
  try {
    return require("node:fs").readlinkSync(`/proc/self/fd/${fd}`).startsWith(file);
  } catch {
    return false;
  }
}

function run(part, given, { flags = [], env = {} } = {}) {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [...flags, me, part, ...given], { env: { ...process.env, ...env }, timeout: 60000 },
      (error, stdout, stderr) => resolve({ code: error ? (error.code ?? error.signal) : 0, stdout, stderr }));
    child.stdin.end();
  });
}

function start(part, file) {
  const child = spawn(process.execPath, [me, part, file], { stdio: ["ignore", "pipe", "inherit"] });
  return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator](), ended: once(child, "exit") };
}

if (!isMainThread) {
  await parts[workerData[0]](...workerData.slice(1));
  parentPort.postMessage("done");
} else if (process.argv[2]) {
  await parts[process.argv[2]](...process.argv.slice(3).map((one) => (/^\d+$/.test(one) ? Number(one) : one)));
} else {
  await main();
}

/* ---- the checks ---- */

async function main() {
  const folder = mkdtempSync(path.join(tmpdir(), "truce-processes-"));
  const fileOf = (name) => path.join(folder, name);

  await check("threads and processes share a file", async () => {
    const file = fileOf("shared.truce");
    const threads = [0, 25].map((n) => once(new Thread(me, { workerData: ["add", file, n] }), "exit"));
    const processes = [50, 75].map((n) => run("add", [file, String(n)]));
    assert.deepEqual((await Promise.all(threads)).flat(), [0, 0]);
    assert.deepEqual((await Promise.all(processes)).map((one) => one.code), [0, 0]);
    const db = await truce.open(file);
    assert.deepEqual(await db.collection("numbers").distinct("_id"), Array.from({ length: 100 }, (_, i) => i));
    await db.close();
  });
  await check("a thread that is terminated during calls", async () => {
    for (let i = 0; i < 5; i++) {
      const file = fileOf(`terminated${i}.truce`);
      const thread = new Thread(me, { workerData: ["wait", file], stdout: true });
      await once(thread.stdout, "data");
      await thread.terminate();
      const db = await truce.open(file);
      await db.collection("x").insertOne({ _id: 1 });
      await db.close();
    }
  });
  await check("the end of the process", async () => {
    for (const part of ["leave", "forget"]) {
      const { code, stderr } = await run(part, [fileOf(`${part}.truce`)]);
      assert.deepEqual([code, stderr], [0, ""]);
      const db = await truce.open(fileOf(`${part}.truce`));
      assert.ok((await db.collection("x").countDocuments()) > 0);
      assert.equal((await db.check({})).status, "ok");
      await db.close();
    }
  });
  await check("garbage collection", async () => {
    const { stdout, stderr } = await run("garbage", [fileOf("garbage.truce")], { flags: ["--expose-gc"] });
    assert.deepEqual([stdout, stderr], ["collected\n", ""]);
  });
  await check("Ctrl-C ends a program that waits", async () => {
    const { child, lines, ended } = start("wait", fileOf("signal.truce"));
    await lines.next();
    child.kill("SIGINT");
    assert.deepEqual(await ended, [null, "SIGINT"]);
  });
  await check("SIGTERM ends a worker after its job", async () => {
    const db = await truce.open(fileOf("work.truce"));
    await db.enqueue("slow", { payloads: [{}, {}] });
    const { child, lines, ended } = start("work", fileOf("work.truce"));
    assert.equal((await lines.next()).value, "at work");
    child.kill("SIGTERM");
    assert.equal((await lines.next()).value, "ended");
    assert.deepEqual(await ended, [0, null]);
    assert.deepEqual((await db.jobs("slow")).jobs.map((job) => job.state).sort(), ["done", "ready"]);
    await db.close();
  });
  await check("SIGKILL loses no acknowledged write", async () => {
    const { child, lines, ended } = start("wait", fileOf("kill.truce"));
    await lines.next();
    const db = await truce.open(fileOf("kill.truce"));
    await db.collection("x").insertOne({ _id: 1 });
    child.kill("SIGKILL");
    await ended;
    await db.collection("x").insertOne({ _id: 2 });
    assert.equal(await db.collection("x").countDocuments(), 2);
    await db.close();
  });
  await check("the event loop is free while calls wait", async () => {
    const db = await truce.open("memory:");
    let ended = false;
    const claims = Promise.all(Array.from({ length: 50 }, () => db.claim("q", { waitMS: 1000 }))).then(() => (ended = true));
    for (let i = 0; i < 20; i++) {
      await db.collection("x").insertOne({ n: i });
      readFileSync(me);
      await new Promise((resolve) => require("node:fs").stat(me, resolve));
    }
    assert.equal(ended, false);
    await claims;
    await db.close();
  });
  await check("close waits for running calls", async () => {
    const db = await truce.open("memory:");
    const claim = db.claim("q", { waitMS: 300 });
    const inserts = Array.from({ length: 100 }, (_, i) => db.collection("x").insertOne({ n: i }));
    const closed = db.close();
    await raises(truce.Invalid, () => db.queues());
    assert.equal((await claim).status, "not found");
    assert.equal((await Promise.all(inserts)).length, 100);
    await closed;
  });
  await check("many calls at a time", async () => {
    const db = await truce.open(fileOf("many.truce"));
    await Promise.all(Array.from({ length: 1000 }, () => db.collection("x").updateOne({ _id: 1 }, { $inc: { n: 1 } }, { upsert: true })));
    assert.equal((await db.collection("x").findOne()).n, 1000);
    const waiting = Array.from({ length: 600 }, () => db.claimJobs("q", { waitMS: 60000 }).catch((error) => error));
    await Promise.race(waiting.slice(500)); // these are refused at once
    await db.enqueue("q", { payloads: Array.from({ length: 500 }, (_, n) => ({ n })) });
    const replies = await Promise.all(waiting);
    const refused = replies.filter((one) => one instanceof Error);
    for (const { status, message } of refused) assert.match(`${status}: ${message}`, /^limit reached: 500 calls are waiting/);
    assert.ok(refused.length >= 100 && refused.length <= 105, refused.length); // the terminated threads have up to 5
    const jobs = replies.filter((one) => !refused.includes(one)).flat();
    assert.equal(new Set(jobs.map((job) => job.payload.n)).size, 600 - refused.length); // each job once
    await db.close();
  });
  await check("a file of a newer format", async () => {
    const file = fileOf("newer.truce");
    await (await truce.open(file)).close();
    const fd = openSync(file, "r+");
    writeSync(fd, Buffer.from([0, 0, 1, 0]), 0, 4, 60); // user_version of SQLite's header
    const error = await raises(truce.Corrupt, () => truce.open(file));
    assert.match(error.message, /version|format|newer/);
  });
  await check("a libtruce that is missing, or not one", async () => {
    const missing = await run("library", [], { env: { TRUCE_LIBRARY: fileOf("none.so") } });
    assert.match(missing.stdout, /^LibraryError: cannot load .*none\.so.*TRUCE_LIBRARY/s);
    const other = await run("library", [], { env: { TRUCE_LIBRARY: "libc.so.6" } });
    assert.match(other.stdout, /^LibraryError: libc\.so\.6 is not libtruce, or too old/);
    const old = fileOf("old.so"), addon = readFileSync(addonFile(), "latin1");
    const names = [...new Set(addon.match(/(?<=\0)(truce|bson)_[a-z0-9_]+(?=\0)/g))].filter((name) => name !== "truce_version");
    const source = `const char *truce_version(void) { return "0.0.9"; }${names.map((name) => `void ${name}(void) {}`).join("")}`;
    execFileSync("cc", ["-shared", "-fPIC", "-x", "c", "-", "-o", old], { input: source });
    const { stdout } = await run("library", [], { env: { TRUCE_LIBRARY: old } });
    assert.match(stdout, /^LibraryError: .*old\.so: libtruce 0\.0\.9 is too old: this package needs 0\.1\.0 or later/);
  });
  await check("a platform without an addon", async () => {
    const copy = fileOf("node_modules/truce-db");
    mkdirSync(path.join(copy, "lib"), { recursive: true });
    const from = path.dirname(require.resolve("truce-db"));
    for (const name of ["index.js", "package.json"]) copyFileSync(path.join(from, name), path.join(copy, name));
    for (const name of readdirSync(path.join(from, "lib"))) copyFileSync(path.join(from, "lib", name), path.join(copy, "lib", name));
    symlinkSync(path.join(from, "..", "bson"), fileOf("node_modules/bson"));
    const { open, connect } = require(path.join(copy, "index.js"));
    assert.match(await open("memory:").catch((error) => error.message), /no addon for linux-.* npm run build/);
    assert.match(await connect("mongodb://127.0.0.1:9/x").catch((error) => error.message), /npm install mongodb/);
  });
  await check("a server that is not truce", async () => {
    // replies to every message that the command is unknown, except to the driver's hello
    const { deserialize, serialize } = require("bson");
    let maxWireVersion = 21;
    const server = createServer((socket) => socket.on("error", () => {}).on("data", (data) => {
      const op = data.readInt32LE(12), asked = deserialize(data.subarray(op === 2004 ? data.indexOf(0, 20) + 9 : 21));
      const hello = { ok: 1, isWritablePrimary: true, ismaster: true, maxWireVersion, minWireVersion: 0, maxBsonObjectSize: 16777216,
        maxMessageSizeBytes: 48000000, maxWriteBatchSize: 100000, helloOk: true };
      const unknown = { ok: 0, code: 59, errmsg: `no such command: '${Object.keys(asked)[0]}'` };
      const body = serialize("hello" in asked || "ismaster" in asked ? hello : unknown);
      const head = Buffer.alloc(op === 2004 ? 36 : 21);
      head.writeInt32LE(head.length + body.length, 0);
      head.writeInt32LE(data.readInt32LE(4), 8);
      head.writeInt32LE(op === 2004 ? 1 : 2013, 12);
      if (op === 2004) head.writeInt32LE(1, 32);
      socket.write(Buffer.concat([head, body]));
    })).listen(0, "127.0.0.1");
    await once(server, "listening");
    for (maxWireVersion of [21, 6]) { // the second one is too old for the driver
      const error = await raises(truce.WrongServer, () => truce.connect(`mongodb://127.0.0.1:${server.address().port}/x?directConnection=true`));
      assert.match(error.message, /not truce/);
    }
    server.close();
  });
  rmSync(folder, { recursive: true });
  end("processes");
}
