/* The checksum of the log, compared with its definition. */
#include "engine/storage/wal_checksum.h"

#include <string.h>

#include "base/random.h"
#include "tests/support/test.h"

#define PAGE 4096

static uint32_t word_at(const uint8_t *at, bool big)
{
    return big ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
               : (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void define(uint32_t sum[2], bool big, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        sum[0] += word_at(bytes + i, big) + sum[1];
        sum[1] += word_at(bytes + i + 4, big) + sum[0];
    }
}

static void compare(uint32_t first, uint32_t second, bool big, const uint8_t *bytes, size_t size)
{
    uint32_t expected[2] = {first, second}, sum[2] = {first, second};

    define(expected, big, bytes, size);
    truce__wal_checksum_add(sum, big, bytes, size);
    CHECK_INT(sum[0], ==, expected[0]);
    CHECK_INT(sum[1], ==, expected[1]);
}

TEST(is_the_checksum_of_sqlite)
{
    static uint8_t bytes[PAGE + 8];
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 300; i++) {
        uint32_t first = (uint32_t)truce__random_next(&random),
                 second = (uint32_t)truce__random_next(&random);

        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)truce__random_next(&random);
        compare(first, second, false, bytes, PAGE);
        compare(first, second, false, bytes + 3, PAGE);
        compare(first, second, true, bytes, PAGE);
        compare(first, second, false, bytes, 8 * (size_t)truce__random_below(&random, PAGE / 8));
    }
    memset(bytes, 0xff, sizeof bytes);
    compare(UINT32_MAX, UINT32_MAX, false, bytes, PAGE);
    memset(bytes, 0, sizeof bytes);
    compare(1, 0, false, bytes, PAGE);
    compare(0, 1, false, bytes, PAGE);
}
