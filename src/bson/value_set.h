#ifndef TRUCE_BSON_VALUE_SET_H
#define TRUCE_BSON_VALUE_SET_H

/*
 * A set of values, found by their hashes: equal ones (truce__value_equal) are one. To look
 * whether a value is among many takes time in proportion to the value, not to the many.
 */
#include "base/arena.h"
#include "bson/value.h"

struct value_set {
    struct arena *arena; /* of the table */
    struct value_set_slot *slots;
    uint32_t count, room; /* room: a power of two */
};

/* Values are borrowed. */
void truce__value_set_begin(struct value_set *set, struct arena *arena, uint32_t expected);

bool truce__value_set_has(const struct value_set *set, struct value value);
/* False: an equal one is in it already, and stays. */
bool truce__value_set_add(struct value_set *set, struct value value);

/* The same with a number, which the first of equal ones has; those without have 0. */
bool truce__value_set_add_number(struct value_set *set, struct value value, uint32_t number);
bool truce__value_set_number(const struct value_set *set, struct value value, uint32_t *number);

#endif
