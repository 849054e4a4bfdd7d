#include "engine/storage/kv_sizes.h"

#include <stdio.h>

#include "base/assert.h"
#include "engine/storage/kv_connection.h"

bool truce__kv_tells_sizes(void)
{
    return sqlite3_compileoption_used("ENABLE_DBSTAT_VTAB");
}

/* Page by page, so that the bound of the connection is looked at between two of them. */
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
