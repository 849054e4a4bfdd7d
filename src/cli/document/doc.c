/* truce doc get, save, merge, patch, log. */
#include <inttypes.h>
#include <string.h>

#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/document/doc.h"
#include "cli/document/doc_edit.h"

#define DAY_MS INT64_C(86400000)

bool cli_doc_open(const struct cli *cli, truce_revision **revision)
{
    bson_t rules;
    int64_t keep, days;
    bool given = false;
    bool good = cli_number(cli, "keep", 0, UINT32_MAX, 10, &keep) &&
                cli_number(cli, "keep-days", 0, 36500, 0, &days) &&
                cli_option_document(cli, "rules", &rules, &given);

    *revision = NULL;
    if (!good)
        return false;
    *revision = truce_revision_new(
        cli->store, &(truce_revision_options){.collection = cli->arguments[0],
                                              .version = cli_text(cli, "version-field"),
                                              .rules = given ? &rules : NULL,
                                              .keep = (uint32_t)keep,
                                              .keep_ms = days * DAY_MS,
                                              .strict = cli_flag(cli, "strict"),
                                              .deadline_ms = cli->deadline_ms,
                                              .inbox = true});
    bson_destroy(&rules);
    return true;
}

/* ---- conflicts as text ------------------------------------------------------------------------ */

static void show_side(const bson_t *conflict, const char *name, char *text, size_t size)
{
    struct value value = truce__value_field(truce__value_document(conflict), name, strlen(name));

    if (value.type)
        truce__value_show(value, text, size);
    else
        snprintf(text, size, "(nothing)");
}

static void print_sides(const char *base, const char *mine, const char *theirs)
{
    cli_put(": was %s\n    ", base);
    cli_paint("\033[32m");
    cli_put("mine   %-36s", mine);
    cli_paint("\033[0m");
    cli_put(" ");
    cli_paint("\033[36m");
    cli_put("theirs %s", theirs);
    cli_paint("\033[0m");
}

static void doc_print_change(const bson_t *change)
{
    char base[60], mine[36], theirs[36];

    show_side(change, "base", base, sizeof base);
    show_side(change, "mine", mine, sizeof mine);
    show_side(change, "theirs", theirs, sizeof theirs);
    print_sides(base, mine, theirs);
}

/* Of a text its hunks; all else of it is merged. */
static void print_hunks(bson_iter_t *hunks)
{
    while (bson_iter_next(hunks)) {
        bson_t hunk;

        if (BSON_ITER_HOLDS_DOCUMENT(hunks)) {
            truce__value_bson(truce__value_of_iter(hunks), &hunk);
            doc_print_change(&hunk);
        }
    }
}

static void print_conflict(const bson_t *conflict, const char *path)
{
    bson_iter_t iter, hunks;

    cli_put("  %s", *path ? path : "(the whole document)");
    if (bson_iter_init_find(&iter, conflict, "kind") && BSON_ITER_HOLDS_UTF8(&iter))
        cli_put(" (%s)", bson_iter_utf8(&iter, NULL));
    if (bson_iter_init_find(&iter, conflict, "hunks") && bson_iter_recurse(&iter, &hunks))
        print_hunks(&hunks);
    else if (bson_has_field(conflict, "mine") || bson_has_field(conflict, "theirs"))
        doc_print_change(conflict);
    cli_put("\n");
}

void cli_doc_conflicts_print(const bson_t *entry)
{
    bson_iter_t iter, list, path;
    bson_t one;

    if (!bson_iter_init_find(&iter, entry, "conflicts") || !bson_iter_recurse(&iter, &list))
        return;
    while (bson_iter_next(&list)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&list))
            continue;
        truce__value_bson(truce__value_of_iter(&list), &one);
        if (bson_iter_init_find(&path, &one, "path") && BSON_ITER_HOLDS_UTF8(&path))
            print_conflict(&one, bson_iter_utf8(&path, NULL));
    }
}

/* The version that was shown is that of the decision. */
static void print_hint(const char *collection, const char *inbox, int64_t version)
{
    char seen[40] = "--new";

    if (version != TRUCE_REVISION_NEW)
        snprintf(seen, sizeof seen, "--version %" PRId64, version);
    cli_put(
        "kept as %s; decide it by truce doc resolve %s %s %s --mine (or --theirs), or by --edit\n",
        inbox, collection, inbox, seen);
}

