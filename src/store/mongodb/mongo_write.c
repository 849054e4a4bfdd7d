/*
 * Writes without a transaction. A bulk is divided into batches. Neighboring inserts into one
 * collection are one message. Every update and remove is a message of its own, because the server
 * reports how many documents a message changed, not which of its statements did. If the bulk is
 * `joined`, updates are one message too, and removes, because the caller needs only the sum.
 *
 * An ordered bulk ends at the first failure. An unordered bulk also ends when the server does not
 * reply, because the rest would fail, too.
 *
 * A write conflict (112) of a single write changed nothing, so the write is sent again until the
 * deadline, as MongoDB itself does. A write with `multi` is not repeated, because it may have
 * changed some documents.
 */
#include <string.h>

#include "base/assert.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bson/array.h"
#include "bson/value.h"
#include "store/mongodb/mongo.h"
#include "store/mongodb/mongo_shards.h"

/* ---- invalid documents ----------------------------------------------------------------------- */

/*
 * Documents that nest too deep, or are invalid otherwise.
 *
 * Updates could nest a document deeper than TRUCE_DOCUMENT_DEPTH_MAX levels. MongoDB refuses them,
 * but some servers with its protocol store them, and then every read fails. The depth of a written
 * value follows from the update alone: the components of its path and the levels of its value.
 * (Stages of a pipeline are left to the server, because their result depends on the document.)
 */

/* Counts the levels of nested documents and arrays in a value, or returns 0 for any other value. A
 * document that was checked is not too deep. */
static uint32_t levels_of(struct value value)
{
    struct fields fields;
    uint32_t most = 0;

    if (!truce__value_is_container(value))
        return 0;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint32_t inner = levels_of(fields.value);

        most = inner > most ? inner : most;
    }
    return most + 1;
}

static uint32_t mongo_count_components(const char *path)
{
    uint32_t count = 1;

    for (; *path; path++)
        count += *path == '.';
    return count;
}

/* Counts the levels of $push and $addToSet, which put the value, or each of $each, into an array at
 * the path. */
static uint32_t levels_added(const char *operator, struct value value)
{
    bool adds = !strcmp(operator, "$push") || !strcmp(operator, "$addToSet");
    struct value each = truce__value_missing();

    if (adds && value.type == BSON_TYPE_DOCUMENT)
        each = truce__value_field(value, "$each", 5);
    return each.type ? levels_of(each) : levels_of(value) + adds;
}

static truce_status check_operator(const char *operator, struct value changes, bson_error_t *error)
{
    struct fields fields = truce__fields(changes);

    while (truce__fields_next(&fields))
        if (mongo_count_components(fields.key) + levels_added(operator, fields.value) >
            TRUCE_DOCUMENT_DEPTH_MAX)
            return truce__fail(
                TRUCE_LIMIT, error,
                "%s of \"%.100s\" would nest the document deeper than %d levels", operator,
                fields.key, TRUCE_DOCUMENT_DEPTH_MAX);
    return TRUCE_OK;
}

/* Fails with LIMIT if an operator of the update would nest a document too deep. A replacement was
 * checked as a document before. */
static truce_status mongo_depth_check(const bson_t *update, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(update));
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        if (fields.key[0] == '$' && fields.value.type == BSON_TYPE_DOCUMENT)
            status = check_operator(fields.key, fields.value, error);
    return status;
}

truce_status truce__mongo_malformed(const char *what, const bson_t *document, bson_error_t *error)
{
    bson_error_t why = {0};
    char *shown = NULL;
    bson_t id = BSON_INITIALIZER;
    bson_iter_t iter;

    /* Only the message of the check is used. */
    (void)truce__document_check(document, "document", &why);
    if (bson_iter_init_find(&iter, document, "_id") && bson_append_iter(&id, NULL, 0, &iter) &&
        !truce__document_check(&id, "document", NULL))
        shown = bson_as_relaxed_extended_json(&id, NULL);
    truce__fail(TRUCE_CORRUPT, error, "%s: the server sent an invalid document (%.100s): %s", what,
                shown ? shown : "its _id cannot be read", why.message);
    bson_free(shown);
    bson_destroy(&id);
    return TRUCE_CORRUPT;
}

/* ---- find-and-modify ------------------------------------------------------------------------- */

/* Find-and-modify is one command. A write conflict, or another error that says that another client
 * was faster, changed nothing: the command is sent again until the deadline. */

#define CODE_SHARD_KEY_NOT_FOUND 61

