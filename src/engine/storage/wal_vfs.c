/*
 * Combines writes to the WAL.
 *
 * SQLite writes each page of a commit in two calls, a frame header of 24 bytes and the page. A
 * group of thirty commits is more than a hundred system calls, one after the other, while all other
 * threads wait. This VFS sits between SQLite and the real one. It collects consecutive writes in a
 * buffer and passes them on as one write.
 *
 *     | header | page | header | page | header, last of the commit | page |  -> one write
 *
 * Frames that a checkpoint reads are first compared with their checksums, which SQLite does only in
 * recovery. Otherwise a damaged frame would be moved into the file and get a valid checksum there.
 * Frames that go into the page cache are compared, too (page_cache.h, invariant 4).
 *
 * SQLite's assumptions remain true:
 *
 *  1. The frames of a commit are in the file before xSync, and before xWrite of its last page
 *     returns. They are therefore there before the index of the WAL shows them to readers, even
 *     without a sync.
 *  2. Writes reach the file in their order. A write that does not continue the previous one, such
 *     as a header with a new checksum, is written at once, after the buffer.
 *  3. Calls that read, measure, or truncate the file see all writes.
 *  4. A failing buffered write fails the last write of its transaction at the latest. The buffer is
 *     then dropped. SQLite gives up the transaction and writes its frames again. A write that fails
 *     before a read keeps the buffer, because SQLite may continue.
 *
 * While a file grows, each fsync waits until the file system has recorded the new size, which can
 * take ten times as long. Therefore, when the WAL must grow, zeros are written ahead: as many as it
 * has bytes, but at most AHEAD_MAX. SQLite ignores these zeros, as it ignores anything after the
 * last valid frame when it recovers from a crash.
 *
 * A crash loses no promised data, only frames of a commit that was not synced yet. A failing sync
 * is reported to the watch of the database (checksum_vfs.h), even if SQLite does not report it.
 */
#include "engine/storage/wal_vfs.h"

#include <bson/bson.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>

#include "base/assert.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "engine/storage/kv.h"
#include "engine/storage/page_cache.h"
#include "engine/storage/wal_checksum.h"

/* The number of bytes in the header of a frame. */
#define HEADER_BYTES     24
#define WAL_HEADER_BYTES KV_LOG_HEADER_BYTES
/* The version in the header of SQLite's log. */
#define WAL_VERSION 3007000u
/* The number of bytes of a frame with its header. */
#define FRAME_BYTES (HEADER_BYTES + KV_PAGE_BYTES)
/* The maximum bytes of consecutive frames that are gathered before they are written. */
#define BUFFER_BYTES (512 * 1024)
/* The maximum size of one read or write: SQLite's own VFS allows less than 128 KB. */
#define WRITE_BYTES 65536
/* The maximum number of frames in one read. */
#define READ_FRAMES (WRITE_BYTES / FRAME_BYTES)
/* The maximum number of zero bytes that are written after the end of the log. */
#define AHEAD_MAX (512 * 1024)

struct wal_file {
    /* Must be the first field, because SQLite passes a pointer to it. */
    sqlite3_file base;
    uint8_t *buffer;
    /* The position in the file at which the buffer begins. */
    sqlite3_int64 start;
    /* The number of bytes in the buffer. */
    int size;
    /* The position after the last write. */
    sqlite3_int64 next;
    /* Whether the last header that was written was that of the last frame of a commit. */
    bool last;
    /* The end of the file as far as this VFS has written it, or -1 if it is unknown. */
    sqlite3_int64 end;
    /* The file of the real VFS that this file wraps. */
    sqlite3_file *real;
    /* The name of the log, a string of SQLite from which SQLite finds the database. */
    const char *name;
    /* The header of the log that a check of a frame has read last, or zeros. */
    uint8_t header[WAL_HEADER_BYTES];
};

static sqlite3_vfs wal_vfs;
static sqlite3_vfs *real_vfs;

