/* Reads that answer when all is read: count and distinct. read.c has the cursors. */
#include "base/assert.h"
#include "engine/documents/query.h"
#include "query/distinct.h"
#include "query/project/project.h"

/* ---- count ---------------------------------------------------------------------------------- */

/* All of a collection without a filter: SQLite counts faster. */
static truce_status read_all_count_all(struct engine *engine, const char *name,
                                       uint32_t deadline_ms, int64_t *count, bson_error_t *error)
{
    const struct collection *collection;
    struct reader *reader;
    struct budget budget;
    truce_status status = truce__engine_usable(engine, error);

    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    truce__engine_budget(engine, deadline_ms, &budget);
    truce__kv_bound(reader->kv, &budget);
    collection = truce__catalog_find(reader->catalog, name);
    if (collection)
        status = truce__kv_rows_count(reader->kv, collection->id, count, error);
    truce__kv_bound(reader->kv, NULL);
    truce__engine_read_end(engine, reader);
    return status;
}

truce_status truce__engine_count(struct engine *engine, const char *collection,
                                 const bson_t *filter, const truce_find_options *options,
                                 int64_t *count, bson_error_t *error)
{
    struct query query;
    truce_status status;

    *count = 0;
    if (bson_empty(filter) && !options->hint) {
        status = read_all_count_all(engine, collection, options->deadline_ms, count, error);
        *count = truce__count_cut(*count, options);
        return status;
    }
    status = truce__query_init(&query, engine, collection, filter, options, PLAN_COUNT, error);
    if (!status)
        status = truce__query_count(&query, options->skip, options->limit, count, error);
    truce__query_release(&query);
    return status;
}

/* ---- distinct ------------------------------------------------------------------------------- */

struct collecting {
    struct distinct *distinct;
    struct budget *budget;
    truce_status status;
    bson_error_t error;
};

static bool collect_one(const struct found *found, void *arg)
{
    struct collecting *collecting = arg;

    collecting->status = truce__distinct_add(collecting->distinct, found->document,
                                             collecting->budget, &collecting->error);
    return !collecting->status;
}

truce_status truce__engine_distinct(struct engine *engine, const char *collection, const char *path,
                                    const bson_t *filter, bson_t *values, bson_error_t *error)
{
    static const truce_find_options all = {0};
    struct query query;
    struct collecting collecting = {.budget = &query.budget};
    truce_status status =
        truce__query_init(&query, engine, collection, filter, &all, PLAN_DOCUMENTS, error);

    if (!status)
        status = truce__distinct_new(path, &collecting.distinct, error);
    if (!status)
        status = truce__query_run_all(&query, collect_one, &collecting, error);
    if (!status && collecting.status) {
        status = collecting.status;
        *error = collecting.error;
    }
    if (status)
        bson_init(values);
    else
        truce__distinct_values(collecting.distinct, values);
    truce__distinct_free(collecting.distinct);
    truce__query_release(&query);
    return status;
}
