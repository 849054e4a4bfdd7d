/*
 * The feed of changes: writing, pruning, and reading it.
 *
 *     row 1           {horizon: int64}
 *     row <position>  {s: bytes so far, w: when, o: kind, c: collection, t: new name?,
 *                      k: {_id}?, f: document?, u: difference?, b: before?, a: after?,
 *                      i: number of the collection?, j: of the dropped one?, v: options or index?,
 *                      p: options before?, x: true?}
 *
 *     x               the entry belongs to the operation of the entry before it, such as a commit
 *
 *     position        seconds << 31 | number: so it is also the time that clients see
 *                     (clusterTime), and a feed that was off and is on again does not use a
 *                     position twice
 *
 * Documents are stored in an entry as binaries, so that a document of the maximum nesting depth can
 * be reported like any other. Images (the document before and after a change) are only stored for
 * collections with this option (collection.images): they make the entry of an update as large as
 * three documents.
 *
 * Invariants:
 *  1. The transaction that makes a change writes its entry, in every case. The functions that
 *     change documents (indexed_documents.c) and collections (collections.c) make the calls.
 *     Programs that do not know the feed cannot write (catalog.c). After a crash the feed therefore
 *     matches the documents.
 *  2. Positions grow in the order of commits: there is one writer at a time, and it takes the
 *     position after the last one.
 *  3. The horizon is below every entry and never decreases. A position after it without an entry
 *     was never used. The oldest entries are removed first, and the horizon moves in the same
 *     transaction.
 *  4. The last entry is never removed, so the next position follows from it, or from the horizon.
 *  5. `s` grows by the size of each entry: the bytes of the feed are the difference of the last and
 *     the first.
 *  6. A step that prunes is bounded: PRUNE_ROWS rows, and PRUNE_BYTES more than were written since
 *     the last step. A writer makes a step for every PRUNE_EACH entries of its own, which is less
 *     than a step removes.
 *
 * Deliberately not done: the feed omits truce's own collections (writer.suppressed), since
 * followers could only skip them.
 */
#include "engine/documents/change_feed.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "bson/binary_text.h"
#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "query/index/index_set.h"

/* The number of entries of its own after which a writer prunes the feed, and the maximum rows and
 * bytes that one step prunes (invariant 6). */
#define PRUNE_EACH  64
#define PRUNE_ROWS  256
#define PRUNE_BYTES (INT64_C(4) * 1024 * 1024)

static bool truce__feed_entry(int64_t position, struct bytes body, struct feed_entry *entry,
                              int64_t *sum);
static truce_status feed_last(struct kv *kv, const struct feed_spec *feed, int64_t *last,
                              int64_t *sum, bson_error_t *error);

/* ---- entries -------------------------------------------------------------------------------- */

int64_t truce__feed_pass(struct writer *writer, int64_t position)
{
    long long time = atomic_load(&writer->time);

    while (position > time && !atomic_compare_exchange_weak(&writer->time, &time, position))
        ;
    return position > time ? position : time;
}

/* Returns the position of the next entry: after the last one and after the reported time, and not
 * before now. */
static int64_t next_position(struct writer *writer, int64_t now_ms)
{
    int64_t last = truce__feed_pass(writer, writer->feed.last),
            now = truce__feed_position(now_ms / 1000, 1);

    return last < now ? now : last + 1;
}

static void feed_append_binary(bson_t *entry, const char *name, const bson_t *document)
{
    BSON_APPEND_BINARY(entry, name, BSON_SUBTYPE_BINARY, bson_get_data(document), document->len);
}

static truce_status feed_find_end(struct writer *writer, bson_error_t *error)
{
    const struct feed_spec *feed = &writer->catalog->feed;
    struct feed_end *end = &writer->feed;
    truce_status status;

    if (end->known && end->table == feed->table)
        return TRUCE_OK;
    status = feed_last(writer->kv, feed, &end->last, &end->sum, error);
    end->table = feed->table;
    end->known = !status;
    return status;
}

/* ---- pruning -------------------------------------------------------------------------------- */

struct pruning {
    /* Entries older than too_old_ms may be removed, and so may entries whose `s` is at most
     * too_much. */
    int64_t too_old_ms, too_much;
    /* The last entry, which is never removed, and the number of bytes that may still be removed. */
    int64_t last, bytes;
    /* The rows of the entries that this step removes. */
    int64_t rows[PRUNE_ROWS];
    int count;
    /* Whether entries for another step are left. */
    bool more;
};

/* Collects the row of an entry that may be removed. Returns false at the first entry that must
 * stay, or when the step has enough rows. */
static bool take_old(void *arg, int64_t row, struct bytes body)
{
    struct pruning *pruning = arg;
    struct feed_entry entry;
    int64_t sum;

    if (row == FEED_HEADER)
        return true;
    if (!truce__feed_entry(row, body, &entry, &sum) || row >= pruning->last ||
        (entry.wall_ms >= pruning->too_old_ms && sum > pruning->too_much))
        return false;
    pruning->more = pruning->count == PRUNE_ROWS || pruning->bytes <= 0;
    if (pruning->more)
        return false;
    pruning->rows[pruning->count++] = row;
    pruning->bytes -= (int64_t)body.size;
    return true;
}

