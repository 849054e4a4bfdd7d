#ifndef TRUCE_SERVER_NET_WIRE_H
#define TRUCE_SERVER_NET_WIRE_H

/*
 * MongoDB's wire protocol: bytes to a request, a reply to bytes. No socket, no store.
 *
 *     header (16): length, request id, id that is answered, opcode
 *     OP_MSG (2013):   flags, sections, [CRC-32C]
 *         a section 0: the command; a section 1: size, name, documents ("documents", "updates" ...)
 *     OP_QUERY (2004): flags, "admin.$cmd", skip, count, the command   -> OP_REPLY (1)
 *                      what drivers begin a connection with
 *     OP_COMPRESSED (2012): one of them, compressed (compress.h)
 *
 * The public specification: "MongoDB Wire Protocol" in MongoDB's manual.
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/buffer.h"

#define WIRE_HEAD         16
#define WIRE_SECTIONS_MAX 8

/* Documents that follow the command, one after the other. They are not checked yet. */
struct wire_section {
    const char *name;
    const uint8_t *bytes;
    size_t size;
};

struct wire_request {
    int32_t id;
    bool old;              /* came as OP_QUERY, is answered as OP_REPLY */
    bool silent;           /* no answer is wanted */
    bool summed;           /* came with a checksum, is answered with one */
    const char *namespace; /* of OP_QUERY: "admin.$cmd" */
    bson_t body;           /* a view of the command, which is still to be checked */
    struct wire_section sections[WIRE_SECTIONS_MAX];
    uint32_t count;
};

/* The length that a message says it has; 0: no message is so long or so short. */
uint32_t wire_length(const uint8_t head[WIRE_HEAD]);

/* Is it the opcode of a request that is not compressed? */
bool wire_is_plain(uint32_t opcode);

/* Does a request begin so, of an opcode that is known? One who speaks something else (TLS) is
 * known by it. */
bool wire_is_request(const uint8_t head[WIRE_HEAD]);

/* Reads a whole message; all is borrowed from its bytes. False: `error` says what is wrong with
 * it, and the connection cannot go on. */
bool wire_read(const uint8_t *message, uint32_t size, struct wire_request *request,
               bson_error_t *error);

/* Appends the answer to `request`; `id` is the message's own. */
void wire_write(struct buffer *out, const struct wire_request *request, int32_t id,
                const bson_t *reply);

uint32_t wire_crc32c(const uint8_t *bytes, size_t size);

#endif
