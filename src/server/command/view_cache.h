#ifndef TRUCE_SERVER_COMMAND_VIEW_CACHE_H
#define TRUCE_SERVER_COMMAND_VIEW_CACHE_H

/*
 * Views: names for a pipeline over a collection or another view. The views of the database
 * "school" are documents in its collection system.views, as in MongoDB:
 *
 *     {_id: "school.adults", viewOn: "people", pipeline: [{$match: {age: {$gte: 18}}}]}
 *
 * serve_view.c creates, changes, and lists views. view_cache.c caches the definitions and replaces
 * a view by its source.
 */
#include <stdbool.h>

#include "base/status.h"
#include "truce/store.h"

struct arena;
struct call;
struct views;

/* Returns the views of a store; the store and the name of the server's own database are borrowed.
 * After this, no caller of a store in a file can give a collection the name of a view. */
struct views *views_new(truce_store *store, const char *own);
void views_free(struct views *views);
/* Returns false if the store is on another server, which may have views of its own. */
bool views_can(const struct views *views);

/* A definition. It lives as long as the arena of its call. */
struct view {
    const char *name;
    /* The collection or view of the same database, or NULL if the stored document is not a valid
     * definition. */
    const char *on;
    const bson_t *pipeline;
};

/* Finds the current definition, also of views that other processes have created. *view is NULL if
 * the database has no view of that name. */
truce_status views_find(struct views *views, const char *database, const char *name,
                        struct arena *arena, const struct view **view, bson_error_t *error);
/* Returns all views of the database, ordered by name. */
truce_status views_all(struct views *views, const char *database, struct arena *arena,
                       const struct view **all, uint32_t *count, bson_error_t *error);

/* ---- commands that views do not support ------------------------------------------------------ */

/* Fails with 166 if the name is that of a view, and with 73 if `changes` and the name is reserved
 * for the server: "system.*", except "system.js". */
truce_status view_refuse(struct call *call, const char *database, const char *name, bool changes,
                         bson_error_t *error);
/* Checks for reserved names only. */
truce_status view_refuse_system(const char *database, const char *name, bson_error_t *error);
/* Checks the collection that the command names, unless the command handles views itself. */
truce_status view_guard(struct call *call, bson_error_t *error);

/* ---- reading a view -------------------------------------------------------------------------- */

/* The source of a read: a collection, or a view as its collection and all its stages. */
struct view_source {
    bool is_view;
    /* The collection, as the client and as the store know it. `stored_name` is NULL if the name is
     * not that of a view. */
    const char *name, *stored_name;
    /* The stages as clients wrote them, and with the store's names of collections. */
    const bson_t *given, *stages;
};

/* Finds the source. Fails with 165 if views are nested too deep. The result lives as long as the
 * call. */
truce_status view_source(struct call *call, const char *database, const char *name,
                         struct view_source *source, bson_error_t *error);
/* Prepares a collection that a stage of the pipeline reads. If it is a view, the store reads its
 * source instead. */
truce_status view_join(struct call *call, const char *database, const char *name,
                       bson_error_t *error);

/* Returns the stages of the source followed by `stages`, as one pipeline. */
const bson_t *view_with(struct call *call, const bson_t *of_view, const bson_t *stages);

/* ---- changing views (serve_view.c) ----------------------------------------------------------- */

/* The fields of create and collMod for a view. */
struct view_fields {
    const char *on;
    /* NULL if the command does not contain it. */
    const bson_t *pipeline;
};

/* Creates a view. Succeeds if the same view exists. Fails with 48 if the name is in use
 * otherwise. */
truce_status view_create(struct call *call, const char *name, const struct view_fields *fields,
                         bson_error_t *error);
/* Changes the given fields. With --auth, both or none must be given. */
truce_status view_modify(struct call *call, const struct view *view,
                         const struct view_fields *fields, bson_error_t *error);
/* Drops a view. Sets `*was` if it existed. */
truce_status view_drop(struct call *call, const char *name, bool *was, bson_error_t *error);
/* Appends {name, type: "view", options: {viewOn, pipeline}, info: {readOnly: true}} */
void view_describe(const struct view *view, bool name_only, bson_t *document);

#endif
