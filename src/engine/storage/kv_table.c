/*
 * Rows, keys, and cursors.
 *
 *     c<n>  (id INTEGER PRIMARY KEY, body BLOB)                            a rowid B-tree
 *     x<n>  (key BLOB, doc INTEGER, PRIMARY KEY(key, doc)) WITHOUT ROWID   a single B-tree
 *
 * SQLite compares BLOBs as memcmp does and then by length, which is the order that keys are encoded
 * for (bson/key_encoding.h). A key table contains a pair at most once. The table does not know
 * which keys are unique: the writer checks this before it inserts.
 *
 * Connections that read look for rows and keys in the pages first (kv_direct.h). Otherwise every
 * call is one prepared statement, which is stepped and reset before the call returns. If a
 * call returns borrowed bytes, the statement stays on its row (kv->kept), and the next call on the
 * connection or the end of the transaction resets it. Cursors hold their statement until they are
 * closed.
 *
 * A walk over all rows is one step of one statement. SQLite's loop calls the SQL function
 * truce_take for each row. A call takes two thirds of the time that a step of the statement takes.
 */
#include "engine/storage/kv_table.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "engine/storage/kv_connection.h"
#include "engine/storage/kv_direct.h"

static void bind_bytes(sqlite3_stmt *statement, int position, struct bytes bytes)
{
    /* A NULL pointer would bind NULL, which is not an empty BLOB. */
    const void *data = bytes.data ? bytes.data : (const uint8_t *)"";
    int result =
        sqlite3_bind_blob64(statement, position, data, (sqlite3_uint64)bytes.size, SQLITE_STATIC);

    truce_assert(result == SQLITE_OK);
}

static void bind_number(sqlite3_stmt *statement, int position, int64_t number)
{
    int result = sqlite3_bind_int64(statement, position, number);

    truce_assert(result == SQLITE_OK);
}

/* Returns the bytes of a value, which SQLite owns. truce writes only BLOBs. SQLite converts any
 * other value to bytes; NULL has none. */
static struct bytes value_bytes(sqlite3_value *value)
{
    const uint8_t *data = sqlite3_value_blob(value);

    if (!data)
        return (struct bytes){(const uint8_t *)"", 0};
    return (struct bytes){data, (size_t)sqlite3_value_bytes(value)};
}

/* Reads the column once. This is safe for a single value on a connection that one thread uses. */
static struct bytes column_bytes(sqlite3_stmt *statement, int column)
{
    return value_bytes(sqlite3_column_value(statement, column));
}

/* Returns a borrowed body. The statement stays on its row. */
static truce_status kv_lend_body(struct kv *kv, sqlite3_stmt *statement, int64_t table, int64_t row,
                                 int column, struct bytes *body, bson_error_t *error)
{
    *body = column_bytes(statement, column);
    if (!kv_is_valid(kv, table, row, *body)) {
        sqlite3_reset(statement);
        return truce__kv_fail_row(kv, table, row, error);
    }
    kv->kept = statement;
    return TRUCE_OK;
}

/* Checks that a write found its row. A row that was read in this transaction cannot be found again:
 * the tree is out of order. */
static truce_status check_changed(struct kv *kv, int64_t table, int64_t row, truce_status status,
                                  bson_error_t *error)
{
    if (status || sqlite3_changes(kv->db) == 1)
        return status;
    return truce__kv_fail_row(kv, table, row, error);
}

/* Steps a statement that changes one thing and returns no row. */
static truce_status table_change(struct kv *kv, sqlite3_stmt *statement, bson_error_t *error)
{
    int result = sqlite3_step(statement);
    truce_status status = TRUCE_OK;

    kv->changed = true;
    if (result != SQLITE_DONE)
        status = truce__kv_fail_table(kv, kv->table, result, "write", error);
    sqlite3_reset(statement);
    return status;
}

/* Steps a statement that returns one row or none. On a row it stays there, so that its columns can
 * be read. */
static truce_status table_step_row(struct kv *kv, sqlite3_stmt *statement, bson_error_t *error)
{
    int result = sqlite3_step(statement);
    truce_status status = TRUCE_OK;

    if (result == SQLITE_ROW)
        return TRUCE_OK;
    status = result == SQLITE_DONE ? TRUCE_NOT_FOUND
                                   : truce__kv_fail_table(kv, kv->table, result, "read", error);
    sqlite3_reset(statement);
    return status;
}

