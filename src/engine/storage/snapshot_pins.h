#ifndef TRUCE_ENGINE_STORAGE_SNAPSHOT_PINS_H
#define TRUCE_ENGINE_STORAGE_SNAPSHOT_PINS_H

/*
 * The reads that pin the log: a long read keeps everything in the log that was written since it
 * began. Each open store of each process publishes in the shared page how many such reads it has,
 * and since when.
 *
 * The log is measured in bytes that were ever written to it. A length is therefore the difference
 * of two numbers, however often the log began again in between.
 */
#include "engine/storage/write_lock.h"

#define PIN_PAGE_BYTES 4096

/* The pins of one store that is open in one process. */
struct pins {
    /* NULL if the lock has no page (on read-only media); then nothing is published. */
    struct lock *lock;
    /* The claim of the home; -1 if none exists yet or none was free. */
    int claim;
    struct lock_pin *home;
    bool tried;
};

/* Facts about the long reads of one open store. */
struct pin_facts {
    int process;
    unsigned count, unlimited;
    /* Wall clock time of the oldest one. */
    int64_t since_ms;
    /* truce__pins_log when the oldest one began. */
    uint64_t log_at;
    /* Bytes that were written since. */
    uint64_t log_behind;
};

static inline void truce__pins_init(struct pins *pins, struct lock *lock)
{
    *pins = (struct pins){.lock = lock, .claim = -1};
}
void truce__pins_release(struct pins *pins);

/* Publishes the number of long reads of this store and the beginning of the oldest. */
void truce__pins_describe(struct pins *pins, const struct pin_facts *facts);

/* Lists the stores that have any, up to `room` of them. Returns how many. */
size_t truce__pins_list(const struct lock *lock, struct pin_facts *facts, size_t room);

/* Returns whether one of them must never be ended. */
bool truce__pins_unlimited(const struct lock *lock);

/* Returns whether anything was written to the log since the oldest of all began. Then the log
 * cannot begin again. */
bool truce__pins_blocking(const struct lock *lock);

/* Return the bytes that were ever written to the log, and those in it now; 0 without a page. */
uint64_t truce__pins_log(const struct lock *lock);
uint64_t truce__pins_log_length(const struct lock *lock);

/* Records the number of pages in the log. Called under the lock. */
void truce__pins_note_log(struct lock *lock, int pages);

#endif
