/*
 * The data that a commit keeps: its input, by every mechanism, and its result under its key.
 */
#include "tests/support/bank.h"

#define KEY_TIME 1700000000000

struct order {
    int runs;
    int conflicts; /* how often it reports a conflict */
    int number;
};

static truce_status take_order(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    truce_status status = add_update(commit, "stock", "shoes", NULL, "{'$inc': {'n': -1}}", error);
    bson_t *left = BCON_NEW("number", BCON_INT32(order->number + order->runs));

    order->runs++;
    if (!status && order->runs != 2)
        status = truce_commit_set_result(commit, left, error);
    bson_destroy(left);
    return !status && order->runs <= order->conflicts ? TRUCE_CONFLICT : status;
}

static truce_status order_once(truce_store *store, const struct setting *setting, const char *key,
                               struct order *order, bool *earlier)
{
    truce_commit_options options = {.mechanism = setting->mechanism,
                                    .key = key,
                                    .key_time_ms = key ? KEY_TIME : 0,
                                    .earlier = earlier};
    bson_error_t error = {0};

    return truce_transact(store, take_order, order, &options, &error);
}

static void check_result(truce_store *store, const char *key, truce_status expected,
                         const char *json, const char *file, int line)
{
    bson_error_t error = {0};
    bson_t result, *wanted = test_bson(json);

    test_check_status(expected, truce_commit_result(store, key, &result, &error), &error, key, file,
                      line);
    test_bson_equal(wanted, &result, file, line);
    bson_destroy(&result);
    bson_destroy(wanted);
}

#define CHECK_RESULT(store, key, expected, json)                                                   \
    check_result(store, key, expected, json, __FILE__, __LINE__)

static void leaves(truce_store *store, const struct setting *setting)
{
    struct order first = {.number = 17}, again = {.number = 40};
    bson_error_t error = {0};
    bool earlier = true;
    bson_t found;

    insert_json(store, "stock", "{'_id': 'shoes', 'n': 10}");
    CHECK_RESULT(store, "order a", TRUCE_NOT_FOUND, "{}");
    CHECK(order_once(store, setting, "order a", &first, &earlier) == TRUCE_OK);
    CHECK(!earlier);
    CHECK_INT(first.runs, ==, 1);
    CHECK_RESULT(store, "order a", TRUCE_OK, "{'number': 17}");
    CHECK(order_once(store, setting, "order a", &again, &earlier) == TRUCE_OK);
    CHECK(earlier);
    CHECK_INT(again.runs, ==, 0);
    CHECK_RESULT(store, "order a", TRUCE_OK, "{'number': 17}");
    CHECK_DOCUMENT(store, "stock", "shoes", "{'_id': 'shoes', 'n': 9}");
    CHECK_OK(truce_commit_record(store, "order a", &found, &error), error);
    CHECK(bson_has_field(&found, "key_time") && bson_has_field(&found, "result.number"));
    bson_destroy(&found);
}

TEST(returns_the_result_of_a_commit_for_its_used_key)
{
    on_every_setting(leaves);
}

/* Another process uses the key between its lookup and the commit. */
static truce_status lose_the_key(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct setting *setting = ((void **)arg)[1];
    struct order other = {.number = 3};

    if (!*(int *)((void **)arg)[2])
        CHECK(order_once(((void **)arg)[0], setting, "order b", &other, NULL) == TRUCE_OK);
    ++*(int *)((void **)arg)[2];
    return add_update(commit, "stock", "coats", NULL, "{'$inc': {'n': -1}}", error);
}

static void loses_the_key(truce_store *store, const struct setting *setting)
{
    int runs = 0;
    void *arg[] = {store, (void *)setting, &runs};
    bool earlier = false;
    truce_commit_options options = {.mechanism = setting->mechanism,
                                    .key = "order b",
                                    .key_time_ms = KEY_TIME,
                                    .earlier = &earlier};
    bson_error_t error = {0};

    insert_json(store, "stock", "{'_id': 'shoes', 'n': 10}");
    insert_json(store, "stock", "{'_id': 'coats', 'n': 10}");
    CHECK_OK(truce_transact(store, lose_the_key, arg, &options, &error), error);
    CHECK(earlier);
    CHECK_RESULT(store, "order b", TRUCE_OK, "{'number': 3}");
    CHECK_DOCUMENT(store, "stock", "coats", "{'_id': 'coats', 'n': 10}");
}

