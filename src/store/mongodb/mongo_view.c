/*
 * Views: reads at one cluster time.
 *
 *     find, with read concern "snapshot"        -> the cluster time that the server chose
 *     every read of the view                       read concern "snapshot" at that time, on any connection
 *
 * No session is needed for it, so threads and cursors of a view need not take turns. The server keeps the history
 * (minSnapshotHistoryWindowInSeconds) and says when it is too old; then the view reads EXPIRED.
 *
 * What the server has no history of is of now: lists of collections and indexes, and how a read would run.
 */
#include <string.h>

#include "base/assert.h"
#include "store/mongodb/mongo.h"
#include "store/reserved.h"

#define WIRE_SNAPSHOT 13 /* MongoDB 5.0 */

static struct mongo_store *view_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

static void view_close_view(truce_store *base)
{
    bson_free(view_of(base)->database);
    bson_free(base);
}

/* One after the other, all at the view's time. */
static truce_status view_read_many(truce_store *base, truce_look *looks, size_t count,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count; i++) {
        bson_init(&looks[i].document);
        looks[i].found = false;
    }
    for (size_t i = 0; i < count && !status; i++) {
        bson_t filter = BSON_INITIALIZER;

        BSON_APPEND_VALUE(&filter, "_id", looks[i].id);
        bson_destroy(&looks[i].document);
        status =
            truce_find_one(base, looks[i].collection, &filter, NULL, &looks[i].document, error);
        looks[i].found = !status;
        if (status == TRUCE_NOT_FOUND)
            status = TRUCE_OK;
        bson_destroy(&filter);
    }
    for (size_t i = 0; i < count && status; i++) {
        bson_reinit(&looks[i].document);
        looks[i].found = false;
    }
    return status;
}

static truce_status view_of_view(truce_store *base, const truce_snapshot_options *options,
                                 truce_store **view, bson_error_t *error);

static const truce_store_ops view_ops = {
    .scheme = "mongodb",
    .close = view_close_view,
    .find = truce__mongo_find,
    .count = truce__mongo_count,
    .distinct = truce__mongo_distinct,
    .aggregate = truce__mongo_aggregate,
    .explain = truce__mongo_explain,
    .read_many = view_read_many,
    .index_list = truce__mongo_index_list,
    .collection_list = truce__mongo_collection_list,
    .facts = truce__mongo_facts,
    .snapshot = view_of_view,
};

static truce_store *view_new_view(const struct mongo_store *store, uint32_t seconds,
                                  uint32_t ordinal)
{
    struct mongo_store *made = bson_malloc0(sizeof *made);

    made->base.ops = &view_ops;
    made->base.capabilities = store->base.capabilities | TRUCE_IS_VIEW;
    made->pool = store->pool;
    made->database = bson_strdup(store->database);
    made->server = store->server;
    made->deadline_ms = store->deadline_ms;
    made->connections_max = store->connections_max;
    made->read_only = true;
    made->at.seconds = seconds;
    made->at.ordinal = ordinal;
    return &made->base;
}

static truce_status view_of_view(truce_store *base, const truce_snapshot_options *options,
                                 truce_store **view, bson_error_t *error)
{
    (void)options;
    (void)error;
    *view = view_new_view(view_of(base), view_of(base)->at.seconds, view_of(base)->at.ordinal);
    return TRUCE_OK;
}

/* The time that the server chooses for a read of now. */
static truce_status ask_time(struct mongo_store *store, uint32_t *seconds, uint32_t *ordinal,
                             bson_error_t *error)
{
    bson_t *body = BCON_NEW("find", PROBE, "limit", BCON_INT32(1), "singleBatch", BCON_BOOL(true));
    struct mongo_command command = {
        .what = "take a snapshot", .body = body, .read_concern = true, .snapshot = true};
    bson_iter_t iter, found;
    bson_t reply;
    truce_status status = truce__mongo_run_alone(store, &command, &reply, error);

    *seconds = *ordinal = 0;
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.atClusterTime", &found) &&
        BSON_ITER_HOLDS_TIMESTAMP(&found))
        bson_iter_timestamp(&found, seconds, ordinal);
    if (!status && !*seconds)
        status = truce__fail(TRUCE_INVALID, error,
                             "this server cannot take a snapshot: it names no cluster time");
    bson_destroy(&reply);
    bson_destroy(body);
    return status;
}

truce_status truce__mongo_snapshot(truce_store *base, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error)
{
    struct mongo_store *store = view_of(base);
    uint32_t seconds, ordinal;
    truce_status status;

    (void)options; /* the server's own maximum counts */
    if (store->server.deployment == MONGO_STANDALONE || store->server.wire < WIRE_SNAPSHOT)
        return truce__fail(TRUCE_INVALID, error,
                           "this server cannot take a snapshot: read concern \"snapshot\" needs "
                           "MongoDB 5.0 and a replica set");
    status = ask_time(store, &seconds, &ordinal, error);
    if (!status)
        *view = view_new_view(store, seconds, ordinal);
    return status;
}
