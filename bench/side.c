/*
 * A side: one workload on one target, in a process of its own. Its processor time, memory, and
 * written bytes can therefore be measured alone, and a failure ends only this process.
 *
 *     harness                          side
 *       fork  ------------------------>  open the target, set the workload up
 *       order RUN, callers, seconds -->  callers; all begin at once, and stop at once
 *             <-- reply ---------------  the round, in shared memory
 *       order CHECK ------------------>  the workload's check
 *             <-- reply ---------------
 *       order END -------------------->  close, exit
 *
 * Callers are threads of the side, or (bench_processes) processes that it forks after the setup.
 * Each has one connection of its own. It waits for a byte to begin a round, and sends a byte at its
 * end.
 *
 * A side that ends without a reply has failed; the reason is in the shared memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/harness.h"

/* The timeout of an order. The setup of ten million documents takes less. */
#define PATIENCE_SECONDS 1800
/* The timeout for servers in seconds. A server with MongoDB's protocol may hang. */
#define PATIENCE_OF_SERVERS 30

bool bench_small;
bool bench_processes;

enum order_kind { RUN, CHECK, SPOIL, SIZE, END };

struct order {
    enum order_kind kind;
    int callers;
    double seconds;
    const struct bench_workload *workload; /* The same address in both processes. */
    const struct bench_form *form;
};

struct crowd {
    atomic_bool stop;
    pthread_barrier_t start;
};

/* The results of a caller in a round. */
struct tally {
    int64_t operations;
    struct histogram latencies;
};

/* The memory that all processes share. */
struct shared {
    struct bench_round round;
    char version[100], settings[300];
    bool not_durable;
    int64_t data_bytes, log_bytes;
    struct crowd crowd;
    struct tally tallies[BENCH_CALLERS_MAX];
};

struct side_process {
    pid_t pid;
    int orders, answers; /* The pipes to and from the side. */
    struct shared *shared;
    const struct bench_workload *workload;
    const struct bench_form *form;
    bool may_stand_still;
};

/* A caller, in the side. */
struct caller {
    struct bench_side *side;
    struct shared *shared;
    int number;
    pthread_t thread;
    int orders, answers; /* The pipes to and from the caller's process. */
    bool joined;         /* The process has everything that it needs. */
};

static void *map_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    BENCH_CHECK(memory != MAP_FAILED);
    return memory;
}

_Noreturn void side_cannot(const char *why)
{
    bench_cannot(SIDE_CANNOT, why);
}

/* ---- callers --------------------------------------------------------------------------------- */

/* Calls the operation until the crowd stops. Each call is timed from the end of the previous
 * one. */
static void *call_often(void *arg)
{
    struct caller *caller = arg;
    struct bench_side *side = caller->side;
    struct crowd *crowd = &caller->shared->crowd;
    struct tally *tally = &caller->shared->tallies[caller->number];
    struct bench_call call = {.side = side,
                              .caller = caller->number,
                              .connection = side->connections[side->joined ? 0 : caller->number]};
    uint64_t before;

    memset(tally, 0, sizeof *tally);
    pthread_barrier_wait(&crowd->start);
    before = bench_now_ns();
    while (!atomic_load_explicit(&crowd->stop, memory_order_relaxed)) {
        uint64_t after;

        tally->operations += side->form->operate(&call);
        after = bench_now_ns();
        truce__histogram_add(&tally->latencies, after - before);
        before = after;
        call.turn++;
    }
    return NULL;
}

static void join_form(struct bench_side *side)
{
    side->local = NULL;
    if (side->form->join)
        side->form->join(side);
}

/* Runs the process of one caller. It reads the set-up side from `orders`, then a byte for each
 * round; at the end of `orders` it ends. */
static _Noreturn void be_caller(struct caller *caller)
{
    struct bench_side own;
    void *connection = NULL;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(caller->orders, &own, sizeof own) != sizeof own)
        _exit(0);
    bench_random_again();
    own.joined = true;
    own.callers_max = 1;
    own.connections = &connection;
    own.target->kind->open(&own);
    join_form(&own);
    caller->side = &own;
    do {
        BENCH_CHECK(write(caller->answers, "", 1) == 1);
        if (read(caller->orders, &byte, 1) != 1)
            break;
        call_often(caller);
    } while (true);
    own.target->kind->close(&own);
    _exit(0);
}

