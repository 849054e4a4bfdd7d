#ifndef TRUCE_QUERY_INDEX_INDEX_H
#define TRUCE_QUERY_INDEX_INDEX_H

/*
 * An index: its specification as users write it (index_spec.c), and the keys that it holds of one
 * document (index_keys.c).
 */
#include "query/sort/field_keys.h"

struct match;

struct index_spec {
    char *name;
    uint32_t count;
    struct key_field *fields;
    bool unique, sparse;
    bool hidden;            /* it is kept, and no query uses it */
    bool is_id;             /* {_id: 1}; unique without saying so */
    int64_t expire_after_s; /* TTL; -1: none */
    bson_t *key;            /* as the user gave it */
    bson_t *partial_filter; /* or NULL */
    struct match *partial;  /* compiled partial_filter, or NULL */
};

/* From MongoDB's form {key: {a: 1}, name, unique, sparse, partialFilterExpression,
 * expireAfterSeconds, hidden}; a missing name is made by the usual rule ("a_1_b_-1"). Refuses unknown
 * options and index kinds that truce does not have, with MongoDB's codes. */
truce_status truce__index_spec_parse(const bson_t *specification, struct index_spec *spec,
                                     bson_error_t *error);
/* Does truce or MongoDB have an option of that name in the definition of an index? */
bool truce__index_option_is_known(const char *name);
void truce__index_spec_release(struct index_spec *spec);

/* What can be changed of an index that is there: {hidden, expireAfterSeconds}, one of them or both. `spec` is as it was if they
 * are refused: CODE_BAD_VALUE, the index of _id is not hidden; CODE_INVALID_OPTIONS: nothing is changed, or something else, or
 * its documents cannot expire. */
truce_status truce__index_change(struct index_spec *spec, const bson_t *changes,
                                 bson_error_t *error);

/* Empties `keys`, then fills it with the keys of `document` in the index. No key: the index does not
 * hold the document (sparse, partial). CODE_CANNOT_INDEX_PARALLEL_ARRAYS: two fields of a compound
 * index are arrays. LIMIT: more than TRUCE_INDEX_KEYS_MAX keys. */
truce_status truce__index_keys(const struct index_spec *spec, struct value document,
                               struct field_keys *keys, bson_error_t *error);

#endif
