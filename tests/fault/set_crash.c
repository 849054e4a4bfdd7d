/*
 * A consumer, a collector, and an operator die at every one of their store calls, before or after
 * its effect. They die again while it is all done once more, and then complete. In further runs
 * every single answer is lost. The final state is that of one run without faults.
 */
#include "tests/support/server.h"
#include "tests/support/set_model.h"
#include "tests/support/trouble.h"
#include "tests/support/tutorial.h"

#define A(n, key, name)                                                                            \
    {                                                                                              \
        true, n, NULL, key, name                                                                   \
    }
#define R(n, key, name)                                                                            \
    {                                                                                              \
        false, n, NULL, key, name                                                                  \
    }

static const struct model_operation messages[] = {
    A(1, 1, 0), R(2, 1, 0), A(3, 2, 0), R(5, 1, 1), A(6, 1, 0), R(7, 2, 0), A(8, 2, 1),
};
#define MESSAGES (sizeof messages / sizeof *messages)

/* lost: fails all calls from `at` + 1 on, over one that loses the answer of call `at`: together, a
 * death after the effect of that call */
struct rig {
    truce_store *inner, *store;
    truce_set_options options;
};

/* The documents are older than numbers, and a process converts them. */
static bool from_before;

static void put_from_before(truce_store *store)
{
    static const char *const students[] = {
        "{'student_id': 1, 'classes': ['CS 0', 'CS 1', 'CS 0']}",
        "{'student_id': 2, 'classes': [{'name': 'CS 0'}], 'deleted_classes': ['CS 1']}",
        "{'student_id': 3, 'classes': ['CS 0']}"};
    bson_error_t error;

    for (int i = 0; i < 3; i++) {
        bson_t *student = test_bson(students[i]);

        CHECK_OK(truce_insert(store, "students", student, NULL, &error), error);
        bson_destroy(student);
    }
}

static void rig_open(struct rig *rig, truce_set_options options)
{
    truce_store *memory;
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};

    memory = server_or_memory();
    if (from_before)
        put_from_before(memory);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->options = options;
}

static truce_status consume(truce_set *set, const int *chosen, int count, bson_error_t *error)
{
    truce_set_operation made[MESSAGES] = {{0}};
    truce_set_result results[MESSAGES];
    bson_t parts[2 * MESSAGES];
    truce_status status;

    for (int i = 0; i < count; i++)
        model_operation_make(&messages[chosen[i]], &parts[2 * i], &parts[2 * i + 1], &made[i]);
    status = truce_set_consume(set, "c1", made, (size_t)count, results, error);
    for (int i = 0; i < 2 * count; i++)
        bson_destroy(&parts[i]);
    return status;
}

/* One process's whole work, out of order, in pieces; all of it may be done again. */
static truce_status work(struct rig *rig, bson_error_t *error)
{
    static const int pieces[][4] = {{1}, {4, 0}, {3, 5, 2, 6}};
    static const int sizes[] = {1, 2, 4};
    truce_set *set = tutorial_set(rig->store, &rig->options);
    truce_status status = TRUCE_OK;
    int64_t first;

    for (int i = 0; i < 3 && !status; i++) {
        status = consume(set, pieces[i], sizes[i], error);
        if (!status && i == 1 && from_before)
            status = truce_set_convert(set, NULL, error);
    }
    if (!status)
        status = truce_set_void(set, NULL, 4, 4, error);
    if (!status)
        status = truce_set_collect(set, NULL, error);
    if (!status)
        status = truce_set_source_start(set, "late", &first, error);
    if (!status)
        status = truce_set_source_idle(set, "late", 9, error);
    truce_set_free(set);
    return status;
}

/* Repeats until it completes: the work of a queue and an operator. */
static void finish(struct rig *rig)
{
    bson_error_t error = {0};
    truce_status status = TRUCE_UNKNOWN;

    trouble_arm(rig->inner, rig->store, NONE, 0);
    for (int i = 0; i < 3 && status; i++)
        status = work(rig, &error);
    CHECK_OK(status, error);
}

static void check(struct rig *rig, const char *what)
{
    truce_set *set = tutorial_set(rig->store, &rig->options);
    truce_set_collected collected;
    bson_error_t error;
    int64_t watermark, quarantined;

    for (int key = 1; key <= 2; key++)
        model_check(set, messages, MESSAGES, NULL, key, 2, false, what);
    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, 8);
    CHECK_OK(truce_set_collect(set, &collected, &error), error);
    CHECK_INT(collected.watermark, ==, 8);
    CHECK_OK(truce_count(rig->store, "truce_quarantine", NULL, NULL, &quarantined, &error), error);
    CHECK_INT(quarantined, ==, 0);
    if (from_before) {
        bson_t *bare = test_bson("{'$or': [{'classes': 'CS 0'}, {'classes': 'CS 1'}]}");
        int64_t left = -1;

        CHECK_OK(truce_count(rig->store, "students", bare, NULL, &left, &error), error);
        CHECK_INT(left, ==, 0);
        bson_destroy(bare);
    }
    for (int key = 1; key <= 2; key++)
        model_check(set, messages, MESSAGES, NULL, key, 2, false, what);
    truce_set_free(set);
}

static uint64_t count_calls(truce_set_options options)
{
    struct rig rig;
    bson_error_t error;
    uint64_t calls;

    rig_open(&rig, options);
    CHECK_OK(work(&rig, &error), error);
    calls = truce_fault_calls(rig.store);
    check(&rig, "without trouble");
    truce_store_close(rig.store);
    return calls;
}

