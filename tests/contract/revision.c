/* Revisions through their public calls, on every store: alone and in commits. */
#include <pthread.h>

#include "base/clock.h"
#include "bson/value.h"
#include "tests/support/masked.h"
#include "tests/support/no_sleep.h"
#include "tests/support/server.h"
#include "tests/support/test.h"
#include "tests/support/trouble.h"
#include "tests/support/tutorial.h"
#include "truce/revision.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

static const bson_value_t one = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};

typedef void store_function(truce_store *store);

static void on_every_store(store_function *function)
{
    if (server_under_test()) {
        function(server_store());
        return;
    }
    for (int i = 0; i < 2; i++) {
        truce_store_options options = {.relaxed = true};
        truce_store *store;
        bson_error_t error;
        char uri[400];

        snprintf(uri, sizeof uri, i ? "file:%s/r.truce" : "memory:", test_directory());
        if (!CHECK_OK(truce_store_open(uri, &options, &store, &error), error))
            continue;
        function(store);
        truce_store_close(store);
    }
}

static truce_revision *open_revision(truce_store *store, const char *rules, uint32_t keep)
{
    bson_t *document = rules ? test_bson(rules) : NULL;
    truce_revision *revision = tutorial_revision(
        store, &(truce_revision_options){.rules = document, .keep = keep, .inbox = true});

    bson_destroy(document);
    return revision;
}

typedef truce_status save_function(truce_revision *revision, truce_commit *commit,
                                   const bson_t *mine, int64_t version, const bson_t *base,
                                   truce_revision_result *result, bson_error_t *error);

/* Saves and checks outcome and number; with `expected` the document, too. */
static void check_save(save_function *function, truce_revision *revision, const char *mine_json,
                       int64_t version, const char *base_json, truce_revision_outcome outcome,
                       int64_t number, const char *expected_json, int line)
{
    bson_t *mine = test_bson(mine_json), *base = base_json ? test_bson(base_json) : NULL;
    truce_revision_result result;
    bson_error_t error;

    test_check_status(TRUCE_OK, function(revision, NULL, mine, version, base, &result, &error),
                      &error, "save", __FILE__, line);
    test_check_text(truce_revision_outcome_name(outcome),
                    truce_revision_outcome_name(result.outcome), __FILE__, line);
    test_check_int(number, result.version, number == result.version, "number", __FILE__, line);
    if (expected_json) {
        bson_t *expected = test_bson(expected_json);

        test_bson_equal(expected, &result.document, __FILE__, line);
        bson_destroy(expected);
    }
    truce_revision_result_release(&result);
    bson_destroy(mine);
    bson_destroy(base);
}
#define SAVES(mine, version, outcome, number)                                                      \
    check_save(truce_revision_save, revision, mine, version, NULL, TRUCE_REVISION_##outcome,       \
               number, NULL, __LINE__)
#define MERGES(mine, version, base, outcome, number, expected)                                     \
    check_save(truce_revision_merge, revision, mine, version, base, TRUCE_REVISION_##outcome,      \
               number, expected, __LINE__)

static void check_now(truce_revision *revision, const char *expected_json, int64_t number)
{
    bson_t *expected = test_bson(expected_json), document;
    bson_error_t error;
    int64_t version;

    CHECK_OK(truce_revision_get(revision, NULL, &one, &document, &version, &error), error);
    CHECK_BSON(expected, &document);
    CHECK_INT(version, ==, number);
    bson_destroy(&document);
    bson_destroy(expected);
}

static void saves(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 0);

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, UNCHANGED, 1);
    SAVES("{'_id': 1, 'a': 2}", TRUCE_REVISION_NEW, CONFLICT, 1);
    SAVES("{'_id': 1, 'a': 2, 'version': 77}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 3}", 1, CONFLICT, 2);
    SAVES("{'_id': 1, 'a': 2}", 1, UNCHANGED, 2);
    SAVES("{'_id': 1, 'a': 2}", 2, UNCHANGED, 2);
    SAVES("{'_id': 1, 'a': 3}", 3, CONFLICT, 2);
    check_now(revision, "{'_id': 1, 'a': 2, 'version': {'$numberLong': '2'}}", 2);
    SAVES("{'_id': 2, 'a': 2}", 4, CONFLICT, TRUCE_REVISION_NEW);
    truce_revision_free(revision);
}

TEST(a_save_counts_only_with_the_current_number)
{
    on_every_store(saves);
}

static void plain_documents(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 0);
    bson_t *plain = test_bson("{'_id': 1, 'a': 1}"), *bad = test_bson("{'_id': 2, 'version': 'x'}");
    truce_revision_result result;
    bson_error_t error;

    CHECK_OK(truce_insert(store, "posts", plain, NULL, &error), error);
    CHECK_OK(truce_insert(store, "posts", bad, NULL, &error), error);
    SAVES("{'_id': 1, 'a': 2}", 0, SAVED, 1);
    CHECK_STATUS(TRUCE_INVALID, truce_revision_save(revision, NULL, bad, 1, NULL, &result, &error),
                 error);
    truce_revision_result_release(&result);
    bson_destroy(plain);
    bson_destroy(bad);
    truce_revision_free(revision);
}

TEST(a_document_without_a_number_has_0)
{
    on_every_store(plain_documents);
}

static bool has_conflict(const bson_t *conflict, const char *path, const char *kind)
{
    bson_iter_t iter, list, field;

    if (!bson_iter_init_find(&iter, conflict, "conflicts") || !bson_iter_recurse(&iter, &list))
        return false;
    while (bson_iter_next(&list)) {
        bool same = bson_iter_recurse(&list, &field) && bson_iter_find(&field, "path") &&
                    !strcmp(bson_iter_utf8(&field, NULL), path) && bson_iter_next(&field) &&
                    !strcmp(bson_iter_utf8(&field, NULL), kind);

        if (same)
            return true;
    }
    return false;
}

