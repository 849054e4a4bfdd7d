/*
 * Pages with checksums.
 *
 *     | what SQLite uses, 4088 bytes | checksum, 8 bytes, little-endian |
 *
 * SQLite does not use the last bytes of a page where the file's header reserves them (byte 20 of page 1), as it does for
 * its own checksum VFS. A page gets its checksum when it is written to the database file, which is when a checkpoint moves
 * it there. Each page that comes in from the file is compared with its checksum. A frame of the WAL has SQLite's own
 * checksum and needs no other; the last bytes of the page in a frame mean nothing.
 *
 * The first bytes of page 1 are not SQLite's in the file (kv_format.h).
 *
 * Invariants:
 *  1. A page that was written through this VFS and is read as it was written passes.
 *  2. A page of which one aligned word of 8 bytes differs never passes; any other change does once
 *     in 2^64. The number of the page is in the sum, so a page in the place of another fails too.
 *  3. The sum is of the bytes in the file, KV_MAGIC included. Page 1 of another kind of file is SQLITE_NOTADB.
 *  4. What fails is SQLITE_IOERR_DATA, and nothing of it is used.
 *
 * The sum is four lanes of 64 bits, each a chain of steps that are bijections of both the lane and the
 * word that comes in (hence invariant 2), so that a processor does four steps at once: a page takes a
 * quarter of a microsecond, less than the call that reads it.
 *
 * The index of the log, which SQLite shares between processes, begins with a header that is written last in
 * every commit, and makes it one; its third number counts them (SQLite's "WAL-mode File Format", 2.1). Whoever
 * commits, with truce or without it, is seen there at once.
 *
 * The header of the file is also read by itself, 100 bytes when a connection opens, to learn the size
 * of pages; that look is not verified, and SQLite reads the whole of page 1 before it trusts anything.
 */
#include "engine/storage/kv_page.h"

#include <bson/bson.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/budget.h"
#include "engine/storage/kv.h"
#include "engine/storage/kv_format.h"
#include "engine/storage/process.h"

#define HEADER_BYTES   100
#define PLACE_RESERVED 20
#define PLACE_ID       68
#define STRIPE         32 /* bytes of one step of all lanes */
#define STEPS_OF_PAGE  64
#define SHM_REGIONS    64 /* of 32 KB that are guarded: the index of a log of a gigabyte */

/* new in SQLite 3.48: parts of pages may be read, which no checksum covers */
#define SUBPAGE_READ 0x00008000

struct kv_page_file {
    sqlite3_file base; /* first */
    uint32_t damaged, damaged_frame;
    bool verifies;
    uint32_t pace, written; /* pages since the last sync, where there is a pace */
    struct kv_watch watch;
    sqlite3_file *real; /* behind this */
    struct budget *budget;
    const atomic_uint *commits;
    void *regions[SHM_REGIONS]; /* of the index of the log that are mapped */
    const char *name;           /* SQLite's, as long as the file is open */
    /* the index of the log is in memory of SQLite: there is nothing to lock */
    bool indexed_alone;
    bool reads_only;
    uint8_t page[KV_PAGE_BYTES];
};

static struct kv_page_file *page_of(sqlite3_file *file)
{
    return (struct kv_page_file *)file;
}

/* ---- the sum --------------------------------------------------------------------------------- */

static uint64_t page_word_at(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return BSON_UINT64_FROM_LE(word);
}

static uint64_t page_step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9e3779b97f4a7c15u;
    return lane ^ lane >> 29;
}

uint64_t truce__kv_page_sum(const uint8_t *page, uint32_t number)
{
    uint64_t a = number, b = 0xc2b2ae3d27d4eb4fu, c = 0x165667b19e3779f9u, d = 0x27d4eb2f165667c5u;
    const uint8_t *end = page + KV_PAGE_BYTES - STRIPE;

    for (; page < end; page += STRIPE) {
        a = page_step(a, page_word_at(page));
        b = page_step(b, page_word_at(page + 8));
        c = page_step(c, page_word_at(page + 16));
        d = page_step(d, page_word_at(page + 24));
    }
    a = page_step(a, page_word_at(page));
    b = page_step(b, page_word_at(page + 8));
    c = page_step(c, page_word_at(page + 16));
    return page_step(page_step(page_step(page_step(d, c), b), a), KV_PAGE_BYTES);
}

