/* truce set: one operation, files of messages, bad lines, and kill -9 of everything. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/support/command.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"

static const struct command *truce(const char *store, const char *input, const char *a,
                                   const char *b, const char *c, const char *d)
{
    return command_run(TRUCE_CLI, store, input, "set", a, b, c, d, NULL);
}

static const char *fresh_store(void)
{
    static char path[400];

    snprintf(path, sizeof path, "%s/school.truce", test_directory());
    command_run(TRUCE_CLI, path, NULL, "set", "define", "students", "--list", "classes", "--key",
                "student_id", "--name", "name", NULL);
    return path;
}

#define STUDENTS "students", "--message-element", "class"

static void check_answer(const struct command *command, int code, const char *out)
{
    CHECK_INT(command->code, ==, code);
    CHECK_TEXT(out, command->out);
}

TEST(prints_the_result_of_each_operation)
{
    const char *store = fresh_store(), *key = "{\"student_id\": 1}";
    const char *element = "{\"name\": \"CS 101\"}";
    const struct command *command;

    check_answer(truce(store, NULL, "remove", "students", key, element), 2, "");
    command = command_run(TRUCE_CLI, store, NULL, "set", "remove", "students", key, element,
                          "--seq", "1002", NULL);
    check_answer(command, 0, "applied\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "students", key, element, "--seq",
                          "1001", NULL);
    check_answer(command, 0, "stale\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "remove", "students", key, element,
                          "--seq", "1002", "--json", NULL);
    check_answer(command, 0, "{\"outcome\": \"duplicate\", \"status\": \"ok\"}\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "students", key,
                          "{\"nme\": \"CS 101\"}", "--seq", "1001", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK_TEXT("truce: the element has no field \"name\", which names the elements of set "
               "\"students.classes\"\n",
               command->err);
    command = command_run(TRUCE_CLI, store, NULL, "set", "show", "students", key, NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "\"deleted_classes\": [{\"name\": \"CS 101\", \"seq\": 1002}]"));
    command =
        command_run(TRUCE_CLI, store, NULL, "set", "show", "students", "{\"student_id\": 2}", NULL);
    CHECK_INT(command->code, ==, 1);
}

TEST(manages_consumers_watermarks_and_the_quarantine_by_commands)
{
    const char *store = fresh_store(), *key = "{\"student_id\": 1}";
    const struct command *command;

    command = command_run(TRUCE_CLI, store, NULL, "set", "remove", "students", key,
                          "{\"name\": \"a\"}", "--seq", "1", "--consumer", "c1", NULL);
    check_answer(command, 0, "applied\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "void", "students", "--from", "2", "--to",
                          "4", NULL);
    check_answer(command, 0, "void 3\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "watermark", "students", "-q", NULL);
    CHECK(!strncmp(command->out, "watermark 4\n", 12));
    command = command_run(TRUCE_CLI, store, NULL, "set", "collect", "students", NULL);
    check_answer(command, 0, "collected 1 tombstone of 1 document, up to watermark 4\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "students", key,
                          "{\"name\": \"a\"}", "--seq", "3", NULL);
    check_answer(command, 1, "quarantined\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "void", "students", "--below",
                          "1700000000001", NULL);
    check_answer(command, 0, "below 1700000000001\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "watermark", "students", "-q", NULL);
    CHECK(!strncmp(command->out, "watermark 1700000000000\n", 24));
    command = command_run(TRUCE_CLI, store, NULL, "set", "void", "students", "--below", "9",
                          "--from", "3", NULL);
    CHECK_INT(command->code, ==, 2);
    command = command_run(TRUCE_CLI, store, NULL, "set", "quarantine", "students", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->out, "number 3 was declared void"));
    command =
        command_run(TRUCE_CLI, store, NULL, "set", "quarantine", "students", "--seq", "5", NULL);
    CHECK_INT(command->code, ==, 2);
    command = command_run(TRUCE_CLI, store, NULL, "set", "quarantine", "students", "--replay",
                          "--seq", "4", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "number 4 is not above"));
    command = command_run(TRUCE_CLI, store, NULL, "set", "quarantine", "students", "--replay",
                          "--seq", "5", NULL);
    check_answer(command, 0, "applied 1, stale 0, duplicate 0; the next number is 6\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "quarantine", "students", NULL);
    CHECK_INT(command->code, ==, 0);
    command =
        command_run(TRUCE_CLI, store, NULL, "set", "start", "students", "--source", "web", NULL);
    check_answer(command, 0, "first 5\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "idle", "students", "--source", "web",
                          "--below", "9", NULL);
    check_answer(command, 0, "below 9\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "idle", "students", "--source", "wbe",
                          "--below", "9", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->err, "has no source \"wbe\": expected \"\", \"web\"; ") != NULL);
}

/* ---- files of messages ---- */

