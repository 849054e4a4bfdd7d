/* find, getMore, killCursors, aggregate, count, distinct, explain. */
#include "server/groups.h"

#include <string.h>

#include "base/budget.h"
#include "bson/value.h"

#define FIRST_BATCH 101 /* as MongoDB: small questions end with their first answer */

/* ---- batches -------------------------------------------------------------------------------- */

/* {cursor: {id, ns, firstBatch: [...]}} from a new cursor, which is closed at its end, or kept for getMore. */
static truce_status answer_batch(struct call *call, struct held_cursor *held, const char *name,
                                 int64_t most, bool one_batch, bson_t *reply, bson_error_t *error)
{
    bool end = false;
    truce_status status;
    bson_t cursor, batch;
    int64_t id = 0;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "cursor", &cursor);
    BSON_APPEND_ARRAY_BEGIN(&cursor, name, &batch);
    status = held_read(held, most, &batch, &end, error);
    bson_append_array_end(&cursor, &batch);
    BSON_APPEND_UTF8(&cursor, "ns", held->place);
    if (status || end || one_batch) {
        held_close(held);
    } else {
        status = held_keep(call->server->cursors, held, error);
        id = status ? 0 : held->id;
    }
    BSON_APPEND_INT64(&cursor, "id", id);
    bson_append_document_end(reply, &cursor);
    return status;
}

static struct held_cursor *hold(const struct call *call, const char *ns)
{
    struct held_cursor *held = bson_malloc0(sizeof *held);

    held->owner = call->owner;
    held->user = bson_strdup(call->connection->login.tag);
    held->place = bson_strdup(ns);
    return held;
}

static truce_status answer_first(struct call *call, truce_cursor *cursor, const char *ns,
                                 int64_t most, bool one_batch, bson_t *reply, bson_error_t *error)
{
    struct held_cursor *held = hold(call, ns);

    held->cursor = cursor;
    return answer_batch(call, held, "firstBatch", most, one_batch, reply, error);
}

truce_status serve_array(struct call *call, bson_t *array, const char *ns, int64_t most,
                         bson_t *reply, bson_error_t *error)
{
    struct held_cursor *held = hold(call, call_namespace(call, ns));

    held->array = array;
    (void)bson_iter_init(&held->at, array);
    return answer_batch(call, held, "firstBatch", most, false, reply, error);
}

truce_status serve_documents(struct call *call, const bson_t *array, const char *ns, bson_t *reply)
{
    bson_t cursor;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "cursor", &cursor);
    BSON_APPEND_ARRAY(&cursor, "firstBatch", array);
    BSON_APPEND_UTF8(&cursor, "ns", call_namespace(call, ns));
    BSON_APPEND_INT64(&cursor, "id", 0);
    bson_append_document_end(reply, &cursor);
    return TRUCE_OK;
}

/* ---- find ----------------------------------------------------------------------------------- */

struct find {
    const bson_t *filter, *sort, *projection, *hint, *let;
    int64_t skip, limit, batch;
    bool one_batch, disk;
};

static const struct field find_fields[] = {
    {"filter", FIELD_DOCUMENT, offsetof(struct find, filter)},
    {"sort", FIELD_DOCUMENT, offsetof(struct find, sort)},
    {"projection", FIELD_DOCUMENT, offsetof(struct find, projection)},
    {"hint", FIELD_HINT, offsetof(struct find, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct find, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct find, limit)},
    {"batchSize", FIELD_NUMBER, offsetof(struct find, batch)},
    {"singleBatch", FIELD_FLAG, offsetof(struct find, one_batch)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct find, disk)},
    {"noCursorTimeout", FIELD_IGNORED, 0},
    {"allowPartialResults", FIELD_IGNORED, 0},
    {"oplogReplay", FIELD_IGNORED, 0},
    {"awaitData", FIELD_PLAIN, 0},
    {"tailable", FIELD_PLAIN, 0},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct find, let)},
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