static struct wal_file *wal_of(sqlite3_file *file)
{
    return (struct wal_file *)file;
}

static int write_real(struct wal_file *wal, const void *data, int size, sqlite3_int64 offset)
{
    int result = wal->real->pMethods->xWrite(wal->real, data, size, offset);

    if (!result && wal->end >= 0 && offset + size > wal->end)
        wal->end = offset + size;
    return result;
}

/* Extends the file by zeros in advance, after `from`. If this fails, the file grows with each
 * write. */
static void write_ahead(struct wal_file *wal, sqlite3_int64 from)
{
    static const uint8_t zeros[WRITE_BYTES];
    sqlite3_int64 to = from + (from < AHEAD_MAX ? from : AHEAD_MAX);
    int result = SQLITE_OK;

    while (from < to && !result) {
        int size = to - from < WRITE_BYTES ? (int)(to - from) : WRITE_BYTES;

        result = write_real(wal, zeros, size, from);
        from += size;
    }
}

/* Writes the buffered frames to the log, and zeros after them if the log grows. Keeps the buffer if
 * a write fails. */
static int kv_wal_flush(struct wal_file *wal)
{
    sqlite3_int64 end = wal->start + wal->size;
    int result = SQLITE_OK;
    bool grows;

    if (!wal->size)
        return SQLITE_OK;
    if (wal->end < 0 && wal->real->pMethods->xFileSize(wal->real, &wal->end))
        wal->end = -1;
    grows = wal->end >= 0 && end > wal->end;
    for (int at = 0; at < wal->size && !result; at += WRITE_BYTES) {
        int size = wal->size - at < WRITE_BYTES ? wal->size - at : WRITE_BYTES;

        result = write_real(wal, wal->buffer + at, size, wal->start + at);
    }
    if (result)
        return result;
    wal->size = 0;
    if (grows)
        write_ahead(wal, end);
    return SQLITE_OK;
}

/* ---- between the file's form and SQLite's --------------------------------------------------- */

static uint32_t kv_wal_number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void kv_wal_put_number(uint8_t *at, uint32_t number)
{
    number = BSON_UINT32_TO_BE(number);
    memcpy(at, &number, sizeof number);
}

static void wal_set_version(uint8_t *header, uint32_t version)
{
    uint32_t sum[2] = {0};

    kv_wal_put_number(header + 4, version);
    truce__wal_checksum_add(sum, kv_wal_number_at(header) & 1, header, 24);
    kv_wal_put_number(header + 24, sum[0]);
    kv_wal_put_number(header + 28, sum[1]);
}

static bool wal_sum_is_right(const uint8_t *header)
{
    uint32_t sum[2] = {0};

    truce__wal_checksum_add(sum, kv_wal_number_at(header) & 1, header, 24);
    return sum[0] == kv_wal_number_at(header + 24) && sum[1] == kv_wal_number_at(header + 28);
}

/* Returns whether the header of the log is damaged. A power cut may leave zeros where the header of
 * a new log would be. */
static bool wal_header_is_damaged(const uint8_t *header)
{
    static const uint8_t zeros[WAL_HEADER_BYTES];

    return !wal_sum_is_right(header) && memcmp(header, zeros, sizeof zeros) != 0;
}

static void kv_log_hide(uint8_t *header)
{
    if (kv_wal_number_at(header + 4) == WAL_VERSION && wal_sum_is_right(header))
        wal_set_version(header, KV_LOG_VERSION);
}

/* Converts the header to SQLite's form. Gives a log that another program wrote a version that
 * SQLite refuses. */
void truce__kv_log_show(uint8_t *header)
{
    if (wal_sum_is_right(header))
        wal_set_version(header, kv_wal_number_at(header + 4) == KV_LOG_VERSION ? WAL_VERSION : 0);
}

