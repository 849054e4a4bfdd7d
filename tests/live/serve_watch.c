/*
 * Change streams over the wire: events, recipients, the position where a stream resumes, also after
 * the server was killed, and errors. The client is a raw socket; tests/servers/watch.py and
 * tests/clients test drivers.
 *
 * TRUCE_SERVE_KILLS: how often the server is killed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"
#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define HOUR_MS INT64_C(3600000)
#define STREAM                                                                                     \
    "{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': 'test'}"

static char path[600];

static void open_server(const struct server_feed *feed)
{
    const struct server_options options = {.replica_set = "rs", .feed = feed};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    open_server(&(struct server_feed){HOUR_MS, 0});
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void insert(int id)
{
    char text[200];

    snprintf(text, sizeof text, "{'insert': 'c', 'documents': [{'_id': %d}], '$db': 'test'}", id);
    done(text);
}

static void expect_insert(struct stream_of *stream, int id)
{
    char text[300];

    snprintf(text, sizeof text,
             "{'operationType': 'insert', 'fullDocument': {'_id': %d}, 'ns': {'db': 'test', "
             "'coll': 'c'}, 'documentKey': {'_id': %d}}",
             id, id);
    expect_event(stream, text);
}

#define NS "'ns': {'db': 'test', 'coll': 'c'}"

/* ---- events ---------------------------------------------------------------------------------- */

TEST(reports_every_change_of_a_collection_in_order)
{
    struct stream_of stream;

    begin();
    stream = open_stream(STREAM);
    insert(1);
    done(
        "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'a': {'b': 1}, 'l': [1, 2, 3]}}}],"
        " '$db': 'test'}");
    done(
        "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'a.b': 2}, '$pop': {'l': 1}}}],"
        " '$db': 'test'}");
    done(
        "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$unset': {'a': 1}}}], '$db': 'test'}");
    done("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'n': 1}}], '$db': 'test'}");
    done("{'insert': 'other', 'documents': [{'_id': 1}], '$db': 'test'}");
    done("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'elsewhere'}");
    done("{'delete': 'c', 'deletes': [{'q': {'_id': 1}, 'limit': 1}], '$db': 'test'}");
    expect_insert(&stream, 1);
    expect_event(&stream, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                          "'updateDescription': {'updatedFields': {'a': {'b': 1}, 'l': [1, 2, 3]}, "
                          "'removedFields': [], 'truncatedArrays': []}}");
    expect_event(&stream, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                          "'updateDescription': {'updatedFields': {'a.b': 2}, 'removedFields': [], "
                          "'truncatedArrays': [{'field': 'l', 'newSize': 2}]}}");
    expect_event(&stream, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                          "'updateDescription': {'updatedFields': {}, 'removedFields': ['a'], "
                          "'truncatedArrays': []}}");
    expect_event(&stream, "{'operationType': 'replace', 'fullDocument': {'_id': 1, 'n': 1}, " NS
                          ", 'documentKey': {'_id': 1}}");
    expect_event(&stream, "{'operationType': 'delete', " NS ", 'documentKey': {'_id': 1}}");
    expect_nothing(&stream);
    close_stream(&stream);
    end();
}

