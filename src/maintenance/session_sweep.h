#ifndef TRUCE_MAINTENANCE_SESSION_SWEEP_H
#define TRUCE_MAINTENANCE_SESSION_SWEEP_H

/* The records of sessions (server/session/sessions.h) that nobody asks for any more, a bounded step at a time, in the order of
 * their _id. Safe in any number of processes. */
#include "store/maintenance.h"

struct session_sweep {
    bson_value_t after; /* the last that was looked at; type 0: none */
    bool more;          /* there are records behind it */
};

/* Looks at the next `batch` records, or at the first ones, and removes those that were written before then. */
truce_status truce__session_sweep(truce_store *store, struct session_sweep *sweep, uint32_t batch,
                                  int64_t cutoff_ms, int64_t *removed, bson_error_t *error);
void truce__session_sweep_end(struct session_sweep *sweep);

/* A line of the table in registry.c. */
truce_status truce__session_sweep_step(struct sweep *sweep, bson_error_t *error);

#endif
