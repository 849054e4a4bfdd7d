/* Ledgers: balances at a time, pages of statements, and the documents of the description as
 * other programs use them. */
#include "base/clock.h"
#include "store/decorators/decorator.h"
#include "tests/support/ledger_rig.h"

/* ---- reading -------------------------------------------------------------------------------- */

static void moments(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t times[12], day_ms = 86400000;
    truce_ledger_balance balance;
    bson_error_t error = {0};
    char id[20];

    (void)setting;
    for (int i = 0; i < 10; i++) {
        truce_ledger_result result;

        snprintf(id, sizeof id, "t%d", i);
        truce__clock_sleep_ms(2);
        CHECK_OK(book_post(ledger, NULL, id, TRUCE_LEDGER_TRANSFER, "people:a", "people:b", 1,
                           &result, &error),
                 error);
        times[i] = result.booked_ms;
    }
    for (int i = 0; i < 10; i++) {
        CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                         &(truce_ledger_moment){.number = i + 2}, &balance, &error),
                 error);
        CHECK_INT(balance.balance, ==, i + 1);
        CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                         &(truce_ledger_moment){.booked_ms = times[i]}, &balance,
                                         &error),
                 error);
        CHECK_INT(balance.balance, ==, i + 1);
        CHECK_INT(balance.number, ==, i + 2);
    }
    CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                     &(truce_ledger_moment){.booked_ms = 1000000000000}, &balance,
                                     &error),
             error);
    CHECK_INT(balance.balance, ==, 0);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce_ledger_balance_of(ledger, "people:b", &(truce_ledger_moment){.number = 99},
                                         &balance, &error),
                 error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_ledger_balance_of(ledger, "none", NULL, &balance, &error),
                 error);
    /* value dates: yesterday and tomorrow; booked after the last time */
    truce__clock_sleep_ms(2);
    for (int i = -1; i <= 1; i += 2) {
        bson_value_t name = text_id(i < 0 ? "old" : "new");
        truce_ledger_entry entries[] = {{"people:a", -100 * (i + 2), NULL},
                                        {"people:b", 100 * (i + 2), NULL}};
        truce_ledger_transaction transaction = {
            .id = &name, .entries = entries, .count = 2, .effective_ms = times[9] + i * day_ms};

        CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    }
    {
        const struct {
            int64_t at_ms, balance;
        } cases[] = {{times[9] - 2 * day_ms, 0},
                     {times[9] - day_ms, 100},
                     {times[4], 105},
                     {times[9] + day_ms / 2, 110},
                     {times[9] + day_ms, 410}};

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                             &(truce_ledger_moment){.effective_ms = cases[i].at_ms},
                                             &balance, &error),
                     error);
            CHECK_INT(balance.balance, ==, cases[i].balance);
        }
    }
    {
        /* by value date, as it was known at a booking time or at a number */
        const struct {
            truce_ledger_moment at;
            int64_t balance;
        } cases[] = {{{.booked_ms = times[4], .effective_ms = times[9] + day_ms}, 5},
                     {{.booked_ms = times[9], .effective_ms = times[4]}, 5},
                     {{.booked_ms = times[9], .effective_ms = times[9] - day_ms}, 0},
                     {{.booked_ms = times[9] + day_ms, .effective_ms = times[4]}, 105},
                     {{.booked_ms = 1000000000000, .effective_ms = times[9] + day_ms}, 0},
                     {{.number = 6, .effective_ms = times[2]}, 3},
                     {{.number = 12, .effective_ms = times[9] - day_ms}, 100}};

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            CHECK_OK(truce_ledger_balance_of(ledger, "people:b", &cases[i].at, &balance, &error),
                     error);
            CHECK_INT(balance.balance, ==, cases[i].balance);
        }
        CHECK_STATUS(
            TRUCE_INVALID,
            truce_ledger_balance_of(ledger, "people:b",
                                    &(truce_ledger_moment){.number = 2, .booked_ms = 1000000000000},
                                    &balance, &error),
            error);
    }
    BALANCE("people:b", 410, 410);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(a_balance_is_that_of_a_number_of_a_time_or_of_a_value_date)
{
    everywhere(moments);
}

struct lines {
    int64_t numbers[300], balances[300];
    int count;
};

