/*
 * Atomic bulks and looks of one instant, as transactions of MongoDB.
 *
 *     begin (with the first statement)   read concern snapshot
 *     each write, in order               its filter is its guard; what stands side by side and is of
 *                                        one kind goes in one message (mongo_together.c)
 *     commit                             w: majority, j: true
 *
 * States: a failure before the commit was sent leaves nothing, now or later: an unanswered statement
 * is TRUCE_CONFLICT. The commit has three ends: done; surely not (label TransientTransactionError; or a
 * refusal of the first message, if it is a known one); and not known, where it is sent again, which is
 * harmless, until the deadline: TRUCE_UNKNOWN. After one message without an answer, whether libmongoc
 * repeated it or this file, a refusal is none: a mongos that came back says that it cannot tell (50940),
 * and the shards may have decided. A client that dies leaves a transaction that the server ends
 * after a minute; its documents answer WriteConflict until then.
 */
#include "store/mongodb/mongo_transaction.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/random.h"
#include "bson/value.h"

/* MongoDB before 4.4 makes no collection within a transaction. */

/* A message gets so long, also when it is late. */
#define LEAST_MS 100

/* ---- begin, commit, abort ------------------------------------------------------------------- */

uint32_t truce__mongo_left_ms(const struct transaction *transaction)
{
    int64_t left_ms = (transaction->until_ns - truce__clock_monotonic_ns()) / 1000000;

    return left_ms > LEAST_MS ? (uint32_t)left_ms : LEAST_MS;
}

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

/* Out of time, nobody waits for the abort: the server ends the transaction by itself. */
static void transaction_release(struct transaction *transaction)
{
    if (transaction->session && truce__mongo_left_ms(transaction) <= LEAST_MS)
        mongoc_client_reset(transaction->client);
    truce__mongo_limit(truce__mongo_left_ms(transaction));
    if (transaction->session)
        mongoc_client_session_destroy(transaction->session); /* aborts what was begun */
    truce__mongo_return(transaction->store, transaction->client);
}

static truce_status transaction_begin(struct mongo_store *store, uint32_t deadline_ms, bool relaxed,
                                      struct transaction *transaction, bson_error_t *error)
{
    uint32_t wait_ms = deadline_ms ? deadline_ms : store->deadline_ms;
    mongoc_session_opt_t *session = mongoc_session_opts_new();
    mongoc_transaction_opt_t *options;
    const bson_t none = BSON_INITIALIZER;
    bson_error_t caught = {0};
    truce_status status;

    *transaction = (struct transaction){
        .store = store, .until_ns = truce__clock_monotonic_ns() + (int64_t)wait_ms * 1000000};
    truce__mongo_limit(wait_ms);
    options = transaction_make_options(store, relaxed);
    mongoc_session_opts_set_causal_consistency(session, false);
    status = truce__mongo_borrow(store, &transaction->client, error);
    if (!status) {
        (void)truce__mongo_await_server(store, transaction->client,
                                        NULL); /* or the next line tells */
        transaction->session = mongoc_client_start_session(transaction->client, session, &caught);
        if (!transaction->session ||
            !mongoc_client_session_start_transaction(transaction->session, options, &caught))
            status = truce__mongo_failed(MONGO_READ, "begin a transaction", &none, &caught, error);
    }
    if (status)
        transaction_release(transaction);
    mongoc_transaction_opts_destroy(options);
    mongoc_session_opts_destroy(session);
    return status;
}

/* One message, or two of libmongoc. *again: it may be told by the next. */
static truce_status commit_once(struct transaction *transaction, bool *lost, bool *again,
                                bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    bool transient, done;
    bson_t reply;

    truce__mongo_limit(truce__mongo_left_ms(transaction));
    truce__mongo_call();
    done = mongoc_client_session_commit_transaction(transaction->session, &reply, &caught);
    *again = truce__mongo_has_label(&reply, "UnknownTransactionCommitResult");
    transient = truce__mongo_has_label(&reply, "TransientTransactionError") && !*again;
    *lost = *lost || truce__mongo_lost() || *again;
    if (!done)
        status = truce__mongo_failed(transient ? MONGO_STATEMENT : MONGO_WRITE,
                                     "commit a transaction", &reply, &caught, error);
    if (!done && !transient && (*lost || !truce__mongo_is_certain(&caught)))
        status = truce__fail(TRUCE_UNKNOWN, error,
                             "commit a transaction: the server did not say what became of it "
                             "(%.300s)",
                             caught.message);
    bson_destroy(&reply);
    return status;
}

