/* Patterns embed documents of their users in their own documents. Users get them back as they
 * were, whatever the names of their fields. The store refuses the names that MongoDB before 5.0
 * refuses (stored_names.h). */
#include "tests/support/stored_names.h"

#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "tests/support/bank.h"
#include "tests/support/ledger_rig.h"
#include "tests/support/queue_rig.h"
#include "tests/support/sync_rig.h"
#include "tests/support/tree_rig.h"
#include "tests/support/tutorial.h"

#define NAMES                                                                                      \
    "{'a.b': 1, 'c': [{'$set': {'x.y': [{'$inc': 2}]}}, {'$each': []}], '＄d': {'．': 3}, "      \
    "'＼': {'＼．': 4, '＼＄': 5, '': 6}, '..': 7, 'e$f': {'$': 8, '＄＄': 9, '$＄': 10}}"

static truce_store *open_strict(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (getenv("TRUCE_TEST_STORED_NAMES")) /* it is wrapped already */
        return server_or_memory();
    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    return stored_names_wrap(store);
}

static void check_given(const bson_t *document, const char *field, const char *file, int line)
{
    bson_t *given = test_bson(NAMES), there;

    if (field && !truce__value_subdocument(document, field, &there))
        test_fail(file, line, "there is no field %s", field);
    else if (!bson_equal(field ? &there : document, given))
        test_fail(file, line, "%s is not as it was given", field ? field : "the document");
    bson_destroy(given);
}
#define CHECK_GIVEN(document, field) check_given(document, field, __FILE__, __LINE__)

static void check_first(truce_cursor *cursor, const char *field, const char *file, int line)
{
    const bson_t *found = NULL;
    bson_error_t error;

    if (CHECK_OK(truce_cursor_next(cursor, &found, &error), error) && CHECK(found != NULL))
        check_given(found, field, file, line);
    truce_cursor_close(cursor);
}
#define CHECK_FIRST(cursor, field) check_first(cursor, field, __FILE__, __LINE__)

TEST(names_are_stored_and_restored)
{
    static const char *const documents[] = {NAMES,
                                            "{}",
                                            "{'plain': {'a$': [1, {'b-c': 2}]}}",
                                            "{'$a': 1, '＄a': 2, '＼＄a': 3, 'a＄': 4}",
                                            "{'－': 1, '＃': {'ａ': 2}}",
                                            "{'＼': 1, '＼＼': 2, 'a＼': 3, '＼a': 4, '.＼.': 5}"};

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        bson_t *given = test_bson(documents[i]), stored, restored;
        bson_error_t error;

        truce__names_store(given, &stored);
        CHECK_OK(stored_names_check(&stored, "stored", &error), error);
        truce__names_restore(&stored, &restored);
        CHECK(bson_equal(&restored, given));
        CHECK(!truce__names_plain(given) || bson_equal(&stored, given));
        bson_destroy(&restored);
        bson_destroy(&stored);
        bson_destroy(given);
    }
}

/* ---- commits -------------------------------------------------------------------------------- */

static truce_status change_and_leave(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *given = test_bson(NAMES);
    truce_status status = add_update(commit, "things", "a", NULL,
                                     "{'$inc': {'n.m': 1}, '$push': {'l': {'$each': [1, 2]}}, "
                                     "'$set': {'s.t': 1}, '$max': {'m': 3}, '$pull': {'p': {"
                                     "'$gt': 1}}, '$addToSet': {'u': {'x': 1}}}",
                                     error);

    (void)arg;
    if (!status)
        status = add_update(commit, "things", "b", NULL, "{'$inc': {'n': -1}}", error);
    if (!status)
        status = truce_commit_set_result(commit, given, error);
    bson_destroy(given);
    return status;
}

static truce_status see_input(truce_commit *commit, const bson_t *input, void *arg,
                              bson_error_t *error)
{
    (void)commit, (void)error;
    CHECK_GIVEN(input, NULL);
    *(bool *)arg = true;
    return TRUCE_OK;
}

