/* Reads of one snapshot by several commands: readConcern {level: "snapshot", atClusterTime}. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "engine/documents/open_documents.h"
#include "server/session/change_stream.h"
#include "store/decorators/database_view.h"
#include "store/file/file.h"
#include "tests/support/half_commit.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static char store_path[600]; /* of the store, where it is a file */
static uint64_t log_bytes;   /* bytes that a snapshot may pin; 0: the default */

static void begin_with(const char *name, int64_t snapshot_ms, bool memory)
{
    const struct server_options options = {.replica_set = "rs", .snapshot_ms = snapshot_ms};
    bson_error_t error = {0};

    snprintf(store_path, sizeof store_path, "%s/%s.truce", test_directory(), name);
    REQUIRE(!truce_store_open(memory ? "memory:" : store_path,
                              &(truce_store_options){.snapshot_log_bytes = log_bytes}, &store,
                              &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}, {'_id': 2, 'v': 2}], '$db': "
                "'test'}",
                0);
}

static void begin(const char *name)
{
    begin_with(name, 0, false);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* Runs a read; `time` 0: in a new snapshot. */
static char *read_at(const char *command, uint64_t time)
{
    static char text[1000];
    char at[100] = "";

    if (time)
        snprintf(at, sizeof at, ", 'atClusterTime': {'$timestamp': {'t': %u, 'i': %u}}",
                 (unsigned)(time >> 32), (unsigned)time);
    snprintf(text, sizeof text, "{%s, 'readConcern': {'level': 'snapshot'%s}, '$db': 'test'}",
             command, at);
    return text;
}

/* Returns the snapshot time of the answer, or 0. */
static uint64_t time_of(const bson_t *reply, const char *path)
{
    uint32_t seconds = 0, number = 0;
    bson_iter_t iter, found;

    if (reply && bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found) &&
        BSON_ITER_HOLDS_TIMESTAMP(&found))
        bson_iter_timestamp(&found, &seconds, &number);
    return (uint64_t)seconds << 32 | number;
}

#define FIND     "'find': 'c', 'filter': {'_id': 1}"
#define DISTINCT "'distinct': 'c', 'key': 'v', 'query': {'_id': 1}"
#define COUNT    "'aggregate': 'c', 'pipeline': [{'$match': {'v': 1}}, {'$count': 'n'}], 'cursor': {}"
#define STEP                                                                                       \
    "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}], '$db': 'test'}"

static uint64_t new_time(void)
{
    bson_t *reply = ask(read_at(FIND, 0));
    uint64_t time = time_of(reply, "cursor.atClusterTime");

    CHECK(time);
    bson_destroy(reply);
    return time;
}

static void expect_v(uint64_t time, int64_t v)
{
    bson_t *reply = ask(read_at(FIND, time));

    CHECK_INT(v, ==, reply_number(reply, "cursor.firstBatch.0.v"));
    CHECK(time_of(reply, "cursor.atClusterTime") == time);
    bson_destroy(reply);
    reply = ask(read_at(DISTINCT, time));
    CHECK_INT(v, ==, reply_number(reply, "values.0"));
    CHECK(time_of(reply, "atClusterTime") == time);
    bson_destroy(reply);
    reply = ask(read_at(COUNT, time));
    CHECK_INT(v == 1 ? 1 : -1, ==, reply_number(reply, "cursor.firstBatch.0.n"));
    CHECK(time_of(reply, "cursor.atClusterTime") == time);
    bson_destroy(reply);
}

TEST(reads_a_snapshot_again_by_its_time)
{
    for (int memory = 0; memory < 2; memory++) {
        uint64_t times[5];
        bson_t *reply;

        begin_with("again", 0, memory);
        for (int i = 0; i < 5; i++) {
            times[i] = new_time();
            CHECK(!i || times[i] > times[i - 1]);
            expect_code(STEP, 0);
        }
        for (int i = 4; i >= 0; i--)
            expect_v(times[i], i + 1);
        reply = ask("{'find': 'c', 'filter': {'_id': 1}, '$db': 'test'}");
        CHECK_INT(6, ==, reply_number(reply, "cursor.firstBatch.0.v"));
        CHECK(!time_of(reply, "cursor.atClusterTime"));
        CHECK(time_of(reply, "operationTime") >= times[4]);
        bson_destroy(reply);
        end();
    }
}

