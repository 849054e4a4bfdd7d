/*
 * explain: returns the plan of a command, and what it would examine. It never writes.
 *
 *     {explain: {find | count | distinct | aggregate | update | delete | findAndModify: ...},
 *      verbosity: "queryPlanner" | "executionStats" | "allPlansExecution"}   (default: the last)
 *
 *     {explainVersion: "1",
 *      queryPlanner: {namespace, parsedQuery, indexFilterSet,
 *                     winningPlan: {stage, inputStage: {...}}, rejectedPlans: []},
 *      executionStats: {executionSuccess, nReturned, executionTimeMillis, totalKeysExamined,
 *                       totalDocsExamined,
 *                       executionStages: {stage, nReturned, nMatched, nWouldModify ...}},
 *      stages: [{$cursor: {queryPlanner, executionStats}}, {$group: ...} ...], of longer pipelines
 *      command, serverInfo}
 *
 * The plan is that of the read which the command begins with (truce_explain): for a write, the
 * read of the documents that it would change; for a pipeline, its first stages. With
 * executionStats, the read runs and is counted. An update is applied to the documents that were
 * read, to count what it would modify.
 *
 * Invariants:
 *  1. Nothing is written. The caller needs the access that the explained command needs.
 *  2. Numbers are counted, not estimated. Numbers that are not counted are left out.
 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/random.h"
#include "bson/refuse_value.h"
#include "bson/value.h"
#include "query/aggregate/aggregate.h"
#include "query/input_check.h"
#include "query/update/update.h"
#include "server/call/call.h"
#include "server/command/collection_uuid.h"
#include "server/command/handlers.h"
#include "server/command/read_request.h"
#include "server/command/write_statement.h"
#include "store/store.h"

/* A read, and the change that the command makes to the documents that it finds. */
struct explained {
    /* The collection, as the store and as the client know it. */
    const char *stored_name, *ns;
    const bson_t *filter;
    truce_find_options options;
    bool count;
    /* The stage that writes, "UPDATE" or "DELETE", or NULL if the command only reads. */
    const char *writes;
    /* The client requested executionStats. */
    bool executes;
    /* The command is findAndModify, which returns a document. */
    bool returns;
    bool upserts;
    /* The number of documents that an update would change, or -1 if the command is not an
     * update. */
    int64_t modified;
    /* The store's plan. */
    bson_t plan;
    int64_t took_ms;
};

/* ---- the read -------------------------------------------------------------------------------- */

/* Asks the store for the plan of the read. With `executes`, the read runs. The caller destroys
 * explained->plan, also after a failure. */
static truce_status explained_read_plan(struct call *call, struct explained *explained,
                                        bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    int64_t since_ns = truce__clock_monotonic_ns();
    truce_status status;

    if (!explained->filter)
        explained->filter = &all;
    explained->options.plan_only = !explained->executes;
    status = truce__store_explain(call->store, explained->stored_name, explained->filter,
                                  &explained->options, explained->count, &explained->plan, error);
    explained->took_ms = (truce__clock_monotonic_ns() - since_ns) / 1000000;
    return status;
}

/* ---- the reply ------------------------------------------------------------------------------ */

/* Returns whether the filter is {_id: VALUE}, without a sort or other options that change the
 * plan. */
static bool is_by_id(const bson_t *filter, const truce_find_options *options)
{
    bson_iter_t at, inner;

    if (options->hint || options->skip || options->return_key || options->show_record_id)
        return false;
    if (bson_count_keys(filter) != 1 || !bson_iter_init_find(&at, filter, "_id") ||
        BSON_ITER_HOLDS_REGEX(&at))
        return false;
    return !BSON_ITER_HOLDS_DOCUMENT(&at) || !bson_iter_recurse(&at, &inner) ||
           !bson_iter_next(&inner) || bson_iter_key(&inner)[0] != '$';
}

