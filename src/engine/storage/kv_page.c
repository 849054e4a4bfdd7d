/*
 * Pages with checksums.
 *
 *     | what SQLite uses, 4088 bytes | checksum, 8 bytes, little-endian |
 *
 * SQLite leaves the last bytes of every page alone where the file's header reserves them (byte 20 of
 * page 1), as it does for its own checksum VFS. A page gets its checksum when it is written to the
 * database file, which is when a checkpoint moves it there, and loses it nowhere: each page that
 * comes in from the file is compared with it. A frame of the WAL has SQLite's own checksum and needs no
 * other; what stands in a frame's last bytes means nothing.
 *
 * Invariants:
 *  1. A page that was written through this VFS and is read as it was written passes.
 *  2. A page of which one aligned word of 8 bytes differs never passes; any other change does once
 *     in 2^64. The number of the page is in the sum, so a page in the place of another fails too.
 *  3. A file of this format is never taken for one without checksums, whatever its header has become:
 *     what says so is the reserved number, or the application id and the format.
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
#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/budget.h"
#include "engine/storage/kv.h"
#include "engine/storage/kv_format.h"

#define HEADER_BYTES   100
#define PLACE_RESERVED 20
#define PLACE_FORMAT   60
#define PLACE_ID       68
#define STRIPE         32 /* bytes of one step of all lanes */
#define STEPS_OF_PAGE  64

/* new in SQLite 3.48: parts of pages may be read, which no checksum covers */
#define SUBPAGE_READ 0x00008000

struct kv_page_file {
    sqlite3_file base; /* first */
    bool sums;
    uint32_t damaged, damaged_frame;
    bool verifies;
    uint32_t pace, written; /* pages since the last sync, where there is a pace */
    struct kv_watch watch;
    sqlite3_file *real; /* behind this */
    struct budget *budget;
    const atomic_uint *commits;
    uint8_t page[KV_PAGE_BYTES];
};

static struct kv_page_file *page_of(sqlite3_file *file)
{
    return (struct kv_page_file *)file;
}

/* ---- the sum --------------------------------------------------------------------------------- */

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return BSON_UINT64_FROM_LE(word);
}

static uint64_t step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9e3779b97f4a7c15u;
    return lane ^ lane >> 29;
}

uint64_t truce__kv_page_sum(const uint8_t *page, uint32_t number)
{
    uint64_t a = number, b = 0xc2b2ae3d27d4eb4fu, c = 0x165667b19e3779f9u, d = 0x27d4eb2f165667c5u;
    const uint8_t *end = page + KV_PAGE_BYTES - STRIPE;

    for (; page < end; page += STRIPE) {
        a = step(a, word_at(page));
        b = step(b, word_at(page + 8));
        c = step(c, word_at(page + 16));
        d = step(d, word_at(page + 24));
    }
    a = step(a, word_at(page));
    b = step(b, word_at(page + 8));
    c = step(c, word_at(page + 16));
    return step(step(step(step(d, c), b), a), KV_PAGE_BYTES);
}

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Whoever reads or writes the header knows more than before; nobody knows less. */
static void learn(struct kv_page_file *file, const uint8_t *header)
{
    uint32_t id = number_at(header + PLACE_ID);

    if (memcmp(header, "SQLite format 3", 16) != 0 && id != KV_APPLICATION_ID)
        return;
    if (header[PLACE_RESERVED] == KV_SUM_BYTES && (!id || id == KV_APPLICATION_ID))
        file->sums = true;
    if (id == KV_APPLICATION_ID && number_at(header + PLACE_FORMAT) >= KV_FORMAT_SUMS)
        file->sums = true;
}

