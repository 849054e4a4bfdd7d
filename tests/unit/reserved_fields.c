/* Every call refuses a struct whose reserved fields are not zero. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "truce/truce.h"

/* Other arguments of the calls. */
static truce_store *store, *other;
static bson_t *one, *set, *array;

/* Calls with a struct of zeros, except for one word of its reserved field: the first or the
 * last. */
typedef truce_status call_function(size_t word, bson_error_t *error);

/* Takes the place of any function: a refused call never calls it. */
static int never(void)
{
    abort();
}

#define CALL(name, type, ...)                                                                      \
    static truce_status name(size_t word, bson_error_t *error)                                     \
    {                                                                                              \
        type given = {0};                                                                          \
                                                                                                   \
        given.reserved[word ? sizeof given.reserved / sizeof given.reserved[0] - 1 : 0] = 1;       \
        __VA_ARGS__                                                                                \
    }

CALL(store_options, truce_store_options, {
    truce_store *opened;
    truce_status status = truce_store_open("memory:", &given, &opened, error);

    CHECK(!opened);
    return status;
})
CALL(store_hooks, truce_store_hooks, {
    truce_store_options options = {.hooks = &given};
    truce_store *opened;

    return truce_store_open("memory:", &options, &opened, error);
})
CALL(find, truce_find_options, {
    truce_cursor *cursor;

    return truce_find(store, "c", one, &given, &cursor, error);
})
CALL(find_one, truce_find_options, {
    bson_t found;
    truce_status status = truce_find_one(store, "c", one, &given, &found, error);

    bson_destroy(&found);
    return status;
})
CALL(list, truce_list_options, {
    bson_t collections;
    truce_status status = truce_collection_list(store, &given, &collections, error);

    bson_destroy(&collections);
    return status;
})
CALL(explain, truce_find_options, {
    bson_t plan;
    truce_status status = truce_explain(store, "c", one, &given, &plan, error);

    bson_destroy(&plan);
    return status;
})
CALL(count, truce_count_options, {
    int64_t number;

    return truce_count(store, "c", one, &given, &number, error);
})
CALL(explain_count, truce_count_options, {
    bson_t plan;
    truce_status status = truce_explain_count(store, "c", one, &given, &plan, error);

    bson_destroy(&plan);
    return status;
})
CALL(aggregate, truce_aggregate_options, {
    truce_cursor *cursor;

    return truce_aggregate(store, "c", array, &given, &cursor, error);
})
CALL(insert, truce_write_options, { return truce_insert(store, "c", one, &given, error); })
CALL(update, truce_write_options,
     { return truce_update(store, "c", one, set, &given, NULL, error); })
CALL(remove_one, truce_write_options,
     { return truce_remove(store, "c", one, &given, NULL, error); })
CALL(find_and_modify, truce_modify_options, {
    bson_t found;
    truce_status status = truce_find_and_modify(store, "c", one, set, &given, &found, NULL, error);

    bson_destroy(&found);
    return status;
})

static truce_status bulk_of(const truce_write *write, const truce_bulk_options *options,
                            bson_error_t *error)
{
    truce_write_outcome outcome;

    return truce_bulk(store, write, 1, options, &outcome, error);
}

CALL(bulk, truce_bulk_options, {
    truce_write write = {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = one};

    return bulk_of(&write, &given, error);
})
CALL(write_of_a_bulk, truce_write, {
    given.kind = TRUCE_WRITE_INSERT;
    given.collection = "c";
    given.document = one;
    return bulk_of(&given, NULL, error);
})
CALL(options_of_a_write, truce_write_options, {
    truce_write write = {
        .kind = TRUCE_WRITE_INSERT, .collection = "c", .document = one, .options = given};

    return bulk_of(&write, NULL, error);
})
CALL(snapshot, truce_snapshot_options, {
    truce_store *view;

    return truce_snapshot(store, &given, &view, error);
})

