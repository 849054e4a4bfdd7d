#include "bson/builder.h"

#include <stdio.h>
#include <stdlib.h>

#include "bson/field_path.h"
#include "tests/support/test.h"

/* Documents under construction in an arena: the writer, and the table of fields. */

static struct value number(struct arena *arena, int32_t n)
{
    return truce__value_from_int32(arena, n);
}

TEST(nests_containers_and_numbers_their_elements_from_0)
{
    struct arena arena = ARENA_INIT;
    struct builder builder;
    struct builder_mark outer, inner;
    struct value result;
    bson_error_t error;
    bson_t got, *expected = test_bson("{'a': [1, [2, {'x': 3}], null, 4], 'b': {}}");

    truce__builder_begin(&builder, &arena, 100000, BSON_TYPE_DOCUMENT);
    outer = truce__builder_open(&builder, "a", 1, BSON_TYPE_ARRAY);
    truce__builder_element(&builder, number(&arena, 1));
    inner = truce__builder_open_element(&builder, BSON_TYPE_ARRAY);
    truce__builder_element(&builder, number(&arena, 2));
    {
        struct builder_mark document = truce__builder_open_element(&builder, BSON_TYPE_DOCUMENT);
        truce__builder_append(&builder, "x", 1, number(&arena, 3));
        truce__builder_append(&builder, "missing", 7, truce__value_missing());
        truce__builder_close(&builder, document);
    }
    truce__builder_close(&builder, inner);
    truce__builder_element(&builder, truce__value_missing());
    truce__builder_element(&builder, number(&arena, 4));
    truce__builder_close(&builder, outer);
    outer = truce__builder_open(&builder, "b", 1, BSON_TYPE_DOCUMENT);
    truce__builder_close(&builder, outer);
    CHECK_OK(truce__builder_finish(&builder, &result, &error), error);
    truce__value_bson(result, &got);
    CHECK_BSON(expected, &got);
    bson_destroy(expected);
    truce__arena_release(&arena);
}

TEST(refuses_oversized_documents_at_the_end_without_memory)
{
    struct arena arena = ARENA_INIT;
    struct builder builder;
    struct value result, text = truce__value_from_text(&arena, "0123456789", 10);
    bson_error_t error;
    size_t before;

    truce__builder_begin(&builder, &arena, 4000, BSON_TYPE_ARRAY);
    for (int i = 0; i < 100000; i++)
        truce__builder_element(&builder, text);
    before = arena.bytes;
    CHECK(builder.full);
    CHECK_INT(before, <=, 4000);
    truce__builder_close(&builder, truce__builder_open_element(&builder, BSON_TYPE_ARRAY));
    CHECK_STATUS(TRUCE_LIMIT, truce__builder_finish(&builder, &result, &error), error);
    CHECK_INT(error.code, ==, 146);
    CHECK_INT(arena.bytes, ==, before);
    truce__arena_release(&arena);
}

TEST(elements_are_numbered_beyond_ten_and_a_hundred)
{
    struct arena arena = ARENA_INIT;
    struct builder builder;
    struct value result;
    struct fields fields;
    bson_error_t error;
    int expected = 0;

    truce__builder_begin(&builder, &arena, 1 << 20, BSON_TYPE_ARRAY);
    for (int i = 0; i < 1234; i++)
        truce__builder_element(&builder, number(&arena, i));
    REQUIRE(!truce__builder_finish(&builder, &result, &error));
    fields = truce__fields(result);
    for (; truce__fields_next(&fields); expected++) {
        CHECK_INT(atoi(fields.key), ==, expected);
        CHECK_INT(truce__value_int32(fields.value), ==, expected);
    }
    CHECK_INT(expected, ==, 1234);
    truce__arena_release(&arena);
}

TEST(keeps_the_position_of_a_field_that_is_set_again)
{
    struct arena arena = ARENA_INIT;
    struct field_table table;
    char keys[3000][16];

    truce__field_table_begin(&table, &arena, 10 << 20);
    for (int i = 0; i < 3000; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        CHECK(!truce__field_table_find(&table, keys[i], (uint32_t)strlen(keys[i])));
        REQUIRE(
            truce__field_table_set(&table, keys[i], (uint32_t)strlen(keys[i]), number(&arena, i)));
    }
    for (int i = 0; i < 3000; i += 7)
        REQUIRE(
            truce__field_table_set(&table, keys[i], (uint32_t)strlen(keys[i]), number(&arena, -i)));
    CHECK_INT(table.count, ==, 3000);
    for (int i = 0; i < 3000; i++) {
        const struct field_entry *entry =
            truce__field_table_find(&table, keys[i], (uint32_t)strlen(keys[i]));
        REQUIRE(entry);
        CHECK_INT(entry - table.entries, ==, i);
        CHECK_INT(truce__value_int32(entry->value), ==, i % 7 ? i : -i);
    }
    CHECK(!truce__field_table_find(&table, "k", 1));
    truce__arena_release(&arena);
}

TEST(a_table_does_not_grow_beyond_the_bound)
{
    struct arena arena = ARENA_INIT;
    struct field_table table;
    char keys[2000][16];
    int set = 0;

    truce__field_table_begin(&table, &arena, 20000);
    for (int i = 0; i < 2000; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        set +=
            truce__field_table_set(&table, keys[i], (uint32_t)strlen(keys[i]), truce__value_null());
    }
    CHECK_INT(set, >, 50);
    CHECK_INT(set, <, 1000);
    CHECK_INT(arena.bytes, <=, 20000);
    truce__arena_release(&arena);
}
