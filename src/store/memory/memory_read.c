/*
 * Reads of the memory store: every query visits every document, or those whose _id it names
 * (memory.c).
 *
 * Documents without a sort have the order of the plan that a file with the same documents and
 * indexes makes (engine/documents/query_plan.h). The plan only decides the order, and never which
 * documents match. A document is sorted by (number of the scan, key), with its first key within a
 * range of the plan. Documents that are equal keep the order of insertion.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine/documents/query_plan.h"
#include "query/distinct.h"
#include "query/project/find_result.h"
#include "store/memory/memory.h"
#include "store/pipeline.h"
#include "store/snapshot_view.h"

struct order_item {
    struct memory_match match;
    /* The number of the scan in the plan. */
    uint32_t scan;
    const uint8_t *key;
    size_t size;
    /* The position among the matches. */
    size_t inserted;
};

/* Describes the collection as a file's catalog does. Borrows the definitions of the indexes. */
static void order_describe(const struct memory_collection *collection, struct collection *described)
{
    *described = (struct collection){.indexes_count = collection->indexes_count};
    described->indexes = bson_malloc0(collection->indexes_count * sizeof *described->indexes);
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        struct index *index = &described->indexes[i];

        *index = (struct index){.id = i + 1, .state = INDEX_READY, .spec = *collection->indexes[i]};
        for (size_t k = 0; k < collection->count; k++)
            index->multikey_fields |= collection->documents[k]->keys[i].multikey_fields;
    }
}

/* Returns whether the key is in one of the ranges of the scan, which are sorted. */
static bool order_within(const struct plan_scan *scan, const uint8_t *key, size_t size)
{
    uint32_t low = 0, high = scan->count;

    /* Finds the last range that begins at the key or before it. */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct buffer *from = &scan->ranges[middle].from;

        if (truce__bytes_compare(from->bytes, from->size, key, size) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return false;
    return !scan->ranges[low - 1].to.size ||
           truce__bytes_compare(key, size, scan->ranges[low - 1].to.bytes,
                                scan->ranges[low - 1].to.size) < 0;
}

/* Finds the least key of the document within the scan. Returns false if no key is in it. */
static bool order_find_key(const struct plan_scan *scan, const struct field_keys *keys,
                           struct order_item *item)
{
    item->key = NULL;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t begin = i ? keys->ends[i - 1] : 0;
        const uint8_t *key = keys->bytes.bytes + begin;
        size_t size = keys->ends[i] - begin;

        if (!order_within(scan, key, size) ||
            (item->key && truce__bytes_compare(item->key, item->size, key, size) <= 0))
            continue;
        item->key = key;
        item->size = size;
    }
    return item->key;
}

static int order_compare(const void *a, const void *b)
{
    const struct order_item *x = a, *y = b;
    int order = (x->scan > y->scan) - (x->scan < y->scan);

    if (!order)
        order = truce__bytes_compare(x->key, x->size, y->key, y->size);
    return order ? order : (x->inserted > y->inserted) - (x->inserted < y->inserted);
}

/* Sorts the matches by the scan that finds them and by their key there. */
static void order_arrange(const struct plan *plan, struct memory_matches *matches)
{
    struct order_item *items = bson_malloc0(matches->count * sizeof *items);

    for (size_t i = 0; i < matches->count; i++) {
        struct order_item *item = &items[i];

        item->match = matches->items[i];
        item->inserted = i;
        while (item->scan < plan->count &&
               !order_find_key(&plan->scans[item->scan],
                               &item->match.document->keys[plan->scans[item->scan].index - 1],
                               item))
            item->scan++;
        if (!item->key)
            item->key = (const uint8_t *)"";
    }
    qsort(items, matches->count, sizeof *items, order_compare);
    for (size_t i = 0; i < matches->count; i++)
        matches->items[i] = items[i].match;
    bson_free(items);
}

