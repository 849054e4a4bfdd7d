#ifndef TRUCE_BSON_NUMBERING_H
#define TRUCE_BSON_NUMBERING_H

/*
 * Things get numbers: equal ones the same one, from 0 on in the order in which they first came. So
 * what two versions have in common is found in linear time. Names, lines and whole values are told
 * apart by their bytes, keys of elements (`by_value`) as MongoDB compares them: 1 is 1.0.
 *
 * Versions mostly have the same things in the same order, so the number that follows the last one is
 * tried before the table is asked.
 */
#include "base/hash_table.h"
#include "bson/value.h"

struct numbering {
    /* The key of each number; borrowed. */
    struct value *keys;
    /* Finds the numbers by the hashes of their keys. */
    struct hash_table table;
    uint32_t count, room;
    /* The number that follows the last answer. */
    uint32_t expected;
    bool by_value;
};

/* At most `most` different things will come. */
void truce__numbering_begin(struct numbering *numbering, struct arena *arena, uint32_t most,
                            bool by_value);
uint32_t truce__numbering_of(struct numbering *numbering, struct value key);

/* Bytes as a key. */
static inline struct value truce__numbering_key(const void *bytes, size_t size)
{
    return (struct value){bytes, (uint32_t)size, BSON_TYPE_BINARY};
}

/* ---- fields of several documents, side by side ----------------------------------------------- */

#define ALIGNED_SIDES 3
#define ALIGNED_NONE  UINT32_MAX

struct aligned_side {
    struct fields *fields;
    uint32_t *numbers; /* of the names of the fields */
    uint32_t *places;  /* of each number: which field has that name (the first), or ALIGNED_NONE */
    uint32_t count;
};

struct aligned {
    struct aligned_side sides[ALIGNED_SIDES];
    uint32_t names; /* different ones */
    bool unique;    /* no document has a name twice */
};

void truce__align_fields(struct arena *arena, const struct value *documents, int count,
                         struct aligned *aligned);

/* The field of that number in one of the documents; missing. */
static inline struct value truce__aligned_value(const struct aligned *aligned, int side,
                                                uint32_t number)
{
    uint32_t place = aligned->sides[side].places[number];

    return place == ALIGNED_NONE ? truce__value_missing()
                                 : aligned->sides[side].fields[place].value;
}

static inline bool truce__aligned_has(const struct aligned *aligned, int side, uint32_t number)
{
    return aligned->sides[side].places[number] != ALIGNED_NONE;
}

/* What both have stands in the same order in both. */
bool truce__aligned_same_order(const struct aligned *aligned, int one, int other);

#endif
