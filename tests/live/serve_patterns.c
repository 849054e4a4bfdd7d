/*
 * The patterns as commands: what each is answered, and with what is wrong it is refused. The commands come from raw
 * sockets; what drivers see of them is the business of tests/servers/patterns.py. What the patterns themselves do, and do
 * not, is tested where they are.
 */
#include <string.h>
#include <unistd.h>

#include "server/pattern_command.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(void)
{
    char path[600];
    bson_error_t error = {0};

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    unlink(path);
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* A step of a story: what is sent (without $db: to test), and what of the answer counts. */
struct step {
    const char *command;
    int code;         /* 0: ok */
    const char *path; /* of the answer; NULL: none */
    const char *text; /* what stands there, as relaxed JSON; NULL: nothing may */
};

static char *shown(const bson_t *reply, const char *path)
{
    bson_iter_t iter, found;
    bson_t one = BSON_INITIALIZER;
    char *json, *text = NULL;

    if (bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found)) {
        BSON_APPEND_VALUE(&one, "v", bson_iter_value(&found));
        json = truce_json_write(&one, false, TRUCE_JSON_RELAXED);
        text = bson_strndup(json + strlen("{\"v\": "), strlen(json) - strlen("{\"v\": }"));
        bson_free(json);
    }
    bson_destroy(&one);
    return text;
}

static bson_t *send_typed(int end_, const char *command)
{
    bson_error_t error;
    bson_t typed, *reply;
    char *json;

    if (truce_json_read(command, strlen(command), TRUCE_JSON_TYPED, &typed, NULL, &error)) {
        test_fail(__FILE__, __LINE__, "%s: %s", command, error.message);
        bson_destroy(&typed);
        return bson_new();
    }
    if (!bson_has_field(&typed, "$db"))
        BSON_APPEND_UTF8(&typed, "$db", "test");
    json = truce_json_write(&typed, false, TRUCE_JSON_CANONICAL);
    reply = ask_on(end_, json, 0);
    bson_free(json);
    bson_destroy(&typed);
    return reply ? reply : bson_new();
}

static void take_step(int end_, const struct step *step)
{
    bson_t *reply = send_typed(end_, step->command);
    int64_t code = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");
    char *text = step->path ? shown(reply, step->path) : NULL;

    if (code != step->code) {
        char *json = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, __LINE__, "%s is answered with %lld, not %d: %s", step->command,
                  (long long)code, step->code, json);
        bson_free(json);
    } else if (step->path && (!text != !step->text || (text && strcmp(text, step->text) != 0))) {
        test_fail(__FILE__, __LINE__, "%s: %s is %s, not %s", step->command, step->path,
                  text ? text : "nothing", step->text ? step->text : "nothing");
    }
    bson_free(text);
    bson_destroy(reply);
}

static void tell(const struct step *steps, size_t count)
{
    int end_ = dial();

    for (size_t i = 0; i < count; i++)
        take_step(end_, &steps[i]);
    close(end_);
}

#define TELL(steps) tell(steps, sizeof(steps) / sizeof *(steps))

/* ---- the table -------------------------------------------------------------------------------- */

#define EACH_PATTERN(pattern)                                                                      \
    for (const struct pattern_group *group = pattern_groups; group->title; group++)                \
        for (const struct pattern *const *at = group->patterns, *pattern; (pattern = *at) != NULL; \
             at++)

TEST(every_command_says_all_of_itself_and_its_example_runs)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0, "n", "2"},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    EACH_PATTERN(pattern)
    {
        struct step example = {pattern->example, 0, "ok", "1.0"};
        char *help = bson_strdup_printf("{truceHelp: '%s'}", pattern->command.name);
        struct step helped = {help, 0, "name", NULL};
        char *name = bson_strdup_printf("\"%s\"", pattern->command.name);

        helped.text = name;
        CHECK(pattern_named(pattern->command.name) == pattern);
        CHECK(server_command(pattern->command.name) == &pattern->command);
        CHECK(pattern->value && pattern->answer && pattern->command.help);
        take_step(end_, &helped);
        take_step(end_, &example);
        bson_free(name);
        bson_free(help);
    }
    close(end_);
    end();
}

