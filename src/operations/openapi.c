/*
 * The table of operations as an OpenAPI 3.1 description.
 *
 * Each operation is POST /v1/{database}/OPERATION with a JSON object. Types of BSON that JSON lacks
 * have the form of MongoDB's Extended JSON, version 2, relaxed.
 */
#include <string.h>

#include "operations/named_request.h"
#include "truce/json.h"

#define DATABASE_PATTERN  "^[^/\\\\.\"$*<>:|? ]+$"
#define OBJECT_ID         "#/components/schemas/ObjectId"
#define OBJECT_ID_PATTERN "^[0-9a-f]{24}$"

/* Appends the schema of any value but null. */
static void openapi_append_any(bson_t *schema)
{
    BCON_APPEND(schema, "type", "[", BCON_UTF8("string"), BCON_UTF8("number"), BCON_UTF8("boolean"),
                BCON_UTF8("object"), BCON_UTF8("array"), "]");
}

/* Appends the type of JSON. An optional field of an operation may also be null, which means that
 * it is absent. */
static void openapi_append_json_type(const char *type, bool optional, bson_t *schema)
{
    if (optional)
        BCON_APPEND(schema, "type", "[", BCON_UTF8(type), BCON_UTF8("null"), "]");
    else
        BSON_APPEND_UTF8(schema, "type", type);
}

/* Appends the JSON type of a field. An optional field also accepts null, except one that may be a
 * document or an array. A field of any type lists all types but null if it is needed, and has no
 * `type` otherwise. */
static void openapi_append_type(const struct operation_field *field, bool optional, bson_t *schema)
{
    switch (field->field.type) {
    case FIELD_TEXT:
        openapi_append_json_type("string", optional, schema);
        break;
    case FIELD_DOCUMENT:
        openapi_append_json_type("object", optional, schema);
        break;
    case FIELD_ARRAY:
        openapi_append_json_type("array", optional, schema);
        break;
    case FIELD_EITHER:
        BCON_APPEND(schema, "type", "[", BCON_UTF8("object"), BCON_UTF8("array"), "]");
        break;
    case FIELD_NUMBER:
    case FIELD_WHOLE:
    case FIELD_TIME:
    case FIELD_DURATION:
        openapi_append_json_type("integer", optional, schema);
        BSON_APPEND_UTF8(schema, "format", "int64");
        break;
    case FIELD_FLAG:
        openapi_append_json_type("boolean", optional, schema);
        break;
    case FIELD_OID:
        if (optional)
            BCON_APPEND(schema, "anyOf", "[", "{", "$ref", BCON_UTF8(OBJECT_ID), "}", "{", "type",
                        BCON_UTF8("null"), "}", "]");
        else
            BSON_APPEND_UTF8(schema, "$ref", OBJECT_ID);
        break;
    case FIELD_VALUE:
    case FIELD_HINT:
    case FIELD_PLAIN:
    case FIELD_IGNORED:
        if (field->needed)
            openapi_append_any(schema);
        break;
    }
}

/* Appends the schema of a field: type, help, bounds, and words. An optional field of an operation
 * also allows null. */
static void openapi_append_field(const struct operation_row *row,
                                 const struct operation_field *field, bson_t *properties)
{
    bool optional = row->run && !field->needed;
    uint32_t count = 0;
    bson_t schema, words;
    char buffer[16];
    const char *key;

    BSON_APPEND_DOCUMENT_BEGIN(properties, field->field.name, &schema);
    openapi_append_type(field, optional, &schema);
    BSON_APPEND_UTF8(&schema, "description", field->help);
    if (field->least || field->most) {
        BSON_APPEND_INT64(&schema, "minimum", field->least);
        if (field->most != INT64_MAX)
            BSON_APPEND_INT64(&schema, "maximum", field->most);
    }
    if (field->words) {
        BSON_APPEND_ARRAY_BEGIN(&schema, "enum", &words);
        for (; field->words[count]; count++) {
            bson_uint32_to_string(count, &key, buffer, sizeof buffer);
            BSON_APPEND_UTF8(&words, key, field->words[count]);
        }
        bson_uint32_to_string(count, &key, buffer, sizeof buffer);
        if (optional)
            BSON_APPEND_NULL(&words, key);
        bson_append_array_end(&schema, &words);
    }
    bson_append_document_end(properties, &schema);
}

