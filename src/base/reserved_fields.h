#ifndef TRUCE_BASE_RESERVED_FIELDS_H
#define TRUCE_BASE_RESERVED_FIELDS_H

/*
 * The reserved room of structs that callers allocate (truce/truce.h). What is not zeros there was meant for a newer
 * library, or never set: both are refused, never ignored.
 */
#include "base/status.h"

truce_status truce__room_check(const uint64_t *room, size_t words, const char *what,
                               bson_error_t *error);

/* OK, or INVALID; `given` may be NULL. `what` is the type's name. */
#define ROOM_CHECK(given, what, error)                                                             \
    ((given) ? truce__room_check((given)->reserved, sizeof(given)->reserved / sizeof(uint64_t),    \
                                 what, error)                                                      \
             : TRUCE_OK)

#endif