/* Converts bytes that were read from the beginning of the log, of a frame, or of a page. */
static void wal_show(uint8_t *data, int size, sqlite3_int64 offset)
{
    /* The offset within the frame. */
    int position = (int)((offset - WAL_HEADER_BYTES) % FRAME_BYTES);

    if (!offset && size >= WAL_HEADER_BYTES)
        truce__kv_log_show(data);
    else if (position == HEADER_BYTES && size >= KV_MAGIC_BYTES)
        (void)truce__kv_magic_show(data);
    else if (!position && size >= HEADER_BYTES + KV_MAGIC_BYTES)
        (void)truce__kv_magic_show(data + HEADER_BYTES);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Returns whether the frame is the last of its commit. The header of the last frame of a commit
 * contains the size of the database after it; other headers contain 0. */
static bool is_last(const uint8_t *header)
{
    return header[4] || header[5] || header[6] || header[7];
}

/* Puts a write into the buffer, or writes it at once after the buffer if it does not continue it.
 * The last frame of a commit writes the buffer (assumption 1). */
static int kv_wal_put(struct wal_file *wal, const void *data, int size, sqlite3_int64 offset)
{
    bool follows = offset == wal->next && size <= BUFFER_BYTES;
    int result = SQLITE_OK;

    if (!follows || wal->size + size > BUFFER_BYTES)
        result = kv_wal_flush(wal);
    if (result || !follows)
        return result ? result : write_real(wal, data, size, offset);
    if (!wal->buffer)
        wal->buffer = bson_malloc(BUFFER_BYTES);
    if (!wal->size)
        wal->start = offset;
    memcpy(wal->buffer + wal->size, data, (size_t)size);
    wal->size += size;
    return wal->last && size != HEADER_BYTES ? kv_wal_flush(wal) : SQLITE_OK;
}

/* Writes to the log (SQLite's xWrite). SQLite writes the header of the log, the header of a frame,
 * or a page. */
static int wal_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 offset)
{
    struct wal_file *wal = wal_of(file);
    uint8_t hidden[KV_PAGE_BYTES];
    int result;

    if (size == KV_PAGE_BYTES || (!offset && size == WAL_HEADER_BYTES)) {
        memcpy(hidden, data, (size_t)size);
        if (offset)
            truce__kv_magic_hide(hidden);
        else
            kv_log_hide(hidden);
        data = hidden;
    }

    if (size == HEADER_BYTES)
        wal->last = is_last(data);
    result = kv_wal_put(wal, data, size, offset);
    wal->next = result ? -1 : offset + size;
    if (result)
        wal->size = 0;
    return result;
}

static int wal_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct wal_file *wal = wal_of(file);
    int result = kv_wal_flush(wal);

    wal->end = -1;
    return result ? result : wal->real->pMethods->xTruncate(wal->real, size);
}

static int wal_sync(sqlite3_file *file, int flags)
{
    struct wal_file *wal = wal_of(file);
    int result = kv_wal_flush(wal);

    if (result)
        return result;
    result = wal->real->pMethods->xSync(wal->real, flags);
    return result ? truce__kv_page_synced(sqlite3_database_file_object(wal->name), result)
                  : SQLITE_OK;
}

/* ---- other calls ---------------------------------------------------------------------------- */

/* Reads the header of the log, unless the last one that was read has the salts of the frame. */
static int wal_read_header(struct wal_file *wal, const uint8_t *frame)
{
    int result;

    if (!memcmp(wal->header + 16, frame + 8, 8))
        return SQLITE_OK;
    result = wal->real->pMethods->xRead(wal->real, wal->header, sizeof wal->header, 0);
    if (result)
        memset(wal->header, 0, sizeof wal->header);
    else
        truce__kv_log_show(wal->header);
    return result;
}

/* Verifies the page of a frame. Its checksum continues that of the frame before it, or of the
 * header of the log. Both headers are read at once, with what is between them. */
