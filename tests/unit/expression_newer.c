#include <stdio.h>
#include <stdlib.h>

#include "tests/support/expression.h"
#include "tests/support/test.h"

/* Operators that are newer than the recorded vectors (MongoDB 4.4 to 7.0), by their manual. */

TEST(returns_the_first_and_the_last_elements_of_an_array)
{
    EXPRESSION_GIVES("{'$first': '$a'}", "{'a': [1, 2, 3]}", "1");
    EXPRESSION_GIVES("{'$last': '$a'}", "{'a': [1, 2, 3]}", "3");
    EXPRESSION_GIVES("{'$first': '$a'}", "{'a': []}", "missing");
    EXPRESSION_GIVES("{'$last': '$no'}", "{}", "null");
    EXPRESSION_FAILS("{'$first': '$a'}", "{'a': 1}", 28689);
    EXPRESSION_GIVES("{'$firstN': {'n': 2, 'input': '$a'}}", "{'a': [3, null, 1]}", "[3, null]");
    EXPRESSION_GIVES("{'$lastN': {'n': 2, 'input': '$a'}}", "{'a': [3, null, 1]}", "[null, 1]");
    EXPRESSION_GIVES("{'$lastN': {'n': 9, 'input': '$a'}}", "{'a': [3, null, 1]}", "[3, null, 1]");
    EXPRESSION_GIVES("{'$minN': {'n': 2, 'input': '$a'}}", "{'a': [3, null, 2, 1]}", "[1, 2]");
    EXPRESSION_GIVES("{'$maxN': {'n': 2, 'input': '$a'}}", "{'a': [3, 'x', 2, 1]}", "['x', 3]");
    EXPRESSION_FAILS("{'$minN': {'n': 0, 'input': '$a'}}", "{'a': [1]}", 5787908);
    EXPRESSION_FAILS("{'$minN': {'n': 1.5, 'input': '$a'}}", "{'a': [1]}", 5787902);
    EXPRESSION_FAILS("{'$maxN': {'n': 1, 'input': '$a'}}", "{'a': 1}", 5788200);
    EXPRESSION_FAILS("{'$maxN': {'input': '$a'}}", "{'a': [1]}", 5787906);
}

TEST(arrays_are_sorted_by_value_or_by_fields)
{
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': 1}}", "{'a': [3, 'a', null, 1]}",
                     "[null, 1, 3, 'a']");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': -1}}", "{'a': [1, 3, 2]}",
                     "[3, 2, 1]");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': {'x': 1, 'y.z': -1}}}",
                     "{'a': [{'x': 2}, {'x': 1, 'y': {'z': 1}}, {'x': 1, 'y': {'z': 2}}, 5]}",
                     "[5, {'x': 1, 'y': {'z': 2}}, {'x': 1, 'y': {'z': 1}}, {'x': 2}]");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': {'x': 1}}}",
                     "{'a': [{'x': 1, 'n': 1}, {'x': 1.0, 'n': 2}, {'x': 0, 'n': 3}]}",
                     "[{'x': 0, 'n': 3}, {'x': 1, 'n': 1}, {'x': 1.0, 'n': 2}]");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$no', 'sortBy': 1}}", "{}", "null");
    EXPRESSION_GIVES("{'$sortArray': {'input': [], 'sortBy': {'a': 1}}}", "{}", "[]");
    EXPRESSION_FAILS("{'$sortArray': {'input': '$a', 'sortBy': 1}}", "{'a': 1}", 2942504);
    EXPRESSION_FAILS("{'$sortArray': {'input': '$a', 'sortBy': 2}}", "{'a': []}", 2942506);
    EXPRESSION_FAILS("{'$sortArray': {'input': '$a'}}", "{'a': []}", 2942503);
    EXPRESSION_FAILS("{'$sortArray': {'input': '$a', 'sortBy': 1, 'x': 1}}", "{'a': []}", 2942501);
}

TEST(filter_stops_at_its_limit)
{
    EXPRESSION_GIVES("{'$filter': {'input': '$a', 'cond': {'$gt': ['$$this', 1]}, 'limit': 2}}",
                     "{'a': [1, 2, 3, 4]}", "[2, 3]");
    EXPRESSION_GIVES("{'$filter': {'input': '$a', 'cond': true, 'limit': '$no'}}", "{'a': [1, 2]}",
                     "[1, 2]");
    EXPRESSION_FAILS("{'$filter': {'input': '$a', 'cond': true, 'limit': 0}}", "{'a': [1]}",
                     327392);
    EXPRESSION_FAILS("{'$filter': {'input': '$a', 'cond': true, 'limit': 'x'}}", "{'a': [1]}",
                     327391);
}