static void conflicts(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 3);
    bson_t *mine = test_bson("{'_id': 1, 'a': 5, 'b': 7}");
    truce_revision_result result;
    bson_error_t error;
    bson_iter_t iter;

    SAVES("{'_id': 1, 'a': 1, 'b': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2, 'b': 1}", 1, SAVED, 2);
    CHECK_OK(truce_revision_save(revision, NULL, mine, 1, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    CHECK(has_conflict(&result.conflict, "a", "both-changed"));
    CHECK(!has_conflict(&result.conflict, "b", "both-changed"));
    CHECK(has_conflict(&result.conflict, "", "stale"));
    CHECK(bson_iter_init_find(&iter, &result.conflict, "base"));
    CHECK(bson_iter_init_find(&iter, &result.conflict, "mine"));
    CHECK(bson_iter_init_find(&iter, &result.conflict, "theirs"));
    truce_revision_result_release(&result);
    check_now(revision, "{'_id': 1, 'a': 2, 'b': 1, 'version': {'$numberLong': '2'}}", 2);
    bson_destroy(mine);
    truce_revision_free(revision);
}

TEST(a_conflict_reports_base_mine_theirs_and_the_paths)
{
    on_every_store(conflicts);
}

static void merges(truce_store *store)
{
    truce_revision *revision = open_revision(store, "{'n': 'sum'}", 2);

    SAVES("{'_id': 1, 'a': 1, 'b': 1, 'n': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2, 'b': 1, 'n': 2}", 1, SAVED, 2);
    MERGES("{'_id': 1, 'a': 1, 'b': 3, 'n': 2}", 1, NULL, MERGED, 3,
           "{'_id': 1, 'a': 2, 'b': 3, 'n': 3, 'version': {'$numberLong': '3'}}");
    MERGES("{'_id': 1, 'a': 4, 'b': 3, 'n': 3}", 3, NULL, SAVED, 4, NULL);
    MERGES("{'_id': 1, 'a': 2, 'b': 3, 'n': 3}", 3, NULL, UNCHANGED, 4, NULL);
    /* a read document is no longer kept, unless the caller has it */
    MERGES("{'_id': 1, 'a': 1, 'b': 9, 'n': 1}", 1, NULL, CONFLICT, 4, NULL);
    MERGES("{'_id': 1, 'a': 1, 'b': 1, 'n': 5, 'c': 1}", 1, "{'_id': 1, 'a': 1, 'b': 1, 'n': 1}",
           MERGED, 5,
           "{'_id': 1, 'a': 4, 'b': 3, 'n': 7, 'c': 1, 'version': {'$numberLong': '5'}}");
    MERGES("{'_id': 1, 'a': 8, 'b': 3, 'n': 3}", 3, NULL, CONFLICT, 5, NULL);
    truce_revision_free(revision);
}

TEST(changes_of_two_are_merged)
{
    on_every_store(merges);
}

static int64_t kept(truce_revision *revision)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;
    int64_t count = -1;

    CHECK_OK(truce_revision_log(revision, &one, &cursor, &error), error);
    do {
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        count++;
    } while (document);
    truce_cursor_close(cursor);
    return count;
}

static void keeps(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 2), *timed;
    bson_t *expected = test_bson("{'_id': 1, 'a': 3, 'version': {'$numberLong': '3'}}"), document;
    bson_error_t error;
    int64_t pruned;

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 3}", 2, SAVED, 3);
    SAVES("{'_id': 1, 'a': 4}", 3, SAVED, 4);
    CHECK_INT(kept(revision), ==, 2);
    CHECK_OK(truce_revision_at(revision, &one, 3, &document, &error), error);
    CHECK_BSON(expected, &document);
    bson_destroy(&document);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_revision_at(revision, &one, 1, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_revision_at(revision, &one, 4, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_revision_prune(revision, &pruned, &error), error);
    CHECK_INT(pruned, ==, 0);
    timed = tutorial_revision(store, &(truce_revision_options){.keep_ms = 1});
    truce__clock_sleep_ms(5);
    for (int i = 0; i < 3 && kept(revision); i++)
        CHECK_OK(truce_revision_prune(timed, &pruned, &error), error);
    CHECK_INT(kept(revision), ==, 0);
    truce_revision_free(timed);
    truce_revision_free(revision);
    bson_destroy(expected);
}

TEST(stores_and_prunes_replaced_versions)
{
    on_every_store(keeps);
}

static void expires(truce_store *store)
{
    bson_t *rest = test_bson("{'_id': 1, 'a': 9}"), *guard = test_bson("{}");
    truce_revision *revision =
        tutorial_revision(store, &(truce_revision_options){.keep = 5, .keep_ms = 1});
    truce_revision *longer =
        tutorial_revision(store, &(truce_revision_options){.keep = 5, .keep_ms = 100000000});
    truce_revision *forever = tutorial_revision(store, &(truce_revision_options){.keep = 5});
    truce_revision_result result;
    bson_error_t error;
    int64_t expired;

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 3}", 2, SAVED, 3);
    CHECK_OK(truce_revision_save(longer, NULL, rest, 3, NULL, &result, &error), error);
    truce_revision_result_release(&result);
    bson_reinit(rest);
    BSON_APPEND_INT32(rest, "_id", 1);
    CHECK_OK(truce_revision_save(forever, NULL, rest, 4, NULL, &result, &error), error);
    truce_revision_result_release(&result);
    CHECK_INT(kept(revision), ==, 4);
    truce__clock_sleep_ms(5);
    CHECK_OK(truce_store_expire(store, guard, 0, &expired, &error), error);
    CHECK_INT(kept(revision), ==, 2);
    truce_revision_free(forever);
    truce_revision_free(longer);
    truce_revision_free(revision);
    bson_destroy(guard);
    bson_destroy(rest);
}

TEST(versions_that_are_kept_for_a_time_expire)
{
    on_every_store(expires);
}

