/*
 * Measures the cost of an archive: 32 callers insert, in rounds with and without an archiver, which
 * runs in a process of its own. Then the archive is restored, and the file is copied for
 * comparison. SQLite with Litestream does the same (bench/peers/archive).
 *
 *     bench_archive truce PROGRAM DIRECTORY TARGET [SECONDS [ROUNDS]]
 *     bench_archive litestream PROGRAM DIRECTORY TARGET [SECONDS [ROUNDS]]
 *
 * DIRECTORY must be empty, and TARGET must not exist. A round with an archiver begins when its base
 * is complete. The program prints:
 *
 *   - The rate of both kinds of rounds and their ratio, with the processor time of the archiver.
 *   - The lag from outside: how long after a point in time the next file of the log appears in the
 *     target. The file may lack commits before this time, so the real lag is not smaller.
 *   - The lag that doctor and the metrics report for truce.
 *   - The rate of the restore, in bytes of the store, and its ratio to a copy.
 *
 * SQLite has WAL, synchronous=FULL, a connection for each caller, and a mutex around each write.
 * Threads that wait for SQLite's own lock sleep and try again, which is several times slower.
 */
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "store/file/file.h"
#include "truce/store.h"

#define CALLERS   32
#define SAMPLES   400000
#define SAMPLE_MS 5
/* The time that the archiver gets to ship the rest of a round. Litestream ships once a second. */
#define FLUSH_MS 3000

static struct {
    bool truce;
    const char *program;
    char *path, *target;
    truce_store *store;
    atomic_bool stop;
    atomic_llong operations;
    pthread_mutex_t turn;
} run = {.turn = PTHREAD_MUTEX_INITIALIZER};

/* Samples of a lag in milliseconds, or points in time. */
struct samples {
    int64_t *values;
    int count;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_archive: %s: %s\n", what, why ? why : "");
    exit(1);
}

static void samples_add(struct samples *samples, int64_t value)
{
    if (!samples->values)
        samples->values = calloc(SAMPLES, sizeof *samples->values);
    if (samples->count < SAMPLES)
        samples->values[samples->count++] = value;
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t *one = a, *other = b;

    return *one < *other ? -1 : *one > *other;
}

static void samples_sort(struct samples *samples)
{
    if (samples->count)
        qsort(samples->values, (size_t)samples->count, sizeof *samples->values, compare_numbers);
}

static void samples_show(struct samples *samples, const char *name)
{
    samples_sort(samples);
    if (samples->count)
        printf("%-26sp50 %lld ms, p99 %lld ms, max %lld ms\n", name,
               (long long)samples->values[samples->count / 2],
               (long long)samples->values[samples->count * 99LL / 100],
               (long long)samples->values[samples->count - 1]);
}

/* ---- the two programs ----------------------------------------------------------------------- */

static void insert_truce(const bson_oid_t *id, const char *pad)
{
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;

    BSON_APPEND_OID(&document, "_id", id);
    BSON_APPEND_UTF8(&document, "pad", pad);
    if (truce_insert(run.store, "things", &document, NULL, &error))
        die("insert", error.message);
    bson_destroy(&document);
}

static sqlite3 *sqlite_open(sqlite3_stmt **insert)
{
    sqlite3 *db;

    if (sqlite3_open(run.path, &db) ||
        sqlite3_exec(db,
                     "PRAGMA busy_timeout=60000; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                     "CREATE TABLE IF NOT EXISTS things(id BLOB PRIMARY KEY, pad TEXT) WITHOUT "
                     "ROWID",
                     NULL, NULL, NULL) ||
        sqlite3_prepare_v2(db, "INSERT INTO things VALUES(?, ?)", -1, insert, NULL))
        die("sqlite", sqlite3_errmsg(db));
    return db;
}

