/* truce item update, add, replace, upsert, remove, to-map, to-array, index. */
#include <inttypes.h>
#include <string.h>

#include "cli/commands.h"

#define ITEM_OPTIONS                                                                               \
    {"field", 'f', "PATH", "the path of the items in the document", false},                        \
        {"identity", 'i', "FIELD", "the field that identifies an item", false},                    \
        {"version-field", 0, "FIELD", "the revision number to increment, if a document has one",   \
         false},                                                                                   \
    {                                                                                              \
        "map", 0, NULL, "create a map, not an array, in documents without items", false            \
    }

/* Opens the items. If an option is missing, prints the error and returns NULL. */
static truce_item *open_item(const struct cli *cli)
{
    const char *field = cli_text(cli, "field"), *identity = cli_text(cli, "identity");

    if (!field || !identity) {
        cli_usage(cli,
                  field ? "--identity FIELD is missing: the field that identifies an item of %s"
                        : "--field PATH is missing: the path of the items in a document of %s",
                  field ? field : cli->arguments[0]);
        return NULL;
    }
    return truce_item_new(cli->store,
                          &(truce_item_options){
                              .collection = cli->arguments[0],
                              .field = field,
                              .identity = identity,
                              .version = cli_text(cli, "version-field"),
                              .deadline_ms = cli->deadline_ms,
                              .layout = cli_flag(cli, "map") ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY,
                          });
}

/* ---- one call -------------------------------------------------------------------------------- */

static int item_answer(const struct cli *cli, const truce_item_result *result)
{
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_INT64(&document, "matched", result->matched);
    BSON_APPEND_INT64(&document, "modified", result->modified);
    BSON_APPEND_BOOL(&document, "added", result->added);
    if (result->added)
        cli_answer(cli, &document, "added");
    else
        cli_answer(cli, &document, "matched %" PRId64 ", modified %" PRId64, result->matched,
                   result->modified);
    bson_destroy(&document);
    return result->matched || result->added ? CLI_DONE : CLI_NO;
}

typedef truce_status item_function(truce_item *item, const bson_t *filter, const bson_t *first,
                                   const bson_t *second, truce_item_result *result,
                                   bson_error_t *error);

/* Runs a command with the arguments COLLECTION FILTER `first` [`second`]. */
static int item_change(struct cli *cli, const char *first_name, const char *second_text,
                       const char *second_name, item_function *function)
{
    bson_t filter, first, second;
    truce_item_result result;
    truce_item *item = NULL;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;
    bool good = cli_document(cli, cli->arguments[1], "FILTER", &filter);

    good &= cli_document(cli, cli->arguments[2], first_name, &first);
    good &= cli_document(cli, second_text, second_name, &second);
    item = good ? open_item(cli) : NULL;
    if (item) {
        status = function(item, &filter, &first, second_text ? &second : NULL, &result, &error);
        code = status ? cli_error(cli, NULL, status, &error) : item_answer(cli, &result);
    }
    truce_item_free(item);
    bson_destroy(&filter);
    bson_destroy(&first);
    bson_destroy(&second);
    return code;
}

static truce_status run_item_update(truce_item *item, const bson_t *filter, const bson_t *query,
                                    const bson_t *operators, truce_item_result *result,
                                    bson_error_t *error)
{
    return truce_item_update(item, NULL, filter, query, operators, result, error);
}

static truce_status run_item_add(truce_item *item, const bson_t *filter, const bson_t *document,
                                 const bson_t *none, truce_item_result *result, bson_error_t *error)
{
    (void)none;
    return truce_item_add(item, NULL, filter, document, result, error);
}

static truce_status run_item_replace(truce_item *item, const bson_t *filter, const bson_t *document,
                                     const bson_t *condition, truce_item_result *result,
                                     bson_error_t *error)
{
    return truce_item_replace(item, NULL, filter, condition, document, result, error);
}

static truce_status upsert(truce_item *item, const bson_t *filter, const bson_t *document,
                           const bson_t *none, truce_item_result *result, bson_error_t *error)
{
    (void)none;
    return truce_item_upsert(item, NULL, filter, document, result, error);
}

static truce_status item_drop(truce_item *item, const bson_t *filter, const bson_t *query,
                              const bson_t *none, truce_item_result *result, bson_error_t *error)
{
    (void)none;
    return truce_item_remove(item, NULL, filter, query, result, error);
}

static int item_run_update(struct cli *cli)
{
    return item_change(cli, "QUERY", cli->arguments[3], "UPDATE", run_item_update);
}

static int item_run_add(struct cli *cli)
{
    return item_change(cli, "ITEM", NULL, "", run_item_add);
}

static int item_run_replace(struct cli *cli)
{
    return item_change(cli, "ITEM", cli_text(cli, "if"), "--if", run_item_replace);
}

static int run_upsert(struct cli *cli)
{
    return item_change(cli, "ITEM", NULL, "", upsert);
}

static int item_run_remove(struct cli *cli)
{
    return item_change(cli, "QUERY", NULL, "", item_drop);
}

