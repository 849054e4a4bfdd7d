#ifndef TRUCE_BASE_NULL_H
#define TRUCE_BASE_NULL_H

/*
 * Checks of required arguments. If such an argument is NULL, a public function returns INVALID
 * before it does anything else, and the error names the argument. Handles are not checked: a NULL
 * handle is a bug of the caller.
 */
#include "base/status.h"

#define REFUSE_NULL(argument, error)                                                               \
    truce__fail(TRUCE_INVALID, error, "the argument \"%s\" is NULL", #argument)

#define RETURN_IF_NULL(argument, error)                                                            \
    do {                                                                                           \
        if (!(argument))                                                                           \
            return REFUSE_NULL(argument, error);                                                   \
    } while (0)

/* Does the same in a function that initializes the document `out` even if it fails. */
#define RETURN_EMPTY_IF_NULL(argument, out, error)                                                 \
    do {                                                                                           \
        if (!(argument)) {                                                                         \
            bson_init(out);                                                                        \
            return REFUSE_NULL(argument, error);                                                   \
        }                                                                                          \
    } while (0)

#endif
