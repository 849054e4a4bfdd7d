/*
 * Salvage finds the documents of a damaged file and writes them into another store.
 *
 *     1. the free pages, and the parent of each inner page                  one read of each page
 *     2. the schema (root: page 1): c<id> -> root                           walked
 *     3. the catalog (c0): id -> name, indexes, validator                   walked
 *        (the change feed, if there is one, is read like a collection and discarded)
 *     4. each table from its root                                           walked
 *     5. leaves that no walk reached: they belong to the only table with a gap that their rows fit
 *        into; otherwise, the table is unknown
 *
 * A walk descends intact inner pages only, because a damaged one may lead into another table. If it
 * cannot descend, it records a gap: the rows between two keys. If an intact parent names a leaf,
 * the walk reads the leaf even if the checksum of the leaf is wrong; the documents of such a leaf
 * are doubtful.
 *
 * Invariants:
 * 1. A page is read for one table only (PAGE_RECOVERY_USED).
 * 2. A document counts as intact only if its page and overflow pages are intact. In addition,
 *   either the walk reached it through intact pages, including those of the schema and the catalog
 *   that lead to its table and name it. Or its leaf fits one gap of one table, and all free pages
 *   and all tables are known.
 * 3. A walk descends at most DEPTH_MAX pages, and the sizes of the file and its log bound the memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/plural.h"
#include "base/reserved_fields.h"
#include "bson/value.h"
#include "engine/storage/file_format.h"
#include "engine/storage/page_recovery.h"
#include "store/store.h"
#include "truce/salvage.h"

/* A gap: the rows above `above` and up to `to`, which no intact page leads to. */
struct salvage_gap {
    int64_t above, to;
};

/* A collection and what was saved of it. */
struct salvage_table {
    int64_t id;
    /* The root page, or 0 if it is unknown. */
    uint32_t root;
    /* The name of the collection, or NULL if it is unknown. */
    char *name;
    /* The entry of the catalog, or NULL if it is unknown. */
    bson_t *entry;
    struct salvage_gap *gaps;
    size_t gaps_count, gaps_room;
    /* The numbers of intact and of doubtful documents that were saved, and of documents and pages
     * that were lost. */
    int64_t documents, doubtful, lost, lost_pages;
    /* Whether a page that leads to the table or names it is damaged. */
    bool in_doubt;
    /* Whether the table is the change feed, which is discarded. */
    bool is_feed;
};

struct salvage_batch {
    char *collection;
    bson_t **documents;
    size_t count, bytes;
    /* The table of the documents, or NULL if it is unknown. */
    struct salvage_table *table;
    /* Whether these documents are doubtful. */
    bool doubtful;
};

struct salvage {
    struct page_recovery recovery;
    truce_store *to;
    const truce_salvage_options *options;
    truce_salvage_report *report;
    /* The schema and the catalog, which are read as tables are. */
    struct salvage_table schema, catalog;
    struct salvage_table *tables;
    size_t tables_count, tables_room, gaps;
    /* parents[page]: the inner page that leads to the page, or 0. */
    uint32_t *parents;
    /* hints[page]: the number of a table, from 1, or 0. A damaged page assigns the page to this
     * table. */
    uint32_t *hints;
    /* The last page that is in use, as far as this is known. */
    uint32_t end;
    /* Whether the free pages are known. */
    bool free_is_known;
    /* The number of pages that the header counts, or 0 if it cannot be read. A file that was cut
     * has fewer pages. */
    uint32_t header_pages;
    /* The number of gaps because of such pages. */
    uint32_t cut_gaps;
    struct salvage_batch batch;
    /* The number of pages that the two passes have examined, for reports of the progress. */
    int64_t examined;
    /* The first failure of `to` that is no refusal of a document. It ends the salvage. */
    truce_status status;
    bson_error_t *error;
};

/* ---- documents into the other store ---------------------------------------------------------- */

/* The maximum number of documents of a batch, and of their bytes. */
#define BATCH_DOCUMENTS 500
#define BATCH_BYTES     (4 << 20)
/* The suffix of the name of the collection that gets the doubtful documents. */
#define DOUBTFUL ".doubtful"

/* ---- documents ------------------------------------------------------------------------------- */

/* Counts a document that was saved or lost, in the report and for its table. */
static void salvage_put_count_one(struct salvage *salvage, bool saved)
{
    struct salvage_table *table = salvage->batch.table;
    bool doubtful = salvage->batch.doubtful;
    truce_salvage_report *report = salvage->report;

    if (!saved) {
        report->lost++;
        if (table)
            table->lost++;
        return;
    }
    *(!table ? &report->strays : doubtful ? &report->doubtful : &report->documents) += 1;
    if (table)
        *(doubtful ? &table->doubtful : &table->documents) += 1;
}

