/*
 * Transactions: opening, reads, and the commit; overlay_write.c has the writes.
 *
 * A cursor returns the documents that the view finds, except those that have an entry, and then the
 * documents that the scratch finds. If the scratch finds any and an order is required (a sort, or
 * the keys between min and max), all documents go through a sorter. The cursor shows the state when
 * it was opened: entries that were added later hide nothing from it.
 */
#include "store/overlay/transaction_overlay.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "query/distinct.h"
#include "query/index/index_set.h"
#include "query/input_check.h"
#include "query/project/find_result.h"
#include "query/sort/sort.h"
#include "store/overlay/overlay_parts.h"
#include "store/pipeline.h"
#include "store/snapshot_view.h"

struct overlay_cursor {
    /* Must be the first field. */
    truce_cursor base;
    struct overlay *overlay;
    struct collection_part *part;
    /* The number of the last write that the cursor shows. */
    uint64_t opened;
    /* The record of this read, or NULL if reads are not recorded. */
    struct read *read;
    /* The cursors of the view and of the scratch, or NULL after their end. */
    truce_cursor *under, *own;
    /* The documents still to skip, and those still to return (-1 for all). */
    int64_t skip, left;
    struct sort sort;
    /* The keys that give the order, or NULL if `sort` gives it. */
    struct keyer *keyer;
    /* Sorts the documents, or NULL if no order is required. */
    struct sorter *sorter;
    /* The compiled filter, which the projection needs. */
    struct match *match;
    /* The projection, or NULL if whole documents are returned. */
    struct find_result *shown;
    struct arena arena;
    struct budget budget;
    struct query_context context;
    /* `document` borrows its bytes from a cursor or from the sorter. */
    bson_t document, projected;
};

/* ---- recorded reads -------------------------------------------------------------------------- */

/* Adds a read to the records of the collection. Returns NULL if there are too many: then the
 * collection is recorded as a whole. */
static struct read *note_read(struct collection_part *part, const bson_t *filter,
                              const bson_t *sort, int64_t limit)
{
    struct read *read;

    if (part->whole || part->reads_count == TRUCE_TRANSACTION_READS_MAX) {
        part->whole = true;
        return NULL;
    }
    read = bson_malloc0(sizeof *read);
    read->filter = bson_copy(filter);
    read->sort = sort && !bson_empty(sort) ? bson_copy(sort) : NULL;
    read->limit = limit;
    read->next = part->reads;
    part->reads = read;
    part->reads_count++;
    return read;
}

/* Adds a document that the view returned to the record of the read, or its end if `document` is
 * NULL. */
static void note_document(struct overlay_cursor *cursor, const bson_t *document)
{
    struct read *read = cursor->read;

    if (!read)
        return;
    if (!document)
        read->ended = true;
    else if (read->count == TRUCE_TRANSACTION_READS_MAX)
        cursor->part->whole = true;
    else {
        read->count++;
        truce__fingerprint_add(&read->sum, bson_get_data(document), document->len);
    }
}

/* ---- documents ------------------------------------------------------------------------------ */

static bool is_hidden(const struct overlay_cursor *cursor, const bson_t *document)
{
    const struct entry *entry = truce__overlay_entry(cursor->part, document);

    return entry && entry->since <= cursor->opened;
}

/* Returns the next document of the view that no entry hides. Hidden documents count as read, too,
 * because the commit repeats the find on the store. */
static truce_status next_under(struct overlay_cursor *cursor, const bson_t **document,
                               bson_error_t *error)
{
    truce_status status;

    do {
        status = truce_cursor_next(cursor->under, document, error);
        if (!status)
            note_document(cursor, *document);
    } while (!status && *document && is_hidden(cursor, *document));
    if (!status && !*document) {
        truce_cursor_close(cursor->under);
        cursor->under = NULL;
    }
    return status;
}

/* Returns the next whole document, or NULL at the end. */
static truce_status next_whole(struct overlay_cursor *cursor, const bson_t **document,
                               bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *document = NULL;
    if (cursor->under)
        status = next_under(cursor, document, error);
    if (!status && !*document && cursor->own)
        status = truce_cursor_next(cursor->own, document, error);
    return status;
}

/* Adds the document to the sorter, by its key or by the sort. */
static truce_status sort_one(struct overlay_cursor *cursor, const bson_t *document,
                             bson_error_t *error)
{
    struct value value = truce__value_document(document);
    const uint8_t *key;
    size_t size;
    truce_status status;

    if (!cursor->keyer)
        return truce__sorter_add(cursor->sorter, value, value.data, value.size, error);
    status = truce__keyer_key(cursor->keyer, value, &key, &size, error);
    /* Both stores have found the document by a key of this index. */
    truce_assert(status || key);
    return status ? status
                  : truce__sorter_add_key(cursor->sorter, key, size, value.data, value.size, error);
}

