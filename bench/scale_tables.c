/* The patterns, and the tables of the page. */
#include <stdbool.h>
#include <string.h>

#include "bench/scale_model.h"

#define MS INT64_C(1000000)
#define US INT64_C(1000)

const struct scale_operation scale_operations[] = {
    {"ordered set: add", "set add", "h", SCALE_FOLDS, 2896, 19, "the set's key",
     "the set, if all write into one"},
    {"ordered set, a document per element: add", "set add, a document per element", "w",
     SCALE_PASSES, 827, 24, "the set's key and the name", "nothing"},
    {"item: update", "item update", "h", SCALE_PASSES, 1210, 19, "`_id`", "the document"},
    {"revision: save", "revision save", "g", SCALE_PASSES, 1104, 19, "`_id`",
     "the document: a client that loses reads it again, and retries"},
    {"sequence: next", "sequence next", "h", SCALE_PASSES, 1545, 15, "`_id`",
     "the document of the sequence"},
    {"commit of 2 documents, journal", "commit of 2 documents, journal", "WtwWfW", SCALE_WAITS,
     4587, 130, "any; `truce_commits` none", "`truce_commits`; what two commits change"},
    {"commit of 2 documents, transaction", "commit of 2 documents, transaction", "tf", SCALE_AGAIN,
     1237, 27, "any", "what two commits change"},
    {"job: add", "queue add", "W", SCALE_PASSES, 737, 15, "none: `truce_queue`", "`truce_queue`"},
    {"job: claim and done", "queue claim and done", "WW", SCALE_PASSES, 2045, 60,
     "none: `truce_queue`", "`truce_queue`, the oldest jobs"},
    {"job commit: 1 document and done", NULL, "WTwWFwW", SCALE_WAITS, 0, 130,
     "any; `truce_queue`, `truce_commits` none", "`truce_queue`, `truce_commits`"},
    {"ledger: post", "ledger post", "GR", SCALE_PASSES, 1489, 60, "none: the book", "each account"},
    {"ledger of slots: post", NULL, "rrrWtwWfwW", SCALE_WAITS, 0, 200,
     "`_id`, both collections; `truce_commits` none", "each account, `truce_commits`"},
    {"transfer, step by step", "transfer", "wlrgwrwhww", SCALE_PASSES, 4739, 150, "`_id`",
     "an account"},
    {"transfer, as a transaction", "transfer", "rrtf", SCALE_AGAIN, 2844, 60, "`_id`",
     "an account"},
    {"tree: publish 3 items", "tree, publish of 3 items", "lwrgw", SCALE_PASSES, 5331, 100,
     "`tree`, `itemId`", "the tree: one version after the other"},
    {"tree: the same, without a recovery pass", "tree, publish of 3 items, unswept", "lwrgwrrwwh",
     SCALE_PASSES, 14959, 230, "`tree`, `itemId`", "the tree: one version after the other"},
    {"tree: an item of a snapshot", "tree, an item of a snapshot", "rr", SCALE_PASSES, 2747, 5,
     "`tree`, `itemId`", "nothing: it is read"},
    {"sync: a source and one copy", "sync, a rename with one copy", "rhrwrrh", SCALE_PASSES, 4906,
     60, "any", "the source"},
    {NULL},
};

struct scale_world scale_world_of(int shards, int hot_permille)
{
    return (struct scale_world){
        .shards = shards,
        .callers = shards ? 16 * shards : 32,
        .in_process = 16,
        .workers = 4,
        .trip_ns = MS,
        .copy_ns = MS,
        .read_ns = 80 * US,
        .write_ns = 160 * US,
        .sync_ns = 150 * US,
        .hot_permille = hot_permille,
        .turns = shards > 10  ? 10
                 : shards > 1 ? 30
                              : 100,
        .seed = 1,
    };
}

