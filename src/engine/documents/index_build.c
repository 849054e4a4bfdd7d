/*
 * Builds an index on live data.
 *
 * Each step is one short transaction, and other writers run between steps:
 *
 *     admit     checks the definition against the existing ones and adds the index to the catalog
 *               as BUILDING with an empty key table. After that every writer of every process
 *               keeps it up to date for the documents that it changes.
 *     fill      enters CHUNK documents (or CHUNK_BYTES of them) after the last finished row, until
 *               none are left
 *     check     (unique only) CHECKING: the index contains all documents, so writers now refuse
 *               new duplicates; older ones are searched for in snapshots, in the order of keys
 *     ready     READY: queries use it
 *
 * A collection that fits into one chunk goes from admit to ready in one transaction.
 *
 * A step works on a copy of the committed progress (`at`), since it may be rolled back and run
 * again with the other operations of its group. The copy counts when the transaction is committed.
 *
 * A failure (a duplicate key, parallel arrays, a full disk, a deadline) drops the index again.
 * During the build the builder claims the number of the index in the lock file, and the claim ends
 * with the builder. An index that is not READY and has no claim is an orphan. The next process that
 * creates an index, or that opens the store for writing, drops it.
 *
 * A CHECKING index may refuse a write and be dropped later because of another duplicate. The client
 * can then simply repeat the write.
 */
#include "engine/documents/index_build.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/collections.h"
#include "engine/documents/indexed_documents.h"
#include "query/index/index_set.h"

/* One step of a build enters at most CHUNK documents, and stops after CHUNK_BYTES bytes. */
#define CHUNK       1000
#define CHUNK_BYTES (16 * 1024 * 1024)
/* The steps of the budget that entering a document takes, in addition to the steps for its size. */
#define STEPS_OF_DOCUMENT 64
/* The steps of the budget that comparing an entry with the previous one takes. */
#define STEPS_OF_ENTRY 4

/* The progress of a build. */
struct progress {
    /* The number of the index, or 0 before it is admitted. */
    int64_t index;
    /* Rows up to this number are in the index. */
    int64_t after;
    /* The collection has the same index already, so nothing is built. */
    bool present;
    /* Whether all documents were entered, and whether queries can use the index. */
    bool filled, ready;
};

struct build {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    truce_status (*step)(struct build *build, struct writer *writer, bson_error_t *error);
    const char *collection;
    const struct index_spec *spec;
    /* The committed progress. */
    struct progress done;
    /* The progress with the running step, which may be rolled back and run again. */
    struct progress at;
    /* The claim of this build (write_lock.h), or -1 if it has none. */
    int claim;
    /* The budget of the whole build, except for abandoning it. */
    struct budget budget;
};

/* ---- documents, a chunk at a time ----------------------------------------------------------- */

struct chunk {
    struct {
        int64_t row;
        /* NULL if the bytes are not a valid document. Owned. */
        bson_t *document;
    } items[CHUNK];
    uint32_t count;
    /* The size of these documents. */
    size_t bytes;
    /* Whether no documents follow. */
    bool last;
};

static void release_chunk(struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (chunk->items[i].document)
            bson_destroy(chunk->items[i].document);
    }
    bson_free(chunk);
}

static truce_status add_to_chunk(struct chunk *chunk, const struct kv_cursor *cursor,
                                 bson_error_t *error)
{
    bson_t *document = bson_new_from_data(cursor->body.data, cursor->body.size);

    chunk->bytes += cursor->body.size;
    chunk->items[chunk->count].row = cursor->row;
    chunk->items[chunk->count++].document = document;
    if (!document)
        return truce__fail(TRUCE_CORRUPT, error,
                           "the document in row %lld is damaged: truce check shows all damage",
                           (long long)cursor->row);
    return TRUCE_OK;
}

/* Reads the documents after the row `after` into the chunk, which the caller releases, also on
 * failure. Sets chunk->last if none follow. */
static truce_status build_read_chunk(struct kv *kv, int64_t table, int64_t after,
                                     struct chunk *chunk, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    truce_status status = truce__kv_rows_seek(kv, table, after, false, &cursor, error);

    while (!status && chunk->count < CHUNK && chunk->bytes < CHUNK_BYTES) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status)
            status = add_to_chunk(chunk, &cursor, error);
    }
    truce__kv_cursor_close(&cursor);
    chunk->last = status == TRUCE_NOT_FOUND;
    return chunk->last ? TRUCE_OK : status;
}

/* ---- duplicate keys ------------------------------------------------------------------------- */

/* The progress of the search for duplicate keys: the last key and its last row. */
struct repeats {
    struct buffer key;
    int64_t row;
    /* The row of a duplicate key, or 0 if none was found. */
    int64_t repeated;
    /* Whether all entries were searched. */
    bool done;
};