TEST(a_database_and_the_deployment_are_watched)
{
    struct stream_of database, all;

    begin();
    database = open_stream("{'aggregate': 1, 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                           "'$db': 'school'}");
    all = open_stream(
        "{'aggregate': 1, 'pipeline': [{'$changeStream': {'allChangesForCluster': true}}], "
        "'cursor': {}, '$db': 'admin'}");
    insert(1);
    done("{'insert': 'students', 'documents': [{'_id': 2}], '$db': 'school'}");
    done("{'create': 'v', 'viewOn': 'c', '$db': 'school'}"); /* into system.views */
    done("{'insert': 'x', 'documents': [{'_id': 2}], '$db': 'config'}");
    done("{'insert': 'truce_queue', 'documents': [{'_id': 2}], '$db': 'school'}");
    done("{'dropDatabase': 1, '$db': 'school'}");
    expect_insert(&all, 1);
    for (int i = 0; i < 2; i++) {
        struct stream_of *stream = i ? &all : &database;

        expect_event(stream, "{'operationType': 'insert', 'fullDocument': {'_id': 2}, 'ns': {'db': "
                             "'school', 'coll': 'students'}, 'documentKey': {'_id': 2}}");
        expect_event(stream,
                     "{'operationType': 'drop', 'ns': {'db': 'school', 'coll': 'students'}}");
        expect_event(stream, "{'operationType': 'dropDatabase', 'ns': {'db': 'school'}}");
    }
    expect_event(&database, "{'operationType': 'invalidate'}");
    CHECK_INT(database.id, ==, 0);
    insert(3);
    expect_insert(&all, 3);
    close_stream(&database);
    close_stream(&all);
    end();
}

TEST(reports_a_transaction_at_its_commit)
{
    static const char session[] =
        "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "
        "'txnNumber': {'$numberLong': '1'}, 'autocommit': false";
    struct stream_of stream;
    char text[600];

    begin();
    insert(0);
    stream = open_stream(STREAM);
    for (int i = 1; i <= 2; i++) {
        snprintf(text, sizeof text,
                 "{'insert': 'c', 'documents': [{'_id': %d}], %s%s, '$db': 'test'}", i, session,
                 i == 1 ? ", 'startTransaction': true" : "");
        done(text);
    }
    snprintf(
        text, sizeof text,
        "{'update': 'c', 'updates': [{'q': {'_id': 2}, 'u': {'$set': {'n': 1}}}, {'q': {'_id': 0}, "
        "'u': {'$set': {'n': 1}}}], %s, '$db': 'test'}",
        session);
    done(text);
    expect_nothing(&stream);
    snprintf(text, sizeof text, "{'commitTransaction': 1, %s, '$db': 'admin'}", session);
    done(text);
    expect_event(&stream, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 0}, "
                          "'updateDescription': {'updatedFields': {'n': 1}, 'removedFields': [], "
                          "'truncatedArrays': []}}");
    expect_insert(&stream, 1);
    expect_event(&stream, "{'operationType': 'insert', 'fullDocument': {'_id': 2, 'n': 1}, " NS
                          ", 'documentKey': {'_id': 2}}");
    close_stream(&stream);
    end();
}

