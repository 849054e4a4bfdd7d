/* Implements truce/json.h by json.h; the results own their memory. */
#include "truce/json.h"

#include "base/null.h"
#include "bson/json.h"

truce_status truce_json_read(const char *text, size_t size, truce_json_input input,
                             bson_t *document, bool *is_array, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    if (size)
        RETURN_EMPTY_IF_NULL(text, document, error);

    text = text ? text : "";

    struct json_reader reader = {.typed = input == TRUCE_JSON_TYPED};
    bool array = false;
    bson_t read;
    truce_status status =
        truce__json_read(&reader, text, size, &read, is_array ? &array : NULL, error);

    if (status)
        bson_init(document);
    else
        bson_copy_to(&read, document);
    if (is_array)
        *is_array = array;
    truce__json_reader_release(&reader);
    return status;
}

char *truce_json_write(const bson_t *document, bool is_array, truce_json_form form)
{
    struct buffer line = {0};

    if (!document)
        return NULL;
    truce__json_write(&line, document, is_array,
                      form == TRUCE_JSON_CANONICAL ? JSON_CANONICAL : JSON_RELAXED);
    truce__buffer_append_byte(&line, 0);
    return (char *)line.bytes;
}
