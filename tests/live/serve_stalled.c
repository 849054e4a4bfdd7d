/* Clients that stop in the middle: their unfinished operations end, and no other client waits for
 * them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "server/auth/users.h"
#include "server/call/shared_state.h"
#include "server/net/compress.h"
#include "server/net/wire_protocol.h"
#include "tests/support/scram_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define PING  "{'ping': 1, '$db': 'admin'}"
#define HELLO "{'hello': 1, '$db': 'admin'}"

static const struct server_options quick = {
    .message_ms = 300, .unauthenticated_ms = 900, .send_ms = 600, .connections_max = 12};

static void begin(bool auth)
{
    struct server_options options = quick;
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    options.auth = auth;
    if (auth) {
        struct grants grants = {.count = 1};
        struct user_facts facts = {.name = "root",
                                   .database = "admin",
                                   .password = "root",
                                   .mechanisms = USER_MECHANISMS,
                                   .grants = &grants};

        grants.all[0].role = role_of("root", "admin");
        snprintf(grants.all[0].database, sizeof grants.all[0].database, "admin");
        REQUIRE(!users_add(store, &facts, &error));
    }
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* Waits until the server ends the connection, and discards further data. */
static void expect_end(int end_, const char *what)
{
    const struct timeval patience = {.tv_sec = 20};
    char bytes[4096];
    ssize_t got;

    (void)setsockopt(end_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    do
        got = recv(end_, bytes, sizeof bytes, 0);
    while (got > 0);
    if (got < 0 && errno == EAGAIN)
        test_fail(__FILE__, __LINE__, "a connection goes on: %s", what);
    close(end_);
}

static bool answers(int end_, const char *json)
{
    bson_t *reply = ask_on(end_, json, 0);
    bool good = reply_number(reply, "ok") == 1;

    if (reply)
        bson_destroy(reply);
    return good;
}

/* Sends that many bytes of a ping; `compressed`: by zlib. */
static void send_some(int end_, size_t size, bool compressed)
{
    bson_t *command = test_bson(PING);
    struct buffer message = message_of(command, 0);

    if (compressed)
        compress_close(&message, compress_number("zlib"));
    CHECK(send_all(end_, message.bytes, size < message.size ? size : message.size - 1));
    truce__buffer_release(&message);
    bson_destroy(command);
}

/* Sends the header of a message of that many bytes, and `sent` of them. */
static void send_part(int end_, uint32_t length, size_t sent)
{
    struct buffer message = {0};
    uint8_t *zeros = bson_malloc0(sent + 1);

    put_uint32(&message, length);
    put_uint32(&message, 1);
    put_uint32(&message, 0);
    put_uint32(&message, OP_MSG);
    CHECK(send_all(end_, message.bytes, message.size));
    (void)send_all(end_, zeros, sent);
    bson_free(zeros);
    truce__buffer_release(&message);
}

/* Each part of a message after which a client can stop. */
static void stop_everywhere(int (*open_end)(void))
{
    static const size_t sizes[] = {1, 3, 15, 16, 17, 21, 1000};
    int end_;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int compressed = 0; compressed < 2; compressed++) {
            end_ = open_end();
            send_some(end_, sizes[i], compressed);
            expect_end(end_, "a message was cut off");
        }
}

static int dial_and_greet(void)
{
    int end_ = dial();

    CHECK(answers(end_, HELLO));
    return end_;
}

static int dial_as_root(void)
{
    return dial_as("root", "root");
}

TEST(a_connection_that_has_not_logged_in_ends_when_it_stops)
{
    int end_;

    begin(true);
    expect_end(dial(), "nothing was sent");
    stop_everywhere(dial);
    stop_everywhere(dial_and_greet);
    expect_end(dial_and_greet(), "only hello was sent");
    end_ = dial();
    CHECK(answers(end_, "{'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', 'payload': {'$binary': "
                        "{'base64': 'biwsbj1yb290LHI9YWJjZGVmZ2hpamtsbW5vcHFyc3R1dg==', "
                        "'subType': '00'}}, '$db': 'admin'}"));
    expect_end(end_, "a login was begun");
    end();
}

TEST(allows_idle_logged_in_connections_and_ends_stalled_messages)
{
    int end_;

    begin(true);
    end_ = dial_as_root();
    truce__clock_sleep_ms(1500);
    CHECK(answers(end_, PING));
    send_some(end_, 20, false);
    expect_end(end_, "a message was cut off after a login");
    stop_everywhere(dial_as_root);
    end();
}

TEST(allows_idle_connections_without_logins)
{
    int end_;

    begin(false);
    end_ = dial();
    truce__clock_sleep_ms(1500);
    CHECK(answers(end_, PING));
    close(end_);
    stop_everywhere(dial);
    end_ = dial();
    send_part(end_, 40 * 1024 * 1024, 3 * 1024 * 1024);
    expect_end(end_, "a long message stopped");
    end();
}

TEST(accepts_a_message_that_arrives_slowly)
{
    bson_t *command = test_bson(PING), *reply;
    struct buffer message = message_of(command, 0);
    int end_;

    begin(false);
    end_ = dial();
    for (size_t i = 0; i < message.size; i += 16) {
        CHECK(send_all(end_, message.bytes + i, message.size - i < 16 ? message.size - i : 16));
        truce__clock_sleep_ms(20);
    }
    reply = receive_reply(end_);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    bson_destroy(command);
    truce__buffer_release(&message);
    close(end_);
    end();
}

/* The answers are longer than the system's socket buffers. */
TEST(disconnects_a_client_that_reads_nothing)
{
    char *text = bson_malloc0(8 * 1024 * 1024 + 1), *json;
    bson_t *command;
    struct buffer message;
    int end_;

    memset(text, 'x', 8 * 1024 * 1024);
    begin(false);
    json = bson_strdup_printf("{'insert': 'c', 'documents': [{'_id': 1, 'a': '%s'}], '$db': "
                              "'test'}",
                              text);
    end_ = dial();
    CHECK(answers(end_, json));
    command = test_bson("{'find': 'c', '$db': 'test'}");
    message = message_of(command, 0);
    for (int i = 0; i < 8; i++)
        CHECK(send_all(end_, message.bytes, message.size));
    truce__clock_sleep_ms(3000);
    expect_end(end_, "it read nothing");
    end_ = dial(); /* a client that reads continues */
    CHECK(answers(end_, "{'find': 'c', '$db': 'test'}"));
    close(end_);
    truce__buffer_release(&message);
    bson_destroy(command);
    bson_free(json);
    bson_free(text);
    end();
}

TEST(connections_without_a_login_do_not_lock_users_out)
{
    int idle[12], more[4];

    begin(true);
    for (int i = 0; i < 12; i++)
        idle[i] = dial_and_greet(); /* as many as there may be */
    CHECK(answers(idle[11], HELLO));
    server->unauthenticated_ms = 60000;
    for (int i = 0; i < 12; i++)
        CHECK(answers(idle[i], HELLO));
    truce__clock_sleep_ms(TRUCE_UNAUTHENTICATED_FRESH_MS + 100);
    for (int i = 0; i < 4; i++)
        more[i] = dial_as_root();
    for (int i = 0; i < 4; i++) {
        CHECK(answers(more[i], "{'find': 'c', '$db': 'test'}"));
        expect_end(idle[i], "it was the oldest without a login");
    }
    CHECK(answers(idle[11], HELLO));
    for (int i = 0; i < 4; i++)
        close(more[i]);
    for (int i = 4; i < 12; i++)
        close(idle[i]);
    end();
}
