/*
 * Saves of revisions concurrently with programs that know nothing of the number, on every store:
 * their changes are merged or reported, never overwritten.
 */
#include "tests/support/server.h"
#include "tests/support/test.h"
#include "tests/support/tutorial.h"
#include "truce/revision.h"

static const bson_value_t one = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};

/* The stores, and revisions that are saved by one write (keep 0) or by a commit. */
typedef void plain_function(truce_store *store, uint32_t keep);

static void on_every_store(plain_function *function)
{
    int stores = server_under_test() ? 1 : 2;

    for (int i = 0; i < 2 * stores; i++) {
        truce_store_options options = {.relaxed = true};
        truce_store *store = NULL;
        bson_error_t error;
        char uri[400];

        snprintf(uri, sizeof uri, i / 2 ? "file:%s/r%d.truce" : "memory:", test_directory(), i);
        if (server_under_test())
            store = server_store();
        else if (!CHECK_OK(truce_store_open(uri, &options, &store, &error), error))
            continue;
        function(store, i % 2 ? 3 : 0);
        truce_store_close(store);
    }
}

static void plain_update(truce_store *store, const char *update_json)
{
    bson_t *filter = test_bson("{'_id': 1}"), *update = test_bson(update_json);
    bson_error_t error;

    CHECK_OK(truce_update(store, "posts", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

/* Returns the stored document without truce's fields. */
static void check_stands(truce_store *store, const char *expected_json, int line)
{
    bson_t *filter = test_bson("{'_id': 1}"), *expected = test_bson(expected_json), found;
    bson_t plain = BSON_INITIALIZER;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, "posts", filter, NULL, &found, &error), error);
    bson_copy_to_excluding_noinit(&found, &plain, "_rev", "version", NULL);
    test_bson_equal(expected, &plain, __FILE__, line);
    bson_destroy(&plain);
    bson_destroy(&found);
    bson_destroy(expected);
    bson_destroy(filter);
}
#define STANDS(json) check_stands(store, json, __LINE__)

struct scene {
    const char *first;  /* saved as new */
    const char *plain;  /* the plain update after it was read */
    const char *mine;   /* the document that is saved then */
    const char *saves;  /* the stored document after a successful save; NULL: a conflict */
    const char *merges; /* after a merge; NULL: a conflict */
};

static void play(truce_store *store, uint32_t keep, const struct scene *scene, bool merges)
{
    truce_revision *revision =
        tutorial_revision(store, &(truce_revision_options){.keep = keep, .inbox = true});
    bson_t *first = test_bson(scene->first), *mine = test_bson(scene->mine), base, before;
    bson_t *filter = test_bson("{'_id': 1}");
    const char *wanted = merges ? scene->merges : scene->saves;
    truce_revision_result result;
    bson_error_t error;
    int64_t version;

    CHECK_OK(truce_remove(store, "posts", filter, NULL, NULL, &error), error);
    CHECK_OK(truce_revision_save(revision, NULL, first, TRUCE_REVISION_NEW, NULL, &result, &error),
             error);
    truce_revision_result_release(&result);
    CHECK_OK(truce_revision_get(revision, NULL, &one, &base, &version, &error), error);
    plain_update(store, scene->plain);
    CHECK_OK(truce_find_one(store, "posts", filter, NULL, &before, &error), error);
    CHECK_OK((merges ? truce_revision_merge : truce_revision_save)(revision, NULL, mine, version,
                                                                   &base, &result, &error),
             error);
    if (wanted) {
        CHECK_INT(result.outcome, !=, TRUCE_REVISION_CONFLICT);
        CHECK_INT(result.version, ==, version + 1);
        STANDS(wanted);
    } else {
        bson_t after;

        CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
        CHECK_OK(truce_find_one(store, "posts", filter, NULL, &after, &error), error);
        CHECK_BSON(&before, &after);
        bson_destroy(&after);
    }
    truce_revision_result_release(&result);
    bson_destroy(&before);
    bson_destroy(&base);
    bson_destroy(filter);
    bson_destroy(mine);
    bson_destroy(first);
    truce_revision_free(revision);
}

static const struct scene scenes[] = {
    {"{'_id': 1, 'a': 1, 'b': 1}", "{'$set': {'b': 2}}", "{'_id': 1, 'a': 5, 'b': 1}", NULL,
     "{'_id': 1, 'a': 5, 'b': 2}"},
    {"{'_id': 1, 'a': 1, 'b': 1}", "{'$set': {'a': 2}}", "{'_id': 1, 'a': 5, 'b': 1}", NULL, NULL},
    {"{'_id': 1, 'a': 1}", "{'$set': {'c': 3}}", "{'_id': 1, 'a': 5}", NULL,
     "{'_id': 1, 'a': 5, 'c': 3}"},
    {"{'_id': 1, 'a': 1, 'b': 1}", "{'$unset': {'b': 1}}", "{'_id': 1, 'a': 5, 'b': 1}", NULL,
     "{'_id': 1, 'a': 5}"},
    {"{'_id': 1, 'a': 1, 'd': {'e': {'f': [1, 2]}}}", "{'$push': {'d.e.f': 3}}",
     "{'_id': 1, 'a': 5, 'd': {'e': {'f': [1, 2]}}}", NULL,
     "{'_id': 1, 'a': 5, 'd': {'e': {'f': [1, 2, 3]}}}"},
    /* a null differs from a missing field */
    {"{'_id': 1, 'a': 1}", "{'$set': {'b': null}}", "{'_id': 1, 'a': 5}", NULL,
     "{'_id': 1, 'a': 5, 'b': null}"},
    /* a value that was set back is unchanged */
    {"{'_id': 1, 'a': 1, 'b': 1}", "{'$set': {'b': 1}}", "{'_id': 1, 'a': 5, 'b': 1}",
     "{'_id': 1, 'a': 5, 'b': 1}", "{'_id': 1, 'a': 5, 'b': 1}"},
};

static const struct scene types[] = {
    {"{'_id': 1, 'a': 1, 'n': 5}", "{'$set': {'n': {'$numberDecimal': '5'}}}",
     "{'_id': 1, 'a': 2, 'n': 5}", "{'_id': 1, 'a': 2, 'n': {'$numberDecimal': '5'}}",
     "{'_id': 1, 'a': 2, 'n': {'$numberDecimal': '5'}}"},
    {"{'_id': 1, 'a': 1, 'l': [{'n': 5}]}", "{'$set': {'l.0.n': {'$numberDecimal': '5'}}}",
     "{'_id': 1, 'a': 2, 'l': [{'n': 5}]}",
     "{'_id': 1, 'a': 2, 'l': [{'n': {'$numberDecimal': '5'}}]}",
     "{'_id': 1, 'a': 2, 'l': [{'n': {'$numberDecimal': '5'}}]}"},
};

static void all_scenes(truce_store *store, uint32_t keep)
{
    for (size_t i = 0; i < 2 * sizeof scenes / sizeof *scenes; i++)
        play(store, keep, &scenes[i / 2], i % 2);
}

static void all_types(truce_store *store, uint32_t keep)
{
    for (size_t i = 0; i < 2 * sizeof types / sizeof *types; i++)
        play(store, keep, &types[i / 2], i % 2);
}

TEST(a_plain_write_that_raises_no_number_is_merged_or_reported)
{
    on_every_store(all_scenes);
}

TEST(keeps_the_new_type_of_a_number_that_mine_did_not_change)
{
    on_every_store(all_types);
}

/* A base that went through JSON, or whose fields changed places, still counts as the read one. */
static void sloppy_bases(truce_store *store, uint32_t keep)
{
    static const char *const bases[] = {
        "{'n': {'$numberLong': '5'}, '_id': 1, 'a': 1}",
        "{'_id': 1, 'a': 1.0, 'n': 5}",
        "{'a': 1, 'n': 5}",
        "{'_id': 1, 'a': 1, 'n': {'$numberLong': '5'}, 'version': 1}",
    };
    truce_revision *revision = tutorial_revision(store, &(truce_revision_options){.keep = keep});
    bson_t *first = test_bson("{'_id': 1, 'a': 1, 'n': {'$numberLong': '5'}}");
    bson_t *filter = test_bson("{'_id': 1}");
    truce_revision_result result;
    bson_error_t error;

    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        bson_t *base = test_bson(bases[i]), *mine = test_bson("{'_id': 1, 'a': 2, 'n': 5}");
        int64_t version;

        CHECK_OK(truce_remove(store, "posts", filter, NULL, NULL, &error), error);
        CHECK_OK(
            truce_revision_save(revision, NULL, first, TRUCE_REVISION_NEW, NULL, &result, &error),
            error);
        version = result.version;
        truce_revision_result_release(&result);
        CHECK_OK(truce_revision_save(revision, NULL, mine, version, base, &result, &error), error);
        CHECK_INT(result.outcome, ==, TRUCE_REVISION_SAVED);
        truce_revision_result_release(&result);
        bson_destroy(mine);
        bson_destroy(base);
    }
    bson_destroy(filter);
    bson_destroy(first);
    truce_revision_free(revision);
}

