#ifndef TRUCE_BENCH_BASELINE_H
#define TRUCE_BENCH_BASELINE_H

/*
 * The baseline: what one would write with SQLite and no further thought. WAL, synchronous=FULL, a
 * connection for each caller, one transaction for each operation (begun IMMEDIATE where it writes).
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

struct baseline;

/* `callers` connections to a fresh file. */
struct baseline *baseline_open(const char *path, int callers);
void baseline_close(struct baseline *b);

/* documents 0 .. count-1 in one transaction */
void baseline_fill(struct baseline *b, int64_t count);
/* the body of one document into `body` (300 bytes); its counter */
int64_t baseline_read(struct baseline *b, int caller, int64_t id);
void baseline_insert(struct baseline *b, int caller, int64_t id);
/* begin, read, add one to the counter, write, commit */
void baseline_increment(struct baseline *b, int caller, int64_t id);
/* one less in one counter and one more in another, in one transaction */
void baseline_move(struct baseline *b, int caller, int64_t from, int64_t to);
int64_t baseline_count(struct baseline *b);
int64_t baseline_sum(struct baseline *b);

/* set operations: the element's row is written if the number is higher; all in one transaction */
struct baseline_operation {
    int64_t set, name, seq;
    bool remove;
};
void baseline_apply(struct baseline *b, int caller, const struct baseline_operation *operations,
                    int count);
/* the row of one element: seq * 2 + removed; 0: none */
int64_t baseline_element(struct baseline *b, int64_t set, int64_t name);

#endif
