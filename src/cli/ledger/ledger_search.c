/* truce ledger search: the transactions whose metadata have these values. */
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/commands.h"
#include "cli/ledger/ledger.h"

struct searching {
    const struct cli *cli;
    truce_ledger *ledger;
    truce_status status;
    bson_error_t error;
};

/* ---- a transaction -------------------------------------------------------------------------- */

/* As a document, or, in a table, as text: "bank -12.50 EUR". */
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

    if (!*currency) { /* inserted by others */
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
    .summary = "print the transactions whose metadata have these values",
    .help = "META is a filter for fields of the metadata: {order: 17}, {'shop.town': 'Bonn'},\n"
            "{till: {$gt: 5}}; without it all transactions, in the order of booking.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' \\\n"
               "    --meta '{order: 17}'\n"
               "truce ledger search book '{order: 17}'",
    .options =
        (const struct cli_option[]){{"account", 0, "ACCOUNT", "that change this account", false},
                                    {"from", 0, "DATE", "booked from then on", false},
                                    {"before", 0, "DATE", "booked before then", false},
                                    {"limit", 'l', "N", "so many (all)", false},
                                    {0}},
    .store = CLI_STORE_READ,
    .run = search_run,
};
