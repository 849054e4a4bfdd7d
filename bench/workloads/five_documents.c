/*
 * Blind changes of five documents, all or none, guarded by a sixth document (of the first GUARDS),
 * which no other transaction may change before the decision. Peers do it in one statement.
 */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

#define CHANGED 5
#define GUARDS  100

struct five {
    int64_t guard, id[CHANGED];
};

struct scripts {
    char change[48];
};

static struct five documents_draw(void)
{
    struct five five = {.guard = (int64_t)bench_random(GUARDS)};
    int64_t room = (DOCUMENTS - GUARDS) / CHANGED;

    for (int i = 0; i < CHANGED; i++) /* no two equal */
        five.id[i] = GUARDS + i * room + (int64_t)bench_random((uint64_t)room);
    return five;
}

static truce_status documents_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct five *five = arg;
    bson_value_t guard_id = document_id(five->guard);
    bson_t guard = BSON_INITIALIZER, update;
    truce_status status;

    BSON_APPEND_INT64(&guard, "counter", 0);
    document_increment(1, &update);
    status = truce_commit_require(commit, "documents", &guard_id, &guard, error);
    for (int i = 0; i < CHANGED && !status; i++) {
        bson_value_t id = document_id(five->id[i]);

        status = truce_commit_update(commit, "documents", &id, NULL, &update, error);
    }
    bson_destroy(&guard);
    bson_destroy(&update);
    return status;
}

static int64_t documents_truce(struct bench_call *call)
{
    const truce_commit_options options = {.tries_max = 100000};
    struct five five = documents_draw();
    bson_error_t error;

    BENCH_MUST(truce_transact(call->connection, documents_change, &five, &options, &error), error);
    return 1;
}

static int64_t documents_postgres(struct bench_call *call)
{
    struct five five = documents_draw();

    BENCH_CHECK(sql_run(call->connection,
                        SQL("WITH guard AS MATERIALIZED (SELECT id FROM documents"
                            "     WHERE id = $1 AND counter = 0 FOR SHARE),"
                            " locked AS MATERIALIZED (SELECT id FROM documents"
                            "     WHERE id IN ($2, $3, $4, $5, $6) ORDER BY id FOR UPDATE)"
                            " UPDATE documents SET counter = counter + 1"
                            " FROM locked, guard WHERE documents.id = locked.id",
                            NUMBER(five.guard), NUMBER(five.id[0]), NUMBER(five.id[1]),
                            NUMBER(five.id[2]), NUMBER(five.id[3]), NUMBER(five.id[4]))) ==
                CHANGED);
    return 1;
}

static int64_t documents_sqlite(struct bench_call *call)
{
    struct five five = documents_draw();

    BENCH_CHECK(sql_run(call->connection,
                        SQL("UPDATE documents SET counter = counter + 1"
                            " WHERE id IN ($2, $3, $4, $5, $6) AND EXISTS"
                            " (SELECT 1 FROM documents WHERE id = $1 AND counter = 0)",
                            NUMBER(five.id[0]), NUMBER(five.id[1]), NUMBER(five.id[2]),
                            NUMBER(five.id[3]), NUMBER(five.id[4]), NUMBER(five.guard))) ==
                CHANGED);
    return 1;
}

static void five_documents_setup_redis(struct bench_side *side)
{
    struct scripts *scripts = side->state;

    documents_setup(side);
    snprintf(scripts->change, sizeof scripts->change, "%s",
             redis_run(side->connections[0],
                       "SCRIPT|LOAD|if redis.call('HGET', KEYS[1], 'counter') ~= '0' then "
                       "return 0 end for i = 2, 6 do "
                       "redis.call('HINCRBY', KEYS[i], 'counter', 1) end return 1")
                 ->text);
}

static int64_t documents_redis(struct bench_call *call)
{
    struct scripts *scripts = call->side->state;
    struct five five = documents_draw();

    BENCH_CHECK(redis_run(call->connection,
                          "EVALSHA|%s|6|d:%" PRId64 "|d:%" PRId64 "|d:%" PRId64 "|d:%" PRId64
                          "|d:%" PRId64 "|d:%" PRId64,
                          scripts->change, five.guard, five.id[0], five.id[1], five.id[2],
                          five.id[3], five.id[4])
                    ->number == 1);
    return 1;
}

/* Writes to the guard, so that no other transaction may change it before the decision. */
static void documents_change_mongo(struct mongo *mongo, void *arg)
{
    const struct five *five = arg;
    bson_t *touch = BCON_NEW("$inc", "{", "touched", BCON_INT64(1), "}");
    bson_t filter, update;

    document_filter(five->guard, &filter);
    BSON_APPEND_INT64(&filter, "counter", 0);
    document_increment(1, &update);
    if (mongo_update(mongo, "documents", &filter, touch, NULL) == 0)
        BENCH_CHECK(mongo_is_lost(mongo));
    bson_destroy(&filter);
    for (int i = 0; i < CHANGED && !mongo_is_lost(mongo); i++) {
        document_filter(five->id[i], &filter);
        (void)mongo_update(mongo, "documents", &filter, &update, NULL);
        bson_destroy(&filter);
    }
    bson_destroy(&update);
    bson_destroy(touch);
}

static int64_t documents_mongo(struct bench_call *call)
{
    struct five five = documents_draw();

    mongo_transact(call->connection, documents_change_mongo, &five);
    return 1;
}

const struct bench_workload workload_five_documents = {
    .name = "five_documents",
    .on_servers = true,
    .title = "a commit over five documents, guarded by a sixth",
    .unit = "commits",
    .changes = CHANGED,
    .state_size = sizeof(struct scripts),
    .forms = {
        {"truce", NULL, documents_setup, documents_truce, documents_check},
        {"postgresql", NULL, documents_setup, documents_postgres, documents_check},
        {"sqlite", NULL, documents_setup, documents_sqlite, documents_check},
        {"redis", NULL, five_documents_setup_redis, documents_redis, documents_check},
        {"mongodb", NULL, documents_setup, documents_mongo, documents_check},
    }};
