#ifndef TRUCE_DOCTOR_H
#define TRUCE_DOCTOR_H

/*
 * Diagnosis of a store's environment.
 *
 * truce_doctor examines the server or the file system, the indexes and shard keys that the patterns
 * need, the clocks, and commits that were never completed. It changes nothing. truce/sweep.h
 * repairs the state that dead processes leave.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_doctor_report {
    /* Conditions that break a guarantee of truce. */
    int64_t errors;
    /* Conditions under which the guarantees hold, but which will cause failures or slow calls. */
    int64_t warnings;
    /* Other observations. */
    int64_t notes;
    /* The facts found, for people and programs. The caller destroys it. */
    bson_t facts;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_doctor_report;

/* Receives a finding, which is borrowed: {level: "error", "warning" or "note", rule, subject, text,
 * change: what to do}. */
typedef void truce_doctor_function(const bson_t *finding, void *arg);

/* Diagnoses the store. `report` is always initialized. If `function` is NULL, the call only counts
 * the findings. If the store does not reply, the call fails with TRUCE_IO or TRUCE_TIMEOUT. If the
 * store refuses a query (missing privileges), that is a note, not a failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_doctor(truce_store *store,
                                                      truce_doctor_function *function, void *arg,
                                                      truce_doctor_report *report,
                                                      bson_error_t *error);

TRUCE_END_DECLS

#endif
