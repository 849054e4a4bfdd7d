#ifndef TRUCE_ENGINE_STORAGE_LOG_ARCHIVE_H
#define TRUCE_ENGINE_STORAGE_LOG_ARCHIVE_H

/*
 * The archiver of a store shares two facts with its writers and checkpoints, through the shared
 * page of the lock file. These are how far the log is archived, and the times of the last commits.
 */
#include "engine/storage/kv.h"
#include "engine/storage/write_lock.h"

/* ---- for the writer that holds the lock ----------------------------------------------------- */

/* Records the time of the commit that this connection is about to make: the wall clock. Called
 * before each commit. */
void truce__archive_note_begin(struct lock *lock, const struct kv *kv);
/* Records where in the log this commit ends. If it failed, this need not be called. */
void truce__archive_note_commit(struct lock *lock, const struct kv *kv);

/* Requests that a running archiver works now, and without a pause during the next `milliseconds`.
 * With 0, the archiver works once, and an earlier request ends. */
void truce__archive_hurry(struct lock *lock, int milliseconds);

/* Waits up to `milliseconds`, without the lock, until the archive has most of the log. A checkpoint
 * can then move it, and less is left to truce__archive_caught_up, for which writers wait. Returns
 * at once if the target is too slow for the time, or calls to it fail. */
void truce__archive_prepare(struct lock *lock, int milliseconds);

/* Waits up to `milliseconds` until the archive has the whole log, which may then begin again.
 * Returns true at once if there is no archiver or it does not pin the log. Returns false at once if
 * its target is too slow for the time, or calls to it fail. */
bool truce__archive_caught_up(struct lock *lock, const struct kv *kv, int milliseconds);

/* Returns whether the archive has a position in the log, and the log is short. The log should then
 * stay when the store is closed, so that the next archiver continues there. */
bool truce__archive_keeps_log(const struct lock *lock, const struct kv *kv);

/* ---- for the archiver ----------------------------------------------------------------------- */

/* Claims the right to archive the store, until truce__archive_leave or the end of the process.
 * Fails with LOCKED if another process has it; the error names it. */
truce_status truce__archive_enter(struct lock *lock, int *claim, bson_error_t *error);
void truce__archive_leave(struct lock *lock, int claim);

/* Publishes the position up to which the log is archived and after which it is pinned. If
 * `position` is NULL, the archiver does not pin the log. */
void truce__archive_publish(struct lock *lock, const struct kv_log_position *position);

/* Returns the number of requests so far that an archiver works. */
unsigned truce__archive_calls(const struct lock *lock);
/* Sleeps for `milliseconds`, or until the number of requests differs from `seen`. Returns soon
 * while a checkpoint waits. */
void truce__archive_sleep(struct lock *lock, unsigned seen, int milliseconds);

/* The time of the commit to which a frame belongs. `frame` is the last frame of the commit, or the
 * first one if the process died right after the commit. */
struct commit_time {
    /* The generation of the log. */
    uint64_t salts;
    /* The number of the frame, from 1, and the wall clock time of the commit in milliseconds. */
    uint32_t frame;
    int64_t time_ms;
};

/* Returns the times of the last commits in their order. If two have the same frame, the first is of
 * a commit that failed. */
size_t truce__archive_commit_times(const struct lock *lock, struct commit_time times[COMMIT_TIMES]);

/* Publishes what is archived: all commits up to the number `durable` (durable.c), and everything
 * that was in the log at `whole_ns` (monotonic). */
void truce__archive_publish_commit(struct lock *lock, uint64_t durable, int64_t whole_ns,
                                   uint64_t commit, uint32_t generation);
/* Publishes three facts: the number of bytes of the log that are not archived, the monotonic time
 * since which calls to the target fail (0 if they succeed), and the duration of a call. */
void truce__archive_publish_state(struct lock *lock, uint64_t behind_bytes,
                                  int64_t failing_since_ns, unsigned call_ms);

/* ---- for every process ---------------------------------------------------------------------- */

/* Requests that a running archiver works now. */
void truce__archive_request(struct lock *lock);

struct archive_facts {
    /* The process that archives, or 0 if it died and no other one has begun. */
    int process;
    /* Whether the archiver pins the log. */
    bool pins;
    /* The number and the generation of the last archived commit. */
    uint64_t commit, generation;
    /* The number of bytes of the log that are not archived. */
    uint64_t behind_bytes;
    /* The milliseconds for which a part of the log has been missing in the archive, or 0 if nothing
     * is missing. */
    int64_t behind_ms;
    /* The milliseconds for which calls to the target have been failing, or 0 if they succeed. */
    int64_t failing_ms;
};

/* Reads the facts. Returns false if no process archives the store, and the last one ended by
 * itself. */
bool truce__archive_facts(const struct lock *lock, struct archive_facts *facts);

#endif
