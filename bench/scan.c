/*
 * Measures a million documents in the embedded store: loading, building an index, finds and ranges
 * by the index, the same in a snapshot, $match, and $group. Then it measures the time and the
 * memory that opening the file after kill -9 takes.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/document.h"
#include "truce/truce.h"

#define BATCH 1000

struct scan {
    truce_store *store;
    int64_t count;
};

static bson_t *scan_json(const char *text)
{
    bson_error_t error;
    bson_t *document = bson_new_from_json((const uint8_t *)text, -1, &error);

    BENCH_CHECK(document != NULL);
    return document;
}

static void scan_row(const char *name, double amount, const char *unit, double began)
{
    double took = bench_now() - began;

    printf("%-44s %12.0f %s/s %8.3f s\n", name, amount / took, unit, took);
    fflush(stdout);
}

static void scan_load(struct scan *scan, int64_t from, int64_t to)
{
    truce_write *writes = bson_malloc0(BATCH * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(BATCH * sizeof *outcomes);
    bson_t *documents = bson_malloc(BATCH * sizeof *documents);
    bson_error_t error;

    for (int64_t id = from; id < to; id += BATCH) {
        size_t count = (size_t)(to - id < BATCH ? to - id : BATCH);

        for (size_t i = 0; i < count; i++) {
            document_make(id + (int64_t)i, &documents[i]);
            writes[i] = (truce_write){
                .kind = TRUCE_WRITE_INSERT, .collection = "documents", .document = &documents[i]};
        }
        BENCH_MUST(truce_bulk(scan->store, writes, count, NULL, outcomes, &error), error);
        for (size_t i = 0; i < count; i++) {
            truce_write_result_release(&outcomes[i].result);
            bson_destroy(&documents[i]);
        }
    }
    bson_free(writes);
    bson_free(outcomes);
    bson_free(documents);
}

static void scan_build_index(struct scan *scan)
{
    bson_t *index = scan_json("{\"key\": {\"group\": 1, \"_id\": 1}}");
    bson_error_t error;
    double began = bench_now();

    BENCH_MUST(truce_index_create(scan->store, "documents", index, &error), error);
    scan_row("build an index", (double)scan->count, "documents", began);
    bson_destroy(index);
}

static int64_t scan_drain(truce_cursor *cursor)
{
    const bson_t *document;
    bson_error_t error;
    int64_t count = 0;

    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        count++;
    }
    truce_cursor_close(cursor);
    return count;
}

static int64_t scan_find(struct scan *scan, const bson_t *filter, const truce_find_options *options)
{
    truce_cursor *cursor = NULL;
    bson_error_t error;

    BENCH_MUST(truce_find(scan->store, "documents", filter, options, &cursor, &error), error);
    return scan_drain(cursor);
}

/* Finds documents by the index. Returns the number that were found. */
static int64_t find_one(struct scan *scan)
{
    int64_t id = (int64_t)bench_random((uint64_t)scan->count), found;
    bson_t filter = BSON_INITIALIZER;

    BSON_APPEND_INT32(&filter, "group", (int32_t)(id % 1000));
    BSON_APPEND_INT64(&filter, "_id", id);
    found = scan_find(scan, &filter, NULL);
    BENCH_CHECK(found == 1);
    bson_destroy(&filter);
    return found;
}

static int64_t find_range(struct scan *scan)
{
    bson_t filter = BSON_INITIALIZER;
    int64_t found;

    BSON_APPEND_INT32(&filter, "group", (int32_t)bench_random(1000));
    found = scan_find(scan, &filter, NULL);
    BENCH_CHECK(found == scan->count / 1000);
    bson_destroy(&filter);
    return found;
}

typedef int64_t read_function(struct scan *);

static void scan_measure(struct scan *scan, const char *name, read_function *read, const char *unit)
{
    double began = bench_now();
    int64_t found = 0;

    while (bench_now() - began < bench_seconds())
        found += read(scan);
    scan_row(name, (double)found, unit, began);
}

struct comparison {
    struct scan *plain, view;
    read_function *read;
};

static void scan_read_side(void *arg, int side)
{
    struct comparison *compared = arg;

    compared->read(side ? &compared->view : compared->plain);
}

static void compare_snapshot(struct scan *scan, const char *name, read_function *read)
{
    struct comparison compared = {.plain = scan, .view = {.count = scan->count}, .read = read};
    double least[2];
    bson_error_t error;

    BENCH_MUST(truce_snapshot(scan->store, NULL, &compared.view.store, &error), error);
    bench_in_turns(scan_read_side, &compared, 12, least);
    truce_store_close(compared.view.store);
    printf("%-44s %9.1f us, plainly %.1f us %8.2f x\n", name, least[1] * 1e6, least[0] * 1e6,
           least[1] / least[0]);
    fflush(stdout);
}

