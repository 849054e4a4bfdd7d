/* truce ledger balance, statement, accounts, pending, verify, seal, search. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/plural.h"
#include "base/status.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"
#include "cli/ledger/ledger.h"

/* ---- search ---------------------------------------------------------------------------------- */

/* Appends an entry: a document, or, in a table, a string such as "bank -12.50 EUR". */
static void search_append_entry(const struct cli *cli, const char *account, const char *amount,
                                const char *currency, const char *key, bson_t *entries)
{
    bson_t entry;

    if (!cli->json) {
        char *text = bson_strdup_printf("%s %s %s", account, amount, currency);

        bson_append_utf8(entries, key, -1, text, -1);
        bson_free(text);
        return;
    }
    bson_append_document_begin(entries, key, -1, &entry);
    BSON_APPEND_UTF8(&entry, "account", account);
    BSON_APPEND_UTF8(&entry, "amount", amount);
    BSON_APPEND_UTF8(&entry, "currency", currency);
    bson_append_document_end(entries, &entry);
}

/* Finds the digits of the change's currency. The change of another program may have no currency:
 * that of the account counts. Returns false after printing the error. */
static bool search_read_digits(struct cli *cli, const char *account, char currency[25], int *digits)
{
    static char last[25];
    static int last_digits;
    int code = CLI_DONE;

    if (!*currency || strcmp(currency, last) != 0)
        code = *currency ? cli_ledger_currency_digits(cli, currency, &last_digits)
                         : cli_ledger_account_digits(cli, account, currency, &last_digits);
    snprintf(last, sizeof last, "%s", code ? "" : currency);
    *digits = last_digits;
    return !code;
}

/* Appends an entry for a change with an amount. A change that only releases a pending amount has
 * none. */
static bool show_change(struct cli *cli, const bson_t *change, const char *key, bson_t *entries)
{
    int64_t value = truce__field_number(change, "value"),
            release = truce__field_number(change, "release");
    const char *account = truce__field_text(change, "account");
    char amount[TRUCE_LEDGER_AMOUNT], currency[25];
    int digits;

    snprintf(currency, sizeof currency, "%s", truce__field_text(change, "currency"));
    if (!search_read_digits(cli, account, currency, &digits))
        return false;
    if (value || !release)
        search_append_entry(cli, account, truce_ledger_show(value, digits, amount), currency, key,
                            entries);
    return true;
}

static bool show_entries(struct cli *cli, const bson_t *document, bson_t *shown)
{
    struct fields changes =
        truce__fields(truce__value_field(truce__value_document(document), "changes", 7));
    uint32_t count = 0;
    bson_t entries;
    bool good = true;

    BSON_APPEND_ARRAY_BEGIN(shown, "entries", &entries);
    while (good && truce__fields_next(&changes)) {
        bson_t change;
        char key[16];

        if (changes.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(changes.value, &change);
        snprintf(key, sizeof key, "%u", count++);
        good = show_change(cli, &change, key, &entries);
    }
    bson_append_array_end(shown, &entries);
    return good;
}

static bool search_show(struct cli *cli, const bson_t *document)
{
    static const char *const names[][2] = {{"_id", "id"},
                                           {"ts", "booked"},
                                           {"effective", "effective"},
                                           {"kind", "kind"},
                                           {"resolves", "of"}};
    bson_t shown = BSON_INITIALIZER;
    bson_iter_t iter;
    bool good;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bson_iter_init_find(&iter, document, names[i][0]))
            bson_append_iter(&shown, names[i][1], -1, &iter);
    good = show_entries(cli, document, &shown);
    if (bson_iter_init_find(&iter, document, "meta"))
        bson_append_iter(&shown, "meta", -1, &iter);
    good = good && cli_print(&shown, JSON_RELAXED);
    bson_destroy(&shown);
    return good;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int search_run(struct cli *cli)
{
    cli_ledger_table(cli);
    return cli_row_run(cli);
}

static const struct cli_command cli_ledger_search = {
    .noun = "ledger",
    .verb = "search",
    .arguments = "LEDGER [META]",
    .summary = "search transactions by their metadata",
    .help = "META is a filter on the metadata: {order: 17}, {'shop.town': 'Bonn'},\n"
            "{till: {$gt: 5}}. Without it, prints all transactions, in the order of booking.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' \\\n"
               "    --meta '{order: 17}'\n"
               "truce ledger search book '{order: 17}'",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceLedgerSearch",
                                   .fields = "account fromMS beforeMS limit",
                                   .list = "transactions",
                                   .next = "_id",
                                   .all = true,
                                   .print = search_show,
                                   .prints_json = true},
    .run = search_run,
};

