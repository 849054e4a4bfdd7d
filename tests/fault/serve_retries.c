/*
 * A write is sent again after every possible fault. The server dies before or after each call of
 * the store, or an answer of the store is lost. In other runs the disk fails or loses its power at
 * each of its calls. In the end the write was done once.
 */
#include <string.h>
#include <sys/stat.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "tests/support/trouble.h"

#define TAIL_IN(database)                                                                          \
    ", 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "     \
    "'txnNumber': {'$numberLong': '%d'}, '$db': '" database "'}"
#define TAIL TAIL_IN("test")

/* All commands have one number each. */
static const char *const commands[] = {
    "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]" TAIL,
    "{'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'$inc': {'v': 1}}" TAIL,
    "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}, {'q': {'_id': 2}, "
    "'u': {'$inc': {'v': 1}}, 'upsert': true}]" TAIL,
    "{'insert': 'd', 'documents': [{}, {}]" TAIL, /* different each time, if they were done twice */
    "{'delete': 'e', 'deletes': [{'q': {}, 'limit': 1}]" TAIL,
    "{'bulkWrite': 1, 'nsInfo': [{'ns': 'test.c'}, {'ns': 'test.d'}, {'ns': 'school.d'}], 'ops': "
    "[{'update': 0, 'filter': {'_id': 1}, 'updateMods': {'$inc': {'v': 1}}}, {'insert': 1, "
    "'document': {}}, {'insert': 2, 'document': {}}]" TAIL_IN("admin"),
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static char path[600];

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static bool open_file(void)
{
    bson_error_t error = {0};

    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static bool serve(void)
{
    bson_error_t error = {0};

    return CHECK_OK(server_start(store, NULL, &server, &error), error);
}

static bool done(const bson_t *reply)
{
    return reply_number(reply, "ok") == 1 && reply_number(reply, "writeErrors.0.code") < 0 &&
           reply_number(reply, "nErrors") <= 0;
}

/* Sends the commands, one after the other, until one fails: returns its number. */
static int run_from(int first)
{
    bool well = true;

    while (first < COMMANDS && well) {
        char text[700];
        bson_t *reply;

        snprintf(text, sizeof text, commands[first], first + 1);
        reply = ask(text);
        well = reply && done(reply);
        first += well;
        bson_destroy(reply);
    }
    return first;
}

static int64_t count_json_of(const char *collection)
{
    bson_error_t error = {0};
    int64_t n = -1;

    CHECK_OK(truce_count(store, collection, NULL, NULL, &n, &error), error);
    return n;
}

static int64_t v_of(int id)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), document;
    bson_error_t error = {0};
    int64_t v;

    CHECK_OK(truce_find_one(store, "c", filter, NULL, &document, &error), error);
    v = reply_number(&document, "v");
    bson_destroy(&document);
    bson_destroy(filter);
    return v;
}

static void fill(void)
{
    bson_error_t error = {0};
    static const char *const documents[][2] = {
        {"c", "{'_id': 1, 'v': 0}"}, {"e", "{'_id': 1}"}, {"e", "{'_id': 2}"}};

    for (int i = 0; i < 3; i++) {
        bson_t *document = test_bson(documents[i][1]);

        CHECK_OK(truce_insert(store, documents[i][0], document, NULL, &error), error);
        bson_destroy(document);
    }
}

static bool judge(void)
{
    int before = test_failures();

    CHECK_INT(v_of(1), ==, 4);
    CHECK_INT(v_of(2), ==, 1);
    CHECK_INT(count_json_of("d"), ==, 3);
    CHECK_INT(count_json_of("@school.d"), ==, 1);
    CHECK_INT(count_json_of("e"), ==, 1);
    return test_failures() == before;
}

/* ---- calls of the store --------------------------------------------------------------------- */

