/*
 * Prints the tables of runs for the documentation. bench/refresh inserts them into the pages.
 *
 *     table    a run of the scoreboard: the machine; truce's rates and how many times each peer's
 *              they are; latencies and costs at the most callers; one work done in several ways
 *     main     of it truce's rates and those ratios alone
 *     short    of it how many times PostgreSQL's rate truce's is, for README.md
 *     servers  a run against servers of MongoDB's protocol
 *     serve    a run of `truce serve`: rates, latencies, costs and aims
 *     growth   a run of bench/growth.c
 */
#include <inttypes.h>
#include <string.h>

#include "bench/compare.h"
#include "bench/results.h"

static const int callers[] = {1, 8, 32};
#define COLUMNS (sizeof callers / sizeof *callers)
#define MOST    32

static const char *const peers[] = {"postgresql", "sqlite", "redis"};
#define PEERS (sizeof peers / sizeof *peers)

static const struct result *markdown_find(const struct results *results, const char *workload,
                                          const char *target, const char *form, int count)
{
    const struct result like = {
        .workload = workload, .target = target, .form = form, .callers = count};
    const struct result *found = results_find(results, &like);

    return found && found->valid ? found : NULL;
}

static void show_rate(double rate)
{
    if (rate >= 10000)
        printf("%.0fk", rate / 1000);
    else if (rate >= 1000)
        printf("%.1fk", rate / 1000);
    else
        printf("%.0f", rate);
}

static void show_rates(const struct results *results, const char *workload, const char *target,
                       const char *form)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct result *result = markdown_find(results, workload, target, form, callers[i]);

        printf("%s", i ? " / " : "");
        if (result)
            show_rate(result->per_second);
        else
            printf("—");
    }
}

static void show_ratio(double ratio)
{
    printf("%.*f", ratio < 9.95 ? 1 + (ratio < 1.95) : 0, ratio);
}

static void show_ratios(const struct results *results, const char *workload, const char *target,
                        const char *form)
{
    if (!markdown_find(results, workload, target, form, MOST)) {
        printf("—");
        return;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct result *peer = markdown_find(results, workload, target, form, callers[i]);

        printf("%s", i ? " / " : "");
        if (peer && peer->truce_is > 0)
            show_ratio(peer->truce_is);
        else
            printf("—");
    }
}

static bool markdown_is_first(const struct results *results, int i)
{
    return i == 0 || strcmp(results->all[i].workload, results->all[i - 1].workload) != 0;
}

/* ---- the scoreboard -------------------------------------------------------------------------- */

static void show_machine(const struct results *results)
{
    double fewest = results_number(results, "rounds_min");
    double rounds = results_number(results, "rounds");
    char least[32];

    snprintf(least, sizeof least, "%.0f to ", fewest);
    printf(
        "%.0f cores, %.0f GB of memory, real-time scheduling: %s. An fdatasync took %.0f us (p99 "
        "%.0f)\nbefore the run and %.0f us (p99 %.0f) after it. %s%.0f rounds of %.1f s.\n",
        results_number(results, "machine.cores"),
        results_number(results, "machine.memory_bytes") / 1e9,
        results_number(results, "machine.real_time") != 0 ? "yes" : "no",
        results_number(results, "machine.fdatasync_before.p50_us"),
        results_number(results, "machine.fdatasync_before.p99_us"),
        results_number(results, "machine.fdatasync_after.p50_us"),
        results_number(results, "machine.fdatasync_after.p99_us"), fewest == rounds ? "" : least,
        rounds, results_number(results, "seconds"));
}

static void show_main(const struct results *results)
{
    printf(
        "| workload | truce, per second | compared with PostgreSQL | compared with SQLite | compared with Redis |\n"
        "| --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < results->count; i++) {
        const char *workload = results->all[i].workload;

        if (!markdown_is_first(results, i))
            continue;
        printf("| `%s` | ", workload);
        show_rates(results, workload, "truce", "");
        for (size_t k = 0; k < PEERS; k++) {
            printf(" | ");
            show_ratios(results, workload, peers[k], "");
        }
        printf(" |\n");
    }
}

static void show_latency(const struct result *result)
{
    if (result)
        printf(" %.0f / %.0f / %.0f |", result->p50_us, result->p99_us, result->p999_us);
    else
        printf(" — |");
}

