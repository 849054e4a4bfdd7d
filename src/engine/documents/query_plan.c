/*
 * Chooses a plan.
 *
 *     1. a hint names the index; min and max limit it to a part, in the order of its keys
 *     2. {$natural: ...} asks for all rows
 *     3. the index with the best score: one document by a unique key; else the most leading fields
 *        with a single value; else lists of values; else a range; else the order of the sort
 *     4. if no index is bounded by the conditions that must all hold, an $or with an index for
 *        every branch: the union of their scans
 *     5. all rows
 *
 * There are no statistics: the rules are the same for every size and depend on the filter alone.
 *
 * Without a sort, documents are returned in the order of the entries that the plan examines, as in
 * MongoDB:
 *
 *     one index    the order of its keys; equal keys in the order of insertion; a document with
 *                  several keys is returned at the first of them
 *     a union      one index after the other, in the order in which the indexes were created.
 *                  Branches that bound only the first field of the same index are one scan of it
 *     all rows     the order of insertion
 *
 * A limit therefore ends a scan early, and a write to one document takes the first one in this
 * order.
 */
#include "engine/documents/query_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bson/number.h"
#include "query/index/index_set.h"
#include "query/index/index_span.h"

/* The maximum number of ranges and bounds of all branches of an $or. With more, all rows are
 * examined. */
#define UNION_WEIGHT_MAX 1000000

static void conditions_add(struct conditions *conditions, const struct match_node *node);
static void conditions_cut(struct conditions *conditions, uint32_t count);
static void conditions_release(struct conditions *conditions);
static void candidate_make(const struct index *index, const struct conditions *conditions,
                           const struct sort *sort, bool forced, struct candidate *candidate);
static void candidate_release(struct candidate *candidate);
static bool candidate_scan(const struct candidate *candidate, struct plan_scan *scan);
static bson_t *candidate_bounds(const struct candidate *candidate);

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

/* Returns 1 or -1 for {$natural: 1 or -1}, otherwise 0. NULL is allowed. */
static int plan_natural(const bson_t *specification)
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

    /* The array is extended when its size is a power of two. */
    if (!(count & (count - 1)))
        plan->scans = bson_realloc(plan->scans, (count ? 2 * count : 1) * sizeof *plan->scans);
    plan->scans[plan->count] = (struct plan_scan){0};
    return &plan->scans[plan->count++];
}

/* ---- one index ------------------------------------------------------------------------------ */

/* Adds a scan of the candidate. Returns false if there are too many ranges for all bounds. */
static bool plan_use(struct plan *plan, const struct candidate *candidate, bool shows)
{
    struct plan_scan *scan = add_scan(plan);
    bool whole = candidate_scan(candidate, scan);

    if (shows)
        scan->bounds = candidate_bounds(candidate);
    /* If the scan has a single key, no row repeats. Otherwise a row repeats if an array gives it
     * several keys. In a wildcard index, several fields of a document do, too. */
    if (!candidate->complete)
        plan->repeats = plan->repeats || candidate->index->multikey_fields ||
                        candidate->index->spec.fields[0].wildcard;
    return whole;
}

/* Makes the candidate the only index of the plan. */
static void use_alone(const struct plan_request *request, const struct conditions *conditions,
                      const struct candidate *candidate, struct plan *plan)
{
    bool whole = plan_use(plan, candidate, request->shows);

    plan->covered = request->goal == PLAN_COUNT && whole &&
                    truce__plan_covers(candidate, conditions, truce__match_root(request->match));
}

/* Moves the better of the two into `best`. */
static void keep_better(struct candidate *best, struct candidate *other)
{
    bool better =
        other->score > best->score || (other->score && other->score == best->score &&
                                       other->index->spec.count < best->index->spec.count);

    if (!better) {
        candidate_release(other);
        return;
    }
    candidate_release(best);
    *best = *other;
}

/* Finds the index with the highest score among those that are ready and not hidden. The score of
 * `best`, which the caller releases, is 0 if no index can serve the query. */