/* ---- tables --------------------------------------------------------------------------------- */

static truce_status table_define(struct kv *kv, const char *sql, int64_t table, bson_error_t *error)
{
    int result;

    truce_assert(kv->state == KV_WRITING);
    kv_settle(kv);
    truce__kv_forget(kv, table);
    kv->changed = true;
    result = sqlite3_exec(kv->db, sql, NULL, NULL, NULL);
    return result ? truce__kv_fail(kv, result, "write", error) : TRUCE_OK;
}

static truce_status table_create(struct kv *kv, bool keys, int64_t table, bson_error_t *error)
{
    char sql[KV_DEFINITION_BYTES];

    truce__kv_definition(keys, table, sql, sizeof sql);
    return table_define(kv, sql, table, error);
}

static truce_status table_drop(struct kv *kv, char kind, int64_t table, bson_error_t *error)
{
    char sql[KV_DEFINITION_BYTES];

    snprintf(sql, sizeof sql, "DROP TABLE %c%lld", kind, (long long)table);
    return table_define(kv, sql, table, error);
}

truce_status truce__kv_rows_create(struct kv *kv, int64_t table, bson_error_t *error)
{
    return table_create(kv, false, table, error);
}

truce_status truce__kv_rows_drop(struct kv *kv, int64_t table, bson_error_t *error)
{
    return table_drop(kv, 'c', table, error);
}

truce_status truce__kv_keys_create(struct kv *kv, int64_t table, bson_error_t *error)
{
    return table_create(kv, true, table, error);
}

truce_status truce__kv_keys_drop(struct kv *kv, int64_t table, bson_error_t *error)
{
    return table_drop(kv, 'x', table, error);
}

/* ---- rows ----------------------------------------------------------------------------------- */

truce_status truce__kv_row_get(struct kv *kv, int64_t table, int64_t row, struct bytes *body,
                               bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status;

    kv_expect(kv, table, row);
    if (truce__kv_direct_row(kv, table, row, body))
        return kv_is_valid(kv, table, row, *body) ? TRUCE_OK
                                                  : truce__kv_fail_row(kv, table, row, error);
    status = truce__kv_statement(kv, ROW_GET, table, 0, &statement, error);
    if (status)
        return status;
    bind_number(statement, 1, row);
    status = table_step_row(kv, statement, error);
    if (status)
        return status;
    return kv_lend_body(kv, statement, table, row, 0, body, error);
}

truce_status truce__kv_row_insert(struct kv *kv, int64_t table, int64_t *row, struct bytes body,
                                  bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROW_INSERT, table, 0, &statement, error);

    truce_assert(kv->state == KV_WRITING);
    if (status)
        return status;
    if (*row)
        bind_number(statement, 1, *row);
    else
        sqlite3_bind_null(statement, 1);
    bind_bytes(statement, 2, body);
    status = table_change(kv, statement, error);
    if (!status)
        *row = sqlite3_last_insert_rowid(kv->db);
    return status;
}

truce_status truce__kv_row_update(struct kv *kv, int64_t table, int64_t row, struct bytes body,
                                  bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROW_UPDATE, table, 0, &statement, error);

    truce_assert(kv->state == KV_WRITING);
    if (status)
        return status;
    bind_number(statement, 1, row);
    bind_bytes(statement, 2, body);
    status = table_change(kv, statement, error);
    return check_changed(kv, table, row, status, error);
}

truce_status truce__kv_row_delete(struct kv *kv, int64_t table, int64_t row, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROW_DELETE, table, 0, &statement, error);

    truce_assert(kv->state == KV_WRITING);
    if (status)
        return status;
    bind_number(statement, 1, row);
    status = table_change(kv, statement, error);
    return check_changed(kv, table, row, status, error);
}

truce_status truce__kv_rows_measure(struct kv *kv, int64_t table, int64_t *rows, int64_t *bytes,
                                    bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROWS_MEASURE, table, 0, &statement, error);

    if (!status)
        status = table_step_row(kv, statement, error);
    if (status)
        return status;
    *rows = sqlite3_column_int64(statement, 0);
    *bytes = sqlite3_column_int64(statement, 1);
    sqlite3_reset(statement);
    return TRUCE_OK;
}

