/*
 * Facts about a deployment for truce_doctor: the replies to some commands.
 *
 *     {deployment: "standalone" | "replica set" | "sharded", database, capabilities: [...],
 *      clock: {server, before, after},        milliseconds; the local time before and after
 *      hello, build, options, status, feature, defaults, replica, config, space,      replies
 *      shards, sharded: [{_id: "db.collection", key, unique}]}                        of a mongos
 *
 * If a command is refused (missing privileges, unknown command), its reply is {refused: message,
 * code}. If hello is refused, `clock` and `hello` are absent.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "base/clock.h"
#include "bson/array.h"

static const struct fact_query {
    /* The name of the fact, and the database of the command or NULL for the database of the
     * store. */
    const char *name, *database;
    /* The command, whose only argument is 1. */
    const char *command;
    /* The fields of the reply that are omitted. */
    const char *leave_out[6];
    /* The kind of deployment that has the command, or -1 for any. */
    int deployment;
} fact_queries[] = {
    {"build", "admin", "buildInfo", {"buildEnvironment", "openssl"}, -1},
    {"options", "admin", "getCmdLineOpts", {NULL}, -1},
    {"status",
     "admin",
     "serverStatus",
     {"metrics", "wiredTiger", "tcmalloc", "locks", "network"},
     -1},
    {"defaults", "admin", "getDefaultRWConcern", {NULL}, -1},
    {"space", NULL, "dbStats", {NULL}, -1},
    {"replica",
     "admin",
     "replSetGetStatus",
     {"initialSyncStatus", "electionCandidateMetrics"},
     MONGO_REPLICA_SET},
    {"config", "admin", "replSetGetConfig", {NULL}, MONGO_REPLICA_SET},
    {"shards", "admin", "listShards", {NULL}, MONGO_SHARDED},
};

/* ---- commands -------------------------------------------------------------------------------- */

static truce_status facts_run_command(struct mongo_store *store, const char *database,
                                      const bson_t *body, bson_t *reply, bson_error_t *error)
{
    struct mongo_command command = {
        .what = "ask what the server is", .body = body, .database = database, .kind = MONGO_READ};

    return truce__mongo_run_alone(store, &command, reply, error);
}

/* Returns whether the server refused a command, which is a fact. A missing reply is a failure. */
static bool facts_is_refusal(truce_status status)
{
    return status && status != TRUCE_IO && status != TRUCE_TIMEOUT;
}

/* Appends a reply without the fields that concern only the transport, and without `leave_out`. */
static void facts_append_answer(bson_t *facts, const char *name, const bson_t *reply,
                                const char *const leave_out[6])
{
    bson_t answer;
    bson_iter_t iter;

    BSON_APPEND_DOCUMENT_BEGIN(facts, name, &answer);
    if (bson_iter_init(&iter, reply))
        while (bson_iter_next(&iter)) {
            const char *key = bson_iter_key(&iter);
            bool out = key[0] == '$' || !strcmp(key, "operationTime");

            for (int i = 0; i < 6 && leave_out[i]; i++)
                out = out || !strcmp(key, leave_out[i]);
            if (!out)
                bson_append_iter(&answer, NULL, 0, &iter);
        }
    bson_append_document_end(facts, &answer);
}

static void append_refusal(bson_t *facts, const char *name, const bson_error_t *error)
{
    bson_t answer;

    BSON_APPEND_DOCUMENT_BEGIN(facts, name, &answer);
    BSON_APPEND_UTF8(&answer, "refused", error->message);
    BSON_APPEND_INT64(&answer, "code", error->code);
    bson_append_document_end(facts, &answer);
}

/* Runs a command and appends its reply, or the refusal. Fails only if there was no reply. */
static truce_status facts_append_reply(struct mongo_store *store,
                                       const struct fact_query *fact_query, bson_t *facts,
                                       bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, reply;
    bson_error_t caught = {0};
    truce_status status;

    BSON_APPEND_INT32(&body, fact_query->command, 1);
    status = facts_run_command(store, fact_query->database, &body, &reply, &caught);
    if (!status)
        facts_append_answer(facts, fact_query->name, &reply, fact_query->leave_out);
    else if (facts_is_refusal(status))
        append_refusal(facts, fact_query->name, &caught);
    else if (error)
        *error = caught;
    bson_destroy(&reply);
    bson_destroy(&body);
    return facts_is_refusal(status) ? TRUCE_OK : status;
}

/* ---- other facts ----------------------------------------------------------------------------- */