static void find_best(const struct collection *collection, const struct conditions *conditions,
                      const struct sort *sort, struct candidate *best)
{
    *best = (struct candidate){0};
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        struct candidate *other;

        if (collection->indexes[i].state != INDEX_READY || collection->indexes[i].spec.hidden)
            continue;
        other = bson_malloc(sizeof *other);
        candidate_make(&collection->indexes[i], conditions, sort, false, other);
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

/* The branches of an $or, each with its index. */
struct branches {
    struct candidate **items;
    uint32_t count;
    /* The number of ranges and bounds so far. */
    uint64_t weight;
};

static void branches_release(struct branches *branches)
{
    for (uint32_t i = 0; i < branches->count; i++) {
        candidate_release(branches->items[i]);
        bson_free(branches->items[i]);
    }
    bson_free(branches->items);
}

/* Adds a branch together with the `conditions` outside of the $or, which do not change. */
static bool branches_add(struct branches *branches, const struct collection *collection,
                         struct conditions *conditions, const struct match_node *node)
{
    static const struct sort unsorted = {0};
    struct candidate *best = bson_malloc(sizeof *best);
    uint32_t outside = conditions->count;

    conditions_add(conditions, node);
    find_best(collection, conditions, &unsorted, best);
    conditions_cut(conditions, outside);
    branches->items[branches->count++] = best;
    for (uint32_t i = 0; i < best->fields; i++)
        branches->weight += best->bounds[i].count;
    return best->fields && branches->weight <= UNION_WEIGHT_MAX;
}

/* Sorts the branches by index. Branches of the same index keep their order. */
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

/* Unites branches that bound only the first field of an index, with the bounds of all of them. */
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
            candidate_release(next);
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

/* Plans a filter with an $or as a union of scans, one for each branch. Returns false, without a
 * plan, if a branch has no index or the union would be too large. */
static bool plan_union(const struct plan_request *request, struct plan *plan)
{
    const struct match_node *root = truce__match_root(request->match), *any = find_or(root);
    struct conditions conditions = {0};
    struct branches branches = {0};
    bool served = true;

    if (!any)
        return false;
    branches.items = bson_malloc(any->children_count * sizeof *branches.items);
    conditions_add(&conditions, root);
    for (uint32_t i = 0; i < any->children_count && served; i++)
        served = branches_add(&branches, request->collection, &conditions, any->children[i]);
    conditions_release(&conditions);
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

/* Determines whether the documents of the chosen scans come in the requested order. Without a sort,
 * reverses a single index if the request is backward. */
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
        return truce__refuse(
            CODE_BAD_VALUE, error,
            "index \"%s\" of the hint is being built: try again later, or without a hint",
            collection->indexes[number].spec.name);
    *index = &collection->indexes[number];
    return TRUCE_OK;
}

/* Returns the bounds of the span as MongoDB's explain shows them. */
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

/* Plans a scan of the span that min and max give. Documents that are equal for a sort keep the
 * order of the index, so the index is not walked backward. */
static truce_status plan_span(const struct plan_request *request, const struct sort *sort,
                              const struct index *index, struct plan *plan, bson_error_t *error)
{
    static const struct conditions none;
    struct candidate *candidate = bson_malloc(sizeof *candidate);
    struct plan_scan *scan = add_scan(plan);
    struct index_span span;
    truce_status status =
        truce__index_span_make(&index->spec, request->min, request->max, &span, error);

    candidate_make(index, &none, sort, true, candidate);
    *scan = (struct plan_scan){.index = index->id, .count = 1};
    scan->ranges = bson_malloc(sizeof *scan->ranges);
    scan->ranges[0] = (struct key_range){span.from, span.to};
    if (request->shows)
        scan->bounds = span_bounds(request);
    plan->repeats = index->multikey_fields;
    plan->sorted = !sort->count || (candidate->sorted && !candidate->backward);
    candidate_release(candidate);
    bson_free(candidate);
    return status;
}

/* Plans with the index that the hint names, if it names one. Ignores a wildcard index that does not
 * contain all documents that match. */
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
    candidate_make(index, conditions, sort, !wildcard, candidate);
    /* A wildcard index that cannot serve the filter does not contain all documents, so the hint is
     * ignored. */
    if (candidate->fields || !wildcard) {
        use_alone(request, conditions, candidate, plan);
        settle_order(request, sort, candidate->sorted, plan);
    }
    candidate_release(candidate);
    bson_free(candidate);
    return TRUCE_OK;
}

/* Chooses the best plan: one index, a union of indexes for an $or, or all rows. */
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
    candidate_release(best);
    bson_free(best);
}

/* Makes the plan: that of the hint, or the best one. A plan without scans matches nothing. */
static truce_status plan_make(const struct plan_request *request, const struct sort *sort,
                              struct plan *plan, bson_error_t *error)
{
    const struct match_node *root = truce__match_root(request->match);
    struct conditions conditions = {0};
    truce_status status = TRUCE_OK;

