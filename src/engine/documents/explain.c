/* Explains how a find runs, in the form of MongoDB's explain: the plan, and what running it
 * examined. */
#include "base/assert.h"
#include "engine/documents/query.h"

static void explain_append_index(bson_t *stage, const char *name, const struct index *index,
                                 const struct plan_scan *scan)
{
    BSON_APPEND_UTF8(stage, "stage", name);
    BSON_APPEND_DOCUMENT(stage, "keyPattern", index->spec.key);
    BSON_APPEND_UTF8(stage, "indexName", index->spec.name);
    BSON_APPEND_BOOL(stage, "isMultiKey", index->multikey_fields);
    BSON_APPEND_BOOL(stage, "isUnique", index->spec.unique);
    BSON_APPEND_BOOL(stage, "isSparse", index->spec.sparse);
    BSON_APPEND_BOOL(stage, "isPartial", index->spec.partial_filter);
    BSON_APPEND_UTF8(stage, "direction", scan->backward ? "backward" : "forward");
    if (scan->bounds)
        BSON_APPEND_DOCUMENT(stage, "indexBounds", scan->bounds);
    BSON_APPEND_INT32(stage, "ranges", (int32_t)scan->count);
}

/* Appends {stage: "FETCH", inputStage: {stage: "IXSCAN", ...}}. */
static void append_index_scan(bson_t *stage, const struct index *index,
                              const struct plan_scan *scan)
{
    bson_t input;

    BSON_APPEND_UTF8(stage, "stage", "FETCH");
    BSON_APPEND_DOCUMENT_BEGIN(stage, "inputStage", &input);
    explain_append_index(&input, "IXSCAN", index, scan);
    bson_append_document_end(stage, &input);
}

/* Appends the stage of a scan: FETCH if it uses an index, otherwise COLLSCAN. */
static void append_scan(bson_t *stage, const struct collection *collection,
                        const struct plan_scan *scan, const bson_t *filter)
{
    const struct index *index =
        scan->index ? truce__collection_index_id(collection, scan->index) : NULL;

    if (index) {
        append_index_scan(stage, index, scan);
        return;
    }
    BSON_APPEND_UTF8(stage, "stage", "COLLSCAN");
    if (!bson_empty(filter))
        BSON_APPEND_DOCUMENT(stage, "filter", filter);
    BSON_APPEND_UTF8(stage, "direction", scan->backward ? "backward" : "forward");
}

/* Appends the stage of a plan with several scans. */
static void append_union(bson_t *stage, const struct collection *collection,
                         const struct plan *plan, const bson_t *filter)
{
    bson_t list, child;

    BSON_APPEND_UTF8(stage, "stage", "OR");
    BSON_APPEND_ARRAY_BEGIN(stage, "inputStages", &list);
    for (uint32_t i = 0; i < plan->count; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        bson_append_document_begin(&list, key, -1, &child);
        append_scan(&child, collection, &plan->scans[i], filter);
        bson_append_document_end(&list, &child);
    }
    bson_append_array_end(stage, &list);
}

static void append_access(bson_t *stage, const struct collection *collection,
                          const struct plan *plan, const bson_t *filter)
{
    if (!plan->count)
        BSON_APPEND_UTF8(stage, "stage", "EOF");
    else if (plan->count == 1)
        append_scan(stage, collection, &plan->scans[0], filter);
    else
        append_union(stage, collection, plan, filter);
}

/* Appends {stage: "COUNT", inputStage: ...}. Without a filter the rows are counted directly. */
static void explain_append_count(bson_t *winning, const struct plan *plan,
                                 const struct collection *collection, const bson_t *filter)
{
    bson_t input;

    BSON_APPEND_UTF8(winning, "stage", "COUNT");
    BSON_APPEND_DOCUMENT_BEGIN(winning, "inputStage", &input);
    if (plan->covered)
        explain_append_index(&input, "COUNT_SCAN",
                             truce__collection_index_id(collection, plan->scans[0].index),
                             plan->scans);
    else
        append_access(&input, collection, plan, filter);
    bson_append_document_end(winning, &input);
}

/* The steps that a find applies to the results of the scans, from the last step to the first. */
enum find_step { STEP_KEY, STEP_LIMIT, STEP_SKIP, STEP_SORT, STEP_ACCESS };

/* Returns whether the query has a step, so that explain shows it. */
static bool has_step(enum find_step step, const struct query *query,
                     const truce_find_options *options)
{
    bool sorts = !truce__query_sorted(query);

    switch (step) {
    case STEP_KEY:
        return options->return_key;
    case STEP_LIMIT:
        /* A sort applies the limit itself: it keeps only that many documents. */
        return options->limit && !sorts;
    case STEP_SKIP:
        return options->skip;
    case STEP_SORT:
        return sorts;
    default:
        return true;
    }
}

/* Appends the fields of a step. */
static void append_step(bson_t *stage, enum find_step step, const truce_find_options *options)
{
    bool bounded = options->limit && options->limit <= INT64_MAX - options->skip;

    if (step == STEP_KEY) {
        BSON_APPEND_UTF8(stage, "stage", "RETURN_KEY");
    } else if (step == STEP_LIMIT) {
        BSON_APPEND_UTF8(stage, "stage", "LIMIT");
        BSON_APPEND_INT64(stage, "limitAmount", options->limit);
    } else if (step == STEP_SKIP) {
        BSON_APPEND_UTF8(stage, "stage", "SKIP");
        BSON_APPEND_INT64(stage, "skipAmount", options->skip);
    } else {
        BSON_APPEND_UTF8(stage, "stage", "SORT");
        BSON_APPEND_DOCUMENT(stage, "sortPattern", options->sort);
        if (bounded)
            BSON_APPEND_INT64(stage, "limitAmount", options->skip + options->limit);
    }
}

