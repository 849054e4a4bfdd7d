#ifndef TRUCE_QUERY_CONDITION_TYPE_SET_H
#define TRUCE_QUERY_CONDITION_TYPE_SET_H

/* A set of BSON types as a bit mask: the operand of $type and of $jsonSchema's "bsonType". */
#include "bson/value.h"

static inline uint64_t truce__type_bit(uint8_t type)
{
    return UINT64_C(1) << (type < 32 ? type : type == BSON_TYPE_MAXKEY ? 62 : 63);
}

/* Parses a type's name or number, or an array of them. `what` names the operand in the error. */
truce_status truce__type_set_parse(struct value value, const char *what, uint64_t *types,
                                   bson_error_t *error);

#endif