/* Sorts matches, which are in the order of insertion, into the order of a find without a sort. */
static truce_status truce__memory_order(const struct memory_collection *collection,
                                        const struct memory_query *query,
                                        struct memory_matches *matches, bson_error_t *error)
{
    struct collection described;
    struct plan_request request = {.collection = &described,
                                   .match = query->match,
                                   .hint = query->hint,
                                   .min = query->min,
                                   .max = query->max};
    struct plan plan = {0};
    truce_status status;

    if (matches->count < 2)
        return TRUCE_OK;
    order_describe(collection, &described);
    status = truce__plan_make(&request, &plan, error);
    /* A scan of all rows keeps the order of insertion. */
    if (!status && plan.count && plan.scans[0].index)
        order_arrange(&plan, matches);
    truce__plan_release(&plan);
    bson_free(described.indexes);
    return status;
}

/* The steps of the budget that reading a document takes. */
#define STEPS_OF_DOCUMENT 16

/* ---- selecting ------------------------------------------------------------------------------ */

static void memory_read_push(struct memory_matches *matches, size_t position,
                             struct memory_document *document, struct match_result found)
{
    if (matches->count == matches->room) {
        matches->room = matches->room ? matches->room * 2 : 16;
        matches->items = bson_realloc(matches->items, matches->room * sizeof(*matches->items));
    }
    matches->items[matches->count++] =
        (struct memory_match){position, truce__memory_document_hold(document), found};
}

void truce__memory_matches_release(struct memory_matches *matches)
{
    for (size_t i = 0; i < matches->count; i++)
        truce__memory_document_release(matches->items[i].document);
    bson_free(matches->items);
    *matches = (struct memory_matches){0};
}

/* Returns whether the requested index omits the document, because it is sparse or partial. A
 * wildcard index is used only where it omits no match. */
static bool memory_index_omits(const struct memory_collection *collection,
                               const struct memory_document *document, int64_t index)
{
    if (index < 0 || collection->indexes[index]->fields[0].wildcard)
        return false;
    return document->keys[index].count == 0;
}

/* Returns whether the document is in the span of the index, if there is one. */
static bool memory_read_within(const struct index_span *span,
                               const struct memory_document *document, int64_t index)
{
    const uint8_t *key;
    size_t size;

    return !span || truce__index_span_first(span, &document->keys[index], &key, &size);
}

/* Appends the matches of a query in the order of insertion, or backward. Considers only documents
 * that the index has, within the span. */
static truce_status memory_scan_matches(const struct memory_collection *collection,
                                        const struct memory_query *query, int64_t index,
                                        const struct index_span *span, bool backward,
                                        struct memory_matches *matches, bson_error_t *error)
{
    size_t *positions = NULL, count = collection->count;
    truce_status status = TRUCE_OK;

    (void)truce__memory_ids_of(collection, query->match, &positions, &count);
    for (size_t i = 0; i < count && !status; i++) {
        size_t at = backward ? count - 1 - i : i, position = positions ? positions[at] : at;
        struct memory_document *document = collection->documents[position];
        struct match_result found = {.array_index = -1};

        status = truce__budget_spend(query->context->budget, STEPS_OF_DOCUMENT, error);
        if (status || memory_index_omits(collection, document, index) ||
            !memory_read_within(span, document, index))
            continue;
        truce__arena_reset(query->context->arena);
        status = truce__match_test(query->match, truce__value_document(document->bson),
                                   query->context, &found, error);
        if (!status && found.matched)
            memory_read_push(matches, position, document, found);
    }
    bson_free(positions);
    return status;
}

struct sort_item {
    struct buffer key;
    struct memory_match match;
    /* The position before the sort. Equal keys keep their order. */
    size_t order;
};

