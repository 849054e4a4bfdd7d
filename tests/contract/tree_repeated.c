/*
 * An edit under an id of the caller's. A caller without an answer begins again, and there is one
 * version of the edit, whatever was published, settled, or collected in the meantime.
 */
#include <pthread.h>

#include "tests/support/tree_rig.h"

#define ID "0123456789abcdef01234567"

struct attempt {
    int64_t base;
    bool merges;
    const bson_oid_t *token; /* continues that edit */
    truce_tree_published published;
};

static truce_status begin(truce_tree *tree, const struct attempt *attempt, truce_tree_edit **edit,
                          bson_error_t *error)
{
    truce_tree_edit_options options = {
        .base = attempt->base, .token = attempt->token, .message = "mine"};
    bson_oid_t id;

    bson_oid_init_from_string(&id, ID);
    options.id = attempt->token ? NULL : &id; /* the edit has kept it */
    return truce_tree_begin(tree, &options, edit, error);
}

static truce_status publish(truce_tree *tree, struct attempt *attempt, bson_error_t *error)
{
    truce_tree_rebase_options mine = {.prefer = TRUCE_TREE_MINE};
    truce_tree_edit *edit;
    truce_status status = begin(tree, attempt, &edit, error);

    if (!status && !attempt->token)
        status = rig_put(edit, "{'itemId': 'm', 'text': '1'}", error);
    if (!status)
        status = truce_tree_publish(edit, NULL, &attempt->published, error);
    while (status == TRUCE_CONFLICT && attempt->merges) {
        status = truce_tree_rebase(edit, &mine, NULL, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, &attempt->published, error);
    }
    truce_tree_edit_free(edit);
    return status;
}

#define CHECK_PUBLISHED(version_, exists_, tree, ...)                                              \
    do {                                                                                           \
        struct attempt tried = {__VA_ARGS__};                                                      \
        bson_error_t tried_error = {0};                                                            \
        CHECK_OK(publish(tree, &tried, &tried_error), tried_error);                                \
        CHECK_INT(tried.published.version, ==, version_);                                          \
        CHECK_INT(tried.published.exists, ==, exists_);                                            \
        CHECK(!tried.published.nothing);                                                           \
    } while (0)

static void begins_again(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct attempt attempt = {.base = 1};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_PUBLISHED(2, false, tree, .base = 1);
    CHECK_PUBLISHED(2, true, tree, .base = 1);
    CHECK_PUBLISHED(2, true, tree, .base = 0);
    CHECK_OK(rig_publish(tree, "m=2", NULL, &error), error);
    CHECK_PUBLISHED(2, true, tree, .base = 1, .merges = true);
    CHECK_PUBLISHED(2, true, tree, .base = 0);
    rig_collect(tree, NULL); /* all versions are settled */
    CHECK_PUBLISHED(2, true, tree, .base = 1, .merges = true);
    CHECK_TREE("a=1 m=2", tree, 0);
    rig_keep(tree, 1);
    rig_collect(tree, NULL);
    CHECK_STATUS(TRUCE_EXPIRED, publish(tree, &attempt, &error), error);
    CHECK_TREE("a=1 m=2", tree, 0);
    CHECK_INT(count_json(store, "truce_tree_edits", "{'state': 'open'}"), ==, 0);
    truce_tree_free(tree);
}

TEST(an_edit_under_an_id_is_published_once)
{
    rig_everywhere(begins_again);
}

/* Merged, it is a later version than the one after its base. The same edit finds it anyway, and
 * so does an editor that continues from it. */
