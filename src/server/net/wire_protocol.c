#include "server/net/wire_protocol.h"

#include <string.h>

#include "base/limits.h"
#include "base/status.h"

#define OP_REPLY      1
#define OP_QUERY      2004
#define OP_COMPRESSED 2012
#define OP_MSG        2013

#define FLAG_CHECKSUM 1u
#define FLAG_MORE     2u
/* Flags below this bit must be understood; those above may be ignored (exhaustAllowed is one). */
#define FLAGS_REQUIRED 0xffffu

/* The unread part of a message. */
struct reader {
    const uint8_t *at, *end;
};

static bool wire_take_number(struct reader *reader, uint32_t *number)
{
    if (reader->end - reader->at < 4)
        return false;
    memcpy(number, reader->at, 4);
    *number = BSON_UINT32_FROM_LE(*number);
    reader->at += 4;
    return true;
}

static bool take_text(struct reader *reader, const char **text)
{
    const uint8_t *end = memchr(reader->at, 0, (size_t)(reader->end - reader->at));

    if (!end)
        return false;
    *text = (const char *)reader->at;
    reader->at = end + 1;
    return true;
}

/* Returns a view of the next document. Only its length is checked. */
static bool wire_take_document(struct reader *reader, bson_t *document)
{
    struct reader ahead = *reader;
    uint32_t length;

    if (!wire_take_number(&ahead, &length) || length < 5 ||
        length > (size_t)(reader->end - reader->at) ||
        !bson_init_static(document, reader->at, length))
        return false;
    reader->at += length;
    return true;
}

uint32_t wire_length(const uint8_t head[WIRE_HEAD])
{
    struct reader reader = {head, head + WIRE_HEAD};
    uint32_t length = 0;

    return wire_take_number(&reader, &length) && length > WIRE_HEAD &&
                   length <= TRUCE_MESSAGE_BYTES_MAX
               ? length
               : 0;
}

bool wire_is_plain(uint32_t opcode)
{
    return opcode == OP_MSG || opcode == OP_QUERY;
}

bool wire_is_request(const uint8_t head[WIRE_HEAD])
{
    struct reader reader = {head + 12, head + WIRE_HEAD};
    uint32_t opcode = 0;

    return wire_take_number(&reader, &opcode) && (wire_is_plain(opcode) || opcode == OP_COMPRESSED);
}

/* Computes CRC-32C (Castagnoli) with a table of 256 entries. */
uint32_t wire_crc32c(const uint8_t *bytes, size_t size)
{
    uint32_t sum = 0xffffffffu, table[256];

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
    }
    for (size_t i = 0; i < size; i++)
        sum = sum >> 8 ^ table[(sum ^ bytes[i]) & 0xff];
    return ~sum;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a section of an OP_MSG. Returns NULL, or the reason why it is invalid. */
static const char *read_section(struct reader *reader, struct wire_request *request, bool *has_body)
{
    uint8_t kind = *reader->at++;
    struct reader inner = *reader;
    struct wire_section *section = &request->sections[request->count];
    uint32_t size;

    if (kind == 0) {
        if (*has_body)
            return "has two commands";
        *has_body = true;
        return wire_take_document(reader, &request->body) ? NULL : "is truncated in its command";
    }
    if (kind != 1)
        return "has a section of an unknown kind";
    if (request->count == WIRE_SECTIONS_MAX)
        return "has too many sections";
    if (!wire_take_number(&inner, &size) || size < 5 || size > (size_t)(reader->end - reader->at))
        return "has a truncated section";
    inner.end = reader->at + size;
    if (!take_text(&inner, &section->name))
        return "has a section whose name does not end";
    section->bytes = inner.at;
    section->size = (size_t)(inner.end - inner.at);
    reader->at = inner.end;
    request->count++;
    return NULL;
}

static const char *wire_check_sum(const uint8_t *message, struct reader *reader)
{
    uint32_t sum;
    struct reader last = {reader->end - 4, reader->end};

    if (reader->end - reader->at < 4 || !wire_take_number(&last, &sum))
        return "is too short for its checksum";
    reader->end -= 4;
    return sum == wire_crc32c(message, (size_t)(reader->end - message)) ? NULL
                                                                        : "has a wrong checksum";
}

/* Reads an OP_MSG after its header. Returns NULL, or the reason why it is invalid. */
static const char *read_message(const uint8_t *message, struct reader *reader,
                                struct wire_request *request)
{
    const char *wrong = NULL;
    bool has_body = false;
    uint32_t flags;

    if (!wire_take_number(reader, &flags))
        return "is too short";
    if (flags & FLAGS_REQUIRED & ~(FLAG_CHECKSUM | FLAG_MORE))
        return "has unknown flags";
    request->silent = flags & FLAG_MORE;
    request->summed = flags & FLAG_CHECKSUM;
    if (request->summed)
        wrong = wire_check_sum(message, reader);
    while (!wrong && reader->at < reader->end)
        wrong = read_section(reader, request, &has_body);
    return wrong ? wrong : has_body ? NULL : "has no command";
}

static const char *wire_read_query(struct reader *reader, struct wire_request *request)
{
    uint32_t flags, skip, count;

    request->old = true;
    if (!wire_take_number(reader, &flags) || !take_text(reader, &request->namespace) ||
        !wire_take_number(reader, &skip) || !wire_take_number(reader, &count) ||
        !wire_take_document(reader, &request->body))
        return "is truncated";
    return NULL;
}

bool wire_read(const uint8_t *message, uint32_t size, struct wire_request *request,
               bson_error_t *error)
{
    struct reader reader = {message + 4, message + size};
    uint32_t id = 0, answered, opcode = 0;
    const char *wrong = "has an unknown opcode: truce supports OP_MSG";

    *request = (struct wire_request){0};
    (void)(wire_take_number(&reader, &id) && wire_take_number(&reader, &answered) &&
           wire_take_number(&reader, &opcode));
    request->id = (int32_t)id;
    if (opcode == OP_MSG)
        wrong = read_message(message, &reader, request);
    else if (opcode == OP_QUERY)
        wrong = wire_read_query(&reader, request);
    if (wrong) {
        truce__fail(TRUCE_INVALID, error, "the message %s", wrong);
        return false;
    }
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void wire_put_number(struct buffer *out, uint32_t number)
{
    number = BSON_UINT32_TO_LE(number);
    truce__buffer_append(out, &number, sizeof number);
}

void wire_write(struct buffer *out, const struct wire_request *request, int32_t id,
                const bson_t *reply)
{
    uint32_t extra = request->old ? 20 : 5 + (request->summed ? 4 : 0);
    size_t start = out->size;

    wire_put_number(out, WIRE_HEAD + extra + reply->len);
    wire_put_number(out, (uint32_t)id);
    wire_put_number(out, (uint32_t)request->id);
    wire_put_number(out, request->old ? OP_REPLY : OP_MSG);
    if (request->old) { /* The head of an OP_REPLY: flags, cursor (8 bytes), first, count. */
        wire_put_number(out, 8);
        wire_put_number(out, 0);
        wire_put_number(out, 0);
        wire_put_number(out, 0);
        wire_put_number(out, 1);
    } else {
        wire_put_number(out, request->summed ? FLAG_CHECKSUM : 0);
        truce__buffer_append_byte(out, 0);
    }
    truce__buffer_append(out, bson_get_data(reply), reply->len);
    if (!request->old && request->summed)
        wire_put_number(out, wire_crc32c(out->bytes + start, out->size - start));
}
