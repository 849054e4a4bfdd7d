/* Ordered sets through their public calls, on every store. */
#include "tests/support/server.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"
#include "truce/sys/store.h"

static const char *uri_of(const char *scheme, char *text, size_t size)
{
    if (!strcmp(scheme, "memory"))
        snprintf(text, size, "memory:");
    else
        snprintf(text, size, "file:%s/s.truce", test_directory());
    return text;
}

typedef void store_function(truce_store *store);

static bool counts_calls; /* the store is wrapped by truce_fault_wrap */

static void on_every_store(store_function *function)
{
    static const char *const schemes[] = {"memory", "file"};
    char uri[400];

    if (server_under_test()) {
        function(server_store());
        return;
    }
    for (int i = 0; i < 2; i++) {
        truce_store *store;
        bson_error_t error;

        if (!CHECK_OK(truce_store_open(uri_of(schemes[i], uri, sizeof uri), NULL, &store, &error),
                      error))
            continue;
        if (counts_calls)
            store = truce_fault_wrap(store, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
        function(store);
        truce_store_close(store);
    }
}

static void on_every_counted_store(store_function *function)
{
    counts_calls = !server_under_test();
    on_every_store(function);
    counts_calls = false;
}

static void check_calls(truce_store *store, uint64_t most)
{
    if (counts_calls)
        CHECK_INT(truce_fault_calls(store), <, most);
}

/* {student_id: 1} and {name: "CS 101"}, or with other fields */
static truce_status apply(truce_set *set, truce_set_verb verb, const char *key, const char *element,
                          int64_t seq, const char *source, truce_set_outcome *outcome,
                          bson_error_t *error)
{
    bson_t *key_document = test_bson(key), *element_document = test_bson(element);
    truce_set_operation operation = {verb, key_document, element_document, seq, source};
    truce_set_result result = {0};
    truce_status status = truce_set_apply(set, NULL, &operation, 1, &result, error);

    *outcome = result.outcome;
    bson_destroy(key_document);
    bson_destroy(element_document);
    return status;
}

static void check_outcome(truce_set *set, truce_set_verb verb, const char *name, int64_t seq,
                          truce_set_outcome expected)
{
    truce_set_outcome outcome;
    bson_error_t error;
    char element[100];

    snprintf(element, sizeof element, "{'name': '%s'}", name);
    CHECK_OK(apply(set, verb, "{'student_id': 1}", element, seq, NULL, &outcome, &error), error);
    CHECK_TEXT(truce_set_outcome_name(expected), truce_set_outcome_name(outcome));
}

/* the first document of a collection, without its _id */
static bson_t *document_of(truce_store *store, const char *collection, const char *filter)
{
    bson_t *parsed = test_bson(filter), *projection = test_bson("{'_id': 0}");
    truce_find_options options = {.projection = projection};
    bson_t found, *document;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, collection, parsed, &options, &found, &error), error);
    document = bson_copy(&found);
    bson_destroy(&found);
    bson_destroy(parsed);
    bson_destroy(projection);
    return document;
}

static void check_document(truce_store *store, const char *expected)
{
    bson_t *wanted = test_bson(expected);
    bson_t *document = document_of(store, "students", "{}");

    CHECK_BSON(wanted, document);
    bson_destroy(wanted);
    bson_destroy(document);
}

#define LONG(n) "{'$numberLong': '" #n "'}"

static void in_order(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);

    check_outcome(set, TRUCE_SET_ADD, "CS 101", 1001, TRUCE_SET_APPLIED);
    check_document(store,
                   "{'student_id': 1, 'classes': [{'name': 'CS 101', 'seq': " LONG(1001) "}]}");
    check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 1002, TRUCE_SET_APPLIED);
    check_document(store, "{'student_id': 1, 'classes': [], 'deleted_classes': [{'name': 'CS 101', "
                          "'seq': " LONG(1002) "}]}");
    check_outcome(set, TRUCE_SET_ADD, "CS 101", 1001, TRUCE_SET_STALE);
    check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 1002, TRUCE_SET_DUPLICATE);
    truce_set_free(set);
}

TEST(an_insert_and_a_delete_give_the_documents_of_the_description)
{
    on_every_store(in_order);
}

static void tie(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);

    check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 7, TRUCE_SET_APPLIED);
    check_outcome(set, TRUCE_SET_ADD, "CS 101", 7, TRUCE_SET_APPLIED);
    check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 7, TRUCE_SET_STALE);
    truce_set_free(set);
}

TEST(an_add_wins_an_exact_tie)
{
    on_every_store(tie);
}

/* ---- the description's own update documents ---- */

static int64_t plain_update(truce_store *store, const char *filter, const char *update)
{
    bson_t *parsed = test_bson(filter), *change = test_bson(update);
    truce_write_options options = {.upsert = true};
    truce_write_result result = {0};
    bson_error_t error;
    truce_status status =
        truce_update(store, "students", parsed, change, &options, &result, &error);
    int64_t changed = result.modified + result.upserted;

    CHECK(status == TRUCE_OK || status == TRUCE_DUPLICATE);
    truce_write_result_release(&result);
    bson_destroy(parsed);
    bson_destroy(change);
    return status ? -1 : changed;
}

#define SEED_INSERT                                                                                \
    "{'student_id': 1, 'classes': {'$not': {'$elemMatch': {'name': 'CS 101'}}}, '$or': ["          \
    "{'deleted_classes': {'$not': {'$elemMatch': {'name': 'CS 101'}}}}, "                          \
    "{'deleted_classes': {'$elemMatch': {'name': 'CS 101', 'seq': {'$lt': 1001}}}}]}",             \
        "{'$push': {'classes': {'name': 'CS 101', 'seq': 1001}}, "                                 \
        "'$pull': {'deleted_classes': {'name': 'CS 101'}}}"
#define SEED_DELETE                                                                                \
    "{'student_id': 1, 'deleted_classes': {'$not': {'$elemMatch': {'name': 'CS 101'}}}, '$or': ["  \
    "{'classes': {'$not': {'$elemMatch': {'name': 'CS 101'}}}}, "                                  \
    "{'classes': {'$elemMatch': {'name': 'CS 101', 'seq': {'$lt': 1002}}}}]}",                     \
        "{'$push': {'deleted_classes': {'name': 'CS 101', 'seq': 1002}}, "                         \
        "'$pull': {'classes': {'name': 'CS 101'}}}"

