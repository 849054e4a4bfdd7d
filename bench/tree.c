/*
 * Measures versions of a tree: 10,000 items are published at once, durably, and then a tenth of
 * them is changed. Then it reads all items of a snapshot, one item, and the children of one item.
 * Each read alternates with the same read of plain documents.
 */
#include <inttypes.h>
#include <stdio.h>

#include "bench/bench.h"
#include "truce/truce.h"

#define ITEMS    10000
#define CHILDREN 100 /* The number of children of each parent. */

static struct trees {
    truce_store *store;
    truce_tree *tree;
} trees;

static bson_t *item(int64_t number, int64_t round)
{
    return BCON_NEW("itemId", BCON_INT64(number), "up", BCON_INT64(number / CHILDREN), "title",
                    BCON_UTF8("a page of the site with a title of some length"), "round",
                    BCON_INT64(round));
}

static double bench_tree_publish(int64_t step, int64_t round)
{
    truce_tree_edit *edit;
    bson_error_t error;
    double began = bench_now();

    BENCH_MUST(truce_tree_begin(trees.tree, NULL, &edit, &error), error);
    for (int64_t i = 0; i < ITEMS; i += step) {
        bson_t *one = item(i, round);

        BENCH_MUST(truce_tree_put(edit, one, &error), error);
        bson_destroy(one);
    }
    BENCH_MUST(truce_tree_publish(edit, NULL, NULL, &error), error);
    truce_tree_edit_free(edit);
    return bench_now() - began;
}

static void tree_make_index(const char *collection, bson_t *index)
{
    bson_error_t error;

    BENCH_MUST(truce_index_create(trees.store, collection, index, &error), error);
    bson_destroy(index);
}

static void put_plainly(void)
{
    bson_error_t error;

    tree_make_index("plain",
                    BCON_NEW("key", "{", "itemId", BCON_INT32(1), "}", "unique", BCON_BOOL(true)));
    tree_make_index("plain", BCON_NEW("key", "{", "up", BCON_INT32(1), "}"));
    tree_make_index("pages", BCON_NEW("key", "{", "tree", BCON_INT32(1), "up", BCON_INT32(1), "}"));
    for (int64_t i = 0; i < ITEMS; i++) {
        bson_t *one = item(i, i % 10 ? 1 : 2);
        truce_write_options relaxed = {.relaxed = true};

        BENCH_MUST(truce_insert(trees.store, "plain", one, &relaxed, &error), error);
        bson_destroy(one);
    }
}

/* ---- reads: how many items, of the tree and plainly ------------------------------------------ */

static bool tree_count_item(const bson_t *one, void *arg)
{
    bson_iter_t iter;

    BENCH_CHECK(bson_iter_init_find(&iter, one, "round"));
    ++*(int64_t *)arg;
    return true;
}

static int64_t find_plainly(bson_t *filter, const bson_t *sort)
{
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int64_t count = 0;

    BENCH_MUST(truce_find(trees.store, "plain", filter, &options, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        (void)tree_count_item(document, &count);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return count;
}

static int64_t find_in_tree(truce_tree_snapshot *snapshot, bson_t *filter)
{
    bson_error_t error;
    int64_t count = 0;

    BENCH_MUST(truce_tree_find(snapshot, filter, NULL, tree_count_item, &count, &error), error);
    if (filter)
        bson_destroy(filter);
    return count;
}

enum kind { ALL, ONE, SOME, KINDS };

static int64_t read_once(enum kind kind, truce_tree_snapshot *snapshot)
{
    int64_t number = (int64_t)bench_random(ITEMS);
    bson_value_t id = truce_id_int64(number);
    bson_t *sort, found;
    bson_error_t error;
    int64_t count;

    if (kind == ALL && !snapshot) {
        sort = BCON_NEW("itemId", BCON_INT32(1));
        count = find_plainly(bson_new(), sort);
        bson_destroy(sort);
        return count;
    }
    if (kind == ALL)
        return find_in_tree(snapshot, NULL);
    if (kind == SOME)
        return snapshot ? find_in_tree(snapshot, BCON_NEW("up", BCON_INT64(number / CHILDREN)))
                        : find_plainly(BCON_NEW("up", BCON_INT64(number / CHILDREN)), NULL);
    if (!snapshot)
        return find_plainly(BCON_NEW("itemId", BCON_INT64(number)), NULL);
    BENCH_MUST(truce_tree_get(snapshot, &id, &found, &error), error);
    bson_destroy(&found);
    return 1;
}

struct comparison {
    enum kind kind;
    int64_t each;
    truce_tree_snapshot *snapshot;
};

static void tree_read_side(void *arg, int side)
{
    const struct comparison *compared = arg;

    BENCH_CHECK(read_once(compared->kind, side ? compared->snapshot : NULL) == compared->each);
}

static void tree_compare(const char *name, enum kind kind, int64_t each,
                         truce_tree_snapshot *snapshot)
{
    struct comparison compared = {kind, each, snapshot};
    double least[2];

    bench_in_turns(tree_read_side, &compared, 6, least);
    printf("%-28s %10.1f us %10.1f us %8.2f x\n", name, least[1] * 1e6, least[0] * 1e6,
           least[1] / least[0]);
}

int main(void)
{
    truce_tree_options options = {.collection = "pages", .name = "site"};
    truce_tree_keep keep = {.versions = 1};
    truce_tree_collected collected;
    truce_tree_snapshot *snapshot;
    bson_error_t error;
    char path[600];
    double began;

    snprintf(path, sizeof path, "%s/tree.truce", bench_directory());
    BENCH_MUST(truce_store_open(path, NULL, &trees.store, &error), error);
    trees.tree = truce_tree_new(trees.store, &options);
    printf("publish %d items           %10.3f s\n", ITEMS, bench_tree_publish(1, 1));
    printf("publish %d changes          %10.3f s\n", ITEMS / 10, bench_tree_publish(10, 2));
    put_plainly();
    BENCH_MUST(truce_tree_open(trees.tree, NULL, &snapshot, &error), error);
    printf("\n%-28s %13s %13s\n", "a read, not settled", "of the tree", "plain");
    tree_compare("all 10,000", ALL, ITEMS, snapshot);
    tree_compare("one by its id", ONE, 1, snapshot);
    tree_compare("100 by their parent", SOME, CHILDREN, snapshot);
    truce_tree_close(snapshot);
    began = bench_now();
    BENCH_MUST(truce_tree_retain(trees.tree, &keep, &error), error);
    BENCH_MUST(truce_tree_collect(trees.tree, &collected, &error), error);
    printf("\nsettle and collect           %10.3f s, %" PRId64 " items removed\n",
           bench_now() - began, collected.items);
    BENCH_CHECK(collected.items == ITEMS / 10 && !collected.more);
    BENCH_MUST(truce_tree_open(trees.tree, NULL, &snapshot, &error), error);
    tree_compare("all 10,000, settled", ALL, ITEMS, snapshot);
    truce_tree_close(snapshot);
    truce_tree_free(trees.tree);
    truce_store_close(trees.store);
    return 0;
}
