#ifndef TRUCE_BSON_VALUE_SET_H
#define TRUCE_BSON_VALUE_SET_H

/*
 * A set of values in an arena. Values that are equal for truce__value_equal are one element: 1 and
 * 1.0, for example. A lookup hashes the value; its time does not depend on the size of the set.
 */
#include "base/hash_table.h"
#include "bson/value.h"

struct value_set_entry {
    struct value value;
    uint32_t number;
};

struct value_set {
    struct hash_table table;
    /* The entries, in the order in which the values were added. */
    struct value_set_entry *entries;
    uint32_t count, room;
};

/* Begins an empty set with room for `expected` values. The set borrows the values that are
 * added. */
void truce__value_set_begin(struct value_set *set, struct arena *arena, uint32_t expected);

bool truce__value_set_has(const struct value_set *set, struct value value);
/* Adds a value. Returns false, and leaves the set unchanged, if it already has an equal value. */
bool truce__value_set_add(struct value_set *set, struct value value);

/* Adds a value with a number, which truce__value_set_number returns for every equal value. A value
 * that was added without a number has the number 0. */
bool truce__value_set_add_number(struct value_set *set, struct value value, uint32_t number);
/* Finds the number of an equal value. If the set has no equal value, returns false and sets *number
 * to 0. */
bool truce__value_set_number(const struct value_set *set, struct value value, uint32_t *number);

#endif
