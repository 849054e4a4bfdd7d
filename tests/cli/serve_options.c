/* truce serve with --socket and --parent, and truce user token. */
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

#define RUN(store, ...) command_run(TRUCE_CLI, store, __VA_ARGS__, NULL)

/* Starts a process that does nothing until it is killed. */
static pid_t start_parent(void)
{
    pid_t child = fork();

    if (!child)
        for (;;)
            pause();
    return child;
}

TEST(a_server_ends_with_its_parent)
{
    char path[500], id[20];
    pid_t parent = start_parent(), served;
    int status = 0;

    snprintf(path, sizeof path, "%s/s.sock", test_directory());
    snprintf(id, sizeof id, "%d", (int)parent);
    served =
        command_start(TRUCE_CLI, NULL, "serve", "memory:", "--socket", path, "--parent", id, NULL);
    while (access(path, F_OK))
        truce__clock_sleep_ms(5);
    CHECK_INT(waitpid(served, &status, WNOHANG), ==, 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    CHECK_INT(waitpid(served, &status, 0), ==, served);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(access(path, F_OK) != 0);
}

TEST(a_parent_that_does_not_exist_and_wrong_sockets_are_refused)
{
    pid_t gone = start_parent();
    char id[20];

    kill(gone, SIGKILL);
    waitpid(gone, NULL, 0);
    snprintf(id, sizeof id, "%d", (int)gone);
    CHECK(strstr(RUN(NULL, NULL, "serve", "memory:", "--parent", id)->err,
                 "the process does not exist"));
    CHECK_INT(RUN(NULL, NULL, "serve", "memory:", "--parent", "0")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", "memory:", "--socket-mode", "600")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", "memory:", "--socket", "s", "--socket-mode", "8")->code, ==,
              2);
    CHECK_INT(RUN(NULL, NULL, "serve", "memory:", "--socket", "s", "--bind", "::1")->code, ==, 2);
}

TEST(a_server_that_cannot_start_creates_no_store)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    char path[500], port[20];

    REQUIRE(taken >= 0 && !bind(taken, (struct sockaddr *)&at, size) && !listen(taken, 1) &&
            !getsockname(taken, (struct sockaddr *)&at, &size));
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    snprintf(path, sizeof path, "%s/never.truce", test_directory());
    CHECK(
        strstr(RUN(NULL, NULL, "serve", path, "--port", port)->err, "cannot listen on 127.0.0.1"));
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--http", port)->code, ==, 3);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--metrics", port)->code, ==, 3);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--auth")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--tls-certificate", path)->code, ==,
              2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--database", "a/b")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--replica-set", "a/b")->code, ==, 2);
    CHECK_INT(
        RUN(NULL, NULL, "serve", path, "--port", "0", "--replica-set", "rs", "--advertise", "x")
            ->code,
        ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--archive", "s3://")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--archive-sync")->code, ==, 2);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--archive", "/proc/none")->code, ==,
              3);
    CHECK_INT(RUN(NULL, NULL, "serve", path, "--port", "0", "--consume", path)->code, ==, 2);
    CHECK(access(path, F_OK) != 0);
    close(taken);
}

TEST(a_wrong_file_of_a_consumer_is_refused_with_its_line)
{
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        {"into = queue:mail\n", "give the URL of the broker"},
        {"url = amqp://localhost/mail\n", "--into TARGET is missing"},
        {"url = amqp://localhost/mail\ninto = queue:mail\nstore = x\n",
         "line 3: a consumer of truce serve cannot have the option \"store\""},
        {"until-empty = yes\nurl = amqp://localhost/mail\n", "line 1: a consumer of truce serve"},
        {"prot = 1\n", "line 1: unknown option \"prot\""},
        {"url = amqp://localhost/mail\ninto = queue:mail\nworkers = 65\n", "from 1 to 64"},
        {"url = amqp://localhost/mail\ninto = queue:mail\nmap = {\n", "is not Extended JSON"},
        {"url = amqp://localhost/mail\ninto = queue:mail\ndatabase = a/b\n", "a/b"},
    };
    char path[500];

    snprintf(path, sizeof path, "%s/consumer.conf", test_directory());
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct command *command;
        FILE *file = fopen(path, "w");

        REQUIRE(file != NULL);
        fputs(wrong[i].text, file);
        fclose(file);
        command = RUN(NULL, NULL, "serve", "memory:", "--port", "0", "--consume", path);
        CHECK_INT(command->code, ==, 2);
        if (!strstr(command->err, wrong[i].reason))
            test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", command->err, wrong[i].reason);
        CHECK(!*command->out);
    }
    CHECK_INT(RUN(NULL, NULL, "serve", "memory:", "--port", "0", "--consume", "/none")->code, ==,
              2);
    CHECK_TEXT("truce: --consume: cannot read /none: No such file or directory\n",
               RUN(NULL, NULL, "serve", "memory:", "--port", "0", "--consume", "/none")->err);
}

