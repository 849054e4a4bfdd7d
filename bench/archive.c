/*
 * The cost of an archive: 32 callers insert, in rounds with and without an archiver, which runs in a
 * process of its own (truce archive). Then the archive is restored, and the file is copied for
 * comparison.
 *
 *     bench_archive TRUCE DIRECTORY TARGET [SECONDS [ROUNDS]]
 *
 * DIRECTORY must be empty, and TARGET must not exist. A round with an archiver begins when its base
 * is complete. The program prints the rate of both kinds of rounds, their ratio, the lag of the
 * archive, and the size. The rate of the restore has its ratio to a copy.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "store/file/file.h"
#include "truce/store.h"

#define CALLERS 32
#define SAMPLES 100000

static struct {
    truce_store *store;
    atomic_bool stop;
    atomic_llong operations;
} run;

static void die(const char *what, const bson_error_t *error)
{
    fprintf(stderr, "bench_archive: %s: %s\n", what, error ? error->message : "");
    exit(1);
}

static void *insert(void *arg)
{
    bson_error_t error;
    char pad[201];

    memset(pad, 'x', 200);
    pad[200] = 0;
    while (!atomic_load(&run.stop)) {
        bson_t document = BSON_INITIALIZER;
        bson_oid_t id;

        bson_oid_init(&id, NULL);
        BSON_APPEND_OID(&document, "_id", &id);
        BSON_APPEND_UTF8(&document, "pad", pad);
        if (truce_insert(run.store, "things", &document, NULL, &error))
            die("insert", &error);
        bson_destroy(&document);
        atomic_fetch_add(&run.operations, 1);
    }
    return arg;
}

static int compare_ms(const void *a, const void *b)
{
    const int64_t *one = a, *other = b;

    return *one < *other ? -1 : *one > *other;
}

/* Inserts for some seconds. Returns the rate. Adds samples of the lag. */
static double insert_for(double seconds, int64_t *lags, int *count)
{
    struct engine *engine = truce__file_engine(run.store);
    int64_t began_ns = truce__clock_monotonic_ns();
    pthread_t threads[CALLERS];
    struct archive_facts facts;

    atomic_store(&run.stop, false);
    atomic_store(&run.operations, 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, insert, NULL);
    while ((double)(truce__clock_monotonic_ns() - began_ns) < seconds * 1e9) {
        truce__clock_sleep_ms(5);
        if (*count < SAMPLES && truce__archive_facts(&engine->lock, &facts))
            lags[(*count)++] = facts.behind_ms;
    }
    atomic_store(&run.stop, true);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    return (double)atomic_load(&run.operations) /
           ((double)(truce__clock_monotonic_ns() - began_ns) / 1e9);
}

static pid_t archive_start(const char *program, const char *path, const char *target)
{
    char line[4096];
    int ends[2];
    pid_t child;
    FILE *said;

    if (pipe(ends))
        die("pipe", NULL);
    child = fork();

    if (!child) {
        dup2(ends[1], 1);
        execl(program, program, "archive", path, "--to", target, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    said = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, said)) {
        if (strstr(line, "is complete") || strstr(line, "continues"))
            return child;
    }
    die("the archiver does not start", NULL);
    return -1;
}

static double seconds_of(const char *command)
{
    int64_t began_ns = truce__clock_monotonic_ns();

    if (system(command))
        die(command, NULL);
    return (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
}

/* Restores. Returns the seconds. */
static double restore(const char *from, const char *directory)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    char *path = bson_strdup_printf("%s/restored.truce", directory);
    int64_t began_ns = truce__clock_monotonic_ns();
    struct restore_report report;
    struct target *target;
    bson_error_t error;

    if (truce__target_directory(from, false, &target, &error) ||
        truce__archive_restore(target, path, &options, &report, &error))
        die("restore", &error);
    truce__target_close(target);
    bson_free(path);
    return (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
}

int main(int argc, char **argv)
{
    double seconds = argc > 4 ? atof(argv[4]) : 5, with = 0, without = 0, restored, copied;
    int rounds = argc > 5 ? atoi(argv[5]) : 4, count = 0;
    int64_t *lags = calloc(SAMPLES, sizeof *lags);
    char *path, *target, *command;
    struct stat size;
    bson_error_t error;

    if (argc < 4)
        die("usage: bench_archive TRUCE DIRECTORY TARGET [SECONDS [ROUNDS]]", NULL);
    path = bson_strdup_printf("%s/s.truce", argv[2]);
    target = bson_strdup(argv[3]);
    if (truce_store_open(path, NULL, &run.store, &error))
        die("open", &error);
    (void)insert_for(1, lags, &count);
    for (int i = 0; i < rounds; i++) {
        pid_t child;

        without += insert_for(seconds, lags, &count) / rounds;
        child = archive_start(argv[1], path, target);
        with += insert_for(seconds, lags, &count) / rounds;
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
    }
    truce_store_close(run.store);
    qsort(lags, (size_t)count, sizeof *lags, compare_ms);
    printf("inserts with 32 callers   %.0f/s without, %.0f/s with an archiver: %.3f\n", without,
           with, with / without);
    if (count)
        printf("behind                    p50 %lld ms, p99 %lld ms, max %lld ms\n",
               (long long)lags[count / 2], (long long)lags[count * 99LL / 100],
               (long long)lags[count - 1]);
    command =
        bson_strdup_printf("'%s' archive '%s' --to '%s' --once >/dev/null", argv[1], path, target);
    (void)seconds_of(command);
    bson_free(command);
    if (stat(path, &size))
        die("stat", NULL);
    restored = restore(target, argv[2]);
    command = bson_strdup_printf("cp '%s' '%s/copy' && sync '%s/copy'", path, argv[2], argv[2]);
    copied = seconds_of(command);
    printf("restore                   %.0f MB: %.0f MB/s, copy %.0f MB/s: %.2f\n",
           (double)size.st_size / 1e6, (double)size.st_size / 1e6 / restored,
           (double)size.st_size / 1e6 / copied, copied / restored);
    bson_free(command);
    bson_free(path);
    bson_free(target);
    free(lags);
    return 0;
}
