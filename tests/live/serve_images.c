/*
 * Documents as they were before and after a change, in change streams
 * (changeStreamPreAndPostImages). The tests cover the options of a collection, the images in a
 * stream's events, and events whose image is missing.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "bson/value.h"
#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define HOUR_MS INT64_C(3600000)
#define NS      "'ns': {'db': 'test', 'coll': 'c'}"
#define KEPT    "'changeStreamPreAndPostImages': {'enabled': true}"
#define BOTH    "'fullDocument': '%s', 'fullDocumentBeforeChange': '%s'"

static char path[600];

static void open_server(const char *address, bool feed)
{
    const struct server_feed kept = {HOUR_MS, 0};
    const struct server_options options = {.replica_set = "rs", .feed = feed ? &kept : NULL};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(address, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    open_server(path, true);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void update(const char *how)
{
    char text[400];

    snprintf(text, sizeof text,
             "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': %s}], '$db': 'test'}", how);
    done(text);
}

static struct stream_of watch_images(const char *mode)
{
    char text[200];

    snprintf(text, sizeof text, BOTH, mode, strcmp(mode, "default") != 0 ? mode : "off");
    return watch_c(text, "");
}

/* Returns whether listCollections reports {enabled: true}. */
static void expect_option(const char *collection, const char *options)
{
    char text[200];
    bson_t *reply, *wanted = test_bson(options), reported;
    bson_iter_t at, found;
    const uint8_t *bytes;
    uint32_t size;

    snprintf(text, sizeof text, "{'listCollections': 1, 'filter': {'name': '%s'}, '$db': 'test'}",
             collection);
    reply = ask(text);
    if (CHECK(bson_iter_init(&at, reply) &&
              bson_iter_find_descendant(&at, "cursor.firstBatch.0.options", &found))) {
        bson_iter_document(&found, &size, &bytes);
        (void)bson_init_static(&reported, bytes, size);
        CHECK_BSON(wanted, &reported);
    }
    bson_destroy(wanted);
    bson_destroy(reply);
}

#define UPDATED(N)                                                                                 \
    "'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, 'updateDescription': "          \
    "{'updatedFields': {'n': " #N "}, 'removedFields': [], 'truncatedArrays': []}"

TEST(reports_images_in_a_stream)
{
    static const char *const modes[] = {"whenAvailable", "required", "default"};
    struct stream_of streams[3];

    begin();
    done("{'create': 'c', " KEPT ", '$db': 'test'}");
    for (int i = 0; i < 3; i++)
        streams[i] = watch_images(modes[i]);
    done("{'insert': 'c', 'documents': [{'_id': 1, 'n': 1}], '$db': 'test'}");
    update("{'$inc': {'n': 1}}");
    update("{'$inc': {'n': 1}}");
    update("{'n': 7}");
    done("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'test'}");
    for (int i = 0; i < 3; i++) {
        expect_event(&streams[i],
                     "{'operationType': 'insert', 'fullDocument': {'_id': 1, 'n': 1}, " NS
                     ", 'documentKey': {'_id': 1}}");
        if (i == 2)
            break;
        expect_event(&streams[i], "{" UPDATED(2) ", 'fullDocument': {'_id': 1, 'n': 2}, "
                                                 "'fullDocumentBeforeChange': {'_id': 1, 'n': 1}}");
        expect_event(&streams[i], "{" UPDATED(3) ", 'fullDocument': {'_id': 1, 'n': 3}, "
                                                 "'fullDocumentBeforeChange': {'_id': 1, 'n': 2}}");
        expect_event(&streams[i],
                     "{'operationType': 'replace', 'fullDocument': {'_id': 1, 'n': 7}, " NS
                     ", 'documentKey': {'_id': 1}, "
                     "'fullDocumentBeforeChange': {'_id': 1, 'n': 3}}");
        expect_event(&streams[i], "{'operationType': 'delete', " NS ", 'documentKey': {'_id': 1}, "
                                  "'fullDocumentBeforeChange': {'_id': 1, 'n': 7}}");
    }
    expect_event(&streams[2], "{" UPDATED(2) "}");
    expect_event(&streams[2], "{" UPDATED(3) "}");
    expect_event(&streams[2], "{'operationType': 'replace', 'fullDocument': {'_id': 1, 'n': 7}, " NS
                              ", 'documentKey': {'_id': 1}}");
    expect_event(&streams[2], "{'operationType': 'delete', " NS ", 'documentKey': {'_id': 1}}");
    for (int i = 0; i < 3; i++)
        close_stream(&streams[i]);
    end();
}