/* Stores the horizon in the header of the feed. With `first`, creates the header. */
static truce_status move_horizon(struct kv *kv, int64_t table, int64_t horizon, bool first,
                                 bson_error_t *error)
{
    bson_t header = BSON_INITIALIZER;
    int64_t row = FEED_HEADER;
    truce_status status;
    struct bytes body;

    BSON_APPEND_INT64(&header, "horizon", horizon);
    body = kv_body(&header);
    if (first)
        status = truce__kv_row_insert(kv, table, &row, body, error);
    else
        status = truce__kv_row_update(kv, table, row, body, error);
    bson_destroy(&header);
    return status;
}

/* Removes entries that are too old or exceed the maximum of bytes, in one bounded step (invariant
 * 6). Sets `*more` if entries for another step are left. */
static truce_status feed_prune(struct writer *writer, int64_t *removed, bool *more,
                               bson_error_t *error)
{
    const struct feed_spec *feed = &writer->catalog->feed;
    struct feed_end *end = &writer->feed;
    struct pruning pruning = {.too_old_ms = truce__clock_wall_ms() - feed->keep_ms,
                              .too_much = feed->keep_bytes ? end->sum - feed->keep_bytes : 0,
                              .last = end->last,
                              .bytes = PRUNE_BYTES + end->fresh_bytes};
    truce_status status;

    truce__kv_wide(writer->kv, feed->table);
    status = truce__kv_rows_each(writer->kv, feed->table, 0, take_old, &pruning, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    end->fresh = end->fresh_bytes = 0;
    for (int i = 0; i < pruning.count && !status; i++)
        status = truce__kv_row_delete(writer->kv, feed->table, pruning.rows[i], error);
    if (!status && pruning.count)
        status =
            move_horizon(writer->kv, feed->table, pruning.rows[pruning.count - 1], false, error);
    *more = pruning.more;
    *removed = status ? 0 : pruning.count;
    return status;
}

/* ---- writing entries ------------------------------------------------------------------------ */

/* Begins the entry of a change, at the next position. An entry after the first one of its operation
 * has the mark `x`. */
static void begin_entry(struct writer *writer, enum feed_kind kind, const char *name,
                        int64_t *position, bson_t *entry)
{
    int64_t now_ms = truce__clock_wall_ms();
    struct feed_end *end = &writer->feed;
    const char text[] = {(char)kind, 0};

    *position = next_position(writer, now_ms);
    /* If the first entry of the operation was undone, this one is the first. */
    if (!end->first || end->last < end->first)
        end->first = *position;
    bson_init(entry);
    /* The sum is replaced when the size of the entry is known. */
    BSON_APPEND_INT64(entry, "s", 0);
    BSON_APPEND_DATE_TIME(entry, "w", now_ms);
    BSON_APPEND_UTF8(entry, "o", text);
    BSON_APPEND_UTF8(entry, "c", name);
    if (*position > end->first)
        BSON_APPEND_BOOL(entry, "x", true);
}

/* Writes an entry at its position, with the sum of sizes, and prunes the feed after every
 * PRUNE_EACH entries (invariant 6). */
static truce_status put_entry(struct writer *writer, int64_t position, bson_t *entry,
                              bson_error_t *error)
{
    int64_t table = writer->catalog->feed.table, row = position;
    struct feed_end *end = &writer->feed;
    truce_status status;
    bson_iter_t at;
    int64_t removed;
    bool more;

    if (bson_iter_init_find(&at, entry, "s"))
        bson_iter_overwrite_int64(&at, end->sum + entry->len);
    status = truce__kv_row_insert(writer->kv, table, &row, kv_body(entry), error);
    if (status)
        return status;
    end->last = position;
    truce__feed_pass(writer, position);
    end->sum += entry->len;
    end->fresh_bytes += entry->len;
    truce__writer_touch(writer, FEED_WAKE);
    return ++end->fresh < PRUNE_EACH ? TRUCE_OK : feed_prune(writer, &removed, &more, error);
}

static bool feed_covers(struct writer *writer, const char *collection)
{
    return writer->catalog && writer->catalog->feed.table &&
           !(writer->suppressed && writer->suppressed(collection));
}

static void feed_append_id(bson_t *entry, const bson_t *document)
{
    struct value id = truce__value_field(truce__value_document(document), "_id", 3);
    bson_t key = BSON_INITIALIZER;

    truce__value_append(&key, "_id", 3, id);
    feed_append_binary(entry, "k", &key);
    bson_destroy(&key);
}

/* Appends the images of the document before and after the change. A document that was replaced or
 * reported as a whole is its own image after the change. */
static void feed_append_images(bson_t *entry, enum feed_kind kind, const bson_t *before,
                               const bson_t *after)
{
    if (before)
        feed_append_binary(entry, "b", before);
    if (kind == FEED_UPDATE)
        feed_append_binary(entry, "a", after);
}

truce_status truce__feed_report(struct writer *writer, const struct collection *collection,
                                const bson_t *before, const bson_t *after, bool whole,
                                bson_error_t *error)
{
    enum feed_kind kind = !before ? FEED_INSERT : !after ? FEED_DELETE : FEED_REPLACE;
    bson_t entry, diff = BSON_INITIALIZER;
    truce_status status;
    int64_t position;

    if (!feed_covers(writer, collection->name) || (before && after && bson_equal(before, after)))
        return TRUCE_OK;
    status = feed_find_end(writer, error);
    if (status)
        return status;
    if (kind == FEED_REPLACE && !whole) {
        bson_destroy(&diff);
        if (truce__feed_diff(before, after, &diff))
            kind = FEED_UPDATE;
    }
    begin_entry(writer, kind, collection->name, &position, &entry);
    BSON_APPEND_INT64(&entry, "i", collection->id);
    feed_append_id(&entry, before ? before : after);
    if (kind == FEED_UPDATE)
        feed_append_binary(&entry, "u", &diff);
    else if (after)
        feed_append_binary(&entry, "f", after);
    if (collection->images)
        feed_append_images(&entry, kind, before, after);
    status = put_entry(writer, position, &entry, error);
    bson_destroy(&entry);
    bson_destroy(&diff);
    return status;
}

static bool feed_covers_fact(struct writer *writer, const struct feed_fact *fact)
{
    return writer->catalog->feed.table &&
           (fact->kind == FEED_DROP_DATABASE || feed_covers(writer, fact->name));
}

truce_status truce__feed_report_fact(struct writer *writer, const struct feed_fact *fact,
                                     bson_error_t *error)
{
    const struct collection *ignored;
    /* The name does not matter: the call only loads the catalog. */
    truce_status status = truce__writer_collection(writer, "", &ignored, error);
    int64_t position;
    bson_t entry;

    if (status || !feed_covers_fact(writer, fact))
        return status;
    status = feed_find_end(writer, error);
    if (status)
        return status;
    begin_entry(writer, fact->kind, fact->name, &position, &entry);
    if (fact->number)
        BSON_APPEND_INT64(&entry, "i", fact->number);
    if (fact->dropped)
        BSON_APPEND_INT64(&entry, "j", fact->dropped);
    if (fact->other)
        BSON_APPEND_UTF8(&entry, "t", fact->other);
    if (fact->what)
        feed_append_binary(&entry, "v", fact->what);
    if (fact->before)
        feed_append_binary(&entry, "p", fact->before);
    status = put_entry(writer, position, &entry, error);
    bson_destroy(&entry);
    return status;
}

bson_t *truce__feed_options(const struct collection *collection)
{
    bson_t *options = bson_new();

    if (collection->validator)
        BSON_APPEND_DOCUMENT(options, "validator", truce__match_filter(collection->validator));
    if (collection->images)
        BSON_APPEND_BOOL(options, "images", true);
    return options;
}

truce_status truce__feed_report_made(struct writer *writer, const char *name, bson_error_t *error)
{
    struct feed_fact fact = {.kind = FEED_CREATE, .name = name};
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, name, &collection, error);
    bson_t *options;

    if (status)
        return status;
    options = truce__feed_options(collection);
    fact.number = collection->id;
    fact.what = options;
    status = truce__feed_report_fact(writer, &fact, error);
    bson_destroy(options);
    return status;
}