static truce_status read_find(struct call *call, const bson_t *command, struct find *find,
                              truce_find_options *options, bson_error_t *error)
{
    truce_status status;

    *find = (struct find){.batch = FIRST_BATCH};
    status = call_fields(call, command, find_fields, true, find, error);
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
    *options = (truce_find_options){.projection = find->projection,
                                    .sort = find->sort,
                                    .hint = find->hint,
                                    .skip = find->skip,
                                    .limit = find->limit,
                                    .deadline_ms = call->deadline_ms,
                                    .allow_disk_use = find->disk};
    return status;
}

truce_status serve_find(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_find_options options;
    char place[PLACE_MAX];
    truce_cursor *cursor;
    struct find find;
    truce_status status = call_place(call, place, error);

    if (!status)
        status = read_find(call, &call->request->body, &find, &options, error);
    if (!status)
        status = truce_find(call->store, place, find.filter, &options, &cursor, error);
    if (status)
        return status;
    return answer_first(call, cursor, call_namespace(call, bson_iter_utf8(&call->value, NULL)),
                        find.batch, find.one_batch, reply, error);
}

/* ---- more of a cursor ----------------------------------------------------------------------- */

struct get_more {
    const char *collection;
    int64_t batch;
};

static const struct field get_more_fields[] = {
    {"collection", FIELD_TEXT, offsetof(struct get_more, collection)},
    {"batchSize", FIELD_NUMBER, offsetof(struct get_more, batch)},
    {NULL, FIELD_IGNORED, 0}};

static truce_status check_user(const struct call *call, int64_t id, bson_error_t *error)
{
    return held_is_of(call->server->cursors, id, call->connection->login.tag)
               ? TRUCE_OK
               : truce__refuse(CODE_UNAUTHORIZED, error,
                               "cursor id %lld was not created by the authenticated user",
                               (long long)id);
}

truce_status serve_get_more(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct get_more more = {.batch = -1};
    struct held_cursor *held;
    int64_t id = BSON_ITER_HOLDS_NUMBER(&call->value) ? bson_iter_as_int64(&call->value) : 0;
    truce_status status = call_own_fields(call, get_more_fields, &more, error);

    if (status)
        return status;
    if (!more.collection)
        return truce__refuse(40414, error, "getMore must name its collection");
    status = check_user(call, id, error);
    if (!status && strncmp(more.collection, "$cmd.", 5) != 0) /* those are of no collection */
        status = access_need_collection(call, call->database, more.collection, ACTION_FIND, error);
    if (status)
        return status;
    held = held_take(call->server->cursors, id, call_namespace(call, more.collection), call->owner,
                     call->connection->login.tag);
    if (!held)
        return truce__refuse(CODE_CURSOR_NOT_FOUND, error,
                             "cursor id %lld not found: it was read to its end, closed, or not "
                             "asked for %d minutes",
                             (long long)id, TRUCE_SERVER_CURSOR_IDLE_MS / 60000);
    status = fail_point_more(call, error);
    if (status) {
        call->follows = held->watch != NULL;
        held_close(held);
        return status;
    }
    if (held->watch)
        return serve_watch_more(call, held, more.batch > 0 ? more.batch : -1, reply, error);
    return answer_batch(call, held, "nextBatch", more.batch > 0 ? more.batch : -1, false, reply,
                        error);
}

struct kill_cursors {
    const bson_t *cursors;
};

static const struct field kill_fields[] = {
    {"cursors", FIELD_ARRAY, offsetof(struct kill_cursors, cursors)}, {NULL, FIELD_IGNORED, 0}};

static void append_ids(const bson_t *ids, const char *name, bson_t *reply)
{
    BSON_APPEND_ARRAY(reply, name, ids);
}