TEST(a_commit_stores_operators_input_and_result)
{
    truce_store *store = open_strict();
    bson_t *given = test_bson(NAMES), found;
    truce_commit_options options = {.key = "k", .input = given};
    bool seen = false;
    truce_request_handler handler = {.name = "see", .function = see_input, .arg = &seen};
    truce_request_report report;
    truce_cursor *cursor = NULL;
    bson_error_t error;

    insert_json(store, "things", "{'_id': 'a', 'n': {'m': 1}, 'l': [0], 'p': [1, 2]}");
    insert_json(store, "things", "{'_id': 'b', 'n': 1}");
    options.key_time_ms = truce__clock_wall_ms();
    for (int i = 0; i < 2; i++) /* the second is the same request */
        CHECK_OK(truce_transact(store, change_and_leave, NULL, &options, &error), error);
    CHECK_INT(count_json(store, "things", "{'n.m': 2, 'l': [0, 1, 2], 'p': [1]}"), ==, 1);
    CHECK_OK(truce_commit_result(store, "k", &found, &error), error);
    CHECK_GIVEN(&found, NULL);
    bson_destroy(&found);
    CHECK_OK(truce_commit_record(store, "k", &found, &error), error);
    CHECK_GIVEN(&found, "input");
    bson_destroy(&found);
    CHECK_OK(truce_commit_list(store, NULL, &cursor, &error), error);
    CHECK_FIRST(cursor, "result");
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_request_add(store, "r", "see", given, &error), error);
    CHECK_OK(truce_request_state(store, "r", &found, &error), error);
    CHECK_GIVEN(&found, "input");
    bson_destroy(&found);
    CHECK_OK(truce_request_run(store, &handler, 1, 0, NULL, &report, &error), error);
    CHECK(seen);
    bson_destroy(given);
    truce_store_close(store);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static truce_status step_to_names(truce_commit *commit, void *arg, bson_t *result,
                                  bson_error_t *error)
{
    bson_t *given = test_bson(NAMES);

    (void)commit, (void)arg, (void)error;
    bson_concat(result, given);
    bson_destroy(given);
    return TRUCE_OK;
}

static void use_job(truce_queue *queue, bson_oid_t *id)
{
    truce_job *job = rig_claim(queue);
    bson_t *given = test_bson(NAMES), found, event;
    bson_error_t error;
    bool came = false;

    if (!job)
        return;
    *id = *truce_job_id(job);
    CHECK_GIVEN(truce_job_payload(job), NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_job_step(job, "one", step_to_names, NULL, &found, &error), error);
        CHECK_GIVEN(&found, NULL);
        bson_destroy(&found);
        bson_reinit(&job->called); /* as in the next attempt */
    }
    CHECK_OK(truce_queue_signal(queue, NULL, id, "event", given, &error), error);
    CHECK_OK(truce_job_wait(job, "event", 1000, &event, &came, &error), error);
    CHECK(came);
    CHECK_GIVEN(&event, NULL);
    bson_destroy(&event);
    CHECK_OK(truce_job_done(job, NULL, given, &error), error);
    truce_job_free(job);
    bson_destroy(given);
}