/* ---- what the file begins with ------------------------------------------------------------------ */

static const uint8_t sqlite_magic[KV_MAGIC_BYTES] =
    "SQLite format 3\0\x10"; /* pages of 4,096 bytes */
static const uint8_t truce_magic[KV_MAGIC_BYTES] = "truce store\r\n\x1a\n\0\x02"; /* of 512 */

void truce__kv_magic_hide(uint8_t *page)
{
    if (!memcmp(page, sqlite_magic, KV_MAGIC_BYTES))
        memcpy(page, truce_magic, KV_MAGIC_BYTES);
}

bool truce__kv_magic_show(uint8_t *page)
{
    if (memcmp(page, truce_magic, KV_MAGIC_BYTES) != 0)
        return false;
    memcpy(page, sqlite_magic, KV_MAGIC_BYTES);
    return true;
}

/* Before the first checkpoint the application id is in the log alone; then the reserved bytes tell. */
enum kv_kind truce__kv_kind(const uint8_t *bytes)
{
    static const uint8_t id[4] = {0x74, 0x72, 0x75, 0x63}, none[4] = {0};

    if (!memcmp(bytes, truce_magic, KV_MAGIC_BYTES))
        return KV_STORE;
    if (memcmp(bytes, sqlite_magic, 16) != 0)
        return KV_UNKNOWN;
    if (!memcmp(bytes + PLACE_ID, id, sizeof id) ||
        (bytes[PLACE_RESERVED] == KV_SUM_BYTES && !memcmp(bytes + PLACE_ID, none, sizeof none)))
        return KV_EARLIER;
    return KV_SQLITE;
}

static bool page_is_sound(const uint8_t *page, uint32_t number)
{
    return page_word_at(page + KV_PAGE_BYTES - KV_SUM_BYTES) == truce__kv_page_sum(page, number);
}

/* ---- reading and writing --------------------------------------------------------------------- */

/* The page as SQLite is to see it, if its checksum is right. */
static int verify(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    uint32_t number = (uint32_t)(offset / KV_PAGE_BYTES + 1);

    if (!page_is_sound(page, number)) {
        file->damaged = number;
        return number == 1 && !truce__kv_magic_show(page) ? SQLITE_NOTADB : SQLITE_IOERR_DATA;
    }
    if (number == 1 && !truce__kv_magic_show(page))
        return SQLITE_NOTADB;
    return SQLITE_OK;
}

/* Part of a page may end at the end of the file only if the file was cut. Pages behind the end have no content yet. */
static int page_refuse_part(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    sqlite3_int64 size = 0;
    int result = file->real->pMethods->xFileSize(file->real, &size);

    if (result || offset >= size)
        return result ? result : SQLITE_IOERR_SHORT_READ;
    if (!offset && !truce__kv_magic_show(page))
        return SQLITE_NOTADB;
    file->damaged = (uint32_t)(offset / KV_PAGE_BYTES + 1);
    return SQLITE_IOERR_DATA;
}

static int read_page_once(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    int result = file->real->pMethods->xRead(file->real, page, KV_PAGE_BYTES, offset);

    if (result == SQLITE_IOERR_SHORT_READ)
        return page_refuse_part(file, page, offset);
    return result ? result : verify(file, page, offset);
}

/* A read that fails, or brings other bytes than the file has, may be right the next time. */
static int page_read_page(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    int result = SQLITE_IOERR_READ;

    for (int i = 0; i < KV_READ_TRIES && result && result != SQLITE_IOERR_SHORT_READ; i++)
        result = read_page_once(file, page, offset);
    return result;
}

