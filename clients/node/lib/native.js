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
const { deserialize, serialize } = require("./bson.js");
const errors = require("./errors.js");
const { ofReply } = require("./failure.js");
const { withRoom } = require("./room.js");

const SONAME = "libtruce.so.0";
const NEEDED = "0.1.0";
/* As in the driver: {_id: undefined} is {_id: null}, and does not match every document. */
const BSON = { ignoreUndefined: false };
const ROOT = path.join(__dirname, "..");
const PREBUILT = path.join(ROOT, "prebuilds", `${process.platform}-${process.arch}`);

/* Room for the reply of a quick command. */
const ROOM = Buffer.allocUnsafeSlow(4096);

/* Returns the addon, or throws why none can be loaded. */
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
    return { addon, version };
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

/* The reply of a find in one batch begins with these bytes, except the lengths in it: {cursor:
 * {firstBatch: [. The array follows, whose first element is {0: document}. */
const FIRST = Buffer.from("\0\0\0\0\x03cursor\0\0\0\0\0\x04firstBatch\0", "latin1");
const LENGTH = FIRST.length + 4;
const FOUND = Buffer.from("\x030\0", "latin1");

function beginsWith(reply, at, bytes, from, to) {
    return reply.compare(bytes, from, to, at + from, at + to) === 0;
}

/* Returns the document of the reply of a find that has one at most: null without one, and undefined
 * if the reply has another form. This is half of the time of reading the whole reply. */
function firstOf(reply, length) {
    if (!beginsWith(reply, 0, FIRST, 4, 12) || !beginsWith(reply, 0, FIRST, 16, FIRST.length))
        return undefined;
    if (reply[LENGTH] === 0) return null;
    const at = LENGTH + FOUND.length;
    if (!beginsWith(reply, LENGTH, FOUND, 0, FOUND.length)) return undefined;
    const size = reply.readInt32LE(at);
    if (at + size > length) return undefined;
    const document = Buffer.allocUnsafe(size); // not a part of ROOM, which the next call overwrites
    reply.copy(document, 0, at, at + size);
    return deserialize(document);
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
        const request = withRoom(document, () => serialize(document, BSON));
        try {
            return deserialize(
                await this.#addon.command(this.#handle, database, request, waits(document)),
            );
        } catch (failure) {
            throw failure instanceof Error ? failure : failed(failure, Object.keys(document)[0]);
        }
    }

    /* Runs a find by _id in this thread, and returns its document, or null. Returns undefined if it
     * takes long or fails: then it must run as a command. */
    findNow(database, document) {
        if (this.#closing) return undefined;
        const request = withRoom(document, () => serialize(document, BSON));
        const length = this.#addon.commandNow(this.#handle, database, request, ROOM);
        return length === 0 ? undefined : firstOf(ROOM, length);
    }

    /* Waits for the running calls, and closes the store. */
    close() {
        this.#closing ??= this.#addon.close(this.#handle);
        return this.#closing;
    }
}

module.exports = { NativeStore, library };
