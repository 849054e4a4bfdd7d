/* Watches: each thing is remembered as long as it is checked, however many exist. */
#include "commit/lease_watch.h"
#include "tests/support/test.h"

#define SECOND INT64_C(1000000000)
#define THINGS 50000

TEST(remembers_every_observed_lease)
{
    struct watches watches = {0};

    for (int64_t round = 1; round <= 5; round++) {
        int64_t wrong = 0;

        for (uint64_t i = 0; i < THINGS; i++)
            wrong += truce__watches_see(&watches, truce__watch_hash(1, &i, sizeof i), 7,
                                        round * 600 * SECOND) != 600 * SECOND;
        CHECK_INT(wrong, ==, 0);
    }
    truce__watches_free(&watches);
}

TEST(begins_again_with_each_state)
{
    struct watches watches = {0};

    CHECK_INT(truce__watches_see(&watches, 0, 1, 5), ==, 5);
    CHECK_INT(truce__watches_see(&watches, 0, 1, 6), ==, 5);
    CHECK_INT(truce__watches_see(&watches, 0, 2, 7), ==, 7);
    CHECK_INT(truce__watches_see(&watches, 0, 1, 8), ==, 8);
    CHECK_INT(watches.count, ==, 1);
    truce__watches_free(&watches);
}

/* New things reuse the places of removed ones, so memory stays small. */
TEST(drops_things_that_are_not_looked_at)
{
    struct watches watches = {0};

    for (uint64_t i = 1; i < 100 * THINGS; i++)
        (void)truce__watches_see(&watches, truce__watch_hash(1, &i, sizeof i), 7,
                                 (int64_t)i * SECOND / 10);
    CHECK_INT(watches.size, <=, 1 << 17);
    truce__watches_free(&watches);
}

/* A full table accepts no new thing, and loses none. */
TEST(forgets_nothing_when_it_is_full)
{
    struct watches watches = {0};
    uint64_t first = 1;

    for (uint64_t i = 1; i < 1200000; i++)
        (void)truce__watches_see(&watches, truce__watch_hash(1, &i, sizeof i), 7, SECOND);
    CHECK_INT(watches.size, ==, 1 << 20);
    CHECK_INT(
        truce__watches_see(&watches, truce__watch_hash(1, &first, sizeof first), 7, 9 * SECOND), ==,
        SECOND);
    first = 1199999;
    CHECK_INT(
        truce__watches_see(&watches, truce__watch_hash(1, &first, sizeof first), 7, 9 * SECOND), ==,
        9 * SECOND);
    truce__watches_free(&watches);
}
