/*
 * Two documents from the input: their keys must order as the documents do, neither may be a prefix
 * of the other, and a descending key is the mirror image.
 */
#include "bson/key_encoding.h"

#include <stdlib.h>

#include "base/assert.h"

static int compare(const struct buffer *a, const struct buffer *b)
{
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, common);

    truce_assert(order != 0 || a->size == b->size);
    return (order > 0) - (order < 0);
}

static bool split(const uint8_t *data, size_t size, bson_t *a, bson_t *b)
{
    uint32_t length;

    if (size < 10)
        return false;
    memcpy(&length, data, 4);
    if (length < 5 || length > size - 5)
        return false;
    return bson_init_static(a, data, length) && bson_init_static(b, data + length, size - length) &&
           !truce__document_check(a, "first", NULL) && !truce__document_check(b, "second", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer left = {0}, right = {0};
    bson_t a, b;
    int order;

    if (!split(data, size, &a, &b))
        return 0;
    order = truce__value_compare(truce__value_document(&a), truce__value_document(&b));
    for (int descending = 0; descending < 2; descending++) {
        left.size = right.size = 0;
        truce__key_append(&left, truce__value_document(&a), descending);
        truce__key_append(&right, truce__value_document(&b), descending);
        truce_assert(compare(&left, &right) == (descending ? -1 : 1) * ((order > 0) - (order < 0)));
    }
    truce__buffer_release(&left);
    truce__buffer_release(&right);
    return 0;
}
