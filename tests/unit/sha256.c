/* The digests of FIPS 180-4's examples, and of every length around a block, in pieces of any
 * size. */
#include "base/sha256.h"

#include "tests/support/test.h"

static void hex(const uint8_t digest[SHA256_BYTES], char text[2 * SHA256_BYTES + 1])
{
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static void check_by(const char *message, const char *wanted, bool plain)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    struct sha256 sha;

    truce__sha256_begin(&sha);
    sha.fast = sha.fast && !plain;
    truce__sha256_add(&sha, message, strlen(message));
    truce__sha256_end(&sha, digest);
    hex(digest, text);
    CHECK_TEXT(wanted, text);
}

/* With the processor's instructions, if it has them, and without. */
static void check(const char *message, const char *wanted)
{
    check_by(message, wanted, false);
    check_by(message, wanted, true);
}

TEST(agrees_with_the_examples_of_the_standard)
{
    check("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
        "opqrsmnopqrstnopqrstu",
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

TEST(hashes_a_million_letters_in_parts)
{
    static const char letters[1000] = {0};
    char text[2 * SHA256_BYTES + 1], as[1000];
    uint8_t digest[SHA256_BYTES];
    struct sha256 sha;

    memset(as, 'a', sizeof as);
    truce__sha256_begin(&sha);
    for (int i = 0; i < 1000; i++)
        truce__sha256_add(&sha, as, sizeof as);
    truce__sha256_add(&sha, letters, 0);
    truce__sha256_end(&sha, digest);
    hex(digest, text);
    CHECK_TEXT("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", text);
}

TEST(hashes_pieces_like_the_whole)
{
    uint8_t bytes[200], whole[SHA256_BYTES], pieces[SHA256_BYTES];
    struct sha256 sha;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        truce__sha256_begin(&sha);
        truce__sha256_add(&sha, bytes, size);
        truce__sha256_end(&sha, whole);
        for (size_t piece = 1; piece < 70; piece += 13) {
            truce__sha256_begin(&sha);
            for (size_t at = 0; at < size; at += piece)
                truce__sha256_add(&sha, bytes + at, size - at < piece ? size - at : piece);
            truce__sha256_end(&sha, pieces);
            CHECK(!memcmp(whole, pieces, sizeof whole));
        }
    }
}