/* Appends the command findAndModify with its options. */
static void append_modify(const char *collection, const bson_t *filter, const bson_t *update,
                          const truce_modify_options *options, bson_t *body)
{
    BSON_APPEND_UTF8(body, "findAndModify", collection);
    BSON_APPEND_DOCUMENT(body, "query", filter);
    if (options->sort && !bson_empty(options->sort))
        BSON_APPEND_DOCUMENT(body, "sort", options->sort);
    if (options->remove)
        BSON_APPEND_BOOL(body, "remove", true);
    else if (options->pipeline)
        BSON_APPEND_ARRAY(body, "update", update);
    else
        BSON_APPEND_DOCUMENT(body, "update", update);
    if (options->return_new)
        BSON_APPEND_BOOL(body, "new", true);
    if (options->upsert)
        BSON_APPEND_BOOL(body, "upsert", true);
    if (options->projection && !bson_empty(options->projection))
        BSON_APPEND_DOCUMENT(body, "fields", options->projection);
    if (options->array_filters)
        BSON_APPEND_ARRAY(body, "arrayFilters", options->array_filters);
    truce__mongo_append_hint(body, options->hint);
    if (options->unvalidated)
        BSON_APPEND_BOOL(body, "bypassDocumentValidation", true);
    if (options->deadline_ms)
        BSON_APPEND_INT64(body, "maxTimeMS", options->deadline_ms);
}

/* Reads {value: document or null, lastErrorObject: {n, updatedExisting, upserted}}. Not every
 * server returns lastErrorObject. */
static truce_status take_modified(const bson_t *reply, const truce_modify_options *options,
                                  bson_t *document, truce_write_result *result, bson_error_t *error)
{
    bson_iter_t iter, found;
    bool given = false;
    bson_t view;

    if (bson_iter_init_find(&iter, reply, "value") && BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&iter, &size, &bytes);
        if (!bson_init_static(&view, bytes, size) || truce__document_check(&view, "document", NULL))
            return truce__fail(TRUCE_UNKNOWN, error,
                               "the server's reply to a find-and-modify is not well-formed");
        bson_concat(document, &view);
        given = true;
    }
    if (options->upsert && bson_iter_init(&iter, reply) &&
        bson_iter_find_descendant(&iter, "lastErrorObject.upserted", &found) &&
        !BSON_ITER_HOLDS_NULL(&found)) {
        result->upserted = true;
        bson_value_copy(bson_iter_value(&found), &result->upserted_id);
        return TRUCE_OK;
    }
    if (!given && truce__mongo_number(reply, "lastErrorObject.n", 0) < 1)
        return TRUCE_NOT_FOUND;
    result->matched = 1;
    result->removed = options->remove;
    /* This server reports no counts. */
    result->modified = !options->remove;
    return TRUCE_OK;
}

/* Sends one message. Sets `*again` if the call must be repeated, because the write conflicted, the
 * document changed after its shard key was read, or the shard key of the collection has changed. */
static truce_status modify_once(struct mongo_store *store, const char *collection,
                                const bson_t *filter, const bson_t *update,
                                const truce_modify_options *options, bson_t *document,
                                truce_write_result *result, uint32_t wait_ms, int *refused,
                                bool *again, bson_error_t *error)
{
    char text[200];
    bson_t body = BSON_INITIALIZER, aimed, reply;
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "find and modify in", collection),
        .body = &body,
        .kind = MONGO_WRITE,
        .write_concern = true,
        .wait_ms = wait_ms,
        .relaxed = options->relaxed || store->relaxed,
    };
    bool changed;
    truce_status status =
        truce__mongo_aim(store, collection, filter, options, &aimed, &changed, error);

    if (!status) {
        append_modify(collection, &aimed, update, options, &body);
        status = truce__mongo_run_alone(store, &command, &reply, error);
        if (!status)
            status = take_modified(&reply, options, document, result, error);
        if (status == TRUCE_NOT_FOUND && truce__mongo_found_none(MONGO_WRITE, command.what, error))
            status = TRUCE_UNKNOWN;
        if (status == TRUCE_TIMEOUT && store->server.deployment == MONGO_SHARDED &&
            !store->transaction)
            /* mongos gave up, but the shard may continue. */
            status = TRUCE_UNKNOWN;
        *again = status == TRUCE_CONFLICT || (status == TRUCE_NOT_FOUND && changed);
        if (status == TRUCE_INVALID && error->domain == TRUCE_ERROR_SERVER &&
            error->code == CODE_SHARD_KEY_NOT_FOUND) {
            truce__mongo_shards_forget(store, collection);
            *again = !changed && !(*refused)++;
        }
        bson_destroy(&reply);
    }
    bson_destroy(&aimed);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_find_and_modify(truce_store *base, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          truce_write_result *result, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    uint32_t wait_ms = options->deadline_ms ? options->deadline_ms : store->deadline_ms;
    int64_t until_ns = truce__clock_monotonic_ns() + (int64_t)wait_ms * 1000000;
    truce_status status = truce__mongo_writable(store, error);
    bool again = true;
    int refused = 0;

    bson_init(document);
    if (!status && update && !options->pipeline)
        status = mongo_depth_check(update, error);
    if (status)
        return status;
    for (;;) {
        bson_error_t caught = {0};

        again = false;
        status = modify_once(store, collection, filter, update, options, document, result, wait_ms,
                             &refused, &again, &caught);
        if (status && error)
            *error = caught;
        if (!again || store->transaction || truce__clock_monotonic_ns() > until_ns)
            break;
        truce__backoff_sleep(0, 20, 20);
    }
    return status;
}

