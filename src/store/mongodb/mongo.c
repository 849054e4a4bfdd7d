/*
 * The mongodb:// store: any deployment of MongoDB (a standalone server, a replica set, a sharded
 * cluster), and other servers with its protocol, through libmongoc.
 *
 *     truce_store call --> a connection of the pool --> one command (mongo_command.c) --> status
 *                                                       of the table (mongo_error.c)
 *
 * The store keeps its promises as follows:
 *
 *   1. An acknowledged write is not lost: every write has the write concern {w: "majority", j:
 *      true}; relaxed writes have j: false. Opening, unless the store is read-only, sends a remove
 *      that matches nothing with this write concern, so a server that cannot provide it (in memory,
 *      without a journal) is refused at once.
 *   2. A read sees every acknowledged write: it goes to the primary, with read concern majority. A
 *      read of one _id on which a protocol decides is linearizable if the server can do that
 *      (mongo_read.c).
 *   3. The outcome of a write without a reply is TRUCE_UNKNOWN, never a failure. (For transactions,
 *      see mongo_transaction.c.) libmongoc itself repeats inserts, single-document updates and
 *      removes, and find-and-modify once, if the server recognizes a repetition (retryable writes:
 *      replica sets and sharded clusters).
 *   4. An atomic bulk is a transaction (mongo_transaction.c), if the server has transactions.
 *   5. The server's reply to hello says what it can do. Transactions, pipeline updates, and array
 *      filters are also tried, because servers claim more than they implement.
 *
 * A single host that belongs to a replica set is opened again as that set, with all its members.
 * Otherwise a read could come from a deposed primary, and a new primary would not be found.
 * `directConnection=true` in the URI prevents this. A single mongos is opened again as a sharded
 * cluster of one. Only then does libmongoc keep the token with which another mongos, or this one
 * after a restart, finds the outcome of a commit.
 *
 * Files: this one (the URI, opening, indexes and collections), mongo_pool.c (connections),
 * mongo_time_limit.c, mongo_command.c, mongo_error.c, mongo_read.c, mongo_write.c, and
 * mongo_transaction.c. The parts for a server's clients are mongo_session.c and
 * mongo_change_stream.c. mongo_shards.c has the shard keys, mongo_change_listener.c the waits, and
 * mongo_structure.c the structure number. mongo_server_operation.c calls the operations of a truce
 * server, mongoc_load.c loads libmongoc, and mongo_doctor_facts.c collects facts for truce_doctor.
 *
 * A write waits for the majority and for a reply until its own deadline, or until the store's.
 * After that, its result is TRUCE_UNKNOWN (mongo_time_limit.c).
 *
 * URIs: all options that libmongoc understands are passed on: hosts, replicaSet, TLS,
 * authentication, compressors, sizes, and times. Options that could lose an acknowledged write, or
 * hide it from a read, are refused by name. A URI is copied from program to program, and its
 * options are not reviewed again. The option truce_store_options.relaxed prefers speed to safety.
 *
 * Deliberately not done: views, collations, text and geographic indexes.
 */
#include "store/mongodb/mongo.h"
#include "store/mongodb/mongo_session.h"
#include "store/store_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "bson/array.h"
#include "bson/value.h"
#include "query/index/index_set.h"
#include "query/input_check.h"
#include "store/mongodb/mongo_shards.h"

/* The default time limit of a call, in milliseconds. */
#define DEADLINE_MS 30000
/* The default time in milliseconds in which a server must reply to the opening. The packages of the
 * languages have the same default. */
#define REPLY_MS 10000
/* The maximum milliseconds of one attempt to reach a server. */
#define CONNECT_MS_MAX 10000
/* The milliseconds that libmongoc waits between two attempts to reach a server. */
#define CONNECT_PAUSE_MS 500
/* The interval in milliseconds at which libmongoc searches for a lost server, even if each call has
 * less time than libmongoc waits. */
#define HEARTBEAT_MS 2000
/* The minimum length of an option value that may be secret. Shorter values are words or numbers. */
#define SECRET_LEAST 8

static truce_status mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error);
static truce_status mongo_index_drop(truce_store *base, const char *collection, const char *name,
                                     bson_error_t *error);
static truce_status mongo_index_modify(truce_store *base, const char *collection, const char *name,
                                       const bson_t *changes, bson_error_t *error);
static truce_status mongo_collection_exists(struct mongo_store *store, const char *collection,
                                            bson_error_t *error);
static truce_status mongo_collection_drop(truce_store *base, const char *collection,
                                          bson_error_t *error);
static truce_status mongo_collection_rename(truce_store *base, const char *from, const char *to,
                                            bool drop_target, bson_error_t *error);
static truce_status mongo_collection_validate(truce_store *base, const char *collection,
                                              const bson_t *validator, bson_error_t *error);

static truce_status mongo_refuse_weak_option(const char *option, const char *value,
                                             bson_error_t *error)
{
    return truce__fail(
        TRUCE_INVALID, error,
        "the URI's option %s=%s could lose or hide acknowledged writes; remove it (for speed, use "
        "the relaxed option of truce_store_open)",
        option, value);
}

