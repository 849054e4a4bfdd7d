/*
 * A network that corrupts one message (tests/support/wire.h): every operation of items, revisions,
 * sets in batches, requests, finds of several documents, and the recovery pass. The outcome is all
 * or nothing, and exactly once.
 */
#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/item_rig.h"
#include "tests/support/server.h"
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"
#include "tests/support/wire.h"
#include "truce/request.h"
#include "truce/revision.h"
#include "truce/sys/decorate.h"

static bool unanswered(truce_status status)
{
    return status == TRUCE_UNKNOWN || status == TRUCE_IO;
}

/* Done if the call reports success, not done if it reports a failure, either if the outcome is
 * unknown. */
static void check_reported(truce_status reported, bool done)
{
    if (reported == TRUCE_OK)
        CHECK(done);
    else if (!unanswered(reported))
        CHECK(!done);
}

/* ---- items ---------------------------------------------------------------------------------- */

static void prepare_items(truce_store *store)
{
    wire_clear(store, "employees");
    insert_json(store, "employees",
                "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}]}");
}

static truce_status call_item(truce_store *store, const char *text, bson_error_t *error)
{
    truce_item *item = tutorial_item(store, &(truce_item_options){.deadline_ms = 6000});
    truce_item_result result;
    truce_status status = item_rig_call(item, NULL, store, text, &result, error);

    truce_item_free(item);
    return status;
}

static bool holds(truce_store *store, const char *badges)
{
    char *json = bson_strdup_printf("{'_id': 1, 'badges': [%s]}", badges);
    bson_t *wanted = test_bson(json), *found = item_rig_read(store, "employees", "badges");
    bool same = bson_equal(wanted, found);

    bson_destroy(wanted);
    bson_destroy(found);
    bson_free(json);
    return same;
}

static truce_status update_item(truce_store *store, bson_error_t *error)
{
    return call_item(store, "update {'type': 'B'} {'$inc': {'n': 1}}", error);
}

static void check_updated(truce_store *store, truce_status reported)
{
    bool done = holds(store, "{'type': 'A', 'n': 1}, {'type': 'B', 'n': 3}");

    CHECK(done || holds(store, "{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}"));
    check_reported(reported, done);
}

TEST(an_item_is_updated_once_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"item update", TRUCE_CAN_ARRAY_FILTERS, prepare_items,
                                            update_item, check_updated});
}

static truce_status add_item(truce_store *store, bson_error_t *error)
{
    return call_item(store, "add {'type': 'C', 'n': 3}", error);
}

static void check_added(truce_store *store, truce_status reported)
{
    bool done = holds(store, "{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 3}");

    CHECK(done || holds(store, "{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}"));
    check_reported(reported, done);
}

TEST(an_item_is_added_once_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"item add", 0, prepare_items, add_item, check_added});
}

static truce_status remove_item(truce_store *store, bson_error_t *error)
{
    return call_item(store, "remove {'type': 'A'}", error);
}

static void check_removed(truce_store *store, truce_status reported)
{
    bool done = holds(store, "{'type': 'B', 'n': 2}");

    CHECK(done || holds(store, "{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}"));
    check_reported(reported, done);
}

TEST(an_item_is_removed_whatever_message_is_corrupted)
{
    wire_spoil_all(
        &(struct wire_operation){"item remove", 0, prepare_items, remove_item, check_removed});
}

/* ---- revisions ------------------------------------------------------------------------------ */

static void prepare_post(truce_store *store)
{
    wire_clear(store, "posts");
    wire_clear(store, "posts.revisions");
    wire_clear(store, "truce_commits");
    insert_json(store, "posts", "{'_id': 1, 'a': 1, 'b': 1, 'version': {'$numberLong': '1'}}");
}

static truce_status save(truce_store *store, uint32_t keep, bool merge, const char *json,
                         int64_t version, bson_error_t *error)
{
    truce_revision_options options = {.collection = "posts", .keep = keep, .deadline_ms = 6000};
    truce_revision *revision = tutorial_revision(store, &options);
    bson_t *mine = test_bson(json);
    truce_revision_result result;
    truce_status status = (merge ? truce_revision_merge : truce_revision_save)(
        revision, NULL, mine, version, NULL, &result, error);

    truce_revision_result_release(&result);
    bson_destroy(mine);
    truce_revision_free(revision);
    return status;
}

