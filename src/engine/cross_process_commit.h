#ifndef TRUCE_ENGINE_CROSS_PROCESS_COMMIT_H
#define TRUCE_ENGINE_CROSS_PROCESS_COMMIT_H

/*
 * Delegated operations: a process publishes them, and the holder of the lock executes them in its
 * own transaction (storage/published_records.h). Only the leader of the writer (writer.h) uses
 * this.
 */
#include "engine/storage/published_records.h"

struct write_op;
struct writer;

enum delegated {
    /* The operation was executed, and the answer is complete. */
    DELEGATED_DONE,
    /* The process that published the operation must execute it. Nothing was changed. */
    DELEGATED_NOT,
    /* The same, but the transaction contains a part of the operation and must be rolled back. */
    DELEGATED_HALF,
};

/* How operations of one kind are passed between processes (documents/delegated_writes.h). */
struct delegated_kind {
    /* Identifies the kind in a request. */
    uint8_t letter;
    /* Appends the operation to `request`. Returns false if no other process can execute it. */
    bool (*pack)(const struct write_op *op, struct buffer *request);
    /* Creates an operation of another process from its bytes. Returns NULL if the bytes are not
     * valid. */
    struct write_op *(*open)(void *arg, struct bytes request);
    /* Appends the answer for the process that published the operation. Called after the operation
     * has run. */
    enum delegated (*answer)(const struct write_op *op, struct buffer *answer);
    void (*close)(struct write_op *op);
    /* Reads the answer into the operation, which has not run in this process. Returns false if the
     * bytes are not a valid answer. */
    bool (*unpack)(struct write_op *op, struct bytes answer);
};

struct combine {
    struct records records;
    /* All kinds, with NULL at the end. If `kinds` is NULL, every process executes its own
     * operations. */
    const struct delegated_kind *const *kinds;
    void *arg;
    /* The operations of a request, and their answers. */
    struct buffer bytes, answer;
    /* The number of operations in the request. */
    unsigned added;
    /* After a refusal, the next `pauses` groups are not published. `pause` is the number of groups
     * that are left of them. */
    unsigned pause, pauses;

    /* Whether this process has taken operations of other processes since it acquired the lock. */
    bool served;
    /* The records of other processes in this transaction, a bit for each. `taken`: all that were
     * taken. `refused`: those that this process cannot execute. `relaxed`: those that need not wait
     * for the disk. */
    uint64_t taken, refused, relaxed;

    /* The number of records of other processes that this process has committed since the store
     * was opened. */
    atomic_ullong delegated;
    /* The number of own records that other processes have committed since then. */
    atomic_ullong sent;
};

void truce__combine_init(struct combine *combine, struct lock *lock);
void truce__combine_release(struct combine *combine);

/* ---- for the process whose operations are delegated ----------------------------------------- */

/* Returns whether the next group may be published. Counts the call against the pause after a
 * refusal. */
bool truce__combine_wanted(struct combine *combine);

/* Begins a request, and adds an operation to it. Adding returns false if the operation does not fit
 * into the record, or if no other process can execute it. */
static inline void truce__combine_begin(struct combine *combine)
{
    combine->bytes.size = 0;
    combine->added = 0;
}
bool truce__combine_add(struct combine *combine, const struct write_op *op);
/* Returns false if no record is available. */
bool truce__combine_publish(struct combine *combine, bool relaxed);

/* Passes the answers to the operations of the group and frees the record. `*promise` is the number
 * of the commit that must be durable. */
void truce__combine_report(struct combine *combine, struct write_op *group, uint64_t *promise);
/* Frees the record after it was returned. */
void truce__combine_take_back(struct combine *combine);

/* ---- for the holder of the lock ------------------------------------------------------------- */

/* Forgets the requests of the last transaction. Called before a transaction, which has taken
 * nothing yet. */
static inline void truce__combine_forget(struct combine *combine)
{
    combine->taken = combine->refused = combine->relaxed = 0;
}

/* Takes what other processes have published, and runs it in the transaction, after the leader's own
 * operations. Sets `*relaxed` to false if one of them is not relaxed. If an operation of another
 * process fails the transaction, the call fails. The writer then runs its own group again without
 * these operations, so no caller sees this error. */
truce_status truce__combine_run(struct combine *combine, struct writer *writer, bool *relaxed,
                                bson_error_t *error);

/* Answers the requests of a transaction that was committed, or returns those of one that failed.
 * Refused requests are returned in both cases. Called after the transaction, under the lock. */
void truce__combine_committed(struct combine *combine, uint64_t promise);
void truce__combine_failed(struct combine *combine);

#endif
