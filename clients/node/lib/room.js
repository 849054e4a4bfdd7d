"use strict";
/* Room for large requests: the BSON library writes every document into one buffer of 17 MB. */
const { calculateObjectSize, setInternalBufferSize } = require("./bson.js");
const errors = require("./errors.js");

const REQUEST_MAX = 48000000; // as over the wire
const SESSION_BYTES = 65536; // the driver adds fields of its own

function grow(document) {
    const size = calculateObjectSize(document);
    if (size > REQUEST_MAX)
        throw new errors.Limit(
            `the request has ${size} bytes: at most ${REQUEST_MAX} are possible`,
            { code: 10334 },
        );
    setInternalBufferSize(size + SESSION_BYTES);
}

/* Runs a function that writes the document. If the buffer is too small, enlarges it. */
function withRoom(document, function_) {
    const again = (error) => {
        if (error?.code !== "ERR_OUT_OF_RANGE") throw error;
        grow(document);
        return function_();
    };
    try {
        const result = function_();
        return typeof result?.catch === "function" ? result.catch(again) : result;
    } catch (error) {
        return again(error);
    }
}

module.exports = { withRoom };
