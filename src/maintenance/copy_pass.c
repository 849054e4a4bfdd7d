/*
 * One pass through a collection, to copy it or to compare it.
 *
 *     from   | done | batch |  not read yet        in the order of _id
 *                       |  ids
 *     to             { _id: {$in: [...]} }         -> missing, same, or other
 *
 * The documents of a batch are looked up in the other store by their _ids. The two stores therefore
 * need not order values alike; the order of _id only serves to resume. Documents are compared as
 * bytes: the order of fields and the types of numbers count.
 *
 * MP1  A writing pass never writes an equal document, so it may be repeated at any time.
 * MP2  If the counts show that `to` has documents that `from` does not have, the pass looks for
 *   them, except in a merge.
 * MP3  If `to` refuses to replace a document, for example because of a unique key, the document is
 *   removed there and is then missing. The next round inserts it after the other document has
 *   moved. Two documents that exchanged their keys are therefore copied.
 *
 * Every store fills in a zero timestamp at the top level of a document that it inserts or replaces.
 * A separate update restores it afterwards.
 *
 * Memory holds one batch: a maximum of documents or bytes, or one larger document.
 */
#include "maintenance/copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"

/* A batch also ends after this many bytes. */
#define BATCH_BYTES (4 * 1024 * 1024)

enum item_state {
    ITEM_MISSING,
    ITEM_SAME,
    ITEM_OTHER,
    /* The document differs, and its _id has other bytes (1 and 1.0), which a replacement does not
     * change. */
    ITEM_UNLIKE,
};

struct item {
    /* The document of `from`. In a pass through `to`, only its _id. */
    bson_t *document;
    struct value id;
    enum item_state state;
};

struct batch {
    struct item *items;
    size_t count;
};

struct pass {
    struct copy *copy;
    struct copy_part *part;
    /* The pass copies; otherwise it only compares. */
    bool write;
    struct batch batch;
    /* The items, sorted by _id. */
    struct item **sorted;
    truce_write *writes;
    truce_write_outcome *outcomes;
    /* For each write, its filter, or NULL for an insert. */
    bson_t **filters;
    /* For each write, its item. */
    struct item **written;
};

/* ---- batches -------------------------------------------------------------------------------- */

static void batch_clear(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        bson_destroy(batch->items[i].document);
    batch->count = 0;
}

/* Reads the next documents of the cursor. The batch is empty at the end. */
static truce_status batch_fill(struct pass *pass, truce_cursor *cursor, bson_error_t *error)
{
    struct batch *batch = &pass->batch;
    size_t bytes = 0;

    batch_clear(batch);
    while (batch->count < pass->copy->options.batch && bytes < BATCH_BYTES) {
        struct item *item = &batch->items[batch->count];
        const bson_t *document;
        truce_status status = truce_cursor_next(cursor, &document, error);

        if (status)
            return status;
        if (!document)
            break;
        *item = (struct item){.document = bson_copy(document)};
        item->id = truce__value_field(truce__value_document(item->document), "_id", 3);
        batch->count++;
        bytes += document->len;
        if (!item->id.type)
            return truce__fail(TRUCE_CORRUPT, error,
                               "a document of the collection \"%s\" has no _id",
                               pass->part->collection);
    }
    return TRUCE_OK;
}

static int pass_compare_items(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;

    return truce__value_compare(x->id, y->id);
}

static void batch_sort(struct pass *pass)
{
    for (size_t i = 0; i < pass->batch.count; i++)
        pass->sorted[i] = &pass->batch.items[i];
    if (pass->batch.count)
        qsort(pass->sorted, pass->batch.count, sizeof *pass->sorted, pass_compare_items);
}

static struct item *batch_find(struct pass *pass, struct value id)
{
    struct item wanted = {.id = id}, *key = &wanted, **found;

    found =
        bsearch(&key, pass->sorted, pass->batch.count, sizeof *pass->sorted, pass_compare_items);
    return found ? *found : NULL;
}

/* Returns {_id: {$in: [...]}} of the items in this state. */
static bson_t *pass_ids_of(const struct batch *batch, enum item_state state)
{
    bson_t *filter = bson_new(), in, list;
    uint32_t count = 0;

    bson_append_document_begin(filter, "_id", 3, &in);
    bson_append_array_begin(&in, "$in", 3, &list);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].state == state)
            truce__value_append_element(&list, &count, batch->items[i].id);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(filter, &in);
    return filter;
}

