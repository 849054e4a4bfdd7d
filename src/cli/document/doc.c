/* truce doc get, save, merge, patch, log, conflicts, resolve, remove. */
#include "cli/document/doc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/pretty.h"
#include "cli/core/row.h"
#include "merge/merge.h"
#include "patterns/revision/revision.h"

/* ---- ids of documents ------------------------------------------------------------------------ */

/* Ids of documents in the form that other commands print. */

static bool cli_doc_open(const struct cli *cli, truce_revision **revision);
static void cli_doc_conflicts_print(const bson_t *entry);
static int cli_doc_answer(const struct cli *cli, const truce_revision_result *result);

bool cli_doc_id(const struct cli *cli, const char *text, bson_t *holder)
{
    bson_init(holder);
    return cli_row_append_value(cli, "ID", text, "v", holder);
}

bson_value_t cli_doc_id_in(const bson_t *holder)
{
    bson_value_t none = {0};
    bson_iter_t iter;

    return bson_iter_init_find(&iter, holder, "v") ? *bson_iter_value(&iter) : none;
}

/* ---- merges in an editor --------------------------------------------------------------------- */

#define TEXT_MAX ((size_t)8 * TRUCE_DOCUMENT_BYTES_MAX)

/* ---- types ----------------------------------------------------------------------------------- */

static void copy_typed(struct value like, struct value value, const char *key, uint32_t key_length,
                       bson_t *to);

static void copy_fields(struct value like, struct value value, bson_t *to)
{
    for (struct fields fields = truce__fields(value); truce__fields_next(&fields);) {
        struct value same = truce__value_missing();

        if (like.type == value.type)
            same = truce__value_field(like, fields.key, fields.key_length);
        copy_typed(same, fields.value, fields.key, fields.key_length, to);
    }
}

static void copy_typed(struct value like, struct value value, const char *key, uint32_t key_length,
                       bson_t *to)
{
    bson_t inner;

    if (value.type == BSON_TYPE_DOCUMENT) {
        bson_append_document_begin(to, key, (int)key_length, &inner);
        copy_fields(like, value, &inner);
        bson_append_document_end(to, &inner);
    } else if (value.type == BSON_TYPE_ARRAY) {
        bson_append_array_begin(to, key, (int)key_length, &inner);
        copy_fields(like, value, &inner);
        bson_append_array_end(to, &inner);
    } else {
        bool same = value.type == BSON_TYPE_INT32 &&
                    (like.type == BSON_TYPE_INT64 || like.type == BSON_TYPE_DOUBLE) &&
                    truce__value_equal(like, value);

        truce__value_append(to, key, key_length, same ? like : value);
    }
}

/* Restores the types of numbers. Relaxed Extended JSON does not distinguish int64 from int32, and
 * many programs write 5 for 5.0. If a whole number equals the int64 or double at the same place in
 * `like`, it gets that type. An explicit type ({"$numberDecimal": "5"}, 5.0) stays. */
static void cli_keep_types(const bson_t *like, bson_t *document)
{
    bson_t made = BSON_INITIALIZER;

    copy_fields(truce__value_document(like), truce__value_document(document), &made);
    bson_destroy(document);
    bson_steal(document, &made);
}

/* ---- the text -------------------------------------------------------------------------------- */

static void edit_put(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

/* Overwrites lines that begin with "#" with spaces, so that columns in errors stay right. Strings
 * of JSON do not contain line ends. */
static void blank_comments(char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");

        if (*text == '#')
            memset(text, ' ', length);
        text += length;
        text += *text == '\n';
    }
}

/* ---- the editor ------------------------------------------------------------------------------ */

