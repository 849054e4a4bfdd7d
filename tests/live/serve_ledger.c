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
        {"{truceLedgerAccounts: 'none'}", 0, "accounts", "[]"},
        {"{truceLedgerSearch: 'book', meta: {order: 2}}", 0, "transactions.0._id", "2"},
        {"{truceLedgerSearch: 'book', meta: {order: 2}}", 0, "transactions.1", NULL},
        {"{truceLedgerSearch: 'book', account: 'ada', limit: 2}", 0, "more", "true"},
        {"{truceLedgerSearch: 'book', meta: {$where: 'x'}}", 2},
        {"{truceLedgerSearch: 'book', beforeMS: 1}", 0, "transactions", "[]"},
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

static char *with_parts(const char *command)
{
    int end_ = dial();
    bson_t *reply = send_typed(end_, "{truceLedgerSeal: 'book'}");
    char *parts = shown(reply, "parts"), *whole = bson_strdup_printf(command, parts);

    bson_free(parts);
    bson_destroy(reply);
    close(end_);
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
    sealed = with_parts("{truceLedgerVerify: 'book', seal: %s}");
    tell(&(struct step){sealed, 0, "findings", "[]"}, 1);
    TELL(forge);
    tell(&(struct step){sealed, 0, "findings.0.account", "\"ada\""}, 1);
    bson_free(sealed);
    end();
}