/* ---- several writes in one message ----------------------------------------------------------- */

/*
 * Several updates, or several removes, of one collection as one message of a transaction or of a
 * `joined` bulk: one round trip instead of one for each.
 *
 *     update documents: [set _rev of 1], [set _rev of 2], [touch 3], [untouch 3]
 *     n: 4, nModified: 4
 *
 * The server reports how many documents a message changed, not which of its statements did. Each
 * statement changes at most one. So if the sum is right, each found its document. Otherwise the
 * transaction is aborted and made again with a message for each write (mongo_transaction.c), which
 * finds the failed guard. A guard without a change is two statements (a touch and its removal).
 *
 * Statements of one message run in their order, as if each were a message.
 */

/* ---- writes that share a message ------------------------------------------------------------- */

static bool is_update(const truce_write *write)
{
    if (write->kind == TRUCE_WRITE_REQUIRE)
        return truce__mongo_names_id(write->filter, NULL);
    return write->kind == TRUCE_WRITE_UPDATE && !write->options.multi && !write->options.upsert;
}

static bool is_remove(const truce_write *write)
{
    return write->kind == TRUCE_WRITE_REMOVE && !write->options.multi;
}

size_t truce__mongo_together(const truce_write *writes, size_t count)
{
    bool (*fits)(const truce_write *write) = is_update(&writes[0]) ? is_update : is_remove;
    size_t size = 0;

    while (size < count && fits(&writes[size]) &&
           writes[size].options.unvalidated == writes[0].options.unvalidated &&
           !strcmp(writes[size].collection, writes[0].collection))
        size++;
    return size;
}

/* ---- one message ---------------------------------------------------------------------------- */

/* A message with its statements: at most two for each write. */
struct message {
    truce_write *writes;
    truce_write_outcome *outcomes;
    /* For each statement, the number of its write. */
    size_t *owners;
    /* The documents that the message owns: three for each touch. */
    bson_t *own;
    /* The number of statements, and of own documents. */
    size_t count, own_count;
};

static void message_init(struct message *message, size_t writes)
{
    *message = (struct message){.writes = bson_malloc0(2 * writes * sizeof *message->writes),
                                .outcomes = bson_malloc0(2 * writes * sizeof *message->outcomes),
                                .owners = bson_malloc0(2 * writes * sizeof *message->owners),
                                .own = bson_malloc0(3 * writes * sizeof *message->own)};
}

static void together_message_release(struct message *message)
{
    for (size_t i = 0; i < message->own_count; i++)
        bson_destroy(&message->own[i]);
    bson_free(message->writes);
    bson_free(message->outcomes);
    bson_free(message->owners);
    bson_free(message->own);
}

static void message_add_write(struct message *message, size_t owner, const truce_write *write)
{
    message->owners[message->count] = owner;
    message->outcomes[message->count] = (truce_write_outcome){.status = TRUCE_CONFLICT};
    message->writes[message->count++] = *write;
}

static bson_t *together_own(struct message *message)
{
    bson_t *document = &message->own[message->own_count++];

    bson_init(document);
    return document;
}

/* Adds two statements: a fresh field in what matches, and its removal from the document with this
 * _id. */
static void add_touch(struct message *message, size_t owner, const truce_write *require)
{
    bson_t *set = together_own(message), *by_id = together_own(message),
           *unset = together_own(message), child;
    truce_write write = {.kind = TRUCE_WRITE_UPDATE, .collection = require->collection};
    bson_value_t id = {0};
    bson_oid_t fresh;

    truce_assert(truce__mongo_names_id(require->filter, &id));
    bson_oid_init(&fresh, NULL);
    BCON_APPEND(set, "$set", "{", MONGO_TOUCH, BCON_OID(&fresh), "}");
    BCON_APPEND(unset, "$unset", "{", MONGO_TOUCH, BCON_OID(&fresh), "}");
    BSON_APPEND_DOCUMENT_BEGIN(by_id, "_id", &child);
    BSON_APPEND_VALUE(&child, "$eq", &id);
    bson_append_document_end(by_id, &child);
    BSON_APPEND_OID(by_id, MONGO_TOUCH, &fresh);
    write.filter = require->filter;
    write.document = set;
    message_add_write(message, owner, &write);
    write.filter = by_id;
    write.document = unset;
    message_add_write(message, owner, &write);
}

