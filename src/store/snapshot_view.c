/*
 * Opening views, and calls that views refuse.
 *
 * A backend implements a view as a store of its own, with the reading functions of its table and
 * TRUCE_IS_VIEW. The wrappers refuse every call that would write, so a backend's writing functions
 * never get a view.
 *
 * One call that writes may succeed: ensuring an index that exists. Patterns do so when they are
 * opened, and they can be opened on a view.
 */
#include "store/snapshot_view.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "query/index/index.h"
#include "query/index/index_set.h"
#include "store/store.h"

truce_status truce__store_snapshot(truce_store *store, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error)
{
    static const truce_snapshot_options defaults;
    bson_error_t caught = {0};
    truce_status status = ROOM_CHECK(options, "truce_snapshot_options", error);

    *view = NULL;
    if (!status)
        status = truce__store_not_inherited(store, error);
    if (status)
        return status;
    if (!store->ops->snapshot)
        return truce__fail(TRUCE_INVALID, error,
                           "a store of the kind \"%s\" cannot take a snapshot", store->ops->scheme);
    status = store->ops->snapshot(store, options ? options : &defaults, view, &caught);
    truce_assert(!status == (*view != NULL));
    truce_assert(status || truce__is_view(*view));
    if (!status) {
        (*view)->above = store->above ? store->above : &store->interrupted;
        (*view)->opened_after = store->opened_after;
    }
    return truce__pass_error(status, &caught, error);
}

truce_status truce_snapshot_inspect(truce_store *view, truce_snapshot_state *state,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(state, error);

    truce_status status;

    *state = (truce_snapshot_state){0};
    if (!truce__is_view(view))
        return truce__fail(TRUCE_INVALID, error,
                           "the store is not a snapshot: expected a result of truce_snapshot");
    status = truce__store_not_inherited(view, error);
    if (!status && view->ops->snapshot_state)
        view->ops->snapshot_state(view, state);
    return status;
}

/* ---- refused calls --------------------------------------------------------------------------- */

truce_status truce__view_guard(const truce_store *store, const char *what, const char *collection,
                               bson_error_t *error)
{
    if (!truce__is_view(store))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "cannot %s %s: the store is a snapshot, which is read-only", what,
                       collection);
}

static struct value stages_of(const bson_t *pipeline)
{
    return (struct value){bson_get_data(pipeline), pipeline->len, BSON_TYPE_ARRAY};
}

/* Returns the operator of a stage, or "". */
static const char *operator_of(struct value stage, struct value *argument)
{
    struct fields fields;

    *argument = truce__value_missing();
    if (stage.type != BSON_TYPE_DOCUMENT)
        return "";
    fields = truce__fields(stage);
    if (!truce__fields_next(&fields))
        return "";
    *argument = fields.value;
    return fields.key;
}

truce_status truce__view_guard_pipeline(const truce_store *store, const bson_t *pipeline,
                                        const char *collection, bson_error_t *error)
{
    struct fields fields = truce__fields(stages_of(pipeline));
    struct value argument;

    while (truce__is_view(store) && truce__fields_next(&fields)) {
        const char *name = operator_of(fields.value, &argument);

        if (!strcmp(name, "$out") || !strcmp(name, "$merge"))
            return truce__view_guard(store, "write what is aggregated from", collection, error);
    }
    return TRUCE_OK;
}

/* ---- existing indexes ------------------------------------------------------------------------ */

struct known {
    struct index_spec specs[TRUCE_INDEXES_MAX];
    const struct index_spec *list[TRUCE_INDEXES_MAX];
    uint32_t count;
};

/* Parses a list of indexes. The caller releases known->count specifications, also on failure. */
static truce_status view_parse_indexes(const bson_t *indexes, struct known *known,
                                       bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(indexes));
    truce_status status = TRUCE_OK;
    bson_t definition;

    while (!status && known->count < TRUCE_INDEXES_MAX && truce__fields_next(&fields)) {
        truce__value_bson(fields.value, &definition);
        status = truce__index_spec_parse(&definition, &known->specs[known->count], error);
        known->list[known->count] = &known->specs[known->count];
        known->count += !status;
    }
    return status;
}

