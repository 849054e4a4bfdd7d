#ifndef TRUCE_BENCH_DOCUMENTS_H
#define TRUCE_BENCH_DOCUMENTS_H

/*
 * The documents of the scoreboard, the same on every target:
 *
 *     truce                {_id: 17, counter: 0, group: 17, owner: "person 17", text: "..."}
 *     postgresql, sqlite   a row (id, counter, grp, owner, text) of the table documents
 *     redis                a hash d:17
 *     mongodb              as truce
 *
 * Counters begin at 0.
 */
#include "bench/document.h"
#include "bench/harness.h"

#define DOCUMENTS documents_wanted()
#define IN_GROUP  20 /* documents of one group */

int64_t documents_wanted(void);
/* Before any side starts: 20,000 otherwise, or 2,000 where bench_small. */
void documents_want(int64_t count);

/* Setups: documents 0 .. DOCUMENTS-1. */
void documents_setup(struct bench_side *side);
/* creates the collection without documents */
void documents_setup_none(struct bench_side *side);
/* the same, with an index on group */
void documents_setup_indexed(struct bench_side *side);

/* The check of most workloads: all documents exist, including the inserted ones, and the sum of
 * their counters equals the number of operations. */
void documents_check(struct bench_side *side);

/* Another number than `id`. */
int64_t documents_other(int64_t id);

#endif