struct messages {
    struct model_operation *operations;
    int count, keys, names;
    char path[400];
};

/* Shuffled, one in ten twice; the element contains the fields that model_check reads. */
static void write_messages(struct messages *messages, const char *store, int count, int keys,
                           uint64_t seed)
{
    int *arrival = bson_malloc((size_t)(count + count / 10) * sizeof *arrival);
    int arrivals = count + count / 10;
    struct random random;
    FILE *file;

    *messages = (struct messages){.count = count, .keys = keys, .names = 4};
    snprintf(messages->path, sizeof messages->path, "%s.ndjson", store);
    messages->operations = bson_malloc((size_t)count * sizeof *messages->operations);
    truce__random_seed(&random, seed);
    for (int i = 0; i < count; i++)
        messages->operations[i] =
            (struct model_operation){.add = truce__random_below(&random, 3) > 0,
                                     .seq = i + 1,
                                     .key = (int)truce__random_below(&random, (uint64_t)keys),
                                     .name = (int)truce__random_below(&random, 4)};
    for (int i = 0; i < arrivals; i++)
        arrival[i] = i < count ? i : (int)truce__random_below(&random, (uint64_t)count);
    file = fopen(messages->path, "w");
    if (!file)
        abort();
    for (int i = arrivals - 1; i >= 0; i--) {
        int other = (int)truce__random_below(&random, (uint64_t)i + 1), chosen = arrival[other];
        const struct model_operation *operation = &messages->operations[chosen];

        arrival[other] = arrival[i];
        fprintf(file,
                "{\"operation\": \"%s\", \"student_id\": %d, \"class\": {\"name\": \"CS %d\", "
                "\"from\": \"- %lld\"}, \"sequence_number\": %lld}\n",
                operation->add ? "insert" : "delete", operation->key, operation->name,
                (long long)operation->seq, (long long)operation->seq);
    }
    fclose(file);
    bson_free(arrival);
}

static void check_messages(const struct messages *messages, const char *store)
{
    char uri[450];
    truce_store *opened;
    truce_set *set;
    bson_error_t error;
    int64_t watermark, documents;

    snprintf(uri, sizeof uri, "file:%s", store);
    if (!CHECK_OK(truce_store_open(uri, NULL, &opened, &error), error))
        return;
    set = tutorial_set(opened, NULL);
    for (int key = 0; key < messages->keys; key++)
        model_check(set, messages->operations, (size_t)messages->count, NULL, key, messages->names,
                    true, "the file of messages");
    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, messages->count);
    CHECK_OK(truce_count(opened, "students", NULL, NULL, &documents, &error), error);
    CHECK_INT(documents, <=, messages->keys);
    truce_set_free(set);
    truce_store_close(opened);
}

TEST(a_file_of_messages_ends_as_the_in_order_run)
{
    const char *store = fresh_store();
    struct messages messages;
    const struct command *command;

    write_messages(&messages, store, 5000, 60, test_seed());
    command = command_run(TRUCE_CLI, store, NULL, "set", "apply", messages.path, STUDENTS,
                          "--workers", "5", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(!strncmp(command->out, "5500 messages: ", 15));
    CHECK_TEXT("", command->err);
    check_messages(&messages, store);
    command = command_run(TRUCE_CLI, store, NULL, "set", "apply", messages.path, STUDENTS, "--json",
                          NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "\"done_before\": 5500"));
    command = command_run(TRUCE_CLI, store, NULL, "set", "apply", messages.path, STUDENTS,
                          "--again", "--workers", "2", "--json", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "\"applied\": 0,"));
    check_messages(&messages, store);
    bson_free(messages.operations);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = bson_malloc0(1 << 20);

    if (file) {
        text[fread(text, 1, (1 << 20) - 1, file)] = 0;
        fclose(file);
    } else {
        strcpy(text, "(no file)");
    }
    return text;
}

/* Uses the unchanged line of `truce help set apply`. */
TEST(the_message_that_the_help_shows_is_read_without_an_option)
{
    const char *store = fresh_store();
    const struct command *command =
        command_run(TRUCE_CLI, NULL, NULL, "help", "set", "apply", NULL);
    const char *line = strstr(command->out, "    {\"operation\"");
    char message[200] = "";

    if (!CHECK(line))
        return;
    snprintf(message, sizeof message, "%.*s\n", (int)strcspn(line, "\n"), line);
    command = command_run(TRUCE_CLI, store, message, "set", "apply", "-", "students", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "1 applied"));
    command = command_run(TRUCE_CLI, store, "{\"operation\": \"insert\", \"student_id\": 1}\n",
                          "set", "apply", "-", "students", NULL);
    CHECK_INT(command->code, ==, 1);
}

