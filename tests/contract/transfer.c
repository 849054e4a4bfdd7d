/* Transfers: every call, in one step and step by step, on every store. */
#include <pthread.h>
#include <string.h>

#include "tests/support/transfer_rig.h"

static void begin(truce_store *store)
{
    rig_account(store, "A", 1000);
    rig_account(store, "B", 0);
    insert_json(store, "posts", "{'_id': 'p', 'tags': ['x'], 'likes': 1}");
}

#define CHECK_STATE(wanted, id) CHECK_TEXT(wanted, rig_state(store, id, (char[20]){0}))

/* ---- from one account to another ------------------------------------------------------------- */

static void moves(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    bson_error_t error = {0};
    bool exists;

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 100, &exists, &error), error);
    CHECK(!exists);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 100, &exists, &error), error);
    CHECK(exists);
    CHECK_INT(rig_balance(store, "A"), ==, 900);
    CHECK_INT(rig_balance(store, "B"), ==, 100);
    CHECK_STATUS(TRUCE_DUPLICATE, rig_move(transfers, "t1", "A", "B", 101, &exists, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, rig_move(transfers, "t2", "A", "B", 901, &exists, &error), error);
    CHECK_SAYS(error.message, "\"A\"");
    CHECK_SAYS(error.message, "guard");
    CHECK_STATE("canceled", "t2");
    CHECK_OK(rig_move(transfers, "t3", "B", "A", 100, &exists, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, rig_move(transfers, "t2", "A", "B", 901, &exists, &error), error);
    CHECK(exists);
    CHECK_INT(rig_balance(store, "A"), ==, 1000);
    CHECK_STATE("done", "t3");
    CHECK_STATUS(TRUCE_REFUSED, rig_move(transfers, "t4", "A", "nobody", 1, NULL, &error), error);
    CHECK_SAYS(error.message, "nobody");
    CHECK_STATUS(TRUCE_REFUSED, rig_move(transfers, "t5", "nobody", "A", 1, NULL, &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 1000);
    rig_settled(store);
    truce_transfers_free(transfers);
}

TEST(a_transfer_is_made_once_or_refused_for_ever)
{
    rig_everywhere(moves);
}

/* ---- entries --------------------------------------------------------------------------------- */

#define ENTRIES 3

struct entries {
    truce_transfer_entry items[ENTRIES];
    bson_value_t ids[ENTRIES], id;
    bson_t *documents[3 * ENTRIES];
    uint32_t count;
};

/* "" for an omitted value; `guard` "after": it is made after the decision. */
static void add(struct entries *entries, const char *collection, const char *id, const char *guard,
                const char *effect, const char *undo)
{
    uint32_t at = entries->count++;
    bson_t **documents = &entries->documents[3 * at];
    bool after = !strcmp(guard, "after");

    entries->ids[at] = text_id(id);
    documents[0] = guard[0] && !after ? test_bson(guard) : NULL;
    documents[1] = effect[0] ? test_bson(effect) : NULL;
    documents[2] = undo[0] ? test_bson(undo) : NULL;
    entries->items[at] = (truce_transfer_entry){.collection = collection,
                                                .id = &entries->ids[at],
                                                .after = after,
                                                .guard = documents[0],
                                                .effect = documents[1],
                                                .undo = documents[2]};
}

static truce_status start(truce_transfers *transfers, truce_commit *commit, struct entries *entries,
                          const char *id, bson_error_t *error)
{
    truce_transfer transfer = {
        .id = &entries->id, .entries = entries->items, .count = entries->count};
    truce_status status;

    entries->id = text_id(id);
    status = truce_transfer_start(transfers, commit, &transfer, NULL, error);
    for (uint32_t i = 0; i < 3 * entries->count; i++) {
        if (entries->documents[i])
            bson_destroy(entries->documents[i]);
    }
    *entries = (struct entries){.count = 0};
    return status;
}

static void add_three(struct entries *entries)
{
    add(entries, "accounts", "A", "{'balance': {'$gte': 10}}", "{'$inc': {'balance': -10}}", "");
    add(entries, "posts", "p", "{'tags': {'$ne': 'y'}}",
        "{'$push': {'tags': 'y'}, '$inc': {'likes': 2}}",
        "{'$pull': {'tags': 'y'}, '$inc': {'likes': -2}}");
    add(entries, "accounts", "B", "after", "{'$inc': {'balance': 10}, '$set': {'paid': true}}", "");
}

static void any_change(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    struct entries entries = {.count = 0};
    bson_error_t error = {0};

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    add_three(&entries);
    CHECK_OK(start(transfers, NULL, &entries, "t1", &error), error);
    CHECK_INT(count_json(store, "posts", "{'tags': ['x', 'y'], 'likes': 3}"), ==, 1);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'B', 'balance': 10, 'paid': true}"), ==, 1);
    add_three(&entries);
    CHECK_OK(start(transfers, NULL, &entries, "t1", &error), error);
    CHECK_INT(count_json(store, "posts", "{'tags': ['x', 'y'], 'likes': 3}"), ==, 1);
    /* the first change is reverted */
    add(&entries, "accounts", "A", "", "{'$inc': {'balance': -10}}", "");
    add(&entries, "posts", "p", "{'tags': {'$ne': 'y'}}", "{'$inc': {'likes': 1}}", "");
    CHECK_STATUS(TRUCE_REFUSED, start(transfers, NULL, &entries, "t2", &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 990);
    add(&entries, "accounts", "A", "", "{'$inc': {'balance': -10}}", "");
    add(&entries, "posts", "p", "after", "{'$inc': {'tags': 1}}", "");
    CHECK_STATUS(TRUCE_REFUSED, start(transfers, NULL, &entries, "t3", &error), error);
    CHECK_SAYS(error.message, "posts");
    CHECK_STATE("canceled", "t3");
    CHECK_INT(rig_balance(store, "A"), ==, 990);
    rig_settled(store);
    truce_transfers_free(transfers);
}

TEST(entries_change_any_documents)
{
    rig_everywhere(any_change);
}

/* Nothing is written. */
static void bad(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *collection, *id, *guard, *effect, *undo, *says;
    } cases[] = {
        {"posts", "p", "", "{'$push': {'tags': 'y'}}", "", "needs an undo"},
        {"posts", "p", "", "{'$push': {'tags': 'x'}}", "{'$pull': {'tags': 'x'}}",
         "does not revert its effect"},
        {"posts", "p", "", "{'$inc': {'likes': 1}}", "{'$inc': {'likes': -2}}",
         "does not revert its effect"},
        {"posts", "p", "after", "{'$inc': {'likes': 1}}", "{'$inc': {'likes': -1}}",
         "its undo is not allowed"},
        {"posts", "p", "", "", "", "effect"},
        {"posts", "p", "", "{'likes': 1}", "", "not an update operator"},
        {"posts", "p", "", "{'$frob': {'likes': 1}}", "", "$frob"},
        {"posts", "p", "", "{'$inc': {'pendingTransactions.0': 1}}", "",
         "transfers or commits maintain"},
        {"posts", "p", "", "{'$inc': {'pendingFence': 1}}", "", "transfers or commits maintain"},
        {"posts", "p", "", "{'$rename': {'likes': '_intent'}}", "{'$rename': {'_intent': 'likes'}}",
         "transfers or commits maintain"},
        {"posts", "p", "{'$or': 1}", "{'$inc': {'likes': 1}}", "", "guard"},
        {"posts", "p", "", "{'$inc': {'likes': 'one'}}", "", "likes"},
        {"truce_queue", "p", "", "{'$inc': {'likes': 1}}", "", "cannot take part"},
        {"transactions", "p", "", "{'$inc': {'likes': 1}}", "", "cannot take part"},
        {"a$b", "p", "", "{'$inc': {'likes': 1}}", "", "a$b"},
    };
    truce_transfers *transfers;
    struct entries entries = {.count = 0};
    bson_error_t error = {0};

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        add(&entries, cases[i].collection, cases[i].id, cases[i].guard, cases[i].effect,
            cases[i].undo);
        CHECK_STATUS(TRUCE_INVALID, start(transfers, NULL, &entries, "bad", &error), error);
        CHECK_SAYS(error.message, cases[i].says);
    }
    add(&entries, "posts", "p", "", "{'$inc': {'likes': 1}}", "");
    add(&entries, "posts", "p", "after", "{'$inc': {'likes': 1}}", "");
    CHECK_STATUS(TRUCE_INVALID, start(transfers, NULL, &entries, "bad", &error), error);
    CHECK_SAYS(error.message, "twice");
    CHECK_STATUS(TRUCE_INVALID, start(transfers, NULL, &entries, "bad", &error), error);
    CHECK_STATUS(TRUCE_INVALID, rig_move(transfers, "bad", "A", "A", 1, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, rig_move(transfers, "bad", "A", "B", 0, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, rig_move(transfers, "bad", "A", "B", -5, NULL, &error), error);
    CHECK_INT(count_json(store, "transactions", "{}"), ==, 0);
    CHECK_INT(count_json(store, "posts", "{'likes': 1, 'tags': ['x']}"), ==, 1);
    rig_settled(store);
    truce_transfers_free(transfers);
}

TEST(bad_entries_are_refused_by_name)
{
    rig_everywhere(bad);
}

/* ---- options --------------------------------------------------------------------------------- */

static void refused_options(truce_store *store, const truce_transfer_options *options,
                            const char *says)
{
    truce_transfers *transfers = truce_transfers_new(store, options);
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, rig_move(transfers, "t", "A", "B", 1, NULL, &error), error);
    CHECK_SAYS(error.message, says);
    truce_transfers_free(transfers);
}

static void layouts(truce_store *store, const struct setting *setting)
{
    truce_transfer_options options = {.collection = "transactions",
                                      .accounts = "accounts",
                                      .field = "wallet.cents",
                                      .marks = "underWay",
                                      .mechanism = setting->mechanism};
    truce_transfers *transfers;
    bson_error_t error = {0};

    insert_json(store, "accounts", "{'_id': 'A', 'wallet': {'cents': 5}}");
    insert_json(store, "accounts", "{'_id': 'B', 'wallet': {'cents': 0}}");
    refused_options(store, &(truce_transfer_options){.accounts = "accounts"}, "collection");
    refused_options(store, &(truce_transfer_options){.collection = "truce_jobs"},
                    "reserved for truce");
    refused_options(store, &(truce_transfer_options){.collection = "t", .marks = "a.b"}, "top");
    refused_options(store, &(truce_transfer_options){.collection = "t", .fence = "_rev"}, "top");
    refused_options(store, &(truce_transfer_options){.collection = "t", .fence = "balance"},
                    "must differ");
    refused_options(store, &(truce_transfer_options){.collection = "t", .keep_ms = 5}, "keep_ms");
    refused_options(store, &(truce_transfer_options){.collection = "t"}, "accounts");
    transfers = truce_transfers_new(store, &options);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 5, NULL, &error), error);
    truce_transfers_free(transfers);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'B', 'wallet.cents': 5}"), ==, 1);
    /* omitted options keep their values; different ones are refused */
    options =
        (truce_transfer_options){.collection = "transactions", .mechanism = setting->mechanism};
    transfers = truce_transfers_new(store, &options);
    CHECK_OK(rig_move(transfers, "t2", "B", "A", 5, NULL, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, rig_move(transfers, "t3", "B", "A", 5, NULL, &error), error);
    truce_transfers_free(transfers);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'A', 'wallet.cents': 5}"), ==, 1);
    options.marks = "pendingTransactions";
    refused_options(store, &options, "underWay");
}

