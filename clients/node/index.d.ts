/// <reference lib="esnext.disposable" />
/**
 * truce: documents that stay consistent, in process or through a server.
 *
 *     const db = await truce.open("school.truce");                      // a file, in this process
 *     const db = await truce.connect("mongodb://127.0.0.1:27017/school");   // through truce serve
 */
import type {
    Binary,
    Decimal128,
    Document,
    Double,
    Int32,
    Long,
    ObjectId,
    Timestamp,
    UUID,
} from "bson";
import type {
    ClaimOptions,
    CommitChangesOptions,
    CommitOperations,
    Duration,
    Operations,
    RevisionOptions,
    Time,
    TreeDiffOptions,
    TreePublishOptions,
    TreeReadOptions,
} from "./lib/operations";

export * from "./lib/operations";
export { Binary, Decimal128, Double, Int32, Long, ObjectId, Timestamp, UUID } from "bson";
export type { Document } from "bson";

/** The reply of an operation. "not found" is a result; every other status throws an error. */
export type Reply = { status: "ok" | "not found"; [field: string]: any };
/** The reply of an operation that may find nothing, if it found something. */
export type FoundReply = { status: "ok"; [field: string]: any };
/** The reply of an operation that found nothing: all other fields are undefined. */
export type NotFoundReply = { status: "not found"; reason: string };

/**
 * A filter: fields with values or with operators of MongoDB. A value that is undefined is a
 * TypeError; null finds documents without the field.
 */
export type Filter = Document;
export type Sort =
    string | Record<string, any> | readonly (string | readonly [string, any])[] | Map<string, any>;

/** The version of the package. */
export declare const version: string;

/** Returns the version of libtruce. */
export declare function libraryVersion(): string;

// ---- open and connect ----

export interface OpenOptions {
    /** the database of the store; absent: the store's own */
    database?: string;
    /** every write fails; the file must exist */
    readOnly?: boolean;
    /** do not create the file */
    mustExist?: boolean;
    /** writes do not wait for the disk */
    relaxed?: boolean;
    /** The maximum time that a call waits for locks. 0 means 30 seconds. */
    deadlineMS?: number;
    /** The maximum age of an open cursor while other clients write. 0 means 10 minutes. */
    snapshotAgeMS?: number;
    /** Megabytes for documents and pages. 0 means a part of the machine's memory. */
    cacheMB?: number;
}

/**
 * Opens a store in this process, and creates it if it does not exist.
 *
 * file: a path, or "memory:"
 *
 * Several processes and threads may open a file at the same time, each for itself.
 */
export declare function open(file: string | URL, options?: OpenOptions): Promise<Database>;

/** A MongoClient of the driver `mongodb`. */
export interface Client {
    connect(): Promise<any>;
    db(name?: string): any;
    startSession(): any;
    close(): Promise<void>;
}

/**
 * Connects to a database of `truce serve` by the driver `mongodb`.
 *
 * server: mongodb://HOST/DATABASE, or a MongoClient, which stays open when the database is closed.
 *
 * options: `database`, and with a URI also those of MongoClient.
 *
 * The database is `database`, or the one that the URI names. For a client, it is the database that
 * `client.db()` returns.
 */
export declare function connect(
    server: string,
    options?: { database?: string; [option: string]: any },
): Promise<Database>;
export declare function connect(server: Client, options?: { database?: string }): Promise<Database>;

// ---- the database ----

export interface CommitResult {
    /** whether the commit took effect before, under the same key */
    earlier: boolean;
    /** what that commit left (the option `leave`) */
    result?: Document;
    /** the _ids that were made */
    inserted: any[];
    /** the replies of operations, by the numbers of their changes */
    results: Map<number, Document>;
}

/** `key` and `keyTime` belong together: a commit has both of them, or neither. */
export type CommitOptions = Omit<CommitChangesOptions, "key" | "keyTime"> &
    (
        | {
              /** an idempotency key: the commit happens once under it */
              key: string;
              /** when the request was made, the same in each repetition */
              keyTime: Time;
          }
        | { key?: undefined; keyTime?: undefined }
    );

export type TransactionDatabase = Omit<Database, "transact" | "close">;

/** The operations of truce, collections, commits, and transactions of a database. */
export interface Database
    extends Operations<Promise<Reply>, Promise<FoundReply | NotFoundReply>> {}
export declare class Database {
    private constructor();
    readonly databaseName: string | undefined;

