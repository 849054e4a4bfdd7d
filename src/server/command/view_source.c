/*
 * What is read where a view is named.
 *
 *     grown on adults on people      people, [stages of adults, stages of grown, stages of who asks]
 *     $lookup from adults            the stage stays as it is; the store is told what the name stands for (store/alias.h)
 *
 * Invariants:
 *  1. Who may find in a view may read what it shows, and needs no role for what it rests on: whoever made the view had it
 *     (serve_view.c). The users' own records are shown by no view.
 *  2. Views rest on each other at most TRUCE_VIEW_DEPTH_MAX deep, through `viewOn` and through their stages; so what others
 *     than a server have written, a circle too, ends with an error.
 *  3. A filter of who asks stands behind the view's stages, and runs in front of those that keep its fields
 *     (query/aggregate/aggregate_match.c): then indexes serve it as they serve a filter of the collection.
 */
#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "server/command/groups.h"
#include "store/alias.h"

/* ---- what a view is no collection for ------------------------------------------------------- */

truce_status view_refuse_system(const char *database, const char *name, bson_error_t *error)
{
    return !truce__place_is_system(name) || !strcmp(name, "system.js")
               ? TRUCE_OK
               : truce__refuse(CODE_INVALID_NAMESPACE, error, "cannot write to '%s.%.120s'",
                               database, name);
}

truce_status view_refuse(struct call *call, const char *database, const char *name, bool changes,
                         bson_error_t *error)
{
    const struct view *view;
    truce_status status = changes ? view_refuse_system(database, name, error) : TRUCE_OK;

    if (status)
        return status;
    status = views_find(call->server->views, database, name, &call->arena, &view, error);
    return status || !view
               ? status
               : truce__refuse(CODE_COMMAND_NOT_SUPPORTED_ON_VIEW, error,
                               "Namespace %s.%.120s is a view, not a collection", database, name);
}

static bool source_is_one_of(const struct command *command,
                             truce_status (*const *runs)(struct call *, bson_t *, bson_error_t *))
{
    while (*runs && *runs != command->run)
        runs++;
    return *runs != NULL;
}

/* They read views. */
static truce_status (*const read_views[])(struct call *, bson_t *, bson_error_t *) = {
    serve_find, serve_count, serve_distinct, serve_aggregate, NULL};

/* {explain: {update: "adults", ...}}: nothing is told of each statement. */
static truce_status guard_explained(struct call *call, bson_error_t *error)
{
    const struct command *command = NULL;
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_DOCUMENT(&call->value) && bson_iter_recurse(&call->value, &inner) &&
        bson_iter_next(&inner))
        command = server_command(bson_iter_key(&inner));
    return !command || source_is_one_of(command, read_views) || !BSON_ITER_HOLDS_UTF8(&inner)
               ? TRUCE_OK
               : view_refuse(call, call->database, bson_iter_utf8(&inner, NULL), true, error);
}

truce_status view_guard(struct call *call, bson_error_t *error)
{
    /* they make views, or tell of each statement that it cannot be */
    static truce_status (*const know[])(struct call *, bson_t *, bson_error_t *) = {
        serve_insert, serve_update, serve_delete, serve_create, serve_modify_collection,
        serve_drop,   NULL};
    /* they change nothing that stands in a collection */
    static truce_status (*const keep[])(struct call *, bson_t *,
                                        bson_error_t *) = {serve_validate, serve_compact, NULL};
    const uint32_t reads = ACTION_FIND | ACTION_STATS | ACTION_LIST;
    const struct need *need = &call->command->need;

    if (need->kind == NEED_INNER)
        return guard_explained(call, error);
    if (need->kind != NEED_COLLECTION || !BSON_ITER_HOLDS_UTF8(&call->value) ||
        source_is_one_of(call->command, read_views) || source_is_one_of(call->command, know))
        return TRUCE_OK;
    return view_refuse(call, call->database, bson_iter_utf8(&call->value, NULL),
                       need->actions & ~reads && !source_is_one_of(call->command, keep), error);
}

/* ---- stages --------------------------------------------------------------------------------- */

static const bson_t *source_keep(struct call *call, const bson_t *array)
{
    return call_view(call, truce__arena_copy(&call->arena, bson_get_data(array), array->len),
                     array->len);
}

