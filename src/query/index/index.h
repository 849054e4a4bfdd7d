#ifndef TRUCE_QUERY_INDEX_INDEX_H
#define TRUCE_QUERY_INDEX_INDEX_H

/* An index: its specification as users write it (index_spec.c), and its keys of one document
 * (index_keys.c). */
#include "query/sort/field_keys.h"

struct match;

struct index_spec {
    char *name;
    uint32_t count;
    struct key_field *fields;
    bool unique, sparse;
    /* The index is maintained, but no query uses it. */
    bool hidden;
    /* The index is {_id: 1}, which is always unique. */
    bool is_id;
    /* The option expireAfterSeconds, or -1. */
    int64_t expire_after_s;
    /* The key pattern, as the user gave it. */
    bson_t *key;
    /* The option partialFilterExpression, or NULL. */
    bson_t *partial_filter;
    /* The compiled `partial_filter`, or NULL. */
    struct match *partial;
};

/* Parses MongoDB's form {key: {a: 1}, name, unique, sparse, partialFilterExpression,
 * expireAfterSeconds, hidden}. A missing name is made by the usual rule ("a_1_b_-1"). Refuses
 * unknown options and kinds of indexes that truce does not have, with MongoDB's codes. */
truce_status truce__index_spec_parse(const bson_t *specification, struct index_spec *spec,
                                     bson_error_t *error);
/* Returns whether truce or MongoDB has an option of that name in the definition of an index. */
bool truce__index_option_is_known(const char *name);
void truce__index_spec_release(struct index_spec *spec);

/* Applies changes to an existing index: {hidden, expireAfterSeconds}, one of them or both. On an
 * error `spec` is unchanged. Fails with CODE_BAD_VALUE if `changes` hides the index of _id, and
 * with CODE_INVALID_OPTIONS if `changes` is empty or has another field, or if documents of this
 * index cannot expire. */
truce_status truce__index_change(struct index_spec *spec, const bson_t *changes,
                                 bson_error_t *error);

/* Empties `keys`, then fills it with the keys of `document` in the index. There are no keys if the
 * index does not contain the document (sparse, partial). Fails with
 * CODE_CANNOT_INDEX_PARALLEL_ARRAYS if two fields of a compound index are arrays, and with LIMIT if
 * there are more than TRUCE_INDEX_KEYS_MAX keys. */
truce_status truce__index_keys(const struct index_spec *spec, struct value document,
                               struct field_keys *keys, bson_error_t *error);

#endif
