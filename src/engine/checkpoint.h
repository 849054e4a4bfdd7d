#ifndef TRUCE_ENGINE_CHECKPOINT_H
#define TRUCE_ENGINE_CHECKPOINT_H

/*
 * Moves committed pages from the WAL into the file before the WAL grows long. This happens on a
 * thread of its own, so that no commit waits for a checkpoint that it has triggered.
 */
#include "engine/reader_pool.h"
#include "engine/writer.h"

struct checkpointer {
    struct writer *writer;
    struct readers *readers;
    /* The connection that moves pages. Owned; used by the thread of the checkpointer. */
    struct kv *kv;
    /* Guards `running`, `stop`, `wanted`, and `done`. */
    pthread_mutex_t mutex;
    /* Signaled when a checkpoint is requested, or the thread must end. */
    pthread_cond_t wanted_change;
    /* `running`: the thread exists. `stop`: the thread must end. */
    bool running, stop;
    /* A checkpoint was requested and has not ended. */
    bool wanted;
    /* The number of pages in the WAL at which the next checkpoint is due. */
    atomic_int due;
    pthread_t thread;
    /* The number of completed checkpoints. */
    int64_t done;
    /* The number of checkpoints that have not restarted the WAL since it last restarted. One that a
     * pin or the archive blocked does not count. Used, without the mutex, by the thread that makes
     * the checkpoint. */
    int refused;
};

/* Opens the connection that moves pages. Called before any write, because the connection must
 * receive errors of failed writes. */
truce_status truce__checkpointer_open(const char *path, int64_t busy_timeout_ms,
                                      struct durable *durable, struct kv **kv, bson_error_t *error);

/* Initializes the checkpointer. The checkpointer takes over the connection `kv`. */
void truce__checkpointer_init(struct checkpointer *checkpointer, struct writer *writer,
                              struct readers *readers, struct kv *kv);
/* Ends the thread and waits for its end. Closes the connection. */
void truce__checkpointer_release(struct checkpointer *checkpointer);

/* Asks for a checkpoint if the log, with `wal_pages`, has become long enough for one. Called after
 * each commit. Starts the thread when it is first needed. */
void truce__checkpointer_note(struct checkpointer *checkpointer, int wal_pages);

/* Asks the thread for a checkpoint now, regardless of the length of the log. The thread may give it
 * up. */
void truce__checkpointer_request(struct checkpointer *checkpointer);

/* Moves pages from the log into the file as truce__kv_checkpoint does. The caller has claimed the
 * checkpoint or is alone. */
truce_status truce__checkpoint_move(struct lock *lock, struct kv *kv, bool restart, uint32_t pace,
                                    int *pages, int *moved, bson_error_t *error);

#endif
