#include "server/command/read_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget.h"
#include "bson/value.h"
#include "server/command/handlers.h"

/* ---- find ------------------------------------------------------------------------------------ */

static const struct field find_fields[] = {
    {"filter", FIELD_DOCUMENT, offsetof(struct find_request, filter)},
    {"sort", FIELD_DOCUMENT, offsetof(struct find_request, sort)},
    {"projection", FIELD_DOCUMENT, offsetof(struct find_request, projection)},
    {"hint", FIELD_HINT, offsetof(struct find_request, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct find_request, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct find_request, limit)},
    {"batchSize", FIELD_NUMBER, offsetof(struct find_request, batch)},
    {"singleBatch", FIELD_FLAG, offsetof(struct find_request, one_batch)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct find_request, disk)},
    {"noCursorTimeout", FIELD_FLAG, offsetof(struct find_request, no_timeout), true},
    {"allowPartialResults", FIELD_FLAG, offsetof(struct find_request, partial)},
    {"oplogReplay", FIELD_IGNORED, 0, true},
    {"awaitData", FIELD_PLAIN, 0, true},
    {"tailable", FIELD_PLAIN, 0, true},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct find_request, let)},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* Checked by collection_uuid.h. */
    {"max", FIELD_DOCUMENT, offsetof(struct find_request, max), true},
    {"min", FIELD_DOCUMENT, offsetof(struct find_request, min), true},
    {"returnKey", FIELD_FLAG, offsetof(struct find_request, keys), true},
    {"showRecordId", FIELD_FLAG, offsetof(struct find_request, record_id), true},
    {NULL, FIELD_IGNORED, 0}};

static truce_status check_not_negative(int64_t number, const char *name, bson_error_t *error)
{
    return number >= 0 ? TRUCE_OK
                       : truce__refuse(51024, error, "%s must be 0 or more, not %lld", name,
                                       (long long)number);
}

truce_status request_read_find(struct call *call, struct find_request *find, bson_error_t *error)
{
    truce_status status;

    *find = (struct find_request){.batch = FIRST_BATCH};
    status = call_own_fields(call, find_fields, find, error);
    if (!status)
        status = call_let(call, find->let, error);
    if (!status)
        status = check_not_negative(find->skip, "skip", error);
    if (!status)
        status = check_not_negative(find->batch, "batchSize", error);
    if (find->limit < 0) { /* A negative limit is how old drivers request a single batch. */
        find->one_batch = true;
        find->limit = find->limit == INT64_MIN ? 0 : -find->limit;
    }
    if (find->limit && find->limit <= find->batch)
        find->one_batch = true; /* With a single batch, no cursor stays open. */
    find->options = (truce_find_options){.projection = find->projection,
                                         .sort = find->sort,
                                         .hint = find->hint,
                                         .min = find->min,
                                         .max = find->max,
                                         .return_key = find->keys,
                                         .show_record_id = find->record_id,
                                         .skip = find->skip,
                                         .limit = find->limit,
                                         .deadline_ms = call->deadline_ms,
                                         .allow_disk_use = find->disk};
    return status;
}

/* ---- count, distinct ------------------------------------------------------------------------- */

static const struct field count_fields[] = {
    {"query", FIELD_DOCUMENT, offsetof(struct count_request, query)},
    {"hint", FIELD_HINT, offsetof(struct count_request, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct count_request, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct count_request, limit)},
    {"fields", FIELD_IGNORED, 0},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

truce_status request_read_count(struct call *call, struct count_request *count, bson_error_t *error)
{
    truce_status status;

    *count = (struct count_request){0};
    status = call_own_fields(call, count_fields, count, error);
    if (!status)
        status = check_not_negative(count->skip, "skip", error);
    count->options = (truce_count_options){.hint = count->hint,
                                           .skip = count->skip,
                                           .limit = count->limit,
                                           .deadline_ms = call->deadline_ms};
    return status;
}

static const struct field distinct_fields[] = {
    {"key", FIELD_TEXT, offsetof(struct distinct_request, key)},
    {"query", FIELD_DOCUMENT, offsetof(struct distinct_request, query)},
    {"hint", FIELD_HINT, offsetof(struct distinct_request, hint)},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

truce_status request_read_distinct(struct call *call, struct distinct_request *distinct,
                                   bson_error_t *error)
{
    truce_status status;

    *distinct = (struct distinct_request){0};
    status = call_own_fields(call, distinct_fields, distinct, error);
    if (!status && !distinct->key)
        status = truce__refuse(40414, error, "distinct needs 'key', the path of a field");
    return status;
}

/* ---- aggregate ------------------------------------------------------------------------------- */

static const struct field aggregate_fields[] = {
    {"pipeline", FIELD_ARRAY, offsetof(struct aggregate_request, pipeline)},
    {"cursor", FIELD_DOCUMENT, offsetof(struct aggregate_request, cursor)},
    {"hint", FIELD_HINT, offsetof(struct aggregate_request, hint)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct aggregate_request, disk)},
    {"explain", FIELD_FLAG, offsetof(struct aggregate_request, explain)},
    {"bypassDocumentValidation", FIELD_FLAG, offsetof(struct aggregate_request, unvalidated)},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct aggregate_request, let)},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* Checked by collection_uuid.h. */
    {NULL, FIELD_IGNORED, 0}};