TEST(a_conversion_does_not_turn_a_number_into_zero)
{
    EXPRESSION_FAILS("{'$toDecimal': '1e-7000'}", "{}", 241);
    EXPRESSION_FAILS("{'$toDouble': '1e-400'}", "{}", 241);
    EXPRESSION_FAILS("{'$toDouble': {'$numberDecimal': '1E-400'}}", "{}", 241);
    EXPRESSION_FAILS("{'$toDouble': {'$numberDecimal': '1E+400'}}", "{}", 241);
    EXPRESSION_GIVES("{'$toDouble': {'$numberDecimal': '0E-400'}}", "{}", "0.0");
    EXPRESSION_GIVES("{'$toDouble': {'$numberDecimal': '0.1'}}", "{}", "0.1");
}

TEST(if_null_takes_the_first_that_is_not_null)
{
    EXPRESSION_GIVES("{'$ifNull': ['$a', '$b', '$c', 4]}", "{'b': null, 'c': 3}", "3");
    EXPRESSION_GIVES("{'$ifNull': ['$a', '$b']}", "{}", "missing");
    EXPRESSION_FAILS("{'$ifNull': ['$a']}", "{}", 1257300);
}

TEST(fields_with_dots_and_dollars_are_reached_by_name)
{
    EXPRESSION_GIVES("{'$getField': 'a.b'}", "{'a.b': 1, 'a': {'b': 2}}", "1");
    EXPRESSION_GIVES("{'$getField': {'field': {'$literal': '$x'}, 'input': '$d'}}",
                     "{'d': {'$x': 5}}", "5");
    EXPRESSION_GIVES("{'$getField': {'field': 'x', 'input': '$d'}}", "{'d': null}", "null");
    EXPRESSION_GIVES("{'$getField': {'field': 'x', 'input': '$d'}}", "{}", "missing");
    EXPRESSION_GIVES("{'$getField': {'field': 'x', 'input': 5}}", "{}", "missing");
    EXPRESSION_FAILS("{'$getField': {'field': 5, 'input': '$d'}}", "{}", 3041704);
    EXPRESSION_FAILS("{'$getField': {'input': '$d'}}", "{}", 3041702);
    EXPRESSION_FAILS("{'$getField': {'field': 'x'}}", "{}", 3041703);
    EXPRESSION_GIVES("{'$setField': {'field': 'a.b', 'input': '$$ROOT', 'value': 3}}",
                     "{'a.b': 1, 'c': 2}", "{'a.b': 3, 'c': 2}");
    EXPRESSION_GIVES("{'$setField': {'field': 'n', 'input': '$$ROOT', 'value': 3}}", "{'c': 2}",
                     "{'c': 2, 'n': 3}");
    EXPRESSION_GIVES("{'$setField': {'field': 'c', 'input': '$$ROOT', 'value': '$$REMOVE'}}",
                     "{'c': 2, 'd': 1}", "{'d': 1}");
    EXPRESSION_GIVES("{'$unsetField': {'field': {'$literal': '$x'}, 'input': '$$ROOT'}}",
                     "{'$x': 2, 'd': 1}", "{'d': 1}");
    EXPRESSION_GIVES("{'$setField': {'field': 'c', 'input': null, 'value': 1}}", "{}", "null");
    EXPRESSION_FAILS("{'$setField': {'field': '$c', 'input': '$$ROOT', 'value': 1}}", "{}",
                     4161108);
    EXPRESSION_FAILS("{'$setField': {'field': 1, 'input': '$$ROOT', 'value': 1}}", "{}", 4161107);
    EXPRESSION_FAILS("{'$setField': {'field': 'c', 'input': 1, 'value': 1}}", "{}", 4161105);
    EXPRESSION_FAILS("{'$unsetField': {'input': '$$ROOT'}}", "{}", 4161102);
}

TEST(a_sorted_field_that_holds_an_array_is_compared_as_a_whole)
{
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': {'x': 1}}}",
                     "{'a': [{'x': [3, 1]}, {'x': [2]}, {'x': 5}, {'x': []}, {}]}",
                     "[{}, {'x': 5}, {'x': []}, {'x': [2]}, {'x': [3, 1]}]");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': {'x': -1}}}",
                     "{'a': [{'x': [2, 1]}, {'x': [2]}, {'x': [1, 9]}]}",
                     "[{'x': [2, 1]}, {'x': [2]}, {'x': [1, 9]}]");
    EXPRESSION_GIVES("{'$sortArray': {'input': '$a', 'sortBy': {'x': 1, 'y': 1}}}",
                     "{'a': [{'x': [1], 'y': [2]}, {'x': [1], 'y': [1, 5]}]}",
                     "[{'x': [1], 'y': [1, 5]}, {'x': [1], 'y': [2]}]");
}

TEST(the_least_integer_is_converted_from_a_double)
{
    static const char *const least = "{'d': {'$numberDouble': '-9223372036854775808'}}";

    EXPRESSION_GIVES("{'$toLong': '$d'}", least, "{'$numberLong': '-9223372036854775808'}");
}

