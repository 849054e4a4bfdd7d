/* Hooks: a store notifies its program of slow calls, and of messages. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/decorators/slow_calls.h"
#include "tests/support/test.h"
#include "truce/sys/decorate.h"
#include "truce/truce.h"

/* ---- slow calls ----------------------------------------------------------------------------- */

#define REPORTED_MAX 64

static struct reported {
    pthread_mutex_t mutex;
    int count;
    char lines[REPORTED_MAX][200]; /* "find of things: ok" */
    int64_t duration_us;           /* of the last one */
} reported = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void keep(const truce_slow_call *call, void *arg)
{
    CHECK(arg == &reported);
    pthread_mutex_lock(&reported.mutex);
    if (reported.count < REPORTED_MAX)
        snprintf(reported.lines[reported.count++], sizeof reported.lines[0], "%s of %s: %s%s%s",
                 call->verb, call->collection ? call->collection : "-",
                 truce_status_name(call->status), call->message ? ", " : "",
                 call->message ? call->message : "");
    reported.duration_us = call->duration_us;
    pthread_mutex_unlock(&reported.mutex);
}

static void dawdle(const bson_t *event, void *arg)
{
    (void)event;
    truce__clock_sleep_ms(*(const int *)arg);
}

/* Every call of it takes longer than *ms. */
static truce_store *open_slow(uint32_t slow_ms, const int *ms)
{
    const truce_store_hooks hooks = {.slow = keep, .slow_ms = slow_ms, .arg = &reported};
    const truce_trace_options trace = {.function = dawdle, .arg = (void *)ms};
    truce_store *inner = NULL;
    bson_error_t error;

    reported.count = 0;
    if (!CHECK_OK(truce_store_open("memory:", NULL, &inner, &error), error))
        return NULL;
    return truce__slow_wrap(truce_trace_wrap(inner, &trace), &hooks);
}

static void check_reported(int number, const char *line)
{
    if (CHECK_INT(reported.count, >, number))
        CHECK_TEXT(line, reported.lines[number]);
}

