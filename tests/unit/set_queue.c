/* The leader of a set's batch, and the calls that it includes, on a store with messages: a memory
 * store that cannot rewrite. */
#include <pthread.h>

#include "base/clock.h"
#include "patterns/set/set.h"
#include "tests/support/hooked.h"
#include "tests/support/test.h"
#include "tests/support/tutorial.h"

#define CALLERS  8
#define PATIENCE INT64_C(20000000000)

/* The door of the store: callers wait in it until `wanted` have arrived, or while they are held. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int inside, most, calls, wanted;
    int held;            /* these callers are paused: bits */
    int passed[CALLERS]; /* calls by each */
} door = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local int number = -1; /* of the caller */

static bool must_stand(void)
{
    return (door.held >> number & 1) || door.most < door.wanted;
}

static void stand(truce_store *store)
{
    int64_t end_ns = truce__clock_monotonic_ns() + PATIENCE;

    (void)store;
    if (number < 0)
        return;
    pthread_mutex_lock(&door.mutex);
    door.calls++;
    door.passed[number]++;
    door.inside++;
    door.most = door.inside > door.most ? door.inside : door.most;
    pthread_cond_broadcast(&door.changed);
    while (must_stand() && truce__clock_monotonic_ns() < end_ns) {
        pthread_mutex_unlock(&door.mutex);
        truce__clock_sleep_ms(1);
        pthread_mutex_lock(&door.mutex);
    }
    door.inside--;
    pthread_mutex_unlock(&door.mutex);
}

static int look(const int *what)
{
    int seen;

    pthread_mutex_lock(&door.mutex);
    seen = *what;
    pthread_mutex_unlock(&door.mutex);
    return seen;
}

static void hold(int held)
{
    pthread_mutex_lock(&door.mutex);
    door.held = held;
    pthread_mutex_unlock(&door.mutex);
}

struct caller {
    truce_set *set;
    int number, students[128], count;
    pthread_t thread;
};

static void *run_caller(void *arg)
{
    struct caller *caller = arg;
    truce_set_operation operations[128];
    truce_set_result results[128];
    bson_error_t error = {0};
    char name[20];

    number = caller->number;
    snprintf(name, sizeof name, "CS %d", caller->number);
    for (int i = 0; i < caller->count; i++)
        operations[i] = (truce_set_operation){
            .verb = TRUCE_SET_ADD,
            .key = BCON_NEW("student_id", BCON_INT32(caller->students[i])),
            .element = BCON_NEW("name", BCON_UTF8(name)),
            .seq = caller->number + 1,
        };
    CHECK_OK(truce_set_apply(caller->set, NULL, operations, (size_t)caller->count, results, &error),
             error);
    for (int i = 0; i < caller->count; i++) {
        CHECK_INT(results[i].outcome, ==, TRUCE_SET_APPLIED);
        bson_destroy((bson_t *)operations[i].key);
        bson_destroy((bson_t *)operations[i].element);
    }
    return NULL;
}

struct stage {
    truce_store *store;
    truce_set *set;
    struct caller callers[CALLERS];
};

static bool begin(struct stage *stage, const truce_set_options *options, int wanted)
{
    bson_error_t error = {0};

    memset(stage, 0, sizeof *stage);
    if (!CHECK_OK(truce_store_open("memory:", NULL, &stage->store, &error), error))
        return false;
    stage->store->capabilities &= ~(uint32_t)TRUCE_CAN_REWRITE;
    stage->set = tutorial_set(stage->store, options);
    CHECK_OK(truce__set_ready(stage->set, &error), error);
    CHECK_OK(truce__source_known(stage->set, "", &error), error);
    hooked_make(stage->store, stand);
    stage->store->ops = &hooked_ops;
    door.inside = door.most = door.calls = door.held = 0;
    memset(door.passed, 0, sizeof door.passed);
    door.wanted = wanted;
    return true;
}

