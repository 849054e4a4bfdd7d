/*
 * Distinct values: a hash table of values that are copied into an arena, and sorted at the end.
 *
 *     table    hash -> number of a value
 *     values   [ v0, v1, v2, ... ]
 *
 * `distinct` follows a path in MongoDB's own way, which differs from that of filters. A field whose
 * name is the whole rest of the path takes precedence. A number after an array selects only that
 * element. Any other name is looked up in each document of the array.
 */
#include "query/distinct.h"

#include <stdlib.h>

#include "base/hash_table.h"
#include "base/limits.h"
#include "bson/array.h"

#define STEPS_OF_DOCUMENT 8
#define BYTES_OF_STEP     32

struct distinct {
    struct path path;
    struct arena arena;
    struct value *values;
    uint32_t count, room;
    /* The values by hash. */
    struct hash_table table;
    size_t bytes;
};

truce_status truce__distinct_new(const char *path, struct distinct **distinct, bson_error_t *error)
{
    struct distinct *made = bson_malloc0(sizeof(*made));
    truce_status status = truce__path_parse(path, strlen(path), &made->path, error);

    if (status) {
        truce__distinct_free(made);
        made = NULL;
    }
    *distinct = made;
    return status;
}

void truce__distinct_free(struct distinct *distinct)
{
    if (!distinct)
        return;
    truce__path_release(&distinct->path);
    truce__arena_release(&distinct->arena);
    bson_free(distinct->values);
    truce__hash_release(&distinct->table);
    bson_free(distinct);
}

/* Adds a copy of the value, unless an equal one is there. */
static void distinct_add(struct distinct *distinct, struct value value)
{
    uint64_t hash = truce__value_hash(value);

    for (struct hash_probe probe = truce__hash_probe(&distinct->table, hash);
         truce__hash_next(&probe);)
        if (truce__value_equal(distinct->values[probe.number], value))
            return;
    if (distinct->count == distinct->room) {
        distinct->room = distinct->room ? distinct->room * 2 : 32;
        distinct->values = bson_realloc(distinct->values, distinct->room * sizeof(struct value));
    }
    truce__hash_add(&distinct->table, hash, distinct->count);
    distinct->values[distinct->count++] = truce__value_copy(&distinct->arena, value);
    distinct->bytes += value.size + 16;
}

static void distinct_add_all(struct distinct *distinct, struct value value)
{
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY) {
        distinct_add(distinct, value);
        return;
    }
    for (fields = truce__fields(value); truce__fields_next(&fields);)
        distinct_add(distinct, fields.value);
}

/* Adds the values at the rest of the path, from part `part` on. A field whose name contains dots
 * comes first, as in MongoDB. */
static void distinct_collect(struct distinct *distinct, struct value container, uint32_t part)
{
    const struct path *path = &distinct->path;
    const struct path_part *name = &path->parts[part];
    const char *rest = name->name;
    struct value value =
        truce__value_field(container, rest, path->length - (size_t)(rest - path->text));
    struct fields fields;

    if (value.type != VALUE_MISSING) {
        distinct_add_all(distinct, value);
        return;
    }
    if (part + 1 == path->count)
        return;
    value = truce__value_field(container, rest, name->length);
    if (value.type == BSON_TYPE_DOCUMENT ||
        (value.type == BSON_TYPE_ARRAY && path->parts[part + 1].index >= 0)) {
        distinct_collect(distinct, value, part + 1);
    } else if (value.type == BSON_TYPE_ARRAY) {
        for (fields = truce__fields(value); truce__fields_next(&fields);)
            if (truce__value_is_container(fields.value))
                distinct_collect(distinct, fields.value, part + 1);
    }
}

truce_status truce__distinct_add(struct distinct *distinct, struct value document,
                                 struct budget *budget, bson_error_t *error)
{
    truce_status status =
        truce__budget_spend(budget, STEPS_OF_DOCUMENT + document.size / BYTES_OF_STEP, error);

    if (status)
        return status;
    distinct_collect(distinct, document, 0);
    if (distinct->bytes > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(17217, error, "the distinct values of \"%s\" are more than %d bytes",
                             distinct->path.text, TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

/* Compares two values for qsort. The values are distinct, so the order is total. */
static int distinct_compare(const void *a, const void *b)
{
    const struct value *one = a, *other = b;

    return truce__value_compare(*one, *other);
}

void truce__distinct_values(const struct distinct *distinct, bson_t *values)
{
    struct value *sorted = bson_malloc(distinct->count * sizeof *sorted);
    struct array array = {.to = values};

    if (distinct->count) {
        memcpy(sorted, distinct->values, distinct->count * sizeof *sorted);
        qsort(sorted, distinct->count, sizeof *sorted, distinct_compare);
    }
    bson_init(values);
    for (uint32_t i = 0; i < distinct->count; i++)
        truce__array_add(&array, sorted[i]);
    bson_free(sorted);
}

truce_status truce__distinct_sort(bson_t *values, bson_error_t *error)
{
    struct distinct *distinct;
    truce_status status = truce__distinct_new("values", &distinct, error);
    struct fields fields = truce__fields(truce__value_document(values));

    if (status)
        return status;
    while (truce__fields_next(&fields))
        distinct_add(distinct, fields.value);
    bson_destroy(values);
    truce__distinct_values(distinct, values);
    truce__distinct_free(distinct);
    return TRUCE_OK;
}
