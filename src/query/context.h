#ifndef TRUCE_QUERY_CONTEXT_H
#define TRUCE_QUERY_CONTEXT_H

/* What evaluation may know of the world: query/ reads no clock and opens no file by itself. */
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"

struct field_finder;
struct random;
struct value;

struct query_context {
    int64_t now_ms;        /* $$NOW, $currentDate: the same for one whole call */
    uint32_t now_ordinal;  /* makes the timestamps of one millisecond distinct */
    struct random *random; /* for $sample; NULL: not available */
    struct arena *arena;   /* scratch for one document; the caller resets it between documents */
    struct budget *budget; /* time and memory of the call; NULL: as much as it takes */
    const struct value *variables; /* of the pipeline around a $lookup's; NULL: none */
    struct field_finder *finder;   /* in the document that expressions are evaluated for, while many
                                      are; NULL: each has its own */
};

#endif
