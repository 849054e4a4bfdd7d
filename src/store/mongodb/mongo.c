/*
 * The mongodb:// store: any deployment of MongoDB (a server alone, a replica set, a sharded cluster),
 * and other servers that speak its protocol, through libmongoc.
 *
 *     truce_store call --> a connection of the pool --> one command (mongo_command.c) --> status
 *                                                       of the table (mongo_error.c)
 *
 * What a store promises, and how it is kept here
 * 1. An acknowledged write is not lost: every write asks for {w: "majority", j: true}; relaxed ones
 *    for {w: "majority"}. Opening sends a remove that finds nothing with this demand, so that a
 *    server that cannot give it (in memory, without a journal) is refused at once.
 * 2. A read sees every acknowledged write: from the primary, read concern majority. A read of one _id on which a
 *    protocol decides is linearizable where the server can (mongo_read.c).
 * 3. A write without an answer is TRUCE_UNKNOWN, never "failed". libmongoc sends inserts, updates and
 *    removes of single documents, and find-and-modify, once more by itself where the server
 *    recognises a repetition (retryable writes: replica sets and sharded clusters).
 * 4. An atomic bulk is a transaction (mongo_transaction.c), where there are any.
 * 5. What a server can do is read from its first answer; that it keeps transactions, updates by
 *    pipelines and array filters is tried, since servers say more than they do.
 *
 * A single host that belongs to a replica set is opened again as that set, with all its members: else
 * a read could come from a server that was deposed, and a new primary would not be found.
 * `directConnection=true` in the URI says that this is wanted. A single mongos is opened again as a
 * sharded cluster of one: only then does libmongoc keep the token by which another mongos, or this one
 * after it died, finds out what became of a commit.
 *
 * Files: mongo_uri.c (what a URI may say), mongo_command.c (commands and their time limits), mongo_error.c,
 * mongo_read.c, mongo_write.c, mongo_transaction.c, mongo_shards.c (shard keys), mongo_schema.c (indexes and
 * collections), mongo_listen.c (change streams), mongo_facts.c (what truce_doctor judges).
 *
 * A write waits for the majority, and for an answer, until its deadline or the store's, and is TRUCE_UNKNOWN
 * then (mongo_command.c).
 *
 * Deliberately not done: views, collations, text and geographic indexes.
 */
#include "store/mongodb/mongo.h"
#include "store/mongodb/mongo_shards.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

/* A store on which nobody has waited for so long listens to no changes. */
#define LISTEN_IDLE_MS 60000
/* A step of waiting for a server, which has no other limit (mongo_command.c). */
#define SELECT_MS 2000

#define CLOSE_MS  1000 /* to tell a server that its sessions are over */

static void mongo_close_store(truce_store *base)
{
    struct mongo_store *store = (struct mongo_store *)base;

    truce__mongo_listener_close(store->listener);
    truce__mongo_limit(CLOSE_MS);
    truce__mongo_shards_free(store->shards);
    truce__mongo_limit_forget(store);
    pthread_mutex_destroy(&store->limited.mutex);
    if (store->pool)
        mongoc_client_pool_destroy(store->pool);
    truce__mongoc_listen_end(&store->audience);
    bson_free(store->database);
    bson_free(store);
}

static const truce_store_ops mongo_ops = {
    .scheme = "mongodb",
    .close = mongo_close_store,
    .find = truce__mongo_find,
    .count = truce__mongo_count,
    .distinct = truce__mongo_distinct,
    .aggregate = truce__mongo_aggregate,
    .explain = truce__mongo_explain,
    .bulk = truce__mongo_bulk,
    .find_and_modify = truce__mongo_find_and_modify,
    .read_many = truce__mongo_read_many,
    .index_create = truce__mongo_index_create,
    .index_drop = truce__mongo_index_drop,
    .index_modify = truce__mongo_index_modify,
    .index_list = truce__mongo_index_list,
    .collection_create = truce__mongo_collection_create,
    .collection_drop = truce__mongo_collection_drop,
    .collection_rename = truce__mongo_collection_rename,
    .collection_validate = truce__mongo_collection_validate,
    .collection_list = truce__mongo_collection_list,
    .wait = truce__mongo_wait,
    .facts = truce__mongo_facts,
    .validator = truce__mongo_validator,
    .snapshot = truce__mongo_snapshot,
    .counters = truce__mongo_counters,
};

