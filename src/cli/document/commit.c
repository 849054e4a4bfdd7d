/* truce commit apply, list, show, resolve, unique. */
#include "cli/document/commit.h"

#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "bson/json.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/ndjson.h"
#include "patterns/change_list/change_list.h"
#include "store/reserved.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static bool cli_take_document(const bson_iter_t *iter, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    bson_iter_document(iter, &length, &bytes);
    return bson_init_static(document, bytes, length);
}

int cli_parts_check(const struct cli *cli, const bson_t *changes)
{
    bson_error_t error;

    return truce__written_check(changes, NULL, &error) ? cli_usage(cli, "%s", error.message)
                                                       : CLI_DONE;
}

/* ---- diffs: {"collection": ..., "changes": {id: {key: [old, new]}}, "input": ...} ---- */

struct diffs {
    const char *collection;
    bson_t changes, input;
    bool has_changes, has_input;
};

static int read_diffs(const struct cli *cli, const bson_t *document, struct diffs *diffs)
{
    bson_iter_t iter;

    if (!bson_iter_init(&iter, document))
        return CLI_USAGE;
    while (bson_iter_next(&iter)) {
        const char *key = bson_iter_key(&iter);

        if (!strcmp(key, "collection") && BSON_ITER_HOLDS_UTF8(&iter))
            diffs->collection = bson_iter_utf8(&iter, NULL);
        else if (!strcmp(key, "changes") && cli_take_document(&iter, &diffs->changes))
            diffs->has_changes = true;
        else if (!strcmp(key, "input") && cli_take_document(&iter, &diffs->input))
            diffs->has_input = true;
        else
            return cli_usage(cli,
                             "unexpected \"%s\" in the diffs: expected \"collection\" with a name, "
                             "\"changes\" with {ID: {KEY: [OLD, NEW]}}, and \"input\" with a "
                             "document",
                             key);
    }
    if (!diffs->collection || !diffs->has_changes)
        return cli_usage(cli,
                         "diffs need %s: {\"collection\": \"COLLECTION\", \"changes\": {ID: "
                         "{KEY: [OLD, NEW]}}}",
                         diffs->collection ? "\"changes\"" : "a \"collection\"");
    return CLI_DONE;
}

/* ---- both ---- */

/* The input of `truce commit apply`, an array or a document, and the result that it attaches to its
 * key. */
struct given {
    const struct cli *cli;
    bson_t content, result, input;
    bool is_array, leaves, has_input;
    bson_t inserted;    /* the ids that were generated */
    struct diffs diffs; /* borrows from `content` */
};

static truce_status commit_apply(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct given *given = arg;
    truce_status status;

    truce_commit_changes_fixed(commit);
    status = given->is_array ? truce__written_add(&given->content, NULL, commit, error)
                             : truce_commit_changes(commit, given->diffs.collection,
                                                    &given->diffs.changes, error);
    if (!status && given->leaves)
        status = truce_commit_set_result(commit, &given->result, error);
    bson_destroy(&given->inserted);
    bson_copy_to(truce_commit_inserted(commit), &given->inserted);
    return status;
}

/* Prints the generated ids, and the result that an earlier commit attached to the key. */
static void commit_answer(struct cli *cli, const char *key, bool earlier, const struct given *given)
{
    const char *text = earlier ? "committed earlier" : "committed";
    bson_t document = BSON_INITIALIZER, record = BSON_INITIALIZER;
    struct buffer shown = {0};
    bson_t result;
    bson_iter_t iter;

    BSON_APPEND_BOOL(&document, "committed", true);
    if (earlier)
        BSON_APPEND_BOOL(&document, "earlier", true);
    else if (!bson_empty(&given->inserted))
        BSON_APPEND_ARRAY(&document, "inserted", &given->inserted);
    if (earlier) {
        bson_destroy(&record);
        (void)!truce_commit_record(cli->store, key, &record, NULL);
    }
    if (bson_iter_init_find(&iter, &record, "inserted"))
        bson_append_iter(&document, NULL, 0, &iter);
    if (bson_iter_init_find(&iter, &record, "result") && cli_take_document(&iter, &result)) {
        BSON_APPEND_DOCUMENT(&document, "result", &result);
        truce__json_write(&shown, &result, false, JSON_RELAXED);
        cli_answer(cli, &document, "%s, and left %.*s", text, (int)shown.size,
                   (const char *)shown.bytes);
    } else {
        cli_answer(cli, &document, "%s", text);
    }
    truce__buffer_release(&shown);
    bson_destroy(&record);
    bson_destroy(&document);
}

