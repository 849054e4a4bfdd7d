/* --config of truce serve reads the options of the call from a file, and refuses an invalid file.
 * Each call here is refused before it serves, and the error shows which options were read.
 * docs/serve.md has a call that serves. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

#define NO_ADDRESS                                                                                 \
    "invalid address \"nowhere\": expected an IPv4 or IPv6 address, for example 127.0.0.1 or ::1"
#define NO_USER                                                                                    \
    "truce: --auth needs at least one user: create one with truce user add NAME --role root\n"

static char directory[500], path[600], store[600];

static void put(const char *text, size_t size)
{
    FILE *file;

    if (!*directory || access(directory, F_OK) != 0) /* each test has its own */
        snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/truce.conf", directory);
    snprintf(store, sizeof store, "%s/config.truce", directory);
    file = fopen(path, "w");
    REQUIRE(file && fwrite(text, 1, size, file) == size && !fclose(file));
}

/* Returns the output of `truce serve` with this file, and up to two more arguments. */
static const struct command *serve(const char *text, const char *word, const char *next)
{
    put(text, strlen(text));
    return command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--config", path, word, next, NULL);
}

static void says(int line, const struct command *c, const char *sentence)
{
    test_check_int(2, c->code, c->code == 2, "exit code 2", __FILE__, line);
    test_check_text(sentence, c->err, __FILE__, line);
    test_check_text("", c->out, __FILE__, line);
}

/* Refused, in that line of the file. */
static void refuses(int line, const char *text, int at, const char *why)
{
    const struct command *c = serve(text, NULL, NULL);
    char *sentence = bson_strdup_printf("truce: %s line %d: %s\n", path, at, why);

    says(line, c, sentence);
    bson_free(sentence);
}
#define REFUSES(text, at, why)  refuses(__LINE__, text, at, why)
#define SAYS(sentence, command) says(__LINE__, command, sentence)

TEST(options_are_lines)
{
    SAYS(NO_USER, serve("port = 0\nauth = yes\n", NULL, NULL));
    SAYS(NO_USER, serve("# first\n\n  \t# second\nport=0\n\tauth\t=\tyes \t\n", NULL, NULL));
    SAYS(NO_USER, serve("port = 0\r\n\r\n# third\r\nauth = yes\r\n", NULL, NULL));
    SAYS(NO_USER, serve("port = 0\nauth = yes", NULL, NULL));
    SAYS(NO_USER, serve("\xef\xbb\xbf"
                        "auth = yes\nport = 0",
                        NULL, NULL));
}

TEST(common_options_are_lines_too)
{
    char text[700];

    put("", 0); /* for the paths */
    snprintf(text, sizeof text, "json = yes\nport = 0\nauth = yes\nstore = %s\n", store);
    put(text, strlen(text));
    unlink(store);
    SAYS("{\"error\": \"--auth needs at least one user: create one with truce user add NAME "
         "--role root\", \"status\": \"invalid\"}\n",
         command_run(TRUCE_CLI, NULL, NULL, "serve", "--config", path, NULL));
    CHECK(access(store, F_OK) != 0);
}

TEST(prefers_the_command_line_to_the_file)
{
    char text[700];

    SAYS(NO_USER, serve("isolation = none\nauth = yes\nport = 0", "--isolation", "snapshot"));
    SAYS("truce: --isolation must be serializable or snapshot, not \"none\"\n",
         serve("isolation = snapshot\nauth = yes\nport = 0", "--isolation", "none"));
    SAYS("truce: " NO_ADDRESS "\n", serve("bind = nowhere\nport = 0", "--bind", "nowhere"));
    SAYS("truce: --port needs a number from 0 to 65535, not \"x\"\n",
         serve("port = 0", "--port", "x"));
    put("", 0);
    snprintf(text, sizeof text, "store = %s/none/other.truce\nport = 0\nauth = yes\n", directory);
    put(text, strlen(text));
    SAYS(NO_USER,
         command_run(TRUCE_CLI, NULL, NULL, "--store", store, "serve", "--config", path, NULL));
    SAYS(NO_USER,
         command_run(TRUCE_CLI, NULL, NULL, "serve", "--config", path, "--store", store, NULL));
}

TEST(treats_a_flag_with_the_value_no_as_absent)
{
    SAYS("truce: " NO_ADDRESS "\n", serve("auth = no\nport = 0\n", "--bind", "nowhere"));
    REFUSES("auth = no\nauth = yes\n", 2, "auth is already set in line 1; set it once");
    REFUSES("auth = maybe\n", 1, "auth must be yes or no");
    REFUSES("auth =\n", 1, "auth must be yes or no");
}

