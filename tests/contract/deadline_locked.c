/* A stopped process holds the writers' lock: each call ends at its deadline, not at several of
 * them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "tests/support/json_command.h"
#include "tests/support/transfer_rig.h"
#include "truce/truce.h"

#define DEADLINE_MS 1000
#define LATEST_MS   1900 /* two deadlines are 2,000 */

static truce_store *store;
static truce_queue *queue;
static char path[600];
static pid_t holder;
static bson_error_t error;

static int go[2], held[2];

/* Holds the lock until it is killed, in a process of its own that begins before the store is
 * open here. */
static void hold(void)
{
    truce_store *own;
    struct engine *engine;
    char byte;

    if (read(go[0], &byte, 1) != 1 || truce_store_open(path, NULL, &own, &error))
        _exit(1);
    engine = truce__file_engine(own);
    if (truce__lock_acquire(&engine->lock, INT64_MAX, &error) || write(held[1], "x", 1) != 1)
        _exit(2);
    for (;;)
        pause();
}

static void begin_with(uint32_t deadline_ms)
{
    snprintf(path, sizeof path, "%s/locked.truce", test_directory());
    REQUIRE(!pipe(go) && !pipe(held));
    fflush(NULL);
    holder = fork();
    if (!holder) {
        close(go[1]);
        hold();
    }
    close(go[0]);
    close(held[1]);
    CHECK_OK(
        truce_store_open(path, &(truce_store_options){.deadline_ms = deadline_ms}, &store, &error),
        error);
    queue =
        truce_queue_new(store, &(truce_queue_options){.queue = "q", .deadline_ms = DEADLINE_MS});
}

static void begin(void)
{
    begin_with(DEADLINE_MS);
}

static void lock(void)
{
    char byte;

    REQUIRE(write(go[1], "x", 1) == 1 && read(held[0], &byte, 1) == 1);
    close(go[1]);
    close(held[0]);
}

static void end(void)
{
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    truce_queue_free(queue);
    truce_store_close(store);
}

static int64_t begun_ns;
static int refused; /* calls that did not return OK */

#define ENDS_IN_TIME(call)                                                                         \
    do {                                                                                           \
        truce_status got;                                                                          \
                                                                                                   \
        begun_ns = truce__clock_monotonic_ns();                                                    \
        got = call;                                                                                \
        refused += got != TRUCE_OK;                                                                \
        if ((truce__clock_monotonic_ns() - begun_ns) / 1000000 > LATEST_MS)                        \
            test_fail(__FILE__, __LINE__, "%s takes %lld ms (%s)", #call,                          \
                      (long long)(truce__clock_monotonic_ns() - begun_ns) / 1000000,               \
                      truce_status_name(got));                                                     \
    } while (0)

TEST(calls_of_a_queue_end_at_their_deadline)
{
    bson_t *payload = test_bson("{'x': 1}");
    truce_job *jobs[2];
    bson_oid_t id;
    uint32_t count;

    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
        CHECK_OK(truce_queue_claim(queue, &jobs[i], &error), error);
    }
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    bson_oid_copy(truce_job_id(jobs[1]), &id);
    lock();
    ENDS_IN_TIME(truce_job_done(jobs[0], NULL, NULL, &error));
    ENDS_IN_TIME(truce_job_fail(jobs[0], NULL, "it failed", 0, &error));
    ENDS_IN_TIME(truce_job_snooze(jobs[0], NULL, 1000, &error));
    ENDS_IN_TIME(truce_queue_done_many(queue, jobs, 2, NULL, NULL, &error));
    ENDS_IN_TIME(truce_queue_add(queue, NULL, payload, NULL, NULL, &error));
    ENDS_IN_TIME(truce_queue_cancel(queue, NULL, &id, &error));
    ENDS_IN_TIME(truce_queue_pause(queue, &error));
    ENDS_IN_TIME(truce_queue_redrive(queue, 10, &count, &error));
    truce_job_free(jobs[0]);
    truce_job_free(jobs[1]);
    end();
    bson_destroy(payload);
}

