/* truce commit apply, list, show, resolve, unique. */
#include "cli/document/commit.h"

#include <string.h>

#include "base/buffer.h"
#include "base/field.h"
#include "base/plural.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/ndjson.h"
#include "cli/core/operation_row.h"
#include "patterns/change_list/change_list.h"

/* ---- parts ----------------------------------------------------------------------------------- */

int cli_parts_check(const struct cli *cli, const bson_t *changes)
{
    bson_error_t error;

    return truce__change_list_check(changes, NULL, &error) ? cli_usage(cli, "%s", error.message)
                                                           : CLI_DONE;
}

/* ---- apply ----------------------------------------------------------------------------------- */

/* Appends {change: COLLECTION, id: ID, with: {KEY: [OLD, NEW]}} for each document of the diffs. */
static void diffs_append_changes(const char *collection, const bson_t *diffs, bson_t *more)
{
    bson_iter_t at;
    bson_t changes, one;
    uint32_t count = 0;
    bson_oid_t oid;

    (void)bson_iter_init(&at, diffs);
    BSON_APPEND_ARRAY_BEGIN(more, "changes", &changes);
    while (bson_iter_next(&at)) {
        const char *id = bson_iter_key(&at);
        char key[12];

        snprintf(key, sizeof key, "%u", count++);
        BSON_APPEND_DOCUMENT_BEGIN(&changes, key, &one);
        BSON_APPEND_UTF8(&one, "change", collection);
        if (bson_oid_is_valid(id, strlen(id))) {
            bson_oid_init_from_string(&oid, id);
            BSON_APPEND_OID(&one, "id", &oid);
        } else {
            BSON_APPEND_UTF8(&one, "id", id);
        }
        bson_append_iter(&one, "with", -1, &at);
        bson_append_document_end(&changes, &one);
    }
    bson_append_array_end(more, &changes);
}

/* Reads {"collection": ..., "changes": {id: {key: [old, new]}}, "input": ...}. */
static int diffs_read(const struct cli *cli, const bson_t *document, bson_t *more)
{
    const char *collection = NULL;
    bson_t diffs = BSON_INITIALIZER;
    bool has_changes = false;
    bson_iter_t at;

    (void)bson_iter_init(&at, document);
    while (bson_iter_next(&at)) {
        const char *key = bson_iter_key(&at);

        if (!strcmp(key, "collection") && BSON_ITER_HOLDS_UTF8(&at))
            collection = bson_iter_utf8(&at, NULL);
        else if (!strcmp(key, "changes") && BSON_ITER_HOLDS_DOCUMENT(&at))
            has_changes = truce__value_subdocument(document, "changes", &diffs);
        else if (!strcmp(key, "input") && BSON_ITER_HOLDS_DOCUMENT(&at) && !cli_text(cli, "input"))
            bson_append_iter(more, NULL, -1, &at);
        else if (strcmp(key, "input") != 0)
            return cli_usage(cli,
                             "unexpected \"%s\": expected an array of changes, [{...}, ...], or "
                             "diffs: {collection: COLLECTION, changes: {ID: {KEY: [OLD, NEW]}}, "
                             "input: DOCUMENT}",
                             key);
    }
    if (!collection || !has_changes)
        return cli_usage(cli,
                         "diffs need %s: {\"collection\": \"COLLECTION\", \"changes\": {ID: "
                         "{KEY: [OLD, NEW]}}}",
                         collection ? "\"changes\"" : "a \"collection\"");
    diffs_append_changes(collection, &diffs, more);
    return CLI_DONE;
}

/* Reads the changes from the argument, a file, or standard input. */
static int read_given(const struct cli *cli, bson_t *content, bool *is_array)
{
    const char *path = cli_text(cli, "file");
    char *text = NULL;
    bson_error_t error;
    truce_status status;
    bool good;

    if (cli->count && path)
        return cli_usage(cli, "CHANGES and --file exclude each other");
    if (cli->count)
        return cli_document_or_array(cli, cli->arguments[0], "CHANGES", content, is_array)
                   ? CLI_DONE
                   : CLI_USAGE;
    path = path ? path : "-";
    status = cli_text_file(path, &text, &error);
    if (status)
        return cli_usage(cli, "%s", error.message);
    good = cli_document_or_array(cli, text, strcmp(path, "-") ? path : "standard input", content,
                                 is_array);
    bson_free(text);
    return good ? CLI_DONE : CLI_USAGE;
}

