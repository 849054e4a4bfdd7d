#ifndef TRUCE_ARCHIVE_UNARCHIVED_COMMIT_TIMES_H
#define TRUCE_ARCHIVE_UNARCHIVED_COMMIT_TIMES_H

/*
 * The times of the commits that are not archived yet.
 *
 * Writers leave the times of their last commits in the shared page, which has room for about a
 * second (log_archive.c). An archiver can lag by more than that, because its target is slow or its
 * interval is long. A thread therefore copies the times into memory of the archiver.
 */
#include "engine/storage/log_archive.h"

struct commit_times;

/* Starts the thread. `lock` must outlive the result. Returns NULL if the thread cannot be
 * started. */
struct commit_times *truce__commit_times_begin(const struct lock *lock);
/* Ends the thread and frees the times. NULL is allowed. */
void truce__commit_times_end(struct commit_times *times);

/* Drops the times before the first commit of the log generation `salts` that ends after the frame
 * `after`; drops nothing if there is no such commit. Returns the times in memory. The first
 * `*count` of them, in the order of their frames, belong to this generation; times of later
 * generations may follow. The times stay valid and locked until truce__commit_times_release, which
 * the caller must call. */
const struct commit_time *truce__commit_times_after(struct commit_times *times, uint64_t salts,
                                                    uint32_t after, size_t *count);
void truce__commit_times_release(struct commit_times *times);

#endif
