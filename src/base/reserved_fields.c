#include "base/reserved_fields.h"

truce_status truce__reserved_check(const uint64_t *room, size_t words, const char *what,
                                   bson_error_t *error)
{
    for (size_t i = 0; i < words; i++)
        if (room[i])
            return truce__fail(TRUCE_INVALID, error,
                               "the reserved fields of %s are not zero: initialize it with {0}, "
                               "and do not use headers that are newer than the library",
                               what);
    return TRUCE_OK;
}
