/* Reads the fields, the collection, and the documents of a command. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/number.h"
#include "bson/value.h"
#include "query/expression/expression.h"
#include "server/call/call.h"
#include "truce/sys/store.h"

/* ---- fields ---------------------------------------------------------------------------------- */

const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size)
{
    return truce__bytes_view(&call->arena, bytes, size);
}

const bson_t *call_view_of(struct call *call, const bson_iter_t *iter)
{
    return truce__field_view(&call->arena, iter);
}

void call_value_iter(const bson_value_t *value, bson_t *holder, bson_iter_t *at)
{
    bson_init(holder);
    BSON_APPEND_VALUE(holder, "value", value);
    (void)bson_iter_init_find(at, holder, "value");
}

truce_status call_fields(struct call *call, const bson_t *document, const struct field *fields,
                         bool skip, void *into, bson_error_t *error)
{
    const struct fields_reading reading = {.arena = &call->arena,
                                           .command = call->command->name,
                                           .whole = skip,
                                           .request = &call->request->body};

    return truce__fields_read(&reading, document, fields, into, error);
}

truce_status call_own_fields(struct call *call, const struct field *fields, void *into,
                             bson_error_t *error)
{
    return call_fields(call, &call->request->body, fields, true, into, error);
}

truce_status call_no_fields(struct call *call, bson_error_t *error)
{
    static const struct field none[] = {{NULL, FIELD_IGNORED, 0}};

    return call_own_fields(call, none, NULL, error);
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
                             "'let' is not supported by a store at mongodb://");
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

truce_status call_stored_name_of(struct call *call, const char *collection,
                                 char stored_name[STORED_NAME_MAX], bson_error_t *error)
{
    return truce__stored_name_of(call->server->database, call->database, collection, stored_name,
                                 error);
}

truce_status call_stored_name(struct call *call, char stored_name[STORED_NAME_MAX],
                              bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "the collection of '%s' must be a string, not %s", call->command->name,
                             truce__type_name((uint8_t)bson_iter_type(&call->value)));
    return call_stored_name_of(call, bson_iter_utf8(&call->value, NULL), stored_name, error);
}

const char *call_namespace(struct call *call, const char *collection)
{
    size_t size = strlen(call->database) + strlen(collection) + 2;
    char *text = truce__arena_take(&call->arena, size);

    snprintf(text, size, "%s.%s", call->database, collection);
    return text;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Adds a document to the array, which borrows its bytes. Fails with InvalidLength (16) after
 * TRUCE_BULK_MAX documents, and with InvalidBSON (22) if its length is wrong. */
static truce_status fields_add(struct call *call, const uint8_t *bytes, uint32_t size,
                               struct documents *documents, bson_error_t *error)
{
    if (documents->count == TRUCE_BULK_MAX)
        return truce__refuse(
            CODE_INVALID_LENGTH, error,
            "the command has more than %d statements, which is the maximum: split it",
            TRUCE_BULK_MAX);
    /* The array is full, and grows, if the count is 0 or a power of two. */
    if (!(documents->count & (documents->count - 1))) {
        size_t room = documents->count ? 2 * (size_t)documents->count : 1;
        const bson_t **wider = truce__arena_take(&call->arena, room * sizeof *wider);

        if (documents->count)
            memcpy(wider, documents->all, documents->count * sizeof *wider);
        documents->all = wider;
    }
    documents->all[documents->count] = call_view(call, bytes, size);
    if (!documents->all[documents->count])
        return truce__refuse(CODE_INVALID_BSON, error, "document %u of the command is malformed",
                             documents->count);
    documents->count++;
    return TRUCE_OK;
}

/* Adds the documents of a section, which follow each other without a separator. */
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
            return truce__refuse(CODE_INVALID_BSON, error, "the documents of '%.80s' are truncated",
                                 section->name);
        status = fields_add(call, at, size, documents, error);
        at += size;
    }
    return status;
}

/* Adds the documents of an array. */
static truce_status fields_add_array(struct call *call, const bson_iter_t *array,
                                     struct documents *documents, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!BSON_ITER_HOLDS_ARRAY(array))
        return truce__field_wrong_type(array, "an array", error);
    (void)bson_iter_recurse(array, &at);
    while (!status && bson_iter_next(&at)) {
        struct value value = truce__value_of_iter(&at);

        status = value.type == BSON_TYPE_DOCUMENT
                     ? fields_add(call, value.data, value.size, documents, error)
                     : truce__field_wrong_type(&at, "a document", error);
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
