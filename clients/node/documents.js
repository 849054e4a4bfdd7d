// Ordered sets, revisions, items, copies, ledgers, transfers.
import { Conflict } from "./errors.js";
import { refuseUnknown } from "./options.js";

const ok = (answer) => (answer.status === "ok" ? answer : undefined);

// Accepts operations in whatever order they come.
export class OrderedSet {
  #send;
  constructor(truce, collection, named) {
    this.#send = (fields, command = "truceSet") => truce.command(command, collection, { ...named, ...fields });
  }
  async add(key, element, seq, options = {}) {
    return (await this.#send({ key, add: element, seq, ...options })).outcome;
  }
  async remove(key, element, seq, options = {}) {
    return (await this.#send({ key, remove: element, seq, ...options })).outcome;
  }
  apply(operations, options = {}) {
    return this.#send({ apply: operations, ...options });
  }
  async members(key) {
    return (await this.#send({ key })).members ?? [];
  }
  async show(key) {
    return (await this.#send({ key, show: true })).document;
  }
  source(key, fields) {
    return this.#send({ key, ...fields }, "truceSetSource");
  }
  collect(key, collect = true) {
    return this.#send({ key, collect }, "truceSetCollect");
  }
}

// A document as it was read or saved: {document, version, outcome}; the document may be changed,
// and saved.
export class Revision {
  #base;
  constructor(answer) {
    this.document = answer.document;
    this.version = answer.version;
    this.outcome = answer.outcome;
    this.#base = cloned(answer.document);
  }
  get base() {
    return this.#base;
  }
}

// Values of BSON are not changed in place; arrays and plain objects are.
function cloned(value) {
  if (Array.isArray(value)) return value.map(cloned);
  if (value && Object.getPrototypeOf(value) === Object.prototype)
    return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, cloned(field)]));
  return value;
}

export class Revisions {
  #send;
  constructor(truce, collection, options = {}) {
    this.#send = (fields, command = "truceRevision") => truce.command(command, collection, { ...options, ...fields });
  }
  async get(id) {
    const answer = ok(await this.#send({ get: id }));
    return answer && new Revision(answer);
  }
  async #write(verb, value, read) {
    const answer = await this.#send({ [verb]: value, version: read?.version, base: read?.base });
    if (answer.outcome === "conflict") throw new Conflict("others have saved since", { code: 112, answer });
    return answer.document && new Revision(answer);
  }
  // A Revision is saved by its version; a plain document is a new one.
  save(what) {
    return what instanceof Revision ? this.#write("save", what.document, what) : this.#write("save", what);
  }
  merge(what) {
    return what instanceof Revision ? this.#write("merge", what.document, what) : this.#write("merge", what);
  }
  async remove(revision) {
    await this.#write("remove", revision.document._id, revision);
  }
  async conflicts() {
    return (await this.#send({}, "truceConflicts")).conflicts;
  }
  async resolve(conflict, take, document) {
    const seen = { version: conflict.version };
    return (await this.#send({ conflict: conflict._id, take, document, seen }, "truceResolve")).outcome;
  }
}

// Items of an array or a map, changed in their place: {matched, modified, added}; undefined: no
// document.
export class Items {
  #send;
  constructor(truce, collection, named) {
    this.#send = async (filter, fields) => ok(await truce.command("truceItem", collection, { ...named, filter, ...fields }));
  }
  add(filter, item) {
    return this.#send(filter, { add: item });
  }
  replace(filter, item, query) {
    return this.#send(filter, { replace: item, query });
  }
  upsert(filter, item) {
    return this.#send(filter, { upsert: item });
  }
  update(filter, query, operators) {
    return this.#send(filter, { query, update: operators });
  }
  remove(filter, query) {
    return this.#send(filter, { query, remove: true });
  }
}

// Denormalized copies.
export class Sync {
  #truce;
  constructor(truce) {
    this.#truce = truce;
  }
  async declare(rule, fields) {
    await this.#truce.command("truceSyncDeclare", rule, fields);
  }
  async drop(rule) {
    return ok(await this.#truce.command("truceSyncDrop", rule)) !== undefined;
  }
  async update(collection, id, operators) {
    return ok(await this.#truce.command("truceSyncUpdate", collection, { id, update: operators }));
  }
  insert(collection, document) {
    return this.#truce.command("truceSyncInsert", collection, { document });
  }
  async read(collection, id) {
    return (await this.#truce.command("truceSyncRead", collection, { id })).document;
  }
  settle(collection, id) {
    return this.#truce.command("truceSyncSettle", collection, { id });
  }
  async status() {
    return (await this.#truce.command("truceSyncStatus", 1)).rules;
  }
  async repair(rule, options = {}) {
    return ok(await this.#truce.command("truceSyncRepair", rule, options));
  }
}

// Double entry, amounts in the smallest unit.
export class Ledger {
  #send;
  constructor(truce, collection) {
    this.#send = (command, fields) => truce.command(command, collection, fields);
  }
  async open(currency, rules = {}) {
    await this.#send("truceLedgerOpen", { currency, ...rules });
  }
  // entries: {account: amount}, or the table's [{account, value, type}]. false: it was posted
  // before.
  async post(id, entries = [], options = {}) {
    const list = Array.isArray(entries) ? entries : Object.entries(entries).map(([account, value]) => ({ account, value }));
    return !(await this.#send("truceLedgerPost", { id, entries: list, ...options })).exists;
  }
  async balance(account, moment = {}) {
    return ok(await this.#send("truceLedgerBalance", { account, ...moment }));
  }
  async *statement(account, { after, page = 100, ...rest } = {}) {
    refuseUnknown(rest, "statement");
    for (;;) {
      const { lines = [] } = await this.#send("truceLedgerStatement", { account, after, limit: page });
      yield* lines;
      if (!lines.length) return;
      after = lines.at(-1).number;
    }
  }
}

// Changes several documents and holds none of them in the meantime. Refused: it is canceled, and
// stays so.
export class Transfers {
  #send;
  constructor(truce, collection, layout = {}) {
    this.#send = (command, fields, more = layout) => truce.command(command, collection, { ...fields, ...more });
  }
  // {source, destination, amount, ...} or {entries}. false: it was started before, and is done.
  async start(id, fields) {
    return !(await this.#send("truceTransfer", { id, ...fields })).exists;
  }
  async show(id) {
    return (await this.#send("truceTransferShow", { id }, {})).transfer;
  }
  async resume(id) {
    return (await this.#send("truceTransferResume", { id })).state;
  }
  async cancel(id) {
    return (await this.#send("truceTransferCancel", { id })).state;
  }
  async *list({ state, page = 100, ...rest } = {}) {
    refuseUnknown(rest, "list");
    for (let skip = 0; ;) {
      const { transfers, more } = await this.#send("truceTransfers", { state, limit: page, skip }, {});
      yield* transfers;
      if (!more) return;
      skip += transfers.length;
    }
  }
}
