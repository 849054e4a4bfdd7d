/* A server whose disk is full, or fails: its answers, its log, and that it continues. */
#include <stdio.h>
#include <string.h>

#include "tests/support/disk_vfs.h"
#include "tests/support/kept_log.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static char path[600];

static void serve(void)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &(struct server_options){.log = kept_log_new()}, &server, &error));
}

static void begin(void)
{
    disk_reset();
    snprintf(path, sizeof path, "file:%s/served.truce", test_directory());
    serve();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'n': 0}], '$db': 'school'}", 0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
    kept_log_free();
}

static void check_line(const char *field, const char *wanted)
{
    bson_t *line = kept_log_last("command failed in the store");
    bson_iter_t at, found;

    if (CHECK(line && bson_iter_init(&at, line) && bson_iter_find_descendant(&at, field, &found) &&
              BSON_ITER_HOLDS_UTF8(&found)))
        CHECK(strstr(bson_iter_utf8(&found, NULL), wanted));
    bson_destroy(line);
}

#define INSERT "{'insert': 'c', 'documents': [{'_id': 2}, {'_id': 3}], '$db': 'school'}"
#define MANY                                                                                       \
    "{'insert': 'c', 'documents': [{'_id': 4}, {'_id': 1}, {'_id': 5}], 'ordered': false, '$db': 'school'}"
#define UPDATE "{'update': 'c', 'updates': [{'q': {}, 'u': {'$inc': {'n': 1}}}], '$db': 'school'}"

TEST(a_full_disk_has_its_own_code_and_is_reported_to_the_operator)
{
    bson_t *reply;

    begin();
    disk_fail(DISK_FULL, 1, true);
    expect_code(INSERT, 14031);
    expect_code(MANY, 14031); /* of the whole command: no part of it is there */
    expect_code(UPDATE, 14031);
    expect_code("{'create': 'd', '$db': 'school'}", 14031);
    CHECK_INT(kept_log_count("command failed in the store"), ==, 1); /* once in a second */
    check_line("level", "error");
    check_line("component", "store");
    check_line("fields.text", "the disk is full");
    check_line("fields.command", "insert");
    check_line("fields.collection", "c");
    disk_fail(DISK_NO_FAULT, 0, false);
    reply = ask(MANY);
    CHECK_INT(reply_number(reply, "n"), ==, 2);
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 11000);
    bson_destroy(reply);
    expect_code(UPDATE, 0);
    reply = ask("{'count': 'c', '$db': 'school'}");
    CHECK_INT(reply_number(reply, "n"), ==, 3);
    bson_destroy(reply);
    end();
}

/* ---- a commit whose answer was lost ---- */

#define TAIL                                                                                       \
    ", 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "     \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false, '$db': '"
#define COMMIT "{'commitTransaction': 1" TAIL "admin'}"

/* Sends the commit: returns its code, and whether the label is there. */
static void check_commit(int64_t code, const char *label)
{
    bson_t *reply = ask(COMMIT);
    char *text = bson_as_relaxed_extended_json(reply, NULL);

    if ((reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code")) != code ||
        !strstr(text, label))
        test_fail(__FILE__, __LINE__, "%s does not fail with %d and %s", text, (int)code, label);
    bson_free(text);
    bson_destroy(reply);
}

static void check_count(int64_t wanted)
{
    bson_t *reply = ask("{'count': 'c', '$db': 'school'}");

    CHECK_INT(reply_number(reply, "n"), ==, wanted);
    bson_destroy(reply);
}

static void begin_transaction(void)
{
    begin();
    expect_code(
        "{'insert': 'c', 'documents': [{'_id': 2}], 'startTransaction': true" TAIL "school'}", 0);
}

TEST(repeats_a_commit_after_the_disk_was_full)
{
    begin_transaction();
    disk_fail(DISK_FULL, 1, true);
    check_commit(14031, "UnknownTransactionCommitResult");
    disk_fail(DISK_NO_FAULT, 0, false);
    check_commit(251, "TransientTransactionError");
    check_commit(251, "TransientTransactionError");
    check_count(1);
    end();
}

TEST(finds_a_written_but_unsynced_commit_in_the_next_server)
{
    begin_transaction();
    disk_fail(DISK_SYNC_FAILS, 1, true);
    check_commit(8, "UnknownTransactionCommitResult");
    check_commit(8, "UnknownTransactionCommitResult"); /* such a file has to be opened again */
    disk_fail(DISK_NO_FAULT, 0, false);
    end();
    serve();
    check_commit(0, "ok");
    check_count(2);
    end();
}

TEST(a_failed_disk_is_reported_to_the_operator)
{
    begin();
    disk_fail(DISK_WRITE_FAILS, 1, true);
    expect_code(INSERT, 8);
    CHECK_INT(kept_log_count("command failed in the store"), ==, 1);
    disk_fail(DISK_NO_FAULT, 0, false);
    end();
}
