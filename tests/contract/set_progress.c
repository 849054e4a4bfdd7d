/* The records of consumers, where numbers are dense, sparse, large, of several sources, or older
 * than wide blocks: the cost follows the number of records, and nothing is forgotten. The tests
 * run in memory, in a file, and at a server. */
#include <stdlib.h>

#include "tests/support/set_place.h"
#include "truce/sys/decorate.h"

/* Records numbers that a consumer applied, many at a time. */
static void record(struct place *place, const char *consumer, const char *source,
                   const int64_t *numbers, size_t count)
{
    truce_set_operation *operations = bson_malloc0(count * sizeof *operations);
    bson_t *element = test_bson("{'name': 'a'}");
    bson_error_t error;

    for (size_t i = 0; i < count; i++)
        operations[i] = (truce_set_operation){.verb = TRUCE_SET_REMOVE,
                                              .key = place->key,
                                              .element = element,
                                              .seq = numbers[i],
                                              .source = source};
    CHECK_OK(truce_set_record(place->set, consumer, operations, count, &error), error);
    bson_free(operations);
    bson_destroy(element);
}

/* Returns the outcome of an operation on a name that the set does not know. */
static truce_set_outcome fate(struct place *place, const char *source, int64_t number)
{
    bson_t *element = test_bson("{'name': 'nothing'}");
    truce_set_operation operation = {.verb = TRUCE_SET_ADD,
                                     .key = place->key,
                                     .element = element,
                                     .seq = number,
                                     .source = source};
    truce_set_result result = {0};
    truce_set *set = tutorial_set(place->store, NULL); /* a handle that has no cache */
    bson_error_t error;

    CHECK_OK(truce_set_apply(set, NULL, &operation, 1, &result, &error), error);
    truce_set_free(set);
    bson_destroy(element);
    return result.outcome;
}

/* A removal whose tombstone is collected: the document has its watermark then. */
static void leave_tombstone(struct place *place, const char *source, int64_t number)
{
    bson_t *element = test_bson("{'name': 'gone'}");
    truce_set_operation operation = {.verb = TRUCE_SET_REMOVE,
                                     .key = place->key,
                                     .element = element,
                                     .seq = number,
                                     .source = source};
    truce_set_result result = {0};
    bson_error_t error;

    CHECK_OK(truce_set_consume(place->set, "first", &operation, 1, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_SET_APPLIED);
    bson_destroy(element);
}

/* Counts documents and bytes of the records. */
static int64_t progress(struct place *place, int64_t *bytes)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    int64_t count = 0;
    bson_error_t error;

    *bytes = 0;
    CHECK_OK(truce_find(place->store, "truce_progress", &everything, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &document, &error) && document) {
        *bytes += document->len;
        count++;
    }
    truce_cursor_close(cursor);
    return count;
}

/* ---- nanoseconds ---- */

static void nanoseconds(bool file)
{
    enum { COUNT = 6000, BATCH = 250 };
    const int64_t start = INT64_C(1763800000000000000), step = 1000003; /* some 1,000 a second */
    static int64_t numbers[COUNT];
    struct place place;
    int64_t documents, bytes, archived;
    bson_error_t error;

    place_open(&place, file, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, start - 7);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = start + i * step + i * 7919 % 1000;
    for (int i = 0; i < COUNT; i += BATCH)
        record(&place, i / BATCH % 2 ? "c1" : "c2", NULL, numbers + i, BATCH);
    documents = progress(&place, &bytes);
    CHECK_INT(documents, <, COUNT / 20);
    CHECK_INT(bytes, <, COUNT * 20); /* an element with its number has 60 and more */
    CHECK_INT(collect(&place).tombstones, ==, 0);
    CHECK_OK(truce_set_source_idle(place.set, NULL, numbers[COUNT - 1] + 1, &error), error);
    CHECK_INT(watermark(&place), ==, numbers[COUNT - 1]);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    archived = progress(&place, &documents);
    CHECK_INT(archived, <, COUNT / 20);
    CHECK_INT(documents, <, COUNT * 20);
    for (int i = 0; i < COUNT; i += 997) {
        CHECK_INT(fate(&place, NULL, numbers[i]), ==, TRUCE_SET_DUPLICATE);
        CHECK_INT(fate(&place, NULL, numbers[i] + 1), ==, TRUCE_SET_QUARANTINED);
    }
    place_close(&place);
}