/* Stores the errors of statements in the outcomes of their writes. */
static void bulk_copy_outcomes(const struct message *message, const truce_write *writes,
                               truce_write_outcome *outcomes)
{
    for (size_t i = 0; i < message->count; i++) {
        truce_write_outcome *outcome = &outcomes[message->owners[i]];

        if (outcome->error.message[0])
            continue;
        *outcome = message->outcomes[i];
        if (outcome->status && writes[message->owners[i]].kind == TRUCE_WRITE_REQUIRE)
            outcome->status = truce__mongo_guard_refused(
                outcome->status, writes[message->owners[i]].collection, &outcome->error);
    }
}

truce_status truce__mongo_send_together(struct mongo_store *store, mongoc_client_t *client,
                                        const struct mongo_batch *batch, bool *all,
                                        bson_error_t *error)
{
    struct mongo_batch statements = *batch;
    struct message message;
    truce_status status;

    message_init(&message, batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->writes[i].kind == TRUCE_WRITE_REQUIRE)
            add_touch(&message, i, &batch->writes[i]);
        else
            message_add_write(&message, i, &batch->writes[i]);
    }
    statements.writes = message.writes;
    statements.outcomes = message.outcomes;
    statements.count = message.count;
    statements.all = all;
    status = truce__mongo_send(store, client, &statements, error);
    bulk_copy_outcomes(&message, batch->writes, batch->outcomes);
    together_message_release(&message);
    return status;
}

/* ---- writes ---------------------------------------------------------------------------------- */

static struct mongo_store *mongo_write_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Returns whether libmongoc would treat the update as a pipeline: a document whose fields are named
 * "0", "1", and so on, and contain documents. */
static bool looks_like_pipeline(const bson_t *update)
{
    struct fields fields = truce__fields(truce__value_document(update));
    uint32_t count = 0;
    char buffer[16];
    const char *key;

    for (; truce__fields_next(&fields); count++) {
        bson_uint32_to_string(count, &key, buffer, sizeof buffer);
        if (fields.value.type != BSON_TYPE_DOCUMENT || strcmp(key, fields.key) != 0)
            return false;
    }
    return count > 0;
}

/* Appends a stage that replaces the document by `document`, or by itself if `document` is NULL. */
static void append_replacing_stage(bson_t *stages, const bson_t *document)
{
    bson_t stage, value;

    BSON_APPEND_DOCUMENT_BEGIN(stages, "0", &stage);
    if (document) {
        BSON_APPEND_DOCUMENT_BEGIN(&stage, "$replaceWith", &value);
        BSON_APPEND_DOCUMENT(&value, "$literal", document);
        bson_append_document_end(&stage, &value);
    } else {
        BSON_APPEND_UTF8(&stage, "$replaceWith", "$$ROOT");
    }
    bson_append_document_end(stages, &stage);
}

/* Copies the stages with the keys of an array. */
static truce_status copy_stages(const bson_t *pipeline, bson_t *stages, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(pipeline));
    struct array list = {.to = stages};

    while (truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "each stage of an update's pipeline must be a document");
        truce__array_add(&list, fields.value);
    }
    if (!list.count)
        append_replacing_stage(stages, NULL);
    return TRUCE_OK;
}

/* Converts the update to a form that libmongoc does not misinterpret. */
static truce_status mongo_write_prepare_update(const struct mongo_store *store,
                                               const truce_write *write, bson_t *update,
                                               bson_error_t *error)
{
    bool can = store->base.capabilities & TRUCE_CAN_PIPELINE_UPDATE;

    bson_init(update);
    if (!write->options.pipeline && !looks_like_pipeline(write->document)) {
        bson_concat(update, write->document);
        return mongo_depth_check(update, error);
    }
    if (!can)
        return truce__fail(TRUCE_INVALID, error,
                           "this server cannot update by a pipeline (MongoDB has it since 4.2)");
    if (write->options.pipeline)
        return copy_stages(write->document, update, error);
    append_replacing_stage(update, write->document);
    return TRUCE_OK;
}

