#ifndef TRUCE_ENGINE_DOCUMENTS_FEED_H
#define TRUCE_ENGINE_DOCUMENTS_FEED_H

/*
 * The feed of changes: what was written, in the order of the commits, for those who follow it
 * (change streams).
 *
 * It is a table of the file, and off until somebody asks for it. An entry is written in the
 * transaction of the change that it tells, whatever process makes it, so the feed has what the file
 * has and nothing else. Its position is a number that only grows; who has read up to a position
 * asks for what is behind it.
 */
#include "engine/writer.h"

struct engine;

enum feed_kind {
    FEED_INSERT = 'i',
    FEED_UPDATE = 'u',  /* told by what is different */
    FEED_REPLACE = 'r', /* told by the whole document */
    FEED_DELETE = 'd',
    FEED_DROP = 'c', /* of a collection */
    FEED_RENAME = 'n',
    FEED_DROP_DATABASE = 'b', /* noted by the server, of its name for the database */
    /* of a feed that is full only */
    FEED_CREATE = 'k', /* a collection, by itself or for its first document or index */
    FEED_MODIFY = 'm', /* its options */
    FEED_INDEX = 'x',  /* an index is ready */
    FEED_INDEX_DROP = 'y',
};

#define FEED_WAKE         "truce feed" /* waited for as a collection: moves with every entry */
#define FEED_SECOND_SHIFT 31 /* a position: seconds since 1970, and a number within the second */

static inline int64_t truce__feed_position(int64_t seconds, int64_t number)
{
    return seconds << FEED_SECOND_SHIFT | number;
}

/* ---- telling, inside a write transaction (feed.c) ------------------------------------------- */

/* `before` NULL: inserted; `after` NULL: removed; `whole`: replaced, and not changed in parts.
 * Nothing if there is no feed, or nothing differs. A status other than OK is the transaction's. */
truce_status truce__feed_tell(struct writer *writer, const struct collection *collection,
                              const bson_t *before, const bson_t *after, bool whole,
                              bson_error_t *error);
/* What became of a collection or a database. */
struct feed_fact {
    enum feed_kind kind;
    const char *name, *other; /* other: the new name; NULL: it has none */
    int64_t number,
        dropped; /* of the collection, and of the one that its new name was of; 0: none */
    /* the options that a collection has got, or the definition of an index; the options that it
     * had; NULL: of neither */
    const bson_t *what, *before;
};

truce_status truce__feed_tell_fact(struct writer *writer, const struct feed_fact *fact,
                                   bson_error_t *error);
/* Of a collection that was just made; its options are looked up. Any pointer into the catalog
 * stays. */
truce_status truce__feed_tell_made(struct writer *writer, const char *name, bson_error_t *error);
/* {validator?, images?} as the collection has them; bson_destroy. */
bson_t *truce__feed_options(const struct collection *collection);
/* FEED_INDEX, FEED_INDEX_DROP */
truce_status truce__feed_tell_index(struct writer *writer, enum feed_kind kind,
                                    const struct collection *collection,
                                    const struct index_spec *spec, bson_error_t *error);

/* Entries that are made from here on, by this writer, are behind that position. Returns the last
 * that was said so, which is not before it. From any thread. */
int64_t truce__feed_pass(struct writer *writer, int64_t position);

/* {updatedFields, removedFields, truncatedArrays, disambiguatedPaths?}, initialised in any case;
 * false: it cannot be said so, or not shorter than by the document itself (feed.c). */
bool truce__feed_diff(const bson_t *before, const bson_t *after, bson_t *diff);

/* ---- the feed as a whole (feed.c) ----------------------------------------------------------- */

/* On from now on, or kept for another time or size than before. keep_ms 0: off, and what it had
 * is gone. It is kept by the file. keep_bytes 0: any number. */
truce_status truce__engine_feed_keep(struct engine *engine, int64_t keep_ms, int64_t keep_bytes,
                                     bson_error_t *error);
/* An entry that no change of a collection makes. Nothing if there is no feed. */
truce_status truce__engine_feed_note(struct engine *engine, enum feed_kind kind, const char *name,
                                     bson_error_t *error);
/* A bounded step: removes what is too old, or too much. `*more`: there is more to remove;
 * `*removed`: entries (NULL: any). */
truce_status truce__engine_feed_prune(struct engine *engine, int64_t *removed, bool *more,
                                      bson_error_t *error);

/* ---- reading (feed.c) ----------------------------------------------------------------------- */

struct feed_state {
    struct feed_spec spec; /* table 0: there is none, and all below is 0 */
    bson_oid_t file;       /* its id (catalog.h) */
    int64_t horizon;       /* what is at or before it is not there any more */
    int64_t last;          /* position of the last entry, durable; the horizon if there is none */
    int64_t bytes;         /* of the entries */
    int64_t oldest_ms;     /* when the first of them was written; 0: there is none */
};

truce_status truce__engine_feed_state(struct engine *engine, struct feed_state *state,
                                      bson_error_t *error);
/* How many entries there are; they are counted one by one. */
truce_status truce__engine_feed_count(struct engine *engine, int64_t *entries, bson_error_t *error);

/* An entry, borrowed. */
struct feed_entry {
    int64_t position, wall_ms;
    enum feed_kind kind;
    const char *collection, *other; /* other: of a rename */
    int64_t number,
        dropped; /* of the collection, and of what a rename took the place of; 0: not told */
    /* empty where the kind has none */
    bson_t id;        /* {_id: ...} */
    bson_t document;  /* inserted, or replaced by */
    bson_t diff;      /* as truce__feed_diff */
    bson_t what, had; /* of a collection or an index: as feed_fact */
    /* as it was, if the collection kept that: of an update, a replacement, a removal; of an
     * update */
    bson_t before, after;
};

/* False: enough, and this entry counts as not read. It must not call the engine. */
typedef bool feed_take(void *arg, const struct feed_entry *entry);

/* The entries behind `after` of the feed `id`, of one snapshot, until `take` has enough or
 * `most` were read. `*reached`: the position up to which everything was taken. EXPIRED: what
 * follows `after` is not there any more, or it is another feed; INVALID: the feed has not come
 * to `after` yet. */
truce_status truce__engine_feed_read(struct engine *engine, const bson_oid_t *id, int64_t after,
                                     int most, feed_take *take, void *arg, int64_t *reached,
                                     bson_error_t *error);

/* For the check of the file: CORRUPT. */
truce_status truce__feed_check(struct kv *kv, const struct feed_spec *feed, bson_error_t *error);

/* The row with the horizon, which is the first of the table. */
#define FEED_HEADER INT64_C(1)

#endif
