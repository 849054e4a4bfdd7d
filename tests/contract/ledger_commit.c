/* Ledgers: transfers in a commit with other changes, and linked transactions. */
#include "patterns/change_list/change_list.h"
#include "tests/support/hooked.h"
#include "tests/support/ledger_rig.h"

/* ---- in a commit ---------------------------------------------------------------------------- */

struct order {
    truce_ledger *ledger, *other;
    int runs;
    int64_t amount;
    truce_status second;
};

static truce_status pay(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    bson_t *paid = BCON_NEW("$set", "{", "paid", BCON_BOOL(true), "}");
    bson_value_t id = text_id("o1");
    truce_status status = book_post(order->ledger, commit, "pay 1", TRUCE_LEDGER_TRANSFER,
                                    "people:a", "people:b", order->amount, NULL, error);

    if (!status)
        status = book_post(order->ledger, commit, "pay 2", TRUCE_LEDGER_TRANSFER, "people:b",
                           "bank", order->amount, NULL, error);
    if (!status)
        status = truce_commit_update(commit, "orders", &id, NULL, paid, error);
    bson_destroy(paid);
    /* another client takes the numbers between the read and the commit */
    if (!status && order->runs++ == 0 && order->other)
        CHECK_OK(book_transfer(order->other, "between", "people:a", "bank", 100, error), *error);
    return status;
}

static void in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 20000};
    struct order order = {.ledger = ledger, .other = other, .amount = 400};
    bson_error_t error = {0};

    if (setting->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        truce_ledger_free(other);
        truce_ledger_free(ledger);
        return;
    }
    insert_json(store, "orders", "{'_id': 'o1'}");
    CHECK_OK(truce_transact(store, pay, &order, &options, &error), error);
    CHECK_INT(order.runs, ==, 2);
    BALANCE("people:a", 500, 500);
    BALANCE("people:b", 0, 0);
    BALANCE("bank", -500, -500);
    /* posted before: nothing happens */
    order.other = NULL;
    CHECK_OK(truce_transact(store, pay, &order, &options, &error), error);
    BALANCE("people:a", 500, 500);
    /* refused: no part of it happens */
    CHECK_OK(book_transfer(other, "again", "bank", "people:a", 100, &error), error);
    order.amount = 9999;
    CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, pay, &order, &options, &error), error);
    CHECK_OK(book_transfer(ledger, "after", "people:a", "people:b", 50, &error), error);
    BALANCE("people:a", 550, 550);
    BOOK_CHECK(ledger);
    BOOK_CHECK(other);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(money_moves_in_a_commit_with_other_changes)
{
    everywhere(in_a_commit);
}

static truce_status reserve_and_settle(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    truce_status status = book_post(order->ledger, commit, "p1", TRUCE_LEDGER_PENDING, "people:a",
                                    "people:b", 100, NULL, error);

    if (!status)
        status = book_resolve(order->ledger, commit, "s1", TRUCE_LEDGER_SETTLE, "p1", error);
    if (!status)
        order->second = book_resolve(order->ledger, commit, "s2", TRUCE_LEDGER_VOID, "p1", error);
    if (!status)
        status =
            truce_ledger_open(order->ledger, commit,
                              &(truce_ledger_account){.account = "new", .currency = "EUR"}, error);
    if (!status)
        status = book_post(order->ledger, commit, "t9", TRUCE_LEDGER_TRANSFER, "people:a", "new", 7,
                           NULL, error);
    return status;
}