truce_status truce__feed_report_index(struct writer *writer, enum feed_kind kind,
                                      const struct collection *collection,
                                      const struct index_spec *spec, bson_error_t *error)
{
    struct feed_fact fact = {.kind = kind, .name = collection->name, .number = collection->id};
    truce_status status;
    bson_t definition;

    truce__index_describe(spec, &definition);
    fact.what = &definition;
    status = truce__feed_report_fact(writer, &fact, error);
    bson_destroy(&definition);
    return status;
}

/* ---- the feed as a whole -------------------------------------------------------------------- */

struct feed_op {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    struct feed_spec wanted;
    enum feed_kind kind;
    const char *name;
    int64_t removed;
    bool more;
};

static truce_status switch_on(const struct feed_spec *wanted, struct writer *writer,
                              bson_error_t *error)
{
    struct feed_spec feed = *wanted;
    truce_status status;

    bson_oid_init(&feed.id, NULL);
    status = truce__catalog_add_feed(writer->kv, &feed, error);
    if (status)
        return status;
    return move_horizon(writer->kv, feed.table,
                        truce__feed_position(truce__clock_wall_ms() / 1000, 0), true, error);
}

/* Switches the feed on or off, or changes what it keeps. Does nothing if the feed has these
 * settings already. */
static truce_status feed_run_keep(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    const struct feed_spec *wanted = &((struct feed_op *)base)->wanted;
    const struct collection *ignored;
    truce_status status = truce__writer_collection(writer, "", &ignored, error);
    struct feed_spec feed = status ? *wanted : writer->catalog->feed;

    if (status || (!feed.table && !wanted->keep_ms) ||
        (feed.table && feed.keep_ms == wanted->keep_ms && feed.keep_bytes == wanted->keep_bytes))
        return status;
    if (!feed.table) {
        status = switch_on(wanted, writer, error);
    } else if (!wanted->keep_ms) {
        status = truce__catalog_drop_feed(writer->kv, &feed, error);
    } else {
        feed.keep_ms = wanted->keep_ms;
        feed.keep_bytes = wanted->keep_bytes;
        status = truce__catalog_change_feed(writer->kv, &feed, error);
    }
    writer->feed.known = false;
    truce__writer_touch(writer, FEED_WAKE);
    truce__writer_catalog_changed(writer);
    return status;
}

