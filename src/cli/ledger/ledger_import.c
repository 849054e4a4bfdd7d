/*
 * truce ledger import: posts the records of a file (book.h) to a book.
 *
 * The whole file is one operation (operations/operation_ledger_book.c), which checks all records
 * before it posts any. Its errors name records; they are printed with the lines of the file.
 */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/book/book.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"

struct reading {
    struct cli *cli;
    bson_t records;
    struct cli_row_lines lines;
};

static truce_status import_take_record(void *arg, int64_t line, const bson_t *record,
                                       bson_error_t *error)
{
    struct reading *reading = arg;
    char buffer[16];
    const char *key;

    (void)error;
    bson_uint32_to_string((uint32_t)reading->lines.count, &key, buffer, sizeof buffer);
    cli_row_lines_add(&reading->lines, line);
    BSON_APPEND_DOCUMENT(&reading->records, key, record);
    return TRUCE_OK;
}

/* Prints the refused transactions with the lines of the file from which their records came. */
static void import_print_refusals(const struct reading *reading, const bson_t *reply)
{
    struct fields refusals =
        truce__fields(truce__value_field(truce__value_document(reply), "refusals", 8));

    while (truce__fields_next(&refusals)) {
        bson_t refusal, document = BSON_INITIALIZER;
        const char *reason;
        int64_t line;

        truce__value_bson(refusals.value, &refusal);
        line = cli_row_line_of(&reading->lines, truce__field_number(&refusal, "record"));
        reason = truce__field_text(&refusal, "reason");
        BCON_APPEND(&document, "line", BCON_INT64(line), "reason", BCON_UTF8(reason));
        cli_report(reading->cli, &document, "line %" PRId64 ": %s", line, reason);
        bson_destroy(&document);
    }
    if (truce__field_true(reply, "more"))
        cli_note(reading->cli, "more lines were refused than are printed");
}

/* Prints the result of the import. Returns CLI_NO if a transaction was refused. */
static int import_print(const struct reading *reading, const bson_t *reply)
{
    int64_t posted = truce__field_number(reply, "posted"),
            existed = truce__field_number(reply, "existed"),
            refused = truce__field_number(reply, "refused");
    bson_t answer = BSON_INITIALIZER;

    if (cli_flag(reading->cli, "dry-run")) {
        BSON_APPEND_INT64(&answer, "records", reading->lines.count);
        cli_answer(reading->cli, &answer, "%s, nothing wrong",
                   PLURAL(reading->lines.count, "record", "records"));
    } else {
        import_print_refusals(reading, reply);
        BCON_APPEND(&answer, "posted", BCON_INT64(posted), "existed", BCON_INT64(existed),
                    "refused", BCON_INT64(refused));
        cli_answer(reading->cli, &answer,
                   "posted %" PRId64 ", existed %" PRId64 ", refused %" PRId64, posted, existed,
                   refused);
    }
    bson_destroy(&answer);
    return refused ? CLI_NO : CLI_DONE;
}

static int import_send(struct reading *reading, const bson_t *request)
{
    bson_t reply;
    int code = cli_row_send_lines(reading->cli, request, &reading->lines, &reply);

    if (!code)
        code = import_print(reading, &reply);
    bson_destroy(&reply);
    return code;
}

/* Reads the records of the text into the request. */
static int import_read_records(struct reading *reading, struct book_source *source, bson_t *request)
{
    bson_error_t error;
    truce_status status;
    char line[40];

    source->function = import_take_record;
    source->arg = reading;
    BSON_APPEND_ARRAY_BEGIN(request, "records", &reading->records);
    status = cli_book_read(source, &error);
    bson_append_array_end(request, &reading->records);
    snprintf(line, sizeof line, "line %" PRId64, source->line);
    return status ? cli_error(reading->cli, line, status, &error) : CLI_DONE;
}