static void sweep_all(truce_store *store)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error = {0};

    for (int i = 0; i < 60; i++) {
        truce__clock_sleep_ms(i ? 50 : 0);
        CHECK_OK(truce_sweep(store, &options, &report, &error), error);
        if (!count_json(store, "truce_commits", "{'state': {'$in': ['pending', 'committed']}}"))
            break;
    }
}

/* Former versions, without the record of the numbers that were given. */
#define KEPT  "{'last': {'$exists': false}}"
#define SAVED "{'_id': 1, 'a': 2, 'b': 1, 'version': {'$numberLong': '2'}}"

static truce_status save_alone(truce_store *store, bson_error_t *error)
{
    return save(store, 0, false, "{'_id': 1, 'a': 2, 'b': 1}", 1, error);
}

static void check_saved(truce_store *store, truce_status reported)
{
    bool done = count_json(store, "posts", SAVED) == 1;

    CHECK(done || count_json(store, "posts", "{'_id': 1, 'a': 1, 'version': 1}") == 1);
    check_reported(reported, done);
}

TEST(a_revision_is_saved_once_whatever_message_is_corrupted)
{
    wire_spoil_all(
        &(struct wire_operation){"revision save", 0, prepare_post, save_alone, check_saved});
}

/* Saves with the history: two documents, by the mechanism of the store. */
static truce_status save_and_keep(truce_store *store, bson_error_t *error)
{
    return save(store, 2, false, "{'_id': 1, 'a': 2, 'b': 1}", 1, error);
}

static void check_saved_and_kept(truce_store *store, truce_status reported)
{
    sweep_all(store);
    check_saved(store, reported);
    CHECK_INT(count_json(store, "posts.revisions", "{'document.a': 1}"), ==,
              count_json(store, "posts", SAVED));
    CHECK_INT(count_json(store, "posts.revisions", KEPT), ==, count_json(store, "posts", SAVED));
}

TEST(a_save_and_its_history_are_one_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"revision save, kept", 0, prepare_post, save_and_keep,
                                            check_saved_and_kept});
}

static void prepare_both(truce_store *store)
{
    bson_error_t error = {0};

    prepare_post(store);
    CHECK_OK(save_and_keep(store, &error), error);
}

/* Repeats the same change until it is answered: the second time it has no effect. */
static truce_status merge(truce_store *store, bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    for (int i = 0; i < 5 && unanswered(status); i++)
        status = save(store, 2, true, "{'_id': 1, 'a': 1, 'b': 5}", 1, error);
    return status;
}

static void check_merged(truce_store *store, truce_status reported)
{
    CHECK_INT(reported, ==, TRUCE_OK);
    sweep_all(store);
    CHECK_INT(count_json(store, "posts", "{'_id': 1, 'a': 2, 'b': 5, 'version': 3}"), ==, 1);
    CHECK_INT(count_json(store, "posts.revisions", KEPT), ==, 2);
}

TEST(a_merge_is_done_once_whatever_message_is_corrupted)
{
    wire_spoil_all(
        &(struct wire_operation){"revision merge", 0, prepare_both, merge, check_merged});
}

/* ---- sets ----------------------------------------------------------------------------------- */

static const struct model_operation operations[] = {
    {true, 1, NULL, 1, 0},  {true, 2, NULL, 1, 1}, {false, 4, NULL, 1, 0}, {true, 3, NULL, 2, 0},
    {false, 5, NULL, 2, 1}, {true, 6, NULL, 3, 0}, {true, 7, NULL, 1, 2},
};
#define OPERATIONS ((int)(sizeof operations / sizeof *operations))

static void prepare_students(truce_store *store)
{
    wire_clear(store, "students");
    wire_clear(store, "students.classes");
}

static void check_students(truce_store *store, const truce_set_options *options)
{
    truce_set *set = tutorial_set(store, options);

    for (int key = 1; key <= 3; key++)
        model_check(set, operations, OPERATIONS, NULL, key, 3, true, "whatever was corrupted");
    truce_set_free(set);
}

static truce_status apply_single(truce_store *store, const truce_set_options *options,
                                 bson_error_t *error)
{
    truce_set *set = tutorial_set(store, options);
    truce_status status = TRUCE_OK;

    for (int i = 0; i < OPERATIONS && !status; i++) {
        truce_set_outcome outcome;

        status = TRUCE_UNKNOWN;
        for (int again = 0; again < 5 && unanswered(status); again++)
            status = model_apply(set, &operations[i], &outcome, error);
    }
    truce_set_free(set);
    return status;
}

