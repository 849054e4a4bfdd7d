/*
 * Every call that finds the disk full, or failed, returns TRUCE_IO with the reason, and does so at
 * once: the deadlines here are an hour.
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
    const truce_commit_options options = {.deadline_ms = HOUR_MS,
                                          .mechanism = mechanism,
                                          .key = key,
                                          .key_time_ms = key ? 1700000000000 : 0};

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

static truce_ledger *open_ledger(void)
{
    return truce_ledger_new(store,
                            &(truce_ledger_options){.collection = "book", .deadline_ms = HOUR_MS});
}

static truce_status post(bson_error_t *error)
{
    truce_ledger *ledger = open_ledger();
    bson_value_t id = truce_id_utf8("t");
    truce_ledger_entry entries[] = {{.account = "a", .value = -1}, {.account = "b", .value = 1}};
    truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 2};
    truce_status status = truce_ledger_post(ledger, NULL, &transaction, NULL, error);

    truce_ledger_free(ledger);
    return status;
}

static truce_status add_item(const bson_t *filter, bson_error_t *error)
{
    truce_item *item = truce_item_new(
        store, &(truce_item_options){
                   .collection = "c", .field = "list", .identity = "type", .deadline_ms = HOUR_MS});
    bson_t *element = test_bson("{'type': 'x'}");
    truce_status status = truce_item_add(item, NULL, filter, element, NULL, error);

    bson_destroy(element);
    truce_item_free(item);
    return status;
}

static truce_status publish(bson_error_t *error)
{
    truce_tree *tree =
        truce_tree_new(store, &(truce_tree_options){.collection = "pages", .deadline_ms = HOUR_MS});
    bson_t *page = test_bson("{'itemId': 1, 'n': 1}");
    truce_tree_edit *edit = NULL;
    truce_tree_published published;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status)
        status = truce_tree_put(edit, page, error);
    if (!status)
        status = truce_tree_publish(edit, NULL, &published, error);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    bson_destroy(page);
    return status;
}

static truce_status transfer(bson_error_t *error)
{
    truce_transfers *transfers = truce_transfers_new(
        store, &(truce_transfer_options){
                   .collection = "transactions", .accounts = "accounts", .deadline_ms = HOUR_MS});
    bson_value_t id = truce_id_utf8("m"), source = truce_id_utf8("a"),
                 destination = truce_id_utf8("b"),
                 value = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    truce_transfer_result result;
    truce_status status = truce_transfer_start(
        transfers, NULL,
        &(truce_transfer){
            .id = &id, .source = &source, .destination = &destination, .value = &value},
        &result, error);

    truce_transfers_free(transfers);
    return status;
}

static truce_status sync_update(const bson_t *update, bson_error_t *error)
{
    truce_sync *sync = truce_sync_new(store, &(truce_sync_options){.deadline_ms = HOUR_MS});
    bson_value_t id = truce_id_utf8("a");
    truce_status status = truce_sync_update(sync, NULL, "accounts", &id, update, NULL, error);

    truce_sync_free(sync);
    return status;
}

static truce_status add_job(const bson_t *payload, bson_error_t *error)
{
    truce_queue *queue =
        truce_queue_new(store, &(truce_queue_options){.queue = "q", .deadline_ms = HOUR_MS});
    truce_status status = truce_queue_add(queue, NULL, payload, NULL, NULL, error);

    truce_queue_free(queue);
    return status;
}

/* Accounts of a ledger, and those of transfers. */
static void open_accounts(void)
{
    truce_ledger *ledger = open_ledger();
    bson_error_t error;

    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b" : "a";
        bson_t *account = BCON_NEW("_id", BCON_UTF8(name), "balance", BCON_INT32(10));

        CHECK_OK(truce_ledger_open(ledger, NULL,
                                   &(truce_ledger_account){.account = name, .currency = "EUR"},
                                   &error),
                 error);
        CHECK_OK(truce_insert(store, "accounts", account, NULL, &error), error);
        bson_destroy(account);
    }
    truce_ledger_free(ledger);
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
    LEDGER_POST,
    ITEM_ADD,
    TREE_PUBLISH,
    TRANSFER,
    SYNC_UPDATE,
    QUEUE_ADD,
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
    case LEDGER_POST:
        status = post(error);
        break;
    case ITEM_ADD:
        status = add_item(filter, error);
        break;
    case TREE_PUBLISH:
        status = publish(error);
        break;
    case TRANSFER:
        status = transfer(error);
        break;
    case SYNC_UPDATE:
        status = sync_update(update, error);
        break;
    case QUEUE_ADD:
        status = add_job(one, error);
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
    bson_t *saved = test_bson("{'_id': 1, 'a': 1}");
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
            truce_revision_save(revision, NULL, saved, TRUCE_REVISION_NEW, NULL, &result, &error),
            error);
        truce_revision_result_release(&result);
        truce_revision_free(revision);
    }
    open_accounts();
    bson_destroy(saved);
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

TEST(every_call_reports_a_full_disk_at_once)
{
    check_calls(DISK_FULL, "the disk is full");
}

TEST(every_call_reports_a_failed_disk_at_once)
{
    check_calls(DISK_WRITE_FAILS, "");
    check_calls(DISK_SYNC_FAILS, "");
}