static truce_status run_note(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    const struct feed_op *op = (const struct feed_op *)base;

    return truce__feed_report_fact(writer, &(struct feed_fact){op->kind, op->name}, error);
}

static truce_status run_prune(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct feed_op *op = (struct feed_op *)base;
    const struct collection *ignored;
    truce_status status = truce__writer_collection(writer, "", &ignored, error);

    op->removed = 0;
    op->more = false;
    if (status || !writer->catalog->feed.table)
        return status;
    status = feed_find_end(writer, error);
    return status ? status : feed_prune(writer, &op->removed, &op->more, error);
}

static truce_status feed_run(struct engine *engine, struct feed_op *op, bson_error_t *error)
{
    truce_status status = truce__engine_writable(engine, error);

    if (status)
        return status;
    op->base.relaxed = engine->relaxed;
    op->base.deadline_ns = truce__engine_deadline(engine, 0);
    return truce__writer_run(&engine->writer, &op->base, error);
}

truce_status truce__engine_feed_keep(struct engine *engine, int64_t keep_ms, int64_t keep_bytes,
                                     bson_error_t *error)
{
    struct feed_op op = {.base.run = feed_run_keep,
                         .wanted = {.keep_ms = keep_ms, .keep_bytes = keep_bytes}};

    truce_assert(keep_ms >= 0 && keep_bytes >= 0);
    return feed_run(engine, &op, error);
}

truce_status truce__engine_feed_note(struct engine *engine, enum feed_kind kind, const char *name,
                                     bson_error_t *error)
{
    struct feed_op op = {.base.run = run_note, .kind = kind, .name = name};

    return feed_run(engine, &op, error);
}

truce_status truce__engine_feed_prune(struct engine *engine, int64_t *removed, bool *more,
                                      bson_error_t *error)
{
    struct feed_op op = {.base.run = run_prune};
    truce_status status = feed_run(engine, &op, error);

    *more = !status && op.more;
    if (removed)
        *removed = status ? 0 : op.removed;
    return status;
}

/* ---- reading entries ------------------------------------------------------------------------ */

static bool read_binary(const bson_iter_t *at, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!BSON_ITER_HOLDS_BINARY(at))
        return false;
    bson_iter_binary(at, NULL, &size, &bytes);
    return bson_init_static(document, bytes, size);
}

static const char *feed_read_text(const bson_iter_t *at)
{
    return BSON_ITER_HOLDS_UTF8(at) ? bson_iter_utf8(at, NULL) : NULL;
}

static int64_t feed_read_number(const bson_iter_t *at)
{
    return BSON_ITER_HOLDS_INT64(at) ? bson_iter_int64(at) : 0;
}

/* Reads a field of an entry. Returns false if the field is damaged. Skips unknown fields. */
static bool feed_read_field(const bson_iter_t *at, struct feed_entry *entry, int64_t *sum)
{
    const char *name = bson_iter_key(at), *text;

    if (name[0] && name[1])
        return true;
    switch (name[0]) {
    case 's':
        *sum = BSON_ITER_HOLDS_INT64(at) ? bson_iter_int64(at) : -1;
        return *sum >= 0;
    case 'w':
        entry->wall_ms = BSON_ITER_HOLDS_DATE_TIME(at) ? bson_iter_date_time(at) : 0;
        return BSON_ITER_HOLDS_DATE_TIME(at);
    case 'o':
        text = feed_read_text(at);
        entry->kind =
            text && text[0] && strchr("iurdcnbkmxy", text[0]) ? (enum feed_kind)text[0] : 0;
        return entry->kind;
    case 'c':
        return (entry->collection = feed_read_text(at)) != NULL;
    case 't':
        return (entry->other = feed_read_text(at)) != NULL;
    case 'k':
        return read_binary(at, &entry->id);
    case 'f':
        return read_binary(at, &entry->document);
    case 'u':
        return read_binary(at, &entry->diff);
    case 'b':
        return read_binary(at, &entry->before);
    case 'x':
        entry->continues = BSON_ITER_HOLDS_BOOL(at) && bson_iter_bool(at);
        return true;
    case 'i':
        return (entry->number = feed_read_number(at)) > 0;
    case 'j':
        return (entry->dropped = feed_read_number(at)) > 0;
    case 'v':
        return read_binary(at, &entry->what);
    case 'p':
        return read_binary(at, &entry->had);
    case 'a':
        return read_binary(at, &entry->after);
    default:
        return true;
    }
}

/* Returns whether the entry has everything that its kind requires. */
static bool feed_read_is_whole(const struct feed_entry *entry)
{
    bool named = entry->kind && strchr("cbnkm", (char)entry->kind);

    if (!entry->kind || !entry->collection || (entry->kind == FEED_RENAME && !entry->other))
        return false;
    if (named)
        return true;
    if (entry->kind == FEED_INDEX || entry->kind == FEED_INDEX_DROP)
        return !bson_empty(&entry->what);
    if (!bson_has_field(&entry->id, "_id"))
        return false;
    if (entry->kind == FEED_UPDATE)
        return !bson_empty(&entry->diff);
    return entry->kind == FEED_DELETE || !bson_empty(&entry->document);
}

