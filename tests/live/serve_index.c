/* Changes of existing indexes over the wire: collMod. */
#include <string.h>

#include "bson/value.h"
#include "server/session/change_stream.h"
#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(void)
{
    const struct server_feed feed = {INT64_C(3600000), 0};
    const struct server_options options = {.replica_set = "rs", .feed = &feed};
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    done("{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n_1'}, {'key': {'t': 1}, "
         "'name': 't_1', 'expireAfterSeconds': 60}, {'key': {'n': 1}, 'name': 'many', "
         "'partialFilterExpression': {'n': {'$gt': 5}}}], '$db': 'test'}");
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* Returns the answer of collMod, without `ok` and the fields of every answer. */
static void expect_modified(const char *index, const char *json)
{
    char text[300];
    bson_t *reply, *wanted = test_bson(json), plain = BSON_INITIALIZER;

    snprintf(text, sizeof text, "{'collMod': 'c', 'index': %s, '$db': 'test'}", index);
    reply = ask(text);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_copy_to_excluding_noinit(reply, &plain, "ok", "operationTime", "$clusterTime", NULL);
    CHECK_BSON(wanted, &plain);
    bson_destroy(&plain);
    bson_destroy(wanted);
    bson_destroy(reply);
}

static void expect_refused(const char *index, int64_t code)
{
    char text[300];

    snprintf(text, sizeof text, "{'collMod': 'c', 'index': %s, '$db': 'test'}", index);
    expect_code(text, code);
}

TEST(an_index_is_hidden_and_shown_by_its_name_or_its_key)
{
    bson_t *reply;

    begin();
    expect_modified("{'name': 'n_1', 'hidden': true}", "{'hidden_old': false, 'hidden_new': true}");
    expect_modified("{'name': 'n_1', 'hidden': true}", "{}");
    expect_code("{'find': 'c', 'hint': 'n_1', '$db': 'test'}", 2);
    reply = ask("{'listIndexes': 'c', '$db': 'test'}");
    CHECK(bson_has_field(reply, "cursor.firstBatch.1.hidden"));
    CHECK(!bson_has_field(reply, "cursor.firstBatch.2.hidden"));
    bson_destroy(reply);
    expect_modified("{'keyPattern': {'t': 1}, 'hidden': true, 'expireAfterSeconds': 90}",
                    "{'expireAfterSeconds_old': {'$numberLong': '60'}, 'expireAfterSeconds_new': "
                    "90, 'hidden_old': false, 'hidden_new': true}");
    expect_modified("{'keyPattern': {'t': 1}, 'expireAfterSeconds': 90}", "{}");
    expect_modified("{'name': 'n_1', 'hidden': false, 'expireAfterSeconds': 5}",
                    "{'expireAfterSeconds_new': 5, 'hidden_old': true, 'hidden_new': false}");
    expect_code("{'find': 'c', 'hint': 'n_1', '$db': 'test'}", 0);
    expect_code("{'find': 'c', 'hint': {'t': 1}, '$db': 'test'}", 2);
    end();
}

TEST(refuses_impossible_index_changes_with_mongodbs_codes)
{
    begin();
    expect_refused("{'hidden': true}", 72);
    expect_refused("{'name': 'n_1', 'keyPattern': {'n': 1}, 'hidden': true}", 72);
    expect_refused("{'name': 'n_1'}", 72);
    expect_refused("{'name': 'none', 'hidden': true}", 27);
    expect_refused("{'keyPattern': {'x': 1}, 'hidden': true}", 27);
    expect_refused("{'keyPattern': {'n': 1}, 'hidden': true}", 181);
    expect_refused("{'name': '_id_', 'hidden': true}", 2);
    expect_refused("{'name': 'n_1', 'hidden': 'yes'}", 14);
    expect_refused("{'name': 'n_1', 'unique': true}", 115);
    expect_refused("{'name': 'n_1', 'other': true}", 40415);
    expect_code("{'collMod': 'none', 'index': {'name': 'n_1', 'hidden': true}, '$db': 'test'}", 26);
    done("{'create': 'v', 'viewOn': 'c', '$db': 'test'}");
    expect_code("{'collMod': 'v', 'index': {'name': 'n_1', 'hidden': true}, '$db': 'test'}", 72);
    expect_code(
        "{'collMod': 'c', 'validator': {'$x': 1}, 'index': {'name': 'n_1', 'hidden': true}, "
        "'$db': 'test'}",
        2);
    expect_modified("{'name': 'n_1', 'hidden': false}", "{}"); /* it is as it was */
    end();
}

static void expect_part(const bson_t *event, const char *name, const char *part, const char *json)
{
    bson_t *wanted = test_bson(json), outer, inner;

    if (CHECK(truce__value_subdocument(event, name, &outer) &&
              truce__value_subdocument(&outer, part, &inner)))
        CHECK_BSON(wanted, &inner);
    bson_destroy(wanted);
}

/* Both change at once, or neither, and the stream reports one change. */
TEST(an_index_and_a_validator_are_changed_in_one_step)
{
    struct stream_of stream;
    bson_t *reply, event;

    begin();
    stream = watch_c("'showExpandedEvents': true", "");
    expect_code(
        "{'collMod': 'c', 'validator': {'x': {'$gt': 1}}, 'index': {'name': '_id_', 'hidden': "
        "true}, '$db': 'test'}",
        2);
    expect_code("{'insert': 'c', 'documents': [{'_id': 'low', 'x': 0}], '$db': 'test'}", 0);
    reply =
        ask("{'collMod': 'c', 'validator': {'x': {'$gt': 1}}, 'index': {'name': 't_1', 'hidden': "
            "true}, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    CHECK(bson_has_field(reply, "hidden_new"));
    bson_destroy(reply);
    expect_code("{'find': 'c', 'hint': 't_1', '$db': 'test'}", 2);
    reply = ask("{'insert': 'c', 'documents': [{'_id': 'lower', 'x': 0}], '$db': 'test'}");
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 121);
    bson_destroy(reply);
    event_of(&stream, 0, 60000, &event);
    CHECK_TEXT("insert", text_of(&event, "operationType"));
    event_of(&stream, 1, 60000, &event);
    CHECK_TEXT("modify", text_of(&event, "operationType"));
    expect_part(&event, "operationDescription", "index", "{'name': 't_1', 'hidden': true}");
    expect_part(&event, "operationDescription", "validator", "{'x': {'$gt': 1}}");
    expect_part(&event, "stateBeforeChange", "indexOptions", "{'hidden': false}");
    close_stream(&stream);
    end();
}

TEST(refuses_changes_that_are_not_one_step)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    done("{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n_1'}], '$db': 'test'}");
    expect_code("{'collMod': 'c', 'validator': {'x': 1}, 'index': {'name': 'n_1', 'hidden': true}, "
                "'$db': 'test'}",
                115);
    expect_code("{'find': 'c', 'hint': 'n_1', '$db': 'test'}", 0);
    expect_code("{'collMod': 'c', 'index': {'name': 'n_1', 'hidden': true}, '$db': 'test'}", 0);
    expect_code("{'find': 'c', 'hint': 'n_1', '$db': 'test'}", 2);
    end();
}

TEST(reports_a_changed_index_with_its_old_options)
{
    struct stream_of stream;
    bson_t event;

    begin();
    stream = watch_c("'showExpandedEvents': true", "");
    expect_modified("{'name': 't_1', 'hidden': true, 'expireAfterSeconds': 90}",
                    "{'expireAfterSeconds_old': {'$numberLong': '60'}, 'expireAfterSeconds_new': "
                    "90, 'hidden_old': false, 'hidden_new': true}");
    event_of(&stream, 0, 60000, &event);
    CHECK_TEXT("modify", text_of(&event, "operationType"));
    expect_part(&event, "operationDescription", "index",
                "{'name': 't_1', 'hidden': true, 'expireAfterSeconds': {'$numberLong': '90'}}");
    expect_part(&event, "stateBeforeChange", "indexOptions",
                "{'hidden': false, 'expireAfterSeconds': {'$numberLong': '60'}}");
    close_stream(&stream);
    end();
}
