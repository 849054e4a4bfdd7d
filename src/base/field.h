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

/* A number that a filter by it finds again; 0: there is no such field. False: something else stands there. */
static inline bool truce__field_whole(const bson_t *document, const char *name, int64_t *number)
{
    bson_iter_t iter;
    double real;

    *number = 0;
    if (!bson_iter_init_find(&iter, document, name))
        return true;
    real = BSON_ITER_HOLDS_DOUBLE(&iter) ? bson_iter_double(&iter) : 0;
    if (!(BSON_ITER_HOLDS_INT(&iter) || BSON_ITER_HOLDS_DOUBLE(&iter)) ||
        !(real > -0x1p53 && real < 0x1p53) || (double)(int64_t)real != real)
        return false;
    *number = bson_iter_as_int64(&iter);
    return true;
}

/* Nothing that truce counts comes so far, nor does a date: what is reckoned with them stays in 64 bits. */
#define FIELD_MAX (INT64_C(1) << 53)

/* Milliseconds since 1970 of a date. */
static inline int64_t truce__iter_date(const bson_iter_t *iter)
{
    int64_t date = bson_iter_date_time(iter);

    if (date > FIELD_MAX)
        return FIELD_MAX;
    return date < -FIELD_MAX ? -FIELD_MAX : date;
}

/* 0: there is no such date. */
static inline int64_t truce__field_date(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_DATE_TIME(&iter)
               ? truce__iter_date(&iter)
               : 0;
}

/* So many, or so many milliseconds: from 0 to FIELD_MAX, whatever stands there. */
static inline int64_t truce__field_count(const bson_t *document, const char *name)
{
    int64_t count = truce__field_number(document, name);

    if (count > FIELD_MAX)
        return FIELD_MAX;
    return count < 0 ? 0 : count;
}

#endif
