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
    /* The time for $$NOW and $currentDate, which is the same during a whole call. */
    int64_t now_ms;
    /* The number that makes timestamps of one millisecond distinct. */
    uint32_t now_ordinal;
    /* The source of random numbers ($rand, $sample), or NULL if it is not available. */
    struct random *random;
    /* Scratch memory for one document; the caller resets it between documents. */
    struct arena *arena;
    /* The limits of time and memory of the call, or NULL for no limits. */
    struct budget *budget;
    /* The values of the variables of the surrounding pipelines, or NULL. */
    const struct value *variables;
    /* The finder of the document's fields that several expressions share, or NULL if each has its
     * own. */
    struct field_finder *finder;
};

#endif