TEST(a_sweep_waits_for_a_lock_once)
{
    bson_t *old = test_bson("{'at': {'$date': '2001-01-01T00:00:00Z'}}"),
           *index = test_bson("{'key': {'at': 1}, 'name': 'at', 'expireAfterSeconds': 1}");
    truce_sweep_report report;

    begin();
    CHECK_OK(truce_insert(store, "old", old, NULL, &error), error);
    CHECK_OK(truce_index_create(store, "old", index, &error), error);
    lock();
    ENDS_IN_TIME(truce_sweep(store, NULL, &report, &error));
    end();
    bson_destroy(old);
    bson_destroy(index);
}

static truce_status change_two(truce_commit *commit, void *arg, bson_error_t *caught)
{
    bson_t *update = test_bson("{'$inc': {'balance': 1}}");
    truce_status status = TRUCE_OK;

    (void)arg;
    for (int i = 0; i < 2 && !status; i++) {
        bson_value_t id = text_id(i ? "b" : "a");

        status = truce_commit_update(commit, "accounts", &id, NULL, update, caught);
    }
    bson_destroy(update);
    return status;
}

static truce_status transact(truce_mechanism mechanism, const char *key)
{
    const truce_commit_options options = {.deadline_ms = DEADLINE_MS,
                                          .mechanism = mechanism,
                                          .key = key,
                                          .key_time_ms = key ? 1700000000000 : 0};

    return truce_transact(store, change_two, NULL, &options, &error);
}

TEST(commits_end_at_their_deadline)
{
    begin();
    rig_account(store, "a", 10);
    rig_account(store, "b", 10);
    CHECK_OK(transact(TRUCE_MECHANISM_JOURNAL, NULL), error);
    lock();
    refused = 0;
    ENDS_IN_TIME(transact(TRUCE_MECHANISM_NATIVE, NULL));
    ENDS_IN_TIME(transact(TRUCE_MECHANISM_JOURNAL, NULL));
    ENDS_IN_TIME(transact(TRUCE_MECHANISM_JOURNAL, "k"));
    CHECK_INT(refused, ==, 3);
    end();
}

