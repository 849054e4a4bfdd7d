#ifndef TRUCE_VERSION_H
#define TRUCE_VERSION_H

/*
 * Which truce this is. Until 1.0.0 the API may change with the second number, from then on with the
 * first; the names of the shared library carry a version too, so that a program that was built for
 * another API does not start with it.
 */
#include "truce/export.h"

#define TRUCE_VERSION        "0.1.0"
#define TRUCE_VERSION_NUMBER 100 /* 10000 x first + 100 x second + third */

TRUCE_BEGIN_DECLS

/* Of the library that is running, which may be newer than the headers: "0.1.0". */
TRUCE_EXPORT const char *truce_version(void);

TRUCE_END_DECLS

#endif
