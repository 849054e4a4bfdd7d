/* truce tree: its output and its exit codes. */
#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

#define ANSWERS_TO(input, code, out, err, ...)                                                     \
    command_check(command_run(TRUCE_CLI, store, input, __VA_ARGS__, NULL), code, out, err,         \
                  __FILE__, __LINE__)
#define ANSWERS(code, out, err, ...) ANSWERS_TO(NULL, code, out, err, __VA_ARGS__)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/site.truce", test_directory());
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 1}\n{\"itemId\": \"about\", \"up\": \"home\"}\n", 0,
               "version 1: 2 items put, 0 removed\n", NULL, "tree", "publish", "site",
               "--collection", "pages", "--parent", "up", "-m", "the first", "--author", "ada");
}

TEST(a_tree_is_published_read_and_reverted)
{
    begin();
    ANSWERS_TO("{\"$remove\": \"about\"}\n{\"itemId\": \"home\", \"n\": 2}\n", 0, "version 2", NULL,
               "tree", "publish", "site");
    ANSWERS(0, "{\"itemId\": \"home\", \"version\": 2, \"n\": 2}\n", NULL, "tree", "read", "site");
    ANSWERS(0, "\"about\"", NULL, "tree", "read", "site", "--version", "1");
    ANSWERS(0, "\"home\"", NULL, "tree", "read", "site", "--limit", "5000");
    ANSWERS(2, "", "--limit needs a number", "tree", "read", "site", "--limit", "0");
    ANSWERS(0, "\"n\": 1", NULL, "tree", "read", "site", "home", "--version", "1");
    ANSWERS(0, "\"about\"", NULL, "tree", "read", "site", "--version", "1", "--filter",
            "{up: \"home\"}");
    ANSWERS(1, NULL, "is not in version 2", "tree", "read", "site", "about");
    ANSWERS(0, "- \"about\"\n~ \"home\"\n", NULL, "tree", "diff", "site", "1", "2");
    ANSWERS(0, "  ada: the first\n", NULL, "tree", "log", "site");
    ANSWERS(0, "version 3, as version 1 was\n", NULL, "tree", "revert", "site", "1");
    ANSWERS(0, "version 3 equals version 1\n", NULL, "tree", "revert", "site", "1");
    ANSWERS_TO("", 0, "nothing to publish; version 3 is current\n", NULL, "tree", "publish",
               "site");
    ANSWERS(0, "site in pages: version 3, kept from 1 on", NULL, "tree", "status", "site");
    ANSWERS(0, "0 findings", NULL, "check");
}

TEST(merges_or_reports_concurrent_changes)
{
    begin();
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 2}\n", 0, "version 2", NULL, "tree", "publish",
               "site");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 1, \"title\": \"t\"}\n", 0, "version 3", NULL, "tree",
               "publish", "site", "--base", "1");
    ANSWERS(0, "\"n\": 2, \"title\": \"t\"", NULL, "tree", "read", "site", "home");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 9}\n", 1, "{\"itemId\": \"home\"", "cannot be merged",
               "tree", "publish", "site", "--base", "1");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 9}\n", 0, "version 4", NULL, "tree", "publish",
               "site", "--base", "1", "--prefer", "mine");
    ANSWERS(0, "\"n\": 9", NULL, "tree", "read", "site", "home");
}

