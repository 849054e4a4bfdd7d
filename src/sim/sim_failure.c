/* The first failure of a run of the patterns. */
#include <stdio.h>

#include "bson/value.h"
#include "sim/sim_run.h"

void truce__sim_fail(struct run *run, const char *what, const bson_t *document)
{
    struct sim_patterns *patterns = &run->patterns;

    if (patterns->wrong)
        return;
    patterns->wrong = what;
    truce__value_show(truce__value_document(document), patterns->detail, sizeof patterns->detail);
    if (run->trace)
        fprintf(run->trace, "  -- %s: %s\n", what, patterns->detail);
}
