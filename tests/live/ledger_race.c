/* Many threads and handles on one book: rules hold, each transaction is settled once, and who looks at all accounts
 * meanwhile sees money conserved every time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/support/book.h"

#define WRITERS 32

struct race {
    truce_store *store;
    truce_ledger *ledgers[2]; /* handles that know nothing of each other */
    _Atomic long posted, refused, other;
    _Atomic bool over;
    int each;
};

struct racer {
    struct race *race;
    int number;
    pthread_t thread;
};

static void open_race(struct race *race, int64_t money)
{
    bson_error_t error = {0};
    char uri[400];

    *race = (struct race){0};
    snprintf(uri, sizeof uri, "file:%s/race.truce", test_directory());
    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &race->store, &error),
             error);
    for (int i = 0; i < 2; i++)
        race->ledgers[i] = book_ledger(race->store);
    CHECK_OK(book_open(race->ledgers[0], "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(race->ledgers[0], "hot", 0, &error), error);
    if (money)
        CHECK_OK(book_transfer(race->ledgers[0], "seed", "bank", "hot", money, &error), error);
}

static void close_race(struct race *race)
{
    BOOK_CHECK(race->ledgers[0]);
    BOOK_CHECK(race->ledgers[1]);
    for (int i = 0; i < 2; i++)
        truce_ledger_free(race->ledgers[i]);
    truce_store_close(race->store);
}

static void run_race(struct race *race, void *(*function)(void *))
{
    static struct racer racers[WRITERS];

    for (int i = 0; i < WRITERS; i++) {
        racers[i] = (struct racer){.race = race, .number = i};
        pthread_create(&racers[i].thread, NULL, function, &racers[i]);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(racers[i].thread, NULL);
}

static void count(struct race *race, truce_status status, truce_status no)
{
    if (!status)
        race->posted++;
    else if (status == no)
        race->refused++;
    else
        race->other++;
}

/* ---- overdraft ------------------------------------------------------------------------------ */

static void *withdraw(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    bson_error_t error = {0};
    char id[40];

    for (int i = 0; i < race->each; i++) {
        snprintf(id, sizeof id, "w%d.%d", racer->number, i);
        count(race, book_transfer(race->ledgers[racer->number % 2], id, "hot", "bank", 3, &error),
              TRUCE_LIMIT);
    }
    return NULL;
}

TEST(thirty_two_writers_cannot_overdraw)
{
    struct race race;

    open_race(&race, 200);
    race.each = (int)test_scale("TRUCE_LEDGER_EACH", 6);
    run_race(&race, withdraw);
    CHECK_INT(race.posted, ==, 66);
    CHECK_INT(race.refused, ==, WRITERS * race.each - 66);
    CHECK_INT(race.other, ==, 0);
    CHECK_INT(book_balance(race.ledgers[1], "hot").balance, ==, 2);
    close_race(&race);
}

/* ---- money is conserved --------------------------------------------------------------------- */

#define ACCOUNTS 6

static void *move(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    bson_error_t error = {0};
    char id[40], from[10], to[10];

    for (int i = 0; i < race->each; i++) {
        snprintf(id, sizeof id, "m%d.%d", racer->number, i);
        snprintf(from, sizeof from, "c:%d", (racer->number + i) % ACCOUNTS);
        snprintf(to, sizeof to, "c:%d", (racer->number + 3 * i + 1) % ACCOUNTS);
        if (strcmp(from, to) != 0)
            count(race, book_transfer(race->ledgers[racer->number % 2], id, from, to, 7, &error),
                  TRUCE_LIMIT);
    }
    return NULL;
}

static void *poll_sums(void *arg)
{
    struct race *race = arg;
    truce_ledger *ledger = book_ledger(race->store);
    long looks = 0;

    do {
        CHECK_INT(book_sum(ledger), ==, 0);
        looks++;
    } while (!race->over);
    truce_ledger_free(ledger);
    CHECK(looks > 0);
    return NULL;
}

TEST(whoever_looks_at_all_accounts_sees_money_conserved)
{
    pthread_t readers[2];
    struct race race;
    bson_error_t error = {0};
    char id[20], name[20];

    open_race(&race, 0);
    race.each = (int)test_scale("TRUCE_LEDGER_EACH", 6);
    for (int i = 0; i < ACCOUNTS; i++) {
        snprintf(name, sizeof name, "c:%d", i);
        snprintf(id, sizeof id, "seed %d", i);
        CHECK_OK(book_open(race.ledgers[0], name, 0, &error), error);
        CHECK_OK(book_transfer(race.ledgers[0], id, "bank", name, 100, &error), error);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&readers[i], NULL, poll_sums, &race);
    run_race(&race, move);
    race.over = true;
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    CHECK_INT(race.other, ==, 0);
    CHECK(race.posted > 0);
    close_race(&race);
}

/* ---- once ----------------------------------------------------------------------------------- */

/* Settling against giving up, and one reversal against another, of the same transactions. */
static void *settle(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    bson_error_t error = {0};
    char id[40], of[20];

    for (int i = 0; i < race->each; i++) {
        snprintf(id, sizeof id, "s%d.%d", racer->number, i);
        snprintf(of, sizeof of, "p%d", i);
        count(race,
              book_resolve(race->ledgers[racer->number % 2], NULL, id,
                           racer->number % 3 ? TRUCE_LEDGER_SETTLE : TRUCE_LEDGER_VOID, of, &error),
              TRUCE_DUPLICATE);
    }
    return NULL;
}

static void *reverse(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    bson_error_t error = {0};
    char id[40], of[20];

    for (int i = 0; i < race->each; i++) {
        snprintf(id, sizeof id, "r%d.%d", racer->number, i);
        snprintf(of, sizeof of, "t%d", i);
        count(race,
              book_resolve(race->ledgers[racer->number % 2], NULL, id, TRUCE_LEDGER_REVERSE, of,
                           &error),
              TRUCE_DUPLICATE);
    }
    return NULL;
}

TEST(of_settling_and_giving_up_one_takes_place_and_of_reversals_one)
{
    struct race race;
    bson_error_t error = {0};
    char id[20];

    open_race(&race, 1000);
    race.each = 5;
    for (int i = 0; i < race.each; i++) {
        snprintf(id, sizeof id, "p%d", i);
        CHECK_OK(book_post(race.ledgers[0], NULL, id, TRUCE_LEDGER_PENDING, "hot", "bank", 10, NULL,
                           &error),
                 error);
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(race.ledgers[1], id, "hot", "bank", 20, &error), error);
    }
    run_race(&race, settle);
    CHECK_INT(race.posted, ==, race.each);
    CHECK_INT(race.refused, ==, (WRITERS - 1) * race.each);
    race.posted = race.refused = 0;
    run_race(&race, reverse);
    CHECK_INT(race.posted, ==, race.each);
    CHECK_INT(race.refused, ==, (WRITERS - 1) * race.each);
    CHECK_INT(race.other, ==, 0);
    CHECK_INT(book_balance(race.ledgers[0], "hot").out, ==, 0);
    CHECK_INT(book_balance(race.ledgers[0], "hot").in, ==, 0);
    close_race(&race);
}
