"use strict";
/* The documents of a reply, batch by batch. */
const { Long } = require("./bson.js");
const { printed } = require("./options.js");

const isZero = (id) => (typeof id === "object" ? id.isZero() : Number(id) === 0);

function longOf(id) {
    if (typeof id === "number") return Long.fromNumber(id);
    return typeof id === "bigint" ? Long.fromBigInt(id) : id;
}

const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

class BaseCursor {
    _batch = [];
    _state = { id: 0, name: "", session: undefined };
    _started = false;
    _ended = false;
    _more = {};

    constructor(database, command) {
        this._database = database;
        this._command = command;
        if (command.batchSize) this._more.batchSize = command.batchSize;
    }

    get closed() {
        return this._ended;
    }

    async _start() {
        this._started = true;
        await this._database._killAbandoned();
        // A server finds a cursor only in the session that created it.
        this._state.session = await this._database._beginCursor();
        try {
            const { cursor } = await this._database._command(
                this._command,
                false,
                this._state.session,
            );
            this._state.name = cursor.ns.slice(cursor.ns.indexOf(".") + 1);
            this._take(cursor, cursor.firstBatch);
        } catch (error) {
            await this._end();
            throw error;
        }
        if (isZero(this._state.id)) await this._end();
        else this._database._abandonable(this, this._state);
    }

    _take(cursor, batch) {
        this._state.id = longOf(cursor.id);
        this._batch = batch.reverse(); // pop() returns the first one
    }

    async _getMore() {
        const request = { getMore: this._state.id, collection: this._state.name, ...this._more };
        try {
            const { cursor } = await this._database._command(request, false, this._state.session);
            if (this._ended) return; // closed in the meantime
            this._take(cursor, cursor.nextBatch);
        } catch (error) {
            if (this._ended) return;
            this._state.id = 0;
            await this._end();
            throw error;
        }
        if (isZero(this._state.id)) await this._end();
    }

    async _end() {
        const { session } = this._state;
        this._state.session = undefined;
        this._ended = true;
        await this._database._endCursor(session);
    }

    /* Reads batches until a document is available. Returns false at the end. */
    async hasNext() {
        if (!this._started) await this._start();
        while (this._batch.length === 0 && !this._ended) await this._getMore();
        return this._batch.length > 0;
    }

    async next() {
        return (await this.hasNext()) ? this._batch.pop() : null;
    }

    async tryNext() {
        if (!this._started) await this._start();
        if (this._batch.length === 0 && !this._ended) await this._getMore();
        return this._batch.pop() ?? null;
    }

    async close() {
        const { id, name, session } = this._state;
        const open = this._started && !this._ended;
        this._batch = [];
        this._started = true;
        this._ended = true;
        if (!open) return;
        this._state.id = 0;
        try {
            await this._database._command(
                { killCursors: name, cursors: [longOf(id)] },
                false,
                session,
            );
        } finally {
            await this._end();
        }
    }

    async *[Symbol.asyncIterator]() {
        try {
            for (;;) {
                if (this._batch.length === 0 && !(await this.hasNext())) return;
                yield this._batch.pop();
            }
        } finally {
            await this.close();
        }
    }

    [asyncDispose]() {
        return this.close();
    }
}

class Cursor extends BaseCursor {
    async toArray() {
        const found = [];
        try {
            while (await this.hasNext()) {
                for (const document of this._batch.reverse()) found.push(document);
                this._batch = [];
            }
        } finally {
            await this.close();
        }
        return found;
    }

    async forEach(function_) {
        for await (const document of this) if (function_(document) === false) return;
    }
}

const COUNTS = { skip: true, limit: true, batchSize: true, maxTimeMS: true };

/* Refuses what the server would take for 0, which means all: NaN, and a missing value. */
function checkCount(name, value) {
    const isNumber = typeof value === "number" && !Number.isNaN(value);
    if (!isNumber && typeof value !== "bigint" && value?._bsontype === undefined)
        throw new TypeError(`${name} must be a number, not ${printed(value)}`);
    return value;
}

/* Checks the options of a read that are counts. */
function checkCounts(options) {
    for (const name in options) if (name in COUNTS) checkCount(name, options[name]);
    return options;
}

/* The documents of find, with the driver's methods that refine it before its first use. */
class FindCursor extends Cursor {
    #set(name, value) {
        if (this._started)
            throw new TypeError(`the cursor was already read: call ${name} before the first read`);
        this._command[name] = name in COUNTS ? checkCount(name, value) : value;
        return this;
    }

    sort(keys, direction) {
        return this.#set("sort", sortOf(keys, direction));
    }

    project(projection) {
        return this.#set("projection", projection);
    }

    skip(count) {
        return this.#set("skip", count);
    }

    limit(count) {
        return this.#set("limit", count);
    }

    hint(index) {
        return this.#set("hint", index);
    }

    maxTimeMS(ms) {
        return this.#set("maxTimeMS", ms);
    }

    batchSize(size) {
        this._more.batchSize = size;
        return this.#set("batchSize", size);
    }
}

/* The changes of a collection or database. */
class ChangeStream extends BaseCursor {
    #token;

    /* It begins now, so no change can be there when it starts. */
    #isNew;

    constructor(database, command, maxAwaitTimeMS, { resumeAfter, startAfter, startAtOperationTime }) {
        super(database, command);
        this._more.maxTimeMS = maxAwaitTimeMS;
        this.#token = resumeAfter ?? startAfter;
        this.#isNew = this.#token === undefined && startAtOperationTime === undefined;
    }

    get resumeToken() {
        return this.#token;
    }

    #returned(change) {
        if (change) this.#token = change._id;
        return change;
    }

    async next() {
        return this.#returned(await super.next());
    }

    /* The first call starts a new stream, and does not wait: the caller can then look at what it
     * waits for, and miss no change. */
    async tryNext() {
        if (this.#isNew && !this._started) {
            await this._start();
            return this.#returned(this._batch.pop() ?? null);
        }
        return this.#returned(await super.tryNext());
    }

    async *[Symbol.asyncIterator]() {
        try {
            for (let change = await this.next(); change; change = await this.next()) yield change;
        } finally {
            await this.close();
        }
    }
}

/* Returns the sort document of the forms that the driver accepts: "name", {name: -1},
 * [["name", -1]], ["name", "age"], and a Map. */
function sortOf(keys, direction = 1) {
    const number = (way) => ({ asc: 1, ascending: 1, desc: -1, descending: -1 })[way] ?? way;
    if (keys === undefined || keys === null) return undefined;
    if (typeof keys === "string") return { [keys]: number(direction) };
    if (typeof keys !== "object")
        throw new TypeError(`the sort must be a document, such as {n: 1}, not ${printed(keys)}`);
    if (
        Array.isArray(keys) &&
        keys.length === 2 &&
        [1, -1, "asc", "desc", "ascending", "descending"].includes(keys[1])
    )
        return { [keys[0]]: number(keys[1]) };
    const pairs = Array.isArray(keys) || keys instanceof Map ? [...keys] : Object.entries(keys);
    return Object.fromEntries(
        pairs.map((pair) => (typeof pair === "string" ? [pair, 1] : [pair[0], number(pair[1])])),
    );
}

module.exports = { ChangeStream, Cursor, FindCursor, asyncDispose, checkCounts, sortOf };
