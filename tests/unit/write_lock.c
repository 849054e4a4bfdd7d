#include "engine/storage/write_lock.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forks.h"
#include "engine/storage/change_notify.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"

static char path[400];

static void new_path(void)
{
    snprintf(path, sizeof path, "%s/s.db", test_directory());
    fflush(NULL);
}

static int64_t in_ms(int64_t milliseconds)
{
    return truce__clock_monotonic_ns() + milliseconds * 1000000;
}

/* A child that holds the lock until it is killed; returns when it does. */
static pid_t start_holder(void)
{
    int ready[2];
    pid_t child;
    char byte;

    if (pipe(ready))
        return -1;
    child = fork();
    if (!child) {
        struct lock lock;
        bson_error_t error;

        if (open_lock(path, &lock, &error) || truce__lock_claim(&lock, 5) < 0 ||
            truce__lock_acquire(&lock, in_ms(1000), &error) || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

TEST(waits_until_the_deadline_for_a_lock_held_by_another_process)
{
    int64_t start = truce__clock_monotonic_ns(), waited;
    bson_error_t error;
    struct lock lock;
    pid_t holder;
    char named[40];

    new_path();
    holder = start_holder();
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK(truce__lock_is_held(&lock));
    CHECK_STATUS(TRUCE_LOCKED, truce__lock_acquire(&lock, in_ms(150), &error), error);
    waited = (truce__clock_monotonic_ns() - start) / 1000000;
    CHECK_INT(waited, >=, 150);
    snprintf(named, sizeof named, "while process %d was writing to ", (int)holder);
    CHECK(strstr(error.message, named));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    truce__lock_close(&lock);
}

TEST(releases_the_lock_and_the_claims_of_a_dead_process)
{
    bson_error_t error;
    struct lock lock;
    pid_t holder;
    int claim;

    new_path();
    holder = start_holder();
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK(truce__lock_is_claimed(&lock, 5) && truce__lock_claim(&lock, 5) < 0);
    claim = truce__lock_claim(&lock, 6);
    CHECK(claim >= 0 && truce__lock_is_claimed(&lock, 6) && truce__lock_claim(&lock, 6) < 0);
    truce__lock_disclaim(claim);
    CHECK(!truce__lock_is_claimed(&lock, 6));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    CHECK(!truce__lock_is_claimed(&lock, 5));
    CHECK_OK(truce__lock_acquire(&lock, in_ms(1000), &error), error);
    truce__lock_release(&lock);
    truce__lock_close(&lock);
}

TEST(two_openings_in_one_process_exclude_each_other)
{
    bson_error_t error;
    struct lock a, b;

    new_path();
    CHECK_OK(open_lock(path, &a, &error), error);
    CHECK_OK(open_lock(path, &b, &error), error);
    CHECK_OK(truce__lock_acquire(&a, in_ms(1000), &error), error);
    CHECK_STATUS(TRUCE_LOCKED, truce__lock_acquire(&b, in_ms(20), &error), error);
    truce__lock_release(&a);
    CHECK_OK(truce__lock_acquire(&b, in_ms(1000), &error), error);
    truce__lock_release(&b);
    truce__lock_close(&a);
    truce__lock_close(&b);
}

/* A child must not keep its parent's lock alive. */
TEST(a_forked_child_does_not_hold_the_lock)
{
    bson_error_t error;
    struct lock lock;
    uint32_t before = truce__forks();
    pid_t middle;
    int status;

    new_path();
    middle = fork();
    if (!middle) {
        REQUIRE(!open_lock(path, &lock, &error));
        REQUIRE(!truce__lock_acquire(&lock, in_ms(1000), &error));
        if (!fork()) {
            /* outlives its parent, which dies while it holds the lock */
            sleep(2);
            _exit(truce__forks() == before + 1);
        }
        _exit(0);
    }
    CHECK(waitpid(middle, &status, 0) == middle && status == 0);
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_OK(truce__lock_acquire(&lock, in_ms(500), &error), error);
    truce__lock_release(&lock);
    truce__lock_close(&lock);
}

/* Processes that request the lock all the time get it about equally often. */
TEST(distributes_the_lock_evenly_among_processes)
{
    enum { PROCESSES = 4 };
    long *turns = mmap(NULL, sizeof *turns * PROCESSES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long least = 1000000000, most = 0;

    new_path();
    REQUIRE(turns != MAP_FAILED);
    for (int i = 0; i < PROCESSES; i++) {
        if (!fork()) {
            int64_t until = in_ms(1000);
            bson_error_t error;
            struct lock lock;

            CHECK_OK(open_lock(path, &lock, &error), error);
            while (truce__clock_monotonic_ns() < until) {
                CHECK_OK(truce__lock_acquire(&lock, in_ms(2000), &error), error);
                truce__clock_sleep_ms(1);
                turns[i]++;
                truce__lock_release(&lock);
            }
            test_child_exit();
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        CHECK(wait(&status) > 0 && status == 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        least = turns[i] < least ? turns[i] : least;
        most = turns[i] > most ? turns[i] : most;
    }
    CHECK_INT(least, >, 0);
    CHECK_INT(most, <=, least * 4);
    munmap(turns, sizeof *turns * PROCESSES);
}

TEST(wakes_waiters_of_a_writer_that_died_before_its_notification)
{
    bson_error_t error;
    struct lock lock;
    uint64_t token = 0;
    pid_t writer;

    new_path();
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_OK(truce__notify_wait(&lock, "c", &token, 0, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__notify_wait(&lock, "c", &token, 20, &error), error);
    writer = fork();
    if (!writer) {
        struct lock own;

        if (!open_lock(path, &own, &error) && !truce__lock_acquire(&own, in_ms(1000), &error))
            truce__notify_begin(&own);
        _exit(0);
    }
    waitpid(writer, NULL, 0);
    CHECK_OK(truce__notify_wait(&lock, "c", &token, 5000, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__notify_wait(&lock, "c", &token, 20, &error), error);
    truce__lock_close(&lock);
}

/* The child dies while it waits for the lock. */
TEST(a_killed_waiter_leaves_no_entry)
{
    int64_t deadline_ns = in_ms(60000);
    bson_error_t error;
    struct lock lock;
    pid_t child;
    int state;

    new_path();
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_OK(truce__lock_acquire(&lock, deadline_ns, &error), error);
    CHECK_INT(atomic_load(&lock.page->waited_until), <=, truce__clock_monotonic_ns());
    child = fork();
    if (!child) {
        struct lock other;

        if (open_lock(path, &other, &error))
            _exit(1);
        (void)truce__lock_acquire(&other, deadline_ns, &error);
        _exit(1);
    }
    while (atomic_load(&lock.page->waited_until) <= truce__clock_monotonic_ns())
        truce__clock_sleep_ms(1);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
    truce__clock_sleep_ms(50);
    CHECK_INT(atomic_load(&lock.page->waited_until), <=, truce__clock_monotonic_ns());
    truce__lock_release(&lock);
    truce__lock_close(&lock);
}

/* The file may be older than the machine's clock. */
TEST(does_not_wait_for_waiters_before_the_last_boot)
{
    bson_error_t error;
    struct lock lock, other;

    new_path();
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_OK(open_lock(path, &other, &error), error);
    atomic_store(&lock.page->waited_until, INT64_MAX);
    CHECK_OK(truce__lock_acquire(&lock, in_ms(60000), &error), error);
    CHECK_STATUS(TRUCE_LOCKED, truce__lock_acquire(&other, in_ms(30), &error), error);
    CHECK_INT(atomic_load(&lock.page->waited_until), <=, in_ms(1000));
    truce__lock_release(&lock);
    truce__lock_close(&other);
    truce__lock_close(&lock);
}
