/* The layout by element: its tombstones are collected, and older operations find the guard. */
#include <stddef.h>

#include "tests/support/no_sleep.h"
#include "tests/support/server.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"

#define A(n, name)                                                                                 \
    {                                                                                              \
        true, n, NULL, 1, name                                                                     \
    }
#define R(n, name)                                                                                 \
    {                                                                                              \
        false, n, NULL, 1, name                                                                    \
    }

struct place {
    truce_store *store;
    truce_set *set;
};

static void open_place(struct place *place)
{
    place->store = server_or_memory();
    place->set = tutorial_set(place->store, &(truce_set_options){.layout = TRUCE_SET_BY_ELEMENT});
}

static void close_place(struct place *place)
{
    truce_set_free(place->set);
    truce_store_close(place->store);
}

static void consume(struct place *place, const struct model_operation *operations, int count,
                    truce_set_outcome expected)
{
    truce_set_operation made[8] = {{0}};
    truce_set_result results[8];
    bson_t parts[16];
    bson_error_t error;

    for (int i = 0; i < count; i++)
        model_operation_make(&operations[i], &parts[2 * i], &parts[2 * i + 1], &made[i]);
    CHECK_OK(truce_set_consume(place->set, "c", made, (size_t)count, results, &error), error);
    for (int i = 0; i < count; i++) {
        if (expected)
            CHECK_TEXT(truce_set_outcome_name(expected),
                       truce_set_outcome_name(results[i].outcome));
        bson_destroy(&parts[2 * i]);
        bson_destroy(&parts[2 * i + 1]);
    }
}

static int64_t count(struct place *place, const char *collection, const char *filter)
{
    bson_t *parsed = test_bson(filter);
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce_count(place->store, collection, parsed, NULL, &number, &error), error);
    bson_destroy(parsed);
    return number;
}

static int64_t collect(struct place *place)
{
    truce_set_collected collected;
    bson_error_t error;

    CHECK_OK(truce_set_collect(place->set, &collected, &error), error);
    return collected.tombstones;
}

static const struct model_operation operations[] = {A(1, 0), R(2, 0), A(3, 1), R(4, 2),
                                                    A(5, 3), R(6, 3), A(7, 0)};
#define OPERATIONS 7

/* Alone and in batches. */
static void goes_and_stays(int batch)
{
    struct place place;

    open_place(&place);
    for (int i = 0; i < OPERATIONS; i++)
        consume(&place, &operations[i], 1, TRUCE_SET_APPLIED);
    CHECK_INT(collect(&place), ==, 2);
    CHECK_INT(collect(&place), ==, 0);
    CHECK_INT(count(&place, "students.classes", "{'removed': true}"), ==, 0);
    CHECK_INT(count(&place, "students.classes.guards", "{'_id.student_id': 1, '_wm': 7}"), ==, 1);
    model_check(place.set, operations, OPERATIONS, NULL, 1, 4, false, "collected");
    for (int i = 0; i < OPERATIONS; i += batch)
        consume(&place, &operations[i], i + batch > OPERATIONS ? OPERATIONS - i : batch, 0);
    CHECK_INT(count(&place, "students.classes", "{}"), ==, 2);
    model_check(place.set, operations, OPERATIONS, NULL, 1, 4, false, "again");
    consume(&place, &(struct model_operation)R(9, 1), 1, TRUCE_SET_APPLIED);
    consume(&place, &(struct model_operation)A(8, 2), 1, TRUCE_SET_APPLIED);
    CHECK_INT(collect(&place), ==, 1);
    CHECK_INT(count(&place, "students.classes", "{}"), ==, 2);
    close_place(&place);
}

TEST(collects_tombstones_by_element_without_resurrection)
{
    goes_and_stays(1);
    goes_and_stays(OPERATIONS);
}

TEST(quarantines_operations_that_were_given_up)
{
    struct place place;
    bson_error_t error;

    open_place(&place);
    consume(&place, &(struct model_operation)R(1, 0), 1, TRUCE_SET_APPLIED);
    CHECK_OK(truce_set_void(place.set, NULL, 2, 4, &error), error);
    CHECK_INT(collect(&place), ==, 1);
    consume(&place, &(struct model_operation)A(2, 0), 1, TRUCE_SET_QUARANTINED);
    consume(&place, (struct model_operation[]){A(3, 1), A(4, 2)}, 2, TRUCE_SET_QUARANTINED);
    CHECK_INT(count(&place, "truce_quarantine", "{}"), ==, 3);
    CHECK_INT(count(&place, "students.classes", "{}"), ==, 0);
    close_place(&place);
}

/* A consumer died between its insert and its read of the guard. */
TEST(removes_an_element_below_the_guard)
{
    struct place place;
    bson_t *left = test_bson("{'student_id': 1, 'name': 'CS 0', 'seq': {'$numberLong': '1'}}");
    bson_error_t error;

    open_place(&place);
    consume(&place, (struct model_operation[]){A(1, 0), R(2, 0), R(3, 1)}, 3, 0);
    CHECK_INT(collect(&place), ==, 2);
    CHECK_OK(truce_insert(place.store, "students.classes", left, NULL, &error), error);
    model_check(place.set, operations, 2, NULL, 1, 1, false, "left by a dead one");
    consume(&place, operations, 1, TRUCE_SET_DUPLICATE);
    CHECK_INT(count(&place, "students.classes", "{}"), ==, 0);
    CHECK_OK(truce_insert(place.store, "students.classes", left, NULL, &error), error);
    consume(&place, &(struct model_operation)R(4, 1), 1, TRUCE_SET_APPLIED);
    CHECK_INT(collect(&place), ==, 1); /* the collector of the key removes it */
    CHECK_INT(count(&place, "students.classes", "{}"), ==, 0);
    bson_destroy(left);
    close_place(&place);
}

