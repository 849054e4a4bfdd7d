#include "merge/document_diff.h"

#include "tests/support/test.h"

static void check(const char *before, const char *after, const char *set, const char *unset,
                  const char *old)
{
    bson_t *from = test_bson(before), *to = test_bson(after);
    bson_t *wanted_set = test_bson(set), *wanted_unset = test_bson(unset);
    bson_t *wanted_old = test_bson(old);
    struct diff diff;

    CHECK(truce__diff(truce__value_document(from), truce__value_document(to), &diff));
    CHECK_BSON(wanted_set, &diff.set);
    CHECK_BSON(wanted_unset, &diff.unset);
    CHECK_BSON(wanted_old, &diff.old);
    truce__diff_release(&diff);
    bson_destroy(from);
    bson_destroy(to);
    bson_destroy(wanted_set);
    bson_destroy(wanted_unset);
    bson_destroy(wanted_old);
}

static void check_refused(const char *before, const char *after)
{
    bson_t *from = test_bson(before), *to = test_bson(after);
    struct diff diff;

    CHECK(!truce__diff(truce__value_document(from), truce__value_document(to), &diff));
    truce__diff_release(&diff);
    bson_destroy(from);
    bson_destroy(to);
}

TEST(names_only_changes_down_to_the_innermost_field)
{
    check("{'a': 1, 'b': {'c': 2, 'd': 3}}", "{'a': 1, 'b': {'c': 5}, 'e': [1]}",
          "{'b.c': 5, 'e': [1]}", "{'b.d': 3}", "{'b.c': 2, 'b.d': 3}");
    check("{'a': 1}", "{'a': 1}", "{}", "{}", "{}");
}

TEST(a_change_of_type_is_a_change)
{
    check("{'a': 1}", "{'a': 1.0}", "{'a': 1.0}", "{}", "{'a': 1}");
    check("{'a': {'b': 1}}", "{'a': [1]}", "{'a': [1]}", "{}", "{'a': {'b': 1}}");
}

TEST(arrays_are_replaced_whole)
{
    check("{'a': [1, 2]}", "{'a': [1, 3]}", "{'a': [1, 3]}", "{}", "{'a': [1, 2]}");
}

TEST(a_document_with_names_that_no_path_can_say_is_replaced_whole)
{
    check("{'a': {'x.y': 1}}", "{'a': {'x.y': 2}}", "{'a': {'x.y': 2}}", "{}", "{'a': {'x.y': 1}}");
    check_refused("{'x.y': 1}", "{'x.y': 2}");
    check_refused("{'': 1}", "{'a': 2}");
}

TEST(a_change_of_order_is_not_hidden)
{
    check_refused("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}");
    check("{'x': {'a': 1, 'b': 2}}", "{'x': {'b': 2, 'a': 1}}", "{'x': {'b': 2, 'a': 1}}", "{}",
          "{'x': {'a': 1, 'b': 2}}");
}