/* Searches at most `entries_max` entries of a unique index for a key that occurs twice, and
 * continues where the last call ended. */
static truce_status build_check_repeats(struct build *build, struct kv *kv, uint32_t entries_max,
                                        struct repeats *repeats, bson_error_t *error)
{
    struct bytes from = {repeats->key.bytes, repeats->key.size};
    struct kv_cursor cursor = {0};
    truce_status status = truce__kv_keys_seek(kv, build->at.index, 0, from, repeats->row,
                                              (struct bytes){0}, false, &cursor, error);

    for (uint32_t i = 0; !status && i < entries_max && !repeats->repeated; i++) {
        status = truce__budget_spend(&build->budget, STEPS_OF_ENTRY, error);
        if (!status)
            status = truce__kv_cursor_next(&cursor, error);
        if (status)
            break;
        if (repeats->row && cursor.key.size == repeats->key.size &&
            !memcmp(cursor.key.data, repeats->key.bytes, cursor.key.size))
            repeats->repeated = cursor.row;
        repeats->key.size = 0;
        truce__buffer_append(&repeats->key, cursor.key.data, cursor.key.size);
        repeats->row = cursor.row;
    }
    truce__kv_cursor_close(&cursor);
    repeats->done = status == TRUCE_NOT_FOUND;
    return repeats->done ? TRUCE_OK : status;
}

/* Fails with the duplicate key that two documents of the collection have. */
static truce_status refuse_repeat(const struct build *build, struct kv *kv, int64_t table,
                                  const struct repeats *repeats, bson_error_t *error)
{
    struct bytes body;
    bson_t document;
    truce_status status = truce__kv_row_get(kv, table, repeats->repeated, &body, error);

    if (status)
        return status;
    if (!bson_init_static(&document, body.data, body.size))
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the document in row %lld of \"%s\" is damaged: truce check shows all damage",
            (long long)repeats->repeated, build->collection);
    return truce__index_refuse_duplicate(build->collection, build->spec,
                                         truce__value_document(&document), repeats->key.bytes,
                                         repeats->key.size, error);
}

/* ---- steps, inside the write transaction ---------------------------------------------------- */

/* Runs the current step of the build (write_op.run). A refused step may have written, so the
 * transaction is rolled back. */
static truce_status run_step(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct build *build = (struct build *)base;

    return build->step(build, writer, error);
}

/* Drops the progress of a step that was rolled back. */
static void reset_step(struct write_op *base)
{
    struct build *build = (struct build *)base;

    build->at = build->done;
}

/* Finds the collection of the build, and creates it if it does not exist. */
static truce_status build_find_or_add(struct build *build, struct writer *writer,
                                      const struct collection **collection, bson_error_t *error)
{
    truce_status status = truce__writer_collection(writer, build->collection, collection, error);

    if (status || *collection)
        return status;
    status = truce__names_add_collection(writer, build->collection, error);
    if (status)
        return status;
    truce__writer_touch(writer, build->collection);
    status = truce__feed_report_made(writer, build->collection, error);
    if (!status)
        status = truce__writer_collection(writer, build->collection, collection, error);
    return status;
}

/* Finds the collection and its index in construction. Either may have been dropped. */
static truce_status find_built(struct build *build, struct writer *writer,
                               const struct collection **collection, bson_error_t *error)
{
    truce_status status = truce__writer_collection(writer, build->collection, collection, error);

    if (status || (*collection && truce__collection_index_id(*collection, build->at.index)))
        return status;
    return truce__fail(TRUCE_CONFLICT, error,
                       "the index \"%s\" of %s was dropped while it was being built",
                       build->spec->name, build->collection);
}

/* Changes the state of the index in the catalog. Fails with CONFLICT if the index was dropped. */
static truce_status build_change_state(struct build *build, struct writer *writer,
                                       enum index_state state, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = find_built(build, writer, &collection, error);
    struct index changed;

    if (status)
        return status;
    changed = *truce__collection_index_id(collection, build->at.index);
    changed.state = state;
    status = truce__catalog_change_index(writer->kv, collection, &changed, error);
    truce__writer_catalog_changed(writer);
    return status;
}

/* Enters the documents of a chunk into the index, and moves the position of the build after
 * them. */
static truce_status enter_chunk(struct build *build, struct writer *writer,
                                const struct chunk *chunk, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < chunk->count && !status; i++) {
        const bson_t *document = chunk->items[i].document;

        status = truce__budget_spend(&build->budget, STEPS_OF_DOCUMENT + document->len / 64, error);
        if (!status)
            status = truce__documents_index(writer, build->collection, build->at.index,
                                            chunk->items[i].row, document, error);
    }
    if (!status && chunk->count)
        build->at.after = chunk->items[chunk->count - 1].row;
    build->at.filled = chunk->last;
    return status;
}