static bool keep_line(const truce_ledger_line *line, void *arg)
{
    struct lines *lines = arg;

    lines->numbers[lines->count] = line->number;
    lines->balances[lines->count++] = line->balance;
    return true;
}

static void pages(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    static struct lines whole, paged;
    truce_ledger_page page = {.limit = 7};
    bson_error_t error = {0};
    int64_t last;
    char id[20];

    (void)setting;
    whole.count = paged.count = 0;
    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "people:b", i + 1, &error), error);
    }
    last = book_balance(ledger, "people:b").number;
    CHECK_INT(last, ==, 31);
    CHECK_OK(truce_ledger_statement(ledger, "people:b", NULL, keep_line, &whole, &error), error);
    page.last = last;
    for (int i = 0; i < 10; i++) {
        CHECK_OK(truce_ledger_statement(ledger, "people:b", &page, keep_line, &paged, &error),
                 error);
        page.after = paged.count ? paged.numbers[paged.count - 1] : 0;
        snprintf(id, sizeof id, "u%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:b", "people:a", 1, &error), error);
    }
    CHECK_INT(whole.count, ==, 31);
    CHECK_INT(paged.count, ==, 31);
    for (int i = 0; i < 31; i++) {
        CHECK_INT(whole.numbers[i], ==, i + 1);
        CHECK_INT(paged.numbers[i], ==, i + 1);
        CHECK_INT(whole.balances[i], ==, i * (i + 1) / 2);
        CHECK_INT(paged.balances[i], ==, whole.balances[i]);
    }
    truce_ledger_free(ledger);
}

TEST(pages_of_a_statement_stay_consistent_during_writes)
{
    everywhere(pages);
}

/* ---- the description's own documents -------------------------------------------------------- */

static truce_status post_foreign(truce_store *store, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error = {0};
    truce_status status = truce_insert(store, "tx", document, NULL, &error);

    bson_destroy(document);
    return status;
}

static int64_t find_number(truce_store *store, const char *filter_json, const char *projection_json,
                           const char *sort_json, const char *path)
{
    bson_t *filter = test_bson(filter_json), *projection = test_bson(projection_json),
           *sort = test_bson(sort_json), found;
    truce_find_options options = {.projection = projection, .sort = sort, .limit = 1};
    bson_error_t error = {0};
    bson_iter_t iter, at;
    int64_t number = -1;

    CHECK_OK(truce_find_one(store, "tx", filter, &options, &found, &error), error);
    if (bson_iter_init(&iter, &found) && bson_iter_find_descendant(&iter, path, &at))
        number = bson_iter_as_int64(&at);
    bson_destroy(&found);
    bson_destroy(filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return number;
}

static void as_described(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_t *index =
        test_bson("{'key': {'changes.account': 1, 'changes.seqId': 1}, 'unique': true}");
    bson_t *stages = test_bson(
        "[{'$match': {'changes.account': 'people:b', 'changes.seqId': {'$gt': 1}, 'state': "
        "'VALID'}}, {'$unwind': '$changes'}, {'$match': {'changes.account': 'people:b'}},"
        " {'$group': {'_id': 'total', 'total': {'$sum': '$changes.value'}}}]");
    truce_sweep_report report;
    truce_cursor *cursor = NULL;
    const bson_t *total = NULL;
    bson_error_t error = {0};
    bson_t *document;

    (void)setting;
    CHECK_OK(truce_index_create(store, "tx", index, &error), error);
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 100, &error), error);
    document = read_transaction(store, "t1");
    CHECK_TEXT("COMMITTED", bson_has_field(document, "proc") ? "COMMITTED" : "");
    bson_destroy(document);
    /* inserts of other programs as in the description */
    CHECK_OK(post_foreign(store,
                          "{'_id': 'f1', 'ts': {'$timestamp': {'t': 1, 'i': 1}}, 'proc': "
                          "'UNCOMMITTED', 'state': 'VALID', 'changes': [{'account': 'people:a', "
                          "'type': 'withdraw', 'value': -50.0, 'seqId': 4, 'cachedBal': null},"
                          "{'account': 'people:b', 'type': 'deposit', 'value': 50, 'seqId': 3, "
                          "'cachedBal': null}]}"),
             error);
    CHECK_OK(post_foreign(store,
                          "{'_id': 'f2', 'proc': 'UNCOMMITTED', 'state': 'CANCELLED', 'changes': "
                          "[{'account': 'people:b', 'value': -9, 'seqId': 4, 'cachedBal': null},"
                          "{'account': 'people:a', 'value': 9, 'seqId': 5, 'cachedBal': null}]}"),
             error);
    CHECK_INT(post_foreign(store, "{'_id': 'f3', 'proc': 'UNCOMMITTED', 'state': 'VALID', "
                                  "'changes': [{'account': 'people:b', 'value': 1, 'seqId': 4}]}"),
              ==, TRUCE_DUPLICATE);
    CHECK_INT(book_count(store, "{'proc': 'UNCOMMITTED'}"), ==, 2);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 2);
    BALANCE("people:b", 150, 150);
    BALANCE("people:a", 850, 850);
    CHECK_INT(book_count(store, "{'proc': 'UNCOMMITTED'}"), ==, 0);
    CHECK_OK(book_transfer(ledger, "t2", "people:b", "people:a", 30, &error), error);
    BALANCE("people:b", 120, 120);
    /* its queries; $elemMatch restricts them to one change: its own filter matches two changes,
     * too */
    CHECK_INT(book_count(store, "{'changes.account': 'people:b', 'changes.seqId': {'$gt': 4}}"), ==,
              2);
    CHECK_INT(find_number(store,
                          "{'changes': {'$elemMatch': {'account': 'people:b', "
                          "'seqId': {'$gt': 4}}}}",
                          "{'changes.$': 1}", "{'changes.seqId': 1}", "changes.0.cachedBal"),
              ==, 120);
    CHECK_OK(truce_aggregate(store, "tx", stages, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &total, &error), error);
    if (CHECK(total != NULL)) {
        bson_iter_t iter;

        CHECK(bson_iter_init_find(&iter, total, "total"));
        CHECK_INT(bson_iter_as_int64(&iter), ==, 120);
    }
    truce_cursor_close(cursor);
    bson_destroy(stages);
    bson_destroy(index);
    truce_ledger_free(ledger);
}

