/* truce item: its output, its exit codes, and its story. */
#include <stdlib.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
#define ANSWERS(code, out, err, ...)                                                               \
    check(__LINE__, command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code, out, err)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/school.truce", test_directory());
    ANSWERS(0, NULL, NULL, "insert", "e",
            "{\"_id\": 1, \"l\": [{\"k\": \"A\", \"n\": 1}, {\"k\": \"B\", \"n\": 2}]}");
}

#define ONE  "{\"_id\": 1}"
#define LIST "--field", "l", "--identity", "k"
#define SHOWS(text)                                                                                \
    ANSWERS(0, "{\"l\": " text "}\n", NULL, "find", "e", "-p", "{\"_id\": 0, \"l\": 1}")

TEST(items_are_changed_added_replaced_and_removed)
{
    begin();
    ANSWERS(0, "matched 1, modified 1\n", NULL, "item", "update", "e", ONE, "{\"k\": \"B\"}",
            "{\"$inc\": {\"n\": 1}}", LIST);
    ANSWERS(1, "matched 0, modified 0\n", NULL, "item", "update", "e", ONE, "{\"k\": \"Z\"}",
            "{\"$inc\": {\"n\": 1}}", LIST);
    ANSWERS(0, "matched 1, modified 0\n", NULL, "item", "add", "e", ONE, "{\"k\": \"A\"}", LIST);
    ANSWERS(0, "added\n", NULL, "item", "add", "e", ONE, "{\"k\": \"C\"}", LIST);
    ANSWERS(1, "matched 0, modified 0\n", NULL, "item", "replace", "e", ONE, "{\"k\": \"A\"}",
            "--query", "{\"n\": 5}", LIST);
    ANSWERS(0, "{\"matched\": 1, \"modified\": 1, \"added\": false, \"status\": \"ok\"}\n", NULL,
            "item", "upsert", "e", ONE, "{\"k\": \"A\"}", LIST, "--json");
    ANSWERS(0, "matched 1, modified 1\n", NULL, "item", "remove", "e", ONE, "{\"k\": \"C\"}", LIST);
    SHOWS("[{\"k\": \"A\"}, {\"k\": \"B\", \"n\": 3}]");
}

TEST(converts_collections_and_reports_the_impossible_ones)
{
    begin();
    ANSWERS(0, NULL, NULL, "insert", "e", "{\"_id\": 2, \"l\": [{\"k\": 1}, {\"k\": 1}]}");
    ANSWERS(1, "1 converted, 1 unchanged\n", "same \"k\"", "item", "to-map", "e", LIST);
    ANSWERS(0, "{\"l\": {\"A\": {\"k\": \"A\", \"n\": 1}, \"B\": {\"k\": \"B\", \"n\": 2}}}\n",
            NULL, "find", "e", ONE, "-p", "{\"_id\": 0, \"l\": 1}");
    ANSWERS(0, "1 converted, 0 unchanged\n", NULL, "item", "to-array", "e", LIST);
    ANSWERS(0, "", NULL, "item", "index", "e", "n", LIST);
    ANSWERS(0, "", NULL, "item", "index", "e", "n", "--map", "--key", "A", "--key", "B", LIST);
}

TEST(refuses_wrong_calls_of_item_commands_with_the_reason)
{
    begin();
    ANSWERS(2, "", "QUERY", "item", "update", "e", ONE, "{", "{}");
    ANSWERS(2, "", "--field is missing", "item", "add", "e", ONE, "{}");
    ANSWERS(2, "", "--identity is missing", "item", "add", "e", ONE, "{}", "--field", "l");
    ANSWERS(2, "", "--field is missing", "item", "to-map", "e");
    ANSWERS(2, "", "--field is missing", "item", "index", "e");
    ANSWERS(2, "", "no field \"k\"", "item", "add", "e", ONE, "{\"x\": 1}", LIST);
    ANSWERS(1, "", "no document", "item", "add", "e", "{\"_id\": 7}", "{\"k\": 1}", LIST);
    ANSWERS(2, "", "_id", "item", "add", "e", ONE, "{\"k\": 1}", "--field", "_id", "--identity",
            "k");
}

TEST(the_demo_of_badges_loses_items_only_without_truce)
{
    snprintf(store, sizeof store, "%s/badges.truce", test_directory());
    ANSWERS(0, NULL, NULL, "demo", "badges", "--duration", "1s", "--store", store);
    ANSWERS(0, "", NULL, "collections", "list");
}
