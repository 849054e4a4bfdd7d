/*
 * truce demo bank: people send each other money from several processes, which are killed with
 * SIGKILL.
 *
 * In the naive code, a process reads two balances and writes both. Two concurrent transfers
 * overwrite each other, and a process that is killed in between has withdrawn money and not
 * deposited it. With truce, a transfer is one transaction of a ledger. No money enters or leaves,
 * so the sum must not change.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define PEOPLE 8
/* The initial balance of a person in cents: 100.00. */
#define EACH          INT64_C(10000)
#define TELLERS       4
#define KILL_EVERY_MS 10

enum way { USUAL, TRUCE, WAYS };
static const char *const way_names[] = {"usual way", "truce"};

struct bank {
    struct cli *cli;
    struct demo_stage stage;
    int64_t duration_ms;
    pid_t children[TELLERS];
};

struct books {
    /* The number of kills and of transfers; the sum of the balances of all people, and the number
     * of negative ones; the number of findings of the check. */
    int64_t kills, transfers, money, below, findings;
};

static const char *bank_name_of(int64_t person, char name[20])
{
    snprintf(name, 20, "people:%d", (int)person);
    return name;
}

/* ---- one transfer ---------------------------------------------------------------------------- */

static truce_status read_balance(truce_store *store, const char *name, int64_t *balance,
                                 bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)), found;
    truce_status status = truce_find_one(store, "people", filter, NULL, &found, error);
    bson_iter_t iter;

    if (!status && bson_iter_init_find(&iter, &found, "balance"))
        *balance = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

static truce_status write_balance(truce_store *store, const char *name, int64_t balance,
                                  bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)),
           *update = BCON_NEW("$set", "{", "balance", BCON_INT64(balance), "}", "$inc", "{",
                              "times", BCON_INT32(1), "}");
    truce_write_options options = {.relaxed = true};
    truce_status status = truce_update(store, "people", filter, update, &options, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static truce_status send_usual(truce_store *store, const char *from, const char *to, int64_t amount,
                               bson_error_t *error)
{
    int64_t there = 0, here = 0;
    truce_status status = read_balance(store, from, &here, error);

    if (!status)
        status = read_balance(store, to, &there, error);
    if (status || here < amount)
        return status;
    status = write_balance(store, from, here - amount, error);
    return status ? status : write_balance(store, to, there + amount, error);
}

/* Posts a transfer. A balance that is too low refuses it, which is not a failure. */
static truce_status send_truce(truce_ledger *ledger, const char *from, const char *to,
                               int64_t amount, bson_error_t *error)
{
    bson_oid_t oid;
    bson_value_t id;
    truce_ledger_entry entries[] = {{from, -amount, NULL}, {to, amount, NULL}};
    truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 2};
    truce_status status;

    bson_oid_init(&oid, NULL);
    id = (bson_value_t){.value_type = BSON_TYPE_OID, .value.v_oid = oid};
    status = truce_ledger_post(ledger, NULL, &transaction, NULL, error);
    /* TRUCE_LIMIT means that the balance is too low, which is a valid result. */
    return status == TRUCE_LIMIT ? TRUCE_OK : status;
}

_Noreturn static void bank_send_all(const struct bank *bank, enum way way)
{
    truce_store *store = NULL;
    truce_ledger *ledger = NULL;
    struct random random;
    bson_error_t error;
    truce_status status = truce_store_open(bank->stage.uri, NULL, &store, &error);

    truce__random_seed(&random, truce__random_entropy());
    if (!status)
        ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "book"});
    while (!status) {
        char from[20], to[20];
        int64_t a = (int64_t)truce__random_below(&random, PEOPLE),
                b = (a + 1 + (int64_t)truce__random_below(&random, PEOPLE - 1)) % PEOPLE,
                amount = 1 + (int64_t)truce__random_below(&random, 3000);

        status =
            way == USUAL
                ? send_usual(store, bank_name_of(a, from), bank_name_of(b, to), amount, &error)
                : send_truce(ledger, bank_name_of(a, from), bank_name_of(b, to), amount, &error);
    }
    fprintf(stderr, "truce: %s: %s\n", way_names[way], error.message);
    _exit(CLI_FAILED);
}

/* ---- sums at the beginning and at the end ---------------------------------------------------- */

static truce_status open_usual(truce_store *store, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int64_t i = 0; !status && i < PEOPLE; i++) {
        char name[20];
        bson_t *person =
            BCON_NEW("_id", BCON_UTF8(bank_name_of(i, name)), "balance", BCON_INT64(EACH));

        status = truce_insert(store, "people", person, NULL, error);
        bson_destroy(person);
    }
    return status;
}

/* Opens the ledger and the accounts, each with EACH from the mint. */
static truce_status open_truce(truce_store *store, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "book"});
    truce_ledger_account account = {.account = "external:mint", .currency = "EUR"};
    truce_status status = truce_ledger_currency(ledger, "EUR", 2, error);

    if (!status)
        status = truce_ledger_open(ledger, NULL, &account, error);
    account.has_min = true; /* The minimum is 0: no overdraft. */
    for (int64_t i = 0; !status && i < PEOPLE; i++) {
        char name[20];

        account.account = bank_name_of(i, name);
        status = truce_ledger_open(ledger, NULL, &account, error);
        if (!status)
            status = send_truce(ledger, "external:mint", name, EACH, error);
    }
    truce_ledger_free(ledger);
    return status;
}

/* Sums up the balances. Each transfer has incremented `times` of both people, so the sum of them
 * counts it twice. */