static void insert_sqlite(sqlite3_stmt *insert, const bson_oid_t *id, const char *pad)
{
    int code;

    sqlite3_bind_blob(insert, 1, id->bytes, sizeof id->bytes, SQLITE_STATIC);
    sqlite3_bind_text(insert, 2, pad, -1, SQLITE_STATIC);
    pthread_mutex_lock(&run.turn);
    code = sqlite3_step(insert);
    sqlite3_reset(insert);
    pthread_mutex_unlock(&run.turn);
    if (code != SQLITE_DONE)
        die("sqlite", sqlite3_errstr(code));
}

static void *insert(void *arg)
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = NULL;
    char pad[201];

    if (!run.truce) {
        pthread_mutex_lock(&run.turn);
        db = sqlite_open(&statement);
        pthread_mutex_unlock(&run.turn);
    }
    memset(pad, 'x', 200);
    pad[200] = 0;
    while (!atomic_load(&run.stop)) {
        bson_oid_t id;

        bson_oid_init(&id, NULL);
        if (run.truce)
            insert_truce(&id, pad);
        else
            insert_sqlite(statement, &id, pad);
        atomic_fetch_add(&run.operations, 1);
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return arg;
}

static char *target_url(void)
{
    return run.truce ? bson_strdup(run.target) : bson_strdup_printf("file://%s", run.target);
}

/* Starts the archiver, and waits until its base is complete. */
static pid_t archive_start(void)
{
    char line[4096], *url = target_url();
    int ends[2];
    pid_t child;
    FILE *said;

    if (pipe(ends))
        die("pipe", NULL);
    child = fork();
    if (!child) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        if (run.truce)
            execl(run.program, run.program, "archive", run.path, "--to", url, (char *)NULL);
        else
            execl(run.program, run.program, "replicate", run.path, url, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bson_free(url);
    said = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, said)) {
        if (strstr(line, "is complete") || strstr(line, "continues") ||
            strstr(line, "replicating to"))
            break;
    }
    if (feof(said))
        die("the archiver does not start", NULL);
    if (!run.truce)
        truce__clock_sleep_ms(FLUSH_MS);
    return child;
}

/* ---- the lag from outside ------------------------------------------------------------------- */

static struct samples found;

/* Records the time of a file of the log: a segment of truce, or a file of Litestream's lowest
 * level. */
static int note_file(const char *path, const struct stat *file, int type, struct FTW *place)
{
    bool log = run.truce ? strstr(path, ".log") != NULL : strstr(path, "/ltx/0/") != NULL;

    if (type == FTW_F && log && path[place->base] != '.')
        samples_add(&found, file->st_ctim.tv_sec * INT64_C(1000) + file->st_ctim.tv_nsec / 1000000);
    return 0;
}

/* Adds a lag for each point in time: the time until the next file appeared. */
static void note_files(const struct samples *points, struct samples *lags)
{
    int at = 0;

    found.count = 0;
    if (nftw(run.target, note_file, 16, FTW_PHYS))
        die("cannot list", run.target);
    samples_sort(&found);
    for (int i = 0; i < points->count; i++) {
        while (at < found.count && found.values[at] < points->values[i])
            at++;
        if (at < found.count)
            samples_add(lags, found.values[at] - points->values[i]);
    }
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Inserts for some seconds, and returns the rate. Adds points in time, and samples of the lag that
 * truce reports. */
static double insert_for(double seconds, struct samples *points, struct samples *own)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    pthread_t threads[CALLERS];
    struct archive_facts facts;

    atomic_store(&run.stop, false);
    atomic_store(&run.operations, 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, insert, NULL);
    while ((double)(truce__clock_monotonic_ns() - began_ns) < seconds * 1e9) {
        truce__clock_sleep_ms(SAMPLE_MS);
        samples_add(points, truce__clock_wall_ms());
        if (run.truce && truce__archive_facts(&truce__file_engine(run.store)->lock, &facts))
            samples_add(own, facts.behind_ms);
    }
    atomic_store(&run.stop, true);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    return (double)atomic_load(&run.operations) /
           ((double)(truce__clock_monotonic_ns() - began_ns) / 1e9);
}

