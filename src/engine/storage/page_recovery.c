/*
 * Reads the pages of a damaged file.
 *
 *     page      the last version that was committed to the log with a valid frame;
 *               otherwise the page in the file if its checksum is right;
 *               otherwise the page in the file, marked as doubtful
 *
 * The checksum of a frame of the log continues that of the frame before it. Therefore a damaged
 * frame is detected, and the frame after it is checked from the checksum in the header of the
 * damaged one. SQLite recovers only up to the first damaged frame and would drop all commits after
 * it. If a newer version of a page is lost this way, the page is doubtful.
 *
 * Sizes come from the file system, and every number in the file is compared with them.
 */
#include "engine/storage/page_recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "engine/storage/file_id.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/lock_bytes.h"

/* The number of bytes of the header of the log, of the header of a frame, and of a frame. */
#define LOG_HEADER   32
#define FRAME_HEADER 24
#define FRAME        (FRAME_HEADER + PAGE_RECOVERY_PAGE_BYTES)
/* Offsets in the header of the file. */
#define HEADER_PAGES 28
#define HEADER_FREE  32
/* The first four bytes of SQLite's log, without the bit that gives the byte order of its
 * checksums. */
#define LOG_MAGIC 0x377f0682u

static uint32_t page_number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Reads exactly `size` bytes. Returns false at the end of the file or after an error. */
static bool read_at_once(int file, uint8_t *to, size_t size, int64_t offset)
{
    while (size) {
        ssize_t got = pread(file, to, size, offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        size -= (size_t)got;
        offset += got;
    }
    return true;
}

/* Reads all bytes, or returns false. A failing read may succeed the next time. */
static bool read_at(int file, void *bytes, size_t size, int64_t offset)
{
    bool good = false;

    for (int i = 0; i < KV_READ_TRIES && !good; i++)
        good = read_at_once(file, bytes, size, offset);
    return good;
}

/* ---- the log -------------------------------------------------------------------------------- */

/* The running checksum of the frames of the log. */
struct chain {
    /* Whether the words of the checksum are big-endian. */
    bool big;
    uint32_t salts[2], sum[2];
};

static uint32_t chain_word(const struct chain *chain, const uint8_t *at)
{
    if (chain->big)
        return page_number_at(at);
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void chain_add(struct chain *chain, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        chain->sum[0] += chain_word(chain, bytes + i) + chain->sum[1];
        chain->sum[1] += chain_word(chain, bytes + i + 4) + chain->sum[0];
    }
}

/* Reads the header of the log and begins the chain of its checksums. Returns false if the header is
 * damaged. */
static bool begin_chain(const struct page_recovery *recovery, struct chain *chain)
{
    uint8_t header[LOG_HEADER];

    if (!read_at(recovery->log, header, sizeof header, 0))
        return false;
    truce__kv_log_show(header);
    if ((page_number_at(header) | 1) != (LOG_MAGIC | 1) ||
        page_number_at(header + 8) != PAGE_RECOVERY_PAGE_BYTES)
        return false;
    *chain = (struct chain){.big = page_number_at(header) & 1,
                            .salts = {page_number_at(header + 16), page_number_at(header + 20)}};
    chain_add(chain, header, 24);
    return chain->sum[0] == page_number_at(header + 24) &&
           chain->sum[1] == page_number_at(header + 28);
}

/* Checks whether the frame is valid. In both cases the chain continues from the checksum in its
 * header. */
static bool check_frame(struct chain *chain, uint8_t *frame)
{
    bool whole;

    (void)truce__kv_magic_show(frame + FRAME_HEADER);
    chain_add(chain, frame, 8);
    chain_add(chain, frame + FRAME_HEADER, PAGE_RECOVERY_PAGE_BYTES);
    whole =
        chain->sum[0] == page_number_at(frame + 16) && chain->sum[1] == page_number_at(frame + 20);
    chain->sum[0] = page_number_at(frame + 16);
    chain->sum[1] = page_number_at(frame + 20);
    return whole;
}

/* Records the frames `from` to `to`, which are one commit. */
static void take_commit(struct page_recovery *recovery, const uint32_t *pages, const bool *whole,
                        uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i <= to; i++) {
        uint32_t page = pages[i - from];

        if (!page || page > recovery->pages)
            continue;
        if (whole[i - from]) {
            recovery->frames[page] = i;
            recovery->marks[page] &= (uint8_t)~PAGE_RECOVERY_STALE;
        } else {
            recovery->marks[page] |= PAGE_RECOVERY_STALE;
        }
    }
}

