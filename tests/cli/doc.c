/* truce doc: its output, its exit codes, and its story. */
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

#define ANSWERS(code, out, err, ...)                                                               \
    command_check(command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code, out, err,          \
                  __FILE__, __LINE__)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/posts.truce", test_directory());
    ANSWERS(0, "saved, version 1\n", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"a\": 1, \"b\": 1}", "--new");
    ANSWERS(0, "saved, version 2\n", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"a\": 2, \"b\": 1}", "--version", "1");
}

TEST(documents_are_saved_merged_and_patched)
{
    begin();
    ANSWERS(1, "conflict with version 2", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"a\": 1, \"b\": 3}", "--version", "1");
    ANSWERS(0, "merged, version 3", NULL, "doc", "merge", "posts",
            "{\"_id\": 1, \"a\": 1, \"b\": 3}", "--version", "1");
    ANSWERS(0, "{\"_id\": 1, \"a\": 2, \"b\": 3, \"version\": 3}\n", NULL, "doc", "get", "posts",
            "1");
    ANSWERS(0, "{\"_id\": 1, \"a\": 1, \"b\": 1, \"version\": 1}\n", NULL, "doc", "get", "posts",
            "1", "--at", "1");
    ANSWERS(0, "saved, version 4", NULL, "doc", "patch", "posts", "1",
            "[{\"op\": \"remove\", \"path\": \"/a\"}]", "--version", "3");
    ANSWERS(0, "saved, version 5", NULL, "doc", "patch", "posts", "1", "{\"b\": null}");
    ANSWERS(0, "saved, version 6", NULL, "doc", "patch", "posts", "1", "{\"$set\": {\"c\": 1}}");
    ANSWERS(0, "\"version\": 5}", NULL, "doc", "log", "posts", "1");
    ANSWERS(1, "", "posts has no document 2", "doc", "get", "posts", "2");
}

TEST(a_refused_save_names_the_way_out)
{
#define SAVE "doc", "save", "posts", "{\"_id\": 1, \"a\": 1, \"b\": 3}"

    begin();
    ANSWERS(1, "nothing is saved: read the document again", NULL, SAVE, "--version", "1");
    ANSWERS(1, "nothing is saved: the document exists", NULL, SAVE, "--new");
    ANSWERS(1, "nothing is saved: the document has no version 9 yet", NULL, SAVE, "--version", "9");
}

TEST(conflicts_are_shown_and_decided)
{
    const struct command *c;
    char id[30] = "";

    begin();
    ANSWERS(0, NULL, "no conflict is open", "doc", "conflicts", "posts");
    c = ANSWERS(1, "a (both-changed): was 1", NULL, "doc", "merge", "posts",
                "{\"_id\": 1, \"a\": 9, \"b\": 4}", "--version", "1");
    if (strstr(c->out, "kept as "))
        snprintf(id, sizeof id, "%.24s", strstr(c->out, "kept as ") + 8);
    ANSWERS(1, id, NULL, "doc", "conflicts", "posts");
    ANSWERS(2, "", "give one of", "doc", "resolve", "posts", id);
    setenv("EDITOR", "sed -i s/9/7/", 1);
    ANSWERS(0, "saved, version 3", NULL, "doc", "resolve", "posts", id, "--edit");
    ANSWERS(0, "{\"_id\": 1, \"a\": 7, \"b\": 4, \"version\": 3}\n", NULL, "doc", "get", "posts",
            "1");
    ANSWERS(1, "", "resolved", "doc", "resolve", "posts", id, "--mine");
}

TEST(edits_the_merged_document_and_keeps_its_types)
{
    static const char *const big = "{\"$numberLong\": \"5\"}";
    const struct command *c;
    char id[30] = "", first[200];

    snprintf(store, sizeof store, "%s/types.truce", test_directory());
    snprintf(first, sizeof first, "{\"_id\": 1, \"n\": %s, \"a\": 1, \"t\": 0, \"z\": 0}", big);
    ANSWERS(0, "saved, version 1\n", NULL, "doc", "save", "posts", first, "--new");
    ANSWERS(0, "unchanged, version 1\n", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"n\": 5, \"a\": 1, \"t\": 0, \"z\": 0}", "--version", "1");
    ANSWERS(0, "saved, version 2\n", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"n\": 5, \"a\": 2, \"t\": 3, \"z\": 0}", "--version", "1");
    c = ANSWERS(1, "a (both-changed): was 1", NULL, "doc", "merge", "posts",
                "{\"_id\": 1, \"n\": 5, \"a\": 9, \"t\": 0, \"z\": 4}", "--version", "1");
    if (strstr(c->out, "kept as "))
        snprintf(id, sizeof id, "%.24s", strstr(c->out, "kept as ") + 8);
    setenv("EDITOR", "true", 1); /* it saves nothing */
    ANSWERS(1, "", "nothing was saved or resolved", "doc", "resolve", "posts", id, "--edit");
    setenv("EDITOR", "touch", 1);
    ANSWERS(0, "saved, version 3", NULL, "doc", "resolve", "posts", id, "--edit");
    ANSWERS(0, "{\"_id\": 1, \"n\": 5, \"a\": 9, \"t\": 3, \"z\": 4, \"version\": 3}\n", NULL,
            "doc", "get", "posts", "1");
    ANSWERS(0, "1\n", NULL, "count", "posts", "{\"n\": {\"$type\": \"long\"}}");
    ANSWERS(1, "", "does not exist, or is resolved", "doc", "resolve", "posts",
            "6560f0c2a1b2c3d4e5f60718", "--edit");
}

