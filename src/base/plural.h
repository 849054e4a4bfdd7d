#ifndef TRUCE_BASE_PLURAL_H
#define TRUCE_BASE_PLURAL_H

/* Counts in messages: "1 job", "2 jobs". */
#include <stdint.h>

struct plural {
    char text[100];
};

/* Returns the count, followed by `one` if the count is 1, otherwise by `many`. */
struct plural truce__plural(int64_t count, const char *one, const char *many);

/* The text of a count as an argument of a call. It is valid until the end of the statement. */
#define PLURAL(count, one, many) (truce__plural((int64_t)(count), one, many).text)

#endif
