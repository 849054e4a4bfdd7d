/*
 * Pages with checksums.
 *
 *     | SQLite's part, 4088 bytes | checksum, 8 bytes, little-endian |
 *
 * SQLite does not use the last bytes of a page if the header of the file reserves them (byte 20 of
 * page 1), as it does for its own checksum VFS. A page gets its checksum when it is written to the
 * database file, which is when a checkpoint moves it there. Every page that is read from the file
 * is compared with its checksum. A frame of the WAL has SQLite's own checksum and needs no other;
 * the last bytes of the page in a frame mean nothing.
 *
 * The first bytes of page 1 in the file are not SQLite's (file_magic.c).
 *
 * Invariants:
 *  1. A page that was written through this VFS and is read as it was written passes.
 *  2. A page with one changed aligned word of 8 bytes never passes; any other change passes once in
 *     2^64. The sum includes the page number, so a page in the place of another one fails, too.
 *  3. The sum covers the bytes in the file, with the first bytes of a truce store (file_magic.c).
 *     Page 1 of another kind of file is SQLITE_NOTADB.
 *  4. A page that fails is SQLITE_IOERR_DATA, and nothing of it is used.
 *
 * The sum has four lanes of 64 bits. Each is a chain of steps that are bijections of both the lane
 * and the next word (hence invariant 2), so a processor executes four steps at once. A page takes a
 * quarter of a microsecond, less than the call that reads it.
 *
 * The index of the log, which SQLite shares between processes, begins with a header that every
 * commit writes last and that completes the commit. Its third number counts commits (SQLite's
 * "WAL-mode File Format", 2.1). Every commit, by truce or by another program, is visible there at
 * once.
 *
 * When a connection opens, SQLite reads the first 100 bytes of the file alone to learn the page
 * size. This read is not verified; SQLite reads the whole page 1 before it relies on anything.
 */
#include "engine/storage/checksum_vfs.h"

#include <bson/bson.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/budget.h"
#include "engine/storage/file_format.h"
#include "engine/storage/kv.h"
#include "engine/storage/mapping_guard.h"
#include "engine/storage/page_cache.h"

#define HEADER_BYTES 100
/* The number of bytes that one step of all four lanes takes. */
#define STRIPE        32
#define STEPS_OF_PAGE 64

/* SQLITE_IOCAP_SUBPAGE_READ. From a file with this characteristic, SQLite 3.48 and later may read
 * parts of pages, which no checksum covers. */
#define SUBPAGE_READ 0x00008000

struct kv_page_file {
    /* Must be the first field, because SQLite passes a pointer to it. */
    sqlite3_file base;
    /* The last page and the last frame of the log with a wrong checksum, or 0 if none was found. */
    uint32_t damaged, damaged_frame;
    /* The connection is moving pages, so frames of the log are compared with their checksums. */
    bool verifies;
    /* `pace`: the number of pages to write between two syncs, or 0 if SQLite decides. `written`:
     * the number of pages since the last sync. */
    uint32_t pace, written;
    /* Receives failed syncs. */
    struct kv_watch watch;
    /* The file of the real VFS that this file wraps. */
    sqlite3_file *real;
    /* The budget that each read takes from, or NULL for no limit. */
    struct budget *budget;
    /* The counter of commits in the index of the log, or NULL if no index is mapped yet. */
    const atomic_uint *commits;
    /* The pages that the connection shares with others, or NULL if it shares none. */
    struct page_cache *cache;
    /* The mapped parts of the index of the log. */
    void *regions[KV_PAGE_PARTS_MAX];
    /* The name of the file, a string that SQLite owns while the file is open. */
    const char *name;
    /* The index of the log is in the private memory of SQLite, so there is nothing to lock. */
    bool indexed_alone;
    /* The connection was opened read-only. */
    bool reads_only;
    /* Scratch memory for one page. */
    uint8_t page[KV_PAGE_BYTES];
};

static struct kv_page_file *page_of(sqlite3_file *file)
{
    return (struct kv_page_file *)file;
}

/* ---- the checksum --------------------------------------------------------------------------- */

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

static bool page_is_valid(const uint8_t *page, uint32_t number)
{
    return page_word_at(page + KV_PAGE_BYTES - KV_SUM_BYTES) == truce__kv_page_sum(page, number);
}

/* ---- reading and writing -------------------------------------------------------------------- */

