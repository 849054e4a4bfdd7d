/* truce doc get, save, merge, patch, log, conflicts, resolve, remove. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/field.h"
#include "base/limits.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"
#include "cli/core/pretty_output.h"
#include "merge/merge.h"
#include "patterns/revision/revision.h"
#include "truce/command.h"

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

/* Appends the value. If an int32 equals the int64 or double `like`, appends `like`, because a
 * number that is typed in the editor loses its type. */
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
 * many programs write 5 for 5.0. If a whole number equals the int64 or double at the same path in
 * `like`, it gets that type. An explicit type ({"$numberDecimal": "5"}, 5.0) stays. */
static void cli_keep_types(const bson_t *like, bson_t *document)
{
    bson_t made = BSON_INITIALIZER;

    copy_fields(truce__value_document(like), truce__value_document(document), &made);
    bson_destroy(document);
    bson_steal(document, &made);
}

/* ---- the text -------------------------------------------------------------------------------- */

static void edit_append(struct buffer *out, const char *text)
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

/* Returns the contents of the file, NUL-terminated, or NULL if it cannot be read or is too
 * large. */
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

/* Sets the modification time of the file, so that a file that the editor has written or replaced
 * has another one. */
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

/* Runs the editor on the file, and reads the result. Returns CLI_NO if the file was not saved, is
 * empty, or still has markers. */
static int edit_file(struct cli *cli, const char *path, const bson_t *document, bson_t *edited)
{
    char *text;
    int code = CLI_DONE;

    if (!set_time(path, 0))
        return cli_message(cli, CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
    if (!run_editor(path))
        return cli_message(cli, CLI_FAILED,
                           "the editor (VISUAL or EDITOR) failed: nothing was saved");
    if (is_unsaved(path))
        return cli_message(cli, CLI_NO,
                           "the editor did not save the file: nothing was saved or resolved");
    text = edit_read_file(path);
    if (!text)
        return cli_message(cli, CLI_FAILED, "cannot read the edited file %s", path);
    blank_comments(text);
    if (!text[strspn(text, " \t\r\n")])
        code = cli_message(cli, CLI_NO, "the edited document is empty: nothing was saved");
    else if (has_markers(text))
        code = cli_message(
            cli, CLI_NO,
            "the document still has conflict markers (<<<<<<< mine): nothing was saved; edit it "
            "again and remove them");
    else if (!cli_document(cli, text, "the edited document", edited))
        code = CLI_USAGE;
    else
        cli_keep_types(document, edited);
    if (code == CLI_USAGE)
        bson_destroy(edited);
    bson_free(text);
    return code;
}

/* Starts $EDITOR on the document, with one field on each line. The lines of `head` are above it;
 * each begins with "#", and they are removed afterwards. Returns CLI_DONE and initializes `edited`,
 * with the types of `document`; the caller destroys it. Otherwise, prints the error. */
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
        return cli_message(cli, CLI_FAILED, "cannot create the file %s", path);
    edit_append(&text, head);
    cli_pretty(&text, document, false, JSON_RELAXED);
    if (write_file(descriptor, &text) && !close(descriptor))
        code = edit_file(cli, path, document, edited);
    else
        code = cli_message(cli, CLI_FAILED, "cannot write %s", path);
    unlink(path);
    truce__buffer_release(&text);
    return code;
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

/* Prints why a save is refused, and the way out. */
static void doc_print_refusal(const struct cli *cli, int64_t version)
{
    const char *given = cli_text(cli, "version");

    if (cli_flag(cli, "new"))
        cli_put(
            "nothing is saved: the document exists, so save it with the version that you read\n");
    else if (given && strtoll(given, NULL, 10) > version)
        cli_put("nothing is saved: the document has no version %s yet\n", given);
    else
        cli_put("nothing is saved: read the document again (truce doc get), or merge your changes "
                "(truce doc merge)\n");
}

/* Prints the reply of a save, a removal, or a decision. */
static bool doc_print_result(struct cli *cli, const bson_t *reply)
{
    const char *outcome = truce__field_text(reply, "outcome");
    int64_t version = truce__field_number(reply, "version");
    bson_iter_t at;
    char inbox[25];
    bson_t conflict;

    if (strcmp(outcome, "conflict") != 0)
        return version == TRUCE_REVISION_NEW
                   ? cli_put("%s, the document does not exist\n", outcome)
                   : cli_put("%s, version %" PRId64 "\n", outcome, version);
    if (version == TRUCE_REVISION_NEW)
        cli_put("conflict: the document does not exist\n");
    else
        cli_put("conflict with version %" PRId64 "\n", version);
    if (truce__value_subdocument(reply, "conflict", &conflict))
        cli_doc_conflicts_print(&conflict);
    if (bson_iter_init_find(&at, reply, "inbox") && BSON_ITER_HOLDS_OID(&at)) {
        bson_oid_to_string(bson_iter_oid(&at), inbox);
        print_hint(cli->arguments[0], inbox, version);
    } else if (version != TRUCE_REVISION_NEW && !strcmp(cli->command->verb, "save")) {
        doc_print_refusal(cli, version);
    }
    return true;
}

static bool doc_is_conflict(const bson_t *reply)
{
    return !strcmp(truce__field_text(reply, "outcome"), "conflict");
}

/* The row of a command that writes a document. */
#define DOC_ROW(name_, set_, named_, fields_, none_)                                               \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = name_, .set = set_, .named = "--keep-time keepMS " named_,                         \
        .fields = "versionField keep keepMS " fields_, .none = none_, .negative = doc_is_conflict, \
        .print = doc_print_result                                                                  \
    }
