#include "base/status.h"

#include <string.h>

#include "tests/support/test.h"

TEST(errors_have_the_names_that_mongodb_gives_them)
{
    CHECK(!strcmp(truce_error_name(CODE_DUPLICATE_KEY), "DuplicateKey"));
    CHECK(!strcmp(truce_error_name(232), "MaxSubPipelineDepthExceeded"));
    CHECK(!strcmp(truce_error_name(15974), "Location15974"));
    CHECK(!strcmp(truce_error_name(UINT32_MAX), "Location4294967295"));
}
