/* Sequences, requests, find-and-modify and waiting from the shell; tables, several lines, plain
 * documents. */
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[400];

static void fresh(void)
{
    snprintf(store, sizeof store, "%s/shell.truce", test_directory());
}

#define STORE(...) command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)

static void answers(int line, const struct command *c, int code, const char *out)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    test_check_text(out, c->out, __FILE__, line);
}
#define ANSWERS(code, out, ...) answers(__LINE__, STORE(__VA_ARGS__), code, out)

TEST(assigns_each_number_of_a_sequence_once)
{
    fresh();
    ANSWERS(0, "1\n", "sequence", "next", "s");
    ANSWERS(0, "2\n", "sequence", "next", "s", "--take", "10");
    ANSWERS(0, "12\n", "sequence", "next", "s");
    ANSWERS(0, "50\n", "sequence", "raise", "s", "50");
    ANSWERS(0, "50\n", "sequence", "raise", "s", "5");
    ANSWERS(0, "{\"first\": 51, \"last\": 51, \"status\": \"ok\"}\n", "sequence", "next", "s",
            "--json");
    ANSWERS(0, "51\n", "sequence", "last", "s");
    ANSWERS(0, "0\n", "sequence", "last", "other");
    ANSWERS(0, "{\"_id\": \"s\", \"value\": 51}\n", "sequence", "list");
    ANSWERS(2, "", "sequence", "raise", "s", "x");
}

TEST(a_request_is_done_by_a_program_and_in_one_commit)
{
    fresh();
    ANSWERS(0, "added k\n", "request", "add", "k", "ship", "{_id: 17}");
    ANSWERS(0, "added k\n", "request", "add", "k", "ship", "{_id: 17}");
    ANSWERS(1, "", "request", "add", "k", "ship", "{_id: 18}");
    ANSWERS(0, "0 done, 0 failed\n", "request", "run", "other", "false");
    ANSWERS(0, "1 done, 0 failed\n", "request", "run", "ship", "--", "sh", "-c",
            "echo \"[{insert: 'mail', with: $(cat)}]\"");
    ANSWERS(0, "{\"_id\": 17}\n", "find", "mail", "--plain");
    ANSWERS(0, "0 done, 0 failed\n", "request", "run", "ship", "false");
    CHECK(strstr(STORE("request", "show", "k")->out, "\"state\": \"done\""));
    ANSWERS(0, "added f\n", "request", "add", "f", "ship");
    ANSWERS(1, "0 done, 1 failed\n", "request", "run", "ship", "false");
    CHECK(strstr(STORE("request", "list", "--state", "waiting")->out,
                 "\"error\": \"false ended with exit code 1\""));
    ANSWERS(0, "added g\n", "request", "add", "g", "print");
    ANSWERS(1, "0 done, 1 failed\n", "request", "run", "print", "echo", "{}");
    CHECK(strstr(STORE("request", "show", "g")->out,
                 "the output of echo is not an array of changes"));
    ANSWERS(1, "", "request", "show", "h");
    CHECK_TEXT("truce: the request \"h\" does not exist\n", STORE("request", "show", "h")->err);
    ANSWERS(0, "added n\n", "request", "add", "n", "text");
    ANSWERS(1, "0 done, 1 failed\n", "request", "run", "text", "echo", "no JSON");
    CHECK(strstr(STORE("request", "show", "n")->out,
                 "\"error\": \"the output of echo is not an array of changes: column 1: "));
}

TEST(a_document_is_found_and_modified_in_one_step)
{
    fresh();
    STORE("insert", "j", "{_id: 1, n: 1}", "{_id: 2, n: 1}");
    ANSWERS(0, "{\"_id\": 2, \"n\": 1}\n", "modify", "j", "{n: 1}", "{$inc: {n: 1}}", "--sort",
            "{_id: -1}");
    ANSWERS(0, "{\"n\": 2}\n", "modify", "j", "{n: 1}", "{$inc: {n: 1}}", "--new", "-p",
            "{_id: 0}");
    ANSWERS(1, "", "modify", "j", "{n: 1}", "{$inc: {n: 1}}");
    ANSWERS(0, "{\"_id\": 1, \"n\": 2}\n", "modify", "j", "{_id: 1}", "--remove");
    ANSWERS(0, "{\"_id\": 9, \"n\": 1}\n", "modify", "j", "{_id: 9}", "{$inc: {n: 1}}", "--new",
            "--upsert");
    ANSWERS(2, "", "modify", "j", "{}");
    ANSWERS(2, "", "modify", "j", "{}", "{}", "--remove");
}

