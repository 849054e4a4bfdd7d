#ifndef TRUCE_SERVER_PATTERN_PATTERN_TREE_H
#define TRUCE_SERVER_PATTERN_PATTERN_TREE_H

/* What the files of the commands for trees share. */
#include "server/pattern/pattern_command.h"
#include "truce/tree.h"

#define TREE_ANSWER_ROWS  1000 /* items, changes or versions in one answer, ... */
#define TREE_ANSWER_BYTES (8 * 1024 * 1024)

/* The tree that the command names; to be freed. No handle is kept: the tree may become another one, in another collection.
 * `collection` and `parent` may be NULL. */
truce_status pattern_tree_take(struct call *call, const char *collection, bool writes,
                               const char *parent, truce_tree **tree, bson_error_t *error);

/* How many rows an answer has, of those that are there. */
struct tree_rows {
    bson_t array;
    int64_t passed; /* so many more are passed over first */
    int64_t room;   /* so many more may come */
    uint32_t count; /* that came */
    bool more;      /* and others do not fit */
};

/* A row is begun: false, if it is not in the answer; `row` is to be ended with pattern_rows_end. `size`: about. */
bool pattern_rows_begin(struct tree_rows *rows, size_t size, bson_t *row);
void pattern_rows_end(struct tree_rows *rows, bson_t *row);
/* {name: [...], more} to the reply; released. */
void pattern_rows_append(struct tree_rows *rows, truce_status status, const char *name,
                         bson_t *reply);

/* Which side is preferred; BadValue. */
truce_status pattern_prefer(const char *text, truce_tree_prefer *prefer, bson_error_t *error);

/* For truce_tree_rebase_options: a row {itemId, base, mine, theirs, paths}; `arg` is the rows. */
void pattern_conflict_add(const truce_tree_conflict *conflict, void *arg);

/* pattern_tree_log.c */
extern const struct pattern tree_log_pattern, tree_diff_pattern, tree_pattern;

#endif
