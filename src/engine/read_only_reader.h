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
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* The descriptor of the lock file, or -1 if the file is missing or not readable. */
    int file;
    /* Whether snapshots use the log. Otherwise they read the file alone. */
    bool live;
    /* A connection that was opened in an earlier epoch must be opened again. */
    unsigned epoch;
    /* The number of snapshots that read the file alone. */
    int resting;
    /* The status of the file when a snapshot of the file alone last began. */
    struct stat was;
};

/* How to open a connection now, and which older connections are still valid. */
struct read_only_pass {
    unsigned epoch;
    /* The flags for truce__kv_open. */
    unsigned flags;
};

struct read_only_reader *truce__read_only_new(const char *path);
/* Frees the read-only reader. NULL is allowed. */
void truce__read_only_free(struct read_only_reader *read_only_reader);

/* Begins and ends a snapshot of a read-only reader, including the opening of its connection. During
 * a snapshot of the file alone no process changes the file. Fails with LOCKED while a process
 * changes the file, with CORRUPT if its name leads to another file, and with IO if the files cannot
 * be examined. */
truce_status truce__read_only_begin(struct read_only_reader *read_only_reader,
                                    struct read_only_pass *pass, bson_error_t *error);
void truce__read_only_end(struct read_only_reader *read_only_reader,
                          const struct read_only_pass *pass);

#endif