static const char bad_lines[] =
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"CS 101\", \"sequence_number\": 1}\n"
    "this is no message\n"
    "{\"operation\": \"insert\", \"class\": \"CS 101\", \"sequence_number\": 2}\n"
    "{\"operation\": \"enrol\", \"student_id\": 1, \"class\": \"CS 101\", \"sequence_number\": 3}\n"
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"CS 101\", \"sequence_number\": "
    "4.5}\n"
    "\n"
    "{\"operation\": \"insert\", \"student_id\": [1], \"class\": \"CS 101\", \"sequence_number\": "
    "5}\n"
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": {\"nme\": \"CS\"}, "
    "\"sequence_number\": 6}\n"
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"\xff\xfe\", \"sequence_number\": "
    "7}\n"
    "{\"operation\": \"delete\", \"student_id\": 1, \"class\": \"CS 102\", \"sequence_number\": "
    "8}\n"
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"CS 101\", \"sequence_number\": "
    "1.8e16}\n"
    "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"CS 101\", \"sequence_number\": 9, "
    "\"sequence_number\": 10}\n";

TEST(writes_bad_lines_to_the_reject_file_and_applies_the_rest)
{
    static const char *const expected[] = {
        "{\"line\": 2, \"reason\": \"column 1: ",
        "{\"line\": 3, \"reason\": \"the field \\\"student_id\\\" is missing (--message-key names it)\"",
        "{\"line\": 4, \"reason\": \"the field \\\"operation\\\" is \\\"enrol\\\", and must be insert "
        "or delete\"",
        "{\"line\": 5, \"reason\": \"the field \\\"sequence_number\\\" is 4.5, and must be a whole "
        "number from 1\"",
        "{\"line\": 7, \"reason\": \"the key's field \\\"student_id\\\" is [1], which cannot identify a "
        "document\"",
        "{\"line\": 8, \"reason\": \"the element has no field \\\"name\\\"",
        "{\"line\": 9, \"reason\": ",
        "{\"line\": 11, \"reason\": \"the field \\\"sequence_number\\\" is 1.8e+16, and must be "
        "below 2^53 as a double",
        "{\"line\": 12, \"reason\": \"the field \\\"sequence_number\\\" occurs twice\""};
    const char *store = fresh_store();
    char path[450], rejects[500], *text, *at;
    const struct command *command;
    FILE *file;

    snprintf(path, sizeof path, "%s.ndjson", store);
    snprintf(rejects, sizeof rejects, "%s.rejects", path);
    file = fopen(path, "w");
    REQUIRE(file);
    fputs(bad_lines, file);
    fclose(file);
    for (int i = 0; i < 2; i++) { /* the second run finds it done */
        const char *summary = i ? "11 messages: 0 applied now, 2 by an earlier run, 0 stale, 0 "
                                  "duplicate, 0 quarantined, 9 rejected, see "
                                : "11 messages: 2 applied, 0 stale, 0 duplicate, 0 quarantined, 9 "
                                  "rejected, see ";

        command = command_run(TRUCE_CLI, store, NULL, "set", "apply", path, STUDENTS, NULL);
        CHECK_INT(command->code, ==, 1);
        CHECK(!strncmp(command->out, summary, strlen(summary)));
        text = read_file(rejects);
        at = text;
        for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
            char *end = strchr(at, '\n');

            if (strncmp(at, expected[k], strlen(expected[k])))
                test_fail(__FILE__, __LINE__, "wanted %s, got %s", expected[k], at);
            REQUIRE(end);
            at = end + 1;
        }
        CHECK_TEXT("", at);
        bson_free(text);
    }
    command =
        command_run(TRUCE_CLI, store, NULL, "set", "show", "students", "{\"student_id\": 1}", NULL);
    CHECK(strstr(command->out, "\"classes\": [{\"name\": \"CS 101\", \"seq\": 1}]"));
}