static truce_status overlay_read_sort_all(struct overlay_cursor *cursor, bson_error_t *error)
{
    const bson_t *document;
    truce_status status;

    do {
        status = next_whole(cursor, &document, error);
        if (!status && document)
            status = sort_one(cursor, document, error);
    } while (!status && document);
    return status ? status : truce__sorter_sort(cursor->sorter, error);
}

/* Returns the next document, from the sorter if an order is required. */
static truce_status next_in_order(struct overlay_cursor *cursor, const bson_t **document,
                                  bson_error_t *error)
{
    const void *bytes;
    uint32_t size;
    truce_status status;

    if (!cursor->sorter)
        return next_whole(cursor, document, error);
    status = truce__sorter_next(cursor->sorter, &bytes, &size, error);
    *document = NULL;
    if (!status && bytes) {
        truce_assert(bson_init_static(&cursor->document, bytes, size));
        *document = &cursor->document;
    }
    return status;
}

/* Returns the next document of the cursor, after skipping and up to its limit, or NULL at the
 * end. */
static truce_status next_of_overlay(truce_cursor *base, const bson_t **document,
                                    bson_error_t *error)
{
    struct overlay_cursor *cursor = (struct overlay_cursor *)base;
    truce_status status = TRUCE_OK;

    *document = NULL;
    if (!cursor->left)
        return TRUCE_OK;
    do
        status = next_in_order(cursor, document, error);
    while (!status && *document && cursor->skip && cursor->skip--);
    if (status || !*document)
        return status;
    cursor->left -= cursor->left > 0;
    if (!cursor->shown)
        return TRUCE_OK;
    bson_destroy(&cursor->projected);
    truce__arena_reset(&cursor->arena);
    status = truce__find_result_make(cursor->shown, truce__value_document(*document), NULL, 0,
                                     &cursor->context, &cursor->projected, error);
    *document = status ? NULL : &cursor->projected;
    return status;
}

