/* Many threads and handles on one book: rules hold, each transaction is settled once, and every
 * concurrent read of all accounts sees money conserved. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/support/book.h"
#include "tests/support/early_clock.h"

#define WRITERS 32

struct race {
    truce_store *store;
    truce_ledger *ledgers[2]; /* handles without shared state */
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

TEST(conserves_money_in_every_read_of_all_accounts)
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

TEST(settles_or_voids_once_and_reverses_once)
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

/* ---- past its time -------------------------------------------------------------------------- */

#define PENDINGS 8

/* Settling, voiding and the recovery pass, close to the expiry of all transactions. */
static void *end_pending(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    truce_sweep_report report;
    bson_error_t error = {0};
    char id[40], of[20];

    for (int i = 0; i < PENDINGS; i++) {
        truce_status status;

        snprintf(id, sizeof id, "e%d.%d", racer->number, i);
        snprintf(of, sizeof of, "p%d", (i + racer->number) % PENDINGS);
        if (racer->number % 4 == 0)
            CHECK_OK(truce_sweep(race->store, NULL, &report, &error), error);
        status =
            book_resolve(race->ledgers[racer->number % 2], NULL, id,
                         racer->number % 2 ? TRUCE_LEDGER_SETTLE : TRUCE_LEDGER_VOID, of, &error);
        count(race, status == TRUCE_EXPIRED ? TRUCE_DUPLICATE : status, TRUCE_DUPLICATE);
    }
    return NULL;
}

TEST(settles_or_frees_a_transaction_at_its_expiry)
{
    struct race race;
    truce_sweep_report report;
    truce_ledger_entry entries[] = {{"hot", -10, NULL}, {"bank", 10, NULL}};
    int64_t expires_ms = truce__clock_wall_ms() + 300;
    bson_error_t error = {0};

    open_race(&race, 1000);
    early_clock_use(); /* However long it takes, they have not expired. */
    for (int i = 0; i < PENDINGS; i++) {
        char name[20];
        bson_value_t id;

        snprintf(name, sizeof name, "p%d", i);
        id = text_id(name);
        CHECK_OK(truce_ledger_post(race.ledgers[0], NULL,
                                   &(truce_ledger_transaction){.id = &id,
                                                               .kind = TRUCE_LEDGER_PENDING,
                                                               .entries = entries,
                                                               .count = 2,
                                                               .expires_ms = expires_ms},
                                   NULL, &error),
                 error);
    }
    truce__environment_use(NULL);
    while (truce__clock_wall_ms() < expires_ms - 20)
        truce__clock_sleep_ms(10);
    run_race(&race, end_pending);
    CHECK_INT(race.other, ==, 0);
    CHECK(race.posted <= PENDINGS);
    while (truce__clock_wall_ms() <= expires_ms)
        truce__clock_sleep_ms(10);
    CHECK_OK(truce_sweep(race.store, NULL, &report, &error), error);
    CHECK_INT(book_count(race.store, "{'resolves': {'$exists': true}}"), ==, PENDINGS);
    CHECK_INT(book_balance(race.ledgers[1], "hot").out, ==, 0);
    CHECK_INT(book_balance(race.ledgers[1], "bank").in, ==, 0);
    CHECK_INT(book_balance(race.ledgers[1], "hot").balance, ==,
              1000 - 10 * book_count(race.store, "{'kind': 'settle'}"));
    close_race(&race);
}

/* ---- accounts closed concurrently ------------------------------------------------------------ */

static void *close_or_pay(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    truce_ledger *ledger = race->ledgers[racer->number % 2];
    bson_error_t error = {0};
    char id[40];

    for (int i = 0; i < race->each; i++) {
        truce_ledger_account rules = {.account = "hot", .closed = i % 2 == 0};

        snprintf(id, sizeof id, "c%d.%d", racer->number, i);
        if (racer->number < 2)
            CHECK_OK(truce_ledger_rules(ledger, NULL, &rules, &error), error);
        else
            count(race, book_transfer(ledger, id, "hot", "bank", 1, &error), TRUCE_INVALID);
    }
    return NULL;
}

