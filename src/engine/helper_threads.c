/*
 * Helper threads.
 *
 *     ask ──> queue ──> a sleeping or new thread ──> run ──> sleeping again
 *
 * Two facts show whether a processor is free. First, calls that could use helpers are counted while
 * they run, and so are helpers. A helper starts only while their sum is less than the number of
 * processors, and ends when the sum exceeds that number. Second, other load in this process or on
 * the machine shows when the system preempts a helper (its involuntary context switches). If that
 * happens often, the helper ends, and no helper begins for PAUSE_NS.
 *
 * Threads are created when they are first needed, and joined when the store is closed. The mutex is
 * the last one in the lock order: no thread waits or takes another lock under it.
 */
#include "engine/helper_threads.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

/* The maximum number of free blocks of HELPERS_BLOCK bytes that are kept for later calls. */
#define BLOCKS_KEPT 12
/* After the system has preempted a helper often, no helper starts for this many nanoseconds. */
#define PAUSE_NS 100000000
/* A helper ends if the system has preempted it during more than this number of parts of its work,
 * and during at least a quarter of them. */
#define DISTURBED_MAX 2

struct task {
    void (*run)(void *arg);
    void *arg;
};

struct helpers {
    /* The maximum number of helpers, or -1 for the number of idle processors. */
    int number;
    /* The number of processors that this process may use. */
    unsigned processors;
    /* The calls that could use helpers and are running, and the helpers that have a task. */
    atomic_uint calls, at_work;
    /* No helper starts before this monotonic time. */
    atomic_llong paused_until_ns;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when a task is queued, or the threads must end. */
    pthread_cond_t wanted;
    struct task queue[HELPERS_MAX];
    /* The number of tasks in the queue, of threads that sleep, and of threads that were created. */
    unsigned queued, idle, running;
    /* The threads must end. */
    bool stop;
    /* Free blocks of HELPERS_BLOCK bytes. Owned. */
    uint8_t *blocks[BLOCKS_KEPT];
    unsigned blocks_count;
    pthread_t threads[HELPERS_MAX];
};

truce_status truce__helpers_number(int *number, bson_error_t *error)
{
    const char *set = getenv("TRUCE_HELPERS");

    *number = -1;
    if (!set || !*set)
        return TRUCE_OK;
    if (set[0] < '0' || set[0] > '0' + HELPERS_MAX || set[1])
        return truce__fail(TRUCE_INVALID, error,
                           "TRUCE_HELPERS is \"%s\": expected a number from 0 to %d", set,
                           HELPERS_MAX);
    *number = set[0] - '0';
    return TRUCE_OK;
}

struct helpers *truce__helpers_new(int number)
{
    struct helpers *made = bson_malloc0(sizeof *made);
    cpu_set_t set;

    made->number = number;
    made->processors = sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->wanted, NULL);
    return made;
}

void truce__helpers_free(struct helpers *helpers)
{
    if (!helpers)
        return;
    pthread_mutex_lock(&helpers->mutex);
    helpers->stop = true;
    pthread_cond_broadcast(&helpers->wanted);
    pthread_mutex_unlock(&helpers->mutex);
    for (unsigned i = 0; i < helpers->running; i++)
        pthread_join(helpers->threads[i], NULL);
    for (unsigned i = 0; i < helpers->blocks_count; i++)
        bson_free(helpers->blocks[i]);
    pthread_cond_destroy(&helpers->wanted);
    pthread_mutex_destroy(&helpers->mutex);
    bson_free(helpers);
}

void truce__helpers_lend(struct helpers *helpers, struct buffer *buffer)
{
    uint8_t *block = NULL;

    pthread_mutex_lock(&helpers->mutex);
    if (helpers->blocks_count)
        block = helpers->blocks[--helpers->blocks_count];
    pthread_mutex_unlock(&helpers->mutex);
    *buffer =
        (struct buffer){.bytes = block ? block : bson_malloc(HELPERS_BLOCK), .room = HELPERS_BLOCK};
}

