#ifndef TRUCE_TESTS_SUPPORT_STEPS_H
#define TRUCE_TESTS_SUPPORT_STEPS_H

/* The cost of work, counted in steps of a budget, which knows no clock. */
#include "base/arena.h"
#include "base/budget.h"
#include "query/expression/expression.h"
#include "tests/support/test.h"

struct work {
    struct budget budget;
    struct arena arena;
    struct query_context context;
};

static inline void begin(struct work *work)
{
    *work = (struct work){0};
    truce__budget_init(&work->budget, 0, NULL);
    work->context = (struct query_context){.arena = &work->arena, .budget = &work->budget};
}

static inline uint64_t end(struct work *work)
{
    truce__arena_release(&work->arena);
    return truce__budget_spent(&work->budget);
}

/* Evaluates {e: EXPRESSION} for {_id: 1, a: [1, 2]}; the arena owns the result. */
static inline struct value evaluate(const char *json, struct work *work)
{
    bson_t *source = test_bson(json), *document = test_bson("{'_id': 1, 'a': [1, 2]}");
    struct value whole = truce__value_document(source), result = truce__value_missing();
    struct expression *expression = NULL;
    bson_error_t error;

    CHECK_OK(truce__expression_new(truce__value_field(whole, "e", 1), NULL, &expression, &error),
             error);
    CHECK_OK(truce__expression_evaluate(expression, truce__value_document(document), NULL,
                                        &work->context, &result, &error),
             error);
    result = truce__value_copy(&work->arena, result);
    truce__expression_free(expression);
    bson_destroy(source);
    bson_destroy(document);
    return result;
}

#endif
