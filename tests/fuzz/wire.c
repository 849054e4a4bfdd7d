/*
 * The input is a message without its length: it is opened if it is compressed, read as a server reads it, and answered from
 * a store in memory. Whatever comes, the answer is one sound document with `ok`.
 */
#include "server/wire.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "server/call.h"
#include "server/compress.h"
#include "store/store.h"
#include "tests/support/no_sleep.h"

#define OPENED_MAX 65536

/* Nobody else writes: the time passes, and that is all. */
static truce_status wait_in_vain(truce_store *store, const char *collection, uint64_t *token,
                                 uint32_t timeout_ms, bson_error_t *error)
{
    (void)store;
    (void)token;
    truce__clock_sleep_ms(timeout_ms);
    return truce__fail(TRUCE_TIMEOUT, error, "nothing was written to %s in %u ms", collection,
                       timeout_ms);
}

static struct server *start(void)
{
    static truce_store_ops ops;
    truce_store *store;
    struct server *server;

    truce_assert(!truce_store_open("memory:", NULL, &store, NULL));
    ops = *store->ops;
    ops.wait = wait_in_vain;
    store->ops = &ops;
    no_sleep_use();
    truce_assert(!server_start(store, NULL, &server, NULL));
    return server;
}

static void check_reply(const struct wire_request *request, const bson_t *reply)
{
    struct buffer out = {0};

    truce_assert(!truce__message_check(reply, NULL));
    truce_assert(bson_has_field(reply, "ok"));
    wire_write(&out, request, 1, reply);
    truce_assert(wire_length(out.bytes) == out.size);
    truce__buffer_release(&out);
}

/* False: it is none, or one that lies. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server *server;
    struct connection connection = {0};
    struct buffer message = {0};
    struct wire_request request;
    bson_error_t error;
    bson_t reply;

    if (!server)
        server = start();
    if (size > 4096)
        return -1;
    connection.server = server;
    /* a copy, so that what is read beyond the end is seen */
    truce__buffer_append(&message, &(uint32_t){BSON_UINT32_TO_LE((uint32_t)size + 4)}, 4);
    truce__buffer_append(&message, data, size);
    if (message.size > WIRE_HEAD && open_up(&message) && message.size > WIRE_HEAD &&
        wire_read(message.bytes, (uint32_t)message.size, &request, &error)) {
        call_run(&connection, &request, &reply);
        check_reply(&request, &reply);
        bson_destroy(&reply);
    }
    truce__buffer_release(&message);
    return 0;
}
