#ifndef TRUCE_QUERY_INDEX_INDEX_SPAN_H
#define TRUCE_QUERY_INDEX_INDEX_SPAN_H

/*
 * A span: the part of an index between `min` and `max` of a find (truce/store.h).
 *
 *     index {a: 1, b: -1}    min {a: 1, b: 5}    max {a: 2, b: 5}
 *     keys                   (1, 5) (1, 4) ... (2, 7) (2, 6)      (2, 5) is the first after them
 *
 * A document is returned for its least key in the span, so it is returned once, whatever number of
 * keys it has.
 */
#include "query/index/index.h"

struct index_span {
    /* The keys from `from` (inclusive) to `to` (exclusive). An empty buffer means no bound. */
    struct buffer from, to;
};

/* Returns whether `min` or `max` is given and is not {}. */
bool truce__index_span_given(const bson_t *min, const bson_t *max);

/* Checks the bounds as far as possible without the indexes. Fails with code 51176 if they do not
 * have the same fields in the same order, and with 51173 if a hint is missing. Fails with
 * CODE_NO_QUERY_EXECUTION_PLANS if the hint or the sort is {$natural}. All may be NULL. */
truce_status truce__index_span_check(const bson_t *min, const bson_t *max, const bson_t *hint,
                                     const bson_t *sort, bson_error_t *error);

/* Makes the span of the hint's index. A bound that is NULL or {} does not limit its side. Fails
 * with code 51174 if the bounds do not have the index's fields in its order, or if it is a wildcard
 * index. Fails with 51175 if the span is empty. `span` is initialized here; the caller releases it,
 * also on failure. */
truce_status truce__index_span_make(const struct index_spec *spec, const bson_t *min,
                                    const bson_t *max, struct index_span *span,
                                    bson_error_t *error);
static inline void truce__index_span_release(struct index_span *span)
{
    truce__buffer_release(&span->from);
    truce__buffer_release(&span->to);
}

/* Finds the least key of a document in the span. The key is borrowed. Returns false if no key is in
 * the span. */
bool truce__index_span_first(const struct index_span *span, const struct field_keys *keys,
                             const uint8_t **key, size_t *size);

/* ---- comparison of consecutive documents ---------------------------------------------------- */

/* Copies an index with a span, and computes the keys of one document after the other. */
struct keyer {
    struct index_spec spec;
    struct index_span span;
    /* The keys of the current document. */
    struct field_keys keys;
};

/* Copies the specification; the errors are those of a span. */
truce_status truce__keyer_new(const struct index_spec *spec, const bson_t *min, const bson_t *max,
                              struct keyer **keyer, bson_error_t *error);
void truce__keyer_free(struct keyer *keyer);

/* Sets *key to the least key of the document in the span, or to NULL. The key is valid until the
 * next call. */
truce_status truce__keyer_key(struct keyer *keyer, struct value document, const uint8_t **key,
                              size_t *size, bson_error_t *error);

#endif
