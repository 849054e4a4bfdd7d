/* The addresses that a server listens on: Unix sockets, IPv6, and no port at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <netinet/in.h>

#include "tests/support/certificate.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define PING "{'ping': 1, '$db': 'admin'}"

static truce_status start(const struct server_options *options, bson_error_t *error)
{
    return server_start(store, options, &server, error);
}

static void begin(const struct server_options *options)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    if (start(options, &error)) {
        test_fail(__FILE__, __LINE__, "%s", error.message);
        REQUIRE(false);
    }
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static const char *socket_path(void)
{
    static char path[100];

    snprintf(path, sizeof path, "/tmp/truce-test-%d.sock", (int)getpid());
    return path;
}

/* Returns a connected socket, or -1. */
static int dial_path(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (!connect(socket_, (struct sockaddr *)&at, sizeof at))
        return socket_;
    close(socket_);
    return -1;
}

static void check_ping(int socket_)
{
    bson_t *reply = socket_ < 0 ? NULL : ask_on(socket_, PING, 0);

    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    if (reply)
        bson_destroy(reply);
    close(socket_);
}

TEST(a_socket_serves_without_a_port_and_its_file_is_removed)
{
    struct stat found;
    bson_t *reply;
    int idle;

    begin(&(struct server_options){.port = SERVER_NO_PORT, .socket = socket_path()});
    CHECK_INT(server_port(server), ==, 0);
    REQUIRE(!stat(socket_path(), &found));
    CHECK(S_ISSOCK(found.st_mode));
    CHECK_INT(found.st_mode & 0777, ==, 0600);
    check_ping(dial_path(socket_path()));
    idle = dial_path(socket_path());
    reply = ask_on(idle, "{'currentOp': 1, '$db': 'admin'}", 0);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    end();
    close(idle);
    CHECK(stat(socket_path(), &found) && errno == ENOENT);
}

TEST(a_socket_and_a_port_are_served_together)
{
    begin(&(struct server_options){.socket = socket_path(), .socket_mode = 0660});
    check_ping(dial_path(socket_path()));
    check_ping(dial());
    end();
}

TEST(an_unused_socket_file_is_replaced_and_one_in_use_is_not)
{
    const struct server_options options = {.port = SERVER_NO_PORT, .socket = socket_path()};
    struct server *first;
    bson_error_t error = {0};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int left = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", socket_path());
    REQUIRE(!bind(left, (struct sockaddr *)&at, sizeof at));
    close(left); /* its file stays */
    begin(&options);
    first = server;
    CHECK_INT(start(&options, &error), ==, TRUCE_IO);
    CHECK(strstr(error.message, "another process listens") != NULL);
    server = first;
    check_ping(dial_path(socket_path()));
    end();
}

TEST(does_not_remove_a_file_that_replaced_the_socket)
{
    FILE *file;

    begin(&(struct server_options){.port = SERVER_NO_PORT, .socket = socket_path()});
    REQUIRE(!unlink(socket_path()));
    file = fopen(socket_path(), "w");
    REQUIRE(file != NULL);
    fclose(file);
    end();
    CHECK(!access(socket_path(), F_OK));
    unlink(socket_path());
}

TEST(another_file_and_impossible_paths_are_refused)
{
    char path[300];
    bson_error_t error = {0};
    int file;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    snprintf(path, sizeof path, "%s", socket_path());
    file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    close(file);
    CHECK_INT(start(&(struct server_options){.socket = path}, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, path) && strstr(error.message, "not a socket"));
    CHECK(!unlink(path)); /* it is still there */
    CHECK_INT(start(&(struct server_options){.socket = ""}, &error), ==, TRUCE_INVALID);
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    CHECK_INT(start(&(struct server_options){.socket = path}, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "107") != NULL);
    CHECK_INT(start(&(struct server_options){.socket = "/tmp/truce-no-folder/s"}, &error), ==,
              TRUCE_IO);
    CHECK_INT(start(&(struct server_options){.port = SERVER_NO_PORT}, &error), ==, TRUCE_INVALID);
    truce_store_close(store);
}

TEST(a_replica_set_needs_an_address)
{
    struct server_options options = {
        .port = SERVER_NO_PORT, .socket = socket_path(), .replica_set = "rs"};
    char path[500];
    bson_error_t error = {0};

    snprintf(path, sizeof path, "%s/set.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    CHECK_INT(start(&options, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "--advertise") != NULL);
    options.advertise = "localhost:27017";
    REQUIRE(!start(&options, &error));
    end();
}

TEST(a_socket_is_plain_where_the_port_uses_tls)
{
    char *own = bson_strdup_printf("%s/own", test_directory()),
         *pem = bson_strdup_printf("%s.pem", own);

    certificate_make(own);
    begin(&(struct server_options){.socket = socket_path(), .tls = {.certificate = pem}});
    check_ping(dial_path(socket_path()));
    end();
    bson_free(own);
    bson_free(pem);
}

TEST(ipv6_is_served_and_needs_logins_beyond_the_loopback)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    static const char *const wrong[] = {"::", "fe80::1", "2001:db8::1"};
    static const char *const invalid[] = {"localhost", "[::1]", "::1::", "1.2.3", "x", ""};
    bson_error_t error = {0};
    int socket_;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(start(&(struct server_options){.address = wrong[i]}, &error), ==, TRUCE_INVALID);
        CHECK(strstr(error.message, "--auth") != NULL);
    }
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        if (!CHECK_INT(start(&(struct server_options){.address = invalid[i]}, &error), ==,
                       TRUCE_INVALID))
            test_fail(__FILE__, __LINE__, "\"%s\" is accepted", invalid[i]);
    if (start(&(struct server_options){.address = "::1"}, &error)) {
        truce_store_close(store);
        test_skip("this machine has no IPv6: %s", error.message);
        return;
    }
    at.sin6_port = htons((uint16_t)server_port(server));
    socket_ = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!connect(socket_, (struct sockaddr *)&at, sizeof at));
    check_ping(socket_);
    end();
}
