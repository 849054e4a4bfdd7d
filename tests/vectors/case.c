/* The fields of a case. */
#include "tests/vectors/vectors.h"

#include <stdlib.h>
#include <string.h>

struct vector_case *vector_case_new(const char *json, size_t size)
{
    struct vector_case *vector;
    bson_t *line = bson_new_from_json((const uint8_t *)json, (ssize_t)size, NULL);
    bson_iter_t iter;

    if (!line)
        return NULL;
    vector = bson_malloc0(sizeof(*vector));
    vector->line = line;
    vector->id = bson_iter_init_find(&iter, line, "id") ? bson_iter_utf8(&iter, NULL) : NULL;
    vector->kind = bson_iter_init_find(&iter, line, "kind") ? bson_iter_utf8(&iter, NULL) : NULL;
    vector->group = bson_iter_init_find(&iter, line, "group") ? bson_iter_utf8(&iter, NULL) : "";
    if (!vector->id || !vector->kind) {
        vector_case_free(vector);
        return NULL;
    }
    vector->generated_id = vector_truth(vector, "generatedId");
    vector->now = vector_truth(vector, "now");
    return vector;
}

void vector_case_free(struct vector_case *vector)
{
    bson_destroy(vector->line);
    bson_free(vector);
}

/* raw.<name> is a binary whose bytes are a document with the one field `v`. */
static bool find_raw(const bson_t *line, const char *name, bson_iter_t *field)
{
    bson_iter_t raw, child;
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t size;

    if (!bson_iter_init_find(&raw, line, "raw") || !bson_iter_recurse(&raw, &child) ||
        !bson_iter_find(&child, name) || !BSON_ITER_HOLDS_BINARY(&child))
        return false;
    bson_iter_binary(&child, &subtype, &size, &bytes);
    return bson_iter_init_from_data(field, bytes, size) && bson_iter_next(field);
}

bool vector_field(const struct vector_case *vector, const char *name, bson_iter_t *field)
{
    bool is_answer = !strcmp(name, "error") || !strcmp(name, "result") || !strcmp(name, "after") ||
                     !strcmp(name, "n") || !strcmp(name, "nModified") || !strcmp(name, "results") ||
                     !strcmp(name, "value") || !strcmp(name, "lastErrorObject") ||
                     !strcmp(name, "match") || !strcmp(name, "order") || !strcmp(name, "upserted");

    if (vector->newer && is_answer) {
        if (bson_iter_init_find(field, vector->newer, name))
            return true;
        if (!strcmp(name, "error"))
            return false;
    }
    return bson_iter_init_find(field, vector->line, name) || find_raw(vector->line, name, field);
}

bool vector_has(const struct vector_case *vector, const char *name)
{
    bson_iter_t field;

    return vector_field(vector, name, &field);
}

int64_t vector_number(const struct vector_case *vector, const char *name, int64_t otherwise)
{
    bson_iter_t field;

    return vector_field(vector, name, &field) ? bson_iter_as_int64(&field) : otherwise;
}

bool vector_truth(const struct vector_case *vector, const char *name)
{
    bson_iter_t field;

    return vector_field(vector, name, &field) && bson_iter_as_bool(&field);
}

static bool borrow(const bson_iter_t *field, bson_t *document)
{
    const uint8_t *bytes = NULL;
    uint32_t size = 0;

    if (BSON_ITER_HOLDS_DOCUMENT(field))
        bson_iter_document(field, &size, &bytes);
    else if (BSON_ITER_HOLDS_ARRAY(field))
        bson_iter_array(field, &size, &bytes);
    return bytes && bson_init_static(document, bytes, size);
}

bool vector_document(const struct vector_case *vector, const char *name, bson_t *document)
{
    bson_iter_t field;

    return vector_field(vector, name, &field) && borrow(&field, document);
}

bool vector_sub(const bson_t *parent, const char *name, bson_t *document)
{
    bson_iter_t field;

    bson_init(document);
    return bson_iter_init_find(&field, parent, name) && borrow(&field, document);
}

bool vector_sub_truth(const bson_t *parent, const char *name)
{
    bson_iter_t field;

    return bson_iter_init_find(&field, parent, name) && bson_iter_as_bool(&field);
}
