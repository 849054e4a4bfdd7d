#ifndef TRUCE_TESTS_SUPPORT_STEPS_H
#define TRUCE_TESTS_SUPPORT_STEPS_H

/* What work costs, counted in steps of a budget, which knows no clock. */
#include "base/arena.h"
#include "base/budget.h"
#include "query/context.h"

struct work {
    struct budget budget;
    struct arena arena;
    struct query_context context;
};

static inline void begin(struct work *work)
{
    *work = (struct work){0};
    truce__budget_init(&work->budget, 0, NULL);
    work->context = (struct query_context){.arena = &work->arena, .budget = &work->budget};
}

static inline uint64_t end(struct work *work)
{
    truce__arena_release(&work->arena);
    return truce__budget_spent(&work->budget);
}

#endif
