#ifndef TRUCE_SERVER_SESSION_CHANGE_STREAM_H
#define TRUCE_SERVER_SESSION_CHANGE_STREAM_H

/*
 * Change streams: the change feed of a file (engine/documents/change_feed.h) as MongoDB's clients
 * see it.
 *
 *     feed ──entries──> change_stream.c ──events──> queue ──full documents, stages──> batch
 *
 * A store mongodb: has change streams of its own (store/mongodb/mongo_session.h), whose events and
 * tokens are passed on unchanged.
 *
 * A resume token is a position in the feed. So it stays valid after a restart, and other servers
 * of the same file accept it.
 */
#include "base/limits.h"
#include "engine/documents/change_feed.h"
#include "store/namespace_map.h"
#include "truce/store.h"

struct arena;
struct pipeline;
struct change_stream;

enum change_stream_reach { STREAM_COLLECTION, STREAM_DATABASE, STREAM_ALL };

enum change_stream_document {
    /* The event of an update has no document, only the changes. */
    STREAM_NONE,
    /* The current document, or null if it was removed since. */
    STREAM_LOOKUP,
    /* The document at the time of the event, or null if it was not stored. */
    STREAM_IF_ANY,
    /* The document at the time of the event. If it was not stored, the stream fails. */
    STREAM_REQUIRED,
};

/* The meaning of a token's position. */
enum change_stream_point {
    /* Everything up to the position was read. */
    STREAM_MARK,
    /* The event was sent. "invalidate" follows if it ends the stream. */
    STREAM_EVENT = FEED_TOKEN_EVENT,
    /* "invalidate" was sent. */
    STREAM_INVALIDATE,
    /* The fragments of the event up to this one were sent. */
    STREAM_FRAGMENT,
};

/* The largest number of fragments that a token can name. */
#define STREAM_FRAGMENTS_MAX (255 - STREAM_FRAGMENT)

struct change_stream_token {
    bson_oid_t feed;
    int64_t position;
    enum change_stream_point point;
    /* The number of the fragment, from 0. */
    int fragment;
};

/* Appends _data: "..." to a document that the caller begins and ends. */
void change_stream_token_append(const struct change_stream_token *token, bson_t *document);
/* Reads {_data: "..."}. Fails with 40647, 9, or 260. */
truce_status change_stream_token_read(const bson_t *document, struct change_stream_token *token,
                                      bson_error_t *error);

struct change_stream_options {
    enum change_stream_reach reach;
    /* The server's own database, and that of the stream. */
    const char *own, *database;
    /* For a stream of one collection: its name in the store. */
    const char *stored_name;
    enum change_stream_document full, before;
    /* The option showExpandedEvents. */
    bool expanded;
    /* The stage itself, for a stream that is passed on. */
    const bson_t *stage;
    /* The maximum number of events in the first batch of a stream that is passed on, or -1 for no
     * maximum. */
    int64_t batch;
    /* The stages after $changeStream. */
    const bson_t *stages;
    /* The position from which the stream resumes. If NULL, see `from`. */
    const struct change_stream_token *resume;
    /* Without `resume`: the position of the first entry; 0 means only future entries. */
    int64_t from;
};

/* Opens a change stream. The store outlives it. Fails with 40573 if the store has no feed, and with
 * 280 if the feed has no such position. Fails with 286 if entries after the position were pruned or
 * the position belongs to another feed. Errors of the stages are returned, too. */
truce_status change_stream_new(truce_store *store, const struct change_stream_options *options,
                               struct change_stream **watch, bson_error_t *error);
/* Frees the stream. NULL is allowed. */
void change_stream_free(struct change_stream *watch);

/* Appends the available events to `batch`, an array that was begun: at most `most` (negative: no
 * maximum) and 16 MB. Returns their number in `*count`. Does not wait. */
truce_status change_stream_read(struct change_stream *watch, int64_t most, bson_t *batch,
                                uint32_t *count, bson_error_t *error);
/* Returns whether the stream has ended with "invalidate". */
bool change_stream_is_over(const struct change_stream *watch);
/* Appends {NAME: the token from which a stream resumes after everything that this one has read}, if
 * there is one. */
void change_stream_append_token(const struct change_stream *watch, const char *name, bson_t *to);
enum change_stream_reach change_stream_reach(const struct change_stream *watch);
/* Waits until the feed grows, for at most `left_ms`. The call returns earlier from time to time, so
 * that the caller can check whether the wait must end. With *seen 0, the first call may return at
 * once. `most` is that of the read that follows. */
truce_status change_stream_wait(struct change_stream *watch, uint64_t *seen, int64_t most,
                                int64_t left_ms, bson_error_t *error);

/* The maximum size of an event. */
#define EVENT_BYTES (TRUCE_DOCUMENT_BYTES_MAX + TRUCE_INTERNAL_BYTES_EXTRA)

/* ---- events ---------------------------------------------------------------------------------- */

struct change_stream_scope {
    enum change_stream_reach reach;
    /* showExpandedEvents: creations and drops of collections and indexes are also sent, and events
     * have more fields. */
    bool expanded;
    char own[DATABASE_NAME_MAX + 1], database[DATABASE_NAME_MAX + 1];
    char stored_name[STORED_NAME_MAX];
    /* The id of the file. */
    bson_oid_t file;
};

#endif
