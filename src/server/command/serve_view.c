/*
 * Creates, changes, and drops views: documents of system.views (view_cache.h).
 *
 * Invariants:
 *  1. A stored definition was made from a pipeline that compiles, writes nothing, and reads a
 *     collection.
 *  2. No view depends on itself, and none on more than TRUCE_VIEW_DEPTH_MAX others, through
 *     `viewOn` and through stages, within a database.
 *  3. A user who creates a view and may read in its database may read everything that the view
 *     shows. So users gain no access by their own views. A user who may not read there may create
 *     one, but cannot read it.
 *  4. A name belongs to a collection or to a view.
 *
 * 2 and 4 hold under concurrency, also with several servers of a file. The step that writes a
 * definition reads all other definitions of the database and the catalog (truce_read_checks). The
 * step that creates a collection reads the definitions (engine/documents/collections.h). A
 * store in memory has no such steps, so both a view and a collection of a name can be created.
 * Then the name is the view's until it is dropped. Reading a view that depends on itself fails
 * (view_cache.c).
 */
#include <string.h>

#include "base/limits.h"
#include "bson/value.h"
#include "query/aggregate/aggregate.h"
#include "query/input_check.h"
#include "server/command/handlers.h"
#include "store/overlay/transaction_overlay.h"

/* ---- definition ------------------------------------------------------------------------------ */

static const bson_t no_stages = BSON_INITIALIZER;

/* Returns the name of a stage, or "" if the stage has no field. */
static const char *stage_name(const bson_iter_t *stage, bson_iter_t *field)
{
    return BSON_ITER_HOLDS_DOCUMENT(stage) && bson_iter_recurse(stage, field) &&
                   bson_iter_next(field)
               ? bson_iter_key(field)
               : "";
}

/* Refuses a stage that a view cannot have: one that writes, or that reads no collection. */
static truce_status check_stage(struct call *call, const char *name, const char *view, int at,
                                bson_error_t *error)
{
    static const char *const of_none[] = {"$documents", "$currentOp", "$listLocalSessions"};

    if (!strcmp(name, "$out") || !strcmp(name, "$merge"))
        return truce__refuse(CODE_OPTION_NOT_SUPPORTED_ON_VIEW, error,
                             "The aggregation stage %s in location %d of the pipeline cannot be "
                             "used in the view definition of %s because it writes to disk",
                             name, at, call_namespace(call, view));
    if (!strcmp(name, "$changeStream"))
        return truce__refuse(CODE_OPTION_NOT_SUPPORTED_ON_VIEW, error,
                             "$changeStream cannot be used in a view definition");
    for (size_t i = 0; i < sizeof of_none / sizeof *of_none; i++)
        if (!strcmp(name, of_none[i]))
            return truce__refuse(CODE_INVALID_NAMESPACE, error,
                                 "'%s' cannot be used in a view definition", name);
    return TRUCE_OK;
}

static truce_status view_check_stages(struct call *call, const char *view, const bson_t *pipeline,
                                      bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at, field;
    int number = 0;

    if (bson_iter_init(&at, pipeline))
        while (!status && bson_iter_next(&at))
            status = check_stage(call, stage_name(&at, &field), view, number++, error);
    return status;
}

/* Checks a name for a view or for its source. */
static truce_status view_check_name(struct call *call, const char *name, const char *what,
                                    bson_error_t *error)
{
    char stored_name[STORED_NAME_MAX];
    truce_status status = TRUCE_OK;

    if (truce__name_is_system(name))
        return truce__refuse(CODE_INVALID_NAMESPACE, error, "Cannot create a view %s '%s.%.120s'",
                             what, call->database, name);
    status = call_stored_name_of(call, name, stored_name, error);
    return status ? status : truce__collection_name_check(stored_name, error);
}

/* ---- authorization --------------------------------------------------------------------------- */

/* Checks whether a user may see a collection through a view. A user without read access in the
 * database of the view sees nothing through it. No view shows the users' own records. */