/* Enters the next chunk of documents. After the last one, a unique index must be checked for
 * repeated keys. */
static truce_status build_fill(struct build *build, struct writer *writer, bson_error_t *error)
{
    struct chunk *chunk = bson_malloc0(sizeof *chunk);
    const struct collection *collection;
    truce_status status = find_built(build, writer, &collection, error);

    if (!status)
        status = build_read_chunk(writer->kv, collection->id, build->at.after, chunk, error);
    if (!status)
        status = enter_chunk(build, writer, chunk, error);
    if (!status && build->at.filled && build->spec->unique)
        status = build_change_state(build, writer, INDEX_CHECKING, error);
    release_chunk(chunk);
    return status;
}

static truce_status build_make_ready(struct build *build, struct writer *writer,
                                     bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = build_change_state(build, writer, INDEX_READY, error);

    build->at.ready = true;
    if (!status)
        status = find_built(build, writer, &collection, error);
    return status ? status
                  : truce__feed_report_index(writer, FEED_INDEX, collection, build->spec, error);
}

/* Checks all entries of a small index at once. */
static truce_status check_and_make_ready(struct build *build, struct writer *writer,
                                         bson_error_t *error)
{
    const struct collection *collection;
    struct repeats repeats = {0};
    truce_status status = find_built(build, writer, &collection, error);

    while (!status && build->spec->unique && !repeats.done && !repeats.repeated)
        status = build_check_repeats(build, writer->kv, CHUNK, &repeats, error);
    if (!status && repeats.repeated)
        status = refuse_repeat(build, writer->kv, collection->id, &repeats, error);
    truce__buffer_release(&repeats.key);
    return status ? status : build_make_ready(build, writer, error);
}

static truce_status refuse_unfinished(const struct build *build,
                                      const struct collection *collection, bson_error_t *error)
{
    const struct index *index = truce__collection_index(collection, build->spec->name);

    if (!index || index->state == INDEX_READY)
        return TRUCE_OK;
    return truce__fail(TRUCE_CONFLICT, error, "the index \"%s\" of %s is being built",
                       build->spec->name, build->collection);
}

/* Checks the definition against the other indexes, and adds the unfinished index to the catalog. */
static truce_status build_check_limits(struct build *build, struct writer *writer,
                                       bson_error_t *error)
{
    const struct index_spec *specs[TRUCE_INDEXES_MAX];
    const struct collection *collection;
    truce_status status = build_find_or_add(build, writer, &collection, error);

    if (status)
        return status;
    for (uint32_t i = 0; i < collection->indexes_count; i++)
        specs[i] = &collection->indexes[i].spec;
    status = truce__index_admit(specs, collection->indexes_count, build->spec, &build->at.present,
                                error);
    if (status || build->at.present)
        return status ? status : refuse_unfinished(build, collection, error);
    status = truce__catalog_add_index(writer->kv, collection, build->spec, INDEX_BUILDING,
                                      &build->at.index, error);
    truce__writer_catalog_changed(writer);
    return status;
}

/* Makes the first step: admits the index and enters the first chunk. If no documents are left,
 * finishes the build. */
static truce_status build_start(struct build *build, struct writer *writer, bson_error_t *error)
{
    truce_status status;

    status = build_check_limits(build, writer, error);
    if (status || build->at.present)
        return status;
    /* If the step runs again, the index gets another number. */
    truce__lock_disclaim(build->claim);
    build->claim = truce__lock_claim(writer->lock, build->at.index);
    if (build->claim < 0)
        return truce__fail(TRUCE_IO, error, "cannot open the lock file of the store again: %s",
                           strerror(errno));
    status = build_fill(build, writer, error);
    if (!status && build->at.filled)
        status = check_and_make_ready(build, writer, error);
    /* The number is free again, and another operation of the group may get it. */
    if (status) {
        truce__lock_disclaim(build->claim);
        build->claim = -1;
    }
    return status;
}

static truce_status build_abandon(struct build *build, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = find_built(build, writer, &collection, error);

    if (status)
        return status;
    status = truce__catalog_drop_index(writer->kv, collection, build->at.index, error);
    truce__writer_catalog_changed(writer);
    return status;
}

/* ---- the build ------------------------------------------------------------------------------ */

static truce_status build_run(struct engine *engine, struct build *build,
                              truce_status (*step)(struct build *build, struct writer *writer,
                                                   bson_error_t *error),
                              bson_error_t *error)
{
    truce_status status;

    build->base =
        (struct write_op){.reset = reset_step, .run = run_step, .relaxed = engine->relaxed};
    build->base.deadline_ns = truce__engine_deadline(engine, 0);
    build->step = step;
    status = truce__writer_run(&engine->writer, &build->base, error);
    /* If the step failed, the index is abandoned, which needs only its number. */
    build->done = build->at;
    return status;
}

