#ifndef TRUCE_BENCH_USAGE_H
#define TRUCE_BENCH_USAGE_H

/*
 * The costs of a target besides time, from /proc: of its process, and of its server's processes if
 * it has a server.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/histogram.h"

struct usage {
    double cpu_seconds;
    /* The bytes that write calls have written to files. The kernel's count of bytes written to the
     * disk is not usable: with large pages, 8 kB written count as 2 MB. Calls on sockets do not
     * count, except Redis's replies of some bytes each. */
    int64_t bytes_written;
    /* The current memory of the processes. Shared pages count once. */
    int64_t memory;
};

/* Measures this process (with its children, if they are the callers), and `server` (0 means none)
 * with its children. Measuring `memory` is slow; it is 0 unless requested. */
void usage_take(pid_t server, bool with_children, bool with_memory, struct usage *usage);

/* Measures fdatasync after a write of 4 kB into an existing file in `directory`, `count` times. All
 * calls use the same directory. */
void usage_disk(const char *directory, int count, struct histogram *latencies);

#endif
