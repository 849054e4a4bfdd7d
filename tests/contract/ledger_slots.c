/* A ledger whose numbers are documents: how it is declared, what it stores, and which faults it
 * reports. */
#include <pthread.h>

#include "base/limits.h"
#include "tests/support/ledger_rig.h"
#include "tests/support/no_sleep.h"
#include "tests/support/trouble.h"

static truce_ledger *slotted(truce_store *store, const char *slots)
{
    return truce_ledger_new(
        store, &(truce_ledger_options){.collection = "tx", .slots = slots, .deadline_ms = 60000});
}

static truce_ledger *begin_slotted(truce_store *store)
{
    truce_ledger *ledger = slotted(store, "numbers");
    bson_error_t error = {0};

    OPEN(ledger, "bank", ANY);
    OPEN(ledger, "people:a", 0);
    OPEN(ledger, "people:b", 0);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "people:a", 1000, &error), error);
    return ledger;
}

static int64_t count_of(truce_store *store, const char *filter)
{
    bson_t *wanted = test_bson(filter);
    bson_error_t error = {0};
    int64_t count = -1;

    CHECK_OK(truce_count(store, "numbers", wanted, NULL, &count, &error), error);
    bson_destroy(wanted);
    return count;
}

/* ---- the layout ----------------------------------------------------------------------------- */

static void said_once(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin_slotted(store), *other = slotted(store, NULL),
                 *wrong = slotted(store, "elsewhere");
    const char *refused[] = {"tx", "", "truce_commits"};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(other, "t", "people:a", "people:b", 10, &error), error);
    CHECK_INT(count_of(store, "{}"), ==, 7); /* three open, two transfers of two */
    CHECK_INT(count_of(store, "{'tx': 't'}"), ==, 2);
    CHECK_INT(count_of(store, "{'_id': {'account': 'people:b', 'seqId': {'$numberLong': '2'}}}"),
              ==, 1);
    CHECK_STATUS(TRUCE_INVALID, book_transfer(wrong, "u", "people:a", "people:b", 1, &error),
                 error);
    CHECK(strstr(error.message, "with its numbers in numbers, not in \"elsewhere\""));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        truce_ledger *bad = slotted(store, refused[i]);

        CHECK_STATUS(TRUCE_INVALID, book_transfer(bad, "u", "people:a", "people:b", 1, &error),
                     error);
        truce_ledger_free(bad);
    }
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, 10);
    BOOK_CHECK(ledger);
    truce_ledger_free(wrong);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(the_first_writer_decides_where_numbers_are)
{
    on_every_setting(said_once);
}

