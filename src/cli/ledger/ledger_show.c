/* truce ledger balance, statement, accounts, pending, verify, seal, search. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/row.h"
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
                                   .fields = "account fromMS beforeMS limit"},
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

/* The digits of the amounts of the account. */
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
    .help = "A page never changes, even during writes: the next one is --after the last number\n"
            "of this one.",
    .example = EXAMPLE_BOOK "truce ledger statement book customers:ada",
    .store = CLI_STORE_READ,
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

static const struct cli_command cli_ledger_accounts = {
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

static const struct cli_command cli_ledger_seal = {
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

cli_command_list cli_ledger_show_commands = {
    &cli_ledger_balance, &cli_ledger_statement, &cli_ledger_accounts, &cli_ledger_pending,
    &cli_ledger_search,  &cli_ledger_verify,    &cli_ledger_seal,     NULL};
