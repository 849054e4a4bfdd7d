/* truce ledger report: prints the changes of accounts in each period, or for each value of the
 * metadata, as text, CSV, or a picture. */
#include "cli/ledger/ledger_report.h"

#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/csv.h"
#include "cli/core/operation_row.h"
#include "store/reserved_names.h"

static const char *report_form(const struct cli *cli)
{
    return cli_text(cli, "form") ? cli_text(cli, "form") : "text";
}

static const char *report_by(const struct cli *cli)
{
    return cli_text(cli, "by") ? cli_text(cli, "by") : "month";
}

/* ---- text output ---------------------------------------------------------------------------- */

static bool report_print_cell(const struct report *report, const struct report_cell *cell)
{
    bson_t row = BSON_INITIALIZER;
    bool good;

    BSON_APPEND_UTF8(&row, report_by(report->cli), cell->group);
    BSON_APPEND_UTF8(&row, "account", cell->account);
    cli_ledger_amount(report->cli, "change", cell->change, cell->digits, &row);
    if (report->periods)
        cli_ledger_amount(report->cli, "balance", cell->balance, cell->digits, &row);
    BSON_APPEND_UTF8(&row, "currency", cell->currency);
    good = cli_print(&row, JSON_RELAXED);
    bson_destroy(&row);
    return good;
}

static void report_add_csv(struct buffer *out, const char *text, char end)
{
    cli_csv_write_text(out, text, strlen(text));
    truce__buffer_append_byte(out, (uint8_t)end);
}

/* Writes the report as CSV. Only a report by periods has balances. */
static void report_write_csv(const struct report *report, struct buffer *out)
{
    static const char *const names[] = {"account", "change", "balance", "currency"};
    char amount[TRUCE_LEDGER_AMOUNT];

    report_add_csv(out, report_by(report->cli), ',');
    for (size_t i = 0; i < 4; i++) {
        if (i != 2 || report->periods)
            report_add_csv(out, names[i], i == 3 ? '\n' : ',');
    }
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];

        report_add_csv(out, cell->group, ',');
        report_add_csv(out, cell->account, ',');
        report_add_csv(out, truce_ledger_show(cell->change, cell->digits, amount), ',');
        if (report->periods)
            report_add_csv(out, truce_ledger_show(cell->balance, cell->digits, amount), ',');
        report_add_csv(out, cell->currency, '\n');
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Prints the report as a table, CSV, or a picture. */
static int report_print_all(const struct report *report)
{
    const char *form = report_form(report->cli);
    truce_status status = TRUCE_OK;
    struct buffer out = {0};
    bson_error_t error;
    bool good = true;

    if (!strcmp(form, "text")) {
        cli_ledger_table(report->cli);
        for (uint32_t i = 0; good && i < report->count; i++)
            good = report_print_cell(report, &report->cells[i]);
        return CLI_DONE;
    }
    if (!strcmp(form, "csv"))
        report_write_csv(report, &out);
    else
        status = report_draw(report, &out, &error);
    if (!status)
        (void)cli_write(out.bytes, out.size); /* cli_output_end reports a failure. */
    truce__buffer_release(&out);
    return status ? cli_error(report->cli, NULL, status, &error) : CLI_DONE;
}

/* Explains a report without rows: the name of the ledger or of the account may be misspelled. */
static int report_print_none(struct cli *cli)
{
    const char *ledger = cli->arguments[0], *prefix = cli->arguments[1];
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(ledger)), found;
    truce_status status = truce_find_one(cli->store, LEDGERS, filter, NULL, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    if (status == TRUCE_NOT_FOUND)
        return cli_message(cli, CLI_NO, "the ledger \"%s\" does not exist", ledger);
    if (prefix)
        return cli_message(
            cli, CLI_NO,
            "ledger \"%s\" has no entries in the account \"%s\", or in accounts below it", ledger,
            prefix);
    return CLI_DONE;
}

/* Reads the rows of the reply, whose strings the report borrows. */
static int report_print(struct cli *cli, const bson_t *reply)
{
    struct value rows = truce__value_field(truce__value_document(reply), "rows", 4);
    struct report report = {.cli = cli, .periods = strncmp(report_by(cli), "meta.", 5) != 0};
    struct fields at = truce__fields(rows);
    uint32_t count = 0;
    int code;

    while (truce__fields_next(&at))
        count++;
    report.cells = bson_malloc0((count + 1) * sizeof *report.cells);
    for (at = truce__fields(rows); truce__fields_next(&at);) {
        bson_t row;

        truce__value_bson(at.value, &row);
        report.cells[report.count++] =
            (struct report_cell){.group = truce__field_text(&row, "group"),
                                 .account = truce__field_text(&row, "account"),
                                 .currency = truce__field_text(&row, "currency"),
                                 .digits = (int)truce__field_number(&row, "digits"),
                                 .change = truce__field_number(&row, "change"),
                                 .balance = truce__field_number(&row, "balance")};
    }
    code = report_print_all(&report);
    if (!code && !report.count)
        code = report_print_none(cli);
    bson_free(report.cells);
    return code;
}

static int report_run(struct cli *cli)
{
    static const char *const forms[] = {"text", "csv", "svg"};
    bson_t request, reply;
    int code;

    for (size_t i = 0; strcmp(report_form(cli), forms[i]) != 0;)
        if (++i == sizeof forms / sizeof *forms)
            return cli_usage(cli, "--form must be text, csv, or svg, not \"%s\"", report_form(cli));
    code = cli_row_request(cli, &request);
    bson_init(&reply);
    if (!code) {
        bson_destroy(&reply);
        code = cli_row_send_found(cli, &request, &reply);
    }
    if (!code)
        code = report_print(cli, &reply);
    bson_destroy(&reply);
    bson_destroy(&request);
    return code;
}

static const struct cli_command cli_ledger_report = {
    .noun = "ledger",
    .verb = "report",
    .arguments = "LEDGER [PREFIX]",
    .summary = "report changes by period or metadata",
    .help =
        "Reports a snapshot, by value dates. PREFIX is an account, or the first parts of\n"
        "account names (assets). --depth 1 combines all accounts with the same first part. --form\n"
        "svg draws a picture: lines of the balances, or bars for values of the metadata.",
    .example = "truce ledger currency book EUR 2\n"
               "truce ledger open book external:bank --currency EUR\n"
               "truce ledger open book customers:ada --currency EUR --min 0\n"
               "truce ledger post book external:bank customers:ada 20.00 --id 'payment 1' \\\n"
               "    --effective 2024-01-31\n"
               "truce ledger report book customers --by month\n"
               "truce ledger report book --form svg > book.svg",
    .options =
        (const struct cli_option[]){{"form", 0, "FORM", "text, csv, or svg (default: text)", false},
                                    {0}},
    .row = &(const struct cli_row){.name = "truceLedgerReport"},
    .store = CLI_STORE_READ,
    .run = report_run,
};

cli_command_list cli_ledger_report_commands = {&cli_ledger_report, NULL};
