/*
 * A connection to the file, and its transactions.
 *
 * The engine uses SQLite as a B-tree file that survives any crash. No query of a user ever becomes
 * SQL: there are some twenty statements, each prepared once per connection and table.
 *
 *     PATH        the database: c0 (the catalog), c<n> and x<n> (see kv_table.c)
 *     PATH-wal    committed pages that are not in the database yet
 *     PATH-shm    the index of PATH-wal, rebuilt when it is missing
 *     PATH-lock   the process that may write (write_lock.c)
 *
 * States of a connection:
 *
 *     IDLE --snapshot_begin--> SNAPSHOT --snapshot_end--> IDLE
 *     SNAPSHOT --snapshot_rest--> RESTING --snapshot_begin, no commit since--> SNAPSHOT
 *     RESTING --snapshot_end, or snapshot_begin--> IDLE
 *     IDLE --write_begin--> WRITING --write_commit, write_rollback--> IDLE
 *     WRITING --savepoint_begin--> WRITING+savepoint --release, rollback--> WRITING
 *
 * Invariants:
 *  1. A snapshot is the statement `PRAGMA schema_version`, stepped once and not reset. SQLite keeps
 *     its read transaction while a statement is active, which saves BEGIN and COMMIT. The row of
 *     the statement is the version that the catalog is compared with.
 *  2. Every change of tables or of the catalog changes the schema version in the same transaction.
 *     Equal versions therefore mean an equal catalog, across processes, without reading the
 *     catalog.
 *  3. wal_autocheckpoint is 0, and readers do not checkpoint when they close. SQLite before 3.51.3
 *     can corrupt a file if a checkpoint begins while a commit restarts the WAL ("WAL-reset").
 *     While a store is open, only checkpoint.c makes checkpoints.
 *  4. A failed commit is rolled back before it is reported. Its frames may be in the WAL
 *     completely, and a crash may restore them completely. A commit that was not acknowledged is
 *     never half done.
 *  5. Each commit is in the WAL and visible to readers when it returns. It is on disk only after a
 *     checkpoint, or after a later sync of the log: see durable.c.
 *  6. Commits reach the disk in their order. Recovery reads the WAL up to the first frame with a
 *     wrong running checksum.
 *  7. A resting connection continues its transaction only if the header of the log's index is the
 *     one that its snapshot had. SQLite compares the same words when a transaction begins. A call
 *     that failed may have ended the transaction, so it does not rest.
 *
 * There is no memory map. An unreadable page must be a status, not a SIGBUS, and memory must not
 * depend on the size of the file. Each connection has a page cache with a fixed maximum instead.
 *
 * MEMSTATUS is switched off if SQLite is not initialized yet, because its counters are one mutex
 * around the malloc of all connections.
 */
#include "engine/storage/kv.h"

#include <pthread.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/assert.h"
#include "base/budget.h"
#include "base/limits.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/file_format.h"
#include "engine/storage/kv_connection.h"
#include "engine/storage/kv_direct.h"
#include "engine/storage/lock_bytes.h"
#include "engine/storage/page_truncation.h"
#include "engine/storage/wal_vfs.h"

/* The size of the page cache of a connection in KiB. */
#define CACHE_KIB 1024

static void kv_keep_statements_few(struct kv *kv);

static void kv_configure_sqlite(void)
{
    /* Both fail if the host program has initialized SQLite already. This is harmless. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    truce__page_truncation_configure();
}

/* ---- the time of a call --------------------------------------------------------------------- */

/* The number of SQLite's instructions between two checks of the budget. */
#define INSTRUCTIONS 1000

static int kv_is_over(void *budget)
{
    return truce__budget_spend(budget, INSTRUCTIONS, NULL) != TRUCE_OK;
}

void truce__kv_bound(struct kv *kv, struct budget *budget)
{
    kv->budget = budget;
    sqlite3_progress_handler(kv->db, budget ? INSTRUCTIONS : 0, budget ? kv_is_over : NULL, budget);
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_BOUND, &budget);
}

/* ---- statements ----------------------------------------------------------------------------- */

truce_status truce__kv_prepare(struct kv *kv, const char *sql, sqlite3_stmt **statement,
                               bson_error_t *error)
{
    int result = sqlite3_prepare_v3(kv->db, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);

    return result ? truce__kv_fail(kv, result, "read", error) : TRUCE_OK;
}

/* Runs a statement that returns no rows. Prepares it the first time. */
static truce_status kv_run(struct kv *kv, const char *sql, sqlite3_stmt **statement,
                           bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int result;

    if (!*statement)
        status = truce__kv_prepare(kv, sql, statement, error);
    if (status)
        return status;
    result = sqlite3_step(*statement);
    if (result != SQLITE_DONE)
        status = truce__kv_fail(kv, result, "write", error);
    sqlite3_reset(*statement);
    return status;
}

