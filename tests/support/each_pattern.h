#ifndef TRUCE_TESTS_SUPPORT_EACH_PATTERN_H
#define TRUCE_TESTS_SUPPORT_EACH_PATTERN_H

#include "server/pattern/pattern_command.h"

/* What follows is done for each of the patterns' commands. */
#define EACH_PATTERN(pattern)                                                                      \
    for (const struct pattern_group *group = pattern_groups; group->title; group++)                \
        for (const struct pattern *const *at = group->patterns, *pattern; (pattern = *at) != NULL; \
             at++)

#endif
