/*
 * Choosing a plan.
 *
 *     1. a hint says it; with min and max, which part of its index, in the order of its keys
 *     2. {$natural: ...} says it
 *     3. the index with the best score (plan_index.c): one document by a unique key; else the most
 *        leading fields that are one value; else lists of values; else a range; else the order
 *        of the sort
 *     4. if no index is bounded by the conditions that must all hold, an $or whose every branch is
 *        served by an index: the union of their scans
 *     5. all rows
 *
 * No statistics: the rules are the same for every size and can be told from the filter alone.
 *
 * Without a sort documents come in the order of insertion, whatever the plan, so that the same
 * "first" document is found with and without an index: the rows of all entries are put in order
 * before the documents are read, which also reads them in the order of the file. A single key has
 * its rows in order already. A count needs no order, and may not even need the documents
 * (plan_covered.c).
 */
#include "engine/documents/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bson/number.h"
#include "query/index/index_set.h"
#include "query/index/index_span.h"

/* ranges and bounds of all branches of an $or; beyond that all rows are looked at */
#define UNION_WEIGHT_MAX 1000000

void truce__plan_release(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        for (uint32_t j = 0; j < plan->scans[i].count; j++) {
            truce__buffer_release(&plan->scans[i].ranges[j].from);
            truce__buffer_release(&plan->scans[i].ranges[j].to);
        }
        bson_free(plan->scans[i].ranges);
        bson_destroy(plan->scans[i].bounds);
    }
    bson_free(plan->scans);
    *plan = (struct plan){0};
}

int truce__plan_natural(const bson_t *specification)
{
    struct value value;

    if (!specification)
        return 0;
    value = truce__value_field(truce__value_document(specification), "$natural", 8);
    if (!truce__value_is_number(value))
        return 0;
    return truce__number_to_double(value) < 0 ? -1 : 1;
}

static struct plan_scan *add_scan(struct plan *plan)
{
    uint32_t count = plan->count;

    /* room grows in powers of two */
    if (!(count & (count - 1)))
        plan->scans = bson_realloc(plan->scans, (count ? 2 * count : 1) * sizeof *plan->scans);
    plan->scans[plan->count] = (struct plan_scan){0};
    return &plan->scans[plan->count++];
}

/* ---- one index ------------------------------------------------------------------------------ */

/* False: not all of its bounds could be used. */
static bool plan_use(struct plan *plan, const struct candidate *candidate, bool shows)
{
    struct plan_scan *scan = add_scan(plan);
    bool whole = truce__candidate_scan(candidate, scan);

    if (shows)
        scan->bounds = truce__candidate_bounds(candidate);
    /* One key has each row once, and in order. A wildcard has a row for each value of a name that stands twice. */
    if (!candidate->complete) {
        plan->repeats = plan->repeats || candidate->index->multikey_fields ||
                        candidate->index->spec.fields[0].wildcard;
        plan->by_row = true;
    }
    return whole;
}

/* The only index of the plan. */
static void use_alone(const struct plan_request *request, const struct conditions *conditions,
                      const struct candidate *candidate, struct plan *plan)
{
    bool whole = plan_use(plan, candidate, request->shows);

    plan->covered =
        request->goal == PLAN_COUNT && whole &&
        truce__candidate_covers(candidate, conditions, truce__match_root(request->match));
}

/* `best` takes over the better of the two. */
static void keep_better(struct candidate *best, struct candidate *other)
{
    bool better =
        other->score > best->score || (other->score && other->score == best->score &&
                                       other->index->spec.count < best->index->spec.count);

    if (!better) {
        truce__candidate_release(other);
        return;
    }
    truce__candidate_release(best);
    *best = *other;
}

static void find_best(const struct collection *collection, const struct conditions *conditions,
                      const struct sort *sort, struct candidate *best)
{
    *best = (struct candidate){0};
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        struct candidate *other;

        if (collection->indexes[i].state != INDEX_READY || collection->indexes[i].spec.hidden)
            continue;
        other = bson_malloc(sizeof *other);
        truce__candidate_make(&collection->indexes[i], conditions, sort, false, other);
        keep_better(best, other);
        bson_free(other);
    }
}

/* ---- unions --------------------------------------------------------------------------------- */