TEST(does_not_read_a_snapshot_by_an_unreported_time)
{
    uint64_t time;

    begin("unreported");
    time = new_time();
    expect_code(read_at(FIND, time - 1), 246);
    expect_code(read_at(FIND, time + ((uint64_t)100000 << 32)), 72);
    expect_code(read_at(FIND, time - ((uint64_t)100000 << 32)), 239);
    end();
}

TEST(refuses_impossible_commands_in_a_snapshot_session)
{
    static const char *const wrong[] = {
        "'count': 'c'",
        "'insert': 'c', 'documents': [{}]",
        "'update': 'c', 'updates': [{'q': {}, 'u': {'$set': {'v': 9}}}]",
        "'findAndModify': 'c', 'remove': true",
        "'listCollections': 1",
        "'listIndexes': 'c'",
        "'ping': 1",
        "'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}",
    };

    begin("refused");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_code(read_at(wrong[i], 0), 72);
    expect_code(read_at("'aggregate': 'c', 'pipeline': [{'$out': 'd'}], 'cursor': {}", 0), 2);
    expect_code("{'find': 'c', 'readConcern': {'level': 'snapshot', 'atClusterTime': 1}, '$db': "
                "'test'}",
                14);
    expect_code("{'find': 'c', 'readConcern': {'level': 'snapshot', 'atClusterTime': "
                "{'$timestamp': {'t': 0, 'i': 0}}}, '$db': 'test'}",
                72);
    expect_code("{'find': 'c', 'readConcern': {'level': 'majority', 'atClusterTime': "
                "{'$timestamp': {'t': 1, 'i': 1}}}, '$db': 'test'}",
                72);
    expect_v(new_time(), 1); /* nothing was written */
    end();
}

static int64_t first_of_two(uint64_t *time)
{
    bson_t *reply = ask(read_at("'find': 'c', 'batchSize': 1", 0));
    int64_t id = reply_number(reply, "cursor.id");

    CHECK(id > 0);
    *time = time_of(reply, "cursor.atClusterTime");
    bson_destroy(reply);
    return id;
}

static void expect_second(int64_t id, uint64_t time)
{
    char command[200];
    bson_t *reply;

    snprintf(command, sizeof command, "'getMore': {'$numberLong': '%lld'}, 'collection': 'c'",
             (long long)id);
    reply = ask(read_at(command, time)); /* as drivers do */
    CHECK_INT(2, ==, reply_number(reply, "cursor.nextBatch.0.v"));
    CHECK(time_of(reply, "cursor.atClusterTime") == time);
    bson_destroy(reply);
}

TEST(reads_a_cursor_in_its_own_snapshot_and_ends_it)
{
    char command[200];
    uint64_t time;
    int64_t id, other;

    begin("cursors");
    other = first_of_two(&time);
    id = first_of_two(&time);
    expect_code("{'delete': 'c', 'deletes': [{'q': {'_id': 2}, 'limit': 1}], '$db': 'test'}", 0);
    expect_second(id, time);
    snprintf(command, sizeof command, "'killCursors': 'c', 'cursors': [{'$numberLong': '%lld'}]",
             (long long)other);
    for (int killed = 1; killed >= 0; killed--) {
        bson_t *reply = ask(read_at(command, time));

        CHECK_INT(killed, ==, reply_number(reply, "cursorsKilled.0") > 0);
        bson_destroy(reply);
    }
    end();
}

TEST(evicts_the_longest_idle_one_at_the_maximum)
{
    uint64_t times[TRUCE_SERVER_SNAPSHOTS_MAX + 1], time;
    int64_t id;

    begin("many");
    id = first_of_two(&time);
    expect_code("{'delete': 'c', 'deletes': [{'q': {'_id': 2}, 'limit': 1}], '$db': 'test'}", 0);
    for (int i = 0; i < TRUCE_SERVER_SNAPSHOTS_MAX; i++) {
        times[i] = new_time();
        if (i == TRUCE_SERVER_SNAPSHOTS_MAX - 2)
            expect_code(read_at(FIND, times[0]), 0); /* that of 1 is the oldest then */
    }
    expect_code(read_at(FIND, times[0]), 0);
    expect_code(read_at(FIND, times[1]), 246);
    expect_code(read_at(FIND, times[2]), 0);
    expect_second(id, time); /* the snapshot of an open cursor is not evicted */
    end();
}