/* ---- what the server is --------------------------------------------------------------------- */

static void read_hello(const bson_t *hello, struct mongo_server *server)
{
    bson_iter_t iter;

    *server =
        (struct mongo_server){.wire = (int32_t)truce__mongo_number(hello, "maxWireVersion", 0)};
    server->sessions = truce__mongo_number(hello, "logicalSessionTimeoutMinutes", 0) > 0;
    server->truce = bson_has_field(hello, "truce");
    if (bson_iter_init_find(&iter, hello, "setName") && BSON_ITER_HOLDS_UTF8(&iter)) {
        server->deployment = MONGO_REPLICA_SET;
        bson_strncpy(server->name, bson_iter_utf8(&iter, NULL), sizeof server->name);
    }
    if (bson_iter_init_find(&iter, hello, "msg") && BSON_ITER_HOLDS_UTF8(&iter) &&
        !strcmp(bson_iter_utf8(&iter, NULL), "isdbgrid"))
        server->deployment = MONGO_SHARDED;
}

/* Nobody was reached: who was tried, and for how long. */
static truce_status tell_of_none(const mongoc_uri_t *uri, int64_t begun_ns,
                                 const bson_error_t *caught, bson_error_t *error)
{
    const bson_t none = BSON_INITIALIZER;
    const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
    double seconds = (double)(truce__clock_monotonic_ns() - begun_ns) / 1e9;
    char *what, *longer;
    bson_error_t why;
    truce_status status;

    if (caught->domain != MONGOC_ERROR_SERVER_SELECTION)
        return truce__mongo_failed(MONGO_READ, "find a server", &none, caught, error);
    what = bson_strdup_printf("no server was reached in %.1f s, at %.200s", seconds,
                              host ? host->host_and_port : "no address");
    for (host = host ? host->next : NULL; host; host = host->next) {
        longer = bson_strdup_printf("%s, %s", what, host->host_and_port);
        bson_free(what);
        what = longer;
    }
    status = truce__mongo_failed(MONGO_READ, what, &none, caught, &why);
    bson_free(what);
    return truce__fail(status, error, "%.420s (does it run, and is its address right?)",
                       why.message);
}

/* Finds the server that takes writes. */
static truce_status meet_server(struct mongo_store *store, const mongoc_uri_t *uri,
                                bson_error_t *error)
{
    int64_t begun_ns = truce__clock_monotonic_ns();
    mongoc_server_description_t *description = NULL;
    mongoc_client_t *client = NULL;
    bson_error_t caught = {0};
    truce_status status = truce__mongo_borrow(store, &client, error);

    if (status)
        return status;
    truce__mongo_limit(store->deadline_ms);
    if (truce__mongo_await_server(store, client,
                                  &caught)) /* not twice: a server that is away is told soon */
        description = mongoc_client_select_server(client, true, NULL, &caught);
    if (description)
        read_hello(mongoc_server_description_hello_response(description), &store->server);
    else
        status = tell_of_none(uri, begun_ns, &caught, error);
    mongoc_server_description_destroy(description);
    truce__mongo_return(store, client);
    return status;
}

/* ---- what it can do ------------------------------------------------------------------------- */

/* A statement with durable write concern, of a document that is not there. */
static truce_status probe(struct mongo_store *store, const bson_t *body, const char *what,
                          bson_error_t *error)
{
    struct mongo_command command = {.what = what,
                                    .body = body,
                                    .kind = MONGO_READ, /* nothing depends on it */
                                    .write_concern = true,
                                    .wait_ms = store->deadline_ms,
                                    .relaxed = store->relaxed};
    bson_t reply;
    truce_status status = truce__mongo_run_alone(store, &command, &reply, error);

    bson_destroy(&reply);
    return status;
}