TEST(saves_a_changed_type_only_if_it_is_explicit)
{
    snprintf(store, sizeof store, "%s/said.truce", test_directory());
    ANSWERS(0, NULL, NULL, "doc", "save", "posts", "{\"_id\": 1, \"n\": 5.0}", "--new");
    ANSWERS(0, "unchanged", NULL, "doc", "save", "posts", "{\"_id\": 1, \"n\": 5}", "--version",
            "1");
    ANSWERS(0, "saved, version 2", NULL, "doc", "save", "posts",
            "{\"_id\": 1, \"n\": {\"$numberDecimal\": \"5\"}}", "--version", "1");
    ANSWERS(0, "1\n", NULL, "count", "posts", "{\"n\": {\"$type\": \"decimal\"}}");
}

TEST(a_hunk_of_a_text_is_edited_between_markers)
{
    static const char *const rules = "{\"t\": \"text\"}";
    const struct command *c;
    char id[30] = "";

    snprintf(store, sizeof store, "%s/hunk.truce", test_directory());
    ANSWERS(0, NULL, NULL, "doc", "save", "posts", "{\"_id\": 1, \"t\": \"1\\n2\\n3\\n4\\n\"}",
            "--new");
    ANSWERS(0, NULL, NULL, "doc", "save", "posts", "{\"_id\": 1, \"t\": \"1\\nB\\n3\\nD\\n\"}",
            "--version", "1");
    c = ANSWERS(1, "t (both-changed)", NULL, "doc", "merge", "posts",
                "{\"_id\": 1, \"t\": \"1\\nb\\n3\\n4\\n\"}", "--version", "1", "--rules", rules);
    if (strstr(c->out, "kept as "))
        snprintf(id, sizeof id, "%.24s", strstr(c->out, "kept as ") + 8);
    CHECK(strstr(c->out, "was \"2\\u000a\"\n") && strstr(c->out, "mine   \"b\\u000a\""));
    CHECK(!strstr(c->out, "3\\u000a")); /* a line that does not conflict */
    setenv("EDITOR", "touch", 1);
    /* the rules are those of the merge */
    ANSWERS(1, "", "still has conflict markers", "doc", "resolve", "posts", id, "--edit");
    ANSWERS(0, "saved, version 3", NULL, "doc", "resolve", "posts", id, "--mine");
    ANSWERS(0, "{\"_id\": 1, \"t\": \"1\\nb\\n3\\nD\\n\", \"version\": 3}\n", NULL, "doc", "get",
            "posts", "1");
}

TEST(documents_are_removed_with_the_number_that_was_read)
{
    begin();
    ANSWERS(2, "", "--version NUMBER is missing", "doc", "remove", "posts", "1");
    ANSWERS(1, "conflict with version 2", NULL, "doc", "remove", "posts", "1", "--version", "1");
    ANSWERS(0, "removed, version 2\n", NULL, "doc", "remove", "posts", "1", "--version", "2");
    ANSWERS(1, "", "posts has no document 1", "doc", "remove", "posts", "1", "--version", "2");
    ANSWERS(0, "saved, version 3", NULL, "doc", "save", "posts", "{\"_id\": 1}", "--new");
    ANSWERS(1, "", NULL, "doc", "save", "posts", "{\"_id\": 1, \"a\": 1}", "--version", "2", "-q");
}

TEST(saves_nothing_if_the_editor_fails_or_leaves_an_empty_file)
{
    const struct command *c;
    char id[30] = "";

    begin();
    c = ANSWERS(1, NULL, NULL, "doc", "merge", "posts", "{\"_id\": 1, \"a\": 9, \"b\": 4}",
                "--version", "1");
    if (strstr(c->out, "kept as "))
        snprintf(id, sizeof id, "%.24s", strstr(c->out, "kept as ") + 8);
    setenv("EDITOR", "false", 1);
    ANSWERS(3, "", "nothing was saved", "doc", "resolve", "posts", id, "--edit");
    setenv("EDITOR", "sed -i s/^[^#].*//", 1);
    ANSWERS(1, "", "is empty", "doc", "resolve", "posts", id, "--edit");
    setenv("EDITOR", "sed -i s/\"a\":/\"a\"/", 1);
    ANSWERS(2, "", "the edited document", "doc", "resolve", "posts", id, "--edit");
    unsetenv("EDITOR");
    unsetenv("VISUAL");
    ANSWERS(2, "", "EDITOR", "doc", "resolve", "posts", id, "--edit");
    ANSWERS(1, id, NULL, "doc", "conflicts", "posts");
}

