#include "bson/value_set.h"

#include "tests/support/test.h"

TEST(equal_values_are_one_whatever_their_type)
{
    bson_t *values =
        test_bson("{'a': 1, 'b': 1.0, 'c': {'$numberDecimal': '1'}, 'd': '1', 'e': 0.0,"
                  "'f': -0.0, 'g': [1], 'h': [1.0], 'i': {'x': 1}, 'j': null}");
    struct fields fields = truce__fields(truce__value_document(values));
    struct arena arena = ARENA_INIT;
    struct value_set set;
    char added[11] = "";

    truce__value_set_begin(&set, &arena, 0);
    for (int i = 0; truce__fields_next(&fields); i++)
        added[i] = truce__value_set_add(&set, fields.value) ? 'x' : '.';
    CHECK_TEXT("x..xx.x.xx", added);
    CHECK_INT(set.count, ==, 6);
    truce__arena_release(&arena);
    bson_destroy(values);
}

TEST(equals_the_comparison_of_all_with_all)
{
    enum { VALUES = 400 };
    struct arena arena = ARENA_INIT;
    struct value_set set;
    bson_t array = BSON_INITIALIZER;
    struct fields fields, others;
    uint32_t index = 0, at = 0;

    for (uint32_t i = 0; i < VALUES; i++) {
        uint8_t *number = truce__arena_take(&arena, 8);
        int32_t small = (int32_t)(i * 7919 % 150);
        double same = small;

        memset(number, 0, 8);
        if (i % 2)
            memcpy(number, &small, sizeof small);
        else
            memcpy(number, &same, sizeof same);
        truce__value_append_element(
            &array, &index,
            (struct value){number, i % 2 ? 4 : 8, i % 2 ? BSON_TYPE_INT32 : BSON_TYPE_DOUBLE});
    }
    truce__value_set_begin(&set, &arena, 0);
    for (fields = truce__fields(truce__value_document(&array)); truce__fields_next(&fields); at++) {
        bool is_new = true;
        uint32_t before = 0;

        others = truce__fields(truce__value_document(&array));
        while (before++ < at && truce__fields_next(&others))
            is_new = is_new && !truce__value_equal(others.value, fields.value);
        CHECK(truce__value_set_has(&set, fields.value) == !is_new);
        CHECK(truce__value_set_add(&set, fields.value) == is_new);
    }
    CHECK_INT(set.count, ==, 150);
    truce__arena_release(&arena);
    bson_destroy(&array);
}
