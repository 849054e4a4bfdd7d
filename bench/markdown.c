/*
 * The table of a run for the documentation: for each workload truce's rate and how many times each
 * peer's that is, at 1, 8 and 32 callers.
 */
#include <string.h>

#include "bench/compare.h"
#include "bench/results.h"

static const int callers[] = {1, 8, 32};
#define COLUMNS (sizeof callers / sizeof *callers)

static const char *const peers[] = {"postgresql", "sqlite", "redis"};
#define PEERS (sizeof peers / sizeof *peers)

static const struct result *find(const struct results *results, const char *workload,
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

static void show_ratios(const struct results *results, const char *workload, const char *target,
                        const char *form)
{
    if (!find(results, workload, target, form, callers[COLUMNS - 1])) {
        printf("—");
        return;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct result *peer = find(results, workload, target, form, callers[i]);

        printf("%s", i ? " / " : "");
        if (peer && peer->truce_is > 0)
            printf("%.*f", peer->truce_is < 10 ? 2 : 0, peer->truce_is);
        else
            printf("—");
    }
}

static void show_line(const struct results *results, const char *workload)
{
    printf("| `%s` | ", workload);
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct result *truce = find(results, workload, "truce", "", callers[i]);

        printf("%s", i ? " / " : "");
        if (truce)
            show_rate(truce->per_second);
        else
            printf("—");
    }
    for (size_t i = 0; i < PEERS; i++) {
        printf(" | ");
        show_ratios(results, workload, peers[i], "");
    }
    printf(" |\n");
}

int markdown_file(const char *path)
{
    struct results results;
    const char *last = "";

    if (!results_read(path, &results))
        return 2;
    printf("| workload | truce, per second | beside PostgreSQL | beside SQLite | beside Redis |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < results.count; i++) {
        if (strcmp(results.all[i].workload, last) != 0)
            show_line(&results, results.all[i].workload);
        last = results.all[i].workload;
    }
    results_release(&results);
    return 0;
}
