/* truce copy: answers, wrong calls, kill -9 in the middle. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/copy_stores.h"

static char from[300], to[300];

static void fresh(void)
{
    const char *directory = test_directory();

    snprintf(from, sizeof from, "%s/from.truce", directory);
    snprintf(to, sizeof to, "%s/to.truce", directory);
}

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out ? !strstr(c->out, out) : *c->out != '\0')
        test_fail(__FILE__, line, "the answer is \"%s\", not \"%s\"", c->out, out ? out : "");
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
/* expected parts of the answer and of the error; NULL: empty */
#define ANSWERS(code, out, err, ...)                                                               \
    check(__LINE__, command_run(TRUCE_CLI, NULL, NULL, __VA_ARGS__, NULL), code, out, err)

TEST(a_store_is_copied_and_compared_again)
{
    fresh();
    ANSWERS(0, "inserted 2", NULL, "insert", "people", "{\"_id\": 1}", "{\"_id\": 2}", "-s", from);
    ANSWERS(0, "2 documents of 1 collection, the same in both: 2 inserted", NULL, "copy", from, to);
    ANSWERS(0, "the same in both: 0 inserted", NULL, "copy", from, to);
    ANSWERS(0, "\"verified\": true}\n", NULL, "copy", from, to, "--json");
    ANSWERS(0, "{\"_id\": 2}", NULL, "find", "people", "-s", to);
}

TEST(lists_differences_and_exits_with_1)
{
    fresh();
    ANSWERS(0, "inserted 2", NULL, "insert", "people", "{\"_id\": 1}", "{\"_id\": 2}", "-s", from);
    ANSWERS(1, "people {\"$numberInt\": \"1\"} is missing\n", NULL, "copy", from, to, "--dry-run");
    CHECK(access(to, F_OK) != 0);
    ANSWERS(0, "2 inserted", NULL, "copy", from, to);
    ANSWERS(0, "modified 1", NULL, "update", "people", "{\"_id\": 1}", "{\"$set\": {\"a\": 5}}",
            "-s", to);
    ANSWERS(1,
            "people {\"$numberInt\": \"1\"}: a is {\"$numberInt\": \"5\"}, but in FROM nothing\n",
            "--replace makes TO equal to FROM", "copy", from, to);
    ANSWERS(1, "2 documents of 1 collection compared, differences: 1", NULL, "copy", from, to,
            "-q");
    ANSWERS(1, "\"difference\": \"other\", \"field\": \"a\", \"to\": {\"$numberInt\": \"5\"}}\n",
            NULL, "copy", from, to, "-j", "-n");
    ANSWERS(0, "1 replaced", NULL, "copy", from, to, "--replace");
}

TEST(a_backup_to_an_earlier_one_is_only_compared)
{
    fresh();
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{_id: 1}", "-s", from);
    ANSWERS(0, "1 inserted", NULL, "backup", to, "-s", from);
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{_id: 2}", "-s", from);
    ANSWERS(1, "2 documents of 1 collection compared, differences: 1\n",
            "1 collection differs and was not changed, because TO has a complete earlier copy: "
            "--replace",
            "backup", to, "-s", from);
    ANSWERS(0, "inserted 1", NULL, "insert", "places", "{_id: 1}", "-s", from);
    ANSWERS(1, ", differences: 1; 1 inserted, 0 replaced, 0 removed\n",
            "1 collection differs and was not changed", "backup", to, "-s", from);
    ANSWERS(0, "1 inserted", NULL, "backup", to, "-s", from, "--replace");
}

TEST(compares_the_same_database_of_both_stores)
{
    fresh();
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{_id: 1}", "-s", from, "--database",
            "shop");
    ANSWERS(0, "1 inserted", NULL, "copy", from, to, "--database", "shop");
    ANSWERS(0, "the same in both", NULL, "copy", from, to, "--database", "shop", "--dry-run");
    ANSWERS(0, "{\"_id\": 1}", NULL, "find", "people", "-s", to, "--database", "shop");
}

TEST(documents_of_others_are_refused_with_the_way_out)
{
    fresh();
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{\"_id\": 1}", "-s", from);
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{\"_id\": 9}", "-s", to);
    ANSWERS(1, NULL, "\"people\" of the target store already has documents: --merge adds to it",
            "copy", from, to);
    ANSWERS(0, ", 1 kept", NULL, "copy", from, to, "--merge");
}

TEST(copies_a_part_of_a_store_and_names_the_rest)
{
    fresh();
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{\"_id\": 1}", "-s", from);
    ANSWERS(0, "1 inserted", NULL, "copy", from, to, "-c", "people");
    ANSWERS(0, "\"n\": 1", NULL, "command", "{insert: 'truce_sets', documents: [{_id: 1}]}", "-s",
            from);
    ANSWERS(0, "0 inserted", "not copied: truce_sets", "copy", from, to, "-c", "people");
    ANSWERS(0, "2 documents of 2 collections", NULL, "copy", from, to, "-c", "truce_sets", "-c",
            "people");
}