TEST(fractions_of_a_millisecond_are_rounded)
{
    static const char *const date = "{'d': {'$date': {'$numberLong': '1000'}}}";

    EXPRESSION_GIVES("{'$toLong': {'$add': ['$d', 0.4]}}", date, "{'$numberLong': '1000'}");
    EXPRESSION_GIVES("{'$toLong': {'$add': ['$d', 0.5]}}", date, "{'$numberLong': '1001'}");
    EXPRESSION_GIVES("{'$toLong': {'$add': ['$d', 1.7]}}", date, "{'$numberLong': '1002'}");
    EXPRESSION_GIVES("{'$toLong': {'$add': ['$d', -0.7]}}", date, "{'$numberLong': '999'}");
    EXPRESSION_GIVES("{'$toLong': {'$add': ['$d', {'$numberDecimal': '1.7'}]}}", date,
                     "{'$numberLong': '1002'}");
    EXPRESSION_GIVES("{'$toLong': {'$subtract': ['$d', 1.7]}}", date, "{'$numberLong': '998'}");
    EXPRESSION_GIVES("{'$toLong': {'$subtract': ['$d', {'$numberDecimal': '1.7'}]}}", date,
                     "{'$numberLong': '998'}");
}

TEST(a_remainder_is_a_double_if_an_operand_is_one)
{
    EXPRESSION_GIVES("{'$mod': [5, 2.0]}", "{}", "{'$numberDouble': '1.0'}");
    EXPRESSION_GIVES("{'$mod': [{'$numberLong': '5'}, 2.0]}", "{}", "{'$numberDouble': '1.0'}");
    EXPRESSION_GIVES("{'$mod': [5.0, 2]}", "{}", "{'$numberDouble': '1.0'}");
    EXPRESSION_GIVES("{'$mod': [5, 2]}", "{}", "1");
    EXPRESSION_GIVES("{'$mod': [{'$numberLong': '5'}, 2]}", "{}", "{'$numberLong': '1'}");
}

TEST(computes_the_sigmoid_of_a_number)
{
    EXPRESSION_GIVES("{'$sigmoid': 0}", "{}", "0.5");
    EXPRESSION_GIVES("{'$sigmoid': -1e10}", "{}", "0.0");
    EXPRESSION_GIVES("{'$sigmoid': 1e10}", "{}", "1.0");
    EXPRESSION_GIVES("{'$sigmoid': {'$numberDecimal': '0'}}", "{}", "{'$numberDecimal': '0.5'}");
    EXPRESSION_GIVES("{'$sigmoid': null}", "{}", "null");
    EXPRESSION_GIVES("{'$sigmoid': {'$numberDecimal': '-3.14'}}", "{}",
                     "{'$numberDecimal': '0.04148711930169585060767831941324486'}");
    EXPRESSION_GIVES("{'$sigmoid': '$a'}", "{'a': -100}", "3.7200759760208356e-44");
    EXPRESSION_FAILS("{'$sigmoid': 'a'}", "{}", 14);
    EXPRESSION_FAILS("{'$sigmoid': [1]}", "{}", 14);
    EXPRESSION_FAILS("{'$sigmoid': [1, 2, 3]}", "{}", 14);
}

TEST(text_is_replaced_once_or_everywhere)
{
    EXPRESSION_GIVES("{'$replaceOne': {'input': '$a', 'find': 'b', 'replacement': '--'}}",
                     "{'a': 'abcb'}", "'a--cb'");
    EXPRESSION_GIVES("{'$replaceAll': {'input': '$a', 'find': 'b', 'replacement': ''}}",
                     "{'a': 'abcb'}", "'ac'");
    EXPRESSION_GIVES("{'$replaceAll': {'input': 'aaa', 'find': 'aa', 'replacement': 'x'}}", "{}",
                     "'xa'");
    EXPRESSION_GIVES("{'$replaceAll': {'input': 'é', 'find': '', 'replacement': '.'}}", "{}",
                     "'.é.'");
    EXPRESSION_GIVES("{'$replaceOne': {'input': '$no', 'find': 'b', 'replacement': ''}}", "{}",
                     "null");
    EXPRESSION_GIVES(
        "{'$replaceAll': {'input': 'hello', 'find': {'$regularExpression': {'pattern': 'l+|H', 'options': 'i'}}, 'replacement': 'L$1'}}",
        "{}", "'L$1eL$1o'");
    EXPRESSION_GIVES(
        "{'$replaceOne': {'input': 'hello', 'find': {'$regularExpression': {'pattern': 'l', 'options': ''}}, 'replacement': ''}}",
        "{}", "'helo'");
    EXPRESSION_GIVES(
        "{'$replaceAll': {'input': 'éa', 'find': {'$regularExpression': {'pattern': 'x*', 'options': ''}}, 'replacement': '.'}}",
        "{}", "'.é.a.'");
    EXPRESSION_GIVES(
        "{'$replaceAll': {'input': 'aab', 'find': {'$regularExpression': {'pattern': '^a', 'options': ''}}, 'replacement': '.'}}",
        "{}", "'.ab'");
    EXPRESSION_FAILS(
        "{'$replaceAll': {'input': 'a', 'find': {'$regularExpression': {'pattern': '(', 'options': ''}}, 'replacement': '.'}}",
        "{}", 51091);
    EXPRESSION_FAILS("{'$replaceOne': {'input': 1, 'find': 'b', 'replacement': ''}}", "{}", 51746);
    EXPRESSION_FAILS("{'$replaceOne': {'input': 'a', 'find': 1, 'replacement': ''}}", "{}", 51745);
    EXPRESSION_FAILS("{'$replaceAll': {'input': 'a', 'find': 'b'}}", "{}", 51747);
}

