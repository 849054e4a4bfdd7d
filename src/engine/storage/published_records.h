#ifndef TRUCE_ENGINE_STORAGE_PUBLISHED_RECORDS_H
#define TRUCE_ENGINE_STORAGE_PUBLISHED_RECORDS_H

/*
 * Writes that wait for the lock in memory that all processes share. The lock holder executes those
 * of other processes together with its own: flat combining (Hendler, Incze, Shavit and Tzafrir,
 * Flat Combining and the Synchronization-Parallelism Tradeoff, SPAA 2010), between processes that
 * can die. The callers define the bytes of a write and of an answer.
 */
#include "engine/storage/kv.h"
#include "engine/storage/write_lock.h"

/* The number of records, and the maximum bytes of the request and of the answer of one record. */
#define RECORDS            64
#define RECORD_REQUEST_MAX 8128
#define RECORD_ANSWER_MAX  8128

enum record_state {
    RECORD_FREE,
    /* The write waits for the holder of the lock. */
    RECORD_PUBLISHED,
    /* The holder of the lock executes the write. */
    RECORD_TAKEN,
    /* The write is committed, and its answer is in the record. */
    RECORD_ANSWERED,
    /* Nothing of the write was done; its own process must execute it. */
    RECORD_RETURNED,
};

struct record;

/* A set of records has a bit for each record. */
static inline uint64_t record_bit(size_t record)
{
    return UINT64_C(1) << record;
}

/* Removes the lowest record from the set, which is not empty. */
static inline size_t record_next(uint64_t *set)
{
    size_t record = (size_t)__builtin_ctzll(*set);

    *set &= *set - 1;
    return record;
}

/* The records as one open store sees them. */
struct records {
    struct lock *lock;
    /* The mapped records, or NULL if they are not mapped. */
    struct record *all;
    /* Whether mapping was tried. It is tried once. */
    bool tried;
    /* The claim of the own record, or -1 if the store has none, because it has not published yet or
     * no record was free. */
    int claim;
    /* Whether claiming was tried. It is tried once. */
    bool claimed;
    /* The number of the own record. */
    size_t own;
    /* The number of the write that was published last. */
    uint64_t number;
};

static inline void truce__records_init(struct records *records, struct lock *lock)
{
    *records = (struct records){.lock = lock, .claim = -1};
}
void truce__records_release(struct records *records);

/* ---- for the owner of a record: one thread at a time, without the lock ---------------------- */

/* Publishes a write of at most RECORD_REQUEST_MAX bytes. Returns false if no record is
 * available. */
bool truce__records_publish(struct records *records, struct bytes request, bool relaxed);

/* Returns the state of the record, or FREE if another program has truncated the file. */
enum record_state truce__records_state(struct records *records);
/* Sleeps until the state differs from `seen`, another process wakes this one, or the time has
 * expired. */
void truce__records_sleep(struct records *records, enum record_state seen, int64_t nanoseconds);

/* Withdraws the write. Returns false if it is taken, answered, or returned already. */
bool truce__records_withdraw(struct records *records);

/* Copies the answer of an answered write. Returns the number of the commit that must be durable
 * (durable.h). */
uint64_t truce__records_answer(struct records *records, struct buffer *answer);

/* Returns whether a returned write should not be published again soon. */
bool truce__records_refused(const struct records *records);

/* Frees the record of an answered or returned write for the next one. */
void truce__records_close(struct records *records);

/* ---- for the holder of the lock ------------------------------------------------------------- */

/* Takes what other processes have published. Returns a bit for each of their records. */
uint64_t truce__records_take(struct records *records);

/* Copies the request of a taken record. */
void truce__records_request(struct records *records, size_t record, struct buffer *request);
bool truce__records_relaxed(struct records *records, size_t record);
/* Stores the answer in the record. Returns false if it is too large. */
bool truce__records_put_answer(struct records *records, size_t record, struct bytes answer);

/* Writes the proof that these records were part of the transaction. Called last in the
 * transaction. */
truce_status truce__records_prove(struct records *records, struct kv *kv, uint64_t taken,
                                  bson_error_t *error);

/* Answers the records `taken` after the commit with the number `promise` (durable.h). Called before
 * the lock is released. */
void truce__records_answer_all(struct records *records, uint64_t taken, uint64_t promise);
/* Returns the records `taken`, whose writes were not committed, and wakes their owners. `refused`
 * is the set of the records that should not be published again soon. Called before the lock is
 * released. */
void truce__records_return_all(struct records *records, uint64_t taken, uint64_t refused);

/* Returns whether a lock holder has died with taken records. */
bool truce__records_orphaned(const struct records *records);
/* Settles the records that a dead lock holder had taken. Answers those that the proof contains.
 * Sets `*lost` to the others, which the caller returns after it has committed the transaction. */
truce_status truce__records_adopt(struct records *records, struct kv *kv, uint64_t promise,
                                  uint64_t *lost, bson_error_t *error);

/* ---- for every process ---------------------------------------------------------------------- */

/* Wakes the owners of these records. */
void truce__records_wake(struct records *records, uint64_t answered);
/* Wakes one process whose write waits for the lock, because the lock is free: the owner of the next
 * published record after the own one, cyclically. */
void truce__records_wake_next(struct records *records);

#endif
