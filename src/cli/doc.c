/* truce doc get, save, merge, patch, log, conflicts, resolve. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/doc.h"
#include "cli/doc_edit.h"
#include "merge/merge.h"
#include "store/reserved.h"

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

/* path, then base, and mine and theirs side by side */
static void print_conflicts(const bson_t *entry)
{
    bson_iter_t iter, list;

    if (!bson_iter_init_find(&iter, entry, "conflicts") || !bson_iter_recurse(&iter, &list))
        return;
    while (bson_iter_next(&list)) {
        char base[60], mine[36], theirs[36];
        const uint8_t *bytes;
        uint32_t length;
        bson_iter_t path;
        bson_t one;

        bson_iter_document(&list, &length, &bytes);
        if (!bson_init_static(&one, bytes, length) || !bson_iter_init_find(&path, &one, "path"))
            continue;
        show_side(&one, "base", base, sizeof base);
        show_side(&one, "mine", mine, sizeof mine);
        show_side(&one, "theirs", theirs, sizeof theirs);
        cli_put("  %s", *bson_iter_utf8(&path, NULL) ? bson_iter_utf8(&path, NULL)
                                                     : "(the whole document)");
        if (bson_iter_init_find(&path, &one, "kind"))
            cli_put(" (%s)", bson_iter_utf8(&path, NULL));
        if (bson_has_field(&one, "mine") || bson_has_field(&one, "theirs"))
            print_sides(base, mine, theirs);
        cli_put("\n");
    }
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
        print_conflicts(&result->conflict);
        if (kept)
            cli_put("kept as %s; decide it by truce doc resolve %s %s --mine, --theirs or --edit\n",
                    inbox, cli->arguments[0], inbox);
    }
    bson_destroy(&document);
    return cli_output_end(conflict ? CLI_NO : CLI_DONE);
}

/* ---- save, merge ------------------------------------------------------------------------------ */

/* The numbers of `mine` get the types that they had in what was read, if that is known. */
static void keep_types(truce_revision *revision, int64_t version, const bson_t *base, bson_t *mine)
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

static int save(struct cli *cli, bool merges)
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
        keep_types(revision, version, given ? &base : NULL, &mine);
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
    return save(cli, false);
}

static int run_merge(struct cli *cli)
{
    return save(cli, true);
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
    .run = run_merge,
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

static int print_all(struct cli *cli, truce_status status, truce_cursor *cursor,
                     bson_error_t *error, bool as_text, int64_t *count)
{
    const bson_t *document = NULL;

    *count = 0;
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        ++*count;
        if (as_text) {
            char id[60];

            bson_iter_t iter;

            id[0] = '\0';
            if (bson_iter_init_find(&iter, document, "_id") && BSON_ITER_HOLDS_OID(&iter))
                bson_oid_to_string(bson_iter_oid(&iter), id);
            cli_put("%s of document ", id);
            show_side(document, "id", id, sizeof id);
            cli_put("%s of %s\n", id, cli->arguments[0]);
            print_conflicts(document);
        } else if (!cli_print(document, JSON_RELAXED)) {
            break;
        }
    }
    truce_cursor_close(cursor);
    return status ? cli_error(cli, NULL, status, error) : cli_output_end(CLI_DONE);
}

