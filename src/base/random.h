#ifndef TRUCE_BASE_RANDOM_H
#define TRUCE_BASE_RANDOM_H

/*
 * Pseudo-random numbers (xoshiro256**, Blackman and Vigna 2018). A seed determines the sequence.
 * They serve jitter, tests, and $sample; never secrets.
 */
#include <stdint.h>

struct random {
    uint64_t state[4];
};

void truce__random_seed(struct random *random, uint64_t seed);
uint64_t truce__random_next(struct random *random);
/* Returns a uniform number from 0 to bound - 1; bound > 0. */
uint64_t truce__random_below(struct random *random, uint64_t bound);
/* Returns a uniform number in [0, 1). */
double truce__random_unit(struct random *random);

/* Returns a random number of the system, or of the thread's environment. */
uint64_t truce__random_entropy(void);

#endif
