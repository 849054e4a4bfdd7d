/* Fingerprints: the hash equals the published function, and does not depend on the order of the
 * pieces. */
#include "base/fingerprint.h"

#include "tests/support/test.h"

static const char *text_of(const char *const *pieces)
{
    static char text[FINGERPRINT_TEXT];
    struct fingerprint sum = {0}, back;

    for (; *pieces; pieces++)
        truce__fingerprint_add(&sum, *pieces, strlen(*pieces));
    truce__fingerprint_text(&sum, text);
    CHECK(truce__fingerprint_read(&back, text));
    CHECK(back.high == sum.high && back.low == sum.low);
    return text;
}
#define TEXT_OF(...) text_of((const char *const[]){__VA_ARGS__, NULL})

TEST(the_hash_is_murmurhash3_x64_128)
{
    CHECK_TEXT("00000000000000000000000000000000", TEXT_OF(""));
    CHECK_TEXT("cbd8a7b341bd9b025b1e906a48ae1d19", TEXT_OF("hello"));
    CHECK_TEXT("e34bbc7bbc071b6c7a433ca9c49a9347",
               TEXT_OF("The quick brown fox jumps over the lazy dog"));
}

TEST(the_order_of_pieces_does_not_matter_and_everything_else_does)
{
    char sum[FINGERPRINT_TEXT];

    memcpy(sum, TEXT_OF("one", "two", "three"), sizeof sum);
    CHECK_TEXT(sum, TEXT_OF("three", "one", "two"));
    CHECK(strcmp(sum, TEXT_OF("three", "onetwo")) != 0);
    CHECK(strcmp(sum, TEXT_OF("one", "two", "three", "three")) != 0);
}

TEST(rejects_a_string_that_is_not_a_fingerprint)
{
    struct fingerprint sum;

    CHECK(!truce__fingerprint_read(&sum, "cbd8"));
    CHECK(!truce__fingerprint_read(&sum, "cbd8a7b341bd9b02zb1e906a48ae1d19"));
    CHECK(sum.high == 0 && sum.low == 0);
}