struct batch_size {
    int64_t size;
};

static const struct field cursor_fields[] = {
    {"batchSize", FIELD_NUMBER, offsetof(struct batch_size, size)}, {NULL, FIELD_IGNORED, 0}};

truce_status request_batch(struct call *call, const bson_t *cursor, int64_t *most,
                           bson_error_t *error)
{
    struct batch_size batch = {*most};
    truce_status status =
        cursor ? call_fields(call, cursor, cursor_fields, false, &batch, error) : TRUCE_OK;

    if (!status)
        status = check_not_negative(batch.size, "batchSize", error);
    *most = batch.size;
    return status;
}

/* Reads the name of the collection of an aggregate, for the client and in the store. {aggregate: 1}
 * reads no collection, for example with $documents. The name in the store is then a reserved
 * one. */
static truce_status aggregate_stored_name(struct call *call, char stored_name[STORED_NAME_MAX],
                                          const char **name, bson_error_t *error)
{
    if (!truce__field_is_number(&call->value)) {
        truce_status status = call_stored_name(call, stored_name, error);

        *name = status ? "" : bson_iter_utf8(&call->value, NULL);
        return status;
    }
    *name = "$cmd.aggregate";
    return call_stored_name_of(call, "cmd.aggregate", stored_name, error);
}

/* Refuses a pipeline that begins with $documents if the aggregate names a collection. */
static truce_status request_check_documents(struct call *call, const bson_t *pipeline,
                                            bson_error_t *error)
{
    bson_iter_t at, stage;
    bool documents = bson_iter_init(&at, pipeline) && bson_iter_next(&at) &&
                     BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, &stage) &&
                     bson_iter_next(&stage) && !strcmp(bson_iter_key(&stage), "$documents");

    return documents && !truce__field_is_number(&call->value)
               ? truce__refuse(CODE_INVALID_NAMESPACE, error,
                               "$documents reads no collection: send {aggregate: 1}")
               : TRUCE_OK;
}

truce_status request_read_aggregate(struct call *call, struct aggregate_request *aggregate,
                                    bson_error_t *error)
{
    truce_status status;

    *aggregate = (struct aggregate_request){.batch = FIRST_BATCH};
    status = aggregate_stored_name(call, aggregate->stored_name, &aggregate->name, error);
    if (!status)
        status = call_own_fields(call, aggregate_fields, aggregate, error);
    if (!status)
        status = call_let(call, aggregate->let, error);
    if (!status && !aggregate->pipeline)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                               "aggregate needs 'pipeline', an array of stages");
    if (!status)
        status = request_batch(call, aggregate->cursor, &aggregate->batch, error);
    if (!status)
        status = serve_sessions_stage(call, &aggregate->pipeline, error);
    aggregate->options = (truce_aggregate_options){.hint = aggregate->hint,
                                                   .allow_disk_use = aggregate->disk,
                                                   .unvalidated = aggregate->unvalidated,
                                                   .deadline_ms = call->deadline_ms};
    return status;
}

/* Checks the access to a collection that a stage names, and prepares it: a collection that is
 * written must not be a view; one that is read may be. */
static truce_status allow_collection(void *arg, const char *database, const char *collection,
                                     bool writes, bson_error_t *error)
{
    truce_status status = access_need_collection(
        arg, database, collection, writes ? ACTION_WRITE | access_more_actions(arg) : ACTION_FIND,
        error);

    if (writes)
        /* killOp must not end the call: its write may be shared with writes of other threads. */
        truce__budget_watch(NULL);
    if (!status)
        status = writes ? view_refuse(arg, database, collection, true, error)
                        : view_join(arg, database, collection, error);
    return status;
}

truce_status request_pipeline(struct call *call, struct aggregate_request *aggregate,
                              const bson_t **pipeline, bson_error_t *error)
{
    const struct name_guard guard = {allow_collection, call};
    struct view_source source = {0};
    bson_t mapped;
    truce_status status = truce__map_pipeline(call->server->database, call->database,
                                              aggregate->pipeline, &guard, &mapped, error);

    if (!status)
        status = request_check_documents(call, aggregate->pipeline, error);
    if (!status && BSON_ITER_HOLDS_UTF8(&call->value))
        status = view_source(call, call->database, aggregate->name, &source, error);
    if (!status && source.is_view) {
        *pipeline = view_with(call, source.stages, &mapped);
        aggregate->shown = view_with(call, source.given, aggregate->pipeline);
        snprintf(aggregate->stored_name, sizeof aggregate->stored_name, "%s", source.stored_name);
    } else {
        *pipeline = call_view(
            call, truce__arena_copy(&call->arena, bson_get_data(&mapped), mapped.len), mapped.len);
        aggregate->shown = aggregate->pipeline;
    }
    bson_destroy(&mapped);
    return status;
}

