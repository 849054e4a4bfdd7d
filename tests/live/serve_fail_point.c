/* configureFailPoint of a server that was started for tests, and the answers that clients get. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"
#define NUMBER(n)                                                                                  \
    A ", 'txnNumber': {'$numberLong': '" #n "'}, "                                                 \
      "'$db': 'test'}"
#define STATEMENT(n) "'autocommit': false, " NUMBER(n)
#define FIND         "{'find': 'c', '$db': 'test'}"
#define INSERT       "{'insert': 'c', 'documents': [{}], '$db': 'test'}"

static char path[600];

static void begin(bool tests)
{
    const struct server_feed feed = {3600000, 0};
    const struct server_options options = {
        .replica_set = "rs", .test_commands = tests, .feed = &feed};
    bson_error_t error = {0};

    snprintf(path, sizeof path, "%s/failing.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static char *command_of(const char *mode, const char *data)
{
    static char text[2000];

    snprintf(text, sizeof text,
             "{'configureFailPoint': 'failCommand', 'mode': %s, 'data': {%s}, '$db': 'admin'}",
             mode, data);
    return text;
}

/* How many commands it had chosen before. */
static int64_t set(const char *mode, const char *data)
{
    bson_t *reply = ask(command_of(mode, data));
    int64_t count;

    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    count = reply_number(reply, "count");
    bson_destroy(reply);
    return count;
}

/* Returns the labels of an answer, each followed by a dot. */
static const char *labels_of(const bson_t *reply)
{
    static char all[200];
    bson_iter_t at, label;

    all[0] = 0;
    if (reply && bson_iter_init_find(&at, reply, "errorLabels") && bson_iter_recurse(&at, &label))
        while (bson_iter_next(&label))
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s.",
                     bson_iter_utf8(&label, NULL));
    return all;
}

static void expect_labels(const char *json, int64_t code, const char *labels)
{
    bson_t *reply = ask(json);

    CHECK_INT(reply_number(reply, "code"), ==, code);
    CHECK_TEXT(labels, labels_of(reply));
    bson_destroy(reply);
}

static int64_t stored(void)
{
    bson_t *reply = ask("{'count': 'c', '$db': 'test'}");
    int64_t n = reply_number(reply, "n");

    bson_destroy(reply);
    return n;
}

TEST(a_server_that_is_not_for_tests_does_not_know_the_command)
{
    bson_t *reply;

    begin(false);
    expect_code("{'configureFailPoint': 'failCommand', 'mode': 'alwaysOn', '$db': 'admin'}", 59);
    reply = ask("{'listCommands': 1, '$db': 'admin'}");
    CHECK_INT(reply_number(reply, "commands.configureFailPoint"), ==, -1);
    bson_destroy(reply);
    end();
    begin(true);
    reply = ask("{'listCommands': 1, '$db': 'admin'}");
    CHECK(reply && bson_has_field(reply, "commands.configureFailPoint"));
    bson_destroy(reply);
    end();
}

TEST(fails_chosen_commands_with_the_code_without_running_them)
{
    bson_iter_t at;
    bson_t *reply;

    begin(true);
    CHECK_INT(set("'alwaysOn'", "'failCommands': ['insert', 'truceHelp'], 'errorCode': 11602"), ==,
              0);
    reply = ask(INSERT);
    CHECK_INT(reply_number(reply, "code"), ==, 11602);
    CHECK(reply && bson_iter_init_find(&at, reply, "codeName") &&
          !strcmp(bson_iter_utf8(&at, NULL), "InterruptedDueToReplStateChange"));
    bson_destroy(reply);
    expect_code("{'truceHelp': 1, '$db': 'test'}", 11602);
    expect_code(FIND, 0);
    CHECK_INT(set("'off'", ""), ==, 2);
    CHECK_INT(stored(), ==, 0);
    expect_code(INSERT, 0);
    end();
}

