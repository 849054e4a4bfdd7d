/*
 * Guards of a transaction.
 *
 * Snapshot isolation does not see what a transaction has read, only what it has written. So a guard
 * is a write, too, one that leaves nothing behind but takes part in conflicts:
 *
 *     one must match                     a fresh field is set and taken away again
 *     none may, of a given _id           a stub with this _id is inserted and removed again
 *
 * A look (TRUCE_WRITE_LOOK) is none: it is read in the snapshot, and takes no part in conflicts.
 *
 * Guards without a change that do not name an _id, and ask that nothing matches, are refused: no
 * write can stand for all documents that are not there.
 */
#include <string.h>

#include "store/mongodb/mongo_transaction.h"

static void guard_append_change(bson_t *updates, const char *key, const bson_t *filter,
                                const char *operation, const bson_oid_t *fresh)
{
    bson_t statement, update, fields;

    bson_append_document_begin(updates, key, -1, &statement);
    BSON_APPEND_DOCUMENT(&statement, "q", filter);
    BSON_APPEND_DOCUMENT_BEGIN(&statement, "u", &update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, operation, &fields);
    BSON_APPEND_OID(&fields, MONGO_TOUCH, fresh);
    bson_append_document_end(&update, &fields);
    bson_append_document_end(&statement, &update);
    bson_append_document_end(updates, &statement);
}

truce_status truce__mongo_guard_refused(truce_status status, const char *collection,
                                        bson_error_t *error)
{
    char why[sizeof error->message];

    if (status != TRUCE_INVALID || error->domain != TRUCE_ERROR_SERVER ||
        error->code != CODE_DOCUMENT_VALIDATION_FAILURE)
        return status;
    memcpy(why, error->message, sizeof why);
    return truce__refuse(CODE_DOCUMENT_VALIDATION_FAILURE, error,
                         "%.200s; a transaction guards a document of %s that it only reads by a "
                         "field %s, which is set and taken away: the collection's validator has to "
                         "allow it, or the journal is to commit",
                         why, collection, MONGO_TOUCH);
}

/* The first refusal in the answer to a message of several statements. */
static truce_status first_refusal(const bson_t *reply, const char *what, bson_error_t *error)
{
    int64_t code = truce__mongo_number(reply, "writeErrors.0.code", -1);
    const char *message = NULL;
    bson_iter_t iter, found;

    if (code < 0)
        return TRUCE_OK;
    if (bson_iter_init(&iter, reply) &&
        bson_iter_find_descendant(&iter, "writeErrors.0.errmsg", &found) &&
        BSON_ITER_HOLDS_UTF8(&found))
        message = bson_iter_utf8(&found, NULL);
    return truce__mongo_refused(MONGO_STATEMENT, what, (uint32_t)code, message, error);
}

/* Sets the fresh field in what matches and takes it away from the document with this _id, in one
 * message. `*touched` counts what matched. */
static truce_status touch_id(struct transaction *transaction, const char *collection,
                             const bson_t *filter, const bson_value_t *id, bool *touched,
                             bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, updates, by_id = BSON_INITIALIZER, equal, reply;
    bson_oid_t fresh;
    char text[200];
    truce_status status;

    bson_oid_init(&fresh, NULL);
    BSON_APPEND_DOCUMENT_BEGIN(&by_id, "_id", &equal);
    BSON_APPEND_VALUE(&equal, "$eq", id);
    bson_append_document_end(&by_id, &equal);
    BSON_APPEND_OID(&by_id, MONGO_TOUCH, &fresh);
    BSON_APPEND_UTF8(&body, "update", collection);
    BSON_APPEND_ARRAY_BEGIN(&body, "updates", &updates);
    guard_append_change(&updates, "0", filter, "$set", &fresh);
    guard_append_change(&updates, "1", &by_id, "$unset", &fresh);
    bson_append_array_end(&body, &updates);
    truce__mongo_what(text, sizeof text, "look at a guard in", collection);
    status = truce__mongo_statement(transaction, text, &body, true, &reply, error);
    if (!status)
        status = first_refusal(&reply, text, error);
    if (status)
        status = truce__mongo_guard_refused(status, collection, error);
    *touched = !status && truce__mongo_number(&reply, "n", 0) == 2;
    bson_destroy(&reply);
    bson_destroy(&body);
    bson_destroy(&by_id);
    return status;
}

