#ifndef TRUCE_ENGINE_STORAGE_KV_H
#define TRUCE_ENGINE_STORAGE_KV_H

/*
 * One connection to the file: ordered, crash-safe tables of bytes. Everything above this interface
 * is truce's own code; everything below is SQLite.
 *
 * There are two kinds of tables with a common numbering:
 *
 *     rows   c<table>   row number (int64, ascending in the order of insertion) -> body
 *     keys   x<table>   (key, row), ordered by key as memcmp does, then by row
 *
 * One thread at a time uses a connection. Returned bytes are borrowed until the next call on the
 * connection.
 *
 * Status: TRUCE_IO if the disk refused (full, failed, not permitted); TRUCE_CORRUPT if the file is
 * not valid; TRUCE_LOCKED if another program holds SQLite's own lock on it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

struct budget;

struct kv;

enum {
    /* Opens the file for reading only. */
    KV_READ_ONLY = 1 << 1,
    /* Reads the file alone, without locks and without the WAL. No process may change it. */
    KV_IMMUTABLE = 1 << 2,
    /* Opens the connection that writes and makes checkpoints. */
    KV_WRITER = 1 << 3,
    /* Fails with LOCKED at once if another connection has the file open. */
    KV_ALONE = 1 << 4,
    /* Creates a file without tables if the file is missing. */
    KV_CREATE = 1 << 6,
};

/* The number of words in the header of the index of the log. */
#define KV_INDEX_WORDS 12

struct bytes {
    const uint8_t *data;
    size_t size;
};

static inline struct bytes kv_body(const bson_t *document)
{
    return (struct bytes){bson_get_data(document), document->len};
}

/* Opens a connection that waits up to `busy_timeout_ms` for SQLite's own locks
 * (truce__kv_busy_timeout). Fails with INVALID if the file has a format from before the first
 * release, and with CORRUPT if it is an SQLite file of another program. */
truce_status truce__kv_open(const char *path, unsigned flags, int64_t busy_timeout_ms,
                            struct kv **kv, bson_error_t *error);
/* Closes the connection, which is in no snapshot and no transaction. */
void truce__kv_close(struct kv *kv);

/* Sets whether closing a writer, if it is the last connection to the file, may checkpoint and
 * remove the WAL (the default). Called only under the lock. */
void truce__kv_checkpoint_on_close(struct kv *kv, bool may);

/* Makes a connection share its pages with others (page_cache.h). The writer's connection must not
 * share them. */
struct page_cache;
void truce__kv_share(struct kv *kv, struct page_cache *cache);

/* Writes a readable name of the table into `name` ("the documents of students"), or nothing if the
 * name is unknown. Called inside a failing call on the connection. */
typedef void kv_name_function(void *arg, int64_t table, char *name, size_t size);
void truce__kv_names(struct kv *kv, kv_name_function *names, void *arg);

/* Passes every body that is read to `valid` first, except those that `seen` (body_fingerprints.h)
 * knows. If `valid` returns false, the call fails with CORRUPT. It also fails for a body that is
 * larger than a document may be, except in the table that is `wide` (TRUCE_ROW_BYTES_MAX). Several
 * connections may share `seen`, which lasts longer than they do, if they have the same `valid`. */
struct seen;
void truce__kv_set_validator(struct kv *kv, bool (*valid)(const uint8_t *body, size_t size),
                             struct seen *seen);
void truce__kv_wide(struct kv *kv, int64_t table);

/* Declares that this body, which was just written into the row, is valid. These bytes are not
 * checked in this row again. */
void truce__kv_vouch(struct kv *kv, int64_t table, int64_t row, struct bytes body);

/* ---- transactions --------------------------------------------------------------------------- */

/* Sets how long calls wait for SQLite's own locks (a process may be recovering the log after a
 * crash). Calls do not wait on a file system without locks; they fail with IO. */
void truce__kv_busy_timeout(struct kv *kv, int64_t milliseconds);

/* After this call every read takes from the budget, also inside SQLite's loops, and fails with
 * TIMEOUT when it is used up. NULL removes the bound. After the first TIMEOUT the bound is
 * inactive: in a write transaction SQLite must be able to read pages to roll back. */
void truce__kv_bound(struct kv *kv, struct budget *budget);

/* Begins a snapshot, which lasts until snapshot_end. `*version` changes with every change of the
 * tables or of the catalog: see truce__kv_version_bump. */
