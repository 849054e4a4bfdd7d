#ifndef TRUCE_QUERY_UPDATE_UPDATE_PARSE_H
#define TRUCE_QUERY_UPDATE_UPDATE_PARSE_H

/*
 * The compiled form of an update: a tree of paths with one operator at each leaf. Only the files of
 * this folder use it: update_parse.c makes it, update_apply.c walks it.
 *
 *     {$set: {"a.b": 1, "c.$[x].d": 2}, $inc: {"a.n": 1}}
 *
 *     object ── a ── object ── b ── leaf $set 1
 *           │              └── n ── leaf $inc 1
 *           └─ c ── array ── [x] ── object ── d ── leaf $set 2
 *
 * Such a tree cannot have two operators on one path, or one on a path and one below it: this is
 * MongoDB's conflict (40). Branches are sorted by name, numbers by value. MongoDB applies them and
 * appends new fields in this order.
 */
#include <stdalign.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/nearest_word.h"
#include "bson/field_path.h"
#include "query/aggregate/aggregate.h"
#include "query/update/update.h"

struct update_run;
struct update_target;

enum update_flags {
    /* The operator creates a missing field. */
    UPDATE_CREATES = 1,
    /* The operator ignores a path that cannot exist in the document. */
    UPDATE_LENIENT = 2,
    /* The operator has an effect only in an upsert. */
    UPDATE_INSERT_ONLY = 4,
    /* The operator stores no field, so a name that begins with "$" is allowed. */
    UPDATE_DOLLAR_NAMES = 8,
    /* The operator is $update, which changes array items in place. */
    UPDATE_ITEMS = 16,
};

struct update_leaf;
struct update_parser;

/* A row of the operator table (update_operators.c). */
struct update_operator {
    const char *name;
    unsigned flags;
    /* Checks the operand, which the leaf already has, and fills the other members of the leaf. */
    truce_status (*parse)(struct update_parser *parser, struct update_leaf *leaf,
                          bson_error_t *error);
    /* Returns in *new the new value: `old` if nothing changes, VALUE_MISSING if the field is
     * removed. Other values live in the arena or the update. `old` is VALUE_MISSING only with
     * UPDATE_CREATES. */
    truce_status (*apply)(struct update_run *run, const struct update_leaf *leaf,
                          const struct update_target *target, struct value old, struct value *new,
                          bson_error_t *error);
};

struct update_sort_field {
    /* The path in an item, or NULL for the whole item. */
    const struct path *path;
    bool descending;
};

struct update_leaf {
    const struct update_operator *operator;
    /* The path as given, NUL-terminated. */
    const char *path;
    struct value operand;
    /* The nesting depth of the values that the operator may store. 0 means scalars. */
    uint32_t depth;
    union {
        struct {
            /* The items to push: an array, or with `single`, one item. */
            struct value items;
            /* The clauses $position and $slice. INT64_MAX means that a clause is absent. */
            int64_t position, slice;
            /* The clause $sort. */
            struct update_sort_field *sort;
            uint32_t sort_count;
            /* `items` is one item, not an array of items. */
            bool single;
        } push;
        struct {
            /* The condition, or NULL to pull the items that equal the operand. */
            struct match *match;
            /* The condition is about fields, so only items that are documents can match. */
            bool documents_only;
        } pull;
        struct {
            struct match *match;
            bool documents_only;
            struct update_node *root;
        } items;
        struct {
            const struct path *from;
        } rename;
        /* For $currentDate: store a timestamp, not a date. */
        bool timestamp;
        /* For $pop: remove the last item, not the first. */
        bool from_end;
    } as;
};

enum update_node_kind { UPDATE_LEAF, UPDATE_OBJECT, UPDATE_ARRAY };

struct update_filter {
    /* The identifier in "$[name]". */
    const char *name;
    struct match *match;
    bool used;
};