/* Returns whether the store refused the document, which is then lost. Any other failure of the
 * store ends the salvage. */
static bool salvage_put_is_refusal(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT;
}

/* Stores a document whose _id is stored already among the doubtful documents, because one of the
 * two versions is older. If it is stored there, too, the document is lost. */
static void put_again(struct salvage *salvage, const bson_t *document)
{
    const truce_write_options options = {.relaxed = true};
    char name[2 * TRUCE_COLLECTION_NAME_MAX];
    truce_status status;

    if (salvage->batch.doubtful) {
        salvage_put_count_one(salvage, false);
        return;
    }
    snprintf(name, sizeof name, "%s%s", salvage->batch.collection, DOUBTFUL);
    status = truce_insert(salvage->to, name, document, &options, salvage->error);
    salvage->batch.doubtful = true;
    if (!status || salvage_put_is_refusal(status))
        salvage_put_count_one(salvage, !status);
    else
        salvage->status = status;
    salvage->batch.doubtful = false;
}

static void salvage_put_check(struct salvage *salvage, const bson_t *document,
                              const truce_write_outcome *outcome)
{
    if (outcome->status == TRUCE_DUPLICATE)
        put_again(salvage, document);
    else if (!outcome->status || salvage_put_is_refusal(outcome->status))
        salvage_put_count_one(salvage, !outcome->status);
    else if (!salvage->status) {
        salvage->status = outcome->status;
        *salvage->error = outcome->error;
    }
}