/* Checks w and journal: a write must be acknowledged by the majority, from disk. */
static truce_status check_writes(const mongoc_uri_t *uri, bson_error_t *error)
{
    const mongoc_write_concern_t *concern = mongoc_uri_get_write_concern(uri);
    int32_t w = mongoc_write_concern_get_w(concern);
    char number[16];

    if (mongoc_uri_has_option(uri, MONGOC_URI_JOURNAL) &&
        !mongoc_uri_get_option_as_bool(uri, MONGOC_URI_JOURNAL, true))
        return mongo_refuse_weak_option("journal", "false", error);
    if (w == MONGOC_WRITE_CONCERN_W_DEFAULT || mongoc_write_concern_get_wmajority(concern))
        return TRUCE_OK;
    if (w == MONGOC_WRITE_CONCERN_W_TAG)
        return mongo_refuse_weak_option("w", mongoc_write_concern_get_wtag(concern), error);
    bson_snprintf(number, sizeof number, "%d", w == MONGOC_WRITE_CONCERN_W_ERRORS_IGNORED ? -1 : w);
    return mongo_refuse_weak_option("w", number, error);
}

/* Returns the name of a read preference, as a URI has it. */
static const char *mode_name(mongoc_read_mode_t mode)
{
    switch (mode) {
    case MONGOC_READ_SECONDARY:
        return "secondary";
    case MONGOC_READ_PRIMARY_PREFERRED:
        return "primaryPreferred";
    case MONGOC_READ_SECONDARY_PREFERRED:
        return "secondaryPreferred";
    case MONGOC_READ_NEAREST:
        return "nearest";
    case MONGOC_READ_PRIMARY:
        break;
    }
    return "primary";
}

/* Checks readPreference and readConcernLevel: a read must see acknowledged writes. */
static truce_status mongo_uri_check_reads(const mongoc_uri_t *uri, bson_error_t *error)
{
    mongoc_read_mode_t mode = mongoc_read_prefs_get_mode(mongoc_uri_get_read_prefs_t(uri));
    const char *level = mongoc_read_concern_get_level(mongoc_uri_get_read_concern(uri));

    if (mode != MONGOC_READ_PRIMARY)
        return mongo_refuse_weak_option("readPreference", mode_name(mode), error);
    if (level && strcmp(level, MONGOC_READ_CONCERN_LEVEL_MAJORITY) != 0 &&
        strcmp(level, MONGOC_READ_CONCERN_LEVEL_LINEARIZABLE) != 0)
        return mongo_refuse_weak_option("readConcernLevel", level, error);
    return TRUCE_OK;
}

static void set_default(mongoc_uri_t *uri, const char *option, uint32_t value)
{
    if (!mongoc_uri_has_option(uri, option))
        mongoc_uri_set_option_as_int32(uri, option, value > INT32_MAX ? INT32_MAX : (int32_t)value);
}

/* Returns the milliseconds that one attempt to reach a server takes. libmongoc makes attempts one
 * after the other, with a pause, and closing a pool waits for the end of an attempt. Attempts of
 * equal length therefore fill the time of an opening if the server is silent. */
static uint32_t attempt_ms(uint32_t wait_ms)
{
    uint32_t attempts = wait_ms / CONNECT_MS_MAX + (wait_ms % CONNECT_MS_MAX != 0);

    return (wait_ms - (attempts - 1) * CONNECT_PAUSE_MS) / attempts;
}

/* Sets time limits, so that no call waits forever for a connection of the pool, a server, or a
 * socket. */
static void set_deadlines(mongoc_uri_t *uri, uint32_t deadline_ms)
{
    uint32_t wait_ms = deadline_ms ? deadline_ms : DEADLINE_MS;

    set_default(uri, MONGOC_URI_WAITQUEUETIMEOUTMS, wait_ms);
    set_default(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, wait_ms);
    set_default(uri, MONGOC_URI_CONNECTTIMEOUTMS, attempt_ms(wait_ms));
    set_default(uri, MONGOC_URI_HEARTBEATFREQUENCYMS, HEARTBEAT_MS);
    if (!mongoc_uri_get_appname(uri))
        mongoc_uri_set_appname(uri, "truce");
}

/* ---- passwords ------------------------------------------------------------------------------ */

static const char *after_scheme(const char *text)
{
    const char *scheme = strstr(text, "://");

    return scheme ? scheme + 3 : text;
}

/* Refuses characters that must be percent-encoded. libmongoc would read them as host, database, or
 * option, and a message would show them. */
static truce_status check_credentials(const char *text, bson_error_t *error)
{
    const char *from = after_scheme(text), *last = NULL;
    size_t end = strcspn(from, "?");

    for (size_t i = 0; i < end; i++) {
        if (from[i] == '@')
            last = from + i;
    }
    if (last && strcspn(from, "@/") < (size_t)(last - from))
        return truce__fail(TRUCE_INVALID, error,
                           "the store's URI is not valid: write '@' and '/' in the name or the "
                           "password as %%40 and %%2F");
    return TRUCE_OK;
}

static bool has_piece(const char *message, const char *piece, size_t length)
{
    char *copy = bson_strndup(piece, length);
    bool has = length > 0 && strstr(message, copy);

    bson_free(copy);
    return has;
}