truce_status truce__kv_rows_count(struct kv *kv, int64_t table, int64_t *rows, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROWS_COUNT, table, 0, &statement, error);

    if (!status)
        status = table_step_row(kv, statement, error);
    if (status)
        return status;
    *rows = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return TRUCE_OK;
}

truce_status truce__kv_keys_within(struct kv *kv, int64_t table, struct bytes from, struct bytes to,
                                   int64_t most, int64_t *entries, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, KEYS_WITHIN, table, 0, &statement, error);

    if (status)
        return status;
    bind_bytes(statement, 1, from);
    bind_bytes(statement, 2, to);
    bind_number(statement, 3, most ? most : -1);
    status = table_step_row(kv, statement, error);
    if (status)
        return status;
    *entries = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return TRUCE_OK;
}

/* ---- keys ----------------------------------------------------------------------------------- */

truce_status truce__kv_key_get(struct kv *kv, int64_t table, struct bytes key, int64_t *row,
                               bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status;

    if (truce__kv_direct_key(kv, table, key, row))
        return TRUCE_OK;
    status = truce__kv_statement(kv, KEY_GET, table, 0, &statement, error);
    if (status)
        return status;
    bind_bytes(statement, 1, key);
    status = table_step_row(kv, statement, error);
    if (status)
        return status;
    *row = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return TRUCE_OK;
}

truce_status truce__kv_key_find(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, KEY_FIND, table, 0, &statement, error);

    if (status)
        return status;
    bind_bytes(statement, 1, key);
    bind_number(statement, 2, row);
    status = table_step_row(kv, statement, error);
    if (!status)
        sqlite3_reset(statement);
    return status;
}

static truce_status change_key(struct kv *kv, enum kv_statement kind, int64_t table,
                               struct bytes key, int64_t row, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, kind, table, 0, &statement, error);

    truce_assert(kv->state == KV_WRITING);
    if (status)
        return status;
    bind_bytes(statement, 1, key);
    bind_number(statement, 2, row);
    return table_change(kv, statement, error);
}

truce_status truce__kv_key_insert(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error)
{
    return change_key(kv, KEY_INSERT, table, key, row, error);
}

truce_status truce__kv_key_delete(struct kv *kv, int64_t table, struct bytes key, int64_t row,
                                  bson_error_t *error)
{
    return change_key(kv, KEY_DELETE, table, key, row, error);
}

truce_status truce__kv_key_lookup(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                  int64_t *row, struct bytes *body, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status;

    if (kv->direct) {
        status = truce__kv_key_get(kv, table, key, row, error);
        return status ? status : truce__kv_row_get(kv, rows, *row, body, error);
    }
    status = truce__kv_statement(kv, KEY_LOOKUP, table, rows, &statement, error);
    if (status)
        return status;
    bind_bytes(statement, 1, key);
    status = table_step_row(kv, statement, error);
    if (status)
        return status;
    *row = sqlite3_column_int64(statement, 0);
    return kv_lend_body(kv, statement, rows, *row, 1, body, error);
}

/* ---- cursors -------------------------------------------------------------------------------- */

truce_status truce__kv_rows_seek(struct kv *kv, int64_t table, int64_t after, bool descending,
                                 struct kv_cursor *cursor, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status =
        truce__kv_statement(kv, descending ? ROWS_DOWN : ROWS_UP, table, 0, &statement, error);

    truce_assert(!cursor->kv);
    if (status)
        return status;
    bind_number(statement, 1, after);
    *cursor = (struct kv_cursor){.statement = statement, .kv = kv, .table = table, .bodies = true};
    return TRUCE_OK;
}

/* Passes a row of truce__kv_rows_each to its caller. Returns whether the walk continues. */
static bool table_take_row(struct kv *kv, int64_t row, struct bytes body)
{
    kv->corrupted =
        row <= kv->taken || (row > kv->walked && !kv_is_valid(kv, kv->table, row, body));
    kv->taken = row;
    return !kv->corrupted && kv->take(kv->take_arg, row, body);
}

/* Implements the SQL function truce_take(id, body). It returns true, and so a row of the result, if
 * the walk ends. Otherwise it returns NULL, and SQLite continues. */
