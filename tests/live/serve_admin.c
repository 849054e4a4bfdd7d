/* Commands of administrators: parameters, the log, the disk, the shutdown; their effects and
 * errors. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/admin/top.h"
#include "tests/support/kept_log.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static int asked; /* for the end */

static void keep_asked(void *arg)
{
    ++*(int *)arg;
}

static void begin(const char *uri, int64_t sweep_every_ms)
{
    const struct server_options options = {.log = kept_log_new(),
                                           .sweep_every_ms = sweep_every_ms,
                                           .test_commands = true,
                                           .shutdown = keep_asked,
                                           .shutdown_arg = &asked};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(uri, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void begin_file(void)
{
    char path[600];

    snprintf(path, sizeof path, "%s/store", test_directory());
    begin(path, 0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
    kept_log_free();
}

static int64_t number_of(const char *json, const char *path)
{
    bson_t *reply = ask(json);
    int64_t number = reply_number(reply, path);

    bson_destroy(reply);
    return number;
}

TEST(sets_and_returns_parameters)
{
    begin("memory:", 3600000);
    CHECK_INT(number_of("{'setParameter': 1, 'transactionLifetimeLimitSeconds': 7, '$db': 'admin'}",
                        "was"),
              ==, 60);
    CHECK_INT(number_of("{'getParameter': 1, 'transactionLifetimeLimitSeconds': 1, '$db': 'admin'}",
                        "transactionLifetimeLimitSeconds"),
              ==, 7);
    CHECK_INT(number_of("{'setParameter': 1, 'ttlMonitorSleepSecs': 1, '$db': 'admin'}", "was"), ==,
              3600);
    CHECK_INT(number_of("{'setParameter': 1, 'ttlMonitorSleepSecs': {'$numberDecimal': '1'}, "
                        "'$db': 'admin'}",
                        "was"),
              ==, 1);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': {'$numberDecimal': 'NaN'}, "
                "'$db': 'admin'}",
                2);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': {'$numberDecimal': '9E+6000'}, "
                "'$db': 'admin'}",
                2);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': 2, '$db': 'test'}", 13);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': 0, '$db': 'admin'}", 2);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': 'x', '$db': 'admin'}", 2);
    expect_code("{'setParameter': 1, 'transactionLifetimeLimitSeconds': 1e9, '$db': 'admin'}", 2);
    expect_code("{'setParameter': 1, 'nothing': 1, '$db': 'admin'}", 72);
    expect_code("{'setParameter': 1, '$db': 'admin'}", 72);
    expect_code("{'setParameter': 1, 'requireApiVersion': true, '$db': 'admin'}", 20);
    /* the pass that was an hour away runs: the new parameter applies at once */
    while (number_of("{'serverStatus': 1, '$db': 'admin'}", "sweep.turns") < 1)
        usleep(10000);
    end();
    begin("memory:", 0);
    expect_code("{'setParameter': 1, 'ttlMonitorSleepSecs': 2, '$db': 'admin'}", 20);
    CHECK_INT(number_of("{'getParameter': '*', '$db': 'admin'}", "ttlMonitorSleepSecs"), ==, -1);
    end();
}

TEST(sets_the_slow_threshold_by_profile)
{
    begin("memory:", 0);
    CHECK_INT(number_of("{'profile': -1, '$db': 'test'}", "slowms"), ==, 100);
    CHECK_INT(number_of("{'profile': -1, 'slowms': 5, '$db': 'test'}", "slowms"), ==, 100);
    CHECK_INT(number_of("{'profile': 0, 'slowms': 0, '$db': 'test'}", "slowms"), ==, 100);
    expect_code("{'find': 'marked', '$db': 'test'}", 0);
    kept_log_wait("slow command", 1);
    CHECK_INT(number_of("{'profile': 0, 'slowms': 3600000, '$db': 'test'}", "slowms"), ==, 0);
    CHECK_INT(number_of("{'profile': -1, '$db': 'test'}", "slowms"), ==, 3600000);
    expect_code("{'profile': 1, '$db': 'test'}", 115);
    expect_code("{'profile': 2, 'slowms': 5, '$db': 'test'}", 115);
    expect_code("{'profile': 3, '$db': 'test'}", 2);
    expect_code("{'profile': 0, 'slowms': -2, '$db': 'test'}", 2);
    CHECK_INT(number_of("{'profile': -1, '$db': 'test'}", "slowms"), ==, 3600000);
    end();
}