/* OK; CONFLICT: surely nothing was changed; UNKNOWN. */
static truce_status transaction_commit(struct transaction *transaction, bson_error_t *error)
{
    bool lost = false, again = false;
    truce_status status;

    while ((status = commit_once(transaction, &lost, &again, error)) == TRUCE_UNKNOWN && again &&
           truce__clock_monotonic_ns() < transaction->until_ns)
        truce__clock_sleep_ms((int64_t)(truce__random_entropy() % 50));
    return status;
}

/* ---- statements ---- */

truce_status truce__mongo_none_matches(const char *collection, bson_error_t *error)
{
    return truce__fail(TRUCE_CONFLICT, error, "no document of %s matches", collection);
}

truce_status truce__mongo_statement(struct transaction *transaction, const char *what,
                                    const bson_t *body, bool write, bson_t *reply,
                                    bson_error_t *error)
{
    struct mongo_command command = {.what = what,
                                    .body = body,
                                    .kind = MONGO_STATEMENT,
                                    .write_concern = write,
                                    .wait_ms = truce__mongo_left_ms(transaction),
                                    .session = transaction->session};

    return truce__mongo_run(transaction->store, transaction->client, &command, reply, error);
}

/* ---- writes --------------------------------------------------------------------------------- */

static truce_status send_some(struct transaction *transaction, const truce_write *writes,
                              size_t count, truce_write_outcome *outcomes, bson_error_t *error)
{
    struct mongo_batch batch = {.writes = writes,
                                .count = count,
                                .outcomes = outcomes,
                                .wait_ms = truce__mongo_left_ms(transaction),
                                .session = transaction->session};
    truce_status status;

    if (writes->kind == TRUCE_WRITE_REQUIRE)
        status = outcomes->status = truce__mongo_require(transaction, writes, &outcomes->error);
    else if (writes->kind == TRUCE_WRITE_LOOK)
        status = outcomes->status = truce__mongo_look(transaction, writes, &outcomes->error);
    else if (writes->kind == TRUCE_WRITE_REQUIRE_MISSING)
        status = outcomes->status =
            truce__mongo_require_missing(transaction, writes, &outcomes->error);
    else
        status = truce__mongo_send(transaction->store, transaction->client, &batch, error);
    if (!status && (writes->kind == TRUCE_WRITE_UPDATE || writes->kind == TRUCE_WRITE_REMOVE) &&
        !outcomes->result.matched && !outcomes->result.upserted)
        status = outcomes->status = truce__mongo_none_matches(writes->collection, &outcomes->error);
    return status;
}

/* Nothing was done: what was answered before the failure is taken back. */
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

