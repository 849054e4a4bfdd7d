/*
 * Atomic bulks and consistent reads, as transactions of MongoDB.
 *
 *     begin (with the first statement)   read concern snapshot
 *     each write, in order               its filter is its guard; neighbors of one kind go in one
 *                                        message (mongo_write.c)
 *     commit                             w: majority; j: true unless the commit is relaxed
 *
 * A failure before the commit was sent leaves nothing, now or later: a statement without a reply
 * is TRUCE_CONFLICT. The commit has three outcomes:
 *
 *   - It is done.
 *   - Nothing was changed: the label TransientTransactionError, or a known refusal of the first
 *     message.
 *   - The outcome is unknown. The commit is sent again, which is harmless, until the deadline; then
 *     the call fails with TRUCE_UNKNOWN. After one message without a reply, a refusal proves
 *     nothing, whether libmongoc or this file repeats it. A mongos that has restarted reports that
 *     it does not know the outcome (50940), although the shards may have decided.
 *
 * If a client dies, the server ends its transaction after a minute; until then its documents cause
 * WriteConflict.
 */
#include <string.h>

#include "base/assert.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "bson/value.h"
#include "store/maintenance.h"
#include "store/mongodb/mongo.h"

/* ---- guards ---------------------------------------------------------------------------------- */

/*
 * Guards of a transaction.
 *
 * Snapshot isolation does not check what a transaction has read, only what it has written. So a
 * guard is a write too, one that changes nothing but takes part in conflicts:
 *
 *     one document must match            a fresh field is set and removed again
 *     none may match, of a given _id     a stub with this _id is inserted and removed again
 *
 * A TRUCE_WRITE_REQUIRE_IN_SNAPSHOT is only read in the snapshot and takes no part in conflicts.
 *
 * A guard that requires that nothing matches must name an _id. Otherwise it is refused, because no
 * write can represent all documents that do not exist.
 */

static uint32_t mongo_left_ms(const struct mongo_transaction *transaction);
static truce_status transaction_refuse_match(const truce_write *write, bool found,
                                             bson_error_t *error);
static truce_status mongo_statement(struct mongo_transaction *transaction, const char *what,
                                    const bson_t *body, bool write, bson_t *reply,
                                    bson_error_t *error);

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
                         "%.200s; a transaction guards a document of %s that it only reads by "
                         "setting and removing a field %s: the collection's validator must allow "
                         "it, or the journal must commit",
                         why, collection, MONGO_TOUCH);
}

/* Returns the first refusal in the reply to a message of several statements. */
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

/* Sets the fresh field in the document that matches, and removes it from the document with this
 * _id, in one message. Sets `*touched` if there was a match. */
static truce_status touch_id(struct mongo_transaction *transaction, const char *collection,
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
    truce__mongo_what(text, sizeof text, "read a guard in", collection);
    status = mongo_statement(transaction, text, &body, true, &reply, error);
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

/* Finds the _id of the first match. Returns NOT_FOUND without a message if nothing matches. On
 * success, the caller destroys `id`. */
static truce_status find_id(struct mongo_transaction *transaction, const char *collection,
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
    status = mongo_statement(transaction,
                             truce__mongo_what(text, sizeof text, "read a guard in", collection),
                             &body, false, &reply, error);
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

/* Guards a match, so that a concurrent change of the document conflicts (TRUCE_WRITE_REQUIRE). */
static truce_status mongo_require(struct mongo_transaction *transaction, const truce_write *write,
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
            return status == TRUCE_NOT_FOUND ? transaction_refuse_match(write, false, error)
                                             : status;
        status = touch_id(transaction, write->collection, write->filter, &id, &touched, error);
        bson_value_destroy(&id);
    }
    return !status && !touched ? transaction_refuse_match(write, false, error) : status;
}

/* Returns the meaning of a refused stub. If its _id exists, the guard does not hold. If the stub
 * has a duplicate key in another index, only the stub is at fault. */
static truce_status diagnose_stub(const truce_write *write, truce_status status,
                                  bson_error_t *error)
{
    const char *index = strstr(error->message, "index: ");

    if (status != TRUCE_DUPLICATE)
        return status;
    if (!index || !strncmp(index, "index: _id_", 11))
        return transaction_refuse_match(write, true, error);
    return truce__fail(TRUCE_INVALID, error,
                       "the absence of a document of %s cannot be guarded, because a unique index "
                       "allows only one document without its fields; make it sparse or partial",
                       write->collection);
}

/* Inserts a document {_id} and removes it, so that a concurrent insert of this _id conflicts. */
static truce_status hold_missing(struct mongo_transaction *transaction, const truce_write *write,
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
                                    .wait_ms = mongo_left_ms(transaction),
                                    .outcomes = &outcome,
                                    .session = transaction->session};

        status = truce__mongo_send(transaction->store, transaction->client, &batch, &caught);
    }
    bson_destroy(&stub);
    status = diagnose_stub(write, status, &caught);
    if (status)
        *error = caught;
    return status;
}