void truce__helpers_take_back(struct helpers *helpers, struct buffer *buffer)
{
    if (!buffer->bytes)
        return;
    pthread_mutex_lock(&helpers->mutex);
    if (helpers->blocks_count < BLOCKS_KEPT) {
        helpers->blocks[helpers->blocks_count++] = buffer->bytes;
        buffer->bytes = NULL;
    }
    pthread_mutex_unlock(&helpers->mutex);
    truce__buffer_release(buffer);
}

void truce__helpers_enter(struct helpers *helpers)
{
    atomic_fetch_add(&helpers->calls, 1);
}

void truce__helpers_leave(struct helpers *helpers)
{
    atomic_fetch_sub(&helpers->calls, 1);
}

/* Runs queued tasks, also while the store is being closed: the caller does not wait for its task,
 * which may own data. */
static void *helpers_run_thread(void *arg)
{
    struct helpers *helpers = arg;

    pthread_mutex_lock(&helpers->mutex);
    while (helpers->queued || !helpers->stop) {
        struct task task;

        if (!helpers->queued) {
            helpers->idle++;
            pthread_cond_wait(&helpers->wanted, &helpers->mutex);
            helpers->idle--;
            continue;
        }
        task = helpers->queue[--helpers->queued];
        pthread_mutex_unlock(&helpers->mutex);
        task.run(task.arg);
        pthread_mutex_lock(&helpers->mutex);
        atomic_fetch_sub(&helpers->at_work, 1);
    }
    pthread_mutex_unlock(&helpers->mutex);
    return NULL;
}

static unsigned helpers_count_busy(const struct helpers *helpers)
{
    return atomic_load(&helpers->calls) + atomic_load(&helpers->at_work);
}

bool truce__helpers_any(const struct helpers *helpers)
{
    unsigned at_work = atomic_load(&helpers->at_work);

    if (helpers->number >= 0)
        return at_work < (unsigned)helpers->number;
    return at_work < HELPERS_MAX && helpers_count_busy(helpers) < helpers->processors &&
           truce__clock_monotonic_ns() >= atomic_load(&helpers->paused_until_ns);
}

/* Finds a thread for a task, or starts one. Returns false if no thread runs. Called under the
 * mutex. If all threads are about to sleep or between two tasks, they find the new task before they
 * sleep. */
static bool find_thread(struct helpers *helpers)
{
    if (helpers->idle > helpers->queued) {
        pthread_cond_signal(&helpers->wanted);
        return true;
    }
    if (helpers->running < HELPERS_MAX &&
        truce__thread_start(&helpers->threads[helpers->running], helpers_run_thread, helpers))
        helpers->running++;
    return helpers->running > 0;
}

bool truce__helpers_run(struct helpers *helpers, void (*run)(void *arg), void *arg)
{
    bool found;

    if (!truce__helpers_any(helpers))
        return false;
    pthread_mutex_lock(&helpers->mutex);
    found = truce__helpers_any(helpers) && helpers->queued < HELPERS_MAX && find_thread(helpers);
    if (found) {
        helpers->queue[helpers->queued++] = (struct task){run, arg};
        atomic_fetch_add(&helpers->at_work, 1);
    }
    pthread_mutex_unlock(&helpers->mutex);
    return found;
}

bool truce__helpers_may_continue(struct helpers *helpers, struct helper_work *work)
{
    struct rusage usage;

    if (helpers->number >= 0)
        return true;
    if (helpers_count_busy(helpers) > helpers->processors)
        return false;
    if (getrusage(RUSAGE_THREAD, &usage))
        return true;
    work->parts++;
    work->disturbed += work->begun && usage.ru_nivcsw != work->switches;
    work->switches = usage.ru_nivcsw;
    work->begun = true;
    if (work->disturbed <= DISTURBED_MAX || work->disturbed * 4 < work->parts)
        return true;
    atomic_store(&helpers->paused_until_ns, truce__clock_monotonic_ns() + PAUSE_NS);
    return false;
}
