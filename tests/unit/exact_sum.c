#include "bson/exact_sum.h"

#include <math.h>

#include "tests/support/test.h"

/* Sums over numbers of all types: exact if possible, in the narrowest type. */

/* `numbers` is an array in Extended JSON; the result as {r: sum} */
static void check_sum(const char *numbers, const char *expected, const char *average)
{
    char *wrapped = bson_strdup_printf("{'a': %s}", numbers);
    bson_t *document = test_bson(wrapped), *wanted = test_bson(expected);
    bson_t *wanted_average = test_bson(average);
    bson_t got = BSON_INITIALIZER, got_average = BSON_INITIALIZER;
    struct fields fields =
        truce__fields(truce__value_field(truce__value_document(document), "a", 1));
    struct arena arena = ARENA_INIT;
    struct sum sum;

    truce__sum_begin(&sum);
    while (truce__fields_next(&fields))
        truce__sum_add(&sum, fields.value);
    truce__value_append(&got, "r", 1, truce__sum_value(&sum, &arena));
    truce__value_append(&got_average, "r", 1, truce__sum_average(&sum, &arena));
    CHECK_BSON(wanted, &got);
    CHECK_BSON(wanted_average, &got_average);
    truce__arena_release(&arena);
    bson_destroy(&got);
    bson_destroy(&got_average);
    bson_destroy(wanted);
    bson_destroy(wanted_average);
    bson_destroy(document);
    bson_free(wrapped);
}

TEST(a_sum_is_as_narrow_as_its_numbers_and_its_value_allow)
{
    check_sum("[]", "{'r': 0}", "{'r': null}");
    check_sum("[1, 2]", "{'r': 3}", "{'r': 1.5}");
    check_sum("[2147483647, 1]", "{'r': {'$numberLong': '2147483648'}}", "{'r': 1073741824.0}");
    check_sum("[{'$numberLong': '1'}, 2]", "{'r': {'$numberLong': '3'}}", "{'r': 1.5}");
    check_sum("[1, 0.5]", "{'r': 1.5}", "{'r': 0.75}");
    check_sum("[{'$numberDecimal': '1.10'}, 2]", "{'r': {'$numberDecimal': '3.10'}}",
              "{'r': {'$numberDecimal': '1.55'}}");
}

TEST(longs_are_summed_exactly_beyond_their_range_and_back)
{
    check_sum("[{'$numberLong': '9223372036854775807'}, {'$numberLong': '-9223372036854775808'}]",
              "{'r': {'$numberLong': '-1'}}", "{'r': -0.5}");
    check_sum(
        "[{'$numberLong': '-9223372036854775808'}, {'$numberLong': '9223372036854775807'}, 4]",
        "{'r': {'$numberLong': '3'}}", "{'r': 1.0}");
    check_sum("[{'$numberLong': '9223372036854775807'}, 1, -1]",
              "{'r': {'$numberLong': '9223372036854775807'}}", "{'r': 3074457345618258432.0}");
    check_sum("[{'$numberLong': '-9223372036854775808'}, -1, 1]",
              "{'r': {'$numberLong': '-9223372036854775808'}}", "{'r': -3074457345618258432.0}");
    check_sum("[{'$numberLong': '9223372036854775807'}, 1]", "{'r': 9223372036854775808.0}",
              "{'r': 4611686018427387904.0}");
    check_sum("[{'$numberLong': '-9223372036854775808'}, -1]", "{'r': -9223372036854775808.0}",
              "{'r': -4611686018427387904.0}");
    check_sum("[{'$numberLong': '9007199254740993'}, {'$numberLong': '2'}]",
              "{'r': {'$numberLong': '9007199254740995'}}", "{'r': 4503599627370498.0}");
}

TEST(small_whole_numbers_are_added_as_all_others_are)
{
    check_sum("[0.1, {'$numberLong': '4503599627370496'}, {'$numberLong': '-4503599627370496'}, 1]",
              "{'r': 1.1}", "{'r': 0.275}");
    check_sum("[{'$numberLong': '9007199254740992'}, 1]",
              "{'r': {'$numberLong': '9007199254740993'}}", "{'r': 4503599627370496.0}");
    check_sum("[2, {'$numberLong': '9007199254740993'}]",
              "{'r': {'$numberLong': '9007199254740995'}}", "{'r': 4503599627370498.0}");
    check_sum("[-2, {'$numberLong': '-9007199254740993'}]",
              "{'r': {'$numberLong': '-9007199254740995'}}", "{'r': -4503599627370498.0}");
    /* an average shows the retained part of the sum */
    check_sum("[{'$numberLong': '-4611686018427387904'}, 1,"
              " {'$numberLong': '4611686018427387904'}, 5]",
              "{'r': {'$numberLong': '6'}}", "{'r': 1.5}");
    check_sum("[1, 2, {'$numberDouble': 'Infinity'}]", "{'r': {'$numberDouble': 'Infinity'}}",
              "{'r': {'$numberDouble': 'Infinity'}}");
}

TEST(keeps_the_rounding_errors_of_doubles_for_a_decimal)
{
    check_sum("[1e16, 1.0, -1e16]", "{'r': 0.0}", "{'r': 0.0}");
    check_sum("[1e16, 1.0, {'$numberDecimal': '0'}, -1e16]", "{'r': {'$numberDecimal': '1'}}",
              "{'r': {'$numberDecimal': '0.25'}}");
}

TEST(infinities_and_nan_are_as_in_plain_arithmetic)
{
    check_sum("[{'$numberDouble': 'Infinity'}, 1]", "{'r': {'$numberDouble': 'Infinity'}}",
              "{'r': {'$numberDouble': 'Infinity'}}");
    check_sum("[1e308, 1e308]", "{'r': {'$numberDouble': 'Infinity'}}",
              "{'r': {'$numberDouble': 'Infinity'}}");
}

TEST(a_sum_goes_to_an_integer_only_where_it_fits)
{
    struct sum sum;
    int64_t whole;

    truce__sum_begin(&sum);
    truce__sum_add_int64(&sum, INT64_MAX);
    CHECK(truce__sum_to_int64(&sum, &whole) && whole == INT64_MAX);
    truce__sum_add_int64(&sum, 1);
    CHECK(!truce__sum_to_int64(&sum, &whole));
    truce__sum_begin(&sum);
    truce__sum_add_int64(&sum, INT64_MIN);
    CHECK(truce__sum_to_int64(&sum, &whole) && whole == INT64_MIN);
    truce__sum_add_int64(&sum, -1);
    CHECK(!truce__sum_to_int64(&sum, &whole));
}

TEST(computes_the_deviation_of_a_population_and_of_a_sample)
{
    static const double numbers[] = {2, 4, 4, 4, 5, 5, 7, 9};
    struct deviation deviation = {0};
    struct arena arena = ARENA_INIT;

    CHECK(truce__deviation_value(&deviation, false, &arena).type == BSON_TYPE_NULL);
    for (size_t i = 0; i < 8; i++) {
        truce__deviation_add(&deviation, numbers[i]);
        if (i == 0) {
            CHECK(truce__deviation_value(&deviation, true, &arena).type == BSON_TYPE_NULL);
            CHECK(truce__value_double(truce__deviation_value(&deviation, false, &arena)) == 0);
        }
    }
    CHECK(fabs(truce__value_double(truce__deviation_value(&deviation, false, &arena)) - 2) < 1e-15);
    CHECK(fabs(truce__value_double(truce__deviation_value(&deviation, true, &arena)) -
               sqrt(32.0 / 7)) < 1e-15);
    truce__arena_release(&arena);
}
