/* The server's log lines about connections, logins and commands. They contain no secrets. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/auth/users.h"
#include "tests/support/kept_log.h"
#include "tests/support/scram_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define MODE(mode)                                                                                 \
    "{'configureFailPoint': 'failCommand', 'mode': " mode ", '$db': 'admin', 'data': "

static void begin(const struct server_options *wanted)
{
    struct server_options options = *wanted;
    bson_error_t error = {0};

    options.log = kept_log_new();
    options.login_delay_ms = 1;
    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    if (options.auth) {
        struct grants *grants = bson_malloc0(sizeof *grants);
        struct user_facts facts = {.name = "ada",
                                   .database = "admin",
                                   .password = "the right one",
                                   .mechanisms = USER_MECHANISMS,
                                   .grants = grants};

        REQUIRE(!users_add(store, &facts, &error));
        bson_free(grants);
    }
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void check_text(const bson_t *line, const char *path, const char *wanted)
{
    bson_iter_t at, found;

    if (CHECK(line && bson_iter_init(&at, line) && bson_iter_find_descendant(&at, path, &found) &&
              BSON_ITER_HOLDS_UTF8(&found)))
        CHECK_TEXT(wanted, bson_iter_utf8(&found, NULL));
}

static void check_last(const char *message, const char *path, const char *wanted)
{
    bson_t *line = kept_log_last(message);

    check_text(line, path, wanted);
    if (line)
        bson_destroy(line);
}

static int64_t last_number(const char *message, const char *path)
{
    bson_t *line = kept_log_last(message);
    int64_t number = line ? reply_number(line, path) : -1;

    if (line)
        bson_destroy(line);
    return number;
}

TEST(logs_the_start_and_the_end)
{
    begin(&(struct server_options){.replica_set = "rs"});
    CHECK_INT(kept_log_count("started"), ==, 1);
    CHECK_INT(last_number("started", "fields.port"), ==, server_port(server));
    check_last("started", "fields.replicaSet", "rs");
    check_last("started", "component", "server");
    CHECK_INT(kept_log_count("stopping"), ==, 0);
    end();
    CHECK_INT(kept_log_count("stopping"), ==, 1);
    CHECK_INT(kept_log_count("stopped"), ==, 1);
    kept_log_free();
}

TEST(logs_each_connection_and_its_end)
{
    int first, second, third;

    begin(&(struct server_options){.connections_max = 2});
    first = dial();
    bson_destroy(ask_on(first, "{'ping': 1, '$db': 'admin'}", 0));
    CHECK_INT(kept_log_count("connection accepted"), ==, 1);
    CHECK_INT(last_number("connection accepted", "connection"), ==, 1);
    CHECK_INT(last_number("connection accepted", "fields.open"), ==, 1);
    second = dial();
    bson_destroy(ask_on(second, "{'ping': 1, '$db': 'admin'}", 0));
    CHECK_INT(last_number("connection accepted", "fields.open"), ==, 2);
    third = dial();
    CHECK(!ask_on(third, "{'ping': 1, '$db': 'admin'}", 0));
    CHECK_INT(kept_log_count("connection accepted"), ==, 2);
    CHECK_INT(kept_log_count("connection refused"), ==, 1);
    check_last("connection refused", "level", "warning");
    CHECK_INT(kept_log_count("connection closed"), ==, 0);
    close(first);
    kept_log_wait("connection closed", 1);
    CHECK_INT(last_number("connection closed", "connection"), ==, 1);
    close(second);
    close(third);
    kept_log_wait("connection closed", 2);
    CHECK_INT(last_number("connection closed", "connection"), ==, 2);
    end();
    kept_log_free();
}

TEST(logs_logins_without_secrets)
{
    struct login_try try = {.name = "ada", .password = "the right one", .brief = true};
    int end_;
    char *text;

    begin(&(struct server_options){.auth = true});
    end_ = dial();
    bson_destroy(ask_on(end_,
                        "{'hello': 1, 'client': {'application': {'name': 'a\\nlog'}},"
                        " '$db': 'admin'}",
                        0));
    try.password = "the wrong one";
    CHECK_INT(scram_login(end_, &try), ==, 18);
    check_last("login failed", "level", "warning");
    check_last("login failed", "component", "access");
    check_last("login failed", "fields.user", "ada");
    check_last("login failed", "fields.db", "admin");
    check_last("login failed", "fields.mechanism", "SCRAM-SHA-256");
    check_last("login failed", "fields.app", "a\nlog");
    CHECK_INT(last_number("login failed", "connection"), ==, 1);
    CHECK_INT(kept_log_count("login succeeded"), ==, 0);
    try.password = "the right one";
    CHECK_INT(scram_login(end_, &try), ==, 0);
    CHECK_INT(kept_log_count("login succeeded"), ==, 1);
    check_last("login succeeded", "fields.user", "ada");
    check_last("login succeeded", "fields.mechanism", "SCRAM-SHA-256");
    try.name = "nobody\x1b[2J\n{\"message\": \"forged\"}";
    close(end_);
    end_ = dial();
    CHECK_INT(scram_login(end_, &try), ==, 18);
    check_last("login failed", "fields.user", try.name);
    CHECK_INT(kept_log_count("forged"), ==, 0);
    close(end_);
    text = kept_log_text();
    CHECK(!strstr(text, "the right") && !strstr(text, "the wrong") && !strchr(text, '\x1b'));
    bson_free(text);
    end();
    kept_log_free();
}

TEST(logs_a_slow_command_without_its_documents)
{
    char *text;

    begin(&(struct server_options){.test_commands = true, .slow_ms = 60});
    expect_code(MODE("{'times': 1}") "{'failCommands': ['insert'], 'blockConnection': true,"
                                     " 'blockTimeMS': 80}}",
                0);
    expect_code("{'insert': 'letters', 'documents': [{'_id': 'a secret'}], '$db': 'post'}", 0);
    CHECK_INT(kept_log_count("slow command"), ==, 1);
    CHECK_INT(last_number("slow command", "fields.ms"), >=, 80);
    check_last("slow command", "fields.command", "insert");
    check_last("slow command", "fields.collection", "letters");
    check_last("slow command", "fields.db", "post");
    CHECK_INT(last_number("slow command", "fields.code"), ==, -1);
    expect_code(MODE("{'times': 1}") "{'failCommands': ['find'], 'blockConnection': true,"
                                     " 'blockTimeMS': 80, 'errorCode': 96}}",
                0);
    expect_code("{'find': 'letters', 'filter': {'a': 'a secret'}, '$db': 'post'}", 96);
    CHECK_INT(last_number("slow command", "fields.code"), ==, 96);
    text = kept_log_text();
    CHECK(!strstr(text, "secret"));
    bson_free(text);
    end();
    kept_log_free();
    begin(&(struct server_options){.test_commands = true, .slow_ms = 3600000});
    expect_code(MODE("{'times': 1}") "{'failCommands': ['insert'], 'blockConnection': true,"
                                     " 'blockTimeMS': 80}}",
                0);
    expect_code("{'insert': 'letters', 'documents': [{}], '$db': 'post'}", 0);
    CHECK_INT(kept_log_count("slow command"), ==, 0);
    end();
    kept_log_free();
}

/* Checks that the logged duration excludes the time that a command waits for other clients by
 * request: at least `least_ms`. */
