/*
 * Reads next to writers: transactions that keep the sum move money between accounts all the time,
 * and remove and recreate accounts. Every read of any kind must count all money, once.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define ACCOUNTS_MAX 5000 /* more than one part of a read */
#define EACH         100
#define FEW          40 /* that are read by their ids, all at once */

static int accounts;

static truce_store *store;
static atomic_bool writing;
static atomic_long moves;

static bson_t *json(const char *text)
{
    return test_bson(text);
}

static void open_bank(const char *uri, int number)
{
    bson_error_t error;
    bson_t *index = json("{'key': {'money': 1}}");

    accounts = number;
    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    for (int i = 0; i < accounts; i++) {
        bson_t *account =
            BCON_NEW("_id", BCON_INT32(i), "money", BCON_INT32(EACH), "team", BCON_INT32(i % 10));
        truce_write_options options = {.relaxed = true};

        CHECK_OK(truce_insert(store, "accounts", account, &options, &error), error);
        bson_destroy(account);
    }
    CHECK_OK(truce_index_create(store, "accounts", index, &error), error);
    bson_destroy(index);
}

/* From one to another, in one step; by the index's order both are somewhere else afterwards. */
static void *move_money(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    bson_error_t error;

    while (atomic_load(&writing)) {
        int from = rand_r(&seed) % accounts, to = rand_r(&seed) % accounts;
        int amount = 1 + rand_r(&seed) % 90;
        bson_t *give = BCON_NEW("_id", BCON_INT32(from));
        bson_t *take = BCON_NEW("_id", BCON_INT32(to));
        bson_t *less = BCON_NEW("$inc", "{", "money", BCON_INT32(-amount), "}");
        bson_t *more = BCON_NEW("$inc", "{", "money", BCON_INT32(amount), "}");
        truce_write writes[] = {{TRUCE_WRITE_UPDATE, "accounts", give, less, {0}},
                                {TRUCE_WRITE_UPDATE, "accounts", take, more, {0}}};
        truce_write_outcome outcomes[2];
        truce_bulk_options options = {.atomic = true, .relaxed = true};

        if (from != to)
            CHECK_OK(truce_bulk(store, writes, 2, &options, outcomes, &error), error);
        atomic_fetch_add(&moves, 1);
        bson_destroy(give);
        bson_destroy(take);
        bson_destroy(less);
        bson_destroy(more);
    }
    return NULL;
}

static int64_t number(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) ? bson_iter_as_int64(&iter) : -1;
}

static void check_find(truce_store *from, const char *filter, const char *sort)
{
    static char seen[ACCOUNTS_MAX];
    bson_t *wanted = json(filter), *order = sort ? json(sort) : NULL;
    truce_find_options options = {.sort = order};
    int64_t sum = 0, count = 0;
    truce_cursor *cursor;
    const bson_t *account;
    bson_error_t error;

    memset(seen, 0, sizeof seen);
    CHECK_OK(truce_find(from, "accounts", wanted, &options, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &account, &error) && account) {
        CHECK(!seen[number(account, "_id")]);
        seen[number(account, "_id")] = 1;
        sum += number(account, "money");
        if (++count % 500 == 0)
            truce__clock_sleep_ms(1); /* a reader that thinks */
    }
    truce_cursor_close(cursor);
    CHECK_INT(count, ==, accounts);
    CHECK_INT(sum, ==, (int64_t)accounts * EACH);
    bson_destroy(wanted);
    bson_destroy(order);
}

/* Returns the field of a pipeline's only document. */
static int64_t ask(truce_store *from, const char *pipeline, const char *field)
{
    bson_t *stages = json(pipeline);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;
    int64_t answer = -1;

    CHECK_OK(truce_aggregate(from, "accounts", stages, NULL, &cursor, &error), error);
    if (cursor && CHECK_OK(truce_cursor_next(cursor, &document, &error), error) && document)
        answer = number(document, field);
    truce_cursor_close(cursor);
    bson_destroy(stages);
    return answer;
}

