#include "tests/support/server.h"

#include <stdlib.h>
#include <unistd.h>

static truce_store *kept;
static const truce_store_ops *kept_ops;
static truce_store_ops lent_ops;
static int database;

const char *server_uri(char *text, size_t size, const char *options)
{
    const char *where = getenv("TRUCE_TEST_MONGODB");
    const char *query = where ? strchr(where, '?') : NULL;
    int length = query ? (int)(query - where) : where ? (int)strlen(where) : 0;

    while (length > 0 && where[length - 1] == '/')
        length--;
    snprintf(text, size, "%.*s/truce_test_%d_%d?%s%s%s%s", length, where ? where : "",
             (int)getpid(), database, query ? query + 1 : "directConnection=true",
             "&socketTimeoutMS=20000", *options ? "&" : "", options);
    return text;
}

/* Replaces the close function of the store, because the next test uses the store again. */
static void stay(truce_store *store)
{
    (void)store;
}

/* Drops every collection. Returns false if the server refuses one because of its state. */
static bool empty(truce_store *store)
{
    bson_t collections;
    bson_iter_t iter, field;
    bool dropped = !truce_collection_list(store, NULL, &collections, NULL);

    for (bson_iter_init(&iter, &collections); bson_iter_next(&iter);)
        if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name"))
            dropped = !truce_collection_drop(store, bson_iter_utf8(&field, NULL), NULL) && dropped;
    bson_destroy(&collections);
    return dropped;
}

void server_release(void)
{
    if (!kept)
        return;
    kept->ops = kept_ops;
    truce_store_close(kept);
    kept = NULL;
}

truce_store *server_store(void)
{
    bson_error_t error;
    char uri[600];

    if (!kept) {
        if (truce_store_open(server_uri(uri, sizeof(uri), ""), NULL, &kept, &error)) {
            fprintf(stderr, "%s: %s\n", uri, error.message);
            return NULL;
        }
        kept_ops = kept->ops;
        lent_ops = *kept_ops;
        lent_ops.close = stay;
        if (!database)
            atexit(server_release);
    }
    kept->ops = &lent_ops;
    if (empty(kept))
        return kept;
    server_release();
    database++;
    return server_store();
}

bool server_under_test(void)
{
    return getenv("TRUCE_TEST_SERVER") != NULL;
}

static truce_store *open_fresh(const char *uri)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open(uri, NULL, &store, &error)) {
        fprintf(stderr, "%s: %s\n", uri, error.message);
        abort();
    }
    return store;
}

truce_store *server_or_memory(void)
{
    return server_under_test() ? server_store() : open_fresh("memory:");
}

bool server_kill(void)
{
    const char *command = getenv("TRUCE_TEST_SERVER_KILL");

    return command && system(command) == 0;
}
