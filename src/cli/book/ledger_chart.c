/*
 * Draws a report as a picture (SVG). All coordinates are whole numbers, so the same book gives the
 * same bytes everywhere.
 *
 *     periods    one line for each account, through its balance at the end of each period
 *     metadata   one bar for each account in each group: the change.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/ledger/ledger_report.h"

#define LEFT   120
#define TOP    20
#define WIDTH  640
#define HEIGHT 300
/* The height of the area below the picture, with the labels of the groups and the names of the
 * accounts. */
#define LEGEND 40

struct chart {
    const struct report *report;
    struct buffer *out;

    uint32_t group_count, line_count;
    /* lines[i]: a cell of account i, which has its name. */
    const struct report_cell *lines[REPORT_LINES_MAX];
    /* The least and the greatest value of the picture, in units of the last of `digits` decimal
     * digits. */
    int64_t low, high;
    int digits;
};

static const char *const colours[REPORT_LINES_MAX] = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                                      "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
                                                      "#bcbd22", "#17becf", "#000000", "#aec7e8"};

TRUCE_PRINTF(2, 3) static void chart_add(struct chart *chart, const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    truce__buffer_append(chart->out, text, strlen(text));
}

static void add_text(struct chart *chart, const char *text)
{
    for (; *text; text++) {
        if (strchr("&<>\"'", *text))
            chart_add(chart, "&#%d;", *text);
        else
            truce__buffer_append_byte(chart->out, (uint8_t)*text < ' ' ? ' ' : (uint8_t)*text);
    }
}

/* ---- accounts ------------------------------------------------------------------------------- */

static uint32_t chart_line_of(const struct chart *chart, const struct report_cell *cell)
{
    uint32_t line = 0;

    while (line < chart->line_count && strcmp(chart->lines[line]->account, cell->account) != 0)
        line++;
    return line;
}

/* Finds the accounts, the number of groups, and the range of the values. Fails as report_draw
 * does. */
static truce_status chart_find_range(struct chart *chart, bson_error_t *error)
{
    const struct report *report = chart->report;

    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];
        int64_t value = report->periods ? cell->balance : cell->change;

        if (strcmp(cell->currency, report->cells[0].currency) != 0)
            return truce__fail(
                TRUCE_INVALID, error,
                "a picture shows one currency, but the accounts have %s and %s: select accounts of "
                "one currency with PREFIX",
                report->cells[0].currency, cell->currency);
        if (!i || strcmp(cell->group, report->cells[i - 1].group) != 0)
            chart->group_count++;
        if (chart_line_of(chart, cell) == chart->line_count) {
            if (chart->line_count == REPORT_LINES_MAX)
                return truce__fail(TRUCE_LIMIT, error,
                                   "a picture shows at most %d accounts: give a PREFIX, or --depth",
                                   REPORT_LINES_MAX);
            chart->lines[chart->line_count++] = cell;
        }
        chart->low = value < chart->low ? value : chart->low;
        chart->high = value > chart->high ? value : chart->high;
    }
    chart->high += chart->high == chart->low;
    chart->digits = report->count ? report->cells[0].digits : 0;
    return TRUCE_OK;
}

/* ---- drawing -------------------------------------------------------------------------------- */

static int height_of(const struct chart *chart, int64_t value)
{
    __int128 range = (__int128)chart->high - chart->low;

    return TOP + (int)(((__int128)chart->high - value) * HEIGHT / range);
}

/* Returns the x coordinate of the middle of a group. */
static int middle_of(const struct chart *chart, uint32_t group)
{
    return LEFT + (int)((2 * (uint64_t)group + 1) * WIDTH / (2 * (uint64_t)chart->group_count));
}

static void draw_level(struct chart *chart, int64_t value)
{
    char amount[TRUCE_LEDGER_AMOUNT];
    int y = height_of(chart, value);

    chart_add(chart, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ccc\"/>\n", LEFT, y,
              LEFT + WIDTH, y);
    chart_add(chart, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT - 6, y + 4,
              truce_ledger_show(value, chart->digits, amount));
}