int cli_doc_answer(const struct cli *cli, const truce_revision_result *result)
{
    bool conflict = result->outcome == TRUCE_REVISION_CONFLICT, kept = false;
    const char *name = truce_revision_outcome_name(result->outcome);
    bson_t document = BSON_INITIALIZER;
    char inbox[25];

    bson_oid_to_string(&result->inbox, inbox);
    kept = strspn(inbox, "0") != 24;
    BSON_APPEND_UTF8(&document, "outcome", name);
    if (result->version != TRUCE_REVISION_NEW)
        BSON_APPEND_INT64(&document, "version", result->version);
    if (conflict)
        BSON_APPEND_DOCUMENT(&document, "conflict", &result->conflict);
    if (kept)
        BSON_APPEND_OID(&document, "inbox", &result->inbox);
    if (!conflict && result->version == TRUCE_REVISION_NEW) {
        cli_answer(cli, &document, "%s, there is no such document", name);
    } else if (cli->json || !conflict) {
        cli_answer(cli, &document, "%s, version %" PRId64, name, result->version);
    } else {
        if (result->version == TRUCE_REVISION_NEW)
            cli_put("conflict: there is no such document\n");
        else
            cli_put("conflict with version %" PRId64 "\n", result->version);
        cli_doc_conflicts_print(&result->conflict);
        if (kept)
            print_hint(cli->arguments[0], inbox, result->version);
    }
    bson_destroy(&document);
    return cli_output_end(conflict ? CLI_NO : CLI_DONE);
}

/* ---- save, merge ------------------------------------------------------------------------------ */

/* The numbers of `mine` get the types that they had in what was read, if that is known. */
static void doc_keep_types(truce_revision *revision, int64_t version, const bson_t *base,
                           bson_t *mine)
{
    bson_error_t ignored;
    bson_iter_t iter;
    bson_t read;

    if (base) {
        cli_keep_types(base, mine);
        return;
    }
    if (version < 0 || !bson_iter_init_find(&iter, mine, "_id"))
        return;
    if (!truce_revision_at(revision, bson_iter_value(&iter), version, &read, &ignored))
        cli_keep_types(&read, mine);
    bson_destroy(&read);
}

static int doc_save(struct cli *cli, bool merges)
{
    truce_revision *revision = NULL;
    truce_revision_result result;
    bson_t mine, base;
    bson_error_t error;
    truce_status status;
    int64_t version;
    bool given = false;
    int code = CLI_USAGE;
    bool good = cli_document(cli, cli->arguments[1], "DOCUMENT", &mine);

    good &= cli_option_document(cli, "base", &base, &given);
    if (good && !cli_text(cli, "version") && !cli_flag(cli, "new"))
        cli_usage(cli, "--version NUMBER is missing: the one that was read (or --new)");
    else if (good && cli_text(cli, "version") && cli_flag(cli, "new"))
        cli_usage(cli, "--new says that there is no document yet, --version that one was read");
    else if (good && cli_number(cli, "version", 0, INT64_MAX, TRUCE_REVISION_NEW, &version) &&
             cli_doc_open(cli, &revision)) {
        doc_keep_types(revision, version, given ? &base : NULL, &mine);
        status = (merges ? truce_revision_merge : truce_revision_save)(
            revision, NULL, &mine, version, given ? &base : NULL, &result, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_doc_answer(cli, &result);
        truce_revision_result_release(&result);
    }
    truce_revision_free(revision);
    bson_destroy(&mine);
    bson_destroy(&base);
    return code;
}

static int run_save(struct cli *cli)
{
    return doc_save(cli, false);
}

static int doc_run_merge(struct cli *cli)
{
    return doc_save(cli, true);
}

static const struct cli_option save_options[] = {
    {"version", 'v', "NUMBER", "the number that was read", false},
    {"new", 0, NULL, "the document is not there yet", false},
    {"base", 'b', "DOCUMENT", "the document that was read (else what is kept of it)", false},
    DOC_OPTIONS,
    {0}};

const struct cli_command cli_doc_save = {
    .noun = "doc",
    .verb = "save",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "save a document if nobody has saved it since it was read",
    .help =
        "The number is raised. If it is no longer --version, nothing is saved, the paths that the\n"
        "two changes disagree about are shown, and the exit code is 1.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"On truces\"}' --version 1",
    .options = save_options,
    .store = CLI_STORE_WRITE,
    .run = run_save,
};

const struct cli_command cli_doc_merge = {
    .noun = "doc",
    .verb = "merge",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "save a document, merged with what others saved since it was read",
    .help =
        "By paths; elements of arrays by _id, id or name, or a key that --rules declares. What both\n"
        "changed is decided by --rules: {\"path\": POLICY} with mine, theirs, newest, max, min, sum,\n"
        "union, text, ask; \"$default\" for all other paths. What is left goes to the inbox of\n"
        "conflicts (truce doc conflicts), and the exit code is 1.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc merge posts '{_id: 1, title: \"Truce\", views: 8}' --version 1 \\\n"
               "    --rules '{views: \"sum\"}'",
    .options = save_options,
    .store = CLI_STORE_WRITE,
    .run = doc_run_merge,
};

/* ---- get, log --------------------------------------------------------------------------------- */

static int run_get(struct cli *cli)
{
    truce_revision *revision = NULL;
    bson_t holder, document;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    int64_t version;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder) && cli_doc_open(cli, &revision) &&
        cli_number(cli, "at", 0, INT64_MAX, -1, &version)) {
        id = cli_doc_id_in(&holder);
        status = version < 0 ? truce_revision_get(revision, NULL, &id, &document, &version, &error)
                             : truce_revision_at(revision, &id, version, &document, &error);
        if (!status)
            cli_print(&document, JSON_RELAXED);
        bson_destroy(&document);
        code = status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
    }
    truce_revision_free(revision);
    bson_destroy(&holder);
    return code;
}