TEST(the_cost_of_nanoseconds_follows_the_number_of_records)
{
    nanoseconds(false);
    if (has_files())
        nanoseconds(true);
}

/* One after the other, as a queue delivers them. */
TEST(numbers_recorded_one_by_one_go_to_few_documents)
{
    enum { COUNT = 1500 };
    const int64_t start = INT64_C(1763800000000000000), step = 31000003;
    struct place place;
    int64_t bytes, number;

    if (server_under_test()) {
        test_skip("a call for each");
        return;
    }
    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int i = 0; i < COUNT; i++) {
        number = start + i * step;
        record(&place, "c1", NULL, &number, 1);
    }
    CHECK_INT(progress(&place, &bytes), <, COUNT / 20);
    CHECK_INT(bytes, <, COUNT * 12);
    place_close(&place);
}

/* ---- a sequence of a database ---- */

static void database_sequence(bool file)
{
    enum { COUNT = 4000, CACHE = 20 };
    static int64_t mine[COUNT], others[COUNT];
    struct place place;
    size_t count = 0, lost = 0;
    bson_error_t error;

    /* sessions take 20 numbers at a time; one in ten ends before it has used them all */
    place_open(&place, file, TRUCE_SET_FORM_AUTO);
    for (int64_t n = 1; n <= COUNT; n++) {
        if (n / CACHE % 10 == 3 && n % CACHE > 11)
            others[lost++] = n;
        else
            mine[count++] = n;
    }
    leave_tombstone(&place, NULL, 1);
    record(&place, "c1", NULL, mine, count / 2);
    record(&place, "c2", NULL, mine + count / 2, count - count / 2);
    CHECK_INT(watermark(&place), ==, others[0] - 1);
    CHECK_OK(truce_set_void(place.set, NULL, others[0], others[7], &error), error);
    CHECK_INT(others[7] - others[0], ==, 7);
    CHECK_INT(watermark(&place), ==, others[8] - 1);
    CHECK_OK(truce_set_source_idle(place.set, NULL, COUNT + 1, &error), error);
    CHECK_INT(collect(&place).watermark, ==, COUNT);
    CHECK_INT(fate(&place, NULL, others[0]), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(fate(&place, NULL, others[9]), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(fate(&place, NULL, others[0] - 1), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, NULL, mine[count - 1]), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, NULL, COUNT + 1), ==, TRUCE_SET_APPLIED);
    place_close(&place);
}

TEST(waits_at_each_gap_of_a_sequence_until_it_is_void)
{
    database_sequence(false);
    if (has_files())
        database_sequence(true);
}

/* ---- partitions of a log ---- */

static void partitions(bool file)
{
    enum { PARTITIONS = 3, COUNT = 1200 };
    static const char *const sources[PARTITIONS] = {"orders-0", "orders-1", "orders-2"};
    const int64_t starts[PARTITIONS] = {1, INT64_C(48000000001), INT64_C(99000000000000)};
    static int64_t numbers[COUNT];
    struct place place;
    int64_t bytes;
    bson_error_t error;

    /* each partition has its own offsets, and compaction and transaction markers leave gaps */
    place_open(&place, file, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, sources[0], 1);
    for (int p = 0; p < PARTITIONS; p++) {
        for (int i = 0; i < COUNT; i++)
            numbers[i] = starts[p] + i + i / 100; /* a marker after each hundred */
        record(&place, p == 1 ? "c2" : "c1", sources[p], numbers, COUNT);
        CHECK_OK(truce_set_source_idle(place.set, sources[p], starts[p], &error), error);
    }
    CHECK_INT(watermark(&place), ==, 100); /* the first marker of the first partition */
    for (int p = 0; p < PARTITIONS; p++)
        CHECK_OK(truce_set_void(place.set, sources[p], starts[p] + 100, starts[p] + 100, &error),
                 error);
    CHECK_INT(watermark(&place), ==, 201);
    /* the others are far ahead: below, their numbers count for nothing */
    CHECK_OK(truce_set_source_idle(place.set, sources[0], numbers[COUNT - 1] + 1, &error), error);
    CHECK_INT(watermark(&place), ==, starts[1] + 200);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    CHECK_INT(fate(&place, sources[1], starts[1] + 3), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, sources[0], 1202), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, sources[0], 1203), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, sources[0], 202), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(fate(&place, sources[1], starts[1] + 100), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(progress(&place, &bytes), <, 12);
    CHECK_INT(bytes, <, 4000);
    place_close(&place);
}

