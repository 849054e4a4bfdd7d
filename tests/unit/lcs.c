/* Common subsequences: they are ones, they are longest where little is different, and long ones of
 * sequences that differ much. */
#include "merge/lcs.h"

#include <stdlib.h>

#include "base/random.h"
#include "tests/support/test.h"

#define ROOM 40000

struct pair {
    uint32_t a[ROOM], b[ROOM], match[ROOM];
    uint32_t a_count, b_count, bound;
};

/* How many are matched; each pair is equal, and both places rise. */
static uint32_t solve(struct pair *pair)
{
    struct arena arena = ARENA_INIT;
    uint32_t matched = 0, behind = 0;

    truce__lcs(&arena, pair->a, pair->a_count, pair->b, pair->b_count, pair->bound, pair->match);
    for (uint32_t i = 0; i < pair->a_count; i++) {
        if (pair->match[i] == LCS_NONE)
            continue;
        CHECK_INT(pair->match[i], >=, behind);
        if (CHECK_INT(pair->match[i], <, pair->b_count))
            CHECK_INT(pair->a[i], ==, pair->b[pair->match[i]]);
        behind = pair->match[i] + 1;
        matched++;
    }
    truce__arena_release(&arena);
    return matched;
}

/* By the table of all lengths. */
static uint32_t longest(const struct pair *pair)
{
    uint32_t *row = calloc(pair->b_count + 1, sizeof *row), best;

    for (uint32_t i = 0; i < pair->a_count; i++) {
        uint32_t diagonal = 0;

        for (uint32_t k = 0; k < pair->b_count; k++) {
            uint32_t above = row[k + 1];

            row[k + 1] = pair->a[i] == pair->b[k] ? diagonal + 1 : above > row[k] ? above : row[k];
            diagonal = above;
        }
    }
    best = row[pair->b_count];
    free(row);
    return best;
}

static void random_pair(struct random *random, struct pair *pair)
{
    pair->bound = 2 + (uint32_t)truce__random_below(random, 30);
    pair->a_count = (uint32_t)truce__random_below(random, 60);
    pair->b_count = 0;
    for (uint32_t i = 0; i < pair->a_count; i++) {
        pair->a[i] = (uint32_t)truce__random_below(random, pair->bound);
        if (!truce__random_below(random, 5))
            continue;
        if (!truce__random_below(random, 5))
            pair->b[pair->b_count++] = (uint32_t)truce__random_below(random, pair->bound);
        pair->b[pair->b_count++] = pair->a[i];
    }
}

TEST(finds_a_longest_common_subsequence_of_similar_arrays)
{
    static struct pair pair;
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < test_scale("TRUCE_LCS_ROUNDS", 3000) && !test_failures(); i++) {
        random_pair(&random, &pair);
        CHECK_INT(solve(&pair), ==, longest(&pair));
    }
}

/* a: 0, 1, 2 ...; b: without some, with others. */
static void long_pair(struct random *random, struct pair *pair, uint32_t count, uint32_t distinct)
{
    pair->a_count = count;
    pair->b_count = 0;
    pair->bound = ROOM * 2;
    for (uint32_t i = 0; i < count; i++) {
        pair->a[i] = i % distinct;
        if (truce__random_below(random, 10))
            pair->b[pair->b_count++] = pair->a[i];
        if (!truce__random_below(random, 10))
            pair->b[pair->b_count++] = ROOM + i;
    }
}

TEST(distinguishes_many_scattered_differences)
{
    static struct pair pair;
    struct random random;
    uint32_t common;

    truce__random_seed(&random, test_seed());
    long_pair(&random, &pair, 20000, 20000);
    common = 0;
    for (uint32_t i = 0; i < pair.b_count; i++)
        common += pair.b[i] < ROOM;
    CHECK_INT(solve(&pair), ==, common);
    long_pair(&random, &pair, 3000, 50); /* every element occurs more than once */
    CHECK_INT(solve(&pair), >, longest(&pair) * 9 / 10);
}

TEST(finds_matches_after_a_long_insertion)
{
    static struct pair pair = {.bound = ROOM};

    for (uint32_t i = 0; i < 5000; i++)
        pair.a[pair.a_count++] = i;
    for (uint32_t i = 0; i < 2500; i++)
        pair.b[pair.b_count++] = i;
    for (uint32_t i = 0; i < 10000; i++)
        pair.b[pair.b_count++] = 10000 + i;
    for (uint32_t i = 2500; i < 5000; i++)
        pair.b[pair.b_count++] = i != 3000 ? i : 9999;
    CHECK_INT(solve(&pair), ==, 4999);
}

TEST(matches_nothing_without_common_elements)
{
    static struct pair pair = {.bound = ROOM};

    for (uint32_t i = 0; i < 3000; i++) {
        pair.a[pair.a_count++] = i;
        pair.b[pair.b_count++] = 10000 + i;
    }
    CHECK_INT(solve(&pair), ==, 0);
    pair.a_count = 0;
    CHECK_INT(solve(&pair), ==, 0);
}

TEST(matches_a_reversed_sequence_once)
{
    static struct pair pair = {.bound = ROOM};

    for (uint32_t i = 0; i < 2000; i++) {
        pair.a[pair.a_count++] = i;
        pair.b[pair.b_count++] = 1999 - i;
    }
    CHECK_INT(solve(&pair), ==, 1);
}
