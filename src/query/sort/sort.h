#ifndef TRUCE_QUERY_SORT_SORT_H
#define TRUCE_QUERY_SORT_SORT_H

/* Sorting: the order of a sort specification, and a sorter with a limit. */
#include "query/sort/field_keys.h"
#include "query/sort/spill_file.h"

struct sort {
    uint32_t count;
    /* The fields of the sort. None is a wildcard. */
    struct key_field *fields;
    /* Set for the stage $sort: in a document without arrays on the paths, a missing field sorts
     * before null. Otherwise they are equal. */
    bool missing_first;
};

/* Refuses what MongoDB refuses: values other than 1 and -1 (15975), values that are not numbers
 * (15974), and the paths that truce__field_path_check refuses; {$meta} is not supported. The caller
 * handles `$natural`. */
truce_status truce__sort_parse(const bson_t *specification, struct sort *sort, bson_error_t *error);
void truce__sort_release(struct sort *sort);

/* Returns in `direction` the direction of a sort or hint {$natural: 1} or {$natural: -1}; 0 for any
 * other specification and for NULL. Fails with code 15974 or 15975 if $natural has another value,
 * and with CODE_BAD_VALUE if the specification has other fields next to $natural. */
truce_status truce__natural_direction(const bson_t *specification, int *direction,
                                      bson_error_t *error);

/* Appends a document's sort key to `key`, encoded (bson/key_encoding.h) so that memcmp orders two
 * keys. An array sorts by its least element ascending and its greatest descending. Fails with
 * CODE_BAD_VALUE if two fields of the sort are arrays. */
truce_status truce__sort_key(const struct sort *sort, struct value document, struct buffer *key,
                             bson_error_t *error);

/*
 * A sorter takes keys with a payload each, and returns the payloads in the order of the keys. Equal
 * keys stay in the order in which they arrived. With a limit, it holds about twice `limit` payloads
 * in memory at most (external_sort.c).
 *
 *     truce__sorter_new ... truce__sorter_add ... truce__sorter_sort ... truce__sorter_next ...
 *
 * `sort` is borrowed. It may be NULL if only truce__sorter_add_key is used. A limit of 0 means no
 * limit. If the content exceeds the memory and options->open is NULL, the sorter fails with
 * MongoDB's code 292. Otherwise it spills sorted runs to files, and merges them.
 */
struct sorter;

void truce__sorter_new(const struct sort *sort, uint64_t limit, const struct spill_options *options,
                       struct sorter **sorter);
void truce__sorter_free(struct sorter *sorter);

/* Adds a payload with the sort key of `document`; both are copied. */
truce_status truce__sorter_add(struct sorter *sorter, struct value document, const void *payload,
                               uint32_t size, bson_error_t *error);
/* Adds a payload with a key that the caller made; no key may be a prefix of another. */
truce_status truce__sorter_add_key(struct sorter *sorter, const void *key, size_t key_size,
                                   const void *payload, uint32_t size, bson_error_t *error);
/* Ends the adding and sorts. */
truce_status truce__sorter_sort(struct sorter *sorter, bson_error_t *error);
/* Sets *payload to the next payload, borrowed until the next call, or to NULL at the end. */
truce_status truce__sorter_next(struct sorter *sorter, const void **payload, uint32_t *size,
                                bson_error_t *error);

#endif
