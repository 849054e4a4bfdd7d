#ifndef TRUCE_BROKER_PLUGINS_PLUGIN_H
#define TRUCE_BROKER_PLUGINS_PLUGIN_H

/* The common part of the modules. It is compiled into each of them, because they use nothing of
 * libtruce. */
#include "broker/broker.h"

/* Does what truce__fail does, but does not escape control characters. */
truce_status plugin_fail(truce_status status, bson_error_t *error, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* Makes a message with a copy of the body. */
struct broker_message *plugin_message(const void *body, size_t size);

/* Appends bytes as a string if they are UTF-8, else as binary data. */
void plugin_append_bytes(bson_t *to, const char *key, const void *bytes, size_t size);

#endif
