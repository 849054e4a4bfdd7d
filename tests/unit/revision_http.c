/* The conditions of HTTP: a table of cases from RFC 9110, section 13, and RFC 6585, section 3. */
#include "tests/support/test.h"
#include "truce/revision.h"

static const struct {
    const char *what, *method, *if_match, *if_none_match;
    bool demand;
    int64_t version;
    int answer;
} cases[] = {
    {"13: no condition", "GET", NULL, NULL, false, 4, 0},
    {"13: no condition on a change", "PUT", NULL, NULL, false, 4, 0},
    {"13.1.1: the current tag", "PUT", "\"4\"", NULL, false, 4, 0},
    {"13.1.1: an old tag", "PUT", "\"3\"", NULL, false, 4, 412},
    {"13.1.1: one of a list", "PUT", "\"3\", \"4\" ,\"7\"", NULL, false, 4, 0},
    {"13.1.1: none of a list", "DELETE", "\"3\", \"5\"", NULL, false, 4, 412},
    {"13.1.1: any, with a document", "PUT", "*", NULL, false, 4, 0},
    {"13.1.1: any, without a document", "PUT", "*", NULL, false, -1, 412},
    {"13.1.1: a tag, without a document", "PUT", "\"4\"", NULL, false, -1, 412},
    {"13.1.1: compared strongly, a weak tag matches nothing", "PUT", "W/\"4\"", NULL, false, 4,
     412},
    {"13.1.1: on a read", "GET", "\"3\"", NULL, false, 4, 412},
    {"13.1.2: the current tag on a read", "GET", NULL, "\"4\"", false, 4, 304},
    {"13.1.2: the current tag on HEAD", "HEAD", NULL, "\"4\"", false, 4, 304},
    {"13.1.2: the current tag on a change", "PUT", NULL, "\"4\"", false, 4, 412},
    {"13.1.2: compared weakly", "GET", NULL, "W/\"4\"", false, 4, 304},
    {"13.1.2: an old tag", "GET", NULL, "\"3\"", false, 4, 0},
    {"13.1.2: one of a list", "GET", NULL, "\"1\", W/\"4\"", false, 4, 304},
    {"13.1.2: any, to create, without a document", "PUT", NULL, "*", false, -1, 0},
    {"13.1.2: any, to create, with a document", "PUT", NULL, "*", false, 4, 412},
    {"13.1.2: any on a read", "GET", NULL, "*", false, 4, 304},
    {"13.2.2: If-Match comes first", "GET", "\"3\"", "\"4\"", false, 4, 412},
    {"13.2.2: both hold", "GET", "\"4\"", "\"3\"", false, 4, 0},
    {"13.2.2: If-Match holds, If-None-Match does not", "GET", "\"4\"", "\"4\"", false, 4, 304},
    {"6585: a condition is demanded of a change", "PUT", NULL, NULL, true, 4, 428},
    {"6585: of a removal", "DELETE", NULL, NULL, true, 4, 428},
    {"6585: of a patch", "PATCH", NULL, NULL, true, 4, 428},
    {"6585: not of a read", "GET", NULL, NULL, true, 4, 0},
    {"6585: not of OPTIONS", "OPTIONS", NULL, NULL, true, 4, 0},
    {"6585: it is there", "PUT", "\"4\"", NULL, true, 4, 0},
    {"6585: If-None-Match is one, too", "PUT", NULL, "*", true, -1, 0},
    {"6585: it is there and does not hold", "PUT", "\"3\"", NULL, true, 4, 412},
    {"8.8.3: no quotes", "PUT", "4", NULL, false, 4, 400},
    {"8.8.3: no end", "PUT", "\"4", NULL, false, 4, 400},
    {"8.8.3: a space inside", "PUT", "\"4 \"", NULL, false, 4, 400},
    {"8.8.3: w is not W", "PUT", "w/\"4\"", NULL, false, 4, 400},
    {"8.8.3: tags without a comma", "PUT", "\"3\" \"4\"", NULL, false, 4, 400},
    {"5.6.1: empty elements of a list", "PUT", " , \"4\", ,", NULL, false, 4, 0},
    {"5.6.1: an empty list", "PUT", "", NULL, false, 4, 400},
    {"* is alone", "PUT", "*, \"4\"", NULL, false, 4, 400},
    {"a malformed If-None-Match", "GET", NULL, "4", false, 4, 400},
    {"a tag that begins like it", "PUT", "\"44\"", NULL, false, 4, 412},
    {"the number 0", "PUT", "\"0\"", NULL, false, 0, 0},
    {"a tag of nothing", "PUT", "\"-1\"", NULL, false, -1, 412},
};

TEST(conditions_are_decided_as_the_rfcs_say)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        truce_http_request request = {.method = cases[i].method,
                                      .if_match = cases[i].if_match,
                                      .if_none_match = cases[i].if_none_match,
                                      .demand = cases[i].demand};
        int answer = truce_revision_http(&request, cases[i].version);

        if (answer != cases[i].answer)
            test_fail(__FILE__, __LINE__, "%s: %d, not %d", cases[i].what, answer, cases[i].answer);
    }
}

TEST(a_tag_is_the_number_in_quotes)
{
    char etag[TRUCE_ETAG_SIZE];

    truce_revision_etag(4, etag);
    CHECK_TEXT("\"4\"", etag);
    truce_revision_etag(INT64_MAX, etag);
    CHECK_TEXT("\"9223372036854775807\"", etag);
}
