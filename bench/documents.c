#include "bench/documents.h"

#include <inttypes.h>
#include <string.h>

#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

#define BATCH 1000

static int64_t wanted;

void documents_want(int64_t count)
{
    wanted = count;
    document_groups = count / IN_GROUP;
}

int64_t documents_wanted(void)
{
    if (!wanted)
        documents_want(bench_small ? 2000 : 20000);
    return wanted;
}

int64_t documents_other(int64_t id)
{
    return (id + 1 + (int64_t)bench_random(DOCUMENTS - 1)) % DOCUMENTS;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static void documents_fill_batch(truce_store *store, int64_t from, bson_t *documents,
                                 truce_write *writes, truce_write_outcome *outcomes)
{
    const truce_bulk_options relaxed = {.relaxed = true};
    bson_error_t error;

    for (int64_t i = 0; i < BATCH; i++) {
        document_make(from + i, &documents[i]);
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = "documents", .document = &documents[i]};
    }
    BENCH_MUST(truce_bulk(store, writes, BATCH, &relaxed, outcomes, &error), error);
    for (int64_t i = 0; i < BATCH; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[i]);
    }
}

static void documents_setup_truce(truce_store *store, int64_t count, bool indexed)
{
    bson_t *documents = bson_malloc(BATCH * sizeof *documents);
    truce_write *writes = bson_malloc0(BATCH * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(BATCH * sizeof *outcomes);
    bson_t *index = BCON_NEW("key", "{", "group", BCON_INT32(1), "}");
    bson_error_t error;

    for (int64_t from = 0; from < count; from += BATCH)
        documents_fill_batch(store, from, documents, writes, outcomes);
    if (indexed)
        BENCH_MUST(truce_index_create(store, "documents", index, &error), error);
    bson_destroy(index);
    bson_free(outcomes);
    bson_free(writes);
    bson_free(documents);
}

static void fill_sqlite(struct sql *sql, int64_t count)
{
    sql_execute(sql, "BEGIN");
    for (int64_t id = 0; id < count; id++) {
        char owner[40], text[200];

        document_texts(id, owner, text);
        sql_run(sql, SQL("INSERT INTO documents(id, counter, grp, owner, text)"
                         " VALUES ($1, 0, $2, $3, $4)",
                         NUMBER(id), NUMBER(id % document_groups), TEXT(owner), TEXT(text)));
    }
    sql_execute(sql, "COMMIT");
}

static void documents_setup_sql(struct bench_side *side, int64_t count, bool indexed)
{
    struct sql *sql = side->connections[0];
    bool postgres = !strcmp(side->target->name, "postgresql");

    /* Leaves space in each page, so that an update can store the new row in the page of the old
     * row. */
    sql_execute(sql, postgres
                         ? "CREATE TABLE documents(id bigint PRIMARY KEY, counter bigint NOT NULL,"
                           " grp bigint NOT NULL, owner text NOT NULL, text text NOT NULL)"
                           " WITH (fillfactor = 80)"
                         : "CREATE TABLE documents(id integer PRIMARY KEY, counter integer,"
                           " grp integer, owner text, text text)");
    if (indexed)
        sql_execute(sql, "CREATE INDEX documents_grp ON documents(grp)");
    if (postgres)
        sql_run(sql, SQL("INSERT INTO documents(id, counter, grp, owner, text) SELECT i, 0, i % $2,"
                         " 'person ' || i, repeat(chr((97 + i % 26)::integer), 199)"
                         " FROM generate_series(0, $1 - 1) i",
                         NUMBER(count), NUMBER(document_groups)));
    else
        fill_sqlite(sql, count);
    sql_execute(sql, postgres ? "VACUUM ANALYZE documents" : "ANALYZE");
    if (!bench_small)
        sql_execute(sql, postgres ? "CHECKPOINT" : "PRAGMA wal_checkpoint");
}

static void documents_setup_redis(struct redis *redis, int64_t count)
{
    for (int64_t from = 0; from < count; from += BATCH) {
        for (int64_t id = from; id < from + BATCH; id++) {
            char owner[40], text[200];

            document_texts(id, owner, text);
            redis_queue(redis, "HSET|d:%" PRId64 "|counter|0|group|%" PRId64 "|owner|%s|text|%s",
                        id, id % document_groups, owner, text);
        }
        for (int i = 0; i < BATCH; i++)
            redis_receive(redis);
    }
}

static void documents_setup_mongo(struct mongo *mongo, int64_t count, bool indexed)
{
    bson_t *documents = bson_malloc(BATCH * sizeof *documents);
    const bson_t *pointers[BATCH];

    for (int64_t from = 0; from < count; from += BATCH) {
        for (int64_t i = 0; i < BATCH; i++) {
            document_make(from + i, &documents[i]);
            pointers[i] = &documents[i];
        }
        mongo_insert_many(mongo, "documents", pointers, BATCH);
        for (int64_t i = 0; i < BATCH; i++)
            bson_destroy(&documents[i]);
    }
    if (indexed)
        mongo_index(mongo, "documents", "group");
    bson_free(documents);
}

static void setup(struct bench_side *side, int64_t count, bool indexed)
{
    side->set_up = count;
    if (side->target->kind == &target_truce)
        documents_setup_truce(side->connections[0], count, indexed);
    else if (side->target->kind == &target_mongo)
        documents_setup_mongo(side->connections[0], count, indexed);
    else if (side->target->kind == &target_redis)
        documents_setup_redis(side->connections[0], count);
    else
        documents_setup_sql(side, count, indexed);
}

void documents_setup_none(struct bench_side *side)
{
    setup(side, 0, false);
}

void documents_setup(struct bench_side *side)
{
    setup(side, DOCUMENTS, false);
}

void documents_setup_indexed(struct bench_side *side)
{
    setup(side, DOCUMENTS, true);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void report_truce(truce_store *store, int64_t *count, int64_t *sum)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;

    BENCH_MUST(truce_find(store, "documents", NULL, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        *sum += document_counter(document);
        *count += 1;
    }
    truce_cursor_close(cursor);
}

static void report_redis(struct redis *redis, int64_t set_up, int64_t *count, int64_t *sum)
{
    *count = redis_run(redis, "DBSIZE")->number;
    for (int64_t from = 0; from < set_up; from += BATCH) {
        for (int64_t id = from; id < from + BATCH; id++)
            redis_queue(redis, "HGET|d:%" PRId64 "|counter", id);
        for (int i = 0; i < BATCH; i++)
            *sum += strtoll(redis_receive(redis)->text, NULL, 10);
    }
}

static void report_mongo(struct mongo *mongo, int64_t *count, int64_t *sum)
{
    bson_t all = BSON_INITIALIZER;
    mongoc_cursor_t *cursor = mongo_find(mongo, "documents", &all);
    const bson_t *document;

    while ((document = mongo_next(cursor))) {
        *sum += document_counter(document);
        *count += 1;
    }
    mongoc_cursor_destroy(cursor);
    bson_destroy(&all);
}

static void documents_report(struct bench_side *side, int64_t *count, int64_t *sum)
{
    *count = *sum = 0;
    if (side->target->kind == &target_truce) {
        report_truce(side->connections[0], count, sum);
    } else if (side->target->kind == &target_mongo) {
        report_mongo(side->connections[0], count, sum);
    } else if (side->target->kind == &target_redis) {
        report_redis(side->connections[0], side->set_up, count, sum);
    } else {
        *count = sql_get(side->connections[0], SQL("SELECT count(*) FROM documents"));
        *sum = sql_get(side->connections[0], SQL("SELECT sum(counter) FROM documents"));
    }
}

void documents_check(struct bench_side *side)
{
    int64_t count, sum;

    documents_report(side, &count, &sum);
    BENCH_CHECK(count == side->set_up + side->inserted);
    BENCH_CHECK(sum == side->changed);
}
