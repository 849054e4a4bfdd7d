/* What a collection's validator lets pass (validator.h). */
#include "query/match/validator.h"

truce_status truce__validator_new(const bson_t *filter, struct match **validator,
                                  bson_error_t *error)
{
    *validator = NULL;
    return !filter || bson_empty(filter) ? TRUCE_OK : truce__match_new(filter, validator, error);
}

truce_status truce__validator_test(const struct match *validator, const char *collection,
                                   int64_t now_ms, const bson_t *document, bson_error_t *error)
{
    struct arena arena = {0};
    struct query_context context = {.now_ms = now_ms, .arena = &arena};
    struct match_result result;
    truce_status status;

    if (!validator)
        return TRUCE_OK;
    status =
        truce__match_test(validator, truce__value_document(document), &context, &result, error);
    if (!status && !result.matched)
        status = truce__refuse(CODE_DOCUMENT_VALIDATION_FAILURE, error,
                               "the document does not match the validator of %s", collection);
    truce__arena_release(&arena);
    return status;
}
