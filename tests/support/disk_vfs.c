#include "tests/support/disk_vfs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX 16
#define SECTOR    512

struct change {
    /* The position of a write, or the new size of a truncation. */
    int64_t offset;
    /* The number of bytes, or -1 for a truncation. */
    int size;
    /* The change never reaches the disk. */
    bool lost;
    uint8_t *bytes;
};

/* The state of one file on the disk. */
struct content {
    char name[512];
    uint8_t *durable;
    int64_t size, room;
    /* The changes that no sync has made durable, oldest first. */
    struct change *changes;
    int count, changes_room;
    /* The number of changes that were removed from the list. A sync remembers its beginning as a
     * number of changes since the file was created. */
    int64_t synced;
    /* The number of syncs that lost changes. Each open descriptor reports each of them once. */
    int refusals;
    /* The directory entry of the file is durable. */
    bool exists;
    /* The file was removed. A power cut may bring it back until the directory is synced. */
    bool deleted;
};

struct disk_file {
    /* The first member, so that SQLite's pointer can be cast. */
    sqlite3_file base;
    /* NULL if the file is neither a database, nor a journal, nor a WAL. */
    struct content *content;
    /* The number of `refusals` that this descriptor has reported. */
    int heard;
    sqlite3_file *real;
};

static sqlite3_vfs *real_vfs;
static sqlite3_vfs disk_vfs;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct content files[FILES_MAX];
static int files_count;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool honest = true, cut, lasting, holds;
static int syncs_held;
static unsigned sync_us;
static int64_t calls, cut_at, cut_later, fail_at, faults, cuts, states;
static pid_t installer;
static enum disk_fault fault;
/* The fault happens only to files whose names end with this suffix. NULL means all files. */
static const char *only;

/* ---- content -------------------------------------------------------------------------------- */

static void make_room(struct content *content, int64_t size)
{
    if (size > content->room) {
        int64_t room = size * 2;

        content->durable = realloc(content->durable, (size_t)room);
        memset(content->durable + content->room, 0, (size_t)(room - content->room));
        content->room = room;
    }
    if (size > content->size)
        content->size = size;
}

static void apply(struct content *content, const struct change *change, int size)
{
    if (change->lost)
        return;
    if (change->size < 0) {
        make_room(content, change->offset);
        if (content->size > change->offset)
            memset(content->durable + change->offset, 0, (size_t)(content->size - change->offset));
        content->size = change->offset;
        return;
    }
    if (!size)
        return;
    make_room(content, change->offset + size);
    memcpy(content->durable + change->offset, change->bytes, (size_t)size);
}

/* Removes the first `count` changes. */
static void drop_changes(struct content *content, int count)
{
    if (!count)
        return;
    for (int i = 0; i < count; i++)
        free(content->changes[i].bytes);
    content->count -= count;
    content->synced += count;
    memmove(content->changes, content->changes + count,
            (size_t)content->count * sizeof *content->changes);
}

/* Called when a sync ends. Makes the changes durable that were recorded before it began (up to the
 * number `until`). */
static void make_durable(struct content *content, int64_t until)
{
    int count = until > content->synced ? (int)(until - content->synced) : 0;

    for (int i = 0; i < count; i++)
        apply(content, &content->changes[i], content->changes[i].size);
    drop_changes(content, count);
}

static void note(struct content *content, const void *bytes, int size, int64_t offset)
{
    struct change *change;

    if (content->count == content->changes_room) {
        content->changes_room = content->changes_room ? content->changes_room * 2 : 64;
        content->changes =
            realloc(content->changes, (size_t)content->changes_room * sizeof *content->changes);
    }
    change = &content->changes[content->count++];
    *change = (struct change){.offset = offset, .size = size};
    if (size > 0) {
        change->bytes = malloc((size_t)size);
        memcpy(change->bytes, bytes, (size_t)size);
    }
}

static struct content *find_content(const char *name)
{
    for (int i = 0; i < files_count; i++) {
        if (!strcmp(files[i].name, name))
            return &files[i];
    }
    if (files_count == FILES_MAX || strlen(name) >= sizeof files[0].name)
        abort();
    files[files_count] = (struct content){0};
    strcpy(files[files_count].name, name);
    return &files[files_count++];
}

/* Names are durable once their directory was synced, which SQLite does when it syncs a new journal
 * or WAL for the first time. All files are in one directory here. */