TEST(accepts_ids_as_they_are_printed)
{
    static const char *const ids[] = {
        "{\"$oid\": \"6560f0c2a1b2c3d4e5f60718\"}",
        "\"first\"",
        "7",
        "\"2024-05-01\"",
        "-2.5",
        "true",
    };
    static const char *const pasted[] = {
        "6560f0c2a1b2c3d4e5f60718", "first", "7", "2024-05-01", "-2.5", "true",
    };
    char document[100];

    snprintf(store, sizeof store, "%s/ids.truce", test_directory());
    for (int i = 0; i < 6; i++) {
        snprintf(document, sizeof document, "{\"_id\": %s}", ids[i]);
        ANSWERS(0, "saved, version 1\n", NULL, "doc", "save", "posts", document, "--new");
        ANSWERS(0, ids[i], NULL, "doc", "get", "posts", ids[i]);
        ANSWERS(0, ids[i], NULL, "doc", "get", "posts", "--", pasted[i]);
    }
}

TEST(hints_can_be_pasted_and_no_version_is_below_0)
{
    const struct command *c;
    char id[30] = "", oid[60], hint[120];

    begin();
    ANSWERS(0, "removed", NULL, "doc", "remove", "posts", "1", "--version", "2");
    c = ANSWERS(1, "the document does not exist", NULL, "doc", "merge", "posts",
                "{\"_id\": 1, \"a\": 9, \"b\": 4}", "--version", "1");
    if (strstr(c->out, "kept as "))
        snprintf(id, sizeof id, "%.24s", strstr(c->out, "kept as ") + 8);
    snprintf(hint, sizeof hint, "truce doc resolve posts %s --new --mine", id);
    CHECK(strstr(c->out, hint));
    snprintf(hint, sizeof hint, "%s of document 1 of posts", id);
    ANSWERS(1, hint, NULL, "doc", "conflicts", "posts");
    snprintf(oid, sizeof oid, "{\"$oid\": \"%s\"}", id);
    c = ANSWERS(0, "unchanged, the document does not exist", NULL, "doc", "resolve", "posts", oid,
                "--theirs");
    CHECK(!strstr(c->out, "-1"));
}

static void take_inbox(char id[25])
{
    const struct command *c = ANSWERS(1, "{\"_id\": ", NULL, "doc", "conflicts", "posts", "--json");

    snprintf(id, 25, "%.24s",
             strstr(c->out, "{\"$oid\": \"") ? strstr(c->out, "\"$oid\": \"") + 9 : "");
}

/* The list shows the stored version. A decision about an older version fails, and nothing is
 * saved. */
TEST(decides_only_the_version_that_was_shown)
{
    char id[25];

    begin();
    ANSWERS(1, NULL, NULL, "doc", "merge", "posts", "{\"_id\": 1, \"a\": 9, \"b\": 4}", "--version",
            "1");
    take_inbox(id);
    ANSWERS(0, NULL, NULL, "doc", "patch", "posts", "1", "{\"a\": 20}");
    ANSWERS(1, "posts, against version 3", NULL, "doc", "conflicts", "posts");
    ANSWERS(1, "theirs 20", NULL, "doc", "conflicts", "posts");
    ANSWERS(0, NULL, NULL, "doc", "patch", "posts", "1", "{\"a\": 21}");
    ANSWERS(1, "conflict with version 4", NULL, "doc", "resolve", "posts", id, "--version", "3",
            "--mine");
    ANSWERS(1, "conflict with version 4", NULL, "doc", "resolve", "posts", id, "--version", "99",
            "--mine");
    ANSWERS(1, "conflict with version 4", NULL, "doc", "resolve", "posts", id, "--new", "--mine");
    ANSWERS(0, "saved, version 5", NULL, "doc", "resolve", "posts", id, "--version", "4", "--mine");
    ANSWERS(2, "", "--edit excludes --version and --new", "doc", "resolve", "posts", id,
            "--version", "4", "--edit");
    ANSWERS(2, "", "--new and --version exclude each other", "doc", "resolve", "posts", id,
            "--version", "4", "--new", "--mine");
}

/* Another client saves while a user edits: the save from the editor is based on the version that
 * the editor showed. */
