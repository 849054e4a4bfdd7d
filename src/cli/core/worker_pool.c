/*
 * The pool of worker processes.
 *
 *     slot     process, pipe to, pipe from
 *       queue    the unanswered frames in the order given:  sent | being sent | waiting
 *
 * A frame on the pipe is its size (4 bytes, the machine's order) and its bytes. If a process is
 * killed, its slot gets a new one, and everything in the queue is sent again from its first byte.
 * If more than DEATHS_MAX processes in a row are killed before they answer the first frame of the
 * queue, this frame is the likely cause, and the pool fails. A process that exits by itself has
 * failed, and so does the pool.
 */
#include "cli/core/worker_pool.h"
#include "cli/core/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define QUEUE_MAX       2
#define DEATHS_MAX      50
#define WORKERS_MAX     256
#define FRAME_BYTES_MAX (256u * 1024 * 1024)
#define ARGUMENTS_MAX   64

struct frame {
    /* The frame, with its size in front. */
    struct buffer bytes;
    /* The number of bytes that were written to the pipe of the current process. */
    size_t sent;
    /* The argument of pool_give, for the function that gets the answer. */
    void *tag;
};

struct slot {
    /* The process, or 0 if it has ended and no other was started. */
    pid_t pid;
    /* The ends of the pipes to and from the process, which do not block, or -1. */
    int to, from;
    /* The frames without an answer, `count` of them, in the order in which they were given. */
    struct frame queue[QUEUE_MAX];
    int count;
    /* The number of deaths since the last answer. */
    int deaths;
    /* The bytes of the next answer that have arrived. */
    struct buffer answer;
};

struct pool {
    /* The arguments of the worker processes, followed by NULL. Borrowed. */
    const char *const *argv;
    /* Gets each answer, with `arg` and the tag of its frame. */
    pool_answer_function *answer;
    void *arg;
    struct slot *slots;
    /* The number of slots. */
    int workers;
    /* The number of processes that were killed since the pool was made. */
    int64_t deaths;
};

/* ---- processes ---- */

pid_t pool_fork(void)
{
    pid_t parent = getpid(), child;

    fflush(NULL);
    child = fork();
    if (!child && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(127); /* The parent has ended before the child could watch it. */
    return child;
}

void pool_end(pid_t *child)
{
    if (*child > 0) {
        kill(*child, SIGKILL);
        waitpid(*child, NULL, 0);
    }
    *child = 0;
}

/* Runs this program again as a worker. The pipes become standard input and output; all other
 * descriptors are closed. */
static _Noreturn void become_worker(const struct pool *pool, int number, int in, int out)
{
    const char *argv[ARGUMENTS_MAX + 3];
    char slot[32];
    int count = 0;

    argv[count++] = "truce";
    for (int i = 0; pool->argv[i] && i < ARGUMENTS_MAX; i++)
        argv[count++] = pool->argv[i];
    snprintf(slot, sizeof slot, "--slot=%d", number);
    argv[count++] = slot;
    argv[count] = NULL;
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(127);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execv("/proc/self/exe", (char *const *)argv);
    _exit(127);
}

/* Starts the process of a slot. The frames in its queue are sent again from their first byte. */
static truce_status pool_start(struct pool *pool, int number, bson_error_t *error)
{
    struct slot *slot = &pool->slots[number];
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    pid_t pid = -1;

    cli_interrupt_forget(); /* Ctrl-C ends the whole pool. */
    if (!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC))
        pid = pool_fork();
    if (pid == 0)
        become_worker(pool, number, to[0], from[1]);
    if (to[0] >= 0)
        close(to[0]);
    if (from[1] >= 0)
        close(from[1]);
    if (pid < 0) {
        truce_status status =
            truce__fail(TRUCE_IO, error, "a worker cannot be started: %s", strerror(errno));

        close(to[1]);
        close(from[0]);
        return status;
    }
    slot->pid = pid;
    slot->to = to[1];
    slot->from = from[0];
    slot->answer.size = 0;
    fcntl(slot->to, F_SETFL, O_NONBLOCK);
    fcntl(slot->from, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < slot->count; i++)
        slot->queue[i].sent = 0;
    return TRUCE_OK;
}

/* Waits for a worker that has ended, and starts another one if it was killed. Fails if it has
 * exited by itself, or too many have died. */