    /** Waits for the running calls, also for commits and transactions, and closes the store or the connections that `connect` made. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;

    /**
     * Returns the same database, whose calls end when the signal is aborted. A call that reads
     * throws the reason of the signal. A call that writes throws OutcomeUnknown: it may take effect
     * or not. A claim leaves no job behind.
     */
    withSignal(signal: AbortSignal): Database;

    /** Runs a command document. With `again`, it is sent again if its reply is lost. */
    command(document: Document, options?: { again?: boolean }): Promise<Document>;

    collection<T extends Document = Document>(name: string): Collection<T>;
    listCollections(filter?: Filter): Cursor<Document>;
    dropDatabase(): Promise<boolean>;
    /** Returns the changes of all collections that follow, or those after a resume token. */
    watch(pipeline?: Document[], options?: WatchOptions): ChangeStream;

    /**
     * Applies the changes that `fill` adds: all or none. If `fill` throws, none.
     *
     *     await db.commit((c) => {
     *       c.update("accounts", "a", { $inc: { n: -5 } }, { where: { n: { $gte: 5 } } });
     *       c.update("accounts", "b", { $inc: { n: 5 } });
     *     });
     */
    commit(
        fill: (changes: Changes) => unknown,
        options?: CommitOptions,
    ): Promise<CommitResult>;

    /**
     * Runs `work` in a transaction, and again after a conflict with other writes. Returns its
     * result.
     * The calls of the database that `work` gets take effect together, or not at all.
     * `work` must await each of them. If a call still runs at its end, `transact` throws, and
     * nothing changes.
     */
    transact<T>(work: (transaction: TransactionDatabase) => Promise<T>): Promise<T>;

    /** Claims the next jobs as objects. */
    claimJobs<P extends Document = any>(queue: string, options?: ClaimOptions): Promise<Job<P>[]>;

    /** Returns all jobs of a queue, or with 1 of all queues, the oldest first. */
    iterateJobs(
        queue: string | 1,
        options?: { state?: string; page?: number },
    ): AsyncGenerator<Document, void>;
    /** Returns all lines of an account, in order. */
    iterateStatement(
        ledger: string,
        account: string,
        options?: { after?: number; page?: number },
    ): AsyncGenerator<Document, void>;
    /** Returns all transfers, the last changed first. */
    iterateTransfers(
        collection: string,
        options?: { state?: string; page?: number },
    ): AsyncGenerator<Document, void>;
    /** Returns all items that match, of one version: by itemId if there is no `sort`. */
    iterateTree(
        tree: string,
        options?: Pick<
            TreeReadOptions,
            "filter" | "sort" | "version" | "tag" | "token" | "timeMS"
        > & { page?: number },
    ): AsyncGenerator<Document, void>;
    /** Returns the versions of a tree, the newest first. */
    iterateTreeLog(tree: string, options?: { page?: number }): AsyncGenerator<Document, void>;
    /** Returns all changes from one version of a tree to another, by itemId. */
    iterateTreeDiff(
        tree: string,
        options: Pick<TreeDiffOptions, "from" | "to" | "contents"> & { page?: number },
    ): AsyncGenerator<Document, void>;

    /**
     * Publishes the changes that `fill` adds, all at once. If another edit was published in the
     * meantime, throws Conflict, unless the option `merge` is true.
     */
    edit(
        tree: string,
        fill: (edit: Edit) => unknown,
        options?: Omit<TreePublishOptions, "changes" | "base" | "id" | "revert">,
    ): Promise<Reply>;
}

/** Changes of a tree. */
export declare class Edit {
    readonly changes: Document[];
    /** Adds or replaces an item: a whole one, with its itemId. */
    put(item: Document): this;
    remove(id: any): this;
}

export interface Where {
    /** a filter on the document; if it does not match, the commit throws Refused and changes nothing */
    where?: Filter;
}

/**
 * The changes of a commit. Each method adds a change and returns its number. After the end of the
 * function that gets them, each method throws Invalid.
 */
export interface Changes extends CommitOperations<number> {}
export declare class Changes {
    readonly list: Document[];
    insert(collection: string, document: Document): number;
    /** Changes a document by update operators. */
    update(collection: string, id: any, operators: Document, options?: Where): number;
    replace(collection: string, id: any, document: Document, options?: Where): number;
    remove(collection: string, id: any, options?: Where): number;
    /** Checks that the document exists and matches. */
    require(collection: string, id: any, options?: Where): number;
    /** Checks the document as `require` does, and that no other commit changes it. */
    hold(collection: string, id: any, options?: Where): number;
    /** Checks that no document has this _id. */
    missing(collection: string, id: any): number;
    /** Changes fields from an old value to a new one: {n: [9, 4]}. */
    change(collection: string, id: any, oldAndNew: Record<string, readonly [any, any]>): number;
}

