#ifndef TRUCE_ENGINE_CHECKPOINT_H
#define TRUCE_ENGINE_CHECKPOINT_H

/*
 * Moves committed pages from the WAL into the file before the WAL grows long, on a thread of its
 * own, so that no caller's commit waits for one that it asked for itself.
 */
#include "engine/readers.h"
#include "engine/writer.h"

struct checkpointer {
    struct writer *writer;
    struct readers *readers;
    struct kv *kv; /* a connection of its own */
    pthread_mutex_t mutex;
    pthread_cond_t wanted_change;
    bool running, stop; /* there is a thread; it shall end */
    bool wanted;
    atomic_int due; /* pages in the WAL at which the next checkpoint is due */
    pthread_t thread;
    int64_t done; /* checkpoints so far */
    int refused;  /* restarts since the last one that was possible */
};

/* The connection that moves pages: opened before anybody writes, for it must hear of writes that fail. */
truce_status truce__checkpointer_open(const char *path, int64_t patience_ms,
                                      struct durable *durable, struct kv **kv, bson_error_t *error);

/* `kv`: that connection, which is the checkpointer's now. */
void truce__checkpointer_init(struct checkpointer *checkpointer, struct writer *writer,
                              struct readers *readers, struct kv *kv);
/* Ends the thread. */
void truce__checkpointer_release(struct checkpointer *checkpointer);

/* After each commit; the thread is started the first time that it is needed. */
void truce__checkpointer_note(struct checkpointer *checkpointer, int wal_pages);

/* A checkpoint now, however short the log is, by the thread, which may give it up. */
void truce__checkpointer_ask(struct checkpointer *checkpointer);

/* Moves pages from the log into the file: who has claimed the checkpoint, or is alone. As truce__kv_checkpoint. */
truce_status truce__checkpoint_move(struct lock *lock, struct kv *kv, bool restart, uint32_t pace,
                                    int *pages, int *moved, bson_error_t *error);

#endif