/* Returns whether the message contains the password or the value of an option. */
static bool reports_secret(const char *message, const char *text)
{
    const char *from = after_scheme(text), *at = strchr(from, '@');
    const char *colon = at ? memchr(from, ':', (size_t)(at - from)) : NULL;
    const char *option = strchr(from, '?');

    if (colon && has_piece(message, colon + 1, (size_t)(at - colon - 1)))
        return true;
    while (option) {
        const char *value = option + 1 + strcspn(option + 1, "=&");
        size_t length = *value == '=' ? strcspn(value + 1, "&") : 0;

        if (length >= SECRET_LEAST && has_piece(message, value + 1, length))
            return true;
        /* This is not the name of an option, but the end of a password that contains a '?'. */
        if (*value != '=' && has_piece(message, option + 1, (size_t)(value - option - 1)))
            return true;
        option = strchr(option + 1, '&');
    }
    return false;
}

static truce_status mongo_uri_refuse(const char *reason, const char *text, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "the store's URI is not valid: %s",
                       reports_secret(reason, text) ? "the reason is omitted, because it repeats a "
                                                      "part that may be secret"
                                                    : reason);
}

/* Parses the URI. Fails with INVALID if it has no database, or if its options allow writes that are
 * not durable or reads that do not see them. Sets missing time limits, and *timed to whether the
 * user gave the time to wait for a server. The caller destroys the URI. */
static truce_status mongo_uri_parse(const char *text, const truce_store_options *options,
                                    mongoc_uri_t **uri, bool *timed, bson_error_t *error)
{
    bson_error_t caught = {0};
    const char *database;
    truce_status status;

    *uri = NULL;
    status = check_credentials(text, error);
    if (status)
        return status;
    *uri = mongoc_uri_new_with_error(text, &caught);
    if (!*uri)
        return mongo_uri_refuse(caught.message, text, error);
    database = mongoc_uri_get_database(*uri);
    if (database && *database && options->database && strcmp(database, options->database) != 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "the URI names the database \"%s\", and the option names \"%s\"",
                             database, options->database);
    else if ((!database || !*database) && !options->database)
        status = truce__fail(TRUCE_INVALID, error,
                             "no database: append /NAME to the URI, or name it in "
                             "truce_store_options.database (the program: --database)");
    else
        status = check_writes(*uri, error);
    if (!status)
        status = mongo_uri_check_reads(*uri, error);
    if (status) {
        mongoc_uri_destroy(*uri);
        *uri = NULL;
        return status;
    }
    *timed =
        options->deadline_ms || mongoc_uri_has_option(*uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS);
    set_deadlines(*uri, options->deadline_ms);
    return TRUCE_OK;
}

/* ---- the store ------------------------------------------------------------------------------- */

/* The milliseconds after the last wait after which the store stops listening to changes. */
#define LISTEN_IDLE_MS 60000
/* The milliseconds of a step of waiting for a server. libmongoc has no other limit
 * (mongo_time_limit.c). */
#define SELECT_MS 2000

/* The milliseconds for ending the sessions at the server. */
#define CLOSE_MS 1000
/* The maximum number of attempts to find out an ability of the server. */
#define PROBES 2

/* Closes the store. If a reply of the server is missing, sends the last messages without waiting
 * for their replies; the server then ends the sessions by itself. */
static void mongo_close_store(truce_store *base)
{
    struct mongo_store *store = (struct mongo_store *)base;

    truce__mongo_listener_close(store->listener);
    if (store->silent || !truce__mongo_farewell_ms(store))
        truce__mongo_limit_to_now();
    else
        truce__mongo_limit(CLOSE_MS);
    truce__mongo_shards_free(store->shards);
    truce__mongo_structure_free(store->structure);
    truce__mongo_limit_forget(store);
    pthread_mutex_destroy(&store->limited.mutex);
    truce__mongo_pool_close(store);
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
    .bulk = mongo_bulk,
    .find_and_modify = truce__mongo_find_and_modify,
    .read_many = truce__mongo_read_many,
    .index_create = truce__mongo_index_create,
    .index_drop = mongo_index_drop,
    .index_modify = mongo_index_modify,
    .index_list = truce__mongo_index_list,
    .collection_create = truce__mongo_collection_create,
    .collection_drop = mongo_collection_drop,
    .collection_rename = mongo_collection_rename,
    .collection_validate = mongo_collection_validate,
    .collection_list = truce__mongo_collection_list,
    .wait = truce__mongo_wait,
    .structure = truce__mongo_structure_number,
    .facts = truce__mongo_facts,
    .validator = truce__mongo_validator,
    .snapshot = truce__mongo_snapshot,
    .counters = truce__mongo_counters,
    .database = truce__mongo_database,
    .command = truce__mongo_operation,
};

bool truce__mongo_is(const truce_store *store)
{
    return store->ops == &mongo_ops;
}

/* ---- the server's description ---------------------------------------------------------------- */

/* Reads the kind of the deployment and the abilities that the server claims. */
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

/* Appends the hosts of the URI that the reason does not name: ", at a:1, b:2". */
static void append_hosts(const mongoc_uri_t *uri, const char *reason, bson_string_t *text)
{
    const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
    bool first = true;

    for (; host; host = host->next) {
        if (strstr(reason, host->host_and_port))
            continue;
        bson_string_append_printf(text, "%s%.200s", first ? ", at " : ", ", host->host_and_port);
        first = false;
    }
}