static truce_status probe_durable(struct mongo_store *store, bson_error_t *error)
{
    bson_t *body;
    bson_error_t caught = {0};
    bson_oid_t absent;
    truce_status status;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("delete", BCON_UTF8(PROBE), "deletes", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "limit", BCON_INT32(1), "}", "]");
    status = probe(store, body, "a write that the majority has on disk", &caught);
    bson_destroy(body);
    if (status && error) {
        *error = caught;
        if (status == TRUCE_INVALID && caught.domain == TRUCE_ERROR_SERVER &&
            caught.code == CODE_BAD_VALUE)
            return truce__fail(TRUCE_INVALID, error,
                               "this server cannot keep what it acknowledges (it has no journal): "
                               "%.300s",
                               caught.message);
    }
    return status;
}

static bool probe_pipeline(struct mongo_store *store)
{
    bson_oid_t absent;
    truce_status status;
    bson_t *body;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("update", BCON_UTF8(PROBE), "updates", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "u", "[", "{", "$set", "{", "a", BCON_INT32(1), "}",
                    "}", "]", "}", "]");
    status = probe(store, body, "an update by a pipeline", NULL);
    bson_destroy(body);
    return status == TRUCE_OK;
}

/* A condition on the element as a whole and one on its field: what the patterns need. */
static bool probe_array_filters(struct mongo_store *store)
{
    bson_oid_t absent;
    truce_status status;
    bson_t *body;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("update", BCON_UTF8(PROBE), "updates", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "u", "{", "$set", "{", "a.$[i].b", BCON_INT32(1), "}",
                    "}", "arrayFilters", "[", "{", "i", "{", "$type", BCON_UTF8("object"), "}",
                    "i.c", BCON_INT32(1), "}", "]", "}", "]");
    status = probe(store, body, "an update with array filters", NULL);
    bson_destroy(body);
    return status == TRUCE_OK;
}

/* A truce server runs transactions whether it presents itself as a replica set or not. */
static bool may_have_transactions(const struct mongo_server *server)
{
    int32_t least = server->deployment == MONGO_SHARDED ? 8 : 7; /* 4.2, 4.0 */

    return (server->deployment != MONGO_STANDALONE || server->truce) && server->sessions &&
           server->wire >= least;
}

/* Of a whole database. */
static bool may_have_change_streams(const struct mongo_server *server)
{
    return server->deployment != MONGO_STANDALONE && server->sessions &&
           server->wire >= 7; /* 4.0 */
}

static truce_status find_capabilities(struct mongo_store *store, bson_error_t *error)
{
    uint32_t *can = &store->base.capabilities;
    truce_status status = TRUCE_OK;

    *can = TRUCE_CAN_PARTIAL_INDEX;
    if (store->server.wire >= 8)
        *can |= TRUCE_CAN_WILDCARD_INDEX;
    if (!store->read_only)
        status = probe_durable(store, error);
    if (status)
        return status;
    *can |= TRUCE_CAN_DURABLE;
    if (store->server.wire >= 8 && (store->read_only || probe_pipeline(store)))
        *can |= TRUCE_CAN_PIPELINE_UPDATE;
    if (store->read_only || probe_array_filters(store))
        *can |= TRUCE_CAN_ARRAY_FILTERS;
    if (may_have_transactions(&store->server) &&
        truce__mongo_probe_transaction(store, NULL) == TRUCE_OK)
        *can |= TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ;
    if (may_have_change_streams(&store->server))
        *can |= TRUCE_CAN_WAIT;
    return TRUCE_OK;
}

/* ---- open ----------------------------------------------------------------------------------- */

static truce_status mongo_reach(struct mongo_store *store, const mongoc_uri_t *uri,
                                bson_error_t *error)
{
    bson_error_t caught = {0};

    truce__mongo_limit_forget(store);
    if (store->pool)
        mongoc_client_pool_destroy(store->pool);
    store->pool = mongoc_client_pool_new_with_error(uri, &caught);
    if (!store->pool)
        return truce__fail(TRUCE_INVALID, error, "the store's URI cannot be used: %s",
                           caught.message);
    mongoc_client_pool_set_error_api(store->pool, MONGOC_ERROR_API_VERSION_2);
    truce__mongo_watch(store);
    store->connections_max = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_MAXPOOLSIZE, 100);
    return meet_server(store, uri, error);
}

/* One host of a replica set, and nobody said that it is to be this host alone. */
static bool wants_whole_set(const struct mongo_store *store, const mongoc_uri_t *uri)
{
    return store->server.deployment == MONGO_REPLICA_SET && !mongoc_uri_get_replica_set(uri) &&
           !mongoc_uri_has_option(uri, MONGOC_URI_DIRECTCONNECTION);
}

