/* Walks over all documents that others help with: they are the walk that they are without help. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "engine/documents/query.h"
#include "engine/helper_threads.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define DOCUMENTS  12000
#define LARGE_PAD  300000 /* more than the read-ahead keeps */
#define PATIENCE_S 20

static char path[400];

/* {_id: i, g: i % 37, x: whole or with a fraction, pad} */
static bson_t *document_of(struct random *random, int i, uint32_t pad)
{
    char *text = bson_malloc0(pad + 1);
    bson_t *made = BCON_NEW("_id", BCON_INT32(i), "g", BCON_INT32(i % 37));

    memset(text, 'p', pad);
    if (truce__random_below(random, 2))
        BSON_APPEND_DOUBLE(made, "x", truce__random_unit(random) * 1000);
    else
        BSON_APPEND_INT64(made, "x", (int64_t)truce__random_next(random) >> 12);
    BSON_APPEND_UTF8(made, "pad", text);
    bson_free(text);
    return made;
}

static void fill(truce_store *store, struct random *random)
{
    truce_write *writes = bson_malloc0(DOCUMENTS * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(DOCUMENTS * sizeof *outcomes);
    bson_error_t error;

    for (int i = 0; i < DOCUMENTS; i++) {
        uint32_t pad = i % 2500 == 700 ? LARGE_PAD : (uint32_t)truce__random_below(random, 600);

        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = "c", .document = document_of(random, i, pad)};
    }
    CHECK_OK(truce_bulk(store, writes, DOCUMENTS, NULL, outcomes, &error), error);
    for (int i = 0; i < DOCUMENTS; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy((bson_t *)writes[i].document);
    }
    bson_free(writes);
    bson_free(outcomes);
}

static void remove_where(truce_store *store, const char *filter)
{
    bson_t *which = test_bson(filter);
    truce_write_options all = {.multi = true};
    bson_error_t error;

    CHECK_OK(truce_remove(store, "c", which, &all, NULL, &error), error);
    bson_destroy(which);
}

static truce_store *open_with(const char *helpers)
{
    truce_store *store = NULL;
    bson_error_t error;

    setenv("TRUCE_HELPERS", helpers, 1);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    unsetenv("TRUCE_HELPERS");
    return store;
}

/* Holes of all sizes: single rows, most of some, and a long one. */
static void make_file(struct random *random)
{
    truce_store *store;

    snprintf(path, sizeof path, "%s/ahead.truce", test_directory());
    store = open_with("0");
    fill(store, random);
    remove_where(store, "{'g': 3}");
    remove_where(store, "{'_id': {'$gte': 2000, '$lt': 5000}, 'g': {'$ne': 5}}");
    remove_where(store, "{'_id': {'$gte': 5000, '$lt': 10990}}");
    truce_store_close(store);
}

static bool make(struct random *random)
{
    truce__random_seed(random, test_seed());
    make_file(random);
    return !test_failures();
}

/* ---- one walk at the engine ------------------------------------------------------------------ */

struct seen {
    struct engine *engine;
    bool wait;    /* for the helpers, before the first document is taken */
    bool put_off; /* the cursor is put aside then */
    int64_t count, last, sum;
    bool ordered, old, helped;
};

static atomic_bool put_aside;

/* All threads but this one; until one of them is. */
static void put_all_aside(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;

    truce__clock_sleep_ms(5);
    while (tasks && (entry = readdir(tasks))) {
        long id = strtol(entry->d_name, NULL, 10);

        if (id > 0 && id != getpid())
            CHECK(!syscall(SYS_tgkill, getpid(), id, SIGUSR1));
    }
    closedir(tasks);
    for (int i = 0; i < PATIENCE_S * 100 && !atomic_load(&put_aside); i++)
        truce__clock_sleep_ms(10);
}

/* All helpers get their work before the first document is taken, and have time to read ahead up to
 * their limit. On a busy machine they may have ended already: then the test cannot observe them. */
static void wait_for_help(struct seen *seen)
{
    seen->helped = !truce__helpers_any(seen->engine->helpers);
    if (seen->put_off)
        put_all_aside();
    else
        truce__clock_sleep_ms(100);
}

static bool see(const struct found *found, void *arg)
{
    struct seen *seen = arg;
    int64_t id = truce__value_integer(truce__value_field(found->document, "_id", 3));

    if (!seen->count && seen->wait)
        wait_for_help(seen);
    seen->ordered = seen->ordered && id > seen->last;
    seen->old = seen->old && truce__value_field(found->document, "new", 3).type == VALUE_MISSING;
    seen->last = id;
    seen->sum += id * (seen->count + 1);
    seen->count++;
    return true;
}