static void start_seed(truce_store *store)
{
    bson_t *student = test_bson("{'student_id': 1, 'name': 'John Doe', 'classes': [], "
                                "'deleted_classes': []}");
    bson_t *index = test_bson("{'key': {'student_id': 1}, 'unique': true}");
    bson_error_t error;

    CHECK_OK(truce_index_create(store, "students", index, &error), error);
    CHECK_OK(truce_insert(store, "students", student, NULL, &error), error);
    bson_destroy(student);
    bson_destroy(index);
}

#define SEED_REMOVED                                                                               \
    "{'student_id': 1, 'name': 'John Doe', 'classes': [], 'deleted_classes': [{'name': 'CS 101', " \
    "'seq': 1002}]}"

static void seed_in_order(truce_store *store)
{
    start_seed(store);
    CHECK_INT(plain_update(store, SEED_INSERT), ==, 1);
    check_document(store, "{'student_id': 1, 'name': 'John Doe', 'classes': [{'name': 'CS 101', "
                          "'seq': 1001}], 'deleted_classes': []}");
    CHECK_INT(plain_update(store, SEED_DELETE), ==, 1);
    check_document(store, SEED_REMOVED);
}

TEST(applies_the_descriptions_updates_in_order)
{
    on_every_store(seed_in_order);
}

static void seed_out_of_order(truce_store *store)
{
    start_seed(store);
    CHECK_INT(plain_update(store, SEED_DELETE), ==, 1);
    check_document(store, SEED_REMOVED);
    CHECK_INT(plain_update(store, SEED_INSERT), ==, -1); /* the unique index refuses the upsert */
    check_document(store, SEED_REMOVED);
}

TEST(applies_the_descriptions_updates_out_of_order)
{
    on_every_store(seed_out_of_order);
}

static void seed_documents(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);

    start_seed(store);
    CHECK_INT(plain_update(store, SEED_INSERT), ==, 1);
    check_outcome(set, TRUCE_SET_ADD, "CS 101", 1001, TRUCE_SET_DUPLICATE);
    check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 1002, TRUCE_SET_APPLIED);
    CHECK_INT(plain_update(store, SEED_INSERT), ==, -1);
    truce_set_free(set);
}

TEST(works_with_the_updates_of_the_patterns_description)
{
    on_every_store(seed_documents);
}

static const truce_set_form all_forms[] = {TRUCE_SET_FORM_PIPELINE, TRUCE_SET_FORM_CLASSIC,
                                           TRUCE_SET_FORM_AUTO};

static void add_student(truce_store *store, const char *text)
{
    bson_t *student = test_bson(text);
    bson_error_t error;

    CHECK_OK(truce_insert(store, "students", student, NULL, &error), error);
    bson_destroy(student);
}

/* The only one. */
static void put_student(truce_store *store, const char *text)
{
    bson_t *all = test_bson("{}");
    truce_write_options options = {.multi = true};
    bson_error_t error;

    CHECK_OK(truce_remove(store, "students", all, &options, NULL, &error), error);
    add_student(store, text);
    bson_destroy(all);
}

#define BARE                                                                                       \
    "{'student_id': 1, 'classes': ['CS 101', {'name': 'CS 104'}, 'CS 102'], "                      \
    "'deleted_classes': ['CS 103']}"

/* Every form gives the same document. */
static void without_numbers(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});

        put_student(store, BARE);
        check_outcome(set, TRUCE_SET_ADD, "CS 105", 5, TRUCE_SET_APPLIED);
        check_document(
            store,
            "{'student_id': 1, 'classes': [{'name': 'CS 101', 'seq': " LONG(0) "}, {'name': 'CS 104', 'seq': " LONG(
                0) "}, {'name': 'CS 102', 'seq': " LONG(0) "}, {'name': 'CS 105', 'seq': " LONG(5) "}], 'deleted_classes': []}");
        check_outcome(set, TRUCE_SET_ADD, "CS 102", 1, TRUCE_SET_APPLIED);
        check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 1, TRUCE_SET_APPLIED);
        check_document(
            store,
            "{'student_id': 1, 'classes': [{'name': 'CS 104', 'seq': " LONG(0) "}, {'name': 'CS 102', 'seq': " LONG(
                1) "}, {'name': 'CS 105', 'seq': " LONG(5) "}], 'deleted_classes': [{'name': 'CS 101', 'seq': " LONG(1) "}]}");
        truce_set_free(set);
    }
}

TEST(converts_lists_without_numbers)
{
    on_every_store(without_numbers);
}

/* The operation is about the bare name itself. */
static void bare_name_removed(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});

        put_student(store, "{'student_id': 1, 'classes': ['CS 101', 'CS 101']}");
        check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 1, TRUCE_SET_APPLIED);
        check_document(store, "{'student_id': 1, 'classes': [], 'deleted_classes': [{'name': "
                              "'CS 101', 'seq': " LONG(1) "}]}");
        put_student(store, "{'student_id': 1, 'classes': ['CS 101']}");
        check_outcome(set, TRUCE_SET_ADD, "CS 101", 1, TRUCE_SET_APPLIED);
        check_document(store,
                       "{'student_id': 1, 'classes': [{'name': 'CS 101', 'seq': " LONG(1) "}]}");
        truce_set_free(set);
    }
}

TEST(an_operation_on_a_bare_name_finds_it)
{
    on_every_store(bare_name_removed);
}

/* An older program puts a bare name in again, after its removal. */
static void bare_name_is_oldest(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}"), members;
    bson_t *wanted = test_bson("{'0': {'name': 'CS 102', 'seq': 3}, '1': null}");
    bson_error_t error;

    put_student(store, "{'student_id': 1, 'classes': ['CS 101', {'name': 'CS 102', 'seq': 3}, "
                       "'CS 102', null], 'deleted_classes': [{'name': 'CS 101', 'seq': 7}]}");
    CHECK_OK(truce_set_members(set, key, &members, &error), error);
    CHECK_BSON(wanted, &members);
    check_outcome(set, TRUCE_SET_ADD, "CS 101", 5, TRUCE_SET_STALE);
    check_outcome(set, TRUCE_SET_ADD, "CS 109", 9, TRUCE_SET_APPLIED);
    check_document(store, "{'student_id': 1, 'classes': [{'name': 'CS 102', 'seq': 3}, null, "
                          "{'name': 'CS 109', 'seq': " LONG(
                              9) "}], 'deleted_classes': [{'name': 'CS 101', 'seq': 7}]}");
    bson_destroy(&members);
    bson_destroy(wanted);
    bson_destroy(key);
    truce_set_free(set);
}

