/*
 * Every operation by every way: the library (truce_command), the wire protocol, HTTP, the command
 * line, and a library whose store is a truce server. Each way has a store of its own, so all have
 * the same history, and their replies must be equal except for ids, times, and tokens.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/random.h"
#include "operations/named_request.h"
#include "tests/support/changed_bson.h"
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
    struct buffer message;
    int end_;

    BSON_APPEND_UTF8(sent, "$db", "test");
    server = sides[WAY_WIRE].server;
    message = message_of(sent, 0);
    end_ = dial();
    reply = send_all(end_, message.bytes, message.size) ? receive_reply(end_) : NULL;
    close(end_);
    truce__buffer_release(&message);
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
           !strcmp(key, "token") || !strcmp(key, "date") || is_of_the_file(key);
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

/* Returns why a reply of a store on a server is not compared; NULL: it is. */
static const char *skip_reason(enum way way, const char *json)
{
    static const char *const of_journal[] = {"{truceCommitShow:", "{truceCommits:",
                                             "{truceSetProtect:", "{truceCheck:", "{truceDoctor:"};
    const char *name = getenv("TRUCE_TEST_SERVER");

    if (!sides[way].server || way < WAY_REMOTE)
        return NULL;
    if (strncmp(json, "{truce", 6) != 0)
        return "the server runs MongoDB's commands by itself";
    if (way != WAY_REMOTE || !name || !strncmp(name, "truce", 5))
        return NULL;
    for (size_t i = 0; i < sizeof of_journal / sizeof *of_journal; i++)
        if (!strncmp(json, of_journal[i], strlen(of_journal[i])))
            return "commits there are those of the journal, whose documents and capabilities differ";
    return NULL;
}

/* The reasons, and how many replies were not compared. */
static struct {
    const char *reason;
    int count;
} skips[2];

static void count_skip(const char *reason)
{
    size_t i = 0;

    while (skips[i].reason && skips[i].reason != reason)
        i++;
    skips[i].reason = reason;
    skips[i].count++;
}

static void print_skips(void)
{
    for (size_t i = 0; i < 2 && skips[i].reason; i++) {
        printf("    not compared: %d replies: %s\n", skips[i].count, skips[i].reason);
        skips[i].count = 0;
    }
}

static bson_t *(*const ways[WAYS])(const bson_t *) = {by_library, by_wire, by_http, by_remote,
                                                      by_program};

/* Sends a request by each way, and compares the replies. */
static void compare_requests(const char *const jsons[WAYS], bson_t *replies[WAYS])
{
    char *error_text = NULL, *texts[WAYS];
    bool classless = false;

    for (int way = 0; way < WAYS; way++) {
        bson_t *command = read_json(jsons[way]);
        const char *expected, *reason = skip_reason(way, jsons[way]);

        replies[way] = ways[way](command);
        bson_destroy(command);
        if (way == WAY_LIBRARY) {
            bson_t *error = error_of(replies[way]);

            classless = !bson_has_field(replies[way], "status");
            error_text = error ? comparable(error, classless) : NULL;
            if (error)
                bson_destroy(error);
        }
        texts[way] = comparable(replies[way], classless);
        expected = way == WAY_PROGRAM && error_text ? error_text : texts[WAY_LIBRARY];
        if (reason)
            count_skip(reason);
        else if (strcmp(texts[way], expected) != 0)
            test_fail(__FILE__, __LINE__, "%s\n  by %s: %s\n  by %s: %s", jsons[way],
                      way_names[WAY_LIBRARY], expected, way_names[way], texts[way]);
    }
    for (int way = 0; way < WAYS; way++)
        bson_free(texts[way]);
    bson_free(error_text);
}

static void release_replies(bson_t *replies[WAYS])
{
    for (int way = 0; way < WAYS; way++)
        bson_destroy(replies[way]);
}

static void compare(const char *json)
{
    const char *const jsons[WAYS] = {json, json, json, json, json};
    bson_t *replies[WAYS];

    compare_requests(jsons, replies);
    release_replies(replies);
}

#ifndef TEST_ON_SERVER
/* ---- wrong requests -------------------------------------------------------------------------- */

/* One of this many wrong requests is sent. */
static int64_t wrong_part(void)
{
    const char *all = getenv("TRUCE_WAYS_PART");

    return all ? atoll(all) : 40;
}

