/* collectionUUID: a command applies to the collection with that uuid, or it fails with an error
 * that names the collection with the uuid. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(const char *name)
{
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/%s", test_directory(), name);
    REQUIRE(!truce_store_open(*name ? path : "memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    done("{'insert': 'c', 'documents': [{'_id': 0}], '$db': 'school'}");
    done("{'insert': 'other', 'documents': [{'_id': 0}], '$db': 'school'}");
    done("{'createIndexes': 'c', 'indexes': [{'key': {'y': 1}, 'name': 'y'}], '$db': 'school'}");
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* As Extended JSON, into `text`. */
static void uuid_of(const char *collection, char text[100])
{
    char command[200];
    bson_iter_t at, found;
    bson_t *reply;

    snprintf(command, sizeof command,
             "{'listCollections': 1, 'filter': {'name': '%s'}, '$db': 'school'}", collection);
    reply = ask(command);
    text[0] = 0;
    if (CHECK(bson_iter_init(&at, reply) &&
              bson_iter_find_descendant(&at, "cursor.firstBatch.0.info.uuid", &found))) {
        bson_t *wrapped = bson_new();
        char *json, *value;

        BSON_APPEND_VALUE(wrapped, "u", bson_iter_value(&found));
        json = bson_as_canonical_extended_json(wrapped, NULL);
        value = strchr(json, ':') + 2;
        snprintf(text, 100, "%.*s", (int)strlen(value) - 2, value);
        for (char *c = text; *c; c++)
            *c = *c == '"' ? '\'' : *c;
        bson_free(json);
        bson_destroy(wrapped);
    }
    bson_destroy(reply);
}

#define NOBODY "{'$binary': {'base64': 'AAAAAAAAQACAAAAAAAAAAQ==', 'subType': '04'}}"

/* The command with the uuid, of the database. */
static bson_t *ask_with(const char *command, const char *uuid, const char *database)
{
    char text[900];

    snprintf(text, sizeof text, "{%s, 'collectionUUID': %s, '$db': '%s'}", command, uuid, database);
    return ask(text);
}

static const char *text_in(const bson_t *reply, const char *path)
{
    bson_iter_t at, found;

    return bson_iter_init(&at, reply) && bson_iter_find_descendant(&at, path, &found) &&
                   BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : "";
}

/* Expects error 361; `actual` NULL: no collection has the uuid. */
static void expect_mismatch(int line, bson_t *reply, const char *database, const char *expected,
                            const char *actual)
{
    bson_iter_t at;
    bool right =
        reply_number(reply, "code") == 361 &&
        !strcmp(text_in(reply, "codeName"), "CollectionUUIDMismatch") &&
        !strcmp(text_in(reply, "db"), database) &&
        !strcmp(text_in(reply, "expectedCollection"), expected) &&
        bson_iter_init_find(&at, reply, "collectionUUID") && BSON_ITER_HOLDS_BINARY(&at) &&
        bson_iter_init_find(&at, reply, "actualCollection") &&
        (actual ? !strcmp(text_in(reply, "actualCollection"), actual) : BSON_ITER_HOLDS_NULL(&at));

    if (!right) {
        char *json = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, line, "%s: %s", expected, json);
        bson_free(json);
    }
    bson_destroy(reply);
}

#define EXPECT_MISMATCH(reply, database, expected, actual)                                         \
    expect_mismatch(__LINE__, reply, database, expected, actual)

static void expect_done(bson_t *reply)
{
    if (reply_number(reply, "ok") != 1) {
        char *json = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, __LINE__, "%s", json);
        bson_free(json);
    }
    bson_destroy(reply);
}

static const struct {
    const char *format;
} commands[] = {
    {"'find': '%s'"},
    {"'aggregate': '%s', 'pipeline': [], 'cursor': {}"},
    {"'insert': '%s', 'documents': [{'x': 1}]"},
    {"'update': '%s', 'updates': [{'q': {'_id': 0}, 'u': {'$set': {'x': 1}}}]"},
    {"'delete': '%s', 'deletes': [{'q': {'_id': 7}, 'limit': 1}]"},
    {"'collMod': '%s'"},
    {"'createIndexes': '%s', 'indexes': [{'key': {'x': 1}, 'name': 'x'}]"},
    {"'dropIndexes': '%s', 'index': 'x'"},
    {"'explain': {'find': '%s', 'collectionUUID': UUID}"},
    {"'drop': '%s'"}, /* the last */
};

