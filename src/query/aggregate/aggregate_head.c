/* What a store may do of a pipeline in its stead, and how it runs: for planners and explain. */
#include "query/aggregate/stage.h"

const bson_t *truce__pipeline_first_filter(const struct pipeline *pipeline)
{
    return pipeline->count ? truce__stage_filter(&pipeline->stages[0]) : NULL;
}

/* The stage tells a missing field from null, a find does not; `_id` is never missing. */
static bool sorts_as_find(const bson_t *sort)
{
    return bson_count_keys(sort) == 1 && bson_has_field(sort, "_id");
}

void truce__pipeline_head(const struct pipeline *pipeline, struct pipeline_head *head)
{
    uint32_t at = 0;

    *head = (struct pipeline_head){.filter = truce__pipeline_first_filter(pipeline)};
    if (head->filter)
        at++;
    if (at < pipeline->count && pipeline->stages[at].kind == &truce__sort_kind) {
        const bson_t *sort = ((const struct sort_stage *)pipeline->stages[at].data)->specification;

        head->sort = sort;
        head->same_sort = sorts_as_find(sort);
        if (!head->same_sort) {
            head->stages_taken = at;
            return;
        }
        at++;
    }
    if (at < pipeline->count && pipeline->stages[at].kind == &truce__limit_kind)
        head->limit = ((const struct count_stage *)pipeline->stages[at++].data)->count;
    head->stages_taken = at;
}

bool truce__pipeline_part(const struct pipeline *pipeline, uint32_t number,
                          struct pipeline_part *part)
{
    const struct stage *stage;

    if (number >= pipeline->count)
        return false;
    stage = &pipeline->stages[number];
    *part = (struct pipeline_part){
        .from = stage->from, .to = stage->to, .filter = truce__stage_filter(stage)};
    return true;
}