TEST(reports_images_of_a_transaction_and_of_an_upsert)
{
    struct stream_of stream;

    begin();
    done("{'create': 'c', " KEPT ", '$db': 'test'}");
    stream = watch_images("required");
    done("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'n': 1}}, 'upsert': true}], "
         "'$db': 'test'}");
    done("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'n': 2}}}], '$db': 'test', "
         "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "
         "'txnNumber': {'$numberLong': '1'}, 'startTransaction': true, 'autocommit': false}");
    done("{'commitTransaction': 1, '$db': 'admin', "
         "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "
         "'txnNumber': {'$numberLong': '1'}, 'autocommit': false}");
    expect_event(&stream, "{'operationType': 'insert', 'fullDocument': {'_id': 1, 'n': 1}, " NS
                          ", 'documentKey': {'_id': 1}}");
    expect_event(&stream, "{'operationType': 'update', " NS ", 'documentKey': {'_id': 1}, "
                          "'updateDescription': {'updatedFields': {'n': 2}, 'removedFields': [], "
                          "'truncatedArrays': []}, 'fullDocument': {'_id': 1, 'n': 2}, "
                          "'fullDocumentBeforeChange': {'_id': 1, 'n': 1}}");
    close_stream(&stream);
    end();
}

/* Streams that require an image that was not stored, and their error codes. */
static void expect_end(const char *options, const char *how, const char *words)
{
    struct stream_of stream = watch_c(options, "");

    if (how[0] == '{')
        update(how);
    else
        done("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'test'}");
    ask_more(&stream, 0, 1000);
    CHECK_INT(reply_number(stream.reply, "code"), ==, 47);
    CHECK_TEXT("NoMatchingDocument", text_of(stream.reply, "codeName"));
    CHECK_TEXT(words, strstr(text_of(stream.reply, "errmsg"), words));
    close_stream(&stream);
}

TEST(ends_a_stream_that_needs_a_missing_image)
{
    begin();
    done("{'insert': 'c', 'documents': [{'_id': 1, 'n': 1}], '$db': 'test'}");
    expect_end(
        "'fullDocument': 'required'", "{'$inc': {'n': 1}}",
        "Change stream was configured to require a post-image for all update events, but the "
        "post-image was not found for event: it was not kept");
    expect_end("'fullDocumentBeforeChange': 'required'", "{'$inc': {'n': 1}}",
               "Change stream was configured to require a pre-image for all update, delete and "
               "replace events, but the pre-image was not found for event: it was not kept");
    expect_end("'fullDocumentBeforeChange': 'required'", "{'n': 9}",
               "Change stream was configured to require a pre-image for all update, delete and "
               "replace events, but the pre-image was not found for event: it was not kept");
    expect_end("'fullDocumentBeforeChange': 'required'", "delete",
               "Change stream was configured to require a pre-image for all update, delete and "
               "replace events, but the pre-image was not found for event: it was not kept");
    end();
}