static void check_all(truce_store *from)
{
    bson_t *all = json("{'money': {'$gte': -1000000}}");
    bson_error_t error;
    int64_t count = 0;

    check_find(from, "{}", NULL);
    check_find(from, "{'money': {'$gte': -1000000}}", "{'money': 1}");
    check_find(from, "{'money': {'$gte': -1000000}}", "{'money': -1}");
    check_find(from, "{}", "{'team': 1, 'money': 1}");
    check_find(from, "{'$or': [{'money': {'$lt': 100}}, {'money': {'$gte': 100}}]}", NULL);
    CHECK_OK(truce_count(from, "accounts", all, NULL, &count, &error), error);
    CHECK_INT(count, ==, accounts);
    CHECK_INT(ask(from, "[{'$group': {'_id': null, 'n': {'$sum': '$money'}}}]", "n"), ==,
              (int64_t)accounts * EACH);
    CHECK_INT(ask(from,
                  "[{'$match': {'money': {'$gte': -1000000}}}, {'$group': {'_id': null, 'n': "
                  "{'$sum': '$money'}}}]",
                  "n"),
              ==, (int64_t)accounts * EACH);
    CHECK_INT(ask(from,
                  "[{'$sort': {'money': 1}}, {'$group': {'_id': null, 'n': {'$sum': '$money'}}}]",
                  "n"),
              ==, (int64_t)accounts * EACH);
    /* both halves are of the same snapshot */
    CHECK_INT(ask(from,
                  "[{'$unionWith': 'accounts'}, {'$group': {'_id': null, 'n': {'$sum': "
                  "'$money'}}}]",
                  "n"),
              ==, 2 * (int64_t)accounts * EACH);
    bson_destroy(all);
}

/* Few are all in the cache, most of the time. */
static void check_read_requests(truce_store *from)
{
    truce_read_request looks[FEW];
    bson_value_t ids[FEW];
    bson_error_t error;
    int64_t sum = 0;

    for (int i = 0; i < FEW; i++) {
        ids[i] = (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = i};
        looks[i] = (truce_read_request){.collection = "accounts", .id = &ids[i]};
    }
    CHECK_OK(truce_read_many(from, looks, FEW, NULL, &error), error);
    for (int i = 0; i < FEW; i++) {
        CHECK(looks[i].found);
        sum += number(&looks[i].document, "money");
        bson_destroy(&looks[i].document);
    }
    CHECK_INT(sum, ==, FEW * EACH);
}

static void run_bank(const char *uri, int number)
{
    int64_t until =
        truce__clock_monotonic_ns() + (int64_t)test_scale("TRUCE_MOMENTS_MS", 1500) * 1000000;
    truce_store *view = NULL;
    pthread_t threads[3];
    bson_error_t error;

    open_bank(uri, number);
    atomic_store(&writing, true);
    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, move_money, (void *)(i + 1));
    do {
        int64_t first, second;

        check_all(store);
        for (int i = 0; accounts == FEW && i < 1000; i++)
            check_read_requests(store);
        CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
        first = ask(view, "[{'$sort': {'money': 1, '_id': 1}}, {'$limit': 1}]", "_id");
        check_all(view);
        for (int i = 0; accounts == FEW && i < 10; i++)
            check_read_requests(view);
        second = ask(view, "[{'$sort': {'money': 1, '_id': 1}}, {'$limit': 1}]", "_id");
        CHECK_INT(first, ==, second);
        truce_store_close(view);
    } while (!test_failures() && truce__clock_monotonic_ns() < until);
    atomic_store(&writing, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&moves) > 0);
    check_all(store);
    truce_store_close(store);
}

TEST(every_read_of_a_file_counts_all_money_while_it_moves)
{
    char uri[600];

    snprintf(uri, sizeof uri, "file:%s/bank.truce", test_directory());
    run_bank(uri, ACCOUNTS_MAX);
}

TEST(every_read_of_the_memory_counts_all_money_while_it_moves)
{
    run_bank("memory:", 500);
}

TEST(counts_all_money_in_every_read_of_several_documents)
{
    char uri[600];

    snprintf(uri, sizeof uri, "file:%s/bank.truce", test_directory());
    run_bank(uri, FEW);
}
