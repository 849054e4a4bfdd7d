/* Read, modify, write in one step: one is added to a counter of a random document, or all callers
 * add to the same one. */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

static const bool any = false, hot = true;

static int64_t increment_target(struct bench_call *call)
{
    bool one = *(const bool *)call->side->form->arg;

    return one ? 0 : (int64_t)bench_random(DOCUMENTS);
}

static int64_t increment_truce(struct bench_call *call)
{
    truce_write_result result = {0};
    bson_t filter, update;
    bson_error_t error;

    document_filter(increment_target(call), &filter);
    document_increment(1, &update);
    BENCH_MUST(truce_update(call->connection, "documents", &filter, &update, NULL, &result, &error),
               error);
    BENCH_CHECK(result.modified == 1);
    bson_destroy(&filter);
    bson_destroy(&update);
    return 1;
}

static int64_t workloads_increment_mongo(struct bench_call *call)
{
    bson_t filter, update;

    document_filter(increment_target(call), &filter);
    document_increment(1, &update);
    BENCH_CHECK(mongo_update(call->connection, "documents", &filter, &update, NULL) == 1);
    bson_destroy(&filter);
    bson_destroy(&update);
    return 1;
}

static int64_t increment_sql(struct bench_call *call)
{
    BENCH_CHECK(
        sql_run(call->connection, SQL("UPDATE documents SET counter = counter + 1 WHERE id = $1",
                                      NUMBER(increment_target(call)))) == 1);
    return 1;
}

static int64_t increment_redis(struct bench_call *call)
{
    redis_run(call->connection, "HINCRBY|d:%" PRId64 "|counter|1", increment_target(call));
    return 1;
}

const struct bench_workload workload_increment = {
    .name = "increment",
    .on_servers = true,
    .title = "add one to a counter of any document",
    .unit = "changes",
    .changes = 1,
    .aim_serve = 16000,
    .forms = {
        {"truce", NULL, documents_setup, increment_truce, documents_check, &any},
        {"postgresql", NULL, documents_setup, increment_sql, documents_check, &any},
        {"sqlite", NULL, documents_setup, increment_sql, documents_check, &any},
        {"redis", NULL, documents_setup, increment_redis, documents_check, &any},
        {"mongodb", NULL, documents_setup, workloads_increment_mongo, documents_check, &any},
    }};

const struct bench_workload workload_hot_document = {
    .name = "hot_document",
    .on_servers = true,
    .title = "add one to the counter of one hot document",
    .unit = "changes",
    .changes = 1,
    .aim = 10,
    .aim_serve = 22000,
    .forms = {
        {"truce", NULL, documents_setup, increment_truce, documents_check, &hot},
        {"postgresql", NULL, documents_setup, increment_sql, documents_check, &hot},
        {"sqlite", NULL, documents_setup, increment_sql, documents_check, &hot},
        {"redis", NULL, documents_setup, increment_redis, documents_check, &hot},
        {"mongodb", NULL, documents_setup, workloads_increment_mongo, documents_check, &hot},
    }};
