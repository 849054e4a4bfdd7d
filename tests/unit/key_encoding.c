#include "bson/key_encoding.h"

#include <string.h>

#include "base/random.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

static int sign(int order)
{
    return (order > 0) - (order < 0);
}

static int compare_keys(const struct buffer *a, const struct buffer *b)
{
    int order = memcmp(a->bytes, b->bytes, a->size < b->size ? a->size : b->size);

    return order ? sign(order) : (a->size > b->size) - (a->size < b->size);
}

static bool is_prefix(const struct buffer *a, const struct buffer *b)
{
    return a->size < b->size && !memcmp(a->bytes, b->bytes, a->size);
}

static struct value first(const bson_t *document)
{
    struct fields fields = truce__fields(truce__value_document(document));

    return truce__fields_next(&fields) ? fields.value : truce__value_missing();
}

static void encode(const char *json, bool descending, struct buffer *key)
{
    bson_t *document = test_bson(json);

    key->size = 0;
    truce__key_append(key, first(document), descending);
    bson_destroy(document);
}

static void check_pair(struct value a, struct value b, bool descending)
{
    struct buffer left = {0}, right = {0};
    int expected = sign(truce__value_compare(a, b));

    truce__key_append(&left, a, descending);
    truce__key_append(&right, b, descending);
    if (compare_keys(&left, &right) != (descending ? -expected : expected)) {
        char one[200], two[200];
        test_fail(__FILE__, __LINE__, "%s and %s: order %d, keys %d",
                  truce__value_show(a, one, sizeof one), truce__value_show(b, two, sizeof two),
                  expected, compare_keys(&left, &right));
    }
    CHECK(!is_prefix(&left, &right) && !is_prefix(&right, &left));
    truce__buffer_release(&left);
    truce__buffer_release(&right);
}

TEST(memcmp_of_keys_is_the_order_of_values_of_all_types)
{
    enum { VALUES = 400 };
    bson_t *documents[VALUES];
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < VALUES; i++) {
        documents[i] = bson_new();
        random_append(&random, documents[i], "v", 3);
    }
    for (int i = 0; i < VALUES && !test_failures(); i++) {
        for (int j = 0; j < VALUES; j++)
            check_pair(first(documents[i]), first(documents[j]), (i + j) % 2);
    }
    for (int i = 0; i < VALUES; i++)
        bson_destroy(documents[i]);
}

TEST(memcmp_of_keys_is_the_order_of_whole_documents)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000 && !test_failures(); i++) {
        bson_t *a = random_document(&random, 2), *b = random_document(&random, 2);

        check_pair(truce__value_document(a), truce__value_document(b), i % 2);
        bson_destroy(a);
        bson_destroy(b);
    }
}

TEST(neighbours_on_the_number_line_keep_their_order)
{
    static const char *const line[] = {
        "{'v': {'$numberDouble': 'NaN'}}",
        "{'v': {'$numberDouble': '-Infinity'}}",
        "{'v': {'$numberDecimal': '-1E+400'}}",
        "{'v': {'$numberDouble': '-1.7976931348623157e308'}}",
        "{'v': {'$numberDecimal': '-9223372036854775808.5'}}",
        "{'v': {'$numberLong': '-9223372036854775808'}}",
        "{'v': {'$numberLong': '-9223372036854775807'}}",
        "{'v': {'$numberLong': '-9007199254740993'}}",
        "{'v': {'$numberDecimal': '-9007199254740992.5'}}",
        "{'v': {'$numberDouble': '-9007199254740992'}}",
        "{'v': -1}",
        "{'v': {'$numberDouble': '-5e-324'}}",
        "{'v': {'$numberDecimal': '-1E-6176'}}",
        "{'v': 0}",
        "{'v': {'$numberDecimal': '1E-6176'}}",
        "{'v': {'$numberDecimal': '1E-400'}}",
        "{'v': {'$numberDouble': '5e-324'}}",
        "{'v': {'$numberDecimal': '5E-324'}}",
        "{'v': {'$numberDecimal': '0.1'}}",
        "{'v': {'$numberDouble': '0.1'}}",
        "{'v': 1}",
        "{'v': {'$numberDecimal': '1.000000000000000000000000000000001'}}",
        "{'v': 255}",
        "{'v': 256}",
        "{'v': {'$numberLong': '9007199254740992'}}",
        "{'v': {'$numberDecimal': '9007199254740992.5'}}",
        "{'v': {'$numberLong': '9007199254740993'}}",
        "{'v': {'$numberDouble': '9007199254740994'}}",
        "{'v': {'$numberLong': '9223372036854775807'}}",
        "{'v': {'$numberDecimal': '9223372036854775807.5'}}",
        "{'v': {'$numberDouble': '9223372036854775808'}}",
        "{'v': {'$numberDouble': '1.7976931348623157e308'}}",
        "{'v': {'$numberDecimal': '1E+309'}}",
        "{'v': {'$numberDecimal': '1E+6144'}}",
        "{'v': {'$numberDouble': 'Infinity'}}",
    };
    struct buffer below = {0}, above = {0};

    for (size_t i = 1; i < sizeof line / sizeof *line; i++) {
        encode(line[i - 1], false, &below);
        encode(line[i], false, &above);
        if (compare_keys(&below, &above) >= 0)
            test_fail(__FILE__, __LINE__, "%s is not below %s", line[i - 1], line[i]);
    }
    truce__buffer_release(&below);
    truce__buffer_release(&above);
}