TEST(waiting_ends_with_a_match_a_write_or_the_time)
{
    int state = 0;
    pid_t waiting;

    fresh();
    STORE("insert", "j", "{_id: 1}");
    ANSWERS(0, "{\"_id\": 1}\n", "wait", "j", "{_id: 1}");
    ANSWERS(1, "", "wait", "j", "{_id: 2}", "--timeout", "0");
    ANSWERS(1, "", "wait", "j", "-q", "--timeout", "0");
    waiting = command_start(TRUCE_CLI, store, "wait", "j", "{_id: 3}", "--timeout", "100s", NULL);
    STORE("insert", "j", "{_id: 2}");
    STORE("insert", "j", "{_id: 3}");
    CHECK(waitpid(waiting, &state, 0) == waiting && WIFEXITED(state) && !WEXITSTATUS(state));
}

TEST(waiting_ends_with_the_deadline_or_an_interrupt)
{
    const struct command *c;

    fresh();
    STORE("insert", "j", "{_id: 1}");
    ANSWERS(1, "", "wait", "j", "{_id: 2}", "--deadline", "50ms");
    ANSWERS(1, "", "wait", "j", "{_id: 2}", "--deadline", "100s", "--timeout", "0");
    /* 124: it ended by the interrupt; 137: it had to be killed */
    c = command_run("/usr/bin/timeout", store, NULL, "-s", "INT", "-k", "100", "1", TRUCE_CLI,
                    "wait", "j", "{_id: 2}", NULL);
    CHECK_INT(c->code, ==, 124);
    c = command_run("/usr/bin/timeout", store, NULL, "-s", "INT", "-k", "100", "1", TRUCE_CLI,
                    "wait", "j", NULL);
    CHECK_INT(c->code, ==, 124);
}

TEST(tables_line_up_and_pretty_documents_have_lines)
{
    fresh();
    STORE("insert", "s", "{_id: 1, name: 'Ada', n: 5}", "{_id: 22, name: 'Bj\xc3\xb6rn', n: 10}",
          "{_id: 3, name: 'a\\nb', x: {a: [1]}}");
    ANSWERS(0,
            "_id  name   n   x\n"
            "  1  Ada     5  \n"
            " 22  Bj\xc3\xb6rn  10  \n"
            "  3  a\\nb       {\"a\": [1]}\n",
            "find", "s", "--table");
    ANSWERS(0, "count\n    3\n", "count", "s", "--table");
    ANSWERS(0, "{\"_id\": 1, \"name\": \"Ada\", \"n\": 5}\n", "find", "s", "-n1", "--pretty");
    STORE(
        "update", "s", "{_id: 1}",
        "{$set: {name: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}}");
    ANSWERS(0,
            "{\n  \"_id\": 1,\n  \"name\": "
            "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\n"
            "  \"n\": 5\n}\n",
            "find", "s", "-n1", "--pretty");
    ANSWERS(0, "name\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\n", "find", "s",
            "-n1", "--table", "-p", "{_id: 0, name: 1}");
    ANSWERS(2, "", "find", "s", "--pretty", "--table");
}

TEST(hides_truces_own_collections_on_request)
{
    fresh();
    STORE("set", "add", "s", "{id: 1}", "{name: 'x', room: 4}", "--seq", "2", "--list", "l",
          "--name", "name");
    STORE("set", "remove", "s", "{id: 1}", "{name: 'y'}", "--seq", "3");
    ANSWERS(0, "{\"id\": 1, \"l\": [{\"name\": \"x\", \"room\": 4}]}\n", "find", "s", "--plain",
            "-p", "{_id: 0}");
    CHECK(strstr(STORE("find", "s")->out, "deleted_l"));
    CHECK(strstr(STORE("collections", "list")->out, "truce_sets"));
    CHECK(!strstr(STORE("collections", "list", "--plain")->out, "truce_"));
    CHECK(!strstr(STORE("export", "s", "--plain")->out, "seq"));
}
