/*
 * Steps of a journal commit that share a call (src/commit/journal.c). The tests count the calls.
 * They also check that a commit is atomic, whichever part of such a call took effect, when it did,
 * and whether its answer was lost.
 */
#include "base/clock.h"
#include "base/status.h"
#include "tests/support/bank.h"
#include "tests/support/hooked.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

#define THINGS 5

static const char *const names[THINGS] = {"a", "b", "c", "d", "e"};

static truce_commit *begin(truce_store *store, uint32_t lease_ms)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = lease_ms, .deadline_ms = 20000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

static void know(truce_commit *commit, const char *id)
{
    bson_value_t value = text_id(id);
    bson_t document;
    bson_error_t error = {0};
    truce_status status = truce_commit_read(commit, "things", &value, &document, &error);

    if (status != TRUCE_NOT_FOUND)
        CHECK_OK(status, error);
    bson_destroy(&document);
}

static void fill(truce_store *store)
{
    for (int i = 0; i < THINGS; i++) {
        char *text = bson_strdup_printf("{'_id': '%s', 'n': 0}", names[i]);

        insert_json(store, "things", text);
        bson_free(text);
    }
}

static truce_store *open_memory(void)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    return store;
}

/* `count` documents are read and counted up; `more`: one is inserted and one removed, too. */
static truce_commit *prepared_commit(truce_store *store, int count, bool more)
{
    truce_commit *commit = begin(store, 60000);
    bson_error_t error = {0};

    for (int i = 0; i < count; i++) {
        know(commit, names[i]);
        CHECK_OK(add_update(commit, "things", names[i], NULL, "{'$inc': {'n': 1}}", &error), error);
    }
    if (more) {
        bson_t *document = test_bson("{'_id': 'new', 'n': 7}");
        bson_value_t last = text_id(names[THINGS - 1]);

        know(commit, "new");
        know(commit, names[THINGS - 1]);
        CHECK_OK(truce_commit_insert(commit, "things", document, &error), error);
        CHECK_OK(truce_commit_remove(commit, "things", &last, NULL, &error), error);
        bson_destroy(document);
    }
    return commit;
}

static void check_numbers(truce_store *store, int count, int number, bool more)
{
    char text[100];

    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "{'_id': '%s', 'n': %d}", names[i], number);
        CHECK_DOCUMENT(store, "things", names[i], text);
    }
    if (more) {
        CHECK_DOCUMENT(store, "things", "new", number ? "{'_id': 'new', 'n': 7}" : NULL);
        CHECK_DOCUMENT(store, "things", names[THINGS - 1], number ? NULL : "{'_id': 'e', 'n': 0}");
    }
}

static void check_nothing_is_held(truce_store *store)
{
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
}

/* ---- how many calls -------------------------------------------------------------------------- */

static uint64_t calls_of(int documents, bool more, const char *validator)
{
    truce_fault_options counted = {.kind = TRUCE_FAULT_NONE, .writes_only = true};
    truce_store *store = truce_fault_wrap(open_memory(), &counted);
    bson_error_t error = {0};
    uint64_t calls = 0;

    fill(store);
    if (validator) {
        bson_t *rules = test_bson(validator);

        CHECK_OK(truce_collection_validate(store, "things", rules, &error), error);
        bson_destroy(rules);
    }
    for (int i = 0; i < 2; i++) { /* the first makes the indexes */
        truce_commit *commit = prepared_commit(store, documents, more && i);

        truce_fault_arm(store, &counted);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        calls = truce_fault_calls(store);
    }
    check_numbers(store, documents, 2, more);
    truce_store_close(store);
    return calls;
}

TEST(costs_five_writes_to_commit_any_number_of_read_documents)
{
    CHECK_INT(calls_of(2, false, NULL), ==, 5);
    CHECK_INT(calls_of(THINGS, false, NULL), ==, 5);
    CHECK_INT(calls_of(3, true, NULL), ==, 5);
}

TEST(a_validator_does_not_refuse_the_stubs_of_such_a_commit)
{
    CHECK_INT(calls_of(3, true, "{'n': {'$type': 'number'}}"), ==, 5);
}

/* ---- a part of a call ------------------------------------------------------------------------ */