truce_status truce__kv_snapshot_begin(struct kv *kv, uint32_t *version, bson_error_t *error);
void truce__kv_snapshot_end(struct kv *kv);

/* Does the same, but keeps SQLite's read transaction if it can. The next snapshot_begin continues
 * it if no process has committed since. Until then, or until snapshot_end, the connection rests: it
 * blocks checkpoints as a reader does. Returns whether it rests. */
bool truce__kv_snapshot_rest(struct kv *kv);

/* The header of the index of the log when a snapshot began. Two snapshots with known and equal
 * headers show the same data. Other pairs may show the same data or not. */
struct kv_log_position;
struct kv_snapshot {
    bool known;
    uint32_t header[KV_INDEX_WORDS];
};

/* Returns the position in the log at which a snapshot with a known header was taken. Sets `*moved`
 * to the number of frames that checkpoints have moved into the file by now. */
void truce__kv_snapshot_position(const struct kv *kv, struct kv_log_position *position,
                                 uint32_t *moved);

/* Returns the header of the snapshot that the connection is in. */
const struct kv_snapshot *truce__kv_snapshot(const struct kv *kv);
/* Returns whether the header is known and no process has committed since. */
bool truce__kv_snapshot_last(const struct kv *kv);
bool truce__kv_snapshot_same(const struct kv_snapshot *a, const struct kv_snapshot *b);

/* `*version` as above. A commit is visible to every snapshot that begins after it. It survives the
 * death of the process; it survives a power cut only after the log is synced (truce__kv_log_sync).
 * A failed commit leaves nothing of the transaction. */
truce_status truce__kv_write_begin(struct kv *kv, uint32_t *version, bson_error_t *error);
truce_status truce__kv_write_commit(struct kv *kv, bson_error_t *error);
void truce__kv_write_rollback(struct kv *kv);

/* Begin, release, and roll back a savepoint inside a write transaction; there is one at a time.
 * After a failure the transaction cannot be used any more. */
truce_status truce__kv_savepoint_begin(struct kv *kv, bson_error_t *error);
truce_status truce__kv_savepoint_release(struct kv *kv, bson_error_t *error);
truce_status truce__kv_savepoint_rollback(struct kv *kv, bson_error_t *error);

/* Counters of the commits to the file, by any program, while it is open. */
struct kv_commits {
    /* The number of commits that are visible to readers, in the index of the log. */
    const atomic_uint *now;
    /* The value of `now` up to which a writing connection has made the commits itself or has
     * accepted them. */
    atomic_uint known;
};

/* Returns the counters of a writing connection that has read already. They are valid while it is
 * open. `known` differs from every value of `now` before the first accept. */
const struct kv_commits *truce__kv_commits(struct kv *kv);

/* Returns a number of the data that a snapshot that begins now would show. `kv` is a writing
 * connection that has read already. Any thread may call this function. While the number stays the
 * same, no commit of any program has become visible. Returns 0 if the number is unknown. */
uint64_t truce__kv_data_version(const struct kv *kv);

/* Returns, in a write transaction, whether another connection has committed since. If so, `known`
 * keeps its value until truce__kv_accept, which counts all of these commits. */
bool truce__kv_foreign(const struct kv *kv);
void truce__kv_accept(struct kv *kv);

/* Returns whether this transaction has changed anything. */
bool truce__kv_changed(const struct kv *kv);

/* Limits the page cache of the connection to so many bytes. Called outside of transactions. */
truce_status truce__kv_cache(struct kv *kv, uint64_t bytes, bson_error_t *error);

/* Commits a page without a change, so that a checkpoint does not move the whole WAL: see
 * checkpoint.c. */
truce_status truce__kv_mark(struct kv *kv, bson_error_t *error);

/* Moves committed pages from the WAL into the file. With `restart`, which only the writer may set,
 * the next writer begins the WAL again; the call fails with TRUCE_LOCKED if a reader has not ended.
 * With `pace`, syncs after so many pages, and at the end. If `pace` is 0, SQLite syncs the file
 * once, and only if it has moved everything. If a frame is damaged, the call fails with CORRUPT and
 * `*damaged` is the number of the frame. Otherwise `*damaged` is 0. `*pages` is the number of pages
 * in the WAL, `*moved` how many of them are in the file now. */
truce_status truce__kv_checkpoint(struct kv *kv, bool restart, uint32_t pace, int *pages,
                                  int *moved, uint32_t *damaged, bson_error_t *error);