/* A document of another program that skips numbers is counted with the next ones. */
static void looks_for_last(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < 40; i++) {
        char id[20];

        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "people:b", 10, &error), error);
    }
    truce_ledger_free(ledger);
    ledger = book_ledger(store);
    BALANCE("people:b", 400, 400);
    CHECK_INT(book_balance(ledger, "people:b").number, ==, 41);
    CHECK_OK(post_foreign(store, "{'_id': 'far', 'ts': {'$date': '2001-01-01T00:00:00Z'}, 'proc': "
                                 "'UNCOMMITTED', 'state': 'VALID', 'changes': "
                                 "[{'account': 'people:b', 'value': 5, 'seqId': 90},"
                                 "{'account': 'people:a', 'value': -5, 'seqId': 90}]}"),
             error);
    truce_ledger_free(ledger);
    ledger = book_ledger(store);
    if (book_has_slots()) { /* it is refused there */
        BALANCE("people:b", 400, 400);
    } else {
        BALANCE("people:b", 405, 405);
        CHECK_INT(book_balance(ledger, "people:b").number, ==, 42);
    }
    CHECK_OK(book_transfer(ledger, "next", "people:a", "people:b", 10, &error), error);
    truce_ledger_free(ledger);
}

TEST(finds_the_last_number_with_a_new_handle)
{
    everywhere(looks_for_last);
}

struct walked {
    char ids[20][20];
    int count, end;
};

static bool keep_id(const bson_t *document, void *arg)
{
    struct walked *walked = arg;
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, "_id") && BSON_ITER_HOLDS_UTF8(&iter))
        snprintf(walked->ids[walked->count++], sizeof walked->ids[0], "%s",
                 bson_iter_utf8(&iter, NULL));
    return !walked->end || walked->count < walked->end;
}

/* Whatever the times of others are, each transaction follows those that it builds on.
 * Transactions that are not reached yet are left out. */
