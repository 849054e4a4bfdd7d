#include "cli/core/view_lookup.h"

#include <stdio.h>

#include "base/status.h"
#include "store/decorators/database_view.h"

struct view_lookup {
    /* The whole file. */
    truce_store *file;
    /* The file's own database, and the database of the call. */
    char own[DATABASE_NAME_MAX + 1];
    const char *database;
    bool found;
};

static bool view_lookup_begin(struct view_lookup *lookup, truce_store *store)
{
    bson_error_t ignored;

    *lookup = (struct view_lookup){.file = truce__database_holder(store)};
    if (truce__own_database(lookup->file, lookup->own, &ignored))
        return false;
    lookup->database = truce__database_name(store);
    if (!lookup->database)
        lookup->database = lookup->own;
    return true;
}

/* Sets lookup->found if the database has a view of that name (struct name_guard). */
static truce_status view_lookup_find(void *arg, const char *database, const char *name, bool writes,
                                     bson_error_t *error)
{
    struct view_lookup *lookup = arg;
    char *collection = bson_strdup_printf("@%s." VIEWS_COLLECTION, database);
    char *id = bson_strdup_printf("%s.%s", database, name);
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), document;
    bson_error_t ignored;

    (void)writes;
    (void)error;
    if (!truce_find_one(lookup->file, collection, filter, NULL, &document, &ignored))
        lookup->found = true;
    bson_destroy(&document);
    bson_destroy(filter);
    bson_free(id);
    bson_free(collection);
    return TRUCE_OK;
}

bool cli_view_is(truce_store *store, const char *name)
{
    struct view_lookup lookup;

    if (view_lookup_begin(&lookup, store))
        (void)view_lookup_find(&lookup, lookup.database, name, false, NULL);
    return lookup.found;
}

bool cli_view_may_be_on_server(truce_store *store, const char *name)
{
    bson_t request = BSON_INITIALIZER, filter, reply;
    bson_iter_t at, found;
    bson_error_t ignored;
    bool may_be;

    if (!store->ops->command)
        return true;
    BSON_APPEND_INT32(&request, "listCollections", 1);
    BSON_APPEND_DOCUMENT_BEGIN(&request, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "name", name);
    bson_append_document_end(&request, &filter);
    BSON_APPEND_BOOL(&request, "nameOnly", true);
    may_be = store->ops->command(store, &request, false, &reply, &ignored) ||
             (bson_iter_init(&at, &reply) &&
              bson_iter_find_descendant(&at, "cursor.firstBatch.0", &found));
    bson_destroy(&request);
    bson_destroy(&reply);
    return may_be;
}

bool cli_view_in_pipeline(truce_store *store, const bson_t *pipeline)
{
    struct view_lookup lookup;
    const struct name_guard guard = {view_lookup_find, &lookup};
    bson_error_t ignored;
    bson_t mapped;

    if (view_lookup_begin(&lookup, store)) {
        /* The store reports an invalid stage. */
        (void)truce__map_pipeline(lookup.own, lookup.database, pipeline, &guard, &mapped, &ignored);
        bson_destroy(&mapped);
    }
    return lookup.found;
}
