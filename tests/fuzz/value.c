/*
 * Values. Raw bytes that pass the check can be walked, copied, shown, compared, and hashed. Three
 * values made from decisions obey the laws of a total order with a hash.
 */
#include "bson/value.h"

#include "base/assert.h"
#include "base/limits.h"
#include "tests/support/fuzz_input.h"

static int sign(int number)
{
    return (number > 0) - (number < 0);
}

static void check_laws(const struct value *v)
{
    char text[64];

    for (int i = 0; i < 3; i++) {
        truce_assert(truce__value_compare(v[i], v[i]) == 0);
        truce__value_show(v[i], text, sizeof text);
        truce_assert(bson_utf8_validate(text, strlen(text), false));
        for (int j = 0; j < 3; j++) {
            int order = sign(truce__value_compare(v[i], v[j]));

            truce_assert(order == -sign(truce__value_compare(v[j], v[i])));
            truce_assert(order != 0 || truce__value_hash(v[i]) == truce__value_hash(v[j]));
            truce_assert(order == 0 || !truce__value_identical(v[i], v[j]));
            for (int k = 0; k < 3; k++) {
                int next = sign(truce__value_compare(v[j], v[k]));

                if (order <= 0 && next <= 0)
                    truce_assert(sign(truce__value_compare(v[i], v[k])) ==
                                 (order < 0 || next < 0 ? -1 : 0));
            }
        }
    }
}

static void check_made(struct fuzz_input *input)
{
    bson_t *documents[3];
    struct value values[3];

    for (int i = 0; i < 3; i++) {
        struct fields fields;

        documents[i] = bson_new();
        fuzz_append(input, documents[i], "v", 3);
        /* large operands may make a document that is too large */
        truce_assert(documents[i]->len > TRUCE_DOCUMENT_BYTES_MAX ||
                     !truce__document_check(documents[i], "document", NULL));
        fields = truce__fields(truce__value_document(documents[i]));
        truce__fields_next(&fields);
        values[i] = fields.value;
    }
    check_laws(values);
    for (int i = 0; i < 3; i++)
        bson_destroy(documents[i]);
}

static void check_raw(const uint8_t *data, size_t size)
{
    bson_t document, copy = BSON_INITIALIZER;
    struct fields fields;
    char text[200];

    if (!bson_init_static(&document, data, size) ||
        truce__document_check(&document, "document", NULL) != TRUCE_OK)
        return;
    fields = truce__fields(truce__value_document(&document));
    while (truce__fields_next(&fields)) {
        truce__value_append(&copy, fields.key, fields.key_length, fields.value);
        truce__value_show(fields.value, text, sizeof text);
        truce__value_hash(fields.value);
        truce_assert(truce__value_equal(fields.value, fields.value));
    }
    truce_assert(copy.len == document.len && !memcmp(bson_get_data(&copy), data, size));
    bson_destroy(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};

    if (fuzz_byte(&input) % 2)
        check_made(&input);
    else
        check_raw(input.at, input.left);
    return 0;
}