struct update_branch {
    /* The name of a field, or "$" for the positional operator. Below an UPDATE_ARRAY: the
     * identifier of the array filter, or "". */
    const char *name;
    uint32_t length;
    /* The name as an array index, or -1. */
    int64_t index;
    /* Below an UPDATE_ARRAY: the filter of the elements, or NULL for all elements. */
    const struct update_filter *filter;
    struct update_node *node;
};

struct update_node {
    enum update_node_kind kind;
    /* One of the branches is "$". */
    bool positional;
    /* Each leaf below has an operator with UPDATE_ITEMS. */
    bool items_only;
    /* The branches, sorted by truce__update_tree_seal. */
    struct update_branch *branches;
    uint32_t count, room;
    /* While the tree grows: the branches by name, or NULL if there are few. */
    struct hash_table *table;
    struct update_leaf leaf;
};

/* Enough memory for an update with one operator and one path, as most are. */
#define UPDATE_FIRST_BYTES 800

enum update_kind { UPDATE_OPERATORS, UPDATE_REPLACEMENT, UPDATE_PIPELINE };

struct update {
    enum update_kind kind;
    /* The memory of all members below, except what the lists own. */
    struct arena memory;
    const bson_t *source, *filters_source;
    /* The owned copies of `source` and `filters_source`, or NULL if these are the caller's. */
    bson_t *own_source, *own_filters_source;
    struct update_node *root;
    struct update_filter *filters;
    uint32_t filters_count;
    /* The compiled conditions of array filters, $pull, and $update (struct match). Owned. */
    void **matches;
    uint32_t matches_count, matches_room;
    struct pipeline *pipeline;
    /* The pipeline only sets and removes fields, so fields keep their order
     * (update_keeps_order). */
    bool keeps_order;
    /* The first block of `memory`. */
    alignas(max_align_t) uint8_t first[UPDATE_FIRST_BYTES];
};

/* The state of compiling an update. */
struct update_parser {
    struct update *update;
    /* The number of $update operators around the current one. */
    uint32_t depth;
};

/* One edit of the old document's bytes, which are copied only at the end. */
struct update_edit {
    /* The position in the old document. */
    const uint8_t *at;
    /* The number of old bytes that are removed there. */
    uint32_t removed;
    uint32_t size;
    /* The new bytes in their place. */
    const uint8_t *bytes;
};

#define UPDATE_EDITS_INLINE 24

struct update_run {
    const struct update *update;
    struct query_context *context;
    /* The value in which paths start: the document, or inside $update, an item. */
    struct value root;
    /* An upsert makes its document: $setOnInsert applies, and names are not checked. */
    bool insert;
    /* The array index for the positional operator as a string, or "". */
    char matched[24];
    struct update_edit *edits;
    uint32_t edits_count, edits_room;
    struct update_edit edits_inline[UPDATE_EDITS_INLINE];
    /* The bytes that edits add. */
    uint64_t inserted;
    /* The number of edits, and of changes that leave the bytes the same but count as modified. */
    uint64_t changes;
    int64_t items_matched, items_modified;
    /* Finds the sources of $rename. Released after the walk. */
    struct field_finder finder;
};

/* A position of the walk; the chain of `up` is its path. */
struct update_target {
    /* The container of this position, or NULL for the document. */
    const struct update_target *up;
    const char *name;
    uint32_t length;
    /* The paths of the run start at this position. */
    bool root;
    /* The number of containers around this position. A field of the document has level 1. */
    uint32_t level;
    /* The type byte of the element in the old document, if it exists. */
    const uint8_t *element;
    /* The value of the element, or MISSING if it does not exist. */
    struct value value;
};

/* Creates an empty node in the memory of the update (update_parse.c). */
struct update_node *truce__update_node_new(struct update *update, enum update_node_kind kind);
/* Extends the tree along a path and puts a leaf at its end. The caller fills the leaf. Fails with
 * CODE_CONFLICTING_UPDATE_OPERATORS if another path equals, contains, or is contained in this
 * one. */
truce_status truce__update_tree_add(struct update_parser *parser, struct update_node *root,
                                    const struct path *path, struct update_leaf **leaf,
                                    bson_error_t *error);