TEST(a_bare_name_is_older_than_every_operation)
{
    on_every_store(bare_name_is_oldest);
}

static void put_bare_students(truce_store *store, int count)
{
    for (int i = 0; i < count; i++) {
        char text[200];
        bson_t *student;
        bson_error_t error;

        snprintf(text, sizeof text,
                 i % 3 ? "{'student_id': %d, 'classes': ['CS %d', {'name': 'CS 2'}], "
                         "'deleted_classes': [7]}"
                       : "{'student_id': %d, 'classes': [{'name': 'CS %d', 'seq': 1}]}",
                 i, i % 7);
        student = test_bson(text);
        CHECK_OK(truce_insert(store, "students", student, NULL, &error), error);
        bson_destroy(student);
    }
}

static int64_t count_bare(truce_store *store)
{
    bson_t *filter = test_bson("{'$or': [{'classes': {'$type': 'string'}}, {'deleted_classes': "
                               "{'$type': 'number'}}, {'classes': {'$elemMatch': {'seq': "
                               "{'$exists': false}}}}]}");
    int64_t count = -1;
    bson_error_t error;

    CHECK_OK(truce_count(store, "students", filter, NULL, &count, &error), error);
    bson_destroy(filter);
    return count;
}

static void converts_all(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    truce_set_converted converted;
    bson_error_t error;

    put_bare_students(store, 250);
    CHECK_OK(truce_set_convert(set, &converted, &error), error);
    CHECK_INT(converted.documents, ==, 166);
    CHECK_INT(converted.elements, ==, 166 * 3);
    CHECK_INT(converted.left, ==, 0);
    CHECK_INT(count_bare(store), ==, 0);
    CHECK_OK(truce_set_convert(set, &converted, &error), error);
    CHECK_INT(converted.documents, ==, 0);
    truce_set_free(set);
}

static void names_what_is_no_list(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    truce_set_converted converted;
    bson_error_t error = {0};

    add_student(store, "{'_id': 1, 'student_id': 1, 'classes': ['CS 101']}");
    add_student(store, "{'_id': 2, 'student_id': 2, 'classes': {'name': 'CS 101'}}");
    add_student(store, "{'_id': 3, 'student_id': 3, 'deleted_classes': 'CS 102'}");
    add_student(store, "{'_id': 4, 'student_id': 4}");
    CHECK_STATUS(TRUCE_INVALID, truce_set_convert(set, &converted, &error), error);
    CHECK(strstr(error.message, "not an array in 2 documents") != NULL);
    CHECK_INT(converted.documents, ==, 1);
    CHECK_INT(converted.left, ==, 2);
    CHECK_INT(count_bare(store), ==, 0);
    truce_set_free(set);
}

TEST(a_conversion_names_values_that_are_not_lists)
{
    on_every_store(names_what_is_no_list);
}

TEST(all_lists_are_converted_once)
{
    on_every_store(converts_all);
}

/* ---- invalid records ------------------------------------------------------------------------- */

#define MANY 224

/* Makes a student whose document has `room` bytes left; calls are counted after this. */
static void put_large_student(truce_store *store, int room)
{
    bson_t student = BSON_INITIALIZER, *all = test_bson("{}");
    truce_write_options options = {.multi = true};
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    size_t size = 16 * 1024 * 1024 - 100 - (size_t)room;
    char *text = bson_malloc(size);
    bson_error_t error;

    memset(text, 'x', size);
    CHECK_OK(truce_remove(store, "students", all, &options, NULL, &error), error);
    BSON_APPEND_INT32(&student, "_id", 1);
    BSON_APPEND_INT32(&student, "student_id", 1);
    bson_append_utf8(&student, "text", -1, text, (int)size);
    CHECK_OK(truce_insert(store, "students", &student, NULL, &error), error);
    bson_destroy(&student);
    bson_destroy(all);
    bson_free(text);
    if (counts_calls)
        truce_fault_arm(store, &none);
}

struct many {
    bson_t key, elements[MANY];
    truce_set_operation operations[MANY];
    truce_set_result results[MANY];
};

static struct many *make_many(int payload, int large, int large_payload)
{
    struct many *many = bson_malloc0(sizeof *many);
    char *text = bson_malloc0((size_t)large_payload + 1);

    bson_init(&many->key);
    BSON_APPEND_INT32(&many->key, "student_id", 1);
    memset(text, 'y', (size_t)large_payload);
    for (int i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof name, "CS %03d", i);
        bson_init(&many->elements[i]);
        BSON_APPEND_UTF8(&many->elements[i], "name", name);
        bson_append_utf8(&many->elements[i], "p", 1, text, i == large ? large_payload : payload);
        many->operations[i] =
            (truce_set_operation){TRUCE_SET_ADD, &many->key, &many->elements[i], i + 1, NULL};
    }
    bson_free(text);
    return many;
}

static void free_many(struct many *many)
{
    for (int i = 0; i < MANY; i++)
        bson_destroy(&many->elements[i]);
    bson_destroy(&many->key);
    bson_free(many);
}

static void check_members(truce_set *set, const struct many *many, uint32_t count)
{
    bson_t members;
    bson_error_t error;
    uint32_t applied = 0;

    CHECK_OK(truce_set_members(set, &many->key, &members, &error), error);
    CHECK_INT(bson_count_keys(&members), ==, count);
    for (int i = 0; i < MANY; i++)
        applied += !many->results[i].status && many->results[i].outcome == TRUCE_SET_APPLIED;
    CHECK_INT(applied, ==, count);
    bson_destroy(&members);
}

static void one_too_large(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_many(10, 77, 60000);
        bson_error_t error;

        put_large_student(store, 50000);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        CHECK(strstr(error.message, "operation 78: "));
        CHECK_STATUS(TRUCE_LIMIT, many->results[77].status, error);
        check_members(set, many, MANY - 1);
        check_calls(store, 20);
        free_many(many);
        truce_set_free(set);
    }
}

TEST(an_operation_that_is_too_large_fails_alone)
{
    on_every_counted_store(one_too_large);
}