TEST(a_chosen_code_has_the_status_that_operations_return_with_it)
{
    static const struct {
        int code;
        const char *status;
    } codes[] = {{8, "outcome unknown"},
                 {24, "locked"},
                 {112, "conflict"},
                 {125, "expired"},
                 {20, "refused"},
                 {11000, "duplicate"},
                 {2, "invalid"},
                 {146, "limit reached"},
                 {50, "timed out"},
                 {13, "not authorized"},
                 {251, "conflict"},
                 {246, "expired"},
                 {11600, "outcome unknown"},
                 {10107, "input or output failed"}};

    begin(true);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char data[200];
        bson_t *reply;

        snprintf(data, sizeof data,
                 "'failCommands': ['truceEnqueue'], 'errorCode': %d, 'errorLabels': ['Mine']",
                 codes[i].code);
        set("{'times': 1}", data);
        reply = ask("{'truceEnqueue': 'mail', 'payload': {}, '$db': 'test'}");
        CHECK_INT(reply_number(reply, "code"), ==, codes[i].code);
        CHECK_TEXT(codes[i].status, truce__field_text(reply, "status"));
        CHECK_TEXT("Mine.", labels_of(reply));
        bson_destroy(reply);
    }
    end();
}

TEST(a_mode_counts_the_commands_that_are_chosen_and_no_others)
{
    begin(true);
    set("{'times': 2}", "'failCommands': ['find'], 'errorCode': 10107");
    expect_code(FIND, 10107);
    expect_code(INSERT, 0);
    expect_code(FIND, 10107);
    expect_code(FIND, 0);
    set("{'skip': 2}", "'failCommands': ['find'], 'errorCode': 10107");
    expect_code(FIND, 0);
    expect_code(INSERT, 0);
    expect_code(FIND, 0);
    expect_code(FIND, 10107);
    expect_code(FIND, 10107);
    set("{'times': 0}", "'failCommands': ['find'], 'errorCode': 10107");
    expect_code(FIND, 0);
    end();
}

TEST(a_connection_is_closed_and_the_next_is_not)
{
    begin(true);
    set("{'times': 1}", "'failCommands': ['insert'], 'closeConnection': true");
    CHECK(ask(INSERT) == NULL);
    CHECK_INT(stored(), ==, 0);
    expect_code(INSERT, 0);
    CHECK_INT(stored(), ==, 1);
    end();
}

TEST(returns_an_unsatisfied_write_concern_with_the_result)
{
    bson_t *reply;

    begin(true);
    set("{'times': 2}", "'failCommands': ['insert'], 'writeConcernError': {'code': 91, 'errmsg': "
                        "'Replication is being shut down'}");
    reply = ask("{'insert': 'c', 'documents': [{}], " NUMBER(1));
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    CHECK_INT(reply_number(reply, "writeConcernError.code"), ==, 91);
    CHECK_TEXT("RetryableWriteError.", labels_of(reply));
    bson_destroy(reply);
    reply = ask(INSERT);
    CHECK_INT(reply_number(reply, "writeConcernError.code"), ==, 91);
    CHECK_TEXT("", labels_of(reply));
    bson_destroy(reply);
    CHECK_INT(stored(), ==, 2);
    end();
}

