"use strict";
/* The errors of replies, and of MongoDB's driver. */
const errors = require("./errors.js");
const { similar } = require("./options.js");
const rows = require("./operations.js");

const {
    Conflict,
    Duplicate,
    Expired,
    Invalid,
    Limit,
    Locked,
    NotFound,
    OutcomeUnknown,
    StoreFailed,
    Timeout,
    TruceError,
    Unauthorized,
    Unreachable,
    WrongServer,
} = errors;

const COMMANDS = Object.values(rows).map((row) => row.command);

const BY_STATUS = new Map(
    Object.values(errors)
        .filter((one) => one.status !== undefined)
        .map((one) => [one.status, one]),
);
// The classes of codes, for replies without a status: the table of docs/errors.md.
const BY_CODE = new Map([
    [undefined, TruceError],
    [1, TruceError],
    [6, OutcomeUnknown],
    [7, OutcomeUnknown],
    [8, OutcomeUnknown],
    [11, NotFound],
    [13, Unauthorized],
    [15, Limit],
    [18, Unauthorized],
    [24, Locked],
    [26, NotFound],
    [27, NotFound],
    [43, NotFound],
    [48, Duplicate],
    [50, Timeout],
    [64, OutcomeUnknown],
    [89, OutcomeUnknown],
    [91, OutcomeUnknown],
    [112, Conflict],
    [125, TruceError],
    [134, StoreFailed],
    [146, Limit],
    [189, OutcomeUnknown],
    [237, Expired],
    [239, Expired],
    [246, Expired],
    [251, Conflict],
    [262, Timeout],
    [267, Conflict],
    [292, Limit],
    [9001, OutcomeUnknown],
    [10107, StoreFailed],
    [10334, Limit],
    [11000, Duplicate],
    [11600, OutcomeUnknown],
    [11601, Timeout],
    [11602, OutcomeUnknown],
    [13435, StoreFailed],
    [13436, StoreFailed],
    [14031, StoreFailed],
    [51003, Duplicate],
]);
const COMMAND_NOT_FOUND = 59;

/* Returns the error of a reply with `errmsg` and `code`. */
function ofReply(reply, command, { status = reply.status, cause } = {}) {
    const { code } = reply;
    let message = reply.errmsg ?? "the command failed";
    let kind = code === 13 || code === 18 ? Unauthorized : BY_STATUS.get(status);
    if (code === COMMAND_NOT_FOUND && command.startsWith("truce")) {
        if (kind === undefined) {
            kind = WrongServer;
            message += `: this is not truce, or a version without ${command}`;
        } else if (command !== "truceHelp") {
            // The help says so of the operation in its argument.
            const meant = similar(command, COMMANDS);
            message = `unknown command "${command}"`;
            if (meant) message += `: did you mean "${meant}"?`;
        }
    }
    kind ??= BY_CODE.get(code) ?? Invalid;
    if (kind !== TruceError) status = kind.status;
    return new kind(message, { status, code, reply, labels: reply.errorLabels ?? [], cause });
}

const METHODS = new Map(Object.entries(rows).map(([method, row]) => [row.command, method]));

/* Returns the name of the method for a command, or the command if it has no method. */
const methodOf = (command) => METHODS.get(command) ?? command;

/* Replaces the names of operations in the message of an error by those of methods. */
function useMethodNames(error) {
    if (error instanceof Invalid)
        error.message = error.message.replace(/\btruce[A-Z]\w*/g, methodOf);
    return error;
}

const CLOSED = /^Mongo(ClientClosed|NotConnected|TopologyClosed)/;
const DISCONNECTED = /^Mongo(Network|ServerSelection|Topology|PoolCleared|ServerClosed)/;

/* Returns the question that a user should ask after this failure to connect. */
function question(cause) {
    if (/certificate/i.test(cause))
        return "does this client know the CA of the certificate (tlsCAFile)?";
    if (/\b(TLS|SSL)\b/i.test(cause))
        return "does this server use TLS (truce serve --tls-certificate)?";
    if (/ECONNRESET|connection \d+ to \S+ closed/.test(cause))
        return "is truce serve running there, and does it require TLS (tls: true)?";
    return "is truce serve running there?";
}

/* Returns the package's error for an error of the driver. Returns any other error unchanged. */
function ofDriver(error, command) {
    if (error instanceof TruceError || !error?.name?.startsWith("Mongo")) return error;
    if (/ wire version /.test(error.message))
        return new WrongServer(`the server is not truce: ${error.message}`, { cause: error });
    if (CLOSED.test(error.name))
        return new Invalid(`${command}: the database is closed`, { code: 2, cause: error });
    if (DISCONNECTED.test(error.name)) {
        const isAway = error.name === "MongoServerSelectionError";
        const message = isAway
            ? `no server is available (${error.message}): ${question(error.message)}`
            : error.message;
        return new Unreachable(message, { labels: [...(error.errorLabels ?? [])], cause: error });
    }
    if (typeof error.code !== "number") return error;
    const reply = {
        ...(error.errorResponse ?? {}),
        errmsg: error.message,
        code: error.code,
        errorLabels: [...(error.errorLabels ?? [])],
    };
    return ofReply(reply, command, { cause: error });
}

module.exports = { methodOf, ofReply, ofDriver, useMethodNames };
