/*
 * Measures a growing ledger: one account with many entries, and many accounts. For each size it
 * measures posting, the balance now and at a value date, and the last page of a statement. It also
 * measures all balances, a seal, and the verification. Each line has the process's peak memory.
 *
 *     ledger_growth [SIZE...]       10000 1000000
 *
 * The program fails if a balance is wrong, or if a call takes memory for every account. It also
 * fails if a balance of the largest size reads many more documents than one of the smallest.
 */
#include <inttypes.h>
#include <string.h>

#include "base/histogram.h"
#include "bench/bench.h"
#include "bench/usage.h"
#include "truce/truce.h"

#define BATCH  1000
#define READS  2000
#define DAY_MS INT64_C(86400000)
/* The first value date. Entry n has the date FIRST + n % DAYS days. */
#define FIRST_MS INT64_C(1577836800000)
#define DAYS     1500
/* The maximum number of bytes that a call over all accounts may allocate. */
#define MEMORY_MAX INT64_C(200000000)

struct ledger_growth {
    truce_store *store;
    truce_ledger *ledger;
    int64_t size;
    int64_t posted;
    int64_t seen, sum;
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns a field of /proc/self/status in bytes: VmRSS, or VmHWM, the peak. */
static int64_t memory_of(const char *field)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[128];
    int64_t kilobytes = 0;

    BENCH_CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, field, strlen(field)))
            kilobytes = strtoll(line + strlen(field) + 1, NULL, 10);
    fclose(file);
    return kilobytes * 1024;
}

/* Resets the peak to the current memory. */
static void memory_begin_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    BENCH_CHECK(file != NULL);
    fputs("5", file);
    fclose(file);
}

/* ---- filling --------------------------------------------------------------------------------- */

static void growth_open(struct ledger_growth *growth, const char *name)
{
    const truce_ledger_account account = {.account = name, .currency = "EUR"};
    bson_error_t error;

    BENCH_MUST(truce_ledger_open(growth->ledger, NULL, &account, &error), error);
}

static void growth_begin(struct ledger_growth *growth, const char *collection)
{
    const truce_ledger_options options = {.collection = collection};
    bson_error_t error;

    growth->ledger = truce_ledger_new(growth->store, &options);
    growth->posted = 0;
    BENCH_MUST(truce_ledger_currency(growth->ledger, "EUR", 2, &error), error);
}

/* Posts BATCH transactions of 1 cent from `from` to the account that `to` names for each. */
static void growth_post(struct ledger_growth *growth, const char *from,
                        void (*to)(int64_t number, char name[32]))
{
    truce_ledger_transaction *all = bson_malloc0(BATCH * sizeof *all);
    truce_ledger_result *results = bson_malloc0(BATCH * sizeof *results);
    truce_ledger_entry(*entries)[2] = bson_malloc0(BATCH * sizeof *entries);
    bson_value_t *ids = bson_malloc0(BATCH * sizeof *ids);
    char(*names)[32] = bson_malloc(BATCH * sizeof *names);
    bson_error_t error;

    for (int i = 0; i < BATCH; i++) {
        int64_t number = growth->posted++;

        to(number, names[i]);
        entries[i][0] = (truce_ledger_entry){.account = from, .value = -1};
        entries[i][1] = (truce_ledger_entry){.account = names[i], .value = 1};
        ids[i].value_type = BSON_TYPE_INT64;
        ids[i].value.v_int64 = number;
        all[i] = (truce_ledger_transaction){.id = &ids[i],
                                            .entries = entries[i],
                                            .count = 2,
                                            .effective_ms = FIRST_MS + number % DAYS * DAY_MS};
    }
    BENCH_MUST(truce_ledger_post_many(growth->ledger, all, BATCH, results, &error), error);
    for (int i = 0; i < BATCH; i++)
        BENCH_CHECK(!results[i].status && !results[i].exists);
    bson_free(names);
    bson_free(ids);
    bson_free(entries);
    bson_free(results);
    bson_free(all);
}

static void name_shop(int64_t number, char name[32])
{
    snprintf(name, 32, "shops:%d", (int)(number % 16));
}

static void name_customer(int64_t number, char name[32])
{
    snprintf(name, 32, "customers:%08" PRId64, number);
}

/* ---- measurements ---------------------------------------------------------------------------- */

typedef void growth_call(struct ledger_growth *growth);

/* Runs the call `times` times, and returns the median in microseconds. */
static double growth_measure(struct ledger_growth *growth, const char *what, growth_call *call,
                             int times)
{
    struct histogram timed = {0};
    int64_t before, taken;

    memory_begin_peak();
    before = memory_of("VmHWM:");
    for (int i = 0; i < times; i++) {
        uint64_t began_ns = bench_now_ns();

        call(growth);
        truce__histogram_add(&timed, bench_now_ns() - began_ns);
    }
    taken = memory_of("VmHWM:") - before;
    printf("%9" PRId64 "  %-32s p50 %11.0f us  p99 %11.0f us  memory %+5" PRId64 " MB\n",
           growth->size, what, truce__histogram_us(&timed, 0.5), truce__histogram_us(&timed, 0.99),
           taken / 1000000);
    fflush(stdout);
    BENCH_CHECK(taken < MEMORY_MAX);
    return truce__histogram_us(&timed, 0.5);
}

static void growth_balance(struct ledger_growth *growth)
{
    truce_ledger_balance balance;
    bson_error_t error;

    BENCH_MUST(truce_ledger_balance_of(growth->ledger, "bank", NULL, &balance, &error), error);
    BENCH_CHECK(balance.balance == -growth->posted);
}

