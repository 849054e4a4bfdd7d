"use strict";
/* The statuses of truce as errors: one class for each cause, whichever command failed. index.mjs
 * exports all of them. */

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

class Locked extends made("locked") {}
class OutcomeUnknown extends made("outcome unknown") {}
class Expired extends made("expired") {}
class NotFound extends made("not found") {}
class Refused extends made("refused") {}
class Invalid extends made("invalid") {}
class Limit extends made("limit reached") {}
class Timeout extends made("timed out") {}
class StoreFailed extends made("input or output failed") {}
class Corrupt extends made("corrupt") {}
class Unauthorized extends made("not authorized") {}
class WrongServer extends made("wrong server") {}
class Unreachable extends made("unreachable") {}

module.exports = {
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
