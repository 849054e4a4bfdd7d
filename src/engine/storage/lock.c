/*
 * The lock file.
 *
 *     PATH-lock    | struct lock_page, mapped by every process |
 *     locks of     | byte 0: the lock | byte 1: the turnstile | byte 16 + n: claim n |
 *     its bytes
 *
 * To write, a process passes the turnstile, takes the lock, and leaves the turnstile. Whoever lets
 * go of the lock and wants it again finds somebody else in the turnstile, who gets the lock first:
 * two processes alternate, more come in turn but for chance. Where nobody waits, the lock is taken
 * without the turnstile. SQLite's busy handler, which sleeps and tries again, has no such rule and gives
 * waits of seconds under load.
 *
 *     free --turnstile, lock--> held --unlock, turn + 1, wake--> free
 *
 * A blocking fcntl() has no deadline, so a waiter tries, sleeps on the word `turn`, and tries
 * again. A holder that dies releases the lock without a wake, so nobody sleeps longer than NAP_NS. Each says
 * before it sleeps that somebody waits, for twice that time: a count would stay too high for ever when
 * one of them is killed.
 *
 * Invariants:
 *  1. The lock is held exactly while the kernel says so. Of the page only the numbers of commits are
 *     more than hints (durable.c).
 *  2. The file is opened once for each lock, close-on-exec, and closed in forked children: a lock
 * of an open file description would otherwise outlive its process in its children.
 *
 * Deliberately not done: detecting that the lock file was removed while processes use it. Two
 * generations of lock files would then exist; SQLite's own locks still keep writers apart, but not
 * writers from checkpointers.
 */
#include "engine/storage/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define BYTE_LOCK      0
#define BYTE_TURNSTILE 1
#define BYTE_CLAIMS    16
#define NAP_NS         INT64_C(10000000)
#define WAITED_NS      (2 * NAP_NS)

/* ---- forks ---------------------------------------------------------------------------------- */

#define FILES_MAX 1024

static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static int files[FILES_MAX]; /* of open locks, descriptor + 1; 0: free */
static atomic_uint generation;

static void before_fork(void)
{
    pthread_mutex_lock(&files_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&files_mutex);
}

static void after_fork_in_child(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i])
            close(files[i] - 1);
        files[i] = 0;
    }
    atomic_fetch_add(&generation, 1);
    pthread_mutex_unlock(&files_mutex);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void note_file(int file, bool open)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int from = open ? 0 : file + 1, to = open ? file + 1 : 0, i = 0;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&files_mutex);
    while (i < FILES_MAX && files[i] != from)
        i++;
    if (i < FILES_MAX)
        files[i] = to;
    pthread_mutex_unlock(&files_mutex);
}

unsigned truce__lock_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

/* ---- words ---------------------------------------------------------------------------------- */

void truce__word_sleep(atomic_uint *word, unsigned seen, int64_t nanoseconds)
{
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};

    if (nanoseconds > 0)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
}

void truce__word_wake(atomic_uint *word, int sleepers_max)
{
    syscall(SYS_futex, word, FUTEX_WAKE, sleepers_max, NULL, NULL, 0);
}

/* ---- open and close ------------------------------------------------------------------------- */

static truce_status fail(const struct lock *lock, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot %s the lock file \"%s\": %s", what, lock->path,
                       strerror(errno));
}

/* posix_fallocate, so that a full disk is an error here and not a SIGBUS later. */
static truce_status map_page(struct lock *lock, int file, bson_error_t *error)
{
    struct stat stat_of_it;
    void *page;

    if (fstat(file, &stat_of_it))
        return fail(lock, "look at", error);
    if (stat_of_it.st_size < (off_t)sizeof(struct lock_page)) {
        errno = posix_fallocate(file, 0, sizeof(struct lock_page));
        if (errno)
            return fail(lock, "write", error);
    }
    page = mmap(NULL, sizeof(struct lock_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return fail(lock, "map", error);
    lock->page = page;
    return TRUCE_OK;
}

/* The page has an opening of its own: a forked child keeps its mappings, and with them what they
 * were made from. */
static truce_status open_page(struct lock *lock, bson_error_t *error)
{
    int file = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    truce_status status = file < 0 ? fail(lock, "open", error) : map_page(lock, file, error);

    if (file >= 0)
        close(file);
    return status;
}

truce_status truce__lock_open(const char *path, struct lock *lock, bson_error_t *error)
{
    truce_status status;

    *lock = (struct lock){.path = bson_strdup_printf("%s-lock", path), .file = -1};
    status = open_page(lock, error);
    if (!status)
        lock->file = open(lock->path, O_RDWR | O_CLOEXEC);
    if (!status && lock->file < 0)
        status = fail(lock, "open", error);
    if (status)
        truce__lock_close(lock);
    else
        note_file(lock->file, true);
    return status;
}

void truce__lock_close(struct lock *lock)
{
    truce_assert(!lock->held);
    if (lock->page)
        munmap(lock->page, sizeof(struct lock_page));
    if (lock->file >= 0) {
        note_file(lock->file, false);
        close(lock->file);
    }
    bson_free(lock->path);
    *lock = (struct lock){.file = -1};
}

/* ---- the lock ------------------------------------------------------------------------------- */

static bool set_byte(int file, int64_t byte, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_SETLK, &range) == 0;
}

static bool try_byte(const struct lock *lock, int64_t byte, short type)
{
    return set_byte(lock->file, byte, type);
}

/* Held by another opening of the file? */
static bool has_byte(const struct lock *lock, int64_t byte)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(lock->file, F_OFD_GETLK, &range) || range.l_type != F_UNLCK;
}

