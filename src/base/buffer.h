#ifndef TRUCE_BASE_BUFFER_H
#define TRUCE_BASE_BUFFER_H

/* A growing byte array. Zero-initialize it; release frees it. If memory runs out, the process
 * aborts. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buffer {
    uint8_t *bytes;
    size_t size, room;
};

void truce__buffer_grow(struct buffer *buffer, size_t more);
void truce__buffer_release(struct buffer *buffer);

/* Makes room for `more` bytes after the bytes in use. */
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

static inline void truce__buffer_append_text(struct buffer *buffer, const char *text)
{
    truce__buffer_append(buffer, text, strlen(text));
}

/* Compares bytes as memcmp does. A prefix comes before a longer string. Empty strings may be
 * NULL. */
static inline int truce__bytes_compare(const uint8_t *a, size_t a_size, const uint8_t *b,
                                       size_t b_size)
{
    size_t common = a_size < b_size ? a_size : b_size;
    int order = common ? memcmp(a, b, common) : 0;

    return order ? order : (a_size > b_size) - (a_size < b_size);
}

#endif
