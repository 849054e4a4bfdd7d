/*
 * Measures denormalized copies: a user is renamed whose name is in 10,000, 100,000, and 400,000
 * comments, durably. It alternates with one write of many documents that maintains no copies. The
 * rise of the process's peak memory shows whether memory grows with the comments.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "bench/bench.h"
#include "truce/truce.h"

#define BATCH 1000

static struct sides {
    truce_store *store;
    truce_sync *sync;
    int names;
} sides;

static void sync_insert(const char *collection, bson_t *document)
{
    truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;

    BENCH_MUST(truce_insert(sides.store, collection, document, &relaxed, &error), error);
    bson_destroy(document);
}

/* Creates the data of a program without truce: an index by the user, and no rule. */
static void begin_plainly(void)
{
    bson_t *index = BCON_NEW("key", "{", "user", BCON_INT32(1), "}");
    bson_error_t error;

    BENCH_MUST(truce_index_create(sides.store, "plain", index, &error), error);
    bson_destroy(index);
}

static void sync_declare(void)
{
    bson_t *copies = BCON_NEW("author", "name");
    truce_sync_rule rule = {.name = "author",
                            .source = "users",
                            .dependent = "comments",
                            .reference = "user",
                            .copies = copies};
    bson_error_t error;

    BENCH_MUST(truce_sync_declare(sides.sync, &rule, &error), error);
    bson_destroy(copies);
}

static void sync_fill(int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const char *text =
            "a comment of the usual length that a reader leaves, in one line or two lines";
        const char *const collections[] = {"comments", "plain"};

        for (int j = 0; j < 2; j++)
            sync_insert(collections[j],
                        BCON_NEW("_id", BCON_INT64(i), "user", BCON_INT64(1), "author",
                                 BCON_UTF8("nobody"), "text", BCON_UTF8(text)));
    }
}

static double rename_in_step(void)
{
    bson_value_t user = truce_id_int64(1);
    truce_sync_result result;
    bson_error_t error;
    bson_t *update;
    double began;
    char name[20];

    snprintf(name, sizeof name, "name %d", ++sides.names);
    update = BCON_NEW("$set", "{", "name", BCON_UTF8(name), "}");
    began = bench_now();
    BENCH_MUST(truce_sync_update(sides.sync, NULL, "users", &user, update, &result, &error), error);
    began = bench_now() - began;
    BENCH_CHECK(result.settled);
    bson_destroy(update);
    return began;
}

static double rename_plainly(void)
{
    truce_write_options many = {.multi = true};
    bson_t *filter = BCON_NEW("user", BCON_INT64(1)), *update;
    bson_error_t error;
    double began;
    char name[20];

    snprintf(name, sizeof name, "name %d", ++sides.names);
    update = BCON_NEW("$set", "{", "author", BCON_UTF8(name), "}");
    began = bench_now();
    BENCH_MUST(truce_update(sides.store, "plain", filter, update, &many, NULL, &error), error);
    began = bench_now() - began;
    bson_destroy(update);
    bson_destroy(filter);
    return began;
}

static long peak_mb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

static void sync_compare(int64_t comments)
{
    long before = peak_mb();
    double in_step = rename_in_step(), plainly = 1e9;
    /* The rise of the peak, before the other side runs. */
    long more = peak_mb() - before;

    for (int round = 0; round < 3; round++) {
        double a = rename_in_step(), b = rename_plainly();

        in_step = a < in_step ? a : in_step;
        plainly = b < plainly ? b : plainly;
    }
    printf("%-10" PRId64 " %8.3f s %12.0f/s %8.3f s %10.2f x %+9ld MB\n", comments, in_step,
           (double)comments / in_step, plainly, in_step / plainly, more);
}

static void sync_check(int64_t comments)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT64(1)), user, *copies;
    bson_error_t error;
    bson_iter_t iter;
    int64_t count;

    BENCH_MUST(truce_find_one(sides.store, "users", filter, NULL, &user, &error), error);
    BENCH_CHECK(bson_iter_init_find(&iter, &user, "name"));
    copies = BCON_NEW("author", BCON_UTF8(bson_iter_utf8(&iter, NULL)));
    BENCH_MUST(truce_count(sides.store, "comments", copies, NULL, &count, &error), error);
    BENCH_CHECK(count == comments);
    bson_destroy(copies);
    bson_destroy(&user);
    bson_destroy(filter);
}

int main(void)
{
    static const int64_t sizes[] = {10000, 100000, 400000};
    truce_sync_options options = {.batch = BATCH};
    bson_error_t error;
    char path[600];
    int64_t there = 0;

    snprintf(path, sizeof path, "%s/sync.truce", bench_directory());
    BENCH_MUST(truce_store_open(path, NULL, &sides.store, &error), error);
    sides.sync = truce_sync_new(sides.store, &options);
    sync_insert("users", BCON_NEW("_id", BCON_INT64(1), "name", BCON_UTF8("nobody")));
    sync_declare();
    begin_plainly();
    printf("%-10s %10s %14s %10s %12s %12s\n", "comments", "in step", "copies", "plainly", "",
           "memory");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sync_fill(there, sizes[i]);
        there = sizes[i];
        sync_compare(there);
        sync_check(there);
    }
    truce_sync_free(sides.sync);
    truce_store_close(sides.store);
    return 0;
}