static void markdown_show_disk(const struct result *result)
{
    if (result->fdatasync_us > 0)
        printf(" %.0f |", result->fdatasync_us);
    else
        printf(" — |");
}

static void show_cost(const struct result *result)
{
    if (result)
        printf(" %.0f us, %.1f kB, %.0f MB |", result->cpu_us, result->bytes / 1e3,
               result->memory / 1e6);
    else
        printf(" — |");
}

static void show_latencies(const struct results *results)
{
    printf(
        "\nAt %d callers: latencies in microseconds (p50 / p99 / p99.9) and of an fdatasync at that "
        "time (p50).\nAn operation costs processor time and bytes written. The memory is that of all "
        "processes.\n\n"
        "| workload | truce | PostgreSQL | fdatasync | truce costs | PostgreSQL costs |\n"
        "| --- | --- | --- | --- | --- | --- |\n",
        MOST);
    for (int i = 0; i < results->count; i++) {
        const char *workload = results->all[i].workload;
        const struct result *truce = markdown_find(results, workload, "truce", "", MOST);
        const struct result *peer = markdown_find(results, workload, "postgresql", "", MOST);

        if (!markdown_is_first(results, i) || !truce)
            continue;
        printf("| `%s` |", workload);
        show_latency(truce);
        show_latency(peer);
        markdown_show_disk(truce);
        show_cost(truce);
        show_cost(peer);
        printf("\n");
    }
}

/* Returns true if no earlier line is of this workload, target, and form. */
static bool is_new_form(const struct results *results, int i)
{
    const struct result *result = &results->all[i];

    for (int k = 0; k < i; k++) {
        const struct result *other = &results->all[k];

        if (!strcmp(other->workload, result->workload) && !strcmp(other->target, result->target) &&
            !strcmp(other->form, result->form))
            return false;
    }
    return true;
}

static void show_forms(const struct results *results)
{
    printf("\nThe same work done in another way, per second:\n\n"
           "| workload | as above | another way | |\n| --- | --- | --- | --- |\n");
    for (int i = 0; i < results->count; i++) {
        const struct result *result = &results->all[i];

        if (!result->form[0] || !is_new_form(results, i))
            continue;
        printf("| `%s`, %s | ", result->workload, result->target);
        show_rates(results, result->workload, result->target, "");
        printf(" | %s | ", result->form);
        show_rates(results, result->workload, result->target, result->form);
        printf(" |\n");
    }
}

int markdown_file(const char *path)
{
    struct results results;

    if (!results_read(path, &results))
        return 2;
    show_machine(&results);
    printf("\n");
    show_main(&results);
    show_latencies(&results);
    show_forms(&results);
    results_release(&results);
    return 0;
}

int markdown_main(const char *path)
{
    struct results results;

    if (!results_read(path, &results))
        return 2;
    show_main(&results);
    results_release(&results);
    return 0;
}

int markdown_short(const char *path)
{
    static const struct {
        const char *workload, *words;
    } lines[] = {{"point_read", "read one document"},
                 {"insert", "insert one document"},
                 {"compare_and_set", "compare-and-set on a version"},
                 {"save", "save a revision"},
                 {"hot_document", "one hot document"},
                 {"set_apply", "ordered set, one operation"},
                 {"update_item", "change an array item"},
                 {"two_documents", "commit over two documents"},
                 {"five_documents", "commit over five documents with a guard"},
                 {"read_many", "read ten documents at one snapshot"},
                 {"group_report", "a report over all documents"}};
    struct results results;

    if (!results_read(path, &results))
        return 2;
    printf("| work | in process, compared with PostgreSQL 15 behind a socket |\n| --- | --- |\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        printf("| %s | ", lines[i].words);
        show_ratios(&results, lines[i].workload, "postgresql", "");
        printf(" |\n");
    }
    results_release(&results);
    return 0;
}

/* ---- servers --------------------------------------------------------------------------------- */

/* Finds the names of the targets that are servers. The target of truce over a server NAME is
 * "truce+NAME". */
static int find_servers(const struct results *results, const char *names[4])
{
    int count = 0;

    for (int i = 0; i < results->count; i++) {
        const char *target = results->all[i].target;
        bool known = !strncmp(target, "truce", 5);

        for (int k = 0; k < count; k++)
            known |= !strcmp(names[k], target);
        if (!known && count < 4)
            names[count++] = target;
    }
    return count;
}

