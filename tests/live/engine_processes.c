/*
 * Several processes with several threads each read and write one file, while indexes are created
 * and dropped. Every invariant holds all the time, and at the end all acknowledged writes are
 * there.
 *
 * TRUCE_CROWD_MS: how long.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "store/store.h"
#include "tests/support/school.h"
#include "tests/support/test.h"

#define PROCESSES 4
#define THREADS   8
#define NAMES     200 /* unique names that all workers want */
#define JOBS      3000

/* Shared by all processes. */
static struct shared {
    struct school_notes notes;
    atomic_llong hot;          /* acknowledged increments of the one hot document */
    atomic_llong names[NAMES]; /* acknowledged inserts of a name minus removals */
    atomic_int claims[JOBS];   /* how often a job was claimed */
    atomic_llong wrong;
} * shared;

static truce_store *store;
static int64_t until_ns;

static bson_t *document(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bson_t *document(const char *format, ...)
{
    char json[300];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(json, sizeof json, format, arguments);
    va_end(arguments);
    return test_bson(json);
}

static void expect(bool holds, const char *what, const bson_error_t *error)
{
    if (holds)
        return;
    atomic_fetch_add(&shared->wrong, 1);
    fprintf(stderr, "crowd: %s: %s\n", what, error->message);
}

/* ---- operations of the threads --------------------------------------------------------------- */

static void heat(struct random *random, int worker)
{
    bson_t *filter = test_bson("{'_id': 'hot'}"), *update = test_bson("{'$inc': {'n': 1}}");
    truce_write_options options = {.upsert = true};
    bson_error_t error = {0};

    (void)random;
    (void)worker;
    expect(!truce_update(store, "hot", filter, update, &options, NULL, &error), "hot", &error);
    atomic_fetch_add(&shared->hot, 1);
    bson_destroy(filter);
    bson_destroy(update);
}

/* The first worker inserts a name, and its owner removes it again. */
static void take_name(struct random *random, int worker)
{
    int name = (int)truce__random_below(random, NAMES);
    bson_t *entry = document("{'name': 'n%d', 'owner': %d, 'parts': [%d, %d]}", name, worker,
                             name % 3, name % 5);
    bson_t *mine = document("{'name': 'n%d', 'owner': %d}", name, worker);
    truce_write_result result = {0};
    bson_error_t error = {0};
    truce_status status = truce_insert(store, "names", entry, NULL, &error);

    expect(!status || status == TRUCE_DUPLICATE, "name", &error);
    if (!status)
        expect(atomic_fetch_add(&shared->names[name], 1) == 0, "a name has two owners", &error);
    if (!status && truce__random_below(random, 2)) {
        /* before the removal, because after it another may be faster */
        atomic_fetch_sub(&shared->names[name], 1);
        expect(!truce_remove(store, "names", mine, NULL, &result, &error) && result.removed == 1,
               "removal of a name", &error);
    }
    bson_destroy(entry);
    bson_destroy(mine);
}

static void claim_job(struct random *random, int worker)
{
    bson_t *filter = test_bson("{'state': 'new'}"), *sort = test_bson("{'order': 1}");
    bson_t *update = document("{'$set': {'state': 'taken', 'by': %d}}", worker);
    truce_modify_options options = {.sort = sort};
    bson_error_t error = {0};
    truce_status status;
    bson_iter_t iter;
    bson_t job;

    (void)random;
    status = truce_find_and_modify(store, "jobs", filter, update, &options, &job, NULL, &error);
    expect(!status || status == TRUCE_NOT_FOUND, "job", &error);
    if (!status && bson_iter_init_find(&iter, &job, "_id"))
        expect(atomic_fetch_add(&shared->claims[bson_iter_as_int64(&iter)], 1) == 0,
               "a job was claimed twice", &error);
    bson_destroy(&job);
    bson_destroy(filter);
    bson_destroy(sort);
    bson_destroy(update);
}

static void work_in_school(struct random *random, int worker)
{
    bson_error_t error = {0};

    (void)random;
    expect(!school_round(store, &shared->notes, worker, 0, false, &error), "round", &error);
}

/* All accounts of one instant hold all the money. */
static void look_at_money(struct random *random, int worker)
{
    bson_value_t ids[SCHOOL_ACCOUNTS];
    truce_read_request looks[SCHOOL_ACCOUNTS];
    bson_error_t error = {0};
    int64_t sum = 0;

    (void)random;
    (void)worker;
    for (int i = 0; i < SCHOOL_ACCOUNTS; i++) {
        ids[i].value_type = BSON_TYPE_INT32;
        ids[i].value.v_int32 = i;
        looks[i] = (truce_read_request){.collection = "accounts", .id = &ids[i]};
    }
    expect(!truce__store_read_many(store, looks, SCHOOL_ACCOUNTS, &error), "look", &error);
    for (int i = 0; i < SCHOOL_ACCOUNTS; i++) {
        bson_iter_t iter;

        if (bson_iter_init_find(&iter, &looks[i].document, "money"))
            sum += bson_iter_as_int64(&iter);
        bson_destroy(&looks[i].document);
    }
    expect(sum == SCHOOL_ACCOUNTS * SCHOOL_MONEY, "the money is not all there", &error);
}

/* Checks that an index and a scan find the same documents, of those that no worker changes. */
static void search(struct random *random, int worker)
{
    int order = (int)truce__random_below(random, JOBS - 20);
    bson_t *filter = document("{'order': {'$gte': %d, '$lt': %d}}", order, order + 20);
    bson_error_t error = {0};
    int64_t count = 0;

    (void)worker;
    /* CONFLICT: the index was dropped in the meantime */
    while (truce_count(store, "jobs", filter, NULL, &count, &error) == TRUCE_CONFLICT)
        continue;
    expect(count == 20, "jobs are missing from a range", &error);
    bson_destroy(filter);
}

static void change_indexes(struct random *random, int worker)
{
    static const char *const keys[] = {"{'key': {'order': 1}}", "{'key': {'by': -1, 'order': 1}}"};
    static const char *const names[] = {"order_1", "by_-1_order_1"};
    int which = (int)truce__random_below(random, 2);
    bson_t *index = test_bson(keys[which]);
    bson_error_t error = {0};
    truce_status status = truce_index_create(store, "jobs", index, &error);

    (void)worker;
    expect(!status || status == TRUCE_CONFLICT, "index", &error);
    truce__clock_sleep_ms(20);
    if (!status)
        status = truce_index_drop(store, "jobs", names[which], &error);
    expect(!status || status == TRUCE_NOT_FOUND || status == TRUCE_CONFLICT, "drop", &error);
    bson_destroy(index);
}

static void (*const duties[])(struct random *random, int worker) = {
    heat, take_name, claim_job, work_in_school, look_at_money, search, work_in_school, take_name};

static void *work(void *arg)
{
    int worker = (int)(intptr_t)arg;
    struct random random;

    truce__random_seed(&random, (uint64_t)worker + 1);
    while (truce__clock_monotonic_ns() < until_ns && !atomic_load(&shared->wrong)) {
        if (worker == 5)
            change_indexes(&random, worker);
        else
            duties[worker % (int)(sizeof duties / sizeof *duties)](&random, worker);
    }
    return NULL;
}

/* ---- processes ------------------------------------------------------------------------------ */

static _Noreturn void live(const char *path, int process)
{
    pthread_t threads[THREADS];
    bson_error_t error = {0};

    expect(!truce_store_open(path, NULL, &store, &error), "open", &error);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(process * THREADS + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    truce_store_close(store);
    test_child_exit();
}

static void prepare(const char *path)
{
    bson_t *unique = test_bson("{'key': {'name': 1}, 'unique': true}");
    bson_t *parts = test_bson("{'key': {'parts': 1}}");
    bson_t *state = test_bson("{'key': {'state': 1, 'order': 1}}");
    bson_error_t error;

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(school_open(store, &error), error);
    CHECK_OK(truce_index_create(store, "names", unique, &error), error);
    CHECK_OK(truce_index_create(store, "names", parts, &error), error);
    CHECK_OK(truce_index_create(store, "jobs", state, &error), error);
    for (int i = 0; i < JOBS; i++) {
        bson_t *job = document("{'_id': %d, 'order': %d, 'state': 'new'}", i, i);
        truce_write_options options = {.relaxed = true};

        CHECK_OK(truce_insert(store, "jobs", job, &options, &error), error);
        bson_destroy(job);
    }
    truce_store_close(store);
    bson_destroy(unique);
    bson_destroy(parts);
    bson_destroy(state);
}

static int64_t count(const char *collection, const char *json)
{
    bson_t *filter = test_bson(json);
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce_count(store, collection, filter, NULL, &number, &error), error);
    bson_destroy(filter);
    return number;
}

static void check_end(const char *path)
{
    int64_t names = 0, claims = 0;
    bson_error_t error;
    bson_t hot;
    bson_iter_t iter;

    CHECK(!school_check(path, &shared->notes, PROCESSES * THREADS, true, true));
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    for (int i = 0; i < NAMES; i++)
        names += atomic_load(&shared->names[i]);
    for (int i = 0; i < JOBS; i++)
        claims += atomic_load(&shared->claims[i]);
    CHECK_INT(count("names", "{}"), ==, names);
    CHECK_INT(count("jobs", "{'state': 'taken'}"), ==, claims);
    CHECK_OK(truce_find_one(store, "hot", NULL, NULL, &hot, &error), error);
    CHECK(bson_iter_init_find(&iter, &hot, "n"));
    CHECK_INT(bson_iter_as_int64(&iter), ==, atomic_load(&shared->hot));
    CHECK_INT(claims, >, 0);
    bson_destroy(&hot);
    truce_store_close(store);
}

TEST(keeps_all_invariants_with_many_processes_and_threads)
{
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    prepare(path);
    until_ns = truce__clock_monotonic_ns() + test_scale("TRUCE_CROWD_MS", 5000) * INT64_C(1000000);
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        if (!fork())
            live(path, i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int state;

        CHECK(wait(&state) > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    CHECK_INT(atomic_load(&shared->wrong), ==, 0);
    check_end(path);
    munmap(shared, sizeof *shared);
}
