/*
 * Every operation by every way: the library (truce_command), the wire protocol, HTTP, the command
 * line, and a library whose store is a truce server. Each way has a store of its own, so all have
 * the same history, and their replies must be equal except for ids, times, and tokens.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "operations/named_request.h"
#include "tests/support/command.h"
#include "tests/support/each_operation.h"
#include "tests/support/http_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/command.h"
#include "truce/json.h"

enum way { WAY_LIBRARY, WAY_WIRE, WAY_HTTP, WAY_REMOTE, WAY_PROGRAM, WAYS };

static const char *const way_names[] = {"the library", "the wire", "HTTP", "a remote library",
                                        "the command line"};

static struct side {
    truce_store *store;
    /* NULL: the library, or a program with a file. */
    struct server *server;
    /* The URI for another process, or for a remote library. */
    char uri[700];
} sides[WAYS];

/* The store of WAY_REMOTE. */
static truce_store *remote;

static void begin(bool in_file)
{
    bson_error_t error = {0};
    const char *folder = in_file ? test_directory() : "";
    const char *on_server = getenv("TRUCE_TEST_MONGODB"); /* tests/servers/serve */
    char uri[600] = "memory:";

    for (int way = 0; way < WAYS; way++) {
        struct side *side = &sides[way];

        if (in_file)
            snprintf(uri, sizeof uri, "file:%s/way%d.truce", folder, way);
        REQUIRE(!truce_store_open(uri, NULL, &side->store, &error));
        side->server = NULL;
        snprintf(side->uri, sizeof side->uri, "%s", uri);
        if (way == WAY_PROGRAM && in_file) {
            truce_store_close(side->store); /* each command opens the file itself */
            side->store = NULL;
        } else if (way != WAY_LIBRARY) {
            REQUIRE(!server_start(side->store, &(struct server_options){.http = "0"}, &side->server,
                                  &error));
            snprintf(side->uri, sizeof side->uri, "mongodb://127.0.0.1:%d/test",
                     server_port(side->server));
        }
        if (way == WAY_REMOTE && on_server)
            snprintf(side->uri, sizeof side->uri, "%s/test", on_server);
        if (way == WAY_REMOTE)
            REQUIRE(!truce_store_open(side->uri, NULL, &remote, &error));
    }
}

static void end(void)
{
    truce_store_close(remote);
    for (int way = 0; way < WAYS; way++) {
        if (sides[way].server)
            server_stop(sides[way].server, 5000);
        truce_store_close(sides[way].store);
    }
}

static bson_t *read_json(const char *json)
{
    bson_error_t error;
    bson_t document;
    bson_t *copy = NULL;

    if (truce_json_read(json, strlen(json), TRUCE_JSON_TYPED, &document, NULL, &error))
        test_fail(__FILE__, __LINE__, "%s: %s", json, error.message);
    else
        copy = bson_copy(&document);
    bson_destroy(&document);
    return copy ? copy : bson_new();
}

/* ---- one request ----------------------------------------------------------------------------- */

static bson_t *by_store(truce_store *of, const bson_t *command)
{
    bson_error_t error;
    bson_t reply, *copy;
    truce_status status = truce_command(of, "test", command, &reply, &error);

    CHECK((status == TRUCE_OK) == (reply_number(&reply, "ok") == 1));
    copy = bson_copy(&reply);
    bson_destroy(&reply);
    return copy;
}

static bson_t *by_library(const bson_t *command)
{
    return by_store(sides[WAY_LIBRARY].store, command);
}

static bson_t *by_remote(const bson_t *command)
{
    return by_store(remote, command);
}

static bson_t *by_wire(const bson_t *command)
{
    bson_t *sent = bson_copy(command), *reply;
    char *json;

    BSON_APPEND_UTF8(sent, "$db", "test");
    json = bson_as_canonical_extended_json(sent, NULL);
    server = sides[WAY_WIRE].server;
    reply = ask(json);
    bson_free(json);
    bson_destroy(sent);
    return reply ? reply : bson_new();
}

