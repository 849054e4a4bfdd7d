#include "query/expression/expression.h"

/* The variables of a command ({find, filter, let: {name: expression}}). They are evaluated once;
 * the filters and expressions of the command are compiled with their values as constants. */

/* Evaluates the expression of one variable, into the arena of the context. */
static truce_status expression_let_evaluate(struct value source, struct query_context *context,
                                            struct value *result, bson_error_t *error)
{
    struct expression *expression;
    truce_status status = truce__expression_new(source, NULL, &expression, error);

    if (status)
        return status;
    status = truce__expression_evaluate(expression, truce__value_missing(), NULL, context, result,
                                        error);
    /* Copies the result before the expression is freed, because it may point into the
     * expression. */
    if (!status)
        *result = truce__value_copy(context->arena, *result);
    truce__expression_free(expression);
    return status;
}

truce_status truce__let_evaluate(const bson_t *let, struct query_context *context, bson_t *values,
                                 bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(let));
    truce_status status = TRUCE_OK;

    bson_init(values);
    while (!status && truce__fields_next(&fields)) {
        struct value value;

        status = truce__expression_variable_check(fields.key, fields.key_length, error);
        truce__let_begin(values, true);
        if (!status)
            status = expression_let_evaluate(fields.value, context, &value, error);
        truce__let_begin(NULL, false);
        if (!status && value.type != VALUE_MISSING)
            truce__value_append(values, fields.key, fields.key_length, value);
    }
    return status;
}