TEST(prints_the_retained_versions)
{
    begin();
    for (int i = 0; i < 4; i++)
        ANSWERS_TO("{\"itemId\": \"home\", \"n\": 7}\n", 0, "version ", NULL, "tree", "publish",
                   "site");
    ANSWERS(0, "tagged launch\n", NULL, "tree", "tag", "site", "launch", "2");
    ANSWERS(2, NULL, "give --versions", "tree", "keep", "site");
    ANSWERS(0, "set the retention of site", NULL, "tree", "keep", "site", "--versions", "1");
    ANSWERS(0, "1 item removed", NULL, "tree", "gc", "site");
    ANSWERS(1, NULL, "was collected", "tree", "read", "site", "--version", "1");
    ANSWERS(0, "home", NULL, "tree", "read", "site", "--tag", "launch");
    ANSWERS(0, "untagged launch\n", NULL, "tree", "untag", "site", "launch");
    ANSWERS(1, NULL, "no tag \"launch\"", "tree", "untag", "site", "launch");
    ANSWERS(0, "3 items removed", NULL, "tree", "gc", "site");
    ANSWERS(0, "erased from 1 version\n", NULL, "tree", "erase", "site", "about");
    ANSWERS(1, "erased from 0 versions\n", NULL, "tree", "erase", "site", "about");
    ANSWERS(0, "-", NULL, "tree", "read", "site", "--print-token");
    ANSWERS(0, "0 findings", NULL, "check");
}

TEST(reports_missing_trees_and_versions_and_invalid_items)
{
    begin();
    ANSWERS_TO("{\"itemId\": 1}\n", 1, NULL, "the tree \"other\" does not exist", "tree", "publish",
               "other");
    ANSWERS_TO("{\"itemId\": 1}\n{\"n\": 1}\n", 2, NULL, "line 2: the item has no field \"itemId\"",
               "tree", "publish", "site");
    ANSWERS_TO("{\"itemId\": 1\n", 2, NULL, "nothing is published", "tree", "publish", "site");
    ANSWERS_TO("{\"itemId\": 1, \"up\": 5}\n", 2, NULL,
               "item 1 has the parent 5, which does not exist", "tree", "publish", "site");
    ANSWERS_TO("{\"itemId\": 1}\n", 2, NULL, "the parent of tree \"site\" is \"up\"", "tree",
               "publish", "site", "--parent", "down");
    ANSWERS_TO("{\"itemId\": 1}\n", 2, NULL, "--prefer", "tree", "publish", "site", "--prefer",
               "x");
    ANSWERS(1, NULL, "no version 9", "tree", "read", "site", "--version", "9");
    ANSWERS(2, NULL, "--at needs a time", "tree", "read", "site", "--at", "yesterday");
    ANSWERS(2, NULL, "a snapshot has at most one of them", "tree", "read", "site", "--version", "1",
            "--tag", "x");
    ANSWERS(1, NULL, "the tree \"nope\" does not exist", "tree", "log", "nope");
    ANSWERS(0, "1\n", NULL, "count", "truce_tree_edits", "{state: \"open\"}");
}

TEST(the_story_of_the_tree_is_right)
{
    snprintf(store, sizeof store, "%s/demo.truce", test_directory());
    ANSWERS(0, "truce          0 pages hang under no chapter: right", NULL, "demo", "tree",
            "--store", store);
}

TEST(a_branch_is_merged_and_dropped)
{
    begin();
    ANSWERS(0, "draft is a branch of site\n", NULL, "tree", "branch", "site", "draft");
    ANSWERS(1, NULL, "the tree \"draft\" already exists", "tree", "branch", "site", "draft");
    ANSWERS(1, NULL, "no version 7", "tree", "branch", "site", "x", "--version", "7");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 5}\n", 0, "version 2", NULL, "tree", "publish",
               "draft");
    ANSWERS(0, "draft in pages: version 2, branch of site\nsite in pages: version 1\n", NULL,
            "tree", "list");
    ANSWERS(0, "branch of site, kept from 1 on", NULL, "tree", "status", "draft");
    ANSWERS(0, "version 2 of site has the changes of draft\n", NULL, "tree", "merge", "site",
            "draft", "-m", "new", "--author", "bob");
    ANSWERS(0, "bob: new", NULL, "tree", "log", "site");
    ANSWERS(0, "nothing to merge; version 2 of site is current\n", NULL, "tree", "merge", "site",
            "draft");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 6}\n", 0, "version 3", NULL, "tree", "publish",
               "site");
    ANSWERS_TO("{\"itemId\": \"home\", \"n\": 7}\n", 0, "version 3", NULL, "tree", "publish",
               "draft");
    ANSWERS(1,
            "\"mine\": {\"itemId\": \"home\", \"n\": 6}, \"theirs\": {\"itemId\": \"home\", "
            "\"n\": 7}, \"paths\": [{\"path\": \"n\", \"kind\": \"both-changed\", \"base\": 5, "
            "\"mine\": 6, \"theirs\": 7}]}",
            "1 item of tree \"draft\" cannot be merged into tree \"site\"", "tree", "merge", "site",
            "draft");
    ANSWERS(2, NULL, "--prefer must be", "tree", "merge", "site", "draft", "--prefer", "ours");
    ANSWERS(0, "version 4 of site", NULL, "tree", "merge", "site", "draft", "--prefer", "theirs");
    ANSWERS(0, "\"n\": 7", NULL, "tree", "read", "site", "home");
    ANSWERS(2, NULL, "drop that one first", "tree", "drop", "site");
    ANSWERS(0, "dropped draft\n", NULL, "tree", "drop", "draft");
    ANSWERS(1, NULL, "the tree \"draft\" does not exist", "tree", "merge", "site", "draft");
    ANSWERS(0, "dropped site\n", NULL, "tree", "drop", "site");
    ANSWERS(0, "0\n", NULL, "count", "pages");
}