/* Fails because no server was reached. The message has the hosts and the time. */
static truce_status report_of_none(const mongoc_uri_t *uri, int64_t begun_ns,
                                   const bson_error_t *caught, bson_error_t *error)
{
    const bson_t none = BSON_INITIALIZER;
    double seconds = (double)(truce__clock_monotonic_ns() - begun_ns) / 1e9;
    bson_string_t *text;
    bson_error_t why;
    truce_status status;

    if (caught->domain != MONGOC_ERROR_SERVER_SELECTION)
        return truce__mongo_failed(MONGO_READ, "find a server", &none, caught, error);
    status = truce__mongo_failed(MONGO_READ, "", &none, caught, &why); /* ": REASON" */
    text = bson_string_new(NULL);
    bson_string_append_printf(text, "no server was reached in %.1f s", seconds);
    append_hosts(uri, why.message, text);
    bson_string_append(text, why.message);
    (void)truce__fail(status, error, "%.420s (check that it runs, and its address)", text->str);
    bson_string_free(text, true);
    return status;
}

/* Returns whether any server has replied. libmongoc returns only such servers. */
static bool mongo_has_reply(const mongoc_client_t *client)
{
    size_t count = 0;

    mongoc_server_descriptions_destroy_all(mongoc_client_get_server_descriptions(client, &count),
                                           count);
    return count > 0;
}

/* Waits for a server that accepts writes. If no server replies, gives up soon, because the address
 * is probably wrong. If one replies, waits longer, because a primary may be elected. */
static bool mongo_await_primary(struct mongo_store *store, mongoc_client_t *client,
                                bson_error_t *why)
{
    bool found;

    truce__mongo_limit(store->reply_ms);
    found = truce__mongo_await_server(store, client, why);
    if (found || store->reply_ms >= store->deadline_ms || !mongo_has_reply(client))
        return found;
    truce__mongo_limit(store->deadline_ms - store->reply_ms);
    return truce__mongo_await_server(store, client, why);
}

/* Finds the server that accepts writes. */
static truce_status find_primary(struct mongo_store *store, const mongoc_uri_t *uri,
                                 bson_error_t *error)
{
    int64_t begun_ns = truce__clock_monotonic_ns();
    mongoc_server_description_t *description = NULL;
    mongoc_client_t *client = NULL;
    bson_error_t caught = {0};
    truce_status status = truce__mongo_borrow(store, &client, error);

    if (status)
        return status;
    if (mongo_await_primary(store, client,
                            /* Fails without a second attempt, so that a missing server is reported
                             * soon. */
                            &caught))
        description = mongoc_client_select_server(client, true, NULL, &caught);
    if (description)
        read_hello(mongoc_server_description_hello_response(description), &store->server);
    else
        status = report_of_none(uri, begun_ns, &caught, error);
    mongoc_server_description_destroy(description);
    truce__mongo_return(store, client);
    return status;
}

/* ---- the server's abilities ------------------------------------------------------------------ */

/* Runs a statement with durable write concern. It concerns a document that does not exist. */
static truce_status mongo_probe(struct mongo_store *store, const bson_t *body, const char *what,
                                bson_error_t *error)
{
    struct mongo_command command = {.what = what,
                                    .body = body,
                                    /* No document depends on the statement. */
                                    .kind = MONGO_READ,
                                    .write_concern = true,
                                    .wait_ms = store->deadline_ms,
                                    .relaxed = store->relaxed};
    bson_t reply;
    truce_status status = truce__mongo_run_alone(store, &command, &reply, error);

    bson_destroy(&reply);
    return status;
}

/* Checks, with a write that changes nothing, that the server accepts writes that wait for the disks
 * of the majority. */
static truce_status probe_durable(struct mongo_store *store, bson_error_t *error)
{
    bson_t *body;
    bson_error_t caught = {0};
    bson_oid_t absent;
    truce_status status;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("delete", BCON_UTF8(PROBE), "deletes", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "limit", BCON_INT32(1), "}", "]");
    status = mongo_probe(store, body, "a write on the disks of the majority", &caught);
    bson_destroy(body);
    if (status && error) {
        *error = caught;
        if (status == TRUCE_INVALID && caught.domain == TRUCE_ERROR_SERVER &&
            caught.code == CODE_BAD_VALUE)
            return truce__fail(TRUCE_INVALID, error,
                               "this server cannot guarantee acknowledged writes (it has no "
                               "journal): %.300s",
                               caught.message);
    }
    return status;
}

static truce_status probe_pipeline(struct mongo_store *store, bson_error_t *error)
{
    bson_oid_t absent;
    truce_status status;
    bson_t *body;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("update", BCON_UTF8(PROBE), "updates", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "u", "[", "{", "$set", "{", "a", BCON_INT32(1), "}",
                    "}", "]", "}", "]");
    status = mongo_probe(store, body, "an update by a pipeline", error);
    bson_destroy(body);
    return status;
}

/* Probes array filters with a condition on an element as a whole and one on its field, because the
 * patterns need both. */
static truce_status probe_array_filters(struct mongo_store *store, bson_error_t *error)
{
    bson_oid_t absent;
    truce_status status;
    bson_t *body;

    bson_oid_init(&absent, NULL);
    body = BCON_NEW("update", BCON_UTF8(PROBE), "updates", "[", "{", "q", "{", "_id",
                    BCON_OID(&absent), "}", "u", "{", "$set", "{", "a.$[i].b", BCON_INT32(1), "}",
                    "}", "arrayFilters", "[", "{", "i", "{", "$type", BCON_UTF8("object"), "}",
                    "i.c", BCON_INT32(1), "}", "]", "}", "]");
    status = mongo_probe(store, body, "an update with array filters", error);
    bson_destroy(body);
    return status;
}