    conditions_add(&conditions, root);
    if (request->hint && !bson_empty(request->hint))
        status = plan_hint(request, sort, &conditions, plan, error);
    if (!status && !plan->count && root->kind != MATCH_FALSE)
        plan_choose(request, sort, &conditions, plan);
    else if (!status && !plan->count)
        /* No document can match, so every order is the requested one. */
        plan->sorted = true;
    conditions_release(&conditions);
    return status;
}

truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error)
{
    int natural = plan_natural(request->sort);
    struct sort sort = {0};
    truce_status status = TRUCE_OK;

    *plan = (struct plan){0};
    if (!natural && request->sort && !bson_empty(request->sort))
        status = truce__sort_parse(request->sort, &sort, error);
    if (status)
        return status;
    if (natural || plan_natural(request->hint)) {
        plan_rows(plan, (natural ? natural : plan_natural(request->hint)) < 0);
        plan->sorted = natural || !sort.count;
    } else {
        status = plan_make(request, &sort, plan, error);
    }
    truce__sort_release(&sort);
    return status;
}

/* ---- serving a query by an index ------------------------------------------------------------ */

/*
 * How one index serves a query.
 *
 * The conditions of a filter give bounds for the fields of an index, from its first field on:
 *
 *     index {a: 1, b: -1, c: 1}    filter {a: {$in: [1, 2]}, b: {$gt: 5}}
 *
 *     a: [1] [2]   b: (5 ... numbers), inverted   c: no bounds
 *     ranges: 1 then b > 5;  2 then b > 5
 *
 * A field after one that is not bounded by points alone gets no bounds: its values are spread over
 * the whole range.
 *
 * Arrays. If the path of a field passed through an array in some document, a document has a key for
 * each element. Different elements may then meet two conditions on the field. Therefore only the
 * bounds of one condition are used. Different elements may also meet conditions on two fields
 * within the same array (a.b and a.c). Only the first field is bounded, unless one $elemMatch
 * contains both conditions. Fields of different arrays never meet in one document, because indexes
 * refuse parallel arrays.
 *
 * Sparse and partial indexes do not contain all documents. A sparse index is used if some condition
 * on one of its fields requires the field. A partial index is used if each part of its filter
 * follows from a condition of the query: it is the same, or narrower. A wildcard index has keys
 * (path, value) of the leaves of documents. It serves one condition that requires the field, on a
 * path without numbers, whose bounds do not concern documents or arrays as a whole.
 *
 * The order of an index is the order of a sort under three conditions. The fields of the sort
 * follow fields that are one point each. They are all in the direction of the index or all against
 * it. No field of the sort passes through an array.
 */

/* The score of an index has these parts. An index that finds at most one document has the highest
 * score. */
#define SCORE_ONE_DOCUMENT 1000000
/* The score of each leading field that is one point. */
#define SCORE_SINGLE 1000
/* The score of any other field of points. */
#define SCORE_POINTS 400
/* The score of a field with a range. */
#define SCORE_RANGE 200
/* The additional score of an index that returns the documents in the order of the sort. */
#define SCORE_SORTED 100
/* The additional score of a sparse or partial index, which has fewer entries than documents. */
#define SCORE_SMALL 10

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

/* Returns whether the bounds of a condition hold for an index whose path contains a number. The
 * number names an element of an array or a field of its elements, and the index has the key of that
 * element. A missing field in another element has no key. */
static bool keeps_to_numbers(const struct match_node *node, const struct bounds *bounds)
{
    return !bounds->missing && node->kind != MATCH_ELEM_VALUE && node->kind != MATCH_NOT;
}

static void condition_drop_bounds(struct condition *condition)
{
    truce__bounds_release(&condition->bounds);
    condition->bounds.missing = true;
    condition->bounded = false;
}

/* Adds a condition on a path, with its bounds. Drops bounds that do not hold for paths with
 * numbers. */
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
        condition_drop_bounds(made);
}

/* Collects the conditions on paths that must hold, with the prefix of the path of the surrounding
 * $elemMatch. */
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

static void conditions_add(struct conditions *conditions, const struct match_node *node)
{
    add_node(conditions, node, "", NULL);
}

/* Drops all conditions but the first `count`. */
static void conditions_cut(struct conditions *conditions, uint32_t count)
{
    while (conditions->count > count) {
        struct condition *last = &conditions->items[--conditions->count];

        bson_free(last->path);
        truce__bounds_release(&last->bounds);
    }
}

