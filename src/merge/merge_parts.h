#ifndef TRUCE_MERGE_MERGE_PARTS_H
#define TRUCE_MERGE_MERGE_PARTS_H

/* Declarations that the files of the merge share. */
#include "base/limits.h"
#include "bson/array.h"
#include "bson/builder.h"
#include "bson/key_numbering.h"
#include "merge/merge.h"

/* The maximum number of rules of a merge. */
#define MERGE_RULES_MAX 200
/* The maximum size of the path in a conflict. A longer path is cut. */
#define MERGE_PATH_MAX 4096
/* The maximum size of the arena of the result. A larger merge fails with LIMIT. */
#define MERGE_BYTES_MAX ((size_t)8 * TRUCE_DOCUMENT_BYTES_MAX)

enum merge_policy {
    MERGE_ASK,
    MERGE_MINE,
    MERGE_THEIRS,
    MERGE_NEWEST,
    MERGE_MAX,
    MERGE_MIN,
    MERGE_SUM,
    MERGE_UNION,
    MERGE_TEXT,
};

/* A name on a path. */
struct merge_name {
    const char *text;
    uint32_t length;
};

/* A merge of three documents. */
struct merge {
    const struct merge_options *options;
    /* The memory of the merge, and that of the result. */
    struct arena arena, made;
    /* Builds the result, in the arena `made`. */
    struct builder out;
    /* The conflicts so far, as elements of an array. */
    struct array conflicts;
    /* The names on the current path without the elements of arrays. Rules are found by them. */
    struct merge_name names[TRUCE_DOCUMENT_DEPTH_MAX + 1];
    /* The number of `names`. */
    uint32_t depth;
    /* The current path with the elements of arrays, for conflicts. */
    char path[MERGE_PATH_MAX];
    uint32_t path_length;
};

struct merged_text;

/* Three versions of one value. Each may be missing. */
struct merge_three {
    struct value base, mine, theirs;
};

/* Returns the policy of the nearest rule for the current path, or the default policy
 * (merge_rules.c). */
enum merge_policy truce__merge_policy(const struct merge *merge);
/* Returns whether the policy of any rule is "sum". */
bool truce__merge_sums(const struct merge *merge);
/* Returns the key of the elements of the current array, or NULL if no rule names one. */
const char *truce__merge_key(const struct merge *merge);

/* Appends the merged value, if there is one, to `out` (merge.c). Without a key, the value becomes
 * the next element of an array. */
void truce__merge_value(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three);
/* Opens a container in `out`. Without a key, it becomes the next element of an array. */
struct builder_mark truce__merge_open(struct merge *merge, const char *key, uint32_t key_length,
                                      uint8_t type);
/* Returns whether both sides differ from the base. */
bool truce__merge_both_changed(const struct merge_three *three);
/* Adds a conflict. `text` has the hunks of a conflict of texts; it is NULL for other conflicts. */
void truce__merge_conflict(struct merge *merge, const char *kind, const struct merge_three *three,
                           const struct merged_text *text);
/* Returns whether conflicts are settled with mine, and not reported. */
bool truce__merge_for_mine(const struct merge *merge);
/* Extends the path. Returns its old length, to which the caller restores it. */
uint32_t truce__merge_path_add(struct merge *merge, const char *text, size_t length);
static inline void truce__merge_path_restore(struct merge *merge, uint32_t length)
{
    merge->path_length = length;
    merge->path[length] = '\0';
}

/* Merges three arrays by element and appends the result to `out` (merge_array.c). Returns false,
 * and appends nothing, if that is impossible. */
bool truce__merge_array(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three, bool as_set);

/* The result of a merge of texts (merge_text.c). */
struct merged_text {
    /* The merged text. Each conflict has the hunk of one side. */
    struct value text;
    /* The merged text. Each conflict has the hunks of both sides between markers. */
    struct value marked;
    /* The conflicts, an array of {base, mine, theirs}. Empty if the sides agree. */
    bson_t hunks;
};
/* Merges three texts. Returns false if the values are not three strings, or have too many lines.
 * `hunks` is always initialized; the caller destroys it. */
bool truce__merge_text(struct arena *arena, const struct merge_three *three, bool mine_wins,
                       struct merged_text *merged);

#endif