/* Runs the command on that collection; of an explain, the inner command has the uuid. */
static bson_t *run(size_t i, const char *collection, const char *uuid, const char *database)
{
    char command[400], text[600], *at;

    snprintf(command, sizeof command, commands[i].format, collection);
    at = strstr(command, "UUID}");
    if (!at)
        return ask_with(command, uuid, database);
    snprintf(text, sizeof text, "{%.*s%s}, '$db': '%s'}", (int)(at - command), command, uuid,
             database);
    return ask(text);
}

TEST(a_command_with_a_uuid_is_of_that_collection_or_is_refused)
{
    char uuid[100];

    begin("s.truce");
    uuid_of("c", uuid);
    done("{'create': 'v', 'viewOn': 'c', '$db': 'school'}");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        EXPECT_MISMATCH(run(i, "c", NOBODY, "school"), "school", "c", NULL);
        EXPECT_MISMATCH(run(i, "other", uuid, "school"), "school", "other", "c");
        EXPECT_MISMATCH(run(i, "none", uuid, "school"), "school", "none", "c");
        EXPECT_MISMATCH(run(i, "v", uuid, "school"), "school", "v", "c");
        EXPECT_MISMATCH(run(i, "c", uuid, "elsewhere"), "elsewhere", "c", NULL);
        expect_done(run(i, "c", uuid, "school"));
    }
    expect_code("{'find': 'none', '$db': 'school'}", 0);
    EXPECT_MISMATCH(ask_with("'find': 'c'", uuid, "school"), "school", "c",
                    NULL); /* it was dropped */
    end();
}

TEST(a_renamed_collection_keeps_its_uuid)
{
    char uuid[100], other[100], text[400];

    begin("s.truce");
    uuid_of("c", uuid);
    uuid_of("other", other);
    EXPECT_MISMATCH(
        ask_with("'renameCollection': 'school.other', 'to': 'school.new'", uuid, "admin"), "school",
        "other", "c");
    expect_done(ask_with("'renameCollection': 'school.c', 'to': 'school.new'", uuid, "admin"));
    EXPECT_MISMATCH(ask_with("'find': 'c'", uuid, "school"), "school", "c", "new");
    expect_done(ask_with("'find': 'new'", uuid, "school"));
    snprintf(text, sizeof text,
             "{'renameCollection': 'school.new', 'to': 'school.other', 'dropTarget': %s, '$db': "
             "'admin'}",
             uuid);
    EXPECT_MISMATCH(ask(text), "school", "other", "new");
    snprintf(text, sizeof text,
             "{'renameCollection': 'school.new', 'to': 'school.other', 'dropTarget': %s, '$db': "
             "'admin'}",
             other);
    expect_done(ask(text));
    expect_done(ask_with("'find': 'other'", uuid, "school"));
    snprintf(
        text, sizeof text,
        "{'renameCollection': 'school.other', 'to': 'away.other', 'collectionUUID': %s, '$db': "
        "'admin'}",
        uuid);
    expect_code(text, 72);
    end();
}

TEST(rejects_an_invalid_uuid_and_a_uuid_without_a_collection)
{
    char uuid[100];

    begin("s.truce");
    uuid_of("c", uuid);
    bson_destroy(ask_with("'find': 'c'", "5", "school"));
    expect_code("{'find': 'c', 'collectionUUID': 5, '$db': 'school'}", 14);
    expect_code("{'find': 'c', 'collectionUUID': {'$binary': {'base64': 'AAAA', 'subType': '04'}}, "
                "'$db': 'school'}",
                14);
    expect_code("{'find': 'c', 'collectionUUID': null, '$db': 'school'}", 0);
    expect_code("{'count': 'c', 'collectionUUID': " NOBODY ", '$db': 'school'}", 40415);
    expect_code("{'find': 'c', 'collectionUUID': " NOBODY ", 'apiVersion': '1', 'apiStrict': true, "
                "'$db': 'school'}",
                361);
    expect_code("{'aggregate': 1, 'pipeline': [{'$documents': []}], 'cursor': {}, "
                "'collectionUUID': " NOBODY ", '$db': 'school'}",
                72);
    end();
    begin("");
    expect_code("{'find': 'c', 'collectionUUID': " NOBODY ", '$db': 'school'}", 115);
    end();
}

