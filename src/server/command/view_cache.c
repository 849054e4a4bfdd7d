/*
 * The cache of views.
 *
 *     database "school"    token of @school.system.views    [{adults, on, pipeline}, {pupils, ...}]
 *
 * Every command that names a collection checks here whether the name is a view. So a lookup must
 * be cheap, and correct although other processes create views, too. The store counts the writes
 * to a collection by any process (truce__store_token). While the token is the one from before the
 * list was read, the list is current.
 *
 * Invariants:
 *  1. The token is taken before the list is read. So a lookup sees every change that was made
 *     before it.
 *  2. A database without views has an empty list, and its system.views is not read for each
 *     command.
 *  3. An invalid definition, which only other programs can write, is a view that cannot be read.
 *  4. If the files next to the store are not writable, or the store is a snapshot, the store counts
 *     no writes, and each lookup reads the list.
 *
 * A store behind another server has no views here, as that server may have its own.
 */
#include "server/command/view_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "engine/documents/collections.h"
#include "engine/documents/open_documents.h"
#include "server/command/handlers.h"
#include "server/session/change_stream.h"
#include "store/collection_alias.h"
#include "store/file/file.h"
#include "store/namespace_map.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* ---- sources --------------------------------------------------------------------------------- */

/*
 * The source of a view.
 *
 *     grown on adults on people    people, [stages of adults, of grown, of the caller]
 *     $lookup from adults          the stage is unchanged; store/collection_alias.h names its
 *                                  source
 *
 * Invariants:
 *  1. A caller with find access to a view may read what it shows, without access to its source: the
 *     creator of the view had it (serve_view.c). No view shows the users' own records.
 *  2. Views are nested at most TRUCE_VIEW_DEPTH_MAX deep, through `viewOn` and through stages. So
 *     cycles, which only other programs can write, end with an error.
 *  3. The caller's filter follows the stages of the view, and is moved before those that keep its
 *     fields (query/aggregate). Then indexes serve it like a filter of the collection.
 */

/* ---- calls that a view refuses --------------------------------------------------------------- */

truce_status view_refuse_system(const char *database, const char *name, bson_error_t *error)
{
    return !truce__name_is_system(name) || !strcmp(name, "system.js")
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

/* Refuses an explained command that does not work on views. For example, {explain: {update:
 * "adults"}} fails as a whole, not by statement. */
static truce_status guard_explained(struct call *call, bson_error_t *error)
{
    const struct command *command = NULL;
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_DOCUMENT(&call->value) && bson_iter_recurse(&call->value, &inner) &&
        bson_iter_next(&inner))
        command = call->server->commands->find(bson_iter_key(&inner));
    return !command || command->traits & COMMAND_READS_VIEWS || !BSON_ITER_HOLDS_UTF8(&inner)
               ? TRUCE_OK
               : view_refuse(call, call->database, bson_iter_utf8(&inner, NULL), true, error);
}

truce_status view_guard(struct call *call, bson_error_t *error)
{
    const uint32_t reads = ACTION_FIND | ACTION_STATS | ACTION_LIST;
    const struct need *need = &call->command->need;

    if (need->kind == NEED_INNER)
        return guard_explained(call, error);
    if (need->kind != NEED_COLLECTION || !BSON_ITER_HOLDS_UTF8(&call->value) ||
        call->command->traits & (COMMAND_READS_VIEWS | COMMAND_CHECKS_VIEWS))
        return TRUCE_OK;
    return view_refuse(call, call->database, bson_iter_utf8(&call->value, NULL),
                       need->actions & ~reads && !(call->command->traits & COMMAND_KEEPS_DOCUMENTS),
                       error);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static const bson_t *view_copy_array(struct call *call, const bson_t *array)
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
    kept = view_copy_array(call, &array);
    bson_destroy(&array);
    return kept;
}

/* ---- from the view down to the collection ---------------------------------------------------- */

/* The argument of allow_inside: the views that enclose the stages, `depth` of them. */
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
                               "the pipeline of a view must not write: a stage writes to %s.%.120s",
                               database, collection);
    return status ? status : source_join(inside->call, database, collection, inside->depth, error);
}

/* Puts the stages of a view before those of the views on it. */
static truce_status put_before(struct call *call, const char *database, const struct view *view,
                               uint32_t depth, struct view_source *source, bson_error_t *error)
{
    struct inside inside = {call, depth};
    const struct name_guard guard = {allow_inside, &inside};
    truce_status status = TRUCE_OK;
    bson_t mapped;

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
    status = truce__map_pipeline(call->server->database, database, view->pipeline, &guard, &mapped,
                                 error);
    if (!status) {
        source->given = view_with(call, view->pipeline, source->given);
        source->stages = view_with(call, &mapped, source->stages);
        source->name = view->on;
    }
    bson_destroy(&mapped);
    return status;
}

/* Follows `viewOn` from a name down to a collection. `depth` is the number of views that enclose
 * the name. */
