/*
 * The Extended JSON reader on any text. If it accepts a text, the result is well-formed BSON. The
 * canonical form of the result reads back as the same bytes, and its relaxed form reads back as
 * some document. A strict text is also valid as typed input, with the same meaning.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bson/json.h"
#include "bson/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(const bson_t *document, bool is_array, enum json_form form)
{
    struct json_reader reader = {0};
    struct buffer text = {0};
    bson_error_t error;
    bson_t again;
    bool array;
    truce_status status;

    truce__json_write(&text, document, is_array, form);
    truce_assert(truce__utf8_check((const char *)text.bytes, text.size) == text.size);
    status = truce__json_read(&reader, (const char *)text.bytes, text.size, &again, &array, &error);
    /* the canonical form of a document near the maximum may pass the maximum while it is read */
    if (status != TRUCE_LIMIT || document->len < 1 << 20) {
        truce_assert(!status && array == is_array);
        if (form == JSON_CANONICAL)
            truce_assert(bson_equal(document, &again));
    }
    truce__json_reader_release(&reader);
    truce__buffer_release(&text);
}

/* `strict`: the result of the strict reader for the same text; NULL: it refused it. */
static void read_typed(const char *text, size_t size, const bson_t *strict)
{
    struct json_reader reader = {.typed = true};
    bson_error_t error = {0};
    bson_t document;
    bool is_array;
    truce_status status = truce__json_read(&reader, text, size, &document, &is_array, &error);

    if (status)
        truce_assert(bson_empty(&document) && error.message[0] && !strict);
    else
        truce_assert(!truce__document_check(&document, "document", &error));
    truce_assert(!strict || bson_equal(strict, &document));
    truce__json_reader_release(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_reader reader = {0};
    bson_error_t error = {0};
    bson_t document;
    bool is_array;
    truce_status status =
        truce__json_read(&reader, (const char *)data, size, &document, &is_array, &error);

    if (status) {
        truce_assert(bson_empty(&document) && error.message[0]);
    } else {
        truce_assert(!truce__document_check(&document, "document", &error));
        read_again(&document, is_array, JSON_CANONICAL);
        read_again(&document, is_array, JSON_RELAXED);
    }
    read_typed((const char *)data, size, status ? NULL : &document);
    truce__json_reader_release(&reader);
    return 0;
}
