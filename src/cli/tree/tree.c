/* truce tree publish, revert, tag, untag, keep, erase, gc. */
#include "cli/tree/tree.h"

#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"
#include "cli/document/doc.h"

truce_tree *cli_tree_open(const struct cli *cli)
{
    bool publishes = !strcmp(cli->command->verb, "publish"),
         makes = publishes || !strcmp(cli->command->verb, "import");

    return truce_tree_new(
        cli->store, &(truce_tree_options){.name = cli->arguments[0],
                                          .collection = makes ? cli_text(cli, "collection") : NULL,
                                          .parent = publishes ? cli_text(cli, "parent") : NULL,
                                          .deadline_ms = cli->deadline_ms});
}

/* ---- publish ---------------------------------------------------------------------------------- */

struct publishing {
    struct cli *cli;
    truce_tree *tree;
    truce_tree_edit *edit;
    truce_tree_published published;
    int64_t put, removed;
    uint32_t conflicts;
    struct cli_progress shown;
};

/* {"$remove": ID}, or an item. */
static truce_status tree_take_line(struct publishing *publishing, const bson_t *line,
                                   bson_error_t *error)
{
    bson_iter_t iter;
    truce_status status;

    if (bson_iter_init_find(&iter, line, "$remove")) {
        status = truce_tree_remove(publishing->edit, bson_iter_value(&iter), error);
        publishing->removed += !status;
    } else {
        status = truce_tree_put(publishing->edit, line, error);
        publishing->put += !status;
    }
    cli_progress(&publishing->shown, publishing->put + publishing->removed, 0);
    return status;
}

/* The exit code; a line that is wrong is told, and nothing is published. */
static int take_lines(struct publishing *publishing, struct ndjson *input)
{
    const struct cli *cli = publishing->cli;
    enum ndjson_form form;
    struct ndjson_line line = {0};
    bson_error_t error;
    truce_status status = cli_ndjson_detect(input, &form, &error);

    while (!status && !(status = cli_ndjson_next(input, &line, &error)) && line.text) {
        bson_t document;
        const char *wrong = cli_ndjson_document(input, &line, &document);
        char where[40];

        snprintf(where, sizeof where, "line %" PRId64, line.row);
        if (wrong)
            return cli_usage(cli, "%s: %s; nothing is published", where, wrong);
        status = tree_take_line(publishing, &document, &error);
        if (status)
            return cli_error(cli, where, status, &error);
    }
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

void cli_tree_conflict(const truce_tree_conflict *conflict, void *arg)
{
    bson_t line = BSON_INITIALIZER;

    (void)arg;
    BSON_APPEND_VALUE(&line, "conflict", conflict->item);
    if (conflict->base)
        BSON_APPEND_DOCUMENT(&line, "base", conflict->base);
    if (conflict->mine)
        BSON_APPEND_DOCUMENT(&line, "mine", conflict->mine);
    if (conflict->theirs)
        BSON_APPEND_DOCUMENT(&line, "theirs", conflict->theirs);
    if (!bson_empty(conflict->paths))
        BSON_APPEND_ARRAY(&line, "paths", conflict->paths);
    cli_print(&line, JSON_RELAXED);
    bson_destroy(&line);
}

/* Merges, as often as others are first. */
static truce_status run_tree_publish(struct publishing *publishing, truce_tree_prefer prefer,
                                     const bson_t *rules, bson_error_t *error)
{
    truce_tree_rebase_options options = {
        .rules = rules, .prefer = prefer, .conflict = cli_tree_conflict};
    truce_status status = truce_tree_publish(publishing->edit, NULL, &publishing->published, error);

    while (status == TRUCE_CONFLICT) {
        status = truce_tree_rebase(publishing->edit, &options, &publishing->conflicts, error);
        if (!status)
            status = truce_tree_publish(publishing->edit, NULL, &publishing->published, error);
        else if (publishing->conflicts)
            break;
    }
    return status;
}

static int answer_published(struct publishing *publishing)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "version", publishing->published.version);
    BSON_APPEND_BOOL(&answer, "published", !publishing->published.nothing);
    BSON_APPEND_INT64(&answer, "put", publishing->put);
    BSON_APPEND_INT64(&answer, "removed", publishing->removed);
    if (publishing->published.nothing)
        cli_answer(publishing->cli, &answer, "nothing to publish; version %" PRId64 " stands",
                   publishing->published.version);
    else
        cli_answer(publishing->cli, &answer,
                   "version %" PRId64 ": %" PRId64 " items put, %" PRId64 " removed",
                   publishing->published.version, publishing->put, publishing->removed);
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

