#include "operations/request_fields.h"

#include <string.h>

#include "base/assert.h"
#include "base/nearest_word.h"
#include "base/status.h"
#include "bson/number.h"
#include "bson/value.h"
#include "store/namespace_map.h"

bool truce__field_is_common(const char *name)
{
    static const char *const common[] = {"$clusterTime",
                                         "$readPreference",
                                         "apiDeprecationErrors",
                                         "apiStrict",
                                         "apiVersion",
                                         "autocommit",
                                         "comment",
                                         "lsid",
                                         "maxTimeMS",
                                         "readConcern",
                                         "recoveryToken",
                                         "startTransaction",
                                         "stmtId",
                                         "stmtIds",
                                         "txnNumber",
                                         "writeConcern",
                                         "$db"};

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (!strcmp(name, common[i]))
            return true;
    return false;
}

const bson_t *truce__bytes_view(struct arena *arena, const uint8_t *bytes, uint32_t size)
{
    bson_t *view = truce__arena_take(arena, sizeof *view);

    return bson_init_static(view, bytes, size) ? view : NULL;
}

const bson_t *truce__field_view(struct arena *arena, const bson_iter_t *iter)
{
    struct value value = truce__value_of_iter(iter);

    return truce__bytes_view(arena, value.data, value.size);
}

static const bson_t *fields_hint(struct arena *arena, const bson_iter_t *at)
{
    bson_t *hint;
    const bson_t *view;

    if (BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__field_view(arena, at);
    hint = BCON_NEW("", BCON_UTF8(bson_iter_utf8(at, NULL)));
    view = truce__bytes_view(arena, truce__arena_copy(arena, bson_get_data(hint), hint->len),
                             hint->len);
    bson_destroy(hint);
    return view;
}

bool truce__field_is_number(const bson_iter_t *at)
{
    return truce__value_is_number(truce__value_of_iter(at));
}

bool truce__field_truth(const bson_iter_t *at)
{
    return truce__value_truth(truce__value_of_iter(at));
}

bool truce__field_to_number(const bson_iter_t *at, int64_t *number)
{
    struct value value = truce__value_of_iter(at);
    double real;

    if (!truce__value_is_number(value))
        return false;
    if (truce__number_truncate(value, number))
        return true;
    real = truce__number_to_double(value);
    /* NaN is neither greater nor less than 0, and becomes 0. */
    *number = real > 0 ? INT64_MAX : real < 0 ? INT64_MIN : 0;
    return true;
}

/* Returns whether the value means that the field is absent: null, false, 0, {}, [], or the
 * simple collation. */
static bool fields_is_plain(const bson_iter_t *at)
{
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_DOCUMENT(at) || BSON_ITER_HOLDS_ARRAY(at)) {
        if (!bson_iter_recurse(at, &inner) || !bson_iter_next(&inner))
            return true;
        return !strcmp(bson_iter_key(&inner), "locale") && BSON_ITER_HOLDS_UTF8(&inner) &&
               !strcmp(bson_iter_utf8(&inner, NULL), "simple");
    }
    return BSON_ITER_HOLDS_NULL(at) ||
           ((truce__field_is_number(at) || BSON_ITER_HOLDS_BOOL(at)) && !truce__field_truth(at));
}

truce_status truce__field_wrong_type(const bson_iter_t *at, const char *wanted, bson_error_t *error)
{
    return truce__refuse(CODE_TYPE_MISMATCH, error, "the field '%.80s' must be %s, not %s",
                         bson_iter_key(at), wanted, truce__type_name((uint8_t)bson_iter_type(at)));
}

truce_status truce__element_wrong_type(const char *array, const bson_iter_t *at, const char *wanted,
                                       bson_error_t *error)
{
    return truce__refuse(CODE_TYPE_MISMATCH, error, "'%s.%.20s' must be %s, not %s", array,
                         bson_iter_key(at), wanted, truce__type_name((uint8_t)bson_iter_type(at)));
}

