#ifndef TRUCE_TESTS_SUPPORT_TREE_RIG_H
#define TRUCE_TESTS_SUPPORT_TREE_RIG_H

/* The common part of the tests of versions: a tree of pages, written and read as short strings. */
#include <string.h>

#include "tests/support/bank.h"

static inline truce_tree *rig_tree(truce_store *store, const char *parent, uint32_t deadline_ms)
{
    return truce_tree_new(store, &(truce_tree_options){.collection = "pages",
                                                       .name = "site",
                                                       .parent = parent,
                                                       .deadline_ms = deadline_ms});
}

static inline truce_status rig_put(truce_tree_edit *edit, const char *json, bson_error_t *error)
{
    bson_t *item = test_bson(json);
    truce_status status = truce_tree_put(edit, item, error);

    bson_destroy(item);
    return status;
}

static inline truce_status rig_drop(truce_tree_edit *edit, const char *id, bson_error_t *error)
{
    bson_value_t value = text_id(id);

    return truce_tree_remove(edit, &value, error);
}

/* Begins an edit, and does not publish it. `changes` is like "a=1 b=2 -c": puts items with a text,
 * and removes the item c. */
static inline truce_status rig_edit(truce_tree *tree, const char *changes, truce_tree_edit **edit,
                                    bson_error_t *error)
{
    char text[1000], *rest = text;
    truce_status status = truce_tree_begin(tree, NULL, edit, error);

    snprintf(text, sizeof text, "%s", changes);
    for (char *one; !status && (one = strtok_r(rest, " ", &rest));) {
        char *is = strchr(one, '='), json[120];

        if (is)
            *is = 0;
        snprintf(json, sizeof json, "{'itemId': '%s', 'text': '%s'}", one, is ? is + 1 : "");
        status = is ? rig_put(*edit, json, error) : rig_drop(*edit, one + 1, error);
    }
    return status;
}

static inline truce_status rig_publish(truce_tree *tree, const char *changes, int64_t *version,
                                       bson_error_t *error)
{
    truce_tree_edit *edit;
    truce_tree_published published = {0};
    truce_status status = rig_edit(tree, changes, &edit, error);

    if (!status)
        status = truce_tree_publish(edit, NULL, &published, error);
    if (version)
        *version = published.version;
    truce_tree_edit_free(edit);
    return status;
}

struct rig_text {
    char text[1000];
};

static inline bool rig_append(const bson_t *item, void *arg)
{
    struct rig_text *all = arg;
    bson_iter_t iter;
    size_t length = strlen(all->text);

    snprintf(all->text + length, sizeof all->text - length, "%s%s", length ? " " : "",
             bson_iter_init_find(&iter, item, "itemId") && BSON_ITER_HOLDS_UTF8(&iter)
                 ? bson_iter_utf8(&iter, NULL)
                 : "?");
    length = strlen(all->text);
    if (bson_iter_init_find(&iter, item, "text") && BSON_ITER_HOLDS_UTF8(&iter))
        snprintf(all->text + length, sizeof all->text - length, "=%s", bson_iter_utf8(&iter, NULL));
    return true;
}

/* Reads a version as "a=1 b=2". 0 is the current version. */
static inline truce_status rig_see(truce_tree *tree, int64_t version, struct rig_text *seen,
                                   bson_error_t *error)
{
    truce_tree_at at = {.version = version};
    truce_tree_snapshot *snapshot;
    truce_status status = truce_tree_open(tree, &at, &snapshot, error);

    seen->text[0] = 0;
    if (!status)
        status = truce_tree_find(snapshot, NULL, NULL, rig_append, seen, error);
    truce_tree_close(snapshot);
    return status;
}

#define CHECK_TREE(wanted, tree, version)                                                          \
    do {                                                                                           \
        struct rig_text seen;                                                                      \
        bson_error_t see_error = {0};                                                              \
        CHECK_OK(rig_see(tree, version, &seen, &see_error), see_error);                            \
        CHECK_TEXT(wanted, seen.text);                                                             \
    } while (0)

static inline void rig_collect(truce_tree *tree, truce_tree_collected *collected)
{
    bson_error_t error = {0};

    CHECK_OK(truce_tree_collect(tree, collected, &error), error);
}

static inline void rig_keep(truce_tree *tree, int64_t versions)
{
    bson_error_t error = {0};

    CHECK_OK(truce_tree_retain(tree, &(truce_tree_keep){.versions = versions}, &error), error);
}

#endif