static truce_status add_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct place *place = arg;
    truce_set_operation made;
    truce_set_result result;
    truce_set_outcome outcomes[2];
    bson_t key, element;
    truce_status status = TRUCE_OK;

    for (int i = 0; !status && i < 2; i++) {
        struct model_operation operation = {true, i ? 9 : 1, NULL, 1, 0};

        model_operation_make(&operation, &key, &element, &made);
        status = truce_set_apply(place->set, commit, &made, 1, &result, error);
        outcomes[i] = result.outcome;
        bson_destroy(&key);
        bson_destroy(&element);
    }
    if (!status) {
        CHECK_INT(outcomes[0], ==, TRUCE_SET_DUPLICATE);
        CHECK_INT(outcomes[1], ==, TRUCE_SET_APPLIED);
    }
    return status;
}

TEST(a_commit_reads_the_guard_as_well)
{
    struct place place;
    bson_t *left = test_bson("{'student_id': 1, 'name': 'CS 0', 'seq': {'$numberLong': '1'}}");
    bson_error_t error;

    for (int dead = 0; dead < 2; dead++) {
        open_place(&place);
        consume(&place, (struct model_operation[]){A(1, 0), R(2, 0)}, 2, 0);
        CHECK_INT(collect(&place), ==, 1);
        if (dead)
            CHECK_OK(truce_insert(place.store, "students.classes", left, NULL, &error), error);
        CHECK_OK(truce_transact(place.store, add_in, &place, NULL, &error), error);
        model_check(place.set, &(struct model_operation)A(9, 0), 1, NULL, 1, 1, false,
                    "by a commit");
        close_place(&place);
    }
    bson_destroy(left);
}

/* A store whose calls can be made to fail. */
static void open_failing(struct place *place, truce_store *inner)
{
    place->store = truce_fault_wrap(inner, &(truce_fault_options){0});
    place->set = tutorial_set(place->store, &(truce_set_options){.layout = TRUCE_SET_BY_ELEMENT});
}

/* The guard is stored before the first tombstone is removed. Otherwise a repeat that arrives
 * after the death of the collector, and before the next one, would be taken for a new operation. */
TEST(brings_no_element_back_after_a_collector_crashed)
{
    static const struct model_operation both[] = {A(1, 0), R(2, 0)};
    truce_set_collected collected;
    bson_error_t error;
    bool hit = true;

    for (uint64_t at = 1; hit && at < 50; at++) {
        struct place place;

        open_failing(&place, server_or_memory());
        consume(&place, &both[0], 1, TRUCE_SET_APPLIED);
        consume(&place, &both[1], 1, TRUCE_SET_APPLIED);
        truce_fault_arm(place.store, &(truce_fault_options){.kind = TRUCE_FAULT_FAIL,
                                                            .at = at,
                                                            .from_then_on = true,
                                                            .writes_only = true});
        /* it dies, or has completed before */
        (void)!truce_set_collect(place.set, &collected, &error);
        hit = truce_fault_hits(place.store) > 0;
        truce_fault_arm(place.store, &(truce_fault_options){0});
        consume(&place, &both[0], 1, 0);
        (void)collect(&place);
        model_check(place.set, both, 2, NULL, 1, 1, false, "after a collector's death");
        CHECK_INT(count(&place, "students.classes", "{}"), ==, 0);
        close_place(&place);
    }
    CHECK(!hit);
}

/* Runs a commit that adds "CS 0" at 50 and whose owner dies at its n-th call. True: it holds the
 * element. */
static bool die_holding(struct place *place, uint64_t at)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1};
    struct model_operation operation = A(50, 0);
    truce_commit *commit = NULL;
    truce_set_operation made;
    truce_set_result result;
    bson_t key, element, *other = test_bson("{'_id': 1}");
    bson_error_t error;

    model_operation_make(&operation, &key, &element, &made);
    CHECK_OK(truce_commit_begin(place->store, &options, &commit, &error), error);
    CHECK_OK(truce_set_apply(place->set, commit, &made, 1, &result, &error), error);
    CHECK_OK(truce_commit_insert(commit, "other", other, &error), error);
    truce_fault_arm(place->store, &(truce_fault_options){
                                      .kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true});
    (void)!truce_commit_apply(commit, &error); /* it dies, or has completed before */
    truce_fault_arm(place->store, &(truce_fault_options){0});
    truce_commit_free(commit);
    bson_destroy(other);
    bson_destroy(&key);
    bson_destroy(&element);
    return count(place, "students.classes", "{'_intent': {'$exists': true}}") > 0;
}

/* The next client that encounters the commit ends it; the element that it leaves is proved
 * before the guard rises. */
TEST(proves_an_element_of_a_dead_commit_before_collection)
{
    static const struct model_operation messages[] = {A(1, 0), R(2, 1), A(50, 0)};
    int met = 0;
    bool decided;

    if (server_under_test())
        return;
    no_sleep_begin();
    for (uint64_t at = 1; at < 20; at++) {
        struct place place;

        open_failing(&place, server_or_memory());
        consume(&place, messages, 2, TRUCE_SET_APPLIED);
        if (die_holding(&place, at)) {
            met++;
            CHECK_INT(collect(&place), ==, 1);
            CHECK_INT(count(&place, "students.classes.guards", "{'_wm': 2}"), ==, 1);
            decided = count(&place, "students.classes", "{'seq': 50}") > 0;
            model_check(place.set, messages, decided ? 3 : 2, NULL, 1, 2, false,
                        "held, and collected");
        }
        close_place(&place);
    }
    truce__environment_use(NULL);
    CHECK_INT(met, >=, 2);
}