TEST(a_set_of_one_member_has_no_more_of_them)
{
    static const struct {
        const char *w;
        int64_t code;
    } cases[] = {{"2", 100}, {"'other'", 79}, {"1", -1}, {"'majority'", -1}};
    bson_t *reply;

    begin(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char insert[200];

        snprintf(insert, sizeof insert,
                 "{'insert': 'c', 'documents': [{}], 'writeConcern': {'w': %s}, '$db': 'test'}",
                 cases[i].w);
        reply = ask(insert);
        CHECK_INT(reply_number(reply, "ok"), ==, 1);
        CHECK_INT(reply_number(reply, "writeConcernError.code"), ==, cases[i].code);
        bson_destroy(reply);
    }
    CHECK_INT(stored(), ==, 4);
    reply = ask("{'create': 'c', 'writeConcern': {'w': 2}, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "code"), ==, 48);
    CHECK_INT(reply_number(reply, "writeConcernError.code"), ==, 100);
    bson_destroy(reply);
    end();
}

TEST(labels_errors_for_drivers)
{
    begin(true);
    set("'alwaysOn'", "'failCommands': ['insert', 'commitTransaction'], 'errorCode': 189");
    expect_labels(INSERT, 189, "");
    expect_labels("{'insert': 'c', 'documents': [{}], " NUMBER(1), 189, "RetryableWriteError.");
    expect_labels("{'insert': 'c', 'documents': [{}], 'startTransaction': true, " STATEMENT(2), 189,
                  "TransientTransactionError.");
    expect_labels("{'commitTransaction': 1, 'autocommit': false, " A ", 'txnNumber': {"
                  "'$numberLong': '2'}, '$db': 'admin'}",
                  189, "RetryableWriteError.");
    set("'alwaysOn'", "'failCommands': ['insert'], 'errorCode': 8");
    expect_labels("{'insert': 'c', 'documents': [{}], " NUMBER(3), 8, "");
    set("'alwaysOn'", "'failCommands': ['insert'], 'errorCode': 112, 'errorLabels': ['X', 'Y']");
    expect_labels("{'insert': 'c', 'documents': [{}], " NUMBER(4), 112, "X.Y.");
    set("'alwaysOn'", "'failCommands': ['insert'], 'errorCode': 189, 'errorLabels': []");
    expect_labels("{'insert': 'c', 'documents': [{}], " NUMBER(5), 189, "");
    end();
}

TEST(a_program_is_chosen_by_its_name_and_a_collection_by_its_own)
{
    int named, other;
    bson_t *reply;

    begin(true);
    named = dial();
    other = dial();
    bson_destroy(ask_on(named,
                        "{'hello': 1, 'client': {'application': {'name': 'tests'}}, '$db': "
                        "'admin'}",
                        0));
    bson_destroy(ask_on(other,
                        "{'hello': 1, 'client': {'application': {'name': 'test'}}, '$db': "
                        "'admin'}",
                        0));
    set("'alwaysOn'", "'failCommands': ['find', 'hello'], 'errorCode': 6, 'appName': 'tests'");
    reply = ask_on(named, FIND, 0);
    CHECK_INT(reply_number(reply, "code"), ==, 6);
    bson_destroy(reply);
    reply = ask_on(other, FIND, 0);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    expect_code("{'hello': 1, 'client': {'application': {'name': 'tests'}}, '$db': 'admin'}", 6);
    set("'alwaysOn'", "'failCommands': ['find'], 'errorCode': 6, 'namespace': 'test.d'");
    expect_code(FIND, 0);
    expect_code("{'find': 'd', '$db': 'test'}", 6);
    expect_code("{'find': 'd', '$db': 'tests'}", 0);
    close(named);
    close(other);
    end();
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void *ask_blocked(void *arg)
{
    return ask(arg);
}

/* Returns the number of the operation that executes a find, or 0. */
static int64_t blocked(void)
{
    bson_t *reply = ask("{'currentOp': 1, 'command.find': 'c', '$db': 'admin'}");
    int64_t number = reply_number(reply, "inprog.0.opid");

    bson_destroy(reply);
    return number > 0 ? number : 0;
}

TEST(a_command_that_is_blocked_waits_and_is_run)
{
    static char find[] = FIND;
    char kill[100];
    pthread_t thread;
    void *reply;
    int64_t number = 0;

    begin(true);
    set("{'times': 1}",
        "'failCommands': ['find'], 'blockConnection': true, 'blockTimeMS': 20, 'errorCode': 50");
    expect_code(FIND, 50);
    expect_code(INSERT, 0);
    set("{'times': 1}", "'failCommands': ['find'], 'blockConnection': true, 'blockTimeMS': 20");
    expect_code(FIND, 0);
    set("'alwaysOn'", "'failCommands': ['find'], 'blockConnection': true, 'blockTimeMS': 600000");
    expect_code("{'find': 'c', 'maxTimeMS': 20, '$db': 'test'}", 50);
    CHECK(!pthread_create(&thread, NULL, ask_blocked, find));
    while (!(number = blocked()))
        ;
    snprintf(kill, sizeof kill, "{'killOp': 1, 'op': %d, '$db': 'admin'}", (int)number);
    expect_code(kill, 0);
    pthread_join(thread, &reply);
    CHECK_INT(reply_number(reply, "code"), ==, 11601);
    bson_destroy(reply);
    CHECK(!pthread_create(&thread, NULL, ask_blocked, find));
    while (!blocked())
        ;
    end(); /* does not wait for it */
    pthread_join(thread, &reply);
    CHECK(!reply || reply_number(reply, "code") == 11600);
    bson_destroy(reply);
}

static char *order_of(const char *mode, const char *data)
{
    static char text[500];

    snprintf(text, sizeof text,
             "{'configureFailPoint': 'onPrimaryTransactionalWrite', 'mode': %s, 'data': {%s}, "
             "'$db': 'admin'}",
             mode, data);
    return text;
}

static void expect_cut(const char *json)
{
    bson_t *reply = ask(json);

    CHECK(!reply);
    bson_destroy(reply);
}

static int64_t with_v(int v)
{
    char text[100];
    bson_t *reply;
    int64_t n;

    snprintf(text, sizeof text, "{'count': 'c', 'query': {'v': %d}, '$db': 'test'}", v);
    reply = ask(text);
    n = reply_number(reply, "n");
    bson_destroy(reply);
    return n;
}

TEST(executes_a_write_without_a_reply_once)
{
    static const char *const insert =
                                 "{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}], " NUMBER(1),
                             *const update = "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': "
                                             "{'$inc': {'v': 1}}}], " NUMBER(2),
                             *const modify = "{'findAndModify': 'c', 'query': {'_id': 1}, "
                                             "'update': {'$inc': {'v': 1}}, " NUMBER(3),
                             *const nobody = "{'delete': 'c', 'deletes': [{'q': {'_id': 9}, "
                                             "'limit': 1}], " NUMBER(4),
                             *const none = "{'findAndModify': 'c', 'query': {'_id': 9}, "
                                           "'remove': true, " NUMBER(5);

    begin(true);
    expect_code(order_of("'alwaysOn'", ""), 0);
    expect_cut(insert);
    CHECK_INT(with_v(1), ==, 1);
    expect_code(insert, 0);
    expect_cut(update);
    expect_code(update, 0);
    CHECK_INT(with_v(2), ==, 1);
    expect_cut(modify);
    expect_code(modify, 0);
    CHECK_INT(with_v(3), ==, 1);
    expect_code(nobody, 0); /* nothing was changed */
    expect_code(none, 0);
    expect_code(INSERT, 0); /* nothing is kept of it */
    expect_code(order_of("'off'", ""), 0);
    expect_code("{'delete': 'c', 'deletes': [{'q': {'_id': 1}, 'limit': 1}], " NUMBER(6), 0);
    end();
}

TEST(replies_to_a_refused_write_with_its_code)
{
    bson_t *reply;

    begin(true);
    expect_code(order_of("{'times': 2}", "'failBeforeCommitExceptionCode': 91"), 0);
    expect_cut("{'insert': 'c', 'documents': [{'_id': 1}], " NUMBER(1));
    expect_cut(
        "{'findAndModify': 'c', 'query': {'_id': 2}, 'update': {'v': 1}, 'upsert': true, " NUMBER(
            2));
    CHECK_INT(stored(), ==, 0);
    /* the connection stays open if the fail point says so */
    expect_code(
        order_of("{'skip': 1}", "'failBeforeCommitExceptionCode': 91, 'closeConnection': false"),
        0);
    reply = ask("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}, {'_id': 3}], " NUMBER(3));
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    CHECK_INT(reply_number(reply, "writeErrors.0.index"), ==, 1);
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 91);
    CHECK_INT(reply_number(reply, "writeErrors.1.index"), ==, -1);
    bson_destroy(reply);
    expect_code("{'findAndModify': 'c', 'query': {'_id': 1}, 'remove': true, " NUMBER(4), 91);
    CHECK_INT(stored(), ==, 1);
    /* a repeated statement is not counted */
    expect_code(
        order_of("{'times': 1}", "'failBeforeCommitExceptionCode': 91, 'closeConnection': false"),
        0);
    reply = ask("{'insert': 'c', 'ordered': false, 'documents': [{'_id': 1}, {'_id': 2}, "
                "{'_id': 3}], " NUMBER(3));
    CHECK_INT(reply_number(reply, "code"), ==, 225); /* of before the findAndModify */
    bson_destroy(reply);
    reply =
        ask("{'insert': 'c', 'ordered': false, 'documents': [{'_id': 4}, {'_id': 5}], " NUMBER(5));
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    bson_destroy(reply);
    reply =
        ask("{'insert': 'c', 'ordered': false, 'documents': [{'_id': 4}, {'_id': 5}], " NUMBER(5));
    CHECK_INT(reply_number(reply, "n"), ==, 2);
    CHECK_INT(reply_number(reply, "retriedStmtIds.0"), ==, 1);
    bson_destroy(reply);
    CHECK_INT(stored(), ==, 3);
    expect_code(order_of("'alwaysOn'", "'failBeforeCommitExceptionCode': -1"), 2);
    expect_code(order_of("'alwaysOn'", "'failCommands': ['insert']"), 40415);
    end();
}

static void expect_more(int64_t id, int64_t code)
{
    char text[200];

    snprintf(text, sizeof text,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', '$db': 'test'}",
             (long long)id);
    expect_code(text, code);
}

static int64_t cursor_of(const char *json)
{
    bson_t *reply = ask(json);
    int64_t id = reply_number(reply, "cursor.id");

    CHECK_INT(id, >, 0);
    bson_destroy(reply);
    return id;
}

TEST(a_get_more_fails_when_it_has_its_cursor)
{
    static const char *const find = "{'find': 'c', 'batchSize': 1, '$db': 'test'}",
                             *const order =
                                 "{'configureFailPoint': 'failGetMoreAfterCursorCheckout', "
                                 "'mode': %s, 'data': {%s}, '$db': 'admin'}";
    char text[300];
    int64_t id;

    begin(true);
    for (int i = 0; i < 4; i++)
        expect_code(INSERT, 0);
    snprintf(text, sizeof text, order, "{'times': 1}", "'errorCode': 6, 'closeConnection': false");
    expect_code(text, 0);
    expect_more(77, 43); /* an unknown cursor does not count */
    id = cursor_of(find);
    expect_more(id, 6);
    expect_more(id, 43);
    id = cursor_of(find);
    expect_more(id, 0);
    /* a stream can be opened again, or cannot */
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, order, "{'times': 1}",
                 i ? "'errorCode': 8, 'closeConnection': false"
                   : "'errorCode': 234, 'closeConnection': false");
        expect_code(text, 0);
        id = cursor_of("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                       "'$db': 'test'}");
        snprintf(text, sizeof text,
                 "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', '$db': 'test'}",
                 (long long)id);
        expect_labels(text, i ? 8 : 234, i ? "" : "ResumableChangeStreamError.");
    }
    snprintf(text, sizeof text, order, "{'times': 1}", "'closeConnection': false");
    expect_code(text, 2);
    snprintf(text, sizeof text, order, "'off'", "");
    expect_code(text, 0);
    end();
}

