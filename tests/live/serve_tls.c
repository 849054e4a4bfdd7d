/*
 * A server with TLS: its accepted versions and certificates, and clients that stall, or do not
 * speak TLS. tests/servers tests the logins of drivers.
 */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "server/net/wire_protocol.h"
#include "tests/support/certificate.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static char *own, *clients, *others; /* files of certificates, each of a CA of its own */

static char *named(const char *name)
{
    static const char *folder; /* one for all tests */

    folder = folder ? folder : test_directory();
    return bson_strdup_printf("%s/%s", folder, name);
}

static void make_certificates(void)
{
    if (own)
        return;
    own = named("own");
    clients = named("clients");
    others = named("others");
    certificate_make(own);
    certificate_make(clients);
    certificate_make(others);
}

static truce_status start(const char *certificate, const char *key, const char *ca,
                          int64_t handshake_ms, bson_error_t *error)
{
    struct server_options options = {
        .tls = {.certificate = certificate, .key = key, .client_ca = ca},
        .handshake_ms = handshake_ms};

    return server_start(store, &options, &server, error);
}

static void begin(bool demands, int64_t handshake_ms)
{
    char *certificate, *ca;
    bson_error_t error = {0};

    make_certificates();
    certificate = bson_strdup_printf("%s.pem", own);
    ca = bson_strdup_printf("%s.ca", clients);
    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!start(certificate, NULL, demands ? ca : NULL, handshake_ms, &error));
    bson_free(certificate);
    bson_free(ca);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* ---- a client ------------------------------------------------------------------------------- */

struct client {
    int version;             /* 0: any */
    const char *certificate; /* NULL: none */
};

/* {ping: 1}; true: it was answered. */
static bool ping(SSL *ssl)
{
    bson_t *command = test_bson("{'ping': 1, '$db': 'admin'}");
    struct buffer message = message_of(command, 0);
    uint8_t head[WIRE_HEAD];
    bool answered;

    answered = SSL_write(ssl, message.bytes, (int)message.size) == (int)message.size &&
               SSL_read(ssl, head, sizeof head) == sizeof head && wire_length(head) > WIRE_HEAD;
    truce__buffer_release(&message);
    bson_destroy(command);
    return answered;
}

static bool reaches(const struct client *client)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    char *ca = bson_strdup_printf("%s.ca", own), *file;
    int end_ = dial();
    bool reached;
    SSL *ssl;

    signal(SIGPIPE, SIG_IGN); /* OpenSSL's client may write to a closed connection */
    CHECK(SSL_CTX_load_verify_locations(context, ca, NULL) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_security_level(context, 0); /* so that it offers old versions at all */
    if (client->version) {
        SSL_CTX_set_min_proto_version(context, client->version);
        SSL_CTX_set_max_proto_version(context, client->version);
    }
    if (client->certificate) {
        file = bson_strdup_printf("%s.pem", client->certificate);
        CHECK(SSL_CTX_use_certificate_file(context, file, SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_CTX_use_PrivateKey_file(context, file, SSL_FILETYPE_PEM) == 1);
        bson_free(file);
    }
    ssl = SSL_new(context);
    SSL_set_fd(ssl, end_);
    reached = SSL_connect(ssl) == 1 && ping(ssl); /* a refusal may come after the client's part */
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
    close(end_);
    bson_free(ca);
    return reached;
}

/* ---- tests ---------------------------------------------------------------------------------- */

TEST(versions_of_tls_from_1_2_on_are_spoken)
{
    begin(false, 0);
    CHECK(reaches(&(struct client){0}));
    CHECK(reaches(&(struct client){.version = TLS1_3_VERSION}));
    CHECK(reaches(&(struct client){.version = TLS1_2_VERSION}));
    CHECK(!reaches(&(struct client){.version = TLS1_1_VERSION}));
    CHECK(!reaches(&(struct client){.version = TLS1_VERSION}));
    end();
}

TEST(clients_need_a_certificate_of_the_ca_where_one_is_named)
{
    char *signed_;

    begin(true, 0);
    signed_ = named("signed");
    certificate_make_signed(signed_, clients);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        CHECK(reaches(&(struct client){.version = version, .certificate = signed_}));
        CHECK(reaches(&(struct client){.version = version, .certificate = clients}));
        CHECK(!reaches(&(struct client){.version = version}));
        CHECK(!reaches(&(struct client){.version = version, .certificate = others}));
        CHECK(!reaches(&(struct client){.version = version, .certificate = own}));
    }
    bson_free(signed_);
    end();
}

