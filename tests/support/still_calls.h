#ifndef TRUCE_TESTS_SUPPORT_STILL_CALLS_H
#define TRUCE_TESTS_SUPPORT_STILL_CALLS_H

/* Commands to a server whose calls run in the thread of the test. Each reply must be a valid
 * document with `ok`. */
#include "bson/value.h"
#include "tests/support/still_server.h"
#include "tests/support/test.h"
#include "truce/json.h"

/* The server and the only connection of the test. */
static struct server *server;
static struct connection connection;

/* Connects to a server of still_serve. */
static inline void still_connect(struct server *started)
{
    server = started;
    connection = (struct connection){.server = server, .socket = -1};
}

/* Stops the server and closes its store. */
static inline void still_end(void)
{
    truce_store *store = server->store;

    login_release(&connection.login);
    server_stop(server, 1000);
    truce_store_close(store);
}

/* Fails the test because of an unexpected reply. */
static inline void fail_answer(const bson_t *command, const bson_t *reply)
{
    char *sent = bson_as_relaxed_extended_json(command, NULL),
         *reported = bson_as_relaxed_extended_json(reply, NULL);

    test_fail(__FILE__, __LINE__, "%s is answered with %s", sent, reported);
    bson_free(sent);
    bson_free(reported);
}

/* Runs the command and checks that the reply is a valid document. The caller destroys `reply`. */
static inline void answer(const bson_t *command, bson_t *reply)
{
    struct wire_request request = {.id = 1};
    bson_error_t error = {0};
    char *text;

    REQUIRE(bson_init_static(&request.body, bson_get_data(command), command->len));
    server_dispatch(&connection, &request, reply);
    if (!truce__message_check(reply, &error) && bson_has_field(reply, "ok"))
        return;
    text = bson_as_canonical_extended_json(command, NULL);
    test_fail(__FILE__, __LINE__, "%s is answered by what is no answer: %s", text, error.message);
    bson_free(text);
}

/* Parses typed JSON, of the database test if it does not name another; the caller destroys it. */
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

/* Sends a command, and ignores its reply. */
static inline void ask(const char *json)
{
    bson_t *command = command_of(json), reply;

    answer(command, &reply);
    bson_destroy(&reply);
    bson_destroy(command);
}

/* Sends a command that succeeds. */
static inline void must(const char *json)
{
    bson_t *command = command_of(json), reply;
    bson_iter_t ok;

    answer(command, &reply);
    if (!bson_iter_init_find(&ok, &reply, "ok") || !bson_iter_as_bool(&ok))
        fail_answer(command, &reply);
    bson_destroy(&reply);
    bson_destroy(command);
}

#endif