static void sync_names(void)
{
    for (int i = 0; i < files_count; i++) {
        if (files[i].deleted) {
            drop_changes(&files[i], files[i].count);
            files[i].size = 0;
        }
        files[i].exists = !files[i].deleted;
    }
}

/* ---- faults --------------------------------------------------------------------------------- */

static bool concerns(const struct content *content, bool is_sync)
{
    bool syncs = fault == DISK_SYNC_FAILS || fault == DISK_SYNC_LOSES;
    size_t length = strlen(content->name), end = only ? strlen(only) : 0;

    if (length < end || (only && strcmp(content->name + length - end, only) != 0))
        return false;
    return fault != DISK_NO_FAULT && is_sync == syncs;
}

/* Drops every second unsynced change. */
static void lose(struct content *content)
{
    content->refusals++;
    for (int i = 0; i < content->count; i += 2)
        content->changes[i].lost = true;
}

/* Counts a write or sync, and returns its SQLite result: an error if the power is cut or the fault
 * is due. Called under the mutex. */
static int next_call(struct content *content, bool is_sync)
{
    calls++;
    if (cut_at && --cut_at == 0) {
        cuts += !cut;
        cut = true;
    }
    if (cut)
        return is_sync ? SQLITE_IOERR_FSYNC : SQLITE_IOERR_WRITE;
    if (!concerns(content, is_sync) || (fail_at > 1 && fail_at--) || (!fail_at && !lasting))
        return SQLITE_OK;
    fail_at = 0;
    faults++;
    if (fault == DISK_SYNC_LOSES)
        lose(content);
    if (cut_later)
        cut_at = cut_later;
    cut_later = 0;
    if (is_sync)
        return SQLITE_IOERR_FSYNC;
    return fault == DISK_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

/* ---- the methods of a file ------------------------------------------------------------------ */

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct disk_file *)file)->real;
}

static int do_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int do_read(sqlite3_file *file, void *bytes, int size, sqlite3_int64 offset)
{
    return real_of(file)->pMethods->xRead(real_of(file), bytes, size, offset);
}

static int do_write(sqlite3_file *file, const void *bytes, int size, sqlite3_int64 offset)
{
    struct content *content = ((struct disk_file *)file)->content;
    int result = SQLITE_OK;

    if (content) {
        pthread_mutex_lock(&mutex);
        result = next_call(content, false);
        if (!result)
            note(content, bytes, size, offset);
        pthread_mutex_unlock(&mutex);
    }
    return result ? result : real_of(file)->pMethods->xWrite(real_of(file), bytes, size, offset);
}

static int do_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct content *content = ((struct disk_file *)file)->content;
    bool dead = false;

    if (content) {
        pthread_mutex_lock(&mutex);
        dead = cut;
        if (!dead)
            note(content, NULL, -1, size);
        pthread_mutex_unlock(&mutex);
    }
    return dead ? SQLITE_IOERR_TRUNCATE : real_of(file)->pMethods->xTruncate(real_of(file), size);
}

/* Makes the changes durable that were recorded before the sync began. Changes that are recorded
 * while it waits are left to the next sync. */
static int do_sync(sqlite3_file *file, int flags)
{
    struct content *content = ((struct disk_file *)file)->content;
    int result = SQLITE_OK;
    int64_t until;

    /* The real file is not synced: the power cut is only simulated. */
    (void)flags;
    if (!content)
        return SQLITE_OK;
    pthread_mutex_lock(&mutex);
    until = content->synced + content->count;
    syncs_held++;
    while (holds)
        pthread_cond_wait(&released, &mutex);
    syncs_held--;
    if (sync_us) {
        pthread_mutex_unlock(&mutex);
        usleep(sync_us);
        pthread_mutex_lock(&mutex);
    }
    result = next_call(content, true);
    if (!result && ((struct disk_file *)file)->heard < content->refusals)
        result = SQLITE_IOERR_FSYNC;
    ((struct disk_file *)file)->heard = content->refusals;
    if (!result && honest) {
        make_durable(content, until);
        if (!content->exists)
            sync_names();
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static int do_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int do_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int do_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int do_check_lock(sqlite3_file *file, int *held)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), held);
}

