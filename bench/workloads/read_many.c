/* Reads ten documents by their _ids, all from one snapshot. (A server of MongoDB's protocol reads
 * them without a snapshot: one find.) */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

#define LOOKED 10

/* Returns the id of document i. The ids are distinct, so that ten rows are returned. */
static int64_t drawn(int i)
{
    return i * (DOCUMENTS / LOOKED) + (int64_t)bench_random(DOCUMENTS / LOOKED);
}

static bool many_has_id(const bson_t *document, int64_t id)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_id") && bson_iter_as_int64(&iter) == id;
}

static int64_t many_truce(struct bench_call *call)
{
    truce_read_request looks[LOOKED] = {0};
    bson_value_t ids[LOOKED];
    bson_error_t error;

    for (int i = 0; i < LOOKED; i++) {
        ids[i] = document_id(drawn(i));
        looks[i] = (truce_read_request){.collection = "documents", .id = &ids[i]};
    }
    BENCH_MUST(truce_read_many(call->connection, looks, LOOKED, NULL, &error), error);
    for (int i = 0; i < LOOKED; i++) {
        BENCH_CHECK(looks[i].found && many_has_id(&looks[i].document, ids[i].value.v_int64));
        bson_destroy(&looks[i].document);
    }
    return 1;
}

static int64_t many_mongo(struct bench_call *call)
{
    bson_t filter = BSON_INITIALIZER, in, ids;
    mongoc_cursor_t *cursor;
    int found = 0;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &ids);
    for (int i = 0; i < LOOKED; i++) {
        char key[4];

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT64(&ids, key, drawn(i));
    }
    bson_append_array_end(&in, &ids);
    bson_append_document_end(&filter, &in);
    cursor = mongo_find(call->connection, "documents", &filter);
    while (mongo_next(cursor))
        found++;
    mongoc_cursor_destroy(cursor);
    bson_destroy(&filter);
    BENCH_CHECK(found == LOOKED);
    return 1;
}

static int64_t many_sql(struct bench_call *call)
{
    struct sql *to = call->connection;
    int rows = 0;

    sql_start(to, SQL("SELECT id, counter, grp, owner, text FROM documents"
                      " WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                      NUMBER(drawn(0)), NUMBER(drawn(1)), NUMBER(drawn(2)), NUMBER(drawn(3)),
                      NUMBER(drawn(4)), NUMBER(drawn(5)), NUMBER(drawn(6)), NUMBER(drawn(7)),
                      NUMBER(drawn(8)), NUMBER(drawn(9))));
    while (sql_next(to)) {
        BENCH_CHECK(sql_text(to, 4)[0]);
        rows++;
    }
    sql_finish(to);
    BENCH_CHECK(rows == LOOKED);
    return 1;
}

static int64_t many_redis(struct bench_call *call)
{
    struct redis *to = call->connection;

    redis_queue(to, "MULTI");
    for (int i = 0; i < LOOKED; i++)
        redis_queue(to, "HGETALL|d:%" PRId64, drawn(i));
    redis_queue(to, "EXEC");
    for (int i = 0; i < LOOKED + 1; i++)
        redis_receive(to);
    BENCH_CHECK(redis_receive(to)->number == LOOKED);
    return 1;
}

const struct bench_workload workload_read_many = {
    .name = "read_many",
    .on_servers = true,
    .title = "read ten documents at one snapshot",
    .unit = "looks",
    .reads = true,
    .forms = {
        {"truce", NULL, documents_setup, many_truce, documents_check},
        {"postgresql", NULL, documents_setup, many_sql, documents_check},
        {"sqlite", NULL, documents_setup, many_sql, documents_check},
        {"redis", NULL, documents_setup, many_redis, documents_check},
        {"mongodb", NULL, documents_setup, many_mongo, documents_check},
    }};
