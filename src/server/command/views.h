#ifndef TRUCE_SERVER_COMMAND_VIEWS_H
#define TRUCE_SERVER_COMMAND_VIEWS_H

/*
 * Views: names that stand for a pipeline over another collection, or over another view. Those of the database "school" stand in
 * its collection system.views, as MongoDB has them, a document each:
 *
 *     {_id: "school.adults", viewOn: "people", pipeline: [{$match: {age: {$gte: 18}}}]}
 *
 * serve_view.c makes, changes and lists them; views.c keeps the list and turns a view into its source.
 */
#include <stdbool.h>

#include "base/status.h"
#include "truce/store.h"

struct arena;
struct call;
struct views;

/* Of the store of a server, whose own database is `own`; both are borrowed. From now on no collection of the file gets the name of a
 * view through this store, by whomever. */
struct views *views_new(truce_store *store, const char *own);
void views_free(struct views *views);
/* False: the store is behind another server, and nothing of it is a view of this one. */
bool views_can(const struct views *views);

/* A definition. It lives as long as the arena that it was asked for with. */
struct view {
    const char *name;
    const char
        *on; /* collection or view of the same database; NULL: what stands there is no definition */
    const bson_t *pipeline;
};

/* *view NULL: there is none of that name in the database. As it is now, whichever process made it. */
truce_status views_find(struct views *views, const char *database, const char *name,
                        struct arena *arena, const struct view **view, bson_error_t *error);
/* All of the database, in the order of their names. */
truce_status views_all(struct views *views, const char *database, struct arena *arena,
                       const struct view **all, uint32_t *count, bson_error_t *error);

/* ---- what a view is no collection for -------------------------------------------------------- */

/* 166, if the name is that of a view; 73, if `changes`, and it is one of the server's own: "system.*", but for the functions
 * that clients keep in "system.js". */
truce_status view_refuse(struct call *call, const char *database, const char *name, bool changes,
                         bson_error_t *error);
/* The latter alone. */
truce_status view_refuse_system(const char *database, const char *name, bson_error_t *error);
/* What is refused of the name that the call's command has first, if it is no command that knows of views. */
truce_status view_guard(struct call *call, bson_error_t *error);

/* ---- what is read of one --------------------------------------------------------------------- */

/* A name that can be read: a collection, or a view as the collection that it rests on and all that is done with it. */
struct view_source {
    bool is_view;
    const char *name, *place; /* of the collection, as the client and as the store know it */
    const bson_t
        *given; /* the stages as clients wrote them; what follows with places instead of names */
    const bson_t *stages;
};

/* 165: views on views, too many. All that it gives lives as long as the call. */
truce_status view_source(struct call *call, const char *database, const char *name,
                         struct view_source *source, bson_error_t *error);
/* A stage of the call's pipeline reads that collection. If it is a view, the store is told what to read instead. */
truce_status view_join(struct call *call, const char *database, const char *name,
                       bson_error_t *error);

/* `stages`, an array, behind those of the source, as one pipeline. */
const bson_t *view_with(struct call *call, const bson_t *of_view, const bson_t *stages);

/* ---- making them (serve_view.c) ------------------------------------------------------------- */

/* What create and collMod say of one. */
struct view_fields {
    const char *on;
    const bson_t *pipeline; /* NULL: not given */
};

/* OK: it is there, or it was there and is the same. 48: the name is something else's. */
truce_status view_create(struct call *call, const char *name, const struct view_fields *fields,
                         bson_error_t *error);
/* What is not given stays as it is; with --auth both must be given. */
truce_status view_modify(struct call *call, const struct view *view,
                         const struct view_fields *fields, bson_error_t *error);
/* *was: there was one, which is gone. */
truce_status view_drop(struct call *call, const char *name, bool *was, bson_error_t *error);
/* {name, type: "view", options: {viewOn, pipeline}, info: {readOnly: true}} */
void view_describe(const struct view *view, bool name_only, bson_t *document);

#endif