/* ---- one account ---------------------------------------------------------------------------- */

static bool ledger_print_balance(struct cli *cli, const bson_t *reply)
{
    static const char *const fields[] = {"balance", "available", "out", "in"};
    int digits = (int)truce__field_number(reply, "digits");
    const char *currency = truce__field_text(reply, "currency");
    bson_t document = BSON_INITIALIZER;
    char text[4][TRUCE_LEDGER_AMOUNT];
    bool good;

    for (size_t i = 0; i < 4; i++)
        truce_ledger_show(truce__field_number(reply, fields[i]), digits, text[i]);
    BCON_APPEND(&document, "balance", BCON_UTF8(text[0]), "currency", BCON_UTF8(currency),
                "available", BCON_UTF8(text[1]), "out", BCON_UTF8(text[2]), "in",
                BCON_UTF8(text[3]), "number", BCON_INT64(truce__field_number(reply, "number")));
    if (truce__field_number(reply, "out") || truce__field_number(reply, "in"))
        good = cli_answer(cli, &document, "%s %s, available %s", text[0], currency, text[1]);
    else
        good = cli_answer(cli, &document, "%s %s", text[0], currency);
    bson_destroy(&document);
    return good;
}

#define EXAMPLE_BOOK                                                                               \
    "truce ledger currency book EUR 2\n"                                                           \
    "truce ledger open book external:bank --currency EUR\n"                                        \
    "truce ledger open book customers:ada --currency EUR --min 0\n"                                \
    "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'\n"

static const struct cli_command cli_ledger_balance = {
    .noun = "ledger",
    .verb = "balance",
    .arguments = "LEDGER ACCOUNT",
    .summary = "print the balance of an account, now or in the past",
    .example = EXAMPLE_BOOK "truce ledger balance book customers:ada",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceLedgerBalance",
                                   .print = ledger_print_balance,
                                   .prints_json = true},
    .run = cli_row_run,
};

/* The number of decimal digits of the amounts in the statement. */
static int statement_digits;

static bool ledger_print_line(struct cli *cli, const bson_t *line)
{
    static const char *const amounts[] = {"value", "balance", "available"};
    bson_t document = BSON_INITIALIZER;
    bson_iter_t at;
    bool good;

    BSON_APPEND_INT64(&document, "number", truce__field_number(line, "number"));
    BSON_APPEND_DATE_TIME(&document, "booked", truce__field_number(line, "bookedMS"));
    if (bson_iter_init_find(&at, line, "id"))
        bson_append_iter(&document, "id", -1, &at);
    BCON_APPEND(&document, "type", BCON_UTF8(truce__field_text(line, "type")), "state",
                BCON_UTF8(truce__field_text(line, "state")));
    for (size_t i = 0; i < 3; i++)
        cli_ledger_amount(cli, amounts[i], truce__field_number(line, amounts[i]), statement_digits,
                          &document);
    good = cli_print(&document, JSON_RELAXED);
    bson_destroy(&document);
    return good;
}

static int statement_run(struct cli *cli)
{
    int code = cli_ledger_digits(cli, cli->arguments[1], &statement_digits);

    if (code)
        return code;
    cli_ledger_table(cli);
    return cli_row_run(cli);
}

