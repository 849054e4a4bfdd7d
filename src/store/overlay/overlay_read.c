/*
 * Reading through a transaction.
 *
 * A cursor gives what the view finds, but for documents that have an entry, and then what is found in the scratch; if
 * there are any of those and an order is wanted (a sort; the keys between min and max), all go through a sorter. It shows the
 * moment of its opening: an entry that came later hides nothing from it.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "query/distinct.h"
#include "query/index/index_set.h"
#include "query/project/shown.h"
#include "query/sort/sort.h"
#include "store/overlay/overlay_parts.h"
#include "store/pipeline.h"
#include "store/view.h"

struct overlay_cursor {
    truce_cursor base; /* first */
    struct overlay *overlay;
    struct collection_part *part;
    uint64_t opened;           /* number of the last write that it shows */
    struct read *read;         /* NULL: nobody wants to know */
    truce_cursor *under, *own; /* of the view, of the scratch; NULL: it has ended */
    int64_t skip, left;        /* left -1: all */
    struct sort sort;
    struct keyer *keyer;   /* the keys that are the order; NULL: it is `sort` */
    struct sorter *sorter; /* NULL: as they come */
    struct match *match;   /* for the projection */
    struct shown *shown;   /* NULL: documents as they are */
    struct arena arena;
    struct budget budget;
    struct query_context context;
    bson_t document, projected; /* the first borrows */
};

/* ---- what was read -------------------------------------------------------------------------- */

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

/* NULL: that was all. */
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

/* By its key, or by the sort. */
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
    truce_assert(status || key); /* both stores have found it by one */
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
    status = truce__shown_make(cursor->shown, truce__value_document(*document), NULL, 0,
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
    truce__shown_free(cursor->shown);
    truce__match_free(cursor->match);
    truce__arena_release(&cursor->arena);
    bson_destroy(&cursor->projected);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {next_of_overlay, close_of_overlay};

/* ---- opening -------------------------------------------------------------------------------- */

/* What was read of a part of an index is not asked again as such: nothing of the collection may change. */
static struct read *overlay_read_note(struct overlay_cursor *cursor, const bson_t *filter,
                                      bool natural, const truce_find_options *how)
{
    if (cursor->overlay->options.snapshot)
        return NULL;
    if (truce__index_span_given(how->min, how->max))
        cursor->part->whole = true;
    return note_read(cursor->part, filter, natural ? NULL : how->sort, how->limit);
}

/* The view is asked for as many more as the entries may hide. */
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

/* `index`: of the hint, where there is a part of it. */
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

static truce_status overlay_read_open_shown(struct overlay_cursor *cursor, const bson_t *filter,
                                            const truce_find_options *options,
                                            const struct index_spec *index, bson_error_t *error)
{
    struct shown_wanted wanted = {.projection = options->projection,
                                  .key = options->return_key,
                                  .index = index->count ? index : NULL,
                                  .min = options->min,
                                  .max = options->max};
    truce_status status = TRUCE_OK;

    if (wanted.projection && !bson_empty(wanted.projection))
        status = truce__match_new(filter, &cursor->match, error);
    wanted.match = cursor->match;
    return status ? status : truce__shown_new(&wanted, &cursor->shown, error);
}

/* The hint's index, for who wants its keys; without fields: nobody does, or there is none. */
static truce_status overlay_read_read_index(truce_store *base, const char *collection,
                                            const truce_find_options *options,
                                            struct index_spec *index, bson_error_t *error)
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

static truce_status overlay_read_open_all(struct overlay_cursor *cursor, const bson_t *filter,
                                          const truce_find_options *options, bson_error_t *error)
{
    struct index_spec index;
    truce_status status = open_under(cursor, filter, options, error);

    if (status)
        return status;
    status =
        overlay_read_read_index(&cursor->overlay->base, cursor->part->name, options, &index, error);
    if (!status)
        status = overlay_read_open_shown(cursor, filter, options, &index, error);
    if (!status && cursor->part->entries)
        status = open_own(cursor, filter, options, &index, error);
    truce__index_spec_release(&index);
    return status;
}

truce_status truce__overlay_find(truce_store *base, const char *collection, const bson_t *filter,
                                 const truce_find_options *options, truce_cursor **cursor,
                                 bson_error_t *error)
{
    struct overlay_cursor *made;
    truce_status status;

    *cursor = NULL;
    if (options->show_record_id)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "what a transaction writes has no record yet: showRecordId is for "
                             "finds outside of it");
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

static truce_status overlay_read_each(truce_store *base, const char *collection,
                                      const bson_t *filter, const truce_find_options *options,
                                      each_function *take, void *arg, bson_error_t *error)
{
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status = truce__overlay_find(base, collection, filter, options, &cursor, error);

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

truce_status truce__overlay_count(truce_store *base, const char *collection, const bson_t *filter,
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

truce_status truce__overlay_distinct(truce_store *base, const char *collection, const char *path,
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
    struct source base; /* first */
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

/* $out and $merge write past the transaction. */
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

    return truce__overlay_find(base, collection, head->filter ? head->filter : &all, &how, cursor,
                               error);
}

truce_status truce__overlay_aggregate(truce_store *base, const char *collection,
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
