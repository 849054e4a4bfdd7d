/*
 * Forks and faults.
 *
 * A forked child has a copy of everything: descriptors, SQLite's table of the locks that the
 * process holds on each file, and mutexes in the state that they had. It does not have the kernel's
 * locks of the process (POSIX). It would share the locks of open file descriptions (of the lock
 * file) with its parent, and keep them alive.
 *
 *     in the child    descriptors of lock files are closed;
 *                     a file that was open is refused for good: SQLite would trust the inherited
 *                     table, take no lock, and another process could remove its log;
 *                     every file is refused if another thread was inside SQLite, whose mutexes are
 *                     then never released, or was opening a file
 *
 * Only exec makes the child a process that can open such a file. A process that forks before it
 * opens a store is not affected.
 *
 * The child finds out whether a mutex of SQLite's is held by trying to lock it; it has only one
 * thread.
 *
 * A mapped page of the lock file has a second weakness: if a program cuts the file to nothing, the
 * next read of the page is SIGBUS. If no other code handles that signal, truce does. For a fault in
 * a guarded page it maps memory of its own there. The read is repeated and returns zeros, which are
 * not a valid lock page (lock_file.c). Any other fault ends the process as usual.
 *
 * Invariants:
 *  1. The handler locks no mutex and allocates nothing. It walks a list that only grows, and whose
 *     slots are used again.
 *  2. The mutex guards everything that the fork handlers read. A fork locks it before and unlocks
 *     it after, on both sides.
 */
#include "engine/storage/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/assert.h"

/* ---- files ---------------------------------------------------------------------------------- */

static bool process_identify(int directory, const char *path, int flags, struct file_look *facts)
{
    const unsigned mask = STATX_INO | STATX_BTIME | STATX_SIZE | STATX_MTIME;
    struct statx found;

    if (statx(directory, path, flags, mask, &found))
        return false;
    *facts = (struct file_look){.id = {.device = makedev(found.stx_dev_major, found.stx_dev_minor),
                                       .number = found.stx_ino},
                                .size = (int64_t)found.stx_size,
                                .time_ns = found.stx_mtime.tv_sec * INT64_C(1000000000) +
                                           found.stx_mtime.tv_nsec};
    if (found.stx_mask & STATX_BTIME)
        facts->id.born = (uint64_t)found.stx_btime.tv_sec * 1000000000u + found.stx_btime.tv_nsec;
    return true;
}

bool truce__file_look(const char *path, struct file_look *facts)
{
    return process_identify(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, facts);
}

bool truce__file_id(const char *path, struct file_id *id)
{
    struct file_look facts;
    bool found = truce__file_look(path, &facts);

    if (found)
        *id = facts.id;
    return found;
}

bool truce__file_id_of(int descriptor, struct file_id *id)
{
    struct file_look facts;
    bool found = process_identify(descriptor, "", AT_EMPTY_PATH, &facts);

    if (found)
        *id = facts.id;
    return found;
}

bool truce__file_id_equal(const struct file_id *a, const struct file_id *b)
{
    return a->device == b->device && a->number == b->number && a->born == b->born;
}

/* ---- forks ---------------------------------------------------------------------------------- */

struct open_file {
    struct file_id id;
    /* How often this process has it open. */
    int times;
    /* It was open in a process that this one was forked from. */
    bool inherited;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The descriptors. */
static int *kept;
static size_t kept_count, kept_room;
static struct open_file *files;
static size_t files_count, files_room;
/* Openings that are in progress. */
static int openings;
/* Another thread was inside SQLite when this process was forked. */
static bool stuck;
static atomic_uint generation;

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

static bool sqlite_is_free(void)
{
    bool all = true;

    for (int which = SQLITE_MUTEX_STATIC_MAIN; which <= SQLITE_MUTEX_STATIC_VFS3; which++) {
        sqlite3_mutex *one = sqlite3_mutex_alloc(which);

        if (one && sqlite3_mutex_try(one))
            all = false;
        else
            sqlite3_mutex_leave(one);
    }
    return all;
}

static void after_fork_in_child(void)
{
    for (size_t i = 0; i < kept_count; i++)
        close(kept[i]);
    kept_count = 0;
    for (size_t i = 0; i < files_count; i++)
        files[i].inherited = true;
    stuck = stuck || openings || !sqlite_is_free();
    openings = 0;
    atomic_fetch_add(&generation, 1);
    pthread_mutex_unlock(&mutex);
}

static void watch_forks(void)
{
    truce_assert(!pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child));
}

static void process_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
}

unsigned truce__process_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

/* Moves a descriptor out of the range 0 to 2, which are the standard ones. */
static int beside_standard(int file)
{
    int moved, why;

    if (file < 0 || file > STDERR_FILENO)
        return file;
    moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    why = errno;
    close(file);
    errno = why;
    return moved;
}

