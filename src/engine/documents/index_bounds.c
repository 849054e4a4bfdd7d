/*
 * Bounds.
 *
 *     a == 5               [5]
 *     a > 5                (5 ... end of numbers)        comparisons stay within a class of types
 *     a in [1, "x", null]  [1] ["x"] [undefined ... null]
 *     a == null            [undefined ... null]          a missing field has the key null
 *     a == [1, 2]          [1] [[1, 2]]                  its first element has a key, or the
 *                                                        array is itself an element
 *     a =~ /^ab/           ["ab" ... "ac") [regexes]
 *
 * Invariants:
 *  1. In an index of the path, a document that matches the condition has a key within the
 *     intervals. If the index does not contain documents without the field, `missing` means that
 *     such a document can match.
 *  2. Intervals are half open in bytes. An end is a prefix of keys or the successor of a prefix.
 *     Prefixes therefore need no special case (bson/key_encoding.h).
 *
 * The following conditions have no bounds: {$exists: true}, $mod, $size, bits, $type, and a regex
 * without a fixed prefix. Comparisons with arrays have none either, because an index contains the
 * elements of an array and not the array.
 *
 * An interval of ascending encodings [from, to) is [successor(~to), successor(~from)) in descending
 * ones. A key below `to` differs from it at some byte, so its inversion is greater at that byte,
 * and thus not less than the successor of ~to. A key with the prefix `from` has the inverted prefix
 * ~from, and is thus less than the successor of ~from.
 */
#include "engine/documents/index_bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bson/number.h"

/* ---- intervals ------------------------------------------------------------------------------ */

static struct interval *bounds_add(struct bounds *bounds)
{
    if (bounds->count == bounds->room) {
        bounds->room = bounds->room ? bounds->room * 2 : 2;
        bounds->intervals =
            bson_realloc(bounds->intervals, bounds->room * sizeof *bounds->intervals);
    }
    bounds->intervals[bounds->count] = (struct interval){0};
    return &bounds->intervals[bounds->count++];
}

static void bounds_copy(const struct buffer *from, struct buffer *to)
{
    to->size = 0;
    truce__buffer_append(to, from->bytes, from->size);
}

static void release_interval(struct interval *interval)
{
    truce__buffer_release(&interval->from);
    truce__buffer_release(&interval->to);
}

void truce__bounds_release(struct bounds *bounds)
{
    for (uint32_t i = 0; i < bounds->count; i++)
        release_interval(&bounds->intervals[i]);
    bson_free(bounds->intervals);
    *bounds = (struct bounds){0};
}

static int bounds_compare(const struct buffer *a, const struct buffer *b)
{
    return truce__bytes_compare(a->bytes, a->size, b->bytes, b->size);
}

static int bounds_by_from(const void *a, const void *b)
{
    return bounds_compare(&((const struct interval *)a)->from, &((const struct interval *)b)->from);
}

void truce__bounds_arrange(struct bounds *bounds)
{
    uint32_t kept = 0;

    if (bounds->count < 2)
        return;
    qsort(bounds->intervals, bounds->count, sizeof *bounds->intervals, bounds_by_from);
    for (uint32_t i = 1; i < bounds->count; i++) {
        struct interval *last = &bounds->intervals[kept], *next = &bounds->intervals[i];
        bool same = last->point && next->point && !bounds_compare(&last->from, &next->from);

        if (!same && bounds_compare(&next->from, &last->to) >= 0) {
            bounds->intervals[++kept] = *next;
            continue;
        }
        if (!same && bounds_compare(&next->to, &last->to) > 0) {
            bounds_copy(&next->to, &last->to);
            last->high = next->high;
        }
        last->point = last->point && same;
        release_interval(next);
    }
    bounds->count = kept + 1;
}

bool truce__bounds_all_points(const struct bounds *bounds)
{
    for (uint32_t i = 0; i < bounds->count; i++) {
        if (!bounds->intervals[i].point)
            return false;
    }
    return true;
}

