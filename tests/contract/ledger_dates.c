/* Ledgers: balances at value dates against the sum of all entries, and the runs of stored sums
 * that make them short. */
#include "base/random.h"
#include "store/reserved_names.h"
#include "tests/support/ledger_rig.h"
#include "truce/sys/decorate.h"

#define DAY INT64_C(86400000)
#define OLD INT64_C(1600000000000)

/* More than a run of level 1 (2,048 numbers), and some that are in no run. */
#define MANY 2200

static int64_t posted;

/* Late bookings, many on one day, and some without a value date of their own. */
static int64_t random_date(struct random *random)
{
    switch (truce__random_below(random, 4)) {
    case 0:
        return 0;
    case 1:
        return OLD + (int64_t)truce__random_below(random, 30) * DAY;
    default:
        return OLD + (int64_t)truce__random_below(random, (uint64_t)(400 * DAY));
    }
}

static void post_some(truce_ledger *ledger, struct random *random, int count)
{
    truce_ledger_transaction *transactions = bson_malloc0((size_t)count * sizeof *transactions);
    truce_ledger_result *results = bson_malloc0((size_t)count * sizeof *results);
    bson_value_t *ids = bson_malloc0((size_t)count * sizeof *ids);
    truce_ledger_entry(*entries)[2] = bson_malloc0((size_t)count * sizeof *entries);
    bson_error_t error = {0};

    for (int i = 0; i < count; i++) {
        int64_t amount = 1 + (int64_t)truce__random_below(random, 1000);

        ids[i] = truce_id_int64(++posted);
        entries[i][0] = (truce_ledger_entry){.account = "bank", .value = -amount};
        entries[i][1] = (truce_ledger_entry){.account = "people:b", .value = amount};
        transactions[i] = (truce_ledger_transaction){
            .id = &ids[i], .entries = entries[i], .count = 2, .effective_ms = random_date(random)};
        if (truce__random_below(random, 9) == 0)
            transactions[i].kind = TRUCE_LEDGER_PENDING;
    }
    CHECK_OK(truce_ledger_post_many(ledger, transactions, (size_t)count, results, &error), error);
    bson_free(entries);
    bson_free(ids);
    bson_free(results);
    bson_free(transactions);
}

/* Reads the values of an account in the stored documents; returns how many. */
static uint32_t read_values(truce_store *store, const char *account, int64_t (*values)[2],
                            uint32_t room)
{
    truce_cursor *cursor = NULL;
    const bson_t *found;
    bson_error_t error = {0};
    uint32_t count = 0;
    bson_iter_t iter, changes, change, field;

    CHECK_OK(truce_find(store, "tx", NULL, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &found, &error) && found) {
        int64_t date = 0;

        if (!bson_iter_init_find(&iter, found, "state") ||
            strcmp(bson_iter_utf8(&iter, NULL), "VALID"))
            continue;
        if (bson_iter_init_find(&iter, found, "effective") ||
            bson_iter_init_find(&iter, found, "ts"))
            date = bson_iter_date_time(&iter);
        (void)(bson_iter_init_find(&iter, found, "changes") && bson_iter_recurse(&iter, &changes));
        while (bson_iter_next(&changes)) {
            (void)bson_iter_recurse(&changes, &change);
            if (!bson_iter_find_descendant(&change, "account", &field) ||
                strcmp(bson_iter_utf8(&field, NULL), account) != 0)
                continue;
            (void)bson_iter_recurse(&changes, &change);
            (void)bson_iter_find_descendant(&change, "value", &field);
            if (count < room) {
                values[count][0] = date;
                values[count++][1] = bson_iter_int64(&field);
            }
        }
    }
    truce_cursor_close(cursor);
    return count;
}

/* Returns how many balances are wrong. */
static int compare_dates(truce_store *store, truce_ledger *ledger, const char *account,
                         struct random *random, int line)
{
    static int64_t values[2 * MANY][2];
    uint32_t count = read_values(store, account, values, 2 * MANY);
    int wrong = 0;

    for (int i = 0; i < 60; i++) {
        int64_t date = i == 0   ? 200 * DAY
                       : i == 1 ? OLD + 2000 * DAY
                       : i % 2  ? values[truce__random_below(random, count)][0]
                                : OLD + (int64_t)truce__random_below(random, (uint64_t)(420 * DAY));
        truce_ledger_balance balance;
        bson_error_t error = {0};
        int64_t sum = 0;

        if (!date)
            continue;
        for (uint32_t n = 0; n < count; n++)
            sum += values[n][0] <= date ? values[n][1] : 0;
        CHECK_OK(truce_ledger_balance_of(ledger, account,
                                         &(truce_ledger_moment){.effective_ms = date}, &balance,
                                         &error),
                 error);
        wrong += balance.balance != sum;
        if (balance.balance != sum)
            test_fail(__FILE__, line, "%s at %lld: %lld instead of %lld", account, (long long)date,
                      (long long)balance.balance, (long long)sum);
        if (wrong > 2)
            break;
    }
    return wrong;
}
#define DATES(store, ledger, account) (void)compare_dates(store, ledger, account, &random, __LINE__)

