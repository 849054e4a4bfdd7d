/*
 * Measures growth: the same operations on 10^4, 10^6, and 10^7 documents, by truce and by its peers
 * that have an index on disk. It also measures how truce's file behaves:
 *
 *     for each size
 *         for each target      load, index; the operations, reads first; memory, size; the check
 *         truce                writers while another process reads: no reader, a slow cursor,
 *                              one report after the other, a stopped report;
 *                              p99, and the log's size
 *                              kill -9 in the middle of writing; opening, first read, first write
 *
 *     growth [--sizes N,N,...] [--seconds S] [--target NAME]... [--json FILE]
 */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/documents.h"

#define SIZES_MAX    8
#define CALLERS_MOST 32

struct growth {
    int64_t sizes[SIZES_MAX];
    int sizes_count;
    double seconds;
    struct bench_target targets[3];
    int targets_count;
    const char *json;
    bson_t out, figures; /* The JSON under construction. */
    int figures_count;
    bool failed;
};

static struct growth growth = {
    .sizes = {10000, 1000000, 10000000}, .sizes_count = 3, .seconds = 2, .out = BSON_INITIALIZER};

static const struct operation {
    const char *workload;
    int callers;
    /* The maximum number of documents for this operation. 0 means no maximum. */
    int64_t documents_max;
} operations[] = {
    {"point_read", 1},    {"point_read", 32},           {"read_many", 1},
    {"find_by_index", 1}, {"group_report", 1, 1000000}, {"insert", 1},
    {"insert", 32},       {"compare_and_set", 1},       {"compare_and_set", 32},
    {"increment", 32},    {"two_documents", 32},
};

/* ---- figures --------------------------------------------------------------------------------- */

/* A number in a line of the table and of the JSON, with its name. */
struct number {
    const char *name;
    double value;
};

/* Prints a row of numbers, and adds it to the document of the results. */
static void add_figure(const char *target, const char *what, const struct number *numbers,
                       int count)
{
    char key[16];
    bson_t one;

    snprintf(key, sizeof key, "%d", growth.figures_count++);
    BSON_APPEND_DOCUMENT_BEGIN(&growth.figures, key, &one);
    BSON_APPEND_INT64(&one, "documents", DOCUMENTS);
    BSON_APPEND_UTF8(&one, "target", target);
    BSON_APPEND_UTF8(&one, "what", what);
    printf("%10" PRId64 "  %-11s %-28s", DOCUMENTS, target, what);
    for (int i = 0; i < count; i++) {
        BSON_APPEND_DOUBLE(&one, numbers[i].name, numbers[i].value);
        printf(" %12.*f %s", numbers[i].value < 100 ? 1 : 0, numbers[i].value, numbers[i].name);
    }
    printf("\n");
    fflush(stdout);
    bson_append_document_end(&growth.figures, &one);
}
#define FIGURE(target, what, ...)                                                                  \
    add_figure(target, what, (const struct number[]){__VA_ARGS__},                                 \
               sizeof((const struct number[]){__VA_ARGS__}) / sizeof(struct number))

static void growth_fail(const char *target, const char *what, const char *why)
{
    printf("%10" PRId64 "  %-11s %-28s void: %s\n", DOCUMENTS, target, what, why);
    growth.failed = true;
}

/* ---- one target at one size ------------------------------------------------------------------ */

static const struct bench_workload *find_workload(const char *name)
{
    for (int i = 0; bench_workloads[i]; i++) {
        if (!strcmp(bench_workloads[i]->name, name))
            return bench_workloads[i];
    }
    bench_fail(__FILE__, __LINE__, name, "is no workload");
}

static const struct bench_form *find_form(const struct bench_workload *workload,
                                          const struct bench_target *target)
{
    const struct bench_form *form = workload->forms;

    while (form->target && (strcmp(form->target, target->kind->name) != 0 || form->name))
        form++;
    BENCH_CHECK(form->target);
    return form;
}

static void growth_use(struct side_process *side, const struct bench_target *target,
                       const char *name)
{
    const struct bench_workload *workload = find_workload(name);

    side_use(side, workload, find_form(workload, target));
}