/* Converts the page to SQLite's form if its checksum is right. */
static int page_verify(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    uint32_t number = (uint32_t)(offset / KV_PAGE_BYTES + 1);

    if (!page_is_valid(page, number)) {
        file->damaged = number;
        return number == 1 && !truce__kv_magic_show(page) ? SQLITE_NOTADB : SQLITE_IOERR_DATA;
    }
    if (number == 1 && !truce__kv_magic_show(page))
        return SQLITE_NOTADB;
    return SQLITE_OK;
}

/* Refuses a read of a part of a page. A read may end within a page at the end of the file only if
 * the file was truncated. Pages after the end have no content yet. */
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
    return result ? result : page_verify(file, page, offset);
}

/* Reads a page and verifies its checksum. A read that fails, or returns other bytes than the file
 * has, may succeed the next time. */
static int page_read_page(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    int result = SQLITE_IOERR_READ;

    for (int i = 0; i < KV_READ_TRIES && result && result != SQLITE_IOERR_SHORT_READ; i++)
        result = read_page_once(file, page, offset);
    return result;
}

/* ---- pages that the connections of a store share ------------------------------------------- */

/* The index of the log begins with its header, a second copy of it, and the number of moved
 * frames. A commit writes the second copy first. A writer that begins the log again writes the
 * header before the number. */
