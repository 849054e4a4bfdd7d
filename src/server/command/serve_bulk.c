/*
 * bulkWrite of MongoDB 8.0: writes of any kind in any collections, in one message.
 *
 *     {bulkWrite: 1, $db: "admin",
 *      nsInfo: [{ns: "school.students"}, {ns: "school.marks"}],
 *      ops: [{insert: 0, document},                              the number is a position in nsInfo
 *            {update: 1, filter, updateMods, multi, upsert, arrayFilters, sort, hint},
 *            {delete: 1, filter, multi, hint}],
 *      ordered, errorsOnly, bypassDocumentValidation, let, cursor: {batchSize}}
 *
 *     {cursor: {id, ns: "admin.$cmd.bulkWrite",
 *               firstBatch: [{ok: 1, idx, n, nModified, upserted: {_id}},
 *                            {ok: 0, idx, n: 0, code, errmsg ...}]},
 *      nErrors, nInserted, nMatched, nModified, nUpserted, nDeleted, retriedStmtIds}
 *
 * Invariants:
 *  1. Nothing is written before the access to each namespace of nsInfo was checked and each
 *     statement was read.
 *  2. The results of the statements are sent in batches of at most 16 MB. Beyond a megabyte of
 *     errors, only codes are sent. The results are in memory until they are read; their total
 *     size is limited before anything is written.
 *  3. All statements are one bulk of the store. Retries and transactions work as for insert,
 *     update, and delete (write_statement.h).
 *  4. A statement on a view has no collection to write to; the store refuses this statement alone.
 */
#include "server/command/write_statement.h"

#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "server/command/collection_uuid.h"
#include "server/command/cursor_reply.h"
#include "server/command/handlers.h"
#include "server/command/read_request.h"

/* The options of bulkWrite. */
struct bulk {
    const bson_t *let, *cursor;
    bool ordered, errors_only, unvalidated, empty_stay;
};

static const struct field bulk_fields[] = {
    {"ops", FIELD_IGNORED, 0},
    {"nsInfo", FIELD_IGNORED, 0},
    {"ordered", FIELD_FLAG, offsetof(struct bulk, ordered)},
    {"errorsOnly", FIELD_FLAG, offsetof(struct bulk, errors_only)},
    {"bypassDocumentValidation", FIELD_FLAG, offsetof(struct bulk, unvalidated)},
    {"bypassEmptyTsReplacement", FIELD_FLAG, offsetof(struct bulk, empty_stay), true},
    {"let", FIELD_DOCUMENT, offsetof(struct bulk, let)},
    {"cursor", FIELD_DOCUMENT, offsetof(struct bulk, cursor)},
    {NULL, FIELD_IGNORED, 0}};

/* ---- nsInfo ---------------------------------------------------------------------------------- */

/* The stored names of nsInfo, in the arena. */
struct target {
    /* The collection's name in the store, or NULL for a view and for a collection with another
     * UUID. */
    const char *stored_name;
    /* The error of each statement on it if `stored_name` is NULL. */
    bson_error_t refusal;
    const struct uuid_mismatch *mismatch;
};

struct targets {
    struct target *all;
    uint32_t count;
};

struct target_fields {
    const char *ns;
    const bson_value_t *uuid;
};

