/*
 * How one index serves a query.
 *
 * The conditions of a filter give bounds for the fields of an index, from its first field on:
 *
 *     index {a: 1, b: -1, c: 1}    filter {a: {$in: [1, 2]}, b: {$gt: 5}}
 *
 *     a: [1] [2]   b: (5 ... numbers), turned around   c: nothing
 *     ranges: 1 then b > 5;  2 then b > 5
 *
 * A field behind one that is not bounded by points alone gets no bounds: its values are spread over
 * the whole range.
 *
 * Arrays. Where a field of some document went through an array, a document has a key for each
 * element, and two conditions on the field may be met by two elements: only the bounds of one
 * condition are used. Two fields that go through the same array (a.b and a.c) may be met by two
 * elements as well: only the first is bounded, unless one $elemMatch says both of one element, whose
 * fields they are. Fields of different arrays never meet in one document, because indexes refuse parallel
 * arrays.
 *
 * Sparse and partial indexes lack documents. A sparse one is used if some condition on one of its
 * fields cannot be met by a document without the field; a partial one if each part of its filter
 * follows from a condition of the query, which is: is the same, or allows nothing that the part
 * does not. A wildcard index has keys (path, value) of the leaves of documents: it serves one
 * condition that needs the field, on a path without numbers, whose bounds are not about documents
 * or arrays as a whole.
 *
 * The order of an index is the order of a sort if the fields of the sort follow the fields that are
 * one point each, all in the direction of the index or all against it, and no field of the sort
 * goes through an array.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/documents/plan.h"

/* The score, in this order of weight. */
#define SCORE_ONE_DOCUMENT 1000000
#define SCORE_SINGLE       1000 /* each leading field that is one point */
#define SCORE_POINTS       400  /* each other field of points */
#define SCORE_RANGE        200
#define SCORE_SORTED       100
#define SCORE_SMALL        10 /* sparse or partial: fewer entries than documents */

/* ---- conditions ----------------------------------------------------------------------------- */

static char *index_join(const char *prefix, const struct path *path)
{
    if (!*prefix)
        return bson_strdup(path->text);
    return path->length ? bson_strdup_printf("%s.%s", prefix, path->text) : bson_strdup(prefix);
}

static bool index_has_number(const struct path *path)
{
    for (uint32_t i = 0; i < path->count; i++) {
        if (path->parts[i].index >= 0)
            return true;
    }
    return false;
}

static const struct path *index_path_of(const struct match_node *node)
{
    return node->kind == MATCH_NOT ? &node->children[0]->path : &node->path;
}

/* A number in a path names an element of an array or a field of its elements. The key of the index
 * is the element's; a field that is missing in another element has none. */
static bool keeps_to_numbers(const struct match_node *node, const struct bounds *bounds)
{
    return !bounds->missing && node->kind != MATCH_ELEM_VALUE && node->kind != MATCH_NOT;
}

static void distrust(struct condition *condition)
{
    truce__bounds_release(&condition->bounds);
    condition->bounds.missing = true;
    condition->bounded = false;
}

static void index_add_leaf(struct conditions *conditions, const struct match_node *node,
                           const char *prefix, const struct match_node *element)
{
    const struct path *path = index_path_of(node);
    struct condition *made;

    if (!path->text || (*prefix && index_has_number(path)))
        return;
    if (conditions->count == conditions->room) {
        conditions->room = conditions->room ? conditions->room * 2 : 4;
        conditions->items =
            bson_realloc(conditions->items, conditions->room * sizeof *conditions->items);
    }
    made = &conditions->items[conditions->count++];
    *made = (struct condition){.node = node, .path = index_join(prefix, path)};
    made->numbered = index_has_number(path);
    made->element = path->count == 1 ? element : NULL;
    made->bounded = truce__bounds_of(node, &made->bounds);
    if (made->bounded && made->numbered && !keeps_to_numbers(node, &made->bounds))
        distrust(made);
}

