#include "cli/core/message_format.h"

#include <string.h>

#include "bson/number.h"
#include "bson/value.h"

#define EXACT_DOUBLES 9007199254740992.0 /* 2^53: above it, doubles skip integers. */

/* Splits a list at its commas, into parts that the caller frees. Returns their number, or -1 if a
 * part is empty or there are too many. */
static int message_split(const char *text, char **parts)
{
    int count = 0;

    for (const char *at = text;; at++) { /* Each iteration continues after a comma. */
        size_t length = strcspn(at, ",");

        if (count == MESSAGE_KEYS_MAX || !length)
            return -1;
        parts[count++] = bson_strndup(at, length);
        at += length;
        if (!*at)
            return count;
    }
}

static const char *text_or(const struct cli *cli, const char *option, const char *otherwise)
{
    return cli_text(cli, option) ? cli_text(cli, option) : otherwise;
}

bool message_format_init(struct message_format *format, const struct cli *cli, const char *keys,
                         const char *name)
{
    int from;

    *format = (struct message_format){
        .operation = text_or(cli, "message-operation", "operation"),
        .element = text_or(cli, "message-element", "element"),
        .seq = text_or(cli, "message-seq", "sequence_number"),
        .source = cli_text(cli, "message-source"),
        .name = name,
    };
    format->keys_count = message_split(keys, format->keys);
    from = message_split(text_or(cli, "message-key", keys), format->from);
    if (format->keys_count > 0 && from == format->keys_count)
        return true;
    cli_usage(cli, "--message-key must name as many fields as the key of the set (\"%s\") has",
              keys);
    return false;
}

void message_format_release(struct message_format *format)
{
    for (int i = 0; i < MESSAGE_KEYS_MAX; i++) {
        bson_free(format->keys[i]);
        bson_free(format->from[i]);
    }
}

static struct value message_field_of(const bson_t *document, const char *field)
{
    return truce__value_field(truce__value_document(document), field, strlen(field));
}

static bool message_repeats_field(const bson_t *document, const char *field)
{
    struct fields fields = truce__fields(truce__value_document(document));
    int count = 0;

    while (truce__fields_next(&fields))
        count += !strcmp(fields.key, field);
    return count > 1;
}

/* Reads a field's value. Returns false and the reason if the field is missing. */
static bool message_read_field(const bson_t *document, const char *field, const char *option,
                               struct value *value, char *reason, size_t size)
{
    *value = message_field_of(document, field);
    if (value->type == VALUE_MISSING)
        snprintf(reason, size, "the field \"%s\" is missing (--message-%s names it)", field,
                 option);
    else if (message_repeats_field(document, field))
        snprintf(reason, size, "the field \"%s\" occurs twice", field);
    else
        return true;
    return false;
}

static bool message_wrong(const char *field, struct value value, const char *what, char *reason,
                          size_t size)
{
    char shown[120];

    snprintf(reason, size, "the field \"%s\" is %s, and must be %s", field,
             truce__value_show(value, shown, sizeof shown), what);
    return false;
}

/* Reads the verb: insert or add, delete or remove. On a fault, fills `reason` and returns false. */
static bool message_read_operation(const struct message_format *format, const bson_t *document,
                                   struct message *message, char *reason, size_t size)
{
    struct value value;
    const char *text = "";
    uint32_t length;

    if (!message_read_field(document, format->operation, "operation", &value, reason, size))
        return false;
    if (value.type == BSON_TYPE_UTF8)
        text = truce__value_text(value, &length);
    if (!strcmp(text, "insert") || !strcmp(text, "add"))
        message->operation.verb = TRUCE_SET_ADD;
    else if (!strcmp(text, "delete") || !strcmp(text, "remove"))
        message->operation.verb = TRUCE_SET_REMOVE;
    else
        return message_wrong(format->operation, value, "insert or delete", reason, size);
    return true;
}

/* Reads the sequence number. A double of 2^53 or more is refused, because it may have been
 * rounded. */
static bool message_read_number(const struct message_format *format, const bson_t *document,
                                struct message *message, char *reason, size_t size)
{
    struct value value;

    if (!message_read_field(document, format->seq, "seq", &value, reason, size))
        return false;
    if (value.type == BSON_TYPE_DOUBLE && truce__value_double(value) >= EXACT_DOUBLES)
        return message_wrong(format->seq, value,
                             "below 2^53 as a double, which has no exact numbers above", reason,
                             size);
    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &message->operation.seq) ||
        message->operation.seq < 1)
        return message_wrong(format->seq, value, "a whole number from 1", reason, size);
    return true;
}

/* Reads the source, if the format has one. On a fault, fills `reason` and returns false. */
static bool read_source(const struct message_format *format, const bson_t *document,
                        struct message *message, char *reason, size_t size)
{
    struct value value;
    const char *text;
    uint32_t length;

    if (!format->source)
        return true;
    if (!message_read_field(document, format->source, "source", &value, reason, size))
        return false;
    if (value.type != BSON_TYPE_UTF8)
        return message_wrong(format->source, value, "a string", reason, size);
    text = truce__value_text(value, &length);
    if (!length || strlen(text) != length || length > 120)
        return message_wrong(format->source, value, "a string of 1 to 120 bytes", reason, size);
    memcpy(message->source, text, length + 1);
    message->operation.source = message->source;
    return true;
}

/* Reads the element. A value that is not a document is the name of an element. */
static bool message_read_element(const struct message_format *format, const bson_t *document,
                                 struct message *message, char *reason, size_t size)
{
    struct value value;

    if (!message_read_field(document, format->element, "element", &value, reason, size))
        return false;
    if (value.type == BSON_TYPE_DOCUMENT) {
        bson_t borrowed;

        truce__value_bson(value, &borrowed);
        bson_concat(&message->element, &borrowed);
    } else {
        truce__value_append(&message->element, format->name, strlen(format->name), value);
    }
    return true;
}

static bool message_read_key(const struct message_format *format, const bson_t *document,
                             struct message *message, char *reason, size_t size)
{
    for (int i = 0; i < format->keys_count; i++) {
        struct value value;

        if (!message_read_field(document, format->from[i], "key", &value, reason, size))
            return false;
        truce__value_append(&message->key, format->keys[i], strlen(format->keys[i]), value);
    }
    return true;
}

bool message_read(const struct message_format *format, const bson_t *document,
                  struct message *message, char *reason, size_t size)
{
    bool good;

    message->operation = (truce_set_operation){.key = &message->key, .element = &message->element};
    bson_init(&message->key);
    bson_init(&message->element);
    good = message_read_operation(format, document, message, reason, size) &&
           message_read_key(format, document, message, reason, size) &&
           message_read_element(format, document, message, reason, size) &&
           message_read_number(format, document, message, reason, size) &&
           read_source(format, document, message, reason, size);
    if (!good)
        message_release(message);
    return good;
}

void message_release(struct message *message)
{
    bson_destroy(&message->key);
    bson_destroy(&message->element);
}