TEST(does_not_overwrite_a_save_during_an_edit)
{
    char id[25], editor[400];
    FILE *script;

    begin();
    ANSWERS(1, NULL, NULL, "doc", "merge", "posts", "{\"_id\": 1, \"a\": 9, \"b\": 4}", "--version",
            "1");
    take_inbox(id);
    ANSWERS(0, NULL, NULL, "doc", "patch", "posts", "1", "{\"a\": 20}");
    snprintf(editor, sizeof editor, "%s.sh", store);
    script = fopen(editor, "w");
    fprintf(script, "#!/bin/sh\n%s -s %s doc patch posts 1 '{a: 30}' && sed -i s/9/7/ $1\n",
            TRUCE_CLI, store);
    fclose(script);
    chmod(editor, 0700);
    setenv("EDITOR", editor, 1);
    ANSWERS(1, "conflict with version 4", NULL, "doc", "resolve", "posts", id, "--edit");
    setenv("EDITOR", "sed -i s/9/7/", 1);
    ANSWERS(0, "saved, version 5", NULL, "doc", "resolve", "posts", id, "--edit");
    ANSWERS(0, "\"a\": 7", NULL, "doc", "get", "posts", "1");
}

TEST(a_conflict_of_a_removed_document_is_decided)
{
    char id[25];

    begin();
    ANSWERS(1, NULL, NULL, "doc", "merge", "posts", "{\"_id\": 1, \"a\": 9, \"b\": 4}", "--version",
            "1");
    take_inbox(id);
    ANSWERS(0, "removed", NULL, "doc", "remove", "posts", "1", "--version", "2");
    ANSWERS(1, "posts, which was removed", NULL, "doc", "conflicts", "posts");
    ANSWERS(1, "the document does not exist", NULL, "doc", "resolve", "posts", id, "--version", "2",
            "--theirs");
    ANSWERS(0, "saved, version 3", NULL, "doc", "resolve", "posts", id, "--new", "--mine");
    ANSWERS(0, NULL, "no conflict is open", "doc", "conflicts", "posts");
}

TEST(prints_names_in_conflicts_without_control_characters)
{
    const struct command *c;

    snprintf(store, sizeof store, "%s/posts.truce", test_directory());
    ANSWERS(0, NULL, NULL, "doc", "save", "posts", "{_id: 1, 'x\\u001b[2J\\u202e\\u009b': 1}",
            "--new");
    ANSWERS(0, NULL, NULL, "doc", "save", "posts", "{_id: 1, 'x\\u001b[2J\\u202e\\u009b': 2}",
            "--version", "1");
    c = command_run(TRUCE_CLI, store, NULL, "doc", "merge", "posts",
                    "{_id: 1, 'x\\u001b[2J\\u202e\\u009b': 3}", "--version", "1", NULL);
    CHECK(strstr(c->out, "x\\u001b[2J\\u202e\\u009b"));
    CHECK(!strchr(c->out, 0x1b) && !strstr(c->out, "\xe2\x80\xae") && !strstr(c->out, "\xc2\x9b"));
}

TEST(refuses_wrong_calls_of_doc_commands_with_the_reason)
{
    begin();
    ANSWERS(2, "", "--version", "doc", "save", "posts", "{\"_id\": 1}");
    ANSWERS(2, "", "_id", "doc", "save", "posts", "{\"a\": 1}", "--new");
    ANSWERS(2, "", "mien", "doc", "merge", "posts", "{\"_id\": 1}", "--version", "1", "--rules",
            "{\"a\": \"mien\"}");
    ANSWERS(2, "", "not \"true story\"", "doc", "get", "posts", "true story");
    ANSWERS(1, "", "posts has no document story", "doc", "get", "posts", "story");
    ANSWERS(2, "", "--new and --version exclude each other", "doc", "save", "posts", "{\"_id\": 1}",
            "--new", "--version", "1");
    /* -1 is not --new: nothing is saved */
    ANSWERS(2, "", "--version needs a number from 0 to 9223372036854775807, not \"-1\"\n", "doc",
            "save", "fresh", "{_id: 1}", "--version", "-1");
    ANSWERS(2, "", "--version needs a number from 0 to 9223372036854775807, not \"-1\"\n", "doc",
            "merge", "fresh", "{_id: 1}", "--version", "-1");
    ANSWERS(0, "0\n", "no collection \"fresh\"", "count", "fresh");
    ANSWERS(2, "", "invalid id of a conflict", "doc", "resolve", "posts", "x", "--mine");
    ANSWERS(1, "", "the conflict 6560f0c2a1b2c3d4e5f60718 does not exist", "doc", "resolve",
            "posts", "6560f0c2a1b2c3d4e5f60718", "--mine");
}

TEST(the_demo_of_posts_loses_edits_only_without_truce)
{
    snprintf(store, sizeof store, "%s/posts.truce", test_directory());
    ANSWERS(0, "lost without a message", NULL, "demo", "post");
}
