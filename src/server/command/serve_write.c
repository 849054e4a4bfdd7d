/* insert, update, delete, findAndModify. */
#include "bson/refuse_value.h"
#include "server/command/write_statement.h"

#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "server/command/handlers.h"

/* ---- a bulk ---------------------------------------------------------------------------------- */

bool write_is_refused(const truce_write_outcome *outcome)
{
    return outcome->status &&
           (outcome->error.domain == TRUCE_ERROR_SERVER || outcome->status == TRUCE_DUPLICATE ||
            outcome->status == TRUCE_INVALID || outcome->status == TRUCE_LIMIT) &&
           outcome->status != TRUCE_TIMEOUT && outcome->status != TRUCE_CONFLICT &&
           outcome->status != TRUCE_IO && outcome->error.code != CODE_TRANSACTION_TOO_LARGE;
}

static void begin_element(bson_t *array, uint32_t *count, bson_t *element)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    bson_append_document_begin(array, key, -1, element);
}

void write_append_error(struct call *call, const truce_write_outcome *outcome, bson_t *element)
{
    uint32_t code = call_code(outcome->status, &outcome->error);

    metrics_failed(call->server->metrics, code);
    BSON_APPEND_INT32(element, "code", (int32_t)code);
    /* As in MongoDB, errors beyond this size have no message. */
    if (call->error_bytes >= TRUCE_SERVER_ERRORS_BYTES) {
        BSON_APPEND_UTF8(element, "errmsg", "");
        return;
    }
    call_append_message(call, element, &outcome->error);
    call->error_bytes += element->len;
}

/* Appends writeErrors: [{index, code, errmsg ...}] of the statements that were refused. */
static void append_write_errors(struct call *call, const truce_write *writes,
                                const truce_write_outcome *outcomes, uint32_t count, bson_t *reply)
{
    uint32_t wrong = 0;
    bson_t array, element;

    BSON_APPEND_ARRAY_BEGIN(reply, "writeErrors", &array);
    for (uint32_t i = 0; i < count; i++) {
        if (!write_is_refused(&outcomes[i]))
            continue;
        begin_element(&array, &wrong, &element);
        BSON_APPEND_INT32(&element, "index", (int32_t)i);
        write_append_error(call, &outcomes[i], &element);
        bson_append_document_end(&array, &element);
    }
    bson_append_array_end(reply, &array);
}

/* Appends upserted: [{index, _id}] of the statements that inserted a document. */
static void append_upserted(const truce_write_outcome *outcomes, uint32_t count, bson_t *reply)
{
    uint32_t upserted = 0;
    bson_t array, element;

    BSON_APPEND_ARRAY_BEGIN(reply, "upserted", &array);
    for (uint32_t i = 0; i < count; i++) {
        if (!outcomes[i].result.upserted)
            continue;
        begin_element(&array, &upserted, &element);
        BSON_APPEND_INT32(&element, "index", (int32_t)i);
        BSON_APPEND_VALUE(&element, "_id", &outcomes[i].result.upserted_id);
        bson_append_document_end(&array, &element);
    }
    bson_append_array_end(reply, &array);
}

int64_t write_count(const truce_write *write, const truce_write_result *result)
{
    switch (write->kind) {
    case TRUCE_WRITE_UPDATE:
        return result->matched + (result->upserted ? 1 : 0);
    case TRUCE_WRITE_REMOVE:
        return result->removed;
    default:
        return result->inserted;
    }
}

truce_status write_bulk(struct call *call, const truce_write *writes, uint32_t count, bool ordered,
                        truce_write_outcome *outcomes, bson_error_t *error)
{
    truce_bulk_options options = {
        .unordered = !ordered, .relaxed = call->relaxed, .deadline_ms = call->deadline_ms};
    truce_status status =
        call->retryable
            ? retryable_bulk(call->retryable, call->store, writes, count, &options, outcomes, error)
            : truce_bulk(call->store, writes, count, &options, outcomes, error);
    bool failed = false, refused = false;

    for (uint32_t i = 0; i < count && !failed; i++) {
        refused = refused || write_is_refused(&outcomes[i]);
        /* A failure that is no refusal concerns the whole command. Statements that were not reached
         * have a status, too, but no message. */
        failed = status && outcomes[i].status && !write_is_refused(&outcomes[i]) &&
                 outcomes[i].error.message[0];
        if (failed) {
            *error = outcomes[i].error;
            status = outcomes[i].status;
        }
    }
    call->refused = refused && !failed;
    return call->refused ? TRUCE_OK : status;
}

void write_release(truce_write_outcome *outcomes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(outcomes);
}

/* Does what write_bulk does, for the collection that the command names. As in MongoDB, if it is a
 * view, each statement fails, and not the command. */
