/* Ledgers: pending, expired, and reversed transactions. */
#include "base/clock.h"
#include "tests/support/early_clock.h"
#include "tests/support/ledger_rig.h"

/* ---- pending -------------------------------------------------------------------------------- */

static void pending(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t part_id = text_id("s2"), p2 = text_id("p2");
    truce_ledger_entry part[] = {{"people:b", 150, NULL}, {"people:a", -150, "fee"}};
    truce_ledger_entry more[] = {{"people:b", 500, NULL}, {"people:a", -500, NULL}};
    truce_ledger_transaction settle = {
        .id = &part_id, .kind = TRUCE_LEDGER_SETTLE, .of = &p2, .entries = more, .count = 2};
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < 2; i++)
        CHECK_OK(book_post(ledger, NULL, "p1", TRUCE_LEDGER_PENDING, "people:a", "people:b", 700,
                           NULL, &error),
                 error);
    BALANCE("people:a", 1000, 300);
    BALANCE("people:b", 0, 0);
    CHECK_INT(book_balance(ledger, "people:a").out, ==, 700);
    CHECK_INT(book_balance(ledger, "people:b").in, ==, 700);
    CHECK_STATUS(TRUCE_LIMIT, book_transfer(ledger, "t", "people:a", "bank", 301, &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    BALANCE("people:a", 300, 300);
    BALANCE("people:b", 700, 700);
    CHECK_STATUS(TRUCE_DUPLICATE, book_resolve(ledger, NULL, "v1", TRUCE_LEDGER_VOID, "p1", &error),
                 error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s9", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    /* a part */
    CHECK_OK(book_post(ledger, NULL, "p2", TRUCE_LEDGER_PENDING, "people:a", "people:b", 200, NULL,
                       &error),
             error);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &settle, NULL, &error), error);
    settle.entries = part;
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_ledger_post(ledger, NULL, &settle, NULL, &error), error);
    BALANCE("people:a", 150, 150);
    BALANCE("people:b", 850, 850);
    /* given up */
    CHECK_OK(book_post(ledger, NULL, "p3", TRUCE_LEDGER_PENDING, "people:a", "people:b", 100, NULL,
                       &error),
             error);
    BALANCE("people:a", 150, 50);
    CHECK_OK(book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error), error);
    BALANCE("people:a", 150, 150);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s3", TRUCE_LEDGER_SETTLE, "p3", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 book_resolve(ledger, NULL, "s4", TRUCE_LEDGER_SETTLE, "p4", &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 book_resolve(ledger, NULL, "s5", TRUCE_LEDGER_SETTLE, "seed", &error), error);
    CHECK_INT(book_count(store, "{'open': {'$exists': true}}"), ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(reserves_a_pending_amount_until_it_is_settled_or_voided)
{
    everywhere(pending);
}

static truce_status post_until(truce_ledger *ledger, const char *name, int64_t amount,
                               int64_t expires_ms, bson_error_t *error)
{
    bson_value_t id = text_id(name);
    truce_ledger_entry entries[] = {{"people:a", -amount, NULL}, {"people:b", amount, NULL}};
    truce_ledger_transaction transaction = {.id = &id,
                                            .kind = TRUCE_LEDGER_PENDING,
                                            .entries = entries,
                                            .count = 2,
                                            .expires_ms = expires_ms};

    return truce_ledger_post(ledger, NULL, &transaction, NULL, error);
}

/* Posts it when it had not yet expired. */
static truce_status post_earlier(truce_ledger *ledger, const char *name, int64_t amount,
                                 int64_t expires_ms, bson_error_t *error)
{
    const struct environment *before = truce__environment();
    truce_status status;

    early_clock_use();
    status = post_until(ledger, name, amount, expires_ms, error);
    truce__environment_use(before);
    return status;
}

static bool count_documents(const bson_t *document, void *arg)
{
    (void)document;
    ++*(int *)arg;
    return true;
}

static void expiry(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t past_ms = truce__clock_wall_ms() - 1000;
    truce_sweep_report report;
    bson_error_t error = {0};
    int open = 0;

    (void)setting;
    CHECK_OK(post_earlier(ledger, "p1", 700, past_ms, &error), error);
    CHECK_OK(post_until(ledger, "p2", 100, past_ms + 100000000, &error), error);
    CHECK_OK(truce_ledger_pending(ledger, "people:a", count_documents, &open, &error), error);
    CHECK_INT(open, ==, 1);
    BALANCE("people:a", 1000, 900);
    CHECK_STATUS(TRUCE_EXPIRED, book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error),
                 error);
    /* a post that needs the money books the release */
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "bank", 900, &error), error);
    BALANCE("people:a", 100, 0);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "v2", TRUCE_LEDGER_VOID, "p2", &error), error);
    /* the recovery pass books it, too */
    CHECK_OK(post_earlier(ledger, "p3", 50, past_ms, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    BALANCE("people:a", 100, 100);
    CHECK_STATUS(TRUCE_DUPLICATE, book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error),
                 error);
    open = 0;
    CHECK_OK(truce_ledger_pending(ledger, NULL, count_documents, &open, &error), error);
    CHECK_INT(open, ==, 0);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(an_expired_pending_amount_is_available_again)
{
    everywhere(expiry);
}

/* ---- posted after the expiry ----------------------------------------------------------------- */

struct overdue {
    truce_ledger *ledger;
    const char *name;
    int64_t expires_ms;
};

static truce_status overdue_in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct overdue *overdue = arg;
    bson_value_t id = text_id(overdue->name);
    truce_ledger_entry entries[] = {{"people:a", -100, NULL}, {"people:b", 100, NULL}};
    truce_ledger_transaction transaction = {.id = &id,
                                            .kind = TRUCE_LEDGER_PENDING,
                                            .entries = entries,
                                            .count = 2,
                                            .expires_ms = overdue->expires_ms};

    return truce_ledger_post(overdue->ledger, commit, &transaction, NULL, error);
}

