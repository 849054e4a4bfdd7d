#ifndef TRUCE_SERVER_PATTERN_HANDLES_H
#define TRUCE_SERVER_PATTERN_HANDLES_H

/*
 * What the library makes once and uses often (a set, a queue), shared by all calls that mean the same: it knows that its
 * indexes are there, and what it has seen of workers that are gone.
 *
 * Invariants:
 *  1. One that is in use is not freed.
 *  2. At most TRUCE_SERVER_HANDLES_MAX are kept; the one that was idle for longest makes room. What finds no room is
 *     made for one call.
 */
#include <stdbool.h>
#include <stdint.h>

struct handles;

struct handle {
    void *thing;
    struct handle *next;
    void (*free)(void *thing);
    char *key;            /* NULL: of one call */
    struct handle *under; /* in use as long as this one is there; NULL: none */
    int users;
    uint64_t used;
};

/* Makes the thing; never fails. */
typedef void *handle_maker(void *arg);

struct handles *handles_new(void);
/* Nobody uses one any more. */
void handles_free(struct handles *handles);

/* The thing of that key, made if there is none. `key` NULL: one for this call. `under`: what the thing is made of, in use by
 * the caller; NULL: nothing. */
struct handle *handles_take(struct handles *handles, const char *key, handle_maker *make, void *arg,
                            void (*free)(void *thing), struct handle *under);
void handles_give(struct handles *handles, struct handle *handle);

#endif