static truce_status write_named(struct call *call, const truce_write *writes, uint32_t count,
                                bool ordered, truce_write_outcome *outcomes, bson_error_t *error)
{
    bson_error_t refusal = {0};
    truce_status status =
        view_refuse(call, call->database, bson_iter_utf8(&call->value, NULL), true, &refusal);

    if (!status)
        return write_bulk(call, writes, count, ordered, outcomes, error);
    if (refusal.code != CODE_COMMAND_NOT_SUPPORTED_ON_VIEW) {
        *error = refusal;
        return status;
    }
    for (uint32_t i = 0; i < (ordered ? 1 : count); i++) {
        outcomes[i].status = status;
        outcomes[i].error = refusal;
    }
    call->refused = true;
    return TRUCE_OK;
}

/* Executes the writes in one bulk, and fills the reply: {n, nModified, upserted, writeErrors}. */
static truce_status serve_write_all(struct call *call, const truce_write *writes, uint32_t count,
                                    bool ordered, bson_t *reply, bson_error_t *error)
{
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    truce_status status = write_named(call, writes, count, ordered, outcomes, error);
    int64_t n = 0, modified = 0;
    bool upserted = false;

    for (uint32_t i = 0; i < count; i++) {
        n += write_count(&writes[i], &outcomes[i].result);
        modified += outcomes[i].result.modified;
        upserted = upserted || outcomes[i].result.upserted;
    }
    BSON_APPEND_INT32(reply, "n", (int32_t)n);
    if (writes[0].kind == TRUCE_WRITE_UPDATE)
        BSON_APPEND_INT32(reply, "nModified", (int32_t)modified);
    if (upserted)
        append_upserted(outcomes, count, reply);
    if (call->refused)
        append_write_errors(call, writes, outcomes, count, reply);
    if (call->retryable)
        retryable_append_retried(call->retryable, reply);
    write_release(outcomes, count);
    return status;
}

/* ---- the three commands ---------------------------------------------------------------------- */

truce_status write_check_timestamps(const truce_write *write, bson_error_t *error)
{
    bson_iter_t at;

    if (write->kind == TRUCE_WRITE_REMOVE || write->options.pipeline ||
        !bson_iter_init(&at, write->document))
        return TRUCE_OK;
    while (bson_iter_next(&at)) {
        if (truce__value_is_empty_timestamp(truce__value_of_iter(&at)) &&
            strcmp(bson_iter_key(&at), "_id") != 0)
            return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                                 "truce does not support bypassEmptyTsReplacement: the empty "
                                 "timestamp '%.120s' would be replaced; an update with $set stores "
                                 "one",
                                 bson_iter_key(&at));
    }
    return TRUCE_OK;
}

/* The options that insert, update, and delete share. */
struct write_command {
    const bson_t *let;
    bool ordered, unvalidated, empty_stay;
};

static const struct field write_fields[] = {
    {"ordered", FIELD_FLAG, offsetof(struct write_command, ordered)},
    {"documents", FIELD_IGNORED, 0},
    {"updates", FIELD_IGNORED, 0},
    {"deletes", FIELD_IGNORED, 0},
    {"bypassDocumentValidation", FIELD_FLAG, offsetof(struct write_command, unvalidated)},
    {"bypassEmptyTsReplacement", FIELD_FLAG, offsetof(struct write_command, empty_stay), true},
    {"let", FIELD_DOCUMENT, offsetof(struct write_command, let)},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* collection_uuid.h */
    {NULL, FIELD_IGNORED, 0}};

/* Fills one write from a statement of the command. */
typedef truce_status (*read_statement)(struct call *call, const bson_t *statement,
                                       truce_write *write, bson_error_t *error);

static truce_status read_insert(struct call *call, const bson_t *statement, truce_write *write,
                                bson_error_t *error)
{
    (void)call;
    (void)error;
    write->kind = TRUCE_WRITE_INSERT;
    write->document = statement;
    return TRUCE_OK;
}

static const struct field update_fields[] = {
    {"q", FIELD_DOCUMENT, offsetof(struct write_update, filter)},
    {"u", FIELD_EITHER, offsetof(struct write_update, update)},
    {"multi", FIELD_FLAG, offsetof(struct write_update, multi)},
    {"upsert", FIELD_FLAG, offsetof(struct write_update, upsert)},
    {"arrayFilters", FIELD_ARRAY, offsetof(struct write_update, array_filters)},
    {"hint", FIELD_HINT, offsetof(struct write_update, hint)},
    {"collation", FIELD_PLAIN, 0},
    {"c", FIELD_PLAIN, 0},
    {"sort", FIELD_DOCUMENT, offsetof(struct write_update, sort)},
    {NULL, FIELD_IGNORED, 0}};

