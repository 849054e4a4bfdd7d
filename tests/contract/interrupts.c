/*
 * Calls end when their time is over or they are interrupted, wherever they are: in a stage, in one
 * expression, in one match, in a write. Each of these would run for hours. The tests check that
 * each ends within the time of the whole program.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/test.h"
#include "truce/sys/store.h"

#define SOON_MS   20
#define DOCUMENTS 300

static const bson_t everything = BSON_INITIALIZER;

static truce_store *open_store(const char *uri)
{
    char path[200];
    truce_store *store = NULL;
    bson_error_t error;

    if (!strcmp(uri, "file:"))
        snprintf(path, sizeof path, "file:%s/ending.truce", test_directory());
    else
        snprintf(path, sizeof path, "%s", uri);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    return store;
}

/* Documents {_id, a: [0 .. 299]}. */
static void fill(truce_store *store)
{
    bson_error_t error;
    int64_t count = 0;

    CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
    for (int i = 0; i < DOCUMENTS && !count; i++) {
        bson_t document = BSON_INITIALIZER, array;
        char key[16];

        BSON_APPEND_INT32(&document, "_id", i);
        BSON_APPEND_ARRAY_BEGIN(&document, "a", &array);
        for (int j = 0; j < DOCUMENTS; j++) {
            snprintf(key, sizeof key, "%d", j);
            BSON_APPEND_INT32(&array, key, j);
        }
        bson_append_array_end(&document, &array);
        CHECK_OK(
            truce_insert(store, "c", &document, &(truce_write_options){.relaxed = true}, &error),
            error);
        bson_destroy(&document);
    }
}

/* Hours of work, each in another place. */
#define RANGE "{'$range':[0,1000000]}"
#define LONG_EXPRESSION                                                                            \
    "{'$reduce':{'input':" RANGE ",'initialValue':0,'in':{'$add':['$$value',{'$size':"             \
    "{'$filter':{'input':" RANGE ",'as':'x','cond':{'$gt':['$$x','$$this']}}}}]}}}"
#define UNWOUND                                                                                    \
    "{'$unwind':'$a'},{'$lookup':{'from':'c','pipeline':[{'$unwind':'$a'}],'as':'b'}},"            \
    "{'$unwind':'$b'},{'$unwind':'$b.a'}"

static const char *const pipelines[] = {
    "[{'$project':{'x':" LONG_EXPRESSION "}}]",
    "[{'$match':{'$expr':{'$gt':[" LONG_EXPRESSION ",0]}}}]",
    "[{'$lookup':{'from':'c','let':{'i':'$_id'},'pipeline':[{'$unwind':'$a'},{'$lookup':{'from':'c',"
    "'pipeline':[{'$match':{'$expr':{'$lt':['$_id','$$i']}}},{'$unwind':'$a'},{'$count':'n'}],"
    "'as':'z'}}],'as':'y'}}]",
    "[{'$facet':{'one':[" UNWOUND ",{'$count':'n'}],'two':[{'$count':'n'}]}}]",
    "[" UNWOUND ",{'$sort':{'b.a':1,'_id':-1}},{'$limit':1}]",
    "[" UNWOUND ",{'$group':{'_id':'$b.a','n':{'$sum':1}}}]",
    "[" UNWOUND ",{'$bucketAuto':{'groupBy':{'$mod':['$b.a',7]},'buckets':2}}]",
    "[{'$group':{'_id':null,'n':{'$sum':" LONG_EXPRESSION "}}}]",
    "[{'$unionWith':{'coll':'c','pipeline':[" UNWOUND ",{'$match':{'b.a':-1}}]}}]",
    "[" UNWOUND ",{'$skip':1000000000}]",
};

static truce_status run_pipeline(truce_store *store, const char *json, uint32_t deadline_ms,
                                 bson_error_t *error)
{
    bson_t *pipeline = test_bson(json);
    truce_aggregate_options options = {.deadline_ms = deadline_ms, .allow_disk_use = true};
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_aggregate(store, "c", pipeline, &options, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (!document)
            break;
    }
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    return status;
}

static void pipelines_end(const char *uri)
{
    truce_store *store = open_store(uri);
    bson_error_t error;

    fill(store);
    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++) {
        CHECK_STATUS(TRUCE_TIMEOUT, run_pipeline(store, pipelines[i], SOON_MS, &error), error);
        CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    }
    truce_store_close(store);
}

