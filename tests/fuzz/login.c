/*
 * The input is a login. Each line is a payload of saslStart (a line that begins with "<"), of
 * saslContinue (">"), or of hello ("?"), by SCRAM-SHA-256 or (a second byte that is odd)
 * SCRAM-SHA-1. "*" is replaced by the nonce of the server. Whatever comes, the answer is one valid
 * document, and no user is logged in.
 */
#include <string.h>

#include "base/assert.h"
#include "bson/value.h"
#include "server/auth/users.h"
#include "server/call/call.h"
#include "server/dispatch.h"

static struct server *start(void)
{
    static struct grants grants;
    const struct user_facts facts = {.name = "ada",
                                     .database = "admin",
                                     .password = "a password",
                                     .mechanisms = USER_MECHANISMS,
                                     .grants = &grants};
    const struct server_options options = {.auth = true, .login_delay_ms = -1};
    truce_store *store;
    struct server *server;

    truce_assert(!truce_store_open("memory:", NULL, &store, NULL));
    truce_assert(!users_add(store, &facts, NULL));
    truce_assert(!server_start(store, &options, &server, NULL));
    return server;
}

/* Appends the payload with the nonce in place of "*", so that more than the first check is
 * reached. */
static void put_payload(struct buffer *payload, const struct login *login, const uint8_t *line,
                        size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (line[i] == '*' && login->scram)
            truce__buffer_append(payload, login->scram->nonce, strlen(login->scram->nonce));
        else
            truce__buffer_append_byte(payload, line[i]);
}

static void make_command(const uint8_t *line, const struct buffer *payload, bson_t *command)
{
    const char *mechanism = line[1] & 1 ? "SCRAM-SHA-1" : "SCRAM-SHA-256";
    bson_t inner = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&inner, "mechanism", mechanism);
    BSON_APPEND_BINARY(&inner, "payload", BSON_SUBTYPE_BINARY, payload->bytes,
                       (uint32_t)payload->size);
    BSON_APPEND_UTF8(&inner, "db", "admin");
    BCON_APPEND(&inner, "options", "{", "skipEmptyExchange", BCON_BOOL(line[1] & 2), "}");
    bson_init(command);
    BSON_APPEND_INT32(command,
                      line[0] == '?'   ? "hello"
                      : line[0] == '<' ? "saslStart"
                                       : "saslContinue",
                      1);
    if (line[0] == '?')
        BSON_APPEND_DOCUMENT(command, "speculativeAuthenticate", &inner);
    else
        bson_concat(command, &inner);
    BSON_APPEND_UTF8(command, "$db", "admin");
    bson_destroy(&inner);
}

static void ask(struct connection *connection, const uint8_t *line, size_t size)
{
    struct buffer payload = {0};
    struct wire_request request = {0};
    bson_t command, reply;

    truce__buffer_reserve(&payload, 1);
    put_payload(&payload, &connection->login, line + 2, size - 2);
    make_command(line, &payload, &command);
    (void)bson_init_static(&request.body, bson_get_data(&command), command.len);
    server_dispatch(connection, &request, &reply);
    truce_assert(!truce__message_check(&reply, NULL));
    truce_assert(bson_has_field(&reply, "ok"));
    truce_assert(!connection->login.user);
    bson_destroy(&reply);
    bson_destroy(&command);
    truce__buffer_release(&payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server *server;
    struct connection connection = {.socket = -1};
    const uint8_t *at = data, *end = data + size;

    if (!server)
        server = start();
    if (size > 4096)
        return -1;
    connection.server = server;
    while (at < end) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));

        stop = stop ? stop : end;
        if (stop - at >= 2)
            ask(&connection, at, (size_t)(stop - at));
        at = stop + 1;
    }
    login_release(&connection.login);
    return 0;
}