static int run_apply(struct cli *cli)
{
    bson_t content = BSON_INITIALIZER, more = BSON_INITIALIZER;
    bool is_array = false;
    int code = read_given(cli, &content, &is_array);

    if (!code && !is_array)
        code = diffs_read(cli, &content, &more);
    else if (!code)
        BSON_APPEND_ARRAY(&more, "changes", &content);
    if (!code)
        code = cli_store_open(cli, CLI_STORE_WRITE, &cli->store);
    if (!code)
        code = cli_row_run_with(cli, cli->command->row, &more);
    bson_destroy(&content);
    bson_destroy(&more);
    return code;
}

static bool commit_print_applied(struct cli *cli, const bson_t *reply)
{
    const char *text = truce__field_true(reply, "earlier") ? "committed earlier" : "committed";
    struct buffer shown = {0};
    bson_t result;
    bool good;

    (void)cli;
    if (!truce__value_subdocument(reply, "result", &result))
        return cli_put("%s\n", text);
    truce__json_write(&shown, &result, false, JSON_RELAXED);
    good = cli_put("%s, and left %.*s\n", text, (int)shown.size, (const char *)shown.bytes);
    truce__buffer_release(&shown);
    return good;
}

static const struct cli_command cli_commit_apply = {
    .noun = "commit",
    .verb = "apply",
    .arguments = "[CHANGES]",
    .summary = "change several documents atomically",
    .help =
        "CHANGES, a file, or standard input has an array of\n"
        "  {\"insert\": \"COLLECTION\", \"with\": DOCUMENT}\n"
        "  {\"update\": \"COLLECTION\", \"id\": ID, \"with\": OPERATORS, \"if\": FILTER}\n"
        "  {\"replace\": \"COLLECTION\", \"id\": ID, \"with\": DOCUMENT, \"if\": FILTER}\n"
        "  {\"remove\": \"COLLECTION\", \"id\": ID, \"if\": FILTER}\n"
        "  {\"require\": \"COLLECTION\", \"id\": ID, \"if\": FILTER}\n"
        "  {\"hold\": \"COLLECTION\", \"id\": ID, \"if\": FILTER}\n"
        "  {\"missing\": \"COLLECTION\", \"id\": ID}\n"
        "  {\"change\": \"COLLECTION\", \"id\": ID, \"with\": {KEY: [OLD, NEW], ...}}\n"
        "  {\"enqueue\": \"QUEUE\", \"with\": PAYLOAD, \"delay_ms\": N, \"priority\": N,\n"
        "   \"unique\": \"KEY\", \"lane\": \"LANE\"}\n"
        "  {\"post\": \"LEDGER\", \"id\": ID, \"with\": {ACCOUNT: AMOUNT, ...}, \"meta\": "
        "DOCUMENT}\n"
        "Each \"if\" is optional, and so are the fields of enqueue and post. Operations such as\n"
        "{\"truceSet\": ...} are changes, too: `truce command '{truceHelp: 1}'`.\n"
        "Or it has a document with diffs of one collection\n"
        "  {\"collection\": \"COLLECTION\", \"changes\": {ID: {KEY: [OLD, NEW], ...}, ...},\n"
        "   \"input\": DOCUMENT}\n"
        "where \"input\" is optional and works as --input. A diff is refused if the current value\n"
        "of one of its keys is not OLD; other keys may have changed. {\"$undefined\": true} means\n"
        "a missing field. An ID of 24 hexadecimal digits is an ObjectId; other IDs are strings.\n"
        "Exit code 1: a conflict or an unmet condition; nothing was changed.",
    .example =
        "truce insert accounts '{_id: \"a\", n: 9}' '{_id: \"b\", n: 0}'\n"
        "truce commit apply '[{update: \"accounts\", id: \"a\", if: {n: {$gte: 5}}, with: {$inc: "
        "{n: -5}}},\n"
        "                     {update: \"accounts\", id: \"b\", with: {$inc: {n: 5}}}]'",
    .options =
        (const struct cli_option[]){
            {"file", 0, "FILE", "read CHANGES from a file; - is standard input", false}, {0}},
    .store = CLI_STORE_NONE, /* The store is opened after the changes are read. */
    .row = &(const struct cli_row){.name = "truceCommit", .print = commit_print_applied},
    .run = run_apply,
};

