/* truce transfer: its output and its exit codes. */
#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

#define ANSWERS(code, out, err, ...)                                                               \
    command_check(command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code, out, err,          \
                  __FILE__, __LINE__)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/bank.truce", test_directory());
    ANSWERS(0, "", NULL, "insert", "accounts", "{_id: \"A\", balance: 1000}");
    ANSWERS(0, "", NULL, "insert", "accounts", "{_id: \"B\", balance: 0}");
}

TEST(a_transfer_is_started_shown_and_listed)
{
    begin();
    ANSWERS(2, NULL, "accounts", "transfer", "start", "moves", "1", "A", "B", "100");
    ANSWERS(0, "done\n", NULL, "transfer", "start", "moves", "1", "A", "B", "100", "-a",
            "accounts");
    ANSWERS(0, "done (it was started before)\n", NULL, "transfer", "start", "moves", "1", "A", "B",
            "100");
    ANSWERS(0, "{\"state\": \"done\", \"exists\": true, \"status\": \"ok\"}\n", NULL, "transfer",
            "start", "moves", "1", "A", "B", "100", "--json");
    ANSWERS(1, NULL, "other content", "transfer", "start", "moves", "1", "A", "B", "101");
    ANSWERS(1, NULL, "does not match its guard", "transfer", "start", "moves", "2", "A", "B",
            "901");
    ANSWERS(0, "done\n", NULL, "transfer", "start", "moves", "3", "A", "B", "901", "--overdraft",
            "--steps", "--meta", "{why: \"trust\"}");
    ANSWERS(0, "\"meta\": {\"why\": \"trust\"}", NULL, "transfer", "show", "moves", "3");
    ANSWERS(0, "\"reason\": ", NULL, "transfer", "list", "moves", "--state", "canceled");
    ANSWERS(0, "\"balance\": -1", NULL, "find", "accounts", "{_id: \"A\"}");
    ANSWERS(1, NULL, "can no longer be canceled", "transfer", "cancel", "moves", "3");
    ANSWERS(1, NULL, "the transfer moves {_id: 4} does not exist", "transfer", "resume", "moves",
            "4");
    ANSWERS(1, NULL, "", "transfer", "show", "moves", "4");
    ANSWERS(2, NULL, "the id of the transfer is an empty string", "transfer", "start", "moves", "",
            "A", "B", "1");
    ANSWERS(0, "0 findings", NULL, "check");
    ANSWERS(1, "", "the book of transfers \"mvoes\" does not exist: expected \"moves\"", "transfer",
            "list", "mvoes");
}

TEST(reads_entries_and_reports_errors_in_them)
{
    static const char *const bad[][2] = {
        {"{}", "needs a 'collection'"},
        {"[1]", "must be a document"},
        {"[{collection: \"accounts\", id: 1, effekt: {}}]", "unknown field \"effekt\""},
        {"[{collection: \"accounts\", effect: {}}]", "and an 'id'"},
        {"[{collection: \"accounts\", id: 1, when: \"soon\"}]", "\"before\" or \"after\""},
        {"[{collection: \"accounts\", id: \"A\"}]", "effect"},
        {"[]", "1 to 100 elements"},
    };

    begin();
    ANSWERS(0, "done\n", NULL, "transfer", "start", "moves", "1", "--entries",
            "[{collection: \"accounts\", id: \"A\", effect: {$inc: {balance: -5}}}, {collection: "
            "\"accounts\", id: \"B\", when: \"after\", effect: {$inc: {balance: 5}}}]");
    ANSWERS(0, "\"balance\": 995", NULL, "find", "accounts", "{_id: \"A\"}");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ANSWERS(2, NULL, bad[i][1], "transfer", "start", "moves", "2", "--entries", bad[i][0]);
    ANSWERS(2, NULL, "or --entries", "transfer", "start", "moves", "2");
    ANSWERS(2, NULL, "--entries replaces", "transfer", "start", "moves", "2", "A", "B", "1",
            "--entries", "[]");
    ANSWERS(2, NULL, "BOOK ID SOURCE DESTINATION VALUE", "transfer", "start", "moves", "2", "A");
    ANSWERS(0, "", NULL, "count", "moves", "{_id: 2}");
}

TEST(the_story_of_the_transfer_is_right)
{
    snprintf(store, sizeof store, "%s/story.truce", test_directory());
    ANSWERS(0, "canceled: right", NULL, "demo", "transfer", "--store", store);
}