static int joined_seen, joined_hit; /* which of them is hit, from 1; 0: none */
static size_t hit_done;             /* so many of its writes are done */
static bool hit_lands;              /* the others are done when all is over */
static truce_write landing[THINGS + 1];
static bson_t *landing_own[THINGS + 1][3];
static size_t landing_count;

static bson_t *copied(const bson_t *document)
{
    return document ? bson_copy(document) : NULL;
}

static void keep(const truce_write *write)
{
    bson_t **own = landing_own[landing_count];

    own[0] = copied(write->filter);
    own[1] = copied(write->document);
    own[2] = copied(write->exact);
    landing[landing_count] = *write;
    landing[landing_count].collection = "things";
    landing[landing_count].filter = own[0];
    landing[landing_count].document = own[1];
    landing[landing_count++].exact = own[2];
}

static truce_status hit_bulk(truce_store *store, const truce_write *writes, size_t number,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!options->joined || ++joined_seen != joined_hit)
        return plain_ops->bulk(store, writes, number, options, outcomes, error);
    for (size_t i = 0; !status && i < hit_done && i < number; i++)
        status = plain_ops->bulk(store, &writes[i], 1, options, &outcomes[i], error);
    for (size_t i = hit_done; hit_lands && i < number; i++)
        keep(&writes[i]);
    for (size_t i = 0; i < number; i++) {
        truce_write_result_release(&outcomes[i].result);
        outcomes[i] = (truce_write_outcome){.status = TRUCE_UNKNOWN};
    }
    (void)truce__fail(TRUCE_UNKNOWN, &outcomes[0].error, "no answer");
    return truce__fail(TRUCE_UNKNOWN, error, "no answer");
}

static void nothing_before(truce_store *store)
{
    (void)store;
}

static void land(truce_store *store)
{
    for (size_t i = 0; i < landing_count; i++) {
        truce_write_outcome outcome;
        bson_error_t ignored;
        truce_status status = truce_bulk(store, &landing[i], 1, NULL, &outcome, &ignored);

        (void)status; /* the answer is lost */
        truce_write_result_release(&outcome.result);
        for (int j = 0; j < 3; j++)
            bson_destroy(landing_own[i][j]);
    }
    landing_count = 0;
}

static void sweep(truce_store *store)
{
    truce_sweep_options options = {0};
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
}

static void one_part(int hit, size_t done, bool lands)
{
    truce_store *store = open_memory();
    truce_commit *commit;
    bson_error_t error = {0};

    fill(store);
    joined_seen = 0;
    joined_hit = hit;
    hit_done = done;
    hit_lands = lands;
    hooked_make(store, nothing_before);
    hooked_ops.bulk = hit_bulk;
    commit = prepared_commit(store, 3, true);
    store->ops = &hooked_ops;
    CHECK_OK(truce_commit_apply(commit, &error), error);
    store->ops = plain_ops;
    truce_commit_free(commit);
    CHECK_INT(joined_seen, >=, hit);
    check_numbers(store, 3, 1, true);
    land(store);
    sweep(store);
    check_numbers(store, 3, 1, true);
    check_nothing_is_held(store);
    CHECK_INT(count_json(store, "truce_commits", "{'state': 'done'}"), ==, 1);
    truce_store_close(store);
}

TEST(keeps_the_commit_whole_after_any_part_of_a_call)
{
    for (int hit = 1; hit <= 2; hit++) {
        for (size_t done = 0; done <= THINGS; done++) {
            one_part(hit, done, false);
            one_part(hit, done, true);
        }
    }
}

/* ---- others ---------------------------------------------------------------------------------- */

static void change_plainly(truce_store *store, const char *id)
{
    bson_value_t value = text_id(id);
    bson_t filter = BSON_INITIALIZER, *change = test_bson("{'$set': {'plain': true}}");
    bson_error_t error = {0};

    BSON_APPEND_VALUE(&filter, "_id", &value);
    CHECK_OK(truce_update(store, "things", &filter, change, NULL, NULL, &error), error);
    bson_destroy(change);
    bson_destroy(&filter);
}