/* ---- list ----------------------------------------------------------------------------------- */

static const struct cli_command cli_commit_list = {
    .noun = "commit",
    .verb = "list",
    .summary = "list recorded commits, newest first",
    .help = "Prints one line for each commit of the journal, and for each commit with a key or an\n"
            "input. For a commit that was undone, the line has the reason.",
    .example =
        "truce commit apply --journal '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key "
        "k1 --key-time $(date +%s000)\n"
        "truce commit list --state done",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceCommits",
                                   .named = "--prefix keyPrefix",
                                   .list = "commits"},
    .run = cli_row_run,
};

/* ---- show and resolve ----------------------------------------------------------------------- */

static int commit_run_show(struct cli *cli)
{
    const char *name = cli->arguments[0];
    bson_t more = BSON_INITIALIZER;
    bson_oid_t id;
    int code;

    if (bson_oid_is_valid(name, strlen(name))) {
        bson_oid_init_from_string(&id, name);
        BSON_APPEND_OID(&more, "key", &id);
    }
    code = cli_row_run_with(cli, cli->command->row, &more);
    bson_destroy(&more);
    return code;
}

static const struct cli_command cli_commit_show = {
    .noun = "commit",
    .verb = "show",
    .arguments = "ID",
    .summary = "show a commit by its id or idempotency key",
    .example =
        "truce commit apply '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key 'order 17' "
        "--key-time $(date +%s000)\n"
        "truce commit show 'order 17'",
    .store = CLI_STORE_READ,
    .row =
        &(const struct cli_row){
            .name = "truceCommitShow",
            .named = "ID key",
            .none = "no commit has the id or key {key}: it never took effect, or was purged",
            .show = "commit"},
    .run = commit_run_show,
};

static const struct cli_command cli_commit_resolve = {
    .noun = "commit",
    .verb = "resolve",
    .arguments = "ID",
    .summary = "complete or undo an unfinished commit",
    .help = "A decided commit is completed; one whose lease has ended is undone. A commit in\n"
            "progress is not changed (exit code 1).",
    .example =
        "truce commit apply --journal '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key "
        "k1 --key-time $(date +%s000)\n"
        "truce commit resolve $(truce find truce_commits | jq -r '._id.\"$oid\"')",
    .store = CLI_STORE_CHANGE,
    .row = &(
        const struct cli_row){.name = "truceCommitResolve", .named = "ID commit", .show = "commit"},
    .run = cli_row_run,
};

/* ---- unique --------------------------------------------------------------------------------- */

static bool unique_print(struct cli *cli, const bson_t *reply)
{
    (void)cli;
    return cli_put("%s, %s, %lld converted\n",
                   truce__field_true(reply, "made") ? "declared" : "already declared",
                   PLURAL(truce__field_number(reply, "documents"), "document", "documents"),
                   (long long)truce__field_number(reply, "converted"));
}

static const struct cli_command cli_commit_unique = {
    .noun = "commit",
    .verb = "unique",
    .arguments = "COLLECTION",
    .summary = "let journal commits change values of unique indexes",
    .help =
        "Creates a unique index on the field _keys, in which each document repeats its keys of\n"
        "unique indexes. A commit can then reserve a new value next to the old one. The command\n"
        "waits until every process has seen the index, and gives each document its _keys. Run\n"
        "it again after plain inserts, or after a new unique index was created. Without it, the\n"
        "journal refuses such changes. Commits of file: stores need it only with\n"
        "--journal.",
    .example = "truce index create people '{mail: 1}' --unique\n"
               "truce commit unique people --settle 100ms",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceUnique", .print = unique_print},
    .run = cli_row_run,
};

cli_command_list cli_commit_commands = {&cli_commit_apply,   &cli_commit_list,   &cli_commit_show,
                                        &cli_commit_resolve, &cli_commit_unique, NULL};
