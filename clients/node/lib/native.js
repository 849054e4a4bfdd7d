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

/* A read by _id, which runs in this thread unless it takes long. */
function isQuick(document) {
    return (
        document.singleBatch === true &&
        typeof document.find === "string" &&
        document.filter?._id !== undefined &&
        document.lsid === undefined
    );
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
            const reply = isQuick(document) && this.#commandNow(database, request);
            return deserialize(
                reply ||
                    (await this.#addon.command(this.#handle, database, request, waits(document))),
            );
        } catch (failure) {
            throw failure instanceof Error ? failure : failed(failure, Object.keys(document)[0]);
        }
    }

    /* Returns the reply, or undefined. A small buffer is a part of a larger one of Node, which costs
     * less than one of its own. */
    #commandNow(database, request) {
        const length = this.#addon.commandNow(this.#handle, database, request, ROOM);
        if (length === 0) return undefined;
        const reply = Buffer.allocUnsafe(length);
        ROOM.copy(reply, 0, 0, length);
        return reply;
    }

    /* Waits for the running calls, and closes the store. */
    close() {
        this.#closing ??= this.#addon.close(this.#handle);
        return this.#closing;
    }
}

module.exports = { NativeStore, library };
