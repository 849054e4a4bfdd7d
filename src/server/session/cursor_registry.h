#ifndef TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H
#define TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H

/* Cursors that clients come back to, by number. */
#include <stdint.h>

#include "truce/store.h"

struct held_cursor {
    int64_t id;           /* 0 until it is kept */
    truce_cursor *cursor; /* its own; NULL: its documents are those of: */
    bson_t *array;        /* its own, too */
    bson_iter_t at;
    bson_t *waiting;     /* was read, and did not fit into the last batch */
    char *place;         /* the namespace as the client knows it */
    int64_t owner;       /* its transaction; 0: none */
    struct past *past;   /* that it reads; NULL: none */
    struct pasts *pasts; /* that has it */
    char *user;          /* who opened it; "": nobody had logged in */
    int64_t idle_since_ns;
    struct watch *watch;        /* a change stream's, which has no `cursor`; NULL: it is none */
    struct held_cursor *beside; /* the list of those that are read just now and may wait */
    bool killed;                /* of one of these, by another connection; under the mutex */
};

struct held_cursors;

struct held_cursors *held_new(int most);
void held_free(struct held_cursors *cursors); /* closes what is left */

/* Documents into `batch`, an array that was begun: at most `most` (negative: no maximum) and 16 MB. `*end`: there are
 * no more. */
truce_status held_read(struct held_cursor *held, int64_t most, bson_t *batch, bool *end,
                       bson_error_t *error);
void held_close(struct held_cursor *held); /* frees it too */

/* Keeps it under a number of its own, or under the one that it had. LIMIT: there are too many, and it was
 * closed. */
truce_status held_keep(struct held_cursors *cursors, struct held_cursor *held, bson_error_t *error);
/* Takes it out: nobody else finds it until it is kept again. NULL: there is none of this number,
 * namespace, owner and user, or another connection reads it just now. */
struct held_cursor *held_take(struct held_cursors *cursors, int64_t id, const char *place,
                              int64_t owner, const char *user);
/* While a change stream waits for what comes, others may kill it: between take and keep, or close. */
void held_wait_begin(struct held_cursors *cursors, struct held_cursor *held);
void held_wait_end(struct held_cursors *cursors, struct held_cursor *held);
bool held_is_killed(struct held_cursors *cursors, const struct held_cursor *held);
/* False: none of this number, namespace and user waits. */
bool held_kill(struct held_cursors *cursors, int64_t id, const char *place, const char *user);
/* False: another user has opened it. */
bool held_is_of(struct held_cursors *cursors, int64_t id, const char *user);
/* Closes those of a transaction. */
void held_drop(struct held_cursors *cursors, int64_t owner);
/* Closes those that nobody asked for so long. */
void held_expire(struct held_cursors *cursors, int64_t idle_ms);
int held_count(struct held_cursors *cursors);
/* Of the arrays that are kept. */
int64_t held_bytes(struct held_cursors *cursors);

#endif