static bool is_sound(const uint8_t *page, uint32_t number)
{
    return word_at(page + KV_PAGE_BYTES - KV_SUM_BYTES) == truce__kv_page_sum(page, number);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static int verify(struct kv_page_file *file, const uint8_t *page, sqlite3_int64 offset)
{
    uint32_t number = (uint32_t)(offset / KV_PAGE_BYTES + 1);

    if (is_sound(page, number))
        return SQLITE_OK;
    file->damaged = number;
    return SQLITE_IOERR_DATA;
}

/* What ends within a page was cut. Pages behind the end have no content yet. */
static int refuse_part(struct kv_page_file *file, sqlite3_int64 offset)
{
    sqlite3_int64 size = 0;

    if (!file->sums || file->real->pMethods->xFileSize(file->real, &size) || offset >= size)
        return SQLITE_IOERR_SHORT_READ;
    file->damaged = (uint32_t)(offset / KV_PAGE_BYTES + 1);
    return SQLITE_IOERR_DATA;
}

/* Part of a page: the whole of it is looked at. */
static int read_part(struct kv_page_file *file, void *data, int size, sqlite3_int64 offset)
{
    sqlite3_int64 start = offset - offset % KV_PAGE_BYTES;
    int result = file->real->pMethods->xRead(file->real, file->page, KV_PAGE_BYTES, start);

    if (result == SQLITE_IOERR_SHORT_READ)
        result = refuse_part(file, start);
    else if (!result)
        result = verify(file, file->page, start);
    if (!result || result == SQLITE_IOERR_SHORT_READ)
        memcpy(data, file->page + (offset - start), (size_t)size);
    return result;
}

static int page_read(sqlite3_file *base, void *data, int size, sqlite3_int64 offset)
{
    struct kv_page_file *file = page_of(base);
    bool header = offset + size <= HEADER_BYTES;
    int result;

    if (truce__budget_spend(file->budget, STEPS_OF_PAGE, NULL)) {
        file->budget = NULL; /* refused once: what SQLite reads to roll back it gets */
        return SQLITE_INTERRUPT;
    }
    if (file->sums && !header && size < KV_PAGE_BYTES &&
        offset % KV_PAGE_BYTES + size <= KV_PAGE_BYTES)
        return read_part(file, data, size, offset);
    result = file->real->pMethods->xRead(file->real, data, size, offset);
    if (result)
        return result == SQLITE_IOERR_SHORT_READ ? refuse_part(file, offset) : result;
    if (!offset && size >= HEADER_BYTES)
        learn(file, data);
    if (!file->sums || size != KV_PAGE_BYTES || offset % KV_PAGE_BYTES)
        return SQLITE_OK;
    return verify(file, data, offset);
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
    sum = truce__kv_page_sum(file->page, (uint32_t)(offset / KV_PAGE_BYTES + 1));
    sum = BSON_UINT64_TO_LE(sum);
    memcpy(file->page + KV_PAGE_BYTES - KV_SUM_BYTES, &sum, sizeof sum);
    return file->real->pMethods->xWrite(file->real, file->page, KV_PAGE_BYTES, offset);
}

static int page_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 offset)
{
    struct kv_page_file *file = page_of(base);
    int result;

    if (!offset && size >= HEADER_BYTES)
        learn(file, data);
    if (!file->sums || size != KV_PAGE_BYTES || offset % KV_PAGE_BYTES)
        result = file->real->pMethods->xWrite(file->real, data, size, offset);
    else
        result = write_sum(file, data, offset);
    if (result || !file->pace || ++file->written < file->pace)
        return result;
    return page_sync(base, SQLITE_SYNC_NORMAL);
}

static bool is_empty(const uint8_t *page)
{
    return !page[0] && !memcmp(page, page + 1, KV_PAGE_BYTES - 1);
}

static int look(struct kv_page_file *file, struct kv_page_look *look)
{
    sqlite3_int64 offset = (sqlite3_int64)(look->page - 1) * KV_PAGE_BYTES;
    int result = file->real->pMethods->xRead(file->real, look->bytes, KV_PAGE_BYTES, offset);
    sqlite3_int64 size = 0;

    look->sound =
        !result && (!file->sums || is_sound(look->bytes, look->page) || is_empty(look->bytes));
    look->there = result != SQLITE_IOERR_SHORT_READ;
    if (look->there)
        return result;
    /* what ends within a page was cut */
    look->there = !file->real->pMethods->xFileSize(file->real, &size) && offset < size;
    return SQLITE_OK;
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
    case KV_PAGE_SUMS:
        memcpy(arg, &file->sums, sizeof file->sums);
        return SQLITE_OK;
    case KV_PAGE_WATCH:
        file->watch = *(const struct kv_watch *)arg;
        return SQLITE_OK;
    case KV_PAGE_COMMITS:
        *(const atomic_uint **)arg = file->commits;
        return SQLITE_OK;
    case KV_PAGE_LOOK:
        return look(file, arg);
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

static int page_lock(sqlite3_file *base, int level)
{
    return page_of(base)->real->pMethods->xLock(page_of(base)->real, level);
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

static int page_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **map)
{
    struct kv_page_file *file = page_of(base);
    int result = file->real->pMethods->xShmMap(file->real, region, size, extend, map);

    if (!result && !region && *map)
        file->commits = (const atomic_uint *)((const uint8_t *)*map + KV_PAGE_COMMITS_PLACE);
    return result;
}

static int page_shm_lock(sqlite3_file *base, int offset, int count, int flags)
{
    return page_of(base)->real->pMethods->xShmLock(page_of(base)->real, offset, count, flags);
}

static void page_shm_barrier(sqlite3_file *base)
{
    page_of(base)->real->pMethods->xShmBarrier(page_of(base)->real);
}

static int page_shm_unmap(sqlite3_file *base, int remove)
{
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
    file->sums = false;
    file->damaged = file->damaged_frame = 0;
    file->verifies = false;
    file->pace = file->written = 0;
    file->watch = (struct kv_watch){0};
    file->commits = NULL;
    file->budget = NULL;
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
