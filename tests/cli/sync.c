/* truce sync: its output and its exit codes. */
#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

#define ANSWERS(code, out, err, ...)                                                               \
    command_check(command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code, out, err,          \
                  __FILE__, __LINE__)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/blog.truce", test_directory());
    ANSWERS(0, "", NULL, "insert", "users", "{_id: 17, name: \"John\"}");
    ANSWERS(0, "", NULL, "insert", "comments", "{_id: 1, user: 17}");
    ANSWERS(0, "declared author", NULL, "sync", "declare", "author", "users", "comments", "user",
            "{author: \"name\"}", "--settle", "1ms");
}

TEST(a_rename_reaches_the_copies)
{
    begin();
    ANSWERS(1, "\"repaired\": false", NULL, "sync", "repair", "author", "--dry-run");
    ANSWERS(0, "1 repaired", NULL, "sync", "repair", "author");
    ANSWERS(0, "inserted", NULL, "sync", "insert", "comments", "{user: 17}");
    ANSWERS(0, "\"settled\": true, \"copies\": 2", NULL, "sync", "update", "users", "17",
            "{$set: {name: \"Jo\"}}", "--json");
    ANSWERS(0, "2\n", NULL, "count", "comments", "{author: \"Jo\"}");
    ANSWERS(0, "", NULL, "update", "users", "{_id: 17}", "{$set: {name: \"J\", syncing: true}}");
    ANSWERS(0, "1 source and 0 copies", NULL, "sync", "status");
    ANSWERS(0, "\"syncing\": 1", NULL, "sync", "status", "--json");
    ANSWERS(0, "1 document reconciled, 2 copies written\n", NULL, "sync", "run");
    ANSWERS(0, "0 documents reconciled", NULL, "sync", "run");
    ANSWERS(0, "2\n", NULL, "count", "comments", "{author: \"J\"}");
    ANSWERS(0, "0 findings", NULL, "check");
    ANSWERS(0, "", NULL, "update", "comments", "{_id: 1}", "{$set: {author: 5}}");
    ANSWERS(1, "sync-copy", NULL, "check");
    ANSWERS(0, "(done)", NULL, "check", "--repair");
    ANSWERS(0, "dropped author\n", NULL, "sync", "drop", "author");
    ANSWERS(0, "", NULL, "sync", "status");
}

TEST(declare_notes_names_that_no_document_has)
{
    begin();
    ANSWERS(0, "declared a;", "no document of comments has \"usr\": check the names of the rule",
            "sync", "declare", "a", "users", "comments", "usr", "{a: \"name\"}", "--settle", "1ms");
    ANSWERS(0, "declared b;", "usrs has no documents: check", "sync", "declare", "b", "usrs",
            "comments", "user", "{b: \"name\"}", "--settle", "1ms");
    ANSWERS(0, "declared c;", "no document of users has \"nmae\": check", "sync", "declare", "c",
            "users", "comments", "user", "{c: \"nmae\"}", "--settle", "1ms");
    ANSWERS(0, "declared d;", "", "sync", "declare", "d", "pages", "links", "page",
            "{d: \"title\"}", "--settle", "1ms");
    ANSWERS(0, "declared e;", "", "sync", "declare", "e", "users", "comments", "user",
            "{e: \"name\"}", "--settle", "1ms");
}

TEST(refuses_cycles_of_rules_and_writes_to_copies)
{
    begin();
    ANSWERS(2, NULL, "operators ($set, $inc ...), not \"name\": for example {$set: {name: ...}}",
            "sync", "update", "users", "17", "{name: \"me\"}");
    ANSWERS(2, NULL, "closes a cycle", "sync", "declare", "back", "comments", "users", "last",
            "{name: \"author\"}", "--settle", "1ms");
    ANSWERS(1, NULL, "a rule \"author\" with other content exists", "sync", "declare", "author",
            "users", "comments", "user", "{author: \"mail\"}");
    ANSWERS(2, NULL, "is a copy of \"name\" of users", "sync", "update", "comments", "1",
            "{$set: {author: \"me\"}}");
    ANSWERS(1, NULL, "comments has no document 9", "sync", "update", "comments", "9",
            "{$set: {a: 1}}");
    ANSWERS(1, NULL, "comments has no document ", "sync", "update", "comments", "",
            "{$set: {a: 1}}");
    ANSWERS(2, NULL, "ID must be a value of Extended JSON or a word, not \"1, w: 2\"", "sync",
            "update", "comments", "1, w: 2", "{$set: {a: 1}}");
    ANSWERS(2, NULL, "UPDATE", "sync", "update", "comments", "1", "{$set");
    ANSWERS(2, NULL, "maintained by truce", "sync", "insert", "comments", "{synced: 1}");
    ANSWERS(1, NULL, "the rule \"nope\" does not exist", "sync", "repair", "nope");
    ANSWERS(1, NULL, "the rule \"nope\" does not exist", "sync", "drop", "nope");
}

/* A value is in the place of the document with the copy. */
TEST(repairs_the_others_if_a_copy_cannot_be_written)
{
    begin();
    ANSWERS(0, "inserted 4", NULL, "insert", "notes", "{_id: 1, user: 17}",
            "{_id: 2, user: 17, by: null}", "{_id: 3, user: 17, by: 'x'}", "{_id: 4, user: 17}");
    ANSWERS(0, "declared", NULL, "sync", "declare", "by", "users", "notes", "user",
            "{'by.name': 'name'}", "--settle", "1ms");
    for (int i = 0; i < 2; i++) {
        ANSWERS(
            1,
            "{\"dependent\": 2, \"source\": 17, \"divergence\": \"differs\", \"repaired\": false}",
            NULL, "sync", "repair", "by");
        ANSWERS(0, "2\n", NULL, "count", "notes", "{'by.name': {$exists: true}}");
        ANSWERS(1, "sync-copy", NULL, "check");
    }
    ANSWERS(0, "", NULL, "update", "notes", "{_id: {$in: [2, 3]}}", "{$unset: {by: 1}}", "--many");
    ANSWERS(0, "2 repaired", NULL, "sync", "repair", "by");
    ANSWERS(0, "4\n", NULL, "count", "notes", "{'by.name': {$exists: true}}");
}

TEST(the_story_of_the_rename_is_right)
{
    snprintf(store, sizeof store, "%s/story.truce", test_directory());
    ANSWERS(0, "0 comments have an old name: right", NULL, "demo", "rename", "--store", store);
}
