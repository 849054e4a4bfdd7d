"use strict";
/*
 * libtruce in this process.
 *
 * The addon is addon/build/Release/truce.node, if it was built on this machine, or the one of
 * prebuilds/. The library is searched in this order: the file that TRUCE_LIBRARY names, the one
 * within the package, and the one that the system's loader finds.
 */
const { existsSync } = require("node:fs");
const path = require("node:path");
const { deserialize, ObjectId, serialize, serializeWithBufferAndIndex } = require("./bson.js");
const errors = require("./errors.js");
const { ofReply } = require("./failure.js");
const { bytesOf, checkIntegers } = require("./room.js");

const SONAME = "libtruce.so.0";
const NEEDED = "0.1.0";
/* A field that is undefined is stored as null, as in the driver. */
const BSON = { ignoreUndefined: false };
const ROOT = path.join(__dirname, "..");
const PREBUILT = path.join(ROOT, "prebuilds", `${process.platform}-${process.arch}`);

/* Returns the addon. Throws an error with the reasons if none can be loaded. */
function loadAddon() {
    const reasons = [];
    for (const file of [
        path.join(ROOT, "addon", "build", "Release", "truce.node"),
        path.join(PREBUILT, "truce.node"),
    ]) {
        if (!existsSync(file)) continue;
        try {
            return require(file);
        } catch (error) {
            reasons.push(error.message);
        }
    }
    const why = reasons.length > 0 ? reasons.join("; ") : "the package has none for this platform";
    throw new errors.LibraryError(
        `no addon for ${process.platform}-${process.arch}: ${why}. ` +
            'Run "npm explore truce-db -- npm run build", which needs a C compiler, make, and Python',
    );
}

function isOlder(version, needed) {
    const [left, right] = [version, needed].map((one) => one.split(".").map(Number));
    const at = left.findIndex((number, i) => number !== right[i]);
    return at >= 0 && left[at] < right[at];
}

function load() {
    const addon = loadAddon();
    const within = path.join(PREBUILT, "truce", SONAME);
    const file = process.env.TRUCE_LIBRARY || (existsSync(within) ? within : SONAME);
    let version;
    try {
        version = addon.load(file);
    } catch (error) {
        const unknown = /undefined symbol/.test(error.message);
        throw new errors.LibraryError(
            unknown
                ? `${file} is not libtruce, or too old: ${error.message}`
                : `cannot load ${file}: ${error.message}. ` +
                      `Install libtruce, or set TRUCE_LIBRARY to the path of ${SONAME}`,
        );
    }
    if (isOlder(version, NEEDED))
        throw new errors.LibraryError(
            `${file}: libtruce ${version} is too old: this package needs ${NEEDED} or later`,
        );
    return { addon, version, byId: new FindById(addon.request), found: addon.found };
}

let loaded;

function library() {
    loaded ??= load();
    return loaded;
}

/* Commands that wait for a job or a change. They get threads of their own. */
function waits(document) {
    return (
        Boolean(document.waitMS) ||
        (document.getMore !== undefined && document.maxTimeMS !== undefined)
    );
}

const FILTER = Buffer.from("\x03filter\0\0\0\0\0?_id\0", "latin1");
const REST = Buffer.from("\0\x10limit\0\x01\0\0\0\x08singleBatch\0\x01\0", "latin1");
const SHORT = 255;

/*
 * Writes the command {find: NAME, filter: {_id: ID}, limit: 1, singleBatch: true} for the common
 * types of an _id. This takes a tenth of the time of the BSON library. The buffer keeps the part
 * before the _id for the next call.
 */
class FindById {
    #buffer;
    #name;
    #at; // The position of the type of the _id.

    constructor(buffer) {
        this.#buffer = buffer;
    }

    /* Forgets the name, because the buffer was used for another command. */
    forget() {
        this.#name = undefined;
    }

