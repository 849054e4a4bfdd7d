/*
 * The lock to write.
 *
 *     PATH-lock    | struct lock_page, mapped by every process |
 *     locks of     | byte 0: the lock | byte 1: the turnstile | byte 16 + n: claim n |
 *     its bytes      (bytes 2 and 3: the entry lock and the presence lock, lock_file.c)
 *
 * To write, a process enters the turnstile, acquires the lock, and leaves the turnstile. If a
 * process releases the lock and wants it again, it finds the next process in the turnstile, which
 * gets the lock first. Two processes therefore alternate. With three or more, each waiting process
 * gets the lock soon, but the order among them is not fixed. If no process waits, the lock is
 * acquired without the turnstile. SQLite's busy handler sleeps and retries without such a rule, so
 * under load a process can wait for seconds.
 *
 *     free --turnstile, lock--> held --unlock, releases + 1, wake--> free
 *
 * A blocking fcntl() has no deadline. Therefore a waiter tries, sleeps on the futex `releases`, and
 * tries again. A holder that dies releases the lock without a wake-up, so no waiter sleeps longer
 * than NAP_NS. Before it sleeps, each waiter announces for twice that time that it waits. A count
 * of waiters would stay too high forever if one of them is killed.
 *
 * Invariants:
 *  1. The lock is held exactly while the kernel says so. The fields of the page about its holder
 *     and its waiters are hints.
 *  2. The holder of the lock holds it in the file that other processes find under its name. Each
 *     acquisition checks this (file_identity.c): if the file was removed and created again, several
 *     processes could hold the lock.
 */
#include "engine/storage/write_lock.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/wait_limit.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/lock_bytes.h"

/* The longest sleep of a waiter in nanoseconds, and the time for which it announces that it
 * waits. */
#define NAP_NS    INT64_C(10000000)
#define WAITED_NS (2 * NAP_NS)
/* The number of attempts to release a byte. The file system may refuse one. */
#define RELEASE_TRIES 10

/* ---- the lock ------------------------------------------------------------------------------- */

static truce_status lock_fail(const struct lock *lock, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot lock the lock file \"%s\": %s" LOCK_ADVICE,
                       lock->path, strerror(errno));
}

static bool try_byte(const struct lock *lock, int64_t byte, short type)
{
    return lock_set_byte(lock->file, byte, type);
}

/* Returns whether a process has recently announced that it waits. A time far in the future was
 * written before a restart of the machine, by another clock. */
static bool has_waiters(const struct lock *lock)
{
    int64_t left = atomic_load(&lock->page->waited_until) - truce__clock_monotonic_ns();

    return left > 0 && left <= WAITED_NS;
}

static void wake_waiters(const struct lock *lock)
{
    atomic_fetch_add(&lock->page->releases, 1);
    if (has_waiters(lock))
        truce__futex_wake_shared(&lock->page->releases, INT32_MAX);
}

/* Releases a byte of the lock file and wakes the waiters. If the file system refuses the release
 * several times, the descriptor still holds the byte. This process can then acquire it again. A
 * later release, or the end of the process, releases it. */
static void free_byte(const struct lock *lock, int64_t byte)
{
    for (int i = 0; i < RELEASE_TRIES && !try_byte(lock, byte, F_UNLCK); i++)
        continue;
    wake_waiters(lock);
}

bool truce__lock_interrupted(const struct lock *lock)
{
    return lock->interrupted && __atomic_load_n(lock->interrupted, __ATOMIC_RELAXED);
}

/* Waits until this process has the lock on the byte. Returns false with errno EAGAIN after the
 * deadline, with ECANCELED after an interrupt, and with another errno if the file system has no
 * locks. */
static bool wait_for_byte(const struct lock *lock, int64_t byte, int64_t deadline_ns)
{
    struct lock_page *page = lock->page;
    bool taken = try_byte(lock, byte, F_WRLCK);

    if (taken)
        return true;
    while (!taken) {
        unsigned seen = atomic_load(&page->releases);
        int64_t left;

        atomic_store(&page->waited_until, truce__clock_monotonic_ns() + WAITED_NS);
        taken = try_byte(lock, byte, F_WRLCK);
        if (taken || (errno != EAGAIN && errno != EACCES && errno != EINTR))
            break;
        left = deadline_ns - truce__clock_monotonic_ns();
        errno = truce__lock_interrupted(lock) ? ECANCELED : EAGAIN;
        if (left <= 0 || errno == ECANCELED)
            break;
        truce__futex_wait_shared(&page->releases, seen, left < NAP_NS ? left : NAP_NS);
    }
    return taken;
}