static int verify_frame(struct wal_file *wal, const uint8_t *page, sqlite3_int64 offset)
{
    sqlite3_int64 start = offset - HEADER_BYTES;
    uint8_t bytes[FRAME_BYTES + HEADER_BYTES];
    bool first = start == WAL_HEADER_BYTES;
    int before = first ? 0 : FRAME_BYTES, result;
    const uint8_t *header = bytes + before, *from = first ? wal->header + 24 : bytes + 16;
    uint32_t sum[2];

    result = wal->real->pMethods->xRead(wal->real, bytes, before + HEADER_BYTES, start - before);
    if (!result)
        result = wal_read_header(wal, header);
    if (result)
        return result;
    sum[0] = kv_wal_number_at(from);
    sum[1] = kv_wal_number_at(from + 4);
    truce__wal_checksum_add(sum, kv_wal_number_at(wal->header) & 1, header, 8);
    truce__wal_checksum_add(sum, kv_wal_number_at(wal->header) & 1, page, KV_PAGE_BYTES);
    result = sum[0] == kv_wal_number_at(header + 16) && sum[1] == kv_wal_number_at(header + 20)
                 ? SQLITE_OK
                 : SQLITE_IOERR_DATA;
    /* After a failure, the next check reads the header again. */
    if (result)
        memset(wal->header, 0, sizeof wal->header);
    truce__kv_page_frame_damaged(sqlite3_database_file_object(wal->name),
                                 result ? (uint32_t)(start / FRAME_BYTES + 1) : 0);
    return result;
}

static bool wal_is_page(int size, sqlite3_int64 offset)
{
    return size == KV_PAGE_BYTES && offset % FRAME_BYTES == WAL_HEADER_BYTES + HEADER_BYTES;
}

/* Reads from the log once. If `cache` is not NULL, a page of a frame goes there if the cache wants
 * it. */
static int wal_read_once(struct wal_file *wal, void *data, int size, sqlite3_int64 offset,
                         struct page_cache *cache, const struct page_name *name)
{
    int result = wal->real->pMethods->xRead(wal->real, data, size, offset);
    bool verifies = false;

    if (result)
        return result;
    wal_show(data, size, offset);
    cache = cache && truce__page_cache_wants(cache, name, data) ? cache : NULL;
    /* page_cache.h, invariant 4. */
    if (wal_is_page(size, offset))
        verifies = cache || truce__kv_page_verifies(sqlite3_database_file_object(wal->name));
    if (verifies)
        result = verify_frame(wal, data, offset);
    if (!result && cache)
        truce__page_cache_put(cache, name, data);
    return result;
}

/* Reads from the log (SQLite's xRead). A read that fails, or returns other bytes than the file has,
 * may succeed the next time. */
static int wal_read(sqlite3_file *file, void *data, int size, sqlite3_int64 offset)
{
    struct wal_file *wal = wal_of(file);
    int result = kv_wal_flush(wal);
    struct page_cache *cache = NULL;
    struct page_name name = {0};

    if (result)
        return result;
    if (wal_is_page(size, offset))
        cache = truce__kv_page_frame_name(sqlite3_database_file_object(wal->name),
                                          (uint32_t)(offset / FRAME_BYTES + 1), &name);
    if (cache && truce__page_cache_get(cache, &name, data))
        return SQLITE_OK;
    result = SQLITE_IOERR_READ;
    for (int i = 0; i < KV_READ_TRIES && result; i++)
        result = wal_read_once(wal, data, size, offset, cache, &name);
    return result;
}

static int wal_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct wal_file *wal = wal_of(file);
    int result = kv_wal_flush(wal);

    return result ? result : wal->real->pMethods->xFileSize(wal->real, size);
}

/* Closes the log, and drops the buffer. The buffer belongs to a transaction that was given up. */
static int wal_close(sqlite3_file *file)
{
    struct wal_file *wal = wal_of(file);
    int result = wal->real->pMethods->xClose(wal->real);

    bson_free(wal->buffer);
    bson_free(wal->real);
    return result;
}