/* 100 equally large names: 55 bytes each, with their numbers in the array. */
static void as_many_as_fit(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_many(50, 0, 50);
        bson_error_t error;
        bson_t found;
        uint32_t count = 0;

        put_large_student(store, 10000);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        for (int k = 0; k < MANY; k++)
            count += !many->results[k].status;
        check_members(set, many, count);
        check_calls(store, 20);
        CHECK_OK(truce_find_one(store, "students", &many->key, NULL, &found, &error), error);
        CHECK_INT(found.len, <=, 16 * 1024 * 1024);
        CHECK_INT(found.len, >, 16 * 1024 * 1024 - 100); /* no room for one more */
        bson_destroy(&found);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        for (int k = 0; k < MANY; k++)
            CHECK(many->results[k].status || many->results[k].outcome == TRUCE_SET_DUPLICATE);
        free_many(many);
        truce_set_free(set);
    }
}

TEST(as_many_operations_are_applied_as_the_document_has_room_for)
{
    on_every_counted_store(as_many_as_fit);
}

/* The first of them would take the room of more than a hundred others. */
static void small_ones_first(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_many(50, 0, 8000);
        bson_error_t error;
        uint32_t count = 0;

        put_large_student(store, 10000);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        for (int k = 0; k < MANY; k++)
            count += !many->results[k].status;
        CHECK_INT(count, >, 90);
        CHECK_STATUS(TRUCE_LIMIT, many->results[0].status, error);
        check_members(set, many, count);
        free_many(many);
        truce_set_free(set);
    }
}

TEST(a_large_operation_does_not_take_the_room_of_many_small_ones)
{
    on_every_counted_store(small_ones_first);
}

#define REPEATED 200

/* Collected operations come again: the record is looked up once, not for each operation. The
 * numbers are `step` apart. */
static void repeat(truce_store *store, int64_t step)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_set *set = tutorial_set(store, NULL);
    truce_set_operation operations[REPEATED];
    truce_set_result results[REPEATED];
    bson_t *keys[REPEATED / 2], *element = test_bson("{'name': 'CS 1'}");
    truce_set_collected collected;
    bson_error_t error;

    for (int i = 0; i < REPEATED; i++) {
        if (i % 2 == 0)
            keys[i / 2] = BCON_NEW("student_id", BCON_INT32(i));
        operations[i] = (truce_set_operation){i % 2 ? TRUCE_SET_REMOVE : TRUCE_SET_ADD, keys[i / 2],
                                              element, step * (i + 1), NULL};
    }
    CHECK_OK(truce_set_consume(set, "c", operations, REPEATED, results, &error), error);
    CHECK_OK(truce_set_source_idle(set, NULL, step * REPEATED + 1, &error), error);
    CHECK_OK(truce_set_collect(set, &collected, &error), error);
    CHECK_INT(collected.tombstones, ==, REPEATED / 2);
    if (counts_calls)
        truce_fault_arm(store, &none);
    CHECK_OK(truce_set_apply(set, NULL, operations, REPEATED, results, &error), error);
    for (int i = 0; i < REPEATED; i++)
        CHECK_INT(results[i].outcome, ==, TRUCE_SET_DUPLICATE);
    check_calls(store, 10);
    for (int i = 0; i < REPEATED / 2; i++)
        bson_destroy(keys[i]);
    bson_destroy(element);
    truce_set_free(set);
}

static void repeats_are_cheap(truce_store *store)
{
    repeat(store, 1);
}

static void far_repeats_are_cheap(truce_store *store)
{
    repeat(store, 86400007);
}

TEST(looks_up_a_repeated_collected_operation_once)
{
    on_every_counted_store(repeats_are_cheap);
    on_every_counted_store(far_repeats_are_cheap);
}

#define FAR_APART 86400007 /* a day, in milliseconds */
#define RECORDED  6000     /* so far apart they fill hundreds of records */
#define AGAIN     3000

static void many_records_are_cheap(truce_store *store)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'CS 1'}");
    truce_set_operation *operations = bson_malloc0(RECORDED * sizeof *operations);
    truce_set_result *results = bson_malloc0(AGAIN * sizeof *results);
    truce_set_collected collected;
    bson_error_t error;

    for (int64_t i = 0; i < RECORDED; i++)
        operations[i] = (truce_set_operation){i % 2 ? TRUCE_SET_REMOVE : TRUCE_SET_ADD, key,
                                              element, FAR_APART * (i + 1), NULL};
    CHECK_OK(truce_set_apply(set, NULL, operations + RECORDED - AGAIN, AGAIN, results, &error),
             error);
    CHECK_OK(truce_set_record(set, "c", operations, RECORDED, &error), error);
    CHECK_OK(truce_set_source_idle(set, NULL, FAR_APART * INT64_C(6001), &error), error);
    CHECK_OK(truce_set_collect(set, &collected, &error), error);
    CHECK_INT(collected.tombstones, ==, 1);
    if (counts_calls)
        truce_fault_arm(store, &none);
    CHECK_OK(truce_set_apply(set, NULL, operations + RECORDED - AGAIN, AGAIN, results, &error),
             error);
    for (int i = 0; i < AGAIN; i++)
        CHECK_INT(results[i].outcome, ==, TRUCE_SET_DUPLICATE);
    check_calls(store, 300);
    bson_free(results);
    bson_free(operations);
    bson_destroy(element);
    bson_destroy(key);
    truce_set_free(set);
}

TEST(a_repeated_operation_loads_the_records_around_it)
{
    on_every_counted_store(many_records_are_cheap);
}

/* Stores a name with a large payload, which then gets a little larger. */
static void larger_in_its_place(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_many(10, 0, 60000), *more = make_many(10, 0, 60010);
        bson_error_t error;

        put_large_student(store, 65000);
        CHECK_OK(truce_set_apply(set, NULL, many->operations, 1, many->results, &error), error);
        for (int k = 0; k < 20; k++)
            more->operations[k].seq += 300;
        CHECK_OK(truce_set_apply(set, NULL, more->operations, 20, more->results, &error), error);
        free_many(many);
        free_many(more);
        truce_set_free(set);
    }
}

TEST(a_replacement_needs_only_the_additional_space)
{
    on_every_store(larger_in_its_place);
}

#define RIVALS 8 /* operations on one name */

/* The newest of each name is too large, the one before it is a remove of names that are even. */
static struct many *make_rivals(void)
{
    struct many *many = make_many(10, 0, 10), *large = make_many(20000, 0, 20000);

    for (int i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof name, "CS %03d", i / RIVALS);
        bson_reinit(&many->elements[i]);
        BSON_APPEND_UTF8(&many->elements[i], "name", name);
        if (i % RIVALS == RIVALS - 1)
            BSON_APPEND_DOCUMENT(&many->elements[i], "p", &large->elements[i]);
        else if (i % RIVALS == RIVALS - 2 && i / RIVALS % 2 == 0)
            many->operations[i].verb = TRUCE_SET_REMOVE;
    }
    free_many(large);
    return many;
}