/* The body has the value of the command's own field under the name of the target. */
static bson_t *by_http(const bson_t *command)
{
    const struct operation_row *row;
    bson_t body = BSON_INITIALIZER, *reply;
    struct http_reply answer;
    bson_iter_t at;
    char *path, *json;

    truce_assert(bson_iter_init(&at, command) && bson_iter_next(&at));
    row = truce__named_request_row(bson_iter_key(&at));
    truce_assert(row);
    path = bson_strdup_printf("/v1/test/%s", row->name);
    if (row->target && !(BSON_ITER_HOLDS_INT32(&at) && !strcmp(row->target, "name")))
        bson_append_iter(&body, row->target, -1, &at);
    while (bson_iter_next(&at))
        bson_append_iter(&body, bson_iter_key(&at), -1, &at);
    json = truce_json_write(&body, false, TRUCE_JSON_CANONICAL);
    server = sides[WAY_HTTP].server;
    answer = http_post(-1, path, NULL, json);
    reply = read_json(answer.body);
    CHECK((answer.code == 200) == (reply_number(reply, "ok") == 1));
    http_release(&answer);
    bson_free(json);
    bson_free(path);
    bson_destroy(&body);
    return reply;
}

/* The program prints only the error of a reply that has one: {error, status, code, codeName}. */
static bson_t *by_program(const bson_t *command)
{
    char *json = truce_json_write(command, false, TRUCE_JSON_CANONICAL);
    const struct side *side = &sides[WAY_PROGRAM];
    const struct command *ran =
        side->server ? command_run(TRUCE_CLI, side->uri, NULL, "command", json, "--json",
                                   "--canonical", NULL)
                     : command_run(TRUCE_CLI, side->uri, NULL, "command", json, "--json",
                                   "--canonical", "--database", "test", NULL);
    bson_t *reply = read_json(ran->code ? ran->err : ran->out);

    bson_free(json);
    return reply;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* truceDoctor describes the store's own file and its history. */
static bool is_of_the_file(const char *key)
{
    return !strcmp(key, "facts") || !strcmp(key, "findings");
}

static bool is_own(const char *key)
{
    size_t size = strlen(key);

    return (size >= 2 && (!strcmp(key + size - 2, "MS") || !strcmp(key + size - 2, "ms"))) ||
           !strcmp(key, "token") || is_of_the_file(key);
}

static void mask(const bson_t *from, bson_t *to, const char *without);

static void mask_value(const bson_iter_t *at, bson_t *to)
{
    const char *key = bson_iter_key(at);
    bson_type_t type = bson_iter_type(at);
    const uint8_t *bytes;
    uint32_t size;
    bson_t inner, masked = BSON_INITIALIZER;

    if ((type == BSON_TYPE_DOCUMENT || type == BSON_TYPE_ARRAY) && !is_own(key)) {
        if (type == BSON_TYPE_DOCUMENT)
            bson_iter_document(at, &size, &bytes);
        else
            bson_iter_array(at, &size, &bytes);
        (void)bson_init_static(&inner, bytes, size);
        mask(&inner, &masked, "");
        if (type == BSON_TYPE_DOCUMENT)
            BSON_APPEND_DOCUMENT(to, key, &masked);
        else
            BSON_APPEND_ARRAY(to, key, &masked);
    } else if (type == BSON_TYPE_OID || type == BSON_TYPE_DATE_TIME || type == BSON_TYPE_BINARY ||
               type == BSON_TYPE_TIMESTAMP || is_own(key)) {
        BSON_APPEND_INT32(to, key, -(int32_t)type);
    } else {
        bson_append_iter(to, NULL, -1, at);
    }
    bson_destroy(&masked);
}

static void mask(const bson_t *from, bson_t *to, const char *without)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, from);
    while (bson_iter_next(&at))
        if (strcmp(bson_iter_key(&at), without) != 0)
            mask_value(&at, to);
}

/* Relaxed JSON has no widths of numbers, so all replies are compared in it. `classless`: without
 * the class of an error, which HTTP adds to the errors of MongoDB's commands. */
static char *comparable(const bson_t *reply, bool classless)
{
    char *json = truce_json_write(reply, false, TRUCE_JSON_RELAXED), *text;
    bson_t masked = BSON_INITIALIZER, *read = read_json(json);

    mask(read, &masked, classless ? "status" : "");
    text = truce_json_write(&masked, false, TRUCE_JSON_RELAXED);
    bson_free(json);
    bson_destroy(read);
    bson_destroy(&masked);
    return text;
}

/* Returns the error of a reply as the program prints it; NULL: none. */
static bson_t *error_of(const bson_t *reply)
{
    static const char *const fields[][2] = {
        {"errmsg", "error"}, {"status", "status"}, {"code", "code"}, {"codeName", "codeName"}};
    bson_t *error;
    bson_iter_t at;

    if (!bson_has_field(reply, "errmsg"))
        return NULL;
    error = bson_new();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (bson_iter_init_find(&at, reply, fields[i][0]))
            BSON_APPEND_VALUE(error, fields[i][1], bson_iter_value(&at));
    return error;
}