TEST(returns_the_last_lines_of_the_log)
{
    bson_iter_t at, line;
    bson_t *reply;
    int64_t all;

    begin("memory:", 0);
    reply = ask("{'getLog': 'global', '$db': 'admin'}");
    CHECK(bson_iter_init(&at, reply) && bson_iter_find_descendant(&at, "log.0", &line) &&
          strstr(bson_iter_utf8(&line, NULL), "\"message\": \"started\"") &&
          !strchr(bson_iter_utf8(&line, NULL), '\n'));
    all = reply_number(reply, "totalLinesWritten");
    CHECK(all >= 2); /* the start, and the connection of the client */
    bson_destroy(reply);
    for (int i = 0; i < LOG_KEPT_MAX; i++)
        close(dial());
    reply = ask("{'getLog': 'global', '$db': 'admin'}");
    CHECK_INT(reply_number(reply, "totalLinesWritten"), >=, all + LOG_KEPT_MAX);
    CHECK(bson_iter_init(&at, reply) && bson_iter_find_descendant(&at, "log.1023", &line));
    CHECK(bson_iter_init(&at, reply) && !bson_iter_find_descendant(&at, "log.1024", &line));
    CHECK(bson_iter_init(&at, reply) && bson_iter_find_descendant(&at, "log.0", &line) &&
          !strstr(bson_iter_utf8(&line, NULL), "started"));
    CHECK(bson_iter_init_find(&at, reply, "log") && bson_iter_recurse(&at, &line));
    for (const char *before = ""; bson_iter_next(&line); before = bson_iter_utf8(&line, NULL))
        CHECK(strncmp(before, bson_iter_utf8(&line, NULL),
                      sizeof "{'time': '2026-01-01T00:00:00.000" - 1) <= 0);
    bson_destroy(reply);
    expect_code("{'getLog': 'startupWarnings', '$db': 'admin'}", 0);
    expect_code("{'getLog': '*', '$db': 'admin'}", 0);
    expect_code("{'getLog': 'other', '$db': 'admin'}", 96);
    expect_code("{'getLog': 1, '$db': 'admin'}", 14);
    end();
}

TEST(a_log_is_rotated_by_command)
{
    begin("memory:", 0);
    expect_code("{'logRotate': 1, '$db': 'admin'}", 0);
    expect_code("{'logRotate': 'server', 'comment': 'x', '$db': 'admin'}", 0);
    expect_code("{'logRotate': 'audit', '$db': 'admin'}", 2);
    expect_code("{'logRotate': {}, '$db': 'admin'}", 14);
    expect_code("{'logRotate': 1, '$db': 'test'}", 13);
    expect_code("{'logRotate': 1, 'other': 1, '$db': 'admin'}", 40415);
    end();
}

#define TOP "{'top': 1, '$db': 'admin'}"

/* Returns the number of a collection. Its name may contain dots, so the path is "totals", the name,
 * the rest. */
static int64_t top_of(const char *name, const char *kind, const char *what)
{
    bson_t *reply = ask(TOP);
    bson_iter_t at, one, field, number;
    int64_t found = -1;

    if (bson_iter_init_find(&at, reply, "totals") && bson_iter_recurse(&at, &one) &&
        bson_iter_find(&one, name) && bson_iter_recurse(&one, &field) &&
        bson_iter_find(&field, kind) && bson_iter_recurse(&field, &number) &&
        bson_iter_find(&number, what))
        found = bson_iter_as_int64(&number);
    bson_destroy(reply);
    return found;
}