static const truce_set_options classic = {.form = TRUCE_SET_FORM_CLASSIC};
static const truce_set_options by_element = {.layout = TRUCE_SET_BY_ELEMENT};

static truce_status apply_usual(truce_store *store, bson_error_t *error)
{
    return apply_single(store, NULL, error);
}

static truce_status apply_classic(truce_store *store, bson_error_t *error)
{
    return apply_single(store, &classic, error);
}

static truce_status apply_by_element(truce_store *store, bson_error_t *error)
{
    return apply_single(store, &by_element, error);
}

static truce_status apply_batch(truce_store *store, bson_error_t *error)
{
    static const int chosen[] = {0, 1, 2, 3, 4, 5, 6};
    truce_set *set = tutorial_set(store, NULL);
    truce_set_result results[OPERATIONS];
    truce_status status = TRUCE_UNKNOWN;

    for (int again = 0; again < 5 && unanswered(status); again++)
        status = model_apply_batch(set, operations, chosen, OPERATIONS, results, error);
    truce_set_free(set);
    return status;
}

static void check_usual(truce_store *store, truce_status reported)
{
    CHECK_INT(reported, ==, TRUCE_OK);
    check_students(store, NULL);
    CHECK_INT(count_json(store, "students", "{}"), ==, 3);
}

static void check_by_element(truce_store *store, truce_status reported)
{
    CHECK_INT(reported, ==, TRUCE_OK);
    check_students(store, &by_element);
}

TEST(applies_single_set_operations_once_at_any_corrupted_message)
{
    wire_spoil_all(
        &(struct wire_operation){"set add", 0, prepare_students, apply_usual, check_usual});
}

TEST(applies_the_classic_set_form_once_at_any_corrupted_message)
{
    wire_spoil_all(&(struct wire_operation){"set add, classic", 0, prepare_students, apply_classic,
                                            check_usual});
}

TEST(a_set_by_element_counts_once_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"set add, by element", 0, prepare_students,
                                            apply_by_element, check_by_element});
}

TEST(a_batch_of_a_set_counts_once_whatever_message_is_corrupted)
{
    wire_spoil_all(
        &(struct wire_operation){"set apply", 0, prepare_students, apply_batch, check_usual});
}

/* ---- requests ------------------------------------------------------------------------------- */

static truce_status mark(truce_commit *commit, const bson_t *input, void *arg, bson_error_t *error)
{
    (void)input;
    (void)arg;
    return add_update(commit, "data", "e", NULL, "{'$inc': {'n': 1}}", error);
}

static void prepare_request(truce_store *store)
{
    wire_clear(store, "truce_requests");
    wire_clear(store, "truce_commits");
    wire_clear(store, "data");
    insert_json(store, "data", "{'_id': 'e', 'n': 0}");
}

static truce_status run_requests(truce_store *store, bson_error_t *error)
{
    const truce_request_handler handler = {"mark", mark, NULL};
    truce_commit_options options = {.lease_ms = 200, .deadline_ms = 6000};
    truce_request_report report;

    return truce_request_run(store, &handler, 1, 0, &options, &report, error);
}

static truce_status request(truce_store *store, bson_error_t *error)
{
    bson_t input = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    for (int i = 0; i < 5 && unanswered(status); i++)
        status = truce_request_add(store, "mark 1", "mark", &input, error);
    return status ? status : run_requests(store, error);
}

/* Checks that the next client executes the rest, and that it is done once, whatever was
 * reported. */
static void check_request(truce_store *store, truce_status reported)
{
    bson_error_t error = {0};

    (void)reported;
    CHECK_INT(count_json(store, "truce_requests", "{}"), ==, 1);
    sweep_all(store);
    for (int i = 0; i < 100 && count_json(store, "truce_requests", "{'state': 'waiting'}"); i++) {
        CHECK_OK(run_requests(store, &error), error);
        truce__clock_sleep_ms(i ? 50 : 0);
    }
    CHECK_INT(count_json(store, "truce_requests", "{'state': 'done'}"), ==, 1);
    CHECK_DOCUMENT(store, "data", "e", "{'_id': 'e', 'n': 1}");
}

