#ifndef TRUCE_ENGINE_KV_FORMAT_H
#define TRUCE_ENGINE_KV_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The format of the file: an SQLite database in WAL mode, with three differences that keep every other SQLite
 * program out. The VFS translates the bytes when it reads and writes them.
 *
 *     the file, byte 0     KV_MAGIC in the place of "SQLite format 3" and of the size of pages. Another program
 *                          reports that the file is not a database. The size of pages that it reads there is wrong,
 *                          too, so that a call that only makes a checkpoint fails.
 *     the log, page 1      the same: it is the page that other programs would read from the log
 *     the log, byte 4      KV_LOG_VERSION, with a checksum that is right. Another program does not open a log of a
 *                          version that it does not know, and does not remove it
 *
 * `application_id` says that SQLite's part of the file is truce's, `user_version` which format it has. Every page ends
 * in a checksum (kv_page.h) and is found by maps of what names each page (kv_compact.c).
 */
#define KV_APPLICATION_ID   0x74727563 /* "truc" */
#define KV_FORMAT           1
#define KV_LOG_VERSION      0x74720001u

#define KV_DEFINITION_BYTES 160

/* The bytes that differ from an SQLite database, from the first byte of page 1 on. */
#define KV_MAGIC_BYTES 18

/* Turns the first bytes of page 1 from SQLite's into the file's; other pages stay what they are. */
void truce__kv_magic_hide(uint8_t *page);
/* The other direction. False: the page does not begin as page 1 of a truce store does, and stays what it is. */
bool truce__kv_magic_show(uint8_t *page);

/* What a file is, by its first bytes. */
enum kv_kind {
    KV_EMPTY,
    KV_STORE,
    KV_EARLIER, /* a store in a format from before the first release */
    KV_SQLITE,  /* a database of another program */
    KV_UNKNOWN, /* something else, or the first page of a store is damaged */
};

#define KV_KIND_BYTES 100 /* that truce__kv_kind looks at */
enum kv_kind truce__kv_kind(const uint8_t *bytes);

/* The header of the log, as it is in the file, from and to SQLite's: bytes 0 to 31. */
#define KV_LOG_HEADER_BYTES 32
void truce__kv_log_show(uint8_t *header);

/* The definition of a table of rows or of keys (kv_schema.c). */
void truce__kv_definition(bool keys, int64_t table, char *sql, size_t size);

#endif
