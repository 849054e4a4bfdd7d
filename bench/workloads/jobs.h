#ifndef TRUCE_BENCH_JOBS_H
#define TRUCE_BENCH_JOBS_H

/* Declarations that the forms of the job queue share (jobs.c, and jobs_mongo.c for servers of
 * MongoDB's protocol). */
#include "bench/harness.h"

/* The number of jobs that a caller adds if it finds none. */
#define JOBS_BATCH 1000

/* Call jobs_refill_after() if no job is found after jobs_refilled() returned `seen`. It calls
 * `add`, unless another caller has added jobs since then. */
unsigned jobs_refilled(void);
void jobs_refill_after(unsigned seen, void (*add)(void *to), void *to);

void jobs_mongo_setup(struct bench_side *side);
int64_t jobs_mongo_done(struct bench_call *call);
void jobs_mongo_check(struct bench_side *side);

#endif