// ---- documents ----

export interface FindOneOptions {
    projection?: Document;
    sort?: Sort;
    skip?: number;
    hint?: string | Document;
    maxTimeMS?: number;
}
export interface FindOptions extends FindOneOptions {
    limit?: number;
    batchSize?: number;
}
export interface UpdateOptions {
    upsert?: boolean;
    arrayFilters?: Document[];
    hint?: string | Document;
}
export interface FindOneAndDeleteOptions {
    projection?: Document;
    sort?: Sort;
    maxTimeMS?: number;
}
export interface FindOneAndUpdateOptions extends FindOneAndDeleteOptions {
    upsert?: boolean;
    /** the document that is returned: as it was (the default), or as it is then */
    returnDocument?: "before" | "after";
    arrayFilters?: Document[];
}
export interface AggregateOptions {
    batchSize?: number;
    hint?: string | Document;
    maxTimeMS?: number;
    allowDiskUse?: boolean;
    let?: Document;
}
export interface IndexOptions {
    name?: string;
    unique?: boolean;
    sparse?: boolean;
    expireAfterSeconds?: number;
    partialFilterExpression?: Document;
    hidden?: boolean;
    weights?: Document;
    wildcardProjection?: Document;
    collation?: Document;
}
export interface WatchOptions {
    fullDocument?: string;
    fullDocumentBeforeChange?: string;
    resumeAfter?: Document;
    startAfter?: Document;
    startAtOperationTime?: Timestamp;
    /** how long one call waits for a change; 1000 by default */
    maxAwaitTimeMS?: number;
}

export interface InsertOneResult {
    acknowledged: true;
    insertedId: any;
}
export interface InsertManyResult {
    acknowledged: true;
    insertedCount: number;
    insertedIds: Record<number, any>;
}
export interface UpdateResult {
    acknowledged: true;
    matchedCount: number;
    modifiedCount: number;
    upsertedCount: number;
    upsertedId: any;
}
export interface DeleteResult {
    acknowledged: true;
    deletedCount: number;
}

type WithId<T> = T & { _id: any };

/** The documents of a collection. Methods, options, and results are those of the driver. */
export declare class Collection<T extends Document = Document> {
    private constructor();
    readonly collectionName: string;

    find(filter?: Filter, options?: FindOptions): FindCursor<WithId<T>>;
    findOne(filter?: Filter, options?: FindOneOptions): Promise<WithId<T> | null>;
    countDocuments(
        filter?: Filter,
        options?: { skip?: number; limit?: number; hint?: string | Document; maxTimeMS?: number },
    ): Promise<number>;
    estimatedDocumentCount(): Promise<number>;
    distinct(key: string, filter?: Filter, options?: { maxTimeMS?: number }): Promise<any[]>;
    aggregate<R extends Document = Document>(
        pipeline?: Document[],
        options?: AggregateOptions,
    ): Cursor<R>;
    /** Returns the changes of the collection that follow, or those after a resume token. */
    watch(pipeline?: Document[], options?: WatchOptions): ChangeStream;

    /** Inserts a document. If it has no _id, it gets one. */
    insertOne(document: T): Promise<InsertOneResult>;
    /** Inserts documents. If one has no _id, it gets one. */
    insertMany(documents: T[], options?: { ordered?: boolean }): Promise<InsertManyResult>;
    updateOne(
        filter: Filter,
        update: Document | Document[],
        options?: UpdateOptions,
    ): Promise<UpdateResult>;
    updateMany(
        filter: Filter,
        update: Document | Document[],
        options?: UpdateOptions,
    ): Promise<UpdateResult>;
    replaceOne(
        filter: Filter,
        replacement: Document,
        options?: Omit<UpdateOptions, "arrayFilters">,
    ): Promise<UpdateResult>;
    deleteOne(filter: Filter, options?: { hint?: string | Document }): Promise<DeleteResult>;
    deleteMany(filter: Filter, options?: { hint?: string | Document }): Promise<DeleteResult>;
    findOneAndUpdate(
        filter: Filter,
        update: Document | Document[],
        options?: FindOneAndUpdateOptions,
    ): Promise<WithId<T> | null>;
    findOneAndReplace(
        filter: Filter,
        replacement: Document,
        options?: Omit<FindOneAndUpdateOptions, "arrayFilters">,
    ): Promise<WithId<T> | null>;
    findOneAndDelete(filter: Filter, options?: FindOneAndDeleteOptions): Promise<WithId<T> | null>;