/* False: the fault did not happen any more. */
static bool suffer(enum trouble trouble, uint64_t at, int round)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *inner;
    int reached;
    bool hit;

    disk_reset();
    snprintf(path, sizeof path, "%s/%d-%d.truce", test_directory(), (int)trouble, round);
    if (!open_file())
        return false;
    fill();
    inner = truce_fault_wrap(store, &none);
    store = truce_fault_wrap(inner, &none);
    if (!serve())
        return false;
    trouble_arm(inner, store, trouble, at);
    reached = run_from(0);
    hit = truce_fault_hits(store) + truce_fault_hits(inner) > 0;
    if (trouble != LOSE)
        server_stop(server, 5000);
    trouble_arm(inner, store, NONE, 0);
    if (trouble != LOSE && !serve())
        return false;
    CHECK_INT(run_from(reached), ==, COMMANDS);
    CHECK_INT(run_from(COMMANDS - 1), ==, COMMANDS);
    server_stop(server, 5000);
    if (!judge())
        fprintf(stderr, "    trouble %d at %d\n", (int)trouble, (int)at);
    truce_store_close(store);
    return hit;
}

TEST(writes_once_after_a_crash_at_any_call_of_the_store)
{
    for (enum trouble trouble = DIE_BEFORE; trouble <= LOSE; trouble++) {
        uint64_t at = 1;

        while (suffer(trouble, at, (int)at) && !test_failures() && at < 100)
            at++;
        CHECK_INT(at, >, COMMANDS);
    }
}

/* ---- calls of the disk ---------------------------------------------------------------------- */

/* False: the fault did not happen any more. */
static bool fail_disk(enum disk_fault fault, int64_t at)
{
    int reached, again;
    bool hit;

    disk_reset();
    snprintf(path, sizeof path, "%s/disk%d-%d.truce", test_directory(), (int)fault, (int)at);
    if (!open_file())
        return false;
    fill();
    if (!serve())
        return false;
    disk_fail(fault, at, false);
    reached = run_from(0);
    again = run_from(reached); /* as drivers do, at once */
    hit = disk_faults() > 0;
    disk_fail(DISK_NO_FAULT, 0, false);
    server_stop(server, 5000);
    truce_store_close(store);
    if (!open_file() || !serve())
        return false;
    CHECK_INT(run_from(again), ==, COMMANDS);
    CHECK_INT(run_from(COMMANDS - 1), ==, COMMANDS);
    server_stop(server, 5000);
    if (!judge())
        fprintf(stderr, "    fault %d at %d\n", (int)fault, (int)at);
    truce_store_close(store);
    return hit;
}

TEST(writes_once_if_any_call_of_the_disk_fails)
{
    static const enum disk_fault faults[] = {DISK_WRITE_FAILS, DISK_SYNC_FAILS, DISK_FULL};

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int64_t at = 1;

        while (fail_disk(faults[i], at) && !test_failures() && at < 200)
            at++;
        CHECK_INT(at, >, 3);
    }
    disk_reset();
}

/* False: the power cut did not happen any more. */
static bool cut(int64_t at, struct random *random)
{
    char directory[500];
    int reached;
    bool hit;

    disk_reset();
    snprintf(path, sizeof path, "%s/before.truce", test_directory());
    snprintf(directory, sizeof directory, "%.*s/cut%d", (int)(strrchr(path, '/') - path), path,
             (int)at);
    if (!open_file())
        return false;
    fill();
    if (!serve())
        return false;
    disk_cut_after(at);
    reached = run_from(0);
    hit = disk_is_cut();
    if (!hit)
        disk_cut();
    server_stop(server, 5000);
    mkdir(directory, 0700);
    disk_restore(directory, random);
    truce_store_close(store);
    disk_reset();
    snprintf(path, sizeof path, "%s/before.truce", directory);
    if (!open_file() || !serve())
        return false;
    CHECK_INT(run_from(reached), ==,
              COMMANDS); /* an acknowledged write is there, and is not requested again */
    CHECK_INT(run_from(COMMANDS - 1), ==, COMMANDS);
    server_stop(server, 5000);
    if (!judge())
        fprintf(stderr, "    the power went at %d\n", (int)at);
    truce_store_close(store);
    return hit;
}

TEST(executes_a_retried_write_once_despite_a_power_cut_at_any_time)
{
    struct random random;
    int64_t at = 1;

    truce__random_seed(&random, test_seed());
    while (cut(at, &random) && !test_failures() && at < 200)
        at++;
    CHECK_INT(at, >, COMMANDS);
    disk_reset();
}