static void trouble_twice(truce_set_options options, enum trouble first, uint64_t first_at,
                          enum trouble second, uint64_t second_at)
{
    struct rig rig;
    bson_error_t error;
    char what[120];

    rig_open(&rig, options);
    trouble_arm(rig.inner, rig.store, first, first_at);
    (void)!work(&rig, &error); /* it is meant to fail, or not to notice */
    if (second != NONE) {
        trouble_arm(rig.inner, rig.store, second, second_at);
        (void)!work(&rig, &error);
    }
    finish(&rig);
    snprintf(what, sizeof what, "trouble %d at %d, then %d at %d", first, (int)first_at, second,
             (int)second_at);
    check(&rig, what);
    truce_store_close(rig.store);
}

static void every_call(truce_set_options options)
{
    uint64_t calls = count_calls(options);
    enum trouble kinds[] = {DIE_BEFORE, DIE_AFTER, LOSE};
    uint64_t step = (uint64_t)test_scale("TRUCE_SET_CRASH_STEP", 4);
    uint64_t once = (uint64_t)test_scale("TRUCE_SET_CRASH_ONCE", 1);

    CHECK_INT(calls, >, 20);
    for (int k = 0; k < 3; k++) {
        for (uint64_t at = 1 + (uint64_t)k % once; at <= calls && !test_failures(); at += once)
            trouble_twice(options, kinds[k], at, NONE, 0);
    }
    for (uint64_t at = 1; at <= calls && !from_before; at += once) {
        for (uint64_t again = 1 + at % step; again <= calls && !test_failures(); again += step) {
            trouble_twice(options, DIE_AFTER, at, DIE_BEFORE, again);
            if ((at + again) % 3 == 0)
                trouble_twice(options, DIE_BEFORE, at, DIE_AFTER, again);
        }
    }
    printf("  %d calls, each and each again\n", (int)calls);
}

TEST(survives_a_crash_at_every_call_in_the_pipeline_form)
{
    every_call((truce_set_options){.form = TRUCE_SET_FORM_PIPELINE});
}

TEST(survives_a_crash_at_every_call_in_the_classic_form)
{
    every_call((truce_set_options){.form = TRUCE_SET_FORM_CLASSIC});
}

TEST(survives_a_crash_at_every_call_if_the_store_merges)
{
    truce_store *store = server_or_memory();
    bool merges = store->capabilities & TRUCE_CAN_REWRITE;

    truce_store_close(store);
    if (merges)
        every_call((truce_set_options){.form = TRUCE_SET_FORM_AUTO});
}

TEST(survives_a_crash_at_every_call_in_the_layout_by_element)
{
    every_call((truce_set_options){.layout = TRUCE_SET_BY_ELEMENT});
}

TEST(survives_a_crash_at_every_call_with_lists_without_numbers)
{
    static const truce_set_form forms[] = {TRUCE_SET_FORM_PIPELINE, TRUCE_SET_FORM_CLASSIC};

    from_before = true;
    for (int i = 0; i < 2; i++) {
        every_call((truce_set_options){.form = forms[i]});
    }
    from_before = false;
}

/* A store that acknowledges writes and does not write: the checks above must notice. */
TEST(detects_a_set_write_that_was_reported_but_not_made)
{
    uint64_t calls;
    int caught = 0, lies = 0;

    if (test_scale("TRUCE_SET_CRASH_ONCE", 1) > 1) {
        test_skip("runs only if every call is tested");
        return;
    }
    calls = count_calls((truce_set_options){0});

    for (uint64_t at = 1; at <= calls; at++) {
        truce_fault_options lie = {.kind = TRUCE_FAULT_LIE, .at = at};
        struct rig rig;
        truce_set *set;
        bson_error_t error;
        int64_t watermark = 0;
        bool right = true;

        rig_open(&rig, (truce_set_options){0});
        truce_fault_arm(rig.store, &lie);
        (void)!work(&rig, &error);
        lies += truce_fault_hits(rig.store) > 0;
        trouble_arm(rig.inner, rig.store, NONE, 0);
        set = tutorial_set(rig.store, &rig.options);
        for (int key = 1; key <= 2; key++) {
            bson_t *id = model_key(key), members;
            uint32_t wanted = 1;

            right &= !truce_set_members(set, id, &members, &error) &&
                     bson_count_keys(&members) == wanted;
            bson_destroy(&members);
            bson_destroy(id);
        }
        right &= !truce_set_watermark(set, &watermark, NULL, &error) && watermark == 8;
        caught += !right;
        truce_set_free(set);
        truce_store_close(rig.store);
    }
    CHECK_INT(lies, >, 5);
    CHECK_INT(caught, >, 3);
}

TEST(assigns_each_sequence_number_once_if_any_reply_is_lost)
{
    for (uint64_t at = 1; at <= 60; at += (uint64_t)test_scale("TRUCE_SET_CRASH_ONCE", 1)) {
        truce_fault_options lose = {.kind = TRUCE_FAULT_LOSE, .at = at};
        truce_store *store = truce_fault_wrap(server_or_memory(), &lose);
        bson_error_t error;
        int64_t number;

        for (int64_t i = 1; i <= 20; i++) {
            CHECK_OK(truce_sequence_next(store, "s", &number, &error), error);
            CHECK_INT(number, ==, i);
        }
        truce_store_close(store);
    }
}