TEST(checks_the_uuid_of_each_statement_of_a_bulk)
{
    char uuid[100], text[900];
    bson_t *reply;

    begin("s.truce");
    uuid_of("c", uuid);
    snprintf(text, sizeof text,
             "{'bulkWrite': 1, 'nsInfo': [{'ns': 'school.other', 'collectionUUID': %s}, {'ns': "
             "'school.c', 'collectionUUID': %s}], 'ops': [{'insert': 0, 'document': {'_id': 5}}, "
             "{'insert': 1, 'document': {'_id': 5}}], 'ordered': false, '$db': 'admin'}",
             uuid, uuid);
    reply = ask(text);
    CHECK_INT(reply_number(reply, "nErrors"), ==, 1);
    CHECK_INT(reply_number(reply, "nInserted"), ==, 1);
    CHECK_INT(reply_number(reply, "cursor.firstBatch.0.code"), ==, 361);
    CHECK_TEXT("other", text_in(reply, "cursor.firstBatch.0.expectedCollection"));
    CHECK_TEXT("c", text_in(reply, "cursor.firstBatch.0.actualCollection"));
    CHECK_INT(reply_number(reply, "cursor.firstBatch.1.ok"), ==, 1);
    bson_destroy(reply);
    end();
}

#define SESSION                                                                                    \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "       \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false"

TEST(uses_the_uuids_of_a_transactions_snapshot)
{
    char uuid[100];

    begin("s.truce");
    uuid_of("c", uuid);
    done("{'find': 'c', 'startTransaction': true, " SESSION ", '$db': 'school'}");
    done("{'renameCollection': 'school.c', 'to': 'school.d', '$db': 'admin'}");
    expect_done(ask_with("'find': 'c', " SESSION, uuid, "school"));
    EXPECT_MISMATCH(ask_with("'find': 'other', " SESSION, uuid, "school"), "school", "other", "c");
    end();
}

/* ---- concurrent renames ---------------------------------------------------------------------- */

static atomic_bool over;

static void *rename_to_and_fro(void *arg)
{
    int socket = dial();

    (void)arg;
    while (!atomic_load(&over)) {
        bson_destroy(ask_on(
            socket, "{'renameCollection': 'school.c', 'to': 'school.away', '$db': 'admin'}", 0));
        bson_destroy(
            ask_on(socket, "{'insert': 'c', 'documents': [{'_id': 'false'}], '$db': 'school'}", 0));
        bson_destroy(ask_on(socket, "{'drop': 'c', '$db': 'school'}", 0));
        bson_destroy(ask_on(
            socket, "{'renameCollection': 'school.away', 'to': 'school.c', '$db': 'admin'}", 0));
    }
    close(socket);
    return NULL;
}

/* A write with the uuid goes to that collection, and not to a collection that got its name in the
 * meantime. */
TEST(writes_by_uuid_do_not_reach_a_new_collection_of_that_name)
{
    int socket, written = 0, refused = 0;
    char uuid[100], text[400];
    pthread_t thread;
    bson_t *reply;

    begin("s.truce");
    uuid_of("c", uuid);
    socket = dial();
    atomic_store(&over, false);
    REQUIRE(!pthread_create(&thread, NULL, rename_to_and_fro, NULL));
    for (int i = 0; i < 400; i++) {
        snprintf(text, sizeof text,
                 "{'insert': 'c', 'documents': [{'n': %d}], 'collectionUUID': %s, '$db': 'school'}",
                 i, uuid);
        reply = ask_on(socket, text, 0);
        written += reply_number(reply, "n") == 1;
        refused += reply_number(reply, "code") == 361;
        bson_destroy(reply);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    CHECK_INT(written + refused, ==, 400);
    reply = ask("{'count': 'c', 'query': {'n': {'$exists': true}}, '$db': 'school'}");
    CHECK_INT(reply_number(reply, "n"), ==, written);
    bson_destroy(reply);
    close(socket);
    end();
}
