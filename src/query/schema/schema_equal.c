/*
 * Equality of values without regard to the order of fields, and duplicate elements in this sense.
 *
 * Both functions sort: the fields of a document by name, the elements of an array by a hash that
 * does not depend on the order of fields. Neither takes quadratic time.
 */
#include <stdlib.h>

#include "query/schema/schema_tree.h"

struct named {
    const char *name;
    struct value value;
    /* fields of the same name stay in their order */
    uint32_t order;
};

static int order_of_names(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static struct named *sorted_fields(struct value document, uint32_t *count)
{
    struct fields fields = truce__fields(document);
    struct named *named = NULL;
    uint32_t room = 0;

    for (*count = 0; truce__fields_next(&fields); ++*count) {
        if (*count == room) {
            room = room ? 2 * room : 8;
            named = bson_realloc(named, room * sizeof *named);
        }
        named[*count] = (struct named){fields.key, fields.value, *count};
    }
    if (*count)
        qsort(named, *count, sizeof *named, order_of_names);
    return named;
}

static bool equal_documents(struct value a, struct value b)
{
    uint32_t a_count, b_count;
    struct named *a_fields = sorted_fields(a, &a_count), *b_fields = sorted_fields(b, &b_count);
    bool equal = a_count == b_count;

    for (uint32_t i = 0; i < a_count && equal; i++)
        equal = !strcmp(a_fields[i].name, b_fields[i].name) &&
                truce__schema_equal(a_fields[i].value, b_fields[i].value);
    bson_free(a_fields);
    bson_free(b_fields);
    return equal;
}

static bool equal_arrays(struct value a, struct value b)
{
    struct fields a_fields = truce__fields(a), b_fields = truce__fields(b);

    for (;;) {
        bool more = truce__fields_next(&a_fields);

        if (more != truce__fields_next(&b_fields))
            return false;
        if (!more)
            return true;
        if (!truce__schema_equal(a_fields.value, b_fields.value))
            return false;
    }
}

bool truce__schema_equal(struct value a, struct value b)
{
    if (a.type == BSON_TYPE_DOCUMENT && b.type == BSON_TYPE_DOCUMENT)
        return equal_documents(a, b);
    if (a.type == BSON_TYPE_ARRAY && b.type == BSON_TYPE_ARRAY)
        return equal_arrays(a, b);
    return truce__value_equal(a, b);
}

static uint64_t equal_hash_name(const char *name)
{
    /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_unordered(struct value value)
{
    struct fields fields;
    uint64_t hash = value.type;

    if (!truce__value_is_container(value))
        return truce__value_hash(value);
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint64_t one = hash_unordered(fields.value);

        if (value.type == BSON_TYPE_DOCUMENT)
            hash += (one ^ equal_hash_name(fields.key)) * 0x9e3779b97f4a7c15u;
        else
            hash = hash * 31 + one;
    }
    return hash;
}

struct hashed {
    uint64_t hash;
    struct value value;
};

static int order_of_hashes(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;

    return (x->hash > y->hash) - (x->hash < y->hash);
}

bool truce__schema_has_repeats(struct value array)
{
    struct fields fields = truce__fields(array);
    struct hashed *hashed = NULL;
    uint32_t count = 0, room = 0;
    bool repeats = false;

    while (truce__fields_next(&fields)) {
        if (count == room) {
            room = room ? 2 * room : 16;
            hashed = bson_realloc(hashed, room * sizeof *hashed);
        }
        hashed[count++] = (struct hashed){hash_unordered(fields.value), fields.value};
    }
    if (count)
        qsort(hashed, count, sizeof *hashed, order_of_hashes);
    for (uint32_t i = 0; i < count && !repeats; i++) {
        for (uint32_t j = i + 1; j < count && hashed[j].hash == hashed[i].hash && !repeats; j++)
            repeats = truce__schema_equal(hashed[i].value, hashed[j].value);
    }
    bson_free(hashed);
    return repeats;
}
