#include "tests/support/expression.h"

#include "base/random.h"
#include "query/expression/expression.h"
#include "tests/support/test.h"

struct outcome {
    truce_status status;
    bson_error_t error;
    /* {r: the result}. */
    bson_t result;
};

/* Compiles and evaluates an expression. Initializes the result in any case. */
static void evaluate(const char *text, const char *document_text, struct outcome *outcome)
{
    char *wrapped = bson_strdup_printf("{\"r\": %s}", text);
    bson_t *source = test_bson(wrapped), *document = test_bson(document_text);
    struct arena arena = ARENA_INIT;
    struct random random;
    struct query_context context = {
        .now_ms = EXPRESSION_NOW_MS, .random = &random, .arena = &arena};
    struct expression *expression;
    struct value value = truce__value_field(truce__value_document(source), "r", 1), result;

    truce__random_seed(&random, 1);
    bson_init(&outcome->result);
    outcome->status = truce__expression_new(value, NULL, &expression, &outcome->error);
    if (!outcome->status)
        outcome->status = truce__expression_evaluate(expression, truce__value_document(document),
                                                     NULL, &context, &result, &outcome->error);
    if (!outcome->status)
        truce__value_append(&outcome->result, "r", 1, result);
    truce__expression_free(expression);
    truce__arena_release(&arena);
    bson_destroy(document);
    bson_destroy(source);
    bson_free(wrapped);
}

void expression_gives(const char *expression, const char *document, const char *expected,
                      const char *file, int line)
{
    bool missing = !strcmp(expected, "missing");
    char *wrapped = bson_strdup_printf(missing ? "{}" : "{\"r\": %s}", expected);
    bson_t *wanted = test_bson(wrapped);
    struct outcome outcome;

    evaluate(expression, document, &outcome);
    if (outcome.status)
        test_fail(file, line, "%s: %u %s", expression, outcome.error.code, outcome.error.message);
    else
        test_bson_equal(wanted, &outcome.result, file, line);
    bson_destroy(&outcome.result);
    bson_destroy(wanted);
    bson_free(wrapped);
}

void expression_fails(const char *expression, const char *document, uint32_t code, const char *file,
                      int line)
{
    struct outcome outcome;

    evaluate(expression, document, &outcome);
    if (!outcome.status)
        test_fail(file, line, "%s: is not refused", expression);
    else if (outcome.error.code != code)
        test_fail(file, line, "%s: refused with %u instead of %u (%s)", expression,
                  outcome.error.code, code, outcome.error.message);
    bson_destroy(&outcome.result);
}
