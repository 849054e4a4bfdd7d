#ifndef TRUCE_ENGINE_DOCUMENTS_CHANGE_FEED_H
#define TRUCE_ENGINE_DOCUMENTS_CHANGE_FEED_H

/*
 * The feed of changes: every write in the order of the commits, for change streams.
 *
 * The feed is a table of the file, and is off until a caller switches it on. The transaction of a
 * change writes its entry, in whatever process, so the feed contains exactly the changes of the
 * file. The position of an entry is a growing number. A follower that has read up to a position
 * requests the entries after it.
 */
#include "engine/writer.h"

struct engine;

enum feed_kind {
    FEED_INSERT = 'i',
    /* An update, as the differences that it made. */
    FEED_UPDATE = 'u',
    /* A replacement, with the whole new document. */
    FEED_REPLACE = 'r',
    FEED_DELETE = 'd',
    /* Changes of a collection as a whole. */
    FEED_DROP = 'c',
    FEED_RENAME = 'n',
    /* A database was dropped. The server writes this entry, because it has its own names for
     * databases. */
    FEED_DROP_DATABASE = 'b',
    /* A collection was created, by itself or for its first document or index. This kind and the
     * kinds below are only in a feed that stores all kinds of entries. */
    FEED_CREATE = 'k',
    /* The options of a collection were modified. */
    FEED_MODIFY = 'm',
    /* An index became ready. */
    FEED_INDEX = 'x',
    FEED_INDEX_DROP = 'y',
};

/* A wait for the collection of this name (truce__engine_wait) ends at any new entry. */
#define FEED_WAKE "truce feed"
/* A position consists of the seconds since 1970 and, in the low bits, a number within the
 * second. */
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
    /* The name of the collection, and its new name or NULL. */
    const char *name, *other;
    /* The number of the collection, and the number of the collection that had the new name before,
     * or 0. */
    int64_t number, dropped;
    /* The new options of a collection or the definition of an index, and the old options. Each may
     * be NULL. */
    const bson_t *what, *before;
};

/* Writes the entry of a change of a collection, an index, or a database. Does nothing if there is
 * no feed, or if it omits the collection. A status other than OK is that of the transaction. */
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
 * initialized. Returns false if that is not possible, or longer than both documents together
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
    /* The settings of the feed. If its table is 0, there is no feed, and all fields below are 0. */
    struct feed_spec spec;
    /* The id of the file (catalog.h). */
    bson_oid_t file;
    /* All entries up to this position were removed. */
    int64_t horizon;
    /* The position of the last entry, which is durable, or the horizon if the feed is empty. */
    int64_t last;
    /* The size of all entries in bytes. */
    int64_t bytes;
    /* The wall clock time at which the first entry was written, or 0 if the feed is empty. */
    int64_t oldest_ms;
};

truce_status truce__engine_feed_state(struct engine *engine, struct feed_state *state,
                                      bson_error_t *error);
/* Counts the entries one by one. */
truce_status truce__engine_feed_count(struct engine *engine, int64_t *entries, bson_error_t *error);

/* An entry. All data is borrowed. */
struct feed_entry {
    int64_t position, wall_ms;
    enum feed_kind kind;
    /* Whether the entry belongs to the operation of the entry before it. */
    bool continues;
    /* The collection, and the new name of a rename or NULL. */
    const char *collection, *other;
    /* The number of the collection, and the number of the collection that a rename replaced. Each
     * is 0 if it is not recorded. */
    int64_t number, dropped;
    /* The documents below are empty if this kind of entry has none. */

    /* {_id: ...} of the changed document. */
    bson_t id;
    /* The document that was inserted, or that replaced another. */
    bson_t document;
    /* The result of truce__feed_diff. */
    bson_t diff;
    /* The new and the old facts about a collection or an index, as `what` and `before` of struct
     * feed_fact. */
    bson_t what, had;
    /* The images, if the collection stores them: the document before an update, a replacement, or a
     * removal, and the document after an update. */
    bson_t before, after;
};

/* Receives an entry. Returns false to stop; the entry then counts as not read. Must not call the
 * engine. */
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
 *     01  position (8 bytes, big-endian)  point  id of the feed (12 bytes)
 *
 * The bytes are written in hexadecimal digits, so tokens sort in the order of their positions. The
 * point says which event of the entry was sent last; the server defines it
 * (server/session/change_stream.h).
 */
#define FEED_TOKEN_BYTES 22
/* The bytes of a token in hexadecimal digits, with the zero byte. */
#define FEED_TOKEN_TEXT (2 * FEED_TOKEN_BYTES + 1)
/* The first byte of each token. */
#define FEED_TOKEN_VERSION 1
/* The point of a token whose entry has a single event, which was sent. */
#define FEED_TOKEN_EVENT 1

/* Writes the resume token of a position as hexadecimal digits. */
void truce__feed_token(const bson_oid_t *feed, int64_t position, uint8_t point,
                       char text[FEED_TOKEN_TEXT]);

/* Checks the feed for the check of the file. Fails with CORRUPT. */
truce_status truce__feed_check(struct kv *kv, const struct feed_spec *feed, bson_error_t *error);

/* The row of the header with the horizon, which is the first of the table. */
#define FEED_HEADER INT64_C(1)

#endif
