#ifndef TRUCE_PATTERNS_SET_SET_FORM_H
#define TRUCE_PATTERNS_SET_SET_FORM_H

/* What the two forms of one operation share: set_form.c (classic operators) and set_pipeline.c. */
#include "patterns/set/set.h"

struct set_lists {
    const char *own, *other; /* of the operation: where its entry goes, where it leaves */
};

struct set_lists truce__set_lists_of(const truce_set *set, const struct set_operation *operation);
bool truce__set_wins_ties(const struct set_rank *rank, bool list_of_adds);
struct value truce__set_number_value(int64_t seq, uint8_t bytes[8]);

void truce__set_pipeline(const truce_set *set, const struct set_operation *operation,
                         bson_t *pipeline);

#endif