/* Reads an entry. Returns false if it is damaged. The documents of the entry borrow from `body`. */
static bool truce__feed_entry(int64_t position, struct bytes body, struct feed_entry *entry,
                              int64_t *sum)
{
    bson_t document;
    bson_iter_t at;

    *entry = (struct feed_entry){.position = position};
    bson_init(&entry->id);
    bson_init(&entry->document);
    bson_init(&entry->diff);
    bson_init(&entry->before);
    bson_init(&entry->after);
    bson_init(&entry->what);
    bson_init(&entry->had);
    *sum = -1;
    if (!bson_init_static(&document, body.data, body.size) || !bson_iter_init(&at, &document))
        return false;
    while (bson_iter_next(&at))
        if (!feed_read_field(&at, entry, sum))
            return false;
    return *sum >= 0 && feed_read_is_whole(entry);
}

static truce_status bad_entry(int64_t position, bson_error_t *error)
{
    return truce__fail(
        TRUCE_CORRUPT, error,
        "the entry %lld of the feed of changes is damaged: truce check shows all damage",
        (long long)position);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

void truce__feed_token(const bson_oid_t *feed, int64_t position, uint8_t point,
                       char text[FEED_TOKEN_TEXT])
{
    uint8_t bytes[FEED_TOKEN_BYTES] = {FEED_TOKEN_VERSION};

    for (int i = 0; i < 8; i++)
        bytes[1 + i] = (uint8_t)((uint64_t)position >> (56 - 8 * i));
    bytes[9] = point;
    memcpy(bytes + 10, feed->bytes, sizeof feed->bytes);
    truce__hex_write(bytes, FEED_TOKEN_BYTES, text);
    text[FEED_TOKEN_TEXT - 1] = '\0';
}

/* ---- oldest and newest events --------------------------------------------------------------- */

/* Reads the horizon from the header of the feed. Fails with CORRUPT if the header is missing or
 * damaged. */
static truce_status feed_horizon(struct kv *kv, const struct feed_spec *feed, int64_t *horizon,
                                 bson_error_t *error)
{
    struct bytes body;
    truce_status status;
    bson_t header;
    bson_iter_t at;

    truce__kv_wide(kv, feed->table);
    status = truce__kv_row_get(kv, feed->table, FEED_HEADER, &body, error);
    *horizon = 0;
    if (status == TRUCE_NOT_FOUND)
        return bad_entry(FEED_HEADER, error);
    if (status)
        return status;
    if (!bson_init_static(&header, body.data, body.size) ||
        !bson_iter_init_find(&at, &header, "horizon") || !BSON_ITER_HOLDS_INT64(&at))
        return bad_entry(FEED_HEADER, error);
    *horizon = bson_iter_int64(&at);
    return TRUCE_OK;
}

struct end_row {
    /* The first or the last row of the feed. If it is the header, all fields but `row` are 0. */
    int64_t row, sum, size, wall_ms;
};

/* Finds the first row in the direction, which may be the header. */
static truce_status end_row(struct kv *kv, const struct feed_spec *feed, bool last,
                            struct end_row *end, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    struct feed_entry entry;
    truce_status status;

    truce__kv_wide(kv, feed->table);
    status =
        truce__kv_rows_seek(kv, feed->table, last ? INT64_MAX : FEED_HEADER, last, &cursor, error);
    *end = (struct end_row){.row = FEED_HEADER};
    if (!status)
        status = truce__kv_cursor_next(&cursor, error);
    if (!status && cursor.row != FEED_HEADER) {
        end->row = cursor.row;
        end->size = (int64_t)cursor.body.size;
        if (!truce__feed_entry(cursor.row, cursor.body, &entry, &end->sum))
            status = bad_entry(cursor.row, error);
        end->wall_ms = entry.wall_ms;
    }
    truce__kv_cursor_close(&cursor);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Finds the last entry: its position, and the bytes of all entries that ever existed. If the feed
 * has no entry, they are the horizon and 0. */
static truce_status feed_last(struct kv *kv, const struct feed_spec *feed, int64_t *last,
                              int64_t *sum, bson_error_t *error)
{
    struct end_row end;
    truce_status status = end_row(kv, feed, true, &end, error);

    *last = end.row;
    *sum = end.sum;
    if (!status && *last == FEED_HEADER)
        status = feed_horizon(kv, feed, last, error);
    return status;
}

/* Reads the state of the feed in the reader's snapshot. The table is 0 if there is no feed. */
static truce_status feed_read_state(struct reader *reader, struct feed_state *state,
                                    bson_error_t *error)
{
    const struct feed_spec *feed = &reader->catalog->feed;
    struct end_row first;
    truce_status status;
    int64_t sum;

    *state = (struct feed_state){.spec = *feed};
    if (!feed->table)
        return TRUCE_OK;
    state->file = reader->catalog->id;
    status = feed_horizon(reader->kv, feed, &state->horizon, error);
    if (!status)
        status = feed_last(reader->kv, feed, &state->last, &sum, error);
    if (!status)
        status = end_row(reader->kv, feed, false, &first, error);
    if (!status) {
        state->bytes = sum - first.sum + first.size;
        state->oldest_ms = first.wall_ms;
    }
    return status;
}

truce_status truce__engine_feed_state(struct engine *engine, struct feed_state *state,
                                      bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    struct reader *reader;

    *state = (struct feed_state){0};
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    status = feed_read_state(reader, state, error);
    truce__engine_read_end(engine, reader);
    return status;
}

truce_status truce__engine_feed_count(struct engine *engine, int64_t *entries, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    struct reader *reader;
    int64_t table;

    *entries = 0;
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    table = reader->catalog->feed.table;
    if (table)
        status = truce__kv_rows_count(reader->kv, table, entries, error);
    if (!status && table)
        /* One of the rows is the header. */
        *entries -= 1;
    truce__engine_read_end(engine, reader);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reading {
    feed_take *take;
    void *arg;
    /* The position up to which everything was taken. */
    int64_t reached;
    /* The number of entries that may still be passed in this batch. */
    int left;
    bool damaged, stopped;
};

/* Passes an entry to the caller of a read. Returns false after a batch, at a damaged entry, or if
 * the caller's function stops. */
static bool feed_read_take_row(void *arg, int64_t row, struct bytes body)
{
    struct reading *reading = arg;
    struct feed_entry entry;
    int64_t sum;

    if (!reading->left--) {
        reading->stopped = true;
        return false;
    }
    if (!truce__feed_entry(row, body, &entry, &sum)) {
        reading->damaged = true;
        reading->reached = row;
        return false;
    }
    reading->stopped = !reading->take(reading->arg, &entry);
    if (!reading->stopped)
        reading->reached = row;
    return !reading->stopped;
}

/* Checks that the feed still has all changes after a position. Fails with EXPIRED if some were
 * removed, and with INVALID if the position is after the end of the feed. */
static truce_status feed_read_check_position(const struct feed_state *state, const bson_oid_t *id,
                                             int64_t after, bson_error_t *error)
{
    if (!state->spec.table || !bson_oid_equal(&state->spec.id, id) || after < state->horizon)
        return truce__fail(
            TRUCE_EXPIRED, error,
            "the changes after position %" PRId64
            " were removed: read the documents again, and then the later changes (--feed-keep sets "
            "how long changes are kept)",
            after);
    if (after > state->last)
        return truce__fail(TRUCE_INVALID, error,
                           "the feed of changes ends at position %" PRId64
                           " and has not reached position %" PRId64
                           ": was the file replaced by an older copy?",
                           state->last, after);
    return TRUCE_OK;
}

truce_status truce__engine_feed_read(struct engine *engine, const bson_oid_t *id, int64_t after,
                                     int most, feed_take *take, void *arg, int64_t *reached,
                                     bson_error_t *error)
{
    struct reading reading = {.take = take, .arg = arg, .reached = after, .left = most};
    truce_status status = truce__engine_usable(engine, error);
    struct feed_state state;
    struct reader *reader;

    *reached = after;
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    status = feed_read_state(reader, &state, error);
    if (!status)
        status = feed_read_check_position(&state, id, after, error);
    if (!status)
        status = truce__kv_rows_each(reader->kv, state.spec.table, after, feed_read_take_row,
                                     &reading, error);
    truce__engine_read_end(engine, reader);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && reading.damaged)
        status = bad_entry(reading.reached, error);
    *reached = status ? after : reading.reached;
    return status;
}

/* ---- the check ------------------------------------------------------------------------------ */

/* The position and the `s` of the last valid entry, and the position of the first damaged one or
 * 0. */
struct checking {
    int64_t last, sum, bad;
};

/* Checks that positions grow, and that `s` grows by the size of each entry (invariants 2 and 5). */
static bool check_row(void *arg, int64_t row, struct bytes body)
{
    struct checking *checking = arg;
    struct feed_entry entry;
    int64_t sum;

    if (!truce__feed_entry(row, body, &entry, &sum) || row <= checking->last ||
        (checking->sum && sum != checking->sum + (int64_t)body.size)) {
        checking->bad = row;
        return false;
    }
    checking->last = row;
    checking->sum = sum;
    return true;
}

truce_status truce__feed_check(struct kv *kv, const struct feed_spec *feed, bson_error_t *error)
{
    struct checking checking = {0};
    truce_status status;

    if (!feed->table)
        return TRUCE_OK;
    status = feed_horizon(kv, feed, &checking.last, error);
    if (!status)
        status = truce__kv_rows_each(kv, feed->table, FEED_HEADER, check_row, &checking, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    return !status && checking.bad ? bad_entry(checking.bad, error) : status;
}

/* ---- differences ---------------------------------------------------------------------------- */

/*
 * The differences of an update, as change streams report them.
 *
 *     before {a: 1, b: {c: 2, d: 3}, e: [1, 2, 3], f: [1]}
 *     after  {a: 1, b: {c: 5}, e: [1, 7], f: [1, 9], g: 4}
 *
 *     {updatedFields: {"b.c": 5, "e.1": 7, "f.1": 9, g: 4}, removedFields: ["b.d"],
 *      truncatedArrays: [{field: "e", newSize: 2}]}
 *
 * A path with a field whose name looks like an array index, "a.0.1" for example, is made
 * unambiguous:
 *
 *     disambiguatedPaths: {"a.0.1": ["a", 0, "1"]}
 *
 * Fields are compared in lockstep: common fields must be in the same order, and new ones after
 * them. If this does not hold for an inner document or array, or if its changed fields have names
 * that a path cannot contain (empty, with a dot, or with a leading dollar), it is reported as a
 * whole. If it does not hold for the outer document, there is no difference.
 *
 * Invariants:
 *  1. Applying the difference to `before` yields the fields and values of `after`.
 *  2. The work is bounded by the size of both documents: a removed field is searched for in all of
 *     `after`, so a document may have at most GONE_MAX of them. A difference that is longer than
 *     both documents is not used.
 */

/* The maximum number of removed fields in a document (invariant 2). */
#define GONE_MAX 256

struct walk {
    /* The path of the current field. `marks` has one byte for each name in the path (enum mark). */
    struct buffer path, marks;
    /* The number of fields in the path whose names look like array indexes. */
    uint32_t numbers;
    /* The parts of the result: updatedFields, removedFields, truncatedArrays, and
     * disambiguatedPaths. */
    bson_t *set, gone, cut, clear;
    uint32_t gone_count, cut_count;
    /* The maximum size of the parts in bytes. `too_long` is set if it is exceeded. */
    size_t most;
    bool too_long;
};

static bool diff_plain_name(const struct fields *field)
{
    return field->key_length && field->key[0] != '$' && !memchr(field->key, '.', field->key_length);
}

static bool diff_same_name(const struct fields *a, const struct fields *b)
{
    return a->key_length == b->key_length && !memcmp(a->key, b->key, a->key_length);
}

/* Returns whether paths can describe the differences between the two documents themselves. */
static bool diff_is_expressible(struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool more = truce__fields_next(&new);
    int gone = 0;

    while (truce__fields_next(&old)) {
        if (more && diff_same_name(&old, &new)) {
            if (!diff_plain_name(&old) && !truce__value_identical(old.value, new.value))
                return false;
            more = truce__fields_next(&new);
            continue;
        }
        if (++gone > GONE_MAX || !diff_plain_name(&old) ||
            truce__value_field(after, old.key, old.key_length).type)
            return false;
    }
    for (; more; more = truce__fields_next(&new))
        if (!diff_plain_name(&new))
            return false;
    return true;
}

/* ---- reporting ------------------------------------------------------------------------------ */

/* How a name in a path is meant: a field, a field whose name looks like an array index, or an array
 * index. */
enum mark { NAME, NUMBER, INDEX };

static bool looks_like_an_index(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] < '0' || name[i] > '9')
            return false;
    return length && length < 10 && (name[0] != '0' || length == 1);
}

/* Appends a name to the path. Returns the previous length. */
static size_t diff_enter(struct walk *walk, const char *name, size_t length, bool index)
{
    size_t had = walk->path.size;
    /* The outer document is not an array, so the names of its own fields are never ambiguous. */
    enum mark mark = index ? INDEX : had && looks_like_an_index(name, length) ? NUMBER : NAME;

    truce__buffer_append_byte(&walk->marks, (uint8_t)mark);
    walk->numbers += mark == NUMBER;
    if (had)
        truce__buffer_append(&walk->path, ".", 1);
    truce__buffer_append(&walk->path, name, length);
    return had;
}

static void diff_leave(struct walk *walk, size_t had)
{
    walk->path.size = had;
    walk->numbers -= walk->marks.bytes[--walk->marks.size] == NUMBER;
}

static bool diff_has_room(struct walk *walk, size_t more)
{
    walk->too_long = walk->too_long || (size_t)walk->set->len + walk->gone.len + walk->cut.len +
                                               walk->clear.len + walk->path.size + more >
                                           walk->most;
    return !walk->too_long;
}

static int32_t diff_index_of(const char *digits, int length)
{
    int32_t point = 0;

    for (int i = 0; i < length; i++)
        point = 10 * point + (digits[i] - '0');
    return point;
}

/* Reports [names and indexes] of an ambiguous path. */
static void diff_append_path_parts(struct walk *walk)
{
    const char *path = (const char *)walk->path.bytes, *end = path + walk->path.size;
    bson_t names;

    if (!walk->numbers || !diff_has_room(walk, walk->path.size + 16 * walk->marks.size + 16))
        return;
    bson_append_array_begin(&walk->clear, path, (int)walk->path.size, &names);
    for (uint32_t i = 0; i < walk->marks.size; i++) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        int length = (int)((dot ? dot : end) - path);
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        if (walk->marks.bytes[i] == INDEX)
            BSON_APPEND_INT32(&names, key, diff_index_of(path, length));
        else
            bson_append_utf8(&names, key, -1, path, length);
        path += length + 1;
    }
    bson_append_array_end(&walk->clear, &names);
}

