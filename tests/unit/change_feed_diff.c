/* The changes of an update, as the feed of changes encodes them. */
#include "engine/documents/change_feed.h"
#include "tests/support/test.h"

/* `expected` NULL: the difference cannot be expressed. */
static void check_diff(const char *before, const char *after, const char *expected)
{
    bson_t *old = test_bson(before), *new = test_bson(after), diff;

    if (CHECK(truce__feed_diff(old, new, &diff) == (expected != NULL)) && expected) {
        bson_t *wanted = test_bson(expected);

        CHECK_BSON(wanted, &diff);
        bson_destroy(wanted);
    }
    bson_destroy(old);
    bson_destroy(new);
    bson_destroy(&diff);
}

TEST(reports_a_difference_by_paths)
{
    check_diff("{'a': 1, 'b': {'c': 2, 'd': 3}}", "{'a': 1, 'b': {'c': 5}, 'g': 4}",
               "{'updatedFields': {'b.c': 5, 'g': 4}, 'removedFields': ['b.d'], "
               "'truncatedArrays': []}");
    check_diff("{'e': [1, 2, 3]}", "{'e': [1, 2, 3, 4]}",
               "{'updatedFields': {'e.3': 4}, 'removedFields': [], 'truncatedArrays': []}");
    check_diff("{'e': [1, 2, 3]}", "{'e': [1, 7]}",
               "{'updatedFields': {'e.1': 7}, 'removedFields': [], 'truncatedArrays': [{'field': "
               "'e', 'newSize': 2}]}");
    check_diff("{'e': [{'x': 1, 'y': 'unchanged'}]}", "{'e': [{'x': 2, 'y': 'unchanged'}]}",
               "{'updatedFields': {'e.0.x': 2}, 'removedFields': [], 'truncatedArrays': []}");
    check_diff("{'e': [1, 2, 3]}", "{'e': [2, 3, 4]}",
               "{'updatedFields': {'e': [2, 3, 4]}, 'removedFields': [], 'truncatedArrays': []}");
    check_diff("{'e': 1}", "{'e': '1'}",
               "{'updatedFields': {'e': '1'}, 'removedFields': [], 'truncatedArrays': []}");
}

TEST(reports_the_whole_value_if_no_path_can_name_it)
{
    check_diff("{'a': {'b.c': 1}}", "{'a': {'b.c': 2}}",
               "{'updatedFields': {'a': {'b.c': 2}}, 'removedFields': [], 'truncatedArrays': []}");
    check_diff("{'a': {'x': 1, 'y': 2}}", "{'a': {'y': 2, 'x': 1}}",
               "{'updatedFields': {'a': {'y': 2, 'x': 1}}, 'removedFields': [], "
               "'truncatedArrays': []}");
    check_diff("{'a': {'x': 1}}", "{'a': {'y': 2, 'x': 1}}",
               "{'updatedFields': {'a': {'y': 2, 'x': 1}}, 'removedFields': [], "
               "'truncatedArrays': []}");
    check_diff("{'': 1}", "{'': 2}", NULL);
    check_diff("{'a.b': 1}", "{'a.b': 2}", NULL);
    check_diff("{'$a': 1}", "{}", NULL);
    check_diff("{}", "{'a.b': 1}", NULL);
    check_diff("{'a.b': 1, 'c': 1}", "{'a.b': 1, 'c': 2}",
               "{'updatedFields': {'c': 2}, 'removedFields': [], 'truncatedArrays': []}");
    check_diff("{'x': 1, 'y': 2}", "{'y': 2, 'x': 1}", NULL);
}

TEST(reports_the_parts_of_an_ambiguous_path)
{
#define REST "'removedFields': [], 'truncatedArrays': []"
    check_diff("{'a': {'1': 1}}", "{'a': {'1': 2}}",
               "{'updatedFields': {'a.1': 2}, " REST
               ", 'disambiguatedPaths': {'a.1': ['a', '1']}}");
    check_diff("{'a': [{'1': 1, 'b': 1}]}", "{'a': [{'1': 2, 'b': 1}]}",
               "{'updatedFields': {'a.0.1': 2}, " REST
               ", 'disambiguatedPaths': {'a.0.1': ['a', 0, '1']}}");
    check_diff("{'a': {'12': {'b': 1, 'c': 1}}}", "{'a': {'12': {'b': 1}}, 'd': 345}",
               "{'updatedFields': {'d': 345}, 'removedFields': ['a.12.c'], 'truncatedArrays': [], "
               "'disambiguatedPaths': {'a.12.c': ['a', '12', 'c']}}");
    check_diff("{'a': {'0': [1, 2, 3]}, 'b': [1, 2, 3]}", "{'a': {'0': [1, 2]}, 'b': [1, 2]}",
               "{'updatedFields': {}, 'removedFields': [], 'truncatedArrays': [{'field': 'a.0', "
               "'newSize': 2}, {'field': 'b', 'newSize': 2}], "
               "'disambiguatedPaths': {'a.0': ['a', '0']}}");
    /* none of these is a position in an array */
    check_diff("{'1': 1, 'a': {'01': 1, 'x': 1, '1x': 1}}",
               "{'1': 2, 'a': {'01': 2, 'x': 2, '1x': 2}}",
               "{'updatedFields': {'1': 2, 'a.01': 2, 'a.x': 2, 'a.1x': 2}, " REST "}");
    check_diff("{'a': [1, 2, 3, 4]}", "{'a': [1, 2, 3, 5]}",
               "{'updatedFields': {'a.3': 5}, " REST "}");
}

/* Names of 1 kB around many fields that differ: each path would have them all. */
TEST(returns_no_difference_longer_than_the_documents)
{
    char name[1001];
    bson_t documents[2], diff;

    memset(name, 'n', 1000);
    name[1000] = 0;
    for (int side = 0; side < 2; side++) {
        bson_t inner;

        bson_init(&documents[side]);
        BSON_APPEND_DOCUMENT_BEGIN(&documents[side], name, &inner);
        for (int i = 0; i < 1000; i++) {
            char key[16];

            snprintf(key, sizeof key, "f%d", i);
            BSON_APPEND_INT32(&inner, key, side);
        }
        bson_append_document_end(&documents[side], &inner);
    }
    CHECK(!truce__feed_diff(&documents[0], &documents[1], &diff));
    CHECK(bson_empty(&diff));
    bson_destroy(&documents[0]);
    bson_destroy(&documents[1]);
    bson_destroy(&diff);
}

TEST(reports_the_whole_document_if_many_fields_are_removed)
{
    bson_t before = BSON_INITIALIZER, after = BSON_INITIALIZER, diff;

    for (int i = 0; i < 300; i++) {
        char key[16];

        snprintf(key, sizeof key, "f%d", i);
        BSON_APPEND_UTF8(&before, key, "a value that is longer than what is said of its field");
    }
    CHECK(!truce__feed_diff(&before, &after, &diff));
    bson_destroy(&before);
    bson_destroy(&diff);
    bson_destroy(&after);
}