truce_status truce__kv_execute(struct kv *kv, const char *sql, bson_error_t *error)
{
    int result = sqlite3_exec(kv->db, sql, NULL, NULL, NULL);

    return result ? truce__kv_fail(kv, result, "open", error) : TRUCE_OK;
}

/* Returns the single integer that a pragma returns. */
truce_status truce__kv_pragma(struct kv *kv, const char *sql, int64_t *answer, bson_error_t *error)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(kv->db, sql, -1, &statement, NULL);
    truce_status status = TRUCE_OK;

    *answer = 0;
    if (!result)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *answer = sqlite3_column_int64(statement, 0);
    else if (result != SQLITE_DONE)
        status = truce__kv_fail(kv, result, "open", error);
    sqlite3_finalize(statement);
    return status;
}

/* ---- open and close ------------------------------------------------------------------------- */

static int count_wal_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct kv *kv = arg;

    (void)db;
    (void)name;
    kv->wal_pages = pages;
    kv->logged = true;
    return SQLITE_OK;
}

/* Returns the path as a URI, which can contain immutable=1. Escapes '%', '?', and '#'. */
static char *uri_of(const char *path, bool immutable)
{
    bson_string_t *uri = bson_string_new("file:");

    for (; *path; path++) {
        if (strchr("%?#", *path))
            bson_string_append_printf(uri, "%%%02x", (unsigned char)*path);
        else
            bson_string_append_printf(uri, "%c", *path);
    }
    if (immutable)
        bson_string_append(uri, "?immutable=1");
    return bson_string_free(uri, false);
}

/* Sets the limits, hooks, and pragmas of a new connection. */
static truce_status configure_connection(struct kv *kv, int64_t busy_timeout_ms,
                                         bson_error_t *error)
{
    char sql[512];
    bool writer = kv->flags & KV_WRITER;

    sqlite3_extended_result_codes(kv->db, 1);
    if (!(kv->flags & KV_ALONE))
        truce__kv_busy_timeout(kv, busy_timeout_ms);
    sqlite3_limit(kv->db, SQLITE_LIMIT_LENGTH, TRUCE_ROW_BYTES_MAX);
    sqlite3_db_config(kv->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !writer, NULL);
    sqlite3_db_config(kv->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    /* A hook also disables automatic checkpoints. */
    sqlite3_wal_hook(kv->db, count_wal_pages, kv);
    snprintf(sql, sizeof sql,
             "PRAGMA locking_mode=%s; PRAGMA cache_size=-%d; PRAGMA mmap_size=0; PRAGMA "
             "temp_store=MEMORY;PRAGMA synchronous=NORMAL; PRAGMA secure_delete=OFF; PRAGMA "
             "cell_size_check=ON",
             kv->flags & KV_ALONE ? "EXCLUSIVE" : "NORMAL", CACHE_KIB);
    /* Only a connection that begins the log again truncates it to this size. */
    if (writer) {
        size_t at = strlen(sql);

        snprintf(sql + at, sizeof sql - at, ";PRAGMA journal_size_limit=%d", TRUCE_LOG_BYTES_KEPT);
    }
    return truce__kv_execute(kv, sql, error);
}

static int open_flags(unsigned flags)
{
    int how = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;

    if (flags & (KV_READ_ONLY | KV_IMMUTABLE))
        return how | SQLITE_OPEN_READONLY;
    return how | SQLITE_OPEN_READWRITE | (flags & KV_CREATE ? SQLITE_OPEN_CREATE : 0);
}

/* Opens a connection, and reads nothing but the header of the file. The caller closes the
 * connection also after a failure. */
static truce_status kv_connect(const char *path, unsigned flags, struct kv **kv,
                               bson_error_t *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct kv *made = bson_malloc0(sizeof *made);
    char *uri = uri_of(path, flags & KV_IMMUTABLE);
    int result;

    pthread_once(&once, kv_configure_sqlite);
    *kv = made;
    made->flags = flags;
    made->path = bson_strdup(path);
    result = sqlite3_open_v2(uri, &made->db, open_flags(flags), truce__kv_wal_vfs());
    bson_free(uri);
    if (!result)
        result = truce__kv_define_take(made);
    return result ? truce__kv_fail(made, result, "open", error)
                  : truce__kv_kind_refuse(made, error);
}

truce_status truce__kv_open(const char *path, unsigned flags, int64_t busy_timeout_ms,
                            struct kv **kv, bson_error_t *error)
{
    struct kv *made;
    truce_status status = flags & KV_CREATE ? truce__kv_file_create(path, error) : TRUCE_OK;

    *kv = NULL;
    if (status)
        return status;
    status = kv_connect(path, flags, &made, error);
    if (!status)
        status = configure_connection(made, busy_timeout_ms, error);
    if (status) {
        truce__kv_close(made);
        return status;
    }
    *kv = made;
    return TRUCE_OK;
}

truce_status truce__kv_kind_check(const char *path, bool logged, bool empty, bson_error_t *error)
{
    enum kv_kind kind = KV_STORE;
    struct kv *kv;
    truce_status status = kv_connect(path, KV_READ_ONLY, &kv, error);

    if (!status)
        (void)sqlite3_file_control(kv->db, "main", KV_PAGE_KIND, &kind);
    if (kind == KV_UNKNOWN && !logged)
        status = truce__kv_fail(kv, SQLITE_NOTADB, "open", error);
    else if (!status && kind == KV_EMPTY && !logged && !empty)
        status =
            truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a truce store: it is empty", path);
    truce__kv_close(kv);
    return status == TRUCE_CORRUPT || status == TRUCE_INVALID ? status : TRUCE_OK;
}

static void free_table(struct kv_table *table)
{
    for (int i = 0; i < KV_STATEMENTS; i++)
        sqlite3_finalize(table->statements[i]);
    bson_free(table);
}

static void kv_forget_all(struct kv *kv)
{
    for (uint32_t i = 0; i < kv->tables_room; i++) {
        if (kv->tables[i])
            free_table(kv->tables[i]);
    }
    bson_free(kv->tables);
    kv->tables = NULL;
    kv->tables_room = kv->tables_count = 0;
}

void truce__kv_close(struct kv *kv)
{
    sqlite3_stmt *statements[] = {kv->version,  kv->roots, kv->begin,   kv->commit,
                                  kv->rollback, kv->save,  kv->release, kv->back};

    truce_assert(kv->state == KV_IDLE && !kv->kept);
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        sqlite3_finalize(statements[i]);
    kv_forget_all(kv);
    truce__kv_direct_free(kv->direct);
    truce_assert(sqlite3_close(kv->db) == SQLITE_OK);
    bson_free(kv->path);
    bson_free(kv);
}

void truce__kv_checkpoint_on_close(struct kv *kv, bool may)
{
    truce_assert(kv->flags & KV_WRITER);
    sqlite3_db_config(kv->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !may, NULL);
}

void truce__kv_share(struct kv *kv, struct page_cache *cache)
{
    truce_assert(!(kv->flags & KV_WRITER));
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_CACHE, &cache);
    if (cache && !kv->direct)
        kv->direct = truce__kv_direct_new();
}

