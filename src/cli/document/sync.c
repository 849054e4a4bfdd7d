/* truce sync: denormalized copies. */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

#define SAMPLE                                                                                     \
    "truce insert users '{_id: 17, name: \"John\"}'\n"                                             \
    "truce insert comments '{_id: 1, user: 17}'\n"                                                 \
    "truce sync declare author users comments user '{author: \"name\"}' --settle 1ms\n"            \
    "truce sync repair author\n"

/* ---- declare, drop --------------------------------------------------------------------------- */

#define NO_RULE "the rule \"{rule}\" does not exist"

static bool sync_print_declare(struct cli *cli, const bson_t *reply)
{
    const char *name = cli->arguments[0];

    if (bson_has_field(reply, "note"))
        cli_note(cli, "%s", truce__field_text(reply, "note"));
    return cli_put("declared %s; to update existing documents, run `truce sync repair %s`\n", name,
                   name);
}

static const struct cli_command cli_sync_declare = {
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
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSyncDeclare",
                                   .named = "NAME rule COPY dependent FIELDS copies",
                                   .print = sync_print_declare},
    .run = cli_row_run,
};

static const struct cli_command cli_sync_drop = {
    .noun = "sync",
    .verb = "drop",
    .arguments = "NAME",
    .summary = "remove a rule; the copies stay",
    .example = SAMPLE "truce sync drop author",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSyncDrop",
                                   .named = "NAME rule",
                                   .format = "dropped {rule}",
                                   .none = NO_RULE},
    .run = cli_row_run,
};

/* ---- update, insert -------------------------------------------------------------------------- */

static bool sync_print_write(struct cli *cli, const bson_t *reply)
{
    return cli_put(
        "%s; %s written%s\n", strcmp(cli->command->verb, "insert") ? "updated" : "inserted",
        PLURAL(truce__field_number(reply, "copies"), "copy", "copies"),
        truce__field_true(reply, "settled") ? ""
                                            : "; `truce sync run` or the sweep writes the rest");
}

static const struct cli_command cli_sync_update = {
    .noun = "sync",
    .verb = "update",
    .arguments = "COLLECTION ID UPDATE",
    .summary = "update a source with its copies, or a dependent document",
    .help = "UPDATE has MongoDB's operators. It cannot change a copied field: update its source.",
    .example = SAMPLE "truce sync update users 17 '{$set: {name: \"Johnny\"}}'\n"
                      "truce find comments",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSyncUpdate",
                                   .none = "{collection} has no document {id}",
                                   .print = sync_print_write},
    .run = cli_row_run,
};

static const struct cli_command cli_sync_insert = {
    .noun = "sync",
    .verb = "insert",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "insert a document with its copies, or a source",
    .example = SAMPLE "truce sync insert comments '{_id: 2, user: 17, text: \"me, too\"}'\n"
                      "truce find comments '{_id: 2}'",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSyncInsert", .print = sync_print_write},
    .run = cli_row_run,
};

/* ---- status ---------------------------------------------------------------------------------- */

static bool print_rule(struct cli *cli, const bson_t *rule)
{
    struct value copies = truce__value_field(truce__value_document(rule), "copies", 6);
    char text[200];

    return cli_answer(cli, rule, "%s: %s -> %s by %s, %s; with a flag: %s and %s",
                      truce__field_text(rule, "rule"), truce__field_text(rule, "source"),
                      truce__field_text(rule, "dependent"), truce__field_text(rule, "reference"),
                      truce__value_show(copies, text, sizeof text),
                      PLURAL(truce__field_number(rule, "syncing"), "source", "sources"),
                      PLURAL(truce__field_number(rule, "unchecked"), "copy", "copies"));
}

static const struct cli_command cli_sync_status = {
    .noun = "sync",
    .verb = "status",
    .summary = "list the rules and their pending updates",
    .example = SAMPLE "truce sync status",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceSyncStatus", .list = "rules", .print = print_rule},
    .run = cli_row_run,
};