static void bench_scan_scan_all(struct scan *scan)
{
    bson_t *filter = scan_json("{\"owner\": \"person 7\"}");
    double began = bench_now();

    BENCH_CHECK(scan_find(scan, filter, NULL) == 1);
    scan_row("find without an index", (double)scan->count, "documents", began);
    bson_destroy(filter);
}

static void group(struct scan *scan)
{
    bson_t *pipeline = scan_json("[{\"$match\": {\"counter\": 0}},"
                                 " {\"$group\": {\"_id\": \"$group\", \"n\": {\"$sum\": 1}}}]");
    truce_cursor *cursor = NULL;
    bson_error_t error;
    double began = bench_now();

    BENCH_MUST(truce_aggregate(scan->store, "documents", pipeline, NULL, &cursor, &error), error);
    BENCH_CHECK(scan_drain(cursor) == 1000);
    scan_row("$match and $group of all", (double)scan->count, "documents", began);
    bson_destroy(pipeline);
}

/* ---- after a crash --------------------------------------------------------------------------- */

static _Noreturn void write_for_ever(const char *path, int64_t from)
{
    struct scan scan = {0};
    bson_error_t error;

    BENCH_MUST(truce_store_open(path, NULL, &scan.store, &error), error);
    for (;; from += BATCH)
        scan_load(&scan, from, from + BATCH);
}

static void scan_crash(const char *path, int64_t from)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    BENCH_CHECK(child >= 0);
    if (child == 0)
        write_for_ever(path, from);
    sleep(2);
    kill(child, SIGKILL);
    BENCH_CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

/* Opens the file in a process of its own, so that the memory can be measured. */
static void open_after_crash(const char *path, int64_t least)
{
    struct scan scan = {0};
    struct rusage usage;
    struct stat about;
    bson_error_t error;
    double began = bench_now(), opened;
    int64_t count = 0;

    BENCH_MUST(truce_store_open(path, NULL, &scan.store, &error), error);
    opened = bench_now() - began;
    BENCH_MUST(truce_count(scan.store, "documents", NULL, NULL, &count, &error), error);
    BENCH_CHECK(count >= least);
    BENCH_CHECK(scan_find(&scan, NULL, NULL) == count);
    truce_store_close(scan.store);
    BENCH_CHECK(stat(path, &about) == 0 && getrusage(RUSAGE_SELF, &usage) == 0);
    printf("open after kill -9: %.1f ms, for a file of %.2f GB; every document read since then: "
           "%.0f MB of memory at most\n",
           opened * 1e3, (double)about.st_size / 1e9, (double)usage.ru_maxrss / 1024);
    fflush(stdout);
}

static void in_child(const char *path, int64_t least)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    BENCH_CHECK(child >= 0);
    if (child == 0) {
        open_after_crash(path, least);
        _exit(0);
    }
    BENCH_CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
}

int main(void)
{
    struct scan scan = {.count = bench_scale("TRUCE_BENCH_DOCUMENTS", 1000000) / 1000 * 1000};
    /* Writes until the file has about 1 GB. */
    int64_t more = bench_scale("TRUCE_BENCH_MORE", 2000000);
    bson_error_t error;
    char path[600];
    double began;

    snprintf(path, sizeof path, "%s/scan.truce", bench_directory());
    printf("\nthe embedded store, one caller, %" PRId64 " documents of 300 bytes\n", scan.count);
    BENCH_MUST(truce_store_open(path, NULL, &scan.store, &error), error);
    began = bench_now();
    scan_load(&scan, 0, scan.count);
    scan_row("load, 1000 in a durable bulk", (double)scan.count, "documents", began);
    scan_build_index(&scan);
    scan_measure(&scan, "find one by a compound index", find_one, "finds");
    scan_measure(&scan, "find a range of 1/1000 of them by an index", find_range, "documents");
    compare_snapshot(&scan, "find one in a snapshot", find_one);
    compare_snapshot(&scan, "find the range in a snapshot", find_range);
    bench_scan_scan_all(&scan);
    group(&scan);
    scan_load(&scan, scan.count, scan.count + more);
    truce_store_close(scan.store);
    scan_crash(path, scan.count + more);
    in_child(path, scan.count + more);
    return 0;
}
