/*
 * Ordered sets beside the baseline: operations that arrive out of order, one at a time and in
 * batches, every call durable before it returns, at 1, 8 and 32 callers.
 *
 * The operations are drawn at random: an add or a remove of one of NAMES names in one of SETS sets,
 * with a fresh number, handed in a little out of order. What must be there in the end is known from
 * the highest number of each name, and is compared in full.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "bench/baseline.h"
#include "bench/bench.h"
#include "truce/truce.h"

#define SETS      2000
#define NAMES     10
#define BATCH     1000
#define OUT_ORDER 64 /* numbers are swapped within so many */

/* of each name the winner: number * 2 + is a remove */
typedef atomic_int_fast64_t expected_winners[SETS][NAMES];

struct both {
    truce_store *store;
    truce_set *sets;
    struct baseline *baseline;
    atomic_int_fast64_t next_seq[2];
    expected_winners winners[2]; /* truce's, the baseline's */
};

static void expect(expected_winners winners, const struct baseline_operation *o)
{
    int_fast64_t mine = o->seq * 2 + o->remove;
    int_fast64_t seen = atomic_load(&winners[o->set][o->name]);

    while (seen < mine && !atomic_compare_exchange_weak(&winners[o->set][o->name], &seen, mine))
        ;
}

/* `count` operations with numbers of their own, not in order */
static void draw(struct both *both, int side, struct baseline_operation *operations, int count)
{
    int64_t first = atomic_fetch_add(&both->next_seq[side], count);

    for (int i = 0; i < count; i++) {
        operations[i] = (struct baseline_operation){.set = (int64_t)bench_random(SETS),
                                                    .name = (int64_t)bench_random(NAMES),
                                                    .seq = first + i,
                                                    .remove = bench_random(3) == 0};
    }
    for (int i = 0; i < count; i++) {
        int k = i + (int)bench_random(OUT_ORDER);
        int64_t seq = operations[i].seq;

        if (k >= count)
            continue;
        operations[i].seq = operations[k].seq;
        operations[k].seq = seq;
    }
    for (int i = 0; i < count; i++)
        expect(both->winners[side], &operations[i]);
}

/* ---- truce ----------------------------------------------------------------------------------- */

static void make(const struct baseline_operation *o, bson_t *key, bson_t *element)
{
    char name[16];

    snprintf(name, sizeof name, "CS %d", (int)o->name);
    bson_init(key);
    BSON_APPEND_INT64(key, "student_id", o->set);
    bson_init(element);
    BSON_APPEND_UTF8(element, "name", name);
}

static int64_t one_truce(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    struct baseline_operation o;
    bson_t key, element;
    bson_error_t error;

    (void)caller;
    (void)turn;
    draw(both, 0, &o, 1);
    make(&o, &key, &element);
    if (o.remove)
        BENCH_MUST(truce_set_remove(both->sets, NULL, &key, &element, o.seq, NULL, &error), error);
    else
        BENCH_MUST(truce_set_add(both->sets, NULL, &key, &element, o.seq, NULL, &error), error);
    bson_destroy(&key);
    bson_destroy(&element);
    return 1;
}

static int64_t batch_truce(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    struct baseline_operation *drawn = bson_malloc(BATCH * sizeof *drawn);
    truce_set_operation *operations = bson_malloc0(BATCH * sizeof *operations);
    truce_set_result *results = bson_malloc0(BATCH * sizeof *results);
    bson_t *documents = bson_malloc(2 * BATCH * sizeof *documents);
    bson_error_t error;

    (void)caller;
    (void)turn;
    draw(both, 0, drawn, BATCH);
    for (int i = 0; i < BATCH; i++) {
        make(&drawn[i], &documents[2 * i], &documents[2 * i + 1]);
        operations[i] = (truce_set_operation){
            .verb = drawn[i].remove ? TRUCE_SET_REMOVE : TRUCE_SET_ADD,
            .key = &documents[2 * i],
            .element = &documents[2 * i + 1],
            .seq = drawn[i].seq,
        };
    }
    BENCH_MUST(truce_set_apply(both->sets, NULL, operations, BATCH, results, &error), error);
    for (int i = 0; i < 2 * BATCH; i++)
        bson_destroy(&documents[i]);
    bson_free(documents);
    bson_free(results);
    bson_free(operations);
    bson_free(drawn);
    return BATCH;
}