TEST(refuses_an_invalid_fail_point_and_changes_nothing)
{
    static const struct {
        const char *mode, *data;
        int64_t code;
    } wrong[] = {
        {"'always'", "'failCommands': []", 2},
        {"7", "'failCommands': []", 2},
        {"{}", "'failCommands': []", 2},
        {"{'times': -1}", "'failCommands': []", 2},
        {"{'times': 'x'}", "'failCommands': []", 2},
        {"{'activationProbability': 0.5}", "'failCommands': []", 2},
        {"{'times': 1, 'skip': 1}", "'failCommands': []", 2},
        {"'alwaysOn'", "", 2},
        {"'alwaysOn'", "'failCommands': 'find'", 14},
        {"'alwaysOn'", "'failCommands': [], 'errorCode': -1", 2},
        {"'alwaysOn'", "'failCommands': [], 'errorCode': 1e10", 2},
        {"'alwaysOn'", "'failCommands': [], 'blockConnection': true", 2},
        {"'alwaysOn'", "'failCommands': [], 'blockTimeMS': -1", 2},
        {"'alwaysOn'", "'failCommands': [], 'blockConnection': true, 'blockTimeMS': 600001", 2},
        {"'alwaysOn'", "'failCommands': [], 'threadName': 'x'", 40415},
        {"'alwaysOn'", "'failCommands': [], 'errorCode': 6", 2},
        {"'alwaysOn'", "'failCommands': ['find', 7], 'errorCode': 6", 14},
        {"'alwaysOn'", "'failCommands': ['find', {}], 'errorCode': 6", 14},
        {"'alwaysOn'", "'failCommands': ['find']", 2},
        {"'alwaysOn'", "'failCommands': ['find'], 'closeConnection': false, 'errorCode': 0", 2},
        {"'alwaysOn'", "'failCommands': ['truceEnqeue'], 'errorCode': 6", 2},
        {"'alwaysOn'", "'failCommands': ['truceUnheardOf'], 'errorCode': 6", 2},
        {"'alwaysOn'", "'failCommands': ['Insert'], 'errorCode': 6", 2},
        {"'alwaysOn'", "'failCommands': ['agregate'], 'errorCode': 6", 2},
    };

    begin(true);
    set("'alwaysOn'", "'failCommands': ['find', 'mapReduce'], 'errorCode': 6");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_code(command_of(wrong[i].mode, wrong[i].data), wrong[i].code);
    expect_code("{'configureFailPoint': 'other', 'mode': 'off', '$db': 'admin'}", 266);
    expect_code("{'configureFailPoint': 1, 'mode': 'off', '$db': 'admin'}", 266);
    expect_code("{'configureFailPoint': 'failCommand', '$db': 'admin'}", 2);
    expect_code("{'configureFailPoint': 'failCommand', 'mode': 'off', '$db': 'test'}", 13);
    expect_code(FIND, 6);
    end();
}
