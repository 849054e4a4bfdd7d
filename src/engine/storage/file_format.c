/*
 * The format of the file and its version (file_format.h). A file is refused in two steps:
 *
 *     when a connection opens it    the kind, by its first bytes: a file of another program, or of
 *                                   a version of truce before the first release
 *     when the store opens it       `application_id`, the format's version in `user_version`, and
 *                                   the sizes in the header of SQLite
 *
 * A file is never converted in place. A file from before the first release is exported by the
 * version that made it.
 */
#include "engine/storage/file_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/storage/checksum_vfs.h"
#include "engine/storage/kv_connection.h"

truce_status truce__kv_kind_refuse(struct kv *kv, bson_error_t *error)
{
    enum kv_kind kind = KV_UNKNOWN;
    int result = sqlite3_file_control(kv->db, "main", KV_PAGE_KIND, &kind);

    if (result)
        return truce__kv_fail(kv, result, "open", error);
    if (kind == KV_EARLIER)
        return truce__fail(
            TRUCE_INVALID, error,
            "\"%s\" has a file format from before the first release of truce: export it with "
            "the version that made it (truce export), and import the result into a new store",
            kv->path);
    if (kind == KV_SQLITE)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" is not a truce store: it is an SQLite file of another program",
                           kv->path);
    return TRUCE_OK;
}

/* Checks that SQLite uses a log (WAL) for the file, which some file systems do not allow. */
static truce_status format_check_log(struct kv *kv, bson_error_t *error)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(kv->db, "PRAGMA journal_mode", -1, &statement, NULL);
    truce_status status = TRUCE_OK;

    if (!result)
        result = sqlite3_step(statement);
    if (result != SQLITE_ROW)
        status = truce__kv_fail(kv, result == SQLITE_DONE ? SQLITE_CORRUPT : result, "open", error);
    else if (strcmp((const char *)sqlite3_column_text(statement, 0), "wal") != 0)
        status = truce__fail(
            TRUCE_IO, error,
            "\"%s\" cannot have a log (WAL) in this place: use a local file system", kv->path);
    sqlite3_finalize(statement);
    return status;
}

/* Checks the header of the file. The header of a file of this format allows one page size,
 * checksums, map pages, and a log. */
static truce_status format_check_pages(struct kv *kv, bson_error_t *error)
{
    int64_t size = 0, vacuum = 0;
    int reserved = -1;
    truce_status status = truce__kv_pragma(kv, "PRAGMA page_size", &size, error);

    if (!status)
        status = truce__kv_pragma(kv, "PRAGMA auto_vacuum", &vacuum, error);
    if (status)
        return status;
    (void)sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    if (size != KV_PAGE_BYTES || reserved != KV_SUM_BYTES || vacuum != 2)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" is damaged: its pages are not those of a truce store (%" PRId64
                           " bytes, %d reserved): save the documents with truce salvage",
                           kv->path, size, reserved);
    return kv->flags & KV_IMMUTABLE ? TRUCE_OK : format_check_log(kv, error);
}

truce_status truce__kv_format_check(struct kv *kv, bool *fresh, bson_error_t *error)
{
    int64_t application = 0, format = 0, tables = 0;
    truce_status status;

    *fresh = false;
    status = truce__kv_pragma(kv, "PRAGMA application_id", &application, error);
    if (!status)
        status = truce__kv_pragma(kv, "PRAGMA user_version", &format, error);
    if (!status)
        status = truce__kv_pragma(kv, "SELECT count(*) FROM sqlite_schema", &tables, error);
    if (status)
        return status;
    if (!application && !format && !tables) {
        *fresh = true;
        return TRUCE_OK;
    }
    if (application != KV_APPLICATION_ID)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" is damaged: its header does not say that it is a truce store",
                           kv->path);
    if (format != KV_FORMAT)
        return truce__fail(
            TRUCE_CORRUPT, error,
            "\"%s\" has file format %lld, and this version of truce opens format %d: "
            "use the version that made the file",
            kv->path, (long long)format, KV_FORMAT);
    return format_check_pages(kv, error);
}

truce_status truce__kv_format_create(struct kv *kv, bson_error_t *error)
{
    truce_status status = truce__kv_file_sync_name(kv->path, error);
    int reserved = KV_SUM_BYTES;
    uint32_t version;
    char sql[128];

    if (status)
        return status;
    /* A file with a first page has these settings already. In an empty file, EXTRA makes the
     * removal of the journal durable before there is a WAL that the journal could undo. */
    (void)sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    status = truce__kv_execute(
        kv,
        "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA synchronous=EXTRA;"
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
        error);
    if (!status)
        status = format_check_log(kv, error);
    if (!status)
        status = truce__kv_write_begin(kv, &version, error);
    if (status)
        return status;
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d", KV_APPLICATION_ID,
             KV_FORMAT);
    status = truce__kv_execute(kv, sql, error);
    if (!status)
        status = truce__kv_rows_create(kv, 0, error);
    if (status) {
        truce__kv_write_rollback(kv);
        return status;
    }
    status = truce__kv_write_commit(kv, error);
    return status ? status : truce__kv_execute(kv, "PRAGMA synchronous=NORMAL", error);
}
