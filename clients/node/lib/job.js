"use strict";
/* A claimed job. */
const { types } = require("node:util");
const { changesOf } = require("./changes.js");
const errors = require("./errors.js");
const { consoleLogger } = require("./logger.js");
const { checked, duration, textOf } = require("./options.js");
const telemetry = require("./telemetry.js");

const END = ["database"];
const FAIL = ["delayMS", "database"];

/* Returns the stack of an error, or its text. */
function stackOf(error) {
    try {
        return typeof error?.stack === "string" ? error.stack : textOf(error);
    } catch {
        return textOf(error);
    }
}

const isDocument = (value) =>
    typeof value === "object" &&
    !Array.isArray(value) &&
    !value._bsontype &&
    !ArrayBuffer.isView(value) &&
    !types.isDate(value) &&
    !types.isRegExp(value) &&
    !types.isNativeError(value) &&
    !types.isSet(value);
const isNone = (value) =>
    value === undefined || value === null || ["function", "symbol"].includes(typeof value);

/* Returns the document that is stored for the result of a handler: the result itself, or {value:
 * result}. Returns undefined if there is no result. */
function resultOf(value) {
    if (isNone(value)) return undefined;
    if (types.isBoxedPrimitive(value)) return { value: value.valueOf() };
    return isDocument(value) ? value : { value };
}

const isWrong = (error) => error instanceof errors.Limit || error instanceof errors.Invalid;

const OUTCOMES = {
    done: "is done",
    jobCommit: "is done",
    snooze: "returned to the queue",
    discard: "was discarded",
};

class Job {
    #database;
    #claimed = performance.now();
    #logger;
    #lost = new AbortController();
    /* The calls of the handler that have not ended. */
    #calls = new Set();
    /* The steps, sleeps, and waits that this attempt completes, has completed, or found complete:
     * their names with their kinds. Steps and sleeps share their names. */
    #called = new Map();
    #awaited = new Map();

    /* This worker has reported the end of the job. */
    ended = false;

    constructor(database, queue, document) {
        this.#database = database;
        this.queue = queue;
        this.document = document;
        this.id = document._id;
        this.token = document.token;
        this.payload = document.payload ?? {};
        this.metadata = document.metadata ?? {};
        this.attempt = document.attempt ?? 1;
    }

    get lost() {
        return this.#lost.signal.aborted;
    }

    get signal() {
        return this.#lost.signal;
    }