TEST(combines_the_bits_of_integers_only)
{
    EXPRESSION_GIVES("{'$bitAnd': [6, 3]}", "{}", "2");
    EXPRESSION_GIVES("{'$bitOr': [6, {'$numberLong': '1'}]}", "{}", "{'$numberLong': '7'}");
    EXPRESSION_GIVES("{'$bitXor': [6, 3]}", "{}", "5");
    EXPRESSION_GIVES("{'$bitNot': 5}", "{}", "-6");
    EXPRESSION_GIVES("{'$bitAnd': []}", "{}", "-1");
    EXPRESSION_GIVES("{'$bitOr': ['$no', 1]}", "{}", "null");
    EXPRESSION_FAILS("{'$bitOr': [1.0]}", "{}", 14);
    EXPRESSION_FAILS("{'$bitNot': 1.5}", "{}", 14);
}

TEST(returns_the_seconds_and_the_increment_of_a_timestamp)
{
    const char *document = "{'t': {'$timestamp': {'t': 4000000000, 'i': 7}}}";

    EXPRESSION_GIVES("{'$tsSecond': '$t'}", document, "{'$numberLong': '4000000000'}");
    EXPRESSION_GIVES("{'$tsIncrement': '$t'}", document, "{'$numberLong': '7'}");
    EXPRESSION_GIVES("{'$tsSecond': '$no'}", document, "null");
    EXPRESSION_FAILS("{'$tsSecond': 1}", document, 5687301);
    EXPRESSION_FAILS("{'$tsIncrement': 1}", document, 5687302);
}

TEST(trigonometry_keeps_decimals_and_checks_its_range)
{
    EXPRESSION_GIVES("{'$cos': 0}", "{}", "1.0");
    EXPRESSION_GIVES("{'$sin': {'$numberDecimal': '0'}}", "{}", "{'$numberDecimal': '0'}");
    EXPRESSION_GIVES("{'$round': [{'$degreesToRadians': 180}, 6]}", "{}", "3.141593");
    EXPRESSION_GIVES("{'$round': [{'$radiansToDegrees': {'$atan2': [1, 1]}}, 6]}", "{}", "45.0");
    EXPRESSION_GIVES("{'$tan': '$no'}", "{}", "null");
    EXPRESSION_FAILS("{'$acos': 2}", "{}", 50989);
    EXPRESSION_FAILS("{'$acosh': 0.5}", "{}", 50989);
    EXPRESSION_FAILS("{'$sin': {'$numberDouble': 'Infinity'}}", "{}", 50989);
    EXPRESSION_FAILS("{'$sin': 'x'}", "{}", 28765);
}

TEST(computes_sizes_and_recognizes_numbers)
{
    EXPRESSION_GIVES("{'$bsonSize': '$$ROOT'}", "{'a': 1}", "12");
    EXPRESSION_GIVES("{'$binarySize': '$a'}",
                     "{'a': {'$binary': {'base64': 'AQID', 'subType': '00'}}}", "3");
    EXPRESSION_GIVES("{'$binarySize': 'é'}", "{}", "2");
    EXPRESSION_GIVES("{'$isNumber': '$a'}", "{'a': {'$numberDecimal': 'NaN'}}", "true");
    EXPRESSION_GIVES("{'$isNumber': '$a'}", "{'a': '1'}", "false");
    EXPRESSION_GIVES("{'$and': [{'$gte': [{'$rand': {}}, 0]}, {'$lt': [{'$rand': {}}, 1]}]}", "{}",
                     "true");
    EXPRESSION_GIVES("{'$ne': [{'$rand': {}}, {'$rand': {}}]}", "{}", "true");
    EXPRESSION_FAILS("{'$rand': [1]}", "{}", 3040501);
}