/* Without a handshake a connection ends at its timeout; until then it blocks no other
 * connection. */
TEST(ends_a_stalled_handshake_and_blocks_no_others)
{
    static const uint8_t hello[] = {0x16, 0x03, 0x01, 0x02, 0x00}; /* and no more of it */
    int silent, halfway;
    uint8_t byte;

    begin(false, 300);
    silent = dial();
    halfway = dial();
    CHECK(send_all(halfway, hello, sizeof hello));
    CHECK(reaches(&(struct client){0}));
    CHECK(recv(silent, &byte, 1, 0) <= 0);
    CHECK(recv(halfway, &byte, 1, 0) <= 0);
    close(silent);
    close(halfway);
    end();
}

/* A client that sends a byte from time to time has the same timeout as a silent one. */
TEST(ends_a_slow_handshake_at_its_timeout)
{
    uint8_t hello[16000] = {0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc, 0x03, 0x03};
    size_t sent = 0;
    int end_;

    begin(false, 300);
    end_ = dial();
    while (sent < sizeof hello && send_all(end_, hello + sent, 1)) {
        sent++;
        usleep(10000);
    }
    CHECK(sent < sizeof hello); /* by then minutes are over */
    close(end_);
    end();
}

/* At its end, the server closes stalled connections. */
TEST(a_server_ends_in_the_middle_of_a_handshake)
{
    int end_;

    begin(false, 3600000);
    end_ = dial();
    CHECK(reaches(&(struct client){0}));
    server_stop(server, 0);
    truce_store_close(store);
    close(end_);
}

TEST(closes_plain_connections_to_tls_and_tls_to_plain)
{
    const uint8_t hello[] = {0x16, 0x03, 0x01, 0x00, 0x05, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    bson_error_t error = {0};
    uint8_t bytes[64];
    bson_t *command = test_bson("{'ping': 1, '$db': 'admin'}");
    struct buffer message = message_of(command, 0);
    int end_;

    begin(false, 0);
    end_ = dial();
    CHECK(send_all(end_, message.bytes, message.size));
    while (recv(end_, bytes, sizeof bytes, 0) > 0) /* an alert, if anything */
        ;
    close(end_);
    CHECK(reaches(&(struct client){0}));
    end();
    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    end_ = dial();
    CHECK(send_all(end_, hello, sizeof hello));
    CHECK(recv(end_, bytes, sizeof bytes, 0) <= 0);
    close(end_);
    server_stop(server, 5000);
    truce_store_close(store);
    truce__buffer_release(&message);
    bson_destroy(command);
}

TEST(refuses_invalid_files_by_name)
{
    bson_error_t error = {0};
    char *certificate, *other, *ca, *none = named("none"), *empty = named("empty");
    FILE *file = fopen(empty, "w");

    fclose(file);
    make_certificates();
    certificate = bson_strdup_printf("%s.pem", own);
    other = bson_strdup_printf("%s.pem", others);
    ca = bson_strdup_printf("%s.ca", clients);
    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    CHECK_INT(start(none, NULL, NULL, 0, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "none\": No such file") != NULL);
    CHECK_INT(start(empty, NULL, NULL, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(certificate, none, NULL, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(certificate, other, NULL, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(ca, NULL, NULL, 0, &error), ==, TRUCE_INVALID); /* no key there */
    CHECK_INT(start(certificate, NULL, none, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(certificate, NULL, empty, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(NULL, certificate, NULL, 0, &error), ==, TRUCE_INVALID);
    CHECK_INT(start(NULL, NULL, ca, 0, &error), ==, TRUCE_INVALID);
    truce_store_close(store);
    bson_free(certificate);
    bson_free(other);
    bson_free(ca);
    bson_free(none);
    bson_free(empty);
}