static void add_node(struct conditions *conditions, const struct match_node *node,
                     const char *prefix, const struct match_node *element)
{
    char *inner;

    switch (node->kind) {
    case MATCH_AND:
        for (uint32_t i = 0; i < node->children_count; i++)
            add_node(conditions, node->children[i], prefix, element);
        break;
    case MATCH_ELEM_OBJECT:
        inner = index_join(prefix, &node->path);
        if (!index_has_number(&node->path))
            for (uint32_t i = 0; i < node->children_count; i++)
                add_node(conditions, node->children[i], inner, node);
        bson_free(inner);
        break;
    case MATCH_OR:
    case MATCH_NOR:
    case MATCH_TRUE:
    case MATCH_FALSE:
    case MATCH_EXPR:
    case MATCH_SCHEMA:
        break;
    default:
        index_add_leaf(conditions, node, prefix, element);
        break;
    }
}

void truce__conditions_add(struct conditions *conditions, const struct match_node *node)
{
    add_node(conditions, node, "", NULL);
}

void truce__conditions_cut(struct conditions *conditions, uint32_t count)
{
    while (conditions->count > count) {
        struct condition *last = &conditions->items[--conditions->count];

        bson_free(last->path);
        truce__bounds_release(&last->bounds);
    }
}

void truce__conditions_release(struct conditions *conditions)
{
    truce__conditions_cut(conditions, 0);
    bson_free(conditions->items);
    *conditions = (struct conditions){0};
}

/* ---- sparse and partial --------------------------------------------------------------------- */

static bool needs_field(const struct condition *condition, const char *path)
{
    return !condition->bounds.missing && !strcmp(condition->path, path);
}

static bool serves_sparse(const struct index *index, const struct conditions *conditions)
{
    for (uint32_t i = 0; i < index->spec.count; i++) {
        for (uint32_t j = 0; j < conditions->count; j++) {
            if (needs_field(&conditions->items[j], index->spec.fields[i].path.text))
                return true;
        }
    }
    return false;
}

static bool same_node(const struct match_node *a, const struct match_node *b)
{
    return a->kind == b->kind && a->kind != MATCH_NOT && !a->children_count && !b->children_count &&
           a->kind != MATCH_IN && a->operand.type && truce__value_identical(a->operand, b->operand);
}

/* Does `part` of an index's filter follow from the condition? */
static bool implies(const struct condition *condition, const struct condition *part)
{
    if (strcmp(condition->path, part->path))
        return false;
    if (same_node(condition->node, part->node))
        return true;
    if (part->node->kind == MATCH_EXISTS)
        return !condition->bounds.missing;
    return truce__condition_is_exact(part->node) && condition->bounded &&
           !condition->bounds.missing && truce__bounds_within(&condition->bounds, &part->bounds);
}

static bool part_follows(const struct conditions *conditions, const struct condition *part)
{
    for (uint32_t i = 0; i < conditions->count; i++) {
        if (implies(&conditions->items[i], part))
            return true;
    }
    return false;
}

/* Only filters that are conditions on paths, all of which must hold, can be seen to follow. */
static bool is_simple(const struct match_node *root)
{
    if (root->kind == MATCH_TRUE)
        return true;
    if (root->kind != MATCH_AND)
        return root->kind >= MATCH_EQ && root->kind <= MATCH_BITS;
    for (uint32_t i = 0; i < root->children_count; i++) {
        if (root->children[i]->kind < MATCH_EQ || root->children[i]->kind > MATCH_BITS)
            return false;
    }
    return true;
}

static bool serves_partial(const struct index *index, const struct conditions *conditions)
{
    const struct match_node *root = truce__match_root(index->spec.partial);
    struct conditions parts = {0};
    bool follows = is_simple(root);

    if (!follows)
        return false;
    truce__conditions_add(&parts, root);
    for (uint32_t i = 0; i < parts.count && follows; i++)
        follows = part_follows(conditions, &parts.items[i]);
    truce__conditions_release(&parts);
    return follows;
}

static bool holds_all(const struct index *index, const struct conditions *conditions)
{
    if (index->spec.sparse && !serves_sparse(index, conditions))
        return false;
    return !index->spec.partial || serves_partial(index, conditions);
}

/* ---- bounds of fields ----------------------------------------------------------------------- */

static void copy_bounds(const struct bounds *from, struct bounds *to)
{
    *to = *from;
    to->room = from->count;
    to->intervals = bson_malloc0((from->count + 1) * sizeof *to->intervals);
    for (uint32_t i = 0; i < from->count; i++) {
        const struct interval *interval = &from->intervals[i];

        truce__buffer_append(&to->intervals[i].from, interval->from.bytes, interval->from.size);
        truce__buffer_append(&to->intervals[i].to, interval->to.bytes, interval->to.size);
        to->intervals[i].low = interval->low;
        to->intervals[i].high = interval->high;
        to->intervals[i].point = interval->point;
    }
}