/* Guards the absence of a match for a given _id, so that a concurrent insert conflicts. If the
 * document exists without matching, a write to it is the guard. */
static truce_status mongo_require_missing(struct mongo_transaction *transaction,
                                          const truce_write *write, bson_error_t *error)
{
    bson_value_t id = {0}, found = {0};
    bool touched = false;
    truce_status status;
    bson_t by_id = BSON_INITIALIZER;

    if (!truce__mongo_names_id(write->filter, &id)) {
        bson_destroy(&by_id);
        return truce__fail(TRUCE_INVALID, error,
                           "the absence of a match in %s can be guarded on this store only for a "
                           "given _id",
                           write->collection);
    }
    /* The document may exist and not match. */
    if (bson_count_keys(write->filter) > 1) {
        status = find_id(transaction, write->collection, write->filter, &found, error);
        if (!status) {
            bson_value_destroy(&found);
            bson_destroy(&by_id);
            return transaction_refuse_match(write, true, error);
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

static truce_status mongo_require_match(struct mongo_transaction *transaction,
                                        const truce_write *write, bson_error_t *error)
{
    bson_value_t id = {0};
    truce_status status = find_id(transaction, write->collection, write->filter, &id, error);

    if (!status)
        bson_value_destroy(&id);
    return status == TRUCE_NOT_FOUND ? transaction_refuse_match(write, false, error) : status;
}

/* ---- transactions ---------------------------------------------------------------------------- */

/* The minimum milliseconds for a message, also after the deadline. */
#define LEAST_MS 100

/* ---- begin, commit, abort ------------------------------------------------------------------- */

static uint32_t mongo_left_ms(const struct mongo_transaction *transaction)
{
    int64_t left_ms = (transaction->until_ns - truce__clock_monotonic_ns()) / 1000000;

    return left_ms > LEAST_MS ? (uint32_t)left_ms : LEAST_MS;
}

/* Makes the options of a transaction. The caller destroys them. */
static mongoc_transaction_opt_t *transaction_make_options(const struct mongo_store *store,
                                                          bool relaxed)
{
    mongoc_transaction_opt_t *options = mongoc_transaction_opts_new();
    mongoc_write_concern_t *write = truce__mongo_write_concern(store, relaxed || store->relaxed);
    mongoc_read_concern_t *read = mongoc_read_concern_new();

    mongoc_read_concern_set_level(read, MONGOC_READ_CONCERN_LEVEL_SNAPSHOT);
    mongoc_transaction_opts_set_read_concern(options, read);
    mongoc_transaction_opts_set_write_concern(options, write);
    mongoc_transaction_opts_set_max_commit_time_ms(options, truce__mongo_wait_ms(store));
    mongoc_read_concern_destroy(read);
    mongoc_write_concern_destroy(write);
    return options;
}

void truce__mongo_transaction_release(struct mongo_transaction *transaction)
{
    if (transaction->session && mongo_left_ms(transaction) <= LEAST_MS)
        mongoc_client_reset(transaction->client);
    truce__mongo_limit(mongo_left_ms(transaction));
    if (transaction->session)
        /* Destroying the session aborts a transaction that is still open. */
        mongoc_client_session_destroy(transaction->session);
    truce__mongo_return(transaction->store, transaction->client);
}

truce_status truce__mongo_transaction_begin(struct mongo_store *store, uint32_t deadline_ms,
                                            bool relaxed, struct mongo_transaction *transaction,
                                            bson_error_t *error)
{
    uint32_t wait_ms = deadline_ms ? deadline_ms : store->deadline_ms;
    mongoc_session_opt_t *session = mongoc_session_opts_new();
    mongoc_transaction_opt_t *options;
    const bson_t none = BSON_INITIALIZER;
    bson_error_t caught = {0};
    truce_status status;

    *transaction = (struct mongo_transaction){
        .store = store, .until_ns = truce__clock_monotonic_ns() + (int64_t)wait_ms * 1000000};
    truce__mongo_limit(wait_ms);
    options = transaction_make_options(store, relaxed);
    mongoc_session_opts_set_causal_consistency(session, false);
    status = truce__mongo_borrow(store, &transaction->client, error);
    if (!status) {
        if (truce__mongo_await_server(store, transaction->client, &caught))
            transaction->session =
                mongoc_client_start_session(transaction->client, session, &caught);
        if (!transaction->session ||
            !mongoc_client_session_start_transaction(transaction->session, options, &caught))
            status = truce__mongo_failed(MONGO_READ, "begin a transaction", &none, &caught, error);
    }
    if (status)
        truce__mongo_transaction_release(transaction);
    mongoc_transaction_opts_destroy(options);
    mongoc_session_opts_destroy(session);
    return status;
}

/* Sends the commit once (libmongoc may send it twice). Sets `*lost` if a reply was lost; the caller
 * passes it on, because after a lost reply a later refusal proves nothing. Sets `*again` if another
 * message may reveal the outcome. Returns UNKNOWN if it is unknown. */
static truce_status commit_once(struct mongo_transaction *transaction, bool *lost, bool *again,
                                bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    bool transient, done;
    bson_t reply;

    truce__mongo_limit(mongo_left_ms(transaction));
    truce__mongo_call();
    done = mongoc_client_session_commit_transaction(transaction->session, &reply, &caught);
    *again = truce__mongo_has_label(&reply, "UnknownTransactionCommitResult");
    transient = truce__mongo_has_label(&reply, "TransientTransactionError") && !*again;
    *lost = *lost || truce__mongo_lost() || *again;
    if (!done)
        status = truce__mongo_failed(transient ? MONGO_STATEMENT : MONGO_WRITE,
                                     "commit a transaction", &reply, &caught, error);
    if (!done && !transient && (*lost || !truce__mongo_is_certain(&caught)))
        status =
            truce__fail(TRUCE_UNKNOWN, error,
                        "commit a transaction: the outcome is unknown (%.300s)", caught.message);
    bson_destroy(&reply);
    return status;
}

truce_status truce__mongo_transaction_commit(struct mongo_transaction *transaction,
                                             bson_error_t *error)
{
    bool lost = false, again = false;
    truce_status status;

    while ((status = commit_once(transaction, &lost, &again, error)) == TRUCE_UNKNOWN && again &&
           truce__clock_monotonic_ns() < transaction->until_ns)
        truce__backoff_sleep(0, 50, 50);
    return status;
}

/* ---- statements ---- */

/* Reports that a document matches the filter of a write (`found`), or that none does. */
static truce_status transaction_refuse_match(const truce_write *write, bool found,
                                             bson_error_t *error)
{
    char shown[200];

    return truce__fail(
        TRUCE_CONFLICT, error, "%s document of %s matches %s", found ? "a" : "no",
        write->collection,
        write->filter ? truce__value_show(truce__value_document(write->filter), shown, sizeof shown)
                      : "{}");
}

/* Runs a statement. `write` means that it changes documents. Always initializes `reply`. */
static truce_status mongo_statement(struct mongo_transaction *transaction, const char *what,
                                    const bson_t *body, bool write, bson_t *reply,
                                    bson_error_t *error)
{
    struct mongo_command command = {.what = what,
                                    .body = body,
                                    .kind = MONGO_STATEMENT,
                                    .write_concern = write,
                                    .wait_ms = mongo_left_ms(transaction),
                                    .session = transaction->session};

    return truce__mongo_run(transaction->store, transaction->client, &command, reply, error);
}

/* ---- writes --------------------------------------------------------------------------------- */

/* Runs one guard, or sends the writes of one message. An update or remove that matches nothing
 * fails with CONFLICT, because its filter is its guard. */
static truce_status send_some(struct mongo_transaction *transaction, const truce_write *writes,
                              size_t count, truce_write_outcome *outcomes, bson_error_t *error)
{
    struct mongo_batch batch = {.writes = writes,
                                .count = count,
                                .outcomes = outcomes,
                                .wait_ms = mongo_left_ms(transaction),
                                .session = transaction->session};
    truce_status status;

    if (writes->kind == TRUCE_WRITE_REQUIRE)
        status = outcomes->status = mongo_require(transaction, writes, &outcomes->error);
    else if (writes->kind == TRUCE_WRITE_REQUIRE_IN_SNAPSHOT)
        status = outcomes->status = mongo_require_match(transaction, writes, &outcomes->error);
    else if (writes->kind == TRUCE_WRITE_REQUIRE_MISSING)
        status = outcomes->status = mongo_require_missing(transaction, writes, &outcomes->error);
    else
        status = truce__mongo_send(transaction->store, transaction->client, &batch, error);
    if (!status && (writes->kind == TRUCE_WRITE_UPDATE || writes->kind == TRUCE_WRITE_REMOVE) &&
        !outcomes->result.matched && !outcomes->result.upserted)
        status = outcomes->status = transaction_refuse_match(writes, false, &outcomes->error);
    return status;
}

static void transaction_forget(truce_write_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = TRUCE_CONFLICT};
}

/* Resets the outcomes of the writes before the failure, because the transaction has no effect. */
static void transaction_take_back(truce_write_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        if (!outcomes[i].error.message[0])
            outcomes[i].status = TRUCE_CONFLICT;
    }
}

static truce_status copy_first_error(const truce_write_outcome *outcomes, size_t count,
                                     truce_status status, bson_error_t *error)
{
    for (size_t i = 0; i < count; i++)
        if (outcomes[i].error.message[0]) {
            *error = outcomes[i].error;
            return outcomes[i].status;
        }
    return status;
}

/* Sends as many writes as fit in one message, and counts them. Sets `*all` to false if one of them
 * matched nothing. */
static truce_status send_next(struct mongo_transaction *transaction, const truce_write *writes,
                              size_t count, bool *all, truce_write_outcome *outcomes, size_t *sent,
                              bson_error_t *error)
{
    struct mongo_batch batch = {.writes = writes,
                                .outcomes = outcomes,
                                .wait_ms = mongo_left_ms(transaction),
                                .session = transaction->session};

    batch.count = *all ? truce__mongo_together(writes, count) : 0;
    if (batch.count > 1) {
        *sent += batch.count;
        return truce__mongo_send_together(transaction->store, transaction->client, &batch, all,
                                          error);
    }
    batch.count = truce__mongo_batch_size(writes, count);
    *sent += batch.count;
    return send_some(transaction, writes, batch.count, outcomes, error);
}

/* Returns the _id that the write names, or a missing value. */
static struct value ahead_id(const truce_write *write)
{
    bool inserts = write->kind == TRUCE_WRITE_INSERT;
    struct value id = truce__value_field(
        truce__value_document(inserts ? write->document : write->filter), "_id", 3);
    struct fields fields;

    if (inserts)
        return id;
    if (!truce__mongo_names_id(write->filter, NULL))
        return truce__value_missing();
    if (id.type != BSON_TYPE_DOCUMENT)
        return id;
    fields = truce__fields(id);
    return truce__fields_next(&fields) && !strcmp(fields.key, "$eq") ? fields.value : id;
}

/* Returns whether no earlier write of the bulk can change which document this write finds. */
static bool ahead_is_independent(const truce_write *writes, size_t number)
{
    struct value id = ahead_id(&writes[number]);

    for (size_t i = 0; i < number; i++)
        if (!strcmp(writes[i].collection, writes[number].collection)) {
            struct value other = ahead_id(&writes[i]);

            if (!id.type || !other.type || truce__value_equal(id, other))
                return false;
        }
    return true;
}

/* Checks, before a write is sent, whether it would certainly fail: a duplicate _id, or a guard that
 * does not hold. */
static truce_status ahead_check(struct mongo_transaction *transaction, const truce_write *write,
                                bson_error_t *error)
{
    bool inserts = write->kind == TRUCE_WRITE_INSERT;
    bson_value_t stored = truce__document_id(inserts ? write->document : write->filter), id = {0};
    bson_t by_id = BSON_INITIALIZER, equal;
    truce_status status;

    if (inserts) {
        BSON_APPEND_DOCUMENT_BEGIN(&by_id, "_id", &equal);
        BSON_APPEND_VALUE(&equal, "$eq", &stored);
        bson_append_document_end(&by_id, &equal);
    }
    status = find_id(transaction, write->collection, inserts ? &by_id : write->filter, &id, error);
    bson_destroy(&by_id);
    if (!status)
        bson_value_destroy(&id);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (!status && inserts)
        return truce__refuse(CODE_DUPLICATE_KEY, error,
                             "insert into %s: E11000 duplicate key error collection: %s.%s index: "
                             "_id_",
                             write->collection, transaction->store->database, write->collection);
    if (!status && write->kind == TRUCE_WRITE_REQUIRE_MISSING)
        return transaction_refuse_match(write, true, error);
    return status && !inserts && write->kind != TRUCE_WRITE_REQUIRE_MISSING
               ? transaction_refuse_match(write, false, error)
               : TRUCE_OK;
}

truce_status truce__mongo_transaction_predict(struct mongo_transaction *transaction,
                                              const truce_write *writes, size_t count,
                                              truce_write_outcome *outcomes, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    transaction_forget(outcomes, count);
    for (size_t i = 0; i < count && !status; i++)
        if (!writes[i].options.upsert && ahead_is_independent(writes, i)) {
            status = ahead_check(transaction, &writes[i], &outcomes[i].error);
            if (status) {
                outcomes[i].status = status;
                *error = outcomes[i].error;
            }
        }
    return status;
}

truce_status truce__mongo_transaction_write(struct mongo_transaction *transaction,
                                            const truce_write *writes, size_t count,
                                            truce_write_outcome *outcomes, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    /* Each update and remove has its own message, so that a failure names its write: the
     * transaction cannot run again. Neighboring inserts of one collection share a message, whose
     * reply names the insert that failed. */
    bool together = false;

    for (size_t sent = 0; sent < count && !status;)
        status = send_next(transaction, writes + sent, count - sent, &together, outcomes + sent,
                           &sent, error);
    if (status) {
        status = copy_first_error(outcomes, count, status, error);
        transaction_take_back(outcomes, count);
    }
    return status;
}

/* Runs the transaction. If `*together` is set, several writes may share a message. If the function
 * clears it, the transaction must run again with one message for each update and remove, to find
 * the one that matched nothing. */
static truce_status transaction_attempt(struct mongo_store *store, const truce_write *writes,
                                        size_t count, const truce_bulk_options *options,
                                        bool *together, truce_write_outcome *outcomes,
                                        bson_error_t *error)
{
    struct mongo_transaction transaction;
    truce_status status = truce__mongo_transaction_begin(store, options->deadline_ms,
                                                         options->relaxed, &transaction, error);
    bool wanted = *together;

    if (status)
        return status;
    for (size_t sent = 0; sent < count && !status && *together == wanted;)
        status = send_next(&transaction, writes + sent, count - sent, together, outcomes + sent,
                           &sent, error);
    if (!status && *together != wanted)
        status =
            truce__fail(TRUCE_CONFLICT, error,
                        "one of several writes that were sent as one message matched no document");
    else if (status)
        status = copy_first_error(outcomes, count, status, error);
    else
        status = truce__mongo_transaction_commit(&transaction, error);
    truce__mongo_transaction_release(&transaction);
    if (status)
        transaction_take_back(outcomes, count);
    return status;
}

/* Makes an attempt with few messages. If it does not show which write failed, makes another with
 * one message for each update and remove. */
static truce_status transaction_try_attempts(struct mongo_store *store, const truce_write *writes,
                                             size_t count, const truce_bulk_options *options,
                                             truce_write_outcome *outcomes, bson_error_t *error)
{
    bool together = true;
    truce_status status =
        transaction_attempt(store, writes, count, options, &together, outcomes, error);

    if (together)
        return status;
    transaction_forget(outcomes, count);
    *error = (bson_error_t){0};
    return transaction_attempt(store, writes, count, options, &together, outcomes, error);
}

/* Creates the collections that the writes may insert into, outside of any transaction: MongoDB
 * before 4.4 cannot create one within a transaction. */
static truce_status make_collections(struct mongo_store *store, const truce_write *writes,
                                     size_t count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        if (writes[i].kind != TRUCE_WRITE_INSERT && !writes[i].options.upsert &&
            writes[i].kind != TRUCE_WRITE_REQUIRE_MISSING)
            continue;
        status = truce__mongo_collection_create(&store->base, writes[i].collection, error);
        if (status == TRUCE_DUPLICATE)
            status = TRUCE_OK;
    }
    return status;
}