/* Returns whether the server may have transactions, so that a probe is worth its time. A truce
 * server has them even if it does not present itself as a replica set. */
static bool may_have_transactions(const struct mongo_server *server)
{
    /* The wire versions of MongoDB 4.2 and 4.0. */
    int32_t least = server->deployment == MONGO_SHARDED ? 8 : 7;

    return (server->deployment != MONGO_STANDALONE || server->truce) && server->sessions &&
           server->wire >= least;
}

/* Returns whether the server has change streams of a whole database. */
static bool may_have_change_streams(const struct mongo_server *server)
{
    return server->deployment != MONGO_STANDALONE && server->sessions &&
           /* The wire version of MongoDB 4.0. */
           server->wire >= 7;
}

/* Adds the abilities if the probe succeeds. If the reply is lost, the probe is repeated, at most
 * PROBES times in all. If the deadline of the opening passes without a reply, the opening fails,
 * because the store would otherwise lack abilities that the server has. */
static truce_status find_out(struct mongo_store *store,
                             truce_status (*probe_function)(struct mongo_store *, bson_error_t *),
                             uint32_t abilities, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = TRUCE_IO;

    for (int i = 0; i < PROBES && status && caught.domain != TRUCE_ERROR_SERVER; i++) {
        status = probe_function(store, &caught);
        if (status && caught.domain != TRUCE_ERROR_SERVER &&
            truce__clock_monotonic_ns() >= truce__deadline())
            return truce__fail(TRUCE_IO, error, "cannot find out what the server supports: %.300s",
                               caught.message);
    }
    if (!status)
        store->base.capabilities |= abilities;
    return TRUCE_OK;
}

/* Finds out what the server can do, by its version and by probes. */
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
    *can |= TRUCE_CAN_DURABLE | (store->server.truce ? TRUCE_CAN_COMMAND : 0);
    if (store->read_only)
        *can |= TRUCE_CAN_ARRAY_FILTERS | (store->server.wire >= 8 ? TRUCE_CAN_PIPELINE_UPDATE : 0);
    if (!store->read_only && store->server.wire >= 8)
        status = find_out(store, probe_pipeline, TRUCE_CAN_PIPELINE_UPDATE, error);
    if (!status && !store->read_only)
        status = find_out(store, probe_array_filters, TRUCE_CAN_ARRAY_FILTERS, error);
    if (!status && may_have_transactions(&store->server))
        status = find_out(store, truce__mongo_probe_transaction,
                          TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ, error);
    if (may_have_change_streams(&store->server))
        *can |= TRUCE_CAN_WAIT;
    return status;
}

/* ---- open ----------------------------------------------------------------------------------- */

static truce_status mongo_reach(struct mongo_store *store, const mongoc_uri_t *uri,
                                bson_error_t *error)
{
    const mongoc_host_list_t *hosts = mongoc_uri_get_hosts(uri);
    truce_status status = truce__mongo_pool_open(store, uri, error);

    if (status)
        return status;
    store->direct = hosts && !hosts->next && !mongoc_uri_get_replica_set(uri);
    truce__mongo_watch(store);
    return find_primary(store, uri, error);
}

/* Returns whether to open the whole replica set: the URI names one host of it and has no
 * directConnection. */
static bool wants_whole_set(const struct mongo_store *store, const mongoc_uri_t *uri)
{
    return store->server.deployment == MONGO_REPLICA_SET && !mongoc_uri_get_replica_set(uri) &&
           !mongoc_uri_has_option(uri, MONGOC_URI_DIRECTCONNECTION);
}

/* Opens the store again with the name of the replica set, so that libmongoc finds all members. */
static truce_status reach_set(struct mongo_store *store, mongoc_uri_t *uri, bson_error_t *error)
{
    char name[sizeof store->server.name];
    bson_error_t caught = {0};
    truce_status status;

    memcpy(name, store->server.name, sizeof name);
    mongoc_uri_set_option_as_utf8(uri, MONGOC_URI_REPLICASET, name);
    status = mongo_reach(store, uri, &caught);
    if (status)
        truce__fail(status, error,
                    "the members of the replica set \"%s\" cannot be reached by the names in its "
                    "configuration (directConnection=true uses only this server): %.200s",
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

/* Connects to the deployment, checks that it is suitable, and sets up what depends on its kind. */
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
        status = mongo_collection_exists(store, NULL, error);
        if (status == TRUCE_NOT_FOUND)
            return truce__fail(TRUCE_NOT_FOUND, error, "the database \"%s\" has no collections",
                               store->database);
    }
    if (!status)
        status = find_capabilities(store, error);
    if (!status && store->server.deployment == MONGO_SHARDED)
        store->shards = truce__mongo_shards_new();
    if (!status && (store->base.capabilities & TRUCE_CAN_WAIT))
        store->listener = truce__mongo_listener_new(uri, LISTEN_IDLE_MS, &store->changes);
    return status;
}