static void removes(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 0);
    truce_revision_result result;
    bson_error_t error;

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2}", 1, SAVED, 2);
    CHECK_OK(truce_revision_remove(revision, NULL, &one, 1, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    CHECK_INT(result.version, ==, 2);
    truce_revision_result_release(&result);
    CHECK_OK(truce_revision_remove(revision, NULL, &one, 2, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_SAVED);
    truce_revision_result_release(&result);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce_revision_remove(revision, NULL, &one, 2, NULL, &result, &error), error);
    truce_revision_result_release(&result);
    /* a client that still has 1 or 2 of the old document cannot save over the new one */
    SAVES("{'_id': 1, 'b': 1}", TRUCE_REVISION_NEW, SAVED, 3);
    SAVES("{'_id': 1, 'a': 9}", 1, CONFLICT, 3);
    SAVES("{'_id': 1, 'a': 9}", 2, CONFLICT, 3);
    truce_revision_free(revision);
}

/* A plain write changed the document without raising its number: the client that removes it has
 * not read that change. */
static void removes_what_was_read(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 0);
    bson_t *read = test_bson("{'_id': 1, 'b': 1.0, 'a': 1, 'version': 1}"),
           *all = test_bson("{'_id': 1}"), *change = test_bson("{'$set': {'a': 2}}");
    truce_revision_result result;
    bson_error_t error;

    SAVES("{'_id': 1, 'a': 1, 'b': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    CHECK_OK(truce_update(store, "posts", all, change, NULL, NULL, &error), error);
    CHECK_OK(truce_revision_remove(revision, NULL, &one, 1, read, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    CHECK(bson_has_field(&result.conflict, "theirs"));
    truce_revision_result_release(&result);
    bson_destroy(change);
    change = test_bson("{'$set': {'a': 1}}");
    CHECK_OK(truce_update(store, "posts", all, change, NULL, NULL, &error), error);
    CHECK_OK(truce_revision_remove(revision, NULL, &one, 1, read, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_SAVED);
    truce_revision_result_release(&result);
    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 2);
    bson_destroy(read);
    bson_destroy(all);
    bson_destroy(change);
    truce_revision_free(revision);
}

TEST(does_not_remove_a_change_that_raised_no_number_unseen)
{
    on_every_store(removes_what_was_read);
}

TEST(a_number_is_given_once_also_if_the_document_was_removed)
{
    on_every_store(removes);
}

static void check_patch(truce_revision *revision, int64_t version, bool any, truce_patch_kind kind,
                        const char *patch_json, truce_status status, const char *expected_json)
{
    bson_t *holder = test_bson(patch_json), patch;
    truce_revision_result result;
    bson_error_t error;
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t length;

    REQUIRE(bson_iter_init_find(&iter, holder, "p"));
    if (kind == TRUCE_PATCH_JSON)
        bson_iter_array(&iter, &length, &bytes);
    else
        bson_iter_document(&iter, &length, &bytes);
    REQUIRE(bson_init_static(&patch, bytes, length));
    CHECK_STATUS(
        status,
        truce_revision_patch(revision, NULL, &one, version, any, kind, &patch, &result, &error),
        error);
    if (expected_json) {
        bson_t *expected = test_bson(expected_json);

        CHECK_BSON(expected, &result.document);
        bson_destroy(expected);
    }
    truce_revision_result_release(&result);
    bson_destroy(holder);
}

static void patches(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 0);

    SAVES("{'_id': 1, 'a': 1, 'l': [1]}", TRUCE_REVISION_NEW, SAVED, 1);
    check_patch(revision, 1, false, TRUCE_PATCH_JSON,
                "{'p': [{'op': 'add', 'path': '/l/-', 'value': 2}]}", TRUCE_OK,
                "{'_id': 1, 'a': 1, 'l': [1, 2], 'version': {'$numberLong': '2'}}");
    check_patch(revision, 2, false, TRUCE_PATCH_MERGE, "{'p': {'a': null, 'b': 1}}", TRUCE_OK,
                "{'_id': 1, 'l': [1, 2], 'b': 1, 'version': {'$numberLong': '3'}}");
    check_patch(revision, 0, true, TRUCE_PATCH_OPERATORS, "{'p': {'$inc': {'b': 4}}}", TRUCE_OK,
                "{'_id': 1, 'l': [1, 2], 'b': 5, 'version': {'$numberLong': '4'}}");
    check_patch(revision, 2, false, TRUCE_PATCH_OPERATORS, "{'p': {'$inc': {'b': 4}}}", TRUCE_OK,
                "{'_id': 1, 'l': [1, 2], 'b': 5, 'version': {'$numberLong': '4'}}");
    check_patch(revision, 4, false, TRUCE_PATCH_JSON,
                "{'p': [{'op': 'test', 'path': '/b', 'value': 2}]}", TRUCE_CONFLICT, NULL);
    check_patch(revision, 4, false, TRUCE_PATCH_JSON, "{'p': [{'op': 'remove', 'path': '/_id'}]}",
                TRUCE_INVALID, NULL);
    check_patch(revision, 4, false, TRUCE_PATCH_MERGE, "{'p': {'_id': 2}}", TRUCE_INVALID, NULL);
    check_patch(revision, 4, false, TRUCE_PATCH_OPERATORS, "{'p': {'x': 2}}", TRUCE_INVALID, NULL);
    check_patch(revision, 4, false, TRUCE_PATCH_OPERATORS, "{'p': {'$set': {'version': 70}}}",
                TRUCE_INVALID, NULL);
    check_patch(revision, 0, true, TRUCE_PATCH_MERGE, "{'p': {'version': 'x'}}", TRUCE_INVALID,
                NULL);
    check_now(revision, "{'_id': 1, 'l': [1, 2], 'b': 5, 'version': {'$numberLong': '4'}}", 4);
    truce_revision_free(revision);
}

TEST(patches_of_three_kinds_are_saves)
{
    on_every_store(patches);
}

/* ---- the inbox ---- */

static bson_oid_t make_conflict(truce_revision *revision)
{
    bson_t *mine = test_bson("{'_id': 1, 'a': 3, 'b': 3}");
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    SAVES("{'_id': 1, 'a': 1, 'b': 1, 'c': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2, 'b': 1, 'c': 1}", 1, SAVED, 2);
    CHECK_OK(truce_revision_merge(revision, NULL, mine, 1, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    id = result.inbox;
    truce_revision_result_release(&result);
    bson_destroy(mine);
    return id;
}

static int64_t open_conflicts(truce_revision *revision)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;
    int64_t count = -1;

    CHECK_OK(truce_revision_conflicts(revision, &cursor, &error), error);
    do {
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        count++;
    } while (document);
    truce_cursor_close(cursor);
    return count;
}

static void resolve(truce_store *store, truce_resolution resolution, const char *document_json,
                    bool changed_since, const char *expected_json)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_t *document = document_json ? test_bson(document_json) : NULL,
           everything = BSON_INITIALIZER;
    truce_write_options all = {.multi = true};
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    CHECK_OK(truce_remove(store, "posts", &everything, &all, NULL, &error), error);
    CHECK_OK(truce_remove(store, "posts.revisions", &everything, &all, NULL, &error), error);
    CHECK_OK(truce_remove(store, "truce_conflicts", &everything, &all, NULL, &error), error);
    id = make_conflict(revision);
    CHECK_INT(open_conflicts(revision), ==, 1);
    if (changed_since)
        SAVES("{'_id': 1, 'a': 2, 'b': 1, 'c': 1, 'd': 1}", 2, SAVED, 3);
    CHECK_OK(
        truce_revision_resolve(revision, NULL, &id, resolution, document, NULL, &result, &error),
        error);
    truce_revision_result_release(&result);
    check_now(revision, expected_json, changed_since ? 4 : 3);
    CHECK_INT(open_conflicts(revision), ==, 0);
    CHECK_STATUS(
        TRUCE_NOT_FOUND,
        truce_revision_resolve(revision, NULL, &id, resolution, document, NULL, &result, &error),
        error);
    truce_revision_result_release(&result);
    bson_destroy(document);
    truce_revision_free(revision);
}

/* If the same save is sent twice, also after another client saved, there is one entry, which
 * follows the document. */
static void sent_again(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_t *mine = test_bson("{'_id': 1, 'a': 3, 'b': 3}"), everything = BSON_INITIALIZER;
    truce_write_options all = {.multi = true};
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t first;
    bson_iter_t iter;

    CHECK_OK(truce_remove(store, "posts", &everything, &all, NULL, &error), error);
    CHECK_OK(truce_remove(store, "posts.revisions", &everything, &all, NULL, &error), error);
    CHECK_OK(truce_remove(store, "truce_conflicts", &everything, &all, NULL, &error), error);
    first = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 5, 'b': 1, 'c': 1}", 2, SAVED, 3);
    CHECK_OK(truce_revision_merge(revision, NULL, mine, 1, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    CHECK(bson_oid_equal(&result.inbox, &first));
    CHECK(bson_iter_init_find(&iter, &result.conflict, "version"));
    CHECK_INT(bson_iter_as_int64(&iter), ==, 3);
    CHECK_INT(open_conflicts(revision), ==, 1);
    truce_revision_result_release(&result);
    CHECK_OK(truce_revision_resolve(revision, NULL, &first, TRUCE_RESOLVE_MINE, NULL, NULL, &result,
                                    &error),
             error);
    truce_revision_result_release(&result);
    check_now(revision, "{'_id': 1, 'a': 3, 'b': 3, 'version': {'$numberLong': '4'}}", 4);
    CHECK_INT(open_conflicts(revision), ==, 0);
    bson_destroy(mine);
    truce_revision_free(revision);
}

TEST(an_edit_that_is_sent_again_is_one_conflict)
{
    on_every_store(sent_again);
}

static void resolutions(truce_store *store)
{
    resolve(store, TRUCE_RESOLVE_MINE, NULL, false,
            "{'_id': 1, 'a': 3, 'b': 3, 'version': {'$numberLong': '3'}}");
    resolve(store, TRUCE_RESOLVE_THEIRS, NULL, false,
            "{'_id': 1, 'a': 2, 'b': 3, 'version': {'$numberLong': '3'}}");
    resolve(store, TRUCE_RESOLVE_DOCUMENT, "{'_id': 1, 'z': 1}", false,
            "{'_id': 1, 'z': 1, 'version': {'$numberLong': '3'}}");
    resolve(store, TRUCE_RESOLVE_MINE, NULL, true,
            "{'_id': 1, 'a': 3, 'b': 3, 'd': 1, 'version': {'$numberLong': '4'}}");
}

TEST(conflicts_in_the_inbox_are_resolved_once)
{
    on_every_store(resolutions);
}

static void new_disagreement(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_oid_t id = make_conflict(revision);
    truce_revision_result result;
    bson_error_t error;

    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    CHECK_OK(truce_revision_resolve(revision, NULL, &id, TRUCE_RESOLVE_MINE, NULL, NULL, &result,
                                    &error),
             error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    truce_revision_result_release(&result);
    CHECK_INT(open_conflicts(revision), ==, 1);
    truce_revision_free(revision);
}

TEST(leaves_the_conflict_open_after_a_late_resolution)
{
    on_every_store(new_disagreement);
}

/* The entry follows its document: the second decision is against the result of the first. */
static void follows(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_oid_t id = make_conflict(revision);
    truce_revision_result result;
    bson_error_t error;

    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_revision_resolve(revision, NULL, &id, TRUCE_RESOLVE_MINE, NULL, NULL,
                                        &result, &error),
                 error);
        CHECK_INT(result.outcome, ==, i ? TRUCE_REVISION_SAVED : TRUCE_REVISION_CONFLICT);
        truce_revision_result_release(&result);
    }
    check_now(revision, "{'_id': 1, 'a': 3, 'b': 3, 'version': {'$numberLong': '4'}}", 4);
    CHECK_INT(open_conflicts(revision), ==, 0);
    truce_revision_free(revision);
}

TEST(an_entry_of_the_inbox_follows_its_document)
{
    on_every_store(follows);
}

static void check_shown(truce_revision *revision, const bson_oid_t *id, int64_t version,
                        const char *theirs_json, const char *path, bson_t *entry)
{
    bson_error_t error;
    bson_iter_t iter;
    bson_t theirs;

    CHECK_OK(truce_revision_conflict(revision, id, entry, &error), error);
    CHECK(bson_iter_init_find(&iter, entry, "version"));
    CHECK_INT(bson_iter_as_int64(&iter), ==, version);
    CHECK(truce__value_subdocument(entry, "theirs", &theirs) == (theirs_json != NULL));
    if (theirs_json) {
        bson_t *expected = test_bson(theirs_json);

        test_bson_equal(expected, &theirs, __FILE__, __LINE__);
        bson_destroy(expected);
    }
    if (path)
        CHECK(has_conflict(entry, path, *path ? "both-changed" : "removed"));
    else
        CHECK(bson_iter_init_find(&iter, entry, "conflicts") &&
              !has_conflict(entry, "a", "both-changed"));
}

static void decide_seen(truce_revision *revision, const bson_oid_t *id, const bson_t *seen,
                        truce_revision_outcome outcome)
{
    truce_revision_result result;
    bson_error_t error;

    CHECK_OK(
        truce_revision_resolve(revision, NULL, id, TRUCE_RESOLVE_MINE, NULL, seen, &result, &error),
        error);
    CHECK_INT(result.outcome, ==, outcome);
    CHECK((outcome == TRUCE_REVISION_CONFLICT) == has_conflict(&result.conflict, "", "stale"));
    CHECK((outcome == TRUCE_REVISION_CONFLICT) == bson_oid_equal(&result.inbox, id));
    truce_revision_result_release(&result);
}

static void check_stands(truce_store *store, const char *filter_json)
{
    bson_t *filter = test_bson(filter_json);
    bson_error_t error;
    int64_t count;

    CHECK_OK(truce_count(store, "posts", filter, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    bson_destroy(filter);
}

static void plain_write(truce_store *store, const char *update_json)
{
    bson_t *filter = test_bson("{'_id': 1}"), *update = test_bson(update_json);
    bson_error_t error;

    CHECK_OK(truce_update(store, "posts", filter, update, NULL, NULL, &error), error);
    bson_destroy(filter);
    bson_destroy(update);
}

static void forget(truce_store *store)
{
    static const char *const names[] = {"posts", "posts.revisions", "truce_conflicts"};
    bson_t everything = BSON_INITIALIZER;
    truce_write_options all = {.multi = true};
    bson_error_t error;

    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_remove(store, names[i], &everything, &all, NULL, &error), error);
}

/* The list shows the stored documents, and a decision applies to the listed state. */
static void shown(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_oid_t id;
    bson_t entry, seen, *two = test_bson("{'version': 2}"), *none = test_bson("{'version': 77}");

    forget(store);
    id = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    check_shown(revision, &id, 3, "{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", "a", &seen);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1, 'd': 1}", 3, SAVED, 4);
    check_shown(revision, &id, 4, "{'_id': 1, 'a': 8, 'b': 1, 'c': 1, 'd': 1}", "a", &entry);
    bson_destroy(&entry);
    plain_write(store, "{'$set': {'a': 9}}");
    check_shown(revision, &id, 4, "{'_id': 1, 'a': 9, 'b': 1, 'c': 1, 'd': 1}", "a", &entry);
    decide_seen(revision, &id, two, TRUCE_REVISION_CONFLICT);
    decide_seen(revision, &id, none, TRUCE_REVISION_CONFLICT);
    decide_seen(revision, &id, &seen, TRUCE_REVISION_CONFLICT);
    plain_write(
        store,
        "{'$set': {'a': 10}}"); /* the number is the one that was seen, the document is not */
    decide_seen(revision, &id, &entry, TRUCE_REVISION_CONFLICT);
    bson_destroy(&entry);
    check_shown(revision, &id, 4, "{'_id': 1, 'a': 10, 'b': 1, 'c': 1, 'd': 1}", "a", &entry);
    SAVES("{'_id': 1, 'a': 10, 'b': 1, 'c': 1, 'd': 2}", 4, SAVED, 5); /* no disagreement */
    decide_seen(revision, &id, &entry, TRUCE_REVISION_MERGED);
    check_stands(store, "{'a': 3, 'b': 3, 'd': 2, 'version': 6}");
    bson_destroy(two);
    bson_destroy(none);
    bson_destroy(&seen);
    bson_destroy(&entry);
    truce_revision_free(revision);
}

TEST(an_entry_is_shown_and_decided_against_the_current_value)
{
    on_every_store(shown);
}

/* A number names the state that was seen: the stored one, or one that is kept. */
static void by_number(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_oid_t id;
    bson_t *three = test_bson("{'version': 3}"), *gone = test_bson("{'version': -1}"), entry;

    forget(store);
    id = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    decide_seen(revision, &id, gone, TRUCE_REVISION_CONFLICT);
    decide_seen(revision, &id, three, TRUCE_REVISION_SAVED);
    check_now(revision, "{'_id': 1, 'a': 3, 'b': 3, 'version': {'$numberLong': '4'}}", 4);
    forget(store);
    id = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1, 'd': 1}", 3, SAVED, 4);
    decide_seen(revision, &id, three, TRUCE_REVISION_MERGED);
    check_stands(store, "{'a': 3, 'b': 3, 'd': 1, 'version': 5}");
    forget(store);
    id = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 1, 'b': 1, 'c': 1}", 2, SAVED, 3);
    check_shown(revision, &id, 3, "{'_id': 1, 'a': 1, 'b': 1, 'c': 1}", NULL, &entry);
    bson_destroy(&entry);
    forget(store);
    id = make_conflict(revision);
    SAVES("{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", 2, SAVED, 3);
    check_shown(revision, &id, 3, "{'_id': 1, 'a': 8, 'b': 1, 'c': 1}", "a", &entry);
    plain_write(store, "{'$set': {'a': 9}}"); /* the number is the one that was seen */
    decide_seen(revision, &id, &entry, TRUCE_REVISION_CONFLICT);
    bson_destroy(&entry);
    bson_destroy(three);
    bson_destroy(gone);
    truce_revision_free(revision);
}

