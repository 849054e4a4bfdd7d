/* Reads a whole document by its _id. */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

static int64_t read_truce(struct bench_call *call)
{
    int64_t id = (int64_t)bench_random(DOCUMENTS);
    bson_t filter, document;
    bson_error_t error;
    bson_iter_t iter;

    document_filter(id, &filter);
    BENCH_MUST(truce_find_one(call->connection, "documents", &filter, NULL, &document, &error),
               error);
    BENCH_CHECK(bson_iter_init_find(&iter, &document, "_id") && bson_iter_int64(&iter) == id);
    bson_destroy(&filter);
    bson_destroy(&document);
    return 1;
}

static int64_t read_mongo(struct bench_call *call)
{
    int64_t id = (int64_t)bench_random(DOCUMENTS);
    bson_t filter, document;
    bson_iter_t iter;

    document_filter(id, &filter);
    BENCH_CHECK(mongo_find_one(call->connection, "documents", &filter, &document));
    BENCH_CHECK(bson_iter_init_find(&iter, &document, "_id") && bson_iter_int64(&iter) == id);
    bson_destroy(&filter);
    bson_destroy(&document);
    return 1;
}

static int64_t read_sql(struct bench_call *call)
{
    struct sql *sql = call->connection;
    int64_t id = (int64_t)bench_random(DOCUMENTS);

    sql_start(sql,
              SQL("SELECT id, counter, grp, owner, text FROM documents WHERE id = $1", NUMBER(id)));
    BENCH_CHECK(sql_next(sql) && sql_number(sql, 0) == id && sql_text(sql, 4)[0]);
    sql_finish(sql);
    return 1;
}

static int64_t read_redis(struct bench_call *call)
{
    int64_t id = (int64_t)bench_random(DOCUMENTS);
    const struct redis_item *items = redis_run(call->connection, "HGETALL|d:%" PRId64, id);

    BENCH_CHECK(items[0].number == 8 && redis_field(items, "group") == id % document_groups);
    return 1;
}

const struct bench_workload workload_point_read = {
    .name = "point_read",
    .on_servers = true,
    .title = "read one document by its _id",
    .unit = "reads",
    .reads = true,
    .aim = 5,
    .aim_serve = 53000,
    .forms = {
        {"truce", NULL, documents_setup, read_truce, documents_check},
        {"postgresql", NULL, documents_setup, read_sql, documents_check},
        {"sqlite", NULL, documents_setup, read_sql, documents_check},
        {"redis", NULL, documents_setup, read_redis, documents_check},
        {"mongodb", NULL, documents_setup, read_mongo, documents_check},
    }};
