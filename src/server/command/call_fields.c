/* What a command says: its fields, its place, and the documents that come with it. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/number.h"
#include "bson/value.h"
#include "query/expression/expression.h"
#include "server/command/call.h"
#include "truce/sys/store.h"

/* ---- fields --------------------------------------------------------------------------------- */

/* What any command may have, and what was read by read_frame or does not matter here. */
static bool fields_is_common(const char *name)
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

const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size)
{
    bson_t *view = truce__arena_take(&call->arena, sizeof *view);

    return bson_init_static(view, bytes, size) ? view : NULL;
}

const bson_t *call_view_of(struct call *call, const bson_iter_t *iter)
{
    struct value value = truce__value_of_iter(iter);

    return call_view(call, value.data, value.size);
}

static const bson_t *hint_of(struct call *call, const bson_iter_t *at)
{
    bson_t *hint;
    const bson_t *view;

    if (BSON_ITER_HOLDS_DOCUMENT(at))
        return call_view_of(call, at);
    hint = BCON_NEW("", BCON_UTF8(bson_iter_utf8(at, NULL)));
    view =
        call_view(call, truce__arena_copy(&call->arena, bson_get_data(hint), hint->len), hint->len);
    bson_destroy(hint);
    return view;
}

bool call_is_number(const bson_iter_t *at)
{
    return truce__value_is_number(truce__value_of_iter(at));
}

bool call_truth(const bson_iter_t *at)
{
    return truce__value_truth(truce__value_of_iter(at));
}

void call_value_iter(const bson_value_t *value, bson_t *holder, bson_iter_t *at)
{
    bson_init(holder);
    BSON_APPEND_VALUE(holder, "value", value);
    (void)bson_iter_init_find(at, holder, "value");
}

bool call_number(const bson_iter_t *at, int64_t *number)
{
    struct value value = truce__value_of_iter(at);
    double real;

    if (!truce__value_is_number(value))
        return false;
    if (truce__number_truncate(value, number))
        return true;
    real = truce__number_to_double(value);
    *number = real > 0 ? INT64_MAX : real < 0 ? INT64_MIN : 0; /* 0: not a number */
    return true;
}

/* Absent in all but name: null, false, 0, {} or [], or the collation that is none. */
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
           ((call_is_number(at) || BSON_ITER_HOLDS_BOOL(at)) && !call_truth(at));
}

static truce_status wrong_type(const bson_iter_t *at, const char *wanted, bson_error_t *error)
{
    return truce__refuse(CODE_TYPE_MISMATCH, error, "the field '%.80s' must be %s, and is %s",
                         bson_iter_key(at), wanted, truce__type_name((uint8_t)bson_iter_type(at)));
}

static truce_status keep_number(const bson_iter_t *at, int64_t *number, bson_error_t *error)
{
    return call_number(at, number) ? TRUCE_OK : wrong_type(at, "a number", error);
}

/* An amount or a version is never rounded. */
static truce_status keep_whole(const bson_iter_t *at, int64_t *number, bson_error_t *error)
{
    bool rounded = BSON_ITER_HOLDS_DOUBLE(at) && !truce__double_is_whole(bson_iter_double(at));

    if (!call_is_number(at))
        return wrong_type(at, "a number", error);
    if (rounded || !truce__number_to_int64(truce__value_of_iter(at), number))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the field '%.80s' must be a whole number of 64 bits",
                             bson_iter_key(at));
    return TRUCE_OK;
}

static truce_status fields_keep(struct call *call, const struct field *field, const bson_iter_t *at,
                                void *into, bson_error_t *error)
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
            return wrong_type(at, "a text", error);
        *(const char **)into = bson_iter_utf8(at, NULL);
        break;
    case FIELD_DOCUMENT:
        if (!is_document)
            return wrong_type(at, "a document", error);
        *(const bson_t **)into = call_view_of(call, at);
        break;
    case FIELD_ARRAY:
        if (!is_array)
            return wrong_type(at, "an array", error);
        *(const bson_t **)into = call_view_of(call, at);
        break;
    case FIELD_EITHER:
        if (!is_document && !is_array)
            return wrong_type(at, "a document or an array", error);
        *(struct either *)into = (struct either){call_view_of(call, at), is_array};
        break;
    case FIELD_HINT:
        if (!is_document && !BSON_ITER_HOLDS_UTF8(at))
            return wrong_type(at, "a document or a text", error);
        *(const bson_t **)into = hint_of(call, at);
        break;
    case FIELD_NUMBER:
        return keep_number(at, into, error);
    case FIELD_WHOLE:
        return keep_whole(at, into, error);
    case FIELD_FLAG:
        if (!BSON_ITER_HOLDS_BOOL(at) && !call_is_number(at))
            return wrong_type(at, "true or false", error);
        *(bool *)into = call_truth(at);
        break;
    case FIELD_VALUE:
        *(const bson_value_t **)into = truce__arena_copy(
            &call->arena, bson_iter_value((bson_iter_t *)at), sizeof(bson_value_t));
        break;
    case FIELD_OID:
        if (!BSON_ITER_HOLDS_OID(at))
            return wrong_type(at, "an ObjectId", error);
        *(const bson_oid_t **)into = bson_iter_oid(at);
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

static uint64_t bit_of(const struct field *fields, const struct field *field)
{
    truce_assert(field - fields < 64);
    return UINT64_C(1) << (field - fields);
}

