import type { ClientSession, Db, Document, MongoClientOptions, ObjectId } from "mongodb";

/** The fields of a command of the server's table (docs/commands.md), by their names there. */
export type Fields = Record<string, unknown>;
export type Answer = Document & { status: string };

export declare class TruceError extends Error {
  readonly status: string;
  readonly code?: number;
  readonly answer?: Document;
  readonly labels: string[];
  hasErrorLabel(label: string): boolean;
}
export declare class Conflict extends TruceError { readonly conflicts: Document[]; }
export declare class Locked extends TruceError {}
export declare class OutcomeUnknown extends TruceError {}
export declare class Duplicate extends TruceError {}
export declare class Expired extends TruceError {}
export declare class NotFound extends TruceError {}
export declare class Refused extends TruceError {}
export declare class Invalid extends TruceError {}
export declare class Limit extends TruceError {}
export declare class Timeout extends TruceError {}
export declare class StoreFailed extends TruceError {}
export declare class Corrupt extends TruceError {}
export declare class Unauthorized extends TruceError {}
export declare class Unreachable extends TruceError {}

export declare function connect(uri: string, database?: string, options?: MongoClientOptions): Promise<Truce>;

export interface CommitOptions { key?: string; keyTime?: Date | number; leave?: Document; input?: Document; maxTimeMS?: number }
export type Change = Document;

export declare class Truce {
  constructor(database: Db, options?: { session?: ClientSession });
  readonly database: Db;
  readonly session?: ClientSession;
  close(): Promise<void>;
  help(): Promise<string[]>;
  help(command: string): Promise<Document>;
  command(command: string, value: unknown, fields?: Fields, options?: { once?: boolean }): Promise<Answer>;
  bound(session: ClientSession): Truce;
  transact<T>(work: (inner: Truce) => Promise<T>): Promise<T>;
  commit(changes: Change[] | Changes | ((changes: Changes) => unknown), options?: CommitOptions):
    Promise<Answer & { earlier: boolean; result?: Document }>;
  commitResult(key: string): Promise<Document | undefined>;
  commitShow(key: string): Promise<Document | undefined>;
  request(key: string, name: string, input?: Document): Promise<void>;
  requestState(key: string): Promise<Document | undefined>;
  sequence(name: string): Sequence;
  set(collection: string, named: { field: string; name: string } & Fields): OrderedSet;
  revisions(collection: string, options?: Fields): Revisions;
  items(collection: string, named: { field: string; identity: string } & Fields): Items;
  queue<P extends Document = Document>(name: string): Queue<P>;
  queues(): Promise<Document[]>;
  ledger(collection: string): Ledger;
  transfers(collection: string, layout?: { accounts?: string; field?: string; marks?: string; fence?: string }): Transfers;
  tree(name: string, made?: { collection?: string; parent?: string }): Tree;
  readonly sync: Sync;
}

export declare class Changes {
  readonly list: Change[];
  insert(collection: string, document: Document): this;
  update(collection: string, id: unknown, operators: Document, where?: Document): this;
  replace(collection: string, id: unknown, document: Document, where?: Document): this;
  remove(collection: string, id: unknown, where?: Document): this;
  require(collection: string, id: unknown, where?: Document): this;
  hold(collection: string, id: unknown, where?: Document): this;
  missing(collection: string, id: unknown): this;
  change(collection: string, id: unknown, oldAndNew: Record<string, [unknown, unknown]>): this;
}

export declare class Sequence {
  readonly name: string;
  take(count?: number): Promise<number[]>;
  next(): Promise<number>;
  last(): Promise<number>;
  raise(number: number): Promise<void>;
}

export type Outcome = "applied" | "stale" | "duplicate" | "quarantined";
export declare class OrderedSet {
  add(key: Document, element: Document, seq: number, options?: { source?: string; consumer?: string }): Promise<Outcome>;
  remove(key: Document, element: Document, seq: number, options?: { source?: string; consumer?: string }): Promise<Outcome>;
  apply(operations: Document[], options?: { consumer?: string }): Promise<Answer>;
  members(key: Document): Promise<Document[]>;
  show(key: Document): Promise<Document | undefined>;
  source(key: Document | string, fields: Fields): Promise<Answer>;
  collect(key: Document | string, collect?: boolean): Promise<Answer>;
}

export declare class Revision {
  document: Document;
  readonly version: number;
  readonly outcome?: "saved" | "merged" | "unchanged";
}
export declare class Revisions {
  get(id: unknown): Promise<Revision | undefined>;
  save(what: Revision | Document): Promise<Revision>;
  merge(what: Revision | Document): Promise<Revision>;
  remove(revision: Revision): Promise<void>;
  conflicts(): Promise<Document[]>;
  resolve(conflict: Document, take: "mine" | "theirs" | "document", document?: Document): Promise<string | undefined>;
}

export declare class Items {
  add(filter: Document, item: Document): Promise<Answer | undefined>;
  replace(filter: Document, item: Document, query?: Document): Promise<Answer | undefined>;
  upsert(filter: Document, item: Document): Promise<Answer | undefined>;
  update(filter: Document, query: Document, operators: Document): Promise<Answer | undefined>;
  remove(filter: Document, query: Document): Promise<Answer | undefined>;
}