const bson_t *view_with(struct call *call, const bson_t *of_view, const bson_t *stages)
{
    const bson_t *const both[] = {of_view, stages};
    bson_t array = BSON_INITIALIZER;
    const bson_t *kept;
    uint32_t count = 0;

    for (int i = 0; i < 2; i++) {
        struct fields fields = truce__fields(truce__value_document(both[i]));

        while (truce__fields_next(&fields))
            truce__value_append_element(&array, &count, fields.value);
    }
    kept = source_keep(call, &array);
    bson_destroy(&array);
    return kept;
}

/* ---- from the view down to the collection --------------------------------------------------- */

/* In a view's own stages, of which so many views are around. */
struct inside {
    struct call *call;
    uint32_t depth;
};

static truce_status source_join(struct call *call, const char *database, const char *name,
                                uint32_t depth, bson_error_t *error);

static truce_status check_shown(struct call *call, const char *database, const char *name,
                                bson_error_t *error)
{
    return strcmp(database, "admin") || strcmp(name, "system.users")
               ? TRUCE_OK
               : access_refuse(call, database, error);
}

static truce_status allow_inside(void *arg, const char *database, const char *collection,
                                 bool writes, bson_error_t *error)
{
    const struct inside *inside = arg;
    truce_status status = check_shown(inside->call, database, collection, error);

    if (!status && writes)
        status = truce__refuse(CODE_OPTION_NOT_SUPPORTED_ON_VIEW, error,
                               "a view is defined by a stage that writes to %s.%.120s", database,
                               collection);
    return status ? status : source_join(inside->call, database, collection, inside->depth, error);
}

/* The stages of one view in front of those of the views on it. */
static truce_status put_before(struct call *call, const char *database, const struct view *view,
                               uint32_t depth, struct view_source *source, bson_error_t *error)
{
    struct inside inside = {call, depth};
    const struct place_guard guard = {allow_inside, &inside};
    truce_status status = TRUCE_OK;
    bson_t placed;

    if (depth > TRUCE_VIEW_DEPTH_MAX)
        return truce__refuse(CODE_VIEW_DEPTH_LIMIT_EXCEEDED, error,
                             "View depth limit exceeded; maximum depth is %d",
                             TRUCE_VIEW_DEPTH_MAX);
    if (!view->on)
        return truce__refuse(CODE_INVALID_VIEW_DEFINITION, error,
                             "Invalid view definition of '%s.%.120s': it needs viewOn and pipeline",
                             database, view->name);
    status = check_shown(call, database, view->on, error);
    if (status)
        return status;
    status = truce__place_pipeline(call->server->database, database, view->pipeline, &guard,
                                   &placed, error);
    if (!status) {
        source->given = view_with(call, view->pipeline, source->given);
        source->stages = view_with(call, &placed, source->stages);
        source->name = view->on;
    }
    bson_destroy(&placed);
    return status;
}

static truce_status source_resolve(struct call *call, const char *database, const char *name,
                                   uint32_t depth, struct view_source *source, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    const struct view *view = NULL;
    char place[PLACE_MAX];
    truce_status status;

    *source = (struct view_source){.name = name, .given = &none, .stages = &none};
    do {
        status =
            views_find(call->server->views, database, source->name, &call->arena, &view, error);
        if (!status && view) {
            source->is_view = true;
            status = put_before(call, database, view, ++depth, source, error);
        }
    } while (!status && view);
    if (status || !source->is_view)
        return status;
    status = truce__place_of(call->server->database, database, source->name, place, error);
    source->place = truce__arena_copy(&call->arena, place, sizeof place);
    return status;
}

static truce_status source_join(struct call *call, const char *database, const char *name,
                                uint32_t depth, bson_error_t *error)
{
    struct view_source source;
    char place[PLACE_MAX];
    truce_status status = truce__place_of(call->server->database, database, name, place, error);

    if (status || truce__aliases_find(call->aliases, place))
        return status;
    status = source_resolve(call, database, name, depth, &source, error);
    if (status || !source.is_view)
        return status;
    if (!call->aliases)
        call->aliases = truce__aliases_new();
    truce__aliases_add(call->aliases, place, source.place, source.stages);
    (void)truce__aliases_use(call->aliases);
    return TRUCE_OK;
}

truce_status view_source(struct call *call, const char *database, const char *name,
                         struct view_source *source, bson_error_t *error)
{
    return source_resolve(call, database, name, 0, source, error);
}

truce_status view_join(struct call *call, const char *database, const char *name,
                       bson_error_t *error)
{
    return source_join(call, database, name, 0, error);
}