struct closing {
    bool closed;
    int paid, paid_closed;
};

static bool look_at_line(const truce_ledger_line *line, void *arg)
{
    struct closing *closing = arg;
    bson_iter_t iter, found;

    if (bson_iter_init(&iter, line->document) &&
        bson_iter_find_descendant(&iter, "changes.0.set", &found))
        closing->closed = bson_iter_init(&iter, line->document) &&
                          bson_iter_find_descendant(&iter, "changes.0.set.closed", &found);
    else if (line->value < 0) {
        closing->paid++;
        closing->paid_closed += closing->closed;
    }
    return true;
}

TEST(posts_nothing_to_a_concurrently_closed_account)
{
    struct race race;
    struct closing closing = {.closed = false};
    bson_error_t error = {0};

    open_race(&race, 1000);
    race.each = (int)test_scale("TRUCE_LEDGER_EACH", 6);
    run_race(&race, close_or_pay);
    CHECK_INT(race.other, ==, 0);
    CHECK_OK(truce_ledger_statement(race.ledgers[0], "hot", NULL, look_at_line, &closing, &error),
             error);
    CHECK_INT(closing.paid_closed, ==, 0);
    CHECK_INT(closing.paid, ==, race.posted);
    close_race(&race);
}

/* ---- in commits ----------------------------------------------------------------------------- */

struct order {
    truce_ledger *ledger;
    const char *id;
};

static truce_status buy(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    bson_value_t stock = text_id("stock");
    truce_ledger_result result;
    truce_status status = book_post(order->ledger, commit, order->id, TRUCE_LEDGER_TRANSFER, "hot",
                                    "bank", 3, &result, error);

    if (!status && !result.exists)
        status = truce_commit_update(commit, "orders", &stock, NULL, update, error);
    bson_destroy(update);
    return status;
}

/* Posts every second one alone, so that commits and bulks conflict; each twice. */
static void *buy_twice(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    bson_error_t error = {0};
    char id[40];

    for (int i = 0; i < 4; i++) {
        struct order order = {race->ledgers[racer->number % 2], id};

        snprintf(id, sizeof id, "b%d.%d", racer->number, i / 2);
        if (racer->number % 4 == 0)
            count(race, truce_transact(race->store, buy, &order, NULL, &error), TRUCE_LIMIT);
        else
            count(race, book_transfer(order.ledger, id, "hot", "bank", 3, &error), TRUCE_LIMIT);
    }
    return NULL;
}

TEST(commits_and_posts_that_meet_pay_once_and_never_too_much)
{
    bson_t *stock = test_bson("{'_id': 'stock', 'n': {'$numberLong': '0'}}"), found;
    bson_t *filter = test_bson("{'_id': 'stock'}");
    struct race race;
    bson_iter_t iter;
    bson_error_t error = {0};
    int64_t bought = -1;

    open_race(&race, 100);
    CHECK_OK(truce_insert(race.store, "orders", stock, NULL, &error), error);
    run_race(&race, buy_twice);
    CHECK_INT(race.other, ==, 0);
    CHECK_INT(book_count(race.store, "{'kind': 'transfer', '_id': {'$ne': 'seed'}}"), ==, 33);
    CHECK_INT(book_balance(race.ledgers[0], "hot").balance, ==, 1);
    CHECK_OK(truce_find_one(race.store, "orders", filter, NULL, &found, &error), error);
    if (bson_iter_init_find(&iter, &found, "n"))
        bought = bson_iter_as_int64(&iter);
    /* those of the racers 0, 4, 8 ... */
    CHECK_INT(bought, ==,
              book_count(race.store, "{'_id': {'$regex': '^b(0|4|8|12|16|20|24|28)[.]'}}"));
    bson_destroy(&found);
    bson_destroy(filter);
    bson_destroy(stock);
    close_race(&race);
}