/* Has anybody said so lately? What is far ahead is of another clock, before the machine was started. */
static bool has_waiters(const struct lock *lock)
{
    int64_t left = atomic_load(&lock->page->waited_until) - truce__clock_monotonic_ns();

    return left > 0 && left <= WAITED_NS;
}

static void wake_waiters(const struct lock *lock)
{
    atomic_fetch_add(&lock->page->turn, 1);
    if (has_waiters(lock))
        truce__word_wake(&lock->page->turn, INT32_MAX);
}

static void free_byte(const struct lock *lock, int64_t byte)
{
    bool freed = try_byte(lock, byte, F_UNLCK);

    truce_assert(freed);
    wake_waiters(lock);
}

bool truce__lock_interrupted(const struct lock *lock)
{
    return lock->interrupted && __atomic_load_n(lock->interrupted, __ATOMIC_RELAXED);
}

/* False with errno EAGAIN: the deadline passed; ECANCELED: interrupted; other numbers: the file system has no locks. */
static bool wait_for_byte(const struct lock *lock, int64_t byte, int64_t deadline_ns)
{
    struct lock_page *page = lock->page;
    bool taken = try_byte(lock, byte, F_WRLCK);

    if (taken)
        return true;
    while (!taken) {
        unsigned seen = atomic_load(&page->turn);
        int64_t left;

        atomic_store(&page->waited_until, truce__clock_monotonic_ns() + WAITED_NS);
        taken = try_byte(lock, byte, F_WRLCK);
        if (taken || (errno != EAGAIN && errno != EACCES && errno != EINTR))
            break;
        left = deadline_ns - truce__clock_monotonic_ns();
        errno = truce__lock_interrupted(lock) ? ECANCELED : EAGAIN;
        if (left <= 0 || errno == ECANCELED)
            break;
        truce__word_sleep(&page->turn, seen, left < NAP_NS ? left : NAP_NS);
    }
    return taken;
}

static truce_status not_acquired(const struct lock *lock, bson_error_t *error)
{
    int holder = atomic_load(&lock->page->holder);
    int64_t since = atomic_load(&lock->page->held_since);

    if (errno == ECANCELED)
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    if (errno != EAGAIN)
        return fail(lock, "lock", error);
    if (!holder)
        return truce__fail(TRUCE_LOCKED, error, "\"%s\" is held by other processes in turn",
                           lock->path);
    return truce__fail(TRUCE_LOCKED, error, "\"%s\" is held by process %d since %lld ms",
                       lock->path, holder, (long long)(truce__clock_wall_ms() - since));
}

static truce_status wait_in_turn(const struct lock *lock, int64_t deadline_ns, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!wait_for_byte(lock, BYTE_TURNSTILE, deadline_ns))
        return not_acquired(lock, error);
    if (!wait_for_byte(lock, BYTE_LOCK, deadline_ns))
        status = not_acquired(lock, error);
    free_byte(lock, BYTE_TURNSTILE);
    return status;
}

truce_status truce__lock_acquire(struct lock *lock, int64_t deadline_ns, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    truce_assert(!lock->held);
    /* who does not wait needs no turn, as long as nobody waits */
    if (has_waiters(lock) || !try_byte(lock, BYTE_LOCK, F_WRLCK))
        status = wait_in_turn(lock, deadline_ns, error);
    if (status)
        return status;
    lock->held = true;
    atomic_store(&lock->page->held_since, truce__clock_wall_ms());
    atomic_store(&lock->page->holder, getpid());
    return TRUCE_OK;
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
    return lock->held || has_byte(lock, BYTE_LOCK);
}

truce_status truce__lock_blame(const struct lock *lock, bson_error_t *error)
{
    if (lock->held || !has_byte(lock, BYTE_LOCK))
        return TRUCE_OK;
    errno = EAGAIN;
    return not_acquired(lock, error);
}

int truce__lock_claim(const struct lock *lock, int64_t number)
{
    int file = open(lock->path, O_RDWR | O_CLOEXEC);

    truce_assert(number > 0);
    if (file < 0)
        return -1;
    if (!set_byte(file, BYTE_CLAIMS + number, F_WRLCK)) {
        close(file);
        return -1;
    }
    note_file(file, true);
    return file;
}

void truce__lock_disclaim(int claim)
{
    if (claim < 0)
        return;
    note_file(claim, false);
    close(claim);
}

bool truce__lock_is_claimed(const struct lock *lock, int64_t number)
{
    return has_byte(lock, BYTE_CLAIMS + number);
}
