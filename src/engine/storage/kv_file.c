/* The file as a whole: its name, its recovery after a failed sync, its log, and its pages. */
#include "engine/storage/kv_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "engine/storage/file_id.h"
#include "engine/storage/wal_vfs.h"

truce_status truce__kv_alone(const char *path, bson_error_t *error)
{
    struct kv *kv;
    truce_status status = truce__kv_open(path, KV_ALONE | KV_WRITER, 0, &kv, error);

    if (status)
        return status;
    status = truce__kv_execute(kv, "BEGIN EXCLUSIVE", error);
    if (!status)
        status = truce__kv_execute(kv, "ROLLBACK", error);
    truce__kv_checkpoint_on_close(kv, false);
    truce__kv_close(kv);
    return status;
}

/* Returns whether the path leads to another file now. The path was resolved at the opening. A link
 * that leads to the moved file is another name, and the next opening searches for the log under
 * that name. */
static bool file_has_moved(struct kv *kv)
{
    struct stat named;
    int moved = 0;

    return (!sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) && moved) ||
           (!lstat(kv->path, &named) && S_ISLNK(named.st_mode));
}

truce_status truce__kv_check_path(struct kv *kv, bson_error_t *error)
{
    struct file_id id;

    if (!file_has_moved(kv))
        return TRUCE_OK;
    if (!truce__file_id(kv->path, &id) && errno != ENOENT)
        return truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", kv->path, strerror(errno));
    if (file_has_moved(kv))
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" was removed or replaced while it was open: restore the file, or "
                           "close it in every program",
                           kv->path);
    return TRUCE_OK;
}

/* Fails with LOCKED at once if another connection has the file open. Reading the schema version is
 * only a way to lock the file. */
static truce_status be_alone(const char *path, bson_error_t *error)
{
    struct kv *kv;
    truce_status status = truce__kv_open(path, KV_ALONE, 0, &kv, error);
    int64_t version;

    if (status)
        return status;
    status = truce__kv_pragma(kv, "PRAGMA schema_version", &version, error);
    truce__kv_close(kv);
    return status == TRUCE_LOCKED ? status : TRUCE_OK;
}

/* Memory may hold bytes that the disk does not, and the kernel counts them as written. Therefore
 * the log is written again and is on disk before SQLite reads it and moves its pages. That writes
 * again all pages that were moved since the log began. A power cut in the meantime leaves old
 * frames or new frames: recovery reads them up to the first invalid one. */
truce_status truce__kv_recover(const char *path, bson_error_t *error)
{
    struct kv *kv;
    truce_status status = be_alone(path, error);
    int64_t busy;

    if (!status)
        status = truce__kv_log_renew(path, error);
    if (!status)
        status = truce__kv_open(path, KV_WRITER | KV_ALONE, 0, &kv, error);
    if (status)
        return status;
    status = truce__kv_pragma(kv, "PRAGMA wal_checkpoint(TRUNCATE)", &busy, error);
    if (!status && busy)
        status = truce__kv_fail(kv, SQLITE_BUSY, "recover", error);
    truce__kv_checkpoint_on_close(kv, !status);
    truce__kv_close(kv);
    return status;
}

truce_status truce__kv_version_bump(struct kv *kv, bson_error_t *error)
{
    truce_status status;
    uint32_t version;
    char sql[64];

    status = truce__kv_version(kv, &version, error);
    if (status)
        return status;
    kv->changed = true;
    snprintf(sql, sizeof sql, "PRAGMA schema_version=%d", (int)(version + 1));
    return truce__kv_execute(kv, sql, error);
}

truce_status truce__kv_integrity(struct kv *kv, bson_error_t *error)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(kv->db, "PRAGMA integrity_check(1)", -1, &statement, NULL);
    truce_status status = TRUCE_OK;

    if (!result)
        result = sqlite3_step(statement);
    if (result != SQLITE_ROW)
        status =
            truce__kv_fail(kv, result == SQLITE_DONE ? SQLITE_CORRUPT : result, "check", error);
    else if (strcmp((const char *)sqlite3_column_text(statement, 0), "ok"))
        status = truce__fail(TRUCE_CORRUPT, error, "\"%s\" is damaged: %s", kv->path,
                             (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    return status;
}

/* Finds the log that SQLite has open. `*log` is NULL if SQLite has none. */
static int find_log(struct kv *kv, sqlite3_file **log)
{
    int result = sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, log);

    if (!result && *log && !(*log)->pMethods)
        *log = NULL;
    return result;
}

truce_status truce__kv_log_whole(struct kv *kv, const struct kv_log_end *end, bool all, bool *whole,
                                 bson_error_t *error)
{
    sqlite3_file *log = NULL;
    struct kv_frame frame = {0};
    int result = end->frames ? find_log(kv, &log) : SQLITE_OK;

    *whole = true;
    if (result || !log)
        return result ? truce__kv_fail(kv, result, "read", error) : TRUCE_OK;
    result = truce__kv_log_frame(log, end->frames, &frame);
    *whole = !result && frame.salts == end->salts && frame.sum[0] == end->sum[0] &&
             frame.sum[1] == end->sum[1];
    if (*whole && all)
        result = truce__kv_log_frames(log, end->frames, whole);
    if (result && result != SQLITE_IOERR_SHORT_READ)
        return truce__kv_fail(kv, result, "read", error);
    return TRUCE_OK;
}

/* Finds out whether the log has a frame of the page that is not in the file yet. Then the page in
 * the file is not read, and the next checkpoint overwrites it. */
static truce_status is_in_log(struct kv *kv, uint32_t page, bool *is, bson_error_t *error)
{
    struct kv_log_end end;
    sqlite3_file *log = NULL;
    int result = truce__kv_log_end(kv, &end) ? find_log(kv, &log) : SQLITE_OK;

    *is = false;
    if (result || !log)
        return result ? truce__kv_fail(kv, result, "read", error) : TRUCE_OK;
    for (uint32_t number = end.moved + 1; !result && !*is && number <= end.frames; number++) {
        struct kv_frame frame;

        result = truce__kv_log_frame(log, number, &frame);
        *is = !result && frame.page == page;
    }
    return result ? truce__kv_fail(kv, result, "read", error) : TRUCE_OK;
}

truce_status truce__kv_page_read_state(struct kv *kv, uint32_t page, bool *there, bool *valid,
                                       bson_error_t *error)
{
    struct kv_page_state state = {.page = page};
    int result = sqlite3_file_control(kv->db, "main", KV_PAGE_STATE, &state);

    *there = state.there;
    *valid = state.valid;
    if (result)
        return truce__kv_fail(kv, result, "read", error);
    return state.valid || !state.there ? TRUCE_OK : is_in_log(kv, page, valid, error);
}

truce_status truce__kv_page_copy(struct kv *kv, uint32_t page, uint8_t *bytes, bool *there,
                                 bool *valid, bson_error_t *error)
{
    struct kv_page_state state = {.page = page};
    int result = sqlite3_file_control(kv->db, "main", KV_PAGE_STATE, &state);

    *there = state.there;
    *valid = state.valid;
    memcpy(bytes, state.bytes, KV_PAGE_BYTES);
    return result ? truce__kv_fail(kv, result, "read", error) : TRUCE_OK;
}