static bson_t *pass_filter_of(struct value id)
{
    bson_t *filter = bson_new(), equal;

    bson_append_document_begin(filter, "_id", 3, &equal);
    truce__value_append(&equal, "$eq", 3, id);
    bson_append_document_end(filter, &equal);
    return filter;
}

/* ---- lookups --------------------------------------------------------------------------------- */

static void pass_compare(struct pass *pass, struct item *item, const bson_t *there)
{
    struct value id = truce__value_field(truce__value_document(there), "_id", 3);
    bool same = bson_equal(item->document, there);

    item->state = same                                   ? ITEM_SAME
                  : truce__value_identical(item->id, id) ? ITEM_OTHER
                                                         : ITEM_UNLIKE;
    pass->part->found++;
    truce__fingerprint_add(&pass->part->to_sum, bson_get_data(there), there->len);
    if (!same && !pass->write)
        truce__copy_differs(pass->copy, pass->part, item->document, there);
}

/* Looks up the batch in `to`. */
static truce_status pass_look_up(struct pass *pass, bson_error_t *error)
{
    bson_t *filter = pass_ids_of(&pass->batch, ITEM_MISSING);
    truce_cursor *cursor = NULL;
    const bson_t *there;
    truce_status status =
        truce_find(pass->copy->to, pass->part->collection, filter, NULL, &cursor, error);

    batch_sort(pass);
    while (!status) {
        struct item *item;

        status = truce_cursor_next(cursor, &there, error);
        if (status || !there)
            break;
        item = batch_find(pass, truce__value_field(truce__value_document(there), "_id", 3));
        if (item && item->state == ITEM_MISSING)
            pass_compare(pass, item, there);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

/* Counts the documents of the batch, and adds them to the fingerprint of `from`. A comparison also
 * reports those that `to` does not have. */
static void take_batch(struct pass *pass)
{
    struct copy_part *part = pass->part;

    for (size_t i = 0; i < pass->batch.count; i++) {
        const struct item *item = &pass->batch.items[i];

        part->documents++;
        truce__fingerprint_add(&part->from_sum, bson_get_data(item->document), item->document->len);
        if (item->state == ITEM_MISSING && !pass->write)
            truce__copy_differs(pass->copy, part, item->document, NULL);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static truce_status remove_one(struct pass *pass, struct value id, bson_error_t *error)
{
    bson_t *filter = pass_filter_of(id);
    truce_write_result result = {0};
    truce_status status =
        truce_remove(pass->copy->to, pass->part->collection, filter, NULL, &result, error);

    pass->part->removed += result.removed;
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

static bool is_about_document(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT;
}

static void pass_add_write(struct pass *pass, size_t at, struct item *item)
{
    bool insert = item->state == ITEM_MISSING;

    pass->written[at] = item;
    pass->filters[at] = insert ? NULL : pass_filter_of(item->id);
    pass->writes[at] = (truce_write){.kind = insert ? TRUCE_WRITE_INSERT : TRUCE_WRITE_UPDATE,
                                     .collection = pass->part->collection,
                                     .filter = pass->filters[at],
                                     .document = item->document};
}

/* Builds the writes. Inserts are adjacent, so that they can be one message to a server. */
static size_t pass_make_writes(struct pass *pass)
{
    struct batch *batch = &pass->batch;
    size_t count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].state == ITEM_MISSING)
            pass_add_write(pass, count++, &batch->items[i]);
    }
    for (size_t i = 0; pass->part->rights == COPY_EVERYTHING && i < batch->count; i++) {
        if (batch->items[i].state == ITEM_OTHER)
            pass_add_write(pass, count++, &batch->items[i]);
    }
    return count;
}

/* Restores zero timestamps in a document that was just written. */
static truce_status restore_timestamps(struct pass *pass, const struct item *item,
                                       bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(item->document));
    bson_t *filter, update = BSON_INITIALIZER, set;
    truce_status status = TRUCE_OK;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    while (truce__fields_next(&fields)) {
        if (truce__value_is_empty_timestamp(fields.value) && strcmp(fields.key, "_id") != 0)
            truce__value_append(&set, fields.key, fields.key_length, fields.value);
    }
    if (!bson_empty(&set)) {
        bson_append_document_end(&update, &set);
        filter = pass_filter_of(item->id);
        status = truce_update(pass->copy->to, pass->part->collection, filter, &update, NULL, NULL,
                              error);
        bson_destroy(filter);
    } else {
        bson_append_document_end(&update, &set);
    }
    bson_destroy(&update);
    return status;
}

/* Handles the outcome of one write. If the store refuses the document, notes this and continues. */
static truce_status pass_settle(struct pass *pass, size_t at, bson_error_t *error)
{
    const truce_write_outcome *outcome = &pass->outcomes[at];
    const struct item *item = pass->written[at];
    bool insert = pass->writes[at].kind == TRUCE_WRITE_INSERT;

    if (!outcome->status) {
        pass->part->inserted += insert;
        pass->part->replaced += !insert;
        return restore_timestamps(pass, item, error);
    }
    if (!is_about_document(outcome->status)) {
        if (error)
            *error = outcome->error;
        return outcome->status;
    }
    truce__copy_refused(pass->copy, pass->part, item->document, &outcome->error);
    /* MP3: the copy has no older version of a refused document. */
    return insert ? TRUCE_OK : remove_one(pass, item->id, error);
}

/* Sends `count` writes from number `at` on. Refusals of single documents are in the outcomes, so
 * only other failures are returned. */
static truce_status pass_bulk(struct pass *pass, size_t at, size_t count, bson_error_t *error)
{
    const truce_bulk_options options = {.unordered = true};
    truce_status status =
        truce_bulk(pass->copy->to, pass->writes + at, count, &options, pass->outcomes + at, error);

    return is_about_document(status) ? TRUCE_OK : status;
}

/* Handles all outcomes. A server may refuse a whole message because of one document. The writes
 * that were not reached are then sent one by one. */
static truce_status pass_settle_all(struct pass *pass, size_t count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        const truce_write_outcome *outcome = &pass->outcomes[i];

        if (outcome->status && !outcome->error.message[0])
            status = pass_bulk(pass, i, 1, error);
        if (!status)
            status = pass_settle(pass, i, error);
    }
    return status;
}

