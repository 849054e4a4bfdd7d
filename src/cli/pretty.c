#include "cli/pretty.h"

#include <string.h>

#define LINE_BYTES 76 /* a container that fits stands on one line */

static void put(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

static void new_line(struct buffer *out, int depth)
{
    put(out, "\n");
    for (int i = 0; i < depth; i++)
        put(out, "  ");
}

static void write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form,
                        int depth);

static void write_fields(struct buffer *out, bson_iter_t *fields, bool named, enum json_form form,
                         int depth)
{
    for (bool first = true; bson_iter_next(fields); first = false) {
        if (!first)
            put(out, ",");
        new_line(out, depth + 1);
        if (named) {
            truce__json_write_text(out, bson_iter_key(fields), strlen(bson_iter_key(fields)));
            put(out, ": ");
        }
        write_value(out, fields, form, depth + 1);
    }
    new_line(out, depth);
}

/* On one line if it fits; else one line for each field. */
static void write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form, int depth)
{
    size_t before = out->size;
    bson_iter_t inner;

    truce__json_write_value(out, iter, form);
    if (out->size - before <= LINE_BYTES || !bson_iter_recurse(iter, &inner))
        return;
    out->size = before;
    put(out, BSON_ITER_HOLDS_ARRAY(iter) ? "[" : "{");
    write_fields(out, &inner, !BSON_ITER_HOLDS_ARRAY(iter), form, depth);
    put(out, BSON_ITER_HOLDS_ARRAY(iter) ? "]" : "}");
}

void cli_pretty(struct buffer *out, const bson_t *document, bool is_array, enum json_form form)
{
    size_t before = out->size;
    bson_iter_t fields;

    truce__json_write(out, document, is_array, form);
    if (out->size - before > LINE_BYTES && bson_iter_init(&fields, document)) {
        out->size = before;
        put(out, is_array ? "[" : "{");
        write_fields(out, &fields, !is_array, form, 0);
        put(out, is_array ? "]" : "}");
    }
    put(out, "\n");
}
