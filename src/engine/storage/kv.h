#ifndef TRUCE_ENGINE_STORAGE_KV_H
#define TRUCE_ENGINE_STORAGE_KV_H

/*
 * One connection to the file: ordered, crash-safe tables of bytes. Everything above it is truce's
 * own; everything below it is SQLite.
 *
 * Two kinds of table, numbered from one space:
 *
 *     rows   c<table>   row number (int64, ascending in the order of insertion) -> body
 *     keys   x<table>   (key, row), ordered by key as memcmp does, then by row
 *
 * A connection is used by one thread at a time. Bytes that come out are borrowed until the next
 * call on the connection.
 *
 * Status: TRUCE_IO the disk refused (full, failed, not permitted); TRUCE_CORRUPT the file is not
 * what it must be; TRUCE_LOCKED another program holds SQLite's own lock on it.
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
    KV_READ_ONLY = 1 << 1, /* no write transactions */
    KV_IMMUTABLE = 1 << 2, /* the file alone: no lock, no WAL, nobody else changes it */
    KV_WRITER = 1 << 3,    /* the one connection that writes and checkpoints */
    KV_LARGE = 1 << 5,     /* a reader with room for a few megabytes of documents */
    KV_MIDDLE = 1 << 7,    /* half as much */
    KV_ALONE = 1 << 4,     /* LOCKED at once if anybody else has the file open */
    KV_CREATE = 1 << 6,    /* makes an empty file if there is none */
};

#define KV_INDEX_WORDS 12 /* of the header of the index of the log */

struct bytes {
    const uint8_t *data;
    size_t size;
};

static inline struct bytes kv_body(const bson_t *document)
{
    return (struct bytes){bson_get_data(document), document->len};
}

/* Opens a connection that waits up to `patience_ms` for SQLite's own locks (truce__kv_patience). INVALID: the file has a
 * format from before the first release. CORRUPT: it is an SQLite file of another program. */
truce_status truce__kv_open(const char *path, unsigned flags, int64_t patience_ms, struct kv **kv,
                            bson_error_t *error);
void truce__kv_close(struct kv *kv);

/* Whether closing a writer, if it is the last connection to the file, may checkpoint and remove the
 * WAL (the default). Only under the lock. */
void truce__kv_checkpoint_on_close(struct kv *kv, bool may);

/* Writes into `name` what a table is to people ("the collection students"), or nothing if it does not
 * know. Called in a failing call on the connection. */
typedef void kv_name_function(void *arg, int64_t table, char *name, size_t size);
void truce__kv_names(struct kv *kv, kv_name_function *names, void *arg);

/* Every body that is read is given to `sound` first; where it says false, the call answers CORRUPT. So it does of
 * one that is larger than a document may be, but for those of the table that is `wide` (TRUCE_ROW_BYTES_MAX). */
void truce__kv_sound(struct kv *kv, bool (*sound)(const uint8_t *body, size_t size));
void truce__kv_wide(struct kv *kv, int64_t table);

/* This body, which was just written into the row, is sound as its writer knows: whoever reads those bytes there, by this
 * connection, need not look at them. */
void truce__kv_vouch(struct kv *kv, int64_t table, int64_t row, struct bytes body);

/* ---- transactions -------------------------------------------------------------------------- */

/* Sets how long calls wait for SQLite's own locks (a process that recovers the log after a crash). A file system without
 * locks is not waited for: those calls end with IO. */
void truce__kv_patience(struct kv *kv, int64_t milliseconds);

/* From now on what is read takes from the budget, inside SQLite's own loops, too: TIMEOUT when it is over.
 * NULL: there is no such bound. Once it has ended something it is a bound no longer: in a write
 * transaction SQLite reads pages to roll it back, and has to get them. */
void truce__kv_bound(struct kv *kv, struct budget *budget);

/* A stable view, until snapshot_end. `*version` changes with every change of the tables or of the
 * catalog: see truce__kv_version_bump. */
truce_status truce__kv_snapshot_begin(struct kv *kv, uint32_t *version, bson_error_t *error);
void truce__kv_snapshot_end(struct kv *kv);

/* What the index of the log said when a snapshot began. Two snapshots that both know it, and of which it is the same,
 * show the same; with others it may be so, or not. */