TEST(returns_the_operations_on_each_collection)
{
    begin("memory:", 0);
    expect_code("{'insert': 'a', 'documents': [{}, {}, {}], '$db': 'test'}", 0);
    expect_code("{'find': 'a', '$db': 'test'}", 0);
    expect_code("{'find': 'a', '$db': 'test'}", 0);
    expect_code("{'find': 'a', 'filter': {'$no': 1}, '$db': 'test'}", 2);
    expect_code("{'update': 'a', 'updates': [{'q': {}, 'u': {'$set': {'b': 1}}}], '$db': 'test'}",
                0);
    expect_code("{'delete': 'a', 'deletes': [{'q': {}, 'limit': 1}], '$db': 'test'}", 0);
    expect_code("{'count': 'a', '$db': 'test'}", 0);
    CHECK_INT(top_of("test.a", "insert", "count"), ==, 1);
    CHECK_INT(top_of("test.a", "queries", "count"), ==, 2);
    CHECK_INT(top_of("test.a", "update", "count"), ==, 1);
    CHECK_INT(top_of("test.a", "remove", "count"), ==, 1);
    CHECK_INT(top_of("test.a", "commands", "count"), ==, 1);
    CHECK_INT(top_of("test.a", "total", "count"), ==, 6);
    CHECK_INT(top_of("test.a", "readLock", "count"), ==, 3);
    CHECK_INT(top_of("test.a", "writeLock", "count"), ==, 3);
    CHECK_INT(top_of("test.a", "total", "time"), >, 0);
    CHECK_INT(top_of("test.a", "total", "time"), <, 60000000);
    expect_code("{'find': 'ab', '$db': 'test'}", 0);
    expect_code("{'find': 'a', '$db': 'other'}", 0);
    expect_code("{'drop': 'a', '$db': 'test'}", 0);
    CHECK_INT(top_of("test.a", "total", "count"), ==, -1);
    CHECK_INT(top_of("test.ab", "total", "count"), ==, 1);
    CHECK_INT(top_of("other.a", "total", "count"), ==, 1);
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    CHECK_INT(top_of("test.ab", "total", "count"), ==, -1);
    CHECK_INT(top_of("other.a", "total", "count"), ==, 1);
    expect_code("{'top': 1, '$db': 'test'}", 13);
    expect_code("{'top': 1, 'x': 1, '$db': 'admin'}", 40415);
    end();
}

/* Some entries are in another slot, because an entry that is removed later occupied the slot of
 * their name. */
TEST(a_collection_that_goes_takes_nothing_from_others)
{
    enum { COUNT = 900 };
    int end_, reported = 0;
    bson_t *reply;
    bson_iter_t at, one, count;

    begin("memory:", 0);
    end_ = dial();
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < COUNT; i++) {
            char text[100];

            if (turn > 0 &&
                (i % 2 == 0) != (turn == 1)) /* the even ones go, the others are counted again */
                continue;
            snprintf(text, sizeof text, "{'%s': 'd%d', '$db': 'test'}",
                     turn == 1 ? "drop" : "count", i);
            bson_destroy(ask_on(end_, text, 0));
        }
    close(end_);
    reply = ask(TOP);
    REQUIRE(bson_iter_init_find(&at, reply, "totals") && bson_iter_recurse(&at, &one));
    while (bson_iter_next(&one)) {
        bson_iter_t kinds;

        if (!BSON_ITER_HOLDS_DOCUMENT(&one))
            continue;
        reported++;
        CHECK(bson_iter_recurse(&one, &kinds) &&
              bson_iter_find_descendant(&kinds, "total.count", &count) &&
              bson_iter_as_int64(&count) == 2);
    }
    CHECK_INT(reported, ==, COUNT / 2);
    bson_destroy(reply);
    end();
}