static void conditions_release(struct conditions *conditions)
{
    conditions_cut(conditions, 0);
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

/* Returns whether `part` of an index's filter follows from the condition. */
static bool condition_implies(const struct condition *condition, const struct condition *part)
{
    if (strcmp(condition->path, part->path))
        return false;
    if (same_node(condition->node, part->node))
        return true;
    if (part->node->kind == MATCH_EXISTS)
        return !condition->bounds.missing;
    return truce__plan_is_exact(part->node) && condition->bounded && !condition->bounds.missing &&
           truce__bounds_within(&condition->bounds, &part->bounds);
}

static bool part_follows(const struct conditions *conditions, const struct condition *part)
{
    for (uint32_t i = 0; i < conditions->count; i++) {
        if (condition_implies(&conditions->items[i], part))
            return true;
    }
    return false;
}

/* Returns whether the filter consists of conditions on paths, all of which must hold. Only such
 * filters can be analyzed. */
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

/* Returns whether a partial index contains all documents that match: each part of its filter must
 * follow from a condition of the query. */
static bool serves_partial(const struct index *index, const struct conditions *conditions)
{
    const struct match_node *root = truce__match_root(index->spec.partial);
    struct conditions parts = {0};
    bool follows = is_simple(root);

    if (!follows)
        return false;
    conditions_add(&parts, root);
    for (uint32_t i = 0; i < parts.count && follows; i++)
        follows = part_follows(conditions, &parts.items[i]);
    conditions_release(&parts);
    return follows;
}

static bool holds_all(const struct index *index, const struct conditions *conditions)
{
    if (index->spec.sparse && !serves_sparse(index, conditions))
        return false;
    return !index->spec.partial || serves_partial(index, conditions);
}

/* ---- bounds of fields ----------------------------------------------------------------------- */

/* Copies bounds, with the bytes of their intervals. */
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

/* Returns whether `a` is the better choice: points before ranges, and few before many. */
static bool is_tighter(const struct bounds *a, const struct bounds *b)
{
    bool points = truce__bounds_all_points(a);

    if (points != truce__bounds_all_points(b))
        return points;
    return a->count < b->count;
}

/* Finds the tightest bounds for a path. If `within` is not NULL, only conditions on that element
 * count. Returns in `*element` the element of the condition, if the field passes through an
 * array. */
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

/* Returns the first bounded field in the same array, or -1. */
static int shares_array(const struct index *index, uint32_t field)
{
    for (uint32_t i = 0; i < field; i++) {
        if (goes_through_array(index, i) && goes_through_array(index, field) &&
            same_start(&index->spec.fields[i].path, &index->spec.fields[field].path))
            return (int)i;
    }
    return -1;
}

/* Finds bounds for the fields of the index, from the first one until a field without bounds or with
 * a range. */
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

/* Returns whether the index gives the order of the sort, comparing field by field. Fields that are
 * one point fit every order. */
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

/* Returns whether the condition compares with values that are neither documents nor arrays, which a
 * wildcard index stores. */
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

/* Finds the tightest condition that a wildcard index can serve, and takes its path and bounds. */
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

/* Returns whether the filter requires {$exists: true} for the only field of a sparse index, which
 * contains exactly the documents with the field. */
static bool reports_existence(const struct index *index, const struct conditions *conditions)
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

/* Returns the score of a candidate. The candidate with the highest score is used. */
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
        reports_existence(index, conditions))
        score += SCORE_SMALL;
    return score;
}

/* Computes how an index serves the query. The score is 0 if the index may lack documents that
 * match. With `forced`, because a hint names the index, this is not required. */
static void candidate_make(const struct index *index, const struct conditions *conditions,
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

static void candidate_release(struct candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->fields; i++)
        truce__bounds_release(&candidate->bounds[i]);
    truce__buffer_release(&candidate->path);
    *candidate = (struct candidate){0};
}

/* ---- ranges --------------------------------------------------------------------------------- */

/*
 * The ranges of an index that a plan examines: the combined bounds of its fields, as keys for a
 * scan, and as strings for explain.
 *
 *     a: [1] [2]    b: (5 ... numbers)
 *     keys after (1, 5) up to (1, strings), and after (2, 5) up to (2, strings)
 *     {a: ["[1, 1]", "[2, 2]"], b: ["(5, inf.0]"]}
 */

/* The maximum number of ranges of one scan. The intervals of several bounded fields multiply. */
#define RANGES_MAX 1000
/* The maximum size in bytes of the bounds that explain shows. */
#define SHOWN_MAX (1 << 20)