/* One field that nobody knows, one of a wrong type, one that is missing, numbers beyond. */
TEST(what_a_row_does_not_say_is_refused_by_name)
{
    static const struct step steps[] = {
        {"{truceNothing: 1}", 59},
        {"{truceHelp: 'truceNothing'}", 59},
        {"{truceHelp: 1, nothing: 1}", 40415},
        {"{truceHelp: 1}", 0, "commands.0.name", "\"truceHelp\""},
        {"{truceCommit: 'x'}", 14, "status", "\"invalid\""},
        {"{truceCommit: []}", 16},
        {"{truceCommit: [1]}", 2, "errmsg", "\"change 1: must be a document\""},
        {"{truceCommit: [{}]}", 2},
        {"{truceCommit: [{update: 'c', with: {}}]}", 2, "errmsg",
         "\"change 1: needs an \\\"id\\\"\""},
        {"{truceCommit: [{update: 'c', id: 1, with: {$inc: {n: 1}}, unless: {}}]}", 2},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k'}", 72},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], keyTime: 5}", 72},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 0}", 2},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 7, keyTime: 5}", 14},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], leave: {a: 1}}", 72},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 5, input: {}}", 72},
        {"{truceCommit: [{insert: '', with: {_id: 1}}]}", 73},
        {"{truceCommit: [{insert: '@school.c', with: {_id: 1}}]}", 73},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], nothing: 1}", 40415},
        {"{truceCommitResult: 7}", 14},
        {"{truceCommitResult: '@school.k'}", 2},
        {"{truceRequest: 'k'}", 40414},
        {"{truceRequest: 'k', name: null}", 40414},
        {"{truceSequence: 's', take: 0}", 2},
        {"{truceSequence: 's', take: 1000001}", 2},
        {"{truceSequence: 's', take: 1, raise: 1}", 72},
        {"{truceSequence: 's', take: 'x'}", 14},
        {"{truceSet: 'students', key: {student_id: 1}, name: 'name'}", 40414},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes'}", 40414},
        {"{truceSet: 'students', field: 'classes', name: 'name'}", 14},
        {"{truceSet: 'students', key: 'student_id', field: 'classes', name: 'name'}", 14},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'x'}}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'x'}, remove: {name: 'x'}, seq: 1}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', seq: 1}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {}, seq: 1}",
         2},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: []}", 16},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: [1]}", 14},
        {"{truceSet: 'students', field: 'classes', name: 'name', seq: 1,"
         " apply: [{add: {name: 'x'}, key: {student_id: 1}, seq: 1}]}",
         72},
        {"{truceSet: 'students', field: 'classes', name: 'name',"
         " apply: [{add: {name: 'x'}, key: {student_id: 1}, seq: 1, nothing: 1}]}",
         40415},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name'}", 72},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " start: true, idle: 5}",
         72},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name', from: 5}",
         72},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- commits ---------------------------------------------------------------------------------- */

#define PAY                                                                                        \
    "{truceCommit: [{update: 'accounts', id: 'a', if: {n: {$gte: 5}}, with: {$inc: {n: -5}}},"     \
    " {update: 'accounts', id: 'b', with: {$inc: {n: 5}}}]"

TEST(a_commit_changes_all_or_nothing_and_once_under_its_key)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0, "n", "2"},
        {PAY ", key: 'k', keyTime: 1767225600000, leave: {receipt: 1}}", 0, "earlier", "false"},
        {PAY ", key: 'k', keyTime: 1767225600000, leave: {receipt: 1}}", 0, "result",
         "{\"receipt\": 1}"},
        {PAY ", key: 'k', keyTime: 1767225600000}", 0, "earlier", "true"},
        {"{find: 'accounts', filter: {n: 5}}", 0, "cursor.firstBatch.0._id", "\"b\""},
        /* the second guard does not hold, and nothing of it is done */
        {PAY "}", 125, "status", "\"not found\""},
        {"{find: 'accounts', filter: {n: 5}}", 0, "cursor.firstBatch.0._id", "\"b\""},
        {"{truceCommit: [{insert: 'accounts', with: {_id: 'c'}}], key: 'k',"
         " keyTime: 1767225600000}",
         11000, "status", "\"duplicate\""},
        {"{truceCommit: [{insert: 'accounts', with: {_id: 'a'}}]}", 11000, "codeName",
         "\"DuplicateKey\""},
        {"{truceCommit: [{change: 'accounts', id: 'b', with: {n: [4, 6]}}]}", 112, "status",
         "\"conflict\""},
        {"{truceCommit: [{change: 'accounts', id: 'b', with: {n: [5, 6]}},"
         " {missing: 'accounts', id: 'z'}, {require: 'accounts', id: 'a'}]}",
         0, "status", "\"ok\""},
        {"{truceCommitResult: 'k'}", 0, "result", "{\"receipt\": 1}"},
        {"{truceCommitResult: 'none'}", 0, "status", "\"not found\""},
        {"{truceCommitShow: 'k'}", 0, "commit.key", "\"k\""},
        {"{truceCommitShow: 'k'}", 0, "commit.input.changes.0.id", "\"a\""},
        {"{truceCommitShow: 'none'}", 0, "status", "\"not found\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'long ago', keyTime: 1}", 0},
    };

    begin();
    TELL(steps);
    end();
}

