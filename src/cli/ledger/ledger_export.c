/* truce ledger export: writes a book as a file that truce, hledger, or beancount reads (book.h). */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "cli/book/book.h"
#include "cli/commands.h"
#include "cli/core/progress.h"
#include "cli/ledger/ledger.h"

struct exporting {
    struct cli *cli;
    truce_ledger *ledger;
    struct book_writer writer;
    struct cli_progress shown;
    bson_t currencies; /* those that were already written */
    int64_t count;
    truce_status status;
    bson_error_t error;
};

static bool export_fails(struct exporting *exporting, truce_status status)
{
    exporting->status = status;
    return status != TRUCE_OK;
}

static truce_status export_write_record(struct exporting *exporting, const bson_t *record)
{
    return cli_book_write(&exporting->writer, record, &exporting->error);
}

/* Returns the digits of a currency. A record of it is written before its first use. */
static truce_status export_digits_of(struct exporting *exporting, const char *currency, int *digits)
{
    bson_t record = BSON_INITIALIZER;
    truce_status status =
        truce_ledger_digits(exporting->ledger, currency, digits, &exporting->error);

    if (!status && !bson_has_field(&exporting->currencies, currency)) {
        BSON_APPEND_BOOL(&exporting->currencies, currency, true);
        BSON_APPEND_UTF8(&record, "currency", currency);
        BSON_APPEND_INT32(&record, "digits", *digits);
        status = export_write_record(exporting, &record);
    }
    bson_destroy(&record);
    return status;
}

static void append_date(const bson_t *document, const char *field, const char *name, bson_t *record)
{
    char text[DATE_TEXT_MAX];
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_DATE_TIME(&iter))
        BSON_APPEND_UTF8(record, name, truce__date_show(bson_iter_date_time(&iter), text));
}

static void append_amount(bson_t *record, const char *name, int64_t value, int digits)
{
    char text[TRUCE_LEDGER_AMOUNT];

    bson_append_utf8(record, name, -1, truce_ledger_show(value, digits, text), -1);
}

/* ---- accounts ------------------------------------------------------------------------------- */

static truce_status tell_rules(struct exporting *exporting, const char *kind, const bson_t *change)
{
    bson_t record = BSON_INITIALIZER, set;
    const char *currency;
    bson_iter_t iter;
    const uint8_t *data;
    uint32_t length;
    int digits = 0;
    truce_status status;

    if (!bson_iter_init_find(&iter, change, "set") || !BSON_ITER_HOLDS_DOCUMENT(&iter))
        return truce__fail(TRUCE_CORRUPT, &exporting->error, "an account without its rules");
    bson_iter_document(&iter, &length, &data);
    bson_init_static(&set, data, length);
    currency = truce__field_text(&set, "currency");
    status = export_digits_of(exporting, currency, &digits);
    BSON_APPEND_UTF8(&record, kind, truce__field_text(change, "account"));
    BSON_APPEND_UTF8(&record, "currency", currency);
    for (const char *const *name = (const char *const[]){"min", "max", NULL}; *name; name++) {
        if (bson_has_field(&set, *name))
            append_amount(&record, *name, truce__field_number(&set, *name), digits);
    }
    for (const char *const *name = (const char *const[]){"debitOnly", "creditOnly", "closed", NULL};
         *name; name++) {
        if (bson_has_field(&set, *name))
            bson_append_bool(&record, *name, -1, true);
    }
    if (!status)
        status = export_write_record(exporting, &record);
    bson_destroy(&record);
    return status;
}

/* ---- transactions --------------------------------------------------------------------------- */

static truce_status export_append_entry(struct exporting *exporting, const bson_t *change,
                                        bson_t *entry)
{
    const char *account = truce__field_text(change, "account"),
               *currency = truce__field_text(change, "currency"),
               *type = truce__field_text(change, "type");
    int64_t value = truce__field_number(change, "value");
    truce_ledger_balance balance = {{0}};
    truce_status status = TRUCE_OK;
    int digits = 0;

    if (!*currency) { /* inserted by other programs */
        status =
            truce_ledger_balance_of(exporting->ledger, account, NULL, &balance, &exporting->error);
        currency = balance.currency;
    }
    if (!status)
        status = export_digits_of(exporting, currency, &digits);
    BSON_APPEND_UTF8(entry, "account", account);
    append_amount(entry, "amount", value, digits);
    BSON_APPEND_UTF8(entry, "currency", currency);
    if (*type && strcmp(type, value < 0 ? "withdraw" : "deposit") != 0)
        BSON_APPEND_UTF8(entry, "type", type);
    return status;
}

static truce_status export_append_entries(struct exporting *exporting, const bson_t *document,
                                          bson_t *record)
{
    bson_iter_t iter, changes;
    bson_t entries, entry;
    uint32_t count = 0;
    truce_status status = TRUCE_OK;

    bson_append_array_begin(record, "entries", 7, &entries);
    if (bson_iter_init_find(&iter, document, "changes") && bson_iter_recurse(&iter, &changes)) {
        while (!status && bson_iter_next(&changes)) {
            const uint8_t *data;
            uint32_t length;
            bson_t change;
            char key[16];

            bson_iter_document(&changes, &length, &data);
            bson_init_static(&change, data, length);
            if (!truce__field_number(&change, "value"))
                continue;
            snprintf(key, sizeof key, "%u", count++);
            bson_append_document_begin(&entries, key, -1, &entry);
            status = export_append_entry(exporting, &change, &entry);
            bson_append_document_end(&entries, &entry);
        }
    }
    bson_append_array_end(record, &entries);
    return status;
}

static void export_append_as(const bson_t *document, const char *field, const char *name,
                             bson_t *record)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, field))
        bson_append_iter(record, name, -1, &iter);
}