static void check_rivals(const struct many *many, truce_set_outcome of_second)
{
    bson_error_t error = {0};

    for (int i = 0; i < MANY; i++) {
        int place = RIVALS - 1 - i % RIVALS; /* 0: the newest */

        CHECK_STATUS(place ? TRUCE_OK : TRUCE_LIMIT, many->results[i].status, error);
        if (place)
            CHECK_INT(many->results[i].outcome, ==, place == 1 ? of_second : TRUCE_SET_STALE);
    }
}

static void second_best(truce_store *store)
{
    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_rivals();
        bson_error_t error;
        bson_t members;

        put_large_student(store, 10000);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        check_rivals(many, TRUCE_SET_APPLIED);
        CHECK_STATUS(TRUCE_LIMIT,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        check_rivals(many, TRUCE_SET_DUPLICATE);
        check_calls(store, 300);
        CHECK_OK(truce_set_members(set, &many->key, &members, &error), error);
        CHECK_INT(bson_count_keys(&members), ==, MANY / RIVALS / 2);
        bson_destroy(&members);
        free_many(many);
        truce_set_free(set);
    }
}

TEST(applies_the_one_before_in_the_same_write_if_the_newest_has_no_room)
{
    on_every_counted_store(second_best);
}

/* More operations precede it than the document has room for. */
static void some_second_best(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    struct many *many = make_rivals();
    bson_error_t error;
    int applied = 0, full = 0;

    put_large_student(store, 600);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce_set_apply(set, NULL, many->operations, MANY, many->results, &error), error);
    for (int i = 0; i < MANY; i++) {
        applied += !many->results[i].status && many->results[i].outcome == TRUCE_SET_APPLIED;
        full += many->results[i].status == TRUCE_LIMIT;
    }
    CHECK_INT(applied, >, 5);
    CHECK_INT(full, ==, (MANY / RIVALS - applied) * RIVALS + applied);
    check_calls(store, 20);
    free_many(many);
    truce_set_free(set);
}

TEST(an_operation_that_lost_to_the_newest_needs_its_own_space)
{
    on_every_counted_store(some_second_best);
}

/* Three of them name elements of another document. */
static void refused_apart(truce_store *store)
{
    static const int bad[] = {0, 77, 78};
    bson_t *index = test_bson("{'key': {'classes.name': 1}, 'unique': true, 'sparse': true}");
    bson_t *other = test_bson("{'student_id': 2}");

    for (int i = 0; i < 3; i++) {
        truce_set *set = tutorial_set(store, &(truce_set_options){.form = all_forms[i]});
        struct many *many = make_many(10, 0, 10);
        bson_error_t error;

        put_large_student(store, 16 * 1024 * 1024 - 1000);
        CHECK_OK(truce_index_create(store, "students", index, &error), error);
        for (int k = 0; k < 3; k++)
            CHECK_OK(truce_set_add(set, NULL, other, &many->elements[bad[k]], 1, NULL, &error),
                     error);
        if (counts_calls)
            truce_fault_arm(store, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
        CHECK_STATUS(TRUCE_DUPLICATE,
                     truce_set_apply(set, NULL, many->operations, MANY, many->results, &error),
                     error);
        for (int k = 0; k < 3; k++)
            CHECK_STATUS(TRUCE_DUPLICATE, many->results[bad[k]].status, error);
        check_members(set, many, MANY - 3);
        check_calls(store, 200); /* fewer than two for each of them */
        free_many(many);
        truce_set_free(set);
    }
    bson_destroy(index);
    bson_destroy(other);
}

TEST(a_partially_refused_batch_takes_few_writes)
{
    if (!server_under_test()) /* some have no sparse indexes of lists */
        on_every_counted_store(refused_apart);
}

static truce_set_outcome apply_below(truce_set *set, int64_t seq, const char *source)
{
    truce_set_outcome outcome = 0;
    bson_error_t error;

    CHECK_OK(apply(set, TRUCE_SET_ADD, "{'student_id': 1}", "{'name': 'CS 9'}", seq, source,
                   &outcome, &error),
             error);
    return outcome;
}

static void record_one(truce_set *set, int64_t seq)
{
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'CS 9'}");
    truce_set_operation operation = {TRUCE_SET_REMOVE, key, element, seq, NULL};
    truce_set_result result;
    bson_error_t error;

    CHECK_OK(truce_set_consume(set, "c", &operation, 1, &result, &error), error);
    bson_destroy(key);
    bson_destroy(element);
}

/* Numbers whose blocks have one place in the cache, and a source whose name has it, too. */
#define FAR          (INT64_C(4096) * 1024)
#define OTHER_SOURCE "s597"

