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
    /* The lock file. If it has no page (on read-only media), nothing is published. */
    struct lock *lock;
    /* The claim of the slot, or -1 if the store has none, because it had no long read yet or no
     * slot was free. */
    int claim;
    /* The slot in the shared page. */
    struct lock_pin *slot;
    /* Whether claiming a slot was tried. */
    bool tried;
};

/* Facts about the long reads of one open store. */
struct pin_facts {
    /* The process that has the store open. */
    int process;
    /* The number of long reads, and the number of those that never expire. */
    unsigned count, unlimited;
    /* The wall clock time in milliseconds at which the oldest one began. */
    int64_t since_ms;
    /* The value of truce__pins_log when the oldest one began. */
    uint64_t log_at;
    /* The number of bytes written to the log since then. */
    uint64_t log_behind;
};

static inline void truce__pins_init(struct pins *pins, struct lock *lock)
{
    *pins = (struct pins){.lock = lock, .claim = -1};
}
void truce__pins_release(struct pins *pins);

/* Publishes the number of long reads of this store and the beginning of the oldest. */
void truce__pins_describe(struct pins *pins, const struct pin_facts *facts);

/* Lists the open stores with long reads, at most `room` of them. Returns their number. */
size_t truce__pins_list(const struct lock *lock, struct pin_facts *facts, size_t room);

/* Returns whether a long read of any store never expires. */
bool truce__pins_unlimited(const struct lock *lock);

/* Returns whether anything was written to the log since the oldest long read of any store began.
 * Then the log cannot begin again. */
bool truce__pins_blocking(const struct lock *lock);

/* Returns the number of bytes that were ever written to the log, and the number of bytes in it now.
 * Returns 0 if the lock file has no page. */
uint64_t truce__pins_log(const struct lock *lock);
uint64_t truce__pins_log_length(const struct lock *lock);

/* Records the number of pages in the log. Called under the lock. */
void truce__pins_note_log(struct lock *lock, int pages);

#endif