/* Adds an update. libmongoc does not validate it, because truce has done so. */
static bool mongo_write_add_update(mongoc_bulk_operation_t *bulk, const truce_write *write,
                                   const bson_t *update, bson_error_t *caught)
{
    bson_t options = BSON_INITIALIZER;
    bool added;

    BSON_APPEND_BOOL(&options, "validate", false);
    if (write->options.upsert)
        BSON_APPEND_BOOL(&options, "upsert", true);
    if (write->options.array_filters)
        BSON_APPEND_ARRAY(&options, "arrayFilters", write->options.array_filters);
    truce__mongo_append_hint(&options, write->options.hint);
    if (write->options.multi)
        added = mongoc_bulk_operation_update_many_with_opts(bulk, write->filter, update, &options,
                                                            caught);
    else
        added = mongoc_bulk_operation_update_one_with_opts(bulk, write->filter, update, &options,
                                                           caught);
    bson_destroy(&options);
    return added;
}

static bool add_remove(mongoc_bulk_operation_t *bulk, const truce_write *write,
                       bson_error_t *caught)
{
    bson_t options = BSON_INITIALIZER;
    bool added;

    truce__mongo_append_hint(&options, write->options.hint);
    if (write->options.multi)
        added = mongoc_bulk_operation_remove_many_with_opts(bulk, write->filter, &options, caught);
    else
        added = mongoc_bulk_operation_remove_one_with_opts(bulk, write->filter, &options, caught);
    bson_destroy(&options);
    return added;
}

static bool add_insert(mongoc_bulk_operation_t *bulk, const truce_write *write,
                       bson_error_t *caught)
{
    bson_t options = BSON_INITIALIZER;
    bool added;

    BSON_APPEND_BOOL(&options, "validate", false);
    added = mongoc_bulk_operation_insert_with_opts(bulk, write->document, &options, caught);
    bson_destroy(&options);
    return added;
}

/* Adds a write to a bulk operation of libmongoc. */
static truce_status mongo_write_add(const struct mongo_store *store, mongoc_bulk_operation_t *bulk,
                                    const truce_write *write, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    bson_t update = BSON_INITIALIZER;
    bool added = false;

    switch (write->kind) {
    case TRUCE_WRITE_INSERT:
        added = add_insert(bulk, write, &caught);
        break;
    case TRUCE_WRITE_UPDATE:
        status = mongo_write_prepare_update(store, write, &update, error);
        added = !status && mongo_write_add_update(bulk, write, &update, &caught);
        break;
    case TRUCE_WRITE_REMOVE:
        added = add_remove(bulk, write, &caught);
        break;
    case TRUCE_WRITE_REQUIRE:
    case TRUCE_WRITE_REQUIRE_MISSING:
    case TRUCE_WRITE_REQUIRE_IN_SNAPSHOT:
        truce__assert_failed("a guard cannot be a message of its own", __FILE__, __LINE__,
                             __func__);
    }
    bson_destroy(&update);
    if (!status && !added)
        status = truce__fail(TRUCE_INVALID, error, "the write cannot be sent: %s", caught.message);
    return status;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void take_upserted(const bson_t *reply, truce_write_result *result)
{
    bson_iter_t iter, id;

    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, "upserted.0._id", &id))
        return;
    result->upserted = true;
    bson_value_copy(bson_iter_value(&id), &result->upserted_id);
}

/* Returns a name of a single write for messages. */
static const char *name_write(const truce_write *write, char *text, size_t size)
{
    const char *verb = write->kind == TRUCE_WRITE_INSERT   ? "insert into"
                       : write->kind == TRUCE_WRITE_UPDATE ? "update"
                                                           : "remove from";

    return truce__mongo_what(text, size, verb, write->collection);
}

static enum mongo_kind mongo_write_kind_of(const struct mongo_batch *batch)
{
    return batch->session ? MONGO_STATEMENT : MONGO_WRITE;
}

/* Reads the counts of a message with one statement, limited to plausible values. If nothing
 * matched, returns OK, or UNKNOWN if a lost message may have matched. */
static truce_status take_counts(const struct mongo_batch *batch, const bson_t *reply,
                                truce_write_result *result, bson_error_t *error)
{
    const truce_write *write = &batch->writes[0];
    char text[200];
    int64_t most = write->options.multi ? INT64_MAX : 1;
    int64_t matched = truce__mongo_number(reply, "nMatched", 0);
    int64_t modified = truce__mongo_number(reply, "nModified", matched);
    int64_t removed = truce__mongo_number(reply, "nRemoved", 0);

    if (write->kind == TRUCE_WRITE_REMOVE) {
        result->removed = removed < 0 ? 0 : removed < most ? removed : most;
        result->matched = result->removed;
    } else {
        take_upserted(reply, result);
        result->matched = result->upserted || matched < 0 ? 0 : matched < most ? matched : most;
        result->modified = modified < 0                 ? 0
                           : modified < result->matched ? modified
                                                        : result->matched;
    }
    if (result->matched || result->upserted)
        return TRUCE_OK;
    return truce__mongo_found_none(mongo_write_kind_of(batch), name_write(write, text, sizeof text),
                                   error);
}

