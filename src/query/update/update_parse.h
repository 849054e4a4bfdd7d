#ifndef TRUCE_QUERY_UPDATE_UPDATE_PARSE_H
#define TRUCE_QUERY_UPDATE_UPDATE_PARSE_H

/*
 * The compiled form of an update: a tree of paths with one operator at each leaf. Private to
 * query/update*.c; update_parse.c makes it, update_apply.c walks it.
 *
 *     {$set: {"a.b": 1, "c.$[x].d": 2}, $inc: {"a.n": 1}}
 *
 *     object ── a ── object ── b ── leaf $set 1
 *           │              └── n ── leaf $inc 1
 *           └─ c ── array ── [x] ── object ── d ── leaf $set 2
 *
 * Two operators on one path, or one on a path and one below it, have no place in such a tree: that
 * is MongoDB's conflict (40). Branches are sorted by name, numbers by value, which is the order in
 * which MongoDB applies them and in which it appends new fields.
 */
#include <stdalign.h>
#include <stddef.h>

#include "base/arena.h"
#include "bson/field_path.h"
#include "query/aggregate/aggregate.h"
#include "query/update/update.h"

struct update_run;
struct update_place;

enum update_flags {
    UPDATE_CREATES = 1,      /* makes a missing field */
    UPDATE_LENIENT = 2,      /* a path that cannot exist is no error */
    UPDATE_INSERT_ONLY = 4,  /* does nothing but in an upsert */
    UPDATE_DOLLAR_NAMES = 8, /* does not store: the name of the field is not checked */
    UPDATE_ITEMS = 16,       /* $update: changes array items in place */
};

struct update_leaf;
struct update_parser;

/* A row of the operator table (update_parse.c). */
struct update_operator {
    const char *name;
    unsigned flags;
    /* checks the operand (already stored in the leaf) and fills in the rest */
    truce_status (*parse)(struct update_parser *parser, struct update_leaf *leaf,
                          bson_error_t *error);
    /* `old` may be VALUE_MISSING only with UPDATE_CREATES. *new is `old` where nothing changes,
     * VALUE_MISSING where the field goes away; anything else lives in the arena or the update. */
    truce_status (*apply)(struct update_run *run, const struct update_leaf *leaf,
                          const struct update_place *place, struct value old, struct value *new,
                          bson_error_t *error);
};

struct update_sort_field {
    const struct path *path; /* NULL: the whole element */
    bool descending;
};

