#include "cli/core/pretty_output.h"

#include <string.h>

/* A container is written on one line if the line has at most this size. */
#define LINE_BYTES 76

static void pretty_put(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

static void new_line(struct buffer *out, int depth)
{
    pretty_put(out, "\n");
    for (int i = 0; i < depth; i++)
        pretty_put(out, "  ");
}

static void pretty_write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form,
                               int depth);

/* Writes the fields of a document, or the elements of an array, one a line and indented. */
static void pretty_write_fields(struct buffer *out, bson_iter_t *fields, bool named,
                                enum json_form form, int depth)
{
    for (bool first = true; bson_iter_next(fields); first = false) {
        if (!first)
            pretty_put(out, ",");
        new_line(out, depth + 1);
        if (named) {
            truce__json_write_text(out, bson_iter_key(fields), strlen(bson_iter_key(fields)));
            pretty_put(out, ": ");
        }
        pretty_write_value(out, fields, form, depth + 1);
    }
    new_line(out, depth);
}

/* Writes a value on one line if it fits, else one line for each field. */
static void pretty_write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form,
                               int depth)
{
    size_t before = out->size;
    bson_iter_t inner;

    truce__json_write_value(out, iter, form);
    if (out->size - before <= LINE_BYTES || !bson_iter_recurse(iter, &inner))
        return;
    out->size = before;
    pretty_put(out, BSON_ITER_HOLDS_ARRAY(iter) ? "[" : "{");
    pretty_write_fields(out, &inner, !BSON_ITER_HOLDS_ARRAY(iter), form, depth);
    pretty_put(out, BSON_ITER_HOLDS_ARRAY(iter) ? "]" : "}");
}

void cli_pretty(struct buffer *out, const bson_t *document, bool is_array, enum json_form form)
{
    size_t before = out->size;
    bson_iter_t fields;

    truce__json_write(out, document, is_array, form);
    if (out->size - before > LINE_BYTES && bson_iter_init(&fields, document)) {
        out->size = before;
        pretty_put(out, is_array ? "[" : "{");
        pretty_write_fields(out, &fields, !is_array, form, 0);
        pretty_put(out, is_array ? "]" : "}");
    }
    pretty_put(out, "\n");
}