TEST(lets_only_open_cursors_read_beyond_the_window)
{
    bool over = false;
    uint64_t time;
    int64_t id;

    begin_with("window", 50, false);
    id = first_of_two(&time);
    for (int i = 0; i < 1000 && !over; i++) {
        bson_t *reply = ask(read_at(FIND, time));

        over = reply_number(reply, "code") == 239;
        bson_destroy(reply);
        truce__clock_sleep_ms(20);
    }
    CHECK(over);
    expect_second(id, time);
    end();
}

/* Writes more than a snapshot may pin. */
static void write_much(void)
{
    char *text = bson_malloc(300000),
         *at = text + sprintf(text, "{'insert': 'd', 'documents': [{'t': '");

    memset(at, 'x', 250000);
    sprintf(at + 250000, "'}], '$db': 'test'}");
    expect_code(text, 0);
    bson_free(text);
}

TEST(reports_an_ended_snapshot_as_too_old)
{
    bool over = false;
    uint64_t time;

    log_bytes = 100000;
    begin("ended");
    log_bytes = 0;
    time = new_time();
    for (int i = 0; i < 1000 && !over; i++) {
        bson_t *reply;

        write_much();
        reply = ask(read_at(FIND, time));
        over = reply_number(reply, "code") == 239;
        CHECK(over || reply_number(reply, "ok") == 1);
        bson_destroy(reply);
        truce__clock_sleep_ms(5);
    }
    CHECK(over);
    end();
}

/* ---- restarts -------------------------------------------------------------------------------- */

/* Lets the server continue from a time that far ahead of the clock, so the next server has a clock
 * that was set back. */
static void pass_seconds(int64_t seconds)
{
    truce__feed_pass(&truce__file_engine_or_null(store)->writer,
                     truce__feed_position(truce__clock_wall_ms() / 1000 + seconds, 0));
}