TEST(a_number_names_the_revision_that_was_seen)
{
    on_every_store(by_number);
}

static void removed_since(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_value_t document_id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    bson_oid_t id;
    bson_t entry, *unknown = test_bson("{'version': 77}");
    truce_revision_result result;
    bson_error_t error;

    for (int theirs = 0; theirs < 2; theirs++) {
        forget(store);
        id = make_conflict(revision);
        CHECK_OK(truce_revision_remove(revision, NULL, &document_id, 2, NULL, &result, &error),
                 error);
        truce_revision_result_release(&result);
        decide_seen(revision, &id, NULL, TRUCE_REVISION_CONFLICT);
        CHECK_OK(truce_revision_resolve(revision, NULL, &id, TRUCE_RESOLVE_THEIRS, NULL, unknown,
                                        &result, &error),
                 error);
        CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
        truce_revision_result_release(&result);
        check_shown(revision, &id, TRUCE_REVISION_NEW, NULL, "", &entry);
        CHECK_OK(truce_revision_resolve(revision, NULL, &id,
                                        theirs ? TRUCE_RESOLVE_THEIRS : TRUCE_RESOLVE_MINE, NULL,
                                        &entry, &result, &error),
                 error);
        CHECK_INT(result.outcome, ==, theirs ? TRUCE_REVISION_UNCHANGED : TRUCE_REVISION_SAVED);
        CHECK_INT(result.version, ==, theirs ? TRUCE_REVISION_NEW : 3);
        CHECK_INT(open_conflicts(revision), ==, 0);
        truce_revision_result_release(&result);
        bson_destroy(&entry);
    }
    bson_destroy(unknown);
    truce_revision_free(revision);
}

