#ifndef TRUCE_ENGINE_STORAGE_DURABLE_H
#define TRUCE_ENGINE_STORAGE_DURABLE_H

/*
 * Which commits are on the disk, and waiting for those that are not: what is told to anybody was
 * written to the disk before, whoever wrote it.
 *
 * Commits that promise to wait for the disk are numbered across all processes, from 1. A commit that
 * is relaxed has no number, and nobody waits for it.
 *
 * Early lock release and flush pipelining: DeWitt et al. 1984; Johnson et al., Aether, 2010.
 */
#include <pthread.h>

#include "base/log_hook.h"
#include "engine/storage/kv.h"
#include "engine/storage/lock.h"

struct durable {
    const char *path;
    struct lock *lock;
    struct notices notices; /* who hears what is wrong, or happens by itself */
    struct kv_log *log;     /* NULL: not open yet */
    pthread_mutex_t mutex;  /* over what follows */
    bool syncing;
    uint64_t begun, ended; /* syncs of this process that began; of those that succeeded, the last */
    atomic_uint
        rounds[2]; /* change when a sync of even, or odd, number has ended, or is to begin */
    atomic_uint sleepers[2]; /* threads that sleep on each, or are about to */
};

/* `path` and `lock` stay the caller's, and there. As long as the lock has no page, which is so on read-only
 * media, everything counts as durable. */
void truce__durable_init(struct durable *durable, const char *path, struct lock *lock,
                         const struct notices *notices);
void truce__durable_release(struct durable *durable);

/* Opens the log, which there must be; else it is opened by the first sync. */
truce_status truce__durable_open(struct durable *durable, bson_error_t *error);

/* A sync has failed; `arg` is the struct durable. Any thread. */
void truce__durable_break(void *arg);

/* IO: the disk refused what was written, nobody may use the store until it is opened anew. */
truce_status truce__durable_usable(const struct durable *durable, bson_error_t *error);

/* ---- who holds the lock ---------------------------------------------------------------------- */

/* The lock was taken: no commit is on its way, whoever had it may have died in one. */
void truce__durable_begin(struct durable *durable);

/* A number for the commit that comes next ... */
uint64_t truce__durable_promise(struct durable *durable);
/* ... which has returned, or failed. */
void truce__durable_written(struct durable *durable);

/* ---- everybody ------------------------------------------------------------------------------- */

/* How many this process has begun since it opened the log. */
uint64_t truce__durable_syncs(struct durable *durable);

/* The last number: all that a snapshot shows that was begun before has it, or a smaller one. */
uint64_t truce__durable_promised(const struct durable *durable);

/* Returns when the commits up to that number are on the disk, as far as they were in the log when it was
 * called: a snapshot that was begun before may be looked at. Needs no other process to go on. */
truce_status truce__durable_wait(struct durable *durable, uint64_t number, bson_error_t *error);

/* Returns when all commits that have returned before are on the disk, also those that are relaxed. */
truce_status truce__durable_sync(struct durable *durable, bson_error_t *error);

#endif