TEST(splits_by_a_regular_expression)
{
#define SPLIT(text, pattern)                                                                       \
    "{'$split': ['" text "', {'$regularExpression': {'pattern': '" pattern "', 'options': 'i'}}]}"
    EXPRESSION_GIVES(SPLIT("a1b22c", "[0-9]+"), "{}", "['a', 'b', 'c']");
    EXPRESSION_GIVES(SPLIT("axb", "X"), "{}", "['a', 'b']");
    EXPRESSION_GIVES(SPLIT("abc", "x"), "{}", "['abc']");
    EXPRESSION_GIVES(SPLIT("", "x"), "{}", "['']");
    EXPRESSION_GIVES(SPLIT("aa", "a"), "{}", "['', '', '']");
    EXPRESSION_GIVES(SPLIT("a,b;c", "(,)|(;)"), "{}", "['a', ',', '', 'b', '', ';', 'c']");
    EXPRESSION_GIVES(SPLIT("éa", "x*"), "{}", "['', 'é', 'a', '']");
    EXPRESSION_GIVES(SPLIT("aab", "^a"), "{}", "['', 'ab']");
    EXPRESSION_FAILS(SPLIT("a", "("), "{}", 51091);
    EXPRESSION_FAILS("{'$split': ['a', 1]}", "{}", 40086);
#undef SPLIT
}

TEST(arithmetic_does_not_overflow_silently)
{
    EXPRESSION_GIVES("{'$subtract': [{'$numberLong': '-9223372036854775808'}, 3]}", "{}",
                     "-9223372036854775811.0");
    EXPRESSION_GIVES("{'$multiply': [1e308, 10]}", "{}", "{'$numberDouble': 'Infinity'}");
    EXPRESSION_FAILS("{'$subtract': ['$$NOW', {'$numberDouble': 'NaN'}]}", "{}", 15);
    EXPRESSION_FAILS("{'$add': ['$d', {'$numberLong': '9223372036854775807'}]}",
                     "{'d': {'$date': {'$numberLong': '1'}}}", 15);
    EXPRESSION_FAILS("{'$add': ['$$NOW', '$$NOW']}", "{}", 16612);
    EXPRESSION_FAILS("{'$divide': [1, 0]}", "{}", 2);
    EXPRESSION_FAILS("{'$add': ['a']}", "{}", 14);
}

TEST(returns_null_for_groups_outside_a_match)
{
    EXPRESSION_GIVES(
        "{'$regexMatch': {'input': 'a link', 'regex': 'lin(e|k) # either', 'options': 'x'}}", "{}",
        "true");
    EXPRESSION_GIVES("{'$regexFind': {'input': '$s', 'regex': '(C(ar)*)ol'}}", "{'s': 'Colleen'}",
                     "{'match': 'Col', 'idx': 0, 'captures': ['C', null]}");
    EXPRESSION_GIVES("{'$regexFindAll': {'input': '$s', 'regex': '$p'}}",
                     "{'s': 'aéa', 'p': 'a|$'}",
                     "[{'match': 'a', 'idx': 0, 'captures': []}, "
                     "{'match': 'a', 'idx': 2, 'captures': []}]");
}

TEST(an_empty_pattern_matches_once_at_each_character)
{
    EXPRESSION_GIVES("{'$map': {'input': {'$regexFindAll': {'input': '$s', 'regex': ''}}, "
                     "'in': '$$this.idx'}}",
                     "{'s': 'aéb'}", "[0, 1, 2]");
    EXPRESSION_GIVES("{'$map': {'input': {'$regexFindAll': {'input': '$s', 'regex': 'x*'}}, "
                     "'in': '$$this.match'}}",
                     "{'s': 'axxb'}", "['', 'xx', '']");
    EXPRESSION_GIVES("{'$size': {'$regexFindAll': {'input': '', 'regex': ''}}}", "{}", "1");
}

TEST(refuses_operators_that_need_javascript_with_the_reason)
{
    EXPRESSION_FAILS("{'$function': {'body': 'function() {}', 'args': [], 'lang': 'js'}}", "{}",
                     31264);
    EXPRESSION_FAILS("{'$accumulator': {}}", "{}", 31264);
}

TEST(many_groups_over_a_long_text_do_not_take_all_memory)
{
    char opening[151], closing[151], *text = bson_malloc0((1 << 20) + 1);
    char *expression, *document;

    memset(opening, '(', 150);
    memset(closing, ')', 150);
    opening[150] = closing[150] = '\0';
    memset(text, 'a', 1 << 20);
    expression = bson_strdup_printf("{'$regexFind': {'input': '$s', 'regex': '%sa+%s'}}", opening,
                                    closing); /* a megabyte for each group */
    document = bson_strdup_printf("{'s': '%s'}", text);
    EXPRESSION_FAILS(expression, document, 146);
    bson_free(document);
    bson_free(expression);
    bson_free(text);
}