static int wal_control(sqlite3_file *file, int what, void *arg)
{
    struct wal_file *wal = wal_of(file);

    return wal->real->pMethods->xFileControl(wal->real, what, arg);
}

static int wal_sector(sqlite3_file *file)
{
    return wal_of(file)->real->pMethods->xSectorSize(wal_of(file)->real);
}

static int wal_characteristics(sqlite3_file *file)
{
    return wal_of(file)->real->pMethods->xDeviceCharacteristics(wal_of(file)->real);
}

/* Passes the call on. SQLite locks the database and never the WAL. */
static int wal_lock(sqlite3_file *file, int level)
{
    return wal_of(file)->real->pMethods->xLock(wal_of(file)->real, level);
}

static int wal_unlock(sqlite3_file *file, int level)
{
    return wal_of(file)->real->pMethods->xUnlock(wal_of(file)->real, level);
}

static int wal_reserved(sqlite3_file *file, int *reserved)
{
    return wal_of(file)->real->pMethods->xCheckReservedLock(wal_of(file)->real, reserved);
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_reserved,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_characteristics,
};

int truce__kv_log_frame(sqlite3_file *log, uint32_t number, struct kv_frame *frame)
{
    sqlite3_int64 offset = WAL_HEADER_BYTES + (sqlite3_int64)(number - 1) * FRAME_BYTES;
    uint8_t header[HEADER_BYTES] = {0};
    int result = log->pMethods->xRead(log, header, sizeof header, offset);

    frame->page = kv_wal_number_at(header);
    memcpy(&frame->salts, header + 8, sizeof frame->salts);
    frame->sum[0] = kv_wal_number_at(header + 16);
    frame->sum[1] = kv_wal_number_at(header + 20);
    return result;
}

/* ---- a second descriptor of the log --------------------------------------------------------- */

struct kv_log {
    /* The name in the form that SQLite's VFS requires. */
    const char *name;
    sqlite3_file *file;
    /* Whether the words of the checksums are big-endian. */
    bool big;
    /* Frames that were read together: `count` frames after the first `before` frames. NULL before
     * the first read. */
    uint8_t *frames;
    uint32_t before, count;
};

/* Opens another descriptor of the log, which bypasses this VFS. It does not see frames that the VFS
 * still buffers; they are not a commit yet. */
static int kv_wal_open_log(const char *path, int flags, struct kv_log **log)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    struct kv_log *made = bson_malloc0(sizeof *made);
    char *wal = bson_strdup_printf("%s-wal", path);
    int result;

    made->name = sqlite3_create_filename(path, "", wal, 0, NULL);
    made->file = bson_malloc0((size_t)vfs->szOsFile);
    bson_free(wal);
    result = vfs->xOpen(vfs, sqlite3_filename_wal(made->name), made->file, SQLITE_OPEN_WAL | flags,
                        NULL);
    *log = made;
    if (!result)
        return SQLITE_OK;
    *log = NULL;
    truce__kv_log_close(made);
    return result;
}

truce_status truce__kv_log_open(const char *path, struct kv_log **log, bson_error_t *error)
{
    int result = kv_wal_open_log(path, SQLITE_OPEN_READONLY, log);

    if (!result)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot open \"%s-wal\": %s", path, sqlite3_errstr(result));
}

void truce__kv_log_close(struct kv_log *log)
{
    if (!log)
        return;
    if (log->file->pMethods)
        log->file->pMethods->xClose(log->file);
    sqlite3_free_filename(log->name);
    bson_free(log->frames);
    bson_free(log->file);
    bson_free(log);
}

static int kv_wal_sync_log(struct kv_log *log)
{
    return log->file->pMethods->xSync(log->file, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
}

truce_status truce__kv_log_sync(struct kv_log *log, bson_error_t *error)
{
    int result = kv_wal_sync_log(log);

    if (!result)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "writing to \"%s\" failed: %s",
                       sqlite3_filename_database(log->name), sqlite3_errstr(result));
}

