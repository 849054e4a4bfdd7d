/* truce update: changes matching documents. */
#include "cli/commands.h"
#include "cli/data/query.h"

#include <inttypes.h>

static void update_describe(bson_t *answer, const truce_write_result *result)
{
    BSON_APPEND_INT64(answer, "matched", result->matched);
    BSON_APPEND_INT64(answer, "modified", result->modified);
    if (result->upserted)
        BSON_APPEND_VALUE(answer, "upsertedId", &result->upserted_id);
}

static int update_answer(const struct cli *cli, const truce_write_result *result)
{
    bson_t document = BSON_INITIALIZER;

    update_describe(&document, result);
    if (result->upserted)
        cli_answer(cli, &document, "matched 0, inserted 1");
    else
        cli_answer(cli, &document, "matched %" PRId64 ", modified %" PRId64, result->matched,
                   result->modified);
    bson_destroy(&document);
    if (result->matched || result->upserted)
        return CLI_DONE;
    cli_note_missing_collection(cli);
    return CLI_NO;
}

static int cli_update_run(struct cli *cli)
{
    truce_write_options options = {.upsert = cli_flag(cli, "upsert"),
                                   .multi = cli_flag(cli, "many"),
                                   .relaxed = cli_flag(cli, "relaxed")};
    bson_t filter, update, filters, hint;
    truce_write_result result = {0};
    bson_error_t error;
    truce_status status;
    bool is_array = false;
    bool good = true;
    int code = CLI_USAGE;

    good &= cli_document(cli, cli->arguments[1], "FILTER", &filter);
    good &= cli_document_or_array(cli, cli->arguments[2], "UPDATE", &update, &options.pipeline);
    good &= cli_document_or_array(cli, cli_text(cli, "array-filters"), "--array-filters", &filters,
                                  &is_array);
    good &= cli_hint_read(cli, &hint);
    if (!good || cli_update_check(cli, &update, options.pipeline))
        goto out;
    if (cli_text(cli, "array-filters")) {
        options.array_filters = &filters;
        if (!is_array) {
            cli_usage(
                cli,
                "--array-filters must be an array of conditions, for example [{\"i.n\": 1}] for "
                "the path items.$[i]");
            goto out;
        }
    }
    options.hint = bson_empty(&hint) ? NULL : &hint;
    status =
        truce_update(cli->store, cli->arguments[0], &filter, &update, &options, &result, &error);
    code = status ? cli_error(cli, NULL, status, &error) : update_answer(cli, &result);
    truce_write_result_release(&result);
out:
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(&filters);
    bson_destroy(&hint);
    return code;
}

static const struct cli_command cli_update = {
    .noun = "update",
    .arguments = "COLLECTION FILTER UPDATE",
    .summary = "update the first matching document, or all with --many",
    .help =
        "UPDATE is a document of MongoDB's operators ({\"$set\": ...}), an array of aggregation\n"
        "stages, or with --replace a whole document. Exit code 1: nothing matched, and nothing\n"
        "was inserted by --upsert.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce update students '{_id: 1}' '{$inc: {year: 1}}'",
    .options =
        (const struct cli_option[]){
            {"many", 'm', NULL, "update every matching document", false},
            {"upsert", 'u', NULL, "insert a document if nothing matches", false},
            CLI_REPLACE_OPTION,
            {"array-filters", 0, "ARRAY", "conditions for $[name] in paths", false},
            CLI_HINT_OPTION,
            {"relaxed", 0, NULL, "do not wait for the disk", false},
            {0}},
    .store = CLI_STORE_UPSERT,
    .writes_documents = true,
    .run = cli_update_run,
};

cli_command_list cli_update_commands = {&cli_update, NULL};