/* Their side was empty, and has a value again. */
static void there_again(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_t *gone = test_bson("{'version': -1}");
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    forget(store);
    id = make_conflict(revision);
    CHECK_OK(truce_revision_resolve(revision, NULL, &id, TRUCE_RESOLVE_THEIRS, NULL, gone, &result,
                                    &error),
             error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    CHECK_INT(open_conflicts(revision), ==, 1);
    truce_revision_result_release(&result);
    bson_destroy(gone);
    truce_revision_free(revision);
}

TEST(keeps_an_entry_open_if_its_document_exists_again)
{
    on_every_store(there_again);
}

TEST(an_entry_of_a_document_that_was_removed_is_decided)
{
    on_every_store(removed_since);
}

/* A handle without rules decides by those of the save; one that has rules, by its own. */
static void rules_of_the_save(truce_store *store)
{
    truce_revision *reported = open_revision(store, "{'t': 'text', 'n': 'sum'}", 5),
                   *revision = reported;
    truce_revision *plain = open_revision(store, NULL, 5),
                   *others = open_revision(store, "{'t': 'mine'}", 5);
    bson_t *mine = test_bson("{'_id': 1, 't': '1\\nb\\n3\\n4\\n', 'n': 4}"), entry;
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    forget(store);
    SAVES("{'_id': 1, 't': '1\\n2\\n3\\n4\\n', 'n': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 't': '1\\nB\\n3\\nD\\n', 'n': 2}", 1, SAVED, 2);
    CHECK_OK(truce_revision_merge(reported, NULL, mine, 1, NULL, &result, &error), error);
    id = result.inbox;
    truce_revision_result_release(&result);
    CHECK_OK(truce_revision_conflict(plain, &id, &entry, &error), error);
    CHECK(!has_conflict(&entry, "n", "both-changed"));
    bson_destroy(&entry);
    CHECK_OK(truce_revision_conflict(others, &id, &entry, &error), error);
    CHECK(has_conflict(&entry, "n", "both-changed") && !has_conflict(&entry, "t", "both-changed"));
    bson_destroy(&entry);
    decide_seen(plain, &id, NULL, TRUCE_REVISION_SAVED);
    check_now(plain, "{'_id': 1, 't': '1\\nb\\n3\\nD\\n', 'n': 5, 'version': {'$numberLong': '3'}}",
              3);
    bson_destroy(mine);
    truce_revision_free(reported);
    truce_revision_free(plain);
    truce_revision_free(others);
}

TEST(an_entry_keeps_the_rules_of_its_save)
{
    on_every_store(rules_of_the_save);
}

/* An entry that cannot be compared is listed as it was reported; an entry without a number is
 * refused. */
static void strange_entries(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 5);
    bson_t entry, *nothing = test_bson("{}"), *half = test_bson("{'version': 2.5}");
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    forget(store);
    id = make_conflict(revision);
    plain_write(store, "{'$set': {'version': 'two'}}");
    check_shown(revision, &id, 2, "{'_id': 1, 'a': 2, 'b': 1, 'c': 1}", "a", &entry);
    bson_destroy(&entry);
    CHECK_INT(open_conflicts(revision), ==, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(TRUCE_INVALID,
                     truce_revision_resolve(revision, NULL, &id, TRUCE_RESOLVE_MINE, NULL,
                                            i ? half : nothing, &result, &error),
                     error);
        truce_revision_result_release(&result);
    }
    bson_oid_init_from_string(&id, "6560f0c2a1b2c3d4e5f60718");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_revision_conflict(revision, &id, &entry, &error), error);
    bson_destroy(&entry);
    bson_destroy(nothing);
    bson_destroy(half);
    truce_revision_free(revision);
}