static truce_status fields_keep_number(const bson_iter_t *at, int64_t *number, bson_error_t *error)
{
    return truce__field_to_number(at, number) ? TRUCE_OK
                                              : truce__field_wrong_type(at, "a number", error);
}

bool truce__field_to_whole(const bson_iter_t *at, int64_t *number)
{
    bool rounded = BSON_ITER_HOLDS_DOUBLE(at) && !truce__double_is_whole(bson_iter_double(at));

    return !rounded && truce__field_is_number(at) &&
           truce__number_to_int64(truce__value_of_iter(at), number);
}

/* Reads a number that must be whole: amounts and versions are never rounded. A time is often passed
 * as a string or as a date, so its error names the unit. */
static truce_status fields_keep_whole(enum field_type type, const bson_iter_t *at, int64_t *number,
                                      bson_error_t *error)
{
    char text[60];

    if (!truce__field_is_number(at))
        return truce__field_wrong_type(at,
                                       type == FIELD_TIME ? "a number of milliseconds since 1970"
                                       : type == FIELD_DURATION ? "a number of milliseconds"
                                                                : "a number",
                                       error);
    if (!truce__field_to_whole(at, number))
        return truce__refuse(
            CODE_BAD_VALUE, error, "the field '%.80s' must be a whole number of 64 bits, not %s",
            bson_iter_key(at), truce__value_show(truce__value_of_iter(at), text, sizeof text));
    return TRUCE_OK;
}

bool truce__field_to_oid(struct arena *arena, const bson_iter_t *at, const bson_oid_t **id)
{
    const char *text = BSON_ITER_HOLDS_UTF8(at) ? bson_iter_utf8(at, NULL) : NULL;
    bson_oid_t *read;

    if (BSON_ITER_HOLDS_OID(at)) {
        *id = bson_iter_oid(at);
        return true;
    }
    if (!text || !bson_oid_is_valid(text, strlen(text)))
        return false;
    read = truce__arena_take(arena, sizeof *read);
    bson_oid_init_from_string(read, text);
    *id = read;
    return true;
}

/* Stores the value in the member `into` by the type of the field. Fails with TypeMismatch or
 * BadValue. FIELD_PLAIN and FIELD_IGNORED do not use `into`. */
static truce_status fields_store_value(struct arena *arena, const struct field *field,
                                       const bson_iter_t *at, void *into, bson_error_t *error)
{
    bool is_document = BSON_ITER_HOLDS_DOCUMENT(at), is_array = BSON_ITER_HOLDS_ARRAY(at);

    if (BSON_ITER_HOLDS_UTF8(at) && field->type != FIELD_VALUE) {
        truce_status status = truce__text_check(at, CODE_BAD_VALUE, error);

        if (status)
            return status;
    }
    switch (field->type) {
    case FIELD_TEXT:
        if (!BSON_ITER_HOLDS_UTF8(at))
            return truce__field_wrong_type(at, "a string", error);
        *(const char **)into = bson_iter_utf8(at, NULL);
        break;
    case FIELD_DOCUMENT:
        if (!is_document)
            return truce__field_wrong_type(at, "a document", error);
        *(const bson_t **)into = truce__field_view(arena, at);
        break;
    case FIELD_ARRAY:
        if (!is_array)
            return truce__field_wrong_type(at, "an array", error);
        *(const bson_t **)into = truce__field_view(arena, at);
        break;
    case FIELD_EITHER:
        if (!is_document && !is_array)
            return truce__field_wrong_type(at, "a document or an array", error);
        *(struct document_or_array *)into =
            (struct document_or_array){truce__field_view(arena, at), is_array};
        break;
    case FIELD_HINT:
        if (!is_document && !BSON_ITER_HOLDS_UTF8(at))
            return truce__field_wrong_type(at, "a document or a string", error);
        *(const bson_t **)into = fields_hint(arena, at);
        break;
    case FIELD_NUMBER:
        return fields_keep_number(at, into, error);
    case FIELD_WHOLE:
    case FIELD_TIME:
    case FIELD_DURATION:
        return fields_keep_whole(field->type, at, into, error);
    case FIELD_FLAG:
        if (!BSON_ITER_HOLDS_BOOL(at) && !truce__field_is_number(at))
            return truce__field_wrong_type(at, "true or false", error);
        *(bool *)into = truce__field_truth(at);
        break;
    case FIELD_VALUE:
        *(const bson_value_t **)into =
            truce__arena_copy(arena, bson_iter_value((bson_iter_t *)at), sizeof(bson_value_t));
        break;
    case FIELD_OID:
        if (!truce__field_to_oid(arena, at, into))
            return truce__field_wrong_type(at, "an ObjectId or its 24 hexadecimal digits", error);
        break;
    case FIELD_PLAIN:
        if (!fields_is_plain(at))
            return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                                 "truce does not support the field '%.80s' here", field->name);
        break;
    case FIELD_IGNORED:
        break;
    }
    return TRUCE_OK;
}

