/* Projections: computed fields, error codes, and cases without a recorded answer of a server. */
#include "query/project/project.h"

#include "tests/support/test.h"

struct projected {
    const char *projection, *document, *query;
    uint32_t code;
};

/* NULL, and the code, if it is refused; bson_destroy it */
static bson_t *run(struct projected *projected)
{
    bson_t *projection = test_bson(projected->projection);
    bson_t *document = test_bson(projected->document);
    bson_t *query = projected->query ? test_bson(projected->query) : NULL;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct project *compiled = NULL;
    struct match *match = NULL;
    bson_error_t error = {0};
    bson_t *result = NULL, shown;
    truce_status status = query ? truce__match_new(query, &match, &error) : TRUCE_OK;

    if (!status)
        status = truce__project_new(projection, match, &compiled, &error);
    if (!status) {
        status = truce__project_apply(compiled, truce__value_document(document), NULL, &context,
                                      &shown, &error);
        if (!status) {
            CHECK_OK(truce__document_check(&shown, "result", &error), error);
            result = bson_copy(&shown);
        }
        bson_destroy(&shown);
    }
    projected->code = status ? error.code : 0;
    truce__project_free(compiled);
    if (match)
        truce__match_free(match);
    truce__arena_release(&arena);
    bson_destroy(projection);
    bson_destroy(document);
    if (query)
        bson_destroy(query);
    return result;
}

static bool check(const char *expected, struct projected projected, const char *file, int line)
{
    bson_t *shown = run(&projected), *wanted;
    bool same;

    if (!shown)
        return test_fail(file, line, "%s of %s: error %u", projected.projection, projected.document,
                         projected.code);
    wanted = test_bson(expected);
    same = test_bson_equal(wanted, shown, file, line);
    bson_destroy(wanted);
    bson_destroy(shown);
    return same;
}

static bool check_code(uint32_t code, struct projected projected, const char *file, int line)
{
    bson_t *shown = run(&projected);

    if (shown)
        bson_destroy(shown);
    if (projected.code != code)
        return test_fail(file, line, "%s of %s: expected %u, got %u", projected.projection,
                         projected.document, code, projected.code);
    return true;
}

#define CHECK_SHOWN(expected, ...)                                                                 \
    check(expected, (struct projected){__VA_ARGS__}, __FILE__, __LINE__)
#define CHECK_REFUSED(code, ...)                                                                   \
    check_code(code, (struct projected){__VA_ARGS__}, __FILE__, __LINE__)

TEST(puts_computed_fields_after_the_included_ones)
{
    CHECK_SHOWN("{'_id': 1, 'b': 2, 'a': 1, 'z': 3, 'c': 'literal'}",
                "{'z': {'$add': ['$a', '$b']}, 'a': 1, 'c': 'literal', 'b': true}",
                "{'_id': 1, 'b': 2, 'a': 1}");
}

TEST(a_computed_field_hides_the_field_of_its_name)
{
    CHECK_SHOWN("{'_id': 1, 'b': 2, 'a': 4}", "{'a': {'$multiply': ['$b', 2]}, 'b': 1}",
                "{'_id': 1, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'_id': 1}", "{'a': '$nope'}", "{'_id': 1, 'a': 1}");
}

TEST(a_computed_path_goes_into_documents_and_arrays)
{
    static const char projection[] = "{'a.b': {'$literal': 7}}";

    CHECK_SHOWN("{'_id': 1, 'a': {'b': 7}}", projection, "{'_id': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': {'b': 7}}", projection, "{'_id': 1, 'a': 5}");
    CHECK_SHOWN("{'_id': 1, 'a': {'b': 7}}", projection, "{'_id': 1, 'a': {'b': 1, 'c': 2}}");
    CHECK_SHOWN("{'_id': 1, 'a': [{'b': 7}, {'b': 7}, [{'b': 7}]]}", projection,
                "{'_id': 1, 'a': [{'b': 1, 'c': 2}, 5, [6]]}");
    CHECK_SHOWN("{'_id': 1, 'a': {'c': 2, 'b': 1}, 'x': 1}", "{'a.b': '$x', 'a.c': 1, 'x': 1}",
                "{'_id': 1, 'a': {'b': 1, 'c': 2}, 'x': 1}");
}

