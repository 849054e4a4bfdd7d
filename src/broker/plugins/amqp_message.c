#include "broker/plugins/amqp_message.h"

#include <stdio.h>
#include <string.h>

#include "broker/plugins/plugin.h"

#define AMQP_HEADERS_DEPTH 32

/* ---- values ---------------------------------------------------------------------------------- */

static void amqp_append_bytes(bson_t *to, const char *key, amqp_bytes_t bytes)
{
    plugin_append_bytes(to, key, bytes.bytes, bytes.len);
}

/* Appends a number above 2^63 - 1 as a decimal, so that it keeps its value. */
static void amqp_append_unsigned(bson_t *to, const char *key, uint64_t number)
{
    bson_decimal128_t decimal;
    char text[24];

    if (number <= INT64_MAX) {
        bson_append_int64(to, key, -1, (int64_t)number);
        return;
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    (void)bson_decimal128_from_string(text, &decimal);
    bson_append_decimal128(to, key, -1, &decimal);
}

static void amqp_append_table(bson_t *to, const amqp_table_t *table, int depth);

static void amqp_append_array(bson_t *to, const amqp_array_t *array, int depth);

static void amqp_append_container(bson_t *to, const char *key, const amqp_field_value_t *value,
                                  int depth)
{
    bson_t child;

    if (depth == AMQP_HEADERS_DEPTH) {
        bson_append_null(to, key, -1);
    } else if (value->kind == AMQP_FIELD_KIND_TABLE) {
        bson_append_document_begin(to, key, -1, &child);
        amqp_append_table(&child, &value->value.table, depth + 1);
        bson_append_document_end(to, &child);
    } else {
        bson_append_array_begin(to, key, -1, &child);
        amqp_append_array(&child, &value->value.array, depth + 1);
        bson_append_array_end(to, &child);
    }
}

/* Appends a value of a header in the nearest type of BSON. An unknown type becomes null. */
static void amqp_append_value(bson_t *to, const char *key, const amqp_field_value_t *value,
                              int depth)
{
    switch (value->kind) {
    case AMQP_FIELD_KIND_BOOLEAN:
        bson_append_bool(to, key, -1, value->value.boolean != 0);
        break;
    case AMQP_FIELD_KIND_I8:
        bson_append_int32(to, key, -1, value->value.i8);
        break;
    case AMQP_FIELD_KIND_U8:
        bson_append_int32(to, key, -1, value->value.u8);
        break;
    case AMQP_FIELD_KIND_I16:
        bson_append_int32(to, key, -1, value->value.i16);
        break;
    case AMQP_FIELD_KIND_U16:
        bson_append_int32(to, key, -1, value->value.u16);
        break;
    case AMQP_FIELD_KIND_I32:
        bson_append_int32(to, key, -1, value->value.i32);
        break;
    case AMQP_FIELD_KIND_U32:
        bson_append_int64(to, key, -1, value->value.u32);
        break;
    case AMQP_FIELD_KIND_I64:
        bson_append_int64(to, key, -1, value->value.i64);
        break;
    case AMQP_FIELD_KIND_U64:
        amqp_append_unsigned(to, key, value->value.u64);
        break;
    case AMQP_FIELD_KIND_F32:
        bson_append_double(to, key, -1, (double)value->value.f32);
        break;
    case AMQP_FIELD_KIND_F64:
        bson_append_double(to, key, -1, value->value.f64);
        break;
    case AMQP_FIELD_KIND_TIMESTAMP:
        bson_append_date_time(to, key, -1,
                              value->value.u64 < (uint64_t)INT64_MAX / 1000
                                  ? (int64_t)value->value.u64 * 1000
                                  : INT64_MAX);
        break;
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES:
        amqp_append_bytes(to, key, value->value.bytes);
        break;
    case AMQP_FIELD_KIND_TABLE:
    case AMQP_FIELD_KIND_ARRAY:
        amqp_append_container(to, key, value, depth);
        break;
    default:
        bson_append_null(to, key, -1);
        break;
    }
}

static void amqp_append_table(bson_t *to, const amqp_table_t *table, int depth)
{
    for (int i = 0; i < table->num_entries; i++) {
        amqp_bytes_t name = table->entries[i].key;
        char key[256];

        /* A field name is a short string: up to 255 bytes. */
        if (name.len >= sizeof key || !bson_utf8_validate(name.bytes, name.len, false))
            continue;
        memcpy(key, name.bytes, name.len);
        key[name.len] = 0;
        amqp_append_value(to, key, &table->entries[i].value, depth);
    }
}

static void amqp_append_array(bson_t *to, const amqp_array_t *array, int depth)
{
    for (int i = 0; i < array->num_entries; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
        amqp_append_value(to, key, &array->entries[i], depth);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Appends the properties of a message under the names that mappings use, and the headers as a
 * document. */
static void amqp_append_properties(bson_t *facts, const amqp_basic_properties_t *properties)
{
    const struct {
        amqp_flags_t flag;
        const char *name;
        amqp_bytes_t value;
    } strings[] = {
        {AMQP_BASIC_MESSAGE_ID_FLAG, "id", properties->message_id},
        {AMQP_BASIC_TYPE_FLAG, "type", properties->type},
        {AMQP_BASIC_APP_ID_FLAG, "app", properties->app_id},
        {AMQP_BASIC_USER_ID_FLAG, "user", properties->user_id},
        {AMQP_BASIC_CONTENT_TYPE_FLAG, "contentType", properties->content_type},
        {AMQP_BASIC_CORRELATION_ID_FLAG, "correlationId", properties->correlation_id},
        {AMQP_BASIC_REPLY_TO_FLAG, "replyTo", properties->reply_to},
    };
    bson_t headers;

    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (properties->_flags & strings[i].flag)
            amqp_append_bytes(facts, strings[i].name, strings[i].value);
    if (properties->_flags & AMQP_BASIC_TIMESTAMP_FLAG &&
        properties->timestamp < (uint64_t)INT64_MAX / 1000)
        BSON_APPEND_DATE_TIME(facts, "time", (int64_t)properties->timestamp * 1000);
    if (properties->_flags & AMQP_BASIC_PRIORITY_FLAG)
        BSON_APPEND_INT32(facts, "priority", properties->priority);
    BSON_APPEND_DOCUMENT_BEGIN(facts, "headers", &headers);
    if (properties->_flags & AMQP_BASIC_HEADERS_FLAG)
        amqp_append_table(&headers, &properties->headers, 0);
    bson_append_document_end(facts, &headers);
}

struct broker_message *amqp_message_make(const amqp_envelope_t *envelope)
{
    const amqp_message_t *from = &envelope->message;
    struct broker_message *message = plugin_message(from->body.bytes, from->body.len);

    message->tag = envelope->delivery_tag;
    message->redelivered = envelope->redelivered != 0;
    amqp_append_properties(&message->facts, &from->properties);
    amqp_append_bytes(&message->facts, "exchange", envelope->exchange);
    amqp_append_bytes(&message->facts, "routingKey", envelope->routing_key);
    BSON_APPEND_BOOL(&message->facts, "redelivered", message->redelivered);
    return message;
}

bool amqp_message_offset(const struct broker_message *message, int64_t *offset)
{
    bson_iter_t at, found;
    bool is_stream = bson_iter_init(&at, &message->facts) &&
                     bson_iter_find_descendant(&at, "headers.x-stream-offset", &found) &&
                     BSON_ITER_HOLDS_INT64(&found);

    *offset = is_stream ? bson_iter_int64(&found) : -1;
    return is_stream;
}