void truce__kv_watch(struct kv *kv, const struct kv_watch *watch)
{
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_WATCH, (void *)(uintptr_t)watch);
}

/* ---- transactions --------------------------------------------------------------------------- */

void truce__kv_busy_timeout(struct kv *kv, int64_t milliseconds)
{
    sqlite3_busy_timeout(kv->db, milliseconds > INT32_MAX ? INT32_MAX
                                 : milliseconds < 1       ? 1
                                                          : (int)milliseconds);
}

/* Reads the schema version, which begins the read transaction of the snapshot. The statement stays
 * open to keep it. */
static truce_status step_version(struct kv *kv, uint32_t *version, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int result;

    if (!kv->version)
        status = truce__kv_prepare(kv, "PRAGMA schema_version", &kv->version, error);
    if (status)
        return status;
    result = sqlite3_step(kv->version);
    if (result != SQLITE_ROW) {
        status = truce__kv_fail(kv, result == SQLITE_DONE ? SQLITE_CORRUPT : result, "read", error);
        sqlite3_reset(kv->version);
        return status;
    }
    *version = (uint32_t)sqlite3_column_int64(kv->version, 0);
    return TRUCE_OK;
}

truce_status truce__kv_version(struct kv *kv, uint32_t *version, bson_error_t *error)
{
    truce_status status;

    truce_assert(kv->state == KV_WRITING);
    status = step_version(kv, version, error);
    sqlite3_reset(kv->version);
    return status;
}