/* Appends a stage. MongoDB has a name of its own for a read of one document by _id. */
static void explained_append_stage(const bson_t *stage, bool by_id, bson_t *out)
{
    const char *name = truce__field_text(stage, "stage");
    bson_t input, copy;
    bool has_input = truce__value_subdocument(stage, "inputStage", &input);
    bson_iter_t at;

    if (by_id && has_input && !strcmp(name, "FETCH") &&
        !strcmp(truce__field_text(&input, "indexName"), "_id_")) {
        BSON_APPEND_UTF8(out, "stage", "IDHACK");
        return;
    }
    for (bool more = bson_iter_init(&at, stage) && bson_iter_next(&at); more;
         more = bson_iter_next(&at))
        if (strcmp(bson_iter_key(&at), "inputStage") != 0)
            bson_append_iter(out, NULL, -1, &at);
    if (!has_input)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(out, "inputStage", &copy);
    explained_append_stage(&input, by_id, &copy);
    bson_append_document_end(out, &copy);
}

/* Appends the winning plan: the store's plan of the read, under the stage that writes, if any. */
static void explained_append_winning(const struct explained *explained, bson_t *out)
{
    bson_t planner, winning, limited, input;
    bool by_id = is_by_id(explained->filter, &explained->options);

    (void)truce__value_subdocument(&explained->plan, "queryPlanner", &planner);
    (void)truce__value_subdocument(&planner, "winningPlan", &winning);
    if (!explained->writes) {
        explained_append_stage(&winning, by_id, out);
        return;
    }
    BSON_APPEND_UTF8(out, "stage", explained->writes);
    BSON_APPEND_DOCUMENT_BEGIN(out, "inputStage", &input);
    /* The LIMIT is not reported: findAndModify always changes one document. */
    if (!strcmp(truce__field_text(&winning, "stage"), "LIMIT") &&
        truce__value_subdocument(&winning, "inputStage", &limited))
        explained_append_stage(&limited, by_id, &input);
    else
        explained_append_stage(&winning, by_id, &input);
    bson_append_document_end(out, &input);
}

/* Appends {queryPlanner}. */
static void explained_append_planner(const struct explained *explained, bson_t *reply)
{
    bson_t planner, winning;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "queryPlanner", &planner);
    BCON_APPEND(&planner, "namespace", BCON_UTF8(explained->ns), "parsedQuery",
                BCON_DOCUMENT(explained->filter), "indexFilterSet", BCON_BOOL(false));
    BSON_APPEND_DOCUMENT_BEGIN(&planner, "winningPlan", &winning);
    explained_append_winning(explained, &winning);
    bson_append_document_end(&planner, &winning);
    BCON_APPEND(&planner, "rejectedPlans", "[", "]");
    bson_append_document_end(reply, &planner);
}

/* Appends the counts of the changes that the command would make: {nCounted}, {nMatched,
 * nWouldModify, nWouldUpsert}, or {nWouldDelete}. */
static void append_effect(const struct explained *explained, const bson_t *stats, int64_t found,
                          bson_t *stages)
{
    bson_t counted;

    if (explained->count && truce__value_subdocument(stats, "executionStages", &counted))
        BSON_APPEND_INT64(stages, "nCounted", truce__field_number(&counted, "nCounted"));
    else if (explained->modified >= 0)
        BCON_APPEND(stages, "nMatched", BCON_INT64(found), "nWouldModify",
                    BCON_INT64(explained->modified), "nWouldUpsert",
                    BCON_INT64(explained->upserts && !found));
    else if (explained->writes)
        BSON_APPEND_INT64(stages, "nWouldDelete", found);
}

/* Appends {executionStats} if the command was executed. */
static void explained_append_stats(const struct explained *explained, bson_t *reply)
{
    bson_t stats, out, stages;
    int64_t found, returned;

    if (!truce__value_subdocument(&explained->plan, "executionStats", &stats))
        return;
    found = truce__field_number(&stats, "nReturned");
    returned = explained->writes && !explained->returns ? 0 : found;
    BSON_APPEND_DOCUMENT_BEGIN(reply, "executionStats", &out);
    BCON_APPEND(&out, "executionSuccess", BCON_BOOL(true), "nReturned", BCON_INT64(returned),
                "executionTimeMillis", BCON_INT64(explained->took_ms), "totalKeysExamined",
                BCON_INT64(truce__field_number(&stats, "totalKeysExamined")), "totalDocsExamined",
                BCON_INT64(truce__field_number(&stats, "totalDocsExamined")));
    BSON_APPEND_DOCUMENT_BEGIN(&out, "executionStages", &stages);
    explained_append_winning(explained, &stages);
    BSON_APPEND_INT64(&stages, "nReturned", returned);
    append_effect(explained, &stats, found, &stages);
    bson_append_document_end(&out, &stages);
    bson_append_document_end(reply, &out);
}