static truce_status allow_shown(void *arg, const char *database, const char *collection,
                                bool writes, bson_error_t *error)
{
    struct call *call = arg;

    /* Not checked here, because view_check_stages and the compiler refuse stages that write. */
    (void)writes;
    if (!strcmp(database, "admin") && !strcmp(collection, "system.users"))
        return access_refuse(call, database, error);
    return access_may(call, call->database, ACTION_FIND)
               ? access_need_collection(call, database, collection, ACTION_FIND, error)
               : TRUCE_OK;
}

/* Compiles the pipeline. The caller must be allowed to read every collection in it. */
static truce_status check_pipeline(struct call *call, const bson_t *stages, bson_error_t *error)
{
    const struct name_guard guard = {allow_shown, call};
    struct pipeline *compiled = NULL;
    bson_t mapped;
    truce_status status =
        truce__map_pipeline(call->server->database, call->database, stages, &guard, &mapped, error);

    if (!status)
        status = truce__pipeline_new(&mapped, &compiled, error);
    truce__pipeline_free(compiled);
    bson_destroy(&mapped);
    return status;
}

/* ---- dependencies ---------------------------------------------------------------------------- */

/* The views of the database, including the new one. */
struct graph {
    struct call *call;
    const struct view *all;
    uint32_t count;
    /* heights[i]: the length of the longest chain of views that begins with all[i], or 0 before it
     * is known. */
    uint32_t *heights;
    const struct view *made;
    /* The height of the new view, or 0 before it is known. */
    uint32_t height;
    bson_error_t *error;
};

struct below {
    struct graph *graph;
    /* The depth at which the sources are visited, and the greatest height among them. */
    uint32_t depth, height;
};

static truce_status view_measure(struct graph *graph, const char *name, uint32_t depth,
                                 uint32_t *height);

static truce_status view_too_deep(bson_error_t *error)
{
    return truce__refuse(CODE_VIEW_DEPTH_LIMIT_EXCEEDED, error,
                         "View depth limit exceeded; maximum depth is %d", TRUCE_VIEW_DEPTH_MAX);
}

/* Measures a source of a view, if it is in the database of the call: the name_guard of
 * measure_view. */
static truce_status view_measure_below(void *arg, const char *database, const char *collection,
                                       bool writes, bson_error_t *error)
{
    struct below *below = arg;
    uint32_t height = 0;
    truce_status status = TRUCE_OK;

    (void)writes;
    (void)error;
    if (!strcmp(database, below->graph->call->database))
        status = view_measure(below->graph, collection, below->depth, &height);
    if (height > below->height)
        below->height = height;
    return status;
}

/* Sets *height to 1 more than the greatest height among the sources of the view. Fails with 165 if
 * the depth or the height is too great. */
static truce_status measure_view(struct graph *graph, const struct view *view, uint32_t depth,
                                 uint32_t *height)
{
    struct below below = {graph, depth + 1, 0};
    const struct name_guard guard = {view_measure_below, &below};
    struct call *call = graph->call;
    truce_status status = TRUCE_OK;
    bson_t mapped;

    if (depth > TRUCE_VIEW_DEPTH_MAX)
        return view_too_deep(graph->error);
    if (view->on) {
        status = view_measure_below(&below, call->database, view->on, false, graph->error);
        if (!status) {
            status = truce__map_pipeline(call->server->database, call->database, view->pipeline,
                                         &guard, &mapped, graph->error);
            bson_destroy(&mapped);
        }
    }
    *height = below.height + 1;
    return !status && *height > TRUCE_VIEW_DEPTH_MAX ? view_too_deep(graph->error) : status;
}

/* Sets *height to the length of the longest chain of views that begins with this view. The length
 * is at least 1. If the name is not that of a view, sets *height to 0. */