/* ---- run ------------------------------------------------------------------------------------- */

static bool sync_has_failed(const bson_t *reply)
{
    return truce__field_number(reply, "failed") > 0;
}

static bool sync_print_run(struct cli *cli, const bson_t *reply)
{
    struct fields failures = truce__fields(
        truce__value_field(truce__value_document(reply), "failures", strlen("failures")));

    while (truce__fields_next(&failures)) {
        char shown[100];
        bson_t one;

        truce__value_bson(failures.value, &one);
        cli_message(
            cli, CLI_FAILED, "%s {_id: %s}: %s", truce__field_text(&one, "collection"),
            truce__value_show(truce__value_field(failures.value, "id", 2), shown, sizeof shown),
            truce__field_text(&one, "failure"));
    }
    return cli_put("%s reconciled, %s written%s\n",
                   PLURAL(truce__field_number(reply, "settled"), "document", "documents"),
                   PLURAL(truce__field_number(reply, "copies"), "copy", "copies"),
                   sync_has_failed(reply) ? ", some failed" : "");
}

static const struct cli_command cli_sync_run = {
    .noun = "sync",
    .verb = "run",
    .summary = "write pending copies now",
    .help =
        "`truce sweep` also writes them, a minute after the update. Exit code 1: a copy could not\n"
        "be written; the reason is printed.",
    .example = SAMPLE "truce update users '{_id: 17}' '{$set: {name: \"Jo\", syncing: true}}'\n"
                      "truce sync run",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSyncReconcile",
                                   .fields = "",
                                   .negative = sync_has_failed,
                                   .print = sync_print_run},
    .run = cli_row_run,
};

/* ---- repair ---------------------------------------------------------------------------------- */

static bool sync_remains(const bson_t *reply)
{
    return truce__field_number(reply, "differ") > truce__field_number(reply, "repaired") ||
           truce__field_number(reply, "unreadable") > 0;
}

static bool sync_print_repair(struct cli *cli, const bson_t *reply)
{
    static const char *const counts[] = {"dependents", "differ",     "repaired",
                                         "orphans",    "unreadable", "underWay"};
    long long n[6];
    bson_iter_t at, one;
    bson_t finding;

    if (!cli->quiet && bson_iter_init_find(&at, reply, "findings") && bson_iter_recurse(&at, &one))
        while (bson_iter_next(&one)) {
            truce__value_bson(truce__value_of_iter(&one), &finding);
            cli_print(&finding, JSON_RELAXED);
        }
    for (int i = 0; i < 6; i++)
        n[i] = truce__field_number(reply, counts[i]);
    return cli_put("%s: %lld different, %lld repaired, %lld without a source, %lld "
                   "unreadable, %lld in progress\n",
                   PLURAL(n[0], "document", "documents"), n[1], n[2], n[3], n[4], n[5]);
}

static const struct cli_command cli_sync_repair = {
    .noun = "sync",
    .verb = "repair",
    .arguments = "NAME",
    .summary = "compare every copy with its source, and repair it",
    .help =
        "The store may be in use. Run it after declaring a rule for existing documents. If it is\n"
        "interrupted, run it again. Prints the first 1,000 divergences. Exit code 1:\n"
        "some remain.",
    .example = SAMPLE "truce update comments '{_id: 1}' '{$set: {author: \"nobody\"}}'\n"
                      "truce sync repair author",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSyncRepair",
                                   .named = "NAME rule",
                                   .none = NO_RULE,
                                   .negative = sync_remains,
                                   .print = sync_print_repair},
    .run = cli_row_run,
};

cli_command_list cli_sync_commands = {
    &cli_sync_declare, &cli_sync_drop, &cli_sync_update, &cli_sync_insert,
    &cli_sync_status,  &cli_sync_run,  &cli_sync_repair, NULL};