TEST(lists_the_valid_names_for_an_unknown_one)
{
    static const char there[] =
        "expected one of port, bind, socket, socket-mode, parent, auth, tls-certificate, tls-key, tls-client-ca, archive, archive-keep, "
        "archive-log-limit, archive-interval, archive-sync, archive-sync-timeout, consume, database";
    const struct command *c = serve("port = 0\n\nprot = 1\n", NULL, NULL);

    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, " line 3: unknown option \"prot\": expected one of port, ") &&
          strstr(c->err, there) && strstr(c->err, ", store, json, "));
    CHECK(!strstr(strstr(c->err, "database, ") + 1, "database, "));
    CHECK(!strstr(c->err, "config,") && !strstr(c->err, "help"));
    CHECK(strstr(serve("config = x\n", NULL, NULL)->err, "unknown option \"config\""));
    CHECK(strstr(serve("help = yes\n", NULL, NULL)->err, "unknown option \"help\""));
    CHECK(strstr(serve("--port = 1\n", NULL, NULL)->err, "unknown option \"--port\""));
    CHECK(strstr(serve("a_name_that_is_longer_than_any_of_the_options = 1\n", NULL, NULL)->err,
                 "unknown option: expected one of port"));
}

TEST(reports_invalid_lines)
{
    REFUSES("port 0\n", 1, "expected a line of the form: name = value");
    REFUSES("\n[serve]\n", 2, "expected a line of the form: name = value");
    REFUSES("port = 0\n# x\nport = 1\n", 3, "port is already set in line 1; set it once");
    REFUSES("port =  \r\n", 1, "port needs a value: N");
    REFUSES("bind = \"0.0.0.0\"\n", 1, "write the value without quotes");
    REFUSES("bind = '0.0.0.0'\n", 1, "write the value without quotes");
    REFUSES("replica-set = rs # the set\n", 1, "write the comment on a line of its own");
    REFUSES("replica-set = rs\t# the set\n", 1, "write the comment on a line of its own");
    REFUSES("port = 0\nstore = mongodb://a:secret@127.0.0.1/x\n", 2,
            "this file must not contain a password; set TRUCE_STORE instead");
    REFUSES("port = 0\r\nauth = y\res\r\n", 2, "the line is not UTF-8 text");
    REFUSES("database = \x1b[1mx\n", 1, "the line is not UTF-8 text");
    REFUSES("database = \xff\n", 1, "the line is not UTF-8 text");
}

TEST(reports_invalid_values_with_their_line)
{
    REFUSES("\nport = 70000\n", 2, "port needs a number from 0 to 65535, not \"70000\"");
    REFUSES(
        "deadline = soon\n", 1,
        "deadline needs a duration from 1ms to 49d, for example 500ms, 90s, 5m, 24h, or 7d, not \"soon\"");
    REFUSES(
        "slow = 0\n", 1,
        "slow needs a duration from 1ms to 49d, for example 500ms, 90s, 5m, 24h, or 7d, not \"0\"");
    REFUSES("isolation = none\n", 1, "isolation must be serializable or snapshot, not \"none\"");
    REFUSES("port = 0\nbind = nowhere\n", 2, NO_ADDRESS);
    REFUSES("port = 0\ntls-certificate = /none.pem\n", 2,
            "cannot read a certificate from \"/none.pem\": No such file or directory");
}

TEST(reports_an_invalid_file)
{
    size_t size = (size_t)10 << 20;
    char *much = bson_malloc(size);
    char sentence[700];
    const struct command *c;

    memset(much, '#', size);
    put(much, size);
    bson_free(much);
    snprintf(sentence, sizeof sentence, "truce: --config: %s is longer than 65536 bytes\n", path);
    SAYS(sentence, command_run(TRUCE_CLI, store, NULL, "serve", "--config", path, NULL));
    put("\0\1\2", 3);
    snprintf(sentence, sizeof sentence, "truce: --config: %s is not UTF-8 text\n", path);
    SAYS(sentence, command_run(TRUCE_CLI, store, NULL, "serve", "--config", path, NULL));
    c = command_run(TRUCE_CLI, store, NULL, "serve", "--config", directory, NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, ": Is a directory\n"));
    c = command_run(TRUCE_CLI, store, NULL, "serve", "--config", "/none/truce.conf", NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK_TEXT("truce: --config: cannot read /none/truce.conf: No such file or directory\n",
               c->err);
    if (!geteuid()) {
        printf("root may read every file: what has no permission is not tried\n");
        return;
    }
    put("port = 0\n", 9);
    CHECK(!chmod(path, 0));
    c = command_run(TRUCE_CLI, store, NULL, "serve", "--config", path, NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, ": Permission denied\n"));
    unlink(path);
}

TEST(a_file_as_long_as_it_may_be_is_read)
{
    char *text = bson_malloc(65536);

    memset(text, '#', 65536);
    memcpy(text + 65536 - 11, "\nauth = yes", 11);
    put(text, 65536);
    SAYS(NO_USER,
         command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--config", path, "--port", "0", NULL));
    bson_free(text);
}

TEST(refuses_the_option_for_other_commands)
{
    SAYS("truce: unknown option --config\n",
         command_run(TRUCE_CLI, NULL, NULL, "find", "c", "--config", "x", NULL));
}