static truce_status walk(struct engine *engine, const bson_t *filter, struct seen *seen,
                         const bson_t *between, bson_error_t *error)
{
    static const truce_find_options all = {0};
    static const bson_t everything = BSON_INITIALIZER;
    truce_write write = {.kind = TRUCE_WRITE_UPDATE,
                         .collection = "c",
                         .filter = &everything,
                         .document = between,
                         .options = {.multi = true}};
    truce_write_outcome outcome = {0};
    truce_bulk_options options = {0};
    struct query query;
    truce_status status;

    /* the last one's helper is on its way out */
    for (int i = 0; i < PATIENCE_S * 100 && seen->wait && !truce__helpers_any(engine->helpers); i++)
        truce__clock_sleep_ms(10);
    *seen = (struct seen){.engine = engine,
                          .wait = seen->wait,
                          .put_off = seen->put_off,
                          .last = -1,
                          .ordered = true,
                          .old = true};
    status = truce__query_init(&query, engine, "c", filter, &all, PLAN_DOCUMENTS, error);
    if (!status && between) {
        CHECK_OK(truce__engine_bulk(engine, &write, 1, &options, &outcome, error), *error);
        truce_write_result_release(&outcome.result);
    }
    if (!status)
        status = truce__query_run_all(&query, see, seen, error);
    truce__query_release(&query);
    return status;
}

/* Again until help was seen. */
static truce_status walk_with_help(struct engine *engine, const bson_t *filter, struct seen *seen,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    seen->helped = false;
    for (int i = 0; i < 100 && !seen->helped; i++)
        status = walk(engine, filter, seen, NULL, error);
    CHECK(seen->helped);
    return status;
}

static struct engine *open_engine(const char *helpers)
{
    truce_store_options options = {0};
    struct engine *engine = NULL;
    bson_error_t error;

    setenv("TRUCE_HELPERS", helpers, 1);
    CHECK_OK(truce__engine_open(path, &options, &engine, &error), error);
    unsetenv("TRUCE_HELPERS");
    return engine;
}

static void check_same(const char *filter, const char *helpers)
{
    bson_t *which = test_bson(filter);
    struct engine *alone = open_engine("0"), *helped = open_engine(helpers);
    struct seen expected = {0}, got = {.wait = true};
    bson_error_t error;

    REQUIRE(alone && helped);
    CHECK_OK(walk(alone, which, &expected, NULL, &error), error);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(walk_with_help(helped, which, &got, &error), error);
        CHECK_INT(got.count, ==, expected.count);
        CHECK_INT(got.sum, ==, expected.sum);
        CHECK(got.ordered && expected.ordered);
    }
    bson_destroy(which);
    truce__engine_close(helped);
    truce__engine_close(alone);
}

TEST(each_document_comes_once_and_in_order_with_any_number_of_helpers)
{
    struct random random;

    REQUIRE(make(&random));
    check_same("{}", "1");
    check_same("{}", "3");
    check_same("{'x': {'$gt': 300}}", "1");
    check_same("{'g': 5}", "2");
}

TEST(returns_documents_that_exceed_the_read_ahead)
{
    static const bson_t everything = BSON_INITIALIZER;
    struct random random;
    truce_store *store;
    bson_t *update;
    truce_write_options all = {.multi = true};
    bson_error_t error;
    char *text = bson_malloc0(2001);

    REQUIRE(make(&random));
    memset(text, 'q', 2000);
    update = BCON_NEW("$set", "{", "more", BCON_UTF8(text), "}");
    store = open_with("0");
    CHECK_OK(truce_update(store, "c", &everything, update, &all, NULL, &error), error);
    truce_store_close(store);
    check_same("{}", "1");
    check_same("{}", "3");
    bson_destroy(update);
    bson_free(text);
}

TEST(ignores_a_helper_with_another_snapshot)
{
    static const bson_t everything = BSON_INITIALIZER;
    bson_t *update = test_bson("{'$set': {'new': true}}");
    struct seen seen = {.wait = true};
    struct random random;
    struct engine *engine;
    bson_error_t error;

    REQUIRE(make(&random));
    engine = open_engine("2");
    REQUIRE(engine != NULL);
    CHECK_OK(walk(engine, &everything, &seen, update, &error), error);
    CHECK(seen.old && seen.ordered && !seen.helped);
    truce__engine_close(engine);
    bson_destroy(update);
}