/* Writes a part of the file again, exactly as it was read. */
static int renew_part(struct kv_log *log, uint8_t *bytes, int size, sqlite3_int64 offset)
{
    int result = log->file->pMethods->xRead(log->file, bytes, size, offset);

    return result ? result : log->file->pMethods->xWrite(log->file, bytes, size, offset);
}

/* Writes the log again with its own bytes and syncs it, the header first. */
static int renew_log(struct kv_log *log, uint8_t *bytes)
{
    sqlite3_int64 size = 0, at = 0;
    int result = log->file->pMethods->xFileSize(log->file, &size);

    while (!result && at < size) {
        int part = !at ? WAL_HEADER_BYTES : WRITE_BYTES;

        if (size - at < part)
            part = (int)(size - at);
        result = renew_part(log, bytes, part, at);
        if (!result && !at)
            result = kv_wal_sync_log(log);
        at += part;
    }
    return result ? result : kv_wal_sync_log(log);
}

truce_status truce__kv_log_renew(const char *path, bson_error_t *error)
{
    struct kv_log *log;
    int result = kv_wal_open_log(path, SQLITE_OPEN_READWRITE, &log);
    uint8_t *bytes;

    if ((result & 0xff) == SQLITE_CANTOPEN)
        /* The log does not exist, so nothing must be written. */
        return TRUCE_OK;
    if (!result) {
        bytes = bson_malloc(WRITE_BYTES);
        result = renew_log(log, bytes);
        bson_free(bytes);
        truce__kv_log_close(log);
    }
    if (!result)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot write the log of \"%s\" again: %s", path,
                       sqlite3_errstr(result));
}

/* Adds a frame to the running checksum, which is over the page in SQLite's form. Returns whether
 * the frame has this checksum. */
static bool kv_wal_add_frame(uint32_t sum[2], bool big, uint8_t *frame)
{
    bool hidden = truce__kv_magic_show(frame + HEADER_BYTES);

    truce__wal_checksum_add(sum, big, frame, 8);
    truce__wal_checksum_add(sum, big, frame + HEADER_BYTES, KV_PAGE_BYTES);
    if (hidden)
        truce__kv_magic_hide(frame + HEADER_BYTES);
    return sum[0] == kv_wal_number_at(frame + 16) && sum[1] == kv_wal_number_at(frame + 20);
}

/* Compares the frames of this generation, up to `last`, with their checksums. The first `*frames`
 * are valid. `header` is in SQLite's form. `*right` is false if the next frame is invalid. */
static int verify_frames(sqlite3_file *log, const uint8_t *header, uint32_t last, uint32_t *frames,
                         bool *right)
{
    uint32_t sum[2] = {kv_wal_number_at(header + 24), kv_wal_number_at(header + 28)};
    uint8_t *frame = bson_malloc(FRAME_BYTES);
    sqlite3_int64 at = WAL_HEADER_BYTES;
    int result = SQLITE_OK;

    *right = true;
    *frames = 0;
    for (; !result && *right && *frames < last; *frames += *right, at += FRAME_BYTES) {
        result = log->pMethods->xRead(log, frame, FRAME_BYTES, at);
        if (result || memcmp(frame + 8, header + 16, 8) != 0)
            break;
        *right = kv_wal_add_frame(sum, kv_wal_number_at(header) & 1, frame);
    }
    bson_free(frame);
    return result;
}

int truce__kv_log_frames(sqlite3_file *log, uint32_t last, bool *right)
{
    uint8_t header[WAL_HEADER_BYTES];
    int result = log->pMethods->xRead(log, header, sizeof header, 0);
    uint32_t frames = 0;

    *right = false;
    if (!result)
        result = verify_frames(log, header, last, &frames, right);
    *right = *right && frames == last && wal_sum_is_right(header);
    return result;
}

