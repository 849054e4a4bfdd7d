/* Ledgers: documents that other programs insert as the description of the pattern says, and
 * documents that are nearly valid. No document blocks an account, each is committed or named,
 * and the sums are right. */
#include "tests/support/ledger_rig.h"

#include "base/clock.h"

#define DEPOSIT                                                                                    \
    "{'account': 'bank', 'type': 'withdraw', 'value': -100, 'seqId': @b, 'cachedBal': null}, "     \
    "{'account': 'people:a', 'type': 'deposit', 'value': 100, 'seqId': @a, 'cachedBal': null}"
#define VALID          "'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', 'state': 'VALID'"
#define BANK(rest)     "{'account': 'bank', " rest "}"
#define PEOPLE(rest)   "{'account': 'people:a', 'value': 100, 'seqId': @a" rest "}"
#define CHANGES(one)   VALID ", 'changes': [" one "]"
#define BOTH(one, two) CHANGES(one ", " two)
#define VALUES(bank, people)                                                                       \
    BOTH(BANK("'value': " bank ", 'seqId': @b"),                                                   \
         "{'account': 'people:a', 'value': " people ", 'seqId': @a}")
#define NUMBERS(bank, people)                                                                      \
    BOTH(BANK("'value': -100, 'seqId': " bank),                                                    \
         "{'account': 'people:a', 'value': 100, 'seqId': " people "}")
#define WITH(fields) CHANGES(DEPOSIT) ", " fields

struct variant {
    const char *fields; /* @a, @b: the next number of people:a, of bank; @A, @B: five after it */
    bool committed;
    int64_t amount; /* that people:a gets */
};

