#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * Versioned trees in the simulator: one tree with three items. Callers publish edits of all three
 * items, alone, rebased until they succeed, and in commits that also count. Others read the current
 * version, the first one, or one that they hold. Others collect old versions and keep two. Each
 * reader
 *
 *     sees all items of one edit, and can read a version that it holds to the end
 *
 * After every write of the order, gone <= floor <= settled <= current. At the end, each stored
 * version is what its edit wrote, no two edits have one version, and the count agrees.
 */

enum { PUBLISH, PUBLISH_LESS, REBASE, ORDER, READ, READ_FIRST, READ_HELD, COLLECT };

static const int tree_calls[] = {PUBLISH,    PUBLISH_LESS, REBASE,  ORDER,  READ,
                                 READ_FIRST, READ_HELD,    COLLECT, COLLECT};

/* The mark of an edit is MARK + the number of its call. */
#define MARK 100

static truce_tree *tree_on(truce_store *store)
{
    return truce_tree_new(
        store,
        &(truce_tree_options){.collection = "pages", .name = "site", .deadline_ms = DEADLINE_MS});
}

/* ---- calling --------------------------------------------------------------------------------- */

/* Writes "a", "b", and "c" with the mark; an odd mark has no "c". */
static truce_status put_all(truce_tree_edit *edit, int mark, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (const char *name = "abc"; !status && *name; name++) {
        const char text[] = {*name, 0};
        bson_value_t id = truce_id_utf8(text);
        bson_t *item = BCON_NEW("itemId", BCON_UTF8(text), "mark", BCON_INT32(mark));

        status = *name == 'c' && mark % 2 ? truce_tree_remove(edit, &id, error)
                                          : truce_tree_put(edit, item, error);
        bson_destroy(item);
    }
    return status;
}

struct order {
    truce_tree_edit *edit;
    truce_tree_published published;
};

static truce_status tree_publish_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    bson_value_t one = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    bson_t *count = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = truce_tree_publish(order->edit, commit, &order->published, error);

    if (!status)
        status = truce_commit_update(commit, "orders", &one, NULL, count, error);
    bson_destroy(count);
    return status;
}

/* Publishes an edit of all items with the mark. A rebase is repeated until the publication
 * succeeds. *version is 0 after a failure. */
static truce_status sim_tree_publish(struct client *client, truce_tree *tree, int verb, int mark,
                                     int64_t *version, bson_error_t *error)
{
    const truce_commit_options options = {
        .mechanism = client->script->journal ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_AUTO,
        .lease_ms = LEASE_MS,
        .deadline_ms = DEADLINE_MS};
    truce_tree_rebase_options mine = {.prefer = TRUCE_TREE_MINE};
    struct order order = {0};
    truce_status status = truce_tree_begin(tree, NULL, &order.edit, error);

    if (!status)
        status = put_all(order.edit, mark, error);
    if (!status && verb == ORDER)
        status = truce_transact(&client->store, tree_publish_in, &order, &options, error);
    else if (!status)
        status = truce_tree_publish(order.edit, NULL, &order.published, error);
    while (status == TRUCE_CONFLICT && verb == REBASE) {
        status = truce_tree_rebase(order.edit, &mine, NULL, error);
        if (!status)
            status = truce_tree_publish(order.edit, NULL, &order.published, error);
    }
    *version = status ? 0 : order.published.version;
    truce_tree_edit_free(order.edit);
    return status;
}

struct seen {
    /* The marks of "a", "b", and "c", or 0 for a missing item. */
    int marks[3];
};

/* Notes the mark of an item (a truce_tree_function). */
static bool sim_tree_note_mark(const bson_t *item, void *arg)
{
    struct seen *seen = arg;
    int which = truce__field_text(item, "itemId")[0] - 'a';

    if (which >= 0 && which < 3)
        seen->marks[which] = (int)truce__field_number(item, "mark");
    return true;
}

static bool tree_is_whole(const struct seen *seen)
{
    return seen->marks[0] && seen->marks[0] == seen->marks[1] &&
           seen->marks[2] == (seen->marks[0] % 2 ? 0 : seen->marks[0]);
}

static void tree_wrong(struct run *run, const char *what, const struct seen *seen)
{
    bson_t *about = BCON_NEW("a", BCON_INT32(seen->marks[0]), "b", BCON_INT32(seen->marks[1]), "c",
                             BCON_INT32(seen->marks[2]));

    truce__sim_fail(run, what, about);
    bson_destroy(about);
}

/* Reads a version twice, and checks that both reads see the same items of one edit. A version with
 * a hold must not expire. */
static truce_status sim_tree_read(struct client *client, truce_tree *tree, int verb,
                                  bson_error_t *error)
{
    truce_tree_at at = {.version = verb == READ_FIRST, .hold = verb == READ_HELD};
    truce_tree_snapshot *snapshot;
    truce_status status = truce_tree_open(tree, &at, &snapshot, error);
    struct seen first = {{0}};

    for (int i = 0; !status && i < 2; i++) {
        struct seen seen = {{0}};

        status = truce_tree_find(snapshot, NULL, NULL, sim_tree_note_mark, &seen, error);
        if (!status && !tree_is_whole(&seen))
            tree_wrong(client->run, "a reader saw items of two edits", &seen);
        if (!status && i && memcmp(&seen, &first, sizeof seen) != 0)
            tree_wrong(client->run, "a version has changed", &seen);
        if (status == TRUCE_EXPIRED && at.hold)
            tree_wrong(client->run, "a reader could not read a version that it holds", &seen);
        first = seen;
    }
    truce_tree_close(snapshot);
    return status;
}