static const struct field target_fields[] = {
    {"ns", FIELD_TEXT, offsetof(struct target_fields, ns)},
    {"collectionUUID", FIELD_VALUE, offsetof(struct target_fields, uuid)},
    {"encryptionInformation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

/* Reads a namespace. As in MongoDB, if it is a view or a collection with another UUID, each
 * statement on it fails, and not the command. */
static truce_status read_target(struct call *call, const bson_t *document, struct target *target,
                                bson_error_t *error)
{
    char found[STORED_NAME_MAX];
    struct target_fields given = {0};
    truce_status status = truce__message_check(document, error);

    if (!status)
        status = call_fields(call, document, target_fields, false, &given, error);
    if (!status && !given.ns)
        status = truce__refuse(40414, error, "an element of nsInfo needs ns, DATABASE.COLLECTION");
    if (!status)
        status = serve_stored_name_of(call, given.ns, ACTION_WRITE | access_more_actions(call),
                                      found, error);
    *target = (struct target){0};
    if (!status || error->code == CODE_COMMAND_NOT_SUPPORTED_ON_VIEW) {
        truce_status same =
            given.uuid ? same_collection_of(call, given.ns, given.uuid, error) : TRUCE_OK;

        status = same ? same : status;
    }
    if (!status)
        target->stored_name = truce__arena_copy(&call->arena, found, strlen(found) + 1);
    if (!status || (error->code != CODE_COMMAND_NOT_SUPPORTED_ON_VIEW &&
                    error->code != CODE_COLLECTION_UUID_MISMATCH))
        return status;
    target->refusal = *error;
    target->mismatch = error->code == CODE_COLLECTION_UUID_MISMATCH ? call->mismatch : NULL;
    return TRUCE_OK;
}

static truce_status read_targets(struct call *call, struct targets *targets, bson_error_t *error)
{
    struct documents infos;
    truce_status status = call_documents(call, "nsInfo", &infos, error);

    if (status)
        return status;
    targets->all = truce__arena_take(&call->arena, infos.count * sizeof *targets->all);
    targets->count = infos.count;
    for (uint32_t i = 0; i < infos.count && !status; i++)
        status = read_target(call, infos.all[i], &targets->all[i], error);
    return status;
}

/* ---- ops ------------------------------------------------------------------------------------- */

struct operation_fields {
    int64_t target;
    const bson_t *document;
    /* Also used for a delete, which has a filter, multi, and a hint. */
    struct write_update update;
};

#define OPERATION(field) offsetof(struct operation_fields, field)

static const struct field insert_fields[] = {{"insert", FIELD_WHOLE, OPERATION(target)},
                                             {"document", FIELD_DOCUMENT, OPERATION(document)},
                                             {NULL, FIELD_IGNORED, 0}};

static const struct field update_fields[] = {
    {"update", FIELD_WHOLE, OPERATION(target)},
    {"filter", FIELD_DOCUMENT, OPERATION(update.filter)},
    {"updateMods", FIELD_EITHER, OPERATION(update.update)},
    {"multi", FIELD_FLAG, OPERATION(update.multi)},
    {"upsert", FIELD_FLAG, OPERATION(update.upsert)},
    {"arrayFilters", FIELD_ARRAY, OPERATION(update.array_filters)},
    {"hint", FIELD_HINT, OPERATION(update.hint)},
    {"collation", FIELD_PLAIN, 0},
    {"constants", FIELD_PLAIN, 0},
    {"sort", FIELD_DOCUMENT, OPERATION(update.sort)},
    {"upsertSupplied", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static const struct field delete_fields[] = {{"delete", FIELD_WHOLE, OPERATION(target)},
                                             {"filter", FIELD_DOCUMENT, OPERATION(update.filter)},
                                             {"multi", FIELD_FLAG, OPERATION(update.multi)},
                                             {"hint", FIELD_HINT, OPERATION(update.hint)},
                                             {"collation", FIELD_PLAIN, 0},
                                             {NULL, FIELD_IGNORED, 0}};

/* Fills a write, whose kind is set, from the fields of an operation. Fails with 40414 if a field is
 * missing. */
static truce_status bulk_fill(const struct operation_fields *given, truce_write *write,
                              bson_error_t *error)
{
    switch (write->kind) {
    case TRUCE_WRITE_UPDATE:
        return write_of_update(&given->update, "filter and updateMods", write, error);
    case TRUCE_WRITE_REMOVE:
        if (!given->update.filter)
            return truce__refuse(40414, error, "a delete of bulkWrite needs a filter");
        write->filter = given->update.filter;
        write->options =
            (truce_write_options){.multi = given->update.multi, .hint = given->update.hint};
        return TRUCE_OK;
    default:
        if (!given->document)
            return truce__refuse(40414, error, "an insert of bulkWrite needs a document");
        write->document = given->document;
        return TRUCE_OK;
    }
}

/* Reads one operation of a bulkWrite. The first field names the kind of the operation. */
static truce_status bulk_read_operation(struct call *call, const bson_t *statement,
                                        const struct targets *targets, const struct target **target,
                                        truce_write *write, bson_error_t *error)
{
    static const struct field *const tables[] = {[TRUCE_WRITE_INSERT] = insert_fields,
                                                 [TRUCE_WRITE_UPDATE] = update_fields,
                                                 [TRUCE_WRITE_REMOVE] = delete_fields};
    struct operation_fields given = {.target = -1};
    truce_status status = truce__message_check(statement, error);
    bson_iter_t at;

    if (status)
        return status;
    if (!bson_iter_init(&at, statement) || !bson_iter_next(&at))
        return truce__refuse(
            CODE_FAILED_TO_PARSE, error,
            "an operation of bulkWrite is empty: expected insert, update, or delete");
    for (truce_write_kind kind = TRUCE_WRITE_INSERT; kind <= TRUCE_WRITE_REMOVE; kind++)
        if (!strcmp(bson_iter_key(&at), tables[kind]->name))
            write->kind = kind;
    if (!write->kind)
        return truce__refuse(40415, error,
                             "an operation of bulkWrite must begin with insert, update, or delete, "
                             "not with '%.80s'",
                             bson_iter_key(&at));
    status = call_fields(call, statement, tables[write->kind], false, &given, error);
    if (!status && (given.target < 0 || given.target >= targets->count))
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "an operation of bulkWrite names element %lld of nsInfo, which has "
                               "%u",
                               (long long)given.target, targets->count);
    if (status)
        return status;
    *target = &targets->all[given.target];
    write->collection = (*target)->stored_name;
    return bulk_fill(&given, write, error);
}

/* ---- the reply ------------------------------------------------------------------------------- */

struct operations {
    const truce_write *writes;
    /* targets[i] is the target of operation i. */
    const struct target **targets;
    truce_write_outcome *outcomes;
    uint32_t count;
};

struct sums {
    int64_t errors, inserted, matched, modified, upserted, deleted;
};

static void bulk_add_up(struct sums *sums, const truce_write *write,
                        const truce_write_result *result)
{
    sums->modified += result->modified;
    if (result->upserted)
        sums->upserted++;
    else if (write->kind == TRUCE_WRITE_UPDATE)
        sums->matched += result->matched;
    else if (write->kind == TRUCE_WRITE_REMOVE)
        sums->deleted += result->removed;
    else
        sums->inserted += result->inserted;
}

/* Appends the result of operation i: {ok, idx, n ...}. */
static void bulk_append_item(struct call *call, const struct operations *operations, uint32_t i,
                             bson_t *item)
{
    const truce_write_outcome *outcome = &operations->outcomes[i];
    const truce_write *write = &operations->writes[i];
    bson_t upserted;

    BSON_APPEND_DOUBLE(item, "ok", outcome->status ? 0 : 1);
    BSON_APPEND_INT32(item, "idx", (int32_t)i);
    BSON_APPEND_INT32(item, "n", (int32_t)write_count(write, &outcome->result));
    if (write->kind == TRUCE_WRITE_UPDATE)
        BSON_APPEND_INT32(item, "nModified", (int32_t)outcome->result.modified);
    if (outcome->result.upserted) {
        BSON_APPEND_DOCUMENT_BEGIN(item, "upserted", &upserted);
        BSON_APPEND_VALUE(&upserted, "_id", &outcome->result.upserted_id);
        bson_append_document_end(item, &upserted);
    }
    if (outcome->status)
        write_append_error(call, outcome, item);
    if (outcome->status && operations->targets[i]->mismatch)
        call_append_mismatch(operations->targets[i]->mismatch, item);
}

/* Makes the array of results. Statements that were not run have none. */
static bson_t *list_items(struct call *call, const struct operations *operations, bool errors_only,
                          struct sums *sums)
{
    bson_t *items = bson_new(), item;
    uint32_t count = 0;
    char buffer[16];
    const char *key;

    for (uint32_t i = 0; i < operations->count; i++) {
        const truce_write_outcome *outcome = &operations->outcomes[i];

        if (outcome->status && !write_is_refused(outcome))
            continue;
        sums->errors += outcome->status ? 1 : 0;
        bulk_add_up(sums, &operations->writes[i], &outcome->result);
        if (errors_only && !outcome->status)
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        bson_append_document_begin(items, key, -1, &item);
        bulk_append_item(call, operations, i, &item);
        bson_append_document_end(items, &item);
    }
    return items;
}

/* Appends the sums of all results, and the first batch of the results. */
static truce_status bulk_answer(struct call *call, const struct operations *operations,
                                const struct bulk *bulk, int64_t most, bson_t *reply,
                                bson_error_t *error)
{
    struct sums sums = {0};
    bson_t *items = list_items(call, operations, bulk->errors_only, &sums);

    BCON_APPEND(reply, "nErrors", BCON_INT32((int32_t)sums.errors), "nInserted",
                BCON_INT32((int32_t)sums.inserted), "nMatched", BCON_INT32((int32_t)sums.matched),
                "nModified", BCON_INT32((int32_t)sums.modified), "nUpserted",
                BCON_INT32((int32_t)sums.upserted), "nDeleted", BCON_INT32((int32_t)sums.deleted));
    if (call->retryable)
        retryable_append_retried(call->retryable, reply);
    return cursor_reply_array(call, items, "$cmd.bulkWrite", most, reply, error);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Gives each statement that has no collection the error of its target, in place of the store's
 * error. */
static void bulk_append_views(const struct operations *operations)
{
    for (uint32_t i = 0; i < operations->count; i++)
        if (operations->outcomes[i].status == TRUCE_INVALID && !operations->targets[i]->stored_name)
            operations->outcomes[i].error = operations->targets[i]->refusal;
}

/* Runs the operations of a bulkWrite in one bulk, and appends the results. */
static truce_status bulk_run(struct call *call, const struct bulk *bulk, int64_t most,
                             const struct documents *statements, const struct targets *targets,
                             bson_t *reply, bson_error_t *error)
{
    truce_write *writes = bson_malloc0(statements->count * sizeof *writes);
    const struct target **of_each =
        truce__arena_take(&call->arena, statements->count * sizeof *of_each);
    struct operations operations = {
        .writes = writes, .targets = of_each, .count = statements->count};
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < statements->count && !status; i++) {
        status =
            bulk_read_operation(call, statements->all[i], targets, &of_each[i], &writes[i], error);
        writes[i].options.unvalidated = bulk->unvalidated;
        if (!status && bulk->empty_stay)
            status = write_check_timestamps(&writes[i], error);
    }
    if (!status) {
        operations.outcomes = bson_malloc0(statements->count * sizeof *operations.outcomes);
        status =
            write_bulk(call, writes, statements->count, bulk->ordered, operations.outcomes, error);
        bulk_append_views(&operations);
        if (!status)
            status = bulk_answer(call, &operations, bulk, most, reply, error);
        write_release(operations.outcomes, statements->count);
    }
    bson_free(writes);
    return status;
}

truce_status serve_bulk_write(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct bulk bulk = {.ordered = true};
    struct targets targets;
    struct documents statements;
    int64_t most = INT64_MAX;
    truce_status status = call_own_fields(call, bulk_fields, &bulk, error);

    if (!status && strcmp(call->database, "admin") != 0)
        status = truce__refuse(CODE_UNAUTHORIZED, error,
                               "bulkWrite may only be run against the admin database.");
    if (!status)
        status = request_batch(call, bulk.cursor, &most, error);
    if (!status)
        status = cursor_reply_room(call, error);
    if (!status)
        status = call_let(call, bulk.let, error);
    if (!status)
        status = read_targets(call, &targets, error);
    if (!status)
        status = call_documents(call, "ops", &statements, error);
    return status ? status : bulk_run(call, &bulk, most, &statements, &targets, reply, error);
}
