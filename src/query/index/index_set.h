#ifndef TRUCE_QUERY_INDEX_INDEX_SET_H
#define TRUCE_QUERY_INDEX_INDEX_SET_H

/* The rules for indexes that all backends share: which of them may exist together, which one a hint
 * names, and the error for a duplicate key. */
#include "query/index/index.h"

/* Checks whether `spec` may be created next to the `count` indexes of a collection. Sets `*present`
 * if the same definition exists already, so that nothing is to be done. Fails with
 * CODE_INDEX_KEY_SPECS_CONFLICT if another definition has the name. Fails with
 * CODE_INDEX_OPTIONS_CONFLICT if the same definition has another name, expires differently, or one
 * of them is hidden. Fails with CODE_CANNOT_CREATE_INDEX if there are too many indexes. */
truce_status truce__index_admit(const struct index_spec *const *indexes, uint32_t count,
                                const struct index_spec *spec, bool *present, bson_error_t *error);

/* Fails with the error that every store reports if a collection has no such index. */
truce_status truce__index_missing(const char *name, const char *collection, bson_error_t *error);

/* Returns whether two definitions are the same index, whatever their name, expiry, and
 * visibility. */
bool truce__index_is_same(const struct index_spec *a, const struct index_spec *b);

/* Returns {v: 2, key, name, unique, sparse, partialFilterExpression, expireAfterSeconds, hidden},
 * the result of index_list. truce__index_spec_parse can read it. `definition` is initialized
 * here. */
void truce__index_describe(const struct index_spec *spec, bson_t *definition);

/* Copies a specification. `copy` is initialized here. */
truce_status truce__index_spec_copy(const struct index_spec *spec, struct index_spec *copy,
                                    bson_error_t *error);

/* Returns the index that each collection has: {_id: 1}, unique, named "_id_". */
void truce__index_spec_of_id(struct index_spec *spec);

/* Finds the index that a hint names: {key pattern}, or {"": "name"}. `*number` is its number among
 * the `count` indexes, or -1 for a hint {$natural: 1} or no hint (NULL or {}). Fails with
 * CODE_BAD_VALUE if the index does not exist or is hidden. */
truce_status truce__index_hint(const struct index_spec *const *indexes, uint32_t count,
                               const bson_t *hint, int64_t *number, bson_error_t *error);

/* Returns the values of `document` that make its `key` (one of truce__index_keys), as {path:
 * value}. A field whose value is an empty array is left out. `values` is initialized here. */
void truce__index_key_values(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *values);

/* Returns the values of all fields, as MongoDB shows keys: an empty array is shown as undefined. */
void truce__index_key_show(const struct index_spec *spec, struct value document, const uint8_t *key,
                           size_t size, bson_t *values);

/* Returns a filter that finds each document that has the key, and perhaps others. `filter` is
 * initialized here. */
void truce__index_key_filter(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *filter);

/* Returns whether the index has at most one document for each key and exactly the fields of
 * `wanted`. If so, `key`, emptied before, becomes the key of the document with these values. */
bool truce__index_key_of(const struct index_spec *spec, const bson_t *wanted, struct buffer *key);

/* Refuses with CODE_DUPLICATE_KEY; the message names the collection, the index, the pattern, and
 * the values. */
truce_status truce__index_refuse_duplicate(const char *collection, const struct index_spec *spec,
                                           struct value document, const uint8_t *key, size_t size,
                                           bson_error_t *error);

#endif