truce_status serve_kill_cursors(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_t killed = BSON_INITIALIZER, missing = BSON_INITIALIZER, none = BSON_INITIALIZER;
    struct kill_cursors kill = {0};
    truce_status status = call_own_fields(call, kill_fields, &kill, error);
    const char *ns = BSON_ITER_HOLDS_UTF8(&call->value)
                         ? call_namespace(call, bson_iter_utf8(&call->value, NULL))
                         : "";
    bson_iter_t at;

    if (!status && !kill.cursors)
        status = truce__refuse(40414, error, "killCursors must have its cursors");
    if (!status && bson_iter_init(&at, kill.cursors))
        while (!status && bson_iter_next(&at))
            status = check_user(call, bson_iter_as_int64(&at), error);
    if (!status && bson_iter_init(&at, kill.cursors))
        while (bson_iter_next(&at)) {
            int64_t id = BSON_ITER_HOLDS_NUMBER(&at) ? bson_iter_as_int64(&at) : 0;
            struct held_cursor *held =
                held_take(call->server->cursors, id, ns, call->owner, call->connection->login.tag);
            bool waits =
                !held && held_kill(call->server->cursors, id, ns, call->connection->login.tag);
            bson_t *to = held || waits ? &killed : &missing;
            char buffer[16];
            const char *key;

            bson_uint32_to_string(bson_count_keys(to), &key, buffer, sizeof buffer);
            BSON_APPEND_INT64(to, key, id);
            if (held)
                held_close(held);
        }
    append_ids(&killed, "cursorsKilled", reply);
    append_ids(&missing, "cursorsNotFound", reply);
    append_ids(&none, "cursorsAlive", reply);
    append_ids(&none, "cursorsUnknown", reply);
    bson_destroy(&killed);
    bson_destroy(&missing);
    return status;
}

/* ---- aggregate ------------------------------------------------------------------------------ */

struct aggregate {
    const bson_t *pipeline, *cursor, *hint, *let;
    bool disk, explain;
};

static const struct field aggregate_fields[] = {
    {"pipeline", FIELD_ARRAY, offsetof(struct aggregate, pipeline)},
    {"cursor", FIELD_DOCUMENT, offsetof(struct aggregate, cursor)},
    {"hint", FIELD_HINT, offsetof(struct aggregate, hint)},
    {"allowDiskUse", FIELD_FLAG, offsetof(struct aggregate, disk)},
    {"explain", FIELD_PLAIN, 0},
    {"bypassDocumentValidation", FIELD_IGNORED, 0},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct aggregate, let)},
    {NULL, FIELD_IGNORED, 0}};

struct batch_size {
    int64_t size;
};

static const struct field cursor_fields[] = {
    {"batchSize", FIELD_NUMBER, offsetof(struct batch_size, size)}, {NULL, FIELD_IGNORED, 0}};

truce_status serve_batch_size(struct call *call, const bson_t *cursor, int64_t *most,
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

static truce_status allow_place(void *arg, const char *database, const char *collection,
                                bool writes, bson_error_t *error)
{
    if (writes)
        truce__budget_watch(NULL); /* others' writes may go with it */
    return access_need_collection(arg, database, collection, writes ? ACTION_WRITE : ACTION_FIND,
                                  error);
}

truce_status serve_aggregate(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_aggregate_options options = {.deadline_ms = call->deadline_ms};
    const struct place_guard guard = {allow_place, call};
    int64_t batch = FIRST_BATCH;
    struct aggregate aggregate = {0};
    bson_t pipeline = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    char place[PLACE_MAX];
    const char *name;
    truce_status status = aggregate_place(call, place, &name, error);

    if (!status)
        status = call_own_fields(call, aggregate_fields, &aggregate, error);
    if (!status)
        status = call_let(call, aggregate.let, error);
    if (!status && (!aggregate.pipeline || !aggregate.cursor))
        status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                               "aggregate must have a pipeline and a cursor");
    if (!status)
        status = serve_batch_size(call, aggregate.cursor, &batch, error);
    if (!status)
        status = serve_sessions_stage(call, &aggregate.pipeline, error);
    if (!status && serve_is_watch(aggregate.pipeline))
        return serve_watch(call, aggregate.pipeline, place, name, batch, reply, error);
    if (!status && serve_is_stage(aggregate.pipeline))
        return serve_stage(call, aggregate.pipeline, reply, error);
    if (!status) {
        bson_destroy(&pipeline);
        status = place_pipeline(call->server->database, call->database, aggregate.pipeline, &guard,
                                &pipeline, error);
    }
    if (!status)
        status = check_documents(call, aggregate.pipeline, error);
    options.hint = aggregate.hint;
    options.allow_disk_use = aggregate.disk;
    if (!status)
        status = truce_aggregate(call->store, place, &pipeline, &options, &cursor, error);
    bson_destroy(&pipeline);
    if (status)
        return status;
    return answer_first(call, cursor, call_namespace(call, name), batch, false, reply, error);
}

