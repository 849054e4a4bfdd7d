"use strict";
/* The methods of the table of operations, for the database and for the lists of changes. */
const {
    checkCount,
    checkValues,
    checked,
    checkDefined,
    duration,
    milliseconds,
} = require("./options.js");
const rows = require("./operations.js");

/* The options that select documents. */
const SELECTS = new Set(["filter", "query", "key", "id", "get"]);

/* The options that are points in time. All other options in milliseconds are durations. */
const TIMES = new Set(Object.values(rows).flatMap((row) => row.times ?? []));

/* Returns the value that a command takes for an option, which messages call `shown`. */
function valueOf(name, value, shown) {
    if (TIMES.has(name)) return milliseconds(shown, value);
    return name.endsWith("MS") ? duration(shown, value) : value;
}

/* The options that are arrays of documents, each with the options of a job or a transaction. */
const LISTS = new Set(["flow.jobs", "ledgerPostMany.transactions"]);

/* Returns a list of options with the values that a command takes. Undefined options are absent. */
function listOf(name, list) {
    if (!Array.isArray(list)) return list;
    const isPlain = (one) => one && [Object.prototype, null].includes(Object.getPrototypeOf(one));
    return list.map((given, index) => {
        if (!isPlain(given)) return given;
        const options = Object.entries(given).filter(([, value]) => value !== undefined);
        return Object.fromEntries(
            options.map(([key, value]) => [key, valueOf(key, value, `${key} of ${name}[${index}]`)]),
        );
    });
}

/* Returns the command of a row. */
function commandOf(method, row, target, options) {
    const given = checked(options, row.options ?? [], method);
    const document = { [row.command]: target ?? 1 };
    for (const name of Object.keys(given)) {
        if (SELECTS.has(name)) checkDefined(given[name], `the option ${name} of ${method}`);
        const isList = LISTS.has(`${method}.${name}`);
        const value = isList ? listOf(name, given[name]) : valueOf(name, given[name], name);
        document[name] = checkValues(value, `the option ${name} of ${method}`);
    }
    return document;
}

/* The targets that are the _id of a document; the digits of one are a string. */
const IDS = new Set(["job", "commit"]);

function checkTarget(method, row, target) {
    if (row.optional && (target ?? 1) === 1) return;
    if (row.target === "changes" ? Array.isArray(target) : target?._bsontype === "Long") return;
    if (row.target === "cursor" && typeof target === "number") return;
    const isId = IDS.has(row.target);
    if (isId && target?._bsontype?.toLowerCase() === "objectid") return; // ObjectID in old versions
    if (row.target === "changes" || typeof target !== "string" || target === "")
        throw new TypeError(
            `${method} needs its ${row.target} as the first argument: ` +
                (row.target === "changes" ? "an array" : isId ? "an ObjectId" : "a string that is not empty"),
        );
}

/*
 * Gives a class one method for each row that `includes` selects. Each calls `_run(document, again)`
 * of the object.
 */
function addOperations(prototype, includes) {
    for (const [method, row] of Object.entries(rows)) {
        if (!includes(row)) continue;
        const function_ = function (...given) {
            const [target, options] = row.target ? given : [undefined, ...given];
            const most = (row.target ? 1 : 0) + (row.options ? 1 : 0);
            checkCount(method, given, most);
            if (row.target) checkTarget(method, row, target);
            const document = commandOf(method, row, target, options);
            const again =
                typeof row.again === "string"
                    ? document[row.again] !== undefined
                    : row.again === true;
            return this._run(document, again);
        };
        Object.defineProperty(function_, "name", { value: method });
        Object.defineProperty(prototype, method, {
            value: function_,
            writable: true,
            configurable: true,
        });
    }
}

module.exports = { addOperations };
