// Job queues from npm, each with its own batches: the program adds JOBS jobs. Then a worker without work does them,
// CALLERS batches of BATCH at once. If a job is not done exactly once, there is no figure.
//
//     node peers.mjs graphile-worker | pg-boss | bullmq
//
// PEER_MODULES is their folder; PGHOST (a socket's directory) and PEER_REDIS (host:port) are the servers.
import { createRequire } from "node:module";

const require = createRequire(process.env.PEER_MODULES + "/");
const JOBS = Number(process.env.PEER_JOBS ?? 20000);
const BATCH = Number(process.env.PEER_BATCH ?? 100);
const CALLERS = Number(process.env.PEER_CALLERS ?? 8);
const payload = { to: "ada@example.org", text: "hello, and welcome" };
const seen = new Map();

function note(id) {
  seen.set(id, (seen.get(id) ?? 0) + 1);
}

function check(left) {
  const twice = [...seen.values()].filter((count) => count !== 1).length;
  if (seen.size !== JOBS || twice || left)
    throw new Error(`of ${JOBS} jobs ${seen.size} were done, ${twice} of them not once; ${left} are left`);
}

function tell(name, version, began) {
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  console.log(`${name} ${version}`.padEnd(28), `${Math.round(JOBS / seconds)} jobs/s`.padStart(16));
}

function pool() {
  const { Pool } = require("pg");
  return new Pool({ host: process.env.PGHOST, user: process.env.PGUSER, database: "postgres", max: CALLERS + 4 });
}

async function count(database, sql) {
  return Number((await database.query(sql)).rows[0].count);
}

// Its own batches: a local queue that fetches for all of its runners at once, and batched completions.
async function graphile() {
  const { run, makeWorkerUtils, Logger } = require("graphile-worker");
  const pgPool = pool();
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  await pgPool.query(
    "SELECT graphile_worker.add_job('nothing', json_build_object('n', n), max_attempts => 1) FROM generate_series(1, $1) AS n",
    [JOBS],
  );
  let all;
  const done = new Promise((resolve) => (all = resolve));
  const began = process.hrtime.bigint();
  const runner = await run({
    pgPool,
    logger,
    noHandleSignals: true,
    taskList: { nothing: async (job) => void note(job.n) },
    preset: {
      worker: {
        concurrentJobs: BATCH,
        localQueue: { size: BATCH * CALLERS },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  // it removes done jobs: none is left when the last completion is in the database
  const timer = setInterval(async () => {
    if (seen.size === JOBS && !(await count(pgPool, "SELECT count(*) FROM graphile_worker._private_jobs"))) all();
  }, 5);
  await done;
  clearInterval(timer);
  tell("graphile-worker", require("graphile-worker/package.json").version, began);
  check(await count(pgPool, "SELECT count(*) FROM graphile_worker._private_jobs"));
  await runner.stop();
  await utils.release();
}

async function boss() {
  const PgBoss = require("pg-boss");
  const database = pool();
  const queue = new PgBoss({ host: process.env.PGHOST, user: process.env.PGUSER, database: "postgres", max: CALLERS,
    supervise: false, schedule: false });
  queue.on("error", (error) => { throw error; });
  await queue.start();
  await queue.createQueue("nothing");
  for (let added = 0; added < JOBS; added += 1000)
    await queue.insert(Array.from({ length: Math.min(1000, JOBS - added) }, () => ({ name: "nothing", data: payload })));
  const began = process.hrtime.bigint();
  await Promise.all(Array.from({ length: CALLERS }, async () => {
    for (let jobs; (jobs = await queue.fetch("nothing", { batchSize: BATCH }))?.length; ) {
      const ids = jobs.map((job) => job.id);
      await queue.complete("nothing", ids);
      ids.forEach(note);
    }
  }));
  tell("pg-boss", require("pg-boss/package.json").version, began);
  check(JOBS - (await count(database, "SELECT count(*) FROM pgboss.job WHERE state = 'completed'")));
  await queue.stop({ graceful: false });
}

async function bullmq() {
  const { Queue, Worker } = require("bullmq");
  const [host, port] = process.env.PEER_REDIS.split(":");
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  const queue = new Queue("nothing", { connection });
  for (let added = 0; added < JOBS; added += 1000)
    await queue.addBulk(Array.from({ length: Math.min(1000, JOBS - added) }, () => ({ name: "n", data: payload })));
  let all;
  const done = new Promise((resolve) => (all = resolve));
  let ended = 0;
  const began = process.hrtime.bigint();
  const worker = new Worker("nothing", async (job) => void note(job.id), { connection, concurrency: BATCH });
  worker.on("completed", () => ++ended === JOBS && all());
  await done;
  tell("bullmq", require("bullmq/package.json").version, began);
  check(JOBS - (await queue.getCompletedCount()));
  await worker.close();
  await queue.close();
}

const peers = { "graphile-worker": graphile, "pg-boss": boss, bullmq };
try {
  await peers[process.argv[2]]();
  process.exit(0);
} catch (error) {
  console.log(`${process.argv[2]}`.padEnd(28), `no figure: ${error.message.split("\n")[0]}`);
  process.exit(1);
}