/* Verifies all frames of the log. A frame with a wrong checksum may also be the rest of a commit
 * that a crash interrupted. This function cannot distinguish them. */
static int verify_log(struct kv_log *log, bool *valid)
{
    sqlite3_int64 size = 0;
    uint8_t header[WAL_HEADER_BYTES];
    int result = log->file->pMethods->xFileSize(log->file, &size);
    uint32_t frames;

    *valid = true;
    if (result || size < WAL_HEADER_BYTES)
        return result;
    result = log->file->pMethods->xRead(log->file, header, sizeof header, 0);
    truce__kv_log_show(header);
    return result
               ? result
               : verify_frames(log->file, header,
                               (uint32_t)((size - WAL_HEADER_BYTES) / FRAME_BYTES), &frames, valid);
}

truce_status truce__kv_log_verify(const char *path, bool *valid, bson_error_t *error)
{
    struct kv_log *log;
    int result = kv_wal_open_log(path, SQLITE_OPEN_READONLY, &log);

    *valid = false;
    if (!result) {
        result = verify_log(log, valid);
        truce__kv_log_close(log);
    }
    if (!result)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot read the log of \"%s\": %s", path,
                       sqlite3_errstr(result));
}

/* Finds out whether the header of the log is damaged. Reads it again if its checksum is wrong: a
 * write may have been in progress. */
static int read_header(struct kv_log *log, bool *damaged)
{
    uint8_t header[WAL_HEADER_BYTES];
    int result = SQLITE_OK;

    *damaged = true;
    for (int i = 0; i <= KV_READ_TRIES && !result && *damaged; i++) {
        result = log->file->pMethods->xRead(log->file, header, sizeof header, 0);
        *damaged = !result && wal_header_is_damaged(header);
    }
    return result;
}

truce_status truce__kv_log_check_header(const char *path, bson_error_t *error)
{
    bool damaged = false;
    struct kv_log *log;
    int result = kv_wal_open_log(path, SQLITE_OPEN_READONLY, &log);

    if (!result) {
        result = read_header(log, &damaged);
        truce__kv_log_close(log);
    }
    if (result)
        return truce__fail(TRUCE_IO, error, "cannot read the log of \"%s\": %s", path,
                           sqlite3_errstr(result));
    if (damaged)
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the header of the log \"%s-wal\" is damaged: restore the log, use truce "
            "salvage, or remove the log and \"%s-lock\" to lose the commits in it",
            path, path);
    return TRUCE_OK;
}

truce_status truce__kv_log_start(struct kv_log *log, struct kv_log_position *position,
                                 bson_error_t *error)
{
    uint8_t header[WAL_HEADER_BYTES];
    int result = log->file->pMethods->xRead(log->file, header, sizeof header, 0);

    *position = (struct kv_log_position){0};
    if (result == SQLITE_IOERR_SHORT_READ)
        return TRUCE_OK;
    if (result)
        return truce__fail(TRUCE_IO, error, "cannot read the log of \"%s\": %s",
                           sqlite3_filename_database(log->name), sqlite3_errstr(result));
    truce__kv_log_show(header);
    log->big = kv_wal_number_at(header) & 1;
    memcpy(&position->salts, header + 16, sizeof position->salts);
    position->sum[0] = kv_wal_number_at(header + 24);
    position->sum[1] = kv_wal_number_at(header + 28);
    return TRUCE_OK;
}

/* Returns the frame that follows the first `before` frames. Unless `again` is set, the frame may
 * come from an earlier read, and the call may read ahead up to the frame `last`. */
