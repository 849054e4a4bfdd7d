/*
 * A transaction of several calls: a store that sends each call as a statement of one transaction
 * of the server.
 *
 *     open      borrows a connection and starts a session on it
 *     a call    a statement with the session (mongo_command.c, mongo_write.c); the first one begins
 *               the transaction at the server, with read concern snapshot
 *     commit    w: majority, and j: true unless the store is relaxed; as in mongo_transaction.c, it
 *               is sent again until its outcome is known, or its time has expired
 *     close     aborts what was not committed
 *
 * The isolation is the server's: snapshot isolation of MongoDB, in which only writes conflict.
 * A refused statement has ended the transaction at the server: the store remembers the failure,
 * returns it for later statements, and does not commit. The server has no savepoints, but callers
 * expect that an atomic bulk whose guards do not match leaves the transaction as it was. So the
 * store reads first whether the bulk will succeed.
 */
#include "store/mongodb/mongo_session.h"

#include "base/clock.h"
#include "store/mongodb/mongo.h"

struct session_store {
    /* Must be the first field. */
    struct mongo_store base;
    struct mongo_transaction transaction;
    /* Whether the transaction has written anything. */
    bool wrote;
};

static struct session_store *session_of(truce_store *base)
{
    return (struct session_store *)base;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Sets the time limit of the statements of a call. */
static void session_begin_call(struct session_store *session, uint32_t deadline_ms)
{
    uint32_t wait_ms = deadline_ms ? deadline_ms : session->base.deadline_ms;

    session->transaction.until_ns = truce__clock_monotonic_ns() + wait_ms * INT64_C(1000000);
}

/* Runs a bulk as statements of the transaction. An atomic bulk that would certainly fail is refused
 * before it is sent, so that the transaction survives. After any other failure, the transaction has
 * failed. */
static truce_status session_bulk(truce_store *base, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error)
{
    struct session_store *session = session_of(base);
    bson_error_t why = {0};
    truce_status status;

    session_begin_call(session, options->deadline_ms);
    session->wrote = true;
    if (!session->transaction.failed && options->atomic) {
        status =
            truce__mongo_transaction_predict(&session->transaction, writes, count, outcomes, &why);
        if (status && (why.domain != TRUCE_ERROR_SERVER || why.code == CODE_DUPLICATE_KEY)) {
            if (error)
                *error = why;
            /* Nothing was written, so the transaction may continue. */
            return status;
        }
        if (status)
            truce__mongo_statement_failed(&session->base, status, &why);
    }
    if (session->transaction.failed) {
        for (size_t i = 0; i < count; i++)
            outcomes[i] = (truce_write_outcome){.status = TRUCE_CONFLICT};
        outcomes[0].status = status = session->transaction.failed;
        outcomes[0].error = why = session->transaction.failure;
    } else {
        status = truce__mongo_bulk(base, writes, count, options, outcomes, &why);
    }
    if (status)
        truce__mongo_statement_failed(&session->base, status, &why);
    if (status && error)
        *error = why;
    return status;
}

static truce_status session_modify(truce_store *base, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error)
{
    session_of(base)->wrote = true;
    return truce__mongo_find_and_modify(base, collection, filter, update, options, document, result,
                                        error);
}

/* Frees a session whose transaction is released or was not begun. */
static void session_free(struct session_store *session, struct mongo_store *store)
{
    truce__mongo_leave(store);
    bson_free(session->base.database);
    bson_free(session);
}

static void session_close(truce_store *base)
{
    struct session_store *session = session_of(base);
    struct mongo_store *store = session->transaction.store;
    int64_t now_ns = truce__clock_monotonic_ns();

    session->transaction.until_ns = now_ns + truce__mongo_farewell_ms(store) * INT64_C(1000000);
    truce__mongo_transaction_release(&session->transaction);
    truce__mongo_farewell_end(store, now_ns);
    session_free(session, store);
}

static truce_status session_index_create(truce_store *base, const char *collection,
                                         const bson_t *index, bson_error_t *error)
{
    session_of(base)->wrote = true;
    return truce__mongo_index_create(base, collection, index, error);
}

static truce_status session_collection_create(truce_store *base, const char *collection,
                                              bson_error_t *error)
{
    session_of(base)->wrote = true;
    return truce__mongo_collection_create(base, collection, error);
}

static const truce_store_ops session_ops = {
    .scheme = "transaction",
    .close = session_close,
    .find = truce__mongo_find,
    .count = truce__mongo_count,
    .distinct = truce__mongo_distinct,
    .aggregate = truce__mongo_aggregate,
    .bulk = session_bulk,
    .find_and_modify = session_modify,
    .index_list = truce__mongo_index_list,
    .index_create = session_index_create,
    .collection_create = session_collection_create,
    .collection_list = truce__mongo_collection_list,
    .validator = truce__mongo_validator,
};

/* ---- open and commit ------------------------------------------------------------------------- */

/* Makes the store of a transaction. It shares the pool and the shard keys of `store`, which must
 * outlive it. */
static struct session_store *session_new(const struct mongo_store *store)
{
    struct session_store *made = bson_malloc0(sizeof *made);

    made->base.base.ops = &session_ops;
    made->base.base.opened_after = store->base.opened_after;
    made->base.base.capabilities =
        TRUCE_CAN_ATOMIC_BULK | TRUCE_IS_TRANSACTION |
        (store->base.capabilities & (TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS));
    made->base.pool = store->pool;
    made->base.database = bson_strdup(store->database);
    made->base.shards = store->shards;
    made->base.server = store->server;
    made->base.deadline_ms = store->deadline_ms;
    made->base.select_ms = store->select_ms;
    made->base.direct = store->direct;
    made->base.connections_max = store->connections_max;
    made->base.read_only = store->read_only;
    made->base.relaxed = store->relaxed;
    made->base.transaction = &made->transaction;
    return made;
}

truce_status truce__mongo_session_open(truce_store *base, truce_store **transaction,
                                       bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    struct session_store *made;
    truce_status status;

    *transaction = NULL;
    if (!(base->capabilities & TRUCE_CAN_ATOMIC_BULK))
        return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                             "Transaction numbers are only allowed on a replica set member or "
                             "mongos: the MongoDB server of this store has no transactions; use "
                             "truceCommit, which needs none");
    status = truce__mongo_occupy(store, error);
    if (status)
        return status;
    made = session_new(store);
    status = truce__mongo_transaction_begin(store, 0, false, &made->transaction, error);
    if (status) {
        session_free(made, store);
        return status;
    }
    *transaction = &made->base.base;
    return TRUCE_OK;
}

static truce_status session_write_more(struct session_store *session, const truce_write *more,
                                       size_t count, bson_error_t *error)
{
    truce_write_outcome *outcomes = bson_malloc0((count + 1) * sizeof *outcomes);
    truce_status status =
        truce__mongo_transaction_write(&session->transaction, more, count, outcomes, error);

    for (size_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(outcomes);
    return status;
}

truce_status truce__mongo_session_commit(truce_store *transaction, const truce_write *more,
                                         size_t count, uint32_t deadline_ms, bson_error_t *error)
{
    struct session_store *session = session_of(transaction);
    truce_status status = TRUCE_OK;

    if (session->transaction.failed)
        return truce__refuse(CODE_WRITE_CONFLICT, error,
                             "a failed statement of the transaction could not be undone");
    session_begin_call(session, deadline_ms);
    if (session->wrote)
        status = session_write_more(session, more, count, error);
    return status ? status : truce__mongo_transaction_commit(&session->transaction, error);
}