bool cli_tree_prefer(const struct cli *cli, truce_tree_prefer *prefer)
{
    const char *said = cli_text(cli, "prefer");

    *prefer = TRUCE_TREE_ASK;
    if (said && !strcmp(said, "mine"))
        *prefer = TRUCE_TREE_MINE;
    else if (said && !strcmp(said, "theirs"))
        *prefer = TRUCE_TREE_THEIRS;
    else if (said) {
        (void)cli_usage(cli, "--prefer is \"mine\" or \"theirs\", not \"%s\"", said);
        return false;
    }
    return true;
}

/* An edit that is not published is not wanted: the input is there to be published again. */
static int cli_tree_end_edit(struct publishing *publishing, truce_status status,
                             const bson_error_t *error)
{
    if (status)
        (void)!truce_tree_abandon(publishing->edit, NULL);
    return status ? cli_error(publishing->cli, NULL, status, error) : answer_published(publishing);
}

static int publish_input(struct publishing *publishing, struct ndjson *input,
                         truce_tree_prefer prefer, const bson_t *rules)
{
    bson_error_t error;
    int code;

    cli_progress_begin(publishing->cli, &publishing->shown, "read");
    code = take_lines(publishing, input);
    cli_progress_end(&publishing->shown);
    if (code) {
        (void)!truce_tree_abandon(publishing->edit, NULL);
        return code;
    }
    return cli_tree_end_edit(publishing, run_tree_publish(publishing, prefer, rules, &error),
                             &error);
}

static truce_status cli_tree_begin(struct publishing *publishing, int64_t base, bson_error_t *error)
{
    truce_tree_edit_options options = {.base = base,
                                       .message = cli_text(publishing->cli, "message"),
                                       .author = cli_text(publishing->cli, "author")};

    publishing->tree = cli_tree_open(publishing->cli);
    return truce_tree_begin(publishing->tree, &options, &publishing->edit, error);
}

static int tree_run_publish(struct cli *cli)
{
    struct publishing publishing = {.cli = cli};
    struct ndjson *input;
    truce_tree_prefer prefer;
    bson_error_t error;
    int64_t base;
    bson_t rules;
    bool given;
    int code = CLI_USAGE;

    if (!cli_number(cli, "base", 1, INT64_MAX, 0, &base) || !cli_tree_prefer(cli, &prefer))
        return CLI_USAGE;
    if (cli_option_document(cli, "rules", &rules, &given)) {
        input = cli_ndjson_open(cli->count > 1 ? cli->arguments[1] : "-", &error);
        code = input ? cli_store_open(cli, CLI_STORE_INPUT, &cli->store)
                     : cli_error(cli, NULL, TRUCE_INVALID, &error);
        if (!code) {
            truce_status status = cli_tree_begin(&publishing, base, &error);

            code = status ? cli_error(cli, NULL, status, &error)
                          : publish_input(&publishing, input, prefer, given ? &rules : NULL);
        }
        cli_ndjson_close(input);
    }
    truce_tree_edit_free(publishing.edit);
    truce_tree_free(publishing.tree);
    bson_destroy(&rules);
    return code;
}

