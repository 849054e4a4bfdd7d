#ifndef TRUCE_ENGINE_READER_POOL_H
#define TRUCE_ENGINE_READER_POOL_H

/*
 * The reading side of a process: a pool of connections, each with one snapshot at a time.
 *
 * A thread takes the connection that was last used on its processor, so that its caches are warm
 * and threads do not contend for a common lock. Connections are opened when they are needed.
 */
#include <pthread.h>

#include "engine/catalog.h"
#include "engine/read_only_reader.h"
#include "engine/storage/durable.h"

/* The number of slots. */
#define READERS_MAX 64
/* The maximum number of open connections without a slot. A transaction can begin and end with a
 * spare connection, without opening one. */
#define READERS_SPARE 32

struct reader {
    /* The connection. NULL until the slot is first used, and after the connection has left it
     * (truce__readers_detach). */
    struct kv *kv;
    /* The catalog of the last snapshot. NULL before the first one, and after it has left the
     * slot. */
    struct catalog *catalog;
    /* Scratch memory for lookups. */
    struct buffer key, id;
    /* For a read-only reader: the pass in which the connection was opened, or its snapshot
     * began. */
    struct read_only_pass pass;
    /* The number of reads that have ended on this slot. */
    unsigned ended;
    /* The slot is free, and its connection is still in a snapshot. */
    atomic_bool rests;
    /* A thread or the gate has the slot. */
    atomic_uint taken;
};

struct readers {
    char *path;
    /* The flags for truce__kv_open. */
    unsigned flags;
    /* The busy timeout for truce__kv_open, in milliseconds. */
    int64_t busy_timeout_ms;
    struct durable *durable;
    /* The table of valid bodies for truce__kv_set_validator. */
    struct seen *seen;
    /* The shared pages for truce__kv_share. */
    struct page_cache *pages;
    /* How to read without permission to write, or NULL if the files next to the store are
     * writable. */
    struct read_only_reader *read_only_reader;
    /* The number of processors, at most READERS_MAX. A row of the pool has as many slots. */
    unsigned processors;
    /* A futex that changes when a slot becomes free while a thread waits. */
    atomic_uint slot_freed;
    /* The number of threads that wait for a slot. */
    atomic_uint waiters;
    /* The time of the last check of the files, in milliseconds (file_identity.h). */
    atomic_llong checked_ms;
    /* `frequent`: reads are frequent. `may_rest`: connections may rest. `moving`: a checkpoint is
     * moving pages. */
    atomic_bool frequent, may_rest, moving;
    /* Guards the fields below, except `all`. */
    pthread_mutex_t mutex;
    /* The last catalog that a reader loaded, or NULL. */
    struct catalog *latest;
    /* Open connections that have no slot. */
    struct kv *spare[READERS_SPARE];
    unsigned spares;
    struct reader all[READERS_MAX];
};

/* Initializes the pool. `durable`, `seen`, `pages`, and `read_only_reader` belong to the caller. */
void truce__readers_init(struct readers *readers, const char *path, unsigned flags,
                         int64_t busy_timeout_ms, struct durable *durable, struct seen *seen,
                         struct page_cache *pages, struct read_only_reader *read_only_reader);
/* Ends the resting snapshots and closes all connections. Called when no slot is taken and no
 * snapshot is kept. */
void truce__readers_release(struct readers *readers);

/* Returns a reader in a snapshot of current data, all of it durable unless `early`, with the
 * matching catalog. The caller ends the read soon: a checkpoint waits for it. */
truce_status truce__readers_begin(struct readers *readers, bool early, struct reader **reader,
                                  bson_error_t *error);
/* Ends the snapshot and frees the slot. */
void truce__readers_end(struct readers *readers, struct reader *reader);

/* Ends the read as truce__readers_end does, but the connection rests if it may. Returns whether
 * reads have become frequent: a thread then calls truce__readers_tick a few times a second, until
 * it returns false. */
bool truce__readers_rest(struct readers *readers, struct reader *reader);
/* Ends the snapshots that rest, and decides whether connections may rest until the next call. One
 * thread at a time. */
bool truce__readers_tick(struct readers *readers);
/* Called before a checkpoint moves pages: ends the resting snapshots. Until truce__readers_moved,
 * connections do not begin to rest. The only exception is the connection of a thread that has read
 * the old value of `moving`; the next tick ends its snapshot. */
void truce__readers_moving(struct readers *readers);
static inline void truce__readers_moved(struct readers *readers)
{
    atomic_store(&readers->moving, false);
}

/* Moves the reader's connection, in its snapshot, and its catalog to `taken`. The slot becomes free
 * and has neither. */
void truce__readers_detach(struct readers *readers, struct reader *reader, struct reader *taken);
/* Takes back the connection of `taken`, whose snapshot has ended. It goes to the slot `home` if
 * that is free and has no connection, otherwise to the spare ones if there is room; otherwise it is
 * closed. A read-only reader always closes it. The catalog is released. `taken` then has
 * neither. */
void truce__readers_attach(struct readers *readers, struct reader *taken, struct reader *home);

/* Closes the gate and waits for the open reads. While the gate is closed, no slot has a snapshot
 * and none begins. Kept snapshots (snapshots.h) stay open: they have left their slots. Returns
 * false, with the gate open, if a read lasted until the deadline (monotonic). */
bool truce__readers_close_gate(struct readers *readers, int64_t deadline_ns);
void truce__readers_open_gate(struct readers *readers);

#endif
