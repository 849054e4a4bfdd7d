"use strict";
/*
 * Room for large requests. The BSON library writes every document into one buffer of 17 MB. It
 * loses what does not fit, and reports this in some cases only: it cuts off a string at the end.
 * The buffer therefore has the size of the largest request. Its unused memory costs nothing.
 */
const { calculateObjectSize, setInternalBufferSize } = require("./bson.js");
const errors = require("./errors.js");
const { DEPTH_MAX } = require("./options.js");

const REQUEST_MAX = 48000000; // as over the wire
const SESSION_BYTES = 65536; // the driver adds fields of its own

setInternalBufferSize(REQUEST_MAX + SESSION_BYTES);

function tooLarge(size) {
    return new errors.Limit(
        `the request has ${size} bytes, more than the maximum of ${REQUEST_MAX}`,
        { code: 10334 },
    );
}

const INT64_MAX = 2n ** 63n - 1n;
const INT64_MIN = -(2n ** 63n);

/* Refuses a BigInt that is not a 64-bit integer: the BSON library would store other bits. */
function checkIntegers(value, path = "", depth = 0) {
    if (typeof value === "bigint") {
        if (value > INT64_MAX || value < INT64_MIN)
            throw new TypeError(
                `the BigInt ${value} of "${path}" has more than 64 bits: store it as a string or ` +
                    "a Decimal128",
            );
        return;
    }
    if (value === null || typeof value !== "object" || depth > DEPTH_MAX) return;
    if (value._bsontype || ArrayBuffer.isView(value) || value instanceof Date) return;
    if (value instanceof Map) {
        for (const [name, one] of value) checkIntegers(one, name, depth + 1);
        return;
    }
    for (const name in value) {
        const one = value[name];
        if (typeof one === "bigint" || (typeof one === "object" && one !== null))
            checkIntegers(one, name, depth + 1);
    }
}

/* Runs a function that writes the document. */
function withRoom(document, function_) {
    const explain = (error) => {
        if (!(error instanceof RangeError)) throw error;
        const size = calculateObjectSize(document);
        throw size > REQUEST_MAX ? tooLarge(size) : error;
    };
    checkIntegers(document);
    try {
        const result = function_();
        return typeof result?.catch === "function" ? result.catch(explain) : result;
    } catch (error) {
        return explain(error);
    }
}

/* Returns the bytes of a command. */
function bytesOf(document, serialize) {
    const bytes = withRoom(document, () => serialize(document));
    // A string at the end of a larger request was cut off.
    if (bytes.length > REQUEST_MAX) throw tooLarge(calculateObjectSize(document));
    return bytes;
}

module.exports = { bytesOf, checkIntegers, withRoom };
