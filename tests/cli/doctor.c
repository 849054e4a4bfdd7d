/* truce doctor: what it prints and how it ends. */
#include <sys/stat.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void begin(void)
{
    snprintf(store, sizeof store, "%s/doctor.truce", test_directory());
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "things", "{\"_id\": 1}", NULL)->code,
              ==, 0);
}

TEST(a_finding_says_what_to_change_and_the_exit_code_that_there_are_some)
{
    const struct command *c;

    begin();
    CHECK_INT(chmod(store, 0666), ==, 0);
    c = command_run(TRUCE_CLI, NULL, NULL, "doctor", store, NULL);
    CHECK_INT(c->code, ==, 1);
    CHECK(strstr(c->out, "warning  permissions: ") != NULL);
    CHECK(strstr(c->out, "\n         change: chmod o-w") != NULL);
    CHECK(strchr(c->out, '\033') == NULL); /* it is no terminal */
    CHECK_TEXT("", c->err);
    c = command_run(TRUCE_CLI, store, NULL, "doctor", "--json", "--facts", NULL);
    CHECK_INT(c->code, ==, 1);
    CHECK(strstr(c->out, "{\"level\": \"warning\", \"rule\": \"permissions\"") != NULL);
    CHECK(strstr(c->out, "\"facts\": {\"store\": \"file\"") != NULL);
}

TEST(a_store_that_is_not_there_is_not_made)
{
    const struct command *c;
    char path[300];
    struct stat found;

    snprintf(path, sizeof path, "%s/none.truce", test_directory());
    c = command_run(TRUCE_CLI, NULL, NULL, "doctor", path, NULL);
    CHECK_INT(c->code, ==, 3);
    CHECK(strstr(c->err, "none.truce") != NULL);
    CHECK_INT(stat(path, &found), ==, -1);
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "doctor", NULL)->code, ==, 2);
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "doctor", "a", "b", NULL)->code, ==, 2);
}