TEST(stores_images_only_while_they_are_enabled)
{
    struct stream_of stream;

    begin();
    done("{'insert': 'c', 'documents': [{'_id': 1, 'n': 1}], '$db': 'test'}");
    stream = watch_images("whenAvailable");
    update("{'$inc': {'n': 1}}");
    done("{'collMod': 'c', " KEPT ", '$db': 'test'}");
    expect_option("c", "{" KEPT "}");
    update("{'$inc': {'n': 1}}");
    done("{'collMod': 'c', 'validator': {'n': {'$gt': 0}}, '$db': 'test'}"); /* and nothing else */
    update("{'$inc': {'n': 1}}");
    done("{'collMod': 'c', 'changeStreamPreAndPostImages': {'enabled': false}, '$db': 'test'}");
    expect_option("c", "{'validator': {'n': {'$gt': 0}}, 'validationLevel': 'strict', "
                       "'validationAction': 'error'}");
    update("{'$inc': {'n': 1}}");
    expect_event(&stream, "{" UPDATED(2) ", 'fullDocument': null, "
                                         "'fullDocumentBeforeChange': null}");
    expect_event(&stream, "{" UPDATED(3) ", 'fullDocument': {'_id': 1, 'n': 3}, "
                                         "'fullDocumentBeforeChange': {'_id': 1, 'n': 2}}");
    expect_event(&stream, "{" UPDATED(4) ", 'fullDocument': {'_id': 1, 'n': 4}, "
                                         "'fullDocumentBeforeChange': {'_id': 1, 'n': 3}}");
    expect_event(&stream, "{" UPDATED(5) ", 'fullDocument': null, "
                                         "'fullDocumentBeforeChange': null}");
    close_stream(&stream);
    end();
}

TEST(a_collection_is_made_with_all_of_its_options_or_not_at_all)
{
    begin();
    done("{'create': 'c', " KEPT ", 'validator': {'n': 1}, '$db': 'test'}");
    expect_option("c", "{'validator': {'n': 1}, 'validationLevel': 'strict', 'validationAction': "
                       "'error', " KEPT "}");
    expect_code("{'create': 'c', " KEPT ", '$db': 'test'}", 48);
    expect_code("{'create': 'd', " KEPT ", 'validator': {'$near': 1}, '$db': 'test'}", 2);
    expect_code("{'collMod': 'd', " KEPT ", '$db': 'test'}", 26);
    done("{'create': 'e', 'changeStreamPreAndPostImages': {'enabled': false}, '$db': 'test'}");
    expect_option("e", "{}");
    end();
}

TEST(refuses_an_invalid_option_as_mongodb_does)
{
#define IMAGES "'changeStreamPreAndPostImages': "
    begin();
    done("{'create': 'c', '$db': 'test'}");
    expect_code("{'create': 'd', " IMAGES "{}, '$db': 'test'}", 40414);
    expect_code("{'create': 'd', " IMAGES "true, '$db': 'test'}", 14);
    expect_code("{'create': 'd', " IMAGES "{'enabled': 1}, '$db': 'test'}", 14);
    expect_code("{'create': 'd', " IMAGES "{'enabled': true, 'x': 1}, '$db': 'test'}", 40415);
    expect_code("{'collMod': 'c', " IMAGES "{}, '$db': 'test'}", 40414);
    expect_code("{'create': 'd', " KEPT ", '$db': 'admin'}", 72);
    expect_code("{'create': 'd', " KEPT ", '$db': 'config'}", 72);
    expect_code("{'create': 'd', " KEPT ", '$db': 'local'}", 72);
    expect_code(
        "{'create': 'd', " KEPT ", '$db': 'test', 'lsid': {'id': {'$binary': {'base64': "
        "'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, 'txnNumber': {'$numberLong': '1'}, "
        "'startTransaction': true, 'autocommit': false}",
        263);
    end();
}

TEST(a_store_that_is_no_file_keeps_no_images)
{
    const struct server_options options = {0};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'create': 'c', " KEPT ", '$db': 'test'}", 115);
    done("{'create': 'c', 'changeStreamPreAndPostImages': {'enabled': false}, 'validator': {'n': "
         "1}, '$db': 'test'}");
    expect_code("{'collMod': 'c', " KEPT ", '$db': 'test'}", 115);
    expect_code("{'insert': 'c', 'documents': [{'n': 2}], 'ordered': true, '$db': 'test'}", 0);
    done("{'collMod': 'c', 'validator': {}, '$db': 'test'}");
    expect_option("c", "{}");
    end();
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void write_large(const char *command, const char *field, char letter, int bytes)
{
    char *text = bson_malloc((size_t)bytes + 400), *value = bson_malloc((size_t)bytes + 1);

    memset(value, letter, (size_t)bytes);
    value[bytes] = 0;
    snprintf(text, (size_t)bytes + 400, command, field, value);
    done(text);
    bson_free(text);
    bson_free(value);
}