/* Opens the store. On failure, frees what was created. */
static truce_status mongo_open_store(const char *scheme, const char *path,
                                     const truce_store_options *options, truce_store **store,
                                     bson_error_t *error)
{
    char *text = bson_strdup_printf("%s:%s", scheme, path);
    struct mongo_store *made;
    mongoc_uri_t *uri;
    bool timed;
    truce_status status;

    *store = NULL;
    status = truce__mongoc_load(NULL, error);
    if (!status)
        status = mongo_uri_parse(text, options, &uri, &timed, error);
    bson_free(text);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->base.ops = &mongo_ops;
    pthread_mutex_init(&made->limited.mutex, NULL);
    made->structure = truce__mongo_structure_new();
    made->audience.log_hook = truce__log_hook_of(options->hooks);
    truce__mongoc_listen(&made->audience);
    made->database =
        bson_strdup(options->database ? options->database : mongoc_uri_get_database(uri));
    made->deadline_ms =
        (uint32_t)mongoc_uri_get_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, 30000);
    if (options->deadline_ms)
        made->deadline_ms = options->deadline_ms;
    made->reply_ms = timed || made->deadline_ms < REPLY_MS ? made->deadline_ms : REPLY_MS;
    made->select_ms = made->deadline_ms < SELECT_MS ? made->deadline_ms : SELECT_MS;
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                   (int32_t)made->select_ms);
    made->read_only = options->read_only;
    made->relaxed = options->relaxed;
    {
        DEADLINE_SCOPE(made->deadline_ms);

        status = open_with(uri, options, made, error);
    }
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

/* ---- indexes and collections ----------------------------------------------------------------- */

/* Index definitions are checked here by the rules of all stores and sent in normal form, so that
 * every store accepts, refuses, and interprets a definition in the same way. Indexes with features
 * that truce does not have (text, hashed, a collation) are listed as the server reports them. */

static struct mongo_store *schema_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

/* ---- the structure number -------------------------------------------------------------------- */

/* Counts a structural change (truce__store_structure). A collection was dropped, renamed, or
 * emptied, or an index was dropped, or this may have happened. */
static void mongo_structure_changed(truce_store *base)
{
    atomic_fetch_add(&schema_of(base)->changes, 1);
}

static truce_status mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error)
{
    truce_status status = truce__mongo_bulk(base, writes, count, options, outcomes, error);

    for (size_t i = 0; i < count; i++)
        if (writes[i].kind == TRUCE_WRITE_REMOVE && writes[i].options.multi &&
            (!writes[i].filter || bson_empty(writes[i].filter)))
            mongo_structure_changed(base);
    return status;
}

/* Runs a command that changes the schema. `reply` may be NULL. */
static truce_status schema_change(truce_store *base, const char *verb, const char *collection,
                                  const char *database, const bson_t *body, bson_t *reply,
                                  bson_error_t *error)
{
    struct mongo_store *store = schema_of(base);
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, verb, collection),
        .body = body,
        .database = database,
        .kind = MONGO_WRITE,
        .write_concern = true,
        .relaxed = store->relaxed,
    };
    truce_status status = truce__mongo_writable(store, error);
    bson_t answer;

    if (status) {
        if (reply)
            bson_init(reply);
        return status;
    }
    status = truce__mongo_run_alone(store, &command, &answer, error);
    if (reply)
        bson_copy_to(&answer, reply);
    bson_destroy(&answer);
    return status;
}

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce__mongo_index_create(truce_store *base, const char *collection,
                                       const bson_t *index, bson_error_t *error)
{
    struct index_spec spec = {0};
    bson_t body = BSON_INITIALIZER, list, definition;
    truce_status status = truce__index_spec_parse(index, &spec, error);

    if (status) {
        bson_destroy(&body);
        return status;
    }
    truce__index_describe(&spec, &definition);
    BSON_APPEND_UTF8(&body, "createIndexes", collection);
    BSON_APPEND_ARRAY_BEGIN(&body, "indexes", &list);
    BSON_APPEND_DOCUMENT(&list, "0", &definition);
    bson_append_array_end(&body, &list);
    status = schema_change(base, "create an index of", collection, NULL, &body, NULL, error);
    if (!status && schema_of(base)->structure)
        truce__mongo_structure_watch(schema_of(base)->structure, collection);
    bson_destroy(&definition);
    bson_destroy(&body);
    truce__index_spec_release(&spec);
    return status;
}

static truce_status mongo_index_drop(truce_store *base, const char *collection, const char *name,
                                     bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&body, "dropIndexes", collection);
    BSON_APPEND_UTF8(&body, "index", name);
    status = schema_change(base, "drop an index of", collection, NULL, &body, NULL, error);
    mongo_structure_changed(base);
    bson_destroy(&body);
    return status;
}