TEST(records_offsets_of_several_partitions_in_few_documents)
{
    partitions(false);
    if (has_files())
        partitions(true);
}

/* ---- ranges ---- */

TEST(dense_numbers_end_as_one_range)
{
    enum { COUNT = 12000 };
    static int64_t numbers[COUNT];
    struct place place;
    int64_t bytes;

    /* three consumers of one queue: each has every third number, in another order */
    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, 1);
    for (int c = 0; c < 3; c++) {
        char name[8];

        for (int i = 0; i < COUNT / 3; i++)
            numbers[i] = 1 + (int64_t)((i * 7 + c) % (COUNT / 3)) * 3 + c;
        snprintf(name, sizeof name, "c%d", c);
        record(&place, name, NULL, numbers, COUNT / 3);
        CHECK_INT(watermark(&place), ==, c == 2 ? COUNT : c == 1 ? 2 : 1);
        if (c == 1)
            collect(&place);
    }
    leave_tombstone(&place, NULL, COUNT);
    CHECK_INT(collect(&place).watermark, ==, COUNT);
    CHECK_INT(progress(&place, &bytes), ==, 1);
    CHECK_INT(bytes, <, 200);
    CHECK_INT(fate(&place, NULL, 5), ==, TRUCE_SET_DUPLICATE);
    place_close(&place);
}

TEST(a_number_that_only_extends_a_range_is_stored_in_place)
{
    enum { EVEN = 600, ODD = 500 };
    static int64_t numbers[EVEN];
    struct place place;
    int64_t bytes;

    /* more than one document has room for; then the numbers between them */
    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int i = 0; i < EVEN; i++)
        numbers[i] = 2 + 2 * (int64_t)i;
    record(&place, "c1", NULL, numbers, EVEN);
    CHECK_INT(progress(&place, &bytes), ==, 2);
    for (int i = 0; i < ODD; i++)
        numbers[i] = 1 + 2 * (int64_t)i;
    record(&place, "c1", NULL, numbers, ODD);
    CHECK_INT(progress(&place, &bytes), ==, 2);
    CHECK_INT(watermark(&place), ==, 2 * ODD);
    place_close(&place);
}

TEST(stores_any_number_of_void_numbers_as_one_range)
{
    struct place place;
    int64_t bytes;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, 1);
    CHECK_OK(truce_set_void(place.set, NULL, 2, INT64_C(3) << 60, &error), error);
    CHECK_INT(progress(&place, &bytes), <, 8);
    CHECK_INT(watermark(&place), ==, INT64_C(3) << 60);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    CHECK_INT(fate(&place, NULL, 77), ==, TRUCE_SET_QUARANTINED);
    CHECK_OK(truce_set_void(place.set, NULL, (INT64_C(3) << 60) + 1, INT64_MAX, &error), error);
    CHECK_INT(watermark(&place), ==, INT64_MAX);
    collect(&place);
    CHECK_INT(watermark(&place), ==, INT64_MAX);
    CHECK_STATUS(TRUCE_INVALID, truce_set_void(place.set, NULL, 9, 8, &error), error);
    place_close(&place);
}

TEST(loses_no_message_of_a_consumer_that_continues_after_collection)
{
    enum { COUNT = 1600 };
    static int64_t numbers[COUNT];
    const int64_t start = INT64_C(1) << 40;
    struct place place;
    bson_error_t error;

    /* the document keeps the part of the archive that is above the watermark */
    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, 3);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = start + (int64_t)i * 5000;
    for (int i = 0; i < COUNT; i += 100) {
        leave_tombstone(&place, NULL, numbers[i]);
        record(&place, "c1", NULL, numbers + i, 100);
        CHECK_OK(truce_set_source_idle(place.set, NULL, numbers[i + 49], &error), error);
        collect(&place);
    }
    for (int i = 0; i < COUNT - 60; i += 79)
        CHECK_INT(fate(&place, NULL, numbers[i]), ==, TRUCE_SET_DUPLICATE);
    CHECK_OK(
        truce_set_void(place.set, NULL, numbers[COUNT - 51] + 1, numbers[COUNT - 50] - 1, &error),
        error);
    CHECK_INT(watermark(&place), ==, numbers[COUNT - 50]);
    place_close(&place);
}

