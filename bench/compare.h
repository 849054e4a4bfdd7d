#ifndef TRUCE_BENCH_COMPARE_H
#define TRUCE_BENCH_COMPARE_H

/* What is done with the JSON of runs. Both answer the exit code. */

/* Which figures differ beyond noise: the ranges of their rounds do not meet, and the medians are 5 %
 * apart. 0: none does; 1: some do; 2: a file cannot be read. */
int compare_files(const char *before, const char *after);

/* An SVG of how many times each peer's rate truce's is, at 1 and at 32 callers. */
int chart_file(const char *path);

/* Tables in Markdown (markdown.c): of a run, of it the rates alone, of it beside PostgreSQL alone, of one beside servers, of
 * `truce serve`, of one of bench/growth.c. */
int markdown_file(const char *path);
int markdown_main(const char *path);
int markdown_short(const char *path);
int markdown_servers(const char *path);
int markdown_serve(const char *path);
int markdown_growth(const char *path);

#endif
