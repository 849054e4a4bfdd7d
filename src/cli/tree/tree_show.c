/* truce tree read, log, diff, status. */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "bson/date.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/document/doc.h"
#include "cli/tree/tree.h"
#include "store/reserved.h"

bool cli_tree_at(const struct cli *cli, truce_tree_at *at)
{
    const char *time = cli_text(cli, "at");
    bson_error_t error;

    *at = (truce_tree_at){.tag = cli_text(cli, "tag"), .token = cli_text(cli, "token")};
    if (!cli_number(cli, "version", 1, INT64_MAX, 0, &at->version))
        return false;
    if (time && truce__date_parse(time, strlen(time), NULL, &at->time_ms, &error)) {
        (void)cli_usage(cli, "--at: \"%s\" is no date (2026-01-31, or 2026-01-31T12:00:00Z)", time);
        return false;
    }
    return true;
}

const char *cli_tree_origin(const bson_t *told)
{
    bson_t from;

    return truce__value_subdocument(told, "from", &from) ? truce__field_text(&from, "tree") : "";
}

/* ---- read ------------------------------------------------------------------------------------- */

static bool print_item(const bson_t *item, void *arg)
{
    (void)arg;
    return cli_print(item, JSON_RELAXED);
}

static int tree_show_read_one(struct cli *cli, truce_tree_snapshot *snapshot)
{
    bson_t holder, item;
    bson_error_t error;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder)) {
        bson_value_t id = cli_doc_id_in(&holder);
        truce_status status = truce_tree_get(snapshot, &id, &item, &error);

        if (!status)
            (void)cli_print(&item, JSON_RELAXED);
        code = status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
        bson_destroy(&item);
    }
    bson_destroy(&holder);
    return code;
}

static int tree_show_read_many(struct cli *cli, truce_tree_snapshot *snapshot)
{
    truce_tree_find_options options = {0};
    bson_t filter, sort;
    bool filtered = false, sorted = false;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;

    bson_init(&sort);
    if (cli_option_document(cli, "filter", &filter, &filtered)) {
        bson_destroy(&sort);
        if (cli_option_document(cli, "sort", &sort, &sorted) &&
            cli_number(cli, "limit", 1, INT64_MAX, 0, &options.limit)) {
            options.sort = sorted ? &sort : NULL;
            status = truce_tree_find(snapshot, filtered ? &filter : NULL, &options, print_item,
                                     NULL, &error);
            code = status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
        }
    }
    bson_destroy(&sort);
    bson_destroy(&filter);
    return code;
}

