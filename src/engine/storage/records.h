#ifndef TRUCE_ENGINE_STORAGE_RECORDS_H
#define TRUCE_ENGINE_STORAGE_RECORDS_H

/*
 * Writes that wait for the lock in memory that all processes share, so that whoever has it carries out those of others
 * with his own: flat combining (Hendler, Incze, Shavit and Tzafrir, Flat Combining and the Synchronization-Parallelism
 * Tradeoff, SPAA 2010), between processes that die. What the bytes of a write and of an answer say is their callers'.
 */
#include "engine/storage/kv.h"
#include "engine/storage/lock.h"

#define RECORDS            64
#define RECORD_REQUEST_MAX 8128
#define RECORD_ANSWER_MAX  8128

enum record_state {
    RECORD_FREE,
    RECORD_PUBLISHED, /* its write waits for whoever has the lock */
    RECORD_TAKEN,     /* who has the lock carries it out */
    RECORD_ANSWERED,  /* it is committed, and its answer is there */
    RECORD_RETURNED,  /* nothing of it was done: its process is to do it */
};

struct record;

/* Records as a set: a bit for each. */
static inline uint64_t record_bit(size_t record)
{
    return UINT64_C(1) << record;
}

/* Takes the lowest out of the set, which is not empty. */
static inline size_t record_next(uint64_t *set)
{
    size_t record = (size_t)__builtin_ctzll(*set);

    *set &= *set - 1;
    return record;
}

/* The records as one store sees them that is open in one process. */
struct records {
    struct lock *lock;
    struct record *all; /* mapped; NULL: not yet, or it cannot be */
    bool tried;         /* ... to be mapped */
    int claim;          /* of the own record; -1: none yet, or none was free */
    bool claimed;       /* ... it was tried */
    size_t own;
    uint64_t number; /* of the last write that was published */
};

void truce__records_init(struct records *records, struct lock *lock);
void truce__records_release(struct records *records);

/* ---- who has a write to be carried out: one thread at a time, without the lock --------------- */

/* Publishes it, of RECORD_REQUEST_MAX bytes at most. False: there is no record for it now. */
bool truce__records_publish(struct records *records, struct bytes request, bool relaxed);

/* What has become of it; FREE: somebody has cut the file. */
enum record_state truce__records_look(struct records *records);
/* Until that has changed, somebody wakes us, or the time is over. */
void truce__records_sleep(struct records *records, enum record_state seen, int64_t nanoseconds);

/* It is not published any more; false: it is taken, answered or returned. */
bool truce__records_withdraw(struct records *records);

/* Of one that was answered, copied: its answer, and the number of the commit that has to be durable (durable.h). */
uint64_t truce__records_answer(struct records *records, struct buffer *answer);

/* Of one that was returned: is it not to come again soon? */
bool truce__records_refused(const struct records *records);

/* What was answered or returned is settled: the record can be used again. */
void truce__records_close(struct records *records);

/* ---- who has the lock ------------------------------------------------------------------------- */

/* Takes what others have published, as a bit for each of their records. */
uint64_t truce__records_take(struct records *records);

/* Of one that is taken, copied. */
void truce__records_request(struct records *records, size_t record, struct buffer *request);
bool truce__records_relaxed(struct records *records, size_t record);
/* False: it is too large. */
bool truce__records_put_answer(struct records *records, size_t record, struct bytes answer);

/* In the transaction that carries them out, the last thing in it: the proof that these were part of it. */
truce_status truce__records_prove(struct records *records, struct kv *kv, uint64_t taken,
                                  bson_error_t *error);

/* Before the lock is let go; after the commit, `promise` being its number (durable.h), ... */
void truce__records_answer_all(struct records *records, uint64_t taken, uint64_t promise);
/* ... or where there was none, or it failed; those that were refused are not to come again soon. */
void truce__records_return_all(struct records *records, uint64_t taken, uint64_t refused);

/* Has one who had the lock died over what he had taken? */
bool truce__records_orphaned(const struct records *records);
/* In a transaction: answers those of them of which there is proof. The others are in `*lost`: behind a commit of the
 * transaction they are to be returned. */
truce_status truce__records_adopt(struct records *records, struct kv *kv, uint64_t promise,
                                  uint64_t *lost, bson_error_t *error);

/* ---- anybody ------------------------------------------------------------------------------------ */

/* Who waits for these. */
void truce__records_wake(struct records *records, uint64_t answered);
/* One of those whose writes wait, behind ours in turn, for the lock is free. */
void truce__records_wake_next(struct records *records);

#endif