/* The _id of the first match; NOT_FOUND without a sentence. The caller destroys `id` on success. */
static truce_status find_id(struct transaction *transaction, const char *collection,
                            const bson_t *filter, bson_value_t *id, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, projection, reply;
    bson_iter_t iter, found;
    char text[200];
    truce_status status;

    BSON_APPEND_UTF8(&body, "find", collection);
    BSON_APPEND_DOCUMENT(&body, "filter", filter);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "projection", &projection);
    BSON_APPEND_INT32(&projection, "_id", 1);
    bson_append_document_end(&body, &projection);
    BSON_APPEND_INT64(&body, "limit", 1);
    BSON_APPEND_BOOL(&body, "singleBatch", true);
    status = truce__mongo_statement(
        transaction, truce__mongo_what(text, sizeof text, "look at a guard in", collection), &body,
        false, &reply, error);
    if (!status) {
        if (bson_iter_init(&iter, &reply) &&
            bson_iter_find_descendant(&iter, "cursor.firstBatch.0._id", &found))
            bson_value_copy(bson_iter_value(&found), id);
        else
            status = TRUCE_NOT_FOUND;
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_require(struct transaction *transaction, const truce_write *write,
                                  bson_error_t *error)
{
    bson_value_t id = {0};
    bool touched = false;
    truce_status status;

    if (truce__mongo_names_id(write->filter, &id)) {
        status = touch_id(transaction, write->collection, write->filter, &id, &touched, error);
    } else {
        status = find_id(transaction, write->collection, write->filter, &id, error);
        if (status)
            return status == TRUCE_NOT_FOUND ? truce__mongo_none_matches(write->collection, error)
                                             : status;
        status = touch_id(transaction, write->collection, write->filter, &id, &touched, error);
        bson_value_destroy(&id);
    }
    return !status && !touched ? truce__mongo_none_matches(write->collection, error) : status;
}

/* A taken _id is what the guard looks for; a taken key of another index is an accident of the stub. */
static truce_status judge_stub(const truce_write *write, truce_status status, bson_error_t *error)
{
    const char *index = strstr(error->message, "index: ");

    if (status != TRUCE_DUPLICATE)
        return status;
    if (!index || !strncmp(index, "index: _id_", 11))
        return truce__fail(TRUCE_CONFLICT, error, "a document of %s matches", write->collection);
    return truce__fail(TRUCE_INVALID, error,
                       "that a document of %s is missing cannot be held: a unique index has room "
                       "for one document without its fields only; make it sparse or partial",
                       write->collection);
}

/* Inserts {_id} and removes it. */
static truce_status hold_missing(struct transaction *transaction, const truce_write *write,
                                 const bson_value_t *id, bson_error_t *error)
{
    bson_t stub = BSON_INITIALIZER;
    truce_write writes[2] = {{TRUCE_WRITE_INSERT, write->collection, NULL, &stub, {0}},
                             {TRUCE_WRITE_REMOVE, write->collection, &stub, NULL, {0}}};
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;

    BSON_APPEND_VALUE(&stub, "_id", id);
    for (int i = 0; i < 2 && !status; i++) {
        truce_write_outcome outcome = {0};
        struct mongo_batch batch = {.writes = &writes[i],
                                    .count = 1,
                                    .wait_ms = truce__mongo_left_ms(transaction),
                                    .outcomes = &outcome,
                                    .session = transaction->session};

        status = truce__mongo_send(transaction->store, transaction->client, &batch, &caught);
    }
    bson_destroy(&stub);
    status = judge_stub(write, status, &caught);
    if (status)
        *error = caught;
    return status;
}

truce_status truce__mongo_require_missing(struct transaction *transaction, const truce_write *write,
                                          bson_error_t *error)
{
    bson_value_t id = {0}, found = {0};
    bool touched = false;
    truce_status status;
    bson_t by_id = BSON_INITIALIZER;

    if (!truce__mongo_names_id(write->filter, &id)) {
        bson_destroy(&by_id);
        return truce__fail(TRUCE_INVALID, error,
                           "that no document of %s matches can be held on this store only for a "
                           "given _id",
                           write->collection);
    }
    if (bson_count_keys(write->filter) > 1) { /* it may be there, and not match */
        status = find_id(transaction, write->collection, write->filter, &found, error);
        if (!status) {
            bson_value_destroy(&found);
            bson_destroy(&by_id);
            return truce__fail(TRUCE_CONFLICT, error, "a document of %s matches",
                               write->collection);
        }
        BSON_APPEND_VALUE(&by_id, "_id", &id);
        if (status == TRUCE_NOT_FOUND)
            status = touch_id(transaction, write->collection, &by_id, &id, &touched, error);
        bson_destroy(&by_id);
        if (status || touched)
            return status;
    } else {
        bson_destroy(&by_id);
    }
    return hold_missing(transaction, write, &id, error);
}

truce_status truce__mongo_look(struct transaction *transaction, const truce_write *write,
                               bson_error_t *error)
{
    bson_value_t id = {0};
    truce_status status = find_id(transaction, write->collection, write->filter, &id, error);

    if (!status)
        bson_value_destroy(&id);
    return status == TRUCE_NOT_FOUND ? truce__mongo_none_matches(write->collection, error) : status;
}