void truce__bounds_add(struct bounds *bounds, struct bounds *more)
{
    for (uint32_t i = 0; i < more->count; i++)
        *bounds_add(bounds) = more->intervals[i];
    bounds->missing = bounds->missing || more->missing;
    bson_free(more->intervals);
    *more = (struct bounds){0};
}

void truce__bounds_intersect(struct bounds *a, const struct bounds *b)
{
    struct bounds both = {.missing = a->missing && b->missing};

    /* The intervals of both lists ascend, so the one that ends first overlaps no further interval
     * of the other list. */
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        const struct interval *x = &a->intervals[i], *y = &b->intervals[j];
        struct interval *made;
        bool ends_first = bounds_compare(&x->to, &y->to) < 0;
        const struct interval *begins = bounds_compare(&x->from, &y->from) > 0 ? x : y;
        const struct interval *ends = ends_first ? x : y;

        if (bounds_compare(&begins->from, &ends->to) < 0) {
            made = bounds_add(&both);
            bounds_copy(&begins->from, &made->from);
            bounds_copy(&ends->to, &made->to);
            made->low = begins->low;
            made->high = ends->high;
            made->point = x->point || y->point;
        }
        i += ends_first;
        j += !ends_first;
    }
    truce__bounds_arrange(&both);
    truce__bounds_release(a);
    *a = both;
}

bool truce__bounds_within(const struct bounds *inner, const struct bounds *outer)
{
    uint32_t j = 0;

    for (uint32_t i = 0; i < inner->count; i++) {
        const struct interval *x = &inner->intervals[i];

        while (j < outer->count && bounds_compare(&outer->intervals[j].to, &x->to) < 0)
            j++;
        if (j == outer->count || bounds_compare(&outer->intervals[j].from, &x->from) > 0)
            return false;
    }
    return true;
}

/* Computes the successor of the inverted bytes. */
static void invert_end(const struct buffer *end, struct buffer *inverted)
{
    bool possible;

    bounds_copy(end, inverted);
    for (size_t i = 0; i < inverted->size; i++)
        inverted->bytes[i] = (uint8_t)~inverted->bytes[i];
    possible = truce__key_successor(inverted);
    /* No encoding begins with 00, so none begins with ff when inverted. */
    truce_assert(possible);
}

void truce__bounds_invert(const struct bounds *bounds, struct bounds *inverted)
{
    *inverted = (struct bounds){.missing = bounds->missing};
    for (uint32_t i = bounds->count; i-- > 0;) {
        struct interval *made = bounds_add(inverted);

        invert_end(&bounds->intervals[i].to, &made->from);
        invert_end(&bounds->intervals[i].from, &made->to);
        made->point = bounds->intervals[i].point;
        if (!made->point)
            continue;
        /* A point remains exactly one key. */
        bounds_copy(&bounds->intervals[i].from, &made->from);
        for (size_t j = 0; j < made->from.size; j++)
            made->from.bytes[j] = (uint8_t)~made->from.bytes[j];
    }
}

/* ---- values --------------------------------------------------------------------------------- */

static struct interval_end end_at(struct value value, bool included)
{
    return (struct interval_end){value, END_VALUE, included};
}

static struct interval_end end_of_type(uint8_t type)
{
    return (struct interval_end){{NULL, 0, type}, END_TYPE, true};
}

static void add_point(struct bounds *bounds, struct value value)
{
    struct interval *made = bounds_add(bounds);

    truce__key_append(&made->from, value, false);
    truce__key_append(&made->to, value, false);
    truce__key_successor(&made->to);
    made->low = made->high = end_at(value, true);
    made->point = true;
}

static void add_classes(struct bounds *bounds, uint8_t first, uint8_t last)
{
    struct interval *made = bounds_add(bounds);

    truce__key_append_class(&made->from, first, false);
    truce__key_append_class(&made->to, last, false);
    truce__key_successor(&made->to);
    made->low = end_of_type(first);
    made->high = end_of_type(last);
}

