/* truce tree publish, revert, tag, untag, keep, erase, gc, branch, merge, drop, export, import,
 * read, log, diff, status, list. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/plural.h"
#include "bson/date.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/file_sink.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"
#include "cli/core/progress.h"

#define TREE_SAMPLE                                                                                \
    "printf '%s\\n' '{\"itemId\": \"home\"}' '{\"itemId\": \"about\", \"up\": \"home\"}' |\n"      \
    "    truce tree publish site --collection pages --parent up\n"

/* ---- branches -------------------------------------------------------------------------------- */

#define BRANCH_SAMPLE                                                                              \
    TREE_SAMPLE "truce tree branch site draft\n"                                                   \
                "echo '{\"itemId\": \"jobs\", \"up\": \"home\"}' | truce tree publish draft\n"

/* ---- branch ---------------------------------------------------------------------------------- */

static const struct cli_command cli_tree_branch = {
    .noun = "tree",
    .verb = "branch",
    .arguments = "TREE NAME",
    .summary = "create a branch of a tree",
    .help = "A branch is a tree of its own that begins as a version of another one. `truce tree\n"
            "merge` merges the two in either direction. Its items are copied.",
    .example = TREE_SAMPLE "truce tree branch site draft",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTree",
                                   .named = "NAME branch",
                                   .fields = "version",
                                   .format = "{branch} is a branch of {tree}"},
    .run = cli_row_run,
};

/* ---- merge ----------------------------------------------------------------------------------- */

static bool tree_is_conflict(const bson_t *reply)
{
    return !strcmp(truce__field_text(reply, "outcome"), "conflict");
}

static void tree_print_conflicts(const bson_t *reply)
{
    struct fields conflicts = truce__fields(
        truce__value_field(truce__value_document(reply), "conflicts", strlen("conflicts")));

    while (truce__fields_next(&conflicts)) {
        bson_t one;

        truce__value_bson(conflicts.value, &one);
        cli_print(&one, JSON_RELAXED);
    }
}

static bool tree_print_merged(struct cli *cli, const bson_t *reply)
{
    long long version = (long long)truce__field_number(reply, "version");
    const char *tree = cli->arguments[0];

    if (!tree_is_conflict(reply))
        return strcmp(truce__field_text(reply, "outcome"), "nothing")
                   ? cli_put("version %lld of %s has the changes of %s\n", version, tree,
                             cli->arguments[1])
                   : cli_put("nothing to merge; version %lld of %s is current\n", version, tree);
    tree_print_conflicts(reply);
    (void)cli_message(cli, CLI_NO, "%s", truce__field_text(reply, "reason"));
    return true;
}

static const struct cli_command cli_tree_merge = {
    .noun = "tree",
    .verb = "merge",
    .arguments = "TREE OTHER",
    .summary = "merge changes of a branch or of the origin",
    .help =
        "Merges the changes since the last merge. Items that both changed are merged. Conflicts\n"
        "are printed, nothing is published, and the exit code is 1.",
    .example = BRANCH_SAMPLE "truce tree merge site draft",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTree",
                                   .named = "OTHER merge",
                                   .fields = "prefer rules message author",
                                   .negative = tree_is_conflict,
                                   .print = tree_print_merged},
    .run = cli_row_run,
};

/* ---- drop ------------------------------------------------------------------------------------ */

static const struct cli_command cli_tree_drop = {
    .noun = "tree",
    .verb = "drop",
    .arguments = "TREE",
    .summary = "remove a tree or a branch with all its versions",
    .help = "Removes its items, log, and tags permanently. A tree with branches is refused.",
    .example = TREE_SAMPLE "truce tree branch site draft\n"
                           "truce tree drop draft",
    .store = CLI_STORE_CHANGE,
    .row =
        &(const struct cli_row){
            .name = "truceTree", .set = "{drop: true}", .fields = "", .format = "dropped {tree}"},
    .run = cli_row_run,
};

/* ---- export and import ----------------------------------------------------------------------- */

/* ---- export ---------------------------------------------------------------------------------- */

#define TREE_EXPORT_LINES 100000 /* The maximum number of lines in one reply. */

struct tree_lines {
    struct sink sink;
    struct buffer line;
    struct cli_progress shown;
    int64_t lines, versions;
    /* The output could not be written. Closing it reports the error. */
    bool broken;
};

/* The file of the running export. The process runs one export. */
static struct tree_lines tree_out;