static void diff_append_set(struct walk *walk, struct value value)
{
    diff_append_path_parts(walk);
    if (diff_has_room(walk, value.size))
        truce__value_append(walk->set, (const char *)walk->path.bytes, walk->path.size, value);
}

static void diff_append_removed(struct walk *walk)
{
    char buffer[16];
    const char *key;

    diff_append_path_parts(walk);
    if (!diff_has_room(walk, sizeof buffer))
        return;
    bson_uint32_to_string(walk->gone_count++, &key, buffer, sizeof buffer);
    bson_append_utf8(&walk->gone, key, -1, (const char *)walk->path.bytes, (int)walk->path.size);
}

/* Reports that the array at the current path became shorter. */
static void diff_append_truncated(struct walk *walk, uint32_t size)
{
    char buffer[16];
    const char *key;
    bson_t cut;

    diff_append_path_parts(walk);
    if (!diff_has_room(walk, 64))
        return;
    bson_uint32_to_string(walk->cut_count++, &key, buffer, sizeof buffer);
    bson_append_document_begin(&walk->cut, key, -1, &cut);
    bson_append_utf8(&cut, "field", 5, (const char *)walk->path.bytes, (int)walk->path.size);
    BSON_APPEND_INT32(&cut, "newSize", (int32_t)size);
    bson_append_document_end(&walk->cut, &cut);
}