/* Measures all operations of a target. Returns the number of changes of documents, or a negative
 * number after a failure. */
static int64_t growth_measure(struct side_process *side, const struct bench_target *target,
                              const char *name, int callers, const char *shown)
{
    const struct bench_round *round;
    int64_t changed;

    growth_use(side, target, name);
    if (!side_run(side, callers, growth.seconds / 4, &round)) {
        growth_fail(target->name, shown, round->why);
        return -1;
    }
    changed = round->operations;
    if (!side_run(side, callers, growth.seconds, &round)) {
        growth_fail(target->name, shown, round->why);
        return -1;
    }
    FIGURE(target->name, shown, {"per_second", (double)round->operations / round->seconds},
           {"p50_us", truce__histogram_us(&round->latencies, 0.5)},
           {"p99_us", truce__histogram_us(&round->latencies, 0.99)},
           {"memory_mb", (double)round->used.memory / 1e6});
    changed += round->operations;
    return changed * find_workload(name)->changes;
}

static bool run_operations(struct side_process *side, const struct bench_target *target,
                           int64_t *changed)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct operation *o = &operations[i];
        char shown[60];
        int64_t more;

        if (o->documents_max > 0 && DOCUMENTS > o->documents_max)
            continue;
        snprintf(shown, sizeof shown, "%s, %d", o->workload, o->callers);
        more = growth_measure(side, target, o->workload, o->callers, shown);
        if (more < 0)
            return false;
        *changed += more;
    }
    return true;
}

static void report_size(struct side_process *side, const struct bench_target *target,
                        const char *what)
{
    int64_t data = 0, log = 0;

    if (side_size(side, &data, &log))
        FIGURE(target->name, what, {"data_mb", (double)data / 1e6}, {"log_mb", (double)log / 1e6});
}

/* ---- with a long reader ---------------------------------------------------------------------- */

static char *growth_path_of(const struct side_process *side)
{
    return bson_strdup_printf("%s/%d.truce", bench_directory(), side_number(side));
}

static void read_slowly(truce_store *store)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;

    BENCH_MUST(truce_find(store, "documents", NULL, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        usleep(500);
    }
    truce_cursor_close(cursor);
}

static int64_t report_once(truce_store *store)
{
    bson_t *pipeline = BCON_NEW("0", "{", "$group", "{", "_id", BCON_NULL, "sum", "{", "$sum",
                                "$counter", "}", "}", "}");
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    bson_iter_t iter;
    int64_t sum;

    BENCH_MUST(truce_aggregate(store, "documents", pipeline, NULL, &cursor, &error), error);
    BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
    BENCH_CHECK(document && bson_iter_init_find(&iter, document, "sum"));
    sum = bson_iter_as_int64(&iter);
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    return sum;
}

static void growth_report(truce_store *store)
{
    (void)report_once(store);
}

/* Starts a process that calls `reads` until it is killed. Gives it 300 ms to begin. */
static pid_t start_reader(const char *path, void (*reads)(truce_store *store))
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    BENCH_CHECK(pid >= 0);
    if (pid == 0) {
        truce_store *store = NULL;
        bson_error_t error;

        /* The peer does not run in real time, because two such processes would leave no core to the
         * kernel's threads. */
        BENCH_CHECK(sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}) == 0);
        BENCH_MUST(truce_store_open(path, NULL, &store, &error), error);
        for (;;)
            reads(store);
    }
    usleep(300 * 1000);
    return pid;
}

