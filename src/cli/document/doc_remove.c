/* truce doc remove. */
#include <inttypes.h>

#include "cli/commands.h"
#include "cli/document/doc.h"

static int tell_removed(const struct cli *cli, int64_t version)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&answer, "outcome", "removed");
    BSON_APPEND_INT64(&answer, "version", version);
    cli_answer(cli, &answer, "removed, version %" PRId64, version);
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int remove_run_remove(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_revision_result result;
    bson_t holder, base;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    int64_t version;
    bool given = false;
    int code = CLI_USAGE;

    if (!cli_text(cli, "version"))
        return cli_usage(cli, "--version NUMBER is missing: the one that was read");
    if (cli_doc_id(cli, cli->arguments[1], &holder) &&
        cli_option_document(cli, "base", &base, &given) &&
        cli_number(cli, "version", 0, INT64_MAX, 0, &version) && cli_doc_open(cli, &revision)) {
        id = cli_doc_id_in(&holder);
        status = truce_revision_remove(revision, NULL, &id, version, given ? &base : NULL, &result,
                                       &error);
        if (status)
            code = cli_error(cli, NULL, status, &error);
        else if (result.outcome == TRUCE_REVISION_CONFLICT)
            code = cli_doc_answer(cli, &result);
        else
            code = tell_removed(cli, version);
        truce_revision_result_release(&result);
    }
    truce_revision_free(revision);
    if (given)
        bson_destroy(&base);
    bson_destroy(&holder);
    return code;
}

const struct cli_command cli_doc_remove = {
    .noun = "doc",
    .verb = "remove",
    .arguments = "COLLECTION ID",
    .summary = "remove a document if nobody has saved it since it was read",
    .help =
        "If its number is no longer --version, nothing is removed, what stands is told, and the\n"
        "exit code is 1. The number is never given again: a document of that _id goes on counting.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc remove posts 1 --version 1",
    .options =
        (const struct cli_option[]){{"version", 'v', "NUMBER", "the number that was read", false},
                                    {"base", 'b', "DOCUMENT",
                                     "the document that was read: it has to stand as it was",
                                     false},
                                    DOC_OPTIONS,
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = remove_run_remove,
};