TEST(a_job_stores_payload_metadata_steps_events_and_result)
{
    truce_store *store = open_strict();
    truce_queue *queue = rig_queue(store, NULL, "q");
    bson_t *given = test_bson(NAMES), found;
    bson_oid_t id;
    bson_error_t error;

    (void)rig_add(queue, NAMES, &(truce_job_options){.metadata = given});
    use_job(queue, &id);
    CHECK_OK(truce_queue_get(queue, NULL, &id, &found, &error), error);
    CHECK_GIVEN(&found, "payload");
    CHECK_GIVEN(&found, "metadata");
    CHECK_GIVEN(&found, "result");
    bson_destroy(&found);
    CHECK_OK(
        truce_queue_add_many(queue, (const bson_t *const[]){given, given}, 2, NULL, NULL, &error),
        error);
    use_job(queue, &id);
    use_job(queue, &id);
    truce_queue_free(queue);
    bson_destroy(given);
    truce_store_close(store);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static void add_to_set(truce_set_options options)
{
    truce_store *store = open_strict();
    truce_set *set = tutorial_set(store, &options);
    bson_t *key = test_bson("{'student_id': 1}"), members;
    bson_t *element = test_bson("{'name': 'A', 'type': 'A', 'p.q': 1, 'payload': " NAMES "}");
    truce_set_outcome outcome;
    bson_iter_t iter, field;
    bson_error_t error;

    for (int i = 0; i < 3; i++) /* also over stored documents */
        CHECK_OK(truce_set_add(set, NULL, key, element, 5 + i, &outcome, &error), error);
    CHECK_OK(truce_set_members(set, key, &members, &error), error);
    if (CHECK(bson_iter_init_find(&iter, &members, "0")) && bson_iter_recurse(&iter, &field)) {
        bson_t first;
        const uint8_t *bytes;
        uint32_t length;

        bson_iter_document(&iter, &length, &bytes);
        bson_init_static(&first, bytes, length);
        CHECK_GIVEN(&first, "payload");
        CHECK(bson_has_field(&first, "payload") && bson_iter_find(&field, "p.q"));
    }
    bson_destroy(&members);
    bson_destroy(element);
    bson_destroy(key);
    truce_set_free(set);
    truce_store_close(store);
}

TEST(a_set_stores_payloads_in_each_form)
{
    add_to_set((truce_set_options){.form = TRUCE_SET_FORM_AUTO});
    add_to_set((truce_set_options){.form = TRUCE_SET_FORM_CLASSIC});
    add_to_set((truce_set_options){.form = TRUCE_SET_FORM_PIPELINE});
}

/* ---- the others ----------------------------------------------------------------------------- */

TEST(a_ledger_stores_metadata)
{
    truce_store *store = open_strict();
    truce_ledger *ledger = begin(store);
    truce_ledger_entry entries[] = {{.account = "people:a", .value = -1},
                                    {.account = "people:b", .value = 1}};
    bson_t *meta = test_bson(NAMES), *stored, restored;
    bson_value_t id = text_id("named");
    truce_ledger_transaction transaction = {
        .id = &id, .entries = entries, .count = 2, .meta = meta};
    truce_ledger_report report;
    bson_error_t error;

    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    stored = read_transaction(store, "named");
    truce__names_restore(stored, &restored);
    CHECK_GIVEN(&restored, "meta");
    bson_destroy(&restored);
    CHECK_OK(truce_ledger_verify(ledger, NULL, NULL, NULL, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    bson_destroy(stored);
    bson_destroy(meta);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(a_rule_of_copies_stores_paths)
{
    truce_store *store = open_strict();
    truce_sync *sync = rig_sync(store, TRUCE_MECHANISM_AUTO, 0);
    bson_t status;
    bson_iter_t iter, copies, copy;
    bson_error_t error;

    for (int i = 0; i < 2; i++) /* it is the same rule */
        CHECK_OK(rig_declare(sync, "author", "users", "comments", "user",
                             "{'by.author': 'of.name'}", &error),
                 error);
    CHECK_OK(truce_sync_status(sync, &status, &error), error);
    CHECK(bson_iter_init(&iter, &status) &&
          bson_iter_find_descendant(&iter, "rules.0.copies", &copies) &&
          bson_iter_recurse(&copies, &copy) && bson_iter_find(&copy, "by.author"));
    bson_destroy(&status);
    truce_sync_free(sync);
    truce_store_close(store);
}

TEST(a_tree_stores_items)
{
    truce_store *store = open_strict();
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit = NULL;
    truce_tree_published published = {0};
    truce_tree_snapshot *snapshot = NULL;
    bson_value_t id = text_id("a");
    bson_error_t error;
    bson_t item;

    CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'a', 'content': " NAMES "}", &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, &published, &error), error);
    truce_tree_edit_free(edit);
    CHECK_OK(truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_OK(truce_tree_get(snapshot, &id, &item, &error), error);
    CHECK_GIVEN(&item, "content");
    bson_destroy(&item);
    truce_tree_close(snapshot);
    truce_tree_free(tree);
    truce_store_close(store);
}
