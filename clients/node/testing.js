"use strict";
/*
 * Helpers for the tests of programs that use truce.
 *
 *     const db = await openTemporary();                  // an empty store, removed by db.close()
 *     await register(db, "ada@example.org");
 *     await assertEnqueued(db, "mail", { payload: { to: "ada@example.org" } });
 *     await runJobs(db, "mail", send);                   // an error of send fails the test
 */
const { AssertionError } = require("node:assert");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { mkdtemp, rm } = require("node:fs/promises");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { createInterface } = require("node:readline");
const { isDeepStrictEqual } = require("node:util");
const truce = require("./index.js");
const { checked, checkFunction, printed } = require("./lib/options.js");
const telemetry = require("./lib/telemetry.js");

const NOT_BEGUN = ["ready", "delayed", "waiting", "blocked"];

/* ---- stores and servers ---------------------------------------------------------------------- */

async function makeFolder() {
    return mkdtemp(path.join(tmpdir(), "truce-test-"));
}

async function openTemporary(options) {
    const folder = await makeFolder();
    const remove = () => rm(folder, { recursive: true, force: true });
    try {
        const db = await truce.open(path.join(folder, "test.truce"), options);
        const close = db.close.bind(db);
        db.close = async () => {
            await close();
            await remove();
        };
        return db;
    } catch (error) {
        await remove();
        throw error;
    }
}

/* Adds the database to the URI of a server: that of --database, or test. */
function withDatabase(uri, args) {
    const at = args.findLastIndex((one) => one === "--database" || one.startsWith("--database="));
    const given = args[at]?.includes("=") ? args[at].slice("--database=".length) : args[at + 1];
    return `${uri.replace(/\/$/, "")}/${encodeURIComponent(at < 0 ? "test" : given)}`;
}