/* Reads the current header. Every commit overwrites it, word by word. */
static void kv_read_index(const struct kv *kv, struct kv_snapshot *snapshot)
{
    snapshot->known = kv->index != NULL;
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; kv->index && i < KV_INDEX_WORDS; i++)
        snapshot->header[i] = atomic_load_explicit(&kv->index[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

bool truce__kv_log_end(const struct kv *kv, struct kv_log_end *end)
{
    return kv->index && truce__kv_index_end(kv->index, end);
}

/* Finds the index of the log in memory. The log has an index after the first read. A file that is
 * read without its log has no index. */
static truce_status kv_find_index(struct kv *kv, bson_error_t *error)
{
    const atomic_uint *commits = NULL;
    uint32_t version;
    truce_status status = step_version(kv, &version, error);

    if (status)
        return status;
    sqlite3_reset(kv->version);
    kv->sought_index = true;
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_COMMITS, &commits);
    if (commits)
        kv->index = commits - KV_PAGE_COMMITS_OFFSET / sizeof *commits;
    return TRUCE_OK;
}

/* Returns whether no process has committed since the snapshot began. */
static bool kv_snapshot_is_last(const struct kv *kv)
{
    struct kv_snapshot now;

    kv_read_index(kv, &now);
    return truce__kv_snapshot_same(&now, &kv->snapshot);
}

/* Begins a snapshot, and finds out which header of the index it has. If the header was the same
 * before and after the snapshot began, SQLite has read this header. */
static truce_status kv_snapshot_new(struct kv *kv, uint32_t *version, bson_error_t *error)
{
    struct kv_snapshot before;
    truce_status status = TRUCE_OK;
    uint32_t moved;

    if (!kv->sought_index)
        status = kv_find_index(kv, error);
    kv_read_index(kv, &before);
    if (!status)
        status = step_version(kv, version, error);
    if (status)
        return status;
    kv->state = KV_SNAPSHOT;
    kv->snapshot_version = *version;
    kv->failed = false;
    moved = kv->index ? atomic_load(&kv->index[2 * KV_INDEX_WORDS]) : 0;
    kv_read_index(kv, &kv->snapshot);
    kv->snapshot.known = truce__kv_snapshot_same(&before, &kv->snapshot);
    if (kv->direct)
        truce__kv_direct_begin(kv, moved);
    return TRUCE_OK;
}

truce_status truce__kv_snapshot_begin(struct kv *kv, uint32_t *version, bson_error_t *error)
{
    truce_assert(kv->state == KV_IDLE || kv->state == KV_RESTING);
    kv_keep_statements_few(kv);
    /* Invariant 7. */
    if (kv->state == KV_RESTING && !kv_snapshot_is_last(kv))
        truce__kv_snapshot_end(kv);
    if (kv->state == KV_IDLE)
        return kv_snapshot_new(kv, version, error);
    kv->state = KV_SNAPSHOT;
    *version = kv->snapshot_version;
    return TRUCE_OK;
}

const struct kv_snapshot *truce__kv_snapshot(const struct kv *kv)
{
    truce_assert(kv->state == KV_SNAPSHOT);
    return &kv->snapshot;
}

void truce__kv_snapshot_position(const struct kv *kv, struct kv_log_position *slot, uint32_t *moved)
{
    truce_assert(kv->state == KV_SNAPSHOT && kv->snapshot.known);
    slot->frames = kv->snapshot.header[4];
    memcpy(slot->sum, &kv->snapshot.header[6], sizeof slot->sum);
    memcpy(&slot->salts, &kv->snapshot.header[8], sizeof slot->salts);
    *moved = atomic_load(&kv->index[2 * KV_INDEX_WORDS]);
}

bool truce__kv_snapshot_last(const struct kv *kv)
{
    truce_assert(kv->state == KV_SNAPSHOT);
    return kv_snapshot_is_last(kv);
}

bool truce__kv_snapshot_same(const struct kv_snapshot *a, const struct kv_snapshot *b)
{
    return a->known && b->known && !memcmp(a->header, b->header, sizeof a->header);
}

void truce__kv_snapshot_end(struct kv *kv)
{
    truce_assert(kv->state == KV_SNAPSHOT || kv->state == KV_RESTING);
    kv_settle(kv);
    sqlite3_reset(kv->version);
    kv->state = KV_IDLE;
}

bool truce__kv_snapshot_rest(struct kv *kv)
{
    truce_assert(kv->state == KV_SNAPSHOT);
    kv_settle(kv);
    /* Invariant 7. */
    if (kv->snapshot.known && !kv->failed)
        kv->state = KV_RESTING;
    else
        truce__kv_snapshot_end(kv);
    return kv->state == KV_RESTING;
}

/* ---- commits of every process --------------------------------------------------------------- */

/* Finds the counter of commits in the index of the log. The index of the log exists after the first
 * read. */
static void find_commits(struct kv *kv)
{
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_COMMITS, &kv->commits.now);
    if (!kv->commits.now)
        return;
    atomic_store(&kv->commits.known, atomic_load(kv->commits.now) - 1);
    kv->index = kv->commits.now - KV_PAGE_COMMITS_OFFSET / sizeof *kv->commits.now;
}

const struct kv_commits *truce__kv_commits(struct kv *kv)
{
    truce_assert(kv->flags & KV_WRITER);
    if (!kv->commits.now)
        find_commits(kv);
    truce_assert(kv->commits.now);
    return &kv->commits;
}

/* The checksum of the header, its last two words, covers the counter of commits, the salts of the
 * log, and the sum of the last frame. A commit writes them before it becomes visible. Words of two
 * commits give a number that no commit has. */
uint64_t truce__kv_data_version(const struct kv *kv)
{
    uint32_t low, high;

    if (!kv->index)
        return 0;
    low = atomic_load(&kv->index[KV_INDEX_WORDS - 2]);
    high = atomic_load(&kv->index[KV_INDEX_WORDS - 1]);
    return (uint64_t)high << 32 | low;
}

/* Notes the counter of commits at the begin of a write transaction. No other process commits before
 * the transaction ends. */
static void note_begin(struct kv *kv)
{
    kv->logged = false;
    if (!kv->commits.now)
        return;
    kv->begun_at = atomic_load(kv->commits.now);
    kv->foreign = kv->begun_at != atomic_load(&kv->commits.known);
}