static void restart(void)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};

    end();
    REQUIRE(!truce_store_open(store_path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

/* A server that starts within the same second, or with a clock that was set back, gives no time
 * again. */
TEST(no_time_of_a_snapshot_is_given_again_after_a_restart)
{
    static const int64_t ahead_s[] = {0, 0, 5, 3600, 0, 7200, 0};
    uint64_t last = 0, first = 0;

    begin("restarts");
    for (size_t i = 0; i < sizeof ahead_s / sizeof *ahead_s; i++) {
        bson_t *reply;

        if (ahead_s[i])
            pass_seconds(ahead_s[i]);
        for (int j = 0; j < 3; j++) {
            uint64_t time = new_time();

            if (time <= last)
                test_fail(__FILE__, __LINE__, "start %zu, snapshot %d: %llx after %llx", i, j,
                          (unsigned long long)time, (unsigned long long)last);
            last = time;
        }
        first = first ? first : last;
        restart();
        reply = ask("{'ping': 1, '$db': 'admin'}");
        CHECK(time_of(reply, "operationTime") > last);
        bson_destroy(reply);
        expect_code(read_at(FIND, first), 246); /* the old snapshot is gone with the server */
    }
    end();
}

/* Two servers of one file at once: their times differ, so neither accepts the times of the
 * other. */
TEST(servers_of_one_file_give_no_time_twice)
{
    const struct server_options options = {.replica_set = "rs"};
    struct server *one, *other;
    bson_error_t error = {0};
    uint64_t times[20];

    begin("two");
    one = server;
    REQUIRE(!server_start(store, &options, &other, &error));
    for (int i = 0; i < 20; i++) {
        server = i % 2 ? other : one;
        times[i] = new_time();
        for (int j = 0; j < i; j++)
            CHECK(times[j] != times[i]);
    }
    server_stop(other, 5000);
    server = one;
    end();
}

/* ---- commits that are decided and not released ----------------------------------------------- */

static int64_t number_at(const char *database, const char *command, const char *path,
                         uint64_t *time)
{
    char text[1000], at[100] = "";
    bson_t *reply;
    int64_t number;

    if (*time)
        snprintf(at, sizeof at, ", 'atClusterTime': {'$timestamp': {'t': %u, 'i': %u}}",
                 (unsigned)(*time >> 32), (unsigned)*time);
    snprintf(text, sizeof text, "{%s, 'readConcern': {'level': 'snapshot'%s}, '$db': '%s'}",
             command, at, database);
    reply = ask(text);
    CHECK(reply && reply_number(reply, "ok") == 1);
    number = reply_number(reply, path);
    if (!*time)
        *time = time_of(reply, "cursor.atClusterTime");
    bson_destroy(reply);
    return number;
}

/* The results of the reads of one snapshot, before the commit and after it. */
static const struct {
    const char *command, *path;
    int64_t before, after;
} commit_reads[] = {
    {"'find': 'm0', 'filter': {'_id': 'mover'}", "cursor.firstBatch.0.a", 7, -1},
    {"'find': 'm1', 'filter': {'_id': 'mover'}", "cursor.firstBatch.0.a", -1, 7},
    {"'find': 'm1', 'sort': {'n': -1}, 'limit': 1", "cursor.firstBatch.0.n", 1, 9},
    {"'find': 'm0', 'filter': {'n': 2}, 'hint': {'n': 1}", "cursor.firstBatch.0.n", -1, 2},
    {"'aggregate': 'm0', 'cursor': {}, 'pipeline': [{'$count': 'n'}]", "cursor.firstBatch.0.n", 3,
     2},
    {"'aggregate': 'm1', 'cursor': {}, 'pipeline': [{'$count': 'n'}]", "cursor.firstBatch.0.n", 1,
     3},
    {"'aggregate': 'names', 'cursor': {}, 'pipeline': [{'$unionWith': 'm0'}, {'$unionWith': 'm1'},"
     " {'$count': 'n'}]",
     "cursor.firstBatch.0.n", 5, 6},
    {"'aggregate': 'names', 'cursor': {}, 'pipeline': [{'$lookup': {'from': 'm1', 'localField': 'of',"
     " 'foreignField': '_id', 'as': 'found'}}]",
     "cursor.firstBatch.0.found.0.n", -1, 9},
    {"'distinct': 'm0', 'key': 'n', 'query': {'_id': 'changed'}", "values.0", 1, 2},
    {"'find': 'v1', 'filter': {'_id': 'mover'}", "cursor.firstBatch.0.a", -1, 7},
};

static bool see_half(const char *database, uint64_t at, int seen_so[2])
{
    truce_store *view, *broken;
    uint64_t time = 0;
    bool died;
    int seen = -1;
    char text[200];

    begin_with("half", 0, true);
    view = strcmp(database, "test") ? truce__database_open(store, "test", database) : store;
    broken = truce_fault_wrap(view, &(truce_fault_options){0});
    half_commit_fill(broken);
    snprintf(text, sizeof text, "{'create': 'v1', 'viewOn': 'm1', 'pipeline': [], '$db': '%s'}",
             database);
    expect_code(text, 0);
    died = half_commit_end_at(broken, at);
    for (size_t i = 0; i < sizeof commit_reads / sizeof *commit_reads; i++) {
        int64_t number = number_at(database, commit_reads[i].command, commit_reads[i].path, &time);
        bool after = number == commit_reads[i].after;

        if (!i)
            seen = after;
        if (after != seen || (!after && number != commit_reads[i].before))
            test_fail(__FILE__, __LINE__, "%s: write %d, {%s}: %lld", database, (int)at,
                      commit_reads[i].command, (long long)number);
    }
    seen_so[seen]++;
    server_stop(server, 5000);
    truce_store_close(broken); /* and its inner store */
    if (view != store)
        truce_store_close(store);
    return died;
}

TEST(shows_a_commit_wholly_or_not_at_all_in_a_snapshot_session)
{
    static const char *const databases[] = {"test", "shop"};

    for (int i = 0; i < 2; i++) {
        int seen_so[2] = {0};

        for (uint64_t at = 1; at < 30 && see_half(databases[i], at, seen_so); at++)
            ;
        CHECK_INT(seen_so[0], >, 2);
        CHECK_INT(seen_so[1], >, 2);
    }
}
