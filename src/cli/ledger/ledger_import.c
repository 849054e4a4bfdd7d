/*
 * truce ledger import: the records of a file (book.h) are posted to a book.
 *
 * The file is read twice. First everything is judged that needs no balance: the file's form, currencies, accounts, amounts,
 * sums. One line that is wrong refuses the whole file, by its number and why, and nothing was booked. Then it is booked, many
 * at a time; a transaction that a rule of an account forbids is told and left out. Each has an id, its own or one
 * made of its content: the same file again books what is not there yet.
 */
#include "cli/ledger/ledger_import.h"

#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"

#define BATCH LEDGER_BULK

/* ---- the first time ------------------------------------------------------------------------- */

static truce_status judge_currency(struct importing *importing, const bson_t *record,
                                   bson_error_t *error)
{
    const char *code = truce__field_text(record, "currency");
    int64_t digits = truce__field_number(record, "digits");
    struct import_name *known = import_find(&importing->currencies, code);
    int there;
    truce_status status = truce_ledger_digits(importing->ledger, code, &there, error);

    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (digits < 0 || digits > 18)
        return truce__fail(TRUCE_INVALID, error, "a currency has 0 to 18 digits");
    if ((!status && there != digits) || (known && !known->opens && known->digits != digits))
        return truce__fail(TRUCE_INVALID, error, "currency %.40s has %d digits, and not %d", code,
                           status ? known->digits : there, (int)digits);
    known = import_add(&importing->currencies, code);
    known->digits = (int)digits;
    known->opens = false;
    return TRUCE_OK;
}

static truce_status import_judge(void *arg, int64_t line, const bson_t *record, bson_error_t *error)
{
    struct importing *importing = arg;
    struct import_item item = {0};
    truce_ledger_account account;
    truce_status status;

    importing->records++;
    if (bson_has_field(record, "digits"))
        return judge_currency(importing, record, error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_rules(importing, record, &account, error);
    status = import_item(importing, line, record, &item, error);
    import_item_release(&item);
    return status;
}

/* What --open is for, and the file's own currencies first, for accounts have one. */
static truce_status open_missing(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < importing->currencies.room; i++) {
        struct import_name *currency = importing->currencies.slots[i];

        if (currency)
            status =
                truce_ledger_currency(importing->ledger, currency->name, currency->digits, error);
    }
    for (uint32_t i = 0; !status && i < importing->accounts.room; i++) {
        struct import_name *account = importing->accounts.slots[i];

        if (account && account->opens && account->currency)
            status = truce_ledger_open(
                importing->ledger, NULL,
                &(truce_ledger_account){.account = account->name, .currency = account->currency},
                error);
    }
    return status;
}

/* ---- the second time ------------------------------------------------------------------------ */

static void import_refuse(struct importing *importing, int64_t line, const bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;

    importing->refused++;
    BSON_APPEND_INT64(&document, "line", line);
    BSON_APPEND_UTF8(&document, "reason", error->message);
    cli_progress_end(&importing->shown);
    cli_tell(importing->cli, &document, "line %" PRId64 ": %s", line, error->message);
    bson_destroy(&document);
}

/* A book that is imported where it was exported: what has no value date was told that of its booking, and what was settled
 * in time nothing of that. *own: then it is posted again as it is. */
static bool is_its_own(struct importing *importing, const struct import_item *item,
                       truce_ledger_transaction *own)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_iter_t iter;
    bool same;

    *own = item->transaction;
    BSON_APPEND_VALUE(&filter, "_id", &item->id);
    same = !truce_find_one(importing->cli->store, importing->cli->arguments[0], &filter, NULL,
                           &found, NULL);
    if (same && !bson_has_field(&found, "effective")) {
        same = bson_iter_init_find(&iter, &found, "ts") && BSON_ITER_HOLDS_DATE_TIME(&iter) &&
               bson_iter_date_time(&iter) == own->effective_ms;
        own->effective_ms = 0;
    }
    if (same && !own->expires_ms && bson_iter_init_find(&iter, &found, "expires") &&
        BSON_ITER_HOLDS_DATE_TIME(&iter))
        own->expires_ms = bson_iter_date_time(&iter);
    bson_destroy(&found);
    bson_destroy(&filter);
    return same;
}

static void take_result(struct importing *importing, const struct import_item *item,
                        truce_ledger_result *result)
{
    truce_ledger_transaction own;

    if (result->status == TRUCE_DUPLICATE && is_its_own(importing, item, &own))
        result->status = truce_ledger_post(importing->ledger, NULL, &own, result, &result->error);
    if (result->status)
        import_refuse(importing, item->line, &result->error);
    else if (result->exists)
        importing->existed++;
    else
        importing->posted++;
}

