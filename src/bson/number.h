#ifndef TRUCE_BSON_NUMBER_H
#define TRUCE_BSON_NUMBER_H

/*
 * Arithmetic over BSON's four number types with MongoDB's promotion rules: int32 -> int64 -> double
 * -> decimal128. Decimal arithmetic is IEEE 754-2008 decimal128 by Intel's library (the one that
 * MongoDB uses), rounding half to even.
 */
#include "bson/value.h"

enum number_operation { NUMBER_ADD, NUMBER_SUBTRACT, NUMBER_MULTIPLY };

/* exact across types; NaN is less than every number and equal to NaN; -0 equals 0 */
int truce__number_compare(struct value a, struct value b);
bool truce__number_is_nan(struct value number);

/* What $inc, $mul, $add, $subtract, $multiply compute. int32 overflows into int64. int64 overflow:
 * `*overflow` is set and the result is the double (aggregation) that callers of updates refuse. */
struct value truce__number_combine(enum number_operation operation, struct value a, struct value b,
                                   struct arena *arena, bool *overflow);

/* The number as an int64 if it has exactly that integral value. */
bool truce__number_to_int64(struct value number, int64_t *result);
/* Its whole part, if that is an int64. */
bool truce__number_truncate(struct value number, int64_t *result);
double truce__number_to_double(struct value number);
bson_decimal128_t truce__number_to_decimal(struct value number);

/* Numbers from and to text as MongoDB's conversions have them, in any locale of the process. */

#define NUMBER_TEXT_MAX 48

/* The shortest text that reads back as the same number: "1.5", "1e+21", "NaN", "-Infinity". */
const char *truce__double_show(double number, char text[NUMBER_TEXT_MAX]);
/* any number type */
const char *truce__number_show(struct value number, char text[NUMBER_TEXT_MAX]);

/* The whole text must be the number: no blanks, no hexadecimal. False if it is not, or is out of
 * range. Integers are decimal, with an optional sign; the others also take exponents, "NaN" and
 * "Infinity" in any case. */
bool truce__int64_read(const char *text, size_t length, int64_t *number);
bool truce__double_read(const char *text, size_t length, double *number);
bool truce__decimal_read(const char *text, size_t length, bson_decimal128_t *number);

#endif