static int run_log(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_cursor *cursor = NULL;
    bson_t holder;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    int64_t count;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder) && cli_doc_open(cli, &revision)) {
        id = cli_doc_id_in(&holder);
        status = truce_revision_log(revision, &id, &cursor, &error);
        code = print_all(cli, status, cursor, &error, false, &count);
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
    .run = run_log,
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

/* ---- the inbox -------------------------------------------------------------------------------- */

static int run_conflicts(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status;
    int64_t count;
    int code;

    if (!cli_doc_open(cli, &revision))
        return CLI_USAGE;
    status = truce_revision_conflicts(revision, &cursor, &error);
    code = print_all(cli, status, cursor, &error, !cli->json, &count);
    truce_revision_free(revision);
    if (!code && !count)
        cli_remark(cli, "there are no open conflicts");
    return code ? code : count ? CLI_NO : CLI_DONE;
}

const struct cli_command cli_doc_conflicts = {
    .noun = "doc",
    .verb = "conflicts",
    .arguments = "COLLECTION",
    .summary = "list the conflicts that wait for somebody to decide",
    .help =
        "Mine and theirs side by side; with --json a document for each, with both sides. The exit\n"
        "code is 1 if there are any.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc conflicts posts",
    .options = (const struct cli_option[]){DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = run_conflicts,
};

/* Everything merged, with mine where both sides disagree, and both in a text. False: the rules are wrong; it was said. */
static bool draft(const struct cli *cli, const bson_t *entry, const bson_t *mine, bson_t *made)
{
    struct merge_options options = {.settle = MERGE_SETTLE_MARKED, .mine_is_newer = true};
    struct merge_rules *rules = NULL;
    bson_t base, theirs, given, conflicts;
    bson_error_t error;
    truce_status status;
    bool any;

    if (!cli_option_document(cli, "rules", &given, &any)) {
        bson_init(made);
        return false;
    }
    status = truce__merge_rules_new(&given, &rules, &error);
    options.rules = rules;
    if (!status && truce__value_subdocument(entry, "base", &base) &&
        truce__value_subdocument(entry, "theirs", &theirs)) {
        status = truce__merge(truce__value_document(&base), truce__value_document(mine),
                              truce__value_document(&theirs), &options, made, &conflicts, &error);
        bson_destroy(&conflicts);
    } else {
        bson_copy_to(mine, made);
    }
    truce__merge_rules_free(rules);
    bson_destroy(&given);
    return !status || cli_error(cli, NULL, status, &error) < 0;
}

/* The conflicts as lines above the document. */
static char *head_of(const bson_t *entry)
{
    bson_string_t *head = bson_string_new(
        "# Mine and theirs disagree about these. Below stands what mine has, and in\n"
        "# texts both, between <<<<<<< mine and >>>>>>> theirs:\n");
    bson_iter_t iter, list;

    if (bson_iter_init_find(&iter, entry, "conflicts") && bson_iter_recurse(&iter, &list)) {
        while (bson_iter_next(&list)) {
            char text[400];

            truce__value_show(truce__value_of_iter(&list), text, sizeof text);
            bson_string_append_printf(head, "#   %s\n", text);
        }
    }
    bson_string_append(
        head,
        "# Lines that begin with # are ignored. Left unsaved, or empty, it decides nothing.\n");
    return bson_string_free(head, false);
}

/* The conflict's document, as it comes back from $EDITOR; `document` is initialised if CLI_DONE. */
static int edit(struct cli *cli, const bson_oid_t *id, bson_t *document)
{
    bson_t filter = BSON_INITIALIZER, entry, mine, made;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;
    char *head;

    BSON_APPEND_OID(&filter, "_id", id);
    status = truce_find_one(cli->store, CONFLICTS, &filter, NULL, &entry, &error);
    bson_destroy(&filter);
    if (status == TRUCE_NOT_FOUND) {
        code = cli_say(cli, CLI_NO, "there is no such conflict");
    } else if (status) {
        code = cli_error(cli, NULL, status, &error);
    } else if (!truce__value_subdocument(&entry, "mine", &mine)) {
        code = cli_say(cli, CLI_FAILED, "the conflict has no document \"mine\"");
    } else {
        if (draft(cli, &entry, &mine, &made)) {
            head = head_of(&entry);
            code = cli_edit(cli, &made, head, document);
            bson_free(head);
        }
        bson_destroy(&made);
    }
    bson_destroy(&entry);
    return code;
}

/* 24 hexadecimal digits, or {"$oid": ...} as the documents print it. */
static bool conflict_id(const struct cli *cli, const char *text, bson_oid_t *oid)
{
    bson_t holder;
    bson_value_t id = {0};
    bool good;

    if (text[0] != '{' && !bson_oid_is_valid(text, strlen(text)))
        return false;
    good = cli_doc_id(cli, text, &holder);
    if (good)
        id = cli_doc_id_in(&holder);
    good = good && id.value_type == BSON_TYPE_OID;
    if (good)
        bson_oid_copy(&id.value.v_oid, oid);
    bson_destroy(&holder);
    return good;
}

static int run_resolve(struct cli *cli)
{
    const char *id = cli->arguments[1];
    truce_revision *revision = NULL;
    truce_revision_result result;
    truce_resolution resolution = cli_flag(cli, "mine")     ? TRUCE_RESOLVE_MINE
                                  : cli_flag(cli, "theirs") ? TRUCE_RESOLVE_THEIRS
                                                            : TRUCE_RESOLVE_DOCUMENT;
    bson_t document;
    bson_error_t error;
    truce_status status;
    bson_oid_t oid;
    bool given = false;
    int code = CLI_DONE;

    if (!conflict_id(cli, id, &oid))
        return cli_usage(cli, "\"%s\" is no id of a conflict (24 hexadecimal digits)", id);
    if (cli_flag(cli, "mine") + cli_flag(cli, "theirs") + cli_flag(cli, "edit") +
            (cli_text(cli, "with") != NULL) !=
        1)
        return cli_usage(cli, "say one of --mine, --theirs, --edit and --with DOCUMENT");
    if (cli_flag(cli, "edit"))
        code = edit(cli, &oid, &document);
    else if (!cli_option_document(cli, "with", &document, &given))
        code = CLI_USAGE;
    if (code)
        return code;
    code = CLI_USAGE;
    if (cli_doc_open(cli, &revision)) {
        status = truce_revision_resolve(revision, NULL, &oid, resolution,
                                        resolution == TRUCE_RESOLVE_DOCUMENT ? &document : NULL,
                                        &result, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_doc_answer(cli, &result);
        truce_revision_result_release(&result);
        truce_revision_free(revision);
    }
    bson_destroy(&document);
    return code;
}

const struct cli_command cli_doc_resolve = {
    .noun = "doc",
    .verb = "resolve",
    .arguments = "COLLECTION CONFLICT",
    .summary = "decide a conflict",
    .help =
        "What does not conflict is merged in any case. If the document was saved again since, the\n"
        "decision is merged with that; a new disagreement leaves the conflict open (exit code 1).",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"Peace\"}' --version 1\n"
               "truce doc merge posts '{_id: 1, title: \"War\"}' --version 1 || echo conflict\n"
               "conflict=$(truce find truce_conflicts | jq -r '._id.\"$oid\"')\n"
               "truce doc resolve posts $conflict --mine",
    .options =
        (const struct cli_option[]){{"mine", 0, NULL, "take mine where they disagree", false},
                                    {"theirs", 0, NULL, "take theirs", false},
                                    {"with", 0, "DOCUMENT", "take this document", false},
                                    {"edit", 0, NULL, "edit both merged, with $EDITOR", false},
                                    DOC_OPTIONS,
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_resolve,
};