static void add_null(struct bounds *bounds)
{
    add_classes(bounds, BSON_TYPE_UNDEFINED, BSON_TYPE_NULL);
    bounds->missing = true;
}

static void bounds_add_array(struct bounds *bounds, struct value array)
{
    struct fields fields = truce__fields(array);

    add_point(bounds, array);
    if (truce__fields_next(&fields))
        add_point(bounds, fields.value);
    else
        add_point(bounds, (struct value){NULL, 0, BSON_TYPE_UNDEFINED});
}

/* Adds the bounds of an equality. Returns false if no bounds are known. */
static bool add_equal(struct bounds *bounds, struct value value)
{
    switch (value.type) {
    case BSON_TYPE_NULL:
        add_null(bounds);
        return true;
    case BSON_TYPE_UNDEFINED:
        bounds->missing = true;
        return false;
    case BSON_TYPE_ARRAY:
        bounds_add_array(bounds, value);
        return true;
    default:
        add_point(bounds, value);
        return true;
    }
}

/* ---- comparisons ---------------------------------------------------------------------------- */

static bool is_nan(struct value value)
{
    return truce__value_is_number(value) && isnan(truce__number_to_double(value));
}

/* Appends the smallest key of a class that an ordered comparison can find. NaN is below all
 * numbers, but an ordered comparison never finds it. */
static void append_least(struct buffer *key, struct value value)
{
    struct arena arena = ARENA_INIT;

    if (truce__value_is_number(value)) {
        truce__key_append(key, truce__value_from_double(&arena, (double)NAN), false);
        truce__key_successor(key);
    } else {
        truce__key_append_class(key, value.type, false);
    }
    truce__arena_release(&arena);
}

static bool add_below(struct bounds *bounds, struct value value, bool inclusive)
{
    struct interval *made = bounds_add(bounds);

    append_least(&made->from, value);
    truce__key_append(&made->to, value, false);
    if (inclusive)
        truce__key_successor(&made->to);
    made->low = end_of_type(value.type);
    made->high = end_at(value, inclusive);
    return true;
}

static bool add_above(struct bounds *bounds, struct value value, bool inclusive)
{
    struct interval *made = bounds_add(bounds);

    truce__key_append(&made->from, value, false);
    if (!inclusive)
        truce__key_successor(&made->from);
    truce__key_append_class(&made->to, value.type, false);
    truce__key_successor(&made->to);
    made->low = end_at(value, inclusive);
    made->high = end_of_type(value.type);
    return true;
}

/* Adds the bounds of a comparison with a value. Returns false if no bounds are known for its
 * type. */
static bool add_comparison(struct bounds *bounds, enum match_kind kind, struct value value)
{
    bool inclusive = kind == MATCH_LTE || kind == MATCH_GTE;

    switch (value.type) {
    case BSON_TYPE_NULL:
        add_null(bounds);
        return true;
    case BSON_TYPE_UNDEFINED:
    case BSON_TYPE_ARRAY:
    case BSON_TYPE_MINKEY:
    case BSON_TYPE_MAXKEY:
    case BSON_TYPE_REGEX:
    case BSON_TYPE_CODEWSCOPE:
    case BSON_TYPE_DBPOINTER:
        /* This type has no bounds. */
        bounds->missing = true;
        return false;
    default:
        if (is_nan(value)) {
            add_classes(bounds, value.type, value.type);
            return true;
        }
        return kind == MATCH_LT || kind == MATCH_LTE ? add_below(bounds, value, inclusive)
                                                     : add_above(bounds, value, inclusive);
    }
}

/* ---- regexes and lists ---------------------------------------------------------------------- */

/* Adds the bounds of a regular expression: the strings with its prefix, and stored regular
 * expressions, which it also equals. */