static void known_by_its_block(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    int64_t first;
    bson_error_t error;

    record_one(set, 5);
    record_one(set, FAR + 9);
    CHECK_OK(truce_set_source_idle(set, NULL, 2 * FAR, &error), error);
    CHECK_OK(truce_set_source_start(set, OTHER_SOURCE, &first, &error), error);
    CHECK_OK(truce_set_source_idle(set, OTHER_SOURCE, 2 * FAR, &error), error);
    CHECK_OK(truce_set_collect(set, NULL, &error), error);
    CHECK_INT(apply_below(set, 5, NULL), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(apply_below(set, 5, OTHER_SOURCE), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(apply_below(set, 5, NULL), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(apply_below(set, FAR + 5, NULL), ==, TRUCE_SET_QUARANTINED);
    CHECK_INT(apply_below(set, FAR + 9, NULL), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(apply_below(set, 5, NULL), ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(apply_below(set, 9, NULL), ==, TRUCE_SET_QUARANTINED);
    truce_set_free(set);
}

TEST(a_number_is_known_by_its_block_and_its_source)
{
    on_every_store(known_by_its_block);
}

static truce_status apply_two_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *key = test_bson("{'student_id': 9}"), *good = test_bson("{'name': 'CS 1'}");
    bson_t *bad = test_bson("{'nme': 'CS 1'}");
    truce_set_operation operations[] = {{TRUCE_SET_ADD, key, good, 2, NULL},
                                        {TRUCE_SET_ADD, key, bad, 3, NULL}};
    truce_set_result results[2];
    truce_status status = truce_set_apply(arg, commit, operations, 2, results, error);

    CHECK_INT(results[0].status, ==, TRUCE_INVALID);
    CHECK_INT(results[1].status, ==, TRUCE_INVALID);
    bson_destroy(key);
    bson_destroy(good);
    bson_destroy(bad);
    return status;
}

static void wrong_in_a_commit(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_transact(store, apply_two_in, set, NULL, &error), error);
    truce_set_free(set);
}

TEST(one_wrong_operation_ends_the_whole_commit)
{
    on_every_store(wrong_in_a_commit);
}

/* An invalid operation fails alone; the operation that it would have beaten is applied. */
static void some_are_wrong(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 9}"), *good = test_bson("{'name': 'CS 1'}");
    bson_t *bad = test_bson("{'nme': 'CS 1'}");
    truce_set_operation operations[] = {{TRUCE_SET_ADD, key, bad, 3, NULL},
                                        {TRUCE_SET_ADD, key, good, 2, NULL},
                                        {TRUCE_SET_REMOVE, key, good, 0, NULL}};
    truce_set_result results[3];
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_set_apply(set, NULL, operations, 3, results, &error), error);
    CHECK(strstr(error.message, "operation 1: "));
    CHECK_STATUS(TRUCE_INVALID, results[0].status, error);
    CHECK_STATUS(TRUCE_OK, results[1].status, error);
    CHECK_INT(results[1].outcome, ==, TRUCE_SET_APPLIED);
    CHECK_STATUS(TRUCE_INVALID, results[2].status, error);
    CHECK_STATUS(TRUCE_INVALID, truce_set_apply(set, NULL, operations, 1, results, &error), error);
    bson_destroy(key);
    bson_destroy(good);
    bson_destroy(bad);
    truce_set_free(set);
}

TEST(an_invalid_operation_fails_alone)
{
    on_every_store(some_are_wrong);
}

/* ---- options ---- */

static void other_names(truce_store *store)
{
    truce_set *set = tutorial_set(store, &(truce_set_options){.collection = "carts",
                                                              .key = "cart,shop",
                                                              .field = "items",
                                                              .deleted = "gone",
                                                              .name = "sku",
                                                              .seq = "n",
                                                              .source = "by",
                                                              .watermark = "_done"});
    truce_set_outcome outcome;
    bson_error_t error;
    bson_t *document, *wanted;

    CHECK_OK(apply(set, TRUCE_SET_ADD, "{'shop': 'a', 'cart': 1}", "{'sku': 7, 'count': 2}", 5,
                   "web", &outcome, &error),
             error);
    CHECK_OK(apply(set, TRUCE_SET_REMOVE, "{'cart': 1, 'shop': 'a'}", "{'sku': 8}", 6, "web",
                   &outcome, &error),
             error);
    document = document_of(store, "carts", "{'cart': 1}");
    wanted = test_bson("{'cart': 1, 'shop': 'a', 'items': [{'sku': 7, 'n': " LONG(
        5) ", 'by': 'web', 'count': 2}], 'gone': [{'sku': 8, 'n': " LONG(6) ", 'by': 'web'}]}");
    CHECK_BSON(wanted, document);
    bson_destroy(document);
    bson_destroy(wanted);
    truce_set_free(set);
}

TEST(every_field_name_is_an_option)
{
    on_every_store(other_names);
}

static void refused(truce_set *set, const char *key, const char *element, int64_t seq,
                    const char *message)
{
    truce_set_outcome outcome;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID,
                 apply(set, TRUCE_SET_ADD, key, element, seq, NULL, &outcome, &error), error);
    CHECK_TEXT(message, error.message);
}

static void wrong_calls(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'CS 101'}");

    refused(set, "{'student_id': 1}", "{'nme': 'CS 101'}", 1,
            "the element has no field \"name\", which names the elements of set "
            "\"students.classes\"");
    refused(
        set, "{}", "{'name': 'CS 101'}", 1,
        "the key has no field \"student_id\", by which set \"students.classes\" finds its documents");
    refused(set, "{'student_id': [1]}", "{'name': 'CS 101'}", 1,
            "the key's field \"student_id\" is [1], which cannot identify a document");
    refused(set, "{'student_id': 1, 'x': 1}", "{'name': 'CS 101'}", 1,
            "the key has 2 fields, and the key of set \"students.classes\" has 1");
    refused(
        set, "{'student_id': 1}", "{'name': 'CS 101', 'seq': 4}", 1,
        "the element must not have a field \"seq\": set \"students.classes\" stores its own value there");
    refused(set, "{'student_id': 1}", "{'name': null}", 1,
            "the element's field \"name\" is null, which cannot name an element");
    refused(set, "{'student_id': 1}", "{'name': 'CS 101'}", 0,
            "the sequence number is 0, but must be at least 1");
    truce_set_free(set);
    set = tutorial_set(store, &(truce_set_options){.field = "a.b"});
    refused(
        set, "{'student_id': 1}", "{'name': 'CS 101'}", 1,
        "invalid list \"a.b\" of the set: expected a field name of 1 to 100 bytes, without \".\" and "
        "\",\", and without \"$\" in front; _rev and _intent are reserved");
    truce_set_free(set);
    bson_destroy(key);
    bson_destroy(element);
}

TEST(a_wrong_call_names_the_fault)
{
    on_every_store(wrong_calls);
}

static void definitions(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    truce_set *other = tutorial_set(store, &(truce_set_options){.name = "title"});
    truce_set *shared = tutorial_set(store, &(truce_set_options){.field = "clubs"});
    truce_set *beside =
        tutorial_set(store, &(truce_set_options){.field = "clubs", .watermark = "_wm_clubs"});
    truce_set_outcome outcome;
    bson_error_t error;

    check_outcome(set, TRUCE_SET_ADD, "CS 101", 1, TRUCE_SET_APPLIED);
    refused(
        other, "{'student_id': 1}", "{'title': 'CS 101'}", 1,
        "set \"students.classes\" was created with name \"name\" and cannot be opened with \"title\"");
    refused(
        shared, "{'student_id': 1}", "{'name': 'chess'}", 1,
        "set \"students.clubs\" needs a watermark field of its own: \"_wm\" of collection \"students\" "
        "belongs to another set");
    CHECK_OK(apply(beside, TRUCE_SET_ADD, "{'student_id': 1}", "{'name': 'chess'}", 1, NULL,
                   &outcome, &error),
             error);
    truce_set_free(set);
    truce_set_free(other);
    truce_set_free(shared);
    truce_set_free(beside);
}

TEST(refuses_a_set_opened_otherwise_or_with_a_shared_watermark)
{
    on_every_store(definitions);
}