static truce_status reach_set(struct mongo_store *store, mongoc_uri_t *uri, bson_error_t *error)
{
    char name[sizeof store->server.name];
    bson_error_t caught = {0};
    truce_status status;

    memcpy(name, store->server.name, sizeof name);
    mongoc_uri_set_option_as_utf8(uri, MONGOC_URI_REPLICASET, name);
    status = mongo_reach(store, uri, &caught);
    if (status)
        truce__fail(
            status, error,
            "the members of the replica set %s cannot be reached by the names that it gives "
            "them (directConnection=true uses this one server only): %.200s",
            name, caught.message);
    return status;
}

static bool is_one_mongos(const struct mongo_store *store, const mongoc_uri_t *uri)
{
    const mongoc_host_list_t *hosts = mongoc_uri_get_hosts(uri);

    return store->server.deployment == MONGO_SHARDED && hosts && !hosts->next;
}

static truce_status reach_cluster(struct mongo_store *store, mongoc_uri_t *uri, bson_error_t *error)
{
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    return mongo_reach(store, uri, error);
}

static truce_status open_with(mongoc_uri_t *uri, const truce_store_options *options,
                              struct mongo_store *store, bson_error_t *error)
{
    truce_status status = mongo_reach(store, uri, error);

    if (!status && wants_whole_set(store, uri))
        status = reach_set(store, uri, error);
    if (!status && is_one_mongos(store, uri))
        status = reach_cluster(store, uri, error);
    if (status)
        return status;
    store->linearizable =
        store->server.deployment == MONGO_SHARDED ||
        (store->server.deployment == MONGO_REPLICA_SET && mongoc_uri_get_replica_set(uri));
    if (options->must_exist) {
        status = truce__mongo_collection_exists(store, NULL, error);
        if (status == TRUCE_NOT_FOUND)
            return truce__fail(TRUCE_NOT_FOUND, error, "the database %s has no collections",
                               store->database);
    }
    if (!status)
        status = find_capabilities(store, error);
    if (!status && store->server.deployment == MONGO_SHARDED)
        store->shards = truce__mongo_shards_new();
    if (!status && (store->base.capabilities & TRUCE_CAN_WAIT))
        store->listener = truce__mongo_listener_new(uri, LISTEN_IDLE_MS);
    return status;
}

static truce_status mongo_open_store(const char *scheme, const char *path,
                                     const truce_store_options *options, truce_store **store,
                                     bson_error_t *error)
{
    char *text = bson_strdup_printf("%s:%s", scheme, path);
    struct mongo_store *made;
    mongoc_uri_t *uri;
    truce_status status;

    *store = NULL;
    status = truce__mongoc_load(NULL, error);
    if (!status)
        status = truce__mongo_uri_parse(text, options, &uri, error);
    bson_free(text);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->base.ops = &mongo_ops;
    pthread_mutex_init(&made->limited.mutex, NULL);
    made->audience.notices = truce__notices_of(options->hooks);
    truce__mongoc_listen(&made->audience);
    made->database =
        bson_strdup(options->database ? options->database : mongoc_uri_get_database(uri));
    made->deadline_ms =
        (uint32_t)mongoc_uri_get_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, 30000);
    if (options->deadline_ms)
        made->deadline_ms = options->deadline_ms;
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                   made->deadline_ms < SELECT_MS ? (int32_t)made->deadline_ms
                                                                 : SELECT_MS);
    made->read_only = options->read_only;
    made->relaxed = options->relaxed;
    status = open_with(uri, options, made, error);
    mongoc_uri_destroy(uri);
    if (status)
        mongo_close_store(&made->base);
    else
        *store = &made->base;
    return status;
}

truce_status truce__mongo_open(const char *path, const truce_store_options *options,
                               truce_store **store, bson_error_t *error)
{
    return mongo_open_store("mongodb", path, options, store, error);
}

truce_status truce__mongo_srv_open(const char *path, const truce_store_options *options,
                                   truce_store **store, bson_error_t *error)
{
    return mongo_open_store("mongodb+srv", path, options, store, error);
}