/* Reads the errors of single statements. Returns whether there were any. */
static bool take_write_errors(const struct mongo_batch *batch, const bson_t *reply)
{
    bson_iter_t iter, list, field;
    bool any = false;
    char text[200];

    if (!bson_iter_init_find(&iter, reply, "writeErrors") || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &list))
        return false;
    while (bson_iter_next(&list)) {
        int64_t index = 0, code = 0;
        const char *message = NULL;
        truce_write_outcome *outcome;

        if (!bson_iter_recurse(&list, &field))
            continue;
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "index"))
                index = bson_iter_as_int64(&field);
            else if (!strcmp(bson_iter_key(&field), "code"))
                code = bson_iter_as_int64(&field);
            else if (!strcmp(bson_iter_key(&field), "errmsg") && BSON_ITER_HOLDS_UTF8(&field))
                message = bson_iter_utf8(&field, NULL);
        }
        if (index < 0 || index >= (int64_t)batch->count)
            continue;
        outcome = &batch->outcomes[index];
        outcome->status = truce__mongo_refused(mongo_write_kind_of(batch),
                                               name_write(&batch->writes[index], text, sizeof text),
                                               (uint32_t)code, message, &outcome->error);
        any = true;
    }
    return any;
}

/* Fails the whole batch, because nothing is known about any write, or all were refused for one
 * reason. The first write gets the reason. */
static truce_status mongo_write_fail_all(const struct mongo_batch *batch, const bson_t *reply,
                                         const bson_error_t *caught)
{
    truce_write_outcome *first = &batch->outcomes[0];
    char text[200];

    first->status = truce__mongo_failed(mongo_write_kind_of(batch),
                                        name_write(&batch->writes[0], text, sizeof text), reply,
                                        caught, &first->error);
    for (size_t i = 1; first->status == TRUCE_UNKNOWN && i < batch->count; i++)
        batch->outcomes[i].status = TRUCE_UNKNOWN;
    return first->status;
}

/* Returns whether each of several updates or removes changed a document. Each of them changes at
 * most one. */
static bool all_changed(const struct mongo_batch *batch, const bson_t *reply)
{
    int64_t wanted = (int64_t)batch->count, matched = truce__mongo_number(reply, "nMatched", 0);

    if (batch->writes[0].kind == TRUCE_WRITE_REMOVE)
        return truce__mongo_number(reply, "nRemoved", 0) == wanted;
    return matched == wanted && truce__mongo_number(reply, "nModified", matched) == wanted;
}

static void mongo_write_take_each(const truce_write *write, truce_write_result *result)
{
    result->matched = 1;
    if (write->kind == TRUCE_WRITE_REMOVE)
        result->removed = 1;
    else
        result->modified = 1;
}

/* Clears the results of a message of which not all statements changed a document, because it is
 * unknown which did. Returns `refused` if it is a failure, UNKNOWN if the message may have been
 * sent twice, and otherwise OK: the caller sees `*batch->all`. */
static truce_status not_all(const struct mongo_batch *batch, truce_status refused)
{
    truce_write_outcome *first = &batch->outcomes[0];
    char text[200];

    for (size_t i = 0; i < batch->count; i++)
        truce_write_result_release(&batch->outcomes[i].result);
    if (refused)
        return refused;
    first->status =
        truce__mongo_found_none(mongo_write_kind_of(batch),
                                name_write(&batch->writes[0], text, sizeof text), &first->error);
    for (size_t i = 1; i < batch->count; i++)
        batch->outcomes[i].status = first->status;
    return first->status;
}

/* Sets the outcomes: each write that was reached and not refused has succeeded. */
static truce_status take_outcomes(const struct mongo_batch *batch, const bson_t *reply)
{
    truce_status first = TRUCE_OK;

    for (size_t i = 0; i < batch->count; i++) {
        truce_write_outcome *outcome = &batch->outcomes[i];

        if (outcome->error.message[0]) {
            if (!first)
                first = outcome->status;
            if (!batch->unordered)
                return first;
            continue;
        }
        outcome->status = TRUCE_OK;
        if (batch->writes[i].kind == TRUCE_WRITE_INSERT)
            outcome->result.inserted = 1;
        else if (batch->all)
            mongo_write_take_each(&batch->writes[i], &outcome->result);
        else
            outcome->status = take_counts(batch, reply, &outcome->result, &outcome->error);
        if (outcome->status && !first)
            first = outcome->status;
    }
    if (!batch->all)
        return first;
    *batch->all = !first && all_changed(batch, reply);
    return *batch->all ? TRUCE_OK : not_all(batch, first);
}

