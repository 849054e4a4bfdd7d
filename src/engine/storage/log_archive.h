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

/* Asks a running archiver to archive now, and without a pause during the next milliseconds (0:
 * once, and an earlier call ends). */
void truce__archive_hurry(struct lock *lock, int milliseconds);

/* Waits up to `milliseconds`, without the lock, until the archive has most of the log. A checkpoint
 * can then move it, and less is left to truce__archive_caught_up, for which writers wait. Returns
 * at once if the target is too slow for the time. */
void truce__archive_prepare(struct lock *lock, int milliseconds);

/* Waits up to `milliseconds` until the archive has the whole log, which may then begin again.
 * Returns true at once if there is no archiver or it does not pin the log, and false at once if its
 * target is too slow for the time. */
bool truce__archive_caught_up(struct lock *lock, const struct kv *kv, int milliseconds);

/* Returns whether an archive has a place in the log, which should therefore stay when the store is
 * closed, so that the next archiver continues. */
bool truce__archive_keeps_log(const struct lock *lock, const struct kv *kv);

/* ---- for the archiver ----------------------------------------------------------------------- */

/* Claims the right to archive the store, until truce__archive_leave or the end of the process.
 * Fails with LOCKED if another process has it; the error names it. */
truce_status truce__archive_enter(struct lock *lock, int *claim, bson_error_t *error);
void truce__archive_leave(struct lock *lock, int claim);

/* Publishes the place up to which the log is archived and after which it is pinned. With NULL, the
 * archiver does not pin the log. */
void truce__archive_publish(struct lock *lock, const struct kv_log_place *place);

/* Returns the number of calls so far that want the archiver to work. */
unsigned truce__archive_calls(const struct lock *lock);
/* Sleeps for so long, or until the number of calls is not `seen` any more. Returns soon while a
 * checkpoint hurries. */
void truce__archive_sleep(struct lock *lock, unsigned seen, int milliseconds);

/* The time of the commit that has this frame: its last one, or the first one if the process that
 * made it died right after. */
struct commit_time {
    /* The generation of the log. */
    uint64_t salts;
    uint32_t frame;
    int64_t time_ms;
};

/* Returns the times of the last commits in their order. If two have the same frame, the first is of
 * a commit that failed. */
size_t truce__archive_commit_times(const struct lock *lock, struct commit_time times[COMMIT_TIMES]);

/* Publishes what is archived: all commits up to the number `durable` (durable.c), and everything
 * that was there at `whole_ns` (monotonic). */
void truce__archive_publish_commit(struct lock *lock, uint64_t durable, int64_t whole_ns,
                                   uint64_t commit, uint32_t generation);
/* Publishes how many bytes of the log are not archived, since when calls to the target fail
 * (monotonic; 0 means that they succeed), and how long a call takes. */
void truce__archive_publish_state(struct lock *lock, uint64_t behind_bytes,
                                  int64_t failing_since_ns, unsigned call_ms);

/* ---- for every process ---------------------------------------------------------------------- */

/* Asks a running archiver to archive now. */
void truce__archive_ask(struct lock *lock);

struct archive_facts {
    /* 0 if the archiver died, and no other one has begun. */
    int process;
    bool pins;
    uint64_t commit, generation;
    /* Bytes of the log that are not archived. */
    uint64_t behind_bytes;
    /* How long something has been missing in the archive, or 0 if it has everything. */
    int64_t behind_ms;
    /* How long calls to the target have been failing; 0 means that they succeed. */
    int64_t failing_ms;
};

/* Returns false if no process archives the store, and the last one ended by itself. */
bool truce__archive_facts(const struct lock *lock, struct archive_facts *facts);

#endif