static truce_status count_usual(truce_store *store, struct books *books, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *person = NULL;
    bson_iter_t iter;
    truce_status status = truce_find(store, "people", NULL, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &person, error);
        if (status || !person)
            break;
        if (bson_iter_init_find(&iter, person, "balance")) {
            books->money += bson_iter_as_int64(&iter);
            books->below += bson_iter_as_int64(&iter) < 0;
        }
        if (bson_iter_init_find(&iter, person, "times"))
            books->transfers += bson_iter_as_int64(&iter);
    }
    books->transfers /= 2;
    truce_cursor_close(cursor);
    return status;
}

static bool add_balance(const truce_ledger_account *account, const truce_ledger_balance *balance,
                        void *arg)
{
    struct books *books = arg;

    if (strcmp(account->account, "external:mint") != 0) {
        books->money += balance->balance;
        books->below += balance->balance < 0;
    }
    books->transfers += balance->number - 1;
    return true;
}

static truce_status count_truce(truce_store *store, struct books *books, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "book"});
    truce_ledger_report report = {0};
    truce_status status = truce_ledger_balances(ledger, "people", add_balance, books, error);

    if (!status)
        status = truce_ledger_verify(ledger, NULL, NULL, NULL, NULL, &report, error);
    /* Subtracts the transactions that opened the accounts. */
    books->transfers = (books->transfers - PEOPLE) / 2;
    books->findings = report.findings;
    truce_ledger_free(ledger);
    return status;
}

static truce_status with_store(const struct bank *bank, enum way way, struct books *books,
                               bson_error_t *error)
{
    truce_store *store = NULL;
    truce_status status = truce_store_open(bank->stage.uri, NULL, &store, error);

    if (!status && !books)
        status = way == USUAL ? open_usual(store, error) : open_truce(store, error);
    else if (!status)
        status = way == USUAL ? count_usual(store, books, error) : count_truce(store, books, error);
    truce_store_close(store);
    return status;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void bank_start(struct bank *bank, int teller, enum way way)
{
    bank->children[teller] = pool_fork();
    if (!bank->children[teller])
        bank_send_all(bank, way);
}

/* Lets the tellers send money for the time of the demo, kills one after another, and reads the
 * books at the end. */
static truce_status bank_play(struct bank *bank, enum way way, struct books *books,
                              bson_error_t *error)
{
    int64_t end_ns = truce__clock_monotonic_ns() + bank->duration_ms * INT64_C(1000000);
    truce_status status;

    *books = (struct books){0};
    status = demo_stage_clear(&bank->stage, error);
    if (!status)
        status = with_store(bank, way, NULL, error);
    if (status)
        return status;
    for (int i = 0; i < TELLERS; i++)
        bank_start(bank, i, way);
    while (truce__clock_monotonic_ns() < end_ns) {
        /* The first process is never killed. */
        int teller = 1 + (int)(books->kills++ % (TELLERS - 1));
        ;

        truce__clock_sleep_ms(KILL_EVERY_MS);
        pool_end(&bank->children[teller]);
        bank_start(bank, teller, way);
    }
    for (int i = 0; i < TELLERS; i++)
        pool_end(&bank->children[i]);
    return with_store(bank, way, books, error);
}

static bool bank_right(const struct books *books)
{
    return books->money == PEOPLE * EACH && !books->below && !books->findings &&
           books->transfers > 0;
}

static void bank_print_json(const struct books *books)
{
    bson_t answer = BSON_INITIALIZER, part;
    char money[TRUCE_LEDGER_AMOUNT];

    BSON_APPEND_UTF8(&answer, "story", "bank");
    for (enum way way = USUAL; way < WAYS; way++) {
        bson_append_document_begin(&answer, way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "transfers", books[way].transfers);
        BSON_APPEND_INT64(&part, "kills", books[way].kills);
        BSON_APPEND_UTF8(&part, "before", truce_ledger_show(PEOPLE * EACH, 2, money));
        BSON_APPEND_UTF8(&part, "after", truce_ledger_show(books[way].money, 2, money));
        BSON_APPEND_INT64(&part, "below", books[way].below);
        BSON_APPEND_BOOL(&part, "right", bank_right(&books[way]));
        bson_append_document_end(&answer, &part);
    }
    cli_print(&answer, JSON_RELAXED);
    bson_destroy(&answer);
}

static void print_text(const struct books *books)
{
    char before[TRUCE_LEDGER_AMOUNT], after[TRUCE_LEDGER_AMOUNT];

    printf("bank         %d people send each other money, from %d processes that are killed\n",
           PEOPLE, TELLERS);
    for (enum way way = USUAL; way < WAYS; way++)
        printf("             %-14s %s before, %s after; %" PRId64 " transfers, %" PRId64
               " killed: %s\n",
               way_names[way], truce_ledger_show(PEOPLE * EACH, 2, before),
               truce_ledger_show(books[way].money, 2, after), books[way].transfers,
               books[way].kills, bank_right(&books[way]) ? "right" : "wrong");
}

static int bank_report(struct bank *bank)
{
    struct books books[WAYS] = {{0}};
    bson_error_t error;

    for (enum way way = USUAL; way < WAYS; way++) {
        truce_status status = bank_play(bank, way, &books[way], &error);

        if (status)
            return cli_error(bank->cli, way_names[way], status, &error);
    }
    if (bank->cli->json)
        bank_print_json(books);
    else
        print_text(books);
    return cli_output_end(bank_right(&books[TRUCE]) ? CLI_DONE : CLI_NO);
}

int demo_bank(struct cli *cli)
{
    struct bank bank = {.cli = cli};
    int code;

    if (!cli_duration(cli, "duration", 100, 600000, 3000, &bank.duration_ms))
        return CLI_USAGE;
    code = demo_stage_begin(&bank.stage, cli, "bank", NULL);
    if (!code) {
        code = bank_report(&bank);
        demo_stage_end(&bank.stage);
    }
    return code;
}
