/* Tombstones collected by proof: consumers, sources, void numbers, the quarantine; and the traps
 * of simpler ways, each with its name. */
#include "tests/support/set_model.h"
#include "tests/support/set_place.h"
#include "truce/sys/decorate.h"
#include "truce/sys/store.h"

#define A(n)                                                                                       \
    {                                                                                              \
        true, n, NULL, 1, 0                                                                        \
    }
#define R(n)                                                                                       \
    {                                                                                              \
        false, n, NULL, 1, 0                                                                       \
    }

static truce_set_outcome consume(struct place *place, const char *consumer,
                                 struct model_operation operation)
{
    truce_set_operation made;
    truce_set_result result = {0};
    bson_t key, element;
    bson_error_t error;

    model_operation_make(&operation, &key, &element, &made);
    CHECK_OK(truce_set_consume(place->set, consumer, &made, 1, &result, &error), error);
    bson_destroy(&key);
    bson_destroy(&element);
    return result.outcome;
}

static int64_t count(struct place *place, const char *collection)
{
    int64_t number = -1;
    bson_error_t error;

    CHECK_OK(truce_count(place->store, collection, NULL, NULL, &number, &error), error);
    return number;
}

/* ---- collection ------------------------------------------------------------------------------ */

static void collecting(truce_set_form form)
{
    const struct model_operation operations[] = {A(1), R(2), A(3), R(4)};
    struct place place;

    place_open(&place, false, form);
    for (int i = 0; i < 4; i++)
        CHECK_INT(consume(&place, i % 2 ? "c1" : "c2", operations[i]), ==, TRUCE_SET_APPLIED);
    CHECK_INT(watermark(&place), ==, 4);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    CHECK_INT(collect(&place).tombstones, ==, 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(consume(&place, "c3", operations[i]), ==, TRUCE_SET_DUPLICATE);
    model_check(place.set, operations, 4, NULL, 1, 1, false, "collected");
    CHECK_INT(consume(&place, "c3", (struct model_operation)A(5)), ==, TRUCE_SET_APPLIED);
    CHECK_INT(count(&place, "truce_quarantine"), ==, 0);
    place_close(&place);
}

TEST(reports_a_repeated_collected_operation_as_a_duplicate)
{
    collecting(TRUCE_SET_FORM_PIPELINE);
    collecting(TRUCE_SET_FORM_CLASSIC);
}

TEST(a_gap_stalls_collecting_until_it_is_filled_or_void)
{
    struct place place;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", (struct model_operation)R(1));
    consume(&place, "c1", (struct model_operation){true, 3, NULL, 1, 1});
    CHECK_INT(watermark(&place), ==, 1);
    CHECK_OK(truce_set_void(place.set, NULL, 2, 2, &error), error);
    CHECK_INT(watermark(&place), ==, 3);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    /* 2 was void, and the watermark has passed it */
    CHECK_INT(consume(&place, "c1", (struct model_operation)A(2)), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(consume(&place, "c2", (struct model_operation)A(2)), !=, TRUCE_SET_APPLIED);
    CHECK_INT(count(&place, "truce_quarantine"), ==, 1);
    model_check(place.set, &(struct model_operation)R(1), 1, NULL, 1, 1, false, "void");
    place_close(&place);
}

TEST(the_quarantine_stores_the_reason)
{
    struct place place;
    truce_cursor *cursor;
    const bson_t *document;
    bson_iter_t iter;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", (struct model_operation)R(1));
    CHECK_OK(truce_set_void(place.set, NULL, 2, 9, &error), error);
    collect(&place);
    consume(&place, "c1", (struct model_operation)A(2));
    REQUIRE(CHECK_OK(truce_set_quarantine(place.set, &cursor, &error), error));
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    REQUIRE(document);
    CHECK(bson_iter_init_find(&iter, document, "reason"));
    CHECK_TEXT("number 2 was declared void", bson_iter_utf8(&iter, NULL));
    CHECK(bson_iter_init_find(&iter, document, "element"));
    truce_cursor_close(cursor);
    place_close(&place);
}

TEST(a_misspelled_source_is_refused_and_not_created)
{
    struct place place;
    bson_error_t error;
    int64_t first;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    /* a set without sources has only numbers without one */
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_source_idle(place.set, "web", 6, &error), error);
    CHECK(!strstr(error.message, "expected"));
    consume(&place, "c1", (struct model_operation){true, 1, "web", 1, 0});
    CHECK_OK(truce_set_source_start(place.set, "mobile", &first, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_source_idle(place.set, "wbe", 6, &error), error);
    CHECK(strstr(error.message, "no source \"wbe\": expected \"mobile\", \"web\"; ") != NULL);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_void(place.set, "wbe", 2, 5, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_source_idle(place.set, NULL, 6, &error), error);
    CHECK_INT(count(&place, "truce_sources"), ==, 2);
    CHECK_OK(truce_set_void(place.set, "web", 2, 5, &error), error);
    CHECK_OK(truce_set_source_idle(place.set, "mobile", 6, &error), error);
    CHECK_INT(watermark(&place), ==, 5);
    place_close(&place);
}

TEST(an_idle_source_does_not_block_the_others_once_it_is_declared)
{
    struct place place;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", (struct model_operation){true, 1, "mobile", 1, 1});
    for (int64_t i = 1; i <= 5; i++)
        consume(&place, "c1", (struct model_operation){i % 2, i, "web", 1, 0});
    CHECK_INT(watermark(&place), ==, 1);
    CHECK_OK(truce_set_source_idle(place.set, "mobile", 6, &error), error);
    CHECK_INT(watermark(&place), ==, 5);
    place_close(&place);
}

TEST(a_new_source_starts_above_the_collected_numbers)
{
    struct place place;
    bson_error_t error;
    int64_t first;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int64_t i = 1; i <= 6; i++)
        consume(&place, "c1", (struct model_operation){i % 2, i, "web", 1, 0});
    CHECK_INT(collect(&place).watermark, ==, 6);
    CHECK_OK(truce_set_source_start(place.set, "mobile", &first, &error), error);
    CHECK_INT(first, ==, 7);
    CHECK_OK(truce_set_source_start(place.set, "mobile", &first, &error), error);
    CHECK_INT(first, ==, 7);
    CHECK_INT(watermark(&place), ==, 6);
    CHECK_INT(consume(&place, "c1", (struct model_operation){true, 7, "mobile", 1, 0}), ==,
              TRUCE_SET_APPLIED);
    /* a name that was not announced, with a number from below: the loss is reported */
    CHECK_INT(consume(&place, "c1", (struct model_operation){true, 2, "other", 1, 3}), ==,
              TRUCE_SET_QUARANTINED);
    place_close(&place);
}

TEST(records_of_many_blocks_are_archived_and_still_prove)
{
    enum { COUNT = 30000 };
    truce_set_operation *operations = bson_malloc0(COUNT * sizeof *operations);
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'a'}");
    struct place place;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int i = 0; i < COUNT; i++)
        operations[i] = (truce_set_operation){TRUCE_SET_REMOVE, key, element,
                                              1 + (int64_t)i * 7919 % COUNT, NULL};
    consume(&place, "c1", (struct model_operation)R(1));
    CHECK_OK(truce_set_record(place.set, "c1", operations, COUNT / 2, &error), error);
    CHECK_INT(watermark(&place), <, COUNT);
    CHECK_OK(truce_set_record(place.set, "c2", operations + COUNT / 2, COUNT / 2, &error), error);
    CHECK_INT(watermark(&place), ==, COUNT);
    CHECK_INT(count(&place, "truce_progress"), >, 12);
    CHECK_INT(collect(&place).watermark, ==, COUNT);
    CHECK_INT(count(&place, "truce_progress"), <, 12);
    CHECK_INT(watermark(&place), ==, COUNT);
    CHECK_INT(consume(&place, "c3", (struct model_operation)A(1)), ==, TRUCE_SET_DUPLICATE);
    place_close(&place);
    bson_free(operations);
    bson_destroy(key);
    bson_destroy(element);
}

