/*
 * Every call on a handle with invalid options returns the error of the options. Every call on a
 * handle of the parent in a forked child is refused before it takes a lock, which a thread of the
 * parent may hold.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"
#include "truce/truce.h"

static bson_error_t error;
static bson_t out;
static bson_t *some;
static const bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
static const bson_oid_t oid;

/* The options are invalid; 0: the calls are made in a forked child. */
static uint64_t reserved;
/* This is the parent of a child that makes the calls. */
static bool calls_nothing;
/* Locks that the running call took. */
static int locks;

#if !TEST_THREAD_SANITIZED
__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*lock)(pthread_mutex_t *);

    if (!lock)
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    locks++;
    return lock(mutex);
}
#endif

/* `status` is the status of the macro's call. Every call initializes its results, or has none. */
static void said(truce_status status, const char *call)
{
    if (status != TRUCE_INVALID || !strstr(error.message, reserved ? "not zero" : "forked"))
        test_fail(__FILE__, __LINE__, "%s: %d, \"%s\"", call, status, error.message);
    if (!reserved && locks)
        test_fail(__FILE__, __LINE__, "%s: took %d locks", call, locks);
    memset(&error, 0, sizeof error);
    locks = 0;
}

/* Takes the place of any function: a refused handle never calls it. */
static int never(void)
{
    abort();
}

#define NEVER (void *)never

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        if (!calls_nothing)                                                                        \
            said(call, #call);                                                                     \
    } while (0)

/* The call initializes `out`, even if it fails. */
#define REFUSED_OUT(call)                                                                          \
    do {                                                                                           \
        REFUSED(call);                                                                             \
        if (!calls_nothing)                                                                        \
            bson_destroy(&out);                                                                    \
    } while (0)

static truce_store *begin(void)
{
    truce_store *store;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        abort();
    some = test_bson("{'_id': 1, 'a': 1}");
    return store;
}

/* Forks, if the calls are made in a child. */
static void split(void)
{
    int state = 0;
    pid_t child;

    locks = 0;
    if (reserved)
        return;
    fflush(NULL);
    child = fork();
    if (!child) {
        alarm(60);
        locks = 0;
        return;
    }
    calls_nothing = true;
    CHECK(child > 0 && waitpid(child, &state, 0) == child && !state);
}

static void end(truce_store *store)
{
    bson_destroy(some);
    truce_store_close(store);
    if (!reserved && !calls_nothing)
        test_child_exit();
    calls_nothing = false;
}

static void tree_calls(void)
{
    truce_store *store = begin();
    truce_tree *tree = truce_tree_new(
        store,
        &(truce_tree_options){.collection = "pages", .name = "site", .reserved = {reserved}});
    truce_tree_import *import = truce_tree_import_new(tree);
    bson_t *line =
        test_bson("{'$tree': 'site', 'collection': 'pages', 'from': {'$numberLong': '1'}, "
                  "'to': {'$numberLong': '1'}, 'whole': true}");
    truce_tree_edit *edit;
    truce_tree_snapshot *snapshot;
    int64_t versions;

    split();
    REFUSED(truce_tree_begin(tree, NULL, &edit, &error));
    REFUSED(truce_tree_open(tree, NULL, &snapshot, &error));
    REFUSED(truce_tree_diff(tree, 1, 2, NEVER, NULL, &error));
    REFUSED(truce_tree_log(tree, 0, NEVER, NULL, &error));
    REFUSED_OUT(truce_tree_status(tree, &out, &error));
    REFUSED(truce_tree_branch(tree, NULL, "other", &error));
    REFUSED(truce_tree_merge(tree, "other", NULL, NULL, NULL, &error));
    REFUSED(truce_tree_drop(tree, &error));
    REFUSED(truce_tree_export(tree, 0, NEVER, NULL, &error));
    REFUSED(truce_tree_import_line(import, line, &error));
    REFUSED(truce_tree_retain(tree, &(truce_tree_keep){0}, &error));
    REFUSED(truce_tree_tag(tree, "launch", 1, &error));
    REFUSED(truce_tree_untag(tree, "launch", &error));
    REFUSED(truce_tree_collect(tree, NULL, &error));
    REFUSED(truce_tree_erase(tree, &id, &versions, &error));
    truce_tree_import_free(import);
    truce_tree_free(tree);
    bson_destroy(line);
    end(store);
}