static truce_status ledger_import_flush(struct importing *importing, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < importing->count; i++)
        importing->transactions[i] = importing->items[i].transaction;
    if (importing->count)
        status = truce_ledger_post_many(importing->ledger, importing->transactions,
                                        importing->count, importing->results, error);
    for (size_t i = 0; i < importing->count; i++) {
        if (!status)
            take_result(importing, &importing->items[i], &importing->results[i]);
        import_item_release(&importing->items[i]);
    }
    importing->count = 0;
    return status;
}

static bool is_answer(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT ||
           status == TRUCE_NOT_FOUND;
}

static truce_status count_changes(struct importing *importing, struct import_name *account,
                                  bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("kind", BCON_UTF8("rules"), "changes.account", BCON_UTF8(account->name));
    truce_status status = truce_count(importing->cli->store, importing->cli->arguments[0], filter,
                                      NULL, &account->changes, error);

    bson_destroy(filter);
    return status;
}

/* *there: an earlier run opened the account, or changed its rules, so often before. */
static truce_status was_set(struct importing *importing, const bson_t *record, bool *there,
                            bson_error_t *error)
{
    bool opens = bson_has_field(record, "open");
    const char *name = truce__field_text(record, opens ? "open" : "rules");
    struct import_name *account = import_add(&importing->accounts, name);
    truce_ledger_balance balance;
    truce_status status;

    *there = false;
    if (opens) {
        status = truce_ledger_balance_of(importing->ledger, name, NULL, &balance, error);
        *there = !status && account->currency && !strcmp(balance.currency, account->currency);
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    status = account->changed ? TRUCE_OK : count_changes(importing, account, error);
    *there = !status && ++account->changed <= account->changes;
    return status;
}

static truce_status import_set_rules(struct importing *importing, int64_t line,
                                     const bson_t *record, bson_error_t *error)
{
    truce_ledger_account account;
    truce_status status = ledger_import_flush(importing, error);
    bool there = false;

    if (!status)
        status = was_set(importing, record, &there, error);
    if (!status && there)
        return TRUCE_OK;
    if (!status)
        status = import_rules(importing, record, &account, error);
    if (!status)
        status = bson_has_field(record, "open")
                     ? truce_ledger_open(importing->ledger, NULL, &account, error)
                     : truce_ledger_rules(importing->ledger, NULL, &account, error);
    if (!is_answer(status))
        return status;
    import_refuse(importing, line, error);
    return TRUCE_OK;
}

static truce_status book(void *arg, int64_t line, const bson_t *record, bson_error_t *error)
{
    struct importing *importing = arg;
    truce_status status;

    cli_progress(&importing->shown, importing->posted + importing->existed, importing->records);
    if (bson_has_field(record, "digits"))
        return truce_ledger_currency(importing->ledger, truce__field_text(record, "currency"),
                                     (int)truce__field_number(record, "digits"), error);
    if (bson_has_field(record, "open") || bson_has_field(record, "rules"))
        return import_set_rules(importing, line, record, error);
    status = import_item(importing, line, record, &importing->items[importing->count], error);
    if (!status && ++importing->count == BATCH)
        status = ledger_import_flush(importing, error);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int import_wrong(const struct importing *importing, truce_status status,
                        const bson_error_t *error)
{
    char line[40];

    snprintf(line, sizeof line, "line %" PRId64, importing->source.line);
    return cli_error(importing->cli, line, status, error);
}

static int ledger_import_finish(const struct importing *importing)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "posted", importing->posted);
    BSON_APPEND_INT64(&answer, "existed", importing->existed);
    BSON_APPEND_INT64(&answer, "refused", importing->refused);
    cli_answer(importing->cli, &answer, "posted %" PRId64 ", existed %" PRId64 ", refused %" PRId64,
               importing->posted, importing->existed, importing->refused);
    bson_destroy(&answer);
    return importing->refused ? CLI_NO : CLI_DONE;
}

static int ledger_import_import_all(struct importing *importing)
{
    bson_error_t error;
    truce_status status;

    importing->source.arg = importing;
    importing->source.function = import_judge;
    status = cli_book_read(&importing->source, &error);
    if (status)
        return import_wrong(importing, status, &error);
    if (cli_flag(importing->cli, "dry-run")) {
        cli_answer(importing->cli, &(bson_t)BSON_INITIALIZER, "%" PRId64 " records, nothing wrong",
                   importing->records);
        return CLI_DONE;
    }
    status = open_missing(importing, &error);
    if (status)
        return cli_error(importing->cli, NULL, status, &error);
    cli_progress_begin(importing->cli, &importing->shown, "booked");
    importing->source.function = book;
    status = cli_book_read(&importing->source, &error);
    if (!status)
        status = ledger_import_flush(importing, &error);
    cli_progress_end(&importing->shown);
    return status ? import_wrong(importing, status, &error) : ledger_import_finish(importing);
}