TEST(reports_an_error_at_its_position_of_the_walk)
{
    static const int wrong[] = {2, 600, 1900, 11000, 11990};
    struct random random;
    struct engine *alone, *helped;

    REQUIRE(make(&random));
    alone = open_engine("0");
    helped = open_engine("1");
    REQUIRE(alone && helped);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        /* two of them: the first one counts; those below it match */
        bson_t *filter =
            BCON_NEW("$expr", "{", "$gte", "[", "{", "$divide", "[", BCON_INT32(1), "{",
                     "$multiply", "[", "{", "$subtract", "[", "$_id",
                     BCON_INT32(wrong[i] / 37 * 37 + 6), "]", "}", "{", "$subtract", "[", "$_id",
                     BCON_INT32(11993), "]", "}", "]", "}", "]", "}", BCON_INT32(-1), "]", "}");
        struct seen expected = {0}, got = {.wait = wrong[i] >= 50};
        bson_error_t first = {0}, second = {0};
        truce_status status;

        CHECK_STATUS(TRUCE_INVALID, walk(alone, filter, &expected, NULL, &first), first);
        if (got.wait)
            status = walk_with_help(helped, filter, &got, &second);
        else /* it ends before anything is taken */
            status = walk(helped, filter, &got, NULL, &second);
        CHECK_STATUS(TRUCE_INVALID, status, second);
        CHECK_INT(got.count, ==, expected.count);
        CHECK_INT(got.sum, ==, expected.sum);
        CHECK_INT(first.code, ==, second.code);
        CHECK_TEXT(first.message, second.message);
        bson_destroy(filter);
    }
    truce__engine_close(helped);
    truce__engine_close(alone);
}

/* ---- helpers that are put aside -------------------------------------------------------------- */

/* The library's threads block all signals. Here they keep one, which suspends them. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    sigset_t but;

    if (set) {
        but = *set;
        sigdelset(&but, SIGUSR1);
    }
    return syscall(SYS_rt_sigprocmask, how, set ? &but : NULL, before, _NSIG / 8) ? errno : 0;
}

static pthread_t main_thread;
static _Atomic int64_t aside_ns; /* how long */

static void stay(int number)
{
    int64_t ns = atomic_load(&aside_ns);
    struct timespec pause = {ns / 1000000000, ns % 1000000000};

    (void)number;
    if (pthread_equal(pthread_self(), main_thread))
        return;
    atomic_store(&put_aside, true);
    (void)nanosleep(&pause, NULL);
}

/* Takes all that its helper has claimed while it was asleep. */
TEST(does_not_wait_for_a_helper_that_was_put_aside)
{
    /* long enough that the helper is in the midst of a slice for nearly all of the time */
    bson_t *slow = test_bson("{'$expr': {'$gte': [{'$reduce': {'input': {'$range': [0, 60]},"
                             " 'initialValue': 0, 'in': {'$add': ['$$value', '$$this']}}}, 0]}}");
    struct sigaction action = {.sa_handler = stay};
    struct seen expected = {0}, got = {0};
    struct random random;
    struct engine *engine;
    bson_error_t error;
    int64_t took_ns = 0, began_ns;

    main_thread = pthread_self();
    REQUIRE(make(&random) && !sigaction(SIGUSR1, &action, NULL));
    engine = open_engine("1");
    REQUIRE(engine != NULL);
    began_ns = truce__clock_monotonic_ns();
    CHECK_OK(walk(engine, slow, &expected, NULL, &error), error);
    aside_ns = 1500000000 + 4 * (truce__clock_monotonic_ns() - began_ns);
    /* The signal may reach the helper while it holds a lock, which is rare. */
    for (int tries = 0; tries < 3 && (!tries || took_ns >= aside_ns); tries++) {
        got = (struct seen){.wait = true, .put_off = true};
        atomic_store(&put_aside, false);
        began_ns = truce__clock_monotonic_ns();
        CHECK_OK(walk_with_help(engine, slow, &got, &error), error);
        took_ns = truce__clock_monotonic_ns() - began_ns;
        CHECK(atomic_load(&put_aside));
    }
    CHECK_INT(took_ns, <, aside_ns);
    CHECK_INT(got.count, ==, expected.count);
    CHECK_INT(got.sum, ==, expected.sum);
    CHECK(got.ordered);
    truce__engine_close(engine);
    bson_destroy(slow);
}

/* ---- reports --------------------------------------------------------------------------------- */