bool truce__fields_strict(const bson_t *request)
{
    bson_iter_t strict;

    return bson_iter_init_find(&strict, request, "apiStrict") && truce__field_truth(&strict);
}

/* The most fields that an error lists. */
#define FIELDS_LISTED 5

/* Returns CODE 40415 for a field that the table lacks, and names the nearest one that the document
 * does not have yet. If none is near, lists the fields of a small table. */
static truce_status fields_refuse_unknown(const struct fields_reading *reading,
                                          const bson_t *document, const struct field *fields,
                                          const char *name, bson_error_t *error)
{
    bson_iter_t given;
    struct nearest_word nearest = {.word = name};
    bson_string_t *list = bson_string_new(": its fields are");
    char hint[NEAREST_WORD_HINT_MAX];
    truce_status status;
    int count = 0;

    for (; fields->name; fields++) {
        if (fields->type == FIELD_IGNORED || fields->type == FIELD_PLAIN)
            continue;
        bson_string_append_printf(list, "%s '%s'", count++ ? "," : "", fields->name);
        if (!bson_iter_init_find(&given, document, fields->name))
            truce__nearest_word_offer(&nearest, fields->name);
    }
    truce__nearest_word_hint(&nearest, hint);
    status = truce__refuse(40415, error, "unknown field \"%.80s\" of \"%.80s\"%s", name,
                           reading->command,
                           !nearest.best && count && count <= FIELDS_LISTED ? list->str : hint);
    bson_string_free(list, true);
    return status;
}

static uint64_t fields_bit(const struct field *fields, const struct field *field)
{
    truce_assert(field - fields < 64);
    return UINT64_C(1) << (field - fields);
}

truce_status truce__fields_read(const struct fields_reading *reading, const bson_t *document,
                                const struct field *fields, void *into, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    /* Bit i is set if field i of the table was given. */
    uint64_t given = 0;
    bson_iter_t at;

    (void)bson_iter_init(&at, document);
    if (reading->whole)
        (void)bson_iter_next(&at);
    while (!status && bson_iter_next(&at)) {
        const struct field *field = fields;

        while (field->name && strcmp(field->name, bson_iter_key(&at)) != 0)
            field++;
        if (!field->name) {
            if (!reading->whole || !truce__field_is_common(bson_iter_key(&at)))
                status =
                    fields_refuse_unknown(reading, document, fields, bson_iter_key(&at), error);
            continue;
        }
        if (given & fields_bit(fields, field))
            status = truce__refuse(40413, error, "the field '%.80s' is given twice", field->name);
        else if (BSON_ITER_HOLDS_NULL(&at))
            /* Several drivers send absent fields as null. It counts as given here, because the
             * checks of access read the first field of a name. */
            status = TRUCE_OK;
        else if (field->unstable && reading->request && truce__fields_strict(reading->request))
            status = truce__refuse(CODE_API_STRICT, error,
                                   "the field '%.80s' is not in API Version 1, and the call is "
                                   "strict (apiStrict)",
                                   field->name);
        else
            status = fields_store_value(reading->arena, field, &at,
                                        into ? (uint8_t *)into + field->at : NULL, error);
        given |= fields_bit(fields, field);
    }
    return status;
}
