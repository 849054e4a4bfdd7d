#ifndef TRUCE_OPERATIONS_SHARED_HANDLES_H
#define TRUCE_OPERATIONS_SHARED_HANDLES_H

/*
 * Handles: objects of the library (a set, a queue) that all calls with the same key share. Such an
 * object knows that its indexes exist, and what it has seen of workers that died.
 *
 * Invariants:
 *  1. A handle that is in use is not freed.
 *  2. At most TRUCE_SERVER_HANDLES_MAX handles are cached. The least recently used one makes room.
 *     A handle without room is made for one call.
 */
#include <stdbool.h>
#include <stdint.h>

struct handles;

struct handle {
    /* The object of the library, and the function that frees it. */
    void *thing;
    struct handle *next;
    void (*free)(void *thing);
    /* The key, or NULL if the handle belongs to one call. */
    char *key;
    /* The handle on which the object was made, or NULL. It stays in use as long as this handle
     * exists. */
    struct handle *under;
    /* The number of calls and of other handles that use this handle. */
    int users;
    /* The clock of `handles` at the last use, for the eviction. */
    uint64_t used;
};

/* Makes the object. Never fails. It runs under the mutex of all handles. */
typedef void *handle_maker(void *arg);

struct handles *handles_new(void);
/* Frees all handles. No call may use one. */
void handles_free(struct handles *handles);

/* Returns the handle of the key, and makes it if it does not exist. If `key` is NULL, the handle
 * belongs to this call. `under` is the handle that the object is made on, which the caller uses, or
 * NULL. */
struct handle *handles_take(struct handles *handles, const char *key, handle_maker *make, void *arg,
                            void (*free)(void *thing), struct handle *under);
/* Ends one use. Frees a handle without a key after its last use. */
void handles_return(struct handles *handles, struct handle *handle);

#endif
