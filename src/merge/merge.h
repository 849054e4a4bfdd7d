#ifndef TRUCE_MERGE_MERGE_H
#define TRUCE_MERGE_MERGE_H

/*
 * Merges three versions of a document. A change that only one side made since the base is taken. If
 * both sides changed a value in different ways, the policy of its path decides, or it is a
 * conflict.
 *
 *     base   {title: "a", views: 1, tags: ["x"]}
 *     mine   {title: "b", views: 2, tags: ["x", "y"]}
 *     theirs {title: "a", views: 4, tags: []}           with {views: "sum", tags: "union"}
 *     merged {title: "b", views: 5, tags: ["y"]}
 *
 * The rules are a document of paths with a policy or {policy, key}. A path has only names and goes
 * through arrays: "lines.price" is the price of every line. A rule applies to everything below its
 * path that has no nearer rule. "$default" applies to everything else.
 *
 *     ask      report a conflict (the default)
 *     mine     take the value of mine
 *     theirs   take the value of theirs
 *     newest   take the value of the newer side
 *     max, min take one of two numbers, dates, or strings
 *     sum      add both changes to the base, for numbers
 *     union    merge arrays as sets: with all added elements, without the removed ones
 *     text     merge strings by lines, and by words inside lines (diff3)
 *     key      this field identifies the elements of the array
 *
 * Without a key, `_id`, `id`, or `name` identifies the elements of an array. This requires that all
 * elements of the three arrays are documents with the field, and that no value repeats in an array.
 * Other arrays are single values.
 */
#include "bson/value.h"

struct merge_rules;

/* Parses the rules. `rules` may be NULL or empty. If a rule is invalid, the error names it. */
truce_status truce__merge_rules_new(const bson_t *rules, struct merge_rules **made,
                                    bson_error_t *error);
/* Frees the rules. `rules` may be NULL. */
void truce__merge_rules_free(struct merge_rules *rules);

enum merge_settle {
    /* Conflicts are reported. */
    MERGE_REPORT,
    /* Conflicts are not reported. The value of this side is taken. */
    MERGE_SETTLE_MINE,
    MERGE_SETTLE_THEIRS,
    /* Conflicts are not reported. A text gets both hunks, between markers; for other values, mine
     * is taken. */
    MERGE_SETTLE_MARKED,
};

/* How a merge settles conflicts. */
struct merge_options {
    /* The rules, or NULL for the default policy everywhere. */
    const struct merge_rules *rules;
    /* Treats every value that both sides changed as a conflict, without policies. */
    bool strict;
    /* Decides the policy "newest": mine is the newer side. */
    bool mine_is_newer;
    /* The treatment of conflicts: they are reported or settled. */
    enum merge_settle settle;
};

/*
 * Merges three documents. `merged` and `conflicts` are always initialized. `conflicts` is an array:
 *
 *     {path: "lines[sku: 5].price", kind: "both-changed", base: 1, mine: 2, theirs: 3}
 *
 * A missing value has no field. The kinds are both-changed, both-added, delete-edit, type (the
 * sides changed it to different types), and order (both moved the same elements in different ways).
 * At a conflict, `merged` has the value of theirs, or what the options say. A conflict of texts
 * concerns only its hunks, because the rest of the text is merged. It has two more fields:
 *
 *     hunks: [{base: "b", mine: "B", theirs: "c"}], marked: the text with both sides
 *
 * Every change is in `merged` or in `conflicts`, or a policy has overruled it. A different order of
 * fields alone is not a change. Returns LIMIT if the result would be too large.
 */
truce_status truce__merge(struct value base, struct value mine, struct value theirs,
                          const struct merge_options *options, bson_t *merged, bson_t *conflicts,
                          bson_error_t *error);

#endif