/* Writes the names of the groups below the picture. If there are more than eight, names in between
 * are left out. */
static void draw_groups(struct chart *chart)
{
    const struct report *report = chart->report;
    uint32_t group = 0, every = (chart->group_count + 7) / 8;

    for (uint32_t i = 0; i < report->count; i++) {
        if (i && !strcmp(report->cells[i].group, report->cells[i - 1].group))
            continue;
        if (group % every == 0) {
            chart_add(chart, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                      middle_of(chart, group), TOP + HEIGHT + 18);
            add_text(chart, report->cells[i].group);
            chart_add(chart, "</text>\n");
        }
        group++;
    }
}

/* Draws a line. A group in which nothing changed keeps the balance. */
static void draw_line(struct chart *chart, uint32_t line)
{
    const struct report *report = chart->report;
    uint32_t group = 0, i = 0;
    int64_t balance = 0;

    chart_add(chart, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"",
              colours[line]);
    while (i < report->count) {
        const char *name = report->cells[i].group;

        for (; i < report->count && !strcmp(report->cells[i].group, name); i++) {
            if (chart_line_of(chart, &report->cells[i]) == line)
                balance = report->cells[i].balance;
        }
        chart_add(chart, "%s%d,%d", group ? " " : "", middle_of(chart, group),
                  height_of(chart, balance));
        group++;
    }
    chart_add(chart, "\"/>\n");
}

/* Draws a bar for each cell, next to those of the same group. Negative changes go down from
 * zero. */
static void draw_bars(struct chart *chart)
{
    const struct report *report = chart->report;
    int wide = WIDTH / (int)(chart->group_count * (chart->line_count + 1));
    uint32_t group = 0;

    wide = wide ? wide : 1;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct report_cell *cell = &report->cells[i];
        uint32_t line = chart_line_of(chart, cell);
        int y = height_of(chart, cell->change), zero = height_of(chart, 0);

        group += i && strcmp(cell->group, report->cells[i - 1].group) != 0;
        chart_add(chart, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n",
                  middle_of(chart, group) + wide * (2 * (int)line - (int)chart->line_count) / 2,
                  y < zero ? y : zero, wide, y < zero ? zero - y : y - zero, colours[line]);
    }
}

static void draw_names(struct chart *chart)
{
    for (uint32_t line = 0; line < chart->line_count; line++) {
        int y = TOP + HEIGHT + LEGEND + 18 * (int)line;

        chart_add(chart, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT,
                  y - 10, colours[line]);
        chart_add(chart, "<text x=\"%d\" y=\"%d\">", LEFT + 18, y);
        add_text(chart, chart->lines[line]->account);
        chart_add(chart, " (%s)</text>\n", chart->lines[line]->currency);
    }
}

truce_status report_draw(const struct report *report, struct buffer *out, bson_error_t *error)
{
    struct chart chart = {.report = report, .out = out};
    truce_status status = chart_find_range(&chart, error);

    if (status)
        return status;
    chart_add(&chart,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
              "font-family=\"sans-serif\" font-size=\"12\">\n"
              "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
              LEFT + WIDTH + 40, TOP + HEIGHT + LEGEND + 18 * (int)chart.line_count + 10);
    if (report->count) {
        draw_level(&chart, chart.low);
        if (chart.low < 0 && chart.high > 0)
            draw_level(&chart, 0);
        draw_level(&chart, chart.high);
        draw_groups(&chart);
    }
    for (uint32_t line = 0; report->periods && line < chart.line_count; line++)
        draw_line(&chart, line);
    if (!report->periods && report->count)
        draw_bars(&chart);
    draw_names(&chart);
    chart_add(&chart, "</svg>\n");
    return TRUCE_OK;
}