static bool tree_write_line(struct cli *cli, const bson_t *line)
{
    struct tree_lines *out = &tree_out;

    (void)cli;
    out->line.size = 0;
    truce__json_write(&out->line, line, false, JSON_CANONICAL);
    truce__buffer_append_byte(&out->line, '\n');
    out->versions += bson_has_field(line, "$version");
    cli_progress(&out->shown, ++out->lines, 0);
    out->broken = !cli_sink_write(&out->sink, out->line.bytes, out->line.size);
    return !out->broken;
}

static int tree_export_lines(struct cli *cli)
{
    int code;

    cli_progress_begin(cli, &tree_out.shown, "lines");
    code = cli_row_run(cli);
    cli_progress_end(&tree_out.shown);
    truce__buffer_release(&tree_out.line);
    return tree_out.broken ? CLI_DONE : code;
}

static int run_export(struct cli *cli)
{
    const char *path = cli_text(cli, "output");
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status = cli_output_check(cli, path, cli->uri, &error);
    int code;

    if (!status)
        status = cli_sink_open(&tree_out.sink, path, &error);
    if (status) {
        bson_destroy(&answer);
        return cli_error(cli, NULL, status, &error);
    }
    code = tree_export_lines(cli);
    status = cli_sink_close(&tree_out.sink, !code, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    BSON_APPEND_INT64(&answer, "versions", tree_out.versions);
    if (!code && path && strcmp(path, "-"))
        cli_answer(cli, &answer, "exported %s", PLURAL(tree_out.versions, "version", "versions"));
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_tree_export = {
    .noun = "tree",
    .verb = "export",
    .arguments = "TREE",
    .summary = "export the history of a tree",
    .help = "Writes each version with its time, message, author, and changed items, in\n"
            "canonical Extended JSON, and the tags at the end. Versions that are published in the\n"
            "meantime are not included. If a version is collected in the meantime, the export\n"
            "fails: export again. The file of --output appears when it is complete.",
    .example = TREE_SAMPLE "truce tree export site --output site.ndjson",
    .options =
        (const struct cli_option[]){
            {"output", 'o', "FILE", "write to a file (default: standard output)", false}, {0}},
    .row = &(const struct cli_row){.name = "truceTreeExport",
                                   .fields = "from",
                                   .list = "lines",
                                   .next = "",
                                   .page = TREE_EXPORT_LINES,
                                   .all = true,
                                   .print = tree_write_line,
                                   .prints_json = true},
    /* The export writes to the store, because it holds the versions that it reads. */
    .store = CLI_STORE_CHANGE,
    .run = run_export,
};

/* ---- the import ------------------------------------------------------------------------------ */

/* Publishes each version while its lines are read. A version may be larger than a request of
 * truceTreeImport, so the lines go to the store itself. */

/* Passes a line on to the import. After an error, the versions before it stay imported. */
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
        return cli_usage(cli, "%s: %s; the versions before it were imported", where, wrong);
    status = truce_tree_import_line(import, &document, &error);
    return status ? cli_error(cli, where, status, &error) : CLI_DONE;
}

/* Reads all lines of the file. Returns the exit code. */
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
        cli_answer(cli, &answer, "%s published, %" PRId64 " already there",
                   PLURAL(imported.published, "version", "versions"), imported.passed);
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
        tree = truce_tree_new(cli->store,
                              &(truce_tree_options){.name = cli->arguments[0],
                                                    .collection = cli_text(cli, "collection"),
                                                    .deadline_ms = cli->deadline_ms});
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

static const struct cli_command cli_tree_import = {
    .noun = "tree",
    .verb = "import",
    .arguments = "TREE [FILE]",
    .summary = "import the history of a tree",
    .help =
        "Versions keep their numbers, times, and messages. Versions that the tree already has are\n"
        "skipped: repeat an interrupted import, or add a later export --from N.",
    .example = TREE_SAMPLE "truce tree export site --output site.ndjson\n"
                           "truce --store other.truce tree import site site.ndjson",
    .row = &(const struct cli_row){.name = "truceTreeImport", .fields = "collection"},
    .store = CLI_STORE_NONE,
    .run = run_import,
};

/* ---- read, log, diff, status ----------------------------------------------------------------- */

/* Returns the origin in a status, or "" if the tree is not a branch. Borrowed from the reply. */
static const char *cli_tree_origin(const bson_t *reply)
{
    bson_t from;

    return truce__value_subdocument(reply, "from", &from) ? truce__field_text(&from, "tree") : "";
}

#define TREE_READ       "version tag timeMS token filter sort limit"
#define TREE_READ_NAMED "--at timeMS"

/* ---- read ------------------------------------------------------------------------------------ */

static int tree_show_run_read(struct cli *cli)
{
    static const struct cli_row one = {
        .name = "truceTreeRead", .named = TREE_READ_NAMED, .fields = TREE_READ, .show = "item"};
    static const struct cli_row token = {.name = "truceTreeRead",
                                         .set = "{limit: 1}",
                                         .named = TREE_READ_NAMED,
                                         .fields = TREE_READ,
                                         .format = "{token}"};

    return cli_row_run_with(cli,
                            cli->count > 1                 ? &one
                            : cli_flag(cli, "print-token") ? &token
                                                           : cli->command->row,
                            NULL);
}

static const struct cli_command cli_tree_read = {
    .noun = "tree",
    .verb = "read",
    .arguments = "TREE [ID]",
    .summary = "print an item or all items of one version",
    .help = "Prints a single version, even during publications. Exit code 1: the item does not\n"
            "exist, or the version was collected.",
    .example = TREE_SAMPLE "truce tree read site about\n"
                           "truce tree read site --filter '{up: \"home\"}' --version 1",
    .options =
        (const struct cli_option[]){
            {"print-token", 0, NULL, "print the token of the version", false}, {0}},
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTreeRead",
                                   .named = TREE_READ_NAMED,
                                   .fields = TREE_READ,
                                   .list = "items",
                                   .next = "itemId",
                                   .all = true},
    .run = tree_show_run_read,
};

