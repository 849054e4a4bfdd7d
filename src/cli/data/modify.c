/* truce modify: changes and returns a document in one atomic step. */
#include "cli/commands.h"
#include "cli/data/query.h"

struct modify {
    bson_t filter, update, sort, projection, hint, filters;
    truce_modify_options options;
    bool removes;
};

/* Reads and checks the call. Its documents are initialized in any case. */
static int modify_read_call(const struct cli *cli, struct modify *m)
{
    bool given = false, is_array = false;
    bool good = cli_document(cli, cli->arguments[1], "FILTER", &m->filter);

    good &=
        cli_document_or_array(cli, cli->arguments[2], "UPDATE", &m->update, &m->options.pipeline);
    good &= cli_option_document(cli, "sort", &m->sort, &given);
    m->options.sort = given ? &m->sort : NULL;
    good &= cli_option_document(cli, "projection", &m->projection, &given);
    m->options.projection = given ? &m->projection : NULL;
    good &= cli_hint_read(cli, &m->hint);
    m->options.hint = bson_empty(&m->hint) ? NULL : &m->hint;
    good &= cli_document_or_array(cli, cli_text(cli, "array-filters"), "--array-filters",
                                  &m->filters, &is_array);
    if (!good)
        return CLI_USAGE;
    if (cli_text(cli, "array-filters") && !is_array)
        return cli_usage(
            cli,
            "--array-filters must be an array of conditions, for example [{\"i.n\": 1}] for the "
            "path items.$[i]");
    m->options.array_filters = is_array ? &m->filters : NULL;
    m->options.remove = m->removes = cli_flag(cli, "remove");
    m->options.return_new = cli_flag(cli, "new");
    m->options.upsert = cli_flag(cli, "upsert");
    m->options.relaxed = cli_flag(cli, "relaxed");
    m->options.deadline_ms = cli->deadline_ms;
    if (m->removes == (cli->arguments[2] != NULL))
        return cli_usage(cli, "give either UPDATE or --remove%s", m->removes ? ", not both" : "");
    if (m->removes && cli_flag(cli, "replace"))
        return cli_usage(cli, "give either --replace or --remove, not both");
    return m->removes ? CLI_DONE : cli_update_check(cli, &m->update, m->options.pipeline);
}

static int modify_run(struct cli *cli)
{
    struct modify m = {0};
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    truce_write_result result = {0};
    int code = modify_read_call(cli, &m);

    if (!code) {
        truce_status status = truce_find_and_modify(cli->store, cli->arguments[0], &m.filter,
                                                    m.removes ? NULL : &m.update, &m.options,
                                                    &document, &result, &error);

        code = status == TRUCE_NOT_FOUND ? CLI_NO
               : status                  ? cli_error(cli, NULL, status, &error)
                                         : CLI_DONE;
        if (status == TRUCE_NOT_FOUND)
            cli_note_missing_collection(cli);
        if (!status && !bson_empty(&document))
            cli_print(&document, cli_form(cli));
        truce_write_result_release(&result);
    }
    bson_destroy(&document);
    bson_destroy(&m.filter);
    bson_destroy(&m.update);
    bson_destroy(&m.sort);
    bson_destroy(&m.projection);
    bson_destroy(&m.hint);
    bson_destroy(&m.filters);
    return code;
}

static const struct cli_command cli_modify = {
    .noun = "modify",
    .arguments = "COLLECTION FILTER [UPDATE]",
    .summary = "find and change one document atomically, and print it",
    .help = "Prints the document before the change, or after it with --new. --sort selects the\n"
            "document if several match. UPDATE has the forms of truce update. The exit code is 1\n"
            "if nothing matched.",
    .example =
        "truce insert jobs '{_id: 1, state: \"waiting\"}'\n"
        "truce modify jobs '{state: \"waiting\"}' '{$set: {state: \"taken\"}}' --sort '{_id: 1}' "
        "--new",
    .options =
        (const struct cli_option[]){
            CLI_SORT_OPTION,
            CLI_PROJECTION_OPTION,
            {"new", 0, NULL, "print the document after the change, not before", false},
            {"remove", 0, NULL, "remove the document", false},
            {"upsert", 'u', NULL, "insert a document if nothing matches", false},
            CLI_REPLACE_OPTION,
            {"array-filters", 0, "ARRAY", "conditions for $[name] in paths", false},
            CLI_HINT_OPTION,
            {"relaxed", 0, NULL, "do not wait for the disk", false},
            CLI_CANONICAL_OPTION,
            {0}},
    .store = CLI_STORE_UPSERT,
    .writes_documents = true,
    .run = modify_run,
};

cli_command_list cli_modify_commands = {&cli_modify, NULL};