/* On another server, commits are those of the journal, whose documents and capabilities differ. */
static bool differs_on_servers(const char *json)
{
    static const char *const differing[] = {"{truceCommitShow:", "{truceCommits:",
                                            "{truceSetProtect:", "{truceCheck:", "{truceDoctor:"};
    const char *name = getenv("TRUCE_TEST_SERVER");

    for (size_t i = 0;
         name && strncmp(name, "truce", 5) && i < sizeof differing / sizeof *differing; i++)
        if (!strncmp(json, differing[i], strlen(differing[i])))
            return true;
    return false;
}

static bool is_operation(const char *json)
{
    return !strncmp(json, "{truce", 6);
}

static void compare(const char *json)
{
    static bson_t *(*const ways[])(const bson_t *) = {by_library, by_wire, by_http, by_remote,
                                                      by_program};
    char *error_text = NULL;
    bson_t *command = read_json(json);
    char *texts[WAYS];
    bool classless = false;

    for (int way = 0; way < WAYS; way++) {
        bson_t *reply = ways[way](command);

        const char *expected;

        if (way == WAY_LIBRARY) {
            bson_t *error = error_of(reply);

            classless = !bson_has_field(reply, "status");
            error_text = error ? comparable(error, classless) : NULL;
            if (error)
                bson_destroy(error);
        }
        texts[way] = comparable(reply, classless);
        bson_destroy(reply);
        expected = way == WAY_PROGRAM && error_text ? error_text : texts[WAY_LIBRARY];
        /* A store on a server runs MongoDB's commands by itself: only operations are compared. */
        if (sides[way].server && way >= WAY_REMOTE &&
            (!is_operation(json) || (way == WAY_REMOTE && differs_on_servers(json))))
            continue;
        if (strcmp(texts[way], expected) != 0)
            test_fail(__FILE__, __LINE__, "%s\n  by %s: %s\n  by %s: %s", json,
                      way_names[WAY_LIBRARY], expected, way_names[way], texts[way]);
    }
    for (int way = 0; way < WAYS; way++)
        bson_free(texts[way]);
    bson_free(error_text);
    bson_destroy(command);
}

static void compare_all(void)
{
    static const char *const data[] = {
        "{ping: 1}",
        "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}",
        "{insert: 'accounts', documents: [{_id: 'a'}]}",
        "{create: 'empty'}",
        "{create: 'empty'}",
        "{createIndexes: 'accounts', indexes: [{key: {n: 1}, name: 'n_1'}]}",
        "{listIndexes: 'accounts'}",
        "{find: 'accounts', filter: {n: {$gte: 0}}, sort: {n: 1}}",
        "{find: 'accounts', filter: {$nothing: 1}}",
        "{aggregate: 'accounts', pipeline: [{$group: {_id: null, n: {$sum: '$n'}}}], cursor: {}}",
        "{count: 'accounts', query: {n: 0}}",
        "{distinct: 'accounts', key: 'n'}",
        "{update: 'accounts', updates: [{q: {_id: 'b'}, u: {$inc: {n: 1}}}]}",
        "{findAndModify: 'accounts', query: {_id: 'b'}, update: {$inc: {n: -1}}, new: true}",
        "{delete: 'accounts', deletes: [{q: {_id: 'none'}, limit: 1}]}",
        "{listCollections: 1, nameOnly: true}",
        "{dropIndexes: 'accounts', index: 'n_1'}",
        "{dropIndexes: 'accounts', index: 'n_1'}",
        "{getMore: {$numberLong: '4711'}, collection: 'accounts'}",
        "{killCursors: 'accounts', cursors: [{$numberLong: '4711'}]}",
        "{drop: 'empty'}",
        "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}",
    };
    static const char *const after[] = {"{dropDatabase: 1}", "{count: 'accounts'}",
                                        "{truceQueues: 1}"};

    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        compare(data[i]);
    EACH_OPERATION(pattern)
    {
        compare(pattern->example);
    }
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        compare(after[i]);
}

TEST(replies_are_equal_on_stores_in_memory)
{
    begin(false);
    compare_all();
    end();
}

#ifndef TEST_ON_SERVER
TEST(replies_are_equal_on_files)
{
    begin(true);
    compare_all();
    end();
}
#endif
