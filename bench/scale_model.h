#ifndef TRUCE_BENCH_SCALE_MODEL_H
#define TRUCE_BENCH_SCALE_MODEL_H

/*
 * A model of how a pattern scales beyond one machine: it sends the counted messages of an operation
 * to shards, with delays and hot documents. Times are whole nanoseconds and the random numbers have
 * a seed, so a figure is the same on every machine.
 */
#include <stdint.h>
#include <stdio.h>

/* The behavior of an operation while another operation holds the hot document. */
enum scale_turn {
    /* The server executes one write after the other. After a guard that fails, the operation reads
     * again. */
    SCALE_PASSES,
    SCALE_WAITS, /* The write is tried again after a pause. */
    /* One more message aborts the operation, which begins again after a pause. */
    SCALE_AGAIN,
    /* Operations of one process share one read and one write. */
    SCALE_FOLDS
};

struct scale_operation {
    const char *name;
    /* The operation of bench/operations.h whose messages were counted. */
    const char *counted;
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
    int bytes;   /* The bytes of all messages, in both directions. */
    int file_us; /* The time that the only writer of a file needs. */
    const char *key, *hot;
};

/* An operation without a name ends the list. */
extern const struct scale_operation scale_operations[];

struct scale_world {
    int shards; /* The number of shards. 0 means a file on this machine. */
    /* The number of callers. Each begins its next operation when it has the reply to the last
     * one. */
    int callers;
    int in_process; /* The number of callers in a process, which combine their operations. */
    int workers;    /* The number of messages that a shard processes at a time. */
    /* The time that a server in front of the shards adds to an operation (a sidecar). */
    int64_t front_ns;
    int64_t trip_ns;           /* The time of a round trip. */
    int64_t copy_ns;           /* The time until a majority has a write. */
    int64_t read_ns, write_ns; /* The times that a worker needs. */
    int64_t sync_ns;           /* The time of a sync of the file. */
    /* The operations that change the same document, in thousandths. */
    int hot_permille;
    /* The average number of measured operations of a caller. A fourth as many warm up before. */
    int turns;
    uint64_t seed;
};

struct scale_figure {
    double rate; /* Operations per second. */
    int64_t p50_ns, p99_ns;
    double messages; /* Messages per operation. */
    double busiest;  /* The part of the time for which the workers of the busiest shard are busy. */
};

struct scale_figure scale_simulate(const struct scale_operation *operation,
                                   const struct scale_world *world);

/* Returns the parameters of the page: shards of 4 workers, 16 callers for each shard, and round
 * trips of 1 ms. */
struct scale_world scale_world_of(int shards, int hot_permille);

/* Writes the tables of docs/scale.md. */
void scale_write_tables(FILE *file);

#endif
