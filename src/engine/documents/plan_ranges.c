/*
 * The ranges of an index that a plan looks at: what the bounds of its fields are together, as keys for a scan, and as texts for
 * who explains it.
 *
 *     a: [1] [2]    b: (5 ... numbers)      keys from (1, 5) behind it to (1, text), from (2, 5) behind it to (2, text)
 *                                           {a: ["[1, 1]", "[2, 2]"], b: ["(5, inf.0]"]}
 */
#include "base/assert.h"
#include "engine/documents/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bson/number.h"

#define RANGES_MAX 1000      /* of a scan that bounds several fields: their intervals multiply */
#define SHOWN_MAX  (1 << 20) /* bytes of texts of bounds */

/* ---- as keys --------------------------------------------------------------------------------- */

static struct key_range *add_range(struct plan_scan *scan)
{
    scan->ranges = bson_realloc(scan->ranges, (scan->count + 1) * sizeof *scan->ranges);
    scan->ranges[scan->count] = (struct key_range){0};
    return &scan->ranges[scan->count++];
}

static void release_ranges(struct plan_scan *scan)
{
    for (uint32_t i = 0; i < scan->count; i++) {
        truce__buffer_release(&scan->ranges[i].from);
        truce__buffer_release(&scan->ranges[i].to);
    }
    bson_free(scan->ranges);
    scan->ranges = NULL;
    scan->count = 0;
}

static void ranges_append(struct buffer *key, const struct buffer *more)
{
    truce__buffer_append(key, more->bytes, more->size);
}

/* Every range so far, which is a prefix, followed by every interval of the next field. */
static void ranges_multiply(struct plan_scan *scan, const struct bounds *bounds)
{
    struct plan_scan product = *scan;

    product.count = 0;
    product.ranges = NULL;
    for (uint32_t i = 0; i < scan->count; i++) {
        for (uint32_t j = 0; j < bounds->count; j++) {
            struct key_range *range = add_range(&product);

            ranges_append(&range->from, &scan->ranges[i].from);
            ranges_append(&range->from, &bounds->intervals[j].from);
            ranges_append(&range->to, &scan->ranges[i].from);
            ranges_append(&range->to, &bounds->intervals[j].to);
        }
    }
    release_ranges(scan);
    *scan = product;
}

static void ranges_add_field(struct plan_scan *scan, const struct bounds *bounds, bool descending)
{
    struct bounds turned;

    if (!descending) {
        ranges_multiply(scan, bounds);
        return;
    }
    truce__bounds_turn(bounds, &turned);
    ranges_multiply(scan, &turned);
    truce__bounds_release(&turned);
}

bool truce__candidate_scan(const struct candidate *candidate, struct plan_scan *scan)
{
    struct key_range *first;

    *scan = (struct plan_scan){.index = candidate->index->id, .backward = candidate->backward};
    first = add_range(scan);
    ranges_append(&first->from, &candidate->path);
    if (candidate->path.size) {
        ranges_append(&first->to, &candidate->path);
        truce__key_successor(&first->to);
    }
    for (uint32_t i = 0; i < candidate->fields; i++) {
        if (i && (uint64_t)scan->count * candidate->bounds[i].count > RANGES_MAX)
            return false;
        ranges_add_field(scan, &candidate->bounds[i],
                         candidate->index->spec.fields[i].descending && !candidate->path.size);
    }
    return true;
}

/* ---- as texts ------------------------------------------------------------------------------- */

/* The texts that MongoDB has for the ends of types. */
static const struct {
    uint8_t type;
    const char *low, *high;
    bool open; /* `high` is the first of the next type */
} types[] = {
    {BSON_TYPE_UTF8, "\"\"", "{}", true},
    {BSON_TYPE_DOCUMENT, "{}", "[]", true},
    {BSON_TYPE_BINARY, "BinData(0, )", "ObjectId('000000000000000000000000')", true},
    {BSON_TYPE_OID, "ObjectId('000000000000000000000000')", "ObjectId('ffffffffffffffffffffffff')",
     false},
    {BSON_TYPE_BOOL, "false", "true", false},
    {BSON_TYPE_DATE_TIME, "new Date(-9223372036854775808)", "new Date(9223372036854775807)", false},
    {BSON_TYPE_TIMESTAMP, "Timestamp(0, 0)", "Timestamp(4294967295, 4294967295)", false},
    {BSON_TYPE_REGEX, "//", "DBRef", true},
    {BSON_TYPE_CODE, "CODE", "CODEWSCOPE", true},
    {BSON_TYPE_UNDEFINED, "undefined", "undefined", false},
    {BSON_TYPE_NULL, "null", "null", false},
    {BSON_TYPE_MINKEY, "MinKey", "MinKey", false},
    {BSON_TYPE_MAXKEY, "MaxKey", "MaxKey", false},
};

/* False: the end is not included, whatever it says itself. */
static bool append_type(struct buffer *text, uint8_t type, bool high)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type != type)
            continue;
        truce__buffer_append_text(text, high ? types[i].high : types[i].low);
        return !high || !types[i].open;
    }
    truce__buffer_append_text(text, high ? "inf.0" : "-inf.0"); /* numbers */
    return true;
}