/* Removes the documents whose _ids have other bytes, so that they can be inserted. */
static truce_status remove_conflicting(struct pass *pass, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < pass->batch.count && !status; i++) {
        struct item *item = &pass->batch.items[i];

        if (item->state != ITEM_UNLIKE || pass->part->rights != COPY_EVERYTHING)
            continue;
        status = remove_one(pass, item->id, error);
        item->state = ITEM_MISSING;
    }
    return status;
}

/* Inserts the missing documents of a batch and replaces the others, as far as part->rights
 * allows. */
static truce_status pass_write_batch(struct pass *pass, bson_error_t *error)
{
    truce_status status = remove_conflicting(pass, error);
    size_t count;

    if (status)
        return status;
    count = pass_make_writes(pass);
    if (count)
        status = pass_bulk(pass, 0, count, error);
    if (!status)
        status = pass_settle_all(pass, count, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&pass->outcomes[i].result);
        bson_destroy(pass->filters[i]);
    }
    return status;
}

/* ---- documents that only the target has ------------------------------------------------------ */

/* Removes the ids that `from` has from the batch, which was read from `to`. */
static truce_status pass_drop_present(struct pass *pass, bson_error_t *error)
{
    bson_t *filter = pass_ids_of(&pass->batch, ITEM_MISSING),
           *only_id = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.projection = only_id};
    truce_cursor *cursor = NULL;
    const bson_t *there;
    truce_status status =
        truce_find(pass->copy->from, pass->part->collection, filter, &options, &cursor, error);

    batch_sort(pass);
    while (!status) {
        struct item *item;

        status = truce_cursor_next(cursor, &there, error);
        if (status || !there)
            break;
        item = batch_find(pass, truce__value_field(truce__value_document(there), "_id", 3));
        if (item)
            item->state = ITEM_SAME;
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(only_id);
    return status;
}

/* Removes the documents of the batch that `from` does not have, or notes them as differences in a
 * comparison. */
