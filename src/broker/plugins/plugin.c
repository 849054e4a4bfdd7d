#include "broker/plugins/plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

truce_status plugin_fail(truce_status status, bson_error_t *error, const char *format, ...)
{
    va_list arguments;

    if (!error)
        return status;
    error->domain = TRUCE_ERROR;
    error->code = (uint32_t)status;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

struct broker_message *plugin_message(const void *body, size_t size)
{
    struct broker_message *message = bson_malloc0(sizeof *message);

    bson_init(&message->facts);
    message->size = size;
    message->body = bson_malloc(size + 1);
    if (size)
        memcpy(message->body, body, size);
    return message;
}

void plugin_append_bytes(bson_t *to, const char *key, const void *bytes, size_t size)
{
    if (!size)
        bytes = ""; /* The pointer may be NULL if there are no bytes. */
    if (size <= INT32_MAX && bson_utf8_validate(bytes, size, false))
        bson_append_utf8(to, key, -1, bytes, (int)size);
    else
        bson_append_binary(to, key, -1, BSON_SUBTYPE_BINARY, bytes, (uint32_t)size);
}
