#include "tests/support/expression.h"
#include "tests/support/test.h"

/* Sets: the choice among equal elements, which the recorded vectors do not define. */

TEST(an_intersection_keeps_the_elements_of_the_smaller_set)
{
    EXPRESSION_GIVES("{'$setIntersection': [[3, 1, 2], [1.0]]}", "{}", "[1.0]");
    EXPRESSION_GIVES("{'$setIntersection': [[1.0], [3, 1, 2]]}", "{}", "[1.0]");
    EXPRESSION_GIVES("{'$setIntersection': [[2, 1], [1.0, 2.0]]}", "{}", "[1, 2]");
    EXPRESSION_GIVES("{'$setIntersection': [[1, 2], [], ['$a']]}", "{'a': 1}", "[]");
    EXPRESSION_GIVES("{'$setIntersection': []}", "{}", "[]");
}

TEST(a_union_keeps_the_first_of_equal_elements_and_is_in_order)
{
    EXPRESSION_GIVES("{'$setUnion': [['b', 2.0, 1], [1.0, 2, 'a']]}", "{}", "[1, 2.0, 'a', 'b']");
    EXPRESSION_GIVES("{'$setUnion': [[1], '$no']}", "{}", "null");
}

TEST(a_difference_keeps_the_order_and_the_first_of_equal_elements)
{
    EXPRESSION_GIVES("{'$setDifference': [[3, 1.0, 3.0, 1, 2], [2]]}", "{}", "[3, 1.0]");
    EXPRESSION_GIVES("{'$setDifference': ['$no', [1]]}", "{}", "null");
}

TEST(sets_are_equal_whatever_the_order_the_types_and_the_repetitions)
{
    EXPRESSION_GIVES("{'$setEquals': [[1, 2, 2], [2.0, 1], [1, 2, 1]]}", "{}", "true");
    EXPRESSION_GIVES("{'$setEquals': [[1, 2], [1]]}", "{}", "false");
    EXPRESSION_GIVES("{'$setIsSubset': [[1.0, 1], [2, 1]]}", "{}", "true");
    EXPRESSION_GIVES("{'$setIsSubset': [[3], [2, 1]]}", "{}", "false");
    EXPRESSION_FAILS("{'$setEquals': [[1], 2]}", "{}", 17044);
}