/* Searches a part of the index for repeated keys, in a snapshot of its own. Fails if the index was
 * dropped in the meantime. */
static truce_status build_scan_snapshot(struct engine *engine, struct build *build,
                                        struct repeats *repeats, bson_error_t *error)
{
    const struct collection *collection;
    struct reader *reader;
    truce_status status = truce__readers_begin(&engine->readers, false, &reader, error);

    if (status)
        return status;
    collection = truce__catalog_find(reader->catalog, build->collection);
    if (!collection || !truce__collection_index_id(collection, build->at.index))
        status =
            truce__fail(TRUCE_CONFLICT, error,
                        "the index \"%s\" was dropped while it was being built", build->spec->name);
    if (!status)
        status = build_check_repeats(build, reader->kv, 4 * CHUNK, repeats, error);
    if (!status && repeats->repeated)
        status = refuse_repeat(build, reader->kv, collection->id, repeats, error);
    truce__readers_end(&engine->readers, reader);
    return status;
}

static truce_status build_check_all(struct engine *engine, struct build *build, bson_error_t *error)
{
    struct repeats repeats = {0};
    truce_status status = TRUCE_OK;

    while (!status && build->spec->unique && !repeats.done)
        status = build_scan_snapshot(engine, build, &repeats, error);
    truce__buffer_release(&repeats.key);
    return status;
}

/* Runs the steps of a build. If one fails, removes the unfinished index. */
static truce_status build_index_steps(struct engine *engine, struct build *build,
                                      bson_error_t *error)
{
    truce_status status = build_run(engine, build, build_start, error);
    bson_error_t ignored;

    if (status || build->at.present || build->at.ready)
        return status;
    while (!status && !build->at.filled)
        status = build_run(engine, build, build_fill, error);
    if (!status)
        status = build_check_all(engine, build, error);
    if (!status)
        status = build_run(engine, build, build_make_ready, error);
    /* If this fails, the next sweep removes the index. */
    if (status)
        (void)build_run(engine, build, build_abandon, &ignored);
    return status;
}

truce_status truce__engine_index_create(struct engine *engine, const char *collection,
                                        const bson_t *index, bson_error_t *error)
{
    struct index_spec spec;
    struct build build = {.collection = collection, .spec = &spec, .claim = -1};
    truce_status status = truce__engine_writable(engine, error);

    if (!status)
        status = truce__index_build_sweep(engine, 0, error);
    if (!status)
        status = truce__index_spec_parse(index, &spec, error);
    if (status)
        return status;
    truce__engine_budget(engine, 0, &build.budget);
    status = build_index_steps(engine, &build, error);
    truce__lock_disclaim(build.claim);
    truce__index_spec_release(&spec);
    return status;
}

/* ---- the sweep ------------------------------------------------------------------------------ */

/* Finds an index that is not ready and that no process builds. Returns false if none is left. */
static bool find_orphan(const struct lock *lock, const struct catalog *catalog,
                        const struct collection **collection, int64_t *index)
{
    for (uint32_t i = 0; i < catalog->count; i++) {
        *collection = &catalog->collections[i];
        for (uint32_t j = 0; j < (*collection)->indexes_count; j++) {
            *index = (*collection)->indexes[j].id;
            if ((*collection)->indexes[j].state != INDEX_READY &&
                !truce__lock_is_claimed(lock, *index))
                return true;
        }
    }
    return false;
}

/* Drops every unfinished index whose builder has died. */
static truce_status drop_orphans(struct write_op *op, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status;
    int64_t index;

    (void)op;
    for (;;) {
        /* The name does not matter: the call only loads the catalog. */
        status = truce__writer_collection(writer, "", &collection, error);
        if (status || !find_orphan(writer->lock, writer->catalog, &collection, &index))
            return status;
        status = truce__catalog_drop_index(writer->kv, collection, index, error);
        truce__writer_catalog_changed(writer);
        if (status)
            return status;
    }
}

truce_status truce__index_build_sweep(struct engine *engine, uint32_t deadline_ms,
                                      bson_error_t *error)
{
    struct write_op op = {.run = drop_orphans};
    struct reader *reader;
    truce_status status = truce__readers_begin(&engine->readers, false, &reader, error);
    const struct collection *collection;
    int64_t index;
    bool found;

    if (status)
        return status;
    found = find_orphan(&engine->lock, reader->catalog, &collection, &index);
    truce__readers_end(&engine->readers, reader);
    if (!found)
        return TRUCE_OK;
    op.deadline_ns = truce__engine_deadline(engine, deadline_ms);
    return truce__writer_run(&engine->writer, &op, error);
}