static const struct cli_command cli_ledger_statement = {
    .noun = "ledger",
    .verb = "statement",
    .arguments = "LEDGER ACCOUNT",
    .summary = "list the entries of an account with balances",
    .help = "A page never changes, even during writes. For the next page, give --after the last\n"
            "number of this one.",
    .example = EXAMPLE_BOOK "truce ledger statement book customers:ada",
    .store = CLI_STORE_MAY_CHANGE, /* It books the release of expired amounts. */
    .row = &(const struct cli_row){.name = "truceLedgerStatement",
                                   .list = "lines",
                                   .next = "number",
                                   .all = true,
                                   .print = ledger_print_line,
                                   .prints_json = true},
    .run = statement_run,
};

/* ---- the tree of accounts ------------------------------------------------------------------- */

/* The sum of a branch of accounts. Accounts come in the order of their names. All accounts below a
 * name ("assets" of "assets:cash") are therefore between the name and the name with ";", the
 * character after ":". A branch is open from its first account until a name after these. Then its
 * sum is known and is printed. Only the branches of one name are in memory. */
struct sum {
    char currency[25];
    int digits;
    __int128 balance, available;
    /* `account`: an account of the currency has the name of the branch. `closed`: this account is
     * closed. */
    bool closed, account;
};

struct branch {
    char *name;
    struct sum *sums; /* The sums, one for each currency. */
    uint32_t count;
};

/* The open branches. Each is within the one before it. */
static struct {
    struct branch *open;
    uint32_t count;
    bool ended; /* The output could not be written. */
} tree;

/* Returns the sum of a currency in the branch, a new one if necessary. The sums are sorted by
 * currency. */
static struct sum *ledger_show_sum_of(struct branch *branch, const char *currency)
{
    uint32_t at = 0;

    while (at < branch->count && strcmp(branch->sums[at].currency, currency) < 0)
        at++;
    if (at == branch->count || strcmp(branch->sums[at].currency, currency) != 0) {
        branch->sums =
            bson_realloc(branch->sums, (size_t)(branch->count + 1) * sizeof *branch->sums);
        memmove(branch->sums + at + 1, branch->sums + at,
                (branch->count++ - at) * sizeof *branch->sums);
        branch->sums[at] = (struct sum){0};
        snprintf(branch->sums[at].currency, sizeof branch->sums[at].currency, "%s", currency);
    }
    return &branch->sums[at];
}

static struct branch *branch_of(const char *name, size_t length)
{
    for (uint32_t i = 0; i < tree.count; i++) {
        if (strlen(tree.open[i].name) == length && !memcmp(tree.open[i].name, name, length))
            return &tree.open[i];
    }
    tree.open = bson_realloc(tree.open, (size_t)(tree.count + 1) * sizeof *tree.open);
    tree.open[tree.count] = (struct branch){.name = bson_strndup(name, length)};
    return &tree.open[tree.count++];
}

