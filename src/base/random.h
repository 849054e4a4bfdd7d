#ifndef TRUCE_BASE_RANDOM_H
#define TRUCE_BASE_RANDOM_H

/*
 * Repeatable pseudo-random numbers (xoshiro256**, Blackman and Vigna 2018): one seed, one sequence.
 * For jitter, tests and $sample; never for secrets.
 */
#include <stdint.h>

struct random {
    uint64_t state[4];
};

void truce__random_seed(struct random *random, uint64_t seed);
uint64_t truce__random_next(struct random *random);
/* uniform in 0 .. bound - 1; bound > 0 */
uint64_t truce__random_below(struct random *random, uint64_t bound);
/* uniform in [0, 1) */
double truce__random_unit(struct random *random);

/* A seed from the system, different for each call. */
uint64_t truce__random_entropy(void);

#endif