TEST(shows_an_entry_that_cannot_be_compared_as_it_was_reported)
{
    on_every_store(strange_entries);
}

static bson_oid_t conflicts_with(truce_revision *revision, const char *text, int64_t version)
{
    bson_t *mine = test_bson(text);
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t id;

    CHECK_OK(truce_revision_merge(revision, NULL, mine, version, NULL, &result, &error), error);
    CHECK_INT(result.outcome, ==, TRUCE_REVISION_CONFLICT);
    id = result.inbox;
    truce_revision_result_release(&result);
    bson_destroy(mine);
    return id;
}

/* The same edit under another number, an edit that the decision contains, and one that it does
 * not contain. */
static void decided_together(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 9);
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t first;

    SAVES("{'_id': 1, 'a': 1, 'b': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2, 'b': 2}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 4, 'b': 4}", 2, SAVED, 3);
    first = conflicts_with(revision, "{'_id': 1, 'a': 3, 'b': 3}", 1);
    (void)conflicts_with(revision, "{'_id': 1, 'a': 3, 'b': 3}", 2);
    (void)conflicts_with(revision, "{'_id': 1, 'a': 3, 'b': 1}", 1);
    (void)conflicts_with(revision, "{'_id': 1, 'a': 5, 'b': 1}", 1);
    CHECK_INT(open_conflicts(revision), ==, 4);
    CHECK_OK(truce_revision_resolve(revision, NULL, &first, TRUCE_RESOLVE_MINE, NULL, NULL, &result,
                                    &error),
             error);
    truce_revision_result_release(&result);
    CHECK_INT(open_conflicts(revision), ==, 1);
    truce_revision_free(revision);
}