static truce_status view_measure(struct graph *graph, const char *name, uint32_t depth,
                                 uint32_t *height)
{
    bool is_made = !strcmp(name, graph->made->name);

    *height = is_made ? graph->height : 0;
    if (is_made && !graph->height)
        return depth ? truce__refuse(CODE_GRAPH_CONTAINS_CYCLE, graph->error,
                                     "View cycle detected: %s depends on itself",
                                     call_namespace(graph->call, name))
                     : measure_view(graph, graph->made, depth, height);
    for (uint32_t i = 0; i < graph->count; i++) {
        truce_status status = TRUCE_OK;

        if (strcmp(graph->all[i].name, name) != 0)
            continue;
        if (!graph->heights[i])
            status = measure_view(graph, &graph->all[i], depth, &graph->heights[i]);
        *height = graph->heights[i];
        return status;
    }
    return TRUCE_OK;
}

/* Measures the new view and all others, because the depth of the views on it is limited, too. */
static truce_status measure_all(struct graph *graph)
{
    uint32_t height = 0;
    truce_status status = view_measure(graph, graph->made->name, 0, &height);

    graph->height = height;
    for (uint32_t i = 0; !status && i < graph->count; i++) {
        status = view_measure(graph, graph->all[i].name, 1, &height);
    }
    return status;
}

static size_t view_bytes_of(const struct view *view)
{
    return strlen(view->name) + (view->on ? strlen(view->on) + view->pipeline->len : 0);
}

/* Checks the number and the total size of the views of the database, including the new one. */
static truce_status view_check_room(const struct graph *graph, bson_error_t *error)
{
    size_t bytes = view_bytes_of(graph->made);
    uint32_t count = 1;

    for (uint32_t i = 0; i < graph->count; i++)
        if (strcmp(graph->all[i].name, graph->made->name) != 0) {
            bytes += view_bytes_of(&graph->all[i]);
            count++;
        }
    if (count > TRUCE_VIEWS_MAX)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error, "a database has at most %d views",
                             TRUCE_VIEWS_MAX);
    return bytes + count * 64 > TRUCE_VIEWS_BYTES_MAX
               ? truce__refuse(CODE_VIEW_PIPELINE_MAX_SIZE_EXCEEDED, error,
                               "the views of a database have at most %d bytes",
                               TRUCE_VIEWS_BYTES_MAX)
               : TRUCE_OK;
}

static truce_status check_graph(struct call *call, const struct view *made, bson_error_t *error)
{
    struct graph graph = {.call = call, .made = made, .error = error};
    truce_status status = views_all(call->server->views, call->database, &call->arena, &graph.all,
                                    &graph.count, error);

    if (!status)
        status = view_check_room(&graph, error);
    graph.heights = bson_malloc0((graph.count + 1) * sizeof *graph.heights);
    if (!status)
        status = measure_all(&graph);
    bson_free(graph.heights);
    return status;
}

/* Checks a definition before it is stored: the name of its source, its stages, the access of the
 * caller, and the dependencies. */
static truce_status check_definition(struct call *call, const struct view *view,
                                     bson_error_t *error)
{
    truce_status status = view->on[0]
                              ? view_check_name(call, view->on, "on", error)
                              : truce__refuse(CODE_BAD_VALUE, error, "'viewOn' cannot be empty");

    if (!status)
        status = view_check_stages(call, view->name, view->pipeline, error);
    if (!status)
        status = allow_shown(call, call->database, view->on, false, error);
    if (!status)
        status = check_pipeline(call, view->pipeline, error);
    return status ? status : check_graph(call, view, error);
}

/* ---- the stored definition ------------------------------------------------------------------- */

static bson_t *view_document_of(struct call *call, const struct view *view)
{
    return BCON_NEW("_id", BCON_UTF8(call_namespace(call, view->name)), "viewOn",
                    BCON_UTF8(view->on), "pipeline", BCON_ARRAY(view->pipeline));
}

static truce_status view_refuse_other(struct call *call, const char *name, const char *what,
                                      bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_EXISTS, error, "namespace '%s' already exists, but %s",
                         call_namespace(call, name), what);
}