#define DOC_KEPT    "{keep: 10}"
#define DOC_MISSING "the document does not exist"
/* With the field that has the _id. */
#define DOC_HAS_NONE(field_) "{collection} has no document {" field_ "}"

/* ---- conflicts and resolve ------------------------------------------------------------------- */

/* truce doc conflicts and resolve: the inbox of conflicts that a merge cannot decide. */

/* Prints an entry of the inbox: its id, the document, the version that it conflicts with, and the
 * conflicts. */
static bool inbox_print_entry(struct cli *cli, const bson_t *entry)
{
    char name[25] = "", of[60], against[40] = "which was removed";
    struct value id = truce__value_field(truce__value_document(entry), "id", 2);
    bson_iter_t iter, list;

    if (bson_iter_init_find(&iter, entry, "_id") && BSON_ITER_HOLDS_OID(&iter))
        bson_oid_to_string(bson_iter_oid(&iter), name);
    if (bson_has_field(entry, "theirs") && bson_iter_init_find(&iter, entry, "version"))
        snprintf(against, sizeof against, "against version %" PRId64, bson_iter_as_int64(&iter));
    cli_put("%s of document %s of %s, %s\n", name,
            id.type ? truce__value_show(id, of, sizeof of) : "(nothing)", cli->arguments[0],
            against);
    if (bson_iter_init_find(&iter, entry, "conflicts") && bson_iter_recurse(&iter, &list) &&
        !bson_iter_next(&list))
        cli_put("  nothing disagrees any more\n");
    cli_doc_conflicts_print(entry);
    return true;
}

static const struct cli_command cli_doc_conflicts = {
    .noun = "doc",
    .verb = "conflicts",
    .arguments = "COLLECTION",
    .summary = "list unresolved conflicts",
    .help =
        "Prints for each conflict your document (mine) and the current one (theirs) side by side,\n"
        "or with --json, one document with both. Exit code 1: there are conflicts. To resolve\n"
        "one, pass the version that was printed: truce doc resolve --version.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc conflicts posts",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceConflicts",
                                   .fields = "versionField rules",
                                   .none = "no conflict is open",
                                   .list = "conflicts",
                                   .findings = true,
                                   .print = inbox_print_entry},
    .run = cli_row_run,
};

/* Creates the merged document. A conflict in a string becomes both texts between markers. For any
 * other conflict, `mine` is taken. On failure, prints the error and returns false. */
