/* The ledger operations other than posting: rules, many transactions, searches, verification, and
 * seals. */
#include "server/commands.h"
#include "tests/support/served_story.h"

#define OPEN(account, more)                                                                        \
    {                                                                                              \
        "{truceLedgerOpen: 'book', currency: 'EUR', account: '" account "'" more "}", 0            \
    }
#define MOVE(id, value)                                                                            \
    "id: " #id ", entries: [{account: 'bank', value: -" #value                                     \
    "}, {account: 'ada', value: " #value "}]"

static const struct step opened[] = {
    OPEN("bank", ", digits: 2"),
    OPEN("ada", ", min: 0"),
    OPEN("assets:cash", ", max: 9, creditOnly: true"),
    OPEN("assets:gold", ""),
};

TEST(rules_of_an_account_are_replaced_also_in_a_commit)
{
    static const struct step steps[] = {
        {"{truceLedgerRules: 'book', account: 'bob'}", 125, "status", "\"not found\""},
        {"{truceLedgerRules: 'book'}", 40414},
        {"{truceLedgerPost: 'book', id: 1, entries: [{account: 'ada', value: -5}, {account: 'bank', value: 5}]}",
         146},
        {"{truceCommit: [{truceLedgerRules: 'book', account: 'ada', min: -5}, {require: 'c', id: 1}]}",
         125},
        {"{truceLedgerPost: 'book', id: 1, entries: [{account: 'ada', value: -5}, {account: 'bank', value: 5}]}",
         146},
        {"{truceCommit: [{truceLedgerRules: 'book', account: 'ada', min: -5}]}", 0, "status",
         "\"ok\""},
        {"{truceLedgerPost: 'book', id: 1, entries: [{account: 'ada', value: -5}, {account: 'bank', value: 5}]}",
         0},
        {"{truceLedgerRules: 'book', account: 'assets:gold', closed: true}", 0},
        {"{truceLedgerAccounts: 'book', prefix: 'assets'}", 0, "accounts.1.closed", "true"},
    };

    begin();
    TELL(opened);
    TELL(steps);
    end();
}

TEST(many_transactions_are_judged_one_by_one)
{
    static const struct step steps[] = {
        {"{truceLedgerPostMany: 'book', transactions: []}", 16},
        {"{truceLedgerPostMany: 'book', transactions: [7]}", 14},
        {"{truceLedgerPostMany: 'book', transactions: [{entries: []}]}", 40414},
        {"{truceLedgerPostMany: 'book', transactions: [{id: 1, kind: 'gift'}]}", 2},
        {"{truceLedgerPostMany: 'book', transactions: [{" MOVE(
             1, 5) ", meta: {order: 1}}, {id: 2, entries: [{account: 'ada', value: -6},"
                   " {account: 'bank', value: 6}]}, {" MOVE(3, 7) "}]}",
         0, "results.1.status", "\"limit reached\""},
        {"{truceLedgerPostMany: 'book', transactions: [{" MOVE(1, 5) ", meta: {order: 1}}]}", 0,
         "results.0.exists", "true"},
        {"{truceLedgerBalance: 'book', account: 'ada'}", 0, "balance", "12"},
        {"{truceCommit: [{truceLedgerPostMany: 'book', transactions: [{" MOVE(9, 5) "}]}]}", 2},
    };

    begin();
    TELL(opened);
    TELL(steps);
    end();
}