TEST(a_pipeline_ends_at_its_deadline_in_memory)
{
    pipelines_end("memory:");
}

TEST(a_pipeline_ends_at_its_deadline_in_a_file)
{
    pipelines_end("file:");
}

/* A filter that goes over each array for each of its many conditions. */
static bson_t *long_filter(void)
{
    bson_t *filter = bson_new(), any;
    char key[16];

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    for (int i = 0; i < 20000; i++) {
        bson_t condition, range;

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&any, key, &condition);
        BSON_APPEND_DOCUMENT_BEGIN(&condition, "a", &range);
        BSON_APPEND_INT32(&range, "$gt", 1000 + i);
        bson_append_document_end(&condition, &range);
        bson_append_document_end(&any, &condition);
    }
    bson_append_array_end(filter, &any);
    return filter;
}

static bson_t *long_update(void)
{
    return test_bson("[{'$set':{'x':" LONG_EXPRESSION "}}]");
}

static void writes_end(const char *uri)
{
    truce_write_options options = {.deadline_ms = SOON_MS, .multi = true, .pipeline = true};
    truce_modify_options modify = {.deadline_ms = SOON_MS, .pipeline = true};
    bson_t *filter = long_filter(), *update = long_update(), *set = test_bson("{'$set':{'y':1}}");
    bson_t *some = test_bson("{'y':1}"), document;
    truce_store *store = open_store(uri);
    truce_write_result result;
    bson_error_t error;
    int64_t count;

    fill(store);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce_update(store, "c", &everything, update, &options, &result, &error), error);
    CHECK_INT(result.modified, ==, 0);
    CHECK_STATUS(
        TRUCE_TIMEOUT,
        truce_find_and_modify(store, "c", &everything, update, &modify, &document, NULL, &error),
        error);
    bson_destroy(&document);
    options.pipeline = false;
    CHECK_STATUS(TRUCE_TIMEOUT, truce_update(store, "c", filter, set, &options, &result, &error),
                 error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_remove(store, "c", filter, &options, &result, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce_count(store, "c", filter, &(truce_count_options){.deadline_ms = SOON_MS},
                             &count, &error),
                 error);
    CHECK_OK(truce_count(store, "c", some, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    bson_destroy(filter);
    bson_destroy(update);
    bson_destroy(set);
    bson_destroy(some);
    truce_store_close(store);
}

TEST(a_write_ends_at_its_deadline_in_memory)
{
    writes_end("memory:");
}

TEST(a_write_ends_at_its_deadline_in_a_file)
{
    writes_end("file:");
}

/* The last document takes hours; those before it are unchanged. */
static void nothing_stays(const char *uri)
{
    truce_write_options options = {.deadline_ms = 200, .multi = true, .pipeline = true};
    bson_t *update =
        test_bson("[{'$set':{'y':{'$cond':[{'$lt':['$_id',299]},1," LONG_EXPRESSION "]}}}]");
    bson_t *some = test_bson("{'y':1}");
    truce_store *store = open_store(uri);
    truce_write_result result;
    bson_error_t error;
    int64_t count;

    fill(store);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce_update(store, "c", &everything, update, &options, &result, &error), error);
    CHECK_OK(truce_count(store, "c", some, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    bson_destroy(update);
    bson_destroy(some);
    truce_store_close(store);
}

TEST(an_expired_write_of_many_changes_no_document_in_memory)
{
    nothing_stays("memory:");
}

TEST(an_expired_write_of_many_changes_no_document_in_a_file)
{
    nothing_stays("file:");
}

/* ---- interrupts ----------------------------------------------------------------------------- */

static void *interrupt_soon(void *arg)
{
    truce__clock_sleep_ms(SOON_MS);
    truce_interrupt(arg);
    return NULL;
}

static void interrupts_end(const char *uri)
{
    truce_store *store = open_store(uri);
    bson_t *update = long_update(), *filter = long_filter(), document;
    uint64_t token = 0;
    bson_error_t error;
    pthread_t thread;

    fill(store);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(truce_wait(store, "c", &token, 0, &error), error);
        pthread_create(&thread, NULL, interrupt_soon, store);
        if (i == 0)
            CHECK_STATUS(TRUCE_TIMEOUT, run_pipeline(store, pipelines[0], 0, &error), error);
        else if (i == 1)
            CHECK_STATUS(TRUCE_TIMEOUT,
                         truce_update(store, "c", &everything, update,
                                      &(truce_write_options){.pipeline = true}, NULL, &error),
                         error);
        else if (i == 2)
            CHECK_STATUS(TRUCE_TIMEOUT, truce_wait(store, "c", &token, UINT32_MAX, &error), error);
        else
            CHECK_STATUS(TRUCE_TIMEOUT, truce_find_one(store, "c", filter, NULL, &document, &error),
                         error);
        if (i == 3)
            bson_destroy(&document);
        CHECK_INT(error.code, ==, CODE_INTERRUPTED);
        pthread_join(thread, NULL);
        truce_resume(store);
        token = 0;
    }
    bson_destroy(update);
    bson_destroy(filter);
    truce_store_close(store);
}

TEST(an_interrupt_ends_running_calls_in_memory)
{
    interrupts_end("memory:");
}

TEST(an_interrupt_ends_running_calls_in_a_file)
{
    interrupts_end("file:");
}

/* ---- steps follow the number of values ------------------------------------------------------- */

static bson_t *numbers(int from, int count)
{
    bson_t *array = bson_new();
    char key[16];

    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT32(array, key, from + i);
    }
    return array;
}

/* 10^5 items among 2 * 10^5: comparing them one by one would take half an hour. */
TEST(sets_of_many_values_are_compared_by_hash)
{
    bson_t *old = numbers(0, 200000), *added = numbers(150000, 100000), *pipeline;
    bson_t document = BSON_INITIALIZER, add = BSON_INITIALIZER, pull = BSON_INITIALIZER, child,
           each;
    truce_store *store = open_store("memory:");
    bson_error_t error;

    BSON_APPEND_INT32(&document, "_id", 1);
    BSON_APPEND_ARRAY(&document, "a", old);
    BSON_APPEND_ARRAY(&document, "b", added);
    BSON_APPEND_DOCUMENT_BEGIN(&add, "$addToSet", &child);
    BSON_APPEND_DOCUMENT_BEGIN(&child, "a", &each);
    BSON_APPEND_ARRAY(&each, "$each", added);
    bson_append_document_end(&child, &each);
    bson_append_document_end(&add, &child);
    BSON_APPEND_DOCUMENT_BEGIN(&pull, "$pullAll", &child);
    BSON_APPEND_ARRAY(&child, "a", added);
    bson_append_document_end(&pull, &child);
    CHECK_OK(truce_insert(store, "x", &document, NULL, &error), error);
    CHECK_OK(truce_update(store, "x", &everything, &add, NULL, NULL, &error), error);
    pipeline = test_bson("[{'$match': {'$expr': {'$eq': [{'$size': '$a'}, 250000]}}}, {'$match': "
                         "{'$expr': {'$eq': [{'$size': {'$filter': {'input': '$b', 'as': 'x', "
                         "'cond': {'$in': ['$$x', '$a']}}}}, 100000]}}}, {'$out': 'found'}]");
    {
        truce_cursor *cursor = NULL;
        const bson_t *none = NULL;
        int64_t count = 0;

        CHECK_OK(truce_aggregate(store, "x", pipeline, NULL, &cursor, &error), error);
        CHECK_OK(truce_cursor_next(cursor, &none, &error), error);
        truce_cursor_close(cursor);
        CHECK_OK(truce_count(store, "found", NULL, NULL, &count, &error), error);
        CHECK_INT(count, ==, 1);
    }
    CHECK_OK(truce_update(store, "x", &everything, &pull, NULL, NULL, &error), error);
    bson_destroy(pipeline);
    pipeline = test_bson("{'a': {'$size': 150000}}");
    {
        int64_t count = 0;

        CHECK_OK(truce_count(store, "x", pipeline, NULL, &count, &error), error);
        CHECK_INT(count, ==, 1);
    }
    truce_store_close(store);
    bson_destroy(pipeline);
    bson_destroy(&document);
    bson_destroy(&add);
    bson_destroy(&pull);
    bson_destroy(old);
    bson_destroy(added);
}

/* Each stage alone holds far less than its limit. */
TEST(the_stages_of_a_pipeline_share_one_maximum_of_memory)
{
    static const char stage[] =
        "{'$lookup':{'from':'c','pipeline':[{'$unwind':'$a'},{'$set':{'x':'%0200d'}}],'as':'f%d'}},";
    truce_store *store = open_store("memory:");
    char pipeline[8000] = "[{'$limit':1},", *at = pipeline + strlen(pipeline);
    bson_error_t error;

    fill(store);
    for (int i = 0; i < 15; i++)
        at += snprintf(at, 400, stage, 0, i);
    strcpy(at, "{'$project':{'_id':1}}]");
    CHECK_STATUS(TRUCE_LIMIT, run_pipeline(store, pipeline, 0, &error), error);
    CHECK_INT(error.code, ==, CODE_EXCEEDED_MEMORY_LIMIT);
    CHECK(strstr(error.message, "the stages of the pipeline exceed"));
    CHECK_OK(
        run_pipeline(store, "[{'$unwind':'$a'},{'$sort':{'a':1}},{'$skip':1000000}]", 0, &error),
        error);
    truce_store_close(store);
}

/* The memory of all stages together, of one more stage that notices the limit too late, and of
 * the process itself. */
#define MEMORY_MAX_KB        ((256 + 100 + 64) * 1024)

#define LOOKUP(as, pipeline) "{'$lookup':{'from':'c','pipeline':[" pipeline "],'as':'" as "'}}"
#define WIDE                 "{'$unwind':'$a'},{'$set':{'x':'" TEXT_500 "'}}"
#define TEXT_50              "12345678901234567890123456789012345678901234567890"
#define TEXT_500             TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50 TEXT_50
#define PUSH                 "{'$group':{'_id':'$_id','all':{'$push':'$$ROOT'}}}"

static const char *const wide_pipelines[] = {
    "[{'$limit':1}," LOOKUP("f1", WIDE) "," LOOKUP("f2", WIDE) "," LOOKUP("f3", WIDE) "," LOOKUP(
        "f4",
        WIDE) "," LOOKUP("f5",
                         WIDE) "," LOOKUP("f6",
                                          WIDE) "," LOOKUP("f7",
                                                           WIDE) "," LOOKUP("f8",
                                                                            WIDE) ",{'$project':{'_id':1}}]",
    "[{'$limit':1}," LOOKUP(
        "f1",
        "{'$limit':1}," LOOKUP(
            "f2",
            "{'$limit':1}," LOOKUP(
                "f3", "{'$limit':1}," LOOKUP("f4", WIDE) "," LOOKUP(
                          "g4", WIDE)) "," LOOKUP("g3",
                                                  WIDE)) "," LOOKUP("g2",
                                                                    WIDE)) "," LOOKUP("g1",
                                                                                      WIDE) "]",
    "[{'$facet':{'a':[" WIDE "],'b':[" WIDE "],'c':[" WIDE "],'d':[" WIDE ",{'$sort':{'x':1}}],"
    "'e':[" WIDE "," PUSH "]}}]",
    "[{'$unionWith':{'coll':'c','pipeline':[" WIDE "," PUSH
    ",{'$unionWith':{'coll':'c','pipeline':[" WIDE "," PUSH
    ",{'$unionWith':{'coll':'c','pipeline':[" WIDE ",{'$sort':{'x':1}}]}}]}}]}},"
    "{'$unionWith':{'coll':'c','pipeline':[" WIDE "," PUSH
    "]}},{'$sort':{'x':1}},{'$skip':100000}]",
    "[" WIDE ",{'$sort':{'x':1}}," PUSH ",{'$bucketAuto':{'groupBy':'$_id','buckets':1,'output':{"
    "'all':{'$push':'$all'}}}}]",
};

static long peak_kb(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[200];
    long peak = -1;

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld kB", &peak) == 1)
            break;
    if (file)
        fclose(file);
    return peak;
}

static void run_wide(const char *json)
{
    truce_store *store = open_store("memory:");
    bson_error_t error = {0};

    fill(store);
    (void)!run_pipeline(store, json, 0, &error);
    truce_store_close(store);
    CHECK_INT(peak_kb(), <, MEMORY_MAX_KB);
}

/* Runs each in a process of its own, whose memory is measured. */
TEST(no_pipeline_takes_more_memory_than_a_pipeline_may)
{
    if (TEST_SANITIZED) {
        test_skip("memory is not measured here");
        return;
    }
    for (size_t i = 0; i < sizeof wide_pipelines / sizeof *wide_pipelines; i++) {
        pid_t child = fork();
        int status = 1;

        REQUIRE(child >= 0);
        if (!child) {
            run_wide(wide_pipelines[i]);
            test_child_exit();
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_INT(status, ==, 0);
    }
}
