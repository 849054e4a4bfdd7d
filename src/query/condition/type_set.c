#include "query/condition/type_set.h"

#include "base/error_codes.h"
#include "bson/number.h"

/* Adds the type of that name, or all numbers for "number". Returns false if the name is unknown. */
static bool type_set_add_name(struct value value, uint64_t *types)
{
    uint32_t length;
    const char *name = truce__value_text(value, &length);

    if (!strcmp(name, "number")) {
        *types |= truce__type_bit(BSON_TYPE_INT32) | truce__type_bit(BSON_TYPE_INT64) |
                  truce__type_bit(BSON_TYPE_DOUBLE) | truce__type_bit(BSON_TYPE_DECIMAL128);
        return true;
    }
    for (int type = 1; type < 256; type++) {
        bool known =
            type <= BSON_TYPE_DECIMAL128 || type == BSON_TYPE_MAXKEY || type == BSON_TYPE_MINKEY;

        if (known && !strcmp(name, truce__type_name((uint8_t)type))) {
            *types |= truce__type_bit((uint8_t)type);
            return true;
        }
    }
    return false;
}

static bool type_set_add_number(struct value value, uint64_t *types)
{
    int64_t number;

    if (!truce__number_to_int64(value, &number))
        return false;
    if (number != -1 && number != BSON_TYPE_MAXKEY && (number < 1 || number > BSON_TYPE_DECIMAL128))
        return false;
    *types |= truce__type_bit((uint8_t)number);
    return true;
}

/* Adds the type that a name or a number denotes. */
static truce_status type_set_add(struct value value, const char *what, uint64_t *types,
                                 bson_error_t *error)
{
    char text[120];
    bool known;

    if (value.type == BSON_TYPE_UTF8)
        known = type_set_add_name(value, types);
    else if (truce__value_is_number(value))
        known = type_set_add_number(value, types);
    else
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "%s takes the name or number of a type, not %s", what,
                             truce__value_show(value, text, sizeof text));
    if (!known)
        return truce__refuse(CODE_BAD_VALUE, error, "%s: unknown type %s", what,
                             truce__value_show(value, text, sizeof text));
    return TRUCE_OK;
}

truce_status truce__type_set_parse(struct value value, const char *what, uint64_t *types,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    *types = 0;
    if (value.type != BSON_TYPE_ARRAY)
        return type_set_add(value, what, types, error);
    fields = truce__fields(value);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = type_set_add(fields.value, what, types, error);
    if (status == TRUCE_OK && !*types)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "%s takes at least one type", what);
    return status;
}