static void table_take(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct kv *kv = sqlite3_user_data(context);

    truce_assert(count == 2 && kv->take);
    if (!table_take_row(kv, sqlite3_value_int64(values[0]), value_bytes(values[1])))
        sqlite3_result_int(context, 1);
}

int truce__kv_define_take(struct kv *kv)
{
    return sqlite3_create_function(kv->db, "truce_take", 2, SQLITE_UTF8 | SQLITE_DIRECTONLY, kv,
                                   table_take, NULL, NULL);
}

/* Returns the version of the data that a walk reads. Returns 0 if the walk is not recorded, because
 * the data may change or bodies are not checked. */
static uint32_t version_of_walk(struct kv *kv)
{
    unsigned version = 0;

    if (kv->state == KV_SNAPSHOT && kv->valid)
        (void)sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_DATA_VERSION, &version);
    return version;
}

/* Passes the rows after the last one to `take`, in SQLite's loop. */
static truce_status table_walk(struct kv *kv, kv_take_function *take, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status = truce__kv_statement(kv, ROWS_EACH, kv->table, 0, &statement, error);

    if (status)
        return status;
    bind_number(statement, 1, kv->taken);
    kv->take = take;
    status = table_step_row(kv, statement, error);
    if (!status)
        sqlite3_reset(statement);
    return status;
}

truce_status truce__kv_rows_each(struct kv *kv, int64_t table, int64_t after,
                                 kv_take_function *take, void *arg, bson_error_t *error)
{
    uint32_t version = version_of_walk(kv);
    truce_status status;

    truce_assert(!kv->take);
    kv->table = table;
    kv->take = take;
    kv->take_arg = arg;
    kv->taken = after;
    kv->walked = version ? truce__seen_walked(&kv->walks, version, table, after) : after;
    kv->corrupted = false;
    switch (truce__kv_direct_each(kv, table, after, table_take_row)) {
    case KV_DIRECT_END:
        status = TRUCE_NOT_FOUND;
        break;
    case KV_DIRECT_ENOUGH:
        status = TRUCE_OK;
        break;
    default:
        kv->take = NULL;
        status = table_walk(kv, take, error);
    }
    kv->take = NULL;
    if (version && !kv->corrupted)
        truce__seen_walk(&kv->walks, version, table, after, kv->taken);
    return kv->corrupted && !status ? truce__kv_fail_row(kv, table, kv->taken, error) : status;
}

static truce_status table_bind_keys(const struct kv_cursor *cursor, enum kv_statement kind,
                                    int64_t rows, struct bytes key, int64_t row,
                                    sqlite3_stmt **statement, bson_error_t *error)
{
    truce_status status =
        truce__kv_statement(cursor->kv, kind, cursor->index, rows, statement, error);

    if (status)
        return status;
    bind_bytes(*statement, 1, key);
    bind_number(*statement, 2, row);
    if (cursor->bodies)
        bind_bytes(*statement, 3, cursor->end);
    return TRUCE_OK;
}

truce_status truce__kv_keys_seek(struct kv *kv, int64_t table, int64_t rows, struct bytes key,
                                 int64_t row, struct bytes end, bool descending,
                                 struct kv_cursor *cursor, bson_error_t *error)
{
    struct kv_cursor made = {.kv = kv,
                             .table = rows ? rows : table,
                             .keys = true,
                             .bodies = rows,
                             .apart = rows && kv->direct,
                             .index = table,
                             .key = key,
                             .row = row,
                             .end = end};
    enum kv_statement kind = descending ? KEYS_DOWN : KEYS_UP;
    sqlite3_stmt *statement = NULL;
    truce_status status = TRUCE_OK;

    truce_assert(!cursor->kv);
    if (made.apart)
        kind = descending ? KEYS_DOWN_TO : KEYS_UP_TO;
    else if (rows)
        kind = descending ? PAIRS_DOWN : PAIRS_UP;
    made.walks = made.apart && !descending && truce__kv_direct_walk(kv, table, key, row);
    if (!made.walks)
        status = table_bind_keys(&made, kind, made.apart ? 0 : rows, key, row, &statement, error);
    if (status)
        return status;
    *cursor = made;
    cursor->statement = statement;
    return TRUCE_OK;
}

