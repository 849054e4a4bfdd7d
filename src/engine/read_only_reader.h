#ifndef TRUCE_ENGINE_READ_ONLY_READER_H
#define TRUCE_ENGINE_READ_ONLY_READER_H

/*
 * Reads a store whose files are readable but not writable. It determines whether the store is at
 * rest, so that the file alone is complete, or another process has it open, so that the log must be
 * read, too. Any thread.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "engine/storage/write_lock.h"

struct read_only_reader {
    char *path, *lock_path;
    pthread_mutex_t mutex;
    /* The lock file; -1 if it is missing or not readable. */
    int file;
    bool live;
    /* Changes when older connections become useless. */
    unsigned epoch;
    /* The number of snapshots of the file alone. */
    int resting;
    /* The file when it was last at rest. */
    struct stat was;
};

/* How to open a connection now, and which older connections are still valid. */
struct read_only_pass {
    unsigned epoch;
    /* For truce__kv_open. */
    unsigned flags;
};

struct read_only_reader *truce__read_only_new(const char *path);
/* Frees the read-only reader. NULL is allowed. */
void truce__read_only_free(struct read_only_reader *read_only_reader);

/* Begin and end a snapshot of a read-only reader, including the opening of its connection. During a
 * snapshot of the file alone no process changes the file. Fails with LOCKED while a process changes
 * the file, and with CORRUPT if another file has its name. */
truce_status truce__read_only_begin(struct read_only_reader *read_only_reader,
                                    struct read_only_pass *pass, bson_error_t *error);
void truce__read_only_end(struct read_only_reader *read_only_reader,
                          const struct read_only_pass *pass);

#endif
