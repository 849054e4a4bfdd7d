/* Ordered sets under many threads, processes, and collectors, at random, against the in-order
 * run. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"
#include "truce/sys/store.h"

#define KEYS  7
#define NAMES 5

struct crowd {
    truce_store *store;
    struct model_operation *operations;
    int *arrival;
    int count, arrivals;
    truce_set_options options;
    bool collecting;
    truce_set *shared; /* one handle for all, or each member has its own */
};

struct member {
    struct crowd *crowd;
    int number, of;
    uint64_t seed;
};

static void make_crowd(struct crowd *crowd, struct random *random, int count)
{
    crowd->count = count;
    crowd->arrivals = count + count / 4;
    crowd->operations = bson_malloc((size_t)count * sizeof *crowd->operations);
    crowd->arrival = bson_malloc((size_t)crowd->arrivals * sizeof *crowd->arrival);
    for (int i = 0; i < count; i++)
        crowd->operations[i] =
            (struct model_operation){.add = truce__random_below(random, 2),
                                     .seq = i + 1,
                                     .key = (int)truce__random_below(random, KEYS),
                                     .name = (int)truce__random_below(random, NAMES)};
    for (int i = 0; i < crowd->arrivals; i++)
        crowd->arrival[i] = i < count ? i : (int)truce__random_below(random, (uint64_t)count);
    for (int i = crowd->arrivals - 1; i > 0; i--) {
        int other = (int)truce__random_below(random, (uint64_t)i + 1), kept = crowd->arrival[i];

        crowd->arrival[i] = crowd->arrival[other];
        crowd->arrival[other] = kept;
    }
}

static void free_crowd(struct crowd *crowd)
{
    bson_free(crowd->operations);
    bson_free(crowd->arrival);
}

/* One to `count` of the member's messages at a time. */
static int consume_some(const struct member *member, truce_set *set, int at, int count)
{
    const struct crowd *crowd = member->crowd;
    truce_set_operation made[8] = {{0}};
    truce_set_result results[8];
    bson_t parts[16];
    char consumer[16];
    bson_error_t error;
    int taken = 0;

    for (; taken < count && at < crowd->arrivals; taken++, at += member->of)
        model_operation_make(&crowd->operations[crowd->arrival[at]], &parts[2 * taken],
                             &parts[2 * taken + 1], &made[taken]);
    snprintf(consumer, sizeof consumer, "c%d", member->number);
    CHECK_OK(truce_set_consume(set, consumer, made, (size_t)taken, results, &error), error);
    for (int i = 0; i < taken; i++)
        CHECK_INT(results[i].outcome, !=, TRUCE_SET_QUARANTINED);
    for (int i = 0; i < 2 * taken; i++)
        bson_destroy(&parts[i]);
    return taken;
}

static void *run_member(void *arg)
{
    const struct member *member = arg;
    const struct crowd *crowd = member->crowd;
    truce_set *own = crowd->shared ? NULL : tutorial_set(crowd->store, &crowd->options);
    truce_set *set = own ? own : crowd->shared;
    struct random random;
    bson_error_t error;

    truce__random_seed(&random, member->seed);
    for (int at = member->number; at < crowd->arrivals && !test_failures();) {
        int count = truce__random_below(&random, 3) ? 1 : 1 + (int)truce__random_below(&random, 8);

        at += consume_some(member, set, at, count) * member->of;
        if (crowd->collecting && !truce__random_below(&random, 20))
            CHECK_OK(truce_set_collect(set, NULL, &error), error);
    }
    truce_set_free(own);
    return NULL;
}

static void check_crowd(struct crowd *crowd, const char *what)
{
    truce_set *set = tutorial_set(crowd->store, &crowd->options);
    bson_error_t error;
    int64_t watermark;

    for (int key = 0; key < KEYS; key++)
        model_check(set, crowd->operations, (size_t)crowd->count, NULL, key, NAMES,
                    !crowd->collecting, what);
    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, crowd->count);
    truce_set_free(set);
}

enum { OWN_HANDLES, ONE_HANDLE };

