"use strict";
/* The statuses of truce as errors: one class for each cause, whichever command failed. */

/* The addon or libtruce is missing, too old, or cannot be loaded. */
class LibraryError extends Error {
    get name() {
        return this.constructor.name;
    }
}

/* A job sleeps or waits for an event. A worker claims it again later. */
class Suspended extends Error {
    get name() {
        return this.constructor.name;
    }
}

/* A command failed. */
class TruceError extends Error {
    constructor(message, { status, code, reply, labels = [], cause } = {}) {
        super(message, cause && { cause });
        this.status = status ?? this.constructor.status;
        this.code = code;
        this.codeName = reply?.codeName;
        // Not enumerable: an error that is printed shows its message.
        Object.defineProperty(this, "reply", { value: reply, enumerable: false });
        this.labels = labels;
    }

    get name() {
        return this.constructor.name;
    }

    hasErrorLabel(label) {
        return this.labels.includes(label);
    }
}

class Conflict extends TruceError {
    static status = "conflict";

    get conflicts() {
        return this.reply?.conflicts ?? this.reply?.conflict?.conflicts ?? [];
    }
}

class Duplicate extends TruceError {
    static status = "duplicate";

    get keyPattern() {
        return this.reply?.keyPattern;
    }

    get keyValue() {
        return this.reply?.keyValue;
    }
}

const made = (status) =>
    class extends TruceError {
        static status = status;
    };

const Locked = class Locked extends made("locked") {};
const OutcomeUnknown = class OutcomeUnknown extends made("outcome unknown") {};
const Expired = class Expired extends made("expired") {};
const NotFound = class NotFound extends made("not found") {};
const Refused = class Refused extends made("refused") {};
const Invalid = class Invalid extends made("invalid") {};
const Limit = class Limit extends made("limit reached") {};
const Timeout = class Timeout extends made("timed out") {};
const StoreFailed = class StoreFailed extends made("input or output failed") {};
const Corrupt = class Corrupt extends made("corrupt") {};
const Unauthorized = class Unauthorized extends made("not authorized") {};
const WrongServer = class WrongServer extends made("wrong server") {};
const Unreachable = class Unreachable extends made("unreachable") {};

const STATUSES = [
    Conflict,
    Duplicate,
    Locked,
    OutcomeUnknown,
    Expired,
    NotFound,
    Refused,
    Invalid,
    Limit,
    Timeout,
    StoreFailed,
    Corrupt,
    Unauthorized,
    WrongServer,
    Unreachable,
];
const BY_STATUS = new Map(STATUSES.map((one) => [one.status, one]));
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

const classes = {
    LibraryError,
    Suspended,
    TruceError,
    Conflict,
    Duplicate,
    Locked,
    OutcomeUnknown,
    Expired,
    NotFound,
    Refused,
    Invalid,
    Limit,
    Timeout,
    StoreFailed,
    Corrupt,
    Unauthorized,
    WrongServer,
    Unreachable,
};

module.exports = { ...classes, classes, ofReply, ofDriver };