truce_status write_of_update(const struct write_update *update, const char *names,
                             truce_write *write, bson_error_t *error)
{
    if (!update->filter || !update->update.document)
        return truce__refuse(40414, error, "a statement of update needs %s", names);
    write->kind = TRUCE_WRITE_UPDATE;
    write->filter = update->filter;
    write->document = update->update.document;
    write->options = (truce_write_options){.upsert = update->upsert,
                                           .multi = update->multi,
                                           .pipeline = update->update.is_array,
                                           .array_filters = update->array_filters,
                                           .sort = update->sort,
                                           .hint = update->hint};
    return TRUCE_OK;
}

static truce_status read_update(struct call *call, const bson_t *statement, truce_write *write,
                                bson_error_t *error)
{
    struct write_update update = {0};
    truce_status status = truce__message_check(statement, error);

    if (!status)
        status = call_fields(call, statement, update_fields, false, &update, error);
    return status ? status : write_of_update(&update, "q and u", write, error);
}

struct delete
{
    const bson_t *filter, *hint;
    int64_t limit;
};

static const struct field delete_fields[] = {
    {"q", FIELD_DOCUMENT, offsetof(struct delete, filter)},
    {"limit", FIELD_NUMBER, offsetof(struct delete, limit)},
    {"hint", FIELD_HINT, offsetof(struct delete, hint)},
    {"collation", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static bool limit_is_whole(const bson_t *statement)
{
    bson_iter_t at;
    int64_t number;

    return !bson_iter_init_find(&at, statement, "limit") || truce__field_to_whole(&at, &number);
}

/* Reads a statement of delete: {q, limit, hint}. `limit` is required. */
static truce_status read_delete(struct call *call, const bson_t *statement, truce_write *write,
                                bson_error_t *error)
{
    struct delete delete = {.limit = -1};
    bson_iter_t at;
    truce_status status = truce__message_check(statement, error);

    if (!status)
        status = call_fields(call, statement, delete_fields, false, &delete, error);
    if (!status && !delete.filter)
        status = truce__refuse(40414, error, "a statement of delete needs q, a filter");
    /* `limit` must be exactly 0 or 1: 0.5 must not be taken for 0, which removes all documents. */
    if (!status && ((delete.limit != 0 && delete.limit != 1) || !limit_is_whole(statement)))
        status = truce__refuse_value(
            CODE_FAILED_TO_PARSE,
            (bson_iter_init_find(&at, statement, "limit") ? truce__value_of_iter(&at)
                                                          : truce__value_missing()),
            error, "the limit of a statement of delete must be 0 (all) or 1");
    write->kind = TRUCE_WRITE_REMOVE;
    write->filter = delete.filter;
    write->options = (truce_write_options){.multi = delete.limit == 0, .hint = delete.hint};
    return status;
}

/* Reads a write command: its options and all statements. */
static truce_status serve_write_read_all(struct call *call, const char *name, read_statement read,
                                         struct write_statements *statements, bson_error_t *error)
{
    struct write_command command = {.ordered = true};
    struct documents documents;
    truce_status status = call_stored_name(call, statements->stored_name, error);

    if (!status)
        status = call_own_fields(call, write_fields, &command, error);
    if (!status)
        status = call_let(call, command.let, error);
    if (!status)
        status = call_documents(call, name, &documents, error);
    if (status)
        return status;
    statements->ordered = command.ordered;
    statements->count = documents.count;
    statements->writes = bson_malloc0(documents.count * sizeof *statements->writes);
    for (uint32_t i = 0; i < documents.count && !status; i++) {
        statements->writes[i].collection = statements->stored_name;
        status = read(call, documents.all[i], &statements->writes[i], error);
        statements->writes[i].options.unvalidated = command.unvalidated;
        if (!status && command.empty_stay)
            status = write_check_timestamps(&statements->writes[i], error);
    }
    return status;
}

truce_status write_read(struct call *call, struct write_statements *statements, bson_error_t *error)
{
    *statements = (struct write_statements){0};
    if (call->command->run == serve_insert)
        return serve_write_read_all(call, "documents", read_insert, statements, error);
    if (call->command->run == serve_update)
        return serve_write_read_all(call, "updates", read_update, statements, error);
    return serve_write_read_all(call, "deletes", read_delete, statements, error);
}

static truce_status serve_write_run(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct write_statements statements;
    truce_status status = write_read(call, &statements, error);

    if (!status)
        status = serve_write_all(call, statements.writes, statements.count, statements.ordered,
                                 reply, error);
    bson_free(statements.writes);
    return status;
}

truce_status serve_insert(struct call *call, bson_t *reply, bson_error_t *error)
{
    return serve_write_run(call, reply, error);
}

truce_status serve_update(struct call *call, bson_t *reply, bson_error_t *error)
{
    return serve_write_run(call, reply, error);
}

truce_status serve_delete(struct call *call, bson_t *reply, bson_error_t *error)
{
    return serve_write_run(call, reply, error);
}

/* ---- findAndModify --------------------------------------------------------------------------- */

static const struct field modify_fields[] = {
    {"query", FIELD_DOCUMENT, offsetof(struct write_modify, query)},
    {"sort", FIELD_DOCUMENT, offsetof(struct write_modify, sort)},
    {"fields", FIELD_DOCUMENT, offsetof(struct write_modify, fields)},
    {"arrayFilters", FIELD_ARRAY, offsetof(struct write_modify, array_filters)},
    {"hint", FIELD_HINT, offsetof(struct write_modify, hint)},
    {"update", FIELD_EITHER, offsetof(struct write_modify, update)},
    {"remove", FIELD_FLAG, offsetof(struct write_modify, remove)},
    {"new", FIELD_FLAG, offsetof(struct write_modify, new)},
    {"upsert", FIELD_FLAG, offsetof(struct write_modify, upsert)},
    {"bypassDocumentValidation", FIELD_FLAG, offsetof(struct write_modify, unvalidated)},
    {"bypassEmptyTsReplacement", FIELD_FLAG, offsetof(struct write_modify, empty_stay), true},
    {"collation", FIELD_PLAIN, 0},
    {"let", FIELD_DOCUMENT, offsetof(struct write_modify, let)},
    {NULL, FIELD_IGNORED, 0}};

/* Appends {lastErrorObject, value}. */
static void append_modified(void *arg, const truce_write_result *result, const bson_t *document,
                            bson_t *reply)
{
    const struct write_modify *modify = arg;
    bson_t last;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "lastErrorObject", &last);
    BSON_APPEND_INT32(&last, "n",
                      (int32_t)(result->matched || result->removed || result->upserted ? 1 : 0));
    if (!modify->remove)
        BSON_APPEND_BOOL(&last, "updatedExisting", result->matched > 0);
    if (result->upserted)
        BSON_APPEND_VALUE(&last, "upserted", &result->upserted_id);
    bson_append_document_end(reply, &last);
    if (result->matched || result->removed || (result->upserted && modify->new))
        BSON_APPEND_DOCUMENT(reply, "value", document);
    else
        BSON_APPEND_NULL(reply, "value");
}

static truce_status serve_write_check_modify(const struct write_modify *modify, bson_error_t *error)
{
    if (modify->remove && (modify->update.document || modify->upsert || modify->new))
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "findAndModify with remove excludes update, upsert, and new");
    if (!modify->remove && !modify->update.document)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "findAndModify must have an update, or remove");
    return TRUCE_OK;
}