/* Inserts the documents of the batch, and counts each of them. */
static void salvage_put_write_batch(struct salvage *salvage)
{
    const truce_bulk_options options = {.unordered = true};
    struct salvage_batch *batch = &salvage->batch;
    truce_write *writes = bson_malloc0(batch->count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(batch->count * sizeof *outcomes);
    bson_error_t ignored;

    for (size_t i = 0; i < batch->count; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = batch->collection,
                                  .document = batch->documents[i]};
    /* Each outcome reports its own write, so the status of the whole is not needed. */
    if (truce_bulk(salvage->to, writes, batch->count, &options, outcomes, &ignored) ==
        TRUCE_OK) { /* All writes succeeded. */
    }
    for (size_t i = 0; i < batch->count; i++) {
        salvage_put_check(salvage, batch->documents[i], &outcomes[i]);
        truce_write_result_release(&outcomes[i].result);
    }
    bson_free(writes);
    bson_free(outcomes);
}

static void salvage_flush(struct salvage *salvage)
{
    struct salvage_batch *batch = &salvage->batch;

    if (batch->count && !salvage->status)
        salvage_put_write_batch(salvage);
    for (size_t i = 0; i < batch->count; i++)
        bson_destroy(batch->documents[i]);
    bson_free(batch->documents);
    bson_free(batch->collection);
    *batch = (struct salvage_batch){0};
}

static bool fits_batch(const struct salvage *salvage, const struct salvage_table *table,
                       const char *name, bool doubtful, size_t size)
{
    const struct salvage_batch *batch = &salvage->batch;

    return batch->table == table && batch->doubtful == doubtful && batch->count < BATCH_DOCUMENTS &&
           batch->bytes + size <= BATCH_BYTES && !strncmp(batch->collection, name, strlen(name)) &&
           !strcmp(batch->collection + strlen(name), table && doubtful ? DOUBTFUL : "");
}

/* Adds a document to the batch for its collection, or for NAME.doubtful. A document that is not
 * well-formed is lost. */
static void truce__salvage_put(struct salvage *salvage, struct salvage_table *table,
                               const char *name, const struct page_recovery_column *body,
                               bool doubtful)
{
    struct salvage_batch *batch = &salvage->batch;
    bson_t document;

    if (!truce__document_borrow(body->data, body->size, &document)) {
        salvage->report->lost++;
        if (table)
            table->lost++;
        return;
    }
    if (batch->count && !fits_batch(salvage, table, name, doubtful, body->size))
        salvage_flush(salvage);
    if (!batch->count) {
        batch->collection = bson_strdup_printf("%s%s", name, table && doubtful ? DOUBTFUL : "");
        batch->documents = bson_malloc0(BATCH_DOCUMENTS * sizeof *batch->documents);
        batch->table = table;
        batch->doubtful = doubtful;
    }
    batch->documents[batch->count++] = bson_copy(&document);
    batch->bytes += body->size;
}

/* ---- indexes, validators --------------------------------------------------------------------- */

static void salvage_put_append_refused(bson_t *refused, const char *name, const char *text)
{
    char key[16];
    bson_t one;

    snprintf(key, sizeof key, "%u", bson_count_keys(refused));
    BSON_APPEND_DOCUMENT_BEGIN(refused, key, &one);
    BSON_APPEND_UTF8(&one, "name", name);
    BSON_APPEND_UTF8(&one, "text", text);
    bson_append_document_end(refused, &one);
}

/* Creates one index of the collection. If the store refuses the index, appends the reason to
 * `refused`. */
static void salvage_put_make_index(struct salvage *salvage, const struct salvage_table *table,
                                   bson_iter_t *entry, bson_t *refused)
{
    const uint8_t *data;
    bson_iter_t name;
    bson_error_t error;
    bson_t definition, whole;
    truce_status status;
    uint32_t size;

    if (!bson_iter_find(entry, "definition") || !BSON_ITER_HOLDS_DOCUMENT(entry))
        return;
    bson_iter_document(entry, &size, &data);
    if (!bson_init_static(&definition, data, size) ||
        !bson_iter_init_find(&name, &definition, "name") || !BSON_ITER_HOLDS_UTF8(&name) ||
        !strcmp(bson_iter_utf8(&name, NULL), "_id_"))
        return;
    bson_copy_to(&definition, &whole);
    if (bson_iter_find(entry, "hidden") && BSON_ITER_HOLDS_BOOL(entry))
        BSON_APPEND_BOOL(&whole, "hidden", bson_iter_bool(entry));
    status = truce_index_create(salvage->to, table->name, &whole, &error);
    bson_destroy(&whole);
    if (!status) {
        salvage->report->indexes++;
        return;
    }
    salvage->report->indexes_refused++;
    salvage_put_append_refused(refused, bson_iter_utf8(&name, NULL), error.message);
}

/* Creates the collection and the indexes of its entry. */
static void salvage_put_make_indexes(struct salvage *salvage, const struct salvage_table *table,
                                     bson_t *refused)
{
    bson_iter_t iter, list, entry;
    bson_error_t ignored;

    if (!table->entry || !bson_iter_init_find(&iter, table->entry, "indexes") ||
        !bson_iter_recurse(&iter, &list))
        return;
    if (truce_collection_create(salvage->to, table->name, &ignored)) {
        /* The collection exists, or its name is not valid. Each index reports the latter. */
    }
    while (bson_iter_next(&list)) {
        if (BSON_ITER_HOLDS_DOCUMENT(&list) && bson_iter_recurse(&list, &entry))
            salvage_put_make_index(salvage, table, &entry, refused);
    }
}

/* Sets the validator. Called after the documents are written, because old documents need not match
 * it. */
static void salvage_put_make_validator(struct salvage *salvage, const struct salvage_table *table,
                                       bson_t *answer)
{
    bson_error_t error;
    bson_t validator;

    if (!table->entry || !truce__value_subdocument(table->entry, "validator", &validator))
        return;
    if (!truce_collection_validate(salvage->to, table->name, &validator, &error)) {
        salvage->report->validators++;
        return;
    }
    salvage->report->validators_refused++;
    BSON_APPEND_UTF8(answer, "refused_validator", error.message);
}

/* Sets the option by which the change feed stores earlier versions. If the collection could not be
 * created, its indexes have reported this. */
static void make_images(struct salvage *salvage, const struct salvage_table *table)
{
    truce_status status;
    bson_error_t error;

    if (!table->entry || !bson_has_field(table->entry, "keeps") || salvage->status)
        return;
    status = truce__store_keep_images(salvage->to, table->name, true, &error);
    if (status && status != TRUCE_NOT_FOUND) {
        salvage->status = status;
        *salvage->error = error;
    }
}

/* Creates the indexes of the collection, sets its validator and options, and reports the
 * collection. */
static void salvage_end_table(struct salvage *salvage, const struct salvage_table *table)
{
    int64_t indexes = salvage->report->indexes;
    bson_t answer = BSON_INITIALIZER, refused = BSON_INITIALIZER;
    char name[40];

    salvage_put_make_indexes(salvage, table, &refused);
    snprintf(name, sizeof name, "salvaged_c%lld", (long long)table->id);
    BSON_APPEND_UTF8(&answer, "collection", table->name ? table->name : name);
    BSON_APPEND_INT64(&answer, "documents", table->documents);
    BSON_APPEND_INT64(&answer, "doubtful", table->doubtful);
    BSON_APPEND_INT64(&answer, "lost", table->lost);
    BSON_APPEND_INT64(&answer, "lost_pages", table->lost_pages);
    BSON_APPEND_INT64(&answer, "indexes", salvage->report->indexes - indexes);
    BSON_APPEND_ARRAY(&answer, "refused_indexes", &refused);
    salvage_put_make_validator(salvage, table, &answer);
    make_images(salvage, table);
    if (salvage->options->collection)
        salvage->options->collection(&answer, salvage->options->arg);
    bson_destroy(&answer);
    bson_destroy(&refused);
}

/* ---- pages and tables ------------------------------------------------------------------------ */

/* The maximum depth of a tree, and the maximum number of parents that are followed. */
#define DEPTH_MAX 20
/* The number of examined pages between two reports of the progress. */
#define PROGRESS_EACH 256

static uint32_t salvage_number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void salvage_examine_page(struct salvage *salvage)
{
    if (salvage->options->progress && !(++salvage->examined % PROGRESS_EACH))
        salvage->options->progress(salvage->examined, 2 * (int64_t)salvage->recovery.pages,
                                   salvage->options->arg);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct salvage_table *salvage_find_table(struct salvage *salvage, int64_t id)
{
    for (size_t i = 0; i < salvage->tables_count; i++) {
        if (salvage->tables[i].id == id)
            return &salvage->tables[i];
    }
    return NULL;
}

/* Returns the table, which is added if it is new. Returns NULL if there are too many tables. The
 * pointer is valid until the next table is added. */
static struct salvage_table *add_table(struct salvage *salvage, int64_t id)
{
    struct salvage_table *found = salvage_find_table(salvage, id);

    if (found || salvage->tables_count == TRUCE_SALVAGE_TABLES_MAX)
        return found;
    if (salvage->tables_count == salvage->tables_room) {
        salvage->tables_room = salvage->tables_room ? 2 * salvage->tables_room : 64;
        salvage->tables =
            bson_realloc(salvage->tables, salvage->tables_room * sizeof *salvage->tables);
    }
    found = &salvage->tables[salvage->tables_count++];
    *found = (struct salvage_table){.id = id};
    return found;
}

/* Records a gap of a table. If there are too many gaps, the first gap of the table covers all rows,
 * so that no leaf is assigned to another table by mistake. */
static void add_gap(struct salvage *salvage, struct salvage_table *table, int64_t above, int64_t to)
{
    table->lost_pages++;
    if (salvage->gaps >= TRUCE_SALVAGE_GAPS_MAX) {
        if (table->gaps_count)
            table->gaps[0] = (struct salvage_gap){INT64_MIN, INT64_MAX};
        return;
    }
    salvage->gaps++;
    if (table->gaps_count == table->gaps_room) {
        table->gaps_room = table->gaps_room ? 2 * table->gaps_room : 4;
        table->gaps = bson_realloc(table->gaps, table->gaps_room * sizeof *table->gaps);
    }
    table->gaps[table->gaps_count++] = (struct salvage_gap){above, to};
}

static bool fits_gap(const struct salvage_table *table, int64_t first, int64_t last)
{
    for (size_t i = 0; i < table->gaps_count; i++) {
        if (first > table->gaps[i].above && last <= table->gaps[i].to)
            return true;
    }
    return false;
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool salvage_is_text(const struct page_recovery_column *column, const char *text)
{
    return column->bytes && column->size == strlen(text) &&
           !memcmp(column->data, text, column->size);
}

/* Takes a definition of a table from the schema, if it is written exactly as truce writes it. */
static void take_definition(struct salvage *salvage, const struct buffer *record, bool doubtful)
{
    struct page_recovery_column type, name, root, sql;
    char text[24], expected[KV_DEFINITION_BYTES];
    struct salvage_table *table;
    long long id;

    if (!truce__page_recovery_column(record, 0, &type) ||
        !truce__page_recovery_column(record, 1, &name) ||
        !truce__page_recovery_column(record, 3, &root) ||
        !truce__page_recovery_column(record, 4, &sql) || !salvage_is_text(&type, "table") ||
        !name.bytes || name.size >= sizeof text || root.bytes)
        return;
    memcpy(text, name.data, name.size);
    text[name.size] = 0;
    if (text[0] != 'c' || sscanf(text + 1, "%18lld", &id) != 1 || id < 0)
        return;
    truce__kv_definition(false, id, expected, sizeof expected);
    if (!salvage_is_text(&sql, expected) || root.number < 2 ||
        root.number > salvage->recovery.pages || salvage->parents[root.number])
        return;
    table = id ? add_table(salvage, id) : &salvage->catalog;
    if (table && !table->root) {
        table->root = (uint32_t)root.number;
        table->in_doubt = table->in_doubt || doubtful;
    }
}

/* Reads an entry of the catalog: it has a name, and indexes with definitions. Returns false if it
 * has another form. */
static bool get_entry(const struct page_recovery_column *body, bson_t *entry, const char **name)
{
    bson_iter_t iter, list, first;

    if (!body->bytes || !truce__document_borrow(body->data, body->size, entry))
        return false;
    if ((!bson_iter_init_find(&iter, entry, "name") &&
         !bson_iter_init_find(&iter, entry, "keeps")) ||
        !BSON_ITER_HOLDS_UTF8(&iter))
        return false;
    *name = bson_iter_utf8(&iter, NULL);
    return bson_iter_init_find(&iter, entry, "indexes") && BSON_ITER_HOLDS_ARRAY(&iter) &&
           bson_iter_recurse(&iter, &list) && bson_iter_next(&list) &&
           BSON_ITER_HOLDS_DOCUMENT(&list) && bson_iter_recurse(&list, &first) &&
           bson_iter_find(&first, "definition");
}

/* Returns whether this is the entry of the change feed (catalog.c). */
static bool is_feed(const struct page_recovery_column *body)
{
    bson_t entry;

    return body->bytes && truce__document_borrow(body->data, body->size, &entry) &&
           bson_has_field(&entry, "feed") && bson_has_field(&entry, "keep_ms");
}

/* Takes an entry of the catalog: a collection's name, indexes, and validator. */
static void take_entry(struct salvage *salvage, int64_t row,
                       const struct page_recovery_column *body, bool doubtful)
{
    bool feed = is_feed(body);
    struct salvage_table *table;
    const char *name;
    bson_t entry;

    if (!feed && !get_entry(body, &entry, &name))
        return;
    table = add_table(salvage, row);
    if (table && feed)
        table->is_feed = true;
    if (!table || table->name || feed)
        return;
    table->name = bson_strdup(name);
    table->entry = bson_copy(&entry);
    table->in_doubt = table->in_doubt || doubtful;
}

/* Takes a row of a leaf, by the kind of its table: the schema, the catalog, or a collection. */
static void salvage_take_row(struct salvage *salvage, struct salvage_table *table, const char *name,
                             int64_t row, const struct buffer *record, bool doubtful)
{
    struct page_recovery_column body;

    if (table == &salvage->schema) {
        table->doubtful += doubtful;
        take_definition(salvage, record, doubtful);
    } else if (!truce__page_recovery_column(record, 1, &body) || !body.bytes) {
        salvage->report->lost++;
        if (table)
            table->lost++;
    } else if (table == &salvage->catalog) {
        take_entry(salvage, row, &body, doubtful);
    } else if (!table || !table->is_feed) {
        truce__salvage_put(salvage, table, name, &body, doubtful);
    }
}

/* Takes all rows of a leaf, and marks the page as used. Rows that cannot be read are lost. */
static void take_leaf(struct salvage *salvage, struct salvage_table *table, const char *name,
                      const struct page_recovery_page *page, bool doubtful)
{
    struct buffer record = {0};

    salvage->recovery.marks[page->number] |= PAGE_RECOVERY_USED;
    for (uint32_t i = 0; i < page->count && !salvage->status; i++) {
        bool this_one =
            doubtful || page->state == PAGE_RECOVERY_DOUBTFUL || (table && table->in_doubt);
        int64_t row;

        record.size = 0;
        if (truce__page_recovery_row(&salvage->recovery, page, i, &row) &&
            truce__page_recovery_record(&salvage->recovery, page, i, true, &record, &this_one))
            salvage_take_row(salvage, table, name, row, &record, this_one);
        else
            salvage->report->lost++, table ? table->lost++ : 0;
    }
    truce__buffer_release(&record);
}

/* ---- walking --------------------------------------------------------------------------------- */

static const char *salvage_name_of(const struct salvage_table *table, char *otherwise, size_t size)
{
    snprintf(otherwise, size, "salvaged_c%lld", (long long)table->id);
    return table->name ? table->name : otherwise;
}

/* Returns whether the rows of the leaf are within the bounds of its parent. */
static bool rows_fit(const struct salvage *salvage, const struct page_recovery_page *page,
                     int64_t above, int64_t to)
{
    int64_t row;

    for (uint32_t i = 0; i < page->count; i++) {
        if (!truce__page_recovery_row(&salvage->recovery, page, i, &row) || row <= above ||
            row > to)
            return false;
        above = row;
    }
    return true;
}

static void note_hints(struct salvage *salvage, const struct salvage_table *table,
                       const struct page_recovery_page *page)
{
    uint32_t child;
    int64_t row;

    if (table == &salvage->schema || table == &salvage->catalog)
        return;
    for (uint32_t i = 0; i <= page->count; i++) {
        if (truce__page_recovery_child(&salvage->recovery, page, i, &child, &row) &&
            child <= salvage->recovery.pages)
            salvage->hints[child] = (uint32_t)(table - salvage->tables) + 1;
    }
}

static void salvage_walk(struct salvage *salvage, struct salvage_table *table, uint32_t number,
                         int64_t above, int64_t to, int depth);

/* Walks the children of an intact inner page. If their bounds contradict those of the page, records
 * the rest as a gap. */
static void walk_children(struct salvage *salvage, struct salvage_table *table,
                          const struct page_recovery_page *page, int64_t above, int64_t to,
                          int depth)
{
    for (uint32_t i = 0; i <= page->count && !salvage->status; i++) {
        uint32_t child;
        int64_t row;
        bool good = truce__page_recovery_child(&salvage->recovery, page, i, &child, &row);

        if (!good || row < above || (row > to && i < page->count)) {
            add_gap(salvage, table, above, to);
            return;
        }
        row = row < to ? row : to;
        salvage_walk(salvage, table, child, above, row, depth + 1);
        above = row;
    }
}

/* Returns whether the header counts the page, but neither the file nor its log has it. */
static bool is_cut_off(const struct salvage *salvage, uint32_t page)
{
    return page > salvage->recovery.file_pages && page <= salvage->header_pages &&
           (page > salvage->recovery.pages || !salvage->recovery.frames[page]);
}

/* Walks the pages below a page, with rows above `above` and up to `to`. Records a gap if the page
 * cannot be used. */
static void salvage_walk(struct salvage *salvage, struct salvage_table *table, uint32_t number,
                         int64_t above, int64_t to, int depth)
{
    struct page_recovery_page page = {.kind = PAGE_RECOVERY_OTHER};
    bool taken = number > salvage->recovery.pages ||
                 salvage->recovery.marks[number] & (PAGE_RECOVERY_USED | PAGE_RECOVERY_FREE) ||
                 depth > DEPTH_MAX;
    char otherwise[40];

    if (!taken)
        truce__page_recovery_page(&salvage->recovery, number, &page);
    if (page.kind == PAGE_RECOVERY_LEAF && rows_fit(salvage, &page, above, to)) {
        take_leaf(salvage, table, salvage_name_of(table, otherwise, sizeof otherwise), &page,
                  false);
    } else if (page.kind == PAGE_RECOVERY_INNER && page.state == PAGE_RECOVERY_VALID) {
        salvage->recovery.marks[number] |= PAGE_RECOVERY_USED;
        walk_children(salvage, table, &page, above, to, depth);
    } else {
        add_gap(salvage, table, above, to);
        salvage->cut_gaps += is_cut_off(salvage, number);
        if (page.kind == PAGE_RECOVERY_INNER)
            note_hints(salvage, table, &page);
    }
}

/* ---- one read of each page ------------------------------------------------------------------- */

/* Reads each page once, and records which inner page leads to which page. */
static void note_parents(struct salvage *salvage)
{
    struct page_recovery_page page;

    for (uint32_t number = 1; number <= salvage->recovery.pages; number++) {
        uint32_t child;
        int64_t row;

        truce__page_recovery_page(&salvage->recovery, number, &page);
        salvage_examine_page(salvage);
        if (page.kind != PAGE_RECOVERY_INNER || page.state != PAGE_RECOVERY_VALID ||
            salvage->recovery.marks[number] & PAGE_RECOVERY_FREE)
            continue;
        for (uint32_t i = 0; i <= page.count; i++) {
            if (truce__page_recovery_child(&salvage->recovery, &page, i, &child, &row) &&
                child <= salvage->recovery.pages)
                salvage->parents[child] = number;
        }
    }
}

/* Marks the free pages. Each page of the free list, from `next` on, contains the number of the next
 * page of the list and the numbers of many free pages. Returns false if the list cannot be read to
 * its end. */
static bool note_free(struct salvage *salvage, uint32_t next)
{
    struct page_recovery *recovery = &salvage->recovery;
    uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES];

    while (next) {
        uint32_t count;

        if (next > recovery->pages || recovery->marks[next] & PAGE_RECOVERY_FREE ||
            truce__page_recovery_read(recovery, next, bytes) != PAGE_RECOVERY_VALID)
            return false;
        recovery->marks[next] |= PAGE_RECOVERY_FREE;
        count = salvage_number_at(bytes + 4);
        if (count > recovery->usable / 4 - 2)
            return false;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t page = salvage_number_at(bytes + 8 + 4 * (size_t)i);

            if (page > 1 && page <= recovery->pages)
                recovery->marks[page] |= PAGE_RECOVERY_FREE;
        }
        next = salvage_number_at(bytes);
    }
    return true;
}

static void salvage_read_header(struct salvage *salvage)
{
    struct page_recovery_header header;

    salvage->end = salvage->recovery.pages;
    if (!truce__page_recovery_header(&salvage->recovery, &header))
        return;
    salvage->free_is_known = note_free(salvage, header.free);
    salvage->header_pages = header.pages;
    if (header.pages && header.pages < salvage->end)
        salvage->end = header.pages;
}

/* ---- pages that no table has reached --------------------------------------------------------- */

static bool is_unreached(const struct salvage *salvage, uint32_t number,
                         struct page_recovery_page *page)
{
    if (salvage->recovery.marks[number] & (PAGE_RECOVERY_USED | PAGE_RECOVERY_FREE))
        return false;
    truce__page_recovery_page(&salvage->recovery, number, page);
    return page->kind == PAGE_RECOVERY_LEAF && page->count &&
           rows_fit(salvage, page, INT64_MIN, INT64_MAX);
}

/* Returns whether the last entry of the page has the form of the schema, or of the catalog. */
static bool has_form(struct salvage *salvage, const struct salvage_table *table,
                     const struct page_recovery_page *page)
{
    struct page_recovery_column column;
    struct buffer record = {0};
    bool ignored = false, has = false;
    const char *name;
    bson_t entry;

    if (page->count && truce__page_recovery_record(&salvage->recovery, page, page->count - 1, false,
                                                   &record, &ignored)) {
        if (table == &salvage->schema)
            has = truce__page_recovery_column(&record, 4, &column) &&
                  truce__page_recovery_column(&record, 0, &column) &&
                  salvage_is_text(&column, "table");
        else
            has = truce__page_recovery_column(&record, 1, &column) &&
                  (get_entry(&column, &entry, &name) || is_feed(&column));
    }
    truce__buffer_release(&record);
    return has;
}

/* Searches the pages to which no page leads for the rest of the schema, or of the catalog. */
static void salvage_search_pages(struct salvage *salvage, struct salvage_table *table)
{
    struct page_recovery_page page;

    if (table->root && !table->gaps_count)
        return;
    for (uint32_t number = 2; number <= salvage->end; number++) {
        if (is_unreached(salvage, number, &page) && has_form(salvage, table, &page))
            take_leaf(salvage, table, NULL, &page, false);
    }
}

static uint32_t top_of(const struct salvage *salvage, uint32_t number)
{
    for (int i = 0; i < DEPTH_MAX && salvage->parents[number]; i++)
        number = salvage->parents[number];
    return number;
}

/* Returns whether the schema is complete and intact. Otherwise an unknown table with a gap may
 * exist. */
static bool knows_tables(const struct salvage *salvage)
{
    const struct salvage_table *schema = &salvage->schema;

    return !schema->gaps_count && !schema->lost_pages && !schema->lost && !schema->doubtful &&
           salvage->tables_count < TRUCE_SALVAGE_TABLES_MAX;
}

/* Returns the only table with a gap that contains the rows of the page, or NULL. */
static struct salvage_table *salvage_table_of(struct salvage *salvage,
                                              const struct page_recovery_page *page)
{
    struct salvage_table *found = NULL;
    int64_t first = 0, last = 0;

    (void)truce__page_recovery_row(&salvage->recovery, page, 0, &first);
    (void)truce__page_recovery_row(&salvage->recovery, page, page->count - 1, &last);
    for (size_t i = 0; i < salvage->tables_count; i++) {
        if (!fits_gap(&salvage->tables[i], first, last))
            continue;
        if (found)
            return NULL;
        found = &salvage->tables[i];
    }
    return found;
}

/* Takes a leaf that no walk reached: for the only table that it fits, for the table of a damaged
 * parent, or for none. */
static void take_stray(struct salvage *salvage, const struct page_recovery_page *page)
{
    struct salvage_table *table = salvage_table_of(salvage, page);
    uint32_t hint = salvage->hints[page->number];
    char name[40];
    bool sure = table && salvage->free_is_known && knows_tables(salvage);

    if (!table && hint)
        table = &salvage->tables[hint - 1];
    if (table) {
        take_leaf(salvage, table, salvage_name_of(table, name, sizeof name), page, !sure);
        return;
    }
    snprintf(name, sizeof name, "salvaged_%lu", (unsigned long)top_of(salvage, page->number));
    take_leaf(salvage, NULL, name, page, false);
}

/* ---- the call -------------------------------------------------------------------------------- */

static void find_tables(struct salvage *salvage)
{
    salvage->schema.root = 1;
    salvage_walk(salvage, &salvage->schema, 1, INT64_MIN, INT64_MAX, 0);
    salvage_search_pages(salvage, &salvage->schema);
    if (salvage->catalog.root)
        salvage_walk(salvage, &salvage->catalog, salvage->catalog.root, INT64_MIN, INT64_MAX, 0);
    salvage_search_pages(salvage, &salvage->catalog);
}

/* Walks all tables, and then takes the leaves that no walk reached. */
static void salvage_take_all(struct salvage *salvage)
{
    struct page_recovery_page page;

    for (size_t i = 0; i < salvage->tables_count && !salvage->status; i++) {
        struct salvage_table *table = &salvage->tables[i];

        if (table->root)
            salvage_walk(salvage, table, table->root, INT64_MIN, INT64_MAX, 0);
        else
            add_gap(salvage, table, INT64_MIN, INT64_MAX);
    }
    for (uint32_t number = 2; number <= salvage->end && !salvage->status; number++) {
        salvage_examine_page(salvage);
        if (is_unreached(salvage, number, &page))
            take_stray(salvage, &page);
    }
    salvage_flush(salvage);
}

/* Returns the number of pages that were cut off and that no gap represents. */
static int64_t count_cut_pages(const struct salvage *salvage)
{
    const struct page_recovery *recovery = &salvage->recovery;
    int64_t cut = -(int64_t)salvage->cut_gaps;

    for (uint32_t page = recovery->file_pages + 1; page <= recovery->pages; page++)
        cut += is_cut_off(salvage, page) && !(recovery->marks[page] & PAGE_RECOVERY_FREE);
    if (salvage->header_pages > recovery->pages)
        cut += salvage->header_pages - recovery->pages;
    return cut > 0 ? cut : 0;
}

/* Ends the tables, and completes the report. */
static void salvage_sum_up(struct salvage *salvage)
{
    truce_salvage_report *report = salvage->report;

    report->lost_log = salvage->recovery.frames_lost;
    report->lost_pages += salvage->schema.lost_pages + salvage->catalog.lost_pages;
    report->lost_pages += count_cut_pages(salvage);
    for (size_t i = 0; i < salvage->tables_count && !salvage->status; i++) {
        if (salvage->tables[i].is_feed)
            continue;
        report->collections++;
        report->lost_pages += salvage->tables[i].lost_pages;
        salvage_end_table(salvage, &salvage->tables[i]);
    }
    report->complete = !report->doubtful && !report->strays && !report->lost &&
                       !report->lost_pages && !report->lost_log && !report->indexes_refused &&
                       !report->validators_refused;
}

static void release_table(struct salvage_table *table)
{
    if (table->entry)
        bson_destroy(table->entry);
    bson_free(table->name);
    bson_free(table->gaps);
}

static void salvage_release(struct salvage *salvage)
{
    for (size_t i = 0; i < salvage->tables_count; i++)
        release_table(&salvage->tables[i]);
    release_table(&salvage->schema);
    release_table(&salvage->catalog);
    bson_free(salvage->tables);
    bson_free(salvage->parents);
    bson_free(salvage->hints);
    truce__page_recovery_close(&salvage->recovery);
}

/* Fails with CONFLICT if the store has collections. */
static truce_status check_empty(truce_store *to, bson_error_t *error)
{
    truce_status status;
    bson_t list;
    uint32_t count;

    status = truce_collection_list(to, &(truce_list_options){.unmeasured = true}, &list, error);
    count = status ? 0 : bson_count_keys(&list);
    bson_destroy(&list);
    if (count)
        return truce__fail(TRUCE_CONFLICT, error,
                           "the store for the salvaged documents has %s: give an empty one",
                           PLURAL(count, "collection", "collections"));
    return status;
}

truce_status truce_salvage(const char *from, truce_store *to, const truce_salvage_options *options,
                           truce_salvage_report *report, bson_error_t *error)
{
    RETURN_IF_NULL(from, error);
    RETURN_IF_NULL(to, error);

    static const truce_salvage_options none = {0};
    truce_salvage_report ignored;
    bson_error_t unread;
    struct salvage salvage = {.to = to,
                              .options = options ? options : &none,
                              .report = report ? report : &ignored,
                              .error = error ? error : &unread};
    truce_status status;

    truce_assert(from && to);
    *salvage.report = (truce_salvage_report){0};
    status = ROOM_CHECK(options, "truce_salvage_options", error);
    if (!status)
        status = check_empty(to, salvage.error);
    if (!status)
        status = truce__page_recovery_open(strncmp(from, "file:", 5) ? from : from + 5,
                                           &salvage.recovery, salvage.error);
    if (status)
        return status;
    salvage.parents = bson_malloc0(((size_t)salvage.recovery.pages + 1) * sizeof *salvage.parents);
    salvage.hints = bson_malloc0(((size_t)salvage.recovery.pages + 1) * sizeof *salvage.hints);
    salvage_read_header(&salvage);
    note_parents(&salvage);
    find_tables(&salvage);
    salvage_take_all(&salvage);
    salvage_sum_up(&salvage);
    salvage_release(&salvage);
    return salvage.status;
}
