/* truce item: items of arrays and maps. */
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

static bool item_is_unchanged(const bson_t *reply)
{
    return !truce__field_number(reply, "matched") && !truce__field_true(reply, "added");
}

static bool item_print(struct cli *cli, const bson_t *reply)
{
    (void)cli;
    if (truce__field_true(reply, "added"))
        return cli_put("added\n");
    return cli_put("matched %lld, modified %lld\n",
                   (long long)truce__field_number(reply, "matched"),
                   (long long)truce__field_number(reply, "modified"));
}

#define ITEM_CHANGE(set_, named_, fields_)                                                         \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceItem", .set = set_, .named = named_,                                         \
        .fields = "field identity versionField" fields_,                                           \
        .none = "no document of {collection} matches {filter}", .negative = item_is_unchanged,     \
        .print = item_print                                                                        \
    }

static const struct cli_command cli_item_update = {
    .noun = "item",
    .verb = "update",
    .arguments = "COLLECTION FILTER QUERY UPDATE",
    .summary = "update matching items of an array in place",
    .help =
        "FILTER selects the document, and QUERY the items, as in $pull. UPDATE has MongoDB's\n"
        "operators, with paths that begin at the item. It is one atomic write: no reader sees the\n"
        "array without the items, and their order stays. The exit code is 1 if no item matched.",
    .example =
        "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
        "truce item update employees '{_id: 1}' '{type: \"MENTOR\"}' '{$set: {since: 2020}}' \\\n"
        "    --field badges --identity type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CHANGE(NULL, NULL, ""),
    .run = cli_row_run,
};

static const struct cli_command cli_item_add = {
    .noun = "item",
    .verb = "add",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "append an item unless one has the same identity",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item add employees '{_id: 1}' '{type: \"SAFETY\"}' -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CHANGE(NULL, "ITEM add", " map"),
    .run = cli_row_run,
};

static const struct cli_command cli_item_replace = {
    .noun = "item",
    .verb = "replace",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "replace the item with the same identity",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item replace employees '{_id: 1}' '{type: \"MENTOR\", since: 2020}' \\\n"
               "    --query '{since: 2019}' -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CHANGE(NULL, "ITEM replace", " query"),
    .run = cli_row_run,
};

static const struct cli_command cli_item_upsert = {
    .noun = "item",
    .verb = "upsert",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "replace the item with the same identity, or add it",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item upsert employees '{_id: 1}' '{type: \"SAFETY\"}' -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CHANGE(NULL, "ITEM upsert", " map"),
    .run = cli_row_run,
};

static const struct cli_command cli_item_remove = {
    .noun = "item",
    .verb = "remove",
    .arguments = "COLLECTION FILTER QUERY",
    .summary = "remove matching items of an array",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item remove employees '{_id: 1}' '{type: \"MENTOR\"}' -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CHANGE("{remove: true}", NULL, ""),
    .run = cli_row_run,
};

/* ---- layouts and indexes --------------------------------------------------------------------- */

static bool item_is_refused(const bson_t *reply)
{
    return truce__field_number(reply, "refused") > 0;
}

static bool item_print_converted(struct cli *cli, const bson_t *reply)
{
    bool good = cli_put("%lld converted, %lld unchanged\n",
                        (long long)truce__field_number(reply, "documents"),
                        (long long)truce__field_number(reply, "refused"));

    if (item_is_refused(reply))
        cli_note(cli, "the first document that was not converted: %s",
                 truce__field_text(reply, "failure"));
    return good;
}

#define ITEM_CONVERT(set_)                                                                         \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceItemConvert", .set = set_, .fields = "field identity",                       \
        .negative = item_is_refused, .print = item_print_converted                                 \
    }

static const struct cli_command cli_item_to_map = {
    .noun = "item",
    .verb = "to-map",
    .arguments = "COLLECTION",
    .summary = "convert arrays into maps while the collection is in use",
    .help = "Converts each document in one atomic write. The key of an item is its identity.\n"
            "\"%\", \".\", and \"$\" are written as %25, %2E, and %24. If the command is\n"
            "killed, run it again, and it resumes. A document stays unchanged (exit code 1) if an\n"
            "item has no identity, or two items have the same one.",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item to-map employees -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CONVERT("{map: true}"),
    .run = cli_row_run,
};

static const struct cli_command cli_item_to_array = {
    .noun = "item",
    .verb = "to-array",
    .arguments = "COLLECTION",
    .summary = "convert maps into arrays while the collection is in use",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item to-map employees -f badges -i type\n"
               "truce item to-array employees -f badges -i type",
    .store = CLI_STORE_CHANGE,
    .row = ITEM_CONVERT(NULL),
    .run = cli_row_run,
};

static const struct cli_command cli_item_index = {
    .noun = "item",
    .verb = "index",
    .arguments = "COLLECTION [PATH]",
    .summary = "create an index on a field of the items",
    .help = "PATH begins at the item; the default is the identity. With --map, one index is\n"
            "created for each --key, or a wildcard index over the whole map.",
    .example = "truce item index employees since -f badges -i type",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceItemIndex", .format = ""},
    .run = cli_row_run,
};

cli_command_list cli_item_commands = {&cli_item_update,   &cli_item_add,    &cli_item_replace,
                                      &cli_item_upsert,   &cli_item_remove, &cli_item_to_map,
                                      &cli_item_to_array, &cli_item_index,  NULL};
