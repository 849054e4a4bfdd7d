/*
 * Denormalized copies: renaming a user updates the author's name in the comments.
 *
 * Run it twice, with different names.
 *
 *     cc rename.c $(pkg-config --cflags --libs truce) -o rename && ./rename Johnny blog.truce
 */
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

/* Inserts the document unless it exists. */
static void put(truce_sync *sync, const char *collection, bson_t *document)
{
    bson_error_t error;
    truce_status status = truce_sync_insert(sync, NULL, collection, document, NULL, &error);

    if (status != TRUCE_DUPLICATE)
        must(status, &error);
    bson_destroy(document);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "Johnny";
    bson_value_t ada = truce_id_utf8("ada");
    bson_t *copies = BCON_NEW("author", "name"),
           *update = BCON_NEW("$set", "{", "name", BCON_UTF8(name), "}");
    truce_sync_rule rule = {
        .name = "author",
        .source = "users",
        .dependent = "comments",
        .reference = "user",
        .copies = copies,
        /* No other process is running, so there is no need to wait for one. */
        .settle_ms = 1,
    };
    truce_sync_result result;
    truce_store *store;
    truce_sync *sync;
    bson_error_t error;

    must(truce_store_open(argc > 2 ? argv[2] : "blog.truce", NULL, &store, &error), &error);
    sync = truce_sync_new(store, NULL);
    must(truce_sync_declare(sync, &rule, &error), &error);
    put(sync, "users", BCON_NEW("_id", "ada", "name", "Ada"));
    put(sync, "comments", BCON_NEW("_id", "first", "user", "ada"));
    put(sync, "comments", BCON_NEW("_id", "second", "user", "ada"));
    must(truce_sync_update(sync, NULL, "users", &ada, update, &result, &error), &error);
    printf("updated %lld comments to %s\n", (long long)result.copies, name);
    truce_sync_free(sync);
    truce_store_close(store);
    bson_destroy(update);
    bson_destroy(copies);
    return 0;
}