static void close_of_overlay(truce_cursor *base)
{
    struct overlay_cursor *cursor = (struct overlay_cursor *)base;

    truce_cursor_close(cursor->under);
    truce_cursor_close(cursor->own);
    truce__sorter_free(cursor->sorter);
    truce__sort_release(&cursor->sort);
    truce__keyer_free(cursor->keyer);
    truce__find_result_free(cursor->shown);
    truce__match_free(cursor->match);
    truce__arena_release(&cursor->arena);
    bson_destroy(&cursor->projected);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {next_of_overlay, close_of_overlay};

/* ---- opening -------------------------------------------------------------------------------- */

/* Records the read. A read of a part of an index cannot be repeated as such, so nothing in the
 * collection may change. */
static struct read *overlay_read_note(struct overlay_cursor *cursor, const bson_t *filter,
                                      bool natural, const truce_find_options *how)
{
    if (cursor->overlay->options.snapshot)
        return NULL;
    if (truce__index_span_given(how->min, how->max))
        cursor->part->whole = true;
    return note_read(cursor->part, filter, natural ? NULL : how->sort, how->limit);
}

/* Opens the cursor of the view. The limit is increased by the number of documents that entries may
 * hide. */
static truce_status open_under(struct overlay_cursor *cursor, const bson_t *filter,
                               const truce_find_options *options, bson_error_t *error)
{
    truce_find_options how = *options;
    truce_status status;
    int natural;

    if (how.limit)
        how.limit += how.skip + cursor->part->entries;
    how.skip = 0;
    how.projection = NULL;
    how.return_key = false;
    status = truce__natural_direction(how.sort, &natural, error);
    if (status)
        return status;
    cursor->read = overlay_read_note(cursor, filter, natural, &how);
    return truce_find(cursor->overlay->view, cursor->part->name, filter, &how, &cursor->under,
                      error);
}

/* Opens the cursor of the scratch. `index` is the index of the hint, if the read has a span. */
static truce_status open_own(struct overlay_cursor *cursor, const bson_t *filter,
                             const truce_find_options *options, const struct index_spec *index,
                             bson_error_t *error)
{
    const truce_find_options how = {.hint = options->hint,
                                    .min = options->min,
                                    .max = options->max,
                                    .deadline_ms = options->deadline_ms};
    const struct spill_options in_memory = {.budget = &cursor->budget};
    bool sorted = options->sort && !bson_empty(options->sort), spans;
    int natural = 0;
    truce_status status = TRUCE_OK;

    if (sorted)
        status = truce__natural_direction(options->sort, &natural, error);
    if (!status)
        status = truce_find(cursor->overlay->scratch, cursor->part->name, filter, &how,
                            &cursor->own, error);
    spans = index->count && truce__index_span_given(options->min, options->max);
    if (status || natural || (!sorted && !spans))
        return status;
    status = sorted ? truce__sort_parse(options->sort, &cursor->sort, error)
                    : truce__keyer_new(index, options->min, options->max, &cursor->keyer, error);
    if (status)
        return status;
    truce__sorter_new(&cursor->sort,
                      options->limit ? (uint64_t)options->skip + (uint64_t)options->limit : 0,
                      &in_memory, &cursor->sorter);
    return overlay_read_sort_all(cursor, error);
}

/* Prepares the projection. A projection with a positional operator needs the compiled filter. */
static truce_status overlay_read_open_shown(struct overlay_cursor *cursor, const bson_t *filter,
                                            const truce_find_options *options,
                                            const struct index_spec *index, bson_error_t *error)
{
    struct find_result_options wanted = {.projection = options->projection,
                                         .key = options->return_key,
                                         .index = index->count ? index : NULL,
                                         .min = options->min,
                                         .max = options->max};
    truce_status status = TRUCE_OK;

    if (wanted.projection && !bson_empty(wanted.projection))
        status = truce__match_new(filter, &cursor->match, error);
    wanted.match = cursor->match;
    return status ? status : truce__find_result_new(&wanted, &cursor->shown, error);
}

/* Finds the index of the hint, for reads that return its keys. The index has no fields if there is
 * no hint. */
static truce_status overlay_read_index(truce_store *base, const char *collection,
                                       const truce_find_options *options, struct index_spec *index,
                                       bson_error_t *error)
{
    bson_t indexes;
    truce_status status;

    *index = (struct index_spec){0};
    if (!options->hint ||
        !(options->return_key || truce__index_span_given(options->min, options->max)))
        return TRUCE_OK;
    status = truce__overlay_index_list(base, collection, &indexes, error);
    if (!status)
        status = truce__index_of_hint(&indexes, options->hint, index, error);
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Opens the cursor of the view and, if the transaction has written to the collection, that of the
 * scratch. */
static truce_status overlay_read_open_all(struct overlay_cursor *cursor, const bson_t *filter,
                                          const truce_find_options *options, bson_error_t *error)
{
    struct index_spec index;
    truce_status status = open_under(cursor, filter, options, error);

    if (status)
        return status;
    status = overlay_read_index(&cursor->overlay->base, cursor->part->name, options, &index, error);
    if (!status)
        status = overlay_read_open_shown(cursor, filter, options, &index, error);
    if (!status && cursor->part->entries)
        status = open_own(cursor, filter, options, &index, error);
    truce__index_spec_release(&index);
    return status;
}

/* Opens a cursor over the documents of the view and of the transaction's own writes. */
static truce_status overlay_find(truce_store *base, const char *collection, const bson_t *filter,
                                 const truce_find_options *options, truce_cursor **cursor,
                                 bson_error_t *error)
{
    struct overlay_cursor *made;
    truce_status status;

    *cursor = NULL;
    if (options->show_record_id)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "writes of a transaction have no record number yet: use showRecordId "
                             "outside of transactions");
    made = bson_malloc0(sizeof *made);
    made->base.ops = &cursor_ops;
    made->overlay = overlay_of(base);
    made->part = truce__overlay_part(made->overlay, collection);
    made->opened = made->overlay->writes;
    made->skip = options->skip;
    made->left = options->limit ? options->limit : -1;
    bson_init(&made->projected);
    truce__store_budget(base, options->deadline_ms, &made->budget);
    made->context = (struct query_context){
        .now_ms = truce__clock_wall_ms(), .budget = &made->budget, .arena = &made->arena};
    status = overlay_read_open_all(made, filter, options, error);
    if (status)
        close_of_overlay(&made->base);
    *cursor = status ? NULL : &made->base;
    return status;
}

/* ---- count, distinct ------------------------------------------------------------------------ */

typedef truce_status each_function(void *arg, const bson_t *document, struct budget *budget,
                                   bson_error_t *error);

/* Calls the function for each document of a find, until it fails. */
static truce_status overlay_read_each(truce_store *base, const char *collection,
                                      const bson_t *filter, const truce_find_options *options,
                                      each_function *take, void *arg, bson_error_t *error)
{
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status = overlay_find(base, collection, filter, options, &cursor, error);

    if (status)
        return status;
    do {
        status = next_of_overlay(cursor, &document, error);
        if (!status && document)
            status = take(arg, document, &((struct overlay_cursor *)cursor)->budget, error);
    } while (!status && document);
    close_of_overlay(cursor);
    return status;
}

static truce_status overlay_read_add_one(void *arg, const bson_t *document, struct budget *budget,
                                         bson_error_t *error)
{
    (void)document;
    ++*(int64_t *)arg;
    return truce__budget_spend(budget, 1, error);
}

static truce_status overlay_count(truce_store *base, const char *collection, const bson_t *filter,
                                  const truce_count_options *options, int64_t *count,
                                  bson_error_t *error)
{
    const truce_find_options as_find = truce__count_as_find(options);

    *count = 0;
    return overlay_read_each(base, collection, filter, &as_find, overlay_read_add_one, count,
                             error);
}

static truce_status add_values(void *arg, const bson_t *document, struct budget *budget,
                               bson_error_t *error)
{
    return truce__distinct_add(arg, truce__value_document(document), budget, error);
}

static truce_status overlay_distinct(truce_store *base, const char *collection, const char *path,
                                     const bson_t *filter, bson_t *values, bson_error_t *error)
{
    static const truce_find_options all;
    struct distinct *distinct = NULL;
    truce_status status = truce__distinct_new(path, &distinct, error);

    if (!status)
        status = overlay_read_each(base, collection, filter, &all, add_values, distinct, error);
    if (!status)
        truce__distinct_values(distinct, values);
    else
        bson_init(values);
    truce__distinct_free(distinct);
    return status;
}

/* ---- aggregate ------------------------------------------------------------------------------ */

struct overlay_source {
    struct source base; /* Must be the first field. */
    truce_cursor *cursor;
};

static truce_status next_of_source(struct source *base, const bson_t **document,
                                   bson_error_t *error)
{
    return next_of_overlay(((struct overlay_source *)base)->cursor, document, error);
}

static void overlay_read_free_source(struct source *base)
{
    close_of_overlay(((struct overlay_source *)base)->cursor);
    bson_free(base);
}

/* Refuses $out and $merge, which would write to the store outside of the transaction. */
static truce_status overlay_read_check_stages(const bson_t *pipeline, bson_error_t *error)
{
    bson_iter_t stage, field;

    (void)bson_iter_init(&stage, pipeline);
    while (bson_iter_next(&stage))
        if (BSON_ITER_HOLDS_DOCUMENT(&stage) && bson_iter_recurse(&stage, &field) &&
            bson_iter_next(&field) &&
            (!strcmp(bson_iter_key(&field), "$out") || !strcmp(bson_iter_key(&field), "$merge")))
            return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                                 "%s cannot be run in a transaction", bson_iter_key(&field));
    return TRUCE_OK;
}

