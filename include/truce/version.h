#ifndef TRUCE_VERSION_H
#define TRUCE_VERSION_H

/*
 * The version of truce.
 *
 * Before 1.0.0, a new second number may change the API. After that, only a new first number does.
 * The names of the shared library carry a version too, so a program that was built for another API
 * does not start with it.
 */
#include "truce/export.h"

#define TRUCE_VERSION "0.1.0"
/* 10000 x first number + 100 x second number + third number. */
#define TRUCE_VERSION_NUMBER 100

TRUCE_BEGIN_DECLS

/* Returns the version of the library that is running, for example "0.1.0". It may be newer than the
 * headers. */
TRUCE_EXPORT const char *truce_version(void);

TRUCE_END_DECLS

#endif
