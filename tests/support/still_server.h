#ifndef TRUCE_TESTS_SUPPORT_STILL_SERVER_H
#define TRUCE_TESTS_SUPPORT_STILL_SERVER_H

/* A server of a store in memory, whose calls run in the thread of the test. There are no sockets,
 * and the clock advances only by sleeps. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/call/call.h"
#include "server/dispatch.h"
#include "store/store.h"
#include "tests/support/no_sleep.h"

static const truce_store_ops *still_inner;

/* Waits as if no other client wrote: the clock advances by the timeout, and the wait times out.
 * Without a timeout, the inner store replies. */
static truce_status still_wait(truce_store *store, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error)
{
    if (!timeout_ms)
        return still_inner->wait(store, collection, token, 0, error);
    truce__clock_sleep_ms(timeout_ms);
    return truce__fail(TRUCE_TIMEOUT, error, "nothing was written to %s in %u ms", collection,
                       timeout_ms);
}

/* Opens the store in memory. The calling thread then uses the environment of no_sleep.h. */
static inline truce_store *still_store(void)
{
    static truce_store_ops ops;
    truce_store *store;

    truce_assert(!truce_store_open("memory:", NULL, &store, NULL));
    still_inner = store->ops;
    ops = *store->ops;
    ops.wait = still_wait;
    store->ops = &ops;
    no_sleep_use();
    return store;
}

/* Starts the server with the options of server_start, which may be NULL. Failed logins get their
 * reply at once. */
static inline struct server *still_serve(truce_store *store, const struct server_options *options)
{
    struct server *server;

    truce_assert(!server_start(store, options, &server, NULL));
    server->login_delay_ms = 0;
    return server;
}

#endif
