/* A check sends messages for batches of documents, and none for a single one: over a network
 * each costs a round trip. Calls of the store are counted, except the steps of cursors, which
 * come in batches. A page of accounts is measured in the same way. */
#include "base/clock.h"
#include "base/field.h"
#include "patterns/ledger/ledger.h"
#include "store/decorators/decorator.h"
#include "tests/support/bank.h"
#include "tests/support/ledger_rig.h"
#include "tests/support/queue_rig.h"
#include "tests/support/sync_rig.h"
#include "tests/support/tree_rig.h"
#include "tests/support/tutorial.h"

#define FEW  50
#define MANY 500
#define MORE 12 /* messages: some batches of each part */

static int64_t messages;

static truce_status count_call(struct decorator *decorator, const struct decorated_call *call,
                               bson_error_t *error)
{
    messages += call->verb != VERB_NEXT;
    return truce__decorated_run(decorator, call, error);
}

static const struct decorator_kind counting = {.call = count_call};

static truce_store *open_counting(void)
{
    struct decorator *made = bson_malloc0(sizeof *made);
    truce_store *inner = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &inner, &error), error);
    truce__decorator_init(made, &counting, inner);
    return &made->base;
}

/* Adds the documents from..to. */
typedef void fill_function(truce_store *store, int from, int to);

static void print_finding(const bson_t *finding, void *arg)
{
    char *text = bson_as_json(finding, NULL);

    (void)arg;
    test_fail(__FILE__, __LINE__, "%s", text);
    bson_free(text);
}

static int64_t count_check(truce_store *store)
{
    truce_check_report report;
    bson_error_t error;

    messages = 0;
    CHECK_OK(truce_check(store, NULL, print_finding, NULL, &report, &error), error);
    return messages;
}

static int64_t count_sweep(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error;

    CHECK_OK(truce_sweep(store, NULL, &report, &error), error); /* does the pending work */
    messages = 0;
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    return messages;
}

static void compare(const char *what, const char *pattern, int64_t few, int64_t many)
{
    if (many > few + MORE)
        test_fail(__FILE__, __LINE__, "%s of %s: %lld messages for %d documents, %lld for %d", what,
                  pattern, (long long)few, FEW, (long long)many, MANY);
}

static void check_growth(const char *pattern, fill_function *fill)
{
    truce_store *store = open_counting();
    int64_t few, many, swept;

    fill(store, 0, FEW);
    few = count_check(store);
    swept = count_sweep(store);
    fill(store, FEW, MANY);
    many = count_check(store);
    compare("a check", pattern, few, many);
    compare("a sweep", pattern, swept, count_sweep(store));
    truce_store_close(store);
}

/* ---- each pattern --------------------------------------------------------------------------- */

static void fill_unique_jobs(truce_store *store, int from, int to)
{
    truce_queue *queue = rig_queue(store, NULL, "q");
    char key[32];

    for (int i = from; i < to; i++) {
        snprintf(key, sizeof key, "key %d", i);
        (void)rig_add(queue, "{}", &(truce_job_options){.unique = key});
    }
    truce_queue_free(queue);
}

/* One job of each lane waits for the other. */
static void fill_lanes(truce_store *store, int from, int to)
{
    truce_queue *queue = rig_queue(store, NULL, "q");
    char lane[32];

    for (int i = from; i < to; i++) {
        snprintf(lane, sizeof lane, "lane %d", i);
        for (int k = 0; k < 2; k++)
            (void)rig_add(queue, "{}", &(truce_job_options){.lane = lane});
    }
    truce_queue_free(queue);
}

static void fill_waiting_jobs(truce_store *store, int from, int to)
{
    truce_queue *queue = rig_queue(store, NULL, "q");

    for (int i = from; i < to; i++) {
        bson_oid_t first = rig_add(queue, "{}", NULL);

        (void)rig_add(queue, "{}", &(truce_job_options){.after = &first, .after_count = 1});
    }
    truce_queue_free(queue);
}