static void odd_names(truce_store *store)
{
    static const char *const elements[] = {
        "{'name': '$classes'}",
        "{'name': '$$ROOT'}",
        "{'name': ''}",
        "{'name': {'$numberDouble': '1.5'}}",
        "{'name': {'$date': {'$numberLong': '5'}}}",
        "{'name': {'$binary': {'base64': 'AAE=', 'subType': '00'}}}",
        "{'name': true}",
        "{'name': 'a.b', 'payload': {'$literal': '$$NOW'}}",
        "{'name': 'x', 'list': ['$name', {}]}"};
    static const char *const collections[] = {"a", "b", "c"};
    truce_set_form forms[] = {TRUCE_SET_FORM_PIPELINE, TRUCE_SET_FORM_CLASSIC, TRUCE_SET_FORM_AUTO};
    bson_t *shown[3];

    for (int f = 0; f < 3; f++) {
        truce_set *set = tutorial_set(
            store, &(truce_set_options){.collection = collections[f], .form = forms[f]});
        truce_set_outcome outcome;
        bson_error_t error;

        for (int64_t seq = 2; seq >= 1; seq--) {
            for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
                CHECK_OK(apply(set, TRUCE_SET_ADD, "{'student_id': '$name'}", elements[i], seq,
                               NULL, &outcome, &error),
                         error);
                CHECK_INT(outcome, ==, seq == 2 ? TRUCE_SET_APPLIED : TRUCE_SET_STALE);
            }
        }
        shown[f] = document_of(store, collections[f], "{}");
        truce_set_free(set);
    }
    CHECK_BSON(shown[0], shown[1]);
    CHECK_BSON(shown[0], shown[2]);
    for (int f = 0; f < 3; f++)
        bson_destroy(shown[f]);
}

TEST(names_and_payload_that_look_like_expressions_are_data)
{
    on_every_store(odd_names);
}

static void malformed(truce_store *store)
{
    const uint8_t bytes[] = {14, 0, 0, 0, 2, 'n', 0, 2, 0, 0, 0, 0xff, 0, 0};
    truce_set *set = tutorial_set(store, &(truce_set_options){.key = "n", .name = "n"});
    bson_t *good = test_bson("{'n': 'a'}"), bad;
    bson_error_t error;

    REQUIRE(bson_init_static(&bad, bytes, sizeof bytes));
    CHECK_STATUS(TRUCE_INVALID, truce_set_add(set, NULL, good, &bad, 1, NULL, &error), error);
    CHECK_TEXT("the element is malformed: field 'n' is not valid UTF-8", error.message);
    CHECK_STATUS(TRUCE_INVALID, truce_set_add(set, NULL, &bad, good, 1, NULL, &error), error);
    CHECK_TEXT("the key is malformed: field 'n' is not valid UTF-8", error.message);
    truce_set_free(set);
    bson_destroy(good);
}

TEST(malformed_keys_and_elements_are_refused)
{
    on_every_store(malformed);
}

/* {name: "a", p: {p: {p: ...}}}, `depth` documents inside each other */
static void append_deep(bson_t *document, int depth)
{
    bson_t inner;

    BSON_APPEND_UTF8(document, "name", "a");
    if (depth == 1)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(document, "p", &inner);
    append_deep(&inner, depth - 1);
    bson_append_document_end(document, &inner);
}

static void deep(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}");
    bson_error_t error;

    for (int more = 0; more < 2; more++) { /* the document, the list, the element */
        bson_t element = BSON_INITIALIZER;
        truce_set_outcome outcome;

        append_deep(&element, 98 + more);
        CHECK_STATUS(more ? TRUCE_LIMIT : TRUCE_OK,
                     truce_set_add(set, NULL, key, &element, 1 + more, &outcome, &error), error);
        bson_destroy(&element);
    }
    check_outcome(set, TRUCE_SET_ADD, "a", 2, TRUCE_SET_APPLIED); /* no part of it was written */
    truce_set_free(set);
    bson_destroy(key);
}

TEST(an_element_that_would_make_its_document_too_deep_is_refused)
{
    if (!server_under_test()) /* which has another limit */
        on_every_store(deep);
}

/* ---- batches ---- */

static void large_batch(truce_store *store)
{
    enum { COUNT = 6000, KEYS = 1300, NAMES = 9 };
    struct model_operation *operations = bson_malloc(COUNT * sizeof *operations);
    truce_set_result *results = bson_malloc0(COUNT * sizeof *results);
    int *chosen = bson_malloc(COUNT * sizeof *chosen);
    truce_set *set = tutorial_set(store, NULL);
    bson_error_t error;
    int applied = 0;

    for (int i = 0; i < COUNT; i++) {
        operations[i] = (struct model_operation){.add = i % 3 != 0,
                                                 .seq = 1 + (i * 7919) % COUNT,
                                                 .key = i * 31 % KEYS,
                                                 .name = i / 7 % NAMES};
        chosen[i] = i;
    }
    CHECK_OK(model_apply_batch(set, operations, chosen, COUNT, results, &error), error);
    for (int i = 0; i < COUNT; i++) {
        const struct model_operation *winner =
            model_winner(operations, COUNT, NULL, operations[i].key, operations[i].name);

        CHECK_INT(results[i].outcome, ==,
                  winner == &operations[i] ? TRUCE_SET_APPLIED : TRUCE_SET_STALE);
        applied += winner == &operations[i];
    }
    for (int key = 0; key < KEYS; key += 50)
        model_check(set, operations, COUNT, NULL, key, NAMES, true, "a large batch");
    CHECK_OK(model_apply_batch(set, operations, chosen, COUNT, results, &error), error);
    for (int i = 0; i < COUNT; i++)
        CHECK(results[i].outcome != TRUCE_SET_APPLIED);
    CHECK_INT(applied, >, 1000);
    bson_free(operations);
    bson_free(results);
    bson_free(chosen);
    truce_set_free(set);
}

TEST(a_batch_of_thousands_gives_each_operation_its_outcome)
{
    on_every_store(large_batch);
}

static void batch_with_a_bad_one(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}"), *good = test_bson("{'name': 'a'}");
    bson_t *bad = test_bson("{'nom': 'a'}");
    truce_set_operation operations[] = {{TRUCE_SET_ADD, key, good, 1, NULL},
                                        {TRUCE_SET_ADD, key, bad, 2, NULL}};
    truce_set_result results[2];
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_set_apply(set, NULL, operations, 2, results, &error), error);
    CHECK(!strncmp(error.message, "operation 2: ", 13));
    bson_destroy(key);
    bson_destroy(good);
    bson_destroy(bad);
    truce_set_free(set);
}