TEST(a_stream_ends_with_its_collection)
{
    struct stream_of stream, renamed, again;
    char text[400], ended[100];
    bson_t event;

    begin();
    insert(1);
    stream = open_stream(STREAM);
    done("{'drop': 'c', '$db': 'test'}");
    insert(7);                           /* into another collection of this name */
    event_of(&stream, 1, 60000, &event); /* by itself: it resumes before "invalidate" */
    CHECK_TEXT("drop", text_of(&event, "operationType"));
    snprintf(text, sizeof text, "'resumeAfter': {'_data': '%s'}", stream.token);
    again = watch_c(text, "");
    expect_event(&again, "{'operationType': 'invalidate'}");
    CHECK_INT(again.id, ==, 0);
    event_of(&stream, 1, 60000, &event);
    CHECK_TEXT("invalidate", text_of(&event, "operationType"));
    CHECK_INT(stream.id, ==, 0);
    snprintf(ended, sizeof ended, "%s", text_of(&event, "_id._data"));
    CHECK_TEXT(ended, stream.token);
    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [{'$changeStream': {'resumeAfter': {'_data': "
             "'%s'}}}], 'cursor': {}, '$db': 'test'}",
             ended);
    expect_code(text, 260);
    close_stream(&again);
    snprintf(text, sizeof text, "'startAfter': {'_data': '%s'}", ended);
    insert(2);
    again = watch_c(text, "");
    expect_insert(&again, 7);
    expect_insert(&again, 2);
    renamed = open_stream("{'aggregate': 'd', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                          "'$db': 'test'}");
    done("{'renameCollection': 'test.c', 'to': 'test.d', '$db': 'admin'}");
    for (int i = 0; i < 2; i++) {
        struct stream_of *each = i ? &renamed : &again;

        expect_event(each,
                     "{'operationType': 'rename', " NS ", 'to': {'db': 'test', 'coll': 'd'}}");
        expect_event(each, "{'operationType': 'invalidate'}");
        CHECK_INT(each->id, ==, 0);
        close_stream(each);
    }
    close_stream(&stream);
    end();
}

TEST(documents_of_updates_are_looked_up)
{
    struct stream_of now, any, strict, before;

    begin();
    insert(1);
    now = watch_c("'fullDocument': 'updateLookup'", "");
    any =
        watch_c("'fullDocument': 'whenAvailable', 'fullDocumentBeforeChange': 'whenAvailable'", "");
    strict = watch_c("'fullDocument': 'required'", "");
    before = watch_c("'fullDocumentBeforeChange': 'required'", "");
    for (int i = 1; i <= 2; i++)
        done(
            "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'n': 1}}}], '$db': 'test'}");
    for (int i = 1; i <= 2; i++) {
        char text[600];

        snprintf(text, sizeof text,
                 "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                 "'updateDescription': {'updatedFields': {'n': %d}, 'removedFields': [], "
                 "'truncatedArrays': []}, 'fullDocument': {'_id': 1, 'n': 2}}",
                 i);
        expect_event(&now, text); /* the current document */
    }
    expect_event(&any, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                       "'updateDescription': {'updatedFields': {'n': 1}, 'removedFields': [], "
                       "'truncatedArrays': []}, 'fullDocument': null, "
                       "'fullDocumentBeforeChange': null}");
    ask_more(&strict, 0, 1000);
    CHECK_INT(reply_number(strict.reply, "code"), ==, 47);
    ask_more(&before, 0, 1000);
    CHECK_INT(reply_number(before.reply, "code"), ==, 47);
    done("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'n': 1}}}], '$db': 'test'}");
    done("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'test'}");
    expect_event(&now, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                       "'updateDescription': {'updatedFields': {'n': 3}, 'removedFields': [], "
                       "'truncatedArrays': []}, 'fullDocument': null}");
    close_stream(&now);
    close_stream(&any);
    close_stream(&strict);
    close_stream(&before);
    end();
}

TEST(filters_and_shapes_events_by_stages)
{
    struct stream_of chosen, shaped, spoilt;

    begin();
    chosen = watch_c("", ", {'$match': {'fullDocument._id': {'$gt': 2}}}");
    shaped = watch_c("", ", {'$addFields': {'twice': {'$multiply': ['$fullDocument._id', 2]}}}, "
                         "{'$project': {'twice': 1}}");
    spoilt = watch_c("", ", {'$project': {'_id': 0}}");
    for (int i = 1; i <= 3; i++)
        insert(i);
    expect_insert(&chosen, 3);
    expect_nothing(&chosen);
    expect_event(&shaped, "{'twice': 2}");
    expect_event(&shaped, "{'twice': 4}");
    ask_more(&spoilt, 0, 1000);
    CHECK_INT(reply_number(spoilt.reply, "code"), ==, 280);
    CHECK_TEXT("NonResumableChangeStreamError", text_of(spoilt.reply, "errorLabels.0"));
    close_stream(&chosen);
    close_stream(&shaped);
    close_stream(&spoilt);
    end();
}

/* ---- where a stream goes on ------------------------------------------------------------------ */

static void expect_from(const char *option, const char *token, int first, int last)
{
    struct stream_of stream;
    char text[300];

    snprintf(text, sizeof text, "'%s': {'_data': '%s'}", option, token);
    stream = watch_c(text, "");
    for (int i = first; i <= last; i++)
        expect_insert(&stream, i);
    expect_nothing(&stream);
    close_stream(&stream);
}

TEST(resumes_a_stream_from_any_token_after_a_restart)
{
    char tokens[10][100] = {{0}}, empty[100];
    struct stream_of stream;
    uint32_t seconds = 0, number = 0;
    char text[300];

    begin();
    stream = open_stream(STREAM);
    snprintf(empty, sizeof empty, "%s", stream.token);
    for (int i = 1; i <= 6; i++)
        insert(i);
    for (int i = 1; i <= 6; i++) {
        bson_t event;
        bson_iter_t at;

        event_of(&stream, 2, 60000, &event);
        snprintf(tokens[i], sizeof tokens[i], "%s", text_of(&event, "_id._data"));
        if (i % 2 == 0) /* the last of its batch */
            CHECK_TEXT(tokens[i], stream.token);
        if (i == 4 && CHECK(bson_iter_init_find(&at, &event, "clusterTime")))
            bson_iter_timestamp(&at, &seconds, &number);
        CHECK_INT(strcmp(tokens[i], tokens[i - 1]), >, 0);
    }
    close_stream(&stream);
    for (int life = 0; life < 2; life++) {
        expect_from("resumeAfter", empty, 1, 6);
        expect_from("resumeAfter", tokens[3], 4, 6);
        expect_from("startAfter", tokens[5], 6, 6);
        expect_from("resumeAfter", tokens[6], 7, 6);
        snprintf(text, sizeof text, "'startAtOperationTime': {'$timestamp': {'t': %u, 'i': %u}}",
                 seconds, number);
        stream = watch_c(text, "");
        for (int i = 4; i <= 6; i++)
            expect_insert(&stream, i);
        close_stream(&stream);
        end();
        if (life == 0)
            open_server(NULL); /* the retained events are in the file */
    }
}

/* The operationTime of an answer as the options of a stream. */
static const char *from_now(const char *json)
{
    static char text[200];
    uint32_t seconds = 0, number = 0;
    bson_t *reply = ask(json);
    bson_iter_t at;

    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    if (CHECK(bson_iter_init_find(&at, reply, "operationTime")))
        bson_iter_timestamp(&at, &seconds, &number);
    snprintf(text, sizeof text, "'startAtOperationTime': {'$timestamp': {'t': %u, 'i': %u}}",
             seconds, number);
    bson_destroy(reply);
    return text;
}

TEST(reports_changes_after_the_time_of_a_reply)
{
    struct stream_of stream;

    begin();
    for (int i = 1; i < 40; i += 4) {
        const char *from = from_now("{'ping': 1, '$db': 'test'}");

        for (int j = 0; j < 3; j++)
            insert(i + j);
        stream = watch_c(from, "");
        if (i > 1) /* that of the change before */
            expect_insert(&stream, i - 1);
        for (int j = 0; j < 3; j++)
            expect_insert(&stream, i + j);
        close_stream(&stream);
        insert(i + 3);
    }
    /* the clock of the machine is set back by an hour, after an answer */
    truce__feed_pass(&truce__file_engine_or_null(store)->writer,
                     truce__feed_position(truce__clock_wall_ms() / 1000 + 3600, 7));
    stream = watch_c(from_now("{'ping': 1, '$db': 'test'}"), "");
    insert(50);
    expect_insert(&stream, 50);
    close_stream(&stream);
    end();
}

TEST(accepts_only_read_concern_majority_for_a_stream)
{
    begin();
    expect_code("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                "'readConcern': {'level': 'local'}, '$db': 'test'}",
                72);
    done("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
         "'readConcern': {'level': 'majority'}, '$db': 'test'}");
    done("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
         "'readConcern': {'afterClusterTime': {'$timestamp': {'t': 1, 'i': 1}}}, '$db': 'test'}");
    end();
}

TEST(reports_events_after_a_future_time)
{
    struct stream_of stream;
    char text[300];

    begin();
    snprintf(text, sizeof text, "'startAtOperationTime': {'$timestamp': {'t': %u, 'i': 1}}",
             (unsigned)(truce__clock_wall_ms() / 1000) + 3600);
    stream = watch_c(text, "");
    insert(1);
    expect_nothing(&stream);
    close_stream(&stream);
    end();
}

TEST(rejects_a_token_that_is_too_old)
{
    struct stream_of stream;
    char text[400];

    begin();
    end();
    open_server(&(struct server_feed){HOUR_MS, 5000});
    stream = open_stream(STREAM);
    for (int i = 0; i < 400; i++)
        insert(i);
    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [{'$changeStream': {'resumeAfter': {'_data': "
             "'%s'}}}], 'cursor': {'batchSize': 0}, '$db': 'test'}",
             stream.token);
    expect_code(text, 286);
    ask_more(&stream, 0, 1000); /* a cursor that was left for too long */
    CHECK_INT(reply_number(stream.reply, "code"), ==, 286);
    CHECK_TEXT("NonResumableChangeStreamError", text_of(stream.reply, "errorLabels.0"));
    expect_code("{'aggregate': 'c', 'pipeline': [{'$changeStream': {'startAtOperationTime': "
                "{'$timestamp': {'t': 1, 'i': 1}}}}], 'cursor': {'batchSize': 0}, '$db': 'test'}",
                286);
    close_stream(&stream);
    end();
    open_server(&(struct server_feed){0, 0});
    expect_code(STREAM, 40573);
    end();
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void *more_for_long(void *arg)
{
    ask_more(arg, 0, 600000);
    return NULL;
}

/* Until its getMore waits. */
static void let_it_wait(void)
{
    int64_t waits = 0;

    while (waits < 1 && !test_failures()) {
        bson_t *reply = ask("{'aggregate': 1, 'pipeline': [{'$currentOp': {}}, {'$match': {'op': "
                            "'getmore'}}, {'$count': 'n'}], 'cursor': {}, '$db': 'admin'}");

        waits = reply_number(reply, "cursor.firstBatch.0.n");
        bson_destroy(reply);
    }
}

TEST(wakes_waiting_streams_at_a_write)
{
    struct stream_of stream;
    pthread_t thread;

    begin();
    stream = open_stream(STREAM);
    pthread_create(&thread, NULL, more_for_long, &stream);
    let_it_wait();
    insert(1);
    pthread_join(thread, NULL);
    expect_insert(&stream, 1);
    close_stream(&stream);
    end();
}

TEST(kills_a_waiting_stream)
{
    struct stream_of stream;
    pthread_t thread;
    char text[200];
    bson_t *reply;

    begin();
    stream = open_stream(STREAM);
    snprintf(text, sizeof text,
             "{'killCursors': 'c', 'cursors': [{'$numberLong': '%lld'}], '$db': 'test'}",
             (long long)stream.id);
    pthread_create(&thread, NULL, more_for_long, &stream);
    let_it_wait();
    reply = ask(text);
    CHECK_INT(reply_number(reply, "cursorsKilled.0"), >, 0);
    bson_destroy(reply);
    pthread_join(thread, NULL);
    CHECK_INT(reply_number(stream.reply, "code"), ==, 237);
    close_stream(&stream);
    stream = open_stream(STREAM);
    pthread_create(&thread, NULL, more_for_long, &stream);
    let_it_wait();
    end(); /* no client waits longer than the server runs */
    pthread_join(thread, NULL);
    close_stream(&stream);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const char *pipeline, int64_t code)
{
    char text[1000];

    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [%s], 'cursor': {'batchSize': 0}, '$db': 'test'}",
             pipeline);
    expect_code(text, code);
}

TEST(refuses_an_invalid_stream_as_mongodb_does)
{
    begin();
    insert(1);
    refused("{'$match': {}}, {'$changeStream': {}}", 40602);
    refused("{'$changeStream': {}}, {'$changeStream': {}}", 40602);
    refused("{'$changeStream': {}}, {'$group': {'_id': 1}}", 20);
    refused("{'$changeStream': {}}, {'$out': 'x'}", 20);
    refused("{'$changeStream': {}}, {'$nothing': 1}", 40324);
    refused("{'$changeStream': {}}, {'$match': {'a': {'$nothing': 1}}}", 2);
    refused("{'$changeStream': 1}", 50808);
    refused("{'$changeStream': {'nothing': 1}}", 40415);
    refused("{'$changeStream': {'fullDocument': 'nothing'}}", 2);
    refused("{'$changeStream': {'fullDocumentBeforeChange': 'updateLookup'}}", 2);
    refused("{'$changeStream': {'showExpandedEvents': 'yes'}}", 14);
    refused("{'$changeStream': {'allChangesForCluster': true}}", 72);
    refused("{'$changeStream': {'resumeAfter': {}}}", 40647);
    refused("{'$changeStream': {'resumeAfter': {'_data': 'xy'}}}", 9);
    refused("{'$changeStream': {'resumeAfter': {'_data': '826'}}}", 9);
    refused("{'$changeStream': {'resumeAfter': {'_data': '8263'}}}", 260);
    refused("{'$changeStream': {'startAtOperationTime': 1}}", 14);
    refused("{'$changeStream': {'resumeAfter': {'_data': '82'}, 'startAfter': {'_data': '82'}}}",
            50865);
    refused(
        "{'$changeStream': {'resumeAfter': {'_data': '82'}, 'startAtOperationTime': {'$timestamp': "
        "{'t': 1, 'i': 1}}}}",
        40674);
    expect_code(
        "{'aggregate': 1, 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': 'admin'}", 73);
    expect_code("{'aggregate': '$c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': "
                "'test'}",
                73);
    expect_code("{'aggregate': 'c.', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': "
                "'school'}",
                73);
    expect_code("{'aggregate': 'system.views', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                "'$db': 'test'}",
                73);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, 'lsid': {'id': "
        "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, 'txnNumber': "
        "{'$numberLong': '1'}, 'autocommit': false, 'startTransaction': true, '$db': 'test'}",
        263);
    end();
}

/* A token with another position, place or feed. */
static void expect_token(const struct change_stream_token *token, int64_t code)
{
    bson_t made = BSON_INITIALIZER;
    char text[300];

    change_stream_token_append(token, &made);
    snprintf(text, sizeof text, "{'$changeStream': {'resumeAfter': {'_data': '%s'}}}",
             text_of(&made, "_data"));
    refused(text, code);
    bson_destroy(&made);
}

TEST(a_token_of_another_history_is_refused)
{
    struct stream_of stream;
    struct change_stream_token token, other;
    struct feed_state state;
    bson_t *given;
    char text[200];
    bson_error_t error;

    begin();
    insert(1);
    truce__clock_sleep_ms(1001); /* positions are of their second */
    insert(2);
    CHECK_OK(truce__engine_feed_state(truce__file_engine(store), &state, &error), error);
    stream = open_stream(STREAM);
    snprintf(text, sizeof text, "{'_data': '%s'}", stream.token);
    given = test_bson(text);
    REQUIRE(CHECK_OK(change_stream_token_read(given, &token, &error), error));
    CHECK_INT(token.point, ==, STREAM_MARK);
    expect_token(&token, 0);
    other = token;
    other.position += 1000; /* which has not been yet */
    expect_token(&other, 280);
    other = token;
    other.point = STREAM_EVENT;
    expect_token(&other, 0);
    other.position = state.horizon + 1000000; /* where no event was */
    CHECK_INT(other.position, <, token.position);
    expect_token(&other, 280);
    other = token;
    other.feed.bytes[3] ^= 1;
    expect_token(&other, 286);
    bson_destroy(given);
    close_stream(&stream);
    end();
}

/* ---- a server that is killed ----------------------------------------------------------------- */

struct writing {
    int port, acknowledged;
};

/* Inserts until the server is gone. A number without an acknowledgement may be stored, and is sent
 * again. */
static void *write_on(void *arg)
{
    struct writing *writing = arg;
    int socket = dial_port(writing->port);

    for (;;) {
        char text[200];
        bson_t *reply;

        snprintf(text, sizeof text,
                 "{'update': 'c', 'updates': [{'q': {'_id': %d}, 'u': {'$setOnInsert': {'a': 1}}, "
                 "'upsert': true}], '$db': 'test'}",
                 writing->acknowledged);
        reply = ask_on(socket, text, 0);
        if (!reply)
            break;
        CHECK_INT(reply_number(reply, "ok"), ==, 1);
        bson_destroy(reply);
        writing->acknowledged++;
    }
    close(socket);
    return NULL;
}

/* Follows the stream from the token, and advances the token, until the server ends, which may be
 * before the stream opens, or (until >= 0) that number arrived. Each number arrives once, in
 * order. */
static void follow(int port, char token[100], int *next, int until)
{
    struct stream_of stream;
    char text[400];
    int empty = 0; /* the number of batches since the last event */

    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [{'$changeStream': {%s%s%s}}], 'cursor': {}, "
             "'$db': 'test'}",
             token[0] ? "'resumeAfter': {'_data': '" : "", token, token[0] ? "'}" : "");
    stream = open_stream_at(port, text);
    if (stream.reply)
        snprintf(token, 100, "%s", stream.token);
    while (stream.reply && (until < 0 || *next < until)) {
        bson_t event;

        event_of(&stream, 3, 1000, &event);
        if (!stream.reply)
            break;
        if (bson_empty(&event)) {
            if (!CHECK_INT(++empty, <, 60))
                break;
            continue;
        }
        empty = 0;
        CHECK_TEXT("insert", text_of(&event, "operationType"));
        if (!CHECK_INT(reply_number(&event, "documentKey._id"), ==, *next))
            break;
        snprintf(token, 100, "%s", text_of(&event, "_id._data"));
        (*next)++;
    }
    close_stream(&stream);
}

TEST(resumes_a_stream_after_the_server_was_killed)
{
    long kills = test_scale("TRUCE_SERVE_KILLS", 4);
    uint64_t seed = test_seed();
    struct writing writing = {0};
    char token[100] = "";
    struct random random;
    int next = 0, status;

    truce__random_seed(&random, seed);
    begin();
    done("{'insert': 'd', 'documents': [{'_id': 0}], '$db': 'test'}");
    end(); /* threads do not survive a fork */
    for (long i = 0; i < kills && !test_failures(); i++) {
        struct killing killing = {.after_ms = 20 + (uint32_t)truce__random_below(&random, 300)};
        pthread_t killer, writer;

        killing.child = serve_child(path, &writing.port);
        REQUIRE(CHECK_INT(writing.port, >, 0));
        if (!token[0]) /* the first: before anything is written */
            follow(writing.port, token, &next, 0);
        pthread_create(&killer, NULL, kill_served, &killing);
        pthread_create(&writer, NULL, write_on, &writing);
        follow(writing.port, token, &next, -1);
        pthread_join(writer, NULL);
        pthread_join(killer, NULL);
        CHECK(waitpid(killing.child, &status, 0) == killing.child);
        CHECK_INT(next, <=, writing.acknowledged + 1);
    }
    open_server(NULL);
    follow(server_port(server), token, &next, writing.acknowledged);
    CHECK_INT(next, >=, writing.acknowledged);
    CHECK_INT(next, >, 0);
    end();
}
