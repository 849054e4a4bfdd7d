#ifndef TRUCE_DOCTOR_H
#define TRUCE_DOCTOR_H

/*
 * A look at what a store stands on: the server or the file system, the indexes and shard keys that the
 * patterns need, clocks, commits that nobody brought to their end. Nothing is changed. (truce/sweep.h
 * mends what dead processes left behind.)
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_doctor_report {
    int64_t errors;   /* what truce promises is not kept as things are */
    int64_t warnings; /* it is kept, but something will go wrong or slow */
    int64_t notes;
    bson_t facts;         /* what was found, for people and programs; the caller destroys it */
    uint64_t reserved[4]; /* zeros */
} truce_doctor_report;

/* {level: "error", "warning" or "note", rule, subject, text, change: what to do}; borrowed. */
typedef void truce_doctor_function(const bson_t *finding, void *arg);

/* `report` is always initialised; `function` NULL: only the counts. IO, TIMEOUT: the store does not
 * answer. What the store refuses to tell (rights) is a note, not a failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_doctor(truce_store *store,
                                                      truce_doctor_function *function, void *arg,
                                                      truce_doctor_report *report,
                                                      bson_error_t *error);

TRUCE_END_DECLS

#endif