/* ---- conversions ---------------------------------------------------------------------------- */

#define HALF_ANSWER "'$binary': {'base64': 'hn3uUsMxSE6S0cVkebjmfg==', 'subType': "

TEST(numbers_become_strings_in_a_base_and_strings_numbers)
{
    static const struct {
        const char *number, *base, *text;
    } cases[] = {
        {"10", "2", "1010"},
        {"10.0", "8", "12"},
        {"{'$numberLong': '-10'}", "16", "-A"},
        {"{'$numberDecimal': '10.0'}", "10", "10"},
        {"0", "2", "0"},
        {"{'$numberInt': '-2147483648'}", "8", "-20000000000"},
        {"{'$numberLong': '9223372036854775807'}", "16", "7FFFFFFFFFFFFFFF"},
        {"{'$numberLong': '-9223372036854775808'}", "2",
         "-1000000000000000000000000000000000000000000000000000000000000000"},
    };
    static const char *const wrong[][3] = {
        {"zzz", "long", "16"},
        {"8", "int", "8"},
        {"2", "double", "2"},
        {"", "int", "2"},
        {"-", "long", "10"},
        {"0x1F", "int", "16"},
        {"80000000", "int", "16"},
        {" 1", "int", "2"},
        {"1.0", "decimal", "10"},
        {"0b10", "int", "2"},
        {"8000000000000000", "decimal", "16"},
    };
    char expression[400], expected[200], document[300];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(document, sizeof document, "{'a': %s}", cases[i].number);
        snprintf(expression, sizeof expression,
                 "{'$convert': {'input': '$a', 'to': 'string', 'base': %s}}", cases[i].base);
        snprintf(expected, sizeof expected, "'%s'", cases[i].text);
        EXPRESSION_GIVES(expression, document, expected);
        snprintf(expression, sizeof expression,
                 "{'$eq': ['$a', {'$convert': {'input': '%s', 'to': 'long', 'base': %s}}]}",
                 cases[i].text, cases[i].base);
        EXPRESSION_GIVES(expression, document, "true");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(document, sizeof document, "{'a': '%s'}", wrong[i][0]);
        snprintf(expression, sizeof expression,
                 "{'$convert': {'input': '$a', 'to': '%s', 'base': %s}}", wrong[i][1], wrong[i][2]);
        EXPRESSION_FAILS(expression, document, 241);
    }
    EXPRESSION_GIVES("{'$convert': {'input': 'a', 'to': 'double', 'base': 16}}", "{}", "10.0");
    EXPRESSION_GIVES("{'$convert': {'input': '-A', 'to': 'decimal', 'base': 16}}", "{}",
                     "{'$numberDecimal': '-10'}");
    EXPRESSION_GIVES("{'$convert': {'input': 7, 'to': 'string', 'base': null}}", "{}", "'7'");
    EXPRESSION_GIVES("{'$convert': {'input': false, 'to': 'double', 'base': 2}}", "{}", "0.0");
    EXPRESSION_FAILS("{'$convert': {'input': 10.1, 'to': 'string', 'base': 2}}", "{}", 241);
    EXPRESSION_FAILS("{'$convert': {'input': 1, 'to': 'string', 'base': 2.5}}", "{}", 3501300);
    EXPRESSION_FAILS("{'$convert': {'input': 1, 'to': 'bool', 'base': '2'}}", "{}", 3501300);
    EXPRESSION_FAILS("{'$convert': {'input': 1, 'to': 'string', 'base': 3, 'onError': 0}}", "{}",
                     3501301);
}

