/*
 * Changes an item of an array in place, found by its content: the counter of a player's badge is
 * incremented. There are 2,000 players with 20 badges each.
 *
 *     truce        truce_item_update; or its underlying operator by itself, on stores of truce's
 *                  own: {$update: {badges: {$query: {type: ...}, $inc: {times: 1}}}}
 *     postgresql   one row for each badge; or jsonb: the array written with the item changed
 *     sqlite       one row for each badge
 *     mongodb      {$inc: {"badges.$.times": 1}} where {"badges.type": ...}
 */
#include <inttypes.h>

#include "bench/documents.h"
#include "bench/mongo.h"
#include "bench/sql.h"

#define PLAYERS (bench_small ? 200 : 2000)
#define BADGES  20

static void type_name(int64_t badge, char name[16])
{
    snprintf(name, 16, "badge %" PRId64, badge);
}

static void make_player(int64_t id, bson_t *player)
{
    bson_t badges, badge;

    bson_init(player);
    BSON_APPEND_INT64(player, "_id", id);
    BSON_APPEND_ARRAY_BEGIN(player, "badges", &badges);
    for (int64_t i = 0; i < BADGES; i++) {
        char name[16], key[16];

        type_name(i, name);
        snprintf(key, sizeof key, "%" PRId64, i);
        BSON_APPEND_DOCUMENT_BEGIN(&badges, key, &badge);
        BSON_APPEND_UTF8(&badge, "type", name);
        BSON_APPEND_INT64(&badge, "times", 0);
        bson_append_document_end(&badges, &badge);
    }
    bson_append_array_end(player, &badges);
}

static bson_t *sum_of_all(void)
{
    return BCON_NEW("0", "{", "$unwind", "$badges", "}", "1", "{", "$group", "{", "_id", BCON_NULL,
                    "n", "{", "$sum", BCON_INT32(1), "}", "sum", "{", "$sum", "$badges.times", "}",
                    "}", "}");
}

static void item_check_sum(struct bench_side *side, const bson_t *document)
{
    bson_iter_t iter;

    BENCH_CHECK(document && bson_iter_init_find(&iter, document, "n") &&
                bson_iter_as_int64(&iter) == PLAYERS * BADGES);
    BENCH_CHECK(bson_iter_init_find(&iter, document, "sum") &&
                bson_iter_as_int64(&iter) == side->operations);
}

/* ---- truce ----------------------------------------------------------------------------------- */

static void item_setup_truce(struct bench_side *side)
{
    const truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;

    for (int64_t id = 0; id < PLAYERS; id++) {
        bson_t player;

        make_player(id, &player);
        BENCH_MUST(truce_insert(side->connections[0], "players", &player, &relaxed, &error), error);
        bson_destroy(&player);
    }
}

static void item_join_truce(struct bench_side *side)
{
    side->local = truce_item_new(
        side->connections[0],
        &(truce_item_options){.collection = "players", .field = "badges", .identity = "type"});
}

static int64_t item_truce(struct bench_call *call)
{
    char name[16];
    truce_item_result result = {0};
    bson_t filter, query = BSON_INITIALIZER, *update;
    bson_error_t error;

    type_name((int64_t)bench_random(BADGES), name);
    document_filter((int64_t)bench_random(PLAYERS), &filter);
    BSON_APPEND_UTF8(&query, "type", name);
    update = BCON_NEW("$inc", "{", "times", BCON_INT64(1), "}");
    BENCH_MUST(truce_item_update(call->side->local, NULL, &filter, &query, update, &result, &error),
               error);
    BENCH_CHECK(result.modified == 1);
    bson_destroy(&filter);
    bson_destroy(&query);
    bson_destroy(update);
    return 1;
}

static int64_t by_operator(struct bench_call *call)
{
    char name[16];
    truce_write_result result = {0};
    bson_t filter, *update;
    bson_error_t error;

    type_name((int64_t)bench_random(BADGES), name);
    document_filter((int64_t)bench_random(PLAYERS), &filter);
    update = BCON_NEW("$update", "{", "badges", "{", "$query", "{", "type", BCON_UTF8(name), "}",
                      "$inc", "{", "times", BCON_INT64(1), "}", "}", "}");
    BENCH_MUST(truce_update(call->connection, "players", &filter, update, NULL, &result, &error),
               error);
    BENCH_CHECK(result.modified == 1);
    bson_destroy(&filter);
    bson_destroy(update);
    return 1;
}

static void item_check_truce(struct bench_side *side)
{
    bson_t *pipeline = sum_of_all();
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;

    BENCH_MUST(truce_aggregate(side->connections[0], "players", pipeline, NULL, &cursor, &error),
               error);
    BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
    item_check_sum(side, document);
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
}

static void check_items(struct bench_side *side)
{
    item_check_truce(side);
    truce_item_free(side->local);
}

/* ---- mongodb --------------------------------------------------------------------------------- */

