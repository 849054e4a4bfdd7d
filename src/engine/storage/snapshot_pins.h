#ifndef TRUCE_ENGINE_STORAGE_SNAPSHOT_PINS_H
#define TRUCE_ENGINE_STORAGE_SNAPSHOT_PINS_H

/*
 * Who pins the log: a read that lasts keeps what was written since it began in the log. Each open store
 * of each process says in the shared page how many such reads it has, and since when.
 *
 * The log is measured in bytes that were ever written to it, so that a length is a difference of two
 * numbers, however often the log began anew in between.
 */
#include "engine/storage/lock.h"

#define PIN_PAGE_BYTES 4096

/* One store that is open in one process. */
struct pins {
    struct lock *lock; /* without a page, which is so on read-only media: nothing is said */
    int claim;         /* of the home; -1: none yet, or none was free */
    struct lock_pin *home;
    bool tried;
};

/* What is said of the reads of one open store. */
struct pin_facts {
    int process;
    unsigned count, unlimited;
    int64_t since_ms;    /* wall clock, of the oldest */
    uint64_t log_at;     /* truce__pins_log of its beginning */
    uint64_t log_behind; /* bytes written since */
};

void truce__pins_init(struct pins *pins, struct lock *lock);
void truce__pins_release(struct pins *pins);

/* The reads of this store are now so many; the oldest began then. */
void truce__pins_say(struct pins *pins, const struct pin_facts *facts);

/* Who has any, up to `room` of them; returns how many. */
size_t truce__pins_list(const struct lock *lock, struct pin_facts *facts, size_t room);

/* Is there one that shall never be ended? */
bool truce__pins_unlimited(const struct lock *lock);

/* Has anything been written to the log since the oldest of all began? Then it cannot begin anew. */
bool truce__pins_in_the_way(const struct lock *lock);

/* Bytes ever written to the log, and those in it now; 0 without a page. */
uint64_t truce__pins_log(const struct lock *lock);
uint64_t truce__pins_log_length(const struct lock *lock);

/* The log has so many pages now. Under the lock. */
void truce__pins_note_log(struct lock *lock, int pages);

#endif
