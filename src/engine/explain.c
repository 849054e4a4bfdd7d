/* How a find runs, in the shape of MongoDB's explain: the plan, and what running it looked at. */
#include "base/assert.h"
#include "engine/query.h"

/* {stage: "COLLSCAN"} or {stage: "FETCH", inputStage: {stage: "IXSCAN", ...}} */
static void append_index_scan(bson_t *stage, const struct index *index,
                              const struct plan_scan *scan)
{
    bson_t input;

    BSON_APPEND_UTF8(stage, "stage", "FETCH");
    BSON_APPEND_DOCUMENT_BEGIN(stage, "inputStage", &input);
    BSON_APPEND_UTF8(&input, "stage", "IXSCAN");
    BSON_APPEND_DOCUMENT(&input, "keyPattern", index->spec.key);
    BSON_APPEND_UTF8(&input, "indexName", index->spec.name);
    BSON_APPEND_BOOL(&input, "isMultiKey", index->multikey_fields);
    BSON_APPEND_BOOL(&input, "isUnique", index->spec.unique);
    BSON_APPEND_BOOL(&input, "isSparse", index->spec.sparse);
    BSON_APPEND_BOOL(&input, "isPartial", index->spec.partial_filter);
    BSON_APPEND_UTF8(&input, "direction", scan->backward ? "backward" : "forward");
    BSON_APPEND_INT32(&input, "ranges", (int32_t)scan->count);
    bson_append_document_end(stage, &input);
}

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

static void append_plan(bson_t *plan, const struct query *query,
                        const struct collection *collection, const bson_t *filter,
                        const bson_t *sort)
{
    bson_t planner, winning, input;

    BSON_APPEND_DOCUMENT_BEGIN(plan, "queryPlanner", &planner);
    BSON_APPEND_UTF8(&planner, "namespace", query->collection);
    BSON_APPEND_DOCUMENT(&planner, "parsedQuery", filter);
    BSON_APPEND_DOCUMENT_BEGIN(&planner, "winningPlan", &winning);
    if (truce__query_sorted(query)) {
        append_access(&winning, collection, &query->plan, filter);
    } else {
        BSON_APPEND_UTF8(&winning, "stage", "SORT");
        BSON_APPEND_DOCUMENT(&winning, "sortPattern", sort);
        BSON_APPEND_DOCUMENT_BEGIN(&winning, "inputStage", &input);
        append_access(&input, collection, &query->plan, filter);
        bson_append_document_end(&winning, &input);
    }
    bson_append_document_end(&planner, &winning);
    bson_append_document_end(plan, &planner);
}

/* The plan, with the catalog that it was made with or one that has the same indexes. */
static truce_status describe(struct query *query, const bson_t *filter, const bson_t *sort,
                             bson_t *plan, bson_error_t *error)
{
    struct readers *readers = &query->engine->readers;
    const struct collection *collection;
    struct reader *reader;
    truce_status status = truce__readers_begin(readers, &reader, error);

    if (status)
        return status;
    collection = truce__catalog_find(reader->catalog, query->collection);
    if (collection || !query->plan.count)
        append_plan(plan, query, collection, filter, sort);
    else
        status = truce__fail(TRUCE_CONFLICT, error, "%s was dropped while it was explained",
                             query->collection);
    truce__readers_end(readers, reader);
    return status;
}

struct counting {
    int64_t count, enough; /* enough 0: all */
};

static bool count_one(const struct found *found, void *arg)
{
    struct counting *counting = arg;

    (void)found;
    return ++counting->count != counting->enough;
}

static truce_status run(struct query *query, const truce_find_options *options, bson_t *plan,
                        bson_error_t *error)
{
    bool bounded =
        options->limit && truce__query_sorted(query) && options->limit <= INT64_MAX - options->skip;
    struct counting counting = {.enough = bounded ? options->skip + options->limit : 0};
    truce_status status = TRUCE_OK;
    int64_t returned;
    bson_t stats;

    while (!status && !query->done && (!counting.enough || counting.count < counting.enough))
        status = truce__query_run(query, count_one, &counting, error);
    returned = counting.count > options->skip ? counting.count - options->skip : 0;
    if (options->limit && returned > options->limit)
        returned = options->limit;
    BSON_APPEND_DOCUMENT_BEGIN(plan, "executionStats", &stats);
    BSON_APPEND_INT64(&stats, "nReturned", returned);
    BSON_APPEND_INT64(&stats, "totalKeysExamined", query->scan.keys_examined);
    BSON_APPEND_INT64(&stats, "totalDocsExamined", query->scan.documents_examined);
    bson_append_document_end(plan, &stats);
    return status;
}

truce_status truce__engine_explain(struct engine *engine, const char *collection,
                                   const bson_t *filter, const truce_find_options *options,
                                   bson_t *plan, bson_error_t *error)
{
    struct query query;
    truce_status status =
        truce__query_init(&query, engine, collection, filter, options, false, error);

    bson_init(plan);
    if (!status)
        status = describe(&query, filter, options->sort, plan, error);
    if (!status)
        status = run(&query, options, plan, error);
    truce__query_release(&query);
    return status;
}
