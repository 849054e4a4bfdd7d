"use strict";
/* The check of options: an unknown option is an error, not ignored. */

/* Returns the known name that is most similar, or undefined. */
function similar(name, known) {
    const plain = (text) => text.toLowerCase().replaceAll("_", "");
    const letters = (text) => [...plain(text)].sort().join("");
    return (
        known.find((one) => plain(one) === plain(name)) ??
        known.find((one) => letters(one) === letters(name)) ??
        known.find(
            (one) => plain(one).startsWith(plain(name)) || plain(name).startsWith(plain(one)),
        )
    );
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

function printed(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/* Converts points in time to milliseconds, which commands take. */
function milliseconds(value) {
    if (!(value instanceof Date)) return value;
    const time = value.getTime();
    if (Number.isNaN(time))
        throw new TypeError("invalid date: expected a valid Date or milliseconds");
    return time;
}

module.exports = { checked, checkFunction, checkText, milliseconds };
