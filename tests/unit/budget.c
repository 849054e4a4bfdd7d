#include "base/budget.h"

#include "base/status.h"
#include "tests/support/test.h"

static int64_t now_ns;
static int looks;

static int64_t test_clock(void)
{
    looks++;
    return now_ns;
}

static struct budget until(int64_t deadline_ns, const int *interrupted)
{
    struct budget budget;

    truce__budget_init(&budget, deadline_ns, interrupted);
    budget.clock_ns = test_clock;
    now_ns = looks = 0;
    return budget;
}

TEST(the_clock_is_looked_at_once_in_so_many_steps)
{
    struct budget budget = until(100, NULL);
    bson_error_t error;

    for (uint32_t i = 0; i < 10 * BUDGET_STEPS; i++)
        REQUIRE(!truce__budget_spend(&budget, 1, &error));
    CHECK_INT(looks, ==, 10);
    CHECK_INT((intmax_t)truce__budget_spent(&budget), ==, 10 * BUDGET_STEPS);
    CHECK_OK(truce__budget_spend(&budget, 1000000, &error), error);
    CHECK_INT(looks, ==, 11);
    CHECK_INT((intmax_t)truce__budget_spent(&budget), ==, 1000000 + 10 * BUDGET_STEPS);
}

TEST(keeps_an_exhausted_budget_exhausted)
{
    struct budget budget = until(100, NULL);
    bson_error_t error;

    now_ns = 100;
    CHECK_OK(truce__budget_check(&budget, &error), error);
    now_ns = 101;
    CHECK_OK(truce__budget_spend(&budget, BUDGET_STEPS - 1, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__budget_spend(&budget, 1, &error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    now_ns = 0;
    CHECK_STATUS(TRUCE_TIMEOUT, truce__budget_spend(&budget, 1, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__budget_check(&budget, &error), error);
}

TEST(ends_a_budget_without_a_deadline_at_an_interrupt)
{
    int interrupted = 0;
    struct budget budget = until(0, &interrupted);
    bson_error_t error;

    CHECK_OK(truce__budget_spend(&budget, 3 * BUDGET_STEPS, &error), error);
    interrupted = 1;
    CHECK_STATUS(TRUCE_TIMEOUT, truce__budget_spend(&budget, BUDGET_STEPS, &error), error);
    CHECK_INT(error.code, ==, CODE_INTERRUPTED);
    CHECK_TEXT("Interrupted", truce_error_name(error.code));
    interrupted = 0;
    CHECK_STATUS(TRUCE_TIMEOUT, truce__budget_spend(&budget, 1, &error), error);
    CHECK_INT(error.code, ==, CODE_INTERRUPTED);
    CHECK_INT(looks, ==, 0);
}

TEST(memory_is_counted_for_all_together)
{
    struct budget budget = until(0, NULL);
    bson_error_t error;

    budget.memory_max = 1000;
    CHECK(truce__budget_hold(&budget, 0, 600));
    CHECK(truce__budget_hold(&budget, 0, 400));
    CHECK(!truce__budget_hold(&budget, 400, 401));
    CHECK_STATUS(TRUCE_LIMIT, truce__budget_full(&budget, &error), error);
    CHECK(truce__budget_hold(&budget, 600, 0));
    CHECK_INT((intmax_t)budget.memory, ==, 401);
    CHECK(truce__budget_hold(NULL, 0, SIZE_MAX));
    CHECK_OK(truce__budget_spend(NULL, UINT32_MAX, &error), error);
}