/* Returns true if the transaction is still pending. One that was settled in time would be too late
 * in an import. */
static bool export_is_open(struct exporting *exporting, const bson_t *document)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_iter_t iter;
    truce_status status;

    if (!bson_has_field(document, "open") || !bson_iter_init_find(&iter, document, "_id")) {
        bson_destroy(&filter);
        return false;
    }
    bson_append_iter(&filter, "resolves", -1, &iter);
    status = truce_find_one(exporting->cli->store, exporting->cli->arguments[0], &filter, NULL,
                            &found, NULL);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND;
}

static const char *export_kind_of(const bson_t *document)
{
    const char *kind = truce__field_text(document, "kind");

    if (!strcmp(kind, "expire"))
        return "void";
    if (*kind)
        return kind;
    return strcmp(truce__field_text(document, "state"), "PENDING") ? "transfer" : "pending";
}

static truce_status tell_transaction(struct exporting *exporting, const bson_t *document)
{
    bool dated = bson_has_field(document, "effective");
    bson_t record = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    export_append_as(document, "_id", "id", &record);
    BSON_APPEND_UTF8(&record, "kind", export_kind_of(document));
    export_append_as(document, "resolves", "of", &record);
    export_append_as(document, "part", "part", &record);
    append_date(document, dated ? "effective" : "ts", "date", &record);
    if (export_is_open(exporting, document))
        append_date(document, "expires", "expires", &record);
    if (strcmp(truce__field_text(&record, "kind"), "void") != 0)
        status = export_append_entries(exporting, document, &record);
    export_append_as(document, "meta", "meta", &record);
    if (!status)
        status = export_write_record(exporting, &record);
    bson_destroy(&record);
    return status;
}

static bool export_tell(const bson_t *document, void *arg)
{
    struct exporting *exporting = arg;
    const char *kind = truce__field_text(document, "kind"),
               *state = truce__field_text(document, "state");
    bson_iter_t iter, change;

    cli_progress(&exporting->shown, ++exporting->count, 0);
    if (!strcmp(kind, "open") || !strcmp(kind, "rules")) {
        const uint8_t *data = NULL;
        uint32_t length = 0;
        bson_t first;

        if (bson_iter_init_find(&iter, document, "changes") && bson_iter_recurse(&iter, &change) &&
            bson_iter_next(&change))
            bson_iter_document(&change, &length, &data);
        return data && bson_init_static(&first, data, length) &&
               !export_fails(exporting, tell_rules(exporting, kind, &first));
    }
    if (strcmp(state, "VALID") != 0 && strcmp(state, "PENDING") != 0 &&
        (strcmp(state, "VOID") != 0 || !*kind))
        return true; /* it has no effect, and only other programs know what it is */
    return !export_fails(exporting, tell_transaction(exporting, document));
}

static int export_finish(struct exporting *exporting, const char *path)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "exported", exporting->count);
    if (path && strcmp(path, "-") != 0)
        cli_answer(exporting->cli, &answer, "exported %" PRId64, exporting->count);
    bson_destroy(&answer);
    return CLI_DONE;
}

static int ledger_export_write_all(struct exporting *exporting, const char *path)
{
    struct sink sink;
    bson_error_t error;
    truce_status closed,
        status = cli_output_check(exporting->cli, path, exporting->cli->uri, &error);

    if (!status)
        status = cli_sink_open(&sink, path, &error);
    if (status)
        return cli_error(exporting->cli, NULL, status, &error);
    exporting->writer.sink = &sink;
    cli_progress_begin(exporting->cli, &exporting->shown, "exported");
    status = truce_ledger_walk(exporting->ledger, export_tell, exporting, &error);
    cli_progress_end(&exporting->shown);
    if (!status && exporting->status) {
        status = exporting->status;
        error = exporting->error;
    }
    if (exporting->writer.broken)
        status = TRUCE_OK; /* the sink has the reason */
    closed = cli_sink_close(&sink, !status, status ? NULL : &error);
    status = status ? status : closed;
    if (!status && exporting->writer.broken)
        return CLI_FAILED;
    return status ? cli_error(exporting->cli, NULL, status, &error)
                  : export_finish(exporting, path);
}

static int ledger_export_run(struct cli *cli)
{
    const char *path = cli->arguments[1], *form = cli_text(cli, "form");
    struct exporting exporting = {.cli = cli};
    int code;

    if (!cli_book_form(form, path, &exporting.writer.form))
        return cli_usage(cli, "--form must be ndjson, csv, hledger, or beancount%s",
                         form ? "" : "; the name of the file does not tell the form");
    bson_init(&exporting.currencies);
    exporting.ledger = cli_ledger_new(cli);
    code = ledger_export_write_all(&exporting, path);
    truce_ledger_free(exporting.ledger);
    cli_book_writer_release(&exporting.writer);
    bson_destroy(&exporting.currencies);
    return code;
}

static const struct cli_command cli_ledger_export = {
    .noun = "ledger",
    .verb = "export",
    .arguments = "LEDGER [FILE]",
    .summary = "export a book as NDJSON, CSV, hledger, or beancount",
    .help =
        "Writes a snapshot, in an order in which `truce ledger import` can post it again.\n"
        "The name of the file (.ndjson, .csv, .journal, .beancount) or --form selects the form.\n"
        "hledger and beancount compute the same balances. Comments have the data that they have\n"
        "no syntax for (rules, pending entries). beancount's account names are made of yours.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1'\n"
               "truce ledger export book --form hledger",
    .options =
        (const struct cli_option[]){{"form", 0, "FORM", "ndjson, csv, hledger, beancount", false},
                                    {0}},
    .store = CLI_STORE_READ,
    .run = ledger_export_run,
};

cli_command_list cli_ledger_export_commands = {&cli_ledger_export, NULL};
