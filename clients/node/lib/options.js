"use strict";
/* The check of options: an unknown option is an error, not ignored. */
const { inspect, types } = require("node:util");

/* Returns the number of letters to insert, remove, or replace to make one text of the other. */
function distance(left, right) {
    let row = [...right].map((_, i) => i + 1);
    for (let i = 0; i < left.length; i++) {
        const next = [];
        for (let k = 0, least = i + 1, diagonal = i; k < right.length; k++) {
            least = Math.min(row[k] + 1, least + 1, diagonal + (left[i] !== right[k]));
            diagonal = row[k];
            next.push(least);
        }
        row = next;
    }
    return row.at(-1) ?? left.length;
}

/* Returns the known name that is most similar, or undefined. */
function similar(name, known) {
    const plain = (text) => text.toLowerCase().replaceAll("_", "");
    const wanted = plain(name);
    const far = (one) => {
        const begins = one.startsWith(wanted) || wanted.startsWith(one);
        return begins ? 1 : distance(wanted, one);
    };
    let best,
        least = Math.min(4, Math.floor(wanted.length / 2) + 1);
    for (const one of known) {
        const found = plain(one) === wanted ? 0 : far(plain(one));
        if (found < least) [best, least] = [one, found];
    }
    return best;
}

/*
 * Returns the options without those that are undefined. Throws a TypeError if they are not an
 * object, or have a name that is not in `known`.
 */
function checked(options, known, method) {
    if (options === undefined) return {};
    if (
        options === null ||
        typeof options !== "object" ||
        Array.isArray(options) ||
        options._bsontype
    )
        throw new TypeError(
            `the options of ${method} must be an object, such as {${known[0] ?? ""}: ...}`,
        );
    const given = {};
    for (const name of Object.keys(options)) {
        if (!known.includes(name)) {
            const meant = similar(name, known);
            const hint = meant
                ? `did you mean "${meant}"?`
                : known.length > 0
                  ? `its options are ${known.join(", ")}`
                  : "it has no options";
            throw new TypeError(`unknown option "${name}" of ${method}: ${hint}`);
        }
        if (options[name] !== undefined) given[name] = options[name];
    }
    return given;
}

/* Throws a TypeError if a call has more arguments than its method. */
function checkCount(method, given, most) {
    if (given.length > most)
        throw new TypeError(`${method} has at most ${most} arguments, not ${given.length}`);
}

function checkText(value, what) {
    if (typeof value !== "string" || value === "")
        throw new TypeError(`${what} must be a string that is not empty, not ${printed(value)}`);
    return value;
}

function checkFunction(value, what) {
    if (typeof value !== "function")
        throw new TypeError(`${what} must be a function, not ${printed(value)}`);
    return value;
}

function checkDocument(value, what, example) {
    if (
        value === null ||
        typeof value !== "object" ||
        Array.isArray(value) ||
        value._bsontype ||
        types.isDate(value)
    )
        throw new TypeError(`${what} must be a document, such as ${example}`);
    return value;
}

const DEPTH_MAX = 200; // deeper documents are refused by the store, and a cycle by the BSON library

/*
 * Returns the path of the first value for which `isWrong` returns true, "" for the value itself, or
 * undefined.
 */
function pathOf(value, isWrong, parents = []) {
    if (isWrong(value)) return "";
    if (value === null || typeof value !== "object" || parents.length > DEPTH_MAX) return undefined;
    if (value._bsontype || typeof value.toBSON === "function") return undefined;
    if (ArrayBuffer.isView(value) || types.isDate(value)) return undefined;
    if (parents.includes(value)) return undefined;
    parents.push(value);
    for (const [name, one] of value instanceof Map ? value : Object.entries(value)) {
        const inner = pathOf(one, isWrong, parents);
        if (inner !== undefined) return inner === "" ? `${name}` : `${name}.${inner}`;
    }
    parents.pop();
    return undefined;
}

const isUndefined = (value) => value === undefined;

const isInvalidDate = (value) => types.isDate(value) && Number.isNaN(value.getTime());

/* Values that the BSON library writes as another value, without an error: as 1970, or as {}. */
const LOST = [
    [isInvalidDate, "an invalid Date: give it a valid one, or null"],
    [types.isPromise, "a Promise: await it"],
    [types.isSet, "a Set: give an array"],
    [types.isNativeError, "an Error: give its message"],
    [types.isAnyArrayBuffer, "an ArrayBuffer: give a Buffer"],
];

function lossOf(value) {
    if (value === null || typeof value !== "object" || typeof value.toBSON === "function")
        return undefined;
    return LOST.find(([isLost]) => isLost(value))?.[1];
}

/* Returns a value. Throws a TypeError if it has one that would be stored as another one. */
function checkValues(value, what) {
    let why;
    const path = pathOf(value, (one) => (why = lossOf(one)) !== undefined);
    if (path !== undefined)
        throw new TypeError(`${path === "" ? what : `"${path}" of ${what}`} is ${why}`);
    return value;
}

/*
 * Returns the value, which selects documents. Throws a TypeError if any part of it is undefined:
 * the BSON library would write null, which matches other documents.
 */
function checkDefined(value, what) {
    const path = value === undefined ? undefined : pathOf(value, isUndefined);
    if (path !== undefined)
        throw new TypeError(
            `"${path}" of ${what} is undefined: give it a value, or null for documents without it`,
        );
    return checkValues(value, what);
}

function printed(value) {
    if (typeof value === "string") return JSON.stringify(value);
    return typeof value === "object" && value !== null ? inspect(value) : String(value);
}

const TEXT_MAX = 65536; // the store keeps less

/* Returns the text of what was thrown, which can be anything. */
function textOf(error) {
    try {
        const text = error instanceof Error ? error.message || error.name : error;
        const shown = typeof text === "object" ? inspect(text) : String(text);
        return shown.slice(0, TEXT_MAX).replaceAll("\0", "\\0"); // the store refuses zero bytes
    } catch {
        return "a value that cannot be printed";
    }
}

const isNumber = (value) =>
    typeof value === "number" || typeof value === "bigint" || value?._bsontype !== undefined;

/* Converts a point in time to milliseconds, which commands take. */
function milliseconds(name, value) {
    if (types.isDate(value)) {
        const time = value.getTime();
        if (Number.isNaN(time))
            throw new TypeError(`${name} is an invalid Date: give it a valid one, or milliseconds`);
        return time;
    }
    if (isNumber(value)) return value;
    const hint = typeof value === "string" ? `: use new Date(${printed(value)})` : "";
    throw new TypeError(
        `${name} must be a Date or milliseconds since 1970, not ${printed(value)}${hint}`,
    );
}

/* Refuses a point in time, or a string, where a command takes a duration. */
function duration(name, value) {
    if (types.isDate(value))
        throw new TypeError(`${name} must be a duration in milliseconds, not a Date`);
    if (!isNumber(value))
        throw new TypeError(`${name} must be a duration in milliseconds, not ${printed(value)}`);
    return value;
}

module.exports = {
    checkCount,
    checkValues,
    checked,
    checkDefined,
    checkDocument,
    checkFunction,
    checkText,
    DEPTH_MAX,
    duration,
    milliseconds,
    printed,
    similar,
    textOf,
};