TEST(databases_have_keys_sequences_and_requests_of_their_own)
{
    static const struct step steps[] = {
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 1767225600000,"
         " $db: 'school'}",
         0, "earlier", "false"},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 1767225600000}", 0,
         "earlier", "false"},
        {"{truceCommitShow: 'k', $db: 'school'}", 0, "commit.key", "\"k\""},
        {"{truceCommitShow: 'k', $db: 'other'}", 0, "status", "\"not found\""},
        {"{find: 'c', $db: 'school'}", 0, "cursor.firstBatch.0._id", "1"},
        {"{truceSequence: 's', take: 3}", 0, "last", "3"},
        {"{truceSequence: 's', take: 2}", 0, "first", "4"},
        {"{truceSequence: 's', $db: 'school'}", 0, "last", "0"},
        {"{truceSequence: 's', raise: 100}", 0, "last", "100"},
        {"{truceSequence: 's'}", 0, "last", "100"},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'ada'}, $db: 'school'}", 0},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'ada'}, $db: 'school'}", 0},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'bob'}, $db: 'school'}", 11000},
        {"{truceRequestState: 'r', $db: 'school'}", 0, "request._id", "\"r\""},
        {"{truceRequestState: 'r', $db: 'school'}", 0, "request.state", "\"waiting\""},
        {"{truceRequestState: 'r'}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- ordered sets ----------------------------------------------------------------------------- */

#define SET(more)                                                                                  \
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name'" more "}"

TEST(operations_of_a_set_may_come_in_any_order)
{
    static const struct step steps[] = {
        {SET(""), 0, "status", "\"not found\""},
        {SET(", add: {name: 'CS 101', room: 4}, seq: 1002"), 0, "outcome", "\"applied\""},
        {SET(", add: {name: 'CS 101', room: 4}, seq: 1002"), 0, "outcome", "\"duplicate\""},
        {SET(", remove: {name: 'CS 101'}, seq: 1001"), 0, "outcome", "\"stale\""},
        {SET(""), 0, "members", "[{\"name\": \"CS 101\", \"seq\": 1002, \"room\": 4}]"},
        {SET(", remove: {name: 'CS 101'}, seq: 1003"), 0, "outcome", "\"applied\""},
        {SET(", show: true"), 0, "document.deleted_classes.0.seq", "1003"},
        {"{truceSet: 'students', field: 'classes', name: 'name', consumer: 'one', apply: ["
         "{add: {name: 'x'}, key: {student_id: 2}, seq: 1},"
         "{remove: {name: 'x'}, key: {student_id: 2}, seq: 2}]}",
         0, "results.1.outcome", "\"applied\""},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: ["
         "{add: {name: 'y'}, key: {student_id: 2}, seq: 7},"
         "{add: {nothing: 1}, key: {student_id: 2}, seq: 8}]}",
         0, "results.1.status", "\"invalid\""},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " idle: 3}",
         0},
        {"{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name'}", 0,
         "watermark", "2"},
        {"{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " collect: true}",
         0, "tombstones", "1"},
        {"{truceSetSource: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " from: 3, to: 2000}",
         0},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " source: 'east', start: true}",
         0, "first", "3"},
        {"{find: 'students', filter: {student_id: 1}}", 0,
         "cursor.firstBatch.0.deleted_classes.0.seq", "1003"},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', $db: 'school'}",
         0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}