static const struct variant variants[] = {
    {CHANGES(DEPOSIT), true, 100},
    /* numbers */
    {NUMBERS("@B", "@a"), true, 100},
    {NUMBERS("@B", "@A"), true, 100},
    {NUMBERS("{'$numberDouble': '@b.0'}", "{'$numberDecimal': '@a'}"), true, 100},
    {NUMBERS("{'$numberLong': '@b'}", "{'$numberDecimal': '@a.0'}"), true, 100},
    {NUMBERS("{'$numberDouble': '@b.5'}", "@a"), false, 0},
    {NUMBERS("null", "@a"), false, 0},
    {NUMBERS("'@b'", "@a"), false, 0},
    {NUMBERS("[@b, @B]", "@a"), false, 0},
    {NUMBERS("[@b]", "[@a]"), false, 0},
    {NUMBERS("{'n': @b}", "@a"), false, 0},
    {NUMBERS("-1", "@a"), false, 0},
    {NUMBERS("0", "@a"), false, 0},
    {NUMBERS("{'$numberDouble': 'NaN'}", "@a"), false, 0},
    {NUMBERS("{'$numberDecimal': '1E+30'}", "@a"), false, 0},
    {NUMBERS("{'$numberDouble': 'Infinity'}", "@a"), false, 0},
    {NUMBERS("{'$numberLong': '9223372036854775807'}", "@a"), true, 100},
    {BOTH(BANK("'value': -100"), PEOPLE("")), false, 0},
    /* values */
    {VALUES("{'$numberLong': '-100'}", "{'$numberInt': '100'}"), true, 100},
    {VALUES("{'$numberDouble': '-100.0'}", "{'$numberDecimal': '100.00'}"), true, 100},
    {VALUES("{'$numberDecimal': '-1E+2'}", "{'$numberDouble': '1e2'}"), true, 100},
    {VALUES("{'$numberDouble': '-0.0'}", "{'$numberDecimal': '-0'}"), true, 0},
    {VALUES("0", "0"), true, 0},
    {VALUES("{'$numberDouble': '-0.5'}", "{'$numberDouble': '0.5'}"), false, 0},
    {VALUES("{'$numberDecimal': '-100.01'}", "{'$numberDecimal': '100.01'}"), false, 0},
    {VALUES("{'$numberDouble': 'NaN'}", "100"), false, 0},
    {VALUES("{'$numberDecimal': 'NaN'}", "{'$numberDecimal': 'NaN'}"), false, 0},
    {VALUES("{'$numberDouble': '-Infinity'}", "{'$numberDouble': 'Infinity'}"), false, 0},
    {VALUES("{'$numberLong': '-9223372036854775808'}", "{'$numberLong': '9223372036854775807'}"),
     false, 0},
    {VALUES("{'$numberLong': '-9223372036854775807'}", "{'$numberLong': '9223372036854775807'}"),
     false, 0},
    {VALUES("'-100'", "'100'"), false, 0},
    {VALUES("[-100]", "[100]"), false, 0},
    {VALUES("true", "false"), false, 0},
    {VALUES("null", "null"), false, 0},
    {VALUES("{'$date': '2024-01-01T00:00:00Z'}", "100"), false, 0},
    {BOTH(BANK("'seqId': @b"), PEOPLE("")), false, 0},
    {VALUES("-100", "99"), false, 0},
    {CHANGES(PEOPLE("")), false, 0},
    /* more than the balance */
    {VALUES("100000", "-100000"), false, 0},
    /* accounts */
    {BOTH("{'account': 1234, 'value': -100, 'seqId': 801}", PEOPLE("")), false, 0},
    {BOTH("{'account': null, 'value': -100, 'seqId': 1}", PEOPLE("")), false, 0},
    {BOTH("{'account': ['bank'], 'value': -100, 'seqId': @b}", PEOPLE("")), false, 0},
    {BOTH("{'account': ['bank', 'people:b'], 'value': -100, 'seqId': @b}", PEOPLE("")), false, 0},
    {BOTH("{'account': {'name': 'bank'}, 'value': -100, 'seqId': 1}", PEOPLE("")), false, 0},
    {BOTH("{'account': '', 'value': -100, 'seqId': 1}", PEOPLE("")), false, 0},
    {BOTH("{'account': 'nobody', 'value': -100, 'seqId': 1}", PEOPLE("")), false, 0},
    {BOTH("{'value': -100, 'seqId': 1}", PEOPLE("")), false, 0},
    {BOTH("{'account': 'dollars', 'value': -100, 'seqId': 2}", PEOPLE("")), false, 0},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'currency': 'USD'"), PEOPLE("")), false, 0},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'currency': 'EUR'"), PEOPLE("")), true, 100},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'currency': 5"), PEOPLE("")), false, 0},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'currency': ['EUR']"), PEOPLE("")), false, 0},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'currency': null"), PEOPLE("")), true, 100},
    {BOTH("{'account': 'shut', 'value': -100, 'seqId': 3}", PEOPLE("")), false, 0},
    /* one account twice */
    {CHANGES(
         BANK("'value': -40, 'seqId': @b") ", " BANK("'value': -60, 'seqId': @B") ", " PEOPLE("")),
     true, 100},
    {CHANGES(
         BANK("'value': -40, 'seqId': @B") ", " BANK("'value': -60, 'seqId': @b") ", " PEOPLE("")),
     true, 100},
    {CHANGES(
         BANK("'value': -40, 'seqId': @b") ", " BANK("'value': -60, 'seqId': @b") ", " PEOPLE("")),
     true, 100},
    {BOTH("{'account': 'people:b', 'value': -5, 'seqId': 2}",
          "{'account': 'people:b', 'value': 5, 'seqId': 3}"),
     false, 0},
    /* changes that change nothing */
    {VALID, false, 0},
    {VALID ", 'changes': []", false, 0},
    {VALID ", 'changes': null", false, 0},
    {VALID ", 'changes': 'none'", false, 0},
    {VALID ", 'changes': {'account': 'bank', 'value': -100, 'seqId': @b}", false, 0},
    {VALID ", 'changes': [[" DEPOSIT "]]", false, 0},
    {BOTH("5", PEOPLE("")), false, 0},
    {BOTH("'bank'", PEOPLE("")), false, 0},
    {BOTH(DEPOSIT, "null"), false, 0},
    /* times */
    {"'proc': 'UNCOMMITTED', 'state': 'VALID', 'changes': [" DEPOSIT "]", true, 100},
    {"'ts': {'$date': '2100-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', 'state': 'VALID', "
     "'changes': [" DEPOSIT "]",
     true, 100},
    {"'ts': {'$timestamp': {'t': 1700000000, 'i': 1}}, 'proc': 'UNCOMMITTED', 'state': 'VALID', "
     "'changes': [" DEPOSIT "]",
     true, 100},
    {"'ts': {'$numberLong': '1700000000000'}, 'proc': 'UNCOMMITTED', 'state': 'VALID', "
     "'changes': [" DEPOSIT "]",
     false, 0},
    {"'ts': '2024-01-01', 'proc': 'UNCOMMITTED', 'state': 'VALID', 'changes': [" DEPOSIT "]", false,
     0},
    {"'ts': null, 'proc': 'UNCOMMITTED', 'state': 'VALID', 'changes': [" DEPOSIT "]", false, 0},
    /* states */
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', 'state': 'CANCELLED', "
     "'changes': [" DEPOSIT "]",
     true, 0},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', 'changes': [" DEPOSIT "]",
     false, 0},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', 'state': 1, 'changes': "
     "[" DEPOSIT "]",
     false, 0},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'COMMITTED', 'state': 'VALID', 'changes': "
     "[" DEPOSIT "]",
     true, 100},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'COMMITTED', 'state': 'VALID', 'changes': "
     "[{'account': 'bank', 'value': -100, 'seqId': @b, 'cachedBal': 77}, "
     "{'account': 'people:a', 'value': 100, 'seqId': @a, 'cachedBal': 5}]",
     true, 100},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'state': 'VALID', 'changes': [" DEPOSIT "]", false,
     0},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'PENDING', 'state': 'VALID', 'changes': "
     "[" DEPOSIT "]",
     false, 0},
    {"'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 7, 'state': 'VALID', 'changes': "
     "[" DEPOSIT "]",
     false, 0},
    /* fields of its own, and of truce */
    {WITH("'note': {'$numberDouble': 'NaN'}, 'tags': ['x', null]"), true, 100},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'note': 'x'"), PEOPLE(", 'tags': [1, 2]")), true, 100},
    {WITH("'resolves': 'seed'"), false, 0},
    {WITH("'opens': 'people:z'"), false, 0},
    {WITH("'open': {'$date': '2020-01-01T00:00:00Z'}"), true, 100},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'release': -5"), PEOPLE("")), false, 0},
    {BOTH(BANK("'value': -100, 'seqId': @b, 'set': {'currency': 'EUR'}"), PEOPLE("")), false, 0},
};

