#ifndef TRUCE_SERVER_WATCH_WATCH_H
#define TRUCE_SERVER_WATCH_WATCH_H

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
struct watch;

enum watch_reach { WATCH_COLLECTION, WATCH_DATABASE, WATCH_ALL };

enum watch_document {
    WATCH_NONE,     /* of an update nothing but what was changed */
    WATCH_LOOKUP,   /* the document as it is now; null: it is gone */
    WATCH_IF_ANY,   /* as it was then; null: that was not kept */
    WATCH_REQUIRED, /* the same, or the stream ends */
};

/* What stands at a place, besides the position: where the stream goes on from is the same but for the first. */
enum watch_place {
    WATCH_MARK,       /* everything up to it was looked at */
    WATCH_EVENT,      /* an event was told, behind which comes "invalidate" if it ends the stream */
    WATCH_INVALIDATE, /* that was told, too */
    WATCH_FRAGMENT,   /* some of an event was told: up to that fragment */
};

#define WATCH_FRAGMENTS_MAX (255 - WATCH_FRAGMENT) /* what a token can say */

struct watch_token {
    bson_oid_t feed;
    int64_t position;
    enum watch_place place;
    int fragment; /* of WATCH_FRAGMENT, from 0 on */
};

/* {_data: "..."}; the document is begun and ended by the caller */
void watch_token_append(const struct watch_token *token, bson_t *document);
/* Of {_data: "..."}; 40647, 9, 260. */
truce_status watch_token_read(const bson_t *document, struct watch_token *token,
                              bson_error_t *error);

struct watch_options {
    enum watch_reach reach;
    const char *own, *database; /* the server's own database, and that of the stream */
    const char *place;          /* of a stream of one collection */
    enum watch_document full, before;
    bool expanded;                    /* showExpandedEvents */
    const bson_t *stages;             /* behind $changeStream */
    const struct watch_token *resume; /* NULL: from now on, or ... */
    int64_t from;                     /* ... with every entry from this position on; 0: no matter */
};

/* 40573: there is no feed; 286: what comes behind that place is not there any more; 280: that place is not of this
 * feed; what the stages are refused with. The store outlives it. */
truce_status watch_new(truce_store *store, const struct watch_options *options,
                       struct watch **watch, bson_error_t *error);
void watch_free(struct watch *watch); /* NULL is allowed */

/* What there is of now into `batch`, an array that was begun: at most so many (negative: no maximum) and 16 MB. `*count`: how
 * many. Nothing is waited for. */
truce_status watch_read(struct watch *watch, int64_t most, bson_t *batch, uint32_t *count,
                        bson_error_t *error);
/* It has told "invalidate": nothing comes any more. */
bool watch_is_over(const struct watch *watch);
/* Where a stream goes on that has read all that this one has. */
struct watch_token watch_at(const struct watch *watch);
enum watch_reach watch_reach(const struct watch *watch);
/* Of a store without a feed: NULL. */
struct engine *watch_engine(truce_store *store);
/* The time of that feed, as a position: of the last change that was made here; of a feed that stands still, so long ago.
 * Changes that are made here from now on are behind it, whatever the clock does; of other processes, unless it is set
 * back by more than that. */
#define WATCH_BEHIND_S 10 /* as MongoDB, which notes every so often that nothing happens */
int64_t watch_time(struct engine *engine, int64_t now_ms);
/* Until something is told, or so long. `*seen` 0 at first: then it returns at once. */
void watch_wait(struct watch *watch, uint64_t *seen, uint32_t most_ms);

/* ---- stages ---------------------------------------------------------------------------- */

#define EVENT_BYTES                                                                                \
    (TRUCE_DOCUMENT_BYTES_MAX + TRUCE_INTERNAL_BYTES_EXTRA) /* of one that is told */

/* ---- events ----------------------------------------------------------------------------- */

struct watch_scope {
    enum watch_reach reach;
    bool expanded; /* what is made of collections and indexes is told, too, and more of all else */
    char own[DATABASE_NAME_MAX + 1], database[DATABASE_NAME_MAX + 1];
    char place[PLACE_MAX];
    bson_oid_t file; /* its id */
};

#endif
