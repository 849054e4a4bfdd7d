/* The examples of the help work in a shell with an empty folder and no store. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/commands.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

/* The example, in a folder of its own, with this program first in the path. */
static char *script_of(const struct cli_command *c)
{
    return bson_strdup_printf("set -e\n"
                              "folder=$(mktemp -d \"$1/XXXXXX\") && cd \"$folder\"\n"
                              "PATH=$(dirname \"$2\"):$PATH TRUCE_STORE=school.truce\n"
                              "export PATH TRUCE_STORE\n"
                              "%s\n",
                              c->example);
}

TEST(every_example_of_the_help_runs_as_pasted_on_an_empty_store)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];
        const struct command *run;
        char *script;

        if (c->hidden || !c->example)
            continue;
        script = script_of(c);
        run = command_run("/bin/bash", NULL, NULL, "-c", script, "bash", test_directory(),
                          TRUCE_CLI, NULL);
        if (run->code != 0)
            test_fail(__FILE__, __LINE__, "truce %s %s: exit code %d: %s%s", c->noun,
                      c->verb ? c->verb : "", run->code, run->err, run->out);
        bson_free(script);
    }
}