static bson_t *plain_document(const char *fields, int64_t bank, int64_t people)
{
    char text[2000] = "{'_id': 'plain', ", *end = text + strlen(text);
    bson_t *document;

    for (const char *at = fields; *at; at++) {
        int64_t behind = at[0] == '@' && (at[1] == 'A' || at[1] == 'B') ? 5 : 0;

        if (*at == '@')
            end += sprintf(end, "%lld",
                           (long long)((*++at | 32) == 'a' ? people : bank) + (long long)behind);
        else
            *end++ = *at;
    }
    strcpy(end, "}");
    document = test_bson(text);
    return document;
}

struct named {
    const char *rule; /* of a report of verify */
    int count;        /* how many reports name the document */
};

static void note_named(const bson_t *finding, void *arg)
{
    struct named *named = arg;
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, finding, "id") || !BSON_ITER_HOLDS_UTF8(&iter) ||
        strcmp(bson_iter_utf8(&iter, NULL), "plain") != 0)
        return;
    named->count += bson_iter_init_find(&iter, finding, "rule") &&
                    !strcmp(bson_iter_utf8(&iter, NULL), named->rule);
}

static void check_named(truce_store *store, truce_ledger *ledger, const char *fields, bool refused)
{
    struct named verified = {.rule = "refused"}, checked = {.rule = "ledger-refused"};
    truce_ledger_report report;
    truce_check_report check;
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_verify(ledger, NULL, NULL, note_named, &verified, &report, &error),
             error);
    CHECK_OK(truce_check(store, NULL, note_named, &checked, &check, &error), error);
    if (verified.count != refused || report.findings != refused || checked.count != refused)
        test_fail(__FILE__, __LINE__, "%s: refused %d, verified %d of %lld, checked %d", fields,
                  refused, verified.count, (long long)report.findings, checked.count);
}

