/* How the program reads a call: options anywhere, combined letters, common typing errors; and the
 * files that a refused call leaves. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[400];

static void fresh(void)
{
    const char *directory = test_directory();

    snprintf(store, sizeof store, "%s/call.truce", directory);
    for (size_t i = 0; i < 4; i++) {
        static const char *const ends[] = {"", "-wal", "-shm", "-lock"};
        char path[410];

        snprintf(path, sizeof path, "%s%s", store, ends[i]);
        unlink(path);
    }
}

#define RUN(...)   command_run(TRUCE_CLI, NULL, NULL, __VA_ARGS__, NULL)
#define STORE(...) command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)

static void answers(int line, const struct command *c, int code, const char *out)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    test_check_text(out, c->out, __FILE__, line);
}
#define ANSWERS(code, out, command) answers(__LINE__, command, code, out)

static bool is_there(void)
{
    struct stat about;

    return stat(store, &about) == 0;
}

TEST(accepts_options_anywhere)
{
    fresh();
    ANSWERS(0, "inserted 1\n", RUN("--store", store, "insert", "c", "{_id: 1}"));
    ANSWERS(0, "inserted 1\n", RUN("insert", "-s", store, "c", "{_id: 2}"));
    ANSWERS(0, "inserted 1\n", RUN("insert", "c", "{_id: 3}", "--store", store));
    ANSWERS(0, "{\"_id\": 3}\n", RUN("--sort", "{_id: -1}", "-n1", "find", "c", "-s", store));
    ANSWERS(0, "{\"_id\": 3}\n", RUN("-qn", "1", "--sort={_id: -1}", "find", "c", "-s", store));
    ANSWERS(0, "{\"created\": true}\n",
            RUN("--json", "index", "--name", "index", "create", "c", "{a: 1}", "-s", store));
    ANSWERS(0, "dropped index\n", RUN("index", "-s", store, "drop", "c", "index"));
}

TEST(accepts_several_option_letters_in_one_word)
{
    fresh();
    STORE("insert", "c", "{_id: 1}", "{_id: 2}");
    ANSWERS(0, "{\"_id\": 1}\n", STORE("find", "c", "-qjn1"));
    ANSWERS(0, "{\"_id\": 1}\n", STORE("find", "c", "-qjn", "1"));
    ANSWERS(0, "{\"count\": 2}\n", STORE("-jq", "count", "c"));
    CHECK_TEXT("truce: unknown option -z\n", STORE("find", "c", "-qz")->err);
    CHECK_TEXT("truce: --limit needs a value: N\n", STORE("find", "c", "-qn")->err);
}

TEST(treats_every_word_after_two_dashes_as_an_argument)
{
    fresh();
    ANSWERS(0, "created --json\n", STORE("collections", "create", "--", "--json"));
}

TEST(accepts_arguments_without_quotes)
{
    fresh();
    ANSWERS(0, "inserted 1\n", STORE("insert", "c", "{_id: 1, a: {b: 'x'}}"));
    ANSWERS(0, "{\"a\": {\"b\": \"x\"}}\n", STORE("find", "c", "{'a.b': 'x'}", "-p", "{_id: 0}"));
    ANSWERS(0, "{\"_id\": 1, \"n\": 1}\n",
            STORE("aggregate", "c", "[{$project: {n: {$literal: 1}}}]"));
    CHECK_INT(command_run(TRUCE_CLI, store, "{_id: 2}\n", "insert", "c", NULL)->code, ==, 2);
}

TEST(a_refused_call_makes_no_store)
{
    fresh();
    CHECK_INT(STORE("insert", "c", "{a: ")->code, ==, 2);
    CHECK_INT(STORE("update", "c", "{a: {$foo: 1}}", "{$set: {a: 1}}", "--upsert")->code, ==, 2);
    CHECK_INT(STORE("update", "c", "{}", "{$foo: {a: 1}}", "--upsert")->code, ==, 2);
    CHECK_INT(STORE("index", "create", "c", "{a: 7000}", "--expire-after", "x")->code, ==, 2);
    CHECK_INT(STORE("collections", "create", "a$b")->code, ==, 2);
    CHECK_INT(STORE("import", "c", "no/such/file")->code, ==, 2);
    CHECK_INT(STORE("commit", "apply", "[{insert: 'c'}]")->code, ==, 2);
    CHECK_INT(command_run(TRUCE_CLI, store, "{a: 1}\n", "insert", "c", NULL)->code, ==, 2);
    CHECK_INT(STORE("import", "c$", "no/such/file")->code, ==, 2);
    CHECK_INT(command_run(TRUCE_CLI, store, "{a: 1}\n", "import", "c$", NULL)->code, ==, 2);
    CHECK_INT(
        command_run(TRUCE_CLI, store, "{\"a\": 1}\n", "import", "c", "--database", "a b", NULL)
            ->code,
        ==, 2);
    CHECK_INT(
        command_run(TRUCE_CLI, store, "no JSON\n", "import", "c", "--rejects", "/dev/null", NULL)
            ->code,
        ==, 1);
    CHECK(!is_there());
    ANSWERS(0, "inserted 2\n",
            command_run(TRUCE_CLI, store, "{\"a\": 1}\n{\"a\": 2}\n", "insert", "c", NULL));
    CHECK(is_there());
}

/* These commands change only what exists. */
TEST(a_change_of_a_store_that_does_not_exist_fails)
{
    fresh();
    ANSWERS(3, "", STORE("update", "c", "{a: 1}", "{$set: {a: 2}}"));
    CHECK(strstr(STORE("update", "c", "{a: 1}", "{$set: {a: 2}}")->err, "does not exist"));
    CHECK(strstr(STORE("modify", "c", "{a: 1}", "{$set: {a: 2}}")->err, "does not exist"));
    CHECK(strstr(STORE("delete", "c", "{a: 1}")->err, "does not exist"));
    CHECK(!is_there());
    ANSWERS(0, "matched 0, inserted 1\n",
            STORE("update", "c", "{_id: 1}", "{$set: {a: 2}}", "--upsert"));
    CHECK_INT(unlink(store), ==, 0);
    /* A worker may be the first program that uses a store. */
    for (int i = 0; i < 2; i++) {
        const struct command *c = STORE("work", "--queue", "mail", "--drain", "--exec", "true");

        CHECK_INT(c->code, ==, 0);
        CHECK_INT(strstr(c->err, "did not exist and was created") != NULL, ==, !i);
    }
}