static truce_status pool_replace(struct pool *pool, int number, bson_error_t *error)
{
    struct slot *slot = &pool->slots[number];
    int state = 0;

    close(slot->to);
    close(slot->from);
    slot->to = slot->from = -1;
    while (waitpid(slot->pid, &state, 0) < 0 && errno == EINTR)
        continue;
    slot->pid = 0;
    if (!WIFSIGNALED(state))
        return truce__fail(TRUCE_IO, error, "worker %d ended with exit code %d", number,
                           WEXITSTATUS(state));
    pool->deaths++;
    if (++slot->deaths > DEATHS_MAX)
        return truce__fail(TRUCE_IO, error,
                           "worker %d was killed %d times while it ran the same batch (%s)", number,
                           slot->deaths, strsignal(WTERMSIG(state)));
    return pool_start(pool, number, error);
}

truce_status pool_new(const char *const *argv, int workers, pool_answer_function *answer, void *arg,
                      struct pool **made, bson_error_t *error)
{
    struct pool *pool = bson_malloc0(sizeof *pool);
    truce_status status = TRUCE_OK;

    truce_assert(workers > 0 && workers <= WORKERS_MAX);
    *pool = (struct pool){.argv = argv, .answer = answer, .arg = arg, .workers = workers};
    pool->slots = bson_malloc0((size_t)workers * sizeof *pool->slots);
    for (int i = 0; i < workers; i++)
        pool->slots[i].to = pool->slots[i].from = -1;
    for (int i = 0; i < workers && !status; i++)
        status = pool_start(pool, i, error);
    if (status) {
        pool_free(pool);
        pool = NULL;
    }
    *made = pool;
    return status;
}

static void cli_pool_end(struct slot *slot, int64_t deadline_ns)
{
    if (slot->pid <= 0)
        return;
    while (waitpid(slot->pid, NULL, WNOHANG) == 0) {
        if (truce__clock_monotonic_ns() > deadline_ns)
            kill(slot->pid, SIGKILL);
        truce__clock_sleep_ms(2);
    }
}

void pool_free(struct pool *pool)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + 1000000000;

    if (!pool)
        return;
    for (int i = 0; i < pool->workers; i++) {
        if (pool->slots[i].to >= 0)
            close(pool->slots[i].to);
    }
    for (int i = 0; i < pool->workers; i++) {
        struct slot *slot = &pool->slots[i];

        cli_pool_end(slot, deadline_ns);
        if (slot->from >= 0)
            close(slot->from);
        for (int k = 0; k < slot->count; k++)
            truce__buffer_release(&slot->queue[k].bytes);
        truce__buffer_release(&slot->answer);
    }
    bson_free(pool->slots);
    bson_free(pool);
}

void pool_kill(struct pool *pool, int worker)
{
    truce_assert(worker >= 0 && worker < pool->workers);
    if (pool->slots[worker].pid > 0)
        kill(pool->slots[worker].pid, SIGKILL);
}

int64_t pool_deaths(const struct pool *pool)
{
    return pool->deaths;
}

/* ---- frames ---- */

void pool_give(struct pool *pool, int worker, struct buffer *frame, void *tag)
{
    struct slot *slot = &pool->slots[worker];
    struct frame *last = &slot->queue[slot->count];
    uint32_t size = (uint32_t)frame->size;

    truce_assert(!pool_full(pool, worker) && frame->size <= FRAME_BYTES_MAX);
    *last = (struct frame){.tag = tag};
    truce__buffer_append(&last->bytes, &size, sizeof size);
    truce__buffer_append(&last->bytes, frame->bytes, frame->size);
    truce__buffer_release(frame);
    slot->count++;
}

bool pool_full(const struct pool *pool, int worker)
{
    truce_assert(worker >= 0 && worker < pool->workers);
    return pool->slots[worker].count == QUEUE_MAX;
}

static struct frame *slot_unsent_frame(struct slot *slot)
{
    for (int i = 0; i < slot->count; i++) {
        if (slot->queue[i].sent < slot->queue[i].bytes.size)
            return &slot->queue[i];
    }
    return NULL;
}

/* Writes as many bytes as the pipe accepts. A worker that has ended is detected at the other
 * pipe. */
static void pool_write_some(struct slot *slot)
{
    for (struct frame *frame = slot_unsent_frame(slot); frame; frame = slot_unsent_frame(slot)) {
        ssize_t written =
            write(slot->to, frame->bytes.bytes + frame->sent, frame->bytes.size - frame->sent);

        if (written <= 0)
            return;
        frame->sent += (size_t)written;
    }
}

