#ifndef TRUCE_STORE_DECORATORS_TRACE_H
#define TRUCE_STORE_DECORATORS_TRACE_H

/* Arguments and answers of calls as parts of a trace's events. What has its default is left out. */
#include "store/decorators/decorator.h"

#endif