static truce_status mongo_index_modify(truce_store *base, const char *collection, const char *name,
                                       const bson_t *changes, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, index;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collMod", collection);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "index", &index);
    BSON_APPEND_UTF8(&index, "name", name);
    bson_concat(&index, changes);
    bson_append_document_end(&body, &index);
    status = schema_change(base, "change an index of", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

/* Appends the server's definition of an index, in the form of all stores if possible. */
static void schema_append_definition(struct array *indexes, const bson_t *listed)
{
    struct index_spec spec = {0};
    bson_t known, definition;

    bson_init(&known);
    bson_copy_to_excluding_noinit(listed, &known, "ns", "background", NULL);
    if (!truce__index_spec_parse(&known, &spec, NULL)) {
        truce__index_describe(&spec, &definition);
        truce__array_add_document(indexes, &definition);
        bson_destroy(&definition);
        truce__index_spec_release(&spec);
    } else {
        truce__array_add_document(indexes, &known);
    }
    bson_destroy(&known);
}

truce_status truce__mongo_index_list(truce_store *base, const char *collection, bson_t *indexes,
                                     bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "list the indexes of", collection),
        .body = &body,
        .outside = true,
    };
    truce_cursor *cursor = NULL;
    const bson_t *listed = NULL;
    struct array list = {.to = indexes};
    truce_status status;

    bson_init(indexes);
    BSON_APPEND_UTF8(&body, "listIndexes", collection);
    status = truce__mongo_cursor(schema_of(base), &command, &cursor, error);
    while (!status) {
        listed = NULL;
        status = cursor->ops->next(cursor, &listed, error);
        if (status || !listed)
            break;
        if (*truce__field_text(listed, "name"))
            schema_append_definition(&list, listed);
        else
            status =
                truce__fail(TRUCE_IO, error, "%s: the server's reply has an index without a name",
                            command.what);
    }
    truce_cursor_close(cursor);
    bson_destroy(&body);
    if (!status && !list.count)
        status = truce__collection_missing(collection, error);
    if (status)
        bson_reinit(indexes);
    return status;
}

/* ---- collections ---------------------------------------------------------------------------- */

struct name {
    char *text;
    /* The validator. NULL if the collection has none, or if validators were not requested. */
    bson_t *validator;
    bool refuses;
};

struct names {
    struct name *items;
    size_t count;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        bson_free(names->items[i].text);
        bson_destroy(names->items[i].validator);
    }
    bson_free(names->items);
}

/* Returns the name of a collection of a user, or NULL for a view and for the server's own
 * collections. */
static const char *schema_name_of(const bson_t *listed)
{
    bson_iter_t iter;
    const char *name;

    if (bson_iter_init_find(&iter, listed, "type") && BSON_ITER_HOLDS_UTF8(&iter) &&
        strcmp(bson_iter_utf8(&iter, NULL), "collection") != 0)
        return NULL;
    if (!bson_iter_init_find(&iter, listed, "name") || !BSON_ITER_HOLDS_UTF8(&iter))
        return NULL;
    name = bson_iter_utf8(&iter, NULL);
    return strncmp(name, "system.", 7) && strcmp(name, PROBE) ? name : NULL;
}

static bool schema_is_option(const bson_t *listed, const char *path, const char *value)
{
    bson_iter_t iter, option;

    return bson_iter_init(&iter, listed) && bson_iter_find_descendant(&iter, path, &option) &&
           BSON_ITER_HOLDS_UTF8(&option) && !strcmp(bson_iter_utf8(&option, NULL), value);
}

static bson_t *schema_validator_of(const bson_t *listed)
{
    bson_iter_t iter, options;
    bson_t view;

    if (!bson_iter_init(&iter, listed) ||
        !bson_iter_find_descendant(&iter, "options.validator", &options) ||
        !BSON_ITER_HOLDS_DOCUMENT(&options))
        return NULL;
    truce__value_bson(truce__value_of_iter(&options), &view);
    return bson_empty(&view) ? NULL : bson_copy(&view);
}

/* Returns whether the validator refuses writes, and does not just warn. */
static bool validator_refuses_writes(const bson_t *listed)
{
    return !schema_is_option(listed, "options.validationAction", "warn") &&
           !schema_is_option(listed, "options.validationLevel", "off");
}

/* Lists all collections, or the requested one, with their validators unless only names are
 * requested. */
static truce_status schema_read_names(struct mongo_store *store, const char *only, bool name_only,
                                      struct names *names, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, filter;
    struct mongo_command command = {.what = "list the collections", .body = &body, .outside = true};
    truce_cursor *cursor = NULL;
    const bson_t *listed = NULL;
    truce_status status;

    BSON_APPEND_INT32(&body, "listCollections", 1);
    if (only) {
        BSON_APPEND_DOCUMENT_BEGIN(&body, "filter", &filter);
        BSON_APPEND_UTF8(&filter, "name", only);
        bson_append_document_end(&body, &filter);
    }
    BSON_APPEND_BOOL(&body, "nameOnly", name_only);
    status = truce__mongo_cursor(store, &command, &cursor, error);
    while (!status) {
        const char *name;

        listed = NULL;
        status = cursor->ops->next(cursor, &listed, error);
        if (status || !listed)
            break;
        name = schema_name_of(listed);
        if (!name || (only && strcmp(name, only) != 0))
            continue;
        names->items = bson_realloc(names->items, (names->count + 1) * sizeof *names->items);
        names->items[names->count++] = (struct name){bson_strdup(name), schema_validator_of(listed),
                                                     validator_refuses_writes(listed)};
    }
    truce_cursor_close(cursor);
    bson_destroy(&body);
    return status;
}

/* Checks whether the collection exists, or any collection if `collection` is NULL. Returns
 * NOT_FOUND if not. */
