#include "query/match/match_plain.h"

#include <string.h>

#include "query/condition/comparison.h"

/* The maximum number of fields of a plain filter. Each field is looked up from the beginning of the
 * document. */
#define FIELDS_MAX 8

/* Returns whether a value of this type can be the operand of a plain filter. */
static bool is_plain_value(struct value value)
{
    switch (value.type) {
    case BSON_TYPE_OID:
    case BSON_TYPE_UTF8:
    case BSON_TYPE_BINARY:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_BOOL:
    case BSON_TYPE_DATE_TIME:
        return true;
    default:
        return false;
    }
}

/* Returns whether the value is {$exists: BOOL}, and if so, sets *exists. */
static bool is_existence(struct value value, bool *exists)
{
    struct fields fields;

    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(value);
    if (!truce__fields_next(&fields) || strcmp(fields.key, "$exists") ||
        fields.value.type != BSON_TYPE_BOOL)
        return false;
    *exists = fields.value.data[0];
    return !truce__fields_next(&fields);
}

static bool plain_is_id(const char *key)
{
    return !strcmp(key, "_id");
}

bool truce__match_is_plain(const bson_t *filter, struct value *id)
{
    struct fields fields = truce__fields(truce__value_document(filter));
    bool exists;
    int count = 0;

    *id = truce__value_missing();
    while (truce__fields_next(&fields)) {
        if (++count > FIELDS_MAX || !fields.key[0] || fields.key[0] == '$' ||
            strchr(fields.key, '.'))
            return false;
        if (!plain_is_id(fields.key)) {
            if (!is_plain_value(fields.value) && !is_existence(fields.value, &exists))
                return false;
            continue;
        }
        if (!is_plain_value(fields.value) || id->type != VALUE_MISSING)
            return false;
        *id = fields.value;
    }
    return true;
}

bool truce__match_plain_test(const bson_t *filter, struct value document, bool *matched)
{
    struct fields fields = truce__fields(truce__value_document(filter));

    *matched = true;
    while (*matched && truce__fields_next(&fields)) {
        struct value value;
        bool exists;

        if (plain_is_id(fields.key))
            continue;
        value = truce__value_field(document, fields.key, fields.key_length);
        if (is_existence(fields.value, &exists)) {
            *matched = exists == (value.type != VALUE_MISSING);
            continue;
        }
        if (value.type == BSON_TYPE_ARRAY)
            return false;
        *matched = truce__comparison_holds(COMPARISON_EQ, value, fields.value);
    }
    return true;
}