static void check_variant(truce_store *store, truce_ledger *ledger, const struct variant *variant,
                          bool swept, int number)
{
    int64_t before = book_balance(ledger, "people:a").balance;
    bson_t *document = plain_document(variant->fields, book_balance(ledger, "bank").number + 1,
                                      book_balance(ledger, "people:a").number + 1),
           *filter = test_bson("{'_id': 'plain'}");
    bool may = variant->committed && !book_has_slots(), committed; /* only truce may post there */
    int64_t amount = may ? variant->amount : 0;
    truce_sweep_report report;
    bson_error_t error = {0};
    char id[40];

    CHECK_OK(truce_insert(store, "tx", document, NULL, &error), error);
    if (swept)
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    /* neither account is blocked */
    snprintf(id, sizeof id, "next %d %d", number, swept);
    CHECK_OK(book_transfer(ledger, id, "bank", "people:a", 1, &error), error);
    if (swept || variant->committed || strstr(variant->fields, "UNCOMMITTED"))
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    committed = book_count(store, "{'_id': 'plain', 'proc': 'COMMITTED'}") == 1;
    if (committed != may || book_balance(ledger, "people:a").balance != before + 1 + amount)
        test_fail(__FILE__, __LINE__, "%s, swept %d: committed %d, %lld after %lld",
                  variant->fields, swept, committed,
                  (long long)book_balance(ledger, "people:a").balance, (long long)before);
    check_named(store, ledger, variant->fields, !may);
    if (!may)
        CHECK_OK(truce_remove(store, "tx", filter, NULL, NULL, &error), error);
    bson_destroy(filter);
    bson_destroy(document);
}

static truce_ledger *begin_plain(truce_store *store)
{
    truce_ledger *ledger = begin(store);
    truce_ledger_account dollars = {.account = "dollars", .currency = "USD"},
                         shut = {.account = "shut", .currency = "EUR"};
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_currency(ledger, "USD", 2, &error), error);
    CHECK_OK(truce_ledger_open(ledger, NULL, &dollars, &error), error);
    CHECK_OK(truce_ledger_open(ledger, NULL, &shut, &error), error);
    shut.closed = true;
    CHECK_OK(truce_ledger_rules(ledger, NULL, &shut, &error), error);
    return ledger;
}

TEST(no_document_of_another_program_blocks_an_account)
{
    for (size_t i = 0; i < 2 * sizeof variants / sizeof *variants; i++) {
        truce_store *store = NULL;
        truce_ledger *ledger;
        bson_error_t error = {0};

        REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
        ledger = begin_plain(store);
        check_variant(store, ledger, &variants[i / 2], i % 2, (int)i);
        CHECK_INT(book_sum(ledger), ==, 0);
        truce_ledger_free(ledger);
        truce_store_close(store);
    }
}