/* Reads the example of the row. Returns whether it has one. */
static bool openapi_read_example(const struct operation_row *row, bson_t *example)
{
    bson_error_t error;

    if (row->example[0] && !truce_json_read(row->example, strlen(row->example), TRUCE_JSON_TYPED,
                                            example, NULL, &error))
        return true;
    bson_init(example);
    return false;
}

/* Appends the type of the target, which is that of the example. */
static void openapi_append_target_type(const struct operation_row *row, bson_t *schema)
{
    bson_type_t type = BSON_TYPE_UTF8;
    bson_t example;
    bson_iter_t at;

    (void)openapi_read_example(row, &example);
    if (bson_iter_init_find(&at, &example, row->name))
        type = bson_iter_type(&at);
    bson_destroy(&example);
    if (!strcmp(row->target, "changes") || type == BSON_TYPE_ARRAY)
        BSON_APPEND_UTF8(schema, "type", "array");
    else if (!strcmp(row->target, "cursor"))
        BCON_APPEND(schema, "type", BCON_UTF8("integer"), "format", BCON_UTF8("int64"));
    else if (type == BSON_TYPE_OID)
        BSON_APPEND_UTF8(schema, "$ref", OBJECT_ID);
    else if (type == BSON_TYPE_UTF8 || row->optional)
        BCON_APPEND(schema, "type", BCON_UTF8("string"), "minLength", BCON_INT32(1));
    else
        openapi_append_any(schema);
}

static void openapi_append_target(const struct operation_row *row, bson_t *properties)
{
    bson_t schema;

    BSON_APPEND_DOCUMENT_BEGIN(properties, row->target, &schema);
    openapi_append_target_type(row, &schema);
    BSON_APPEND_UTF8(&schema, "description", row->value);
    bson_append_document_end(properties, &schema);
}

/* Appends the schema of the body. Returns how many fields are required. */
static uint32_t openapi_append_schema(const struct operation_row *row, bson_t *media)
{
    bson_t schema, properties, required;
    uint32_t count = 0;

    BSON_APPEND_DOCUMENT_BEGIN(media, "schema", &schema);
    BSON_APPEND_UTF8(&schema, "type", "object");
    BSON_APPEND_DOCUMENT_BEGIN(&schema, "properties", &properties);
    if (row->target)
        openapi_append_target(row, &properties);
    for (const struct operation_field *at = row->fields; at->field.name; at++)
        openapi_append_field(row, at, &properties);
    bson_append_document_end(&schema, &properties);
    BSON_APPEND_ARRAY_BEGIN(&schema, "required", &required);
    if (row->target && !row->optional) {
        BSON_APPEND_UTF8(&required, "0", row->target);
        count = 1;
    }
    for (const struct operation_field *at = row->fields; at->field.name; at++) {
        char buffer[16];
        const char *key;

        if (!at->needed)
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        BSON_APPEND_UTF8(&required, key, at->field.name);
    }
    bson_append_array_end(&schema, &required);
    if (row->run) /* A data command accepts fields that the row does not describe. */
        BSON_APPEND_BOOL(&schema, "additionalProperties", false);
    bson_append_document_end(media, &schema);
    return count;
}

/* Appends the example of the row in the form of HTTP: the field that is named after the operation
 * gets the name of the target. */
static void openapi_append_example(const struct operation_row *row, bson_t *media)
{
    bson_t given, example;
    bson_iter_t at;

    if (openapi_read_example(row, &given)) {
        BSON_APPEND_DOCUMENT_BEGIN(media, "example", &example);
        (void)bson_iter_init(&at, &given);
        while (bson_iter_next(&at))
            if (strcmp(bson_iter_key(&at), row->name) != 0)
                bson_append_iter(&example, bson_iter_key(&at), -1, &at);
            else if (row->target && !(row->optional && BSON_ITER_HOLDS_INT32(&at)))
                bson_append_iter(&example, row->target, -1, &at);
        bson_append_document_end(media, &example);
    }
    bson_destroy(&given);
}

/* Appends the request body: the schema and the example of the row. The body is required if a field
 * is. */
