/* truce salvage: saves documents of a damaged file. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/field.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/core/progress.h"
#include "engine/storage/page_recovery.h"

struct salvaging {
    struct cli *cli;
    struct cli_progress shown;
};

/* Prints the validator and the indexes that could not be set again. */
static void show_refused(const struct cli *cli, const bson_t *collection)
{
    bson_iter_t iter, list, index, text;

    if (cli->json)
        return;
    if (bson_iter_init_find(&iter, collection, "refused_validator"))
        cli_note(cli, "the validator was not set: %s", bson_iter_utf8(&iter, NULL));
    if (!bson_iter_init_find(&iter, collection, "refused_indexes") ||
        !bson_iter_recurse(&iter, &list))
        return;
    while (bson_iter_next(&list)) {
        if (bson_iter_recurse(&list, &index) && bson_iter_find(&index, "name") &&
            bson_iter_recurse(&list, &text) && bson_iter_find(&text, "text"))
            cli_note(cli, "the index %s was not created: %s", bson_iter_utf8(&index, NULL),
                     bson_iter_utf8(&text, NULL));
    }
}

static void salvage_show_collection(const bson_t *collection, void *arg)
{
    struct salvaging *salvaging = arg;
    bson_iter_t iter;
    const char *name =
        bson_iter_init_find(&iter, collection, "collection") ? bson_iter_utf8(&iter, NULL) : "";

    cli_progress_end(&salvaging->shown);
    cli_answer(salvaging->cli, collection,
               "%s: %s, %" PRId64 " doubtful, %" PRId64 " lost, %s lost, %s", name,
               PLURAL(truce__field_number(collection, "documents"), "document", "documents"),
               truce__field_number(collection, "doubtful"), truce__field_number(collection, "lost"),
               PLURAL(truce__field_number(collection, "lost_pages"), "page", "pages"),
               PLURAL(truce__field_number(collection, "indexes"), "index", "indexes"));
    show_refused(salvaging->cli, collection);
}

static void salvage_show_progress(int64_t done, int64_t total, void *arg)
{
    struct salvaging *salvaging = arg;

    cli_progress(&salvaging->shown, done, total);
}

static void show_report(const struct cli *cli, const truce_salvage_report *report)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_BOOL(&answer, "complete", report->complete);
    BSON_APPEND_INT64(&answer, "collections", report->collections);
    BSON_APPEND_INT64(&answer, "documents", report->documents);
    BSON_APPEND_INT64(&answer, "doubtful", report->doubtful);
    BSON_APPEND_INT64(&answer, "strays", report->strays);
    BSON_APPEND_INT64(&answer, "lost", report->lost);
    BSON_APPEND_INT64(&answer, "lost_pages", report->lost_pages);
    BSON_APPEND_INT64(&answer, "lost_log", report->lost_log);
    BSON_APPEND_INT64(&answer, "indexes", report->indexes);
    BSON_APPEND_INT64(&answer, "indexes_refused", report->indexes_refused);
    BSON_APPEND_INT64(&answer, "validators", report->validators);
    BSON_APPEND_INT64(&answer, "validators_refused", report->validators_refused);
    cli_answer(cli, &answer,
               "%s: %s saved, %" PRId64 " doubtful, %s, %" PRId64
               " lost, %s of the file and %" PRId64 " of the log lost",
               report->complete ? "complete" : "not complete",
               PLURAL(report->documents, "document", "documents"), report->doubtful,
               PLURAL(report->strays, "stray", "strays"), report->lost,
               PLURAL(report->lost_pages, "page", "pages"), report->lost_log);
    bson_destroy(&answer);
    if (report->doubtful)
        cli_note(cli, "examine the documents of the collections NAME.doubtful before you use them");
    if (report->strays)
        cli_note(cli, "the documents of the collections salvaged_N belong to unknown collections");
}