static int commit_transact(struct cli *cli, struct given *given)
{
    truce_commit_options options = {.key = cli_text(cli, "key")};
    bson_t input = BSON_INITIALIZER;
    int64_t key_time;
    bool earlier = false;
    bson_error_t error;
    truce_status status;

    if (!cli_number(cli, "key-time", 1, INT64_MAX, truce__clock_wall_ms(), &key_time)) {
        bson_destroy(&input);
        return CLI_USAGE;
    }
    if (given->is_array)
        BSON_APPEND_ARRAY(&input, "changes", &given->content); /* what the key identifies */
    else
        BSON_APPEND_DOCUMENT(&input, "diffs", &given->content);
    if (given->has_input)
        options.input = &given->input;
    else if (given->diffs.has_input)
        options.input = &given->diffs.input;
    else if (options.key)
        options.input = &input;
    options.key_time_ms = options.key ? key_time : 0;
    options.deadline_ms = cli->deadline_ms;
    options.earlier = &earlier;
    options.mechanism = cli_flag(cli, "journal") ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_AUTO;
    status = truce_transact(cli->store, commit_apply, given, &options, &error);
    if (!status)
        commit_answer(cli, options.key, earlier, given);
    bson_destroy(&input);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int check_given(const struct cli *cli, struct given *given)
{
    if (cli_text(cli, "key") && !cli_text(cli, "key-time"))
        return cli_usage(
            cli, "--key needs --key-time: the time at which the key was created, in ms since "
                 "1970, the same in every retry");
    if (!cli_option_document(cli, "leave", &given->result, &given->leaves) ||
        !cli_option_document(cli, "input", &given->input, &given->has_input))
        return CLI_USAGE;
    if (given->leaves && !cli_text(cli, "key"))
        return cli_usage(cli, "--leave needs --key: without a key, no call can ask for the result");
    if (!given->is_array)
        return read_diffs(cli, &given->content, &given->diffs);
    if (bson_empty(&given->content))
        return cli_usage(
            cli, "CHANGES is empty: expected an array of changes, or a document with diffs");
    return cli_parts_check(cli, &given->content);
}

/* Reads the changes from the argument, a file, or standard input. */
static int read_given(const struct cli *cli, struct given *given)
{
    const char *path = cli_text(cli, "file");
    char *text = NULL;
    bson_error_t error;
    truce_status status;
    bool good;

    if (cli->count && path)
        return cli_usage(cli, "CHANGES and --file exclude each other");
    if (cli->count)
        return cli_document_or_array(cli, cli->arguments[0], "CHANGES", &given->content,
                                     &given->is_array)
                   ? CLI_DONE
                   : CLI_USAGE;
    path = path ? path : "-";
    status = cli_text_file(path, &text, &error);
    if (status)
        return cli_usage(cli, "%s", error.message);
    good = cli_document_or_array(cli, text, strcmp(path, "-") ? path : "standard input",
                                 &given->content, &given->is_array);
    bson_free(text);
    return good ? CLI_DONE : CLI_USAGE;
}

static int run_apply(struct cli *cli)
{
    struct given given = {.cli = cli,
                          .content = BSON_INITIALIZER,
                          .result = BSON_INITIALIZER,
                          .input = BSON_INITIALIZER,
                          .inserted = BSON_INITIALIZER};
    int code = read_given(cli, &given);

    if (!code)
        code = check_given(cli, &given);
    if (!code)
        code = cli_store_open(cli, CLI_STORE_WRITE, &cli->store);
    if (!code)
        code = commit_transact(cli, &given);
    bson_destroy(&given.content);
    bson_destroy(&given.result);
    bson_destroy(&given.input);
    bson_destroy(&given.inserted);
    return code;
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
        "  {\"post\": \"LEDGER\", \"id\": ID, \"with\": {ACCOUNT: AMOUNT, ...}, \"meta\": DOCUMENT}\n"
        "Each \"if\" is optional, and so are the fields of enqueue and post.\n"
        "Or it has a document with diffs of one collection\n"
        "  {\"collection\": \"COLLECTION\", \"changes\": {ID: {KEY: [OLD, NEW], ...}, ...},\n"
        "   \"input\": DOCUMENT}\n"
        "where \"input\" is optional and works as --input. A diff is refused if the current value\n"
        "of one of its keys is not OLD; other keys may have changed. {\"$undefined\": true} means\n"
        "a missing field. An ID of 24 hexadecimal digits is an ObjectId; other IDs are strings.\n"
        "Exit code 1: a conflict or an unmet condition; nothing was changed.",
    .example =
        "truce insert accounts '{_id: \"a\", n: 9}' '{_id: \"b\", n: 0}'\n"
        "truce commit apply '[{update: \"accounts\", id: \"a\", if: {n: {$gte: 5}}, with: {$inc: {n: -5}}},\n"
        "                     {update: \"accounts\", id: \"b\", with: {$inc: {n: 5}}}]'",
    .options =
        (const struct cli_option[]){
            {"file", 0, "FILE", "read CHANGES from a file; - is standard input", false},
            {"key", 0, "KEY", "an idempotency key: the commit happens at most once", false},
            {"key-time", 0, "MS", "when the key was created (ms since 1970)", false},
            {"leave", 0, "DOCUMENT", "with --key: the result for later calls with the key", false},
            {"input", 0, "DOCUMENT", "with --key: what identifies the request (default: CHANGES)",
             false},
            {"journal", 0, NULL, "use the journal, even if the store has transactions", false},
            {0}},
    .store = CLI_STORE_NONE, /* the store is opened after the changes are read */
    .run = run_apply,
};

/* ---- list ----------------------------------------------------------------------------------- */

static int commit_print_list(struct cli *cli)
{
    truce_commit_list_options options = {.state = cli_text(cli, "state"),
                                         .key_prefix = cli_text(cli, "prefix")};
    truce_cursor *cursor = NULL;
    int64_t limit;
    bson_error_t error;
    truce_status status;

    if (!cli_number(cli, "limit", 1, INT32_MAX, 100, &limit))
        return CLI_USAGE;
    options.limit = limit + 1;
    status = truce_commit_list(cli->store, &options, &cursor, &error);
    return cli_output_end(cli_print_page(cli, status, cursor, limit, &error));
}

static const struct cli_command cli_commit_list = {
    .noun = "commit",
    .verb = "list",
    .summary = "list recorded commits, newest first",
    .help =
        "Prints a line for each commit of the journal, and for each one with a key or an input.\n"
        "For a commit that was undone, it prints the reason.",
    .example =
        "truce commit apply --journal '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key k1 --key-time $(date +%s000)\n"
        "truce commit list --state done",
    .options =
        (const struct cli_option[]){
            {"state", 0, "STATE", "only pending, committed, aborted, or done commits", false},
            {"prefix", 0, "TEXT", "only commits whose key begins with this", false},
            {"limit", 0, "N", "at most this many (default: 100)", false},
            {0}},
    .store = CLI_STORE_READ,
    .run = commit_print_list,
};

/* ---- show and resolve ----------------------------------------------------------------------- */

static truce_status commit_find_by_id(truce_store *store, const char *hex, bson_t *commit,
                                      bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;
    bson_oid_t id;

    bson_oid_init_from_string(&id, hex);
    BSON_APPEND_OID(&filter, "_id", &id);
    status = truce_find_one(store, COMMITS, &filter, NULL, commit, error);
    bson_destroy(&filter);
    return status;
}

static int commit_run_show(struct cli *cli)
{
    const char *name = cli->arguments[0];
    bool is_id = bson_oid_is_valid(name, strlen(name));
    bson_error_t error;
    bson_t commit;
    truce_status status = is_id ? commit_find_by_id(cli->store, name, &commit, &error)
                                : truce_commit_record(cli->store, name, &commit, &error);

    if (!status)
        cli_print(&commit, JSON_RELAXED);
    bson_destroy(&commit);
    if (status == TRUCE_NOT_FOUND)
        return cli_say(cli, CLI_NO,
                       "no commit has the id or key %s: it never took effect, or was purged", name);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static const struct cli_command cli_commit_show = {
    .noun = "commit",
    .verb = "show",
    .arguments = "ID",
    .summary = "show a commit by its id or idempotency key",
    .example =
        "truce commit apply '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key 'order 17' --key-time $(date +%s000)\n"
        "truce commit show 'order 17'",
    .store = CLI_STORE_READ,
    .run = commit_run_show,
};

static int commit_print_resolve(struct cli *cli)
{
    const char *name = cli->arguments[0];
    bson_error_t error;
    bson_oid_t id;
    bson_t commit;
    truce_status status;

    if (!bson_oid_is_valid(name, strlen(name)))
        return cli_usage(cli, "invalid id of a commit \"%s\": expected 24 hexadecimal digits",
                         name);
    bson_oid_init_from_string(&id, name);
    status = truce_commit_resolve(cli->store, &id, &commit, &error);
    if (!status)
        cli_print(&commit, JSON_RELAXED);
    bson_destroy(&commit);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static const struct cli_command cli_commit_resolve = {
    .noun = "commit",
    .verb = "resolve",
    .arguments = "ID",
    .summary = "complete or undo an unfinished commit",
    .help = "A decided commit is completed; one whose lease has ended is undone. A commit in\n"
            "progress is not changed (exit code 1).",
    .example =
        "truce commit apply --journal '[{insert: \"accounts\", with: {_id: \"a\", n: 9}}]' --key k1 --key-time $(date +%s000)\n"
        "truce commit resolve $(truce find truce_commits | jq -r '._id.\"$oid\"')",
    .store = CLI_STORE_CHANGE,
    .run = commit_print_resolve,
};

/* ---- unique --------------------------------------------------------------------------------- */

static int run_unique(struct cli *cli)
{
    truce_unique_options options = {0};
    truce_unique_report report;
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int64_t settle_ms;

    if (!cli_duration(cli, "settle", 1, 600000, 6000, &settle_ms)) {
        bson_destroy(&answer);
        return CLI_USAGE;
    }
    options.settle_ms = (uint32_t)settle_ms;
    status = truce_unique_declare(cli->store, cli->arguments[0], &options, &report, &error);
    if (!status) {
        BSON_APPEND_BOOL(&answer, "declared", true);
        BSON_APPEND_INT64(&answer, "documents", report.documents);
        BSON_APPEND_INT64(&answer, "converted", report.converted);
        cli_answer(cli, &answer, "%s, %lld documents, %lld converted",
                   report.made ? "declared" : "already declared", (long long)report.documents,
                   (long long)report.converted);
    }
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
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
    .options =
        (const struct cli_option[]){
            {"settle", 0, "DURATION", "how long to wait for other processes (default: 6s)", false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_unique,
};

cli_command_list cli_commit_commands = {&cli_commit_apply,   &cli_commit_list,   &cli_commit_show,
                                        &cli_commit_resolve, &cli_commit_unique, NULL};