TEST(reports_a_concurrently_used_key_as_used_earlier)
{
    on_every_setting(loses_the_key);
}

static void of_the_last_run(truce_store *store, const struct setting *setting)
{
    struct order order = {.number = 17, .conflicts = 1};

    insert_json(store, "stock", "{'_id': 'shoes', 'n': 10}");
    CHECK(order_once(store, setting, "order c", &order, NULL) == TRUCE_OK);
    CHECK_INT(order.runs, ==, 2);
    CHECK_RESULT(store, "order c", TRUCE_OK, "{}");
}

TEST(discards_results_of_an_earlier_run_of_the_function)
{
    on_every_setting(of_the_last_run);
}

static void refuses(truce_store *store, const struct setting *setting)
{
    struct order order = {0};
    truce_commit_options options = {
        .mechanism = setting->mechanism, .key = "large", .key_time_ms = KEY_TIME};
    char *text = bson_malloc(70000);
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    bson_t large = BSON_INITIALIZER;

    insert_json(store, "stock", "{'_id': 'shoes', 'n': 10}");
    insert_json(store, "truce_commits", "{'_id': 1, 'key': 'under way', 'state': 'pending'}");
    memset(text, 'x', 70000);
    BSON_APPEND_UTF8(&large, "", "");
    bson_append_utf8(&large, "text", 4, text, 70000);
    CHECK_INT(order_once(store, setting, NULL, &order, NULL), ==, TRUCE_INVALID);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, truce_commit_set_result(commit, &large, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_set_result(commit, NULL, &error), error);
    truce_commit_free(commit);
    CHECK_RESULT(store, "", TRUCE_INVALID, "{}");
    CHECK_RESULT(store, "under way", TRUCE_LOCKED, "{}");
    bson_destroy(&large);
    bson_free(text);
}

TEST(refuses_invalid_results_and_keys)
{
    on_every_setting(refuses);
}

static void keeps_input(truce_store *store, const struct setting *setting)
{
    bson_t *input = test_bson("{'who': 'ada'}");
    truce_commit_options options = {.mechanism = setting->mechanism, .input = input};
    bson_error_t error = {0};

    insert_json(store, "things", "{'_id': 'a', 'n': 0}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    for (int documents = 1; documents <= 2; documents++) {
        truce_commit *commit = NULL;

        CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
        for (int i = 0; i < documents; i++)
            CHECK_OK(
                add_update(commit, "things", i ? "b" : "a", NULL, "{'$inc': {'n': 1}}", &error),
                error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        CHECK_INT(count_json(store, "truce_commits", "{'input.who': 'ada', 'state': 'done'}"), ==,
                  documents);
    }
    CHECK_DOCUMENT(store, "things", "a", "{'_id': 'a', 'n': 2}");
    bson_destroy(input);
}

TEST(keeps_the_input_in_every_mechanism)
{
    on_every_setting(keeps_input);
}

/* ---- a list ---------------------------------------------------------------------------------- */

static void check_list(truce_store *store, const char *state, const char *prefix, const char *ids,
                       int line)
{
    truce_commit_list_options options = {.state = state, .key_prefix = prefix};
    char found[20] = "";
    truce_cursor *cursor = NULL;
    const bson_t *commit = NULL;
    bson_error_t error = {0};
    truce_status status = truce_commit_list(store, &options, &cursor, &error);

    while (!status) {
        bson_iter_t iter;

        status = truce_cursor_next(cursor, &commit, &error);
        if (status || !commit || strlen(found) + 2 > sizeof found)
            break;
        CHECK(bson_iter_init_find(&iter, commit, "_id"));
        snprintf(found + strlen(found), 2, "%d", bson_iter_int32(&iter));
    }
    truce_cursor_close(cursor);
    CHECK_OK(status, error);
    test_check_text(ids, found, __FILE__, line);
}

TEST(commits_are_listed_by_state_and_by_how_their_keys_begin)
{
    static const char *const commits[] = {"{'_id': 1, 'state': 'done', 'key': 'a.b'}",
                                          "{'_id': 2, 'state': 'done', 'key': 'axb'}",
                                          "{'_id': 3, 'state': 'pending', 'key': 'a.b\u00e9 1'}",
                                          "{'_id': 4, 'state': 'aborted', 'why': 'so'}",
                                          "{'_id': 5, 'state': 'done', 'key': 'xa.b'}",
                                          "{'_id': 'horizon', 'time': 7}"};
    truce_commit_list_options limited = {.limit = 1}, wrong = {.reserved = {1}};
    truce_store *store = open_setting(&settings[0]);
    truce_cursor *cursor = NULL;
    const bson_t *commit = NULL;
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof commits / sizeof *commits; i++)
        insert_json(store, "truce_commits", commits[i]);
    check_list(store, NULL, NULL, "54321", __LINE__);
    check_list(store, "done", NULL, "521", __LINE__);
    check_list(store, NULL, "a.b", "31", __LINE__);
    check_list(store, NULL, "a.b\xc3\xa9", "3", __LINE__);
    check_list(store, "done", "a", "21", __LINE__);
    check_list(store, NULL, "", "5321", __LINE__);
    check_list(store, NULL, "a.b\\E", "", __LINE__);
    CHECK_OK(truce_commit_list(store, &limited, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &commit, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &commit, &error), error);
    CHECK(!commit);
    truce_cursor_close(cursor);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_list(store, &wrong, &cursor, &error), error);
    CHECK(!cursor);
    truce_store_close(store);
}

