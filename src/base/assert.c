#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void truce__assert_failed(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "truce: bug: %s:%d: %s: \"%s\" does not hold; please report it\n", file, line,
            function, condition);
    abort();
}
