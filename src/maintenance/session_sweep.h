#ifndef TRUCE_MAINTENANCE_SESSION_SWEEP_H
#define TRUCE_MAINTENANCE_SESSION_SWEEP_H

/* Removes old records of sessions (server/session/sessions.h), in bounded steps and in the order of
 * their _id. Any number of processes may do so at the same time. */
#include "store/maintenance.h"

struct session_sweep {
    /* The _id of the last record that was examined. Its type is 0 before the first one. */
    bson_value_t after;
    /* Whether more records follow. */
    bool more;
};

/* Returns the name of the collection with the records: that of MongoDB, or another one if the store
 * is a database of a server. */
const char *truce__session_records(const truce_store *store);

/* Examines the next `batch` records and removes those that were written before `cutoff_ms`. */
truce_status truce__session_sweep(truce_store *store, struct session_sweep *sweep, uint32_t batch,
                                  int64_t cutoff_ms, int64_t *removed, bson_error_t *error);
static inline void truce__session_sweep_end(struct session_sweep *sweep)
{
    if (sweep->after.value_type)
        bson_value_destroy(&sweep->after);
    *sweep = (struct session_sweep){0};
}

/* Sweeps the records of sessions; the step of maintenance_registry.c. */
truce_status truce__session_sweep_step(struct sweep *sweep, bson_error_t *error);

#endif
