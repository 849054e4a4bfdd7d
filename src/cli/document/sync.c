/* truce sync declare, drop, update, insert, status, run, repair. */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/progress.h"
#include "cli/document/doc.h"

#define SAMPLE                                                                                     \
    "truce insert users '{_id: 17, name: \"John\"}'\n"                                             \
    "truce insert comments '{_id: 1, user: 17}'\n"                                                 \
    "truce sync declare author users comments user '{author: \"name\"}' --alone\n"                 \
    "truce sync repair author\n"

static truce_sync *open_sync(const struct cli *cli)
{
    return truce_sync_new(cli->store, &(truce_sync_options){.deadline_ms = cli->deadline_ms});
}

/* ---- declare, drop --------------------------------------------------------------------------- */

static int sync_run_declare(struct cli *cli)
{
    truce_sync_rule rule = {.name = cli->arguments[0],
                            .source = cli->arguments[1],
                            .dependent = cli->arguments[2],
                            .reference = cli->arguments[3],
                            .settle_ms = cli_flag(cli, "alone") ? 1 : 0};
    bson_t copies, answer = BSON_INITIALIZER;
    truce_sync *sync;
    bson_error_t error;
    int64_t resume_s;
    int code = CLI_USAGE;

    if (!cli_number(cli, "resume", 1, 86400, SYNC_RESUME_MS / 1000, &resume_s)) {
        bson_destroy(&answer);
        return CLI_USAGE;
    }
    rule.resume_ms = (uint32_t)(resume_s * 1000);
    if (cli_document(cli, cli->arguments[4], "COPIES", &copies)) {
        truce_status status;

        rule.copies = &copies;
        sync = open_sync(cli);
        status = truce_sync_declare(sync, &rule, &error);
        BSON_APPEND_UTF8(&answer, "declared", rule.name);
        if (!status)
            cli_answer(cli, &answer,
                       "declared %s; to update existing documents, run `truce sync "
                       "repair %s`",
                       rule.name, rule.name);
        code = status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
        truce_sync_free(sync);
    }
    bson_destroy(&copies);
    bson_destroy(&answer);
    return code;
}