/* Points before ranges, few before many. */
static bool is_tighter(const struct bounds *a, const struct bounds *b)
{
    bool points = truce__bounds_all_points(a);

    if (points != truce__bounds_all_points(b))
        return points;
    return a->count < b->count;
}

/* `within`: only conditions on that element count; NULL: all. `*element`: whose condition it was, if the
 * field goes through an array. */
static bool bound_field(const struct conditions *conditions, const char *path, bool arrays,
                        const struct match_node *within, const struct match_node **element,
                        struct bounds *bounds)
{
    bool any = false;

    *element = NULL;
    for (uint32_t i = 0; i < conditions->count; i++) {
        const struct condition *condition = &conditions->items[i];

        if (!condition->bounded || strcmp(condition->path, path) ||
            (within && condition->element != within))
            continue;
        if (!any || (arrays && is_tighter(&condition->bounds, bounds)))
            *element = condition->element;
        if (!any) {
            copy_bounds(&condition->bounds, bounds);
        } else if (!arrays) {
            truce__bounds_intersect(bounds, &condition->bounds);
        } else if (is_tighter(&condition->bounds, bounds)) {
            truce__bounds_release(bounds);
            copy_bounds(&condition->bounds, bounds);
        }
        any = true;
    }
    return any;
}

static bool goes_through_array(const struct index *index, uint32_t field)
{
    return index->multikey_fields & UINT32_C(1) << field;
}

static bool same_start(const struct path *a, const struct path *b)
{
    return a->parts[0].length == b->parts[0].length &&
           !memcmp(a->parts[0].name, b->parts[0].name, a->parts[0].length);
}

/* The first bounded field that is in the same array; -1: none. */
static int shares_array(const struct index *index, uint32_t field)
{
    for (uint32_t i = 0; i < field; i++) {
        if (goes_through_array(index, i) && goes_through_array(index, field) &&
            same_start(&index->spec.fields[i].path, &index->spec.fields[field].path))
            return (int)i;
    }
    return -1;
}

static void bound_fields(struct candidate *candidate, const struct conditions *conditions)
{
    const struct match_node *elements[TRUCE_INDEX_FIELDS_MAX];
    const struct index *index = candidate->index;
    bool points = true;

    for (uint32_t i = 0; i < index->spec.count && points; i++) {
        struct bounds *bounds = &candidate->bounds[i];
        int shared = shares_array(index, i);

        if (shared >= 0 && !elements[shared])
            break;
        if (!bound_field(conditions, index->spec.fields[i].path.text, goes_through_array(index, i),
                         shared >= 0 ? elements[shared] : NULL, &elements[i], bounds))
            break;
        candidate->fields++;
        points = truce__bounds_all_points(bounds);
        if (points && bounds->count == 1 && candidate->single == i)
            candidate->single++;
    }
    candidate->complete = candidate->single == index->spec.count;
}

/* ---- the order ------------------------------------------------------------------------------ */

static bool sort_has_array(const struct candidate *candidate, const struct sort *sort)
{
    for (uint32_t i = 0; i < candidate->index->spec.count; i++) {
        for (uint32_t j = 0; j < sort->count; j++) {
            if (goes_through_array(candidate->index, i) &&
                !strcmp(candidate->index->spec.fields[i].path.text, sort->fields[j].path.text))
                return true;
        }
    }
    return false;
}

static int index_find_field(const struct index *index, const char *path)
{
    for (uint32_t i = 0; i < index->spec.count; i++) {
        if (!strcmp(index->spec.fields[i].path.text, path))
            return (int)i;
    }
    return -1;
}

