/* truce import and truce export: round trips, bad lines, kill -9 in the middle. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300], input[300], rejects[310], output[300];

static void fresh(void)
{
    const char *directory = test_directory();

    snprintf(store, sizeof store, "%s/school.truce", directory);
    snprintf(input, sizeof input, "%s/in.ndjson", directory);
    snprintf(rejects, sizeof rejects, "%s.rejects", input);
    snprintf(output, sizeof output, "%s/out.ndjson", directory);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = bson_malloc0(1 << 16);

    if (file) {
        size_t got = fread(text, 1, (1 << 16) - 1, file);
        text[got] = '\0';
        fclose(file);
    }
    return text;
}

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
#define RUN(...)                     command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)
#define ANSWERS(code, out, err, ...) check(__LINE__, RUN(__VA_ARGS__), code, out, err)

TEST(what_was_exported_is_imported_byte_for_byte)
{
    static const char text[] =
        "{\"_id\": {\"$numberInt\": \"1\"}, \"a\": {\"$numberLong\": \"1\"}, \"b\": "
        "{\"$numberDouble\": \"1.0\"}}\n"
        "{\"_id\": {\"$numberInt\": \"2\"}, \"a\": {\"$date\": {\"$numberLong\": \"-5\"}}, \"b\": "
        "[{\"$numberDecimal\": \"1.10\"}, null, {\"$minKey\": 1}]}\n";
    char *got;

    fresh();
    write_text(input, text);
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(0, text, NULL, "export", "s", "--sort", "{\"_id\": 1}");
    ANSWERS(0, "exported 2\n", NULL, "export", "s", "-o", output, "--sort", "{\"_id\": 1}");
    got = read_text(output);
    CHECK_TEXT(text, got);
    bson_free(got);
    ANSWERS(0, "{\"_id\": 1, \"a\": 1, \"b\": 1.0}\n", NULL, "export", "s", "{\"_id\": 1}",
            "--relaxed");
}

/* what stands behind "hash" in an answer */
static char *hash_of(const struct command *c)
{
    const char *hash = strstr(c->out, "\"hash\": \"");

    return bson_strdup(hash ? hash : c->out);
}

TEST(the_hashes_of_export_and_import_are_the_same_for_the_same_documents)
{
    char *out, *in, *other;

    fresh();
    ANSWERS(0, "inserted 2\n", NULL, "insert", "s", "{\"_id\": 1}", "{\"_id\": 2, \"a\": 1.5}");
    out = hash_of(RUN("export", "s", "-o", output, "--json"));
    in = hash_of(RUN("import", "t", output, "--json"));
    CHECK(strncmp(out, "\"hash\": \"", 9) == 0 && strncmp(out, in, 41) == 0);
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{\"_id\": 3}");
    other = hash_of(RUN("export", "t", "-o", output, "--json"));
    CHECK(strncmp(out, other, 41) != 0);
    bson_free(out);
    bson_free(in);
    bson_free(other);
}

TEST(bad_lines_are_rejected_with_number_and_reason_and_the_rest_imported)
{
    char *got;

    fresh();
    write_text(input, "{\"_id\": 1}\n{\"_id\": }\n{\"_id\": 1, \"again\": true}\n\n"
                      "{\"_id\": 2, \"t\": \"\xff\"}\n{\"_id\": 3}\n");
    ANSWERS(1, NULL, NULL, "import", "s", input);
    ANSWERS(0, "{\"_id\": 1}\n{\"_id\": 3}\n", NULL, "find", "s", "--sort", "{\"_id\": 1}");
    got = read_text(rejects);
    CHECK(strstr(got, "{\"line\": 2, \"reason\": \"column 9, field _id: a value is expected"));
    CHECK(strstr(got, "\"line\": 3, \"reason\": "));
    CHECK(strstr(got, "\"text\": \"{\\\"_id\\\": 1, \\\"again\\\": true}\"}\n"));
    CHECK(strstr(got, "{\"line\": 5, \"reason\": \"column 18: byte 0xff is not UTF-8\""));
    CHECK(!strstr(got, "\"line\": 1,") && !strstr(got, "\"line\": 6,"));
    bson_free(got);
}

TEST(the_same_file_again_brings_only_lines_that_were_added)
{
    fresh();
    write_text(input, "{\"v\": 1}\n");
    ANSWERS(0, "imported 1\n", NULL, "import", "s", input);
    ANSWERS(0, "imported 0\n", "was imported before (--again", "import", "s", input);
    write_text(input, "{\"v\": 1}\n{\"v\": 2}\n");
    ANSWERS(0, "imported 1\n", "goes on at line 2", "import", "s", input);
    ANSWERS(0, "2\n", NULL, "count", "s");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input, "--again");
    ANSWERS(0, "4\n", NULL, "count", "s");
    ANSWERS(0, "removed 4\n", NULL, "delete", "s", "{}", "--many");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
}

/* The progress as it stood before the batch, which was written. */
static void forget_progress(void)
{
    ANSWERS(0, NULL, NULL, "update", "truce_imports", "{}",
            "{\"$set\": {\"offset\": {\"$numberLong\": \"0\"}, \"line\": {\"$numberLong\": \"0\"}, "
            "\"imported\": {\"$numberLong\": \"0\"}, \"done\": false, \"check\": {\"$numberLong\": "
            "\"-3750763034362895579\"}}}");
}