/* Part of a page: the whole of it is looked at. */
static int page_read_part(struct kv_page_file *file, void *data, int size, sqlite3_int64 offset)
{
    sqlite3_int64 start = offset - offset % KV_PAGE_BYTES;
    int result = page_read_page(file, file->page, start);

    if (!result || result == SQLITE_IOERR_SHORT_READ)
        memcpy(data, file->page + (offset - start), (size_t)size);
    return result;
}

/* The header by itself, which no checksum covers. */
static int page_read_header(struct kv_page_file *file, uint8_t *data, int size,
                            sqlite3_int64 offset)
{
    int result = SQLITE_IOERR_READ;

    for (int i = 0; i < KV_READ_TRIES && result && result != SQLITE_IOERR_SHORT_READ; i++)
        result = file->real->pMethods->xRead(file->real, data, size, offset);
    if (!result && !offset && size >= KV_MAGIC_BYTES)
        (void)truce__kv_magic_show(data);
    return result;
}

static int page_read(sqlite3_file *base, void *data, int size, sqlite3_int64 offset)
{
    struct kv_page_file *file = page_of(base);

    if (truce__budget_spend(file->budget, STEPS_OF_PAGE, NULL)) {
        file->budget = NULL; /* refused once: what SQLite reads to roll back it gets */
        return SQLITE_INTERRUPT;
    }
    if (offset + size <= HEADER_BYTES)
        return page_read_header(file, data, size, offset);
    if (size == KV_PAGE_BYTES && offset % KV_PAGE_BYTES == 0)
        return page_read_page(file, data, offset);
    if (offset % KV_PAGE_BYTES + size <= KV_PAGE_BYTES)
        return page_read_part(file, data, size, offset);
    return SQLITE_NOTADB; /* its pages have another size */
}

int truce__kv_page_synced(sqlite3_file *base, int result)
{
    const struct kv_watch *watch = &page_of(base)->watch;

    if (result && watch->failed)
        watch->failed(watch->arg);
    return result;
}

static int page_sync(sqlite3_file *base, int flags)
{
    struct kv_page_file *file = page_of(base);

    file->written = 0;
    return truce__kv_page_synced(base, file->real->pMethods->xSync(file->real, flags));
}

static int write_sum(struct kv_page_file *file, const void *data, sqlite3_int64 offset)
{
    uint64_t sum;

    memcpy(file->page, data, KV_PAGE_BYTES);
    if (!offset)
        truce__kv_magic_hide(file->page);
    sum = truce__kv_page_sum(file->page, (uint32_t)(offset / KV_PAGE_BYTES + 1));
    sum = BSON_UINT64_TO_LE(sum);
    memcpy(file->page + KV_PAGE_BYTES - KV_SUM_BYTES, &sum, sizeof sum);
    return file->real->pMethods->xWrite(file->real, file->page, KV_PAGE_BYTES, offset);
}

static int page_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 offset)
{
    struct kv_page_file *file = page_of(base);
    int result;

    if (size != KV_PAGE_BYTES || offset % KV_PAGE_BYTES)
        return SQLITE_IOERR_WRITE; /* SQLite writes whole pages */
    result = write_sum(file, data, offset);
    if (result || !file->pace || ++file->written < file->pace)
        return result;
    return page_sync(base, SQLITE_SYNC_NORMAL);
}

static bool page_is_empty(const uint8_t *page)
{
    return !page[0] && !memcmp(page, page + 1, KV_PAGE_BYTES - 1);
}

static int page_look(struct kv_page_file *file, struct kv_page_look *look)
{
    sqlite3_int64 offset = (sqlite3_int64)(look->page - 1) * KV_PAGE_BYTES, size = 0;
    int result = file->real->pMethods->xFileSize(file->real, &size);

    look->there = offset < size;
    look->sound = false;
    if (result || !look->there)
        return result;
    /* what ends within a page was cut */
    result = file->real->pMethods->xRead(file->real, look->bytes, KV_PAGE_BYTES, offset);
    look->sound = !result && (page_is_sound(look->bytes, look->page) || page_is_empty(look->bytes));
    return SQLITE_OK;
}