static void not_later(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = slotted(store, NULL), *other = slotted(store, "numbers");
    bson_error_t error = {0};

    (void)setting;
    OPEN(ledger, "bank", ANY);
    CHECK_STATUS(TRUCE_INVALID, book_open(other, "people:a", 0, &error), error);
    CHECK(strstr(error.message, "with its numbers in an index"));
    CHECK_INT(count_of(store, "{}"), ==, 0);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(a_ledger_with_an_index_keeps_it)
{
    everywhere(not_later);
}

/* A settled amount has a document, too; a transaction that a commit cannot hold is refused as a
 * whole. */
static void limits(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin_slotted(store);
    truce_ledger_entry *entries = bson_malloc0(LEDGER_ENTRIES_MAX * sizeof *entries);
    bson_value_t ids[] = {text_id("many"), text_id("few")};
    truce_ledger_transaction transactions[2];
    truce_ledger_result results[2];
    bson_error_t error = {0};

    for (int i = 0; i < LEDGER_ENTRIES_MAX; i++)
        entries[i] = (truce_ledger_entry){i % 2 ? "bank" : "people:a", i % 2 ? -1 : 1, NULL};
    transactions[0] =
        (truce_ledger_transaction){.id = &ids[0], .entries = entries, .count = LEDGER_ENTRIES_MAX};
    transactions[1] = (truce_ledger_transaction){.id = &ids[1], .entries = entries, .count = 4};
    CHECK_OK(truce_ledger_post_many(ledger, transactions, 2, results, &error), error);
    CHECK_INT(results[0].status, ==, TRUCE_LIMIT);
    CHECK_INT(results[1].status, ==, TRUCE_OK);
    CHECK_INT(count_of(store, "{'tx': 'many'}"), ==, 0);
    transactions[0].count = LEDGER_SLOTS_ENTRIES_MAX + 1;
    CHECK_STATUS(TRUCE_LIMIT, truce_ledger_post(ledger, NULL, &transactions[0], NULL, &error),
                 error);
    transactions[0].count = LEDGER_SLOTS_ENTRIES_MAX; /* an odd number, and still zero */
    entries[LEDGER_SLOTS_ENTRIES_MAX - 2].value = -2;
    if (!strcmp(setting->uri, "memory:") && setting->mechanism == TRUCE_MECHANISM_NATIVE) {
        CHECK_OK(truce_ledger_post(ledger, NULL, &transactions[0], NULL, &error), error);
        CHECK_INT(count_of(store, "{'tx': 'many'}"), ==, LEDGER_SLOTS_ENTRIES_MAX);
    }
    CHECK_OK(
        book_post(ledger, NULL, "p", TRUCE_LEDGER_PENDING, "people:a", "people:b", 5, NULL, &error),
        error);
    CHECK_OK(book_resolve(ledger, NULL, "s", TRUCE_LEDGER_SETTLE, "p", &error), error);
    CHECK_INT(count_of(store, "{'_id': {'resolves': 'p'}, 'tx': 's'}"), ==, 1);
    CHECK_STATUS(TRUCE_DUPLICATE, book_resolve(ledger, NULL, "v", TRUCE_LEDGER_VOID, "p", &error),
                 error);
    BOOK_CHECK(ledger);
    bson_free(entries);
    truce_ledger_free(ledger);
}

TEST(refuses_a_transaction_that_a_commit_cannot_hold_as_a_whole)
{
    on_every_setting(limits);
}

/* ---- in a commit ---------------------------------------------------------------------------- */

static truce_status post_two(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_ledger *ledger = arg;
    truce_status status = book_post(ledger, commit, "c1", TRUCE_LEDGER_TRANSFER, "people:a",
                                    "people:b", 100, NULL, error);

    if (!status)
        status = book_post(ledger, commit, "c2", TRUCE_LEDGER_TRANSFER, "people:b", "bank", 60,
                           NULL, error);
    return status;
}

static void together(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin_slotted(store);
    truce_commit_options options = {.mechanism = setting->mechanism};
    bson_error_t error = {0};

    CHECK_OK(truce_transact(store, post_two, ledger, &options, &error), error);
    CHECK_INT(count_of(store, "{'tx': {'$in': ['c1', 'c2']}}"), ==, 4);
    CHECK_INT(book_balance(ledger, "people:b").balance, ==, 40);
    CHECK_INT(book_balance(ledger, "people:b").number, ==, 3);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(two_posts_of_one_commit_take_consecutive_numbers)
{
    rig_everywhere(together);
}

/* ---- a process that dies -------------------------------------------------------------------- */

/* Dies after that call; then a reader of the account sees what was decided. False: it did not
 * die. */
static bool die_at(uint64_t at)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    truce_store *memory = NULL, *inner, *outer;
    truce_ledger *ledger, *fresh;
    truce_ledger_result result;
    bson_error_t error = {0};
    int64_t number;
    bool hit;

    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    inner = truce_fault_wrap(memory, &none);
    outer = truce_fault_wrap(inner, &none);
    ledger = begin_slotted(outer);
    trouble_arm(inner, outer, DIE_AFTER, at);
    (void)!truce_transact(outer, post_two, ledger, &options, &error);
    hit = truce_fault_hits(inner) + truce_fault_hits(outer) > 0;
    trouble_arm(inner, outer, NONE, 0);
    truce_ledger_free(ledger);
    fresh = slotted(outer, NULL);
    number = book_balance(fresh, "people:b").number;
    CHECK_OK(book_post(fresh, NULL, "c1", TRUCE_LEDGER_TRANSFER, "people:a", "people:b", 100,
                       &result, &error),
             error);
    CHECK_INT(number, ==, result.exists ? 3 : 1);
    BOOK_CHECK(fresh);
    truce_ledger_free(fresh);
    truce_store_close(outer);
    return hit;
}

TEST(a_reader_of_an_account_gets_the_decision_of_a_crashed_process)
{
    uint64_t at = 1;

    if (server_under_test())
        return;
    no_sleep_use();
    while (at < 500 && die_at(at))
        at++;
    CHECK_INT(at, >, 10);
    CHECK_INT(at, <, 500);
}

/* ---- handles that know nothing of each other ------------------------------------------------ */

#define CROWD 4

/* Each thread posts an even number. */
static int crowd_posts(void)
{
    return server_under_test() ? 4 : 24;
}

struct crowd {
    truce_store *store;
    int who;
};

static void *post_beside(void *arg)
{
    struct crowd *crowd = arg;
    truce_ledger *ledger = slotted(crowd->store, NULL);
    bson_error_t error = {0};
    char id[20];

    for (int i = 0; i < crowd_posts(); i++) {
        bool there = i % 2;

        snprintf(id, sizeof id, "%d-%d", crowd->who, i);
        CHECK_OK(book_transfer(ledger, id, there ? "people:b" : "people:a",
                               there ? "people:a" : "people:b", 3, &error),
                 error);
    }
    truce_ledger_free(ledger);
    return NULL;
}

/* Each repeats as often as it likes, and posts once, however often another thread takes its
 * number. */
static void beside(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin_slotted(store);
    struct crowd crowd[CROWD];
    pthread_t threads[CROWD];
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(ledger, "more", "bank", "people:b", 1000, &error), error);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = (struct crowd){store, i};
        pthread_create(&threads[i], NULL, post_beside, &crowd[i]);
    }
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(book_balance(ledger, "people:a").number, ==, 2 + CROWD * crowd_posts());
    CHECK_INT(book_balance(ledger, "people:a").balance, ==, 1000);
    CHECK_INT(count_of(store, "{}"), ==, 3 + 4 + 2 * CROWD * crowd_posts());
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(gives_each_number_once_among_independent_handles)
{
    on_every_setting(beside);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void keep_text(const bson_t *finding, void *arg)
{
    char *text = arg;
    bson_iter_t iter;

    if (!*text && bson_iter_init_find(&iter, finding, "text"))
        snprintf(text, 200, "%s", bson_iter_utf8(&iter, NULL));
}

static void finding_is(truce_ledger *ledger, const char *wanted, int line)
{
    char text[200] = "";
    truce_ledger_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_verify(ledger, NULL, NULL, keep_text, text, &report, &error), error);
    test_check_text(wanted, text, __FILE__, line);
}
#define FINDING(wanted) finding_is(ledger, wanted, __LINE__)

