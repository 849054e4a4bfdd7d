#ifndef TRUCE_QUERY_INDEX_INDEX_SET_H
#define TRUCE_QUERY_INDEX_INDEX_SET_H

/*
 * The rules of indexes that every backend shares: which of them can stand beside each other, which
 * one a hint asks for, and how a taken unique key is told.
 */
#include "query/index/index.h"

/* May `spec` be created beside the `count` indexes of a collection? `*present`: the same definition
 * is there already, and nothing is to be done. CODE_INDEX_KEY_SPECS_CONFLICT: the name is taken by
 * another definition; CODE_INDEX_OPTIONS_CONFLICT: the same definition has another name, expires
 * differently, or one of them is hidden; CODE_CANNOT_CREATE_INDEX: too many. */
truce_status truce__index_admit(const struct index_spec *const *indexes, uint32_t count,
                                const struct index_spec *spec, bool *present, bson_error_t *error);

/* What makes an index this one and no other, whatever its name and expiry, hidden or not. */
bool truce__index_is_same(const struct index_spec *a, const struct index_spec *b);

/* {v: 2, key, name, unique, sparse, partialFilterExpression, expireAfterSeconds, hidden}: what index_list
 * answers; truce__index_spec_parse reads it back. `definition` is initialised here. */
void truce__index_describe(const struct index_spec *spec, bson_t *definition);

/* The same index once more, of an own memory; `copy` is initialised here. */
truce_status truce__index_spec_copy(const struct index_spec *spec, struct index_spec *copy,
                                    bson_error_t *error);

/* The index that every collection has: {_id: 1}, unique, named "_id_". */
void truce__index_spec_of_id(struct index_spec *spec);

/* The index that a hint asks for: {key pattern}, or {"": "name"}. `*number` is its number among the
 * `count` indexes, or -1 for a hint of {$natural: 1} or none (NULL). CODE_BAD_VALUE: there is no
 * such index, or it is hidden. */
truce_status truce__index_hint(const struct index_spec *const *indexes, uint32_t count,
                               const bson_t *hint, int64_t *number, bson_error_t *error);

/* The values of `document` that make its `key` (one of truce__index_keys), as {path: value}; a
 * field whose value is an empty array is left out. `values` is initialised here. */
void truce__index_key_values(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *values);

/* The same with every field of the index, as MongoDB shows keys: an empty array is undefined there. */
void truce__index_key_show(const struct index_spec *spec, struct value document, const uint8_t *key,
                           size_t size, bson_t *values);

/* A filter that finds every document that has the key, and perhaps others. `filter` is initialised here. */
void truce__index_key_filter(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *filter);

/* Is it an index that has at most one document for each key, and whose fields are exactly those of
 * `wanted`? Then `key`, emptied before, is the key of the document that has their values. */
bool truce__index_key_of(const struct index_spec *spec, const bson_t *wanted, struct buffer *key);

/* Refuses with CODE_DUPLICATE_KEY, naming collection, index, pattern and the values. */
truce_status truce__index_refuse_duplicate(const char *collection, const struct index_spec *spec,
                                           struct value document, const uint8_t *key, size_t size,
                                           bson_error_t *error);

#endif