TEST(stores_the_layout_and_refuses_another_one)
{
    rig_everywhere(layouts);
}

/* ---- in a commit ----------------------------------------------------------------------------- */

static truce_status with_order(truce_store *store, truce_transfers *transfers, const char *id,
                               int value, truce_mechanism mechanism, bson_error_t *error)
{
    bson_value_t key = text_id(id), source = text_id("A"), destination = text_id("B"),
                 amount = {.value_type = BSON_TYPE_INT32, .value.v_int32 = value},
                 post = text_id("p");
    truce_transfer transfer = {
        .id = &key, .source = &source, .destination = &destination, .value = &amount};
    bson_t *like = test_bson("{'$inc': {'likes': 1}}");
    truce_commit_options options = {.mechanism = mechanism};
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(store, &options, &commit, error);

    if (!status)
        status = truce_transfer_start(transfers, commit, &transfer, NULL, error);
    if (!status)
        status = truce_commit_update(commit, "posts", &post, NULL, like, error);
    if (!status)
        status = truce_commit_apply(commit, error);
    truce_commit_free(commit);
    bson_destroy(like);
    return status;
}

static void in_commit(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    bson_error_t error = {0};

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(with_order(store, transfers, "t1", 100, setting->mechanism, &error), error);
    CHECK_STATUS(TRUCE_REFUSED,
                 with_order(store, transfers, "t2", 5000, setting->mechanism, &error), error);
    CHECK_STATE("done", "t1");
    CHECK_STATE("", "t2");
    CHECK_OK(with_order(store, transfers, "t1", 100, setting->mechanism, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 with_order(store, transfers, "t1", 101, setting->mechanism, &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 900);
    CHECK_INT(count_json(store, "posts", "{'likes': 3}"), ==, 1);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 100, NULL, &error), error); /* it is done */
    CHECK_INT(rig_balance(store, "B"), ==, 100);
    rig_settled(store);
    truce_transfers_free(transfers);
}