/* Returns the class of a reply: its code and its status, or why it is not a clear answer. */
static char *class_of(const bson_t *reply)
{
    int64_t code = reply_number(reply, "code");

    if (reply_number(reply, "ok") == 1)
        return bson_strdup(truce__field_text(reply, "status"));
    if (code <= 1 || code == 8 || !*truce__field_text(reply, "errmsg"))
        return bson_strdup_printf("no clear error: code %lld, \"%s\"", (long long)code,
                                  truce__field_text(reply, "errmsg"));
    return bson_strdup_printf("%lld %s", (long long)code, truce__field_text(reply, "status"));
}

/* Returns whether JSON cannot express the request, so that its code differs from that of the same
 * BSON. */
static bool is_json_refused(const bson_t *reply)
{
    const char *message = truce__field_text(reply, "errmsg");

    return strstr(message, "documents nest deeper than") || strstr(message, "is not valid UTF-8");
}

/* Sends a wrong request by each way but the program, and compares the classes of the replies. */
static void compare_wrong(const bson_t *command, bool by_http_too)
{
    char *classes[WAYS] = {NULL}, *json;

    for (int way = 0; way < WAY_PROGRAM; way++) {
        bson_t *reply;

        if (way == WAY_HTTP && !by_http_too)
            continue;
        reply = ways[way](command);
        classes[way] = class_of(reply);
        if ((strcmp(classes[way], classes[WAY_LIBRARY]) != 0 && !is_json_refused(reply)) ||
            !strncmp(classes[way], "no clear", strlen("no clear"))) {
            json = truce_json_write(command, false, TRUCE_JSON_CANONICAL);
            test_fail(__FILE__, __LINE__, "%.2000s\n  by %s: %s\n  by %s: %s \"%s\"", json,
                      way_names[WAY_LIBRARY], classes[WAY_LIBRARY], way_names[way], classes[way],
                      truce__field_text(reply, "errmsg"));
            bson_free(json);
        }
        bson_destroy(reply);
    }
    for (int way = 0; way < WAY_PROGRAM; way++)
        bson_free(classes[way]);
}

/* Returns whether a request may wait for a long time. */
static bool waits_long(const bson_t *command)
{
    return reply_number(command, "waitMS") > 100;
}

/* Returns whether a field occurs twice. Then the ways need not agree: over HTTP, the name of the
 * operation is a part of the path, and a call that waits may read either value. */
static bool repeats_a_field(const bson_t *command)
{
    bson_iter_t one, other;

    truce_assert(bson_iter_init(&one, command));
    while (bson_iter_next(&one)) {
        other = one;
        while (bson_iter_next(&other)) {
            if (!strcmp(bson_iter_key(&other), bson_iter_key(&one)))
                return true;
        }
    }
    return false;
}

/* Over HTTP, the value of an operation without a target is not sent. */
static void compare_wrong_of(const struct operation_row *row, struct random *random)
{
    bson_t *command = read_json(row->example);

    for (uint32_t place = 0; place < bson_places(command); place++) {
        for (uint32_t change = place ? 0 : 2; change < bson_changes; change++) {
            bson_t *changed;

            if (truce__random_below(random, (uint64_t)wrong_part()))
                continue;
            changed = bson_changed(command, place, change);
            if (!waits_long(changed) && !repeats_a_field(changed) &&
                bson_validate(changed, BSON_VALIDATE_UTF8 | BSON_VALIDATE_UTF8_ALLOW_NULL, NULL))
                compare_wrong(changed, place || row->target);
            bson_destroy(changed);
        }
    }
    bson_destroy(command);
}

#endif

/* ---- claimed jobs ---------------------------------------------------------------------------- */