/* `deadline_ms` of the handles; 0: the deadline of the store. */
static void try_patterns(uint32_t deadline_ms)
{
    truce_ledger *ledger;
    truce_set *set;
    truce_item *item;
    truce_revision *revision;
    truce_tree *tree;
    truce_tree_edit *edit;
    truce_transfers *transfers;
    truce_sync *sync;
    truce_revision_result saved;
    truce_tree_published published;
    bson_t *key = test_bson("{'_id': 'a'}"), *element = test_bson("{'sku': 'x'}"),
           *document = test_bson("{'_id': 'new', 'n': 1}"),
           *update = test_bson("{'$set': {'n': 2}}"), *page = test_bson("{'itemId': 1, 'n': 1}");
    bson_value_t id = text_id("t"), account = text_id("a");
    truce_ledger_entry entries[] = {{.account = "a", .value = -1}, {.account = "b", .value = 1}};
    truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 2};
    int64_t number;

    begin();
    ledger = truce_ledger_new(
        store, &(truce_ledger_options){.collection = "book", .deadline_ms = deadline_ms});
    set = truce_set_new(store, &(truce_set_options){.collection = "carts",
                                                    .key = "_id",
                                                    .field = "goods",
                                                    .name = "sku",
                                                    .deadline_ms = deadline_ms});
    item = truce_item_new(store, &(truce_item_options){.collection = "carts",
                                                       .field = "list",
                                                       .identity = "sku",
                                                       .deadline_ms = deadline_ms});
    revision = truce_revision_new(
        store, &(truce_revision_options){.collection = "posts", .deadline_ms = deadline_ms});
    tree = truce_tree_new(store,
                          &(truce_tree_options){.collection = "pages", .deadline_ms = deadline_ms});
    transfers = truce_transfers_new(store, &(truce_transfer_options){.collection = "transactions",
                                                                     .accounts = "accounts",
                                                                     .deadline_ms = deadline_ms});
    sync = truce_sync_new(store, &(truce_sync_options){.deadline_ms = deadline_ms});
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    for (int i = 0; i < 2; i++) {
        const truce_ledger_account opened = {.account = i ? "b" : "a", .currency = "EUR"};

        CHECK_OK(truce_ledger_open(ledger, NULL, &opened, &error), error);
    }
    rig_account(store, "a", 10);
    rig_account(store, "b", 10);
    insert_json(store, "carts", "{'_id': 'a'}");
    CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
    CHECK_OK(truce_tree_put(edit, page, &error), error);
    lock();
    refused = 0;
    ENDS_IN_TIME(truce_ledger_post(ledger, NULL, &transaction, NULL, &error));
    ENDS_IN_TIME(truce_set_add(set, NULL, key, element, 1, NULL, &error));
    ENDS_IN_TIME(truce_item_add(item, NULL, key, element, NULL, &error));
    ENDS_IN_TIME(
        truce_revision_save(revision, NULL, document, TRUCE_REVISION_NEW, NULL, &saved, &error));
    truce_revision_result_release(&saved);
    ENDS_IN_TIME(truce_tree_publish(edit, NULL, &published, &error));
    ENDS_IN_TIME(rig_move(transfers, "m", "a", "b", 1, NULL, &error));
    ENDS_IN_TIME(truce_sync_update(sync, NULL, "accounts", &account, update, NULL, &error));
    ENDS_IN_TIME(truce_sequence_next(store, "numbers", &number, &error));
    CHECK_INT(refused, ==, 8);
    truce_sync_free(sync);
    truce_transfers_free(transfers);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    truce_revision_free(revision);
    truce_item_free(item);
    truce_set_free(set);
    truce_ledger_free(ledger);
    end();
    bson_destroy(page);
    bson_destroy(update);
    bson_destroy(document);
    bson_destroy(element);
    bson_destroy(key);
}

TEST(calls_of_patterns_end_at_the_deadline_of_their_handle)
{
    try_patterns(DEADLINE_MS);
}

TEST(calls_of_patterns_end_at_the_deadline_of_their_store)
{
    try_patterns(0);
}

static truce_status run_command(const char *json)
{
    bson_t reply;
    truce_status status = run_json_command(store, NULL, json, &reply, &error);

    bson_destroy(&reply);
    return status;
}

TEST(commands_that_write_end_at_their_maximum_time)
{
    static const char *const commands[] = {
        "{drop: 'c', maxTimeMS: 300}",
        "{create: 'd', maxTimeMS: 300}",
        "{dropDatabase: 1, maxTimeMS: 300}",
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}], maxTimeMS: 300}",
        "{dropIndexes: 'c', index: '*', maxTimeMS: 300}",
        "{collMod: 'c', validator: {a: 1}, maxTimeMS: 300}",
        "{insert: 'c', documents: [{}], maxTimeMS: 300}",
        "{findAndModify: 'c', query: {_id: 1}, update: {$set: {n: 4}}, maxTimeMS: 300}",
        "{aggregate: 'c', pipeline: [{$out: 'o'}], cursor: {}, maxTimeMS: 300}",
        "{aggregate: 'c', pipeline: [{$merge: 'o'}], cursor: {}, maxTimeMS: 300}",
        "{truceSequence: 's', take: 1, maxTimeMS: 300}",
    };

    begin_with(30000);
    CHECK_OK(run_command("{insert: 'c', documents: [{_id: 1, a: 1}]}"), error);
    CHECK_OK(run_command("{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b_1'}]}"), error);
    lock();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int before = test_failures();

        refused = 0;
        ENDS_IN_TIME(run_command(commands[i]));
        CHECK_INT(refused, ==, 1);
        if (test_failures() > before)
            fprintf(stderr, "    (%s)\n", commands[i]);
    }
    end();
}
