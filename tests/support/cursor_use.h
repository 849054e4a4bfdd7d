#ifndef TRUCE_TESTS_SUPPORT_CURSOR_USE_H
#define TRUCE_TESTS_SUPPORT_CURSOR_USE_H

/* The maximum of the cursors of a file, and the times at which they were used, which tests set
 * instead of waiting. */
#include <sys/resource.h>

#include "base/clock.h"
#include "store/file/file.h"
#include "tests/support/test.h"

/* Stores that are opened after this call have the smallest maximum, TRUCE_CURSORS_LEAST. */
static inline void cursor_use_least(void)
{
    struct rlimit files;

    REQUIRE(!getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = 1024;
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &files));
}

/* Sets all cursors of the file, or the one of that number in the order of their begin, to a last use
 * that many seconds in the future. */
static inline void cursor_use_set(truce_store *store, int number, int seconds)
{
    struct snapshots *snapshots = &truce__file_engine(store)->snapshots;
    int64_t used_ns = truce__clock_monotonic_ns() + seconds * INT64_C(1000000000);
    int at = 0;

    pthread_mutex_lock(&snapshots->mutex);
    for (struct snapshot *snapshot = snapshots->first; snapshot; snapshot = snapshot->next) {
        if (snapshot->view || (number >= 0 && number != at++))
            continue;
        pthread_mutex_lock(&snapshot->mutex);
        snapshot->used_ns = used_ns;
        pthread_mutex_unlock(&snapshot->mutex);
    }
    pthread_mutex_unlock(&snapshots->mutex);
}

#endif
