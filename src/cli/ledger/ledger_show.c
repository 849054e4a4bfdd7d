/* truce ledger balance, statement, accounts, pending, verify, seal, search. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/ledger/ledger.h"

/* ---- search ---------------------------------------------------------------------------------- */

/* truce ledger search: prints transactions by their metadata. */

struct searching {
    const struct cli *cli;
    truce_ledger *ledger;
    truce_status status;
    bson_error_t error;
};

/* ---- a transaction -------------------------------------------------------------------------- */

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

static truce_status show_change(struct searching *searching, const bson_t *change, const char *key,
                                bson_t *entries)
{
    const char *account = truce__field_text(change, "account"),
               *currency = truce__field_text(change, "currency");
    int64_t value = truce__field_number(change, "value"),
            release = truce__field_number(change, "release");
    truce_ledger_balance balance = {{0}};
    char amount[TRUCE_LEDGER_AMOUNT];
    truce_status status = TRUCE_OK;
    int digits = 0;

    if (!*currency) { /* inserted by other programs */
        status =
            truce_ledger_balance_of(searching->ledger, account, NULL, &balance, &searching->error);
        currency = balance.currency;
    }
    if (!status)
        status = truce_ledger_digits(searching->ledger, currency, &digits, &searching->error);
    if (!status && (value || !release))
        search_append_entry(searching->cli, account, truce_ledger_show(value, digits, amount),
                            currency, key, entries);
    return status;
}

static truce_status show_entries(struct searching *searching, const bson_t *document, bson_t *shown)
{
    bson_iter_t iter, changes;
    uint32_t count = 0;
    bson_t entries;
    truce_status status = TRUCE_OK;

    bson_append_array_begin(shown, "entries", 7, &entries);
    if (bson_iter_init_find(&iter, document, "changes") && BSON_ITER_HOLDS_ARRAY(&iter) &&
        bson_iter_recurse(&iter, &changes)) {
        while (!status && bson_iter_next(&changes)) {
            const uint8_t *data;
            uint32_t length;
            bson_t change;
            char key[16];

            if (!BSON_ITER_HOLDS_DOCUMENT(&changes))
                continue;
            bson_iter_document(&changes, &length, &data);
            bson_init_static(&change, data, length);
            snprintf(key, sizeof key, "%u", count++);
            status = show_change(searching, &change, key, &entries);
        }
    }
    bson_append_array_end(shown, &entries);
    return status;
}

static void search_append_as(const bson_t *document, const char *field, const char *name,
                             bson_t *shown)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field))
        bson_append_iter(shown, name, -1, &iter);
}

