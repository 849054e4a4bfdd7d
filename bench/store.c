/*
 * The embedded store beside the baseline, every write durable before it is acknowledged: reads by
 * _id, inserts, read-modify-write, at 1, 8 and 32 callers.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "bench/baseline.h"
#include "bench/bench.h"
#include "bench/documents.h"
#include "truce/truce.h"

#define DOCUMENTS 20000

struct both {
    truce_store *store;
    struct baseline *baseline;
    atomic_int_fast64_t next_id; /* for inserts */
};

static void id_filter(int64_t id, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_INT64(filter, "_id", id);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static int64_t read_truce(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    int64_t id = (int64_t)bench_random(DOCUMENTS);
    bson_t filter, document;
    bson_error_t error;
    bson_iter_t iter;

    (void)caller;
    (void)turn;
    id_filter(id, &filter);
    BENCH_MUST(truce_find_one(both->store, "documents", &filter, NULL, &document, &error), error);
    BENCH_CHECK(bson_iter_init_find(&iter, &document, "_id") && bson_iter_int64(&iter) == id);
    bson_destroy(&filter);
    bson_destroy(&document);
    return 1;
}

static int64_t read_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;

    (void)turn;
    baseline_read(both->baseline, caller, (int64_t)bench_random(DOCUMENTS));
    return 1;
}

/* ---- inserts --------------------------------------------------------------------------------- */

static int64_t insert_truce(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    bson_t document;
    bson_error_t error;

    (void)caller;
    (void)turn;
    document_make(atomic_fetch_add(&both->next_id, 1), &document);
    BENCH_MUST(truce_insert(both->store, "documents", &document, NULL, &error), error);
    bson_destroy(&document);
    return 1;
}

static int64_t insert_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;

    (void)turn;
    baseline_insert(both->baseline, caller, atomic_fetch_add(&both->next_id, 1));
    return 1;
}

/* ---- read, modify, write --------------------------------------------------------------------- */

static int64_t increment_truce(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    bson_t filter, update = BSON_INITIALIZER, inner;
    truce_write_result result = {0};
    bson_error_t error;

    (void)caller;
    (void)turn;
    id_filter((int64_t)bench_random(DOCUMENTS), &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inner);
    BSON_APPEND_INT64(&inner, "counter", 1);
    bson_append_document_end(&update, &inner);
    BENCH_MUST(truce_update(both->store, "documents", &filter, &update, NULL, &result, &error),
               error);
    BENCH_CHECK(result.modified == 1);
    truce_write_result_release(&result);
    bson_destroy(&filter);
    bson_destroy(&update);
    return 1;
}

static int64_t increment_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;

    (void)turn;
    baseline_increment(both->baseline, caller, (int64_t)bench_random(DOCUMENTS));
    return 1;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int64_t count_truce(truce_store *store)
{
    bson_error_t error;
    int64_t count = 0;

    BENCH_MUST(truce_count(store, "documents", NULL, NULL, &count, &error), error);
    return count;
}

static int64_t sum_truce(truce_store *store)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int64_t sum = 0;

    BENCH_MUST(truce_find(store, "documents", NULL, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        sum += document_counter(document);
    }
    truce_cursor_close(cursor);
    return sum;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void fill_truce(truce_store *store)
{
    for (int64_t id = 0; id < DOCUMENTS; id++) {
        const truce_write_options relaxed = {.relaxed = true};
        bson_t document;
        bson_error_t error;

        document_make(id, &document);
        BENCH_MUST(truce_insert(store, "documents", &document, &relaxed, &error), error);
        bson_destroy(&document);
    }
}

static void open_both(struct both *both)
{
    bson_error_t error;
    char path[600];

    snprintf(path, sizeof path, "%s/store.truce", bench_directory());
    BENCH_MUST(truce_store_open(path, NULL, &both->store, &error), error);
    snprintf(path, sizeof path, "%s/store.sqlite", bench_directory());
    both->baseline = baseline_open(path, 32);
    fill_truce(both->store);
    baseline_fill(both->baseline, DOCUMENTS);
    both->next_id = DOCUMENTS;
}

static void close_both(struct both *both)
{
    truce_store_close(both->store);
    baseline_close(both->baseline);
}

static const struct {
    const char *name;
    bench_function *truce, *baseline;
} cases[] = {
    {"read by _id", read_truce, read_baseline},
    {"read-modify-write", increment_truce, increment_baseline},
    {"insert", insert_truce, insert_baseline},
};

int main(void)
{
    static const int callers[] = {1, 8, 32};
    struct both both = {0};
    int64_t incremented[2] = {0}, inserted[2] = {0};

    printf("fdatasync: p50 %.0f us\n", bench_fdatasync_us());
    open_both(&both);
    bench_title("durable, documents of 300 bytes", "sqlite");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct bench_rate truce, baseline;
            bool counts = cases[i].truce == increment_truce, adds = cases[i].truce == insert_truce;

            bench_run(callers[k], bench_seconds(), cases[i].truce, &both, &truce);
            bench_run(callers[k], bench_seconds(), cases[i].baseline, &both, &baseline);
            bench_row(cases[i].name, callers[k], &truce, &baseline);
            incremented[0] += counts ? truce.operations : 0;
            incremented[1] += counts ? baseline.operations : 0;
            inserted[0] += adds ? truce.operations : 0;
            inserted[1] += adds ? baseline.operations : 0;
        }
    }
    BENCH_CHECK(sum_truce(both.store) == incremented[0]);
    BENCH_CHECK(count_truce(both.store) == DOCUMENTS + inserted[0]);
    BENCH_CHECK(baseline_count(both.baseline) == DOCUMENTS + inserted[1]);
    printf("checked: %" PRId64 " increments and %" PRId64 " inserts are all there\n",
           incremented[0], inserted[0]);
    close_both(&both);
    return 0;
}
