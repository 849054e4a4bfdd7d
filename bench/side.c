/*
 * A side: one workload on one target, in a process of its own, so that its processor time, memory
 * and bytes written are its own, and what goes wrong in it ends it and nothing else.
 *
 *     harness                          side
 *       fork  ------------------------>  open the target, set the workload up
 *       order RUN, callers, seconds -->  threads; all callers begin at once, and stop at once
 *             <-- answer --------------  the round, in shared memory
 *       order CHECK ------------------>  the workload's check
 *             <-- answer --------------
 *       order END -------------------->  close, exit
 *
 * A side that ends without an answer has failed; why it did is in the shared memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/harness.h"

enum order_kind { RUN, CHECK, END };

struct order {
    enum order_kind kind;
    int callers;
    double seconds;
};

/* what the two processes share */
struct shared {
    struct bench_round round;
    char version[100], settings[300];
};

struct side_process {
    pid_t pid;
    int orders, answers; /* pipes */
    struct shared *shared;
};

/* ---- callers --------------------------------------------------------------------------------- */

struct crowd {
    struct bench_side *side;
    atomic_bool stop;
    pthread_barrier_t start;
};

struct caller {
    struct crowd *crowd;
    pthread_t thread;
    int number;
    int64_t operations, calls;
    struct histogram latencies;
};

static void *call_often(void *arg)
{
    struct caller *caller = arg;
    struct crowd *crowd = caller->crowd;
    struct bench_call call = {.side = crowd->side,
                              .caller = caller->number,
                              .connection = crowd->side->connections[caller->number]};
    uint64_t before;

    pthread_barrier_wait(&crowd->start);
    before = bench_now_ns();
    while (!atomic_load_explicit(&crowd->stop, memory_order_relaxed)) {
        uint64_t after;

        caller->operations += crowd->side->form->operate(&call);
        after = bench_now_ns();
        histogram_add(&caller->latencies, after - before);
        before = after;
        call.turn++;
    }
    return NULL;
}

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};

    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* The mean interval of a caller's calls is what a steady arrival would have been. */
static void add_caller(const struct caller *caller, double seconds, struct bench_round *round)
{
    uint64_t interval = 0;

    if (caller->latencies.total > 0)
        interval = (uint64_t)(seconds * 1e9 / (double)caller->latencies.total);
    histogram_merge(&round->latencies, &caller->latencies, interval);
    round->operations += caller->operations;
}

static void run_round(struct bench_side *side, const struct order *order, struct bench_round *round)
{
    struct crowd crowd = {.side = side};
    struct caller *all = bson_malloc0((size_t)order->callers * sizeof *all);
    struct usage before, after;
    double began;

    memset(round, 0, sizeof *round);
    pthread_barrier_init(&crowd.start, NULL, (unsigned)order->callers + 1);
    for (int i = 0; i < order->callers; i++) {
        all[i].crowd = &crowd;
        all[i].number = i;
        BENCH_CHECK(pthread_create(&all[i].thread, NULL, call_often, &all[i]) == 0);
    }
    usage_take(side->target->server, false, &before);
    pthread_barrier_wait(&crowd.start);
    began = bench_now();
    sleep_seconds(order->seconds);
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < order->callers; i++)
        pthread_join(all[i].thread, NULL);
    round->seconds = bench_now() - began;
    usage_take(side->target->server, true, &after);
    for (int i = 0; i < order->callers; i++)
        add_caller(&all[i], round->seconds, round);
    side->operations += round->operations;
    round->used = (struct usage){.cpu_seconds = after.cpu_seconds - before.cpu_seconds,
                                 .bytes_written = after.bytes_written - before.bytes_written,
                                 .memory = after.memory};
    pthread_barrier_destroy(&crowd.start);
    bson_free(all);
}

/* ---- the side's process ---------------------------------------------------------------------- */

static void answer(int answers)
{
    BENCH_CHECK(write(answers, "", 1) == 1);
}

static _Noreturn void be_side(struct bench_side *side, struct shared *shared, int orders,
                              int answers)
{
    struct order order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_fail_into(shared->round.why, sizeof shared->round.why);
    side->connections = bson_malloc0((size_t)side->callers_max * sizeof *side->connections);
    side->state = bson_malloc0(side->workload->state_size + 1);
    side->target->kind->open(side);
    snprintf(shared->version, sizeof shared->version, "%s", side->target->version);
    snprintf(shared->settings, sizeof shared->settings, "%s", side->target->settings);
    side->form->setup(side);
    answer(answers);
    while (read(orders, &order, sizeof order) == sizeof order && order.kind != END) {
        if (order.kind == RUN)
            run_round(side, &order, &shared->round);
        else
            side->form->check(side);
        answer(answers);
    }
    side->target->kind->close(side);
    bson_free(side->state);
    bson_free(side->connections);
    _exit(0);
}

/* ---- the harness's end ----------------------------------------------------------------------- */

static bool answered(struct side_process *side, char *why, size_t size)
{
    char byte;

    if (read(side->answers, &byte, 1) == 1)
        return true;
    if (!side->shared->round.why[0])
        snprintf(side->shared->round.why, sizeof side->shared->round.why, "its process ended");
    snprintf(why, size, "%s", side->shared->round.why);
    return false;
}

static bool send_order(struct side_process *side, const struct order *order)
{
    return write(side->orders, order, sizeof *order) == sizeof *order;
}

bool side_start(const struct bench_workload *workload, const struct bench_form *form,
                struct bench_target *target, int callers_max, struct side_process **made, char *why,
                size_t size)
{
    struct bench_side own = {
        .workload = workload, .form = form, .target = target, .callers_max = callers_max};
    struct side_process *side = bson_malloc0(sizeof *side);
    int orders[2], answers[2];

    BENCH_CHECK(pipe2(orders, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    side->shared =
        mmap(NULL, sizeof *side->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BENCH_CHECK(side->shared != MAP_FAILED);
    fflush(NULL);
    side->pid = fork();
    BENCH_CHECK(side->pid >= 0);
    if (side->pid == 0) {
        close(orders[1]);
        close(answers[0]);
        be_side(&own, side->shared, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    side->orders = orders[1];
    side->answers = answers[0];
    *made = side;
    if (!answered(side, why, size))
        return false;
    memcpy(target->version, side->shared->version, sizeof target->version);
    memcpy(target->settings, side->shared->settings, sizeof target->settings);
    return true;
}

bool side_run(struct side_process *side, int callers, double seconds,
              const struct bench_round **round)
{
    const struct order order = {RUN, callers, seconds};
    char why[300];

    *round = &side->shared->round;
    return send_order(side, &order) && answered(side, why, sizeof why);
}

bool side_check(struct side_process *side, char *why, size_t size)
{
    const struct order order = {.kind = CHECK};

    return send_order(side, &order) && answered(side, why, size);
}

void side_end(struct side_process *side)
{
    const struct order order = {.kind = END};
    int status;

    if (!side)
        return;
    (void)send_order(side, &order); /* one that has ended already needs none */
    close(side->orders);
    close(side->answers);
    waitpid(side->pid, &status, 0);
    munmap(side->shared, sizeof *side->shared);
    bson_free(side);
}