static void walks(truce_store *store, const struct setting *setting)
{
    static const char *const wanted[] = {"seed", "t", "f1", "f2"};
    int count = book_has_slots() ? 2 : 4; /* documents of other programs are refused there */
    truce_ledger *ledger = begin(store);
    struct walked walked = {.count = 0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(ledger, "t", "people:a", "people:b", 10, &error), error);
    CHECK_OK(post_foreign(store, "{'_id': 'f2', 'ts': {'$date': '2001-01-01T00:00:00Z'}, 'proc': "
                                 "'UNCOMMITTED', 'state': 'VALID', 'changes': "
                                 "[{'account': 'people:b', 'value': 5, 'seqId': 4},"
                                 "{'account': 'people:a', 'value': -5, 'seqId': 5}]}"),
             error);
    CHECK_OK(post_foreign(store, "{'_id': 'f1', 'ts': {'$date': '2002-01-01T00:00:00Z'}, 'proc': "
                                 "'UNCOMMITTED', 'state': 'VALID', 'changes': "
                                 "[{'account': 'people:b', 'value': 50, 'seqId': 3},"
                                 "{'account': 'people:a', 'value': -50, 'seqId': 4}]}"),
             error);
    CHECK_OK(post_foreign(store, "{'_id': 'f9', 'ts': {'$date': '2000-01-01T00:00:00Z'}, 'proc': "
                                 "'UNCOMMITTED', 'state': 'VALID', 'changes': "
                                 "[{'account': 'people:b', 'value': 5, 'seqId': 9}]}"),
             error);
    CHECK_OK(truce_ledger_walk(ledger, keep_id, &walked, &error), error);
    CHECK_INT(walked.count, ==, count);
    for (int i = 0; i < count && i < walked.count; i++)
        CHECK_TEXT(wanted[i], walked.ids[i]);
    walked = (struct walked){.end = 2};
    CHECK_OK(truce_ledger_walk(ledger, keep_id, &walked, &error), error);
    CHECK_INT(walked.count, ==, 2);
    truce_ledger_free(ledger);
}

TEST(a_walk_returns_each_transaction_after_its_predecessors)
{
    everywhere(walks);
}

/* ---- search --------------------------------------------------------------------------------- */

static void post_with(truce_ledger *ledger, const char *id, const char *to, const char *meta)
{
    bson_value_t name = text_id(id);
    truce_ledger_entry entries[] = {{"bank", -5, NULL}, {to, 5, NULL}};
    bson_t *document = test_bson(meta);
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_post(ledger, NULL,
                               &(truce_ledger_transaction){
                                   .id = &name, .entries = entries, .count = 2, .meta = document},
                               NULL, &error),
             error);
    bson_destroy(document);
}

