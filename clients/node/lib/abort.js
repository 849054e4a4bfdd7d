"use strict";
/*
 * Calls that end with an AbortSignal.
 *
 * A command that was sent cannot be undone. If it may have changed something, the error is
 * therefore OutcomeUnknown; otherwise the error is the reason of the signal. A command of a
 * transaction changes nothing until the commit. If the reply of a claim arrives after the signal,
 * its jobs return to the queue.
 */
const errors = require("./errors.js");
const { methodOf } = require("./failure.js");
const { printed, textOf } = require("./options.js");
const rows = require("./operations.js");

const UNKNOWN_ERROR = 8;
const READS = new Set([
    ...Object.values(rows)
        .filter((row) => !row.writes)
        .map((row) => row.command),
    ...["truceClaim", "find", "getMore", "count", "distinct", "listCollections", "listIndexes"],
]);

function writes(document, name) {
    if (name !== "aggregate") return !READS.has(name);
    const last = document.pipeline?.at(-1) ?? {};
    return "$out" in last || "$merge" in last;
}

function errorOf(document, signal, transacts) {
    const name = Object.keys(document)[0];
    if (transacts || !writes(document, name)) return signal.reason;
    const target = typeof document[name] === "string" ? ` of ${printed(document[name])}` : "";
    const reason = textOf(signal.reason);
    const message = `${methodOf(name)}${target}: ${reason}: it may take effect or not`;
    return new errors.OutcomeUnknown(message, { code: UNKNOWN_ERROR, cause: signal.reason });
}

/*
 * Returns the reply of `send(document)`, or throws as soon as the signal is aborted. A reply that
 * arrives after the signal is passed to `late`. `transacts` says whether the document is a command
 * of a transaction.
 */
async function abortable(signal, document, send, late, transacts) {
    signal.throwIfAborted();
    const sent = send(document);
    let stop;
    const aborted = new Promise((_, reject) => {
        stop = () => reject(errorOf(document, signal, transacts));
        signal.addEventListener("abort", stop, { once: true });
    });
    try {
        return await Promise.race([sent, aborted]);
    } catch (error) {
        if (signal.aborted) sent.then(late).catch(() => {}); // On failure, the leases expire.
        throw error;
    } finally {
        signal.removeEventListener("abort", stop);
    }
}

module.exports = { abortable };
