#ifndef TRUCE_BASE_RESERVED_FIELDS_H
#define TRUCE_BASE_RESERVED_FIELDS_H

/*
 * Checks the reserved fields of structs that callers allocate (truce/truce.h). A reserved field
 * that is not zero was either set for a newer library or never initialized. Both are refused.
 */
#include "base/status.h"

truce_status truce__reserved_check(const uint64_t *room, size_t words, const char *what,
                                   bson_error_t *error);

/* Returns OK or INVALID. `given` may be NULL. `what` is the name of its type. */
#define ROOM_CHECK(given, what, error)                                                             \
    ((given) ? truce__reserved_check((given)->reserved,                                            \
                                     sizeof(given)->reserved / sizeof(uint64_t), what, error)      \
             : TRUCE_OK)

#endif