static bool doc_merge_revisions(const struct cli *cli, const truce_revision *revision,
                                const bson_t *entry, bson_t *made)
{
    struct merge_options options = {.settle = MERGE_SETTLE_MARKED, .mine_is_newer = true};
    struct merge_rules *kept;
    bson_t base, mine, theirs, conflicts;
    bson_error_t error;
    truce_status status = TRUCE_OK;

    if (!truce__value_subdocument(entry, "mine", &mine)) {
        bson_init(made);
        return cli_message(cli, CLI_FAILED,
                           "the stored conflict is damaged: it has no document \"mine\"") < 0;
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

/* Merges the conflict as far as possible, and lets the user edit the result. */
static int inbox_edit_entry(struct cli *cli, truce_revision *revision, const bson_oid_t *id,
                            bson_t *shown, bson_t *document)
{
    bson_error_t error;
    truce_status status = truce_revision_conflict(revision, id, shown, &error);
    int code = CLI_FAILED;
    bson_t made;
    char *head;

    if (status)
        return cli_error(cli, NULL, status, &error);
    if (doc_merge_revisions(cli, revision, shown, &made)) {
        head = head_of(shown);
        code = cli_edit(cli, &made, head, document);
        bson_free(head);
    }
    bson_destroy(&made);
    return code;
}

/* Reads the entry as it is shown, and initializes its document as $EDITOR returns it. */
static int inbox_edit(struct cli *cli, const bson_oid_t *id, bson_t *shown, bson_t *document)
{
    truce_revision *revision;
    bool given = false;
    bson_t rules;
    int code = CLI_USAGE;

    if (cli_option_document(cli, "rules", &rules, &given)) {
        revision = truce_revision_new(
            cli->store, &(truce_revision_options){.collection = cli->arguments[0],
                                                  .version = cli_text(cli, "version-field"),
                                                  .rules = given ? &rules : NULL,
                                                  .deadline_ms = cli->deadline_ms});
        code = inbox_edit_entry(cli, revision, id, shown, document);
        truce_revision_free(revision);
    }
    bson_destroy(&rules);
    if (code)
        bson_init(document);
    return code;
}

/* Reads 24 hexadecimal digits, or {"$oid": ...} as the documents print it. */
static bool conflict_append(const struct cli *cli, const char *text, bson_t *to)
{
    bson_iter_t at;

    return (text[0] == '{' || bson_oid_is_valid(text, strlen(text))) &&
           cli_row_append_value(cli, "CONFLICT", text, "conflict", to) &&
           bson_iter_init_find(&at, to, "conflict") && BSON_ITER_HOLDS_OID(&at);
}

/* Checks that the call has exactly one decision, and reads --version. On a fault, prints the usage
 * error and returns false. */
static bool resolve_options(const struct cli *cli, int64_t *version)
{
    bool named = cli_text(cli, "version") || cli_flag(cli, "new");

    if (cli_flag(cli, "mine") + cli_flag(cli, "theirs") + cli_flag(cli, "edit") +
            (cli_text(cli, "with") != NULL) !=
        1)
        return cli_usage(cli, "give one of --mine, --theirs, --edit, and --with DOCUMENT") < 0;
    if (cli_text(cli, "version") && cli_flag(cli, "new"))
        return cli_usage(cli,
                         "--new and --version exclude each other: --new says that the document was "
                         "removed") < 0;
    if (named && cli_flag(cli, "edit"))
        return cli_usage(
                   cli,
                   "--edit excludes --version and --new: it always resolves against the current "
                   "document") < 0;
    return cli_number(cli, "version", 0, INT64_MAX, TRUCE_REVISION_NEW, version);
}

static int inbox_run_resolve(struct cli *cli)
{
    bool decided = cli_flag(cli, "mine") || cli_flag(cli, "theirs");
    bson_t more = BSON_INITIALIZER, seen = BSON_INITIALIZER, document;
    bson_iter_t at;
    int64_t version;
    bool given = false;
    int code = CLI_USAGE;

    if (!conflict_append(cli, cli->arguments[1], &more)) {
        cli_usage(cli, "invalid id of a conflict \"%s\": expected 24 hexadecimal digits",
                  cli->arguments[1]);
    } else if (resolve_options(cli, &version)) {
        if (cli_flag(cli, "edit") && bson_iter_init_find(&at, &more, "conflict"))
            code = inbox_edit(cli, bson_iter_oid(&at), &seen, &document);
        else
            code = cli_option_document(cli, "with", &document, &given) ? CLI_DONE : CLI_USAGE;
        if (cli_text(cli, "version") || cli_flag(cli, "new"))
            BSON_APPEND_INT64(&seen, "version", version);
        BSON_APPEND_UTF8(&more, "take",
                         cli_flag(cli, "mine") ? "mine"
                         : decided             ? "theirs"
                                               : "document");
        if (!decided)
            BSON_APPEND_DOCUMENT(&more, "document", &document);
        if (!bson_empty(&seen))
            BSON_APPEND_DOCUMENT(&more, "seen", &seen);
        bson_destroy(&document);
    }
    if (!code)
        code = cli_row_run_with(cli, cli->command->row, &more);
    bson_destroy(&seen);
    bson_destroy(&more);
    return code;
}

static const struct cli_command cli_doc_resolve = {
    .noun = "doc",
    .verb = "resolve",
    .arguments = "COLLECTION CONFLICT",
    .summary = "resolve a conflict",
    .help =
        "Paths without a conflict are merged. --version is the version that truce doc conflicts\n"
        "showed (--new: the document was removed); the default is the version of the conflict.\n"
        "If the document was saved again since, the resolution is merged with that save. If they\n"
        "conflict, the conflict stays open against the current version (exit code 1). The merge\n"
        "rules are those of the save, unless --rules is given.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"Peace\"}' --version 1\n"
               "truce doc merge posts '{_id: 1, title: \"War\"}' --version 1 || echo conflict\n"
               "conflict=$(truce find truce_conflicts | jq -r '._id.\"$oid\"')\n"
               "truce doc resolve posts $conflict --mine",
    .options =
        (const struct cli_option[]){
            {"mine", 0, NULL, "use mine where they disagree", false},
            {"theirs", 0, NULL, "use theirs where they disagree", false},
            {"with", 0, "DOCUMENT", "use this document", false},
            {"edit", 0, NULL, "edit the merged document with $EDITOR", false},
            {"version", 'v', "NUMBER", "the version that was seen", false},
            {"new", 0, NULL, "the document was removed", false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .row = DOC_ROW("truceResolve", DOC_KEPT, "", "rules strict",
                   "the conflict {conflict} does not exist, or is resolved"),
    .run = inbox_run_resolve,
};

/* ---- remove ---------------------------------------------------------------------------------- */

static bool doc_print_removed(struct cli *cli, const bson_t *reply)
{
    return doc_is_conflict(reply) ? doc_print_result(cli, reply)
                                  : cli_put("removed, version %s\n", cli_text(cli, "version"));
}

static int remove_run_remove(struct cli *cli)
{
    return cli_text(cli, "version")
               ? cli_row_run(cli)
               : cli_usage(cli, "--version NUMBER is missing: give the version that you read");
}

static const struct cli_command cli_doc_remove = {
    .noun = "doc",
    .verb = "remove",
    .arguments = "COLLECTION ID",
    .summary = "remove a document unless it was saved since it was read",
    .help =
        "If its number is no longer --version, nothing is removed, the current state is printed,\n"
        "and the exit code is 1. A later document with that _id continues the numbers.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc remove posts 1 --version 1",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceRevision",
                                   .set = DOC_KEPT,
                                   .named = "ID remove --keep-time keepMS",
                                   .fields = "version base versionField keep keepMS",
                                   .none = DOC_HAS_NONE("remove"),
                                   .negative = doc_is_conflict,
                                   .print = doc_print_removed},
    .run = remove_run_remove,
};

/* ---- get, save, merge, patch, log ------------------------------------------------------------ */

/* Gives the numbers of `mine` the types that they had in the document that was read, if it is
 * known. */
static void doc_keep_types(const struct cli *cli, const bson_t *base, int64_t version, bson_t *mine)
{
    bson_t request = BSON_INITIALIZER, reply, read;
    bson_error_t ignored;
    bson_iter_t id;

    if (base) {
        cli_keep_types(base, mine);
    } else if (bson_iter_init_find(&id, mine, "_id") && version != TRUCE_REVISION_NEW) {
        BSON_APPEND_UTF8(&request, "truceRevisionLog", cli->arguments[0]);
        BSON_APPEND_VALUE(&request, "id", bson_iter_value(&id));
        BSON_APPEND_INT64(&request, "version", version);
        if (cli_text(cli, "version-field"))
            BSON_APPEND_UTF8(&request, "versionField", cli_text(cli, "version-field"));
        if (!truce_command(cli->store, NULL, &request, &reply, &ignored) &&
            truce__value_subdocument(&reply, "document", &read))
            cli_keep_types(&read, mine);
        bson_destroy(&reply);
    }
    bson_destroy(&request);
}

/* Runs save and merge: the verb is the name of the field with the document. */
static int doc_run_save(struct cli *cli)
{
    bson_t mine, base, more = BSON_INITIALIZER;
    bool given = false;
    int code = CLI_USAGE;
    bool good = cli_document(cli, cli->arguments[1], "DOCUMENT", &mine);
    int64_t version;

    good &= cli_option_document(cli, "base", &base, &given);
    /* The number -1, "no document" for the operation, is the option --new. */
    good = good && cli_number(cli, "version", 0, INT64_MAX, TRUCE_REVISION_NEW, &version);
    if (good && !cli_text(cli, "version") && !cli_flag(cli, "new")) {
        cli_usage(cli, "--version NUMBER is missing: give the version that you read, or --new");
    } else if (good && cli_text(cli, "version") && cli_flag(cli, "new")) {
        cli_usage(
            cli,
            "--new and --version exclude each other: --new inserts a document that does not exist "
            "yet");
    } else if (good) {
        doc_keep_types(cli, given ? &base : NULL, version, &mine);
        BSON_APPEND_DOCUMENT(&more, cli->command->verb, &mine);
        code = cli_row_run_with(cli, cli->command->row, &more);
    }
    bson_destroy(&more);
    bson_destroy(&mine);
    bson_destroy(&base);
    return code;
}

static const struct cli_option save_options[] = {
    {"new", 0, NULL, "the document does not exist yet", false},
    {"version", 'v', "N", "the number that was read, 0 if the document had none", false},
    {0}};

static const struct cli_command cli_doc_save = {
    .noun = "doc",
    .verb = "save",
    .arguments = "COLLECTION DOCUMENT",
    .summary = "save a document unless it was saved since it was read",
    .help =
        "Saves the document and increments its version. If the version is no longer --version,\n"
        "nothing is saved, the conflicting paths are printed, and the exit code is 1.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"On truces\"}' --version 1",
    .options = save_options,
    .store = CLI_STORE_WRITE,
    .row = DOC_ROW("truceRevision", DOC_KEPT, "DOCUMENT save", "version base", DOC_MISSING),
    .run = doc_run_save,
};

static const struct cli_command cli_doc_merge = {
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
    .row = DOC_ROW("truceRevision", "{inbox: true, keep: 10}", "DOCUMENT merge",
                   "rules strict version base", DOC_MISSING),
    .run = doc_run_save,
};

/* ---- get, log -------------------------------------------------------------------------------- */

static int run_get(struct cli *cli)
{
    static const struct cli_row at = {.name = "truceRevisionLog",
                                      .named = "--at version",
                                      .fields = "version versionField",
                                      .none = "this version of the document does not exist",
                                      .show = "document"};

    return cli_row_run_with(cli, cli_text(cli, "at") ? &at : cli->command->row, NULL);
}

static const struct cli_command cli_doc_get = {
    .noun = "doc",
    .verb = "get",
    .arguments = "COLLECTION ID",
    .summary = "print a document, or an earlier version",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc get posts 1",
    .options =
        (const struct cli_option[]){{"at", 0, "NUMBER", "the version with that number", false},
                                    {0}},
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceRevision",
                                   .named = "ID get",
                                   .fields = "versionField",
                                   .none = DOC_HAS_NONE("get"),
                                   .show = "document"},
    .run = run_get,
};

static const struct cli_command cli_doc_log = {
    .noun = "doc",
    .verb = "log",
    .arguments = "COLLECTION ID",
    .summary = "list stored earlier versions, newest first",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc save posts '{_id: 1, title: \"On truces\"}' --version 1\n"
               "truce doc log posts 1",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceRevisionLog",
                                   .fields = "limit versionField",
                                   .none = DOC_HAS_NONE("id"),
                                   .list = "versions"},
    .run = cli_row_run,
};

/* ---- patch ----------------------------------------------------------------------------------- */

static int run_patch(struct cli *cli)
{
    bson_t patch, more = BSON_INITIALIZER;
    bson_iter_t at;
    bool is_array = false;
    int code = CLI_USAGE;

    if (cli_document_or_array(cli, cli->arguments[2], "PATCH", &patch, &is_array)) {
        bool operators =
            bson_iter_init(&at, &patch) && bson_iter_next(&at) && bson_iter_key(&at)[0] == '$';

        BSON_APPEND_UTF8(&more, "kind", is_array ? "json" : operators ? "operators" : "merge");
        code = cli_row_run_with(cli, cli->command->row, &more);
    }
    bson_destroy(&more);
    bson_destroy(&patch);
    return code;
}

static const struct cli_command cli_doc_patch = {
    .noun = "doc",
    .verb = "patch",
    .arguments = "COLLECTION ID PATCH",
    .summary = "patch a document and increment its number",
    .help =
        "PATCH is an array of operations (JSON Patch, RFC 6902), operators ($set ...), or a merge\n"
        "patch (RFC 7396). Without --version, it applies to the current version. If the version\n"
        "is no longer --version, nothing is saved, and the exit code is 1: a patch is not merged.",
    .example = "truce doc save posts '{_id: 1, title: \"Truce\"}' --new\n"
               "truce doc patch posts 1 '[{op: \"add\", path: \"/tags\", value: [\"x\"]}]'",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceRevisionPatch",
                                   .set = "{keep: 10}",
                                   .named = "--keep-time keepMS",
                                   .fields = "version versionField keep keepMS",
                                   .none = DOC_HAS_NONE("id"),
                                   .negative = doc_is_conflict,
                                   .print = doc_print_result},
    .run = run_patch,
};

cli_command_list cli_doc_commands = {&cli_doc_get,       &cli_doc_save,    &cli_doc_merge,
                                     &cli_doc_patch,     &cli_doc_remove,  &cli_doc_log,
                                     &cli_doc_conflicts, &cli_doc_resolve, NULL};
