#include "bson/array.h"

#include "base/assert.h"

struct array_key {
    const char *text;
    int length;
    char digits[16];
};

static void array_next_key(struct array *array, struct array_key *key)
{
    key->length =
        (int)bson_uint32_to_string(array->count++, &key->text, key->digits, sizeof key->digits);
}

static void array_check(bool fits)
{
    truce_assert(fits);
}

void truce__array_begin(struct array *array, bson_t *document, const char *name)
{
    array_check(bson_append_array_begin(document, name, -1, &array->own));
    array->to = &array->own;
    array->count = 0;
}

void truce__array_end(struct array *array, bson_t *document)
{
    array_check(bson_append_array_end(document, &array->own));
}

void truce__array_resume(struct array *array, bson_t *elements)
{
    array->to = elements;
    array->count = bson_count_keys(elements);
}

void truce__array_add(struct array *array, struct value value)
{
    struct array_key key;

    if (value.type == VALUE_MISSING)
        return;
    array_next_key(array, &key);
    truce__value_append(array->to, key.text, (size_t)key.length, value);
}

void truce__array_add_value(struct array *array, const bson_value_t *value)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_value(array->to, key.text, key.length, value));
}

void truce__array_add_document(struct array *array, const bson_t *document)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_document(array->to, key.text, key.length, document));
}

void truce__array_add_text(struct array *array, const char *text)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_utf8(array->to, key.text, key.length, text, -1));
}

void truce__array_add_oid(struct array *array, const bson_oid_t *oid)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_oid(array->to, key.text, key.length, oid));
}

void truce__array_add_int32(struct array *array, int32_t number)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_int32(array->to, key.text, key.length, number));
}

void truce__array_add_int64(struct array *array, int64_t number)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_int64(array->to, key.text, key.length, number));
}

void truce__array_open_document(struct array *array, bson_t *document)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_document_begin(array->to, key.text, key.length, document));
}

void truce__array_close_document(struct array *array, bson_t *document)
{
    array_check(bson_append_document_end(array->to, document));
}

void truce__array_open_array(struct array *array, struct array *inner)
{
    struct array_key key;

    array_next_key(array, &key);
    array_check(bson_append_array_begin(array->to, key.text, key.length, &inner->own));
    inner->to = &inner->own;
    inner->count = 0;
}

void truce__array_close_array(struct array *array, struct array *inner)
{
    array_check(bson_append_array_end(array->to, &inner->own));
}