static const struct match_node *find_or(const struct match_node *root)
{
    if (root->kind == MATCH_OR)
        return root;
    for (uint32_t i = 0; root->kind == MATCH_AND && i < root->children_count; i++) {
        if (root->children[i]->kind == MATCH_OR)
            return root->children[i];
    }
    return NULL;
}

/* What a branch adds to the plan, and to the work of making it. */
static uint64_t plan_weight_of(const struct candidate *candidate, const struct plan_scan *scan)
{
    uint64_t weight = scan->count;

    for (uint32_t i = 0; i < candidate->fields; i++)
        weight += candidate->bounds[i].count;
    return weight;
}

/* One branch, together with the `conditions` outside of the $or, which stay as they are. */
static bool plan_add_branch(struct plan *plan, const struct plan_request *request,
                            struct conditions *conditions, const struct match_node *branch,
                            uint64_t *weight)
{
    static const struct sort unsorted = {0};
    struct candidate *best = bson_malloc(sizeof *best);
    uint32_t outside = conditions->count;
    bool served;

    truce__conditions_add(conditions, branch);
    find_best(request->collection, conditions, &unsorted, best);
    served = best->fields > 0;
    if (served) {
        plan_use(plan, best, request->shows);
        *weight += plan_weight_of(best, &plan->scans[plan->count - 1]);
    }
    truce__candidate_release(best);
    bson_free(best);
    truce__conditions_cut(conditions, outside);
    return served && *weight <= UNION_WEIGHT_MAX;
}

static bool plan_union(const struct plan_request *request, struct plan *plan)
{
    const struct match_node *root = truce__match_root(request->match), *any = find_or(root);
    struct conditions conditions = {0};
    uint64_t weight = 0;
    bool served = true;

    if (!any)
        return false;
    truce__conditions_add(&conditions, root);
    for (uint32_t i = 0; i < any->children_count && served; i++)
        served = plan_add_branch(plan, request, &conditions, any->children[i], &weight);
    truce__conditions_release(&conditions);
    if (!served) {
        truce__plan_release(plan);
        return false;
    }
    plan->repeats = true;
    plan->by_row = true;
    return true;
}

/* ---- the choice ----------------------------------------------------------------------------- */

static void plan_rows(struct plan *plan, bool backward)
{
    add_scan(plan)->backward = backward;
}

/* The order in which the documents of the chosen scans come. */
static void settle_order(const struct plan_request *request, const struct sort *sort,
                         bool index_sorts, struct plan *plan)
{
    bool sorted_later = sort->count && !index_sorts && request->goal != PLAN_IF_SORTED;

    plan->sorted = !sort->count || index_sorts;
    if (index_sorts || sorted_later || request->goal == PLAN_COUNT)
        plan->by_row = false;
    /* rows that are put in order lose their repeats by it */
    if (plan->by_row)
        plan->repeats = false;
    /* an index of a hint may lack documents */
    plan->walks = plan->by_row && request->limit && !request->hint;
    if (request->backward && !sort->count && plan->count == 1 && plan->scans[0].index) {
        plan->scans[0].backward = true;
        plan->repeats = plan->repeats || plan->by_row;
        plan->by_row = plan->walks = false;
    }
}

truce_status truce__plan_hinted(const struct collection *collection, const bson_t *hint,
                                const struct index **index, bson_error_t *error)
{
    const struct index_spec *specs[TRUCE_INDEXES_MAX];
    truce_status status;
    int64_t number;

    *index = NULL;
    for (uint32_t i = 0; i < collection->indexes_count; i++)
        specs[i] = &collection->indexes[i].spec;
    status = truce__index_hint(specs, collection->indexes_count, hint, &number, error);
    if (status || number < 0)
        return status;
    if (collection->indexes[number].state != INDEX_READY)
        return truce__refuse(CODE_BAD_VALUE, error, "the index of the hint is being built");
    *index = &collection->indexes[number];
    return TRUCE_OK;
}

/* As MongoDB tells them of a part of an index. */
static bson_t *span_bounds(const struct plan_request *request)
{
    bson_t *shown = bson_new();

    if (request->min && !bson_empty(request->min))
        BSON_APPEND_DOCUMENT(shown, "startKey", request->min);
    if (request->max && !bson_empty(request->max))
        BSON_APPEND_DOCUMENT(shown, "endKey", request->max);
    BCON_APPEND(shown, "startKeyInclusive", BCON_BOOL(true), "endKeyInclusive", BCON_BOOL(false));
    return shown;
}

