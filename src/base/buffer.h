#ifndef TRUCE_BASE_BUFFER_H
#define TRUCE_BASE_BUFFER_H

/* Bytes that grow. Zero-initialise; release frees. Out of memory aborts. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buffer {
    uint8_t *bytes;
    size_t size, room;
};

void truce__buffer_grow(struct buffer *buffer, size_t more);
void truce__buffer_release(struct buffer *buffer);

/* Room for so many bytes behind those that are there. */
static inline void truce__buffer_reserve(struct buffer *buffer, size_t more)
{
    if (!buffer->bytes || buffer->room - buffer->size < more)
        truce__buffer_grow(buffer, more);
}

static inline void truce__buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
    truce__buffer_reserve(buffer, size);
    if (size)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

static inline void truce__buffer_append_byte(struct buffer *buffer, uint8_t byte)
{
    truce__buffer_reserve(buffer, 1);
    buffer->bytes[buffer->size++] = byte;
}

#endif
