/* Spans of indexes: the keys of a find's min and max. */
#include "query/index/index_span.h"

#include <string.h>

#include "query/index/index_set.h"

static bool span_is_given(const bson_t *bound)
{
    return bound && !bson_empty(bound);
}

bool truce__index_span_given(const bson_t *min, const bson_t *max)
{
    return span_is_given(min) || span_is_given(max);
}

/* ---- invalid bounds ------------------------------------------------------------------------- */

/* Returns whether both have the same fields in the same order, whatever their values. */
static bool span_same_fields(const bson_t *a, const bson_t *b)
{
    struct fields x = truce__fields(truce__value_document(a)),
                  y = truce__fields(truce__value_document(b));

    for (;;) {
        bool more = truce__fields_next(&x);

        if (truce__fields_next(&y) != more)
            return false;
        if (!more)
            return true;
        if (strcmp(x.key, y.key) != 0)
            return false;
    }
}

static bool is_natural(const bson_t *specification)
{
    return specification && bson_has_field(specification, "$natural");
}

truce_status truce__index_span_check(const bson_t *min, const bson_t *max, const bson_t *hint,
                                     const bson_t *sort, bson_error_t *error)
{
    char shown[2][60];

    if (span_is_given(min) && span_is_given(max) && !span_same_fields(min, max))
        return truce__refuse(
            51176, error,
            "min and max must have the same fields in the same order, and are %s and %s",
            truce__value_show(truce__value_document(min), shown[0], sizeof shown[0]),
            truce__value_show(truce__value_document(max), shown[1], sizeof shown[1]));
    if (!truce__index_span_given(min, max))
        return TRUCE_OK;
    if (!hint || bson_empty(hint))
        return truce__refuse(51173, error, "min and max need a hint with the index");
    if (is_natural(hint) || is_natural(sort))
        return truce__refuse(
            CODE_NO_QUERY_EXECUTION_PLANS, error,
            "min and max need an index, which $natural does not use: give a hint with the index");
    return TRUCE_OK;
}

/* ---- bounds as keys ------------------------------------------------------------------------- */

static truce_status span_check_fields(const struct index_spec *spec, const bson_t *bound,
                                      const char *name, bson_error_t *error)
{
    char wanted[160], given[160];

    if (!span_is_given(bound) || (!spec->fields[0].wildcard && span_same_fields(bound, spec->key)))
        return TRUCE_OK;
    return truce__refuse(51174, error, "%s is %s, but the index of the hint, \"%s\", is %s%s", name,
                         truce__value_show(truce__value_document(bound), given, sizeof given),
                         spec->name,
                         truce__value_show(truce__value_document(spec->key), wanted, sizeof wanted),
                         spec->fields[0].wildcard ? ", which has no order" : "");
}

/* Encodes a bound. Without a bound, the key is the end of the index on this side: MinKey or MaxKey,
 * by the order of the field. */
static void span_make_key(const struct index_spec *spec, const bson_t *bound, bool upper,
                          struct buffer *key)
{
    struct fields fields;

    if (span_is_given(bound))
        fields = truce__fields(truce__value_document(bound));
    for (uint32_t i = 0; i < spec->count; i++) {
        bool descending = spec->fields[i].descending;
        struct value value = {.type = upper != descending ? BSON_TYPE_MAXKEY : BSON_TYPE_MINKEY};

        if (span_is_given(bound) && truce__fields_next(&fields))
            value = fields.value;
        truce__key_append(key, value, descending);
    }
}

truce_status truce__index_span_make(const struct index_spec *spec, const bson_t *min,
                                    const bson_t *max, struct index_span *span, bson_error_t *error)
{
    truce_status status = span_check_fields(spec, min, "min", error);

    *span = (struct index_span){0};
    if (!status)
        status = span_check_fields(spec, max, "max", error);
    if (status || !truce__index_span_given(min, max))
        return status;
    span_make_key(spec, min, false, &span->from);
    span_make_key(spec, max, true, &span->to);
    if (truce__bytes_compare(span->from.bytes, span->from.size, span->to.bytes, span->to.size) >= 0)
        return truce__refuse(51175, error, "min is not before max in the order of the index \"%s\"",
                             spec->name);
    return TRUCE_OK;
}

bool truce__index_span_first(const struct index_span *span, const struct field_keys *keys,
                             const uint8_t **key, size_t *size)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t start = i ? keys->ends[i - 1] : 0;

        *key = keys->bytes.bytes + start;
        *size = keys->ends[i] - start;
        if (!span->from.size)
            return true;
        if (truce__bytes_compare(*key, *size, span->from.bytes, span->from.size) >= 0)
            return truce__bytes_compare(*key, *size, span->to.bytes, span->to.size) < 0;
    }
    return false;
}

/* ---- comparison of consecutive documents ---------------------------------------------------- */

truce_status truce__keyer_new(const struct index_spec *spec, const bson_t *min, const bson_t *max,
                              struct keyer **keyer, bson_error_t *error)
{
    struct keyer *made = bson_malloc0(sizeof *made);
    truce_status status = truce__index_spec_copy(spec, &made->spec, error);

    if (!status)
        status = truce__index_span_make(&made->spec, min, max, &made->span, error);
    if (status) {
        truce__keyer_free(made);
        made = NULL;
    }
    *keyer = made;
    return status;
}

void truce__keyer_free(struct keyer *keyer)
{
    if (!keyer)
        return;
    truce__index_spec_release(&keyer->spec);
    truce__index_span_release(&keyer->span);
    truce__field_keys_release(&keyer->keys);
    bson_free(keyer);
}

truce_status truce__keyer_key(struct keyer *keyer, struct value document, const uint8_t **key,
                              size_t *size, bson_error_t *error)
{
    truce_status status = truce__index_keys(&keyer->spec, document, &keyer->keys, error);

    if (status || !truce__index_span_first(&keyer->span, &keyer->keys, key, size))
        *key = NULL;
    return status;
}
