#ifndef TRUCE_STORE_DECORATORS_TRACE_SHOW_H
#define TRUCE_STORE_DECORATORS_TRACE_SHOW_H

/* Arguments and answers of calls as parts of a trace's events. What has its default is left out. */
#include "store/decorators/decorator.h"

void truce__trace_add_arguments(bson_t *parent, const struct decorated_call *call);
/* of a call that was answered with TRUCE_OK */
void truce__trace_add_answer(bson_t *parent, const struct decorated_call *call);

#endif