struct kv_snapshot {
    bool known;
    uint32_t header[KV_INDEX_WORDS];
};

/* Of the snapshot that the connection is in. */
const struct kv_snapshot *truce__kv_snapshot(const struct kv *kv);
/* Is it known, and has nobody committed since? */
bool truce__kv_snapshot_last(const struct kv *kv);
bool truce__kv_snapshot_same(const struct kv_snapshot *a, const struct kv_snapshot *b);

/* `*version` as above. A commit is seen by every snapshot that begins after it, and survives the
 * death of the process; that of the machine only when the log is synced (truce__kv_log_sync). After a
 * failed commit nothing of the transaction is left. */
truce_status truce__kv_write_begin(struct kv *kv, uint32_t *version, bson_error_t *error);
truce_status truce__kv_write_commit(struct kv *kv, bson_error_t *error);
void truce__kv_write_rollback(struct kv *kv);

/* One at a time, inside a write transaction; a failed one leaves the transaction unusable. */
truce_status truce__kv_savepoint_begin(struct kv *kv, bson_error_t *error);
truce_status truce__kv_savepoint_release(struct kv *kv, bson_error_t *error);
truce_status truce__kv_savepoint_rollback(struct kv *kv, bson_error_t *error);

/* How many commits the file has seen, of whatever program, while anybody has had it open; and how many of
 * them a connection that writes has made itself, or accepted. */
struct kv_commits {
    const atomic_uint *now; /* moves when a commit is seen by readers */
    atomic_uint known;
};

/* Of a connection that writes and has read; as long as it is open. `known` is no number of `now` before the
 * first is accepted. */
const struct kv_commits *truce__kv_commits(struct kv *kv);

/* In a write transaction: did anybody else commit since? If so `known` stays what it was until that is
 * accepted, which counts all of them. */
bool truce__kv_foreign(const struct kv *kv);
void truce__kv_accept(struct kv *kv);

/* Has this transaction changed anything? */
bool truce__kv_changed(const struct kv *kv);

/* The connection keeps so many bytes of pages at most; outside of transactions. */
truce_status truce__kv_cache(struct kv *kv, uint64_t bytes, bson_error_t *error);

/* Commits a page without a change, so that not everything that is in the WAL is moved: see
 * checkpoint.c. */
truce_status truce__kv_mark(struct kv *kv, bson_error_t *error);

/* Moves committed pages from the WAL into the file. `restart`, which the writer may: also lets the next writer begin the
 * WAL anew, which needs every reader to have ended; TRUCE_LOCKED if one has not. `pace`: so many pages are brought to the disk at
 * a time, and all in the end; 0: SQLite syncs the file once, and only if it has moved everything. CORRUPT: a frame is
 * damaged; then `*damaged` is its number, else 0. `*pages`: how many the WAL had, `*moved` how many of them are in the file now. */
truce_status truce__kv_checkpoint(struct kv *kv, bool restart, uint32_t pace, int *pages,
                                  int *moved, uint32_t *damaged, bson_error_t *error);

/* Pages in the file, as the last commit left it. Outside of transactions. */
truce_status truce__kv_file_pages(struct kv *kv, int64_t *pages, bson_error_t *error);

/* Pages in the WAL after the last commit of this connection. */
int truce__kv_wal_pages(const struct kv *kv);

/* ---- the log on the disk ------------------------------------------------------------------- */

/* The WAL, opened once more, so that one thread waits for the disk while others write. */
struct kv_log;

/* `path` is the database's. There is a WAL as long as a connection that has read or written is open. */
truce_status truce__kv_log_open(const char *path, struct kv_log **log, bson_error_t *error);
void truce__kv_log_close(struct kv_log *log); /* NULL is allowed */

/* On success all commits that returned before the call are on the disk. After a failure nobody
 * knows what is: the operating system may have forgotten what it could not write. One thread at a
 * time. */
truce_status truce__kv_log_sync(struct kv_log *log, bson_error_t *error);

/* Writes the log again as it is read, the header first, and syncs it: afterwards the disk holds what
 * memory does, whatever it refused before. No connection may be open. OK where there is none. */