static int page_kind(struct kv_page_file *file, enum kv_kind *kind)
{
    uint8_t bytes[KV_KIND_BYTES] = {0};
    sqlite3_int64 size = 0;
    int result = file->real->pMethods->xFileSize(file->real, &size);

    *kind = KV_EMPTY;
    if (result || !size)
        return result;
    result = file->real->pMethods->xRead(file->real, bytes, sizeof bytes, 0);
    *kind = result ? KV_UNKNOWN : truce__kv_kind(bytes);
    return result == SQLITE_IOERR_SHORT_READ ? SQLITE_OK : result;
}

static int page_control(sqlite3_file *base, int what, void *arg)
{
    struct kv_page_file *file = page_of(base);

    switch (what) {
    case KV_PAGE_DAMAGED:
        memcpy(arg, &file->damaged, sizeof file->damaged);
        return SQLITE_OK;
    case KV_PAGE_FRAME:
        memcpy(arg, &file->damaged_frame, sizeof file->damaged_frame);
        return SQLITE_OK;
    case KV_PAGE_VERIFY:
        memcpy(&file->verifies, arg, sizeof file->verifies);
        return SQLITE_OK;
    case KV_PAGE_PACE:
        memcpy(&file->pace, arg, sizeof file->pace);
        return SQLITE_OK;
    case KV_PAGE_KIND:
        return page_kind(file, arg);
    case KV_PAGE_WATCH:
        file->watch = *(const struct kv_watch *)arg;
        return SQLITE_OK;
    case KV_PAGE_COMMITS:
        *(const atomic_uint **)arg = file->commits;
        return SQLITE_OK;
    case KV_PAGE_LOOK:
        return page_look(file, arg);
    case KV_PAGE_BOUND:
        file->budget = *(struct budget **)arg;
        return SQLITE_OK;
    default:
        return file->real->pMethods->xFileControl(file->real, what, arg);
    }
}

/* ---- the rest is the real file's ------------------------------------------------------------- */

static int page_close(sqlite3_file *base)
{
    struct kv_page_file *file = page_of(base);
    int result = file->real->pMethods->xClose(file->real);

    bson_free(file->real);
    return result;
}

static int page_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    return page_of(base)->real->pMethods->xTruncate(page_of(base)->real, size);
}

bool truce__kv_page_verifies(sqlite3_file *base)
{
    return page_of(base)->verifies;
}

void truce__kv_page_frame_damaged(sqlite3_file *base, uint32_t frame)
{
    page_of(base)->damaged_frame = frame;
}

static int page_file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    return page_of(base)->real->pMethods->xFileSize(page_of(base)->real, size);
}

/* SQLite takes every refusal of the operating system for a lock that another process holds, and tries again for ten
 * seconds. `result` is that of a call before which errno was 0. */
static int page_lock_result(int result)
{
    bool refused = result == SQLITE_BUSY && errno && errno != EAGAIN && errno != EACCES &&
                   errno != EINTR && errno != EBUSY && errno != ETIMEDOUT;

    return refused ? SQLITE_IOERR_LOCK : result;
}

static int page_lock(sqlite3_file *base, int level)
{
    errno = 0;
    return page_lock_result(page_of(base)->real->pMethods->xLock(page_of(base)->real, level));
}

static int page_unlock(sqlite3_file *base, int level)
{
    return page_of(base)->real->pMethods->xUnlock(page_of(base)->real, level);
}

static int page_reserved(sqlite3_file *base, int *reserved)
{
    return page_of(base)->real->pMethods->xCheckReservedLock(page_of(base)->real, reserved);
}

static int page_sector(sqlite3_file *base)
{
    return page_of(base)->real->pMethods->xSectorSize(page_of(base)->real);
}

static int page_characteristics(sqlite3_file *base)
{
    return page_of(base)->real->pMethods->xDeviceCharacteristics(page_of(base)->real) &
           ~SUBPAGE_READ;
}

