#ifndef TRUCE_BSON_REFUSE_VALUE_H
#define TRUCE_BSON_REFUSE_VALUE_H

#include "base/status.h"
#include "bson/value.h"

/* Returns the error for a value that breaks the rule, which is a format: "RULE, not VALUE". */
truce_status truce__refuse_value(uint32_t code, struct value value, bson_error_t *error,
                                 const char *rule, ...) TRUCE_PRINTF(4, 5);

#endif
