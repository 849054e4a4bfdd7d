#ifndef TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_PART_H
#define TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_PART_H

/* One change of a written list; texts and documents are borrowed from it. */
#include "base/status.h"
#include "truce/commit.h"

struct written_part {
    const char *verb, *collection; /* or the queue, or the book */
    bson_value_t id;
    bson_t with, guard;
    bool has_id, has_with, has_guard;
    const char *extra; /* the last field that goes with some verbs only; NULL: none */
    int64_t delay_ms, priority;
    const char *unique, *lane;
    bson_t meta;
    bool has_meta;
};

typedef truce_status written_add_function(int number, const struct written_part *part,
                                          const char *place, truce_commit *commit,
                                          bson_error_t *error);

written_add_function truce__written_enqueue;
written_add_function truce__written_post;

#endif