static int memory_read_compare_items(const void *a, const void *b)
{
    const struct sort_item *x = a, *y = b;
    int order = truce__bytes_compare(x->key.bytes, x->key.size, y->key.bytes, y->key.size);

    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static struct sort_item *items_of(const struct memory_matches *matches)
{
    struct sort_item *items = bson_malloc0((matches->count + 1) * sizeof(*items));

    for (size_t i = 0; i < matches->count; i++) {
        items[i].match = matches->items[i];
        items[i].order = i;
    }
    return items;
}

static void memory_read_arrange(struct sort_item *items, struct memory_matches *matches)
{
    qsort(items, matches->count, sizeof(*items), memory_read_compare_items);
    for (size_t i = 0; i < matches->count; i++)
        matches->items[i] = items[i].match;
}

static void free_items(struct sort_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        truce__buffer_release(&items[i].key);
    bson_free(items);
}

/* Sorts the matches by their sort keys. Equal keys keep their order. */
static truce_status sort_matches(const bson_t *specification, struct memory_matches *matches,
                                 bson_error_t *error)
{
    struct sort sort = {0};
    struct sort_item *items = items_of(matches);
    truce_status status = truce__sort_parse(specification, &sort, error);

    for (size_t i = 0; i < matches->count && !status; i++)
        status = truce__sort_key(&sort, truce__value_document(matches->items[i].document->bson),
                                 &items[i].key, error);
    if (!status)
        memory_read_arrange(items, matches);
    free_items(items, matches->count);
    truce__sort_release(&sort);
    return status;
}

/* Keeps the matches from number `skip` up to number `skip` + `limit`, exclusive. */
static void memory_read_cut(struct memory_matches *matches, int64_t skip, int64_t limit)
{
    size_t from = (uint64_t)skip < matches->count ? (size_t)skip : matches->count;
    size_t left = matches->count - from;
    size_t kept = limit > 0 && (uint64_t)limit < left ? (size_t)limit : left;

    for (size_t i = 0; i < matches->count; i++)
        if (i < from || i >= from + kept)
            truce__memory_document_release(matches->items[i].document);
    if (from > 0)
        memmove(matches->items, matches->items + from, kept * sizeof(*matches->items));
    matches->count = kept;
}

/* Appends the matches, except those that the hinted index omits and those outside of its span. */
static truce_status scan_hinted(const struct memory_collection *collection,
                                const struct memory_query *query, bool backward,
                                struct memory_matches *matches, bson_error_t *error)
{
    bool spans = truce__index_span_given(query->min, query->max);
    struct index_span span = {0};
    int64_t index;
    truce_status status = truce__index_hint((const struct index_spec *const *)collection->indexes,
                                            collection->indexes_count, query->hint, &index, error);

    if (!status && spans)
        status = truce__index_span_make(collection->indexes[index], query->min, query->max, &span,
                                        error);
    if (!status)
        status = memory_scan_matches(collection, query, index, spans ? &span : NULL, backward,
                                     matches, error);
    truce__index_span_release(&span);
    return status;
}

truce_status truce__memory_select(const struct memory_collection *collection,
                                  const struct memory_query *query, struct memory_matches *matches,
                                  bson_error_t *error)
{
    int natural, hinted;
    truce_status status = truce__natural_direction(query->sort, &natural, error);
    bool sorted = query->sort && !bson_empty(query->sort) && !natural;

    *matches = (struct memory_matches){0};
    truce_assert(query->skip >= 0 && query->limit >= 0);
    if (!status)
        status = truce__natural_direction(query->hint, &hinted, error);
    if (!status && collection) {
        natural = natural ? natural : hinted;
        status = scan_hinted(collection, query, natural < 0, matches, error);
    }
    if (!status && sorted)
        status = sort_matches(query->sort, matches, error);
    else if (!status && collection && !natural)
        status = truce__memory_order(collection, query, matches, error);
    if (!status)
        memory_read_cut(matches, query->skip, query->limit);
    else
        truce__memory_matches_release(matches);
    return status;
}

/* ---- one read ------------------------------------------------------------------------------- */

/* The state of a read from start to end; a cursor keeps it. */
struct reading {
    struct match *match;
    struct budget budget;
    struct query_context context;
    struct arena arena;
    struct memory_matches matches;
    /* The index of the hint, for reads that return keys. It has no fields for other reads. */
    struct index_spec hinted;
};

static void reading_release(struct reading *reading)
{
    truce__memory_matches_release(&reading->matches);
    truce__index_spec_release(&reading->hinted);
    truce__match_free(reading->match);
    truce__arena_release(&reading->arena);
}

static truce_status note_hinted(const struct memory_collection *collection, const bson_t *hint,
                                struct reading *reading, bson_error_t *error)
{
    int64_t index;
    truce_status status = truce__index_hint((const struct index_spec *const *)collection->indexes,
                                            collection->indexes_count, hint, &index, error);

    return status || index < 0
               ? status
               : truce__index_spec_copy(collection->indexes[index], &reading->hinted, error);
}

/* Compiles the filter without the mutex, and selects with it. The options are never NULL. The
 * caller always releases the reading. */
static truce_status memory_read_collection(struct memory_store *store, const char *name,
                                           const bson_t *filter, const truce_find_options *options,
                                           struct reading *reading, bson_error_t *error)
{
    struct memory_query query = {.sort = options->sort,
                                 .hint = options->hint,
                                 .min = options->min,
                                 .max = options->max,
                                 .skip = options->skip,
                                 .limit = options->limit,
                                 .context = &reading->context};
    const struct memory_collection *collection;
    truce_status status = truce__match_new(filter, &reading->match, error);

    if (status)
        return status;
    reading->context = (struct query_context){
        .now_ms = truce__clock_wall_ms(), .budget = &reading->budget, .arena = &reading->arena};
    query.match = reading->match;
    truce__store_budget(&store->base, options->deadline_ms, &reading->budget);
    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, name);
    status = truce__memory_select(collection, &query, &reading->matches, error);
    if (!status && collection && options->return_key)
        status = note_hinted(collection, options->hint, reading, error);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

/* ---- find ----------------------------------------------------------------------------------- */

/* A cursor over the documents that the collection had at one time. */
struct memory_cursor {
    truce_cursor base;
    struct reading reading;
    /* The form in which documents are returned, or NULL for whole documents. */
    struct find_result *shown;
    size_t next;
    bson_t document;
};

/* Returns the next document, in the form that the caller wants. A whole document belongs to
 * the matches of the cursor, and stays valid until the cursor is closed. */
static truce_status memory_read_cursor_next(truce_cursor *base, const bson_t **document,
                                            bson_error_t *error)
{
    struct memory_cursor *cursor = (struct memory_cursor *)base;
    const struct memory_match *match;
    truce_status status;

    if (cursor->next == cursor->reading.matches.count) {
        *document = NULL;
        return TRUCE_OK;
    }
    match = &cursor->reading.matches.items[cursor->next++];
    *document = match->document->bson;
    if (!cursor->shown)
        return TRUCE_OK;
    truce__arena_reset(&cursor->reading.arena);
    bson_destroy(&cursor->document);
    status = truce__find_result_make(cursor->shown, truce__value_document(match->document->bson),
                                     &match->found, match->document->record,
                                     &cursor->reading.context, &cursor->document, error);
    *document = status ? NULL : &cursor->document;
    return status;
}

static void memory_read_cursor_close(truce_cursor *base)
{
    struct memory_cursor *cursor = (struct memory_cursor *)base;

    truce__find_result_free(cursor->shown);
    reading_release(&cursor->reading);
    bson_destroy(&cursor->document);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {memory_read_cursor_next, memory_read_cursor_close};

static truce_status memory_read_open_shown(struct memory_cursor *cursor,
                                           const truce_find_options *options, bson_error_t *error)
{
    struct find_result_options wanted = {.projection = options->projection,
                                         .match = cursor->reading.match,
                                         .key = options->return_key,
                                         .min = options->min,
                                         .max = options->max,
                                         .record_id = options->show_record_id};

    if (cursor->reading.hinted.count)
        wanted.index = &cursor->reading.hinted;
    return truce__find_result_new(&wanted, &cursor->shown, error);
}

truce_status truce__memory_find_documents(truce_store *base, const char *name, const bson_t *filter,
                                          const truce_find_options *options, truce_cursor **cursor,
                                          bson_error_t *error)
{
    struct memory_cursor *made = bson_malloc0(sizeof(*made));
    truce_status status;

    made->base.ops = &cursor_ops;
    made->reading.context.arena = &made->reading.arena;
    bson_init(&made->document);
    status = memory_read_collection((struct memory_store *)base, name, filter, options,
                                    &made->reading, error);
    if (!status)
        status = memory_read_open_shown(made, options, error);
    if (status) {
        memory_read_cursor_close(&made->base);
        made = NULL;
    }
    *cursor = (truce_cursor *)made;
    return status;
}

/* ---- count, distinct, explain, read_many ----------------------------------------------------- */

truce_status truce__memory_count(truce_store *base, const char *name, const bson_t *filter,
                                 const truce_count_options *options, int64_t *count,
                                 bson_error_t *error)
{
    const truce_find_options as_find = truce__count_as_find(options);
    struct reading reading = {0};
    truce_status status = memory_read_collection((struct memory_store *)base, name, filter,
                                                 &as_find, &reading, error);

    *count = (int64_t)reading.matches.count;
    reading_release(&reading);
    return status;
}

truce_status truce__memory_distinct(truce_store *base, const char *name, const char *path,
                                    const bson_t *filter, bson_t *values, bson_error_t *error)
{
    static const truce_find_options all = {0};
    struct reading reading = {0};
    struct distinct *distinct = NULL;
    truce_status status =
        memory_read_collection((struct memory_store *)base, name, filter, &all, &reading, error);

    if (!status)
        status = truce__distinct_new(path, &distinct, error);
    for (size_t i = 0; i < reading.matches.count && !status; i++)
        status = truce__distinct_add(distinct,
                                     truce__value_document(reading.matches.items[i].document->bson),
                                     &reading.budget, error);
    if (!status)
        truce__distinct_values(distinct, values);
    else
        bson_init(values);
    truce__distinct_free(distinct);
    reading_release(&reading);
    return status;
}

/* Appends {stage: "COLLSCAN"}, for a count as the input of {stage: "COUNT"}. */
static void memory_read_append_winning(bson_t *planner, const bson_t *filter, bool count)
{
    bson_t winning, input, *scan = &winning;

    BSON_APPEND_DOCUMENT_BEGIN(planner, "winningPlan", &winning);
    if (count) {
        BSON_APPEND_UTF8(&winning, "stage", "COUNT");
        BSON_APPEND_DOCUMENT_BEGIN(&winning, "inputStage", &input);
        scan = &input;
    }
    BSON_APPEND_UTF8(scan, "stage", "COLLSCAN");
    if (filter && !bson_empty(filter))
        BSON_APPEND_DOCUMENT(scan, "filter", filter);
    BSON_APPEND_UTF8(scan, "direction", "forward");
    if (count)
        bson_append_document_end(&winning, &input);
    bson_append_document_end(planner, &winning);
}

static void memory_read_append_stats(bson_t *plan, int64_t found, int64_t examined, bool count)
{
    bson_t stats, stages;

    BSON_APPEND_DOCUMENT_BEGIN(plan, "executionStats", &stats);
    BSON_APPEND_INT64(&stats, "nReturned", count ? 0 : found);
    BSON_APPEND_INT64(&stats, "totalKeysExamined", 0);
    BSON_APPEND_INT64(&stats, "totalDocsExamined", examined);
    if (count) {
        BSON_APPEND_DOCUMENT_BEGIN(&stats, "executionStages", &stages);
        BSON_APPEND_UTF8(&stages, "stage", "COUNT");
        BSON_APPEND_INT64(&stages, "nCounted", found);
        bson_append_document_end(&stats, &stages);
    }
    bson_append_document_end(plan, &stats);
}

truce_status truce__memory_explain(truce_store *base, const char *name, const bson_t *filter,
                                   const truce_find_options *options, bool count, bson_t *plan,
                                   bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    const struct memory_collection *collection;
    struct reading reading = {0};
    truce_status status = memory_read_collection(store, name, filter, options, &reading, error);
    bson_t planner;

    bson_init(plan);
    if (!status) {
        pthread_mutex_lock(&store->mutex);
        collection = truce__memory_find(store, name);
        BSON_APPEND_DOCUMENT_BEGIN(plan, "queryPlanner", &planner);
        BSON_APPEND_UTF8(&planner, "namespace", name);
        memory_read_append_winning(&planner, filter, count);
        bson_append_document_end(plan, &planner);
        if (!options->plan_only)
            memory_read_append_stats(plan, (int64_t)reading.matches.count,
                                     collection ? (int64_t)collection->count : 0, count);
        pthread_mutex_unlock(&store->mutex);
    }
    reading_release(&reading);
    return status;
}

/* Finds a document by its _id, without the table: a view has none. */
static void memory_read_one(const struct memory_collection *collection, truce_read_request *request)
{
    bson_t wrapped = BSON_INITIALIZER;
    struct value id, other;

    BSON_APPEND_VALUE(&wrapped, "", request->id);
    id = truce__value_field(truce__value_document(&wrapped), "", 0);
    for (size_t i = 0; i < collection->count && !request->found; i++) {
        const bson_t *document = collection->documents[i]->bson;

        other = truce__value_field(truce__value_document(document), "_id", 3);
        if (truce__value_equal(id, other)) {
            bson_destroy(&request->document);
            bson_copy_to(document, &request->document);
            request->found = true;
        }
    }
    bson_destroy(&wrapped);
}

truce_status truce__memory_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                     bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;

    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < count; i++) {
        const struct memory_collection *collection =
            truce__memory_find(store, requests[i].collection);

        bson_init(&requests[i].document);
        requests[i].found = false;
        if (collection)
            memory_read_one(collection, &requests[i]);
    }
    pthread_mutex_unlock(&store->mutex);
    return TRUCE_OK;
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

/* The documents that the collection had at one time, as the input of a pipeline. */
struct memory_source {
    struct source base;
    struct reading reading;
    size_t next;
};

static truce_status source_next(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct memory_source *source = (struct memory_source *)base;
    struct memory_matches *matches = &source->reading.matches;

    *document = source->next < matches->count ? matches->items[source->next].document->bson : NULL;
    source->next += *document != NULL;
    return TRUCE_OK;
}

static void source_free(struct source *base)
{
    struct memory_source *source = (struct memory_source *)base;

    reading_release(&source->reading);
    bson_free(source);
}

truce_status truce__memory_aggregate(truce_store *base, const char *name, const bson_t *pipeline,
                                     const truce_aggregate_options *options, truce_cursor **cursor,
                                     bson_error_t *error)
{
    struct memory_source *source = bson_malloc0(sizeof(*source));
    truce_find_options how = {.hint = options->hint, .deadline_ms = options->deadline_ms};
    struct pipeline_head head = {0};
    struct pipeline *compiled = NULL;
    truce_store *reads = NULL;
    truce_status status = truce__pipeline_new(pipeline, &compiled, error);

    *cursor = NULL;
    if (!status)
        truce__pipeline_head(compiled, &head);
    /* The filter decides the order of the documents. If there is a sort, the pipeline applies both
     * itself. */
    if (head.sort)
        head = (struct pipeline_head){0};
    how.limit = head.limit;
    source->base = (struct source){source_next, source_free};
    if (!status)
        status = truce__view_for_pipeline(base, pipeline, &reads, error);
    if (!status)
        status = memory_read_collection((struct memory_store *)(reads ? reads : base), name,
                                        head.filter, &how, &source->reading, error);
    if (status) {
        source_free(&source->base);
        truce__pipeline_free(compiled);
        truce_store_close(reads);
        return status;
    }
    return truce__store_pipeline_cursor(base, reads, compiled, head.stages_taken, &source->base,
                                        options, cursor, error);
}
