#ifndef TRUCE_ENGINE_READ_ONLY_READER_H
#define TRUCE_ENGINE_READ_ONLY_READER_H

/*
 * Reading a store whose files may be read and not written: whether it is at rest, so that the file alone
 * says everything, or somebody has it open, so that the log has to be read, too. Any thread.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "engine/storage/lock.h"

struct read_only_reader {
    char *path, *lock_path;
    pthread_mutex_t mutex;
    int file; /* the lock file; -1: there is none, or it cannot be read */
    bool live;
    unsigned epoch;  /* counts what makes a connection useless */
    int resting;     /* snapshots of the file alone */
    struct stat was; /* the file, when it was last at rest */
};

/* How a connection is opened now, and whether an older one is of use. */
struct read_only_pass {
    unsigned epoch;
    unsigned flags; /* for kv_open */
};

struct read_only_reader *truce__read_only_new(const char *path);
void truce__read_only_free(struct read_only_reader *read_only_reader); /* NULL is allowed */

/* Around each snapshot, opening a connection for it included. While one of the file alone lasts, nobody
 * changes the file. LOCKED: somebody is just changing it. CORRUPT: another file has its name. */
truce_status truce__read_only_begin(struct read_only_reader *read_only_reader,
                                    struct read_only_pass *pass, bson_error_t *error);
void truce__read_only_end(struct read_only_reader *read_only_reader,
                          const struct read_only_pass *pass);

#endif