/* ---- arrays and documents ------------------------------------------------------------------- */

static void feed_diff_value(struct walk *walk, struct value before, struct value after);

/* Returns the bytes of the elements of `after` that `before` does not have at the same index.
 * Containers may differ partly. */
static size_t feed_count_changed_bytes(struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool has_old = true;
    size_t bytes = 0;

    while (truce__fields_next(&new)) {
        has_old = has_old && truce__fields_next(&old);
        if (has_old && truce__value_identical(old.value, new.value))
            continue;
        bytes += 8;
        if (!has_old || old.value.type != new.value.type || !truce__value_is_container(new.value))
            bytes += new.value.size;
    }
    return bytes;
}

/* Reports the differences of two arrays element by element, and the new length if the array became
 * shorter. */
static void diff_array(struct walk *walk, struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool has_old = true;
    uint32_t count = 0;

    for (; truce__fields_next(&new); count++) {
        char buffer[16];
        const char *key;
        size_t had, length = bson_uint32_to_string(count, &key, buffer, sizeof buffer);

        has_old = has_old && truce__fields_next(&old);
        if (has_old && truce__value_identical(old.value, new.value))
            continue;
        had = diff_enter(walk, key, length, true);
        if (has_old)
            feed_diff_value(walk, old.value, new.value);
        else
            diff_append_set(walk, new.value);
        diff_leave(walk, had);
    }
    if (has_old && truce__fields_next(&old))
        diff_append_truncated(walk, count);
}