static truce_status source_resolve(struct call *call, const char *database, const char *name,
                                   uint32_t depth, struct view_source *source, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    const struct view *view = NULL;
    char stored_name[STORED_NAME_MAX];
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
    status =
        truce__stored_name_of(call->server->database, database, source->name, stored_name, error);
    source->stored_name = truce__arena_copy(&call->arena, stored_name, sizeof stored_name);
    return status;
}

/* Lets the store read the source of a view instead of the view (store/collection_alias.h). Does
 * nothing for a collection. */
static truce_status source_join(struct call *call, const char *database, const char *name,
                                uint32_t depth, bson_error_t *error)
{
    struct view_source source;
    char stored_name[STORED_NAME_MAX];
    truce_status status =
        truce__stored_name_of(call->server->database, database, name, stored_name, error);

    if (status || truce__aliases_find(call->aliases, stored_name))
        return status;
    status = source_resolve(call, database, name, depth, &source, error);
    if (status || !source.is_view)
        return status;
    if (!call->aliases)
        call->aliases = truce__aliases_new();
    truce__aliases_add(call->aliases, stored_name, source.stored_name, source.stages);
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

/* ---- the list of views ----------------------------------------------------------------------- */

/* The views of one database, sorted by name. */
struct list {
    char database[DATABASE_NAME_MAX + 1], stored_name[STORED_NAME_MAX];
    /* The token of truce_wait before the views were read, or 0 if they must be read again, and the
     * value of `clock` at the last use. */
    uint64_t token, used;
    struct arena arena;
    struct view *all;
    uint32_t count;
};

struct views {
    /* The names of views. Must be the first field: the engine calls views_document_of with a
     * pointer to it. */
    struct names names;
    /* The server's own database. Borrowed. */
    const char *own;
    /* NULL if the store is on another server, whose views are unknown. */
    truce_store *store;
    /* Guards the fields below, and the lists. */
    pthread_mutex_t mutex;
    struct list *lists[TRUCE_SERVER_VIEW_LISTS];
    /* The number of uses of all lists, for the choice of the list to evict. */
    uint64_t clock;
};

/* Finds the definition of a view: "@school.adults" is {_id: "school.adults"} in
 * @school.system.views. */
static bool views_document_of(const struct names *names, const char *stored_name,
                              struct name_document *document)
{
    const char *own = ((const struct views *)names)->own, *name;
    char database[DATABASE_NAME_MAX + 1];

    truce__stored_name_database(own, stored_name, database);
    name = truce__stored_name_plain(own, database, stored_name);
    if (!name || !strcmp(name, VIEWS_COLLECTION))
        return false;
    snprintf(document->collection, sizeof document->collection, "@%s." VIEWS_COLLECTION, database);
    snprintf(document->id, sizeof document->id, "%s.%s", database, name);
    return true;
}

struct views *views_new(truce_store *store, const char *own)
{
    struct views *views = bson_malloc0(sizeof *views);
    struct engine *engine = truce__file_engine_or_null(store);

    views->names.document_of = views_document_of;
    views->own = own;
    /* A snapshot writes nothing, and the engine keeps the names of its own store. */
    if (engine && !truce__is_view(store))
        __atomic_store_n(&engine->writer.names, &views->names, __ATOMIC_RELEASE);
    if (store->capabilities & TRUCE_CAN_WAIT && strcmp(store->ops->scheme, "mongodb") != 0)
        views->store = store;
    pthread_mutex_init(&views->mutex, NULL);
    return views;
}

bool views_can(const struct views *views)
{
    return views->store != NULL;
}

static void list_free(struct list *list)
{
    if (!list)
        return;
    truce__arena_release(&list->arena);
    bson_free(list->all);
    bson_free(list);
}

void views_free(struct views *views)
{
    struct engine *engine = views->store ? truce__file_engine_or_null(views->store) : NULL;

    if (engine && __atomic_load_n(&engine->writer.names, __ATOMIC_ACQUIRE) == &views->names)
        __atomic_store_n(&engine->writer.names, NULL, __ATOMIC_RELEASE);
    for (size_t i = 0; i < TRUCE_SERVER_VIEW_LISTS; i++)
        list_free(views->lists[i]);
    pthread_mutex_destroy(&views->mutex);
    bson_free(views);
}

/* ---- reading --------------------------------------------------------------------------------- */

static const bson_t *copy_bson(struct arena *arena, const bson_t *bson)
{
    bson_t *copy = truce__arena_take(arena, sizeof *copy);

    (void)bson_init_static(copy, truce__arena_copy(arena, bson_get_data(bson), bson->len),
                           bson->len);
    return copy;
}

static const char *views_copy_text(struct arena *arena, const char *text)
{
    return truce__arena_copy(arena, text, strlen(text) + 1);
}

/* Returns false if the _id is not a valid namespace. */
static bool read_view(struct arena *arena, const bson_t *document, struct view *view)
{
    const char *dot = strchr(truce__field_text(document, "_id"), '.');
    const char *on = truce__field_text(document, "viewOn");
    bson_iter_t pipeline;
    const uint8_t *bytes;
    uint32_t size;
    bson_t stages;

    if (!dot || !dot[1])
        return false;
    *view = (struct view){.name = views_copy_text(arena, dot + 1)};
    if (!on[0] || !bson_iter_init_find(&pipeline, document, "pipeline") ||
        !BSON_ITER_HOLDS_ARRAY(&pipeline))
        return true;
    bson_iter_array(&pipeline, &size, &bytes);
    if (!bson_init_static(&stages, bytes, size))
        return true;
    view->on = views_copy_text(arena, on);
    view->pipeline = copy_bson(arena, &stages);
    return true;
}

static int views_by_name(const void *a, const void *b)
{
    return strcmp(((const struct view *)a)->name, ((const struct view *)b)->name);
}

/* Reads the definitions of all views of a database, up to a maximum number and size, and sorts them
 * by name. */
static truce_status views_read_all(truce_store *store, struct list *list, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    size_t bytes = 0;
    truce_status status = truce_find(store, list->stored_name, &all, NULL, &cursor, error);

    while (!status && list->count < TRUCE_VIEWS_MAX && bytes <= TRUCE_VIEWS_BYTES_MAX) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        bytes += document->len;
        if (!(list->count & (list->count - 1)))
            list->all = bson_realloc(list->all, (list->count ? 2 * (size_t)list->count : 1) *
                                                    sizeof *list->all);
        if (read_view(&list->arena, document, &list->all[list->count]))
            list->count++;
    }
    truce_cursor_close(cursor);
    if (list->count)
        qsort(list->all, list->count, sizeof *list->all, views_by_name);
    return status;
}