TEST(returns_the_last_used_of_many_collections)
{
    int end_, left = 0;
    bson_t *reply;
    bson_iter_t at, one;

    begin("memory:", 0);
    end_ = dial();
    for (int i = 0; i < TOP_COLLECTIONS_MAX + 50; i++) {
        char text[100];

        snprintf(text, sizeof text, "{'count': 'c%d', '$db': 'test'}", i);
        bson_destroy(ask_on(end_, text, 0));
        if (i % 100 == 0)
            bson_destroy(ask_on(end_, "{'count': 'c7', '$db': 'test'}", 0));
    }
    close(end_);
    reply = ask(TOP);
    REQUIRE(bson_iter_init_find(&at, reply, "totals") && bson_iter_recurse(&at, &one));
    while (bson_iter_next(&one))
        left += BSON_ITER_HOLDS_DOCUMENT(&one);
    CHECK_INT(left, ==, TOP_COLLECTIONS_MAX);
    bson_destroy(reply);
    CHECK_INT(top_of("test.c7", "total", "count"), ==, 12);
    CHECK_INT(top_of("test.c3", "total", "count"), ==, -1);
    CHECK_INT(top_of("test.c60", "total", "count"), ==, 1);
    CHECK_INT(top_of("test.c1049", "total", "count"), ==, 1);
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    CHECK_INT(top_of("test.c1049", "total", "count"), ==, -1);
    CHECK_INT(top_of("test.c500", "total", "count"), ==, -1);
    end();
}

TEST(commands_are_listed_as_they_are)
{
    bson_t *reply;

    begin("memory:", 0);
    CHECK_INT(number_of("{'connPoolStats': 1, '$db': 'admin'}", "totalCreated"), ==, 0);
    reply = ask("{'listCommands': 1, '$db': 'admin'}");
    CHECK_INT(reply_number(reply, "commands.ping.requiresAuth"), ==, 0);
    CHECK_INT(reply_number(reply, "commands.find.requiresAuth"), ==, 1);
    CHECK_INT(reply_number(reply, "commands.top.requiresAuth"), ==, 1);
    bson_destroy(reply);
    end();
}

TEST(fsync_waits_for_the_disk)
{
    truce_store_counters before = {0}, after = {0};

    begin_file();
    expect_code("{'insert': 'c', 'documents': [{}], 'writeConcern': {'j': false}, '$db': 'test'}",
                0);
    truce_store_count(store, &before);
    CHECK_INT(number_of("{'fsync': 1, '$db': 'admin'}", "numFiles"), ==, 1);
    truce_store_count(store, &after);
    CHECK_INT((int64_t)(after.syncs - before.syncs), ==, 1);
    expect_code("{'fsync': 1, 'lock': true, '$db': 'admin'}", 115);
    expect_code("{'fsync': 1, '$db': 'test'}", 13);
    end();
    begin("memory:", 0);
    expect_code("{'fsync': 1, '$db': 'admin'}", 115);
    end();
}

TEST(compact_gives_space_back)
{
    char text[3000], *json;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    begin_file();
    json = bson_strdup_printf("{'insert': 'c', 'documents': [{'a': '%s'}], '$db': 'test'}", text);
    expect_code("{'create': 'd', '$db': 'test'}", 0);
    for (int i = 0; i < 300; i++)
        expect_code(json, 0);
    bson_free(json);
    expect_code("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'test'}", 0);
    CHECK_INT(number_of("{'compact': 'd', '$db': 'test'}", "bytesFreed"), >, 300 * 2000);
    CHECK_INT(number_of("{'compact': 'd', '$db': 'test'}", "bytesFreed"), ==, 0);
    expect_code("{'compact': 'none', '$db': 'test'}", 26);
    expect_code("{'compact': 'd', 'dryRun': true, '$db': 'test'}", 115);
    end();
    begin("memory:", 0);
    expect_code("{'create': 'd', '$db': 'test'}", 0);
    expect_code("{'compact': 'd', '$db': 'test'}", 115);
    end();
}

TEST(returns_the_size_of_documents)
{
    begin("memory:", 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}], '$db': 'school'}", 0);
    CHECK_INT(number_of("{'dataSize': 'school.c', '$db': 'school'}", "size"), ==, 28);
    CHECK_INT(number_of("{'dataSize': 'school.c', '$db': 'admin'}", "numObjects"), ==, 2);
    CHECK_INT(number_of("{'dataSize': 'school.none', '$db': 'school'}", "numObjects"), ==, 0);
    expect_code("{'dataSize': 'c', '$db': 'school'}", 73);
    expect_code("{'dataSize': 1, '$db': 'school'}", 14);
    expect_code("{'dataSize': 'school.c', 'min': {'_id': 1}, '$db': 'school'}", 115);
    end();
}