TEST(open_commits_are_refused_with_the_way_out)
{
    fresh();
    ANSWERS(
        0, "\"n\": 1", NULL, "command",
        "{insert: 'truce_commits', documents: [{_id: {$oid: '0123456789abcdef01234567'}, state: "
        "'pending'}]}",
        "-s", from);
    ANSWERS(1, NULL, "1 commit is pending in the source store: end the writers", "copy", from, to);
    ANSWERS(0, "1 inserted", NULL, "copy", from, to, "--live");
}

TEST(refuses_wrong_calls_of_copy_with_the_reason)
{
    char same[310], side[310];

    fresh();
    snprintf(same, sizeof same, "file:%s", from);
    ANSWERS(0, "inserted 1", NULL, "insert", "people", "{\"_id\": 1}", "-s", from);
    snprintf(side, sizeof side, "%s-wal", from);
    ANSWERS(2, NULL, "is the name of a side file of the store", "copy", from, side);
    ANSWERS(2, NULL, "is the name of a side file of the store", "count", "people", "-s", side);
    ANSWERS(2, NULL, "TO is missing; usage: truce copy FROM TO", "copy", from);
    ANSWERS(2, NULL, "FROM and TO are the same store", "copy", from, same);
    ANSWERS(2, NULL, "exclude each other", "copy", from, to, "--merge", "--replace");
    ANSWERS(2, NULL, "takes both stores as arguments", "copy", from, to, "-s", from);
    ANSWERS(2, NULL, "unknown kind of store \"http\"", "copy", from, "http://x/y");
    ANSWERS(2, NULL, "append /NAME to the URI", "copy", from, "mongodb://user:secret@127.0.0.1:9");
    ANSWERS(3, NULL, "the store \"/nowhere\" does not exist", "copy", "/nowhere", to);
    ANSWERS(3, NULL, "/nowhere/to.truce", "copy", from, "/nowhere/to.truce");
    ANSWERS(3, NULL, "127.0.0.1:9", "copy", from,
            "mongodb://user:secret@127.0.0.1:9/x?serverSelectionTimeoutMS=200");
    ANSWERS(1, NULL, "the collection \"peple\" to copy does not exist: did you mean \"people\"?",
            "copy", from, to, "-c", "peple");
    CHECK(access(to, F_OK) != 0);
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

#define DOCUMENTS 8000

static void fill(void)
{
    static truce_write writes[1000];
    static truce_write_outcome outcomes[1000];
    truce_store *store = copy_store(from);
    bson_error_t error;

    for (int at = 0; at < DOCUMENTS; at += 1000) {
        for (int i = 0; i < 1000; i++) {
            char text[60];

            snprintf(text, sizeof text, "%050d", at + i);
            writes[i] = (truce_write){
                .kind = TRUCE_WRITE_INSERT,
                .collection = "many",
                .document = BCON_NEW("_id", BCON_INT32(at + i), "text", BCON_UTF8(text))};
        }
        CHECK_OK(truce_bulk(store, writes, 1000, NULL, outcomes, &error), error);
        for (int i = 0; i < 1000; i++)
            bson_destroy((bson_t *)writes[i].document);
    }
    copy_index(store, "many", "{'key': {'text': 1}, 'unique': true}");
    truce_store_close(store);
}

TEST(resumes_a_killed_copy_and_copies_each_document_once)
{
    truce_store *one, *two;
    int kills = 0, status = 0;

    fresh();
    fill();
    for (long delay_ms = 20;; delay_ms += 60) {
        pid_t child = command_start(TRUCE_CLI, NULL, "copy", from, to, "--batch", "20", NULL);

        nanosleep(
            &(struct timespec){.tv_sec = delay_ms / 1000, .tv_nsec = delay_ms % 1000 * 1000000},
            NULL);
        kill(child, kills % 2 ? SIGINT : SIGKILL);
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) != 130) /* that is SIGINT, in order */
            break;
        kills++;
    }
    CHECK_INT(kills, >, 0);
    CHECK_INT(WEXITSTATUS(status), ==, 0);
    one = copy_store(from);
    two = copy_store(to);
    CHECK_INT(copy_count(two, "many", "{}"), ==, DOCUMENTS);
    CHECK_INT(copy_count(two, "truce_copies", "{'state': 'done'}"), ==, 1);
    CHECK_SAME(one, two);
    truce_store_close(one);
    truce_store_close(two);
}
