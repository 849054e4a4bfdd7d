/* Numbers: arithmetic with promotion and overflow, conversions, exact comparison. */
#include "bson/number.h"

#include <float.h>
#include <math.h>

#include "base/random.h"
#include "tests/support/test.h"

static struct arena arena;

static struct value from_decimal(const char *digits)
{
    bson_decimal128_t number;

    bson_decimal128_from_string(digits, &number);
    return truce__value_from_decimal(&arena, number);
}

static void check_combined(enum number_operation operation, struct value a, struct value b,
                           struct value expected, bool expected_overflow)
{
    bool overflow;
    struct value result = truce__number_combine(operation, a, b, &arena, &overflow);
    char actual[100], wanted[100];

    CHECK_INT(result.type, ==, expected.type);
    if (!truce__value_identical(result, expected))
        test_fail(__FILE__, __LINE__, "got %s, expected %s",
                  truce__value_show(result, actual, sizeof actual),
                  truce__value_show(expected, wanted, sizeof wanted));
    CHECK_INT(overflow, ==, expected_overflow);
}

static struct value i32(int32_t number)
{
    return truce__value_from_int32(&arena, number);
}

static struct value i64(int64_t number)
{
    return truce__value_from_int64(&arena, number);
}

static struct value f64(double number)
{
    return truce__value_from_double(&arena, number);
}

TEST(integers_stay_integers_and_int32_grows_into_int64)
{
    check_combined(NUMBER_ADD, i32(1), i32(2), i32(3), false);
    check_combined(NUMBER_ADD, i32(INT32_MAX), i32(1), i64(INT32_MAX + INT64_C(1)), false);
    check_combined(NUMBER_SUBTRACT, i32(INT32_MIN), i32(1), i64(INT32_MIN - INT64_C(1)), false);
    check_combined(NUMBER_MULTIPLY, i32(65536), i32(65536), i64(INT64_C(1) << 32), false);
    check_combined(NUMBER_MULTIPLY, i32(-65536), i32(32768), i32(INT32_MIN), false);
    check_combined(NUMBER_ADD, i32(1), i64(2), i64(3), false);
    check_combined(NUMBER_MULTIPLY, i64(3), i32(-4), i64(-12), false);
    truce__arena_release(&arena);
}

TEST(reports_int64_overflow_and_returns_the_double)
{
    check_combined(NUMBER_ADD, i64(INT64_MAX), i32(1), f64(9223372036854775808.0), true);
    check_combined(NUMBER_SUBTRACT, i64(INT64_MIN), i64(1), f64(-9223372036854775809.0), true);
    check_combined(NUMBER_MULTIPLY, i64(INT64_MIN), i32(-1), f64(9223372036854775808.0), true);
    check_combined(NUMBER_ADD, i64(INT64_MAX), i32(0), i64(INT64_MAX), false);
    truce__arena_release(&arena);
}

TEST(a_double_makes_doubles_and_a_decimal_decimals)
{
    check_combined(NUMBER_ADD, i32(1), f64(0.5), f64(1.5), false);
    check_combined(NUMBER_MULTIPLY, i64(2), f64(-0.0), f64(-0.0), false);
    check_combined(NUMBER_ADD, from_decimal("1.10"), i32(1), from_decimal("2.10"), false);
    check_combined(NUMBER_SUBTRACT, i64(INT64_MAX), from_decimal("-1"),
                   from_decimal("9223372036854775808"), false);
    check_combined(NUMBER_MULTIPLY, from_decimal("1E+6144"), from_decimal("10"),
                   from_decimal("Infinity"), false);
    check_combined(NUMBER_ADD, f64(0.5), from_decimal("1"), from_decimal("1.500000000000000"),
                   false);
    truce__arena_release(&arena);
}

static void check_decimal(double number, const char *expected)
{
    bson_decimal128_t result = truce__number_to_decimal(f64(number));
    char digits[BSON_DECIMAL128_STRING];

    bson_decimal128_to_string(&result, digits);
    CHECK_TEXT(expected, digits);
}

TEST(a_double_becomes_a_decimal_of_fifteen_digits)
{
    check_decimal(1.5, "1.50000000000000");
    check_decimal(0.1, "0.100000000000000");
    check_decimal(0, "0");
    check_decimal(-0.0, "-0");
    check_decimal(999999999999999.9, "1.00000000000000E+15");
    check_decimal(1e22, "1.00000000000000E+22");
    check_decimal(-1.0 / 3, "-0.333333333333333");
    check_decimal(DBL_MAX, "1.79769313486232E+308");
    check_decimal(INFINITY, "Infinity");
    check_decimal(NAN, "NaN");
    truce__arena_release(&arena);
}

static void check_integer(struct value number, bool exact, int64_t expected)
{
    int64_t result = 0;

    CHECK_INT(truce__number_to_int64(number, &result), ==, exact);
    if (exact)
        CHECK_INT(result, ==, expected);
}

TEST(only_integral_numbers_in_range_are_int64)
{
    check_integer(i32(-7), true, -7);
    check_integer(f64(-0.0), true, 0);
    check_integer(f64(1.5), false, 0);
    check_integer(f64(-9223372036854775808.0), true, INT64_MIN);
    check_integer(f64(9223372036854775808.0), false, 0);
    check_integer(f64(NAN), false, 0);
    check_integer(f64(INFINITY), false, 0);
    check_integer(from_decimal("1.00"), true, 1);
    check_integer(from_decimal("1E+18"), true, INT64_C(1000000000000000000));
    check_integer(from_decimal("9223372036854775807"), true, INT64_MAX);
    check_integer(from_decimal("9223372036854775808"), false, 0);
    check_integer(from_decimal("0.5"), false, 0);
    check_integer(from_decimal("NaN"), false, 0);
    truce__arena_release(&arena);
}

/* a random number and the same in another type where that is exact */
static struct value random_number(struct random *random)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 0.5, 1e300, 5e-324};
    int64_t integer = (int64_t)(truce__random_next(random) >> truce__random_below(random, 64));
    char digits[64];

    if (truce__random_below(random, 2))
        integer = -integer;
    switch (truce__random_below(random, 6)) {
    case 0:
        return i32((int32_t)integer);
    case 1:
        return i64(integer);
    case 2:
        return f64((double)integer);
    case 3:
        return f64(specials[truce__random_below(random, 8)]);
    case 4:
        return f64(ldexp((double)integer, (int)truce__random_below(random, 40) - 20));
    default:
        snprintf(digits, sizeof digits, "%lldE%d", (long long)integer,
                 (int)truce__random_below(random, 7) - 3);
        return from_decimal(digits);
    }
}

TEST(the_comparison_of_random_numbers_is_a_total_order)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int round = 0; round < 200000; round++) {
        struct value a = random_number(&random), b = random_number(&random);
        struct value c = random_number(&random);
        int ab = truce__number_compare(a, b), bc = truce__number_compare(b, c);

        CHECK_INT(ab, ==, -truce__number_compare(b, a));
        CHECK_INT(truce__number_compare(a, a), ==, 0);
        if (ab <= 0 && bc <= 0)
            CHECK_INT(truce__number_compare(a, c), ==, ab < 0 || bc < 0 ? -1 : 0);
        if (ab == 0)
            CHECK_INT(truce__value_hash(a), ==, truce__value_hash(b));
        truce__arena_reset(&arena);
    }
    truce__arena_release(&arena);
}
