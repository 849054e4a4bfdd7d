#ifndef TRUCE_ENGINE_DOCUMENTS_CHANGE_FEED_H
#define TRUCE_ENGINE_DOCUMENTS_CHANGE_FEED_H

/*
 * The feed of changes: every write in the order of the commits, for change streams.
 *
 * The feed is a table of the file, and is off until a caller switches it on. The transaction of a
 * change writes its entry, in whatever process, so the feed contains exactly the changes of the
 * file. The position of an entry is a growing number. A follower that has read up to a position
 * asks for the entries after it.
 */
#include "engine/writer.h"

struct engine;

enum feed_kind {
    FEED_INSERT = 'i',
    /* Reported by the differences. */
    FEED_UPDATE = 'u',
    /* Reported by the whole document. */
    FEED_REPLACE = 'r',
    FEED_DELETE = 'd',
    /* Changes of a collection as a whole. */
    FEED_DROP = 'c',
    FEED_RENAME = 'n',
    /* Recorded by the server, which has its own names for databases. */
    FEED_DROP_DATABASE = 'b',
    /* Only in a feed that stores all kinds of entries: */
    /* A collection was created, by itself or for its first document or index. */
    FEED_CREATE = 'k',
    /* Its options were modified. */
    FEED_MODIFY = 'm',
    /* An index became ready. */
    FEED_INDEX = 'x',
    FEED_INDEX_DROP = 'y',
};

/* Waiting for this name as for a collection waits for any new entry. */
#define FEED_WAKE "truce feed"
/* A position has the seconds since 1970, and a number within the second. */
#define FEED_SECOND_SHIFT 31

static inline int64_t truce__feed_position(int64_t seconds, int64_t number)
{
    return seconds << FEED_SECOND_SHIFT | number;
}

/* ---- writing entries, inside a write transaction -------------------------------------------- */

/* Writes the entry of a change. If `before` is NULL, the document was inserted; if `after` is NULL,
 * it was removed. `whole` means that the document was replaced, not changed in parts. Does nothing
 * if there is no feed, or if nothing differs. A status other than OK is that of the transaction. */
truce_status truce__feed_report(struct writer *writer, const struct collection *collection,
                                const bson_t *before, const bson_t *after, bool whole,
                                bson_error_t *error);
/* A change of a collection or a database. */
struct feed_fact {
    enum feed_kind kind;
    /* `other` is the new name; NULL if none exists. */
    const char *name, *other;
    /* The numbers of the collection, and of the one that had the new name before, or 0 if none
     * exists. */
    int64_t number, dropped;
    /* The new options of a collection or the definition of an index; and the old options. NULL:
     * neither. */
    const bson_t *what, *before;
};

truce_status truce__feed_report_fact(struct writer *writer, const struct feed_fact *fact,
                                     bson_error_t *error);
/* Writes the entry of a collection that was just created, with its options. Pointers into the
 * catalog stay valid. */
truce_status truce__feed_report_made(struct writer *writer, const char *name, bson_error_t *error);
/* Returns {validator?, images?} of the collection. The caller destroys it. */
bson_t *truce__feed_options(const struct collection *collection);
/* Adds a created or dropped index to the feed. `kind` is FEED_INDEX or FEED_INDEX_DROP. */
truce_status truce__feed_report_index(struct writer *writer, enum feed_kind kind,
                                      const struct collection *collection,
                                      const struct index_spec *spec, bson_error_t *error);

/* Moves later entries of this writer after that position. Returns the largest position of all such
 * calls. Any thread. */
int64_t truce__feed_pass(struct writer *writer, int64_t position);

/* Computes {updatedFields, removedFields, truncatedArrays, disambiguatedPaths?}, always
 * initialised. Returns false if that is not possible, or not shorter than the document itself
 * (change_feed.c). */
bool truce__feed_diff(const bson_t *before, const bson_t *after, bson_t *diff);

/* ---- the feed as a whole -------------------------------------------------------------------- */

