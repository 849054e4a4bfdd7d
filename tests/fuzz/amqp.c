/* The decoder of RabbitMQ's messages: any table of headers that librabbitmq reads, and any strings
 * of the properties, become a document. */
#include "tests/support/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef TRUCE_TEST_AMQP

#include <string.h>

#include <amqp.h>

#include "base/assert.h"
#include "broker/plugins/amqp_message.h"
#include "bson/value.h"

static amqp_basic_properties_t fuzz_properties(amqp_bytes_t text, const amqp_table_t *headers)
{
    return (amqp_basic_properties_t){
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
                  AMQP_BASIC_TIMESTAMP_FLAG,
        .headers = *headers,
        .message_id = text,
        .type = text,
        .timestamp = text.len >= 8 ? *(const uint64_t *)text.bytes : 0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = bson_malloc0(size + 8); /* aligned */
    amqp_bytes_t encoded = {.len = size, .bytes = copy};
    amqp_table_t headers;
    amqp_pool_t pool;
    size_t offset = 0;

    memcpy(copy, data, size);
    init_amqp_pool(&pool, 4096);
    if (!amqp_decode_table(encoded, &pool, &headers, &offset)) {
        amqp_envelope_t envelope = {.message.properties = fuzz_properties(encoded, &headers),
                                    .message.body = encoded,
                                    .exchange = encoded};
        struct broker_message *message = amqp_message_make(&envelope);
        int64_t position;

        truce_assert(truce__document_valid(bson_get_data(&message->facts), message->facts.len));
        (void)amqp_message_offset(message, &position);
        truce__broker_message_free(message);
    }
    empty_amqp_pool(&pool);
    bson_free(copy);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size; /* the client library is not installed */
    return 0;
}

#endif