TEST(strings_become_binaries_and_binaries_strings)
{
    static const struct {
        const char *text, *format, *subtype, *base64;
    } cases[] = {
        {"867dee52-c331-484e-92d1-c56479b8e67e", "uuid", "4", "hn3uUsMxSE6S0cVkebjmfg=="},
        {"hn3uUsMxSE6S0cVkebjmfg==", "base64", "0", "hn3uUsMxSE6S0cVkebjmfg=="},
        {"hn3uUsMxSE6S0cVkebjmfg", "base64url", "0", "hn3uUsMxSE6S0cVkebjmfg=="},
        {"-_-_", "base64url", "128", "+/+/"},
        {"867DEE52C331484E92D1C56479B8E67E", "hex", "5", "hn3uUsMxSE6S0cVkebjmfg=="},
        {"\xf0\x9f\x99\x82\xf0\x9f\x98\x8e", "utf8", "0", "8J+ZgvCfmI4="},
        {"", "hex", "0", ""},
        {"", "base64", "2", ""},
    };
    static const char *const wrong[][3] = {
        {"867dee--52-c331-484e-", "uuid", "4"},
        {"867dee52-c331-484e-92d1-c56479b8e67e", "uuid", "0"},
        {"hn3uUsMxSE6S0cVkebjmfg==", "base64", "4"},
        {"hn3uUsMxSE6S0cVkebjmfg==", "auto", "0"},
        {"hn3uUsMxSE6S0cVkebjmfg", "base64", "0"},
        {"hn3u-", "base64", "0"},
        {"AA=A", "base64", "0"},
        {"AB==", "base64", "0"},
        {"AAB", "base64url", "0"},
        {"A===", "base64", "0"},
        {"====", "base64", "0"},
        {"+/+/", "base64url", "0"},
        {"867", "hex", "0"},
        {"zz", "hex", "0"},
    };
    char expression[400], expected[200], document[300];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(document, sizeof document, "{'a': '%s'}", cases[i].text);
        snprintf(expression, sizeof expression,
                 "{'$convert': {'input': '$a', 'to': {'type': 'binData', 'subtype': %s}, "
                 "'format': '%s'}}",
                 cases[i].subtype, cases[i].format);
        snprintf(expected, sizeof expected, "{'$binary': {'base64': '%s', 'subType': '%02x'}}",
                 cases[i].base64, atoi(cases[i].subtype));
        EXPRESSION_GIVES(expression, document, expected);
        snprintf(document, sizeof document, "{'a': %s}", expected);
        snprintf(expression, sizeof expression,
                 "{'$convert': {'input': '$a', 'to': 'string', 'format': '%s'}}", cases[i].format);
        snprintf(expected, sizeof expected, "'%s'", cases[i].text);
        EXPRESSION_GIVES(expression, document, expected);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(document, sizeof document, "{'a': '%s'}", wrong[i][0]);
        snprintf(expression, sizeof expression,
                 "{'$convert': {'input': '$a', 'to': {'type': 'binData', 'subtype': %s}, "
                 "'format': '%s'}}",
                 wrong[i][2], wrong[i][1]);
        EXPRESSION_FAILS(expression, document, 241);
    }
    EXPRESSION_GIVES("{'$toString': '$a'}", "{'a': {" HALF_ANSWER "'04'}}}",
                     "'867dee52-c331-484e-92d1-c56479b8e67e'");
    EXPRESSION_GIVES("{'$toString': '$a'}", "{'a': {" HALF_ANSWER "'00'}}}",
                     "'hn3uUsMxSE6S0cVkebjmfg=='");
    EXPRESSION_GIVES("{'$toUUID': '867DEE52-c331-484e-92d1-c56479b8e67e'}", "{}",
                     "{" HALF_ANSWER "'04'}}");
    EXPRESSION_FAILS("{'$toUUID': '867dee52'}", "{}", 241);
    EXPRESSION_FAILS("{'$convert': {'input': '$a', 'to': 'string', 'format': 'utf8'}}",
                     "{'a': {" HALF_ANSWER "'00'}}}", 241);
    EXPRESSION_FAILS("{'$convert': {'input': '$a', 'to': 'string', 'format': 'uuid'}}",
                     "{'a': {" HALF_ANSWER "'00'}}}", 241);
}

TEST(numbers_become_binaries_in_a_byte_order)
{
    EXPRESSION_GIVES("{'$convert': {'input': 258, 'to': 'binData'}}", "{}",
                     "{'$binary': {'base64': 'AgEAAA==', 'subType': '00'}}");
    EXPRESSION_GIVES("{'$convert': {'input': 258, 'to': 'binData', 'byteOrder': 'big'}}", "{}",
                     "{'$binary': {'base64': 'AAABAg==', 'subType': '00'}}");
    EXPRESSION_GIVES("{'$convert': {'input': '$a', 'to': 'int', 'byteOrder': 'big'}}",
                     "{'a': {'$binary': {'base64': '/v8=', 'subType': '00'}}}", "-257");
    EXPRESSION_GIVES("{'$toInt': '$a'}", "{'a': {'$binary': {'base64': '/w==', 'subType': '00'}}}",
                     "-1");
    EXPRESSION_GIVES(
        "{'$toLong': {'$convert': {'input': {'$literal': {'$numberLong': '-5'}}, 'to': 'binData'}}}",
        "{}", "{'$numberLong': '-5'}");
    EXPRESSION_GIVES("{'$toDouble': {'$convert': {'input': 2.5, 'to': 'binData'}}}", "{}", "2.5");
    EXPRESSION_GIVES("{'$toDouble': '$a'}",
                     "{'a': {'$binary': {'base64': 'AAAgQA==', 'subType': '00'}}}", "2.5");
    EXPRESSION_FAILS("{'$toInt': '$a'}", "{'a': {'$binary': {'base64': 'AQID', 'subType': '00'}}}",
                     241);
    EXPRESSION_FAILS("{'$toDouble': '$a'}",
                     "{'a': {'$binary': {'base64': 'AQI=', 'subType': '00'}}}", 241);
    EXPRESSION_FAILS("{'$toDate': '$a'}", "{'a': {'$binary': {'base64': 'AQ==', 'subType': '00'}}}",
                     241);
    EXPRESSION_FAILS("{'$convert': {'input': {'$numberDecimal': '1'}, 'to': 'binData'}}", "{}",
                     241);
    EXPRESSION_FAILS("{'$convert': {'input': 1, 'to': 'binData', 'byteOrder': 'middle'}}", "{}",
                     9130002);
    EXPRESSION_FAILS("{'$convert': {'input': 1, 'to': 'binData', 'byteOrder': 1}}", "{}", 9130001);
}