static bool write_file(int descriptor, const struct buffer *text)
{
    for (size_t done = 0; done < text->size;) {
        ssize_t wrote = write(descriptor, text->bytes + done, text->size - done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        done += (size_t)wrote;
    }
    return true;
}

static bool run_editor(const char *path)
{
    int state = 0;
    pid_t child = fork();

    if (!child) {
        execl("/bin/sh", "sh", "-c", "exec ${VISUAL:-$EDITOR} \"$0\"", path, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &state, 0) == child && !state;
}

/* Returns the whole file with a NUL at the end, or NULL if it cannot be read or is too large. */
static char *edit_read_file(const char *path)
{
    struct buffer text = {0};
    FILE *file = fopen(path, "r");
    char part[8192];
    size_t got;
    bool good = file != NULL;
    char *all = NULL;

    while (good && (got = fread(part, 1, sizeof part, file)) > 0) {
        truce__buffer_append(&text, part, got);
        good = text.size <= TEXT_MAX;
    }
    if (good && !ferror(file)) {
        all = bson_malloc(text.size + 1);
        if (text.size)
            memcpy(all, text.bytes, text.size);
        all[text.size] = '\0';
    }
    if (file)
        fclose(file);
    truce__buffer_release(&text);
    return all;
}

/* Sets the time of the file. A file that the editor has written or replaced then has another
 * time. */
static bool set_time(const char *path, time_t seconds)
{
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    return !utimensat(AT_FDCWD, path, times, 0);
}

static bool is_unsaved(const char *path)
{
    struct stat about;

    return !stat(path, &about) && about.st_mtim.tv_sec == 0 && about.st_mtim.tv_nsec == 0;
}

static bool has_markers(const char *text)
{
    return strstr(text, "<<<<<<< mine") || strstr(text, ">>>>>>> theirs");
}

static int edit_file(struct cli *cli, const char *path, const bson_t *document, bson_t *edited)
{
    char *text;
    int code = CLI_DONE;

    if (!set_time(path, 0))
        return cli_say(cli, CLI_FAILED, "%s cannot be written", path);
    if (!run_editor(path))
        return cli_say(cli, CLI_FAILED, "the editor failed; nothing is saved");
    if (is_unsaved(path))
        return cli_say(cli, CLI_NO, "the editor did not save the file; nothing is decided");
    text = edit_read_file(path);
    if (!text)
        return cli_say(cli, CLI_FAILED, "the edited file %s cannot be read", path);
    blank_comments(text);
    if (!text[strspn(text, " \t\r\n")])
        code = cli_say(cli, CLI_NO, "the edited document is empty; nothing is saved");
    else if (has_markers(text))
        code = cli_say(cli, CLI_NO, "there are still markers (<<<<<<< mine); nothing is saved");
    else if (!cli_document(cli, text, "the edited document", edited))
        code = CLI_USAGE;
    else
        cli_keep_types(document, edited);
    if (code == CLI_USAGE)
        bson_destroy(edited);
    bson_free(text);
    return code;
}

/* Starts $EDITOR on the document, with one field on each line. `head` is above it, as lines
 * that begin with "#" and are removed again. Returns CLI_DONE and initialises `edited`, with the
 * types of `document`; the caller destroys it. Otherwise, prints the error. */
static int cli_edit(struct cli *cli, const bson_t *document, const char *head, bson_t *edited)
{
    const char *base = getenv("TMPDIR");
    struct buffer text = {0};
    char path[200];
    int descriptor, code;

    if (!getenv("EDITOR") && !getenv("VISUAL"))
        return cli_usage(cli, "--edit needs the environment variable EDITOR");
    snprintf(path, sizeof path, "%.100s/truce-doc-XXXXXX.json", base ? base : "/tmp");
    descriptor = mkstemps(path, 5);
    if (descriptor < 0)
        return cli_say(cli, CLI_FAILED, "the file %s cannot be created", path);
    edit_put(&text, head);
    cli_pretty(&text, document, false, JSON_RELAXED);
    if (write_file(descriptor, &text) && !close(descriptor))
        code = edit_file(cli, path, document, edited);
    else
        code = cli_say(cli, CLI_FAILED, "%s cannot be written", path);
    unlink(path);
    truce__buffer_release(&text);
    return code;
}

/* ---- conflicts and resolve ------------------------------------------------------------------- */

/* truce doc conflicts and resolve: the inbox of conflicts that a merge cannot decide. */

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
    .summary = "list the conflicts that wait for a decision",
    .help =
        "Prints mine and the current theirs next to each other; with --json, a document for each\n"
        "conflict, with both sides. The exit code is 1 if there are any. A decision names the\n"
        "version that it has seen (truce doc resolve --version).",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc conflicts posts",
    .options = (const struct cli_option[]){DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = inbox_run_conflicts,
};

/* Creates the merged document. Where the sides disagree it has mine, and in strings both. On
 * failure, prints the error and returns false. */
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

/* Returns the conflicts as lines above the document. */
static char *head_of(const bson_t *entry)
{
    bson_string_t *head = bson_string_new(
        "# Mine and theirs disagree about these. Below is the value of mine, and in\n"
        "# strings both, between <<<<<<< mine and >>>>>>> theirs:\n");
    bson_iter_t iter, list;

    if (bson_iter_init_find(&iter, entry, "conflicts") && bson_iter_recurse(&iter, &list)) {
        while (bson_iter_next(&list)) {
            char text[400];

            truce__value_show(truce__value_of_iter(&list), text, sizeof text);
            bson_string_append_printf(head, "#   %s\n", text);
        }
    }
    bson_string_append(
        head, "# Lines that begin with # are ignored. An unsaved or empty file decides nothing.\n");
    return bson_string_free(head, false);
}

/* Reads the entry as it is shown, and its document as $EDITOR returns it. Both are initialised. */
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

/* Reads 24 hexadecimal digits, or {"$oid": ...} as the documents print it. */
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
        return cli_usage(cli, "give one of --mine, --theirs, --edit, and --with DOCUMENT") < 0;
    if (cli_text(cli, "version") && cli_flag(cli, "new"))
        return cli_usage(cli, "--new means that no document was seen: it excludes --version") < 0;
    if (named && cli_flag(cli, "edit"))
        return cli_usage(
                   cli, "--edit decides against the current document, without --version or --new") <
               0;
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
        return cli_usage(cli, "invalid id of a conflict \"%s\": expected 24 hexadecimal digits",
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
        "Paths without a conflict are merged in any case. --version is the one that truce doc\n"
        "conflicts showed (--new: the document was removed). Without it, the decision is against\n"
        "the version of the conflict. If the document was saved again since, the decision is\n"
        "merged with it. If the two disagree, the conflict stays open, against the current\n"
        "version (exit code 1). The rules are those of the save, unless --rules is given.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"Peace\"}' --version 1\n"
               "truce doc merge posts '{_id: 1, title: \"War\"}' --version 1 || echo conflict\n"
               "conflict=$(truce find truce_conflicts | jq -r '._id.\"$oid\"')\n"
               "truce doc resolve posts $conflict --mine",
    .options =
        (const struct cli_option[]){
            {"mine", 0, NULL, "use mine where they disagree", false},
            {"theirs", 0, NULL, "take theirs", false},
            {"with", 0, "DOCUMENT", "use this document", false},
            {"edit", 0, NULL, "edit the merged document with $EDITOR", false},
            {"version", 'v', "NUMBER", "the version that was seen", false},
            {"new", 0, NULL, "no document was seen", false},
            DOC_OPTIONS,
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = inbox_run_resolve,
};

/* ---- remove ---------------------------------------------------------------------------------- */

/* truce doc remove. */

static int tell_removed(const struct cli *cli, int64_t version)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&answer, "outcome", "removed");
    BSON_APPEND_INT64(&answer, "version", version);
    cli_answer(cli, &answer, "removed, version %" PRId64, version);
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int remove_run_remove(struct cli *cli)
{
    truce_revision *revision = NULL;
    truce_revision_result result;
    bson_t holder, base;
    bson_value_t id;
    bson_error_t error;
    truce_status status;
    int64_t version;
    bool given = false;
    int code = CLI_USAGE;

    if (!cli_text(cli, "version"))
        return cli_usage(cli, "--version NUMBER is missing: the number that was read");
    if (cli_doc_id(cli, cli->arguments[1], &holder) &&
        cli_option_document(cli, "base", &base, &given) &&
        cli_number(cli, "version", 0, INT64_MAX, 0, &version) && cli_doc_open(cli, &revision)) {
        id = cli_doc_id_in(&holder);
        status = truce_revision_remove(revision, NULL, &id, version, given ? &base : NULL, &result,
                                       &error);
        if (status)
            code = cli_error(cli, NULL, status, &error);
        else if (result.outcome == TRUCE_REVISION_CONFLICT)
            code = cli_doc_answer(cli, &result);
        else
            code = tell_removed(cli, version);
        truce_revision_result_release(&result);
    }
    truce_revision_free(revision);
    if (given)
        bson_destroy(&base);
    bson_destroy(&holder);
    return code;
}

const struct cli_command cli_doc_remove = {
    .noun = "doc",
    .verb = "remove",
    .arguments = "COLLECTION ID",
    .summary = "remove a document unless it was saved since it was read",
    .help =
        "If its number is no longer --version, nothing is removed, the current state is printed,\n"
        "and the exit code is 1. A later document with that _id continues the numbers.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc remove posts 1 --version 1",
    .options =
        (const struct cli_option[]){
            {"version", 'v', "NUMBER", "the number that was read", false},
            {"base", 'b', "DOCUMENT", "the document that was read: it must be unchanged", false},
            DOC_OPTIONS,
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = remove_run_remove,
};

/* ---- get, save, merge, patch, log ------------------------------------------------------------ */

#define DAY_MS INT64_C(86400000)

/* Opens the revisions by the options of the call. If they are wrong, prints the error and returns
 * false. */
static bool cli_doc_open(const struct cli *cli, truce_revision **revision)
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

/* ---- conflicts as text ----------------------------------------------------------------------- */

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

/* Prints the hunks of a string. All other text is merged. */
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

/* Prints a path, then the base, and mine and theirs next to each other. */
static void cli_doc_conflicts_print(const bson_t *entry)
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

/* Prints how to decide. The decision applies to the version that was shown. */
static void print_hint(const char *collection, const char *inbox, int64_t version)
{
    char seen[40] = "--new";

    if (version != TRUCE_REVISION_NEW)
        snprintf(seen, sizeof seen, "--version %" PRId64, version);
    cli_put(
        "kept as %s; decide it with truce doc resolve %s %s %s --mine (or --theirs, or --edit)\n",
        inbox, collection, inbox, seen);
}

/* Prints the outcome of a save or removal and returns the exit code. */
static int cli_doc_answer(const struct cli *cli, const truce_revision_result *result)
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
        cli_answer(cli, &document, "%s, the document does not exist", name);
    } else if (cli->json || !conflict) {
        cli_answer(cli, &document, "%s, version %" PRId64, name, result->version);
    } else {
        if (result->version == TRUCE_REVISION_NEW)
            cli_put("conflict: the document does not exist\n");
        else
            cli_put("conflict with version %" PRId64 "\n", result->version);
        cli_doc_conflicts_print(&result->conflict);
        if (kept)
            print_hint(cli->arguments[0], inbox, result->version);
    }
    bson_destroy(&document);
    return cli_output_end(conflict ? CLI_NO : CLI_DONE);
}

/* ---- save, merge ----------------------------------------------------------------------------- */

/* Gives the numbers of `mine` the types that they had in the document that was read, if it is
 * known. */
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
        cli_usage(cli, "--version NUMBER is missing: the number that was read (or --new)");
    else if (good && cli_text(cli, "version") && cli_flag(cli, "new"))
        cli_usage(cli, "--new means that there is no document yet: it excludes --version");
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
    {"new", 0, NULL, "the document does not exist yet", false},
    {"base", 'b', "DOCUMENT", "the document that was read (default: the stored version)", false},
    DOC_OPTIONS,
    {0}};