static void merges_once(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct attempt attempt = {.base = 1};
    truce_tree_edit *edit, *other;
    truce_tree_published published = {0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(begin(tree, &attempt, &edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'm', 'text': '1'}", &error), error);
    CHECK_OK(begin(tree, &attempt, &other, &error), error);
    CHECK_OK(rig_put(other, "{'itemId': 'm', 'text': '1'}", &error), error);
    CHECK_OK(truce_tree_flush(other, &error), error);
    CHECK_OK(rig_publish(tree, "b=1", NULL, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, publish(tree, &attempt, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_rebase(edit, NULL, NULL, &error), error);
    CHECK_PUBLISHED(3, false, tree, .base = 1, .merges = true);
    CHECK_OK(truce_tree_publish(edit, NULL, &published, &error), error);
    CHECK_INT(published.version, ==, 3);
    CHECK(published.exists);
    CHECK_STATUS(TRUCE_INVALID, rig_put(edit, "{'itemId': 'x', 'text': '1'}", &error), error);
    CHECK_PUBLISHED(3, true, tree, .base = 1, .token = truce_tree_edit_token(other));
    CHECK_PUBLISHED(3, true, tree, .base = 2);
    CHECK_PUBLISHED(4, false, tree, .base = 3); /* after this it is another one */
    CHECK_TREE("a=1 b=1 m=1", tree, 0);
    truce_tree_edit_free(other);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(an_edit_under_an_id_is_merged_once)
{
    rig_everywhere(merges_once);
}

struct together {
    truce_tree_edit *edit;
    truce_tree_published published;
};

/* A truce_commit_function. */
static truce_status publish_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct together *together = arg;

    return truce_tree_publish(together->edit, commit, &together->published, error);
}

static void with_a_commit(truce_store *store, const struct setting *setting)
{
    truce_commit_options how = {.mechanism = setting->mechanism};
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct attempt attempt = {.base = 1};
    struct together together = {0};
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_PUBLISHED(2, false, tree, .base = 1);
    CHECK_OK(begin(tree, &attempt, &together.edit, &error), error);
    CHECK_OK(rig_put(together.edit, "{'itemId': 'm', 'text': '9'}", &error), error);
    CHECK_OK(truce_transact(store, publish_in, &together, &how, &error), error);
    CHECK(together.published.exists);
    CHECK_INT(together.published.version, ==, 2);
    CHECK_TREE("a=1 m=1", tree, 0);
    truce_tree_edit_free(together.edit);
    truce_tree_free(tree);
}

TEST(an_edit_under_an_id_is_found_in_a_commit)
{
    rig_everywhere(with_a_commit);
}

/* ---- at once --------------------------------------------------------------------------------- */

#define TWINS 4

struct twin {
    truce_store *store;
    struct attempt attempt;
    int status;
};

static void *twin(void *arg)
{
    struct twin *one = arg;
    truce_tree *tree = rig_tree(one->store, NULL, 0);
    bson_error_t error = {0};

    one->attempt = (struct attempt){.base = 1, .merges = true};
    one->status = publish(tree, &one->attempt, &error);
    truce_tree_free(tree);
    return NULL;
}

static void *other(void *arg)
{
    struct twin *one = arg;
    truce_tree *tree = rig_tree(one->store, NULL, 0);
    bson_error_t error = {0};

    for (int i = 0; i < 5; i++)
        (void)!rig_publish(tree, i % 2 ? "b=1" : "b=2", NULL, &error);
    truce_tree_free(tree);
    return NULL;
}

static void races(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct twin twins[TWINS];
    pthread_t threads[TWINS + 1];
    bson_error_t error = {0};
    int fresh = 0;

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    for (int i = 0; i < TWINS; i++) {
        twins[i].store = store;
        REQUIRE(!pthread_create(&threads[i], NULL, twin, &twins[i]));
    }
    REQUIRE(!pthread_create(&threads[TWINS], NULL, other, &twins[0]));
    for (int i = 0; i <= TWINS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < TWINS; i++) {
        CHECK_INT(twins[i].status, ==, TRUCE_OK);
        CHECK_INT(twins[i].attempt.published.version, ==, twins[0].attempt.published.version);
        fresh += !twins[i].attempt.published.exists;
    }
    CHECK_INT(fresh, ==, 1);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(store, "truce_tree_edits", "{'message': 'mine', 'pub': true}"), ==, 1);
    truce_tree_free(tree);
}

TEST(one_of_many_concurrent_repeats_publishes)
{
    rig_everywhere(races);
}
