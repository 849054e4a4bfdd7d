#ifndef TRUCE_SERVER_NET_COMPRESS_H
#define TRUCE_SERVER_NET_COMPRESS_H

/*
 * Compressed messages (OP_COMPRESSED, 2012):
 *
 *     header (16)  original opcode (4)  size of the plain rest (4)  compressor (1)  bytes
 *
 * Compressors: 0 none, 1 snappy, 2 zlib, 3 zstd. A client names its compressors in hello, and the
 * server replies with those that it supports, in the client's order. The client then compresses
 * any message, and the server uses the same compressor for the reply.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

#define COMPRESS_NOTHING (-1)

/* Returns the number of the compressor with this name, or COMPRESS_NOTHING if the name is
 * unknown. */
int compress_number(const char *name);

/* Returns whether the message is an OP_COMPRESSED. */
bool compress_is(const uint8_t *message, size_t size);

/* Decompresses a message to at most `most` bytes. A larger size is refused before memory is
 * allocated. Returns false for an invalid message; then `plain` must not be read. */
bool compress_open(const uint8_t *message, size_t size, size_t most, struct buffer *plain,
                   int *compressor, bson_error_t *error);

/* Compresses a whole message in place, however short, as MongoDB does and drivers expect. */
void compress_close(struct buffer *message, int compressor);

#endif