static truce_status post_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t id = truce_id_int64(posted);
    truce_ledger_entry entries[] = {{.account = "people:b", .value = 3},
                                    {.account = "bank", .value = -3}};
    truce_ledger_transaction transaction = {
        .id = &id, .entries = entries, .count = 2, .effective_ms = OLD + posted % 50 * DAY};

    return truce_ledger_post(arg, commit, &transaction, NULL, error);
}

static void random_dates(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_store *view = NULL;
    struct random random;
    bson_error_t error = {0};

    posted = 0;
    truce__random_seed(&random, test_seed());
    /* level 1 with the usual settings, for time */
    for (int left = setting->lacks || setting->mechanism == TRUCE_MECHANISM_JOURNAL ? 500 : MANY;
         left > 0 && !test_failures();) {
        int some = 1 + (int)truce__random_below(&random, 300);

        some = some < left ? some : left;
        post_some(truce__random_below(&random, 2) ? ledger : other, &random, some);
        left -= some;
        posted++;
        CHECK_OK(truce_transact(store, post_in, ledger, &options, &error), error);
        if (truce__random_below(&random, 4) == 0)
            DATES(store, other, "people:b");
    }
    DATES(store, ledger, "people:b");
    DATES(store, other, "bank");
    if (!truce_snapshot(store, NULL, &view, &error)) {
        truce_ledger *then = book_ledger(view);

        DATES(view, then, "people:b");
        truce_ledger_free(then);
        /* a view cannot build a missing run */
        truce_store_close(view);
        CHECK_OK(truce_collection_drop(store, LEDGER_SUMS, &error), error);
        CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
        then = book_ledger(view);
        DATES(view, then, "people:b");
        truce_ledger_free(then);
        truce_store_close(view);
    }
    DATES(store, ledger, "people:b");
    DATES(store, other, "bank");
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(sums_all_entries_at_a_value_date_despite_late_bookings)
{
    everywhere(random_dates);
}

static void drop_book(truce_store *store)
{
    bson_error_t error = {0};

    CHECK_OK(truce_collection_drop(store, "tx", &error), error);
    if (book_has_slots())
        CHECK_OK(truce_collection_drop(store, "tx_numbers", &error), error);
}

/* The same ids, accounts and numbers, with other values. */
static void replaced(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    struct random random;

    (void)setting;
    truce__random_seed(&random, test_seed());
    for (int book = 0; book < 2; book++) {
        posted = 0;
        post_some(ledger, &random, 300);
        DATES(store, ledger, "people:b");
        if (book)
            continue;
        drop_book(store);
        truce_ledger_free(ledger);
        ledger = begin(store);
    }
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(ignores_stored_sums_of_a_dropped_book)
{
    everywhere(replaced);
}

/* ---- the number of reads --------------------------------------------------------------------- */

static int64_t read_documents;

static void count_documents(const bson_t *event, void *arg)
{
    bson_iter_t iter;

    (void)arg;
    if (bson_iter_init_find(&iter, event, "verb") && !strcmp(bson_iter_utf8(&iter, NULL), "next"))
        read_documents++;
}

static int64_t documents_of_balances(truce_ledger *ledger, const char *account)
{
    int64_t most = 0;

    for (int i = 0; i < 20; i++) {
        truce_ledger_moment moment = {.effective_ms = OLD + i * 20 * DAY};
        truce_ledger_balance balance;
        bson_error_t error = {0};

        read_documents = 0;
        CHECK_OK(truce_ledger_balance_of(ledger, account, &moment, &balance, &error), error);
        most = read_documents > most ? read_documents : most;
    }
    return most;
}

/* Allows 127 entries outside runs, and the last entry, the root, and a leaf of each of 15 runs of
 * two levels. 60 more are for the search of the last number and the ends of queries. If numbers are
 * documents, the first balance after the posts also builds a run from its 128 entries. They are not
 * added, because such a balance has fewer runs and fewer entries outside them. */
TEST(reads_few_documents_for_a_balance_at_a_value_date)
{
    truce_trace_options tracing = {.function = count_documents};
    truce_store *memory = NULL, *store;
    truce_ledger *ledger;
    struct random random;
    bson_error_t error = {0};

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error));
    store = truce_trace_wrap(memory, &tracing);
    ledger = begin(store);
    posted = 0;
    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 12; i++) {
        int64_t most;

        post_some(ledger, &random, 500);
        most = documents_of_balances(ledger, "people:b");
        CHECK_INT(most, >, 0);
        CHECK_INT(most, <=, 127 + 2 * 15 * 3 + 60);
    }
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* Each batch reads nothing but what the first post of a handle reads. */
TEST(posts_build_runs_without_reading_their_entries)
{
    truce_trace_options tracing = {.function = count_documents};
    truce_store *memory = NULL, *store;
    truce_ledger *ledger;
    struct random random;
    bson_error_t error = {0};
    int64_t count = 0;

    if (book_has_slots())
        return; /* posts are commits, whose entries are not remembered */
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error));
    store = truce_trace_wrap(memory, &tracing);
    ledger = begin(store);
    posted = 0;
    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20; i++) {
        read_documents = 0;
        post_some(ledger, &random, 70);
        CHECK_INT(read_documents, <, 20);
    }
    CHECK_OK(truce_count(store, LEDGER_SUMS, NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 20 * 70 / 128 * 2);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void keep_rule(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, finding, "rule"))
        snprintf(arg, 40, "%s", bson_iter_utf8(&iter, NULL));
}

