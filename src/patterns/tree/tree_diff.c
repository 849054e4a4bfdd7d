/* What differs between two versions. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/deadline.h"
#include "base/field.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

#define PORTION 50 /* items looked at at once, of any size */

/* ---- the diff ---------------------------------------------------------------------------------- */

struct diffing {
    truce_tree_snapshot snapshot; /* of the older version */
    int64_t from, to;
    bool (*function)(const truce_tree_change *change, void *arg);
    void *arg;
    bool enough;
    uint32_t count;
    struct changed {
        bson_t id;
        bson_t *before, *after; /* as they are shown */
    } all[PORTION];
};

static void diff_forget(struct diffing *diffing)
{
    for (uint32_t i = 0; i < diffing->count; i++) {
        struct changed *changed = &diffing->all[i];

        bson_destroy(&changed->id);
        if (changed->before)
            bson_destroy(changed->before);
        if (changed->after)
            bson_destroy(changed->after);
    }
    diffing->count = 0;
}

static bson_t *diff_shown(const bson_t *document)
{
    bson_t *item = document ? bson_sized_new(document->len) : NULL;

    if (item)
        truce__tree_show(document, item);
    return item;
}

/* A tree_pair_function; low is `from`. */
static truce_status diff_compare(struct value id, const bson_t *low, const bson_t *high, void *arg,
                                 bson_error_t *error)
{
    struct diffing *diffing = arg;
    struct changed *changed = &diffing->all[diffing->count];

    (void)error;
    if (low && high && truce__tree_same(low, high))
        return TRUCE_OK;
    bson_init(&changed->id);
    truce__value_append(&changed->id, "itemId", 6, id);
    changed->before = diff_shown(low);
    changed->after = diff_shown(high);
    diffing->count++;
    return TRUCE_OK;
}

static void diff_hand(struct diffing *diffing)
{
    for (uint32_t i = 0; !diffing->enough && i < diffing->count; i++) {
        struct changed *changed = &diffing->all[i];
        bson_iter_t iter;

        if (bson_iter_init_find(&iter, &changed->id, "itemId"))
            diffing->enough =
                !diffing->function(&(truce_tree_change){.item = bson_iter_value(&iter),
                                                        .before = changed->before,
                                                        .after = changed->after},
                                   diffing->arg);
    }
}

static truce_status diff_portion(struct diffing *diffing, const struct value *ids, size_t count,
                                 bson_error_t *error)
{
    bson_t array = BSON_INITIALIZER;
    uint32_t index = 0;
    truce_status status;

    for (size_t i = 0; i < count; i++)
        truce__value_append_element(&array, &index, ids[i]);
    do {
        diff_forget(diffing);
        status = truce__tree_pairs(&diffing->snapshot, diffing->from, diffing->to, &array,
                                   diff_compare, diffing, error);
        if (!status)
            status = truce__tree_still(&diffing->snapshot, error);
    } while (status == TRUCE_CONFLICT);
    if (!status)
        diff_hand(diffing);
    diff_forget(diffing);
    bson_destroy(&array);
    return status;
}

static truce_status diff_all(struct diffing *diffing, int64_t low, int64_t high,
                             bson_error_t *error)
{
    struct tree_ids touched = {0};
    truce_status status;

    status = truce__tree_ids_between(diffing->snapshot.tree, low, high, &touched, error);
    for (size_t at = 0; !status && !diffing->enough && at < touched.count; at += PORTION)
        status = diff_portion(diffing, touched.all + at,
                              touched.count - at < PORTION ? touched.count - at : PORTION, error);
    truce__tree_ids_release(&touched);
    return status;
}

truce_status truce_tree_diff(truce_tree *tree, int64_t from, int64_t to,
                             bool (*function)(const truce_tree_change *change, void *arg),
                             void *arg, bson_error_t *error)
{
    if (!function)
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
    DEADLINE_SCOPE(tree->deadline_ms);
    int64_t low = from < to ? from : to, high = from < to ? to : from;
    struct diffing *diffing;
    truce_status status = truce__tree_ready(tree, false, error);

    if (status)
        return status;
    diffing = bson_malloc0(sizeof *diffing);
    diffing->from = from;
    diffing->to = to;
    diffing->function = function;
    diffing->arg = arg;
    status = truce__tree_open(tree, low, &diffing->snapshot, error);
    if (!status && high > diffing->snapshot.master.current)
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                             tree->name, high);
    if (!status)
        status = diff_all(diffing, low, high, error);
    truce__tree_leave(&diffing->snapshot);
    bson_free(diffing);
    return status;
}
