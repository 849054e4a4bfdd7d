/*
 * What libmongoc tells of every command that was answered, or was lost, also of those that it repeats by
 * itself and of cursors. It is asked for ends only: for the beginning of a command it would copy what is
 * sent.
 *
 * Round trips are counted, which are what a call costs on a network.
 *
 * And a call's lost messages are remembered. libmongoc sends a write a second time by itself, and its answer
 * is that of the second sending alone. Where that one was refused, or found nothing, the first may have been
 * done, or be done later: it may lie in the buffers of a server that stands still. It tells this in the
 * thread of the call.
 */
#include "store/mongodb/mongo.h"

static _Thread_local bool lost;

void truce__mongo_call(void)
{
    lost = false;
}

bool truce__mongo_lost(void)
{
    return lost;
}

static void count_add_one(struct mongo_store *store)
{
    atomic_fetch_add_explicit(&store->round_trips, 1, memory_order_relaxed);
}

static void count_answered(const mongoc_apm_command_succeeded_t *event)
{
    count_add_one(mongoc_apm_command_succeeded_get_context(event));
    if (bson_has_field(mongoc_apm_command_succeeded_get_reply(event), "writeConcernError"))
        lost = true; /* done, and it may be taken back */
}

static void count_failed(const mongoc_apm_command_failed_t *event)
{
    bson_error_t caught;

    count_add_one(mongoc_apm_command_failed_get_context(event));
    mongoc_apm_command_failed_get_error(event, &caught);
    if (truce__mongo_is_open(&caught))
        lost = true;
}

void truce__mongo_watch(struct mongo_store *store)
{
    mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new();

    mongoc_apm_set_command_succeeded_cb(callbacks, count_answered);
    mongoc_apm_set_command_failed_cb(callbacks, count_failed);
    mongoc_client_pool_set_apm_callbacks(store->pool, callbacks, store);
    mongoc_apm_callbacks_destroy(callbacks); /* the pool has copied them */
}

void truce__mongo_counters(truce_store *base, truce_store_counters *counters)
{
    struct mongo_store *store = (struct mongo_store *)base;

    counters->round_trips = atomic_load(&store->round_trips);
}
