/* truce copy and backup. The library copies (truce/copy.h); this file names the two stores and
 * prints the result. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/core/progress.h"
#include "cli/core/snapshot_option.h"
#include "store/reserved_names.h"

#define COLLECTIONS_MAX 1000

struct copying {
    struct cli *cli;
    const char *from_uri, *to_uri;
    /* The names of the stores: their URIs without user, password, and options. A store always has
     * the same name. */
    char *from_name, *to_name;
    truce_store *from, *to;
    /* A snapshot of `from` at the start of the copy, or NULL if the store does not support
     * snapshots. */
    truce_store *view;
    /* The bytes of the log that `view` pinned at the end of the copy. */
    int64_t pinned;
    truce_copy_options options;
    struct cli_progress shown;
    /* The progress line shows the comparison, not the copying. */
    bool comparing;
    /* The number of differences that were printed. */
    int64_t printed;
    /* The number of collections that differ and were not changed. */
    int64_t unchanged;
};

/* ---- the two stores -------------------------------------------------------------------------- */

/* Returns mongodb://host/database for mongodb://user:password@host/database?options. */
static char *name_of_server(const char *uri)
{
    const char *rest = strstr(uri, "://") + 3;
    const char *hosts = rest;
    size_t end = strcspn(rest, "?");

    for (size_t i = 0; i < end; i++) {
        if (rest[i] == '@')
            hosts = rest + i + 1;
    }
    return bson_strdup_printf("%.*s%.*s", (int)(rest - uri), uri, (int)(rest + end - hosts), hosts);
}

static char *copy_name_of(const char *uri)
{
    const char *path = strncmp(uri, "file:", 5) ? uri : uri + 5;
    char *whole, *name;

    if (!strncmp(uri, "mongodb://", 10) || !strncmp(uri, "mongodb+srv://", 14))
        return name_of_server(uri);
    whole = strncmp(uri, "memory:", 7) ? realpath(path, NULL) : NULL;
    name = bson_strdup(whole ? whole : path);
    free(whole);
    return name;
}

static int copy_open_one(struct copying *copying, const char *uri, enum cli_store_use use,
                         truce_store **store)
{
    struct cli *cli = copying->cli;

    cli->uri = uri;
    return cli_store_open(cli, use, store);
}

/* Opens TO, which need not exist for --dry-run. */
static int open_to(struct copying *copying)
{
    bool dry = copying->options.mode == TRUCE_COPY_COMPARE;
    const truce_store_options read_only = {
        .read_only = true, .must_exist = true, .database = copying->cli->database};
    bson_error_t error;
    truce_status status;

    if (!dry)
        return copy_open_one(copying, copying->to_uri, CLI_STORE_INPUT, &copying->to);
    status = truce_store_open(copying->to_uri, &read_only, &copying->to, &error);
    if (status == TRUCE_NOT_FOUND)
        status = truce_store_open("memory:", NULL, &copying->to, &error);
    if (!status)
        return CLI_DONE;
    cli_error(copying->cli, NULL, status, &error);
    return status == TRUCE_INVALID ? CLI_USAGE : CLI_FAILED;
}

/* Reports that a collection does not exist, and suggests a similar name. */
static int copy_refuse_name(const struct copying *copying, const bson_error_t *error)
{
    struct nearest_word guess = {0};
    char hint[NEAREST_WORD_HINT_MAX];
    bson_t collections;
    bson_iter_t iter, name;
    bool listed = !truce_collection_list(copying->from, &(truce_list_options){.unmeasured = true},
                                         &collections, NULL);
    int code;

    for (const char *const *wanted = copying->options.collections; *wanted; wanted++) {
        char quoted[200];

        snprintf(quoted, sizeof quoted, "\"%s\"", *wanted);
        if (strstr(error->message, quoted))
            guess.word = *wanted;
    }
    for (bson_iter_init(&iter, &collections); listed && guess.word && bson_iter_next(&iter);) {
        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name"))
            truce__nearest_word_offer(&guess, bson_iter_utf8(&name, NULL));
    }
    code = guess.best ? cli_message(copying->cli, CLI_NO, "%s%s", error->message,
                                    truce__nearest_word_hint(&guess, hint))
                      : cli_error(copying->cli, NULL, TRUCE_NOT_FOUND, error);
    bson_destroy(&collections);
    return code;
}

