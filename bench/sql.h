#ifndef TRUCE_BENCH_SQL_H
#define TRUCE_BENCH_SQL_H

/*
 * One connection to PostgreSQL or SQLite, with prepared statements: a statement is prepared the
 * first time that its text is used. Parameters are $1, $2, ... in the order of their first use.
 * Rows are read in the library's memory, without a copy. A failure calls bench_fail.
 */
#include "bench/bench.h"

struct sql;

struct sql_value {
    int64_t number;
    const char *text; /* The text, or NULL for a number. */
};
#define NUMBER(n) ((struct sql_value){.number = (n)})
#define TEXT(t)   ((struct sql_value){.text = (t)})

struct sql_statement {
    const char *text; /* A literal, which is compared by its address. */
    const struct sql_value *values;
    int count;
};
#define SQL(literal, ...)                                                                          \
    ((struct sql_statement){literal, (struct sql_value[]){__VA_ARGS__},                            \
                            sizeof((struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)})

struct sql *sqlite_connect(const char *path);
/* The address is a connection string of libpq. */
struct sql *postgres_connect(const char *address);
void sql_close(struct sql *sql);

/* Executes statements without a result, several in one text. */
void sql_execute(struct sql *sql, const char *text);

/* Runs a statement, or several in one round trip, of which the last one returns the rows. Each
 * start needs a finish, which returns the number of rows that the last statement changed. */
void sql_start(struct sql *sql, struct sql_statement statement);
void sql_start_all(struct sql *sql, const struct sql_statement *statements, int count);
bool sql_next(struct sql *sql); /* Moves to the first, or to the next, row. */
int64_t sql_number(struct sql *sql, int column);
const char *sql_text(struct sql *sql, int column); /* Valid until the next row. */
int64_t sql_finish(struct sql *sql);

/* Does what start and finish do. */
int64_t sql_run(struct sql *sql, struct sql_statement statement);
/* Returns the number in the first column of the first row, or 0 without a row. */
int64_t sql_get(struct sql *sql, struct sql_statement statement);

/* Deletes one row of each existing table of the workloads. `exists` counts the tables of a name. */
void sql_spoil(struct sql *sql, const char *exists);

/* ---- for the two of them --------------------------------------------------------------------- */

struct sql_ops {
    void (*close)(struct sql *sql);
    void (*execute)(struct sql *sql, const char *text);
    void (*start)(struct sql *sql, const struct sql_statement *statements, int count);
    bool (*next)(struct sql *sql);
    int64_t (*number)(struct sql *sql, int column);
    const char *(*text)(struct sql *sql, int column);
    int64_t (*finish)(struct sql *sql);
};

struct sql {
    const struct sql_ops *ops;
};

#endif