TEST(a_request_is_run_once_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"request", 0, prepare_request, request, check_request});
}

/* ---- reads, and the recovery pass ------------------------------------------------------------ */

static void prepare_pair(truce_store *store)
{
    wire_clear(store, "data");
    wire_clear(store, "truce_commits");
    insert_json(store, "data", "{'_id': 'e', 'n': 3}");
    insert_json(store, "data", "{'_id': 'f', 'n': 4}");
}

static int64_t looked_at;

static truce_status look(truce_store *store, bson_error_t *error)
{
    const bson_value_t e = text_id("e"), f = text_id("f"), none = text_id("none");
    truce_read_request looks[] = {
        {.collection = "data", .id = &e}, {.collection = "data", .id = &f}, {"data", &none}};
    truce_status status =
        truce_read_many(store, looks, 3, &(truce_read_many_options){.deadline_ms = 6000}, error);
    bson_iter_t iter;

    looked_at = 0;
    for (int i = 0; i < 3; i++) {
        if (looks[i].found && bson_iter_init_find(&iter, &looks[i].document, "n"))
            looked_at += bson_iter_as_int64(&iter);
        bson_destroy(&looks[i].document);
    }
    return status;
}

static void check_look(truce_store *store, truce_status reported)
{
    if (reported == TRUCE_OK)
        CHECK_INT(looked_at, ==, 7);
    else
        CHECK(unanswered(reported));
    sweep_all(store); /* a missing document may have been held for the read */
    CHECK_INT(count_json(store, "data", "{'_intent': {'$exists': false}}"), ==, 2);
    CHECK_INT(count_json(store, "data", "{}"), ==, 2);
}

TEST(reads_several_documents_right_at_any_corrupted_message)
{
    wire_spoil_all(&(struct wire_operation){"read many", 0, prepare_pair, look, check_look});
}

static truce_status change_pair(truce_store *store, int64_t at)
{
    truce_fault_options fault = {
        .kind = TRUCE_FAULT_FAIL, .at = (uint64_t)at, .from_then_on = true};
    truce_store *dying = truce_fault_wrap(store, &fault);
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1, .deadline_ms = 300};
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    truce_status status = truce_commit_begin(dying, &options, &commit, &error);

    if (!status)
        status = add_update(commit, "data", "e", NULL, "{'$inc': {'n': -1}}", &error);
    if (!status)
        status = add_update(commit, "data", "f", NULL, "{'$inc': {'n': 1}}", &error);
    if (!status)
        status = truce_commit_apply(commit, &error);
    truce_commit_free(commit);
    return truce_store_close(dying), status;
}

/* False: there is no such process, or another client has run a recovery pass in the meantime. */
static bool leave_dead(truce_store *store)
{
    int64_t at = 1;

    prepare_pair(store);
    while (!count_json(store, "truce_commits", "{'state': 'committed'}") && at < 40) {
        prepare_pair(store);
        (void)!change_pair(store, at++);
    }
    return at < 40 && count_json(store, "data", "{'_intent': {'$exists': true}}") > 0;
}

/* A server may run a recovery pass by itself, each minute; and on a busy machine a commit may
 * have no time to come so far. */
#define SWEPT_MAX 10

/* Two commits whose owners died, one before its decision and one after it. */
static void prepare_dead(truce_store *store)
{
    bool left = false;

    for (int i = 0; i < SWEPT_MAX && !left; i++)
        left = leave_dead(store);
    CHECK(left);
}

static truce_status sweep(truce_store *store, bson_error_t *error)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;

    return truce_sweep(store, &options, &report, error);
}

static void check_swept(truce_store *store, truce_status reported)
{
    CHECK(reported == TRUCE_OK || unanswered(reported));
    sweep_all(store);
    CHECK_DOCUMENT(store, "data", "e", "{'_id': 'e', 'n': 2}");
    CHECK_DOCUMENT(store, "data", "f", "{'_id': 'f', 'n': 5}");
    CHECK_INT(count_json(store, "data", "{'_intent': {'$exists': true}}"), ==, 0);
}

TEST(a_sweep_harms_nothing_whatever_message_is_corrupted)
{
    wire_spoil_all(&(struct wire_operation){"sweep", 0, prepare_dead, sweep, check_swept});
}