/* ---- the baseline ---------------------------------------------------------------------------- */

static int64_t one_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    struct baseline_operation o;

    (void)turn;
    draw(both, 1, &o, 1);
    baseline_apply(both->baseline, caller, &o, 1);
    return 1;
}

static int64_t batch_baseline(void *arg, int caller, int64_t turn)
{
    struct both *both = arg;
    struct baseline_operation *drawn = bson_malloc(BATCH * sizeof *drawn);

    (void)turn;
    draw(both, 1, drawn, BATCH);
    baseline_apply(both->baseline, caller, drawn, BATCH);
    bson_free(drawn);
    return BATCH;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* adds up what the set has: number * 2 (+ 1 if it is in the list of the removed) by name */
static void collect(const bson_t *document, const char *list, bool removed, int64_t found[NAMES])
{
    bson_iter_t at, elements, field;

    if (!bson_iter_init_find(&at, document, list) || !bson_iter_recurse(&at, &elements))
        return;
    while (bson_iter_next(&elements)) {
        int name = -1;
        int64_t seq = 0;

        BENCH_CHECK(bson_iter_recurse(&elements, &field));
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "name"))
                name = (int)strtol(bson_iter_utf8(&field, NULL) + 3, NULL, 10);
            else if (!strcmp(bson_iter_key(&field), "seq"))
                seq = bson_iter_as_int64(&field);
        }
        BENCH_CHECK(name >= 0 && name < NAMES && found[name] == 0);
        found[name] = seq * 2 + removed;
    }
}

static void check(struct both *both)
{
    for (int64_t set = 0; set < SETS; set++) {
        int64_t found[NAMES] = {0};
        bson_t key = BSON_INITIALIZER, document;
        bson_error_t error = {0};

        BSON_APPEND_INT64(&key, "student_id", set);
        if (truce_set_show(both->sets, &key, &document, &error) != TRUCE_NOT_FOUND)
            BENCH_CHECK(!error.message[0]);
        collect(&document, "classes", false, found);
        collect(&document, "deleted_classes", true, found);
        for (int name = 0; name < NAMES; name++) {
            BENCH_CHECK(found[name] == both->winners[0][set][name]);
            BENCH_CHECK(baseline_element(both->baseline, set, name) == both->winners[1][set][name]);
        }
        bson_destroy(&key);
        bson_destroy(&document);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static void open_both(struct both *both)
{
    bson_error_t error;
    char path[600];

    snprintf(path, sizeof path, "%s/sets.truce", bench_directory());
    BENCH_MUST(truce_store_open(path, NULL, &both->store, &error), error);
    both->sets = truce_set_new(both->store, &(truce_set_options){.collection = "students",
                                                                 .key = "student_id",
                                                                 .field = "classes",
                                                                 .name = "name"});
    snprintf(path, sizeof path, "%s/sets.sqlite", bench_directory());
    both->baseline = baseline_open(path, 32);
    both->next_seq[0] = both->next_seq[1] = 1;
}

int main(void)
{
    static const struct {
        const char *name;
        bench_function *truce, *baseline;
    } cases[] = {{"set apply, one at a time", one_truce, one_baseline},
                 {"set apply, 1000 in a batch", batch_truce, batch_baseline}};
    static const int callers[] = {1, 8, 32};
    struct both *both = bson_malloc0(sizeof *both);

    open_both(both);
    bench_title("ordered sets, durable: operations out of order", "sqlite");
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct bench_rate truce, baseline;

            bench_run(callers[k], bench_seconds(), cases[i].truce, both, &truce);
            bench_run(callers[k], bench_seconds(), cases[i].baseline, both, &baseline);
            bench_row(cases[i].name, callers[k], &truce, &baseline);
        }
    }
    check(both);
    printf("checked: all %d sets are as the %" PRId64 " operations leave them in order\n", SETS,
           (int64_t)both->next_seq[0] - 1);
    truce_set_free(both->sets);
    truce_store_close(both->store);
    baseline_close(both->baseline);
    bson_free(both);
    return 0;
}