/* Prints a note if the header counts more pages than the file and its log have. */
static void salvage_note_cut(const struct cli *cli, const struct page_recovery *recovery,
                             const char *from)
{
    struct page_recovery_header header;
    uint32_t pages;

    if (!truce__page_recovery_header(recovery, &header))
        return;
    pages = truce__page_recovery_count(recovery, header.pages);
    if (pages < header.pages)
        cli_note(cli,
                 "\"%s\" was cut: it has %" PRIu32 " of the %" PRIu32
                 " pages that its header counts",
                 from, pages, header.pages);
}

/* Refuses a file of which nothing can be salvaged, before TO is created. */
static int salvage_check_from(struct cli *cli, const char *from)
{
    struct page_recovery recovery;
    bson_error_t error;
    truce_status status = truce__page_recovery_open(from, &recovery, &error);

    if (!status && !truce__page_recovery_finds_store(&recovery))
        status = truce__fail(TRUCE_CORRUPT, &error,
                             "no page of \"%s\" is a page of a store: there is nothing to salvage",
                             from);
    if (!status)
        salvage_note_cut(cli, &recovery, from);
    truce__page_recovery_close(&recovery);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

/* Refuses a call in which TO is FROM, because SQLite would write into the damaged file. */
static int check_arguments(struct cli *cli, const char *from)
{
    const char *to =
        strncmp(cli->arguments[1], "file:", 5) ? cli->arguments[1] : cli->arguments[1] + 5;
    struct stat one, two;

    if (cli->database)
        return cli_refuse_database(cli);
    if (cli->uri_given)
        return cli_usage(cli, "truce salvage takes both stores as arguments, not --store");
    if (stat(from, &one))
        return cli_message(cli, CLI_FAILED, "cannot read \"%s\": %s", from, strerror(errno));
    if (!stat(to, &two) && one.st_ino == two.st_ino && one.st_dev == two.st_dev)
        return cli_usage(cli, "FROM and TO are the same file (%s)", from);
    return salvage_check_from(cli, from);
}

static int salvage_run(struct cli *cli)
{
    const char *from =
        strncmp(cli->arguments[0], "file:", 5) ? cli->arguments[0] : cli->arguments[0] + 5;
    struct salvaging salvaging = {.cli = cli};
    const truce_salvage_options options = {.collection = salvage_show_collection,
                                           .progress = salvage_show_progress,
                                           .arg = &salvaging};
    truce_salvage_report report;
    truce_store *to = NULL;
    bson_error_t error;
    truce_status status;
    int code = check_arguments(cli, from);

    if (code)
        return code;
    cli->uri = cli->arguments[1];
    code = cli_store_open(cli, CLI_STORE_INPUT, &to);
    if (code)
        return code;
    cli_progress_begin(cli, &salvaging.shown, "examined");
    status = truce_salvage(from, to, &options, &report, &error);
    cli_progress_end(&salvaging.shown);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    else
        show_report(cli, &report);
    if (!status && !report.complete)
        code = CLI_NO;
    cli_interrupt_forget();
    truce_store_close(to);
    return code;
}

static const struct cli_command cli_salvage = {
    .noun = "salvage",
    .arguments = "FROM TO",
    .summary = "salvage a damaged file into an empty store",
    .help = "Reads the file FROM and its log page by page in spite of any damage, and changes\n"
            "neither. TO may be any store, and must be empty:\n"
            "\n"
            "    NAME            intact documents, with the indexes of the collection\n"
            "    NAME.doubtful   complete documents of pages with a wrong checksum, or of which a\n"
            "                    later version was lost\n"
            "    salvaged_N      intact documents of an unknown collection\n"
            "\n"
            "No program may have FROM open. Prints for each collection what was saved and what\n"
            "was not. A backup is better: the contents of a lost page cannot be restored.\n"
            "\n"
            "Exit code 1: some documents could not be saved intact.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}' --store school.truce\n"
               "truce salvage school.truce saved.truce",
    .store = CLI_STORE_NONE,
    .run = salvage_run,
};

cli_command_list cli_salvage_commands = {&cli_salvage, NULL};
