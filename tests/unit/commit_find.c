/*
 * Guarded queries of a commit: their results, their guards, and callers without permission.
 */
#include <pthread.h>

#include "base/clock.h"
#include "tests/support/bank.h"

static truce_store *store;
static truce_status found_status; /* of the last query */

static truce_store *open_file(void)
{
    static const struct setting file = {"file", "file:", TRUCE_MECHANISM_AUTO};

    store = open_setting(&file);
    return store;
}

static truce_commit *begin(void)
{
    truce_commit *commit = NULL;
    bson_error_t error;

    CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error);
    return commit;
}

/* Returns the _ids of the results as a string. */
static const char *found(truce_commit *commit, const char *filter,
                         const truce_find_options *options)
{
    static char text[400];
    bson_t *asked = test_bson(filter);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error = {0};
    truce_status status = truce_commit_find(commit, "x", asked, options, &cursor, &error);
    bson_iter_t id;

    text[0] = '\0';
    do {
        if (!status)
            status = truce_cursor_next(cursor, &document, &error);
        if (!status && document && bson_iter_init_find(&id, document, "_id"))
            strncat(text, bson_iter_utf8(&id, NULL), sizeof text - strlen(text) - 1);
    } while (!status && document);
    truce_cursor_close(cursor);
    found_status = status;
    bson_destroy(asked);
    return text;
}

static void update(const char *id, const char *change)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), *operators = test_bson(change);
    bson_error_t error;

    CHECK_OK(truce_update(store, "x", filter, operators, NULL, NULL, &error), error);
    bson_destroy(operators);
    bson_destroy(filter);
}

static void take_away(const char *id)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id));
    bson_error_t error;

    CHECK_OK(truce_remove(store, "x", filter, NULL, NULL, &error), error);
    bson_destroy(filter);
}

static void change(truce_commit *commit, const char *id, const char *operators)
{
    bson_error_t error;

    CHECK_OK(add_update(commit, "x", id, NULL, operators, &error), error);
}

static void bring(truce_commit *commit, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_commit_insert(commit, "x", document, &error), error);
    bson_destroy(document);
}

static truce_status apply(truce_commit *commit)
{
    bson_error_t error = {0};
    truce_status status = truce_commit_apply(commit, &error);

    if (status == TRUCE_CONFLICT)
        CHECK(strstr(error.message, "x"));
    truce_commit_free(commit);
    return status;
}

/* ---- guards ---------------------------------------------------------------------------------- */

static void change_it(void)
{
    update("a", "{'$set': {'w': 1}}");
}
static void change_another(void)
{
    update("d", "{'$set': {'w': 1}}");
}
static void bring_one(void)
{
    insert_json(store, "x", "{'_id': 'n', 'v': 1}");
}
static void bring_another(void)
{
    insert_json(store, "x", "{'_id': 'n', 'v': 7}");
}
static void let_one_match(void)
{
    update("d", "{'$set': {'v': 1}}");
}
static void let_one_not_match(void)
{
    update("b", "{'$set': {'v': 2}}");
}
static void take_one_away(void)
{
    take_away("b");
}
static void change_and_change_back(void)
{
    update("a", "{'$set': {'v': 2}}");
    update("a", "{'$set': {'v': 1}}");
}

static const struct {
    void (*plain)(void);
    truce_status expected;
} midst[] = {
    {change_it, TRUCE_CONFLICT},     {change_another, TRUCE_OK},
    {bring_one, TRUCE_CONFLICT},     {bring_another, TRUCE_OK},
    {let_one_match, TRUCE_CONFLICT}, {let_one_not_match, TRUCE_CONFLICT},
    {take_one_away, TRUCE_CONFLICT}, {change_and_change_back, TRUCE_OK},
};

static void fill(void)
{
    insert_json(store, "x", "{'_id': 'a', 'v': 1}");
    insert_json(store, "x", "{'_id': 'b', 'v': 1}");
    insert_json(store, "x", "{'_id': 'd', 'v': 5}");
}

TEST(commits_only_if_the_query_still_finds_the_same)
{
    for (size_t i = 0; i < sizeof midst / sizeof *midst; i++) {
        truce_commit *commit;

        REQUIRE(open_file());
        fill();
        commit = begin();
        CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
        bring(commit, "{'_id': 'made', 'v': 9}");
        midst[i].plain();
        CHECK_INT(apply(commit), ==, midst[i].expected);
        CHECK_INT(count_json(store, "x", "{'_id': 'made'}"), ==, midst[i].expected == TRUCE_OK);
        truce_store_close(store);
    }
}