static truce_status view_check_same(struct call *call, const struct view *there,
                                    const struct view *wanted, bson_error_t *error)
{
    if (!there->on || strcmp(there->on, wanted->on) != 0)
        return view_refuse_other(call, wanted->name, "is a view on another collection", error);
    if (truce__value_compare(truce__value_document(there->pipeline),
                             truce__value_document(wanted->pipeline)) != 0)
        return view_refuse_other(call, wanted->name, "with another pipeline", error);
    return TRUCE_OK;
}

/* Checks that no collection and no other view has the name. Sets *there if the same view exists. */
static truce_status view_check_free(struct call *call, const struct view *wanted, bool *there,
                                    bson_error_t *error)
{
    const struct view *view = NULL;
    char stored_name[STORED_NAME_MAX];
    bool taken = false;
    truce_status status = call_stored_name_of(call, wanted->name, stored_name, error);

    *there = false;
    if (!status)
        status = serve_is_there(call, stored_name, &taken, NULL, error);
    if (!status && taken)
        return view_refuse_other(call, wanted->name, "is a collection", error);
    if (!status)
        status = views_find(call->server->views, call->database, wanted->name, &call->arena, &view,
                            error);
    if (status || !view)
        return status;
    *there = true;
    return view_check_same(call, view, wanted, error);
}

static truce_status check_can(struct call *call, const char *name, bson_error_t *error)
{
    if (call->session.transaction)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "Cannot create a view in a multi-document transaction.");
    if (!views_can(call->server->views))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "this store is on another server: create the view there");
    return view_check_name(call, name, "called", error);
}

/* ---- the step in which it is written --------------------------------------------------------- */

#define TRIES_MAX 100

/* A write of view definitions. `snapshot` read all definitions of the database, so the write fails
 * if one of them changed. It is NULL if the store cannot compare. */
struct step {
    char stored_name[STORED_NAME_MAX];
    truce_store *snapshot;
};

static truce_status read_definitions(const struct step *step, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(step->snapshot, step->stored_name, &all, NULL, &cursor, error);

    do {
        if (!status)
            status = truce_cursor_next(cursor, &document, error);
    } while (!status && document);
    truce_cursor_close(cursor);
    return status;
}

/* Begins the write. The write fails with CONFLICT if another client changes a definition after this
 * call. */
static truce_status step_begin(struct call *call, struct step *step, bson_error_t *error)
{
    const struct overlay_options options = {0};
    truce_store *store = call->server->store;
    truce_status status = call_stored_name_of(call, VIEWS_COLLECTION, step->stored_name, error);

    step->snapshot = NULL;
    if (status || !(store->capabilities & TRUCE_CAN_CHECK))
        return status;
    status = truce__overlay_open(store, &options, &step->snapshot, error);
    return status ? status : read_definitions(step, error);
}

/* Writes a definition, provided that the reads of the snapshot still hold. `absent`, which may be
 * NULL, is a name in the store that no collection may have. */
static truce_status step_write(struct call *call, const struct step *step, const truce_write *write,
                               const char *absent, bson_error_t *error)
{
    struct truce_read_checks checks = {0};
    truce_bulk_options options = {.relaxed = call->relaxed};
    truce_write_outcome outcome;
    truce_status status;

    if (step->snapshot) {
        truce__overlay_checks(step->snapshot, &checks);
        checks.absent = absent;
        options.atomic = true;
        options.checks = &checks;
    }
    status = truce_bulk(call->server->store, write, 1, &options, &outcome, error);
    truce_write_result_release(&outcome.result);
    bson_free((void *)checks.all);
    return status;
}

static bool is_tried_again(truce_status status, const bson_error_t *error, int tries)
{
    return tries < TRIES_MAX && (status == TRUCE_DUPLICATE ||
                                 (status == TRUCE_CONFLICT && error->code == CODE_WRITE_CONFLICT));
}

/* Checks and writes a new definition once. Fails with CONFLICT or DUPLICATE if another client was
 * faster. */
