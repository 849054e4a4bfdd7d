/* Optimistic concurrency: an operation reads a document with its version (the counter), and writes
 * it with the next version if the version is unchanged. Otherwise it tries again. */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

struct scripts {
    char set[48];
};

static bool set_truce(truce_store *store, int64_t id)
{
    bson_t filter, update = BSON_INITIALIZER, document, set;
    truce_write_result result = {0};
    bson_error_t error;
    int64_t version;

    document_filter(id, &filter);
    BENCH_MUST(truce_find_one(store, "documents", &filter, NULL, &document, &error), error);
    version = document_counter(&document);
    BSON_APPEND_INT64(&filter, "counter", version);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "counter", version + 1);
    bson_append_document_end(&update, &set);
    BENCH_MUST(truce_update(store, "documents", &filter, &update, NULL, &result, &error), error);
    bson_destroy(&document);
    bson_destroy(&update);
    bson_destroy(&filter);
    return result.modified == 1;
}

static int64_t compare_and_set_truce(struct bench_call *call)
{
    while (!set_truce(call->connection, (int64_t)bench_random(DOCUMENTS)))
        ;
    return 1;
}

static bool set_mongo(struct mongo *mongo, int64_t id)
{
    bson_t filter, update = BSON_INITIALIZER, document, set;
    int64_t version, matched;

    document_filter(id, &filter);
    BENCH_CHECK(mongo_find_one(mongo, "documents", &filter, &document));
    version = document_counter(&document);
    BSON_APPEND_INT64(&filter, "counter", version);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "counter", version + 1);
    bson_append_document_end(&update, &set);
    matched = mongo_update(mongo, "documents", &filter, &update, NULL);
    bson_destroy(&document);
    bson_destroy(&update);
    bson_destroy(&filter);
    return matched == 1;
}

static int64_t compare_and_set_mongo(struct bench_call *call)
{
    while (!set_mongo(call->connection, (int64_t)bench_random(DOCUMENTS)))
        ;
    return 1;
}

static int64_t compare_and_set_sql(struct bench_call *call)
{
    struct sql *to = call->connection;
    int64_t version, id;

    do {
        id = (int64_t)bench_random(DOCUMENTS);
        sql_start(to, SQL("SELECT id, counter, grp, owner, text FROM documents WHERE id = $1",
                          NUMBER(id)));
        BENCH_CHECK(sql_next(to));
        version = sql_number(to, 1);
        sql_finish(to);
    } while (sql_run(to, SQL("UPDATE documents SET counter = $1 WHERE id = $2 AND counter = $3",
                             NUMBER(version + 1), NUMBER(id), NUMBER(version))) != 1);
    return 1;
}

static void compare_and_set_setup_redis(struct bench_side *side)
{
    struct scripts *scripts = side->state;

    documents_setup(side);
    snprintf(scripts->set, sizeof scripts->set, "%s",
             redis_run(side->connections[0],
                       "SCRIPT|LOAD|if redis.call('HGET', KEYS[1], 'counter') ~= ARGV[1] then "
                       "return 0 end redis.call('HSET', KEYS[1], 'counter', ARGV[2]) return 1")
                 ->text);
}

static int64_t compare_and_set_redis(struct bench_call *call)
{
    struct scripts *scripts = call->side->state;
    const struct redis_item *items;
    int64_t version, id;

    do {
        id = (int64_t)bench_random(DOCUMENTS);
        items = redis_run(call->connection, "HGETALL|d:%" PRId64, id);
        BENCH_CHECK(items[0].number == 8);
        version = redis_field(items, "counter");
    } while (redis_run(call->connection, "EVALSHA|%s|1|d:%" PRId64 "|%" PRId64 "|%" PRId64,
                       scripts->set, id, version, version + 1)
                 ->number != 1);
    return 1;
}

const struct bench_workload workload_compare_and_set = {
    .name = "compare_and_set",
    .on_servers = true,
    .title = "read a document, then write it if its version is still the same",
    .unit = "changes",
    .changes = 1,
    .aim = 1.5,
    .state_size = sizeof(struct scripts),
    .aim_serve = 10000,
    .forms = {
        {"truce", NULL, documents_setup, compare_and_set_truce, documents_check},
        {"postgresql", NULL, documents_setup, compare_and_set_sql, documents_check},
        {"sqlite", NULL, documents_setup, compare_and_set_sql, documents_check},
        {"redis", NULL, compare_and_set_setup_redis, compare_and_set_redis, documents_check},
        {"mongodb", NULL, documents_setup, compare_and_set_mongo, documents_check},
    }};