/* ---- the lists ------------------------------------------------------------------------------- */

/* Returns the slot of the database's list, a free slot, or the slot of the least recently used
 * list. */
static struct list **views_slot_of(struct views *views, const char *database)
{
    struct list **oldest = &views->lists[0];

    for (size_t i = 0; i < TRUCE_SERVER_VIEW_LISTS; i++) {
        struct list **at = &views->lists[i];

        if (!*at)
            return at;
        if (!strcmp((*at)->database, database))
            return at;
        if ((*at)->used < (*oldest)->used)
            oldest = at;
    }
    return oldest;
}

/* Returns the current list of the database. The mutex must be held. */
static truce_status views_list_of(struct views *views, const char *database,
                                  const struct list **found, bson_error_t *error)
{
    struct list **slot = views_slot_of(views, database), *list = *slot;
    bool is_it = list && !strcmp(list->database, database);
    uint64_t token = 0;
    truce_status status = TRUCE_OK;

    if (!is_it) {
        list = bson_malloc0(sizeof *list);
        snprintf(list->database, sizeof list->database, "%s", database);
        snprintf(list->stored_name, sizeof list->stored_name, "@%s." VIEWS_COLLECTION, database);
    }
    if (!truce__is_view(views->store))
        status = truce__store_token(views->store, list->stored_name, &token, error);
    if (status == TRUCE_INVALID) /* The store does not count writes (invariant 4). */
        status = TRUCE_OK;
    if (!status && (!token || token != list->token)) {
        truce__arena_reset(&list->arena);
        list->count = 0;
        list->token = 0;
        status = views_read_all(views->store, list, error);
        if (!status)
            list->token = token;
    }
    if (!is_it && status) {
        list_free(list);
        return status;
    }
    if (!is_it) {
        list_free(*slot);
        *slot = list;
    }
    list->used = ++views->clock;
    *found = list;
    return status;
}

static void copy_view(struct arena *arena, const struct view *from, struct view *to)
{
    to->name = views_copy_text(arena, from->name);
    to->on = from->on ? views_copy_text(arena, from->on) : NULL;
    to->pipeline = from->on ? copy_bson(arena, from->pipeline) : NULL;
}

truce_status views_find(struct views *views, const char *database, const char *name,
                        struct arena *arena, const struct view **view, bson_error_t *error)
{
    const struct view wanted = {.name = name}, *found = NULL;
    const struct list *list = NULL;
    struct view *copy;
    truce_status status;

    *view = NULL;
    if (!views->store)
        return TRUCE_OK;
    pthread_mutex_lock(&views->mutex);
    status = views_list_of(views, database, &list, error);
    if (!status && list->count)
        found = bsearch(&wanted, list->all, list->count, sizeof wanted, views_by_name);
    if (found) {
        copy = truce__arena_take(arena, sizeof *copy);
        copy_view(arena, found, copy);
        *view = copy;
    }
    pthread_mutex_unlock(&views->mutex);
    return status;
}

truce_status views_all(struct views *views, const char *database, struct arena *arena,
                       const struct view **all, uint32_t *count, bson_error_t *error)
{
    const struct list *list = NULL;
    struct view *copies = NULL;
    truce_status status;

    *all = NULL;
    *count = 0;
    if (!views->store)
        return TRUCE_OK;
    pthread_mutex_lock(&views->mutex);
    status = views_list_of(views, database, &list, error);
    if (!status && list->count) {
        copies = truce__arena_take(arena, list->count * sizeof *copies);
        for (uint32_t i = 0; i < list->count; i++)
            copy_view(arena, &list->all[i], &copies[i]);
        *all = copies;
        *count = list->count;
    }
    pthread_mutex_unlock(&views->mutex);
    return status;
}
