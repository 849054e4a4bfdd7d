/* truce index create, list, modify, drop. */
#include "cli/commands.h"
#include "cli/core/cli.h"

/* Reads --expire-after, or -1 if it is not given. An index stores whole seconds. */
static bool index_read_expire(const struct cli *cli, int64_t *seconds)
{
    int64_t ms;

    *seconds = -1;
    if (!cli_duration(cli, "expire-after", 0, INT32_MAX * INT64_C(1000), -1, &ms))
        return false;
    if (ms > 0 && ms % 1000) {
        cli_usage(cli, "--expire-after needs whole seconds, for example 90s or 24h, not \"%s\"",
                  cli_text(cli, "expire-after"));
        return false;
    }
    if (ms >= 0)
        *seconds = ms / 1000;
    return true;
}

/* ---- create -------------------------------------------------------------------------------- */

/* Builds the definition of the index from the arguments and options. On a fault, prints the usage
 * error and returns false. */
static bool index_describe(const struct cli *cli, bson_t *index)
{
    bson_t keys, partial;
    int64_t expire;
    bool given = false, good = true;

    good &= cli_document(cli, cli->arguments[1], "KEYS", &keys);
    good &= cli_option_document(cli, "partial", &partial, &given);
    good &= index_read_expire(cli, &expire);
    BSON_APPEND_DOCUMENT(index, "key", &keys);
    if (cli_text(cli, "name"))
        BSON_APPEND_UTF8(index, "name", cli_text(cli, "name"));
    if (cli_flag(cli, "unique"))
        BSON_APPEND_BOOL(index, "unique", true);
    if (cli_flag(cli, "sparse"))
        BSON_APPEND_BOOL(index, "sparse", true);
    if (cli_flag(cli, "hidden"))
        BSON_APPEND_BOOL(index, "hidden", true);
    if (given)
        BSON_APPEND_DOCUMENT(index, "partialFilterExpression", &partial);
    if (expire >= 0)
        BSON_APPEND_INT32(index, "expireAfterSeconds", (int32_t)expire);
    bson_destroy(&keys);
    bson_destroy(&partial);
    return good;
}

static int index_run_create(struct cli *cli)
{
    bson_t index = BSON_INITIALIZER, answer = BSON_INITIALIZER;
    bson_error_t error;
    int code = CLI_USAGE;

    if (index_describe(cli, &index)) {
        int64_t before = truce_deadline_begin(cli->deadline_ms);
        truce_status status = truce_index_create(cli->store, cli->arguments[0], &index, &error);

        truce_deadline_end(before);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
        BSON_APPEND_BOOL(&answer, "created", true);
        if (!code)
            cli_answer(cli, &answer, "created");
    }
    bson_destroy(&index);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_index_create = {
    .noun = "index",
    .verb = "create",
    .arguments = "COLLECTION KEYS",
    .summary = "create an index without blocking writers",
    .help =
        "KEYS is {\"path\": 1} for ascending or {\"path\": -1} for descending order. Several\n"
        "paths make a compound index. {\"path.$**\": 1} indexes every path below one. Creating an\n"
        "index that exists with the same definition succeeds.",
    .example = "truce index create students '{student_id: 1}' --unique",
    .options =
        (const struct cli_option[]){
            {"name", 0, "NAME", "the name (default: made from the keys)", false},
            {"unique", 0, NULL, "refuse documents with the same key", false},
            {"sparse", 0, NULL, "omit documents without the path", false},
            {"partial", 0, "FILTER", "index only matching documents", false},
            {"expire-after", 0, "DURATION", "delete documents this long after the date at the path",
             false},
            {"hidden", 0, NULL, "hide the index from queries", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = index_run_create,
};

/* ---- modify -------------------------------------------------------------------------------- */

/* Builds the changes of an index: hidden or not, and the time after which documents expire. At
 * least one is required. */
static bool describe_changes(const struct cli *cli, bson_t *changes)
{
    bool hide = cli_flag(cli, "hide"), show = cli_flag(cli, "show");
    int64_t expire;

    if (!index_read_expire(cli, &expire))
        return false;
    if (hide && show)
        return cli_usage(cli, "--hide and --show exclude each other"), false;
    if (!hide && !show && expire < 0)
        return cli_usage(cli, "no change is given: use --hide, --show, or --expire-after"), false;
    if (hide || show)
        BSON_APPEND_BOOL(changes, "hidden", hide);
    if (expire >= 0)
        BSON_APPEND_INT32(changes, "expireAfterSeconds", (int32_t)expire);
    return true;
}

static int index_run_modify(struct cli *cli)
{
    bson_t changes = BSON_INITIALIZER, answer = BSON_INITIALIZER;
    const char *name = cli->arguments[1];
    bson_error_t error;
    int code = CLI_USAGE;

    if (describe_changes(cli, &changes)) {
        truce_status status =
            truce_index_modify(cli->store, cli->arguments[0], name, &changes, &error);

        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
        BSON_APPEND_UTF8(&answer, "modified", name);
        if (!code)
            cli_answer(cli, &answer, "modified %s", name);
    }
    bson_destroy(&changes);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_index_modify = {
    .noun = "index",
    .verb = "modify",
    .arguments = "COLLECTION NAME",
    .summary = "hide or show an index, or change its expiry",
    .help = "A hidden index is maintained: it keeps its keys unique and expires documents. But no\n"
            "query uses it. Hide an index to test the effect of dropping it.",
    .example = "truce index create students '{student_id: 1}'\n"
               "truce index modify students student_id_1 --hide",
    .options =
        (const struct cli_option[]){{"hide", 0, NULL, "hide the index from queries", false},
                                    {"show", 0, NULL, "show the index to queries again", false},
                                    {"expire-after", 0, "DURATION",
                                     "delete documents this long after the date at the path",
                                     false},
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = index_run_modify,
};

/* ---- list ---------------------------------------------------------------------------------- */

static int index_run_list(struct cli *cli)
{
    bson_t indexes;
    bson_error_t error;
    truce_status status = truce_index_list(cli->store, cli->arguments[0], &indexes, &error);

    return cli_print_array(cli, status, &indexes, NULL, &error);
}

static const struct cli_command cli_index_list = {
    .noun = "index",
    .verb = "list",
    .arguments = "COLLECTION",
    .summary = "list the indexes of a collection",
    .example = "truce index create students '{student_id: 1}'\n"
               "truce index list students",
    .store = CLI_STORE_READ,
    .run = index_run_list,
};

/* ---- drop ---------------------------------------------------------------------------------- */

static int index_run_drop(struct cli *cli)
{
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status =
        truce_index_drop(cli->store, cli->arguments[0], cli->arguments[1], &error);

    BSON_APPEND_UTF8(&answer, "dropped", cli->arguments[1]);
    if (!status)
        cli_answer(cli, &answer, "dropped %s", cli->arguments[1]);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static const struct cli_command cli_index_drop = {
    .noun = "index",
    .verb = "drop",
    .arguments = "COLLECTION NAME",
    .summary = "delete an index",
    .example = "truce index create students '{student_id: 1}'\n"
               "truce index drop students student_id_1",
    .store = CLI_STORE_CHANGE,
    .run = index_run_drop,
};

cli_command_list cli_index_commands = {&cli_index_create, &cli_index_list, &cli_index_drop,
                                       &cli_index_modify, NULL};