static int64_t ledger_show_narrow(__int128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static bool ledger_show_print_sum(const struct cli *cli, const char *name, const struct sum *sum)
{
    bson_t document = BSON_INITIALIZER;
    bool good;

    BSON_APPEND_UTF8(&document, "account", name);
    cli_ledger_amount(cli, "balance", ledger_show_narrow(sum->balance), sum->digits, &document);
    cli_ledger_amount(cli, "available", ledger_show_narrow(sum->available), sum->digits, &document);
    BSON_APPEND_UTF8(&document, "currency", sum->currency);
    BSON_APPEND_UTF8(&document, "is", sum->closed ? "closed" : sum->account ? "open" : "sum");
    good = cli_print(&document, JSON_RELAXED);
    bson_destroy(&document);
    return good;
}

/* Prints the branches that are complete before this account (NULL means all). */
static void close_branches(const struct cli *cli, const char *account)
{
    while (tree.count) {
        struct branch *branch = &tree.open[tree.count - 1];
        size_t length = strlen(branch->name);

        if (account && !strncmp(account, branch->name, length) &&
            (unsigned char)account[length] <= ':')
            break;
        for (uint32_t i = 0; i < branch->count && !tree.ended; i++)
            tree.ended = !ledger_show_print_sum(cli, branch->name, &branch->sums[i]);
        bson_free(branch->sums);
        bson_free(branch->name);
        tree.count--;
    }
}

/* Adds the account to each part that its name begins with. */
static bool add_account(struct cli *cli, const bson_t *account)
{
    const char *name = truce__field_text(account, "account"), *at = name;

    close_branches(cli, name);
    for (;; at++) {
        struct sum *sum;

        if (*at && *at != ':')
            continue;
        sum = ledger_show_sum_of(branch_of(name, (size_t)(at - name)),
                                 truce__field_text(account, "currency"));
        sum->digits = (int)truce__field_number(account, "digits");
        sum->balance += truce__field_number(account, "balance");
        sum->available += truce__field_number(account, "available");
        sum->account = sum->account || !*at;
        sum->closed = sum->closed || (!*at && truce__field_true(account, "closed"));
        if (!*at)
            return !tree.ended;
    }
}

static int run_accounts(struct cli *cli)
{
    int code;

    cli_ledger_table(cli);
    code = cli_row_run(cli);
    tree.ended = tree.ended || code;
    close_branches(cli, NULL);
    bson_free(tree.open);
    return code;
}

static const struct cli_command cli_ledger_accounts = {
    .noun = "ledger",
    .verb = "accounts",
    .arguments = "LEDGER [PREFIX]",
    .summary = "list accounts with balances and sums",
    .help =
        "Prints a snapshot: the balances of all accounts of a currency sum to zero, even during\n"
        "writes (with more than about 40,000 accounts, each part of the list is a snapshot). A\n"
        "subtotal follows the accounts that share the first parts of their names. PREFIX is an\n"
        "account, or the first parts of account names (assets).",
    .example = EXAMPLE_BOOK "truce ledger accounts book",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceLedgerAccounts",
                                   .fields = "",
                                   .list = "accounts",
                                   .next = "account",
                                   .page = 100000,
                                   .all = true,
                                   .print = add_account,
                                   .prints_json = true},
    .run = run_accounts,
};

/* ---- pending -------------------------------------------------------------------------------- */

static const struct cli_command cli_ledger_pending = {
    .noun = "ledger",
    .verb = "pending",
    .arguments = "LEDGER [ACCOUNT]",
    .summary = "list pending transactions",
    .example = EXAMPLE_BOOK
    "truce ledger post book customers:ada external:bank 5.00 --id 'payout 1' --pending\n"
    "truce ledger pending book customers:ada",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceLedgerPending", .list = "transactions"},
    .run = cli_row_run,
};

/* ---- proof ---------------------------------------------------------------------------------- */

static bool verify_print(struct cli *cli, const bson_t *reply)
{
    struct fields findings =
        truce__fields(truce__value_field(truce__value_document(reply), "findings", 8));
    int64_t accounts = truce__field_number(reply, "accounts"),
            entries = truce__field_number(reply, "entries"),
            found = truce__field_number(reply, "found");
    bson_t document = BSON_INITIALIZER;
    bool good = true;

    while (good && truce__fields_next(&findings)) {
        bson_t finding;

        truce__value_bson(findings.value, &finding);
        good = cli_print(&finding, JSON_RELAXED);
    }
    if (truce__field_true(reply, "more"))
        cli_note(cli,
                 "more findings exist than are printed: verify one account at a time (truce ledger "
                 "verify LEDGER ACCOUNT)");
    BCON_APPEND(&document, "accounts", BCON_INT64(accounts), "entries", BCON_INT64(entries),
                "findings", BCON_INT64(found));
    good = good && cli_answer(cli, &document, "%s of %s, %s", PLURAL(entries, "entry", "entries"),
                              PLURAL(accounts, "account", "accounts"),
                              PLURAL(found, "finding", "findings"));
    bson_destroy(&document);
    return good;
}