const struct cli_command cli_doc_get = {
    .noun = "doc",
    .verb = "get",
    .arguments = "COLLECTION ID",
    .summary = "print a document as it is, or as it was",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc get posts 1",
    .options =
        (const struct cli_option[]){
            {"at", 0, "NUMBER", "as it was under that number", false}, DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = run_get,
};

static int doc_print_all(struct cli *cli, truce_status status, truce_cursor *cursor,
                         bson_error_t *error)
{
    const bson_t *document = NULL;

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document || !cli_print(document, JSON_RELAXED))
            break;
    }
    truce_cursor_close(cursor);
    return status ? cli_error(cli, NULL, status, error) : cli_output_end(CLI_DONE);
}

static int doc_run_log(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_cursor *cursor = NULL;
    bson_t holder;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder) && cli_doc_open(cli, &revision)) {
        id = cli_doc_id_in(&holder);
        status = truce_revision_log(revision, &id, &cursor, &error);
        code = doc_print_all(cli, status, cursor, &error);
    }
    truce_revision_free(revision);
    bson_destroy(&holder);
    return code;
}

const struct cli_command cli_doc_log = {
    .noun = "doc",
    .verb = "log",
    .arguments = "COLLECTION ID",
    .summary = "print the replaced versions that are kept, newest first",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"On truces\"}' --version 1\n"
               "truce doc log posts 1",
    .options = (const struct cli_option[]){DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = doc_run_log,
};

/* ---- patch ------------------------------------------------------------------------------------ */

static int run_patch(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_revision_result result;
    bson_t holder, patch;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    bson_iter_t iter;
    int64_t version;
    bool array = false;
    int code = CLI_USAGE;
    bool good = cli_doc_id(cli, cli->arguments[1], &holder);

    good &= cli_document_or_array(cli, cli->arguments[2], "PATCH", &patch, &array);
    if (good && cli_number(cli, "version", 0, INT64_MAX, -1, &version) &&
        cli_doc_open(cli, &revision)) {
        bool operators = bson_iter_init(&iter, &patch) && bson_iter_next(&iter) &&
                         bson_iter_key(&iter)[0] == '$';

        id = cli_doc_id_in(&holder);
        status = truce_revision_patch(revision, NULL, &id, version, version < 0,
                                      array       ? TRUCE_PATCH_JSON
                                      : operators ? TRUCE_PATCH_OPERATORS
                                                  : TRUCE_PATCH_MERGE,
                                      &patch, &result, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_doc_answer(cli, &result);
        truce_revision_result_release(&result);
    }
    truce_revision_free(revision);
    bson_destroy(&holder);
    bson_destroy(&patch);
    return code;
}

const struct cli_command cli_doc_patch = {
    .noun = "doc",
    .verb = "patch",
    .arguments = "COLLECTION ID PATCH",
    .summary = "change a document by a patch, and raise its number",
    .help =
        "PATCH is an array of operations (JSON Patch, RFC 6902), operators ($set ...), or a merge\n"
        "patch (RFC 7396). Without --version it is applied to whatever stands there.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc patch posts 1 '[{op: \"add\", path: \"/tags\", value: [\"x\"]}]'",
    .options = (const struct cli_option[]){{"version", 'v', "NUMBER", "only to that number", false},
                                           DOC_OPTIONS,
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_patch,
};