static bool count_frames(const struct page_recovery *recovery, uint32_t *frames)
{
    struct stat found = {0};

    *frames = 0;
    if (recovery->log >= 0 && fstat(recovery->log, &found))
        return false;
    if (found.st_size >= LOG_HEADER)
        *frames = (uint32_t)((found.st_size - LOG_HEADER) / FRAME);
    return true;
}

/* The frames of a log. The arrays begin at 1. */
struct log_frames {
    uint32_t count;
    /* The page of each frame. */
    uint32_t *pages;
    /* Whether the checksum of the frame is right, and whether the frame is the last of a commit. */
    bool *whole, *ends;
};

static void log_frames_release(struct log_frames *log)
{
    bson_free(log->pages);
    bson_free(log->whole);
    bson_free(log->ends);
}

/* Reads the frames of the log. Counts damaged frames, and ends at the first frame of an earlier
 * log. */
static void recovery_read_log(struct page_recovery *recovery, uint32_t frames,
                              struct log_frames *log)
{
    uint8_t *frame = bson_malloc(FRAME);
    struct chain chain;
    bool begun = frames && begin_chain(recovery, &chain);

    *log = (struct log_frames){.pages = bson_malloc0(((size_t)frames + 1) * sizeof *log->pages),
                               .whole = bson_malloc0(((size_t)frames + 1) * sizeof *log->whole),
                               .ends = bson_malloc0(((size_t)frames + 1) * sizeof *log->ends)};
    for (uint32_t i = 1; begun && i <= frames; i++) {
        if (!read_at(recovery->log, frame, FRAME, LOG_HEADER + (int64_t)(i - 1) * FRAME)) {
            recovery->frames_lost += frames - i + 1;
            break;
        }
        if (page_number_at(frame + 8) != chain.salts[0] ||
            page_number_at(frame + 12) != chain.salts[1])
            break;
        log->count = i;
        log->pages[i] = page_number_at(frame);
        log->whole[i] = check_frame(&chain, frame);
        log->ends[i] = page_number_at(frame + 4) != 0;
        recovery->frames_lost += !log->whole[i];
    }
    bson_free(frame);
}