static const char *const matches[] = {
    "{'$match': {'x': {'$gte': 100}}}",
    "{'$match': {'g': {'$in': [1, 5, 20, 30]}}}",
    "{'$match': {'x': {'$not': {'$gt': 500}}}}",
    "{'$match': {'pad': {'$regex': '^p{300}'}}}",
    "{'$match': {'nothing': 1}}",
    "{'$unwind': '$g'}",
    "{'$project': {'g': 1, 'x': 1}}",
    "{'$set': {'y': {'$multiply': ['$x', 3]}}}",
};

static const char *const ends[] = {
    "{'$group': {'_id': '$g', 's': {'$sum': '$x'}, 'a': {'$avg': '$x'}, 'd': {'$stdDevPop': '$x'}}}",
    "{'$group': {'_id': '$g', 'all': {'$push': '$_id'}, 'set': {'$addToSet': '$x'}}}",
    "{'$group': {'_id': {'$mod': ['$_id', 100]}, 'f': {'$first': '$x'}, 'l': {'$last': '$x'},"
    " 'least': {'$min': '$x'}, 'most': {'$max': '$x'}, 'n': {'$count': {}}}}",
    "{'$group': {'_id': '$g', 't': {'$topN': {'n': 3, 'sortBy': {'x': 1}, 'output': '$_id'}},"
    " 'm': {'$mergeObjects': '$$ROOT'}}}",
    "{'$sortByCount': '$g'}",
    "{'$sort': {'x': 1, '_id': -1}}",
    "{'$bucketAuto': {'groupBy': '$x', 'buckets': 7}}",
    "{'$group': {'_id': {'$divide': [1, {'$subtract': ['$_id', 9000]}]}}}",
    "{'$limit': 5000}",
};

#define ANY(list, random) (list)[truce__random_below(random, sizeof(list) / sizeof *(list))]

/* Runs a report, and encodes its answer or its error as bytes. */
static void run_report(truce_store *store, const char *text, struct buffer *answer)
{
    bson_t *wrapped = test_bson(text), stages;
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error = {0};
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;
    truce_status status;

    CHECK(bson_iter_init_find(&iter, wrapped, "v"));
    bson_iter_array(&iter, &size, &bytes);
    CHECK(bson_init_static(&stages, bytes, size));
    status = truce_aggregate(store, "c", &stages, NULL, &cursor, &error);
    answer->size = 0;
    while (!status && !(status = truce_cursor_next(cursor, &document, &error)) && document)
        truce__buffer_append(answer, bson_get_data(document), document->len);
    truce__buffer_append(answer, &status, sizeof status);
    truce__buffer_append(answer, error.message, strlen(error.message));
    truce_cursor_close(cursor);
    bson_destroy(wrapped);
}

TEST(reports_are_the_same_to_the_byte_with_helpers)
{
    struct buffer expected = {0}, got = {0};
    struct random random;
    truce_store *alone, *helped;

    REQUIRE(make(&random));
    alone = open_with("0");
    helped = open_with("3");
    REQUIRE(alone && helped);
    for (long i = 0; i < test_scale("TRUCE_REPORTS", 60) && !test_failures(); i++) {
        char *text =
            bson_strdup_printf("{'v': [%s, %s]}", ANY(matches, &random), ANY(ends, &random));

        run_report(alone, text, &expected);
        run_report(helped, text, &got);
        if (!CHECK(got.size == expected.size && !memcmp(got.bytes, expected.bytes, got.size)))
            test_fail(__FILE__, __LINE__, "of %s", text);
        bson_free(text);
    }
    truce_store_close(helped);
    truce_store_close(alone);
    truce__buffer_release(&expected);
    truce__buffer_release(&got);
}

static void check_counts(truce_store *alone, truce_store *helped, const char *filter)
{
    bson_t *which = test_bson(filter), expected, got;
    int64_t count = 0, other = 0;
    bson_error_t error;

    CHECK_OK(truce_count(alone, "c", which, NULL, &count, &error), error);
    CHECK_OK(truce_count(helped, "c", which, NULL, &other, &error), error);
    CHECK_INT(count, ==, other);
    CHECK_OK(truce_distinct(alone, "c", "x", which, &expected, &error), error);
    CHECK_OK(truce_distinct(helped, "c", "x", which, &got, &error), error);
    CHECK_BSON(&expected, &got);
    bson_destroy(&expected);
    bson_destroy(&got);
    bson_destroy(which);
}

TEST(counts_and_distinct_values_are_the_same_with_helpers)
{
    struct random random;
    truce_store *alone, *helped;

    REQUIRE(make(&random));
    alone = open_with("0");
    helped = open_with("2");
    REQUIRE(alone && helped);
    for (int i = 0; i < 5; i++) {
        check_counts(alone, helped, "{'x': {'$gt': 500}}");
        check_counts(alone, helped, "{'g': {'$gt': 5}}");
    }
    truce_store_close(helped);
    truce_store_close(alone);
}

