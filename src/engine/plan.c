/* Plans: from a filter and a sort to ranges of an index (plan.h). */
#include "engine/plan.h"

#include "base/assert.h"
#include "query/catalog.h"
#include "query/number.h"

void truce__plan_release(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        for (uint32_t j = 0; j < plan->scans[i].count; j++) {
            truce__buffer_release(&plan->scans[i].ranges[j].from);
            truce__buffer_release(&plan->scans[i].ranges[j].to);
        }
        bson_free(plan->scans[i].ranges);
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
    plan->scans = bson_realloc(plan->scans, (plan->count + 1) * sizeof *plan->scans);
    plan->scans[plan->count] = (struct plan_scan){0};
    return &plan->scans[plan->count++];
}

static struct key_range *add_range(struct plan_scan *scan)
{
    scan->ranges = bson_realloc(scan->ranges, (scan->count + 1) * sizeof *scan->ranges);
    scan->ranges[scan->count] = (struct key_range){0};
    return &scan->ranges[scan->count++];
}

static void plan_rows(struct plan *plan, bool backward)
{
    add_scan(plan)->backward = backward;
}

/* ---- one value of _id ----------------------------------------------------------------------- */

struct id_search {
    struct value id;
};

static bool is_id(const struct path *path, struct value value, void *arg)
{
    struct id_search *search = arg;

    if (path->count != 1 || strcmp(path->text, "_id"))
        return true;
    search->id = value;
    return false;
}

static bool plan_id(const struct plan_request *request, struct plan *plan)
{
    struct id_search search = {0};
    struct plan_scan *scan;
    struct key_range *range;

    truce__match_equalities(request->match, is_id, &search);
    if (search.id.type == VALUE_MISSING || search.id.type == BSON_TYPE_ARRAY ||
        search.id.type == BSON_TYPE_NULL || search.id.type == BSON_TYPE_UNDEFINED)
        return false;
    scan = add_scan(plan);
    scan->index = request->collection->indexes[0].id;
    range = add_range(scan);
    truce__key_append(&range->from, search.id, false);
    truce__key_append(&range->to, search.id, false);
    truce__key_successor(&range->to);
    return true;
}

truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error)
{
    int natural = truce__plan_natural(request->sort);

    (void)error;
    *plan = (struct plan){0};
    if (natural || truce__plan_natural(request->hint)) {
        plan_rows(plan, (natural ? natural : truce__plan_natural(request->hint)) < 0);
        plan->sorted = natural;
        return TRUCE_OK;
    }
    if (!plan_id(request, plan))
        plan_rows(plan, false);
    plan->sorted = !request->sort || bson_empty(request->sort);
    return TRUCE_OK;
}
