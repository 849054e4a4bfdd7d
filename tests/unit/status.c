#include "base/status.h"

#include <string.h>

#include "tests/support/test.h"

TEST(errors_have_the_names_that_mongodb_gives_them)
{
    CHECK(!strcmp(truce_error_name(CODE_DUPLICATE_KEY), "DuplicateKey"));
    CHECK(!strcmp(truce_error_name(232), "MaxSubPipelineDepthExceeded"));
    CHECK(!strcmp(truce_error_name(CODE_NO_REPLICATION_ENABLED), "NoReplicationEnabled"));
    CHECK(!strcmp(truce_error_name(15974), "Location15974"));
    CHECK(!strcmp(truce_error_name(UINT32_MAX), "Location4294967295"));
}

TEST(distinguishes_unknown_outcomes_from_retryable_errors)
{
    CHECK(truce__unanswered(TRUCE_UNKNOWN) && truce__repeatable(TRUCE_UNKNOWN));
    CHECK(truce__unanswered(TRUCE_IO) && !truce__repeatable(TRUCE_IO));
    CHECK(!truce__unanswered(TRUCE_CONFLICT) && truce__repeatable(TRUCE_CONFLICT));
    CHECK(!truce__unanswered(TRUCE_OK) && !truce__repeatable(TRUCE_OK));
    CHECK(!truce__unanswered(TRUCE_TIMEOUT) && !truce__repeatable(TRUCE_TIMEOUT));
}

static void check_clean(const char *text, const char *wanted)
{
    bson_error_t error = {0};

    (void)truce__fail(TRUCE_INVALID, &error, "\"%s\" is wrong", text);
    test_check_text(wanted, error.message, __FILE__, __LINE__);
    (void)truce__refuse(CODE_BAD_VALUE, &error, "\"%s\" is wrong", text);
    test_check_text(wanted, error.message, __FILE__, __LINE__);
}

/* A reader sees all input characters, and a terminal executes none. */
TEST(shows_invisible_characters_in_messages)
{
    char text[600];
    bson_error_t error = {0};

    check_clean("plain: \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\"plain: \xc3\xa9 \xe2\x82\xac "
                                                                 "\xf0\x9f\x98\x80\" is wrong");
    check_clean("\xef\xbb\xbf"
                "9\xc2\xa0"
                "13",
                "\"\\ufeff9\\u00a013\" is wrong");
    check_clean("a\tb\x1b[31m\x7f", "\"a\\u0009b\\u001b[31m\\u007f\" is wrong");
    check_clean("\xe2\x80\x8b\xe2\x80\xae\xe2\x80\xaf\xe3\x80\x80\xc2\xad",
                "\"\\u200b\\u202e\\u202f\\u3000\\u00ad\" is wrong");
    check_clean("\xf3\xa0\x81\x81", "\"\\U000e0041\" is wrong");
    check_clean("\xff\xc3", "\"\\xff\\xc3\" is wrong");
    check_clean("a\nb", "\"a\nb\" is wrong");
    for (int length = 480; length < 520; length++) { /* no escape is cut in two */
        memset(text, 'x', (size_t)length);
        strcpy(text + length, "\xc2\xa0\xc2\xa0\xc2\xa0");
        (void)truce__fail(TRUCE_INVALID, &error, "%s", text);
        CHECK(!strstr(error.message, "\xc2"));
        CHECK_INT(strlen(error.message), <, sizeof error.message);
    }
}