static truce_status try_create(struct call *call, const struct view *wanted, bson_error_t *error)
{
    char stored_name[STORED_NAME_MAX];
    struct step step;
    bool there = false;
    bson_t *document = view_document_of(call, wanted);
    truce_write write = {
        .kind = TRUCE_WRITE_INSERT, .collection = step.stored_name, .document = document};
    truce_status status = step_begin(call, &step, error);

    if (!status)
        status = view_check_free(call, wanted, &there, error);
    if (!status && !there)
        status = check_definition(call, wanted, error);
    if (!status && !there)
        status = call_stored_name_of(call, wanted->name, stored_name, error);
    if (!status && !there)
        status = step_write(call, &step, &write, stored_name, error);
    truce_store_close(step.snapshot);
    bson_destroy(document);
    return status;
}

truce_status view_create(struct call *call, const char *name, const struct view_fields *fields,
                         bson_error_t *error)
{
    const struct view wanted = {name, fields->on, fields->pipeline ? fields->pipeline : &no_stages};
    truce_status status = check_can(call, name, error);

    if (status)
        return status;
    for (int tries = 1;; tries++) {
        status = try_create(call, &wanted, error);
        if (!is_tried_again(status, error, tries))
            return status;
    }
}

/* Checks and writes a changed definition once. Fails with CONFLICT if another client was faster. */
static truce_status try_modify(struct call *call, const struct view *wanted, bson_error_t *error)
{
    struct step step;
    bson_t *document = view_document_of(call, wanted),
           *filter = BCON_NEW("_id", BCON_UTF8(call_namespace(call, wanted->name)));
    truce_write write = {.kind = TRUCE_WRITE_UPDATE,
                         .collection = step.stored_name,
                         .filter = filter,
                         .document = document};
    truce_status status = step_begin(call, &step, error);

    if (!status)
        status = check_definition(call, wanted, error);
    if (!status)
        status = step_write(call, &step, &write, NULL, error);
    truce_store_close(step.snapshot);
    bson_destroy(filter);
    bson_destroy(document);
    return status;
}

truce_status view_modify(struct call *call, const struct view *view,
                         const struct view_fields *fields, bson_error_t *error)
{
    const struct view wanted = {view->name,
                                fields->on ? fields->on
                                : view->on ? view->on
                                           : "",
                                fields->pipeline ? fields->pipeline
                                : view->on       ? view->pipeline
                                                 : &no_stages};
    truce_status status;

    if (call->server->auth && !fields->on != !fields->pipeline)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "Must specify both 'viewOn' and 'pipeline' when modifying a view "
                             "and auth is enabled");
    for (int tries = 1;; tries++) {
        status = try_modify(call, &wanted, error);
        if (!is_tried_again(status, error, tries))
            return status;
    }
}

truce_status view_drop(struct call *call, const char *name, bool *was, bson_error_t *error)
{
    const truce_write_options options = {.relaxed = call->relaxed};
    truce_write_result result = {0};
    const struct view *view = NULL;
    char stored_name[STORED_NAME_MAX];
    bson_t *filter;
    truce_status status =
        views_find(call->server->views, call->database, name, &call->arena, &view, error);

    *was = false;
    if (!status && view)
        status = call_stored_name_of(call, VIEWS_COLLECTION, stored_name, error);
    if (status || !view)
        return status;
    filter = BCON_NEW("_id", BCON_UTF8(call_namespace(call, name)));
    status = truce_remove(call->server->store, stored_name, filter, &options, &result, error);
    *was = result.removed > 0;
    bson_destroy(filter);
    return status;
}

/* ---- replies -------------------------------------------------------------------------------- */

void view_describe(const struct view *view, bool name_only, bson_t *document)
{
    bson_init(document);
    BCON_APPEND(document, "name", BCON_UTF8(view->name), "type", BCON_UTF8("view"));
    if (!name_only)
        BCON_APPEND(document, "options", "{", "viewOn", BCON_UTF8(view->on ? view->on : ""),
                    "pipeline", BCON_ARRAY(view->on ? view->pipeline : &no_stages), "}", "info",
                    "{", "readOnly", BCON_BOOL(true), "}");
}