truce_status truce__kv_log_renew(const char *path, bson_error_t *error);

/* How far the log reaches, as its index says now. */
struct kv_log_end {
    uint32_t frames; /* that were committed */
    uint32_t moved;  /* of them, by checkpoints into the file */
    uint32_t sum[2]; /* the running checksum of the last one */
    uint64_t salts;  /* of the generation: the log has begun again if they differ */
};

/* False: there is no log, or its index is being written. */
bool truce__kv_log_end(const struct kv *kv, struct kv_log_end *end);

/* Is the last frame in the log that the connection has open? `all`: and all frames before it, by their checksums. */
truce_status truce__kv_log_whole(struct kv *kv, const struct kv_log_end *end, bool all, bool *whole,
                                 bson_error_t *error);

/* Reads all of the log: are its frames those that were written, up to where another generation, or nothing, follows? No
 * connection may be open. */
truce_status truce__kv_log_verify(const char *path, bool *sound, bson_error_t *error);

/* ---- syncs that fail ------------------------------------------------------------------------ */

/* `failed` is called when a sync of the connection fails, of the file or of the log, whether somebody hears
 * of it or not: SQLite keeps those of a checkpoint at the end to itself. */
struct kv_watch {
    void (*failed)(void *arg);
    void *arg;
};

void truce__kv_watch(struct kv *kv, const struct kv_watch *watch);

/* ---- the file itself ----------------------------------------------------------------------- */

/* CORRUPT: it is not a truce store, or has another format. `*fresh`: there is nothing in it yet. */
truce_status truce__kv_format_check(struct kv *kv, bool *fresh, bson_error_t *error);

/* Makes a fresh file a truce store: WAL mode, application id, format version, row table 0. */
truce_status truce__kv_format_create(struct kv *kv, bson_error_t *error);

/* LOCKED: somebody has the file open, in this process or another, as far as SQLite knows. */
truce_status truce__kv_alone(const char *path, bson_error_t *error);

/* CORRUPT: the file was removed, or another has its name now. */
truce_status truce__kv_in_place(struct kv *kv, bson_error_t *error);

/* After a sync that failed: writes the log again, and moves what is whole of it, by its checksums, into the
 * file. Only under the lock. LOCKED: somebody else has the file open. */
truce_status truce__kv_recover(const char *path, bson_error_t *error);

/* Are the tables defined as truce defines them? CORRUPT. */
truce_status truce__kv_schema_check(struct kv *kv, bson_error_t *error);

/* Looks at a page of the file itself: is it there, and is its checksum right, or has the log a younger version of it? In a
 * snapshot. */
truce_status truce__kv_page_look(struct kv *kv, uint32_t page, bool *there, bool *sound,
                                 bson_error_t *error);

/* ---- giving space back (kv_compact.c) ------------------------------------------------------ */

struct kv_space {
    int64_t pages, free; /* in the file, and those of them that are not in use */
};

truce_status truce__kv_space(struct kv *kv, struct kv_space *space, bson_error_t *error);

/* One table, a part after the other, each in a write transaction. */
struct kv_pack {
    bool keys; /* of its kind */
    int64_t table;
    int64_t row;       /* the place behind which the next part begins: a row, or ... */
    struct buffer key; /* ... an entry */
    int64_t bytes;     /* of the last part */
    int64_t
        emptied; /* pages that the last part does not need any more; less than 0: it needs more */
    bool end;    /* there is nothing left */
};

/* Takes the next part out of its pages and puts it in again, close together. If the transaction is rolled back, `pack`
 * has gone on all the same. */
truce_status truce__kv_pack(struct kv *kv, struct kv_pack *pack, bson_error_t *error);
void truce__kv_pack_release(struct kv_pack *pack);

/* Moves up to so many pages from the end to free places, in a write transaction; the file is cut by the checkpoint that
 * moves all of the log. */
truce_status truce__kv_shrink(struct kv *kv, int pages, bson_error_t *error);

/* SQLite's own verdict on the whole file; CORRUPT with the first fault. */
truce_status truce__kv_integrity(struct kv *kv, bson_error_t *error);

/* ---- tables, inside a write transaction ---------------------------------------------------- */