const struct cli_command cli_tree_publish = {
    .noun = "tree",
    .verb = "publish",
    .arguments = "TREE [FILE]",
    .summary = "publish items, a line each, as the next version, all at once",
    .help =
        "The input (standard input without FILE) has an item a line, {\"itemId\": ..., fields},\n"
        "or {\"$remove\": ID}. Readers see all of it or nothing. If another version was\n"
        "published since --base, items that both changed are merged; those that cannot be\n"
        "are printed, nothing is published, and the exit code is 1.\n"
        "\n"
        "The first one makes the tree, and says in which --collection its items are.",
    .example = TREE_SAMPLE "truce tree read site",
    .options =
        (const struct cli_option[]){
            {"collection", 0, "NAME", "of the items; needed the first time", false},
            {"parent", 0, "FIELD", "it has the itemId of an item's parent: no orphans", false},
            {"message", 'm', "TEXT", "for the log", false},
            {"author", 0, "TEXT", "for the log", false},
            {"base", 0, "N", "the version that was changed (the current one)", false},
            {"prefer", 0, "SIDE", "mine or theirs, where both changed the same", false},
            {"rules", 'r', "DOCUMENT", "policies of merges: {\"views\": \"sum\"}", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = tree_run_publish,
};

/* ---- revert ----------------------------------------------------------------------------------- */

static int run_revert(struct cli *cli)
{
    struct publishing publishing = {.cli = cli};
    bson_error_t error;
    int64_t version;
    truce_status status;
    int code;

    if (!cli_argument_number(cli, 1, "VERSION", 1, INT64_MAX, &version))
        return CLI_USAGE;
    status = cli_tree_begin(&publishing, 0, &error);
    if (status) {
        code = cli_error(cli, NULL, status, &error);
    } else {
        status = truce_tree_revert(publishing.edit, version, &error);
        if (!status)
            status = truce_tree_publish(publishing.edit, NULL, &publishing.published, &error);
        if (status)
            (void)!truce_tree_abandon(publishing.edit, NULL);
        code = status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
    }
    if (!code) {
        bson_t answer = BSON_INITIALIZER;

        BSON_APPEND_INT64(&answer, "version", publishing.published.version);
        BSON_APPEND_BOOL(&answer, "published", !publishing.published.nothing);
        cli_answer(cli, &answer,
                   publishing.published.nothing ? "version %" PRId64 " is like version %" PRId64
                                                : "version %" PRId64 ", as version %" PRId64 " was",
                   publishing.published.version, version);
        bson_destroy(&answer);
        code = cli_output_end(CLI_DONE);
    }
    truce_tree_edit_free(publishing.edit);
    truce_tree_free(publishing.tree);
    return code;
}

const struct cli_command cli_tree_revert = {
    .noun = "tree",
    .verb = "revert",
    .arguments = "TREE VERSION",
    .summary = "publish a version again, as the next one",
    .example = TREE_SAMPLE "echo '{\"$remove\": \"about\"}' | truce tree publish site\n"
                           "truce tree revert site 1",
    .options = (const struct cli_option[]){{"message", 'm', "TEXT", "for the log", false},
                                           {"author", 0, "TEXT", "for the log", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_revert,
};

/* ---- tag, untag, keep -------------------------------------------------------------------------- */

static int answer_one(struct cli *cli, truce_tree *tree, truce_status status,
                      const bson_error_t *error, const char *key, const char *value)
{
    bson_t answer = BSON_INITIALIZER;

    truce_tree_free(tree);
    BSON_APPEND_UTF8(&answer, key, value);
    if (!status)
        cli_answer(cli, &answer, "%s %s", key, value);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, error) : cli_output_end(CLI_DONE);
}

static int run_tag(struct cli *cli)
{
    truce_tree *tree;
    bson_error_t error;
    int64_t version = 0;
    truce_status status;

    if (cli->count > 2 && !cli_argument_number(cli, 2, "VERSION", 1, INT64_MAX, &version))
        return CLI_USAGE;
    tree = cli_tree_open(cli);
    status = truce_tree_tag(tree, cli->arguments[1], version, &error);
    return answer_one(cli, tree, status, &error, "tagged", cli->arguments[1]);
}

const struct cli_command cli_tree_tag = {
    .noun = "tree",
    .verb = "tag",
    .arguments = "TREE NAME [VERSION]",
    .summary = "give a version a name, which keeps it",
    .help =
        "Without VERSION the current one. A tag that is there moves. The version, and all after\n"
        "it, are kept until the tag goes.",
    .example = TREE_SAMPLE "truce tree tag site launch\n"
                           "truce tree read site --tag launch",
    .store = CLI_STORE_CHANGE,
    .run = run_tag,
};

static int run_untag(struct cli *cli)
{
    truce_tree *tree = cli_tree_open(cli);
    bson_error_t error;
    truce_status status = truce_tree_untag(tree, cli->arguments[1], &error);

    return answer_one(cli, tree, status, &error, "untagged", cli->arguments[1]);
}

const struct cli_command cli_tree_untag = {
    .noun = "tree",
    .verb = "untag",
    .arguments = "TREE NAME",
    .summary = "take a tag back",
    .example = TREE_SAMPLE "truce tree tag site launch\n"
                           "truce tree untag site launch",
    .store = CLI_STORE_CHANGE,
    .run = run_untag,
};

#define DAY_MS INT64_C(86400000)

static int tree_run_keep(struct cli *cli)
{
    truce_tree_keep keep = {0};
    truce_tree *tree;
    bson_error_t error;
    int64_t days;
    truce_status status;
    bool all = cli_flag(cli, "all");

    if (!cli_number(cli, "versions", 1, INT32_MAX, 0, &keep.versions) ||
        !cli_number(cli, "days", 1, 36500, 0, &days))
        return CLI_USAGE;
    keep.age_ms = days * DAY_MS;
    if (all == (keep.versions || days))
        return cli_usage(cli, "say what is kept: --versions, --days, or --all");
    tree = cli_tree_open(cli);
    status = truce_tree_retain(tree, &keep, &error);
    return answer_one(cli, tree, status, &error, "kept",
                      all ? "all" : "what was said; the sweep collects the rest");
}

const struct cli_command cli_tree_keep = {
    .noun = "tree",
    .verb = "keep",
    .arguments = "TREE",
    .summary = "say how many versions are kept, or for how long",
    .help =
        "What neither asks for is collected by `truce sweep` or `truce tree gc`, unless a tag or a\n"
        "reader holds it. A tree of which nothing was said keeps all.",
    .example = TREE_SAMPLE "truce tree keep site --versions 20 --days 30",
    .options = (const struct cli_option[]){{"versions", 0, "N", "so many at least", false},
                                           {"days", 0, "DAYS",
                                            "what was current then, and all since", false},
                                           {"all", 0, NULL, "everything", false},
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = tree_run_keep,
};

/* ---- erase, gc --------------------------------------------------------------------------------- */

static int run_erase(struct cli *cli)
{
    truce_tree *tree = cli_tree_open(cli);
    bson_t holder, answer = BSON_INITIALIZER;
    bson_error_t error;
    int64_t versions = 0;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder)) {
        bson_value_t id = cli_doc_id_in(&holder);
        truce_status status = truce_tree_erase(tree, &id, &versions, &error);

        BSON_APPEND_INT64(&answer, "versions", versions);
        if (!status)
            cli_answer(cli, &answer, "erased from %" PRId64 " versions", versions);
        code = status ? cli_error(cli, NULL, status, &error)
                      : cli_output_end(versions ? CLI_DONE : CLI_NO);
    }
    bson_destroy(&answer);
    bson_destroy(&holder);
    truce_tree_free(tree);
    return code;
}

const struct cli_command cli_tree_erase = {
    .noun = "tree",
    .verb = "erase",
    .arguments = "TREE ID",
    .summary = "take an item's contents out of every version, for ever",
    .help = "For what must not be kept, such as a person's data. Exit 1: there was nothing.",
    .example = TREE_SAMPLE "truce tree erase site about",
    .store = CLI_STORE_CHANGE,
    .run = run_erase,
};

static int run_gc(struct cli *cli)
{
    truce_tree *tree = cli_tree_open(cli);
    truce_tree_collected round, all = {.more = true};
    bson_t answer = BSON_INITIALIZER;
    struct cli_progress shown;
    bson_error_t error;
    truce_status status = TRUCE_OK;

    cli_progress_begin(cli, &shown, "removed");
    while (!status && all.more) {
        status = truce_tree_collect(tree, &round, &error);
        all.settled += round.settled;
        all.items += round.items;
        all.edits += round.edits;
        all.more = round.more;
        cli_progress(&shown, all.items, 0);
    }
    cli_progress_end(&shown);
    truce_tree_free(tree);
    BSON_APPEND_INT64(&answer, "settled", all.settled);
    BSON_APPEND_INT64(&answer, "removed", all.items);
    BSON_APPEND_INT64(&answer, "edits", all.edits);
    if (!status)
        cli_answer(cli, &answer,
                   "%" PRId64 " versions settled, %" PRId64 " items removed, %" PRId64
                   " edits given up",
                   all.settled, all.items, all.edits);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_gc = {
    .noun = "tree",
    .verb = "gc",
    .arguments = "TREE",
    .summary = "remove now what nobody can read any more",
    .help = "What `truce sweep` does for every tree. See `truce help tree keep`.",
    .example = TREE_SAMPLE "truce tree keep site --versions 1\n"
                           "truce tree gc site",
    .store = CLI_STORE_CHANGE,
    .run = run_gc,
};
