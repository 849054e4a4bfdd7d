/* truce ledger export: writes a book as a file that truce, hledger, or beancount reads (book.h). */
#include <inttypes.h>
#include <string.h>

#include "cli/book/book.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"
#include "cli/core/progress.h"
#include "cli/ledger/ledger.h"
#include "operations/operation_ledger.h"

struct writing {
    struct book_writer writer;
    struct cli_progress shown;
    int64_t count;
    truce_status status;
    bson_error_t error;
};

static bool export_write(const bson_t *record, void *arg)
{
    struct writing *writing = arg;

    if (writing->status)
        return false;
    cli_progress(&writing->shown, ++writing->count, 0);
    writing->status = cli_book_write(&writing->writer, record, &writing->error);
    return !writing->status;
}

/* Reads the book itself, in one pass over a snapshot. Pages of truceLedgerExport would be of
 * several snapshots, read the whole book for each page, and have a maximum number of accounts. */
static truce_status export_records(struct cli *cli, struct writing *writing, bson_error_t *error)
{
    truce_ledger *ledger =
        truce_ledger_new(cli->store, &(truce_ledger_options){.collection = cli->arguments[0],
                                                             .deadline_ms = cli->deadline_ms});
    truce_status status;

    cli_progress_begin(cli, &writing->shown, "exported");
    status = truce__ledger_records(cli->store, cli->arguments[0], ledger, NULL, export_write,
                                   writing, NULL, error);
    cli_progress_end(&writing->shown);
    truce_ledger_free(ledger);
    if (status || !writing->status)
        return status;
    *error = writing->error;
    /* If the sink failed, closing it reports the error. */
    return writing->writer.broken ? TRUCE_OK : writing->status;
}

/* Writes the book into the file, which appears only when it is complete. Returns the exit code. */
static int ledger_export_write_all(struct cli *cli, struct writing *writing, const char *path)
{
    bson_t answer = BSON_INITIALIZER;
    struct sink sink;
    bson_error_t error;
    truce_status closed, status = cli_output_check(cli, path, cli->uri, &error);

    if (!status)
        status = cli_sink_open(&sink, path, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    writing->writer.sink = &sink;
    status = export_records(cli, writing, &error);
    closed = cli_sink_close(&sink, !status, status ? NULL : &error);
    status = status ? status : closed;
    if (!status && writing->writer.broken)
        return CLI_FAILED;
    if (status)
        return cli_error(cli, NULL, status, &error);
    BSON_APPEND_INT64(&answer, "exported", writing->count);
    if (path && strcmp(path, "-") != 0)
        cli_answer(cli, &answer, "exported %" PRId64, writing->count);
    bson_destroy(&answer);
    return CLI_DONE;
}

static int ledger_export_run(struct cli *cli)
{
    const char *path = cli->arguments[1];
    struct writing writing = {.count = 0};
    int code = cli_book_form(cli, path, &writing.writer.form);

    if (!code)
        code = ledger_export_write_all(cli, &writing, path);
    cli_book_writer_release(&writing.writer);
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
    .options = (const struct cli_option[]){CLI_BOOK_FORM_OPTION, {0}},
    .row = &(const struct cli_row){.name = "truceLedgerExport", .fields = ""},
    .store = CLI_STORE_READ,
    .run = ledger_export_run,
};

cli_command_list cli_ledger_export_commands = {&cli_ledger_export, NULL};