TEST(a_line_over_the_limit_is_rejected)
{
    const char *store = fresh_store();
    char *line = bson_malloc(2 * 1024 * 1024 + 200);
    char rejects[450];
    const struct command *command;
    size_t at =
        (size_t)sprintf(line, "{\"operation\": \"insert\", \"student_id\": 1, \"class\": \"");

    memset(line + at, 'x', 2 * 1024 * 1024);
    strcpy(line + at + 2 * 1024 * 1024, "\", \"sequence_number\": 1}\n");
    snprintf(rejects, sizeof rejects, "%s.out", store);
    command = command_run(TRUCE_CLI, store, line, "set", "apply", "-", STUDENTS, "--rejects",
                          rejects, NULL);
    CHECK_INT(command->code, ==, 1);
    bson_free(line);
    line = read_file(rejects);
    CHECK(strstr(line, "\"reason\": \"the line has 2097"));
    CHECK(strstr(line, "\"cut\": true"));
    bson_free(line);
}

TEST(applies_a_pipe_like_a_file)
{
    const char *store = fresh_store();
    const struct command *command = command_run(
        TRUCE_CLI, store,
        "{\"op\": \"add\", \"cart\": 7, \"item\": {\"sku\": \"x\", \"count\": 2}, \"n\": 1, \"by\": "
        "\"web\"}\n"
        "{\"op\": \"remove\", \"cart\": 7, \"item\": \"y\", \"n\": 2, \"by\": \"web\"}\n",
        "set", "apply", "-", "carts", "--list", "items", "--key", "id", "--name", "sku",
        "--message-operation", "op", "--message-key", "cart", "--message-element", "item",
        "--message-seq", "n", "--message-source", "by", NULL);

    CHECK_INT(command->code, ==, 0);
    command = command_run(TRUCE_CLI, store, NULL, "set", "show", "carts", "{\"id\": 7}", "--list",
                          "items", NULL);
    CHECK(strstr(command->out, "\"items\": [{\"sku\": \"x\", \"seq\": 1, \"src\": \"web\", "
                               "\"count\": 2}]"));
    CHECK(strstr(command->out, "\"deleted_items\": [{\"sku\": \"y\", \"seq\": 2, \"src\": "
                               "\"web\"}]"));
}

TEST(names_the_missing_options_of_a_set)
{
    const char *store = fresh_store(), *key = "{cart: 7}", *item = "{sku: 'a'}";
    const struct command *command;

    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "carts", key, item, "--seq", "1",
                          "--name", "sku", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "carts has no set yet: --list is missing"));
    command = command_run(TRUCE_CLI, store, NULL, "set", "define", "carts", "--list", "items",
                          "--name", "sku", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "--key is missing"));
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "carts", key, item, "--seq", "1",
                          "--list", "items", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "--name is missing"));
    check_answer(command_run(TRUCE_CLI, store, NULL, "count", "carts", NULL), 0, "0\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "carts", key, item, "--seq", "1",
                          "--list", "items", "--name", "sku", NULL);
    check_answer(command, 0, "applied\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "carts", key, item, "--seq", "1",
                          NULL); /* the only set of carts */
    check_answer(command, 0, "duplicate\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "define", "carts", "--list", "wishes",
                          "--key", "cart", "--name", "sku", "--watermark-field", "_wm2", NULL);
    check_answer(command, 0, "defined carts.wishes\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "show", "carts", key, NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "choose one with --list: items, wishes"));
}

TEST(a_set_that_was_defined_by_mistake_is_forgotten)
{
    const char *store = fresh_store(), *key = "{student_id: 1}";
    const struct command *command;

    check_answer(command_run(TRUCE_CLI, store, NULL, "set", "forget", "students", NULL), 0,
                 "forgotten students.classes\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "forget", "students", "--list", "classes",
                          "--key", "student_id", "--name", "name", NULL);
    CHECK_INT(command->code, ==, 1);
    fresh_store();
    command = command_run(TRUCE_CLI, store, NULL, "set", "add", "students", key, "{name: 'x'}",
                          "--seq", "1", "--consumer", "a", NULL);
    check_answer(command, 0, "applied\n");
    command = command_run(TRUCE_CLI, store, NULL, "set", "forget", "students", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->err, "contain the list \"classes\", so"));
    CHECK(strstr(command->err, "use --anyway to remove it"));
    check_answer(command_run(TRUCE_CLI, store, NULL, "set", "forget", "students", "--anyway", NULL),
                 0, "forgotten students.classes\n");
    check_answer(command_run(TRUCE_CLI, store, NULL, "count", "truce_sets", NULL), 0, "0\n");
    check_answer(command_run(TRUCE_CLI, store, NULL, "count", "truce_sources", NULL), 0, "0\n");
    check_answer(command_run(TRUCE_CLI, store, NULL, "count", "truce_progress", NULL), 0, "0\n");
    check_answer(
        command_run(TRUCE_CLI, store, NULL, "count", "students", "{'classes.name': 'x'}", NULL), 0,
        "1\n");
}

