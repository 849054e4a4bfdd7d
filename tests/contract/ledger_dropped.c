/*
 * Ledgers on a store that does not report that another client dropped or emptied the collection,
 * like a MongoDB server. A handle that remembers numbers of the old book never posts after them.
 */
#include "tests/support/ledger_rig.h"
#include "tests/support/silent_store.h"

enum way { POST_FIRST, OPEN_FIRST, READ_FIRST, COMMIT_FIRST, WAYS };

static truce_status post_in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    return book_post(arg, commit, "t9", TRUCE_LEDGER_TRANSFER, "people:a", "people:b", 1, NULL,
                     error);
}

static void remove_book(truce_store *store, bool drop)
{
    static const bson_t all = BSON_INITIALIZER;
    bson_error_t error = {0};

    if (drop)
        CHECK_OK(truce_collection_drop(store, "tx", &error), error);
    else
        CHECK_OK(
            truce_remove(store, "tx", &all, &(truce_write_options){.multi = true}, NULL, &error),
            error);
    if (book_has_slots())
        CHECK_OK(truce_remove(store, "tx_numbers", &all, &(truce_write_options){.multi = true},
                              NULL, &error),
                 error);
}

static void use_old_handle(truce_store *store, truce_ledger *ledger, enum way way)
{
    truce_ledger_balance balance;
    bson_error_t error = {0};

    switch (way) {
    case POST_FIRST:
        CHECK_STATUS(TRUCE_NOT_FOUND,
                     book_transfer(ledger, "t1", "people:a", "people:b", 1, &error), error);
        break;
    case READ_FIRST:
        CHECK_STATUS(TRUCE_NOT_FOUND,
                     truce_ledger_balance_of(ledger, "people:a", NULL, &balance, &error), error);
        break;
    case COMMIT_FIRST:
        CHECK_STATUS(TRUCE_NOT_FOUND, truce_transact(store, post_in_commit, ledger, NULL, &error),
                     error);
        break;
    default:
        break;
    }
}

/* After the book is gone, the old handle makes a valid new one. */
static void check_way(truce_store *inner, truce_store *store, enum way way, bool drop)
{
    truce_ledger *ledger = begin(store), *other;
    truce_ledger_report report;
    bson_error_t error = {0};

    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 5, &error), error);
    remove_book(inner, drop);
    use_old_handle(store, ledger, way);
    OPEN(ledger, "bank", ANY);
    OPEN(ledger, "people:a", 0);
    OPEN(ledger, "people:b", 0);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "people:a", 7, &error), error);
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 5, &error), error);
    BALANCE("people:a", 2, 2);
    BALANCE("people:b", 5, 5);
    other = book_ledger(inner);
    CHECK_OK(truce_ledger_verify(other, NULL, NULL, NULL, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    CHECK_INT(report.accounts, ==, 3);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

static void check_setting(const struct setting *setting)
{
    truce_store *inner = open_setting(setting), *store = silent_store(inner);

    for (int way = 0; way < WAYS; way++) {
        for (int drop = 0; drop < 2; drop++) {
            int before = test_failures();

            check_way(inner, store, (enum way)way, drop);
            remove_book(inner, true);
            if (test_failures() > before)
                fprintf(stderr, "    (%s, way %d, %s)\n", setting->name, way,
                        drop ? "dropped" : "emptied");
        }
    }
    truce_store_close(store);
}

TEST(makes_a_valid_book_after_the_old_one_was_dropped)
{
    if (!book_has_slots() && server_under_test() && test_excused("ledger_numbers"))
        return;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_setting(&settings[i]);
}