/* Returns the number of pages in the file after the last commit. Called outside of transactions. */
truce_status truce__kv_file_pages(struct kv *kv, int64_t *pages, bson_error_t *error);

/* Returns the number of pages in the WAL after the last commit of this connection, or, after its
 * last checkpoint, the number of pages that were not moved. */
int truce__kv_wal_pages(const struct kv *kv);

/* ---- the log on the disk -------------------------------------------------------------------- */

/* A second descriptor of the WAL, so that one thread can wait for the disk while others write. */
struct kv_log;

/* Opens the log of the database. `path` is the path of the database. The WAL exists while a
 * connection is open that has read or written. */
truce_status truce__kv_log_open(const char *path, struct kv_log **log, bson_error_t *error);
/* Closes the log. NULL is allowed. */
void truce__kv_log_close(struct kv_log *log);

/* Syncs the log. On success all commits that returned before the call are on disk. After a failure
 * the state of the disk is unknown: the operating system may have discarded data that it could not
 * write. One thread at a time. */
truce_status truce__kv_log_sync(struct kv_log *log, bson_error_t *error);

/* Writes the log again as it is read, header first, and syncs it. Afterwards the disk holds the
 * same bytes as memory, whatever it refused before. No connection may be open. Returns OK if there
 * is no log. */
truce_status truce__kv_log_renew(const char *path, bson_error_t *error);

/* The end of the log according to its index. */
struct kv_log_end {
    /* The number of committed frames. */
    uint32_t frames;
    /* The number of frames that checkpoints have moved into the file. */
    uint32_t moved;
    /* The running checksum of the last frame. */
    uint32_t sum[2];
    /* The salts of the generation. They change when the log begins again. */
    uint64_t salts;
};

/* Reads the end of the log. Returns false if there is no log or if its index is being written. */
bool truce__kv_log_end(const struct kv *kv, struct kv_log_end *end);

/* Finds out whether the last frame is in the log that the connection has open. With `all`, also
 * checks all frames before it by their checksums. */
truce_status truce__kv_log_whole(struct kv *kv, const struct kv_log_end *end, bool all, bool *whole,
                                 bson_error_t *error);

/* Reads the whole log and finds out whether its frames are those that were written, up to a frame
 * of another generation or the end. No connection may be open. */
truce_status truce__kv_log_verify(const char *path, bool *valid, bson_error_t *error);
/* Fails with CORRUPT if the header of the log has a wrong checksum: SQLite would treat such a log
 * as empty. The log exists and is not shorter than its header. */
truce_status truce__kv_log_check_header(const char *path, bson_error_t *error);

/* A position in the log: after this number of frames of a generation. */
struct kv_log_position {
    /* The salts of the generation. */
    uint64_t salts;
    uint32_t frames;
    /* The running checksum of the last frame, or of the header of the log. */
    uint32_t sum[2];
};

/* A frame of the log. Its page has the form of the file, apart from the checksum. */
struct kv_log_frame {
    uint32_t page;
    /* The number of pages in the file after the commit, if the frame is the last of a commit,
     * otherwise 0. */
    uint32_t pages_after;
    uint8_t bytes[4096];
};

/* Returns the position before the first frame of the log. If the log is empty, its salts are 0. */
truce_status truce__kv_log_start(struct kv_log *log, struct kv_log_position *position,
                                 bson_error_t *error);
/* Reads the frame after `position` and advances it. The caller knows that the frames up to the
 * number `last` were committed, so several are read at once, and has called truce__kv_log_start
 * since the log began again. Fails with CORRUPT if the frame does not continue `position`. */
truce_status truce__kv_log_next(struct kv_log *log, struct kv_log_position *position, uint32_t last,
                                struct kv_log_frame *frame, bson_error_t *error);

/* ---- failing syncs -------------------------------------------------------------------------- */

/* `failed` is called if a sync of the connection fails, of the file or of the log. SQLite does not
 * report failing syncs of a checkpoint at the end. */
struct kv_watch {
    void (*failed)(void *arg);
    void *arg;
};

void truce__kv_watch(struct kv *kv, const struct kv_watch *watch);

/* ---- the format (file_format.c) -------------------------------------------------------------- */

/* Refuses a file that is not a store by its first bytes. Reads neither a log nor more of the file.
 * `logged` means that the file has a log, which may have a better first page. `empty` means that
 * the file may be empty, because the caller makes it a store. Returns TRUCE_OK if the file may be a
 * store or cannot be read. */
