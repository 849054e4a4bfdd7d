/*
 * Ordered sets on the peers:
 *
 *     rows    one row for each element; INSERT ... ON CONFLICT DO UPDATE if the number is higher
 *     jsonb   one row for each student with two objects, classes and deleted, whose keys are the
 *             names: one INSERT ... ON CONFLICT DO UPDATE, like truce's document
 *     redis   one hash for each student; a script compares the numbers
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "bench/redis.h"
#include "bench/sql.h"
#include "bench/workloads/sets.h"

#define UPSERT                                                                                     \
    " ON CONFLICT (owner, name) DO UPDATE SET seq = excluded.seq, removed = excluded.removed"      \
    " WHERE excluded.seq > elements.seq"

/* ---- rows ------------------------------------------------------------------------------------ */

void set_rows_setup(struct bench_side *side)
{
    bool postgres = !strcmp(side->target->name, "postgresql");
    struct sql *sql = side->connections[0];

    sql_execute(sql,
                postgres
                    ? "CREATE TABLE elements(owner bigint, name text, seq bigint NOT NULL,"
                      " removed bigint NOT NULL, PRIMARY KEY (owner, name)) WITH (fillfactor = 80)"
                    : "CREATE TABLE elements(owner integer, name text, seq integer,"
                      " removed integer, PRIMARY KEY (owner, name)) WITHOUT ROWID");
    sql_run(sql, SQL("WITH RECURSIVE t(i) AS"
                     " (SELECT 0 UNION ALL SELECT i + 1 FROM t WHERE i + 1 < $1)"
                     " INSERT INTO elements(owner, name, seq, removed)"
                     " SELECT i / 50, 'CS ' || (i % 50), i + 1, 0 FROM t",
                     NUMBER(FILLED)));
    sql_execute(sql, postgres ? "VACUUM ANALYZE elements" : "ANALYZE");
    sets_fill(side);
}

static void apply_row(struct sql *sql, const struct set_operation *o)
{
    sql_run(sql, SQL("INSERT INTO elements(owner, name, seq, removed)"
                     " VALUES ($1, $2, $3, $4)" UPSERT,
                     NUMBER(o->set), TEXT(o->text), NUMBER(o->seq), NUMBER(o->remove)));
}

int64_t set_rows_one(struct bench_call *call)
{
    struct set_operation o;

    sets_draw(call->side, &o);
    apply_row(call->connection, &o);
    return 1;
}

int64_t set_rows_batch_sqlite(struct bench_call *call)
{
    sql_run(call->connection, SQL("BEGIN IMMEDIATE"));
    for (int i = 0; i < BATCH; i++) {
        struct set_operation o;

        sets_draw(call->side, &o);
        apply_row(call->connection, &o);
    }
    sql_run(call->connection, SQL("COMMIT"));
    return BATCH;
}

struct array {
    char text[BATCH * 24];
    size_t size;
};