/* Runs hello between two reads of the local clock. Old servers know only isMaster. */
static truce_status put_hello(struct mongo_store *store, bson_t *facts, bson_error_t *error)
{
    static const char *const names[] = {"hello", "isMaster"};
    static const char *const all[6] = {NULL};
    truce_status status = TRUCE_OK;
    bson_t clock;

    for (int i = 0; i < 2; i++) {
        bson_t body = BSON_INITIALIZER, reply;
        int64_t before_ms = truce__clock_wall_ms(), after_ms;
        bson_iter_t iter;

        BSON_APPEND_INT32(&body, names[i], 1);
        status = facts_run_command(store, "admin", &body, &reply, error);
        after_ms = truce__clock_wall_ms();
        if (!status) {
            facts_append_answer(facts, "hello", &reply, all);
            if (bson_iter_init_find(&iter, &reply, "localTime") &&
                BSON_ITER_HOLDS_DATE_TIME(&iter)) {
                BSON_APPEND_DOCUMENT_BEGIN(facts, "clock", &clock);
                BSON_APPEND_INT64(&clock, "server", bson_iter_date_time(&iter));
                BSON_APPEND_INT64(&clock, "before", before_ms);
                BSON_APPEND_INT64(&clock, "after", after_ms);
                bson_append_document_end(facts, &clock);
            }
        }
        bson_destroy(&reply);
        bson_destroy(&body);
        if (!facts_is_refusal(status))
            break;
    }
    return facts_is_refusal(status) ? TRUCE_OK : status;
}

/* Appends the featureCompatibilityVersion, whose command has an argument of its own. */
static truce_status put_feature(struct mongo_store *store, bson_t *facts, bson_error_t *error)
{
    static const char *const all[6] = {NULL};
    bson_t *body =
        BCON_NEW("getParameter", BCON_INT32(1), "featureCompatibilityVersion", BCON_INT32(1));
    bson_error_t caught = {0};
    bson_t reply;
    truce_status status = facts_run_command(store, "admin", body, &reply, &caught);

    if (!status)
        facts_append_answer(facts, "feature", &reply, all);
    else if (facts_is_refusal(status))
        append_refusal(facts, "feature", &caught);
    else if (error)
        *error = caught;
    bson_destroy(&reply);
    bson_destroy(body);
    return facts_is_refusal(status) ? TRUCE_OK : status;
}

/* Appends the sharded collections of the database, from the config servers. */
static truce_status put_sharded(struct mongo_store *store, bson_t *facts, bson_error_t *error)
{
    char *from = bson_strdup_printf("%s.", store->database);
    /* The end of the range: '/' is the next character after the dot. */
    char *to = bson_strdup_printf("%s/", store->database);
    bson_t *body = BCON_NEW("find", "collections", "filter", "{", "_id", "{", "$gte",
                            BCON_UTF8(from), "$lt", BCON_UTF8(to), "}", "dropped", "{", "$ne",
                            BCON_BOOL(true), "}", "}", "projection", "{", "key", BCON_INT32(1),
                            "unique", BCON_INT32(1), "}", "batchSize", BCON_INT32(MONGO_BATCH));
    bson_error_t caught = {0};
    bson_iter_t iter, found;
    bson_t reply;
    truce_status status = facts_run_command(store, "config", body, &reply, &caught);

    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch", &found))
        bson_append_iter(facts, "sharded", -1, &found);
    else if (facts_is_refusal(status))
        append_refusal(facts, "sharded", &caught);
    else if (status && error)
        *error = caught;
    bson_destroy(&reply);
    bson_destroy(body);
    bson_free(from);
    bson_free(to);
    return facts_is_refusal(status) ? TRUCE_OK : status;
}

/* ---- all facts ------------------------------------------------------------------------------- */

/* Appends the names of the capabilities that users know. */
static void put_capabilities(const struct mongo_store *store, bson_t *facts)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{TRUCE_CAN_ATOMIC_BULK, "transactions"},
                 {TRUCE_CAN_PIPELINE_UPDATE, "updates by pipelines"},
                 {TRUCE_CAN_ARRAY_FILTERS, "array filters"},
                 {TRUCE_CAN_WILDCARD_INDEX, "wildcard indexes"},
                 {TRUCE_CAN_PARTIAL_INDEX, "partial indexes"},
                 {TRUCE_CAN_WAIT, "waiting for changes"},
                 {TRUCE_CAN_DURABLE, "durable writes"}};
    struct array list;

    truce__array_begin(&list, facts, "capabilities");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (store->base.capabilities & names[i].bit)
            truce__array_add_text(&list, names[i].name);
    }
    truce__array_end(&list, facts);
}

truce_status truce__mongo_facts(truce_store *base, bson_t *facts, bson_error_t *error)
{
    static const char *const deployments[] = {"standalone", "replica set", "sharded"};
    struct mongo_store *store = (struct mongo_store *)base;
    truce_status status;

    BSON_APPEND_UTF8(facts, "deployment", deployments[store->server.deployment]);
    BSON_APPEND_UTF8(facts, "database", store->database);
    put_capabilities(store, facts);
    status = put_hello(store, facts, error);
    for (size_t i = 0; !status && i < sizeof fact_queries / sizeof *fact_queries; i++)
        if (fact_queries[i].deployment < 0 ||
            fact_queries[i].deployment == (int)store->server.deployment)
            status = facts_append_reply(store, &fact_queries[i], facts, error);
    if (!status)
        status = put_feature(store, facts, error);
    if (!status && store->server.deployment == MONGO_SHARDED)
        status = put_sharded(store, facts, error);
    return status;
}
