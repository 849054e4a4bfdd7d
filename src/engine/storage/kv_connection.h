#ifndef TRUCE_ENGINE_STORAGE_KV_CONNECTION_H
#define TRUCE_ENGINE_STORAGE_KV_CONNECTION_H

/* What the files of a connection share: kv.c, kv_file.c, kv_table.c,
 * kv_compact.c. */
#include <sqlite3.h>

#include "engine/storage/kv.h"
#include "engine/storage/kv_format.h"
#include "engine/storage/kv_seen.h"

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
    KEYS_WITHIN,
    KEYS_DELETE,
    PAIRS_UP,
    PAIRS_DOWN,
    KV_STATEMENTS,
};

/* the prepared statements of one table */
struct kv_table {
    int64_t table;
    sqlite3_stmt *statements[KV_STATEMENTS];
    int64_t rows[KV_STATEMENTS]; /* the table of the rows, in the text of each */
};

enum kv_state { KV_IDLE, KV_SNAPSHOT, KV_WRITING };

struct kv {
    sqlite3 *db;
    char *path;
    unsigned flags;
    enum kv_state state;
    bool savepoint; /* one is open */
    bool changed;   /* this transaction, something */
    int wal_pages;
    struct kv_commits commits;
    unsigned begun_at; /* `commits.now`, when this transaction began */
    bool foreign;      /* others have committed, and nobody has accepted that yet */
    bool logged;       /* the commit that runs has written to the log */
    bool sought_index;
    const atomic_uint *index;    /* of the log, its header; NULL: not found yet */
    struct kv_snapshot snapshot; /* of the snapshot that it is in */
    sqlite3_stmt *version, *begin, *commit, *rollback;
    sqlite3_stmt *save, *release, *back;
    sqlite3_stmt *kept;       /* stands on a row whose bytes the caller may still look at */
    struct kv_table **tables; /* open addressing by table number; a power of two, or none */
    uint32_t tables_count, tables_room;
    kv_take_function *take; /* of the call of truce__kv_rows_each that runs, */
    void *take_arg;         /* and its argument, */
    int64_t taken;          /* and the row that it was given last, */
    int64_t walked;         /* and up to which all are known to be sound */
    int64_t table;          /* of the statement that was asked for last */
    kv_name_function *names;
    void *names_arg;
    bool (*sound)(const uint8_t *body, size_t size); /* NULL: any bytes are */
    int64_t wide;                                    /* its bodies may be larger than a document */
    struct seen seen;                                /* bodies that were sound */
    bool spoiled;          /* truce__kv_rows_each ended at a body that is not sound */
    char reason[80];       /* of a failure */
    struct budget *budget; /* what is read takes from; NULL: nothing does */
};

/* Makes the SQL function of truce__kv_rows_each; an SQLite result. */
int truce__kv_define_take(struct kv *kv);

/* The status of an SQLite result that is not OK, ROW or DONE; `what` was being done. */
truce_status truce__kv_fail(struct kv *kv, int result, const char *what, bson_error_t *error);

/* The same, of a statement of a table, which is named if it is damaged. */
truce_status truce__kv_fail_table(struct kv *kv, int64_t table, int result, const char *what,
                                  bson_error_t *error);

/* The body in this row is not what it must be. */
truce_status truce__kv_fail_row(struct kv *kv, int64_t table, int64_t row, bson_error_t *error);

/* Is a body sound that was not seen before? */
bool truce__kv_look_at(struct kv *kv, int64_t table, int64_t row, struct bytes body);

static inline bool kv_is_sound(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    return !kv->sound || truce__seen_has(&kv->seen, table, row, body.data, body.size) ||
           truce__kv_look_at(kv, table, row, body);
}

/* Ends what the previous call lent out. */
static inline void kv_settle(struct kv *kv)
{
    if (kv->kept)
        sqlite3_reset(kv->kept);
    kv->kept = NULL;
}

/* The statement of that kind for a table, prepared on first use. `rows`: for PAIRS and LOOKUP. */
truce_status truce__kv_statement(struct kv *kv, enum kv_statement kind, int64_t table, int64_t rows,
                                 sqlite3_stmt **statement, bson_error_t *error);

/* Forgets the statements of one table, before it is dropped. */
void truce__kv_forget(struct kv *kv, int64_t table);

truce_status truce__kv_prepare(struct kv *kv, const char *sql, sqlite3_stmt **statement,
                               bson_error_t *error);
truce_status truce__kv_execute(struct kv *kv, const char *sql, bson_error_t *error);
/* The single integer that a pragma answers with. */
truce_status truce__kv_ask(struct kv *kv, const char *sql, int64_t *answer, bson_error_t *error);

#endif
