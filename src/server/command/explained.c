#include "server/command/explained.h"

#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "bson/value.h"
#include "server/command/groups.h"
#include "store/store.h"

truce_status explained_look(struct call *call, struct explained *explained, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    int64_t since_ns = truce__clock_monotonic_ns();
    truce_status status;

    if (!explained->filter)
        explained->filter = &all;
    explained->options.plan_only = !explained->executes;
    status = truce__store_explain(call->store, explained->place, explained->filter,
                                  &explained->options, explained->count, &explained->plan, error);
    explained->took_ms = (truce__clock_monotonic_ns() - since_ns) / 1000000;
    return status;
}

/* ---- what is told of it --------------------------------------------------------------------- */

/* Is it {_id: a value} alone, of which nothing else is asked? */
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

/* The stage, which of a document that is found by its _id has MongoDB's name for that. */
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
    if (!strcmp(truce__field_text(&winning, "stage"), "LIMIT") &&
        truce__value_subdocument(&winning, "inputStage", &limited)) /* to the one that is changed */
        explained_append_stage(&limited, by_id, &input);
    else
        explained_append_stage(&winning, by_id, &input);
    bson_append_document_end(out, &input);
}

void explained_append_planner(const struct explained *explained, bson_t *reply)
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

/* What becomes of what was found: {nCounted}, {nMatched, nWouldModify, nWouldUpsert}, {nWouldDelete}. */
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

void explained_append_stats(const struct explained *explained, bson_t *reply)
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

void explained_append_end(const struct call *call, bson_t *reply)
{
    bson_t command;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "command", &command);
    bson_copy_to_excluding_noinit(&call->request->body, &command, "lsid", "$db", "$clusterTime",
                                  "$readPreference", NULL);
    BSON_APPEND_UTF8(&command, "$db", call->database);
    bson_append_document_end(reply, &command);
    serve_server_info(call->server, reply);
}

truce_status explained_tell(struct call *call, struct explained *explained, bson_t *reply,
                            bson_error_t *error)
{
    truce_status status = explained_look(call, explained, error);

    if (!status) {
        BSON_APPEND_UTF8(reply, "explainVersion", "1");
        explained_append_planner(explained, reply);
        explained_append_stats(explained, reply);
        explained_append_end(call, reply);
    }
    bson_destroy(&explained->plan);
    return status;
}