/* ---- records older than wide blocks ---- */

TEST(records_from_before_count_and_are_archived)
{
    static const char *const old[] = {
        "{'_id': 'students.classes', 'collection': 'students', 'key': 'student_id', 'field': 'classes'}",
        "{'_id': {'set': 'students.classes', 'source': 'web'}, 'first': {'$numberLong': '1'},"
        " 'floor': {'$numberLong': '0'}, 'proven': {'$numberLong': '3'}}",
        /* 1 to 7, 9 of c1 and 8, 10 of c2; 4097 of c1; 11 to 4096 void */
        "{'_id': {'set': 'students.classes', 'source': 'web', 'block': {'$numberLong': '0'},"
        " 'consumer': 'c1'}, 'bits': {'$binary': {'base64': '/gI=', 'subType': '00'}}}",
        "{'_id': {'set': 'students.classes', 'source': 'web', 'block': {'$numberLong': '0'},"
        " 'consumer': 'c2'}, 'bits': {'$binary': {'base64': 'AAU=', 'subType': '00'}}}",
        "{'_id': {'set': 'students.classes', 'source': 'web', 'block': {'$numberLong': '1'},"
        " 'consumer': 'c1'}, 'bits': {'$binary': {'base64': 'Ag==', 'subType': '00'}}}"};
    struct place place;
    bson_t *document;
    int64_t bytes, number = 4098;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    for (int i = 1; i < 5; i++) {
        document = test_bson(old[i]);
        CHECK_OK(truce_insert(place.store, i == 1 ? "truce_sources" : "truce_progress", document,
                              NULL, &error),
                 error);
        bson_destroy(document);
    }
    leave_tombstone(&place, "web", 9);
    CHECK_INT(watermark(&place), ==, 10);
    CHECK_OK(truce_set_void(place.set, "web", 11, 4096, &error), error);
    CHECK_INT(watermark(&place), ==, 4097);
    record(&place, "c1", "web", &number, 1);
    CHECK_INT(watermark(&place), ==, 4098);
    CHECK_INT(collect(&place).tombstones, ==, 1);
    CHECK_INT(watermark(&place), ==, 4098);
    for (int i = 1; i <= 10; i++)
        CHECK_INT(fate(&place, "web", i), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, "web", 11), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(fate(&place, "web", 4097), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, "web", 4098), ==, TRUCE_SET_DUPLICATE);
    /* the archive, the void numbers, the block in work */
    CHECK_INT(progress(&place, &bytes), <=, 4);
    /* an older program continues in that block, until the watermark has passed all of it */
    document = test_bson(
        "{'_id': {'set': 'students.classes', 'source': 'web', 'block': {'$numberLong': '1'},"
        " 'consumer': 'c9'}, 'bits': {'$binary': {'base64': 'CA==', 'subType': '00'}}}");
    CHECK_OK(truce_insert(place.store, "truce_progress", document, NULL, &error), error);
    bson_destroy(document);
    CHECK_INT(watermark(&place), ==, 4099);
    CHECK_OK(truce_set_source_idle(place.set, "web", 8192, &error), error);
    collect(&place);
    CHECK_INT(progress(&place, &bytes), ==, 2);
    place_close(&place);
}

/* ---- two of one name, and damage ---- */