static void queue_calls(void)
{
    truce_store *store = begin();
    truce_queue *queue =
        truce_queue_new(store, &(truce_queue_options){.queue = "mail", .reserved = {reserved}});
    const truce_flow_job flow = {.queue = queue, .payload = some, .name = "first"};
    const truce_queue_source source = {.queue = queue};
    const bson_t *payloads[] = {some};
    truce_pool *pool;
    truce_job *job;
    bson_oid_t made;
    size_t count;
    uint32_t many;

    split();
    REFUSED(truce_queue_add(queue, NULL, some, NULL, NULL, &error));
    REFUSED(truce_queue_add_many(queue, payloads, 1, NULL, &made, &error));
    REFUSED(truce_queue_add_flow(&flow, 1, NULL, &made, &error));
    REFUSED(truce_queue_claim(queue, &job, &error));
    REFUSED(truce_queue_claim_many(queue, 1, &job, &count, &error));
    REFUSED(truce_queue_claim_wait(queue, 1, &job, &error));
    REFUSED(truce_queue_claim_from(&source, 1, 1, &job, &count, &error));
    REFUSED(truce_queue_signal(queue, NULL, &oid, "paid", some, &error));
    REFUSED(truce_queue_close(queue, NULL, &oid, &error));
    REFUSED_OUT(truce_queue_get(queue, NULL, &oid, &out, &error));
    REFUSED(truce_queue_cancel(queue, NULL, &oid, &error));
    REFUSED(truce_queue_retry(queue, NULL, &oid, &error));
    REFUSED(truce_queue_discard(queue, NULL, &oid, &error));
    REFUSED(truce_queue_redrive(queue, 1, &many, &error));
    REFUSED(truce_queue_pause(queue, &error));
    REFUSED(truce_queue_resume(queue, &error));
    REFUSED(truce_queue_limit(queue, &(truce_queue_limits){0}, &error));
    REFUSED(truce_cron_set(queue, "nightly", "@daily", some, NULL, &error));
    REFUSED(truce_pool_start(queue, &(truce_pool_options){.function = NEVER}, &pool, &error));
    truce_queue_free(queue);
    end(store);
}

static void ledger_calls(void)
{
    truce_store *store = begin();
    truce_ledger *ledger = truce_ledger_new(
        store, &(truce_ledger_options){.collection = "bank", .reserved = {reserved}});
    const truce_ledger_account account = {.account = "cash", .currency = "EUR"};
    const truce_ledger_entry entries[] = {{.account = "cash", .value = 1},
                                          {.account = "bank", .value = -1}};
    const truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 2};
    truce_ledger_result result;
    truce_ledger_balance balance;
    truce_ledger_report report;
    int digits;

    split();
    REFUSED(truce_ledger_currency(ledger, "EUR", 2, &error));
    REFUSED(truce_ledger_digits(ledger, "EUR", &digits, &error));
    REFUSED(truce_ledger_open(ledger, NULL, &account, &error));
    REFUSED(truce_ledger_rules(ledger, NULL, &account, &error));
    REFUSED(truce_ledger_post(ledger, NULL, &transaction, &result, &error));
    REFUSED(truce_ledger_post_many(ledger, &transaction, 1, &result, &error));
    REFUSED(truce_ledger_post_linked(ledger, &transaction, 1, NULL, &error));
    REFUSED(truce_ledger_balance_of(ledger, "cash", NULL, &balance, &error));
    REFUSED(truce_ledger_balances(ledger, NULL, NEVER, NULL, &error));
    REFUSED(truce_ledger_statement(ledger, "cash", &(truce_ledger_page){0}, NEVER, NULL, &error));
    REFUSED(truce_ledger_pending(ledger, NULL, NEVER, NULL, &error));
    REFUSED(truce_ledger_find(ledger, &(truce_ledger_search){0}, NEVER, NULL, &error));
    REFUSED(truce_ledger_walk(ledger, NEVER, NULL, &error));
    REFUSED(truce_ledger_verify(ledger, NULL, NULL, NULL, NULL, &report, &error));
    REFUSED(truce_ledger_seal(ledger, NULL, NULL, &error));
    truce_ledger_free(ledger);
    end(store);
}

