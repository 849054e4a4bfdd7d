/* The validator of a collection (validator.h). */
#include "query/match/validator.h"

truce_status truce__validator_new(const bson_t *filter, struct match **validator,
                                  bson_error_t *error)
{
    *validator = NULL;
    return !filter || bson_empty(filter) ? TRUCE_OK : truce__match_new(filter, validator, error);
}

/* Fails because the document does not match. The server parses this message
 * (server/call/call_error.c). */
static truce_status validator_refuse(const bson_t *document, const char *collection,
                                     bson_error_t *error)
{
    struct value whole = truce__value_document(document);
    bson_t id = BSON_INITIALIZER;
    char shown[200];

    truce__value_append(&id, "_id", 3, truce__value_field(whole, "_id", 3));
    truce__value_show(truce__value_document(&id), shown, sizeof shown);
    bson_destroy(&id);
    return truce__refuse(CODE_DOCUMENT_VALIDATION_FAILURE, error,
                         "the document %s does not match the validator of %s", shown, collection);
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
        status = validator_refuse(document, collection, error);
    truce__arena_release(&arena);
    return status;
}