static void chain_in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 20000};
    struct order order = {.ledger = ledger};
    bson_error_t error = {0};

    if (setting->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        truce_ledger_free(ledger);
        return;
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_transact(store, reserve_and_settle, &order, &options, &error), error);
        CHECK_INT(order.second, ==, TRUCE_DUPLICATE);
    }
    BALANCE("people:a", 893, 893);
    BALANCE("people:b", 100, 100);
    BALANCE("new", 7, 7);
    CHECK_INT(book_count(store, "{'open': {'$exists': true}}"), ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(posts_of_one_commit_build_on_each_other)
{
    everywhere(chain_in_a_commit);
}

static void linked(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t ids[] = {text_id("l1"), text_id("l2"), text_id("l3")};
    truce_ledger_entry entries[][2] = {{{"people:a", -600, NULL}, {"people:b", 600, NULL}},
                                       {{"people:b", -500, NULL}, {"bank", 500, NULL}},
                                       {{"people:a", -500, NULL}, {"bank", 500, NULL}}};
    truce_ledger_transaction transactions[3];
    bson_error_t error = {0};
    size_t at = 99;

    (void)setting;
    for (int i = 0; i < 3; i++)
        transactions[i] =
            (truce_ledger_transaction){.id = &ids[i], .entries = entries[i], .count = 2};
    CHECK_STATUS(TRUCE_LIMIT, truce_ledger_post_linked(ledger, transactions, 3, &at, &error),
                 error);
    CHECK_INT(at, ==, 2);
    BALANCE("people:a", 1000, 1000);
    BALANCE("people:b", 0, 0);
    CHECK_OK(truce_ledger_post_linked(ledger, transactions, 2, &at, &error), error);
    BALANCE("people:a", 400, 400);
    BALANCE("people:b", 100, 100);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

/* Three posts of change lists, each followed by one of another handle. */
static truce_status post_in_turns(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct change_list_handles handles = {0};
    struct order *order = arg;
    truce_status status = TRUCE_OK;
    char json[120], name[3] = "o0";

    for (int i = 0; i < 3 && !status; i++) {
        bson_t *list;

        snprintf(json, sizeof json,
                 "{'0': {'post': 'tx', 'id': %d, 'with': {'people:a': '-0.10', 'people:b': 10}}}",
                 i);
        list = test_bson(json);
        status = truce__change_list_add(list, NULL, &handles, commit, error);
        bson_destroy(list);
        name[1] = (char)('0' + i);
        if (!status)
            status = book_post(order->ledger, commit, name, TRUCE_LEDGER_TRANSFER, "people:b",
                               "people:a", 3, NULL, error);
    }
    if (!status && order->runs++ == 0)
        CHECK_OK(book_transfer(order->other, "between", "people:a", "bank", 100, error), *error);
    truce__change_list_handles_release(&handles);
    return status;
}

static void posts_in_turns(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 20000};
    struct order order = {.ledger = ledger, .other = other};
    bson_error_t error = {0};

    if (setting->mechanism != TRUCE_MECHANISM_NATIVE ||
        (store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        CHECK_OK(truce_transact(store, post_in_turns, &order, &options, &error), error);
        CHECK_INT(order.runs, ==, 2);
        BALANCE("people:a", 879, 879);
        BALANCE("people:b", 21, 21);
        CHECK_STATUS(TRUCE_DUPLICATE,
                     truce_transact(store, post_in_turns, &order, &options, &error), error);
        BOOK_CHECK(ledger);
    }
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(posts_of_a_change_list_follow_other_posts_of_their_commit)
{
    everywhere(posts_in_turns);
}

TEST(linked_transactions_are_posted_together_or_not_at_all)
{
    everywhere(linked);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The calls of a post in a commit that read the ledger, on a store that is like a server: there,
 * each is a message. */
static int messages;

static truce_status count_find(truce_store *store, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error)
{
    messages += !strcmp(collection, "tx");
    return plain_ops->find(store, collection, filter, options, cursor, error);
}

struct single {
    truce_ledger *ledger;
    const char *id;
    int64_t amount;
    truce_ledger_result result;
};

static truce_status post_single(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct single *single = arg;

    return book_post(single->ledger, commit, single->id, TRUCE_LEDGER_TRANSFER, "people:a",
                     "people:b", single->amount, &single->result, error);
}

static truce_status post_counted(truce_store *store, struct single *single, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .deadline_ms = 20000};

    messages = 0;
    return truce_transact(store, post_single, single, &options, error);
}

static void nothing_first(truce_store *store)
{
    (void)store;
}

static void in_one_message(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    uint32_t capabilities = store->capabilities;
    struct single single = {.ledger = ledger, .amount = 10};
    bson_error_t error = {0};
    char id[20];

    if (setting->mechanism != TRUCE_MECHANISM_JOURNAL || book_has_slots()) {
        truce_ledger_free(other);
        truce_ledger_free(ledger);
        return;
    }
    store->capabilities &= ~(uint32_t)TRUCE_CAN_REWRITE;
    hooked_make(store, nothing_first);
    hooked_ops.find = count_find;
    store->ops = &hooked_ops;
    single.id = "one";
    CHECK_OK(post_counted(store, &single, &error), error);
    single.id = "two"; /* The accounts are remembered now. */
    CHECK_OK(post_counted(store, &single, &error), error);
    CHECK_INT(messages, ==, 1);
    BALANCE("people:a", 980, 980);
    /* Transactions of another handle follow: one, and more than the message reads. */
    for (int i = 0, count = 1; count <= 10; count += 9) {
        for (int n = 0; n < count; n++) {
            snprintf(id, sizeof id, "other %d", i++);
            CHECK_OK(book_transfer(other, id, "people:a", "bank", 1, &error), error);
        }
        snprintf(id, sizeof id, "after %d", count);
        single.id = id;
        CHECK_OK(post_counted(store, &single, &error), error);
        CHECK_INT(messages == 1, ==, count == 1);
        BALANCE("people:a", count == 1 ? 969 : 949, count == 1 ? 969 : 949);
    }
    /* It was posted before, with the same content and another. */
    single.id = "two";
    CHECK_OK(post_counted(store, &single, &error), error);
    CHECK(single.result.exists);
    single.amount = 11;
    CHECK_STATUS(TRUCE_DUPLICATE, post_counted(store, &single, &error), error);
    BALANCE("people:a", 949, 949);
    /* Another program has inserted a transaction, which is committed first. */
    insert_json(store, "tx",
                "{'_id': 'foreign', 'proc': 'UNCOMMITTED', 'state': 'VALID', 'changes': ["
                "{'account': 'people:a', 'value': -5, 'seqId': 100}, "
                "{'account': 'people:b', 'value': 5, 'seqId': 100}]}");
    single.id = "last";
    single.amount = 10;
    CHECK_OK(post_counted(store, &single, &error), error);
    BALANCE("people:a", 934, 934);
    store->ops = plain_ops;
    store->capabilities = capabilities;
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(a_post_in_a_commit_reads_accounts_and_id_by_one_message)
{
    everywhere(in_one_message);
}

/* ---- currencies ------------------------------------------------------------------------------ */

/* Before each find, drops a collection, so that a ledger forgets what it has remembered. */
static void drop_another(truce_store *store)
{
    static _Thread_local bool is_inside;
    bson_error_t error;

    if (is_inside)
        return;
    is_inside = true;
    (void)!truce_collection_create(store, "another", &error);
    (void)!truce_collection_drop(store, "another", &error);
    is_inside = false;
}

TEST(finds_a_currency_while_another_collection_is_dropped)
{
    truce_store *store;
    truce_ledger *ledger;
    bson_error_t error = {0};
    int digits = -1;

    if (server_under_test())
        return;
    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    ledger = book_ledger(store);
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    hooked_make(store, drop_another);
    store->ops = &hooked_ops;
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_ledger_digits(ledger, "EUR", &digits, &error), error);
    CHECK_INT(digits, ==, 2);
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    CHECK_OK(truce_ledger_currency(ledger, "USD", 3, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_ledger_digits(ledger, "GBP", &digits, &error), error);
    store->ops = plain_ops;
    truce_ledger_free(ledger);
    truce_store_close(store);
}
