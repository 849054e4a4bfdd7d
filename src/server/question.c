#include "server/question.h"

#include <string.h>

#include "base/budget.h"
#include "server/groups.h"

/* ---- find ----------------------------------------------------------------------------------- */

static const struct field find_fields[] = {
    {"filter", FIELD_DOCUMENT, offsetof(struct question_find, filter)},
    {"sort", FIELD_DOCUMENT, offsetof(struct question_find, sort)},
    {"projection", FIELD_DOCUMENT, offsetof(struct question_find, projection)},
    {"hint", FIELD_HINT, offsetof(struct question_find, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct question_find, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct question_find, limit)},
    {"batchSize", FIELD_NUMBER, offsetof(struct question_find, batch)},
    {"singleBatch", FIELD_FLAG, offsetof(struct question_find, one_batch)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct question_find, disk)},
    {"noCursorTimeout", FIELD_IGNORED, 0},
    {"allowPartialResults", FIELD_IGNORED, 0},
    {"oplogReplay", FIELD_IGNORED, 0},
    {"awaitData", FIELD_PLAIN, 0},
    {"tailable", FIELD_PLAIN, 0},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct question_find, let)},
    {"max", FIELD_PLAIN, 0},
    {"min", FIELD_PLAIN, 0},
    {"returnKey", FIELD_PLAIN, 0},
    {"showRecordId", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static truce_status check_not_negative(int64_t number, const char *name, bson_error_t *error)
{
    return number >= 0 ? TRUCE_OK
                       : truce__refuse(51024, error, "%s must not be negative, and is %lld", name,
                                       (long long)number);
}

truce_status question_find(struct call *call, struct question_find *find, bson_error_t *error)
{
    truce_status status;

    *find = (struct question_find){.batch = FIRST_BATCH};
    status = call_own_fields(call, find_fields, find, error);
    if (!status)
        status = call_let(call, find->let, error);
    if (!status)
        status = check_not_negative(find->skip, "skip", error);
    if (!status)
        status = check_not_negative(find->batch, "batchSize", error);
    if (find->limit < 0) { /* a driver of old: so many, and no second batch */
        find->one_batch = true;
        find->limit = find->limit == INT64_MIN ? 0 : -find->limit;
    }
    if (find->limit && find->limit <= find->batch)
        find->one_batch = true; /* there is no second one to come back for */
    find->options = (truce_find_options){.projection = find->projection,
                                         .sort = find->sort,
                                         .hint = find->hint,
                                         .skip = find->skip,
                                         .limit = find->limit,
                                         .deadline_ms = call->deadline_ms,
                                         .allow_disk_use = find->disk};
    return status;
}

/* ---- count, distinct ------------------------------------------------------------------------ */

static const struct field count_fields[] = {
    {"query", FIELD_DOCUMENT, offsetof(struct question_count, query)},
    {"hint", FIELD_HINT, offsetof(struct question_count, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct question_count, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct question_count, limit)},
    {"fields", FIELD_IGNORED, 0},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

truce_status question_count(struct call *call, struct question_count *count, bson_error_t *error)
{
    truce_status status;

    *count = (struct question_count){0};
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
    {"key", FIELD_TEXT, offsetof(struct question_distinct, key)},
    {"query", FIELD_DOCUMENT, offsetof(struct question_distinct, query)},
    {"hint", FIELD_HINT, offsetof(struct question_distinct, hint)},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

truce_status question_distinct(struct call *call, struct question_distinct *distinct,
                               bson_error_t *error)
{
    truce_status status;

    *distinct = (struct question_distinct){0};
    status = call_own_fields(call, distinct_fields, distinct, error);
    if (!status && !distinct->key)
        status = truce__refuse(40414, error, "distinct must have a key");
    return status;
}

/* ---- aggregate ------------------------------------------------------------------------------ */

static const struct field aggregate_fields[] = {
    {"pipeline", FIELD_ARRAY, offsetof(struct question_aggregate, pipeline)},
    {"cursor", FIELD_DOCUMENT, offsetof(struct question_aggregate, cursor)},
    {"hint", FIELD_HINT, offsetof(struct question_aggregate, hint)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct question_aggregate, disk)},
    {"explain", FIELD_FLAG, offsetof(struct question_aggregate, explain)},
    {"bypassDocumentValidation", FIELD_FLAG, offsetof(struct question_aggregate, unvalidated)},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct question_aggregate, let)},
    {NULL, FIELD_IGNORED, 0}};

struct batch_size {
    int64_t size;
};

static const struct field cursor_fields[] = {
    {"batchSize", FIELD_NUMBER, offsetof(struct batch_size, size)}, {NULL, FIELD_IGNORED, 0}};

truce_status question_batch(struct call *call, const bson_t *cursor, int64_t *most,
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

/* {aggregate: 1}: without a collection, as $documents has it; the place is one that nobody uses. */
static truce_status aggregate_place(struct call *call, char place[PLACE_MAX], const char **name,
                                    bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_NUMBER(&call->value)) {
        truce_status status = call_place(call, place, error);

        *name = status ? "" : bson_iter_utf8(&call->value, NULL);
        return status;
    }
    *name = "$cmd.aggregate";
    return call_place_of(call, "cmd.aggregate", place, error);
}

/* $documents is of no collection, and nothing else is. */
static truce_status check_documents(struct call *call, const bson_t *pipeline, bson_error_t *error)
{
    bson_iter_t at, stage;
    bool documents = bson_iter_init(&at, pipeline) && bson_iter_next(&at) &&
                     BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, &stage) &&
                     bson_iter_next(&stage) && !strcmp(bson_iter_key(&stage), "$documents");

    return documents && !BSON_ITER_HOLDS_NUMBER(&call->value)
               ? truce__refuse(CODE_INVALID_NAMESPACE, error,
                               "$documents is of no collection: {aggregate: 1}")
               : TRUCE_OK;
}

truce_status question_aggregate(struct call *call, struct question_aggregate *aggregate,
                                bson_error_t *error)
{
    truce_status status;

    *aggregate = (struct question_aggregate){.batch = FIRST_BATCH};
    status = aggregate_place(call, aggregate->place, &aggregate->name, error);
    if (!status)
        status = call_own_fields(call, aggregate_fields, aggregate, error);
    if (!status)
        status = call_let(call, aggregate->let, error);
    if (!status && !aggregate->pipeline)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error, "aggregate must have a pipeline");
    if (!status)
        status = question_batch(call, aggregate->cursor, &aggregate->batch, error);
    if (!status)
        status = serve_sessions_stage(call, &aggregate->pipeline, error);
    aggregate->options = (truce_aggregate_options){.hint = aggregate->hint,
                                                   .allow_disk_use = aggregate->disk,
                                                   .unvalidated = aggregate->unvalidated,
                                                   .deadline_ms = call->deadline_ms};
    return status;
}

static truce_status allow_place(void *arg, const char *database, const char *collection,
                                bool writes, bson_error_t *error)
{
    if (writes)
        truce__budget_watch(NULL); /* others' writes may go with it */
    return access_need_collection(arg, database, collection,
                                  writes ? ACTION_WRITE | access_more_actions(arg) : ACTION_FIND,
                                  error);
}

truce_status question_pipeline(struct call *call, const struct question_aggregate *aggregate,
                               bson_t *pipeline, bson_error_t *error)
{
    const struct place_guard guard = {allow_place, call};
    truce_status status = place_pipeline(call->server->database, call->database,
                                         aggregate->pipeline, &guard, pipeline, error);

    return status ? status : check_documents(call, aggregate->pipeline, error);
}