truce_status write_read_modify(struct call *call, struct write_modify *modify, bson_error_t *error)
{
    truce_status status;

    *modify = (struct write_modify){0};
    status = call_own_fields(call, modify_fields, modify, error);
    if (!status)
        status = serve_write_check_modify(modify, error);
    if (!status && modify->empty_stay && !modify->remove)
        status = write_check_timestamps(&(truce_write){.kind = TRUCE_WRITE_UPDATE,
                                                       .document = modify->update.document,
                                                       .options.pipeline = modify->update.is_array},
                                        error);
    return status ? status : call_let(call, modify->let, error);
}

truce_status serve_find_and_modify(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_modify_options options;
    struct write_modify modify;
    char stored_name[STORED_NAME_MAX];
    bool again = false;
    bson_t document;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = write_read_modify(call, &modify, error);
    if (status)
        return status;
    options = (truce_modify_options){.sort = modify.sort,
                                     .projection = modify.fields,
                                     .hint = modify.hint,
                                     .remove = modify.remove,
                                     .return_new = modify.new,
                                     .upsert = modify.upsert,
                                     .pipeline = modify.update.is_array,
                                     .relaxed = call->relaxed,
                                     .unvalidated = modify.unvalidated,
                                     .array_filters = modify.array_filters,
                                     .deadline_ms = call->deadline_ms};
    if (call->retryable)
        status = retryable_modify(call->retryable, append_modified, &modify, reply, &again,
                                  &options.receipt, error);
    if (again && !status)
        BSON_APPEND_INT32(reply, "retriedStmtId", call->session.statement);
    if (again || status)
        return status;
    status = truce_find_and_modify(call->store, stored_name, modify.query ? modify.query : &all,
                                   modify.update.document, &options, &document, &result, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && call->retryable)
        retryable_modified(call->retryable, &result);
    append_modified(&modify, &result, &document, reply);
    truce_write_result_release(&result);
    bson_destroy(&document);
    return status;
}