TEST(keeps_the_place_of_a_scalar_for_computed_subfields)
{
    CHECK_SHOWN("{'_id': 1, 'a': {'b': 7}, 'c': 1}", "{'c': 1, 'a.b': {'$literal': 7}}",
                "{'_id': 1, 'a': 5, 'c': 1}");
}

TEST(nested_documents_mean_paths)
{
    CHECK_SHOWN("{'_id': 1, 'a': {'b': 1, 'd': {'e': 2}}}", "{'a': {'b': 1, 'd.e': 1}}",
                "{'_id': 1, 'a': {'b': 1, 'c': 3, 'd': {'e': 2, 'f': 1}}}");
    CHECK_SHOWN("{'_id': 1, 'a': {'c': 3}}", "{'a': {'b': 0, 'd': {'e': 0}}}",
                "{'_id': 1, 'a': {'b': 1, 'c': 3}}");
    CHECK_SHOWN("{'_id': 1, 'a': {'b': 1, 'c': 2}}", "{'a': {'b': 1}, 'a.c': 1}",
                "{'_id': 1, 'a': {'b': 1, 'c': 2, 'd': 3}}");
    CHECK_SHOWN("{'_id': 1, 'a': {'n': 9}}", "{'a': {'n': '$x'}}", "{'_id': 1, 'x': 9}");
}

TEST(shows_the_id_unless_excluded)
{
    CHECK_SHOWN("{'a': 1}", "{'a': 1, '_id': 0}", "{'_id': 1, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'_id': 1, 'b': 2}", "{'a': 0, '_id': 1}", "{'_id': 1, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'_id': {'x': 1}, 'a': 1}", "{'_id.x': 1, 'a': 1}",
                "{'_id': {'x': 1, 'y': 2}, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'a': 1, 'b': 2}", "{'_id': 0}", "{'_id': 1, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'_id': 1}", "{'_id': 1}", "{'_id': 1, 'a': 1, 'b': 2}");
    CHECK_SHOWN("{'_id': 1, 'a': 1}", "{}", "{'_id': 1, 'a': 1}");
}

TEST(shows_the_other_fields_for_slices_alone_but_not_with_inclusions)
{
    CHECK_SHOWN("{'_id': 1, 'a': [1, 2], 'b': 1}", "{'a': {'$slice': 2}}",
                "{'_id': 1, 'a': [1, 2, 3], 'b': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [3], 'b': 1}", "{'a': {'$slice': -1}, 'b': 1}",
                "{'_id': 1, 'a': [1, 2, 3], 'b': 1, 'c': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [2, 3]}", "{'a': {'$slice': [1, 5]}, '_id': 1}",
                "{'_id': 1, 'a': [1, 2, 3], 'b': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [2]}", "{'a': {'$slice': [-2, 1]}, 'b': 0}",
                "{'_id': 1, 'a': [1, 2, 3], 'b': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [], 'b': 1}", "{'a': {'$slice': 0}}",
                "{'_id': 1, 'a': [1, 2, 3], 'b': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [1]}",
                "{'a': {'$slice': {'$numberLong': '-9223372036854775808'}}}",
                "{'_id': 1, 'a': [1]}");
}

TEST(slices_through_documents_and_arrays)
{
    CHECK_SHOWN("{'_id': 1, 'a': [{'b': [1]}, 5, [{'b': [1, 2]}]]}", "{'a.b': {'$slice': 1}}",
                "{'_id': 1, 'a': [{'b': [1, 2]}, 5, [{'b': [1, 2]}]]}");
    CHECK_SHOWN("{'_id': 1, 'a': {'b': [1], 'c': 1}}", "{'a': {'b': {'$slice': 1}}}",
                "{'_id': 1, 'a': {'b': [1, 2], 'c': 1}}");
}