/* One query for each number would take millions of queries. */
TEST(the_cost_of_sparse_numbers_follows_the_number_of_records)
{
    enum { COUNT = 40 };
    const int64_t start = INT64_C(1763800000000), step = 86400000; /* a timestamp a day */
    truce_set_operation operations[COUNT];
    truce_set_result results[COUNT];
    truce_set_collected collected;
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'a'}");
    struct place place;
    int64_t records;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int i = 0; i < COUNT; i++)
        operations[i] =
            (truce_set_operation){TRUCE_SET_REMOVE, key, element, start + i * step, NULL};
    CHECK_OK(truce_set_consume(place.set, "c1", operations, COUNT, results, &error), error);
    records = count(&place, "truce_progress");
    CHECK_INT(collect(&place).watermark, ==, 0); /* no source has declared the gaps void */
    CHECK_OK(truce_set_source_idle(place.set, NULL, start + COUNT * step, &error), error);
    collected = collect(&place);
    CHECK_INT(collected.watermark, ==, start + COUNT * step - 1);
    CHECK_INT(collected.tombstones, ==, 1);
    CHECK_INT(count(&place, "truce_progress"), <=, records);
    CHECK_OK(truce_set_apply(place.set, NULL, operations, 1, results, &error), error);
    CHECK_INT(results[0].outcome, ==, TRUCE_SET_DUPLICATE);
    operations[0].seq++;
    CHECK_OK(truce_set_apply(place.set, NULL, operations, 1, results, &error), error);
    CHECK_INT(results[0].outcome, ==, TRUCE_SET_QUARANTINED);
    place_close(&place);
    bson_destroy(key);
    bson_destroy(element);
}

