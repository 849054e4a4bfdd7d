/*
 * Forks.
 *
 * A forked child has a copy of everything: descriptors, SQLite's table of the locks that the
 * process holds on each file, and mutexes in the state that they had. It does not have the kernel's
 * locks of the process (POSIX). It would share the locks of open file descriptions (of the lock
 * file) with its parent, and keep them alive.
 *
 *     in the child    descriptors of lock files are closed;
 *                     a file that was open is refused permanently: SQLite would trust the inherited
 *                     table, take no lock, and another process could remove its log;
 *                     every file is refused if another thread was inside SQLite for so long that
 *                     the fork did not wait for it, because SQLite's mutexes are then never
 *                     released; or if another thread was opening a file for so long
 *
 * Only exec makes the child a process that can open such a file. A process that forks before it
 * opens a store is not affected.
 *
 * The thread that forks has all mutexes of SQLite that belong to no connection, so that no other
 * thread has them. It only tries to lock them, because their order is SQLite's own.
 *
 * Invariant:
 *  1. The mutex guards everything that the fork handlers read. A fork locks it before and unlocks
 *     it after, on both sides.
 */
#include "engine/storage/fork_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/forks.h"
#include "engine/storage/file_id.h"
#include "engine/storage/mapping_guard.h"

/* The number after that of SQLite's last static mutex. */
#define SQLITE_MUTEXES_END (SQLITE_MUTEX_STATIC_VFS3 + 1)
/* A fork waits for threads that open files or are inside SQLite: FORK_NAPS_MAX times this number of
 * nanoseconds, about 2 s with the overhead of a sleep. */
#define FORK_NAP_NS   100000
#define FORK_NAPS_MAX 10000

struct open_file {
    struct file_id id;
    /* The number of times that this process has the file open. */
    int times;
    /* The file was open in a process from which this one was forked. */
    bool inherited;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The descriptors that are closed in a forked child. */
static int *descriptors;
static size_t descriptors_count, descriptors_room;
/* The files that are open, or that a parent had open. */
static struct open_file *files;
static size_t files_count, files_room;
/* The number of openings that are in progress. */
static int openings;
/* This process has opened a file, so other threads may be inside SQLite. */
static bool opens_files;
/* The fork is safe: this process has opened no file, or the thread that forks has SQLite's mutexes
 * and no other thread is opening a file. False if `stuck`. */
static bool calm;
/* This process was forked while another thread of its parent was inside SQLite or was opening a
 * file. */
static bool stuck;

static void fork_guard_leave_sqlite(int end)
{
    for (int which = SQLITE_MUTEX_STATIC_MAIN; which < end; which++)
        sqlite3_mutex_leave(sqlite3_mutex_alloc(which));
}

/* Locks all of SQLite's mutexes, or none. It does not wait, so their order is irrelevant. */
static bool fork_guard_enter_sqlite(void)
{
    for (int which = SQLITE_MUTEX_STATIC_MAIN; which < SQLITE_MUTEXES_END; which++) {
        sqlite3_mutex *one = sqlite3_mutex_alloc(which);

        if (one && sqlite3_mutex_try(one)) {
            fork_guard_leave_sqlite(which);
            return false;
        }
    }
    return true;
}

/* Locks the mutex until the fork has ended. If this process has opened a file, tries to lock the
 * mutexes of SQLite. `calm` is false if another thread is inside SQLite or opens a file for too
 * long, or if this process is stuck. */
static void fork_guard_before_fork(void)
{
    const struct timespec nap = {0, FORK_NAP_NS};
    int naps = 0;

    for (;;) {
        pthread_mutex_lock(&mutex);
        calm = !stuck && (!opens_files || (!openings && fork_guard_enter_sqlite()));
        if (calm || stuck || naps++ == FORK_NAPS_MAX)
            return;
        pthread_mutex_unlock(&mutex);
        nanosleep(&nap, NULL);
    }
}

static void fork_guard_end_fork(void)
{
    if (calm && opens_files)
        fork_guard_leave_sqlite(SQLITE_MUTEXES_END);
    pthread_mutex_unlock(&mutex);
}

static void fork_guard_in_child(void)
{
    for (size_t i = 0; i < descriptors_count; i++)
        close(descriptors[i]);
    descriptors_count = 0;
    for (size_t i = 0; i < files_count; i++)
        files[i].inherited = true;
    stuck = stuck || !calm;
    openings = 0;
    fork_guard_end_fork();
}

__attribute__((constructor)) static void fork_guard_watch(void)
{
    /* The handlers before a fork are called in the reverse order. So a fork first waits for
     * openings, which use the mutex of the mappings, and then locks this mutex. */
    truce__mapping_watch_forks();
    truce__forks_watch(fork_guard_before_fork, fork_guard_end_fork, fork_guard_in_child);
}

/* Moves a descriptor out of the range 0 to 2, which are the standard ones. */
static int above_standard(int file)
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

/* Opens a file and notes its descriptor for forks. The mutex is locked around both steps, so a fork
 * finds either no descriptor or one that is in the list. */
int truce__fork_guard_open(const char *path, int flags, unsigned mode)
{
    int file, why;

    pthread_mutex_lock(&mutex);
    file = above_standard(open(path, flags | O_CLOEXEC, mode));
    why = errno;
    if (descriptors_count == descriptors_room) {
        descriptors_room = descriptors_room ? 2 * descriptors_room : 16;
        descriptors = bson_realloc(descriptors, descriptors_room * sizeof *descriptors);
    }
    if (file >= 0)
        descriptors[descriptors_count++] = file;
    pthread_mutex_unlock(&mutex);
    errno = why;
    return file;
}

void truce__fork_guard_close(int descriptor)
{
    size_t i = 0;

    pthread_mutex_lock(&mutex);
    while (i < descriptors_count && descriptors[i] != descriptor)
        i++;
    if (i < descriptors_count)
        descriptors[i] = descriptors[--descriptors_count];
    close(descriptor);
    pthread_mutex_unlock(&mutex);
}

/* Finds an open file by device and inode. Called under the mutex. SQLite identifies a file by
 * device and inode number alone. */
static struct open_file *find_file(const struct file_id *id)
{
    for (size_t i = 0; id && i < files_count; i++) {
        if (files[i].id.device == id->device && files[i].id.number == id->number)
            return &files[i];
    }
    return NULL;
}

truce_status truce__fork_guard_may_open(const char *path, const struct file_id *id,
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

bool truce__fork_guard_has_open(const struct file_id *id)
{
    const struct open_file *file;
    bool has;

    pthread_mutex_lock(&mutex);
    file = find_file(id);
    has = file && (file->times || file->inherited);
    pthread_mutex_unlock(&mutex);
    return has;
}

void truce__fork_guard_opening(void)
{
    pthread_mutex_lock(&mutex);
    opens_files = true;
    openings++;
    pthread_mutex_unlock(&mutex);
}

void truce__fork_guard_open_failed(void)
{
    pthread_mutex_lock(&mutex);
    truce_assert(openings > 0);
    openings--;
    pthread_mutex_unlock(&mutex);
}

void truce__fork_guard_opened(const struct file_id *id)
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

void truce__fork_guard_closed(const struct file_id *id)
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
