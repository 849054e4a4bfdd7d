#include "sim/fiber.h"

#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <bson/bson.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "commit/commit.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES ((size_t)512 * 1024)
/* The maximum number of stacks that a thread keeps. */
#define SPARE_MAX 16

/* The stacks of fibers that ended. They are reused, because an mmap takes longer than a run of the
 * simulator. */
static _Thread_local void *spare[SPARE_MAX];
static _Thread_local int spares;
static _Thread_local struct fiber *running;

/* A function with a stack of its own. */
struct fiber {
    /* The contexts of the fiber and of the code that resumed it. */
    ucontext_t self, resumer;
    void *stack;
    void (*function)(void *arg);
    void *arg;
    /* The function has returned. */
    bool returned;
    /* The deadline of the thread while the fiber does not run (base/deadline.h). `at_work` is the
     * commit whose function the fiber runs (commit.h). */
    int64_t deadline_ns;
    truce_commit *at_work;
#ifdef WITH_ASAN
    void *fake_self, *fake_resumer;
    const void *resumer_bottom;
    size_t resumer_size;
#endif
};

/* Announces the current stack to the address sanitizer. */
static void leaving_resumer(struct fiber *fiber)
{
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_resumer, fiber->stack, STACK_BYTES);
#else
    (void)fiber;
#endif
}

static void back_in_resumer(struct fiber *fiber)
{
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_resumer, NULL, NULL);
#else
    (void)fiber;
#endif
}

static void entered_fiber(struct fiber *fiber)
{
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_self, &fiber->resumer_bottom, &fiber->resumer_size);
#else
    (void)fiber;
#endif
}

static void leaving_fiber(struct fiber *fiber, bool for_good)
{
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &fiber->fake_self, fiber->resumer_bottom,
                                   fiber->resumer_size);
#else
    (void)fiber;
    (void)for_good;
#endif
}

static void fiber_start(void)
{
    struct fiber *fiber = running;

    entered_fiber(fiber);
    fiber->function(fiber->arg);
    fiber->returned = true;
    leaving_fiber(fiber, true);
    swapcontext(&fiber->self, &fiber->resumer);
}

struct fiber *truce__fiber_new(void (*function)(void *arg), void *arg)
{
    struct fiber *fiber = bson_malloc0(sizeof *fiber);

    fiber->function = function;
    fiber->arg = arg;
    if (spares > 0) {
        fiber->stack = spare[--spares];
    } else {
        fiber->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        truce_assert(fiber->stack != MAP_FAILED);
    }
    truce_assert(getcontext(&fiber->self) == 0);
    fiber->self.uc_stack.ss_sp = fiber->stack;
    fiber->self.uc_stack.ss_size = STACK_BYTES;
    fiber->self.uc_link = NULL;
    makecontext(&fiber->self, fiber_start, 0);
    return fiber;
}

/* Exchanges the deadline and the commit of the thread with those of the fiber. Runs before the
 * fiber runs, and again when it stops. */
static void exchange_own(struct fiber *fiber)
{
    fiber->deadline_ns = truce__deadline_set(fiber->deadline_ns);
    fiber->at_work = truce__journal_work_set(fiber->at_work);
}

bool truce__fiber_resume(struct fiber *fiber)
{
    truce_assert(!running && !fiber->returned);
    running = fiber;
    exchange_own(fiber);
    leaving_resumer(fiber);
    truce_assert(swapcontext(&fiber->resumer, &fiber->self) == 0);
    back_in_resumer(fiber);
    exchange_own(fiber);
    running = NULL;
    return fiber->returned;
}

void truce__fiber_yield(void)
{
    struct fiber *fiber = running;

    truce_assert(fiber);
    leaving_fiber(fiber, false);
    truce_assert(swapcontext(&fiber->self, &fiber->resumer) == 0);
    entered_fiber(fiber);
}

void truce__fiber_free(struct fiber *fiber)
{
    truce_assert(fiber->returned);
    if (spares < SPARE_MAX)
        spare[spares++] = fiber->stack;
    else
        munmap(fiber->stack, STACK_BYTES);
    bson_free(fiber);
}
