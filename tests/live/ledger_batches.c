/* Many threads with one handle: bulks, single posts, rules and settlements go into one batch, or
 * run concurrently, and each has its own answer. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/support/book.h"
#include "tests/support/early_clock.h"

#define THREADS  24
#define ACCOUNTS 12
#define BULK     9

struct crowd {
    truce_store *store;
    truce_ledger *ledger;
    _Atomic long posted;
    int each;
};

struct member {
    struct crowd *crowd;
    int number, turn;
    pthread_t thread;
};

static const char *account_name(int number, char name[20])
{
    snprintf(name, 20, "c:%d", number % ACCOUNTS);
    return name;
}

static void post_bulk(struct member *member)
{
    truce_ledger_transaction transactions[BULK];
    truce_ledger_entry entries[BULK][2];
    truce_ledger_result results[BULK];
    char names[BULK][3][20];
    bson_value_t ids[BULK];
    bson_error_t error = {0};

    for (int i = 0; i < BULK; i++) {
        snprintf(names[i][2], sizeof names[i][2], "b%d.%d.%d", member->number, member->turn, i);
        ids[i] = text_id(names[i][2]);
        entries[i][0] = (truce_ledger_entry){account_name(member->number + i, names[i][0]), -1};
        entries[i][1] =
            (truce_ledger_entry){account_name(member->number + 2 * i + 1, names[i][1]), 1};
        /* every third is more than there is */
        if (i % 3 == 2)
            entries[i][0].value = -(entries[i][1].value = 1000000);
        transactions[i] =
            (truce_ledger_transaction){.id = &ids[i], .entries = entries[i], .count = 2};
    }
    CHECK_OK(truce_ledger_post_many(member->crowd->ledger, transactions, BULK, results, &error),
             error);
    for (int i = 0; i < BULK; i++) {
        bool same = !strcmp(entries[i][0].account, entries[i][1].account);

        CHECK_STATUS(i % 3 == 2 && !same ? TRUCE_LIMIT : TRUCE_OK, results[i].status,
                     results[i].error);
        member->crowd->posted += !results[i].status;
    }
}

static void post_single(struct member *member)
{
    bson_error_t error = {0};
    char id[40], from[20], to[20];

    snprintf(id, sizeof id, "s%d.%d", member->number, member->turn);
    CHECK_OK(book_transfer(member->crowd->ledger, id, account_name(member->number, from),
                           account_name(member->number + member->turn % 4 + 1, to), 1, &error),
             error);
    member->crowd->posted++;
}

static void post_pending(struct member *member)
{
    bson_error_t error = {0};
    char id[40], then[40], from[20], to[20];

    snprintf(id, sizeof id, "p%d.%d", member->number, member->turn);
    snprintf(then, sizeof then, "e%d.%d", member->number, member->turn);
    CHECK_OK(book_post(member->crowd->ledger, NULL, id, TRUCE_LEDGER_PENDING,
                       account_name(member->number, from), account_name(member->number + 1, to), 1,
                       NULL, &error),
             error);
    CHECK_OK(book_resolve(member->crowd->ledger, NULL, then,
                          member->turn % 2 ? TRUCE_LEDGER_SETTLE : TRUCE_LEDGER_VOID, id, &error),
             error);
    member->crowd->posted += 2;
}

static void open_own(struct member *member)
{
    bson_error_t error = {0};
    char name[40];

    snprintf(name, sizeof name, "own:%d.%d", member->number, member->turn);
    CHECK_OK(book_open(member->crowd->ledger, name, 0, &error), error);
    member->crowd->posted++;
}

static void *work(void *arg)
{
    static void (*const all[])(struct member *) = {post_bulk, post_single, post_pending, open_own};
    struct member *member = arg;

    for (member->turn = 0; member->turn < member->crowd->each; member->turn++)
        all[(member->number + member->turn) % 4](member);
    return NULL;
}

static void run(const char *uri)
{
    static struct member members[THREADS];
    struct crowd crowd = {.each = (int)test_scale("TRUCE_LEDGER_EACH", 6)};
    bson_error_t error = {0};
    char name[20], id[20];

    REQUIRE(CHECK_OK(
        truce_store_open(uri, &(truce_store_options){.relaxed = true}, &crowd.store, &error),
        error));
    crowd.ledger = book_ledger(crowd.store);
    CHECK_OK(book_open(crowd.ledger, "bank", INT64_MIN, &error), error);
    for (int i = 0; i < ACCOUNTS; i++) {
        snprintf(id, sizeof id, "seed %d", i);
        CHECK_OK(book_open(crowd.ledger, account_name(i, name), 0, &error), error);
        CHECK_OK(book_transfer(crowd.ledger, id, "bank", name, 100000, &error), error);
    }
    for (int i = 0; i < THREADS; i++) {
        members[i] = (struct member){.crowd = &crowd, .number = i};
        pthread_create(&members[i].thread, NULL, work, &members[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(members[i].thread, NULL);
    CHECK_INT(book_count(crowd.store, "{}"), ==, 1 + 2 * ACCOUNTS + crowd.posted);
    CHECK_INT(book_count(crowd.store, "{'open': {'$exists': true}}"), ==, 0);
    BOOK_CHECK(crowd.ledger);
    truce_ledger_free(crowd.ledger);
    truce_store_close(crowd.store);
}

TEST(returns_each_thread_the_result_of_its_own_post)
{
    char uri[400];

    run("memory:");
    snprintf(uri, sizeof uri, "file:%s/together.truce", test_directory());
    run(uri);
}

/* ---- alone, after many ---------------------------------------------------------------------- */

struct poster {
    truce_ledger *ledger;
    int round, number;
};

static void *post_some(void *arg)
{
    const struct poster *poster = arg;

    for (int i = 0; i < 4; i++) {
        bson_error_t error = {0};
        char id[40];

        snprintf(id, sizeof id, "%d.%d.%d", poster->round, poster->number, i);
        CHECK_OK(book_transfer(poster->ledger, id, "bank", "a", 1, &error), error);
    }
    return NULL;
}

TEST(does_not_delay_a_single_post_after_many)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/alone.truce", test_directory());
    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    ledger = book_ledger(store);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "a", 0, &error), error);
    for (int round = 0; round < 6; round++) {
        struct poster posters[9];
        pthread_t threads[8];

        for (int i = 0; i < 9; i++)
            posters[i] = (struct poster){ledger, round, i};
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, post_some, &posters[i]);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        post_some(&posters[8]);
    }
    CHECK_INT(book_balance(ledger, "a").balance, ==, 6 * 9 * 4);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- reversing a settled transaction at its expiry ------------------------------------------- */

