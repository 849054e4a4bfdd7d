#ifndef TRUCE_ENGINE_STORAGE_FILE_FORMAT_H
#define TRUCE_ENGINE_STORAGE_FILE_FORMAT_H

#include <bson/bson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "truce/status.h"

/*
 * The format of the file: an SQLite database in WAL mode, with three differences that prevent other
 * SQLite programs from opening it. The VFS translates the bytes when it reads and writes them.
 *
 *     the file, byte 0     "truce store" and a wrong page size replace "SQLite format 3" and the
 *                          page size (file_magic.c). Another program reports that the file is not a
 *                          database. Even a single call for a checkpoint fails. This does
 *                          not stop a program that opened the file while it was empty
 *                          (file_creation.c).
 *     the log, page 1      the same bytes, because other programs would read page 1 from the log
 *     the log, byte 4      KV_LOG_VERSION, with a valid checksum. Another program neither opens nor
 *                          removes a log of an unknown version.
 *
 * `application_id` marks SQLite's part of the file as truce's, and `user_version` is its format.
 * Every page ends in a checksum (checksum_vfs.h), and map pages record which page points to each
 * page (vacuum.c).
 */
#define KV_APPLICATION_ID   0x74727563 /* "truc" */
#define KV_FORMAT           1
#define KV_LOG_VERSION      0x74720001u

#define KV_DEFINITION_BYTES 160

/* The number of bytes at the start of page 1 that differ from an SQLite database. */
#define KV_MAGIC_BYTES 18

/* Converts the first bytes of page 1 from SQLite's to the file's. Other pages do not change. */
void truce__kv_magic_hide(uint8_t *page);
/* Converts them back. Returns false, and changes nothing, if the page does not begin as page 1 of a
 * truce store does. */
bool truce__kv_magic_show(uint8_t *page);

/* Creates a missing file with its first page, so that no program can open it while it is empty
 * (file_creation.c). Does nothing if the file exists, or if the file system does not support this;
 * SQLite then creates an empty file. Fails with IO if the page cannot be written; the file does not
 * exist then. */
truce_status truce__kv_file_create(const char *path, bson_error_t *error);
/* Makes the name of the file durable, if the file system syncs directories. Fails with IO if this
 * fails. */
truce_status truce__kv_file_sync_name(const char *path, bson_error_t *error);

/* The kind of a file, as its first bytes show. */
enum kv_kind {
    KV_EMPTY,
    KV_STORE,
    /* A store in a format from before the first release. */
    KV_EARLIER,
    /* A database of another program. */
    KV_SQLITE,
    /* Something else, or the first page of a store is damaged. */
    KV_UNKNOWN,
};

/* The number of bytes that truce__kv_kind reads. */
#define KV_KIND_BYTES 100
enum kv_kind truce__kv_kind(const uint8_t *bytes);

/* Fails with INVALID if the file is a store in a format from before the first release, and with
 * CORRUPT if it is an SQLite file of another program. Accepts any other file. Called before SQLite
 * reads more of the file than its header, or anything of a log. */
struct kv;
truce_status truce__kv_kind_refuse(struct kv *kv, bson_error_t *error);

/* Converts the header of the log, bytes 0 to 31, from the file's form to SQLite's. The header of a
 * log that another program wrote gets version 0, which SQLite refuses. A header with a wrong
 * checksum does not change. */
#define KV_LOG_HEADER_BYTES 32
void truce__kv_log_show(uint8_t *header);

/* Writes the definition of a table of rows or of keys (table_definitions.c). */
void truce__kv_definition(bool keys, int64_t table, char *sql, size_t size);

#endif