/* Once an edit is refused, it is refused under every number that it was sent with. */
static void refused_together(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 9);
    truce_revision_result result;
    bson_error_t error;
    bson_oid_t first;

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 4}", 2, SAVED, 3);
    first = conflicts_with(revision, "{'_id': 1, 'a': 3}", 1);
    (void)conflicts_with(revision, "{'_id': 1, 'a': 3}", 2);
    (void)conflicts_with(revision, "{'_id': 1, 'a': 5}", 2);
    CHECK_INT(open_conflicts(revision), ==, 3);
    CHECK_OK(truce_revision_resolve(revision, NULL, &first, TRUCE_RESOLVE_THEIRS, NULL, NULL,
                                    &result, &error),
             error);
    truce_revision_result_release(&result);
    CHECK_INT(open_conflicts(revision), ==, 1);
    truce_revision_free(revision);
}

TEST(an_edit_that_is_refused_is_refused_under_every_number)
{
    on_every_store(refused_together);
}

TEST(equal_entries_are_decided_together)
{
    on_every_store(decided_together);
}

/* A program that knows nothing of numbers removes the document. */
static void removed_by_others(truce_store *store)
{
    truce_revision *revision = open_revision(store, NULL, 9);
    bson_t *all = test_bson("{'_id': 1}");
    bson_error_t error;

    SAVES("{'_id': 1, 'a': 1}", TRUCE_REVISION_NEW, SAVED, 1);
    SAVES("{'_id': 1, 'a': 2}", 1, SAVED, 2);
    SAVES("{'_id': 1, 'a': 3}", 2, SAVED, 3);
    CHECK_OK(truce_remove(store, "posts", all, NULL, NULL, &error), error);
    SAVES("{'_id': 1, 'a': 4}", TRUCE_REVISION_NEW, SAVED, 4294967297);
    bson_destroy(all);
    truce_revision_free(revision);
}

TEST(does_not_reuse_the_number_of_a_removed_document)
{
    on_every_store(removed_by_others);
}

/* ---- in commits, and many at once ---- */

struct both {
    truce_revision *revision;
    bool fails;
};

static truce_status save_two(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct both *both = arg;
    truce_status status = TRUCE_OK;

    for (int i = 1; i <= 2 && !status; i++) {
        bson_t *mine = BCON_NEW("_id", BCON_INT32(i), "a", BCON_INT32(7));
        truce_revision_result result;

        status = truce_revision_save(both->revision, commit, mine, TRUCE_REVISION_NEW, NULL,
                                     &result, error);
        truce_revision_result_release(&result);
        bson_destroy(mine);
    }
    if (!status && both->fails) {
        bson_set_error(error, 0, 0, "on purpose");
        status = TRUCE_INVALID;
    }
    return status;
}

