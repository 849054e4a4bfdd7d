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

TEST(what_may_have_landed_and_what_may_be_repeated_are_two_questions)
{
    CHECK(truce__unanswered(TRUCE_UNKNOWN) && truce__repeatable(TRUCE_UNKNOWN));
    CHECK(truce__unanswered(TRUCE_IO) && !truce__repeatable(TRUCE_IO));
    CHECK(!truce__unanswered(TRUCE_CONFLICT) && truce__repeatable(TRUCE_CONFLICT));
    CHECK(!truce__unanswered(TRUCE_OK) && !truce__repeatable(TRUCE_OK));
    CHECK(!truce__unanswered(TRUCE_TIMEOUT) && !truce__repeatable(TRUCE_TIMEOUT));
}
