/*
 * Consumers of an ordered set at every interleaving of their store calls, with crashes, lost
 * answers, and calls that land late. When all have ended, the unacknowledged operations are
 * delivered again, as the queue would. Then the set must equal that of in-order, exactly-once
 * delivery.
 */
#include "patterns/set/set.h"
#include "store/store.h"
#include "tests/support/set_model.h"
#include "tests/support/turns.h"
#include "tests/support/tutorial.h"

#define MESSAGES_MAX 6

#define BEFORE       -1

enum way { SINGLE, BATCH, CONSUME };

struct scene {
    truce_set_options options;
    enum way way;
    struct model_operation messages[MESSAGES_MAX];
    int count, names;
    int of[MESSAGES_MAX]; /* which client gets the message; BEFORE: it is there at the start */
    bool collector;       /* the last client collects */
    bool converter;       /* the names are bare at first, and the last client converts them */
    int clients;
    bool acknowledged[MESSAGES_MAX];
};

/* A handle that has made its first calls: they are not tested here. */
static truce_set *open_set(struct scene *scene, truce_store *store)
{
    truce_set *set = tutorial_set(store, &scene->options);

    atomic_store(&set->structure, truce__store_structure(set->store) + 1);
    return set;
}

static truce_status deliver(struct scene *scene, truce_set *set, const char *consumer,
                            const int *chosen, int count, bson_error_t *error)
{
    truce_set_result results[MESSAGES_MAX];
    truce_set_operation made[MESSAGES_MAX];
    bson_t parts[2 * MESSAGES_MAX];
    truce_status status = TRUCE_OK;

    for (int i = 0; i < count; i++)
        model_operation_make(&scene->messages[chosen[i]], &parts[2 * i], &parts[2 * i + 1],
                             &made[i]);
    if (scene->way == CONSUME)
        status = truce_set_consume(set, consumer, made, (size_t)count, results, error);
    else if (scene->way == BATCH)
        status = truce_set_apply(set, NULL, made, (size_t)count, results, error);
    for (int i = 0; i < count && scene->way == SINGLE && !status; i++)
        status = truce_set_apply(set, NULL, &made[i], 1, &results[i], error);
    for (int i = 0; i < 2 * count; i++)
        bson_destroy(&parts[i]);
    return status;
}

static void begin(truce_store *store, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = tutorial_set(store, &scene->options);
    bson_error_t error;

    CHECK_OK(truce__set_ready(set, &error), error);
    for (int i = 0; i < scene->count; i++) {
        const char *source = scene->messages[i].source ? scene->messages[i].source : "";

        CHECK_OK(truce__source_known(set, source, &error), error);
    }
    memset(scene->acknowledged, 0, sizeof scene->acknowledged);
    if (scene->converter) {
        bson_t *student = test_bson("{'student_id': 1, 'classes': ['CS 0', 'CS 1', 'CS 9']}");

        CHECK_OK(truce_insert(store, "students", student, NULL, &error), error);
        bson_destroy(student);
    }
    for (int i = 0; i < scene->count; i++) {
        if (scene->of[i] != BEFORE)
            continue;
        CHECK_OK(deliver(scene, set, "before", &i, 1, &error), error);
        scene->acknowledged[i] = true;
    }
    truce_set_free(set);
}

static void client(truce_store *store, int number, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = open_set(scene, store);
    int chosen[MESSAGES_MAX], count = 0;
    char consumer[16];
    bson_error_t error;

    snprintf(consumer, sizeof consumer, "c%d", number);
    if (scene->collector && number == scene->clients - 1) {
        truce_status status = truce_set_collect(set, NULL, &error);

        CHECK(!status || status == TRUCE_UNKNOWN || turns_is_dead(store));
    } else if (scene->converter && number == scene->clients - 1) {
        truce_status status = truce_set_convert(set, NULL, &error);

        CHECK(!status || truce__repeatable(status) || turns_is_dead(store));
    } else {
        for (int i = 0; i < scene->count; i++) {
            if (scene->of[i] == number)
                chosen[count++] = i;
        }
        truce_status status = deliver(scene, set, consumer, chosen, count, &error);

        for (int i = 0; i < count && !status; i++)
            scene->acknowledged[chosen[i]] = true;
        /* the caller repeats a read without an answer: the queue delivers again */
        if (status && status != TRUCE_UNKNOWN && !turns_is_dead(store))
            test_fail(__FILE__, __LINE__, "a live client failed: %s", error.message);
    }
    truce_set_free(set);
}

