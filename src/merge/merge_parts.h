#ifndef TRUCE_MERGE_MERGE_PARTS_H
#define TRUCE_MERGE_MERGE_PARTS_H

/* What the files of the merge share. */
#include "base/limits.h"
#include "bson/array.h"
#include "bson/builder.h"
#include "bson/numbering.h"
#include "merge/merge.h"

#define MERGE_RULES_MAX 200
#define MERGE_PATH_MAX  4096 /* bytes of a path as it is shown; what is longer is cut */
#define MERGE_BYTES_MAX ((size_t)8 * TRUCE_DOCUMENT_BYTES_MAX) /* the result, while it grows */

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

struct merge_name {
    const char *text;
    uint32_t length;
};

struct merge {
    const struct merge_options *options;
    struct arena arena, made;
    struct builder out; /* the result, in `made` */
    struct array conflicts;
    struct merge_name
        names[TRUCE_DOCUMENT_DEPTH_MAX + 1]; /* of fields, without elements: for rules */
    uint32_t depth;
    char path[MERGE_PATH_MAX]; /* with elements: for conflicts */
    uint32_t path_length;
};

struct merged_text;

/* One value in its three versions, each of which may be missing. */
struct merge_three {
    struct value base, mine, theirs;
};

/* merge_rules.c */
enum merge_policy truce__merge_policy(const struct merge *merge);
bool truce__merge_sums(const struct merge *merge); /* some rule is "sum" */
const char *truce__merge_key(
    const struct merge *merge); /* of the array here; NULL: none declared */

/* merge.c: appends the merged value, if there is one, to `out`; without a key as the next element. */
void truce__merge_value(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three);
struct builder_mark truce__merge_open(struct merge *merge, const char *key, uint32_t key_length,
                                      uint8_t type);
bool truce__merge_both_changed(const struct merge_three *three);
void truce__merge_conflict(struct merge *merge, const char *kind, const struct merge_three *three,
                           const struct merged_text *text); /* text: NULL but for texts */
/* conflicts are not told, but decided for mine */
bool truce__merge_for_mine(const struct merge *merge);
/* the path grows; restore cuts it again */
uint32_t truce__merge_path_add(struct merge *merge, const char *text, size_t length);
void truce__merge_path_restore(struct merge *merge, uint32_t length);

/* merge_array.c: false: the arrays cannot be merged by element; nothing was appended */
bool truce__merge_array(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three, bool as_set);

/* merge_text.c */
struct merged_text {
    struct value text;   /* with what one side has where both changed the same words */
    struct value marked; /* with both sides there, between markers */
    bson_t hunks; /* array of {base, mine, theirs}; initialised; empty: there is no conflict */
};
/* False: they are not three texts, or have too many lines. The caller destroys `hunks`. */
bool truce__merge_text(struct arena *arena, const struct merge_three *three, bool mine_wins,
                       struct merged_text *merged);

#endif