/* Takes over the pages of each commit. */
static void recovery_take_log(struct page_recovery *recovery, const struct log_frames *log)
{
    uint32_t first = 1;

    for (uint32_t i = 1; i <= log->count; i++) {
        if (!log->ends[i])
            continue;
        take_commit(recovery, log->pages + first, log->whole + first, first, i);
        first = i + 1;
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static truce_status page_recovery_cannot_open(const char *path, bson_error_t *error)
{
    return truce__fail(errno == ENOENT ? TRUCE_NOT_FOUND : TRUCE_IO, error,
                       "cannot read \"%s\": %s", path, strerror(errno));
}

static bool recovery_is_open(const char *path)
{
    char *name = bson_strdup_printf("%s-lock", path);
    int lock = truce__lock_file_open(name, O_RDONLY);
    bool there = lock >= 0 && lock_has_byte(lock, BYTE_PRESENT);

    if (lock >= 0)
        truce__fork_guard_close(lock);
    bson_free(name);
    return there;
}

/* Fails with LOCKED if any process has the file open. In this process, closing a descriptor of the
 * file would also drop SQLite's locks. */
static truce_status page_recovery_check_files(const char *path, bson_error_t *error)
{
    struct file_id id;

    if (!truce__file_id(path, &id))
        return page_recovery_cannot_open(path, error);
    if (truce__fork_guard_has_open(&id) || recovery_is_open(path))
        return truce__fail(TRUCE_LOCKED, error, "\"%s\" is open: close it in every program first",
                           path);
    return TRUCE_OK;
}

/* The number of pages that a file may have had before it was cut, as a multiple of the pages of the
 * file and its log, and at least. A larger number in the log is not used, because it could take any
 * amount of memory. */
#define PAGES_FACTOR 16
#define PAGES_LEAST  (1 << 20)

/* Returns the last page that the log has, or `pages` if that is larger. */
static int64_t page_recovery_last(const struct log_frames *log, int64_t pages)
{
    int64_t most = pages * PAGES_FACTOR > PAGES_LEAST ? pages * PAGES_FACTOR : PAGES_LEAST;

    for (uint32_t i = 1; i <= log->count; i++)
        if (log->whole[i] && log->pages[i] > pages && log->pages[i] <= most)
            pages = log->pages[i];
    return pages;
}

/* Measures the file and allocates the tables for its pages. Fails with LIMIT if it is too large. */
static truce_status page_recovery_measure(struct page_recovery *recovery, const char *path,
                                          uint32_t frames, const struct log_frames *log,
                                          bson_error_t *error)
{
    struct stat found;
    int64_t pages;

    if (fstat(recovery->file, &found))
        return page_recovery_cannot_open(path, error);
    if (!S_ISREG(found.st_mode))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a regular file", path);
    pages = (found.st_size + PAGE_RECOVERY_PAGE_BYTES - 1) / PAGE_RECOVERY_PAGE_BYTES + frames;
    pages = page_recovery_last(log, pages);
    if (pages > TRUCE_SALVAGE_PAGES_MAX)
        return truce__fail(TRUCE_LIMIT, error, "\"%s\" has more than %d pages", path,
                           TRUCE_SALVAGE_PAGES_MAX);
    recovery->pages = (uint32_t)pages;
    recovery->file_pages = (uint32_t)(found.st_size / PAGE_RECOVERY_PAGE_BYTES);
    recovery->frames = bson_malloc0(((size_t)pages + 1) * sizeof *recovery->frames);
    recovery->marks = bson_malloc0((size_t)pages + 1);
    return TRUCE_OK;
}

truce_status truce__page_recovery_open(const char *path, struct page_recovery *recovery,
                                       bson_error_t *error)
{
    char *log = bson_strdup_printf("%s-wal", path);
    truce_status status = page_recovery_check_files(path, error);
    struct log_frames frames_read = {0};
    uint32_t frames = 0;

    *recovery = (struct page_recovery){.file = -1, .log = -1};
    if (!status) {
        recovery->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (recovery->file < 0)
            status = page_recovery_cannot_open(path, error);
    }
    if (!status) {
        recovery->log = open(log, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if ((recovery->log < 0 && errno != ENOENT) || !count_frames(recovery, &frames))
            status = truce__fail(TRUCE_IO, error, "cannot read \"%s\": %s", log, strerror(errno));
    }
    if (!status) {
        recovery_read_log(recovery, frames, &frames_read);
        status = page_recovery_measure(recovery, path, frames, &frames_read, error);
    }
    if (!status)
        recovery_take_log(recovery, &frames_read);
    log_frames_release(&frames_read);
    bson_free(log);
    if (status) {
        truce__page_recovery_close(recovery);
        return status;
    }
    recovery->usable = PAGE_RECOVERY_PAGE_BYTES - KV_SUM_BYTES;
    return TRUCE_OK;
}

void truce__page_recovery_close(struct page_recovery *recovery)
{
    if (recovery->file >= 0)
        close(recovery->file);
    if (recovery->log >= 0)
        close(recovery->log);
    bson_free(recovery->frames);
    bson_free(recovery->marks);
    *recovery = (struct page_recovery){.file = -1, .log = -1};
}

/* ---- pages ---------------------------------------------------------------------------------- */

static bool page_recovery_is_empty(const uint8_t *bytes)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, PAGE_RECOVERY_PAGE_BYTES - 1);
}

static bool has_right_sum(const uint8_t *bytes, uint32_t page)
{
    uint64_t sum;

    memcpy(&sum, bytes + PAGE_RECOVERY_PAGE_BYTES - KV_SUM_BYTES, sizeof sum);
    return BSON_UINT64_FROM_LE(sum) == truce__kv_page_sum(bytes, page);
}

bool truce__page_recovery_finds_store(const struct page_recovery *recovery)
{
    uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES];

    for (uint32_t page = 1; page <= recovery->pages; page++) {
        if (recovery->frames[page])
            return true;
        if (page <= recovery->file_pages &&
            read_at(recovery->file, bytes, sizeof bytes,
                    (int64_t)(page - 1) * PAGE_RECOVERY_PAGE_BYTES) &&
            !page_recovery_is_empty(bytes) &&
            (has_right_sum(bytes, page) || (page == 1 && truce__kv_magic_show(bytes))))
            return true;
    }
    return false;
}

