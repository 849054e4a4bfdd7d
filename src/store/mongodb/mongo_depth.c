/*
 * Documents that are too deep, or unsound in another way.
 *
 * Updates that would nest a document deeper than TRUCE_DOCUMENT_DEPTH_MAX levels. MongoDB refuses them;
 * some servers of its protocol store them, and then every reader stumbles over the document. The depth of
 * what is written is known from the update alone: the components of its path and the levels of its value.
 * (Stages of a pipeline are left to the server: what they make depends on the document.)
 */
#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "store/mongodb/mongo.h"

/* Documents and arrays inside each other; 0: neither. Checked documents are not deep. */
static uint32_t levels_of(struct value value)
{
    struct fields fields;
    uint32_t most = 0;

    if (!truce__value_is_container(value))
        return 0;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint32_t inner = levels_of(fields.value);

        most = inner > most ? inner : most;
    }
    return most + 1;
}

static uint32_t components(const char *path)
{
    uint32_t count = 1;

    for (; *path; path++)
        count += *path == '.';
    return count;
}

/* $push and $addToSet put the value, or each of $each, into an array at the path. */
static uint32_t levels_added(const char *operator, struct value value)
{
    bool adds = !strcmp(operator, "$push") || !strcmp(operator, "$addToSet");
    struct value each = truce__value_missing();

    if (adds && value.type == BSON_TYPE_DOCUMENT)
        each = truce__value_field(value, "$each", 5);
    return each.type ? levels_of(each) : levels_of(value) + adds;
}

static truce_status check_operator(const char *operator, struct value changes, bson_error_t *error)
{
    struct fields fields = truce__fields(changes);

    while (truce__fields_next(&fields))
        if (components(fields.key) + levels_added(operator, fields.value) >
            TRUCE_DOCUMENT_DEPTH_MAX)
            return truce__fail(
                TRUCE_LIMIT, error,
                "%s of \"%.100s\" would nest the document deeper than %d levels", operator,
                fields.key, TRUCE_DOCUMENT_DEPTH_MAX);
    return TRUCE_OK;
}

truce_status truce__mongo_depth_check(const bson_t *update, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(update));
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        if (fields.key[0] == '$' && fields.value.type == BSON_TYPE_DOCUMENT)
            status = check_operator(fields.key, fields.value, error);
    return status;
}

truce_status truce__mongo_unsound(const char *what, const bson_t *document, bson_error_t *error)
{
    bson_error_t why = {0};
    char *shown = NULL;
    bson_t id = BSON_INITIALIZER;
    bson_iter_t iter;

    (void)truce__document_check(document, "document", &why); /* for its sentence */
    if (bson_iter_init_find(&iter, document, "_id") && bson_append_iter(&id, NULL, 0, &iter) &&
        !truce__document_check(&id, "document", NULL))
        shown = bson_as_relaxed_extended_json(&id, NULL);
    truce__fail(TRUCE_CORRUPT, error, "%s: the server sent a document (%.100s) that is unsound: %s",
                what, shown ? shown : "its _id cannot be read", why.message);
    bson_free(shown);
    bson_destroy(&id);
    return TRUCE_CORRUPT;
}