/* Switches the feed on, or changes what it keeps. If keep_ms is 0, switches it off and removes its
 * entries. If keep_bytes is 0, the size is not limited. The setting is stored in the file. */
truce_status truce__engine_feed_keep(struct engine *engine, int64_t keep_ms, int64_t keep_bytes,
                                     bson_error_t *error);
/* Writes an entry that belongs to no change of a collection. Does nothing if there is no feed. */
truce_status truce__engine_feed_note(struct engine *engine, enum feed_kind kind, const char *name,
                                     bson_error_t *error);
/* Removes entries that are too old or too many, in a bounded step. Sets `*more` if entries for
 * another step are left, and `*removed` to the number of removed entries (NULL is allowed). */
truce_status truce__engine_feed_prune(struct engine *engine, int64_t *removed, bool *more,
                                      bson_error_t *error);

/* ---- reading entries ------------------------------------------------------------------------ */

struct feed_state {
    /* Table 0: there is no feed, and all fields below are 0. */
    struct feed_spec spec;
    /* The id of the file (catalog.h). */
    bson_oid_t file;
    /* Entries at or before it were removed. */
    int64_t horizon;
    /* The position of the last entry, durable; the horizon in an empty feed. */
    int64_t last;
    /* The size of the entries. */
    int64_t bytes;
    /* When the first of them was written, or 0 if the feed is empty. */
    int64_t oldest_ms;
};

truce_status truce__engine_feed_state(struct engine *engine, struct feed_state *state,
                                      bson_error_t *error);
/* Counts the entries one by one. */
truce_status truce__engine_feed_count(struct engine *engine, int64_t *entries, bson_error_t *error);

/* An entry, borrowed. */
struct feed_entry {
    int64_t position, wall_ms;
    enum feed_kind kind;
    /* The operation of the entry before made this change, too. */
    bool continues;
    /* `other`: the new name of a rename. */
    const char *collection, *other;
    /* The numbers of the collection, and of the one that a rename replaced, or 0 if it is not
     * recorded. */
    int64_t number, dropped;
    /* These are empty if the kind has none. */
    bson_t id; /* {_id: ...} */
    /* The inserted or replacing document. */
    bson_t document;
    /* The result of truce__feed_diff. */
    bson_t diff;
    /* Facts about a collection or an index, as in feed_fact. */
    bson_t what, had;
    /* The images, if the collection stores them: before an update, a replacement, or a removal; and
     * after an update. */
    bson_t before, after;
};

/* Returns false to stop; this entry then counts as not read. Must not call the engine. */
typedef bool feed_take(void *arg, const struct feed_entry *entry);

/* Reads the entries after `after` of the feed `id`, in one snapshot, until `take` stops or `most`
 * were read. `*reached` is the position up to which everything was taken. Fails with EXPIRED if
 * entries after `after` were removed or the feed is another one, and with INVALID if the feed has
 * not reached `after` yet. */
truce_status truce__engine_feed_read(struct engine *engine, const bson_oid_t *id, int64_t after,
                                     int most, feed_take *take, void *arg, int64_t *reached,
                                     bson_error_t *error);

/*
 * A resume token is a position as clients see it:
 *
 *     01  position (8 bytes, the highest first)  place  id of the feed (12 bytes)
 *
 * The bytes are written in hexadecimal digits, so tokens sort in the order of their positions. The
 * server defines the places (server/session/change_stream.h).
 */
#define FEED_TOKEN_BYTES   22
#define FEED_TOKEN_TEXT    (2 * FEED_TOKEN_BYTES + 1)
#define FEED_TOKEN_VERSION 1
/* The place of a token: the event of the entry was sent. */
#define FEED_TOKEN_EVENT 1

void truce__feed_token(const bson_oid_t *feed, int64_t position, uint8_t place,
                       char text[FEED_TOKEN_TEXT]);

/* Checks the feed for the check of the file. Fails with CORRUPT. */
truce_status truce__feed_check(struct kv *kv, const struct feed_spec *feed, bson_error_t *error);

/* The row of the horizon, which is the first of the table. */
#define FEED_HEADER INT64_C(1)

#endif