TEST(accounts_and_transactions_are_listed_by_pages)
{
    static const struct step steps[] = {
        {"{truceLedgerPostMany: 'book', transactions: [{" MOVE(1, 5) ", meta: {order: 1}}, {" MOVE(
             2, 6) ", meta: {order: 2}},"
                   " {" MOVE(3, 7) ", kind: 'pending'}]}",
         0, "results.2.status", "\"ok\""},
        {"{truceLedgerAccounts: 'book', limit: 1}", 0, "accounts.0.account", "\"ada\""},
        {"{truceLedgerAccounts: 'book', limit: 1}", 0, "more", "true"},
        {"{truceLedgerAccounts: 'book', limit: 1}", 0, "accounts.0.balance", "11"},
        {"{truceLedgerAccounts: 'book', after: 'bank'}", 0, "accounts.0", NULL},
        {"{truceLedgerAccounts: 'book', after: 'ada'}", 0, "accounts.0.account", "\"assets:cash\""},
        {"{truceLedgerAccounts: 'book', prefix: 'assets'}", 0, "accounts.0.max", "9"},
        {"{truceLedgerAccounts: 'book', prefix: 'assets'}", 0, "accounts.2", NULL},
        {"{truceLedgerAccounts: 'book', prefix: 'assets', after: 'ada'}", 0, "accounts.0.account",
         "\"assets:cash\""},
        {"{truceLedgerAccounts: 'book', prefix: 'assets', after: 'assets:cash'}", 0,
         "accounts.0.account", "\"assets:gold\""},
        {"{truceLedgerAccounts: 'book', prefix: 'assets', after: 'bank'}", 0, "accounts", "[]"},
        {"{truceLedgerAccounts: 'none'}", 0, "reason",
         "\"the ledger \\\"none\\\" does not exist: expected \\\"book\\\"\""},
        {"{truceLedgerSearch: 'book', meta: {order: 2}}", 0, "transactions.0._id", "2"},
        {"{truceLedgerSearch: 'book', meta: {order: 2}}", 0, "transactions.1", NULL},
        {"{truceLedgerSearch: 'book', account: 'ada', limit: 2}", 0, "more", "true"},
        {"{truceLedgerSearch: 'book', meta: {$where: 'x'}}", 2},
        {"{truceLedgerSearch: 'book', beforeMS: 1000000000000}", 0, "transactions", "[]"},
        {"{truceLedgerPending: 'book'}", 0, "transactions.0._id", "3"},
        {"{truceLedgerPending: 'book', account: 'assets:gold'}", 0, "transactions", "[]"},
        {"{truceLedgerPost: 'book', id: 4, kind: 'void', of: 3}", 0},
        {"{truceLedgerPending: 'book'}", 0, "transactions", "[]"},
        {"{truceLedgerCurrency: 'book', currency: 'EUR'}", 0, "digits", "2"},
        {"{truceLedgerCurrency: 'book', currency: 'USD'}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(opened);
    TELL(steps);
    end();
}

/* Returns the request that verifies the book against a seal, which is taken part by part. */
static char *verify_sealed(void)
{
    char *parts = all_pages("{truceLedgerSeal: 'book', limit: 1", "parts", NULL),
         *whole = bson_strdup_printf("{truceLedgerVerify: 'book', seal: %s}", parts);

    bson_free(parts);
    return whole;
}

TEST(a_book_is_verified_against_its_seal)
{
    static const struct step steps[] = {
        {"{truceLedgerPost: 'book', " MOVE(1, 5) "}", 0},
        {"{truceLedgerVerify: 'book'}", 0, "found", "0"},
        {"{truceLedgerVerify: 'book', account: 'ada'}", 0, "accounts", "1"},
        {"{truceLedgerVerify: 'book', seal: [7]}", 14},
        {"{truceLedgerVerify: 'book', seal: [{a: 1}]}", 2, "status", "\"invalid\""},
        {"{truceLedgerSeal: 'book'}", 0, "parts.0.last", "true"},
    };
    static const struct step forge[] = {
        {"{update: 'book', updates: [{q: {_id: 1}, u: {$set: {'changes.1.value': 6}}}]}", 0},
        {"{truceLedgerVerify: 'book'}", 0, "findings.0.account", "\"ada\""},
    };
    char *sealed;

    begin();
    TELL(opened);
    TELL(steps);
    sealed = verify_sealed();
    tell(&(struct step){sealed, 0, "findings", "[]"}, 1);
    TELL(forge);
    tell(&(struct step){sealed, 0, "findings.0.account", "\"ada\""}, 1);
    bson_free(sealed);
    end();
}

TEST(parts_of_a_seal_follow_each_other_over_several_replies)
{
    static const struct step wrong[] = {
        {"{truceLedgerSeal: 'book', after: {part: 1}}", 40414},
        {"{truceLedgerSeal: 'book', after: {part: 1, account: 'ada', hash: 'short'}}", 2},
        {"{truceLedgerSeal: 'book', after: {part: 0, account: 'ada', hash: 1}}", 2},
        {"{truceLedgerSeal: 'book', limit: 0}", 2},
    };
    struct buffer records = {0};
    char *whole, *paged, *sealed;

    truce__buffer_append_text(&records, "{truceLedgerImport: 'book', records: [");
    for (int i = 0; i < 2001; i++) {
        char record[80];

        snprintf(record, sizeof record, "{open: 'many:%d', currency: 'EUR'}, ", i);
        truce__buffer_append_text(&records, record);
    }
    truce__buffer_append_text(&records, "{currency: 'EUR', digits: 2}]}");
    truce__buffer_append_byte(&records, 0);
    begin();
    TELL(opened);
    tell(&(struct step){(const char *)records.bytes, 0}, 1);
    TELL(wrong);
    whole = all_pages("{truceLedgerSeal: 'book'", "parts", "none");
    paged = all_pages("{truceLedgerSeal: 'book', limit: 2", "parts", "none");
    CHECK_INT(strlen(paged), ==, strlen(whole)); /* they differ in times and hashes */
    sealed = verify_sealed();
    tell(&(struct step){sealed, 0, "found", "0"}, 1);
    bson_free(whole);
    bson_free(paged);
    bson_free(sealed);
    truce__buffer_release(&records);
    end();
}

TEST(pages_of_an_export_are_the_whole_book_and_make_the_same_one)
{
    static const struct step steps[] = {
        {"{truceLedgerPostMany: 'book', transactions: [{" MOVE(1, 5) ", meta: {order: 1}}, {" MOVE(
             2, 6) "}, {" MOVE(3, 7) ", kind: 'pending'}]}",
         0, "results.2.status", "\"ok\""},
        {"{truceLedgerPost: 'book', id: 4, kind: 'settle', of: 3}", 0},
        {"{truceLedgerRules: 'book', account: 'ada', min: -5}", 0},
        {"{truceLedgerExport: 'none'}", 0, "status", "\"not found\""},
        {"{truceLedgerExport: 'book', after: [7]}", 2},
        {"{truceLedgerExport: 'book', after: [{account: 'bob', number: 1}]}", 2},
        {"{truceLedgerExport: 'book', after: [{account: 'ada', number: 100}]}", 2},
        {"{truceLedgerExport: 'book', limit: 0}", 2},
    };
    static const struct step same[] = {
        {"{truceLedgerBalance: 'other', account: 'ada'}", 0, "balance", "18"},
        {"{truceLedgerAccounts: 'other', prefix: 'ada'}", 0, "accounts.0.min", "-5"},
        {"{truceLedgerSearch: 'other', meta: {order: 1}}", 0, "transactions.0._id", "1"},
        {"{truceLedgerVerify: 'other'}", 0, "found", "0"},
    };
    char *whole = NULL, *paged = NULL, *command;
    struct step import = {NULL, 0, "posted", "4"};

    begin();
    TELL(opened);
    TELL(steps);
    for (int limit = 10; limit; limit--) {
        command = bson_strdup_printf("{truceLedgerExport: 'book', limit: %d", limit);
        paged = all_pages(command, "records", "digits");
        whole = whole ? whole : bson_strdup(paged);
        CHECK_TEXT(whole, paged);
        bson_free(paged);
        bson_free(command);
    }
    import.command = command =
        bson_strdup_printf("{truceLedgerImport: 'other', records: %s}", whole);
    tell(&import, 1);
    TELL(same);
    import.text = "0";
    tell(&import, 1);
    bson_free(command);
    bson_free(whole);
    end();
}

#define LINE(account, amount) "{account: '" account "', amount: '" amount "', currency: 'EUR'}"

TEST(a_wrong_record_refuses_the_import_by_its_number)
{
    static const struct step steps[] = {
        {"{truceLedgerImport: 'book'}", 40414},
        {"{truceLedgerImport: 'book', records: [7]}", 2, "errmsg",
         "\"record 1: must be a document, not int\""},
        {"{truceLedgerImport: 'book', records: [{currency: 'EUR', digits: 2}, {nothing: 1}]}", 2},
        {"{truceLedgerImport: 'book', records: [{currency: 'EUR', digits: '2'}]}", 2},
        {"{truceLedgerImport: 'book', records: [{currency: 'EUR', digits: 3}]}", 2, "status",
         "\"invalid\""},
        {"{truceLedgerImport: 'book', records: [{id: 1, entries: [" LINE("bank", "-0.05") ", " LINE(
             "ada", "0.05") "]}, {id: 2, entries: [" LINE("bank", "-0.05") ", " LINE("ada",
                                                                                     "0.06") "]}]}",
         2, "errmsg",
         "\"record 2: the transaction does not balance: its amounts in EUR sum to 0.01 instead of zero\""},
        {"{truceLedgerImport: 'book', records: [{id: 1, entries: [" LINE("bank", "-0.05") ", " LINE(
             "bob", "0.05") "]}]}",
         2, "errmsg",
         "\"record 1: the account \\\"bob\\\" does not exist: open it, or set 'open'\""},
        {"{truceLedgerSearch: 'book'}", 0, "transactions.0", NULL},
        {"{truceLedgerImport: 'book', check: true, open: true, records: [{id: 1, entries: [" LINE(
             "bank", "-0.05") ", " LINE("bob", "0.05") "]}]}",
         0, "records", "1"},
        {"{truceLedgerBalance: 'book', account: 'bob'}", 0, "status", "\"not found\""},
        {"{truceLedgerImport: 'book', open: true, records: [{id: 1, entries: [" LINE(
             "bank",
             "-0.05") ", " LINE("bob",
                                "0.05") "]}, {id: 2, entries: [" LINE("ada",
                                                                      "-0.05") ", " LINE("bob",
                                                                                         "0.05") "]}]}",
         0, "refusals.0.record", "2"},
        {"{truceLedgerBalance: 'book', account: 'bob'}", 0, "balance", "5"},
    };

    begin();
    TELL(opened);
    TELL(steps);
    end();
}

TEST(changes_of_accounts_are_reported_by_groups)
{
    static const struct step steps[] = {
        {"{truceLedgerPostMany: 'book', transactions: [{" MOVE(1, 5) ", effectiveMS: 1767225600000, meta: {order: 'a'}}, {" MOVE(
             2,
             6) ", effectiveMS: 1769904000000, meta: {order: 'a'}}, {" MOVE(3,
                                                                            7) ", effectiveMS: 1769904000000}]}",
         0, "results.2.status", "\"ok\""},
        {"{truceLedgerReport: 'book'}", 0, "rows.0.group", "\"2026-01\""},
        {"{truceLedgerReport: 'book'}", 0, "rows.2.change", "13"},
        {"{truceLedgerReport: 'book'}", 0, "rows.2.balance", "18"},
        {"{truceLedgerReport: 'book', by: 'year', prefix: 'bank'}", 0, "rows.0.change", "-18"},
        {"{truceLedgerReport: 'book', by: 'meta.order', prefix: 'ada'}", 0, "rows.1.change", "11"},
        {"{truceLedgerReport: 'book', by: 'week'}", 2, "status", "\"invalid\""},
        {"{truceLedgerReport: 'book', depth: 0}", 2},
        {"{truceLedgerSearch: 'book', limit: 1, after: 1}", 0, "transactions.0._id", "2"},
        {"{truceLedgerSearch: 'book', limit: 1, after: 3}", 0, "transactions.0", NULL},
        {"{truceLedgerSearch: 'book', after: 9}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(opened);
    TELL(steps);
    end();
}