TEST(names_a_changed_document_as_the_conflict)
{
    for (int changed = 0; changed < 3; changed++) {
        truce_store *store = open_memory();
        truce_commit *commit;
        bson_error_t error = {0};
        char text[100];

        fill(store);
        commit = prepared_commit(store, 3, true);
        change_plainly(store, names[changed]);
        CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
        snprintf(text, sizeof text, "document \"%s\" of \"things\"", names[changed]);
        CHECK(strstr(error.message, text));
        truce_commit_free(commit);
        check_nothing_is_held(store);
        CHECK_INT(count_json(store, "things", "{'n': 0}"), ==, THINGS);
        /* one try, not one more to find out why */
        CHECK_INT(count_json(store, "truce_commits", "{'state': {'$exists': true}}"), ==, 1);
        truce_store_close(store);
    }
}

/* Leaves a commit that ended between its prepares and its decision. */
static void leave_held(truce_store *store, uint32_t lease_ms)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE}, all = {.kind = TRUCE_FAULT_FAIL,
                                                                  .from_then_on = true,
                                                                  .writes_only = true,
                                                                  .status = TRUCE_INVALID,
                                                                  .at = 3};
    truce_commit *commit = begin(store, lease_ms);
    bson_error_t error = {0};

    know(commit, "b");
    know(commit, "c");
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$set': {'n': 5}}", &error), error);
    CHECK_OK(add_update(commit, "things", "c", NULL, "{'$set': {'n': 5}}", &error), error);
    truce_fault_arm(store, &all);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_apply(commit, &error), error);
    truce_fault_arm(store, &none);
    truce_commit_free(commit);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 2);
}

TEST(waits_for_held_documents_one_by_one)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *store = truce_fault_wrap(open_memory(), &none);
    truce_commit *commit;
    bson_error_t error = {0};
    bson_value_t b = text_id("b");
    bson_t document;

    fill(store);
    commit = prepared_commit(store, 2, false); /* makes the indexes */
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    commit = prepared_commit(store, 1, false);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_read(commit, "things", &b, &document, &error), error);
    bson_destroy(&document);
    leave_held(store, 300);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    check_numbers(store, 2, 2, false);
    sweep(store);
    check_nothing_is_held(store);
    CHECK_INT(count_json(store, "things", "{'n': 5}"), ==, 0);
    truce_store_close(store);
}

/* ---- unique values --------------------------------------------------------------------------- */

static bool looking, reserved_seen;

static void look_for_reserved(truce_store *store)
{
    if (looking)
        return;
    looking = true;
    reserved_seen =
        reserved_seen ||
        count_json(store, "things", "{'_id': 'a', '_keys': {'$size': 2}, '_intent.keys': 1}") > 0;
    looking = false;
}

static void unique_index(truce_store *store, const char *path)
{
    char *text = bson_strdup_printf("{'key': {'%s': 1}, 'unique': true, 'sparse': true}", path);
    bson_t *index = test_bson(text);
    bson_error_t error = {0};

    CHECK_OK(truce_index_create(store, "things", index, &error), error);
    bson_destroy(index);
    bson_free(text);
}

TEST(prepares_reservations_of_unique_values_alone)
{
    truce_store *store = open_memory();
    truce_commit *commit;
    bson_error_t error = {0};

    unique_index(store, "mail");
    unique_index(store, "_keys");
    for (int i = 0; i < 2; i++) { /* the first gives both their `_keys` */
        commit = begin(store, 60000);
        for (int j = 0; j < 2; j++) {
            char *update = bson_strdup_printf("{'$set': {'mail': '%s%d'}}", names[j], i);
            char *document = bson_strdup_printf("{'_id': '%s', 'n': 0}", names[j]);

            if (!i)
                insert_json(store, "things", document);
            know(commit, names[j]);
            CHECK_OK(add_update(commit, "things", names[j], NULL, update, &error), error);
            bson_free(document);
            bson_free(update);
        }
        hooked_make(store, look_for_reserved);
        reserved_seen = false;
        store->ops = &hooked_ops;
        CHECK_OK(truce_commit_apply(commit, &error), error);
        store->ops = plain_ops;
        truce_commit_free(commit);
    }
    CHECK(reserved_seen);
    check_nothing_is_held(store);
    CHECK_INT(count_json(store, "things", "{'_keys': {'$size': 1}, 'mail': {'$in': ['a1', 'b1']}}"),
              ==, 2);
    truce_store_close(store);
}