TEST(limits_the_size_of_an_event_after_the_stages)
{
    struct stream_of stream, part;
    bson_t event;

    begin();
    done("{'create': 'c', " KEPT ", '$db': 'test'}");
    write_large("{'insert': 'c', 'documents': [{'_id': 1, '%s': '%s'}], '$db': 'test'}", "a", 'x',
                9000000);
    stream = watch_c("'fullDocumentBeforeChange': 'required'", "");
    part = watch_c("'fullDocumentBeforeChange': 'required'",
                   ", {'$unset': 'fullDocumentBeforeChange.a'}");
    write_large("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'%s': '%s'}}}], "
                "'$db': 'test'}",
                "a", 'y', 9000000);
    ask_more(&stream, 0, 1000);
    CHECK_INT(reply_number(stream.reply, "code"), ==, 10334);
    CHECK(!strncmp(text_of(stream.reply, "errmsg"), "BSONObj size: ", 14));
    event_of(&part, 0, 60000, &event);
    CHECK_TEXT("update", text_of(&event, "operationType"));
    CHECK_INT(event.len, >, 9000000);
    close_stream(&stream);
    close_stream(&part);
    end();
}

/* ---- fragments ------------------------------------------------------------------------------- */

#define SPLIT  ", {'$changeStreamSplitLargeEvent': {}}"
#define LARGE  9000000
#define BEFORE "'fullDocumentBeforeChange': 'required'"
#define SET_LARGE                                                                                  \
    "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'%s': '%s'}}}], '$db': 'test'}"

static void change_large(char letter)
{
    write_large(SET_LARGE, "a", letter, LARGE);
}

static void begin_large(void)
{
    begin();
    done("{'create': 'c', " KEPT ", '$db': 'test'}");
    write_large("{'insert': 'c', 'documents': [{'_id': 1, '%s': '%s'}], '$db': 'test'}", "a", 'x',
                LARGE);
}

/* The next one is this fragment of two, with that field, and without the other; its token. */
static void expect_fragment(struct stream_of *stream, int batch, int number, const char *with,
                            const char *without, char token[100])
{
    bson_t event, split;
    bson_iter_t at;

    event_of(stream, batch, 60000, &event);
    if (!CHECK(bson_iter_init_find(&at, &event, "splitEvent")))
        fprintf(stderr, "    %s\n", text_of(stream->reply, "errmsg"));
    if (truce__value_subdocument(&event, "splitEvent", &split)) {
        CHECK_INT(reply_number(&split, "fragment"), ==, number);
        CHECK_INT(reply_number(&split, "of"), ==, 2);
    }
    CHECK(bson_has_field(&event, with));
    CHECK(!bson_has_field(&event, without));
    CHECK(bson_has_field(&event, "operationType") == (number == 1));
    snprintf(token, 100, "%s", text_of(&event, "_id._data"));
}

static void expect_large_event(struct stream_of *stream, int batch, char first[100],
                               char second[100])
{
    expect_fragment(stream, batch, 1, "fullDocumentBeforeChange", "updateDescription", first);
    if (batch == 1)
        CHECK_TEXT(first, stream->token);
    expect_fragment(stream, batch, 2, "updateDescription", "fullDocumentBeforeChange", second);
    CHECK(strcmp(first, second) < 0);
}

static struct stream_of resume(const char *how, const char *token, const char *stages)
{
    char options[300];

    snprintf(options, sizeof options, BEFORE ", '%s': {'_data': '%s'}", how, token);
    return watch_c(options, stages);
}

