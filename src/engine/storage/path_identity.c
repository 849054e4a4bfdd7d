/*
 * Names that need not be looked up.
 *
 * A writer makes sure in each turn that its files are those that others find under their names. To look a
 * name up takes some four times as long as to ask a descriptor (fstat). But who removes a file, moves it, puts another
 * in its place or writes into it changes the time of change (ctime) of that very file, which nobody can set:
 *
 *     look    fstat: is the time what it was when the name was looked up? then it stands there
 *             else: look it up; it stands there? then that time is kept
 *
 * Invariants:
 *  1. A time is kept only if it is older than TICK_NS by then: a file system counts in ticks of the
 *     kernel's, and a change within the same one would not be seen. A younger one is no reason to believe anything, and
 *     the name is looked up.
 *  2. `found` is of before the look at the name: what happens between the two changes a time that is not
 *     kept.
 *  3. After LOOK_MS the name is looked up in any case: where a directory on the way was moved, nothing of the file has
 *     changed; and some file systems know no such times.
 */
#include "engine/storage/path_identity.h"

#include <time.h>

#define TICK_NS INT64_C(20000000) /* two of the longest */
#define LOOK_MS 50

static int64_t sight_now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t changed_ns(const struct stat *found)
{
    return found->st_ctim.tv_sec * INT64_C(1000000000) + found->st_ctim.tv_nsec;
}

bool truce__sight_same(const struct sight *sight, const struct stat *found)
{
    return sight->changed_ns && sight->changed_ns == changed_ns(found) &&
           sight_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000 - sight->looked_ms < LOOK_MS;
}

void truce__sight_keep(struct sight *sight, const struct stat *found)
{
    int64_t changed = changed_ns(found);
    bool settled = sight_now_ns(CLOCK_REALTIME_COARSE) - changed > TICK_NS;

    *sight = (struct sight){.changed_ns = settled ? changed : 0,
                            .looked_ms = sight_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000};
}