static void stop_reader(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    BENCH_CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static const struct beside {
    const char *shown;
    void (*reads)(truce_store *store);
    /* SIGSTOP has stopped the peer in the middle of a round. */
    bool stopped;
} readers[] = {
    {"without a reader", NULL},
    {"with a slow cursor", read_slowly},
    {"with reports", growth_report},
    {"with a stopped report", growth_report, true},
    {"after it", NULL},
};

/* Measures increments while a reader runs. Returns false if the side has failed. */
static bool run_beside(struct side_process *side, const struct bench_target *target,
                       const struct beside *beside, int64_t *changed)
{
    const char *shown = beside->shown;
    char *path = growth_path_of(side);
    pid_t reader = beside->reads ? start_reader(path, beside->reads) : 0;
    int64_t more;

    if (reader && beside->stopped)
        kill(reader, SIGSTOP);
    more = growth_measure(side, target, "increment", 8, shown);
    if (reader)
        stop_reader(reader);
    bson_free(path);
    if (more < 0)
        return false;
    *changed += more;
    report_size(side, target, shown);
    return true;
}

static void run_readers(struct side_process *side, const struct bench_target *target,
                        int64_t *changed)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!run_beside(side, target, &readers[i], changed))
            return;
    }
}

/* ---- after kill -9 --------------------------------------------------------------------------- */

/* Measures opening and first use. Runs in a process of its own, which has no state of the file. */
static _Noreturn void open_again(const char *path, double *times, int64_t changed)
{
    truce_store *store = NULL;
    bson_t filter, update, document;
    bson_error_t error;
    int64_t count = 0;
    double began = bench_now();

    BENCH_MUST(truce_store_open(path, NULL, &store, &error), error);
    times[0] = (bench_now() - began) * 1e3;
    document_filter(DOCUMENTS / 2, &filter);
    BENCH_MUST(truce_find_one(store, "documents", &filter, NULL, &document, &error), error);
    times[1] = (bench_now() - began) * 1e3;
    document_increment(1, &update);
    BENCH_MUST(truce_update(store, "documents", &filter, &update, NULL, NULL, &error), error);
    times[2] = (bench_now() - began) * 1e3;
    BENCH_MUST(truce_count(store, "documents", NULL, NULL, &count, &error), error);
    BENCH_CHECK(count >= DOCUMENTS);
    BENCH_CHECK(report_once(store) >= changed);
    bson_destroy(&document);
    bson_destroy(&filter);
    bson_destroy(&update);
    truce_store_close(store);
    _exit(0);
}

/* Kills the side in a round of increments, and measures how long another process needs to open the
 * file, to read, and to write. */
static void growth_crash(struct side_process *side, const struct bench_target *target,
                         int64_t changed)
{
    double *times =
        mmap(NULL, 3 * sizeof *times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *path = growth_path_of(side);
    int64_t log;
    int status;
    pid_t child;

    BENCH_CHECK(times != MAP_FAILED);
    growth_use(side, target, "increment");
    side_kill(side, CALLERS_MOST, 1);
    log = bench_file_size(path, "-wal");
    fflush(NULL);
    child = fork();
    BENCH_CHECK(child >= 0);
    if (child == 0)
        open_again(path, times, changed);
    BENCH_CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        FIGURE(target->name, "open after kill -9", {"open_ms", times[0]},
               {"first_read_ms", times[1]}, {"first_write_ms", times[2]},
               {"log_mb", (double)log / 1e6});
    else
        growth_fail(target->name, "open after kill -9",
                    "the file could not be opened, read or written");
    munmap(times, 3 * sizeof *times);
    bson_free(path);
}

static void forget_files(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char *name = bson_strdup_printf("%s%s", path, suffixes[i]);

        (void)unlink(name);
        bson_free(name);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static void growth_check(struct side_process *side, const struct bench_target *target)
{
    char why[300];

    if (!side_check(side, why, sizeof why))
        growth_fail(target->name, "check", why);
}

static void run_target(struct bench_target *target)
{
    const struct bench_workload *indexed = find_workload("find_by_index");
    bool truce = target->kind == &target_truce;
    double began = bench_now();
    struct side_process *side = NULL;
    int64_t changed = 0;
    char why[300], *path;

    if (!side_start(indexed, find_form(indexed, target), target, CALLERS_MOST, &side, why,
                    sizeof why)) {
        growth_fail(target->name, "load", why);
        side_end(side);
        return;
    }
    FIGURE(target->name, "load and index", {"seconds", bench_now() - began});
    path = bson_strdup_printf("%s/%d.%s", bench_directory(), side_number(side), target->name);
    report_size(side, target, "loaded");
    if (run_operations(side, target, &changed)) {
        report_size(side, target, "after the operations");
        if (truce)
            run_readers(side, target, &changed);
        growth_check(side, target);
        if (truce)
            growth_crash(side, target, changed);
    }
    side_end(side);
    forget_files(path);
    bson_free(path);
}

static void growth_add_target(const struct target_kind *kind)
{
    growth.targets[growth.targets_count++] =
        (struct bench_target){.kind = kind, .name = kind->name};
}

static _Noreturn void growth_refuse(const char *argument)
{
    fprintf(stderr,
            "growth: what is \"%s\"?\nusage: growth [--sizes N,N,...] [--seconds S] [--target "
            "truce|postgresql|sqlite]... [--json FILE]\n",
            argument);
    exit(2);
}

static void parse_sizes(const char *text)
{
    growth.sizes_count = 0;
    while (*text && growth.sizes_count < SIZES_MAX) {
        char *end;
        int64_t size = strtoll(text, &end, 10);

        if (size < 1000 || size % 1000 || (*end && *end != ','))
            growth_refuse(text);
        growth.sizes[growth.sizes_count++] = size;
        text = *end ? end + 1 : end;
    }
}

static void growth_parse_target(const char *name)
{
    static const struct target_kind *const kinds[] = {&target_truce, &target_postgres,
                                                      &target_sqlite};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kinds[i]->name, name) && growth.targets_count < 3) {
            growth_add_target(kinds[i]);
            return;
        }
    }
    growth_refuse(name);
}

