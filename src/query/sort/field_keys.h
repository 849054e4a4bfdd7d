#ifndef TRUCE_QUERY_SORT_FIELD_KEYS_H
#define TRUCE_QUERY_SORT_FIELD_KEYS_H

/*
 * The keys of one document by a list of fields: what an index stores of the document, and what a
 * sort compares.
 */
#include "bson/key_encoding.h"

struct key_field {
    /* For a wildcard index: the path of its root; all zero for "$**" itself. */
    struct path path;
    bool descending;
    /* "path.$**": all paths below are indexed, and each key is (path, value). */
    bool wildcard;
};

/* The keys of one document, sorted and without duplicates. */
struct field_keys {
    /* The keys, one after the other. */
    struct buffer bytes;
    /* The end of each key within `bytes`; the next key begins there. */
    uint32_t *ends;
    uint32_t count, room;
    /* The number of keys is limited to TRUCE_INDEX_KEYS_MAX. Set for an index, not for a sort. */
    bool bounded;
    /* Some path went through an array. */
    bool multikey;
    /* Bit i is set if the path of field i went through an array. */
    uint32_t multikey_fields;
};

/* Empties `keys`, then fills it with the keys of `document`. No field is a wildcard. With `sparse`,
 * a document that has none of the fields has no key. Fails with CODE_CANNOT_INDEX_PARALLEL_ARRAYS
 * if two fields are arrays, and with 16746 if a path is ambiguous. Fails with LIMIT if a key is too
 * long or, with `bounded`, there are more than TRUCE_INDEX_KEYS_MAX keys. */
truce_status truce__field_keys(const struct key_field *fields, uint32_t count, bool sparse,
                               struct value document, struct field_keys *keys, bson_error_t *error);
void truce__field_keys_release(struct field_keys *keys);

/* Returns whether the fields are {_id: 1} or {_id: -1}. Such a key is the whole value, even of an
 * array, as in MongoDB. */
bool truce__fields_are_id(const struct key_field *fields, uint32_t count);

/* ---- for other makers of keys (index_keys.c) ---- */

void truce__field_keys_clear(struct field_keys *keys);
/* Ends the key whose bytes were appended to keys->bytes. Fails with LIMIT if the key is too long or
 * there are too many keys. */
truce_status truce__field_keys_end(struct field_keys *keys, bson_error_t *error);
/* Sorts the keys and removes duplicates. */
void truce__field_keys_sort(struct field_keys *keys);

#endif