static int print_token(struct cli *cli, const truce_tree_snapshot *snapshot)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&answer, "token", truce_tree_snapshot_token(snapshot));
    cli_answer(cli, &answer, "%s", truce_tree_snapshot_token(snapshot));
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int tree_show_run_read(struct cli *cli)
{
    truce_tree *tree;
    truce_tree_snapshot *snapshot;
    truce_tree_at at;
    bson_error_t error;
    truce_status status;
    int code;

    if (!cli_tree_at(cli, &at))
        return CLI_USAGE;
    if (cli->count > 1 &&
        (cli_text(cli, "filter") || cli_text(cli, "sort") || cli_text(cli, "limit")))
        return cli_usage(cli, "an ID goes without --filter, --sort and --limit");
    tree = cli_tree_open(cli);
    status = truce_tree_open(tree, &at, &snapshot, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    else if (cli_flag(cli, "print-token"))
        code = print_token(cli, snapshot);
    else
        code =
            cli->count > 1 ? tree_show_read_one(cli, snapshot) : tree_show_read_many(cli, snapshot);
    truce_tree_close(snapshot);
    truce_tree_free(tree);
    return code;
}

const struct cli_command cli_tree_read = {
    .noun = "tree",
    .verb = "read",
    .arguments = "TREE [ID]",
    .summary = "print an item, or all, of one version",
    .help =
        "All that is printed is of one version, whatever is published meanwhile. Exit 1: there\n"
        "is no such item, or the version is collected.",
    .example = TREE_SAMPLE "truce tree read site about\n"
                           "truce tree read site --filter '{up: \"home\"}' --version 1",
    .options = (const struct cli_option[]){TREE_AT_OPTIONS,
                                           {"filter", 0, "FILTER", "those that match", false},
                                           {"sort", 0, "SORT", "{field: 1} (by itemId)", false},
                                           {"limit", 0, "N", "so many at most", false},
                                           {"print-token", 0, NULL,
                                            "print the token of the version", false},
                                           {0}},
    .store = CLI_STORE_READ,
    .run = tree_show_run_read,
};

/* ---- log -------------------------------------------------------------------------------------- */

static bool tree_show_print_entry(const bson_t *entry, void *arg)
{
    const struct cli *cli = arg;
    const char *author = truce__field_text(entry, "author"),
               *message = truce__field_text(entry, "message");
    char date[DATE_TEXT_MAX];

    return cli_answer(cli, entry, "%" PRId64 "  %s%s%s%s%s", truce__field_number(entry, "version"),
                      truce__date_show(truce__field_date(entry, "at"), date),
                      *author || *message ? "  " : "", author, *author && *message ? ": " : "",
                      message);
}

static int tree_show_run_log(struct cli *cli)
{
    truce_tree *tree;
    bson_error_t error;
    int64_t limit;
    truce_status status;

    if (!cli_number(cli, "limit", 1, INT64_MAX, 0, &limit))
        return CLI_USAGE;
    tree = cli_tree_open(cli);
    status = truce_tree_log(tree, limit, tree_show_print_entry, cli, &error);
    truce_tree_free(tree);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_log = {
    .noun = "tree",
    .verb = "log",
    .arguments = "TREE",
    .summary = "list the versions that are kept, newest first",
    .example = TREE_SAMPLE "truce tree log site",
    .options = (const struct cli_option[]){{"limit", 0, "N", "so many at most", false}, {0}},
    .store = CLI_STORE_READ,
    .run = tree_show_run_log,
};

/* ---- diff ------------------------------------------------------------------------------------- */

static bool tree_show_print_change(const truce_tree_change *change, void *arg)
{
    const struct cli *cli = arg;
    bson_t line = BSON_INITIALIZER;
    char id[200];
    bool good;

    BSON_APPEND_VALUE(&line, "itemId", change->item);
    truce__value_show(truce__value_field(truce__value_document(&line), "itemId", 6), id, sizeof id);
    if (change->before)
        BSON_APPEND_DOCUMENT(&line, "before", change->before);
    if (change->after)
        BSON_APPEND_DOCUMENT(&line, "after", change->after);
    good = cli_answer(cli, &line, "%s %s", !change->before ? "+" : !change->after ? "-" : "~", id);
    bson_destroy(&line);
    return good;
}

static int tree_show_run_diff(struct cli *cli)
{
    truce_tree *tree;
    bson_error_t error;
    int64_t from, to;
    truce_status status;

    if (!cli_argument_number(cli, 1, "FROM", 0, INT64_MAX, &from) ||
        !cli_argument_number(cli, 2, "TO", 0, INT64_MAX, &to))
        return CLI_USAGE;
    tree = cli_tree_open(cli);
    status = truce_tree_diff(tree, from, to, tree_show_print_change, cli, &error);
    truce_tree_free(tree);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_diff = {
    .noun = "tree",
    .verb = "diff",
    .arguments = "TREE FROM TO",
    .summary = "list the items that differ between two versions",
    .help =
        "+ came, - went, ~ is another; with --json before and after. Version 0 is the empty one.",
    .example = TREE_SAMPLE "truce tree diff site 0 1",
    .store = CLI_STORE_READ,
    .run = tree_show_run_diff,
};

/* ---- list ------------------------------------------------------------------------------------- */

static bool tree_show_print_tree(struct cli *cli, const char *name, truce_status *status,
                                 bson_error_t *error)
{
    truce_tree *tree = truce_tree_new(
        cli->store, &(truce_tree_options){.name = name, .deadline_ms = cli->deadline_ms});
    bson_t told;
    const char *origin;
    bool good = true;

    *status = truce_tree_status(tree, &told, error);
    origin = cli_tree_origin(&told);
    if (!*status)
        good = cli_answer(cli, &told, "%s in %s: version %" PRId64 "%s%s", name,
                          truce__field_text(&told, "collection"),
                          truce__field_number(&told, "current"), *origin ? ", branch of " : "",
                          origin);
    if (*status == TRUCE_NOT_FOUND) /* it was dropped meanwhile */
        *status = TRUCE_OK;
    bson_destroy(&told);
    truce_tree_free(tree);
    return good;
}

static int tree_show_run_list(struct cli *cli)
{
    bson_t *all = bson_new(), *sort = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *master;
    bson_error_t error;
    bool good = true;
    truce_status status = truce_find(cli->store, TREES, all, &options, &cursor, &error);

    while (!status && good && !(status = truce_cursor_next(cursor, &master, &error)) && master)
        good = tree_show_print_tree(cli, truce__field_text(master, "_id"), &status, &error);
    truce_cursor_close(cursor);
    bson_destroy(sort);
    bson_destroy(all);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_list = {
    .noun = "tree",
    .verb = "list",
    .summary = "list the trees, and which are branches",
    .example = TREE_SAMPLE "truce tree list",
    .store = CLI_STORE_READ,
    .run = tree_show_run_list,
};

/* ---- status ----------------------------------------------------------------------------------- */

static int tree_show_run_status(struct cli *cli)
{
    truce_tree *tree = cli_tree_open(cli);
    bson_t told;
    bson_error_t error;
    truce_status status = truce_tree_status(tree, &told, &error);
    const char *origin = cli_tree_origin(&told);

    truce_tree_free(tree);
    if (!status)
        cli_answer(cli, &told,
                   "%s in %s: version %" PRId64 "%s%s, kept from %" PRId64
                   " on, settled to %" PRId64 "; %" PRId64 " readers hold it, %" PRId64
                   " edits are under way",
                   truce__field_text(&told, "tree"), truce__field_text(&told, "collection"),
                   truce__field_number(&told, "current"), *origin ? ", branch of " : "", origin,
                   truce__field_number(&told, "kept"), truce__field_number(&told, "settled"),
                   truce__field_number(&told, "readers"), truce__field_number(&told, "edits"));
    bson_destroy(&told);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_status = {
    .noun = "tree",
    .verb = "status",
    .arguments = "TREE",
    .summary = "tell which versions there are, and what holds them",
    .example = TREE_SAMPLE "truce tree status site",
    .store = CLI_STORE_READ,
    .run = tree_show_run_status,
};