/* Starts `truce serve` on a store in memory, or in `file`. */
async function startServer(options) {
    const {
        program = process.env.TRUCE_PROGRAM || "truce",
        file = "memory:",
        args = [],
    } = checked(options, ["program", "file", "args"], "startServer");
    const folder = await makeFolder();
    const server = spawn(
        program,
        [
            "serve",
            file,
            "--socket",
            path.join(folder, "truce.sock"),
            "--parent",
            String(process.pid),
            "--json",
            "--quiet",
            ...args,
        ],
        { stdio: ["ignore", "pipe", "pipe"] },
    );
    const ended = new Promise((resolve) => server.once("close", resolve));
    const close = async () => {
        server.kill();
        await ended;
        await rm(folder, { recursive: true, force: true });
    };
    let log = "";
    server.stderr.on("data", (data) => (log = (log + data).slice(-4000)));
    try {
        await once(server, "spawn");
        const line = await Promise.race([
            once(createInterface({ input: server.stdout }), "line"),
            ended,
        ]);
        if (!Array.isArray(line))
            throw new Error(`"${program} serve ${file}" ended: ${log.trim()}`);
        return { uri: withDatabase(JSON.parse(line[0]).listening, args), close };
    } catch (error) {
        await rm(folder, { recursive: true, force: true });
        if (error.code === "ENOENT")
            throw new Error(
                `no program "${program}": install truce, or set TRUCE_PROGRAM to its path`,
            );
        throw error;
    }
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* Returns whether a value has the wanted fields with these values, at any depth. */
function matches(value, wanted) {
    const isPlain = (one) =>
        one !== null &&
        typeof one === "object" &&
        [Object.prototype, null].includes(Object.getPrototypeOf(one));
    if (isPlain(value) && isPlain(wanted))
        return Object.keys(wanted).every(
            (name) => Object.hasOwn(value, name) && matches(value[name], wanted[name]),
        );
    return typeof wanted?.equals === "function"
        ? wanted.equals(value)
        : isDeepStrictEqual(value, wanted);
}

async function enqueued(db, queue, options) {
    const { payload = {} } = checked(options, ["payload"], "enqueued");
    const found = [];
    for await (const job of db.iterateJobs(queue))
        if (NOT_BEGUN.includes(job.state) && matches(job.payload ?? {}, payload)) found.push(job);
    return found;
}

async function assertEnqueued(db, queue, options) {
    const { payload = {}, count } = checked(options, ["payload", "count"], "assertEnqueued");
    if (count !== undefined && !(Number.isInteger(count) && count >= 0))
        throw new TypeError(
            `the option count of assertEnqueued must be an integer from 0, not ${printed(count)}`,
        );
    const found = await enqueued(db, queue, { payload });
    if (count === undefined ? found.length > 0 : found.length === count) return found;
    const others = (await enqueued(db, queue)).map((job) => job.payload ?? {});
    const wanted = count === undefined ? "a job" : `${count} jobs`;
    throw new AssertionError({
        message:
            `expected ${wanted} of queue "${queue}" with the payload ${JSON.stringify(payload)}, ` +
            `found ${found.length}; the payloads of its jobs: ${JSON.stringify(others)}`,
        actual: others,
        expected: payload,
        operator: "assertEnqueued",
        stackStartFn: assertEnqueued,
    });
}

/*
 * Runs the jobs that are ready, one after the other, and returns their number. If the handler
 * throws, the job fails and the error propagates; the next call tries the job again, without the
 * delay of a retry. With `delayed`, delayed jobs run, too, each once.
 */
async function runJobs(db, queue, handler, options) {
    const { delayed = false } = checked(options, ["delayed"], "runJobs");
    return runAll(db, queue, handler, { delayed, delayMS: 0 });
}

async function runAll(db, queue, handler, { delayed = false, delayMS } = {}) {
    checkFunction(handler, "the handler of runJobs");
    const due = new Set();
    for (let count = 0; ;) {
        const [job] = await db.claimJobs(queue);
        if (job) {
            if (await telemetry.work(job, () => runJob(job, handler, delayMS))) count++;
        } else if (!delayed || !(await makeDue(db, queue, due))) return count;
    }
}

/* Makes the delayed jobs ready that are not in the set, and adds them. Returns whether there are
 * any. */
async function makeDue(db, queue, due) {
    const ids = [];
    for await (const { _id } of db.iterateJobs(queue, { state: "delayed" }))
        if (!due.has(String(_id))) ids.push(_id);
    for (const id of ids) {
        due.add(String(id));
        await db.queue(queue, { action: "retry", id });
    }
    return ids.length > 0;
}

/*
 * Makes the jobs that the database enqueues run at once: the call that enqueues them ends after
 * their handlers. Returns the database.
 */
function inline(db, handlers) {
    for (const [queue, handler] of Object.entries(handlers ?? {}))
        checkFunction(handler, `the handler of queue ${queue}`);
    const { _command: command, transact } = db;
    let running = false;
    const run = async () => {
        if (running) return; // a handler enqueued a job
        running = true;
        try {
            for (let again = true; again; ) {
                again = false;
                for (const [queue, handler] of Object.entries(handlers))
                    again = (await runAll(db, queue, handler)) > 0 || again;
            }
        } finally {
            running = false;
        }
    };
    db._command = async (document, ...more) => {
        const reply = await command.call(db, document, ...more);
        if (Object.keys(document)[0].startsWith("truce")) await run();
        return reply;
    };
    db.transact = async (function_) => {
        const result = await transact.call(db, function_);
        await run();
        return result;
    };
    return db;
}

/* Returns whether the job has ended; otherwise it is suspended. */
async function runJob(job, handler, delayMS) {
    let result;
    try {
        result = await handler(job);
    } catch (error) {
        if (error instanceof truce.Suspended) return false;
        if (!job.ended) await job.fail(error, { delayMS });
        throw error;
    }
    if (!job.ended)
        await job.done(result !== null && typeof result === "object" ? result : undefined);
    return true;
}

module.exports = { assertEnqueued, enqueued, inline, openTemporary, runJobs, startServer };