/* ---- log ------------------------------------------------------------------------------------- */

static bool tree_show_print_entry(struct cli *cli, const bson_t *entry)
{
    const char *author = truce__field_text(entry, "author"),
               *message = truce__field_text(entry, "message");
    char date[DATE_TEXT_MAX];

    return cli_answer(cli, entry, "%" PRId64 "  %s%s%s%s%s", truce__field_number(entry, "version"),
                      truce__date_show(truce__field_date(entry, "at"), date),
                      *author || *message ? "  " : "", author, *author && *message ? ": " : "",
                      message);
}

static const struct cli_command cli_tree_log = {
    .noun = "tree",
    .verb = "log",
    .arguments = "TREE",
    .summary = "list the stored versions, newest first",
    .example = TREE_SAMPLE "truce tree log site",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTreeLog",
                                   .list = "versions",
                                   .print = tree_show_print_entry},
    .run = cli_row_run,
};

/* ---- diff ------------------------------------------------------------------------------------ */

static bool tree_print_change(struct cli *cli, const bson_t *change)
{
    const char *kind = truce__field_text(change, "change");
    char id[200];

    (void)cli;
    truce__value_show(truce__value_field(truce__value_document(change), "itemId", 6), id,
                      sizeof id);
    return cli_put("%s %s\n", *kind == 'a' ? "+" : *kind == 'r' ? "-" : "~", id);
}

static const struct cli_command cli_tree_diff = {
    .noun = "tree",
    .verb = "diff",
    .arguments = "TREE FROM TO",
    .summary = "list the items that differ between two versions",
    .help = "+ added, - removed, ~ changed; with --json, before and after. Version 0 is empty.",
    .example = TREE_SAMPLE "truce tree diff site 0 1",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTreeDiff",
                                   .set = "{contents: true}",
                                   .fields = "limit",
                                   .list = "changes",
                                   .next = "itemId",
                                   .all = true,
                                   .print = tree_print_change},
    .run = cli_row_run,
};

/* ---- list ------------------------------------------------------------------------------------ */

static bool tree_print_short(struct cli *cli, const bson_t *reply)
{
    const char *origin = cli_tree_origin(reply);

    (void)cli;
    return cli_put("%s in %s: version %" PRId64 "%s%s\n", truce__field_text(reply, "tree"),
                   truce__field_text(reply, "collection"), truce__field_number(reply, "current"),
                   *origin ? ", branch of " : "", origin);
}

static const struct cli_command cli_tree_list = {
    .noun = "tree",
    .verb = "list",
    .summary = "list trees and branches",
    .example = TREE_SAMPLE "truce tree list",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTrees",
                                   .list = "trees",
                                   .next = "tree",
                                   .all = true,
                                   .fields = "limit",
                                   .print = tree_print_short},
    .run = cli_row_run,
};

/* ---- status ---------------------------------------------------------------------------------- */