static void set_calls(void)
{
    truce_store *store = begin();
    truce_set *set = truce_set_new(store, &(truce_set_options){.collection = "students",
                                                               .key = "_id",
                                                               .field = "classes",
                                                               .name = "name",
                                                               .reserved = {reserved}});
    bson_t *element = test_bson("{'name': 'CS 101'}");
    const truce_set_operation operation = {TRUCE_SET_ADD, some, element, 1, NULL, {0}};
    truce_set_result result;
    truce_cursor *cursor;
    int64_t number;

    split();
    REFUSED(truce_set_add(set, NULL, some, element, 1, NULL, &error));
    REFUSED(truce_set_remove(set, NULL, some, element, 1, NULL, &error));
    REFUSED(truce_set_apply(set, NULL, &operation, 1, &result, &error));
    REFUSED(truce_set_check(set, &operation, &error));
    REFUSED_OUT(truce_set_members(set, some, &out, &error));
    REFUSED_OUT(truce_set_show(set, some, &out, &error));
    REFUSED(truce_set_record(set, "one", &operation, 1, &error));
    REFUSED(truce_set_consume(set, "one", &operation, 1, &result, &error));
    REFUSED(truce_set_source_start(set, "s", &number, &error));
    REFUSED(truce_set_source_idle(set, "s", 1, &error));
    REFUSED(truce_set_void(set, "s", 1, 2, &error));
    REFUSED_OUT(truce_set_watermark(set, &number, &out, &error));
    REFUSED(truce_set_collect(set, NULL, &error));
    REFUSED(truce_set_protect(set, true, &error));
    REFUSED(truce_set_convert(set, NULL, &error));
    REFUSED(truce_set_quarantine(set, &cursor, &error));
    REFUSED(truce_set_replay(set, some, 1, "one", NULL, &error));
    REFUSED(truce_set_forget(set, false, &error));
    truce_set_free(set);
    bson_destroy(element);
    end(store);
}

static void items_calls(void)
{
    truce_store *store = begin();
    truce_item *item = truce_item_new(store, &(truce_item_options){.collection = "employees",
                                                                   .field = "badges",
                                                                   .identity = "type",
                                                                   .reserved = {reserved}});
    bson_t *update = test_bson("{'$set': {'n': 1}}"), *badge = test_bson("{'type': 'A'}");
    truce_item_result result;
    truce_item_converted converted;

    split();
    REFUSED(truce_item_update(item, NULL, some, badge, update, &result, &error));
    REFUSED(truce_item_add(item, NULL, some, badge, &result, &error));
    REFUSED(truce_item_replace(item, NULL, some, badge, badge, &result, &error));
    REFUSED(truce_item_upsert(item, NULL, some, badge, &result, &error));
    REFUSED(truce_item_remove(item, NULL, some, badge, &result, &error));
    REFUSED(truce_item_index(item, TRUCE_ITEM_ARRAY, "n", NULL, &error));
    REFUSED(truce_item_convert(item, TRUCE_ITEM_MAP, &converted, NULL, &error));
    truce_item_free(item);
    bson_destroy(update);
    bson_destroy(badge);
    end(store);
}

static void saved(truce_status status, const char *call, truce_revision_result *result)
{
    said(status, call);
    truce_revision_result_release(result);
}