/* Opens the documents that a pipeline starts from. They are sorted here only if a find sorts as the
 * stage does; otherwise all of them are read. */
static truce_status overlay_read_open_head(truce_store *base, const char *collection,
                                           const struct pipeline_head *head,
                                           const truce_aggregate_options *options,
                                           truce_cursor **cursor, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    bool straight = !head->sort || head->same_sort;
    const truce_find_options how = {.hint = options->hint,
                                    .deadline_ms = options->deadline_ms,
                                    .allow_disk_use = options->allow_disk_use,
                                    .sort = straight ? head->sort : NULL,
                                    .limit = straight ? head->limit : 0};

    return overlay_find(base, collection, head->filter ? head->filter : &all, &how, cursor, error);
}

/* Opens the cursor of an aggregate over the documents that the transaction sees. */
static truce_status overlay_aggregate(truce_store *base, const char *collection,
                                      const bson_t *pipeline,
                                      const truce_aggregate_options *options, truce_cursor **cursor,
                                      bson_error_t *error)
{
    struct overlay_source *source;
    struct pipeline *compiled = NULL;
    struct pipeline_head head = {0};
    truce_cursor *reads = NULL;
    truce_status status = overlay_read_check_stages(pipeline, error);

    *cursor = NULL;
    if (!status)
        status = truce__pipeline_new(pipeline, &compiled, error);
    if (!status) {
        truce__pipeline_head(compiled, &head);
        status = overlay_read_open_head(base, collection, &head, options, &reads, error);
    }
    if (status) {
        truce__pipeline_free(compiled);
        return status;
    }
    source = bson_malloc0(sizeof *source);
    source->base = (struct source){.next = next_of_source, .free = overlay_read_free_source};
    source->cursor = reads;
    return truce__store_pipeline_cursor(base, NULL, compiled, head.stages_taken, &source->base,
                                        options, cursor, error);
}

/* ---- the commit's bulk ----------------------------------------------------------------------- */

/*
 * The commit writes the differences as one atomic bulk, in this order:
 *
 *     remove    removed documents; documents that change a field of a unique index, if there are
 *               several, because two of them may exchange their keys; and documents that a
 *               replacement would take for operators
 *     replace   other changed documents
 *     insert    new documents, and those that the first step removed but that exist
 *
 * Removals and replacements require the bytes of the view's document. Collections that the
 * transaction made come first.
 */

/* A document that differs between the view and the scratch. */
struct difference {
    const char *collection;
    /* The document of the view, or NULL if it is new. */
    const bson_t *base;
    /* The document of the scratch, or NULL if it was removed. */
    bson_t *now;
    /* A filter by _id. */
    bson_t id;
    /* Whether the document is removed and then inserted, because it may exchange unique keys with
     * another one, or looks like operators. */
    bool moves;
    bool unvalidated, replaced;
};

