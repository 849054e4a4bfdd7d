/*
 * Commits over two documents, durable, at 1, 8 and 32 callers: by the store's own transaction and
 * through the journal, beside the baseline's transaction; everybody on one hot document; an atomic
 * look at ten documents.
 *
 * A commit moves money between two accounts, and the sum of all is checked in the end.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "bench/baseline.h"
#include "bench/bench.h"
#include "bench/documents.h"
#include "truce/truce.h"

#define ACCOUNTS 20000
#define LOOKED   10

struct both {
    truce_store *store;
    struct baseline *baseline;
    truce_mechanism mechanism;
};

struct transfer {
    bson_value_t from, to;
};

static bson_value_t id_value(int64_t id)
{
    bson_value_t value = {.value_type = BSON_TYPE_INT64};

    value.value.v_int64 = id;
    return value;
}

static truce_status add(truce_commit *commit, const bson_value_t *id, int64_t amount,
                        bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, inc, document;
    truce_status status = truce_commit_read(commit, "accounts", id, &document, error);

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inc);
    BSON_APPEND_INT64(&inc, "counter", amount);
    bson_append_document_end(&update, &inc);
    if (!status)
        status = truce_commit_update(commit, "accounts", id, NULL, &update, error);
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

static truce_status move(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct transfer *transfer = arg;
    truce_status status = add(commit, &transfer->from, -1, error);

    return status ? status : add(commit, &transfer->to, 1, error);
}

static int64_t commit_two(struct both *both, int64_t from, int64_t to)
{
    const truce_commit_options options = {.mechanism = both->mechanism, .tries_max = 10000};
    struct transfer transfer = {id_value(from), id_value(to)};
    bson_error_t error;

    BENCH_MUST(truce_transact(both->store, move, &transfer, &options, &error), error);
    return 1;
}

static int64_t any_two(void *arg, int caller, int64_t turn)
{
    int64_t from = (int64_t)bench_random(ACCOUNTS);

    (void)caller;
    (void)turn;
    return commit_two(arg, from, (from + 1 + (int64_t)bench_random(ACCOUNTS - 1)) % ACCOUNTS);
}

/* every commit changes account 0 */
static int64_t hot(void *arg, int caller, int64_t turn)
{
    (void)caller;
    (void)turn;
    return commit_two(arg, 1 + (int64_t)bench_random(ACCOUNTS - 1), 0);
}

static int64_t any_two_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    int64_t from = (int64_t)bench_random(ACCOUNTS);

    (void)turn;
    baseline_move(both->baseline, caller, from,
                  (from + 1 + (int64_t)bench_random(ACCOUNTS - 1)) % ACCOUNTS);
    return 1;
}

static int64_t hot_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;

    (void)turn;
    baseline_move(both->baseline, caller, 1 + (int64_t)bench_random(ACCOUNTS - 1), 0);
    return 1;
}

static int64_t look_at_ten(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    truce_look looks[LOOKED] = {0};
    bson_value_t ids[LOOKED];
    bson_error_t error;

    (void)caller;
    (void)turn;
    for (int i = 0; i < LOOKED; i++) {
        ids[i] = id_value((int64_t)bench_random(ACCOUNTS));
        looks[i] = (truce_look){.collection = "accounts", .id = &ids[i]};
    }
    BENCH_MUST(truce_read_many(both->store, looks, LOOKED, 0, &error), error);
    for (int i = 0; i < LOOKED; i++) {
        BENCH_CHECK(looks[i].found);
        bson_destroy(&looks[i].document);
    }
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void open_both(struct both *both)
{
    const truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;
    char path[600];

    snprintf(path, sizeof path, "%s/commits.truce", bench_directory());
    BENCH_MUST(truce_store_open(path, NULL, &both->store, &error), error);
    snprintf(path, sizeof path, "%s/commits.sqlite", bench_directory());
    both->baseline = baseline_open(path, 32);
    baseline_fill(both->baseline, ACCOUNTS);
    for (int64_t id = 0; id < ACCOUNTS; id++) {
        bson_t document;

        document_make(id, &document);
        BENCH_MUST(truce_insert(both->store, "accounts", &document, &relaxed, &error), error);
        bson_destroy(&document);
    }
}

static int64_t sum_truce(truce_store *store)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int64_t sum = 0;

    BENCH_MUST(truce_find(store, "accounts", NULL, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        sum += document_counter(document);
    }
    truce_cursor_close(cursor);
    return sum;
}

int main(void)
{
    static const struct {
        const char *name;
        truce_mechanism mechanism;
        bench_function *truce, *baseline;
    } cases[] = {
        {"two documents", TRUCE_MECHANISM_AUTO, any_two, any_two_baseline},
        {"two, one of them hot", TRUCE_MECHANISM_AUTO, hot, hot_baseline},
        {"two, through the journal", TRUCE_MECHANISM_JOURNAL, any_two, NULL},
        {"look at ten documents", TRUCE_MECHANISM_AUTO, look_at_ten, NULL},
    };
    static const int callers[] = {1, 8, 32};
    struct both both = {0};
    truce_commit_counters counters;

    open_both(&both);
    bench_title("commits over several documents, durable", "sqlite");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        both.mechanism = cases[i].mechanism;
        for (size_t k = 0; k < 3; k++) {
            struct bench_rate truce, baseline;

            bench_run(callers[k], bench_seconds(), cases[i].truce, &both, &truce);
            if (cases[i].baseline)
                bench_run(callers[k], bench_seconds(), cases[i].baseline, &both, &baseline);
            bench_row(cases[i].name, callers[k], &truce, cases[i].baseline ? &baseline : NULL);
        }
    }
    truce_commit_count(&counters);
    BENCH_CHECK(sum_truce(both.store) == 0 && baseline_sum(both.baseline) == 0);
    printf("checked: %" PRIu64 " commits, %" PRIu64 " runs again after a conflict, the sum is 0\n",
           counters.committed, counters.reruns);
    truce_store_close(both.store);
    baseline_close(both.baseline);
    return 0;
}