TEST(one_unreadable_value_of_several_stores_nothing)
{
    fresh();
    for (int existing = 0; existing < 2; existing++) {
        ANSWERS(2, "", STORE("insert", "c", "{_id: 1}", "{x"));
        ANSWERS(2, "", STORE("queue", "add", "q", "{a: 1}", "{b"));
        CHECK_INT(is_there(), ==, existing);
        STORE("insert", "d", "{}");
        ANSWERS(0, "0\n", STORE("count", "c"));
    }
    /* The store refuses the second document. A new store is not created; otherwise, the first one
     * stays. */
    ANSWERS(2, "inserted 1\n", STORE("insert", "c", "{_id: 1}", "{_id: [2]}"));
    ANSWERS(0, "1\n", STORE("count", "c"));
    CHECK_INT(unlink(store), ==, 0);
    ANSWERS(2, "", STORE("insert", "c", "{_id: 1}", "{_id: [2]}"));
    CHECK(!is_there());
}

TEST(an_input_that_is_missing_is_wrong_usage_everywhere)
{
    fresh();
    STORE("insert", "c", "{}");
    CHECK_INT(STORE("import", "c", "no/such/file")->code, ==, 2);
    CHECK_INT(STORE("set", "apply", "no/such/file", "c", "--list", "l", "--key", "k", "--name", "n",
                    "--message-element", "e")
                  ->code,
              ==, 2);
    CHECK_INT(STORE("commit", "apply", "--file", "no/such/file")->code, ==, 2);
    CHECK_INT(STORE("verify", "no/such/file")->code, ==, 2);
    /* a store that is missing is another matter */
    CHECK_INT(RUN("salvage", "no/such/file", store)->code, ==, 3);
    CHECK_INT(RUN("copy", "no/such/file", store)->code, ==, 3);
    CHECK_INT(RUN("find", "c", "--store", "no/such/file")->code, ==, 3);
    ANSWERS(2, "", RUN("count", "c", "--store", "memory:"));
    CHECK(strstr(RUN("count", "c", "--store", "memory:")->err,
                 "is empty at the beginning of each command"));
}