struct differences {
    struct difference *all;
    size_t count, room;
};

/* Adds a document that the commit writes. `now` is copied; the document of the view is borrowed
 * from the entry. */
static void differences_add(struct differences *differences, const char *collection,
                            const struct entry *entry, const bson_t *now)
{
    struct difference *made;

    if (differences->count == differences->room) {
        differences->room = differences->room ? 2 * differences->room : 2;
        differences->all =
            bson_realloc(differences->all, differences->room * sizeof *differences->all);
    }
    made = &differences->all[differences->count++];
    *made = (struct difference){.collection = collection,
                                .base = entry->base,
                                .unvalidated = entry->unvalidated,
                                .replaced = entry->replaced};
    made->now = now ? bson_copy(now) : NULL;
    truce__overlay_id(now ? now : entry->base, &made->id);
}

static void commit_release(struct differences *differences)
{
    for (size_t i = 0; i < differences->count; i++) {
        if (differences->all[i].now)
            bson_destroy(differences->all[i].now);
        bson_destroy(&differences->all[i].id);
    }
    bson_free(differences->all);
}

/* ---- differences ----------------------------------------------------------------------------- */

/* Reads the documents of the scratch, marks their entries (`since` is UINT64_MAX), and adds those
 * that differ from the view. */
static truce_status find_present(struct overlay *overlay, struct collection_part *part,
                                 struct differences *differences, bson_error_t *error)
{
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status = truce_find(overlay->scratch, part->name, NULL, NULL, &cursor, error);

    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document) {
            struct entry *entry = truce__overlay_entry(part, document);

            truce_assert(entry);
            entry->since = UINT64_MAX;
            if (!entry->base || !bson_equal(entry->base, document))
                differences_add(differences, part->name, entry, document);
        }
    } while (!status && document);
    truce_cursor_close(cursor);
    return status;
}

static void find_gone(struct collection_part *part, struct differences *differences)
{
    for (uint32_t i = 0; i < part->buckets_count; i++)
        for (struct entry *entry = part->buckets[i]; entry; entry = entry->next)
            if (entry->since != UINT64_MAX && entry->base)
                differences_add(differences, part->name, entry, NULL);
}

static bool commit_same_field(const bson_t *a, const bson_t *b, const char *name, size_t length)
{
    return truce__value_identical(truce__value_field(truce__value_document(a), name, length),
                                  truce__value_field(truce__value_document(b), name, length));
}

/* Returns whether a top-level field changes from which a unique index has keys. */
static bool changes_key(const struct collection_part *part, const struct difference *difference)
{
    for (uint32_t i = 0; i < part->unique_count; i++)
        for (uint32_t j = 0; j < part->unique[i].count; j++) {
            const char *path = part->unique[i].fields[j].path.text;

            if (!commit_same_field(difference->base, difference->now, path, strcspn(path, ".")))
                return true;
        }
    return false;
}

/* Returns whether a store might take a replacement for operators, because one of its fields begins
 * with $. */
static bool looks_like_operators(const bson_t *document)
{
    bson_iter_t field;

    (void)bson_iter_init(&field, document);
    while (bson_iter_next(&field))
        if (bson_iter_key(&field)[0] == '$')
            return true;
    return false;
}

static void choose_moves(const struct collection_part *part, struct difference *first, size_t count)
{
    size_t trading = 0;

    for (size_t i = 0; i < count; i++)
        if (first[i].base && first[i].now) {
            first[i].moves = part->unique_count && changes_key(part, &first[i]);
            trading += first[i].moves;
        }
    for (size_t i = 0; i < count; i++)
        if (first[i].base && first[i].now)
            first[i].moves = (first[i].moves && trading > 1) || looks_like_operators(first[i].now);
}

/* Finds the documents that differ between the view and the scratch, in each collection that has
 * entries. */
static truce_status find_differences(struct overlay *overlay, struct differences *differences,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (struct collection_part *part = overlay->parts; part && !status; part = part->next) {
        size_t first = differences->count;

        if (!part->entries)
            continue;
        status = find_present(overlay, part, differences, error);
        find_gone(part, differences);
        if (differences->count > first)
            choose_moves(part, differences->all + first, differences->count - first);
    }
    return status;
}

/* ---- writes --------------------------------------------------------------------------------- */

enum write_step { STEP_REMOVE, STEP_REPLACE, STEP_INSERT, STEPS };

/* Builds the write of a difference for one step of the order. Returns false if the difference has
 * none in this step. */
