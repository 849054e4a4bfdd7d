#include "base/budget.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/status.h"

void truce__budget_init(struct budget *budget, int64_t deadline_ns, const int *interrupted)
{
    *budget = (struct budget){.left = BUDGET_STEPS,
                              .clock_ns = truce__clock_monotonic_ns,
                              .deadline_ns = deadline_ns,
                              .interrupted = interrupted};
}

static truce_status budget_end(struct budget *budget, uint32_t code, bson_error_t *error)
{
    budget->left = 0;
    budget->over = code;
    return truce__refuse(code, error, "%s",
                         code == CODE_INTERRUPTED ? "the call was interrupted"
                                                  : "the call exceeded its time limit");
}

static _Thread_local const int *watched;

void truce__budget_watch(const int *flag)
{
    watched = flag;
}

static bool budget_flag_is_set(const int *flag)
{
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED);
}

truce_status truce__budget_check(struct budget *budget, bson_error_t *error)
{
    if (budget->over)
        return budget_end(budget, budget->over, error);
    if (budget_flag_is_set(budget->interrupted) || budget_flag_is_set(budget->above) ||
        budget_flag_is_set(watched))
        return budget_end(budget, CODE_INTERRUPTED, error);
    if (budget->deadline_ns && budget->clock_ns && budget->clock_ns() > budget->deadline_ns)
        return budget_end(budget, CODE_MAX_TIME_MS_EXPIRED, error);
    return TRUCE_OK;
}

uint64_t truce__budget_spent(const struct budget *budget)
{
    return budget->spent + (budget->over ? 0 : BUDGET_STEPS - budget->left);
}

truce_status truce__budget_spend_many(struct budget *budget, uint32_t steps, bson_error_t *error)
{
    budget->spent += (budget->over ? 0 : BUDGET_STEPS - budget->left) + steps;
    budget->left = BUDGET_STEPS;
    return truce__budget_check(budget, error);
}

bool truce__budget_hold(struct budget *budget, size_t before, size_t after)
{
    if (!budget)
        return true;
    truce_assert(budget->memory >= before);
    budget->memory += after - before;
    return !budget->memory_max || budget->memory <= budget->memory_max;
}

truce_status truce__budget_full(const struct budget *budget, bson_error_t *error)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                         "the stages of the pipeline exceed %zu bytes of memory",
                         budget->memory_max);
}