/* On media that are read-only there may be a log and no index of it, which cannot be made either. Nothing else can write
 * then: a process that could would have made the index. For a connection that writes, a missing index is a failure of the
 * moment (no descriptors are left): an index of its own would hide its commits from other processes. */
static bool page_lacks_index(const struct kv_page_file *file)
{
    char *path = bson_strdup_printf("%s-shm", file->name);
    bool lacks = access(path, F_OK) && errno == ENOENT;

    bson_free(path);
    return lacks;
}

/* SQLite has the index of the log in its own memory if it is told that the shared one is not initialized: it looks again
 * before each transaction. */
static int page_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **map)
{
    struct kv_page_file *file = page_of(base);
    int result = file->real->pMethods->xShmMap(file->real, region, size, extend, map);

    if ((result & 0xff) == SQLITE_CANTOPEN && file->reads_only && page_lacks_index(file)) {
        *map = NULL;
        file->indexed_alone = true;
        return SQLITE_READONLY_CANTINIT;
    }
    file->indexed_alone = false;
    if (!result && *map && region < SHM_REGIONS && !file->regions[region]) {
        file->regions[region] = (void *)(uintptr_t)*map;
        truce__process_guard(file->regions[region], (size_t)size);
    }
    if (!result && !region && *map)
        file->commits = (const atomic_uint *)((const uint8_t *)*map + KV_PAGE_COMMITS_PLACE);
    return result;
}

static int page_shm_lock(sqlite3_file *base, int offset, int count, int flags)
{
    if (page_of(base)->indexed_alone)
        return SQLITE_OK;
    errno = 0;
    return page_lock_result(
        page_of(base)->real->pMethods->xShmLock(page_of(base)->real, offset, count, flags));
}

static void page_shm_barrier(sqlite3_file *base)
{
    page_of(base)->real->pMethods->xShmBarrier(page_of(base)->real);
}

static int page_shm_unmap(sqlite3_file *base, int remove)
{
    for (int i = 0; i < SHM_REGIONS; i++) {
        if (page_of(base)->regions[i])
            truce__process_unguard(page_of(base)->regions[i]);
        page_of(base)->regions[i] = NULL;
    }
    page_of(base)->commits = NULL;
    return page_of(base)->real->pMethods->xShmUnmap(page_of(base)->real, remove);
}

/* Version 2: the shared index of the WAL, and no memory map, which would go around the checksums. */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = page_close,
    .xRead = page_read,
    .xWrite = page_write,
    .xTruncate = page_truncate,
    .xSync = page_sync,
    .xFileSize = page_file_size,
    .xLock = page_lock,
    .xUnlock = page_unlock,
    .xCheckReservedLock = page_reserved,
    .xFileControl = page_control,
    .xSectorSize = page_sector,
    .xDeviceCharacteristics = page_characteristics,
    .xShmMap = page_shm_map,
    .xShmLock = page_shm_lock,
    .xShmBarrier = page_shm_barrier,
    .xShmUnmap = page_shm_unmap,
};

int truce__kv_page_file_size(void)
{
    return (int)sizeof(struct kv_page_file);
}

int truce__kv_page_open(sqlite3_vfs *real, const char *name, sqlite3_file *base, int flags,
                        int *out)
{
    struct kv_page_file *file = page_of(base);
    int result;

    file->base.pMethods = NULL;
    file->damaged = file->damaged_frame = 0;
    file->verifies = false;
    file->pace = file->written = 0;
    file->watch = (struct kv_watch){0};
    file->commits = NULL;
    memset(file->regions, 0, sizeof file->regions);
    file->budget = NULL;
    file->name = name;
    file->indexed_alone = false;
    file->reads_only = flags & SQLITE_OPEN_READONLY;
    file->real = bson_malloc0((size_t)real->szOsFile);
    result = real->xOpen(real, name, file->real, flags, out);
    if (result) {
        bson_free(file->real);
        return result;
    }
    truce_assert(file->real->pMethods->iVersion >= 2);
    file->base.pMethods = &methods;
    return SQLITE_OK;
}
