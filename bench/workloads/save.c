/*
 * Revisions: a caller reads a document with its version, changes a string in it, and saves the
 * whole document if its version is unchanged; else it reads again. Callers use any document, or all
 * the same one: then all but one of the callers that read a version lose.
 *
 *     truce        truce_revision_get, truce_revision_save
 *     others       the same, written by hand: a read, and an update that is guarded by the version
 */
#include <inttypes.h>
#include <string.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/redis.h"
#include "bench/sql.h"

#define TEXT_SIZE 200

static const bool any = false, hot = true;

struct scripts {
    char save[48];
};

static int64_t save_target(struct bench_call *call)
{
    bool one = *(const bool *)call->side->form->arg;

    return one ? 0 : (int64_t)bench_random(DOCUMENTS);
}

/* Writes a text that differs from the one before. */
static void save_write_text(const char *before, char text[TEXT_SIZE])
{
    memset(text, before[0] == 'z' ? 'a' : before[0] + 1, TEXT_SIZE - 1);
    text[TEXT_SIZE - 1] = '\0';
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Makes the document with another text. Its version is in the field "counter", which becomes
 * `version`. */
static void save_edit(const bson_t *read, int64_t version, bson_t *mine)
{
    char text[TEXT_SIZE];
    bson_iter_t iter;

    BENCH_CHECK(bson_iter_init_find(&iter, read, "text") && BSON_ITER_HOLDS_UTF8(&iter));
    save_write_text(bson_iter_utf8(&iter, NULL), text);
    bson_init(mine);
    BENCH_CHECK(bson_iter_init(&iter, read));
    while (bson_iter_next(&iter)) {
        if (!strcmp(bson_iter_key(&iter), "text"))
            BSON_APPEND_UTF8(mine, "text", text);
        else if (!strcmp(bson_iter_key(&iter), "counter"))
            BSON_APPEND_INT64(mine, "counter", version);
        else
            bson_append_iter(mine, NULL, 0, &iter);
    }
}

static void save_join_truce(struct bench_side *side)
{
    side->local = truce_revision_new(side->connections[0], &(truce_revision_options){
                                                               .collection = "documents",
                                                               .version = "counter",
                                                           });
}

static bool save_truce(truce_revision *revisions, int64_t id)
{
    bson_value_t key = document_id(id);
    truce_revision_result result;
    bson_t read, mine;
    bson_error_t error;
    int64_t version;
    bool saved;

    BENCH_MUST(truce_revision_get(revisions, NULL, &key, &read, &version, &error), error);
    save_edit(&read, version + 1, &mine);
    BENCH_MUST(truce_revision_save(revisions, NULL, &mine, version, NULL, &result, &error), error);
    saved = result.outcome == TRUCE_REVISION_SAVED;
    BENCH_CHECK(saved || result.outcome == TRUCE_REVISION_CONFLICT ||
                /* Another caller has made the same change. */
                result.outcome == TRUCE_REVISION_UNCHANGED);
    truce_revision_result_release(&result);
    bson_destroy(&read);
    bson_destroy(&mine);
    return saved;
}

static int64_t workloads_save_truce(struct bench_call *call)
{
    while (!save_truce(call->side->local, save_target(call)))
        ;
    return 1;
}

static void save_check_truce(struct bench_side *side)
{
    documents_check(side);
    truce_revision_free(side->local);
}

static bool save_mongo(struct mongo *mongo, int64_t id)
{
    bson_t filter, read, mine;
    int64_t version, matched;

    document_filter(id, &filter);
    BENCH_CHECK(mongo_find_one(mongo, "documents", &filter, &read));
    version = document_counter(&read);
    save_edit(&read, version + 1, &mine);
    BSON_APPEND_INT64(&filter, "counter", version);
    matched = mongo_replace(mongo, "documents", &filter, &mine);
    bson_destroy(&filter);
    bson_destroy(&read);
    bson_destroy(&mine);
    return matched == 1;
}

static int64_t workloads_save_mongo(struct bench_call *call)
{
    while (!save_mongo(call->connection, save_target(call)))
        ;
    return 1;
}

/* ---- rows and hashes ------------------------------------------------------------------------- */

static bool save_sql(struct sql *sql, int64_t id)
{
    char text[TEXT_SIZE], owner[40];
    int64_t version, group;

    sql_start(sql,
              SQL("SELECT id, counter, grp, owner, text FROM documents WHERE id = $1", NUMBER(id)));
    BENCH_CHECK(sql_next(sql));
    version = sql_number(sql, 1);
    group = sql_number(sql, 2);
    snprintf(owner, sizeof owner, "%s", sql_text(sql, 3));
    save_write_text(sql_text(sql, 4), text);
    sql_finish(sql);
    return sql_run(sql, SQL("UPDATE documents SET counter = $1, grp = $2, owner = $3, text = $4"
                            " WHERE id = $5 AND counter = $6",
                            NUMBER(version + 1), NUMBER(group), TEXT(owner), TEXT(text), NUMBER(id),
                            NUMBER(version))) == 1;
}

static int64_t workloads_save_sql(struct bench_call *call)
{
    while (!save_sql(call->connection, save_target(call)))
        ;
    return 1;
}

static void save_setup_redis(struct bench_side *side)
{
    struct scripts *scripts = side->state;

    documents_setup(side);
    snprintf(scripts->save, sizeof scripts->save, "%s",
             redis_run(side->connections[0],
                       "SCRIPT|LOAD|if redis.call('HGET', KEYS[1], 'counter') ~= ARGV[1] then "
                       "return 0 end redis.call('HSET', KEYS[1], 'counter', ARGV[2], 'group', "
                       "ARGV[3], 'owner', ARGV[4], 'text', ARGV[5]) return 1")
                 ->text);
}

static bool save_redis(struct bench_call *call, int64_t id)
{
    struct scripts *scripts = call->side->state;
    const struct redis_item *items = redis_run(call->connection, "HGETALL|d:%" PRId64, id);
    int64_t version = redis_field(items, "counter"), group = redis_field(items, "group");
    char text[TEXT_SIZE] = "", owner[40] = "";

    for (int64_t i = 1; i < items[0].number; i += 2) {
        if (!strcmp(items[i].text, "owner"))
            snprintf(owner, sizeof owner, "%s", items[i + 1].text);
        else if (!strcmp(items[i].text, "text"))
            save_write_text(items[i + 1].text, text);
    }
    return redis_run(call->connection,
                     "EVALSHA|%s|1|d:%" PRId64 "|%" PRId64 "|%" PRId64 "|%" PRId64 "|%s|%s",
                     scripts->save, id, version, version + 1, group, owner, text)
               ->number == 1;
}

static int64_t workloads_save_redis(struct bench_call *call)
{
    while (!save_redis(call, save_target(call)))
        ;
    return 1;
}

const struct bench_workload workload_save = {
    .name = "save",
    .on_servers = true,
    .title = "read a document, save it whole if its version is still the same",
    .unit = "saves",
    .changes = 1,
    .aim = 1.5,
    .aim_rate = 27000,
    .state_size = sizeof(struct scripts),
    .forms = {
        {"truce", NULL, documents_setup, workloads_save_truce, save_check_truce, &any,
         save_join_truce},
        {"postgresql", NULL, documents_setup, workloads_save_sql, documents_check, &any},
        {"sqlite", NULL, documents_setup, workloads_save_sql, documents_check, &any},
        {"redis", NULL, save_setup_redis, workloads_save_redis, documents_check, &any},
        {"mongodb", NULL, documents_setup, workloads_save_mongo, documents_check, &any},
    }};

const struct bench_workload workload_save_hot = {
    .name = "save_hot",
    .title = "the same, all callers the same document",
    .unit = "saves",
    .changes = 1,
    .state_size = sizeof(struct scripts),
    .forms = {
        {"truce", NULL, documents_setup, workloads_save_truce, save_check_truce, &hot,
         save_join_truce},
        {"postgresql", NULL, documents_setup, workloads_save_sql, documents_check, &hot},
        {"sqlite", NULL, documents_setup, workloads_save_sql, documents_check, &hot},
        {"redis", NULL, save_setup_redis, workloads_save_redis, documents_check, &hot},
        {"mongodb", NULL, documents_setup, workloads_save_mongo, documents_check, &hot},
    }};
