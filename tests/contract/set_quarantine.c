/* The quarantine is replayed: under a new number, unless a newer operation is stored, and once. */
#include "tests/support/server.h"
#include "tests/support/trouble.h"
#include "tests/support/tutorial.h"

struct place {
    truce_store *store;
    truce_set *set;
    bson_t *key;
};

static truce_set_outcome consume(truce_set *set, truce_set_verb verb, const char *name, int64_t seq)
{
    bson_t *key = test_bson("{'student_id': 1}"), *element = bson_new();
    truce_set_operation operation = {.verb = verb, .key = key, .element = element, .seq = seq};
    truce_set_result result = {0};
    bson_error_t error;

    BSON_APPEND_UTF8(element, "name", name);
    if (verb == TRUCE_SET_ADD)
        BSON_APPEND_INT64(element, "of", seq);
    CHECK_OK(truce_set_consume(set, "c1", &operation, 1, &result, &error), error);
    bson_destroy(key);
    bson_destroy(element);
    return result.outcome;
}

/* Collects up to 9; adds of a (2) and b (3), whose numbers had been given up, are quarantined. */
static void open_place(struct place *place, truce_set_layout layout, truce_store *store)
{
    bson_error_t error;

    place->store = store;
    place->set = tutorial_set(store, &(truce_set_options){.layout = layout});
    place->key = test_bson("{'student_id': 1}");
    CHECK_INT(consume(place->set, TRUCE_SET_REMOVE, "x", 1), ==, TRUCE_SET_APPLIED);
    CHECK_OK(truce_set_void(place->set, NULL, 2, 9, &error), error);
    CHECK_OK(truce_set_collect(place->set, NULL, &error), error);
    CHECK_INT(consume(place->set, TRUCE_SET_ADD, "a", 2), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(consume(place->set, TRUCE_SET_ADD, "b", 3), ==, TRUCE_SET_QUARANTINED);
}

static void close_place(struct place *place)
{
    truce_set_free(place->set);
    truce_store_close(place->store);
    bson_destroy(place->key);
}

/* Returns the n-th quarantined document; NULL: there are fewer. */
static bson_t *quarantined(struct place *place, int n)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_t *found = NULL;
    bson_error_t error;

    CHECK_OK(truce_set_quarantine(place->set, &cursor, &error), error);
    for (int i = 0; i <= n; i++)
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    if (document)
        found = bson_copy(document);
    truce_cursor_close(cursor);
    return found;
}

static void check_members(struct place *place, const char *wanted)
{
    bson_t *expected = test_bson(wanted), members;
    bson_error_t error;

    CHECK_OK(truce_set_members(place->set, place->key, &members, &error), error);
    CHECK_BSON(expected, &members);
    bson_destroy(&members);
    bson_destroy(expected);
}

static void replaying(truce_set_layout layout)
{
    struct place place;
    bson_t *first, *second;
    truce_set_outcome outcome = 0;
    int64_t watermark = 0;
    bson_error_t error;

    open_place(&place, layout, server_or_memory());
    first = quarantined(&place, 0);
    second = quarantined(&place, 1);
    REQUIRE(first && second);
    CHECK_INT(consume(place.set, TRUCE_SET_REMOVE, "b", 10), ==, TRUCE_SET_APPLIED);
    /* not above the watermark: it stays as it is */
    CHECK_STATUS(TRUCE_INVALID, truce_set_replay(place.set, first, 9, "c1", &outcome, &error),
                 error);
    CHECK(strstr(error.message, "number 9 ") != NULL);
    CHECK(quarantined(&place, 2) == NULL);
    CHECK_OK(truce_set_replay(place.set, first, 11, "c1", &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_APPLIED);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_replay(place.set, first, 13, "c1", &outcome, &error),
                 error);
    /* b was removed by a newer operation */
    CHECK_OK(truce_set_replay(place.set, second, 12, "c1", &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_STALE);
    CHECK(quarantined(&place, 0) == NULL);
    check_members(&place,
                  "[{'name': 'a', 'seq': {'$numberLong': '11'}, 'of': {'$numberLong': '2'}}]");
    CHECK_OK(truce_set_watermark(place.set, &watermark, NULL, &error), error);
    CHECK_INT(watermark, ==, 12);
    bson_destroy(first);
    bson_destroy(second);
    close_place(&place);
}

TEST(applies_a_quarantined_operation_unless_a_newer_one_is_stored)
{
    replaying(TRUCE_SET_IN_DOCUMENT);
    replaying(TRUCE_SET_BY_ELEMENT);
}

TEST(replays_only_quarantined_operations)
{
    static const char *const others[] = {"{'a': 1}", "{'_id': 5}",
                                         "{'_id': {'set': 'other.list', 'seq': 2}}"};
    bson_t *foreign =
        test_bson("{'_id': {'set': 'teachers.classes', 'source': '', 'seq': 2, 'verb': 'add',"
                  " 'key': {'student_id': 1}, 'name': 'a'}, 'element': {'name': 'a'}}");
    struct place place;
    bson_error_t error;

    open_place(&place, TRUCE_SET_IN_DOCUMENT, server_or_memory());
    for (int i = 0; i < 3; i++) {
        bson_t *document = test_bson(others[i]);

        CHECK_STATUS(i ? TRUCE_NOT_FOUND : TRUCE_INVALID,
                     truce_set_replay(place.set, document, 20, NULL, NULL, &error), error);
        bson_destroy(document);
    }
    CHECK_OK(truce_insert(place.store, "truce_quarantine", foreign, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_set_replay(place.set, foreign, 20, NULL, NULL, &error),
                 error);
    bson_destroy(foreign);
    close_place(&place);
}

TEST(applies_a_replay_once_if_it_crashes_anywhere)
{
    uint64_t step = server_under_test() ? 9 : 1;
    bool hit = true;

    for (uint64_t at = 1; hit && !test_failures(); at += step) {
        truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
        truce_store *inner = truce_fault_wrap(server_or_memory(), &none);
        truce_store *outer = truce_fault_wrap(inner, &none);
        truce_set_outcome outcome;
        struct place place;
        bson_t *first;
        truce_set *set;
        bson_error_t error;
        truce_status status;

        open_place(&place, TRUCE_SET_IN_DOCUMENT, outer);
        first = quarantined(&place, 0);
        REQUIRE(first);
        trouble_arm(inner, outer, at % 2 ? DIE_AFTER : DIE_BEFORE, at);
        set = tutorial_set(outer, NULL);
        status = truce_set_replay(set, first, 11, "c1", &outcome, &error);
        hit = status != TRUCE_OK;
        truce_set_free(set);
        trouble_arm(inner, outer, NONE, 0);
        status = truce_set_replay(place.set, first, 12, "c1", &outcome, &error);
        CHECK(status == TRUCE_OK || status == TRUCE_NOT_FOUND);
        CHECK(quarantined(&place, 1) == NULL);
        /* a newer removal, and nothing brings it back */
        CHECK_INT(consume(place.set, TRUCE_SET_REMOVE, "a", 13), ==, TRUCE_SET_APPLIED);
        CHECK_STATUS(TRUCE_NOT_FOUND,
                     truce_set_replay(place.set, first, 14, "c1", &outcome, &error), error);
        check_members(&place, "[]");
        bson_destroy(first);
        close_place(&place);
    }
}
