#include "bson/exact_sum.h"

#include <math.h>

#include "base/assert.h"

#define TWO_TO_63 9223372036854775808.0
#define TWO_TO_52 4503599627370496.0

void truce__sum_begin(struct sum *sum)
{
    *sum = (struct sum){.type = BSON_TYPE_INT32, .decimals = bid128_from_int64(0)};
}

/* Returns a + b, rounded, and the rounding error. */
static double two_sum(double a, double b, double *lost)
{
    double total = a + b, part = total - a;

    *lost = (a - (total - part)) + (b - part);
    return total;
}

/* Adds a double. The earlier rounding error is added to the number first, as in MongoDB. 1e16 + 1 -
 * 1e16 is high 0 and low 1, and 0 as a double. */
static void add_double(struct sum *sum, double number)
{
    double lost;

    sum->plain += number;
    number = two_sum(number, sum->low, &lost);
    sum->high = two_sum(sum->high, number, &sum->low);
    sum->low += lost;
}

static bool sum_is_small(double number)
{
    return number >= -TWO_TO_52 && number <= TWO_TO_52;
}

/* Adds directly if the sum is exact in one double. Returns false if it may not be. */
static bool add_small(struct sum *sum, int64_t number)
{
    bool whole = sum->type == BSON_TYPE_INT32 || sum->type == BSON_TYPE_INT64;

    if (!whole || sum->low != 0 || !sum_is_small(sum->high) || !sum_is_small((double)number))
        return false;
    sum->high += (double)number;
    sum->plain += (double)number;
    return true;
}

/* Adds two halves that are exact as doubles. */
void truce__sum_add_int64(struct sum *sum, int64_t number)
{
    int64_t upper = number / (INT64_C(1) << 32) * (INT64_C(1) << 32);

    add_double(sum, (double)(number - upper));
    add_double(sum, (double)upper);
}

static int sum_type_width(uint8_t type)
{
    switch (type) {
    case BSON_TYPE_INT32:
        return 0;
    case BSON_TYPE_INT64:
        return 1;
    case BSON_TYPE_DOUBLE:
        return 2;
    default:
        return 3;
    }
}

void truce__sum_add(struct sum *sum, struct value number)
{
    _IDEC_flags flags = 0;

    truce_assert(truce__value_is_number(number));
    sum->count++;
    if (number.type != sum->type && sum_type_width(number.type) > sum_type_width(sum->type))
        sum->type = number.type;
    if (truce__value_is_integer(number) && add_small(sum, truce__value_integer(number)))
        return;
    switch (number.type) {
    case BSON_TYPE_INT32:
        add_double(sum, truce__value_int32(number));
        break;
    case BSON_TYPE_INT64:
        truce__sum_add_int64(sum, truce__value_int64(number));
        break;
    case BSON_TYPE_DOUBLE:
        add_double(sum, truce__value_double(number));
        break;
    default:
        sum->decimals =
            bid128_add(sum->decimals, truce__decimal_of_bson(truce__value_decimal(number)),
                       BID_ROUNDING_TO_NEAREST, &flags);
    }
}

static double as_double(const struct sum *sum)
{
    return isfinite(sum->high) ? sum->high : sum->plain;
}

/* Returns the sum as the nearest double. A sum of integers is exact in the two doubles, so the
 * nearest double includes the low one. */
static double nearest_double(const struct sum *sum)
{
    bool whole = sum->type == BSON_TYPE_INT32 || sum->type == BSON_TYPE_INT64;

    return whole ? sum->high + sum->low : as_double(sum);
}

static decimal as_decimal(const struct sum *sum)
{
    _IDEC_flags flags = 0;
    decimal high = binary64_to_bid128(as_double(sum), BID_ROUNDING_TO_NEAREST, &flags);
    decimal low;

    if (isfinite(sum->high)) {
        low = binary64_to_bid128(sum->low, BID_ROUNDING_TO_NEAREST, &flags);
        high = bid128_add(high, low, BID_ROUNDING_TO_NEAREST, &flags);
    }
    return bid128_add(sum->decimals, high, BID_ROUNDING_TO_NEAREST, &flags);
}

/* Rounds the sum of the two doubles to the nearest integer. */
static bool doubles_to_int64(const struct sum *sum, int64_t *result)
{
    if (!isfinite(sum->high))
        return false;
    if (sum->high == TWO_TO_63 && sum->low <= -1) {
        *result = INT64_MAX + (int64_t)(sum->low + 1);
        return true;
    }
    if (!(sum->high >= -TWO_TO_63 && sum->high < TWO_TO_63))
        return false;
    if (sum->high == -TWO_TO_63 && sum->low < 0)
        return false;
    return !__builtin_add_overflow((int64_t)llround(sum->high), (int64_t)llround(sum->low), result);
}

bool truce__sum_to_int64(const struct sum *sum, int64_t *result)
{
    _IDEC_flags flags = 0;

    if (sum->type != BSON_TYPE_DECIMAL128)
        return doubles_to_int64(sum, result);
    *result = bid128_to_int64_rnint(as_decimal(sum), &flags);
    return !(flags & BID_INVALID_EXCEPTION);
}

struct value truce__sum_value(const struct sum *sum, struct arena *arena)
{
    int64_t whole;

    if (sum->type == BSON_TYPE_DECIMAL128)
        return truce__value_from_decimal(arena, truce__decimal_to_bson(as_decimal(sum)));
    if (sum->type == BSON_TYPE_DOUBLE || !doubles_to_int64(sum, &whole))
        return truce__value_from_double(arena, nearest_double(sum));
    if (sum->type == BSON_TYPE_INT32 && whole >= INT32_MIN && whole <= INT32_MAX)
        return truce__value_from_int32(arena, (int32_t)whole);
    return truce__value_from_int64(arena, whole);
}

struct value truce__sum_average(const struct sum *sum, struct arena *arena)
{
    _IDEC_flags flags = 0;
    decimal mean;

    if (sum->count == 0)
        return truce__value_null();
    if (sum->type != BSON_TYPE_DECIMAL128)
        return truce__value_from_double(arena, nearest_double(sum) / (double)sum->count);
    mean =
        bid128_div(as_decimal(sum), bid128_from_int64(sum->count), BID_ROUNDING_TO_NEAREST, &flags);
    return truce__value_from_decimal(arena, truce__decimal_to_bson(mean));
}

void truce__deviation_add(struct deviation *deviation, double number)
{
    double distance = number - deviation->mean;

    deviation->count++;
    deviation->mean += distance / (double)deviation->count;
    deviation->squares += distance * (number - deviation->mean);
}

struct value truce__deviation_value(const struct deviation *deviation, bool sample,
                                    struct arena *arena)
{
    int64_t divisor = deviation->count - sample;

    if (divisor <= 0)
        return truce__value_null();
    return truce__value_from_double(arena, sqrt(deviation->squares / (double)divisor));
}
