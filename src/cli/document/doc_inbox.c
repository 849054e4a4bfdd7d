/* truce doc conflicts, resolve: the inbox of what a merge cannot decide. */
#include <inttypes.h>
#include <string.h>

#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/document/doc.h"
#include "cli/document/doc_edit.h"
#include "merge/merge.h"
#include "patterns/revision/revision.h"

static void inbox_print_entry(const char *collection, const bson_t *entry)
{
    char name[25] = "", of[60], against[40] = "which was removed";
    struct value id = truce__value_field(truce__value_document(entry), "id", 2);
    bson_iter_t iter, list;

    if (bson_iter_init_find(&iter, entry, "_id") && BSON_ITER_HOLDS_OID(&iter))
        bson_oid_to_string(bson_iter_oid(&iter), name);
    if (bson_has_field(entry, "theirs") && bson_iter_init_find(&iter, entry, "version"))
        snprintf(against, sizeof against, "against version %" PRId64, bson_iter_as_int64(&iter));
    cli_put("%s of document %s of %s, %s\n", name,
            id.type ? truce__value_show(id, of, sizeof of) : "(nothing)", collection, against);
    if (bson_iter_init_find(&iter, entry, "conflicts") && bson_iter_recurse(&iter, &list) &&
        !bson_iter_next(&list))
        cli_put("  nothing disagrees any more\n");
    cli_doc_conflicts_print(entry);
}

