#ifndef TRUCE_BSON_KEYS_H
#define TRUCE_BSON_KEYS_H

/*
 * Index keys: values encoded so that memcmp of two encodings is truce__value_compare of the values
 * (the opposite for a descending field). Numbers are encoded by value, so 1, 1.0 and
 * NumberDecimal("1") are one key. No encoding is a proper prefix of another, so compound keys are
 * concatenations.
 */
#include "base/buffer.h"
#include "bson/path.h"
#include "bson/value.h"

void truce__key_append(struct buffer *key, struct value value, bool descending);

/*
 * For the bounds of a scan. A prefix of a key stands before everything that begins with it, its
 * successor behind all of that:
 *
 *     a == 5 of (a, b)    from key(5), to, but without, successor(key(5))
 *     a > 5               from successor(key(5)), to, but without, successor(class(number))
 *     a < 5               from class(number), to, but without, key(5)
 *
 * For a descending field the ends change places.
 */
void truce__key_append_class(struct buffer *key, uint8_t type, bool descending);
/* The path of a key in a wildcard index; the value's key follows. */
void truce__key_append_path(struct buffer *key, const char *path, size_t length);
/* Makes `key` the least string of bytes above all that begin with it; false: there is none. */
bool truce__key_successor(struct buffer *key);

struct index_field {
    struct path path; /* for a wildcard index: of its root; all zero for "$**" itself */
    bool descending;
    bool wildcard; /* path.$** : every path below, each key is (path, value) */
};

struct index_spec {
    char *name;
    uint32_t count;
    struct index_field *fields;
    bool unique, sparse;
    bool is_id;             /* {_id: 1}; unique without saying so */
    int64_t expire_after_s; /* TTL; -1: none */
    bson_t *key;            /* as the user gave it */
    bson_t *partial_filter; /* or NULL */
    struct match *partial;  /* compiled partial_filter, or NULL */
};

/* From MongoDB's form {key: {a: 1}, name, unique, sparse, partialFilterExpression,
 * expireAfterSeconds}; a missing name is made by the usual rule ("a_1_b_-1"). Refuses unknown
 * options and index kinds that truce does not have, with MongoDB's codes. */
truce_status truce__index_spec_parse(const bson_t *specification, struct index_spec *spec,
                                     bson_error_t *error);
void truce__index_spec_release(struct index_spec *spec);

/* The keys of one document in one index, sorted and without repeats. */
struct index_keys {
    struct buffer bytes; /* the keys, one behind the other */
    uint32_t *ends;      /* of each key within bytes; the next begins there */
    uint32_t count, room;
    bool bounded;             /* at most TRUCE_INDEX_KEYS_MAX: of an index, not of a sort */
    bool multikey;            /* some path went through an array */
    uint32_t multikey_fields; /* bit i: field i went through an array */
};

/* Empties `keys`, then fills it. No keys: the index does not hold this document (sparse, partial).
 * CODE_CANNOT_INDEX_PARALLEL_ARRAYS: two fields of a compound index are arrays. LIMIT: more than
 * TRUCE_INDEX_KEYS_MAX keys. */
truce_status truce__index_keys(const struct index_spec *spec, struct value document,
                               struct index_keys *keys, bson_error_t *error);
/* The same for bare fields, none of them a wildcard, as a sort has them. */
truce_status truce__fields_keys(const struct index_field *fields, uint32_t count, bool sparse,
                                struct value document, struct index_keys *keys,
                                bson_error_t *error);
void truce__index_keys_release(struct index_keys *keys);
/* {_id: 1} or {_id: -1} alone: there the whole value is the key, an array too, as in MongoDB. */
bool truce__fields_are_id(const struct index_field *fields, uint32_t count);

#endif
