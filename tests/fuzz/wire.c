/*
 * The input is a message without its length. It is opened if it is compressed, read as a server
 * reads it, and answered from a store in memory. Whatever comes, the answer is one valid document
 * with `ok`.
 */
#include "server/net/wire_protocol.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/value.h"
#include "server/net/compress.h"
#include "tests/support/changed_bson.h"
#include "tests/support/still_server.h"

#define OPENED_MAX 65536

static void check_reply(const struct wire_request *request, const bson_t *reply)
{
    struct buffer out = {0};

    truce_assert(!truce__message_check(reply, NULL));
    truce_assert(bson_has_field(reply, "ok"));
    wire_write(&out, request, 1, reply);
    truce_assert(wire_length(out.bytes) == out.size);
    truce__buffer_release(&out);
}

/* Decompresses the message if it is compressed. False: it cannot be decompressed. */
static bool open_up(struct buffer *message)
{
    struct buffer plain = {0};
    bson_error_t error;
    int compressor;

    if (!compress_is(message->bytes, message->size))
        return true;
    if (!compress_open(message->bytes, message->size, OPENED_MAX, &plain, &compressor, &error)) {
        truce__buffer_release(&plain);
        return false;
    }
    truce_assert(plain.size <= OPENED_MAX && wire_length(plain.bytes) == plain.size);
    truce__buffer_release(message);
    *message = plain;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Opens a new store now and then, because written documents stay in memory. */
static struct server *fresh(struct server *server, uint32_t run)
{
    truce_store *store = server ? server->store : NULL;

    if (run % 5000)
        return server;
    if (server)
        server_stop(server, 0);
    truce_store_close(store);
    return still_serve(still_store(), NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server *server;
    static uint32_t runs;
    struct connection connection = {0};
    struct buffer message = {0};
    struct wire_request request;
    bson_error_t error;
    bson_t reply;

    if (size > 4096)
        return -1;
    server = fresh(server, runs++);
    connection.server = server;
    /* a copy, so that a read beyond the end is detected */
    truce__buffer_append(&message, &(uint32_t){BSON_UINT32_TO_LE((uint32_t)size + 4)}, 4);
    truce__buffer_append(&message, data, size);
    if (message.size > WIRE_HEAD && open_up(&message) && message.size > WIRE_HEAD &&
        wire_read(message.bytes, (uint32_t)message.size, &request, &error)) {
        server_dispatch(&connection, &request, &reply);
        check_reply(&request, &reply);
        bson_destroy(&reply);
        login_release(&connection.login);
    }
    truce__buffer_release(&message);
    return 0;
}

/* ---- mutations of an input ------------------------------------------------------------------- */

#define BODY 17 /* after the header without its length, the flags and the kind of the section */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

/* Half of them are changed as bytes, the others by a field, so that all lengths stay right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    uint32_t places, length = 0;
    bson_t body, *changed;

    if (size > BODY + 5)
        memcpy(&length, data + BODY, sizeof length);
    length = BSON_UINT32_FROM_LE(length);
    if (seed & 1 || length < 5 || length > size - BODY ||
        !bson_init_static(&body, data + BODY, length) || truce__message_check(&body, NULL))
        return LLVMFuzzerMutate(data, size, room);
    places = bson_places(&body);
    if (!places)
        return LLVMFuzzerMutate(data, size, room);
    changed = bson_changed(&body, (seed >> 1) % places, (seed >> 8) % bson_changes);
    if (size - length + changed->len <= room) {
        memmove(data + BODY + changed->len, data + BODY + length, size - BODY - length);
        memcpy(data + BODY, bson_get_data(changed), changed->len);
        size = size - length + changed->len;
    }
    bson_destroy(changed);
    return size;
}
