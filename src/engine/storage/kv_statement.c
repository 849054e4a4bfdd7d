/* The prepared statements of tables. */
#include "engine/storage/kv_connection.h"

#include "base/assert.h"

/* A number of a table that was undone is given again: what is prepared for an index may name the rows of
 * another collection than now. */

#define TABLES_MAX 256 /* whose statements a connection keeps; beyond it starts again */

static uint32_t statement_place(const struct kv *kv, int64_t table)
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
            kv->tables[statement_place(kv, old[i]->table)] = old[i];
    }
    bson_free(old);
}

static struct kv_table *statement_table_of(struct kv *kv, int64_t table)
{
    uint32_t at;

    if (kv->tables_count * 2 >= kv->tables_room)
        statement_make_room(kv);
    at = statement_place(kv, table);
    if (!kv->tables[at]) {
        kv->tables[at] = bson_malloc0(sizeof **kv->tables);
        kv->tables[at]->table = table;
        kv->tables_count++;
    }
    return kv->tables[at];
}

/* # stands for the table, @ for the table of the rows that its entries point to */
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
    [KEYS_COUNT] = "SELECT count(*) FROM x#",
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
    [PAIRS_UP] = "SELECT x.doc, x.key, c.body FROM x# AS x CROSS JOIN c@ AS c ON c.id=x.doc"
                 " WHERE (x.key, x.doc)>(?1, ?2) ORDER BY x.key, x.doc",
    [PAIRS_DOWN] = "SELECT x.doc, x.key, c.body FROM x# AS x CROSS JOIN c@ AS c"
                   " ON c.id=x.doc WHERE (x.key, x.doc)<(?1, ?2) ORDER BY x.key DESC, x.doc DESC",
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

/* Between transactions no cursor is open, so that this is the moment to drop statements. */
void truce__kv_keep_statements_few(struct kv *kv)
{
    if (kv->tables_count > TABLES_MAX)
        truce__kv_forget_all(kv);
}
