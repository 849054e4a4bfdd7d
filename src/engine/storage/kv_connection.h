#ifndef TRUCE_ENGINE_STORAGE_KV_CONNECTION_H
#define TRUCE_ENGINE_STORAGE_KV_CONNECTION_H

/* The parts of a connection that the files kv*.c, file_format.c, table_definitions.c, and vacuum.c
 * share. */
#include <sqlite3.h>

#include "engine/storage/body_fingerprints.h"
#include "engine/storage/file_format.h"
#include "engine/storage/kv.h"

enum kv_statement {
    ROW_GET,
    ROW_INSERT,
    ROW_UPDATE,
    ROW_DELETE,
    ROWS_UP,
    ROWS_DOWN,
    ROWS_EACH,
    ROWS_PART,
    ROWS_DELETE,
    ROWS_MEASURE,
    ROWS_COUNT,
    KEY_GET,
    KEY_FIND,
    KEY_INSERT,
    KEY_DELETE,
    KEY_LOOKUP,
    KEYS_UP,
    KEYS_DOWN,
    KEYS_UP_TO,
    KEYS_DOWN_TO,
    KEYS_WITHIN,
    KEYS_DELETE,
    PAIRS_UP,
    PAIRS_DOWN,
    KV_STATEMENTS,
};

/* The prepared statements of one table. */
struct kv_table {
    int64_t table;
    sqlite3_stmt *statements[KV_STATEMENTS];
    /* For each statement with a table of rows in its text, that table. */
    int64_t rows[KV_STATEMENTS];
    /* The root page of the table, as far as it is known: page, schema version, and kind of the
     * table ('c' or 'x'). The page is 0 if it is unknown. */
    uint32_t root, root_version;
    char root_kind;
};

enum kv_state { KV_IDLE, KV_SNAPSHOT, KV_RESTING, KV_WRITING };

struct kv {
    sqlite3 *db;
    char *path;
    unsigned flags;
    enum kv_state state;
    /* Whether a savepoint is open. */
    bool savepoint;
    /* Whether this transaction has changed anything. */
    bool changed;
    /* The number that truce__kv_wal_pages returns. */
    int wal_pages;
    struct kv_commits commits;
    /* The value of `commits.now` when this transaction began. */
    unsigned begun_at;
    /* Whether other connections have committed since the last truce__kv_accept. */
    bool foreign;
    /* Whether the running commit has written to the log. */
    bool logged;
    /* Whether this connection has searched for the index of the log. */
    bool sought_index;
    /* The header of the index of the log, or NULL before it is found. */
    const atomic_uint *index;
    /* The header of the index of the log, as the snapshot of the connection has it. */
    struct kv_snapshot snapshot;
    /* The schema version of the snapshot. */
    uint32_t snapshot_version;
    /* Whether a call has failed in the snapshot. */
    bool failed;
    sqlite3_stmt *version, *roots, *begin, *commit, *rollback;
    sqlite3_stmt *save, *release, *back;
    /* The statement whose current row the caller may still read, or NULL. */
    sqlite3_stmt *kept;
    /* The prepared statements: a hash table by table number, with open addressing. Its size is a
     * power of two, or 0. */
    struct kv_table **tables;
    uint32_t tables_count, tables_room;
    /* The callback of the truce__kv_rows_each call that is running. */
    kv_take_function *take;
    /* The argument of the callback. */
    void *take_arg;
    /* The last row that the callback received. */
    int64_t taken;
    /* All bodies up to this row are known to be valid, from an earlier walk. */
    int64_t walked;
    /* The table of the last statement, for error messages. */
    int64_t table;
    /* Names tables in error messages. */
    kv_name_function *names;
    void *names_arg;
    /* Checks a body. NULL means that every body is valid. */
    bool (*valid)(const uint8_t *body, size_t size);
    /* The table whose bodies may be larger than a document may be. */
    int64_t wide;
    /* The fingerprints of bodies that were valid. Used if `valid` is not NULL. */
    struct seen *seen;
    struct seen_walks walks;
    /* Whether truce__kv_rows_each ended at an invalid body. */
    bool corrupted;
    /* The text of error_reason_of and damage_of (kv.c). */
    char reason[80];
    /* The budget that reads take from, or NULL for no limit. */
    struct budget *budget;
    /* How to find rows in the pages (kv_direct.h), or NULL if SQLite finds all rows. */
    struct kv_direct *direct;
};

/* Creates the SQL function of truce__kv_rows_each. Returns an SQLite result. */
int truce__kv_define_take(struct kv *kv);

/* Converts an SQLite result other than OK, ROW, or DONE to a status. `what` is the verb of the
 * failed action. */
truce_status truce__kv_fail(struct kv *kv, int result, const char *what, bson_error_t *error);

/* Does the same for a statement of a table. The error names the table if it is damaged. */
truce_status truce__kv_fail_table(struct kv *kv, int64_t table, int result, const char *what,
                                  bson_error_t *error);

/* Fails with CORRUPT, because the body in this row is not valid. */
truce_status truce__kv_fail_row(struct kv *kv, int64_t table, int64_t row, bson_error_t *error);

/* Checks a body whose fingerprint is not stored. Stores the fingerprint if the body is valid. */
bool truce__kv_check_body(struct kv *kv, int64_t table, int64_t row, struct bytes body);

/* Loads the fingerprint of a row into the processor's cache while the row is read. */
static inline void kv_expect(const struct kv *kv, int64_t table, int64_t row)
{
    if (kv->seen)
        __builtin_prefetch(&kv->seen->prints[truce__seen_slot(table, row)]);
}

static inline bool kv_is_valid(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    return !kv->valid || truce__seen_has(kv->seen, table, row, body.data, body.size) ||
           truce__kv_check_body(kv, table, row, body);
}

/* Resets the statement from which the previous call lent bytes. */
static inline void kv_settle(struct kv *kv)
{
    if (kv->kept)
        sqlite3_reset(kv->kept);
    kv->kept = NULL;
}

/* Returns a statement for a table, prepared on first use. `rows` is the table of rows for PAIRS and
 * LOOKUP. */
truce_status truce__kv_statement(struct kv *kv, enum kv_statement kind, int64_t table, int64_t rows,
                                 sqlite3_stmt **statement, bson_error_t *error);

/* Returns the root page of a table in the snapshot, or 0 if it is unknown. `kind` is 'c' for rows
 * and 'x' for keys. */
uint32_t truce__kv_root(struct kv *kv, char kind, int64_t table);

/* Drops the statements of a table before the table is dropped. */
void truce__kv_forget(struct kv *kv, int64_t table);

truce_status truce__kv_prepare(struct kv *kv, const char *sql, sqlite3_stmt **statement,
                               bson_error_t *error);
truce_status truce__kv_execute(struct kv *kv, const char *sql, bson_error_t *error);
/* Returns the single integer that a pragma returns. */
truce_status truce__kv_pragma(struct kv *kv, const char *sql, int64_t *answer, bson_error_t *error);

#endif
