#ifndef TRUCE_TESTS_SUPPORT_EACH_OPERATION_H
#define TRUCE_TESTS_SUPPORT_EACH_OPERATION_H

#include "operations/operation.h"

/* Runs the statement that follows for each operation of the table. */
#define EACH_OPERATION(pattern)                                                                    \
    for (const struct operation_group *group = truce__operation_groups; group->title; group++)     \
        for (const struct operation_row *const *at = group->rows, *pattern;                        \
             (pattern = *at) != NULL; at++)

#endif
