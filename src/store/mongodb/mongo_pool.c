/*
 * The pool of connections to a deployment, which libmongoc manages.
 *
 * A connection belongs to one thread at a time. It is returned before the caller's next call,
 * except by a cursor with more than one batch (mongo_read.c), a transaction, and a change stream,
 * which keep their connection to their end. Transactions and change streams may last long, so they
 * may occupy only a part of the connections.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "store/mongodb/mongo.h"

truce_status truce__mongo_pool_open(struct mongo_store *store, const mongoc_uri_t *uri,
                                    bson_error_t *error)
{
    bson_error_t caught = {0};

    truce__mongo_limit_forget(store);
    truce__mongo_pool_close(store);
    store->pool = mongoc_client_pool_new_with_error(uri, &caught);
    if (!store->pool)
        return truce__fail(TRUCE_INVALID, error, "the store's URI cannot be used: %s",
                           caught.message);
    mongoc_client_pool_set_error_api(store->pool, MONGOC_ERROR_API_VERSION_2);
    store->connections_max = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_MAXPOOLSIZE, 100);
    return TRUCE_OK;
}

void truce__mongo_pool_close(struct mongo_store *store)
{
    if (store->pool)
        mongoc_client_pool_destroy(store->pool);
    store->pool = NULL;
}

truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error)
{
    truce_status status = truce__store_not_inherited(&store->base, error);

    *client = NULL;
    if (status)
        return status;
    *client = store->transaction ? store->transaction->client : mongoc_client_pool_pop(store->pool);
    if (store->transaction)
        return TRUCE_OK;
    if (*client && !store->at.seconds)
        truce__mongo_limit_client(store, *client);
    if (*client)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_TIMEOUT, error,
        "all %d connections to the server are in use, and none was returned in time; cursors of "
        "many documents keep one until they are closed (the URI's options maxPoolSize and "
        "waitQueueTimeoutMS)",
        store->connections_max);
}

void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client)
{
    if (client && !store->transaction)
        mongoc_client_pool_push(store->pool, client);
}

/* ---- occupied connections -------------------------------------------------------------------- */

/* The milliseconds that a thread waits for the reply to a message that only releases something. */
#define FAREWELL_MS 1000
/* The milliseconds for which no thread waits for such a reply, after one took more than half of
 * FAREWELL_MS. */
#define FAREWELL_GAP_MS 10000

static int pool_most(const struct mongo_store *store)
{
    int most = store->connections_max - store->connections_max / 4;

    return most > 1 ? most - (most == store->connections_max) : most;
}

truce_status truce__mongo_occupy(struct mongo_store *store, bson_error_t *error)
{
    if (atomic_fetch_add(&store->occupied, 1) < pool_most(store))
        return TRUCE_OK;
    truce__mongo_leave(store);
    return truce__fail(TRUCE_LIMIT, error,
                       "%d connections to MongoDB are occupied by open transactions and change "
                       "streams, which is the maximum: end some, or raise maxPoolSize (%d) in the "
                       "store's URI",
                       pool_most(store), (int)store->connections_max);
}

void truce__mongo_leave(struct mongo_store *store)
{
    atomic_fetch_sub(&store->occupied, 1);
}

uint32_t truce__mongo_farewell_ms(const struct mongo_store *store)
{
    int64_t stalled_ns = atomic_load(&store->stalled_ns);

    return stalled_ns &&
                   truce__clock_monotonic_ns() - stalled_ns < FAREWELL_GAP_MS * INT64_C(1000000)
               ? 0
               : FAREWELL_MS;
}

void truce__mongo_farewell_end(struct mongo_store *store, int64_t begun_ns)
{
    int64_t now_ns = truce__clock_monotonic_ns();

    if (now_ns - begun_ns > FAREWELL_MS / 2 * INT64_C(1000000))
        atomic_store(&store->stalled_ns, now_ns);
}