enum page_recovery_state truce__page_recovery_read(const struct page_recovery *recovery,
                                                   uint32_t page,
                                                   uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES])
{
    bool stale = page && page <= recovery->pages && recovery->marks[page] & PAGE_RECOVERY_STALE;
    bool valid;

    if (!page || page > recovery->pages)
        return PAGE_RECOVERY_GONE;
    if (recovery->frames[page]) {
        int64_t offset = LOG_HEADER + (int64_t)(recovery->frames[page] - 1) * FRAME + FRAME_HEADER;

        if (read_at(recovery->log, bytes, PAGE_RECOVERY_PAGE_BYTES, offset)) {
            (void)truce__kv_magic_show(bytes);
            return stale ? PAGE_RECOVERY_DOUBTFUL : PAGE_RECOVERY_VALID;
        }
        stale = true;
    }
    if (page > recovery->file_pages ||
        !read_at(recovery->file, bytes, PAGE_RECOVERY_PAGE_BYTES,
                 (int64_t)(page - 1) * PAGE_RECOVERY_PAGE_BYTES) ||
        page_recovery_is_empty(bytes))
        return PAGE_RECOVERY_GONE;
    valid = !stale && has_right_sum(bytes, page);
    if (page == 1)
        (void)truce__kv_magic_show(bytes);
    return valid ? PAGE_RECOVERY_VALID : PAGE_RECOVERY_DOUBTFUL;
}

uint32_t truce__page_recovery_count(const struct page_recovery *recovery, uint32_t pages)
{
    uint32_t count = pages < recovery->file_pages ? pages : recovery->file_pages;

    for (uint32_t page = recovery->file_pages + 1; page <= pages && page <= recovery->pages; page++)
        count += recovery->frames[page] != 0;
    return count;
}

bool truce__page_recovery_header(const struct page_recovery *recovery,
                                 struct page_recovery_header *header)
{
    uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES];

    if (truce__page_recovery_read(recovery, 1, bytes) != PAGE_RECOVERY_VALID)
        return false;
    header->pages = page_number_at(bytes + HEADER_PAGES);
    header->free = page_number_at(bytes + HEADER_FREE);
    return true;
}

/* ---- entries -------------------------------------------------------------------------------- */

/*
 * Reads the entries of a page of a damaged file in SQLite's file format:
 *
 *     page      (page 1: 100 bytes of the file's header) | kind, count, ... |
 *               offsets of the entries | ... entries
 *     inner     child, greatest row (varint)
 *     leaf      size of the record (varint), row (varint), record or its beginning, (overflow page)
 *     overflow  next overflow page or 0, bytes
 *     map       (kind of a page, the page that points to it) for each of the pages that follow;
 *               page 2, and every 818th page from there
 *     record    size of its header, a number for each column: type and size | columns
 *
 * Every offset and size is compared with the end of the page or of the record. An overflow page is
 * used once, so no chain is endless, and no page belongs to two documents.
 */

/* The first byte of an inner page, and of a leaf, of a table of rows. */
#define KIND_INNER 5
#define KIND_LEAF  13
/* The number of bytes of the header of the file, which precedes the header of page 1. */
#define FILE_HEADER 100
/* The offset of the number of cells in the header of a page. */
#define POSITION_COUNT 3
/* The offset of the last child in the header of an inner page. */
#define POSITION_LAST 8
/* The number of bytes of the header of an inner page, and of that of a leaf. */
#define INNER_HEADER 12
#define LEAF_HEADER  8
/* The bytes of an entry of a pointer map (a kind, and the number of the parent), and the largest
 * kind. */
