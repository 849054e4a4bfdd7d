/* Inserts one document, which must not exist. The store contains other documents, or is new (its
 * log has not reached its lasting size). */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

struct inserts {
    atomic_int_fast64_t next_id;
    char script[48];
};

static int64_t next_id(struct bench_call *call)
{
    struct inserts *inserts = call->side->state;

    return DOCUMENTS + atomic_fetch_add(&inserts->next_id, 1);
}

static int64_t insert_truce(struct bench_call *call)
{
    bson_t document;
    bson_error_t error;

    document_make(next_id(call), &document);
    BENCH_MUST(truce_insert(call->connection, "documents", &document, NULL, &error), error);
    bson_destroy(&document);
    return 1;
}

static int64_t insert_sql(struct bench_call *call)
{
    int64_t id = next_id(call);
    char owner[40], text[200];

    document_texts(id, owner, text);
    BENCH_CHECK(sql_run(call->connection, SQL("INSERT INTO documents(id, counter, grp, owner, text)"
                                              " VALUES ($1, 0, $2, $3, $4)",
                                              NUMBER(id), NUMBER(id % document_groups), TEXT(owner),
                                              TEXT(text))) == 1);
    return 1;
}

static int64_t insert_mongo(struct bench_call *call)
{
    bson_t document;

    document_make(next_id(call), &document);
    mongo_insert(call->connection, "documents", &document);
    bson_destroy(&document);
    return 1;
}

static void load_script(struct bench_side *side)
{
    struct inserts *inserts = side->state;

    snprintf(inserts->script, sizeof inserts->script, "%s",
             redis_run(side->connections[0],
                       "SCRIPT|LOAD|if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end "
                       "redis.call('HSET', KEYS[1], 'counter', 0, 'group', ARGV[1], 'owner', "
                       "ARGV[2], 'text', ARGV[3]) return 1")
                 ->text);
}

static int64_t insert_redis(struct bench_call *call)
{
    struct inserts *inserts = call->side->state;
    int64_t id = next_id(call);
    char owner[40], text[200];

    document_texts(id, owner, text);
    BENCH_CHECK(redis_run(call->connection, "EVALSHA|%s|1|d:%" PRId64 "|%" PRId64 "|%s|%s",
                          inserts->script, id, id % document_groups, owner, text)
                    ->number == 1);
    return 1;
}

static void insert_setup_redis(struct bench_side *side)
{
    documents_setup(side);
    load_script(side);
}

static void setup_redis_none(struct bench_side *side)
{
    documents_setup_none(side);
    load_script(side);
}

const struct bench_workload workload_insert = {
    .name = "insert",
    .on_servers = true,
    .title = "insert one document",
    .unit = "inserts",
    .inserts = 1,
    .aim = 1.2,
    .state_size = sizeof(struct inserts),
    .aim_serve = 16000,
    .forms = {
        {"truce", NULL, documents_setup, insert_truce, documents_check},
        {"postgresql", NULL, documents_setup, insert_sql, documents_check},
        {"sqlite", NULL, documents_setup, insert_sql, documents_check},
        {"redis", NULL, insert_setup_redis, insert_redis, documents_check},
        {"mongodb", NULL, documents_setup, insert_mongo, documents_check},
    }};

const struct bench_workload workload_first_inserts = {
    .name = "first_inserts",
    .title = "the first inserts into a store that was just made",
    .unit = "inserts",
    .inserts = 1,
    .fresh = true,
    .state_size = sizeof(struct inserts),
    .forms = {
        {"truce", NULL, documents_setup_none, insert_truce, documents_check},
        {"postgresql", NULL, documents_setup_none, insert_sql, documents_check},
        {"sqlite", NULL, documents_setup_none, insert_sql, documents_check},
        {"redis", NULL, setup_redis_none, insert_redis, documents_check},
    }};
