/*
 * A process dies at every one of its store calls while it changes items and converts a collection,
 * before or after the call's effect. It dies again while all is done once more, and then completes.
 * In further runs every single answer is lost. The final state is that of one run without faults,
 * and no snapshot shows an item absent or twice.
 */
#include "tests/support/item_rig.h"
#include "tests/support/server.h"
#include "tests/support/trouble.h"
#include "tests/support/tutorial.h"

static const char *const steps[] = {
    "add {'type': 'D', 'n': 1}",
    "update {'type': 'B'} {'$set': {'n': 9, 'm': 9}}",
    "update {'n': {'$gte': 9}} {'$set': {'seen': true}}",
    "to-map",
    "replace {'type': 'C', 'n': 7}",
    "upsert {'type': 'E', 'n': 5}",
    "to-array",
    "remove {'type': 'A'}",
};

struct rig {
    truce_store *inner, *store;
    truce_item_form form;
};

static void rig_open(struct rig *rig, truce_item_form form)
{
    static const char *const documents[] = {
        "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2, 'm': 3},"
        "{'type': 'C', 'n': 3}]}",
        "{'_id': 2, 'badges': [{'type': 'A', 'n': 1}]}", "{'_id': 3, 'badges': []}"};
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();
    bson_error_t error;

    for (int i = 0; i < 3; i++) {
        bson_t *document = test_bson(documents[i]);

        CHECK_OK(truce_insert(memory, "employees", document, NULL, &error), error);
        bson_destroy(document);
    }
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->form = form;
}

/* Runs all steps from `first` on; a step is done once it was acknowledged. */
static truce_status work(struct rig *rig, size_t *first, bson_error_t *error)
{
    truce_item *item =
        tutorial_item(rig->store, &(truce_item_options){.form = rig->form, .deadline_ms = 200});
    truce_status status = TRUCE_OK;

    for (; *first < sizeof steps / sizeof *steps; ++*first) {
        const char *step = steps[*first];
        truce_item_result result;

        if (!strncmp(step, "to-", 3))
            status = truce_item_convert(item, step[3] == 'm' ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY,
                                        NULL, NULL, error);
        else
            status = item_rig_call(item, NULL, rig->store, step, &result, error);
        if (status)
            break;
    }
    truce_item_free(item);
    return status;
}

static void check(struct rig *rig, const char *what, uint64_t at)
{
    bson_t *expected =
        test_bson("{'_id': 1, 'badges': [{'type': 'B', 'n': 9, 'm': 9, 'seen': true},"
                  "{'type': 'C', 'n': 7}, {'type': 'D', 'n': 1}, {'type': 'E', 'n': 5}]}");
    bson_t *found = item_rig_read(rig->store, "employees", "badges");
    bson_t *maps = test_bson("{'badges.A': {'$exists': true}}");
    bson_error_t error;
    int64_t count;

    if (!CHECK_BSON(expected, found))
        fprintf(stderr, "    %s %d\n", what, (int)at);
    CHECK_OK(truce_count(rig->store, "employees", maps, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    bson_destroy(maps);
    bson_destroy(found);
    bson_destroy(expected);
}

static void finish(struct rig *rig, size_t first)
{
    bson_error_t error;
    truce_status status = TRUCE_UNKNOWN;

    trouble_arm(rig->inner, rig->store, NONE, 0);
    for (int i = 0; i < 4 && status; i++)
        status = work(rig, &first, &error);
    CHECK_OK(status, error);
}

/* True: the fault happened. */
static bool suffer(truce_item_form form, enum trouble first, uint64_t at, enum trouble second,
                   uint64_t then)
{
    struct rig rig;
    bson_error_t error;
    size_t step = 0;
    bool hit;

    rig_open(&rig, form);
    trouble_arm(rig.inner, rig.store, first, at);
    (void)!work(&rig, &step, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        trouble_arm(rig.inner, rig.store, second, then);
        (void)!work(&rig, &step, &error);
    }
    finish(&rig, step);
    check(&rig, first == LOSE ? "lost" : "died", at);
    truce_store_close(rig.store);
    return hit;
}

static bool form_here(truce_item_form form)
{
    truce_store *store = server_or_memory();
    bool has = form == TRUCE_ITEM_FORM_OPERATOR  ? store->capabilities & TRUCE_CAN_ITEM_UPDATE
               : form == TRUCE_ITEM_FORM_FILTERS ? store->capabilities & TRUCE_CAN_ARRAY_FILTERS
                                                 : true;

    truce_store_close(store);
    return has;
}

static void suffer_everywhere(truce_item_form form)
{
    uint64_t at, step = (uint64_t)test_scale("TRUCE_ITEM_CRASH_STEP", 1);

    if (!form_here(form)) {
        test_skip("this store has no such operator");
        return;
    }
    for (at = 1; suffer(form, DIE_BEFORE, at, NONE, 0) && !test_failures(); at += step) {
        suffer(form, DIE_AFTER, at, NONE, 0);
        suffer(form, LOSE, at, NONE, 0);
        suffer(form, DIE_AFTER, at, DIE_AFTER, 1 + at % 3);
    }
    CHECK_INT(at, >, 12);
}

TEST(repeats_the_operator_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_ITEM_FORM_OPERATOR);
}

TEST(repeats_array_filters_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_ITEM_FORM_FILTERS);
}

TEST(repeats_the_positional_form_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_ITEM_FORM_POSITIONAL);
}

TEST(detects_an_item_write_that_was_reported_but_not_made)
{
    int caught = 0;

    for (uint64_t at = 1; at < 40; at++) {
        truce_fault_options lie = {.kind = TRUCE_FAULT_LIE, .at = at};
        bson_t *expected =
            test_bson("{'_id': 1, 'badges': [{'type': 'B', 'n': 9, 'm': 9, 'seen': true},"
                      "{'type': 'C', 'n': 7}, {'type': 'D', 'n': 1}, {'type': 'E', 'n': 5}]}");
        struct rig rig;
        bson_error_t error;
        size_t step = 0;
        bson_t *found;

        rig_open(&rig, TRUCE_ITEM_FORM_FILTERS);
        truce_fault_arm(rig.store, &lie);
        (void)!work(&rig, &step, &error);
        trouble_arm(rig.inner, rig.store, NONE, 0);
        found = item_rig_read(rig.store, "employees", "badges");
        caught += !bson_equal(found, expected);
        bson_destroy(found);
        bson_destroy(expected);
        truce_store_close(rig.store);
    }
    CHECK_INT(caught, >, 3);
}
