#ifndef TRUCE_ENGINE_READERS_H
#define TRUCE_ENGINE_READERS_H

/*
 * The reading side of a process: a pool of connections, each with one snapshot at a time.
 *
 * A thread takes the connection that was used last on its processor, so that its caches are warm and no two
 * threads meet on a common lock. Connections are opened as they are needed.
 */
#include <pthread.h>

#include "engine/catalog.h"
#include "engine/read_only_reader.h"
#include "engine/storage/durable.h"

#define READERS_MAX    64
#define READERS_LARGE  8  /* of these have a large cache of pages: those that are opened first */
#define READERS_MIDDLE 32 /* those up to this number have half of that */
#define READERS_SPARE  32 /* connections that wait for a slot: so many transactions come and go */

struct reader {
    struct kv *kv;              /* NULL until it is first used */
    struct catalog *catalog;    /* of the last snapshot; NULL: none yet */
    struct buffer key, id;      /* scratch for lookups */
    struct read_only_pass pass; /* of the connection, and of its snapshot, if there is a guest */
    atomic_uint taken;
};

struct readers {
    char *path;
    unsigned flags;      /* for kv_open */
    int64_t patience_ms; /* for kv_open */
    struct durable *durable;
    struct read_only_reader *read_only_reader; /* NULL: we may write what stands beside the file */
    unsigned processors;                       /* READERS_MAX at most */
    atomic_uint turn;
    atomic_uint waiters;
    atomic_uint opened;
    atomic_llong looked_ms; /* when the file was last looked at (file_identity.h) */
    pthread_mutex_t mutex;
    struct catalog *latest;          /* the last that a reader loaded, under the mutex */
    struct kv *spare[READERS_SPARE]; /* under the mutex, too */
    unsigned spares;
    struct reader all[READERS_MAX];
};

/* `durable` and `guest` stay the caller's. */
void truce__readers_init(struct readers *readers, const char *path, unsigned flags,
                         int64_t patience_ms, struct durable *durable,
                         struct read_only_reader *read_only_reader);
void truce__readers_release(struct readers *readers);

/* A reader in a snapshot of now, all of it durable unless `early`, with the catalog that belongs to it.
 * Give it back soon: a checkpoint waits for it. */
truce_status truce__readers_begin(struct readers *readers, bool early, struct reader **reader,
                                  bson_error_t *error);
void truce__readers_end(struct readers *readers, struct reader *reader);

/* The reader's connection, in its snapshot, and catalog to `taken`; the slot is free, without either. */
void truce__readers_detach(struct readers *readers, struct reader *reader, struct reader *taken);
/* They come back, out of any snapshot: to the slot `home` if that is free and has none, else to those that
 * wait for a slot; or they are closed. `taken` has no connection then. */
void truce__readers_attach(struct readers *readers, struct reader *taken, struct reader *home);

/* The gate: closed, no snapshot of this process is open and none begins. False: somebody read until the
 * deadline (monotonic), and it is open. */
bool truce__readers_close_gate(struct readers *readers, int64_t deadline_ns);
void truce__readers_open_gate(struct readers *readers);

#endif
