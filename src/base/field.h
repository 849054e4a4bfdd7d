#ifndef TRUCE_BASE_FIELD_H
#define TRUCE_BASE_FIELD_H

/* A field of a document, by name, where what is missing or of another type need not be told from
 * nothing. */
#include <stdint.h>

#include <bson/bson.h>

/* Borrowed from the document; "": there is no such text. */
static inline const char *truce__field_text(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

/* 0: there is no such number. */
static inline int64_t truce__field_number(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) ? bson_iter_as_int64(&iter) : 0;
}

/* Milliseconds since 1970; 0: there is no such date. */
static inline int64_t truce__field_date(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_DATE_TIME(&iter)
               ? bson_iter_date_time(&iter)
               : 0;
}

#endif
