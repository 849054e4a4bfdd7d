/*
 * SQLite by itself: WAL, synchronous=FULL, a connection for each caller, one transaction for each
 * operation. A mutex serializes the writing threads. Threads that wait for SQLite's own lock sleep
 * and try again, which is several times slower. Processes have only that lock (busy_timeout).
 */
#include <pthread.h>
#include <string.h>

#include <sqlite3.h>

#include "bench/harness.h"
#include "bench/sql.h"

#define STATEMENTS_MAX 64

struct lite {
    struct sql base;
    sqlite3 *db;
    struct {
        const char *text;
        sqlite3_stmt *statement;
    } prepared[STATEMENTS_MAX];
    sqlite3_stmt *open; /* The statement that was started and not finished. */
    bool row;           /* A row was read that was not returned yet. */
    bool done;
    bool writes; /* The caller holds the mutex. */
};

static pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;

static void sqlite_must(struct lite *lite, int code)
{
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW)
        bench_fail(__FILE__, __LINE__, "sqlite", sqlite3_errmsg(lite->db));
}

static sqlite3_stmt *sqlite_prepare(struct lite *lite, const char *text)
{
    int i = 0;

    while (i < STATEMENTS_MAX && lite->prepared[i].text && lite->prepared[i].text != text)
        i++;
    BENCH_CHECK(i < STATEMENTS_MAX);
    if (!lite->prepared[i].text) {
        lite->prepared[i].text = text;
        sqlite_must(lite,
                    sqlite3_prepare_v2(lite->db, text, -1, &lite->prepared[i].statement, NULL));
    }
    return lite->prepared[i].statement;
}

static void lite_close(struct sql *sql)
{
    struct lite *lite = (struct lite *)sql;

    for (int i = 0; i < STATEMENTS_MAX; i++)
        sqlite3_finalize(lite->prepared[i].statement);
    sqlite3_close(lite->db);
    bson_free(lite);
}

/* Locks the mutex, from the first statement that writes, or BEGIN IMMEDIATE, to the end of the
 * transaction. */
static void sqlite_take_turn(struct lite *lite, sqlite3_stmt *s)
{
    if (lite->writes || sqlite3_stmt_readonly(s))
        return;
    pthread_mutex_lock(&writer);
    lite->writes = true;
}

static void sqlite_end_turn(struct lite *lite)
{
    if (!lite->writes || !sqlite3_get_autocommit(lite->db))
        return;
    lite->writes = false;
    pthread_mutex_unlock(&writer);
}

static void lite_execute(struct sql *sql, const char *text)
{
    struct lite *lite = (struct lite *)sql;

    sqlite_must(lite, sqlite3_exec(lite->db, text, NULL, NULL, NULL));
    sqlite_end_turn(lite); /* The failed statement may be the COMMIT. */
}

static void sqlite_begin(struct lite *lite, const struct sql_statement *statement)
{
    sqlite3_stmt *s = sqlite_prepare(lite, statement->text);
    int code;

    for (int i = 0; i < statement->count; i++) {
        const struct sql_value *value = &statement->values[i];

        sqlite_must(lite, value->text ? sqlite3_bind_text(s, i + 1, value->text, -1, SQLITE_STATIC)
                                      : sqlite3_bind_int64(s, i + 1, value->number));
    }
    lite->open = s;
    sqlite_take_turn(lite, s);
    code = sqlite3_step(s);
    sqlite_must(lite, code);
    lite->row = code == SQLITE_ROW;
    lite->done = code == SQLITE_DONE;
}

static bool lite_next(struct sql *sql)
{
    struct lite *lite = (struct lite *)sql;
    int code;

    if (lite->row) {
        lite->row = false;
        return true;
    }
    if (lite->done)
        return false;
    code = sqlite3_step(lite->open);
    sqlite_must(lite, code);
    lite->done = code == SQLITE_DONE;
    return code == SQLITE_ROW;
}

static int64_t lite_number(struct sql *sql, int column)
{
    return sqlite3_column_int64(((struct lite *)sql)->open, column);
}

static const char *lite_text(struct sql *sql, int column)
{
    return (const char *)sqlite3_column_text(((struct lite *)sql)->open, column);
}

static int64_t lite_finish(struct sql *sql)
{
    struct lite *lite = (struct lite *)sql;

    sqlite_must(lite, sqlite3_reset(lite->open));
    sqlite_end_turn(lite);
    return sqlite3_changes64(lite->db);
}

static void lite_start(struct sql *sql, const struct sql_statement *statements, int count)
{
    struct lite *lite = (struct lite *)sql;

    for (int i = 0; i < count; i++) {
        sqlite_begin(lite, &statements[i]);
        if (i + 1 < count)
            lite_finish(sql);
    }
}

static const struct sql_ops lite_ops = {lite_close,  lite_execute, lite_start, lite_next,
                                        lite_number, lite_text,    lite_finish};

struct sql *sqlite_connect(const char *path)
{
    struct lite *lite = bson_malloc0(sizeof *lite);

    lite->base.ops = &lite_ops;
    sqlite_must(lite, sqlite3_open(path, &lite->db));
    sqlite3_busy_timeout(lite->db, 60000);
    lite_execute(&lite->base, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    return &lite->base;
}

/* ---- the target ------------------------------------------------------------------------------ */

static char *sqlite_path_of(const struct bench_side *side)
{
    return bson_strdup_printf("%s/%d.sqlite", bench_directory(), side->number);
}

static void sqlite_open_target(struct bench_side *side)
{
    char *path = sqlite_path_of(side);
    struct sql *first;

    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = sqlite_connect(path);
    first = side->connections[0];
    sql_start(first, SQL("PRAGMA journal_mode"));
    BENCH_CHECK(sql_next(first) && !strcmp(sql_text(first, 0), "wal"));
    sql_finish(first);
    BENCH_CHECK(sql_get(first, SQL("PRAGMA synchronous")) == 2);
    snprintf(side->target->version, sizeof side->target->version, "SQLite %s",
             sqlite3_libversion());
    snprintf(side->target->settings, sizeof side->target->settings,
             "journal_mode=wal synchronous=full");
    bson_free(path);
}

static void sqlite_close_target(struct bench_side *side)
{
    for (int i = 0; i < side->callers_max; i++)
        sql_close(side->connections[i]);
}

static void sqlite_spoil(struct bench_side *side)
{
    sql_spoil(side->connections[0], "SELECT count(*) FROM sqlite_master WHERE name = $1");
}

static void sqlite_size(struct bench_side *side, int64_t *data, int64_t *log)
{
    char *path = sqlite_path_of(side);

    *data = bench_file_size(path, "");
    *log = bench_file_size(path, "-wal");
    bson_free(path);
}

const struct target_kind target_sqlite = {.name = "sqlite",
                                          .open = sqlite_open_target,
                                          .close = sqlite_close_target,
                                          .spoil = sqlite_spoil,
                                          .size = sqlite_size};
