/* truce doctor: its output and its exit codes. */
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void begin(void)
{
    snprintf(store, sizeof store, "%s/doctor.truce", test_directory());
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "things", "{\"_id\": 1}", NULL)->code,
              ==, 0);
}

TEST(prints_the_remedy_of_a_finding_and_exits_with_1)
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

TEST(doctor_does_not_create_a_missing_store)
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

/* Runs a command on the store as the user `nobody`. Returns the exit code, and writes the output to
 * `out`. */
static int as_nobody(const char *command, char *out, size_t size)
{
    const struct passwd *nobody = getpwnam("nobody");
    int ends[2], state = 0;
    size_t got = 0;
    pid_t child;

    out[0] = '\0';
    if (!nobody || pipe(ends) != 0)
        return 126;
    child = fork();
    if (!child) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0 ||
            setgid(nobody->pw_gid) != 0 || setuid(nobody->pw_uid) != 0 ||
            access(TRUCE_CLI, X_OK) != 0 || access(store, R_OK) != 0)
            _exit(126);
        execl(TRUCE_CLI, TRUCE_CLI, command, "--store", store, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t more; got + 1 < size && (more = read(ends[0], out + got, size - got - 1)) > 0;)
        got += (size_t)more;
    out[got] = '\0';
    close(ends[0]);
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(reports_to_a_read_only_user_and_changes_nothing)
{
    struct stat before, after;
    char out[4000], folder[300];
    int code;

    if (geteuid() != 0) {
        test_skip("only root can become another user");
        return;
    }
    begin();
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(store, '/') - store), store);
    CHECK_INT(chmod(folder, 0755), ==, 0);
    CHECK_INT(chmod(store, 0644), ==, 0);
    CHECK_INT(stat(store, &before), ==, 0);
    code = as_nobody("doctor", out, sizeof out);
    if (code == 126) {
        test_skip("no unprivileged user may run the program");
        return;
    }
    if (code != 1 || !strstr(out, "this user may not write to the file") ||
        !strstr(out, ": 0 errors, 1 warning"))
        test_fail(__FILE__, __LINE__, "%d: %s", code, out);
    code = as_nobody("check", out, sizeof out);
    if (code || !strstr(out, " 0 findings, 0 repaired"))
        test_fail(__FILE__, __LINE__, "%d: %s", code, out);
    CHECK_INT(stat(store, &after), ==, 0);
    CHECK_INT(after.st_mtim.tv_sec, ==, before.st_mtim.tv_sec);
    CHECK_INT(after.st_mtim.tv_nsec, ==, before.st_mtim.tv_nsec);
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "things", "{_id: 2}", NULL)->code, ==,
              0);
}