truce_status truce__kv_rows_create(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_rows_drop(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_keys_create(struct kv *kv, int64_t table, bson_error_t *error);
truce_status truce__kv_keys_drop(struct kv *kv, int64_t table, bson_error_t *error);

/* Changes the version; creating and dropping tables does so by itself. */
truce_status truce__kv_version_bump(struct kv *kv, bson_error_t *error);
truce_status truce__kv_version(struct kv *kv, uint32_t *version, bson_error_t *error);

/* ---- rows ---------------------------------------------------------------------------------- */

/* NOT_FOUND (without text): no such row */
truce_status truce__kv_row_get(struct kv *kv, int64_t table, int64_t row, struct bytes *body,
                               bson_error_t *error);
/* `*row` 0: a new one, greater than all there are, is chosen and given back */
truce_status truce__kv_row_insert(struct kv *kv, int64_t table, int64_t *row, struct bytes body,
                                  bson_error_t *error);
truce_status truce__kv_row_update(struct kv *kv, int64_t table, int64_t row, struct bytes body,
                                  bson_error_t *error);
truce_status truce__kv_row_delete(struct kv *kv, int64_t table, int64_t row, bson_error_t *error);

/* How many rows there are, and the bytes of their bodies. */
truce_status truce__kv_rows_measure(struct kv *kv, int64_t table, int64_t *rows, int64_t *bytes,
                                    bson_error_t *error);

truce_status truce__kv_rows_count(struct kv *kv, int64_t table, int64_t *rows, bson_error_t *error);

/* ---- keys ---------------------------------------------------------------------------------- */

/* The first row with exactly this key; NOT_FOUND */
truce_status truce__kv_key_get(struct kv *kv, int64_t table, struct bytes key, int64_t *row,
                               bson_error_t *error);
/* Is the pair there? NOT_FOUND */
truce_status truce__kv_key_find(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                bson_error_t *error);
/* The pair may be there already. */
truce_status truce__kv_key_insert(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error);
/* The pair need not be there. */
truce_status truce__kv_key_delete(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error);
/* The body of the first row with exactly this key, in one step; NOT_FOUND */
truce_status truce__kv_key_lookup(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                  int64_t *row, struct bytes *body, bson_error_t *error);

/* Entries with keys from `from` to, but without, `to`; counting ends at `most` (0: all). */
truce_status truce__kv_keys_within(struct kv *kv, int64_t table, struct bytes from, struct bytes to,
                                   int64_t most, int64_t *entries, bson_error_t *error);

/* ---- cursors ------------------------------------------------------------------------------- */

/* Zero-initialised is closed. At most one cursor of a kind on one table at a time; all closed
 * before the transaction or snapshot ends. */
struct kv_cursor {
    void *statement;
    struct kv *kv;
    int64_t table; /* that is named if it cannot be read */
    int64_t row;   /* the current entry */
    struct bytes key, body;
    bool keys, bodies;
    bool raw; /* bodies come as they are, sound or not */
};

/* Rows greater than `after` ascending, or less than it descending. */
truce_status truce__kv_rows_seek(struct kv *kv, int64_t table, int64_t after, bool descending,
                                 struct kv_cursor *cursor, bson_error_t *error);

/* Takes a row, borrowed for the call, without a call on the connection; false: enough. */
typedef bool kv_take_function(void *arg, int64_t row, struct bytes body);

/* Rows greater than `after`, ascending, to `take` until it has enough; NOT_FOUND at the end. Faster than
 * a cursor: the rows do not leave SQLite's loop. */
truce_status truce__kv_rows_each(struct kv *kv, int64_t table, int64_t after,
                                 kv_take_function *take, void *arg, bson_error_t *error);

/* Entries greater than (key, row) ascending, or less than it descending. `rows` is the table of
 * the bodies to bring along; 0: none. */
truce_status truce__kv_keys_seek(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                 int64_t row, bool descending, struct kv_cursor *cursor,
                                 bson_error_t *error);

/* To the next entry; NOT_FOUND at the end. */
truce_status truce__kv_cursor_next(struct kv_cursor *cursor, bson_error_t *error);
void truce__kv_cursor_close(struct kv_cursor *cursor);

#endif
