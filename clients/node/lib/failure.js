"use strict";
/* The errors of replies, and of MongoDB's driver. */
const errors = require("./errors.js");

const { Conflict, Duplicate, Timeout, TruceError, Unauthorized, Unreachable, WrongServer } = errors;

const BY_STATUS = new Map(
    Object.values(errors)
        .filter((one) => one.status !== undefined)
        .map((one) => [one.status, one]),
);
const BY_CODE = new Map([
    [13, Unauthorized],
    [18, Unauthorized],
    [50, Timeout],
    [112, Conflict],
    [11000, Duplicate],
]);
const COMMAND_NOT_FOUND = 59;

/* Returns the error of a reply with `errmsg` and `code`. */
function ofReply(reply, command, { status = reply.status, cause } = {}) {
    const { code } = reply;
    let message = reply.errmsg ?? "the command failed";
    let kind = code === 13 || code === 18 ? Unauthorized : BY_STATUS.get(status);
    if (code === COMMAND_NOT_FOUND && command.startsWith("truce")) {
        kind = WrongServer;
        message += `: this is not truce, or a version without ${command}`;
    }
    kind ??= BY_CODE.get(code) ?? TruceError;
    if (kind !== TruceError) status = kind.status;
    return new kind(message, { status, code, reply, labels: reply.errorLabels ?? [], cause });
}

const DISCONNECTED =
    /^Mongo(Network|ServerSelection|Topology|PoolCleared|NotConnected|ServerClosed)/;

/* Returns the error for one of the driver. Errors of other kinds are returned as they are. */
function ofDriver(error, command) {
    if (error instanceof TruceError || !error?.name?.startsWith("Mongo")) return error;
    if (DISCONNECTED.test(error.name))
        return new Unreachable(error.message, {
            labels: [...(error.errorLabels ?? [])],
            cause: error,
        });
    if (typeof error.code !== "number") return error;
    const reply = {
        ...(error.errorResponse ?? {}),
        errmsg: error.message,
        code: error.code,
        errorLabels: [...(error.errorLabels ?? [])],
    };
    return ofReply(reply, command, { cause: error });
}

module.exports = { ofReply, ofDriver };
