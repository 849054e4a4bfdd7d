/* Fingerprints of bodies: each byte, its place and the size count. */
#include "engine/storage/body_fingerprints.h"

#include "base/random.h"
#include "tests/support/test.h"

#define BYTES_MAX 1400

static uint8_t body[BYTES_MAX + 1];
static struct seen *seen;

static void fill(void)
{
    struct random random;

    truce__seen_free(seen);
    seen = truce__seen_new();
    truce__random_seed(&random, test_seed());
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)truce__random_next(&random);
}

static bool has(size_t size)
{
    return truce__seen_has(seen, 1, 7, body, size);
}

TEST(recognizes_a_body_and_no_other)
{
    fill();
    for (size_t size = 0; size <= BYTES_MAX; size += size < 100 ? 1 : 37) {
        truce__seen_add(seen, 1, 7, body, size);
        CHECK(has(size));
        CHECK(truce__seen_print(body, size) != 0);
        CHECK(!has(size + 1));
        for (size_t i = 0; i < size; i++) {
            body[i] ^= (uint8_t)(1u << i % 8);
            if (has(size))
                test_fail(__FILE__, __LINE__, "byte %zu of %zu does not count", i, size);
            body[i] ^= (uint8_t)(1u << i % 8);
        }
        CHECK(has(size));
    }
}

/* Pairs of words, and of parts, in exchanged places. */
TEST(distinguishes_bodies_with_exchanged_bytes)
{
    static const size_t apart[] = {4, 8, 16, 32, 64, 256};

    fill();
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) {
        for (size_t at = 0; at + apart[k] + 4 <= BYTES_MAX; at += 4) {
            uint8_t first[4];

            truce__seen_add(seen, 1, 7, body, BYTES_MAX);
            memcpy(first, body + at, 4);
            memcpy(body + at, body + at + apart[k], 4);
            memcpy(body + at + apart[k], first, 4);
            if (has(BYTES_MAX))
                test_fail(__FILE__, __LINE__, "words at %zu and %zu", at, at + apart[k]);
        }
    }
}

TEST(zeros_more_or_less_count_and_so_does_the_order_of_parts)
{
    uint8_t part[256];

    memset(body, 0, sizeof body);
    truce__seen_add(seen, 1, 7, body, 5);
    CHECK(!has(4));
    CHECK(!has(6));
    fill();
    truce__seen_add(seen, 1, 7, body, BYTES_MAX);
    memcpy(part, body, sizeof part);
    memcpy(body, body + sizeof part, sizeof part);
    memcpy(body + sizeof part, part, sizeof part);
    CHECK(!has(BYTES_MAX));
}

TEST(a_walk_is_known_by_version_table_and_beginning)
{
    static struct seen_walks walks;

    truce__seen_walk(&walks, 3, 1, 10, 50);
    CHECK_INT(truce__seen_walked(&walks, 3, 1, 10), ==, 50);
    CHECK_INT(truce__seen_walked(&walks, 4, 1, 10), ==, 10);
    CHECK_INT(truce__seen_walked(&walks, 3, 2, 10), ==, 10);
    CHECK_INT(truce__seen_walked(&walks, 3, 1, 11), ==, 11);
    truce__seen_walk(&walks, 3, 1, 10, 40); /* it was longer before */
    CHECK_INT(truce__seen_walked(&walks, 3, 1, 10), ==, 50);
    for (int64_t after = 100; after < 100 + 4 * SEEN_WALKS; after++) { /* of all slots */
        truce__seen_walk(&walks, 3, 2, after, after + 10000);
        CHECK_INT(truce__seen_walked(&walks, 3, 2, after), ==, after + 10000);
        CHECK_INT(truce__seen_walked(&walks, 3, 1, after), ==, after);
        CHECK_INT(truce__seen_walked(&walks, 3, 2, after + 4 * SEEN_WALKS), ==,
                  after + 4 * SEEN_WALKS);
    }
}

TEST(a_row_is_known_by_table_and_number)
{
    int others = 0;

    fill();
    truce__seen_add(seen, 1, 7, body, 100);
    CHECK(!truce__seen_has(seen, 2, 7, body, 100));
    CHECK(!truce__seen_has(seen, 1, 8, body, 100));
    CHECK(!truce__seen_has(seen, 1, 7 + 1024, body, 100));
    CHECK(has(100));
    for (int64_t row = 8; row < 8 + 1000; row++) { /* rows of one table do not disturb each other */
        truce__seen_add(seen, 1, row, body, 200);
        others += truce__seen_has(seen, 1, row, body, 200);
    }
    CHECK_INT(others, ==, 1000);
    CHECK(has(100));
    truce__seen_add(seen, 1, 7, body, 101); /* another body of the row */
    CHECK(!has(100));
    CHECK(has(101));
}

/* Rows that share a place replace each other. */
TEST(a_row_that_is_no_longer_known_is_only_checked_again)
{
    const int64_t other = 7 + ((int64_t)1 << SEEN_BITS);

    fill();
    truce__seen_add(seen, 1, 7, body, 100);
    truce__seen_add(seen, 1, other, body, 200);
    CHECK(!has(100));
    CHECK(truce__seen_has(seen, 1, other, body, 200));
    truce__seen_free(seen);
    seen = NULL;
}
