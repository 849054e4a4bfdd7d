#include "query/input_check.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/terminal_escape.h"
#include "query/sort/sort.h"

/* ---- input of callers ----------------------------------------------------------------------- */

truce_status truce__check_optional(const bson_t *document, const char *what, bson_error_t *error)
{
    return document ? truce__document_check(document, what, error) : TRUCE_OK;
}

truce_status truce__check_required(const bson_t *document, const char *what, bson_error_t *error)
{
    if (!document)
        return truce__fail(TRUCE_INVALID, error, "the %s is missing", what);
    return truce__document_check(document, what, error);
}

/* Checks the bytes of a container inside a value, which libbson has not checked: it would silently
 * omit a malformed one. */
static truce_status check_container(const uint8_t *data, uint32_t size, const char *what,
                                    bson_error_t *error)
{
    bson_t document;

    if (!data || !bson_init_static(&document, data, size))
        return truce__refuse(CODE_INVALID_BSON, error, "the %s is malformed: it has no content",
                             what);
    return truce__document_check(&document, what, error);
}

truce_status truce__check_value(const bson_value_t *value, const char *what, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (!value)
        return truce__fail(TRUCE_INVALID, error, "the %s is missing", what);
    if (value->value_type == BSON_TYPE_DOCUMENT || value->value_type == BSON_TYPE_ARRAY)
        status = check_container(value->value.v_doc.data, value->value.v_doc.data_len, what, error);
    else if (value->value_type == BSON_TYPE_CODEWSCOPE)
        status = check_container(value->value.v_codewscope.scope_data,
                                 value->value.v_codewscope.scope_len, what, error);
    if (!status && !bson_append_value(&holder, "v", 1, value))
        status = truce__refuse(CODE_INVALID_BSON, error, "the %s has an unknown type", what);
    if (!status)
        status = truce__document_check(&holder, what, error);
    bson_destroy(&holder);
    return status;
}

truce_status truce__check_sort(const bson_t *specification, bson_error_t *error)
{
    struct sort sort = {0};
    int natural = 0;
    truce_status status;

    if (!specification)
        return TRUCE_OK;
    status = truce__document_check(specification, "sort", error);
    if (!status)
        status = truce__natural_direction(specification, &natural, error);
    if (!status && !natural && !bson_empty(specification)) {
        status = truce__sort_parse(specification, &sort, error);
        if (!status)
            truce__sort_release(&sort);
    }
    return status;
}

truce_status truce__check_update_sort(const bson_t *sort, bool multi, bson_error_t *error)
{
    if (sort && multi && !bson_empty(sort))
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "Cannot specify sort with multi=true");
    return truce__check_sort(sort, error);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Returns whether the name has characters that control a terminal. `name` is UTF-8. */
static bool has_control(const char *name)
{
    size_t length = strlen(name);

    for (size_t at = 0; at < length;) {
        size_t size = truce__text_control(name + at, length - at);

        if (size)
            return true;
        at++;
    }
    return false;
}

/* Writes the name with escapes, also for new lines, which a message keeps. */
static const char *name_show(const char *name, size_t length, char *shown, size_t size)
{
    char escape[MESSAGE_ESCAPE_MAX];
    size_t used = 0, bytes;

    for (size_t at = 0; at < length && used + MESSAGE_ESCAPE_MAX < size; at += bytes) {
        bytes = truce__message_escape(name + at, length - at, escape);
        used += (size_t)snprintf(shown + used, size - used, "%.*s",
                                 *escape ? MESSAGE_ESCAPE_MAX : (int)bytes,
                                 *escape ? escape : name + at);
    }
    shown[used] = '\0';
    return shown;
}