static void overdue(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    struct overdue late = {ledger, "late", truce__clock_wall_ms() - 1000};
    truce_ledger_entry entries[] = {{"people:a", -1, NULL}, {"people:b", 1, NULL}};
    bson_value_t ids[] = {text_id("m0"), text_id("m1"), text_id("m2")};
    truce_ledger_transaction many[] = {{.id = &ids[0], .entries = entries, .count = 2},
                                       {.id = &ids[1],
                                        .kind = TRUCE_LEDGER_PENDING,
                                        .entries = entries,
                                        .count = 2,
                                        .expires_ms = late.expires_ms},
                                       {.id = &ids[2], .entries = entries, .count = 2}};
    truce_ledger_result results[3] = {0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_STATUS(TRUCE_EXPIRED, post_until(ledger, "late", 100, late.expires_ms, &error), error);
    CHECK(strstr(error.message, "would reserve nothing"));
    CHECK_STATUS(TRUCE_EXPIRED, truce_transact(store, overdue_in_commit, &late, NULL, &error),
                 error);
    CHECK_OK(truce_ledger_post_many(ledger, many, 3, results, &error), error);
    CHECK_OK(results[0].status, results[0].error);
    CHECK_STATUS(TRUCE_EXPIRED, results[1].status, results[1].error);
    CHECK_OK(results[2].status, results[2].error);
    CHECK_INT(book_count(store, "{'kind': 'pending'}"), ==, 0);
    BALANCE("people:a", 998, 998);
    /* a repetition finds the stored transaction, although it has expired */
    CHECK_OK(post_earlier(ledger, "late", 100, late.expires_ms, &error), error);
    CHECK_OK(post_until(ledger, "late", 100, late.expires_ms, &error), error);
    CHECK_OK(truce_transact(store, overdue_in_commit, &late, NULL, &error), error);
    ids[1] = text_id("late");
    many[1].entries = (truce_ledger_entry[]){{"people:a", -100, NULL}, {"people:b", 100, NULL}};
    CHECK_OK(truce_ledger_post_many(ledger, many, 3, results, &error), error);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(results[i].status, results[i].error);
        CHECK(results[i].exists);
    }
    CHECK_STATUS(TRUCE_DUPLICATE, post_until(ledger, "late", 101, late.expires_ms, &error), error);
    CHECK_INT(book_count(store, "{'kind': 'pending'}"), ==, 1);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(refuses_a_pending_transaction_that_has_expired_unless_it_is_a_repetition)
{
    everywhere(overdue);
}

/* An earlier transaction of the same call makes the amount that a later one needs. */
static void settled_with(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    truce_ledger_entry entries[] = {{"people:a", -400, NULL}, {"people:b", 400, NULL}};
    truce_ledger_entry back[] = {{"people:b", -300, NULL}, {"bank", 300, NULL}};
    bson_value_t ids[] = {text_id("p"), text_id("s"), text_id("r"),
                          text_id("x"), text_id("y"), text_id("s2")};
    truce_ledger_transaction transactions[] = {
        {.id = &ids[0], .kind = TRUCE_LEDGER_PENDING, .entries = entries, .count = 2},
        {.id = &ids[1], .kind = TRUCE_LEDGER_SETTLE, .of = &ids[0]},
        {.id = &ids[3], .entries = back, .count = 2},
        {.id = &ids[2], .kind = TRUCE_LEDGER_REVERSE, .of = &ids[3]},
        {.id = &ids[5], .kind = TRUCE_LEDGER_VOID, .of = &ids[0]},
        {.id = &ids[4], .kind = TRUCE_LEDGER_VOID, .of = &ids[4]},
    };
    static const truce_status expected[] = {TRUCE_OK, TRUCE_OK,        TRUCE_OK,
                                            TRUCE_OK, TRUCE_DUPLICATE, TRUCE_NOT_FOUND};
    truce_ledger_result results[6];
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(truce_ledger_post_many(ledger, transactions, 6, results, &error), error);
    for (int i = 0; i < 6; i++)
        CHECK_STATUS(expected[i], results[i].status, results[i].error);
    BALANCE("people:a", 600, 600);
    BALANCE("people:b", 400, 400);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(many_at_a_time_settle_and_reverse_earlier_postings)
{
    everywhere(settled_with);
}

/* ---- reversal ------------------------------------------------------------------------------- */

static void reversal(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t id = text_id("r2"), of = text_id("t2");
    truce_ledger_entry too_much[] = {{"people:b", -401, NULL}, {"people:a", 401, NULL}};
    truce_ledger_entry wrong_way[] = {{"people:b", 100, NULL}, {"people:a", -100, NULL}};
    truce_ledger_entry part[] = {{"people:b", -100, NULL}, {"people:a", 100, NULL}};
    truce_ledger_transaction reverse = {
        .id = &id, .kind = TRUCE_LEDGER_REVERSE, .of = &of, .entries = too_much, .count = 2};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 300, &error), error);
    for (int i = 0; i < 2; i++)
        CHECK_OK(book_resolve(ledger, NULL, "r1", TRUCE_LEDGER_REVERSE, "t1", &error), error);
    BALANCE("people:a", 1000, 1000);
    BALANCE("people:b", 0, 0);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "r1b", TRUCE_LEDGER_REVERSE, "t1", &error), error);
    CHECK_OK(book_transfer(ledger, "t2", "people:a", "people:b", 400, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    reverse.entries = wrong_way;
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    reverse.entries = part;
    CHECK_OK(truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    BALANCE("people:a", 700, 700);
    BALANCE("people:b", 300, 300);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "r2b", TRUCE_LEDGER_REVERSE, "t2", &error), error);
    /* a spent amount cannot be reversed */
    CHECK_OK(book_transfer(ledger, "t3", "people:a", "people:b", 700, &error), error);
    CHECK_OK(book_transfer(ledger, "t4", "people:b", "bank", 900, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, book_resolve(ledger, NULL, "r3", TRUCE_LEDGER_REVERSE, "t3", &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, book_resolve(ledger, NULL, "r4", TRUCE_LEDGER_VOID, "t3", &error),
                 error);
    /* a reversal is a transaction, and can be reversed */
    CHECK_OK(book_resolve(ledger, NULL, "r5", TRUCE_LEDGER_REVERSE, "t4", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "r6", TRUCE_LEDGER_REVERSE, "r5", &error), error);
    BALANCE("people:b", 100, 100);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(a_transaction_is_reversed_once_in_whole_or_part)
{
    everywhere(reversal);
}

/* ---- on every path --------------------------------------------------------------------------- */

struct shown {
    int64_t available, lines, last;
};

static bool show_account(const truce_ledger_account *account, const truce_ledger_balance *balance,
                         void *arg)
{
    struct shown *shown = arg;

    if (!strcmp(account->account, "people:a")) {
        shown->available = balance->available;
        shown->lines++;
        CHECK_INT(balance->out, ==, 0);
    }
    return true;
}

static bool show_line(const truce_ledger_line *line, void *arg)
{
    struct shown *shown = arg;

    shown->lines++;
    shown->last = line->available;
    return true;
}

static truce_status spend_in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    return book_post(arg, commit, "spent", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 900, NULL,
                     error);
}

/* No recovery pass has run since people:a's 700 expired: each path handles it by itself. */
static void every_path(truce_store *store, const struct setting *setting)
{
    (void)setting;
    for (int path = 0; path < 7; path++) {
        truce_ledger *ledger = begin(store);
        struct shown shown = {0};
        truce_ledger_moment now = {.booked_ms = truce__clock_wall_ms() + 1000};
        truce_ledger_balance balance = {0};
        truce_ledger_account rules = {.account = "people:a", .closed = true};
        bson_value_t id = text_id("t"), of = text_id("seed");
        truce_ledger_transaction reverse = {.id = &id, .kind = TRUCE_LEDGER_REVERSE, .of = &of};
        bson_error_t error = {0};
        bson_t *none = test_bson("{}");

        CHECK_OK(post_earlier(ledger, "p", 700, truce__clock_wall_ms() - 1, &error), error);
        switch (path) {
        case 0:
            BALANCE("people:a", 1000, 1000);
            break;
        case 1:
            CHECK_OK(truce_ledger_balance_of(ledger, "people:a", &now, &balance, &error), error);
            CHECK_INT(balance.available, ==, 1000);
            break;
        case 2:
            CHECK_OK(truce_ledger_balances(ledger, "people", show_account, &shown, &error), error);
            CHECK_INT(shown.lines, ==, 1);
            CHECK_INT(shown.available, ==, 1000);
            break;
        case 3:
            CHECK_OK(truce_ledger_statement(ledger, "people:a", NULL, show_line, &shown, &error),
                     error);
            CHECK_INT(shown.lines, ==, 4); /* the release is a line of its own */
            CHECK_INT(shown.last, ==, 1000);
            break;
        case 4:
            CHECK_OK(truce_transact(store, spend_in_commit, ledger, NULL, &error), error);
            BALANCE("people:a", 100, 100);
            break;
        case 5:
            CHECK_OK(truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
            BALANCE("people:a", 0, 0);
            break;
        case 6:
            CHECK_OK(truce_ledger_rules(ledger, NULL, &rules, &error), error);
            break;
        }
        BOOK_CHECK(ledger);
        truce_ledger_free(ledger);
        CHECK_OK(
            truce_remove(store, "tx", none, &(truce_write_options){.multi = true}, NULL, &error),
            error);
        if (book_has_slots())
            CHECK_OK(truce_remove(store, "tx_numbers", none, &(truce_write_options){.multi = true},
                                  NULL, &error),
                     error);
        bson_destroy(none);
    }
}

TEST(no_path_counts_expired_amounts)
{
    everywhere(every_path);
}
