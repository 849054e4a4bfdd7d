/** Helpers for the tests of programs that use truce. */
import type { Document } from "bson";
import type { Database, Job, OpenOptions } from "./index";

/** Opens an empty store in a temporary file, which `close` removes. */
export declare function openTemporary(options?: OpenOptions): Promise<Database>;

export interface ServerOptions {
    /** the program truce; absent: TRUCE_PROGRAM, or `truce` of the PATH */
    program?: string;
    /** the file of the store; absent: a store in memory */
    file?: string;
    /** further arguments of `truce serve` */
    args?: string[];
}

/**
 * Starts a private `truce serve` on a Unix socket. The URI names its database. It ends by `close`, or
 * with this process.
 */
export declare function startServer(
    options?: ServerOptions,
): Promise<{ uri: string; close(): Promise<void> }>;

/** Returns the jobs of a queue that have not begun, whose payload has these fields. */
export declare function enqueued(
    db: Database,
    queue: string,
    options?: { payload?: Document },
): Promise<Document[]>;

/**
 * Fails unless the queue has a job whose payload has these fields, or exactly `count` of them.
 * Returns the jobs.
 */
export declare function assertEnqueued(
    db: Database,
    queue: string,
    options?: { payload?: Document; count?: number },
): Promise<Document[]>;

/**
 * Runs the jobs that are ready, one after the other, and returns their number. If the handler
 * throws, the job fails and the error propagates; the next call tries the job again, without the
 * delay of a retry. With `delayed`, delayed jobs run, too, each once.
 */
export declare function runJobs<P extends Document = any>(
    db: Database,
    queue: string,
    handler: (job: Job<P>) => unknown,
    options?: { delayed?: boolean },
): Promise<number>;

/**
 * Makes the jobs that `db` enqueues run at once: the call that enqueues a job ends after its
 * handler. Delayed jobs stay in the queue. If a handler throws, the job fails, and that call throws
 * the error. Returns `db`.
 *
 *     const db = inline(await truce.open("memory:"), { mail: send });
 */
export declare function inline(
    db: Database,
    handlers: Record<string, (job: Job) => unknown>,
): Database;
