#ifndef TRUCE_ENGINE_STORAGE_DURABLE_H
#define TRUCE_ENGINE_STORAGE_DURABLE_H

/*
 * Knows which commits are on disk, and waits for the others. The store reports only data that is on
 * disk, regardless of which process wrote it.
 *
 * Commits whose callers wait for the disk are numbered across all processes, from 1. A relaxed
 * commit has no number, and no caller waits for it.
 *
 * See early lock release and flush pipelining: DeWitt et al. 1984; Johnson et al., Aether, 2010.
 */
#include <pthread.h>

#include "base/log_hook.h"
#include "engine/storage/kv.h"
#include "engine/storage/write_lock.h"

struct durable {
    const char *path;
    struct lock *lock;
    /* The receiver of log messages about errors and events that no caller sees. */
    struct log_hook log_hook;
    /* The second descriptor of the log, which is used to sync it. NULL until it is opened. */
    struct kv_log *log;
    /* Guards `syncing`, `begun`, and `ended`. */
    pthread_mutex_t mutex;
    /* A thread of this process is syncing. */
    bool syncing;
    /* The number of the last sync that this process began, and the number of the last one that
     * succeeded. */
    uint64_t begun, ended;
    /* A futex for syncs with even numbers, and one for syncs with odd numbers. It changes when such
     * a sync has ended or is to begin. */
    atomic_uint sync_changes[2];
    /* The number of threads that sleep on each futex or are about to sleep. */
    atomic_uint sleepers[2];
};

/* Initializes the struct. `path` and `lock` belong to the caller and must outlive the struct. While
 * the lock has no page (on read-only media), everything counts as durable. */
void truce__durable_init(struct durable *durable, const char *path, struct lock *lock,
                         const struct log_hook *log_hook);
/* Closes the log. Called when no thread syncs or waits. */
void truce__durable_release(struct durable *durable);

/* Opens the log, which must exist. Without this call the first sync opens it. */
truce_status truce__durable_open(struct durable *durable, bson_error_t *error);

/* Records that a sync has failed. `arg` is the struct durable. Any thread. */
void truce__durable_break(void *arg);

/* Fails with IO if the disk refused a write. The store refuses every call until it is opened
 * again. */
truce_status truce__durable_usable(const struct durable *durable, bson_error_t *error);

/* ---- for the holder of the lock ------------------------------------------------------------- */

/* Restores the numbers after the lock was acquired. No commit is in progress; the previous holder
 * may have died in one. */
void truce__durable_begin(struct durable *durable);

/* Returns the number for the next commit. */
uint64_t truce__durable_promise(struct durable *durable);
/* Records that this commit has returned or failed. */
void truce__durable_written(struct durable *durable);

/* ---- for every thread ----------------------------------------------------------------------- */

/* Returns how many syncs this process has begun since it opened the log. */
uint64_t truce__durable_syncs(struct durable *durable);

/* Returns the last number. Every commit that an existing snapshot shows has this number or a
 * smaller one. */
uint64_t truce__durable_promised(const struct durable *durable);

/* Returns when the commits up to this number that were in the log at the time of the call are on
 * disk. A snapshot that began before the call may then be read. Does not depend on the progress of
 * other processes. */
truce_status truce__durable_wait(struct durable *durable, uint64_t number, bson_error_t *error);

/* Returns when all earlier commits are on disk, including relaxed ones. */
truce_status truce__durable_sync(struct durable *durable, bson_error_t *error);

#endif