/* Checks that FROM has the collections, before TO is created. */
static int check_collections(const struct copying *copying)
{
    bson_error_t error;
    int code = CLI_DONE;

    for (const char *const *wanted = copying->options.collections; wanted && *wanted && !code;
         wanted++) {
        bson_t collections;
        bson_iter_t iter, name;
        bool found = truce_collection_list(copying->from, &(truce_list_options){.unmeasured = true},
                                           &collections, NULL);

        for (bson_iter_init(&iter, &collections); !found && bson_iter_next(&iter);)
            found = bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name") &&
                    !strcmp(bson_iter_utf8(&name, NULL), *wanted);
        bson_destroy(&collections);
        if (found)
            continue;
        (void)truce__fail(TRUCE_NOT_FOUND, &error, "the collection \"%s\" to copy does not exist",
                          *wanted);
        code = copy_refuse_name(copying, &error);
    }
    return code;
}

static int open_both(struct copying *copying)
{
    int code;

    copying->from_name = copy_name_of(copying->from_uri);
    copying->to_name = copy_name_of(copying->to_uri);
    copying->options.name = copying->from_name;
    if (!strcmp(copying->from_name, copying->to_name) && strncmp(copying->from_name, "memory:", 7))
        return cli_usage(copying->cli, "FROM and TO are the same store");
    code = copy_open_one(copying, copying->from_uri, CLI_STORE_READ, &copying->from);
    if (!code)
        code = check_collections(copying);
    return code ? code : open_to(copying);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void copy_show_progress(bool comparing, int64_t done, int64_t total, void *arg)
{
    struct copying *copying = arg;

    if (comparing != copying->comparing) {
        cli_progress_end(&copying->shown);
        cli_progress_begin(copying->cli, &copying->shown, comparing ? "compared" : "copied");
        copying->shown.view = copying->view;
        copying->comparing = comparing;
    }
    cli_progress(&copying->shown, done, total);
}

/* Appends ", 3 missing", unless the number is 0. */
static void copy_append_count(struct buffer *out, const bson_t *collection, const char *name,
                              const char *called)
{
    char text[64];

    if (!truce__field_number(collection, name))
        return;
    snprintf(text, sizeof text, ", %" PRId64 " %s", truce__field_number(collection, name), called);
    truce__buffer_append_text(out, text);
}

/* Returns whether the copy has changed the collection, or the collections of the report. */
static bool copy_has_written(int64_t inserted, int64_t replaced, int64_t removed)
{
    return inserted || replaced || removed;
}

static void copy_count_unchanged(struct copying *copying, const bson_t *collection)
{
    copying->unchanged +=
        (truce__field_number(collection, "missing") || truce__field_number(collection, "other") ||
         truce__field_number(collection, "extra")) &&
        !copy_has_written(truce__field_number(collection, "inserted"),
                          truce__field_number(collection, "replaced"),
                          truce__field_number(collection, "removed"));
}

static void copy_show_collection(const bson_t *collection, void *arg)
{
    struct copying *copying = arg;
    struct buffer more = {0};

    copy_count_unchanged(copying, collection);
    copy_append_count(&more, collection, "kept", "kept");
    copy_append_count(&more, collection, "missing", "missing");
    copy_append_count(&more, collection, "other", "different");
    copy_append_count(&more, collection, "extra", "not in FROM");
    truce__buffer_append_byte(&more, 0);
    cli_progress_end(&copying->shown);
    cli_answer(copying->cli, collection, "%-30s %12" PRId64 " documents  hash %.16s%s",
               truce__field_text(collection, "collection"),
               truce__field_number(collection, "documents"), truce__field_text(collection, "hash"),
               (const char *)more.bytes);
    truce__buffer_release(&more);
}

/* Appends the value of a field as JSON, or the word for a missing field. */
static void append_json(struct buffer *out, const bson_t *note, const char *name)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, note, name))
        truce__json_write_value(out, &iter, JSON_CANONICAL);
    else
        truce__buffer_append(out, "nothing", 7);
}

/* Appends what differs: a missing document, a document that only TO has, or a field. */
static void append_what(struct buffer *out, const bson_t *note)
{
    const char *difference = truce__field_text(note, "difference");

    if (!strcmp(difference, "missing"))
        truce__buffer_append_text(out, " is missing");
    else if (!strcmp(difference, "extra"))
        truce__buffer_append_text(out, " is in TO, but not in FROM");
    if (*truce__field_text(note, "field")) {
        truce__buffer_append_text(out, ": ");
        truce__buffer_append_text(out, truce__field_text(note, "field"));
        truce__buffer_append_text(out, " is ");
        append_json(out, note, "to");
        truce__buffer_append_text(out, ", but in FROM ");
        append_json(out, note, "from");
    }
    if (*truce__field_text(note, "text")) {
        truce__buffer_append_text(out, ": ");
        truce__buffer_append_text(out, truce__field_text(note, "text"));
    }
}