#define SMALL                                                                                      \
    "{'operationType': 'insert', 'fullDocument': {'_id': 2}, " NS ", 'documentKey': {'_id': 2}}"

TEST(splits_a_large_event_and_resumes_after_any_fragment)
{
    char first[100], second[100], again[100], behind[100];
    struct stream_of stream, some;

    begin_large();
    stream = watch_c(BEFORE, SPLIT);
    some = watch_c(BEFORE, SPLIT);
    change_large('y');
    done("{'insert': 'c', 'documents': [{'_id': 2}], '$db': 'test'}");
    expect_large_event(&stream, 0, first, second);
    expect_event(&stream, SMALL); /* which is not split */
    expect_large_event(&some, 1, again, behind);
    CHECK_TEXT(first, again);
    CHECK_TEXT(second, behind);
    close_stream(&some);
    close_stream(&stream);
    for (int i = 0; i < 2; i++) {
        stream = resume(i ? "startAfter" : "resumeAfter", first, SPLIT);
        expect_fragment(&stream, 0, 2, "updateDescription", "fullDocumentBeforeChange", again);
        CHECK_TEXT(second, again);
        expect_event(&stream, SMALL);
        close_stream(&stream);
        stream = resume(i ? "startAfter" : "resumeAfter", second, SPLIT);
        expect_event(&stream, SMALL);
        close_stream(&stream);
    }
    end();
}

/* Resumes a stream from the token, with these stages. */
static bson_t *ask_resume(const char *token, const char *stages)
{
    char text[600];

    snprintf(text, sizeof text,
             "{'aggregate': 'c', 'pipeline': [{'$changeStream': {" BEFORE
             ", 'resumeAfter': {'_data': '%s'}}}%s], 'cursor': {}, '$db': 'test'}",
             token, stages);
    return ask(text);
}

static void expect_resume(const char *token, const char *stages, int64_t code)
{
    bson_t *reply = ask_resume(token, stages);

    CHECK_INT(reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code"), ==, code);
    bson_destroy(reply);
}

/* Resuming without the stage fails with the error that the stage is missing, not that the event
 * differs. */
static void expect_the_stage_missed(const char *token)
{
    bson_t *reply = ask_resume(token, "");

    CHECK_INT(reply_number(reply, "code"), ==, 280);
    CHECK(strstr(truce__field_text(reply, "errmsg"), "has no $changeStreamSplitLargeEvent"));
    bson_destroy(reply);
}

TEST(reports_a_missing_fragment_at_a_resume)
{
    char first[100], second[100];
    struct stream_of stream;

    begin_large();
    stream = watch_c(BEFORE, SPLIT);
    change_large('y');
    expect_large_event(&stream, 0, first, second);
    close_stream(&stream);
    expect_resume(first, SPLIT, 0);
    expect_the_stage_missed(first);
    expect_resume(first, ", {'$unset': 'fullDocumentBeforeChange'}" SPLIT, 280);
    second[19] = '5'; /* the third */
    expect_resume(second, SPLIT, 280);
    second[18] = 'F'; /* one of very many */
    second[19] = 'F';
    expect_resume(second, SPLIT, 280);
    end();
}

TEST(allows_a_splitting_stage_only_at_the_end_and_alone)
{
    begin();
#define STAGES(S)                                                                                  \
    "{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}" S "], 'cursor': {}, '$db': 'test'}"
    expect_code(STAGES(", {'$changeStreamSplitLargeEvent': {'x': 1}}"), 7182800);
    expect_code(STAGES(", {'$changeStreamSplitLargeEvent': 1}"), 7182800);
    expect_code(STAGES(SPLIT ", {'$match': {}}"), 7182802);
    expect_code(STAGES(SPLIT SPLIT), 7182802);
    expect_code(STAGES(", {'$match': {}}" SPLIT), 0);
    expect_code(STAGES(", {'$group': {'_id': 1}}" SPLIT), 20);
    end();
}