static void check_wait(const char *json, int64_t least_ms)
{
    int64_t begun_ns = truce__clock_monotonic_ns(), reported;

    bson_destroy(ask(json));
    reported = last_number("slow command", "fields.ms");
    CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000 - reported, >=, least_ms);
}

TEST(does_not_count_waits_for_others_as_slow)
{
    const struct server_feed feed = {.keep_ms = 3600000};
    char path[600], json[200];
    bson_error_t error = {0};
    struct server_options options = {.slow_ms = 1, .feed = &feed};
    bson_t *reply;

    snprintf(path, sizeof path, "%s/store", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    options.log = kept_log_new();
    REQUIRE(!server_start(store, &options, &server, &error));
    check_wait("{'truceClaim': 'mail', 'waitMS': 700, '$db': 'test'}", 600);
    reply = ask("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {},"
                " '$db': 'test'}");
    snprintf(json, sizeof json,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', 'maxTimeMS': 700,"
             " '$db': 'test'}",
             (long long)reply_number(reply, "cursor.id"));
    bson_destroy(reply);
    check_wait(json, 600);
    end();
    kept_log_free();
}

#ifdef TRUCE_CLI
/* Returns the port after that word in a line, or 0. */
static int port_behind(const char *line, const char *word)
{
    const char *at = strstr(line, word);
    int port = 0;

    return at && sscanf(at + strlen(word), "%d", &port) == 1 ? port : 0;
}

/* Runs `truce serve` with these outputs, has it serve a client and ends it. Leaves the last line of
 * the pipe in `line`. */
static void serve_with(const char *outputs, const char *before_port, char *line, size_t size)
{
    int pid = 0, port, socket_;
    char path[64], target[64];
    ssize_t length;
    FILE *pipe;

    snprintf(line, size, "echo $$; exec %s serve memory: --port 0 --log json %s", TRUCE_CLI,
             outputs);
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, (int)size, pipe) && sscanf(line, "%d", &pid) == 1 && pid > 1);
    CHECK(fgets(line, (int)size, pipe));
    port = port_behind(line, before_port);
    CHECK(port > 0);
    socket_ = dial_port(port);
    for (int i = 0; i < 3; i++)
        bson_destroy(ask_on(socket_, "{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0));
    close(socket_);
    /* no descriptor that was opened later has the number of a closed one */
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, i);
        length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        CHECK(!strncmp(target, "pipe:", 5) || !strcmp(target, "/dev/null"));
    }
    CHECK(pid > 1 && !kill(pid, SIGTERM));
    while (fgets(line, (int)size, pipe))
        ;
    CHECK_INT(pclose(pipe), ==, 0);
}

