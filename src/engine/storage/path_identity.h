#ifndef TRUCE_ENGINE_STORAGE_PATH_IDENTITY_H
#define TRUCE_ENGINE_STORAGE_PATH_IDENTITY_H

/*
 * Whether a file may have left its name since that was looked up, by a look at its descriptor: see path_identity.c.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Of one thread at a time. Zero-initialised knows nothing. */
struct sight {
    int64_t
        changed_ns; /* the file's time of change, when its name was looked up last; 0: unknown */
    int64_t looked_ms;
};

/* What fstat of the file says now. True: it stands under its name, as far as can be told without
 * looking there. */
bool truce__sight_same(const struct sight *sight, const struct stat *found);

/* The name was looked up, and the file stood there, after `found` was. */
void truce__sight_keep(struct sight *sight, const struct stat *found);

#endif