    get #claim() {
        return { id: this.id, token: this.token };
    }

    async #end(method, fields, database = this.#database) {
        this.#checkOpen();
        const operation = method === "jobCommit" ? "done" : method;
        const reply = await telemetry.end(this, operation, () =>
            database[method](this.queue, { ...this.#claim, ...fields }),
        );
        this.ended = true;
        if (OUTCOMES[method]) this.#log("info", OUTCOMES[method]);
        return reply;
    }

    /* Logs the end of a job that a worker runs. */
    #log(level, outcome) {
        const took = Math.round(performance.now() - this.#claimed);
        this.#logger?.[level]?.(
            `${this.#name} ${outcome} (attempt ${this.attempt}, ${took} ms)`,
        );
    }

    #checkOpen() {
        if (!this.ended) return;
        const message = `job ${this.id} has already ended: await each call in its handler`;
        throw new errors.Expired(message, { code: 125 });
    }

    /* Registers a call of the handler, and returns its promise. Attaches no rejection handler to
     * the promise, because that would hide an error that the caller ignores. */
    #begun(call) {
        const promise = this.#database._several(async () => {
            try {
                return await call;
            } finally {
                this.#calls.delete(promise);
            }
        });
        this.#calls.add(promise);
        return promise;
    }

    /* ---- the end ---- */

    done(result, options) {
        return this.#begun(this.#done(result, options));
    }

    async #done(result, options) {
        const { database } = checked(options, END, "done");
        await this.#end("done", { result }, database);
    }

    fail(error, options) {
        return this.#begun(this.#fail(error, options));
    }

    async #fail(error, options) {
        const { delayMS, database } = checked(options, FAIL, "fail");
        await this.#end("fail", { error: textOf(error), delayMS }, database);
        this.#log("error", `failed: ${textOf(error)}`);
    }

    snooze(delayMS, options) {
        return this.#begun(this.#snooze(delayMS, options));
    }

    async #snooze(delayMS = 0, options = undefined) {
        const { database } = checked(options, END, "snooze");
        await this.#end("snooze", { delayMS: duration("delayMS", delayMS) }, database);
    }

    discard(error, options) {
        return this.#begun(this.#discard(error, options));
    }

    async #discard(error, options) {
        const { database } = checked(options, END, "discard");
        await this.#end("discard", { error: textOf(error) }, database);
    }

    commit(fill, options) {
        return this.#begun(this.#commit(fill, options));
    }

    async #commit(fill, options) {
        const { result } = checked(options, ["result"], "commit");
        const changes = await changesOf(fill, "commit");
        if (changes.length === 0) await this.#end("done", { result });
        else await this.#end("jobCommit", { changes, result });
    }

    /* ---- steps: what happens once in all attempts ---- */

    step(name, fill, options) {
        return this.#begun(this.#step(name, fill, options));
    }

    async #step(name, fill, options) {
        const { result } = checked(options, ["result"], "step");
        this.#checkOpen();
        return this.#call(this.#called, "step", name, async () => {
            const changes = await changesOf(fill, "step");
            const fields = {
                ...this.#claim,
                name,
                result,
                changes: changes.length > 0 ? changes : undefined,
            };
            const reply = await this.#database.jobStep(this.queue, fields);
            return { earlier: reply.earlier, result: reply.result };
        });
    }

    /* Refuses the second call of a name: it would be skipped as if it were the first. */
    async #call(called, kind, name, call) {
        if (called.has(name)) {
            const message =
                `this attempt of the job has already begun the ${called.get(name)} ` +
                `${JSON.stringify(name)}: give each ${kind} its own name, for example with an index`;
            throw new errors.Invalid(message, { code: 2 });
        }
        called.set(name, kind);
        try {
            return await call();
        } catch (error) {
            called.delete(name); // A call that failed may be repeated.
            throw error;
        }
    }

    sleep(name, delayMS) {
        return this.#begun(this.#sleep(name, delayMS));
    }

    async #sleep(name, delayMS) {
        this.#checkOpen();
        await this.#call(this.#called, "sleep", name, async () => {
            const fields = { ...this.#claim, name, delayMS };
            this.#checkSuspended(await this.#database.jobSleep(this.queue, fields));
        });
    }

    wait(name, options) {
        return this.#begun(this.#wait(name, options));
    }

    async #wait(name, options) {
        const { timeoutMS } = checked(options, ["timeoutMS"], "wait");
        this.#checkOpen();
        return this.#call(this.#awaited, "wait", name, async () => {
            const fields = { ...this.#claim, name, timeoutMS };
            const reply = await this.#database.jobWait(this.queue, fields);
            this.#checkSuspended(reply);
            return reply.came ? (reply.event ?? {}) : null;
        });
    }

    #checkSuspended(reply) {
        if (reply.status !== "not found") return;
        this.ended = true;
        this.#log("info", "is suspended");
        throw new errors.Suspended(
            `job ${this.id} of queue ${this.queue} is suspended: let this error leave the handler`,
        );
    }

    /* ---- the lease ---- */

    async heartbeat(progress) {
        try {
            const { leaseMS } = await this.#database.heartbeat(this.queue, {
                ...this.#claim,
                progress,
            });
            return leaseMS;
        } catch (error) {
            if (error instanceof errors.Expired && !this.ended) this.#lost.abort(error);
            throw error;
        }
    }

    /* ---- for workers ---- */

    /*
     * Runs the handler and reports the outcome. If the handler throws, the job fails.
     * Errors of the report are logged.
     */
    run(handler, logger = consoleLogger) {
        this.#logger = logger;
        return telemetry.work(this, () => this.#run(handler, logger));
    }

    async #run(handler, logger) {
        let result;
        try {
            result = await handler(this);
            // Waits for calls that the handler did not await. A commit would be lost otherwise.
            while (this.#calls.size > 0) await Promise.all(this.#calls);
        } catch (error) {
            await this.#failed(error, logger);
            return;
        }
        if (!this.ended) await this.#report(() => this.#finish(result, logger), logger);
    }

    /* Ends the job as done. If the result cannot be stored, reports a failure. Without a report,
     * the job would run again when its lease ends. */
    async #finish(result, logger) {
        try {
            await this.#done(resultOf(result));
        } catch (error) {
            const temporary = error instanceof errors.TruceError && !isWrong(error);
            if (temporary) throw error;
            await this.#failed(error, logger);
        }
    }

    async #failed(thrown, logger) {
        // The traps of a Proxy may throw whatever is done with it.
        const error = types.isProxy(thrown) ? textOf(thrown) : thrown;
        if (error instanceof errors.Suspended && this.ended) return;
        telemetry.failed(types.isNativeError(error) ? error : textOf(error));
        if (this.lost) return this.#warnLost(logger);
        // The error may be that of the job, or of another call of the handler: the report shows it.
        const mayBeLost = error instanceof errors.Expired && !this.ended;
        if (!mayBeLost) this.#log("error", `failed: ${stackOf(error)}`);
        if (this.ended) return;
        try {
            await this.#end("fail", { error: textOf(error) });
            if (mayBeLost) this.#log("error", `failed: ${stackOf(error)}`);
        } catch (failure) {
            if (mayBeLost && failure instanceof errors.Expired) this.#warnLost(logger);
            else this.#warn(failure, logger);
        }
    }

    #warnLost(logger) {
        logger.warn(`${this.#name}: it was canceled, or another worker has it`);
        this.ended = true;
    }

    /* Calls a function that reports an outcome. If the report fails, another worker gets the job
     * when the lease ends. */
    async #report(function_, logger) {
        try {
            await function_();
        } catch (error) {
            this.#warn(error, logger);
        }
    }

    #warn(error, logger) {
        if (!(error instanceof errors.TruceError)) throw error;
        logger.warn(`${this.#name}: ${error.message}`);
    }

    get #name() {
        return `job ${this.id} of queue ${this.queue}`;
    }
}

module.exports = { Job };