truce_status truce__index_is_among(const bson_t *indexes, const bson_t *index, bool *there,
                                   bson_error_t *error)
{
    struct known *known = bson_malloc0(sizeof *known);
    struct index_spec wanted = {0};
    truce_status status = truce__index_spec_parse(index, &wanted, error);
    bool parsed = !status;

    if (!status)
        status = view_parse_indexes(indexes, known, error);
    if (!status)
        status = truce__index_admit(known->list, known->count, &wanted, there, error);
    for (uint32_t i = 0; i < known->count; i++)
        truce__index_spec_release(&known->specs[i]);
    if (parsed)
        truce__index_spec_release(&wanted);
    bson_free(known);
    return status;
}

bool truce__index_is_known(const bson_t *indexes, const bson_t *index)
{
    struct known *known = bson_malloc0(sizeof *known);
    struct index_spec wanted = {0};
    bool parsed = !truce__index_spec_parse(index, &wanted, NULL), kept = false;

    if (parsed && !view_parse_indexes(indexes, known, NULL))
        for (uint32_t i = 0; i < known->count && !kept; i++)
            kept = !strcmp(wanted.name, known->specs[i].name) &&
                   truce__index_is_same(&wanted, &known->specs[i]);
    for (uint32_t i = 0; i < known->count; i++)
        truce__index_spec_release(&known->specs[i]);
    if (parsed)
        truce__index_spec_release(&wanted);
    bson_free(known);
    return kept;
}

truce_status truce__index_of_hint(const bson_t *indexes, const bson_t *hint,
                                  struct index_spec *spec, bson_error_t *error)
{
    struct known *known = bson_malloc0(sizeof *known);
    int64_t number = -1;
    truce_status status = view_parse_indexes(indexes, known, error);

    *spec = (struct index_spec){.expire_after_s = -1};
    if (!status)
        status = truce__index_hint(known->list, known->count, hint, &number, error);
    if (!status && number >= 0)
        status = truce__index_spec_copy(known->list[number], spec, error);
    for (uint32_t i = 0; i < known->count; i++)
        truce__index_spec_release(&known->specs[i]);
    bson_free(known);
    return status;
}

truce_status truce__view_index(truce_store *store, const char *collection, const bson_t *index,
                               bson_error_t *error)
{
    bool there = false;
    bson_t indexes;
    truce_status status = truce_index_list(store, collection, &indexes, error);

    if (!status)
        status = truce__index_is_among(&indexes, index, &there, error);
    bson_destroy(&indexes);
    if ((!status && !there) || status == TRUCE_NOT_FOUND)
        return truce__view_guard(store, "create an index of", collection, error);
    return status;
}

/* ---- pipelines ------------------------------------------------------------------------------ */

/* Returns whether a stage reads other collections, also within $facet. */
static bool view_joins(struct value stages)
{
    struct fields fields, facets;
    struct value argument;
    bool found = false;

    if (stages.type != BSON_TYPE_ARRAY)
        return false;
    for (fields = truce__fields(stages); !found && truce__fields_next(&fields);) {
        const char *name = operator_of(fields.value, &argument);

        found = !strcmp(name, "$lookup") || !strcmp(name, "$unionWith") ||
                !strcmp(name, "$graphLookup");
        if (strcmp(name, "$facet") || argument.type != BSON_TYPE_DOCUMENT)
            continue;
        for (facets = truce__fields(argument); !found && truce__fields_next(&facets);)
            found = view_joins(facets.value);
    }
    return found;
}

truce_status truce__view_for_pipeline(truce_store *store, const bson_t *pipeline,
                                      truce_store **view, bson_error_t *error)
{
    static const truce_snapshot_options defaults;

    *view = NULL;
    if (truce__is_view(store) || !view_joins(stages_of(pipeline)))
        return TRUCE_OK;
    return store->ops->snapshot(store, &defaults, view, error);
}