truce_status truce__collection_name_check(const char *name, bson_error_t *error)
{
    size_t length = name ? strlen(name) : 0;
    size_t most = length && *name == '@' ? TRUCE_STORED_NAME_MAX : TRUCE_COLLECTION_NAME_MAX;
    const char *wrong = NULL;
    char shown[2 * TRUCE_COLLECTION_NAME_MAX];

    if (!name)
        return truce__refuse(CODE_INVALID_NAMESPACE, error, "the argument \"collection\" is NULL");
    if (length > most) {
        /* Drivers get MongoDB's code for every name that is refused. */
        (void)truce__refuse(CODE_INVALID_NAMESPACE, error,
                            "the collection name \"%.60s...\" has %zu bytes: the maximum is %zu",
                            name, length, most);
        return TRUCE_LIMIT;
    }
    if (length == 0)
        wrong = "is empty";
    else if (!bson_utf8_validate(name, length, false))
        wrong = "is not valid UTF-8";
    else if (has_control(name))
        wrong = "has control characters, or characters that change the direction of text";
    else if (strchr(name, '$'))
        wrong = "has a $ in it";
    else if (name[0] == '.' || name[length - 1] == '.')
        wrong = "starts or ends with a dot";
    else if (!strncmp(name, "@.", 2))
        wrong = "has no database between @ and the dot";
    else if (!strncmp(name, "system.", 7))
        wrong = "starts with \"system.\", which is reserved";
    if (wrong)
        return truce__refuse(CODE_INVALID_NAMESPACE, error, "the collection name \"%s\" %s",
                             name_show(name, length, shown, sizeof shown), wrong);
    return TRUCE_OK;
}

truce_status truce__collection_missing(const char *name, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "the collection \"%s\" does not exist",
                         name);
}

truce_status truce__collection_taken(const char *name, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_EXISTS, error, "the collection \"%s\" already exists",
                         name);
}

/* ---- documents ------------------------------------------------------------------------------ */

static bool is_reference_name(const char *name)
{
    return !strcmp(name, "$ref") || !strcmp(name, "$id") || !strcmp(name, "$db");
}

/* Returns the first field name within the container that starts with `$`, or NULL. */
static const char *find_dollar_name(struct value container)
{
    struct fields fields = truce__fields(container);
    const char *found = NULL;

    while (!found && truce__fields_next(&fields)) {
        if (fields.key[0] == '$' && !is_reference_name(fields.key))
            found = fields.key;
        else if (truce__value_is_container(fields.value))
            found = find_dollar_name(fields.value);
    }
    return found;
}

static truce_status input_check_id(struct value id, bson_error_t *error)
{
    const char *name;

    if (id.type == BSON_TYPE_ARRAY || id.type == BSON_TYPE_REGEX || id.type == BSON_TYPE_UNDEFINED)
        return truce__refuse(CODE_INVALID_ID_FIELD, error, "an _id cannot be of the type %s",
                             truce__type_name(id.type));
    if (id.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    name = find_dollar_name(id);
    if (name)
        return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                             "the field \"%s\" in _id starts with $", name);
    return TRUCE_OK;
}

bool truce__document_is_prepared(const bson_t *document)
{
    struct fields fields = truce__fields(truce__value_document(document));

    if (document->len > TRUCE_DOCUMENT_BYTES_MAX || !truce__fields_next(&fields) ||
        strcmp(fields.key, "_id") != 0 || input_check_id(fields.value, NULL))
        return false;
    while (truce__fields_next(&fields))
        if (truce__value_is_empty_timestamp(fields.value) || !strcmp(fields.key, "_id"))
            return false;
    return true;
}

static void input_append_field(bson_t *prepared, const struct fields *field,
                               const struct query_context *context)
{
    if (truce__value_is_empty_timestamp(field->value))
        bson_append_timestamp(prepared, field->key, (int)field->key_length,
                              (uint32_t)(context->now_ms / 1000), context->now_ordinal + 1);
    else
        truce__value_append(prepared, field->key, field->key_length, field->value);
}

truce_status truce__document_prepare(const bson_t *document, const struct query_context *context,
                                     bson_t *prepared, bson_error_t *error)
{
    struct value whole = truce__value_document(document);
    struct value id = truce__value_field(whole, "_id", 3);
    struct fields fields = truce__fields(whole);
    truce_status status = input_check_id(id, error);
    bson_oid_t oid;
    int ids = 0;

    bson_init(prepared);
    if (status)
        return status;
    if (id.type == VALUE_MISSING) {
        bson_oid_init(&oid, NULL);
        BSON_APPEND_OID(prepared, "_id", &oid);
    } else {
        truce__value_append(prepared, "_id", 3, id);
    }
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "_id") != 0)
            input_append_field(prepared, &fields, context);
        else if (ids++)
            return truce__refuse(CODE_BAD_VALUE, error, "the document has _id twice");
    }
    if (prepared->len > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the document has %u bytes, the maximum is %d", prepared->len,
                             TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}
