#ifndef TRUCE_BSON_ARRAY_H
#define TRUCE_BSON_ARRAY_H

/*
 * Writes a BSON array one element after the other and numbers the elements.
 *
 *     struct array names;
 *
 *     truce__array_begin(&names, document, "names");
 *     for (size_t i = 0; i < count; i++)
 *         truce__array_add_text(&names, list[i]);
 *     truce__array_end(&names, document);
 *
 * An array that is a bson_t of its own begins as {.to = &list}, where `list` is initialized and
 * empty. While a document inside the array is open, only that document may be appended to, as with
 * bson_append_document_begin. An array beyond BSON's maximum size is a bug of the caller. To build
 * arrays in an arena, see bson/builder.h.
 */
#include "bson/value.h"

struct array {
    /* The document to which the elements are appended. */
    bson_t *to;
    /* The number of elements: the index of the next one. */
    uint32_t count;
    /* The array if it is a field of a document. `to` points to it then. */
    bson_t own;
};

/* Begins the array that is the field `name` of the document. */
void truce__array_begin(struct array *array, bson_t *document, const char *name);
void truce__array_end(struct array *array, bson_t *document);

/* Begins to append to `elements`, a bson_t of its own, after the elements that are there. */
void truce__array_resume(struct array *array, bson_t *elements);

/* Appends an element. A missing value appends nothing. */
void truce__array_add(struct array *array, struct value value);
void truce__array_add_value(struct array *array, const bson_value_t *value);
void truce__array_add_document(struct array *array, const bson_t *document);
void truce__array_add_text(struct array *array, const char *text);
void truce__array_add_oid(struct array *array, const bson_oid_t *oid);
void truce__array_add_int32(struct array *array, int32_t number);
void truce__array_add_int64(struct array *array, int64_t number);

/* Opens an element that is a document; append its fields to `document` until it is closed. */
void truce__array_open_document(struct array *array, bson_t *document);
void truce__array_close_document(struct array *array, bson_t *document);

/* Opens an element that is an array. */
void truce__array_open_array(struct array *array, struct array *inner);
void truce__array_close_array(struct array *array, struct array *inner);

#endif