TEST(options_without_effect_are_refused)
{
    CHECK_TEXT("truce: --http-host needs --http\n",
               RUN(NULL, NULL, "serve", "memory:", "--port", "0", "--http-host", "shop")->err);
    CHECK(strstr(RUN(NULL, NULL, "serve", "mongodb://127.0.0.1:1/shop", "--port", "0",
                     "--isolation", "serializable")
                     ->err,
                 "--isolation serializable is not supported by a store at mongodb://"));
}

TEST(tokens_are_created_listed_and_revoked)
{
    const struct command *command;
    char path[500], id[20] = "", *found;

    snprintf(path, sizeof path, "%s/users.truce", test_directory());
    CHECK_INT(RUN(path, "a long password\n", "user", "add", "ada", "--role", "root")->code, ==, 0);
    command = RUN(path, NULL, "user", "token", "ada");
    CHECK_INT(command->code, ==, 0);
    CHECK(!strncmp(command->out, "truce_", 6));
    CHECK_INT(strlen(command->out), ==, 6 + 43 + 1);
    command = RUN(path, NULL, "user", "token", "ada", "--expires", "30d", "--json");
    CHECK(strstr(command->out, "\"token\"") && strstr(command->out, "\"expires\""));
    found = strstr(command->out, "\"id\": \"");
    REQUIRE(found != NULL);
    snprintf(id, 9, "%s", found + 7);
    command = RUN(path, NULL, "user", "token", "ada", "--list");
    CHECK(strstr(command->out, id) && !strstr(command->out, "hash"));
    CHECK(!strstr(command->out, "truce_"));
    CHECK_INT(RUN(path, NULL, "user", "token", "ada", "--revoke", id)->code, ==, 0);
    CHECK_INT(RUN(path, NULL, "user", "token", "ada", "--revoke", id)->code, ==, 1);
    CHECK(!strstr(RUN(path, NULL, "user", "token", "ada", "--list")->out, id));
    CHECK(!strstr(RUN(path, NULL, "user", "list")->out, "hash"));
    CHECK_INT(RUN(path, "another password\n", "user", "passwd", "ada")->code, ==, 0);
    command = RUN(path, NULL, "user", "token", "ada", "--list");
    CHECK_INT(command->code, ==, 0);
    CHECK(!*command->out);
    CHECK_INT(RUN(path, NULL, "user", "token", "bob")->code, ==, 1);
}

TEST(wrong_durations_and_combinations_are_refused)
{
    static const char *const wrong[] = {"30",           "d",   "", "-1d", "0d", "1w", "30dd",
                                        "99999999999d", "1.5h"};
    char path[500];

    snprintf(path, sizeof path, "%s/users.truce", test_directory());
    CHECK_INT(RUN(path, "a long password\n", "user", "add", "ada", "--role", "root")->code, ==, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(RUN(path, NULL, "user", "token", "ada", "--expires", wrong[i])->code, ==, 2);
    CHECK_INT(RUN(path, NULL, "user", "token", "ada", "--list", "--revoke", "x")->code, ==, 2);
    CHECK(!*RUN(path, NULL, "user", "token", "ada", "--list")->out);
}