static void end(struct stage *stage)
{
    stage->store->ops = plain_ops;
    truce_set_free(stage->set);
    truce_store_close(stage->store);
}

static struct caller *caller_at(struct stage *stage, int n)
{
    stage->callers[n].set = stage->set;
    stage->callers[n].number = n;
    return &stage->callers[n];
}

static void start(struct caller *caller)
{
    CHECK(pthread_create(&caller->thread, NULL, run_caller, caller) == 0);
}

static void call_for(struct stage *stage, int n, int first, int second)
{
    struct caller *caller = caller_at(stage, n);

    caller->count = second ? 2 : 1;
    caller->students[0] = first;
    caller->students[1] = second;
    start(caller);
}

static int in_queue(truce_set *set)
{
    int count = 0;

    pthread_mutex_lock(&set->queue_mutex);
    for (const struct set_call *call = set->queue_first; call; call = call->next)
        count++;
    pthread_mutex_unlock(&set->queue_mutex);
    return count;
}

static void await_call(int n)
{
    int64_t end_ns = truce__clock_monotonic_ns() + PATIENCE;

    while (!look(&door.passed[n]) && truce__clock_monotonic_ns() < end_ns)
        truce__clock_sleep_ms(1);
    CHECK_INT(look(&door.passed[n]), >, 0);
}

/* Caller 0 holds the door of student 1. */
static void hold_first(struct stage *stage)
{
    hold(1);
    call_for(stage, 0, 1, 0);
    await_call(0);
}

static void await_queue(struct stage *stage, int wanted)
{
    int64_t end_ns = truce__clock_monotonic_ns() + PATIENCE;

    while (in_queue(stage->set) != wanted && truce__clock_monotonic_ns() < end_ns)
        truce__clock_sleep_ms(1);
    CHECK_INT(in_queue(stage->set), ==, wanted);
}

static void join(struct stage *stage, int from, int to)
{
    for (int n = from; n < to; n++)
        pthread_join(stage->callers[n].thread, NULL);
}

static int members_of(struct stage *stage, int student)
{
    bson_t *key = BCON_NEW("student_id", BCON_INT32(student)), members;
    bson_error_t error = {0};
    int count = 0;

    if (CHECK_OK(truce_set_members(stage->set, key, &members, &error), error))
        count = (int)bson_count_keys(&members);
    bson_destroy(&members);
    bson_destroy(key);
    return count;
}

TEST(operations_on_different_documents_are_at_the_store_at_once)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, CALLERS));
    for (int n = 0; n < CALLERS; n++)
        call_for(&stage, n, n + 1, 0);
    join(&stage, 0, CALLERS);
    CHECK_INT(door.most, ==, CALLERS);
    CHECK_INT(door.calls, ==, CALLERS);
    end(&stage);
}

TEST(elements_that_are_documents_of_one_key_are_at_the_store_at_once)
{
    const truce_set_options options = {.layout = TRUCE_SET_BY_ELEMENT};
    struct stage stage;

    REQUIRE(begin(&stage, &options, CALLERS));
    for (int n = 0; n < CALLERS; n++)
        call_for(&stage, n, 1, 0);
    join(&stage, 0, CALLERS);
    CHECK_INT(door.most, ==, CALLERS);
    CHECK_INT(members_of(&stage, 1), ==, CALLERS);
    end(&stage);
}

TEST(combines_concurrent_operations_on_one_document)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    for (int n = 1; n < CALLERS; n++)
        call_for(&stage, n, 1, 0);
    await_queue(&stage, CALLERS - 1);
    CHECK_INT(look(&door.calls), ==, 1);
    hold(0);
    join(&stage, 0, CALLERS);
    CHECK_INT(door.most, ==, 1);
    CHECK_INT(door.calls, ==, 3); /* the first; one read, one write for all the others */
    CHECK_INT(members_of(&stage, 1), ==, CALLERS);
    end(&stage);
}