static bool commit_write_of(const struct difference *difference, enum write_step step,
                            truce_write *write)
{
    bool stays = difference->base && difference->now && !difference->moves;

    *write = (truce_write){.collection = difference->collection,
                           .options.unvalidated = difference->unvalidated};
    switch (step) {
    case STEP_REMOVE:
        write->kind = TRUCE_WRITE_REMOVE;
        write->filter = &difference->id;
        write->exact = difference->base;
        return difference->base && !stays;
    case STEP_REPLACE:
        write->kind = TRUCE_WRITE_UPDATE;
        write->filter = &difference->id;
        write->exact = difference->base;
        write->document = difference->now;
        write->in_parts = !difference->replaced;
        return stays;
    default:
        write->kind = TRUCE_WRITE_INSERT;
        write->document = difference->now;
        return difference->now && !stays;
    }
}

/* Lists the writes of the commit in their order: removals, replacements, inserts, and `more`. The
 * caller frees the list, which borrows from the differences. */
static truce_write *commit_make_writes(const struct differences *differences,
                                       const struct makings *makings, const truce_write *more,
                                       size_t more_count, size_t *count)
{
    truce_write *writes = bson_malloc0((2 * differences->count + more_count + 1) * sizeof *writes);

    *count = 0;
    /* A bulk must have a write. This one always succeeds, because the collection is new and
     * empty. */
    if (makings->count)
        writes[(*count)++] = (truce_write){.kind = TRUCE_WRITE_REQUIRE_MISSING,
                                           .collection = makings->all[0].collection};
    for (enum write_step step = STEP_REMOVE; step < STEPS; step++)
        for (size_t i = 0; i < differences->count; i++)
            *count += commit_write_of(&differences->all[i], step, &writes[*count]);
    if (more_count)
        memcpy(writes + *count, more, more_count * sizeof *writes);
    *count += more_count;
    return writes;
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Adds the reads of a collection. A find that was not read to its end is repeated for the documents
 * that it returned. */
static void commit_add_reads(const struct collection_part *part, truce_read_check *checks,
                             size_t *count)
{
    for (const struct read *read = part->reads; read; read = read->next) {
        if (!read->ended && !read->count)
            /* No document was read by this cursor. */
            continue;
        checks[(*count)++] = (truce_read_check){
            .collection = part->name,
            .filter = read->filter,
            .sort = read->ended && !read->limit ? NULL : read->sort,
            .limit = read->ended ? read->limit : read->count,
            .count = read->count,
            .high = read->sum.high,
            .low = read->sum.low,
        };
    }
}

/* Lists the checks of all collections. A collection with too many reads has one check, that nothing
 * in it has changed. The caller frees the list. */
static truce_read_check *make_checks(const struct overlay *overlay, size_t *count)
{
    truce_read_check *checks;
    size_t most = 0;

    for (const struct collection_part *part = overlay->parts; part; part = part->next)
        most += part->whole ? 1 : part->reads_count;
    checks = bson_malloc0((most + 1) * sizeof *checks);
    *count = 0;
    for (const struct collection_part *part = overlay->parts; part; part = part->next)
        if (part->whole)
            checks[(*count)++] = (truce_read_check){.collection = part->name, .count = -1};
        else
            commit_add_reads(part, checks, count);
    return checks;
}

void truce__overlay_checks(truce_store *base, struct truce_read_checks *checks)
{
    const struct overlay *overlay = overlay_of(base);

    *checks = (struct truce_read_checks){.view = overlay->view};
    checks->all = make_checks(overlay, &checks->count);
}

/* ---- the commit ----------------------------------------------------------------------------- */

/* Sends the bulk of the commit, with the checks of the reads and the new collections. */
static truce_status commit_write_all(struct overlay *overlay, const struct makings *makings,
                                     const truce_write *writes, size_t count,
                                     const truce_bulk_options *options, bson_error_t *error)
{
    truce_bulk_options how = *options;
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    struct truce_read_checks checks;
    truce_status status;

    truce__overlay_checks(&overlay->base, &checks);
    checks.makings = makings->all;
    checks.makings_count = makings->count;
    how.atomic = true;
    how.checks = checks.count || checks.makings_count ? &checks : NULL;
    status = truce_bulk(overlay->store, writes, count, &how, outcomes, error);
    for (size_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(outcomes);
    bson_free((void *)checks.all);
    return status;
}

/* Returns whether the commit failed because another client has created a view with the name of a
 * collection that the transaction creates. */
static bool has_become_view(truce_status status, const bson_error_t *error)
{
    return status && error->code == CODE_COMMAND_NOT_SUPPORTED_ON_VIEW;
}

truce_status truce__overlay_commit(truce_store *base, const truce_write *more, size_t more_count,
                                   const truce_bulk_options *options, bson_error_t *error)
{
    static const truce_bulk_options defaults;
    struct overlay *overlay = overlay_of(base);
    struct differences differences = {0};
    struct makings makings;
    bson_error_t caught = {0};
    truce_write *writes;
    size_t count;
    truce_status status;

    if (overlay->broken)
        return truce__refuse(CODE_WRITE_CONFLICT, error,
                             "a failed statement of the transaction could not be undone");
    status = truce__overlay_makings(overlay, &makings, error);
    if (!status)
        status = find_differences(overlay, &differences, error);
    if (status || (!differences.count && !makings.count)) {
        truce__overlay_makings_release(&makings);
        commit_release(&differences);
        return status;
    }
    writes = commit_make_writes(&differences, &makings, more, more_count, &count);
    status =
        commit_write_all(overlay, &makings, writes, count, options ? options : &defaults, &caught);
    if (status == TRUCE_CONFLICT || status == TRUCE_DUPLICATE || has_become_view(status, &caught))
        status = truce__refuse(CODE_WRITE_CONFLICT, error, "another client wrote first: %.400s",
                               caught.message);
    else if (status && error)
        *error = caught;
    bson_free(writes);
    truce__overlay_makings_release(&makings);
    commit_release(&differences);
    return status;
}

/* ---- collections ---------------------------------------------------------------------------- */

struct collection_part *truce__overlay_part(struct overlay *overlay, const char *collection)
{
    struct collection_part **at = &overlay->parts;

    while (*at && strcmp((*at)->name, collection) != 0)
        at = &(*at)->next;
    if (!*at) {
        *at = bson_malloc0(sizeof **at);
        (*at)->name = bson_strdup(collection);
        bson_init(&(*at)->validator);
    }
    return *at;
}

truce_status truce__overlay_keep_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *definition, bson_error_t *error)
{
    struct index_spec spec;
    truce_status status = truce__index_spec_parse(definition, &spec, error);

    if (status)
        return status;
    if (!spec.is_id)
        status = truce_index_create(overlay->scratch, part->name, definition, error);
    if (!spec.unique || spec.is_id) {
        truce__index_spec_release(&spec);
        return status;
    }
    part->unique = bson_realloc(part->unique, (part->unique_count + 1) * sizeof *part->unique);
    part->unique[part->unique_count++] = spec;
    return status;
}

/* Creates the indexes of the view in the scratch. A collection that the view does not have has
 * none. */
static truce_status prepare_indexes(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(overlay->view, part->name, &indexes, error);
    struct fields fields = truce__fields(truce__value_document(&indexes));

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    while (!status && part->unique_count < TRUCE_INDEXES_MAX && truce__fields_next(&fields)) {
        bson_t definition;

        truce__value_bson(fields.value, &definition);
        status = truce__overlay_keep_index(overlay, part, &definition, error);
    }
    bson_destroy(&indexes);
    return status;
}

truce_status truce__overlay_prepare(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error)
{
    truce_status status;

    if (part->prepared)
        return TRUCE_OK;
    status = truce_collection_create(overlay->scratch, part->name, error);
    if (!status)
        status = prepare_indexes(overlay, part, error);
    if (status)
        return status;
    part->prepared = true;
    /* A transaction over such a view never writes. */
    if (!overlay->view->ops->validator)
        return TRUCE_OK;
    bson_destroy(&part->validator);
    return overlay->view->ops->validator(overlay->view, part->name, &part->validator, error);
}

/* ---- entries -------------------------------------------------------------------------------- */

void truce__overlay_id(const bson_t *document, bson_t *filter)
{
    bson_iter_t id;

    bson_init(filter);
    if (bson_iter_init_find(&id, document, "_id"))
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&id));
}

