#ifndef TRUCE_BSON_NUMBER_TEXT_H
#define TRUCE_BSON_NUMBER_TEXT_H

/* Numbers from and to text as MongoDB's conversions have them, in any locale of the process. */
#include "bson/value.h"

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
