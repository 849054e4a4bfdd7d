/*
 * Examines a file for truce check: finds every fault, and not only the first one.
 *
 *     pages        each page of the file against its checksum
 *     documents    each document can be read and is valid
 *     indexes      each index against the documents, in both directions: missing keys, entries
 *                  without a document, and duplicate keys in a unique index
 *
 * The keys of one document are distinct. An index therefore has as many surplus entries as its
 * entries exceed those keys of documents that it contains.
 *
 * To repair an index, its entries are removed and entered again from the documents, in one
 * transaction of the writer; other writers wait for that time. If its own pages are damaged, it
 * cannot be emptied, and gets a table with a new number. The damaged table remains until the store
 * is copied. Documents are never changed. An index is not built again while one of the documents
 * cannot be read, since its keys would be lost.
 *
 * A page that is read while a checkpoint writes it may look damaged, so it is read again.
 */
#include "engine/documents/integrity_check.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/plural.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/open_documents.h"

/* The number of times that a damaged page is read, and the milliseconds between two reads. */
#define LOOKS         5
#define READ_AGAIN_MS 20
/* The steps of the budget that reading a page takes. */
#define STEPS_OF_PAGE 64
/* The steps of the budget that looking a key up in an index takes. */
#define STEPS_OF_KEY 16
/* The steps that reading an entry of an index takes. */
#define STEPS_OF_ENTRY 4
/* The bytes of a document whose check takes one step. */
#define BYTES_OF_STEP 64

struct index_state_found {
    /* The number of keys of all documents. */
    int64_t keys;
    /* The number of these keys that the index does not have. */
    int64_t missing;
    /* The number of entries of the index, and of those whose key occurred before. */
    int64_t entries;
    int64_t repeats;
    /* Whether the index lacks the mark of an array that a document has. */
    bool arrays;
    /* Whether the index cannot be read. */
    bool unread;
};

struct integrity {
    struct engine *engine;
    struct reader *reader;
    const struct collection *collection;
    /* Whether a document of the collection cannot be read. */
    bool unread;
    struct index_state_found found[TRUCE_INDEXES_MAX];
    struct field_keys keys;
    examine_take *take;
    void *arg;
    /* The collection whose indexes are repaired, "" for all collections, or NULL for none. */
    const char *repair;
    struct budget budget;
    /* TIMEOUT once the budget is exceeded, and the error. */
    truce_status over;
    bson_error_t why;
};

/* Takes steps from the budget. Returns false when the time has expired, which ends the
 * examination. */
static bool integrity_continues(struct integrity *examine, uint32_t steps)
{
    if (!examine->over)
        examine->over = truce__budget_spend(&examine->budget, steps, &examine->why);
    return !examine->over;
}