static void change(truce_store *store, const char *filter, const char *update)
{
    bson_t *wanted = test_bson(filter), *document = update ? test_bson(update) : NULL;
    truce_write_result result = {0};
    bson_error_t error = {0};

    if (document)
        CHECK_OK(truce_update(store, "numbers", wanted, document, NULL, &result, &error), error);
    else
        CHECK_OK(truce_remove(store, "numbers", wanted, NULL, &result, &error), error);
    truce_write_result_release(&result);
    bson_destroy(wanted);
    if (document)
        bson_destroy(document);
}

static void proved(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin_slotted(store);
    const char *one = "{'_id': {'account': 'people:a', 'seqId': {'$numberLong': '2'}}}";

    (void)setting;
    FINDING("");
    change(store, one, "{'$set': {'tx': 'other'}}");
    FINDING("the document of its number names another transaction");
    change(store, one, NULL);
    FINDING("the document of its number is missing");
    insert_json(store, "numbers",
                "{'_id': {'account': 'people:a', 'seqId': {'$numberLong': '2'}}, 'tx': 'seed'}");
    FINDING("");
    insert_json(store, "numbers",
                "{'_id': {'account': 'bank', 'seqId': {'$numberLong': '3'}}, 'tx': 'x'}");
    FINDING("the number is taken, but no transaction has it");
    truce_ledger_free(ledger);
}