bool truce__kv_foreign(const struct kv *kv)
{
    truce_assert(kv->state == KV_WRITING);
    return kv->foreign;
}

void truce__kv_accept(struct kv *kv)
{
    truce_assert(kv->state == KV_WRITING);
    if (kv->commits.now)
        atomic_store(&kv->commits.known, kv->begun_at);
    kv->foreign = false;
}

/* Uses the number of this commit instead of reading the counter again: another process may have
 * committed since. */
static void note_commit(struct kv *kv)
{
    if (kv->commits.now && kv->logged && !kv->foreign)
        atomic_store(&kv->commits.known, kv->begun_at + 1);
}

/* ---- writing -------------------------------------------------------------------------------- */

truce_status truce__kv_write_begin(struct kv *kv, uint32_t *version, bson_error_t *error)
{
    truce_status status;

    truce_assert(kv->state == KV_IDLE && kv->flags & KV_WRITER);
    kv_keep_statements_few(kv);
    status = kv_run(kv, "BEGIN IMMEDIATE", &kv->begin, error);
    if (status)
        return status;
    kv->state = KV_WRITING;
    note_begin(kv);
    status = truce__kv_version(kv, version, error);
    if (status)
        truce__kv_write_rollback(kv);
    kv->changed = false;
    return status;
}

bool truce__kv_changed(const struct kv *kv)
{
    truce_assert(kv->state == KV_WRITING);
    return kv->changed;
}

truce_status truce__kv_write_commit(struct kv *kv, bson_error_t *error)
{
    truce_status status;

    truce_assert(kv->state == KV_WRITING && !kv->savepoint);
    kv_settle(kv);
    status = kv_run(kv, "COMMIT", &kv->commit, error);
    if (status)
        truce__kv_write_rollback(kv);
    else
        note_commit(kv);
    kv->state = KV_IDLE;
    return status;
}

void truce__kv_write_rollback(struct kv *kv)
{
    bson_error_t ignored;

    truce_assert(kv->state == KV_WRITING);
    kv_settle(kv);
    /* SQLite may have rolled back already, for example because the disk is full. A rollback cannot
     * fail in a way that leaves the transaction open. */
    if (!sqlite3_get_autocommit(kv->db))
        (void)kv_run(kv, "ROLLBACK", &kv->rollback, &ignored);
    truce_assert(sqlite3_get_autocommit(kv->db));
    kv->savepoint = false;
    kv->state = KV_IDLE;
}

truce_status truce__kv_savepoint_begin(struct kv *kv, bson_error_t *error)
{
    truce_status status;

    kv_settle(kv);
    truce_assert(kv->state == KV_WRITING && !kv->savepoint);
    status = kv_run(kv, "SAVEPOINT s", &kv->save, error);
    kv->savepoint = !status;
    return status;
}

truce_status truce__kv_savepoint_release(struct kv *kv, bson_error_t *error)
{
    truce_assert(kv->state == KV_WRITING && kv->savepoint);
    kv->savepoint = false;
    return kv_run(kv, "RELEASE s", &kv->release, error);
}

truce_status truce__kv_savepoint_rollback(struct kv *kv, bson_error_t *error)
{
    truce_status status;

    truce_assert(kv->state == KV_WRITING && kv->savepoint);
    kv_settle(kv);
    status = kv_run(kv, "ROLLBACK TO s", &kv->back, error);
    if (!status)
        status = truce__kv_savepoint_release(kv, error);
    return status;
}

int truce__kv_wal_pages(const struct kv *kv)
{
    return kv->wal_pages;
}

truce_status truce__kv_file_pages(struct kv *kv, int64_t *pages, bson_error_t *error)
{
    truce_assert(kv->state == KV_IDLE);
    return truce__kv_pragma(kv, "PRAGMA page_count", pages, error);
}

truce_status truce__kv_cache(struct kv *kv, uint64_t bytes, bson_error_t *error)
{
    char sql[64];

    snprintf(sql, sizeof sql, "PRAGMA cache_size=-%llu", (unsigned long long)(bytes / 1024));
    return truce__kv_execute(kv, sql, error);
}

truce_status truce__kv_mark(struct kv *kv, bson_error_t *error)
{
    truce_status status;
    int64_t format = 0;
    uint32_t version;
    char sql[64];

    status = truce__kv_write_begin(kv, &version, error);
    if (status)
        return status;
    status = truce__kv_pragma(kv, "PRAGMA user_version", &format, error);
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", (int)format);
    if (!status)
        status = truce__kv_execute(kv, sql, error);
    if (!status)
        return truce__kv_write_commit(kv, error);
    truce__kv_write_rollback(kv);
    return status;
}

/* Syncs the file regardless of what SQLite does: SQLite syncs it only if the whole log was
 * moved. */
static int sync_file(struct kv *kv)
{
    sqlite3_file *file = NULL;
    int result = sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    return result ? result : file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
}

