#ifndef TRUCE_TESTS_SUPPORT_STILL_CALLS_H
#define TRUCE_TESTS_SUPPORT_STILL_CALLS_H

/* Commands to a server whose calls are run by the test's own thread, each answered by one sound document with `ok`. */
#include "bson/value.h"
#include "tests/support/still_server.h"
#include "tests/support/test.h"
#include "truce/json.h"

/* begun and ended by the test */
static struct server *server;
static struct connection connection;

/* bson_destroy it. */
static inline void answer(const bson_t *command, bson_t *reply)
{
    struct wire_request request = {.id = 1};
    bson_error_t error = {0};
    char *text;

    REQUIRE(bson_init_static(&request.body, bson_get_data(command), command->len));
    call_run(&connection, &request, reply);
    if (!truce__message_check(reply, &error) && bson_has_field(reply, "ok"))
        return;
    text = bson_as_canonical_extended_json(command, NULL);
    test_fail(__FILE__, __LINE__, "%s is answered by what is no answer: %s", text, error.message);
    bson_free(text);
}

/* Typed JSON, of the database test if it does not say another; bson_destroy it. */
static inline bson_t *command_of(const char *json)
{
    bson_error_t error;
    bson_t typed, *copy;

    if (truce_json_read(json, strlen(json), TRUCE_JSON_TYPED, &typed, NULL, &error)) {
        test_fail(__FILE__, __LINE__, "%s: %s", json, error.message);
        abort();
    }
    if (!bson_has_field(&typed, "$db"))
        BSON_APPEND_UTF8(&typed, "$db", "test");
    copy = bson_copy(&typed);
    bson_destroy(&typed);
    return copy;
}

#endif
