/* truce import into a server, with and without transactions: killed at any moment and started
 * again, it imports each line once. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/copy_stores.h"
#include "tests/support/server.h"

#define LINES 1500

/* Every third line has an _id, and one of a hundred cannot be imported. */
static void write_lines(const char *path)
{
    FILE *file = fopen(path, "w");

    for (int i = 0; i < LINES; i++) {
        if (i % 100 == 99)
            fprintf(file, "{\"_id\": 0, \"number\": %d}\n", i);
        else if (i % 3 == 0)
            fprintf(file, "{\"_id\": %d, \"number\": %d}\n", i, i);
        else
            fprintf(file, "{\"number\": %d, \"text\": \"%040d\"}\n", i, i);
    }
    fclose(file);
}

/* Checks that the file has each line that could not be imported, whichever run came to it. */
static void check_rejects(const char *path)
{
    static char text[LINES * 80];
    FILE *file = fopen(path, "r");
    size_t size;

    REQUIRE(file != NULL);
    size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    for (int i = 99; i < LINES; i += 100) {
        char line[40];

        snprintf(line, sizeof line, "\"line\": %d,", i + 1);
        if (!CHECK(strstr(text, line) != NULL))
            test_fail(__FILE__, __LINE__, "line %d is neither imported nor rejected", i);
    }
}

TEST(an_import_that_is_killed_imports_each_line_once)
{
    char uri[600], input[400], rejects[420];
    truce_store *store = server_store();
    int kills = 0, status = 0;
    int64_t count;

    REQUIRE(store != NULL);
    server_uri(uri, sizeof uri, "");
    snprintf(input, sizeof input, "%s/in.ndjson", test_directory());
    snprintf(rejects, sizeof rejects, "%s.rejects", input);
    write_lines(input);
    for (long delay_ms = 60;; delay_ms += 120) {
        pid_t child = command_start(TRUCE_CLI, uri, "import", "c", input, "--batch", "10", NULL);

        nanosleep(
            &(struct timespec){.tv_sec = delay_ms / 1000, .tv_nsec = delay_ms % 1000 * 1000000},
            NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        if (WIFEXITED(status))
            break;
        kills++;
    }
    CHECK_INT(kills, >, 0);
    /* 0: it was killed after the last line, nothing was left */
    CHECK_INT(WEXITSTATUS(status), <=, 1);
    check_rejects(rejects);
    count = copy_count(store, "c", "{}");
    CHECK_INT(count, ==, LINES - LINES / 100);
    for (int i = 0; i < LINES; i += 37) {
        char filter[64];

        snprintf(filter, sizeof filter, "{'number': %d}", i);
        CHECK_INT(copy_count(store, "c", filter), ==, i % 100 != 99);
    }
    CHECK_INT(copy_count(store, "truce_imports", "{'done': true}"), ==, 1);
}