/* Formats a rate with two significant digits: 640, 6.4k, 64k. */
static const char *short_rate(double rate, char text[16])
{
    double step = 1;

    while (rate / step >= 100)
        step *= 10;
    rate = (double)(int64_t)(rate / step + 0.5) * step;
    if (rate >= 1e6)
        snprintf(text, 16, "%.*fM", rate >= 1e7 ? 0 : 1, rate / 1e6);
    else if (rate >= 1000)
        snprintf(text, 16, "%.*fk", rate >= 1e4 ? 0 : 1, rate / 1e3);
    else
        snprintf(text, 16, "%.0f", rate);
    return text;
}

static void write_messages(FILE *file)
{
    fprintf(file, "| operation | messages | bytes | shard key | point of contention |\n"
                  "| --- | --- | --- | --- | --- |\n");
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        fprintf(file, "| %s | %zu | ", one->name, strlen(one->steps));
        if (one->bytes)
            fprintf(file, "%.1f kB", one->bytes / 1000.0);
        else
            fprintf(file, "—");
        fprintf(file, " | %s | %s |\n", one->key, one->hot);
    }
}

static bool may_be_hot(const struct scale_operation *one)
{
    return strpbrk(one->steps, "lhgtLHGT") != NULL;
}

static void write_rate(FILE *file, const struct scale_operation *one, int shards, int hot_permille)
{
    struct scale_world world = scale_world_of(shards, hot_permille);
    struct scale_figure figure;
    char text[16];

    if (hot_permille && !may_be_hot(one)) {
        fprintf(file, " — |");
        return;
    }
    figure = scale_simulate(one, &world);
    fprintf(file, " %s%s |", short_rate(figure.rate, text), figure.busiest > 0.9 ? "*" : "");
}

/* Writes the largest number of shards at which the rate still scales. */
static void write_end(FILE *file, const struct scale_operation *one)
{
    static const int sizes[] = {1, 2, 5, 10, 20, 50, 100};
    double before = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct scale_world world = scale_world_of(sizes[i], 0);
        double rate = scale_simulate(one, &world).rate;

        if (i && rate < 0.7 * before * sizes[i] / sizes[i - 1]) {
            fprintf(file, " %d |\n", sizes[i - 1]);
            return;
        }
        before = rate;
    }
    fprintf(file, " beyond 100 |\n");
}

static void write_rates(FILE *file)
{
    static const struct {
        int shards, hot_permille;
    } columns[] = {{0, 0}, {1, 0}, {10, 0}, {100, 0}, {1, 10}, {10, 10}, {100, 10}};

    fprintf(
        file,
        "| operations a second | a file | replica set | 10 shards | 100 shards | "
        "replica set, 1 in 100 hot | 10 shards, 1 in 100 hot | 100 shards, 1 in 100 hot | scales up to (shards) |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        fprintf(file, "| %s |", one->name);
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
            write_rate(file, one, columns[i].shards, columns[i].hot_permille);
        write_end(file, one);
    }
}

static void write_latencies(FILE *file)
{
    static const int trips_ms[] = {1, 10, 50};

    fprintf(file, "| milliseconds, p50 / p99 | 1 ms away | 10 ms | 50 ms |\n"
                  "| --- | --- | --- | --- |\n");
    for (const struct scale_operation *one = scale_operations; one->name; one++) {
        fprintf(file, "| %s |", one->name);
        for (size_t i = 0; i < sizeof trips_ms / sizeof *trips_ms; i++) {
            struct scale_world world = scale_world_of(1, 0);
            struct scale_figure figure;

            world.trip_ns = trips_ms[i] * MS;
            figure = scale_simulate(one, &world);
            fprintf(file, " %.1f / %.1f |", (double)figure.p50_ns / 1e6,
                    (double)figure.p99_ns / 1e6);
        }
        fprintf(file, "\n");
    }
}

void scale_write_tables(FILE *file)
{
    write_messages(file);
    fprintf(file, "\n");
    write_rates(file);
    fprintf(file, "\n");
    write_latencies(file);
}
