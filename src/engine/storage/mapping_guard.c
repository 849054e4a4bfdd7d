/*
 * Mappings whose file is truncated.
 *
 * If a program truncates a mapped lock file or index of the log, the next read of the mapping is
 * SIGBUS. If no other code handles that signal, truce does. For a fault in a guarded page it maps
 * memory of its own there. The read is repeated and returns zeros, which are not a valid lock page
 * (lock_file.c). Any other fault ends the process as usual.
 *
 * Invariants:
 *  1. The handler locks no mutex and allocates nothing. It walks a list that only grows, and whose
 *     slots are used again.
 *  2. A fork holds the mutex, so the child finds it unlocked and the list complete.
 */
#include "engine/storage/mapping_guard.h"

#include <bson/bson.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/forks.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct guarded {
    /* The start of the mapping, or NULL if the slot is free. */
    _Atomic(void *) mapping;
    atomic_size_t size;
    /* The number of times that the mapping is guarded, because several connections map one
     * index. */
    int times;
    struct guarded *next;
};

static _Atomic(struct guarded *) guarded;

/* Replaces the guarded mapping that contains the address by zeros. Returns false if no such mapping
 * exists. */
static bool mapping_replace(const uint8_t *address)
{
    for (struct guarded *slot = atomic_load(&guarded); slot; slot = slot->next) {
        uint8_t *mapping = atomic_load(&slot->mapping);
        size_t size = atomic_load(&slot->size);

        if (mapping && address >= mapping && address < mapping + size)
            return mmap(mapping, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapping;
    }
    return false;
}

/* Returns, which repeats the read, if the mapping was replaced. Otherwise restores the default
 * action of the signal. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    int saved = errno;
    struct sigaction usual = {.sa_handler = SIG_DFL};

    (void)context;
    if (info->si_code <= 0 || !mapping_replace(info->si_addr)) {
        sigaction(signal, &usual, NULL);
        if (info->si_code <= 0)
            raise(signal);
    }
    errno = saved;
}

static void mapping_before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void mapping_after_fork(void)
{
    pthread_mutex_unlock(&mutex);
}

static void watch_faults(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction theirs;

    sigemptyset(&ours.sa_mask);
    if (!sigaction(SIGBUS, NULL, &theirs) && !(theirs.sa_flags & SA_SIGINFO) &&
        theirs.sa_handler == SIG_DFL)
        sigaction(SIGBUS, &ours, NULL);
}

void truce__mapping_watch_forks(void)
{
    truce__forks_watch(mapping_before_fork, mapping_after_fork, mapping_after_fork);
}

/* Finds the slot of a mapping, or a free slot if `mapping` is NULL. Called under the mutex. */
static struct guarded *find_guarded(const void *mapping)
{
    struct guarded *slot = atomic_load(&guarded);

    while (slot && atomic_load(&slot->mapping) != mapping)
        slot = slot->next;
    return slot;
}

void truce__mapping_guard(void *mapping, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded *slot;

    pthread_once(&once, watch_faults);
    pthread_mutex_lock(&mutex);
    slot = find_guarded(mapping);
    if (!slot)
        slot = find_guarded(NULL);
    if (!slot) {
        slot = bson_malloc0(sizeof *slot);
        slot->next = atomic_load(&guarded);
        atomic_store(&guarded, slot);
    }
    atomic_store(&slot->size, (size + page - 1) / page * page);
    atomic_store(&slot->mapping, mapping);
    slot->times++;
    pthread_mutex_unlock(&mutex);
}

void truce__mapping_unguard(void *mapping)
{
    struct guarded *slot;

    pthread_mutex_lock(&mutex);
    slot = find_guarded(mapping);
    if (slot && !--slot->times)
        atomic_store(&slot->mapping, NULL);
    pthread_mutex_unlock(&mutex);
}
