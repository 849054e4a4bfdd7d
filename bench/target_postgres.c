/*
 * PostgreSQL: a cluster of its own in a directory of the run, started from the package, reached by
 * its Unix socket. Settings are the package's, except for more memory and log (shared_buffers,
 * max_wal_size, so that neither memory nor checkpoints limit it) and no replication. The server
 * reports the settings that durability depends on.
 */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "bench/harness.h"
#include "bench/server.h"
#include "bench/sql.h"

#define STATEMENTS_MAX 64
#define LOG_FILES      64 /* The number of log files, of 16 MB each. */
#define PARAMETERS_MAX 16
#define INT8_TYPE      20 /* The pg_type.oid of int8. */

/* ---- a connection ---------------------------------------------------------------------------- */

struct pg {
    struct sql base;
    PGconn *connection;
    const char *prepared[STATEMENTS_MAX];
    PGresult *result;
    int row;
};

/* Parameters in the format of libpq: numbers in binary, strings unchanged. */
struct parameters {
    uint64_t numbers[PARAMETERS_MAX];
    const char *values[PARAMETERS_MAX];
    int lengths[PARAMETERS_MAX], formats[PARAMETERS_MAX];
};

static _Noreturn void postgres_fail(struct pg *pg, const char *what)
{
    char text[300];

    snprintf(text, sizeof text, "%s", PQerrorMessage(pg->connection));
    text[strcspn(text, "\n")] = '\0';
    bench_fail(__FILE__, __LINE__, what, text);
}

static void postgres_take(struct pg *pg, PGresult *result, const char *what)
{
    ExecStatusType code = PQresultStatus(result);

    if (code != PGRES_TUPLES_OK && code != PGRES_COMMAND_OK)
        postgres_fail(pg, what);
    PQclear(pg->result);
    pg->result = result;
    pg->row = -1;
}

/* Prepares the statement if necessary, and returns its name. */
static void statement_name(struct pg *pg, const struct sql_statement *statement, char name[8])
{
    Oid types[PARAMETERS_MAX];
    int i = 0;

    while (i < STATEMENTS_MAX && pg->prepared[i] && pg->prepared[i] != statement->text)
        i++;
    BENCH_CHECK(i < STATEMENTS_MAX && statement->count <= PARAMETERS_MAX);
    snprintf(name, 8, "s%d", i);
    if (pg->prepared[i])
        return;
    pg->prepared[i] = statement->text;
    for (int k = 0; k < statement->count; k++)
        types[k] = statement->values[k].text ? 0 : INT8_TYPE;
    postgres_take(pg, PQprepare(pg->connection, name, statement->text, statement->count, types),
                  statement->text);
}

static void fill_parameters(const struct sql_statement *statement, struct parameters *parameters)
{
    for (int i = 0; i < statement->count; i++) {
        const struct sql_value *value = &statement->values[i];

        parameters->numbers[i] = __builtin_bswap64((uint64_t)value->number);
        parameters->values[i] = value->text ? value->text : (char *)&parameters->numbers[i];
        parameters->lengths[i] = value->text ? 0 : 8;
        parameters->formats[i] = !value->text;
    }
}

static void start_one(struct pg *pg, const struct sql_statement *statement)
{
    struct parameters p;
    char name[8];

    statement_name(pg, statement, name);
    fill_parameters(statement, &p);
    postgres_take(
        pg,
        PQexecPrepared(pg->connection, name, statement->count, p.values, p.lengths, p.formats, 0),
        statement->text);
}

/* Sends several statements in libpq's pipeline mode, which takes one round trip. */
static void start_many(struct pg *pg, const struct sql_statement *statements, int count)
{
    struct parameters p;
    char name[8];

    for (int i = 0; i < count; i++)
        statement_name(pg, &statements[i], name);
    if (!PQenterPipelineMode(pg->connection))
        postgres_fail(pg, "pipeline");
    for (int i = 0; i < count; i++) {
        fill_parameters(&statements[i], &p);
        statement_name(pg, &statements[i], name);
        if (!PQsendQueryPrepared(pg->connection, name, statements[i].count, p.values, p.lengths,
                                 p.formats, 0))
            postgres_fail(pg, statements[i].text);
    }
    if (!PQpipelineSync(pg->connection))
        postgres_fail(pg, "pipeline");
    for (int i = 0; i < count; i++) {
        postgres_take(pg, PQgetResult(pg->connection), statements[i].text);
        BENCH_CHECK(PQgetResult(pg->connection) == NULL);
    }
    PQclear(PQgetResult(pg->connection)); /* The result of the sync. */
    if (!PQexitPipelineMode(pg->connection))
        postgres_fail(pg, "pipeline");
}