truce_status truce__kv_checkpoint(struct kv *kv, bool restart, uint32_t pace, int *pages,
                                  int *moved, uint32_t *damaged, bson_error_t *error)
{
    int result;

    truce_assert(kv->state == KV_IDLE && (!restart || kv->flags & KV_WRITER));
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_VERIFY, &(bool){true});
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_PACE, &pace);
    *damaged = 0;
    result = sqlite3_wal_checkpoint_v2(
        kv->db, "main", restart ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, pages,
        moved);
    if (!result && pace)
        result = sync_file(kv);
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_PACE, &(uint32_t){0});
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_VERIFY, &(bool){false});
    if (result == SQLITE_IOERR_DATA)
        (void)sqlite3_file_control(kv->db, "main", KV_PAGE_FRAME, damaged);
    if (!result)
        kv->wal_pages = *pages - *moved;
    return result ? truce__kv_fail(kv, result, "checkpoint", error) : TRUCE_OK;
}

/* ---- prepared statements of tables ---------------------------------------------------------- */

/* The maximum number of tables whose statements a connection stores. If there are more, it drops
 * the statements of all tables. */
#define TABLES_MAX 256

static uint32_t statement_slot(const struct kv *kv, int64_t table)
{
    uint32_t mask = kv->tables_room - 1;
    uint32_t at = (uint32_t)((uint64_t)table * 0x9e3779b97f4a7c15u >> 32) & mask;

    while (kv->tables[at] && kv->tables[at]->table != table)
        at = (at + 1) & mask;
    return at;
}

static void statement_make_room(struct kv *kv)
{
    struct kv_table **old = kv->tables;
    uint32_t room = kv->tables_room;

    kv->tables_room = room ? room * 2 : 16;
    kv->tables = bson_malloc0(kv->tables_room * sizeof *kv->tables);
    for (uint32_t i = 0; i < room; i++) {
        if (old[i])
            kv->tables[statement_slot(kv, old[i]->table)] = old[i];
    }
    bson_free(old);
}

/* Returns the prepared statements of a table. Adds an entry without statements if the table has no
 * entry yet. */
static struct kv_table *statement_table_of(struct kv *kv, int64_t table)
{
    uint32_t at;

    if (kv->tables_count * 2 >= kv->tables_room)
        statement_make_room(kv);
    at = statement_slot(kv, table);
    if (!kv->tables[at]) {
        kv->tables[at] = bson_malloc0(sizeof **kv->tables);
        kv->tables[at]->table = table;
        kv->tables_count++;
    }
    return kv->tables[at];
}

/* Reads the root page of a table from the schema. Returns 0 if that fails: SQLite then finds the
 * rows, or the error. */
static uint32_t kv_read_root(struct kv *kv, char kind, int64_t table)
{
    uint32_t root = 0;
    bson_error_t ignored;

    if (!kv->roots && truce__kv_prepare(kv, "SELECT rootpage FROM sqlite_schema WHERE name=?1||?2",
                                        &kv->roots, &ignored))
        return 0;
    if (!sqlite3_bind_text(kv->roots, 1, &kind, 1, SQLITE_TRANSIENT) &&
        !sqlite3_bind_int64(kv->roots, 2, table) && sqlite3_step(kv->roots) == SQLITE_ROW)
        root = (uint32_t)sqlite3_column_int64(kv->roots, 0);
    sqlite3_reset(kv->roots);
    return root;
}

uint32_t truce__kv_root(struct kv *kv, char kind, int64_t table)
{
    struct kv_table *found = statement_table_of(kv, table);

    truce_assert(kv->state == KV_SNAPSHOT);
    if (!found->root || found->root_version != kv->snapshot_version || found->root_kind != kind) {
        found->root = kv_read_root(kv, kind, table);
        found->root_version = kv->snapshot_version;
        found->root_kind = kind;
    }
    return found->root;
}

/* In these texts, # means the table, and @ means the table of the rows to which its entries
 * point. */
