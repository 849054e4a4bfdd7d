#include "base/random.h"

#include <sys/random.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/environment.h"

__extension__ typedef unsigned __int128 wide;

static uint64_t random_next_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t random_rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

void truce__random_seed(struct random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        random->state[i] = random_next_splitmix64(&seed);
}

uint64_t truce__random_next(struct random *random)
{
    uint64_t *s = random->state;
    uint64_t result = random_rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = random_rotate(s[3], 45);
    return result;
}

uint64_t truce__random_below(struct random *random, uint64_t bound)
{
    truce_assert(bound > 0);
    /* The high half of the 128-bit product is uniform enough: its bias is not measurable. */
    return (uint64_t)(((wide)truce__random_next(random) * bound) >> 64);
}

double truce__random_unit(struct random *random)
{
    return (double)(truce__random_next(random) >> 11) * 0x1.0p-53;
}

uint64_t truce__random_entropy(void)
{
    const struct environment *environment = truce__environment();
    uint64_t seed = 0;

    if (environment)
        return environment->entropy(environment->arg);
    if (getrandom(&seed, sizeof seed, 0) != (long)sizeof seed)
        seed ^= (uint64_t)truce__clock_monotonic_ns();
    return seed;
}