/* Appends serverInfo: {host, port, version, gitVersion}. */
static void explain_append_server(const struct server *server, bson_t *reply)
{
    char host[256] = "";

    (void)gethostname(host, sizeof host - 1);
    BCON_APPEND(reply, "serverInfo", "{", "host", BCON_UTF8(host), "port", BCON_INT32(server->port),
                "version", BCON_UTF8(SPOKEN_VERSION), "gitVersion",
                BCON_UTF8("truce-" TRUCE_VERSION), "}");
}

/* Appends {command, serverInfo}, without the fields of the message (lsid, $db, ...). */
static void explained_append_end(const struct call *call, bson_t *reply)
{
    bson_t command;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "command", &command);
    bson_copy_to_excluding_noinit(&call->request->body, &command, "lsid", "$db", "$clusterTime",
                                  "$readPreference", NULL);
    BSON_APPEND_UTF8(&command, "$db", call->database);
    bson_append_document_end(reply, &command);
    explain_append_server(call->server, reply);
}

/* Appends the whole reply. */
static truce_status explained_report(struct call *call, struct explained *explained, bson_t *reply,
                                     bson_error_t *error)
{
    truce_status status = explained_read_plan(call, explained, error);

    if (!status) {
        BSON_APPEND_UTF8(reply, "explainVersion", "1");
        explained_append_planner(explained, reply);
        explained_append_stats(explained, reply);
        explained_append_end(call, reply);
    }
    bson_destroy(&explained->plan);
    return status;
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static void append_filter(const bson_t *filter, uint32_t *count, bson_t *stages)
{
    bson_t *stage = BCON_NEW("$match", BCON_DOCUMENT(filter));

    truce__value_append_element(stages, count, truce__value_document(stage));
    bson_destroy(stage);
}

static void append_given(const bson_t *pipeline, uint32_t from, uint32_t to, uint32_t *count,
                         bson_t *stages)
{
    struct fields fields = truce__fields(truce__value_document(pipeline));

    for (uint32_t number = 0; truce__fields_next(&fields); number++)
        if (number >= from && number <= to)
            truce__value_append_element(stages, count, fields.value);
}

/* Appends the stages of the pipeline from number `taken` on, as the client wrote them. */
static void append_stages(const struct pipeline *compiled, uint32_t taken, const bson_t *shown,
                          bson_t *stages)
{
    uint32_t count = 1, next = 0;
    struct pipeline_part part;

    for (; truce__pipeline_part(compiled, taken, &part); taken++)
        if (part.filter) {
            append_filter(part.filter, &count, stages);
        } else {
            append_given(shown, next > part.from ? next : part.from, part.to, &count, stages);
            next = part.to + 1;
        }
}

static bool explain_plan_sorts(const bson_t *plan)
{
    bson_t planner, winning;

    return truce__value_subdocument(plan, "queryPlanner", &planner) &&
           truce__value_subdocument(&planner, "winningPlan", &winning) &&
           !strcmp(truce__field_text(&winning, "stage"), "SORT");
}

/* Appends the reply for a pipeline whose first `taken` stages run in the store. */
static void append_pipeline(const struct call *call, const struct explained *explained,
                            const struct pipeline *compiled, uint32_t taken, const bson_t *shown,
                            bson_t *reply)
{
    bson_t stages, first, cursor;
    struct pipeline_part more;

    BSON_APPEND_UTF8(reply, "explainVersion", "1");
    /* All stages run in the store, so the plan is that of a find. */
    if (!truce__pipeline_part(compiled, taken, &more)) {
        explained_append_planner(explained, reply);
        explained_append_stats(explained, reply);
    } else {
        BSON_APPEND_ARRAY_BEGIN(reply, "stages", &stages);
        BSON_APPEND_DOCUMENT_BEGIN(&stages, "0", &first);
        BSON_APPEND_DOCUMENT_BEGIN(&first, "$cursor", &cursor);
        explained_append_planner(explained, &cursor);
        explained_append_stats(explained, &cursor);
        bson_append_document_end(&first, &cursor);
        bson_append_document_end(&stages, &first);
        append_stages(compiled, taken, shown, &stages);
        bson_append_array_end(reply, &stages);
    }
    explained_append_end(call, reply);
}

/* Reads the plan for the head of the pipeline, which the store runs. A $sort without a suitable
 * index stays with the pipeline. */
static truce_status explained_read_head(struct call *call, const struct pipeline_head *head,
                                        struct explained *explained, bson_error_t *error)
{
    truce_status status;

    explained->filter = head->filter;
    explained->options.sort = head->sort;
    explained->options.limit = head->limit;
    status = explained_read_plan(call, explained, error);
    if (!status && !head->same_sort && explain_plan_sorts(&explained->plan)) {
        bson_destroy(&explained->plan);
        explained->options.sort = NULL;
        status = explained_read_plan(call, explained, error);
    }
    return status;
}

/* Explains an aggregate: the plan of its head, and the stages. `pipeline` names stored names
 * instead of collections. */
static truce_status explain_stages(struct call *call, struct explained *explained,
                                   const struct aggregate_request *aggregate,
                                   const bson_t *pipeline, bson_t *reply, bson_error_t *error)
{
    struct pipeline *compiled = NULL;
    struct pipeline_head head;
    truce_status status = truce__pipeline_new(pipeline, &compiled, error);

    if (status)
        return status;
    truce__pipeline_head(compiled, &head);
    explained->stored_name = aggregate->stored_name;
    explained->ns = call_namespace(call, aggregate->name);
    explained->options = (truce_find_options){.hint = aggregate->hint,
                                              .deadline_ms = aggregate->options.deadline_ms,
                                              .allow_disk_use = aggregate->disk};
    status = explained_read_head(call, &head, explained, error);
    if (!status)
        append_pipeline(call, explained, compiled, head.stages_taken, aggregate->shown, reply);
    bson_destroy(&explained->plan);
    truce__pipeline_free(compiled);
    return status;
}

static truce_status explain_pipeline(struct call *call, struct explained *explained,
                                     struct aggregate_request *aggregate, bson_t *reply,
                                     bson_error_t *error)
{
    const bson_t *pipeline = NULL;
    truce_status status;

    if (serve_is_change_stream(aggregate->pipeline) || serve_is_stage(aggregate->pipeline))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "explain does not support a pipeline that reads no collection");
    status = request_pipeline(call, aggregate, &pipeline, error);
    return status ? status : explain_stages(call, explained, aggregate, pipeline, reply, error);
}

