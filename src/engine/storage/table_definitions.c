/*
 * Checks the tables of the file as SQLite knows them.
 *
 * Table definitions are bytes of the file, and SQLite executes them: a view or a trigger instead of
 * a table is a program. Therefore every definition must be exactly the text that truce writes. Only
 * the statistics of SQLite's ANALYZE are accepted; truce does not depend on them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/storage/kv_connection.h"

#define DEFINITION_ROWS "CREATE TABLE c%lld(id INTEGER PRIMARY KEY, body BLOB NOT NULL)"
#define DEFINITION_KEYS                                                                            \
    "CREATE TABLE x%lld(key BLOB NOT NULL, doc INTEGER NOT NULL, PRIMARY KEY(key, doc)) "          \
    "WITHOUT ROWID"

void truce__kv_definition(bool keys, int64_t table, char *sql, size_t size)
{
    /* Two calls, so that each format is a literal. */
    if (keys)
        snprintf(sql, size, DEFINITION_KEYS, (long long)table);
    else
        snprintf(sql, size, DEFINITION_ROWS, (long long)table);
}

static const char *schema_text_of(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);

    return text ? text : "";
}

/* Returns whether an entry of the schema is a table with exactly the definition that truce writes,
 * or belongs to the statistics of ANALYZE. */
static bool schema_is_ours(const char *type, const char *name, const char *text)
{
    char expected[KV_DEFINITION_BYTES];
    long long table;
    int used = 0;

    if (!strncmp(name, "sqlite_stat", 11))
        return true;
    if (strcmp(type, "table") != 0 || (*name != 'c' && *name != 'x') ||
        sscanf(name + 1, "%18lld%n", &table, &used) != 1 || name[1 + used])
        return false;
    truce__kv_definition(*name == 'x', table, expected, sizeof expected);
    return !strcmp(text, expected);
}

truce_status truce__kv_schema_check(struct kv *kv, bson_error_t *error)
{
    sqlite3_stmt *statement = NULL;
    truce_status status = TRUCE_OK;
    int result = sqlite3_prepare_v2(kv->db, "SELECT type, name, sql FROM sqlite_schema", -1,
                                    &statement, NULL);

    while (!result && !status) {
        result = sqlite3_step(statement);
        if (result == SQLITE_DONE)
            break;
        if (result == SQLITE_ROW &&
            !schema_is_ours(schema_text_of(statement, 0), schema_text_of(statement, 1),
                            schema_text_of(statement, 2)))
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "\"%s\" is damaged: truce did not write the definition of \"%s\"; "
                                 "save the documents with truce salvage",
                                 kv->path, schema_text_of(statement, 1));
        result = result == SQLITE_ROW ? SQLITE_OK : result;
    }
    if (result && result != SQLITE_DONE)
        status = truce__kv_fail(kv, result, "read", error);
    sqlite3_finalize(statement);
    return status;
}