/* Reports the differences of two documents: changed, removed, and new fields. Fields that moved
 * count as removed and new. */
static void diff_document(struct walk *walk, struct value before, struct value after)
{
    struct fields old = truce__fields(before), new = truce__fields(after);
    bool more = truce__fields_next(&new);
    size_t had;

    while (truce__fields_next(&old)) {
        bool both = more && diff_same_name(&old, &new);

        if (!both || !truce__value_identical(old.value, new.value)) {
            had = diff_enter(walk, old.key, old.key_length, false);
            if (both)
                feed_diff_value(walk, old.value, new.value);
            else
                diff_append_removed(walk);
            diff_leave(walk, had);
        }
        if (both)
            more = truce__fields_next(&new);
    }
    for (; more; more = truce__fields_next(&new)) {
        had = diff_enter(walk, new.key, new.key_length, false);
        diff_append_set(walk, new.value);
        diff_leave(walk, had);
    }
}

static void feed_diff_value(struct walk *walk, struct value before, struct value after)
{
    if (walk->too_long)
        return;
    if (before.type == BSON_TYPE_DOCUMENT && after.type == BSON_TYPE_DOCUMENT &&
        diff_is_expressible(before, after))
        diff_document(walk, before, after);
    else if (before.type == BSON_TYPE_ARRAY && after.type == BSON_TYPE_ARRAY &&
             feed_count_changed_bytes(before, after) < after.size)
        diff_array(walk, before, after);
    else
        diff_append_set(walk, after);
}

bool truce__feed_diff(const bson_t *before, const bson_t *after, bson_t *diff)
{
    struct value old = truce__value_document(before), new = truce__value_document(after);
    struct walk walk = {.gone = BSON_INITIALIZER,
                        .cut = BSON_INITIALIZER,
                        .clear = BSON_INITIALIZER,
                        .most = (size_t)before->len + after->len + 64};
    bool expressed = diff_is_expressible(old, new);
    bson_t set = BSON_INITIALIZER;

    walk.set = &set;
    if (expressed)
        diff_document(&walk, old, new);
    expressed = expressed && !walk.too_long;
    bson_init(diff);
    if (expressed) {
        BSON_APPEND_DOCUMENT(diff, "updatedFields", &set);
        BSON_APPEND_ARRAY(diff, "removedFields", &walk.gone);
        BSON_APPEND_ARRAY(diff, "truncatedArrays", &walk.cut);
        if (!bson_empty(&walk.clear))
            BSON_APPEND_DOCUMENT(diff, "disambiguatedPaths", &walk.clear);
    }
    expressed = expressed && diff->len <= TRUCE_DOCUMENT_BYTES_MAX - 64 * 1024;
    if (!expressed)
        bson_reinit(diff);
    bson_destroy(&set);
    bson_destroy(&walk.gone);
    bson_destroy(&walk.cut);
    bson_destroy(&walk.clear);
    truce__buffer_release(&walk.marks);
    truce__buffer_release(&walk.path);
    return expressed;
}
