/* Compares an answer with the recorded one: fields one by one; errors by their codes. */
#include "tests/vectors/vectors.h"

#include <string.h>

#include "bson/value.h"

/* {code: N}, or {codes: [N, ...]} where one of several is right */
static bool same_code(const bson_iter_t *expected, int64_t actual)
{
    bson_t failure, codes;
    bson_iter_t iter;

    bson_init_static(&failure, bson_iter_value((bson_iter_t *)expected)->value.v_doc.data,
                     bson_iter_value((bson_iter_t *)expected)->value.v_doc.data_len);
    if (bson_iter_init_find(&iter, &failure, "code"))
        return bson_iter_as_int64(&iter) == actual;
    if (vector_sub(&failure, "codes", &codes))
        for (bson_iter_init(&iter, &codes); bson_iter_next(&iter);)
            if (bson_iter_as_int64(&iter) == actual)
                return true;
    return false;
}

static int64_t code_of(const bson_t *answer)
{
    bson_iter_t iter, child;

    if (bson_iter_init_find(&iter, answer, "error") && bson_iter_recurse(&iter, &child) &&
        bson_iter_find(&child, "code"))
        return bson_iter_as_int64(&child);
    return -1;
}

/* A server formats "E11000 ... dup key: { a: 1 }" in its own words: the names of the fields are
 * there. */
static bool names_fields(const bson_t *keys, const char *text)
{
    bson_iter_t iter;

    bson_iter_init(&iter, keys);
    while (bson_iter_next(&iter)) {
        if (!strstr(text, bson_iter_key(&iter)))
            return false;
    }
    return true;
}

/* keyPattern and keyValue of a duplicate key are in the error's text: ours are formatted as
 * messages show values. */
static bool names_key(const bson_t *expected, const bson_t *actual, bool generated_id)
{
    static const char *const names[] = {"keyPattern", "keyValue"};
    char shown[200];
    bson_iter_t text;
    bson_t keys;

    for (int i = 0; i < 2; i++) {
        if (!vector_sub(expected, names[i], &keys) || (i == 1 && generated_id))
            continue;
        truce__value_show(truce__value_document(&keys), shown, sizeof(shown));
        if (!bson_iter_init_find(&text, actual, "text"))
            return false;
        if (strstr(bson_iter_utf8(&text, NULL), "E11000")
                ? !names_fields(&keys, bson_iter_utf8(&text, NULL))
                : !strstr(bson_iter_utf8(&text, NULL), shown))
            return false;
    }
    return true;
}

static bool right_result(const bson_t *expected, const bson_t *actual,
                         const struct vector_rules *rules)
{
    bson_iter_t e, a;
    bool right = true;

    if (bson_iter_init_find(&e, expected, "error"))
        return same_code(&e, code_of(actual)) && names_key(expected, actual, rules->generated_id);
    for (bson_iter_init(&e, expected); right && bson_iter_next(&e);)
        right = bson_iter_init_find(&a, actual, bson_iter_key(&e)) &&
                vector_same_value(bson_iter_value(&e), bson_iter_value(&a), rules);
    return right && bson_has_field(expected, "upserted") == bson_has_field(actual, "upserted");
}

static bool right_results(const struct vector_case *vector, const bson_t *answer,
                          const struct vector_rules *rules)
{
    bson_t expected, actual;
    bson_iter_t e, a;
    bool right = true;

    if (!vector_document(vector, "results", &expected) || !vector_sub(answer, "results", &actual) ||
        !bson_iter_init(&e, &expected) || !bson_iter_init(&a, &actual))
        return false;
    while (right && bson_iter_next(&e)) {
        bson_t one, two;

        right = bson_iter_next(&a);
        if (!right)
            break;
        bson_init_static(&one, bson_iter_value(&e)->value.v_doc.data,
                         bson_iter_value(&e)->value.v_doc.data_len);
        bson_init_static(&two, bson_iter_value(&a)->value.v_doc.data,
                         bson_iter_value(&a)->value.v_doc.data_len);
        right = right_result(&one, &two, rules);
    }
    return right && !bson_iter_next(&a);
}

/* Compares a field that both must have with the same value, or neither. */
static bool right_field(const struct vector_case *vector, const bson_t *answer, const char *name,
                        const struct vector_rules *rules)
{
    bson_iter_t expected, actual;
    bool wanted = vector_field(vector, name, &expected);

    if (!wanted || !bson_iter_init_find(&actual, answer, name))
        return !wanted && !bson_has_field(answer, name);
    return vector_same_value(bson_iter_value(&expected), bson_iter_value(&actual), rules);
}

static bool pipeline_names(const struct vector_case *vector, const char *name)
{
    bson_t pipeline;
    bool named;
    char *json;

    if (!vector_document(vector, "pipeline", &pipeline))
        return false;
    json = bson_as_canonical_extended_json(&pipeline, NULL);
    named = json && strstr(json, name);
    bson_free(json);
    return named;
}

/* MongoDB promises no order for the results of set operators, and none without a sort. */
static bool has_order(const struct vector_case *vector, bool varied)
{
    if (strcmp(vector->kind, "aggregate") != 0)
        return strcmp(vector->kind, "distinct") != 0;
    if (pipeline_names(vector, "$setUnion") || pipeline_names(vector, "$setIntersection"))
        return false;
    return !varied || pipeline_names(vector, "$sort");
}

bool vector_judge(const struct vector_case *vector, const char *const *fields, bool varied,
                  const bson_t *answer)
{
    struct vector_rules rules = {.generated_id = vector->generated_id,
                                 .now = vector->now,
                                 .as_sets = !has_order(vector, varied)};
    bson_iter_t error;
    bool right = true;

    if (bson_has_field(answer, "changed"))
        return false;
    if (vector_field(vector, "error", &error)) {
        right = same_code(&error, code_of(answer));
        if (right && vector_has(vector, "docs") && vector_has(vector, "after"))
            right = right_field(vector, answer, "after", &rules);
        return right;
    }
    if (!strcmp(vector->kind, "index"))
        right = right_results(vector, answer, &rules);
    for (size_t i = 0; right && fields[i]; i++)
        right = right_field(vector, answer, fields[i], &rules);
    return right && !bson_has_field(answer, "error");
}
