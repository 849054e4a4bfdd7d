#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>

struct plural truce__plural(int64_t count, const char *one, const char *many)
{
    struct plural plural;

    snprintf(plural.text, sizeof plural.text, "%" PRId64 " %s", count, count == 1 ? one : many);
    return plural;
}
