#ifndef TRUCE_BENCH_SCALE_MODEL_H
#define TRUCE_BENCH_SCALE_MODEL_H

/*
 * How far a pattern scales beyond one machine: the model sends its counted messages to shards, with
 * delays and hot documents. Times are whole nanoseconds and the random numbers have a seed, so a
 * figure is the same on every machine.
 */
#include <stdint.h>
#include <stdio.h>

/* The behavior of an operation while another operation holds the hot document. */
enum scale_turn {
    /* the server executes one write after the other; a guard that fails reads again */
    SCALE_PASSES,
    SCALE_WAITS, /* the write is tried again, after a pause */
    SCALE_AGAIN, /* one more message aborts it, and it begins again after a pause */
    SCALE_FOLDS  /* operations of one process share one read and one write */
};

struct scale_operation {
    const char *name;
    const char *counted; /* the operation of bench/operations.h whose messages were counted */
    /*
     * One letter for each message, in order:
     *
     *     r w   reads, writes a document anywhere
     *     R W   the same, of a collection that is on one shard, however many shards exist
     *     l     reads the document that may be hot
     *     h     writes it
     *     g     writes it if unchanged since the read, or the beginning; else goes (back) to a read
     *     t f   locks it until it is released; writes and releases it
     *
     * L, H, G, T, F: the same, on that one shard.
     */
    const char *steps;
    enum scale_turn turn;
    int bytes;   /* The bytes of all messages in both directions. */
    int file_us; /* The time of the file's only writer. */
    const char *key, *hot;
};

extern const struct scale_operation scale_operations[]; /* up to one without a name */

struct scale_world {
    int shards;     /* 0: a file, on this machine */
    int callers;    /* each begins its next operation when it has the answer to the last */
    int in_process; /* callers of one process: those that fold */
    int workers;    /* messages that a shard works on at a time */
    /* The time that a server in front of the shards adds to an operation (a sidecar). */
    int64_t front_ns;
    int64_t trip_ns;           /* The time of a round trip. */
    int64_t copy_ns;           /* until a majority has a write */
    int64_t read_ns, write_ns; /* The times of a worker. */
    int64_t sync_ns;           /* The time of a sync of the file. */
    int hot_permille;          /* The part of the operations that change the same document. */
    /* measured operations of a caller, on average, after a fourth as many for the warm-up */
    int turns;
    uint64_t seed;
};

struct scale_figure {
    double rate; /* operations a second */
    int64_t p50_ns, p99_ns;
    double messages; /* an operation */
    double busiest;  /* part of its time that the busiest shard's workers are busy */
};

struct scale_figure scale_simulate(const struct scale_operation *operation,
                                   const struct scale_world *world);

/* The world of the page: shards of 4 workers, 16 callers for each, 1 ms there and back. */
struct scale_world scale_world_of(int shards, int hot_permille);

/* The tables of docs/scale.md. */
void scale_write_tables(FILE *file);

#endif
