#include "tests/support/life.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

enum { LUCK = 3, WORKERS_MAX = 8, CALLS_MAX = 1500, ANSWERS_EACH = 3 };

void life_install(void)
{
    disk_install();
}

static truce_store *open_store(const char *path)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    return store;
}

/* ---- power cuts ------------------------------------------------------------------------------ */

struct working {
    const struct life *life;
    truce_store *store;
    int worker;
};

static void *work(void *arg)
{
    const struct working *working = arg;
    int64_t answer = 0;

    for (int number = 0; answer >= 0 && !disk_is_cut(); number++) {
        answer = working->life->step(working->store, working->worker, number);
        if (answer > 0)
            working->life->reported(working->worker, answer);
    }
    return NULL;
}

static void work_until_cut(const struct life *life, truce_store *store)
{
    struct working working[WORKERS_MAX];
    pthread_t threads[WORKERS_MAX];

    for (int i = 0; i < life->workers; i++) {
        working[i] = (struct working){life, store, i};
        pthread_create(&threads[i], NULL, work, &working[i]);
    }
    for (int i = 0; i < life->workers; i++)
        pthread_join(threads[i], NULL);
    disk_cut();
}

void life_power_cut(const struct life *life, struct random *random)
{
    const char *directory = test_directory();
    truce_store *store;
    char path[400];

    disk_reset();
    snprintf(path, sizeof path, "%s/s.truce", directory);
    store = open_store(path);
    if (!store || !life->begin(store))
        return;
    disk_cut_after(1 + (int64_t)truce__random_below(random, CALLS_MAX));
    work_until_cut(life, store);
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    truce_store_close(store);
    disk_reset();
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        store = open_store(path);
        if (store)
            life->judge(store);
        truce_store_close(store);
    }
}

/* ---- kills ----------------------------------------------------------------------------------- */

/* The message of a worker after each step. */
struct answer {
    /* The worker, the number of its step, and the result of the step (life.h). */
    int worker, number;
    int64_t answer;
};

struct killing {
    const struct life *life;
    /* The file of the store. */
    char path[400];
    /* The pipe into which all workers write their struct answer. */
    int answers[2];
    /* The process of each worker. */
    pid_t workers[WORKERS_MAX];
    /* For each worker, the number after that of the last reply. */
    int next[WORKERS_MAX];
};

_Noreturn static void step_from(const struct killing *killing, int worker)
{
    truce_store *store = open_store(killing->path);
    struct answer answer = {worker, killing->next[worker], 0};

    while (store && answer.answer >= 0) {
        answer.answer = killing->life->step(store, worker, answer.number);
        if (write(killing->answers[1], &answer, sizeof answer) != sizeof answer)
            break;
        answer.number++;
    }
    _exit(1);
}

static void start_worker(struct killing *killing, int worker)
{
    killing->workers[worker] = fork();
    if (killing->workers[worker])
        return;
    close(killing->answers[0]);
    step_from(killing, worker);
}

static void kill_worker(struct killing *killing, int worker)
{
    kill(killing->workers[worker], SIGKILL);
    waitpid(killing->workers[worker], NULL, 0);
}

/* Reads and records the next acknowledgement. A worker that was killed after it may leave the step
 * to the next worker, which then acknowledges the step again. */
static bool hear(struct killing *killing, struct answer *answer)
{
    if (read(killing->answers[0], answer, sizeof *answer) != sizeof *answer)
        return false;
    if (answer->number >= killing->next[answer->worker])
        killing->next[answer->worker] = answer->number + 1;
    if (answer->answer > 0)
        killing->life->reported(answer->worker, answer->answer);
    return true;
}

/* Reads all acknowledgements of a killed worker. The next worker begins after them. */
static long hear_all(struct killing *killing)
{
    struct pollfd more = {.fd = killing->answers[0], .events = POLLIN};
    struct answer answer;
    long heard = 0;

    while (poll(&more, 1, 0) > 0 && hear(killing, &answer))
        heard++;
    return heard;
}

/* Starts the workers, and kills and replaces each of them after ANSWERS_EACH acknowledgements,
 * until `answers` were read. */
static void play(struct killing *killing, long answers)
{
    struct answer answer;

    for (int i = 0; i < killing->life->workers; i++)
        start_worker(killing, i);
    while (answers > 0 && hear(killing, &answer)) {
        answers--;
        if (answer.number % ANSWERS_EACH != ANSWERS_EACH - 1)
            continue;
        kill_worker(killing, answer.worker);
        answers -= hear_all(killing);
        start_worker(killing, answer.worker);
    }
    CHECK_INT(answers, <=, 0);
    for (int i = 0; i < killing->life->workers; i++)
        kill_worker(killing, i);
    hear_all(killing);
}

void life_kill(const struct life *life, long answers)
{
    struct killing killing = {.life = life};
    truce_store *store;
    bool begun;

    disk_reset();
    snprintf(killing.path, sizeof killing.path, "%s/killed.truce", test_directory());
    store = open_store(killing.path);
    begun = store && life->begin(store);
    truce_store_close(store);
    if (!begun || !CHECK(!pipe(killing.answers)))
        return;
    play(&killing, answers);
    close(killing.answers[0]);
    close(killing.answers[1]);
    store = open_store(killing.path);
    if (store)
        life->judge(store);
    truce_store_close(store);
}