#define REFUSED_SAVE(call)                                                                         \
    do {                                                                                           \
        if (!calls_nothing)                                                                        \
            saved(call, #call, &result);                                                           \
    } while (0)

static void revisions_calls(void)
{
    truce_store *store = begin();
    truce_revision *revision = truce_revision_new(
        store,
        &(truce_revision_options){.collection = "posts", .keep_ms = 1000, .reserved = {reserved}});
    bson_t *patch = test_bson("{'a': 2}");
    truce_revision_result result;
    truce_cursor *cursor;
    int64_t version;

    split();
    REFUSED_OUT(truce_revision_get(revision, NULL, &id, &out, &version, &error));
    REFUSED_SAVE(truce_revision_save(revision, NULL, some, 0, NULL, &result, &error));
    REFUSED_SAVE(truce_revision_merge(revision, NULL, some, 0, NULL, &result, &error));
    REFUSED_SAVE(truce_revision_patch(revision, NULL, &id, 0, false, TRUCE_PATCH_MERGE, patch,
                                      &result, &error));
    REFUSED_SAVE(truce_revision_remove(revision, NULL, &id, 0, NULL, &result, &error));
    REFUSED_OUT(truce_revision_at(revision, &id, 1, &out, &error));
    REFUSED(truce_revision_log(revision, &id, &cursor, &error));
    REFUSED(truce_revision_prune(revision, &version, &error));
    REFUSED(truce_revision_conflicts(revision, &cursor, &error));
    REFUSED_OUT(truce_revision_conflict(revision, &oid, &out, &error));
    REFUSED_SAVE(truce_revision_resolve(revision, NULL, &oid, TRUCE_RESOLVE_MINE, NULL, NULL,
                                        &result, &error));
    truce_revision_free(revision);
    bson_destroy(patch);
    end(store);
}

static void copies_calls(void)
{
    truce_store *store = begin();
    truce_sync *sync = truce_sync_new(store, &(truce_sync_options){.reserved = {reserved}});
    bson_t *copies = test_bson("{'city': 'address.city'}"),
           *update = test_bson("{'$set': {'a': 2}}");
    const truce_sync_rule rule = {.name = "city",
                                  .source = "people",
                                  .dependent = "orders",
                                  .reference = "customer",
                                  .copies = copies};
    truce_sync_report report;

    split();
    REFUSED(truce_sync_declare(sync, &rule, &error));
    REFUSED(truce_sync_drop(sync, "city", &error));
    REFUSED_OUT(truce_sync_status(sync, &out, &error));
    REFUSED(truce_sync_update(sync, NULL, "people", &id, update, NULL, &error));
    REFUSED(truce_sync_insert(sync, NULL, "people", some, NULL, &error));
    REFUSED(truce_sync_reconcile(sync, "people", &id, NULL, &error));
    REFUSED_OUT(truce_sync_read(sync, "people", &id, &out, &error));
    REFUSED(truce_sync_walk(sync, "city", NULL, &report, &error));
    truce_sync_free(sync);
    bson_destroy(copies);
    bson_destroy(update);
    end(store);
}

static void transfers_calls(void)
{
    truce_store *store = begin();
    truce_transfers *transfers = truce_transfers_new(
        store, &(truce_transfer_options){
                   .collection = "transfers", .accounts = "accounts", .reserved = {reserved}});
    const truce_transfer transfer = {.id = &id, .source = &id, .destination = &id, .value = &id};

    split();
    REFUSED(truce_transfer_start(transfers, NULL, &transfer, NULL, &error));
    REFUSED(truce_transfer_resume(transfers, &id, &error));
    REFUSED(truce_transfer_cancel(transfers, &id, &error));
    REFUSED_OUT(truce_transfer_get(transfers, &id, &out, &error));
    truce_transfers_free(transfers);
    end(store);
}

/* ---- calls without a handle of a pattern, in a forked child ---- */

static truce_status insert_some(truce_commit *commit, void *arg, bson_error_t *why)
{
    (void)arg;
    return truce_commit_insert(commit, "c", some, why);
}

static void refuse_store(truce_store *store)
{
    truce_write write = {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = some};
    truce_write_outcome outcome;
    truce_cursor *cursor;
    truce_commit *commit;
    truce_store *view;
    bson_t *index = test_bson("{'key': {'a': 1}}"), *pipeline = test_bson("{}");
    bson_t *command = test_bson("{'ping': 1}"), *update = test_bson("{'$set': {'a': 2}}");
    uint64_t token = 0;
    int64_t number;

    REFUSED(truce_find(store, "c", NULL, NULL, &cursor, &error));
    REFUSED_OUT(truce_find_one(store, "c", NULL, NULL, &out, &error));
    REFUSED(truce_count(store, "c", NULL, NULL, &number, &error));
    REFUSED_OUT(truce_distinct(store, "c", "a", NULL, &out, &error));
    REFUSED(truce_aggregate(store, "c", pipeline, NULL, &cursor, &error));
    REFUSED_OUT(truce_explain(store, "c", NULL, NULL, &out, &error));
    REFUSED_OUT(truce_explain_count(store, "c", NULL, NULL, &out, &error));
    REFUSED(truce_insert(store, "c", some, NULL, &error));
    REFUSED(truce_update(store, "c", some, update, NULL, NULL, &error));
    REFUSED(truce_remove(store, "c", some, NULL, NULL, &error));
    REFUSED(truce_bulk(store, &write, 1, NULL, &outcome, &error));
    REFUSED_OUT(truce_find_and_modify(store, "c", some, update, NULL, &out, NULL, &error));
    REFUSED(truce_index_create(store, "c", index, &error));
    REFUSED(truce_index_drop(store, "c", "a_1", &error));
    REFUSED(truce_index_modify(store, "c", "a_1", index, &error));
    REFUSED_OUT(truce_index_list(store, "c", &out, &error));
    REFUSED(truce_collection_create(store, "d", &error));
    REFUSED(truce_collection_rename(store, "c", "d", false, &error));
    REFUSED(truce_collection_validate(store, "c", NULL, &error));
    REFUSED(truce_collection_drop(store, "c", &error));
    REFUSED_OUT(truce_collection_list(store, NULL, &out, &error));
    REFUSED(truce_settle(store, &error));
    REFUSED(truce_store_expire(store, NULL, 1, &number, &error));
    REFUSED(truce_wait(store, "c", &token, 10, &error));
    REFUSED(truce_snapshot(store, NULL, &view, &error));
    REFUSED(truce_transact(store, insert_some, NULL, NULL, &error));
    REFUSED(truce_commit_begin(store, NULL, &commit, &error));
    REFUSED_OUT(truce_command(store, NULL, command, &out, &error));
    REFUSED(truce_sequence_next(store, "orders", &number, &error));
    REFUSED(truce_request_add(store, "key", "name", some, &error));
    bson_destroy(index);
    bson_destroy(pipeline);
    bson_destroy(command);
    bson_destroy(update);
}

static void store_calls(const char *uri)
{
    truce_store *store = NULL, *view = NULL;
    truce_snapshot_state state;
    truce_store_counters counters;
    truce_queue *queue;
    truce_cursor *cursor = NULL;
    truce_commit *commit = NULL;
    truce_job *job = NULL;
    const bson_t *document = NULL;
    int64_t number = 0;

    some = test_bson("{'_id': 1, 'a': 1}");
    if (!CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
        return;
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail"});
    CHECK_OK(truce_queue_add(queue, NULL, some, NULL, NULL, &error), error);
    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    CHECK_OK(truce_insert(store, "c", some, NULL, &error), error);
    CHECK_OK(truce_find(store, "c", NULL, NULL, &cursor, &error), error);
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error);
    CHECK_OK(truce_commit_insert(commit, "d", some, &error), error);
    split();
    refuse_store(store);
    REFUSED(truce_cursor_next(cursor, &document, &error));
    REFUSED(truce_count(view, "c", NULL, NULL, &number, &error));
    REFUSED(truce_snapshot_inspect(view, &state, &error));
    REFUSED(truce_commit_apply(commit, &error));
    REFUSED(truce_job_extend(job, &error));
    REFUSED(truce_job_done(job, NULL, NULL, &error));
    truce_interrupt(store);
    truce_resume(store);
    truce_store_count(store, &counters);
    if (calls_nothing) { /* the parent is not disturbed */
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        CHECK(document);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        CHECK_OK(truce_count(view, "c", NULL, NULL, &number, &error), error);
        CHECK_INT(number, ==, 1);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    }
    truce_job_free(job);
    truce_cursor_close(cursor);
    truce_commit_free(commit);
    truce_store_close(view);
    truce_queue_free(queue);
    end(store);
}

static void (*const calls[])(void) = {tree_calls,  queue_calls,     ledger_calls, set_calls,
                                      items_calls, revisions_calls, copies_calls, transfers_calls};

TEST(handles_with_invalid_options_refuse_every_call)
{
    reserved = 1;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        calls[i]();
}

TEST(handles_of_the_parent_refuse_every_call_in_a_forked_child)
{
    reserved = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        calls[i]();
}

TEST(a_store_of_the_parent_refuses_every_call_in_a_forked_child)
{
    char path[300];

    reserved = 0;
    snprintf(path, sizeof path, "file:%s/parent.truce", test_directory());
    store_calls("memory:");
    store_calls(path);
}