/* No name is lost, and no name is bare. */
static void check_converted(truce_store *store)
{
    bson_t *bare = test_bson("{'classes': {'$type': 'string'}}");
    bson_t *other = test_bson("{'classes': {'$elemMatch': {'name': 'CS 9', 'seq': 0}}}");
    int64_t count = -1;
    bson_error_t error;

    CHECK_OK(truce_count(store, "students", bare, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    CHECK_OK(truce_count(store, "students", other, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    bson_destroy(bare);
    bson_destroy(other);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = tutorial_set(store, &scene->options);
    truce_set_collected collected;
    bson_t none = BSON_INITIALIZER;
    bson_error_t error;
    int64_t documents = 0;

    (void)crashed;
    for (int i = 0; i < scene->count; i++) {
        if (!scene->acknowledged[i])
            CHECK_OK(deliver(scene, set, "again", &i, 1, &error), error);
    }
    model_check(set, scene->messages, (size_t)scene->count, NULL, 1, scene->names,
                !scene->collector, "at the end");
    if (scene->converter)
        check_converted(store);
    CHECK_OK(
        truce_count(store,
                    scene->options.layout == TRUCE_SET_BY_ELEMENT ? "students.classes" : "students",
                    &none, NULL, &documents, &error),
        error);
    CHECK_INT(documents, <=, scene->options.layout == TRUCE_SET_BY_ELEMENT ? scene->names : 1);
    if (scene->way == CONSUME) { /* everything is recorded now, and delivered once more */
        CHECK_OK(truce_set_collect(set, &collected, &error), error);
        for (int i = 0; i < scene->count; i++)
            CHECK_OK(deliver(scene, set, "again", &i, 1, &error), error);
        model_check(set, scene->messages, (size_t)scene->count, NULL, 1, scene->names, false,
                    "after collecting");
    }
    truce_set_free(set);
}

static void explore(struct scene *scene, struct turns_budget budget, long runs_max, uint64_t seed)
{
    struct turns_run run = {.clients = scene->clients,
                            .client = client,
                            .begin = begin,
                            .end = end,
                            .arg = scene,
                            .budget = budget};
    bool complete;
    long runs = turns_explore(&run, runs_max, seed, &complete);

    printf("  %ld runs%s\n", runs, complete ? ", complete" : "");
}

#define A(n)                                                                                       \
    {                                                                                              \
        true, n, NULL, 1, 0                                                                        \
    }
#define R(n)                                                                                       \
    {                                                                                              \
        false, n, NULL, 1, 0                                                                       \
    }

static const struct scene scenes[] = {
    /* the follow-up of insert 3 and delete 2: 1 was there, 3 and 2 arrive at once */
    {.messages = {A(1), A(3), R(2)}, .count = 3, .names = 1, .of = {0, 0, 1}, .clients = 2},
    {.messages = {A(1), R(2)}, .count = 2, .names = 1, .of = {0, 1}, .clients = 2},
    {.messages = {R(1), A(1)}, .count = 2, .names = 1, .of = {0, 1}, .clients = 2},
    {.messages = {A(1), R(2), A(3), R(4)},
     .count = 4,
     .names = 1,
     .of = {1, 0, 1, 0},
     .clients = 2},
    {.messages = {A(1), {true, 2, NULL, 1, 1}, R(3), {false, 4, NULL, 1, 1}},
     .count = 4,
     .names = 2,
     .of = {0, 1, 1, 0},
     .clients = 2},
    /* batches that touch different names of one list */
    {.messages = {A(1),
                  {true, 2, NULL, 1, 1},
                  {true, 3, NULL, 1, 2},
                  {true, 4, NULL, 1, 3},
                  {true, 5, NULL, 1, 4}},
     .count = 5,
     .names = 5,
     .of = {BEFORE, 0, 0, 1, 1},
     .clients = 2},
    {.messages = {R(1),
                  {false, 2, NULL, 1, 1},
                  {false, 3, NULL, 1, 2},
                  {false, 4, NULL, 1, 3},
                  {false, 5, NULL, 1, 4}},
     .count = 5,
     .names = 5,
     .of = {BEFORE, 0, 0, 1, 1},
     .clients = 2},
};

static void explore_scenes(truce_set_options options, enum way way, struct turns_budget budget)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes && !test_failures(); i++) {
        struct scene scene = scenes[i];

        scene.options = options;
        scene.way = way;
        explore(&scene, budget, test_scale("TRUCE_TURNS_RUNS", 1000), 0);
    }
}

static void explore_budgets(truce_set_options options, enum way way)
{
    explore_scenes(options, way, (struct turns_budget){0, 0, 0});
    explore_scenes(options, way, (struct turns_budget){.crashes = 1});
    explore_scenes(options, way, (struct turns_budget){.losses = 1});
    explore_scenes(options, way, (struct turns_budget){.lates = 1});
}

TEST(keeps_the_order_at_every_interleaving_in_the_pipeline_form)
{
    explore_budgets((truce_set_options){.form = TRUCE_SET_FORM_PIPELINE}, SINGLE);
}

TEST(keeps_the_order_at_every_interleaving_in_the_classic_form)
{
    explore_budgets((truce_set_options){.form = TRUCE_SET_FORM_CLASSIC}, SINGLE);
}

TEST(keeps_the_order_at_every_interleaving_of_batches)
{
    explore_budgets((truce_set_options){.form = TRUCE_SET_FORM_CLASSIC}, BATCH);
}

TEST(keeps_the_order_at_every_interleaving_in_the_layout_by_element)
{
    explore_budgets((truce_set_options){.layout = TRUCE_SET_BY_ELEMENT}, SINGLE);
    explore_budgets((truce_set_options){.layout = TRUCE_SET_BY_ELEMENT}, BATCH);
}

/* Runs consumers concurrently with a collector: tombstones are removed, and no element comes
 * back. */
static void explore_collector(truce_set_options options, int count, long runs, uint64_t seed,
                              struct turns_budget budget)
{
    struct scene scene = {
        .messages = {A(1), R(2), A(3), R(4)}, .count = count, .names = 1, .of = {0, 1, 0, 1}};

    scene.options = options;
    scene.way = CONSUME;
    scene.clients = 3;
    scene.collector = true;
    explore(&scene, budget, runs, seed);
}

TEST(consumers_run_next_to_a_collector_in_many_interleavings)
{
    long runs = test_scale("TRUCE_TURNS_RUNS", 1000);

    for (int form = TRUCE_SET_FORM_PIPELINE; form <= TRUCE_SET_FORM_CLASSIC; form++) {
        truce_set_options options = {.form = (truce_set_form)form};

        explore_collector(options, 2, runs / 2, test_seed(), (struct turns_budget){0, 0, 0});
        explore_collector(options, 4, runs / 2, test_seed(), (struct turns_budget){1, 1, 1});
    }
    explore_collector((truce_set_options){.layout = TRUCE_SET_BY_ELEMENT}, 2, runs, test_seed(),
                      (struct turns_budget){0, 0, 0});
    explore_collector((truce_set_options){.layout = TRUCE_SET_BY_ELEMENT}, 4, runs, test_seed(),
                      (struct turns_budget){1, 1, 1});
}

/* Operations on bare names, concurrently with a process that converts the document. */
TEST(converts_bare_names_at_every_interleaving)
{
    static const truce_set_form forms[] = {TRUCE_SET_FORM_PIPELINE, TRUCE_SET_FORM_CLASSIC,
                                           TRUCE_SET_FORM_AUTO};
    struct scene scene = {.messages = {R(1), A(2), {true, 3, NULL, 1, 1}},
                          .count = 3,
                          .names = 2,
                          .of = {0, 0, 1},
                          .clients = 3,
                          .converter = true};
    long runs = test_scale("TRUCE_TURNS_RUNS", 1000) / 4;

    for (int i = 0; i < 3; i++) {
        for (int way = SINGLE; way <= BATCH; way++) {
            scene.options = (truce_set_options){.form = forms[i]};
            scene.way = (enum way)way;
            explore(&scene, (struct turns_budget){0, 0, 0}, runs, test_seed());
            explore(&scene, (struct turns_budget){1, 1, 1}, runs, test_seed());
        }
    }
}

/* ---- sequences ---- */

struct takers {
    int64_t numbers[TURNS_CLIENTS_MAX][2];
};

static void begin_takers(truce_store *store, void *arg)
{
    struct takers *takers = arg;

    (void)store;
    memset(takers, 0, sizeof *takers);
}

static void take_numbers(truce_store *store, int number, void *arg)
{
    struct takers *takers = arg;
    bson_error_t error;

    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_sequence_next(store, "s", &takers->numbers[number][i], &error), error);
}

/* Four numbers were taken: 1 to 4, each once, and the counter is equal to the last. */
static void check_takers(truce_store *store, const bool *crashed, void *arg)
{
    const struct takers *takers = arg;
    bool seen[5] = {false};
    bson_error_t error;
    int64_t last;

    (void)crashed;
    for (int i = 0; i < 4; i++) {
        int64_t number = takers->numbers[i / 2][i % 2];

        if (CHECK(number >= 1 && number <= 4))
            CHECK(!seen[number]);
        seen[number >= 1 && number <= 4 ? number : 0] = true;
    }
    CHECK_OK(truce_sequence_last(store, "s", &last, &error), error);
    CHECK_INT(last, ==, 4);
}

TEST(assigns_numbers_without_gaps_or_repeats_despite_lost_and_late_calls)
{
    struct takers takers;
    struct turns_run run = {.clients = 2,
                            .client = take_numbers,
                            .begin = begin_takers,
                            .end = check_takers,
                            .arg = &takers};
    long runs_max = test_scale("TRUCE_TURNS_RUNS", 1000);

    run.budget = (struct turns_budget){.losses = 1};
    turns_explore(&run, runs_max, 0, NULL);
    run.budget = (struct turns_budget){.lates = 1};
    turns_explore(&run, runs_max, 0, NULL);
}