/* ---- the traps ---- */

static void no_second_document(truce_set_form form)
{
    struct place place;

    place_open(&place, false, form);
    consume(&place, "c1", (struct model_operation)R(2));
    consume(&place, "c1", (struct model_operation)A(1)); /* its guard does not match */
    consume(&place, "c1", (struct model_operation)R(2));
    CHECK_INT(count(&place, "students"), ==, 1);
    place_close(&place);
}

TEST(inserts_no_second_document_if_a_guard_fails)
{
    no_second_document(TRUCE_SET_FORM_CLASSIC);
    no_second_document(TRUCE_SET_FORM_PIPELINE);
}

TEST(leaves_a_tombstone_for_a_removed_name_that_was_never_added)
{
    truce_set_form forms[] = {TRUCE_SET_FORM_CLASSIC, TRUCE_SET_FORM_PIPELINE};

    for (int i = 0; i < 2; i++) {
        const struct model_operation operations[] = {R(2), A(1)};
        struct place place;

        place_open(&place, false, forms[i]);
        CHECK_INT(consume(&place, "c1", operations[0]), ==, TRUCE_SET_APPLIED);
        CHECK_INT(consume(&place, "c1", operations[1]), ==, TRUCE_SET_STALE);
        model_check(place.set, operations, 2, NULL, 1, 1, true, "a remove first");
        place_close(&place);
    }
}

TEST(keeps_a_tombstone_that_all_consumers_passed_if_a_number_is_missing)
{
    const struct model_operation operations[] = {A(1), R(2), A(3)};
    struct place place;

    /* 1 is not delivered yet, while every consumer is past it */
    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", operations[1]);
    consume(&place, "c2", (struct model_operation){true, 3, NULL, 1, 1});
    CHECK_INT(watermark(&place), ==, 0);
    CHECK_INT(collect(&place).tombstones, ==, 0);
    CHECK_INT(consume(&place, "c1", operations[0]), ==, TRUCE_SET_STALE);
    model_check(place.set, operations, 2, NULL, 1, 1, true, "1 comes last");
    place_close(&place);
}

