/*
 * If an answer cannot be written, the exit code is 3: on a full disk, and with a closed standard
 * output. The test calls each command as in the example of its help.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

/* Replaces truce in the example's path. It redirects the output of the command under test to the
 * test's target, and appends its exit code, or the size of its output, to a results file. */
static const char wrapper[] =
    "#!/bin/bash\n"
    "words=\" $* \"\n"
    "[[ $words == *\" $NOUN \"* && $words == *\" $VERB\"* ]] || exec \"$TRUCE\" \"$@\"\n"
    "case $WHERE in\n"
    "file)\n" /* it may be a server, which the example ends by killing this shell */
    "    trap 'ended=1; kill %1 2>/dev/null' TERM\n"
    "    \"$TRUCE\" \"$@\" <&0 >printed &\n"
    "    [ -z \"$ended\" ] || kill %1\n"
    "    wait %1; code=$?; [ -z \"$ended\" ] || wait\n"
    "    cat printed; echo \"$(wc -c <printed)\" >>\"$RESULTS\"; exit $code ;;\n"
    "full) \"$TRUCE\" \"$@\" >/dev/full ;;\n"
    "closed) \"$TRUCE\" \"$@\" >&- ;;\n"
    "esac\n"
    "echo \"$?\" >>\"$RESULTS\"\n";

static const char script[] =
    "folder=$(mktemp -d \"$1/XXXXXX\") && cd \"$folder\"\n"
    "mkdir path && printf '%s' \"$WRAPPER\" >path/truce && chmod +x path/truce\n"
    "TRUCE=$2 RESULTS=$folder/results TRUCE_STORE=school.truce PATH=$folder/path:$PATH\n"
    "export TRUCE RESULTS TRUCE_STORE PATH\n"
    ": >results\n"
    "( eval \"$3\" ) >/dev/null 2>&1\n"
    "cat results\n";

/* Runs the example. Returns the results of each call, one on each line. */
static char *run(const struct cli_command *c, const char *folder, const char *where)
{
    setenv("NOUN", c->noun, 1);
    setenv("VERB", c->verb ? c->verb : "", 1);
    setenv("WHERE", where, 1);
    setenv("WRAPPER", wrapper, 1);
    return bson_strdup(command_run("/bin/bash", NULL, NULL, "-c", script, "bash", folder, TRUCE_CLI,
                                   c->example, NULL)
                           ->out);
}

/* Returns the next number of a list of lines, or -1 at its end. */
static long next(const char **at)
{
    char *end;
    long number = strtol(*at, &end, 10);

    if (end == *at)
        return -1;
    *at = end;
    return number;
}

static void check(const struct cli_command *c, const char *folder, const char *sizes,
                  const char *where, int *calls)
{
    char *codes = run(c, folder, where);
    const char *size_at = sizes, *code_at = codes;

    for (long size = next(&size_at); size >= 0; size = next(&size_at)) {
        long code = next(&code_at);

        if (size > 0 && code != CLI_FAILED)
            test_fail(__FILE__, __LINE__, "truce %s %s, %s: exit code %ld", c->noun,
                      c->verb ? c->verb : "", where, code);
        *calls += size > 0;
    }
    bson_free(codes);
}

/* Returns whether the example ends without an answer: its list or answer is empty, or it runs until
 * it is killed. */
static bool is_silent(const struct cli_command *c)
{
    static const char *const silent[] = {
        "set quarantine", "item index",   "doc conflicts", "serve ", "ledger currency",
        "ledger open",    "ledger rules", "queue results", "ui ",    "consumers "};
    char name[40];

    snprintf(name, sizeof name, "%s %s", c->noun, c->verb ? c->verb : "");
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        if (!strcmp(name, silent[i]))
            return true;
    }
    return false;
}

/* Runs all commands, or one of several parts of them. */
TEST(exits_with_3_if_output_cannot_be_written)
{
    long parts = test_scale("TRUCE_FULL_PARTS", 1), part = test_scale("TRUCE_PART", 0) % parts;
    char *folder = bson_strdup(test_directory());

    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];
        int calls = 0;
        char *sizes;

        /* demonstrations take seconds; a signal ends the publisher of the example */
        if (c->hidden || !c->example || !strcmp(c->noun, "demo") || !strcmp(c->noun, "publish") ||
            i % parts != part)
            continue;
        sizes = run(c, folder, "file");
        check(c, folder, sizes, "full", &calls);
        check(c, folder, sizes, "closed", &calls);
        if (!calls && !is_silent(c))
            test_fail(__FILE__, __LINE__, "truce %s %s prints nothing in its example", c->noun,
                      c->verb ? c->verb : "");
        bson_free(sizes);
    }
    bson_free(folder);
}

/* Replaces any other exit code. */
TEST(a_finding_that_cannot_be_written_is_exit_code_3)
{
    static const char calls[] =
        "cd \"$1\" && export TRUCE_STORE=s.truce\n"
        "$2 insert c '{_id: 1}' && $2 help nothing >/dev/full\n"
        "$2 --help >/dev/full; echo $?; $2 --version >/dev/full; echo $?\n"
        "$2 find c >/dev/full; echo $?; $2 find c --table >/dev/full; echo $?\n"
        "$2 find c --pretty >/dev/full; echo $?\n"
        "$2 export c >/dev/full; echo $?; $2 export c --output /dev/full; echo $?\n"
        "$2 demo badges --duration 1s >/dev/full; echo $?\n"
        "$2 doctor --json >/dev/full; echo $?; $2 serve --port 0 s.truce >/dev/full; echo $?\n";
    const struct command *all = command_run("/bin/bash", NULL, NULL, "-c", calls, "bash",
                                            test_directory(), TRUCE_CLI, NULL);

    CHECK_TEXT("inserted 1\n3\n3\n3\n3\n3\n3\n3\n3\n3\n3\n", all->out);
}

TEST(reports_failed_output_once_and_with_the_reason)
{
    static const char calls[] =
        "cd \"$1\" && export TRUCE_STORE=s.truce\n"
        "seq 3000 | sed 's/.*/{\"_id\": &, \"t\": \"a longer text, to fill a pipe\"}/' |\n"
        "    $2 import c - -q >/dev/null\n"
        "for call in help check doctor 'export c' 'export c --csv' 'export c --array' 'distinct c _id'; do\n"
        "    $2 $call 2>&1 >/dev/full\n"
        "done\n"
        "for call in 'find c' 'export c' 'export c --csv'; do\n"
        "    { $2 $call 2>&3 | head -c 1 >/dev/null; } 3>&1; echo \"${PIPESTATUS[0]}\"\n"
        "done\n";
    const struct command *all = command_run("/bin/bash", NULL, NULL, "-c", calls, "bash",
                                            test_directory(), TRUCE_CLI, NULL);
    char wanted[1000] = "";

    for (int i = 0; i < 7; i++)
        strcat(wanted, "truce: cannot write standard output: No space left on device\n");
    strcat(wanted, "3\n3\n3\n"); /* no error for a reader that closes the pipe early */
    CHECK_TEXT(wanted, all->out);
}
