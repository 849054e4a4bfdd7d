#ifndef TRUCE_TESTS_SUPPORT_ARCHIVE_RIG_H
#define TRUCE_TESTS_SUPPORT_ARCHIVE_RIG_H

/* A store in a file, an archiver on a thread, and a target that fails or dies at a call. */
#include <pthread.h>
#include <stdatomic.h>

#include "archive/archive.h"

/* A target that passes the calls to `real`, and fails or dies at one of them. */
struct faulty {
    /* The first member, so that the target can be cast. */
    struct target base;
    struct target *real;
    /* Counts down; the call that reaches 0 has the fault. */
    atomic_int until;
    /* The fault: the call fails without or after its effect, or the process dies before or after
     * it. */
    enum {
        FAULT_NONE,
        FAULT_FAIL_BEFORE,
        FAULT_FAIL_AFTER,
        FAULT_DIE_BEFORE,
        FAULT_DIE_AFTER
    } kind;
    /* All calls fail while this is true. */
    atomic_bool down;
    /* A call that stores a segment waits while this is true. */
    atomic_bool stuck;
    /* Only segments of bases fail. */
    atomic_bool no_base;
    /* The number of calls so far. */
    atomic_int calls;
};

extern struct archive_world {
    char path[300], archive[300], restored[300];
    uint8_t id[SEGMENT_STORE_BYTES];
    struct target *target;
    struct faulty faulty;
    truce_store *store;
    /* The archiver's thread. */
    pthread_t thread;
    atomic_int stop;
    /* The writer ends. */
    atomic_bool written;
    struct archive_options options;
    truce_status status;
    bson_error_t error;
    atomic_int events[ARCHIVE_REMOVED + 1];
} world;

/* Opens a store and a directory as its archive, both new. */
bool environment_open(void);
void world_close(void);
/* Closes the store and removes its log, which the archive continues. The file has everything. */
void world_lose_log(void);
/* Returns the world's target with a fault, or without one until `world.faulty.down`. */
struct target *world_faulty(int kind, int until);

/* Archives once, in the calling thread. */
truce_status archive_once(struct target *target, bson_error_t *error);
/* Starts the archiver, and ends it; then `world.status` and `world.error` have its result. */
void archiver_start(struct target *target);
void archiver_end(void);
/* Waits until the archiver has reported the event `count` times. Returns false, and fails the test,
 * if this takes more than about 10 seconds. */
bool wait_for_event(enum archive_event event, int count);

/* Inserts documents with these ids and a string of `pad` bytes. */
bool insert_one(int id, int pad);
bool insert_many(int first, int last, int pad);

/* Restores into the file of the world. */
truce_status restore_to(const struct restore_options *options, struct restore_report *report,
                        bson_error_t *error);
/* Returns n if the restored store has the things 1 to n and nothing else, and its check finds
 * nothing; otherwise -1. */
int restored_things(void);
/* Restores the last commit, and does the same. */
int restored_last(void);
/* Checks that the verification of the archive finds nothing. */
bool verifies(void);

#endif
