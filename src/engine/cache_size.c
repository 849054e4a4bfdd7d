#include "engine/cache_size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"

#define MB (UINT64_C(1) << 20)

/* UINT64_MAX: there is no such limit. */
static uint64_t size_read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long bytes;
    bool read;

    if (!file)
        return UINT64_MAX;
    read = fscanf(file, "%llu", &bytes) == 1; /* or "max" */
    fclose(file);
    return read ? bytes : UINT64_MAX;
}

/* The machine's, or what a container may have of it. */
static uint64_t memory(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    uint64_t least = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t limit = size_read_limit(limits[i]);

        least = limit < least ? limit : least;
    }
    return least;
}

static uint64_t usual_mb(void)
{
    uint64_t mb = memory() / TRUCE_CACHE_PART / MB;

    if (mb < TRUCE_CACHE_MB_LEAST)
        return TRUCE_CACHE_MB_LEAST;
    return mb < TRUCE_CACHE_MB_MOST ? mb : TRUCE_CACHE_MB_MOST;
}

static bool size_is_number(const char *text)
{
    size_t length = strspn(text, "0123456789");

    return length && length < 10 && !text[length];
}

truce_status truce__cache_size(uint32_t asked_mb, uint64_t *bytes, bson_error_t *error)
{
    const char *set = asked_mb ? NULL : getenv("TRUCE_CACHE_MB");
    uint64_t mb = asked_mb;

    *bytes = 0;
    if (set && *set && !size_is_number(set))
        return truce__fail(TRUCE_INVALID, error,
                           "TRUCE_CACHE_MB is \"%s\", which is no number of megabytes", set);
    if (set && *set)
        mb = strtoull(set, NULL, 10);
    else if (!asked_mb)
        mb = usual_mb();
    if (mb < TRUCE_CACHE_MB_MIN || mb > TRUCE_CACHE_MB_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "a cache of %llu MB is asked for (cache_mb, TRUCE_CACHE_MB): it can have "
            "from %d to %d",
            (unsigned long long)mb, TRUCE_CACHE_MB_MIN, TRUCE_CACHE_MB_MAX);
    *bytes = mb * MB;
    return TRUCE_OK;
}