static void openapi_append_body(const struct operation_row *row, bson_t *operation)
{
    bson_t body, content, media;
    uint32_t required;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "requestBody", &body);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "content", &content);
    BSON_APPEND_DOCUMENT_BEGIN(&content, "application/json", &media);
    required = openapi_append_schema(row, &media);
    openapi_append_example(row, &media);
    bson_append_document_end(&content, &media);
    bson_append_document_end(&body, &content);
    BSON_APPEND_BOOL(&body, "required", required > 0);
    bson_append_document_end(operation, &body);
}

/* Appends the path of an operation with its POST method, the only one. */
static void openapi_append_operation(const struct operation_row *row, const char *group,
                                     bson_t *paths)
{
    char *path = bson_strdup_printf("/v1/{database}/%s", row->name);
    bson_t item, post;

    BSON_APPEND_DOCUMENT_BEGIN(paths, path, &item);
    BCON_APPEND(&item, "parameters", "[", "{", "$ref",
                BCON_UTF8("#/components/parameters/database"), "}", "]");
    BSON_APPEND_DOCUMENT_BEGIN(&item, "post", &post);
    BCON_APPEND(&post, "operationId", BCON_UTF8(row->name), "tags", "[", BCON_UTF8(group), "]",
                "summary", BCON_UTF8(row->help), "description", BCON_UTF8(row->answer));
    openapi_append_body(row, &post);
    BCON_APPEND(&post, "responses", "{",                                            //
                "200", "{", "$ref", BCON_UTF8("#/components/responses/Reply"), "}", //
                "default", "{", "$ref", BCON_UTF8("#/components/responses/Error"), "}", "}");
    bson_append_document_end(&item, &post);
    bson_append_document_end(paths, &item);
    bson_free(path);
}

/* Appends the path GET /v1/{database}/watch: server-sent events. */
static void openapi_append_watch(bson_t *paths)
{
    bson_t *item = BCON_NEW(
        "parameters", "[", "{", "$ref", BCON_UTF8("#/components/parameters/database"), "}", "]",
        "get", "{", "operationId", BCON_UTF8("watch"), "tags", "[", BCON_UTF8("Data"), "]",
        "summary", BCON_UTF8("watches changes as server-sent events"), "description",
        BCON_UTF8("Each event has the resume token as its id and the change as its data. The "
                  "store must be a file that keeps changes (--feed-keep)."),
        "parameters", "[",                                                                       //
        "{", "name", BCON_UTF8("collection"), "in", BCON_UTF8("query"), "description",           //
        BCON_UTF8("the collection; absent: all of the database"), "schema", "{", "type",         //
        BCON_UTF8("string"), "}", "}",                                                           //
        "{", "name", BCON_UTF8("pipeline"), "in", BCON_UTF8("query"), "description",             //
        BCON_UTF8("an array of stages, as JSON"), "schema", "{", "type", BCON_UTF8("string"),    //
        "}", "}",                                                                                //
        "{", "name", BCON_UTF8("resumeAfter"), "in", BCON_UTF8("query"), "description",          //
        BCON_UTF8("the id of the last event that was received, as JSON"), "schema", "{", "type", //
        BCON_UTF8("string"), "}", "}",                                                           //
        "{", "name", BCON_UTF8("notify"), "in", BCON_UTF8("query"), "description",               //
        BCON_UTF8("instead of these three: a collection whose changes cause an event without "   //
                  "data, also without --feed-keep; up to 16 times"),                             //
        "schema", "{", "type", BCON_UTF8("array"), "items", "{", "type", BCON_UTF8("string"),    //
        "}", "}", "}",                                                                           //
        "{", "name", BCON_UTF8("Last-Event-ID"), "in", BCON_UTF8("header"), "description",       //
        BCON_UTF8("the same"), "schema", "{", "type", BCON_UTF8("string"), "}", "}", "]",        //
        "responses", "{", "200", "{", "description", BCON_UTF8("The events."), "content", "{",   //
        "text/event-stream", "{", "schema", "{", "type", BCON_UTF8("string"), "}", "}", "}",     //
        "}", "default", "{", "$ref", BCON_UTF8("#/components/responses/Error"), "}", "}", "}");

    BSON_APPEND_DOCUMENT(paths, "/v1/{database}/watch", item);
    bson_destroy(item);
}

