#ifndef TRUCE_QUERY_EVALUATION_CONTEXT_H
#define TRUCE_QUERY_EVALUATION_CONTEXT_H

/* The environment of an evaluation: query/ itself reads no clock and opens no file. */
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"

struct field_finder;
struct random;
struct value;

struct query_context {
    /* For $$NOW and $currentDate: the same for one whole call. */
    int64_t now_ms;
    /* Makes the timestamps of one millisecond distinct. */
    uint32_t now_ordinal;
    /* The source of random numbers ($rand, $sample), or NULL if it is not available. */
    struct random *random;
    /* Scratch memory for one document; the caller resets it between documents. */
    struct arena *arena;
    /* The time and memory of the call; NULL means no limit. */
    struct budget *budget;
    /* The variables of the pipeline around that of a $lookup, or NULL if none exists. */
    const struct value *variables;
    /* For the document, if many expressions are evaluated for it; NULL means that each has its
     * own. */
    struct field_finder *finder;
};

#endif