TEST(slice_with_an_array_to_take_from_is_an_expression)
{
    CHECK_SHOWN("{'_id': 1, 'n': [2, 3]}", "{'n': {'$slice': ['$a', 1, 2]}}",
                "{'_id': 1, 'a': [1, 2, 3]}");
    CHECK_SHOWN("{'_id': 1, 'n': [1]}", "{'n': {'$slice': ['$a', 1]}}",
                "{'_id': 1, 'a': [1, 2, 3]}");
}

TEST(elem_match_appends_the_first_element_to_the_other_fields)
{
    CHECK_SHOWN("{'_id': 1, 'b': 1, 'a': [{'k': 2, 'n': 1}]}",
                "{'a': {'$elemMatch': {'k': 2}}, 'b': 1}",
                "{'_id': 1, 'a': [{'k': 1}, {'k': 2, 'n': 1}, {'k': 2}], 'b': 1}");
    CHECK_SHOWN("{'_id': 1, 'a': [{'k': 2}], 'c': 1}", "{'a': {'$elemMatch': {'k': 2}}, 'b': 0}",
                "{'_id': 1, 'a': [{'k': 1}, {'k': 2}], 'b': 1, 'c': 1}");
    CHECK_SHOWN("{'_id': 1, 'c': 1}", "{'a': {'$elemMatch': {'k': 9}}, 'b': 0}",
                "{'_id': 1, 'a': [{'k': 1}], 'b': 1, 'c': 1}");
}

TEST(the_positional_path_shows_the_element_that_the_query_matched)
{
    CHECK_SHOWN("{'_id': 1, 'a': [{'k': 2, 'n': 5}]}", "{'a.$': 1}",
                "{'_id': 1, 'a': [{'k': 1}, {'k': 2, 'n': 5}], 'b': 1}", "{'a.k': 2}");
    CHECK_SHOWN("{'_id': 1, 'a': {'b': [6]}, 'c': 1}", "{'a.b.$': 1, 'c': 1}",
                "{'_id': 1, 'a': {'b': [1, 6], 'x': 1}, 'c': 1}", "{'a.b': {'$gte': 5}}");
    CHECK_SHOWN("{'_id': 1, 'a': [{'b': 2}]}", "{'a.b.$': 1}",
                "{'_id': 1, 'a': [{'b': 1}, {'b': 2, 'c': 3}]}", "{'a.b': 2}");
    CHECK_SHOWN("{'_id': 1, 'a': 5}", "{'a.$': 1}", "{'_id': 1, 'a': 5}", "{'a': 5}");
    CHECK_SHOWN("{'_id': 1, 'b': [8]}", "{'b.$': 1}", "{'_id': 1, 'a': [1, 2], 'b': [7, 8]}",
                "{'a': 2}");
    CHECK_REFUSED(51246, "{'a.$': 1}", "{'_id': 1, 'a': [1, 2]}", "{'_id': 1}");
    CHECK_REFUSED(51247, "{'b.$': 1}", "{'_id': 1, 'a': [1, 2], 'b': [7]}", "{'a': 2}");
}