/* Takes the answer to the first frame if it has arrived completely. */
static truce_status pool_take_answer(struct pool *pool, struct slot *slot, bool *taken,
                                     bson_error_t *error)
{
    uint32_t size;
    struct frame first = slot->queue[0];
    truce_status status;

    *taken = false;
    if (slot->answer.size < sizeof size)
        return TRUCE_OK;
    memcpy(&size, slot->answer.bytes, sizeof size);
    if (size > FRAME_BYTES_MAX || !slot->count)
        return truce__fail(TRUCE_IO, error, "a worker sent an invalid reply");
    if (slot->answer.size - sizeof size < size)
        return TRUCE_OK;
    *taken = true;
    slot->count--;
    memmove(slot->queue, slot->queue + 1, (size_t)slot->count * sizeof *slot->queue);
    slot->deaths = 0;
    status = pool->answer(pool->arg, first.tag, slot->answer.bytes + sizeof size, size, error);
    truce__buffer_release(&first.bytes);
    slot->answer.size -= sizeof size + size;
    memmove(slot->answer.bytes, slot->answer.bytes + sizeof size + size, slot->answer.size);
    return status;
}

/* Reads what a worker has sent, and passes complete answers on. The end of the pipe means that the
 * worker has ended (pool_replace). */
static truce_status read_some(struct pool *pool, int number, bson_error_t *error)
{
    struct slot *slot = &pool->slots[number];
    bool taken = true;
    truce_status status = TRUCE_OK;
    uint8_t bytes[16384];
    ssize_t got = read(slot->from, bytes, sizeof bytes);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return TRUCE_OK;
    if (got <= 0)
        return pool_replace(pool, number, error);
    truce__buffer_append(&slot->answer, bytes, (size_t)got);
    while (taken && !status)
        status = pool_take_answer(pool, slot, &taken, error);
    return status;
}

truce_status pool_step(struct pool *pool, int timeout_ms, bson_error_t *error)
{
    struct pollfd files[2 * WORKERS_MAX];
    truce_status status = TRUCE_OK;

    for (int i = 0; i < pool->workers; i++) {
        struct slot *slot = &pool->slots[i];

        pool_write_some(slot);
        files[2 * i] = (struct pollfd){.fd = slot->from, .events = POLLIN};
        files[2 * i + 1] =
            (struct pollfd){.fd = slot_unsent_frame(slot) ? slot->to : -1, .events = POLLOUT};
    }
    if (poll(files, (nfds_t)(2 * pool->workers), timeout_ms) < 0)
        return errno == EINTR
                   ? TRUCE_OK
                   : truce__fail(TRUCE_IO, error, "cannot wait for the worker processes: %s",
                                 strerror(errno));
    for (int i = 0; i < pool->workers && !status; i++) {
        if (files[2 * i + 1].revents)
            pool_write_some(&pool->slots[i]);
        if (files[2 * i].revents)
            status = read_some(pool, i, error);
    }
    return status;
}

/* ---- the worker's side ---- */

/* Returns 1 for all bytes, 0 for the end before the first byte, and -1 for an error or an end in
 * the middle. */
static int pool_read_all(int file, void *bytes, size_t size)
{
    size_t have = 0;

    while (have < size) {
        ssize_t got = read(file, (uint8_t *)bytes + have, size - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 && have == 0 ? 0 : -1;
        have += (size_t)got;
    }
    return 1;
}

bool pool_read_frame(int file, struct buffer *frame, bson_error_t *error)
{
    uint32_t size;
    int got = pool_read_all(file, &size, sizeof size);

    error->code = 0;
    frame->size = 0;
    if (got == 0)
        return false;
    if (got > 0 && size <= FRAME_BYTES_MAX) {
        truce__buffer_reserve(frame, size);
        got = size ? pool_read_all(file, frame->bytes, size) : 1;
        frame->size = size;
    }
    if (got == 1 && size <= FRAME_BYTES_MAX)
        return true;
    (void)truce__fail(TRUCE_IO, error, "the parent process closed the pipe");
    return false;
}

bool pool_write_frame(int file, const void *bytes, size_t size)
{
    uint32_t head = (uint32_t)size;
    struct buffer whole = {0};
    size_t sent = 0;
    ssize_t written = 1;

    truce_assert(size <= FRAME_BYTES_MAX);
    truce__buffer_append(&whole, &head, sizeof head);
    truce__buffer_append(&whole, bytes, size);
    while (sent < whole.size && (written > 0 || errno == EINTR)) {
        written = write(file, whole.bytes + sent, whole.size - sent);
        sent += written > 0 ? (size_t)written : 0;
    }
    truce__buffer_release(&whole);
    return written > 0;
}