TEST(a_query_that_found_nothing_is_guarded_too)
{
    truce_commit *commit;

    REQUIRE(open_file());
    commit = begin();
    CHECK_TEXT("", found(commit, "{'v': 1}", NULL)); /* of a collection that is not there */
    bring(commit, "{'_id': 'made', 'v': 9}");
    bring_one();
    CHECK_INT(apply(commit), ==, TRUCE_CONFLICT);
    commit = begin();
    CHECK_TEXT("", found(commit, "{'v': 2}", NULL));
    bring(commit, "{'_id': 'made', 'v': 9}");
    CHECK_INT(apply(commit), ==, TRUCE_OK);
    truce_store_close(store);
}

/* Documents that were not read are unknown, so they are not guarded. */
TEST(guards_only_documents_that_the_cursor_returned)
{
    bson_t *asked = test_bson("{'v': {'$gte': 1}}"), *sort = test_bson("{'_id': 1}");
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_commit *commit;
    bson_error_t error;

    REQUIRE(open_file());
    fill();
    for (int end = 0; end <= 1; end++) {
        commit = begin();
        CHECK_OK(truce_commit_find(commit, "x", asked, &options, &cursor, &error), error);
        do
            CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        while (end && document);
        truce_cursor_close(cursor);
        bring(commit, end ? "{'_id': 'm2', 'v': 0}" : "{'_id': 'm1', 'v': 0}");
        update("d", "{'$inc': {'w': 1}}"); /* the last one of them */
        CHECK_INT(apply(commit), ==, end ? TRUCE_CONFLICT : TRUCE_OK);
    }
    bson_destroy(sort);
    bson_destroy(asked);
    truce_store_close(store);
}

TEST(reads_one_snapshot_without_conflicts)
{
    truce_commit *commit;

    REQUIRE(open_file());
    fill();
    commit = begin();
    CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
    let_one_match();
    CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
    CHECK_INT(apply(commit), ==, TRUCE_OK);
    truce_store_close(store);
}

/* A document that is read by its _id is from the snapshot of the apply, and the query must be,
 * too. */
TEST(reads_and_queries_one_snapshot_at_the_commit)
{
    bson_value_t id = truce_id_utf8("d");
    truce_commit *commit;
    bson_error_t error;
    bson_t document;

    REQUIRE(open_file());
    fill();
    commit = begin();
    CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
    let_one_match();
    CHECK_OK(truce_commit_read(commit, "x", &id, &document, &error), error);
    bson_destroy(&document);
    CHECK_INT(apply(commit), ==, TRUCE_CONFLICT);
    truce_store_close(store);
}

/* ---- its own changes ------------------------------------------------------------------------- */

TEST(shows_the_commits_own_changes_in_a_query)
{
    bson_t *down = test_bson("{'v': -1, '_id': 1}");
    truce_find_options best = {.sort = down, .limit = 2};
    bson_value_t b = truce_id_utf8("b");
    truce_commit *commit;
    bson_error_t error;

    REQUIRE(open_file());
    fill();
    commit = begin();
    change(commit, "d", "{'$set': {'v': 1}}");
    change(commit, "a", "{'$set': {'v': 8}}");
    CHECK_TEXT("bd", found(commit, "{'v': 1}", NULL));
    bring(commit, "{'_id': 'e', 'v': 9}");
    CHECK_OK(truce_commit_remove(commit, "x", &b, NULL, &error), error);
    CHECK_TEXT("d", found(commit, "{'v': 1}", NULL));
    CHECK_TEXT("ea", found(commit, "{}", &best));
    change(commit, "e", "{'$set': {'v': 0}}");
    CHECK_TEXT("ad", found(commit, "{}", &best));
    CHECK_INT(apply(commit), ==, TRUCE_OK);
    CHECK_INT(count_json(store, "x", "{'_id': 'e', 'v': 0, '_intent': {'$exists': false}}"), ==, 1);
    CHECK_INT(count_json(store, "x", "{}"), ==, 3);
    bson_destroy(down);
    truce_store_close(store);
}

TEST(finds_documents_that_exchange_a_unique_value)
{
    bson_t *index = test_bson("{'key': {'name': 1}, 'unique': true, 'sparse': true}");
    truce_commit *commit;
    bson_error_t error;

    REQUIRE(open_file());
    fill();
    CHECK_OK(truce_index_create(store, "x", index, &error), error);
    update("a", "{'$set': {'name': 'first'}}");
    update("b", "{'$set': {'name': 'second'}}");
    commit = begin();
    change(commit, "a", "{'$set': {'name': 'second'}}");
    change(commit, "b", "{'$set': {'name': 'first'}}");
    CHECK_TEXT("a", found(commit, "{'name': 'second'}", NULL));
    truce_commit_free(commit);
    commit = begin();
    change(commit, "a", "{'$set': {'name': 'second'}}");
    (void)found(commit, "{}", NULL);
    CHECK_INT(found_status, ==, TRUCE_DUPLICATE); /* the error of the commit, too */
    CHECK_INT(apply(commit), ==, TRUCE_DUPLICATE);
    CHECK_INT(count_json(store, "x", "{'_id': 'a', 'name': 'first'}"), ==, 1);
    bson_destroy(index);
    truce_store_close(store);
}