TEST(equal_numbers_of_different_types_have_one_key)
{
    static const char *const pairs[][2] = {
        {"{'v': 1}", "{'v': {'$numberDecimal': '1.000'}}"},
        {"{'v': {'$numberLong': '1'}}", "{'v': 1.0}"},
        {"{'v': 0}", "{'v': {'$numberDouble': '-0.0'}}"},
        {"{'v': 0}", "{'v': {'$numberDecimal': '-0E+33'}}"},
        {"{'v': {'$numberDouble': 'NaN'}}", "{'v': {'$numberDecimal': 'NaN'}}"},
        {"{'v': {'$numberDouble': '-Infinity'}}", "{'v': {'$numberDecimal': '-Infinity'}}"},
        {"{'v': {'$numberLong': '9007199254740993'}}",
         "{'v': {'$numberDecimal': '9007199254740993.0'}}"},
        {"{'v': {'$numberDecimal': '1E+400'}}", "{'v': {'$numberDecimal': '10E+399'}}"},
        {"{'v': {'$numberDecimal': '0.5'}}", "{'v': 0.5}"},
        {"{'v': {'$symbol': 'a'}}", "{'v': 'a'}"},
        {"{'v': {'x': 1}}", "{'v': {'x': 1.0}}"},
    };
    struct buffer one = {0}, other = {0};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        encode(pairs[i][0], true, &one);
        encode(pairs[i][1], true, &other);
        if (compare_keys(&one, &other) != 0)
            test_fail(__FILE__, __LINE__, "%s and %s differ", pairs[i][0], pairs[i][1]);
    }
    truce__buffer_release(&one);
    truce__buffer_release(&other);
}

TEST(small_whole_numbers_have_short_keys)
{
    struct buffer key = {0};

    encode("{'v': 1}", false, &key);
    CHECK_INT(key.size, <=, 6);
    encode("{'v': 1000000}", false, &key);
    CHECK_INT(key.size, <=, 9);
    truce__buffer_release(&key);
}

TEST(bounds_exactly_the_keys_with_a_prefix)
{
    struct buffer key = {0}, longer = {0}, next = {0};

    encode("{'v': {'$numberDecimal': '-1E+400'}}", false, &key);
    truce__buffer_append(&longer, key.bytes, key.size);
    for (int i = 0; i < 20; i++)
        truce__buffer_append_byte(&longer, 0xff);
    truce__buffer_append(&next, key.bytes, key.size);
    REQUIRE(truce__key_successor(&next));
    CHECK_INT(compare_keys(&longer, &next), <, 0);
    CHECK_INT(compare_keys(&key, &next), <, 0);

    next.size = 0;
    truce__buffer_append(&next, "\xff\xff", 2);
    CHECK(!truce__key_successor(&next));
    truce__buffer_append(&next, "\x01\xff\xff", 3);
    REQUIRE(truce__key_successor(&next));
    CHECK(next.size == 1 && next.bytes[0] == 2);
    truce__buffer_release(&key);
    truce__buffer_release(&longer);
    truce__buffer_release(&next);
}