static bool tree_print_status(struct cli *cli, const bson_t *reply)
{
    const char *origin = cli_tree_origin(reply);

    (void)cli;
    return cli_put("%s in %s: version %" PRId64 "%s%s, kept from %" PRId64
                   " on, complete to %" PRId64 "; %s, %s in progress\n",
                   truce__field_text(reply, "tree"), truce__field_text(reply, "collection"),
                   truce__field_number(reply, "current"), *origin ? ", branch of " : "", origin,
                   truce__field_number(reply, "kept"), truce__field_number(reply, "settled"),
                   PLURAL(truce__field_number(reply, "readers"), "reader", "readers"),
                   PLURAL(truce__field_number(reply, "edits"), "edit", "edits"));
}

static const struct cli_command cli_tree_status = {
    .noun = "tree",
    .verb = "status",
    .arguments = "TREE",
    .summary = "show the versions of a tree and their readers",
    .example = TREE_SAMPLE "truce tree status site",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTree", .fields = "", .print = tree_print_status},
    .run = cli_row_run,
};

/* ---- publish --------------------------------------------------------------------------------- */

#define PUBLISH_BYTES_MAX (256 * 1024 * 1024)

struct publishing {
    bson_t changes;
    struct cli_row_lines lines;
    int64_t removed;
    struct cli_progress shown;
};

/* Appends {remove: ID} for {"$remove": ID}, or {put: ITEM}. */
static void publish_add(struct publishing *publishing, const bson_t *document, int64_t line)
{
    char buffer[16];
    const char *key;
    bson_iter_t iter;
    bson_t change;

    bson_uint32_to_string((uint32_t)publishing->lines.count, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&publishing->changes, key, &change);
    if (bson_iter_init_find(&iter, document, "$remove")) {
        bson_append_iter(&change, "remove", -1, &iter);
        publishing->removed++;
    } else {
        BSON_APPEND_DOCUMENT(&change, "put", document);
    }
    bson_append_document_end(&publishing->changes, &change);
    cli_row_lines_add(&publishing->lines, line);
    cli_progress(&publishing->shown, publishing->lines.count, 0);
}

/* Reads all lines. If a line is wrong, prints the error. Returns the exit code. */
static int publish_read_lines(const struct cli *cli, struct ndjson *input,
                              struct publishing *publishing)
{
    enum ndjson_form form;
    struct ndjson_line line = {0};
    bson_error_t error;
    truce_status status = cli_ndjson_detect(input, &form, &error);

