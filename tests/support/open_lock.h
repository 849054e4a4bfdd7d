#ifndef TRUCE_TESTS_SUPPORT_OPEN_LOCK_H
#define TRUCE_TESTS_SUPPORT_OPEN_LOCK_H

/* The lock file of a store, opened next to processes that have the store open, or alone. */
#include "base/clock.h"
#include "engine/storage/write_lock.h"

static inline truce_status open_lock(const char *path, struct lock *lock, bson_error_t *error)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + INT64_C(30000000000);
    bool denied;
    truce_status status = truce__lock_enter(path, deadline_ns, lock, &denied, error);

    if (status)
        return status;
    truce__lock_adopt(lock);
    return truce__lock_admit(lock, path, error);
}

#endif
