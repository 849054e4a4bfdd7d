#ifndef TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H
#define TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H

/* Cursors that clients come back to, by number. */
#include <stdint.h>

#include "truce/store.h"

struct cursor_entry {
    int64_t id;           /* 0 until it is kept */
    truce_cursor *cursor; /* its own; NULL: its documents are those of: */
    bson_t *array;        /* its own, too */
    bson_iter_t at;
    bson_t *waiting;                      /* was read, and did not fit into the last batch */
    char *place;                          /* the namespace as the client knows it */
    int64_t owner;                        /* its transaction; 0: none */
    struct registered_snapshot *snapshot; /* that it reads; NULL: none */
    struct snapshot_registry *snapshots;  /* that has it */
    char *user;                           /* who opened it; "": nobody had logged in */
    int64_t idle_since_ns;
    struct change_stream *watch; /* a change stream's, which has no `cursor`; NULL: it is none */
    struct cursor_entry *beside; /* the list of those that are read just now and may wait */
    bool killed;                 /* of one of these, by another connection; under the mutex */
};

struct cursor_registry;

struct cursor_registry *cursors_new(int most);
void cursors_free(struct cursor_registry *cursors); /* closes what is left */

/* Documents into `batch`, an array that was begun: at most `most` (negative: no maximum) and 16 MB. `*end`: there are
 * no more. */
truce_status cursor_entry_read(struct cursor_entry *entry, int64_t most, bson_t *batch, bool *end,
                               bson_error_t *error);
void cursor_entry_close(struct cursor_entry *entry); /* frees it too */

/* Keeps it under a number of its own, or under the one that it had. LIMIT: there are too many, and it was
 * closed. */
truce_status cursors_add(struct cursor_registry *cursors, struct cursor_entry *entry,
                         bson_error_t *error);
/* Takes it out: nobody else finds it until it is kept again. NULL: there is none of this number,
 * namespace, owner and user, or another connection reads it just now. */
struct cursor_entry *cursors_take(struct cursor_registry *cursors, int64_t id, const char *place,
                                  int64_t owner, const char *user);
/* While a change stream waits for what comes, others may kill it: between take and keep, or close. */
void cursors_wait_begin(struct cursor_registry *cursors, struct cursor_entry *entry);
void cursors_wait_end(struct cursor_registry *cursors, struct cursor_entry *entry);
bool cursors_is_killed(struct cursor_registry *cursors, const struct cursor_entry *entry);
/* False: none of this number, namespace and user waits. */
bool cursors_kill(struct cursor_registry *cursors, int64_t id, const char *place, const char *user);
/* False: another user has opened it. */
bool cursors_is_of(struct cursor_registry *cursors, int64_t id, const char *user);
/* Closes those of a transaction. */
void cursors_close_owned(struct cursor_registry *cursors, int64_t owner);
/* Closes those that nobody asked for so long. */
void cursors_expire(struct cursor_registry *cursors, int64_t idle_ms);
int cursors_count(struct cursor_registry *cursors);
/* Of the arrays that are kept. */
int64_t cursors_bytes(struct cursor_registry *cursors);

#endif