TEST(skips_an_unreadable_record_in_collection)
{
    static const char *const damaged[] = {
        "{'_id': {'set': 'students.classes', 'source': '', 'shift': 18, 'block': 0, 'consumer': 'x'},"
        " 'ranges': {'$binary': {'base64': '////////////////', 'subType': '00'}}}",
        "{'_id': {'set': 'students.classes', 'source': '', 'shift': 24, 'block': 0, 'consumer': 5},"
        " 'ranges': {'$binary': {'base64': 'BA==', 'subType': '00'}}}",
        "{'_id': {'set': 'students.classes', 'source': '', 'shift': 18, 'block': 0, 'consumer': 'y'}}",
        "{'_id': {'set': 'students.classes', 'source': '', 'shift': 60, 'block': 0, 'consumer': 'z'},"
        " 'ranges': 'all'}"};
    int64_t number = 2;
    struct place place;
    truce_set_operation operation = {.verb = TRUCE_SET_REMOVE, .seq = 3};
    bson_t *element = test_bson("{'name': 'a'}");
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, 1);
    for (int i = 0; i < 4; i++) {
        bson_t *document = test_bson(damaged[i]);

        CHECK_OK(truce_insert(place.store, "truce_progress", document, NULL, &error), error);
        bson_destroy(document);
    }
    CHECK_INT(watermark(&place), ==, 1);
    record(&place, "c1", NULL, &number, 1);
    CHECK_INT(collect(&place).watermark, ==, 2);
    operation.key = place.key;
    operation.element = element;
    CHECK_STATUS(TRUCE_CORRUPT, truce_set_record(place.set, "z", &operation, 1, &error), error);
    CHECK(strstr(error.message, "truce_progress") != NULL);
    bson_destroy(element);
    place_close(&place);
}

/* ---- next to a collector --------------------------------------------------------------------- */

/* Records one more number whenever the collector is about to write to the records. */
struct intruder {
    struct place *place;
    int64_t next, last;
    bool inside;
};

static void intrude(const bson_t *event, void *arg)
{
    struct intruder *intruder = arg;
    bson_iter_t iter;

    if (intruder->inside || intruder->next > intruder->last ||
        bson_iter_init_find(&iter, event, "status") || !bson_iter_init_find(&iter, event, "verb") ||
        strcmp(bson_iter_utf8(&iter, NULL), "bulk") != 0 ||
        !bson_iter_init_find(&iter, event, "collection") ||
        strcmp(bson_iter_utf8(&iter, NULL), "truce_progress") != 0)
        return;
    intruder->inside = true;
    record(intruder->place, "first", NULL, &intruder->next, 1);
    intruder->next++;
    intruder->inside = false;
}

TEST(keeps_records_that_are_added_while_they_are_archived)
{
    struct place place;
    struct intruder intruder = {.place = &place, .next = 2, .last = 9};
    truce_trace_options options = {.function = intrude, .arg = &intruder, .beginnings = true};
    truce_store *traced;
    truce_set *set;
    int64_t end;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, NULL, 1);
    traced = truce_trace_wrap(place.store, &options);
    set = tutorial_set(traced, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_set_collect(set, NULL, &error), error);
    end = intruder.next;
    intruder.last = 0;
    CHECK_INT(end, >, 3);
    CHECK_INT(watermark(&place), ==, end - 1);
    truce_set_free(set);
    truce_set_free(place.set);
    truce_store_close(traced);
    bson_destroy(place.key);
}

TEST(removes_nothing_if_the_archive_cannot_be_written)
{
    bson_t *damaged =
        test_bson("{'_id': {'set': 'students.classes', 'source': 'a', 'shift': 60, 'block': 0,"
                  " 'consumer': ':archive'}, 'ranges': 'all'}");
    bson_t *filter = test_bson("{'_id.source': 'b', '_id.consumer': ':archive'}");
    struct place place;
    int64_t archived = 0;
    bson_error_t error;

    place_open(&place, false, TRUCE_SET_FORM_AUTO);
    leave_tombstone(&place, "a", 1);
    leave_tombstone(&place, "b", 2);
    CHECK_OK(truce_set_source_idle(place.set, "b", 2, &error), error);
    CHECK_OK(truce_set_source_idle(place.set, "a", 3, &error), error);
    CHECK_OK(truce_insert(place.store, "truce_progress", damaged, NULL, &error), error);
    CHECK_STATUS(TRUCE_CORRUPT, truce_set_collect(place.set, NULL, &error), error);
    CHECK_INT(fate(&place, "a", 1), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(fate(&place, "b", 2), ==, TRUCE_SET_DUPLICATE);
    /* the other source has its archive */
    CHECK_OK(truce_count(place.store, "truce_progress", filter, NULL, &archived, &error), error);
    CHECK_INT(archived, ==, 1);
    bson_destroy(damaged);
    bson_destroy(filter);
    place_close(&place);
}