static void check_finding(truce_store *store, truce_ledger *ledger, const char *rule, int line)
{
    char verified[40] = "", checked[40] = "", wanted[60] = "";
    truce_ledger_report report;
    truce_check_report whole;
    bson_error_t error = {0};

    if (*rule)
        snprintf(wanted, sizeof wanted, "ledger-%s", rule);
    CHECK_OK(truce_ledger_verify(ledger, NULL, NULL, keep_rule, verified, &report, &error), error);
    CHECK_OK(truce_check(store, NULL, keep_rule, checked, &whole, &error), error);
    if (strcmp(verified, rule) != 0 || strcmp(checked, wanted) != 0)
        test_fail(__FILE__, line, "verify finds \"%s\", check \"%s\", not \"%s\"", verified,
                  checked, rule);
}

/* Changes, and removes, each page in order. A run without a root does not count, and is built
 * again. */
TEST(a_stored_sum_that_is_wrong_or_missing_is_a_finding)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    truce_cursor *cursor = NULL;
    bson_t *pages[400];
    const bson_t *found;
    struct random random;
    bson_error_t error = {0};
    uint32_t count = 0, roots = 0, step;

    if (book_has_slots())
        return; /* the sums are of entries, wherever their numbers are */
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin(store);
    posted = 0;
    truce__random_seed(&random, test_seed());
    post_some(ledger, &random, MANY);
    check_finding(store, ledger, "", __LINE__);
    CHECK_OK(truce_find(store, LEDGER_SUMS, NULL, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &found, &error) && found && count < 400)
        pages[count++] = bson_copy(found);
    truce_cursor_close(cursor);
    CHECK_INT(count, >, 40);
    step = count / 12;
    for (uint32_t i = 0; i < count; i++) {
        bson_t filter = BSON_INITIALIZER,
               *update = test_bson("{'$set': {'records': {'$binary': {'base64': "
                                   "'AQAAAAAAAAABAAAAAAAAAAAAAAAAAAAA', 'subType': '00'}}}}");
        bool root = bson_has_field(pages[i], "height");
        bson_iter_t iter;

        if (i % step && i + 1 < count) {
            bson_destroy(update);
            bson_destroy(&filter);
            continue;
        }
        (void)!bson_iter_init_find(&iter, pages[i], "_id");
        BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&iter));
        CHECK_OK(truce_update(store, LEDGER_SUMS, &filter, update, NULL, NULL, &error), error);
        check_finding(store, ledger, "stored-sums", __LINE__);
        CHECK_OK(truce_remove(store, LEDGER_SUMS, &filter, NULL, NULL, &error), error);
        if (!root) {
            check_finding(store, ledger, "stored-sums", __LINE__);
            DATES(store, ledger, "people:b");
            DATES(store, ledger, "bank");
        }
        CHECK_OK(truce_update(store, LEDGER_SUMS, &filter, pages[i],
                              &(truce_write_options){.upsert = true}, NULL, &error),
                 error);
        roots += root;
        bson_destroy(update);
        bson_destroy(&filter);
    }
    CHECK_INT(roots, >, 0);
    check_finding(store, ledger, "", __LINE__);
    for (uint32_t i = 0; i < count; i++)
        bson_destroy(pages[i]);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

static int64_t stored_pages(truce_store *store)
{
    int64_t count = 0;
    bson_error_t error = {0};

    CHECK_OK(truce_count(store, LEDGER_SUMS, NULL, NULL, &count, &error), error);
    return count;
}

static void dropped(truce_store *store, const struct setting *setting)
{
    truce_sweep_report report;
    struct random random;
    bson_error_t error = {0};

    (void)setting;
    truce__random_seed(&random, test_seed());
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        truce_ledger *ledger = begin(store);

        posted = 0;
        post_some(ledger, &random, 300);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        CHECK_INT(stored_pages(store), >, 0);
        drop_book(store);
        truce_ledger_free(ledger);
        if (sweeps)
            CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        else
            truce_ledger_free(begin(store)); /* its first post begins a new book */
        CHECK_INT(stored_pages(store), ==, 0);
        if (!sweeps)
            drop_book(store);
    }
}

TEST(removes_the_stored_sums_of_a_dropped_book)
{
    everywhere(dropped);
}