truce_status truce__kv_kind_check(const char *path, bool logged, bool empty, bson_error_t *error);

/* Finds out whether the file has truce's format. Fails with CORRUPT if it is not a truce store or
 * has another format. Sets `*fresh` if the file is empty. */
truce_status truce__kv_format_check(struct kv *kv, bool *fresh, bson_error_t *error);

/* Makes an empty file a truce store: WAL mode, application id, format version, row table 0. */
truce_status truce__kv_format_create(struct kv *kv, bson_error_t *error);

/* ---- the file itself ------------------------------------------------------------------------ */

/* Fails with LOCKED if any connection has the file open, in this process or another, as far as
 * SQLite knows. */
truce_status truce__kv_alone(const char *path, bson_error_t *error);

/* Fails with CORRUPT if the file was removed, or if its name leads to another file now. */
truce_status truce__kv_check_path(struct kv *kv, bson_error_t *error);

/* Writes the log again after a failed sync, and moves its valid frames into the file. Called only
 * under the lock. Fails with LOCKED if another connection has the file open. */
truce_status truce__kv_recover(const char *path, bson_error_t *error);

/* Fails with CORRUPT unless all tables are defined as truce defines them. */
truce_status truce__kv_schema_check(struct kv *kv, bson_error_t *error);

/* Reads a page of the file itself. Finds out whether it is there, and whether its checksum is right
 * or the log has a newer version of the page. Called in a snapshot. */
truce_status truce__kv_page_read_state(struct kv *kv, uint32_t page, bool *there, bool *valid,
                                       bson_error_t *error);

/* Reads a page of the file itself as it is there, with its checksum. Sets `*there` if the file
 * contains the page, and `*valid` if its checksum is right or it was never written. A checkpoint
 * may be writing it. */
truce_status truce__kv_page_copy(struct kv *kv, uint32_t page, uint8_t *bytes, bool *there,
                                 bool *valid, bson_error_t *error);

/* ---- compaction (vacuum.c) -------------------------------------------------------------- */

struct kv_space {
    /* The number of pages in the file, and the number of unused ones among them. */
    int64_t pages, free;
};

truce_status truce__kv_space(struct kv *kv, struct kv_space *space, bson_error_t *error);

/* The progress of packing one table, in parts, each in a write transaction. */
struct kv_pack {
    /* Whether the table contains keys. */
    bool keys;
    int64_t table;
    /* In a table of rows, the next part begins after this row. */
    int64_t row;
    /* In a table of keys, the next part begins after this entry. */
    struct buffer key;
    /* The size of the last part in bytes. */
    int64_t bytes;
    /* The number of pages that the last part freed. It is negative if the part needs more pages
     * than before. */
    int64_t emptied;
    /* The whole table is packed. */
    bool end;
};

/* Removes the next part from its pages and inserts it again, densely. `pack` advances even if the
 * transaction is rolled back. */
truce_status truce__kv_pack(struct kv *kv, struct kv_pack *pack, bson_error_t *error);
static inline void truce__kv_pack_release(struct kv_pack *pack)
{
    truce__buffer_release(&pack->key);
}

/* Moves up to `pages` pages from the end of the file to free pages, in a write transaction. The
 * checkpoint that moves the whole log then truncates the file. */
truce_status truce__kv_shrink(struct kv *kv, int pages, bson_error_t *error);

/* Runs SQLite's own integrity check of the whole file. Fails with CORRUPT and the first fault. */
truce_status truce__kv_integrity(struct kv *kv, bson_error_t *error);

/* ---- tables, inside a write transaction ----------------------------------------------------- */