truce_status truce__mongo_atomic(struct mongo_store *store, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    if (!(store->base.capabilities & TRUCE_CAN_ATOMIC_BULK))
        return truce__fail(TRUCE_INVALID, error,
                           "this server has no transactions, so no bulk is atomic");
    status = transaction_try_attempts(store, writes, count, options, outcomes, &caught);
    if (status && caught.domain == TRUCE_ERROR_SERVER && caught.code == CODE_NOT_IN_TRANSACTION) {
        transaction_forget(outcomes, count);
        status = make_collections(store, writes, count, &caught);
        if (!status)
            status = transaction_try_attempts(store, writes, count, options, outcomes, &caught);
    }
    if (status && error)
        *error = caught;
    return status;
}

/* ---- read_many ------------------------------------------------------------------------------- */

/* Reads a document by its _id as a statement of the transaction. */
static truce_status transaction_read_one(struct mongo_transaction *transaction,
                                         truce_read_request *one, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, filter, equal, reply, view;
    bson_iter_t iter, found;
    const uint8_t *bytes;
    uint32_t size;
    char text[200];
    truce_status status;

    BSON_APPEND_UTF8(&body, "find", one->collection);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "filter", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &equal);
    BSON_APPEND_VALUE(&equal, "$eq", one->id);
    bson_append_document_end(&filter, &equal);
    bson_append_document_end(&body, &filter);
    BSON_APPEND_INT64(&body, "limit", 1);
    BSON_APPEND_BOOL(&body, "singleBatch", true);
    status = mongo_statement(
        transaction, truce__mongo_what(text, sizeof text, "read a document of", one->collection),
        &body, false, &reply, error);
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch.0", &found) &&
        BSON_ITER_HOLDS_DOCUMENT(&found)) {
        bson_iter_document(&found, &size, &bytes);
        if (!bson_init_static(&view, bytes, size))
            status = truce__fail(TRUCE_IO, error, "%s: the server's reply has no document", text);
        else if (truce__document_check(&view, "document", NULL))
            status = truce__mongo_malformed(text, &view, error);
        else
            bson_concat(&one->document, &view);
        one->found = !status;
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

/* Reads the documents in one transaction, which only reads. After CONFLICT or UNKNOWN, it may
 * be repeated. */
static truce_status transaction_read_many(struct mongo_store *store, truce_read_request *requests,
                                          size_t count, bson_error_t *error)
{
    struct mongo_transaction transaction;
    truce_status status = truce__mongo_transaction_begin(store, 0, true, &transaction, error);

    if (status)
        return status;
    for (size_t i = 0; i < count && !status; i++)
        status = transaction_read_one(&transaction, &requests[i], error);
    if (!status)
        status = truce__mongo_transaction_commit(&transaction, error);
    truce__mongo_transaction_release(&transaction);
    return status;
}

truce_status truce__mongo_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                    bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    int64_t until_ns = truce__clock_monotonic_ns() + (int64_t)store->deadline_ms * 1000000;
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&requests[i].document);
        requests[i].found = false;
    }
    while ((status = transaction_read_many(store, requests, count, error)) == TRUCE_CONFLICT ||
           status == TRUCE_UNKNOWN) {
        for (size_t i = 0; i < count; i++) {
            bson_reinit(&requests[i].document);
            requests[i].found = false;
        }
        if (truce__clock_monotonic_ns() > until_ns)
            break;
        truce__backoff_sleep(0, 20, 20);
    }
    for (size_t i = 0; status && i < count; i++) {
        bson_reinit(&requests[i].document);
        requests[i].found = false;
    }
    return status;
}

truce_status truce__mongo_probe_transaction(struct mongo_store *store, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    truce_read_request probe = {.collection = PROBE, .id = &id};
    truce_status status;

    bson_oid_init(&id.value.v_oid, NULL);
    bson_init(&probe.document);
    status = transaction_read_many(store, &probe, 1, error);
    bson_destroy(&probe.document);
    return status;
}
