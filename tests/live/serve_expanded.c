/* Change streams with showExpandedEvents: events of collections and indexes, and the additional
 * fields of other events. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bson/value.h"
#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define HOUR_MS  INT64_C(3600000)
#define NS       "'ns': {'db': 'test', 'coll': 'c'}"
#define EXPANDED "'showExpandedEvents': true"
#define ID_INDEX "'idIndex': {'v': 2, 'key': {'_id': 1}, 'name': '_id_'}"

static void begin(void)
{
    const struct server_feed kept = {HOUR_MS, 0};
    const struct server_options options = {.replica_set = "rs", .feed = &kept};
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* Copies the UUID at the path, in hexadecimal digits; "" if the path is missing. */
static void uuid_of(const bson_t *event, const char *path, char text[33])
{
    bson_iter_t at, found;
    const uint8_t *bytes;
    bson_subtype_t subtype;
    uint32_t size;

    text[0] = 0;
    if (!bson_iter_init(&at, event) || !bson_iter_find_descendant(&at, path, &found) ||
        !BSON_ITER_HOLDS_BINARY(&found))
        return;
    bson_iter_binary(&found, &subtype, &size, &bytes);
    CHECK_INT(subtype, ==, BSON_SUBTYPE_UUID);
    if (CHECK_INT(size, ==, 16))
        for (int i = 0; i < 16; i++)
            snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Checks that the next event has these fields in addition to _id, times and the given
 * collectionUUID. */
static void expect_expanded(struct stream_of *stream, const char *json, char uuid[33])
{
    bson_t event, *wanted = test_bson(json), plain = BSON_INITIALIZER;

    event_of(stream, 0, 60000, &event);
    bson_copy_to_excluding_noinit(&event, &plain, "_id", "clusterTime", "wallTime",
                                  "collectionUUID", NULL);
    if (!CHECK_BSON(wanted, &plain))
        fprintf(stderr, "    %s\n", text_of(stream->reply, "errmsg"));
    uuid_of(&event, "collectionUUID", uuid);
    bson_destroy(&plain);
    bson_destroy(wanted);
}

static struct stream_of watch_database(const char *options)
{
    char text[300];

    snprintf(text, sizeof text,
             "{'aggregate': 1, 'pipeline': [{'$changeStream': {%s}}], 'cursor': {}, '$db': 'test'}",
             options);
    return open_stream(text);
}

TEST(reports_created_collections_and_indexes_on_request)
{
    struct stream_of stream, plain;
    char uuid[33], same[33];

    begin();
    stream = watch_database(EXPANDED);
    plain = watch_database("");
    done("{'create': 'c', 'validator': {'n': {'$gt': 0}}, 'changeStreamPreAndPostImages': "
         "{'enabled': true}, '$db': 'test'}");
    done("{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n_1'}, {'key': {'m': 1}, "
         "'name': 'm_1', 'unique': true}], '$db': 'test'}");
    done("{'dropIndexes': 'c', 'index': 'n_1', '$db': 'test'}");
    done("{'collMod': 'c', 'changeStreamPreAndPostImages': {'enabled': false}, '$db': 'test'}");
    done("{'insert': 'c', 'documents': [{'_id': 1, 'n': 1}], '$db': 'test'}");
    done("{'drop': 'c', '$db': 'test'}");
    expect_expanded(&stream,
                    "{'operationType': 'create', " NS ", 'operationDescription': {'validator': "
                    "{'n': {'$gt': 0}}, 'validationLevel': 'strict', 'validationAction': 'error', "
                    "'changeStreamPreAndPostImages': {'enabled': true}, " ID_INDEX "}}",
                    uuid);
    CHECK_INT(strlen(uuid), ==, 32);
    expect_expanded(&stream,
                    "{'operationType': 'createIndexes', " NS ", 'operationDescription': "
                    "{'indexes': [{'v': 2, 'key': {'n': 1}, 'name': 'n_1'}]}}",
                    same);
    CHECK_TEXT(uuid, same);
    expect_expanded(&stream,
                    "{'operationType': 'createIndexes', " NS ", 'operationDescription': "
                    "{'indexes': [{'v': 2, 'key': {'m': 1}, 'name': 'm_1', 'unique': true}]}}",
                    same);
    expect_expanded(&stream,
                    "{'operationType': 'dropIndexes', " NS ", 'operationDescription': "
                    "{'indexes': [{'v': 2, 'key': {'n': 1}, 'name': 'n_1'}]}}",
                    same);
    CHECK_TEXT(uuid, same);
    close_stream(&stream);
    expect_event(&plain, "{'operationType': 'insert', 'fullDocument': {'_id': 1, 'n': 1}, " NS
                         ", 'documentKey': {'_id': 1}}");
    expect_event(&plain, "{'operationType': 'drop', " NS "}");
    expect_nothing(&plain);
    close_stream(&plain);
    end();
}

TEST(reports_created_views_on_request)
{
    static const char view[] = "'ns': {'db': 'test', 'coll': 'v'}";
    const char *options = EXPANDED ", 'fullDocument': 'required', 'fullDocumentBeforeChange': "
                                   "'required'";
    struct stream_of stream, plain, all, other, collection;
    char uuid[33];

    begin();
    done("{'create': 'c', '$db': 'test'}");
    stream = watch_database(options);
    plain = watch_database("");
    all = open_stream(
        "{'aggregate': 1, 'pipeline': [{'$changeStream': {'allChangesForCluster': true, " EXPANDED
        "}}], 'cursor': {}, '$db': 'admin'}");
    other = open_stream("{'aggregate': 1, 'pipeline': [{'$changeStream': {" EXPANDED
                        "}}], 'cursor': {}, '$db': 'school'}");
    collection = open_stream("{'aggregate': 'v', 'pipeline': [{'$changeStream': {" EXPANDED
                             "}}], 'cursor': {}, '$db': 'test'}");
    done("{'create': 'v', 'viewOn': 'c', '$db': 'config'}"); /* not reported in any stream */
    done("{'create': 'v', 'viewOn': 'c', 'pipeline': [{'$match': {'n': 1}}], '$db': 'test'}");
    done("{'collMod': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'test'}");
    done("{'drop': 'v', '$db': 'test'}");
    done("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}");
    for (int i = 0; i < 2; i++) {
        struct stream_of *reported = i ? &all : &stream;
        char text[300];

        snprintf(text, sizeof text,
                 "{'operationType': 'create', %s, 'operationDescription': {'viewOn': 'c', "
                 "'pipeline': [{'$match': {'n': 1}}]}}",
                 view);
        expect_expanded(reported, text, uuid);
        CHECK_TEXT("", uuid);
        snprintf(text, sizeof text,
                 "{'operationType': 'modify', %s, 'operationDescription': {'viewOn': 'c', "
                 "'pipeline': []}}",
                 view);
        expect_expanded(reported, text, uuid);
        snprintf(text, sizeof text, "{'operationType': 'drop', %s}", view);
        expect_expanded(reported, text, uuid);
        CHECK_TEXT("", uuid);
        close_stream(reported);
    }
    expect_event(&plain, "{'operationType': 'insert', 'fullDocument': {'_id': 1}, " NS
                         ", 'documentKey': {'_id': 1}}");
    expect_nothing(&other);
    expect_nothing(&collection);
    close_stream(&plain);
    close_stream(&other);
    close_stream(&collection);
    end();
}

TEST(reports_the_old_options_of_a_modification)
{
    struct stream_of stream;
    char uuid[33], before[33];
    bson_t event, state, options, plain = BSON_INITIALIZER, *wanted;

    begin();
    done("{'create': 'c', 'validator': {'n': 1}, '$db': 'test'}");
    stream = watch_database(EXPANDED);
    done("{'collMod': 'c', 'changeStreamPreAndPostImages': {'enabled': true}, '$db': 'test'}");
    done("{'collMod': 'c', '$db': 'test'}"); /* changes nothing, but is reported, too */
    event_of(&stream, 0, 60000, &event);
    CHECK_TEXT("modify", text_of(&event, "operationType"));
    uuid_of(&event, "collectionUUID", uuid);
    uuid_of(&event, "stateBeforeChange.collectionOptions.uuid", before);
    CHECK_TEXT(uuid, before);
    if (CHECK(truce__value_subdocument(&event, "stateBeforeChange", &state)) &&
        CHECK(truce__value_subdocument(&state, "collectionOptions", &options)))
        bson_copy_to_excluding_noinit(&options, &plain, "uuid", NULL);
    wanted = test_bson(
        "{'validator': {'n': 1}, 'validationLevel': 'strict', 'validationAction': 'error'}");
    CHECK_BSON(wanted, &plain);
    bson_destroy(wanted);
    wanted = test_bson("{'changeStreamPreAndPostImages': {'enabled': true}}");
    if (CHECK(truce__value_subdocument(&event, "operationDescription", &options)))
        CHECK_BSON(wanted, &options);
    event_of(&stream, 0, 60000, &event);
    CHECK_TEXT("modify", text_of(&event, "operationType"));
    if (CHECK(truce__value_subdocument(&event, "operationDescription", &options)))
        CHECK(bson_empty(&options));
    bson_destroy(wanted);
    bson_destroy(&plain);
    close_stream(&stream);
    end();
}

TEST(reports_the_replaced_collection_of_a_rename)
{
    struct stream_of stream;
    char uuid[33], target[33], dropped[33], same[33];
    bson_t event;

    begin();
    stream = watch_database(EXPANDED);
    done("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}");
    done("{'create': 'd', '$db': 'test'}");
    done("{'renameCollection': 'test.c', 'to': 'test.d', 'dropTarget': true, '$db': 'admin'}");
    done("{'renameCollection': 'test.d', 'to': 'test.c', '$db': 'admin'}");
    done("{'drop': 'c', '$db': 'test'}");
    expect_expanded(&stream,
                    "{'operationType': 'create', " NS ", 'operationDescription': {" ID_INDEX "}}",
                    uuid);
    expect_expanded(&stream,
                    "{'operationType': 'insert', 'fullDocument': {'_id': 1}, " NS
                    ", 'documentKey': {'_id': 1}}",
                    same);
    CHECK_TEXT(uuid, same);
    event_of(&stream, 0, 60000, &event);
    uuid_of(&event, "collectionUUID", target);
    CHECK(strcmp(uuid, target) != 0);
    event_of(&stream, 0, 60000, &event);
    CHECK_TEXT("rename", text_of(&event, "operationType"));
    CHECK_TEXT("d", text_of(&event, "operationDescription.to.coll"));
    uuid_of(&event, "operationDescription.dropTarget", dropped);
    CHECK_TEXT(target, dropped);
    uuid_of(&event, "collectionUUID", same);
    CHECK_TEXT(uuid, same);
    expect_expanded(&stream,
                    "{'operationType': 'rename', 'ns': {'db': 'test', 'coll': 'd'}, 'to': "
                    "{'db': 'test', 'coll': 'c'}, 'operationDescription': {'to': {'db': "
                    "'test', 'coll': 'c'}}}",
                    same);
    CHECK_TEXT(uuid, same);
    expect_expanded(&stream, "{'operationType': 'drop', " NS "}", same);
    CHECK_TEXT(uuid, same);
    close_stream(&stream);
    end();
}

TEST(reports_ambiguous_paths_on_request)
{
    struct stream_of stream, plain;
    char uuid[33];

    begin();
    done("{'insert': 'c', 'documents': [{'_id': 1, 'a': {'1': 1}, 'n': 1}], '$db': 'test'}");
    stream = watch_c(EXPANDED, "");
    plain = watch_c("'showExpandedEvents': false", "");
    done("{'update': 'c', 'updates': [{'q': {}, 'u': {'$set': {'a.1': 2}}}], '$db': 'test'}");
    done("{'update': 'c', 'updates': [{'q': {}, 'u': {'$set': {'n': 2}}}], '$db': 'test'}");
#define UPDATED(F, MORE)                                                                           \
    "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, 'updateDescription': "         \
    "{'updatedFields': {" F ": 2}, 'removedFields': [], 'truncatedArrays': []" MORE "}}"
    expect_expanded(&stream, UPDATED("'a.1'", ", 'disambiguatedPaths': {'a.1': ['a', '1']}"), uuid);
    expect_expanded(&stream, UPDATED("'n'", ", 'disambiguatedPaths': {}"), uuid);
    CHECK_INT(strlen(uuid), ==, 32);
    expect_event(&plain, UPDATED("'a.1'", ""));
    expect_event(&plain, UPDATED("'n'", ""));
    close_stream(&stream);
    close_stream(&plain);
    end();
}

/* Reads the UUID of the only collection by listCollections. */
static void listed_uuid(char text[33])
{
    bson_t *reply = ask("{'listCollections': 1, '$db': 'test'}");

    uuid_of(reply, "cursor.firstBatch.0.info.uuid", text);
    bson_destroy(reply);
}

TEST(keeps_the_uuid_of_a_collection_in_lists_and_events)
{
    struct stream_of stream;
    char reported[33], listed[33];

    begin();
    stream = watch_database(EXPANDED);
    done("{'create': 'c', '$db': 'test'}");
    expect_expanded(&stream,
                    "{'operationType': 'create', " NS ", 'operationDescription': {" ID_INDEX "}}",
                    reported);
    listed_uuid(listed);
    CHECK_INT(strlen(reported), ==, 32);
    CHECK_TEXT(reported, listed);
    done("{'renameCollection': 'test.c', 'to': 'test.d', '$db': 'admin'}");
    done("{'createIndexes': 'd', 'indexes': [{'key': {'n': 1}, 'name': 'n_1'}], '$db': 'test'}");
    listed_uuid(listed);
    CHECK_TEXT(reported, listed);
    done("{'drop': 'd', '$db': 'test'}");
    done("{'create': 'd', '$db': 'test'}");
    listed_uuid(listed);
    CHECK(strcmp(reported, listed) != 0);
    close_stream(&stream);
    end();
}

TEST(a_token_of_an_expanded_event_is_one_like_any_other)
{
    static const char *const options[] = {"", ", " EXPANDED};
    struct stream_of stream;
    char text[300], uuid[33];
    bson_t event;

    begin();
    stream = watch_database(EXPANDED);
    done("{'create': 'c', '$db': 'test'}");
    done("{'create': 'd', '$db': 'test'}");
    done("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}");
    event_of(&stream, 0, 60000, &event);
    snprintf(text, sizeof text, "'resumeAfter': {'_data': '%s'}", text_of(&event, "_id._data"));
    close_stream(&stream);
    for (int i = 0; i < 2; i++) {
        char with[400];

        snprintf(with, sizeof with, "%s%s", text, options[i]);
        stream = watch_database(with);
        if (i)
            expect_expanded(&stream,
                            "{'operationType': 'create', 'ns': {'db': 'test', 'coll': "
                            "'d'}, 'operationDescription': {" ID_INDEX "}}",
                            uuid);
        expect_expanded(&stream,
                        "{'operationType': 'insert', 'fullDocument': {'_id': 1}, " NS
                        ", 'documentKey': {'_id': 1}}",
                        uuid);
        CHECK_INT(strlen(uuid), ==, i ? 32 : 0);
        close_stream(&stream);
    }
    end();
}

#define SESSION                                                                                    \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "       \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false"

TEST(reports_collections_created_in_a_transaction_with_it)
{
    struct stream_of stream;
    char uuid[33];

    begin();
    stream = watch_database(EXPANDED);
    done("{'create': 'c', '$db': 'test', 'startTransaction': true, " SESSION "}");
    done(
        "{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n_1'}], '$db': 'test', " SESSION
        "}");
    done("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test', " SESSION "}");
    expect_nothing(&stream);
    done("{'commitTransaction': 1, '$db': 'admin', " SESSION "}");
    expect_expanded(&stream,
                    "{'operationType': 'create', " NS ", 'operationDescription': {" ID_INDEX "}}",
                    uuid);
    expect_expanded(&stream,
                    "{'operationType': 'createIndexes', " NS ", 'operationDescription': "
                    "{'indexes': [{'v': 2, 'key': {'n': 1}, 'name': 'n_1'}]}}",
                    uuid);
    expect_expanded(&stream,
                    "{'operationType': 'insert', 'fullDocument': {'_id': 1}, " NS
                    ", 'documentKey': {'_id': 1}}",
                    uuid);
    close_stream(&stream);
    end();
}