/* Ignores size hints: the real VFS would change the size of the file, and the copy would not. */
static int do_control(sqlite3_file *file, int operation, void *arg)
{
    if (operation == SQLITE_FCNTL_SIZE_HINT || operation == SQLITE_FCNTL_CHUNK_SIZE)
        return SQLITE_NOTFOUND;
    return real_of(file)->pMethods->xFileControl(real_of(file), operation, arg);
}

static int do_sector_size(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int do_characteristics(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int do_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **at)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), region, size, extend, at);
}

static int do_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), offset, count, flags);
}

static void do_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int do_shm_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = do_close,
    .xRead = do_read,
    .xWrite = do_write,
    .xTruncate = do_truncate,
    .xSync = do_sync,
    .xFileSize = do_size,
    .xLock = do_lock,
    .xUnlock = do_unlock,
    .xCheckReservedLock = do_check_lock,
    .xFileControl = do_control,
    .xSectorSize = do_sector_size,
    .xDeviceCharacteristics = do_characteristics,
    .xShmMap = do_shm_map,
    .xShmLock = do_shm_lock,
    .xShmBarrier = do_shm_barrier,
    .xShmUnmap = do_shm_unmap,
};

/* ---- the VFS -------------------------------------------------------------------------------- */

/* Notes that a file that had content before its first opening is on the disk: a new store has its
 * first page before SQLite opens it (file_creation.c). */
static void note_durable(struct content *content, sqlite3_file *real)
{
    sqlite3_int64 size = 0;

    if (real->pMethods->xFileSize(real, &size) || !size)
        return;
    make_room(content, size);
    if (real->pMethods->xRead(real, content->durable, (int)size, 0))
        abort();
    content->exists = true;
}

/* Opens a file. A removed file that is created again begins with a truncation, because its old
 * content may come back. */
static int do_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags, int *out)
{
    struct disk_file *file = (struct disk_file *)base;
    int result;

    (void)vfs;
    memset(file, 0, sizeof *file);
    file->real = (sqlite3_file *)(file + 1);
    result = real_vfs->xOpen(real_vfs, name, file->real, flags, out);
    if (result)
        return result;
    if (name && flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) {
        int known;

        pthread_mutex_lock(&mutex);
        known = files_count;
        file->content = find_content(name);
        if (files_count > known)
            note_durable(file->content, file->real);
        if (file->content->deleted)
            note(file->content, NULL, -1, 0);
        file->content->deleted = false;
        file->heard = file->content->refusals;
        pthread_mutex_unlock(&mutex);
    }
    file->base.pMethods = &methods;
    return SQLITE_OK;
}

static int do_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    bool dead;

    (void)vfs;
    pthread_mutex_lock(&mutex);
    dead = cut;
    if (!dead) {
        find_content(name)->deleted = true;
        if (sync_directory && honest)
            sync_names();
    }
    pthread_mutex_unlock(&mutex);
    return dead ? SQLITE_IOERR_DELETE : real_vfs->xDelete(real_vfs, name, sync_directory);
}

/* Prints the numbers of cuts and states. tools/coverage adds up these lines. */
static void report_cuts(void)
{
    if (getpid() == installer && cuts)
        printf("disk: the power was cut %" PRId64 " times, and %" PRId64 " states were opened\n",
               cuts, states);
}

void disk_install(void)
{
    installer = getpid();
    atexit(report_cuts);
    real_vfs = sqlite3_vfs_find(NULL);
    disk_vfs = *real_vfs;
    disk_vfs.zName = "disk";
    disk_vfs.szOsFile = (int)sizeof(struct disk_file) + real_vfs->szOsFile;
    disk_vfs.xOpen = do_open;
    disk_vfs.xDelete = do_delete;
    sqlite3_vfs_register(&disk_vfs, 1);
}

/* ---- the test's side ------------------------------------------------------------------------ */

void disk_reset(void)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < files_count; i++) {
        drop_changes(&files[i], files[i].count);
        free(files[i].changes);
        free(files[i].durable);
    }
    files_count = 0;
    cut = false;
    honest = true;
    cut_at = cut_later = fail_at = faults = calls = 0;
    fault = DISK_NO_FAULT;
    only = NULL;
    pthread_mutex_unlock(&mutex);
}

void disk_honest(bool value)
{
    pthread_mutex_lock(&mutex);
    honest = value;
    pthread_mutex_unlock(&mutex);
}