TEST(reports_an_unreachable_server_soon)
{
    struct timespec from, to;
    const struct command *c;

    clock_gettime(CLOCK_MONOTONIC, &from);
    c = RUN("find", "c", "--store", "mongodb://127.0.0.1:9/school");
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK_INT(c->code, ==, 3);
    CHECK(strstr(c->err, "no server was reached in "));
    CHECK(strstr(c->err, " s: no reply from 127.0.0.1:9 (check that it runs"));
    CHECK(!strstr(c->err, "serverSelection"));
    CHECK_INT(to.tv_sec - from.tv_sec, <, 25); /* without it: 30; with it 4, on an idle machine */
}

/* ---- files after a call ---------------------------------------------------------------------- */

static void fill(void)
{
    char *script = bson_strdup_printf("for i in $(seq 3000); do echo \"{\\\"_id\\\": $i}\"; done | "
                                      "\"%s\" import c - --store '%s'",
                                      TRUCE_CLI, store);

    CHECK_INT(command_run("/bin/bash", NULL, NULL, "-c", script, NULL)->code, ==, 0);
    bson_free(script);
}

TEST(a_killed_export_leaves_no_incomplete_file)
{
    char *script;

    fresh();
    fill();
    script = bson_strdup_printf(
        "cd \"$(dirname '%s')\"\n"
        "for i in 1 2 3 4 5; do\n"
        "    '%s' export c -o out -q --store '%s' >/dev/null & sleep 0.0$i; kill -9 $!; wait\n"
        "    [ ! -e out ] || [ $(wc -l <out) = 3000 ] || echo torn\n"
        "    rm -f out\n"
        "done 2>/dev/null; ls | grep -v '^call.truce'",
        store, TRUCE_CLI, store);
    CHECK_TEXT("", command_run("/bin/bash", NULL, NULL, "-c", script, NULL)->out);
    bson_free(script);
}

TEST(an_export_writes_into_a_pipe_and_does_not_replace_it)
{
    char *script;

    fresh();
    STORE("insert", "c", "{_id: 1}");
    script =
        bson_strdup_printf("cd \"$(dirname '%s')\" && mkfifo p && { timeout 20 cat p >got & } &&\n"
                           "'%s' export c -o p --relaxed -q --store '%s' && wait\n"
                           "[ -p p ] && cat got; rm -f p got",
                           store, TRUCE_CLI, store);
    CHECK_TEXT("exported 1\n{\"_id\": 1}\n",
               command_run("/bin/bash", NULL, NULL, "-c", script, NULL)->out);
    bson_free(script);
}

TEST(the_processes_of_a_demonstration_end_with_it)
{
    static const char script[] =
        "export TMPDIR=\"$2\"\n"
        "\"$1\" demo badges --duration 200s >/dev/null 2>&1 & parent=$!\n"
        "for i in $(seq 600); do\n"
        "    children=$(cat /proc/$parent/task/$parent/children)\n"
        "    [ $(echo $children | wc -w) -ge 5 ] && break; sleep 0.05\n"
        "done\n"
        "[ $(echo $children | wc -w) -ge 5 ] || echo none began\n"
        "kill -9 $parent; wait 2>/dev/null\n"
        "for i in $(seq 200); do\n"
        "    left=; for child in $children; do grep -qs '^State:[[:space:]]*[^ZX]' /proc/$child/status "
        "&& left=$child; done\n"
        "    [ -z \"$left\" ] && break; sleep 0.05\n"
        "done\n"
        "[ -z \"$left\" ] || { echo left behind; kill -9 $children; }\n";
    const struct command *c = command_run("/bin/bash", NULL, NULL, "-c", script, "bash", TRUCE_CLI,
                                          test_directory(), NULL);

    CHECK_TEXT("", c->out);
}

TEST(does_not_take_a_port_for_a_file)
{
    const struct command *c = RUN("serve", "27017");

    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, "27017 looks like a port, not a store: use --port 27017"));
    CHECK(access("27017", F_OK));
}

TEST(shows_only_a_store_that_exists)
{
    const struct command *c = RUN("ui", "missing.truce", "--no-open");

    CHECK_INT(c->code, !=, 0);
    CHECK(strstr(c->err, "the store \"missing.truce\" does not exist"));
    CHECK(access("missing.truce", F_OK));
    c = RUN("ui", "--no-open");
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, "truce ui PATH"));
}
