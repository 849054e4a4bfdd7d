/* Two workloads: reading some documents by a secondary index, and a report over all documents. */
#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/sql.h"

/* ---- by an index ----------------------------------------------------------------------------- */

static int64_t find_truce(struct bench_call *call)
{
    bson_t filter = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int found = 0;

    BSON_APPEND_INT32(&filter, "group", (int32_t)bench_random((uint64_t)document_groups));
    BENCH_MUST(truce_find(call->connection, "documents", &filter, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        found += document_counter(document) == 0;
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    BENCH_CHECK(found == IN_GROUP);
    return 1;
}

static int64_t find_mongo(struct bench_call *call)
{
    bson_t filter = BSON_INITIALIZER;
    mongoc_cursor_t *cursor;
    const bson_t *document;
    int found = 0;

    BSON_APPEND_INT32(&filter, "group", (int32_t)bench_random((uint64_t)document_groups));
    cursor = mongo_find(call->connection, "documents", &filter);
    while ((document = mongo_next(cursor)))
        found += document_counter(document) == 0;
    mongoc_cursor_destroy(cursor);
    bson_destroy(&filter);
    BENCH_CHECK(found == IN_GROUP);
    return 1;
}

static int64_t find_sql(struct bench_call *call)
{
    struct sql *sql = call->connection;
    int found = 0;

    sql_start(sql, SQL("SELECT id, counter, grp, owner, text FROM documents WHERE grp = $1",
                       NUMBER((int64_t)bench_random((uint64_t)document_groups))));
    while (sql_next(sql))
        found += sql_number(sql, 1) == 0 && sql_text(sql, 4)[0];
    sql_finish(sql);
    BENCH_CHECK(found == IN_GROUP);
    return 1;
}

const struct bench_workload workload_find_by_index = {
    .name = "find_by_index",
    .on_servers = true,
    .title = "find twenty documents by a secondary index",
    .unit = "finds",
    .reads = true,
    .forms = {
        {"truce", NULL, documents_setup_indexed, find_truce, documents_check},
        {"postgresql", NULL, documents_setup_indexed, find_sql, documents_check},
        {"sqlite", NULL, documents_setup_indexed, find_sql, documents_check},
        {"mongodb", NULL, documents_setup_indexed, find_mongo, documents_check},
    }};

/* ---- a report -------------------------------------------------------------------------------- */

static bson_t *queries_report(void)
{
    return BCON_NEW("0", "{", "$match", "{", "counter", "{", "$gte", BCON_INT32(0), "}", "}", "}",
                    "1", "{", "$group", "{", "_id", "$group", "n", "{", "$sum", BCON_INT32(1), "}",
                    "sum", "{", "$sum", "$counter", "}", "}", "}");
}

static bool queries_is_right(const bson_t *group)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, group, "n") && bson_iter_as_int64(&iter) == IN_GROUP;
}

static int64_t group_mongo(struct bench_call *call)
{
    bson_t *pipeline = queries_report();
    mongoc_cursor_t *cursor = mongo_aggregate(call->connection, "documents", pipeline);
    const bson_t *document;
    int groups = 0;

    while ((document = mongo_next(cursor))) {
        BENCH_CHECK(queries_is_right(document));
        groups++;
    }
    mongoc_cursor_destroy(cursor);
    bson_destroy(pipeline);
    BENCH_CHECK(groups == document_groups);
    return 1;
}

static int64_t group_truce(struct bench_call *call)
{
    bson_t *pipeline = queries_report();
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int groups = 0;

    BENCH_MUST(truce_aggregate(call->connection, "documents", pipeline, NULL, &cursor, &error),
               error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        BENCH_CHECK(queries_is_right(document));
        groups++;
    }
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    BENCH_CHECK(groups == document_groups);
    return 1;
}

static int64_t group_sql(struct bench_call *call)
{
    struct sql *sql = call->connection;
    int groups = 0;

    sql_start(sql, SQL("SELECT grp, count(*), sum(counter) FROM documents WHERE counter >= 0"
                       " GROUP BY grp"));
    while (sql_next(sql)) {
        BENCH_CHECK(sql_number(sql, 1) == IN_GROUP);
        groups++;
    }
    sql_finish(sql);
    BENCH_CHECK(groups == document_groups);
    return 1;
}

const struct bench_workload workload_group_report = {
    .name = "group_report",
    .title = "count and add up 20,000 documents by 1,000 groups",
    .unit = "reports",
    .reads = true,
    .forms = {
        {"truce", NULL, documents_setup, group_truce, documents_check},
        {"postgresql", NULL, documents_setup, group_sql, documents_check},
        {"sqlite", NULL, documents_setup, group_sql, documents_check},
        {"mongodb", NULL, documents_setup, group_mongo, documents_check},
    }};