static bool has_elements(const bson_t *reply, const char *array)
{
    bson_iter_t iter, list;

    return bson_iter_init_find(&iter, reply, array) && BSON_ITER_HOLDS_ARRAY(&iter) &&
           bson_iter_recurse(&iter, &list) && bson_iter_next(&list);
}

/* Reads the reply. If durability is unknown, no write of the batch counts as done. */
static truce_status mongo_write_take_answer(const struct mongo_batch *batch, bool done,
                                            const bson_t *reply, const bson_error_t *caught)
{
    bson_error_t weak = {.domain = MONGOC_ERROR_WRITE_CONCERN, .code = caught->code};

    if (has_elements(reply, "writeConcernErrors")) {
        bson_strncpy(weak.message, caught->message[0] ? caught->message : "not durable yet",
                     sizeof weak.message);
        return mongo_write_fail_all(batch, reply, &weak);
    }
    if (!done && !take_write_errors(batch, reply))
        return mongo_write_fail_all(batch, reply, caught);
    return take_outcomes(batch, reply);
}

/* Begins a bulk operation of libmongoc for a batch, with its write concern, or in its session. The
 * caller destroys it. */
static mongoc_bulk_operation_t *make_bulk(const struct mongo_store *store, mongoc_client_t *client,
                                          const struct mongo_batch *batch)
{
    mongoc_bulk_operation_t *bulk = mongoc_bulk_operation_new(!batch->unordered);

    mongoc_bulk_operation_set_client(bulk, client);
    mongoc_bulk_operation_set_database(bulk, store->database);
    mongoc_bulk_operation_set_collection(bulk, batch->writes[0].collection);
    if (batch->writes[0].options.unvalidated)
        mongoc_bulk_operation_set_bypass_document_validation(bulk, true);
    if (batch->session) {
        mongoc_bulk_operation_set_client_session(bulk, batch->session);
    } else {
        mongoc_write_concern_t *concern = truce__mongo_write_concern(store, batch->relaxed);

        mongoc_bulk_operation_set_write_concern(bulk, concern);
        mongoc_write_concern_destroy(concern);
    }
    return bulk;
}

/* Sends the batch once. Sets `*unsent` if there was no server. */
static truce_status send_once(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_batch *batch, bool *unsent)
{
    mongoc_bulk_operation_t *bulk = make_bulk(store, client, batch);
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    size_t number = 0;
    bson_t reply;
    bool done = false;

    while (number < batch->count && !status) {
        status =
            mongo_write_add(store, bulk, &batch->writes[number], &batch->outcomes[number].error);
        if (status)
            batch->outcomes[number].status = status;
        number++;
    }
    if (!status) {
        truce__mongo_call();
        if (batch->session || truce__mongo_has_server(store, client, &caught))
            done = mongoc_bulk_operation_execute(bulk, &reply, &caught) != 0;
        else
            bson_init(&reply);
        status = mongo_write_take_answer(batch, done, &reply, &caught);
        *unsent = !done && caught.domain == MONGOC_ERROR_SERVER_SELECTION && !truce__mongo_lost() &&
                  !batch->session && status == TRUCE_IO;
        bson_destroy(&reply);
    }
    mongoc_bulk_operation_destroy(bulk);
    return status;
}

/* Returns whether the batch has no time limit: it may change any number of documents, and the
 * caller has set no deadline. */
static bool has_no_end(const struct mongo_batch *batch)
{
    return batch->writes[0].options.multi && !batch->wait_ms;
}

truce_status truce__mongo_send(struct mongo_store *store, mongoc_client_t *client,
                               const struct mongo_batch *batch, bson_error_t *error)
{
    truce_status status;
    bool unsent = false;

    truce_assert(batch->count == 1 || batch->all || batch->writes[0].kind == TRUCE_WRITE_INSERT);
    truce__mongo_limit(has_no_end(batch) ? 0
                       : batch->wait_ms  ? batch->wait_ms
                                         : store->deadline_ms);
    status = send_once(store, client, batch, &unsent);
    if (unsent && truce__mongo_await_server(store, client, NULL)) {
        for (size_t i = 0; i < batch->count; i++)
            batch->outcomes[i] = (truce_write_outcome){.status = TRUCE_NOT_FOUND};
        status = send_once(store, client, batch, &unsent);
    }
    for (size_t i = 0; status && error && i < batch->count; i++)
        if (batch->outcomes[i].error.message[0]) {
            *error = batch->outcomes[i].error;
            break;
        }
    return status;
}