TEST(a_transfer_is_a_part_of_a_commit)
{
    rig_everywhere(in_commit);
}

/* ---- transfers of other programs ------------------------------------------------------------- */

static truce_status resume(truce_transfers *transfers, const char *id, bson_error_t *error)
{
    bson_value_t key = text_id(id);

    return truce_transfer_resume(transfers, &key, error);
}

static truce_status cancel(truce_transfers *transfers, const char *id, bson_error_t *error)
{
    bson_value_t key = text_id(id);

    return truce_transfer_cancel(transfers, &key, error);
}

/* The manual's documents, as its recipe leaves them. */
static void recipe(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    truce_sweep_report report;
    bson_error_t error = {0};

    insert_json(store, "accounts",
                "{'_id': 'A', 'balance': 800, 'pendingTransactions': ['half', 'wrong']}");
    insert_json(store, "accounts",
                "{'_id': 'B', 'balance': 50, 'pendingTransactions': ['applied']}");
    insert_json(store, "transactions",
                "{'_id': 'half', 'source': 'A', 'destination': 'B', 'value': 100, 'state': "
                "'pending', 'lastModified': {'$date': 0}}");
    insert_json(store, "transactions",
                "{'_id': 'wrong', 'source': 'A', 'destination': 'B', 'value': 100, 'state': "
                "'canceling', 'lastModified': {'$date': 0}}");
    insert_json(store, "transactions",
                "{'_id': 'applied', 'source': 'A', 'destination': 'B', 'value': 50, 'state': "
                "'applied', 'lastModified': {'$date': 0}}");
    insert_json(
        store, "transactions",
        "{'_id': 'new', 'source': 'A', 'destination': 'B', 'value': 1, 'state': 'initial'}");
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(resume(transfers, "half", &error), error);
    CHECK_INT(rig_balance(store, "B"), ==, 150);
    CHECK_STATUS(TRUCE_REFUSED, resume(transfers, "wrong", &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 900);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 1);
    CHECK_STATE("done", "applied");
    CHECK_STATE("initial", "new");
    CHECK_OK(resume(transfers, "new", &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 899);
    CHECK_INT(rig_balance(store, "B"), ==, 151);
    CHECK_STATUS(TRUCE_NOT_FOUND, resume(transfers, "nobody", &error), error);
    rig_settled(store);
    truce_transfers_free(transfers);
}

TEST(completes_the_transfers_of_the_recipe)
{
    rig_everywhere(recipe);
}

static void canceled(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    bson_error_t error = {0};

    begin(store);
    insert_json(store, "transactions",
                "{'_id': 't1', 'source': 'A', 'destination': 'B', 'value': 7, 'state': 'pending'}");
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(cancel(transfers, "t1", &error), error);
    CHECK_OK(cancel(transfers, "t1", &error), error);
    CHECK_STATE("canceled", "t1");
    CHECK_STATUS(TRUCE_REFUSED, resume(transfers, "t1", &error), error);
    CHECK_SAYS(error.message, "canceled");
    CHECK_OK(rig_move(transfers, "t2", "A", "B", 7, NULL, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, cancel(transfers, "t2", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, cancel(transfers, "t3", &error), error);
    CHECK_INT(rig_balance(store, "A"), ==, 993);
    insert_json(store, "transactions", "{'_id': 'odd', 'state': 'pending'}");
    CHECK_STATUS(TRUCE_INVALID, resume(transfers, "odd", &error), error);
    CHECK_SAYS(error.message, "odd");
    truce_transfers_free(transfers);
}

TEST(cancels_a_transfer_that_is_not_decided)
{
    rig_everywhere(canceled);
}

/* A transfer that cannot end is reported, and stops nothing else. */
static void stuck(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    truce_sweep_report report;
    truce_check_report checked;
    bson_error_t error = {0};
    int findings = 0;

    begin(store);
    insert_json(
        store, "transactions",
        "{'_id': 'a', 'state': 'committed', 'lastModified': {'$date': 0}, 'entries': [{'ns': "
        "'accounts', 'id': 'gone', 'when': 'after', 'effect': {'＄inc': {'balance': 1}}}]}");
    insert_json(
        store, "transactions",
        "{'_id': 'b', 'state': 'committed', 'lastModified': {'$date': 0}, 'entries': [{'ns': "
        "'accounts', 'id': 'B', 'when': 'after', 'effect': {'＄inc': {'balance': 1}}}]}");
    insert_json(store, "accounts", "{'_id': 'C', 'pendingTransactions': ['unknown']}");
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_STATUS(TRUCE_INVALID, resume(transfers, "a", &error), error);
    CHECK_SAYS(error.message, "gone");
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 1);
    CHECK_STATE("done", "b");
    CHECK_INT(rig_balance(store, "B"), ==, 1);
    CHECK_OK(truce_check(store, NULL, rig_finding, &findings, &checked, &error), error);
    CHECK_INT(findings, ==, 2); /* the mark, and the transfer without progress */
    rig_account(store, "gone", 0);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
    CHECK_STATE("done", "a");
    CHECK_INT(rig_balance(store, "gone"), ==, 1);
    truce_transfers_free(transfers);
}

TEST(reports_a_stuck_transfer_which_stops_nothing_else)
{
    rig_everywhere(stuck);
}

/* Ended transfers are removed after their retention, and no others. */
static void pruned(truce_store *store, const struct setting *setting)
{
    truce_transfers *transfers;
    truce_sweep_report report;
    bson_error_t error = {0};

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 1, NULL, &error), error);
    CHECK_INT(count_json(store, "transactions", "{'expires': {'$gt': {'$date': 0}}}"), ==, 1);
    insert_json(store, "transactions",
                "{'_id': 'old', 'state': 'done', 'expires': {'$date': 1000}}");
    insert_json(store, "transactions",
                "{'_id': 'live', 'state': 'initial', 'expires': {'$date': 1000}}");
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_STATE("", "old");
    CHECK_STATE("initial", "live");
    CHECK_STATE("done", "t1");
    truce_transfers_free(transfers);
}