static truce_status settle_extras(struct pass *pass, bson_error_t *error)
{
    const truce_write_options options = {.multi = true};
    bson_t *filter = pass_ids_of(&pass->batch, ITEM_MISSING);
    truce_write_result result = {0};
    truce_status status = TRUCE_OK;

    if (pass->write)
        status =
            truce_remove(pass->copy->to, pass->part->collection, filter, &options, &result, error);
    pass->part->removed += result.removed;
    for (size_t i = 0; i < pass->batch.count && !pass->write; i++) {
        if (pass->batch.items[i].state == ITEM_MISSING)
            truce__copy_differs(pass->copy, pass->part, NULL, pass->batch.items[i].document);
    }
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

/* Walks through the _ids of `to`, a batch at a time, to find documents that `from` does not
 * have. */
static truce_status walk_extras(struct pass *pass, bson_error_t *error)
{
    bson_t *only_id = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.projection = only_id, .sort = only_id, .hint = only_id};
    truce_cursor *cursor = NULL;
    truce_status status =
        truce_find(pass->copy->to, pass->part->collection, NULL, &options, &cursor, error);

    while (!status) {
        status = batch_fill(pass, cursor, error);
        if (status || !pass->batch.count)
            break;
        status = pass_drop_present(pass, error);
        if (!status)
            status = settle_extras(pass, error);
    }
    truce_cursor_close(cursor);
    bson_destroy(only_id);
    return status;
}

/* Counts the documents that only `to` has, and, except in a merge, looks for them (MP2). */
static truce_status find_extras(struct pass *pass, int64_t inserted_before, bson_error_t *error)
{
    struct copy_part *part = pass->part;
    int64_t count, known = part->found + part->inserted - inserted_before;
    truce_status status = truce_count(pass->copy->to, part->collection, NULL, NULL, &count, error);

    if (status || count == known)
        return status;
    part->kept = count > known ? count - known : 0;
    if (pass->copy->options.mode == TRUCE_COPY_MERGE)
        return TRUCE_OK;
    return walk_extras(pass, error);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void report_progress(struct pass *pass)
{
    const struct copy *copy = pass->copy;

    if (copy->options.progress)
        copy->options.progress(copy->comparing, copy->done, copy->total, copy->options.arg);
}

/* Walks through `from` in the order of _id, a batch at a time. After each batch that was written,
 * records the progress. */
static truce_status go_through(struct pass *pass, bson_error_t *error)
{
    bson_t *by_id = BCON_NEW("_id", BCON_INT32(1)), filter;
    const truce_find_options options = {.sort = by_id, .hint = by_id};
    truce_cursor *cursor = NULL;
    truce_status status;

    bson_init(&filter);
    if (pass->write)
        truce__copy_append_rest(pass->part, &filter);
    status =
        truce_find(pass->copy->from, pass->part->collection, &filter, &options, &cursor, error);
    while (!status) {
        status = batch_fill(pass, cursor, error);
        if (status || !pass->batch.count)
            break;
        if (!pass->write || !pass->part->fresh)
            status = pass_look_up(pass, error);
        if (status)
            break;
        take_batch(pass);
        if (pass->write)
            status = pass_write_batch(pass, error);
        if (!status && pass->write)
            status = truce__copy_record_save(pass->copy, pass->part,
                                             pass->batch.items[pass->batch.count - 1].id, error);
        pass->copy->done += (int64_t)pass->batch.count;
        report_progress(pass);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(by_id);
    return status;
}

static void pass_init(struct pass *pass, size_t batch)
{
    pass->batch.items = bson_malloc0(batch * sizeof *pass->batch.items);
    pass->sorted = bson_malloc0(batch * sizeof *pass->sorted);
    pass->writes = bson_malloc0(batch * sizeof *pass->writes);
    pass->outcomes = bson_malloc0(batch * sizeof *pass->outcomes);
    pass->filters = bson_malloc0(batch * sizeof *pass->filters);
    pass->written = bson_malloc0(batch * sizeof *pass->written);
}

static void pass_release(struct pass *pass)
{
    batch_clear(&pass->batch);
    bson_free(pass->batch.items);
    bson_free(pass->sorted);
    bson_free(pass->writes);
    bson_free(pass->outcomes);
    bson_free(pass->filters);
    bson_free(pass->written);
}

truce_status truce__copy_pass(struct copy *copy, struct copy_part *part, bool write,
                              bson_error_t *error)
{
    struct pass pass = {.copy = copy, .part = part, .write = write};
    bool whole = !write || bson_empty(part->last);
    int64_t inserted_before = part->inserted;
    truce_status status;

    truce_assert(!write || part->rights != COPY_NOTHING);
    part->documents = part->found = part->kept = 0;
    part->missing = part->other = part->extra = 0;
    part->from_sum = part->to_sum = (struct fingerprint){0};
    pass_init(&pass, copy->options.batch);
    status = go_through(&pass, error);
    if (!status && whole)
        status = find_extras(&pass, inserted_before, error);
    part->fresh = false;
    pass_release(&pass);
    return status;
}
