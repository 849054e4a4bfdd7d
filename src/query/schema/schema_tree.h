#ifndef TRUCE_QUERY_SCHEMA_SCHEMA_TREE_H
#define TRUCE_QUERY_SCHEMA_SCHEMA_TREE_H

/* The compiled form of a schema, which only schema.c and schema_parse.c use. */
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
    /* an array of names, or missing */
    struct value names;
    /* or NULL */
    struct schema *schema;
};

/* of additionalProperties and additionalItems */
struct schema_rest {
    bool forbidden;
    /* NULL: any value is valid */
    struct schema *schema;
};

/* Inclusive counts; most < 0: no maximum. */
struct schema_range {
    int64_t least, most;
};

/* A keyword that was not given has a missing value, NULL, or a count of 0. */
struct schema {
    /* bits of truce__type_bit; 0: any type */
    uint64_t types;
    struct value minimum, maximum, multiple_of;
    /* the bounds are exclusive */
    bool above_minimum, below_maximum;
    struct schema_range length, items_count, properties_count;
    struct regex *pattern;
    /* enum: an array */
    struct value choices;
    /* an array of names */
    struct value required;
    struct schema_property *properties;
    /* ordered by name */
    uint32_t properties_size;
    struct schema_pattern *patterns;
    uint32_t patterns_size;
    struct schema_rest other_properties;
    /* items: {...} */
    struct schema *every_item;
    /* items: [...] */
    struct schema_list items_list;
    bool has_items_list;
    /* after those of items_list */
    struct schema_rest other_items;
    bool unique_items;
    struct schema_dependency *dependencies;
    uint32_t dependencies_size;
    struct schema_list all_of, any_of, one_of;
    /* not */
    struct schema *none_of;
};

/* Returns whether the values are equal without regard to the order of fields. */
bool truce__schema_equal(struct value a, struct value b);
/* Returns whether two elements of the array are equal in this sense. */
bool truce__schema_has_repeats(struct value array);

#endif
