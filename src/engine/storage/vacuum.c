/*
 * Compaction: makes the file smaller.
 *
 * SQLite adds a page to the free list of the file when the last entry on the page is gone. It
 * merges a page that is less than a third full with its neighbors. If every second document of a
 * file was removed, the file is half empty, and no page of it is free. The file becomes
 * shorter only when its last pages are free.
 *
 *     pack      removes a part of a table, up to two thousand consecutive entries, and inserts it
 *               again in the same order: SQLite then fills pages from the left
 *     shrink    moves the last page of the file to a free page, by SQLite's incremental vacuum
 *
 *     | 1 | map | 3 | 4 | free | 6 | free | 8 |    ->    | 1 | map | 3 | 4 | 8 | 6 |
 *
 * To move a page, SQLite must know which page points to it. The file records this for each page in
 * map pages, those of SQLite's "auto-vacuum": page 2, and every 818th page from there.
 *
 * Invariants:
 *  1. Entries are the same before and after, rows and keys with all their bytes. If an entry cannot
 *     be inserted as it was, the call fails and the transaction is rolled back.
 *  2. A part is small: at most PART_ENTRIES entries and about PART_BYTES.
 *  3. Bodies of more than LARGE_BYTES are neither moved nor read: their pages waste almost no
 *     space.
 */
#include "engine/storage/kv_connection.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* The limits of a part (invariant 2). */
#define PART_ENTRIES 2000
#define PART_BYTES   (256 * 1024)
/* Larger bodies are not moved (invariant 3). */
#define LARGE_BYTES 8192

/* The header of an entry in the buffer of a part. The bytes of the entry follow. */
struct entry {
    int64_t row;
    /* The number of bytes that follow. */
    size_t size;
};

struct part {
    struct buffer bytes;
    int count;
    /* The position of the last entry in the buffer. */
    size_t last;
    /* The row after which the part begins. For keys, the row of the entry `pack->key`. */
    int64_t from;
};

truce_status truce__kv_space(struct kv *kv, struct kv_space *space, bson_error_t *error)
{
    truce_status status = truce__kv_pragma(kv, "PRAGMA page_count", &space->pages, error);

    if (!status)
        status = truce__kv_pragma(kv, "PRAGMA freelist_count", &space->free, error);
    return status;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void compact_add(struct part *part, int64_t row, struct bytes bytes)
{
    const struct entry entry = {row, bytes.size};

    part->last = part->bytes.size;
    truce__buffer_append(&part->bytes, &entry, sizeof entry);
    truce__buffer_append(&part->bytes, bytes.data, bytes.size);
    part->count++;
}

static bool compact_is_full(const struct part *part)
{
    return part->count == PART_ENTRIES || part->bytes.size >= PART_BYTES;
}

static struct entry entry_at(const struct part *part, size_t at, struct bytes *bytes)
{
    struct entry entry;

    memcpy(&entry, part->bytes.bytes + at, sizeof entry);
    *bytes = (struct bytes){part->bytes.bytes + at + sizeof entry, entry.size};
    return entry;
}

/* Reads the next rows until the part is full. Ends before a large body, which is skipped. */
static truce_status compact_read_rows(struct kv *kv, struct kv_pack *pack, struct part *part,
                                      bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROWS_PART, pack->table, 0, &statement, error);
    int result = SQLITE_ROW;

    if (status)
        return status;
    sqlite3_bind_int64(statement, 1, pack->row);
    sqlite3_bind_int64(statement, 2, LARGE_BYTES);
    while (!compact_is_full(part) && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        int64_t row = sqlite3_column_int64(statement, 0);

        pack->row = row;
        if (sqlite3_column_int64(statement, 1) > LARGE_BYTES)
            break;
        if (sqlite3_column_type(statement, 2) != SQLITE_BLOB) {
            status = truce__kv_fail_row(kv, pack->table, row, error);
            break;
        }
        compact_add(part, row,
                    (struct bytes){sqlite3_column_blob(statement, 2),
                                   (size_t)sqlite3_column_bytes(statement, 2)});
    }
    pack->end = result == SQLITE_DONE;
    if (!status && result != SQLITE_ROW && result != SQLITE_DONE)
        status = truce__kv_fail_table(kv, pack->table, result, "read", error);
    sqlite3_reset(statement);
    return status;
}

/* Reads the next entries of a key table until the part is full. Sets `end` after the last entry. */
static truce_status read_keys(struct kv *kv, struct kv_pack *pack, struct part *part,
                              bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    truce_status status =
        truce__kv_keys_seek(kv, pack->table, 0, (struct bytes){pack->key.bytes, pack->key.size},
                            pack->row, (struct bytes){0}, false, &cursor, error);

    while (!status && !compact_is_full(part)) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status)
            compact_add(part, cursor.row, cursor.key);
    }
    truce__kv_cursor_close(&cursor);
    pack->end = status == TRUCE_NOT_FOUND;
    return pack->end ? TRUCE_OK : status;
}