/* Appends the shared parts to which the operations refer: the parameter, the schemas, the
 * responses, and the ways to log in. */
static void openapi_append_components(bson_t *document)
{
    bson_t *components = BCON_NEW(
        "parameters", "{", "database", "{", "name", BCON_UTF8("database"), "in", BCON_UTF8("path"),
        "required", BCON_BOOL(true), "schema", "{", "type", BCON_UTF8("string"), "minLength",
        BCON_INT32(1), "maxLength", BCON_INT32(63), "pattern", BCON_UTF8(DATABASE_PATTERN), "}",
        "}", "}",                                                                       //
        "schemas", "{",                                                                 //
        "ObjectId", "{", "oneOf", "[",                                                  //
        "{", "type", BCON_UTF8("string"), "pattern", BCON_UTF8(OBJECT_ID_PATTERN), "}", //
        /* "properties": {"$oid": ...} would look like Extended JSON, and would be escaped in the
         * output. */
        "{", "type", BCON_UTF8("object"), "patternProperties", "{", "^[$]oid$", "{", "type",
        BCON_UTF8("string"), "pattern", BCON_UTF8(OBJECT_ID_PATTERN), "}", "}", "required", "[",
        BCON_UTF8("$oid"), "]", "additionalProperties", BCON_BOOL(false), "}", "]", "}",         //
        "Reply", "{", "type", BCON_UTF8("object"), "properties", "{",                            //
        "status", "{", "type", BCON_UTF8("string"), "}",                                         //
        "ok", "{", "type", BCON_UTF8("number"), "}", "}", "required", "[", BCON_UTF8("ok"), "]", //
        "}",                                                                                     //
        "Error", "{", "type", BCON_UTF8("object"), "properties", "{",                            //
        "ok", "{", "type", BCON_UTF8("number"), "}",                                             //
        "errmsg", "{", "type", BCON_UTF8("string"), "}",                                         //
        "code", "{", "type", BCON_UTF8("integer"), "}",                                          //
        "codeName", "{", "type", BCON_UTF8("string"), "}",                                       //
        "status", "{", "type", BCON_UTF8("string"), "}", "}", "required", "[",                   //
        BCON_UTF8("ok"), BCON_UTF8("errmsg"), BCON_UTF8("code"), "]", "}", "}",                  //
        "responses", "{",                                                                        //
        "Reply", "{", "description", BCON_UTF8("The operation was done."), "content", "{",       //
        "application/json", "{", "schema", "{", "$ref",                                          //
        BCON_UTF8("#/components/schemas/Reply"), "}", "}", "}", "}",                             //
        "Error", "{", "description",
        BCON_UTF8("The operation failed; `status` is the class of the error."), "content", "{",
        "application/json", "{", "schema", "{", "$ref", BCON_UTF8("#/components/schemas/Error"),
        "}", "}", "}", "}", "}", //
        "securitySchemes", "{", "basic", "{", "type", BCON_UTF8("http"), "scheme",
        BCON_UTF8("basic"), "}", "token", "{", "type", BCON_UTF8("http"), "scheme",
        BCON_UTF8("bearer"), "}", "}");

    BSON_APPEND_DOCUMENT(document, "components", components);
    bson_destroy(components);
}

void truce__openapi(bson_t *document)
{
    bson_t paths;

    bson_init(document);
    BCON_APPEND(document, "openapi", BCON_UTF8("3.1.0"), "info", "{", "title", BCON_UTF8("truce"),
                "version", BCON_UTF8(TRUCE_VERSION), "description",
                BCON_UTF8("Operations of truce as requests of JSON. Types that JSON lacks have the "
                          "form of MongoDB's relaxed Extended JSON, version 2."),
                "}");
    BSON_APPEND_DOCUMENT_BEGIN(document, "paths", &paths);
    for (const struct operation_row *const *at = truce__data_rows; *at; at++)
        openapi_append_operation(*at, "Data", &paths);
    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++)
            openapi_append_operation(*at, group->title, &paths);
    openapi_append_watch(&paths);
    bson_append_document_end(document, &paths);
    openapi_append_components(document);
}