const struct cli_command cli_doc_save = {
    .noun = "doc",
    .verb = "save",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "save a document unless it was saved since it was read",
    .help =
        "Increments the number. If it is no longer --version, nothing is saved. The command then\n"
        "prints the paths that the two changes disagree about, and the exit code is 1.",
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
    .summary = "save a document, merged with later changes",
    .help =
        "Merges by path. Elements of arrays are matched by _id, id, name, or a key of --rules.\n"
        "If both sides changed a path, --rules decides: {\"path\": POLICY} with\n"
        "mine, theirs, newest, max, min, sum, union, text, ask; \"$default\" for all other paths.\n"
        "Other conflicts go to the inbox (truce doc conflicts), and the exit code is 1.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc merge posts '{_id: 1, title: \"Truce\", views: 8}' --version 1 \\\n"
               "    --rules '{views: \"sum\"}'",
    .options = save_options,
    .store = CLI_STORE_WRITE,
    .run = doc_run_merge,
};

/* ---- get, log -------------------------------------------------------------------------------- */

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
    .summary = "print a document, or an earlier version",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc get posts 1",
    .options =
        (const struct cli_option[]){
            {"at", 0, "NUMBER", "the version with that number", false}, DOC_OPTIONS, {0}},
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
    .summary = "list stored earlier versions, newest first",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"On truces\"}' --version 1\n"
               "truce doc log posts 1",
    .options = (const struct cli_option[]){DOC_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = doc_run_log,
};

/* ---- patch ----------------------------------------------------------------------------------- */

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
    .summary = "patch a document and increment its number",
    .help =
        "PATCH is an array of operations (JSON Patch, RFC 6902), operators ($set ...), or a merge\n"
        "patch (RFC 7396). Without --version, it applies to the current version.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc patch posts 1 '[{op: \"add\", path: \"/tags\", value: [\"x\"]}]'",
    .options = (const struct cli_option[]){{"version", 'v', "NUMBER",
                                            "only if the document has that number", false},
                                           DOC_OPTIONS,
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_patch,
};
