#ifndef TRUCE_BENCH_COMPARE_H
#define TRUCE_BENCH_COMPARE_H

/* Functions on the JSON of runs. Each returns the exit code. */

/* Prints the figures that differ beyond noise: the ranges of their rounds do not overlap, and the
 * medians differ by 5 %. Returns 0 if no figure differs, 1 if some do, 2 if a file cannot be
 * read. */
int compare_files(const char *before, const char *after);

/* Prints an SVG with the ratio of truce's rate to each peer's, at 1 and at 32 callers. */
int chart_file(const char *path);

/* Print Markdown tables of a run: all figures, the rates, or the comparison with PostgreSQL. */
int markdown_file(const char *path);
int markdown_main(const char *path);
int markdown_short(const char *path);
/* Print Markdown tables of servers, of `truce serve`, or of the benchmark of growth. */
int markdown_servers(const char *path);
int markdown_serve(const char *path);
int markdown_growth(const char *path);

/* Prints the lines of all runs in which a durable peer is faster, in the order of the ratio. A path
 * that contains "growth" has the figures of bench/growth.c. */
int behind_files(char *const paths[], int count);

#endif
