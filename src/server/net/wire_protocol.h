#ifndef TRUCE_SERVER_NET_WIRE_PROTOCOL_H
#define TRUCE_SERVER_NET_WIRE_PROTOCOL_H

/*
 * MongoDB's wire protocol: bytes to a request, a reply to bytes. No socket, no store.
 *
 *     header (16): length, request id, the request id that a reply is for, opcode
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
    bool old;              /* The request is an OP_QUERY, and its reply an OP_REPLY. */
    bool silent;           /* The client wants no reply. */
    bool summed;           /* The request has a checksum, so the reply gets one. */
    const char *namespace; /* The collection of an OP_QUERY: "admin.$cmd". */
    bson_t body;           /* The command, a view into the message that is not checked yet. */
    struct wire_section sections[WIRE_SECTIONS_MAX];
    uint32_t count;
};

/* Returns the length in the message's header, or 0 if it is outside of the limits. */
uint32_t wire_length(const uint8_t head[WIRE_HEAD]);

/* Returns whether the opcode is that of an uncompressed request. */
bool wire_is_plain(uint32_t opcode);

/* Returns whether the header is that of a request with a known opcode. Other protocols (TLS) fail
 * this check. */
bool wire_is_request(const uint8_t head[WIRE_HEAD]);

/* Reads a whole message. The request borrows from its bytes. Returns false if it is invalid:
 * `error` has the reason, and the connection must end. */
bool wire_read(const uint8_t *message, uint32_t size, struct wire_request *request,
               bson_error_t *error);

/* Appends the reply to `request`; `id` is the id of the reply. */
void wire_write(struct buffer *out, const struct wire_request *request, int32_t id,
                const bson_t *reply);

uint32_t wire_crc32c(const uint8_t *bytes, size_t size);

#endif