/* ---- a function that runs again -------------------------------------------------------------- */

#define CLERKS 4
#define ROOMS  12

/* Books a room at a time, unless an overlapping booking exists. */
struct booking {
    int clerk, number, from;
};

static truce_status book(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct booking *booking = arg;
    bson_t *asked =
        BCON_NEW("room", BCON_INT32(booking->number), "from", "{", "$gt",
                 BCON_INT32(booking->from - 3), "$lt", BCON_INT32(booking->from + 3), "}");
    truce_cursor *cursor = NULL;
    const bson_t *taken = NULL;
    truce_status status = truce_commit_find(commit, "bookings", asked, NULL, &cursor, error);

    if (!status)
        status = truce_cursor_next(cursor, &taken, error);
    if (!status && taken)
        status = TRUCE_REFUSED;
    truce_cursor_close(cursor);
    bson_destroy(asked);
    if (!status) {
        char id[40];
        bson_t *document;

        snprintf(id, sizeof id, "%d/%d/%d", booking->number, booking->from, booking->clerk);
        document = BCON_NEW("_id", BCON_UTF8(id), "room", BCON_INT32(booking->number), "from",
                            BCON_INT32(booking->from));
        status = truce_commit_insert(commit, "bookings", document, error);
        bson_destroy(document);
    }
    return status;
}

static int booked[CLERKS];

static void *book_all(void *arg)
{
    int clerk = (int)(intptr_t)arg;

    for (int i = 0; i < ROOMS * 4; i++) {
        struct booking booking = {clerk, i % ROOMS, (i / ROOMS + clerk) % 5};
        bson_error_t error = {0};
        truce_status status = truce_transact(store, book, &booking, NULL, &error);

        CHECK(status == TRUCE_OK || status == TRUCE_REFUSED);
        if (status && status != TRUCE_REFUSED)
            fprintf(stderr, "%s\n", error.message);
        booked[clerk] += !status;
    }
    return NULL;
}

TEST(rejects_a_booking_that_overlaps_a_concurrent_one)
{
    bson_t *index = test_bson("{'key': {'room': 1, 'from': 1}}");
    pthread_t threads[CLERKS];
    bson_error_t error;
    int sum = 0;

    REQUIRE(open_file());
    CHECK_OK(truce_index_create(store, "bookings", index, &error), error);
    for (int i = 0; i < CLERKS; i++)
        pthread_create(&threads[i], NULL, book_all, (void *)(intptr_t)i);
    for (int i = 0; i < CLERKS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CLERKS; i++)
        sum += booked[i];
    CHECK_INT(count_json(store, "bookings", "{}"), ==, sum);
    for (int room = 0; room < ROOMS; room++) /* times are 0 to 4, and two overlap within 3 */
        for (int from = 0; from < 5; from++) {
            char filter[120];

            snprintf(filter, sizeof filter, "{'room': %d, 'from': {'$gte': %d, '$lt': %d}}", room,
                     from, from + 3);
            CHECK_INT(count_json(store, "bookings", filter), <=, 1);
        }
    CHECK_INT(count_json(store, "bookings", "{}"), >=, ROOMS);
    bson_destroy(index);
    truce_store_close(store);
}

/* So many runs that a commit without a query would lock its documents first. */
static truce_status lose_often(truce_commit *commit, void *arg, bson_error_t *error)
{
    int *runs = arg;
    bson_value_t id = truce_id_utf8("a");
    bson_t document;
    truce_status status = truce_commit_read(commit, "x", &id, &document, error);

    bson_destroy(&document);
    if (!status && ++*runs <= 8) {
        update("a", "{'$inc': {'w': 1}}");
        truce__clock_sleep_ms(20);
    }
    if (!status && *runs > 6) {
        (void)found(commit, "{'v': 1}", NULL);
        status = found_status;
    }
    return status ? status : add_update(commit, "x", "a", NULL, "{'$inc': {'done': 1}}", error);
}