static truce_status mongo_collection_exists(struct mongo_store *store, const char *collection,
                                            bson_error_t *error)
{
    struct names names = {0};
    truce_status status = schema_read_names(store, collection, true, &names, error);

    if (!status && !names.count)
        status = truce__collection_missing(collection ? collection : "", error);
    free_names(&names);
    return status;
}

truce_status truce__mongo_collection_create(truce_store *base, const char *collection,
                                            bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    bson_error_t ignored;
    /* MongoDB 7 accepts the creation of an existing collection, so its existence is checked
     * first. */
    truce_status status = mongo_collection_exists(schema_of(base), collection, &ignored);

    if (!status)
        status = truce__collection_taken(collection, error);
    else if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    else if (error)
        *error = ignored;
    BSON_APPEND_UTF8(&body, "create", collection);
    if (!status)
        status = schema_change(base, "create the collection", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

/* Drops the collection. The number of the structure changes also after a failure, because the
 * outcome may be unknown. */
static truce_status mongo_collection_drop(truce_store *base, const char *collection,
                                          bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, reply;
    truce_status status;

    BSON_APPEND_UTF8(&body, "drop", collection);
    status = schema_change(base, "drop the collection", collection, NULL, &body, &reply, error);
    mongo_structure_changed(base);
    /* MongoDB 7 accepts the drop of a missing collection. Its reply then has no name. */
    if (!status && schema_of(base)->server.wire >= 21 && !bson_has_field(&reply, "ns") &&
        !bson_has_field(&reply, "nIndexesWas"))
        status = truce__collection_missing(collection, error);
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

static void append_namespace(bson_t *body, const char *key, const char *database,
                             const char *collection)
{
    char *text = bson_strdup_printf("%s.%s", database, collection);

    BSON_APPEND_UTF8(body, key, text);
    bson_free(text);
}

static truce_status mongo_collection_rename(truce_store *base, const char *from, const char *to,
                                            bool drop_target, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    append_namespace(&body, "renameCollection", schema_of(base)->database, from);
    append_namespace(&body, "to", schema_of(base)->database, to);
    BSON_APPEND_BOOL(&body, "dropTarget", drop_target);
    status = schema_change(base, "rename the collection", from, "admin", &body, NULL, error);
    mongo_structure_changed(base);
    bson_destroy(&body);
    return status;
}

static truce_status mongo_collection_validate(truce_store *base, const char *collection,
                                              const bson_t *validator, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collMod", collection);
    BSON_APPEND_DOCUMENT(&body, "validator", validator);
    BSON_APPEND_UTF8(&body, "validationLevel", "strict");
    BSON_APPEND_UTF8(&body, "validationAction", "error");
    status = schema_change(base, "set the validator of", collection, NULL, &body, NULL, error);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_validator(truce_store *base, const char *collection, bson_t *validator,
                                    bson_error_t *error)
{
    struct names names = {0};
    truce_status status = schema_read_names(schema_of(base), collection, false, &names, error);

    bson_init(validator);
    if (!status && names.count && names.items[0].validator && names.items[0].refuses)
        bson_concat(validator, names.items[0].validator);
    free_names(&names);
    return status;
}

static int schema_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* Appends the description and the sizes of a collection. */
static truce_status schema_describe(struct mongo_store *store, const char *name,
                                    bson_t *description, bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    static const truce_count_options all = {0};
    bson_t body = BSON_INITIALIZER, reply;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "measure the collection", name),
        .body = &body,
        .outside = true,
    };
    int64_t documents;
    truce_status status;

    BSON_APPEND_UTF8(&body, "collStats", name);
    status = truce__mongo_run_alone(store, &command, &reply, error);
    documents = truce__mongo_number(&reply, "count", 0);
    /* The server counts a document that moves between shards twice, so truce counts again. */
    if (!status && store->shards)
        status =
            truce__mongo_count((truce_store *)store, name, &everything, &all, &documents, error);
    if (!status) {
        BSON_APPEND_UTF8(description, "name", name);
        BSON_APPEND_INT64(description, "documents", documents);
        BSON_APPEND_INT64(description, "bytes", truce__mongo_number(&reply, "size", 0));
        BSON_APPEND_INT32(description, "indexes",
                          (int32_t)truce__mongo_number(&reply, "nindexes", 0));
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_collection_list(truce_store *base, const truce_list_options *options,
                                          bson_t *collections, bson_error_t *error)
{
    struct names names = {0};
    struct array list = {.to = collections};
    truce_status status;

    bson_init(collections);
    status = schema_read_names(schema_of(base), options->collection, false, &names, error);
    if (names.count)
        qsort(names.items, names.count, sizeof *names.items, schema_compare_names);
    for (size_t i = 0; i < names.count && !status; i++) {
        bson_t description = BSON_INITIALIZER;

        if (options->unmeasured)
            BSON_APPEND_UTF8(&description, "name", names.items[i].text);
        else
            status = schema_describe(schema_of(base), names.items[i].text, &description, error);
        if (names.items[i].validator)
            BSON_APPEND_DOCUMENT(&description, "validator", names.items[i].validator);
        if (!status)
            truce__array_add_document(&list, &description);
        /* The collection was dropped in the meantime. */
        if (status == TRUCE_NOT_FOUND)
            status = TRUCE_OK;
        bson_destroy(&description);
    }
    free_names(&names);
    if (status)
        bson_reinit(collections);
    return status;
}