static void use_all(truce_store *store)
{
    bson_t *one = test_bson("{'_id': 1}"), *set = test_bson("{'$set': {'n': 1}}");
    bson_t *pipeline = test_bson("[]"), out;
    uint64_t token = 0;
    truce_cursor *cursor;
    const bson_t *document;
    bson_error_t error;
    int64_t count;

    CHECK_OK(truce_insert(store, "things", one, NULL, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_insert(store, "things", one, NULL, &error), error);
    CHECK_OK(truce_update(store, "things", one, set, NULL, NULL, &error), error);
    CHECK_OK(truce_find(store, "things", one, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    truce_cursor_close(cursor);
    CHECK_OK(truce_aggregate(store, "things", pipeline, NULL, &cursor, &error), error);
    truce_cursor_close(cursor);
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    CHECK_OK(truce_collection_list(store, NULL, &out, &error), error);
    bson_destroy(&out);
    CHECK_OK(truce_wait(store, "things", &token, 0, &error), error);
    CHECK_OK(truce_remove(store, "things", one, NULL, NULL, &error), error);
    bson_destroy(one);
    bson_destroy(set);
    bson_destroy(pipeline);
}

TEST(reports_slow_calls_with_verb_collection_and_status)
{
    const int ms = 5;
    truce_store *store = open_slow(1, &ms);

    REQUIRE(store != NULL);
    use_all(store);
    CHECK_INT(reported.count, ==, 9);
    check_reported(0, "insert of things: ok");
    if (strncmp(reported.lines[1], "insert of things: duplicate, ", 29) != 0)
        test_fail(__FILE__, __LINE__, "%s", reported.lines[1]);
    check_reported(2, "update of things: ok");
    check_reported(3, "find of things: ok");
    check_reported(4, "next of things: ok");
    check_reported(5, "aggregate of things: ok");
    check_reported(6, "count of things: ok");
    check_reported(7, "collection_list of -: ok");
    check_reported(8, "remove of things: ok"); /* and no wait */
    CHECK_INT(reported.duration_us, >=, 5000);
    truce_store_close(store);
}

TEST(does_not_report_fast_calls)
{
    const int ms = 0;
    truce_store *store = open_slow(3600000, &ms);

    REQUIRE(store != NULL);
    use_all(store);
    CHECK_INT(reported.count, ==, 0);
    truce_store_close(store);
}

TEST(a_threshold_of_zero_is_a_tenth_of_a_second)
{
    const int ms = 150;
    truce_store *store = open_slow(0, &ms);
    bson_error_t error;
    int64_t count;

    REQUIRE(store != NULL);
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    check_reported(0, "count of things: ok");
    CHECK_INT(reported.duration_us, >=, 100000);
    truce_store_close(store);
}

/* ---- by options ----------------------------------------------------------------------------- */

/* Checks the hooks of an open store of this kind. */
static void check_kind(const char *uri)
{
    const truce_store_hooks hooks = {.slow = keep, .slow_ms = 3600000, .arg = &reported};
    const truce_store_options options = {.hooks = &hooks};
    bson_t *one = test_bson("{'_id': 1}"), plan;
    truce_store *store, *view;
    truce_snapshot_state state;
    truce_doctor_report report;
    bson_error_t error;
    int64_t count;

    REQUIRE(CHECK_OK(truce_store_open(uri, &options, &store, &error), error));
    use_all(store);
    CHECK_OK(truce_insert(store, "things", one, NULL, &error), error);
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    CHECK_OK(truce_remove(store, "things", one, NULL, NULL, &error), error);
    CHECK_OK(truce_count(view, "things", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    CHECK_OK(truce_snapshot_inspect(view, &state, &error), error);
    CHECK(!state.ended);
    CHECK_STATUS(TRUCE_INVALID, truce_insert(view, "things", one, NULL, &error), error);
    truce_store_close(view);
    CHECK_OK(truce_explain(store, "things", one, NULL, &plan, &error), error);
    bson_destroy(&plan);
    CHECK_OK(truce_doctor(store, NULL, NULL, &report, &error), error);
    bson_destroy(&report.facts);
    truce_interrupt(store);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "things", NULL, NULL, &count, &error), error);
    truce_resume(store);
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    truce_store_close(store);
    bson_destroy(one);
}

TEST(every_kind_of_store_has_hooks_and_does_all_that_it_does_without)
{
    char file[400];

    snprintf(file, sizeof file, "file:%s/hooks.truce", test_directory());
    check_kind("memory:");
    check_kind(file);
}

TEST(reports_calls_of_a_snapshot_too)
{
    const truce_store_hooks hooks = {.slow = keep, .slow_ms = 1, .arg = &reported};
    const truce_store_options options = {.hooks = &hooks};
    bson_t *pipeline = test_bson("[{'$set': {'x': {'$range': [0, 1000000]}}}, {'$unset': 'x'}]");
    bson_t *one = test_bson("{'_id': 1}");
    truce_store *store, *view;
    truce_cursor *cursor;
    const bson_t *document;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", &options, &store, &error), error);
    CHECK_OK(truce_insert(store, "things", one, NULL, &error), error);
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    reported.count = 0;
    CHECK_OK(truce_aggregate(view, "things", pipeline, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    truce_cursor_close(cursor);
    CHECK_INT(reported.count, >, 0);
    truce_store_close(view);
    truce_store_close(store);
    bson_destroy(pipeline);
    bson_destroy(one);
}

/* ---- messages ------------------------------------------------------------------------------- */

static char message[1100];
static truce_log_level message_level;

static void keep_message(truce_log_level level, const char *text, void *arg)
{
    CHECK(arg == &reported);
    message_level = level;
    snprintf(message, sizeof message, "%s", text);
}

TEST(reports_an_ended_snapshot)
{
    const truce_store_hooks hooks = {
        .log = keep_message, .slow = keep, .slow_ms = 3600000, .arg = &reported};
    const truce_store_options options = {.hooks = &hooks, .snapshot_age_ms = 1};
    bson_t *one = test_bson("{'_id': 1}"), *two = test_bson("{'_id': 2}");
    char file[400];
    truce_store *store, *view;
    truce_snapshot_state state;
    bson_error_t error;
    int64_t count;

    message[0] = '\0';
    snprintf(file, sizeof file, "%s/log.truce", test_directory());
    REQUIRE(CHECK_OK(truce_store_open(file, &options, &store, &error), error));
    CHECK_OK(truce_insert(store, "things", one, NULL, &error), error);
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    CHECK_OK(truce_insert(store, "things", two, NULL, &error), error);
    truce__clock_sleep_ms(20);
    CHECK_STATUS(TRUCE_EXPIRED, truce_count(view, "things", NULL, NULL, &count, &error), error);
    CHECK_OK(truce_snapshot_inspect(view, &state, &error), error);
    CHECK(state.ended);
    truce_store_close(view);
    truce_store_close(store);
    CHECK_INT(message_level, ==, TRUCE_LOG_INFO);
    if (!strstr(message, "log.truce\" after ") || !strstr(message, "longer"))
        test_fail(__FILE__, __LINE__, "%s", message);
    bson_destroy(one);
    bson_destroy(two);
}