static int print_entries(struct cli *cli, truce_cursor *cursor, int64_t *count)
{
    const bson_t *entry = NULL;
    bson_error_t error;
    truce_status status = TRUCE_OK;

    while (!status) {
        status = truce_cursor_next(cursor, &entry, &error);
        if (status || !entry)
            break;
        ++*count;
        if (!cli->json)
            inbox_print_entry(cli->arguments[0], entry);
        else if (!cli_print(entry, JSON_RELAXED))
            break;
    }
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

static int inbox_run_conflicts(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status;
    int64_t count = 0;
    int code;

    if (!cli_doc_open(cli, &revision))
        return CLI_USAGE;
    status = truce_revision_conflicts(revision, &cursor, &error);
    code = status ? cli_error(cli, NULL, status, &error) : print_entries(cli, cursor, &count);
    truce_cursor_close(cursor);
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
        "Mine, and theirs as it stands now, side by side; with --json a document for each, with\n"
        "both sides. The exit code is 1 if there are any. A decision says which version it has\n"
        "seen (truce doc resolve --version).",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc conflicts posts",
    .options = (const struct cli_option[]){DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = inbox_run_conflicts,
};

/* Everything merged, with mine where both sides disagree, and both in a text. False: it was said. */
static bool draft(const struct cli *cli, const truce_revision *revision, const bson_t *entry,
                  bson_t *made)
{
    struct merge_options options = {.settle = MERGE_SETTLE_MARKED, .mine_is_newer = true};
    struct merge_rules *kept;
    bson_t base, mine, theirs, conflicts;
    bson_error_t error;
    truce_status status = TRUCE_OK;

    if (!truce__value_subdocument(entry, "mine", &mine)) {
        bson_init(made);
        return cli_say(cli, CLI_FAILED, "the conflict has no document \"mine\"") < 0;
    }
    options.rules = truce__revision_entry_rules(revision, entry, &kept);
    if (truce__value_subdocument(entry, "base", &base) &&
        truce__value_subdocument(entry, "theirs", &theirs)) {
        status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                              truce__value_document(&theirs), &options, made, &conflicts, &error);
        bson_destroy(&conflicts);
    } else {
        bson_copy_to(&mine, made);
    }
    truce__merge_rules_free(kept);
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

/* The entry as it is shown, and its document as it comes back from $EDITOR; both are initialised. */
static int inbox_edit(struct cli *cli, truce_revision *revision, const bson_oid_t *id,
                      bson_t *shown, bson_t *document)
{
    bson_error_t error;
    truce_status status = truce_revision_conflict(revision, id, shown, &error);
    int code = CLI_FAILED;
    bson_t made;
    char *head;

    bson_init(document);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (draft(cli, revision, shown, &made)) {
        head = head_of(shown);
        bson_destroy(document);
        code = cli_edit(cli, &made, head, document);
        if (code)
            bson_init(document);
        bson_free(head);
    }
    bson_destroy(&made);
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

static bool resolve_options(const struct cli *cli, int64_t *version)
{
    bool named = cli_text(cli, "version") || cli_flag(cli, "new");

    if (cli_flag(cli, "mine") + cli_flag(cli, "theirs") + cli_flag(cli, "edit") +
            (cli_text(cli, "with") != NULL) !=
        1)
        return cli_usage(cli, "say one of --mine, --theirs, --edit and --with DOCUMENT") < 0;
    if (cli_text(cli, "version") && cli_flag(cli, "new"))
        return cli_usage(cli,
                         "--new says that there was no document, --version that one was seen") < 0;
    if (named && cli_flag(cli, "edit"))
        return cli_usage(cli, "--edit shows what stands now, and decides against that") < 0;
    return cli_number(cli, "version", 0, INT64_MAX, TRUCE_REVISION_NEW, version);
}

static int inbox_resolve(struct cli *cli, truce_revision *revision, const bson_oid_t *id,
                         int64_t version)
{
    truce_resolution resolution = cli_flag(cli, "mine")     ? TRUCE_RESOLVE_MINE
                                  : cli_flag(cli, "theirs") ? TRUCE_RESOLVE_THEIRS
                                                            : TRUCE_RESOLVE_DOCUMENT;
    truce_revision_result result;
    bson_t document, seen = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    bool given = false;
    int code = CLI_DONE;

    if (cli_flag(cli, "edit"))
        code = inbox_edit(cli, revision, id, &seen, &document);
    else if (!cli_option_document(cli, "with", &document, &given))
        code = CLI_USAGE;
    else if (cli_text(cli, "version") || cli_flag(cli, "new"))
        BSON_APPEND_INT64(&seen, "version", version);
    if (!code) {
        status = truce_revision_resolve(revision, NULL, id, resolution,
                                        resolution == TRUCE_RESOLVE_DOCUMENT ? &document : NULL,
                                        bson_empty(&seen) ? NULL : &seen, &result, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_doc_answer(cli, &result);
        truce_revision_result_release(&result);
    }
    bson_destroy(&seen);
    bson_destroy(&document);
    return code;
}

static int inbox_run_resolve(struct cli *cli)
{
    truce_revision *revision = NULL;
    int64_t version;
    bson_oid_t oid;
    int code = CLI_USAGE;

    if (!conflict_id(cli, cli->arguments[1], &oid))
        return cli_usage(cli, "\"%s\" is no id of a conflict (24 hexadecimal digits)",
                         cli->arguments[1]);
    if (resolve_options(cli, &version) && cli_doc_open(cli, &revision))
        code = inbox_resolve(cli, revision, &oid, version);
    truce_revision_free(revision);
    return code;
}

const struct cli_command cli_doc_resolve = {
    .noun = "doc",
    .verb = "resolve",
    .arguments = "COLLECTION CONFLICT",
    .summary = "decide a conflict",
    .help =
        "What does not conflict is merged in any case. --version is the one that truce doc\n"
        "conflicts showed (--new: none stood any more); without it the decision is against what\n"
        "the conflict was told with. If the document was saved again since, the decision is merged\n"
        "with that; where the two disagree the conflict stays open, against what stands now (exit\n"
        "code 1). The rules are those of the save, unless --rules says others.",
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
                                    {"version", 'v', "NUMBER", "the version that was seen", false},
                                    {"new", 0, NULL, "it was seen that none is there", false},
                                    DOC_OPTIONS,
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = inbox_run_resolve,
};
