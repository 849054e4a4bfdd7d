"use strict";
/*
 * The two ways of a command: to libtruce in this process, or to a server through the driver. Both
 * have the same methods, and the client core uses nothing else:
 *
 *     command(database, document, session)   runs a command
 *     begin({transaction})                   returns a session: one of cursors, or a transaction
 *     commit(session), end(session)
 *     close()
 *     running                                promises of the ends of methods that make several calls
 *
 * In process, findNow(database, collection, filter, command) returns the document of a find by _id
 * at once.
 */
const bson = require("./bson.js");
const errors = require("./errors.js");
const { ofDriver } = require("./failure.js");
const { withRoom } = require("./room.js");

/* Runs functions one after the other, even if the caller does not await them. */
class Chain {
    last = Promise.resolve();

    next(function_) {
        const made = this.last.then(function_);
        this.last = made.catch(() => {});
        return made;
    }
}

/* A transaction in process. Its commands have `fields`, and run one after the other. */
class Transaction {
    open = true;
    used = false;
    calls = new Chain();
    fields = {
        lsid: { id: new bson.UUID() },
        txnNumber: bson.Long.fromNumber(1),
        autocommit: false,
    };

    /* Runs a function after the commands before it. */
    next(function_) {
        return this.calls.next(() => {
            const fields = this.used ? this.fields : { ...this.fields, startTransaction: true };
            this.used = true;
            return function_(fields);
        });
    }
}

class NativeTransport {
    #store;
    running = new Set();

    constructor(store) {
        this.#store = store;
    }

    command(database, document, session) {
        if (!session) return this.#store.command(database, document);
        return session.next((fields) => this.#store.command(database, { ...document, ...fields }));
    }

    findNow(database, collection, filter, command) {
        return this.#store.findNow(database, collection, filter, command);
    }

    async begin({ transaction }) {
        return transaction ? new Transaction() : undefined;
    }

    async #finish(session, command) {
        session.open = false;
        await session.calls.last;
        if (session.used) await this.#store.command("admin", { [command]: 1, ...session.fields });
    }

    commit(session) {
        return this.#finish(session, "commitTransaction");
    }

    async end(session) {
        if (!session?.open) return;
        try {
            await this.#finish(session, "abortTransaction");
        } catch (error) {
            // The error has ended the transaction.
            if (!(error instanceof errors.TruceError)) throw error;
        }
    }

    close() {
        return this.#store.close();
    }
}

class ServerTransport {
    #client;
    running = new Set();
    #owned;
    /* For each session with a transaction, the chain of its commands. If two commands ran at the
     * same time, the driver would begin the transaction twice. */
    #calls = new WeakMap();

    constructor(client, owned) {
        this.#client = client;
        this.#owned = owned;
    }

    async #run(command, function_) {
        try {
            return await function_();
        } catch (error) {
            throw ofDriver(error, command);
        }
    }

    command(database, document, session) {
        const send = () =>
            withRoom(document, () =>
                this.#client.db(database).command({ ...document }, { session }),
            );
        return this.#run(Object.keys(document)[0], () =>
            session?.inTransaction() ? this.#calls.get(session).next(send) : send(),
        );
    }

    begin({ transaction }) {
        return this.#run("startSession", () => {
            const session = this.#client.startSession();
            if (transaction) {
                session.startTransaction();
                this.#calls.set(session, new Chain());
            }
            return session;
        });
    }

    commit(session) {
        return this.#run("commitTransaction", async () => {
            await this.#calls.get(session).last;
            return session.commitTransaction();
        });
    }

    async end(session) {
        await session?.endSession();
    }

    async close() {
        if (this.#owned) await this.#client.close();
    }
}

module.exports = { NativeTransport, ServerTransport };