static void integrity_report(struct integrity *examine, const char *rule, const char *collection,
                             const char *change, bool repaired, const char *text)
{
    examine->take(&(struct examine_fault){.rule = rule,
                                          .collection = collection,
                                          .text = text,
                                          .change = change,
                                          .repaired = repaired},
                  examine->arg);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Reads a page of the file up to LOOKS times, until its checksum is right: a checkpoint may be
 * writing it. `*there` is false after the end of the file. */
static truce_status integrity_check_page(struct kv *kv, uint32_t page, bool *there, bool *valid,
                                         bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *valid = false;
    for (int i = 0; i < LOOKS && !*valid && !status; i++) {
        if (i)
            truce__clock_sleep_ms(READ_AGAIN_MS);
        status = truce__kv_page_read_state(kv, page, there, valid, error);
        if (!*there)
            break;
    }
    return status;
}

/* Checks the checksum of every page of the file, and reports damaged ones. */
static truce_status integrity_pages(struct integrity *examine, bson_error_t *error)
{
    bool there = true, valid;
    truce_status status = TRUCE_OK;

    for (uint32_t page = 1; !status && page < UINT32_MAX; page++) {
        char text[80];

        status = truce__budget_spend(&examine->budget, STEPS_OF_PAGE, error);
        if (!status)
            status = integrity_check_page(examine->reader->kv, page, &there, &valid, error);
        if (status || !there)
            break;
        snprintf(text, sizeof text, "page %u of the file cannot be read, or has a wrong checksum",
                 page);
        if (!valid)
            integrity_report(examine, "damaged-page", "",
                             "none: copy what can be read into another store", false, text);
    }
    return status;
}

/* ---- documents ------------------------------------------------------------------------------ */

static struct bytes integrity_key_at(const struct field_keys *keys, uint32_t number)
{
    uint32_t start = number ? keys->ends[number - 1] : 0;

    return (struct bytes){keys->bytes.bytes + start, keys->ends[number] - start};
}

/* Looks up the keys of a document in an index, and counts the missing ones. */
static void integrity_keys(struct integrity *examine, uint32_t number, int64_t row,
                           struct value document)
{
    const struct index *index = &examine->collection->indexes[number];
    struct index_state_found *found = &examine->found[number];
    truce_status status = truce__index_keys(&index->spec, document, &examine->keys, NULL);

    if (status)
        return;
    if (examine->keys.multikey_fields & ~index->multikey_fields)
        found->arrays = true;
    for (uint32_t i = 0;
         i < examine->keys.count && !found->unread && integrity_continues(examine, STEPS_OF_KEY);
         i++) {
        status = truce__kv_key_find(examine->reader->kv, index->id,
                                    integrity_key_at(&examine->keys, i), row, NULL);
        found->missing += status == TRUCE_NOT_FOUND;
        found->unread = status && status != TRUCE_NOT_FOUND;
    }
    found->keys += examine->keys.count;
}

static void report_row(struct integrity *examine, int64_t row)
{
    char text[80];

    examine->unread = true;
    snprintf(text, sizeof text, "the document in row %lld is damaged", (long long)row);
    integrity_report(examine, "damaged-document", examine->collection->name,
                     "none: its bytes are not a document", false, text);
}

/* Checks every document of the collection and looks up its keys in the ready indexes. Reports
 * damaged rows, and a table that cannot be read to its end. */
static void integrity_documents(struct integrity *examine)
{
    const struct collection *collection = examine->collection;
    struct kv_cursor cursor = {0};
    bson_error_t error = {0};
    truce_status status =
        truce__kv_rows_seek(examine->reader->kv, collection->id, 0, false, &cursor, &error);

    cursor.raw = true;
    while (!status) {
        status = truce__kv_cursor_next(&cursor, &error);
        if (status ||
            !integrity_continues(examine, 1 + (uint32_t)(cursor.body.size / BYTES_OF_STEP)))
            break;
        if (!truce__document_valid(cursor.body.data, cursor.body.size)) {
            report_row(examine, cursor.row);
            continue;
        }
        for (uint32_t i = 0; i < collection->indexes_count; i++) {
            struct value document = {cursor.body.data, (uint32_t)cursor.body.size,
                                     BSON_TYPE_DOCUMENT};

            if (collection->indexes[i].state == INDEX_READY)
                integrity_keys(examine, i, cursor.row, document);
        }
    }
    truce__kv_cursor_close(&cursor);
    if (status == TRUCE_NOT_FOUND || examine->over)
        return;
    examine->unread = true;
    integrity_report(examine, "unreadable", collection->name,
                     "none: copy what can be read into another store", false, error.message);
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* Counts the entries of an index, and the keys that occur twice in a unique one. */
static void integrity_entries(struct integrity *examine, uint32_t number)
{
    const struct index *index = &examine->collection->indexes[number];
    struct index_state_found *found = &examine->found[number];
    struct kv_cursor cursor = {0};
    struct buffer last = {0};
    truce_status status = truce__kv_keys_seek(examine->reader->kv, index->id, 0, (struct bytes){0},
                                              INT64_MIN, (struct bytes){0}, false, &cursor, NULL);

    while (!status) {
        status = truce__kv_cursor_next(&cursor, NULL);
        if (status || !integrity_continues(examine, STEPS_OF_ENTRY))
            break;
        if (index->spec.unique && found->entries && last.size == cursor.key.size &&
            !memcmp(last.bytes, cursor.key.data, cursor.key.size))
            found->repeats++;
        last.size = 0;
        truce__buffer_append(&last, cursor.key.data, cursor.key.size);
        found->entries++;
    }
    truce__kv_cursor_close(&cursor);
    truce__buffer_release(&last);
    found->unread = found->unread || status != TRUCE_NOT_FOUND;
}

static bool is_wrong(const struct index_state_found *found)
{
    return found->unread || found->missing || found->arrays ||
           found->entries != found->keys - found->missing;
}

static void integrity_describe(const struct index *index, const struct index_state_found *found,
                               char *text, size_t size)
{
    if (found->unread)
        snprintf(text, size, "the index %s cannot be read", index->spec.name);
    else
        snprintf(text, size,
                 "the index %s lacks %s of documents, and has %s that no document has%s",
                 index->spec.name, PLURAL(found->missing, "key", "keys"),
                 PLURAL(found->entries - (found->keys - found->missing), "entry", "entries"),
                 found->arrays ? "; it lacks the mark of an array" : "");
}

/* ---- repairs -------------------------------------------------------------------------------- */

struct rebuild {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    const char *collection;
    int64_t index;
    /* The old table remains in the file under its number. */
    bool leave;
    struct budget *budget;
};

/* Enters every document of the collection into an index. Closes the cursor before each write,
 * because a write may change the pages under it. */
static truce_status enter_all(struct rebuild *rebuild, struct writer *writer, bson_error_t *error)
{
    int64_t after = 0;
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, rebuild->collection, &collection, error);

    while (!status) {
        struct kv_cursor cursor = {0};
        bson_t *document = NULL;

        status = truce__kv_rows_seek(writer->kv, collection->id, after, false, &cursor, error);
        if (!status)
            status = truce__kv_cursor_next(&cursor, error);
        if (!status) {
            after = cursor.row;
            status = truce__budget_spend(
                rebuild->budget, STEPS_OF_PAGE + (uint32_t)(cursor.body.size / BYTES_OF_STEP),
                error);
        }
        if (!status) {
            document = bson_new_from_data(cursor.body.data, cursor.body.size);
        }
        truce__kv_cursor_close(&cursor);
        if (!status)
            status = truce__documents_index(writer, rebuild->collection, rebuild->index, after,
                                            document, error);
        if (document)
            bson_destroy(document);
        /* Entering the document may have changed the catalog, because it recorded an array. */
        if (!status)
            status = truce__writer_collection(writer, rebuild->collection, &collection, error);
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Builds an index again in the writer's transaction. Removes the old entries. With `leave`, creates
 * a new table instead, because the old one cannot be emptied. */
static truce_status run_rebuild(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct rebuild *rebuild = (struct rebuild *)base;
    const struct collection *collection;
    int64_t id = rebuild->index;
    truce_status status = truce__writer_collection(writer, rebuild->collection, &collection, error);

    if (status || !collection || !truce__collection_index_id(collection, id))
        /* The index was dropped in the meantime, so nothing is left to do. */
        return status;
    if (rebuild->leave)
        status = truce__catalog_move_index(writer->kv, collection, id, &id, error);
    else
        status = truce__kv_keys_drop(writer->kv, id, error);
    if (!status && !rebuild->leave)
        status = truce__kv_keys_create(writer->kv, id, error);
    truce__writer_catalog_changed(writer);
    truce__cache_close(writer->cache);
    if (status)
        return status;
    {
        struct rebuild moved = *rebuild;

        moved.index = id;
        return enter_all(&moved, writer, error);
    }
}

static void reset_rebuild(struct write_op *base)
{
    /* A run changes nothing outside of the transaction. */
    (void)base;
}

/* Builds an index again. Fails with TIMEOUT if the time of the call has expired; the index is then
 * unchanged. */
static truce_status integrity_rebuild(struct engine *engine, struct budget *budget,
                                      const char *collection, int64_t index, bson_error_t *error)
{
    struct rebuild op = {.collection = collection, .index = index, .budget = budget};
    truce_status status = truce__engine_writable(engine, error);

    op.base.run = run_rebuild;
    op.base.reset = reset_rebuild;
    for (int i = 0; i < 2 && (!i ? !status : status == TRUCE_CORRUPT); i++) {
        op.leave = i;
        op.base.deadline_ns = truce__engine_deadline(engine, 0);
        status = truce__writer_run(&engine->writer, &op.base, error);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

static truce_status integrity_begin(struct integrity *examine, bson_error_t *error)
{
    return truce__engine_read_begin(examine->engine, false, &examine->reader, error);
}

static void integrity_end(struct integrity *examine)
{
    truce__engine_read_end(examine->engine, examine->reader);
    examine->reader = NULL;
}

struct work {
    char *collection, *index;
    int64_t id;
    char text[300];
    int64_t repeats;
    bool wrong;
};

/* Reports an index, and repairs it if the caller wants that. Called after the snapshot has ended,
 * because a repair waits for the writer. */
static void report_index(struct integrity *examine, const struct work *work, bool unread)
{
    bool repairs =
             examine->repair && (!examine->repair[0] || !strcmp(examine->repair, work->collection)),
         repaired = false;
    char text[200];

    if (work->wrong && repairs && !unread && integrity_continues(examine, 1)) {
        bson_error_t why;
        truce_status status =
            integrity_rebuild(examine->engine, &examine->budget, work->collection, work->id, &why);

        repaired = !status;
        if (examine->budget.over) {
            examine->over = status;
            examine->why = why;
        }
    }
    if (work->wrong) {
        integrity_report(examine, "wrong-index", work->collection,
                         unread ? "none: documents of the collection cannot be read"
                                : "build the index again from its documents",
                         repaired, work->text);
    }
    if (!work->repeats)
        return;
    snprintf(text, sizeof text, "%s twice in the unique index %s",
             PLURAL(work->repeats, "key occurs", "keys occur"), work->index);
    integrity_report(examine, "repeated-key", work->collection,
                     "none: change or remove all but one of the documents", false, text);
}

/* Checks a collection and its indexes in one snapshot, and reports the wrong indexes after the
 * snapshot has ended, because a report may build them again. */
static truce_status integrity_collection(struct integrity *examine, int64_t id, bson_error_t *error)
{
    struct work work[TRUCE_INDEXES_MAX] = {0};
    uint32_t count = 0;
    truce_status status = integrity_begin(examine, error);

    if (status)
        return status;
    examine->collection = truce__catalog_find_id(examine->reader->catalog, id);
    examine->unread = false;
    memset(examine->found, 0, sizeof examine->found);
    if (examine->collection) {
        integrity_documents(examine);
        count = examine->collection->indexes_count;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct index *index = &examine->collection->indexes[i];

        if (index->state != INDEX_READY || examine->over)
            continue;
        integrity_entries(examine, i);
        if (examine->over)
            break;
        work[i] = (struct work){.collection = bson_strdup(examine->collection->name),
                                .index = bson_strdup(index->spec.name),
                                .id = index->id,
                                .wrong = is_wrong(&examine->found[i]),
                                .repeats = examine->found[i].repeats};
        /* If a document cannot be read, its keys are unknown, and surplus entries may be its
         * own. */
        if (examine->unread && !examine->found[i].unread && !examine->found[i].missing)
            work[i].wrong = false;
        integrity_describe(index, &examine->found[i], work[i].text, sizeof work[i].text);
    }
    integrity_end(examine);
    for (uint32_t i = 0; i < count; i++) {
        if (work[i].collection)
            report_index(examine, &work[i], examine->unread);
        bson_free(work[i].collection);
        bson_free(work[i].index);
    }
    if (examine->over && error)
        *error = examine->why;
    return examine->over;
}

truce_status truce__engine_examine(struct engine *engine, const char *repair, examine_take *take,
                                   void *arg, bson_error_t *error)
{
    struct integrity examine = {.engine = engine, .take = take, .arg = arg, .repair = repair};
    truce_status status = truce__engine_usable(engine, error);
    int64_t *ids = NULL;
    uint32_t count = 0;

    truce__engine_budget(engine, 0, &examine.budget);
    if (!status)
        status = integrity_begin(&examine, error);
    if (status)
        return status;
    status = integrity_pages(&examine, error);
    if (!status) {
        count = examine.reader->catalog->count;
        ids = bson_malloc0((count + 1) * sizeof *ids);
        for (uint32_t i = 0; i < count; i++)
            ids[i] = examine.reader->catalog->collections[i].id;
    }
    integrity_end(&examine);
    for (uint32_t i = 0; i < count && !status; i++)
        status = integrity_collection(&examine, ids[i], error);
    bson_free(ids);
    truce__field_keys_release(&examine.keys);
    return status;
}

/* ---- checking ------------------------------------------------------------------------------- */

/*
 * Checks a store in one snapshot. It runs SQLite's own check of the file, and then checks for each
 * collection:
 *
 *     every document is valid BSON; its keys in every ready index are stored there with its row;
 *     and the index has the marks of the arrays on its paths
 *     every index has as many entries as all documents together have keys
 *     in a unique index no key occurs twice
 *
 * It also checks the entries of the feed of changes, if there is one (change_feed.c).
 *
 * The keys of one document are distinct. If all keys are stored, and there are no other entries,
 * the entries are exactly the keys.
 */

struct check {
    struct kv *kv;
    const struct collection *collection;
    int64_t documents, entries;
    /* For each index, the number of keys of the documents so far. */
    int64_t expected[TRUCE_INDEXES_MAX];
    struct field_keys keys;
};

/* Checks that an index has every key of a document, and the mark of an array if the document has
 * one on its path. */
static truce_status file_check_keys(struct check *check, uint32_t number, int64_t row,
                                    const bson_t *bson, bson_error_t *error)
{
    const struct index *index = &check->collection->indexes[number];
    truce_status status =
        truce__index_keys(&index->spec, truce__value_document(bson), &check->keys, error);
    uint32_t start = 0;

    if (!status && check->keys.multikey_fields & ~index->multikey_fields)
        status = truce__fail(TRUCE_CORRUPT, error,
                             "index \"%s\" of %s lacks the mark of an array in row %lld",
                             index->spec.name, check->collection->name, (long long)row);
    for (uint32_t i = 0; i < check->keys.count && !status; i++) {
        struct bytes key = {check->keys.bytes.bytes + start, check->keys.ends[i] - start};

        status = truce__kv_key_find(check->kv, index->id, key, row, error);
        if (status == TRUCE_NOT_FOUND)
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "index \"%s\" of %s lacks a key of the document in row %lld",
                                 index->spec.name, check->collection->name, (long long)row);
        start = check->keys.ends[i];
    }
    check->expected[number] += check->keys.count;
    return status;
}

/* Checks a document and its keys in the ready indexes. Fails with CORRUPT at the first fault. */
static truce_status file_check_document(struct check *check, const struct kv_cursor *cursor,
                                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t document;

    if (!bson_init_static(&document, cursor->body.data, cursor->body.size) ||
        truce__document_check(&document, "document", NULL))
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the document in row %lld of \"%s\" is damaged: truce salvage saves the others",
            (long long)cursor->row, check->collection->name);
    for (uint32_t i = 0; i < check->collection->indexes_count && !status; i++) {
        if (check->collection->indexes[i].state == INDEX_READY)
            status = file_check_keys(check, i, cursor->row, &document, error);
    }
    check->documents++;
    return status;
}

static truce_status file_check_documents(struct check *check, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    truce_status status =
        truce__kv_rows_seek(check->kv, check->collection->id, 0, false, &cursor, error);

    while (!status) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status)
            status = file_check_document(check, &cursor, error);
    }
    truce__kv_cursor_close(&cursor);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool file_same_key(const struct buffer *last, struct bytes key)
{
    return last->size == key.size && !memcmp(last->bytes, key.data, key.size);
}

/* Checks that an index has as many entries as its documents have keys, and no key twice if it is
 * unique. */
static truce_status check_entries(struct check *check, const struct index *index, int64_t expected,
                                  bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    struct buffer last = {0};
    int64_t entries = 0;
    truce_status status = truce__kv_keys_seek(check->kv, index->id, 0, (struct bytes){0}, 0,
                                              (struct bytes){0}, false, &cursor, error);

    while (!status) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status && index->spec.unique && entries && file_same_key(&last, cursor.key))
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "a key occurs twice in the unique index "
                                 "\"%s\" of %s",
                                 index->spec.name, check->collection->name);
        last.size = 0;
        if (!status)
            truce__buffer_append(&last, cursor.key.data, cursor.key.size);
        entries += !status;
    }
    truce__kv_cursor_close(&cursor);
    truce__buffer_release(&last);
    check->entries += entries;
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && entries != expected)
        status =
            truce__fail(TRUCE_CORRUPT, error, "index \"%s\" of %s has %s, its documents have %s",
                        index->spec.name, check->collection->name,
                        PLURAL(entries, "entry", "entries"), PLURAL(expected, "key", "keys"));
    return status;
}

static truce_status file_check_collection(struct check *check, const struct collection *collection,
                                          bson_error_t *error)
{
    truce_status status;

    check->collection = collection;
    memset(check->expected, 0, sizeof check->expected);
    status = file_check_documents(check, error);
    for (uint32_t i = 0; i < collection->indexes_count && !status; i++) {
        if (collection->indexes[i].state == INDEX_READY)
            status = check_entries(check, &collection->indexes[i], check->expected[i], error);
    }
    return status;
}

truce_status truce__engine_check(struct engine *engine, int64_t *documents, int64_t *entries,
                                 bson_error_t *error)
{
    struct check check = {0};
    struct reader *reader;
    truce_status status = truce__engine_usable(engine, error);

    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    check.kv = reader->kv;
    status = truce__kv_integrity(reader->kv, error);
    for (uint32_t i = 0; i < reader->catalog->count && !status; i++)
        status = file_check_collection(&check, &reader->catalog->collections[i], error);
    if (!status)
        status = truce__feed_check(reader->kv, &reader->catalog->feed, error);
    truce__engine_read_end(engine, reader);
    truce__field_keys_release(&check.keys);
    if (documents)
        *documents = check.documents;
    if (entries)
        *entries = check.entries;
    return status;
}