export declare class Sync {
  declare(rule: string, fields: { source: string; dependent: string; reference: string; copies: Record<string, string> } & Fields): Promise<void>;
  drop(rule: string): Promise<boolean>;
  update(collection: string, id: unknown, operators: Document): Promise<Answer | undefined>;
  insert(collection: string, document: Document): Promise<Answer>;
  read(collection: string, id: unknown): Promise<Document | undefined>;
  settle(collection: string, id: unknown): Promise<Answer>;
  status(): Promise<Document[]>;
  repair(rule: string, options?: { dryRun?: boolean }): Promise<Answer | undefined>;
}

export declare class Ledger {
  open(currency: string, rules?: Fields): Promise<void>;
  post(id: unknown, entries?: Record<string, number> | Document[], options?: Fields): Promise<boolean>;
  balance(account: string, moment?: Fields): Promise<Answer | undefined>;
  statement(account: string, options?: { after?: number; page?: number }): AsyncGenerator<Document>;
}

export declare class Transfers {
  start(id: unknown, fields: Fields): Promise<boolean>;
  show(id: unknown): Promise<Document | undefined>;
  resume(id: unknown): Promise<string | undefined>;
  cancel(id: unknown): Promise<string | undefined>;
  list(options?: { state?: string; page?: number }): AsyncGenerator<Document>;
}

export interface At { version?: number; timeMS?: Date | number; tag?: string; token?: string }
export interface PublishOptions {
  id?: ObjectId; base?: string; message?: string; author?: string; merge?: boolean; prefer?: "mine" | "theirs"; rules?: Document;
}
export type Published = Answer & { outcome: "published" | "exists" | "nothing"; version: number; token?: string };

export declare class Tree {
  readonly name: string;
  read(at?: At): Promise<Snapshot>;
  log(options?: { page?: number }): AsyncGenerator<Document>;
  diff(from: number, to: number, options?: { contents?: boolean; page?: number }): AsyncGenerator<Document>;
  status(): Promise<Answer | undefined>;
  edit(fill: (edit: Edit) => unknown, options?: PublishOptions): Promise<Published>;
  publish(changes: Document[] | undefined, options?: PublishOptions & { revert?: number }): Promise<Published>;
  revert(version: number, options?: PublishOptions): Promise<Published>;
  tag(name: string, version?: number): Promise<boolean>;
  untag(name: string): Promise<boolean>;
  keep(keep?: { versions?: number; ageMS?: number }): Promise<void>;
  branch(name: string, version?: number): Promise<Tree>;
  merge(other: Tree | string, options?: Fields): Promise<Answer>;
  erase(id: unknown): Promise<number>;
  collect(): Promise<Answer>;
  drop(): Promise<boolean>;
}
export declare class Snapshot implements AsyncIterable<Document> {
  readonly version: number;
  readonly token: string;
  get(id: unknown): Promise<Document | undefined>;
  find(filter?: Document, options?: { sort?: Document; page?: number }): AsyncGenerator<Document>;
  [Symbol.asyncIterator](): AsyncGenerator<Document>;
}
export declare class Edit {
  readonly base?: Snapshot;
  readonly changes: Document[];
  put(item: Document): this;
  remove(id: unknown): this;
}

export declare class Job<P extends Document = Document> {
  readonly id: ObjectId;
  readonly token: ObjectId;
  readonly payload: P;
  readonly attempt: number;
  readonly document: Document;
  readonly ended: boolean;
  readonly lost: boolean;
  done(result?: Document, by?: Truce): Promise<void>;
  commit(changes: Change[] | Changes, result?: Document): Promise<void>;
  fail(error: unknown, delayMS?: number): Promise<void>;
  snooze(delayMS?: number): Promise<void>;
  heartbeat(progress?: Document): Promise<number>;
}
export interface WorkOptions {
  signal?: AbortSignal;
  most?: number;
  leaseMS?: number;
  waitMS?: number;
  worker?: string;
  untilEmpty?: boolean;
  onError?: (error: Error, job?: Job) => void;
}
export declare class Queue<P extends Document = Document> {
  readonly name: string;
  add(payload: P, options?: Fields): Promise<ObjectId>;
  addMany(payloads: P[], options?: Fields): Promise<ObjectId[]>;
  jobs(which?: { id?: ObjectId; state?: string; limit?: number }): Promise<Document[]>;
  cancel(id: ObjectId): Promise<boolean>;
  retry(id: ObjectId): Promise<boolean>;
  discard(id: ObjectId): Promise<boolean>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  redrive(limit?: number): Promise<number>;
  claim(options?: { most?: number; waitMS?: number; leaseMS?: number; worker?: string }): Promise<Job<P>[]>;
  work(options?: WorkOptions): AsyncGenerator<Job<P>>;
  run(handler: (job: Job<P>) => unknown, options?: WorkOptions & { signals?: NodeJS.Signals[] }): Promise<void>;
}
