#ifndef TRUCE_BASE_NULL_H
#define TRUCE_BASE_NULL_H

/*
 * What a public function does about an argument that is NULL and may not be: it ends with INVALID before it does anything
 * else, and the error names the argument. A handle that is NULL is a bug of the caller, and is not checked.
 */
#include "base/status.h"

#define REFUSE_NULL(argument, error)                                                               \
    truce__fail(TRUCE_INVALID, error, "the argument \"%s\" is NULL", #argument)

#define RETURN_IF_NULL(argument, error)                                                            \
    do {                                                                                           \
        if (!(argument))                                                                           \
            return REFUSE_NULL(argument, error);                                                   \
    } while (0)

/* The same in a function that promises to initialise the document `out` in any case. */
#define RETURN_EMPTY_IF_NULL(argument, out, error)                                                 \
    do {                                                                                           \
        if (!(argument)) {                                                                         \
            bson_init(out);                                                                        \
            return REFUSE_NULL(argument, error);                                                   \
        }                                                                                          \
    } while (0)

#endif
