#include "bson/field_name_escape.h"

#include <string.h>

#include "base/buffer.h"
#include "bson/value.h"

#define DOLLAR "\xef\xbc\x84" /* The full-width dollar sign, U+FF04. */
#define DOT    "\xef\xbc\x8e" /* The full-width full stop, U+FF0E. */
#define ESCAPE "\xef\xbc\xbc" /* The full-width backslash, U+FF3C. */
#define WIDE   3              /* The bytes of each of these in UTF-8. */

static bool is_wide(const char *at, const char *wide)
{
    return !strncmp(at, wide, WIDE);
}

static bool is_special(const char *name)
{
    return name[0] == '$' || strchr(name, '.') || strstr(name, "\xef\xbc");
}

static bool names_is_plain(struct value container)
{
    struct fields fields = truce__fields(container);

    while (truce__fields_next(&fields)) {
        if (is_special(fields.key) ||
            (truce__value_is_container(fields.value) && !names_is_plain(fields.value)))
            return false;
    }
    return true;
}

bool truce__names_plain(const bson_t *document)
{
    return names_is_plain(truce__value_document(document));
}

/* ---- one name ------------------------------------------------------------------------------- */

/* Escapes a name: a `$` at the beginning and every dot become wide. Characters that are wide
 * already get a wide backslash before them. */
static void store_name(const char *name, struct buffer *out)
{
    for (const char *at = name; *at; at++) {
        bool first = at == name;

        if (first && *at == '$') {
            truce__buffer_append(out, DOLLAR, WIDE);
        } else if (*at == '.') {
            truce__buffer_append(out, DOT, WIDE);
        } else {
            if (is_wide(at, DOT) || is_wide(at, ESCAPE) || (first && is_wide(at, DOLLAR)))
                truce__buffer_append(out, ESCAPE, WIDE);
            truce__buffer_append_byte(out, (uint8_t)*at);
        }
    }
}

/* Restores a name that store_name has escaped. */
static void restore_name(const char *name, struct buffer *out)
{
    const char *at = name;

    while (*at) {
        if (at == name && is_wide(at, DOLLAR)) {
            truce__buffer_append_byte(out, '$');
            at += WIDE;
        } else if (is_wide(at, DOT)) {
            truce__buffer_append_byte(out, '.');
            at += WIDE;
        } else {
            if (is_wide(at, ESCAPE))
                at += WIDE;
            if (*at) /* Copies the first byte of the escaped character unchanged. */
                truce__buffer_append_byte(out, (uint8_t)*at++);
        }
    }
}

/* ---- documents ------------------------------------------------------------------------------ */

typedef void convert_name(const char *name, struct buffer *out);

/* Appends the fields of a document or array with converted names, at all depths. */
static void append_converted(bson_t *to, struct value container, convert_name *convert)
{
    struct fields fields = truce__fields(container);
    struct buffer name = {0};
    size_t length;
    bson_t part;

    while (truce__fields_next(&fields)) {
        name.size = 0;
        convert(fields.key, &name);
        truce__buffer_append_byte(&name, 0); /* Allocates the buffer even for an empty name. */
        length = name.size - 1;
        if (fields.value.type == BSON_TYPE_ARRAY) {
            bson_append_array_begin(to, (const char *)name.bytes, (int)length, &part);
            append_converted(&part, fields.value, convert);
            bson_append_array_end(to, &part);
        } else if (fields.value.type == BSON_TYPE_DOCUMENT) {
            bson_append_document_begin(to, (const char *)name.bytes, (int)length, &part);
            append_converted(&part, fields.value, convert);
            bson_append_document_end(to, &part);
        } else {
            truce__value_append(to, (const char *)name.bytes, length, fields.value);
        }
    }
    truce__buffer_release(&name);
}

void truce__names_append(bson_t *to, const char *key, const bson_t *document)
{
    bson_t stored;

    truce__names_store(document, &stored);
    BSON_APPEND_DOCUMENT(to, key, &stored);
    bson_destroy(&stored);
}

static void names_convert_document(const bson_t *from, convert_name *convert, bson_t *to)
{
    if (truce__names_plain(from)) {
        bson_copy_to(from, to);
        return;
    }
    bson_init(to);
    append_converted(to, truce__value_document(from), convert);
}

void truce__names_store(const bson_t *document, bson_t *stored)
{
    names_convert_document(document, store_name, stored);
}

void truce__names_restore(const bson_t *stored, bson_t *restored)
{
    names_convert_document(stored, restore_name, restored);
}

void truce__names_restore_own(bson_t *document)
{
    bson_t restored;

    if (truce__names_plain(document))
        return;
    truce__names_restore(document, &restored);
    /* bson_destroy would also free the struct of a document from bson_new. */
    bson_reinit(document);
    bson_concat(document, &restored);
    bson_destroy(&restored);
}