TEST(refuses_projections_with_the_codes_of_a_server)
{
    static const struct {
        uint32_t code;
        const char *projection;
    } cases[] = {
        {31254, "{'a': 1, 'b': 0}"},
        {31253, "{'a': 0, 'b': 1}"},
        {31253, "{'a.b': 0, 'c': {'d': 1}}"},
        {31252, "{'a': 0, 'b': {'$add': [1, 2]}}"},
        {31310, "{'a': 0, 'b': 'literal'}"},
        {31254, "{'b': 'literal', 'a': 0}"},
        {31250, "{'a': 1, 'a': 1}"},
        {31250, "{'a.b': 1, 'a': 1}"},
        {31249, "{'a': 1, 'a.b': 1}"},
        {31249, "{'a.b': {'$slice': 1}, 'a.b.c': 1}"},
        {31249, "{'_id': 0, '_id.x': 1}"},
        {51270, "{'a': {}}"},
        {31274, "{'a': {'$elemMatch': 5}}"},
        {31275, "{'a.b': {'$elemMatch': {'x': 1}}}"},
        {31275, "{'a': {'b': {'$elemMatch': {'x': 1}}}}"},
        {2, "{'a': {'$elemMatch': {'$expr': {'$eq': ['$x', 1]}}}}"},
        {31255, "{'a.$': 1, 'b': {'$elemMatch': {'x': 1}}}"},
        {31256, "{'b': {'$elemMatch': {'x': 1}}, 'a.$': 1}"},
        {31276, "{'a.$': 1, 'b.$': 1}"},
        {31394, "{'a.$.b': 1}"},
        {31394, "{'a.$.$': 1}"},
        {31395, "{'a.$': 0}"},
        {31271, "{'a.$': {'$slice': 1}}"},
        {31308, "{'a.$': 'x'}"},
        {16410, "{'$a': 1}"},
        {16410, "{'a.$b': 1}"},
        {15998, "{'a..b': 1}"},
        {40353, "{'a.': 1}"},
        {40352, "{'': 1}"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_REFUSED(cases[i].code, cases[i].projection, "{'_id': 1, 'a': [1]}", "{'a': 1}");
    CHECK_REFUSED(51050, "{'a.$': 1}", "{'_id': 1, 'a': [1]}");
}

TEST(values_of_any_number_type_and_bools_include_or_exclude)
{
    static const char *const yes[] = {"1",
                                      "true",
                                      "-1",
                                      "2.5",
                                      "{'$numberLong': '7'}",
                                      "{'$numberDecimal': '0.1'}",
                                      "{'$numberDouble': 'NaN'}"};
    static const char *const no[] = {"0", "false", "-0.0", "{'$numberLong': '0'}",
                                     "{'$numberDecimal': '0E+3'}"};

    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        char *projection = bson_strdup_printf("{'a': %s}", yes[i]);

        CHECK_SHOWN("{'_id': 1, 'a': 1}", projection, "{'_id': 1, 'a': 1, 'b': 2}");
        bson_free(projection);
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        char *projection = bson_strdup_printf("{'a': %s}", no[i]);

        CHECK_SHOWN("{'_id': 1, 'b': 2}", projection, "{'_id': 1, 'a': 1, 'b': 2}");
        bson_free(projection);
    }
}

TEST(null_and_text_are_literals_but_text_with_a_dollar_is_a_path)
{
    CHECK_SHOWN("{'_id': 1, 'a': null, 'b': 'x', 'c': 5, 'd': [5, 1]}",
                "{'a': null, 'b': 'x', 'c': '$v', 'd': ['$v', 1]}", "{'_id': 1, 'v': 5, 'a': 2}");
}

TEST(uses_the_last_match_for_the_positional_path)
{
    bson_t *projection = test_bson("{'a.$': 1}");
    bson_t *query = test_bson("{'a': {'$gt': 0}}");
    bson_t *document = test_bson("{'_id': 1, 'a': [1, 2, 3]}");
    bson_t *expected = test_bson("{'_id': 1, 'a': [3]}");
    struct match_result found = {.matched = true, .array_index = 2};
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct project *compiled = NULL;
    struct match *match = NULL;
    bson_error_t error;
    bson_t shown;

    REQUIRE(CHECK_OK(truce__match_new(query, &match, &error), error));
    REQUIRE(CHECK_OK(truce__project_new(projection, match, &compiled, &error), error));
    CHECK_OK(truce__project_apply(compiled, truce__value_document(document), &found, &context,
                                  &shown, &error),
             error);
    CHECK_BSON(expected, &shown);
    bson_destroy(&shown);
    truce__project_free(compiled);
    truce__match_free(match);
    truce__arena_release(&arena);
    bson_destroy(projection);
    bson_destroy(query);
    bson_destroy(document);
    bson_destroy(expected);
}