/* Reads the file of --rules. `rules` is always initialized; *given says whether the call has the
 * option. */
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
        return cli_error(cli, "--rules", status == TRUCE_IO ? TRUCE_INVALID : status, &error);
    bson_destroy(rules);
    code = cli_document(cli, text, "--rules", rules) ? CLI_DONE : CLI_USAGE;
    bson_free(text);
    return code;
}

/* Reads all records of the file before it opens the store, and sends them. */
static int import_file(struct cli *cli, struct book_source *source, const char *path)
{
    struct reading reading = {.cli = cli, .lines = {.what = "record"}};
    bson_error_t error;
    bson_t request;
    char *text;
    truce_status status = cli_text_file(path, &text, &error);
    int code;

    if (status)
        return cli_error(cli, NULL, status == TRUCE_IO ? TRUCE_INVALID : status, &error);
    /* Some programs write a byte order mark. */
    source->text = strncmp(text, "\xef\xbb\xbf", 3) ? text : text + 3;
    code = cli_row_request(cli, &request);
    if (!code)
        code = import_read_records(&reading, source, &request);
    bson_free(text);
    if (!code)
        code = cli_store_open(cli, cli_flag(cli, "dry-run") ? CLI_STORE_CHANGE : CLI_STORE_WRITE,
                              &cli->store);
    if (!code)
        code = import_send(&reading, &request);
    bson_free(reading.lines.lines);
    bson_destroy(&request);
    return code;
}

static int ledger_import_run(struct cli *cli)
{
    const char *path = cli->arguments[1] ? cli->arguments[1] : "-";
    struct book_source source = {0};
    bool by_rules;
    bson_t rules;
    int code = cli_book_form(cli, path, &source.form);

    if (code)
        return code;
    if (cli_text(cli, "rules") && source.form != BOOK_CSV)
        return cli_usage(
            cli,
            "--rules needs a CSV file: give --form csv if the file name does not end with .csv");
    code = import_read_rules(cli, &rules, &by_rules);
    source.rules = by_rules ? &rules : NULL;
    if (!code)
        code = import_file(cli, &source, path);
    bson_destroy(&rules);
    return code;
}

static const struct cli_command cli_ledger_import = {
    .noun = "ledger",
    .verb = "import",
    .arguments = "LEDGER [FILE]",
    .summary = "import transactions from a file",
    .help =
        "The name of the file (.ndjson, .csv, .journal, .beancount) or --form selects the form.\n"
        "A wrong line (a syntax error, too many digits, an unbalanced transaction, an unknown\n"
        "account or currency) refuses the whole file, and nothing is posted. A transaction that a\n"
        "rule of an account forbids is printed and skipped (exit code 1). Importing the same file\n"
        "again posts what is missing. A date becomes the value date.\n"
        "\n"
        "--rules FILE describes how to read another CSV file:\n"
        "  {account: 'assets:bank', date: '$Booked', dateFormat: '%d.%m.%Y', amount: '$Amount',\n"
        "   decimal: ',', separator: ';', currency: 'EUR', id: '$Reference', description: "
        "'$Text',\n"
        "   skip: {Status: 'pending'}, otherwise: 'expenses:unknown',\n"
        "   other: [{if: {Text: {$regex: 'RENT'}}, account: 'expenses:rent'}]}",
    .example =
        "truce ledger currency book EUR 2\n"
        "printf '%s\\n' '2024-01-31 rent' '    expenses:rent  500.00 EUR' '    assets:bank' \\\n"
        "    > january.journal\n"
        "truce ledger import book january.journal --open",
    .options = (const struct cli_option[]){CLI_BOOK_FORM_OPTION,
                                           {"rules", 0, "FILE",
                                            "how to read the lines of a CSV file", false},
                                           {0}},
    .row = &(const struct cli_row){.name = "truceLedgerImport",
                                   .named = "--dry-run check",
                                   .fields = "open check"},
    .store = CLI_STORE_NONE, /* The store is opened after the file. */
    .run = ledger_import_run,
};

cli_command_list cli_ledger_import_commands = {&cli_ledger_import, NULL};