#define MAP_ENTRY    5
#define MAP_KIND_MAX 5
/* The largest record of a row: the header of a record takes less than 64 bytes. */
#define RECORD_MAX (TRUCE_ROW_BYTES_MAX + 64)

static uint32_t short_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t entry_number_at(const uint8_t *at)
{
    return short_at(at) << 16 | short_at(at + 2);
}

/* Reads a variable-length integer and advances `*at`. Returns false if it does not end before
 * `end`. */
static bool read_varint(const uint8_t *bytes, size_t end, size_t *at, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < 9; i++) {
        if (*at >= end)
            return false;
        if (i == 8) {
            *number = *number << 8 | bytes[(*at)++];
            return true;
        }
        *number = *number << 7 | (bytes[*at] & 0x7f);
        if (!(bytes[(*at)++] & 0x80))
            return true;
    }
    return false;
}

/* ---- pages ---------------------------------------------------------------------------------- */

static uint32_t header_size(const struct page_recovery_page *page)
{
    return page->kind == PAGE_RECOVERY_INNER ? INNER_HEADER : LEAF_HEADER;
}

static size_t entry_position_of(const struct page_recovery_page *page, uint32_t i)
{
    return short_at(page->bytes + page->start + header_size(page) + 2 * (size_t)i);
}

static bool positions_make_sense(const struct page_recovery *recovery,
                                 const struct page_recovery_page *page)
{
    size_t least = page->start + header_size(page) + 2 * (size_t)page->count;

    if (least > recovery->usable)
        return false;
    for (uint32_t i = 0; i < page->count; i++) {
        if (entry_position_of(page, i) < least || entry_position_of(page, i) + 4 > recovery->usable)
            return false;
    }
    return true;
}

/* Returns whether the page is a map page. Only a file with auto-vacuum has map pages. A map page
 * can look like a page of a tree, but not vice versa. */
static bool is_map(const struct page_recovery *recovery, uint32_t number, const uint8_t *bytes)
{
    uint32_t entries = recovery->usable / MAP_ENTRY;
    bool more = true;

    if (number < 2 || (number - 2) % (entries + 1) || !bytes[0])
        return false;
    for (uint32_t i = 0; i < entries; i++, bytes += MAP_ENTRY) {
        if (*bytes > MAP_KIND_MAX || (!more && *bytes))
            return false;
        more = *bytes;
    }
    return true;
}

void truce__page_recovery_page(const struct page_recovery *recovery, uint32_t number,
                               struct page_recovery_page *page)
{
    page->number = number;
    page->state = truce__page_recovery_read(recovery, number, page->bytes);
    page->kind = PAGE_RECOVERY_OTHER;
    page->count = 0;
    page->start = number == 1 ? FILE_HEADER : 0;
    if (page->state == PAGE_RECOVERY_GONE || is_map(recovery, number, page->bytes))
        return;
    if (page->bytes[page->start] == KIND_INNER)
        page->kind = PAGE_RECOVERY_INNER;
    else if (page->bytes[page->start] == KIND_LEAF)
        page->kind = PAGE_RECOVERY_LEAF;
    page->count = short_at(page->bytes + page->start + POSITION_COUNT);
    if (page->kind != PAGE_RECOVERY_OTHER && !positions_make_sense(recovery, page))
        page->kind = PAGE_RECOVERY_OTHER;
}

bool truce__page_recovery_child(const struct page_recovery *recovery,
                                const struct page_recovery_page *page, uint32_t i, uint32_t *child,
                                int64_t *row)
{
    size_t at;
    uint64_t key;

    if (i == page->count) {
        *child = entry_number_at(page->bytes + page->start + POSITION_LAST);
        *row = INT64_MAX;
        return *child > 1;
    }
    at = entry_position_of(page, i);
    *child = entry_number_at(page->bytes + at);
    at += 4;
    if (!read_varint(page->bytes, recovery->usable, &at, &key))
        return false;
    *row = (int64_t)key;
    return *child > 1;
}

