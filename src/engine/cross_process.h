#ifndef TRUCE_ENGINE_CROSS_PROCESS_H
#define TRUCE_ENGINE_CROSS_PROCESS_H

/*
 * Operations of one process that another carries out in its turn (storage/records.h), as the writer has them. All of it is the
 * leader's (writer.h).
 */
#include "engine/storage/records.h"

struct write_op;
struct writer;

enum delegated {
    DELEGATED_DONE, /* that is its answer */
    DELEGATED_NOT,  /* its process is to do it; it has changed nothing */
    DELEGATED_HALF, /* the same, but something of it was done */
};

/* How operations of one kind go from one process to another (documents/carry.h). */
struct delegated_kind {
    uint8_t letter; /* which kind it is */
    /* What it is, as bytes; false: nobody else can do this one. */
    bool (*pack)(const struct write_op *op, struct buffer *request);
    /* One of another process, to be run; NULL: those bytes are none. */
    struct write_op *(*open)(void *arg, struct bytes request);
    /* Of one that has run: appends what its process is to be told. */
    enum delegated (*answer)(const struct write_op *op, struct buffer *answer);
    void (*close)(struct write_op *op);
    /* What has come of it there, instead of `run`; false: those bytes say nothing of it. */
    bool (*unpack)(struct write_op *op, struct bytes answer);
};

struct combine {
    struct records records;
    const struct delegated_kind *const
        *kinds; /* all kinds, and NULL at the end; NULL: everybody does his own */
    void *arg;
    struct buffer bytes, answer;
    unsigned added;         /* operations in the request */
    unsigned pause, pauses; /* groups that are not published, since one was returned */

    bool served; /* in this turn */
    /* of its transaction, a bit for each record */
    uint64_t taken, refused, relaxed;

    atomic_ullong
        delegated; /* records of others whose writes were committed here, since the store was opened, ... */
    atomic_ullong sent; /* ... and own ones that others have */
};

void truce__combine_init(struct combine *combine, struct lock *lock);
void truce__combine_release(struct combine *combine);

/* ---- who has operations to be carried out --------------------------------------------------- */

/* Is it time to try? */
bool truce__combine_wanted(struct combine *combine);

/* Puts one more into the request; false: it does not fit, or nobody else can do it. */
void truce__combine_begin(struct combine *combine);
bool truce__combine_add(struct combine *combine, const struct write_op *op);
/* False: there is no record for it now. */
bool truce__combine_publish(struct combine *combine, bool relaxed);

/* Of what was answered: tells each of the group, and frees the record. `*promise`: what has to be durable. */
void truce__combine_tell(struct combine *combine, struct write_op *group, uint64_t *promise);
/* What was returned: the record is free. */
void truce__combine_take_back(struct combine *combine);

/* ---- who has the turn ----------------------------------------------------------------------- */

/* Before a transaction: it has taken nothing yet. */
void truce__combine_forget(struct combine *combine);

/* In the transaction, behind what is the leader's own: takes what others have published, and runs it. `*relaxed`
 * becomes false if one of them is not. A failure: as of an operation of the group, but for none of them. */
truce_status truce__combine_run(struct combine *combine, struct writer *writer, bool *relaxed,
                                bson_error_t *error);

/* Afterwards, under the lock: the transaction was committed, or not. */
void truce__combine_committed(struct combine *combine, uint64_t promise);
void truce__combine_failed(struct combine *combine);

#endif