/* ---- a bulk --------------------------------------------------------------------------------- */

size_t truce__mongo_batch_size(const truce_write *writes, size_t count)
{
    size_t size = 1;

    if (writes[0].kind != TRUCE_WRITE_INSERT)
        return 1;
    while (size < count && writes[size].kind == TRUCE_WRITE_INSERT &&
           writes[size].options.unvalidated == writes[0].options.unvalidated &&
           !strcmp(writes[size].collection, writes[0].collection))
        size++;
    return size;
}

static bool may_repeat(const struct mongo_batch *batch)
{
    const truce_write_outcome *outcome = &batch->outcomes[0];

    return batch->count == 1 && !batch->session && !batch->writes[0].options.multi &&
           outcome->status == TRUCE_CONFLICT && outcome->error.domain == TRUCE_ERROR_SERVER &&
           outcome->error.code == CODE_WRITE_CONFLICT;
}

static truce_status send_batch(struct mongo_store *store, mongoc_client_t *client,
                               const struct mongo_batch *batch, int64_t until_ns,
                               bson_error_t *error)
{
    truce_status status = truce__mongo_send(store, client, batch, error);

    for (uint32_t retry = 0; may_repeat(batch) && truce__clock_monotonic_ns() < until_ns; retry++) {
        truce__backoff_sleep(retry, 2, 64);
        batch->outcomes[0] = (truce_write_outcome){.status = TRUCE_NOT_FOUND};
        status = truce__mongo_send(store, client, batch, error);
    }
    return status;
}

/* Returns the next batch: the first writes that fit in one message. */
static struct mongo_batch mongo_write_next_batch(const struct mongo_store *store,
                                                 const truce_write *writes, size_t count,
                                                 const truce_bulk_options *options,
                                                 truce_write_outcome *outcomes)
{
    size_t size = truce__mongo_batch_size(writes, count);

    if (options->joined && writes[0].kind != TRUCE_WRITE_INSERT) {
        size = truce__mongo_together(writes, count);
        size = size ? size : 1;
    }
    return (struct mongo_batch){.writes = writes,
                                .count = size,
                                .outcomes = outcomes,
                                .unordered = options->unordered,
                                .wait_ms = options->deadline_ms,
                                .session = store->transaction ? store->transaction->session : NULL,
                                .relaxed = options->relaxed || store->relaxed};
}

static bool no_answer(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_IO;
}

/* Sends the batches one after the other. Ends at the first failure, or, if the bulk is unordered,
 * at a missing reply. Returns the first failure. */
static truce_status mongo_write_send_all(struct mongo_store *store, mongoc_client_t *client,
                                         const truce_write *writes, size_t count,
                                         const truce_bulk_options *options,
                                         truce_write_outcome *outcomes, bson_error_t *error)
{
    uint32_t wait_ms = options->deadline_ms ? options->deadline_ms : store->deadline_ms;
    int64_t until_ns = truce__clock_monotonic_ns() + (int64_t)wait_ms * 1000000;
    truce_status first = TRUCE_OK;

    for (size_t from = 0; from < count;) {
        struct mongo_batch batch =
            mongo_write_next_batch(store, writes + from, count - from, options, outcomes + from);
        /* The result of each write shows this, too. */
        bool all;
        truce_status status;

        batch.all = batch.count > 1 && writes[from].kind != TRUCE_WRITE_INSERT ? &all : NULL;
        status = send_batch(store, client, &batch, until_ns, first ? NULL : error);
        if (status && !first)
            first = status;
        if (status && (!options->unordered || no_answer(status)))
            break;
        from += batch.count;
    }
    return first;
}

truce_status truce__mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error)
{
    struct mongo_store *store = mongo_write_of(base);
    mongoc_client_t *client = NULL;
    truce_status status = truce__mongo_writable(store, error);

    for (size_t i = 0; i < count; i++)
        outcomes[i] =
            (truce_write_outcome){.status = options->atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND};
    if (status)
        return status;
    if (options->atomic) {
        status = truce__mongo_shards_check(store, NULL, writes, count, error);
        if (!status && store->transaction)
            return truce__mongo_transaction_write(store->transaction, writes, count, outcomes,
                                                  error);
        return status ? status
                      : truce__mongo_atomic(store, writes, count, options, outcomes, error);
    }
    status = truce__mongo_borrow(store, &client, error);
    if (!status)
        status = truce__mongo_shards_check(store, client, writes, count, error);
    if (!status)
        status = mongo_write_send_all(store, client, writes, count, options, outcomes, error);
    truce__mongo_return(store, client);
    return status;
}