/* Sends as many as go in one message, and counts them in. *all false: one of them found nothing. */
static truce_status send_next(struct transaction *transaction, const truce_write *writes,
                              size_t count, bool *all, truce_write_outcome *outcomes, size_t *sent,
                              bson_error_t *error)
{
    struct mongo_batch batch = {.writes = writes,
                                .outcomes = outcomes,
                                .wait_ms = truce__mongo_left_ms(transaction),
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

/* *together: several writes may be one message; false after it: it has to be done again without, to see
 * which of them found nothing. */
static truce_status transaction_attempt(struct mongo_store *store, const truce_write *writes,
                                        size_t count, const truce_bulk_options *options,
                                        bool *together, truce_write_outcome *outcomes,
                                        bson_error_t *error)
{
    struct transaction transaction;
    truce_status status =
        transaction_begin(store, options->deadline_ms, options->relaxed, &transaction, error);
    bool wanted = *together;

    if (status)
        return status;
    for (size_t sent = 0; sent < count && !status && *together == wanted;)
        status = send_next(&transaction, writes + sent, count - sent, together, outcomes + sent,
                           &sent, error);
    if (!status && *together != wanted)
        status = truce__fail(TRUCE_CONFLICT, error, "a document does not match");
    else if (status)
        status = copy_first_error(outcomes, count, status, error);
    else
        status = transaction_commit(&transaction, error);
    transaction_release(&transaction);
    if (status)
        transaction_take_back(outcomes, count);
    return status;
}

static void transaction_forget(truce_write_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = TRUCE_CONFLICT};
}

/* An attempt with few messages, and one with many where that does not tell enough. */
static truce_status attempts(struct mongo_store *store, const truce_write *writes, size_t count,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             bson_error_t *error)
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

/* Makes the collections that the writes may insert into, outside of any transaction. */
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
                           "this server has no transactions: no bulk is atomic there");
    status = attempts(store, writes, count, options, outcomes, &caught);
    if (status && caught.domain == TRUCE_ERROR_SERVER && caught.code == CODE_NOT_IN_TRANSACTION) {
        transaction_forget(outcomes, count);
        status = make_collections(store, writes, count, &caught);
        if (!status)
            status = attempts(store, writes, count, options, outcomes, &caught);
    }
    if (status && error)
        *error = caught;
    return status;
}

/* ---- looks ---------------------------------------------------------------------------------- */

static truce_status transaction_look(struct transaction *transaction, truce_look *one,
                                     bson_error_t *error)
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
    status = truce__mongo_statement(
        transaction, truce__mongo_what(text, sizeof text, "look at a document of", one->collection),
        &body, false, &reply, error);
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch.0", &found) &&
        BSON_ITER_HOLDS_DOCUMENT(&found)) {
        bson_iter_document(&found, &size, &bytes);
        if (!bson_init_static(&view, bytes, size))
            status = truce__fail(TRUCE_IO, error, "%s: the server's answer has no document", text);
        else if (truce__document_check(&view, "document", NULL))
            status = truce__mongo_unsound(text, &view, error);
        else
            bson_concat(&one->document, &view);
        one->found = !status;
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

static truce_status look_once(struct mongo_store *store, truce_look *looks, size_t count,
                              bson_error_t *error)
{
    struct transaction transaction;
    truce_status status = transaction_begin(store, 0, true, &transaction, error);

    if (status)
        return status;
    for (size_t i = 0; i < count && !status; i++)
        status = transaction_look(&transaction, &looks[i], error);
    if (!status)
        status = transaction_commit(&transaction, error);
    transaction_release(&transaction);
    return status;
}

truce_status truce__mongo_read_many(truce_store *base, truce_look *looks, size_t count,
                                    bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    int64_t until_ns = truce__clock_monotonic_ns() + (int64_t)store->deadline_ms * 1000000;
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&looks[i].document);
        looks[i].found = false;
    }
    while ((status = look_once(store, looks, count, error)) == TRUCE_CONFLICT ||
           status == TRUCE_UNKNOWN) {
        for (size_t i = 0; i < count; i++) {
            bson_reinit(&looks[i].document);
            looks[i].found = false;
        }
        if (truce__clock_monotonic_ns() > until_ns)
            break;
        truce__clock_sleep_ms((int64_t)(truce__random_entropy() % 20));
    }
    for (size_t i = 0; status && i < count; i++) {
        bson_reinit(&looks[i].document);
        looks[i].found = false;
    }
    return status;
}

truce_status truce__mongo_probe_transaction(struct mongo_store *store, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    truce_look probe = {.collection = PROBE, .id = &id};
    truce_status status;

    bson_oid_init(&id.value.v_oid, NULL);
    bson_init(&probe.document);
    status = look_once(store, &probe, 1, error);
    bson_destroy(&probe.document);
    return status;
}