TEST(keeps_a_tombstone_if_another_source_has_a_gap)
{
    const struct model_operation operations[] = {{true, 1, "b", 1, 0}, {false, 2, "a", 1, 0}};
    struct place place;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", (struct model_operation){true, 1, "a", 1, 1});
    consume(&place, "c1", (struct model_operation){true, 2, "b", 1, 1});
    consume(&place, "c1", operations[1]); /* a is complete to 2, and b waits for 1 */
    CHECK_INT(collect(&place).tombstones, ==, 0);
    CHECK_INT(consume(&place, "c1", operations[0]), ==, TRUCE_SET_STALE);
    model_check(place.set, operations, 2, NULL, 1, 1, true, "b's first comes last");
    place_close(&place);
}

/* Collects when another handle is about to write, after its read. */
struct intruder {
    struct place *place;
    bool done, collecting;
};

/* Calls that are about to write to the students. */
static bool writes_students(const bson_t *event)
{
    bson_iter_t iter;

    return !bson_iter_init_find(&iter, event, "status") &&
           bson_iter_init_find(&iter, event, "verb") &&
           !strcmp(bson_iter_utf8(&iter, NULL), "bulk") &&
           bson_iter_init_find(&iter, event, "collection") &&
           !strcmp(bson_iter_utf8(&iter, NULL), "students");
}

static void intrude(const bson_t *event, void *arg)
{
    struct intruder *intruder = arg;

    if (intruder->done || intruder->collecting || !writes_students(event))
        return;
    intruder->collecting = true;
    CHECK_INT(collect(intruder->place).tombstones, ==, 1);
    intruder->done = true;
}

static void watermark_in_the_write(truce_set_form form, bool batch)
{
    /* an old add, read from the queue again, is about to be written when 2 is collected */
    const struct model_operation operations[] = {A(1), R(2)};
    const int twice[] = {0, 0};
    struct place place;
    struct intruder intruder = {.place = &place};
    truce_trace_options options = {.function = intrude, .arg = &intruder, .beginnings = true};
    truce_store *inner, *traced;
    truce_set *set;
    truce_set_result results[2];
    bson_error_t error;

    place_open(&place, false, form);
    consume(&place, "c1", operations[0]);
    consume(&place, "c1", operations[1]);
    consume(&place, "c1", (struct model_operation){true, 3, NULL, 1, 1});
    inner = place.store;
    traced = truce_trace_wrap(inner, &options);
    set = tutorial_set(traced, &(truce_set_options){.form = place.form});
    if (batch)
        CHECK_OK(model_apply_batch(set, operations, twice, 2, results, &error), error);
    else
        CHECK_OK(model_apply(set, &operations[0], &results[0].outcome, &error), error);
    CHECK(batch || intruder.done); /* the batch reads first, and has nothing to write */
    CHECK(results[0].outcome != TRUCE_SET_APPLIED);
    truce_set_free(set);
    model_check(place.set, operations, 2, NULL, 1, 1, false, "collected under the write");
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}

TEST(compares_the_watermark_in_the_write_itself)
{
    watermark_in_the_write(TRUCE_SET_FORM_PIPELINE, false);
    watermark_in_the_write(TRUCE_SET_FORM_CLASSIC, false);
    watermark_in_the_write(TRUCE_SET_FORM_CLASSIC, true);
}

static void overtake(const bson_t *event, void *arg)
{
    struct intruder *intruder = arg;

    if (intruder->collecting || !writes_students(event))
        return;
    intruder->collecting = true;
    CHECK_INT(consume(intruder->place, "c1", (struct model_operation)A(3)), ==, TRUCE_SET_APPLIED);
    CHECK_INT(consume(intruder->place, "c1", (struct model_operation)R(4)), ==, TRUCE_SET_APPLIED);
    CHECK_INT(collect(intruder->place).tombstones, ==, 1);
    intruder->done = true;
}

