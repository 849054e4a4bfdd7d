/*
 * Records far apart, and their archive. A consumer and a collector die at every one of their store
 * calls, before or after its effect, or lose its answer; then they complete. The widest block is
 * full before the fault begins, so that new records go to others. No record is ever forgotten.
 */
#include "tests/support/server.h"
#include "tests/support/set_model.h"
#include "tests/support/trouble.h"
#include "tests/support/tutorial.h"

#define FULL 515
#define MORE 6
#define STEP INT64_C(1000000007)

struct rig {
    truce_store *inner, *store;
};

static truce_status record(truce_set *set, int from, int count, bson_error_t *error)
{
    truce_set_operation *operations = bson_malloc0((size_t)count * sizeof *operations);
    bson_t *key = model_key(1), *element = test_bson("{'name': 'a'}");
    truce_status status;

    for (int i = 0; i < count; i++)
        operations[i] = (truce_set_operation){
            .verb = TRUCE_SET_REMOVE, .key = key, .element = element, .seq = (from + i) * STEP};
    status = truce_set_record(set, "c1", operations, (size_t)count, error);
    bson_free(operations);
    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static truce_status apply(truce_set *set, bool consume, int64_t seq, truce_set_outcome *outcome,
                          bson_error_t *error)
{
    bson_t *key = model_key(1), *element = test_bson(consume ? "{'name': 'a'}" : "{'name': 'b'}");
    truce_set_operation operation = {
        .verb = TRUCE_SET_REMOVE, .key = key, .element = element, .seq = seq};
    truce_set_result result = {0};
    truce_status status = consume ? truce_set_consume(set, "c1", &operation, 1, &result, error)
                                  : truce_set_apply(set, NULL, &operation, 1, &result, error);

    *outcome = result.outcome;
    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static void rig_open(struct rig *rig)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_set *set;
    bson_error_t error;

    rig->inner = truce_fault_wrap(server_or_memory(), &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    set = tutorial_set(rig->inner, NULL);
    CHECK_OK(record(set, 1, FULL, &error), error);
    truce_set_free(set);
}

/* Some of it comes again; the collector encounters documents of which a part is below its
 * watermark. */
static truce_status work(struct rig *rig, bson_error_t *error)
{
    truce_set *set = tutorial_set(rig->store, NULL);
    truce_set_outcome outcome;
    truce_status status = record(set, FULL - 1, MORE - 1, error);

    if (!status)
        status = truce_set_source_idle(set, NULL, 200 * STEP, error);
    if (!status)
        status = truce_set_collect(set, NULL, error);
    if (!status)
        status = apply(set, true, (FULL + MORE) * STEP, &outcome, error);
    if (!status)
        status = truce_set_void(set, NULL, (FULL + MORE) * STEP + 1, INT64_C(1) << 50, error);
    if (!status)
        status = truce_set_source_idle(set, NULL, (FULL + MORE) * STEP, error);
    if (!status)
        status = truce_set_collect(set, NULL, error);
    truce_set_free(set);
    return status;
}

static void check(struct rig *rig, const char *what)
{
    truce_set *set = tutorial_set(rig->inner, NULL);
    truce_set_outcome outcome;
    int64_t watermark = 0;
    bson_error_t error;

    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, INT64_C(1) << 50);
    for (int i = 1; i < FULL + MORE; i += i < 4 || i > FULL - 4 ? 1 : 63) {
        if (i == FULL + MORE - 2 || i == FULL + MORE - 1)
            continue; /* no consumer recorded it */
        CHECK_OK(apply(set, false, i * STEP, &outcome, &error), error);
        if (!CHECK_INT(outcome, ==, TRUCE_SET_DUPLICATE))
            fprintf(stderr, "  %s: number %d\n", what, i);
    }
    CHECK_OK(apply(set, false, 3 * STEP + 1, &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_QUARANTINED);
    truce_set_free(set);
}

static void trouble(enum trouble kind, uint64_t at)
{
    struct rig rig;
    bson_error_t error;
    truce_status status = TRUCE_UNKNOWN;
    char what[60];

    rig_open(&rig);
    trouble_arm(rig.inner, rig.store, kind, at);
    (void)!work(&rig, &error); /* it is meant to fail, or not to notice */
    trouble_arm(rig.inner, rig.store, NONE, 0);
    for (int i = 0; i < 3 && status; i++)
        status = work(&rig, &error);
    CHECK_OK(status, error);
    snprintf(what, sizeof what, "trouble %d at %d", (int)kind, (int)at);
    check(&rig, what);
    truce_store_close(rig.store);
}

TEST(records_outlive_a_death_at_every_call)
{
    static const enum trouble kinds[] = {DIE_BEFORE, DIE_AFTER, LOSE};
    uint64_t once = (uint64_t)test_scale("TRUCE_SET_CRASH_ONCE", 1), calls;
    struct rig rig;
    bson_error_t error;

    rig_open(&rig);
    CHECK_OK(work(&rig, &error), error);
    calls = truce_fault_calls(rig.store);
    check(&rig, "without trouble");
    truce_store_close(rig.store);
    CHECK_INT(calls, >, 20);
    for (size_t k = 0; k < 3; k++) {
        for (uint64_t at = 1 + k % once; at <= calls && !test_failures(); at += once)
            trouble(kinds[k], at);
    }
    printf("  %d calls\n", (int)calls);
}