/* ---- bounds as keys ------------------------------------------------------------------------- */

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

/* Extends every range so far, which is a prefix, by every interval of the next field. */
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
    struct bounds reversed;

    if (!descending) {
        ranges_multiply(scan, bounds);
        return;
    }
    truce__bounds_invert(bounds, &reversed);
    ranges_multiply(scan, &reversed);
    truce__bounds_release(&reversed);
}

/* Fills `scan` with the ranges of the candidate. Returns false if there would be too many. The last
 * fields then have no bounds. */
static bool candidate_scan(const struct candidate *candidate, struct plan_scan *scan)
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

/* ---- bounds as strings ---------------------------------------------------------------------- */

/* How MongoDB writes the ends of types. */
static const struct {
    uint8_t type;
    const char *low, *high;
    /* Whether the end of the type is the first value of the next type, which is excluded. */
    bool open;
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

/* Appends an end of a type. Returns false if this end is always excluded. */
static bool append_type(struct buffer *text, uint8_t type, bool high)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type != type)
            continue;
        truce__buffer_append_text(text, high ? types[i].high : types[i].low);
        return !high || !types[i].open;
    }
    /* The end of the numbers. */
    truce__buffer_append_text(text, high ? "inf.0" : "-inf.0");
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

/* Appends a bound as MongoDB's explain shows it. */
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

/* Appends a string in quotes. With `behind`, this is the first string after all strings with that
 * prefix. */
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

/* Appends an end of an interval. Returns whether it is included. */
static bool ranges_append_end(struct buffer *text, const struct interval_end *end, bool high)
{
    switch (end->kind) {
    case END_VALUE:
        ranges_append_value(text, end->value);
        break;
    case END_TYPE:
        return append_type(text, end->value.type, high);
    default:
        append_quoted(text, end->value, end->kind == END_AFTER_TEXT);
        break;
    }
    return end->included;
}

/* Appends an interval as MongoDB's explain shows it, such as ["a", "b"). `reversed` exchanges its
 * ends for a descending field. */
static void append_interval(struct buffer *text, const struct interval *interval, bool reversed)
{
    const struct interval_end *first = reversed ? &interval->high : &interval->low,
                              *last = reversed ? &interval->low : &interval->high;
    bool included;

    text->size = 0;
    truce__buffer_append_byte(text, '[');
    included = ranges_append_end(text, first, reversed);
    if (!included)
        text->bytes[0] = '(';
    truce__buffer_append_text(text, ", ");
    included = ranges_append_end(text, last, !reversed);
    truce__buffer_append(text, included ? "]" : ")", 2);
}

/* Appends the intervals of a field as an array of strings, up to SHOWN_MAX bytes. */
static void ranges_append_bounds(bson_t *shown, const char *name, const struct bounds *bounds,
                                 bool reversed)
{
    struct buffer text = {0};
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, name, &list);
    for (uint32_t i = 0; i < bounds->count; i++) {
        char number[16];
        const char *key;

        bson_uint32_to_string(i, &key, number, sizeof number);
        append_interval(&text, &bounds->intervals[reversed ? bounds->count - 1 - i : i], reversed);
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

static void ranges_append_all(bson_t *shown, const char *name, bool reversed)
{
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, name, &list);
    BSON_APPEND_UTF8(&list, "0", reversed ? "[MaxKey, MinKey]" : "[MinKey, MaxKey]");
    bson_append_array_end(shown, &list);
}

/* Appends the interval of a wildcard index's field `$_path`, which is one point. */
static void append_path(bson_t *shown, const char *path)
{
    char *text = bson_strdup_printf("[\"%s\", \"%s\"]", path, path);
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(shown, "$_path", &list);
    BSON_APPEND_UTF8(&list, "0", text);
    bson_append_array_end(shown, &list);
    bson_free(text);
}

/* Returns {field: ["[1, 5)", ...]} for explain, in the order of the scan. The caller destroys
 * it. */
static bson_t *candidate_bounds(const struct candidate *candidate)
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
        bool reversed = spec->fields[i].descending != candidate->backward;

        if (i < candidate->fields && ranges <= RANGES_MAX)
            ranges *= candidate->bounds[i].count;
        if (i < candidate->fields && ranges <= RANGES_MAX)
            ranges_append_bounds(shown, spec->fields[i].path.text, &candidate->bounds[i], reversed);
        else
            ranges_append_all(shown, spec->fields[i].path.text, reversed);
    }
    return shown;
}
