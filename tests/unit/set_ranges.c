/* Sets of numbers against an array of flags, and their encoding. */
#include "base/random.h"
#include "patterns/set/set.h"
#include "tests/support/test.h"

#define NUMBERS 200

static int64_t reference_end(const bool *in, int64_t from)
{
    while (from < NUMBERS && in[from])
        from++;
    return from - 1;
}

static void check_same(const struct ranges *ranges, const bool *in)
{
    size_t count = 0;

    for (int n = 0; n < NUMBERS; n++) {
        CHECK_INT(truce__ranges_has(ranges, n), ==, in[n]);
        CHECK_INT(truce__ranges_end(ranges, n), ==, reference_end(in, n));
        count += in[n] && (!n || !in[n - 1]);
    }
    CHECK_INT(ranges->count, ==, count);
}

static bool reference_touch(const bool *in, int from, int to)
{
    for (int n = from - 1; n <= to + 1; n++) {
        if (n >= 0 && n < NUMBERS && in[n])
            return true;
    }
    return false;
}

static void check_bytes(const struct ranges *ranges, int64_t base, int64_t end)
{
    bson_t document = BSON_INITIALIZER;
    struct ranges read = {0};

    truce__ranges_store(ranges, base, &document, "r");
    CHECK(truce__ranges_read(&document, "r", base, end, &read));
    CHECK_INT(read.count, ==, ranges->count);
    for (size_t i = 0; i < read.count && i < ranges->count; i++) {
        CHECK_INT(read.at[i].from, ==, ranges->at[i].from);
        CHECK_INT(read.at[i].to, ==, ranges->at[i].to);
    }
    truce__ranges_release(&read);
    if (ranges->count) /* one number too many */
        CHECK(
            !truce__ranges_read(&document, "r", base, ranges->at[ranges->count - 1].to - 1, &read));
    truce__ranges_release(&read);
    bson_destroy(&document);
}

TEST(contains_exactly_the_added_numbers)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int round = 0; round < 300; round++) {
        struct ranges added = {0}, appended = {0}, parts[2] = {{0}};
        bool in[NUMBERS] = {false};

        for (int i = 0; i < 40; i++) {
            int from = (int)truce__random_below(&random, NUMBERS);
            int to = from + (int)truce__random_below(&random, round % 3 ? 4 : 30);

            to = to < NUMBERS ? to : NUMBERS - 1;
            CHECK_INT(truce__ranges_touch(&added, from, to), ==, reference_touch(in, from, to));
            truce__ranges_add(&added, from, to);
            truce__ranges_append(&appended, from, to);
            truce__ranges_add(&parts[i % 2], from, to);
            for (int n = from; n <= to; n++)
                in[n] = true;
        }
        check_same(&added, in);
        truce__ranges_settle(&appended);
        check_same(&appended, in);
        check_bytes(&added, 0, NUMBERS - 1);
        truce__ranges_merge(&parts[0], &parts[1]);
        check_same(&parts[0], in);
        truce__ranges_release(&parts[0]);
        truce__ranges_release(&parts[1]);
        truce__ranges_release(&added);
        truce__ranges_release(&appended);
    }
}

TEST(ranges_reach_to_the_last_number)
{
    const int64_t base = INT64_C(7) << 60;
    struct ranges ranges = {0};

    truce__ranges_add(&ranges, INT64_MAX, INT64_MAX);
    truce__ranges_add(&ranges, base, base);
    check_bytes(&ranges, base, INT64_MAX);
    truce__ranges_add(&ranges, base + 1, INT64_MAX - 1);
    CHECK_INT(ranges.count, ==, 1);
    CHECK_INT(truce__ranges_end(&ranges, base + 5), ==, INT64_MAX);
    check_bytes(&ranges, base, INT64_MAX);
    truce__ranges_append(&ranges, INT64_MAX, INT64_MAX);
    truce__ranges_settle(&ranges);
    CHECK_INT(ranges.count, ==, 1);
    truce__ranges_release(&ranges);
}

static bool reads(const uint8_t *bytes, uint32_t size)
{
    bson_t document = BSON_INITIALIZER;
    struct ranges ranges = {0};
    bool valid;

    bson_append_binary(&document, "r", -1, BSON_SUBTYPE_BINARY, bytes, size);
    valid = truce__ranges_read(&document, "r", 100, 199, &ranges);
    for (size_t i = 0; valid && i < ranges.count; i++)
        CHECK(ranges.at[i].from >= 100 && ranges.at[i].from <= ranges.at[i].to &&
              ranges.at[i].to <= 199);
    truce__ranges_release(&ranges);
    bson_destroy(&document);
    return valid;
}

TEST(refuses_bytes_that_are_not_ranges)
{
    static const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01};
    static const uint8_t half[] = {0x80}, no_more[] = {0x01}, last[] = {0xc6, 0x01};
    static const uint8_t beyond[] = {0xc8, 0x01}, too_many[] = {0x01, 0x64}, all[] = {0x01, 0x63};
    struct random random;

    CHECK(reads(NULL, 0));
    CHECK(reads(last, 2)); /* 199 */
    CHECK(reads(all, 2));  /* 100 to 199 */
    CHECK(!reads(beyond, 2));
    CHECK(!reads(too_many, 2));
    CHECK(!reads(half, 1));
    CHECK(!reads(no_more, 1));
    CHECK(!reads(endless, sizeof endless));
    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[12];

        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)truce__random_below(&random, i % 2 ? 256 : 20);
        (void)reads(bytes, (uint32_t)truce__random_below(&random, sizeof bytes + 1));
    }
}

TEST(stores_a_block_as_one_bit_for_each_number)
{
    const int64_t base = 5 * BLOCK_NUMBERS;
    struct ranges ranges = {0}, read = {0};
    bson_t document = BSON_INITIALIZER;
    struct block block = {{0}};

    truce__ranges_add(&ranges, base - 3, base);
    truce__ranges_add(&ranges, base + 7, base + 40);
    truce__ranges_add(&ranges, base + 4095, base + 5000);
    truce__block_store(&ranges, base, &document, "bits");
    CHECK(truce__block_read(&document, "bits", base, &read));
    CHECK_INT(read.count, ==, 3);
    CHECK_INT(read.at[0].from, ==, base);
    CHECK_INT(read.at[0].to, ==, base);
    CHECK_INT(read.at[1].from, ==, base + 7);
    CHECK_INT(read.at[1].to, ==, base + 40);
    CHECK_INT(read.at[2].from, ==, base + 4095);
    CHECK_INT(read.at[2].to, ==, base + 4095);
    truce__block_take(&block, base, &ranges);
    CHECK((block.bits[5] & 3) == 1); /* 40 and not 41 */
    CHECK(!truce__block_read(&document, "ranges", base, &read));
    truce__ranges_release(&ranges);
    truce__ranges_release(&read);
    bson_destroy(&document);
}
