#ifndef TRUCE_MERGE_MERGE_H
#define TRUCE_MERGE_MERGE_H

/*
 * Three versions of a document into one: what either side changed since the base is taken, what both
 * changed differently is decided by a policy for its path, or is a conflict.
 *
 *     base   {title: "a", views: 1, tags: ["x"]}
 *     mine   {title: "b", views: 2, tags: ["x", "y"]}
 *     theirs {title: "a", views: 4, tags: []}           with {views: "sum", tags: "union"}
 *     merged {title: "b", views: 5, tags: ["y"]}
 *
 * Rules are a document: a path, and a policy or {policy, key}. A path has names only; it goes through
 * arrays ("lines.price" is the price of every line). A rule holds for everything below its path that
 * has no nearer rule. "$default" is for all the rest.
 *
 *     ask      a conflict (the default)         max, min  of two numbers, dates or texts
 *     mine     what mine has                    sum       base plus both changes, of numbers
 *     theirs   what theirs has                  union     arrays as sets: all that was added, nothing
 *     newest   of the side that is newer                  that was removed
 *     text     of two texts, by lines and by words inside of lines (diff3)
 *     key      elements of the array are told apart by this field
 *
 * Without a key, the elements of an array are told apart by `_id`, `id` or `name`, if every element
 * of all three arrays is a document that has it, no two the same. Other arrays are single values.
 */
#include "bson/value.h"

struct merge_rules;

/* `rules` may be NULL or empty. INVALID names what is wrong. */
truce_status truce__merge_rules_new(const bson_t *rules, struct merge_rules **made,
                                    bson_error_t *error);
void truce__merge_rules_free(struct merge_rules *rules); /* NULL is allowed */

enum merge_settle {
    MERGE_REPORT,        /* they are told */
    MERGE_SETTLE_MINE,   /* what mine has is taken */
    MERGE_SETTLE_THEIRS, /* what theirs has */
    MERGE_SETTLE_MARKED, /* both hunks of a text, between markers; of all else what mine has */
};

struct merge_options {
    const struct merge_rules *rules; /* NULL: none */
    bool strict;              /* whatever both sides changed is a conflict, policies or not */
    bool mine_is_newer;       /* for "newest" */
    enum merge_settle settle; /* what becomes of conflicts */
};

/*
 * `merged` and `conflicts` are always initialised. `conflicts` is an array, empty if there is none:
 *
 *     {path: "lines[sku: 5].price", kind: "both-changed", base: 1, mine: 2, theirs: 3}
 *
 * with values left out where there is none; kind: both-changed, both-added, delete-edit, type (the
 * sides made different types of it), order (both moved the same elements, differently). Where there is a
 * conflict `merged` has what theirs has, or what the options settle on. A conflict of texts is about
 * its hunks, and has two fields more: all else of the text is merged:
 *
 *     hunks: [{base: "b", mine: "B", theirs: "c"}], marked: the text with both sides between markers
 *
 Every edit is in `merged`, overruled by a policy, or in
 * `conflicts`. The order of fields alone is no edit. LIMIT: too large a document would come out.
 */
truce_status truce__merge(struct value base, struct value mine, struct value theirs,
                          const struct merge_options *options, bson_t *merged, bson_t *conflicts,
                          bson_error_t *error);

#endif
