#ifndef TRUCE_TESTS_SUPPORT_EXPRESSION_H
#define TRUCE_TESTS_SUPPORT_EXPRESSION_H

/* Evaluates expressions given as Extended JSON, for tests. */
#include <stdint.h>

/* Checks that `expression` evaluates to `expected` for `document`. All three are Extended JSON, in
 * which ' may replace "; a missing result is written as "missing". Reports the line of a
 * failure. */
#define EXPRESSION_GIVES(expression, document, expected)                                           \
    expression_gives(expression, document, expected, __FILE__, __LINE__)

/* Checks that the expression fails with this MongoDB code, when it is compiled or evaluated. */
#define EXPRESSION_FAILS(expression, document, code)                                               \
    expression_fails(expression, document, code, __FILE__, __LINE__)

void expression_gives(const char *expression, const char *document, const char *expected,
                      const char *file, int line);
void expression_fails(const char *expression, const char *document, uint32_t code, const char *file,
                      int line);

/* The value of `$$NOW` in these evaluations, in ms since 1970. */
#define EXPRESSION_NOW_MS INT64_C(1700000000123)

#endif
