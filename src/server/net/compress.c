/*
 * Invariants:
 *  1. At most `most` bytes are written, and never more than the size in the message: the
 *     decompressors get a buffer of that size.
 *  2. A message whose decompressed size differs from the size in it is refused.
 *  3. A compressed message contains an OP_MSG or an OP_QUERY, never another compressed one.
 */
#include "server/net/compress.h"

#include <stdlib.h>
#include <string.h>

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "server/net/wire_protocol.h"

#define OP_COMPRESSED 2012
#define HEAD          (WIRE_HEAD + 9)
#define ZSTD_QUICK    1
/* The largest size that zlib and snappy support. No message reaches it. */
#define COMPRESSED_MAX 0x7e000000u

enum { NOTHING_DONE, SNAPPY, ZLIB, ZSTD };

static const char *const names[] = {"noop", "snappy", "zlib", "zstd"};

int compress_number(const char *name)
{
    for (int i = SNAPPY; i <= ZSTD; i++)
        if (!strcmp(names[i], name))
            return i;
    return COMPRESS_NOTHING;
}

static uint32_t compress_number_at(const uint8_t *bytes)
{
    uint32_t number;

    memcpy(&number, bytes, sizeof number);
    return BSON_UINT32_FROM_LE(number);
}

static void set_number(uint8_t *bytes, uint32_t number)
{
    number = BSON_UINT32_TO_LE(number);
    memcpy(bytes, &number, sizeof number);
}

bool compress_is(const uint8_t *message, size_t size)
{
    return size >= WIRE_HEAD && compress_number_at(message + 12) == OP_COMPRESSED;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool inflate_all(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    uLongf written = (uLongf)room;

    return uncompress(to, &written, from, (uLong)size) == Z_OK && written == room;
}

static bool snappy_decompress(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    size_t length = 0;

    return snappy_uncompressed_length((const char *)from, size, &length) == SNAPPY_OK &&
           length == room &&
           snappy_uncompress((const char *)from, size, (char *)to, &length) == SNAPPY_OK &&
           length == room;
}

/* Decompresses to exactly `room` bytes. Returns false if the data are invalid or have another
 * size. */
static bool compress_expand(int compressor, const uint8_t *from, size_t size, uint8_t *to,
                            size_t room)
{
    switch (compressor) {
    case NOTHING_DONE:
        if (size == room)
            memcpy(to, from, room);
        return size == room;
    case SNAPPY:
        return snappy_decompress(from, size, to, room);
    case ZLIB:
        return inflate_all(from, size, to, room);
    case ZSTD:
        return ZSTD_decompress(to, room, from, size) == room;
    default:
        return false;
    }
}

bool compress_open(const uint8_t *message, size_t size, size_t most, struct buffer *plain,
                   int *compressor, bson_error_t *error)
{
    const char *wrong = NULL;
    uint32_t room = 0;

    plain->size = 0;
    if (size <= HEAD)
        wrong = "is truncated";
    else if (room = compress_number_at(message + WIRE_HEAD + 4),
             room > most || room + WIRE_HEAD > most)
        wrong = "exceeds the maximum size after decompression";
    else if (!wire_is_plain(compress_number_at(message + WIRE_HEAD)))
        wrong = "contains an unknown opcode";
    if (!wrong) {
        *compressor = message[WIRE_HEAD + 8];
        truce__buffer_reserve(plain, WIRE_HEAD + (size_t)room);
        memcpy(plain->bytes, message, WIRE_HEAD);
        set_number(plain->bytes, WIRE_HEAD + room);
        memcpy(plain->bytes + 12, message + WIRE_HEAD, 4);
        plain->size = WIRE_HEAD + (size_t)room;
        if (!compress_expand(*compressor, message + HEAD, size - HEAD, plain->bytes + WIRE_HEAD,
                             room))
            wrong = "cannot be decompressed";
    }
    if (wrong)
        truce__fail(TRUCE_INVALID, error, "the compressed message %s", wrong);
    return !wrong;
}

/* ---- closing --------------------------------------------------------------------------------- */

static size_t compress_room_for(int compressor, size_t size)
{
    switch (compressor) {
    case SNAPPY:
        return snappy_max_compressed_length(size);
    case ZLIB:
        return compressBound((uLong)size);
    default:
        return ZSTD_compressBound(size);
    }
}

/* Returns the compressed size, or 0 if the compressor failed. */
static size_t compress_shrink(int compressor, const uint8_t *from, size_t size, uint8_t *to,
                              size_t room)
{
    uLongf written = (uLongf)room;
    size_t length = room;

    switch (compressor) {
    case SNAPPY:
        return snappy_compress((const char *)from, size, (char *)to, &length) == SNAPPY_OK ? length
                                                                                           : 0;
    case ZLIB:
        return compress2(to, &written, from, (uLong)size, Z_DEFAULT_COMPRESSION) == Z_OK ? written
                                                                                         : 0;
    default:
        length = ZSTD_compress(to, room, from, size, ZSTD_QUICK);
        return ZSTD_isError(length) ? 0 : length;
    }
}

void compress_close(struct buffer *message, int compressor)
{
    size_t plain = message->size - WIRE_HEAD, room, size;
    struct buffer made = {0};

    if (compressor < SNAPPY || compressor > ZSTD || message->size > COMPRESSED_MAX)
        return;
    room = compress_room_for(compressor, plain);
    truce__buffer_reserve(&made, HEAD + room);
    size = compress_shrink(compressor, message->bytes + WIRE_HEAD, plain, made.bytes + HEAD, room);
    if (!size) {
        truce__buffer_release(&made);
        return;
    }
    memcpy(made.bytes, message->bytes, WIRE_HEAD);
    memcpy(made.bytes + WIRE_HEAD, message->bytes + 12, 4);
    set_number(made.bytes, (uint32_t)(HEAD + size));
    set_number(made.bytes + 12, OP_COMPRESSED);
    set_number(made.bytes + WIRE_HEAD + 4, (uint32_t)plain);
    made.bytes[WIRE_HEAD + 8] = (uint8_t)compressor;
    made.size = HEAD + size;
    truce__buffer_release(message);
    *message = made;
}