    #begin(name) {
        const text = Buffer.from(name);
        if (text.length > SHORT || text.includes(0)) return false;
        const buffer = this.#buffer;
        buffer.write("\x02find\0", 4, "latin1");
        buffer.writeInt32LE(text.length + 1, 10);
        text.copy(buffer, 14);
        buffer[14 + text.length] = 0;
        FILTER.copy(buffer, 15 + text.length);
        this.#at = 15 + text.length + FILTER.length - 5;
        this.#name = name;
        return true;
    }

    /* Returns the length of the command, or 0 if it must be written by the BSON library. */
    write(name, id) {
        if (name !== this.#name && !this.#begin(name)) return 0;
        const buffer = this.#buffer,
            at = this.#at;
        let end = at + 5;
        if (typeof id === "number" && (id | 0) === id) {
            buffer[at] = 0x10;
            end = buffer.writeInt32LE(id, end);
        } else if (typeof id === "string" && id.length <= SHORT) {
            const length = buffer.write(id, end + 4);
            buffer[at] = 0x02;
            buffer.writeInt32LE(length + 1, end);
            end += 4 + length;
            buffer[end++] = 0;
        } else if (id instanceof ObjectId) {
            buffer[at] = 0x07;
            buffer.set(id.id, end);
            end += 12;
        } else return 0;
        buffer.writeInt32LE(end + 1 - (at - 4), at - 4);
        buffer.set(REST, end);
        buffer.writeInt32LE(end + REST.length, 0);
        return end + REST.length;
    }
}

/* Returns whether a filter has the _id only. */
function isById(filter) {
    let count = 0;
    for (const name in filter) if (name !== "_id" || count++ > 0) return false;
    return count === 1 && filter.toBSON === undefined;
}

function failed(failure, command) {
    const reply = failure.reply && failure.reply.length > 5 ? deserialize(failure.reply) : {};
    reply.errmsg ??= failure.message;
    reply.code ??= failure.code;
    return ofReply(reply, command, { status: reply.status ?? failure.status });
}

/* A store in this process. */
class NativeStore {
    #addon;
    #handle;
    #closing;

    constructor(addon, handle) {
        this.#addon = addon;
        this.#handle = handle;
    }

    static async open(uri, options) {
        const { addon } = library();
        try {
            const handle = await addon.open(
                uri,
                options.readOnly,
                options.mustExist,
                options.relaxed,
                options.deadlineMS,
                options.snapshotAgeMS,
                options.cacheMB,
            );
            return new NativeStore(addon, handle);
        } catch (failure) {
            throw failure instanceof Error ? failure : failed(failure, "open");
        }
    }

    async command(database, document) {
        if (this.#closing) throw new errors.Invalid("the store is closed", { code: 2 });
        const request = bytesOf(document, (one) => serialize(one, BSON));
        try {
            return deserialize(
                await this.#addon.command(this.#handle, database, request, waits(document)),
            );
        } catch (failure) {
            throw failure instanceof Error ? failure : failed(failure, Object.keys(document)[0]);
        }
    }

    /* Writes the command of findNow into the buffer of the addon. Returns its length, or 0 if it is
     * too large. */
    #writeFind(collection, filter, command) {
        const length =
            filter !== undefined && isById(filter) ? loaded.byId.write(collection, filter._id) : 0;
        if (length > 0) return length;
        const document = command();
        checkIntegers(document);
        loaded.byId.forget();
        try {
            return serializeWithBufferAndIndex(document, this.#addon.request, BSON) + 1;
        } catch (error) {
            if (error instanceof RangeError || error.code === "ERR_OUT_OF_RANGE") return 0;
            throw error;
        }
    }

    /* Runs a find of one document in this thread, and returns the document, or null. Returns
     * undefined if the find takes long or fails. The caller then runs it as a command. `filter` is
     * the filter of a find without options; `command` returns the command. */
    findNow(database, collection, filter, command) {
        const length = this.#writeFind(collection, filter, command);
        if (length === 0 || this.#closing) return undefined;
        const size = this.#addon.findNow(this.#handle, database, length);
        if (size <= 0) return size < 0 ? null : undefined;
        const copy = Buffer.allocUnsafe(size); // values may refer to it
        copy.set(loaded.found.subarray(0, size));
        return deserialize(copy);
    }

    /* Waits for the running calls, and closes the store. */
    close() {
        this.#closing ??= this.#addon.close(this.#handle);
        return this.#closing;
    }
}

module.exports = { NativeStore, library };
