/* truce export: documents as NDJSON that truce import reads back exactly. */
#include <inttypes.h>
#include <string.h>

#include "base/fingerprint.h"
#include "cli/commands.h"
#include "cli/moment.h"
#include "cli/plain.h"
#include "cli/progress.h"
#include "cli/query.h"
#include "cli/sink.h"

struct export
{
    const struct cli *cli;
    struct sink sink;
    bool to_file; /* then there is room for an answer on standard output */
    enum json_form form;
    int64_t count, total;
    struct fingerprint hash;
    truce_store *view; /* the moment that is written; NULL: the store has none to give */
    int64_t pinned;
};

/* How many there will be, for the progress; 0: not known. */
static int64_t count_all(const struct export *export, const struct cli_query *query)
{
    const struct cli *cli = export->cli;
    int64_t count;

    return truce_count(export->view ? export->view : cli->store, cli->arguments[0], &query->filter,
                       &query->counting, &count, NULL)
               ? 0
               : count;
}

static int write_all(struct export *export, const struct cli_query *query, truce_cursor *cursor)
{
    struct cli_progress progress;
    struct buffer line = {0};
    struct plain *plain = cli_plain_new(export->cli, export->cli->arguments[0]);
    const bson_t *document;
    bson_t shown;
    bson_error_t error;
    truce_status status;
    bool good = true;

    cli_progress_begin(export->cli, &progress, "exported");
    progress.view = export->view;
    if (progress.on)
        export->total = count_all(export, query);
    for (;;) {
        status = truce_cursor_next(cursor, &document, &error);
        if (status || !document || !good)
            break;
        line.size = 0;
        if (plain) {
            cli_plain(plain, document, &shown);
            document = &shown;
        }
        truce__json_write(&line, document, false, export->form);
        truce__buffer_append_byte(&line, '\n');
        truce__fingerprint_add(&export->hash, bson_get_data(document), document->len);
        good = fwrite(line.bytes, 1, line.size, export->sink.file) == line.size;
        if (plain)
            bson_destroy(&shown);
        cli_progress(&progress, ++export->count, export->total);
    }
    cli_progress_end(&progress);
    truce__buffer_release(&line);
    cli_plain_free(plain);
    return status ? cli_error(export->cli, NULL, status, &error) : CLI_DONE;
}

static void answer(const struct export *export)
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

static int run(struct cli *cli)
{
    struct export export = {.cli = cli,
                            .form = cli_flag(cli, "relaxed") ? JSON_RELAXED : JSON_CANONICAL};
    const char *path = cli_text(cli, "output");
    struct cli_query query;
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    export.to_file = path && strcmp(path, "-") != 0;
    if (!code)
        code = cli_moment_take(cli, cli->store, &export.view);
    if (!code) {
        status = truce_find(export.view ? export.view : cli->store, cli->arguments[0],
                            &query.filter, &query.options, &cursor, &error);
        if (!status)
            status = cli_sink_open(&export.sink, path, &error);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
    }
    if (!code)
        code = write_all(&export, &query, cursor);
    truce_cursor_close(cursor);
    export.pinned = cli_moment_pinned(export.view);
    truce_store_close(export.view);
    status = cli_sink_close(&export.sink, !code, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    if (!code)
        answer(&export);
    if (!code && export.to_file)
        cli_moment_tell(cli, export.pinned);
    cli_query_release(&query);
    return code;
}

const struct cli_command cli_export = {
    .noun = "export",
    .arguments = "COLLECTION [FILTER]",
    .summary = "write the documents that match as NDJSON, every type kept",
    .help = "The output is canonical Extended JSON, which truce import and MongoDB's tools read\n"
            "back exactly. It shows one moment, whoever writes meanwhile; what is written is kept\n"
            "in the log of the store until it is done. A file given by --output appears when it\n"
            "is whole.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce export students --output students.ndjson",
    .options =
        (const struct cli_option[]){
            {"output", 'o', "FILE", "write to a file (else to standard output)", false},
            {"relaxed", 0, NULL, "numbers and dates as people write them", false},
            CLI_PLAIN_OPTION,
            CLI_SORT_OPTION,
            CLI_PROJECTION_OPTION,
            CLI_SKIP_OPTION,
            CLI_LIMIT_OPTION,
            CLI_HINT_OPTION,
            CLI_MOMENT_OPTIONS,
            {0}},
    .store = CLI_STORE_READ,
    .run = run,
};
