/*
 * Guests: readers without permission to write.
 *
 * SQLite reads a file with a log through an index in shared memory (-shm), which a guest cannot make.
 * Where somebody has the store open it is there, and can be read. Where nobody has, the file can be read
 * alone ("immutable": no locks, no log), as long as nobody comes.
 *
 *     at rest --somebody is there, or the log has content--> live
 *
 * At rest each snapshot holds byte 4 of the lock file, shared; who wants to change the file itself, in a
 * checkpoint above all, asks for that byte alone first, once: after that every guest sees that somebody
 * is there (byte 3) and turns to the log. Live, a guest is there himself, so that nobody takes the log
 * away.
 *
 * Invariants:
 *  1. A snapshot at rest began when nobody was there and there was no log, and the file does not change
 *     before it ends.
 *  2. A connection at rest that was opened before the file changed is not used again: it would believe its
 *     pages. The times and the size of the file tell.
 *  3. A guest writes nothing, and holds nobody up but for as long as one snapshot at rest lasts.
 *
 * Deliberately not done: the same without a lock file, which somebody has put away and the guest cannot
 * make. Then only what stands beside the file is looked at, before each snapshot: for media that nobody
 * can write to that is enough.
 */
#include "engine/read_only_reader.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/storage/kv.h"
#include "engine/storage/lock_bytes.h"

#define PATIENCE_MS 1000

struct guest *truce__guest_new(const char *path)
{
    struct guest *guest = bson_malloc0(sizeof *guest);

    guest->path = bson_strdup(path);
    guest->lock_path = bson_strdup_printf("%s-lock", path);
    guest->file = -1;
    pthread_mutex_init(&guest->mutex, NULL);
    return guest;
}

void truce__guest_free(struct guest *guest)
{
    if (!guest)
        return;
    truce_assert(!guest->resting);
    if (guest->file >= 0)
        truce__process_close(guest->file);
    pthread_mutex_destroy(&guest->mutex);
    bson_free(guest->lock_path);
    bson_free(guest->path);
    bson_free(guest);
}

/* ---- what is there -------------------------------------------------------------------------- */

/* IO: that cannot be told. */
static truce_status look_at_log(const struct guest *guest, bool *has, bson_error_t *error)
{
    char *log = bson_strdup_printf("%s-wal", guest->path);
    truce_status status = TRUCE_OK;
    struct stat found;
    int result = stat(log, &found);

    *has = !result && found.st_size;
    if (result && errno != ENOENT)
        status = truce__fail(TRUCE_IO, error, "cannot look at \"%s\": %s", log, strerror(errno));
    bson_free(log);
    return status;
}

static void find_lock_file(struct guest *guest)
{
    if (guest->file < 0)
        guest->file = truce__lock_file_open(guest->lock_path, O_RDONLY);
}

/* Others, while the guest himself is not there. */
static bool somebody_is_there(const struct guest *guest)
{
    return guest->file >= 0 && lock_has_byte(guest->file, BYTE_PRESENT);
}

static bool guest_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* ---- one try, under the mutex; false: again --------------------------------------------------- */

static bool become_live(struct guest *guest)
{
    if (guest->file >= 0 && !lock_set_byte(guest->file, BYTE_PRESENT, F_RDLCK))
        return false;
    guest->live = true;
    guest->epoch++;
    return true;
}

static truce_status rest(struct guest *guest, bson_error_t *error)
{
    struct stat now;

    if (stat(guest->path, &now))
        return truce__fail(TRUCE_IO, error, "cannot look at \"%s\": %s", guest->path,
                           strerror(errno));
    if (guest->was.st_ino && (guest->was.st_ino != now.st_ino || guest->was.st_dev != now.st_dev))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" was replaced while it was open",
                           guest->path);
    if (!guest_is_same(&guest->was, &now))
        guest->epoch++;
    guest->was = now;
    guest->resting++;
    return TRUCE_OK;
}

static void stop_resting(struct guest *guest)
{
    if (!guest->resting && guest->file >= 0)
        lock_set_byte(guest->file, BYTE_GUEST, F_UNLCK);
}

static bool try_begin(struct guest *guest, truce_status *status, bson_error_t *error)
{
    bool live, has;

    if (guest->live)
        return true;
    find_lock_file(guest);
    if (guest->file >= 0 && !lock_set_byte(guest->file, BYTE_GUEST, F_RDLCK))
        return false;
    *status = look_at_log(guest, &has, error);
    live = !*status && (somebody_is_there(guest) || has);
    if (!live && !*status)
        *status = rest(guest, error);
    if (live || *status)
        stop_resting(guest);
    return live ? become_live(guest) : true;
}

truce_status truce__guest_begin(struct guest *guest, struct guest_pass *pass, bson_error_t *error)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + PATIENCE_MS * INT64_C(1000000);
    truce_status status = TRUCE_OK;
    bool begun = false;

    while (!begun) {
        pthread_mutex_lock(&guest->mutex);
        begun = try_begin(guest, &status, error);
        pass->epoch = guest->epoch;
        pass->flags = KV_READ_ONLY | (guest->live ? 0 : KV_IMMUTABLE);
        pthread_mutex_unlock(&guest->mutex);
        if (!begun && truce__clock_monotonic_ns() >= deadline_ns)
            return truce__fail(TRUCE_LOCKED, error, "another process is changing \"%s\"",
                               guest->path);
        if (!begun)
            truce__clock_sleep_ms(1);
    }
    return status;
}

void truce__guest_end(struct guest *guest, const struct guest_pass *pass)
{
    if (!(pass->flags & KV_IMMUTABLE))
        return;
    pthread_mutex_lock(&guest->mutex);
    truce_assert(guest->resting > 0);
    guest->resting--;
    stop_resting(guest);
    pthread_mutex_unlock(&guest->mutex);
}