TEST(a_batch_names_the_operation_that_is_wrong)
{
    on_every_store(batch_with_a_bad_one);
}

/* Other programs may drop the set's index, or have a unique one of their own. */
static void without_index(truce_store *store)
{
    truce_set *set = tutorial_set(store, &(truce_set_options){.key = "n", .name = "n"});
    bson_t *index = test_bson("{'key': {'classes.n': 1}, 'unique': true, 'sparse': true}");
    bson_t *one = test_bson("{'n': 1}"), *two = test_bson("{'n': 2}"),
           *three = test_bson("{'n': 3}");
    const truce_set_operation operations[] = {{TRUCE_SET_ADD, one, one, 2, NULL},
                                              {TRUCE_SET_ADD, two, one, 2, NULL},
                                              {TRUCE_SET_ADD, three, three, 2, NULL}};
    truce_set_result results[3];
    bson_error_t error;

    CHECK_OK(truce_set_add(set, NULL, one, one, 1, NULL, &error), error);
    CHECK_OK(truce_index_drop(store, "students", "n_1", &error), error);
    CHECK_OK(truce_set_apply(set, NULL, operations, 1, results, &error), error);
    CHECK_INT(results[0].outcome, ==, TRUCE_SET_APPLIED);
    CHECK_OK(truce_index_create(store, "students", index, &error), error);
    truce_set_free(set);
    set = tutorial_set(store, &(truce_set_options){.key = "n", .name = "n"});
    CHECK_STATUS(TRUCE_DUPLICATE, truce_set_apply(set, NULL, operations, 3, results, &error),
                 error);
    CHECK_INT(results[0].outcome, ==, TRUCE_SET_DUPLICATE);
    CHECK_INT(results[1].status, ==, TRUCE_DUPLICATE);
    CHECK_INT(results[2].outcome, ==, TRUCE_SET_APPLIED);
    bson_destroy(index);
    bson_destroy(one);
    bson_destroy(two);
    bson_destroy(three);
    truce_set_free(set);
}

TEST(applies_operations_without_the_index)
{
    if (!server_under_test()) /* some have no sparse indexes of lists */
        on_every_store(without_index);
}

static void too_large(truce_store *store)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *keys[2] = {test_bson("{'student_id': 1}"), test_bson("{'student_id': 2}")};
    bson_t elements[3];
    truce_set_operation operations[3];
    truce_set_result results[3];
    char *text = bson_malloc0(9 * 1024 * 1024 + 1);
    bson_error_t error;

    memset(text, 'x', 9 * 1024 * 1024);
    for (int i = 0; i < 3; i++) {
        bson_init(&elements[i]);
        bson_append_int32(&elements[i], "name", -1, i);
        if (i < 2)
            bson_append_utf8(&elements[i], "text", -1, text, -1);
        operations[i] =
            (truce_set_operation){TRUCE_SET_ADD, keys[i == 2], &elements[i], i + 1, NULL};
    }
    CHECK_STATUS(TRUCE_LIMIT, truce_set_apply(set, NULL, operations, 3, results, &error), error);
    CHECK_INT(results[2].status, ==, TRUCE_OK);
    CHECK_INT(results[2].outcome, ==, TRUCE_SET_APPLIED);
    CHECK(results[0].status == TRUCE_LIMIT || results[1].status == TRUCE_LIMIT);
    for (int i = 0; i < 3; i++)
        bson_destroy(&elements[i]);
    bson_destroy(keys[0]);
    bson_destroy(keys[1]);
    bson_free(text);
    truce_set_free(set);
}

TEST(a_document_that_would_be_too_large_fails_alone)
{
    on_every_store(too_large);
}

/* ---- reading ---- */

static void reading(truce_store *store)
{
    truce_set_layout layouts[] = {TRUCE_SET_IN_DOCUMENT, TRUCE_SET_BY_ELEMENT};

    for (int i = 0; i < 2; i++) {
        truce_set *set = tutorial_set(
            store, &(truce_set_options){.collection = i ? "b" : "a", .layout = layouts[i]});
        bson_t *key = test_bson("{'student_id': 1}"), members, *wanted;
        bson_error_t error;

        CHECK_STATUS(TRUCE_NOT_FOUND, truce_set_members(set, key, &members, &error), error);
        bson_destroy(&members);
        check_outcome(set, TRUCE_SET_ADD, "CS 101", 1, TRUCE_SET_APPLIED);
        check_outcome(set, TRUCE_SET_ADD, "CS 102", 2, TRUCE_SET_APPLIED);
        check_outcome(set, TRUCE_SET_REMOVE, "CS 101", 3, TRUCE_SET_APPLIED);
        CHECK_OK(truce_set_members(set, key, &members, &error), error);
        wanted = test_bson("{'0': {'name': 'CS 102', 'seq': " LONG(2) "}}");
        CHECK_BSON(wanted, &members);
        bson_destroy(wanted);
        bson_destroy(&members);
        bson_destroy(key);
        truce_set_free(set);
    }
}

TEST(members_are_read_alike_in_both_layouts)
{
    on_every_store(reading);
}

/* ---- sequences ---- */

static void sequences(truce_store *store)
{
    bson_error_t error;
    int64_t number;

    CHECK_OK(truce_sequence_last(store, "s", &number, &error), error);
    CHECK_INT(number, ==, 0);
    for (int64_t i = 1; i <= 200; i++) {
        CHECK_OK(truce_sequence_next(store, "s", &number, &error), error);
        CHECK_INT(number, ==, i);
    }
    CHECK_OK(truce_sequence_take(store, "s", 50, &number, &error), error);
    CHECK_INT(number, ==, 201);
    CHECK_OK(truce_sequence_raise(store, "s", 1000, &error), error);
    CHECK_OK(truce_sequence_raise(store, "s", 500, &error), error);
    CHECK_OK(truce_sequence_next(store, "s", &number, &error), error);
    CHECK_INT(number, ==, 1001);
    CHECK_OK(truce_sequence_raise(store, "t", 5, &error), error);
    CHECK_OK(truce_sequence_last(store, "t", &number, &error), error);
    CHECK_INT(number, ==, 5);
    CHECK_STATUS(TRUCE_INVALID, truce_sequence_take(store, "s", 0, &number, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_sequence_next(store, "", &number, &error), error);
}

TEST(a_sequence_counts_without_gaps)
{
    on_every_store(sequences);
}
