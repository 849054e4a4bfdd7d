/*
 * Is what stands there what was read? The number alone does not say: a program that knows nothing of it
 * changes a document and leaves the number as it was. So the caller's copy is compared, too:
 *
 *     in a commit    same bytes                         as read
 *                    same values                        as read; a number that has got another type since, and
 *                                                       that mine leaves alone, keeps it
 *                    otherwise                          stale, as under another number
 *     in a filter    the fields in their order, but for `_id`, the number and truce's own:
 *                        {$expr: {$eq: [{$filter: the fields of $$ROOT}, [{k: "a", v: 1}, ...]]}}
 *                    and, because numbers of all types are equal there, the type of each number:
 *                        {"a": {$type: 16}, "list.0.n": {$type: 1}}
 *
 * Invariant:
 *   B1. The filter matches nothing that a commit would call stale. What it cannot say is left to the commit.
 */
#include "patterns/revision/revision.h"

#include "base/buffer.h"
#include "base/limits.h"
#include "commit/entry.h"

/* ---- in a commit ------------------------------------------------------------------------------ */

static bool same_values(struct value a, struct value b);

static uint32_t base_count_of(struct value container)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(container); truce__fields_next(&fields);)
        count++;
    return count;
}

/* The order of fields alone says nothing. */
static bool base_same_fields(struct value a, struct value b)
{
    for (struct fields fields = truce__fields(a); truce__fields_next(&fields);) {
        if (!same_values(fields.value, truce__value_field(b, fields.key, fields.key_length)))
            return false;
    }
    return base_count_of(a) == base_count_of(b);
}

static bool base_same_elements(struct value a, struct value b)
{
    struct fields in_a = truce__fields(a), in_b = truce__fields(b);

    for (;;) {
        bool more_a = truce__fields_next(&in_a), more_b = truce__fields_next(&in_b);

        if (!more_a || !more_b)
            return more_a == more_b;
        if (!same_values(in_a.value, in_b.value))
            return false;
    }
}

static bool same_values(struct value a, struct value b)
{
    if (a.type == BSON_TYPE_DOCUMENT && b.type == BSON_TYPE_DOCUMENT)
        return base_same_fields(a, b);
    if (a.type == BSON_TYPE_ARRAY && b.type == BSON_TYPE_ARRAY)
        return base_same_elements(a, b);
    return b.type && truce__value_equal(a, b);
}

/* `_keys` is what commits make of the rest. */
static void without_own(const bson_t *content, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(content, plain, "_id", "_keys", NULL);
}

bool truce__revision_same_values(const bson_t *base, const bson_t *theirs)
{
    bson_t a, b;
    bool same;

    without_own(base, &a);
    without_own(theirs, &b);
    same = same_values(truce__value_document(&a), truce__value_document(&b));
    bson_destroy(&a);
    bson_destroy(&b);
    return same;
}

/* ---- in a filter ------------------------------------------------------------------------------ */

void truce__revision_plain(const truce_revision *revision, const bson_t *document, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(document, plain, "_id", revision->version, "_rev", "_intent",
                                  NULL);
}

/* [{k: "a", v: 1}, ...] */
static void base_append_pairs(const bson_t *plain, bson_t *array)
{
    uint32_t index = 0;

    for (struct fields fields = truce__fields(truce__value_document(plain));
         truce__fields_next(&fields); index++) {
        char digits[16];
        const char *key;
        bson_t pair;

        bson_uint32_to_string(index, &key, digits, sizeof digits);
        bson_append_document_begin(array, key, -1, &pair);
        bson_append_utf8(&pair, "k", 1, fields.key, (int)fields.key_length);
        truce__value_append(&pair, "v", 1, fields.value);
        bson_append_document_end(array, &pair);
    }
}

static void base_append_value_guard(const truce_revision *revision, const bson_t *plain,
                                    bson_t *filter)
{
    bson_t *fields =
        BCON_NEW("$filter", "{", "input", "{", "$objectToArray", "{", "$mergeObjects", "[",
                 "$$ROOT", "]", "}", "}", "as", "field", "cond", "{", "$not", "[", "{", "$in", "[",
                 "$$field.k", "[", BCON_UTF8("_id"), BCON_UTF8(revision->version),
                 BCON_UTF8("_rev"), BCON_UTF8("_intent"), "]", "]", "}", "]", "}", "}");
    bson_t expr, operands, literal, pairs;

    bson_append_document_begin(filter, "$expr", 5, &expr);
    bson_append_array_begin(&expr, "$eq", 3, &operands);
    BSON_APPEND_DOCUMENT(&operands, "0", fields);
    bson_append_document_begin(&operands, "1", 1, &literal);
    bson_append_array_begin(&literal, "$literal", 8, &pairs);
    base_append_pairs(plain, &pairs);
    bson_append_array_end(&literal, &pairs);
    bson_append_document_end(&operands, &literal);
    bson_append_array_end(&expr, &operands);
    bson_append_document_end(filter, &expr);
    bson_destroy(fields);
}

struct types {
    bson_t *filter;
    struct buffer path;
    uint32_t count;
};

static bool is_index(const char *name)
{
    return name[0] && strspn(name, "0123456789") == strlen(name);
}

/* A name that a path cannot say: "a.b" is two, and "0" may be an element's. */
static bool base_is_sayable(const struct fields *field, bool element)
{
    return element || (field->key_length && field->key[0] != '$' && !is_index(field->key) &&
                       strlen(field->key) == field->key_length && !strchr(field->key, '.'));
}

static bool append_types(struct types *types, struct value container)
{
    bool elements = container.type == BSON_TYPE_ARRAY;
    size_t before = types->path.size;

    for (struct fields fields = truce__fields(container); truce__fields_next(&fields);) {
        bool number = truce__value_is_number(fields.value);
        bson_t type;

        if (!number && !truce__value_is_container(fields.value))
            continue;
        if (!base_is_sayable(&fields, elements) || types->count == REVISION_NUMBERS_MAX)
            return false;
        if (before)
            truce__buffer_append(&types->path, ".", 1);
        truce__buffer_append(&types->path, fields.key, fields.key_length);
        if (number) {
            types->count++;
            bson_append_document_begin(types->filter, (const char *)types->path.bytes,
                                       (int)types->path.size, &type);
            BSON_APPEND_INT32(&type, "$type", fields.value.type);
            bson_append_document_end(types->filter, &type);
        } else if (!append_types(types, fields.value)) {
            return false;
        }
        types->path.size = before;
    }
    return true;
}

bool truce__revision_filter_base(const truce_revision *revision, const bson_t *base, bson_t *filter)
{
    struct types types = {.filter = filter};
    bson_t plain;
    bool sayable;

    truce__revision_plain(revision, base, &plain);
    sayable =
        plain.len <= VALUE_GUARD_BYTES_MAX && append_types(&types, truce__value_document(&plain));
    if (sayable)
        base_append_value_guard(revision, &plain, filter);
    truce__buffer_release(&types.path);
    bson_destroy(&plain);
    return sayable;
}