/* Returns the processor time that a process has used. */
static double processor_seconds(pid_t process)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &used))
        die("clock_getcpuclockid", NULL);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void run_rounds(double seconds, int rounds)
{
    struct samples points = {0}, other = {0}, own = {0}, files = {0};
    double with = 0, without = 0, processor = 0;

    (void)insert_for(1, &other, &other);
    for (int i = 0; i < rounds; i++) {
        pid_t child;

        without += insert_for(seconds, &other, &other) / rounds;
        child = archive_start();
        points.count = 0;
        processor -= processor_seconds(child);
        with += insert_for(seconds, &points, &own) / rounds;
        processor += processor_seconds(child);
        truce__clock_sleep_ms(FLUSH_MS);
        note_files(&points, &files);
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
    }
    printf("inserts with 32 callers   %.0f/s without, %.0f/s with an archiver: %.3f\n", without,
           with, with / without);
    processor /= seconds * rounds;
    printf("the archiver's processor  %.2f of one, %.1f us for an insert\n", processor,
           processor * 1e6 / with);
    samples_show(&files, "next file after");
    samples_show(&own, "behind");
    free(points.values);
    free(other.values);
    free(own.values);
    free(files.values);
}

/* ---- the restore ---------------------------------------------------------------------------- */

static double seconds_of(char *command)
{
    int64_t began_ns = truce__clock_monotonic_ns();

    if (system(command))
        die("cannot run", command);
    bson_free(command);
    return (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
}

/* Restores, and returns the seconds. The result is not checked, because Litestream does not check
 * it either. */
static double restore(const char *path)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    int64_t began_ns = truce__clock_monotonic_ns();
    struct restore_report report;
    struct target *target;
    bson_error_t error;

    if (truce__target_directory(run.target, false, &target, &error) ||
        truce__archive_restore(target, path, &options, &report, &error))
        die("restore", error.message);
    truce__target_close(target);
    return (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
}

static void run_restore(const char *directory)
{
    char *path = bson_strdup_printf("%s/restored", directory), *url = target_url();
    double restored, copied;
    struct stat size;

    if (run.truce)
        (void)seconds_of(bson_strdup_printf("'%s' archive '%s' --to '%s' --once >/dev/null",
                                            run.program, run.path, run.target));
    restored = run.truce
                   ? restore(path)
                   : seconds_of(bson_strdup_printf("'%s' restore -o '%s' '%s' >/dev/null 2>&1",
                                                   run.program, path, url));
    if (stat(path, &size))
        die("stat", path);
    copied =
        seconds_of(bson_strdup_printf("cp '%s' '%s.copy' && sync '%s.copy'", path, path, path));
    printf("restore                   %.0f MB: %.0f MB/s, copy %.0f MB/s: %.2f\n",
           (double)size.st_size / 1e6, (double)size.st_size / 1e6 / restored,
           (double)size.st_size / 1e6 / copied, copied / restored);
    bson_free(path);
    bson_free(url);
}

int main(int argc, char **argv)
{
    bson_error_t error;
    sqlite3_stmt *statement;
    sqlite3 *db;

    if (argc < 5 || (strcmp(argv[1], "truce") != 0 && strcmp(argv[1], "litestream") != 0))
        die("usage: bench_archive truce|litestream PROGRAM DIRECTORY TARGET [SECONDS [ROUNDS]]",
            NULL);
    run.truce = !strcmp(argv[1], "truce");
    run.program = argv[2];
    run.path = bson_strdup_printf("%s/s.%s", argv[3], run.truce ? "truce" : "sqlite");
    run.target = bson_strdup(argv[4]);
    if (run.truce && truce_store_open(run.path, NULL, &run.store, &error))
        die("open", error.message);
    if (!run.truce) {
        db = sqlite_open(&statement);
        sqlite3_finalize(statement);
        sqlite3_close(db);
    }
    run_rounds(argc > 5 ? atof(argv[5]) : 5, argc > 6 ? atoi(argv[6]) : 4);
    truce_store_close(run.store);
    run_restore(argv[3]);
    bson_free(run.path);
    bson_free(run.target);
    free(found.values);
    return 0;
}
