#ifndef TRUCE_BENCH_JOBS_H
#define TRUCE_BENCH_JOBS_H

/* What the forms of the job queue (jobs.c) share, and the one for servers of MongoDB's protocol (jobs_mongo.c). */
#include "bench/harness.h"

#define JOBS_BATCH 1000 /* added by who finds none */

/* Who finds no job after jobs_refilled() has said `seen`: unless another has added some since then, `add` adds them. */
unsigned jobs_refilled(void);
void jobs_refill_after(unsigned seen, void (*add)(void *to), void *to);

void jobs_mongo_setup(struct bench_side *side);
int64_t jobs_mongo_done(struct bench_call *call);
void jobs_mongo_check(struct bench_side *side);

#endif
