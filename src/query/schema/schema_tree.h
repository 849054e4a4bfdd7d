#ifndef TRUCE_QUERY_SCHEMA_SCHEMA_TREE_H
#define TRUCE_QUERY_SCHEMA_SCHEMA_TREE_H

/* What schema.c and schema_parse.c share; nobody else includes this. */
#include "query/condition/regex.h"
#include "query/schema/schema.h"

struct schema_list {
    struct schema **schemas;
    uint32_t count;
};

struct schema_property {
    const char *name;
    uint32_t name_length;
    struct schema *schema;
};

struct schema_pattern {
    struct regex *regex;
    struct schema *schema;
};

struct schema_dependency {
    const char *name;
    uint32_t name_length;
    struct value names;    /* an array of names, or missing */
    struct schema *schema; /* or NULL */
};

/* additionalProperties, additionalItems */
struct schema_rest {
    bool forbidden;
    struct schema *schema; /* or NULL: anything goes */
};

/* inclusive counts; most < 0: no limit */
struct schema_range {
    int64_t least, most;
};

/* A keyword that is absent has a missing value, a NULL or a count of 0. */
struct schema {
    uint64_t types; /* truce__type_bit; 0: any */
    struct value minimum, maximum, multiple_of;
    bool above_minimum, below_maximum; /* exclusive */
    struct schema_range length, items_count, properties_count;
    struct regex *pattern;
    struct value choices;  /* enum: an array */
    struct value required; /* an array of names */
    struct schema_property *properties;
    uint32_t properties_size; /* in the order of their names */
    struct schema_pattern *patterns;
    uint32_t patterns_size;
    struct schema_rest other_properties;
    struct schema *every_item;     /* items: {...} */
    struct schema_list items_list; /* items: [...] */
    bool has_items_list;
    struct schema_rest other_items; /* beyond items_list */
    bool unique_items;
    struct schema_dependency *dependencies;
    uint32_t dependencies_size;
    struct schema_list all_of, any_of, one_of;
    struct schema *none_of; /* not */
};

/* Equality of values where the order of fields does not matter. */
bool truce__schema_equal(struct value a, struct value b);
/* Are two elements of the array equal in that sense? */
bool truce__schema_has_repeats(struct value array);

#endif