static truce_status do_nothing(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)commit, (void)arg, (void)error;
    return TRUCE_OK;
}

static truce_status answer_nothing(truce_commit *commit, const bson_t *input, void *arg,
                                   bson_error_t *error)
{
    (void)input;
    return do_nothing(commit, arg, error);
}

CALL(commit_begin, truce_commit_options, {
    truce_commit *commit;

    return truce_commit_begin(store, &given, &commit, error);
})
CALL(transact, truce_commit_options,
     { return truce_transact(store, do_nothing, NULL, &given, error); })
CALL(commit_list, truce_commit_list_options, {
    truce_cursor *cursor = NULL;
    truce_status status = truce_commit_list(store, &given, &cursor, error);

    truce_cursor_close(cursor);
    return status;
})
CALL(changes_apply, truce_commit_options,
     { return truce_changes_apply(store, "c", set, &given, error); })
CALL(look, truce_read_request, {
    bson_value_t id = truce_id_int64(1);
    truce_status status;

    given.collection = "c";
    given.id = &id;
    status = truce_read_many(store, &given, 1, NULL, error);
    bson_destroy(&given.document);
    return status;
})
CALL(read_many, truce_read_many_options, {
    bson_value_t id = truce_id_int64(1);
    truce_read_request looked = {.collection = "c", .id = &id};
    truce_status status = truce_read_many(store, &looked, 1, &given, error);

    bson_destroy(&looked.document);
    return status;
})
CALL(unique_declare, truce_unique_options, {
    truce_unique_report report;

    return truce_unique_declare(store, "c", &given, &report, error);
})
CALL(request_run, truce_commit_options, {
    const truce_request_handler handler = {.name = "f", .function = answer_nothing};
    truce_request_report report;

    return truce_request_run(store, &handler, 1, 0, &given, &report, error);
})
CALL(request_handler, truce_request_handler, {
    truce_request_report report;

    given.name = "f";
    given.function = answer_nothing;
    return truce_request_run(store, &given, 1, 0, NULL, &report, error);
})
CALL(set_options, truce_set_options, {
    truce_set *carts;
    truce_status status;

    given.collection = "carts";
    given.key = "_id";
    given.field = "lines";
    given.name = "sku";
    carts = truce_set_new(store, &given);
    status = truce_set_add(carts, NULL, one, set, 1, NULL, error);
    truce_set_free(carts);
    return status;
})
CALL(set_operation, truce_set_operation, {
    const truce_set_options options = {
        .collection = "carts", .key = "_id", .field = "lines", .name = "sku"};
    truce_set *carts = truce_set_new(store, &options);
    bson_t *element = test_bson("{'sku': 'A'}");
    truce_set_result result;
    truce_status status;

    given.verb = TRUCE_SET_ADD;
    given.key = one;
    given.element = element;
    given.seq = 1;
    status = truce_set_apply(carts, NULL, &given, 1, &result, error);
    if (!status)
        status = result.status;
    truce_set_free(carts);
    bson_destroy(element);
    return status;
})
CALL(item_options, truce_item_options, {
    truce_item_result result;
    truce_item *items;
    truce_status status;

    given.collection = "carts";
    given.field = "lines";
    given.identity = "sku";
    items = truce_item_new(store, &given);
    status = truce_item_remove(items, NULL, one, one, &result, error);
    truce_item_free(items);
    return status;
})

static truce_status add_job(const truce_queue_options *of, const truce_job_options *options,
                            bson_error_t *error)
{
    truce_queue *queue = truce_queue_new(store, of);
    truce_job_added added;
    truce_status status = truce_queue_add(queue, NULL, one, options, &added, error);

    truce_queue_free(queue);
    return status;
}

CALL(queue_limits, truce_queue_limits, {
    const truce_queue_options options = {.queue = "mails"};
    truce_queue *queue = truce_queue_new(store, &options);
    truce_status status = truce_queue_limit(queue, &given, error);

    truce_queue_free(queue);
    return status;
})