static void check_found(truce_ledger *ledger, const char *meta, const char *account, int64_t limit,
                        const char *ids, int line)
{
    bson_t *filter = meta ? test_bson(meta) : NULL;
    truce_ledger_search search = {.meta = filter, .account = account, .limit = limit};
    struct walked walked = {.count = 0};
    bson_error_t error = {0};
    char found[200] = "";

    CHECK_OK(truce_ledger_find(ledger, &search, keep_id, &walked, &error), error);
    for (int i = 0; i < walked.count; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", walked.ids[i]);
    test_check_text(ids, found, __FILE__, line);
    if (filter)
        bson_destroy(filter);
}
#define FOUND(meta, account, limit, ids) check_found(ledger, meta, account, limit, ids, __LINE__)

static void searches(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_t *wrong = test_bson("{'$or': [{'order': 1}]}");
    truce_ledger_search later = {.from_ms = book_balance(ledger, "bank").booked_ms + 3600000},
                        before = {.before_ms = later.from_ms},
                        many[] = {{.meta = wrong}, {.limit = -1}, {.account = ""}};
    struct walked walked = {.count = 0};
    bson_error_t error = {0};

    (void)setting;
    post_with(ledger, "t1", "people:a", "{'order': 1, 'shop': {'town': 'Bonn'}}");
    post_with(ledger, "t2", "people:b", "{'order': 2, 'tags': ['x', 'y']}");
    post_with(ledger, "t3", "people:a", "{'order': 3, 'shop': {'town': 'Ulm'}}");
    FOUND(NULL, NULL, 0, "seed t1 t2 t3 ");
    FOUND(NULL, NULL, 2, "seed t1 ");
    FOUND("{'order': 2}", NULL, 0, "t2 ");
    FOUND("{'order': {'$gte': 2}}", NULL, 0, "t2 t3 ");
    FOUND("{'order': {'$gte': 1}}", NULL, 2, "t1 t2 ");
    FOUND("{'order': {'$gte': 1}, 'shop.town': {'$exists': true}}", NULL, 0, "t1 t3 ");
    FOUND("{'shop': {'town': 'Bonn'}}", NULL, 0, "t1 ");
    FOUND("{'tags': 'y'}", NULL, 0, "t2 ");
    FOUND("{'town': 'Bonn'}", NULL, 0, "");
    FOUND("{}", "people:b", 0, "t2 ");
    FOUND(NULL, "people", 0, "");
    CHECK_OK(truce_ledger_find(ledger, &later, keep_id, &walked, &error), error);
    CHECK_INT(walked.count, ==, 0);
    CHECK_OK(truce_ledger_find(ledger, &before, keep_id, &walked, &error), error);
    CHECK_INT(walked.count, ==, 4);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        CHECK_STATUS(TRUCE_INVALID, truce_ledger_find(ledger, &many[i], keep_id, &walked, &error),
                     error);
    bson_destroy(wrong);
    truce_ledger_free(ledger);
}

TEST(transactions_are_found_by_their_metadata)
{
    everywhere(searches);
}

/* The store returns the second one before the first. */
static void out_of_order(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(post_foreign(
                 store,
                 "{'_id': 'f2', 'ts': {'$date': '2100-01-02T00:00:00Z'}, 'proc': 'UNCOMMITTED', "
                 "'state': 'VALID', 'changes': "
                 "[{'account': 'people:b', 'value': 5, 'seqId': 3},"
                 "{'account': 'people:a', 'value': -5, 'seqId': 4}]}"),
             error);
    CHECK_OK(post_foreign(
                 store,
                 "{'_id': 'f1', 'ts': {'$date': '2100-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', "
                 "'state': 'VALID', 'changes': "
                 "[{'account': 'people:b', 'value': 50, 'seqId': 2},"
                 "{'account': 'people:a', 'value': -50, 'seqId': 3}]}"),
             error);
    BALANCE("people:b", 55, 55);
    CHECK_INT(book_count(store, "{'proc': 'UNCOMMITTED'}"), ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(commits_transactions_of_others_in_the_order_of_their_numbers)
{
    if (book_has_slots())
        return;
    everywhere(out_of_order);
}

TEST(documents_index_and_queries_of_the_description_work)
{
    if (book_has_slots())
        return; /* only truce may write there */
    everywhere(as_described);
}

TEST(the_sort_of_the_description_finds_a_number_that_stays_used)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};
    char id[20];

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin(store);
    CHECK_OK(book_transfer(ledger, "first", "bank", "people:b", 1, &error), error);
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "bank", 1, &error), error);
    }
    CHECK_OK(book_transfer(ledger, "small", "people:b", "people:a", 1, &error), error);
    /* sorted by the greatest number of ANY account: b's last is 3, "first" has bank's 3 and b's
     * 2 */
    OPEN(ledger, "rare", ANY);
    CHECK_OK(book_transfer(ledger, "high", "bank", "rare", 5, &error), error);
    CHECK_OK(book_transfer(ledger, "low", "rare", "people:b", 2, &error), error);
    CHECK_INT(book_balance(ledger, "rare").number, ==, 3);
    {
        bson_t *filter = test_bson("{'changes.account': 'rare'}"),
               *sort = test_bson("{'changes.seqId': -1}"), found;
        truce_find_options options = {.sort = sort, .limit = 1};
        bson_iter_t iter;

        CHECK_OK(truce_find_one(store, "tx", filter, &options, &found, &error), error);
        CHECK(bson_iter_init_find(&iter, &found, "_id"));
        CHECK_TEXT("high", bson_iter_utf8(&iter, NULL)); /* number 2 of rare, and 3 is used */
        bson_destroy(&found);
        bson_destroy(filter);
        bson_destroy(sort);
    }
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- remembered balances -------------------------------------------------------------------- */

/* Each post by one handle is in the next balance of every other one. */
static void current(truce_store *store, const struct setting *setting)
{
    truce_ledger *first = begin(store), *second = book_ledger(store);
    bson_error_t error = {0};
    char id[20];

    (void)setting;
    for (int i = 0; i < 12; i++) {
        truce_ledger *posts = i % 3 ? first : second;

        for (int again = 0; again < 2; again++) {
            CHECK_INT(book_balance(first, "people:b").balance, ==, i);
            CHECK_INT(book_balance(second, "people:b").balance, ==, i);
            CHECK_INT(book_balance(second, "people:a").balance, ==, 1000 - i);
        }
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(posts, id, "people:a", "people:b", 1, &error), error);
    }
    BOOK_CHECK(first);
    truce_ledger_free(second);
    truce_ledger_free(first);
}

