#include "base/random.h"

#include "tests/support/test.h"

TEST(generates_one_sequence_from_one_seed)
{
    struct random a, b;

    truce__random_seed(&a, 42);
    truce__random_seed(&b, 42);
    for (int i = 0; i < 1000; i++)
        CHECK(truce__random_next(&a) == truce__random_next(&b));
}

TEST(numbers_stay_below_their_bound_and_reach_every_value)
{
    struct random random;
    int seen[7] = {0};

    truce__random_seed(&random, 1);
    for (int i = 0; i < 7000; i++)
        seen[truce__random_below(&random, 7)]++;
    for (int i = 0; i < 7; i++)
        CHECK_INT(seen[i], >, 800);
}
