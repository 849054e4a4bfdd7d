/* Salvage: what was found, into the other store. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "maintenance/salvage.h"
#include "store/file/file.h"

#define BATCH_DOCUMENTS 500
#define BATCH_BYTES     (4 << 20)
#define DOUBTFUL        ".doubtful"

/* ---- documents ---------------------------------------------------------------------------------- */

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

/* Where the other store itself fails nothing goes on; a document that it refuses is lost. */
static bool salvage_put_is_refusal(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT;
}

/* Two of one _id: one of them is older. */
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

static void salvage_put_judge(struct salvage *salvage, const bson_t *document,
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
    /* each outcome says what became of it */
    if (truce_bulk(salvage->to, writes, batch->count, &options, outcomes, &ignored) ==
        TRUCE_OK) { /* all of them */
    }
    for (size_t i = 0; i < batch->count; i++) {
        salvage_put_judge(salvage, batch->documents[i], &outcomes[i]);
        truce_write_result_release(&outcomes[i].result);
    }
    bson_free(writes);
    bson_free(outcomes);
}

void truce__salvage_flush(struct salvage *salvage)
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

void truce__salvage_put(struct salvage *salvage, struct salvage_table *table, const char *name,
                        const struct wreck_column *body, bool doubtful)
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
        truce__salvage_flush(salvage);
    if (!batch->count) {
        batch->collection = bson_strdup_printf("%s%s", name, table && doubtful ? DOUBTFUL : "");
        batch->documents = bson_malloc0(BATCH_DOCUMENTS * sizeof *batch->documents);
        batch->table = table;
        batch->doubtful = doubtful;
    }
    batch->documents[batch->count++] = bson_copy(&document);
    batch->bytes += body->size;
}

/* ---- indexes, validators ------------------------------------------------------------------------ */

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

static void salvage_put_make_indexes(struct salvage *salvage, const struct salvage_table *table,
                                     bson_t *refused)
{
    bson_iter_t iter, list, entry;
    bson_error_t ignored;

    if (!table->entry || !bson_iter_init_find(&iter, table->entry, "indexes") ||
        !bson_iter_recurse(&iter, &list))
        return;
    if (truce_collection_create(salvage->to, table->name, &ignored)) {
        /* it is there, or its name is none, and every index says so */
    }
    while (bson_iter_next(&list)) {
        if (BSON_ITER_HOLDS_DOCUMENT(&list) && bson_iter_recurse(&list, &entry))
            salvage_put_make_index(salvage, table, &entry, refused);
    }
}

/* When the documents are there: what stood there need not match it. */
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

/* That the feed keeps its documents as they were. Where the collection could not be made, its indexes said so. */
static void make_images(struct salvage *salvage, const struct salvage_table *table)
{
    truce_status status;
    bson_error_t error;

    if (!table->entry || !bson_has_field(table->entry, "keeps") || salvage->status)
        return;
    status = truce__file_keep_images(salvage->to, table->name, true, &error);
    if (status && status != TRUCE_NOT_FOUND) {
        salvage->status = status;
        *salvage->error = error;
    }
}

void truce__salvage_end_table(struct salvage *salvage, const struct salvage_table *table)
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