#define PENDINGS 8

struct ending {
    truce_store *store;
    truce_ledger *ledgers[2];
    _Atomic long settled, voided, reversed, late;
    _Atomic int next;
};

static void count(truce_status status, _Atomic long *done, struct ending *ending)
{
    if (!status)
        ++*done;
    else if (status == TRUCE_DUPLICATE || status == TRUCE_EXPIRED || status == TRUCE_NOT_FOUND)
        ++ending->late;
    else
        test_fail(__FILE__, __LINE__, "%s", truce_status_name(status));
}

/* Operations on a pending transaction: settle it as "sN", void it, or expire it by a recovery pass;
 * on "sN": reverse it. */
static void *end_all(void *arg)
{
    struct ending *ending = arg;
    int number = ending->next++;
    truce_ledger *ledger = ending->ledgers[number % 2];
    truce_sweep_report report;
    bson_error_t error = {0};

    for (int i = 0; i < PENDINGS; i++) {
        char pending[20], settled[20], id[40];

        snprintf(pending, sizeof pending, "p%d", i);
        snprintf(settled, sizeof settled, "s%d", i);
        snprintf(id, sizeof id, "x%d.%d", number, i);
        switch (number / 2 % 4) {
        case 0:
            count(book_resolve(ledger, NULL, settled, TRUCE_LEDGER_SETTLE, pending, &error),
                  &ending->settled, ending);
            break;
        case 1:
            count(book_resolve(ledger, NULL, id, TRUCE_LEDGER_VOID, pending, &error),
                  &ending->voided, ending);
            break;
        case 2:
            count(book_resolve(ledger, NULL, id, TRUCE_LEDGER_REVERSE, settled, &error),
                  &ending->reversed, ending);
            break;
        default:
            CHECK_OK(truce_sweep(ending->store, NULL, &report, &error), error);
        }
    }
    return NULL;
}

static void make_pendings(struct ending *ending, int64_t expires_ms)
{
    truce_ledger_entry entries[] = {{"hot", -10, NULL}, {"bank", 10, NULL}};
    bson_error_t error = {0};
    char name[20];

    early_clock_use(); /* However long it takes, they have not expired. */
    for (int i = 0; i < PENDINGS; i++) {
        bson_value_t id = text_id(name);

        snprintf(name, sizeof name, "p%d", i);
        id = text_id(name);
        CHECK_OK(truce_ledger_post(ending->ledgers[0], NULL,
                                   &(truce_ledger_transaction){.id = &id,
                                                               .kind = TRUCE_LEDGER_PENDING,
                                                               .entries = entries,
                                                               .count = 2,
                                                               .expires_ms = expires_ms},
                                   NULL, &error),
                 error);
    }
    truce__environment_use(NULL);
}

TEST(reverses_once_a_transaction_that_settled_at_its_expiry)
{
    struct ending ending = {0};
    pthread_t threads[32];
    truce_sweep_report report;
    int64_t expires_ms = truce__clock_wall_ms() + 150, reversed, settled;
    bson_error_t error = {0};
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/ending.truce", test_directory());
    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &ending.store, &error),
             error);
    for (int i = 0; i < 2; i++)
        ending.ledgers[i] = book_ledger(ending.store);
    CHECK_OK(book_open(ending.ledgers[0], "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ending.ledgers[0], "hot", 0, &error), error);
    CHECK_OK(book_transfer(ending.ledgers[0], "seed", "bank", "hot", 1000, &error), error);
    make_pendings(&ending, expires_ms);
    while (truce__clock_wall_ms() < expires_ms - 20)
        truce__clock_sleep_ms(5);
    for (int i = 0; i < 32; i++)
        pthread_create(&threads[i], NULL, end_all, &ending);
    for (int i = 0; i < 32; i++)
        pthread_join(threads[i], NULL);
    while (truce__clock_wall_ms() <= expires_ms)
        truce__clock_sleep_ms(5);
    CHECK_OK(truce_sweep(ending.store, NULL, &report, &error), error);
    settled = book_count(ending.store, "{'kind': 'settle'}");
    reversed = book_count(ending.store, "{'kind': 'reverse'}");
    CHECK_INT(ending.reversed, ==, reversed);
    CHECK(reversed <= settled);
    CHECK_INT(book_count(ending.store, "{'resolves': {'$exists': true}}"), ==, PENDINGS + reversed);
    CHECK_INT(book_balance(ending.ledgers[1], "hot").out, ==, 0);
    CHECK_INT(book_balance(ending.ledgers[1], "hot").balance, ==, 1000 - 10 * (settled - reversed));
    for (int i = 0; i < 2; i++) {
        BOOK_CHECK(ending.ledgers[i]);
        truce_ledger_free(ending.ledgers[i]);
    }
    truce_store_close(ending.store);
}
