/*
 * Power cuts while consumers of a set apply operations and record their numbers. The operations
 * wait for the disk together with the records: one file keeps the order. In each state that the
 * disk could hold, every acknowledged batch is applied, and so is every recorded number. Some
 * numbers are recorded as void before, so that a batch of them has no records to write.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/life.h"
#include "tests/support/test.h"
#include "truce/set.h"

enum { WORKERS = 3, BATCH = 5, STUDENTS = 4, BATCHES_MAX = 20000 };

static atomic_bool acknowledged[BATCHES_MAX];

static bool is_void(int64_t batch)
{
    return batch % 4 == 3;
}

static truce_set *make_set(truce_store *store)
{
    return truce_set_new(store, &(truce_set_options){.collection = "students",
                                                     .key = "student_id",
                                                     .field = "classes",
                                                     .name = "name"});
}

static void make_operation(int64_t seq, bson_t *key, bson_t *element,
                           truce_set_operation *operation)
{
    char name[24];

    snprintf(name, sizeof name, "n%lld", (long long)seq);
    bson_init(key);
    bson_init(element);
    BSON_APPEND_INT32(key, "student_id", (int32_t)(seq % STUDENTS));
    BSON_APPEND_UTF8(element, "name", name);
    *operation = (truce_set_operation){TRUCE_SET_ADD, key, element, seq, "web"};
}

/* Returns the batch + 1 if it was acknowledged. */
static int64_t step(truce_store *store, int worker, int number)
{
    int64_t batch = (int64_t)number * WORKERS + worker, first = batch * BATCH + 1, announced;
    truce_set *set = make_set(store);
    truce_set_operation operations[BATCH];
    truce_set_result results[BATCH] = {{0}};
    bson_t keys[BATCH], elements[BATCH];
    bson_error_t error;
    truce_status status = TRUCE_OK;
    char consumer[12];

    if (batch >= BATCHES_MAX)
        return -1;
    snprintf(consumer, sizeof consumer, "c%d", worker);
    for (int i = 0; i < BATCH; i++)
        make_operation(first + i, &keys[i], &elements[i], &operations[i]);
    if (is_void(batch))
        status = truce_set_source_start(set, "web", &announced, &error);
    if (!status && is_void(batch))
        status = truce_set_void(set, "web", first, first + BATCH - 1, &error);
    if (!status)
        status = truce_set_consume(set, consumer, operations, BATCH, results, &error);
    for (int i = 0; i < BATCH; i++) {
        bson_destroy(&keys[i]);
        bson_destroy(&elements[i]);
    }
    truce_set_free(set);
    return status ? 0 : batch + 1;
}

static void reported(int worker, int64_t answer)
{
    (void)worker;
    atomic_store(&acknowledged[answer - 1], true);
}

static bool begin(truce_store *store)
{
    truce_set *set = make_set(store);
    bson_error_t error = {0};
    bool begun = CHECK_OK(truce_set_record(set, "begin", NULL, 0, &error), error);

    for (int i = 0; i < BATCHES_MAX; i++)
        atomic_store(&acknowledged[i], false);
    truce_set_free(set);
    return begun;
}

static bool is_applied(truce_store *store, int64_t seq)
{
    char json[120];
    bson_error_t error = {0};
    int64_t count = 0;
    bson_t *filter;

    snprintf(json, sizeof json,
             "{'student_id': %lld, 'classes': {'$elemMatch': {'name': 'n%lld', 'seq': %lld}}}",
             (long long)(seq % STUDENTS), (long long)seq, (long long)seq);
    filter = test_bson(json);
    CHECK_OK(truce_count(store, "students", filter, NULL, &count, &error), error);
    bson_destroy(filter);
    return count == 1;
}

static void judge(truce_store *store)
{
    truce_set *set = make_set(store);
    bson_error_t error = {0};
    int64_t watermark = 0, last = 0;

    CHECK_OK(truce_set_watermark(set, &watermark, NULL, &error), error);
    for (int64_t i = 0; i < BATCHES_MAX; i++)
        if (atomic_load(&acknowledged[i]))
            last = i;
    for (int64_t batch = 0; batch <= last || batch * BATCH < watermark; batch++) {
        bool reported_of = atomic_load(&acknowledged[batch]);

        for (int64_t seq = batch * BATCH + 1; seq <= (batch + 1) * BATCH; seq++)
            if ((reported_of || (seq <= watermark && !is_void(batch))) && !is_applied(store, seq))
                test_fail(__FILE__, __LINE__, "number %lld is lost (%s)", (long long)seq,
                          reported_of ? "acknowledged" : "recorded");
    }
    truce_set_free(set);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(acknowledged_batches_survive_a_power_cut)
{
    uint64_t seed = test_seed();
    struct random random;
    long cuts = test_scale("TRUCE_POWER_CUTS", 8);

    truce__random_seed(&random, seed);
    for (long i = 0; i < cuts && !test_failures(); i++)
        life_power_cut(&life, &random);
}

static uint64_t count_syncs(truce_store *store)
{
    truce_store_counters counters;

    truce_store_count(store, &counters);
    return counters.syncs;
}

TEST(a_batch_and_its_records_share_a_sync)
{
    truce_store *store = NULL;
    bson_error_t error = {0};
    uint64_t before;
    char path[400];

    disk_reset();
    snprintf(path, sizeof path, "%s/syncs.truce", test_directory());
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    REQUIRE(begin(store));
    for (int i = 0; i < 3; i++)
        CHECK_INT(step(store, 0, i), >, 0);
    before = count_syncs(store);
    CHECK_INT(step(store, 2, 1), ==, WORKERS + 2 + 1);
    CHECK_INT(count_syncs(store) - before, ==, 1);
    truce_store_close(store);
}
