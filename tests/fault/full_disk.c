/*
 * Every call that finds the disk full, or failed, answers TRUCE_IO with the reason, and does so at once: the deadlines
 * here are an hour.
 */
#include <truce/truce.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

#define HOUR_MS 3600000

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static truce_store *store;

static truce_status insert_both(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 7}");
    truce_status status = TRUCE_OK;

    for (int i = 0; i < *(const int *)arg && !status; i++)
        status = truce_commit_insert(commit, i ? "d" : "c", document, error);
    bson_destroy(document);
    return status;
}

static truce_status change_both(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *update = test_bson("{'$inc': {'n': 1}}"), document;
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    truce_status status = TRUCE_OK;

    for (int i = 0; i < *(const int *)arg && !status; i++) {
        status = truce_commit_read(commit, i ? "d" : "c", &id, &document, error);
        bson_destroy(&document);
        if (!status)
            status = truce_commit_update(commit, i ? "d" : "c", &id, NULL, update, error);
    }
    bson_destroy(update);
    return status;
}

static truce_status transact(truce_commit_function *function, int documents,
                             truce_mechanism mechanism, const char *key, bson_error_t *error)
{
    const truce_commit_options options = {
        .deadline_ms = HOUR_MS, .mechanism = mechanism, .key = key, .key_time_ms = key ? 1000 : 0};

    return truce_transact(store, function, &documents, &options, error);
}

static truce_status save(bool new, bson_error_t *error)
{
    truce_revision *revision = truce_revision_new(
        store, &(truce_revision_options){.collection = "posts", .deadline_ms = HOUR_MS});
    bson_t *mine = test_bson(new ? "{'_id': 2, 'a': 1}" : "{'_id': 1, 'a': 2}");
    bson_t *base = new ? NULL : test_bson("{'_id': 1, 'a': 1}"); /* so that it is one write */
    truce_revision_result result;
    truce_status status = truce_revision_save(revision, NULL, mine, new ? TRUCE_REVISION_NEW : 1,
                                              base, &result, error);

    truce_revision_result_release(&result);
    truce_revision_free(revision);
    bson_destroy(base);
    bson_destroy(mine);
    return status;
}

static truce_status add_to_set(int64_t number, bson_error_t *error)
{
    truce_set *set = truce_set_new(
        store, &(truce_set_options){
                   .collection = "carts", .key = "cart", .field = "goods", .name = "sku"});
    bson_t *key = test_bson("{'cart': 1}"), *element = test_bson("{'sku': 'A'}");
    truce_status status = truce_set_add(set, NULL, key, element, number, NULL, error);

    truce_set_free(set);
    bson_destroy(key);
    bson_destroy(element);
    return status;
}

enum call {
    INSERT,
    UPDATE,
    TRANSACT_ONE,
    TRANSACT_TWO,
    JOURNAL_ONE,
    JOURNAL_TWO,
    CHANGE_ONE,
    CHANGE_TWO,
    JOURNAL_CHANGE_TWO,
    KEYED,
    SAVE_NEW,
    SAVE,
    SET_ADD,
    SEQUENCE,
    REQUEST,
    CALLS
};

static truce_status do_call(enum call call, bson_error_t *error)
{
    bson_t *one = test_bson("{'_id': 9}"), *update = test_bson("{'$set': {'x': 1}}");
    bson_t *filter = test_bson("{'_id': 1}");
    truce_status status = TRUCE_OK;
    int64_t number;

    switch (call) {
    case INSERT:
        status = truce_insert(store, "c", one, NULL, error);
        break;
    case UPDATE:
        status = truce_update(store, "c", filter, update, NULL, NULL, error);
        break;
    case TRANSACT_ONE:
    case TRANSACT_TWO:
        status =
            transact(insert_both, call == TRANSACT_ONE ? 1 : 2, TRUCE_MECHANISM_AUTO, NULL, error);
        break;
    case JOURNAL_ONE:
    case JOURNAL_TWO:
        status = transact(insert_both, call == JOURNAL_ONE ? 1 : 2, TRUCE_MECHANISM_JOURNAL, NULL,
                          error);
        break;
    case CHANGE_ONE:
    case CHANGE_TWO:
        status =
            transact(change_both, call == CHANGE_ONE ? 1 : 2, TRUCE_MECHANISM_AUTO, NULL, error);
        break;
    case JOURNAL_CHANGE_TWO:
        status = transact(change_both, 2, TRUCE_MECHANISM_JOURNAL, NULL, error);
        break;
    case KEYED:
        status = transact(insert_both, 2, TRUCE_MECHANISM_AUTO, "a-key", error);
        break;
    case SAVE_NEW:
    case SAVE:
        status = save(call == SAVE_NEW, error);
        break;
    case SET_ADD:
        status = add_to_set(5, error);
        break;
    case SEQUENCE:
        status = truce_sequence_next(store, "numbers", &number, error);
        break;
    case REQUEST:
        status = truce_request_add(store, "r1", "name", one, error);
        break;
    case CALLS:
        break;
    }
    bson_destroy(one);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

static void prepare(const char *name)
{
    bson_t *one = test_bson("{'_id': 1, 'n': 0}");
    char path[400];
    bson_error_t error;
    bson_t *post = test_bson("{'_id': 1, 'a': 1}");
    int64_t number;

    disk_reset();
    snprintf(path, sizeof path, "%s/%s.truce", test_directory(), name);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(truce_insert(store, "c", one, NULL, &error), error);
    CHECK_OK(truce_insert(store, "d", one, NULL, &error), error);
    CHECK_OK(add_to_set(1, &error), error);
    CHECK_OK(truce_sequence_next(store, "numbers", &number, &error), error);
    {
        truce_revision *revision =
            truce_revision_new(store, &(truce_revision_options){.collection = "posts"});
        truce_revision_result result;

        CHECK_OK(
            truce_revision_save(revision, NULL, post, TRUCE_REVISION_NEW, NULL, &result, &error),
            error);
        truce_revision_result_release(&result);
        truce_revision_free(revision);
    }
    bson_destroy(post);
    bson_destroy(one);
}

static void check_calls(enum disk_fault fault, const char *reason)
{
    for (int call = 0; call < CALLS; call++) {
        bson_error_t error = {0};
        truce_status status;

        prepare("s");
        disk_fail(fault, 1, true);
        status = do_call(call, &error);
        if (status != TRUCE_IO || !strstr(error.message, reason))
            test_fail(__FILE__, __LINE__, "call %d: %s: %s", call, truce_status_name(status),
                      error.message);
        disk_fail(DISK_NO_FAULT, 0, false);
        truce_store_close(store);
    }
}

TEST(a_full_disk_is_told_by_every_call_at_once)
{
    check_calls(DISK_FULL, "the disk is full");
}

TEST(a_failed_disk_is_told_by_every_call_at_once)
{
    check_calls(DISK_WRITE_FAILS, "");
    check_calls(DISK_SYNC_FAILS, "");
}
