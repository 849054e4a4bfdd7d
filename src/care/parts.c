#include "care/parts.h"

#include "commit/commit_care.h"

/* Commits first: what they hold stands in everybody's way. */
const struct care truce__care_parts[] = {
    {"commits", truce__commit_sweep, truce__commit_check},
};

const uint32_t truce__care_parts_count = sizeof truce__care_parts / sizeof *truce__care_parts;