static void pg_start(struct sql *sql, const struct sql_statement *statements, int count)
{
    if (count == 1)
        start_one((struct pg *)sql, statements);
    else
        start_many((struct pg *)sql, statements, count);
}

static void pg_close(struct sql *sql)
{
    struct pg *pg = (struct pg *)sql;

    PQclear(pg->result);
    PQfinish(pg->connection);
    bson_free(pg);
}

static void pg_execute(struct sql *sql, const char *text)
{
    struct pg *pg = (struct pg *)sql;

    postgres_take(pg, PQexec(pg->connection, text), text);
}

static bool pg_next(struct sql *sql)
{
    struct pg *pg = (struct pg *)sql;

    return ++pg->row < PQntuples(pg->result);
}

static int64_t pg_number(struct sql *sql, int column)
{
    struct pg *pg = (struct pg *)sql;

    return strtoll(PQgetvalue(pg->result, pg->row, column), NULL, 10);
}

static const char *pg_text(struct sql *sql, int column)
{
    struct pg *pg = (struct pg *)sql;

    return PQgetvalue(pg->result, pg->row, column);
}

static int64_t pg_finish(struct sql *sql)
{
    struct pg *pg = (struct pg *)sql;

    return strtoll(PQcmdTuples(pg->result), NULL, 10);
}

static const struct sql_ops pg_ops = {pg_close,  pg_execute, pg_start, pg_next,
                                      pg_number, pg_text,    pg_finish};

static struct pg *try_connect(const char *address)
{
    struct pg *pg = bson_malloc0(sizeof *pg);

    pg->base.ops = &pg_ops;
    pg->connection = PQconnectdb(address);
    return pg;
}

struct sql *postgres_connect(const char *address)
{
    struct pg *pg = try_connect(address);

    if (PQstatus(pg->connection) != CONNECTION_OK)
        postgres_fail(pg, address);
    return &pg->base;
}

/* ---- the server ------------------------------------------------------------------------------ */

#define USER "postgres"

static struct server server;

/* Finds the programs of the newest version. */
static bool find_programs(char *bin, size_t size)
{
    glob_t found = {0};
    long best = 0;

    if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *path = found.gl_pathv[i];
            long version = strtol(path + strlen("/usr/lib/postgresql/"), NULL, 10);

            if (version > best)
                snprintf(bin, size, "%.*s", (int)(strlen(path) - strlen("/postgres")), path);
            best = version > best ? version : best;
        }
    }
    globfree(&found);
    return best > 0;
}

static bool answers(const char *address)
{
    struct pg *pg = try_connect(address);
    bool ready = PQstatus(pg->connection) == CONNECTION_OK;

    pg_close(&pg->base);
    return ready;
}

static void postgres_stop(struct bench_target *target)
{
    server_stop(target->server, SIGINT);
    server_forget(&server);
    target->server = 0;
}

/* Creates the log's files and fills them with zeros. A server in use recycles old files; without
 * this, the measured run would create a new file for every 16 MB. */
static void make_log(const char *address)
{
    struct sql *sql = postgres_connect(address);

    for (int i = 0; i < LOG_FILES; i++) {
        sql_execute(sql, "SELECT pg_logical_emit_message(false, 'truce', 'x')");
        sql_execute(sql, "SELECT pg_switch_wal()");
    }
    sql_execute(sql, "CHECKPOINT");
    sql_close(sql);
}