TEST(a_balance_has_every_post_that_has_ended)
{
    everywhere(current);
}

static int calls;

static truce_status count_calls(struct decorator *decorator, const struct decorated_call *call,
                                bson_error_t *error)
{
    calls++;
    return truce__decorated_run(decorator, call, error);
}

static truce_store *wrap_counted(truce_store *inner)
{
    static const struct decorator_kind counted = {.call = count_calls};
    struct decorator *made = bson_malloc0(sizeof *made);

    truce__decorator_init(made, &counted, inner);
    return &made->base;
}

static int calls_of_balance(truce_ledger *ledger, int64_t expected)
{
    calls = 0;
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, expected);
    return calls;
}

/* A file reports its version: a balance is read again after a commit, of any collection and of any
 * store that has the file open, and only then. */
TEST(a_balance_is_read_once_for_each_version_of_a_file)
{
    truce_store *store = NULL, *other = NULL;
    bson_t document = BSON_INITIALIZER;
    truce_ledger *ledger, *others;
    bson_error_t error = {0};
    char path[400];

    if (book_has_slots())
        return;
    snprintf(path, sizeof path, "%s/book.truce", test_directory());
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &other, &error), error));
    store = wrap_counted(store);
    ledger = begin(store);
    others = book_ledger(other);
    CHECK_INT(calls_of_balance(ledger, 0), >, 0);
    CHECK_INT(calls_of_balance(ledger, 0), ==, 0);
    CHECK_INT(calls_of_balance(ledger, 0), ==, 0);
    CHECK_OK(truce_insert(other, "plain", &document, NULL, &error), error);
    CHECK_INT(calls_of_balance(ledger, 0), >, 0);
    CHECK_INT(calls_of_balance(ledger, 0), ==, 0);
    CHECK_OK(book_transfer(others, "t1", "people:a", "people:b", 7, &error), error);
    CHECK_INT(calls_of_balance(ledger, 7), >, 0);
    CHECK_INT(calls_of_balance(ledger, 7), ==, 0);
    CHECK_OK(truce_collection_drop(other, "tx", &error), error);
    {
        truce_ledger_balance balance;

        CHECK_STATUS(TRUCE_NOT_FOUND,
                     truce_ledger_balance_of(ledger, "people:b", NULL, &balance, &error), error);
    }
    truce_ledger_free(others);
    truce_ledger_free(ledger);
    truce_store_close(other);
    truce_store_close(store);
}

/* The call fails as any other one does. */
TEST(an_interrupted_store_returns_no_remembered_balance)
{
    truce_ledger_balance balance;
    truce_store *store = NULL;
    bson_error_t error = {0};
    truce_ledger *ledger;
    char path[400];

    if (book_has_slots())
        return;
    snprintf(path, sizeof path, "%s/interrupted.truce", test_directory());
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    ledger = begin(store);
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, 0);
    truce_interrupt(store);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_ledger_balance_of(ledger, "people:b", NULL, &balance, &error),
                 error);
    truce_resume(store);
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, 0);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(notices_a_replaced_file_despite_a_cached_balance)
{
    truce_ledger_balance balance;
    truce_store *store = NULL, *other = NULL;
    truce_status status = TRUCE_OK;
    bson_error_t error = {0};
    const char *directory = test_directory();
    char path[400], second[400];
    truce_ledger *ledger;

    if (book_has_slots())
        return;
    snprintf(path, sizeof path, "%s/first.truce", directory);
    snprintf(second, sizeof second, "%s/second.truce", directory);
    REQUIRE(CHECK_OK(truce_store_open(second, NULL, &other, &error), error));
    truce_store_close(other);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    ledger = begin(store);
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, 0);
    CHECK(!rename(second, path));
    for (int i = 0; i < 500 && !status; i++) {
        truce__clock_sleep_ms(10);
        status = truce_ledger_balance_of(ledger, "people:b", NULL, &balance, &error);
    }
    CHECK_STATUS(TRUCE_CORRUPT, status, error);
    truce_ledger_free(ledger);
    truce_store_close(store);
}