static const struct cli_option change_options[] = {ITEM_OPTIONS, {0}};

const struct cli_command cli_item_update = {
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
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = item_run_update,
};

const struct cli_command cli_item_add = {
    .noun = "item",
    .verb = "add",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "append an item unless one has the same identity",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item add employees '{_id: 1}' '{type: \"SAFETY\"}' -f badges -i type",
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = item_run_add,
};

const struct cli_command cli_item_replace = {
    .noun = "item",
    .verb = "replace",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "replace the item with the same identity",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item replace employees '{_id: 1}' '{type: \"MENTOR\", since: 2020}' \\\n"
               "    --if '{since: 2019}' -f badges -i type",
    .options =
        (const struct cli_option[]){
            {"if", 0, "QUERY", "only if the old item matches this, too", false}, ITEM_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = item_run_replace,
};

const struct cli_command cli_item_upsert = {
    .noun = "item",
    .verb = "upsert",
    .arguments = "COLLECTION FILTER ITEM",
    .summary = "replace the item with the same identity, or add it",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item upsert employees '{_id: 1}' '{type: \"SAFETY\"}' -f badges -i type",
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = run_upsert,
};

const struct cli_command cli_item_remove = {
    .noun = "item",
    .verb = "remove",
    .arguments = "COLLECTION FILTER QUERY",
    .summary = "remove matching items of an array",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item remove employees '{_id: 1}' '{type: \"MENTOR\"}' -f badges -i type",
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = item_run_remove,
};

/* ---- layouts and indexes --------------------------------------------------------------------- */

static int cli_item_convert(struct cli *cli, truce_item_layout layout)
{
    truce_item *item = open_item(cli);
    bson_t document = BSON_INITIALIZER;
    truce_item_converted converted;
    bson_error_t why, error;
    truce_status status;
    int code = CLI_USAGE;

    if (!item)
        goto out;
    status = truce_item_convert(item, layout, &converted, &why, &error);
    code = converted.refused ? CLI_NO : CLI_DONE;
    if (status) {
        code = cli_error(cli, NULL, status, &error);
    } else {
        BSON_APPEND_INT64(&document, "converted", converted.documents);
        BSON_APPEND_INT64(&document, "refused", converted.refused);
        cli_answer(cli, &document, "%" PRId64 " converted, %" PRId64 " unchanged",
                   converted.documents, converted.refused);
        if (converted.refused)
            cli_remark(cli, "the first unchanged document: %s", why.message);
    }
out:
    bson_destroy(&document);
    truce_item_free(item);
    return code;
}

static int run_to_map(struct cli *cli)
{
    return cli_item_convert(cli, TRUCE_ITEM_MAP);
}

static int run_to_array(struct cli *cli)
{
    return cli_item_convert(cli, TRUCE_ITEM_ARRAY);
}

const struct cli_command cli_item_to_map = {
    .noun = "item",
    .verb = "to-map",
    .arguments = "COLLECTION",
    .summary = "convert arrays into maps while the collection is in use",
    .help =
        "Converts each document in one atomic write. The key of an item is its identity.\n"
        "\"%\", \".\", and \"$\" are written as %25, %2E, and %24. If it is killed, start it again,\n"
        "and it resumes. Documents with an item without identity, or with two items of one, stay\n"
        "unchanged (exit code 1).",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item to-map employees -f badges -i type",
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = run_to_map,
};

const struct cli_command cli_item_to_array = {
    .noun = "item",
    .verb = "to-array",
    .arguments = "COLLECTION",
    .summary = "convert maps into arrays while the collection is in use",
    .example = "truce insert employees '{_id: 1, badges: [{type: \"MENTOR\", since: 2019}]}'\n"
               "truce item to-map employees -f badges -i type\n"
               "truce item to-array employees -f badges -i type",
    .options = change_options,
    .store = CLI_STORE_CHANGE,
    .run = run_to_array,
};

static int run_index(struct cli *cli)
{
    truce_item *item = open_item(cli);
    bson_t keys = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int count = 0;

    if (!item) {
        bson_destroy(&keys);
        return CLI_USAGE;
    }
    for (const char *key; (key = cli_texts(cli, "key", count)); count++)
        bson_append_utf8(&keys, "", 0, key, -1);
    status = truce_item_index(item, cli_flag(cli, "map") ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY,
                              cli->arguments[1], count ? &keys : NULL, &error);
    bson_destroy(&keys);
    truce_item_free(item);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const struct cli_command cli_item_index = {
    .noun = "item",
    .verb = "index",
    .arguments = "COLLECTION [PATH]",
    .summary = "create an index on a field of the items",
    .help = "PATH begins at the item; the default is the identity. With --map, one index is\n"
            "created for each --key, or a wildcard index over the whole map.",
    .example = "truce item index employees since -f badges -i type",
    .options =
        (const struct cli_option[]){
            {"key", 'k', "KEY", "an identity of a map (may be repeated)", true}, ITEM_OPTIONS, {0}},
    .store = CLI_STORE_WRITE,
    .run = run_index,
};