static int import_read_rules(struct cli *cli, bson_t *rules, bool *given)
{
    const char *path = cli_text(cli, "rules");
    bson_error_t error;
    char *text;
    truce_status status;
    int code;

    bson_init(rules);
    *given = path;
    if (!path)
        return CLI_DONE;
    status = cli_text_file(path, &text, &error);
    if (status)
        return cli_error(cli, "--rules", status, &error);
    bson_destroy(rules);
    code = cli_document(cli, text, "--rules", rules) ? CLI_DONE : CLI_USAGE;
    bson_free(text);
    return code;
}

static int import_text(struct importing *importing, const char *path)
{
    bson_error_t error;
    char *text;
    truce_status status = cli_text_file(path, &text, &error);
    int code;

    if (status)
        return cli_error(importing->cli, NULL, status == TRUCE_IO ? TRUCE_INVALID : status, &error);
    /* programs of Windows begin a file with a mark */
    importing->source.text = strncmp(text, "\xef\xbb\xbf", 3) ? text : text + 3;
    code = cli_store_open(importing->cli, CLI_STORE_CHANGE, &importing->cli->store);
    if (!code) {
        importing->ledger = cli_ledger_new(importing->cli);
        code = ledger_import_import_all(importing);
        truce_ledger_free(importing->ledger);
    }
    bson_free(text);
    return code;
}

static int ledger_import_run(struct cli *cli)
{
    const char *path = cli->arguments[1] ? cli->arguments[1] : "-", *form = cli_text(cli, "form");
    struct importing importing = {.cli = cli, .opens = cli_flag(cli, "open")};
    bool by_rules;
    bson_t rules;
    int code;

    if (!cli_book_form(form, path, &importing.source.form))
        return cli_usage(cli, "--form is ndjson, csv, hledger or beancount%s",
                         form ? "" : ", where the name of the file does not say it");
    if (cli_text(cli, "rules") && importing.source.form != BOOK_CSV)
        return cli_usage(cli, "--rules is for CSV");
    code = import_read_rules(cli, &rules, &by_rules);
    importing.source.rules = by_rules ? &rules : NULL;
    importing.items = bson_malloc0((BATCH + 1) * sizeof *importing.items);
    importing.transactions = bson_malloc0(BATCH * sizeof *importing.transactions);
    importing.results = bson_malloc0(BATCH * sizeof *importing.results);
    if (!code)
        code = import_text(&importing, path);
    for (size_t i = 0; i <= importing.count; i++)
        import_item_release(&importing.items[i]);
    import_names_release(&importing.accounts);
    import_names_release(&importing.currencies);
    bson_free(importing.items);
    bson_free(importing.transactions);
    bson_free(importing.results);
    bson_destroy(&rules);
    return code;
}

const struct cli_command cli_ledger_import = {
    .noun = "ledger",
    .verb = "import",
    .arguments = "LEDGER [FILE]",
    .summary = "post what a file has: NDJSON, CSV, a journal of hledger or beancount",
    .help =
        "The name of the file says the form (.ndjson, .csv, .journal, .beancount), or --form does.\n"
        "A line that is wrong (a syntax error, too many digits, what does not balance, an account\n"
        "or a currency that is not there) refuses the whole file, and nothing is booked. What a\n"
        "rule of an account forbids is told and left out; the exit code is 1 then. The same file\n"
        "again books what is not there yet. A date becomes the value date.\n"
        "\n"
        "--rules FILE says how the lines of another CSV are read:\n"
        "  {account: 'assets:bank', date: '$Booked', dateFormat: '%d.%m.%Y', amount: '$Amount',\n"
        "   decimal: ',', separator: ';', currency: 'EUR', id: '$Reference', description: '$Text',\n"
        "   skip: {Status: 'pending'}, otherwise: 'expenses:unknown',\n"
        "   other: [{if: {Text: {$regex: 'RENT'}}, account: 'expenses:rent'}]}",
    .example =
        "truce ledger currency book EUR 2\n"
        "printf '%s\\n' '2024-01-31 rent' '    expenses:rent  500.00 EUR' '    assets:bank' \\\n"
        "    > january.journal\n"
        "truce ledger import book january.journal --open",
    .options =
        (const struct cli_option[]){
            {"form", 0, "FORM", "ndjson, csv, hledger, beancount", false},
            {"open", 0, NULL, "open accounts and currencies that are not there", false},
            {"rules", 0, "FILE", "how the lines of a CSV are read", false},
            {"dry-run", 'n', NULL, "only look whether anything is wrong", false},
            {0}},
    .store = CLI_STORE_NONE, /* opened when the file is */
    .run = ledger_import_run,
};
