"use strict";
/*
 * The client core: every method makes one command document and runs it through a transport.
 *
 * Replies are the documents of the server without `ok`, `$clusterTime`, and `operationTime`. If the
 * `outcome` of a reply is "conflict", Conflict is thrown.
 */
const { setMaxListeners } = require("node:events");
const { setTimeout: sleep } = require("node:timers/promises");
const { abortable } = require("./abort.js");
const { ObjectId } = require("./bson.js");
const { changesOf, throwLate } = require("./changes.js");
const { Collection } = require("./collection.js");
const { ChangeStream, Cursor, asyncDispose } = require("./cursor.js");
const errors = require("./errors.js");
const { ofReply, useMethodNames } = require("./failure.js");
const { Job } = require("./job.js");
const rows = require("./operations.js");
const { addOperations } = require("./operations_base.js");
const { checked, checkDefined, checkFunction, checkText } = require("./options.js");
const telemetry = require("./telemetry.js");

const TRIES = 4;
const TRANSACTION_TRIES = 120;
const WATCH = [
    "fullDocument",
    "fullDocumentBeforeChange",
    "resumeAfter",
    "startAfter",
    "startAtOperationTime",
    "maxAwaitTimeMS",
];
const COMMIT = rows.commitChanges.options;
const EDIT = rows.treePublish.options.filter(
    (name) => !["changes", "base", "id", "revert"].includes(name),
);
const PAGE = ["page"];
const STATE_PAGE = ["state", "page"];
const AFTER_PAGE = ["after", "page"];
const TREE = ["filter", "sort", "version", "tag", "token", "timeMS", "page"];
const DIFF = ["from", "to", "contents", "page"];

/* Returns the reply of a list. Without it, a misspelled name would be an empty list. */
function checkFound(reply) {
    if (reply.status !== "not found") return reply;
    throw ofReply({ errmsg: reply.reason ?? "not found", code: 125, ...reply }, "");
}

/* The calls of one transaction. A call after the end of the function is refused, because it would
 * begin another transaction. */
class Scope {
    #ended = false;
    #running = 0;

