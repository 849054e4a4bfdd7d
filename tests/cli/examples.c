/* The examples of the help work in a shell with an empty folder and no store. Those of operations
 * print the same on a truce server, where each operation is one command. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/core/operation_row.h"
#include "server/server.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

/* Runs the example in a folder of its own, with this program first in the path. */
static const struct command *run_example(const struct cli_command *c, const char *store)
{
    char *script = bson_strdup_printf("set -e\n"
                                      "folder=$(mktemp -d \"$1/XXXXXX\") && cd \"$folder\"\n"
                                      "PATH=$(dirname \"$2\"):$PATH TRUCE_STORE=%s\n"
                                      "export PATH TRUCE_STORE\n"
                                      "%s\n",
                                      store, c->example);
    const struct command *run = command_run("/bin/bash", NULL, NULL, "-c", script, "bash",
                                            test_directory(), TRUCE_CLI, NULL);

    if (run->code != 0)
        test_fail(__FILE__, __LINE__, "truce %s %s on %s: exit code %d: %s%s", c->noun,
                  c->verb ? c->verb : "", store, run->code, run->err, run->out);
    bson_free(script);
    return run;
}

TEST(every_example_of_the_help_runs_as_pasted_on_an_empty_store)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];

        if (!c->hidden && c->example)
            run_example(c, "school.truce");
    }
}

/* Characters of ids and hashes. */
#define WORD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

/* Writes # for ids, hashes, and numbers, which differ in each run. The spaces that align a number
 * in its column become one. */
static char *masked_output(const char *text)
{
    char *masked = bson_malloc0(strlen(text) + 1), *to = masked;

    while (*text) {
        size_t word = strspn(text, WORD), digits = strspn(text, "0123456789");

        if (digits || word >= 24) {
            text += word >= 24 ? word : digits;
            while (to - masked >= 2 && to[-1] == ' ' && to[-2] == ' ')
                to--;
            /* The milliseconds of a time, which it lacks if they are 0. */
            if (to - masked >= 3 && to[-1] == '.' && to[-2] == '#' && to[-3] == ':')
                to--;
            else
                *to++ = '#';
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
    return masked;
}

/* These describe the store itself. */
static bool describes_the_store(const struct cli_command *c)
{
    return !strcmp(c->noun, "doctor") || !strcmp(c->noun, "sweep") || !strcmp(c->noun, "check");
}

TEST(every_example_of_an_operation_prints_the_same_on_a_server)
{
    bson_error_t error = {0};
    struct server *server;
    truce_store *store;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, &(struct server_options){0}, &server, &error));
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];
        char *here, *there, uri[80];

        if (c->hidden || !c->example || !c->row)
            continue;
        snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/example%d", server_port(server), i);
        here = masked_output(run_example(c, "school.truce")->out);
        there = masked_output(run_example(c, uri)->out);
        if (!describes_the_store(c) && strcmp(here, there) != 0)
            test_fail(__FILE__, __LINE__, "truce %s %s prints\n%son a file, and on a server\n%s",
                      c->noun, c->verb ? c->verb : "", here, there);
        bson_free(here);
        bson_free(there);
    }
    server_stop(server, 5000);
    truce_store_close(store);
}