static void in_commits(truce_store *store)
{
    struct both both = {open_revision(store, NULL, 0), true};
    bson_error_t error;
    int64_t count;

    CHECK_STATUS(TRUCE_INVALID, truce_transact(store, save_two, &both, NULL, &error), error);
    CHECK_OK(truce_count(store, "posts", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    both.fails = false;
    CHECK_OK(truce_transact(store, save_two, &both, NULL, &error), error);
    CHECK_OK(truce_count(store, "posts", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 2);
    truce_revision_free(both.revision);
}

TEST(saves_are_part_of_a_commit)
{
    on_every_store(in_commits);
}

#define THREADS 4
#define SAVED   25

static truce_revision *shared;

/* Reads, adds one to both numbers, and merges: the sum policy makes every one of them count. */
static void *add_many(void *arg)
{
    for (int i = 0; i < SAVED; i++) {
        truce_revision_result result;
        bson_t document, mine = BSON_INITIALIZER;
        bson_error_t error;
        bson_iter_t iter;
        int64_t version;

        CHECK_OK(truce_revision_get(shared, NULL, &one, &document, &version, &error), error);
        if (CHECK(bson_iter_init_find(&iter, &document, "n"))) {
            BSON_APPEND_INT32(&mine, "_id", 1);
            BSON_APPEND_INT64(&mine, "n", bson_iter_as_int64(&iter) + 1);
            CHECK_OK(truce_revision_merge(shared, NULL, &mine, version, &document, &result, &error),
                     error);
            CHECK_INT(result.outcome, <=, TRUCE_REVISION_MERGED);
            truce_revision_result_release(&result);
        }
        bson_destroy(&mine);
        bson_destroy(&document);
    }
    return arg;
}

static void crowd(truce_store *store)
{
    truce_revision *revision = open_revision(store, "{'n': 'sum'}", 3);
    pthread_t threads[THREADS];
    char expected[100];

    shared = revision;
    SAVES("{'_id': 1, 'n': {'$numberLong': '0'}}", TRUCE_REVISION_NEW, SAVED, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add_many, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    snprintf(expected, sizeof expected,
             "{'_id': 1, 'n': {'$numberLong': '%d'}, 'version': {'$numberLong': '%d'}}",
             THREADS * SAVED, THREADS * SAVED + 1);
    check_now(revision, expected, THREADS * SAVED + 1);
    CHECK_INT(kept(revision), ==, 3);
    truce_revision_free(revision);
}

TEST(no_change_of_many_editors_is_lost)
{
    on_every_store(crowd);
}

/* ---- options and crashes ---- */

TEST(wrong_options_are_refused_by_the_first_call)
{
    static const char *const wrong[] = {"$v", "a.b", "_rev", ""};
    bson_t *rules = test_bson("{'a': 'mien'}"), *mine = test_bson("{'_id': 1}");
    truce_revision_result result;
    truce_store *store;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    for (int i = 0; i <= 4; i++) {
        truce_revision *revision = tutorial_revision(
            store, &(truce_revision_options){.version = i < 4 ? wrong[i] : NULL, .rules = rules});

        if (i < 4)
            bson_reinit(rules);
        CHECK_STATUS(TRUCE_INVALID,
                     truce_revision_save(revision, NULL, mine, 1, NULL, &result, &error), error);
        truce_revision_result_release(&result);
        truce_revision_free(revision);
        bson_destroy(rules);
        rules = test_bson("{'a': 'mien'}");
    }
    bson_destroy(rules);
    bson_destroy(mine);
    truce_store_close(store);
}

/* Makes two saves, a merge, and a removal; repeats each until it is answered. */
static truce_status work(truce_store *store, int *step, bson_error_t *error)
{
    static const char *const mine[] = {"{'_id': 1, 'a': 1, 'b': 1}", "{'_id': 1, 'a': 2, 'b': 1}",
                                       "{'_id': 1, 'a': 1, 'b': 5}"};
    static const int64_t versions[] = {TRUCE_REVISION_NEW, 1, 1};
    truce_revision *revision = open_revision(store, NULL, 2);
    truce_status status = TRUCE_OK;

    for (; *step < 3 && !status; *step += !status) {
        bson_t *document = test_bson(mine[*step]);
        truce_revision_result result;

        status =
            truce_revision_merge(revision, NULL, document, versions[*step], NULL, &result, error);
        truce_revision_result_release(&result);
        bson_destroy(document);
    }
    truce_revision_free(revision);
    return status;
}

static truce_store *fresh_store(bool in_file)
{
    static int number;
    truce_store *store = NULL;
    bson_error_t error;
    char uri[400];

    if (!in_file)
        return server_or_memory();
    snprintf(uri, sizeof uri, "file:%s/crash%d.truce", test_directory(), number++);
    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error), error);
    return store;
}

struct crash {
    enum trouble trouble;
    uint32_t lacks;
    bool in_file;
};

/* Makes a fault at the n-th call; then repeats all. True: the run reached this call. */
static bool die_at(uint64_t at, const struct crash *crash)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *inner = truce_fault_wrap(fresh_store(crash->in_file), &none);
    truce_store *outer = truce_fault_wrap(inner, &none), *store = masked_wrap(outer, crash->lacks);
    truce_sweep_report report;
    truce_revision *revision;
    bson_error_t error;
    int step = 0;
    bool hit;

    trouble_arm(inner, outer, crash->trouble, at);
    (void)!work(store, &step, &error);
    hit = truce_fault_hits(inner) + truce_fault_hits(outer) > 0;
    trouble_arm(inner, outer, NONE, 0);
    CHECK_OK(work(store, &step, &error), error);
    revision = open_revision(store, NULL, 2);
    check_now(revision, "{'_id': 1, 'a': 2, 'b': 5, 'version': {'$numberLong': '3'}}", 3);
    /* also an entry that it did not encounter */
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(kept(revision), ==, 2);
    truce_revision_free(revision);
    truce_store_close(store);
    return hit;
}

TEST(a_save_whose_process_died_can_be_done_again)
{
    static const char *const troubles[] = {"", "death before", "death after", "no answer at"};
    static const uint32_t lacks[] = {0, TRUCE_CAN_ATOMIC_BULK};
    uint64_t step = (uint64_t)test_scale("TRUCE_REVISION_CRASH_STEP", 1);

    no_sleep_use();
    for (int i = 0; i < 12; i++) {
        struct crash crash = {(enum trouble)(1 + i % 3), lacks[i / 3 % 2], i >= 6};
        int before = test_failures();
        uint64_t at = 1;

        if (crash.in_file && (server_under_test() || crash.trouble != DIE_AFTER))
            continue;
        while (die_at(at, &crash) && test_failures() == before)
            at += step;
        CHECK_INT(at, >, 3);
        if (test_failures() > before)
            fprintf(stderr, "    (%s, %s call %d)\n", crash.lacks ? "journal" : "as the store can",
                    troubles[crash.trouble], (int)at);
    }
    truce__environment_use(NULL);
}

/* ---- exactly once ---- */

static truce_status add_one(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *base = test_bson("{'_id': 1, 'n': 5}"), *mine = test_bson("{'_id': 1, 'n': 6}");
    truce_revision_result result;
    truce_status status = truce_revision_merge(arg, commit, mine, 1, base, &result, error);

    if (!status)
        CHECK_INT(result.outcome, <=, TRUCE_REVISION_MERGED);
    truce_revision_result_release(&result);
    bson_destroy(base);
    bson_destroy(mine);
    return status;
}

static void save_ten_more(truce_revision *revision)
{
    bson_t *base = test_bson("{'_id': 1, 'n': 5}"), *mine = test_bson("{'_id': 1, 'n': 15}");
    truce_revision_result result;
    bson_error_t error;

    CHECK_OK(truce_revision_merge(revision, NULL, mine, 1, base, &result, &error), error);
    CHECK_INT(result.outcome, <=, TRUCE_REVISION_MERGED);
    truce_revision_result_release(&result);
    bson_destroy(base);
    bson_destroy(mine);
}

/* Loses the answer to the n-th call, repeats the save until there is an answer, and then sends
 * it once more. Another client saves in the meantime. True: the run reached this call. */
static bool ask_again(uint64_t at, uint32_t lacks)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *inner = truce_fault_wrap(server_or_memory(), &none);
    truce_store *store = masked_wrap(inner, lacks);
    truce_revision *revision = open_revision(store, "{'n': 'sum'}", 2);
    truce_commit_options options = {.key = "form 7", .key_time_ms = truce__clock_wall_ms()};
    bson_error_t error;
    bool hit;

    SAVES("{'_id': 1, 'n': 5}", TRUCE_REVISION_NEW, SAVED, 1);
    truce_fault_arm(inner, &(truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at});
    (void)!truce_transact(store, add_one, revision, &options, &error);
    hit = truce_fault_hits(inner) > 0;
    truce_fault_arm(inner, &none);
    save_ten_more(revision);
    CHECK_OK(truce_transact(store, add_one, revision, &options, &error), error);
    CHECK_OK(truce_transact(store, add_one, revision, &options, &error), error);
    check_now(revision, "{'_id': 1, 'n': 16, 'version': {'$numberLong': '3'}}", 3);
    truce_revision_free(revision);
    truce_store_close(store);
    return hit;
}

TEST(a_save_under_a_key_counts_once_however_often_it_is_requested)
{
    uint64_t at = 1, step = (uint64_t)test_scale("TRUCE_REVISION_CRASH_STEP", 1);

    no_sleep_use();
    for (int i = 0; i < 2; i++) {
        for (at = 1; ask_again(at, i ? TRUCE_CAN_ATOMIC_BULK : 0) && !test_failures();)
            at += step;
        CHECK_INT(at, >, 2);
    }
    truce__environment_use(NULL);
}
