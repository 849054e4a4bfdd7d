/* truce archive, restore, and archive verify as a user calls them, and the lag in truce doctor. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300], target[320], restored[320]; /* of the running test */

static void begin(void)
{
    const char *directory = test_directory();

    snprintf(store, sizeof store, "%s/s.truce", directory);
    snprintf(target, sizeof target, "%s/archive", directory);
    snprintf(restored, sizeof restored, "%s/restored.truce", directory);
}

#define RUN(path, ...) command_run(TRUCE_CLI, path, NULL, __VA_ARGS__, NULL)

static void expect(const struct command *command, int code, const char *out)
{
    if (!CHECK_INT(command->code, ==, code) || !CHECK(strstr(command->out, out) != NULL))
        printf("%s%s", command->out, command->err);
}

/* Commit keys, sequences, and fences go on after a restore. */
TEST(a_restored_store_continues_safely)
{
    static const char pay[] =
        "[{\"update\": \"accounts\", \"id\": \"a\", \"with\": {\"$inc\": {\"n\": 1}}}]";

    begin();
    expect(RUN(store, "insert", "accounts", "{_id: 'a', n: 0}"), 0, "inserted 1");
    expect(RUN(store, "sequence", "next", "orders", "--take", "5"), 0, "1");
    expect(RUN(store, "commit", "apply", pay, "--key", "pay-1", "--key-time", "1700000000000"), 0,
           "committed");
    expect(RUN(NULL, "archive", store, "--to", target, "--once"), 0, "the base is complete");
    expect(RUN(store, "sequence", "next", "orders", "--take", "10"), 0, "6");
    expect(RUN(NULL, "restore", target, "--to", restored, "--skip-sequences", "100"), 0,
           "checked: 0 findings");
    expect(RUN(restored, "sequence", "next", "orders"), 0, "106");
    expect(RUN(restored, "commit", "apply", pay, "--key", "pay-1", "--key-time", "1700000000000"),
           0, "");
    expect(RUN(restored, "find", "accounts", "{}"), 0, "\"n\": 1");
    expect(RUN(NULL, "restore", target, "--to", restored), 2, "");
    expect(RUN(NULL, "restore", "nosuch", "--to", "other.truce"), 2, "");
    expect(RUN(NULL, "restore", target, "--dry-run"), 0, "can restore commit");
    expect(RUN(NULL, "archive", "verify", target), 0, "0 faults");
}

TEST(refuses_wrong_calls_of_archive_commands_with_the_reason)
{
    char file[320];

    begin();
    snprintf(file, sizeof file, "%s.salvaged", store);
    expect(RUN(store, "insert", "accounts", "{_id: 'a'}", "--database", "shop"), 0, "inserted 1");
    /* an archive, and what is restored from it, is of the whole file */
    expect(RUN(NULL, "archive", store, "--to", target, "--once", "--database", "shop"), 2, "");
    CHECK(access(target, F_OK) != 0);
    expect(RUN(store, "compact", "--database", "shop"), 2, "");
    expect(RUN(store, "check", "--database", "shop"), 2, "");
    expect(RUN(store, "sweep", "--database", "shop"), 2, "");
    expect(RUN(NULL, "doctor", store, "--database", "shop"), 2, "");
    expect(RUN(NULL, "salvage", store, file, "--database", "shop"), 2, "");
    CHECK(access(file, F_OK) != 0);
    expect(RUN(NULL, "archive", store, "--to", target, "--once"), 0, "the base is complete");
    expect(RUN(NULL, "restore", target, "--to", restored, "--database", "shop"), 2, "");
    CHECK(access(restored, F_OK) != 0);
    /* a file in the place of a directory */
    expect(RUN(NULL, "archive", store, "--to", store, "--once"), 2, "");
    expect(RUN(NULL, "archive", "verify", store), 2, "");
    expect(RUN(NULL, "restore", store, "--to", restored), 2, "");
}

/* The time may be after commits that the archive does not have. */
TEST(notes_that_the_archive_ends_before_the_time_of_a_restore)
{
    const struct command *c;

    begin();
    expect(RUN(store, "insert", "accounts", "{_id: 'a'}"), 0, "inserted 1");
    expect(RUN(NULL, "archive", store, "--to", target, "--once"), 0, "the base is complete");
    expect(RUN(store, "insert", "accounts", "{_id: 'b'}"), 0, "inserted 1");
    c = RUN(NULL, "restore", target, "--to", restored, "--at", "2100-01-01");
    expect(c, 0, "restored commit");
    CHECK(strstr(c->err, "this is the last commit of the archive"));
}

/* The number after the name of a field. */
static long long fact(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    at = at ? at + strlen(name) : "-1";
    return strtoll(at + strspn(at, "\": "), NULL, 10);
}

/* Waits until the archiver's facts are these. Returns the output of truce doctor. */
static const struct command *doctor_until(bool failing)
{
    const struct command *found = NULL;

    for (int i = 0; i < 200; i++) {
        found = RUN(store, "doctor", "--json", "--facts");
        if (strstr(found->out, "\"archive\"") && strstr(found->out, "\"pins\": true") &&
            (fact(found->out, "\"failing_ms\"") > 0) == failing)
            break;
        truce__clock_sleep_ms(20);
    }
    return found;
}

/* The lag of an archiver in another process, whose target begins to fail. */
TEST(doctor_shows_the_lag_of_the_archive)
{
    const struct command *found;
    char folder[360], away[380];
    pid_t archiver;
    int status;

    begin();
    expect(RUN(store, "insert", "things", "{_id: 1}"), 0, "inserted 1");
    archiver = command_start(TRUCE_CLI, NULL, "archive", store, "--to", target, "--interval",
                             "10ms", NULL);
    found = doctor_until(false);
    CHECK_INT(fact(found->out, "\"process\""), ==, archiver);
    CHECK_INT(fact(found->out, "\"behind_bytes\""), ==, 0);
    CHECK_INT(fact(found->out, "\"behind_ms\""), ==, 0);
    snprintf(folder, sizeof folder, "%s/00000001", target);
    snprintf(away, sizeof away, "%s.away", folder);
    for (int i = 0; i < 500 && access(folder, F_OK); i++)
        truce__clock_sleep_ms(10);
    truce__clock_sleep_ms(100);
    CHECK(!rename(folder, away));
    expect(RUN(store, "insert", "things", "{_id: 2}"), 0, "inserted 1");
    found = doctor_until(true);
    CHECK_INT(fact(found->out, "\"behind_bytes\""), >, 0);
    CHECK_INT(fact(found->out, "\"behind_ms\""), >, 0);
    found = RUN(store, "doctor");
    CHECK_INT(found->code, ==, 1);
    CHECK(strstr(found->out, "its target fails") != NULL);
    CHECK(!rename(away, folder));
    found = doctor_until(false);
    kill(archiver, SIGKILL);
    waitpid(archiver, &status, 0);
    found = RUN(store, "doctor");
    CHECK_INT(found->code, ==, 1);
    CHECK(strstr(found->out, "the archiver died") != NULL);
    expect(RUN(NULL, "archive", store, "--to", target, "--once"), 0, "generation");
    expect(RUN(store, "doctor"), 0, "no process archives the store");
    expect(RUN(NULL, "restore", target, "--to", restored), 0, "checked: 0 findings");
    expect(RUN(restored, "count", "things"), 0, "2");
}