TEST(the_reason_of_a_refusal_names_the_value)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    truce_sweep_report report;
    bson_error_t error = {0};
    bson_t *document;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin(store);
    document = plain_document(BOTH(BANK("'value': -100, 'seqId': @b, 'currency': 5"), PEOPLE("")),
                              book_balance(ledger, "bank").number + 1,
                              book_balance(ledger, "people:a").number + 1);
    CHECK_OK(truce_insert(store, "tx", document, NULL, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    if (!book_has_slots())
        CHECK_INT(book_count(store, "{'refused.reason': {'$regex': '^changes.0.currency is 5: '}}"),
                  ==, 1);
    bson_destroy(document);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- several -------------------------------------------------------------------------------- */

static void insert_plain(truce_store *store, const char *id, int64_t bank, int64_t people,
                         int64_t value)
{
    char text[600];
    bson_error_t error = {0};
    bson_t *document;

    snprintf(text, sizeof text,
             "{'_id': '%s', 'ts': {'$date': '2024-01-01T00:00:00Z'}, 'proc': 'UNCOMMITTED', "
             "'state': 'VALID', 'changes': [{'account': 'bank', 'value': %lld, 'seqId': %lld}, "
             "{'account': 'people:a', 'value': %lld, 'seqId': %lld}]}",
             id, (long long)-value, (long long)bank, (long long)value, (long long)people);
    document = test_bson(text);
    CHECK_OK(truce_insert(store, "tx", document, NULL, &error), error);
    bson_destroy(document);
}

/* f1 follows f2 on bank, and precedes it on people:a: numbers from counters. */
static void cycle(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t bank = book_balance(ledger, "bank").number,
            people = book_balance(ledger, "people:a").number;
    bson_error_t error = {0};

    (void)setting;
    insert_plain(store, "f1", bank + 2, people + 1, 1);
    insert_plain(store, "f2", bank + 1, people + 2, 10);
    insert_plain(store, "f3", bank + 4, people + 3, 100);
    insert_plain(store, "f4", bank + 3, people + 4, 1000);
    CHECK_OK(book_transfer(ledger, "t", "bank", "people:a", 10000, &error), error);
    BALANCE("people:a", 12111, 12111);
    CHECK_INT(book_count(store, "{'proc': 'COMMITTED', '_id': {'$in': ['f1', 'f2', 'f3', 'f4']}}"),
              ==, 4);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(documents_that_wait_for_each_other_are_committed_in_order)
{
    if (!book_has_slots())
        everywhere(cycle);
}

static void corrected(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t bank = book_balance(ledger, "bank").number + 1,
            people = book_balance(ledger, "people:a").number + 1;
    bson_t *filter = test_bson("{'_id': 'f'}"), *update;
    truce_sweep_report report;
    truce_ledger_report verified;
    bson_error_t error = {0};
    char text[400];

    (void)setting;
    insert_plain(store, "f", bank, people, 5);
    update = test_bson("{'$set': {'changes.0.value': -4}}");
    CHECK_OK(truce_update(store, "tx", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 1);
    CHECK_INT(book_count(store, "{'proc': 'REFUSED', 'refused.changes.0.value': -4}"), ==, 1);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
    CHECK_OK(book_transfer(ledger, "t", "bank", "people:a", 1, &error), error);
    snprintf(text, sizeof text,
             "{'$set': {'proc': 'UNCOMMITTED', 'changes': [{'account': 'bank', 'value': -5, "
             "'seqId': %lld}, {'account': 'people:a', 'value': 5, 'seqId': %lld}]}}",
             (long long)bank + 1, (long long)people + 1);
    update = test_bson(text);
    CHECK_OK(truce_update(store, "tx", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 1);
    BALANCE("people:a", 1006, 1006);
    CHECK_OK(truce_ledger_verify(ledger, NULL, NULL, book_report, NULL, &verified, &error), error);
    CHECK_INT(verified.findings, ==, 0);
    bson_destroy(filter);
    truce_ledger_free(ledger);
}

TEST(a_refused_document_is_committed_when_it_is_corrected)
{
    if (!book_has_slots())
        everywhere(corrected);
}

/* The seed's own clock is behind, and ahead: the order of the numbers decides, and its time is
 * the value date. */
static void times(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t bank = book_balance(ledger, "bank").number,
            people = book_balance(ledger, "people:a").number;
    truce_ledger_moment then = {.effective_ms = 1704067200000};
    truce_ledger_balance balance;
    bson_error_t error = {0};

    (void)setting;
    insert_plain(store, "early", bank + 1, people + 1, 5);
    BALANCE("people:a", 1005, 1005);
    CHECK_INT(book_count(store, "{'_id': 'early', 'effective': {'$date': '2024-01-01T00:00:00Z'}}"),
              ==, 1);
    CHECK_OK(truce_ledger_balance_of(ledger, "people:a", &then, &balance, &error), error);
    CHECK_INT(balance.balance, ==, 5);
    CHECK_INT(book_balance(ledger, "people:a").booked_ms, <=, truce__clock_wall_ms());
    CHECK_OK(book_transfer(ledger, "t", "bank", "people:a", 1, &error), error);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(accepts_a_document_older_than_the_entry_before_it)
{
    if (!book_has_slots())
        everywhere(times);
}

/* Each skips numbers, and they come in any order. */
TEST(a_backlog_of_documents_is_committed)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    truce_sweep_report report = {.more = true};
    bson_error_t error = {0};
    int64_t finished = 0;

    if (book_has_slots())
        return;
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin(store);
    for (int i = 0; i < 500; i++) {
        char id[20];

        snprintf(id, sizeof id, "f%d", i);
        insert_plain(store, id, 10 + 3 * ((i * 7) % 500), 10 + 2 * ((i * 7) % 500), 1);
    }
    while (report.more) {
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        finished += report.finished;
    }
    CHECK_INT(finished, ==, 500);
    BALANCE("people:a", 1500, 1500);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}