static truce_status call_tree(struct client *client, int number, int txn, bson_error_t *error)
{
    truce_tree *tree = tree_on(&client->store);
    int verb = tree_calls[number], mark = 2 * (MARK + txn) + (verb == PUBLISH_LESS);
    int64_t version = 0;
    truce_status status;

    if (verb == COLLECT)
        status = truce_tree_collect(tree, NULL, error);
    else if (verb >= READ)
        status = sim_tree_read(client, tree, verb, error);
    else
        status = sim_tree_publish(client, tree, verb, mark, &version, error);
    client->run->patterns.about[txn] = version;
    truce_tree_free(tree);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void begin_tree(struct run *run)
{
    truce_tree *tree = tree_on(run->inner);
    truce_tree_edit *edit;
    bson_error_t error;

    truce_assert(!truce_tree_begin(tree, NULL, &edit, &error));
    truce_assert(!put_all(edit, 2, &error));
    truce_assert(!truce_tree_publish(edit, NULL, NULL, &error));
    truce_tree_edit_free(edit);
    truce_assert(!truce_tree_retain(tree, &(truce_tree_keep){.versions = 2}, &error));
    truce_tree_free(tree);
}

static void observe_master(struct run *run, const bson_t *order)
{
    bson_t *filter = BCON_NEW("_id", "site"), master;
    bson_error_t error;

    (void)order;
    if (!truce_find_one(run->inner, "truce_trees", filter, NULL, &master, &error) &&
        !(truce__field_number(&master, "gone") <= truce__field_number(&master, "floor") &&
          truce__field_number(&master, "floor") <= truce__field_number(&master, "settled") &&
          truce__field_number(&master, "settled") <= truce__field_number(&master, "current")))
        truce__sim_fail(run, "the version numbers of a tree are not in order", &master);
    bson_destroy(&master);
    bson_destroy(filter);
}

/* Drops all holds, because a dead reader's hold ends with its lease. */
static void tree_drop_holds(struct run *run)
{
    bson_t *all = bson_new();
    truce_write_options many = {.multi = true};
    bson_error_t error;

    truce_assert(!truce_remove(run->inner, "truce_tree_holds", all, &many, NULL, &error));
    bson_destroy(all);
}

/* Checks that the version has all items of one edit: that with the mark, or any if `mark` is 0. A
 * collected version is correct. */
static void tree_check_version(struct run *run, truce_tree *tree, int64_t version, int mark)
{
    truce_tree_at at = {.version = version};
    truce_tree_snapshot *snapshot;
    struct seen seen = {{0}};
    bson_error_t error;
    truce_status status = truce_tree_open(tree, &at, &snapshot, &error);

    if (!status)
        status = truce_tree_find(snapshot, NULL, NULL, sim_tree_note_mark, &seen, &error);
    truce_tree_close(snapshot);
    if (status == TRUCE_EXPIRED)
        return;
    if (status || !tree_is_whole(&seen))
        tree_wrong(run, "a version has items of two edits", &seen);
    else if (mark && seen.marks[0] != mark)
        tree_wrong(run, "a version is not what its edit wrote", &seen);
}

static void sim_check_orders(struct run *run, const bson_t *document)
{
    int64_t least = 0, most = 0, n = truce__field_number(document, "n");

    for (int t = 0; t < run->history.txns_count; t++) {
        if (tree_calls[run->history.txns[t].script->call] != ORDER || !run->patterns.calls[t].begun)
            continue;
        least += run->patterns.calls[t].known && run->patterns.about[t];
        most += !run->patterns.calls[t].known || run->patterns.about[t];
    }
    if (n < least || n > most)
        truce__sim_fail(run, "an order and its version are not consistent", document);
}

/* Checks all published versions and the count. Then removes the holds, collects all old versions,
 * and checks that the current one is still complete. */
static void sim_check_tree(struct run *run, const bson_t *document)
{
    truce_tree *tree = tree_on(run->inner);
    truce_tree_keep one = {.versions = 1};
    bson_error_t error;

    sim_check_orders(run, document);
    for (int t = 0; t < run->history.txns_count; t++) {
        int verb = tree_calls[run->history.txns[t].script->call];

        if (run->patterns.about[t])
            tree_check_version(run, tree, run->patterns.about[t],
                               2 * (MARK + t) + (verb == PUBLISH_LESS));
        for (int u = 0; run->patterns.about[t] && u < t; u++) {
            if (run->patterns.about[t] == run->patterns.about[u])
                truce__sim_fail(run, "two edits have one version", document);
        }
    }
    tree_drop_holds(run);
    truce_assert(!truce_tree_retain(tree, &one, &error));
    for (int i = 0; i < 2; i++)
        truce_assert(!truce_tree_collect(tree, NULL, &error));
    tree_check_version(run, tree, 0, 0);
    truce_tree_free(tree);
}

const struct sim_pattern truce__sim_tree = {
    .collection = "orders",
    .document = "{\"_id\": 1, \"n\": 0}",
    .calls = sizeof tree_calls / sizeof *tree_calls,
    .positions = 1,
    .begin = begin_tree,
    .call = call_tree,
    .observe = observe_master,
    .check = sim_check_tree,
};