static uint8_t *kv_log_read(struct kv_log *log, uint32_t before, uint32_t last, bool again,
                            int *result)
{
    uint32_t count = again ? 1 : last - before;

    *result = SQLITE_OK;
    if (!again && before >= log->before && before - log->before < log->count)
        return log->frames + (size_t)(before - log->before) * FRAME_BYTES;
    count = count < READ_FRAMES ? count : READ_FRAMES;
    if (!log->frames)
        log->frames = bson_malloc((size_t)READ_FRAMES * FRAME_BYTES);
    *result = log->file->pMethods->xRead(log->file, log->frames, (int)count * FRAME_BYTES,
                                         WAL_HEADER_BYTES + (sqlite3_int64)before * FRAME_BYTES);
    log->before = before;
    log->count = *result ? 0 : count;
    return log->frames;
}

truce_status truce__kv_log_next(struct kv_log *log, struct kv_log_position *position, uint32_t last,
                                struct kv_log_frame *frame, bson_error_t *error)
{
    uint8_t *bytes = NULL;
    bool continues = false;
    int result = SQLITE_OK;
    uint32_t sum[2];

    truce_assert(position->frames < last);
    /* The first try is not counted: its frames may have been read before the log began again. */
    for (int i = 0; i <= KV_READ_TRIES && !continues; i++) {
        bytes = kv_log_read(log, position->frames, last, i > 0, &result);
        memcpy(sum, position->sum, sizeof sum);
        continues = !result && !memcmp(bytes + 8, &position->salts, sizeof position->salts) &&
                    kv_wal_add_frame(sum, log->big, bytes);
    }
    if (result && result != SQLITE_IOERR_SHORT_READ)
        return truce__fail(TRUCE_IO, error, "cannot read the log of \"%s\": %s",
                           sqlite3_filename_database(log->name), sqlite3_errstr(result));
    if (!continues)
        return truce__fail(TRUCE_CORRUPT, error,
                           "frame %u of the log of \"%s\" does not continue the frame before it",
                           position->frames + 1, sqlite3_filename_database(log->name));
    frame->page = kv_wal_number_at(bytes);
    frame->pages_after = kv_wal_number_at(bytes + 4);
    memcpy(frame->bytes, bytes + HEADER_BYTES, KV_PAGE_BYTES);
    memcpy(position->sum, sum, sizeof sum);
    position->frames++;
    return TRUCE_OK;
}

/* ---- the VFS -------------------------------------------------------------------------------- */

/* Opens a WAL or a database (checksum_vfs.c). All other files are the real VFS's own. */
static int kv_wal_open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                            int *out)
{
    struct wal_file *wal = wal_of(file);
    int result;

    (void)vfs;
    if (flags & SQLITE_OPEN_MAIN_DB)
        return truce__kv_page_open(real_vfs, name, file, flags, out);
    if (!(flags & SQLITE_OPEN_WAL))
        return real_vfs->xOpen(real_vfs, name, file, flags, out);
    *wal =
        (struct wal_file){.next = -1, .end = -1, .real = bson_malloc0((size_t)real_vfs->szOsFile)};
    result = real_vfs->xOpen(real_vfs, name, wal->real, flags, out);
    if (result) {
        bson_free(wal->real);
        return result;
    }
    wal->name = name;
    wal->base.pMethods = &methods;
    return SQLITE_OK;
}

/* Registers the VFS: a copy of the default one that opens logs and databases in its own way. Its
 * file objects have room for both kinds. */
static void make_vfs(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    truce_assert(real_vfs);
    wal_vfs = *real_vfs;
    wal_vfs.zName = "truce";
    wal_vfs.pNext = NULL;
    wal_vfs.xOpen = kv_wal_open_file;
    if (wal_vfs.szOsFile < (int)sizeof(struct wal_file))
        wal_vfs.szOsFile = (int)sizeof(struct wal_file);
    if (wal_vfs.szOsFile < truce__kv_page_file_size())
        wal_vfs.szOsFile = truce__kv_page_file_size();
    truce_assert(sqlite3_vfs_register(&wal_vfs, 0) == SQLITE_OK);
}

const char *truce__kv_wal_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_vfs);
    return wal_vfs.zName;
}