/* Moves to the next result of the statement. */
static truce_status table_step(struct kv_cursor *cursor, bson_error_t *error)
{
    int result = sqlite3_step(cursor->statement);

    if (result == SQLITE_DONE)
        return TRUCE_NOT_FOUND;
    if (result != SQLITE_ROW)
        return truce__kv_fail_table(cursor->kv, cursor->table, result, "read", error);
    cursor->row = sqlite3_column_int64(cursor->statement, 0);
    if (cursor->keys)
        cursor->key = column_bytes(cursor->statement, 1);
    return TRUCE_OK;
}

/* Moves to the next entry. If it is not found in the pages, the statement continues after the last
 * entry. */
static truce_status table_next_entry(struct kv_cursor *cursor, bson_error_t *error)
{
    sqlite3_stmt *statement;
    truce_status status;

    if (cursor->statement)
        return table_step(cursor, error);
    switch (truce__kv_direct_walk_next(cursor->kv, &cursor->key, &cursor->row)) {
    case KV_DIRECT_END:
        return TRUCE_NOT_FOUND;
    case KV_DIRECT_ENOUGH:
        return truce__bytes_compare(cursor->key.data, cursor->key.size, cursor->end.data,
                                    cursor->end.size) < 0
                   ? TRUCE_OK
                   : TRUCE_NOT_FOUND;
    default:
        break;
    }
    status = table_bind_keys(cursor, KEYS_UP_TO, 0, cursor->key, cursor->row, &statement, error);
    if (status)
        return status;
    cursor->statement = statement;
    return table_step(cursor, error);
}

/* Moves to the next entry whose row exists. */
static truce_status table_next_apart(struct kv_cursor *cursor, bson_error_t *error)
{
    truce_status status;

    do {
        status = table_next_entry(cursor, error);
        if (status)
            return status;
        status = truce__kv_row_get(cursor->kv, cursor->table, cursor->row, &cursor->body, error);
    } while (status == TRUCE_NOT_FOUND);
    return status;
}

truce_status truce__kv_cursor_next(struct kv_cursor *cursor, bson_error_t *error)
{
    truce_status status;

    truce_assert(cursor->kv);
    if (cursor->apart)
        return table_next_apart(cursor, error);
    status = table_step(cursor, error);
    if (status || !cursor->bodies)
        return status;
    cursor->body = column_bytes(cursor->statement, cursor->keys ? 2 : 1);
    if (!cursor->raw && !kv_is_valid(cursor->kv, cursor->table, cursor->row, cursor->body))
        return truce__kv_fail_row(cursor->kv, cursor->table, cursor->row, error);
    return TRUCE_OK;
}

void truce__kv_cursor_close(struct kv_cursor *cursor)
{
    if (cursor->statement)
        sqlite3_reset(cursor->statement);
    if (cursor->walks)
        truce__kv_direct_walk_end(cursor->kv);
    *cursor = (struct kv_cursor){0};
}

/* ---- sizes ---------------------------------------------------------------------------------- */

bool truce__kv_reports_sizes(void)
{
    return sqlite3_compileoption_used("ENABLE_DBSTAT_VTAB");
}

/* Measures a table. SQLite reads page by page, so the budget of the connection is checked between
 * two pages. */
truce_status truce__kv_size(struct kv *kv, bool keys, int64_t table, struct kv_size *size,
                            bson_error_t *error)
{
    sqlite3_stmt *statement = NULL;
    char sql[120];
    truce_status status;

    truce_assert(kv->state != KV_IDLE && !kv->take);
    kv_settle(kv);
    *size = (struct kv_size){0};
    snprintf(sql, sizeof sql, "SELECT sum(pgsize), sum(unused) FROM dbstat WHERE name='%c%lld'",
             keys ? 'x' : 'c', (long long)table);
    status = truce__kv_prepare(kv, sql, &statement, error);
    if (!status && sqlite3_step(statement) == SQLITE_ROW) {
        size->bytes = sqlite3_column_int64(statement, 0);
        size->unused = sqlite3_column_int64(statement, 1);
    } else if (!status) {
        status = truce__kv_fail_table(kv, table, sqlite3_extended_errcode(kv->db), "read", error);
    }
    sqlite3_finalize(statement);
    return status;
}