static void ranges_append_oid(struct buffer *text, struct value value)
{
    bson_oid_t oid;
    char hex[25];

    memcpy(oid.bytes, value.data, sizeof oid.bytes);
    bson_oid_to_string(&oid, hex);
    truce__buffer_append_text(text, "ObjectId('");
    truce__buffer_append_text(text, hex);
    truce__buffer_append_text(text, "')");
}

static void ranges_append_value(struct buffer *text, struct value value)
{
    char shown[1000];

    switch (value.type) {
    case BSON_TYPE_OID:
        ranges_append_oid(text, value);
        return;
    case BSON_TYPE_DATE_TIME:
        snprintf(shown, sizeof shown, "new Date(%lld)", (long long)truce__value_int64(value));
        break;
    case BSON_TYPE_TIMESTAMP:
        snprintf(shown, sizeof shown, "Timestamp(%u, %u)",
                 (unsigned)((uint64_t)truce__value_int64(value) >> 32),
                 (unsigned)truce__value_int64(value));
        break;
    case BSON_TYPE_MINKEY:
    case BSON_TYPE_MAXKEY:
    case BSON_TYPE_UNDEFINED:
        append_type(text, value.type, false);
        return;
    default:
        if (value.type == BSON_TYPE_DOUBLE && isinf(truce__number_to_double(value)))
            append_type(text, value.type, truce__number_to_double(value) > 0);
        else
            truce__buffer_append_text(text, truce__value_show(value, shown, sizeof shown));
        return;
    }
    truce__buffer_append_text(text, shown);
}

/* The first text behind all that begin so. */
static void append_quoted(struct buffer *text, struct value begins, bool behind)
{
    struct buffer copy = {0};

    truce__buffer_append(&copy, begins.data, begins.size);
    if (behind && copy.size)
        copy.bytes[copy.size - 1]++;
    truce__buffer_append_byte(text, '"');
    truce__buffer_append(text, copy.bytes, copy.size);
    truce__buffer_append_byte(text, '"');
    truce__buffer_release(&copy);
}

/* Is it included? */
static bool ranges_append_end(struct buffer *text, const struct interval_end *end, bool high)
{
    switch (end->kind) {
    case END_VALUE:
        ranges_append_value(text, end->value);
        break;
    case END_TYPE:
        return append_type(text, end->value.type, high);
    default:
        append_quoted(text, end->value, end->kind == END_BEHIND_TEXT);
        break;
    }
    return end->included;
}

static void append_interval(struct buffer *text, const struct interval *interval, bool turned)
{
    const struct interval_end *first = turned ? &interval->high : &interval->low,
                              *last = turned ? &interval->low : &interval->high;
    bool included;

    text->size = 0;
    truce__buffer_append_byte(text, '[');
    included = ranges_append_end(text, first, turned);
    if (!included)
        text->bytes[0] = '(';
    truce__buffer_append_text(text, ", ");
    included = ranges_append_end(text, last, !turned);
    truce__buffer_append(text, included ? "]" : ")", 2);
}

static void ranges_append_bounds(bson_t *shown, const char *name, const struct bounds *bounds,
                                 bool turned)
{
    struct buffer text = {0};
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, name, &list);
    for (uint32_t i = 0; i < bounds->count; i++) {
        char number[16];
        const char *key;

        bson_uint32_to_string(i, &key, number, sizeof number);
        append_interval(&text, &bounds->intervals[turned ? bounds->count - 1 - i : i], turned);
        if (list.len + text.size > SHOWN_MAX) {
            bson_append_utf8(&list, key, -1, "warning: bounds truncated due to BSON size limit",
                             -1);
            break;
        }
        bson_append_utf8(&list, key, -1, (const char *)text.bytes, -1);
    }
    bson_append_array_end(shown, &list);
    truce__buffer_release(&text);
}

static void ranges_append_all(bson_t *shown, const char *name, bool turned)
{
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, name, &list);
    BSON_APPEND_UTF8(&list, "0", turned ? "[MaxKey, MinKey]" : "[MinKey, MaxKey]");
    bson_append_array_end(shown, &list);
}

/* The path of a wildcard's keys, which ends with 00. */
static void append_path(bson_t *shown, const char *path)
{
    char *text = bson_strdup_printf("[\"%s\", \"%s\"]", path, path);
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, "$_path", &list);
    BSON_APPEND_UTF8(&list, "0", text);
    bson_append_array_end(shown, &list);
    bson_free(text);
}

bson_t *truce__candidate_bounds(const struct candidate *candidate)
{
    const struct index_spec *spec = &candidate->index->spec;
    bson_t *shown = bson_new();
    uint64_t ranges = 1;

    if (candidate->path.size) {
        const char *path = (const char *)candidate->path.bytes;

        append_path(shown, path);
        ranges_append_bounds(shown, path, &candidate->bounds[0], candidate->backward);
        return shown;
    }
    for (uint32_t i = 0; i < spec->count; i++) {
        bool turned = spec->fields[i].descending != candidate->backward;

        if (i < candidate->fields && ranges <= RANGES_MAX)
            ranges *= candidate->bounds[i].count;
        if (i < candidate->fields && ranges <= RANGES_MAX)
            ranges_append_bounds(shown, spec->fields[i].path.text, &candidate->bounds[i], turned);
        else
            ranges_append_all(shown, spec->fields[i].path.text, turned);
    }
    return shown;
}
