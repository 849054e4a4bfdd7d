/* Filters that are tested without compiling: the results equal those of the compiled filter. */
#include "query/match/match_plain.h"

#include "tests/support/test.h"
#include "truce/truce.h"

static const char *const operands[] = {
    "1",
    "2",
    "-0.0",
    "0",
    "1.0",
    "{'$numberDouble': 'NaN'}",
    "{'$numberDouble': 'Infinity'}",
    "{'$numberLong': '1'}",
    "{'$numberDecimal': '1'}",
    "'1'",
    "''",
    "'a\\u0000b'",
    "{'$symbol': '1'}",
    "true",
    "false",
    "null",
    "{'$undefined': true}",
    "{'$minKey': 1}",
    "{'$maxKey': 1}",
    "{'$oid': '000000000000000000000001'}",
    "{'$date': {'$numberLong': '1'}}",
    "{'$timestamp': {'t': 0, 'i': 1}}",
    "{'$binary': {'base64': 'AQ==', 'subType': '00'}}",
    "{'$binary': {'base64': 'AQ==', 'subType': '05'}}",
    "{'$regularExpression': {'pattern': '1', 'options': ''}}",
    "{'$code': '1'}",
    "[]",
    "[1]",
    "['1', 2]",
    "[[1]]",
    "{}",
    "{'x': 1}",
    "{'$gt': 0}",
    "{'$exists': true}",
    "{'$exists': false}",
    "{'$exists': 0}",
    "{'$exists': false, '$ne': 1}",
};
enum { OPERANDS = sizeof operands / sizeof *operands };

/* Returns 1 for a match, 0 for no match, -1 if the filter is not plain or undecided. */
static int test_plainly(const bson_t *filter, const bson_t *document)
{
    struct value id;
    bool matched;

    if (!truce__match_is_plain(filter, &id) ||
        !truce__match_plain_test(filter, truce__value_document(document), &matched))
        return -1;
    return matched;
}

static int test_compiled(const bson_t *filter, const bson_t *document)
{
    struct match_result result = {0};
    struct match *match = NULL;
    bson_error_t error;

    if (truce__match_new(filter, &match, &error))
        return -1;
    CHECK_OK(truce__match_test(match, truce__value_document(document), NULL, &result, &error),
             error);
    truce__match_free(match);
    return result.matched;
}

TEST(agrees_with_the_compiled_filter)
{
    static const char *const shapes[] = {"{'f': %s}", "{'f': %s, 'g': 1}", "{'f.0': %s}"};
    int answers[2] = {0}, others = 0;
    char text[300];

    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        for (int i = 0; i < OPERANDS; i++) {
            for (int j = 0; j <= OPERANDS; j++) {
                bson_t *filter, *document;
                int answer;

                snprintf(text, sizeof text, shapes[shape], operands[i]);
                filter = test_bson(text);
                if (j < OPERANDS)
                    snprintf(text, sizeof text, "{'g': 1, 'f': %s}", operands[j]);
                else
                    snprintf(text, sizeof text, "{'g': 1}");
                document = test_bson(text);
                answer = test_plainly(filter, document);
                if (answer < 0)
                    others++;
                else
                    answers[answer]++;
                CHECK(answer < 0 || answer == test_compiled(filter, document));
                bson_destroy(filter);
                bson_destroy(document);
            }
        }
    }
    CHECK(answers[0] > 200 && answers[1] > 20 && others > 500);
}

static bool is_plain(const char *text, const char *id_is)
{
    bson_t *filter = test_bson(text);
    struct value id;
    bool plain = truce__match_is_plain(filter, &id);

    if (plain)
        CHECK((id.type != VALUE_MISSING) == (id_is != NULL));
    bson_destroy(filter);
    return plain;
}

TEST(treats_a_few_equalities_of_top_level_fields_as_plain)
{
    CHECK(is_plain("{}", NULL));
    CHECK(is_plain("{'_id': 1}", "1"));
    CHECK(is_plain("{'version': 3, '_id': 'a'}", "a"));
    CHECK(!is_plain("{'_id': 1, '_id': 2}", NULL));
    CHECK(!is_plain("{'_id': {'$in': [1]}}", NULL));
    CHECK(!is_plain("{'_id': {'$exists': true}}", NULL));
    CHECK(is_plain("{'_id': 1, '_lock': {'$exists': false}}", "1"));
    CHECK(!is_plain("{'_id': 1, 'a.b': 1}", NULL));
    CHECK(!is_plain("{'_id': 1, '$comment': 'why'}", NULL));
    CHECK(!is_plain("{'_id': 1, 'a': null}", NULL));
    CHECK(!is_plain("{'_id': 1, '': 1}", NULL));
    CHECK(is_plain("{'a': 1, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1, 'g': 1, '_id': 1}", "1"));
    CHECK(!is_plain("{'a': 1, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1, 'g': 1, 'h': 1, '_id': 1}",
                    "1"));
}

/* As a user sees it: a write of one document by its _id and more. */
TEST(arrays_are_looked_into_by_writes_too)
{
    bson_t *document = test_bson("{'_id': 1, 'tags': ['a', 'b'], 'v': 1}");
    bson_t *filter = test_bson("{'_id': 1, 'v': 1, 'tags': 'b'}");
    bson_t *other = test_bson("{'_id': 1, 'v': 1, 'tags': 'c'}");
    bson_t *update = test_bson("{'$set': {'tags.$': 'B'}, '$inc': {'v': 1}}");
    bson_t *after = test_bson("{'_id': 1, 'v': 2, 'tags': 'B'}");
    truce_write_result result = {0};
    truce_store *store;
    bson_error_t error;
    char path[600];
    int64_t count;

    snprintf(path, sizeof path, "%s/store.truce", test_directory());
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    CHECK_OK(truce_update(store, "c", other, update, NULL, &result, &error), error);
    CHECK_INT(result.matched, ==, 0);
    truce_write_result_release(&result);
    CHECK_OK(truce_update(store, "c", filter, update, NULL, &result, &error), error);
    CHECK_INT(result.matched, ==, 1);
    truce_write_result_release(&result);
    CHECK_OK(truce_count(store, "c", after, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    truce_store_close(store);
    bson_destroy(document);
    bson_destroy(filter);
    bson_destroy(other);
    bson_destroy(update);
    bson_destroy(after);
}