/* ---- count, distinct ------------------------------------------------------------------------ */

struct count {
    const bson_t *query, *hint;
    int64_t skip, limit;
};

static const struct field count_fields[] = {
    {"query", FIELD_DOCUMENT, offsetof(struct count, query)},
    {"hint", FIELD_HINT, offsetof(struct count, hint)},
    {"skip", FIELD_NUMBER, offsetof(struct count, skip)},
    {"limit", FIELD_NUMBER, offsetof(struct count, limit)},
    {"fields", FIELD_IGNORED, 0},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static truce_status read_count(struct call *call, const bson_t *command, const bson_t **query,
                               truce_count_options *options, bson_error_t *error)
{
    struct count count = {0};
    truce_status status = call_fields(call, command, count_fields, true, &count, error);

    if (!status)
        status = check_not_negative(count.skip, "skip", error);
    *query = count.query;
    *options = (truce_count_options){.hint = count.hint,
                                     .skip = count.skip,
                                     .limit = count.limit,
                                     .deadline_ms = call->deadline_ms};
    return status;
}

truce_status serve_count(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_count_options options;
    const bson_t *query = NULL;
    char place[PLACE_MAX];
    int64_t n = 0;
    truce_status status = call_place(call, place, error);

    if (!status)
        status = read_count(call, &call->request->body, &query, &options, error);
    if (!status)
        status = truce_count(call->store, place, query, &options, &n, error);
    if (n <= INT32_MAX)
        BSON_APPEND_INT32(reply, "n", (int32_t)n);
    else
        BSON_APPEND_INT64(reply, "n", n);
    return status;
}

struct distinct {
    const char *key;
    const bson_t *query;
};

static const struct field distinct_fields[] = {
    {"key", FIELD_TEXT, offsetof(struct distinct, key)},
    {"query", FIELD_DOCUMENT, offsetof(struct distinct, query)},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

truce_status serve_distinct(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct distinct distinct = {0};
    char place[PLACE_MAX];
    int64_t before;
    bson_t values;
    truce_status status = call_place(call, place, error);

    if (!status)
        status = call_own_fields(call, distinct_fields, &distinct, error);
    if (!status && !distinct.key)
        status = truce__refuse(40414, error, "distinct must have a key");
    if (status)
        return status;
    before = truce_deadline_begin(call->deadline_ms);
    status = truce_distinct(call->store, place, distinct.key, distinct.query, &values, error);
    truce_deadline_end(before);
    BSON_APPEND_ARRAY(reply, "values", &values);
    bson_destroy(&values);
    return status;
}

/* ---- explain -------------------------------------------------------------------------------- */

truce_status serve_explain(struct call *call, bson_t *reply, bson_error_t *error)
{
    truce_find_options find_options;
    truce_count_options count_options;
    const bson_t *command, *query;
    const char *verb = "", *name;
    char place[PLACE_MAX];
    struct find find;
    bson_iter_t inner;
    bson_t plan;
    truce_status status = TRUCE_OK;

    if (!BSON_ITER_HOLDS_DOCUMENT(&call->value) || !bson_iter_recurse(&call->value, &inner) ||
        !bson_iter_next(&inner) || !BSON_ITER_HOLDS_UTF8(&inner))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "explain must have a command");
    command = call_view_of(call, &call->value);
    verb = bson_iter_key(&inner);
    name = bson_iter_utf8(&inner, NULL);
    status = call_place_of(call, name, place, error);
    if (!status && !strcmp(verb, "find")) {
        status = read_find(call, command, &find, &find_options, error);
        if (!status) {
            status = truce_explain(call->store, place, find.filter, &find_options, &plan, error);
            bson_concat(reply, &plan);
            bson_destroy(&plan);
        }
    } else if (!status && !strcmp(verb, "count")) {
        status = read_count(call, command, &query, &count_options, error);
        if (!status) {
            status = truce_explain_count(call->store, place, query, &count_options, &plan, error);
            bson_concat(reply, &plan);
            bson_destroy(&plan);
        }
    } else if (!status) {
        status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                               "only find and count can be explained, not '%.80s'", verb);
    }
    return status;
}