static bool search_show(const bson_t *document, void *arg)
{
    struct searching *searching = arg;
    bson_t shown = BSON_INITIALIZER;
    bool more = false;

    search_append_as(document, "_id", "id", &shown);
    search_append_as(document, "ts", "booked", &shown);
    search_append_as(document, "effective", "effective", &shown);
    search_append_as(document, "kind", "kind", &shown);
    search_append_as(document, "resolves", "of", &shown);
    searching->status = show_entries(searching, document, &shown);
    search_append_as(document, "meta", "meta", &shown);
    if (!searching->status)
        more = cli_print(&shown, JSON_RELAXED);
    bson_destroy(&shown);
    return more;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int search_search(struct cli *cli, const truce_ledger_search *wanted)
{
    struct searching searching = {.cli = cli, .ledger = cli_ledger_new(cli)};
    bson_error_t error;
    truce_status status;

    cli_ledger_table(cli);
    status = truce_ledger_find(searching.ledger, wanted, search_show, &searching, &error);
    if (!status && searching.status) {
        status = searching.status;
        error = searching.error;
    }
    truce_ledger_free(searching.ledger);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int search_run(struct cli *cli)
{
    truce_ledger_search wanted = {.account = cli_text(cli, "account")};
    bson_t meta = BSON_INITIALIZER;
    int code = CLI_USAGE;

    if (cli_number(cli, "limit", 0, INT64_MAX, 0, &wanted.limit) &&
        cli_date(cli, "from", &wanted.from_ms) && cli_date(cli, "before", &wanted.before_ms) &&
        (!cli->arguments[1] || cli_document(cli, cli->arguments[1], "META", &meta))) {
        wanted.meta = cli->arguments[1] ? &meta : NULL;
        code = search_search(cli, &wanted);
    }
    bson_destroy(&meta);
    return code;
}

const struct cli_command cli_ledger_search = {
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
    .options =
        (const struct cli_option[]){
            {"account", 0, "ACCOUNT", "only those that change this account", false},
            {"from", 0, "DATE", "booked at or after this time", false},
            {"before", 0, "DATE", "booked before this time", false},
            {"limit", 'l', "N", "at most this many (default: all)", false},
            {0}},
    .store = CLI_STORE_READ,
    .run = search_run,
};

/* ---- one account ---------------------------------------------------------------------------- */

static void show_balance(const struct cli *cli, const truce_ledger_balance *balance, int digits)
{
    bson_t document = BSON_INITIALIZER;
    char text[4][TRUCE_LEDGER_AMOUNT];

    truce_ledger_show(balance->balance, digits, text[0]);
    truce_ledger_show(balance->available, digits, text[1]);
    truce_ledger_show(balance->out, digits, text[2]);
    truce_ledger_show(balance->in, digits, text[3]);
    BSON_APPEND_UTF8(&document, "balance", text[0]);
    BSON_APPEND_UTF8(&document, "currency", balance->currency);
    BSON_APPEND_UTF8(&document, "available", text[1]);
    BSON_APPEND_UTF8(&document, "out", text[2]);
    BSON_APPEND_UTF8(&document, "in", text[3]);
    BSON_APPEND_INT64(&document, "number", balance->number);
    if (balance->out || balance->in)
        cli_answer(cli, &document, "%s %s, available %s", text[0], balance->currency, text[1]);
    else
        cli_answer(cli, &document, "%s %s", text[0], balance->currency);
    bson_destroy(&document);
}

static int ledger_show_run_balance(struct cli *cli)
{
    truce_ledger_moment as_of = {0};
    truce_ledger_balance balance;
    truce_ledger *ledger;
    bson_error_t error;
    truce_status status;
    int digits = 0;

    if (!cli_number(cli, "number", 1, INT64_MAX, 0, &as_of.number) ||
        !cli_date(cli, "booked", &as_of.booked_ms) ||
        !cli_date(cli, "effective", &as_of.effective_ms))
        return CLI_USAGE;
    ledger = cli_ledger_new(cli);
    status = truce_ledger_balance_of(ledger, cli->arguments[1], &as_of, &balance, &error);
    if (!status && balance.currency[0])
        status = truce_ledger_digits(ledger, balance.currency, &digits, &error);
    if (!status)
        show_balance(cli, &balance, digits);
    truce_ledger_free(ledger);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

#define EXAMPLE_BOOK                                                                               \
    "truce ledger currency book EUR 2\n"                                                           \
    "truce ledger open book external:bank --currency EUR\n"                                        \
    "truce ledger open book customers:ada --currency EUR --min 0\n"                                \
    "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'\n"

const struct cli_command cli_ledger_balance = {
    .noun = "ledger",
    .verb = "balance",
    .arguments = "LEDGER ACCOUNT",
    .summary = "print the balance of an account, now or in the past",
    .example = EXAMPLE_BOOK "truce ledger balance book customers:ada",
    .options =
        (const struct cli_option[]){
            {"number", 'n', "N", "after this entry of the account", false},
            {"booked", 0, "DATE", "with all that was booked until this time", false},
            {"effective", 0, "DATE", "by value dates until this time", false},
            {0}},
    .store = CLI_STORE_READ,
    .run = ledger_show_run_balance,
};

struct statement {
    const struct cli *cli;
    int digits;
};

static bool print_line(const truce_ledger_line *line, void *arg)
{
    const struct statement *statement = arg;
    bson_t document = BSON_INITIALIZER;
    bool more;

    BSON_APPEND_INT64(&document, "number", line->number);
    BSON_APPEND_DATE_TIME(&document, "booked", line->booked_ms);
    BSON_APPEND_VALUE(&document, "id", line->id);
    BSON_APPEND_UTF8(&document, "type", line->type);
    BSON_APPEND_UTF8(&document, "state", line->state);
    cli_ledger_amount(statement->cli, "value", line->value, statement->digits, &document);
    cli_ledger_amount(statement->cli, "balance", line->balance, statement->digits, &document);
    cli_ledger_amount(statement->cli, "available", line->available, statement->digits, &document);
    more = cli_print(&document, JSON_RELAXED);
    bson_destroy(&document);
    return more;
}

static int ledger_show_run_statement(struct cli *cli)
{
    truce_ledger *ledger;
    struct statement statement = {cli, 0};
    truce_ledger_page page = {0};
    bson_error_t error;
    int code;

    if (!cli_number(cli, "after", 0, INT64_MAX, 0, &page.after) ||
        !cli_number(cli, "limit", 0, INT64_MAX, 0, &page.limit))
        return CLI_USAGE;
    ledger = cli_ledger_new(cli);
    code = cli_ledger_digits(cli, ledger, cli->arguments[1], &statement.digits);
    if (!code) {
        truce_status status;

        cli_ledger_table(cli);
        status = truce_ledger_statement(ledger, cli->arguments[1], &page, print_line, &statement,
                                        &error);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
    }
    truce_ledger_free(ledger);
    return code;
}

const struct cli_command cli_ledger_statement = {
    .noun = "ledger",
    .verb = "statement",
    .arguments = "LEDGER ACCOUNT",
    .summary = "list the entries of an account with balances",
    .help = "A page never changes, even during writes: the next one is --after the last number\n"
            "of this one.",
    .example = EXAMPLE_BOOK "truce ledger statement book customers:ada",
    .options =
        (const struct cli_option[]){
            {"after", 'a', "N", "entries after this number (default: 0)", false},
            {"limit", 'l', "N", "at most this many (default: all)", false},
            {0}},
    .store = CLI_STORE_READ,
    .run = ledger_show_run_statement,
};

/* ---- the tree of accounts ------------------------------------------------------------------- */

/* The sum of a branch of accounts. Accounts come in the order of their names. All accounts below a
 * name ("assets" of "assets:cash") are therefore between the name and the name with ";", the
 * character after ":". A branch is open from its first account until a name after these. Then its
 * sum is known and is printed. Only the branches of one name are in memory. */
struct sum {
    char currency[25];
    __int128 balance, available;
    bool closed, account; /* `account`: an account of that currency has the branch's name */
};

struct branch {
    char *name;
    struct sum *sums; /* by currency */
    uint32_t count;
};

struct tree {
    struct cli *cli;
    truce_ledger *ledger;
    struct branch *open; /* each one within the one before */
    uint32_t count;
    bool ended;
    truce_status status;
    bson_error_t error;
};

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

static struct branch *branch_of(struct tree *tree, const char *name, size_t length)
{
    for (uint32_t i = 0; i < tree->count; i++) {
        if (strlen(tree->open[i].name) == length && !memcmp(tree->open[i].name, name, length))
            return &tree->open[i];
    }
    tree->open = bson_realloc(tree->open, (size_t)(tree->count + 1) * sizeof *tree->open);
    tree->open[tree->count] = (struct branch){.name = bson_strndup(name, length)};
    return &tree->open[tree->count++];
}

static int64_t ledger_show_narrow(__int128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static void ledger_show_print_sum(struct tree *tree, const char *name, const struct sum *sum)
{
    bson_t document = BSON_INITIALIZER;
    int digits;

    tree->status = truce_ledger_digits(tree->ledger, sum->currency, &digits, &tree->error);
    if (!tree->status) {
        BSON_APPEND_UTF8(&document, "account", name);
        cli_ledger_amount(tree->cli, "balance", ledger_show_narrow(sum->balance), digits,
                          &document);
        cli_ledger_amount(tree->cli, "available", ledger_show_narrow(sum->available), digits,
                          &document);
        BSON_APPEND_UTF8(&document, "currency", sum->currency);
        BSON_APPEND_UTF8(&document, "is", sum->closed ? "closed" : sum->account ? "open" : "sum");
        tree->ended = !cli_print(&document, JSON_RELAXED);
    }
    bson_destroy(&document);
}

/* Prints the branches that are complete before this account (NULL: all). */
static void close_branches(struct tree *tree, const char *account)
{
    while (tree->count) {
        struct branch *branch = &tree->open[tree->count - 1];
        size_t length = strlen(branch->name);

        if (account && !strncmp(account, branch->name, length) &&
            (unsigned char)account[length] <= ':')
            break;
        for (uint32_t i = 0; i < branch->count && !tree->status && !tree->ended; i++)
            ledger_show_print_sum(tree, branch->name, &branch->sums[i]);
        bson_free(branch->sums);
        bson_free(branch->name);
        tree->count--;
    }
}

/* Adds the account to each part that its name begins with. */
static bool add_account(const truce_ledger_account *account, const truce_ledger_balance *balance,
                        void *arg)
{
    struct tree *tree = arg;

    close_branches(tree, account->account);
    for (const char *at = account->account; !tree->status && !tree->ended; at++) {
        struct sum *sum;

        if (*at && *at != ':')
            continue;
        sum = ledger_show_sum_of(branch_of(tree, account->account, (size_t)(at - account->account)),
                                 account->currency);
        sum->balance += balance->balance;
        sum->available += balance->available;
        sum->account = sum->account || !*at;
        sum->closed = sum->closed || (!*at && account->closed);
        if (!*at)
            return true;
    }
    return false;
}

static int run_accounts(struct cli *cli)
{
    struct tree tree = {.cli = cli, .ledger = cli_ledger_new(cli)};
    bson_error_t error;
    truce_status status;

    cli_ledger_table(cli);
    status = truce_ledger_balances(tree.ledger, cli->arguments[1], add_account, &tree, &error);
    tree.ended = tree.ended || status;
    close_branches(&tree, NULL);
    bson_free(tree.open);
    truce_ledger_free(tree.ledger);
    if (!status && tree.status)
        return cli_error(cli, NULL, tree.status, &tree.error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_ledger_accounts = {
    .noun = "ledger",
    .verb = "accounts",
    .arguments = "LEDGER [PREFIX]",
    .summary = "list accounts with balances and sums",
    .help =
        "Prints a snapshot: the balances of all accounts of a currency sum to zero, even during\n"
        "writes. The sum of a part of the names follows its accounts. PREFIX is an account, or\n"
        "the first parts of some (assets).",
    .example = EXAMPLE_BOOK "truce ledger accounts book",
    .store = CLI_STORE_READ,
    .run = run_accounts,
};

/* ---- pending -------------------------------------------------------------------------------- */

static bool print_pending(const bson_t *document, void *arg)
{
    (void)arg;
    return cli_print(document, JSON_RELAXED);
}

static int run_pending(struct cli *cli)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    bson_error_t error;
    truce_status status =
        truce_ledger_pending(ledger, cli->arguments[1], print_pending, NULL, &error);

    truce_ledger_free(ledger);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_ledger_pending = {
    .noun = "ledger",
    .verb = "pending",
    .arguments = "LEDGER [ACCOUNT]",
    .summary = "list pending transactions",
    .example = EXAMPLE_BOOK
    "truce ledger post book customers:ada external:bank 5.00 --id 'payout 1' --pending\n"
    "truce ledger pending book customers:ada",
    .store = CLI_STORE_READ,
    .run = run_pending,
};

/* ---- proof ---------------------------------------------------------------------------------- */

static void print_finding(const bson_t *finding, void *arg)
{
    (void)arg;
    (void)cli_print(finding, JSON_RELAXED);
}

/* A file with the parts of a seal, one on each line. */
struct seal_file {
    struct ndjson *lines;
    const char *path;
    bson_t part;
};

static truce_status ledger_show_next_part(const bson_t **part, void *arg, bson_error_t *error)
{
    struct seal_file *file = arg;
    struct ndjson_line line;
    const char *wrong;
    truce_status status = cli_ndjson_next(file->lines, &line, error);

    *part = NULL;
    if (status || !line.text)
        return status;
    wrong = cli_ndjson_document(file->lines, &line, &file->part);
    if (wrong)
        return truce__fail(TRUCE_INVALID, error, "%s, line %" PRId64 ": %s", file->path, line.row,
                           wrong);
    *part = &file->part;
    return TRUCE_OK;
}

static int ledger_show_prove(struct cli *cli, const truce_ledger_seal_source *seal)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    bson_t document = BSON_INITIALIZER;
    truce_ledger_report report;
    bson_error_t error;
    truce_status status =
        truce_ledger_verify(ledger, cli->arguments[1], seal, print_finding, NULL, &report, &error);

    truce_ledger_free(ledger);
    if (!status) {
        BSON_APPEND_INT64(&document, "accounts", report.accounts);
        BSON_APPEND_INT64(&document, "entries", report.entries);
        BSON_APPEND_INT64(&document, "findings", report.findings);
        cli_answer(cli, &document,
                   "%" PRId64 " entries of %" PRId64 " accounts, %" PRId64 " findings",
                   report.entries, report.accounts, report.findings);
    }
    bson_destroy(&document);
    return status ? cli_error(cli, NULL, status, &error) : report.findings ? CLI_NO : CLI_DONE;
}

static int run_verify(struct cli *cli)
{
    struct seal_file file = {.path = cli_text(cli, "seal")};
    truce_ledger_seal_source seal = {.next = ledger_show_next_part, .arg = &file};
    bson_error_t error;
    int code;

    if (!file.path)
        return ledger_show_prove(cli, NULL);
    file.lines = cli_ndjson_open(file.path, &error);
    if (!file.lines)
        return cli_error(cli, NULL, TRUCE_IO, &error);
    code = ledger_show_prove(cli, &seal);
    cli_ndjson_close(file.lines);
    return code;
}

const struct cli_command cli_ledger_verify = {
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
    .store = CLI_STORE_READ,
    .run = run_verify,
};

static bool print_part(const bson_t *part, void *arg)
{
    (void)arg;
    return cli_print(part, JSON_CANONICAL);
}

static int run_seal(struct cli *cli)
{
    truce_ledger *ledger = cli_ledger_new(cli);
    bson_error_t error;
    truce_status status = truce_ledger_seal(ledger, print_part, NULL, &error);

    truce_ledger_free(ledger);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_ledger_seal = {
    .noun = "ledger",
    .verb = "seal",
    .arguments = "LEDGER",
    .summary = "print a seal of the book to store elsewhere",
    .help = "A line has at most 1,000 accounts, and the last line is marked. A writer\n"
            "that rewrites the book from an old entry on cannot rewrite a seal stored elsewhere.",
    .example = EXAMPLE_BOOK "truce ledger seal book > book.seal",
    .store = CLI_STORE_READ,
    .run = run_seal,
};