static bool add_regex(struct bounds *bounds, const struct match_node *node)
{
    struct arena arena = ARENA_INIT;
    struct interval *made;
    struct value begins = {.type = BSON_TYPE_UTF8};
    const char *prefix;
    size_t length;
    bool whole;

    if (!truce__match_regex_prefix(node, &prefix, &length, &whole))
        return false;
    made = bounds_add(bounds);
    truce__key_append(&made->from, truce__value_from_text(&arena, prefix, length), false);
    /* Without the two bytes that end a string, the key is the prefix of all strings with that
     * prefix. */
    made->from.size -= 2;
    bounds_copy(&made->from, &made->to);
    truce__key_successor(&made->to);
    begins.data = (const uint8_t *)prefix;
    begins.size = (uint32_t)length;
    made->low = (struct interval_end){begins, END_TEXT, true};
    made->high = (struct interval_end){begins, END_AFTER_TEXT, false};
    add_classes(bounds, BSON_TYPE_REGEX, BSON_TYPE_REGEX);
    truce__arena_release(&arena);
    return true;
}

static bool bounds_add_in(struct bounds *bounds, const struct match_node *node)
{
    bool bounded = true;

    for (uint32_t i = 0; i < node->operands_count; i++)
        bounded = add_equal(bounds, node->operands[i]) && bounded;
    for (uint32_t i = 0; i < node->children_count; i++)
        bounded = add_regex(bounds, node->children[i]) && bounded;
    return bounded;
}

/* Adds the bounds of the conditions of an $elemMatch. All conditions apply to the same element, so
 * their bounds can be intersected. An inner $elemMatch looks into an array that is an element: the
 * index contains that array as a whole. */
static bool bounds_add_element(struct bounds *bounds, const struct match_node *node)
{
    bool any = false;

    for (uint32_t i = 0; i < node->children_count; i++) {
        struct bounds one;

        if (node->children[i]->kind == MATCH_ELEM_VALUE ||
            node->children[i]->kind == MATCH_ELEM_OBJECT)
            continue;
        if (!truce__bounds_of(node->children[i], &one)) {
            truce__bounds_release(&one);
            continue;
        }
        if (any) {
            truce__bounds_intersect(bounds, &one);
            truce__bounds_release(&one);
        } else {
            *bounds = one;
        }
        any = true;
    }
    bounds->missing = false;
    return any;
}

static bool add_negation(struct bounds *bounds, const struct match_node *node)
{
    const struct match_node *child = node->children[0];

    bounds->missing = true;
    if (child->kind == MATCH_EXISTS)
        add_null(bounds);
    /* With a longer path, an empty array on the way is neither null nor a value. */
    if (child->kind == MATCH_EQ && child->operand.type == BSON_TYPE_NULL && child->path.count == 1)
        bounds->missing = false;
    return child->kind == MATCH_EXISTS;
}

/* Adds the bounds of a condition, by its kind. Returns false if it has none. */
static bool add_bounds(const struct match_node *node, struct bounds *bounds)
{
    switch (node->kind) {
    case MATCH_EQ:
        return add_equal(bounds, node->operand);
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        return add_comparison(bounds, node->kind, node->operand);
    case MATCH_IN:
        return bounds_add_in(bounds, node);
    case MATCH_REGEX:
        return add_regex(bounds, node);
    case MATCH_ELEM_VALUE:
        return bounds_add_element(bounds, node);
    case MATCH_NOT:
        return add_negation(bounds, node);
    case MATCH_EXISTS:
    case MATCH_MOD:
    case MATCH_SIZE:
    case MATCH_BITS:
        return false;
    default:
        /* This condition has no bounds. */
        bounds->missing = true;
        return false;
    }
}

bool truce__bounds_of(const struct match_node *node, struct bounds *bounds)
{
    bool missing;

    *bounds = (struct bounds){0};
    if (add_bounds(node, bounds)) {
        truce__bounds_arrange(bounds);
        return true;
    }
    missing = bounds->missing;
    truce__bounds_release(bounds);
    bounds->missing = missing;
    return false;
}