bool truce__page_recovery_row(const struct page_recovery *recovery,
                              const struct page_recovery_page *page, uint32_t i, int64_t *row)
{
    size_t at = entry_position_of(page, i);
    uint64_t size, key;

    if (!read_varint(page->bytes, recovery->usable, &at, &size) ||
        !read_varint(page->bytes, recovery->usable, &at, &key))
        return false;
    *row = (int64_t)key;
    return true;
}

/* ---- records -------------------------------------------------------------------------------- */

/* Returns how many bytes of a record are on the page itself. */
static size_t local_part(const struct page_recovery *recovery, size_t size)
{
    size_t usable = recovery->usable, most = usable - 35, least, part;

    if (size <= most)
        return size;
    least = (usable - 12) * 32 / 255 - 23;
    part = least + (size - least) % (usable - 4);
    return part <= most ? part : least;
}

/* Appends the overflow pages of a record. Returns false if a page is missing or belongs to another
 * record. */
static bool entry_follow(const struct page_recovery *recovery, uint32_t next, size_t left,
                         bool take, struct buffer *record, bool *doubtful)
{
    uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES];

    while (left) {
        size_t part = left < recovery->usable - 4 ? left : recovery->usable - 4;
        enum page_recovery_state state = truce__page_recovery_read(recovery, next, bytes);

        if (state == PAGE_RECOVERY_GONE ||
            recovery->marks[next] & (PAGE_RECOVERY_USED | PAGE_RECOVERY_FREE))
            return false;
        if (take)
            recovery->marks[next] |= PAGE_RECOVERY_USED;
        *doubtful = *doubtful || state == PAGE_RECOVERY_DOUBTFUL;
        truce__buffer_append(record, bytes + 4, part);
        left -= part;
        next = entry_number_at(bytes);
    }
    return true;
}

bool truce__page_recovery_record(const struct page_recovery *recovery,
                                 const struct page_recovery_page *page, uint32_t i, bool take,
                                 struct buffer *record, bool *doubtful)
{
    size_t at = entry_position_of(page, i), part;
    uint64_t size, row;

    if (!read_varint(page->bytes, recovery->usable, &at, &size) ||
        !read_varint(page->bytes, recovery->usable, &at, &row) || size > RECORD_MAX)
        return false;
    part = local_part(recovery, size);
    if (at + part + (part < size ? 4 : 0) > recovery->usable)
        return false;
    truce__buffer_append(record, page->bytes + at, part);
    if (part == size)
        return true;
    return entry_follow(recovery, entry_number_at(page->bytes + at + part), size - part, take,
                        record, doubtful);
}

static bool size_of_type(uint64_t type, size_t *size)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};

    if (type >= 12)
        *size = (type - 12) / 2;
    else if (type < sizeof sizes)
        *size = sizes[type];
    return type >= 12 ? type < UINT64_C(1) << 40 : type < sizeof sizes;
}

static int64_t entry_read_number(uint64_t type, const uint8_t *at, size_t size)
{
    uint64_t number = size && at[0] & 0x80 ? UINT64_MAX : 0;

    for (size_t i = 0; i < size; i++)
        number = number << 8 | at[i];
    return type == 9 ? 1 : (int64_t)number;
}

bool truce__page_recovery_column(const struct buffer *record, int which,
                                 struct page_recovery_column *column)
{
    size_t at = 0, body, size = 0;
    uint64_t header, type = 0;

    if (!read_varint(record->bytes, record->size, &at, &header) || header > record->size)
        return false;
    body = header;
    for (int i = 0; i <= which; i++) {
        body += size;
        if (!read_varint(record->bytes, header, &at, &type) || !size_of_type(type, &size) ||
            size > record->size || body > record->size - size)
            return false;
    }
    *column = (struct page_recovery_column){
        .bytes = type >= 12, .data = record->bytes + body, .size = size};
    if (!column->bytes)
        column->number = entry_read_number(type, column->data, size);
    return true;
}