CALL(queue_source, truce_queue_source, {
    const truce_queue_options options = {.queue = "mails"};
    truce_queue *queue = truce_queue_new(store, &options);
    truce_job *job;
    size_t count;
    truce_status status;

    given.queue = queue;
    status = truce_queue_claim_from(&given, 1, 1, &job, &count, error);
    truce_queue_free(queue);
    return status;
})

static truce_status work_nothing(truce_job *job, void *arg, bson_error_t *error)
{
    return TRUCE_OK;
}

CALL(pool_options, truce_pool_options, {
    const truce_queue_options options = {.queue = "mails"};
    truce_queue *queue = truce_queue_new(store, &options);
    truce_pool *pool;
    truce_status status;

    given.function = work_nothing;
    status = truce_pool_start(queue, &given, &pool, error);
    truce_pool_free(pool);
    truce_queue_free(queue);
    return status;
})

CALL(cron_options, truce_cron_options, {
    const truce_queue_options options = {.queue = "mails"};
    truce_queue *queue = truce_queue_new(store, &options);
    bson_t *payload = test_bson("{'n': 1}");
    truce_status status = truce_cron_set(queue, "line", "@daily", payload, &given, error);

    bson_destroy(payload);
    truce_queue_free(queue);
    return status;
})

CALL(queue_options, truce_queue_options, {
    given.queue = "mails";
    return add_job(&given, NULL, error);
})
CALL(flow_job, truce_flow_job, {
    const truce_queue_options options = {.queue = "mails"};
    bson_oid_t id;
    truce_status status;

    given.name = "one";
    given.queue = truce_queue_new(store, &options);
    given.payload = one;
    status = truce_queue_add_flow(&given, 1, NULL, &id, error);
    truce_queue_free(given.queue);
    return status;
})
CALL(job_options, truce_job_options, {
    const truce_queue_options options = {.queue = "mails"};

    return add_job(&options, &given, error);
})
CALL(jobs_options, truce_job_options, {
    const truce_queue_options options = {.queue = "mails"};
    truce_queue *queue = truce_queue_new(store, &options);
    const bson_t *payload = one;
    bson_oid_t id;
    truce_status status = truce_queue_add_many(queue, &payload, 1, &given, &id, error);

    truce_queue_free(queue);
    return status;
})
CALL(ledger_options, truce_ledger_options, {
    truce_ledger *ledger;
    truce_status status;

    given.collection = "tx";
    ledger = truce_ledger_new(store, &given);
    status = truce_ledger_currency(ledger, "EUR", 2, error);
    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_account, truce_ledger_account, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_status status;

    given.account = "a";
    status = truce_ledger_open(ledger, NULL, &given, error);
    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_transaction, truce_ledger_transaction, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_status status = truce_ledger_post(ledger, NULL, &given, NULL, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_transactions, truce_ledger_transaction, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_ledger_result result;
    truce_status status = truce_ledger_post_many(ledger, &given, 1, &result, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_linked, truce_ledger_transaction, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_status status = truce_ledger_post_linked(ledger, &given, 1, NULL, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_moment, truce_ledger_moment, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_ledger_balance balance;
    truce_status status = truce_ledger_balance_of(ledger, "a", &given, &balance, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_page, truce_ledger_page, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_status status = truce_ledger_statement(ledger, "a", &given, (void *)never, NULL, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_seal_source, truce_ledger_seal_source, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_ledger_report report;
    truce_status status =
        truce_ledger_verify(ledger, NULL, &given, (void *)never, NULL, &report, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(ledger_search, truce_ledger_search, {
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "tx"});
    truce_status status = truce_ledger_find(ledger, &given, (void *)never, NULL, error);

    truce_ledger_free(ledger);
    return status;
})
CALL(transfer_options, truce_transfer_options, {
    truce_transfers *transfers;
    truce_status status;

    given.collection = "moves";
    transfers = truce_transfers_new(store, &given);
    status =
        truce_transfer_resume(transfers, &(bson_value_t){.value_type = BSON_TYPE_INT32}, error);
    truce_transfers_free(transfers);
    return status;
})
CALL(transfer, truce_transfer, {
    truce_transfers *transfers =
        truce_transfers_new(store, &(truce_transfer_options){.collection = "moves"});
    truce_status status = truce_transfer_start(transfers, NULL, &given, NULL, error);

    truce_transfers_free(transfers);
    return status;
})
CALL(transfer_entry, truce_transfer_entry, {
    bson_value_t id = {.value_type = BSON_TYPE_INT32};
    truce_transfer of_one = {.id = &id, .entries = &given, .count = 1};
    truce_transfers *transfers =
        truce_transfers_new(store, &(truce_transfer_options){.collection = "moves"});
    truce_status status = truce_transfer_start(transfers, NULL, &of_one, NULL, error);

    truce_transfers_free(transfers);
    return status;
})
CALL(sync_options, truce_sync_options, {
    truce_sync *sync = truce_sync_new(store, &given);
    truce_status status = truce_sync_drop(sync, "none", error);

    truce_sync_free(sync);
    return status;
})
CALL(sync_rule, truce_sync_rule, {
    truce_sync *sync = truce_sync_new(store, NULL);
    truce_status status = truce_sync_declare(sync, &given, error);

    truce_sync_free(sync);
    return status;
})
CALL(sync_walk, truce_sync_walk_options, {
    truce_sync_report report;
    truce_sync *sync = truce_sync_new(store, NULL);
    truce_status status = truce_sync_walk(sync, "none", &given, &report, error);

    truce_sync_free(sync);
    return status;
})
CALL(tree_options, truce_tree_options, {
    truce_tree *tree = truce_tree_new(store, &given);
    truce_status status = truce_tree_untag(tree, "none", error);

    truce_tree_free(tree);
    return status;
})
CALL(tree_edit_options, truce_tree_edit_options, {
    truce_tree *tree = truce_tree_new(store, &(truce_tree_options){.collection = "pages"});
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, &given, &edit, error);

    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
})
CALL(tree_rebase_options, truce_tree_rebase_options, {
    truce_tree *tree = truce_tree_new(other, &(truce_tree_options){.collection = "pages"});
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status)
        status = truce_tree_rebase(edit, &given, NULL, error);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
})
CALL(tree_at, truce_tree_at, {
    truce_tree *tree = truce_tree_new(store, &(truce_tree_options){.collection = "pages"});
    truce_tree_snapshot *snapshot;
    truce_status status = truce_tree_open(tree, &given, &snapshot, error);

    truce_tree_close(snapshot);
    truce_tree_free(tree);
    return status;
})
CALL(tree_find_options, truce_tree_find_options, {
    truce_tree *tree = truce_tree_new(other, &(truce_tree_options){.collection = "pages"});
    truce_tree_snapshot *snapshot = NULL;
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status)
        status = truce_tree_open(tree, NULL, &snapshot, error);
    if (!status)
        status = truce_tree_find(snapshot, NULL, &given, (void *)never, NULL, error);
    truce_tree_close(snapshot);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
})
CALL(tree_merge_options, truce_tree_merge_options, {
    truce_tree *tree = truce_tree_new(other, &(truce_tree_options){.collection = "pages"});
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status)
        status = truce_tree_branch(tree, NULL, "draft", error);
    if (!status || status == TRUCE_DUPLICATE)
        status = truce_tree_merge(tree, "draft", &given, NULL, NULL, error);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
})
CALL(tree_keep, truce_tree_keep, {
    truce_tree *tree = truce_tree_new(store, &(truce_tree_options){.collection = "pages"});
    truce_status status = truce_tree_retain(tree, &given, error);

    truce_tree_free(tree);
    return status;
})
CALL(revision_options, truce_revision_options, {
    truce_revision_result result;
    truce_revision *posts;
    truce_status status;

    given.collection = "posts";
    posts = truce_revision_new(store, &given);
    status = truce_revision_save(posts, NULL, one, TRUCE_REVISION_NEW, NULL, &result, error);
    truce_revision_result_release(&result);
    truce_revision_free(posts);
    return status;
})
CALL(http, truce_http_request, {
    given.method = "GET";
    if (truce_revision_http(&given, 1) != 400)
        return TRUCE_OK;
    snprintf(error->message, sizeof error->message, "reserved fields of truce_http_request");
    return TRUCE_INVALID;
})
CALL(sweep, truce_sweep_options, {
    truce_sweep_report report;

    return truce_sweep(store, &given, &report, error);
})
CALL(check, truce_check_options, {
    truce_check_report report;

    return truce_check(store, &given, NULL, NULL, &report, error);
})
static truce_compact_report compacted;

CALL(compact, truce_compact_options, { return truce_compact(other, &given, &compacted, error); })
CALL(salvage, truce_salvage_options,
     { return truce_salvage("nowhere", other, &given, NULL, error); })
CALL(copy, truce_copy_options, {
    truce_copy_report report;
    truce_status status = truce_copy(store, other, &given, &report, error);

    return status;
})
CALL(consume, truce_consume_options, { return truce_consume(store, &given, NULL, error); })
CALL(publish, truce_publish_options, { return truce_publish(store, &given, NULL, error); })

static const struct {
    const char *name; /* of the type, as the sentence has it */
    call_function *call;
} calls[] = {
    {"truce_store_options", store_options},
    {"truce_store_hooks", store_hooks},
    {"truce_find_options", find},
    {"truce_find_options", find_one},
    {"truce_find_options", explain},
    {"truce_list_options", list},
    {"truce_count_options", count},
    {"truce_count_options", explain_count},
    {"truce_aggregate_options", aggregate},
    {"truce_write_options", insert},
    {"truce_write_options", update},
    {"truce_write_options", remove_one},
    {"truce_modify_options", find_and_modify},
    {"truce_bulk_options", bulk},
    {"truce_write", write_of_a_bulk},
    {"truce_write_options", options_of_a_write},
    {"truce_snapshot_options", snapshot},
    {"truce_commit_options", commit_begin},
    {"truce_commit_list_options", commit_list},
    {"truce_commit_options", transact},
    {"truce_commit_options", changes_apply},
    {"truce_read_request", look},
    {"truce_read_many_options", read_many},
    {"truce_unique_options", unique_declare},
    {"truce_commit_options", request_run},
    {"truce_request_handler", request_handler},
    {"truce_set_options", set_options},
    {"truce_set_operation", set_operation},
    {"truce_item_options", item_options},
    {"truce_revision_options", revision_options},
    {"truce_cron_options", cron_options},
    {"truce_pool_options", pool_options},
    {"truce_queue_limits", queue_limits},
    {"truce_queue_source", queue_source},
    {"truce_queue_options", queue_options},
    {"truce_flow_job", flow_job},
    {"truce_job_options", job_options},
    {"truce_job_options", jobs_options},
    {"truce_ledger_options", ledger_options},
    {"truce_ledger_account", ledger_account},
    {"truce_ledger_transaction", ledger_transaction},
    {"truce_ledger_transaction", ledger_transactions},
    {"truce_ledger_transaction", ledger_linked},
    {"truce_ledger_moment", ledger_moment},
    {"truce_ledger_page", ledger_page},
    {"truce_ledger_seal_source", ledger_seal_source},
    {"truce_ledger_search", ledger_search},
    {"truce_transfer_options", transfer_options},
    {"truce_transfer", transfer},
    {"truce_transfer_entry", transfer_entry},
    {"truce_sync_options", sync_options},
    {"truce_sync_rule", sync_rule},
    {"truce_sync_walk_options", sync_walk},
    {"truce_tree_options", tree_options},
    {"truce_tree_edit_options", tree_edit_options},
    {"truce_tree_rebase_options", tree_rebase_options},
    {"truce_tree_merge_options", tree_merge_options},
    {"truce_tree_at", tree_at},
    {"truce_tree_find_options", tree_find_options},
    {"truce_tree_keep", tree_keep},
    {"truce_http_request", http},
    {"truce_sweep_options", sweep},
    {"truce_check_options", check},
    {"truce_copy_options", copy},
    {"truce_compact_options", compact},
    {"truce_salvage_options", salvage},
    {"truce_consume_options", consume},
    {"truce_publish_options", publish},
};

TEST(reserved_room_that_is_not_zeros_is_refused_by_every_call)
{
    bson_error_t error = {0};
    bson_t collections;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_OK(truce_store_open("memory:", NULL, &other, &error), error);
    one = test_bson("{'_id': 1}");
    set = test_bson("{'$set': {'a': 1}}");
    array = test_bson("[]");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (size_t word = 0; word < 2; word++) {
            truce_status status;

            error = (bson_error_t){0};
            status = calls[i].call(word, &error);
            if (status != TRUCE_INVALID || !strstr(error.message, "reserved fields of") ||
                !strstr(error.message, calls[i].name))
                test_fail(__FILE__, __LINE__, "number %zu, %s: %s, %s", i, calls[i].name,
                          truce_status_name(status), error.message);
        }
    }
    CHECK_OK(truce_collection_list(store, NULL, &collections, &error), error);
    CHECK(bson_empty(&collections)); /* and nothing was done */
    bson_destroy(&collections);
    bson_destroy(one);
    bson_destroy(set);
    bson_destroy(array);
    truce_store_close(store);
    truce_store_close(other);
}

/* Output structs are not checked: calls fill them. */
static const char *const filled[] = {
    "truce_write_result",   "truce_write_outcome",   "truce_store_counters",
    "truce_snapshot_state", "truce_commit_counters", "truce_unique_report",
    "truce_copy_report",    "truce_doctor_report",   "truce_item_result",
    "truce_item_converted", "truce_request_report",  "truce_revision_result",
    "truce_set_result",     "truce_set_collected",   "truce_sweep_report",
    "truce_check_report",   "truce_slow_call",       "truce_set_converted",
    "truce_job_added",      "truce_salvage_report",  "truce_ledger_result",
    "truce_compact_report", "truce_ledger_balance",  "truce_ledger_line",
    "truce_ledger_report",  "truce_transfer_result", "truce_sync_result",
    "truce_sync_finding",   "truce_sync_report",     "truce_tree_published",
    "truce_tree_conflict",  "truce_tree_change",     "truce_tree_collected",
    "truce_tree_imported",  "truce_consume_counts",  "truce_publish_counts",
};

static bool is_known(const char *name)
{
    bool known = false;

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        known |= !strcmp(calls[i].name, name);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        known |= !strcmp(filled[i], name);
    return known;
}

TEST(checks_the_reserved_fields_of_every_input_struct)
{
    FILE *headers = popen("cat '" TRUCE_TEST_DATA "/../../'include/truce/*.h", "r");
    char line[300], name[100];
    bool room = false;
    int seen = 0;

    REQUIRE(headers != NULL);
    while (fgets(line, sizeof line, headers)) {
        room |= strstr(line, "uint64_t reserved[") != NULL;
        if (sscanf(line, "} %99[a-z_];", name) != 1)
            continue;
        if (room && !is_known(name))
            test_fail(__FILE__, __LINE__,
                      "%s has room: ROOM_CHECK it in its calls, and call them here", name);
        seen += room;
        room = false;
    }
    pclose(headers);
    CHECK_INT(seen, >, 30);
}
