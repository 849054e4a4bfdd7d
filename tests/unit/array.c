#include "bson/array.h"

#include "bson/id_filter.h"
#include "tests/support/test.h"

static void check(const char *expected, const bson_t *actual)
{
    bson_t *document = test_bson(expected);

    CHECK_BSON(document, actual);
    bson_destroy(document);
}

TEST(numbers_elements_of_every_kind)
{
    bson_t document = BSON_INITIALIZER, inner = BSON_INITIALIZER, open;
    bson_value_t value = {.value_type = BSON_TYPE_BOOL, .value.v_bool = true};
    struct array array, nested;
    bson_oid_t oid;

    bson_oid_init_from_string(&oid, "0123456789abcdef01234567");
    BSON_APPEND_INT32(&inner, "x", 1);
    truce__array_begin(&array, &document, "list");
    truce__array_add(&array, truce__value_document(&inner));
    truce__array_add(&array, truce__value_missing());
    truce__array_add_value(&array, &value);
    truce__array_add_document(&array, &inner);
    truce__array_add_text(&array, "text");
    truce__array_add_oid(&array, &oid);
    truce__array_add_int32(&array, 1);
    truce__array_add_int64(&array, INT64_C(1) << 40);
    truce__array_open_document(&array, &open);
    BSON_APPEND_INT32(&open, "y", 2);
    truce__array_close_document(&array, &open);
    truce__array_open_array(&array, &nested);
    truce__array_add_int32(&nested, 7);
    truce__array_close_array(&array, &nested);
    CHECK_INT(array.count, ==, 9);
    truce__array_end(&array, &document);
    check("{'list': [{'x': 1}, true, {'x': 1}, 'text', {'$oid': '0123456789abcdef01234567'},"
          " 1, {'$numberLong': '1099511627776'}, {'y': 2}, [7]]}",
          &document);
    bson_destroy(&inner);
    bson_destroy(&document);
}

TEST(keys_are_the_indexes_beyond_a_thousand)
{
    bson_t list = BSON_INITIALIZER;
    struct array array = {.to = &list};
    bson_iter_t iter;
    char key[16];

    for (int32_t i = 0; i < 1200; i++)
        truce__array_add_int32(&array, i);
    CHECK(bson_iter_init(&iter, &list));
    for (int32_t i = 0; i < 1200; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK(bson_iter_next(&iter));
        CHECK_TEXT(key, bson_iter_key(&iter));
        CHECK_INT(bson_iter_int32(&iter), ==, i);
    }
    bson_destroy(&list);
}

TEST(resumes_after_the_elements_that_are_there)
{
    bson_t *list = test_bson("{'0': 'a', '1': 'b'}");
    struct array array;

    truce__array_resume(&array, list);
    truce__array_add_text(&array, "c");
    check("{'0': 'a', '1': 'b', '2': 'c'}", list);
    bson_destroy(list);
}

TEST(filters_find_a_document_by_its_id)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 5};
    bson_t *reference = test_bson("{'$ref': 'c', '$id': 1}");
    bson_t filter;
    bson_oid_t oid;

    truce__filter_id(&id, &filter);
    check("{'_id': 5}", &filter);
    bson_destroy(&filter);
    id = (bson_value_t){.value_type = BSON_TYPE_DOCUMENT,
                        .value.v_doc = {.data = (uint8_t *)(uintptr_t)bson_get_data(reference),
                                        .data_len = reference->len}};
    truce__filter_id(&id, &filter);
    check("{'_id': {'$eq': {'$ref': 'c', '$id': 1}}}", &filter);
    bson_destroy(&filter);
    truce__filter_id_text("a", &filter);
    check("{'_id': 'a'}", &filter);
    bson_destroy(&filter);
    bson_oid_init_from_string(&oid, "0123456789abcdef01234567");
    truce__filter_id_oid(&oid, &filter);
    check("{'_id': {'$oid': '0123456789abcdef01234567'}}", &filter);
    bson_destroy(&filter);
    bson_destroy(reference);
}