static void overlay_key_of(const bson_t *document, struct buffer *key)
{
    truce__key_append(key, truce__value_field(truce__value_document(document), "_id", 3), false);
}

static struct entry **overlay_bucket_of(const struct collection_part *part,
                                        const struct buffer *key)
{
    struct fingerprint sum = {0};

    truce__fingerprint_add(&sum, key->bytes, key->size);
    return &part->buckets[sum.low & (part->buckets_count - 1)];
}

struct entry *truce__overlay_entry(const struct collection_part *part, const bson_t *document)
{
    struct buffer key = {0};
    struct entry *at;

    if (!part->entries)
        return NULL;
    overlay_key_of(document, &key);
    at = *overlay_bucket_of(part, &key);
    while (at && (at->key.size != key.size || memcmp(at->key.bytes, key.bytes, key.size) != 0))
        at = at->next;
    truce__buffer_release(&key);
    return at;
}

/* Doubles the number of buckets, and moves the entries into them. */
static void overlay_grow_buckets(struct collection_part *part)
{
    struct entry **old = part->buckets;
    uint32_t count = part->buckets_count;

    part->buckets_count = count ? 2 * count : 16;
    part->buckets = bson_malloc0(part->buckets_count * sizeof *part->buckets);
    for (uint32_t i = 0; i < count; i++)
        while (old[i]) {
            struct entry *entry = old[i], **to = overlay_bucket_of(part, &entry->key);

            old[i] = entry->next;
            entry->next = *to;
            *to = entry;
        }
    bson_free(old);
}

