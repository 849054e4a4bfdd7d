/*
 * The caller reads two documents, computes their new contents, and writes both, all or none, if
 * neither has changed since the read. It uses any two documents, or always one hot document and
 * another.
 *
 *     truce        truce_transact: two reads, two updates; the store's own transaction, or the
 *                  journal
 *     postgresql   BEGIN, SELECT FOR UPDATE in the order of ids; UPDATE, UPDATE, COMMIT: two round
 *                  trips, by libpq's pipeline mode
 *     sqlite       BEGIN IMMEDIATE, SELECT, UPDATE, UPDATE, COMMIT
 *     redis        WATCH, HGET, HGET; MULTI, HSET, HSET, EXEC; again after a conflict
 *     mongodb      a transaction: find, find, update, update; again after a conflict
 */
#include <inttypes.h>
#include <string.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

struct kind {
    bool hot;
    truce_mechanism mechanism;
};

static const struct kind any_two = {0}, one_hot = {.hot = true},
                         by_journal = {.mechanism = TRUCE_MECHANISM_JOURNAL};

struct pair {
    /* The lesser id comes first, because rows are locked in this order. */
    int64_t id[2];
};

static const struct kind *documents_kind_of(struct bench_call *call)
{
    return call->side->form->arg;
}

static struct pair two_documents_draw(struct bench_call *call)
{
    int64_t a = documents_kind_of(call)->hot ? 0 : (int64_t)bench_random(DOCUMENTS);
    int64_t b = documents_other(a);

    return a < b ? (struct pair){{a, b}} : (struct pair){{b, a}};
}

/* ---- truce ----------------------------------------------------------------------------------- */

static truce_status two_documents_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct pair *pair = arg;
    truce_status status = TRUCE_OK;

    for (int i = 0; i < 2 && !status; i++) {
        bson_value_t id = document_id(pair->id[i]);
        bson_t document, update = BSON_INITIALIZER, set;

        status = truce_commit_read(commit, "documents", &id, &document, error);
        if (!status) {
            BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
            BSON_APPEND_INT64(&set, "counter", document_counter(&document) + 1);
            bson_append_document_end(&update, &set);
            status = truce_commit_update(commit, "documents", &id, NULL, &update, error);
        }
        bson_destroy(&document);
        bson_destroy(&update);
    }
    return status;
}

static int64_t two_documents_truce(struct bench_call *call)
{
    const truce_commit_options options = {.mechanism = documents_kind_of(call)->mechanism,
                                          .tries_max = 100000};
    struct pair pair = two_documents_draw(call);
    bson_error_t error;

    BENCH_MUST(truce_transact(call->connection, two_documents_change, &pair, &options, &error),
               error);
    return 1;
}

/* ---- the peers ------------------------------------------------------------------------------- */

static void write_both(struct sql *sql, const struct pair *pair, const int64_t counters[2])
{
    static const char update[] = "UPDATE documents SET counter = $1 WHERE id = $2";
    const struct sql_statement all[] = {SQL(update, NUMBER(counters[0] + 1), NUMBER(pair->id[0])),
                                        SQL(update, NUMBER(counters[1] + 1), NUMBER(pair->id[1])),
                                        SQL("COMMIT")};

    sql_start_all(sql, all, 3);
    sql_finish(sql);
}

static int64_t two_documents_postgres(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);
    const struct sql_statement all[] = {SQL("BEGIN"),
                                        SQL("SELECT counter FROM documents WHERE id IN ($1, $2)"
                                            " ORDER BY id FOR UPDATE",
                                            NUMBER(pair.id[0]), NUMBER(pair.id[1]))};
    int64_t counters[2];

    sql_start_all(call->connection, all, 2);
    for (int i = 0; i < 2; i++) {
        BENCH_CHECK(sql_next(call->connection));
        counters[i] = sql_number(call->connection, 0);
    }
    sql_finish(call->connection);
    write_both(call->connection, &pair, counters);
    return 1;
}

static int64_t two_documents_sqlite(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);
    int64_t counters[2];

    sql_run(call->connection, SQL("BEGIN IMMEDIATE"));
    for (int i = 0; i < 2; i++)
        counters[i] = sql_get(call->connection, SQL("SELECT counter FROM documents WHERE id = $1",
                                                    NUMBER(pair.id[i])));
    write_both(call->connection, &pair, counters);
    return 1;
}

/* Increments both counters in a transaction of Redis. Returns false if another client changed one
 * of them in the meantime. */
static bool try_redis(struct redis *redis, const struct pair *pair)
{
    int64_t counters[2];

    redis_queue(redis, "WATCH|d:%" PRId64 "|d:%" PRId64, pair->id[0], pair->id[1]);
    for (int i = 0; i < 2; i++)
        redis_queue(redis, "HGET|d:%" PRId64 "|counter", pair->id[i]);
    redis_receive(redis);
    for (int i = 0; i < 2; i++)
        counters[i] = strtoll(redis_receive(redis)->text, NULL, 10);
    redis_queue(redis, "MULTI");
    for (int i = 0; i < 2; i++)
        redis_queue(redis, "HSET|d:%" PRId64 "|counter|%" PRId64, pair->id[i], counters[i] + 1);
    redis_queue(redis, "EXEC");
    for (int i = 0; i < 3; i++)
        redis_receive(redis);
    return redis_receive(redis)->type == '*';
}