static truce_status explain_aggregate(struct call *call, struct explained *explained, bson_t *reply,
                                      bson_error_t *error)
{
    struct aggregate_request aggregate;
    truce_status status = request_read_aggregate(call, &aggregate, error);

    return status ? status : explain_pipeline(call, explained, &aggregate, reply, error);
}

truce_status serve_explain_aggregate(struct call *call, struct aggregate_request *aggregate,
                                     bson_t *reply, bson_error_t *error)
{
    struct explained explained = {.modified = -1};

    return explain_pipeline(call, &explained, aggregate, reply, error);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static truce_status explain_find(struct call *call, struct explained *explained, bson_t *reply,
                                 bson_error_t *error)
{
    struct find_request find;
    truce_status status = request_read_find(call, &find, error);

    explained->filter = find.filter;
    explained->options = find.options;
    return status ? status : explained_report(call, explained, reply, error);
}

static truce_status explain_count(struct call *call, struct explained *explained, bson_t *reply,
                                  bson_error_t *error)
{
    struct count_request count;
    truce_status status = request_read_count(call, &count, error);

    explained->count = true;
    explained->filter = count.query;
    explained->options = truce__count_as_find(&count.options);
    return status ? status : explained_report(call, explained, reply, error);
}

static truce_status explain_distinct(struct call *call, struct explained *explained, bson_t *reply,
                                     bson_error_t *error)
{
    struct distinct_request distinct;
    truce_status status = request_read_distinct(call, &distinct, error);

    explained->filter = distinct.query;
    explained->options.hint = distinct.hint;
    return status ? status : explained_report(call, explained, reply, error);
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* Applies the update to one document that it would change. */
static truce_status try_update(const struct update *update, const struct match *match,
                               const bson_t *document, struct query_context *context,
                               int64_t *modified, bson_error_t *error)
{
    struct match_result found;
    struct update_result result = {0};
    bson_t after;
    truce_status status =
        truce__match_test(match, truce__value_document(document), context, &found, error);

    if (status)
        return status;
    status = truce__update_apply(update, document, &found, context, &after, &result, error);
    *modified += !status && result.modified;
    bson_destroy(&after);
    return status;
}

/* Counts the documents that the update would change: it applies the update and discards the result.
 * Without executionStats, only compiles the update. */
static truce_status try_updates(struct call *call, struct explained *explained,
                                const truce_write *write, bson_error_t *error)
{
    const struct update_options options = {.pipeline = write->options.pipeline,
                                           .multi = write->options.multi,
                                           .array_filters = write->options.array_filters,
                                           .borrows = true};
    struct random random;
    struct arena arena = {0};
    struct query_context context = {
        .now_ms = truce__clock_wall_ms(), .random = &random, .arena = &arena};
    struct update *update = NULL;
    struct match *match = NULL;
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce__update_new(write->document, &options, &update, error);

    truce__random_seed(&random, truce__random_entropy());
    explained->modified = 0;
    if (!status)
        status = truce__match_new(explained->filter, &match, error);
    if (!status && explained->executes)
        status = truce_find(call->store, explained->stored_name, explained->filter,
                            &explained->options, &cursor, error);
    if (cursor)
        do {
            status = truce_cursor_next(cursor, &document, error);
            if (!status && document)
                status = try_update(update, match, document, &context, &explained->modified, error);
            truce__arena_reset(&arena);
        } while (!status && document);
    truce_cursor_close(cursor);
    truce__arena_release(&arena);
    truce__update_free(update);
    truce__match_free(match);
    return status;
}

/* Explains a write as the read of the documents that it would change. */
static truce_status explain_write(struct call *call, struct explained *explained,
                                  const truce_write *write, bson_t *reply, bson_error_t *error)
{
    truce_status status =
        truce__check_update_sort(write->options.sort, write->options.multi, error);

    explained->filter = write->filter;
    explained->writes = write->kind == TRUCE_WRITE_UPDATE ? "UPDATE" : "DELETE";
    explained->upserts = write->options.upsert;
    explained->options.sort = write->options.sort;
    explained->options.hint = write->options.hint;
    explained->options.limit = write->options.multi ? 0 : 1;
    if (!status && write->kind == TRUCE_WRITE_UPDATE)
        status = try_updates(call, explained, write, error);
    return status ? status : explained_report(call, explained, reply, error);
}

static truce_status explain_statement(struct call *call, struct explained *explained, bson_t *reply,
                                      bson_error_t *error)
{
    struct write_statements statements;
    truce_status status = write_read(call, &statements, error);

    if (!status && statements.count != 1)
        status =
            truce__refuse(CODE_INVALID_LENGTH, error, "explained write batches must be of size 1");
    if (!status)
        status = explain_write(call, explained, statements.writes, reply, error);
    bson_free(statements.writes);
    return status;
}

/* Explains a findAndModify as an update or a delete of one document. */
static truce_status explain_modify(struct call *call, struct explained *explained, bson_t *reply,
                                   bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    struct write_modify modify;
    truce_write write;
    truce_status status = write_read_modify(call, &modify, error);

    if (status)
        return status;
    write = (truce_write){.kind = modify.remove ? TRUCE_WRITE_REMOVE : TRUCE_WRITE_UPDATE,
                          .filter = modify.query ? modify.query : &all,
                          .document = modify.update.document,
                          .options = {.upsert = modify.upsert,
                                      .pipeline = modify.update.is_array,
                                      .array_filters = modify.array_filters,
                                      .sort = modify.sort,
                                      .hint = modify.hint}};
    explained->returns = true;
    return explain_write(call, explained, &write, reply, error);
}

typedef truce_status explain_command(struct call *call, struct explained *explained, bson_t *reply,
                                     bson_error_t *error);

/* ---- the command ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    explain_command *explain;
} explainable[] = {{"find", explain_find},
                   {"count", explain_count},
                   {"distinct", explain_distinct},
                   {"aggregate", explain_aggregate},
                   {"update", explain_statement},
                   {"delete", explain_statement},
                   {"findAndModify", explain_modify},
                   {"findandmodify", explain_modify}};

struct explain {
    const char *verbosity;
};

static const struct field explain_fields[] = {
    {"verbosity", FIELD_TEXT, offsetof(struct explain, verbosity)}, {NULL, FIELD_IGNORED, 0}};

static truce_status read_verbosity(struct call *call, bool *executes, bson_error_t *error)
{
    struct explain explain = {.verbosity = "allPlansExecution"};
    truce_status status = call_own_fields(call, explain_fields, &explain, error);

    *executes = strcmp(explain.verbosity, "queryPlanner") != 0;
    if (!status && *executes && strcmp(explain.verbosity, "executionStats") != 0 &&
        strcmp(explain.verbosity, "allPlansExecution") != 0)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "verbosity string must be one of {'queryPlanner', 'executionStats', "
                               "'allPlansExecution'}");
    return status;
}

static explain_command *explainer_of(const char *name)
{
    for (size_t i = 0; i < sizeof explainable / sizeof *explainable; i++)
        if (!strcmp(explainable[i].name, name))
            return explainable[i].explain;
    return NULL;
}

/* Replaces the call's command by the command inside explain. */
static truce_status explain_inner(struct call *call, const bson_iter_t *inner, bool executes,
                                  bson_t *reply, bson_error_t *error)
{
    struct explained explained = {
        .executes = executes, .modified = -1, .options.deadline_ms = call->deadline_ms};
    const struct command *own = call->command;
    const struct wire_request *request = call->request;
    struct wire_request within = *request;
    bson_iter_t value = call->value;
    explain_command *explain = explainer_of(bson_iter_key(inner));
    /* Stays empty for a write, because view_guard has refused writes to views. */
    struct view_source source = {0};
    struct aggregate_request aggregate;
    char stored_name[STORED_NAME_MAX];
    truce_status status = TRUCE_OK;

    if (!explain)
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error, "'%.80s' cannot be explained",
                             bson_iter_key(inner));
    within.body = *call_view_of(call, &call->value);
    within.count = 0;
    call->request = &within;
    call->command = call->server->commands->find(bson_iter_key(inner));
    call->value = *inner;
    if (explain != explain_aggregate) {
        status = call_stored_name(call, stored_name, error);
        explained.stored_name = stored_name;
        explained.ns = status ? "" : call_namespace(call, bson_iter_utf8(inner, NULL));
        if (!status)
            status = view_source(call, call->database, bson_iter_utf8(inner, NULL), &source, error);
    }
    if (!status)
        status = same_collection_check(call, error);
    if (!status && source.is_view)
        status = request_of_view(call, &source, &aggregate, error);
    if (!status)
        status = source.is_view ? explain_stages(call, &explained, &aggregate, aggregate.pipeline,
                                                 reply, error)
                                : explain(call, &explained, reply, error);
    call->request = request;
    call->command = own;
    call->value = value;
    return status;
}

/* Checks that the inner command uses the database of the call, named or not. */
static truce_status explain_check_database(const struct call *call, bson_error_t *error)
{
    bson_iter_t at;

    if (!bson_iter_recurse(&call->value, &at) || !bson_iter_find(&at, "$db"))
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_UTF8(&at))
        return truce__refuse_value(13111, truce__value_of_iter(&at), error,
                                   "the $db of a command within explain must be a string");
    if (strcmp(bson_iter_utf8(&at, NULL), call->database) != 0)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "Mismatched $db in explain command. Expected %s but got %.80s",
                             call->database, bson_iter_utf8(&at, NULL));
    return TRUCE_OK;
}

truce_status serve_explain(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_iter_t inner;
    bool executes;
    truce_status status = read_verbosity(call, &executes, error);

    if (status)
        return status;
    if (!BSON_ITER_HOLDS_DOCUMENT(&call->value) || !bson_iter_recurse(&call->value, &inner) ||
        !bson_iter_next(&inner))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "explain needs a command, for example {explain: {find: NAME}}");
    status = explain_check_database(call, error);
    return status ? status : explain_inner(call, &inner, executes, reply, error);
}