const struct cli_command cli_sync_declare = {
    .noun = "sync",
    .verb = "declare",
    .arguments = "NAME SOURCE COPY REFERENCE FIELDS",
    .summary = "declare which fields are copies of other fields",
    .help =
        "SOURCE and COPY are collections. REFERENCE is the field of a document in COPY with the\n"
        "_id of its source. FIELDS is {\"field of the copy\": \"field of the source\"}.\n"
        "After this, `truce sync update` and `insert` update the copies, and `truce sweep`\n"
        "completes interrupted updates. Running processes see the rule within\n"
        "5 seconds; this command waits for them.",
    .example = "truce sync declare author users comments user '{author: \"name\"}'",
    .options =
        (const struct cli_option[]){
            {"alone", 0, NULL, "do not wait: no other process uses the store", false},
            {"resume", 0, "SECONDS", "age of flags that the sweep handles (default: 60)", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = sync_run_declare,
};

static int sync_run_drop(struct cli *cli)
{
    bson_t answer = BSON_INITIALIZER;
    truce_sync *sync = open_sync(cli);
    bson_error_t error;
    truce_status status = truce_sync_drop(sync, cli->arguments[0], &error);

    BSON_APPEND_UTF8(&answer, "dropped", cli->arguments[0]);
    if (!status)
        cli_answer(cli, &answer, "dropped %s", cli->arguments[0]);
    bson_destroy(&answer);
    truce_sync_free(sync);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_sync_drop = {
    .noun = "sync",
    .verb = "drop",
    .arguments = "NAME",
    .summary = "remove a rule; the copies stay",
    .example = SAMPLE "truce sync drop author",
    .store = CLI_STORE_CHANGE,
    .run = sync_run_drop,
};

/* ---- update, insert -------------------------------------------------------------------------- */

static int answer_write(struct cli *cli, const char *verb, truce_status status,
                        const truce_sync_result *result, const bson_error_t *error)
{
    bson_t answer = BSON_INITIALIZER;

    if (status) {
        bson_destroy(&answer);
        return cli_error(cli, NULL, status, error);
    }
    BSON_APPEND_INT64(&answer, "copies", result->copies);
    BSON_APPEND_BOOL(&answer, "settled", result->settled);
    cli_answer(cli, &answer, "%s; %" PRId64 " copies written%s", verb, result->copies,
               result->settled ? "" : "; `truce sync run` or the sweep writes the rest");
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int sync_run_update(struct cli *cli)
{
    bson_t holder, update;
    truce_sync_result result = {0};
    bson_error_t error;
    int code = CLI_USAGE;

    if (!cli_document(cli, cli->arguments[2], "UPDATE", &update)) {
        bson_destroy(&update);
        return CLI_USAGE;
    }
    if (cli_doc_id(cli, cli->arguments[1], &holder)) {
        bson_value_t id = cli_doc_id_in(&holder);
        truce_sync *sync = open_sync(cli);
        truce_status status =
            truce_sync_update(sync, NULL, cli->arguments[0], &id, &update, &result, &error);

        code = answer_write(cli, "updated", status, &result, &error);
        truce_sync_free(sync);
    }
    bson_destroy(&holder);
    bson_destroy(&update);
    return code;
}

const struct cli_command cli_sync_update = {
    .noun = "sync",
    .verb = "update",
    .arguments = "COLLECTION ID UPDATE",
    .summary = "update a source with its copies, or a copy's document",
    .help = "UPDATE has MongoDB's operators. It cannot change a copied field: update its source.",
    .example = SAMPLE "truce sync update users 17 '{$set: {name: \"Johnny\"}}'\n"
                      "truce find comments",
    .store = CLI_STORE_CHANGE,
    .run = sync_run_update,
};

static int sync_run_insert(struct cli *cli)
{
    truce_sync_result result = {0};
    bson_t document, with_id = BSON_INITIALIZER;
    bson_error_t error;
    int code = CLI_USAGE;

    if (cli_document(cli, cli->arguments[1], "DOCUMENT", &document)) {
        truce_sync *sync = open_sync(cli);
        bson_oid_t id;

        bson_oid_init(&id, NULL);
        if (!bson_has_field(&document, "_id"))
            BSON_APPEND_OID(&with_id, "_id", &id);
        bson_concat(&with_id, &document);
        code = answer_write(
            cli, "inserted",
            truce_sync_insert(sync, NULL, cli->arguments[0], &with_id, &result, &error), &result,
            &error);
        truce_sync_free(sync);
    }
    bson_destroy(&with_id);
    bson_destroy(&document);
    return code;
}

const struct cli_command cli_sync_insert = {
    .noun = "sync",
    .verb = "insert",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "insert a document with its copies, or a source",
    .example = SAMPLE "truce sync insert comments '{_id: 2, user: 17, text: \"me, too\"}'\n"
                      "truce find comments '{_id: 2}'",
    .store = CLI_STORE_WRITE,
    .run = sync_run_insert,
};

/* ---- status ---------------------------------------------------------------------------------- */

static bool print_rule(const struct cli *cli, const bson_t *rule)
{
    struct value copies = truce__value_field(truce__value_document(rule), "copies", 6);
    char text[200];

    return cli_answer(cli, rule,
                      "%s: %s -> %s by %s, %s; %" PRId64 " sources and %" PRId64
                      " copies carry a flag",
                      truce__field_text(rule, "rule"), truce__field_text(rule, "source"),
                      truce__field_text(rule, "dependent"), truce__field_text(rule, "reference"),
                      truce__value_show(copies, text, sizeof text),
                      truce__field_number(rule, "syncing"), truce__field_number(rule, "unchecked"));
}

static int sync_run_status(struct cli *cli)
{
    truce_sync *sync = open_sync(cli);
    bson_error_t error;
    bson_t told, rules = BSON_INITIALIZER;
    truce_status status = truce_sync_status(sync, &told, &error);
    bson_iter_t iter;

    truce_sync_free(sync);
    if (!status && bson_iter_init_find(&iter, &told, "rules")) {
        bson_t array;

        truce__value_bson(truce__value_of_iter(&iter), &array);
        bson_destroy(&rules);
        bson_copy_to(&array, &rules);
    }
    bson_destroy(&told);
    return cli_print_array(cli, status, &rules, print_rule, &error);
}

const struct cli_command cli_sync_status = {
    .noun = "sync",
    .verb = "status",
    .summary = "list the rules and their pending updates",
    .example = SAMPLE "truce sync status",
    .store = CLI_STORE_READ,
    .run = sync_run_status,
};

/* ---- run ------------------------------------------------------------------------------------- */

struct running {
    struct cli *cli;
    truce_sync *sync;
    int64_t settled, failed, copies;
    struct cli_progress shown;
};

static truce_status settle_flagged(struct running *running, const char *collection,
                                   const char *flag, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}"),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.projection = projection};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status =
        truce_find(running->cli->store, collection, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        truce_sync_result result;
        bson_error_t why;
        bson_iter_t id;

        (void)bson_iter_init_find(&id, document, "_id");
        if (truce_sync_reconcile(running->sync, collection, bson_iter_value(&id), &result, &why)) {
            char shown[100];

            cli_say(running->cli, CLI_FAILED, "%s {_id: %s}: %s", collection,
                    truce__value_show(truce__value_of_iter(&id), shown, sizeof shown), why.message);
            running->failed++;
        }
        running->settled += result.settled;
        running->copies += result.copies;
        cli_progress(&running->shown, running->settled + running->failed, 0);
    }
    truce_cursor_close(cursor);
    bson_destroy(projection);
    bson_destroy(filter);
    return status;
}

static truce_status settle_rules(struct running *running, const bson_t *told, bson_error_t *error)
{
    bson_iter_t iter, rules;
    truce_status status = TRUCE_OK;
    bson_t rule;

    if (!bson_iter_init_find(&iter, told, "rules") || !bson_iter_recurse(&iter, &rules))
        return TRUCE_OK;
    while (!status && bson_iter_next(&rules)) {
        truce__value_bson(truce__value_of_iter(&rules), &rule);
        status = settle_flagged(running, truce__field_text(&rule, "dependent"), "unchecked", error);
        if (!status)
            status = settle_flagged(running, truce__field_text(&rule, "source"), "syncing", error);
    }
    return status;
}

static int sync_run_run(struct cli *cli)
{
    struct running running = {.cli = cli, .sync = open_sync(cli)};
    bson_t told, answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status = truce_sync_status(running.sync, &told, &error);
    int code;

    cli_progress_begin(cli, &running.shown, "settled");
    if (!status)
        status = settle_rules(&running, &told, &error);
    cli_progress_end(&running.shown);
    BSON_APPEND_INT64(&answer, "settled", running.settled);
    BSON_APPEND_INT64(&answer, "copies", running.copies);
    BSON_APPEND_INT64(&answer, "failed", running.failed);
    if (!status)
        cli_answer(cli, &answer, "%" PRId64 " documents reconciled, %" PRId64 " copies written%s",
                   running.settled, running.copies, running.failed ? ", some failed" : "");
    code = status ? cli_error(cli, NULL, status, &error)
                  : cli_output_end(running.failed ? CLI_NO : CLI_DONE);
    bson_destroy(&answer);
    bson_destroy(&told);
    truce_sync_free(running.sync);
    return code;
}

const struct cli_command cli_sync_run = {
    .noun = "sync",
    .verb = "run",
    .summary = "write pending copies now",
    .help =
        "`truce sweep` does so for flags that are a minute old. Exit code 1: a copy failed, and\n"
        "the reason was printed.",
    .example = SAMPLE "truce update users '{_id: 17}' '{$set: {name: \"Jo\", syncing: true}}'\n"
                      "truce sync run",
    .store = CLI_STORE_CHANGE,
    .run = sync_run_run,
};

/* ---- repair ---------------------------------------------------------------------------------- */

static const char *sync_divergence_name(truce_sync_divergence divergence)
{
    return divergence == TRUCE_SYNC_DIFFERS  ? "differs"
           : divergence == TRUCE_SYNC_ORPHAN ? "has no source"
                                             : "refers to several";
}

static void show_drift(const truce_sync_finding *found, void *arg)
{
    const struct running *running = arg;
    bson_t line = BSON_INITIALIZER;

    cli_progress_end(&((struct running *)arg)->shown);
    BSON_APPEND_VALUE(&line, "copy", found->dependent);
    BSON_APPEND_VALUE(&line, "source", found->source);
    BSON_APPEND_UTF8(&line, "divergence", sync_divergence_name(found->divergence));
    BSON_APPEND_BOOL(&line, "repaired", found->repaired);
    if (!running->cli->quiet)
        cli_print(&line, JSON_RELAXED);
    bson_destroy(&line);
}

static void show_walked(const truce_sync_report *report, void *arg)
{
    cli_progress(&((struct running *)arg)->shown, report->dependents, 0);
}

static int sync_run_repair(struct cli *cli)
{
    struct running running = {.cli = cli, .sync = open_sync(cli)};
    truce_sync_walk_options options = {.repair = !cli_flag(cli, "dry-run"),
                                       .function = show_drift,
                                       .progress = show_walked,
                                       .arg = &running};
    bson_t answer = BSON_INITIALIZER;
    truce_sync_report report;
    bson_error_t error;
    truce_status status;

    cli_progress_begin(cli, &running.shown, "compared");
    status = truce_sync_walk(running.sync, cli->arguments[0], &options, &report, &error);
    cli_progress_end(&running.shown);
    truce_sync_free(running.sync);
    BSON_APPEND_INT64(&answer, "documents", report.dependents);
    BSON_APPEND_INT64(&answer, "differ", report.differ);
    BSON_APPEND_INT64(&answer, "repaired", report.repaired);
    BSON_APPEND_INT64(&answer, "orphans", report.orphans);
    BSON_APPEND_INT64(&answer, "unreadable", report.unreadable);
    BSON_APPEND_INT64(&answer, "under_way", report.under_way);
    if (!status)
        cli_answer(cli, &answer,
                   "%" PRId64 " documents: %" PRId64 " differ, %" PRId64 " repaired, %" PRId64
                   " without a source, %" PRId64 " unreadable, %" PRId64 " in progress",
                   report.dependents, report.differ, report.repaired, report.orphans,
                   report.unreadable, report.under_way);
    bson_destroy(&answer);
    if (status)
        return cli_error(cli, NULL, status, &error);
    return cli_output_end(report.differ > report.repaired || report.unreadable ? CLI_NO : CLI_DONE);
}

const struct cli_command cli_sync_repair = {
    .noun = "sync",
    .verb = "repair",
    .arguments = "NAME",
    .summary = "compare every copy with its source, and repair it",
    .help =
        "The store may be in use. Run it after declaring a rule for existing documents. If it is\n"
        "interrupted, run it again. Prints each divergence. Exit code 1: some remain.",
    .example = SAMPLE "truce update comments '{_id: 1}' '{$set: {author: \"nobody\"}}'\n"
                      "truce sync repair author",
    .options =
        (const struct cli_option[]){
            {"dry-run", 0, NULL, "print the divergences, and change nothing", false}, {0}},
    .store = CLI_STORE_CHANGE,
    .run = sync_run_repair,
};