    /**
     * Saves the document that a browser edited, merged with other saves since `version`. It may
     * come from JSON. A field in the JSON form of an ObjectId, a Date, or another type of BSON gets the
     * type that the stored document has in the same place.
     *
     * If both sides changed the same field, throws Conflict.
     */
    merge(
        document: Document,
        options: Omit<RevisionOptions, "get" | "save" | "merge" | "remove" | "version"> & {
            version: number;
        },
    ): Promise<Reply>;

    createIndex(keys: Sort, options?: IndexOptions): Promise<string>;
    listIndexes(): Cursor<Document>;
    indexes(): Promise<Document[]>;
    dropIndex(name: string): Promise<void>;
    drop(): Promise<boolean>;
}

declare class BaseCursor<T> implements AsyncIterable<T> {
    protected constructor();
    /** Whether the cursor has ended or was closed. */
    readonly closed: boolean;
    /** Returns the next document, or null at the end. */
    next(): Promise<T | null>;
    /** Returns the next document, or null if none is there after one call. */
    tryNext(): Promise<T | null>;
    hasNext(): Promise<boolean>;
    close(): Promise<void>;
    [Symbol.asyncIterator](): AsyncGenerator<T, void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** The documents of a reply, batch by batch. */
export declare class Cursor<T = Document> extends BaseCursor<T> {
    toArray(): Promise<T[]>;
    /** Calls the function for each document until it returns false. */
    forEach(function_: (document: T) => unknown): Promise<void>;
}

/** The documents of find. These methods refine it before it is read. */
export declare class FindCursor<T = Document> extends Cursor<T> {
    sort(keys: Sort, direction?: any): this;
    project(projection: Document): this;
    skip(count: number): this;
    limit(count: number): this;
    hint(index: string | Document): this;
    maxTimeMS(ms: number): this;
    batchSize(size: number): this;
}

/** The changes of a collection or database. The iteration waits for the next change. */
export declare class ChangeStream extends BaseCursor<Document> {
    /** The token of the last change that was returned, for `resumeAfter` of a new stream. */
    readonly resumeToken: Document | undefined;
    /**
     * Returns the next change, or null if none comes within `maxAwaitTimeMS`. The first call starts a
     * new stream and returns null at once, so that no later change is missed.
     */
    tryNext(): Promise<Document | null>;
}

// ---- jobs ----

/** A claimed job. */
export declare class Job<P extends Document = any> {
    private constructor();
    readonly queue: string;
    readonly id: ObjectId;
    readonly token: ObjectId;
    readonly payload: P;
    readonly metadata: Document;
    readonly attempt: number;
    /** The whole job. */
    readonly document: Document;
    /** Whether this worker has reported the end of the job. */
    readonly ended: boolean;
    /** Whether a heartbeat was refused: the job was canceled, or another worker has it. */
    readonly lost: boolean;
    /** Aborted when the job is lost. */
    readonly signal: AbortSignal;

    /** Reports the end. With the database of a transaction, the job is done if it commits. */
    done(result?: Document, options?: { database?: TransactionDatabase }): Promise<void>;
    /** Reports a failure. The job is tried again later, or is dead after its last attempt. */
    fail(
        error: unknown,
        options?: { delayMS?: Duration; database?: TransactionDatabase },
    ): Promise<void>;
    /** Requeues the job for later. The attempt does not count. */
    snooze(delayMS?: Duration, options?: { database?: TransactionDatabase }): Promise<void>;
    /** Ends the job as discarded: it is not tried again. */
    discard(error: unknown, options?: { database?: TransactionDatabase }): Promise<void>;
    /** Applies changes together with the end of the job, or neither. */
    commit(fill: (changes: Changes) => unknown, options?: { result?: Document }): Promise<void>;

    /**
     * Applies changes once in all attempts of the job. The name is unique in the job, and has no "."
     * and "$". A second step of the same name in one attempt is refused (Invalid).
     */
    step(
        name: string,
        fill: (changes: Changes) => unknown,
        options?: { result?: Document },
    ): Promise<{ earlier: boolean; result?: Document }>;
    /**
     * Suspends the job for a time, once for each name. Throws Suspended until then. A second sleep of
     * the same name in one attempt is refused (Invalid).
     */
    sleep(name: string, delayMS: Duration): Promise<void>;
    /**
     * Suspends the job until an event arrives (`db.signal`). Throws Suspended until then. Returns
     * the event, or null if the time is over. A second wait of the same name in one attempt is
     * refused (Invalid).
     */
    wait(name: string, options?: { timeoutMS?: Duration }): Promise<Document | null>;