void disk_cut_at_fault(int64_t number)
{
    pthread_mutex_lock(&mutex);
    cut_later = number;
    pthread_mutex_unlock(&mutex);
}

void disk_cut_after(int64_t number)
{
    pthread_mutex_lock(&mutex);
    cut_at = number;
    pthread_mutex_unlock(&mutex);
}

void disk_cut(void)
{
    pthread_mutex_lock(&mutex);
    cuts += !cut;
    cut = true;
    pthread_mutex_unlock(&mutex);
}

bool disk_is_cut(void)
{
    bool is_cut;

    pthread_mutex_lock(&mutex);
    is_cut = cut;
    pthread_mutex_unlock(&mutex);
    return is_cut;
}

void disk_fail(enum disk_fault which, int64_t number, bool lasts)
{
    pthread_mutex_lock(&mutex);
    fault = which;
    fail_at = number;
    lasting = lasts;
    faults = 0;
    pthread_mutex_unlock(&mutex);
}

void disk_fail_only(const char *suffix)
{
    pthread_mutex_lock(&mutex);
    only = suffix;
    pthread_mutex_unlock(&mutex);
}

void disk_sync_takes(unsigned microseconds)
{
    pthread_mutex_lock(&mutex);
    sync_us = microseconds;
    pthread_mutex_unlock(&mutex);
}

void disk_hold_syncs(bool hold)
{
    pthread_mutex_lock(&mutex);
    holds = hold;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&mutex);
}

int disk_held_syncs(void)
{
    int number;

    pthread_mutex_lock(&mutex);
    number = syncs_held;
    pthread_mutex_unlock(&mutex);
    return number;
}

int64_t disk_faults(void)
{
    int64_t number;

    pthread_mutex_lock(&mutex);
    number = faults;
    pthread_mutex_unlock(&mutex);
    return number;
}

int64_t disk_calls(void)
{
    int64_t number;

    pthread_mutex_lock(&mutex);
    number = calls;
    pthread_mutex_unlock(&mutex);
    return number;
}

/* Returns how many bytes of a change reach the disk: whole, missing, or torn. */
static int part_of(const struct change *change, struct random *random)
{
    uint64_t choice = truce__random_below(random, 4);

    if (choice == 0)
        return 0;
    if (choice > 1 || change->size <= SECTOR)
        return change->size;
    return (int)truce__random_below(random, (uint64_t)(change->size / SECTOR)) * SECTOR;
}

static void shuffle(int *order, int count, struct random *random)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)truce__random_below(random, (uint64_t)i + 1), kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
}

/* Applies a random part of the unsynced changes, in order or shuffled. Each write is whole,
 * missing, or torn; each truncation happens or not. */
static void survive(struct content *content, struct random *random)
{
    int *order = malloc(((size_t)content->count + 1) * sizeof *order);
    bool in_order = truce__random_below(random, 2);

    shuffle(order, content->count, random);
    for (int i = 0; i < content->count; i++) {
        const struct change *change = &content->changes[in_order ? i : order[i]];

        if (change->size >= 0)
            apply(content, change, part_of(change, random));
        else if (truce__random_below(random, 2))
            apply(content, change, 0);
    }
    free(order);
}

static void write_file(const struct content *content, const char *directory)
{
    const char *slash = strrchr(content->name, '/');
    char path[1024];
    int file;

    snprintf(path, sizeof path, "%s/%s", directory, slash ? slash + 1 : content->name);
    file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (file < 0 || write(file, content->durable, (size_t)content->size) != content->size)
        abort();
    close(file);
}

/* Returns whether the file exists after the cut. If its creation or removal is not durable, the
 * result is random. */
static bool name_survives(const struct content *content, struct random *random)
{
    if (content->exists == !content->deleted)
        return content->exists;
    return truce__random_below(random, 2);
}

void disk_restore(const char *directory, struct random *random)
{
    pthread_mutex_lock(&mutex);
    states++;
    for (int i = 0; i < files_count; i++) {
        struct content copy = files[i];

        if (!name_survives(&copy, random))
            continue;
        copy.durable = malloc((size_t)copy.room + 1);
        memcpy(copy.durable, files[i].durable ? files[i].durable : copy.durable,
               files[i].durable ? (size_t)copy.room : 0);
        survive(&copy, random);
        write_file(&copy, directory);
        free(copy.durable);
    }
    pthread_mutex_unlock(&mutex);
}
