/* Documents that are removed, by whatever means, and inserted again: a number of the former
 * document saves nothing. */
#include "tests/support/bank.h"

static truce_revision *open_posts(truce_store *store)
{
    return truce_revision_new(store, &(truce_revision_options){.collection = "posts"});
}

static void save_post(truce_store *store, int64_t version, const char *json,
                      truce_revision_outcome outcome, int64_t *now, int line)
{
    truce_revision *revision = open_posts(store);
    bson_t *mine = test_bson(json);
    truce_revision_result result;
    bson_error_t error = {0};
    truce_status status = truce_revision_save(revision, NULL, mine, version, NULL, &result, &error);

    if (status || result.outcome != outcome)
        test_fail(__FILE__, line, "%s: %s %s, now %lld", json, truce_status_name(status),
                  truce_revision_outcome_name(result.outcome), (long long)result.version);
    if (now)
        *now = result.version;
    truce_revision_result_release(&result);
    bson_destroy(mine);
    truce_revision_free(revision);
}
#define SAVE(version, json, outcome, now)                                                          \
    save_post(store, version, json, TRUCE_REVISION_##outcome, now, __LINE__)

static void remove_plainly(truce_store *store)
{
    bson_t *filter = test_bson("{'_id': 'a'}");
    bson_error_t error = {0};

    CHECK_OK(truce_remove(store, "posts", filter, NULL, NULL, &error), error);
    bson_destroy(filter);
}

static void remove_from(truce_store *store, int64_t version, const char *json,
                        truce_revision_outcome outcome, int64_t *now)
{
    truce_revision *revision = open_posts(store);
    bson_t *base = json ? test_bson(json) : NULL;
    bson_value_t id = text_id("a");
    truce_revision_result result;
    bson_error_t error = {0};

    CHECK_OK(truce_revision_remove(revision, NULL, &id, version, base, &result, &error), error);
    CHECK_INT(result.outcome, ==, outcome);
    *now = result.version;
    truce_revision_result_release(&result);
    bson_destroy(base);
    truce_revision_free(revision);
}

static void remove_post(truce_store *store, int64_t version)
{
    int64_t now;

    remove_from(store, version, NULL, TRUCE_REVISION_SAVED, &now);
}

/* No call accepts a number of a former document for this document. */
static void refuses_former(truce_store *store, int64_t current)
{
    truce_revision *revision = open_posts(store);
    bson_t *mine = test_bson("{'_id': 'a', 'title': 'by an old editor'}"),
           *patch = test_bson("{'$set': {'title': 'by an old editor'}}");
    bson_value_t id = text_id("a");
    bson_error_t error = {0};

    for (int64_t old = 1; old < 9; old++) {
        truce_revision_result result;

        if (old == current)
            continue;
        SAVE(old, "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, NULL);
        CHECK_OK(truce_revision_merge(revision, NULL, mine, old, NULL, &result, &error), error);
        CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
        truce_revision_result_release(&result);
        CHECK_OK(truce_revision_remove(revision, NULL, &id, old, NULL, &result, &error), error);
        CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
        truce_revision_result_release(&result);
        CHECK_OK(truce_revision_patch(revision, NULL, &id, old, false, TRUCE_PATCH_OPERATORS, patch,
                                      &result, &error),
                 error);
        CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
        truce_revision_result_release(&result);
    }
    CHECK_INT(count_json(store, "posts", "{'title': 'by an old editor'}"), ==, 0);
    bson_destroy(patch);
    bson_destroy(mine);
    truce_revision_free(revision);
}

static void edits(truce_store *store, int64_t *version)
{
    for (int i = 0; i < 3; i++) {
        char json[60];

        snprintf(json, sizeof json, "{'_id': 'a', 'title': 'edit %d'}", i);
        SAVE(*version, json, SAVED, version);
    }
}

static void comes_back(truce_store *store, const struct setting *setting)
{
    int64_t version, before;

    (void)setting;
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'first'}", SAVED, &version);
    CHECK_INT(version, ==, 1);
    edits(store, &version);
    CHECK_INT(version, ==, 4);
    remove_plainly(store); /* and a new one is saved */
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'second'}", SAVED, &version);
    refuses_former(store, version);
    edits(store, &version);
    remove_plainly(store); /* and a plain writer inserts one */
    insert_json(store, "posts", "{'_id': 'a', 'title': 'third'}");
    refuses_former(store, 0);
    before = version;
    SAVE(0, "{'_id': 'a', 'title': 'third, edited'}", SAVED, &version);
    CHECK_INT(version, >, before);
    refuses_former(store, version);
    remove_post(store, version);
    before = version;
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'fourth'}", SAVED, &version);
    CHECK_INT(version, ==, before + 1);
    remove_plainly(store);
    insert_json(store, "posts", "{'_id': 'a', 'title': 'fifth'}");
    remove_post(store, 0); /* of a document without a number: the former ones are still void */
    before = version;
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'sixth'}", SAVED, &version);
    CHECK_INT(version, >, before);
    refuses_former(store, version);
}

TEST(refuses_the_number_of_a_removed_document_in_the_next_one)
{
    on_every_setting(comes_back);
}

/* ---- numbers that other programs write ---- */

static void replace_plainly(truce_store *store, const char *json)
{
    remove_plainly(store);
    insert_json(store, "posts", json);
}

static void patch_post(truce_store *store, int64_t version, bool any,
                       truce_revision_outcome outcome, int64_t *now)
{
    truce_revision *revision = open_posts(store);
    bson_t *patch = test_bson("{'$set': {'patched': true}}");
    bson_value_t id = text_id("a");
    truce_revision_result result;
    bson_error_t error = {0};

    CHECK_OK(truce_revision_patch(revision, NULL, &id, version, any, TRUCE_PATCH_OPERATORS, patch,
                                  &result, &error),
             error);
    CHECK_INT(result.outcome, ==, outcome);
    *now = result.version;
    truce_revision_result_release(&result);
    bson_destroy(patch);
    truce_revision_free(revision);
}