/* ---- out and in ----------------------------------------------------------------------------- */

static truce_status compact_change(struct kv *kv, sqlite3_stmt *statement, int entries,
                                   bson_error_t *error)
{
    int result = sqlite3_step(statement);
    truce_status status = TRUCE_OK;

    kv->changed = true;
    if (result != SQLITE_DONE)
        status = truce__kv_fail_table(kv, kv->table, result, "write", error);
    else if (sqlite3_changes(kv->db) != entries)
        status = truce__kv_fail_table(kv, kv->table, SQLITE_CORRUPT, "write", error);
    sqlite3_reset(statement);
    return status;
}

static void bind_entry(sqlite3_stmt *statement, int position, int64_t row, struct bytes key)
{
    sqlite3_bind_blob64(statement, position, key.data ? key.data : (const uint8_t *)"", key.size,
                        SQLITE_STATIC);
    sqlite3_bind_int64(statement, position + 1, row);
}

/* Deletes the entries of the part from the table. */
static truce_status compact_take_out(struct kv *kv, const struct kv_pack *pack,
                                     const struct part *part, bson_error_t *error)
{
    struct bytes key;
    struct entry last = entry_at(part, part->last, &key);
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, pack->keys ? KEYS_DELETE : ROWS_DELETE,
                                              pack->table, 0, &statement, error);

    if (status)
        return status;
    if (pack->keys) {
        bind_entry(statement, 1, part->from, (struct bytes){pack->key.bytes, pack->key.size});
        bind_entry(statement, 3, last.row, key);
    } else {
        sqlite3_bind_int64(statement, 1, part->from);
        sqlite3_bind_int64(statement, 2, last.row);
    }
    return compact_change(kv, statement, part->count, error);
}

/* Inserts the entries of the part again, in their order, so that they fill their pages. */
static truce_status compact_put_in(struct kv *kv, const struct kv_pack *pack,
                                   const struct part *part, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, pack->keys ? KEY_INSERT : ROW_INSERT, pack->table,
                                              0, &statement, error);

    for (size_t at = 0; !status && at < part->bytes.size;) {
        struct bytes bytes;
        struct entry entry = entry_at(part, at, &bytes);

        if (pack->keys) {
            bind_entry(statement, 1, entry.row, bytes);
        } else {
            sqlite3_bind_int64(statement, 1, entry.row);
            sqlite3_bind_blob64(statement, 2, bytes.data, bytes.size, SQLITE_STATIC);
        }
        status = compact_change(kv, statement, 1, error);
        at += sizeof entry + entry.size;
    }
    return status;
}

/* Deletes and inserts the entries of the part, and counts the pages that this has freed. */
static truce_status compact_move(struct kv *kv, struct kv_pack *pack, const struct part *part,
                                 bson_error_t *error)
{
    int64_t before, after;
    truce_status status = truce__kv_pragma(kv, "PRAGMA freelist_count", &before, error);

    if (!status)
        status = compact_take_out(kv, pack, part, error);
    if (!status)
        status = compact_put_in(kv, pack, part, error);
    if (!status)
        status = truce__kv_pragma(kv, "PRAGMA freelist_count", &after, error);
    if (!status)
        pack->emptied = after - before;
    return status;
}

truce_status truce__kv_pack(struct kv *kv, struct kv_pack *pack, bson_error_t *error)
{
    struct part part = {.from = pack->row};
    truce_status status;

    truce_assert(kv->state == KV_WRITING);
    pack->emptied = 0;
    status =
        pack->keys ? read_keys(kv, pack, &part, error) : compact_read_rows(kv, pack, &part, error);
    pack->bytes = (int64_t)(part.bytes.size - (size_t)part.count * sizeof(struct entry));
    if (!status && part.count > 1)
        status = compact_move(kv, pack, &part, error);
    if (!status && part.count && pack->keys) {
        struct bytes key;

        pack->row = entry_at(&part, part.last, &key).row;
        pack->key.size = 0;
        truce__buffer_append(&pack->key, key.data, key.size);
    }
    truce__buffer_release(&part.bytes);
    return status;
}

truce_status truce__kv_shrink(struct kv *kv, int pages, bson_error_t *error)
{
    char sql[64];
    int result;

    truce_assert(kv->state == KV_WRITING);
    kv_settle(kv);
    kv->changed = true;
    snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", pages);
    result = sqlite3_exec(kv->db, sql, NULL, NULL, NULL);
    return result ? truce__kv_fail(kv, result, "write", error) : TRUCE_OK;
}