static void array_add(struct array *array, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void array_add(struct array *array, const char *format, ...)
{
    va_list arguments;

    array->text[array->size] = array->size ? ',' : '{';
    array->size++;
    va_start(arguments, format);
    array->size += (size_t)vsnprintf(array->text + array->size, 22, format, arguments);
    va_end(arguments);
}

/* Applies a batch in one statement. DISTINCT ON selects the winner of each element, and the order
 * prevents deadlocks. */
int64_t set_rows_batch_postgres(struct bench_call *call)
{
    struct array *arrays = bson_malloc0(4 * sizeof *arrays);

    for (int i = 0; i < BATCH; i++) {
        struct set_operation o;

        sets_draw(call->side, &o);
        array_add(&arrays[0], "%" PRId64, o.set);
        array_add(&arrays[1], "\"%s\"", o.text);
        array_add(&arrays[2], "%" PRId64, o.seq);
        array_add(&arrays[3], "%d", o.remove);
    }
    for (int i = 0; i < 4; i++)
        strcpy(arrays[i].text + arrays[i].size, "}");
    sql_run(call->connection,
            SQL("INSERT INTO elements(owner, name, seq, removed)"
                " SELECT DISTINCT ON (owner, name) owner, name, seq, removed"
                " FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])"
                "   AS t(owner, name, seq, removed)"
                " ORDER BY owner, name, seq DESC" UPSERT,
                TEXT(arrays[0].text), TEXT(arrays[1].text), TEXT(arrays[2].text),
                TEXT(arrays[3].text)));
    bson_free(arrays);
    return BATCH;
}

static void peers_compare_rows(struct bench_side *side, struct sql_statement statement)
{
    struct sets_found *found = bson_malloc0(sizeof *found);
    struct sql *sql = side->connections[0];

    sql_start(sql, statement);
    while (sql_next(sql))
        sets_found_add(found, sql_number(sql, 0), sql_text(sql, 1), sql_number(sql, 2),
                       sql_number(sql, 3) == 1);
    sql_finish(sql);
    sets_compare(side, found);
    bson_free(found);
}

void set_rows_check(struct bench_side *side)
{
    peers_compare_rows(side, SQL("SELECT owner, name, seq, removed FROM elements"));
}

/* ---- jsonb ----------------------------------------------------------------------------------- */

void set_jsonb_setup(struct bench_side *side)
{
    sql_execute(side->connections[0],
                "CREATE TABLE students(id bigint PRIMARY KEY, classes jsonb NOT NULL,"
                " deleted jsonb NOT NULL) WITH (fillfactor = 80)");
    sql_run(side->connections[0],
            SQL("INSERT INTO students SELECT s, (SELECT jsonb_object_agg('CS ' || n,"
                " jsonb_build_object('seq', s * 50 + n + 1)) FROM generate_series(0, 49) n), '{}'"
                " FROM generate_series(0, $1 - 1) s",
                NUMBER(SETS)));
    sql_execute(side->connections[0], "VACUUM ANALYZE students");
    sets_fill(side);
}

#define NEWER                                                                                      \
    " WHERE coalesce((students.classes -> $2 ->> 'seq')::bigint,"                                  \
    " (students.deleted ->> $2)::bigint, 0) < $3"

int64_t set_jsonb_one(struct bench_call *call)
{
    struct set_operation o;

    sets_draw(call->side, &o);
    if (o.remove)
        sql_run(call->connection,
                SQL("INSERT INTO students(id, classes, deleted)"
                    " VALUES ($1, '{}', jsonb_build_object($2::text, $3::bigint))"
                    " ON CONFLICT (id) DO UPDATE SET classes = students.classes - $2,"
                    " deleted = students.deleted || excluded.deleted" NEWER,
                    NUMBER(o.set), TEXT(o.text), NUMBER(o.seq)));
    else
        sql_run(call->connection,
                SQL("INSERT INTO students(id, classes, deleted) VALUES ($1,"
                    " jsonb_build_object($2::text, jsonb_build_object('seq', $3::bigint)), '{}')"
                    " ON CONFLICT (id) DO UPDATE SET"
                    " classes = students.classes || excluded.classes,"
                    " deleted = students.deleted - $2" NEWER,
                    NUMBER(o.set), TEXT(o.text), NUMBER(o.seq)));
    return 1;
}

void set_jsonb_check(struct bench_side *side)
{
    peers_compare_rows(side, SQL("SELECT id, key, (value ->> 'seq')::bigint, 0 FROM students,"
                                 " jsonb_each(classes) UNION ALL"
                                 " SELECT id, key, value::bigint, 1 FROM students,"
                                 " jsonb_each_text(deleted)"));
}

/* ---- redis ----------------------------------------------------------------------------------- */

void set_redis_setup(struct bench_side *side)
{
    struct sets_state *state = side->state;

    snprintf(state->script, sizeof state->script, "%s",
             redis_run(side->connections[0],
                       "SCRIPT|LOAD|local old = redis.call('HGET', KEYS[1], ARGV[1]) "
                       "if old and tonumber(old) >= tonumber(ARGV[2]) then return 0 end "
                       "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1")
                 ->text);
    for (int64_t from = 0; from < FILLED; from += BATCH) {
        for (int64_t i = from; i < from + BATCH; i++)
            redis_queue(side->connections[0], "HSET|s:%" PRId64 "|CS %d|%" PRId64, i / NAMES,
                        (int)(i % NAMES), (i + 1) * 2);
        for (int i = 0; i < BATCH; i++)
            redis_receive(side->connections[0]);
    }
    sets_fill(side);
}

static void queue_one(struct bench_call *call)
{
    struct sets_state *state = call->side->state;
    struct set_operation o;

    sets_draw(call->side, &o);
    redis_queue(call->connection, "EVALSHA|%s|1|s:%" PRId64 "|%s|%" PRId64, state->script, o.set,
                o.text, o.seq * 2 + o.remove);
}

int64_t set_redis_one(struct bench_call *call)
{
    queue_one(call);
    redis_receive(call->connection);
    return 1;
}

int64_t set_redis_batch(struct bench_call *call)
{
    for (int i = 0; i < BATCH; i++)
        queue_one(call);
    for (int i = 0; i < BATCH; i++)
        redis_receive(call->connection);
    return BATCH;
}

void set_redis_check(struct bench_side *side)
{
    struct sets_found *found = bson_malloc0(sizeof *found);

    for (int64_t set = 0; set < SETS; set++) {
        const struct redis_item *items = redis_run(side->connections[0], "HGETALL|s:%" PRId64, set);

        for (int64_t i = 1; i < items[0].number; i += 2) {
            int64_t winner = strtoll(items[i + 1].text, NULL, 10);

            sets_found_add(found, set, items[i].text, winner / 2, winner % 2);
        }
    }
    sets_compare(side, found);
    bson_free(found);
}