/* Runs before the side opens anything, so that no caller inherits a store or a connection. */
static void start_process(struct caller *caller)
{
    int orders[2], answers[2];
    pid_t pid;

    BENCH_CHECK(pipe2(orders, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    fflush(NULL);
    pid = fork();
    BENCH_CHECK(pid >= 0);
    if (pid == 0) {
        close(orders[1]);
        close(answers[0]);
        caller->orders = orders[0];
        caller->answers = answers[1];
        be_caller(caller);
    }
    close(orders[0]);
    close(answers[1]);
    caller->orders = orders[1];
    caller->answers = answers[0];
}

/* Sends the set-up side to the process of a caller, before its first round. */
static void join_process(struct caller *caller)
{
    char byte;

    BENCH_CHECK(write(caller->orders, caller->side, sizeof *caller->side) == sizeof *caller->side);
    BENCH_CHECK(read(caller->answers, &byte, 1) == 1);
    caller->joined = true;
}

static void begin_caller(struct caller *caller)
{
    if (!bench_processes) {
        BENCH_CHECK(pthread_create(&caller->thread, NULL, call_often, caller) == 0);
        return;
    }
    BENCH_CHECK(write(caller->orders, "", 1) == 1);
}

static void await_caller(struct caller *caller)
{
    char byte;

    if (bench_processes)
        BENCH_CHECK(read(caller->answers, &byte, 1) == 1);
    else
        pthread_join(caller->thread, NULL);
}

static void end_callers(struct caller *callers, int count)
{
    for (int i = 0; i < count; i++) {
        if (callers[i].orders) {
            close(callers[i].orders);
            close(callers[i].answers);
        }
    }
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    memset(callers, 0, (size_t)count * sizeof *callers);
}

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};

    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* The mean interval of a caller's calls equals the interval of a steady arrival. */
static void add_tally(const struct tally *tally, double seconds, struct bench_round *round)
{
    uint64_t interval = 0;

    if (tally->latencies.total > 0)
        interval = (uint64_t)(seconds * 1e9 / (double)tally->latencies.total);
    truce__histogram_merge(&round->latencies, &tally->latencies, interval);
    round->operations += tally->operations;
}

static void start_crowd(struct crowd *crowd, int callers)
{
    pthread_barrierattr_t attributes;

    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&crowd->start, &attributes, (unsigned)callers + 1);
    pthread_barrierattr_destroy(&attributes);
    atomic_store(&crowd->stop, false);
}

/* Counts the writes of this process. The counts are 0 if the target does not count. */
static void side_count_writes(struct bench_side *side, struct bench_writes *writes)
{
    *writes = (struct bench_writes){0};
    if (side->target->kind->count)
        side->target->kind->count(side, writes);
}

/* Runs all callers for the time of the round, and stores the sums of their calls and the used
 * resources in the shared memory. */
static void run_round(struct bench_side *side, struct shared *shared, struct caller *callers,
                      const struct order *order)
{
    struct bench_round *round = &shared->round;
    struct bench_writes writes;
    struct usage before, after;
    double began;

    memset(round, 0, sizeof *round);
    start_crowd(&shared->crowd, order->callers);
    for (int i = 0; i < order->callers; i++) {
        callers[i].side = side;
        if (bench_processes && !callers[i].joined)
            join_process(&callers[i]);
    }
    for (int i = 0; i < order->callers; i++)
        begin_caller(&callers[i]);
    usage_take(side->target->server, bench_processes, false, &before);
    side_count_writes(side, &writes);
    pthread_barrier_wait(&shared->crowd.start);
    began = bench_now();
    sleep_seconds(order->seconds);
    atomic_store(&shared->crowd.stop, true);
    for (int i = 0; i < order->callers; i++)
        await_caller(&callers[i]);
    round->seconds = bench_now() - began;
    usage_take(side->target->server, bench_processes, true, &after);
    for (int i = 0; i < order->callers; i++)
        add_tally(&shared->tallies[i], round->seconds, round);
    side->operations += round->operations;
    side->changed += round->operations * side->workload->changes;
    side->inserted += round->operations * side->workload->inserts;
    round->used = (struct usage){.cpu_seconds = after.cpu_seconds - before.cpu_seconds,
                                 .bytes_written = after.bytes_written - before.bytes_written,
                                 .memory = after.memory};
    side_count_writes(side, &round->writes);
    round->writes.operations -= writes.operations;
    round->writes.groups -= writes.groups;
    round->writes.syncs -= writes.syncs;
    round->writes.held_us -= writes.held_us;
    pthread_barrier_destroy(&shared->crowd.start);
}

/* ---- the side's process ---------------------------------------------------------------------- */

static void side_answer(int answers)
{
    BENCH_CHECK(write(answers, "", 1) == 1);
}

static void bench_side_use(struct bench_side *side, const struct bench_workload *workload,
                           const struct bench_form *form)
{
    side->workload = workload;
    side->form = form;
    side->state = map_shared(workload->state_size + 1);
}

/* Executes an order. An order for another workload or form changes the side first. */
static void obey(struct bench_side *side, struct shared *shared, struct caller *callers,
                 const struct order *order)
{
    if (order->workload != side->workload || order->form != side->form) {
        BENCH_CHECK(!bench_processes);
        bench_side_use(side, order->workload, order->form);
        join_form(side);
    }
    switch (order->kind) {
    case RUN:
        run_round(side, shared, callers, order);
        break;
    case CHECK:
        side->form->check(side);
        break;
    case SPOIL:
        side->target->kind->spoil(side);
        break;
    case SIZE:
        if (side->target->kind->size)
            side->target->kind->size(side, &shared->data_bytes, &shared->log_bytes);
        break;
    case END:
        break;
    }
}