static bool verify_is_negative(const bson_t *reply)
{
    return truce__field_number(reply, "found") > 0;
}

/* Reads a file with the parts of a seal, one on each line. */
static int verify_read_seal(struct cli *cli, const char *path, bson_t *fields)
{
    bson_error_t error;
    struct ndjson *lines = cli_ndjson_open(path, &error);
    truce_status status = lines ? TRUCE_OK : TRUCE_INVALID;
    struct ndjson_line line = {0};
    uint32_t count = 0;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(fields, "seal", &array);
    while (!status && !(status = cli_ndjson_next(lines, &line, &error)) && line.text) {
        const char *wrong, *key;
        char buffer[16];
        bson_t part;

        wrong = cli_ndjson_document(lines, &line, &part);
        if (wrong) {
            status = truce__fail(TRUCE_INVALID, &error, "%s, line %" PRId64 ": %s", path, line.row,
                                 wrong);
            break;
        }
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT(&array, key, &part);
    }
    bson_append_array_end(fields, &array);
    cli_ndjson_close(lines);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int run_verify(struct cli *cli)
{
    const char *path = cli_text(cli, "seal");
    bson_t fields = BSON_INITIALIZER;
    int code = path ? verify_read_seal(cli, path, &fields) : CLI_DONE;

    if (!code)
        code = cli_row_run_with(cli, cli->command->row, &fields);
    bson_destroy(&fields);
    return code;
}

static const struct cli_command cli_ledger_verify = {
    .noun = "ledger",
    .verb = "verify",
    .arguments = "LEDGER [ACCOUNT]",
    .summary = "verify all entries: numbers, sums, and hashes",
    .help = "Prints the first wrong entry of each account (exit code 1). With --seal,\n"
            "also compares the book with an earlier output of `truce ledger seal`.",
    .example = EXAMPLE_BOOK "truce ledger seal book > book.seal\n"
                            "truce ledger verify book --seal book.seal",
    .options =
        (const struct cli_option[]){
            {"seal", 0, "FILE", "a printed seal (-: standard input)", false}, {0}},
    .row = &(const struct cli_row){.name = "truceLedgerVerify",
                                   .fields = "",
                                   .negative = verify_is_negative,
                                   .print = verify_print,
                                   .prints_json = true},
    .store = CLI_STORE_READ,
    .run = run_verify,
};

static bool print_part(struct cli *cli, const bson_t *part)
{
    (void)cli;
    return cli_print(part, JSON_CANONICAL);
}

static const struct cli_command cli_ledger_seal = {
    .noun = "ledger",
    .verb = "seal",
    .arguments = "LEDGER",
    .summary = "print a seal of the book to store elsewhere",
    .help =
        "Each line has at most 1,000 accounts; the last line is marked. Store the seal elsewhere:\n"
        "if old entries of the book are rewritten, the stored seal does not change, and truce\n"
        "ledger verify --seal detects the difference.",
    .example = EXAMPLE_BOOK "truce ledger seal book > book.seal",
    .row = &(const struct cli_row){.name = "truceLedgerSeal",
                                   .fields = "",
                                   .list = "parts",
                                   .next = "",
                                   .all = true,
                                   .print = print_part,
                                   .prints_json = true},
    .store = CLI_STORE_READ,
    .run = cli_row_run,
};

cli_command_list cli_ledger_show_commands = {
    &cli_ledger_balance, &cli_ledger_statement, &cli_ledger_accounts, &cli_ledger_pending,
    &cli_ledger_search,  &cli_ledger_verify,    &cli_ledger_seal,     NULL};
