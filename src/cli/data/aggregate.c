/* truce aggregate: runs an aggregation pipeline on a collection. */
#include "query/aggregate/aggregate.h"
#include <string.h>

#include "cli/commands.h"
#include "cli/core/plain_output.h"
#include "cli/core/view_lookup.h"
#include "cli/data/view.h"
#include "store/reserved_names.h"

/* Returns the name of the collection that the last stage writes, or "" if it writes none. */
static const char *aggregate_target(const bson_t *pipeline)
{
    bson_iter_t stages, stage, into;
    const char *target = "";

    for (bson_iter_init(&stages, pipeline); bson_iter_next(&stages);) {
        bool writes =
            bson_iter_recurse(&stages, &stage) && bson_iter_next(&stage) &&
            (!strcmp(bson_iter_key(&stage), "$out") || !strcmp(bson_iter_key(&stage), "$merge"));

        /* Descends to the name: {$merge: {into: "x"}}, {$merge: {into: {db, coll: "x"}}}, {$out:
         * {db, coll: "x"}}. */
        while (writes && BSON_ITER_HOLDS_DOCUMENT(&stage) && bson_iter_recurse(&stage, &into) &&
               (bson_iter_find(&into, "into") ||
                (bson_iter_recurse(&stage, &into) && bson_iter_find(&into, "coll"))))
            stage = into;
        if (writes && BSON_ITER_HOLDS_UTF8(&stage))
            target = bson_iter_utf8(&stage, NULL);
    }
    return target;
}

static truce_status aggregate_view(const struct cli *cli, const struct cli_query *query,
                                   const bson_t *pipeline, truce_cursor **cursor,
                                   bson_error_t *error)
{
    bson_t request = BSON_INITIALIZER, batch;
    truce_status status;

    BSON_APPEND_UTF8(&request, "aggregate", cli->arguments[0]);
    BSON_APPEND_ARRAY(&request, "pipeline", pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&request, "cursor", &batch);
    bson_append_document_end(&request, &batch);
    cli_view_append_query(cli, query, NULL, &request);
    BSON_APPEND_BOOL(&request, "allowDiskUse", true);
    status = cli_view_open(cli, cli->store, &request, cursor, error);
    bson_destroy(&request);
    return status;
}

static int aggregate_run(struct cli *cli)
{
    struct cli_query query;
    bson_t pipeline;
    truce_cursor *cursor = NULL;
    bson_error_t error;
    bool is_array = false, any = false;
    int code = cli_query_read(cli, NULL, &query);

    if (!cli_document_or_array(cli, cli->arguments[1], "PIPELINE", &pipeline, &is_array))
        code = CLI_USAGE;
    else if (!is_array)
        code = cli_usage(cli, "PIPELINE must be an array of stages: [{\"$match\": {...}}, ...]");
    if (!code && truce__reserved(aggregate_target(&pipeline)))
        code = cli_usage(cli, "%s is reserved for truce: a pipeline cannot write into it",
                         aggregate_target(&pipeline));
    if (!code)
        code = cli_store_open(cli,
                              truce__pipeline_writes(&pipeline) ? CLI_STORE_CHANGE : CLI_STORE_READ,
                              &cli->store);
    if (!code && cli_store_path(cli->uri) && cli_view_in_pipeline(cli->store, &pipeline))
        cli->is_view = true;
    if (!code) {
        const truce_aggregate_options options = {.hint = query.options.hint,
                                                 .deadline_ms = query.options.deadline_ms,
                                                 .allow_disk_use = query.options.allow_disk_use};
        truce_status status = cli->is_view ? aggregate_view(cli, &query, &pipeline, &cursor, &error)
                                           : truce_aggregate(cli->store, cli->arguments[0],
                                                             &pipeline, &options, &cursor, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_print_cursor(cli, cursor, &any);
        if (!code && !any)
            cli_note_missing_collection(cli);
    }
    bson_destroy(&pipeline);
    cli_query_release(&query);
    return code;
}

static const struct cli_command cli_aggregate = {
    .noun = "aggregate",
    .arguments = "COLLECTION PIPELINE",
    .summary = "run an aggregation pipeline and print its results",
    .help = "PIPELINE is an array of MongoDB's stages. $out and $merge write to this store.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce aggregate students '[{$unwind: \"$classes\"},\n"
        "    {$group: {_id: \"$classes.name\", students: {$sum: 1}}}]'",
    .options =
        (const struct cli_option[]){CLI_HINT_OPTION, CLI_PLAIN_OPTION, CLI_CANONICAL_OPTION, {0}},
    /* The command opens the store itself, as the pipeline needs. */
    .store = CLI_STORE_NONE,
    .reads_views = true,
    .run = aggregate_run,
};

cli_command_list cli_aggregate_commands = {&cli_aggregate, NULL};
