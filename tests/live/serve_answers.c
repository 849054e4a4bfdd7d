/* What the server's commands answer, field by field, where clients look at the fields. */
#include <string.h>

#include "server/duplicate.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(void)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void check_text(const bson_t *reply, const char *path, const char *wanted)
{
    bson_iter_t iter, found;

    if (CHECK(bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found) &&
              BSON_ITER_HOLDS_UTF8(&found)))
        CHECK_TEXT(wanted, bson_iter_utf8(&found, NULL));
}

TEST(a_key_that_is_taken_is_told_as_clients_look_for_it)
{
    bson_t *reply;

    begin();
    bson_destroy(ask("{'createIndexes': 'c', 'indexes': [{'key': {'a': 1, 'b.c': -1}, 'name': 'i',"
                     " 'unique': true}], '$db': 'school'}"));
    bson_destroy(ask("{'insert': 'c', 'documents': [{'_id': 1, 'a': 'x', 'b': {'c': 2.5}}, {'_id': "
                     "2}], '$db': 'school'}"));
    reply = ask("{'insert': 'c', 'documents': [{'a': 'x', 'b': {'c': 2.5}}], '$db': 'school'}");
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 11000);
    CHECK_INT(reply_number(reply, "writeErrors.0.keyPattern.a"), ==, 1);
    check_text(reply, "writeErrors.0.keyValue.a", "x");
    check_text(reply, "writeErrors.0.errmsg",
               "E11000 duplicate key error collection: school.c index: i dup key: "
               "{\"a\": \"x\", \"b.c\": 2.5}");
    bson_destroy(reply);
    reply = ask("{'findAndModify': 'c', 'query': {'_id': 2}, 'update': {'$set': {'a': 'x', 'b.c': "
                "2.5}}, '$db': 'school'}");
    CHECK_INT(reply_number(reply, "code"), ==, 11000);
    check_text(reply, "keyValue.a", "x");
    bson_destroy(reply);
    bson_destroy(ask("{'insert': 'c', 'documents': [{'_id': 7}], '$db': 'test'}"));
    reply = ask("{'insert': 'c', 'documents': [{'_id': 7}], '$db': 'test'}");
    check_text(reply, "writeErrors.0.errmsg",
               "E11000 duplicate key error collection: test.c index: _id_ dup key: {\"_id\": 7}");
    CHECK_INT(reply_number(reply, "writeErrors.0.keyValue._id"), ==, 7);
    bson_destroy(reply);
    end();
}

TEST(sentences_of_another_form_are_left_as_they_are)
{
    static const char *const others[] = {
        "",
        "the key ",
        "the key {\"a\": 1}",
        "the key {\"a\": 1} is taken in the unique index \"i\"",
        "the key {\"a\": 1} is taken in the unique index \"i\" {\"a\": 1}",
        "key {\"a\": 1} is taken in the unique index \"i\" {\"a\": 1} of c"};
    bson_t reply = BSON_INITIALIZER;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(!duplicate_append(others[i], "test", &reply));
    CHECK(bson_empty(&reply));
    bson_destroy(&reply);
}

TEST(a_key_that_was_too_long_to_show_has_no_value)
{
    bson_t reply = BSON_INITIALIZER;

    CHECK(duplicate_append(
        "the key {\"a\": \"xxx... is taken in the unique index \"i\" {\"a\": 1} of c", "test",
        &reply));
    CHECK_INT(reply_number(&reply, "keyPattern.a"), ==, 1);
    CHECK(!bson_has_field(&reply, "keyValue"));
    bson_destroy(&reply);
}