TEST(reserves_no_documents_for_a_function_with_queries)
{
    bson_error_t error;
    int runs = 0;

    REQUIRE(open_file());
    fill();
    CHECK_OK(truce_transact(store, lose_often, &runs, NULL, &error), error);
    CHECK_INT(runs, ==, 9);
    CHECK_INT(count_json(store, "x", "{'done': 1, 'w': 8}"), ==, 1);
    CHECK_INT(count_json(store, "x", "{'_intent': {'$exists': true}}"), ==, 0);
    truce_store_close(store);
}

/* ---- under a key, and without permission ----------------------------------------------------- */

static truce_status ask_and_bring(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    (void)error;
    CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
    bring(commit, "{'_id': 'made', 'v': 9}");
    return TRUCE_OK;
}

TEST(a_commit_with_a_query_and_a_key_happens_once)
{
    bool earlier = true;
    truce_commit_options options = {.key = "k", .key_time_ms = 1700000000000, .earlier = &earlier};
    bson_error_t error;

    REQUIRE(open_file());
    fill();
    CHECK_OK(truce_transact(store, ask_and_bring, NULL, &options, &error), error);
    CHECK(!earlier);
    CHECK_OK(truce_transact(store, ask_and_bring, NULL, &options, &error), error);
    CHECK(earlier);
    CHECK_INT(count_json(store, "x", "{'v': 9}"), ==, 1);
    truce_store_close(store);
}

static truce_status ask_in_vain(truce_store *of, truce_mechanism mechanism, const char *collection,
                                bson_error_t *error)
{
    truce_commit_options options = {.mechanism = mechanism};
    truce_cursor *cursor = NULL;
    truce_commit *commit = NULL;
    truce_status status;

    CHECK_OK(truce_commit_begin(of, &options, &commit, error), *error);
    status = truce_commit_find(commit, collection, NULL, NULL, &cursor, error);
    CHECK(!cursor);
    truce_commit_free(commit);
    return status;
}

TEST(makes_no_query_where_no_query_can_be_guarded)
{
    bson_error_t error = {0};
    truce_store *memory;
    truce_commit *commit;

    REQUIRE(open_file());
    CHECK_STATUS(TRUCE_INVALID, ask_in_vain(store, TRUCE_MECHANISM_JOURNAL, "x", &error), error);
    CHECK(strstr(error.message, "TRUCE_MECHANISM_JOURNAL cannot guard a query"));
    CHECK_STATUS(TRUCE_INVALID, ask_in_vain(store, TRUCE_MECHANISM_AUTO, "", &error), error);
    CHECK_STATUS(TRUCE_INVALID, ask_in_vain(store, TRUCE_MECHANISM_AUTO, "truce_commits", &error),
                 error);
    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    CHECK_STATUS(TRUCE_INVALID, ask_in_vain(memory, TRUCE_MECHANISM_AUTO, "x", &error), error);
    CHECK(strstr(error.message, "memory"));
    truce_store_close(memory);
    commit = begin();
    CHECK_OK(truce_commit_apply(commit, &error), error);
    (void)found(commit, "{}", NULL);
    CHECK_INT(found_status, ==, TRUCE_INVALID);
    truce_commit_free(commit);
    truce_store_close(store);
}

TEST(reports_an_invalid_query_and_keeps_the_commit_usable)
{
    truce_commit *commit;

    REQUIRE(open_file());
    fill();
    commit = begin();
    (void)found(commit, "{'v': {'$nothing': 1}}", NULL);
    CHECK_INT(found_status, ==, TRUCE_INVALID);
    CHECK_TEXT("ab", found(commit, "{'v': 1}", NULL));
    bring(commit, "{'_id': 'made', 'v': 9}");
    CHECK_INT(apply(commit), ==, TRUCE_OK);
    truce_store_close(store);
}

/* The cursor may be closed after its commit, and after the store; it returns no more documents. */
TEST(a_cursor_that_is_left_open_ends_with_its_commit)
{
    truce_cursor *cursors[3];
    const bson_t *document;
    truce_commit *commit;
    bson_error_t error;

    REQUIRE(open_file());
    fill();
    commit = begin();
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_commit_find(commit, "x", NULL, NULL, &cursors[i], &error), error);
    truce_cursor_close(cursors[1]);
    CHECK_OK(truce_cursor_next(cursors[2], &document, &error), error);
    CHECK(document != NULL);
    CHECK_INT(apply(commit), ==, TRUCE_OK);
    CHECK_STATUS(TRUCE_INVALID, truce_cursor_next(cursors[0], &document, &error), error);
    CHECK(strstr(error.message, "the commit of the cursor has ended"));
    truce_cursor_close(cursors[0]);
    truce_store_close(store);
    truce_cursor_close(cursors[2]);
}
