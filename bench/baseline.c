#include "bench/baseline.h"

#include <string.h>

#include <sqlite3.h>

#include "bench/bench.h"
#include "bench/documents.h"

enum statement { BEGIN, COMMIT, READ, INSERT, WRITE, APPLY, STATEMENTS };

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [READ] = "SELECT body FROM documents WHERE id = ?1",
    [INSERT] = "INSERT INTO documents(id, body) VALUES (?1, ?2)",
    [WRITE] = "UPDATE documents SET body = ?2 WHERE id = ?1",
    [APPLY] = "INSERT INTO elements(owner, name, seq, removed) VALUES (?1, ?2, ?3, ?4)"
              " ON CONFLICT DO UPDATE SET seq = excluded.seq, removed = excluded.removed"
              " WHERE excluded.seq > seq",
};

struct connection {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
};

struct baseline {
    int callers;
    struct connection *connections;
};

static void must(struct connection *c, int code)
{
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW)
        bench_fail("sqlite", 0, "baseline", sqlite3_errmsg(c->db));
}

static void execute(struct connection *c, const char *text)
{
    must(c, sqlite3_exec(c->db, text, NULL, NULL, NULL));
}

static void run(struct connection *c, enum statement s)
{
    must(c, sqlite3_step(c->statements[s]));
    must(c, sqlite3_reset(c->statements[s]));
}

struct baseline *baseline_open(const char *path, int callers)
{
    struct baseline *b = bson_malloc0(sizeof *b);

    b->callers = callers;
    b->connections = bson_malloc0((size_t)callers * sizeof *b->connections);
    for (int i = 0; i < callers; i++) {
        struct connection *c = &b->connections[i];

        must(c, sqlite3_open(path, &c->db));
        sqlite3_busy_timeout(c->db, 60000);
        execute(c, "PRAGMA journal_mode = WAL");
        execute(c, "PRAGMA synchronous = FULL");
        execute(c, "CREATE TABLE IF NOT EXISTS documents(id INTEGER PRIMARY KEY, body BLOB)");
        execute(c, "CREATE TABLE IF NOT EXISTS elements(owner, name, seq, removed,"
                   " PRIMARY KEY(owner, name)) WITHOUT ROWID");
        for (int s = 0; s < STATEMENTS; s++)
            must(c, sqlite3_prepare_v2(c->db, texts[s], -1, &c->statements[s], NULL));
    }
    return b;
}

void baseline_close(struct baseline *b)
{
    for (int i = 0; i < b->callers; i++) {
        for (int s = 0; s < STATEMENTS; s++)
            sqlite3_finalize(b->connections[i].statements[s]);
        sqlite3_close(b->connections[i].db);
    }
    bson_free(b->connections);
    bson_free(b);
}

static void insert(struct connection *c, int64_t id)
{
    bson_t document;

    document_make(id, &document);
    sqlite3_bind_int64(c->statements[INSERT], 1, id);
    sqlite3_bind_blob(c->statements[INSERT], 2, bson_get_data(&document), (int)document.len,
                      SQLITE_TRANSIENT);
    run(c, INSERT);
    bson_destroy(&document);
}

void baseline_fill(struct baseline *b, int64_t count)
{
    struct connection *c = &b->connections[0];

    run(c, BEGIN);
    for (int64_t id = 0; id < count; id++)
        insert(c, id);
    run(c, COMMIT);
}

/* the document's body, copied */
static void read_body(struct connection *c, int64_t id, bson_t *document)
{
    sqlite3_stmt *s = c->statements[READ];
    bson_t borrowed;

    sqlite3_bind_int64(s, 1, id);
    BENCH_CHECK(sqlite3_step(s) == SQLITE_ROW);
    BENCH_CHECK(
        bson_init_static(&borrowed, sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0)));
    bson_copy_to(&borrowed, document);
    must(c, sqlite3_reset(s));
}

int64_t baseline_read(struct baseline *b, int caller, int64_t id)
{
    bson_t document;
    int64_t counter;

    read_body(&b->connections[caller], id, &document);
    counter = document_counter(&document);
    bson_destroy(&document);
    return counter;
}

void baseline_insert(struct baseline *b, int caller, int64_t id)
{
    struct connection *c = &b->connections[caller];

    run(c, BEGIN);
    insert(c, id);
    run(c, COMMIT);
}

/* inside a transaction: read, change, write */
static void add(struct connection *c, int64_t id, int64_t amount)
{
    bson_t document;
    bson_iter_t iter;

    read_body(c, id, &document);
    BENCH_CHECK(bson_iter_init_find(&iter, &document, "counter"));
    bson_iter_overwrite_int64(&iter, bson_iter_int64(&iter) + amount);
    sqlite3_bind_int64(c->statements[WRITE], 1, id);
    sqlite3_bind_blob(c->statements[WRITE], 2, bson_get_data(&document), (int)document.len,
                      SQLITE_TRANSIENT);
    run(c, WRITE);
    bson_destroy(&document);
}

void baseline_increment(struct baseline *b, int caller, int64_t id)
{
    struct connection *c = &b->connections[caller];

    run(c, BEGIN);
    add(c, id, 1);
    run(c, COMMIT);
}

void baseline_move(struct baseline *b, int caller, int64_t from, int64_t to)
{
    struct connection *c = &b->connections[caller];

    run(c, BEGIN);
    add(c, from, -1);
    add(c, to, 1);
    run(c, COMMIT);
}

static int64_t number(struct baseline *b, const char *text)
{
    struct connection *c = &b->connections[0];
    sqlite3_stmt *s = NULL;
    int64_t value;

    must(c, sqlite3_prepare_v2(c->db, text, -1, &s, NULL));
    value = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return value;
}

int64_t baseline_count(struct baseline *b)
{
    return number(b, "SELECT count(*) FROM documents");
}

int64_t baseline_sum(struct baseline *b)
{
    int64_t sum = 0, most = number(b, "SELECT max(id) FROM documents");

    for (int64_t id = 0; id <= most; id++)
        sum += baseline_read(b, 0, id);
    return sum;
}

void baseline_apply(struct baseline *b, int caller, const struct baseline_operation *operations,
                    int count)
{
    struct connection *c = &b->connections[caller];
    sqlite3_stmt *s = c->statements[APPLY];

    run(c, BEGIN);
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int64(s, 1, operations[i].set);
        sqlite3_bind_int64(s, 2, operations[i].name);
        sqlite3_bind_int64(s, 3, operations[i].seq);
        sqlite3_bind_int64(s, 4, operations[i].remove);
        run(c, APPLY);
    }
    run(c, COMMIT);
}

int64_t baseline_element(struct baseline *b, int64_t set, int64_t name)
{
    char text[160];

    snprintf(text, sizeof text,
             "SELECT seq * 2 + removed FROM elements WHERE owner = %lld AND name = %lld",
             (long long)set, (long long)name);
    return number(b, text);
}
