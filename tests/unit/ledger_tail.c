/* The last numbers of an account in memory, from which runs of stored sums are made. */
#include "patterns/ledger/ledger.h"

#include "tests/support/test.h"

static truce_store *store;
static truce_ledger *ledger;
static struct ledger_reader reader;
static struct ledger_runs runs = {.reader = &reader};
static struct ledger_tail tail;

static void begin(void)
{
    const truce_ledger_options options = {.collection = "tx"};
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    ledger = truce_ledger_new(store, &options);
    truce__ledger_reader_init(&reader, ledger);
}

static void end(void)
{
    truce__ledger_documents_release(&runs.documents);
    truce__ledger_tail_release(&tail);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* Posts the numbers `from` to `to` of the chain. Returns the number after which runs are made. */
static int64_t post(int64_t from, int64_t to, uint8_t chain)
{
    char account[] = "a";
    struct ledger_known posted = {.account = account};
    int64_t begun;

    memset(posted.tail.hash, chain + (int)(from - 1) % 100, SHA256_BYTES);
    for (int64_t number = from; number <= to; number++) {
        const struct ledger_tail_value value = {.date = number, .value = 1, .counts = true};

        memset(posted.state.hash, chain + (int)number % 100, SHA256_BYTES);
        truce__ledger_tail_add(&posted.tail, number, &value, posted.state.hash);
    }
    begun = truce__ledger_tail_join(&tail, &posted, &runs);
    truce__ledger_tail_release(&posted.tail);
    return begun;
}

/* Returns how many runs were made, and checks the number and the hash of the last one. */
static uint32_t made(int64_t number, uint8_t chain)
{
    const bson_t *last = runs.documents.items[runs.documents.count - 1];
    bson_iter_t at, hash;

    if (CHECK(bson_iter_init_find(&at, last, "number")))
        CHECK_INT(bson_iter_as_int64(&at), ==, number);
    if (CHECK(bson_iter_init(&at, last) && bson_iter_find_descendant(&at, "_id.hash", &hash))) {
        const uint8_t *bytes;
        uint32_t length;

        bson_iter_binary(&hash, NULL, &length, &bytes);
        CHECK_INT(bytes[0], ==, chain + (int)number % 100);
    }
    return runs.documents.count;
}

TEST(makes_a_run_from_the_numbers_of_several_batches)
{
    begin();
    CHECK_INT(post(1, 100, 0), ==, 0);
    CHECK_INT(runs.documents.count, ==, 0);
    CHECK_INT(post(101, 127, 0), ==, 0);
    CHECK_INT(runs.documents.count, ==, 0);
    CHECK_INT(post(128, 130, 0), ==, 0);
    CHECK_INT(made(128, 0), ==, 1);
    CHECK_INT(post(131, 600, 0), ==, 128);
    CHECK_INT(made(512, 0), ==, 4);
    end();
}

TEST(begins_at_the_next_end_of_a_run_if_earlier_numbers_are_unknown)
{
    begin();
    CHECK_INT(post(100, 120, 0), ==, 120);
    CHECK_INT(post(121, 130, 0), ==, 128);
    CHECK_INT(runs.documents.count, ==, 0);
    CHECK_INT(post(131, 256, 0), ==, 128);
    CHECK_INT(made(256, 0), ==, 1);
    CHECK_INT(post(257, 260, 0), ==, 256);
    end();
}

/* The hashes of the numbers 100 and 200 are equal here. */
TEST(begins_again_if_other_numbers_came_in_between)
{
    begin();
    CHECK_INT(post(1, 100, 0), ==, 0);
    CHECK_INT(post(201, 300, 0), ==, 256);
    CHECK_INT(runs.documents.count, ==, 0);
    CHECK_INT(post(301, 400, 0), ==, 256);
    CHECK_INT(made(384, 0), ==, 1);
    end();
}

/* The numbers follow each other, but the book was rewritten. */
TEST(begins_again_if_the_chain_is_another_one)
{
    begin();
    CHECK_INT(post(1, 100, 0), ==, 0);
    CHECK_INT(post(101, 300, 100), ==, 128);
    CHECK_INT(made(256, 100), ==, 1);
    end();
}