static int64_t two_documents_redis(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);

    while (!try_redis(call->connection, &pair))
        ;
    return 1;
}

static void two_documents_change_mongo(struct mongo *mongo, void *arg)
{
    const struct pair *pair = arg;

    for (int i = 0; i < 2 && !mongo_is_lost(mongo); i++) {
        bson_t filter, document, update = BSON_INITIALIZER, set;

        document_filter(pair->id[i], &filter);
        if (mongo_find_one(mongo, "documents", &filter, &document)) {
            BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
            BSON_APPEND_INT64(&set, "counter", document_counter(&document) + 1);
            bson_append_document_end(&update, &set);
            (void)mongo_update(mongo, "documents", &filter, &update, NULL);
        }
        bson_destroy(&filter);
        bson_destroy(&document);
        bson_destroy(&update);
    }
}

static void increment_mongo(struct mongo *mongo, void *arg)
{
    const struct pair *pair = arg;

    for (int i = 0; i < 2 && !mongo_is_lost(mongo); i++) {
        bson_t filter, update;

        document_filter(pair->id[i], &filter);
        document_increment(1, &update);
        (void)mongo_update(mongo, "documents", &filter, &update, NULL);
        bson_destroy(&filter);
        bson_destroy(&update);
    }
}

static int64_t mongo_increments(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);

    mongo_transact(call->connection, increment_mongo, &pair);
    return 1;
}

static int64_t mongo_one_command(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);
    bson_t command = BSON_INITIALIZER, changes, change, inner, reply;

    if (strcmp(call->side->target->name, "truce-serve") != 0)
        side_cannot("this server has no truceCommit");
    BSON_APPEND_ARRAY_BEGIN(&command, "truceCommit", &changes);
    for (int i = 0; i < 2; i++) {
        BSON_APPEND_DOCUMENT_BEGIN(&changes, i ? "1" : "0", &change);
        BSON_APPEND_UTF8(&change, "update", "documents");
        BSON_APPEND_INT64(&change, "id", pair.id[i]);
        document_increment(1, &inner);
        BSON_APPEND_DOCUMENT(&change, "with", &inner);
        bson_destroy(&inner);
        bson_append_document_end(&changes, &change);
    }
    bson_append_array_end(&command, &changes);
    mongo_command(call->connection, &command, &reply);
    bson_destroy(&reply);
    bson_destroy(&command);
    return 1;
}

static int64_t two_documents_mongo(struct bench_call *call)
{
    struct pair pair = two_documents_draw(call);

    mongo_transact(call->connection, two_documents_change_mongo, &pair);
    return 1;
}

const struct bench_workload workload_two_documents = {
    .name = "two_documents",
    .on_servers = true,
    .title = "a commit over two documents, both read and both written",
    .unit = "commits",
    .changes = 2,
    .aim = 2,
    .aim_serve = 12000,
    .forms = {
        {"truce", NULL, documents_setup, two_documents_truce, documents_check, &any_two},
        {"truce", "journal", documents_setup, two_documents_truce, documents_check, &by_journal},
        {"postgresql", NULL, documents_setup, two_documents_postgres, documents_check, &any_two},
        {"sqlite", NULL, documents_setup, two_documents_sqlite, documents_check, &any_two},
        {"redis", NULL, documents_setup, two_documents_redis, documents_check, &any_two},
        {"mongodb", NULL, documents_setup, two_documents_mongo, documents_check, &any_two},
    }};

const struct bench_workload workload_two_one_hot = {
    .name = "two_one_hot",
    .title = "the same, one of the two being a hot document",
    .unit = "commits",
    .changes = 2,
    .forms = {
        {"truce", NULL, documents_setup, two_documents_truce, documents_check, &one_hot},
        {"postgresql", NULL, documents_setup, two_documents_postgres, documents_check, &one_hot},
        {"sqlite", NULL, documents_setup, two_documents_sqlite, documents_check, &one_hot},
        {"redis", NULL, documents_setup, two_documents_redis, documents_check, &one_hot},
        {"mongodb", NULL, documents_setup, two_documents_mongo, documents_check, &one_hot},
    }};

const struct bench_workload workload_two_increments = {
    .name = "two_increments",
    .title = "a transaction that adds one to the counters of two documents, which it does not read",
    .unit = "commits",
    .changes = 2,
    .aim_serve = 12000,
    .forms = {{"mongodb", NULL, documents_setup, mongo_increments, documents_check, &any_two}}};

const struct bench_workload workload_two_in_one = {
    .name = "two_in_one",
    .title = "the same as one command, truceCommit",
    .unit = "commits",
    .changes = 2,
    .aim_serve = 24000,
    .forms = {{"mongodb", NULL, documents_setup, mongo_one_command, documents_check, &any_two}}};