static const char *const statement_texts[KV_STATEMENTS] = {
    [ROW_GET] = "SELECT body FROM c# WHERE id=?1",
    [ROW_INSERT] = "INSERT INTO c#(id, body) VALUES(?1, ?2)",
    [ROW_UPDATE] = "UPDATE c# SET body=?2 WHERE id=?1",
    [ROW_DELETE] = "DELETE FROM c# WHERE id=?1",
    [ROWS_UP] = "SELECT id, body FROM c# WHERE id>?1 ORDER BY id",
    [ROWS_DOWN] = "SELECT id, body FROM c# WHERE id<?1 ORDER BY id DESC",
    [ROWS_EACH] = "SELECT 1 FROM c# WHERE id>?1 AND truce_take(id, body) ORDER BY id",
    [ROWS_PART] = "SELECT id, length(body), CASE WHEN length(body)<=?2 THEN body END FROM c#"
                  " WHERE id>?1 ORDER BY id",
    [ROWS_DELETE] = "DELETE FROM c# WHERE id>?1 AND id<=?2",
    [ROWS_MEASURE] = "SELECT count(*), sum(length(body)) FROM c#",
    [ROWS_COUNT] = "SELECT count(*) FROM c#",
    [KEYS_WITHIN] = "SELECT count(*) FROM (SELECT 1 FROM x# WHERE key>=?1 AND key<?2 LIMIT ?3)",
    [KEYS_DELETE] = "DELETE FROM x# WHERE (key, doc)>(?1, ?2) AND (key, doc)<=(?3, ?4)",
    [KEY_GET] = "SELECT doc FROM x# WHERE key=?1",
    [KEY_FIND] = "SELECT doc FROM x# WHERE key=?1 AND doc=?2",
    [KEY_INSERT] = "INSERT OR IGNORE INTO x#(key, doc) VALUES(?1, ?2)",
    [KEY_DELETE] = "DELETE FROM x# WHERE key=?1 AND doc=?2",
    [KEY_LOOKUP] =
        "SELECT c.id, c.body FROM x# AS x CROSS JOIN c@ AS c ON c.id=x.doc WHERE x.key=?1",
    [KEYS_UP] = "SELECT doc, key FROM x# WHERE (key, doc)>(?1, ?2) ORDER BY key, doc",
    [KEYS_DOWN] = "SELECT doc, key FROM x# WHERE (key, doc)<(?1, ?2) ORDER BY key DESC, doc DESC",
    [KEYS_UP_TO] = "SELECT doc, key FROM x# WHERE (key, doc)>(?1, ?2) AND key<?3 ORDER BY key, doc",
    [KEYS_DOWN_TO] = "SELECT doc, key FROM x# WHERE (key, doc)<(?1, ?2) AND key>=?3"
                     " ORDER BY key DESC, doc DESC",
    [PAIRS_UP] = "SELECT doc, key, body FROM x# CROSS JOIN c@ ON id=doc"
                 " WHERE (key, doc)>(?1, ?2) AND key<?3 ORDER BY key, doc",
    [PAIRS_DOWN] = "SELECT doc, key, body FROM x# CROSS JOIN c@ ON id=doc"
                   " WHERE (key, doc)<(?1, ?2) AND key>=?3 ORDER BY key DESC, doc DESC",
};

static void statement_text(enum kv_statement kind, int64_t table, int64_t rows, char *sql,
                           size_t size)
{
    size_t at = 0;

    for (const char *text = statement_texts[kind]; *text; text++) {
        if (*text == '#' || *text == '@')
            at += (size_t)snprintf(sql + at, size - at, "%lld",
                                   (long long)(*text == '#' ? table : rows));
        else
            sql[at++] = *text;
        truce_assert(at + 1 < size);
    }
    sql[at] = 0;
}

truce_status truce__kv_statement(struct kv *kv, enum kv_statement kind, int64_t table, int64_t rows,
                                 sqlite3_stmt **statement, bson_error_t *error)
{
    struct kv_table *found = statement_table_of(kv, table);
    sqlite3_stmt **cached = &found->statements[kind];
    truce_status status = TRUCE_OK;
    char sql[256];

    truce_assert(kv->state != KV_IDLE && !kv->take);
    kv_settle(kv);
    kv->table = table;
    /* The number of a table is used again if the transaction that created it is rolled back. A
     * cached statement may then join with the rows of another collection. */
    if (*cached && found->rows[kind] != rows) {
        sqlite3_finalize(*cached);
        *cached = NULL;
    }
    if (!*cached) {
        statement_text(kind, table, rows, sql, sizeof sql);
        status = truce__kv_prepare(kv, sql, cached, error);
        found->rows[kind] = rows;
    }
    truce_assert(status || !sqlite3_stmt_busy(*cached));
    *statement = *cached;
    return status;
}

void truce__kv_forget(struct kv *kv, int64_t table)
{
    struct kv_table *found = statement_table_of(kv, table);

    for (int i = 0; i < KV_STATEMENTS; i++) {
        sqlite3_finalize(found->statements[i]);
        found->statements[i] = NULL;
    }
}

/* Drops all statements if the connection has too many. No cursor is open between transactions, so
 * statements can be dropped then. */
static void kv_keep_statements_few(struct kv *kv)
{
    if (kv->tables_count > TABLES_MAX)
        kv_forget_all(kv);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Returns whether a result of SQLite proves that the file is damaged. A missing table and a
 * misplaced entry are damage, because a store without damage has neither. A failing read
 * (IOERR_CORRUPTFS after EIO) says nothing about the file: the next read may succeed. */
static bool is_damage(int result)
{
    return result == SQLITE_IOERR_DATA || (result & 0xff) == SQLITE_CORRUPT ||
           (result & 0xff) == SQLITE_CONSTRAINT || (result & 0xff) == SQLITE_MISMATCH ||
           result == SQLITE_ERROR;
}

/* Converts a result of SQLite to a status. */
static truce_status error_status_of(int result)
{
    if (is_damage(result))
        return TRUCE_CORRUPT;
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return TRUCE_LOCKED;
    case SQLITE_NOTADB:
        return TRUCE_CORRUPT;
    case SQLITE_TOOBIG:
        return TRUCE_LIMIT;
    default:
        return TRUCE_IO;
    }
}