/* Prints a difference: as text, or with --json as the note itself. */
static void show_difference(const bson_t *note, void *arg)
{
    struct copying *copying = arg;
    const char *index = truce__field_text(note, "index");
    struct buffer out = {0};

    copying->printed++;
    if (copying->cli->json) {
        cli_print(note, JSON_CANONICAL);
        return;
    }
    truce__buffer_append_text(&out, truce__field_text(note, "collection"));
    truce__buffer_append_text(&out, *index ? ": the index " : " ");
    if (*index)
        truce__buffer_append_text(&out, index);
    else
        append_json(&out, note, "id");
    append_what(&out, note);
    truce__buffer_append_byte(&out, 0);
    cli_answer(copying->cli, note, "%s", (const char *)out.bytes);
    truce__buffer_release(&out);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Prints why the copy failed, with the option or command that helps. Returns the exit code. */
static int copy_refuse(const struct copying *copying, truce_status status,
                       const truce_copy_report *report, const bson_error_t *error)
{
    const struct cli *cli = copying->cli;

    if (status == TRUCE_CONFLICT && report->open)
        return cli_message(
            cli, CLI_NO,
            "%s: end the writers, then complete commits of "
            "dead processes with `truce sweep --store %s` (--live copies them unchanged)",
            error->message, copying->from_name);
    if (status == TRUCE_NOT_FOUND && copying->options.collections)
        return copy_refuse_name(copying, error);
    if (status == TRUCE_CONFLICT && !strstr(error->message, "another process"))
        return cli_message(
            cli, CLI_NO,
            "%s: --merge adds to it, --replace makes it equal to FROM, --dry-run prints "
            "what differs",
            error->message);
    return cli_error(cli, NULL, status, error);
}

static void copy_answer(const struct copying *copying, const truce_copy_report *report)
{
    const struct cli *cli = copying->cli;
    bson_t done = BSON_INITIALIZER;
    char more[128] = "";
    int length = 0;

    BSON_APPEND_INT64(&done, "collections", report->collections);
    BSON_APPEND_INT64(&done, "documents", report->documents);
    BSON_APPEND_INT64(&done, "inserted", report->inserted);
    BSON_APPEND_INT64(&done, "replaced", report->replaced);
    BSON_APPEND_INT64(&done, "removed", report->removed);
    BSON_APPEND_INT64(&done, "indexes", report->indexes);
    BSON_APPEND_INT64(&done, "kept", report->kept);
    BSON_APPEND_INT64(&done, "differences", report->differences);
    BSON_APPEND_INT64(&done, "pinned_bytes", copying->pinned);
    BSON_APPEND_BOOL(&done, "verified", report->differences == 0);
    if (report->differences > copying->printed)
        length = snprintf(more, sizeof more, " (%" PRId64 " of them above)", copying->printed);
    if (copying->options.mode != TRUCE_COPY_COMPARE &&
        copy_has_written(report->inserted, report->replaced, report->removed))
        snprintf(more + length, sizeof more - (size_t)length,
                 "; %" PRId64 " inserted, %" PRId64 " replaced, %" PRId64 " removed",
                 report->inserted, report->replaced, report->removed);
    if (report->differences)
        cli_answer(cli, &done, "%s of %s compared, differences: %" PRId64 "%s",
                   PLURAL(report->documents, "document", "documents"),
                   PLURAL(report->collections, "collection", "collections"), report->differences,
                   more);
    else
        cli_answer(cli, &done,
                   "%s of %s, the same in both: %" PRId64 " inserted, %" PRId64
                   " replaced, %" PRId64 " removed",
                   PLURAL(report->documents, "document", "documents"),
                   PLURAL(report->collections, "collection", "collections"), report->inserted,
                   report->replaced, report->removed);
    bson_destroy(&done);
}

/* Returns whether patterns use the collection and the call does not select it. */
static bool is_excluded(const struct copying *copying, const char *collection)
{
    const char *const *wanted = copying->options.collections;

    if (!truce__reserved(collection) || !strcmp(collection, COPY_RECORDS) ||
        !strcmp(collection, IMPORTS))
        return false;
    while (*wanted && strcmp(*wanted, collection) != 0)
        wanted++;
    return !*wanted;
}

/* Prints a note with the collections of patterns that --collection leaves out. */
static void report_left_out(const struct copying *copying)
{
    bson_t collections;
    bson_iter_t iter, name;
    struct buffer names = {0};
    bool listed = !truce_collection_list(copying->from, &(truce_list_options){.unmeasured = true},
                                         &collections, NULL);

    for (bson_iter_init(&iter, &collections); listed && bson_iter_next(&iter);) {
        const char *text = "";

        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name"))
            text = bson_iter_utf8(&name, NULL);
        if (!is_excluded(copying, text))
            continue;
        truce__buffer_append_text(&names, names.size ? ", " : "");
        truce__buffer_append_text(&names, text);
    }
    truce__buffer_append_byte(&names, 0);
    if (names.size > 1)
        cli_note(
            copying->cli,
            "not copied: %s; sets, commits, and other patterns of the copied collections need them",
            (const char *)names.bytes);
    truce__buffer_release(&names);
    bson_destroy(&collections);
}

/* Explains a result that is not a success. */
static void copy_explain(const struct copying *copying, const truce_copy_report *report)
{
    const struct cli *cli = copying->cli;

    if (report->differences && copying->options.mode == TRUCE_COPY_NEW) {
        if (copying->unchanged)
            cli_note(cli,
                     "%s, because TO has a complete earlier copy: --replace makes TO equal to "
                     "FROM, and removes the other documents of TO",
                     PLURAL(copying->unchanged, "collection differs and was not changed",
                            "collections differ and were not changed"));
        else if (copy_has_written(report->inserted, report->replaced, report->removed))
            cli_note(cli, "if other programs write to FROM, stop them and run this command again");
        else
            cli_note(cli, "--replace makes TO equal to FROM");
    }
    if (copying->options.collections)
        report_left_out(copying);
    if (report->resumed_at)
        cli_note(cli, "resumed an earlier copy after %s",
                 PLURAL(report->resumed_at, "document", "documents"));
}

/* ---- the call -------------------------------------------------------------------------------- */

static void copy_set_options(struct copying *copying)
{
    copying->options = (truce_copy_options){
        .differences_max = copying->cli->json ? TRUCE_COPY_DIFFERENCES_MAX : 20,
        .collection = copy_show_collection,
        .difference = show_difference,
        .progress = copy_show_progress,
    };
}

/* Reads the options of the copy, and the names of the collections into `collections`, followed by
 * NULL. */
static int copy_read_options(struct copying *copying, const char **collections)
{
    struct cli *cli = copying->cli;
    truce_copy_options *options = &copying->options;
    int modes = cli_flag(cli, "merge") + cli_flag(cli, "replace") + cli_flag(cli, "dry-run");
    int64_t batch;

    if (modes > 1)
        return cli_usage(cli, "--merge, --replace, and --dry-run exclude each other");
    if (!cli_number(cli, "batch", 1, TRUCE_COPY_BATCH_MAX, 1000, &batch))
        return CLI_USAGE;
    if (cli->uri_given)
        return cli_usage(cli, "truce copy takes both stores as arguments, not --store");
    copy_set_options(copying);
    options->mode = cli_flag(cli, "merge")     ? TRUCE_COPY_MERGE
                    : cli_flag(cli, "replace") ? TRUCE_COPY_REPLACE
                    : cli_flag(cli, "dry-run") ? TRUCE_COPY_COMPARE
                                               : TRUCE_COPY_NEW;
    options->live = cli_flag(cli, "live");
    options->no_indexes = cli_flag(cli, "no-indexes");
    options->batch = (uint32_t)batch;
    for (int i = 0; i < COLLECTIONS_MAX && cli_texts(cli, "collection", i); i++)
        collections[i] = cli_texts(cli, "collection", i);
    if (collections[0])
        options->collections = collections;
    return CLI_DONE;
}

/* Opens both stores, copies from a snapshot of FROM, and prints the result. */
static int copy_copy(struct copying *given, const char **collections)
{
    struct copying copying = *given;
    struct cli *cli = copying.cli;
    truce_copy_report report;
    bson_error_t error;
    int code = open_both(&copying);

    if (!code)
        code = cli_snapshot_take(cli, copying.from, &copying.view);
    if (!code) {
        truce_status status;

        if (collections[0])
            copying.options.collections = collections;
        copying.options.arg = &copying;
        cli_progress_begin(cli, &copying.shown, "copied");
        copying.shown.view = copying.view;
        status = truce_copy(copying.view ? copying.view : copying.from, copying.to,
                            &copying.options, &report, &error);
        cli_progress_end(&copying.shown);
        copying.pinned = cli_snapshot_pinned(copying.view);
        if (status) {
            code = copy_refuse(&copying, status, &report, &error);
        } else {
            copy_answer(&copying, &report);
            copy_explain(&copying, &report);
            cli_snapshot_report(cli, copying.pinned);
            code = report.differences ? CLI_NO : CLI_DONE;
        }
    }
    cli_interrupt_forget();
    truce_store_close(copying.view);
    truce_store_close(copying.from);
    truce_store_close(copying.to);
    bson_free(copying.from_name);
    bson_free(copying.to_name);
    return code;
}

static int cli_copy_run(struct cli *cli)
{
    struct copying copying = {
        .cli = cli, .from_uri = cli->arguments[0], .to_uri = cli->arguments[1]};
    const char *collections[COLLECTIONS_MAX + 1] = {0};
    int code = copy_read_options(&copying, collections);

    return code ? code : copy_copy(&copying, collections);
}

/* Copies a store in use into a file, as `copy --live` does. */
static int run_backup(struct cli *cli)
{
    struct copying copying = {.cli = cli, .from_uri = cli->uri, .to_uri = cli->arguments[0]};
    const char *none[1] = {0};

    copy_set_options(&copying);
    copying.options.mode = cli_flag(cli, "replace") ? TRUCE_COPY_REPLACE : TRUCE_COPY_NEW;
    copying.options.live = true;
    return copy_copy(&copying, none);
}

static const struct cli_command cli_copy = {
    .noun = "copy",
    .arguments = "FROM TO",
    .summary = "copy a store to another one and verify the copy",
    .help =
        "Copies all collections, including truce's own, with their indexes: from a file to\n"
        "MongoDB, back, or to another file. Documents are copied byte for byte. Then both sides\n"
        "are read again and compared, and each collection's count and hash are printed. If it is\n"
        "killed and started again, it resumes (its record in TO: truce_copies).\n"
        "\n"
        "TO must not have documents in these collections, unless you give --merge or\n"
        "--replace. If a copy is complete, a further run only compares it.\n"
        "\n"
        "FROM may be in use: TO is then compared with a snapshot of FROM from the start of the\n"
        "copy (of a server before 5.0: from the start of the comparison). To move a\n"
        "store, stop its writers, run the command (again with --replace, to copy later changes),\n"
        "and let the programs open TO.\n"
        "\n"
        "Exit code 1: TO differs; the first differences are printed (--json: 10,000).",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce copy school.truce copy.truce",
    .options =
        (const struct cli_option[]){
            {"collection", 'c', "NAME", "only this collection (may be repeated)", true},
            {"dry-run", 'n', NULL, "write nothing, print the differences", false},
            {"merge", 0, NULL, "insert missing documents, change no others", false},
            {"replace", 0, NULL, "make the collections of TO equal to those of FROM", false},
            {"live", 0, NULL, "copy a store in use, with open commits unchanged", false},
            {"no-indexes", 0, NULL, "copy documents only", false},
            {"batch", 0, "N", "documents in one write (default: 1000)", false},
            CLI_SNAPSHOT_OPTIONS,
            {0}},
    .store = CLI_STORE_NONE,
    .run = cli_copy_run,
};

static const struct cli_command cli_backup = {
    .noun = "backup",
    .arguments = "TO",
    .summary = "back up a store in use into a file, and verify it",
    .help =
        "Works as `truce copy --live`: copies a snapshot of all collections, with open commits\n"
        "unchanged, and compares it. Writers continue; their writes stay in the log of the\n"
        "store until the backup is done, so the disk needs room for them. The backup is a\n"
        "store like any other: open it, or copy it back.\n"
        "\n"
        "If it is killed and started again, it resumes. A complete backup is changed only with\n"
        "--replace, which makes it equal to the current store.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}'\n"
               "truce backup monday.truce --store school.truce",
    .options = (const struct cli_option[]){{"replace", 0, NULL, "update an older backup", false},
                                           CLI_SNAPSHOT_OPTIONS,
                                           {0}},
    .store = CLI_STORE_NONE,
    .run = run_backup,
};

cli_command_list cli_copy_commands = {&cli_copy, &cli_backup, NULL};