truce_status truce__kv_rows_create(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_rows_drop(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_keys_create(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_keys_drop(struct kv *kv, int64_t table, bson_error_t *error);

/* Changes the version. Creating and dropping a table changes it as well. */
truce_status truce__kv_version_bump(struct kv *kv, bson_error_t *error);
truce_status truce__kv_version(struct kv *kv, uint32_t *version, bson_error_t *error);

/* ---- rows ----------------------------------------------------------------------------------- */

/* Reads a row. Fails with NOT_FOUND (without a message) if there is no such row. */
truce_status truce__kv_row_get(struct kv *kv, int64_t table, int64_t row, struct bytes *body,
                               bson_error_t *error);
/* Inserts a row. If `*row` is 0, chooses a new row number, greater than all existing ones, and
 * returns it. */
truce_status truce__kv_row_insert(struct kv *kv, int64_t table, int64_t *row, struct bytes body,
                                  bson_error_t *error);
/* Replace the body of a row, and delete a row. Both fail with CORRUPT if the row does not exist:
 * the caller has read it in this transaction, so the tree is out of order. */
truce_status truce__kv_row_update(struct kv *kv, int64_t table, int64_t row, struct bytes body,
                                  bson_error_t *error);
truce_status truce__kv_row_delete(struct kv *kv, int64_t table, int64_t row, bson_error_t *error);

/* Returns the number of rows and the total size of their bodies. */
truce_status truce__kv_rows_measure(struct kv *kv, int64_t table, int64_t *rows, int64_t *bytes,
                                    bson_error_t *error);

truce_status truce__kv_rows_count(struct kv *kv, int64_t table, int64_t *rows, bson_error_t *error);

/* ---- keys ----------------------------------------------------------------------------------- */

/* Returns the first row with exactly this key, or NOT_FOUND. */
truce_status truce__kv_key_get(struct kv *kv, int64_t table, struct bytes key, int64_t *row,
                               bson_error_t *error);
/* Returns OK if the pair exists, otherwise NOT_FOUND. */
truce_status truce__kv_key_find(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                bson_error_t *error);
/* Inserts a pair of key and row. The pair may exist already. */
truce_status truce__kv_key_insert(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error);
/* Deletes a pair of key and row. The pair need not exist. */
truce_status truce__kv_key_delete(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error);
/* Returns the body of the first row with exactly this key, in one step, or NOT_FOUND. */
truce_status truce__kv_key_lookup(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                  int64_t *row, struct bytes *body, bson_error_t *error);

/* Counts entries with `from` <= key < `to`. Stops at `most` (0 means never). */
truce_status truce__kv_keys_within(struct kv *kv, int64_t table, struct bytes from, struct bytes to,
                                   int64_t most, int64_t *entries, bson_error_t *error);

/* ---- cursors -------------------------------------------------------------------------------- */

/* A zero-initialized cursor is closed. At most one cursor of a kind is open on a table. All cursors
 * are closed before the transaction or snapshot ends. */
struct kv_cursor {
    /* NULL if the cursor is closed. */
    struct kv *kv;
    /* The SQL statement, or NULL while the cursor needs none. */
    void *statement;
    /* The table that an error message names. */
    int64_t table;
    /* The current entry. The bytes are borrowed until the next call for the cursor. */
    int64_t row;
    struct bytes key, body;
    /* Whether the cursor is over keys, and whether it returns bodies. */
    bool keys, bodies;
    /* The statement does not return the bodies, so each body is looked up in the table. */
    bool apart;
    /* The cursor finds entries in the pages (kv_direct.h) until it has a statement. */
    bool walks;
    /* The table of keys that the cursor walks over. */
    int64_t index;
    /* The walk ends before this key. */
    struct bytes end;
    /* The cursor returns bodies without checking them. */
    bool raw;
};

/* Iterates over rows greater than `after` ascending, or less than it descending. */
truce_status truce__kv_rows_seek(struct kv *kv, int64_t table, int64_t after, bool descending,
                                 struct kv_cursor *cursor, bson_error_t *error);

/* Receives a row, whose body is borrowed for the call. Must not call the connection. Returns false
 * to end the walk. */
typedef bool kv_take_function(void *arg, int64_t row, struct bytes body);

/* Passes rows greater than `after`, ascending, to `take` until it returns false. Returns NOT_FOUND
 * at the end. Faster than a cursor, because the rows do not leave SQLite's loop. */
truce_status truce__kv_rows_each(struct kv *kv, int64_t table, int64_t after,
                                 kv_take_function *take, void *arg, bson_error_t *error);

/* Iterates over entries greater than (key, row) ascending, or less than it descending. `rows` is
 * the table whose bodies are returned with the entries, or 0 for none. With bodies, the walk ends
 * before the first entry whose key is not less than `end` ascending, or is less than it descending:
 * that entry's body is not read. The bytes are borrowed until the cursor is closed. */
truce_status truce__kv_keys_seek(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                 int64_t row, struct bytes end, bool descending,
                                 struct kv_cursor *cursor, bson_error_t *error);

/* Moves to the next entry. Returns NOT_FOUND at the end. */
truce_status truce__kv_cursor_next(struct kv_cursor *cursor, bson_error_t *error);
void truce__kv_cursor_close(struct kv_cursor *cursor);

#endif