TEST(a_batch_that_was_written_before_a_crash_is_known_again)
{
    fresh();
    write_text(input, "{\"_id\": 1, \"v\": 1}\n{\"v\": 2}\n");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    forget_progress();
    ANSWERS(0, "imported 2\n", "goes on at line 1", "import", "s", input);
    ANSWERS(0, "2\n", NULL, "count", "s");
    forget_progress();
    ANSWERS(0, NULL, NULL, "update", "s", "{\"_id\": 1}", "{\"$set\": {\"v\": 3}}");
    ANSWERS(1, NULL, "goes on at line 1", "import", "s", input);
    ANSWERS(0, "{\"v\": 3}\n", NULL, "find", "s", "{\"_id\": 1}", "-p", "{\"_id\": 0}");
}

TEST(a_second_import_rejects_what_is_there_and_upsert_replaces_it)
{
    fresh();
    write_text(input, "{\"_id\": 1, \"v\": 1}\n{\"_id\": 2, \"v\": 1}\n");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(1, NULL, NULL, "import", "s", input, "--json", "--again");
    write_text(input, "{\"_id\": 2, \"v\": 2}\n{\"_id\": 3, \"v\": 2}\n");
    ANSWERS(0,
            "{\"imported\": 2, \"rejected\": 0, \"hash\": \"589d723761d1e53532acd5ab0f4cfda0\"}\n",
            NULL, "import", "s", input, "--json", "--upsert");
    ANSWERS(0, "{\"_id\": 1, \"v\": 1}\n{\"_id\": 2, \"v\": 2}\n{\"_id\": 3, \"v\": 2}\n", NULL,
            "find", "s", "--sort", "{\"_id\": 1}");
}

TEST(many_refused_lines_do_not_stop_the_others)
{
    FILE *file;

    fresh();
    file = fopen(input, "w");
    for (int i = 0; i < 3000; i++)
        fprintf(file, "{\"_id\": %d}\n", i % 7 == 0 ? 0 : i);
    fclose(file);
    ANSWERS(1, NULL, NULL, "import", "s", input, "--rejects", rejects, "--relaxed");
    ANSWERS(0, "2572\n", NULL, "count", "s");
}

TEST(a_pipe_is_imported)
{
    fresh();
    check(__LINE__,
          command_run(TRUCE_CLI, store, "{\"_id\": 1}\n{\"_id\": 2}", "import", "s", NULL), 0,
          "imported 2\n", NULL);
    check(__LINE__, command_run(TRUCE_CLI, store, "", "import", "s", "-", NULL), 0, "imported 0\n",
          NULL);
}

TEST(wrong_files_are_named)
{
    fresh();
    ANSWERS(2, "", "cannot be read: No such file", "import", "s", "/nowhere.ndjson");
    ANSWERS(0, "imported 0\n", NULL, "import", "s", "/dev/null");
    ANSWERS(3, "", "cannot be written", "export", "s", "-o", "/nowhere/out.ndjson");
}

#define KILL_LINES 30000

static void sleep_us(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* without _id: a line that is imported twice would be seen */
static void write_lines(void)
{
    FILE *file = fopen(input, "w");

    for (int i = 0; i < KILL_LINES; i++)
        fprintf(file, "{\"number\": %d, \"text\": \"%040d\"}\n", i, i);
    fclose(file);
}

TEST(an_import_that_is_killed_goes_on_and_imports_each_line_once)
{
    int kills = 0, status = 0;
    char *expected;

    fresh();
    write_lines();
    for (long delay = 15000;; delay += 5000) {
        pid_t child = command_start(TRUCE_CLI, store, "import", "s", input, "--batch", "100", NULL);

        sleep_us(delay);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        if (WIFEXITED(status))
            break;
        kills++;
    }
    CHECK_INT(kills, >, 0);
    CHECK_INT(WEXITSTATUS(status), ==, 0);
    expected = bson_strdup_printf("%d\n", KILL_LINES);
    ANSWERS(0, expected, NULL, "count", "s");
    ANSWERS(0, "{\"n\": 1}\n", NULL, "aggregate", "s",
            "[{\"$group\": {\"_id\": \"$number\", \"n\": {\"$sum\": 1}}}, {\"$group\": {\"_id\": "
            "\"$n\"}}, {\"$project\": {\"_id\": 0, \"n\": \"$_id\"}}]");
    ANSWERS(0, "1\n", NULL, "count", "truce_imports", "{\"done\": true}");
    bson_free(expected);
}

TEST(a_file_that_changed_under_an_import_is_refused)
{
    pid_t child;
    int status;

    fresh();
    write_lines();
    child = command_start(TRUCE_CLI, store, "import", "s", input, "--batch", "10", NULL);
    for (int i = 0; i < 500; i++) {
        sleep_us(10000);
        if (!strcmp(RUN("count", "s", "{}", "-n", "1")->out, "1\n"))
            break;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    write_text(input, "{\"other\": 1}\n");
    ANSWERS(2, "", "--again begins at its first line", "import", "s", input);
    ANSWERS(0, "imported 1\n", NULL, "import", "s", input, "--again");
}
