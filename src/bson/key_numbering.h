#ifndef TRUCE_BSON_KEY_NUMBERING_H
#define TRUCE_BSON_KEY_NUMBERING_H

/*
 * Assigns numbers to keys: equal keys have one number, counted from 0 in the order of their first
 * appearance. The common parts of two versions are then found in linear time. Names, lines, and
 * whole values are equal if their bytes are. With `by_value`, keys of elements are equal if MongoDB
 * compares them as equal: 1 and 1.0.
 *
 * Two versions mostly have the same keys in the same order. The number after the last result is
 * therefore tried before the hash table.
 */
#include "base/hash_table.h"
#include "bson/value.h"

struct numbering {
    /* keys[i]: the key with number i. Borrowed. */
    struct value *keys;
    /* Finds the numbers by the hashes of their keys. */
    struct hash_table table;
    uint32_t count, room;
    /* The number after the last result. */
    uint32_t expected;
    bool by_value;
};

/* Begins a numbering of at most `most` different keys, which it borrows. */
void truce__numbering_begin(struct numbering *numbering, struct arena *arena, uint32_t most,
                            bool by_value);
/* Returns the number of the key. */
uint32_t truce__numbering_of(struct numbering *numbering, struct value key);

/* Makes a key of bytes. */
static inline struct value truce__numbering_key(const void *bytes, size_t size)
{
    return (struct value){bytes, (uint32_t)size, BSON_TYPE_BINARY};
}

/* ---- the fields of several documents --------------------------------------------------------- */

#define ALIGNED_SIDES 3
#define ALIGNED_NONE  UINT32_MAX

struct aligned_side {
    struct fields *fields;
    /* numbers[i]: the number of the name of field i. */
    uint32_t *numbers;
    /* positions[n]: the position of the first field whose name has number n, or ALIGNED_NONE. */
    uint32_t *positions;
    uint32_t count;
};

struct aligned {
    struct aligned_side sides[ALIGNED_SIDES];
    /* The number of different names. */
    uint32_t names;
    /* No document has a name twice. */
    bool unique;
};

void truce__align_fields(struct arena *arena, const struct value *documents, int count,
                         struct aligned *aligned);

/* Returns the value of the field with that number in a document, or a missing value. */
static inline struct value truce__aligned_value(const struct aligned *aligned, int side,
                                                uint32_t number)
{
    uint32_t position = aligned->sides[side].positions[number];

    return position == ALIGNED_NONE ? truce__value_missing()
                                    : aligned->sides[side].fields[position].value;
}

static inline bool truce__aligned_has(const struct aligned *aligned, int side, uint32_t number)
{
    return aligned->sides[side].positions[number] != ALIGNED_NONE;
}

/* Returns whether the common fields have the same order in both documents. */
bool truce__aligned_same_order(const struct aligned *aligned, int one, int other);

#endif