/* Runs the process of a side: opens the target, sets up the workload, and executes orders until
 * END. */
static _Noreturn void be_side(struct bench_side *side, struct shared *shared, int orders,
                              int answers)
{
    struct caller *callers = bson_malloc0(BENCH_CALLERS_MAX * sizeof *callers);
    int connections = bench_processes ? 1 : side->callers_max;
    struct order order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_fail_into(shared->round.why, sizeof shared->round.why);
    side->number = (int)getpid();
    bench_small |= side->target->server_is_slow;
    bench_side_use(side, side->workload, side->form);
    for (int i = 0; i < side->callers_max; i++) {
        callers[i] = (struct caller){.shared = shared, .number = i};
        if (bench_processes)
            start_process(&callers[i]);
    }
    side->callers_max = connections;
    side->connections = bson_malloc0((size_t)connections * sizeof *side->connections);
    side->target->kind->open(side);
    snprintf(shared->version, sizeof shared->version, "%s", side->target->version);
    snprintf(shared->settings, sizeof shared->settings, "%s", side->target->settings);
    shared->not_durable = side->target->not_durable;
    join_form(side);
    side->form->setup(side);
    side_answer(answers);
    while (read(orders, &order, sizeof order) == sizeof order && order.kind != END) {
        obey(side, shared, callers, &order);
        side_answer(answers);
    }
    end_callers(callers, BENCH_CALLERS_MAX);
    side->target->kind->close(side);
    bson_free(side->connections);
    bson_free(callers);
    _exit(0);
}

/* ---- the harness's end ----------------------------------------------------------------------- */

/* Waits for the answer of a side. If none comes in time, kills the side. Returns false with the
 * reason if it does not answer. */
static bool side_answered(struct side_process *side, char *why, size_t size)
{
    struct pollfd waited = {.fd = side->answers, .events = POLLIN};
    int patience = side->may_stand_still ? PATIENCE_OF_SERVERS : PATIENCE_SECONDS;
    char byte;

    if (poll(&waited, 1, patience * 1000) == 0) {
        kill(side->pid, SIGKILL);
        snprintf(side->shared->round.why, sizeof side->shared->round.why,
                 SIDE_CANNOT "no answer for %d seconds", patience);
        snprintf(why, size, "%s", side->shared->round.why);
        return false;
    }
    if (read(side->answers, &byte, 1) == 1)
        return true;
    if (!side->shared->round.why[0])
        snprintf(side->shared->round.why, sizeof side->shared->round.why, "its process ended");
    snprintf(why, size, "%s", side->shared->round.why);
    return false;
}

static bool send_order(struct side_process *side, enum order_kind kind, int callers, double seconds)
{
    const struct order order = {kind, callers, seconds, side->workload, side->form};

    return write(side->orders, &order, sizeof order) == sizeof order;
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
    side->shared = map_shared(sizeof *side->shared);
    side->may_stand_still = target->server_is_slow;
    side_use(side, workload, form);
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
    if (!side_answered(side, why, size))
        return false;
    memcpy(target->version, side->shared->version, sizeof target->version);
    memcpy(target->settings, side->shared->settings, sizeof target->settings);
    target->not_durable = side->shared->not_durable;
    return true;
}

void side_use(struct side_process *side, const struct bench_workload *workload,
              const struct bench_form *form)
{
    side->workload = workload;
    side->form = form;
}

bool side_run(struct side_process *side, int callers, double seconds,
              const struct bench_round **round)
{
    char why[300];

    *round = &side->shared->round;
    return send_order(side, RUN, callers, seconds) && side_answered(side, why, sizeof why);
}

bool side_check(struct side_process *side, char *why, size_t size)
{
    return send_order(side, CHECK, 0, 0) && side_answered(side, why, size);
}

bool side_spoil(struct side_process *side)
{
    char why[300];

    return send_order(side, SPOIL, 0, 0) && side_answered(side, why, sizeof why);
}

bool side_size(struct side_process *side, int64_t *data, int64_t *log)
{
    char why[300];

    if (!send_order(side, SIZE, 0, 0) || !side_answered(side, why, sizeof why))
        return false;
    *data = side->shared->data_bytes;
    *log = side->shared->log_bytes;
    return true;
}

int side_number(const struct side_process *side)
{
    return (int)side->pid;
}

void side_kill(struct side_process *side, int callers, double seconds)
{
    BENCH_CHECK(send_order(side, RUN, callers, 2 * seconds));
    sleep_seconds(seconds);
    kill(side->pid, SIGKILL);
}

void side_end(struct side_process *side)
{
    int status;

    if (!side)
        return;
    (void)send_order(side, END, 0, 0); /* A side that has already ended needs no order. */
    close(side->orders);
    close(side->answers);
    waitpid(side->pid, &status, 0);
    munmap(side->shared, sizeof *side->shared);
    bson_free(side);
}