static void renumbers(truce_store *store, const struct setting *setting)
{
    static const char *const plain = "{'_id': 'a', 'title': 'plain', 'version': 2}";
    int64_t version, before;

    (void)setting;
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'first'}", SAVED, &version);
    edits(store, &version);
    replace_plainly(store, plain);
    SAVE(2, "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, &version);
    CHECK_INT(version, >, INT64_C(1) << 32);
    CHECK_INT(count_json(store, "posts", "{'title': 'plain'}"), ==, 1);
    /* The number that the conflict reported, and that the document has now, is valid. */
    edits(store, &version);
    before = version;
    replace_plainly(store, plain);
    remove_from(store, 2, NULL, TRUCE_REVISION_CONFLICT, &version);
    CHECK_INT(version, >, before);
    before = version;
    replace_plainly(store, plain);
    patch_post(store, 2, false, TRUCE_REVISION_CONFLICT, &version);
    CHECK_INT(version, >, before);
    /* Callers that know the document are not refused, and their numbers are new, too. */
    before = version;
    replace_plainly(store, plain);
    patch_post(store, 0, true, TRUCE_REVISION_SAVED, &version);
    CHECK_INT(version, >, before);
    before = version;
    replace_plainly(store, plain);
    remove_from(store, 2, plain, TRUCE_REVISION_SAVED, &version);
    SAVE(TRUCE_REVISION_NEW, "{'_id': 'a', 'title': 'last'}", SAVED, &version);
    CHECK_INT(version, >, before);
    refuses_former(store, version);
}

TEST(refuses_an_old_number_for_another_programs_document)
{
    on_every_setting(renumbers);
}

/* Inserts {_id: "a"} by a commit, which gives it a `_rev`. */
static void insert_by_commit(truce_store *store)
{
    bson_t *document = test_bson("{'_id': 'a', 'title': 'by a commit'}");
    truce_commit *commit;
    bson_error_t error = {0};

    if (CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error)) {
        CHECK_OK(truce_commit_insert(commit, "posts", document, &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
    }
    bson_destroy(document);
}

static void save_with_base(truce_store *store, int64_t version, const char *base_json,
                           const char *json)
{
    truce_revision *revision = open_posts(store);
    bson_t *mine = test_bson(json), *base = test_bson(base_json);
    truce_revision_result result;
    bson_error_t error = {0};

    CHECK_OK(truce_revision_save(revision, NULL, mine, version, base, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_SAVED);
    CHECK_INT(result.version, ==, version + 1);
    truce_revision_result_release(&result);
    bson_destroy(base);
    bson_destroy(mine);
    truce_revision_free(revision);
}

static void reserves(truce_store *store, const struct setting *setting)
{
    int64_t version;

    (void)setting;
    insert_by_commit(store);
    SAVE(0, "{'_id': 'a', 'title': 'first'}", SAVED, &version);
    CHECK_INT(version, ==, 1);
    /* The last number of the range was given, and the next one was not. */
    replace_plainly(store, "{'_id': 'a', 'title': 'plain', 'version': 4294967296}");
    SAVE(INT64_C(4294967296), "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, &version);
    replace_plainly(store, "{'_id': 'a', 'title': 'plain', 'version': 8589934593}");
    SAVE(INT64_C(8589934593), "{'_id': 'a', 'title': 'edited'}", SAVED, &version);
    CHECK_INT(version, ==, INT64_C(8589934594));
}

TEST(each_way_of_a_first_number_reserves_the_following_ones)
{
    on_every_setting(reserves);
}

static void reserves_with_base(truce_store *store, const struct setting *setting)
{
    static const char *const plain = "{'_id': 'a', 'title': 'plain', 'version': 5}";

    (void)setting;
    insert_json(store, "posts", plain);
    save_with_base(store, 5, plain, "{'_id': 'a', 'title': 'edited'}");
    replace_plainly(store, "{'_id': 'a', 'title': 'plain', 'version': 6}");
    SAVE(6, "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, NULL);
}

TEST(a_save_with_its_base_reserves_the_following_numbers)
{
    on_every_setting(reserves_with_base);
}

static void continues(truce_store *store, const struct setting *setting)
{
    int64_t version, old;

    (void)setting;
    insert_json(store, "posts", "{'_id': 'a', 'title': 'plain', 'version': 6}");
    SAVE(6, "{'_id': 'a', 'title': 'edited'}", SAVED, &old);
    CHECK_INT(old, ==, 7);
    replace_plainly(store, "{'_id': 'a', 'title': 'plain again'}");
    SAVE(0, "{'_id': 'a', 'title': 'edited again'}", SAVED, &version);
    SAVE(old, "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, NULL);
    replace_plainly(store, "{'_id': 'a', 'title': 'plain', 'version': 7}");
    SAVE(old, "{'_id': 'a', 'title': 'by an old editor'}", CONFLICT, NULL);
    /* A number above all that were given is the document's own. */
    replace_plainly(store, "{'_id': 'a', 'title': 'plain', 'version': 4611686018427387904}");
    SAVE(INT64_C(4611686018427387904), "{'_id': 'a', 'title': 'edited'}", SAVED, &version);
    CHECK_INT(version, ==, INT64_C(4611686018427387905));
}

TEST(a_save_reserves_numbers_after_that_of_another_program)
{
    on_every_setting(continues);
}