TEST(wrong_calls_of_set_apply_exit_with_2)
{
    const char *store = fresh_store();

    CHECK_INT(truce(store, NULL, "apply", "/nowhere/x.ndjson", "students", NULL)->code, ==, 2);
    CHECK_INT(truce("memory:", "", "apply", "-", "students", NULL)->code, ==, 2);
    CHECK_INT(truce(store, "", "apply", "-", "students", "--workers=0")->code, ==, 2);
}

/* ---- kill -9 ---- */

TEST(set_apply_killed_again_and_again_ends_in_the_same_state)
{
    const char *store = fresh_store();
    struct messages messages;
    struct random random;
    uint64_t seed = test_seed();
    char rejects[500], *text;
    const struct command *command;
    FILE *file;
    int kills = 0, bad = 0;

    truce__random_seed(&random, seed);
    write_messages(&messages, store, (int)test_scale("TRUCE_KILL_MESSAGES", 200000), 300, seed);
    file = fopen(messages.path, "a");
    REQUIRE(file);
    for (int i = 0; i < 500; i++)
        fprintf(file, "bad %d\n", i);
    fclose(file);
    for (bool ended = false; !ended && kills < 200;) {
        pid_t pid = command_start(TRUCE_CLI, store, "set", "apply", messages.path, STUDENTS,
                                  "--workers", "3", NULL);
        int state = 0;

        truce__clock_sleep_ms(5 + (int64_t)truce__random_below(&random, 40) + 2 * kills);
        ended = waitpid(pid, &state, WNOHANG) == pid;
        if (!ended) {
            kill(pid, SIGKILL);
            waitpid(pid, &state, 0);
            kills++;
        }
    }
    CHECK_INT(kills, >, 2);
    command = command_run(TRUCE_CLI, store, NULL, "set", "apply", messages.path, STUDENTS, "--json",
                          NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->out, "\"rejected\": 500"));
    check_messages(&messages, store);
    snprintf(rejects, sizeof rejects, "%s.rejects", messages.path);
    text = read_file(rejects);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        bad++;
    CHECK_INT(bad, ==, 500);
    printf("  killed %d times\n", kills);
    bson_free(text);
    bson_free(messages.operations);
}

/* Returns a random child of `parent`, or 0. */
static pid_t child_of(pid_t parent, struct random *random)
{
    char path[64], text[4096];
    pid_t found[64];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    file = fopen(path, "r");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (char *at = text; count < 64 && (found[count] = (pid_t)strtol(at, &at, 10)) > 0; count++)
        continue;
    return count ? found[truce__random_below(random, (uint64_t)count)] : 0;
}

TEST(workers_that_are_killed_are_replaced_and_their_work_is_done)
{
    const char *store = fresh_store();
    struct messages messages;
    struct random random;
    uint64_t seed = test_seed();
    int state = 0, kills = 0;
    pid_t pid;

    truce__random_seed(&random, seed);
    write_messages(&messages, store, (int)test_scale("TRUCE_KILL_MESSAGES", 200000), 300, seed);
    pid = command_start(TRUCE_CLI, store, "set", "apply", messages.path, STUDENTS, "--workers", "4",
                        NULL);
    while (waitpid(pid, &state, WNOHANG) == 0) {
        pid_t child = child_of(pid, &random);

        truce__clock_sleep_ms(20);
        if (child > 0 && kills < 20 && !kill(child, SIGKILL))
            kills++;
    }
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    CHECK_INT(kills, >, 2);
    check_messages(&messages, store);
    bson_free(messages.operations);
}

/* ---- the story ---- */

TEST(the_story_of_enrolments_is_all_right_in_truces_column)
{
    char *own = bson_strdup_printf("%s/enrolments.truce", test_directory());
    const struct command *command =
        command_run(TRUCE_CLI, NULL, NULL, "demo", "enrolments", "--messages", "4000", "--students",
                    "300", "--json", "--store", own, NULL);
    bson_t *answer;
    bson_iter_t iter;

    CHECK_INT(command->code, ==, 0);
    bson_free(own);
    answer = bson_new_from_json((const uint8_t *)command->out, -1, NULL);
    REQUIRE(answer);
    CHECK(bson_iter_init_find(&iter, answer, "truce_wrong") && bson_iter_as_int64(&iter) == 0);
    CHECK(bson_iter_init_find(&iter, answer, "usual_wrong") && bson_iter_as_int64(&iter) > 100);
    CHECK(bson_iter_init_find(&iter, answer, "truce_killed") && bson_iter_as_int64(&iter) >= 3);
    bson_destroy(answer);
}
