#ifndef TRUCE_SERVER_NET_COMPRESS_H
#define TRUCE_SERVER_NET_COMPRESS_H

/*
 * Messages that are compressed (OP_COMPRESSED, 2012):
 *
 *     header (16)  original opcode (4)  size of what follows the header, plain (4)  compressor (1)  bytes
 *
 * Compressors: 0 none, 1 snappy, 2 zlib, 3 zstd. A client names those it has in its hello, the server answers with
 * those of them that it has, in the client's order; then the client compresses what it likes to, and the server answers
 * in the same way.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

#define COMPRESS_NOTHING (-1)

/* Number of the compressor of this name; COMPRESS_NOTHING: there is none. */
int compress_number(const char *name);

/* Does an OP_COMPRESSED begin so? */
bool compress_is(const uint8_t *message, size_t size);

/* Makes the plain message of a compressed one, `most` bytes long at most: a size above that is refused before any memory is
 * taken for it. False: it is not sound, and nothing of `plain` is to be read. */
bool compress_open(const uint8_t *message, size_t size, size_t most, struct buffer *plain,
                   int *compressor, bson_error_t *error);

/* Compresses a whole message in its place, however short it is, as MongoDB does: drivers look for it. */
void compress_close(struct buffer *message, int compressor);

#endif
