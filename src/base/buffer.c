#include "base/buffer.h"

#include <bson/bson.h>

void truce__buffer_grow(struct buffer *buffer, size_t more)
{
    size_t room = buffer->room ? buffer->room : 64;

    while (room - buffer->size < more)
        room *= 2;
    buffer->bytes = bson_realloc(buffer->bytes, room);
    buffer->room = room;
}

void truce__buffer_release(struct buffer *buffer)
{
    bson_free(buffer->bytes);
    *buffer = (struct buffer){0};
}