/* ---- inserts without an _id ----------------------------------------------------------------- */

struct letter {
    int64_t at; /* another one each time that it is sent */
    bson_oid_t made;
};

static truce_status write_letter(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct letter *letter = arg;
    bson_t *document = BCON_NEW("to", BCON_UTF8("ada"), "at", BCON_INT64(letter->at));
    truce_status status = truce_commit_insert(commit, "letters", document, error);
    bson_iter_t iter;

    bson_destroy(document);
    if (status)
        return status;
    CHECK_INT(bson_count_keys(truce_commit_inserted(commit)), ==, 1);
    CHECK(bson_iter_init_find(&iter, truce_commit_inserted(commit), "0"));
    bson_oid_copy(bson_iter_oid(&iter), &letter->made);
    return add_update(commit, "letters", "count", NULL, "{'$inc': {'n': 1}}", error);
}

static void makes_ids(truce_store *store, const struct setting *setting)
{
    bson_t *input = test_bson("{'letter': 17}"), *filter, found;
    bool earlier = true;
    truce_commit_options options = {.mechanism = setting->mechanism, .earlier = &earlier};
    struct letter letter = {.at = 1};
    bson_error_t error = {0};
    bson_iter_t iter, made;

    insert_json(store, "letters", "{'_id': 'count', 'n': 0}");
    CHECK_OK(truce_transact(store, write_letter, &letter, &options, &error), error);
    filter = BCON_NEW("_id", BCON_OID(&letter.made));
    CHECK_OK(truce_find_one(store, "letters", filter, NULL, &found, &error), error);
    CHECK(bson_iter_init(&iter, &found) && bson_iter_next(&iter));
    CHECK(!strcmp(bson_iter_key(&iter), "_id")); /* the first field */
    bson_destroy(&found);
    bson_destroy(filter);
    options.key = "letter 17";
    options.key_time_ms = KEY_TIME;
    options.input = input;
    for (int i = 0; i < 2; i++, letter.at++) {
        CHECK_OK(truce_transact(store, write_letter, &letter, &options, &error), error);
        CHECK(earlier == (i == 1));
        CHECK_OK(truce_commit_record(store, "letter 17", &found, &error), error);
        CHECK(bson_iter_init(&iter, &found) &&
              bson_iter_find_descendant(&iter, "inserted.0", &made) &&
              bson_oid_equal(bson_iter_oid(&made), &letter.made));
        bson_destroy(&found);
    }
    CHECK_INT(count_json(store, "letters", "{'to': 'ada'}"), ==, 2);
    CHECK_INT(count_json(store, "letters", "{'n': 2}"), ==, 1);
    bson_destroy(input);
}

TEST(makes_missing_ids_and_reports_them_again_on_repetition)
{
    on_every_setting(makes_ids);
}