    while (!status && !(status = cli_ndjson_next(input, &line, &error)) && line.text) {
        bson_t document;
        const char *wrong = cli_ndjson_document(input, &line, &document);

        if (!wrong && publishing->changes.len + document.len > PUBLISH_BYTES_MAX)
            wrong = "a publication has at most 256 MiB of items: publish them in parts";
        if (wrong)
            return cli_usage(cli, "line %" PRId64 ": %s; nothing is published", line.row, wrong);
        publish_add(publishing, &document, line.row);
    }
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

/* Reads the file into the array `changes` of the request. */
static int publish_read(struct cli *cli, bson_t *request, struct publishing *publishing)
{
    bson_error_t error;
    struct ndjson *input = cli_ndjson_open(cli->count > 1 ? cli->arguments[1] : "-", &error);
    int code;

    if (!input)
        return cli_error(cli, NULL, TRUCE_INVALID, &error);
    cli_progress_begin(cli, &publishing->shown, "read");
    BSON_APPEND_ARRAY_BEGIN(request, "changes", &publishing->changes);
    code = publish_read_lines(cli, input, publishing);
    bson_append_array_end(request, &publishing->changes);
    cli_progress_end(&publishing->shown);
    cli_ndjson_close(input);
    return code;
}

/* Appends the base of the edit: the token of the version with this number. */
static int publish_append_base(struct cli *cli, int64_t version, bson_t *request)
{
    bson_t ask = BSON_INITIALIZER, reply;
    int code;

    BCON_APPEND(&ask, "truceTreeRead", BCON_UTF8(cli->arguments[0]), "version", BCON_INT64(version),
                "limit", BCON_INT32(1));
    code = cli_row_send_found(cli, &ask, &reply);
    if (!code)
        BSON_APPEND_UTF8(request, "base", truce__field_text(&reply, "token"));
    bson_destroy(&reply);
    bson_destroy(&ask);
    return code;
}

/* Prints the outcome. Returns CLI_NO for a conflict, after its items. */
static int publish_print_outcome(struct cli *cli, const struct publishing *publishing,
                                 const bson_t *reply)
{
    int64_t version = truce__field_number(reply, "version"), removed = publishing->removed,
            put = publishing->lines.count - removed;
    bool nothing = !strcmp(truce__field_text(reply, "outcome"), "nothing");
    bson_t answer = BSON_INITIALIZER;

    if (tree_is_conflict(reply)) {
        bson_destroy(&answer);
        tree_print_conflicts(reply);
        return cli_message(cli, CLI_NO, "the changes cannot be merged with version %" PRId64,
                           version);
    }
    BCON_APPEND(&answer, "version", BCON_INT64(version), "published", BCON_BOOL(!nothing), "put",
                BCON_INT64(put), "removed", BCON_INT64(removed));
    if (nothing)
        cli_answer(cli, &answer, "nothing to publish; version %" PRId64 " is current", version);
    else
        cli_answer(cli, &answer, "version %" PRId64 ": %s put, %" PRId64 " removed", version,
                   PLURAL(put, "item", "items"), removed);
    bson_destroy(&answer);
    return CLI_DONE;
}

static int tree_run_publish(struct cli *cli)
{
    struct publishing publishing = {.lines = {.what = "change"}};
    bson_t request, reply;
    int64_t base;
    int code;

    if (!cli_number(cli, "base", 1, INT64_MAX, 0, &base))
        return CLI_USAGE;
    code = cli_row_request(cli, &request);
    if (!code)
        code = publish_read(cli, &request, &publishing);
    if (!code)
        code = cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
    if (!code && base)
        code = publish_append_base(cli, base, &request);
    if (!code) {
        code = cli_row_send_lines(cli, &request, &publishing.lines, &reply);
        if (!code)
            code = publish_print_outcome(cli, &publishing, &reply);
        bson_destroy(&reply);
    }
    bson_free(publishing.lines.lines);
    bson_destroy(&request);
    return code;
}

static const struct cli_command cli_tree_publish = {
    .noun = "tree",
    .verb = "publish",
    .arguments = "TREE [FILE]",
    .summary = "publish items atomically as the next version",
    .help =
        "The input (default: standard input) has one item per line: {\"itemId\": ..., fields}, or\n"
        "{\"$remove\": ID} to remove an item. Readers see all changes or none. If another version\n"
        "was published since --base, items that both changed are merged. Conflicts are printed,\n"
        "nothing is published, and the exit code is 1.\n"
        "\n"
        "The first publication creates the tree, with --collection for its items.",
    .example = TREE_SAMPLE "truce tree read site",
    .options =
        (const struct cli_option[]){
            {"base", 0, "N", "the version that was edited (default: the current one)", false}, {0}},
    .row = &(const struct cli_row){.name = "truceTreePublish",
                                   .set = "{merge: true}",
                                   .fields = "collection parent message author prefer rules"},
    .store = CLI_STORE_NONE,
    .run = tree_run_publish,
};

/* ---- revert ---------------------------------------------------------------------------------- */

static bool tree_print_reverted(struct cli *cli, const bson_t *reply)
{
    return cli_put(strcmp(truce__field_text(reply, "outcome"), "nothing")
                       ? "version %" PRId64 ", as version %s was\n"
                       : "version %" PRId64 " equals version %s\n",
                   truce__field_number(reply, "version"), cli->arguments[1]);
}

static const struct cli_command cli_tree_revert = {
    .noun = "tree",
    .verb = "revert",
    .arguments = "TREE VERSION",
    .summary = "publish an earlier version again as the next one",
    .example = TREE_SAMPLE "echo '{\"$remove\": \"about\"}' | truce tree publish site\n"
                           "truce tree revert site 1",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTreePublish",
                                   .named = "VERSION revert",
                                   .fields = "message author",
                                   .negative = tree_is_conflict,
                                   .print = tree_print_reverted},
    .run = cli_row_run,
};

/* ---- tag, untag, keep ------------------------------------------------------------------------ */

static const struct cli_command cli_tree_tag = {
    .noun = "tree",
    .verb = "tag",
    .arguments = "TREE NAME [VERSION]",
    .summary = "tag a version to keep it",
    .help =
        "The default is the current version. An existing tag is moved. The version and all later\n"
        "ones are kept until the tag is removed.",
    .example = TREE_SAMPLE "truce tree tag site launch\n"
                           "truce tree read site --tag launch",
    .store = CLI_STORE_CHANGE,
    .row =
        &(const struct cli_row){
            .name = "truceTree", .named = "NAME tag", .fields = "", .format = "tagged {tag}"},
    .run = cli_row_run,
};