static void target_postgres_start(struct bench_target *target)
{
    char bin[200], log[300], initdb[256], postgres[256], sockets[160];
    const char *const make[] = {initdb,  "-D",   server.directory, "-A",
                                "trust", "-U",   "truce",          "--no-locale",
                                "-E",    "UTF8", "--no-sync",      NULL};
    const char *const run[] = {postgres,
                               "-D",
                               server.directory,
                               "-c",
                               sockets,
                               "-c",
                               "listen_addresses=",
                               "-c",
                               "shared_buffers=256MB",
                               "-c",
                               "max_wal_size=4GB",
                               "-c",
                               "min_wal_size=2GB",
                               "-c",
                               "max_connections=80",
                               "-c",
                               "wal_level=minimal",
                               "-c",
                               "max_wal_senders=0",
                               NULL};

    if (!find_programs(bin, sizeof bin)) {
        snprintf(target->reason, sizeof target->reason, "it is not installed");
        return;
    }
    if (!server_directories("postgresql", USER, &server, target->reason, sizeof target->reason))
        return;
    snprintf(log, sizeof log, "%s/postgresql.log", bench_directory());
    snprintf(initdb, sizeof initdb, "%s/initdb", bin);
    snprintf(postgres, sizeof postgres, "%s/postgres", bin);
    snprintf(sockets, sizeof sockets, "unix_socket_directories=%s", server.sockets);
    snprintf(target->address, sizeof target->address, "host=%s user=truce dbname=postgres",
             server.sockets);
    if (!server_do(USER, log, make, target->reason, sizeof target->reason)) {
        server_forget(&server);
        return;
    }
    target->server = server_spawn(USER, log, run);
    if (!server_wait(target, 15, answers, log))
        postgres_stop(target);
    else if (!bench_small)
        make_log(target->address);
}

/* ---- the target ------------------------------------------------------------------------------ */

static void must_be_on(struct sql *sql, struct bench_target *target, struct sql_statement show,
                       const char *name)
{
    size_t length = strlen(target->settings);

    sql_start(sql, show);
    BENCH_CHECK(sql_next(sql));
    snprintf(target->settings + length, sizeof target->settings - length, "%s%s=%s",
             length ? " " : "", name, sql_text(sql, 0));
    if (strcmp(sql_text(sql, 0), "on") != 0)
        bench_fail(__FILE__, __LINE__, name, "is not on");
    sql_finish(sql);
}

static void postgres_open_target(struct bench_side *side)
{
    char address[300], schema[100]; /* Each side has a schema of its own. */
    struct sql *first;

    snprintf(address, sizeof address, "%s options='-c search_path=side%d'", side->target->address,
             side->number);
    snprintf(schema, sizeof schema, "CREATE SCHEMA side%d", side->number);
    for (int i = 0; i < side->callers_max; i++)
        side->connections[i] = postgres_connect(address);
    if (side->joined)
        return;
    first = side->connections[0];
    sql_execute(first, schema);
    side->target->settings[0] = '\0';
    must_be_on(first, side->target, SQL("SHOW fsync"), "fsync");
    must_be_on(first, side->target, SQL("SHOW synchronous_commit"), "synchronous_commit");
    must_be_on(first, side->target, SQL("SHOW full_page_writes"), "full_page_writes");
    sql_start(first, SQL("SHOW server_version"));
    BENCH_CHECK(sql_next(first));
    snprintf(side->target->version, sizeof side->target->version, "PostgreSQL %s",
             sql_text(first, 0));
    sql_finish(first);
}

static void postgres_close_target(struct bench_side *side)
{
    char schema[100];

    snprintf(schema, sizeof schema, "SET client_min_messages = warning; DROP SCHEMA side%d CASCADE",
             side->number);
    if (!side->joined)
        sql_execute(side->connections[0], schema);
    for (int i = 0; i < side->callers_max; i++)
        sql_close(side->connections[i]);
}

static void postgres_spoil(struct bench_side *side)
{
    sql_spoil(side->connections[0], "SELECT count(*) FROM information_schema.tables"
                                    " WHERE table_schema = current_schema() AND table_name = $1");
}

static void postgres_size(struct bench_side *side, int64_t *data, int64_t *log)
{
    struct sql *sql = side->connections[0];

    *data = sql_get(sql, SQL("SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
                             " JOIN pg_namespace n ON n.oid = c.relnamespace"
                             " WHERE n.nspname = current_schema() AND c.relkind = 'r'"));
    *log = sql_get(sql, SQL("SELECT sum(size)::bigint FROM pg_ls_waldir()"));
}

const struct target_kind target_postgres = {.name = "postgresql",
                                            .start = target_postgres_start,
                                            .stop = postgres_stop,
                                            .open = postgres_open_target,
                                            .close = postgres_close_target,
                                            .spoil = postgres_spoil,
                                            .size = postgres_size};