TEST(the_program_serves_without_a_log_and_with_one)
{
    char line[LOG_LINE_MAX];

    serve_with("2>&-", "\"port\": ", line, sizeof line);
    serve_with("2>&1 >/dev/null", "\"port\": ", line, sizeof line);
    CHECK(strstr(line, "\"message\": \"stopped\""));
}

TEST(names_the_valid_formats_of_the_log)
{
    char line[LOG_LINE_MAX];
    FILE *pipe;

    snprintf(line, sizeof line, "%s serve memory: --log xml 2>&1", TRUCE_CLI);
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, sizeof line, pipe));
    CHECK_TEXT("truce: --log must be text or json, not \"xml\"\n", line);
    CHECK(pclose(pipe) != 0);
}

/* Reads the process id and the port from the "listening" line. */
TEST(restarts_its_log_on_a_signal)
{
    char path[600], moved[700], line[LOG_LINE_MAX];
    FILE *pipe, *file;
    int pid = 0, i;

    snprintf(path, sizeof path, "%s/program.log", test_directory());
    snprintf(moved, sizeof moved, "%s.1", path);
    snprintf(line, sizeof line,
             "exec %s serve memory: --port 0 --log-file %s --log-rotate reopen & echo $!; wait $!",
             TRUCE_CLI, path);
    pipe = popen(line, "r");
    REQUIRE(pipe);
    REQUIRE(fgets(line, sizeof line, pipe));
    pid = atoi(line);
    REQUIRE(fgets(line, sizeof line, pipe) && strstr(line, "listening"));
    CHECK(!rename(path, moved));
    CHECK(pid > 1 && !kill(pid, SIGUSR1));
    for (i = 0; i < 500 && access(path, F_OK); i++)
        usleep(10000);
    CHECK(pid > 1 && !kill(pid, SIGTERM));
    while (fgets(line, sizeof line, pipe))
        ;
    CHECK_INT(pclose(pipe), ==, 0);
    file = fopen(path, "r");
    REQUIRE(file);
    CHECK(fgets(line, sizeof line, file) && strstr(line, "log rotated"));
    fclose(file);
    snprintf(line, sizeof line, "%s serve memory: --log-rotate rename 2>&1", TRUCE_CLI);
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, sizeof line, pipe));
    CHECK_TEXT("truce: --log-rotate needs --log-file\n", line);
    CHECK(pclose(pipe) != 0);
}
#endif
