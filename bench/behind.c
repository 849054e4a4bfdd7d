/*
 * Lists the lines in which a peer is faster than truce, of all runs together. `make bench` ends
 * with this list of remaining work. Peers that may lose acknowledged writes are omitted.
 */
#include <inttypes.h>
#include <string.h>

#include "bench/compare.h"
#include "bench/results.h"

#define LINES_MAX 1000

struct line {
    double ratio; /* truce's rate divided by the peer's rate. */
    char text[200];
};

struct behind {
    struct line lines[LINES_MAX];
    int count, compared;
};

static void behind_add(struct behind *behind, double ratio, const char *what, const char *peer,
                       const char *among)
{
    struct line *line = &behind->lines[behind->count];

    behind->compared++;
    if (ratio >= 1 || behind->count == LINES_MAX)
        return;
    behind->count++;
    line->ratio = ratio;
    snprintf(line->text, sizeof line->text, "%-30s %-24s %s", what, peer, among);
}

static void behind_add_figures(struct behind *behind, const struct results *results)
{
    for (int i = 0; i < results->count; i++) {
        const struct result *result = &results->all[i];
        char what[80], peer[60];

        if (!result->valid || result->truce_is <= 0 || !strncmp(result->target, "truce", 5) ||
            !results_durable(results, result->target))
            continue;
        snprintf(what, sizeof what, "%s, %d", result->workload, result->callers);
        snprintf(peer, sizeof peer, "%s%s%s", result->target, result->form[0] ? ", " : "",
                 result->form);
        behind_add(behind, result->truce_is, what, peer,
                   results_number(results, "processes") != 0 ? "processes" : "");
    }
}

static bool is_rate(const struct grown *grown)
{
    return !grown->is_size && strcmp(grown->what, "load and index") != 0 &&
           strncmp(grown->what, "open", 4) != 0 && grown->numbers[0] > 0;
}

static void behind_add_growths(struct behind *behind, const struct growths *growths)
{
    for (int i = 0; i < growths->count; i++) {
        const struct grown *peer = &growths->all[i], *truce;
        struct grown like = *peer;
        char among[60];

        like.target = "truce";
        truce = growths_find(growths, &like, peer->documents);
        if (!truce || truce == peer || !is_rate(peer))
            continue;
        snprintf(among, sizeof among, "among %" PRId64 " documents", peer->documents);
        behind_add(behind, truce->numbers[0] / peer->numbers[0], peer->what, peer->target, among);
    }
}

static int behind_order(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

    return (x->ratio > y->ratio) - (x->ratio < y->ratio);
}

static bool behind_read(struct behind *behind, const char *path)
{
    struct results results;
    struct growths growths;

    if (strstr(path, "growth") != NULL) {
        if (!growths_read(path, &growths))
            return false;
        behind_add_growths(behind, &growths);
        growths_release(&growths);
        return true;
    }
    if (!results_read(path, &results))
        return false;
    behind_add_figures(behind, &results);
    results_release(&results);
    return true;
}

int behind_files(char *const paths[], int count)
{
    static struct behind behind;

    for (int i = 0; i < count; i++) {
        if (!behind_read(&behind, paths[i]))
            return 2;
    }
    qsort(behind.lines, (size_t)behind.count, sizeof *behind.lines, behind_order);
    printf("\nwhere a durable peer is faster: %d of %d comparisons\n  %8s  %-30s %-24s\n",
           behind.count, behind.compared, "truce is", "workload, callers", "peer");
    for (int i = 0; i < behind.count; i++)
        printf("  %6.2f x  %s\n", behind.lines[i].ratio, behind.lines[i].text);
    return 0;
}
