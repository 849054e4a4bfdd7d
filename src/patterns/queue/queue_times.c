#include "patterns/queue/queue_times.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "patterns/queue/queue.h"

const uint32_t truce__queue_steps_ms[QUEUE_TIMES_STEPS] = {
    10, 100, 500, 1000, 5000, 15000, 60000, 300000, 900000, 3600000, 21600000, 86400000};

struct times {
    atomic_uint_fast64_t counts[QUEUE_TIMES_STEPS + 1], sum_ms;
};

static struct times times_waited, times_ran;

static void times_add(struct times *times, int64_t ms)
{
    size_t i = 0;

    if (ms < 0) /* A negative time comes from the clock of another machine. */
        ms = 0;
    while (i < QUEUE_TIMES_STEPS && ms > truce__queue_steps_ms[i])
        i++;
    atomic_fetch_add_explicit(&times->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&times->sum_ms, (uint64_t)ms, memory_order_relaxed);
}

void truce__queue_waited(const truce_job *job)
{
    int64_t created_ms;

    if (job->attempt == 1 && truce__job_date(&job->document, "created", &created_ms))
        times_add(&times_waited, job->since_ms - created_ms);
}

void truce__queue_ran(const truce_job *job)
{
    times_add(&times_ran, truce__clock_wall_ms() - job->since_ms);
}

static void queue_times_copy(struct times *from, struct queue_times *to)
{
    for (size_t i = 0; i <= QUEUE_TIMES_STEPS; i++)
        to->counts[i] = atomic_load_explicit(&from->counts[i], memory_order_relaxed);
    to->sum_ms = atomic_load_explicit(&from->sum_ms, memory_order_relaxed);
}

void truce__queue_times(struct queue_times *waited, struct queue_times *ran)
{
    queue_times_copy(&times_waited, waited);
    queue_times_copy(&times_ran, ran);
}
