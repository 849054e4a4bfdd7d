#ifndef TRUCE_BASE_FIELD_H
#define TRUCE_BASE_FIELD_H

/* Functions that read a field of a document by name. Most of them treat a missing field, and a
 * field of another type, as an empty one. */
#include <stdint.h>

#include <bson/bson.h>

#include "base/limits.h"

/* Returns the string, borrowed from the document, or "" if the field is not a string. */
static inline const char *truce__field_text(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

/* Returns the number, or 0 if the field is not a number. A boolean counts as 0 or 1. */
static inline int64_t truce__field_number(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) ? bson_iter_as_int64(&iter) : 0;
}

/* Returns whether the field exists and is not false, 0, or null. A value of any other type counts
 * as true. */
static inline bool truce__field_true(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && bson_iter_as_bool(&iter);
}

/* Reads an integer that a filter can find by its value: an int, or a whole double below 2^53. A
 * missing field is 0. Returns false for any other value. */
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

/* The greatest count and date that truce computes with, so that sums stay within 64 bits. */
#define FIELD_MAX (INT64_C(1) << 53)

/* Returns the milliseconds since 1970, within FIELD_MAX. */
static inline int64_t truce__iter_date(const bson_iter_t *iter)
{
    int64_t date = bson_iter_date_time(iter);

    if (date > FIELD_MAX)
        return FIELD_MAX;
    return date < -FIELD_MAX ? -FIELD_MAX : date;
}

/* Returns now_ms + duration_ms, but at most the last date that every server can read. */
static inline int64_t truce__date_after(int64_t now_ms, int64_t duration_ms)
{
    return duration_ms > DATE_LAST_MS - now_ms ? DATE_LAST_MS : now_ms + duration_ms;
}

/* Returns the date in milliseconds since 1970, within FIELD_MAX, or 0 if the field is not a
 * date. */
static inline int64_t truce__field_date(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_DATE_TIME(&iter)
               ? truce__iter_date(&iter)
               : 0;
}

/* Returns a count or a duration. A value outside of 0 to FIELD_MAX is changed to the nearest valid
 * value. */
static inline int64_t truce__field_count(const bson_t *document, const char *name)
{
    int64_t count = truce__field_number(document, name);

    if (count > FIELD_MAX)
        return FIELD_MAX;
    return count < 0 ? 0 : count;
}

#endif