static void run_threads_lacking(const char *uri, uint32_t lacks, truce_set_options options,
                                bool collecting, int handles, int count, uint64_t seed)
{
    enum { threads = 8 };
    struct crowd crowd = {.options = options, .collecting = collecting};
    struct member members[8];
    pthread_t ids[8];
    struct random random;
    bson_error_t error;

    truce__random_seed(&random, seed);
    if (!CHECK_OK(truce_store_open(uri, NULL, &crowd.store, &error), error))
        return;
    crowd.store->capabilities &= ~lacks;
    make_crowd(&crowd, &random, count);
    if (handles == ONE_HANDLE)
        crowd.shared = tutorial_set(crowd.store, &options);
    for (int i = 0; i < threads; i++) {
        members[i] = (struct member){&crowd, i, threads, truce__random_next(&random)};
        pthread_create(&ids[i], NULL, run_member, &members[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    truce_set_free(crowd.shared);
    check_crowd(&crowd, "a crowd of threads");
    truce_store_close(crowd.store);
    free_crowd(&crowd);
}

static void run_threads(const char *uri, truce_set_options options, bool collecting, int handles,
                        int count, uint64_t seed)
{
    run_threads_lacking(uri, 0, options, collecting, handles, count, seed);
}

TEST(eight_threads_in_every_form_equal_the_in_order_run)
{
    const truce_set_options options[] = {{.form = TRUCE_SET_FORM_PIPELINE},
                                         {.form = TRUCE_SET_FORM_CLASSIC},
                                         {.layout = TRUCE_SET_BY_ELEMENT},
                                         {.form = TRUCE_SET_FORM_AUTO}};
    int count = (int)test_scale("TRUCE_CROWD_MESSAGES", 800);
    uint64_t seed = test_seed();

    for (int i = 0; i < 4; i++) {
        run_threads("memory:", options[i], false, OWN_HANDLES, count, seed + (uint64_t)i);
        run_threads("memory:", options[i], true, ONE_HANDLE, count, seed + 10 + (uint64_t)i);
    }
}

/* Different documents travel concurrently then. */
TEST(matches_the_in_order_run_by_eight_threads_without_rewrite)
{
    const truce_set_options options[] = {{.form = TRUCE_SET_FORM_PIPELINE},
                                         {.form = TRUCE_SET_FORM_CLASSIC},
                                         {.layout = TRUCE_SET_BY_ELEMENT}};
    int count = (int)test_scale("TRUCE_CROWD_MESSAGES", 800);
    uint64_t seed = test_seed();

    for (int i = 0; i < 3; i++)
        run_threads_lacking("memory:", TRUCE_CAN_REWRITE, options[i], i % 2, ONE_HANDLE, count,
                            seed + (uint64_t)i);
}

TEST(eight_threads_on_a_file_equal_the_in_order_run)
{
    int count = (int)test_scale("TRUCE_CROWD_MESSAGES", 800);
    uint64_t seed = test_seed();
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/crowd.truce", test_directory());
    run_threads(uri, (truce_set_options){0}, true, OWN_HANDLES, count, seed);
    snprintf(uri, sizeof uri, "file:%s/one.truce", test_directory());
    run_threads(uri, (truce_set_options){0}, true, ONE_HANDLE, count, seed + 1);
}

static void run_process(struct crowd *crowd, const char *uri, int number, int processes,
                        uint64_t seed)
{
    struct member member = {crowd, number, processes, seed};
    bson_error_t error;

    if (CHECK_OK(truce_store_open(uri, NULL, &crowd->store, &error), error)) {
        run_member(&member);
        truce_store_close(crowd->store);
    }
    test_child_exit();
}

TEST(five_processes_equal_the_in_order_run)
{
    enum { PROCESSES = 5 };
    struct crowd crowd = {.collecting = true};
    uint64_t seed = test_seed();
    pid_t ids[PROCESSES];
    struct random random;
    bson_error_t error;
    char uri[400];

    truce__random_seed(&random, seed);
    snprintf(uri, sizeof uri, "file:%s/processes.truce", test_directory());
    make_crowd(&crowd, &random, (int)test_scale("TRUCE_CROWD_MESSAGES", 800));
    for (int i = 0; i < PROCESSES; i++) {
        ids[i] = fork();
        if (ids[i] == 0)
            run_process(&crowd, uri, i, PROCESSES, seed + (uint64_t)i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int state = 0;

        waitpid(ids[i], &state, 0);
        CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    REQUIRE(CHECK_OK(truce_store_open(uri, NULL, &crowd.store, &error), error));
    check_crowd(&crowd, "a crowd of processes");
    truce_store_close(crowd.store);
    free_crowd(&crowd);
}