TEST(exports_and_imports_a_history)
{
    char file[330], other[330], lines[400];

    begin();
    snprintf(file, sizeof file, "%s.ndjson", store);
    snprintf(other, sizeof other, "%s.other", store);
    ANSWERS_TO("{\"$remove\": \"about\"}\n", 0, "version 2", NULL, "tree", "publish", "site");
    ANSWERS(0, NULL, NULL, "tree", "tag", "site", "launch", "1");
    ANSWERS(0, "exported 2 versions\n", NULL, "tree", "export", "site", "-o", file);
    ANSWERS(0, "{\"$remove\": \"about\"}\n", NULL, "tree", "export", "site", "--from", "2");
    ANSWERS(1, NULL, "no version 3", "tree", "export", "site", "--from", "3");
    ANSWERS(0, "2 versions published, 0 already there\n", NULL, "tree", "import", "copy", file,
            "--collection", "copies");
    ANSWERS(0, "0 versions published, 2 already there\n", NULL, "tree", "import", "copy", file);
    ANSWERS(0, "\"up\": \"home\"", NULL, "tree", "read", "copy", "--tag", "launch");
    ANSWERS(0, "  ada: the first\n", NULL, "tree", "log", "copy");
    ANSWERS(0, "copy in copies: version 2, kept from 1 on", NULL, "tree", "status", "copy");
    snprintf(lines, sizeof lines,
             "{\"$tree\": \"x\", \"collection\": \"xs\", \"from\": 1}\n{oops\n");
    ANSWERS_TO(lines, 2, NULL, "line 2", "tree", "import", "x");
    ANSWERS_TO("", 2, NULL, "the history must begin with", "tree", "import", "x");
    ANSWERS(2, NULL, "cannot read", "tree", "import", "x", other);
    ANSWERS(1, NULL, "the tree \"x\" does not exist", "tree", "export", "x");
}

TEST(a_large_history_is_exported_whole)
{
    enum { ITEMS = 12000 };
    char file[330], *items = bson_malloc(ITEMS * 32), *end = items;

    snprintf(store, sizeof store, "%s/site.truce", test_directory());
    snprintf(file, sizeof file, "%s.ndjson", store);
    for (int i = 0; i < ITEMS; i++)
        end += sprintf(end, "{\"itemId\": %d}\n", i);
    ANSWERS_TO(items, 0, "version 1: 12000 items put", NULL, "tree", "publish", "site",
               "--collection", "pages");
    ANSWERS(0, "exported 1 version\n", NULL, "tree", "export", "site", "-o", file);
    ANSWERS(0, "1 version published", NULL, "tree", "import", "copy", file, "--collection",
            "copies");
    ANSWERS(0, "{\"itemId\": 11999", NULL, "tree", "read", "copy", "11999");
    bson_free(items);
}
