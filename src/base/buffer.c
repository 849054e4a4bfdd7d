#include "base/buffer.h"

#include <string.h>

#include <bson/bson.h>

void truce__buffer_reserve(struct buffer *buffer, size_t more)
{
    size_t room = buffer->room ? buffer->room : 64;

    if (buffer->bytes && buffer->room - buffer->size >= more)
        return;
    while (room - buffer->size < more)
        room *= 2;
    buffer->bytes = bson_realloc(buffer->bytes, room);
    buffer->room = room;
}

void truce__buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
    truce__buffer_reserve(buffer, size);
    if (size)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

void truce__buffer_append_byte(struct buffer *buffer, uint8_t byte)
{
    truce__buffer_append(buffer, &byte, 1);
}

void truce__buffer_release(struct buffer *buffer)
{
    bson_free(buffer->bytes);
    *buffer = (struct buffer){0};
}