    /**
     * Extends the lease, and returns its length in milliseconds. `progress` is stored in the job.
     */
    heartbeat(progress?: Document): Promise<number>;
    /** Runs a handler and reports the outcome, as a worker does. */
    run(handler: (job: this) => unknown, logger?: Logger): Promise<void>;
}

/** console, or a logger of pino or winston, for example. Each message is one string. */
export interface Logger {
    /** claimed jobs */
    debug?(text: string): void;
    /** the start and the stop of a worker, and the end of each job */
    info?(text: string): void;
    /** lost jobs and connections */
    warn(text: string): void;
    /** failed jobs, with the stack of the error */
    error(text: string): void;
}

export interface WorkerOptions {
    /** the number of jobs at a time; 1 by default */
    concurrency?: number;
    /** how long a claim lasts if the worker dies; 30,000 by default */
    leaseMS?: number;
    /** how long one call waits for a job; 1000 by default, and `stop` may take this long */
    waitMS?: number;
    /** ends the worker when the queue has no ready job */
    untilEmpty?: boolean;
    /** the worker's name in the jobs */
    name?: string;
    /** stops `run` */
    signal?: AbortSignal;
    /** gets the log; by default, only warnings and errors are printed, to standard error */
    logger?: Logger;
}

/**
 * Runs `handler(job)` for the jobs of a queue. The job stores what the handler returns: an object,
 * or `{value: result}`. If the handler throws, the job fails and is tried again later; the worker
 * continues.
 *
 *     await new Worker(db, "mail", send, { concurrency: 8 }).run();   // until SIGTERM or SIGINT
 */
export declare class Worker<P extends Document = any> {
    constructor(
        db: Database,
        queue: string,
        handler: (job: Job<P>) => unknown,
        options?: WorkerOptions,
    );
    readonly queue: string;
    /** Starts the worker, and returns it. */
    start(): this;
    /** Claims no further job. Resolves when the running jobs have ended. */
    stop(): Promise<void>;
    /** Runs until `stop`, or until one of the signals (SIGTERM and SIGINT by default). */
    run(options?: { signals?: string[] }): Promise<void>;
}

// ---- errors ----

/** The addon or libtruce is missing, too old, or cannot be loaded. */
export declare class LibraryError extends Error {}
/** A job sleeps or waits for an event. Let this error leave the handler. */
export declare class Suspended extends Error {}

/** A command failed. */
export declare class TruceError extends Error {
    /** truce's name of the cause: "conflict", "locked", ... */
    readonly status: string | undefined;
    readonly code: number | undefined;
    readonly codeName: string | undefined;
    /** The reply of the command. */
    readonly reply: Document | undefined;
    readonly labels: string[];
    hasErrorLabel(label: string): boolean;
}
/** Another write changed a document that the call depends on. */
export declare class Conflict extends TruceError {
    /** If a merge failed: what both sides changed. */
    readonly conflicts: Document[];
}
/** Another process, thread, or commit holds the resource. Try later. */
export declare class Locked extends TruceError {}
/** The call may have taken effect or not. Query the result before you send it again. */
export declare class OutcomeUnknown extends TruceError {}
/** A unique key exists, or a key or an id was used before with different content. */
export declare class Duplicate extends TruceError {
    readonly keyPattern: Document | undefined;
    readonly keyValue: Document | undefined;
}
/** A key, cursor, or version is too old, or the worker no longer holds the job. */
export declare class Expired extends TruceError {}
/** A document, a job, or an account does not exist. */
export declare class NotFound extends TruceError {}
/**
 * A condition does not hold: a document does not match the condition of a commit, a transfer was
 * canceled or decided, or an edit of a tree cannot be published.
 */
export declare class Refused extends TruceError {}
/** The call or its input is wrong. Sending it again fails again. */
export declare class Invalid extends TruceError {}
/** A maximum was reached, or an account has too little available. */
export declare class Limit extends TruceError {}
/** The deadline of the call passed. Nothing was changed. */
export declare class Timeout extends TruceError {}
/** The disk or the network of the store failed. */
export declare class StoreFailed extends TruceError {}
/** The file is damaged, is not a truce store, or is newer than this library. */
export declare class Corrupt extends TruceError {}
/** The user is not logged in, or lacks the role for this command. */
export declare class Unauthorized extends TruceError {}
/** The server (or libtruce) does not know the operation: it is not truce, or an older version. */
export declare class WrongServer extends TruceError {}
/** No server answered, or the connection was lost. The command may have taken effect or not. */
export declare class Unreachable extends TruceError {}
