/* truce tree export, import. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/field.h"
#include "bson/json.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"
#include "cli/core/sink.h"
#include "cli/tree/tree.h"

/* ---- export ------------------------------------------------------------------------------------ */

struct exporting {
    struct sink sink;
    struct buffer line;
    struct cli_progress shown;
    int64_t lines, versions;
    bool good; /* else the output cannot be written, which cli_sink_close tells */
};

/* A truce_tree_function. */
static bool lines_write_line(const bson_t *line, void *arg)
{
    struct exporting *exporting = arg;

    exporting->line.size = 0;
    truce__json_write(&exporting->line, line, false, JSON_CANONICAL);
    truce__buffer_append_byte(&exporting->line, '\n');
    exporting->versions += bson_has_field(line, "$version");
    exporting->good = cli_sink_write(&exporting->sink, exporting->line.bytes, exporting->line.size);
    cli_progress(&exporting->shown, ++exporting->lines, 0);
    return exporting->good;
}

static int export_lines(struct cli *cli, struct exporting *exporting, int64_t from)
{
    truce_tree *tree = cli_tree_open(cli);
    bson_error_t error;
    truce_status status;

    cli_progress_begin(cli, &exporting->shown, "lines");
    status = truce_tree_export(tree, from, lines_write_line, exporting, &error);
    cli_progress_end(&exporting->shown);
    truce_tree_free(tree);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int run_export(struct cli *cli)
{
    const char *path = cli_text(cli, "output");
    struct exporting exporting = {.good = true};
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    int64_t from;
    truce_status status;
    int code;

    if (!cli_number(cli, "from", 1, INT64_MAX, 0, &from))
        return CLI_USAGE;
    status = cli_output_check(cli, path, cli->uri, &error);
    if (!status)
        status = cli_sink_open(&exporting.sink, path, &error);
    code = status ? cli_error(cli, NULL, status, &error) : export_lines(cli, &exporting, from);
    truce__buffer_release(&exporting.line);
    status = cli_sink_close(&exporting.sink, !code, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    BSON_APPEND_INT64(&answer, "versions", exporting.versions);
    if (!code && path && strcmp(path, "-"))
        cli_answer(cli, &answer, "exported %" PRId64 " versions", exporting.versions);
    bson_destroy(&answer);
    return code ? code : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_export = {
    .noun = "tree",
    .verb = "export",
    .arguments = "TREE",
    .summary = "write a tree's history as lines, which `truce tree import` reads",
    .help =
        "Each version with its time, message and author, and the items that it put or removed, in\n"
        "canonical Extended JSON; tags at the end. Versions that are published meanwhile are not\n"
        "in it. A file given by --output appears when it is whole.",
    .example = TREE_SAMPLE "truce tree export site --output site.ndjson",
    .options =
        (const struct cli_option[]){
            {"output", 'o', "FILE", "write to a file (else to standard output)", false},
            {"from", 0, "N", "what has changed from that version on (all that is kept)", false},
            {0}},
    .store = CLI_STORE_CHANGE, /* what is written out is held */
    .run = run_export,
};

/* ---- import ------------------------------------------------------------------------------------ */

static int import_line(struct cli *cli, truce_tree_import *import, struct ndjson *input,
                       const struct ndjson_line *line)
{
    bson_t document;
    bson_error_t error;
    const char *wrong = cli_ndjson_document(input, line, &document);
    char where[40];
    truce_status status;

    snprintf(where, sizeof where, "line %" PRId64, line->row);
    if (wrong)
        return cli_usage(cli, "%s: %s; the versions before it stay", where, wrong);
    status = truce_tree_import_line(import, &document, &error);
    return status ? cli_error(cli, where, status, &error) : CLI_DONE;
}

static int import_lines(struct cli *cli, truce_tree_import *import, struct ndjson *input)
{
    enum ndjson_form form;
    struct ndjson_line line = {0};
    struct cli_progress shown;
    bson_error_t error;
    truce_status status = cli_ndjson_detect(input, &form, &error);
    int code = CLI_DONE;

    cli_progress_begin(cli, &shown, "lines");
    while (!code && !status && !(status = cli_ndjson_next(input, &line, &error)) && line.text) {
        code = import_line(cli, import, input, &line);
        cli_progress(&shown, line.row, 0);
    }
    cli_progress_end(&shown);
    return status ? cli_error(cli, NULL, status, &error) : code;
}

static int end_import(struct cli *cli, truce_tree_import *import)
{
    truce_tree_imported imported;
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status = truce_tree_import_end(import, &imported, &error);

    BSON_APPEND_INT64(&answer, "version", imported.version);
    BSON_APPEND_INT64(&answer, "published", imported.published);
    BSON_APPEND_INT64(&answer, "passed", imported.passed);
    if (!status)
        cli_answer(cli, &answer, "%" PRId64 " versions published, %" PRId64 " were there",
                   imported.published, imported.passed);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static int run_import(struct cli *cli)
{
    bson_error_t error;
    struct ndjson *input = cli_ndjson_open(cli->count > 1 ? cli->arguments[1] : "-", &error);
    truce_tree_import *import = NULL;
    truce_tree *tree = NULL;
    int code = input ? cli_store_open(cli, CLI_STORE_INPUT, &cli->store)
                     : cli_error(cli, NULL, TRUCE_INVALID, &error);

    if (!code) {
        tree = cli_tree_open(cli);
        import = truce_tree_import_new(tree);
        code = import_lines(cli, import, input);
        if (!code)
            code = end_import(cli, import);
    }
    truce_tree_import_free(import);
    truce_tree_free(tree);
    cli_ndjson_close(input);
    return code;
}

const struct cli_command cli_tree_import = {
    .noun = "tree",
    .verb = "import",
    .arguments = "TREE [FILE]",
    .summary = "make a tree of the lines that `truce tree export` wrote",
    .help =
        "Versions keep their numbers, times and messages. Versions that the tree has are passed\n"
        "over: an import that was cut off is run again, and a later export --from N is added.",
    .example = TREE_SAMPLE "truce tree export site --output site.ndjson\n"
                           "truce --store other.truce tree import site site.ndjson",
    .options =
        (const struct cli_option[]){{"collection", 0, "NAME",
                                     "of the items, if the tree is made (as the file says)", false},
                                    {0}},
    .store = CLI_STORE_NONE,
    .run = run_import,
};
