/*
 * A versioned tree: three pages of a site are changed together.
 *
 * Readers see the old pages or the new ones, never a mixture. Run it twice, with different titles.
 *
 *     cc tree.c $(pkg-config --cflags --libs truce) -o tree && ./tree Welcome site.truce
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

static void put(truce_tree_edit *edit, bson_t *item)
{
    bson_error_t error;

    must(truce_tree_put(edit, item, &error), &error);
    bson_destroy(item);
}

static bool print(const bson_t *item, void *arg)
{
    char *text = bson_as_relaxed_extended_json(item, NULL);

    (void)arg;
    puts(text);
    bson_free(text);
    return true;
}

int main(int argc, char **argv)
{
    const char *title = argc > 1 ? argv[1] : "Welcome";
    truce_tree_options options = {.collection = "pages", .name = "site", .parent = "up"};
    truce_tree_edit_options described = {.message = title};
    truce_tree_published published;
    truce_store *store;
    truce_tree *tree;
    truce_tree_edit *edit;
    truce_tree_snapshot *snapshot;
    bson_error_t error;

    must(truce_store_open(argc > 2 ? argv[2] : "site.truce", NULL, &store, &error), &error);
    tree = truce_tree_new(store, &options);
    must(truce_tree_begin(tree, &described, &edit, &error), &error);
    put(edit, BCON_NEW("itemId", "home", "title", BCON_UTF8(title)));
    put(edit, BCON_NEW("itemId", "about", "up", "home"));
    put(edit, BCON_NEW("itemId", "jobs", "up", "about"));
    must(truce_tree_publish(edit, NULL, &published, &error), &error);
    truce_tree_edit_free(edit);
    must(truce_tree_open(tree, NULL, &snapshot, &error), &error);
    printf("version %lld\n", (long long)truce_tree_version(snapshot));
    must(truce_tree_find(snapshot, NULL, NULL, print, NULL, &error), &error);
    truce_tree_close(snapshot);
    truce_tree_free(tree);
    truce_store_close(store);
    return 0;
}