/* Sorts the branches of a finished tree. */
void truce__update_tree_seal(struct update_node *node);
int truce__update_name_compare(const char *a, uint32_t a_length, const char *b, uint32_t b_length);
/* Returns the name as an array index, leading zeros allowed, or -1. */
int64_t truce__update_index(const char *name, uint32_t length);

/* A name in a container, and the nodes to which the branches of this name lead. */
struct update_choice {
    const char *name;
    uint32_t length;
    /* The name as an array index, or -1. */
    int64_t index;
    /* The number of nodes. */
    uint32_t count;
    const struct update_node *const *nodes;
};
truce_status truce__update_choices(struct update_run *run, const struct update_target *target,
                                   const struct update_node *const *nodes, uint32_t count,
                                   struct update_choice **choices, uint32_t *choices_count,
                                   bson_error_t *error);
/* Refuses nodes that conflict: fails with CODE_CONFLICTING_UPDATE_OPERATORS if the nodes cannot all
 * be applied to one target. */
truce_status truce__update_conflict(struct update_run *run, const struct update_target *target,
                                    const struct update_node *const *nodes, uint32_t count,
                                    bson_error_t *error);

/* Parses the operators of an update into the tree below `root` (update_parse.c). */
truce_status truce__update_parse(struct update_parser *parser, struct update_node *root,
                                 struct value operators, bson_error_t *error);
truce_status truce__update_parse_filters(struct update *update, const bson_t *filters,
                                         bson_error_t *error);
/* Compiles `condition` as $pull reads it: on the fields of documents, or on the value itself. */
truce_status truce__update_condition(struct update_parser *parser, struct value condition,
                                     struct match **match, bool *documents_only,
                                     bson_error_t *error);
struct path *truce__update_path(struct update *update, const char *text, size_t length,
                                bson_error_t *error);
/* Returns the nesting depth of a value, including itself. */
uint32_t truce__update_depth(struct value value);
/* Returns a timestamp of the current time, distinct for each ordinal of one millisecond. */
uint64_t truce__update_timestamp(const struct query_context *context);

/* Applies the tree below `root` to a document: collects the edits in `run`, which
 * truce__update_splice writes (update_apply.c). */
truce_status truce__update_walk(struct update_run *run, const struct update_node *root,
                                struct value document, bson_error_t *error);
/* Writes the dotted path of a target to `text`, for messages, and returns `text`. */
const char *truce__update_target_show(const struct update_target *target, char *text, size_t size);

/* Writes `before` with the edits to `after`, which is initialized and empty. */
truce_status truce__update_splice(struct update_run *run, struct value before, bson_t *after,
                                  bson_error_t *error);

/* Sets *matches to whether a condition of truce__update_condition holds for an item
 * (update_operators.c). */
truce_status truce__update_item_matches(struct update_run *run, const struct match *match,
                                        bool documents_only, struct value item, bool *matches,
                                        bson_error_t *error);

/* These functions write a number as text without a zero byte: the first returns its length, the
 * second writes the text at `to` and returns its end. */
uint32_t truce__update_digits(uint32_t number);
uint8_t *truce__update_put_number(uint8_t *to, uint32_t number);

/* Offers the names of all operators (update_operators.c). */
void truce__update_operator_offer(struct nearest_word *nearest);
/* Returns the operator of that name, or NULL (update_operators.c). */
const struct update_operator *truce__update_operator_find(const char *name);
/* Removes the field at the source of a $rename; not in the table, because users cannot write it. */
extern const struct update_operator truce__update_rename_source;

/* The functions of the operators (update_operators.c, update_apply.c). */
typedef truce_status update_parse_function(struct update_parser *parser, struct update_leaf *leaf,
                                           bson_error_t *error);
typedef truce_status update_apply_function(struct update_run *run, const struct update_leaf *leaf,
                                           const struct update_target *target, struct value old,
                                           struct value *new, bson_error_t *error);
update_parse_function truce__update_parse_items; /* In update_apply.c. */
update_apply_function truce__update_set, truce__update_rename;

#endif
