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
    /* for $$NOW and $currentDate: the same for one whole call */
    int64_t now_ms;
    /* makes the timestamps of one millisecond distinct */
    uint32_t now_ordinal;
    /* for $sample; NULL: not available */
    struct random *random;
    /* scratch memory for one document; the caller resets it between documents */
    struct arena *arena;
    /* the time and memory of the call; NULL: no limit */
    struct budget *budget;
    /* the variables of the pipeline around that of a $lookup; NULL: none */
    const struct value *variables;
    /* for the document, if many expressions are evaluated for it; NULL: each has its own */
    struct field_finder *finder;
};

#endif