truce_status call_fields(struct call *call, const bson_t *document, const struct field *fields,
                         bool skip, void *into, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint64_t given = 0; /* a bit for each field of the table */
    bson_iter_t at;

    (void)bson_iter_init(&at, document);
    if (skip)
        (void)bson_iter_next(&at);
    while (!status && bson_iter_next(&at)) {
        const struct field *field = fields;

        while (field->name && strcmp(field->name, bson_iter_key(&at)) != 0)
            field++;
        if (field->name && BSON_ITER_HOLDS_NULL(&at))
            continue; /* as if it were not there: several drivers send it so */
        if (!field->name) {
            if (!skip || !fields_is_common(bson_iter_key(&at)))
                status = truce__refuse(40415, error, "the field '%.80s' of '%.80s' is not known",
                                       bson_iter_key(&at), call->command->name);
            continue;
        }
        if (given & bit_of(fields, field))
            status = truce__refuse(40413, error, "the field '%.80s' is given twice", field->name);
        else if (field->unstable && call_is_strict(call))
            status = truce__refuse(CODE_API_STRICT, error,
                                   "the field '%.80s' is not in API Version 1, and the call is "
                                   "strict (apiStrict)",
                                   field->name);
        else
            status =
                fields_keep(call, field, &at, into ? (uint8_t *)into + field->at : NULL, error);
        given |= bit_of(fields, field);
    }
    return status;
}

truce_status call_own_fields(struct call *call, const struct field *fields, void *into,
                             bson_error_t *error)
{
    return call_fields(call, &call->request->body, fields, true, into, error);
}

truce_status call_let(struct call *call, const bson_t *let, bson_error_t *error)
{
    struct random random;
    struct query_context context = {
        .now_ms = truce__clock_wall_ms(), .random = &random, .arena = &call->arena};
    bson_t values;
    truce_status status;

    if (!let || bson_empty(let))
        return TRUCE_OK;
    if (!strcmp(call->store->ops->scheme, "mongodb"))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "'let' is for stores that evaluate here");
    truce__random_seed(&random, truce__random_entropy());
    status = truce__let_evaluate(let, &context, &values, error);
    if (!status)
        truce__let_begin(
            call_view(call, truce__arena_copy(&call->arena, bson_get_data(&values), values.len),
                      values.len),
            false);
    bson_destroy(&values);
    return status;
}

truce_status call_place_of(struct call *call, const char *collection, char place[PLACE_MAX],
                           bson_error_t *error)
{
    return truce__place_of(call->server->database, call->database, collection, place, error);
}

truce_status call_place(struct call *call, char place[PLACE_MAX], bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(
            CODE_INVALID_NAMESPACE, error, "'%s' must name a collection by a text, and got %s",
            call->command->name, truce__type_name((uint8_t)bson_iter_type(&call->value)));
    return call_place_of(call, bson_iter_utf8(&call->value, NULL), place, error);
}

const char *call_namespace(struct call *call, const char *collection)
{
    size_t size = strlen(call->database) + strlen(collection) + 2;
    char *text = truce__arena_take(&call->arena, size);

    snprintf(text, size, "%s.%s", call->database, collection);
    return text;
}

/* ---- documents ------------------------------------------------------------------------------ */

static truce_status fields_add(struct call *call, const uint8_t *bytes, uint32_t size,
                               struct documents *documents, bson_error_t *error)
{
    if (documents->count == TRUCE_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error, "a command may have %d statements at most",
                             TRUCE_BULK_MAX);
    if (!(documents->count & (documents->count - 1))) { /* 0, 1, 2, 4 ...: room for as many more */
        size_t room = documents->count ? 2 * (size_t)documents->count : 1;
        const bson_t **wider = truce__arena_take(&call->arena, room * sizeof *wider);

        if (documents->count)
            memcpy(wider, documents->all, documents->count * sizeof *wider);
        documents->all = wider;
    }
    documents->all[documents->count] = call_view(call, bytes, size);
    if (!documents->all[documents->count])
        return truce__refuse(CODE_INVALID_BSON, error, "a document of the command is malformed");
    documents->count++;
    return TRUCE_OK;
}

static truce_status add_section(struct call *call, const struct wire_section *section,
                                struct documents *documents, bson_error_t *error)
{
    const uint8_t *at = section->bytes, *end = at + section->size;
    truce_status status = TRUCE_OK;

    while (!status && at < end) {
        uint32_t size = 0;

        if (end - at >= 4)
            memcpy(&size, at, sizeof size);
        size = BSON_UINT32_FROM_LE(size);
        if (size < 5 || size > (size_t)(end - at))
            return truce__refuse(CODE_INVALID_BSON, error, "the documents of '%.80s' are cut off",
                                 section->name);
        status = fields_add(call, at, size, documents, error);
        at += size;
    }
    return status;
}

static truce_status fields_add_array(struct call *call, const bson_iter_t *array,
                                     struct documents *documents, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!BSON_ITER_HOLDS_ARRAY(array))
        return wrong_type(array, "an array", error);
    (void)bson_iter_recurse(array, &at);
    while (!status && bson_iter_next(&at)) {
        struct value value = truce__value_of_iter(&at);

        status = value.type == BSON_TYPE_DOCUMENT
                     ? fields_add(call, value.data, value.size, documents, error)
                     : wrong_type(&at, "a document", error);
    }
    return status;
}

truce_status call_documents(struct call *call, const char *name, struct documents *documents,
                            bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;

    *documents = (struct documents){0};
    if (bson_iter_init_find(&iter, &call->request->body, name))
        status = fields_add_array(call, &iter, documents, error);
    for (uint32_t i = 0; i < call->request->count && !status; i++)
        if (!strcmp(call->request->sections[i].name, name))
            status = add_section(call, &call->request->sections[i], documents, error);
    if (!status && !documents->count)
        status = truce__refuse(CODE_INVALID_LENGTH, error, "'%s' must have at least one of its %s",
                               call->command->name, name);
    return status;
}