TEST(removes_ended_transfers_after_their_retention)
{
    rig_everywhere(pruned);
}

/* ---- concurrent writers ---------------------------------------------------------------------- */

/* A transfer waits for a document that a commit holds, and does not change one that a commit has
 * read. */
static void beside_commits(truce_store *store, const struct setting *setting)
{
    bson_value_t id = text_id("A"), post = text_id("p");
    bson_t *like = test_bson("{'$inc': {'likes': 1}}"), found;
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_transfers *transfers;
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    begin(store);
    transfers = rig_transfers(store, setting->mechanism);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(truce_commit_read(commit, "accounts", &id, &found, &error), error);
    CHECK_OK(truce_commit_update(commit, "posts", &post, NULL, like, &error), error);
    CHECK_OK(rig_move(transfers, "t1", "A", "B", 1, NULL, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    bson_destroy(&found);
    truce_transfers_free(transfers);
    bson_destroy(like);
}

TEST(a_commit_notices_a_transfer)
{
    rig_everywhere(beside_commits);
}

#define CROWD  6
#define ROUNDS 12

struct member {
    truce_store *store;
    truce_mechanism mechanism;
    int number;
    int moved; /* from 0 to 1 by the transfers that it was notified of */
    pthread_t thread;
};

/* Each member moves from account to account, and cancels the transfers of the next one. */
static void *member(void *arg)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    struct member *me = arg;
    truce_transfers *transfers = rig_transfers(me->store, me->mechanism);

    for (int i = 0; i < ROUNDS; i++) {
        bson_error_t error = {0};
        char mine[30], next[30];
        bson_value_t other;
        truce_status status;

        snprintf(mine, sizeof mine, "%d-%d", me->number, i);
        snprintf(next, sizeof next, "%d-%d", (me->number + 1) % CROWD, i);
        other = text_id(next);
        status = rig_move(transfers, mine, names[i % 4], names[(i + 1 + me->number % 3) % 4], 1,
                          NULL, &error);
        if (status && status != TRUCE_REFUSED)
            test_fail(__FILE__, __LINE__, "a transfer: %s", error.message);
        status = truce_transfer_cancel(transfers, &other, &error);
        if (status && status != TRUCE_REFUSED && status != TRUCE_NOT_FOUND)
            test_fail(__FILE__, __LINE__, "canceling: %s", error.message);
    }
    truce_transfers_free(transfers);
    return NULL;
}

static void crowd(truce_store *store, const struct setting *setting)
{
    struct member members[CROWD];
    int64_t sum = 0;

    for (int i = 0; i < 4; i++) {
        rig_account(store, (char[]){(char)('0' + i), 0}, 3);
    }
    for (int i = 0; i < CROWD; i++) {
        members[i] = (struct member){.store = store, .mechanism = setting->mechanism, .number = i};
        REQUIRE(!pthread_create(&members[i].thread, NULL, member, &members[i]));
    }
    for (int i = 0; i < CROWD; i++)
        pthread_join(members[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        sum += rig_balance(store, (char[]){(char)('0' + i), 0});
    CHECK_INT(sum, ==, 12);
    CHECK_INT(count_json(store, "accounts", "{'balance': {'$lt': 0}}"), ==, 0);
    CHECK_INT(count_json(store, "transactions", "{'state': {'$nin': ['done', 'canceled']}}"), ==,
              0);
    CHECK_INT(count_json(store, "transactions", "{}"), ==, CROWD * ROUNDS);
    rig_settled(store);
}

TEST(many_threads_conserve_money)
{
    rig_everywhere(crowd);
}
