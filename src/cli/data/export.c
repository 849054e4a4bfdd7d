/*
 * truce export: writes documents as NDJSON or as one array, which truce import reads back exactly,
 * or as CSV.
 *
 * CSV names its columns in the first line. Without --fields, the documents are therefore read twice
 * in one snapshot: first for their fields, then for their values.
 */
#include <inttypes.h>
#include <string.h>

#include "base/fingerprint.h"
#include "cli/commands.h"
#include "cli/core/csv_columns.h"
#include "cli/core/file_sink.h"
#include "cli/core/plain_output.h"
#include "cli/core/progress.h"
#include "cli/core/snapshot_option.h"
#include "cli/data/view.h"

struct export
{
    const struct cli *cli;
    struct sink sink;
    /* The documents go to a file, so a result can be printed. */
    bool to_file;
    enum json_form form;
    bool array;
    /* The columns of CSV, or NULL. */
    struct columns *columns;
    /* For --plain, or NULL if documents are written unchanged. */
    struct plain *plain;
    int64_t count, total;
    struct fingerprint hash;
    /* The snapshot that is exported, or NULL if the store does not support snapshots. */
    truce_store *view;
    int64_t pinned;
};

/* Counts the documents for the progress; 0 if the number is unknown. */
static int64_t export_count_all(const struct export *export, const struct cli_query *query)
{
    const struct cli *cli = export->cli;
    int64_t count;

    if (cli->is_view)
        return 0;
    return truce_count(export->view ? export->view : cli->store, cli->arguments[0], &query->filter,
                       &query->counting, &count, NULL)
               ? 0
               : count;
}

/* Receives each document of the export. */
typedef truce_status take_function(struct export *export, const bson_t *document, void *arg,
                                   bson_error_t *error);

/* Calls `take` for each document of the query, in the snapshot if there is one. */
static truce_status for_each(struct export *export, const struct cli_query *query,
                             take_function *take, void *arg, bson_error_t *error)
{
    truce_store *store = export->view ? export->view : export->cli->store;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_t shown;
    truce_status status = cli_query_find(export->cli, store, query, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (export->plain)
            cli_plain(export->plain, document, &shown);
        status = take(export, export->plain ? &shown : document, arg, error);
        if (export->plain)
            bson_destroy(&shown);
    }
    truce_cursor_close(cursor);
    return status;
}

static truce_status export_learn(struct export *export, const bson_t *document, void *arg,
                                 bson_error_t *error)
{
    (void)arg;
    return cli_columns_learn(export->columns, document, error);
}

struct writing {
    struct cli_progress progress;
    struct buffer line;
    /* False if the output cannot be written. cli_sink_close or cli_output_end reports the error. */
    bool good;
};

/* Writes a document, and adds it to the fingerprint. Returns IO without a message if the output
 * cannot be written: closing it reports the error. */
static truce_status export_write_line(struct export *export, const bson_t *document, void *arg,
                                      bson_error_t *error)
{
    struct writing *writing = arg;
    truce_status status = TRUCE_OK;

    writing->line.size = 0;
    if (export->columns) {
        status = cli_columns_row(export->columns, document, &writing->line, error);
    } else {
        if (export->array)
            truce__buffer_append(&writing->line, export->count ? ",\n" : "[\n", 2);
        truce__json_write(&writing->line, document, false, export->form);
        if (!export->array)
            truce__buffer_append_byte(&writing->line, '\n');
    }
    truce__fingerprint_add(&export->hash, bson_get_data(document), document->len);
    if (!status)
        writing->good = cli_sink_write(&export->sink, writing->line.bytes, writing->line.size);
    cli_progress(&writing->progress, ++export->count, export->total);
    return writing->good ? status : TRUCE_IO;
}

static bool export_write_text(struct export *export, const char *text)
{
    return cli_sink_write(&export->sink, text, strlen(text));
}

/* Writes the header and all documents. If the output cannot be written, returns CLI_DONE: closing
 * it reports the error. */
static int export_write_all(struct export *export, const struct cli_query *query)
{
    struct writing writing = {.good = true};
    bson_error_t error;
    truce_status status;

    cli_progress_begin(export->cli, &writing.progress, "exported");
    writing.progress.view = export->view;
    if (writing.progress.on)
        export->total = export_count_all(export, query);
    if (export->columns) {
        cli_columns_header(export->columns, &writing.line);
        (void)cli_sink_write(&export->sink, writing.line.bytes, writing.line.size);
    }
    status = for_each(export, query, export_write_line, &writing, &error);
    if (!status && export->array)
        (void)export_write_text(export, export->count ? "\n]\n" : "[]\n");
    cli_progress_end(&writing.progress);
    truce__buffer_release(&writing.line);
    return status && writing.good ? cli_error(export->cli, NULL, status, &error) : CLI_DONE;
}