/* Of equal documents of a sort the one that stands first in the index comes first, so it is not walked backward for one. */
static truce_status plan_span(const struct plan_request *request, const struct sort *sort,
                              const struct index *index, struct plan *plan, bson_error_t *error)
{
    static const struct conditions none;
    struct candidate *candidate = bson_malloc(sizeof *candidate);
    struct plan_scan *scan = add_scan(plan);
    struct index_span span;
    truce_status status =
        truce__index_span_make(&index->spec, request->min, request->max, &span, error);

    truce__candidate_make(index, &none, sort, true, candidate);
    *scan = (struct plan_scan){.index = index->id, .count = 1};
    scan->ranges = bson_malloc(sizeof *scan->ranges);
    scan->ranges[0] = (struct key_range){span.from, span.to};
    if (request->shows)
        scan->bounds = span_bounds(request);
    plan->repeats = index->multikey_fields;
    plan->sorted = !sort->count || (candidate->sorted && !candidate->backward);
    truce__candidate_release(candidate);
    bson_free(candidate);
    return status;
}

static truce_status plan_hint(const struct plan_request *request, const struct sort *sort,
                              const struct conditions *conditions, struct plan *plan,
                              bson_error_t *error)
{
    struct candidate *candidate;
    const struct index *index;
    bool wildcard;
    truce_status status = truce__plan_hinted(request->collection, request->hint, &index, error);

    if (status || !index)
        return status;
    if (truce__index_span_given(request->min, request->max))
        return plan_span(request, sort, index, plan, error);
    candidate = bson_malloc(sizeof *candidate);
    wildcard = index->spec.fields[0].wildcard;
    truce__candidate_make(index, conditions, sort, !wildcard, candidate);
    /* a wildcard index that cannot serve the filter has not all documents: it is no help */
    if (candidate->fields || !wildcard) {
        use_alone(request, conditions, candidate, plan);
        settle_order(request, sort, candidate->sorted, plan);
    }
    truce__candidate_release(candidate);
    bson_free(candidate);
    return TRUCE_OK;
}

static void plan_choose(const struct plan_request *request, const struct sort *sort,
                        const struct conditions *conditions, struct plan *plan)
{
    struct candidate *best = bson_malloc(sizeof *best);
    bool index_sorts = false;

    find_best(request->collection, conditions, sort, best);
    if (best->fields || !plan_union(request, plan)) {
        if (best->score) {
            use_alone(request, conditions, best, plan);
            index_sorts = best->sorted;
        } else {
            plan_rows(plan, false);
        }
    }
    settle_order(request, sort, index_sorts, plan);
    truce__candidate_release(best);
    bson_free(best);
}

static truce_status plan_make(const struct plan_request *request, const struct sort *sort,
                              struct plan *plan, bson_error_t *error)
{
    const struct match_node *root = truce__match_root(request->match);
    struct conditions conditions = {0};
    truce_status status = TRUCE_OK;

    truce__conditions_add(&conditions, root);
    if (request->hint && !bson_empty(request->hint))
        status = plan_hint(request, sort, &conditions, plan, error);
    if (!status && !plan->count && root->kind != MATCH_FALSE)
        plan_choose(request, sort, &conditions, plan);
    else if (!status && !plan->count)
        plan->sorted = true; /* nothing matches */
    truce__conditions_release(&conditions);
    return status;
}

truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error)
{
    int natural = truce__plan_natural(request->sort);
    struct sort sort = {0};
    truce_status status = TRUCE_OK;

    *plan = (struct plan){0};
    if (!natural && request->sort && !bson_empty(request->sort))
        status = truce__sort_parse(request->sort, &sort, error);
    if (status)
        return status;
    if (natural || truce__plan_natural(request->hint)) {
        plan_rows(plan, (natural ? natural : truce__plan_natural(request->hint)) < 0);
        plan->sorted = natural || !sort.count;
    } else {
        status = plan_make(request, &sort, plan, error);
    }
    truce__sort_release(&sort);
    return status;
}
