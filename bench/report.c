#include "bench/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- figures --------------------------------------------------------------------------------- */

static int report_compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *numbers, int count)
{
    double sorted[BENCH_ROUNDS_MAX];

    if (count == 0)
        return 0;
    memcpy(sorted, numbers, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, report_compare_numbers);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

void figure_add(struct figure *figure, int number, const struct bench_round *round)
{
    figure->numbers[figure->rounds] = number;
    figure->rates[figure->rounds++] = (double)round->operations / round->seconds;
    figure->operations += round->operations;
    figure->seconds += round->seconds;
    figure->cpu_seconds += round->used.cpu_seconds;
    figure->bytes_written += round->used.bytes_written;
    figure->memory = round->used.memory;
    figure->writes.operations += round->writes.operations;
    figure->writes.groups += round->writes.groups;
    figure->writes.syncs += round->writes.syncs;
    figure->writes.held_us += round->writes.held_us;
    truce__histogram_merge(&figure->latencies, &round->latencies, 0);
}

double figure_rate(const struct figure *figure)
{
    return median(figure->rates, figure->rounds);
}

double figure_spread(const struct figure *figure)
{
    double least = figure->rates[0], most = figure->rates[0], rate = figure_rate(figure);

    for (int i = 1; i < figure->rounds; i++) {
        least = figure->rates[i] < least ? figure->rates[i] : least;
        most = figure->rates[i] > most ? figure->rates[i] : most;
    }
    return rate > 0 ? (most - least) / rate : 0;
}

double figure_noise(const struct figure *figure)
{
    return figure_spread(figure) / sqrt(figure->rounds) / 1.5;
}

double figure_ratio(const struct figure *figure, const struct figure *other)
{
    double ratios[BENCH_ROUNDS_MAX];
    int count = 0;

    for (int i = 0, k = 0; i < figure->rounds && k < other->rounds;) {
        if (figure->numbers[i] == other->numbers[k]) {
            ratios[count++] = other->rates[k] > 0 ? figure->rates[i] / other->rates[k] : 0;
            i++;
            k++;
        } else if (figure->numbers[i] < other->numbers[k]) {
            i++;
        } else {
            k++;
        }
    }
    return median(ratios, count);
}

/* Returns an amount for each operation. A short round may have no operations. */
static double report_each(const struct figure *figure, double amount)
{
    return figure->operations > 0 ? amount / (double)figure->operations : 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Returns whether the figure is of truce. Stores of truce by their URI or over a server are listed
 * after the file. */
static bool is_truce(const struct figure *figure)
{
    return figure->target->kind == &target_truce && !figure->form->name;
}

/* Returns the figure of truce that the peers in the line of this figure are compared with, or NULL
 * if none is valid. */
static const struct figure *truce_beside(const struct figures *figures, const struct figure *figure)
{
    for (int i = 0; i < figures->count; i++) {
        const struct figure *other = &figures->all[i];

        if (other->workload == figure->workload && other->callers == figure->callers &&
            is_truce(other))
            return other->why[0] ? NULL : other;
    }
    return NULL;
}

static void show_name(const struct figure *figure, char *name, size_t size)
{
    const char *mark = figure->target->not_durable ? " *" : "";

    if (figure->form->name)
        snprintf(name, size, "%s, %s%s", figure->target->name, figure->form->name, mark);
    else
        snprintf(name, size, "%s%s", figure->target->name, mark);
}

/* Prints the time of an fdatasync during the measurement, if the workload waits for the disk. */
static void report_show_disk(const struct figure *figure)
{
    if (figure->workload->reads || figure->target->not_durable)
        printf(" %9s", "-");
    else
        printf(" %9.0f", truce__histogram_us(&figure->disk, 0.5));
}

static double quotient(int64_t a, int64_t b)
{
    return b ? (double)a / (double)b : 0;
}

static void report_writes(const struct figure *figure)
{
    const struct bench_writes *writes = &figure->writes;

    if (writes->groups)
        printf("  %34s   %.1f writes a group, %.1f groups a sync, %.0f us a group under the lock\n",
               "", quotient(writes->operations, writes->groups),
               quotient(writes->groups, writes->syncs), quotient(writes->held_us, writes->groups));
}

static void report_figure(const struct figures *figures, const struct figure *figure)
{
    const struct figure *truce = truce_beside(figures, figure);
    char name[60];

    show_name(figure, name, sizeof name);
    if (figure->why[0]) {
        printf("  %-26s %7d   %s%s\n", name, figure->callers,
               figure->cannot ? "" : "void: ", figure->why);
        return;
    }
    printf("  %-26s %7d %11.0f %6.0f %% %9.0f %9.0f %9.0f %10.0f", name, figure->callers,
           figure_rate(figure), figure_spread(figure) * 100,
           truce__histogram_us(&figure->latencies, 0.5),
           truce__histogram_us(&figure->latencies, 0.99),
           truce__histogram_us(&figure->latencies, 0.999),
           truce__histogram_longest_us(&figure->latencies));
    report_show_disk(figure);
    printf(" %8.1f %8.0f %7.0f", report_each(figure, figure->cpu_seconds * 1e6),
           report_each(figure, (double)figure->bytes_written), (double)figure->memory / 1e6);
    if (truce && truce != figure)
        printf(" %8.2f x", figure_ratio(truce, figure));
    printf("\n");
    report_writes(figure);
}

void report_workload(const struct figures *figures, int from)
{
    const struct bench_workload *workload = figures->all[from].workload;

    bool marked = false;

    printf("\n%s (%s)\n  %-26s %7s %9s/s %8s %9s %9s %9s %10s %9s %8s %8s %7s %10s\n",
           workload->title, workload->name, "", "callers", workload->unit, "spread", "p50 us",
           "p99 us", "p99.9 us", "longest us", "fsync us", "cpu us", "bytes", "MB", "truce is");
    for (int i = from; i < figures->count; i++)
        report_figure(figures, &figures->all[i]);
    for (int i = from; i < figures->count; i++)
        marked |= figures->all[i].target->not_durable;
    if (marked && !workload->reads)
        printf("  * not durable: what it acknowledged is lost in a crash\n");
    fflush(stdout);
}

/* Prints a line such as "at 32 callers 2.31 times postgresql, wanted 2.00: held". */
static void report_aim(const struct figure *truce, const struct figure *peer)
{
    char name[60];
    double aim = 0, ratio = figure_ratio(truce, peer);

    if (strcmp(peer->target->kind->name, "postgresql") != 0)
        return;
    if (peer->callers == 32)
        aim = peer->form->name ? truce->workload->aim_jsonb : truce->workload->aim;
    else if (peer->callers == 1)
        aim = 1;
    if (aim == 0)
        return;
    show_name(peer, name, sizeof name);
    printf("  %-18s %7d %9.2f x %-20s %6.2f  %s\n", truce->workload->name, peer->callers, ratio,
           name, aim, ratio >= aim ? "held" : "MISSED");
}

static void report_aimed_rate(const struct figure *figure, double aim)
{
    printf("  %-18s %7d %9.0f /s %-19s %6.0f  %s\n", figure->workload->name, figure->callers,
           figure_rate(figure), "", aim, figure_rate(figure) >= aim ? "held" : "MISSED");
}

void report_summary(const struct figures *figures)
{
    printf(
        "\naims: how many times PostgreSQL's rate, in the same run\n  %-18s %7s %11s %-20s %6s\n",
        "", "callers", "truce is", "", "aim");
    for (int i = 0; i < figures->count; i++) {
        const struct figure *peer = &figures->all[i];
        const struct figure *truce = truce_beside(figures, peer);

        if (truce && !peer->why[0])
            report_aim(truce, peer);
    }
    for (int i = 0; i < figures->count; i++) {
        const struct figure *figure = &figures->all[i];

        if (figure->callers != 32 || figure->why[0])
            continue;
        if (figure->workload->aim_rate > 0 && figure == truce_beside(figures, figure))
            report_aimed_rate(figure, figure->workload->aim_rate);
        if (figure->workload->aim_serve > 0 && !strcmp(figure->target->name, "truce-serve"))
            report_aimed_rate(figure, figure->workload->aim_serve);
    }
}

/* ---- the machine ----------------------------------------------------------------------------- */

static int64_t memory_bytes(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

void report_conditions(const struct conditions *c, const struct bench_target *targets, int count)
{
    printf("\n%ld cores, %.0f GB of memory; fdatasync %.0f us before and %.0f after (p99: %.0f, "
           "%.0f); real-time scheduling: %s; callers: %s; %d to %d rounds of %.2f s\n",
           sysconf(_SC_NPROCESSORS_ONLN), (double)memory_bytes() / 1e9,
           truce__histogram_us(&c->before, 0.5), truce__histogram_us(&c->after, 0.5),
           truce__histogram_us(&c->before, 0.99), truce__histogram_us(&c->after, 0.99),
           c->real_time ? "yes" : "no", bench_processes ? "processes" : "threads", c->rounds_min,
           c->rounds, c->seconds);
    for (int i = 0; i < count; i++) {
        if (targets[i].reason[0])
            printf("skipped: %s: %s\n", targets[i].name, targets[i].reason);
        else
            printf("%s: %s, %s%s\n", targets[i].name, targets[i].version, targets[i].settings,
                   targets[i].not_durable ? " (not durable)" : "");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void append_disk(bson_t *document, const char *key, const struct histogram *disk)
{
    bson_t child;

    bson_append_document_begin(document, key, -1, &child);
    BSON_APPEND_DOUBLE(&child, "p50_us", truce__histogram_us(disk, 0.5));
    BSON_APPEND_DOUBLE(&child, "p99_us", truce__histogram_us(disk, 0.99));
    bson_append_document_end(document, &child);
}

/* Appends the figures of writes if the target counts them. */
static void append_writes(bson_t *document, const struct bench_writes *writes)
{
    if (!writes->groups)
        return;
    BSON_APPEND_DOUBLE(document, "group_size", quotient(writes->operations, writes->groups));
    BSON_APPEND_DOUBLE(document, "groups_a_sync", quotient(writes->groups, writes->syncs));
    BSON_APPEND_DOUBLE(document, "locked_us_a_group", quotient(writes->held_us, writes->groups));
}

/* Appends a figure. One that is not valid has only the reason. */
static void append_figure(bson_t *document, const struct figures *figures,
                          const struct figure *figure)
{
    const struct figure *truce = truce_beside(figures, figure);
    bson_t rates;

    BSON_APPEND_UTF8(document, "workload", figure->workload->name);
    BSON_APPEND_UTF8(document, "target", figure->target->name);
    BSON_APPEND_UTF8(document, "form", figure->form->name ? figure->form->name : "");
    BSON_APPEND_INT32(document, "callers", figure->callers);
    BSON_APPEND_BOOL(document, "valid", !figure->why[0]);
    if (figure->why[0]) {
        BSON_APPEND_UTF8(document, figure->cannot ? "cannot" : "void", figure->why);
        return;
    }
    BSON_APPEND_ARRAY_BEGIN(document, "rates", &rates);
    for (int i = 0; i < figure->rounds; i++) {
        char key[16];

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOUBLE(&rates, key, figure->rates[i]);
    }
    bson_append_array_end(document, &rates);
    BSON_APPEND_DOUBLE(document, "per_second", figure_rate(figure));
    BSON_APPEND_DOUBLE(document, "spread", figure_spread(figure));
    BSON_APPEND_DOUBLE(document, "p50_us", truce__histogram_us(&figure->latencies, 0.5));
    BSON_APPEND_DOUBLE(document, "p99_us", truce__histogram_us(&figure->latencies, 0.99));
    BSON_APPEND_DOUBLE(document, "p999_us", truce__histogram_us(&figure->latencies, 0.999));
    BSON_APPEND_DOUBLE(document, "longest_us", truce__histogram_longest_us(&figure->latencies));
    if (!figure->workload->reads)
        append_disk(document, "fdatasync", &figure->disk);
    BSON_APPEND_DOUBLE(document, "cpu_us_each", report_each(figure, figure->cpu_seconds * 1e6));
    BSON_APPEND_DOUBLE(document, "bytes_written_each",
                       report_each(figure, (double)figure->bytes_written));
    BSON_APPEND_INT64(document, "memory_bytes", figure->memory);
    append_writes(document, &figure->writes);
    BSON_APPEND_INT64(document, "operations", figure->operations);
    if (figure->workload->aim_serve > 0)
        BSON_APPEND_DOUBLE(document, "aim_serve", figure->workload->aim_serve);
    if (truce && truce != figure)
        BSON_APPEND_DOUBLE(document, "truce_is", figure_ratio(truce, figure));
}

static void report_append_targets(bson_t *document, const struct bench_target *targets, int count)
{
    bson_t all, one;

    BSON_APPEND_ARRAY_BEGIN(document, "targets", &all);
    for (int i = 0; i < count; i++) {
        char key[16];

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&all, key, &one);
        BSON_APPEND_UTF8(&one, "name", targets[i].name);
        if (targets[i].reason[0])
            BSON_APPEND_UTF8(&one, "skipped", targets[i].reason);
        BSON_APPEND_UTF8(&one, "version", targets[i].version);
        BSON_APPEND_UTF8(&one, "settings", targets[i].settings);
        BSON_APPEND_BOOL(&one, "durable", !targets[i].not_durable);
        bson_append_document_end(&all, &one);
    }
    bson_append_array_end(document, &all);
}

static void append_conditions(bson_t *document, const struct conditions *c)
{
    bson_t machine;

    BSON_APPEND_INT32(document, "format", 1);
    BSON_APPEND_DATE_TIME(document, "time", (int64_t)time(NULL) * 1000);
    BSON_APPEND_BOOL(document, "quick", c->quick);
    BSON_APPEND_BOOL(document, "processes", bench_processes);
    BSON_APPEND_INT32(document, "rounds_min", c->rounds_min);
    BSON_APPEND_INT32(document, "rounds", c->rounds);
    BSON_APPEND_DOUBLE(document, "seconds", c->seconds);
    BSON_APPEND_DOCUMENT_BEGIN(document, "machine", &machine);
    BSON_APPEND_INT32(&machine, "cores", (int32_t)sysconf(_SC_NPROCESSORS_ONLN));
    BSON_APPEND_INT64(&machine, "memory_bytes", memory_bytes());
    BSON_APPEND_BOOL(&machine, "real_time", c->real_time);
    append_disk(&machine, "fdatasync_before", &c->before);
    append_disk(&machine, "fdatasync_after", &c->after);
    bson_append_document_end(document, &machine);
}

void report_json(const struct figures *figures, const struct conditions *conditions,
                 const struct bench_target *targets, int count, const char *path)
{
    bson_t document = BSON_INITIALIZER, all, one;
    FILE *f = fopen(path, "w");
    char *text;

    if (!f)
        bench_fail(__FILE__, __LINE__, path, "cannot be written");
    append_conditions(&document, conditions);
    report_append_targets(&document, targets, count);
    BSON_APPEND_ARRAY_BEGIN(&document, "figures", &all);
    for (int i = 0; i < figures->count; i++) {
        char key[16];

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&all, key, &one);
        append_figure(&one, figures, &figures->all[i]);
        bson_append_document_end(&all, &one);
    }
    bson_append_array_end(&document, &all);
    text = bson_as_relaxed_extended_json(&document, NULL);
    fprintf(f, "%s\n", text);
    if (fclose(f) != 0)
        bench_fail(__FILE__, __LINE__, path, "cannot be written");
    bson_free(text);
    bson_destroy(&document);
}
