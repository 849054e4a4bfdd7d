"use strict";
/* Workers claim jobs, run a function, and report its outcome. */
const os = require("node:os");
const { setTimeout: sleep } = require("node:timers/promises");
const { isMainThread } = require("node:worker_threads");
const errors = require("./errors.js");
const { consoleLogger } = require("./logger.js");
const { checked, checkFunction, checkText, printed } = require("./options.js");

const OPTIONS = ["concurrency", "leaseMS", "waitMS", "untilEmpty", "name", "signal", "logger"];
const RETRY_MS = 1000;
const CLAIM_MAX = 1000;
const INTERVAL_MAX = 2 ** 31 - 1; // a longer one would be 1 ms
/* Errors of a claim after which the worker continues. */
const TEMPORARY = [errors.Unreachable, errors.Locked, errors.Timeout];
const isTemporary = (error) =>
    TEMPORARY.some((kind) => error instanceof kind) ||
    (error instanceof errors.TruceError && error.hasErrorLabel("RetryableWriteError"));

class Worker {
    #database;
    #handler;
    #options;
    #running = new Map(); // job -> its promise
    #ended;
    #stopping = false;
    #checks = true; // whether the next claim checks the name of the queue

    constructor(database, queue, handler, options) {
        const given = checked(options, OPTIONS, "Worker");
        this.queue = checkText(queue, "the queue of a worker");
        this.#database = database;
        this.#handler = checkFunction(handler, "the handler of a worker");
        if (typeof database?.claimJobs !== "function")
            throw new TypeError("the first argument of Worker must be a database of truce");
        this.#options = {
            concurrency: 1,
            leaseMS: 30000,
            waitMS: 1000,
            untilEmpty: false,
            name: `${os.hostname()}:${process.pid}`,
            logger: consoleLogger,
            ...given,
        };
        const { signal, logger } = this.#options;
        this.#checkInteger("concurrency", 1);
        this.#checkInteger("leaseMS", 1);
        this.#checkInteger("waitMS", 0);
        checkText(this.#options.name, "the option name of Worker");
        if (signal !== undefined && typeof signal?.addEventListener !== "function")
            throw new TypeError("the option signal of Worker must be an AbortSignal");
        if (typeof logger?.warn !== "function" || typeof logger.error !== "function")
            throw new TypeError("the option logger of Worker must have the methods warn and error");
    }

    #checkInteger(name, least) {
        const value = this.#options[name];
        if (!Number.isSafeInteger(value) || value < least)
            throw new TypeError(
                `the option ${name} must be an integer from ${least}, not ${printed(value)}`,
            );
    }

    /* ---- start and end ---- */

    start() {
        this.#begin().catch(() => {}); // it was logged
        return this;
    }

    #begin() {
        if (this.#ended) throw new Error("the worker was already started: create a new Worker");
        const { concurrency, logger } = this.#options;
        logger.info?.(`${this.#name}: started, concurrency ${concurrency}`);
        this.#ended = this.#work().then(
            () => logger.info?.(`${this.#name}: ended`),
            (error) => {
                logger.error(`${this.#name}: ended: ${error.stack}`);
                throw error;
            },
        );
        return this.#ended;
    }

    #stop() {
        if (this.#ended && !this.#stopping) {
            this.#options.logger.info?.(`${this.#name}: stopping; waiting for ${this.#jobs}`);
        }
        this.#stopping = true;
    }

    /* Logs why the signal does not end the process at once. The next signal ends it. */
    #logWait(name) {
        const again = name === "SIGINT" ? "Ctrl-C" : name;
        if (this.#running.size > 0)
            this.#options.logger.warn(
                `${this.#name}: waits for ${this.#jobs}; ${again} again ends`,
            );
    }

    stop() {
        this.#stop();
        return this.#ended ?? Promise.resolve();
    }

    get #name() {
        return `worker ${this.#options.name} of queue ${this.queue}`;
    }

    /* The number of running jobs, as text. */
    get #jobs() {
        const count = this.#running.size;
        return `${count} ${count === 1 ? "job" : "jobs"}`;
    }

    async run(options) {
        const { signals = ["SIGTERM", "SIGINT"] } = checked(options, ["signals"], "run");
        const stop = (name) => {
            this.#stop();
            if (typeof name === "string") this.#logWait(name);
        };
        const { signal } = this.#options;
        if (!Array.isArray(signals) || signals.some((one) => !(one in os.constants.signals)))
            throw new TypeError(
                'the option signals of run must be an array of names, such as ["SIGTERM"]',
            );
        const watched = isMainThread ? signals : [];
        for (const one of watched) process.once(one, stop);
        signal?.addEventListener("abort", stop, { once: true });
        if (signal?.aborted) stop();
        try {
            await this.#begin();
        } finally {
            for (const one of watched) process.removeListener(one, stop);
            signal?.removeEventListener("abort", stop);
        }
    }

    /* ---- the loop ---- */

    async #work() {
        const { concurrency, untilEmpty, leaseMS } = this.#options;
        const keeper = setInterval(
            () => void this.#keepLeases(),
            Math.min(leaseMS / 3, INTERVAL_MAX),
        );
        try {
            while (!this.#stopping) {
                if (this.#running.size === concurrency) {
                    await Promise.race(this.#running.values());
                    continue;
                }
                const jobs = await this.#claim(concurrency - this.#running.size);
                for (const job of jobs) {
                    if (this.#stopping)
                        await this.#requeue(job); // the claim was sent before
                    else this.#start(job);
                }
                if (jobs.length > 0 || !untilEmpty) continue;
                if (this.#running.size === 0) return;
                await Promise.race(this.#running.values());
            }
        } finally {
            await Promise.all(this.#running.values());
            clearInterval(keeper);
        }
    }

    /* Claims jobs. One call waits for the first of them. */
    async #claim(free) {
        const { leaseMS, waitMS, untilEmpty, name, logger } = this.#options;
        const wait = untilEmpty ? 0 : waitMS;
        const check = this.#checks || undefined;
        this.#checks = false;
        try {
            const { jobs, note } = await this.#database._claimJobs(this.queue, {
                most: Math.min(free, CLAIM_MAX),
                waitMS: wait,
                leaseMS,
                worker: name,
                check,
            });
            if (note !== undefined) logger.warn(`${this.#name}: got no job: ${note}`);
            return jobs;
        } catch (error) {
            if (!isTemporary(error)) throw error;
            logger.warn(`${this.#name}: could not claim a job: ${error.message}`);
            await sleep(RETRY_MS);
            return [];
        }
    }

    async #requeue(job) {
        try {
            await job.snooze();
        } catch (error) {
            this.#options.logger.warn(`job ${job.id} of queue ${this.queue}: ${error.message}`);
        }
    }

    #start(job) {
        this.#options.logger.debug?.(`job ${job.id} of queue ${this.queue} was claimed`);
        const ended = job
            .run(this.#handler, this.#options.logger)
            .finally(() => this.#running.delete(job));
        this.#running.set(job, ended);
    }

    async #keepLeases() {
        for (const job of this.#running.keys()) {
            if (job.ended || job.lost) continue;
            try {
                await job.heartbeat();
            } catch (error) {
                if (error instanceof errors.Expired) continue; // job.lost
                this.#options.logger.warn(
                    `job ${job.id} of queue ${this.queue}: no heartbeat: ${error.message}`,
                );
            }
        }
    }
}

module.exports = { Worker };
