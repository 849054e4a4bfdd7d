/* truce cron: its output and its exit codes. */
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

#define ANSWERS(code, out, err, ...)                                                               \
    command_check(command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL), code, out, err,          \
                  __FILE__, __LINE__)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/cron.truce", test_directory());
}

TEST(lines_are_set_listed_paused_and_removed)
{
    begin();
    ANSWERS(0, "nightly: next at ", NULL, "cron", "set", "nightly", "reports", "0 3 * * *",
            "{\"report\": \"sales\"}", "--zone", "Europe/Berlin", "--priority", "5", "--tag", "a",
            "--missed", "all", "--most", "7");
    ANSWERS(0, "\"zone\": \"Europe/Berlin\", \"missed\": \"all\", \"most\": 7", NULL, "cron",
            "list");
    ANSWERS(0, "\"priority\": 5", NULL, "cron", "list");
    ANSWERS(0, "\"tags\": [\"a\"]", NULL, "cron", "list");
    ANSWERS(0, "paused nightly", NULL, "cron", "pause", "nightly");
    ANSWERS(0, "nightly: paused", NULL, "cron", "set", "nightly", "reports", "@daily", "{}");
    ANSWERS(0, "resumed nightly", NULL, "cron", "resume", "nightly");
    ANSWERS(0, "{\"next\": {\"$date\": ", NULL, "--json", "cron", "set", "nightly", "reports",
            "@daily", "{}");
    ANSWERS(1, "removed nightly\n", "the cron line other does not exist", "cron", "remove",
            "nightly", "other");
    ANSWERS(0, "", NULL, "cron", "list");
}

TEST(adds_jobs_for_all_workers_by_a_line)
{
    begin();
    ANSWERS(0, "tick: next at ", NULL, "cron", "set", "tick", "mail", "@every 1000h", "{\"n\": 1}");
    ANSWERS(0, "\"nModified\": 1", NULL, "command",
            "{update: \"truce_queue_crons\", updates: [{q: {_id: \"tick\"}, "
            "u: {$set: {next: {$date: 1000}}}}]}");
    ANSWERS(0, " done\n", NULL, "work", "--queue", "mail", "--drain", "--exec", "cat");
    ANSWERS(0, "\"cron\": {\"name\": \"tick\"", NULL, "queue", "list", "mail", "--state", "done");
    ANSWERS(0, "\"fired\": 1", NULL, "cron", "list");
}

TEST(times_are_shown_without_a_store)
{
    begin();
    ANSWERS(0, "2026-03-29T01:00:00.000Z\n2026-03-30T00:30:00.000Z\n", NULL, "cron", "next",
            "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z", "-n", "2");
    ANSWERS(2, "", "invalid minute \"61\"", "cron", "next", "61 * * * *");
    ANSWERS(2, "", "never fires", "cron", "next", "0 0 30 2 *");
    ANSWERS(2, "", "unknown time zone \"Mars\"", "cron", "next", "@daily", "--zone", "Mars");
    ANSWERS(2, "", "--after needs a time", "cron", "next", "@daily", "--after", "soon");
    ANSWERS(2, "", "--missed must be once", "cron", "set", "a", "b", "@daily", "{}", "--missed",
            "x");
    ANSWERS(2, "", "five fields", "cron", "set", "a", "b", "daily", "{}");
    ANSWERS(2, "", "PAYLOAD", "cron", "set", "a", "b", "@daily", "{");
    CHECK(access(store, F_OK) != 0);
}