TEST(distinguishes_lists_that_are_empty_again)
{
    const struct model_operation operations[] = {A(1), R(2), A(3), R(4)};
    const int twice[] = {2, 2};
    struct place place;
    struct intruder intruder = {.place = &place};
    truce_trace_options options = {.function = overtake, .arg = &intruder, .beginnings = true};
    truce_store *traced;
    truce_set *set;
    truce_set_result results[2];
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_CLASSIC);
    consume(&place, "c1", operations[0]);
    consume(&place, "c1", operations[1]);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    traced = truce_trace_wrap(place.store, &options);
    set = tutorial_set(traced, &(truce_set_options){.form = place.form});
    CHECK_OK(model_apply_batch(set, operations, twice, 2, results, &error), error);
    CHECK(intruder.done);
    CHECK_INT(results[0].outcome, ==, TRUCE_SET_DUPLICATE);
    model_check(place.set, operations, 4, NULL, 1, 1, false, "overtaken and collected");
    truce_set_free(set);
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}

TEST(records_a_number_only_when_it_is_applied)
{
    /* a consumer that dies at any of its calls: whatever is recorded was applied */
    for (uint64_t at = 1;; at++) {
        const struct model_operation operation = R(1);
        truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true};
        struct place place = {0};
        truce_set_operation made;
        truce_set_result result;
        bson_t key, element;
        bson_error_t error;
        truce_status status;

        place.store = truce_fault_wrap(server_or_memory(), &fault);
        place.set = tutorial_set(place.store, NULL);
        model_operation_make(&operation, &key, &element, &made);
        status = truce_set_consume(place.set, "c1", &made, 1, &result, &error);
        truce_fault_arm(place.store, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
        if (watermark(&place) >= 1)
            model_check(place.set, &operation, 1, NULL, 1, 1, true, "recorded");
        bson_destroy(&key);
        bson_destroy(&element);
        place_close(&place);
        if (!status)
            break;
        REQUIRE(at < 100);
    }
}

/* Drops a collection, so that the handle makes its indexes again before the next operation. */
static void drop_another(truce_store *store)
{
    bson_t *document = test_bson("{'_id': 1}");
    bson_error_t error;

    CHECK_OK(truce_insert(store, "other", document, NULL, &error), error);
    bson_destroy(document);
    CHECK_OK(truce_collection_drop(store, "other", &error), error);
}

/* The first write of the operation fails, perhaps after it has taken full effect. */
static void fail_once(truce_status fails, bool dropped)
{
    const struct model_operation operations[] = {A(1), R(2)};
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_fault_options failing = {
        .kind = TRUCE_FAULT_FAIL, .at = 1, .writes_only = true, .status = fails};
    truce_set_outcome outcome = 0;
    struct place place = {0};
    bson_error_t error;
    truce_status status;

    place.store = truce_fault_wrap(server_or_memory(), &none);
    place.set = tutorial_set(place.store, NULL);
    CHECK_OK(model_apply(place.set, &operations[0], &outcome, &error), error);
    if (dropped)
        drop_another(place.store);
    truce_fault_arm(place.store, &failing);
    status = model_apply(place.set, &operations[1], &outcome, &error);
    CHECK_INT(truce_fault_hits(place.store), ==, 1);
    truce_fault_arm(place.store, &none);
    CHECK_INT(status, ==, fails == TRUCE_UNKNOWN ? TRUCE_OK : fails);
    CHECK(status || outcome == TRUCE_SET_APPLIED);
    model_check(place.set, operations, status ? 1 : 2, NULL, 1, 1, true, "not written");
    place_close(&place);
}

TEST(does_not_report_an_unwritten_operation_as_applied)
{
    for (int dropped = 0; dropped <= 1; dropped++) {
        fail_once(TRUCE_IO, dropped);
        fail_once(TRUCE_UNKNOWN, dropped);
    }
}

