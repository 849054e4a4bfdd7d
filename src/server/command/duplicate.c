/*
 * Reads the sentence of a key that is taken (truce__index_refuse_duplicate):
 *
 *     the key {"email": "a@b"} is taken in the unique index "email_1" {"email": 1} of people
 *             ^values                                        ^name     ^pattern
 *
 * Values stand in it as relaxed Extended JSON, so a number is of the smallest type that it fits. A value that is too long
 * for the sentence ends with "...": then there is no keyValue.
 */
#include "server/command/duplicate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bson/json.h"

struct part {
    const char *at;
    size_t size;
};

/* The text up to `end`, behind which `*text` goes on. */
static bool duplicate_take(const char **text, const char *end, struct part *part)
{
    const char *found = strstr(*text, end);

    if (!found)
        return false;
    *part = (struct part){*text, (size_t)(found - *text)};
    *text = found + strlen(end);
    return true;
}

/* NULL, if it is none, or not all of one. It borrows from the reader. */
static const bson_t *duplicate_read_document(struct json_reader *reader, struct part json,
                                             bson_t *document)
{
    bson_error_t error;

    return truce__json_read(reader, json.at, json.size, document, NULL, &error) ? NULL : document;
}

/* ---- as MongoDB shows values ----------------------------------------------------------------- */

static void duplicate_write_fields(struct buffer *out, bson_iter_t *fields, bool named);

static void duplicate_write_value(struct buffer *out, const bson_iter_t *value)
{
    char text[48], hex[25];
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_OID(value)) {
        bson_oid_to_string(bson_iter_oid(value), hex);
        snprintf(text, sizeof text, "ObjectId('%s')", hex);
        truce__buffer_append_text(out, text);
    } else if (BSON_ITER_HOLDS_DATE_TIME(value)) {
        snprintf(text, sizeof text, "new Date(%" PRId64 ")", bson_iter_date_time(value));
        truce__buffer_append_text(out, text);
    } else if ((BSON_ITER_HOLDS_DOCUMENT(value) || BSON_ITER_HOLDS_ARRAY(value)) &&
               bson_iter_recurse(value, &inner)) {
        duplicate_write_fields(out, &inner, BSON_ITER_HOLDS_DOCUMENT(value));
    } else {
        truce__json_write_value(out, value, JSON_RELAXED);
    }
}

/* { email: "a@b", of: ObjectId('65f0...'), list: [ 1, 2.0 ] } */
static void duplicate_write_fields(struct buffer *out, bson_iter_t *fields, bool named)
{
    const char *before = named ? "{ " : "[ ";

    while (bson_iter_next(fields)) {
        truce__buffer_append_text(out, before);
        before = ", ";
        if (named) {
            truce__buffer_append_text(out, bson_iter_key(fields));
            truce__buffer_append_text(out, ": ");
        }
        duplicate_write_value(out, fields);
    }
    truce__buffer_append_text(out, *before != ',' ? (named ? "{}" : "[]") : named ? " }" : " ]");
}

/* ---- the answer ------------------------------------------------------------------------------ */

struct taken {
    struct part values, name, pattern;
    const char *collection;
};

static bool read_sentence(const char *at, struct taken *taken)
{
    if (strncmp(at, "the key ", 8) != 0)
        return false;
    at += 8;
    if (!duplicate_take(&at, " is taken in the unique index \"", &taken->values) ||
        !duplicate_take(&at, "\" {", &taken->name))
        return false;
    at--; /* its brace */
    if (!duplicate_take(&at, "} of ", &taken->pattern))
        return false;
    taken->pattern.size++;
    taken->collection = at;
    return true;
}

static void append_errmsg(const struct taken *taken, const char *database, const bson_t *values,
                          bson_t *reply)
{
    struct buffer text = {0};
    const char *collection = taken->collection;
    bson_iter_t fields;

    truce__buffer_append_text(&text, "E11000 duplicate key error collection: ");
    if (*collection == '@') {
        collection++;
    } else {
        truce__buffer_append_text(&text, database);
        truce__buffer_append_text(&text, ".");
    }
    truce__buffer_append_text(&text, collection);
    truce__buffer_append_text(&text, " index: ");
    truce__buffer_append(&text, taken->name.at, taken->name.size);
    truce__buffer_append_text(&text, " dup key: ");
    if (values && bson_iter_init(&fields, values))
        duplicate_write_fields(&text, &fields, true);
    else
        truce__buffer_append(&text, taken->values.at, taken->values.size);
    bson_append_utf8(reply, "errmsg", -1, (const char *)text.bytes, (int)text.size);
    truce__buffer_release(&text);
}

static void duplicate_append_document(bson_t *reply, const char *name, const bson_t *document)
{
    if (document)
        bson_append_document(reply, name, -1, document);
}

bool duplicate_append(const char *sentence, const char *database, bson_t *reply)
{
    struct json_reader readers[2] = {{.typed = false}, {.typed = false}};
    bson_t documents[2];
    const bson_t *pattern, *values;
    struct taken taken;

    if (!read_sentence(sentence, &taken))
        return false;
    pattern = duplicate_read_document(&readers[0], taken.pattern, &documents[0]);
    values = duplicate_read_document(&readers[1], taken.values, &documents[1]);
    append_errmsg(&taken, database, values, reply);
    duplicate_append_document(reply, "keyPattern", pattern);
    duplicate_append_document(reply, "keyValue", values);
    truce__json_reader_release(&readers[0]);
    truce__json_reader_release(&readers[1]);
    return true;
}
