/*
 * The feed of changes: telling, and what is kept.
 *
 *     row 1           {horizon: int64}
 *     row <position>  {s: bytes so far, w: when, o: kind, c: collection, t: new name?,
 *                      k: {_id}?, f: document?, u: difference?, b: before?, a: after?,
 *                      i: number of the collection?, j: of the dropped one?, v: options or index?, p: options before?}
 *
 *     position        seconds << 31 | number: so it is also the moment that clients know (clusterTime), and one
 *                     feed that follows another, after it was off, does not use a position again
 *
 * Documents stand in an entry as binaries: one that is nested as deeply as a document may be can be told like any other.
 * Images, the document before and after a change, are only kept of collections that say so (collection.images): they make the
 * entry of an update as large as three documents.
 *
 * Invariants:
 *  1. An entry is written by the transaction that makes the change, and by every one that does: the calls are where
 *     documents (documents.c) and collections (collections.c) are changed, which no write goes around; and programs
 *     that know of no feed cannot write (catalog.c). So after a crash the feed has what the documents have.
 *  2. Positions grow in the order of commits: there is one writer at a time, and it takes the one behind the last.
 *  3. The horizon is below every entry, and never goes back. What is behind it and not there was never written:
 *     entries are removed from the oldest on, and the horizon moves in the same transaction.
 *  4. The last entry is never removed, so the next position is known from it, or from the horizon.
 *  5. `s` grows by the size of each entry: the bytes of the feed are the difference of the last and the first.
 *  6. A step that prunes is bounded: PRUNE_ROWS rows, and PRUNE_BYTES more than were written since the last one. A writer
 *     makes one for every PRUNE_EACH entries of its own, which is less than a step removes.
 *
 * Deliberately not done: what truce keeps for itself is not told (writer.untold), for those who follow could only pass over it.
 */
#include "engine/documents/feed.h"

#include "base/assert.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "query/index/index_set.h"

#define PRUNE_EACH  64
#define PRUNE_ROWS  256
#define PRUNE_BYTES (INT64_C(4) * 1024 * 1024)

/* ---- entries --------------------------------------------------------------------------------- */

int64_t truce__feed_pass(struct writer *writer, int64_t position)
{
    long long time = atomic_load(&writer->time);

    while (position > time && !atomic_compare_exchange_weak(&writer->time, &time, position))
        ;
    return position > time ? position : time;
}

/* The position of the next entry: behind the last and the time that was told, and not before now. */
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
    status = truce__feed_last(writer->kv, feed, &end->last, &end->sum, error);
    end->table = feed->table;
    end->known = !status;
    return status;
}

/* ---- pruning ----------------------------------------------------------------------------------- */

struct pruning {
    int64_t too_old_ms, too_much; /* what was written before, and what `s` up to this is of */
    int64_t last, bytes;          /* that stays; that may go yet */
    int64_t rows[PRUNE_ROWS];
    int count;
    int64_t sum; /* of the one before */
    bool more;
};

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

/* NOT_FOUND is the end of the table. */
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

/* ---- telling ------------------------------------------------------------------------------------ */

static void begin_entry(struct writer *writer, enum feed_kind kind, const char *name,
                        int64_t *position, bson_t *entry)
{
    int64_t now_ms = truce__clock_wall_ms();
    const char text[] = {(char)kind, 0};

    *position = next_position(writer, now_ms);
    bson_init(entry);
    BSON_APPEND_INT64(entry, "s", 0); /* until its size is known */
    BSON_APPEND_DATE_TIME(entry, "w", now_ms);
    BSON_APPEND_UTF8(entry, "o", text);
    BSON_APPEND_UTF8(entry, "c", name);
}

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

static bool feed_is_told(struct writer *writer, const char *collection)
{
    return writer->catalog && writer->catalog->feed.table &&
           !(writer->untold && writer->untold(collection));
}

static void feed_append_id(bson_t *entry, const bson_t *document)
{
    struct value id = truce__value_field(truce__value_document(document), "_id", 3);
    bson_t key = BSON_INITIALIZER;

    truce__value_append(&key, "_id", 3, id);
    feed_append_binary(entry, "k", &key);
    bson_destroy(&key);
}

/* A document that was replaced, or told whole, is its own image after the change. */
static void feed_append_images(bson_t *entry, enum feed_kind kind, const bson_t *before,
                               const bson_t *after)
{
    if (before)
        feed_append_binary(entry, "b", before);
    if (kind == FEED_UPDATE)
        feed_append_binary(entry, "a", after);
}

truce_status truce__feed_tell(struct writer *writer, const struct collection *collection,
                              const bson_t *before, const bson_t *after, bool whole,
                              bson_error_t *error)
{
    enum feed_kind kind = !before ? FEED_INSERT : !after ? FEED_DELETE : FEED_REPLACE;
    bson_t entry, diff = BSON_INITIALIZER;
    truce_status status;
    int64_t position;

    if (!feed_is_told(writer, collection->name) || (before && after && bson_equal(before, after)))
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

static bool is_told_of(struct writer *writer, const struct feed_fact *fact)
{
    return writer->catalog->feed.table &&
           (fact->kind == FEED_DROP_DATABASE || feed_is_told(writer, fact->name));
}

truce_status truce__feed_tell_fact(struct writer *writer, const struct feed_fact *fact,
                                   bson_error_t *error)
{
    const struct collection *ignored;
    /* any name: it loads the catalog */
    truce_status status = truce__writer_collection(writer, "", &ignored, error);
    int64_t position;
    bson_t entry;

    if (status || !is_told_of(writer, fact))
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

truce_status truce__feed_tell_made(struct writer *writer, const char *name, bson_error_t *error)
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
    status = truce__feed_tell_fact(writer, &fact, error);
    bson_destroy(options);
    return status;
}

truce_status truce__feed_tell_index(struct writer *writer, enum feed_kind kind,
                                    const struct collection *collection,
                                    const struct index_spec *spec, bson_error_t *error)
{
    struct feed_fact fact = {.kind = kind, .name = collection->name, .number = collection->id};
    truce_status status;
    bson_t definition;

    truce__index_describe(spec, &definition);
    fact.what = &definition;
    status = truce__feed_tell_fact(writer, &fact, error);
    bson_destroy(&definition);
    return status;
}

/* ---- the feed as a whole --------------------------------------------------------------------------- */

struct feed_op {
    struct write_op base; /* first */
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

    return truce__feed_tell_fact(writer, &(struct feed_fact){op->kind, op->name}, error);
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