static void show_why(const struct results *results, const char *workload, const char *target,
                     const char *form)
{
    const struct result like = {
        .workload = workload, .target = target, .form = form, .callers = MOST};
    const struct result *result = results_find(results, &like);

    if (result && result->valid)
        show_rates(results, workload, target, form);
    else
        printf("%s", !result ? "—" : result->cannot ? "cannot" : "void");
}

static void show_over(const struct results *results, const char *workload, const char *server)
{
    char over[60];

    snprintf(over, sizeof over, "truce+%s", server);
    printf(" ");
    show_why(results, workload, server, "");
    printf(" | ");
    show_why(results, workload, over, "");
    printf(" |");
}

int markdown_servers(const char *path)
{
    struct results results;
    const char *servers[4];
    int count;

    if (!results_read(path, &results))
        return 2;
    count = find_servers(&results, servers);
    show_machine(&results);
    printf("\n| workload | truce, its file |");
    for (int i = 0; i < count; i++)
        printf(" %s%s | truce over it |", servers[i],
               results_durable(&results, servers[i]) ? "" : " (not durable)");
    printf("\n| --- | --- |");
    for (int i = 0; i < count; i++)
        printf(" --- | --- |");
    printf("\n");
    for (int i = 0; i < results.count; i++) {
        const char *workload = results.all[i].workload;

        if (!markdown_is_first(&results, i))
            continue;
        printf("| `%s` | ", workload);
        show_rates(&results, workload, "truce", "");
        printf(" |");
        for (int k = 0; k < count; k++)
            show_over(&results, workload, servers[k]);
        printf("\n");
    }
    results_release(&results);
    return 0;
}

/* ---- truce serve ----------------------------------------------------------------------------- */

int markdown_serve(const char *path)
{
    struct results results;

    if (!results_read(path, &results))
        return 2;
    show_machine(&results);
    printf("\n| workload | per second | p50 / p99 / p99.9 us | fdatasync | costs | aim | |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < results.count; i++) {
        const char *workload = results.all[i].workload;
        const struct result *most = markdown_find(&results, workload, "truce-serve", "", MOST);

        if (!markdown_is_first(&results, i) || !most)
            continue;
        printf("| `%s` | ", workload);
        show_rates(&results, workload, "truce-serve", "");
        printf(" |");
        show_latency(most);
        markdown_show_disk(most);
        show_cost(most);
        printf(" ");
        show_rate(most->aim_serve);
        printf(" | %s |\n", most->per_second >= most->aim_serve ? "held" : "missed");
    }
    results_release(&results);
    return 0;
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void show_grown(const struct grown *grown)
{
    if (!grown)
        printf(" — |");
    else if (!strcmp(grown->what, "load and index"))
        printf(" %.1f s |", grown->numbers[0]);
    else if (!strncmp(grown->what, "open", 4))
        printf(" %.1f / %.1f / %.1f ms, log %.0f MB |", grown->numbers[0], grown->numbers[1],
               grown->numbers[2], grown->numbers[3]);
    else if (grown->is_size)
        printf(" %.0f MB, log %.0f MB |", grown->numbers[0], grown->numbers[1]);
    else {
        printf(" ");
        show_rate(grown->numbers[0]);
        printf(", p99 %.0f us, %.0f MB |", grown->numbers[2], grown->numbers[3]);
    }
}

/* Prints a line for each measurement, and a column for each size. */
int markdown_growth(const char *path)
{
    struct growths growths;

    if (!growths_read(path, &growths))
        return 2;
    printf("| | |");
    for (int i = 0; i < growths.sizes_count; i++)
        printf(" %" PRId64 " documents |", growths.sizes[i]);
    printf("\n| --- | --- |");
    for (int i = 0; i < growths.sizes_count; i++)
        printf(" --- |");
    printf("\n");
    for (int i = 0; i < growths.count; i++) {
        const struct grown *line = &growths.all[i];

        if (growths_find(&growths, line, growths.sizes[0]) != line)
            continue;
        printf("| %s | %s%s |", line->target, line->what, line->is_size ? ", size" : "");
        for (int k = 0; k < growths.sizes_count; k++)
            show_grown(growths_find(&growths, line, growths.sizes[k]));
        printf("\n");
    }
    growths_release(&growths);
    return 0;
}