/* Fails because the lock was not acquired, with the reason in errno: an interrupt, the deadline, or
 * a failure of the file system. */
static truce_status not_acquired(const struct lock *lock, bson_error_t *error)
{
    int holder = atomic_load(&lock->page->holder);
    int64_t since = atomic_load(&lock->page->held_since);
    /* The path of the store is the path of the lock file without its suffix. */
    int length = (int)(strlen(lock->path) - strlen("-lock"));

    if (errno == ECANCELED)
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    if (errno != EAGAIN)
        return lock_fail(lock, error);
    truce__wait_limit_fail();
    if (!holder)
        return truce__fail(TRUCE_LOCKED, error,
                           "the deadline passed while other processes wrote to \"%.*s\"", length,
                           lock->path);
    return truce__fail(
        TRUCE_LOCKED, error,
        "the deadline passed while process %d was writing to \"%.*s\", for %lld ms by then", holder,
        length, lock->path, (long long)(truce__clock_wall_ms() - since));
}

static truce_status lock_wait_in_queue(const struct lock *lock, int64_t deadline_ns,
                                       bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!wait_for_byte(lock, BYTE_TURNSTILE, deadline_ns))
        return not_acquired(lock, error);
    if (!wait_for_byte(lock, BYTE_LOCK, deadline_ns))
        status = not_acquired(lock, error);
    free_byte(lock, BYTE_TURNSTILE);
    return status;
}

/* Finishes the acquisition of the byte: checks the files, and records the holder in the page. */
static truce_status lock_hold(struct lock *lock, bson_error_t *error)
{
    truce_status status = truce__lock_check(lock, error);

    if (status) {
        free_byte(lock, BYTE_LOCK);
        return status;
    }
    lock->held = true;
    atomic_store(&lock->page->held_since, truce__clock_wall_ms());
    atomic_store(&lock->page->holder, lock->process);
    return TRUCE_OK;
}

truce_status truce__lock_acquire(struct lock *lock, int64_t deadline_ns, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    truce_assert(!lock->held);
    /* A process that finds no waiting process does not enter the turnstile. */
    if (has_waiters(lock) || !try_byte(lock, BYTE_LOCK, F_WRLCK))
        status = lock_wait_in_queue(lock, deadline_ns, error);
    return status ? status : lock_hold(lock, error);
}

/* Acquires the lock if it is free and no process waits for it. `has_waiters` only means that a
 * process has announced itself recently; only the kernel knows whether it still waits. */
truce_status truce__lock_try(struct lock *lock)
{
    truce_assert(!lock->held);
    if ((has_waiters(lock) && lock_has_byte(lock->file, BYTE_TURNSTILE)) ||
        !try_byte(lock, BYTE_LOCK, F_WRLCK))
        return TRUCE_LOCKED;
    return lock_hold(lock, NULL);
}

void truce__lock_release(struct lock *lock)
{
    truce_assert(lock->held);
    lock->held = false;
    atomic_store(&lock->page->holder, 0);
    free_byte(lock, BYTE_LOCK);
}

bool truce__lock_is_held(const struct lock *lock)
{
    return lock->held || lock_has_byte(lock->file, BYTE_LOCK);
}

int truce__lock_holder(const struct lock *lock, int64_t *held_ms)
{
    int holder = lock->page ? atomic_load(&lock->page->holder) : 0;

    /* The page names a holder that has died. */
    if (!holder || !truce__lock_is_held(lock))
        return 0;
    *held_ms = truce__clock_wall_ms() - atomic_load(&lock->page->held_since);
    return holder;
}

truce_status truce__lock_blame(const struct lock *lock, bson_error_t *error)
{
    if (lock->held || !lock_has_byte(lock->file, BYTE_LOCK))
        return TRUCE_OK;
    errno = EAGAIN;
    return not_acquired(lock, error);
}

int truce__lock_claim(const struct lock *lock, int64_t number)
{
    int file = truce__lock_file_open(lock->path, O_RDWR);
    struct file_id id;

    truce_assert(number > 0);
    if (file < 0)
        return -1;
    if (!truce__file_id_of(file, &id) || !truce__file_id_equal(&id, &lock->id) ||
        !lock_set_byte(file, BYTE_CLAIMS + number, F_WRLCK)) {
        truce__fork_guard_close(file);
        return -1;
    }
    return file;
}

void truce__lock_disclaim(int claim)
{
    if (claim >= 0)
        truce__fork_guard_close(claim);
}

bool truce__lock_is_claimed(const struct lock *lock, int64_t number)
{
    return lock_has_byte(lock->file, BYTE_CLAIMS + number);
}
