/* truce commit apply with diffs: from an argument, a file and standard input; errors name the wrong
 * field. */
#include <stdlib.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

#define DIFFS                                                                                      \
    "{\"collection\": \"data\", \"input\": {\"key\": \"a\"},\n"                                    \
    " \"changes\": {\"red\": {\"count\": [0, 1], \"keys\": [[], [\"a\"]]},\n"                      \
    "             \"any\": {\"count\": [0, 1], \"keys\": [[], [\"a\"]]}}}\n"

static char store[300], input[300];

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}

#define RUN(stdin_, ...) command_run(TRUCE_CLI, store, stdin_, __VA_ARGS__, NULL)
#define ANSWERS(code, out, err, stdin_, ...)                                                       \
    check(__LINE__, RUN(stdin_, __VA_ARGS__), code, out, err)

static void fresh(void)
{
    const char *directory = test_directory();

    snprintf(store, sizeof store, "%s/school.truce", directory);
    snprintf(input, sizeof input, "%s/changes.json", directory);
    ANSWERS(0, NULL, NULL, NULL, "insert", "data", "{\"_id\": \"red\", \"keys\": [], \"count\": 0}",
            "{\"_id\": \"any\", \"keys\": [], \"count\": 0}");
}

static void check_counts(const char *wanted)
{
    ANSWERS(0, wanted, NULL, NULL, "find", "data", "-p", "{\"_id\": 1, \"count\": 1}", "--sort",
            "{\"_id\": 1}");
}

TEST(reads_diffs_from_a_file)
{
    FILE *file;

    fresh();
    file = fopen(input, "w");
    if (!file || fputs(DIFFS, file) < 0 || fclose(file) != 0)
        abort();
    ANSWERS(0, "committed\n", NULL, NULL, "commit", "apply", "--file", input);
    check_counts("{\"_id\": \"any\", \"count\": 1}\n{\"_id\": \"red\", \"count\": 1}\n");
    ANSWERS(1, "", "key \"count\" is 1, not 0 as in the diff", NULL, "commit", "apply", "--file",
            input);
    ANSWERS(2, "", "cannot read", NULL, "commit", "apply", "--file", "no/such/file");
    ANSWERS(2, "", "exclude each other", NULL, "commit", "apply", "[]", "--file", input);
}

TEST(reads_diffs_from_standard_input)
{
    fresh();
    ANSWERS(0, "committed\n", NULL, DIFFS, "commit", "apply");
    ANSWERS(1, "", "not 0 as in the diff", DIFFS, "commit", "apply", "--file", "-", "--journal");
    check_counts("{\"_id\": \"any\", \"count\": 1}\n{\"_id\": \"red\", \"count\": 1}\n");
}

TEST(combines_diffs_with_other_changes)
{
    fresh();
    ANSWERS(0, "committed\n", NULL, NULL, "commit", "apply", "--journal",
            "[{\"change\": \"data\", \"id\": \"red\", \"with\": {\"count\": [0, 5]}},"
            " {\"update\": \"data\", \"id\": \"any\", \"with\": {\"$inc\": {\"count\": 5}}}]");
    check_counts("{\"_id\": \"any\", \"count\": 5}\n{\"_id\": \"red\", \"count\": 5}\n");
    ANSWERS(1, "", "\"red\"", NULL, "commit", "apply",
            "[{\"change\": \"data\", \"id\": \"red\", \"with\": {\"count\": [0, 5]}},"
            " {\"update\": \"data\", \"id\": \"any\", \"with\": {\"$inc\": {\"count\": 5}}}]");
    check_counts("{\"_id\": \"any\", \"count\": 5}\n{\"_id\": \"red\", \"count\": 5}\n");
}

TEST(identifies_diffs_by_a_key)
{
    fresh();
    for (int i = 0; i < 2; i++)
        ANSWERS(0, i ? "committed earlier\n" : "committed\n", NULL, DIFFS, "commit", "apply",
                "--key", "k", "--key-time", "1700000000000");
    ANSWERS(
        1, "",
        "the key \"k\" was used before for a commit with different changes: a new request needs a "
        "new key, and a request whose repetitions compute other values needs --input",
        NULL, "commit", "apply", "{\"collection\": \"data\", \"changes\": {\"red\": {}}}", "--key",
        "k", "--key-time", "1700000000000");
}

#define UNDER(key) "--key", key, "--key-time", "1700000000000"

TEST(returns_the_result_of_a_commit_to_a_retry)
{
    fresh();
    for (int i = 0; i < 2; i++) {
        char left[24];

        snprintf(left, sizeof left, "{number: %d}", 17 + i);
        ANSWERS(0, i ? "committed earlier, and left {\"number\": 17}\n" : "committed\n", NULL,
                DIFFS, "commit", "apply", UNDER("k"), "--leave", left);
    }
    ANSWERS(0, "{\"earlier\": true, \"result\": {\"number\": 17}, \"status\": \"ok\"}\n", NULL,
            DIFFS, "commit", "apply", UNDER("k"), "--json");
    ANSWERS(2, "", "--leave needs --key", DIFFS, "commit", "apply", "--leave", "{}");
    ANSWERS(2, "", "--leave", DIFFS, "commit", "apply", UNDER("k"), "--leave", "{");
}

TEST(commits_are_listed_by_how_their_keys_begin)
{
    fresh();
    ANSWERS(0, "committed\n", NULL, DIFFS, "commit", "apply", UNDER("pay.1"));
    ANSWERS(0, "", NULL, NULL, "commit", "list", "--prefix", "pay:");
    CHECK(strstr(RUN(NULL, "commit", "list", "--prefix", "pay.")->out, "\"pay.1\"") != NULL);
    ANSWERS(1, "", "no commit has the id or key pay", NULL, "commit", "show", "pay");
    ANSWERS(0, NULL, NULL, NULL, "commit", "show", "pay.1");
}

TEST(names_errors_in_diffs)
{
    fresh();
    ANSWERS(2, "", "unexpected \"collektion\": expected an array of changes", NULL, "commit",
            "apply", "{\"collektion\": \"data\"}");
    ANSWERS(2, "", "diffs need \"changes\"", NULL, "commit", "apply", "{\"collection\": \"data\"}");
    ANSWERS(2, "", "diffs need a \"collection\"", NULL, "commit", "apply", "{\"changes\": {}}");
    ANSWERS(2, "", "column 16", "{\"changes\": \n5 ", "commit", "apply");
    ANSWERS(2, "", "change 1: the key \"count\" of a diff needs a pair", NULL, "commit", "apply",
            "{\"collection\": \"data\", \"changes\": {\"red\": {\"count\": 5}}}");
    ANSWERS(2, "", "change 1: change of \"data\" needs {KEY: [OLD, NEW]} (\"with\")", NULL,
            "commit", "apply", "[{\"change\": \"data\", \"id\": 1}]");
}
