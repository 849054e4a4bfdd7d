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
    /* By write calls, to files. The kernel's count of bytes written to the disk is not usable: with
     * large pages, 8 kB written count as 2 MB. Calls on sockets do not count, except redis' answers
     * of some bytes each. */
    int64_t bytes_written;
    int64_t memory; /* current memory of the processes, shared pages counted once */
};

/* Measures this process (with its children, if they are the callers), and `server` (0: none) with
 * its children. `memory` is slow to measure, and 0 if it is not wanted. */
void usage_take(pid_t server, bool with_children, bool with_memory, struct usage *usage);

/* Measures fdatasync after a write of 4 kB into an existing file in `directory`, repeatedly; always
 * in the same directory. */
void usage_disk(const char *directory, int count, struct histogram *latencies);

#endif
