// Trees of versions.
import { refuseUnknown } from "./options.js";
import { ObjectId } from "mongodb";

import { Conflict, NotFound } from "./errors.js";

const conflict = (message, answer) => new Conflict(message, { code: 112, answer });

export class Tree {
  #truce;
  #made;
  constructor(truce, name, made = {}) {
    this.#truce = truce;
    this.#made = made;
    this.name = name;
  }

  #missing(answer) {
    return new NotFound(`there is no such version of the tree "${this.name}"`, { code: 125, answer });
  }

  // The current version, or that of {version, timeMS, tag, token}. NotFound, Expired.
  async read(at = {}) {
    const answer = await this.#truce.command("truceTreeRead", this.name, { ...at, limit: 1 });
    if (answer.status !== "ok") throw this.#missing(answer);
    return new Snapshot(this.#truce, this.name, answer);
  }

  // The versions that are kept, the newest first.
  async *log({ page = 100, ...rest } = {}) {
    refuseUnknown(rest, "log");
    for (let before; before !== 1;) {
      const { versions = [], more } = await this.#truce.command("truceTreeLog", this.name, { limit: page, before });
      yield* versions;
      if (!more) return;
      before = versions.at(-1).version;
    }
  }

  // {itemId, change, before, after} of each item that differs.
  async *diff(from, to, { contents = false, page = 100, ...rest } = {}) {
    refuseUnknown(rest, "diff");
    for (let after; ;) {
      const answer = await this.#truce.command("truceTreeDiff", this.name, { from, to, contents, after, limit: page });
      if (answer.status !== "ok") throw this.#missing(answer);
      yield* answer.changes;
      if (!answer.more) return;
      after = answer.changes.at(-1).itemId;
    }
  }

  async status() {
    const answer = await this.#truce.command("truceTree", this.name);
    return answer.status === "ok" ? answer : undefined;
  }

  // fill(edit) puts and removes items; then all of them are published at once: {outcome, version,
  // token}. Conflict: others have published since the edit began; {merge: true} merges with them.
  async edit(fill, options = {}) {
    const base = await this.read().catch((error) => {
      if (error instanceof NotFound) return undefined;
      throw error;
    });
    const edit = new Edit(base);
    await fill(edit);
    return this.publish(edit.changes, { base: base?.token ?? "new", ...options });
  }

  // One list of changes, as the table has it.
  async publish(changes, options = {}) {
    const fields = { ...this.#made, changes, id: new ObjectId(), ...options };
    const answer = await this.#truce.command("truceTreePublish", this.name, fields, { once: true });
    if (answer.outcome === "conflict")
      throw conflict(`others have published version ${answer.version} of the tree "${this.name}"`, answer);
    return answer;
  }
  revert(version, options = {}) {
    return this.publish(undefined, { revert: version, ...options });
  }

  #act(fields) {
    return this.#truce.command("truceTree", this.name, fields);
  }
  async tag(name, version) {
    return (await this.#act({ tag: name, version })).status === "ok";
  }
  async untag(name) {
    return (await this.#act({ untag: name })).status === "ok";
  }
  // {versions, ageMS}: the least that is kept; {}: all.
  async keep(keep = {}) {
    await this.#act({ keep });
  }
  async branch(name, version) {
    await this.#act({ branch: name, version });
    return new Tree(this.#truce, name);
  }
  async merge(other, options = {}) {
    const answer = await this.#act({ merge: other instanceof Tree ? other.name : other, ...options });
    if (answer.outcome === "conflict") throw conflict("what both changed cannot be merged", answer);
    return answer;
  }
  async erase(id) {
    return (await this.#act({ erase: id })).versions ?? 0;
  }
  collect() {
    return this.#act({ collect: true });
  }
  async drop() {
    return (await this.#act({ drop: true })).status === "ok";
  }
}

// One version, whatever is published in the meantime: `for await (const item of snapshot)`.
export class Snapshot {
  #send;
  constructor(truce, name, { version, token }) {
    this.#send = (fields) => truce.command("truceTreeRead", name, { ...fields, token });
    this.version = version;
    this.token = token;
  }
  async get(id) {
    return (await this.#send({ id })).item;
  }
  async *find(filter, { sort, page = 100 } = {}) {
    for (let behind = {}; ;) {
      const { items = [], more } = await this.#send({ filter, sort, limit: page, ...behind });
      yield* items;
      if (!more) return;
      behind = sort ? { skip: (behind.skip ?? 0) + items.length } : { after: items.at(-1).itemId };
    }
  }
  [Symbol.asyncIterator]() {
    return this.find();
  }
}

export class Edit {
  changes = [];
  constructor(base) {
    this.base = base; // a Snapshot; undefined: the tree is new
  }
  put(item) {
    this.changes.push({ put: item });
    return this;
  }
  remove(id) {
    this.changes.push({ remove: id });
    return this;
  }
}