TEST(does_not_wait_for_calls_on_another_document)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    call_for(&stage, 1, 1, 0);
    await_queue(&stage, 1);
    call_for(&stage, 2, 2, 0);
    join(&stage, 2, 3);
    CHECK_INT(members_of(&stage, 2), ==, 1);
    CHECK_INT(door.passed[0], ==, 1);
    CHECK_INT(in_queue(stage.set), ==, 1);
    hold(0);
    join(&stage, 0, 2);
    CHECK_INT(members_of(&stage, 1), ==, 2);
    end(&stage);
}

TEST(does_not_overtake_a_waiting_call_on_the_same_document)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    call_for(&stage, 1, 1, 2);
    await_queue(&stage, 1);
    call_for(&stage, 2, 2, 0);
    await_queue(&stage, 2);
    CHECK_INT(look(&door.calls), ==, 1);
    hold(0);
    join(&stage, 0, 3);
    CHECK_INT(members_of(&stage, 1), ==, 2);
    CHECK_INT(members_of(&stage, 2), ==, 2);
    end(&stage);
}

TEST(includes_calls_that_share_a_document_with_the_batch)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    call_for(&stage, 1, 1, 0);
    await_queue(&stage, 1);
    call_for(&stage, 2, 1, 2);
    await_queue(&stage, 2);
    call_for(&stage, 3, 2, 0);
    await_queue(&stage, 3);
    hold(0);
    join(&stage, 0, 4);
    CHECK_INT(door.calls, ==, 3); /* of three: one read, and one bulk of two documents */
    CHECK_INT(members_of(&stage, 1), ==, 3);
    CHECK_INT(members_of(&stage, 2), ==, 2);
    end(&stage);
}

/* Caller 4 shares a student with 3, and another with 2, which waits for a third. */
TEST(excludes_calls_that_would_overtake)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    hold(1 | 2);
    call_for(&stage, 1, 3, 0);
    await_call(1);
    call_for(&stage, 2, 1, 2);
    await_queue(&stage, 1);
    call_for(&stage, 3, 3, 0);
    await_queue(&stage, 2);
    call_for(&stage, 4, 3, 2);
    await_queue(&stage, 3);
    hold(1);
    join(&stage, 1, 2);
    join(&stage, 3, 4);
    CHECK_INT(in_queue(stage.set), ==, 2);
    CHECK_INT(look(&door.passed[4]), ==, 0);
    hold(0);
    join(&stage, 0, 1);
    join(&stage, 2, 3);
    join(&stage, 4, 5);
    CHECK_INT(members_of(&stage, 2), ==, 2);
    CHECK_INT(members_of(&stage, 3), ==, 3);
    end(&stage);
}

TEST(runs_a_large_call_alone_and_in_order)
{
    struct stage stage;
    struct caller *large;

    REQUIRE(begin(&stage, NULL, 0));
    hold_first(&stage);
    call_for(&stage, 3, 1, 0);
    await_queue(&stage, 1);
    large = caller_at(&stage, 1);
    large->count = 100;
    for (int i = 0; i < large->count; i++)
        large->students[i] = 100 + i;
    start(large);
    await_queue(&stage, 2);
    call_for(&stage, 2, 2, 0);
    await_queue(&stage, 3);
    CHECK_INT(look(&door.calls), ==, 1);
    hold(0);
    join(&stage, 0, 4);
    CHECK_INT(door.most, ==, 1);
    CHECK_INT(members_of(&stage, 2), ==, 1);
    CHECK_INT(members_of(&stage, 199), ==, 1);
    end(&stage);
}

TEST(a_store_that_rewrites_waits_once_for_many_documents)
{
    struct stage stage;

    REQUIRE(begin(&stage, NULL, 0));
    truce_set_free(stage.set);
    stage.store->capabilities |= TRUCE_CAN_REWRITE;
    stage.set = tutorial_set(stage.store, NULL);
    CHECK(!stage.set->by_document);
    end(&stage);
}
