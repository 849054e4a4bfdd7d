// truce's patterns, through `truce serve`, on top of the driver of MongoDB. Each call is one
// command of the server's table (docs/commands.md), whose fields are the options. The server checks
// them, and help("truceClaim") describes them.
import { setTimeout as sleep } from "node:timers/promises";
import { MongoClient } from "mongodb";

import { Items, Ledger, Revisions, OrderedSet, Sync, Transfers } from "./documents.js";
import { errorOf, isLost } from "./errors.js";
import { refuseUnknown } from "./options.js";
import { Queue } from "./queue.js";
import { Tree } from "./tree.js";

export * from "./errors.js";
export { Job, Queue } from "./queue.js";
export { Edit, Snapshot, Tree } from "./tree.js";
export { Items, Ledger, OrderedSet, Revision, Revisions, Sync, Transfers } from "./documents.js";

const TRIES = 4; // the most sends of a repeatable command

// A Truce with a client of its own: close() ends it, as `await using` does.
export async function connect(uri, database = "test", options = {}) {
  const client = await new MongoClient(uri, options).connect();
  return new Truce(client.db(database), { client });
}

export class Truce {
  #client;
  #again = new Map();

  constructor(database, { session, client } = {}) {
    this.database = database;
    this.session = session;
    this.#client = client;
  }

  async close() {
    await this.#client?.close();
  }
  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }

  // Returns the server's help for a command, or the names of all.
  async help(command) {
    try {
      if (command) return await this.database.command({ truceHelp: command });
      return (await this.database.command({ truceHelp: 1 })).commands.map((one) => one.name);
    } catch (error) {
      throw errorOf(error);
    }
  }

  async #mayBeSentAgain(command) {
    if (!this.#again.has(command)) this.#again.set(command, (await this.help(command)).again);
    return this.#again.get(command);
  }

  // Sends one command of the table. A repeatable command is sent again if its answer is lost or the
  // server asks for it. `once`: it is repeatable, whatever the table says, since it carries an id
  // or a key.
  async command(command, value, fields = {}, { once = false, ...rest } = {}) {
    refuseUnknown(rest, "command");
    const given = Object.entries(fields).filter(([, field]) => field !== undefined && field !== null);
    const document = { [command]: value, ...Object.fromEntries(given.map(([name, field]) => [name, sent(name, field)])) };
    for (let left = TRIES - 1; ; left--) {
      try {
        return await this.database.command(document, this.session ? { session: this.session } : {});
      } catch (error) {
        const lost = isLost(error);
        const again = lost || error?.errorResponse?.errorLabels?.includes("RetryableWriteError") ||
          error?.hasErrorLabel?.("RetryableWriteError");
        if (!again || !left || this.session || !(once || (await this.#mayBeSentAgain(command).catch(() => false))))
          throw errorOf(error, this.session !== undefined);
        await sleep(lost ? 50 : 100 * (TRIES - left));
      }
    }
  }

  // Returns the same with all commands within the transaction of that session.
  bound(session) {
    return new Truce(this.database, { session });
  }

  // Runs work(inner) in a transaction, and again, if others were faster; returns its result.
  // Commands that work sends by the driver itself need `{session: inner.session}`.
  async transact(work) {
    const session = this.database.client.startSession();
    try {
      let result;
      await session.withTransaction(async () => {
        result = await work(this.bound(session));
      });
      return result;
    } finally {
      await session.endSession();
    }
  }

  // Changes as the table has them, or a function that gets a Changes: {earlier, result}. With a
  // `key`, and its `keyTime` (the same each time that it is sent), it happens once for ever.
  async commit(changes, options = {}) {
    const list = changesOf(typeof changes === "function" ? await filled(changes) : changes);
    return this.command("truceCommit", list, options, { once: options.key !== undefined });
  }
  async commitResult(key) {
    return (await this.command("truceCommitResult", key)).result;
  }
  async commitShow(key) {
    return (await this.command("truceCommitShow", key)).commit;
  }
  async request(key, name, input) {
    await this.command("truceRequest", key, { name, input });
  }
  async requestState(key) {
    return (await this.command("truceRequestState", key)).request;
  }

  sequence(name) {
    return new Sequence(this, name);
  }
  set(collection, named) {
    return new OrderedSet(this, collection, named);
  }
  revisions(collection, options) {
    return new Revisions(this, collection, options);
  }
  items(collection, named) {
    return new Items(this, collection, named);
  }
  queue(name) {
    return new Queue(this, name);
  }
  async queues() {
    return (await this.command("truceQueues", 1)).queues;
  }
  ledger(collection) {
    return new Ledger(this, collection);
  }
  transfers(collection, layout) {
    return new Transfers(this, collection, layout);
  }
  tree(name, made) {
    return new Tree(this, name, made);
  }
  get sync() {
    return new Sync(this);
  }
}

// Times are milliseconds there.
function sent(name, value) {
  return value instanceof Date && (name.endsWith("MS") || name === "keyTime") ? value.getTime() : value;
}

async function filled(fill) {
  const changes = new Changes();
  await fill(changes);
  return changes;
}

export function changesOf(changes) {
  return changes instanceof Changes ? changes.list : changes;
}

// Collects the changes of a commit: `where` is a filter that the document must match.
export class Changes {
  list = [];
  #add(change, where) {
    this.list.push(where === undefined ? change : { ...change, if: where });
    return this;
  }
  insert(collection, document) {
    return this.#add({ insert: collection, with: document });
  }
  update(collection, id, operators, where) {
    return this.#add({ update: collection, id, with: operators }, where);
  }
  replace(collection, id, document, where) {
    return this.#add({ replace: collection, id, with: document }, where);
  }
  remove(collection, id, where) {
    return this.#add({ remove: collection, id }, where);
  }
  require(collection, id, where) {
    return this.#add({ require: collection, id }, where);
  }
  hold(collection, id, where) {
    return this.#add({ hold: collection, id }, where);
  }
  missing(collection, id) {
    return this.#add({ missing: collection, id });
  }
  change(collection, id, oldAndNew) {
    return this.#add({ change: collection, id, with: oldAndNew });
  }
}

// Numbers that only rise, each assigned once.
export class Sequence {
  #truce;
  constructor(truce, name) {
    this.#truce = truce;
    this.name = name;
  }
  async take(count = 1) {
    const { first, last } = await this.#truce.command("truceSequence", this.name, { take: count });
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  }
  async next() {
    return (await this.take(1))[0];
  }
  async last() {
    return (await this.#truce.command("truceSequence", this.name)).last;
  }
  async raise(number) {
    await this.#truce.command("truceSequence", this.name, { raise: number });
  }
}