/* Returns which page, or which frame of the log, has a wrong checksum. The string is in `kv`. */
static const char *damage_of(struct kv *kv)
{
    uint32_t page = 0, frame = 0;

    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_FRAME, &frame);
    if (frame) {
        snprintf(kv->reason, sizeof kv->reason,
                 "frame %u of the log is damaged (its checksum is wrong)", frame);
        return kv->reason;
    }
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_DAMAGED, &page);
    snprintf(kv->reason, sizeof kv->reason,
             "page %u of the file is damaged (its checksum is wrong)", page);
    return kv->reason;
}

/* Returns the cause of a result of SQLite for an error message. The string is valid until the next
 * call of SQLite. */
static const char *error_reason_of(struct kv *kv, int result)
{
    int system = sqlite3_system_errno(kv->db);

    if (result == SQLITE_IOERR_DATA)
        return damage_of(kv);
    if (is_damage(result))
        return "the structure of the file is damaged";
    if (result == SQLITE_IOERR_LOCK || result == SQLITE_IOERR_SHMLOCK)
        return "the operating system refuses to lock it" LOCK_ADVICE;
    switch (result & 0xff) {
    case SQLITE_READONLY:
        return "the file or its directory is read-only";
    case SQLITE_NOTADB:
        return "the file is not a truce store";
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        return system ? strerror(system) : sqlite3_errstr(result);
    default:
        return sqlite3_errmsg(kv->db);
    }
}

/* Returns whether a failed call means that the disk is full. SQLite does not say why it cannot
 * extend the index of the log. */
static bool is_disk_full(const struct kv *kv, int result)
{
    struct statvfs room;

    return (result & 0xff) == SQLITE_FULL ||
           (result == SQLITE_IOERR_SHMSIZE && !statvfs(kv->path, &room) && !room.f_bavail);
}

truce_status truce__kv_fail(struct kv *kv, int result, const char *what, bson_error_t *error)
{
    truce_assert(result != SQLITE_OK && result != SQLITE_ROW && result != SQLITE_DONE);
    kv->failed = true;
    if (result == SQLITE_INTERRUPT && kv->budget && kv->budget->over)
        return truce__budget_check(kv->budget, error);
    if (is_disk_full(kv, result))
        return truce__refuse(CODE_OUT_OF_DISK_SPACE, error, "cannot %s \"%s\": the disk is full",
                             what, kv->path);
    return truce__fail(error_status_of(result), error, "cannot %s \"%s\": %s", what, kv->path,
                       error_reason_of(kv, result));
}

truce_status truce__kv_fail_table(struct kv *kv, int64_t table, int result, const char *what,
                                  bson_error_t *error)
{
    char name[160] = "";

    if (is_damage(result) && kv->names)
        kv->names(kv->names_arg, table, name, sizeof name);
    if (!*name)
        return truce__kv_fail(kv, result, what, error);
    kv->failed = true;
    return truce__fail(TRUCE_CORRUPT, error, "cannot %s %s in \"%s\": %s", what, name, kv->path,
                       error_reason_of(kv, result));
}

void truce__kv_names(struct kv *kv, kv_name_function *names, void *arg)
{
    kv->names = names;
    kv->names_arg = arg;
}

void truce__kv_wide(struct kv *kv, int64_t table)
{
    kv->wide = table;
}

void truce__kv_set_validator(struct kv *kv, bool (*valid)(const uint8_t *body, size_t size),
                             struct seen *seen)
{
    kv->valid = valid;
    kv->seen = seen;
}

/* Remembers that a body is valid. A body larger than a document is valid in one table alone, so it
 * is checked each time. */
static void kv_remember(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    if (body.size <= TRUCE_DOCUMENT_BYTES_MAX)
        truce__seen_add(kv->seen, table, row, body.data, body.size);
}

bool truce__kv_check_body(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    if (body.size > TRUCE_DOCUMENT_BYTES_MAX && table != kv->wide)
        return false;
    if (!kv->valid(body.data, body.size))
        return false;
    kv_remember(kv, table, row, body);
    return true;
}

void truce__kv_vouch(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    if (kv->valid)
        kv_remember(kv, table, row, body);
}

truce_status truce__kv_fail_row(struct kv *kv, int64_t table, int64_t row, bson_error_t *error)
{
    char name[160] = "";

    if (kv->names)
        kv->names(kv->names_arg, table, name, sizeof name);
    return truce__fail(TRUCE_CORRUPT, error, "cannot read %s in \"%s\": row %lld is damaged",
                       *name ? name : "a table", kv->path, (long long)row);
}