TEST(reports_a_number_without_its_document_and_the_reverse)
{
    on_every_setting(proved);
}

/* ---- servers that need it -------------------------------------------------------------------- */

static const truce_store_ops *combining_inner;

/* A unique index that combines elements of arrays refuses numbers that no transaction has. */
static truce_status combining_bulk(truce_store *store, const truce_write *writes, size_t count,
                                   const truce_bulk_options *options, truce_write_outcome *outcomes,
                                   bson_error_t *error)
{
    if (strcmp(writes[0].collection, "tx") != 0 || writes[0].kind != TRUCE_WRITE_INSERT)
        return combining_inner->bulk(store, writes, count, options, outcomes, error);
    for (size_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = TRUCE_NOT_FOUND};
    bson_set_error(&outcomes[0].error, TRUCE_ERROR_SERVER, 11000, "E11000 duplicate key");
    outcomes[0].status = TRUCE_DUPLICATE;
    if (error)
        *error = outcomes[0].error;
    return TRUCE_DUPLICATE;
}

static truce_status refusing_index(truce_store *store, const char *collection, const bson_t *index,
                                   bson_error_t *error)
{
    if (strcmp(collection, "tx") != 0)
        return combining_inner->index_create(store, collection, index, error);
    bson_set_error(error, TRUCE_ERROR_SERVER, 171, "cannot index parallel arrays");
    return TRUCE_INVALID;
}

/* Returns a store in memory without the ways around the two functions. */
static truce_store *combining_store(truce_store_ops *ops)
{
    truce_store *store;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    combining_inner = store->ops;
    *ops = *store->ops;
    store->ops = ops;
    return store;
}

TEST(names_slots_if_a_server_refuses_numbers_that_no_transaction_has)
{
    static truce_store_ops ops;
    truce_store *store = combining_store(&ops);
    truce_ledger *ledger = slotted(store, NULL);
    bson_error_t error = {0};

    no_sleep_begin();
    OPEN(ledger, "bank", ANY);
    OPEN(ledger, "people:a", 0);
    ops.bulk = combining_bulk;
    CHECK_STATUS(TRUCE_INVALID, book_transfer(ledger, "t", "bank", "people:a", 1, &error), error);
    CHECK(strstr(error.message, "refuses number 2 of account"));
    CHECK(strstr(error.message, "--slots"));
    ops.bulk = combining_inner->bulk;
    CHECK_OK(book_transfer(ledger, "t", "bank", "people:a", 1, &error), error);
    truce_ledger_free(ledger);
    truce_store_close(store);
    truce__environment_use(NULL);
}

TEST(names_slots_if_a_server_refuses_the_index_of_the_numbers)
{
    static truce_store_ops ops;
    truce_store *store = combining_store(&ops);
    truce_ledger *ledger = slotted(store, NULL);
    bson_error_t error = {0};

    ops.index_create = refusing_index;
    CHECK_STATUS(TRUCE_INVALID, book_open(ledger, "bank", ANY, &error), error);
    CHECK(strstr(error.message, "cannot index parallel arrays"));
    CHECK(strstr(error.message, "--slots"));
    truce_ledger_free(ledger);
    truce_store_close(store);
}
