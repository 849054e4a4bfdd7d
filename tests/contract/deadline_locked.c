/* A process that stands still holds the writers' lock: each call ends at its deadline, not at several of them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "store/file/file.h"
#include "tests/support/test.h"
#include "truce/queue.h"
#include "truce/sweep.h"

#define DEADLINE_MS 1000
#define LATEST_MS   1900 /* two deadlines are 2,000 */

static truce_store *store;
static truce_queue *queue;
static char path[600];
static pid_t holder;
static bson_error_t error;

static int go[2], held[2];

/* In a process of its own, which begins before the store is open here: has the lock until it is killed. */
static void hold(void)
{
    truce_store *own;
    struct engine *engine;
    char byte;

    if (read(go[0], &byte, 1) != 1 || truce_store_open(path, NULL, &own, &error))
        _exit(1);
    engine = truce__file_engine(own);
    if (truce__lock_acquire(&engine->lock, INT64_MAX, &error) || write(held[1], "x", 1) != 1)
        _exit(2);
    for (;;)
        pause();
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/locked.truce", test_directory());
    REQUIRE(!pipe(go) && !pipe(held));
    fflush(NULL);
    holder = fork();
    if (!holder) {
        close(go[1]);
        hold();
    }
    close(go[0]);
    close(held[1]);
    CHECK_OK(
        truce_store_open(path, &(truce_store_options){.deadline_ms = DEADLINE_MS}, &store, &error),
        error);
    queue =
        truce_queue_new(store, &(truce_queue_options){.queue = "q", .deadline_ms = DEADLINE_MS});
}

static void lock(void)
{
    char byte;

    REQUIRE(write(go[1], "x", 1) == 1 && read(held[0], &byte, 1) == 1);
    close(go[1]);
    close(held[0]);
}

static void end(void)
{
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    truce_queue_free(queue);
    truce_store_close(store);
}

static int64_t begun_ns;

#define ENDS_IN_TIME(call)                                                                         \
    do {                                                                                           \
        truce_status got;                                                                          \
                                                                                                   \
        begun_ns = truce__clock_monotonic_ns();                                                    \
        got = call;                                                                                \
        if ((truce__clock_monotonic_ns() - begun_ns) / 1000000 > LATEST_MS)                        \
            test_fail(__FILE__, __LINE__, "%s takes %lld ms (%s)", #call,                          \
                      (long long)(truce__clock_monotonic_ns() - begun_ns) / 1000000,               \
                      truce_status_name(got));                                                     \
    } while (0)

TEST(calls_of_a_queue_end_at_their_deadline)
{
    bson_t *payload = test_bson("{'x': 1}");
    truce_job *jobs[2];
    bson_oid_t id;
    uint32_t count;

    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
        CHECK_OK(truce_queue_claim(queue, &jobs[i], &error), error);
    }
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    bson_oid_copy(truce_job_id(jobs[1]), &id);
    lock();
    ENDS_IN_TIME(truce_job_done(jobs[0], NULL, NULL, &error));
    ENDS_IN_TIME(truce_job_fail(jobs[0], NULL, "it failed", 0, &error));
    ENDS_IN_TIME(truce_job_snooze(jobs[0], NULL, 1000, &error));
    ENDS_IN_TIME(truce_queue_done_many(queue, jobs, 2, NULL, NULL, &error));
    ENDS_IN_TIME(truce_queue_add(queue, NULL, payload, NULL, NULL, &error));
    ENDS_IN_TIME(truce_queue_cancel(queue, NULL, &id, &error));
    ENDS_IN_TIME(truce_queue_pause(queue, &error));
    ENDS_IN_TIME(truce_queue_redrive(queue, 10, &count, &error));
    truce_job_free(jobs[0]);
    truce_job_free(jobs[1]);
    end();
    bson_destroy(payload);
}

TEST(a_sweep_waits_for_a_lock_once)
{
    bson_t *old = test_bson("{'at': {'$date': '2001-01-01T00:00:00Z'}}"),
           *index = test_bson("{'key': {'at': 1}, 'name': 'at', 'expireAfterSeconds': 1}");
    truce_sweep_report report;

    begin();
    CHECK_OK(truce_insert(store, "old", old, NULL, &error), error);
    CHECK_OK(truce_index_create(store, "old", index, &error), error);
    lock();
    ENDS_IN_TIME(truce_sweep(store, NULL, &report, &error));
    end();
    bson_destroy(old);
    bson_destroy(index);
}