/* Appends the steps of a find from `step` on, each as the inputStage of the one before. */
static void explain_append_find(bson_t *stage, enum find_step step, const struct query *query,
                                const struct plan *plan, const struct collection *collection,
                                const bson_t *filter, const truce_find_options *options)
{
    bson_t input;

    while (!has_step(step, query, options))
        step++;
    if (step == STEP_ACCESS) {
        append_access(stage, collection, plan, filter);
        return;
    }
    append_step(stage, step, options);
    BSON_APPEND_DOCUMENT_BEGIN(stage, "inputStage", &input);
    explain_append_find(&input, step + 1, query, plan, collection, filter, options);
    bson_append_document_end(stage, &input);
}

static bool counts_rows(const bson_t *filter, const truce_find_options *options)
{
    return bson_empty(filter) && !options->hint;
}

/* Appends {queryPlanner}, in the form of MongoDB's explain. */
static void append_plan(bson_t *plan, const struct query *query, const struct plan *shown,
                        const struct collection *collection, const bson_t *filter,
                        const truce_find_options *options, bool count)
{
    bson_t planner, winning;

    BSON_APPEND_DOCUMENT_BEGIN(plan, "queryPlanner", &planner);
    BSON_APPEND_UTF8(&planner, "namespace", query->collection);
    BSON_APPEND_DOCUMENT(&planner, "parsedQuery", filter);
    BSON_APPEND_DOCUMENT_BEGIN(&planner, "winningPlan", &winning);
    if (count && counts_rows(filter, options))
        BSON_APPEND_UTF8(&winning, "stage", "RECORD_STORE_FAST_COUNT");
    else if (count)
        explain_append_count(&winning, shown, collection, filter);
    else
        explain_append_find(&winning, STEP_KEY, query, shown, collection, filter, options);
    bson_append_document_end(&planner, &winning);
    bson_append_document_end(plan, &planner);
}

/* Makes the plan again in the same snapshot, now with its bounds. A query of a missing collection
 * has left its snapshot. */
static truce_status explain_describe(const struct query *query, const bson_t *filter,
                                     const truce_find_options *options, bool count, bson_t *plan,
                                     bson_error_t *error)
{
    const struct collection *collection = NULL;
    struct plan_request request;
    struct plan shown = {0};
    truce_status status = TRUCE_OK;

    if (query->reader)
        collection = truce__catalog_find(query->reader->catalog, query->collection);
    if (collection) {
        request =
            truce__query_request(query, collection, options, count ? PLAN_COUNT : PLAN_DOCUMENTS);
        request.shows = true;
        status = truce__plan_make(&request, &shown, error);
    }
    if (!status)
        append_plan(plan, query, &shown, collection, filter, options, count);
    truce__plan_release(&shown);
    return status;
}

/* Appends {executionStats}. `counted` is the result of a count, or NULL for a find. */
static void explain_append_stats(bson_t *plan, const struct query *query, int64_t returned,
                                 const int64_t *counted)
{
    bson_t stats, stages;

    BSON_APPEND_DOCUMENT_BEGIN(plan, "executionStats", &stats);
    BSON_APPEND_INT64(&stats, "nReturned", returned);
    BSON_APPEND_INT64(&stats, "totalKeysExamined", query->scan.keys_examined);
    BSON_APPEND_INT64(&stats, "totalDocsExamined", query->scan.documents_examined);
    if (counted) {
        BSON_APPEND_DOCUMENT_BEGIN(&stats, "executionStages", &stages);
        BSON_APPEND_UTF8(&stages, "stage", "COUNT");
        BSON_APPEND_INT64(&stages, "nCounted", *counted);
        bson_append_document_end(&stats, &stages);
    }
    bson_append_document_end(plan, &stats);
}

static truce_status run_find(struct query *query, const truce_find_options *options, bson_t *plan,
                             bson_error_t *error)
{
    int64_t returned;
    /* A find that sorts examines all documents, so it ignores skip and limit. */
    bool stops = truce__query_sorted(query);
    truce_status status = truce__query_count(query, stops ? options->skip : 0,
                                             stops ? options->limit : 0, &returned, error);

    if (!stops)
        returned = truce__count_cut(returned, options);
    explain_append_stats(plan, query, returned, NULL);
    return status;
}

/* Runs the query in the same way as a count, so that it examines what the count examines. */
static truce_status run_count(struct query *query, const bson_t *filter,
                              const truce_find_options *options, bson_t *plan, bson_error_t *error)
{
    int64_t counted = 0;
    truce_status status = TRUCE_OK;

    if (counts_rows(filter, options)) {
        status = truce__query_pause(query, false, error);
        if (!status)
            status = truce__engine_count(query->engine, query->collection, filter, options,
                                         &counted, error);
    } else {
        status = truce__query_count(query, options->skip, options->limit, &counted, error);
    }
    explain_append_stats(plan, query, 0, &counted);
    return status;
}

truce_status truce__engine_explain(struct engine *engine, const char *collection,
                                   const bson_t *filter, const truce_find_options *options,
                                   bool count, bson_t *plan, bson_error_t *error)
{
    struct query query;
    truce_status status = truce__query_init(&query, engine, collection, filter, options,
                                            count ? PLAN_COUNT : PLAN_DOCUMENTS, error);

    bson_init(plan);
    if (!status)
        status = explain_describe(&query, filter, options, count, plan, error);
    if (!status && !options->plan_only)
        status = count ? run_count(&query, filter, options, plan, error)
                       : run_find(&query, options, plan, error);
    truce__query_release(&query);
    return status;
}