TEST(a_class_bounds_the_values_of_its_types_and_no_others)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000 && !test_failures(); i++) {
        bson_t one = BSON_INITIALIZER, other = BSON_INITIALIZER;
        struct buffer key = {0}, from = {0}, to = {0};
        bool descending = i % 2, same;
        struct value a, b;

        random_append(&random, &one, "v", 1);
        random_append(&random, &other, "v", 1);
        a = first(&one);
        b = first(&other);
        same = truce__type_class(a.type) == truce__type_class(b.type);
        truce__key_append(&key, a, descending);
        truce__key_append_class(&from, b.type, descending);
        truce__key_append_class(&to, b.type, descending);
        CHECK(truce__key_successor(&to));
        CHECK((compare_keys(&from, &key) <= 0 && compare_keys(&key, &to) < 0) == same);
        truce__buffer_release(&key);
        truce__buffer_release(&from);
        truce__buffer_release(&to);
        bson_destroy(&one);
        bson_destroy(&other);
    }
}

/* ---- runs and steps -------------------------------------------------------------------------- */

static bool split(const char *json, uint8_t run[KEY_RUN_BYTES], uint8_t *step)
{
    struct buffer key = {0};
    int64_t whole;
    bool done;

    encode(json, false, &key);
    done = truce__key_split(key.bytes, key.size, run, step, &whole);
    CHECK(!done || (whole < 0) == (strstr(json, "oid") != NULL));
    CHECK(!done || whole < 0 || (uint8_t)whole == *step);
    truce__buffer_release(&key);
    return done;
}

static bool same_run(const char *left, const char *right, int apart)
{
    uint8_t run[KEY_RUN_BYTES], other_run[KEY_RUN_BYTES], step, other;

    return CHECK(split(left, run, &step)) && CHECK(split(right, other_run, &other)) &&
           !memcmp(run, other_run, sizeof run) && other - step == apart;
}

TEST(whole_numbers_and_object_ids_split_into_a_run_and_a_step)
{
    CHECK(same_run("{\"a\": 0}", "{\"a\": 255}", 255));
    CHECK(same_run("{\"a\": 256}", "{\"a\": 257.0}", 1));
    CHECK(!same_run("{\"a\": 255}", "{\"a\": 256}", -255));
    CHECK(same_run("{\"a\": 9007199254740736}", "{\"a\": 9007199254740991}", 255));
    CHECK(same_run("{\"a\": {\"$oid\": \"65a0b0c0d0e0f00000001200\"}}",
                   "{\"a\": {\"$oid\": \"65a0b0c0d0e0f000000012ff\"}}", 255));
    CHECK(!same_run("{\"a\": {\"$oid\": \"65a0b0c0d0e0f00000001200\"}}",
                    "{\"a\": {\"$oid\": \"65a0b0c0d0e0f00000001300\"}}", 0));
}

TEST(splits_no_other_keys_into_runs)
{
    static const char *const others[] = {"{\"a\": -1}",
                                         "{\"a\": 1.5}",
                                         "{\"a\": 9007199254740992}",
                                         "{\"a\": 9007199254740993}",
                                         "{\"a\": 1e300}",
                                         "{\"a\": {\"$numberDouble\": \"NaN\"}}",
                                         "{\"a\": {\"$numberDouble\": \"Infinity\"}}",
                                         "{\"a\": {\"$numberDecimal\": \"0.1\"}}",
                                         "{\"a\": \"twelve bytes\"}",
                                         "{\"a\": null}",
                                         "{\"a\": {\"b\": 1}}"};
    uint8_t run[KEY_RUN_BYTES], step;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (split(others[i], run, &step))
            test_fail(__FILE__, __LINE__, "%s has a run", others[i]);
    }
}

/* The bytes of any key may be split, and reads stay within them. */
TEST(splits_any_bytes)
{
    uint8_t run[KEY_RUN_BYTES], step, *bytes;
    struct random random;
    int64_t whole;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000; i++) {
        size_t size = truce__random_below(&random, 16);

        bytes = bson_malloc(size + 1);
        for (size_t k = 0; k < size; k++)
            bytes[k] = k == 0   ? 0x30
                       : k == 1 ? (uint8_t)truce__random_below(&random, 4)
                                : (uint8_t)(truce__random_below(&random, 3) * 0x7f);
        (void)truce__key_split(bytes, size, run, &step, &whole);
        bson_free(bytes);
    }
}