bool truce__kv_index_end(const atomic_uint *index, struct kv_log_end *end)
{
    uint32_t first[KV_INDEX_WORDS], second[KV_INDEX_WORDS];

    for (int i = 0; i < KV_INDEX_WORDS; i++)
        first[i] = atomic_load_explicit(&index[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    end->moved = atomic_load(&index[2 * KV_INDEX_WORDS]);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < KV_INDEX_WORDS; i++)
        second[i] = atomic_load_explicit(&index[KV_INDEX_WORDS + i], memory_order_relaxed);
    end->frames = first[4];
    memcpy(end->sum, &first[6], sizeof end->sum);
    memcpy(&end->salts, &first[8], sizeof end->salts);
    /* page_cache.h, invariant 3. */
    return !memcmp(first, second, sizeof first) && end->moved <= end->frames;
}

static const atomic_uint *page_index_of(const struct kv_page_file *file)
{
    return file->cache && file->commits
               ? file->commits - KV_PAGE_COMMITS_OFFSET / sizeof *file->commits
               : NULL;
}

/* Builds the name that a page of the file has in the cache. Returns false if the name is not known
 * now. */
static bool page_name_of(const struct kv_page_file *file, sqlite3_int64 offset,
                         struct page_name *name)
{
    const atomic_uint *index = page_index_of(file);
    struct kv_log_end end;

    if (!index || !truce__kv_index_end(index, &end))
        return false;
    *name = (struct page_name){end.salts, (uint32_t)(offset / KV_PAGE_BYTES + 1), end.moved};
    return true;
}

/* Reads a page that may be in the cache of the store (page_cache.h). */
static int page_read_shared(struct kv_page_file *file, uint8_t *page, sqlite3_int64 offset)
{
    struct page_name name;
    bool known = page_name_of(file, offset, &name);
    int result;

    if (known && truce__page_cache_get(file->cache, &name, page))
        return SQLITE_OK;
    result = page_read_page(file, page, offset);
    if (!result && known && truce__page_cache_wants(file->cache, &name, page))
        truce__page_cache_put(file->cache, &name, page);
    return result;
}

/* Returns the cache and the name of the page in a frame. The snapshot of the connection keeps the
 * log from beginning again. */
struct page_cache *truce__kv_page_frame_name(sqlite3_file *base, uint32_t frame,
                                             struct page_name *name)
{
    const struct kv_page_file *file = page_of(base);
    const atomic_uint *index = page_index_of(file);
    uint32_t salts[2];

    if (!index)
        return NULL;
    salts[0] = atomic_load(&index[8]);
    salts[1] = atomic_load(&index[9]);
    *name = (struct page_name){.number = frame, .moved = PAGE_IN_LOG};
    memcpy(&name->salts, salts, sizeof name->salts);
    return file->cache;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Reads part of a page, and verifies the whole page. */
static int page_read_part(struct kv_page_file *file, void *data, int size, sqlite3_int64 offset)
{
    sqlite3_int64 start = offset - offset % KV_PAGE_BYTES;
    int result = page_read_page(file, file->page, start);

    if (!result || result == SQLITE_IOERR_SHORT_READ)
        memcpy(data, file->page + (offset - start), (size_t)size);
    return result;
}

/* Reads the header alone, which no checksum covers. */
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

/* Reads a page, a part of a page, or the header of the file, and verifies the checksum. Each read
 * takes from the budget of the call. */
static int page_read(sqlite3_file *base, void *data, int size, sqlite3_int64 offset)
{
    struct kv_page_file *file = page_of(base);

    if (truce__budget_spend(file->budget, STEPS_OF_PAGE, NULL)) {
        /* Fails only once, because SQLite may have to read pages to roll back. */
        file->budget = NULL;
        return SQLITE_INTERRUPT;
    }
    if (offset + size <= HEADER_BYTES)
        return page_read_header(file, data, size, offset);
    if (size == KV_PAGE_BYTES && offset % KV_PAGE_BYTES == 0)
        return page_read_shared(file, data, offset);
    if (offset % KV_PAGE_BYTES + size <= KV_PAGE_BYTES)
        return page_read_part(file, data, size, offset);
    /* The pages of this file have another size, so it is not a file of truce. */
    return SQLITE_NOTADB;
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
        /* SQLite writes only whole pages. */
        return SQLITE_IOERR_WRITE;
    result = write_sum(file, data, offset);
    if (result || !file->pace || ++file->written < file->pace)
        return result;
    return page_sync(base, SQLITE_SYNC_NORMAL);
}

static bool page_is_empty(const uint8_t *page)
{
    return !page[0] && !memcmp(page, page + 1, KV_PAGE_BYTES - 1);
}

/* Reads a page of the file itself, without the log, and whether its checksum is right. */
static int page_read_state(struct kv_page_file *file, struct kv_page_state *state)
{
    sqlite3_int64 offset = (sqlite3_int64)(state->page - 1) * KV_PAGE_BYTES, size = 0;
    int result = file->real->pMethods->xFileSize(file->real, &size);

    state->there = offset < size;
    state->valid = false;
    if (result || !state->there)
        return result;
    /* If the file ends within a page, it was truncated. */
    result = file->real->pMethods->xRead(file->real, state->bytes, KV_PAGE_BYTES, offset);
    state->valid =
        !result && (page_is_valid(state->bytes, state->page) || page_is_empty(state->bytes));
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

/* Implements xFileControl: handles the requests of this VFS, and passes all others to the real
 * file. */
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
    case KV_PAGE_PARTS:
        *(void *const **)arg = file->regions;
        return SQLITE_OK;
    case KV_PAGE_CACHE:
        file->cache = *(struct page_cache **)arg;
        return SQLITE_OK;
    case KV_PAGE_STATE:
        return page_read_state(file, arg);
    case KV_PAGE_BOUND:
        file->budget = *(struct budget **)arg;
        return SQLITE_OK;
    default:
        return file->real->pMethods->xFileControl(file->real, what, arg);
    }
}

/* ---- calls that the wrapped file handles ---------------------------------------------------- */

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

/* Returns SQLITE_IOERR_LOCK in place of SQLITE_BUSY if the operating system failed to lock. SQLite
 * takes every error of the operating system for a lock that another process holds, and retries for
 * ten seconds. `result` is the result of a call before which errno was 0. */
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

/* Returns whether the index of the log is missing. On read-only media there may be a log without an
 * index, and the index cannot be created. No other process can be writing then: it would have
 * created the index. For a connection that writes, a missing index is a temporary failure (no
 * descriptors are left): with a private index, other processes would not see its commits. */
static bool page_lacks_index(const struct kv_page_file *file)
{
    char *path = bson_strdup_printf("%s-shm", file->name);
    bool lacks = access(path, F_OK) && errno == ENOENT;

    bson_free(path);
    return lacks;
}

/* Maps a region of the index of the log, and guards the mapping. SQLite uses an index in its own
 * memory if it learns that the shared one is not initialized. It checks again before each
 * transaction. */
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
    if (!result && *map && region < KV_PAGE_PARTS_MAX && !file->regions[region]) {
        file->regions[region] = (void *)(uintptr_t)*map;
        truce__mapping_guard(file->regions[region], (size_t)size);
    }
    if (!result && !region && *map)
        file->commits = (const atomic_uint *)((const uint8_t *)*map + KV_PAGE_COMMITS_OFFSET);
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
    for (int i = 0; i < KV_PAGE_PARTS_MAX; i++) {
        if (page_of(base)->regions[i])
            truce__mapping_unguard(page_of(base)->regions[i]);
        page_of(base)->regions[i] = NULL;
    }
    page_of(base)->commits = NULL;
    return page_of(base)->real->pMethods->xShmUnmap(page_of(base)->real, remove);
}

/* Version 2 has the shared index of the WAL but no memory map, which would bypass the checksums. */
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
    file->cache = NULL;
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
