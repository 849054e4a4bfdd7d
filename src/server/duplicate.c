/*
 * Reads the sentence of a key that is taken (truce__index_refuse_duplicate):
 *
 *     the key {"email": "a@b"} is taken in the unique index "email_1" {"email": 1} of people
 *             ^values                                        ^name     ^pattern
 *
 * Values stand in it as relaxed Extended JSON, so a number is of the smallest type that it fits. A value that is too long
 * for the sentence ends with "...": then there is no keyValue.
 */
#include "server/duplicate.h"

#include <stdio.h>
#include <string.h>

#include "bson/json.h"

struct part {
    const char *at;
    size_t size;
};

/* The text up to `end`, behind which `*text` goes on. */
static bool take(const char **text, const char *end, struct part *part)
{
    const char *found = strstr(*text, end);

    if (!found)
        return false;
    *part = (struct part){*text, (size_t)(found - *text)};
    *text = found + strlen(end);
    return true;
}

static bool append_document(bson_t *reply, const char *name, struct part json)
{
    struct json_reader reader = {0};
    bson_error_t error;
    bson_t document;
    bool read = !truce__json_read(&reader, json.at, json.size, &document, NULL, &error);

    if (read)
        bson_append_document(reply, name, -1, &document);
    truce__json_reader_release(&reader);
    return read;
}

bool duplicate_append(const char *sentence, const char *database, bson_t *reply)
{
    struct part values, name, pattern;
    const char *at = sentence;
    char text[1024];

    if (strncmp(at, "the key ", 8) != 0)
        return false;
    at += 8;
    if (!take(&at, " is taken in the unique index \"", &values) || !take(&at, "\" {", &name))
        return false;
    at--; /* its brace */
    if (!take(&at, "} of ", &pattern))
        return false;
    pattern.size++;
    snprintf(text, sizeof text,
             "E11000 duplicate key error collection: %s%s%s index: %.*s dup key: %.*s",
             *at == '@' ? "" : database, *at == '@' ? "" : ".", *at == '@' ? at + 1 : at,
             (int)name.size, name.at, (int)values.size, values.at);
    BSON_APPEND_UTF8(reply, "errmsg", text);
    append_document(reply, "keyPattern", pattern);
    append_document(reply, "keyValue", values);
    return true;
}
