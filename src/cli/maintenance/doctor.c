/* truce doctor: examines the environment of a store. */
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

static const char *doctor_text_of(const bson_t *document, const char *name)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, name, &found) &&
                   BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : "";
}

static const char *doctor_colour_of(const char *level)
{
    return !strcmp(level, "error")     ? "\033[31m"
           : !strcmp(level, "warning") ? "\033[33m"
                                       : "\033[2m";
}

static void doctor_show(const struct cli *cli, const bson_t *finding)
{
    const char *level = doctor_text_of(finding, "level");

    if (cli->json) {
        cli_print(finding, JSON_RELAXED);
        return;
    }
    cli_paint(doctor_colour_of(level));
    cli_put("%-8s", level);
    cli_paint("\033[0m");
    cli_put(" %s: %s: %s\n         change: %s\n", doctor_text_of(finding, "rule"),
            doctor_text_of(finding, "subject"), doctor_text_of(finding, "text"),
            doctor_text_of(finding, "change"));
}

/* Describes the store in a few words. */
static void doctor_describe(const bson_t *facts, char *text, size_t size)
{
    if (!strcmp(doctor_text_of(facts, "store"), "mongodb"))
        snprintf(text, size, "server %s, %s", doctor_text_of(facts, "build.version"),
                 doctor_text_of(facts, "deployment"));
    else if (!strcmp(doctor_text_of(facts, "store"), "file"))
        snprintf(text, size, "%s on %s", doctor_text_of(facts, "path"),
                 *doctor_text_of(facts, "filesystem.name")
                     ? doctor_text_of(facts, "filesystem.name")
                     : "an unknown file system");
    else
        snprintf(text, size, "a store of type %s", doctor_text_of(facts, "store"));
}

static bool doctor_print(struct cli *cli, const bson_t *reply)
{
    struct fields findings =
        truce__fields(truce__value_field(truce__value_document(reply), "findings", 8));
    int64_t errors = truce__field_number(reply, "errors"),
            warnings = truce__field_number(reply, "warnings"),
            notes = truce__field_number(reply, "notes");
    bson_t answer = BSON_INITIALIZER, one;
    char what[400] = "";
    bool good;

    while (truce__fields_next(&findings)) {
        truce__value_bson(findings.value, &one);
        doctor_show(cli, &one);
    }
    BCON_APPEND(&answer, "errors", BCON_INT64(errors), "warnings", BCON_INT64(warnings), "notes",
                BCON_INT64(notes));
    if (truce__value_subdocument(reply, "facts", &one)) {
        doctor_describe(&one, what, sizeof what);
        if (cli_flag(cli, "facts"))
            BSON_APPEND_DOCUMENT(&answer, "facts", &one);
    }
    good = cli_answer(cli, &answer, "%s: %s, %s, %s", what, PLURAL(errors, "error", "errors"),
                      PLURAL(warnings, "warning", "warnings"), PLURAL(notes, "note", "notes"));
    bson_destroy(&answer);
    return good;
}

static bool doctor_is_negative(const bson_t *reply)
{
    return truce__field_number(reply, "errors") || truce__field_number(reply, "warnings");
}

/* Returns how to open the store: read-only if the process may only read the file. */
static enum cli_store_use doctor_store_use(const struct cli *cli)
{
    const char *path = cli->uri && !strncmp(cli->uri, "file:", 5) ? cli->uri + 5 : cli->uri;

    return path && access(path, W_OK) != 0 && access(path, R_OK) == 0 ? CLI_STORE_READ
                                                                      : CLI_STORE_CHANGE;
}

static int doctor_run(struct cli *cli)
{
    bool may_be_empty;
    int code;

    if (cli->arguments[0])
        cli->uri = cli->arguments[0];
    code = cli_refuse_database_of_file(cli);
    if (code)
        return code;
    /* A server is examined even if the database has no collections yet. */
    may_be_empty =
        cli->uri && (!strncmp(cli->uri, "mongodb", 7) || !strncmp(cli->uri, "memory:", 7));
    code = cli_store_open(cli, may_be_empty ? CLI_STORE_WRITE : doctor_store_use(cli), &cli->store);
    return code ? code : cli_row_run(cli);
}

static const struct cli_command cli_doctor = {
    .noun = "doctor",
    .arguments = "[STORE]",
    .summary = "examine the environment of a store",
    .help =
        "For a server, it examines versions, transactions, durability, members of the\n"
        "replica set, clocks, rights, and the shard keys that truce's documents need. For a\n"
        "file, it examines the disk, the file system, permissions, the lock file, and the log.\n"
        "For both, it examines indexes and interrupted commits. It changes nothing.\n"
        "\n"
        "Each finding is an error (a guarantee does not hold), a warning (a problem is likely),\n"
        "or a note, and says what to change. Exit code 1: there are errors or warnings.\n"
        "\n"
        "STORE may be a server: truce doctor mongodb://db1,db2,db3/school?replicaSet=rs0",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce doctor || echo 'there is something to change'",
    .options =
        (const struct cli_option[]){
            {"facts", 0, NULL, "with --json: print all facts in the last line", false}, {0}},
    .row = &(const struct cli_row){.name = "truceDoctor",
                                   .negative = doctor_is_negative,
                                   .print = doctor_print,
                                   .prints_json = true},
    .store = CLI_STORE_NONE,
    .run = doctor_run,
};

cli_command_list cli_doctor_commands = {&cli_doctor, NULL};
