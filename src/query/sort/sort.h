#ifndef TRUCE_QUERY_SORT_SORT_H
#define TRUCE_QUERY_SORT_SORT_H

/* Sorting: the order of a sort specification, and a sorter with a limit. */
#include "query/sort/field_keys.h"
#include "query/sort/spill.h"

struct sort {
    uint32_t count;
    struct key_field *fields; /* none of them a wildcard */
    bool missing_first;       /* as the stage $sort: in a document without arrays on the paths, a
                                   missing field is less than null; else they are equal */
};

/* Refuses what MongoDB refuses: values but 1 and -1 (15975), no numbers (15974), the paths that
 * truce__field_path_check refuses; {$meta} is not supported. `$natural` is for the caller. */
truce_status truce__sort_parse(const bson_t *specification, struct sort *sort, bson_error_t *error);
void truce__sort_release(struct sort *sort);

/* Returns in `direction` the direction of a sort or hint {$natural: 1} or {$natural: -1}; 0 for any
 * other specification and for NULL. Codes 15974 and 15975: $natural has another value;
 * CODE_BAD_VALUE: the specification has other fields next to $natural. */
truce_status truce__natural_direction(const bson_t *specification, int *direction,
                                      bson_error_t *error);

/* A document's key: encoded (bson/keys.h) so that memcmp of two keys is the order. An array sorts
 * by its least element ascending and its greatest descending. Appends to `key`. CODE_BAD_VALUE: two
 * fields of the sort are arrays. */
truce_status truce__sort_key(const struct sort *sort, struct value document, struct buffer *key,
                             bson_error_t *error);

/*
 * A sorter: takes keys with a payload each, gives the payloads in order. Equal keys keep the order
 * in which they came. With a limit it keeps little more than the best `limit` of them in memory.
 *
 *     truce__sorter_new ... truce__sorter_add ... truce__sorter_sort ... truce__sorter_next ...
 *
 * `sort` is borrowed (NULL: only truce__sorter_add_key is used). limit 0: none. options->open NULL:
 * what goes beyond the memory is refused with MongoDB's code 292; otherwise it is sorted in runs
 * that are spilled and merged.
 */
struct sorter;

void truce__sorter_new(const struct sort *sort, uint64_t limit, const struct spill_options *options,
                       struct sorter **sorter);
void truce__sorter_free(struct sorter *sorter);

/* `document` is what is sorted by, `payload` what comes back; both are copied. */
truce_status truce__sorter_add(struct sorter *sorter, struct value document, const void *payload,
                               uint32_t size, bson_error_t *error);
/* The same with a key of the caller's making; no key may be a prefix of another. */
truce_status truce__sorter_add_key(struct sorter *sorter, const void *key, size_t key_size,
                                   const void *payload, uint32_t size, bson_error_t *error);
/* No more comes. */
truce_status truce__sorter_sort(struct sorter *sorter, bson_error_t *error);
/* Borrowed until the next call; NULL at the end. */
truce_status truce__sorter_next(struct sorter *sorter, const void **payload, uint32_t *size,
                                bson_error_t *error);

#endif
