#ifndef TRUCE_QUERY_AGGREGATE_AGGREGATE_GROUP_H
#define TRUCE_QUERY_AGGREGATE_AGGREGATE_GROUP_H

/* A compiled $group: what aggregate_group_parse.c makes and aggregate_group.c runs. */
#include "query/aggregate/accumulator.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

struct id_part {
    char *name; /* NULL: the one expression is the id */
    struct expression *expression;
    struct value constant;
    bool is_constant;
    char *field; /* that it is the value of; NULL: it is made of more, or less */
};

struct group_stage {
    struct id_part *parts;
    uint32_t count;
    bool has_id;
    struct accumulators list;
};

truce_status truce__group_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error);

#endif
