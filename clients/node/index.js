"use strict";
/*
 * truce: documents that stay consistent, in process or through a server.
 *
 *     const db = await truce.open("school.truce");           // a file, in this process
 *     const db = await truce.connect("mongodb://127.0.0.1:27017/school");   // through truce serve
 */
const path = require("node:path");
const { fileURLToPath } = require("node:url");
const bson = require("./lib/bson.js");
const { Changes } = require("./lib/changes.js");
const { Collection } = require("./lib/collection.js");
const { ChangeStream, Cursor, FindCursor } = require("./lib/cursor.js");
const { Database, Edit } = require("./lib/database.js");
const errors = require("./lib/errors.js");
const { ofDriver } = require("./lib/failure.js");
const { Job } = require("./lib/job.js");
const { NativeStore, library } = require("./lib/native.js");
const { checked } = require("./lib/options.js");
const { NativeTransport, ServerTransport } = require("./lib/transport.js");
const { Worker } = require("./lib/worker.js");
const { version } = require("./package.json");

const FLAGS = ["readOnly", "mustExist", "relaxed"];
const NUMBERS = ["deadlineMS", "snapshotAgeMS", "cacheMB"];
/* How long a call waits for a server to connect to, if neither the URI nor an option says so. */
const SELECTION_MS = 10000;

function checkOpen(options) {
    const { database, ...given } = checked(options, ["database", ...FLAGS, ...NUMBERS], "open");
    if (database !== undefined && (typeof database !== "string" || database.includes("\0")))
        throw new TypeError(
            "the option database of open must be a string without null characters",
        );
    for (const name of Object.keys(given)) {
        const value = given[name];
        if (FLAGS.includes(name) && typeof value !== "boolean")
            throw new TypeError(`the option ${name} of open must be true or false, not ${value}`);
        if (NUMBERS.includes(name) && !(Number.isInteger(value) && value >= 0 && value < 2 ** 32))
            throw new TypeError(
                `the option ${name} of open must be an integer from 0, not ${value}`,
            );
    }
    return { database, given };
}

function checkPath(name) {
    if (typeof name !== "string" || name === "" || name.includes("\0"))
        throw new TypeError('open needs the path of a file, or "memory:"');
    if (/^mongodb(\+srv)?:/.test(name))
        throw new TypeError("open opens a file, and mongodb:// names a server: use truce.connect");
    if (name === "memory" || name === ":memory:")
        throw new TypeError(
            `invalid path "${name}": use "memory:" for a store in memory, or "./${name}" for a file of this name`,
        );
}

async function open(file, options) {
    const { database, given } = checkOpen(options);
    const name = file instanceof URL ? fileURLToPath(file) : file;
    checkPath(name);
    const uri =
        name === "memory:" || /^(file|memory):/.test(name) ? name : `file:${path.resolve(name)}`;
    return new Database(new NativeTransport(await NativeStore.open(uri, given)), database);
}

function loadDriver() {
    try {
        return require("mongodb");
    } catch (error) {
        if (error.code !== "MODULE_NOT_FOUND") throw error;
        throw new errors.LibraryError('truce.connect needs the driver: run "npm install mongodb"');
    }
}

/* Returns the database that a URI names. A default would hide a forgotten name: it is an empty
 * database. */
function nameIn(uri) {
    const found = /^mongodb(?:\+srv)?:\/\/[^/?]*\/([^?]+)/.exec(uri);
    if (!found)
        throw new TypeError(
            "the URI names no database: expected mongodb://HOST/DATABASE (test, if truce serve has " +
                "no --database)",
        );
    return decodeURIComponent(found[1]);
}

/* Returns a client of the driver. Its errors of options are no errors of the server. */
function makeClient(uri, options) {
    const { MongoClient } = loadDriver();
    try {
        return new MongoClient(uri, options);
    } catch (error) {
        throw new TypeError(`connect: ${error.message}`, { cause: error });
    }
}

async function connect(server, options) {
    const { database, ...given } = options ?? {};
    const isUri = typeof server === "string" && /^mongodb(\+srv)?:\/\//.test(server);
    if (typeof server === "string" && !isUri)
        throw new TypeError(
            `invalid URI "${server}": expected mongodb://HOST/DATABASE; truce.open opens a file`,
        );
    if (!isUri && typeof server?.db !== "function")
        throw new TypeError(
            "connect needs a URI, such as mongodb://127.0.0.1:27017/school, or a MongoClient",
        );
    if (!isUri) checked(options, ["database"], "connect with a MongoClient");
    const name = database ?? (isUri ? nameIn(server) : server.db().databaseName);
    if (isUri && !/[?&]serverSelectionTimeoutMS=/i.test(server))
        given.serverSelectionTimeoutMS ??= SELECTION_MS;
    const client = isUri ? makeClient(server, given) : server;
    const made = new Database(new ServerTransport(client, isUri), name);
    try {
        await client.connect();
        await made.help("truceHelp");
    } catch (error) {
        await made.close();
        const found = ofDriver(error, "connect");
        if (!(found instanceof errors.WrongServer)) throw found;
        throw new errors.WrongServer(
            "the server is not truce: start one by `truce serve`, or use its driver " +
                `(${found.message})`,
            { code: found.code, reply: found.reply, cause: found.cause },
        );
    }
    return made;
}

/* Returns the version of libtruce. */
function libraryVersion() {
    return library().version;
}

const { Binary, Decimal128, Double, Int32, Long, ObjectId, Timestamp, UUID } = bson;

module.exports = {
    open,
    connect,
    libraryVersion,
    version,
    Changes,
    ChangeStream,
    Collection,
    Cursor,
    Database,
    Edit,
    FindCursor,
    Job,
    Worker,
    ...errors,
    Binary,
    Decimal128,
    Double,
    Int32,
    Long,
    ObjectId,
    Timestamp,
    UUID,
};