/* Walks sort and index side by side; fields that are one point stand in no order's way. */
static bool gives_order(const struct candidate *candidate, const struct sort *sort, bool *backward)
{
    const struct index *index = candidate->index;
    uint32_t at = 0;
    int direction = 0;

    if (sort_has_array(candidate, sort))
        return false;
    for (uint32_t i = 0; i < sort->count; i++) {
        int field = index_find_field(index, sort->fields[i].path.text), this_direction;

        if (field < 0)
            return false;
        if ((uint32_t)field < candidate->single)
            continue;
        if (at < candidate->single)
            at = candidate->single;
        if ((uint32_t)field != at)
            return false;
        this_direction = index->spec.fields[at].descending == sort->fields[i].descending ? 1 : -1;
        if (direction && direction != this_direction)
            return false;
        direction = this_direction;
        at++;
    }
    *backward = direction < 0;
    return true;
}

/* ---- wildcard ------------------------------------------------------------------------------- */

static bool below_root(const struct key_field *field, const char *path)
{
    size_t length = field->path.count ? field->path.length : 0;

    if (!length)
        return strcmp(path, "_id") && strncmp(path, "_id.", 4);
    return !strncmp(path, field->path.text, length) && (!path[length] || path[length] == '.');
}

static bool about_leaves(const struct match_node *node)
{
    const struct value *operands = node->kind == MATCH_IN ? node->operands : &node->operand;
    uint32_t count = node->kind == MATCH_IN ? node->operands_count : 1;

    switch (node->kind) {
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_IN:
        break;
    default:
        return node->kind == MATCH_REGEX;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (truce__value_is_container(operands[i]))
            return false;
    }
    return true;
}

static void bound_wildcard(struct candidate *candidate, const struct conditions *conditions)
{
    const struct condition *best = NULL;

    for (uint32_t i = 0; i < conditions->count; i++) {
        const struct condition *condition = &conditions->items[i];

        if (!condition->bounded || condition->bounds.missing || condition->numbered ||
            !about_leaves(condition->node) ||
            !below_root(&candidate->index->spec.fields[0], condition->path))
            continue;
        if (!best || is_tighter(&condition->bounds, &best->bounds))
            best = condition;
    }
    if (!best)
        return;
    candidate->fields = 1;
    truce__key_append_path(&candidate->path, best->path, strlen(best->path));
    copy_bounds(&best->bounds, &candidate->bounds[0]);
    candidate->single = best->bounds.count == 1 && best->bounds.intervals[0].point;
    candidate->complete = candidate->single;
}

/* ---- candidates ----------------------------------------------------------------------------- */

/* Just the documents with the field: what {$exists: true} asks of a sparse index. */
static bool tells_existence(const struct index *index, const struct conditions *conditions)
{
    if (!index->spec.sparse || index->spec.count > 1 || index->spec.fields[0].wildcard)
        return false;
    for (uint32_t i = 0; i < conditions->count; i++) {
        if (conditions->items[i].node->kind == MATCH_EXISTS &&
            !strcmp(conditions->items[i].path, index->spec.fields[0].path.text))
            return true;
    }
    return false;
}

static int64_t score_of(const struct candidate *candidate, const struct conditions *conditions)
{
    const struct index *index = candidate->index;
    int64_t score = 0;

    if (candidate->complete && index->spec.unique)
        return SCORE_ONE_DOCUMENT;
    for (uint32_t i = 0; i < candidate->fields; i++) {
        if (i < candidate->single)
            score += SCORE_SINGLE;
        else
            score += truce__bounds_all_points(&candidate->bounds[i]) ? SCORE_POINTS : SCORE_RANGE;
    }
    if (candidate->sorted)
        score += SCORE_SORTED;
    if ((score && (index->spec.sparse || index->spec.partial)) ||
        tells_existence(index, conditions))
        score += SCORE_SMALL;
    return score;
}

void truce__candidate_make(const struct index *index, const struct conditions *conditions,
                           const struct sort *sort, bool forced, struct candidate *candidate)
{
    bool wildcard = index->spec.fields[0].wildcard;

    *candidate = (struct candidate){.index = index};
    if (!forced && !holds_all(index, conditions))
        return;
    if (wildcard)
        bound_wildcard(candidate, conditions);
    else
        bound_fields(candidate, conditions);
    if (sort->count && !wildcard)
        candidate->sorted = gives_order(candidate, sort, &candidate->backward);
    candidate->score = score_of(candidate, conditions);
}

void truce__candidate_release(struct candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->fields; i++)
        truce__bounds_release(&candidate->bounds[i]);
    truce__buffer_release(&candidate->path);
    *candidate = (struct candidate){0};
}