TEST(arguments_of_a_conversion_are_checked)
{
    EXPRESSION_GIVES("{'$convert': {'input': '$a', 'to': {'type': 'binData', 'subtype': 4}}}",
                     "{'a': {" HALF_ANSWER "'04'}}}", "{" HALF_ANSWER "'04'}}");
    EXPRESSION_FAILS("{'$convert': {'input': '$a', 'to': 'binData'}}",
                     "{'a': {" HALF_ANSWER "'04'}}}", 241);
    EXPRESSION_GIVES("{'$convert': {'input': '$a', 'to': 'binData', 'onError': 'x'}}",
                     "{'a': {" HALF_ANSWER "'04'}}}", "'x'");
    EXPRESSION_GIVES("{'$convert': {'input': 1.9, 'to': {'type': 'int'}}}", "{}", "1");
    EXPRESSION_GIVES("{'$convert': {'input': 1.9, 'to': {'type': null}}}", "{}", "null");
    EXPRESSION_FAILS("{'$convert': {'input': 1.9, 'to': {'x': 'int'}}}", "{}", 9);
    EXPRESSION_FAILS("{'$convert': {'input': 1.9, 'to': {'type': -2}}}", "{}", 9);
    EXPRESSION_FAILS("{'$convert': {'input': 'YQ==', 'to': 'binData', 'onError': 1}}", "{}",
                     4341115);
    EXPRESSION_FAILS("{'$convert': {'input': '$a', 'to': 'string'}}",
                     "{'a': {" HALF_ANSWER "'04'}}}", 4341115);
    EXPRESSION_FAILS("{'$convert': {'input': 'YQ==', 'to': 'binData', 'format': 1}}", "{}",
                     4341114);
    EXPRESSION_FAILS("{'$convert': {'input': 'YQ==', 'to': 'binData', 'format': 'b64'}}", "{}",
                     4341125);
#define TO_SUBTYPE(subtype)                                                                        \
    "{'$convert': {'input': 'YQ==', 'to': {'type': 'binData', 'subtype': " subtype                 \
    "}, 'format': 'base64'}}"
    EXPRESSION_FAILS(TO_SUBTYPE("-1"), "{}", 4341107);
    EXPRESSION_FAILS(TO_SUBTYPE("127"), "{}", 4341107);
    EXPRESSION_FAILS(TO_SUBTYPE("256"), "{}", 4341107);
    EXPRESSION_FAILS(TO_SUBTYPE("1.5"), "{}", 4341106);
    EXPRESSION_FAILS(TO_SUBTYPE("'uuid'"), "{}", 4341108);
#undef TO_SUBTYPE
}

TEST(each_fraction_after_a_date_is_rounded_by_itself)
{
#define DATED    "{'d': {'$date': {'$numberLong': '1000'}}}"
#define DATE(ms) "{'$date': {'$numberLong': '" ms "'}}"
    EXPRESSION_GIVES("{'$add': ['$d', 0.5, 0.5]}", DATED, DATE("1002"));
    EXPRESSION_GIVES("{'$add': [0.5, 0.5, '$d']}", DATED, DATE("1001"));
    EXPRESSION_GIVES("{'$add': [0.2, '$d', -0.5, 1]}", DATED, DATE("1000"));
    EXPRESSION_GIVES("{'$add': ['$d', {'$numberDecimal': '2.5'}]}", DATED, DATE("1002"));
    EXPRESSION_GIVES("{'$subtract': ['$d', 2.5]}", DATED, DATE("997"));
    EXPRESSION_FAILS("{'$add': ['$d', {'$literal': {'$numberDouble': 'NaN'}}]}", DATED, 15);
#undef DATED
#undef DATE
}

TEST(a_remainder_by_zero_has_a_code_of_its_own_for_decimals)
{
    EXPRESSION_FAILS("{'$mod': [1, 0]}", "{}", 16610);
    EXPRESSION_FAILS("{'$mod': [1, {'$numberDecimal': '0'}]}", "{}", 5733415);
    EXPRESSION_GIVES("{'$mod': [5, 3.0]}", "{}", "2.0");
    EXPRESSION_FAILS("'$$CLUSTER_TIME'", "{}", 10071200);
}