/* Reads --array, --csv, and --fields. Sets `columns` for CSV. */
static int export_read_form(struct export *export)
{
    const struct cli *cli = export->cli;
    const char *fields = cli_text(cli, "fields");
    bson_error_t error;

    export->array = cli_flag(cli, "array");
    if (export->array && cli_flag(cli, "csv"))
        return cli_usage(cli, "--array and --csv exclude each other");
    if (fields && !cli_flag(cli, "csv"))
        return cli_usage(
            cli, "--fields needs --csv: use --projection to select fields in the other formats");
    if (!cli_flag(cli, "csv"))
        return CLI_DONE;
    export->columns = cli_columns_new(fields, &error);
    return export->columns ? CLI_DONE : cli_error(cli, "--fields", TRUCE_INVALID, &error);
}

static int find_columns(struct export *export, const struct cli_query *query)
{
    bson_error_t error;
    truce_status status;

    if (!export->columns || cli_columns_are_named(export->columns))
        return CLI_DONE;
    status = for_each(export, query, export_learn, NULL, &error);
    return status ? cli_error(export->cli, NULL, status, &error) : CLI_DONE;
}

static void export_answer(const struct export *export)
{
    bson_t document = BSON_INITIALIZER;
    char hash[FINGERPRINT_TEXT];

    truce__fingerprint_text(&export->hash, hash);
    BSON_APPEND_INT64(&document, "exported", export->count);
    BSON_APPEND_UTF8(&document, "hash", hash);
    BSON_APPEND_INT64(&document, "pinned_bytes", export->pinned);
    if (export->to_file)
        cli_answer(export->cli, &document, "exported %" PRId64, export->count);
    bson_destroy(&document);
}

static int export_run(struct cli *cli)
{
    struct export export = {.cli = cli,
                            .form = cli_flag(cli, "relaxed") ? JSON_RELAXED : JSON_CANONICAL};
    const char *path = cli_text(cli, "output");
    struct cli_query query;
    bson_error_t error;
    truce_status status;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    export.to_file = path && strcmp(path, "-") != 0;
    if (!code)
        code = export_read_form(&export);
    if (!code)
        code = cli->is_view ? cli_view_snapshot(cli, &export.view)
                            : cli_snapshot_take(cli, cli->store, &export.view);
    export.plain = cli_plain_new(cli, cli->arguments[0]);
    if (!code)
        code = find_columns(&export, &query);
    if (!code) {
        status = cli_output_check(cli, path, cli->uri, &error);
        if (!status)
            status = cli_sink_open(&export.sink, path, &error);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
    }
    if (!code)
        code = export_write_all(&export, &query);
    cli_plain_free(export.plain);
    cli_columns_free(export.columns);
    export.pinned = cli_snapshot_pinned(export.view);
    truce_store_close(export.view);
    status = cli_sink_close(&export.sink, !code, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    if (!code)
        export_answer(&export);
    if (!code && !export.count)
        cli_note_missing_collection(cli);
    if (!code && export.to_file)
        cli_snapshot_report(cli, export.pinned);
    cli_query_release(&query);
    return code;
}

static const struct cli_command cli_export = {
    .noun = "export",
    .arguments = "COLLECTION [FILTER]",
    .summary = "export matching documents as NDJSON, an array, or CSV",
    .help = "The output is canonical Extended JSON, which truce import and MongoDB's tools read\n"
            "back exactly. CSV is for other programs: it has a column for each field, or for\n"
            "those of --fields. Dates are in ISO 8601, arrays and documents in Extended JSON.\n"
            "\n"
            "The output is a snapshot. Writes in the meantime stay in the log of the store until\n"
            "the export ends. The file of --output appears when it is complete.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce export students --output students.ndjson",
    .options =
        (const struct cli_option[]){
            {"output", 'o', "FILE", "write to a file (default: standard output)", false},
            {"array", 0, NULL, "write one array instead of one document per line", false},
            {"csv", 0, NULL, "write CSV, with the names of the fields in the first line", false},
            {"fields", 0, "PATHS", "the columns of --csv: name,address.city", false},
            {"relaxed", 0, NULL, "write numbers and dates in their short form", false},
            CLI_PLAIN_OPTION,
            CLI_SORT_OPTION,
            CLI_PROJECTION_OPTION,
            CLI_SKIP_OPTION,
            CLI_LIMIT_OPTION,
            CLI_HINT_OPTION,
            CLI_SNAPSHOT_OPTIONS,
            {0}},
    .store = CLI_STORE_READ,
    .reads_views = true,
    .run = export_run,
};

cli_command_list cli_export_commands = {&cli_export, NULL};