/* ---- with concurrent writers ----------------------------------------------------------------- */

static atomic_bool over;

/* Each commit moves an amount from one document to a distant document. */
static void *move_on(void *store)
{
    bson_t *less = test_bson("{'$inc': {'sum': -1}}"), *more = test_bson("{'$inc': {'sum': 1}}");
    bson_error_t error;

    for (int i = 0; !atomic_load(&over); i++) {
        bson_t *from = BCON_NEW("_id", BCON_INT32(i * 7 % 500));
        bson_t *to = BCON_NEW("_id", BCON_INT32(11000 + i * 11 % 900));
        truce_write writes[] = {{.kind = TRUCE_WRITE_UPDATE,
                                 .collection = "c",
                                 .filter = from,
                                 .document = less,
                                 .options = {.upsert = true}},
                                {.kind = TRUCE_WRITE_UPDATE,
                                 .collection = "c",
                                 .filter = to,
                                 .document = more,
                                 .options = {.upsert = true}}};
        truce_write_outcome outcomes[2];
        truce_bulk_options atomic = {.atomic = true, .relaxed = true};

        CHECK_OK(truce_bulk(store, writes, 2, &atomic, outcomes, &error), error);
        truce_write_result_release(&outcomes[0].result);
        truce_write_result_release(&outcomes[1].result);
        bson_destroy(from);
        bson_destroy(to);
        if (i % 16 == 0)
            truce__clock_sleep_ms(3); /* so that some reports begin while no commit runs */
    }
    bson_destroy(less);
    bson_destroy(more);
    return NULL;
}

TEST(reads_one_snapshot_in_a_report_with_concurrent_writers)
{
    static const char total[] = "{'v': [{'$group': {'_id': null, 's': {'$sum': '$sum'}}},"
                                " {'$match': {'s': {'$ne': 0}}}]}";
    int64_t until_ms = truce__clock_wall_ms() + test_scale("TRUCE_BESIDE_MS", 700);
    struct buffer got = {0};
    struct random random;
    truce_store *store;
    pthread_t writer;
    truce_status fine = TRUCE_OK;

    REQUIRE(make(&random));
    store = open_with("2");
    REQUIRE(store != NULL);
    atomic_store(&over, false);
    REQUIRE(!pthread_create(&writer, NULL, move_on, store));
    while (truce__clock_wall_ms() < until_ms && !test_failures()) {
        run_report(store, total, &got);
        CHECK(got.size == sizeof fine && !memcmp(got.bytes, &fine, sizeof fine));
    }
    atomic_store(&over, true);
    pthread_join(writer, NULL);
    truce_store_close(store);
    truce__buffer_release(&got);
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(a_walk_with_helpers_ends_at_its_deadline)
{
    bson_t *slow = test_bson("{'$expr': {'$lt': [{'$reduce': {'input': {'$range': [0, 20000]},"
                             " 'initialValue': 0, 'in': {'$add': ['$$value', '$$this']}}}, 0]}}");
    truce_count_options soon = {.deadline_ms = 100};
    struct random random;
    truce_store *store;
    bson_error_t error;
    int64_t count, began_ns;

    REQUIRE(make(&random));
    store = open_with("3");
    REQUIRE(store != NULL);
    began_ns = truce__clock_monotonic_ns();
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "c", slow, &soon, &count, &error), error);
    CHECK_INT(error.code, ==, 50);
    truce_store_close(store); /* when its helpers have noticed, too */
    CHECK_INT((truce__clock_monotonic_ns() - began_ns) / 1000000, <, 3000);
    bson_destroy(slow);
}

TEST(a_forked_child_has_no_helpers_and_leaves_them_alone)
{
    bson_t *filter = test_bson("{'x': {'$gt': 500}}");
    struct random random;
    truce_store *store;
    bson_error_t error;
    int64_t count;
    int status = 0;
    pid_t child;

    REQUIRE(make(&random));
    store = open_with("1");
    REQUIRE(store && CHECK_OK(truce_count(store, "c", filter, NULL, &count, &error), error));
    child = fork();
    if (!child) {
        CHECK_STATUS(TRUCE_INVALID, truce_count(store, "c", filter, NULL, &count, &error), error);
        truce_store_close(store);
        test_child_exit();
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK_OK(truce_count(store, "c", filter, NULL, &count, &error), error);
    truce_store_close(store);
    bson_destroy(filter);
}