static void growth_parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            growth_refuse(argv[i]);
        if (!strcmp(argv[i], "--sizes"))
            parse_sizes(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            growth.seconds = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--target"))
            growth_parse_target(argv[i + 1]);
        else if (!strcmp(argv[i], "--json"))
            growth.json = argv[i + 1];
        else
            growth_refuse(argv[i]);
    }
    if (growth.targets_count == 0) {
        growth_add_target(&target_truce);
        growth_add_target(&target_postgres);
        growth_add_target(&target_sqlite);
    }
}

static pid_t the_process;

static void growth_stop_targets(void)
{
    if (getpid() != the_process)
        return;
    for (int i = 0; i < growth.targets_count; i++) {
        if (growth.targets[i].server)
            growth.targets[i].kind->stop(&growth.targets[i]);
    }
}

static void growth_interrupted(int signal)
{
    (void)signal;
    exit(1);
}

static void growth_start_targets(void)
{
    the_process = getpid();
    /* The directory is created first, so that it is removed last. */
    (void)bench_directory();
    atexit(growth_stop_targets);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, growth_interrupted);
    signal(SIGTERM, growth_interrupted);
    for (int i = 0; i < growth.targets_count; i++) {
        struct bench_target *target = &growth.targets[i];

        if (target->kind->start)
            target->kind->start(target);
        if (target->reason[0])
            printf("skipped: %s: %s\n", target->name, target->reason);
    }
}

static void growth_write_json(void)
{
    FILE *f = fopen(growth.json, "w");
    char *text = bson_as_relaxed_extended_json(&growth.out, NULL);

    if (!f || fprintf(f, "%s\n", text) < 0 || fclose(f) != 0)
        bench_fail(__FILE__, __LINE__, growth.json, "cannot be written");
    bson_free(text);
}

int main(int argc, char **argv)
{
    struct histogram *disk = bson_malloc0(sizeof *disk);

    growth_parse(argc, argv);
    growth_start_targets();
    usage_disk(bench_directory(), 500, disk);
    BSON_APPEND_DOUBLE(&growth.out, "fdatasync_us", truce__histogram_us(disk, 0.5));
    BSON_APPEND_ARRAY_BEGIN(&growth.out, "growth", &growth.figures);
    for (int i = 0; i < growth.sizes_count; i++) {
        documents_want(growth.sizes[i]);
        for (int k = 0; k < growth.targets_count; k++) {
            if (!growth.targets[k].reason[0])
                run_target(&growth.targets[k]);
        }
    }
    bson_append_array_end(&growth.out, &growth.figures);
    if (growth.json)
        growth_write_json();
    bson_free(disk);
    return growth.failed;
}