/* The mutex makes sure that a fork finds the descriptor in the list or does not find it at all. */
int truce__process_open(const char *path, int flags, unsigned mode)
{
    int file, why;

    process_watch();
    pthread_mutex_lock(&mutex);
    file = beside_standard(open(path, flags | O_CLOEXEC, mode));
    why = errno;
    if (kept_count == kept_room) {
        kept_room = kept_room ? 2 * kept_room : 16;
        kept = bson_realloc(kept, kept_room * sizeof *kept);
    }
    if (file >= 0)
        kept[kept_count++] = file;
    pthread_mutex_unlock(&mutex);
    errno = why;
    return file;
}

void truce__process_close(int descriptor)
{
    size_t i = 0;

    pthread_mutex_lock(&mutex);
    while (i < kept_count && kept[i] != descriptor)
        i++;
    if (i < kept_count)
        kept[i] = kept[--kept_count];
    close(descriptor);
    pthread_mutex_unlock(&mutex);
}

/* Called under the mutex. SQLite identifies a file by device and inode number alone. */
static struct open_file *find_file(const struct file_id *id)
{
    for (size_t i = 0; id && i < files_count; i++) {
        if (files[i].id.device == id->device && files[i].id.number == id->number)
            return &files[i];
    }
    return NULL;
}

truce_status truce__process_may_open(const char *path, const struct file_id *id,
                                     bson_error_t *error)
{
    const struct open_file *file;
    bool inherited, stopped;

    pthread_mutex_lock(&mutex);
    file = find_file(id);
    inherited = file && file->inherited;
    stopped = stuck;
    pthread_mutex_unlock(&mutex);
    if (inherited)
        return truce__fail(TRUCE_INVALID, error,
                           "the store \"%s\" was open when this process was forked: a forked child "
                           "cannot open it; fork before it is opened, or start a program (exec)",
                           path);
    if (stopped)
        return truce__fail(TRUCE_INVALID, error,
                           "cannot open \"%s\": this process was forked while another thread was "
                           "inside a store; fork before, or start a program (exec)",
                           path);
    return TRUCE_OK;
}

bool truce__process_has_open(const struct file_id *id)
{
    const struct open_file *file;
    bool has;

    pthread_mutex_lock(&mutex);
    file = find_file(id);
    has = file && (file->times || file->inherited);
    pthread_mutex_unlock(&mutex);
    return has;
}

void truce__process_opening(void)
{
    process_watch();
    pthread_mutex_lock(&mutex);
    openings++;
    pthread_mutex_unlock(&mutex);
}

void truce__process_gave_up(void)
{
    pthread_mutex_lock(&mutex);
    truce_assert(openings > 0);
    openings--;
    pthread_mutex_unlock(&mutex);
}

void truce__process_opened(const struct file_id *id)
{
    struct open_file *file;

    pthread_mutex_lock(&mutex);
    truce_assert(openings > 0);
    openings--;
    file = find_file(id);
    if (!file) {
        if (files_count == files_room) {
            files_room = files_room ? 2 * files_room : 16;
            files = bson_realloc(files, files_room * sizeof *files);
        }
        file = &files[files_count++];
        *file = (struct open_file){.id = *id};
    }
    file->times++;
    pthread_mutex_unlock(&mutex);
}

void truce__process_closed(const struct file_id *id)
{
    struct open_file *file;

    pthread_mutex_lock(&mutex);
    file = find_file(id);
    truce_assert(file && file->times > 0);
    file->times--;
    if (!file->times && !file->inherited)
        *file = files[--files_count];
    pthread_mutex_unlock(&mutex);
}

/* ---- faults --------------------------------------------------------------------------------- */

struct guarded {
    /* NULL: the slot is free. */
    _Atomic(void *) mapping;
    atomic_size_t size;
    /* How often it is guarded: several connections map one index. */
    int times;
    struct guarded *next;
};

static _Atomic(struct guarded *) guarded;

/* Maps zeros at the address if it is guarded. */
static bool process_rescue(const uint8_t *address)
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

/* Returns to repeat the read, or restores the default action of the signal if nothing was
 * changed. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    int saved = errno;
    struct sigaction usual = {.sa_handler = SIG_DFL};

    (void)context;
    if (info->si_code <= 0 || !process_rescue(info->si_addr)) {
        sigaction(signal, &usual, NULL);
        if (info->si_code <= 0)
            raise(signal);
    }
    errno = saved;
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

/* Called under the mutex. Finds a mapping; NULL finds a free slot. */
static struct guarded *find_guarded(const void *mapping)
{
    struct guarded *slot = atomic_load(&guarded);

    while (slot && atomic_load(&slot->mapping) != mapping)
        slot = slot->next;
    return slot;
}

void truce__process_guard(void *mapping, size_t size)
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

void truce__process_unguard(void *mapping)
{
    struct guarded *slot;

    pthread_mutex_lock(&mutex);
    slot = find_guarded(mapping);
    if (slot && !--slot->times)
        atomic_store(&slot->mapping, NULL);
    pthread_mutex_unlock(&mutex);
}