TEST(an_equal_base_counts_as_the_read_one)
{
    on_every_store(sloppy_bases);
}

/* A save in a commit of the caller's compares, too. */
struct caller {
    truce_revision *revision;
    const bson_t *mine, *base;
    truce_revision_result *result;
};

static truce_status save_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct caller *caller = arg;

    truce_revision_result_release(caller->result);
    return truce_revision_save(caller->revision, commit, caller->mine, 1, caller->base,
                               caller->result, error);
}

static void in_commits(truce_store *store, uint32_t keep)
{
    truce_revision *revision = tutorial_revision(store, &(truce_revision_options){.keep = keep});
    bson_t *first = test_bson("{'_id': 1, 'a': 1}"), *mine = test_bson("{'_id': 1, 'a': 2}");
    truce_revision_result result;
    struct caller caller = {revision, mine, first, &result};
    bson_error_t error;

    CHECK_OK(truce_revision_save(revision, NULL, first, TRUCE_REVISION_NEW, NULL, &result, &error),
             error);
    plain_update(store, "{'$set': {'a': 7}}");
    CHECK_OK(truce_transact(store, save_in, &caller, NULL, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    STANDS("{'_id': 1, 'a': 7}");
    truce_revision_result_release(&result);
    bson_destroy(mine);
    bson_destroy(first);
    truce_revision_free(revision);
}

TEST(a_save_in_a_commit_compares_the_read_document)
{
    on_every_store(in_commits);
}
