#ifndef TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H
#define TRUCE_SERVER_SESSION_CURSOR_REGISTRY_H

/*
 * The open cursors of clients, by their ids.
 *
 * An entry is either in the registry or owned by one call: getMore takes it out, reads a batch,
 * and adds it again. An entry has its documents from one of three sources: a cursor of the store,
 * an array, or a change stream.
 */
#include <stdint.h>

#include "truce/store.h"

struct cursor_entry {
    /* The id for clients, or 0 before the entry is added. */
    int64_t id;
    /* A cursor of the store, or NULL if the documents come from `array` or `stream`. */
    truce_cursor *cursor;
    bson_t *array;
    /* The next document of `array`. */
    bson_iter_t at;
    /* A document that was read but did not fit into the last batch. */
    bson_t *waiting;
    /* The namespace, as the client knows it. */
    char *ns;
    /* The transaction that opened the cursor, or 0. */
    int64_t owner;
    /* The registered snapshot that the cursor reads, and its registry, or NULL. */
    struct registered_snapshot *snapshot;
    struct snapshot_registry *snapshots;
    /* The user that opened the cursor, or "" without a login. */
    char *user;
    int64_t idle_since_ns;
    /* A change stream, or NULL. */
    struct change_stream *stream;
    /* The list of change streams that are being read and may wait. */
    struct cursor_entry *next_waiting;
    /* Another connection has killed the change stream while it waits. Guarded by the mutex of the
     * registry. */
    bool killed;
};

struct cursor_registry;

struct cursor_registry *cursors_new(int most);
/* Closes the remaining cursors. */
void cursors_free(struct cursor_registry *cursors);

/* Appends documents to `batch`, an array that was begun: at most `most` (negative: no maximum) and
 * 16 MB. Sets `*end` if it is known that there are no more. The end of a cursor of the store is
 * known only when a read finds no document. Not for change streams. */
truce_status cursor_entry_read(struct cursor_entry *entry, int64_t most, bson_t *batch, bool *end,
                               bson_error_t *error);
/* Closes the cursor and frees the entry. */
void cursor_entry_close(struct cursor_entry *entry);

/* Adds the entry with a new id, or with the id that it had. If the entry is new and too many cursors
 * are open, closes it and fails with LIMIT. */
truce_status cursors_add(struct cursor_registry *cursors, struct cursor_entry *entry,
                         bson_error_t *error);
/* Removes the entry from the registry for the caller's exclusive use. Returns NULL if no entry has
 * this id, namespace, owner, and user, or if another connection is using it. */
struct cursor_entry *cursors_take(struct cursor_registry *cursors, int64_t id, const char *ns,
                                  int64_t owner, const char *user);
/* These calls enclose the wait of a change stream for events. Other connections can kill the stream
 * in between. */
void cursors_wait_begin(struct cursor_registry *cursors, struct cursor_entry *entry);
void cursors_wait_end(struct cursor_registry *cursors, struct cursor_entry *entry);
bool cursors_is_killed(struct cursor_registry *cursors, const struct cursor_entry *entry);
/* Kills a waiting change stream. Returns false if none has this id, namespace, and user. */
bool cursors_kill(struct cursor_registry *cursors, int64_t id, const char *ns, const char *user);
/* Returns the namespace of the cursor, which the caller frees, or NULL if no such cursor is
 * registered. */
char *cursors_namespace(struct cursor_registry *cursors, int64_t id);
/* Returns false if the cursor is registered and another user opened it. */
bool cursors_is_of(struct cursor_registry *cursors, int64_t id, const char *user);
/* Closes the cursors of a transaction. */
void cursors_close_owned(struct cursor_registry *cursors, int64_t owner);
/* Closes cursors that were idle for this time. */
void cursors_expire(struct cursor_registry *cursors, int64_t idle_ms);
int cursors_count(struct cursor_registry *cursors);
/* Returns the size of all registered arrays. */
int64_t cursors_bytes(struct cursor_registry *cursors);

#endif
