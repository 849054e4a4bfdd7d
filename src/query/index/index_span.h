#ifndef TRUCE_QUERY_INDEX_INDEX_SPAN_H
#define TRUCE_QUERY_INDEX_INDEX_SPAN_H

/*
 * A span: the part of an index that `min` and `max` of a find leave of it (truce/store.h).
 *
 *     index {a: 1, b: -1}    min {a: 1, b: 5}    max {a: 2, b: 5}
 *     keys                   (1, 5) (1, 4) ... (2, 7) (2, 6)      and (2, 5) is the first behind them
 *
 * A document is in the span with its least key that is; so it comes once, whatever number of keys it has.
 */
#include "query/index/index.h"

struct index_span {
    struct buffer from, to; /* keys from `from` to, but without, `to`; empty: all of the index */
};

/* One of them is given, and is not {}. */
bool truce__index_span_given(const bson_t *min, const bson_t *max);

/* What is wrong with them whatever indexes there are. Code 51176: they have not the same fields in the same order; 51173: there
 * is no hint; CODE_NO_QUERY_EXECUTION_PLANS: hint or sort is {$natural}. All may be NULL. */
truce_status truce__index_span_check(const bson_t *min, const bson_t *max, const bson_t *hint,
                                     const bson_t *sort, bson_error_t *error);

/* Of the hint's index; NULL or {}: no end there. Code 51174: they have not the fields of the index in its order, or it is a
 * wildcard; 51175: nothing is between them. `span` is initialised here; the caller releases it, also on failure. */
truce_status truce__index_span_make(const struct index_spec *spec, const bson_t *min,
                                    const bson_t *max, struct index_span *span,
                                    bson_error_t *error);
void truce__index_span_release(struct index_span *span);

/* The least of a document's keys that is in the span, borrowed; false: none is. */
bool truce__index_span_first(const struct index_span *span, const struct field_keys *keys,
                             const uint8_t **key, size_t *size);

/* ---- of one document after the other -------------------------------------------------------- */

/* An index of its own, with a span. */
struct keyer {
    struct index_spec spec;
    struct index_span span;
    struct field_keys keys; /* of the last document */
};

/* The specification is copied; the errors are those of a span. */
truce_status truce__keyer_new(const struct index_spec *spec, const bson_t *min, const bson_t *max,
                              struct keyer **keyer, bson_error_t *error);
void truce__keyer_free(struct keyer *keyer);

/* As truce__index_span_first of the document, until the next call. NULL: it has no key in the span. */
truce_status truce__keyer_key(struct keyer *keyer, struct value document, const uint8_t **key,
                              size_t *size, bson_error_t *error);

#endif
