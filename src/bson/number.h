#ifndef TRUCE_BSON_NUMBER_H
#define TRUCE_BSON_NUMBER_H

/*
 * Compares, computes, reads, and writes BSON's four number types with MongoDB's promotion rules:
 * int32 -> int64 -> double -> decimal128. Decimal arithmetic is IEEE 754-2008 decimal128 by Intel's
 * library, which MongoDB uses, too. It rounds half to even.
 */
#include "bson/value.h"

enum number_operation { NUMBER_ADD, NUMBER_SUBTRACT, NUMBER_MULTIPLY };

/* Compares exactly across types. NaN equals NaN and is less than every number; -0 equals 0. */
int truce__number_compare(struct value a, struct value b);
bool truce__number_is_nan(struct value number);

/* Computes $inc, $mul, $add, $subtract, and $multiply. An int32 overflows into an int64. If an
 * int64 overflows, `*overflow` is set and the result is a double, which aggregation uses and
 * updates refuse. */
struct value truce__number_combine(enum number_operation operation, struct value a, struct value b,
                                   struct arena *arena, bool *overflow);

/* Converts a number that is exactly an int64. Returns false for any other number. */
bool truce__number_to_int64(struct value number, int64_t *result);
/* Sets *result to the whole part. Returns false if it is not an int64. */
bool truce__number_truncate(struct value number, int64_t *result);
double truce__number_to_double(struct value number);
bson_decimal128_t truce__number_to_decimal(struct value number);

/* The next functions convert between numbers and text as MongoDB does, in any locale. */

#define NUMBER_TEXT_MAX 48

/* Writes the shortest text that reads back as the same number: "1.5", "1e+21", "NaN",
 * "-Infinity". */
const char *truce__double_show(double number, char text[NUMBER_TEXT_MAX]);
/* Writes a number of any type. */
const char *truce__number_show(struct value number, char text[NUMBER_TEXT_MAX]);

/* These functions read a number. The whole text must be the number, without blanks or hexadecimal
 * digits. They return false if it is not, or if it is out of range: too large, or so close to 0
 * that digits are lost. Integers are decimal with an optional sign. The others may have an
 * exponent, or be "NaN" or "Infinity" in any case. */
bool truce__int64_read(const char *text, size_t length, int64_t *number);
bool truce__double_read(const char *text, size_t length, double *number);
bool truce__decimal_read(const char *text, size_t length, bson_decimal128_t *number);

#endif