    async run(call) {
        if (this.#ended)
            throw new errors.Invalid("the transaction has ended: await each call in its function");
        this.#running++;
        try {
            return await call();
        } finally {
            this.#running--;
        }
    }

    end() {
        this.#ended = true;
    }

    /* Ends the calls before the commit. Throws if the function did not await one of them. */
    finish() {
        this.end();
        if (this.#running === 0) return;
        const calls = this.#running === 1 ? "a call was" : `${this.#running} calls were`;
        throw new errors.Invalid(
            `${calls} still running at the end of the transaction, which changed nothing: ` +
                "await each call in its function",
        );
    }
}

class Database {
    #transport;
    #session;
    #scope;
    #signal;
    #abandoned = [];
    #registry = new FinalizationRegistry((state) => this.#abandoned.push(state));

    constructor(transport, name, { session, scope, signal } = {}) {
        this.#transport = transport;
        this.#session = session;
        this.#scope = scope;
        this.#signal = signal;
        this.databaseName = name;
    }

    /* The same database, whose calls end when the signal is aborted. */
    withSignal(signal) {
        if (typeof signal?.addEventListener !== "function")
            throw new TypeError("the argument of withSignal must be an AbortSignal");
        setMaxListeners(0, signal); // one for each call that runs
        return new Database(this.#transport, this.databaseName, {
            session: this.#session,
            scope: this.#scope,
            signal,
        });
    }

    close() {
        const { running } = this.#transport;
        // A transaction would wait for its own end.
        if (this.#session || running.size === 0) return this.#transport.close();
        return Promise.all(running).then(() => this.#transport.close());
    }

    /* Runs a method that makes several calls, such that `close` waits for all of them. The returned
     * promise gets no handler here, such that an error which the caller ignores is not hidden. */
    async _several(method) {
        const { running } = this.#transport;
        let ended;
        const end = new Promise((resolve) => (ended = resolve));
        running.add(end);
        try {
            return await method();
        } finally {
            running.delete(end);
            ended();
        }
    }

    /* ---- commands ---- */

    async command(document, options) {
        const { again = false } = checked(options, ["again"], "command");
        if (document === null || typeof document !== "object" || Array.isArray(document))
            throw new TypeError(
                "the argument of command must be a document, such as {truceHelp: 1}",
            );
        return this._command(document, again);
    }

    /*
     * Runs a command. With `again`, it is sent again if its reply is lost, or if the server says
     * that it may be repeated.
     */
    _command(document, again = false, session = this.#session) {
        if (!this.#scope) return this.#sendUntilAborted(document, again, session);
        return this.#scope.run(() => this.#sendUntilAborted(document, again, session));
    }

    #sendUntilAborted(document, again, session) {
        if (!this.#signal) return this.#send(document, again, session);
        return abortable(
            this.#signal,
            document,
            () => this.#send(document, again, session),
            (reply) => this.#requeue(document, reply),
            this.#scope !== undefined,
        );
    }

    /* Returns the jobs of a claim to the queue. */
    async #requeue({ truceClaim: queue }, { jobs = [] }) {
        if (queue === undefined) return;
        for (const { _id: id, token } of jobs)
            await this.#send({ truceSnooze: queue, id, token, delayMS: 0 }, false, undefined);
    }

    async #send(document, again, session) {
        let reply;
        document = telemetry.traced(document);
        for (let left = TRIES - 1; ; left--) {
            try {
                reply = await this.#transport.command(this.databaseName, document, session);
                break;
            } catch (error) {
                const lost = error instanceof errors.Unreachable;
                // The driver has searched for a server during its whole timeout.
                const away = error.cause?.name === "MongoServerSelectionError";
                const repeats =
                    (lost && !away) ||
                    (error instanceof errors.TruceError &&
                        error.hasErrorLabel("RetryableWriteError"));
                if (!again || !repeats || left === 0 || this.#session) throw error;
                await sleep(lost ? 50 : 100 * (TRIES - left));
            }
        }
        delete reply.ok;
        delete reply.$clusterTime;
        delete reply.operationTime;
        if (reply.outcome === "conflict") {
            const details = {
                errmsg: reply.reason ?? "another write conflicts with this one",
                code: 112,
                ...reply,
                status: "conflict", // the operation itself has completed: "ok"
            };
            throw ofReply(details, "");
        }
        if (reply.note !== undefined && document.truceClaim === undefined)
            process.emitWarning(reply.note, "TruceWarning"); // a worker logs that of its claim
        return reply;
    }

    /* Returns the document of a find by _id at once, or undefined if it must run as a command.
     * `filter` is the filter of a find without options; `command` returns the command. */
    _findNow(collection, filter, command) {
        if (this.#session || this.#signal) return undefined;
        return this.#transport.findNow?.(this.databaseName, collection, filter, command);
    }

    async _run(document, again) {
        try {
            return await this._command(document, again);
        } catch (error) {
            throw useMethodNames(error);
        }
    }

    /* ---- collections ---- */

    collection(name) {
        return new Collection(this, checkText(name, "the name of a collection"));
    }

    listCollections(filter = {}) {
        return new Cursor(this, { listCollections: 1, filter, cursor: {} });
    }

    async dropDatabase() {
        await this._command({ dropDatabase: 1 });
        return true;
    }

    watch(pipeline, options) {
        return this._watch(1, pipeline, options);
    }

    _watch(of, pipeline = [], options = undefined) {
        const { maxAwaitTimeMS = 1000, ...stage } = checked(options, WATCH, "watch");
        if (!Array.isArray(pipeline))
            throw new TypeError("the pipeline of watch must be an array of stages");
        for (const one of pipeline) checkDefined(one?.$match, "$match of watch");
        const command = {
            aggregate: of,
            pipeline: [{ $changeStream: stage }, ...pipeline],
            cursor: {},
        };
        return new ChangeStream(this, command, maxAwaitTimeMS, stage);
    }

    async _beginCursor() {
        return this.#session ?? this.#transport.begin({ transaction: false });
    }

    async _endCursor(session) {
        if (session && session !== this.#session) await this.#transport.end(session);
    }

    /* Registers a cursor, to close it if the garbage collector frees it before its end. */
    _abandonable(cursor, state) {
        this.#registry.register(cursor, state);
    }

    /* Closes the cursors that the garbage collector freed before their end. */
    async _killAbandoned() {
        while (this.#abandoned.length > 0) {
            const { id, name, session } = this.#abandoned.pop();
            if (!id || id.isZero()) continue;
            try {
                await this._command({ killCursors: name, cursors: [id] }, false, session);
                await this._endCursor(session);
            } catch (error) {
                // The store closes an unused cursor after some minutes.
                if (!(error instanceof errors.TruceError)) throw error;
            }
        }
    }

    /* ---- commits and transactions ---- */

    commit(fill, options) {
        return this._several(() => this.#commit(fill, options));
    }

    async #commit(fill, options) {
        const given = checked(options, COMMIT, "commit");
        if (given.key !== undefined && given.keyTime === undefined)
            throw new TypeError(
                "the option key of commit needs keyTime: the time when the request was made, the " +
                    "same in each repetition",
            );
        if (given.key === undefined && given.keyTime !== undefined)
            throw new TypeError(
                "the option keyTime of commit needs key: it is the time of that idempotency key",
            );
        const changes = await changesOf(fill, "commit");
        const results = new Map();
        const reply = await this.commitChanges(changes, given);
        for (const { change, ...result } of reply.results ?? []) results.set(change, result);
        return {
            earlier: reply.earlier,
            result: reply.result,
            inserted: reply.inserted ?? [],
            results,
        };
    }

    transact(function_) {
        return this._several(() => this.#transact(function_));
    }

    async #transact(function_) {
        checkFunction(function_, "the argument of transact");
        if (this.#session) throw new TypeError("transact cannot be used within a transaction");
        for (let tried = 0; ; tried++) {
            try {
                return await this.#transaction(function_);
            } catch (error) {
                const repeats =
                    error instanceof errors.TruceError &&
                    error.hasErrorLabel("TransientTransactionError");
                if (!repeats || tried + 1 === TRANSACTION_TRIES) throw error;
            }
            await sleep(Math.min(10 * 2 ** tried, 1000) * (0.5 + Math.random()));
        }
    }

    async #transaction(function_) {
        const session = await this.#transport.begin({ transaction: true });
        const scope = new Scope();
        try {
            const result = await function_(
                new Database(this.#transport, this.databaseName, {
                    session,
                    scope,
                    signal: this.#signal,
                }),
            );
            this.#signal?.throwIfAborted();
            scope.finish();
            await this.#transport.commit(session);
            return result;
        } finally {
            scope.end();
            await this.#transport.end(session);
        }
    }

    /* ---- jobs ---- */

    async claimJobs(queue, options) {
        return (await this._claimJobs(queue, options)).jobs;
    }

    /* Returns also the note of the reply. */
    async _claimJobs(queue, options) {
        const began = Date.now();
        const { jobs: documents = [], note } = await this.claim(queue, options);
        const jobs = documents.map((document) => new Job(this, queue, document));
        telemetry.claimed(queue, jobs, began);
        return { jobs, note };
    }

    /* ---- all pages of a reply ---- */

    async *iterateJobs(queue, options) {
        const { page: limit = 100, state } = checked(options, STATE_PAGE, "iterateJobs");
        for (let after; ;) {
            const { jobs, more } = await this.jobs(queue, { state, after, limit });
            yield* jobs;
            if (!more) return;
            after = jobs.at(-1)._id;
        }
    }

    async *iterateStatement(ledger, account, options) {
        let { page: limit = 100, after } = checked(options, AFTER_PAGE, "iterateStatement");
        for (;;) {
            const { lines, more } = checkFound(
                await this.ledgerStatement(ledger, { account, after, limit }),
            );
            yield* lines;
            if (!more) return;
            after = lines.at(-1).number;
        }
    }

    async *iterateTransfers(collection, options) {
        const { page: limit = 100, state } = checked(options, STATE_PAGE, "iterateTransfers");
        for (let skip = 0; ;) {
            const { transfers, more } = checkFound(
                await this.transfers(collection, { state, limit, skip }),
            );
            yield* transfers;
            if (!more) return;
            skip += transfers.length;
        }
    }

    async *iterateTree(tree, options) {
        const { page: limit = 100, filter, sort, ...at } = checked(options, TREE, "iterateTree");
        let reply = await this.treeRead(tree, { filter, sort, limit, ...at });
        for (let skip = 0; ;) {
            const { items, more, token } = checkFound(reply);
            yield* items;
            if (!more) return;
            skip += items.length;
            const next = sort ? { skip } : { after: items.at(-1).itemId };
            reply = await this.treeRead(tree, { filter, sort, limit, token, ...next });
        }
    }

    async *iterateTreeLog(tree, options) {
        const { page: limit = 100 } = checked(options, PAGE, "iterateTreeLog");
        for (let before; before !== 1;) {
            const { versions, more } = checkFound(await this.treeLog(tree, { before, limit }));
            yield* versions;
            if (!more) return;
            before = versions.at(-1).version;
        }
    }

    async *iterateTreeDiff(tree, options) {
        const { page: limit = 100, ...given } = checked(options, DIFF, "iterateTreeDiff");
        for (let after; ;) {
            const { changes, more } = checkFound(
                await this.treeDiff(tree, { ...given, after, limit }),
            );
            yield* changes;
            if (!more) return;
            after = changes.at(-1).itemId;
        }
    }

    /* ---- trees ---- */

    edit(tree, fill, options) {
        return this._several(() => this.#edit(tree, fill, options));
    }

    async #edit(tree, fill, options) {
        const given = checked(options, EDIT, "edit");
        checkFunction(fill, "the second argument of edit");
        const { token: base = "new" } = await this.treeRead(tree, { limit: 1 });
        const edit = new Edit();
        try {
            await fill(edit);
        } finally {
            edit._end();
        }
        return this.treePublish(tree, {
            ...given,
            changes: edit.changes,
            base,
            id: new ObjectId(),
        });
    }
}

addOperations(Database.prototype, () => true);

/* Changes of a tree, published together. */
class Edit {
    changes = [];
    #ended = false;

    /* The function of the edit has ended: further changes are errors. */
    _end() {
        this.#ended = true;
    }

    #add(change) {
        if (this.#ended) throwLate("edit");
        this.changes.push(change);
        return this;
    }

    put(item) {
        return this.#add({ put: item });
    }

    remove(id) {
        return this.#add({ remove: id });
    }
}

module.exports = { Database, Edit };