static const struct cli_command cli_tree_untag = {
    .noun = "tree",
    .verb = "untag",
    .arguments = "TREE NAME",
    .summary = "remove a tag",
    .example = TREE_SAMPLE "truce tree tag site launch\n"
                           "truce tree untag site launch",
    .store = CLI_STORE_CHANGE,
    .row =
        &(const struct cli_row){
            .name = "truceTree", .named = "NAME untag", .fields = "", .format = "untagged {untag}"},
    .run = cli_row_run,
};

static int tree_run_keep(struct cli *cli)
{
    bson_t keep = BSON_INITIALIZER, fields = BSON_INITIALIZER;
    int64_t versions, age_ms;
    bool all = cli_flag(cli, "all");
    int code;

    if (!cli_number(cli, "versions", 1, INT32_MAX, 0, &versions) ||
        !cli_duration(cli, "age", 1, INT64_C(1) << 48, 0, &age_ms))
        return CLI_USAGE;
    if (all == (versions || age_ms))
        return cli_usage(cli, "give --versions, --age, or both, or give --all alone");
    if (versions)
        BSON_APPEND_INT64(&keep, "versions", versions);
    if (age_ms)
        BSON_APPEND_INT64(&keep, "ageMS", age_ms);
    BSON_APPEND_DOCUMENT(&fields, "keep", &keep);
    code = cli_row_run_with(cli, cli->command->row, &fields);
    bson_destroy(&fields);
    bson_destroy(&keep);
    return code;
}

static const struct cli_command cli_tree_keep = {
    .noun = "tree",
    .verb = "keep",
    .arguments = "TREE",
    .summary = "set how many versions to keep, or for how long",
    .help = "`truce sweep` and `truce tree gc` collect other versions, unless a tag or a\n"
            "reader holds them. By default, a tree keeps all versions.",
    .example = TREE_SAMPLE "truce tree keep site --versions 20 --age 30d",
    .options = (const struct cli_option[]){{"versions", 0, "N", "keep at least this many", false},
                                           {"age", 0, "DURATION",
                                            "keep versions of at least this period", false},
                                           {"all", 0, NULL, "keep all versions", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTree",
                                   .fields = "",
                                   .format =
                                       "set the retention of {tree}; the sweep collects the rest"},
    .run = tree_run_keep,
};

/* ---- erase, gc ------------------------------------------------------------------------------- */

static bool tree_erased_none(const bson_t *reply)
{
    return !truce__field_number(reply, "versions");
}

static const struct cli_command cli_tree_erase = {
    .noun = "tree",
    .verb = "erase",
    .arguments = "TREE ID",
    .summary = "erase an item's contents from every version",
    .help =
        "For contents that must not be stored, such as personal data. Exit code 1: no version had\n"
        "the item.",
    .example = TREE_SAMPLE "truce tree erase site about",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTree",
                                   .named = "ID erase",
                                   .fields = "",
                                   .format = "erased from {versions version versions}",
                                   .negative = tree_erased_none},
    .run = cli_row_run,
};

static const struct cli_command cli_tree_gc = {
    .noun = "tree",
    .verb = "gc",
    .arguments = "TREE",
    .summary = "remove unreachable versions now",
    .help = "`truce sweep` does the same for every tree. See `truce help tree keep`.",
    .example = TREE_SAMPLE "truce tree keep site --versions 1\n"
                           "truce tree gc site",
    .store = CLI_STORE_CHANGE,
    .row =
        &(const struct cli_row){
            .name = "truceTree",
            .set = "{collect: true}",
            .fields = "",
            .format =
                "{settled version versions} completed, {removed item items} removed, {edits edit "
                "edits} discarded"},
    .run = cli_row_run,
};

cli_command_list cli_tree_commands = {&cli_tree_publish, &cli_tree_list,   &cli_tree_read,
                                      &cli_tree_diff,    &cli_tree_log,    &cli_tree_status,
                                      &cli_tree_revert,  &cli_tree_branch, &cli_tree_merge,
                                      &cli_tree_tag,     &cli_tree_untag,  &cli_tree_keep,
                                      &cli_tree_erase,   &cli_tree_gc,     &cli_tree_export,
                                      &cli_tree_import,  &cli_tree_drop,   NULL};
