/*
 * Draws the chart of a run. Each workload has a bar for each peer, at 1 and at 32 callers. The
 * length of a bar is the logarithm of truce's rate divided by the peer's rate. The line in the
 * middle means equal rates.
 */
#include "bench/compare.h"

#include <math.h>
#include <string.h>

#include "bench/results.h"

#define LEFT   210.0 /* The x coordinate of the ratio 1, in pixels. */
#define DECADE 150.0 /* The width of a factor of ten, in pixels. */
#define LINE   13.0
#define WIDTH  860.0

static const struct {
    const char *target, *colour;
} peers[] = {{"postgresql", "#336791"}, {"sqlite", "#6b8f3c"}, {"redis", "#b5473c"}};

static double chart_place(double ratio)
{
    double at = LEFT + 70 + DECADE * log10(ratio < 0.1 ? 0.1 : ratio);

    return at > WIDTH - 120 ? WIDTH - 120 : at; /* Leaves room for the text. */
}

static const char *chart_colour_of(const char *target)
{
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        if (!strcmp(peers[i].target, target))
            return peers[i].colour;
    }
    return "#888888";
}

static bool is_drawn(const struct result *result)
{
    return result->valid && result->truce_is > 0 && strcmp(result->target, "truce") != 0 &&
           (result->callers == 1 || result->callers == 32);
}

static void draw_bar(const struct result *result, double y)
{
    double one = chart_place(1), at = chart_place(result->truce_is);

    printf("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' fill-opacity='%s'/>\n",
           at < one ? at : one, y, fabs(at - one) < 1 ? 1 : fabs(at - one), LINE - 3,
           chart_colour_of(result->target), result->callers == 1 ? "0.55" : "1");
    printf("<text x='%.1f' y='%.1f' class='n'>%.*f x %s%s%s, %d</text>\n",
           (at > one ? at : one) + 4, y + LINE - 4.5, result->truce_is < 10 ? 2 : 0,
           result->truce_is, result->target, result->form[0] ? " " : "", result->form,
           result->callers);
}

static double draw_workload(const struct results *results, const char *workload, double y)
{
    double top = y;

    for (int i = 0; i < results->count; i++) {
        if (is_drawn(&results->all[i]) && !strcmp(results->all[i].workload, workload)) {
            draw_bar(&results->all[i], y);
            y += LINE;
        }
    }
    if (y > top)
        printf("<text x='8' y='%.1f' class='w'>%s</text>\n", top + LINE - 4, workload);
    return y > top ? y + 9 : y;
}

/* Returns whether the line is the first of its workload. */
static bool chart_is_first(const struct results *results, int i)
{
    return i == 0 || strcmp(results->all[i].workload, results->all[i - 1].workload) != 0;
}

static double height(const struct results *results)
{
    double sum = 70;

    for (int i = 0; i < results->count; i++) {
        sum += is_drawn(&results->all[i]) ? LINE : 0;
        sum += chart_is_first(results, i) ? 9 : 0;
    }
    return sum;
}

static void draw_frame(double h)
{
    printf("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' width='%.0f' "
           "height='%.0f'>\n<style>text{font-family:sans-serif;font-size:12px;fill:#222}"
           ".n{font-size:10px}.w{font-weight:bold}.t{font-size:14px;font-weight:bold}"
           "line{stroke:#bbb}</style>\n<rect width='100%%' height='100%%' fill='#fff'/>\n",
           WIDTH, h, WIDTH, h);
    printf("<text x='8' y='20' class='t'>How many times the peer's rate truce's is, at 1 caller "
           "(pale) and at 32</text>\n");
    for (int i = -1; i <= 3; i++) {
        double x = chart_place(pow(10, i));

        printf("<line x1='%.1f' y1='46' x2='%.1f' y2='%.1f'%s/>\n", x, x, h - 8,
               i == 0 ? " style='stroke:#222'" : "");
        printf("<text x='%.1f' y='40' text-anchor='middle' class='n'>%g x</text>\n", x, pow(10, i));
    }
}

int chart_file(const char *path)
{
    struct results results;
    double y = 54;

    if (!results_read(path, &results))
        return 2;
    draw_frame(height(&results));
    for (int i = 0; i < results.count; i++) {
        if (chart_is_first(&results, i))
            y = draw_workload(&results, results.all[i].workload, y);
    }
    printf("</svg>\n");
    results_release(&results);
    return 0;
}