/* ---- reads of a view ------------------------------------------------------------------------- */

/* The stages that a read of a view appends to those of the view. */
struct request_stages {
    bson_t array;
    uint32_t count;
};

static void stages_append_stage(struct request_stages *stages, bson_t *stage)
{
    truce__value_append_element(&stages->array, &stages->count, truce__value_document(stage));
    bson_destroy(stage);
}

static void stages_append_match(struct request_stages *stages, const bson_t *filter)
{
    bson_init(&stages->array);
    stages->count = 0;
    if (filter && !bson_empty(filter))
        stages_append_stage(stages, BCON_NEW("$match", BCON_DOCUMENT(filter)));
}

static void stages_append_range(struct request_stages *stages, int64_t skip, int64_t limit)
{
    if (skip)
        stages_append_stage(stages, BCON_NEW("$skip", BCON_INT64(skip)));
    if (limit)
        stages_append_stage(stages, BCON_NEW("$limit", BCON_INT64(limit)));
}

static void request_finish(struct call *call, struct request_stages *stages,
                           const struct view_source *source, struct aggregate_request *aggregate)
{
    aggregate->name = source->name;
    snprintf(aggregate->stored_name, sizeof aggregate->stored_name, "%s", source->stored_name);
    aggregate->pipeline = view_with(call, source->stages, &stages->array);
    aggregate->shown = view_with(call, source->given, &stages->array);
    aggregate->options.deadline_ms = call->deadline_ms;
    aggregate->options.hint = aggregate->hint;
    bson_destroy(&stages->array);
}

/* Returns the name of the first option in the request that views do not support, or NULL. */
static const char *no_view_takes(const struct find_request *find)
{
    if (find->min && !bson_empty(find->min))
        return "min";
    if (find->max && !bson_empty(find->max))
        return "max";
    if (find->keys)
        return "returnKey";
    if (find->record_id)
        return "showRecordId";
    if (find->no_timeout)
        return "noCursorTimeout";
    return find->partial ? "allowPartialResults" : NULL;
}

truce_status request_find_of_view(struct call *call, const struct find_request *find,
                                  const struct view_source *source,
                                  struct aggregate_request *aggregate, bson_error_t *error)
{
    bool natural = find->sort && bson_has_field(find->sort, "$natural");
    const char *untaken = no_view_takes(find);
    struct request_stages stages;

    *aggregate =
        (struct aggregate_request){.hint = find->hint, .options.allow_disk_use = find->disk};
    if (untaken)
        return truce__refuse(CODE_INVALID_PIPELINE_OPERATOR, error,
                             "Option %s not supported in aggregation.", untaken);
    if (natural) /* {$natural} orders by the collection that the view reads. */
        aggregate->hint = find->sort;
    stages_append_match(&stages, find->filter);
    if (find->sort && !natural && !bson_empty(find->sort))
        stages_append_stage(&stages, BCON_NEW("$sort", BCON_DOCUMENT(find->sort)));
    stages_append_range(&stages, find->skip, find->limit);
    if (find->projection && !bson_empty(find->projection))
        stages_append_stage(&stages, BCON_NEW("$project", BCON_DOCUMENT(find->projection)));
    request_finish(call, &stages, source, aggregate);
    return TRUCE_OK;
}

void request_count_of_view(struct call *call, const struct count_request *count,
                           const struct view_source *source, struct aggregate_request *aggregate)
{
    int64_t limit = count->limit == INT64_MIN ? INT64_MAX : llabs(count->limit);
    struct request_stages stages;

    *aggregate = (struct aggregate_request){.hint = count->hint};
    stages_append_match(&stages, count->query);
    stages_append_range(&stages, count->skip, limit);
    stages_append_stage(&stages, BCON_NEW("$count", BCON_UTF8("n")));
    request_finish(call, &stages, source, aggregate);
}

void request_distinct_of_view(struct call *call, const struct distinct_request *distinct,
                              const struct view_source *source, struct aggregate_request *aggregate)
{
    struct request_stages stages;

    *aggregate = (struct aggregate_request){.hint = distinct->hint};
    stages_append_match(&stages, distinct->query);
    request_finish(call, &stages, source, aggregate);
}

truce_status request_of_view(struct call *call, const struct view_source *source,
                             struct aggregate_request *aggregate, bson_error_t *error)
{
    struct find_request find;
    struct count_request count;
    struct distinct_request distinct;
    truce_status status;

    if (!strcmp(call->command->name, "find")) {
        status = request_read_find(call, &find, error);
        return status ? status : request_find_of_view(call, &find, source, aggregate, error);
    }
    if (!strcmp(call->command->name, "count")) {
        status = request_read_count(call, &count, error);
        if (!status)
            request_count_of_view(call, &count, source, aggregate);
        return status;
    }
    status = request_read_distinct(call, &distinct, error);
    if (!status)
        request_distinct_of_view(call, &distinct, source, aggregate);
    return status;
}