TEST(keeps_an_emptied_document_for_its_watermark)
{
    const struct model_operation operations[] = {A(1), R(2)};
    struct place place;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", operations[0]);
    consume(&place, "c1", operations[1]);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    CHECK_INT(count(&place, "students"), ==, 1);
    CHECK_INT(consume(&place, "c2", operations[0]), ==, TRUCE_SET_DUPLICATE);
    model_check(place.set, operations, 2, NULL, 1, 1, false, "emptied");
    place_close(&place);
}

/* Another source is announced when the collector is about to announce its watermark. */
static void start_source(const bson_t *event, void *arg)
{
    struct intruder *intruder = arg;
    bson_iter_t iter;
    bson_error_t error;
    int64_t first;

    if (intruder->done || bson_iter_init_find(&iter, event, "status") ||
        !bson_iter_init_find(&iter, event, "verb") || strcmp(bson_iter_utf8(&iter, NULL), "bulk") ||
        !bson_iter_init_find(&iter, event, "collection") ||
        strcmp(bson_iter_utf8(&iter, NULL), "truce_sets"))
        return;
    intruder->done = true;
    CHECK_OK(truce_set_source_start(intruder->place->set, "late", &first, &error), error);
    CHECK_INT(first, ==, 1);
}

TEST(loses_nothing_of_a_source_that_starts_during_collection)
{
    const struct model_operation operations[] = {
        {true, 1, "web", 1, 0}, {false, 2, "web", 1, 0}, {true, 1, "late", 1, 1}};
    struct place place;
    struct intruder intruder = {.place = &place};
    truce_trace_options options = {.function = start_source, .arg = &intruder, .beginnings = true};
    truce_store *traced;
    truce_set *collector;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", operations[0]);
    consume(&place, "c1", operations[1]);
    traced = truce_trace_wrap(place.store, &options);
    collector = tutorial_set(traced, NULL);
    CHECK_OK(truce_set_collect(collector, NULL, &error), error);
    CHECK(intruder.done);
    CHECK_INT(consume(&place, "c1", operations[2]), ==, TRUCE_SET_APPLIED);
    model_check(place.set, operations, 3, NULL, 1, 2, false, "a late source");
    truce_set_free(collector);
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}

/* The same consumer, by mistake in two processes: the other records when this one is about to. */
static void record_beside(const bson_t *event, void *arg)
{
    struct intruder *intruder = arg;
    bson_iter_t iter;

    if (intruder->done || bson_iter_init_find(&iter, event, "status") ||
        !bson_iter_init_find(&iter, event, "verb") || strcmp(bson_iter_utf8(&iter, NULL), "bulk") ||
        !bson_iter_init_find(&iter, event, "collection") ||
        strcmp(bson_iter_utf8(&iter, NULL), "truce_progress"))
        return;
    intruder->done = true;
    consume(intruder->place, "c1", (struct model_operation)R(2));
}

TEST(stores_both_of_two_concurrent_records_under_one_name)
{
    const struct model_operation third = A(3);
    struct place place;
    struct intruder intruder = {.place = &place};
    truce_trace_options options = {.function = record_beside, .arg = &intruder, .beginnings = true};
    truce_set_operation made;
    truce_set_result result;
    truce_store *traced;
    truce_set *set;
    bson_t key, element;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    consume(&place, "c1", (struct model_operation)A(1));
    traced = truce_trace_wrap(place.store, &options);
    set = tutorial_set(traced, NULL);
    model_operation_make(&third, &key, &element, &made);
    CHECK_OK(truce_set_consume(set, "c1", &made, 1, &result, &error), error);
    CHECK(intruder.done);
    CHECK_INT(watermark(&place), ==, 3);
    bson_destroy(&key);
    bson_destroy(&element);
    truce_set_free(set);
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}