struct entry *truce__overlay_add(struct overlay *overlay, struct collection_part *part,
                                 const bson_t *document, const bson_t *base)
{
    struct entry *entry = bson_malloc0(sizeof *entry), **bucket;

    if (part->entries == part->buckets_count)
        overlay_grow_buckets(part);
    overlay_key_of(document, &entry->key);
    entry->base = base ? bson_copy(base) : NULL;
    entry->since = overlay->writes;
    entry->size = base ? base->len : 0;
    bucket = overlay_bucket_of(part, &entry->key);
    entry->next = *bucket;
    *bucket = entry;
    part->entries++;
    overlay->documents++;
    overlay->bytes += 2 * (size_t)entry->size;
    return entry;
}

truce_status truce__overlay_show(truce_store *base, const char *collection, const bson_t *stored,
                                 const bson_t *shown, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, collection);
    truce_status status = truce__overlay_prepare(overlay, part, error);

    if (!status && shown)
        status = truce_insert(overlay->scratch, collection, shown, NULL, error);
    if (!status)
        (void)truce__overlay_add(overlay, part, stored, stored);
    return status;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Frees what the transaction has recorded about a collection. */
static void free_part(struct collection_part *part)
{
    while (part->reads) {
        struct read *read = part->reads;

        part->reads = read->next;
        bson_destroy(read->filter);
        if (read->sort)
            bson_destroy(read->sort);
        bson_free(read);
    }
    for (uint32_t i = 0; i < part->buckets_count; i++)
        while (part->buckets[i]) {
            struct entry *entry = part->buckets[i];

            part->buckets[i] = entry->next;
            if (entry->base)
                bson_destroy(entry->base);
            truce__buffer_release(&entry->key);
            bson_free(entry);
        }
    for (uint32_t i = 0; i < part->unique_count; i++)
        truce__index_spec_release(&part->unique[i]);
    bson_free(part->unique);
    bson_free(part->buckets);
    bson_destroy(&part->validator);
    bson_free(part->name);
    bson_free(part);
}

/* Closes the scratch and the snapshot, unless the caller owns the view, and frees the records. */
static void close_overlay(truce_store *base)
{
    struct overlay *overlay = overlay_of(base);

    if (overlay->counted)
        atomic_fetch_sub(&overlay->options.total->bytes, overlay->counted);
    while (overlay->parts) {
        struct collection_part *part = overlay->parts;

        overlay->parts = part->next;
        free_part(part);
    }
    if (!overlay->options.view)
        truce_store_close(overlay->view);
    truce_store_close(overlay->scratch);
    bson_free(overlay);
}

/* ---- the store ------------------------------------------------------------------------------ */

static const truce_store_ops overlay_ops = {
    .scheme = "transaction",
    .close = close_overlay,
    .find = overlay_find,
    .count = overlay_count,
    .distinct = overlay_distinct,
    .aggregate = overlay_aggregate,
    .bulk = truce__overlay_bulk,
    .find_and_modify = truce__overlay_modify,
    .index_list = truce__overlay_index_list,
    .index_create = truce__overlay_index_create,
    .collection_create = truce__overlay_create,
    .collection_validate = truce__overlay_validate,
    .collection_list = truce__overlay_list,
};

truce_status truce__overlay_open(truce_store *store, const struct overlay_options *options,
                                 truce_store **overlay, bson_error_t *error)
{
    struct overlay *made;
    truce_status status = TRUCE_OK;

    *overlay = NULL;
    if (!options->view && !(store->capabilities & TRUCE_CAN_CHECK))
        return truce__fail(
            TRUCE_INVALID, error,
            "a store of the kind \"%s\" has no transactions of several calls: use one "
            "commit, or a store in a file",
            store->ops->scheme);
    made = bson_malloc0(sizeof *made);
    made->base.ops = &overlay_ops;
    made->base.capabilities =
        TRUCE_CAN_ATOMIC_BULK | TRUCE_IS_TRANSACTION |
        (store->capabilities &
         (TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS | TRUCE_CAN_ITEM_UPDATE |
          TRUCE_CAN_REPORT_MODIFIED | TRUCE_CAN_SORT_UPDATE));
    made->store = store;
    made->options = *options;
    if (!made->options.bytes_max)
        made->options.bytes_max = TRUCE_TRANSACTION_BYTES_MAX;
    if (!made->options.documents_max)
        made->options.documents_max = TRUCE_TRANSACTION_DOCUMENTS_MAX;
    made->view = options->view;
    if (!made->view)
        status = truce__store_snapshot(store, NULL, &made->view, error);
    if (!status)
        status = truce_store_open("memory:", NULL, &made->scratch, error);
    if (status)
        close_overlay(&made->base);
    else
        *overlay = &made->base;
    return status;
}
