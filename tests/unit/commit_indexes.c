/* Commits on collections with index kinds that truce does not have, as on a server. Indexes that
 * are not unique do not affect a commit. */
#include "tests/support/bank.h"

static const truce_store_ops *inner;
static const char *more; /* additional definitions that the store reports */

static truce_status list(truce_store *store, const char *collection, bson_t *indexes,
                         bson_error_t *error)
{
    truce_status status = inner->index_list(store, collection, indexes, error);
    bson_t *reported = test_bson(more);
    bson_iter_t iter;
    char key[16];

    bson_iter_init(&iter, reported);
    while (!strcmp(collection, "accounts") && bson_iter_next(&iter)) {
        snprintf(key, sizeof key, "%u", bson_count_keys(indexes));
        bson_append_iter(indexes, key, -1, &iter);
    }
    bson_destroy(reported);
    return status;
}

/* A memory store that reports these indexes, too. */
static truce_store *open_with(const char *definitions, truce_store_ops *ops)
{
    truce_store *store = open_setting(&settings[1]);

    more = definitions;
    inner = store->ops;
    *ops = *inner;
    ops->index_list = list;
    store->ops = ops;
    insert_json(store, "accounts", "{'_id': 'a', 'n': 10, 'mail': 'x'}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 0, 'mail': 'y'}");
    return store;
}

static const char *updates[2];

static truce_status move(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = add_update(commit, "accounts", "a", NULL, updates[0], error);

    (void)arg;
    return status ? status : add_update(commit, "accounts", "b", NULL, updates[1], error);
}

static truce_status transact(truce_store *store, const char *a, const char *b, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};

    updates[0] = a;
    updates[1] = b;
    return truce_transact(store, move, NULL, &options, error);
}

#define STRANGE                                                                                    \
    "{'v': 2, 'key': {'mail': 'hashed'}, 'name': 'mail_hashed'}, "                                 \
    "{'v': 2, 'key': {'k.s': 'hashed', 'n': 1}, 'name': 'k_hashed'}, "                             \
    "{'v': 2, 'key': {'_fts': 'text', '_ftsx': 1}, 'name': 'text', 'weights': {'text': 1}, "       \
    "'default_language': 'english', 'language_override': 'language', 'textIndexVersion': 3}, "     \
    "{'v': 2, 'key': {'place': '2dsphere'}, 'name': 'place', '2dsphereIndexVersion': 3}, "         \
    "{'v': 2, 'key': {'mail': 1}, 'name': 'folded', 'collation': {'locale': 'en', 'strength': "    \
    "2}}, "                                                                                        \
    "{'v': 2, 'key': {'$**': 1}, 'name': 'all', 'wildcardProjection': {'n': 1}}, "                 \
    "{'v': 2, 'key': {'n': 1}, 'name': 'later', 'prepareUnique': true, 'hidden': true}, "          \
    "{'v': 2, 'key': {'x': 'of a later version'}, 'name': 'later2', 'what': 1}"

TEST(commits_despite_indexes_of_other_kinds)
{
    truce_store_ops ops;
    truce_store *store = open_with("[" STRANGE "]", &ops);
    bson_error_t error = {0};

    CHECK_OK(
        transact(store, "{'$inc': {'n': -5}, '$set': {'mail': 'z'}}", "{'$inc': {'n': 5}}", &error),
        error);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'a', 'n': 5, 'mail': 'z'}"), ==, 1);
    truce_store_close(store);
}

TEST(refuses_before_the_decision_what_a_hashed_index_refuses)
{
    static const char *const wrong[] = {
        "{'$set': {'mail': ['x']}}",
        "{'$set': {'mail': []}}",
        "{'$set': {'k': [{'s': 1}]}}",
        "{'$set': {'k': {'s': [1, 2]}}}",
    };
    truce_store_ops ops;
    truce_store *store = open_with("[" STRANGE "]", &ops);

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bson_error_t error = {0};

        CHECK_STATUS(TRUCE_INVALID, transact(store, "{'$inc': {'n': -5}}", wrong[i], &error),
                     error);
        CHECK(strstr(error.message, "hashed") != NULL);
    }
    CHECK_INT(count_json(store, "accounts", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'a', 'n': 10}"), ==, 1);
    truce_store_close(store);
}

TEST(a_unique_index_that_truce_cannot_keep_is_named)
{
    truce_store_ops ops;
    truce_store *store =
        open_with("[{'v': 2, 'key': {'mail': 1}, 'name': 'folded', 'unique': true, 'collation': "
                  "{'locale': 'en'}}]",
                  &ops);
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID,
                 transact(store, "{'$inc': {'n': -5}}", "{'$inc': {'n': 5}}", &error), error);
    CHECK(strstr(error.message, "folded") != NULL);
    truce_store_close(store);
}

TEST(counts_hidden_and_clustered_unique_indexes)
{
    truce_store_ops ops;
    truce_store *store =
        open_with("[{'v': 2, 'key': {'mail': 1}, 'name': 'mail', 'unique': true, 'hidden': true}, "
                  "{'v': 2, 'key': {'_id': 1}, 'name': 'clustered', 'unique': true, 'clustered': "
                  "true}]",
                  &ops);
    bson_error_t error = {0};

    CHECK_OK(transact(store, "{'$inc': {'n': -5}}", "{'$inc': {'n': 5}}", &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 transact(store, "{'$set': {'mail': 'new'}}", "{'$inc': {'n': 5}}", &error), error);
    CHECK(strstr(error.message, "\"mail\"") != NULL);
    truce_store_close(store);
}

static truce_status move_by(truce_store *store, const struct setting *setting, const char *b,
                            bson_error_t *error)
{
    truce_commit_options options = {.mechanism = setting->mechanism};

    updates[0] = "{'$inc': {'n': -5}}";
    updates[1] = b;
    return truce_transact(store, move, NULL, &options, error);
}

/* If a path ends at a scalar within an array, the index contains null, but {"m.at": null} does not
 * match the document. */
static void null_of_an_array(truce_store *store, const struct setting *setting)
{
    bson_t *index = test_bson("{'key': {'m.at': 1}, 'unique': true}");
    truce_unique_options declare = {.settle_ms = 1};
    truce_unique_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_index_create(store, "accounts", index, &error), error);
    insert_json(store, "accounts", "{'_id': 'a', 'n': 10, 'm': {'at': 1}}");
    insert_json(store, "accounts", "{'_id': 'b', 'm': {'at': 2}}");
    CHECK_OK(truce_unique_declare(store, "accounts", &declare, &report, &error), error);
    insert_json(store, "accounts", "{'_id': 'c', 'm': [7]}"); /* by a plain writer */
    CHECK_STATUS(TRUCE_DUPLICATE, move_by(store, setting, "{'$unset': {'m': 1}}", &error), error);
    CHECK_OK(move_by(store, setting, "{'$set': {'m.at': 3}}", &error), error);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'a', 'n': 5, '_intent': {'$exists': false}}"),
              ==, 1);
    bson_destroy(index);
}

TEST(a_null_that_an_index_has_of_an_array_is_taken)
{
    on_every_setting(null_of_an_array);
}
