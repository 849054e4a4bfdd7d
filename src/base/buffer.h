#ifndef TRUCE_BASE_BUFFER_H
#define TRUCE_BASE_BUFFER_H

/* Bytes that grow. Zero-initialise; release frees. Out of memory aborts. */
#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *bytes;
    size_t size, room;
};

void truce__buffer_append(struct buffer *buffer, const void *bytes, size_t size);
void truce__buffer_append_byte(struct buffer *buffer, uint8_t byte);
void truce__buffer_reserve(struct buffer *buffer, size_t more);
void truce__buffer_release(struct buffer *buffer);

#endif
