#include "base/backoff.h"

#include "base/clock.h"
#include "tests/support/no_sleep.h"
#include "tests/support/test.h"

/* The longest of many pauses. */
static int64_t longest(uint32_t retry, uint32_t first_ms, uint32_t max_ms)
{
    int64_t most = 0;

    for (int i = 0; i < 2000; i++) {
        int64_t pause_ms = truce__backoff_ms(retry, first_ms, max_ms);

        CHECK(pause_ms >= 0);
        most = pause_ms > most ? pause_ms : most;
    }
    return most;
}

TEST(the_limit_doubles_up_to_the_maximum)
{
    no_sleep_use();
    CHECK_INT(longest(0, 1, 64), ==, 0);
    CHECK_INT(longest(0, 2, 64), ==, 1);
    CHECK_INT(longest(3, 2, 64), ==, 15);
    CHECK_INT(longest(5, 2, 64), ==, 63);
    CHECK_INT(longest(6, 2, 64), ==, 63);
    CHECK_INT(longest(40, 2, 64), ==, 63);
    CHECK_INT(longest(UINT32_MAX, UINT32_MAX, 20), ==, 19);
    CHECK_INT(longest(3, 0, 20), ==, 0);
    truce__environment_use(NULL);
}

TEST(sleeps_for_less_than_the_limit)
{
    int64_t begin_ms, slept_ms = 0;

    no_sleep_use();
    for (int i = 0; i < 100; i++) {
        begin_ms = truce__clock_wall_ms();
        truce__backoff_sleep(2, 5, 100);
        CHECK(truce__clock_wall_ms() - begin_ms < 20);
        slept_ms += truce__clock_wall_ms() - begin_ms;
    }
    CHECK(slept_ms > 0);
    truce__environment_use(NULL);
}