/* Makes a queue for each limiter of its own, with a job that runs. */
static void fill_limiters(truce_store *store, int from, int to)
{
    for (int i = from; i < to; i++) {
        char name[32];
        truce_queue_options options = {.queue = name, .worker = "w", .lease_ms = 600000};
        truce_queue *queue;
        bson_error_t error;

        snprintf(name, sizeof name, "queue%d", i);
        queue = truce_queue_new(store, &options);
        CHECK_OK(truce_queue_limit(queue, &(truce_queue_limits){.running = 1}, &error), error);
        (void)rig_add(queue, "{}", NULL);
        truce_job_free(rig_claim(queue));
        truce_queue_free(queue);
    }
}

static void fill_commits(truce_store *store, int from, int to)
{
    bson_error_t error;

    for (int i = from; i < to; i++) {
        char key[32], json[200];
        truce_commit_options options = {.key = key,
                                        .key_time_ms = truce__clock_wall_ms(),
                                        .mechanism = TRUCE_MECHANISM_JOURNAL};
        truce_commit *commit = NULL;
        bson_t *document;

        snprintf(key, sizeof key, "key %d", i);
        snprintf(json, sizeof json, "{'_id': %d, 'n': 1}", i);
        document = test_bson(json);
        CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
        CHECK_OK(truce_commit_insert(commit, "things", document, &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        bson_destroy(document);
    }
}

/* Inserts documents that one pending commit holds. */
static void fill_held(truce_store *store, int from, int to)
{
    static const char *const held = "{'$oid': '5f0000000000000000000001'}";
    char json[300];

    if (!from) {
        snprintf(json, sizeof json,
                 "{'_id': %s, 'state': 'pending', 'lease': {'ms': 600000, 'until': "
                 "{'$numberLong': '%lld'}}, 'writes': []}",
                 held, (long long)truce__clock_wall_ms() + 600000);
        insert_json(store, "truce_commits", json);
    }
    for (int i = from; i < to; i++) {
        snprintf(json, sizeof json, "{'_id': %d, '_intent': {'c': %s}}", i, held);
        insert_json(store, "things", json);
    }
}

static void fill_ledger(truce_store *store, int from, int to)
{
    truce_ledger *ledger = from ? book_ledger(store) : begin(store);
    char name[32];
    bson_error_t error;

    for (int i = from; i < to; i++) {
        snprintf(name, sizeof name, "t%d", i);
        CHECK_OK(book_transfer(ledger, name, "bank", "people:a", 1, &error), error);
    }
    truce_ledger_free(ledger);
}

static void fill_transfers(truce_store *store, int from, int to)
{
    truce_transfers *transfers =
        truce_transfers_new(store, &(truce_transfer_options){.collection = "transactions"});
    bson_t *minus = test_bson("{'$inc': {'n': -1}}");
    char name[32], json[300];
    bson_error_t error;

    for (int i = from; i < to; i++) {
        bson_value_t id = text_id(name);
        truce_transfer_entry entry = {.collection = "accounts", .id = &id, .effect = minus};
        truce_transfer transfer = {.id = &id, .entries = &entry, .count = 1};

        snprintf(name, sizeof name, "t%d", i);
        id = text_id(name);
        snprintf(json, sizeof json, "{'_id': '%s', 'n': 10}", name);
        insert_json(store, "accounts", json);
        CHECK_OK(truce_transfer_start(transfers, NULL, &transfer, NULL, &error), error);
    }
    bson_destroy(minus);
    truce_transfers_free(transfers);
}

static void fill_copies(truce_store *store, int from, int to)
{
    truce_sync *sync = rig_sync(store, TRUCE_MECHANISM_AUTO, 0);
    char json[100];

    if (!from)
        rig_author(sync);
    for (int i = from; i < to; i++) {
        snprintf(json, sizeof json, "{'_id': %d, 'name': 'n'}", i);
        insert_json(store, "users", json);
        snprintf(json, sizeof json, "{'_id': %d, 'user': %d, 'author': 'n'}", i, i);
        insert_json(store, "comments", json);
    }
    truce_sync_free(sync);
}

static void fill_tree(truce_store *store, int from, int to)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit = NULL;
    truce_tree_published published = {0};
    char json[60];
    bson_error_t error;

    CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
    for (int i = from; i < to; i++) {
        snprintf(json, sizeof json, "{'itemId': 'i%d'}", i);
        CHECK_OK(rig_put(edit, json, &error), error);
    }
    CHECK_OK(truce_tree_publish(edit, NULL, &published, &error), error);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

static void fill_sets(truce_store *store, int from, int to)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *element = test_bson("{'name': 'A', 'type': 'A'}");
    truce_set_outcome outcome;
    bson_error_t error;

    for (int i = from; i < to; i++) {
        bson_t *key = BCON_NEW("student_id", BCON_INT32(i));

        CHECK_OK(truce_set_add(set, NULL, key, element, 1, &outcome, &error), error);
        bson_destroy(key);
    }
    bson_destroy(element);
    truce_set_free(set);
}

/* ---- pages of accounts ----------------------------------------------------------------------- */

static bool add_to_page(const truce_ledger_account *account, const truce_ledger_balance *balance,
                        void *arg)
{
    int *left = arg;

    (void)account;
    (void)balance;
    return --*left > 0;
}

static int64_t count_page(truce_ledger *ledger, const char *after)
{
    int left = 5;
    bson_error_t error;

    messages = 0;
    CHECK_OK(truce__ledger_balances_after(ledger, "people", after, add_to_page, &left, &error),
             error);
    CHECK_INT(left, ==, 0);
    return messages;
}

TEST(a_page_of_accounts_costs_the_same_wherever_it_begins)
{
    truce_store *store = open_counting();
    truce_ledger *ledger = begin(store);
    int64_t first;

    for (int i = 0; i < 200; i++) {
        char name[32];

        snprintf(name, sizeof name, "people:%03d", i);
        OPEN(ledger, name, 0);
    }
    first = count_page(ledger, NULL);
    CHECK_INT(count_page(ledger, "people:190"), <=, first + 1);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- commits of dead clients ----------------------------------------------------------------- */

/* Adds decided commits whose owner is gone. Each holds two documents, one with a unique value. */
static void fill_decided(truce_store *store, int from, int to)
{
    for (int i = from; i < to; i++) {
        bson_oid_t id;
        char hex[25], json[600];

        bson_oid_init(&id, NULL);
        bson_oid_to_string(&id, hex);
        snprintf(json, sizeof json,
                 "{'_id': {'$oid': '%s'}, 'state': 'committed', 'post': ["
                 "{'ns': 'plain', 'id': %d, 'op': 'set', 'changes': [{'p': 'n', 'v': 2}], 'was': "
                 "{'$numberLong': '1'}}, "
                 "{'ns': 'unique', 'id': %d, 'op': 'set', 'changes': [{'p': 'n', 'v': %d}], 'was': "
                 "{'$numberLong': '1'}}]}",
                 hex, i, i, i + 1000000);
        insert_json(store, "truce_commits", json);
        for (int k = 0; k < 2; k++) {
            snprintf(json, sizeof json, "{'_id': %d, 'n': %d, '_intent': {'c': {'$oid': '%s'}}}", i,
                     i, hex);
            insert_json(store, k ? "unique" : "plain", json);
        }
    }
}

static void count_rule(const bson_t *finding, void *arg)
{
    int *counts = arg;
    const char *rule = truce__field_text(finding, "rule");

    counts[0] += !strcmp(rule, "half-applied");
    counts[1] += !strcmp(rule, "blocked");
    counts[2] += !strcmp(rule, "missing-document");
}

static int64_t count_decided(truce_store *store, int counts[3])
{
    truce_check_report report;
    bson_error_t error;

    memset(counts, 0, 3 * sizeof *counts);
    messages = 0;
    CHECK_OK(truce_check(store, NULL, count_rule, counts, &report, &error), error);
    return messages;
}

TEST(messages_of_a_check_do_not_grow_with_commits_of_dead_clients)
{
    truce_store *store = open_counting();
    bson_t *index = test_bson("{'key': {'n': 1}, 'name': 'n_1', 'unique': true}"), *gone;
    int64_t few, many;
    int counts[3];
    bson_error_t error;

    CHECK_OK(truce_index_create(store, "unique", index, &error), error);
    bson_destroy(index);
    fill_decided(store, 0, FEW);
    few = count_decided(store, counts);
    CHECK_INT(counts[0], ==, FEW);
    fill_decided(store, FEW, MANY);
    many = count_decided(store, counts);
    CHECK_INT(counts[0], ==, MANY);
    CHECK_INT(counts[1] + counts[2], ==, 0);
    compare("a check", "decided commits", few, many);

    /* A plain writer takes a reserved value, and another one removes a document. */
    insert_json(store, "unique", "{'_id': 'thief', 'n': 1000007}");
    gone = test_bson("{'_id': 9}");
    CHECK_OK(truce_remove(store, "plain", gone, NULL, NULL, &error), error);
    bson_destroy(gone);
    (void)count_decided(store, counts);
    CHECK_INT(counts[0], ==, MANY);
    CHECK_INT(counts[1], ==, 1);
    CHECK_INT(counts[2], ==, 1);
    truce_store_close(store);
}

TEST(messages_of_a_check_do_not_grow_with_the_documents)
{
    check_growth("unique jobs", fill_unique_jobs);
    check_growth("lanes", fill_lanes);
    check_growth("jobs that wait for others", fill_waiting_jobs);
    check_growth("limiters", fill_limiters);
    check_growth("commits", fill_commits);
    check_growth("held documents", fill_held);
    check_growth("transfers", fill_transfers);
    check_growth("copies", fill_copies);
    check_growth("trees", fill_tree);
    check_growth("sets", fill_sets);
}

/* Posts transactions over accounts of their own. */
static void fill_accounts(truce_store *store, int from, int to)
{
    truce_ledger *ledger = from ? book_ledger(store) : begin(store);
    char name[32], account[40];
    bson_error_t error;

    for (int i = from; i < to; i++) {
        snprintf(name, sizeof name, "t%d", i);
        snprintf(account, sizeof account, "shop:%d", i);
        CHECK_OK(truce_ledger_open(ledger, NULL,
                                   &(truce_ledger_account){.account = account, .currency = "EUR"},
                                   &error),
                 error);
        CHECK_OK(book_transfer(ledger, name, "bank", account, 1, &error), error);
    }
    truce_ledger_free(ledger);
}

/* Posts pending transactions, and settles every second one: each of these is two transactions. */
static void fill_settled(truce_store *store, int from, int to)
{
    truce_ledger *ledger = from ? book_ledger(store) : begin(store);
    char pending[32], settling[32];
    bson_error_t error;

    for (int i = from; i < to; i += 2) {
        snprintf(pending, sizeof pending, "p%d", i);
        snprintf(settling, sizeof settling, "s%d", i);
        CHECK_OK(book_post(ledger, NULL, pending, TRUCE_LEDGER_PENDING, "people:a", "bank", 1, NULL,
                           &error),
                 error);
        CHECK_OK(book_resolve(ledger, NULL, settling, TRUCE_LEDGER_SETTLE, pending, &error), error);
    }
    truce_ledger_free(ledger);
}

/* A verification reads the entries of many accounts together, and a page of stored sums for each
 * 128 numbers of an account. */
TEST(verifies_with_a_constant_number_of_messages)
{
    check_growth("ledgers", fill_ledger);
    check_growth("ledgers with many accounts", fill_accounts);
    check_growth("ledgers with settled transactions", fill_settled);
}