/* The sums are md5sum's. */
static void check_sum(const char *id, int64_t chunks, const char *wanted)
{
    char *json = bson_strdup_printf("{'filemd5': %s, '$db': 'school'}", id);
    bson_t *reply = ask(json);
    bson_iter_t at;

    CHECK_INT(reply_number(reply, "numChunks"), ==, chunks);
    if (CHECK(bson_iter_init_find(&at, reply, "md5")))
        CHECK_TEXT(wanted, bson_iter_utf8(&at, NULL));
    bson_destroy(reply);
    bson_free(json);
}

TEST(returns_the_sum_of_a_file_to_drivers)
{
    begin("memory:", 0);
    expect_code(
        "{'insert': 'fs.chunks', '$db': 'school', 'documents': ["
        "{'files_id': 1, 'n': 1, 'data': {'$binary': {'base64': 'bG8=', 'subType': '00'}}},"
        "{'files_id': 1, 'n': 0, 'data': {'$binary': {'base64': 'aGVs', 'subType': '00'}}},"
        "{'files_id': 'gap', 'n': 1, 'data': {'$binary': {'base64': 'aA==', 'subType': '00'}}},"
        "{'files_id': 'twice', 'n': 0, 'data': {'$binary': {'base64': 'aA==', 'subType': '00'}}},"
        "{'files_id': 'twice', 'n': 0, 'data': {'$binary': {'base64': 'aA==', 'subType': '00'}}},"
        "{'files_id': 'text', 'n': 0, 'data': 'hello'}]}",
        0);
    expect_code("{'filemd5': 1, '$db': 'school'}", 2); /* no index leads to the chunks */
    expect_code("{'createIndexes': 'fs.chunks', '$db': 'school', 'indexes':"
                " [{'key': {'files_id': 1, 'n': 1}, 'name': 'chunks'}]}",
                0);
    check_sum("1", 2, "5d41402abc4b2a76b9719d911017c592"); /* hello */
    check_sum("2", 0, "d41d8cd98f00b204e9800998ecf8427e"); /* nothing */
    expect_code("{'filemd5': 'gap', '$db': 'school'}", 10040);
    expect_code("{'filemd5': 'twice', '$db': 'school'}", 10040);
    expect_code("{'filemd5': 'text', '$db': 'school'}", 50847);
    expect_code("{'filemd5': 1, 'root': '', '$db': 'school'}", 73);
    expect_code("{'filemd5': 1, 'root': 7, '$db': 'school'}", 14);
    expect_code("{'filemd5': 1, 'partialOk': true, '$db': 'school'}", 115);
    end();
}

TEST(the_end_is_asked_for_by_the_database_admin)
{
    asked = 0;
    begin("memory:", 0);
    expect_code("{'shutdown': 1, '$db': 'test'}", 13);
    CHECK_INT(asked, ==, 0);
    expect_code("{'shutdown': 1, 'force': false, 'timeoutSecs': 15, '$db': 'admin'}", 0);
    CHECK_INT(asked, ==, 1);
    CHECK_INT(kept_log_count("shutdown requested"), ==, 1);
    end();
}

#ifdef TRUCE_CLI
TEST(the_program_ends_when_it_is_asked_to)
{
    char line[1000];
    int port = 0, socket_;
    bson_t *reply;
    FILE *pipe;

    snprintf(line, sizeof line, "exec %s serve memory: --port 0 2>/dev/null", TRUCE_CLI);
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, sizeof line, pipe) &&
          sscanf(line, "listening on mongodb://127.0.0.1:%d", &port) == 1);
    socket_ = dial_port(port);
    reply = ask_on(socket_, "{'shutdown': 1, '$db': 'admin'}", 0);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    CHECK_INT(pclose(pipe), ==, 0);
    close(socket_);
}
#endif
