/*
 * Counts by an index without reading documents (truce__query_count in query.c).
 *
 *     index {a: 1, b: 1}   count {a: 5, b: {$gt: 2}}    the entries from (5, 2) to (5, all numbers)
 *     index {a: 1}         count {a: 5, b: {$gt: 2}}    no: b must be read
 *     index {a: 1}         count {a: null}              no: null also means a missing field
 *
 * Bounds are made so that no match is outside. For a count without documents, everything inside
 * must match:
 *
 *  1. No field of the index ever passed through an array, so each document has at most one entry.
 *  2. The filter consists of conditions on paths, all of which must hold: no $or, no $expr.
 *  3. Each condition has exact bounds, on a field that the ranges of the scan bound.
 *
 * Sparse and partial indexes need no rule of their own. Either they contain every matching
 * document, or a hint has chosen them, which hides the other documents from a find, too.
 *
 * Deliberately not done: wildcard indexes. A document with a duplicate field name has an entry for
 * each of them, but a filter sees only the first.
 */
#include <string.h>

#include "bson/number.h"
#include "engine/documents/query_plan.h"

static bool is_exact_value(struct value value)
{
    switch (value.type) {
    /* In an index, an array has the key of its first element. */
    case BSON_TYPE_ARRAY:
    /* In an index, a missing field has the key of null. */
    case BSON_TYPE_NULL:
    /* A comparison with undefined has no bounds. */
    case BSON_TYPE_UNDEFINED:
        return false;
    default:
        return !truce__value_is_number(value) || !truce__number_is_nan(value);
    }
}

bool truce__plan_is_exact(const struct match_node *node)
{
    switch (node->kind) {
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        return is_exact_value(node->operand);
    case MATCH_IN:
        for (uint32_t i = 0; i < node->operands_count; i++) {
            if (!is_exact_value(node->operands[i]))
                return false;
        }
        /* The children are regular expressions, which have no exact bounds. */
        return !node->children_count;
    default:
        return false;
    }
}

static bool is_condition(const struct match_node *node)
{
    return node->kind >= MATCH_EQ && node->kind <= MATCH_IN;
}

/* Returns whether the filter consists of these conditions and nothing else. */
static bool are_all(const struct conditions *conditions, const struct match_node *root)
{
    if (root->kind == MATCH_TRUE)
        return true;
    if (root->kind != MATCH_AND)
        return is_condition(root) && conditions->count == 1;
    for (uint32_t i = 0; i < root->children_count; i++) {
        if (!is_condition(root->children[i]))
            return false;
    }
    return conditions->count == root->children_count;
}

static bool is_covered(const struct candidate *candidate, const struct condition *condition)
{
    if (!condition->bounded || condition->numbered || !truce__plan_is_exact(condition->node))
        return false;
    for (uint32_t i = 0; i < candidate->fields; i++) {
        if (!strcmp(candidate->index->spec.fields[i].path.text, condition->path))
            return true;
    }
    return false;
}

bool truce__plan_covers(const struct candidate *candidate, const struct conditions *conditions,
                        const struct match_node *root)
{
    const struct index *index = candidate->index;

    if (index->multikey_fields || index->spec.fields[0].wildcard)
        return false;
    if (!are_all(conditions, root))
        return false;
    for (uint32_t i = 0; i < conditions->count; i++) {
        if (!is_covered(candidate, &conditions->items[i]))
            return false;
    }
    return true;
}