static void item_setup_mongo(struct bench_side *side)
{
    bson_t *players = bson_malloc((size_t)PLAYERS * sizeof *players);
    const bson_t **pointers = bson_malloc((size_t)PLAYERS * sizeof *pointers);

    for (int64_t id = 0; id < PLAYERS; id++) {
        make_player(id, &players[id]);
        pointers[id] = &players[id];
    }
    mongo_insert_many(side->connections[0], "players", pointers, (size_t)PLAYERS);
    for (int64_t id = 0; id < PLAYERS; id++)
        bson_destroy(&players[id]);
    bson_free(pointers);
    bson_free(players);
}

static int64_t item_mongo(struct bench_call *call)
{
    char name[16];
    bson_t filter, *update = BCON_NEW("$inc", "{", "badges.$.times", BCON_INT64(1), "}");

    type_name((int64_t)bench_random(BADGES), name);
    document_filter((int64_t)bench_random(PLAYERS), &filter);
    BSON_APPEND_UTF8(&filter, "badges.type", name);
    BENCH_CHECK(mongo_update(call->connection, "players", &filter, update, NULL) == 1);
    bson_destroy(&filter);
    bson_destroy(update);
    return 1;
}

static void check_mongo(struct bench_side *side)
{
    bson_t *pipeline = sum_of_all();
    mongoc_cursor_t *cursor = mongo_aggregate(side->connections[0], "players", pipeline);

    item_check_sum(side, mongo_next(cursor));
    mongoc_cursor_destroy(cursor);
    bson_destroy(pipeline);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void setup_rows(struct bench_side *side)
{
    struct sql *sql = side->connections[0];

    sql_execute(sql, "CREATE TABLE badges(player bigint, type text, times bigint NOT NULL,"
                     " PRIMARY KEY (player, type))");
    sql_execute(sql, "BEGIN");
    for (int64_t id = 0; id < PLAYERS; id++) {
        for (int64_t i = 0; i < BADGES; i++) {
            char name[16];

            type_name(i, name);
            sql_run(sql, SQL("INSERT INTO badges(player, type, times) VALUES ($1, $2, 0)",
                             NUMBER(id), TEXT(name)));
        }
    }
    sql_execute(sql, "COMMIT");
}

static int64_t rows(struct bench_call *call)
{
    char name[16];

    type_name((int64_t)bench_random(BADGES), name);
    BENCH_CHECK(sql_run(call->connection,
                        SQL("UPDATE badges SET times = times + 1 WHERE player = $1 AND type = $2",
                            NUMBER((int64_t)bench_random(PLAYERS)), TEXT(name))) == 1);
    return 1;
}

static void check_rows(struct bench_side *side)
{
    struct sql *sql = side->connections[0];

    BENCH_CHECK(sql_get(sql, SQL("SELECT sum(times) FROM badges")) == side->operations);
    BENCH_CHECK(sql_get(sql, SQL("SELECT count(*) FROM badges")) == PLAYERS * BADGES);
}

/* ---- jsonb ----------------------------------------------------------------------------------- */

static void setup_jsonb(struct bench_side *side)
{
    sql_execute(side->connections[0],
                "CREATE TABLE players(id bigint PRIMARY KEY, badges jsonb NOT NULL)"
                " WITH (fillfactor = 80)");
    sql_run(side->connections[0],
            SQL("INSERT INTO players SELECT p, (SELECT jsonb_agg(jsonb_build_object("
                "'type', 'badge ' || b, 'times', 0) ORDER BY b) FROM generate_series(0, 19) b)"
                " FROM generate_series(0, $1 - 1) p",
                NUMBER(PLAYERS)));
}

static int64_t jsonb(struct bench_call *call)
{
    char name[16];

    type_name((int64_t)bench_random(BADGES), name);
    BENCH_CHECK(
        sql_run(call->connection,
                SQL("UPDATE players SET badges = (SELECT jsonb_agg(CASE WHEN b ->> 'type' = $2"
                    " THEN jsonb_set(b, '{times}', to_jsonb((b ->> 'times')::bigint + 1))"
                    " ELSE b END ORDER BY n)"
                    " FROM jsonb_array_elements(badges) WITH ORDINALITY AS t(b, n))"
                    " WHERE id = $1",
                    NUMBER((int64_t)bench_random(PLAYERS)), TEXT(name))) == 1);
    return 1;
}

static void check_jsonb(struct bench_side *side)
{
    BENCH_CHECK(sql_get(side->connections[0],
                        SQL("SELECT sum((b ->> 'times')::bigint) FROM players,"
                            " jsonb_array_elements(badges) AS t(b)")) == side->operations);
}

const struct bench_workload workload_update_item = {
    .name = "update_item",
    .on_servers = true,
    .title = "change the item of an array that a query finds",
    .unit = "changes",
    .forms = {
        {"truce", NULL, item_setup_truce, item_truce, check_items, NULL, item_join_truce},
        {"truce", "operator", item_setup_truce, by_operator, item_check_truce},
        {"postgresql", NULL, setup_rows, rows, check_rows},
        {"postgresql", "jsonb", setup_jsonb, jsonb, check_jsonb},
        {"sqlite", NULL, setup_rows, rows, check_rows},
        {"mongodb", NULL, item_setup_mongo, item_mongo, check_mongo},
    }};
