#ifndef TRUCE_SERVER_SESSION_CHANGE_STREAM_H
#define TRUCE_SERVER_SESSION_CHANGE_STREAM_H

/*
 * Change streams: the feed of changes of a file (engine/documents/feed.h) as MongoDB's clients know it.
 *
 *     feed ──entries──> watch.c ──events──> queue ──full documents, stages──> batch
 *
 * A resume token is a place in the feed, so it outlives the server, and another server of the same file takes it, too.
 */
#include "base/limits.h"
#include "engine/documents/feed.h"
#include "store/namespace_map.h"
#include "truce/store.h"

struct arena;
struct pipeline;
struct change_stream;

enum change_stream_reach { STREAM_COLLECTION, STREAM_DATABASE, STREAM_ALL };

enum change_stream_document {
    STREAM_NONE,     /* of an update nothing but what was changed */
    STREAM_LOOKUP,   /* the document as it is now; null: it is gone */
    STREAM_IF_ANY,   /* as it was then; null: that was not kept */
    STREAM_REQUIRED, /* the same, or the stream ends */
};

/* What stands at a place, besides the position: where the stream goes on from is the same but for the first. */
enum change_stream_place {
    STREAM_MARK,  /* everything up to it was looked at */
    STREAM_EVENT, /* an event was told, behind which comes "invalidate" if it ends the stream */
    STREAM_INVALIDATE, /* that was told, too */
    STREAM_FRAGMENT,   /* some of an event was told: up to that fragment */
};

#define STREAM_FRAGMENTS_MAX (255 - STREAM_FRAGMENT) /* what a token can say */

struct change_stream_token {
    bson_oid_t feed;
    int64_t position;
    enum change_stream_place place;
    int fragment; /* of STREAM_FRAGMENT, from 0 on */
};

/* {_data: "..."}; the document is begun and ended by the caller */
void change_stream_token_append(const struct change_stream_token *token, bson_t *document);
/* Of {_data: "..."}; 40647, 9, 260. */
truce_status change_stream_token_read(const bson_t *document, struct change_stream_token *token,
                                      bson_error_t *error);

struct change_stream_options {
    enum change_stream_reach reach;
    const char *own, *database; /* the server's own database, and that of the stream */
    const char *place;          /* of a stream of one collection */
    enum change_stream_document full, before;
    bool expanded;                            /* showExpandedEvents */
    const bson_t *stages;                     /* behind $changeStream */
    const struct change_stream_token *resume; /* NULL: from now on, or ... */
    int64_t from; /* ... with every entry from this position on; 0: no matter */
};

/* 40573: there is no feed; 286: what comes behind that place is not there any more; 280: that place is not of this
 * feed; what the stages are refused with. The store outlives it. */
truce_status change_stream_new(truce_store *store, const struct change_stream_options *options,
                               struct change_stream **watch, bson_error_t *error);
void change_stream_free(struct change_stream *watch); /* NULL is allowed */

/* What there is of now into `batch`, an array that was begun: at most so many (negative: no maximum) and 16 MB. `*count`: how
 * many. Nothing is waited for. */
truce_status change_stream_read(struct change_stream *watch, int64_t most, bson_t *batch,
                                uint32_t *count, bson_error_t *error);
/* It has told "invalidate": nothing comes any more. */
bool change_stream_is_over(const struct change_stream *watch);
/* Where a stream goes on that has read all that this one has. */
struct change_stream_token change_stream_at(const struct change_stream *watch);
enum change_stream_reach change_stream_reach(const struct change_stream *watch);
/* Until something is told, or so long. `*seen` 0 at first: then it returns at once. */
void change_stream_wait(struct change_stream *watch, uint64_t *seen, uint32_t most_ms);

/* ---- stages ---------------------------------------------------------------------------- */

#define EVENT_BYTES                                                                                \
    (TRUCE_DOCUMENT_BYTES_MAX + TRUCE_INTERNAL_BYTES_EXTRA) /* of one that is told */

/* ---- events ----------------------------------------------------------------------------- */

struct change_stream_scope {
    enum change_stream_reach reach;
    bool expanded; /* what is made of collections and indexes is told, too, and more of all else */
    char own[DATABASE_NAME_MAX + 1], database[DATABASE_NAME_MAX + 1];
    char place[PLACE_MAX];
    bson_oid_t file; /* its id */
};

#endif