/* Claims a job by each way, and sends the operations to it. "CLAIM" is its _id and the token. */
static void compare_claimed(const char *const *operations)
{
    static const char *const same = "{truceClaim: 'claimed', leaseMS: 60000, worker: 'w'}";
    const char *const claims[WAYS] = {same, same, same, same, same};
    bson_t *claimed[WAYS], *replies[WAYS];
    bson_iter_t at, id, token;

    compare("{truceEnqueue: 'claimed', payload: {n: 1}}");
    compare_requests(claims, claimed);
    for (; *operations; operations++) {
        const char *rest = strstr(*operations, "CLAIM");
        char *jsons[WAYS];

        for (int way = 0; way < WAYS; way++) {
            char id_text[25], token_text[25];

            REQUIRE(bson_iter_init(&at, claimed[way]) &&
                    bson_iter_find_descendant(&at, "jobs.0._id", &id) &&
                    bson_iter_init(&at, claimed[way]) &&
                    bson_iter_find_descendant(&at, "jobs.0.token", &token));
            bson_oid_to_string(bson_iter_oid(&id), id_text);
            bson_oid_to_string(bson_iter_oid(&token), token_text);
            jsons[way] = bson_strdup_printf("%.*sid: {$oid: '%s'}, token: {$oid: '%s'}%s",
                                            (int)(rest - *operations), *operations, id_text,
                                            token_text, rest + strlen("CLAIM"));
        }
        compare_requests((const char *const *)jsons, replies);
        if (strcmp(truce__field_text(replies[WAY_LIBRARY], "status"), "ok") != 0)
            test_fail(__FILE__, __LINE__, "%s: %s", jsons[WAY_LIBRARY],
                      truce__field_text(replies[WAY_LIBRARY], "errmsg"));
        release_replies(replies);
        for (int way = 0; way < WAYS; way++)
            bson_free(jsons[way]);
    }
    release_replies(claimed);
}

static void compare_workers(void)
{
    static const char *const done[] = {
        "{truceHeartbeat: 'claimed', CLAIM, progress: {percent: 50}}",
        "{truceJobStep: 'claimed', CLAIM, name: 'book', changes: [{insert: 'booked', with: {_id: "
        "1}}], result: {booked: true}}",
        "{truceJobStep: 'claimed', CLAIM, name: 'book'}",
        "{truceDone: 'claimed', CLAIM, result: {sent: true}}", NULL};
    const char *server_name = getenv("TRUCE_TEST_SERVER");
    bool may_journal = server_name && strncmp(server_name, "truce", 5) != 0;
    /* A commit of the journal takes no numbers. */
    const char *const committed[] = {
        "{truceJobSleep: 'claimed', CLAIM, name: 'no time', delayMS: 0}",
        may_journal
            ? "{truceJobCommit: 'claimed', CLAIM, changes: [{insert: 'booked', with: {_id: 2}}]}"
            : "{truceJobCommit: 'claimed', CLAIM, changes: [{insert: 'booked', with: {_id: 2}}, "
              "{truceSequence: 'n', take: 1}]}",
        NULL};
    static const char *const failed[] = {
        "{truceFail: 'claimed', CLAIM, error: 'no answer', delayMS: 60000000}", NULL};
    static const char *const snoozed[] = {"{truceSnooze: 'claimed', CLAIM, delayMS: 60000000}",
                                          NULL};
    static const char *const discarded[] = {
        "{truceDiscard: 'claimed', CLAIM, error: 'no such address'}", NULL};
    static const char *const waiting[] = {
        "{truceJobWait: 'claimed', CLAIM, name: 'approved', timeoutMS: 0}", NULL};

    compare_claimed(done);
    compare_claimed(committed);
    compare_claimed(failed);
    compare_claimed(snoozed);
    compare_claimed(discarded);
    compare_claimed(waiting);
}

/* ---- all of them ----------------------------------------------------------------------------- */

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
    };
    /* The first operation of the ledger says where its numbers are. */
    const char *const book =
        test_excused("ledger_numbers")
            ? "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales', slots: "
              "'bank_numbers'}"
            : "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}";
    static const char *const after[] = {"{dropDatabase: 1}", "{count: 'accounts'}",
                                        "{truceQueues: 1}"};

    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        compare(data[i]);
    compare(book);
    EACH_OPERATION(pattern)
    {
        compare(pattern->example);
    }
    compare_workers();
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        compare(after[i]);
    print_skips();
}

TEST(replies_are_equal_on_stores_in_memory)
{
    begin(false);
    compare_all();
    end();
}

#ifndef TEST_ON_SERVER
TEST(wrong_requests_have_one_class_by_each_way)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    begin(false);
    EACH_OPERATION(pattern)
    {
        compare_wrong_of(pattern, &random);
    }
    end();
}

TEST(replies_are_equal_on_files)
{
    begin(true);
    compare_all();
    end();
}
#endif
