/* Messages that are compressed: there and back, and none that lies. */
#include <string.h>

#include "base/random.h"
#include "server/net/compress.h"
#include "server/net/wire_protocol.h"
#include "tests/support/test.h"

#define OP_MSG_BYTES 4
#define MOST         100000

static const int compressors[] = {1, 2, 3};

static struct buffer plain_message(size_t size, bool random)
{
    struct buffer message = {0};
    const uint32_t head[] = {BSON_UINT32_TO_LE((uint32_t)size), BSON_UINT32_TO_LE(7), 0,
                             BSON_UINT32_TO_LE(2013)};

    truce__buffer_append(&message, head, sizeof head);
    while (message.size < size)
        truce__buffer_append_byte(&message, random ? (uint8_t)truce__random_entropy() : 'x');
    return message;
}

static bool opens(const struct buffer *message, size_t most, struct buffer *plain)
{
    bson_error_t error = {0};
    int compressor;
    bool opened;

    truce__buffer_release(plain);
    opened = compress_open(message->bytes, message->size, most, plain, &compressor, &error);
    CHECK(opened || error.message[0]);
    return opened;
}

TEST(a_message_is_the_same_after_it_was_compressed)
{
    static const size_t sizes[] = {512, 513, 4096, 99984, 100000};

    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            struct buffer message = plain_message(sizes[j], false), opened = {0},
                          same = plain_message(sizes[j], false);

            compress_close(&message, compressors[i]);
            CHECK(compress_is(message.bytes, message.size) && message.size < sizes[j] / 5);
            CHECK_INT(wire_length(message.bytes), ==, message.size);
            CHECK(opens(&message, MOST, &opened));
            CHECK(opened.size == same.size && !memcmp(opened.bytes, same.bytes, same.size));
            truce__buffer_release(&message);
            truce__buffer_release(&opened);
            truce__buffer_release(&same);
        }
}

TEST(compresses_messages_that_do_not_shrink)
{
    for (int i = 0; i < 3; i++) {
        struct buffer tiny = plain_message(100, false), noise = plain_message(2000, true),
                      opened = {0};

        compress_close(&tiny, compressors[i]);
        compress_close(&noise, compressors[i]);
        CHECK(compress_is(tiny.bytes, tiny.size) && compress_is(noise.bytes, noise.size));
        CHECK(opens(&tiny, MOST, &opened) && opened.size == 100);
        CHECK(opens(&noise, MOST, &opened) && opened.size == 2000);
        truce__buffer_release(&tiny);
        truce__buffer_release(&noise);
        truce__buffer_release(&opened);
    }
}

/* Every number of the head that is not its own, every length that is cut. */
static void check_lies(struct buffer *message)
{
    static const uint32_t wrong[] = {0, 1, 83, 85, 65536, 0x7fffffff, 0xffffffff};
    struct buffer opened = {0};
    size_t size = message->size;
    uint32_t own;

    memcpy(&own, message->bytes + 20, 4);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint32_t number = BSON_UINT32_TO_LE(wrong[i]);

        memcpy(message->bytes + 20, &number, 4);
        CHECK(!opens(message, MOST, &opened));
        memcpy(message->bytes + 20, &own, 4);
    }
    for (message->size = 0; message->size < size; message->size++)
        CHECK(!opens(message, MOST, &opened));
    message->size = size;
    message->bytes[24] = 4; /* an unknown compressor */
    CHECK(!opens(message, MOST, &opened));
    message->bytes[24] = 255;
    CHECK(!opens(message, MOST, &opened));
    truce__buffer_release(&opened);
}

TEST(refuses_a_message_with_a_wrong_header)
{
    for (int i = 0; i < 3; i++) {
        struct buffer message = plain_message(1000, false), opened = {0};

        compress_close(&message, compressors[i]);
        REQUIRE(compress_is(message.bytes, message.size));
        check_lies(&message);
        message.bytes[24] = (uint8_t)compressors[i];
        CHECK(opens(&message, MOST, &opened));
        memcpy(message.bytes + 16, &(uint32_t){BSON_UINT32_TO_LE(2012)}, 4);
        CHECK(!opens(&message, MOST, &opened)); /* compressed twice */
        truce__buffer_release(&message);
        truce__buffer_release(&opened);
    }
}

TEST(a_message_that_is_too_long_when_opened_takes_no_memory)
{
    for (int i = 0; i < 3; i++) {
        struct buffer message = plain_message(MOST, false), opened = {0};

        compress_close(&message, compressors[i]);
        CHECK(!opens(&message, MOST - 1, &opened));
        CHECK(!opened.bytes);
        CHECK(opens(&message, MOST, &opened));
        truce__buffer_release(&message);
        truce__buffer_release(&opened);
    }
}

TEST(accepts_the_compressor_that_does_not_compress)
{
    struct buffer message = plain_message(600, false), opened = {0};
    uint8_t head[9] = {0};

    memcpy(head, &(uint32_t){BSON_UINT32_TO_LE(2013)}, 4);
    memcpy(head + 4, &(uint32_t){BSON_UINT32_TO_LE(600 - 16)}, 4);
    truce__buffer_append(&message, head, sizeof head); /* room */
    memmove(message.bytes + 25, message.bytes + 16, 600 - 16);
    memcpy(message.bytes + 16, head, sizeof head);
    memcpy(message.bytes + 12, &(uint32_t){BSON_UINT32_TO_LE(2012)}, 4);
    CHECK(opens(&message, MOST, &opened) && opened.size == 600);
    message.bytes[20]++;
    CHECK(!opens(&message, MOST, &opened));
    truce__buffer_release(&message);
    truce__buffer_release(&opened);
}

TEST(any_bytes_are_opened_or_refused)
{
    struct random random;
    uint64_t seed = test_seed();

    truce__random_seed(&random, seed);
    for (int round = 0; round < 3000; round++) {
        struct buffer message = plain_message(700, false), opened = {0};

        compress_close(&message, compressors[round % 3]);
        for (int i = 0; i < 3; i++) {
            size_t at = 16 + truce__random_below(&random, message.size - 16);

            message.bytes[at] = (uint8_t)truce__random_next(&random);
        }
        if (opens(&message, MOST, &opened))
            CHECK(opened.size <= MOST && wire_length(opened.bytes) == opened.size);
        truce__buffer_release(&message);
        truce__buffer_release(&opened);
    }
}