/* Returns the number of transactions whose value date is at most `day`. */
static int64_t growth_until(const struct ledger_growth *growth, int64_t day)
{
    int64_t rest = growth->posted % DAYS;

    return growth->posted / DAYS * (day + 1) + (rest < day + 1 ? rest : day + 1);
}

static void growth_at_date(struct ledger_growth *growth)
{
    int64_t day = (int64_t)bench_random(DAYS);
    const truce_ledger_moment moment = {.effective_ms = FIRST_MS + day * DAY_MS};
    truce_ledger_balance balance;
    bson_error_t error;

    BENCH_MUST(truce_ledger_balance_of(growth->ledger, "bank", &moment, &balance, &error), error);
    BENCH_CHECK(balance.balance == -growth_until(growth, day));
}

static bool growth_line(const truce_ledger_line *line, void *arg)
{
    struct ledger_growth *growth = arg;

    growth->seen++;
    growth->sum = line->balance;
    return true;
}

static void growth_last_page(struct ledger_growth *growth)
{
    /* The opening has no number among the postings, so the page has the last 50 of them. */
    const truce_ledger_page page = {.after = growth->posted - 50, .limit = 100};
    bson_error_t error;

    growth->seen = growth->sum = 0;
    BENCH_MUST(truce_ledger_statement(growth->ledger, "bank", &page, growth_line, growth, &error),
               error);
    BENCH_CHECK(growth->seen >= 50 && growth->sum == -growth->posted);
}

static bool growth_add(const truce_ledger_account *account, const truce_ledger_balance *balance,
                       void *arg)
{
    struct ledger_growth *growth = arg;

    (void)account;
    growth->seen++;
    growth->sum += balance->balance;
    return true;
}

static void growth_balances(struct ledger_growth *growth)
{
    bson_error_t error;

    growth->seen = growth->sum = 0;
    BENCH_MUST(truce_ledger_balances(growth->ledger, NULL, growth_add, growth, &error), error);
    BENCH_CHECK(growth->seen >= growth->size && growth->sum == 0);
}

static bool growth_part(const bson_t *part, void *arg)
{
    (void)part;
    ((struct ledger_growth *)arg)->seen++;
    return true;
}

static void growth_seal(struct ledger_growth *growth)
{
    bson_error_t error;

    growth->seen = 0;
    BENCH_MUST(truce_ledger_seal(growth->ledger, growth_part, growth, &error), error);
    BENCH_CHECK(growth->seen >= growth->size / 1000);
}

static void growth_verify(struct ledger_growth *growth)
{
    truce_ledger_report report;
    bson_error_t error;

    BENCH_MUST(truce_ledger_verify(growth->ledger, NULL, NULL, NULL, NULL, &report, &error), error);
    BENCH_CHECK(!report.findings && report.entries >= growth->posted);
}

/* ---- one size -------------------------------------------------------------------------------- */

/* Measures a book whose account `bank` has `size` entries. Returns the median time of a balance at
 * a date. */
static double growth_entries(struct ledger_growth *growth)
{
    double began = bench_now(), took;
    char name[32];

    growth_begin(growth, "entries");
    growth_open(growth, "bank");
    for (int i = 0; i < 16; i++) {
        name_shop(i, name);
        growth_open(growth, name);
    }
    while (growth->posted < growth->size)
        growth_post(growth, "bank", name_shop);
    printf("%9" PRId64 "  entries of one account, posted in %.1f s\n", growth->size,
           bench_now() - began);
    growth_measure(growth, "balance now", growth_balance, READS);
    took = growth_measure(growth, "balance at a value date", growth_at_date, READS);
    growth_measure(growth, "last page of a statement", growth_last_page, READS / 10);
    growth_measure(growth, "verify", growth_verify, 1);
    truce_ledger_free(growth->ledger);
    return took;
}

static void growth_accounts(struct ledger_growth *growth)
{
    double began = bench_now();
    char name[32];

    growth_begin(growth, "accounts");
    growth_open(growth, "bank");
    for (int64_t i = 0; i < growth->size; i++) {
        name_customer(i, name);
        growth_open(growth, name);
    }
    while (growth->posted < growth->size / 10)
        growth_post(growth, "bank", name_customer);
    printf("%9" PRId64 "  accounts, opened in %.1f s\n", growth->size, bench_now() - began);
    growth_measure(growth, "balances of all accounts", growth_balances, 1);
    growth_measure(growth, "seal", growth_seal, 1);
    growth_measure(growth, "verify", growth_verify, 1);
    truce_ledger_free(growth->ledger);
}

static double one_size(int64_t size)
{
    const truce_store_options options = {.relaxed = true};
    struct ledger_growth growth = {.size = size};
    char *path = bson_strdup_printf("%s/ledger-%" PRId64 ".truce", bench_directory(), size);
    char *uri = bson_strdup_printf("file:%s", path);
    bson_error_t error;
    double took;

    BENCH_MUST(truce_store_open(uri, &options, &growth.store, &error), error);
    took = growth_entries(&growth);
    growth_accounts(&growth);
    truce_store_close(growth.store);
    bson_free(uri);
    bson_free(path);
    return took;
}

int main(int count, char **words)
{
    static const int64_t sizes[] = {10000, 1000000};
    double least = 0, took;

    for (size_t i = 0; count < 2 && i < sizeof sizes / sizeof *sizes; i++) {
        took = one_size(sizes[i]);
        least = least > 0 ? least : took;
        BENCH_CHECK(took < least * 20);
    }
    for (int i = 1; i < count; i++) {
        BENCH_CHECK(atoll(words[i]) >= BATCH);
        one_size(atoll(words[i]));
    }
    return 0;
}