struct update_leaf {
    const struct update_operator *operator;
    const char *path; /* as written, NUL-terminated */
    struct value operand;
    uint32_t depth; /* containers nested in what it may store; 0: scalars */
    union {
        struct {
            struct value items; /* an array */
            int64_t position, slice;
            struct update_sort_field *sort;
            uint32_t sort_count;
            bool single; /* `items` is one item, not an array of them */
        } push;
        struct {
            struct match *match; /* NULL: equal to the operand */
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
        bool timestamp; /* $currentDate */
        bool from_end;  /* $pop */
    } as;
};

enum update_node_kind { UPDATE_LEAF, UPDATE_OBJECT, UPDATE_ARRAY };

struct update_filter {
    const char *name; /* the identifier in "$[name]" */
    struct match *match;
    bool used;
};

struct update_branch {
    const char *name; /* "$" alone: the positional operator; for arrays: the identifier or "" */
    uint32_t length;
    int64_t index;                      /* the array index that the name is, else -1 */
    const struct update_filter *filter; /* UPDATE_ARRAY: NULL is every element */
    struct update_node *node;
};

struct update_node {
    enum update_node_kind kind;
    bool positional;                /* one of the branches is "$" */
    bool items_only;                /* every leaf below is UPDATE_ITEMS */
    struct update_branch *branches; /* sorted */
    uint32_t count, room;
    uint32_t *table; /* while it grows: a hash table of branches' numbers plus one; or NULL */
    uint32_t table_size;
    struct update_leaf leaf;
};

#define UPDATE_FIRST_BYTES 800 /* most updates have one operator and one path */

enum update_kind { UPDATE_OPERATORS, UPDATE_REPLACEMENT, UPDATE_PIPELINE };

struct update {
    enum update_kind kind;
    struct arena memory; /* holds everything below but what the list owns */
    const bson_t *source, *filters_source;
    bson_t *own_source, *own_filters_source; /* NULL: the caller's */
    struct update_node *root;
    struct update_filter *filters;
    uint32_t filters_count;
    void **matches; /* owned struct match: those of filters, $pull, $update */
    uint32_t matches_count, matches_room;
    struct pipeline *pipeline;
    bool keeps_order; /* the pipeline only sets and removes fields */
    alignas(max_align_t) uint8_t first[UPDATE_FIRST_BYTES]; /* the beginning of `memory` */
};

/* While an update is compiled. */
struct update_parser {
    struct update *update;
    uint32_t depth; /* of $update inside $update */
};

/* One application. Edits are made to the old document's bytes, which nothing copies before the end.
 */
struct update_edit {
    const uint8_t *at; /* in the old document */
    uint32_t removed;  /* old bytes that go away there */
    uint32_t size;
    const uint8_t *bytes; /* new ones that come instead */
};

#define UPDATE_EDITS_INLINE 24

struct update_run {
    const struct update *update;
    struct query_context *context;
    struct value root; /* where paths start: the document, or an item inside $update */
    bool insert;       /* an upsert makes its document: $setOnInsert counts, names are free */
    char matched[24];  /* the positional operator's array index as text; "" if there is none */
    struct update_edit *edits;
    uint32_t edits_count, edits_room;
    struct update_edit edits_inline[UPDATE_EDITS_INLINE];
    uint64_t inserted; /* bytes that edits bring in */
    uint64_t changes;  /* edits, and what counts as modified though the bytes stay the same */
    int64_t items_matched, items_modified;
    struct field_finder finder; /* of $rename's sources; released when the walk is over */
};

/* Where the walk stands; the chain of `up` is the path taken. */
struct update_place {
    const struct update_place *up; /* NULL: the document */
    const char *name;
    uint32_t length;
    bool root;              /* the run's paths start here */
    uint32_t level;         /* containers around it; the document's own fields have 1 */
    const uint8_t *element; /* of an existing one: where its type byte stands */
    struct value value;     /* MISSING: it does not exist */
};

/* update_parse.c */
struct update_node *truce__update_node_new(struct update *update, enum update_node_kind kind);
/* Grows the tree along a path and puts a leaf at its end. `taken` says where it would conflict. */
truce_status truce__update_tree_add(struct update_parser *parser, struct update_node *root,
                                    const struct path *path, struct update_leaf **leaf,
                                    bson_error_t *error);
/* Sorts the branches once the tree is whole. */
void truce__update_tree_seal(struct update_node *node);
int truce__update_name_compare(const char *a, uint32_t a_length, const char *b, uint32_t b_length);
/* The number a name is as an array index, leading zeros allowed, else -1. */
int64_t truce__update_index(const char *name, uint32_t length);

/* Branches of several nodes for one place, as one sorted list with what each name leads to. */
struct update_choice {
    const char *name;
    uint32_t length;
    int64_t index;
    uint32_t count;
    const struct update_node *const *nodes;
};
truce_status truce__update_choices(struct update_run *run, const struct update_place *place,
                                   const struct update_node *const *nodes, uint32_t count,
                                   struct update_choice **choices, uint32_t *choices_count,
                                   bson_error_t *error);
/* CODE_CONFLICTING_UPDATE_OPERATORS if the nodes cannot all be applied to one place. */
truce_status truce__update_conflict(struct update_run *run, const struct update_place *place,
                                    const struct update_node *const *nodes, uint32_t count,
                                    bson_error_t *error);

/* update_parse.c */
truce_status truce__update_parse(struct update_parser *parser, struct update_node *root,
                                 struct value operators, bson_error_t *error);
truce_status truce__update_parse_filters(struct update *update, const bson_t *filters,
                                         bson_error_t *error);
/* `condition` as $pull reads it: on the fields of documents, or on the value itself */
truce_status truce__update_condition(struct update_parser *parser, struct value condition,
                                     struct match **match, bool *documents_only,
                                     bson_error_t *error);
struct path *truce__update_path(struct update *update, const char *text, size_t length,
                                bson_error_t *error);
/* containers nested in a value, itself counted */
uint32_t truce__update_depth(struct value value);
/* a timestamp of now, distinct for each ordinal of one millisecond */
uint64_t truce__update_timestamp(const struct query_context *context);

/* update_apply.c */
truce_status truce__update_walk(struct update_run *run, const struct update_node *root,
                                struct value document, bson_error_t *error);
/* The dotted path of a place, for messages; returns `text`. */
const char *truce__update_place_show(const struct update_place *place, char *text, size_t size);

/* `after`, initialised and empty, becomes `before` with the edits. */
truce_status truce__update_splice(struct update_run *run, struct value before, bson_t *after,
                                  bson_error_t *error);

/* update_operators.c: does a condition of truce__update_condition hold for an item? */
truce_status truce__update_item_matches(struct update_run *run, const struct match *match,
                                        bool documents_only, struct value item, bool *matches,
                                        bson_error_t *error);

/* update_operators.c: a number as text, without a zero byte; its length, and the end of it at `to` */
uint32_t truce__update_digits(uint32_t number);
uint8_t *truce__update_put_number(uint8_t *to, uint32_t number);

/* update.c */

/* operators: update_operators.c, update_apply.c */
typedef truce_status update_parse_function(struct update_parser *parser, struct update_leaf *leaf,
                                           bson_error_t *error);
typedef truce_status update_apply_function(struct update_run *run, const struct update_leaf *leaf,
                                           const struct update_place *place, struct value old,
                                           struct value *new, bson_error_t *error);
update_parse_function truce__update_parse_set, truce__update_parse_number, truce__update_parse_bit,
    truce__update_parse_date, truce__update_parse_push, truce__update_parse_add,
    truce__update_parse_pull, truce__update_parse_pull_all, truce__update_parse_pop,
    truce__update_parse_rename, truce__update_parse_items;
update_apply_function truce__update_set, truce__update_unset, truce__update_inc, truce__update_mul,
    truce__update_min, truce__update_max, truce__update_bit, truce__update_date, truce__update_push,
    truce__update_add, truce__update_pull, truce__update_pull_all, truce__update_pop,
    truce__update_rename;

/* ---- what does not exist yet (update_apply.c) ---- */

#endif
