/*
 * The views that a server knows of.
 *
 *     database "school"    token of @school.system.views    [{adults, on, pipeline}, {pupils, ...}]  in the order of names
 *
 * Every command that names a collection asks here whether it is a view, so the answer must cost next to nothing, and must be
 * right although other processes make views, too. The store counts what is written to a collection, whoever writes
 * (truce__store_token): while the number is the one from before the list was read, the list is what stands there.
 *
 * Invariants:
 *  1. A list was read after its token was taken. So a change that was made before somebody asks is seen by who asks.
 *  2. A database without views has an empty list, and its system.views is not read again for each command.
 *  3. What is no definition, because others than a server have written it, is a view all the same, one that cannot be read.
 *
 * A store behind another server has none: that server may have its own.
 */
#include "server/command/views.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/field.h"
#include "base/limits.h"
#include "engine/documents/names.h"
#include "engine/engine.h"
#include "server/watch/watch.h"
#include "store/namespace_map.h"
#include "store/store.h"

struct list {
    char database[DATABASE_NAME_MAX + 1], place[PLACE_MAX];
    uint64_t token, used;
    struct arena arena;
    struct view *all;
    uint32_t count;
};

struct views {
    struct names names; /* first: those of views */
    const char *own;
    truce_store *store; /* NULL: there are none */
    pthread_mutex_t mutex;
    struct list *lists[TRUCE_SERVER_VIEW_LISTS];
    uint64_t clock; /* of uses */
};

/* "@school.adults": {_id: "school.adults"} in @school.system.views */
static bool views_document_of(const struct names *names, const char *place,
                              struct name_document *document)
{
    const char *own = ((const struct views *)names)->own, *name;
    char database[DATABASE_NAME_MAX + 1];

    truce__place_database(own, place, database);
    name = truce__place_name(own, database, place);
    if (!name || !strcmp(name, VIEWS_COLLECTION))
        return false;
    snprintf(document->collection, sizeof document->collection, "@%s." VIEWS_COLLECTION, database);
    snprintf(document->id, sizeof document->id, "%s.%s", database, name);
    return true;
}

struct views *views_new(truce_store *store, const char *own)
{
    struct views *views = bson_malloc0(sizeof *views);
    struct engine *engine = watch_engine(store);

    views->names.document_of = views_document_of;
    views->own = own;
    if (engine)
        engine->writer.names = &views->names;
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
    struct engine *engine = views->store ? watch_engine(views->store) : NULL;

    if (engine && engine->writer.names == &views->names)
        engine->writer.names = NULL;
    for (size_t i = 0; i < TRUCE_SERVER_VIEW_LISTS; i++)
        list_free(views->lists[i]);
    pthread_mutex_destroy(&views->mutex);
    bson_free(views);
}

/* ---- reading -------------------------------------------------------------------------------- */

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

/* False: its _id names nothing. */
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

static truce_status views_read_all(truce_store *store, struct list *list, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    size_t bytes = 0;
    truce_status status = truce_find(store, list->place, &all, NULL, &cursor, error);

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

/* ---- the lists ------------------------------------------------------------------------------ */

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

/* The list of the database as it is now; under the mutex. */
static truce_status views_list_of(struct views *views, const char *database,
                                  const struct list **found, bson_error_t *error)
{
    struct list **slot = views_slot_of(views, database), *list = *slot;
    bool is_it = list && !strcmp(list->database, database);
    uint64_t token = 0;
    truce_status status;

    if (!is_it) {
        list = bson_malloc0(sizeof *list);
        snprintf(list->database, sizeof list->database, "%s", database);
        snprintf(list->place, sizeof list->place, "@%s." VIEWS_COLLECTION, database);
    }
    status = truce__store_token(views->store, list->place, &token, error);
    if (!status && token != list->token) {
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
