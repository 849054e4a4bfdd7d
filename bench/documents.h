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
#define IN_GROUP  20 /* The number of documents of a group. */

int64_t documents_wanted(void);
/* Sets the number of documents, before any side starts. The default is 20,000, or 2,000 if
 * bench_small is set. */
void documents_want(int64_t count);

/* A setup that creates documents 0 to DOCUMENTS - 1. */
void documents_setup(struct bench_side *side);
/* A setup that creates the collection without documents. */
void documents_setup_none(struct bench_side *side);
/* The same as documents_setup, with an index on the group. */
void documents_setup_indexed(struct bench_side *side);

/* The check of most workloads. All documents exist, including the inserted ones, and the sum of
 * their counters equals the number of changes. */
void documents_check(struct bench_side *side);

/* Returns a random document number that differs from `id`. */
int64_t documents_other(int64_t id);

#endif
