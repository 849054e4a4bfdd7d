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
 * Without a sort, documents come in the order of the entries that the plan looks at, as in MongoDB:
 *
 *     one index      the order of its keys; equal keys in the order of insertion; a document with several
 *                    keys comes at the first of them
 *     a union        one index after the other, in the order in which the indexes were created. Branches
 *                    that bound only the first field of the same index are one scan of it
 *     all rows       the order of insertion
 *
 * So a limit ends a scan early, and a write to one document takes the first of this order.
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
    /* One key has each row once. A wildcard has a row for each value of a name that stands twice. */
    if (!candidate->complete)
        plan->repeats = plan->repeats || candidate->index->multikey_fields ||
                        candidate->index->spec.fields[0].wildcard;
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

/* The branches of an $or, each with the index that serves it. */
struct branches {
    struct candidate **items;
    uint32_t count;
    uint64_t weight; /* the work of making the plan */
};

static void branches_release(struct branches *branches)
{
    for (uint32_t i = 0; i < branches->count; i++) {
        truce__candidate_release(branches->items[i]);
        bson_free(branches->items[i]);
    }
    bson_free(branches->items);
}

/* One branch, together with the `conditions` outside of the $or, which stay as they are. */
static bool branches_add(struct branches *branches, const struct collection *collection,
                         struct conditions *conditions, const struct match_node *node)
{
    static const struct sort unsorted = {0};
    struct candidate *best = bson_malloc(sizeof *best);
    uint32_t outside = conditions->count;

    truce__conditions_add(conditions, node);
    find_best(collection, conditions, &unsorted, best);
    truce__conditions_cut(conditions, outside);
    branches->items[branches->count++] = best;
    for (uint32_t i = 0; i < best->fields; i++)
        branches->weight += best->bounds[i].count;
    return best->fields && branches->weight <= UNION_WEIGHT_MAX;
}

/* By index; the branches of one index keep their order. */
static void branches_arrange(struct branches *branches, const struct collection *collection)
{
    struct candidate **arranged = bson_malloc(branches->count * sizeof *arranged);
    uint32_t count = 0;

    for (uint32_t i = 0; i < collection->indexes_count; i++)
        for (uint32_t j = 0; j < branches->count; j++) {
            if (branches->items[j]->index == &collection->indexes[i])
                arranged[count++] = branches->items[j];
        }
    truce_assert(count == branches->count);
    bson_free(branches->items);
    branches->items = arranged;
}

static bool can_unite(const struct candidate *a, const struct candidate *b)
{
    return a->index == b->index && a->fields == 1 && b->fields == 1 &&
           !truce__bytes_compare(a->path.bytes, a->path.size, b->path.bytes, b->path.size);
}

/* Branches that bound only the first field of an index become one, with the bounds of all of them. */
static void branches_unite(struct branches *branches)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < branches->count; i++) {
        struct candidate *first = branches->items[i];
        bool united = false;

        branches->items[kept++] = first;
        while (i + 1 < branches->count && can_unite(first, branches->items[i + 1])) {
            struct candidate *next = branches->items[++i];

            truce__bounds_add(&first->bounds[0], &next->bounds[0]);
            truce__candidate_release(next);
            bson_free(next);
            united = true;
        }
        if (!united)
            continue;
        truce__bounds_arrange(&first->bounds[0]);
        first->single = 0;
        first->complete = false;
    }
    branches->count = kept;
}

static bool plan_union(const struct plan_request *request, struct plan *plan)
{
    const struct match_node *root = truce__match_root(request->match), *any = find_or(root);
    struct conditions conditions = {0};
    struct branches branches = {0};
    bool served = true;

    if (!any)
        return false;
    branches.items = bson_malloc(any->children_count * sizeof *branches.items);
    truce__conditions_add(&conditions, root);
    for (uint32_t i = 0; i < any->children_count && served; i++)
        served = branches_add(&branches, request->collection, &conditions, any->children[i]);
    truce__conditions_release(&conditions);
    if (served) {
        branches_arrange(&branches, request->collection);
        branches_unite(&branches);
    }
    for (uint32_t i = 0; i < branches.count && served; i++) {
        plan_use(plan, branches.items[i], request->shows);
        branches.weight += plan->scans[plan->count - 1].count;
        served = branches.weight <= UNION_WEIGHT_MAX;
    }
    branches_release(&branches);
    if (!served)
        truce__plan_release(plan);
    else if (plan->count > 1)
        plan->repeats = true;
    return served;
}

/* ---- the choice ----------------------------------------------------------------------------- */

static void plan_rows(struct plan *plan, bool backward)
{
    add_scan(plan)->backward = backward;
}

/* Do the documents of the chosen scans come in the order that was asked for? */
static void settle_order(const struct plan_request *request, const struct sort *sort,
                         bool index_sorts, struct plan *plan)
{
    plan->sorted = !sort->count || index_sorts;
    if (request->backward && !sort->count && plan->count == 1 && plan->scans[0].index)
        plan->scans[0].backward = true;
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
