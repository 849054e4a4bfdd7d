#ifndef TRUCE_BASE_DIRECTORY_SYNC_H
#define TRUCE_BASE_DIRECTORY_SYNC_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

/* Syncs a directory, so that the names in it are on disk. Returns false with errno on failure. Some
 * file systems do not sync directories, and fail with EINVAL: there, the names need no sync or cannot
 * have one, and the function returns true. */
static inline bool truce__directory_sync(int directory)
{
    return !fsync(directory) || errno == EINVAL;
}

#endif
